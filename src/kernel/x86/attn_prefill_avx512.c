/* attn_prefill_avx512.c - expanded attention with 16 lanes; the work is attn_prefill_tile.h.
 *
 * Tiles of 8 queries x 2 vectors: 16 chains, where 8 hide the latency of FMA, and 10 loads go with 16
 * FMA, so that two loads a cycle suffice.  12 x 2 would need less, but 64 queries are no multiple of
 * 12.  A panel of keys of 128 + 64 dimensions is 24 KiB, of values 8 KiB: L1 has 48.
 * Bound by the FMA units, (d1 + d2 + d_v) / 16 FMA per query and token, to which the exponential
 * adds 12 per 16 tokens on the same ports. */
#include "kernel/x86/attn_vec_avx512.h"

#define LANE 16
#define VEC __m512
#define LOAD(p) _mm512_load_ps(p)
#define STORE(p, v) _mm512_store_ps(p, v)
#define LOAD_U(p) _mm512_loadu_ps(p)
#define STORE_U(p, v) _mm512_storeu_ps(p, v)
#define SET1(x) _mm512_set1_ps(x)
#define ZERO() _mm512_setzero_ps()
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define ADD(a, b) _mm512_add_ps(a, b)
#define SUB(a, b) _mm512_sub_ps(a, b)
#define MAX(a, b) _mm512_max_ps(a, b)
#define MASK __mmask16
#define FIRST(n) nb_avx512_mask16(n)
#define PICK(m, a, b) _mm512_mask_blend_ps(m, b, a)
#define LOAD_N(p, n) _mm512_maskz_loadu_ps(nb_avx512_mask16(n), p)
#define STORE_N(p, n, v) _mm512_mask_storeu_ps(p, nb_avx512_mask16(n), v)
#define TIMES_EXP2(y, n)                                                                           \
    _mm512_castsi512_ps(                                                                           \
        _mm512_add_epi32(_mm512_castps_si512(y), _mm512_slli_epi32(_mm512_castps_si512(n), 23)))
#define LOW(v) _mm512_cvtss_f32(v)
#define JOIN(v) nb_avx512_join(v)
#define TOP(v) nb_avx512_max_lane(v)
#define ROWS 8
#define ROW_MAIN R8
#define ROW_TAIL R4
#define NAME(f) f##_avx512

#include "kernel/x86/attn_prefill_tile.h"
