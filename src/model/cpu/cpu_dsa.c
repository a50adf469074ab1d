/* cpu_dsa.c - sparse attention on the CPU: latent attention to the tokens that an indexer chooses (attn_mla.c).
 *
 * A row whose context has at most index_topk tokens sees all of them: it is computed as without an indexer, in its
 * chunk's form.  Every later row, generated or of a prompt, attends in the absorbed form: its tokens are its own, so
 * that rebuilt keys and values of a page would serve one row, while all its heads share the gathered latents.  Which
 * rows these are depends on the position alone.
 *
 * Choosing: scores of all earlier pages (decoded keys) and of the open page (BF16 keys), then the exact top k.  The
 * chosen positions stay until the next layer that has an indexer.
 *
 * Attending: a row's positions in ascending order are cut into splits of SPLIT.  Of a split, tokens of complete pages
 * are put together to whole pages, byte by byte, which attn_pages reads; what is left of them, sinks and tokens of the
 * open page are floats.  States are merged in order of position.  All of this depends on the row alone. */
#include <math.h>
#include <string.h>

#include "model/cpu/cpu.h"
#include "num/bf16.h"
#include "num/hadamard.h"

enum {
    SPLIT = NB_ATTN_PAGES_MAX * NB_PAGE_TOK, /* chosen tokens */
    LATENT_SEGS = 2
};

typedef struct dsa_ctx {
    nb_cpu *f;
    const nb_pass *p;
    const nb_attn_config *attn;
    size_t layer;
} dsa_ctx;

static size_t pos_of(const dsa_ctx *x, const nb_index_row *r)
{
    return x->p->chunk[r->chunk].pos0 + r->tok;
}

/* ---- the indexer's queries, keys and weights ---- */

static void layer_norm(float *k, const float *w, const float *b, size_t n)
{
    double mean = 0, var = 0;
    for (size_t i = 0; i < n; i++) mean += (double)k[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)k[i] - mean;
        var += d * d;
    }
    const double inv = 1 / sqrt(var / (double)n + 1e-6);
    for (size_t i = 0; i < n; i++) k[i] = (float)(((double)k[i] - mean) * inv) * w[i] + b[i];
}

/* The rotation of the attention's frequencies, in the indexer's layout. */
static void rotate(const dsa_ctx *x, float *v, size_t t0, size_t t1, size_t n_head,
                   size_t tok_stride)
{
    const nb_cpu *f = x->f;
    const nb_rope_config *r = &x->attn->rope;
    const float *table = f->cos_sin[f->r.whole->attn_of[x->layer]];
    f->r.plan.rope->fn(&(nb_rope_args){ .x = v + t0 * tok_stride,
                                        .cos_sin = table + t0 * r->dim,
                                        .n_tok = t1 - t0,
                                        .n_head = n_head,
                                        .dim = r->dim,
                                        .tok_stride = tok_stride,
                                        .head_stride = x->attn->index_dim,
                                        .interleaved = x->attn->index_interleaved });
}

static void finish_index(void *ctx, size_t t0, size_t t1)
{
    const dsa_ctx *x = ctx;
    nb_cpu *f = x->f;
    const nb_attn_config *a = x->attn;
    const nb_layer *l = &f->r.o.model->layer[x->layer];
    const size_t n = nb_rank_dims(&f->r, x->layer)->n_values, d = a->index_dim,
                 w = a->index_head * d;
    float *k = f->kv + a->kv_lora + a->d_rope;
    const float scale = (float)(1 / sqrt((double)a->index_head * (double)d));
    for (size_t t = t0; t < t1; t++) layer_norm(k + t * n, l->index_norm, l->index_norm_b, d);
    rotate(x, k, t0, t1, 1, n);
    rotate(x, f->index.q, t0, t1, a->index_head, w);
    for (size_t t = t0; t < t1; t++) {
        if ((d & (d - 1)) == 0) {
            nb_hadamard(k + t * n, d, d);
            nb_hadamard(f->index.q + t * w, w, d);
        }
        for (size_t h = 0; h < a->index_head; h++) f->index.w[t * a->index_head + h] *= scale;
    }
}

static void project(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    const nb_layer *l = &r->o.model->layer[layer];
    const nb_attn_config *a = nb_rank_attn(r, layer);
    const size_t h = r->whole->hidden, n = nb_rank_dims(r, layer)->n_values;
    dsa_ctx x = { f, p, a, layer };
    nb_cpu_kind_mla.ops.project(r, p, layer);
    if (a->index_shared) return;
    nb_job job =
        nb_cpu_job(f, &l->index_k, NULL, f->xn, h, f->kv + a->kv_lora + a->d_rope, n, p->n_row);
    nb_cpu_run_jobs(f, &job, 1);
    job = nb_cpu_job(f, &l->index_q, NULL, f->qa, a->q_lora, f->index.q,
                     a->index_head * a->index_dim, p->n_row);
    nb_cpu_run_jobs(f, &job, 1);
    job = nb_cpu_job(f, &l->index_w, NULL, f->xn, h, f->index.w, a->index_head, p->n_row);
    job.v = f->r.plan.linear_float[l->index_w.type];
    nb_cpu_run_jobs(f, &job, 1);
    nb_cpu_tokens(f, finish_index, &x, p->n_row);
}

/* ---- choosing ---- */

/* The keys of a page. */
static const float *keys_of(const nb_cpu_attn *s, size_t own, size_t k0, size_t n, size_t worker, size_t *stride)
{
    const nb_cpu *f = s->f;
    const nb_record *r = nb_cpu_record(s);
    const size_t first = r->seg[NB_INDEX_SEG].first, page = k0 / NB_PAGE_TOK;
    float *rows = f->w_page + worker * NB_PAGE_TOK * f->max_values;
    *stride = s->d->n_values;
    if (page == own) return s->own + (page - s->p0) * NB_PAGE_TOK * *stride + first;
    if (nb_cpu_n_sink(s, page)) {
        nb_cpu_decode_page(s, page, rows);
        return rows + first;
    }
    *stride = s->attn->index_dim;
    f->r.plan.kv_codec->decode(r, nb_cpu_page_of(s, page), NB_INDEX_SEG, 0, n, rows, *stride);
    return rows;
}

/* ---- attending ---- */

/* Rows that follow each other in the step. */
typedef struct tile_ctx {
    dsa_ctx x;
    nb_index_row row[NB_PAGE_TOK];
    size_t n;
    const float *q; /* absorbed, [n][q_stride] */
    size_t q_stride;
    size_t split0, n_wave, n_hb;
    bool last;
} tile_ctx;

/* Some heads of a row in a split. */
typedef struct part {
    const tile_ctx *c;
    nb_cpu_attn s;
    const uint32_t *tok; /* [n] */
    size_t n, own;       /* own: the row's page */
    size_t head0, head1, worker;
    nb_attn_query state;
} part;

static void head_range(size_t n_head, size_t n_hb, size_t i, size_t *b, size_t *e)
{
    *b = n_head * i / n_hb;
    *e = n_head * (i + 1) / n_hb;
}

/* n floats rows of the worker's page. */
static void attend_rows(const part *a, const float *rows, size_t n)
{
    nb_cpu *f = a->s.f;
    const nb_attn_dims *d = a->s.d;
    if (n == 0) return;
    nb_attn_args x = { .o = a->state.o,
                       .m = a->state.m,
                       .l = a->state.l,
                       .q = a->state.q,
                       .n_q = 1,
                       .head_begin = a->head0,
                       .head_end = a->head1,
                       .n_kv = n,
                       .vis0 = n,
                       .d_v = d->d_state,
                       .k1_stride = d->n_values,
                       .k2_stride = d->n_values,
                       .v_stride = d->n_values,
                       .scale = a->s.attn->softmax_scale };
    nb_cpu_kind_mla.tile(&a->s, rows, &x);
    f->r.plan.attn->fn(&x);
}

/* Whole pages of tokens [i0, i0 + 64 n_page). */
static void attend_pages(const part *a, size_t i0, size_t n_page)
{
    nb_cpu *f = a->s.f;
    const nb_record *r = nb_cpu_record(&a->s);
    unsigned char *to = f->sparse.gather + a->worker * f->sparse.gather_bytes;
    const void *page[NB_ATTN_PAGES_MAX];
    for (size_t j = 0; j < n_page; j++) page[j] = to + j * r->page_bytes;
    for (size_t i = 0; i < n_page * NB_PAGE_TOK; i++) {
        const size_t pos = a->tok[i0 + i];
        nb_record_move(r, LATENT_SEGS, to + i / NB_PAGE_TOK * r->page_bytes, i % NB_PAGE_TOK,
                       nb_cpu_page_of(&a->s, pos / NB_PAGE_TOK), pos % NB_PAGE_TOK);
    }
    f->over_pages[a->s.layer]->fn(
        &(nb_attn_pages_args){ .record = r,
                               .page = page,
                               .n_page = n_page,
                               .query = &a->state,
                               .n_query = 1,
                               .head_begin = a->head0,
                               .head_end = a->head1,
                               .scale = a->s.attn->softmax_scale,
                               .scratch = (char *)f->w_scratch + a->worker * f->w_scratch_bytes });
}

/* The latent and the rope key of a token as the row sees them. */
static void read_token(const part *a, size_t pos, float *out)
{
    const nb_cpu_attn *s = &a->s;
    const nb_record *r = nb_cpu_record(s);
    const size_t n = s->attn->kv_lora + s->attn->d_rope, stride = s->d->n_values;
    if (pos / NB_PAGE_TOK == a->own) {
        memcpy(out, s->own + (pos - s->p0 * NB_PAGE_TOK) * stride, n * sizeof *out);
        return;
    }
    if (pos < nb_cpu_n_sink(s, 0)) {
        const uint16_t *sink = nb_cpu_sink_rows(s) + pos * stride;
        for (size_t i = 0; i < n; i++) out[i] = nb_bf16_to_f32(sink[i]);
        return;
    }
    for (size_t k = 0; k < LATENT_SEGS; k++)
        s->f->r.plan.kv_codec->decode(r, nb_cpu_page_of(s, pos / NB_PAGE_TOK), k, pos % NB_PAGE_TOK,
                                      1, out + r->seg[k].first, stride);
}

static void attend_part(const part *a)
{
    nb_cpu *f = a->s.f;
    const size_t stride = a->s.d->n_values, n_sink = nb_cpu_n_sink(&a->s, 0);
    float *rows = f->w_page + a->worker * NB_PAGE_TOK * f->max_values;
    size_t first = 0, end = 0, n = 0; /* tokens [first, end) are in complete pages */
    while (first < a->n && a->tok[first] < n_sink && a->own != 0) first++;
    for (end = first; end < a->n && a->tok[end] / NB_PAGE_TOK < a->own;) end++;
    const size_t n_page =
        nb_record_can_move(nb_cpu_record(&a->s), LATENT_SEGS) ? (end - first) / NB_PAGE_TOK : 0;
    const size_t moved = first + n_page * NB_PAGE_TOK;
    nb_cpu_reset(a->state.m + a->head0, a->state.l + a->head0, a->head1 - a->head0);
    if (n_page) attend_pages(a, first, n_page);
    for (size_t i = 0; i < a->n; i++) {
        if (i >= first && i < moved) continue;
        read_token(a, a->tok[i], rows + n++ * stride);
        if (n < NB_PAGE_TOK) continue;
        attend_rows(a, rows, n);
        n = 0;
    }
    attend_rows(a, rows, n);
}

static void split_task(void *ctx, size_t task, size_t worker)
{
    const tile_ctx *c = ctx;
    nb_cpu *f = c->x.f;
    const size_t state = task / c->n_hb, i = state % c->n, split = c->split0 + state / c->n;
    const size_t topk = c->x.attn->index_topk, at = split * SPLIT;
    part a = { .c = c,
               .s = nb_cpu_attn_of(f, c->x.p, c->row[i].chunk, c->x.layer),
               .tok = nb_index_chosen(f, c->x.attn, &c->row[i]) + at,
               .n = topk - at < SPLIT ? topk - at : SPLIT,
               .own = pos_of(&c->x, &c->row[i]) / NB_PAGE_TOK,
               .worker = worker };
    const size_t nh = a.s.d->n_head;
    a.state = (nb_attn_query){ .q = c->q + i * c->q_stride,
                               .o = f->part_o + state * nh * a.s.d->d_state,
                               .m = f->part_m + state * nh,
                               .l = f->part_l + state * nh };
    head_range(nh, c->n_hb, task % c->n_hb, &a.head0, &a.head1);
    attend_part(&a);
}

static void merge_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const tile_ctx *c = ctx;
    nb_cpu *f = c->x.f;
    const nb_attn_dims *d = nb_rank_dims(&f->r, c->x.layer);
    const size_t nh = d->n_head, ds = d->d_state, i = task / c->n_hb;
    size_t b, e;
    head_range(nh, c->n_hb, task % c->n_hb, &b, &e);
    const size_t at = i * nh + b;
    if (c->split0 == 0) nb_cpu_reset(f->tot_m + at, f->tot_l + at, e - b);
    for (size_t w = 0; w < c->n_wave; w++) {
        const size_t from = (w * c->n + i) * nh + b;
        nb_attn_merge(f->tot_o + at * ds, f->tot_m + at, f->tot_l + at, f->part_o + from * ds,
                      f->part_m + from, f->part_l + from, e - b, ds);
    }
    if (c->last) nb_attn_finish(f->tot_o + at * ds, f->tot_o + at * ds, f->tot_l + at, e - b, ds);
}

static void attend_tile(tile_ctx *c)
{
    nb_cpu *f = c->x.f;
    const nb_attn_dims *d = nb_rank_dims(&f->r, c->x.layer);
    const size_t nh = d->n_head, n_worker = nb_dev_n_worker(f->r.o.dev), at = c->row[0].at;
    const size_t n_split = (c->x.attn->index_topk + SPLIT - 1) / SPLIT, wave = NB_WAVE / c->n;
    c->q = nb_cpu_kind_mla.queries(f, c->x.layer, f->q + at * nh * d->d_q, c->n, &c->q_stride);
    for (c->split0 = 0; c->split0 < n_split; c->split0 += c->n_wave) {
        c->n_wave = n_split - c->split0 < wave ? n_split - c->split0 : wave;
        c->last = c->split0 + c->n_wave == n_split;
        c->n_hb = (n_worker + c->n * c->n_wave - 1) / (c->n * c->n_wave);
        if (c->n_hb > nh) c->n_hb = nh;
        nb_dev_run(f->r.o.dev, split_task, c, c->n * c->n_wave * c->n_hb);
        nb_dev_run(f->r.o.dev, merge_task, c, c->n * c->n_hb);
    }
    nb_cpu_kind_mla.outputs(f, c->x.layer, c->n, f->attn + at * nh * d->d_o);
}

static void attend_chosen(const dsa_ctx *x)
{
    nb_index_row row = { 0, SIZE_MAX, 0 };
    bool more = nb_index_next(x->f, x->p, x->attn, &row);
    while (more) {
        tile_ctx c = { .x = *x };
        do {
            c.row[c.n++] = row;
            more = nb_index_next(x->f, x->p, x->attn, &row);
        } while (more && c.n < NB_PAGE_TOK && row.at == c.row[c.n - 1].at + 1);
        attend_tile(&c);
    }
}

/* Rows that see everything. */
static void attend_all(const dsa_ctx *x)
{
    nb_cpu *f = x->f;
    const nb_pass *p = x->p;
    for (size_t i = 0, n; i < p->n_chunk; i += n) {
        for (n = 0; i + n < p->n_chunk && n < NB_DECODE_MAX && nb_index_n_dense(x->attn, &p->chunk[i + n]) &&
                    nb_cpu_is_decode(f, p, i + n, x->attn);)
            n++;
        if (n) {
            nb_cpu_decode(f, p, i, n, x->layer);
            continue;
        }
        n = 1;
        const size_t n_tok = nb_index_n_dense(x->attn, &p->chunk[i]);
        if (n_tok && !f->chunk_bad[i]) nb_cpu_attend_first(f, p, i, x->layer, n_tok);
    }
}

static void attend(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    const dsa_ctx x = { f, p, nb_rank_attn(r, layer), layer };
    if (!x.attn->index_shared) nb_index_choose(f, p, layer, keys_of);
    attend_all(&x);
    attend_chosen(&x);
    nb_cpu_close_chunks(f, p, layer);
}

static const float *queries(nb_cpu *f, size_t layer, const float *q, size_t n_q, size_t *stride)
{
    return nb_cpu_kind_mla.queries(f, layer, q, n_q, stride);
}
static void outputs(nb_cpu *f, size_t layer, size_t n_q, float *y)
{
    nb_cpu_kind_mla.outputs(f, layer, n_q, y);
}
static void tile(const nb_cpu_attn *s, const float *rows, nb_attn_args *a)
{
    nb_cpu_kind_mla.tile(s, rows, a);
}

const nb_cpu_kind nb_cpu_kind_dsa = { { project, nb_cpu_append, attend }, queries, outputs, tile };
