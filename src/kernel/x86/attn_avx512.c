/* attn_avx512.c - attention over a tile of up to 64 tokens, 512 bits.
 *
 * As attn_avx2.c: a batch of rows (attn_rows.h) goes through scores, weights and values.
 *
 *   scores  tiles of 8 rows x 6 tokens: a vector holds 8 dimensions of two tokens, so that a score
 *           has the order of summation, and the bits, of attn_avx2.c: attn_score needs no row of its
 *           own.  24 FMA, 3 insertions and 14 loads: 89 % of the FMA rate.
 *   weights 16 tokens at once; their sum in lanes t % 16, joined as in vec_avx512.h
 *   values  tiles of 8 rows x 2 vectors of 16 columns, one chain over the tokens from 0
 *
 * Rows that are left over go by 4, then alone.  Tokens a row may not see never enter its sums, not
 * even with weight 0 (they may be anything). */
#include "kernel/attn/attn_rows.h"

#include <math.h>

#include "kernel/x86/attn_scores_avx2.h"
#include "kernel/x86/attn_vec_avx512.h"

enum { BLOCK = 8, STRIP = 128, T_MAX = NB_ATTN_TILE };

#define ROW8(M, T) ROW4(M, T) M(4, T) M(5, T) M(6, T) M(7, T)

/* ---- scores ---- */

#define TWO3(M, r) M(r, 0) M(r, 1) M(r, 2)
#define DECL(r, t) __m512 a##r##t = _mm512_setzero_ps();
#define DECL_ROW(r, T) T(DECL, r)
#define K_LOAD(r, t)                                                                               \
    const __m512 kv##t =                                                                           \
        two(_mm256_loadu_ps(k + 2 * t * ks + i), _mm256_loadu_ps(k + (2 * t + 1) * ks + i));
#define K_TAIL(r, t)                                                                               \
    const __m512 kv##t = two(_mm256_maskload_ps(k + 2 * t * ks + i, mask),                         \
                             _mm256_maskload_ps(k + (2 * t + 1) * ks + i, mask));
#define FMA(r, t) a##r##t = _mm512_fmadd_ps(qv, kv##t, a##r##t);
#define FMA_ROW(r, T)                                                                              \
    {                                                                                              \
        const __m512 qv = _mm512_broadcast_f32x8(_mm256_loadu_ps(q[r] + from + i));                \
        T(FMA, r)                                                                                  \
    }
#define FMA_ROW_TAIL(r, T)                                                                         \
    {                                                                                              \
        const __m512 qv = _mm512_broadcast_f32x8(_mm256_maskload_ps(q[r] + from + i, mask));       \
        T(FMA, r)                                                                                  \
    }
/* One part of the dot products: n values, in q from `from` on. */
#define PART(ROWS, key, stride, first, count)                                                      \
    {                                                                                              \
        const float *k = (key);                                                                    \
        const size_t ks = (stride), from = (first), n = (count);                                   \
        size_t i = 0;                                                                              \
        for (; i + 8 <= n; i += 8) {                                                               \
            TWO3(K_LOAD, 0)                                                                        \
            ROWS(FMA_ROW, TWO3)                                                                    \
        }                                                                                          \
        if (i < n) {                                                                               \
            const __m256i mask = nb_avx2_mask(n - i);                                              \
            TWO3(K_TAIL, 0)                                                                        \
            ROWS(FMA_ROW_TAIL, TWO3)                                                               \
        }                                                                                          \
    }
/* p[r * T_MAX + t] = q[r] . k[t] for tokens t < n_tok / 6 * 6, which is returned. */
#define SCORES(name, ROWS, JOIN)                                                                   \
    static size_t name(const nb_avx2_keys *a, const float *const *q, size_t n_tok, float *p)       \
    {                                                                                              \
        size_t t = 0;                                                                              \
        for (; t + 6 <= n_tok; t += 6) {                                                           \
            ROWS(DECL_ROW, TWO3)                                                                   \
            PART(ROWS, a->k1 + t * a->k1_stride, a->k1_stride, 0, a->d1)                           \
            if (a->d2) PART(ROWS, a->k2 + t * a->k2_stride, a->k2_stride, a->d1, a->d2)            \
            JOIN                                                                                   \
        }                                                                                          \
        return t;                                                                                  \
    }

static inline __m512 two(__m256 a, __m256 b)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1);
}

/* Per 128 bits: hadd of two vectors. */
static inline __m512 pairs(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* Sums of the halves of 4 rows, two tokens, in the order of nb_avx2_join4. */
static inline void store_two(float *p, __m512 a, __m512 b, __m512 c, __m512 d)
{
    const __m512 s = pairs(pairs(a, b), pairs(c, d));
    const __m512 sum = _mm512_add_ps(s, _mm512_shuffle_f32x4(s, s, 0xb1));
    nb_avx2_store4(p, T_MAX, _mm512_castps512_ps128(sum));
    nb_avx2_store4(p + 1, T_MAX, _mm512_extractf32x4_ps(sum, 2));
}

#define JOIN4                                                                                      \
    store_two(p + t, a00, a10, a20, a30);                                                          \
    store_two(p + t + 2, a01, a11, a21, a31);                                                      \
    store_two(p + t + 4, a02, a12, a22, a32);
#define JOIN8                                                                                      \
    JOIN4                                                                                          \
    store_two(p + 4 * T_MAX + t, a40, a50, a60, a70);                                              \
    store_two(p + 4 * T_MAX + t + 2, a41, a51, a61, a71);                                          \
    store_two(p + 4 * T_MAX + t + 4, a42, a52, a62, a72);
SCORES(scores_4x6, ROW4, JOIN4)
SCORES(scores_8x6, ROW8, JOIN8)

/* Scores of rows [r, r + n), n 8, 4 or 1, of as many tokens as one of them sees. */
static void scores(nb_attn_rows *b, const nb_avx2_keys *k, size_t r, size_t n)
{
    const size_t n_tok = nb_attn_rows_most(b, r, n);
    size_t t = 0;
    if (n == 8) t = scores_8x6(k, b->q + r, n_tok, b->p[r]);
    if (n == 4) t = scores_4x6(k, b->q + r, n_tok, b->p[r]);
    nb_avx2_keys left = *k;
    left.k1 += t * k->k1_stride;
    if (k->d2) left.k2 += t * k->k2_stride;
    for (size_t i = 0; n >= 4 && i < n; i += 4)
        nb_avx2_scores_4(&left, b->q + r + i, n_tok - t, b->p[r + i] + t, T_MAX);
    if (n == 1) nb_avx2_scores_1(&left, b->q + r, n_tok, b->p[r], T_MAX);
}

/* ---- weights ---- */

/* Scores of row r become weights; m, l and keep of the row follow. */
static void weights(nb_attn_rows *b, size_t r, float scale)
{
    const size_t n = b->n_vis[r];
    const __m512 sv = _mm512_set1_ps(scale), none = _mm512_set1_ps(-INFINITY);
    float *p = b->p[r], m0 = *b->m[r];
    __m512 top = none, sum = _mm512_setzero_ps();
    for (size_t t = 0; t < n; t += 16) {
        const __mmask16 in = nb_avx512_mask16(n - t < 16 ? n - t : 16);
        const __m512 s = _mm512_mask_mul_ps(none, in, _mm512_load_ps(p + t), sv);
        _mm512_store_ps(p + t, s);
        top = _mm512_max_ps(s, top); /* a NaN score is passed over, as in the portable code */
    }
    const float top0 = nb_avx512_max_lane(top), m1 = top0 > m0 ? top0 : m0;
    const __m512 mv = _mm512_set1_ps(m1);
    for (size_t t = 0; t < n; t += 16) {
        const __mmask16 in = nb_avx512_mask16(n - t < 16 ? n - t : 16);
        const __m512 e = nb_avx512_exp(_mm512_sub_ps(_mm512_load_ps(p + t), mv));
        _mm512_store_ps(p + t, e);
        sum = _mm512_mask_add_ps(sum, in, sum, e);
    }
    const float keep =
        m0 == -INFINITY ? 0 : _mm512_cvtss_f32(nb_avx512_exp(_mm512_set1_ps(m0 - m1)));
    const float l = (keep != 0 ? *b->l[r] * keep : 0) + nb_avx512_join(sum);
    b->keep[r] = keep;
    *b->l[r] = l;
    *b->m[r] = l == l ? m1 : NAN;
}

/* ---- values ---- */

/* sum[row][column] += sum over t in [t0, t1) of p[row][t] v[t]. */
#define VEC1(M, r) M(r, 0)
#define VEC2(M, r) M(r, 0) M(r, 1)
#define VEC8(M, r) VEC2(M, r) M(r, 2) M(r, 3) M(r, 4) M(r, 5) M(r, 6) M(r, 7)
#define S_LOAD(r, c) __m512 a##r##c = _mm512_load_ps(sum + r * STRIP + c * 16);
#define S_LOAD_ROW(r, V) V(S_LOAD, r)
#define S_STORE(r, c) _mm512_store_ps(sum + r * STRIP + c * 16, a##r##c);
#define S_STORE_ROW(r, V) V(S_STORE, r)
#define V_LOAD(r, c) const __m512 v##c = _mm512_loadu_ps(v + t * vs + c * 16);
#define V_TAIL(r, c) const __m512 v##c = _mm512_maskz_loadu_ps(mask, v + t * vs + c * 16);
#define V_FMA(r, c) a##r##c = _mm512_fmadd_ps(pv, v##c, a##r##c);
#define V_ROW(r, V)                                                                                \
    {                                                                                              \
        const __m512 pv = _mm512_set1_ps(p[r * T_MAX + t]);                                        \
        V(V_FMA, r)                                                                                \
    }
#define VALUES(name, ROWS, VECS, LOAD)                                                             \
    static void name(const float *p, const float *v, size_t vs, size_t t0, size_t t1, float *sum,  \
                     __mmask16 mask)                                                               \
    {                                                                                              \
        ROWS(S_LOAD_ROW, VECS)                                                                     \
        for (size_t t = t0; t < t1; t++) {                                                         \
            VECS(LOAD, 0)                                                                          \
            ROWS(V_ROW, VECS)                                                                      \
        }                                                                                          \
        ROWS(S_STORE_ROW, VECS)                                                                    \
        (void)mask;                                                                                \
    }
VALUES(values_8x2, ROW8, VEC2, V_LOAD)
VALUES(values_8xm, ROW8, VEC1, V_TAIL)
VALUES(values_4x2, ROW4, VEC2, V_LOAD)
VALUES(values_4xm, ROW4, VEC1, V_TAIL)
VALUES(values_1x8, ROW1, VEC8, V_LOAD)
VALUES(values_1xm, ROW1, VEC1, V_TAIL)

typedef void values_fn(const float *p, const float *v, size_t vs, size_t t0, size_t t1, float *sum,
                       __mmask16 mask);

/* n_d columns: `wide` at once by one function, then by 16 or what is left of them. */
static void columns(values_fn *fn, size_t wide, values_fn *tail, const float *p, const float *v,
                    size_t vs, size_t t0, size_t t1, float *sum, size_t n_d)
{
    size_t d = 0;
    for (; d + wide <= n_d; d += wide) fn(p, v + d, vs, t0, t1, sum + d, 0xffff);
    for (; d < n_d; d += 16)
        tail(p, v + d, vs, t0, t1, sum + d, nb_avx512_mask16(n_d - d < 16 ? n_d - d : 16));
}

static void update_o(float *o, const float *sum, float keep, size_t n_d)
{
    const __m512 kv = _mm512_set1_ps(keep);
    for (size_t d = 0; d < n_d; d += 16) {
        const __mmask16 mask = nb_avx512_mask16(n_d - d < 16 ? n_d - d : 16);
        __m512 s = _mm512_load_ps(sum + d);
        if (keep != 0) s = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, o + d), kv, s);
        _mm512_mask_storeu_ps(o + d, mask, s);
    }
}

/* Rows [r, r + n) of the batch, n 8, 4 or 1, columns [d, d + n_d) of v. */
static void add_values(nb_attn_rows *b, const nb_attn_args *a, const float *v, size_t r, size_t n,
                       size_t d, size_t n_d)
{
    const size_t vs = a->v_stride;
    _Alignas(64) float sum[BLOCK][STRIP]; /* weighted values */
    const size_t common = n == 1 ? 0 : nb_attn_rows_least(b, r, n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_d; j += 16) _mm512_store_ps(sum[i] + j, _mm512_setzero_ps());
    if (n == 8) columns(values_8x2, 32, values_8xm, b->p[r], v + d, vs, 0, common, sum[0], n_d);
    if (n == 4) columns(values_4x2, 32, values_4xm, b->p[r], v + d, vs, 0, common, sum[0], n_d);
    for (size_t i = 0; i < n; i++) {
        if (b->n_vis[r + i] > common)
            columns(values_1x8, 128, values_1xm, b->p[r + i], v + d, vs, common, b->n_vis[r + i],
                    sum[i], n_d);
        update_o(b->o[r + i] + d, sum[i], b->keep[r + i], n_d);
    }
}

static size_t block_rows(const nb_attn_rows *b, size_t r)
{
    const size_t left = b->n_row - r;
    return left >= 8 ? 8 : left >= 4 ? 4 : 1;
}

static void run_batch(nb_attn_rows *b, const nb_attn_args *a, size_t g)
{
    const nb_avx2_keys k = {
        a->k1 + g * a->k1_head, a->k2, a->k1_stride, a->k2_stride, a->d1, a->d2
    };
    const float *v = a->v + g * a->v_head;
    for (size_t r = 0; r < b->n_row; r += block_rows(b, r)) scores(b, &k, r, block_rows(b, r));
    for (size_t r = 0; r < b->n_row; r++) weights(b, r, a->scale);
    for (size_t d = 0; d < a->d_v; d += STRIP) {
        const size_t n_d = a->d_v - d < STRIP ? a->d_v - d : STRIP;
        for (size_t r = 0; r < b->n_row; r += block_rows(b, r))
            add_values(b, a, v, r, block_rows(b, r), d, n_d);
    }
}

void nb_attn_avx512(const nb_attn_args *a)
{
    nb_attn_rows_run(a, run_batch);
}
