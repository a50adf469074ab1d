/* calibrate_measure.c - the attention of a captured layer from a cache kept in one way or another.
 *
 * The rows are transformed, rounded to BF16 and encoded page by page, as the engine stores them;
 * queries meet decoded pages, and BF16 rows in their own.  Attention itself runs in float through
 * the engine's kernels, page by page for all queries at once: its error (some 1e-6) is far below
 * that of any record, and it is fast.  What all candidates are compared with is in double.
 *
 * With c' = H P D (c - mean): q'[i] = (H P D^-1 q)[i] gives the same scores but for a shift that
 * all tokens share, and the weighted sum u' goes back as D^-1 P^T H u' + mean. */
#include <math.h>
#include <string.h>

#include "calibrate/calibrate_internal.h"
#include "num/bf16.h"
#include "num/hadamard.h"
#include "quality/attn_math.h"

static const char no_memory[] = "out of memory for measuring a window of %zu tokens";

typedef struct window {
    const calib_bench *b;
    const nb_capture_layer *l;
    const calib_layer_stats *s;
    size_t n0, n_page, d_sum; /* values of segment 0; whole pages; width of a weighted sum */
    double *ref;              /* [n_q][n_head][d_sum] */
    float *q, *rows, *dec;    /* [n_q][n_head * d_q]; [n_tok][n_values] twice */
    uint16_t *half;           /* [n_tok][n_values] */
    float *o, *m, *lse;       /* [n_q][n_head * d_sum], [n_q][n_head] twice */
    float *du, *dout;         /* [n_q][n_head * d_sum], [n_q][n_head * d_out] */
    uint8_t *page;
    double *scores;
    size_t d_out;
    double *ref_sq; /* [n_q][n_head] of this window */
} window;

void nb_calib_bench_init(calib_bench *b)
{
    *b = (calib_bench){ 0 };
    const nb_caps caps = strstr(nb_cpu_levels(), "avx2") ? NB_CAP_AVX2 : 0;
    const nb_attn_variant *a = nb_attn_variants;
    const nb_linear_variant *v = nb_linear_variants;
    b->codec = nb_kv_codec_variants;
    while (a->need & ~caps) a++; /* the last row of each table needs nothing */
    while (v->type != NB_W_F32 || (v->need & ~caps)) v++;
    while (b->codec->need & ~caps) b->codec++;
    b->attn = a->fn;
    b->linear = v->fn;
}

void nb_calib_bench_deinit(calib_bench *b)
{
    nb_arena_deinit(&b->arena);
}

static nb_status allocate(calib_bench *b, window *w, size_t page_bytes)
{
    const nb_capture_layer *l = w->l;
    const size_t n_row = l->n_tok * l->n_values, n_qh = l->n_q * l->n_head;
    nb_arena *a = &b->arena;
    w->ref = nb_arena_array(a, n_qh * w->d_sum, sizeof *w->ref);
    w->q = nb_arena_array(a, n_qh * l->d_q, sizeof *w->q);
    w->rows = nb_arena_array(a, n_row, sizeof *w->rows);
    w->dec = nb_arena_array(a, n_row, sizeof *w->dec);
    w->half = nb_arena_array(a, n_row, sizeof *w->half);
    w->o = nb_arena_array(a, n_qh * w->d_sum, sizeof *w->o);
    w->du = nb_arena_array(a, n_qh * w->d_sum, sizeof *w->du);
    w->dout = nb_arena_array(a, n_qh * w->d_out, sizeof *w->dout);
    w->m = nb_arena_array(a, n_qh, sizeof *w->m);
    w->lse = nb_arena_array(a, n_qh, sizeof *w->lse);
    w->ref_sq = nb_arena_array(a, n_qh, sizeof *w->ref_sq);
    w->scores = nb_arena_array(a, l->n_head * l->n_tok, sizeof *w->scores);
    w->page = nb_arena_alloc(a, page_bytes);
    return w->ref && w->q && w->rows && w->dec && w->half && w->o && w->du && w->dout && w->m &&
                   w->lse && w->ref_sq && w->scores && w->page
               ? NB_OK
               : NB_ERR_NOMEM;
}

/* ---- outputs and their squares ---- */

/* |o|^2 of each query and head, for weighted sums x [n_q][n_head][d_sum]. */
static void squares(const window *w, const float *x, double *out)
{
    const nb_capture_layer *l = w->l;
    const float *y = x;
    if (l->w_uv) {
        const nb_weight uv = {
            .data = l->w_uv, .n_row = l->n_head * l->d_v, .n_col = w->d_sum, .type = NB_W_F32
        };
        for (size_t h = 0; h < l->n_head; h++)
            w->b->linear(&(nb_linear_args){ .y = w->dout + h * l->d_v,
                                            .x = x + h * w->d_sum,
                                            .w = uv,
                                            .n_tok = l->n_q,
                                            .row_begin = h * l->d_v,
                                            .row_end = (h + 1) * l->d_v,
                                            .x_stride = l->n_head * w->d_sum,
                                            .y_stride = l->n_head * l->d_v });
        y = w->dout;
    }
    for (size_t i = 0; i < l->n_q * l->n_head; i++) {
        out[i] = 0;
        for (size_t d = 0; d < w->d_out; d++)
            out[i] += (double)y[i * w->d_out + d] * (double)y[i * w->d_out + d];
    }
}

static void reference(const window *w)
{
    const nb_capture_layer *l = w->l;
    for (size_t i = 0; i < l->n_q; i++) {
        const size_t n = l->pos[i] + 1;
        double *u = w->ref + i * l->n_head * w->d_sum;
        nb_attn_scores(l, l->q + i * l->n_head * l->d_q, l->kv, n, w->scores, n);
        for (size_t h = 0; h < l->n_head; h++) {
            double max, sum;
            nb_attn_exp(w->scores + h * n, n, &max, &sum);
            for (size_t t = 0; t < n; t++) w->scores[h * n + t] /= sum;
        }
        nb_attn_add(l, w->scores, n, l->kv, n, u);
    }
    for (size_t k = 0; k < l->n_q * l->n_head * w->d_sum; k++) w->du[k] = (float)w->ref[k];
    squares(w, w->du, w->ref_sq);
}

/* ---- the transform ---- */

static float power(int k) /* 2^k, |k| <= NB_KV_SCALE_LOG2_MAX */
{
    return k >= 0 ? (float)(1 << k) : 1.0f / (float)(1 << -k);
}

/* y = H P D^sign (x - mean), mean NULL: 0. */
static void forward(const window *w, calib_transform t, int sign, const float *mean, const float *x,
                    float *y)
{
    const bool move = t.parts & CALIB_EQUALIZE;
    for (size_t i = 0; i < w->n0; i++) {
        const size_t c = move ? w->s->perm[t.scaling][i] : i;
        const float v = mean ? x[c] - mean[c] : x[c];
        y[i] = move ? v * power(sign * w->s->scale_log2[t.scaling][c]) : v;
    }
    if (t.parts & CALIB_HADAMARD) nb_hadamard(y, w->n0, w->s->hadamard);
}

static void transform(const window *w, calib_transform t)
{
    const nb_capture_layer *l = w->l;
    const float *mean = t.parts & CALIB_CENTER ? w->s->mean : NULL;
    for (size_t k = 0; k < l->n_tok; k++) {
        const float *x = l->kv + k * l->n_values;
        float *y = w->rows + k * l->n_values;
        memcpy(y + w->n0, x + w->n0, (l->n_values - w->n0) * sizeof *y);
        forward(w, t, 1, mean, x, y);
        for (size_t i = 0; i < l->n_values; i++) {
            w->half[k * l->n_values + i] = nb_bf16_from_f32(y[i]);
            y[i] = nb_bf16_to_f32(w->half[k * l->n_values + i]);
        }
    }
    for (size_t k = 0; k < l->n_q * l->n_head; k++) {
        const float *x = l->q + k * l->d_q;
        float *y = w->q + k * l->d_q;
        memcpy(y, x, l->d_q * sizeof *y);
        if (l->is_mla) forward(w, t, -1, NULL, x, y);
    }
}

/* du = D^-1 P^T H u' + mean - ref, for all weighted sums. */
static void differences(const window *w, calib_transform t)
{
    const size_t n = w->l->n_q * w->l->n_head, d = w->d_sum;
    const bool move = t.parts & CALIB_EQUALIZE;
    for (size_t k = 0; k < n; k++) {
        float *u = w->o + k * d, *du = w->du + k * d;
        const double *ref = w->ref + k * d;
        if (t.parts & CALIB_HADAMARD) nb_hadamard(u, d, w->s->hadamard);
        for (size_t i = 0; i < d; i++) {
            const size_t c = move ? w->s->perm[t.scaling][i] : i;
            double v = (double)u[i];
            if (move) v *= (double)power(-w->s->scale_log2[t.scaling][c]);
            if (t.parts & CALIB_CENTER) v += (double)w->s->mean[c];
            du[c] = (float)(v - ref[c]);
        }
    }
}

/* ---- one record ---- */

static nb_status through_record(const window *w, const nb_record *r, nb_error *err)
{
    const size_t n = w->l->n_values;
    for (size_t p = 0; p < w->n_page; p++) {
        const uint16_t *x = w->half + p * NB_PAGE_TOK * n;
        float *y = w->dec + p * NB_PAGE_TOK * n;
        const nb_status st = w->b->codec->encode(r, w->page, x, n);
        if (st != NB_OK)
            return nb_fail(err, st, "layer %zu: a value to be cached is not finite", w->l->layer);
        for (size_t s = 0; s < r->n_seg; s++)
            w->b->codec->decode(r, w->page, s, 0, NB_PAGE_TOK, y + r->seg[s].first, n);
    }
    return NB_OK;
}

static void attend(const window *w)
{
    const nb_capture_layer *l = w->l;
    const size_t n = l->n_values, nh = l->n_head;
    nb_attn_args a = {
        .head_end = nh,
        .group = nh / l->n_kv_head,
        .d1 = l->dim[0],
        .d2 = l->is_mla ? l->dim[1] : 0,
        .d_v = w->d_sum,
        .q_q_stride = nh * l->d_q,
        .o_q_stride = nh * w->d_sum,
        .ml_q_stride = nh,
        .k1_stride = n,
        .k1_head = l->is_mla ? 0 : l->dim[0],
        .k2_stride = n,
        .v_stride = n,
        .v_head = l->is_mla ? 0 : l->dim[1],
        .scale = l->scale,
    };
    for (size_t i = 0; i < l->n_q * nh; i++) {
        w->m[i] = -INFINITY;
        w->lse[i] = 0;
    }
    for (size_t p = 0, i = 0; i < l->n_q; p++) {
        const float *own = w->rows + p * NB_PAGE_TOK * n, *dec = w->dec + p * NB_PAGE_TOK * n;
        for (; i < l->n_q && l->pos[i] / NB_PAGE_TOK <= p; i++) { /* queries of this page */
            a.o = w->o + i * a.o_q_stride;
            a.m = w->m + i * nh;
            a.l = w->lse + i * nh;
            a.q = w->q + i * a.q_q_stride;
            a.n_q = 1;
            a.n_kv = a.vis0 = l->pos[i] % NB_PAGE_TOK + 1;
            a.k1 = own;
            a.k2 = own + w->n0;
            a.v = l->is_mla ? own : own + w->n0;
            w->b->attn(&a);
        }
        a.n_q = l->n_q - i; /* later ones see the page as it was stored */
        if (!a.n_q) break;
        a.o = w->o + i * a.o_q_stride;
        a.m = w->m + i * nh;
        a.l = w->lse + i * nh;
        a.q = w->q + i * a.q_q_stride;
        a.n_kv = a.vis0 = NB_PAGE_TOK;
        a.k1 = dec;
        a.k2 = dec + w->n0;
        a.v = l->is_mla ? dec : dec + w->n0;
        w->b->attn(&a);
    }
    nb_attn_finish(w->o, w->o, w->lse, l->n_q * nh, w->d_sum);
}

static void account(const window *w, calib_candidate *c, double *err_sq, size_t first_query)
{
    const size_t nq = w->l->n_q, nh = w->l->n_head;
    squares(w, w->du, err_sq);
    for (size_t h = 0; h < nh; h++) {
        double unit = 0;
        for (size_t i = 0; i < nq; i++) unit += w->ref_sq[i * nh + h];
        for (size_t i = 0; i < nq; i++) {
            const double e = err_sq[i * nh + h];
            c->err_sq[h] += e;
            if (unit > 0) c->loss[first_query + i] += e * (double)nq / unit / (double)nh;
        }
    }
}

nb_status nb_calib_measure(calib_bench *b, const nb_capture_layer *l, const calib_layer_stats *s,
                           calib_candidate *c, size_t n_cand, size_t first_query, double *ref_sq,
                           nb_error *err)
{
    size_t page_bytes = 0;
    for (size_t i = 0; i < n_cand; i++)
        if (c[i].layout.page_bytes > page_bytes) page_bytes = c[i].layout.page_bytes;
    window w = { .b = b,
                 .l = l,
                 .s = s,
                 .n0 = l->n_vec[0] * l->dim[0],
                 .n_page = l->n_tok / NB_PAGE_TOK,
                 .d_sum = nb_attn_sum_width(l),
                 .d_out = nb_attn_out_width(l) };
    nb_arena_reset(&b->arena);
    double *sq = nb_arena_array(&b->arena, l->n_q * l->n_head, sizeof *sq);
    if (!sq || allocate(b, &w, page_bytes) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, no_memory, l->n_tok);
    reference(&w);
    for (size_t i = 0; i < l->n_q * l->n_head; i++) ref_sq[i % l->n_head] += w.ref_sq[i];
    for (size_t i = 0; i < n_cand; i++) {
        if (i == 0 || memcmp(&c[i].t, &c[i - 1].t, sizeof c[i].t) != 0) transform(&w, c[i].t);
        NB_TRY(through_record(&w, &c[i].layout, err));
        attend(&w);
        differences(&w, c[i].t);
        account(&w, &c[i], sq, first_query);
    }
    return NB_OK;
}
