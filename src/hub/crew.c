/* crew.c - see crew.h. */
#include "hub/crew.h"

#include <stdlib.h>

enum { WATCH_MS = 100 };

typedef struct member {
    nb_hub_crew *crew;
    size_t number;
    nb_thread *thread;
} member;

nb_status nb_hub_crew_init(nb_hub_crew *c, nb_error *err)
{
    atomic_init(&c->stop, false);
    if (nb_mutex_create(&c->lock) == NB_OK && nb_cond_create(&c->changed) == NB_OK) return NB_OK;
    nb_hub_crew_deinit(c);
    return nb_fail(err, NB_ERR_NOMEM, "out of memory for a lock");
}

void nb_hub_crew_deinit(nb_hub_crew *c)
{
    if (c->changed) nb_cond_destroy(c->changed);
    if (c->lock) nb_mutex_destroy(c->lock);
    c->changed = NULL;
    c->lock = NULL;
}

static void run_member(void *arg)
{
    const member *m = arg;
    nb_hub_crew *c = m->crew;
    nb_mutex_lock(c->lock);
    while (c->next < c->n_item && !atomic_load(&c->stop)) {
        const size_t item = c->next++;
        nb_error err = { 0 };
        nb_mutex_unlock(c->lock);
        const nb_status st = c->work(c->ctx, item, m->number, &err);
        nb_mutex_lock(c->lock);
        if (st == NB_OK) continue;
        if (c->first.status == NB_OK) c->first = err;
        atomic_store(&c->stop, true);
    }
    c->n_running--;
    nb_cond_broadcast(c->changed);
    nb_mutex_unlock(c->lock);
}

nb_status nb_hub_crew_run(nb_hub_crew *c, nb_error *err)
{
    const size_t n = c->n_worker < c->n_item ? c->n_worker : c->n_item;
    member *m = calloc(n ? n : 1, sizeof *m);
    nb_status st = m ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory for threads");
    c->next = 0;
    nb_mutex_lock(c->lock);
    for (size_t i = 0; st == NB_OK && i < n; i++) {
        m[i] = (member){ .crew = c, .number = i };
        st = nb_thread_create(run_member, &m[i], &m[i].thread, err);
        if (st == NB_OK) c->n_running++;
    }
    if (st != NB_OK) atomic_store(&c->stop, true);
    while (c->n_running > 0) {
        if (c->interrupt && atomic_load(c->interrupt)) atomic_store(&c->stop, true);
        if (c->watch) c->watch(c->ctx);
        nb_cond_wait_for(c->changed, c->lock, WATCH_MS);
    }
    nb_mutex_unlock(c->lock);
    for (size_t i = 0; m && i < n; i++) nb_thread_join(m[i].thread);
    free(m);
    if (st != NB_OK) return st;
    if (c->interrupt && atomic_load(c->interrupt))
        return nb_fail(err, NB_ERR_CANCELLED, "interrupted");
    if (c->first.status != NB_OK) return nb_fail(err, c->first.status, "%s", c->first.msg);
    return NB_OK;
}
