/* calibrate_stats.c - statistics of what a layer caches, and the scalings that follow from them.
 *
 * The importance M of a latent channel says what a unit of error in it does to a head's output, in
 * units of the head's own spread, summed over heads h:
 *   M_c = sum_h scale^2 E[q~_hc^2] + W_hc / V_h,   W_hc = sum_d w_uv[h][d][c]^2,
 *                                                  V_h = sum_c W_hc sd_c^2
 * The first term is the error of a score times the spread V_h of the values that it weighs, the
 * second the error of the value itself; both carry the same sum of squared attention weights, and
 * are divided by V_h.  With sum_c M_c sd_c^2 d_c^2 / d_c^2 to be made small for an encoder whose
 * error is the same for all channels after D, d_c = (M_c / sd_c^2)^(1/4). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/calibrate_internal.h"

enum { HADAMARD_MIN = 16, HADAMARD_MAX = 512 };

static nb_status allocate(calib_stats *s, const nb_capture_layer *l, nb_arena *arena)
{
    s->n0 = l->n_vec[0] * l->dim[0];
    s->sum = nb_arena_array(arena, s->n0, sizeof *s->sum);
    s->sq = nb_arena_array(arena, s->n0, sizeof *s->sq);
    s->amax = nb_arena_array(arena, s->n0, sizeof *s->amax);
    if (!s->sum || !s->sq || !s->amax) return NB_ERR_NOMEM;
    s->scale = (double)l->scale;
    if (!l->is_mla) return NB_OK;
    s->n_head = l->n_head;
    s->n_pair = l->dim[1] / 2;
    s->pair_sum = nb_arena_array(arena, s->n_pair, sizeof *s->pair_sum);
    s->pair_max = nb_arena_array(arena, s->n_pair, sizeof *s->pair_max);
    s->pair_sq = nb_arena_array(arena, s->n_pair, sizeof *s->pair_sq);
    s->interleaved = l->rope_interleaved;
    if (!s->pair_sq) return NB_ERR_NOMEM;
    s->q_sq = nb_arena_array(arena, s->n_head * s->n0, sizeof *s->q_sq);
    s->w_sq = nb_arena_array(arena, s->n_head * s->n0, sizeof *s->w_sq);
    if (!s->pair_sum || !s->pair_max || !s->q_sq || !s->w_sq) return NB_ERR_NOMEM;
    for (size_t h = 0; h < s->n_head; h++)
        for (size_t d = 0; d < l->d_v; d++)
            for (size_t c = 0; c < s->n0; c++) {
                const double w = (double)l->w_uv[(h * l->d_v + d) * s->n0 + c];
                s->w_sq[h * s->n0 + c] += w * w;
            }
    return NB_OK;
}

static float radius(const calib_stats *s, const float *k, size_t j)
{
    return s->interleaved ? hypotf(k[2 * j], k[2 * j + 1]) : hypotf(k[j], k[j + s->n_pair]);
}

static void add_token(calib_stats *s, const float *x)
{
    for (size_t c = 0; c < s->n0; c++) {
        const double v = (double)x[c];
        s->sum[c] += v;
        s->sq[c] += v * v;
        if (fabsf(x[c]) > s->amax[c]) s->amax[c] = fabsf(x[c]);
        if (fabsf(x[c]) > s->token_amax) s->token_amax = fabsf(x[c]);
    }
    for (size_t j = 0; j < s->n_pair; j++) {
        const float r = radius(s, x + s->n0, j);
        s->pair_sum[j] += (double)r;
        s->pair_sq[j] += (double)r * (double)r;
        if (r > s->pair_max[j]) s->pair_max[j] = r;
    }
}

nb_status nb_calib_stats_add(calib_stats *s, const nb_capture_layer *l, nb_arena *arena)
{
    if (!s->sum) NB_TRY(allocate(s, l, arena));
    for (size_t t = 0; t < l->n_tok; t++) add_token(s, l->kv + t * l->n_values);
    s->n_tok += l->n_tok;
    for (size_t i = 0; i < l->n_q * s->n_head; i++) {
        const float *q = l->q + i * l->d_q;
        double *to = s->q_sq + i % s->n_head * s->n0;
        for (size_t c = 0; c < s->n0; c++) to[c] += (double)q[c] * (double)q[c];
    }
    s->n_q += l->n_q;
    return NB_OK;
}

/* ---- scalings ---- */

static void importance(const calib_stats *s, const float *sd, double *m)
{
    const double q = s->n_q ? s->scale * s->scale / (double)s->n_q : 0;
    for (size_t h = 0; h < s->n_head; h++) {
        const double *w = s->w_sq + h * s->n0, *q_sq = s->q_sq + h * s->n0;
        double v = 0;
        for (size_t c = 0; c < s->n0; c++) v += w[c] * (double)sd[c] * (double)sd[c];
        for (size_t c = 0; c < s->n0; c++) m[c] += q * q_sq[c] + (v > 0 ? w[c] / v : 0);
    }
}

/* log2 of d before it is normalised; NAN: the channel says nothing (it does not vary). */
static double wish(double sd, double m, calib_scaling how)
{
    if (!(sd > 0)) return NAN;
    switch (how) {
    case CALIB_BY_SD: return -log2(sd);
    case CALIB_BY_ROOT: return -0.5 * log2(sd);
    case CALIB_BY_IMPORTANCE: return m > 0 ? 0.25 * log2(m) - 0.5 * log2(sd) : NAN;
    default: return 0;
    }
}

typedef struct channel {
    double size;
    uint16_t c;
} channel;

static int by_size(const void *a, const void *b)
{
    const channel *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->c < y->c ? -1 : x->c > y->c;
}

static nb_status scaling(const calib_stats *s, const float *sd, const double *m, calib_scaling how,
                         nb_arena *arena, int8_t *scale, uint16_t *perm)
{
    double *d = nb_arena_array(arena, s->n0, sizeof *d), sum = 0;
    channel *order = nb_arena_array(arena, s->n0, sizeof *order);
    size_t n = 0;
    if (!d || !order) return NB_ERR_NOMEM;
    for (size_t c = 0; c < s->n0; c++) {
        d[c] = wish((double)sd[c], m[c], how);
        if (isnan(d[c])) continue;
        sum += d[c];
        n++;
    }
    for (size_t c = 0; c < s->n0; c++) {
        double k = isnan(d[c]) ? 0 : nearbyint(d[c] - sum / (double)n);
        if (k > NB_KV_SCALE_LOG2_MAX) k = NB_KV_SCALE_LOG2_MAX;
        if (k < -NB_KV_SCALE_LOG2_MAX) k = -NB_KV_SCALE_LOG2_MAX;
        scale[c] = (int8_t)k;
        order[c] = (channel){ ldexp((double)sd[c], (int)k), (uint16_t)c };
    }
    qsort(order, s->n0, sizeof *order, by_size);
    for (size_t c = 0; c < s->n0; c++) perm[c] = order[c].c;
    return NB_OK;
}

/* ---- pairs of the rope key ---- */

/* By size alone.  Weights from queries would not help: what large pairs cost is the scale that all
 * values of an 8-bit integer key share, however little queries look at the pairs themselves. */
static nb_status rank_pairs(const calib_stats *s, nb_arena *arena, uint16_t **out)
{
    channel *order = nb_arena_array(arena, s->n_pair, sizeof *order);
    uint16_t *pair = nb_arena_array(arena, s->n_pair, sizeof *pair);
    if (!order || !pair) return NB_ERR_NOMEM;
    for (size_t j = 0; j < s->n_pair; j++) order[j] = (channel){ s->pair_sq[j], (uint16_t)j };
    qsort(order, s->n_pair, sizeof *order, by_size);
    for (size_t j = 0; j < s->n_pair; j++) pair[j] = order[j].c;
    *out = pair;
    return NB_OK;
}

size_t nb_calib_rope_outliers(const calib_stats *s, const calib_layer_stats *y, size_t n,
                              uint16_t out[NB_MAX_OUTLIER])
{
    size_t k = 0;
    if (n > s->n_pair) n = s->n_pair;
    for (size_t c = 0; c < 2 * s->n_pair && k < NB_MAX_OUTLIER; c++) {
        const size_t j = s->interleaved ? c / 2 : c % s->n_pair;
        for (size_t i = 0; i < n; i++)
            if (y->pair[i] == j) out[k++] = (uint16_t)c;
    }
    return k;
}

nb_status nb_calib_stats_finish(const calib_stats *s, bool is_mla, nb_arena *arena,
                                calib_layer_stats *out)
{
    const double n = (double)s->n_tok;
    out->mean = nb_arena_array(arena, s->n0, sizeof *out->mean);
    out->sd = nb_arena_array(arena, s->n0, sizeof *out->sd);
    if (!out->mean || !out->sd) return NB_ERR_NOMEM;
    for (size_t c = 0; c < s->n0; c++) {
        const double mean = s->sum[c] / n, var = s->sq[c] / n - mean * mean;
        out->mean[c] = (float)mean;
        out->sd[c] = (float)sqrt(var > 0 ? var : 0);
    }
    if (!is_mla) return NB_OK;
    out->pair_mean = nb_arena_array(arena, s->n_pair, sizeof *out->pair_mean);
    double *m = nb_arena_array(arena, s->n0, sizeof *m); /* zeroed */
    if (!out->pair_mean || !m) return NB_ERR_NOMEM;
    importance(s, out->sd, m);
    for (size_t j = 0; j < s->n_pair; j++) out->pair_mean[j] = (float)(s->pair_sum[j] / n);
    NB_TRY(rank_pairs(s, arena, &out->pair));
    for (size_t k = 0; k < CALIB_SCALINGS; k++) {
        out->scale_log2[k] = nb_arena_array(arena, s->n0, sizeof *out->scale_log2[k]);
        out->perm[k] = nb_arena_array(arena, s->n0, sizeof *out->perm[k]);
        if (!out->scale_log2[k] || !out->perm[k]) return NB_ERR_NOMEM;
        NB_TRY(scaling(s, out->sd, m, (calib_scaling)k, arena, out->scale_log2[k], out->perm[k]));
    }
    out->hadamard = HADAMARD_MAX;
    while (s->n0 % out->hadamard) out->hadamard /= 2;
    if (out->hadamard < HADAMARD_MIN) out->hadamard = 0;
    return NB_OK;
}
