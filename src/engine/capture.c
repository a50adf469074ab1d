/* capture.c - nb_engine_capture: the attention inputs of a text; nb_engine_products; nb_engine_model_hash.
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
#include "model/kv_b.h"
#include "nibble/measure.h"

#define MAX_COPY_BYTES ((uint64_t)4 << 30)

/* The matrices that a product may be of, by their data. */
typedef struct named_matrix {
    const void *data;
    const char *name;
} named_matrix;
typedef struct product_table {
    nb_arena names;
    named_matrix *m;
    size_t n, cap;
    nb_product_fn *fn;
    void *ctx;
    int ended; /* what fn has returned */
} product_table;

typedef struct capture {
    nb_engine *e;
    const uint32_t *tok;
    const size_t *pos;         /* [n_pos] */
    size_t n_tok, n_pos, done; /* tokens computed */
    size_t n_layer, n_values,
        q_w; /* floats of a token in the widest layer: cached; all heads' queries */
    nb_kv_pool view;
    size_t n_block;
    /* owned */
    unsigned char *pool;
    uint32_t *block;
    float *tail;
    uint16_t *sink;
    float *kv;           /* [n_layer][n_tok][n_values] */
    float *q;            /* [n_layer][n_pos][q_w]      */
    float *q_abs, *w_uv; /* MLA, of one layer: [n_pos][n_head][kv_lora + d_rope]; see measure.h */
    size_t q_abs_bytes, w_uv_bytes;
    product_table *products; /* nb_engine_products: instead of kv and q */
    /* of the step in hand */
    nb_status st;
    nb_error err;
} capture;

static size_t chunk_tokens(const capture *c)
{
    const size_t most = c->e->step.prefill_chunk < c->e->step.max_step_tok
                            ? c->e->step.prefill_chunk
                            : c->e->step.max_step_tok;
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
    const nb_attn_dims d = nb_layer_dims(&c->e->model.c, layer);
    if (!strcmp(what, "kv")) {
        float *to = c->kv + layer * c->n_tok * c->n_values + c->done * dim;
        for (size_t t = 0; t < n_tok && dim == d.n_values; t++)
            memcpy(to + t * dim, x + t * stride, dim * sizeof *to);
    } else if (!strcmp(what, "q")) {
        for (size_t i = 0; i < c->n_pos && dim == d.n_head * d.d_q; i++)
            if (c->pos[i] >= c->done && c->pos[i] - c->done < n_tok)
                memcpy(c->q + layer * c->n_pos * c->q_w + i * dim,
                       x + (c->pos[i] - c->done) * stride, dim * sizeof *c->q);
    }
}

static void observe(void *ctx, const nb_weight *w, size_t head, const float *x, size_t n_tok,
                    size_t n_col, size_t stride)
{
    product_table *t = ctx;
    size_t lo = 0, hi = t->n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if ((uintptr_t)t->m[mid].data < (uintptr_t)w->data)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (t->ended || lo == t->n || t->m[lo].data != w->data) return; /* a router, kv_b in halves */
    const nb_product p = {
        .name = t->m[lo].name, .head = head, .x = x, .n_tok = n_tok, .n_col = n_col, .stride = stride
    };
    t->ended = t->fn(t->ctx, &p);
}

/* One chunk, on the engine's thread. */
static void step(nb_engine *e, void *ctx)
{
    capture *c = ctx;
    const size_t sw = e->model.c.attn[0].rope.switch_tok;
    const nb_chunk chunk = {
        .block = c->block,
        .n_block = c->n_block,
        .tok = c->tok + c->done,
        .n_tok = chunk_tokens(c),
        .pos0 = c->done,
        .rope_long = sw && c->n_tok > sw, /* as loop.c for a prompt of this length */
        .absorbed = e->step.form == NB_FORM_ABSORBED,
    };
    const nb_kv_pool before = nb_rank_set_pool(e->rank[0].rank, &c->view);
    if (c->products)
        nb_rank_set_observer(e->rank[0].rank, observe, c->products);
    else
        nb_rank_set_trace(e->rank[0].rank, take, c);
    c->st = nb_rank_step(e->rank[0].rank, &chunk, 1, NULL, &c->err);
    if (c->st == NB_OK) c->st = nb_source_check_reads(e->source, &c->err);
    (void)nb_rank_set_pool(e->rank[0].rank, &before);
    nb_rank_set_trace(e->rank[0].rank, NULL, NULL);
    nb_rank_set_observer(e->rank[0].rank, NULL, NULL);
}

static nb_status compute(capture *c, unsigned seq, nb_error *err)
{
    while (c->done < c->n_tok) {
        const size_t n = chunk_tokens(c);
        if (atomic_load_explicit(&c->e->cancel_seq, memory_order_relaxed) != seq)
            return nb_fail(err, NB_ERR_CANCELLED, "the capture was cancelled");
        NB_TRY(nb_engine_call(c->e, step, c));
        if (c->st != NB_OK) return nb_fail(err, c->st, "%s", c->err.msg);
        if (c->products && c->products->ended)
            return nb_fail(err, NB_ERR_CANCELLED, "the capture was ended by its caller");
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
    const size_t sink = m->n_layer * e->pages.n_sink * c->n_values;
    uint64_t need = 0;
    add_bytes(&need, n_block, e->pages.block_bytes + sizeof *c->block);
    const size_t n_kv = c->products ? 0 : c->n_layer * c->n_tok;
    add_bytes(&need, n_kv, c->n_values * sizeof *c->kv);
    add_bytes(&need, (uint64_t)c->n_layer * c->n_pos, c->q_w * sizeof *c->q);
    add_bytes(&need, 1, c->w_uv_bytes);
    add_bytes(&need, 1, c->q_abs_bytes);
    add_bytes(&need, 1, e->pages.tail_bytes);
    add_bytes(&need, sink, sizeof *c->sink);
    if (need > MAX_COPY_BYTES)
        return nb_fail(err, NB_ERR_LIMIT,
                       "the attention inputs of %zu tokens, with queries at %zu positions, take "
                       "%.1f GiB: the limit is 4 GiB (a shorter text, or fewer positions)",
                       c->n_tok, c->n_pos, (double)need / (1 << 30));
    c->pool = calloc(n_block, e->pages.block_bytes);
    c->block = calloc(n_block, sizeof *c->block);
    c->tail = calloc(1, e->pages.tail_bytes);
    c->kv = malloc((n_kv ? n_kv : 1) * c->n_values * sizeof *c->kv);
    if (sink) c->sink = calloc(sink, sizeof *c->sink);
    if (c->n_pos) c->q = malloc(c->n_layer * c->n_pos * c->q_w * sizeof *c->q);
    if (c->w_uv_bytes) c->w_uv = malloc(c->w_uv_bytes);
    if (c->q_abs_bytes) c->q_abs = malloc(c->q_abs_bytes);
    if (!c->pool || !c->block || !c->tail || !c->kv || (sink && !c->sink) || (c->n_pos && !c->q) ||
        (c->w_uv_bytes && !c->w_uv) || (c->q_abs_bytes && !c->q_abs))
        return nb_fail(err, NB_ERR_NOMEM, "no memory for the attention inputs of %zu tokens",
                       c->n_tok);
    for (size_t i = 0; i < n_block; i++) c->block[i] = (uint32_t)i;
    c->view = nb_engine_pool(e);
    c->view.page = c->pool;
    c->view.tail = c->tail;
    c->view.sink = c->sink;
    c->view.plane = NULL;
    c->n_block = n_block;
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
static void absorb(const capture *c, const nb_attn_config *a, const nb_weight *kv_b, const float *q)
{
    const nb_plan *plan = nb_rank_plan(c->e->rank[0].rank);
    const size_t d_qk = a->d_nope + a->d_rope, d_abs = a->kv_lora + a->d_rope;
    for (size_t h = 0; h < a->n_head && c->n_pos; h++) {
        const nb_linear_args args = {
            .y = c->q_abs + h * d_abs,
            .x = q + h * d_qk,
            .w = *kv_b,
            .n_tok = c->n_pos,
            .row_begin = h * (a->d_nope + a->d_v),
            .row_end = h * (a->d_nope + a->d_v) + a->d_nope,
            .col_begin = 0,
            .col_end = a->kv_lora,
            .x_stride = a->n_head * d_qk,
            .y_stride = a->n_head * d_abs,
        };
        plan->linear[args.w.type]->fn_t(&args);
        for (size_t i = 0; i < c->n_pos; i++)
            memcpy(args.y + i * args.y_stride + a->kv_lora, args.x + i * args.x_stride + a->d_nope,
                   a->d_rope * sizeof *args.y);
    }
}

/* The value rows of kv_b: rows of a matrix as float is what the embedding kernel does. */
static void copy_w_uv(const capture *c, const nb_attn_config *a, const nb_weight *kv_b)
{
    const nb_plan *plan = nb_rank_plan(c->e->rank[0].rank);
    for (size_t r = 0; r < a->n_head * a->d_v; r++) {
        const uint32_t id = (uint32_t)(r / a->d_v * (a->d_nope + a->d_v) + a->d_nope + r % a->d_v);
        plan->embed->fn(&(nb_embed_args){ .y = c->w_uv + r * a->kv_lora,
                                          .id = &id,
                                          .w = *kv_b,
                                          .n_tok = 1,
                                          .y_stride = a->kv_lora,
                                          .factor = 1 });
    }
}

static nb_capture_layer layer_of(const capture *c, size_t i, const nb_weight *kv_b)
{
    const nb_attn_config *a = nb_layer_attn(&c->e->model.c, i);
    const nb_attn_dims d = nb_layer_dims(&c->e->model.c, i);
    const bool mla = a->kind == NB_ATTN_MLA;
    const nb_record *r = &c->e->pages.record[i];
    const float *q = c->q ? c->q + i * c->n_pos * c->q_w : NULL;
    if (mla) {
        absorb(c, a, kv_b, q);
        copy_w_uv(c, a, kv_b);
    }
    return (nb_capture_layer){
        .layer = i,
        .n_layer = c->n_layer,
        .is_mla = mla,
        .n_tok = c->n_tok,
        .n_q = c->n_pos,
        .n_head = a->n_head,
        .n_kv_head = mla ? 1 : a->n_kv_head,
        .dim = { r->seg[0].dim, r->seg[1].dim },
        .n_vec = { r->seg[0].n_vec, r->seg[1].n_vec },
        .n_values = d.n_values,
        .d_q = mla ? d.n_values : d.d_q,
        .d_v = d.d_o,
        .scale = a->softmax_scale,
        .rope_interleaved = a->rope.interleaved,
        .kv = c->kv + i * c->n_tok * c->n_values,
        .pos = c->pos,
        .q = mla ? c->q_abs : q,
        .w_uv = mla ? c->w_uv : NULL,
    };
}

static nb_status deliver(const capture *c, nb_capture_fn *fn, void *ctx, nb_error *err)
{
    nb_status st = NB_OK;
    for (size_t i = 0; i < c->n_layer && st == NB_OK; i++) {
        const nb_layer *own = &c->e->model.layer[i];
        nb_arena joined = { 0 };
        nb_weight kv_b = own->kv_b;
        if (nb_kv_b_in_halves(own)) st = nb_kv_b_joined(own, nb_layer_attn(&c->e->model.c, i), &joined, &kv_b, err);
        if (st == NB_OK) {
            const nb_capture_layer l = layer_of(c, i, &kv_b);
            if (fn(ctx, &l) != 0) st = nb_fail(err, NB_ERR_CANCELLED, "the capture was ended by its caller");
        }
        nb_arena_deinit(&joined);
    }
    return st;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Sizes of the widest layer. */
static void size_layers(capture *c)
{
    for (size_t i = 0; i < c->n_layer; i++) {
        const nb_attn_config *a = nb_layer_attn(&c->e->model.c, i);
        const nb_attn_dims d = nb_layer_dims(&c->e->model.c, i);
        c->n_values = max_size(c->n_values, d.n_values);
        c->q_w = max_size(c->q_w, d.n_head * d.d_q);
        if (a->kind != NB_ATTN_MLA) continue;
        c->q_abs_bytes =
            max_size(c->q_abs_bytes, c->n_pos * d.n_head * d.n_values * sizeof *c->q_abs);
        c->w_uv_bytes = max_size(c->w_uv_bytes, d.n_head * a->d_v * a->kv_lora * sizeof *c->w_uv);
    }
}

/* What both kinds of capture ask of the engine. */
static nb_status can_capture(nb_engine *e, const uint32_t *tokens, size_t n_tok, nb_error *err)
{
    if (nb_attn_any(&e->model.c, NB_ATTN_CSA))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "inputs of compressed attention (%s) cannot be taken: eval and calibrate measure rows of "
                       "single tokens",
                       e->model.c.family);
    if (nb_attn_any(&e->model.c, NB_ATTN_DSA))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "inputs of attention are not taken of a model with sparse attention (%s)",
                       e->model.c.family);
    if (nb_thread_is_current(e->queue.thread))
        return nb_fail(err, NB_ERR_ARG, "a capture was asked for from a callback");
    if (e->rank[0].device.kind->own_memory)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "inputs of attention and of products are taken on the CPU only (--device cpu)");
    if (e->ranks.n > 1 || e->ranks.apart)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "inputs of attention and of products are taken on one rank only "
                       "(--tensor-parallel-size 1, --data-parallel-size 1)");
    return nb_engine_check_tokens(e, tokens, n_tok, err);
}

nb_status nb_engine_capture(nb_engine *e, const uint32_t *tokens, size_t n_tok, const size_t *pos,
                            size_t n_pos, nb_capture_fn *fn, void *ctx, nb_error *err)
{
    if (!e || !fn || (n_pos && !pos)) return nb_fail(err, NB_ERR_ARG, "an argument is missing");
    NB_TRY(can_capture(e, tokens, n_tok, err));
    for (size_t i = 0; i < n_pos; i++)
        if (pos[i] >= n_tok || (i && pos[i] <= pos[i - 1]))
            return nb_fail(err, NB_ERR_RANGE, "query %zu: expected ascending positions below %zu",
                           pos[i], n_tok);
    const nb_model_config *m = &e->model.c;
    if (nb_engine_state_bytes(e))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "inputs of attention: %s has layers that keep a state and cache nothing",
                       m->family);
    const unsigned seq = atomic_load_explicit(&e->cancel_seq, memory_order_relaxed);
    capture c = {
        .e = e, .tok = tokens, .n_tok = n_tok, .pos = pos, .n_pos = n_pos, .n_layer = m->n_layer
    };
    size_layers(&c);
    nb_status st = allocate(&c, err);
    if (st == NB_OK) st = compute(&c, seq, err);
    if (st == NB_OK) st = deliver(&c, fn, ctx, err);
    if (st == NB_OK) st = nb_source_check_reads(e->source, err);
    release(&c);
    return st;
}

/* ---- products ---- */

static nb_status add_matrix(void *ctx, const char *name, nb_weight *w)
{
    product_table *t = ctx;
    if (NB_GROW(t->m, t->cap, t->n) != NB_OK) return NB_ERR_NOMEM;
    t->m[t->n].data = w->data;
    t->m[t->n].name = nb_arena_strdup(&t->names, nb_str_c(name));
    return t->m[t->n++].name ? NB_OK : NB_ERR_NOMEM;
}

static int by_data(const void *a, const void *b)
{
    const named_matrix *x = a, *y = b;
    return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : (uintptr_t)x->data > (uintptr_t)y->data;
}

nb_status nb_engine_products(nb_engine *e, const uint32_t *tokens, size_t n_tok, nb_product_fn *fn,
                             void *ctx, nb_error *err)
{
    if (!e || !fn) return nb_fail(err, NB_ERR_ARG, "an argument is missing");
    NB_TRY(can_capture(e, tokens, n_tok, err));
    const unsigned seq = atomic_load_explicit(&e->cancel_seq, memory_order_relaxed);
    product_table t = { .fn = fn, .ctx = ctx };
    capture c = {
        .e = e, .tok = tokens, .n_tok = n_tok, .n_layer = e->model.c.n_layer, .products = &t
    };
    size_layers(&c);
    nb_status st = nb_model_each_matrix(&e->model, add_matrix, &t);
    if (st != NB_OK) st = nb_fail(err, st, "out of memory");
    if (t.n) qsort(t.m, t.n, sizeof *t.m, by_data);
    if (st == NB_OK) st = allocate(&c, err);
    if (st == NB_OK) st = compute(&c, seq, err);
    if (st == NB_OK) st = nb_source_check_reads(e->source, err);
    release(&c);
    free(t.m);
    nb_arena_deinit(&t.names);
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
    nb_model original; /* views into the source's files again */
    if (e->quantized) NB_TRY(nb_model_load(&original, &e->model.c, e->source, err));
    nb_status st = nb_model_hash(e->quantized ? &original : &e->model, hex, err);
    if (e->quantized) nb_model_deinit(&original);
    if (st == NB_OK) st = nb_source_check_reads(e->source, err);
    return st;
}
