/* request.c - one request: its checks, its text, its end.
 *
 * A request is checked, and everything that it needs made, in the thread that submits it, so
 * that an error is the caller's at once and the engine's thread has little to do.  What a
 * waiting request takes is its prompt and a few KiB. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "os/clock.h"

enum { EOS_AND_STOP_MAX = 4096 };

void nb_sampling_default(nb_sampling *s)
{
    *s = (nb_sampling){
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .max_tokens = 128, .n_logprobs = -1
    };
}

void nb_result_deinit(nb_result *r)
{
    free(r->tokens);
    free(r->text);
    *r = (nb_result){ 0 };
}

/* ---- creating ---- */

nb_status nb_engine_check_tokens(const nb_engine *e, const uint32_t *ids, size_t n, nb_error *err)
{
    if (!ids || n == 0) return nb_fail(err, NB_ERR_ARG, "the prompt has no tokens");
    if (n > e->step.max_model_len)
        return nb_fail(err, NB_ERR_LIMIT, "the prompt has %zu tokens, the context holds %zu", n,
                       e->step.max_model_len);
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= e->model.c.n_vocab)
            return nb_fail(err, NB_ERR_RANGE, "token %zu is %u, the vocabulary has %zu", i,
                           (unsigned)ids[i], e->model.c.n_vocab);
    return NB_OK;
}

static nb_status check_request(const nb_engine *e, const nb_request *rq, nb_error *err)
{
    const nb_sampling *p = &rq->sampling;
    if ((p->n_stop && !p->stop) || (p->n_stop_id && !p->stop_id) ||
        (p->n_logit_bias && !p->logit_bias))
        return nb_fail(err, NB_ERR_ARG, "a list of the request has a length but no items");
    NB_TRY(nb_engine_check_tokens(e, rq->prompt, rq->n_prompt, err));
    if (p->max_tokens > 0 && rq->n_prompt == e->step.max_model_len)
        return nb_fail(err, NB_ERR_LIMIT,
                       "the prompt's %zu tokens fill the context; nothing can "
                       "be generated",
                       rq->n_prompt);
    if (p->max_tokens == 0 && p->min_tokens > 0)
        return nb_fail(err, NB_ERR_RANGE, "min_tokens is %zu: expected 0..0 (max_tokens)",
                       p->min_tokens);
    if (rq->on_prompt && (rq->n_prompt_top < 0 || rq->n_prompt_top > NB_SAMPLE_TOP_MAX))
        return nb_fail(err, NB_ERR_RANGE, "prompt_logprobs is %d: expected 0..%d", rq->n_prompt_top,
                       NB_SAMPLE_TOP_MAX);
    if (!(rq->timeout_s >= 0)) /* not a number: neither */
        return nb_fail(err, NB_ERR_RANGE, "a timeout of %g seconds: expected at least 0",
                       rq->timeout_s);
    return NB_OK;
}

static nb_status collect_end_ids(const nb_engine *e, nb_run *r, const nb_sampling *p, nb_error *err)
{
    const nb_model_config *c = &e->model.c;
    if (p->n_stop_id > EOS_AND_STOP_MAX)
        return nb_fail(err, NB_ERR_LIMIT, "%zu stop token ids, at most %d are accepted",
                       p->n_stop_id, EOS_AND_STOP_MAX);
    r->end_id = calloc(c->n_eos + p->n_stop_id + 1, sizeof *r->end_id);
    if (!r->end_id) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    /* Ids beyond the vocabulary cannot be generated. */
    if (!p->ignore_eos)
        for (size_t i = 0; i < c->n_eos; i++)
            if (c->eos[i] < c->n_vocab) r->end_id[r->n_end++] = c->eos[i];
    r->n_eos = r->n_end;
    for (size_t i = 0; i < p->n_stop_id; i++) {
        if (p->stop_id[i] >= c->n_vocab)
            return nb_fail(err, NB_ERR_RANGE, "stop token id %u is outside the vocabulary of %zu",
                           (unsigned)p->stop_id[i], c->n_vocab);
        r->end_id[r->n_end++] = p->stop_id[i];
    }
    return NB_OK;
}

enum { MAX_OPENERS = 8 };

/* Calls that are not wanted: the tokens that open them are held back. */
static size_t hold_openers(const nb_engine *e, const nb_request *rq, nb_sample_bias *bias)
{
    const nb_call_format *f = rq->no_calls && e->text ? nb_text_formats_of(e->text)->calls : NULL;
    const nb_token_lookup tokens = f ? nb_text_lookup(e->text) : (nb_token_lookup){ 0 };
    size_t n = 0;
    for (size_t i = 0; f && n < MAX_OPENERS; i++) {
        const nb_str text = nb_call_format_opener(f, i);
        if (!text.n_bytes) break;
        const uint32_t id = tokens.find(tokens.ctx, text);
        if (id < e->model.c.n_vocab) bias[n++] = (nb_sample_bias){ id, -100 };
    }
    return n;
}

static nb_status create_sampler(const nb_engine *e, nb_run *r, const nb_request *rq, nb_error *err)
{
    const nb_sampling *p = &rq->sampling;
    nb_sample_bias *bias = calloc(p->n_logit_bias + MAX_OPENERS, sizeof *bias);
    if (!bias) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < p->n_logit_bias; i++)
        bias[i] = (nb_sample_bias){ p->logit_bias[i].id, p->logit_bias[i].bias };
    const nb_sample_params sp = {
        .temperature = p->temperature,
        .top_k = p->top_k,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .repetition_penalty = p->repetition_penalty,
        .presence_penalty = p->presence_penalty,
        .frequency_penalty = p->frequency_penalty,
        .seed = p->seed,
        .logit_bias = bias,
        .n_logit_bias = p->n_logit_bias + hold_openers(e, rq, bias + p->n_logit_bias),
        .max_tokens = p->max_tokens ? p->max_tokens : 1, /* 0: it is made for its checks only */
        .min_tokens = p->min_tokens,
        .end_id = r->end_id,
        .n_end_id = r->n_end,
        .n_logprobs = p->n_logprobs,
    };
    const nb_status st = nb_sampler_create(&sp, e->model.c.n_vocab, &r->sampler, err);
    free(bias);
    return st;
}

static nb_status create_stop(const nb_engine *e, nb_run *r, const nb_sampling *p, nb_error *err)
{
    if (p->n_stop > NB_STOP_STRINGS_MAX)
        return nb_fail(err, NB_ERR_LIMIT, "%zu stop strings, at most %d are accepted", p->n_stop,
                       NB_STOP_STRINGS_MAX);
    nb_str strings[NB_STOP_STRINGS_MAX];
    for (size_t i = 0; i < p->n_stop; i++) strings[i] = nb_str_c(p->stop[i] ? p->stop[i] : "");
    NB_TRY(nb_stop_create(strings, p->n_stop, &r->stop, err));
    if (p->n_stop && !e->text)
        return nb_fail(err, NB_ERR_ARG, "stop strings need the model's tokenizer");
    return NB_OK;
}

static nb_status copy_request(const nb_engine *e, nb_run *r, const nb_request *rq, nb_error *err)
{
    const size_t n_salt = rq->cache_salt ? strlen(rq->cache_salt) : 0;
    r->prompt = malloc(rq->n_prompt * sizeof *r->prompt);
    r->salt = malloc(n_salt + 1);
    if (!r->prompt || !r->salt || nb_buf_reserve(&r->text, 1) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for a request");
    memcpy(r->prompt, rq->prompt, rq->n_prompt * sizeof *r->prompt);
    if (n_salt) memcpy(r->salt, rq->cache_salt, n_salt);
    r->salt[n_salt] = 0;
    const size_t room = e->step.max_model_len - rq->n_prompt;
    r->n_prompt = r->out.n_prompt = rq->n_prompt;
    r->max_tokens = rq->sampling.max_tokens < room ? rq->sampling.max_tokens : room;
    r->min_tokens = rq->sampling.min_tokens;
    r->n_logprobs = rq->sampling.n_logprobs;
    r->priority = rq->priority;
    r->after = rq->after;
    r->on_token = rq->on_token;
    r->on_prompt = rq->on_prompt;
    r->on_done = rq->on_done;
    r->ctx = rq->on_token_ctx;
    r->n_prompt_top = rq->n_prompt_top;
    r->keep_prompt = rq->on_prompt || rq->sampling.repetition_penalty != 1;
    r->t_submit = nb_clock_s();
    r->deadline = rq->timeout_s > 0 ? r->t_submit + rq->timeout_s : INFINITY;
    r->out.stop_index = -1;
    r->out.stop_token = -1;
    return NB_OK;
}

static nb_status create(const nb_engine *e, nb_run *r, const nb_request *rq, nb_error *err)
{
    NB_TRY(check_request(e, rq, err));
    NB_TRY(collect_end_ids(e, r, &rq->sampling, err));
    NB_TRY(create_sampler(e, r, rq, err));
    NB_TRY(create_stop(e, r, &rq->sampling, err));
    NB_TRY(copy_request(e, r, rq, err));
    NB_TRY(nb_run_constrain(e, r, rq->grammar, err));
    if (e->text) {
        nb_detok_init(&r->detok, nb_text_tokenizer(e->text), true);
        r->have_detok = true;
    }
    return nb_split_create(e, r, rq, err);
}

nb_status nb_run_create(const nb_engine *e, const nb_request *rq, nb_run **out, nb_error *err)
{
    nb_error own = { 0 };
    nb_run *r = calloc(1, sizeof *r);
    if (!r) return nb_fail(err, NB_ERR_NOMEM, "out of memory for a request");
    const nb_status st = create(e, r, rq, &own);
    if (st != NB_OK) {
        nb_run_destroy(r);
        return nb_fail(err, st, "%s", own.msg[0] ? own.msg : nb_status_text(st));
    }
    *out = r;
    return NB_OK;
}

void nb_run_destroy(nb_run *r)
{
    if (!r) return;
    nb_run_unconstrain(r);
    nb_sampler_destroy(r->sampler);
    nb_stop_destroy(r->stop);
    if (r->have_detok) nb_detok_deinit(&r->detok);
    nb_split_deinit(&r->split);
    free(r->script);
    nb_buf_deinit(&r->piece);
    nb_buf_deinit(&r->text);
    nb_result_deinit(&r->out);
    free(r->end_id);
    free(r->salt);
    free(r->prompt);
    free(r);
}

/* ---- text ---- */

bool nb_run_cancelled(const nb_engine *e, const nb_run *r)
{
    return r->waiter && atomic_load_explicit(&e->cancel_seq, memory_order_relaxed) != r->cancel_seq;
}

/* The index of id among the run's end ids, or n_end. */
static size_t end_index(const nb_run *r, uint32_t id)
{
    /* Under a grammar an end is drawn before min_tokens only where nothing else is possible. */
    if (r->out.n_tokens <= r->min_tokens && !r->match) return r->n_end;
    size_t i = 0;
    while (i < r->n_end && r->end_id[i] != id) i++;
    return i;
}

/* Text of one more token (or, with an end, of that) through detokenizer and stop strings. */
static nb_status text_of(const nb_engine *e, nb_run *r, const uint32_t *id, nb_split_end end,
                         nb_str *emit)
{
    const bool last = end != NB_SPLIT_GOES_ON;
    *emit = (nb_str){ "", 0 };
    if (!r->have_detok) return NB_OK;
    if (r->split.parse) return nb_split_token(e, r, id, end, emit);
    r->piece.n_bytes = 0;
    if (id) NB_TRY(nb_detok_push(&r->detok, *id, &r->piece));
    if (last) NB_TRY(nb_detok_finish(&r->detok, &r->piece));
    /* Stop strings do not count before min_tokens, as in vLLM. */
    if (r->out.n_tokens <= r->min_tokens)
        *emit = nb_buf_view(&r->piece);
    else
        NB_TRY(nb_stop_feed(r->stop, nb_buf_view(&r->piece), emit));
    const size_t at = r->text.n_bytes;
    NB_TRY(nb_buf_add_str(&r->text, *emit));
    if (last) NB_TRY(nb_buf_add_str(&r->text, nb_stop_flush(r->stop)));
    *emit = (nb_str){ r->text.p + at, r->text.n_bytes - at };
    return NB_OK;
}

nb_status nb_run_flush(const nb_engine *e, nb_run *r)
{
    nb_str emit;
    return text_of(e, r, NULL, NB_SPLIT_IS_CUT, &emit);
}

static nb_token_event event_of(const nb_sample_out *s, nb_token_logprob *top)
{
    for (size_t i = 0; i < s->n_top; i++)
        top[i] = (nb_token_logprob){ s->top[i].id, s->top[i].logprob };
    return (nb_token_event){
        .id = s->id, .text = "", .logprob = s->logprob, .top = top, .n_top = s->n_top
    };
}

nb_status nb_run_accept(nb_engine *e, nb_run *r, const nb_sample_out *s)
{
    nb_result *o = &r->out;
    NB_TRY(NB_GROW(o->tokens, r->cap_tokens, o->n_tokens));
    if (r->at_script < r->n_script) r->at_script++;
    o->tokens[o->n_tokens++] = s->id;
    e->stats.count.generated_tok++;
    const size_t end = end_index(r, s->id);
    const bool complete = r->match && nb_match_complete(r->match);
    const bool ends = end < r->n_end, full = complete || o->n_tokens >= r->max_tokens;
    nb_str emit;
    /* An end-of-text token has no text even if it is an ordinary token. */
    const nb_split_end how = ends || complete ? NB_SPLIT_STOPS : full ? NB_SPLIT_IS_CUT : NB_SPLIT_GOES_ON;
    NB_TRY(text_of(e, r, ends ? NULL : &s->id, how, &emit));
    o->stop_index = nb_stop_found(r->stop);
    if (o->stop_index < 0 && ends && end >= r->n_eos) o->stop_token = s->id;
    const bool stops = ends || complete || o->stop_index >= 0 || r->split.ended;
    const char *reason = stops ? "stop" : full ? "length" : NULL;
    nb_token_logprob top[NB_SAMPLE_TOP_MAX];
    nb_token_event ev = event_of(s, top);
    ev.text = emit.p;
    ev.text_bytes = emit.n_bytes;
    ev.piece = r->split.piece;
    ev.n_piece = r->split.n_piece;
    ev.in_thought = r->split.in_thought;
    const bool refused = r->on_token && r->on_token(r->ctx, &ev) != 0;
    if (!reason && (refused || nb_run_cancelled(e, r))) reason = "cancelled";
    if (reason) nb_run_end(e, r, reason);
    return NB_OK;
}

void nb_run_show_prompt(nb_engine *e, nb_run *r, uint32_t id, const nb_sample_out *s)
{
    nb_token_logprob top[NB_SAMPLE_TOP_MAX];
    const nb_sample_out none = { .id = id, .logprob = NAN };
    const nb_token_event ev = event_of(s ? s : &none, top);
    r->n_prompt_seen++;
    if (r->on_prompt(r->ctx, &ev) != 0) nb_run_end(e, r, "cancelled");
}

/* ---- the end ---- */

static void set_over(nb_engine *e, nb_run *r)
{
    r->over = true;
    r->over_next = NULL;
    *e->over_end = r;
    e->over_end = &r->over_next;
}

void nb_run_end(nb_engine *e, nb_run *r, const char *reason)
{
    if (r->over) return;
    r->out.finish_reason = reason;
    const bool early = strcmp(reason, "stop") != 0 && strcmp(reason, "length") != 0;
    if (early && r->sink) {
        r->st = nb_fail(&r->err, NB_ERR_CANCELLED, "%s", reason);
    } else if (early) { /* what was held back is part of the result; without memory it is not */
        (void)nb_run_flush(e, r);
    }
    set_over(e, r);
}

void nb_run_fail(nb_engine *e, nb_run *r, nb_status st, const char *msg)
{
    if (r->over) return;
    r->st = nb_fail(&r->err, st, "%s", msg);
    if (st == NB_ERR_NONFINITE) e->stats.count.n_nonfinite++;
    set_over(e, r);
}
