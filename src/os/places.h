/* places.h - which CPU each worker of a pool runs on, and on which memory node. */
#ifndef NB_OS_PLACES_H
#define NB_OS_PLACES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { NB_MAX_CPU = 1024 };

/* "0-3,8" as numbers in the order given, each once and below NB_MAX_CPU; white space may follow. */
nb_status nb_cpu_list_parse(const char *text, uint16_t cpu[NB_MAX_CPU], size_t *n, nb_error *err);

/* What a machine has: filled from `sys` ("/sys"; tests have a folder of their own).  Files that
 * are absent or make no sense count as one node and as CPUs that are cores of their own. */
typedef struct nb_machine {
    bool allowed[NB_MAX_CPU]; /* this process may run there: set by the caller */
    bool core[NB_MAX_CPU];    /* the first allowed CPU of a physical core */
    uint16_t node[NB_MAX_CPU];
    size_t n_allowed, n_core, n_node; /* n_node: with allowed CPUs, >= 1 */
    uint64_t node_mask;               /* of nodes below 64 that have allowed CPUs */
} nb_machine;
void nb_machine_read(nb_machine *m, const char *sys);

/* The CPU of each of n_thread workers, node by node: *n is n_thread, or 0 where threads are not
 * to be bound.  `affinity` is
 *   auto (or NULL)  one core each, if `free` (nothing else restricts this process) and there is
 *                   a thread for every core, or there are several nodes and cores enough
 *   none            never
 *   a list          these CPUs, the first n_thread; NB_ERR_ARG when it makes no sense here */
nb_status nb_places_choose(const nb_machine *m, const char *affinity, bool free, size_t n_thread,
                           uint16_t cpu[NB_MAX_CPU], size_t *n, nb_error *err);

/* The machine at hand; `free`: every CPU is allowed and no control group limits the process. */
void nb_machine_here(nb_machine *m, bool *free);
/* Memory that is not touched yet is taken from all nodes of the mask in turn; nothing happens
 * where there is one, or where the system refuses. */
void nb_interleave(const nb_machine *m, void *p, size_t n_bytes);
/* The same for all that the calling thread, and threads that it starts, touch first. */
void nb_interleave_thread(const nb_machine *m, bool on);
#endif
