/* linear_int8_neon.c - products with INT8 weights by dot products of bytes.
 *
 * The activations' 15 bits are two digits, q = 128 hi + lo (linear_int8.h), so that a weight is never
 * widened: SDOT adds 4 products of bytes to each of 4 lanes, once for hi and once for lo.  A lane
 * grows by at most 4 * 127 * 127 < 2^16 per 16 columns and holds BLOCK columns in 2^28; the digits'
 * lanes are joined in 64 bits (SADDLV).  Nothing rounds before the last product, so the order does not
 * matter and the bits are those of every other variant.  The packed rows are as long as the portable
 * ones: of a token all hi, then all lo.
 *
 * A tile is 4 rows x 2 tokens: 16 sums, 4 registers of digits, one of weights.  Per 16 columns 8 loads
 * and 16 SDOT (16-bit products would take 8 SSHLL and 32 SMLAL), 28 instructions in all (gcc 12).  One
 * token: 6 loads and 8 SDOT, 18 instructions for 64 bytes of weights.  By this count two tokens and more are bound by the SDOT (2 or 4 a cycle, by
 * core), one token by the memory.  linear_t works on floats. */
#include <math.h>

#include "kernel/arm/vec_neon.h"
#include "kernel/linear/linear_int8.h"

enum { BLOCK = 1 << 16, ROWS = 4, TOKS = 64 };

typedef struct digits {
    int32x4_t hi, lo;
} digits;

static inline digits no_sum(void)
{
    return (digits){ vdupq_n_s32(0), vdupq_n_s32(0) };
}
static inline digits mul_add(digits s, int8x16_t w, int8x16_t hi, int8x16_t lo)
{
    return (digits){ vdotq_s32(s.hi, w, hi), vdotq_s32(s.lo, w, lo) };
}
static inline int64_t join(digits s)
{
    return 128 * vaddlvq_s32(s.hi) + vaddlvq_s32(s.lo);
}

#define ROW4(M) M(0) M(1) M(2) M(3)
#define DECL1(r) digits a##r = no_sum();
#define DECL2(r) DECL1(r) digits b##r = no_sum();
#define LOAD1 const int8x16_t xh = vld1q_s8(q + i), xl = vld1q_s8(q + plane + i);
#define LOAD2                                                                                      \
    LOAD1                                                                                          \
    const int8x16_t yh = vld1q_s8(q + 2 * plane + i), yl = vld1q_s8(q + 3 * plane + i);
#define STEP1(r) a##r = mul_add(a##r, vld1q_s8(w[r] + i), xh, xl);
#define STEP2(r)                                                                                   \
    {                                                                                              \
        const int8x16_t v = vld1q_s8(w[r] + i);                                                    \
        a##r = mul_add(a##r, v, xh, xl);                                                           \
        b##r = mul_add(b##r, v, yh, yl);                                                           \
    }
#define TAIL1(r) a##r = mul_add(a##r, vld1q_s8(tail[r]), xh, xl);
#define TAIL2(r) TAIL1(r) b##r = mul_add(b##r, vld1q_s8(tail[r]), yh, yl);
#define PUT1(r) sum[r] += join(a##r);
#define PUT2(r) PUT1(r) sum[ROWS + r] += join(b##r);

/* The last columns of the rows, which nothing may be read behind; q has zeros there. */
static void copy_tail(const int8_t *const *w, size_t at, size_t n, int8_t tail[ROWS][16])
{
    memset(tail, 0, sizeof(int8_t[ROWS][16]));
    for (size_t r = 0; r < ROWS; r++) memcpy(tail[r], w[r] + at, n);
}

/* sum[token][row] += n columns of 4 rows times tokens whose digits lie in planes. */
#define TILE(name, DECL, LOAD, STEP, TAIL, PUT)                                                    \
    static void name(const int8_t *const *w, const int8_t *q, size_t plane, size_t n,              \
                     int64_t *sum)                                                                 \
    {                                                                                              \
        size_t i = 0;                                                                              \
        ROW4(DECL)                                                                                 \
        for (; i + 16 <= n; i += 16) {                                                             \
            LOAD ROW4(STEP)                                                                        \
        }                                                                                          \
        if (i < n) {                                                                               \
            int8_t tail[ROWS][16];                                                                 \
            copy_tail(w, i, n - i, tail);                                                          \
            LOAD ROW4(TAIL)                                                                        \
        }                                                                                          \
        ROW4(PUT)                                                                                  \
    }
TILE(rows_1, DECL1, LOAD1, STEP1, TAIL1, PUT1)
TILE(rows_2, DECL2, LOAD2, STEP2, TAIL2, PUT2)

static void rows4_times_tokens(const nb_linear_args *a, size_t r0, size_t n_row, size_t t0,
                               size_t n_tok)
{
    const size_t n_col = a->w.n_col, plane = nb_int8_stride(n_col);
    const int8_t *q = (const int8_t *)nb_int8_q(a->xp, n_col, t0), *w[ROWS];
    const float *sx = nb_int8_sx(a->xp, a->n_tok, n_col) + t0;
    int64_t sum[TOKS * ROWS] = { 0 };
    for (size_t r = 0; r < ROWS; r++) /* rows that are not there: the last */
        w[r] = (const int8_t *)a->w.data + (r0 + (r < n_row ? r : n_row - 1)) * n_col;
    for (size_t c = 0, n; c < n_col; c += n) {
        n = n_col - c < BLOCK ? n_col - c : BLOCK;
        size_t t = 0;
        for (; t + 2 <= n_tok; t += 2) rows_2(w, q + 2 * t * plane + c, plane, n, sum + t * ROWS);
        if (t < n_tok) rows_1(w, q + 2 * t * plane + c, plane, n, sum + t * ROWS);
        for (size_t r = 0; r < ROWS; r++) w[r] += n;
    }
    for (size_t t = 0; t < n_tok; t++) {
        float *y = a->y + (t0 + t) * a->y_stride + (r0 - a->row_begin);
        for (size_t r = 0; r < n_row; r++) {
            const float v = nb_int8_finish(sum[t * ROWS + r], a->w.scale[r0 + r], sx[t]);
            y[r] = a->bias ? v + a->bias[r0 + r] : v;
        }
    }
}

void nb_linear_int8_neon(const nb_linear_args *a)
{
    for (size_t t = 0; t < a->n_tok; t += TOKS)
        for (size_t r = a->row_begin; r < a->row_end; r += ROWS)
            rows4_times_tokens(a, r, a->row_end - r < ROWS ? a->row_end - r : ROWS, t,
                               a->n_tok - t < TOKS ? a->n_tok - t : TOKS);
}

/* ---- packing ---- */

/* The largest magnitude as bits, which order as magnitudes do; from 0x7f800000 on not finite. */
static uint32_t abs_max(const float *x, size_t n)
{
    const uint32x4_t mask = vdupq_n_u32(0x7fffffff);
    uint32x4_t m = vdupq_n_u32(0);
    for (size_t c = 0; c < n; c += 8) {
        const nb_neon_f8 v = n - c < 8 ? nb_neon_load_n(x + c, n - c) : nb_neon_load(x + c);
        m = vmaxq_u32(m, vandq_u32(mask, vreinterpretq_u32_f32(v.a)));
        m = vmaxq_u32(m, vandq_u32(mask, vreinterpretq_u32_f32(v.b)));
    }
    return vmaxvq_u32(m);
}

/* 8 activations as integers, rounded to nearest even. */
static inline int16x8_t rounded(const float *x, size_t n, float inv)
{
    const nb_neon_f8 v = n < 8 ? nb_neon_load_n(x, n) : nb_neon_load(x);
    return vcombine_s16(vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v.a, inv))),
                        vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v.b, inv))));
}

/* hi = floor((q + 64) / 128), lo = q - 128 hi. */
static void pack_row(int8_t *q, size_t plane, const float *x, size_t n, float inv)
{
    for (size_t c = 0; c < n; c += 8) {
        const int16x8_t v = rounded(x + c, n - c, inv);
        const int16x8_t hi = vshrq_n_s16(vaddq_s16(v, vdupq_n_s16(64)), 7);
        vst1_s8(q + c, vmovn_s16(hi));
        vst1_s8(q + plane + c, vmovn_s16(vsubq_s16(v, vshlq_n_s16(hi, 7))));
    }
}

void nb_linear_int8_pack_neon(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                              const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)column;
    const size_t plane = nb_int8_stride(n_col);
    int8_t *q = xp;
    float *sx = (float *)(void *)(q + 2 * n_tok * plane);
    for (size_t t = tok0; t < tok1; t++) {
        const uint32_t bits = abs_max(x + t * x_stride, n_col);
        float m;
        memcpy(&m, &bits, sizeof m);
        const bool finite = bits < 0x7f800000u, some = finite && m >= NB_INT8_X_MIN;
        memset(q + 2 * t * plane, 0, 2 * plane);
        if (some) pack_row(q + 2 * t * plane, plane, x + t * x_stride, n_col, NB_INT8_X_MAX / m);
        sx[t] = some ? m / NB_INT8_X_MAX : finite ? 0 : NAN;
    }
}

/* ---- linear_t ---- */

static inline nb_neon_f8 load_t(const int8_t *p)
{
    const int16x8_t v = vmovl_s8(vld1_s8(p));
    return (nb_neon_f8){ vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))),
                         vcvtq_f32_s32(vmovl_high_s16(v)) };
}

#define W_TYPE int8_t
#define W_LOAD(p) load_t(p)
#define W_FACTOR_T(w, r, c) ((w)->scale[r])
#define NAME_T nb_linear_t_int8_neon
#include "kernel/arm/linear_t_tile_neon.h"
