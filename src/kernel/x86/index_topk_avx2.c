/* index_topk_avx2.c - choice of the largest scores, eight at a time.
 *
 * The first pass counts all scores in 2,048 bins: keys are made in vectors, counting is scalar, in two tables in turn so
 * that equal bins that follow each other do not wait.  Later passes look at vectors that have a score in the bin, or
 * above the cut, which few have. */
#include <string.h>

#include "kernel/index_topk/index_topk.h"
#include "kernel/x86/vec_avx2.h"

/* nb_index_key of eight scores. */
static inline __m256i keys(const float *s)
{
    const __m256 x = _mm256_loadu_ps(s);
    const __m256i u = _mm256_castps_si256(_mm256_add_ps(x, _mm256_setzero_ps()));
    const __m256i sign = _mm256_srai_epi32(u, 31);
    const __m256i key =
        _mm256_xor_si256(u, _mm256_or_si256(sign, _mm256_set1_epi32((int)0x80000000u)));
    return _mm256_and_si256(key, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_EQ_OQ)));
}

static uint32_t first_bin(const nb_index_topk_args *a, size_t *n)
{
    uint32_t count[2][NB_INDEX_BINS];
    size_t i = 0;
    memset(count, 0, sizeof count);
    for (; i + 8 <= a->n; i += 8) {
        uint32_t bin[8];
        _mm256_storeu_si256((__m256i *)(void *)bin, _mm256_srli_epi32(keys(a->s + i), 21));
        for (size_t j = 0; j < 8; j++) count[j % 2][bin[j]]++;
    }
    for (; i < a->n; i++) count[0][nb_index_key(a->s[i]) >> 21]++;
    for (i = 0; i < NB_INDEX_BINS; i++) count[0][i] += count[1][i];
    return nb_index_bin(count[0], NB_INDEX_BINS, n);
}

/* Counts the bits below `shift` and above `low` of keys whose bits from `shift` on are `top`. */
static void count_in(const nb_index_topk_args *a, uint32_t top, int shift, int low, uint32_t *count)
{
    const __m256i want = _mm256_set1_epi32((int)top);
    const uint32_t mask = (1u << (shift - low)) - 1;
    const __m128i by = _mm_cvtsi32_si128(shift);
    size_t i = 0;
    memset(count, 0, (mask + 1) * sizeof *count);
    for (; i + 8 <= a->n; i += 8) {
        const __m256i key = keys(a->s + i);
        const __m256i hit = _mm256_cmpeq_epi32(_mm256_srl_epi32(key, by), want);
        unsigned bits = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(hit));
        for (; bits; bits &= bits - 1)
            count[nb_index_key(a->s[i + (size_t)__builtin_ctz(bits)]) >> low & mask]++;
    }
    for (; i < a->n; i++) {
        const uint32_t key = nb_index_key(a->s[i]);
        if (key >> shift == top) count[key >> low & mask]++;
    }
}

void nb_index_topk_avx2(const nb_index_topk_args *a)
{
    uint32_t count[NB_INDEX_BINS];
    size_t left = a->k, n = 0, i = 0;
    if (a->k == 0) return;
    uint32_t cut = first_bin(a, &left);
    count_in(a, cut, 21, 10, count);
    cut = cut << 11 | nb_index_bin(count, NB_INDEX_BINS, &left);
    count_in(a, cut, 10, 0, count);
    cut = cut << 10 | nb_index_bin(count, 1024, &left);
    /* unsigned key >= cut: the larger of both is the key */
    const __m256i least = _mm256_set1_epi32((int)cut);
    for (; i + 8 <= a->n && n < a->k; i += 8) {
        const __m256i key = keys(a->s + i);
        const __m256i hit = _mm256_cmpeq_epi32(_mm256_max_epu32(key, least), key);
        unsigned bits = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(hit));
        for (; bits && n < a->k; bits &= bits - 1) {
            const size_t at = i + (size_t)__builtin_ctz(bits);
            if (nb_index_key(a->s[at]) == cut && left-- == 0) {
                left = 0;
                continue;
            }
            a->at[n++] = (uint32_t)at;
        }
    }
    for (; i < a->n && n < a->k; i++) {
        const uint32_t key = nb_index_key(a->s[i]);
        if (key < cut || (key == cut && left == 0)) continue;
        left -= key == cut;
        a->at[n++] = (uint32_t)i;
    }
}
