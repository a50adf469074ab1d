/* attn_prefill_avx2.c - expanded attention with 8 lanes; the work is attn_prefill_tile.h.
 *
 * Tiles of 6 queries x 2 vectors: 12 chains hide the latency of FMA, and 8 loads go with 12 FMA.
 * Bound by the FMA units, (d1 + d2 + d_v) / 8 FMA per query and token, to which the exponential adds
 * 6 per 8. */
#include "kernel/x86/vec_avx2.h"

#define LANE 8
#define VEC __m256
#define LOAD(p) _mm256_load_ps(p)
#define STORE(p, v) _mm256_store_ps(p, v)
#define LOAD_U(p) _mm256_loadu_ps(p)
#define STORE_U(p, v) _mm256_storeu_ps(p, v)
#define SET1(x) _mm256_set1_ps(x)
#define ZERO() _mm256_setzero_ps()
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define ADD(a, b) _mm256_add_ps(a, b)
#define SUB(a, b) _mm256_sub_ps(a, b)
#define MAX(a, b) _mm256_max_ps(a, b)
#define MASK __m256
#define FIRST(n) _mm256_castsi256_ps(nb_avx2_mask(n))
#define PICK(m, a, b) _mm256_blendv_ps(b, a, m)
#define LOAD_N(p, n) _mm256_maskload_ps(p, nb_avx2_mask(n))
#define STORE_N(p, n, v) _mm256_maskstore_ps(p, nb_avx2_mask(n), v)
#define TIMES_EXP2(y, n)                                                                           \
    _mm256_castsi256_ps(                                                                           \
        _mm256_add_epi32(_mm256_castps_si256(y), _mm256_slli_epi32(_mm256_castps_si256(n), 23)))
#define LOW(v) _mm256_cvtss_f32(v)
#define JOIN(v) nb_avx2_join(v)
#define TOP(v) top_of(v)
#define ROWS 6
#define ROW_MAIN R6
#define ROW_TAIL R4
#define NAME(f) f##_avx2

static inline float top_of(__m256 v)
{
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}

#include "kernel/x86/attn_prefill_tile.h"
