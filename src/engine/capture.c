/* capture.c - nb_engine_capture: the attention inputs of a text; nb_engine_model_hash.
 *
 * The text is computed by the engine's own forward pass, chunk by chunk as a prompt would be, but
 * into pages of its own: neither the cache nor the requests of the engine know of it.  Between two
 * chunks the engine's thread is free for the steps of running requests.  The trace of the forward
 * pass is copied for all layers; queries as they are (MLA: not absorbed, which is several times
 * smaller), and the caller's thread makes one layer at a time of them. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "model/fold.h"
#include "nibble/measure.h"

#define MAX_COPY_BYTES ((uint64_t)4 << 30)

typedef struct capture {
    nb_engine *e;
    const uint32_t *tok;
    const size_t *pos;             /* [n_pos] */
    size_t n_tok, n_pos, done;     /* tokens computed */
    size_t n_layer, n_values, q_w; /* floats of a token: cached; of all heads' queries */
    nb_kv_view view;
    /* owned */
    unsigned char *pool;
    uint32_t *block;
    float *tail;
    uint16_t *sink;
    float *kv;           /* [n_layer][n_tok][n_values] */
    float *q;            /* [n_layer][n_pos][q_w]      */
    float *q_abs, *w_uv; /* MLA, of one layer: [n_pos][n_head][kv_lora + d_rope]; see measure.h */
    size_t q_abs_bytes, w_uv_bytes;
    /* of the step in hand */
    nb_status st;
    nb_error err;
} capture;

static size_t chunk_tokens(const capture *c)
{
    const size_t most =
        c->e->prefill_chunk < c->e->max_step_tok ? c->e->prefill_chunk : c->e->max_step_tok;
    return c->n_tok - c->done < most ? c->n_tok - c->done : most;
}

/* "layers.N.kv" and "layers.N.q" of the chunk that begins at token c->done. */
static void take(void *ctx, const char *name, const float *x, size_t n_tok, size_t dim,
                 size_t stride)
{
    capture *c = ctx;
    char what[16];
    size_t layer;
    if (sscanf(name, "layers.%zu.%15s", &layer, what) != 2 || layer >= c->n_layer) return;
    if (!strcmp(what, "kv")) {
        float *to = c->kv + (layer * c->n_tok + c->done) * c->n_values;
        for (size_t t = 0; t < n_tok && dim == c->n_values; t++)
            memcpy(to + t * dim, x + t * stride, dim * sizeof *to);
    } else if (!strcmp(what, "q")) {
        for (size_t i = 0; i < c->n_pos && dim == c->q_w; i++)
            if (c->pos[i] >= c->done && c->pos[i] - c->done < n_tok)
                memcpy(c->q + (layer * c->n_pos + i) * dim, x + (c->pos[i] - c->done) * stride,
                       dim * sizeof *c->q);
    }
}

/* One chunk, on the engine's thread. */
static void step(nb_engine *e, void *ctx)
{
    capture *c = ctx;
    const size_t sw = e->model.c.rope.switch_tok;
    const nb_chunk chunk = {
        .kv = c->view,
        .tok = c->tok + c->done,
        .n_tok = chunk_tokens(c),
        .pos0 = c->done,
        .rope_long = sw && c->n_tok > sw, /* as loop.c for a prompt of this length */
        .absorbed = e->form == NB_FORM_ABSORBED,
    };
    nb_forward_set_trace(e->forward, take, c);
    c->st = nb_forward_step(e->forward, &chunk, 1, NULL, &c->err);
    nb_forward_set_trace(e->forward, NULL, NULL);
}

static nb_status compute(capture *c, unsigned seq, nb_error *err)
{
    while (c->done < c->n_tok) {
        const size_t n = chunk_tokens(c);
        if (atomic_load_explicit(&c->e->cancel_seq, memory_order_relaxed) != seq)
            return nb_fail(err, NB_ERR_CANCELLED, "the capture was cancelled");
        NB_TRY(nb_engine_call(c->e, step, c));
        if (c->st != NB_OK) return nb_fail(err, c->st, "%s", c->err.msg);
        c->done += n;
    }
    return NB_OK;
}

/* ---- memory ---- */

/* *sum += a * b; stays at UINT64_MAX once it does not fit. */
static void add_bytes(uint64_t *sum, uint64_t a, uint64_t b)
{
    *sum = b && a > (UINT64_MAX - *sum) / b ? UINT64_MAX : *sum + a * b;
}

static nb_status allocate(capture *c, nb_error *err)
{
    const nb_engine *e = c->e;
    const nb_model_config *m = &e->model.c;
    const size_t n_block = (c->n_tok + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
    const size_t sink = m->n_layer * e->n_sink * c->n_values;
    uint64_t need = 0;
    add_bytes(&need, n_block, e->block_bytes + sizeof *c->block);
    add_bytes(&need, (uint64_t)c->n_layer * c->n_tok, c->n_values * sizeof *c->kv);
    add_bytes(&need, (uint64_t)c->n_layer * c->n_pos, c->q_w * sizeof *c->q);
    add_bytes(&need, 1, c->w_uv_bytes);
    add_bytes(&need, 1, c->q_abs_bytes);
    add_bytes(&need, 1, e->tail_bytes);
    add_bytes(&need, sink, sizeof *c->sink);
    if (need > MAX_COPY_BYTES)
        return nb_fail(err, NB_ERR_LIMIT,
                       "the attention inputs of %zu tokens, with queries at %zu positions, take "
                       "%.1f GiB: the limit is 4 GiB (a shorter text, or fewer positions)",
                       c->n_tok, c->n_pos, (double)need / (1 << 30));
    c->pool = calloc(n_block, e->block_bytes);
    c->block = calloc(n_block, sizeof *c->block);
    c->tail = calloc(1, e->tail_bytes);
    c->kv = malloc(c->n_layer * c->n_tok * c->n_values * sizeof *c->kv);
    if (sink) c->sink = calloc(sink, sizeof *c->sink);
    if (c->n_pos) c->q = malloc(c->n_layer * c->n_pos * c->q_w * sizeof *c->q);
    if (c->w_uv_bytes) c->w_uv = malloc(c->w_uv_bytes);
    if (c->q_abs_bytes) c->q_abs = malloc(c->q_abs_bytes);
    if (!c->pool || !c->block || !c->tail || !c->kv || (sink && !c->sink) || (c->n_pos && !c->q) ||
        (c->w_uv_bytes && !c->w_uv) || (c->q_abs_bytes && !c->q_abs))
        return nb_fail(err, NB_ERR_NOMEM, "no memory for the attention inputs of %zu tokens",
                       c->n_tok);
    for (size_t i = 0; i < n_block; i++) c->block[i] = (uint32_t)i;
    c->view = (nb_kv_view){ .pool = c->pool,
                            .block_bytes = e->block_bytes,
                            .layer_off = e->layer_off,
                            .block = c->block,
                            .n_block = n_block,
                            .tail = c->tail,
                            .sink = c->sink,
                            .sink_block = sink };
    return NB_OK;
}

static void release(capture *c)
{
    free(c->pool);
    free(c->block);
    free(c->tail);
    free(c->sink);
    free(c->kv);
    free(c->q);
    free(c->q_abs);
    free(c->w_uv);
}

/* ---- one layer, as the caller sees it ---- */

/* q~_h = W_UK,h^T q^n_h | rope part. */
static void absorb(const capture *c, const nb_layer *l, const float *q)
{
    const nb_model_config *m = &c->e->model.c;
    const nb_plan *plan = nb_forward_plan(c->e->forward);
    const size_t d_qk = m->d_nope + m->d_rope, d_abs = m->kv_lora + m->d_rope;
    for (size_t h = 0; h < m->n_head && c->n_pos; h++) {
        const nb_linear_args a = {
            .y = c->q_abs + h * d_abs,
            .x = q + h * d_qk,
            .w = l->kv_b,
            .n_tok = c->n_pos,
            .row_begin = h * (m->d_nope + m->d_v),
            .row_end = h * (m->d_nope + m->d_v) + m->d_nope,
            .col_begin = 0,
            .col_end = m->kv_lora,
            .x_stride = c->q_w,
            .y_stride = m->n_head * d_abs,
        };
        plan->linear[a.w.type]->fn_t(&a);
        for (size_t i = 0; i < c->n_pos; i++)
            memcpy(a.y + i * a.y_stride + m->kv_lora, a.x + i * a.x_stride + m->d_nope,
                   m->d_rope * sizeof *a.y);
    }
}

/* The value rows of kv_b: rows of a matrix as float is what the embedding kernel does. */
static void copy_w_uv(const capture *c, const nb_layer *l)
{
    const nb_model_config *m = &c->e->model.c;
    const nb_plan *plan = nb_forward_plan(c->e->forward);
    for (size_t r = 0; r < m->n_head * m->d_v; r++) {
        const uint32_t id = (uint32_t)(r / m->d_v * (m->d_nope + m->d_v) + m->d_nope + r % m->d_v);
        plan->embed->fn(&(nb_embed_args){ .y = c->w_uv + r * m->kv_lora,
                                          .id = &id,
                                          .w = l->kv_b,
                                          .n_tok = 1,
                                          .y_stride = m->kv_lora,
                                          .factor = 1 });
    }
}

static nb_status deliver(const capture *c, nb_capture_fn *fn, void *ctx, nb_error *err)
{
    const nb_model_config *m = &c->e->model.c;
    const bool mla = m->attn == NB_ATTN_MLA;
    const nb_record *r = &c->e->record[0];
    for (size_t i = 0; i < c->n_layer; i++) {
        const float *q = c->q ? c->q + i * c->n_pos * c->q_w : NULL;
        if (mla) {
            absorb(c, &c->e->model.layer[i], q);
            copy_w_uv(c, &c->e->model.layer[i]);
        }
        const nb_capture_layer l = {
            .layer = i,
            .n_layer = c->n_layer,
            .is_mla = mla,
            .n_tok = c->n_tok,
            .n_q = c->n_pos,
            .n_head = m->n_head,
            .n_kv_head = mla ? 1 : m->n_kv_head,
            .dim = { r->seg[0].dim, r->seg[1].dim },
            .n_vec = { r->seg[0].n_vec, r->seg[1].n_vec },
            .n_values = c->n_values,
            .d_q = mla ? m->kv_lora + m->d_rope : m->head_dim,
            .d_v = mla ? m->d_v : m->head_dim,
            .scale = m->softmax_scale,
            .rope_interleaved = m->rope.interleaved,
            .kv = c->kv + i * c->n_tok * c->n_values,
            .pos = c->pos,
            .q = mla ? c->q_abs : q,
            .w_uv = c->w_uv,
        };
        if (fn(ctx, &l) != 0)
            return nb_fail(err, NB_ERR_CANCELLED, "the capture was ended by its caller");
    }
    return NB_OK;
}

nb_status nb_engine_capture(nb_engine *e, const uint32_t *tokens, size_t n_tok, const size_t *pos,
                            size_t n_pos, nb_capture_fn *fn, void *ctx, nb_error *err)
{
    if (!e || !fn || (n_pos && !pos)) return nb_fail(err, NB_ERR_ARG, "an argument is missing");
    if (nb_thread_is_current(e->thread))
        return nb_fail(err, NB_ERR_ARG, "nb_engine_capture was called from a callback");
    if (e->gpu)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "attention inputs are taken on the CPU only (--device cpu)");
    NB_TRY(nb_engine_check_tokens(e, tokens, n_tok, err));
    for (size_t i = 0; i < n_pos; i++)
        if (pos[i] >= n_tok || (i && pos[i] <= pos[i - 1]))
            return nb_fail(err, NB_ERR_RANGE, "query %zu: expected ascending positions below %zu",
                           pos[i], n_tok);
    const nb_model_config *m = &e->model.c;
    const unsigned seq = atomic_load_explicit(&e->cancel_seq, memory_order_relaxed);
    const bool mla = m->attn == NB_ATTN_MLA;
    capture c = { .e = e,
                  .tok = tokens,
                  .n_tok = n_tok,
                  .pos = pos,
                  .n_pos = n_pos,
                  .n_layer = m->n_layer,
                  .n_values = e->record[0].n_values,
                  .q_w = m->n_head * (mla ? m->d_nope + m->d_rope : m->head_dim) };
    if (mla) {
        c.q_abs_bytes = n_pos * m->n_head * (m->kv_lora + m->d_rope) * sizeof *c.q_abs;
        c.w_uv_bytes = m->n_head * m->d_v * m->kv_lora * sizeof *c.w_uv;
    }
    nb_status st = allocate(&c, err);
    if (st == NB_OK) st = compute(&c, seq, err);
    if (st == NB_OK) st = deliver(&c, fn, ctx, err);
    release(&c);
    return st;
}

/* ---- the model's hash ---- */

nb_status nb_engine_model_hash(nb_engine *e, char hex[NB_MODEL_HASH_CHARS + 1], nb_error *err)
{
    if (!e || !hex) return nb_fail(err, NB_ERR_ARG, "no engine given");
    if (e->kvo.have_calib) { /* it was compared with the weights before they were transformed */
        memcpy(hex, e->kvo.calib.model_hash, NB_MODEL_HASH_CHARS + 1);
        return NB_OK;
    }
    for (size_t i = 0; e->kvo.transform && i < e->model.c.n_layer; i++)
        if (e->kvo.transform[i])
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "--kv-transform %s has changed the weights that the hash is of",
                           e->kvo.transform_text);
    if (!e->int8) return nb_model_hash(&e->model, hex, err);
    nb_model original; /* views into the source's files again */
    NB_TRY(nb_model_load(&original, &e->model.c, e->source, err));
    const nb_status st = nb_model_hash(&original, hex, err);
    nb_model_deinit(&original);
    return st;
}
