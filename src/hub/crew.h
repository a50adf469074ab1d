/* crew.h - threads that work off a numbered list, while the caller's thread watches. */
#ifndef NB_HUB_CREW_H
#define NB_HUB_CREW_H
#include <stdatomic.h>
#include <stddef.h>

#include "os/thread.h"

/* Item `item`, by worker `worker` (below n_worker).  The first that fails stops the others. */
typedef nb_status nb_hub_work_fn(void *ctx, size_t item, size_t worker, nb_error *err);

typedef struct nb_hub_crew {
    size_t n_item, n_worker; /* n_worker >= 1; no more are started than there are items */
    nb_hub_work_fn *work;
    void (*watch)(void *ctx); /* about ten times a second, on the caller's thread, under lock; or NULL */
    void *ctx;
    const atomic_bool *interrupt; /* set by a signal handler: the work is stopped; or NULL */
    /* the crew's own */
    atomic_bool stop; /* work is to end soon */
    nb_mutex *lock;   /* work holds it where it shares things with other workers */
    nb_cond *changed;
    size_t next, n_running;
    nb_error first; /* of the work that failed first */
} nb_hub_crew;

/* Makes lock; before anything that uses it. */
nb_status nb_hub_crew_init(nb_hub_crew *c, nb_error *err);
void nb_hub_crew_deinit(nb_hub_crew *c);
/* Returns when all have ended: NB_OK, or the first failure (NB_ERR_CANCELLED: interrupted). */
nb_status nb_hub_crew_run(nb_hub_crew *c, nb_error *err);

#endif
