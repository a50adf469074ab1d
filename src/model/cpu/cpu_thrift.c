/* cpu_thrift.c - decode attention of Thrift mode: see thrift.h.
 *
 * A query goes twice over the earlier pages.  First each page is decoded and scored, and what
 * the choice needs is kept: all scores (token, block-prob), or a score per page.  Then the splits of
 * cpu_attn.c run as ever, but that the chosen tokens' latents are replaced by refined ones
 * when their page has been decoded: a split without such a token has the bits that it has without
 * Thrift.  Everything is in a fixed order of its own, so that threads, neighbours and what the pool
 * holds do not matter.  Queries go one after the other: the buffer of scores is one query's.
 *
 * Layers whose record has no residual plane are read as they are. */
#include <math.h>
#include <string.h>

#include "model/cpu/cpu.h"
#include "num/residual.h"

typedef struct thrift_query {
    const nb_cpu_attn *s;
    const float *q;  /* [n_head][kv_lora + d_rope] */
    size_t page, r0; /* the query's own page, and its place there */
    size_t n;        /* tokens in earlier pages */
    nb_cpu_pick pick;
    size_t row; /* of f->tot_o */
    size_t split0, n_wave, n_hb;
    bool last_wave;
} thrift_query;

bool nb_cpu_thrift_on(const nb_cpu_attn *s)
{
    const nb_cpu *f = s->f;
    return s->c->thrift && f->r.o.thrift.kind != NB_THRIFT_OFF && s->f->r.pool.plane &&
           nb_residual_possible(&f->r.o.record[s->layer]);
}

unsigned char *nb_cpu_plane(const nb_cpu_attn *s, size_t page)
{
    const nb_kv_pool *kv = &s->f->r.pool;
    NB_ASSERT(page < s->c->n_block);
    return kv->plane + (size_t)s->c->block[page] * kv->plane_block + kv->plane_off[s->layer];
}

void nb_cpu_thrift_stored(const nb_cpu_attn *s)
{
    const nb_cpu *f = s->f;
    const size_t full = s->n_end / NB_PAGE_TOK;
    if (!f->r.o.thrift_pool || !s->f->r.pool.plane) return;
    for (size_t i = 0; i < full; i++)
        nb_thrift_pool_drop(f->r.o.thrift_pool, s->layer, s->c->block[s->p0 + i]);
}

void nb_cpu_refine(const nb_cpu_attn *s, size_t page, const nb_cpu_pick *p, float *rows)
{
    const nb_cpu *f = s->f;
    const unsigned char *codes = nb_cpu_page_of(s, page);
    for (size_t k = p->first[page]; k < p->first[page + 1]; k++) {
        const size_t tok = p->tok[k] % NB_PAGE_TOK;
        f->r.plan.kv_residual->decode(&f->r.o.record[s->layer], codes, tok, p->row[k],
                                      rows + tok * s->d->n_values);
    }
}

/* ---- scoring ---- */

static void score_tile(const thrift_query *x, const float *rows, size_t n_kv, float *out)
{
    const nb_cpu *f = x->s->f;
    const nb_attn_config *attn = x->s->attn;
    f->r.plan.attn_score->fn(&(nb_attn_score_args){ .s = out,
                                                    .q = x->q,
                                                    .k1 = rows,
                                                    .k2 = rows + attn->kv_lora,
                                                    .head_end = attn->n_head,
                                                    .n_kv = n_kv,
                                                    .d1 = attn->kv_lora,
                                                    .d2 = attn->d_rope,
                                                    .s_stride = f->t_stride,
                                                    .k1_stride = x->s->d->n_values,
                                                    .k2_stride = x->s->d->n_values,
                                                    .scale = attn->softmax_scale });
}

/* The first row becomes the mean of all. */
static void mean_row(float *rows, size_t n)
{
    for (size_t t = 1; t < NB_PAGE_TOK; t++)
        for (size_t k = 0; k < n; k++) rows[k] += rows[t * n + k];
    for (size_t k = 0; k < n; k++) rows[k] *= 1.0f / NB_PAGE_TOK;
}

static float top_head(const float *s, size_t stride, size_t n_head)
{
    float top = -INFINITY;
    for (size_t h = 0; h < n_head; h++)
        if (s[h * stride] > top) top = s[h * stride];
    return top;
}

/* The first row becomes the maxima, the second the minima of all. */
static void bound_rows(float *rows, size_t n)
{
    float *max = rows, *min = rows + n;
    for (size_t k = 0; k < n; k++) {
        const float a = max[k], b = min[k];
        max[k] = a > b ? a : b;
        min[k] = a > b ? b : a;
    }
    for (size_t t = 2; t < NB_PAGE_TOK; t++)
        for (size_t k = 0; k < n; k++) {
            const float v = rows[t * n + k];
            if (v > max[k]) max[k] = v;
            if (v < min[k]) min[k] = v;
        }
}

static float quest_score(const thrift_query *x, const float *max, const float *min)
{
    const size_t n = x->s->d->n_values, nh = x->s->d->n_head;
    float top = -INFINITY;
    for (size_t h = 0; h < nh; h++) {
        const float *q = x->q + h * n;
        float lane[8] = { 0 }, sum = 0;
        for (size_t k = 0; k < n; k++) lane[k % 8] += q[k] * (q[k] >= 0 ? max[k] : min[k]);
        for (size_t j = 0; j < 8; j++) sum += lane[j];
        if (sum > top) top = sum;
    }
    return top;
}

static void score_task(void *ctx, size_t page, size_t worker)
{
    const thrift_query *x = ctx;
    const nb_cpu_attn *s = x->s;
    nb_cpu *f = s->f;
    const size_t n = s->d->n_values;
    float *rows = f->w_page + worker * NB_PAGE_TOK * n;
    if (page == x->page) {
        score_tile(x, s->own + (page - s->p0) * NB_PAGE_TOK * n, x->r0 + 1, f->t_score + x->n);
        return;
    }
    nb_cpu_decode_page(s, page, rows);
    switch (f->r.o.thrift.kind) {
    case NB_THRIFT_BLOCK_MEAN:
        mean_row(rows, n);
        score_tile(x, rows, 1, f->t_score + page);
        f->t_best[page] = top_head(f->t_score + page, f->t_stride, s->d->n_head);
        break;
    case NB_THRIFT_QUEST:
        bound_rows(rows, n);
        f->t_best[page] = quest_score(x, rows, rows + n);
        break;
    default: score_tile(x, rows, NB_PAGE_TOK, f->t_score + page * NB_PAGE_TOK);
    }
}

static void lse_task(void *ctx, size_t h, size_t worker)
{
    (void)worker;
    const thrift_query *x = ctx;
    nb_cpu *f = x->s->f;
    f->t_lse[h] = nb_thrift_lse(f->t_score + h * f->t_stride, x->n + x->r0 + 1);
}

/* t_best: of each token of a page the largest log-probability, or of the page the largest
 * probability. */
static void best_task(void *ctx, size_t page, size_t worker)
{
    (void)worker;
    const thrift_query *x = ctx;
    nb_cpu *f = x->s->f;
    const bool by_token = f->r.o.thrift.kind == NB_THRIFT_TOKEN;
    float *best = f->t_best + (by_token ? page * NB_PAGE_TOK : page), top = -INFINITY;
    for (size_t t = 0; by_token && t < NB_PAGE_TOK; t++) best[t] = -INFINITY;
    for (size_t h = 0; h < x->s->d->n_head; h++) {
        const float *s = f->t_score + h * f->t_stride + page * NB_PAGE_TOK, lse = f->t_lse[h];
        float sum = 0;
        for (size_t t = 0; t < NB_PAGE_TOK; t++) {
            const float x_t = s[t] - lse;
            if (!by_token)
                sum += expf(x_t);
            else if (x_t > best[t])
                best[t] = x_t;
        }
        if (sum > top) top = sum;
    }
    if (!by_token) *best = top;
}

/* ---- the choice ---- */

/* tok[0..n) of f->t_pick become positions with their rows; first of each page follows. */
static void fetch(thrift_query *x, size_t n)
{
    nb_cpu *f = x->s->f;
    const size_t bytes = nb_residual_row_bytes(&f->r.o.record[x->s->layer]);
    nb_thrift_count *count = &f->thrift_count;
    size_t page = 0;
    nb_thrift_pool_begin(f->r.o.thrift_pool);
    for (size_t k = 0; k < n; k++) {
        const size_t pos = f->t_pick[k], p = pos / NB_PAGE_TOK, tok = pos % NB_PAGE_TOK;
        bool hit;
        while (page <= p) f->t_first[page++] = (uint32_t)k;
        f->t_row[k] = nb_thrift_pool_get(f->r.o.thrift_pool, x->s->layer, x->s->c->block[p], tok,
                                         nb_cpu_plane(x->s, p) + tok * bytes, &hit);
        count->pool_hits += hit;
        count->residual_bytes += hit ? 0 : bytes;
    }
    while (page <= x->page) f->t_first[page++] = (uint32_t)n;
    count->refined += n;
    x->pick = (nb_cpu_pick){ .first = f->t_first, .tok = f->t_pick, .row = f->t_row };
}

/* The pages in f->t_pick[0..n) become their tokens: from the last on, as they take more room. */
static size_t spread(nb_cpu *f, size_t n, size_t n_sink)
{
    size_t n_out = 0;
    for (size_t k = n; k-- > 0;) {
        const uint32_t p = f->t_pick[k];
        for (uint32_t t = NB_PAGE_TOK; t-- > 0;)
            f->t_pick[k * NB_PAGE_TOK + t] = p * NB_PAGE_TOK + t;
    }
    for (size_t k = 0; k < n * NB_PAGE_TOK; k++)
        if (f->t_pick[k] >= n_sink) f->t_pick[n_out++] = f->t_pick[k];
    return n_out;
}

static void choose(thrift_query *x)
{
    nb_cpu *f = x->s->f;
    const nb_thrift_options *o = &f->r.o.thrift;
    const size_t n_sink = nb_cpu_n_sink(x->s, 0);
    size_t over = 0, n;
    if (o->kind == NB_THRIFT_TOKEN) {
        for (size_t t = 0; t < n_sink; t++) f->t_best[t] = -INFINITY;
        n = nb_thrift_choose(f->t_best, x->n, log(o->tau), nb_thrift_token_cap(o->fraction, x->n),
                             f->t_pick, &over);
        f->thrift_count.over += over;
    } else {
        const size_t k = nb_thrift_n_page(o->fraction, x->page);
        n = spread(f, nb_thrift_choose(f->t_best, x->page, -INFINITY, k, f->t_pick, &over), n_sink);
    }
    f->thrift_count.scored += x->n;
    f->thrift_count.base_bytes += 2 * x->page * f->r.o.record[x->s->layer].page_bytes;
    fetch(x, n);
}

static void select_tokens(thrift_query *x)
{
    nb_cpu *f = x->s->f;
    const bool by_prob =
        f->r.o.thrift.kind == NB_THRIFT_TOKEN || f->r.o.thrift.kind == NB_THRIFT_BLOCK_PROB;
    nb_dev_run(f->r.o.dev, score_task, x, x->page + by_prob);
    if (by_prob) {
        nb_dev_run(f->r.o.dev, lse_task, x, x->s->d->n_head);
        nb_dev_run(f->r.o.dev, best_task, x, x->page);
    }
    choose(x);
}

/* ---- attention, with what was chosen ---- */

static void head_range(const thrift_query *x, size_t i, size_t *b, size_t *e)
{
    const size_t nh = x->s->d->n_head;
    *b = nh * i / x->n_hb;
    *e = nh * (i + 1) / x->n_hb;
}

static void split_task(void *ctx, size_t task, size_t worker)
{
    const thrift_query *x = ctx;
    nb_cpu *f = x->s->f;
    const size_t nh = x->s->d->n_head, w = task / x->n_hb;
    nb_split_args a = { .s = x->s,
                        .q = x->q,
                        .q_stride = nh * x->s->d->n_values,
                        .n_q = 1,
                        .r0 = x->r0,
                        .page = x->page,
                        .split = x->split0 + w,
                        .o = f->part_o + w * nh * x->s->d->d_state,
                        .m = f->part_m + w * nh,
                        .l = f->part_l + w * nh,
                        .pick = x->n ? &x->pick : NULL };
    head_range(x, task % x->n_hb, &a.head_begin, &a.head_end);
    nb_cpu_attn_split(&a, 1, worker);
}

static void merge_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const thrift_query *x = ctx;
    nb_cpu *f = x->s->f;
    const size_t nh = x->s->d->n_head, ds = x->s->d->d_state;
    size_t b, e;
    head_range(x, task, &b, &e);
    const size_t at = x->row * nh + b;
    for (size_t w = 0; w < x->n_wave; w++) {
        const size_t from = w * nh + b;
        nb_attn_merge(f->tot_o + at * ds, f->tot_m + at, f->tot_l + at, f->part_o + from * ds,
                      f->part_m + from, f->part_l + from, e - b, ds);
    }
    if (x->last_wave)
        nb_attn_finish(f->tot_o + at * ds, f->tot_o + at * ds, f->tot_l + at, e - b, ds);
}

void nb_cpu_thrift_query(const nb_cpu_attn *s, size_t tok, const float *q, size_t row)
{
    nb_cpu *f = s->f;
    const size_t pos = s->c->pos0 + tok, nh = s->d->n_head;
    thrift_query x = {
        .s = s, .q = q, .page = pos / NB_PAGE_TOK, .r0 = pos % NB_PAGE_TOK, .row = row
    };
    x.n = x.page * NB_PAGE_TOK;
    NB_ASSERT(x.n + x.r0 < f->t_stride);
    if (x.n) select_tokens(&x);
    for (size_t h = 0; h < nh; h++) {
        f->tot_m[row * nh + h] = -INFINITY;
        f->tot_l[row * nh + h] = 0;
    }
    const size_t n_split = nb_cpu_n_split(x.page), n_worker = nb_dev_n_worker(f->r.o.dev);
    const size_t wave = NB_WAVE;
    for (; x.split0 < n_split; x.split0 += x.n_wave) {
        x.n_wave = n_split - x.split0 < wave ? n_split - x.split0 : wave;
        x.last_wave = x.split0 + x.n_wave == n_split;
        x.n_hb = (n_worker + x.n_wave - 1) / x.n_wave;
        if (x.n_hb > nh) x.n_hb = nh;
        nb_dev_run(f->r.o.dev, split_task, &x, x.n_wave * x.n_hb);
        nb_dev_run(f->r.o.dev, merge_task, &x, x.n_hb);
    }
}
