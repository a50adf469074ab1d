/* dev.h - where a step runs: memory and parallel tasks of one device.
 *
 * The host device is memory of the process and a fork-join pool.  Owned by the
 * engine thread. */
#ifndef NB_DEV_DEV_H
#define NB_DEV_DEV_H
#include <stddef.h>

#include "base/status.h"

typedef struct nb_dev nb_dev;
/* As in os/pool.h: results must not depend on `worker` or on the order of tasks. */
typedef void nb_dev_task_fn(void *ctx, size_t task, size_t worker);

nb_status nb_dev_create_host(size_t n_thread, nb_dev **out, nb_error *err); /* 0: all cores */
void nb_dev_destroy(nb_dev *d);
size_t nb_dev_n_worker(const nb_dev *d);
void nb_dev_run(nb_dev *d, nb_dev_task_fn *fn, void *ctx, size_t n_task);

/* Zeroed memory, committed when touched; NULL when refused. Freed by size. */
void *nb_dev_alloc(nb_dev *d, size_t n_bytes);
void nb_dev_free(nb_dev *d, void *p, size_t n_bytes);
#endif
