/* attn_pages_avx512.c - attention over encoded pages with float FMA in 512 bits.
 *
 * A page is decoded to floats once for all rows (query, head), then rows go in batches of 16 through
 *   scores  tiles of 4 rows x 4 tokens, dot products in 16 lanes along d; 16 sums joined at once
 *   weights maximum, exp, sum; 16 tokens at a time, per row
 *   values  tiles of 4 rows x 64 columns, one chain over the page's tokens per column
 * Both tiles do 16 FMA with 8 loads.  The four keys of a tile are used for all rows while they are in L1
 * (9 KiB beside 36 KiB of queries), and a strip of 64 columns of the page's values is 16 KiB.
 *
 * Order of a row: lanes along the latent, then along the rope key; joined as nb_avx512_join16 does; weights
 * in lanes t % 16; values in one chain over the page's tokens, added to the scaled old state; page after page.
 *
 * Bound by the FMA units: (2 d1 + d2) / 16 FMA per row and token, 544 cycles for 16 heads of 512 + 64.
 * Beside them per token: joining 23, decoding 64 (4 bits), 100 (fp8), 40 (bf16), weights 15. */
#include <math.h>

#include "kernel/attn_pages/attn_pages.h"
#include "kernel/x86/attn_vec_avx512.h"
#include "kernel/x86/kv_decode_avx512.h"

enum { ROWS = 16, STRIP = 64 };

typedef struct batch {
    _Alignas(64) float p[ROWS][NB_PAGE_TOK]; /* scores, then weights */
    const float *q[ROWS];
    float *o[ROWS], *m[ROWS], *l[ROWS];
    float keep[ROWS]; /* factor of the old state; 0: none */
    size_t n;         /* rows; the list is padded to a multiple of 4 with its first row */
} batch;

/* Keys of a page: [64][stride], the latent at 0, the rope key at k2, both padded with zeros. */
typedef struct keys {
    const float *k;
    size_t stride, k2, d1, d2;
} keys;

static size_t padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

size_t nb_attn_pages_avx512_scratch(const nb_record *r)
{
    return NB_PAGE_TOK * (padded(r->seg[0].dim) + padded(r->seg[1].dim)) * sizeof(float);
}

#define EACH4(M, r) M(r, 0) M(r, 1) M(r, 2) M(r, 3)
#define ROW4(M) EACH4(M, 0) EACH4(M, 1) EACH4(M, 2) EACH4(M, 3)
#define ZERO(r, c) __m512 a##r##c = _mm512_setzero_ps();
#define LIST(r, c) a##r##c,

/* ---- scores ---- */

#define K_LOAD(r, c) const __m512 k##c = _mm512_load_ps(k + c * stride + i);
#define K_FMA(r, c) a##r##c = _mm512_fmadd_ps(qv, k##c, a##r##c);
#define Q_FULL(r) _mm512_loadu_ps(q[r] + i)
#define Q_TAIL(r) _mm512_maskz_loadu_ps(in, q[r] + i)
#define Q_ROW(r, LOAD)                                                                             \
    {                                                                                              \
        const __m512 qv = LOAD(r);                                                                 \
        EACH4(K_FMA, r)                                                                            \
    }
#define Q_STEP(LOAD) EACH4(K_LOAD, 0) Q_ROW(0, LOAD) Q_ROW(1, LOAD) Q_ROW(2, LOAD) Q_ROW(3, LOAD)
/* n values; the last vector of queries may be partial. */
#define PART(n)                                                                                    \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 16 <= (n); i += 16) {                                                           \
            Q_STEP(Q_FULL)                                                                         \
        }                                                                                          \
        if (i < (n)) {                                                                             \
            const __mmask16 in = nb_avx512_mask16((n)-i);                                          \
            Q_STEP(Q_TAIL)                                                                         \
        }                                                                                          \
    }

/* p[r][t .. t + 4) of 4 rows. */
static void scores_4x4(const keys *x, const float *const *row, size_t t, float *p)
{
    const size_t stride = x->stride;
    const float *k = x->k + t * stride;
    const float *q[4] = { row[0], row[1], row[2], row[3] };
    ROW4(ZERO)
    PART(x->d1)
    for (size_t r = 0; r < 4; r++) q[r] += x->d1;
    k += x->k2;
    PART(x->d2)
    const __m512 sums[16] = { ROW4(LIST) };
    const __m512 s = nb_avx512_join16(sums);
    _mm_store_ps(p, _mm512_castps512_ps128(s));
    _mm_store_ps(p + NB_PAGE_TOK, _mm512_extractf32x4_ps(s, 1));
    _mm_store_ps(p + 2 * NB_PAGE_TOK, _mm512_extractf32x4_ps(s, 2));
    _mm_store_ps(p + 3 * NB_PAGE_TOK, _mm512_extractf32x4_ps(s, 3));
}

/* ---- weights ---- */

/* Scores of row r become weights; m, l and keep of the row follow. */
static void weights(batch *b, size_t r, float scale)
{
    const __m512 by = _mm512_set1_ps(scale);
    float *p = b->p[r], m0 = *b->m[r], m1 = m0;
    __m512 s[NB_PAGE_TOK / 16], top = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
    for (size_t i = 0; i < NB_PAGE_TOK / 16; i++) {
        s[i] = _mm512_mul_ps(_mm512_load_ps(p + 16 * i), by);
        top = _mm512_max_ps(s[i], top); /* a NaN score is passed over */
    }
    const float largest = nb_avx512_max_lane(top);
    if (largest > m1) m1 = largest;
    for (size_t i = 0; i < NB_PAGE_TOK / 16; i++) {
        const __m512 w = nb_avx512_exp(_mm512_sub_ps(s[i], _mm512_set1_ps(m1)));
        _mm512_store_ps(p + 16 * i, w);
        sum = _mm512_add_ps(sum, w);
    }
    const float keep =
        m0 == -INFINITY ? 0 : _mm512_cvtss_f32(nb_avx512_exp(_mm512_set1_ps(m0 - m1)));
    const float l = (keep != 0 ? *b->l[r] * keep : 0) + nb_avx512_join(sum);
    b->keep[r] = keep;
    *b->l[r] = l;
    *b->m[r] = l == l ? m1 : NAN;
}

/* ---- values ---- */

#define V_LOAD(r, c) const __m512 v##c = _mm512_load_ps(v + 16 * c);
#define V_FMA(r, c) a##r##c = _mm512_fmadd_ps(w, v##c, a##r##c);
#define W_ROW(r)                                                                                   \
    {                                                                                              \
        const __m512 w = _mm512_set1_ps(p[r * NB_PAGE_TOK + t]);                                   \
        EACH4(V_FMA, r)                                                                            \
    }
#define V1_FMA(r) a##r = _mm512_fmadd_ps(_mm512_set1_ps(p[r * NB_PAGE_TOK + t]), v0, a##r);

/* o = o * keep + x, the first n of 16 columns. */
static inline void put(float *o, float keep, __m512 x, size_t n)
{
    const __mmask16 in = nb_avx512_mask16(n);
    if (keep != 0) x = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(in, o), _mm512_set1_ps(keep), x);
    _mm512_mask_storeu_ps(o, in, x);
}

/* Columns [d, d + 64) of rows r .. r + n - 1, n <= 4. */
static void values_4x4(const batch *b, const keys *x, size_t r, size_t n, size_t d)
{
    const float *p = b->p[r], *v = x->k + d;
    ROW4(ZERO)
    for (size_t t = 0; t < NB_PAGE_TOK; t++, v += x->stride) {
        EACH4(V_LOAD, 0)
        W_ROW(0) W_ROW(1) W_ROW(2) W_ROW(3)
    }
    const __m512 sum[16] = { ROW4(LIST) };
    for (size_t i = 0; i < n; i++) {
        float *o = b->o[r + i] + d;
        for (size_t c = 0; c < 4; c++) put(o + 16 * c, b->keep[r + i], sum[4 * i + c], 16);
    }
}

/* Columns [d, d + 16), or as many as there are. */
static void values_4x1(const batch *b, const keys *x, size_t r, size_t n, size_t d)
{
    const float *p = b->p[r], *v = x->k + d;
    __m512 a0 = _mm512_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, v += x->stride) {
        const __m512 v0 = _mm512_load_ps(v);
        V1_FMA(0) V1_FMA(1) V1_FMA(2) V1_FMA(3)
    }
    const __m512 sum[4] = { a0, a1, a2, a3 };
    for (size_t i = 0; i < n; i++)
        put(b->o[r + i] + d, b->keep[r + i], sum[i], x->d1 - d < 16 ? x->d1 - d : 16);
}

static size_t four(size_t n)
{
    return n < 4 ? n : 4;
}

static void run_batch(batch *b, const keys *x, float scale)
{
    for (size_t t = 0; t < NB_PAGE_TOK; t += 4)
        for (size_t r = 0; r < b->n; r += 4) scores_4x4(x, b->q + r, t, &b->p[r][t]);
    for (size_t r = 0; r < b->n; r++) weights(b, r, scale);
    size_t d = 0;
    for (; d + STRIP <= x->d1; d += STRIP)
        for (size_t r = 0; r < b->n; r += 4) values_4x4(b, x, r, four(b->n - r), d);
    for (; d < x->d1; d += 16)
        for (size_t r = 0; r < b->n; r += 4) values_4x1(b, x, r, four(b->n - r), d);
}

/* Up to 16 rows from row `at` of the list (query, head). */
static void fill_batch(batch *b, const nb_attn_pages_args *a, size_t at)
{
    const size_t n_head = a->head_end - a->head_begin, n = a->n_query * n_head - at;
    const size_t d1 = a->record->seg[0].dim, d = d1 + a->record->seg[1].dim;
    b->n = n < ROWS ? n : ROWS;
    for (size_t r = 0; r < (b->n + 3) / 4 * 4; r++) {
        const size_t i = at + (r < b->n ? r : 0), h = a->head_begin + i % n_head;
        const nb_attn_query *q = &a->query[i / n_head];
        b->q[r] = q->q + h * d;
        b->o[r] = q->o + h * d1;
        b->m[r] = q->m + h;
        b->l[r] = q->l + h;
    }
}

void nb_attn_pages_avx512(const nb_attn_pages_args *a)
{
    const nb_record *r = a->record;
    const size_t n_row = a->n_query * (a->head_end - a->head_begin);
    const size_t d1 = r->seg[0].dim, d2 = r->seg[1].dim, stride = padded(d1) + padded(d2);
    float *page = a->scratch;
    const keys x = { page, stride, padded(d1), d1, d2 };
    batch b;
    for (size_t i = 0; i < a->n_page; i++) {
        nb_avx512_decode_page(r, a->page[i], 0, page, stride);
        nb_avx512_decode_page(r, a->page[i], 1, page + x.k2, stride);
        for (size_t at = 0; at < n_row; at += ROWS) {
            fill_batch(&b, a, at);
            run_batch(&b, &x, a->scale);
        }
    }
}
