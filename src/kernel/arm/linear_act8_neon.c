/* linear_act8_neon.c - activations in 8 bits (linear_act8.h) and INT8 weights by SDOT.
 *
 * SDOT multiplies signed bytes, so weights stay as they are and z is not read.  A tile is 4 rows x up to 4 tokens: of each
 * group of 32 columns 8 registers of weights, 2 of a token's digits; the lanes of 4 rows are joined by 3 pairwise additions,
 * so that lane i has row i: 8 SDOT and 5 other operations for 128 products.  Groups are added in order, as in every variant.
 * Not timed: there was no Arm machine to do it on. */
#include <math.h>

#include "kernel/arm/vec_neon.h"
#include "kernel/linear/linear_act8.h"

enum { ROWS = 4, TOK = 4, TOKS = 32, G = NB_ACT8_GROUP };
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

/* ---- the pack ---- */

/* 32 values. */
static void pack_group(const float *x, int8_t *q, float *s, int32_t *z)
{
    const uint32x4_t mag = vdupq_n_u32(0x7fffffff);
    uint32x4_t top = vdupq_n_u32(0);
    float32x4_t v[8];
    UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        top = vmaxq_u32(top, vandq_u32(mag, vreinterpretq_u32_f32(v[i])));
    }
    const uint32_t bits = vmaxvq_u32(top); /* from 0x7f800000 on not finite */
    float most;
    memcpy(&most, &bits, sizeof most);
    *z = 0;
    if (bits >= 0x7f800000u || most < NB_ACT8_MIN) {
        memset(q, 0, G);
        *s = bits >= 0x7f800000u ? NAN : 0;
        return;
    }
    const float by = NB_ACT8_MAX / most;
    int16x8_t sum = vdupq_n_s16(0);
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        const int16x8_t w = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[i], by))),
                                         vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[i + 1], by))));
        sum = vaddq_s16(sum, w);
        vst1_s8(q + 4 * i, vmovn_s16(w));
    }
    *s = most / NB_ACT8_MAX;
    *z = -128 * (int32_t)vaddlvq_s16(sum);
}

void nb_linear_act8_pack_neon(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                              const uint32_t *column, size_t tok0, size_t tok1)
{
    if (column) {
        nb_linear_act8_pack_c(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
        return;
    }
    const size_t stride = nb_act8_stride(n_col), gs = nb_act8_groups(n_col), n_group = (n_col + G - 1) / G;
    int8_t *q = (int8_t *)xp;
    float *s = (float *)(void *)(q + n_tok * stride);
    int32_t *z = (int32_t *)(void *)(s + n_tok * gs);
    for (size_t t = tok0; t < tok1; t++) {
        const float *from = x + t * x_stride;
        memset(q + t * stride, 0, stride);
        memset(s + t * gs, 0, gs * sizeof *s);
        memset(z + t * gs, 0, gs * sizeof *z);
        for (size_t g = 0; g < n_group; g++) {
            const size_t left = n_col - g * G;
            float tail[G] = { 0 };
            if (left < G) memcpy(tail, from + g * G, left * sizeof *tail);
            pack_group(left < G ? tail : from + g * G, q + t * stride + g * G, s + t * gs + g, z + t * gs + g);
        }
    }
}

/* ---- products ---- */

/* n <= 32 columns of 4 rows, those that are missing 0. */
INLINE void load_rows(const int8_t *const *w, size_t c, size_t n, int8x16_t v[2 * ROWS])
{
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        int8_t tail[G] = { 0 };
        if (n < G) memcpy(tail, w[r] + c, n);
        const int8_t *p = n < G ? tail : w[r] + c;
        v[2 * r] = vld1q_s8(p);
        v[2 * r + 1] = vld1q_s8(p + 16);
    }
}

/* A group of 4 rows times n (literal) tokens. */
INLINE void step(const int n, const int8x16_t v[2 * ROWS], const int8_t *q, size_t qs, const float *s, size_t gs,
                 float32x4_t acc[TOK])
{
    UNROLL
    for (int t = 0; t < n; t++) {
        const int8x16_t x0 = vld1q_s8(q + (size_t)t * qs), x1 = vld1q_s8(q + (size_t)t * qs + 16);
        int32x4_t d[ROWS];
        UNROLL
        for (int r = 0; r < ROWS; r++) d[r] = vdotq_s32(vdotq_s32(vdupq_n_s32(0), v[2 * r], x0), v[2 * r + 1], x1);
        const int32x4_t sum = vpaddq_s32(vpaddq_s32(d[0], d[1]), vpaddq_s32(d[2], d[3]));
        acc[t] = vfmaq_n_f32(acc[t], vcvtq_f32_s32(sum), s[(size_t)t * gs]);
    }
}

INLINE void write_rows(const nb_linear_args *a, size_t r0, size_t n_row, size_t t, float32x4_t acc)
{
    float out[ROWS], *y = a->y + t * a->y_stride + (r0 - a->row_begin);
    vst1q_f32(out, acc);
    for (size_t r = 0; r < n_row; r++) {
        const float v = out[r] * a->w.scale[r0 + r];
        y[r] = a->bias ? v + a->bias[r0 + r] : v;
    }
}

/* n_row <= 4 rows (the others repeat the last) x n (literal) tokens from t0. */
INLINE void tile(const int n, const nb_linear_args *a, size_t r0, size_t n_row, size_t t0)
{
    const size_t n_col = a->w.n_col, qs = nb_act8_stride(n_col), gs = nb_act8_groups(n_col);
    const int8_t *q = nb_act8_q(a->xp, n_col, t0), *w[ROWS];
    const float *s = nb_act8_s(a->xp, a->n_tok, n_col) + t0 * gs;
    for (size_t r = 0; r < ROWS; r++) w[r] = (const int8_t *)a->w.data + (r0 + (r < n_row ? r : n_row - 1)) * n_col;
    float32x4_t acc[TOK];
    int8x16_t v[2 * ROWS];
    UNROLL
    for (int t = 0; t < n; t++) acc[t] = vdupq_n_f32(0);
    size_t c = 0;
    for (; c + G <= n_col; c += G, q += G, s++) {
        load_rows(w, c, G, v);
        step(n, v, q, qs, s, gs, acc);
    }
    if (c < n_col) {
        load_rows(w, c, n_col - c, v);
        step(n, v, q, qs, s, gs, acc);
    }
    for (int t = 0; t < n; t++) write_rows(a, r0, n_row, t0 + (size_t)t, acc[t]);
}

typedef void tile_fn(const nb_linear_args *a, size_t r0, size_t n_row, size_t t0);
#define TILE(n)                                                                                    \
    static void tile_##n(const nb_linear_args *a, size_t r0, size_t n_row, size_t t0)              \
    {                                                                                              \
        tile(n, a, r0, n_row, t0);                                                                 \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
static tile_fn *const tiles[TOK + 1] = { NULL, tile_1, tile_2, tile_3, tile_4 };

void nb_linear_int8_act8_neon(const nb_linear_args *a)
{
    for (size_t t0 = 0; t0 < a->n_tok; t0 += TOKS) {
        const size_t end = a->n_tok - t0 < TOKS ? a->n_tok : t0 + TOKS;
        for (size_t r = a->row_begin; r < a->row_end; r += ROWS)
            for (size_t t = t0, n; t < end; t += n) {
                n = end - t < TOK ? end - t : TOK;
                tiles[n](a, r, a->row_end - r < ROWS ? a->row_end - r : ROWS, t);
            }
    }
}
