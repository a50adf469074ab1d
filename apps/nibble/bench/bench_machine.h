/* bench_machine.h - the machine that figures belong to. */
#ifndef NB_APPS_BENCH_MACHINE_H
#define NB_APPS_BENCH_MACHINE_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_machine {
    char cpu[96], governor[32]; /* governor: "" where the system does not tell */
    const char *caps, *compiler, *build, *version;
    long n_cpu;
    uint64_t memory_bytes, l1_bytes, l2_bytes, l3_bytes; /* caches: of a core; of all. 0: unknown */
    double load;                                         /* of the last minute; -1: unknown */
} bench_machine;

void bench_machine_read(bench_machine *m);
void bench_machine_print(FILE *f, const bench_machine *m);
json_t *bench_machine_json(const bench_machine *m); /* NULL: no memory */
/* Where n_bytes lie that n_thread cores share: "L1", "L2", "L3", "memory". */
const char *bench_machine_home(const bench_machine *m, double n_bytes, size_t n_thread);
/* Peak and present resident memory of this process in bytes; 0 where it is not told. */
uint64_t bench_peak_bytes(void);

#endif
