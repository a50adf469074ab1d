/* process.h - what the system says of this process. */
#ifndef NB_SERVE_PROCESS_H
#define NB_SERVE_PROCESS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct nb_process {
    uint64_t resident_bytes, virtual_bytes, n_fd, max_fd;
    double cpu_s; /* user and system */
} nb_process;

/* false where there is no /proc. */
bool nb_process_read(nb_process *p);

#endif
