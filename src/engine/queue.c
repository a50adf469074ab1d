/* queue.c - see queue.h. */
#include "engine/queue.h"

/* Ids are consecutive: their low bits spread them evenly. */
static size_t chain_of(nb_request_id id)
{
    return (size_t)id & (NB_ENGINE_RUN_TABLE - 1);
}

nb_status nb_queue_init(nb_queue *q)
{
    q->end = &q->first;
    q->calls_end = &q->calls;
    q->max_live_tok = NB_ENGINE_MAX_PROMPT_TOK;
    NB_TRY(nb_mutex_create(&q->lock));
    NB_TRY(nb_cond_create(&q->wake));
    return nb_cond_create(&q->done);
}

void nb_queue_deinit(nb_queue *q)
{
    nb_mutex_destroy(q->lock);
    nb_cond_destroy(q->wake);
    nb_cond_destroy(q->done);
}

nb_run *nb_queue_find(const nb_queue *q, nb_request_id id)
{
    nb_run *r = q->table[chain_of(id)];
    while (r && r->id != id) r = r->chain;
    return r;
}

void nb_queue_forget(nb_queue *q, nb_run *run)
{
    nb_run **at = &q->table[chain_of(run->id)];
    while (*at != run) at = &(*at)->chain;
    *at = run->chain;
    q->n_live--;
    q->n_live_tok -= run->n_prompt;
    if (!run->aborted) return;
    if (run->abort_next) run->abort_next->abort_prev = run->abort_prev;
    if (run->abort_prev)
        run->abort_prev->abort_next = run->abort_next;
    else if (q->aborts == run)
        q->aborts = run->abort_next;
}

static nb_status can_add(const nb_queue *q, const nb_run *run, nb_error *err)
{
    if (q->failed) return nb_fail(err, NB_ERR_FAILED, "%s", q->why_failed);
    if (q->stopping) return nb_fail(err, NB_ERR_CAPACITY, "the engine is being destroyed");
    if (q->n_live >= NB_ENGINE_MAX_RUN)
        return nb_fail(err, NB_ERR_CAPACITY, "%zu requests are in the engine, no more are taken",
                       q->n_live);
    if (q->n_live && q->n_live_tok + run->n_prompt > q->max_live_tok)
        return nb_fail(err, NB_ERR_CAPACITY,
                       "%zu prompt tokens are in the engine, %zu more are not taken", q->n_live_tok,
                       run->n_prompt);
    return NB_OK;
}

nb_status nb_queue_add(nb_queue *q, nb_run *run, nb_request_id *id, nb_error *err)
{
    nb_mutex_lock(q->lock);
    const nb_status st = can_add(q, run, err);
    if (st == NB_OK) {
        run->id = ++q->last_id;
        if (id) *id = run->id;
        nb_run **chain = &q->table[chain_of(run->id)];
        run->chain = *chain;
        *chain = run;
        *q->end = run;
        q->end = &run->queue_next;
        q->n_live++;
        q->n_live_tok += run->n_prompt;
        q->n_queued++;
        q->n_queued_tok += run->n_prompt;
        nb_cond_signal(q->wake);
    }
    nb_mutex_unlock(q->lock);
    return st;
}

void nb_queue_abort(nb_queue *q, nb_request_id id)
{
    nb_mutex_lock(q->lock);
    nb_run *r = nb_queue_find(q, id);
    if (r && !r->aborted) {
        r->aborted = true;
        r->abort_prev = NULL;
        r->abort_next = q->aborts;
        if (q->aborts) q->aborts->abort_prev = r;
        q->aborts = r;
        nb_cond_signal(q->wake);
    }
    nb_mutex_unlock(q->lock);
}

nb_status nb_queue_call(nb_queue *q, nb_call_fn *fn, void *ctx)
{
    nb_call call = { .fn = fn, .ctx = ctx };
    if (nb_thread_is_current(q->thread)) return NB_ERR_ARG;
    nb_mutex_lock(q->lock);
    *q->calls_end = &call;
    q->calls_end = &call.next;
    nb_cond_signal(q->wake);
    while (!call.done) nb_cond_wait(q->done, q->lock);
    nb_mutex_unlock(q->lock);
    return NB_OK;
}

nb_status nb_queue_health(const nb_queue *q, nb_error *err)
{
    nb_mutex_lock(q->lock);
    const nb_status st = q->failed ? nb_fail(err, NB_ERR_FAILED, "%s", q->why_failed) : NB_OK;
    nb_mutex_unlock(q->lock);
    return st;
}
