/* dev.h - where a step runs: memory and parallel tasks of one device.
 *
 * The host device is memory of the process and a fork-join pool.  Owned by the
 * engine thread. */
#ifndef NB_DEV_DEV_H
#define NB_DEV_DEV_H
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct nb_dev nb_dev;
/* As in os/pool.h: results must not depend on `worker` or on the order of tasks. */
typedef void nb_dev_task_fn(void *ctx, size_t task, size_t worker);

nb_status nb_dev_create_host(size_t n_thread, nb_dev **out, nb_error *err); /* 0: all cores */
/* Binds the workers to CPUs, as os/places.h says for "auto" (or NULL), "none", or a list; the thread
 * that runs tasks binds itself with nb_dev_enter. */
nb_status nb_dev_bind(nb_dev *d, const char *affinity, nb_error *err);
/* The same of one of n_part devices with as many threads each, whose threads are placed together.  Where they are
 * bound and there are several parts, memory of this one is taken where its threads touch it first. */
nb_status nb_dev_bind_part(nb_dev *d, const char *affinity, size_t part, size_t n_part,
                           nb_error *err);
void nb_dev_enter(nb_dev *d);
/* Between on and off: what this thread, and threads that it starts, touch first is spread over the
 * memory nodes of the machine. */
void nb_dev_spread(nb_dev *d, bool on);
void nb_dev_destroy(nb_dev *d);
size_t nb_dev_n_worker(const nb_dev *d);
void nb_dev_run(nb_dev *d, nb_dev_task_fn *fn, void *ctx, size_t n_task);

/* Zeroed memory, committed when touched, spread over the memory nodes; NULL when refused. Freed by size. */
void *nb_dev_alloc(nb_dev *d, size_t n_bytes);
/* The same for what other parts (nb_dev_bind_part) read, too: spread in any case. */
void *nb_dev_alloc_shared(nb_dev *d, size_t n_bytes);
void nb_dev_free(nb_dev *d, void *p, size_t n_bytes);
#endif
