/* record_fp4.c - the records nvfp4, if4 and mxfp4: E2M1 nibbles (if4 also uniform steps) with a scale per block. */
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/int4.h"
#include "num/num_internal.h"

/* ---- encoding ---- */

/* A grid of eight magnitudes: the steps between them and the midpoints. */
typedef struct grid {
    float step[7], bound[7];
} grid;
static const grid grid_fp = { { .5f, .5f, .5f, .5f, 1, 1, 2 },
                              { .25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f } };
static const grid grid_int = { { 1, 1, 1, 1, 1, 1, 1 },
                               { .5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f } };

/* One block; absent values are 0 and then add exactly nothing to an error. */
typedef struct block {
    float ax[NB_GROUP_NV]; /* |x| in the normalised domain */
    float best;            /* error of the best candidate so far; < 0: none */
    uint8_t sf;            /* its scale byte                */
} block;

/* Sum of squared errors of the nearest grid points at scale s > 0. */
static float block_error(const float *ax, const grid *g, float s)
{
    float q[NB_GROUP_NV] = { 0 }, e = 0;
    for (unsigned j = 0; j < 7; j++) {
        const float b = s * g->bound[j], step = s * g->step[j];
        if (j & 1) /* a tie goes to the even magnitude j + 1 */
            for (unsigned i = 0; i < NB_GROUP_NV; i++) q[i] += ax[i] >= b ? step : 0;
        else
            for (unsigned i = 0; i < NB_GROUP_NV; i++) q[i] += ax[i] > b ? step : 0;
    }
    for (unsigned i = 0; i < NB_GROUP_NV; i++) q[i] = (ax[i] - q[i]) * (ax[i] - q[i]);
    for (unsigned i = 0; i < NB_GROUP_NV; i++) e += q[i];
    return e;
}

/* Indices of the nearest grid points at scale s > 0. */
static void block_index(const float *ax, const grid *g, float s, uint32_t *k)
{
    for (unsigned i = 0; i < NB_GROUP_NV; i++) k[i] = 0;
    for (unsigned j = 0; j < 7; j++) {
        const float b = s * g->bound[j];
        if (j & 1)
            for (unsigned i = 0; i < NB_GROUP_NV; i++) k[i] += ax[i] >= b;
        else
            for (unsigned i = 0; i < NB_GROUP_NV; i++) k[i] += ax[i] > b;
    }
}

/* Tries scale code c (0..126): strictly less error replaces. */
static void try_scale(block *b, int c, bool is_int)
{
    float e = 0;
    if (c == 0)
        for (unsigned i = 0; i < NB_GROUP_NV; i++) e += b->ax[i] * b->ax[i];
    else
        e = block_error(b->ax, is_int ? &grid_int : &grid_fp, nb_e4m3_value[c]);
    if (b->best < 0 || e < b->best) {
        b->best = e;
        b->sf = (uint8_t)(c | (is_int ? 0x80 : 0));
    }
}

static void search_scale(block *b, int centre, const signed char *delta, size_t n, bool is_int)
{
    for (size_t i = 0; i < n; i++) {
        const int c = centre + delta[i];
        if (c >= 1 && c <= NB_E4M3_MAX) try_scale(b, c, is_int);
    }
}

/* a > 0: the block's largest magnitude in the normalised domain. */
static void choose_scale(block *b, float a, nb_kv_mode mode, bool with_int)
{
    static const signed char fp[] = { 0, -1, 1, -2, 2, -3, 3, 4, 5, 6 }, in[] = { 0, -1, 1 };
    const int c6 = nb_e4m3_quotient(a, 6);
    b->best = -1;
    b->sf = 0;
    if (mode == NB_KV_SEARCH) {
        search_scale(b, c6, fp, sizeof fp, false);
        if (with_int) search_scale(b, nb_e4m3_quotient(a, 7), in, sizeof in, true);
        return;
    }
    try_scale(b, c6, false);
    if (mode == NB_KV_4OVER6) try_scale(b, nb_e4m3_quotient(a, 4), false);
    if (with_int) try_scale(b, nb_e4m3_quotient(a, 7), true);
}

/* n <= 16 values into n nibbles; -0 is never written, nor anything at scale 0. */
static void put_codes(const uint16_t *x, const float *ax, size_t n, const grid *g, float s,
                      uint8_t *codes)
{
    uint32_t k[NB_GROUP_NV];
    if (s == 0) return;
    block_index(ax, g, s, k);
    for (size_t i = 0; i < n; i++)
        nb_nibble_or(codes, i, (uint8_t)(k[i] | (k[i] != 0 ? x[i] >> 12 & 8 : 0)));
}

static void encode_nv(const nb_enc_vec *v)
{
    const nb_record_seg *g = v->g;
    const uint16_t a = nb_vec_amax_bits(v);
    if (a == 0) return;
    *v->outer = nb_outer_byte(g, a, 192, 10);
    for (size_t k = 0; k < g->n_group; k++) {
        uint16_t buf[NB_GROUP_NV];
        const size_t at = k * NB_GROUP_NV;
        const size_t n = g->dim - at < NB_GROUP_NV ? g->dim - at : NB_GROUP_NV;
        const uint16_t *x = nb_vec_values(v, at, n, buf), ga = nb_amax_bits(x, n);
        if (ga == 0) continue;
        block b = { .best = -1 };
        for (size_t i = 0; i < n; i++) b.ax[i] = nb_seg_mag(g, x[i], *v->outer);
        choose_scale(&b, nb_seg_mag(g, ga, *v->outer), v->mode, nb_seg_traits[g->fmt]->flagged);
        v->scale[k] = b.sf;
        put_codes(x, b.ax, n, b.sf & 0x80 ? &grid_int : &grid_fp, nb_e4m3_value[b.sf & 0x7f],
                  v->codes + at / 2);
    }
}

static void encode_mx(const nb_enc_vec *v)
{
    const nb_record_seg *g = v->g;
    for (size_t k = 0; k < g->n_group; k++) {
        uint16_t buf[NB_GROUP_MX];
        const size_t at = k * NB_GROUP_MX;
        const size_t n = g->dim - at < NB_GROUP_MX ? g->dim - at : NB_GROUP_MX;
        const uint16_t *x = nb_vec_values(v, at, n, buf), a = nb_amax_bits(x, n);
        if (a == 0) continue;
        v->scale[k] = nb_ue8m0_from_exp(nb_bf16_ceil_log2(a, 192) - 2, NB_OUTER_MIN, NB_OUTER_MAX);
        for (size_t h = 0; h < n; h += NB_GROUP_NV) {
            float ax[NB_GROUP_NV] = { 0 };
            const size_t m = n - h < NB_GROUP_NV ? n - h : NB_GROUP_NV;
            for (size_t i = 0; i < m; i++)
                ax[i] = nb_bf16_mag_scaled(x[h + i], NB_UE8M0_ONE - v->scale[k]);
            put_codes(x + h, ax, m, &grid_fp, 1, v->codes + (at + h) / 2);
        }
    }
}

/* ---- decoding ---- */

/* Both grids of a block; the second is that of IF4's uniform blocks. */
static const float code_value[2][16] = {
    { 0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6 },
    { 0, 1, 2, 3, 4, 5, 6, 7, -0.0f, -1, -2, -3, -4, -5, -6, -7 },
};

/* (code * block scale) * outer scale, in this order: the first product cannot
 * overflow, so that a zero code stays zero. */
static void decode_nv(const nb_dec_vec *v, float *out)
{
    const nb_record_seg *g = v->g;
    const bool flagged = nb_seg_traits[g->fmt]->flagged;
    const float o = nb_seg_factor(g, v->outer);
    if (v->outer == 0) {
        memset(out, 0, g->dim * sizeof *out);
        return;
    }
    for (size_t i = 0; i < g->dim; i++) {
        const uint8_t b = v->scale[i / NB_GROUP_NV];
        const float *value = code_value[flagged && b & 0x80];
        out[i] = nb_seg_clip(value[nb_nibble_get(v->codes, i)] * nb_e4m3_value[b & 0x7f] * o);
    }
}

static void decode_mx(const nb_dec_vec *v, float *out)
{
    for (size_t i = 0; i < v->g->dim; i++) {
        const uint8_t b = v->scale[i / NB_GROUP_MX];
        out[i] =
            b ? nb_seg_clip(code_value[0][nb_nibble_get(v->codes, i)] * nb_ue8m0_to_f32(b)) : 0;
    }
}

const nb_seg_trait nb_seg_nvfp4 = {
    .name = "nvfp4",
    .code = NB_NUM_4BIT,
    .scale = NB_NUM_E4M3,
    .group = NB_GROUP_NV,
    .outer = true,
    .exact_bf16 = true,
    .fixed_top = 2688, /* 6 * 448 */
    .encode_vec = encode_nv,
    .decode_vec = decode_nv,
};

const nb_seg_trait nb_seg_if4 = {
    .name = "if4",
    .code = NB_NUM_4BIT,
    .scale = NB_NUM_E4M3,
    .group = NB_GROUP_NV,
    .flagged = true,
    .outer = true,
    .exact_bf16 = true,
    .encode_vec = encode_nv,
    .decode_vec = decode_nv,
};

const nb_seg_trait nb_seg_mxfp4 = {
    .name = "mxfp4",
    .code = NB_NUM_4BIT,
    .scale = NB_NUM_UE8M0,
    .group = NB_GROUP_MX,
    .exact_bf16 = true,
    .encode_vec = encode_mx,
    .decode_vec = decode_mx,
};

enum { ALL_MODES = 1 << NB_KV_BASIC | 1 << NB_KV_4OVER6 | 1 << NB_KV_SEARCH };

const nb_kv_trait nb_kv_nvfp4 = {
    .fmt = { [NB_ROLE_LATENT] = NB_SEG_NVFP4,
             [NB_ROLE_K] = NB_SEG_NVFP4,
             [NB_ROLE_V] = NB_SEG_NVFP4 },
    .modes = ALL_MODES,
    .mode = NB_KV_4OVER6,
};

const nb_kv_trait nb_kv_if4 = {
    .fmt = { [NB_ROLE_LATENT] = NB_SEG_IF4, [NB_ROLE_K] = NB_SEG_IF4, [NB_ROLE_V] = NB_SEG_IF4 },
    .modes = ALL_MODES,
    .mode = NB_KV_SEARCH,
};

const nb_kv_trait nb_kv_mxfp4 = {
    .fmt = { [NB_ROLE_LATENT] = NB_SEG_MXFP4,
             [NB_ROLE_K] = NB_SEG_MXFP4,
             [NB_ROLE_V] = NB_SEG_MXFP4 },
};
