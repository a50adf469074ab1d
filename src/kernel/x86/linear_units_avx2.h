/* linear_units_avx2.h - products with packed weights in vectors of 256 bits: 8 rows to a vector; included once by each of
 * linear_units_avx2.c and linear_units_avxvnni.c, which define UNITS_VNNI as 0 or 1 before.
 *
 * With VNNI, vpdpbusd adds four products of a code and a digit to 32 bits, whatever the code, and vpdpwssd two of 16 bits.
 * Without:
 *
 * A byte product of AVX2 saturates where codes have 8 bits, so four codes are two pairs of 16 bits (`and` and a
 * shift, once for all tokens of a tile) and vpmaddwd multiplies them with x in 16 bits: 16 products for it
 * and an addition, where FMA has 8. */
#include <string.h>

#include "kernel/linear/linear_units.h"
#include "kernel/x86/vec_avx2.h"

enum { LANES = 8 };
typedef __m256i vi;
typedef __m256 vf;
#define vi_load(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define vi_store(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define vi_set1(x) _mm256_set1_epi32(x)
#define vi_set8(x) _mm256_set1_epi8(x)
#define vi_bytes16(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))
#define vi_and(a, b) _mm256_and_si256(a, b)
#define vi_or(a, b) _mm256_or_si256(a, b)
#define vi_xor(a, b) _mm256_xor_si256(a, b)
#define vi_sub(a, b) _mm256_sub_epi32(a, b)
#define vi_min8(a, b) _mm256_min_epu8(a, b)
#define vi_add8(a, b) _mm256_add_epi8(a, b)
#define vi_srl(a, n) _mm256_srli_epi32(a, (int)(n))
#define vi_sll(a, n) _mm256_slli_epi32(a, (int)(n))
#define vi_sra(a, n) _mm256_srai_epi32(a, (int)(n))
#define vi_shuffle8(t, i) _mm256_shuffle_epi8(t, i)
#define vi_float(a) _mm256_cvtepi32_ps(a)
#define vi_as_float(a) _mm256_castsi256_ps(a)
#define vi_of_float(a) _mm256_castps_si256(a)
/* Where a == b yes, else no. */
#define vi_select_eq(a, b, yes, no) _mm256_blendv_epi8(no, yes, _mm256_cmpeq_epi32(a, b))
#define vf_load(p) _mm256_loadu_ps(p)
#define vf_store(p, v) _mm256_storeu_ps(p, v)
#define vf_set1(x) _mm256_set1_ps(x)
#define vf_add(a, b) _mm256_add_ps(a, b)
#define vf_mul(a, b) _mm256_mul_ps(a, b)
#define vf_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define v_join4(a, b, c, d) nb_avx2_join4(a, b, c, d)

static inline __m256 vf_half(__m256i a)
{
    const __m256i v = _mm256_packus_epi32(_mm256_and_si256(a, _mm256_set1_epi32(0xffff)), a);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(v, 8)));
}

static inline __attribute__((always_inline)) __m256i vi_part(const uint8_t *p, size_t s)
{
    return _mm256_set_m128i(_mm_loadu_si128((const __m128i *)(const void *)(p + 4 * s)),
                            _mm_loadu_si128((const __m128i *)(const void *)p));
}
#define vi_lo32(a, b) _mm256_unpacklo_epi32(a, b)
#define vi_hi32(a, b) _mm256_unpackhi_epi32(a, b)
#define vi_lo64(a, b) _mm256_unpacklo_epi64(a, b)
#define vi_hi64(a, b) _mm256_unpackhi_epi64(a, b)

/* One token: units_direct.h.  Without VNNI, vpmaddubsw adds two products of a code and a digit in 16 bits.  Codes of up to six bits
 * may be added twice: 4 * 63 * 127 = 32004.  Others are made signed, and digits take their sign: 2 * 128 * 127 = 32512. */
#define vi_zero() _mm256_setzero_si256()
#define vi_add(a, b) _mm256_add_epi32(a, b)
#define vi_digits(p) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vi_ones() _mm256_set1_epi16(1)
#define vi_pairs(a, b) _mm256_madd_epi16(_mm256_packs_epi32(a, b), vi_ones())
#define vi_even(a, b) _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88))
#define vi_odd(a, b) _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd))
#if UNITS_VNNI
#define vi_bias(most) ((void)(most), 0)
#define vi_dot2(sum, a, b) _mm256_dpwssd_avx_epi32(sum, a, b)
#define vi_dot(most, sum, code, x) ((void)(most), _mm256_dpbusd_avx_epi32(sum, code, x))
#define vi_dwords(most, sum) ((void)(most), sum)
#else
#define vi_bias(most) ((most) > 63 ? 128 : 0)
#define vi_dot2(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
static inline __attribute__((always_inline)) __m256i signed_pairs(__m256i code, __m256i x)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(x, code));
}
static inline __attribute__((always_inline)) __m256i vi_dot(const int most, __m256i sum, __m256i code, __m256i x)
{
    if (most <= 63) return _mm256_add_epi16(sum, _mm256_maddubs_epi16(code, x));
    return vi_dot2(sum, signed_pairs(_mm256_xor_si256(code, _mm256_set1_epi8((char)0x80)), x), vi_ones());
}
static inline __attribute__((always_inline)) __m256i vi_dwords(const int most, __m256i sum)
{
    return most <= 63 ? _mm256_madd_epi16(sum, vi_ones()) : sum;
}
#endif
static inline __attribute__((always_inline)) __m256i vi_fifth(__m256i code, __m256i v, const int at, const int half)
{
    const char i = (char)(at + 2 * half), j = (char)(at + 2 * half + 1);
    const __m256i each = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i bits = _mm256_shuffle_epi8(v, vi_bytes16(i, i, i, i, i, i, i, i, j, j, j, j, j, j, j, j));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bits, each), each);
    return _mm256_or_si256(code, _mm256_and_si256(set, _mm256_set1_epi8(16)));
}

#include "kernel/x86/units_panel.h"
#include "kernel/x86/units_short.h"
#include "kernel/x86/units_k.h"
#include "kernel/x86/units_direct.h"

/* ---- sums ---- */

typedef enum kind { ZERO_32, ZERO_16, ZERO_8, MIN_32, MIN_16, KINDS } kind;
enum { MAX_TOK = 4, MAX_PANEL = 2, DOT_SIZES = 3 };
static const int dot_size[DOT_SIZES] = { 1, 2, 4 };
typedef void dot_fn(const panel *p, const nb_pk_x *x, size_t xs, size_t n_unit, vf *total);

INLINE __m256i pair(const nb_pk_x *x, size_t at)
{
    int32_t v;
    memcpy(&v, (const char *)x + at, sizeof v);
    return _mm256_set1_epi32(v);
}

/* Parts of n tokens, times scales. */
INLINE void plus_parts(const int n, const kind k, const panel *p, const nb_pk_x *x, size_t xs, size_t s, const int sum,
                       const __m256i *part, vf *total)
{
    const vf scale = vf_load(p->scale[s]);
    UNROLL
    for (int t = 0; t < n; t++) {
        const vf f = _mm256_mul_ps(_mm256_cvtepi32_ps(part[t]), _mm256_set1_ps(x[(size_t)t * xs].sx));
        total[t] = _mm256_fmadd_ps(f, scale, total[t]);
    }
    if (k == MIN_32 || k == MIN_16) {
        const vf min = vf_load(p->min[s]);
        UNROLL
        for (int t = 0; t < n; t++)
            total[t] = _mm256_fmadd_ps(_mm256_set1_ps(x[(size_t)t * xs].sum[sum]), min, total[t]);
    }
}

/* One span: vectors [j0, j1) of unit u for n (literal) tokens. */
INLINE void span16(const int n, const kind k, const panel *p, const nb_pk_x *x, size_t xs, size_t u,
                   const int j0, const int j1, size_t s, const int sum, vf *total)
{
    const __m256i low = _mm256_set1_epi32(0x00ff00ff);
    __m256i part[MAX_TOK];
    UNROLL
    for (int t = 0; t < n; t++) part[t] = _mm256_setzero_si256();
    UNROLL
    for (int j = j0; j < j1; j++) {
        const __m256i c = vi_load(p->code[u][j]);
        const __m256i even = _mm256_and_si256(c, low), odd = _mm256_srli_epi16(c, 8);
        UNROLL
        for (int t = 0; t < n; t++) {
            part[t] = vi_dot2(part[t], even, pair(x + (size_t)t * xs, 8 * (size_t)j));
            part[t] = vi_dot2(part[t], odd, pair(x + (size_t)t * xs, 8 * (size_t)j + 4));
        }
    }
    if (k == ZERO_32 || k == ZERO_16) {
        const __m256i z = vi_load(p->zero[s]);
        UNROLL
        for (int t = 0; t < n; t++)
            part[t] = vi_dot2(part[t], z, pair(x + (size_t)t * xs, offsetof(nb_pk_x, minus) + 4 * (size_t)sum));
    }
    if (k == ZERO_8) { /* sums of 8 columns are not packed: zeros as codes */
        const __m256i z = _mm256_and_si256(vi_load(p->zero[s]), _mm256_set1_epi32(255));
        const __m256i zz = _mm256_or_si256(z, _mm256_slli_epi32(z, 16));
        UNROLL
        for (int t = 0; t < n; t++)
            for (int j = 2 * j0; j < 2 * j1; j++)
                part[t] = _mm256_sub_epi32(
                    part[t], _mm256_madd_epi16(zz, pair(x + (size_t)t * xs, 4 * (size_t)j)));
    }
    plus_parts(n, k, p, x, xs, s, sum, part, total);
}

/* Minus the sum of 8 columns' digits, as a pair (minus, 0). */
INLINE __m256i minus8(const nb_pk_x *x, int j)
{
    const __m256i one = _mm256_set1_epi8(1);
    const __m256i a = _mm256_maddubs_epi16(one, pair(x, 4 * (size_t)j));
    const __m256i b = _mm256_maddubs_epi16(one, pair(x, 4 * (size_t)j + 4));
    const __m256i sum = _mm256_madd_epi16(_mm256_add_epi16(a, b), vi_ones());
    return _mm256_and_si256(_mm256_sub_epi32(vi_zero(), sum), vi_set1(0xffff));
}

/* gcc would put off all tokens but the first, and spill their products. */
#define HOLD(v) __asm__("" : "+x"(v))

#if UNITS_VNNI
/* Vectors [j0, j1) of unit u of np panels times n tokens; all literal but u. */
INLINE void parts8(const int np, const int n, const int most, const panel *p, const nb_pk_x *x, size_t xs, size_t u,
                   const int j0, const int j1, __m256i (*part)[MAX_TOK])
{
    (void)most;
    UNROLL
    for (int j = j0; j < j1; j++) {
        __m256i c[MAX_PANEL];
        UNROLL
        for (int i = 0; i < np; i++) c[i] = vi_load(p[i].code[u][j]);
        UNROLL
        for (int t = 0; t < n; t++) {
            const __m256i d = pair(x + (size_t)t * xs, 4 * (size_t)j);
            UNROLL
            for (int i = 0; i < np; i++) {
                part[i][t] = vi_dot(most, j == j0 ? vi_zero() : part[i][t], c[i], d);
                HOLD(part[i][t]);
            }
        }
    }
}
#else
/* The same: `most` is the largest code of the type, and says how many products 16 bits hold. */
INLINE void parts8(const int np, const int n, const int most, const panel *p, const nb_pk_x *x, size_t xs, size_t u,
                   const int j0, const int j1, __m256i (*part)[MAX_TOK])
{
    const int run = most > 63 ? 1 : 32767 / (2 * 127 * most); /* of vpmaddubsw */
    __m256i words[MAX_PANEL][MAX_TOK], c[MAX_PANEL];
    UNROLL
    for (int j = j0; j < j1; j++) {
        UNROLL
        for (int i = 0; i < np; i++) {
            c[i] = vi_load(p[i].code[u][j]);
            if (most > 63) c[i] = _mm256_xor_si256(c[i], _mm256_set1_epi8((char)0x80));
        }
        const bool first = (j - j0) % run == 0, last = j + 1 == j1 || (j + 1 - j0) % run == 0;
        UNROLL
        for (int t = 0; t < n; t++) {
            const __m256i d = pair(x + (size_t)t * xs, 4 * (size_t)j);
            UNROLL
            for (int i = 0; i < np; i++) {
                const __m256i w = most > 63 ? signed_pairs(c[i], d) : _mm256_maddubs_epi16(c[i], d);
                words[i][t] = first ? w : _mm256_add_epi16(words[i][t], w);
                HOLD(words[i][t]);
                if (!last) continue;
                const __m256i sums = _mm256_madd_epi16(words[i][t], vi_ones());
                part[i][t] = j - j0 < run ? sums : _mm256_add_epi32(part[i][t], sums);
                HOLD(part[i][t]);
            }
        }
    }
}
#endif

/* A span of activations in 8 bits, of np (literal) panels; most: the largest code of the type (literal). */
INLINE void span8(const int np, const int n, const int most, const kind k, const panel *p, const nb_pk_x *x, size_t xs,
                  size_t u, const int j0, const int j1, size_t s, const int sum, vf *total)
{
    __m256i part[MAX_PANEL][MAX_TOK];
    parts8(np, n, most, p, x, xs, u, j0, j1, part);
    UNROLL
    for (int i = 0; i < np; i++) {
        if (k <= ZERO_8) {
            const __m256i bias = vi_set1(vi_bias(most) | vi_bias(most) << 23);
            const __m256i z = _mm256_sub_epi16(vi_load(p[i].zero[s]), bias);
            UNROLL
            for (int t = 0; t < n; t++) {
                const nb_pk_x *xt = x + (size_t)t * xs;
                const __m256i minus = k == ZERO_8 ? minus8(xt, j0) : pair(xt, offsetof(nb_pk_x, minus) + 4 * (size_t)sum);
                part[i][t] = vi_dot2(part[i][t], z, minus);
            }
        }
        plus_parts(n, k, &p[i], x, xs, s, sum, part[i], total + i * n);
    }
}

/* most: of 8 bits; 0: 16 bits, of one panel. */
INLINE void span(const int np, const int n, const int most, const kind k, const panel *p, const nb_pk_x *x, size_t xs,
                 size_t u, const int j0, const int j1, size_t s, const int sum, vf *total)
{
    if (most)
        span8(np, n, most, k, p, x, xs, u, j0, j1, s, sum, total);
    else
        span16(n, k, p, x, xs, u, j0, j1, s, sum, total);
}

INLINE void dot(const int np, const int n, const int most, const kind k, const panel *p, const nb_pk_x *x, size_t xs,
                size_t n_unit, vf *out)
{
    vf total[MAX_PANEL * MAX_TOK];
    UNROLL
    for (int t = 0; t < np * n; t++) total[t] = _mm256_setzero_ps();
    for (size_t u = 0; u < n_unit; u++, x++) {
        if (k == ZERO_32 || k == MIN_32) {
            span(np, n, most, k, p, x, xs, u, 0, 8, u, 0, total);
        } else if (k == ZERO_16 || k == MIN_16) {
            span(np, n, most, k, p, x, xs, u, 0, 4, 2 * u, 1, total);
            span(np, n, most, k, p, x, xs, u, 4, 8, 2 * u + 1, 2, total);
        } else {
            span(np, n, most, k, p, x, xs, u, 0, 2, 4 * u, 0, total);
            span(np, n, most, k, p, x, xs, u, 2, 4, 4 * u + 1, 0, total);
            span(np, n, most, k, p, x, xs, u, 4, 6, 4 * u + 2, 0, total);
            span(np, n, most, k, p, x, xs, u, 6, 8, 4 * u + 3, 0, total);
        }
    }
    UNROLL
    for (int t = 0; t < np * n; t++) out[t] = total[t];
}

#define DOT(n, most, kind, name)                                                                   \
    static void name##_##n(const panel *p, const nb_pk_x *x, size_t xs, size_t n_unit, vf *total)  \
    {                                                                                              \
        dot(1, n, most, kind, p, x, xs, n_unit, total);                                               \
    }
#define DOTS(most, kind, name) DOT(1, most, kind, name) DOT(2, most, kind, name) DOT(4, most, kind, name)
#define ROW(name) { name##_1, name##_2, name##_4 }
DOTS(0, ZERO_32, zero32)
DOTS(0, ZERO_16, zero16)
DOTS(0, ZERO_8, zero8)
DOTS(0, MIN_32, min32)
DOTS(0, MIN_16, min16)
DOTS(255, ZERO_32, byte_zero32)
DOTS(255, ZERO_16, byte_zero16)
DOTS(255, ZERO_8, byte_zero8)
#if UNITS_VNNI
DOTS(255, MIN_32, byte_min32)
DOTS(255, MIN_16, byte_min16)
/* With 16 bits, and with 8. */
static dot_fn *const dots[2][KINDS][DOT_SIZES] = {
    { ROW(zero32), ROW(zero16), ROW(zero8), ROW(min32), ROW(min16) },
    { ROW(byte_zero32), ROW(byte_zero16), ROW(byte_zero8), ROW(byte_min32), ROW(byte_min16) },
};

static int dots_row(nb_wtype type, bool eight)
{
    (void)type;
    return eight;
}
#else
DOTS(15, ZERO_32, nibble_zero32)
DOTS(15, ZERO_16, nibble_zero16)
DOTS(15, MIN_32, nibble_min32)
DOTS(15, MIN_16, nibble_min16)
DOTS(31, ZERO_32, five_zero32)
DOTS(31, ZERO_16, five_zero16)
DOTS(31, MIN_32, five_min32)
DOTS(63, ZERO_16, six_zero16)
/* With 16 bits, and with 8 of codes that are at most 15, 31, 63 and 255. */
static dot_fn *const dots[5][KINDS][DOT_SIZES] = {
    { ROW(zero32), ROW(zero16), ROW(zero8), ROW(min32), ROW(min16) },
    { ROW(nibble_zero32), ROW(nibble_zero16), ROW(byte_zero8), ROW(nibble_min32), ROW(nibble_min16) },
    { ROW(five_zero32), ROW(five_zero16), ROW(byte_zero8), ROW(five_min32) },
    { [ZERO_16] = ROW(six_zero16) },
    { ROW(byte_zero32), ROW(byte_zero16), ROW(byte_zero8) },
};

/* Which row of dots has the codes of a type. */
static int dots_row(nb_wtype type, bool eight)
{
    if (!eight) return 0;
    switch (type) {
    case NB_W_INT4:
    case NB_W_Q4_0:
    case NB_W_Q4_1:
    case NB_W_Q2_K:
    case NB_W_Q3_K:
    case NB_W_Q4_K: return 1;
    case NB_W_FP4: /* at most 24 */
    case NB_W_MXFP4:
    case NB_W_GGUF_NVFP4:
    case NB_W_Q5_0:
    case NB_W_Q5_1:
    case NB_W_Q5_K: return 2;
    case NB_W_Q6_K: return 3;
    default: return 4;
    }
}
#endif

static dot_fn *const *dots_of(nb_wtype type, bool eight, kind k)
{
    return dots[dots_row(type, eight)][k];
}

/* Two panels times MAX_TOK tokens: digits are broadcast for both, and more sums are on their way at once. */
#define PAIR(most, kind, name)                                                                     \
    static void name##_pair(const panel *p, const nb_pk_x *x, size_t xs, size_t n_unit, vf *total) \
    {                                                                                              \
        dot(MAX_PANEL, MAX_TOK, most, kind, p, x, xs, n_unit, total);                              \
    }
PAIR(255, ZERO_32, byte_zero32)
#if UNITS_VNNI
PAIR(255, ZERO_16, byte_zero16)
PAIR(255, MIN_32, byte_min32)
PAIR(255, MIN_16, byte_min16)
static dot_fn *const pairs[2][KINDS] = {
    { NULL },
    { byte_zero32_pair, byte_zero16_pair, NULL, byte_min32_pair, byte_min16_pair },
};
#else
PAIR(15, ZERO_32, nibble_zero32)
PAIR(15, ZERO_16, nibble_zero16)
PAIR(15, MIN_32, nibble_min32)
PAIR(15, MIN_16, nibble_min16)
PAIR(31, ZERO_32, five_zero32)
PAIR(31, ZERO_16, five_zero16)
PAIR(31, MIN_32, five_min32)
PAIR(63, ZERO_16, six_zero16)
static dot_fn *const pairs[5][KINDS] = {
    { NULL },
    { nibble_zero32_pair, nibble_zero16_pair, NULL, nibble_min32_pair, nibble_min16_pair },
    { five_zero32_pair, five_zero16_pair, NULL, five_min32_pair },
    { [ZERO_16] = six_zero16_pair },
    { byte_zero32_pair },
};
#endif

static dot_fn *pair_of(nb_wtype type, bool eight, kind k)
{
    return pairs[dots_row(type, eight)][k];
}

/* Masked stores take as long as a unit on a Zen 3, and the next segment waits for them: only where rows are missing. */
static void add_to_y(float *y, size_t n_row, vf total, bool first, const float *bias)
{
    if (n_row == LANES) {
        if (!first) total = _mm256_add_ps(vf_load(y), total);
        if (bias) total = _mm256_add_ps(total, vf_load(bias));
        vf_store(y, total);
        return;
    }
    const __m256i m = nb_avx2_mask(n_row);
    if (!first) total = _mm256_add_ps(_mm256_maskload_ps(y, m), total);
    if (bias) total = _mm256_add_ps(total, _mm256_maskload_ps(bias, m));
    _mm256_maskstore_ps(y, m, total);
}

#include "kernel/x86/units_drive.h"
