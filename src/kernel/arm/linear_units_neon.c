/* linear_units_neon.c - products with packed weights and activations in 8 bits by SDOT: linear_units.h.
 *
 * 4 rows x a segment of 16 units are unpacked once for all tokens (packed_unit.c): codes as signed bytes, 128 less than
 * they are, and zeros likewise, so that every type is multiplied alike; minima count as a zero of -128.  Rows lie as they
 * are stored: of a unit 2 registers of a row's codes meet 2 of a token's digits, and pairwise additions join the lanes of 4
 * rows, so that lane i has row i: 8 SDOT and 7 other operations for 128 products of a token, 4 tokens at a time.
 * Integers are exact and floats are added in the order of linear_units.h, so the bits are those of the portable row.
 * Not timed: there was no Arm machine to do it on.  One token costs mostly the unpacking. */
#include <math.h>

#include "kernel/arm/vec_neon.h"
#include "kernel/linear/linear_units.h"

enum { ROWS = 4, TOK = 4, TOKS = 256, SPANS = 4 };
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

/* ---- activations ---- */

/* A unit of a token.  Sums of the unit, of its halves, of its quarters. */
typedef struct unit_x {
    int8_t q[NB_PK_UNIT];
    int32_t sum[3 + SPANS];
    float sx;
    float scaled[3]; /* (float)sum * sx: unit, halves */
} unit_x;
_Static_assert(sizeof(unit_x) <= NB_PK_RECORD, "nb_linear_units_pack_bytes");

/* The largest magnitude as bits, from 0x7f800000 on not finite. */
INLINE uint32_t most_of(const float32x4_t v[8])
{
    const uint32x4_t mag = vdupq_n_u32(0x7fffffff);
    uint32x4_t top = vdupq_n_u32(0);
    UNROLL
    for (int i = 0; i < 8; i++) top = vmaxq_u32(top, vandq_u32(mag, vreinterpretq_u32_f32(v[i])));
    return vmaxvq_u32(top);
}

static void pack_unit(const float *x, unit_x *o)
{
    float32x4_t v[8];
    UNROLL
    for (int i = 0; i < 8; i++) v[i] = vld1q_f32(x + 4 * i);
    const uint32_t bits = most_of(v);
    float most;
    memcpy(&most, &bits, sizeof most);
    memset(o, 0, sizeof *o);
    if (bits >= 0x7f800000u) {
        o->sx = NAN;
        for (size_t k = 0; k < 3; k++) o->scaled[k] = NAN;
        return;
    }
    if (most < NB_PK_X_MIN) return;
    const float by = NB_PK_X_MAX8 / most;
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        const int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(v[i], by)), b = vcvtnq_s32_f32(vmulq_n_f32(v[i + 1], by));
        vst1_s8(o->q + 4 * i, vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b))));
    }
    const int32x4_t first = vpaddlq_s16(vpaddlq_s8(vld1q_s8(o->q))), second = vpaddlq_s16(vpaddlq_s8(vld1q_s8(o->q + 16)));
    vst1q_s32(o->sum + 3, vpaddq_s32(first, second));
    o->sum[1] = o->sum[3] + o->sum[4];
    o->sum[2] = o->sum[5] + o->sum[6];
    o->sum[0] = o->sum[1] + o->sum[2];
    o->sx = most / NB_PK_X_MAX8;
    for (size_t k = 0; k < 3; k++) o->scaled[k] = (float)o->sum[k] * o->sx;
}

void nb_linear_units_pack8_neon(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                                const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)n_tok;
    const size_t n_unit = nb_pk_units(n_col);
    for (size_t t = tok0; t < tok1; t++)
        for (size_t u = 0; u < n_unit; u++) {
            const float *from = x + t * x_stride;
            const size_t c = u * NB_PK_UNIT, n = n_col - c < NB_PK_UNIT ? n_col - c : NB_PK_UNIT;
            float v[NB_PK_UNIT] = { 0 };
            for (size_t i = 0; (column || n < NB_PK_UNIT) && i < n; i++) v[i] = from[column ? column[c + i] : c + i];
            pack_unit(column || n < NB_PK_UNIT ? v : from + c, (unit_x *)xp + t * n_unit + u);
        }
}

/* ---- weights ---- */

/* Units of 4 rows; scale, zero and min of each 8 columns. */
typedef struct panel {
    int8_t code[NB_PK_SEG][ROWS][NB_PK_UNIT];
    float scale[NB_PK_SEG][SPANS][ROWS], min[NB_PK_SEG][SPANS][ROWS];
    int32_t zero[NB_PK_SEG][SPANS][ROWS];
} panel;

/* Rows [r, r + n_row), units [u, u + n_unit); what is missing is 0. */
static void unpack(const nb_weight *w, size_t r, size_t n_row, size_t u, size_t n_unit, panel *o)
{
    if (n_row < ROWS) memset(o, 0, sizeof *o);
    for (size_t i = 0; i < n_row; i++)
        for (size_t k = 0; k < n_unit; k++) {
            nb_packed_unit x;
            nb_packed_unit_of(w, r + i, u + k, &x);
            const uint8x16_t turn = vdupq_n_u8(128);
            vst1q_s8(o->code[k][i], vreinterpretq_s8_u8(veorq_u8(vld1q_u8(x.code), turn)));
            vst1q_s8(o->code[k][i] + 16, vreinterpretq_s8_u8(veorq_u8(vld1q_u8(x.code + 16), turn)));
            for (size_t s = 0; s < SPANS; s++) {
                o->scale[k][s][i] = x.scale[s];
                o->min[k][s][i] = x.min[s];
                o->zero[k][s][i] = x.zero[s] - 128;
            }
        }
}

/* ---- products ---- */

/* A span's part of 4 rows: `at` its first 8 columns, `sum` that of its digits. */
INLINE float32x4_t plus_span(const bool has_min, const panel *p, size_t u, size_t at, int32x4_t part, const unit_x *x,
                             size_t sum, float32x4_t total)
{
    part = vmlsq_n_s32(part, vld1q_s32(p->zero[u][at]), x->sum[sum]);
    total = vfmaq_f32(total, vmulq_n_f32(vcvtq_f32_s32(part), x->sx), vld1q_f32(p->scale[u][at]));
    return has_min ? vfmaq_n_f32(total, vld1q_f32(p->min[u][at]), x->scaled[sum]) : total;
}

INLINE int32x4_t join(const int32x4_t d[ROWS])
{
    return vpaddq_s32(vpaddq_s32(d[0], d[1]), vpaddq_s32(d[2], d[3]));
}

/* Unit u of 4 rows times a token; span and has_min are literals. */
INLINE float32x4_t plus_unit(const int span, const bool has_min, const panel *p, size_t u, const int8x16_t c[2][ROWS],
                             const unit_x *x, float32x4_t total)
{
    const int32x4_t none = vdupq_n_s32(0);
    int32x4_t d[2][ROWS];
    UNROLL
    for (int h = 0; h < 2; h++) {
        const int8x16_t q = vld1q_s8(x->q + 16 * h);
        UNROLL
        for (int r = 0; r < ROWS; r++) d[h][r] = vdotq_s32(h && span == 32 ? d[0][r] : none, c[h][r], q);
    }
    if (span == 32) return plus_span(has_min, p, u, 0, join(d[1]), x, 0, total);
    UNROLL
    for (size_t h = 0; h < 2; h++) {
        if (span == 16) {
            total = plus_span(has_min, p, u, 2 * h, join(d[h]), x, 1 + h, total);
            continue;
        }
        const int32x4_t a = vpaddq_s32(d[h][0], d[h][1]), b = vpaddq_s32(d[h][2], d[h][3]);
        total = plus_span(has_min, p, u, 2 * h, vuzp1q_s32(a, b), x, 3 + 2 * h, total);
        total = plus_span(has_min, p, u, 2 * h + 1, vuzp2q_s32(a, b), x, 4 + 2 * h, total);
    }
    return total;
}

/* n (literal) tokens times a panel: added to y [n][ROWS]. */
INLINE void tile(const int n, const int span, const bool has_min, const panel *p, size_t n_unit, const unit_x *x, size_t xs,
                 bool first, float (*y)[ROWS])
{
    float32x4_t total[TOK];
    UNROLL
    for (int t = 0; t < n; t++) total[t] = vdupq_n_f32(0);
    for (size_t u = 0; u < n_unit; u++) {
        int8x16_t c[2][ROWS];
        UNROLL
        for (int r = 0; r < ROWS; r++) c[0][r] = vld1q_s8(p->code[u][r]), c[1][r] = vld1q_s8(p->code[u][r] + 16);
        UNROLL
        for (int t = 0; t < n; t++) total[t] = plus_unit(span, has_min, p, u, c, x + (size_t)t * xs + u, total[t]);
    }
    UNROLL
    for (int t = 0; t < n; t++) vst1q_f32(y[t], first ? total[t] : vaddq_f32(vld1q_f32(y[t]), total[t]));
}

typedef void tile_fn(const panel *p, size_t n_unit, const unit_x *x, size_t xs, bool first, float (*y)[ROWS]);
#define TILE(name, n, span, has_min)                                                               \
    static void name##_##n(const panel *p, size_t n_unit, const unit_x *x, size_t xs, bool first,  \
                           float (*y)[ROWS])                                                       \
    {                                                                                              \
        tile(n, span, has_min, p, n_unit, x, xs, first, y);                                        \
    }
#define TILES(name, span, has_min) TILE(name, 1, span, has_min) TILE(name, 4, span, has_min)
TILES(zero32, 32, false)
TILES(zero16, 16, false)
TILES(zero8, 8, false)
TILES(min32, 32, true)
TILES(min16, 16, true)

static tile_fn *tile_of(const nb_weight *w, bool four)
{
    const size_t span = nb_packed_span(w);
    if (nb_packed_has_min(w->type)) return span == 32 ? (four ? min32_4 : min32_1) : (four ? min16_4 : min16_1);
    return span == 32 ? (four ? zero32_4 : zero32_1) : span == 16 ? (four ? zero16_4 : zero16_1) : (four ? zero8_4 : zero8_1);
}

/* n_row <= 4 rows from r on times n_tok <= TOKS tokens from t0 on. */
static void rows_times(const nb_linear_args *a, size_t r, size_t n_row, size_t t0, size_t n_tok)
{
    const size_t n_all = nb_pk_units(a->w.n_col);
    tile_fn *one = tile_of(&a->w, false), *four = tile_of(&a->w, true);
    panel p;
    float y[TOKS][ROWS];
    for (size_t u = 0; u < n_all; u += NB_PK_SEG) {
        const size_t n_unit = n_all - u < NB_PK_SEG ? n_all - u : NB_PK_SEG;
        const unit_x *x = (const unit_x *)a->xp + t0 * n_all + u;
        unpack(&a->w, r, n_row, u, n_unit, &p);
        size_t t = 0;
        for (; t + TOK <= n_tok; t += TOK) four(&p, n_unit, x + t * n_all, n_all, u == 0, y + t);
        for (; t < n_tok; t++) one(&p, n_unit, x + t * n_all, n_all, u == 0, y + t);
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n_row; i++)
            a->y[(t0 + t) * a->y_stride + (r + i - a->row_begin)] = a->bias ? y[t][i] + a->bias[r + i] : y[t][i];
}

void nb_linear_units8_neon(const nb_linear_args *a)
{
    for (size_t t = 0; t < a->n_tok; t += TOKS)
        for (size_t r = a->row_begin; r < a->row_end; r += ROWS)
            rows_times(a, r, a->row_end - r < ROWS ? a->row_end - r : ROWS, t, a->n_tok - t < TOKS ? a->n_tok - t : TOKS);
}
