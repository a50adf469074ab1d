/* kv_residual_avx2.c - the residual plane with AVX2, bit for bit as num/residual.c.
 *
 * The tables of cells have eight entries, one per lane, so that a permutation by the magnitude
 * index looks up eight values at once.  All products and sums are exact, so that their order does
 * not matter.  Encoding halves the cell four times, as the portable code does.
 *
 * Decoding leaves vectors with extreme outer scales to nb_residual_decode, a token at a time. */
#include "kernel/kv_residual/kv_residual.h"

#include "kernel/x86/kv_block_avx2.h"
#include "num/e4m3.h"
#include "num/residual_cells.h"

/* n values of a row of nibbles, one per byte; nothing is read beyond them. */
static inline __m128i nibbles(const uint8_t *row, size_t n)
{
    uint8_t t[BLOCK / 2] = { 0 };
    if (n >= BLOCK) return nibbles16(row);
    memcpy(t, row, (n + 1) / 2);
    return nibbles16(t);
}

/* ---- decoding ---- */

/* Eight middles, with their signs; code and part: one per lane. */
static inline __m256 middle8(const nb_cells *c, __m256i code, __m256i part)
{
    const __m256i i = _mm256_and_si256(code, _mm256_set1_epi32(7));
    const __m256 mid = _mm256_permutevar8x32_ps(_mm256_loadu_ps(c->mid), i);
    const __m256 step = _mm256_permutevar8x32_ps(_mm256_loadu_ps(c->step), i);
    const __m256 v = _mm256_add_ps(mid, _mm256_mul_ps(_mm256_cvtepi32_ps(part), step));
    const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(code, 3), 31);
    const __m256i none = _mm256_cmpeq_epi32(i, _mm256_setzero_si256());
    return _mm256_xor_ps(v, _mm256_castsi256_ps(_mm256_andnot_si256(none, sign)));
}

static inline void decode_block(const nb_cells *c, __m128i codes, __m128i parts, float s, float o,
                                float *out)
{
    const __m256 s8 = _mm256_set1_ps(s), o8 = _mm256_set1_ps(o);
    const __m256 a = middle8(c, _mm256_cvtepu8_epi32(codes), _mm256_cvtepu8_epi32(parts));
    const __m256 b = middle8(c, _mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8)),
                             _mm256_cvtepu8_epi32(_mm_srli_si128(parts, 8)));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_mul_ps(a, s8), o8));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_mul_ps(b, s8), o8));
}

static bool decode_vec(const nb_record *r, const uint8_t *page, size_t t, size_t v,
                       const uint8_t *row, float *out)
{
    const nb_record_seg *g = &r->seg[0];
    const uint8_t *codes = page + g->code_off + t * g->code_stride + v * ((g->dim + 1) / 2);
    const uint8_t *sf = page + g->scale_off + t * g->scale_stride + v * g->n_group;
    const unsigned outer = page[g->outer_off + t * g->outer_stride + v];
    if (!easy(outer)) return false;
    const float o = g->fixed_scale != 0 ? g->fixed_scale : nb_f32_pow2((int)outer - 127);
    for (size_t k = 0; k < g->n_group; k++) {
        const size_t at = k * BLOCK, n = g->dim - at < BLOCK ? g->dim - at : BLOCK;
        float tmp[BLOCK] = { 0 };
        if ((sf[k] & 0x7f) != 0)
            decode_block(nb_cells_of(r, sf[k]), nibbles(codes + at / 2, n),
                         nibbles(row + at / 2, n), nb_e4m3_value[sf[k] & 0x7f], o, tmp);
        memcpy(out + at, tmp, n * sizeof *out);
    }
    return true;
}

void nb_kv_residual_decode_avx2(const nb_record *r, const void *page, size_t tok, const void *row,
                                float *out)
{
    const nb_record_seg *g = &r->seg[0];
    for (size_t v = 0; v < g->n_vec; v++)
        if (!decode_vec(r, page, tok, v, (const uint8_t *)row + v * ((g->dim + 1) / 2),
                        out + v * g->dim)) {
            nb_residual_decode(r, page, tok, row, out);
            return;
        }
    fix_outliers(g, page, tok, out);
}

/* ---- encoding ---- */

/* The parts of eight values; mag: their input bits without sign, neg: sign bits in bit 31. */
static inline __m256i part8(const nb_cells *c, __m256i code, float s, __m256 ax, __m256i mag,
                            __m256i neg)
{
    const __m256i i = _mm256_and_si256(code, _mm256_set1_epi32(7)), zero = _mm256_setzero_si256();
    const __m256i centre = _mm256_cmpeq_epi32(i, zero);
    const __m256 s8 = _mm256_set1_ps(s);
    const __m256 lo = _mm256_mul_ps(s8, _mm256_permutevar8x32_ps(_mm256_loadu_ps(c->lo), i));
    const __m256 step = _mm256_mul_ps(s8, _mm256_permutevar8x32_ps(_mm256_loadu_ps(c->step), i));
    /* what underflowed keeps its sign; bits of a magnitude compare as integers */
    const __m256i gone = _mm256_andnot_si256(_mm256_cmpeq_epi32(mag, zero),
                                             _mm256_cmpeq_epi32(_mm256_castps_si256(ax), zero));
    const __m256i y = _mm256_blendv_epi8(_mm256_castps_si256(ax),
                                         _mm256_castps_si256(_mm256_set1_ps(FLT_MIN)), gone);
    const __m256 sy = _mm256_castsi256_ps(_mm256_xor_si256(y, _mm256_and_si256(centre, neg)));
    __m256 part = _mm256_setzero_ps();
    for (float half = 8; half >= 1; half /= 2) {
        const __m256 next = _mm256_add_ps(part, _mm256_set1_ps(half));
        const __m256 cut = _mm256_add_ps(lo, _mm256_mul_ps(next, step));
        part = _mm256_blendv_ps(part, next, _mm256_cmp_ps(sy, cut, _CMP_GE_OQ));
    }
    return _mm256_cvtps_epi32(part);
}

static void encode_block(const nb_cells *c, const block *b, __m128i codes, float s, size_t n,
                         uint8_t *row)
{
    const __m256i m = magnitude(b->x);
    const __m128i x0 = _mm256_castsi256_si128(b->x), x1 = _mm256_extracti128_si256(b->x, 1);
    const __m256i top = _mm256_set1_epi32((int)0x80000000u);
    const __m256i k0 = part8(c, _mm256_cvtepu8_epi32(codes), s, b->ax0,
                             widen8(_mm256_castsi256_si128(m)), _mm256_and_si256(widen8(x0), top));
    const __m256i k1 =
        part8(c, _mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8)), s, b->ax1,
              widen8(_mm256_extracti128_si256(m, 1)), _mm256_and_si256(widen8(x1), top));
    put_nibbles(k0, k1, n, row);
    if (n < BLOCK && n % 2) row[n / 2] &= 15;
}

static void encode_vec(const nb_record *r, const uint8_t *page, size_t t, size_t v,
                       const uint16_t *x, uint8_t *row)
{
    const nb_record_seg *g = &r->seg[0];
    const uint8_t *codes = page + g->code_off + t * g->code_stride + v * ((g->dim + 1) / 2);
    const uint8_t *sf = page + g->scale_off + t * g->scale_stride + v * g->n_group;
    const unsigned outer = page[g->outer_off + t * g->outer_stride + v];
    if (outer == 0) return;
    for (size_t k = 0; k < g->n_group; k++) {
        const size_t at = k * BLOCK, n = g->dim - at < BLOCK ? g->dim - at : BLOCK;
        if ((sf[k] & 0x7f) == 0) continue;
        const block b = make_block(g, x + at, n, outer);
        encode_block(nb_cells_of(r, sf[k]), &b, nibbles(codes + at / 2, n),
                     nb_e4m3_value[sf[k] & 0x7f], n, row + at / 2);
    }
}

void nb_kv_residual_encode_avx2(const nb_record *r, const void *page, const uint16_t *x,
                                size_t x_stride, void *plane)
{
    const nb_record_seg *g = &r->seg[0];
    const size_t row_bytes = nb_residual_row_bytes(r), vec_bytes = (g->dim + 1) / 2;
    memset(plane, 0, nb_residual_page_bytes(r));
    for (size_t t = 0; t < NB_PAGE_TOK; t++) {
        uint8_t *row = (uint8_t *)plane + t * row_bytes;
        for (size_t v = 0; v < g->n_vec; v++)
            encode_vec(r, page, t, v, x + t * x_stride + v * g->dim, row + v * vec_bytes);
        for (size_t k = 0; k < g->n_outlier; k++) {
            const size_t e = g->outlier[k] % g->dim;
            row[g->outlier[k] / g->dim * vec_bytes + e / 2] &= e % 2 ? 0x0f : 0xf0;
        }
    }
}
