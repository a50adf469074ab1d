/* sys.h - facts about the machine. */
#ifndef NB_OS_SYS_H
#define NB_OS_SYS_H
#include <stdint.h>

uint64_t nb_os_ram_bytes(void); /* physical memory this process may use; 0: unknown */
/* A variable of the environment; NULL where it is not set or empty. */
const char *nb_os_env(const char *name);
/* Gives memory that was freed back to the system, as far as the allocator can. */
void nb_os_trim_memory(void);
int64_t nb_os_wall_s(void);     /* seconds since 1970, local wall clock (zone offset added) */
#endif
