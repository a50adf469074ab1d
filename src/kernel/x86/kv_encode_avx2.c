/* kv_encode_avx2.c - filling KV pages with AVX2, byte for byte as num/record_encode.c.
 *
 * The costly part is the choice of a block scale.  In a search the candidates are
 * the lanes of a vector and the 16 values come one after the other, so that each
 * lane's error is summed in the order the rule demands, and eight candidates cost
 * as much as one.  A lane without a candidate starts with an infinite error.  Two
 * or three candidates are taken one by one, with the values as lanes.
 *
 * Outlier channels are set to zero in a copy of the row.
 *
 * int4 and fp8_ds_mla pages are left to the portable encoder. */
#include "kernel/kv_codec/kv_codec.h"

#include <math.h>

#include "kernel/x86/kv_block_avx2.h"
#include "num/e4m3.h"

enum {
    SCALE_MIN = 2, /* as NB_OUTER_MIN and _MAX of num: the range of UE8M0 scales */
    SCALE_MAX = 253,
    LANES = 8,
    FEW = 3,        /* candidates of all modes but search */
    MASK_MAX = 4096 /* values per token and segment up to which outliers are masked here */
};

static inline unsigned max_u16(__m256i v)
{
    const __m128i m = _mm_max_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    const __m128i inv = _mm_minpos_epu16(_mm_xor_si128(m, _mm_set1_epi16(-1)));
    return ~(unsigned)_mm_extract_epi16(inv, 0) & 0xffffu;
}

static inline float max8(__m256 v)
{
    const __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 b = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

static unsigned amax_bits(const uint16_t *x, size_t n)
{
    __m256i a = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += BLOCK) a = _mm256_max_epu16(a, magnitude(load_x(x + i, n - i)));
    return max_u16(a);
}

/* ---- codes of a block at a given scale ---- */

static const float grid_bound[2][7] = { { .25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f },
                                        { .5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f } };
static const float grid_step[2][7] = { { .5f, .5f, .5f, .5f, 1, 1, 2 }, { 1, 1, 1, 1, 1, 1, 1 } };

/* Masks of ax beyond bound j: a tie counts for odd j.  The loops over j are written out (EACH),
 * because the compiler would keep them as loops with a branch, three times as slow. */
#define BEYOND_EVEN(ax, bound) _mm256_cmp_ps(ax, bound, _CMP_GT_OQ)
#define BEYOND_ODD(ax, bound) _mm256_cmp_ps(ax, bound, _CMP_GE_OQ)
#define EACH(DO) DO(0, EVEN) DO(1, ODD) DO(2, EVEN) DO(3, ODD) DO(4, EVEN) DO(5, ODD) DO(6, EVEN)

/* The signs of eight inputs, as bit 3 of a code. */
static inline __m256i sign8(__m128i x)
{
    return _mm256_and_si256(_mm256_cvtepu16_epi32(_mm_srli_epi16(x, 12)), _mm256_set1_epi32(8));
}

static void put_codes(const block *b, size_t n, bool is_int, float s, uint8_t *codes)
{
    __m256i k0 = _mm256_setzero_si256(), k1 = k0;
    if (s == 0) return; /* the page is zero already */
#define COUNT(j, parity)                                                                           \
    {                                                                                              \
        const __m256 bound = _mm256_set1_ps(s * grid_bound[is_int][j]);                            \
        k0 = _mm256_sub_epi32(k0, _mm256_castps_si256(BEYOND_##parity(b->ax0, bound)));            \
        k1 = _mm256_sub_epi32(k1, _mm256_castps_si256(BEYOND_##parity(b->ax1, bound)));            \
    }
    EACH(COUNT)
#undef COUNT
    const __m256i zero = _mm256_setzero_si256();
    const __m256i s0 =
        _mm256_and_si256(sign8(_mm256_castsi256_si128(b->x)), _mm256_cmpgt_epi32(k0, zero));
    const __m256i s1 =
        _mm256_and_si256(sign8(_mm256_extracti128_si256(b->x, 1)), _mm256_cmpgt_epi32(k1, zero));
    put_nibbles(_mm256_or_si256(k0, s0), _mm256_or_si256(k1, s1), n, codes);
}

/* ---- the choice of a block scale ---- */

/* Candidates of one block in the order of preference; at most 13. */
typedef struct list {
    uint8_t sf[2 * LANES];
    unsigned n;
} list;

static void add(list *l, int code, bool is_int)
{
    l->sf[l->n++] = (uint8_t)(code | (is_int ? 0x80 : 0));
}

static void add_near(list *l, int centre, const signed char *delta, size_t n, bool is_int)
{
    for (size_t i = 0; i < n; i++) {
        const int c = centre + delta[i];
        if (c >= 1 && c <= NB_E4M3_MAX) add(l, c, is_int);
    }
}

static void candidates(list *l, float a, nb_kv_mode mode, bool with_int)
{
    static const signed char fp[] = { 0, -1, 1, -2, 2, -3, 3, 4, 5, 6 }, in[] = { 0, -1, 1 };
    const int c6 = nb_e4m3_quotient(a, 6);
    if (mode == NB_KV_SEARCH) {
        add_near(l, c6, fp, sizeof fp, false);
        if (with_int) add_near(l, nb_e4m3_quotient(a, 7), in, sizeof in, true);
        return;
    }
    add(l, c6, false);
    if (mode == NB_KV_4OVER6) add(l, nb_e4m3_quotient(a, 4), false);
    if (with_int) add(l, nb_e4m3_quotient(a, 7), true);
}

/* |x| - x^ squared for eight values at one scale. */
static inline __m256 squares(__m256 ax, const __m256 bound[7], const __m256 step[7])
{
#define PART(j, parity) const __m256 p##j = _mm256_and_ps(BEYOND_##parity(ax, bound[j]), step[j]);
    EACH(PART)
#undef PART
    const __m256 q = _mm256_add_ps(
        _mm256_add_ps(_mm256_add_ps(p0, p1), _mm256_add_ps(p2, p3)), /* exact in any order */
        _mm256_add_ps(_mm256_add_ps(p4, p5), p6));
    const __m256 d = _mm256_sub_ps(ax, q);
    return _mm256_mul_ps(d, d);
}

/* Errors of up to eight candidates; lanes from n on are infinite. */
static void errors(const float *ax, const uint8_t *sf, unsigned n, float e[LANES])
{
    float scale[LANES] = { 0 };
    __m256 bound[7], step[7];
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i byte = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)sf));
    const __m256 is_int = _mm256_castsi256_ps(_mm256_slli_epi32(byte, 24)); /* its sign bit */
    for (unsigned l = 0; l < n; l++) scale[l] = nb_e4m3_value[sf[l] & 0x7f];
    const __m256 s = _mm256_loadu_ps(scale);
    for (unsigned j = 0; j < 7; j++) {
        const __m256 fb = _mm256_set1_ps(grid_bound[0][j]), ib = _mm256_set1_ps(grid_bound[1][j]);
        const __m256 fs = _mm256_set1_ps(grid_step[0][j]), is = _mm256_set1_ps(grid_step[1][j]);
        bound[j] = _mm256_mul_ps(s, _mm256_blendv_ps(fb, ib, is_int));
        step[j] = _mm256_mul_ps(s, _mm256_blendv_ps(fs, is, is_int));
    }
    __m256 sum = _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32((int)n - 1)),
                         _mm256_castps_si256(_mm256_set1_ps(INFINITY))));
    for (unsigned i = 0; i < BLOCK; i++) {
        const __m256 x = _mm256_set1_ps(ax[i]);
        sum = _mm256_add_ps(sum, squares(x, bound, step));
    }
    _mm256_storeu_ps(e, sum);
}

/* The same for at most FEW candidates: here the values are the lanes, and only the sums, in the
 * order of the values, are taken one after the other. */
static void errors_few(const block *b, const uint8_t *sf, unsigned n, float *e)
{
    float sq[FEW][BLOCK] = { { 0 } }, sum[FEW] = { 0 };
    for (unsigned l = 0; l < n; l++) {
        const __m256 s = _mm256_set1_ps(nb_e4m3_value[sf[l] & 0x7f]);
        const unsigned grid = sf[l] >> 7;
        __m256 bound[7], step[7];
#define SCALE(j, parity)                                                                           \
    bound[j] = _mm256_mul_ps(s, _mm256_set1_ps(grid_bound[grid][j]));                              \
    step[j] = _mm256_mul_ps(s, _mm256_set1_ps(grid_step[grid][j]));
        EACH(SCALE)
#undef SCALE
        _mm256_storeu_ps(sq[l], squares(b->ax0, bound, step));
        _mm256_storeu_ps(sq[l] + 8, squares(b->ax1, bound, step));
    }
    for (unsigned i = 0; i < BLOCK; i++)
        for (unsigned l = 0; l < FEW; l++) sum[l] += sq[l][i];
    memcpy(e, sum, n * sizeof *e);
}

static uint8_t choose(const block *b, float a, nb_kv_mode mode, bool with_int)
{
    float ax[BLOCK], e[2 * LANES];
    list l = { .n = 0 };
    unsigned best = 0;
    candidates(&l, a, mode, with_int);
    if (l.n == 1) return l.sf[0];
    if (l.n <= FEW) {
        errors_few(b, l.sf, l.n, e);
    } else {
        _mm256_storeu_ps(ax, b->ax0);
        _mm256_storeu_ps(ax + 8, b->ax1);
        errors(ax, l.sf, l.n < LANES ? l.n : LANES, e);
        if (l.n > LANES) errors(ax, l.sf + LANES, l.n - LANES, e + LANES);
    }
    for (unsigned i = 1; i < l.n; i++)
        if (e[i] < e[best]) best = i;
    return l.sf[best];
}

/* ---- vectors ---- */

/* The outer byte of a vector with largest magnitude a > 0; 127 marks that a fixed scale holds. */
static uint8_t outer_byte(const nb_record_seg *g, unsigned a, unsigned t, int shift)
{
    if (g->fixed_scale != 0) return NB_UE8M0_ONE;
    return nb_ue8m0_from_exp(nb_bf16_ceil_log2((uint16_t)a, t) - shift, SCALE_MIN, SCALE_MAX);
}

static void encode_nv(const nb_record_seg *g, nb_kv_mode mode, const uint16_t *x, uint8_t *codes,
                      uint8_t *sf, uint8_t *outer)
{
    const unsigned a = amax_bits(x, g->dim);
    if (a == 0) return;
    *outer = outer_byte(g, a, 192, 10);
    for (size_t k = 0; k < g->n_group; k++) {
        const size_t at = k * BLOCK, n = g->dim - at;
        const block b = make_block(g, x + at, n, *outer);
        const unsigned ga = max_u16(magnitude(b.x));
        if (ga == 0) continue;
        sf[k] = choose(&b, max8(_mm256_max_ps(b.ax0, b.ax1)), mode, g->fmt == NB_SEG_IF4);
        put_codes(&b, n, sf[k] >> 7, nb_e4m3_value[sf[k] & 0x7f], codes + at / 2);
    }
}

static void encode_mx(const nb_record_seg *g, const uint16_t *x, uint8_t *codes, uint8_t *sf)
{
    for (size_t k = 0; k < g->n_group; k++) {
        const size_t at = k * 2 * BLOCK, n = g->dim - at < 2 * BLOCK ? g->dim - at : 2 * BLOCK;
        const unsigned a = amax_bits(x + at, n);
        if (a == 0) continue;
        sf[k] = nb_ue8m0_from_exp(nb_bf16_ceil_log2((uint16_t)a, 192) - 2, SCALE_MIN, SCALE_MAX);
        for (size_t h = 0; h < n; h += BLOCK) {
            const block b = make_block(g, x + at + h, n - h, sf[k]);
            put_codes(&b, n - h, false, 1, codes + (at + h) / 2);
        }
    }
}

/* E4M3 codes without sign of eight magnitudes <= 448: normal results by rounding
 * the bits, subnormal ones (under 2^-6) by adding 2^14, whose unit is 2^-9. */
static inline __m256i e4m3_mag8(__m256 ax)
{
    const __m256i u = _mm256_castps_si256(ax), one = _mm256_set1_epi32(1);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 20), one);
    const __m256i up =
        _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7ffff - (120 << 23)));
    const __m256i small =
        _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(ax, _mm256_set1_ps(0x1p14f))),
                         _mm256_castps_si256(_mm256_set1_ps(0x1p14f)));
    const __m256 is_small = _mm256_cmp_ps(ax, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ);
    return _mm256_blendv_epi8(_mm256_srli_epi32(up, 20), small, _mm256_castps_si256(is_small));
}

static void encode_e4m3(const nb_record_seg *g, const uint16_t *x, uint8_t *codes, uint8_t *outer)
{
    const size_t dim = g->dim;
    const unsigned a = amax_bits(x, dim);
    if (a == 0) return;
    *outer = outer_byte(g, a, 224, 8);
    for (size_t i = 0; i < dim; i += BLOCK) {
        const block b = make_block(g, x + i, dim - i, *outer);
        const __m256i k =
            _mm256_permute4x64_epi64(_mm256_packus_epi32(e4m3_mag8(b.ax0), e4m3_mag8(b.ax1)), 0xd8);
        const __m256i sign = _mm256_and_si256(_mm256_srli_epi16(b.x, 8), _mm256_set1_epi16(0x80));
        const __m256i c = _mm256_or_si256(k, sign);
        uint8_t out[BLOCK];
        _mm_storeu_si128((__m128i *)out, _mm_packus_epi16(_mm256_castsi256_si128(c),
                                                          _mm256_extracti128_si256(c, 1)));
        memcpy(codes + i, out, dim - i < BLOCK ? dim - i : BLOCK);
    }
}

/* Eight magnitudes in 0..127, with the signs of x, to the nearest integers, ties to even. */
static inline __m256i int8_codes8(__m256 ax, __m128i x)
{
    const __m256i q =
        _mm256_cvttps_epi32(_mm256_round_ps(ax, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    /* psignd makes 0 of what stands beside a zero: an odd number has a sign. */
    return _mm256_sign_epi32(q, _mm256_or_si256(_mm256_cvtepi16_epi32(x), _mm256_set1_epi32(1)));
}

static void encode_int8(const nb_record_seg *g, const uint16_t *x, uint8_t *codes, uint8_t *outer)
{
    const size_t dim = g->dim;
    const unsigned a = amax_bits(x, dim);
    if (a == 0) return;
    *outer = outer_byte(g, a, 254, 6);
    for (size_t i = 0; i < dim; i += BLOCK) {
        const block b = make_block(g, x + i, dim - i, *outer);
        const __m256i q0 = int8_codes8(b.ax0, _mm256_castsi256_si128(b.x));
        const __m256i q1 = int8_codes8(b.ax1, _mm256_extracti128_si256(b.x, 1));
        const __m256i q = _mm256_permute4x64_epi64(_mm256_packs_epi32(q0, q1), 0xd8);
        uint8_t out[BLOCK];
        _mm_storeu_si128((__m128i *)out, _mm_packs_epi16(_mm256_castsi256_si128(q),
                                                         _mm256_extracti128_si256(q, 1)));
        memcpy(codes + i, out, dim - i < BLOCK ? dim - i : BLOCK);
    }
}

static bool all_finite(const nb_record *r, const uint16_t *x, size_t x_stride)
{
    __m256i bad = _mm256_setzero_si256();
    for (size_t t = 0; t < r->n_row; t++)
        for (size_t i = 0; i < r->n_values;
             i += BLOCK) /* an exponent of ones carries into bit 15 */
            bad = _mm256_or_si256(
                bad, _mm256_add_epi16(magnitude(load_x(x + t * x_stride + i, r->n_values - i)),
                                      _mm256_set1_epi16(0x80)));
    return (_mm256_movemask_epi8(bad) & (int)0xaaaaaaaau) == 0;
}

static bool covered(const nb_record_seg *g)
{
    if (g->n_outlier > 0 && g->n_vec * g->dim > MASK_MAX) return false;
    return g->fmt == NB_SEG_BF16 || g->fmt == NB_SEG_E4M3 || g->fmt == NB_SEG_INT8 ||
           g->fmt == NB_SEG_NVFP4 || g->fmt == NB_SEG_IF4 || g->fmt == NB_SEG_MXFP4;
}

static void encode_vec(const nb_record *r, const nb_record_seg *g, uint8_t *page, size_t t,
                       size_t v, const uint16_t *x)
{
    const size_t d = g->dim, half = (d + 1) / 2;
    uint8_t *codes = page + g->code_off + t * g->code_stride;
    uint8_t *sf = page + g->scale_off + t * g->scale_stride + v * g->n_group;
    uint8_t *outer = page + g->outer_off + t * g->outer_stride + v;
    if (g->fmt == NB_SEG_BF16)
        memcpy(codes + v * 2 * d, x, 2 * d); /* x86 is little-endian */
    else if (g->fmt == NB_SEG_E4M3)
        encode_e4m3(g, x, codes + v * d, outer);
    else if (g->fmt == NB_SEG_INT8)
        encode_int8(g, x, codes + v * d, outer);
    else if (g->fmt == NB_SEG_MXFP4)
        encode_mx(g, x, codes + v * half, sf);
    else
        encode_nv(g, r->mode, x, codes + v * half, sf, outer);
}

/* Stores the outliers of a token; returns the row without them. */
static const uint16_t *set_aside(const nb_record_seg *g, uint8_t *page, size_t t,
                                 const uint16_t *row, uint16_t *copy)
{
    uint8_t *side = page + g->side_off + t * g->side_stride;
    memcpy(copy, row, g->n_vec * g->dim * sizeof *copy);
    for (size_t k = 0; k < g->n_outlier; k++) {
        nb_le16_put(side + 2 * k, row[g->outlier[k]]);
        copy[g->outlier[k]] = 0;
    }
    return copy;
}

nb_status nb_kv_encode_avx2(const nb_record *r, void *page, const uint16_t *x, size_t x_stride)
{
    for (size_t s = 0; s < r->n_seg; s++)
        if (!covered(&r->seg[s])) return nb_record_encode_page(r, page, x, x_stride);
    if (!all_finite(r, x, x_stride)) return NB_ERR_NONFINITE;
    memset(page, 0, r->page_bytes);
    for (size_t s = 0; s < r->n_seg; s++) {
        const nb_record_seg *g = &r->seg[s];
        for (size_t t = 0; t < r->n_row; t++) {
            uint16_t copy[MASK_MAX];
            const uint16_t *row = x + t * x_stride + g->first;
            if (g->n_outlier > 0) row = set_aside(g, page, t, row, copy);
            for (size_t v = 0; v < g->n_vec; v++) encode_vec(r, g, page, t, v, row + v * g->dim);
        }
    }
    return NB_OK;
}
