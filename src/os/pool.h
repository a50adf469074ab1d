/* pool.h - a fork-join pool of threads.
 *
 * nb_pool_run calls fn(ctx, task, worker) once for every task in [0, n_task) and
 * returns when all are done.  Which worker runs a task is not fixed, so a task's
 * result must not depend on it: callers cut work into tasks by the problem's
 * shape, never by the number of threads.  worker < nb_pool_n_thread indexes
 * per-thread scratch.  The caller takes part as worker 0.  Not re-entrant; one
 * caller at a time. */
#ifndef NB_OS_POOL_H
#define NB_OS_POOL_H
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct nb_pool nb_pool;
typedef void nb_task_fn(void *ctx, size_t task, size_t worker);

/* n_thread >= 1 (the caller counts as one); 0: nb_os_n_core(). */
nb_status nb_pool_create(size_t n_thread, nb_pool **out, nb_error *err);
void nb_pool_destroy(nb_pool *p);
size_t nb_pool_n_thread(const nb_pool *p);
void nb_pool_run(nb_pool *p, nb_task_fn *fn, void *ctx, size_t n_task);

/* Binds worker i to cpu[i] (places.h); worker 0 is whoever calls nb_pool_enter before it runs tasks:
 * only a thread that is there for this pool.  Where the system refuses, nothing changes. */
void nb_pool_bind(nb_pool *p, const uint16_t *cpu);
void nb_pool_enter(nb_pool *p);

/* Physical cores this process may run on (hyperthreads not counted), >= 1. */
size_t nb_os_n_core(void);
#endif
