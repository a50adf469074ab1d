/* check_cuda_thrift.c - Thrift mode on a device: the choice of tokens, then attention by the row "mma" with
 * these refined.
 *
 * Pages and planes are the host's.  Scores are compared with sums in double; what follows from them (lse,
 * best, the choice) with a choice made here by sorting the device's own `best`, exactly.  The few
 * pages stand at many places, so that there are ties.  Attention is compared with sums in double over
 * values that the host has refined.  Then rows alone and NaN in another query change no bit. */
#include <stdlib.h>

#include "check/check_cuda.h"
#include "kernel/cuda/api/nb_cuda_items.h"
#include "num/bf16.h"
#include "num/residual.h"

enum { N_BLOCK = 5, MAX_PAGE = 48, N_CHUNK = 5, MAX_ROW = 12, LAYERS = 2, TAIL_LAYER = 1 };

typedef struct shape {
    size_t d1, d2, n_head, n_page;
    double tau, fraction;
    bool device; /* too slow for the emulation */
} shape;

static const shape shapes[] = {
    { 32, 8, 4, 19, 1e-3, 0.02, false },   { 64, 16, 3, 5, 1e-9, 1, false },
    { 31, 17, 5, 6, 6e-3, 0.9, false },    { 40, 8, 20, 2, 1e-2, 0.3, false },
    { 512, 64, 2, 2, 1e-3, 0.1, false },   { 16, 4, 1, 30, 1e-4, 0, false },
    { 512, 64, 16, 40, 1e-3, 0.02, true }, { 512, 64, 128, 20, 1e-3, 0.05, true },
    { 512, 64, 64, 33, 1e-4, 0.2, true },
};

typedef struct kase {
    nb_record r;
    const shape *s;
    float scale;
    size_t nv, n_row, stride, q_head, q_stride, n_block;
    size_t block_bytes, layer_off, plane_bytes, plane_off;
    unsigned char *pool, *plane;
    float *dec;                   /* [N_BLOCK][64][nv] */
    float *fine;                  /* [N_BLOCK][64][d1]: all refined */
    float *rows;                  /* of all chunks, [2][64][nv] each */
    nb_cuda_chunk chunk[N_CHUNK]; /* tail, own: of the host */
    uint32_t block[N_CHUNK * (MAX_PAGE + 2)], row_chunk[MAX_ROW];
    unsigned char on[MAX_ROW];
    float *q;
} kase;

static float normal(chk *t)
{
    double s = 0;
    for (int i = 0; i < 4; i++) s += chk_unit(t) * 2 - 1;
    return (float)(s * 0.9);
}

static bool make_record(chk *t, nb_record *r, const shape *s, nb_kv_type type, unsigned extra)
{
    uint16_t place[4];
    nb_record_opts o = { .type = type, .rope = NB_ROPE_INT8, NB_SEGS_MLA(s->d1, s->d2) };
    o.mode = (nb_kv_mode)chk_between(t, 0, 2);
    for (size_t i = 0; i < 3; i++) place[i] = (uint16_t)(i * (s->d1 / 3) + chk_between(t, 0, 2));
    if (extra & 1) o.seg[0].outlier = place, o.seg[0].n_outlier = 3;
    if (extra & 2 && type == NB_KV_NVFP4) o.seg[0].fixed_scale = 0.005f;
    return nb_record_init(r, &o, NULL) == NB_OK;
}

static void make_pages(chk *t, kase *k)
{
    const size_t nv = k->nv, d1 = k->s->d1;
    k->layer_off = 128;
    k->block_bytes = k->layer_off + k->r.page_bytes + 128;
    k->plane_off = nb_residual_page_bytes(&k->r);
    k->plane_bytes = k->plane_off + nb_residual_page_bytes(&k->r) + 7;
    k->pool = chk_raw(t, N_BLOCK * k->block_bytes);
    k->plane = chk_raw(t, N_BLOCK * k->plane_bytes);
    memset(k->pool, 0xff, N_BLOCK * k->block_bytes);
    memset(k->plane, 0xff, N_BLOCK * k->plane_bytes);
    k->dec = chk_raw(t, N_BLOCK * NB_PAGE_TOK * nv * sizeof(float));
    k->fine = chk_raw(t, N_BLOCK * NB_PAGE_TOK * d1 * sizeof(float));
    uint16_t *h = chk_raw(t, NB_PAGE_TOK * nv * sizeof *h);
    for (size_t b = 0; b < N_BLOCK; b++) {
        unsigned char *page = k->pool + b * k->block_bytes + k->layer_off;
        unsigned char *plane = k->plane + b * k->plane_bytes + k->plane_off;
        for (size_t i = 0; i < NB_PAGE_TOK * nv; i++)
            h[i] = nb_bf16_from_f32(normal(t) * (i / nv % 13 == b ? 3.0f : 1.0f));
        if (nb_record_encode_page(&k->r, page, h, nv) != NB_OK)
            chk_fail(t, "the specification refuses finite values");
        nb_residual_encode(&k->r, page, h, nv, plane);
        float *dec = k->dec + b * NB_PAGE_TOK * nv;
        nb_record_decode(&k->r, page, 0, 0, NB_PAGE_TOK, dec, nv);
        nb_record_decode(&k->r, page, 1, 0, NB_PAGE_TOK, dec + d1, nv);
        for (size_t i = 0; i < NB_PAGE_TOK; i++)
            nb_residual_decode(&k->r, page, i, plane + i * nb_residual_row_bytes(&k->r),
                               k->fine + (b * NB_PAGE_TOK + i) * d1);
    }
}

/* A long sequence, one with several tokens over a page's end, one without Thrift mode, a short one, and
 * padding. */
static void make_chunks(chk *t, kase *k)
{
    static const size_t n_tok[N_CHUNK] = { 1, 3, 2, 1, 0 };
    const size_t per_page = NB_PAGE_TOK * k->nv, n_page = k->s->n_page;
    const size_t pos[N_CHUNK] = { n_page * NB_PAGE_TOK + chk_between(t, 0, 63),
                                  (n_page + 1) / 2 * NB_PAGE_TOK + 62, n_page * NB_PAGE_TOK + 5,
                                  chk_between(t, 0, 63), 0 };
    k->rows = chk_raw(t, N_CHUNK * 2 * per_page * sizeof(float));
    for (size_t i = 0; i < N_CHUNK * 2 * per_page; i++)
        k->rows[i] = nb_bf16_to_f32(nb_bf16_from_f32(normal(t)));
    for (size_t i = 0; i < N_CHUNK; i++) {
        nb_cuda_chunk *c = &k->chunk[i];
        *c = (nb_cuda_chunk){ .tail = k->rows + i * 2 * per_page,
                              .row0 = (uint32_t)k->n_row,
                              .n_tok = (uint32_t)n_tok[i],
                              .pos0 = (uint32_t)pos[i],
                              .block0 = (uint32_t)k->n_block };
        if (i == 1) c->own = c->tail;
        for (size_t j = 0; j < n_tok[i]; j++) {
            k->on[k->n_row] = i != 2;
            k->row_chunk[k->n_row++] = (uint32_t)i;
        }
        for (size_t p = 0; p < pos[i] / NB_PAGE_TOK + 2; p++)
            k->block[k->n_block++] = (uint32_t)chk_between(t, 0, N_BLOCK - 1);
    }
    k->on[k->n_row] = 1;
    k->row_chunk[k->n_row++] = UINT32_MAX;
}

static bool make_case(chk *t, kase *k, const shape *s, nb_kv_type type, unsigned extra)
{
    memset(k, 0, sizeof *k);
    k->s = s;
    if (!make_record(t, &k->r, s, type, extra)) return false;
    k->nv = s->d1 + s->d2;
    k->stride = (s->n_page + 2) * NB_PAGE_TOK;
    make_pages(t, k);
    make_chunks(t, k);
    k->q_head = (k->nv + 7) / 8 * 8;
    k->q_stride = s->n_head * k->q_head + 8;
    k->q = chk_raw(t, k->n_row * k->q_stride * sizeof *k->q);
    for (size_t i = 0; i < k->n_row * k->q_stride; i++) k->q[i] = normal(t);
    k->scale = (float)(1.0 / sqrt((double)k->nv));
    return true;
}

static size_t position(const kase *k, size_t row)
{
    const nb_cuda_chunk *c = &k->chunk[k->row_chunk[row]];
    return c->pos0 + (row - c->row0);
}

/* Complete pages before the row's. */
static size_t n_page_of(const kase *k, size_t row)
{
    return k->row_chunk[row] == UINT32_MAX ? 0 : position(k, row) / NB_PAGE_TOK;
}

/* Values of a position as the row reads them. */
static const float *value(const kase *k, size_t row, size_t pos)
{
    const nb_cuda_chunk *c = &k->chunk[k->row_chunk[row]];
    const size_t page = pos / NB_PAGE_TOK, in = pos % NB_PAGE_TOK;
    if (page < n_page_of(k, row))
        return k->dec + (k->block[c->block0 + page] * NB_PAGE_TOK + in) * k->nv;
    const size_t at = c->own ? page - c->pos0 / NB_PAGE_TOK : TAIL_LAYER;
    return c->tail + (at * NB_PAGE_TOK + in) * k->nv;
}

/* ---- a run ---- */

typedef struct result {
    float *score, *best, *y;
    float *lse;
    uint32_t *n, *first, *tok;
    size_t tok_stride, first_stride, y_stride;
    uint64_t count[4];
} result;

static void *got(chk *t, const void *dev, size_t n_bytes)
{
    void *p = chk_raw(t, n_bytes);
    chk_gpu_get(t, p, dev, n_bytes);
    return p;
}

static nb_cuda_cache cache_of(chk *t, const kase *k)
{
    nb_cuda_chunk chunk[N_CHUNK];
    const size_t n = N_CHUNK * 2 * NB_PAGE_TOK * k->nv;
    float *rows = chk_gpu_in(t, k->rows, n * sizeof *rows);
    for (size_t i = 0; i < N_CHUNK; i++) {
        chunk[i] = k->chunk[i];
        chunk[i].tail = rows + (k->chunk[i].tail - k->rows);
        if (chunk[i].own) chunk[i].own = chunk[i].tail;
    }
    return (nb_cuda_cache){ .pool = chk_gpu_in(t, k->pool, N_BLOCK * k->block_bytes),
                            .block_bytes = k->block_bytes,
                            .layer_off = k->layer_off,
                            .tail_off = TAIL_LAYER * NB_PAGE_TOK * k->nv,
                            .block = chk_gpu_in(t, k->block, sizeof k->block),
                            .chunk = chk_gpu_in(t, chunk, sizeof chunk),
                            .n_chunk = N_CHUNK,
                            .record = k->r };
}

/* Attention with the choice p, queries one by one. */
static float *attend(chk *t, const kase *k, const nb_cuda_thrift_args *p, size_t *y_stride)
{
    const shape *s = k->s;
    nb_cuda_group group[MAX_ROW];
    nb_cuda_item item[MAX_ROW * MAX_PAGE];
    uint32_t part_first[MAX_ROW + 1] = { 0 }, n_group = 0;
    const nb_cuda_mla_row *v = chk_gpu_api(t)->mla;
    while (v->name && strcmp(v->name, "mma") != 0) v++;
    for (size_t i = 0; i < k->n_row; i++) {
        const bool is = k->row_chunk[i] != UINT32_MAX;
        const size_t n = n_page_of(k, i);
        part_first[i + 1] = part_first[i] + (is ? (uint32_t)nb_cuda_n_unit(v->units, n) + 1 : 0);
        if (is) group[n_group++] = (nb_cuda_group){ k->row_chunk[i], (uint32_t)i, 1, (uint32_t)n };
    }
    const uint32_t n_item = (uint32_t)nb_cuda_items(group, n_group, v->units, chk_between(t, 1, 5),
                                                    s->n_head, true, part_first, item);
    const size_t n_state = part_first[k->n_row] * s->n_head;
    *y_stride = (s->n_head * s->d1 + 7) / 8 * 8;
    nb_cuda_mla_args a = {
        .cache = p->cache,
        .q = p->q,
        .y = { .f = chk_gpu_out(t, k->n_row * *y_stride * sizeof(float)), .stride = *y_stride },
        .part_o = chk_gpu_out(t, n_state * s->d1 * sizeof(float)),
        .part_m = chk_gpu_out(t, n_state * sizeof(float)),
        .part_l = chk_gpu_out(t, n_state * sizeof(float)),
        .part_first = chk_gpu_in(t, part_first, (k->n_row + 1) * sizeof *part_first),
        .row_chunk = p->row_chunk,
        .item = chk_gpu_in(t, item, (n_item + 1) * sizeof *item),
        .n_item = chk_gpu_in(t, &n_item, sizeof n_item),
        .n_row = k->n_row,
        .n_head = s->n_head,
        .lora = s->d1,
        .d_rope = s->d2,
        .q_stride = k->q_stride,
        .q_head = k->q_head,
        .max_item = n_item,
        .units = v->units,
        .scale = k->scale,
        .pick = p->pick,
    };
    a.pick.plane = chk_gpu_in(t, k->plane, N_BLOCK * k->plane_bytes);
    a.pick.plane_block_bytes = k->plane_bytes;
    a.pick.plane_layer_off = k->plane_off;
    const nb_cuda_api *api = chk_gpu_api(t);
    nb_cuda *g = chk_gpu(t);
    chk_gpu_call(t, (v->fn(g, &a), api->mla_tail(g, &a), api->mla_combine(g, &a)));
    return got(t, a.y.f, k->n_row * *y_stride * sizeof(float));
}

/* Rows [0, n_row) in waves of so many. */
static result run(chk *t, const kase *k, size_t wave)
{
    const shape *s = k->s;
    const size_t R = k->n_row, most = s->n_page * NB_PAGE_TOK, n_score = wave * k->stride;
    const uint64_t zero[4] = { 0 };
    const size_t cap = (size_t)(s->fraction * (double)most) + 2;
    const nb_cuda_cache cache = cache_of(t, k);
    nb_cuda_thrift_args a = { .cache = cache,
                              .q = chk_gpu_in(t, k->q, R * k->q_stride * sizeof(float)),
                              .row_chunk = chk_gpu_in(t, k->row_chunk, R * sizeof(uint32_t)),
                              .on = chk_gpu_in(t, k->on, R),
                              .pick = { .n = chk_gpu_out(t, R * sizeof(uint32_t)),
                                        .first =
                                            chk_gpu_out(t, R * (s->n_page + 3) * sizeof(uint32_t)),
                                        .tok = chk_gpu_out(t, R * cap * sizeof(uint32_t)),
                                        .first_stride = s->n_page + 3,
                                        .tok_stride = cap },
                              .score = chk_gpu_out(t, n_score * s->n_head * sizeof(float)),
                              .best = chk_gpu_out(t, n_score * sizeof(float)),
                              .lse = chk_gpu_out(t, wave * s->n_head * sizeof(float)),
                              .count = chk_gpu_inout(t, zero, sizeof zero),
                              .n_head = s->n_head,
                              .lora = s->d1,
                              .d_rope = s->d2,
                              .q_stride = k->q_stride,
                              .q_head = k->q_head,
                              .stride = k->stride,
                              .log_tau = log(s->tau),
                              .fraction = s->fraction,
                              .scale = k->scale };
    result z = { .tok_stride = cap, .first_stride = s->n_page + 3 };
    z.best = chk_raw(t, R * k->stride * sizeof(float));
    z.score = chk_raw(t, R * k->stride * s->n_head * sizeof(float));
    z.lse = chk_raw(t, R * s->n_head * sizeof(float));
    for (; a.row0 < R; a.row0 += a.n_row) {
        a.n_row = R - a.row0 < wave ? R - a.row0 : wave;
        chk_gpu_call(t, chk_gpu_api(t)->thrift(chk_gpu(t), &a));
        const size_t n = a.n_row * k->stride;
        chk_gpu_get(t, z.best + a.row0 * k->stride, a.best, n * sizeof(float));
        chk_gpu_get(t, z.score + a.row0 * k->stride * s->n_head, a.score,
                    n * s->n_head * sizeof(float));
        chk_gpu_get(t, z.lse + a.row0 * s->n_head, a.lse, a.n_row * s->n_head * sizeof(float));
    }
    z.n = got(t, a.pick.n, R * sizeof(uint32_t));
    z.first = got(t, a.pick.first, R * z.first_stride * sizeof(uint32_t));
    z.tok = got(t, a.pick.tok, R * cap * sizeof(uint32_t));
    chk_gpu_get(t, z.count, a.count, sizeof z.count);
    z.y = attend(t, k, &a, &z.y_stride);
    return z;
}

/* ---- what is compared ---- */

static bool chooses(const kase *k, size_t row)
{
    return k->on[row] && n_page_of(k, row) > 0;
}

/* Scores in double, of positions up to the row's; refined[pos]: with the refined latent (may be NULL). */
static void scores(const kase *k, size_t row, size_t head, const bool *refined, double *s)
{
    const float *q = k->q + row * k->q_stride + head * k->q_head;
    const uint32_t *block = k->block + k->chunk[k->row_chunk[row]].block0;
    for (size_t i = 0; i <= position(k, row); i++) {
        const float *x = value(k, row, i), *lat = x;
        if (refined && refined[i])
            lat = k->fine + (block[i / NB_PAGE_TOK] * NB_PAGE_TOK + i % NB_PAGE_TOK) * k->s->d1;
        s[i] = 0;
        for (size_t j = 0; j < k->nv; j++)
            s[i] += (double)q[j] * (double)(j < k->s->d1 ? lat[j] : x[j]);
        s[i] *= (double)k->scale;
    }
}

static void check_scores(chk *t, const kase *k, const result *z, size_t row)
{
    const size_t n = position(k, row) + 1, nh = k->s->n_head;
    double *want = chk_f64(t, n);
    for (size_t h = 0; h<nh; h += nh> 8 ? 7 : 1) {
        const float *s = z->score + (row * nh + h) * k->stride;
        double top = -INFINITY, sum = 0;
        scores(k, row, h, NULL, want);
        for (size_t i = 0; i < n; i++) {
            chk_worst(t, fabs((double)s[i] - want[i]) / 1e-3);
            if (!(fabs((double)s[i] - want[i]) <= 1e-3)) {
                chk_fail(t, "row %zu head %zu position %zu: score %g instead of %g", row, h, i,
                         (double)s[i], want[i]);
                return;
            }
            top = fmax(top, (double)s[i]);
        }
        for (size_t i = 0; i < n; i++) sum += exp((double)s[i] - top);
        if (!(fabs((double)z->lse[row * nh + h] - (top + log(sum))) <= 1e-5))
            chk_fail(t, "row %zu head %zu: lse %g instead of %g", row, h,
                     (double)z->lse[row * nh + h], top + log(sum));
    }
    for (size_t i = 0; i < n_page_of(k, row) * NB_PAGE_TOK; i++) {
        float best = -INFINITY;
        for (size_t h = 0; h < nh; h++)
            best = fmaxf(best, z->score[(row * nh + h) * k->stride + i] - z->lse[row * nh + h]);
        if (best != z->best[row * k->stride + i]) {
            chk_fail(t, "row %zu position %zu: best is %g instead of %g", row, i,
                     (double)z->best[row * k->stride + i], (double)best);
            return;
        }
    }
}

typedef struct place {
    float x;
    uint32_t at;
} place;

static int larger_first(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->x != y->x) return x->x > y->x ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* chosen[pos], from the device's `best`; returns how many. */
static size_t choose(chk *t, const kase *k, const result *z, size_t row, bool *chosen, size_t *over)
{
    const size_t n = n_page_of(k, row) * NB_PAGE_TOK;
    const size_t cap = (size_t)ceil(k->s->fraction * (double)n);
    place *p = chk_raw(t, (n + 1) * sizeof *p);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const float x = z->best[row * k->stride + i];
        if ((double)x > log(k->s->tau)) p[m++] = (place){ x, (uint32_t)i };
    }
    qsort(p, m, sizeof *p, larger_first);
    *over = m > cap ? m - cap : 0;
    for (size_t i = 0; i < m - *over; i++) chosen[p[i].at] = true;
    return m - *over;
}

static void check_choice(chk *t, const kase *k, const result *z, size_t row, const bool *chosen,
                         size_t n)
{
    const uint32_t *tok = z->tok + row * z->tok_stride, *first = z->first + row * z->first_stride;
    size_t at = 0;
    if (z->n[row] != n) {
        chk_fail(t, "row %zu: %u tokens chosen instead of %zu", row, z->n[row], n);
        return;
    }
    for (size_t i = 0; n > 0 && i < n_page_of(k, row) * NB_PAGE_TOK; i++) {
        if (i % NB_PAGE_TOK == 0 && first[i / NB_PAGE_TOK] != at)
            chk_fail(t, "row %zu: page %zu begins at entry %u, not %zu", row, i / NB_PAGE_TOK,
                     first[i / NB_PAGE_TOK], at);
        if (chosen[i] && tok[at++] != i) {
            chk_fail(t, "row %zu: entry %zu is %u, not %zu", row, at - 1, tok[at - 1], i);
            return;
        }
    }
    if (n > 0 && first[n_page_of(k, row)] != n) chk_fail(t, "row %zu: no end of the list", row);
}

static void check_result(chk *t, const kase *k, const result *z, size_t row, const bool *refined)
{
    const size_t n = position(k, row) + 1, d1 = k->s->d1, nh = k->s->n_head;
    const uint32_t *block = k->block + k->chunk[k->row_chunk[row]].block0;
    double *s = chk_f64(t, n), *y = chk_f64(t, d1);
    for (size_t h = 0; h<nh; h += nh> 8 ? 5 : 1) {
        double top = -INFINITY, sum = 0, err = 0, norm = 0;
        scores(k, row, h, refined, s);
        for (size_t i = 0; i < n; i++) top = fmax(top, s[i]);
        for (size_t j = 0; j < d1; j++) y[j] = 0;
        for (size_t i = 0; i < n; i++) {
            const double p = exp(s[i] - top);
            const float *x = value(k, row, i);
            if (refined[i])
                x = k->fine + (block[i / NB_PAGE_TOK] * NB_PAGE_TOK + i % NB_PAGE_TOK) * d1;
            sum += p;
            for (size_t j = 0; j < d1; j++) y[j] += p * (double)x[j];
        }
        for (size_t j = 0; j < d1; j++) {
            const double e = (double)z->y[row * z->y_stride + h * d1 + j] - y[j] / sum;
            err += e * e;
            norm += y[j] / sum * (y[j] / sum);
        }
        const double part = sqrt(err / (norm + 0x1p-100)) / 5e-4;
        chk_worst(t, part);
        if (!(part <= 1))
            chk_fail(t, "row %zu head %zu position %zu: attention errs by %.3g of the norm", row, h,
                     n - 1, part * 5e-4);
    }
}

/* Everything of the rows but those of the chunk. */
static void same(chk *t, const char *why, const kase *k, const result *a, const result *b,
                 uint32_t but)
{
    for (size_t row = 0; row < k->n_row; row++) {
        if (k->row_chunk[row] == UINT32_MAX || k->row_chunk[row] == but) continue;
        const size_t n = chooses(k, row) ? n_page_of(k, row) * NB_PAGE_TOK : 0;
        if (a->n[row] != b->n[row] ||
            memcmp(a->tok + row * a->tok_stride, b->tok + row * b->tok_stride,
                   a->n[row] * sizeof *a->tok) != 0 ||
            memcmp(a->best + row * k->stride, b->best + row * k->stride, n * sizeof *a->best) !=
                0 ||
            memcmp(a->y + row * a->y_stride, b->y + row * b->y_stride,
                   k->s->n_head * k->s->d1 * sizeof *a->y) != 0)
            chk_fail(t, "%s: other results in row %zu", why, row);
    }
}

static void one_case(chk *t, const kase *k)
{
    const result z = run(t, k, k->n_row);
    uint64_t want[4] = { 0 };
    for (size_t row = 0; row < k->n_row; row++) {
        bool *chosen = chk_raw(t, k->stride * sizeof *chosen);
        size_t n = 0, over = 0;
        memset(chosen, 0, k->stride * sizeof *chosen);
        if (chooses(k, row)) {
            check_scores(t, k, &z, row);
            n = choose(t, k, &z, row, chosen, &over);
            want[0] += n_page_of(k, row) * NB_PAGE_TOK;
            want[3] += 2 * n_page_of(k, row) * k->r.page_bytes;
        }
        want[1] += n;
        want[2] += over;
        check_choice(t, k, &z, row, chosen, n);
        if (k->row_chunk[row] != UINT32_MAX) check_result(t, k, &z, row, chosen);
    }
    if (memcmp(want, z.count, sizeof want) != 0)
        chk_fail(t, "counts %llu %llu %llu instead of %llu %llu %llu",
                 (unsigned long long)z.count[0], (unsigned long long)z.count[1],
                 (unsigned long long)z.count[2], (unsigned long long)want[0],
                 (unsigned long long)want[1], (unsigned long long)want[2]);
    const result alone = run(t, k, 1);
    same(t, "alone", k, &z, &alone, UINT32_MAX);
    kase bad = *k; /* NaN in the long sequence's query */
    const size_t n_q = k->n_row * k->q_stride;
    bad.q = chk_raw(t, n_q * sizeof *bad.q);
    memcpy(bad.q, k->q, n_q * sizeof *bad.q);
    for (size_t h = 0; h < k->s->n_head; h++) bad.q[h * k->q_head] = NAN;
    const result nan = run(t, &bad, k->n_row);
    same(t, "NaN in another query", k, &z, &nan, 0);
    if (nan.n[0] != 0) chk_fail(t, "a query of NaN chooses tokens");
}

static void test(chk *t, const chk_row *row)
{
    static const nb_kv_type types[] = { NB_KV_NVFP4, NB_KV_IF4 };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (unsigned extra = 0; extra < 4; extra++)
            for (size_t j = 0; j < NB_COUNT(types); j++) {
                static kase k;
                const shape *s = &shapes[i];
                if (s->device && chk_gpu_info(t)->emulated) continue;
                if (chk_gpu_info(t)->emulated && (i + extra + j) % 2 && s->d1 < 512) continue;
                if (s->d1 == 512 && extra % 3) continue;
                if (chk_case(t, "%s %zu+%zu, %zu heads, %zu pages, tau %g, %g of the tokens%s%s",
                             nb_kv_type_name(types[j]), s->d1, s->d2, s->n_head, s->n_page, s->tau,
                             s->fraction, extra & 1 ? ", outliers" : "",
                             extra & 2 ? ", fixed" : "") &&
                    make_case(t, &k, s, types[j], extra))
                    one_case(t, &k);
            }
}

const chk_op chk_cuda_thrift = { "cuda_thrift", chk_gpu_row, test, NULL, NULL };
