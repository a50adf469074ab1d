/* generate.c - running a request: prefill, decode, sampling, stop conditions. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "os/clock.h"
#include "sample/sample.h"
#include "sample/stop.h"
#include "text/detok.h"

enum { EOS_AND_STOP_MAX = 4096 };

/* ---- the sequence ---- */

size_t nb_engine_truncate(nb_engine *e, size_t n)
{
    nb_seq *s = &e->seq;
    if (n > s->n_tok) n = s->n_tok;
    if (n > s->n_prefill) n = s->n_prefill;
    n = n / NB_PAGE_TOK * NB_PAGE_TOK;
    while (s->n_block > n / NB_PAGE_TOK) nb_block_pool_release(&e->pool, s->block[--s->n_block]);
    s->n_tok = s->n_prefill = n;
    return n;
}

static nb_status reserve_blocks(nb_engine *e, size_t n_tok, nb_error *err)
{
    nb_seq *s = &e->seq;
    while (s->n_block < n_tok / NB_PAGE_TOK) { /* full pages only: the last one is in the tail */
        if (nb_block_pool_acquire(&e->pool, &s->block[s->n_block]) != NB_OK)
            return nb_fail(err, NB_ERR_CAPACITY, "no free KV blocks for %zu tokens", n_tok);
        s->n_block++;
    }
    return NB_OK;
}

static nb_status step(nb_engine *e, size_t n, bool absorbed, bool rope_long, const size_t *row,
                      size_t n_row, nb_error *err)
{
    nb_seq *s = &e->seq;
    NB_TRY(reserve_blocks(e, s->n_tok + n, err));
    const nb_chunk c = {
        .kv = { .pool = e->kv,
                .block_bytes = e->block_bytes,
                .page_bytes = e->record.page_bytes,
                .block = s->block,
                .n_block = s->n_block,
                .tail = s->tail },
        .tok = s->tok + s->n_tok,
        .n_tok = n,
        .pos0 = s->n_tok,
        .rope_long = rope_long,
        .absorbed = absorbed,
        .row = row,
        .n_row = n_row,
    };
    const nb_status st = nb_forward_step(e->forward, &c, 1, e->logits, NULL, err);
    if (st != NB_OK) {
        if (st == NB_ERR_NONFINITE) e->n_nonfinite++;
        s->n_prefill = 0; /* pages of the failed step are undefined: keep nothing */
        (void)nb_engine_truncate(e, 0);
        return st;
    }
    s->n_tok += n;
    return NB_OK;
}

/* A step ends at the chunk's size, or before more rows of logits than fit. */
static size_t step_tokens(const nb_engine *e, size_t n, const size_t *rows, size_t n_row,
                          size_t *n_take)
{
    const size_t at = e->seq.n_tok;
    size_t len = n - at < e->prefill_chunk ? n - at : e->prefill_chunk, k = 0;
    while (k < n_row && rows[k] < at + len && k < e->max_row) k++;
    if (k < n_row && rows[k] < at + len) len = rows[k] - at;
    *n_take = k;
    return len;
}

static bool no_nan(const float *x, size_t n)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++) ok &= x[i] == x[i];
    return ok;
}

nb_status nb_engine_prefill(nb_engine *e, size_t n, const size_t *rows, size_t n_row,
                            nb_logits_fn *sink, void *ctx, nb_error *err)
{
    nb_seq *s = &e->seq;
    size_t *rel = malloc((e->max_row ? e->max_row : 1) * sizeof *rel);
    if (!rel) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    nb_status st = NB_OK;
    while (st == NB_OK && s->n_tok < n) {
        size_t take;
        const size_t at = s->n_tok, len = step_tokens(e, n, rows, n_row, &take);
        for (size_t i = 0; i < take; i++) rel[i] = rows[i] - at;
        st = step(e, len, e->prefill_absorbed, s->rope_long, rel, take, err);
        if (st == NB_OK) s->n_prefill = s->n_tok;
        for (size_t i = 0; st == NB_OK && sink && i < take; i++)
            if (!no_nan(e->logits + i * e->model.c.n_vocab, e->model.c.n_vocab))
                st = nb_fail(err, NB_ERR_NONFINITE,
                             "the model's logits at position %zu are not numbers", rows[i]);
            else if (sink(ctx, rows[i], e->logits + i * e->model.c.n_vocab, e->model.c.n_vocab) !=
                     0)
                st = nb_fail(err, NB_ERR_CANCELLED, "stopped by the receiver of the logits");
        rows += take;
        n_row -= take;
        if (st == NB_OK && atomic_load_explicit(&e->cancel, memory_order_relaxed)) {
            free(rel);
            return nb_fail(err, NB_ERR_CANCELLED, "cancelled");
        }
    }
    free(rel);
    return st;
}

nb_status nb_engine_decode(nb_engine *e, uint32_t tok, nb_error *err)
{
    const size_t row = 0, sw = e->model.c.rope.switch_tok;
    e->seq.tok[e->seq.n_tok] = tok;
    /* longrope: the reference chooses the table for every forward call by its last position,
     * so a text that grows beyond the limit changes over; earlier keys stay as they are. */
    const bool rope_long = sw && e->seq.n_tok + 1 > sw;
    return step(e, 1, e->decode_absorbed, rope_long, &row, 1, err);
}

static nb_status check_tokens(const nb_engine *e, const uint32_t *ids, size_t n, nb_error *err)
{
    if (!ids || n == 0) return nb_fail(err, NB_ERR_ARG, "the prompt has no tokens");
    if (n > e->max_model_len)
        return nb_fail(err, NB_ERR_LIMIT, "the prompt has %zu tokens, the context holds %zu", n,
                       e->max_model_len);
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= e->model.c.n_vocab)
            return nb_fail(err, NB_ERR_RANGE, "token %zu is %u, the vocabulary has %zu", i,
                           (unsigned)ids[i], e->model.c.n_vocab);
    return NB_OK;
}

/* Puts the prompt into the sequence, keeping the pages it shares with the last one.
 * `need`: the first position whose logits are wanted must be computed. */
static size_t place_prompt(nb_engine *e, const uint32_t *ids, size_t n, size_t need)
{
    nb_seq *s = &e->seq;
    const size_t sw = e->model.c.rope.switch_tok;
    const bool rope_long = sw && n > sw;
    size_t same = 0;
    while (same < s->n_tok && same < n && s->tok[same] == ids[same]) same++;
    if (rope_long != s->rope_long) same = 0;
    s->rope_long = rope_long;
    const size_t kept = nb_engine_truncate(e, same < need ? same : need);
    memcpy(s->tok, ids, n * sizeof *ids);
    return kept;
}

nb_status nb_logits(nb_engine *e, const uint32_t *tokens, size_t n_tok, const size_t *rows,
                    size_t n_row, nb_logits_fn *sink, void *ctx, nb_error *err)
{
    NB_TRY(check_tokens(e, tokens, n_tok, err));
    if (n_row == 0 || !rows || !sink)
        return nb_fail(err, NB_ERR_ARG, "no rows of logits asked for");
    for (size_t i = 0; i < n_row; i++)
        if (rows[i] >= n_tok || (i && rows[i] <= rows[i - 1]))
            return nb_fail(err, NB_ERR_RANGE, "row %zu: expected ascending positions below %zu",
                           rows[i], n_tok);
    atomic_store_explicit(&e->cancel, false, memory_order_relaxed);
    (void)place_prompt(e, tokens, n_tok, rows[0]);
    return nb_engine_prefill(e, n_tok, rows, n_row, sink, ctx, err);
}

/* ---- a request ---- */

typedef struct run {
    nb_engine *e;
    const nb_request *rq;
    nb_result *out;
    nb_error *err;
    nb_sampler *sampler;
    nb_stop *stop;
    nb_detok detok;
    bool have_detok;
    nb_buf piece, text;
    size_t cap_tokens, max_tokens;
    uint32_t *end_id; /* what ends the text: end-of-text (unless ignored) and stop ids */
    size_t n_end, n_eos;
} run;

void nb_sampling_default(nb_sampling *s)
{
    *s = (nb_sampling){
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .max_tokens = 128, .n_logprobs = -1
    };
}

static nb_status collect_end_ids(run *r)
{
    const nb_sampling *p = &r->rq->sampling;
    const nb_model_config *c = &r->e->model.c;
    if (p->n_stop_id > EOS_AND_STOP_MAX)
        return nb_fail(r->err, NB_ERR_LIMIT, "%zu stop token ids, at most %d are accepted",
                       p->n_stop_id, EOS_AND_STOP_MAX);
    r->end_id = calloc(c->n_eos + p->n_stop_id + 1, sizeof *r->end_id);
    if (!r->end_id) return nb_fail(r->err, NB_ERR_NOMEM, "out of memory");
    /* Ids beyond the vocabulary cannot be generated. */
    if (!p->ignore_eos)
        for (size_t i = 0; i < c->n_eos; i++)
            if (c->eos[i] < c->n_vocab) r->end_id[r->n_end++] = c->eos[i];
    r->n_eos = r->n_end;
    for (size_t i = 0; i < p->n_stop_id; i++) {
        if (p->stop_id[i] >= c->n_vocab)
            return nb_fail(r->err, NB_ERR_RANGE,
                           "stop token id %u is outside the vocabulary of %zu",
                           (unsigned)p->stop_id[i], c->n_vocab);
        r->end_id[r->n_end++] = p->stop_id[i];
    }
    return NB_OK;
}

static nb_status create_sampler(run *r)
{
    const nb_sampling *p = &r->rq->sampling;
    nb_sample_bias *bias = calloc(p->n_logit_bias + 1, sizeof *bias);
    if (!bias) return nb_fail(r->err, NB_ERR_NOMEM, "out of memory");
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
        .n_logit_bias = p->n_logit_bias,
        .max_tokens = p->max_tokens,
        .min_tokens = p->min_tokens,
        .end_id = r->end_id,
        .n_end_id = r->n_end,
        .n_logprobs = p->n_logprobs,
    };
    const nb_status st = nb_sampler_create(&sp, r->e->model.c.n_vocab, &r->sampler, r->err);
    free(bias);
    return st;
}

static nb_status create_stop(run *r)
{
    const nb_sampling *p = &r->rq->sampling;
    nb_str *strings = calloc(p->n_stop + 1, sizeof *strings);
    if (!strings) return nb_fail(r->err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < p->n_stop; i++) strings[i] = nb_str_c(p->stop[i] ? p->stop[i] : "");
    nb_status st = nb_stop_create(strings, p->n_stop, &r->stop, r->err);
    free(strings);
    if (st == NB_OK && p->n_stop && !r->e->text)
        st = nb_fail(r->err, NB_ERR_ARG, "stop strings need the model's tokenizer");
    return st;
}

static nb_status run_init(run *r)
{
    nb_engine *e = r->e;
    const nb_request *rq = r->rq;
    const nb_sampling *p = &rq->sampling;
    if ((p->n_stop && !p->stop) || (p->n_stop_id && !p->stop_id) ||
        (p->n_logit_bias && !p->logit_bias))
        return nb_fail(r->err, NB_ERR_ARG, "a list of the request has a length but no items");
    NB_TRY(check_tokens(e, rq->prompt, rq->n_prompt, r->err));
    const size_t room = e->max_model_len - rq->n_prompt;
    if (room == 0)
        return nb_fail(r->err, NB_ERR_LIMIT,
                       "the prompt's %zu tokens fill the context; nothing can "
                       "be generated",
                       rq->n_prompt);
    NB_TRY(collect_end_ids(r));
    NB_TRY(create_sampler(r));
    NB_TRY(create_stop(r));
    if (e->text) {
        nb_detok_init(&r->detok, nb_text_tokenizer(e->text), true);
        r->have_detok = true;
    }
    r->max_tokens = rq->sampling.max_tokens < room ? rq->sampling.max_tokens : room;
    r->out->n_prompt = rq->n_prompt;
    return nb_buf_reserve(&r->text, 1);
}

static void run_deinit(run *r)
{
    nb_sampler_destroy(r->sampler);
    nb_stop_destroy(r->stop);
    if (r->have_detok) nb_detok_deinit(&r->detok);
    nb_buf_deinit(&r->piece);
    nb_buf_deinit(&r->text);
    free(r->end_id);
}

static bool is_end(const run *r, uint32_t id)
{
    if (r->out->n_tokens <= r->rq->sampling.min_tokens) return false;
    for (size_t i = 0; i < r->n_end; i++)
        if (r->end_id[i] == id) return true;
    return false;
}

/* Text of one more token (or, with last, of the end) through detokenizer and stop strings. */
static nb_status text_of(run *r, const uint32_t *id, bool last, nb_str *emit)
{
    *emit = (nb_str){ "", 0 };
    if (!r->have_detok) return NB_OK;
    r->piece.n_bytes = 0;
    if (id) NB_TRY(nb_detok_push(&r->detok, *id, &r->piece));
    if (last) NB_TRY(nb_detok_finish(&r->detok, &r->piece));
    /* Stop strings do not count before min_tokens, as in vLLM. */
    if (r->out->n_tokens <= r->rq->sampling.min_tokens)
        *emit = nb_buf_view(&r->piece);
    else
        NB_TRY(nb_stop_feed(r->stop, nb_buf_view(&r->piece), emit));
    const size_t at = r->text.n_bytes;
    NB_TRY(nb_buf_add_str(&r->text, *emit));
    if (last) NB_TRY(nb_buf_add_str(&r->text, nb_stop_flush(r->stop)));
    *emit = (nb_str){ r->text.p + at, r->text.n_bytes - at };
    return NB_OK;
}

/* One sampled token: recorded, shown; *done with a reason when it was the last. */
static nb_status accept(run *r, const nb_sample_out *s, bool *done)
{
    nb_result *o = r->out;
    NB_TRY(NB_GROW(o->tokens, r->cap_tokens, o->n_tokens));
    o->tokens[o->n_tokens++] = s->id;
    const bool end = is_end(r, s->id), full = o->n_tokens >= r->max_tokens;
    nb_str emit;
    /* An end-of-text token has no text even if it is an ordinary token. */
    NB_TRY(text_of(r, end ? NULL : &s->id, end || full, &emit));
    const bool stopped = nb_stop_found(r->stop) >= 0;
    if (end || stopped)
        o->finish_reason = "stop";
    else if (full)
        o->finish_reason = "length";
    nb_token_logprob top[NB_SAMPLE_TOP_MAX];
    for (size_t i = 0; i < s->n_top; i++)
        top[i] = (nb_token_logprob){ s->top[i].id, s->top[i].logprob };
    const nb_token_event ev = { .id = s->id,
                                .text = emit.p,
                                .text_bytes = emit.n_bytes,
                                .logprob = s->logprob,
                                .top = top,
                                .n_top = s->n_top };
    if (r->rq->on_token && r->rq->on_token(r->rq->on_token_ctx, &ev) != 0 && !o->finish_reason)
        o->finish_reason = "cancelled";
    if (!o->finish_reason && atomic_load_explicit(&r->e->cancel, memory_order_relaxed))
        o->finish_reason = "cancelled";
    *done = o->finish_reason != NULL;
    if (*done && !strcmp(o->finish_reason, "cancelled")) return text_of(r, NULL, true, &emit);
    return NB_OK;
}

static nb_status generate(run *r)
{
    nb_engine *e = r->e;
    const nb_request *rq = r->rq;
    NB_TRY(run_init(r));
    NB_TRY(nb_sampler_accept_prompt(r->sampler, rq->prompt, rq->n_prompt));
    const double t0 = nb_clock_s();
    const size_t last = rq->n_prompt - 1;
    r->out->n_cached = place_prompt(e, rq->prompt, rq->n_prompt, last);
    const nb_status st = nb_engine_prefill(e, rq->n_prompt, &last, 1, NULL, NULL, r->err);
    if (st == NB_ERR_CANCELLED) {
        r->out->finish_reason = "cancelled";
        return NB_OK;
    }
    NB_TRY(st);
    const double t1 = nb_clock_s();
    r->out->prefill_s = t1 - t0;
    for (bool done = false; !done;) {
        nb_sample_out s;
        const nb_status ss = nb_sampler_next(r->sampler, e->logits, &s);
        if (ss == NB_ERR_NONFINITE) {
            e->n_nonfinite++;
            return nb_fail(r->err, ss, "the model's logits at position %zu are not finite",
                           e->seq.n_tok - 1);
        }
        NB_TRY(ss);
        NB_TRY(accept(r, &s, &done));
        if (!done) NB_TRY(nb_engine_decode(e, s.id, r->err));
    }
    r->out->decode_s = nb_clock_s() - t1;
    return NB_OK;
}

nb_status nb_generate(nb_engine *e, const nb_request *rq, nb_result *out, nb_error *err)
{
    nb_result res = { 0 };
    nb_error own = { 0 };
    if (!e || !rq || !out) return nb_fail(err, NB_ERR_ARG, "no engine, request or result given");
    run r = { .e = e, .rq = rq, .out = &res, .err = &own };
    atomic_store_explicit(&e->cancel, false, memory_order_relaxed);
    const nb_status st = generate(&r);
    if (st == NB_OK) {
        res.text = r.text.p; /* ownership moves */
        res.text_bytes = r.text.n_bytes;
        if (res.text) res.text[res.text_bytes] = 0;
        r.text = (nb_buf){ 0 };
        *out = res;
    } else {
        (void)nb_fail(err, st, "%s", own.msg[0] ? own.msg : nb_status_text(st));
        nb_result_deinit(&res);
    }
    run_deinit(&r);
    return st;
}

void nb_result_deinit(nb_result *r)
{
    free(r->tokens);
    free(r->text);
    *r = (nb_result){ 0 };
}
