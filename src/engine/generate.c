/* generate.c - what other threads ask of an engine: submit, abort, cancel, call, and calls that wait for their
 * request (nb_generate, nb_logits). */
#include <stdlib.h>

#include "engine/engine_internal.h"

nb_status nb_engine_submit(nb_engine *e, const nb_request *rq, nb_request_id *id, nb_error *err)
{
    nb_run *r = NULL;
    if (!e || !rq) return nb_fail(err, NB_ERR_ARG, "no engine or request given");
    NB_TRY(nb_run_create(e, rq, &r, err));
    const nb_status st = nb_queue_add(&e->queue, r, id, err);
    if (st != NB_OK) nb_run_destroy(r);
    return st;
}

void nb_engine_abort(nb_engine *e, nb_request_id id)
{
    nb_queue_abort(&e->queue, id);
}

void nb_engine_cancel(nb_engine *e)
{
    /* A signal handler may be here: no lock.  Nobody need be woken: while a call runs the
     * thread looks at this before each step, and otherwise there is nothing to end. */
    atomic_fetch_add_explicit(&e->cancel_seq, 1, memory_order_relaxed);
}

nb_status nb_engine_health(const nb_engine *e, nb_error *err)
{
    return nb_queue_health(&e->queue, err);
}

nb_status nb_engine_run_and_wait(nb_engine *e, nb_run *r, nb_waiter *w, nb_error *err)
{
    r->waiter = w;
    const nb_status st = nb_queue_add(&e->queue, r, NULL, err);
    if (st != NB_OK) {
        nb_run_destroy(r);
        return st;
    }
    nb_mutex_lock(e->queue.lock);
    while (!w->done) nb_cond_wait(e->queue.done, e->queue.lock);
    nb_mutex_unlock(e->queue.lock);
    return w->st == NB_OK ? NB_OK : nb_fail(err, w->st, "%s", w->err.msg);
}

nb_status nb_engine_check_caller(const nb_engine *e, const char *what, nb_error *err)
{
    if (!e) return nb_fail(err, NB_ERR_ARG, "no engine given");
    if (!nb_thread_is_current(e->queue.thread)) return NB_OK;
    return nb_fail(err, NB_ERR_ARG, "%s was called from a callback, which must not wait", what);
}

nb_status nb_generate(nb_engine *e, const nb_request *rq, nb_result *out, nb_error *err)
{
    nb_run *r = NULL;
    nb_waiter w = { 0 };
    if (!rq || !out) return nb_fail(err, NB_ERR_ARG, "no request or result given");
    NB_TRY(nb_engine_check_caller(e, "nb_generate", err));
    const unsigned seq = atomic_load_explicit(&e->cancel_seq, memory_order_relaxed);
    NB_TRY(nb_run_create(e, rq, &r, err));
    r->cancel_seq = seq;
    const nb_status st = nb_engine_run_and_wait(e, r, &w, err);
    if (st == NB_OK)
        *out = w.res;
    else
        nb_result_deinit(&w.res);
    return st;
}

nb_status nb_logits(nb_engine *e, const uint32_t *tokens, size_t n_tok, const size_t *rows,
                    size_t n_row, nb_logits_fn *sink, void *ctx, nb_error *err)
{
    nb_run *r = NULL;
    nb_waiter w = { 0 };
    NB_TRY(nb_engine_check_caller(e, "nb_logits", err));
    const unsigned seq = atomic_load_explicit(&e->cancel_seq, memory_order_relaxed);
    NB_TRY(nb_engine_check_tokens(e, tokens, n_tok, err));
    if (n_row == 0 || !rows || !sink)
        return nb_fail(err, NB_ERR_ARG, "no rows of logits asked for");
    for (size_t i = 0; i < n_row; i++)
        if (rows[i] >= n_tok || (i && rows[i] <= rows[i - 1]))
            return nb_fail(err, NB_ERR_RANGE, "row %zu: expected ascending positions below %zu",
                           rows[i], n_tok);
    nb_request rq = { .prompt = tokens, .n_prompt = n_tok };
    nb_sampling_default(&rq.sampling);
    rq.sampling.max_tokens = 0;
    NB_TRY(nb_run_create(e, &rq, &r, err));
    r->cancel_seq = seq;
    r->want = rows;
    r->n_want = n_row;
    r->sink = sink;
    r->sink_ctx = ctx;
    const nb_status st = nb_engine_run_and_wait(e, r, &w, err);
    nb_result_deinit(&w.res);
    return st;
}
