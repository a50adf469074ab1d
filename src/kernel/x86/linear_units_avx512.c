/* linear_units_avx512.c - products with packed weights by VNNI: 16 rows to a vector.
 *
 * vpdpbusd adds, for each row, the products of four codes with four digits of x, which one embedded broadcast
 * brings: 16 per unit of 32 columns and token for both digits, and 5 operations turn the sums into floats.  Sums
 * need no joining of lanes, and scales are vectors.  */
#include <string.h>

#include "kernel/x86/units_pack_avx512.h"

enum { LANES = 16 };
typedef __m512i vi;
typedef __m512 vf;
#define vi_load(p) _mm512_loadu_si512(p)
#define vi_store(p, v) _mm512_storeu_si512(p, v)
#define vi_set1(x) _mm512_set1_epi32(x)
#define vi_set8(x) _mm512_set1_epi8(x)
#define vi_bytes16(...) _mm512_broadcast_i32x4(_mm_setr_epi8(__VA_ARGS__))
#define vi_and(a, b) _mm512_and_si512(a, b)
#define vi_or(a, b) _mm512_or_si512(a, b)
#define vi_xor(a, b) _mm512_xor_si512(a, b)
#define vi_sub(a, b) _mm512_sub_epi32(a, b)
#define vi_min8(a, b) _mm512_min_epu8(a, b)
#define vi_add8(a, b) _mm512_add_epi8(a, b)
#define vi_srl(a, n) _mm512_srli_epi32(a, (unsigned)(n))
#define vi_sll(a, n) _mm512_slli_epi32(a, (unsigned)(n))
#define vi_sra(a, n) _mm512_srai_epi32(a, (unsigned)(n))
#define vi_shuffle8(t, i) _mm512_shuffle_epi8(t, i)
#define vi_float(a) _mm512_cvtepi32_ps(a)
#define vi_as_float(a) _mm512_castsi512_ps(a)
#define vi_of_float(a) _mm512_castps_si512(a)
/* Where a == b yes, else no. */
#define vi_select_eq(a, b, yes, no) _mm512_mask_mov_epi32(no, _mm512_cmpeq_epi32_mask(a, b), yes)
#define vf_half(a) _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a))
#define vf_load(p) _mm512_loadu_ps(p)
#define vf_store(p, v) _mm512_storeu_ps(p, v)
#define vf_set1(x) _mm512_set1_ps(x)
#define vf_add(a, b) _mm512_add_ps(a, b)
#define vf_mul(a, b) _mm512_mul_ps(a, b)
#define vf_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_join4(a, b, c, d) nb_avx512_join4(a, b, c, d)

#define ROW16(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
static inline __attribute__((always_inline)) __m512i vi_part(const uint8_t *p, size_t s)
{
    const __m512i a = _mm512_castsi128_si512(ROW16(p));
    const __m512i b = _mm512_mask_broadcast_i32x4(a, 0xf0, ROW16(p + 4 * s));
    const __m512i c = _mm512_mask_broadcast_i32x4(b, 0xf00, ROW16(p + 8 * s));
    return _mm512_mask_broadcast_i32x4(c, 0xf000, ROW16(p + 12 * s));
}
#define vi_lo32(a, b) _mm512_unpacklo_epi32(a, b)
#define vi_hi32(a, b) _mm512_unpackhi_epi32(a, b)
#define vi_lo64(a, b) _mm512_unpacklo_epi64(a, b)
#define vi_hi64(a, b) _mm512_unpackhi_epi64(a, b)

/* One token: units_direct.h. */
#define vi_zero() _mm512_setzero_si512()
#define vi_add(a, b) _mm512_add_epi32(a, b)
#define vi_digits(p) _mm512_broadcast_i32x4(ROW16(p))
#define vi_dot(most, sum, code, x) ((void)(most), _mm512_dpbusd_epi32(sum, code, x))
#define vi_dwords(most, sum) ((void)(most), sum)
#define vi_bias(most) ((void)(most), 0)
#define vi_dot2(sum, a, b) _mm512_dpwssd_epi32(sum, a, b)
#define vi_pairs(a, b) _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1))
#define vi_even(a, b) _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0x88))
#define vi_odd(a, b) _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0xdd))
#define VI_ROWS64 1
/* Quarters of four rows transposed: 4 loads and 8 shuffles where 16 loads of 16 bytes take 12 merges. */
static inline __attribute__((always_inline)) void vi_rows64(const uint8_t *p, size_t s, __m512i out[4][4])
{
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++, p += s) {
        const __m512i a = vi_load(p), b = vi_load(p + 4 * s), c = vi_load(p + 8 * s), d = vi_load(p + 12 * s);
        const __m512i ab = _mm512_shuffle_i32x4(a, b, 0x44), ab2 = _mm512_shuffle_i32x4(a, b, 0xee);
        const __m512i cd = _mm512_shuffle_i32x4(c, d, 0x44), cd2 = _mm512_shuffle_i32x4(c, d, 0xee);
        out[0][k] = _mm512_shuffle_i32x4(ab, cd, 0x88);
        out[1][k] = _mm512_shuffle_i32x4(ab, cd, 0xdd);
        out[2][k] = _mm512_shuffle_i32x4(ab2, cd2, 0x88);
        out[3][k] = _mm512_shuffle_i32x4(ab2, cd2, 0xdd);
    }
}
static inline __attribute__((always_inline)) __m512i vi_fifth(__m512i code, __m512i v, const int at, const int half)
{
    const char i = (char)(at + 2 * half), j = (char)(at + 2 * half + 1);
    const __m512i bits = _mm512_shuffle_epi8(v, vi_bytes16(i, i, i, i, i, i, i, i, j, j, j, j, j, j, j, j));
    const __mmask64 set = _mm512_test_epi8_mask(bits, _mm512_set1_epi64((long long)0x8040201008040201));
    return _mm512_mask_add_epi8(code, set, code, _mm512_set1_epi8(16));
}

#include "kernel/x86/units_panel.h"
#include "kernel/x86/units_short.h"
#include "kernel/x86/units_k.h"
#include "kernel/x86/units_direct.h"

/* ---- activations: [hi 32][lo 32] bytes of a unit in place of 16-bit integers ---- */

static inline int32_t sum_of(__m512i v)
{
    return _mm512_reduce_add_epi32(v);
}

static inline void set_sums(nb_pk_x *o, int32_t first, int32_t second)
{
    const int32_t sum[3] = { first + second, first, second };
    for (size_t k = 0; k < 3; k++) {
        const int32_t lo = ((-sum[k] + 64) & 127) - 64;
        o->minus[k][0] = (int16_t)lo;
        o->minus[k][1] = (int16_t)((-sum[k] - lo) / 128);
        o->sum[k] = (float)sum[k] * o->sx;
    }
    o->unused = 0;
}

/* Two digits. */
static inline void pack_unit(__m512 x0, __m512 x1, __m256i order, nb_pk_x *o)
{
    const __m512i mag = _mm512_set1_epi32(0x7fffffff);
    const __m512i m0 = _mm512_and_si512(mag, _mm512_castps_si512(x0));
    const __m512i m1 = _mm512_and_si512(mag, _mm512_castps_si512(x1));
    const uint32_t bits = _mm512_reduce_max_epu32(_mm512_max_epu32(m0, m1)); /* a NaN is above infinity */
    float m, inv = 0;
    uint32_t sx = 0;
    memcpy(&m, &bits, sizeof m);
    o->sx = 0;
    if (bits >= 0x7f800000) {
        sx = 0x7fc00000;
        memcpy(&o->sx, &sx, sizeof sx);
    } else if (m >= NB_PK_X_MIN) {
        inv = NB_PK_X_MAX / m;
        o->sx = m / NB_PK_X_MAX;
    }
    if (inv == 0) x0 = x1 = _mm512_setzero_ps();
    const __m512 f = _mm512_set1_ps(inv);
    const __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, f)), q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, f));
    const __m512i half = _mm512_set1_epi32(128);
    const __m512i h0 = _mm512_srai_epi32(_mm512_add_epi32(q0, half), 8);
    const __m512i h1 = _mm512_srai_epi32(_mm512_add_epi32(q1, half), 8);
    const __m512i l0 = _mm512_sub_epi32(q0, _mm512_slli_epi32(h0, 8));
    const __m512i l1 = _mm512_sub_epi32(q1, _mm512_slli_epi32(h1, 8));
    const __m256i lo = _mm256_set_m128i(_mm512_cvtepi32_epi8(l1), _mm512_cvtepi32_epi8(l0));
    const __m256i hi = _mm256_set_m128i(_mm512_cvtepi32_epi8(h1), _mm512_cvtepi32_epi8(h0));
    _mm256_storeu_si256((__m256i *)(void *)(o->q + 16), _mm256_shuffle_epi8(lo, order));
    _mm256_storeu_si256((__m256i *)(void *)o->q, _mm256_shuffle_epi8(hi, order));
    set_sums(o, sum_of(q0), sum_of(q1));
}

static void pack(void *xp, const float *x, size_t x_stride, size_t n_col, const uint32_t *column,
                 size_t tok0, size_t tok1, bool words)
{
    const size_t n_unit = nb_pk_units(n_col);
    const __m256i order = nb_pk_order(words);
    for (size_t t = tok0; t < tok1; t++) {
        const float *from = x + t * x_stride;
        nb_pk_x *to = (nb_pk_x *)xp + t * n_unit;
        for (size_t u = 0; u < n_unit; u++) {
            const size_t c = u * NB_PK_UNIT, left = n_col - c;
            const __mmask16 m0 = nb_avx512_mask16(left < 16 ? left : 16);
            const __mmask16 m1 = nb_avx512_mask16(left < 16 ? 0 : left < 32 ? left - 16 : 16);
            float v[NB_PK_UNIT] = { 0 };
            for (size_t i = 0; column && i < NB_PK_UNIT && i < left; i++) v[i] = from[column[c + i]];
            const float *p = column ? v : from + c;
            pack_unit(_mm512_maskz_loadu_ps(m0, p), _mm512_maskz_loadu_ps(m1, p + (m1 ? 16 : 0)), order, &to[u]);
        }
    }
}

/* One digit; in place of the second one the words of low nibbles, then of high ones (x_words). */
static void pack8(void *xp, const float *x, size_t x_stride, size_t n_col, const uint32_t *column,
                  size_t tok0, size_t tok1, bool words)
{
    const size_t n_unit = nb_pk_units(n_col);
    const __m256i order = nb_pk_order(words);
    nb_pk_seg s;
    for (size_t t = tok0; t < tok1; t++) {
        nb_pk_x *to = (nb_pk_x *)xp + t * n_unit;
        for (size_t u = 0; u < n_unit; u++, to++) {
            const size_t i = u % NB_PK_SEG;
            if (i == 0) nb_pk_segment_at(x + t * x_stride, column, u * NB_PK_UNIT, n_col, order, &s);
            const __m256i q = _mm256_load_si256((const __m256i *)(const void *)s.q[i]);
            _mm256_storeu_si256((__m256i *)(void *)to->q, q);
            _mm256_storeu_si256((__m256i *)(void *)(to->q + 16),
                                _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)));
            to->sx = s.sx[i];
            for (size_t k = 0; k < 3; k++) {
                memcpy(to->minus[k], &s.minus[k][i], sizeof s.minus[k][i]);
                to->sum[k] = s.sum[k][i];
            }
            to->unused = 0;
        }
    }
}

#define PACK(name, fn, words)                                                                      \
    void name(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,               \
              const uint32_t *column, size_t tok0, size_t tok1)                                    \
    {                                                                                              \
        (void)n_tok;                                                                               \
        fn(xp, x, x_stride, n_col, column, tok0, tok1, words);                                     \
    }
PACK(nb_linear_units_pack_avx512, pack, false)
PACK(nb_linear_units_pack_words_avx512, pack, true)
PACK(nb_linear_units_pack8_avx512, pack8, false)
PACK(nb_linear_units_pack8_words_avx512, pack8, true)

/* ---- sums ---- */

typedef enum kind { ZERO_32, ZERO_16, ZERO_8, MIN_32, MIN_16, KINDS } kind;
enum { MAX_TOK = 8, DOT_SIZES = 4 };
static const int dot_size[DOT_SIZES] = { 1, 2, 4, 8 };
typedef void dot_fn(const panel *p, const nb_pk_x *x, size_t xs, size_t n_unit, vf *total);

INLINE __m512i digits(const nb_pk_x *x, size_t at)
{
    int32_t v;
    memcpy(&v, (const char *)x + at, sizeof v);
    return _mm512_set1_epi32(v);
}

/* One span: vectors [j0, j1) of unit u for n (literal) tokens. */
INLINE void span(const int n, const bool eight, const kind k, const panel *p, const nb_pk_x *x,
                 size_t xs, size_t u, const int j0, const int j1, size_t s, const int sum, vf *total)
{
    __m512i hi[MAX_TOK], lo[MAX_TOK];
    UNROLL
    for (int t = 0; t < n; t++) hi[t] = lo[t] = _mm512_setzero_si512();
    UNROLL
    for (int j = j0; j < j1; j++) {
        const __m512i c = _mm512_loadu_si512(p->code[u][j]);
        UNROLL
        for (int t = 0; t < n; t++) {
            hi[t] = _mm512_dpbusd_epi32(hi[t], c, digits(x + (size_t)t * xs, 4 * (size_t)j));
            if (!eight) lo[t] = _mm512_dpbusd_epi32(lo[t], c, digits(x + (size_t)t * xs, 32 + 4 * (size_t)j));
        }
    }
    if (k == ZERO_32 || k == ZERO_16) {
        const __m512i z = _mm512_loadu_si512(p->zero[s]);
        UNROLL
        for (int t = 0; t < n; t++)
            lo[t] = _mm512_dpwssd_epi32(lo[t], z, digits(x + (size_t)t * xs, offsetof(nb_pk_x, minus) + 4 * (size_t)sum));
    }
    if (k == ZERO_8) { /* sums of 8 columns are not packed: zeros as codes */
        const __m512i z = _mm512_mullo_epi32(_mm512_and_si512(_mm512_loadu_si512(p->zero[s]), _mm512_set1_epi32(255)),
                                             _mm512_set1_epi32(0x01010101));
        UNROLL
        for (int t = 0; t < n; t++) {
            __m512i h = _mm512_setzero_si512(), l = h;
            for (int j = j0; j < j1; j++) {
                h = _mm512_dpbusd_epi32(h, z, digits(x + (size_t)t * xs, 4 * (size_t)j));
                if (!eight) l = _mm512_dpbusd_epi32(l, z, digits(x + (size_t)t * xs, 32 + 4 * (size_t)j));
            }
            hi[t] = _mm512_sub_epi32(hi[t], h), lo[t] = _mm512_sub_epi32(lo[t], l);
        }
    }
    const vf scale = _mm512_loadu_ps(p->scale[s]);
    UNROLL
    for (int t = 0; t < n; t++) {
        const __m512i part = _mm512_add_epi32(eight ? hi[t] : _mm512_slli_epi32(hi[t], 8), lo[t]);
        const vf f = _mm512_mul_ps(_mm512_cvtepi32_ps(part), _mm512_set1_ps(x[(size_t)t * xs].sx));
        total[t] = _mm512_fmadd_ps(f, scale, total[t]);
    }
    if (k == MIN_32 || k == MIN_16) {
        const vf min = _mm512_loadu_ps(p->min[s]);
        UNROLL
        for (int t = 0; t < n; t++)
            total[t] = _mm512_fmadd_ps(_mm512_set1_ps(x[(size_t)t * xs].sum[sum]), min, total[t]);
    }
}

INLINE void dot(const int n, const bool eight, const kind k, const panel *p, const nb_pk_x *x,
                size_t xs, size_t n_unit, vf *out)
{
    vf total[MAX_TOK];
    UNROLL
    for (int t = 0; t < n; t++) total[t] = _mm512_setzero_ps();
    for (size_t u = 0; u < n_unit; u++, x++) {
        if (k == ZERO_32 || k == MIN_32) {
            span(n, eight, k, p, x, xs, u, 0, 8, u, 0, total);
        } else if (k == ZERO_16 || k == MIN_16) {
            span(n, eight, k, p, x, xs, u, 0, 4, 2 * u, 1, total);
            span(n, eight, k, p, x, xs, u, 4, 8, 2 * u + 1, 2, total);
        } else {
            span(n, eight, k, p, x, xs, u, 0, 2, 4 * u, 0, total);
            span(n, eight, k, p, x, xs, u, 2, 4, 4 * u + 1, 0, total);
            span(n, eight, k, p, x, xs, u, 4, 6, 4 * u + 2, 0, total);
            span(n, eight, k, p, x, xs, u, 6, 8, 4 * u + 3, 0, total);
        }
    }
    UNROLL
    for (int t = 0; t < n; t++) out[t] = total[t];
}

#define DOT(n, eight, kind, name)                                                                  \
    static void name##_##n(const panel *p, const nb_pk_x *x, size_t xs, size_t n_unit, vf *total)  \
    {                                                                                              \
        dot(n, eight, kind, p, x, xs, n_unit, total);                                              \
    }
#define DOTS(eight, kind, name)                                                                    \
    DOT(1, eight, kind, name) DOT(2, eight, kind, name) DOT(4, eight, kind, name) DOT(8, eight, kind, name)
#define ROW(name) { name##_1, name##_2, name##_4, name##_8 }
DOTS(false, ZERO_32, zero32)
DOTS(false, ZERO_16, zero16)
DOTS(false, ZERO_8, zero8)
DOTS(false, MIN_32, min32)
DOTS(false, MIN_16, min16)
DOTS(true, ZERO_32, eight_zero32)
DOTS(true, ZERO_16, eight_zero16)
DOTS(true, ZERO_8, eight_zero8)
DOTS(true, MIN_32, eight_min32)
DOTS(true, MIN_16, eight_min16)
static dot_fn *const dots[2][KINDS][DOT_SIZES] = {
    { ROW(zero32), ROW(zero16), ROW(zero8), ROW(min32), ROW(min16) },
    { ROW(eight_zero32), ROW(eight_zero16), ROW(eight_zero8), ROW(eight_min32), ROW(eight_min16) },
};

static dot_fn *const *dots_of(nb_wtype type, bool eight, kind k)
{
    (void)type;
    return dots[eight][k];
}
static dot_fn *pair_of(nb_wtype type, bool eight, kind k) /* no faster (decision 043) */
{
    (void)type, (void)eight, (void)k;
    return NULL;
}

static void add_to_y(float *y, size_t n_row, vf total, bool first, const float *bias)
{
    const __mmask16 m = nb_avx512_mask16(n_row);
    if (!first) total = _mm512_add_ps(_mm512_maskz_loadu_ps(m, y), total);
    if (bias) total = _mm512_add_ps(total, _mm512_maskz_loadu_ps(m, bias));
    _mm512_mask_storeu_ps(y, m, total);
}

#include "kernel/x86/units_drive.h"
#include "kernel/x86/units_t.h"

void nb_units_panel_avx512(const nb_linear_args *a, size_t r, size_t end, size_t u, size_t n_unit, panel *o)
{
    const cut c = cut_of(&a->w);
    unpack_panel(a, &c, r, end, u, n_unit, 0, o);
}
void nb_linear_units_avx512(const nb_linear_args *a)
{
    linear_units(a, false);
}
void nb_linear_units8_avx512(const nb_linear_args *a)
{
    linear_units(a, true);
}
void nb_linear_t_units_avx512(const nb_linear_args *a)
{
    linear_t_units(a);
}
