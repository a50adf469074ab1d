/* forced.c - nb_engine_forced: a given text, computed as if it had been generated.
 *
 * An ordinary request: the scheduler treats it as any other, beside others, also when it is set
 * back.  Only what happens with a row of logits differs (rows.c): it goes to the sink, and the
 * token that becomes known is the text's, not a sampled one. */
#include "nibble/measure.h"

#include "engine/engine_internal.h"

static nb_status check(const nb_engine *e, const uint32_t *tokens, size_t n_tok, size_t n_prompt,
                       nb_logits_fn *sink, nb_error *err)
{
    NB_TRY(nb_engine_check_caller(e, "nb_engine_forced", err));
    NB_TRY(nb_engine_check_tokens(e, tokens, n_tok, err));
    if (n_prompt == 0 || n_prompt >= n_tok)
        return nb_fail(err, NB_ERR_RANGE,
                       "a prompt of %zu tokens: expected 1..%zu of a text of %zu", n_prompt,
                       n_tok - 1, n_tok);
    return sink ? NB_OK : nb_fail(err, NB_ERR_ARG, "no receiver of logits given");
}

nb_status nb_engine_forced(nb_engine *e, const uint32_t *tokens, size_t n_tok, size_t n_prompt,
                           nb_logits_fn *sink, void *ctx, nb_error *err)
{
    nb_run *r = NULL;
    nb_waiter w = { 0 };
    NB_TRY(check(e, tokens, n_tok, n_prompt, sink, err));
    const unsigned seq = atomic_load_explicit(&e->cancel_seq, memory_order_relaxed);
    nb_request rq = { .prompt = tokens, .n_prompt = n_prompt };
    nb_sampling_default(&rq.sampling);
    rq.sampling.max_tokens = n_tok - n_prompt;
    NB_TRY(nb_run_create(e, &rq, &r, err));
    const size_t first = n_prompt - 1;
    r->cancel_seq = seq;
    r->want = &first;
    r->n_want = 1;
    r->sink = sink;
    r->sink_ctx = ctx;
    r->forced = tokens;
    r->n_forced = n_tok;
    const nb_status st = nb_engine_run_and_wait(e, r, &w, err);
    nb_result_deinit(&w.res);
    return st;
}
