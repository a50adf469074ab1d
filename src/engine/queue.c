/* queue.c - what other threads do to an engine: submit, abort, cancel, call. */
#include <stdlib.h>

#include "engine/engine_internal.h"

/* Ids are consecutive: their low bits spread them evenly. */
static size_t chain_of(nb_request_id id)
{
    return (size_t)id & (NB_ENGINE_RUN_TABLE - 1);
}

nb_run *nb_engine_find(const nb_engine *e, nb_request_id id)
{
    nb_run *r = e->table[chain_of(id)];
    while (r && r->id != id) r = r->chain;
    return r;
}

void nb_engine_forget(nb_engine *e, nb_run *run)
{
    nb_run **at = &e->table[chain_of(run->id)];
    while (*at != run) at = &(*at)->chain;
    *at = run->chain;
    e->n_live--;
    e->n_live_tok -= run->n_prompt;
    if (!run->aborted) return;
    if (run->abort_next) run->abort_next->abort_prev = run->abort_prev;
    if (run->abort_prev)
        run->abort_prev->abort_next = run->abort_next;
    else if (e->aborts == run)
        e->aborts = run->abort_next;
}

nb_status nb_engine_enqueue(nb_engine *e, nb_run *run, nb_request_id *id, nb_error *err)
{
    nb_status st = NB_OK;
    nb_mutex_lock(e->lock);
    if (e->failed)
        st = nb_fail(err, NB_ERR_FAILED, "%s", e->why_failed);
    else if (e->stopping)
        st = nb_fail(err, NB_ERR_CAPACITY, "the engine is being destroyed");
    else if (e->n_live >= NB_ENGINE_MAX_RUN)
        st = nb_fail(err, NB_ERR_CAPACITY, "%zu requests are in the engine, no more are taken",
                     e->n_live);
    else if (e->n_live && e->n_live_tok + run->n_prompt > e->max_live_tok)
        st = nb_fail(err, NB_ERR_CAPACITY,
                     "%zu prompt tokens are in the engine, %zu more are not taken", e->n_live_tok,
                     run->n_prompt);
    if (st == NB_OK) {
        run->id = ++e->last_id;
        if (id) *id = run->id;
        nb_run **chain = &e->table[chain_of(run->id)];
        run->chain = *chain;
        *chain = run;
        *e->queue_end = run;
        e->queue_end = &run->queue_next;
        e->n_live++;
        e->n_live_tok += run->n_prompt;
        e->n_queued++;
        e->n_queued_tok += run->n_prompt;
        nb_cond_signal(e->wake);
    }
    nb_mutex_unlock(e->lock);
    return st;
}

nb_status nb_engine_submit(nb_engine *e, const nb_request *rq, nb_request_id *id, nb_error *err)
{
    nb_run *r = NULL;
    if (!e || !rq) return nb_fail(err, NB_ERR_ARG, "no engine or request given");
    NB_TRY(nb_run_create(e, rq, &r, err));
    const nb_status st = nb_engine_enqueue(e, r, id, err);
    if (st != NB_OK) nb_run_destroy(r);
    return st;
}

void nb_engine_abort(nb_engine *e, nb_request_id id)
{
    nb_mutex_lock(e->lock);
    nb_run *r = nb_engine_find(e, id);
    if (r && !r->aborted) {
        r->aborted = true;
        r->abort_prev = NULL;
        r->abort_next = e->aborts;
        if (e->aborts) e->aborts->abort_prev = r;
        e->aborts = r;
        nb_cond_signal(e->wake);
    }
    nb_mutex_unlock(e->lock);
}

void nb_engine_cancel(nb_engine *e)
{
    /* A signal handler may be here: no lock.  Nobody need be woken: while a call runs the
     * thread looks at this before each step, and otherwise there is nothing to end. */
    atomic_fetch_add_explicit(&e->cancel_seq, 1, memory_order_relaxed);
}

nb_status nb_engine_call(nb_engine *e, nb_call_fn *fn, void *ctx)
{
    nb_call c = { .fn = fn, .ctx = ctx };
    if (nb_thread_is_current(e->thread)) return NB_ERR_ARG;
    nb_mutex_lock(e->lock);
    *e->calls_end = &c;
    e->calls_end = &c.next;
    nb_cond_signal(e->wake);
    while (!c.done) nb_cond_wait(e->done, e->lock);
    nb_mutex_unlock(e->lock);
    return NB_OK;
}

nb_status nb_engine_health(const nb_engine *e, nb_error *err)
{
    nb_mutex_lock(e->lock);
    const nb_status st = e->failed ? nb_fail(err, NB_ERR_FAILED, "%s", e->why_failed) : NB_OK;
    nb_mutex_unlock(e->lock);
    return st;
}
