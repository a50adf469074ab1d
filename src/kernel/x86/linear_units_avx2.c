/* linear_units_avx2.c - products with packed weights in AVX2 (linear_units_avx2.h), and the packs of 256 bits. */
#define UNITS_VNNI 0
#include "kernel/x86/linear_units_avx2.h"

/* ---- activations: pairs for the even and the odd bytes of four codes; bytes, if they have 8 bits ---- */

/* sx, minus, sum and unused from q of both halves: a few vectors, because scalars cost more than the products of a row. */
INLINE void pack_sums(nb_pk_x *o, float sx, __m256i half0, __m256i half1)
{
    const __m256i twos = _mm256_hadd_epi32(_mm256_madd_epi16(half0, vi_ones()), _mm256_madd_epi16(half1, vi_ones()));
    const __m256i quads = _mm256_hadd_epi32(twos, twos);
    const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(quads), _mm256_extracti128_si256(quads, 1));
    /* Of the unit, the first half, the second half, nothing. */
    const __m128i both = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)), none = _mm_setzero_si128();
    const __m128i sum = _mm_blend_epi16(_mm_alignr_epi8(half, both, 12), none, 0xc0);
    const __m128i n = _mm_sub_epi32(none, sum), c64 = _mm_set1_epi32(64), low = _mm_set1_epi32(127);
    const __m128i lo = _mm_sub_epi32(_mm_and_si128(_mm_add_epi32(n, c64), low), c64);
    const __m128i hi = _mm_srai_epi32(_mm_sub_epi32(n, lo), 7); /* exact */
    const __m128i minus = _mm_blend_epi16(lo, _mm_slli_epi32(hi, 16), 0xaa);
    const __m128 by = _mm_blend_ps(_mm_set1_ps(sx), _mm_setzero_ps(), 8);
    const __m128 first = _mm_castsi128_ps(_mm_alignr_epi8(minus, _mm_slli_si128(_mm_castps_si128(by), 12), 12));
    _mm_storeu_ps(&o->sx, first);
    _mm_storeu_ps(o->sum, _mm_mul_ps(_mm_cvtepi32_ps(sum), by));
}

static inline int32_t max8(__m256i m)
{
    __m128i v = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    v = _mm_max_epu32(v, _mm_shuffle_epi32(v, 0x4e));
    v = _mm_max_epu32(v, _mm_shuffle_epi32(v, 0xb1));
    return _mm_cvtsi128_si32(v);
}

/* 16 values as integers of 16 bits. */
INLINE __m256i pack16(const float *x, __m256 inv)
{
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inv));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inv));
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
}

INLINE void pack_unit(const float *x, const float max, const bool words, nb_pk_x *o)
{
    const __m256i mag = _mm256_set1_epi32(0x7fffffff);
    const __m256i a = _mm256_max_epu32(_mm256_and_si256(mag, vi_load(x)), _mm256_and_si256(mag, vi_load(x + 8)));
    const __m256i b = _mm256_max_epu32(_mm256_and_si256(mag, vi_load(x + 16)), _mm256_and_si256(mag, vi_load(x + 24)));
    const int32_t bits = max8(_mm256_max_epu32(a, b));
    __m256i half0 = vi_zero(), half1 = vi_zero();
    float m, sx = 0;
    memcpy(&m, &bits, sizeof m);
    if (bits >= 0x7f800000) {
        const uint32_t nan = 0x7fc00000;
        memcpy(&sx, &nan, sizeof nan);
    } else if (m >= NB_PK_X_MIN) {
        const __m256 inv = _mm256_set1_ps(max / m);
        sx = m / max;
        half0 = pack16(x, inv);
        half1 = pack16(x + 16, inv);
    }
    pack_sums(o, sx, half0, half1);
    if (max == NB_PK_X_MAX8) {
        const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(half0, half1), 0xd8);
        const __m256i even_odd = vi_bytes16(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        const __m256i v = words ? _mm256_shuffle_epi8(bytes, even_odd) : bytes;
        vi_store(o->q, v); /* then those of low nibbles, of high ones (x_words) */
        vi_store(o->q + 16, _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)));
        return;
    }
    /* Bytes 0..3 of codes: pairs (0, 2), (1, 3); with words they are columns 0 2 4 6, then 1 3 5 7. */
    const __m256i order = words ? vi_bytes16(0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15)
                                : vi_bytes16(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    vi_store(o->q, _mm256_shuffle_epi8(half0, order));
    vi_store(o->q + 16, _mm256_shuffle_epi8(half1, order));
}

INLINE void pack(void *xp, const float *x, size_t x_stride, size_t n_col, const uint32_t *column,
                 size_t tok0, size_t tok1, const float max, const bool words)
{
    const size_t n_unit = nb_pk_units(n_col);
    for (size_t t = tok0; t < tok1; t++) {
        const float *from = x + t * x_stride;
        nb_pk_x *to = (nb_pk_x *)xp + t * n_unit;
        for (size_t u = 0; u < n_unit; u++) {
            const size_t c = u * NB_PK_UNIT, n = n_col - c < NB_PK_UNIT ? n_col - c : NB_PK_UNIT;
            float v[NB_PK_UNIT] = { 0 };
            for (size_t i = 0; (column || n < NB_PK_UNIT) && i < n; i++)
                v[i] = from[column ? column[c + i] : c + i];
            pack_unit(column || n < NB_PK_UNIT ? v : from + c, max, words, &to[u]);
        }
    }
}

#define PACK(name, max, words)                                                                     \
    void name(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,               \
              const uint32_t *column, size_t tok0, size_t tok1)                                    \
    {                                                                                              \
        (void)n_tok;                                                                               \
        pack(xp, x, x_stride, n_col, column, tok0, tok1, max, words);                              \
    }
PACK(nb_linear_units_pack_avx2, NB_PK_X_MAX, false)
PACK(nb_linear_units_pack_words_avx2, NB_PK_X_MAX, true)
PACK(nb_linear_units_pack8_avx2, NB_PK_X_MAX8, false)
PACK(nb_linear_units_pack8_words_avx2, NB_PK_X_MAX8, true)

/* ---- rows ---- */

#include "kernel/x86/units_t.h"

void nb_linear_units_avx2(const nb_linear_args *a)
{
    linear_units(a, false);
}
void nb_linear_units8_avx2(const nb_linear_args *a)
{
    linear_units(a, true);
}
void nb_linear_t_units_avx2(const nb_linear_args *a)
{
    linear_t_units(a);
}
