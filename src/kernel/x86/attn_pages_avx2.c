/* attn_pages_avx2.c - attention of many rows (query, head) over encoded pages.
 *
 * A page is decoded once for up to 64 rows, 64 channels at a time (kv_chunk_avx2.h), into 16 KiB that
 * stay in the first-level cache while all rows take their scores from them; the whole decoded page
 * (147 KiB for 512 + 64) waits in the second level for the weighted sums.  Rows go in blocks of 16:
 *   scores  lanes are rows: the queries lie transposed, a key is broadcast from memory; tiles of
 *           6 tokens x 16 rows, so that no sum has to be joined across lanes
 *   weights maximum, exp and sum of 8 rows at a time
 *   values  lanes are channels: tiles of 4 rows x 3 vectors (3 + 3 + 2 in a chunk), 64 tokens long
 * Both tiles have 12 independent chains and 8 or 7 loads per 12 FMA.
 * The scale of a token is not multiplied into its values but into its scores and its weights.
 *
 * Order of a row: a score is a chain along DEPTH channels of a chunk; these chains are added up in the
 * order of the chunks.  The weights of a page are summed in lanes t % 8, joined pairwise.  The values
 * are one chain over the tokens of a page, added to the scaled old state.  Accuracy: a score is off
 * by DEPTH + d / DEPTH roundings, which is at most d / 8 + 2 for the shapes taken here, one more for the
 * factor of a fixed scale and one for the sum with the rope key's part.
 *
 * Other shapes and pages with extreme scales: nb_kv_decode_avx2, then the same; or attn of a tile.
 * Bound by the FMA units: (2 d1 + d2) / 8 FMA per row and token. */
#include "kernel/attn_pages/attn_pages.h"

#include <math.h>

#include "kernel/attn/attn.h"
#include "kernel/kv_codec/kv_codec.h"
#include "kernel/x86/kv_chunk_avx2.h"
#include "kernel/x86/vec_avx2.h"

enum { ROWS = 16, BLOCKS = 4, TOK = NB_PAGE_TOK, MAX_ROW = ROWS * BLOCKS, LINE = 64 };
enum { SHALLOW_MIN = 288, DEEP_MIN = 544 }; /* d1 + d2 from which DEPTH may be 32, 64 */

/* Scratch of the chunked path, in floats. */
typedef struct room {
    float *c;             /* [d1 / 64][TOK][64] decoded latent                     */
    float *r;             /* [ceil(d2 / 64)][TOK][64] decoded rope key             */
    float *q;             /* [BLOCKS][d1 + d2][ROWS] transposed queries            */
    float *s, *s2;        /* [BLOCKS][TOK][ROWS] scores of latent, rope; weights   */
    float *row;           /* [max(d1, d2)] a token in its own order                */
    float *factor[2];     /* [TOK] of latent, rope                                 */
    size_t n_c, n_r;      /* chunks of latent, rope                                */
    size_t d1, d2, depth; /* depth: see the top                                    */
} room;

typedef struct rows {
    const float *q[MAX_ROW];
    float *o[MAX_ROW], *m[MAX_ROW], *l[MAX_ROW];
    _Alignas(32) float keep[MAX_ROW]; /* factor of the old state; 0: none */
    size_t n;
} rows;

static bool chunked(const nb_record *r)
{
    const size_t d1 = r->seg[0].dim, d2 = r->seg[1].dim;
    return d1 % KV_CHUNK == 0 && d2 % 8 == 0 && d1 + d2 >= SHALLOW_MIN;
}

static size_t chunks(size_t dim)
{
    return (dim + KV_CHUNK - 1) / KV_CHUNK;
}

static size_t row_floats(const nb_record *r)
{
    const size_t d1 = r->seg[0].dim, d2 = r->seg[1].dim;
    return ((d1 > d2 ? d1 : d2) + 15) / 16 * 16;
}

static void layout(const nb_record *r, float *at, room *w)
{
    w->d1 = r->seg[0].dim;
    w->d2 = r->seg[1].dim;
    w->n_c = chunks(w->d1);
    w->n_r = chunks(w->d2);
    w->depth = w->d1 + w->d2 >= DEEP_MIN ? 64 : 32;
    w->c = at;
    w->r = w->c + w->n_c * TOK * KV_CHUNK;
    w->q = w->r + w->n_r * TOK * KV_CHUNK;
    w->s = w->q + (w->d1 + w->d2) * MAX_ROW;
    w->s2 = w->s + TOK * MAX_ROW;
    w->factor[0] = w->s2 + TOK * MAX_ROW;
    w->factor[1] = w->factor[0] + TOK;
    w->row = w->factor[1] + TOK;
}

size_t nb_attn_pages_avx2_scratch(const nb_record *r)
{
    const size_t d1 = r->seg[0].dim, d2 = r->seg[1].dim;
    if (!chunked(r)) return TOK * (d1 + d2) * sizeof(float);
    return ((chunks(d1) + chunks(d2)) * TOK * KV_CHUNK + (d1 + d2) * MAX_ROW + 2 * TOK * MAX_ROW +
            2 * TOK + row_floats(r)) *
           sizeof(float);
}

/* ---- queries ---- */

/* out[k][ROWS] = x[k], lane k of row h's vector x, for 8 rows. */
static inline void transpose8(const __m256 *x, float *out)
{
    __m256 a[8], b[8];
    for (size_t i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (size_t i = 0; i < 4; i++) {
        _mm256_store_ps(out + i * ROWS, _mm256_permute2f128_ps(b[i], b[i + 4], 0x20));
        _mm256_store_ps(out + (i + 4) * ROWS, _mm256_permute2f128_ps(b[i], b[i + 4], 0x31));
    }
}

/* Channels [d, d + n) of 8 rows (n_row of them exist) to out[n][ROWS], in the order of a chunk, or in
 * their own. */
static void turn_queries(const float *const *q, size_t n_row, size_t d, size_t n, bool in_chunk,
                         float *out)
{
    for (size_t j = 0; j < n; j += 8) {
        __m256 x[8];
        for (size_t h = 0; h < 8; h++) {
            x[h] = _mm256_setzero_ps();
            if (h >= n_row) continue;
            const float *p = q[h] + d + (in_chunk ? j / 2 : j);
            x[h] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                        _mm_loadu_ps(p + (in_chunk ? KV_CHUNK / 2 : 4)), 1);
        }
        transpose8(x, out + j * ROWS);
    }
}

static void load_queries(const room *w, const rows *b)
{
    for (size_t r = 0; r < b->n; r += 8) {
        const size_t n = b->n - r < 8 ? b->n - r : 8, in = r % ROWS;
        float *out = w->q + r / ROWS * ROWS * (w->d1 + w->d2) + in;
        for (size_t d = 0; d < w->d1; d += KV_CHUNK)
            turn_queries(b->q + r, n, d, KV_CHUNK, true, out + d * ROWS);
        for (size_t d = w->d1, m; d < w->d1 + w->d2; d += m) {
            m = w->d1 + w->d2 - d < KV_CHUNK ? w->d1 + w->d2 - d : KV_CHUNK;
            turn_queries(b->q + r, n, d, m, m == KV_CHUNK, out + d * ROWS);
        }
    }
}

/* ---- pages to floats ---- */

/* A token's values in their own order to its place in every chunk. */
static void spread_row(const float *row, size_t dim, float *out)
{
    for (size_t d = 0; d < dim; d += KV_CHUNK, out += TOK * KV_CHUNK) {
        if (dim - d < KV_CHUNK) {
            memcpy(out, row + d, (dim - d) * sizeof *out);
            return;
        }
        for (size_t j = 0; j < KV_VECS; j++) {
            memcpy(out + 8 * j, row + d + 4 * j, 4 * sizeof *out);
            memcpy(out + 8 * j + 4, row + d + KV_CHUNK / 2 + 4 * j, 4 * sizeof *out);
        }
    }
}

static void decode_rows(const room *w, const nb_record *r, const uint8_t *page, size_t s,
                        float *out)
{
    for (size_t t = 0; t < TOK; t++) {
        nb_kv_decode_avx2(r, page, s, t, 1, w->row, 0);
        spread_row(w->row, r->seg[s].dim, out + t * KV_CHUNK);
        w->factor[s][t] = 1;
    }
}

/* ---- scores ---- */

#define TOK4(M) M(0) M(1) M(2) M(3)
#define TOK6(M) TOK4(M) M(4) M(5)
#define DECL(t) __m256 a##t = _mm256_setzero_ps(), b##t = a##t;
#define STEP(t)                                                                                    \
    {                                                                                              \
        const __m256 x = _mm256_broadcast_ss(k + t * KV_CHUNK + d);                                \
        a##t = _mm256_fmadd_ps(x, q0, a##t);                                                       \
        b##t = _mm256_fmadd_ps(x, q1, b##t);                                                       \
    }
#define PUT(t)                                                                                     \
    _mm256_store_ps(s + t * ROWS, _mm256_add_ps(_mm256_load_ps(s + t * ROWS), a##t));              \
    _mm256_store_ps(s + t * ROWS + 8, _mm256_add_ps(_mm256_load_ps(s + t * ROWS + 8), b##t));
/* s[t][16] += sum over d < n of k[t][d] q[d][16]. */
#define SCORES(name, TOKS)                                                                         \
    static inline void name(const float *k, const float *q, size_t n, float *s)                    \
    {                                                                                              \
        TOKS(DECL)                                                                                 \
        for (size_t d = 0; d < n; d++) {                                                           \
            const __m256 q0 = _mm256_load_ps(q + d * ROWS);                                        \
            const __m256 q1 = _mm256_load_ps(q + d * ROWS + 8);                                    \
            TOKS(STEP)                                                                             \
        }                                                                                          \
        TOKS(PUT)                                                                                  \
    }
SCORES(scores_6, TOK6)
SCORES(scores_4, TOK4)

/* The same for 8 rows. */
#define TOK12(M) TOK6(M) M(6) M(7) M(8) M(9) M(10) M(11)
#define DECL8(t) __m256 a##t = _mm256_setzero_ps();
#define STEP8(t) a##t = _mm256_fmadd_ps(_mm256_broadcast_ss(k + t * KV_CHUNK + d), q0, a##t);
#define PUT8(t) _mm256_store_ps(s + t * ROWS, _mm256_add_ps(_mm256_load_ps(s + t * ROWS), a##t));
#define SCORES8(name, TOKS)                                                                        \
    static inline void name(const float *k, const float *q, size_t n, float *s)                    \
    {                                                                                              \
        TOKS(DECL8)                                                                                \
        for (size_t d = 0; d < n; d++) {                                                           \
            const __m256 q0 = _mm256_load_ps(q + d * ROWS);                                        \
            TOKS(STEP8)                                                                            \
        }                                                                                          \
        TOKS(PUT8)                                                                                 \
    }
SCORES8(scores8_12, TOK12)
SCORES8(scores8_4, TOK4)

/* One chunk of n channels, all tokens, one block. */
static void scores(const float *k, const float *q, size_t n, size_t n_row, float *s)
{
    size_t t = 0;
    if (n_row > 8) {
        for (; t + 6 <= TOK; t += 6) scores_6(k + t * KV_CHUNK, q, n, s + t * ROWS);
        for (; t < TOK; t += 4) scores_4(k + t * KV_CHUNK, q, n, s + t * ROWS);
    } else {
        for (; t + 12 <= TOK; t += 12) scores8_12(k + t * KV_CHUNK, q, n, s + t * ROWS);
        for (; t < TOK; t += 4) scores8_4(k + t * KV_CHUNK, q, n, s + t * ROWS);
    }
}

static size_t block_rows(const rows *b, size_t k)
{
    return b->n - k * ROWS < ROWS ? b->n - k * ROWS : ROWS;
}

/* Channels [d, d + n) of the queries with a chunk, all blocks. */
static void score_chunk(const room *w, const rows *b, const float *chunk, size_t d, size_t n,
                        float *s)
{
    for (size_t k = 0; k * ROWS < b->n; k++) {
        const float *q = w->q + (k * (w->d1 + w->d2) + d) * ROWS;
        for (size_t i = 0; i < n; i += w->depth) {
            const size_t m = n - i < w->depth ? n - i : w->depth;
            scores(chunk + i, q + i * ROWS, m, block_rows(b, k), s + k * TOK * ROWS);
        }
    }
}

/* ---- weights ---- */

/* 8 rows whose scores lie in columns of s and s2; b's from row r on. */
static void weights(const room *w, rows *b, size_t r, float scale)
{
    const size_t n = b->n - r < 8 ? b->n - r : 8;
    float *s = w->s + r / ROWS * TOK * ROWS + r % ROWS;
    const float *s2 = w->s2 + (s - w->s);
    const __m256 none = _mm256_set1_ps(-INFINITY), sv = _mm256_set1_ps(scale);
    _Alignas(32) float m0[8] = { 0 }, l0[8] = { 0 };
    __m256 top = none, sum[8];
    for (size_t i = 0; i < n; i++) {
        m0[i] = *b->m[r + i];
        l0[i] = *b->l[r + i];
    }
    for (size_t t = 0; t < TOK; t++) {
        const __m256 f = _mm256_broadcast_ss(w->factor[0] + t);
        const __m256 f2 = _mm256_broadcast_ss(w->factor[1] + t);
        const __m256 x = _mm256_fmadd_ps(_mm256_load_ps(s2 + t * ROWS), f2,
                                         _mm256_mul_ps(_mm256_load_ps(s + t * ROWS), f));
        const __m256 y = _mm256_mul_ps(x, sv);
        _mm256_store_ps(s + t * ROWS, y);
        top = _mm256_max_ps(y, top); /* a NaN is passed over: it comes back in the sum */
    }
    const __m256 old = _mm256_load_ps(m0), m1 = _mm256_max_ps(top, old);
    for (size_t j = 0; j < 8; j++) sum[j] = _mm256_setzero_ps();
    for (size_t t = 0; t < TOK; t += 8) {
        for (size_t j = 0; j < 8; j++) {
            float *p = s + (t + j) * ROWS;
            const __m256 e = nb_avx2_exp(_mm256_sub_ps(_mm256_load_ps(p), m1));
            sum[j] = _mm256_add_ps(sum[j], e);
            _mm256_store_ps(p, _mm256_mul_ps(e, _mm256_broadcast_ss(w->factor[0] + t + j)));
        }
    }
    for (size_t k = 1; k < 8; k *= 2)
        for (size_t j = 0; j < 8; j += 2 * k) sum[j] = _mm256_add_ps(sum[j], sum[j + k]);
    const __m256 fresh = _mm256_cmp_ps(old, none, _CMP_EQ_OQ);
    const __m256 keep = _mm256_andnot_ps(fresh, nb_avx2_exp(_mm256_sub_ps(old, m1)));
    const __m256 had = _mm256_cmp_ps(keep, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    const __m256 l1 =
        _mm256_add_ps(_mm256_and_ps(had, _mm256_mul_ps(_mm256_load_ps(l0), keep)), sum[0]);
    const __m256 is_nan = _mm256_cmp_ps(l1, l1, _CMP_UNORD_Q);
    _mm256_store_ps(b->keep + r, keep);
    _mm256_store_ps(l0, l1);
    _mm256_store_ps(m0, _mm256_blendv_ps(m1, _mm256_set1_ps(NAN), is_nan));
    for (size_t i = 0; i < n; i++) {
        *b->m[r + i] = m0[i];
        *b->l[r + i] = l0[i];
    }
}

/* ---- values ---- */

#define VEC2(M, r) M(r, 0) M(r, 1)
#define VEC3(M, r) VEC2(M, r) M(r, 2)
#define ROW4(M, V) M(0, V) M(1, V) M(2, V) M(3, V)
#define V_DECL(r, c) __m256 a##r##c = _mm256_setzero_ps();
#define V_DECL_ROW(r, V) V(V_DECL, r)
#define V_LOAD(r, c) const __m256 v##c = _mm256_load_ps(v + t * KV_CHUNK + c * 8);
#define V_FMA(r, c) a##r##c = _mm256_fmadd_ps(x, v##c, a##r##c);
#define V_ROW(r, V)                                                                                \
    {                                                                                              \
        const __m256 x = _mm256_broadcast_ss(p + t * ROWS + r);                                    \
        V(V_FMA, r)                                                                                \
    }
#define V_PUT(r, c) _mm256_store_ps(sum + r * KV_CHUNK + c * 8, a##r##c);
#define V_PUT_ROW(r, V) V(V_PUT, r)
/* sum[4][64] (some vectors of it) = sum over t of p[t][4] v[t]. */
#define VALUES(name, VECS)                                                                         \
    static inline void name(const float *p, const float *v, float *sum)                            \
    {                                                                                              \
        ROW4(V_DECL_ROW, VECS)                                                                     \
        for (size_t t = 0; t < TOK; t++) {                                                         \
            VECS(V_LOAD, 0)                                                                        \
            ROW4(V_ROW, VECS)                                                                      \
        }                                                                                          \
        ROW4(V_PUT_ROW, VECS)                                                                      \
    }
VALUES(values_3, VEC3)
VALUES(values_2, VEC2)

/* o = o * keep + sum, the vectors of sum put in the order of channels. */
static void update_o(float *o, const float *sum, float keep)
{
    const __m256 kv = _mm256_set1_ps(keep);
    for (size_t j = 0; j < KV_VECS; j += 2) {
        const __m256 a = _mm256_load_ps(sum + 8 * j), b = _mm256_load_ps(sum + 8 * j + 8);
        __m256 x = _mm256_permute2f128_ps(a, b, 0x20), y = _mm256_permute2f128_ps(a, b, 0x31);
        float *lo = o + 4 * j, *hi = lo + KV_CHUNK / 2;
        if (keep != 0) {
            x = _mm256_fmadd_ps(_mm256_loadu_ps(lo), kv, x);
            y = _mm256_fmadd_ps(_mm256_loadu_ps(hi), kv, y);
        }
        _mm256_storeu_ps(lo, x);
        _mm256_storeu_ps(hi, y);
    }
}

static void add_values(const room *w, const rows *b, size_t c)
{
    const float *v = w->c + c * TOK * KV_CHUNK;
    _Alignas(64) float sum[4 * KV_CHUNK];
    for (size_t r = 0; r < b->n; r += 4) {
        const float *p = w->s + r / ROWS * TOK * ROWS + r % ROWS;
        values_3(p, v, sum);
        values_3(p, v + 24, sum + 24);
        values_2(p, v + 48, sum + 48);
        for (size_t i = 0; i < 4 && r + i < b->n; i++)
            update_o(b->o[r + i] + c * KV_CHUNK, sum + i * KV_CHUNK, b->keep[r + i]);
    }
}

/* ---- pages ---- */

/* A slice of the next page on its way to the second-level cache. */
static void prefetch(const void *page, size_t n_bytes, size_t part, size_t n_part)
{
    if (!page) return;
    const size_t n = (n_bytes + LINE - 1) / LINE, end = n * (part + 1) / n_part;
    for (size_t i = n * part / n_part; i < end; i++)
        _mm_prefetch((const char *)page + i * LINE, _MM_HINT_T1);
}

static void one_page(const nb_attn_pages_args *a, const room *w, rows *b, const uint8_t *page,
                     const uint8_t *next)
{
    const nb_record_seg *g = a->record->seg;
    const bool fast = kv_chunk_can(&g[0]) && kv_chunk_easy(&g[0], page);
    const bool fast2 = kv_chunk_can(&g[1]) && kv_chunk_easy(&g[1], page);
    const size_t n_s = (b->n + ROWS - 1) / ROWS * ROWS * TOK;
    memset(w->s, 0, n_s * sizeof *w->s);
    memset(w->s2, 0, n_s * sizeof *w->s2);
    if (fast)
        kv_chunk_factors(&g[0], page, w->factor[0]);
    else
        decode_rows(w, a->record, page, 0, w->c);
    if (fast2)
        kv_chunk_factors(&g[1], page, w->factor[1]);
    else
        decode_rows(w, a->record, page, 1, w->r);
    for (size_t c = 0; c < w->n_c; c++) {
        float *chunk = w->c + c * TOK * KV_CHUNK;
        if (fast) kv_chunk_decode(&g[0], page, c, chunk);
        prefetch(next, a->record->page_bytes, c, w->n_c);
        score_chunk(w, b, chunk, c * KV_CHUNK, KV_CHUNK, w->s);
    }
    for (size_t c = 0; c < w->n_r; c++) {
        const size_t d = c * KV_CHUNK, n = w->d2 - d < KV_CHUNK ? w->d2 - d : KV_CHUNK;
        float *chunk = w->r + c * TOK * KV_CHUNK;
        if (fast2) kv_chunk_decode(&g[1], page, c, chunk);
        score_chunk(w, b, chunk, w->d1 + d, n, w->s2);
    }
    for (size_t r = 0; r < b->n; r += 8) weights(w, b, r, a->scale);
    for (size_t c = 0; c < w->n_c; c++) add_values(w, b, c);
}

static void run_rows(const nb_attn_pages_args *a, const room *w, rows *b)
{
    load_queries(w, b);
    for (size_t p = 0; p < a->n_page; p++)
        one_page(a, w, b, a->page[p], p + 1 < a->n_page ? a->page[p + 1] : NULL);
    b->n = 0;
}

/* Any shape: a decoded page as a tile of attn. */
static void plain(const nb_attn_pages_args *a)
{
    const size_t d1 = a->record->seg[0].dim, d2 = a->record->seg[1].dim;
    float *k1 = a->scratch, *k2 = k1 + TOK * d1;
    nb_attn_args t = { .k1 = k1, .k2 = k2, .v = k1, .n_q = 1, .n_kv = TOK, .vis0 = TOK };
    t.head_begin = a->head_begin;
    t.head_end = t.group = a->head_end; /* one latent for all heads */
    t.d1 = t.d_v = t.k1_stride = t.v_stride = d1;
    t.d2 = t.k2_stride = d2;
    t.scale = a->scale;
    for (size_t p = 0; p < a->n_page; p++) {
        nb_kv_decode_avx2(a->record, a->page[p], 0, 0, TOK, k1, d1);
        nb_kv_decode_avx2(a->record, a->page[p], 1, 0, TOK, k2, d2);
        for (size_t i = 0; i < a->n_query; i++) {
            t.q = a->query[i].q;
            t.o = a->query[i].o;
            t.m = a->query[i].m;
            t.l = a->query[i].l;
            nb_attn_avx2(&t);
        }
    }
}

void nb_attn_pages_avx2(const nb_attn_pages_args *a)
{
    const size_t d1 = a->record->seg[0].dim, d = d1 + a->record->seg[1].dim;
    room w;
    rows b = { .n = 0 };
    if (!chunked(a->record)) {
        plain(a);
        return;
    }
    layout(a->record, a->scratch, &w);
    for (size_t i = 0; i < a->n_query; i++) {
        for (size_t h = a->head_begin; h < a->head_end; h++) {
            b.q[b.n] = a->query[i].q + h * d;
            b.o[b.n] = a->query[i].o + h * d1;
            b.m[b.n] = a->query[i].m + h;
            b.l[b.n++] = a->query[i].l + h;
            if (b.n == MAX_ROW) run_rows(a, &w, &b);
        }
    }
    if (b.n) run_rows(a, &w, &b);
}
