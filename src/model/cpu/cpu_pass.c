/* cpu_pass.c - the CPU backend: a step and its logits, and the operations between attention and feed-forward.
 *
 * Activations are float; weights stay in their stored type.  Everything but attention runs on all tokens of all
 * chunks at once.  What lies between products is done token by token, in parallel and together, so that a
 * token's values are still in the cache. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/cpu/cpu_state.h"

void nb_cpu_norm(const nb_cpu *f, const float *w, float eps, const float *x, size_t x_stride,
                 float *y, size_t y_stride, size_t n_row, size_t dim)
{
    f->r.plan.rmsnorm->fn(&(nb_rmsnorm_args){ .y = y,
                                              .x = x,
                                              .w = w,
                                              .n_row = n_row,
                                              .dim = dim,
                                              .x_stride = x_stride,
                                              .y_stride = y_stride,
                                              .eps = eps });
}

void nb_cpu_rope(const nb_cpu *f, size_t layer, float *x, size_t t0, size_t t1, size_t n_head,
                 size_t tok_stride, size_t head_stride)
{
    const nb_rope_config *r = &nb_rank_attn(&f->r, layer)->rope;
    if (r->dim == 0) return; /* keys and queries are not rotated */
    const float *table = f->cos_sin[f->r.whole->attn_of[layer]];
    f->r.plan.rope->fn(&(nb_rope_args){ .x = x + t0 * tok_stride,
                                        .cos_sin = table + t0 * r->dim,
                                        .n_tok = t1 - t0,
                                        .n_head = n_head,
                                        .dim = r->dim,
                                        .tok_stride = tok_stride,
                                        .head_stride = head_stride,
                                        .interleaved = r->interleaved });
}

/* ---- begin ---- */

typedef struct pass_ctx {
    nb_cpu *f;
    const nb_pass *p;
} pass_ctx;

void nb_cpu_rotary_row(const nb_rope_config *r, bool rope_long, size_t pos, float *row)
{
    const size_t half = r->dim / 2;
    for (size_t j = 0; j < half; j++) {
        const float freq = rope_long ? r->inv_freq_long[j] : r->inv_freq[j];
        /* the angle is rounded to float as in the reference, then exact */
        const double angle = freq * (float)pos;
        row[j] = (float)cos(angle) * r->factor;
        row[half + j] = (float)sin(angle) * r->factor;
    }
}

/* Embedding and rotary tables of tokens [t0, t1) of one chunk, whose first is token `at` of the step. */
static void begin_chunk(nb_cpu *f, const nb_chunk *c, size_t at, size_t t0, size_t t1)
{
    const nb_model_config *m = f->r.whole;
    const size_t h = nb_cpu_stream_width(m); /* into the first stream */
    f->r.plan.embed->fn(&(nb_embed_args){ .y = f->h + (at + t0) * h,
                                          .id = c->tok + t0,
                                          .w = f->r.o.model->embed,
                                          .n_tok = t1 - t0,
                                          .y_stride = h,
                                          .factor = m->embed_factor });
    for (size_t k = 0; k < m->n_attn; k++) {
        const nb_attn_config *a = &m->attn[k];
        const nb_rope_config *r = &a->rope;
        for (size_t t = t0; t < t1; t++)
            nb_cpu_rotary_row(r, c->rope_long, c->pos0 + t, f->cos_sin[k] + (at + t) * r->dim);
        for (size_t t = t0; a->q_beta != 0 && t < t1; t++)
            f->q_scale[k][at + t] =
                (float)(1 + (double)a->q_beta * log1p((double)((c->pos0 + t) / a->q_orig)));
    }
}

static void begin_tokens(void *ctx, size_t t0, size_t t1)
{
    const pass_ctx *x = ctx;
    const nb_pass *p = x->p;
    for (size_t i = 0, at = 0; i < p->n_chunk && at < t1; at += p->chunk[i++].n_tok) {
        const size_t end = at + p->chunk[i].n_tok;
        const size_t a = at > t0 ? at : t0, b = end < t1 ? end : t1;
        if (a < b) begin_chunk(x->f, &p->chunk[i], at, a - at, b - at);
    }
}

static void begin(nb_rank *r, nb_pass *p)
{
    pass_ctx x = { nb_cpu_of(r), p };
    nb_cpu_tokens(x.f, begin_tokens, &x, p->n_row);
}

/* ---- between attention and feed-forward ---- */

static void output(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    const nb_layer *l = &r->o.model->layer[layer];
    const nb_rank_part *part = &r->part;
    const size_t w = nb_layer_dims(r->whole, layer).n_head * nb_rank_dims(r, layer)->d_o,
                 h = r->whole->hidden;
    nb_job j = nb_cpu_job(f, &l->o, l->o_b, nb_cpu_whole(f, f->attn), w, f->branch + part->out0, h,
                          p->n_row);
    j = nb_cpu_rows(j, part->out0, part->n_out);
    nb_cpu_run_jobs(f, &j, 1);
}

typedef struct norm_ctx {
    nb_cpu *f;
    const float *w;
} norm_ctx;

static void add_norm(nb_rank *r, nb_pass *p, size_t layer, nb_norm_at at)
{
    nb_cpu_of(r)->residual->add_norm(r, p, layer, at);
}

static void branch_norm_tokens(void *ctx, size_t t0, size_t t1)
{
    const norm_ctx *x = ctx;
    const nb_model_config *c = x->f->r.whole;
    float *branch = x->f->branch + t0 * c->hidden;
    nb_cpu_norm(x->f, x->w, c->eps, branch, c->hidden, branch, c->hidden, t1 - t0, c->hidden);
}

static void branch_norm(nb_rank *r, nb_pass *p, size_t layer)
{
    norm_ctx x = { nb_cpu_of(r), r->o.model->layer[layer].branch_norm };
    nb_cpu_tokens(x.f, branch_norm_tokens, &x, p->n_row);
}

/* ---- traces ---- */

static void trace_to(nb_rank *r, const char *what, size_t layer, const float *x, size_t n_tok,
                     size_t dim, size_t stride)
{
    char name[64];
    if (!r->trace) return;
    if (layer == SIZE_MAX)
        (void)snprintf(name, sizeof name, "%s", what);
    else
        (void)snprintf(name, sizeof name, "layers.%zu.%s", layer, what);
    r->trace(r->trace_ctx, name, x, n_tok, dim, stride);
}

static void trace(nb_rank *r, nb_pass *p, const char *what, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    const bool in_layer = layer != SIZE_MAX;
    const size_t hidden = r->whole->hidden, wide = nb_cpu_stream_width(r->whole);
    const nb_attn_dims none = { 0 }, *d = in_layer ? nb_rank_dims(r, layer) : &none;
    const struct {
        const char *what;
        const float *x;
        size_t dim, stride;
    } tensors[] = { { "q", f->q, d->n_head * d->d_q, d->n_head * d->d_q },
                    { "kv", f->kv, d->n_values, d->n_values },
                    { "attn_out", f->branch, hidden, hidden },
                    { "mlp_out", f->branch, hidden, hidden },
                    { "out", f->h, wide, wide },
                    { "embed", f->h, hidden, wide } };
    for (size_t i = 0; i < NB_COUNT(tensors); i++)
        if (!strcmp(tensors[i].what, what))
            trace_to(r, what, layer, tensors[i].x, p->n_row, tensors[i].dim, tensors[i].stride);
}

/* ---- a step ---- */

/* Where each chunk stands in the buffers, and the pages that are written to. */
static size_t place_chunks(nb_cpu *f, const nb_chunk *chunk, size_t n_chunk)
{
    size_t n_tok = 0, row = 0;
    NB_ASSERT(n_chunk <= f->r.o.max_seq);
    f->n_page = f->n_bad = 0;
    for (size_t i = 0; i < n_chunk; i++) {
        const nb_chunk *c = &chunk[i];
        NB_ASSERT(c->n_tok > 0 && c->n_tok <= f->max_tok - n_tok);
        const size_t n_end = c->pos0 % NB_PAGE_TOK + c->n_tok;
        const size_t n_page = (n_end + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
        f->place[i] = (nb_cpu_place){ n_tok, n_page == 1 ? SIZE_MAX : row };
        if (n_page > 1) row += n_end;
        for (size_t k = 0; k < n_page; k++)
            f->page[f->n_page++] = (nb_cpu_page){ (uint32_t)i, (uint32_t)k };
        n_tok += c->n_tok;
    }
    NB_ASSERT(row <= f->max_raw && f->n_page <= f->max_write);
    memset(f->chunk_bad, 0, n_chunk);
    return n_tok;
}

static nb_status step(nb_rank *r, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                      nb_error *err)
{
    nb_cpu *f = nb_cpu_of(r);
    nb_pass p = { .chunk = chunk, .n_chunk = n_chunk, .n_row = place_chunks(f, chunk, n_chunk) };
    if (p.n_row == 0) {
        if (r->o.data_parallel) nb_layers_idle(r, &p);
        return NB_OK;
    }
    f->err = err;
    nb_cpu_states_begin(f, &p);
    nb_layers_run(r, &p);
    nb_cpu_states_end(f, &p);
    f->err = NULL;
    if (bad) memcpy(bad, f->chunk_bad, n_chunk);
    return f->n_bad ? NB_ERR_NONFINITE : NB_OK;
}

/* ---- logits ---- */

typedef struct logits_ctx {
    nb_cpu *f;
    const size_t *tok;
} logits_ctx;

static void final_tokens(void *ctx, size_t t0, size_t t1)
{
    const logits_ctx *x = ctx;
    nb_cpu *f = x->f;
    const nb_model_config *c = f->r.whole;
    const size_t h = c->hidden;
    for (size_t i = t0; i < t1; i++) {
        float *xn = f->xn + i * h;
        f->residual->last(f, x->tok[i], xn);
        for (size_t k = 0; c->logit_factor != 1.0f && k < h; k++) xn[k] *= c->logit_factor;
    }
}

static nb_status logits_of(nb_rank *r, const size_t *tok, size_t n, float *logits, nb_error *err)
{
    (void)err;
    nb_cpu *f = nb_cpu_of(r);
    const size_t h = r->whole->hidden;
    NB_ASSERT(n <= f->max_tok);
    if (n == 0) return NB_OK;
    logits_ctx x = { f, tok };
    nb_cpu_tokens(f, final_tokens, &x, n);
    trace_to(r, "final_norm", SIZE_MAX, f->xn, n, h, h);
    nb_job j = nb_cpu_job(f, &r->o.model->head, NULL, f->xn, h, logits + r->part.vocab0,
                          r->whole->n_vocab, n);
    j = nb_cpu_rows(j, r->part.vocab0, r->part.n_vocab);
    nb_cpu_run_jobs(f, &j, 1);
    return NB_OK;
}

/* ---- the table ---- */

static size_t bytes(const nb_rank *r)
{
    const nb_cpu *f = (const nb_cpu *)(const void *)r;
    return f->work_bytes + r->arena.used_bytes;
}

static uint64_t weight_bytes(const nb_rank *r)
{
    (void)r;
    return 0;
}

static void *workspace(nb_rank *r, size_t *n_bytes)
{
    *n_bytes = nb_cpu_of(r)->work_bytes;
    return nb_cpu_of(r)->work;
}

static void describe(const nb_rank *r, char *buf, size_t n_bytes)
{
    const nb_cpu *f = (const nb_cpu *)(const void *)r;
    nb_plan_describe(&r->plan, buf, n_bytes);
    const size_t n = strlen(buf);
    for (size_t i = 0; f->over_pages && i < r->whole->n_layer; i++) {
        if (!f->over_pages[i]) continue;
        (void)snprintf(buf + n, n_bytes - n, " attn_pages=%s", f->over_pages[i]->name);
        break;
    }
    const size_t end = strlen(buf);
    if (nb_attn_any(r->whole, NB_ATTN_DSA) && end < n_bytes)
        (void)snprintf(buf + end, n_bytes - end, " index_score=%s index_topk=%s",
                       r->plan.index_score->name, r->plan.index_topk->name);
}

static nb_rank_counts count(const nb_rank *r)
{
    const nb_cpu *f = (const nb_cpu *)(const void *)r;
    return (nb_rank_counts){
        .thrift = f->thrift_count,
        .saturated = atomic_load_explicit(&f->n_saturated, memory_order_relaxed),
        .page_reads = atomic_load_explicit(&f->n_page_read, memory_order_relaxed),
    };
}

const nb_backend nb_backend_cpu = {
    .name = "cpu",
    .create = nb_cpu_create,
    .destroy = nb_cpu_destroy,
    .step = step,
    .logits = logits_of,
    .begin = begin,
#define X(NAME, name) [NB_ATTN_##NAME] = &nb_cpu_kind_##name.ops,
    .attn = { NB_ATTENTIONS(X) },
#undef X
    .output = output,
    .feed_forward = nb_cpu_feed_forward,
    .combine = nb_cpu_combine,
    .branch_norm = branch_norm,
    .add_norm = add_norm,
    .meet = nb_cpu_meet,
    .trace = trace,
    .bytes = bytes,
    .weight_bytes = weight_bytes,
    .workspace = workspace,
    .describe = describe,
    .count = count,
};
