/* attn_pages_avx2.c - attention of many rows (query, head) over encoded pages.
 *
 * A page is decoded once for up to 64 rows, 64 channels at a time (kv_chunk_avx2.h), into 16 KiB that
 * stay in the first-level cache while all rows take their scores from them; the whole decoded page
 * (147 KiB for 512 + 64) waits in the second level for the weighted sums.  Rows go in blocks of 16:
 *   scores  lanes are rows: the queries lie transposed, a key is broadcast from memory; tiles of
 *           6 tokens x 16 rows, so that no sum has to be joined across lanes
 *   weights maximum, exp and sum of 8 rows at a time
 *   values  lanes are channels: tiles of 3 rows x 4 vectors, 64 tokens long
 * Both tiles have 12 independent chains and 8 or 7 loads per 12 FMA.
 * The scale of a token is not multiplied into its values but into its scores and its weights.
 *
 * Order of a row: a score is a chain along DEPTH channels of a chunk; these chains are added up in the
 * order of the chunks.  The weights of a page are summed in lanes t % 8, joined pairwise.  The values
 * are one chain over the tokens of a page, added to the scaled old state.  Accuracy: a score has at
 * most DEPTH + d / DEPTH roundings of its chains, d = d1 + d2, which is d / 8 + 2 or less for the
 * shapes taken here; then come the sum with the rope key's part, the scale, and with a fixed scale two
 * more (the product, and the one that the definition rounds every value by): d / 8 + 6.
 *
 * In integers (nb_attn_pages_avx2int8: NVFP4 and IF4): scores of the latent as in attn_int8_avx2.h, values as in
 * attn_int16_avx2.h; the rope key, weights and pages with extreme scales as above.
 *
 * Other shapes and pages with extreme scales: nb_kv_decode_avx2, then the same; or attn of a tile.
 * Bound by the FMA units: (2 d1 + d2) / 8 FMA per row and token; what is over that is the decoding of
 * 512 channels (15 % of the FMA of 16 rows where shuffles and FMA share a unit), the exponentials and
 * the ends of tiles.
 * Tried and slower: 4 x 3 dot products with lanes along the channels (every key from the second
 * level once per 4 rows); values in 4 rows x (3 + 3 + 2) vectors (8 chains do not fill the units); a
 * product with the block's scale instead of a table per scale; the first page asked for ahead. */
#include "kernel/attn_pages/attn_pages.h"

#include <math.h>

#include "kernel/attn/attn.h"
#include "kernel/kv_codec/kv_codec.h"
#define I8_VNNI 0
#include "kernel/x86/attn_dots_avx2.h"

enum { ROWS = 16, BLOCKS = 4, TOK = NB_PAGE_TOK, MAX_ROW = ROWS * BLOCKS, LINE = 64 };
enum { TABLE = 256 * sizeof(kv_table) / sizeof(float) };
enum { MIN_16 = 224, MIN_32 = 320, MIN_64 = 576 }; /* d1 + d2 from which DEPTH is 16, 32, 64 */

/* Scratch of the chunked path, in floats. */
typedef struct room {
    float *c;         /* [d1 / 64][TOK][64] decoded latent                     */
    float *r;         /* [ceil(d2 / 64)][TOK][64] decoded rope key             */
    float *q;         /* [BLOCKS][d1 + d2][ROWS] transposed queries            */
    float *s, *s2;    /* [BLOCKS][TOK][ROWS] scores of latent, rope; weights   */
    float *row;       /* [max(d1, d2)] a token in its own order                */
    kv_table *table;  /* [256] of the latent's block scales                    */
    float *factor[2]; /* [TOK] of latent, rope                                 */
    /* Latents in integers; keys and dots are NULL where they are floats. */
    const i8_dots *dots;
    i8_keys *keys;   /* [d1 / 64]             */
    i8_query *bytes; /* [BLOCKS][d1 / 64]     */
    float *scale;    /* [TOK][n_scale]        */
    i16_room *sums;
    size_t n_scale;       /* groups, to a multiple of 8 */
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
    return d1 % KV_CHUNK == 0 && d2 % 8 == 0 && d1 + d2 >= MIN_16;
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

static size_t scales(const nb_record *r)
{
    return (r->seg[0].n_group + 7) / 8 * 8;
}

static size_t avx2_bytes(const nb_record *r)
{
    const size_t d1 = r->seg[0].dim, d2 = r->seg[1].dim;
    if (!chunked(r)) return TOK * (d1 + d2) * sizeof(float);
    const size_t n = (chunks(d1) + chunks(d2)) * TOK * KV_CHUNK + (d1 + d2) * MAX_ROW +
                     2 * TOK * MAX_ROW + 2 * TOK + TABLE + row_floats(r);
    return (n * sizeof(float) + 31) / 32 * 32;
}

static void layout(const nb_record *r, float *at, room *w, const i8_dots *bytes)
{
    w->d1 = r->seg[0].dim;
    w->d2 = r->seg[1].dim;
    w->n_c = chunks(w->d1);
    w->n_r = chunks(w->d2);
    w->depth = w->d1 + w->d2 >= MIN_64 ? 64 : w->d1 + w->d2 >= MIN_32 ? 32 : 16;
    w->c = at;
    w->r = w->c + w->n_c * TOK * KV_CHUNK;
    w->q = w->r + w->n_r * TOK * KV_CHUNK;
    w->s = w->q + (w->d1 + w->d2) * MAX_ROW;
    w->s2 = w->s + TOK * MAX_ROW;
    w->factor[0] = w->s2 + TOK * MAX_ROW;
    w->factor[1] = w->factor[0] + TOK;
    w->table = (kv_table *)(void *)(w->factor[1] + TOK);
    w->row = w->factor[1] + TOK + TABLE;
    w->keys = NULL;
    w->dots = bytes;
    if (!bytes) return;
    w->keys = (i8_keys *)(void *)((char *)at + avx2_bytes(r));
    w->bytes = (i8_query *)(void *)(w->keys + w->n_c);
    w->sums = (i16_room *)(void *)(w->bytes + BLOCKS * w->n_c);
    w->scale = (float *)(void *)(w->sums + 1);
    w->n_scale = scales(r);
}

size_t nb_attn_pages_avx2_scratch(const nb_record *r)
{
    return avx2_bytes(r);
}

bool nb_attn_pages_avx2int8_can(const nb_record *r)
{
    return nb_record_is_mla(r) && chunked(r) && i8_reads(&r->seg[0]) &&
           r->seg[0].n_group <= I16_GROUPS;
}

size_t nb_attn_pages_avx2int8_scratch(const nb_record *r)
{
    const size_t n_c = chunks(r->seg[0].dim);
    return avx2_bytes(r) + n_c * sizeof(i8_keys) + BLOCKS * n_c * sizeof(i8_query) +
           sizeof(i16_room) + TOK * scales(r) * sizeof(float);
}

/* Lines to be asked for meanwhile, n for each row of a chunk. */
typedef struct ahead {
    const char *at;
    size_t n;
} ahead;

/* A chunk to be decoded, or nothing. */
typedef struct job {
    const nb_record_seg *seg; /* NULL: nothing */
    kv_source from;
    float *out;
    ahead next;
} job;

/* More lines at once than the cache can wait for are lost (attn_pages_bf16.h). */
static inline void ask(const ahead *x, size_t row)
{
    const char *p = x->at + row * x->n * LINE;
    for (size_t i = 0; i < x->n; i++) _mm_prefetch(p + i * LINE, _MM_HINT_T1);
}

/* ---- queries ---- */

/* Channels [j, j + 8) of a chunk of 8 rows, one per lane: out[8][ROWS]. */
#define EIGHT(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define Q_LOAD(h)                                                                                  \
    const __m256 x##h = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(q[h] + at)),      \
                                             _mm_loadu_ps(q[h] + at + half), 1);
#define Q_PAIR(a, b, c)                                                                            \
    const __m256 l##c = _mm256_unpacklo_ps(x##a, x##b), h##c = _mm256_unpackhi_ps(x##a, x##b);
#define Q_QUAD(out, u, v, mask) const __m256 out = _mm256_shuffle_ps(u, v, mask);
#define Q_PUT(k, u, v)                                                                             \
    _mm256_store_ps(out + (k)*ROWS, _mm256_permute2f128_ps(u, v, 0x20));                           \
    _mm256_store_ps(out + ((k) + 4) * ROWS, _mm256_permute2f128_ps(u, v, 0x31));
static inline void turn8(const float *const *q, size_t at, size_t half, float *out)
{
    EIGHT(Q_LOAD)
    Q_PAIR(0, 1, a)
    Q_PAIR(2, 3, b)
    Q_PAIR(4, 5, c)
    Q_PAIR(6, 7, d)
    Q_QUAD(r0, la, lb, 0x44)
    Q_QUAD(r1, la, lb, 0xee)
    Q_QUAD(r2, ha, hb, 0x44)
    Q_QUAD(r3, ha, hb, 0xee)
    Q_QUAD(r4, lc, ld, 0x44)
    Q_QUAD(r5, lc, ld, 0xee)
    Q_QUAD(r6, hc, hd, 0x44)
    Q_QUAD(r7, hc, hd, 0xee) Q_PUT(0, r0, r4) Q_PUT(1, r1, r5) Q_PUT(2, r2, r6) Q_PUT(3, r3, r7)
}

/* Channels [d, d + n) of 8 rows to out[n][ROWS], in the order of a chunk, or in their own. */
static void turn_queries(const float *const *q, size_t d, size_t n, bool in_chunk, float *out)
{
    for (size_t j = 0; j < n; j += 8)
        turn8(q, d + (in_chunk ? j / 2 : j), in_chunk ? KV_CHUNK / 2 : 4, out + j * ROWS);
}

static void load_queries(const room *w, const rows *b, bool latent)
{
    for (size_t r = 0; r < b->n; r += 8) {
        float *out = w->q + r / ROWS * ROWS * (w->d1 + w->d2) + r % ROWS;
        for (size_t d = 0; latent && d < w->d1; d += KV_CHUNK)
            turn_queries(b->q + r, d, KV_CHUNK, true, out + d * ROWS);
        for (size_t d = w->d1, m; d < w->d1 + w->d2; d += m) {
            m = w->d1 + w->d2 - d < KV_CHUNK ? w->d1 + w->d2 - d : KV_CHUNK;
            turn_queries(b->q + r, d, m, m == KV_CHUNK, out + d * ROWS);
        }
    }
}

/* The latent part in bytes; lanes without a row repeat the first. */
static void load_bytes(const room *w, const rows *b, const ahead *first)
{
    for (size_t r = 0; r < (b->n + ROWS - 1) / ROWS * ROWS; r++)
        for (size_t u = 0; u < w->n_c; u++) {
            if (r < ROWS) ask(first, r * w->n_c + u);
            i8_pack_row(b->q[r < b->n ? r : 0] + u * I8_UNIT, r % ROWS,
                        w->bytes + r / ROWS * w->n_c + u);
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
        const __m256 x = _mm256_broadcast_ss(k + t * KV_CHUNK);                                    \
        a##t = _mm256_fmadd_ps(x, q0, a##t);                                                       \
        b##t = _mm256_fmadd_ps(x, q1, b##t);                                                       \
    }
#define PUT(t)                                                                                     \
    _mm256_store_ps(s + t * ROWS, _mm256_add_ps(_mm256_load_ps(s + t * ROWS), a##t));              \
    _mm256_store_ps(s + t * ROWS + 8, _mm256_add_ps(_mm256_load_ps(s + t * ROWS + 8), b##t));
#define CHANNEL(TOKS)                                                                              \
    {                                                                                              \
        const __m256 q0 = _mm256_load_ps(q), q1 = _mm256_load_ps(q + 8);                           \
        TOKS(STEP)                                                                                 \
        k++;                                                                                       \
        q += ROWS;                                                                                 \
    }
/* s[t][16] += sum over d < n of k[t][d] q[d][16]; n is a multiple of 8.  Eight channels at a time, so
 * that the end of the loop is foreseen. */
#define SCORES(name, TOKS)                                                                         \
    static inline void name(const float *k, const float *q, size_t n, float *s)                    \
    {                                                                                              \
        TOKS(DECL)                                                                                 \
        for (size_t d = 0; d < n; d += 8) {                                                        \
            CHANNEL(TOKS)                                                                          \
            CHANNEL(TOKS)                                                                          \
            CHANNEL(TOKS) CHANNEL(TOKS) CHANNEL(TOKS) CHANNEL(TOKS) CHANNEL(TOKS) CHANNEL(TOKS)    \
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

/* The same for 64 channels and 16 rows, while another chunk is decoded: a row of it between every
 * eight channels, in units that the products leave idle, and a few lines of the next page are asked for. */
#define FUSED(name, row)                                                                           \
    static void name(const float *k, const float *q, float *s, const job *next)                    \
    {                                                                                              \
        size_t t = 0, at = 0;                                                                      \
        for (; at < TOK; t += 6) {                                                                 \
            const float *k0 = k, *q0_ = q;                                                         \
            TOK6(DECL)                                                                             \
            for (size_t end = at + 8; at < end; at++) {                                            \
                ask(&next->next, at);                                                               \
                row(&next->from, at, next->out + at * KV_CHUNK);                                   \
                CHANNEL(TOK6)                                                                      \
                CHANNEL(TOK6)                                                                      \
                CHANNEL(TOK6)                                                                      \
                CHANNEL(TOK6) CHANNEL(TOK6) CHANNEL(TOK6) CHANNEL(TOK6) CHANNEL(TOK6)              \
            }                                                                                      \
            TOK6(PUT)                                                                              \
            k = k0 + 6 * KV_CHUNK;                                                                 \
            q = q0_;                                                                               \
            s += 6 * ROWS;                                                                         \
        }                                                                                          \
        for (; t + 6 <= TOK; t += 6, k += 6 * KV_CHUNK, s += 6 * ROWS)                             \
            scores_6(k, q, KV_CHUNK, s);                                                           \
        for (; t < TOK; t += 4, k += 4 * KV_CHUNK, s += 4 * ROWS) scores_4(k, q, KV_CHUNK, s);     \
    }
FUSED(fused_bf16, kv_row_bf16)
FUSED(fused_e4m3, kv_row_e4m3)
FUSED(fused_nvfp4, kv_row_nvfp4)
FUSED(fused_mxfp4, kv_row_mxfp4)
FUSED(fused_int4, kv_row_int4)
FUSED(fused_f32, kv_row_f32)
FUSED(fused_ds, kv_row_ds)

typedef void fused_fn(const float *k, const float *q, float *s, const job *next);

static fused_fn *fused_of(nb_seg_fmt fmt)
{
    switch (fmt) {
    case NB_SEG_BF16: return fused_bf16;
    case NB_SEG_E4M3: return fused_e4m3;
    case NB_SEG_NVFP4:
    case NB_SEG_IF4: return fused_nvfp4;
    case NB_SEG_MXFP4: return fused_mxfp4;
    case NB_SEG_INT4_CH: return fused_int4;
    case NB_SEG_F32: return fused_f32;
    case NB_SEG_DS_MLA: return fused_ds;
    default: return NULL;
    }
}

static size_t block_rows(const rows *b, size_t k)
{
    return b->n - k * ROWS < ROWS ? b->n - k * ROWS : ROWS;
}

/* Channels [d, d + n) of the queries with a chunk, all blocks; the job is done on the way. */
static void score_chunk(const room *w, const rows *b, const float *chunk, size_t d, size_t n,
                        float *s, const job *next)
{
    fused_fn *fused = next->seg ? fused_of(next->seg->fmt) : NULL;
    if (n != KV_CHUNK || w->depth != KV_CHUNK || block_rows(b, 0) <= 8) fused = NULL;
    for (size_t k = 0; k * ROWS < b->n; k++) {
        const float *q = w->q + (k * (w->d1 + w->d2) + d) * ROWS;
        if (k == 0 && fused) {
            fused(chunk, q, s, next);
            continue;
        }
        for (size_t i = 0; i < n; i += w->depth) {
            const size_t m = n - i < w->depth ? n - i : w->depth;
            scores(chunk + i, q + i * ROWS, m, block_rows(b, k), s + k * TOK * ROWS);
        }
    }
    if (fused) return;
    for (size_t r = 0; r < TOK; r++) ask(&next->next, r);
    if (next->seg) kv_chunk_decode(next->seg->fmt, &next->from, next->out);
}

/* The same of a unit of the latent, in integers. */
static void score_unit(const room *w, const rows *b, const nb_record_seg *g, const uint8_t *page,
                       size_t u, const uint8_t *next)
{
    const char *soon = next ? (const char *)next + u * I8_AHEAD : NULL;
    i8_codes(g, page, u, w->keys + u);
    for (size_t k = 0; k * ROWS < b->n; k++)
        w->dots->unit(w->keys + u, w->bytes + k * w->n_c + u, w->scale + u * I8_GROUPS, w->n_scale,
                      w->s + k * TOK * ROWS, k ? NULL : soon);
}

/* ---- weights ---- */

#define W_DECL(j) __m256 e##j = _mm256_setzero_ps();
#define W_EXP(j)                                                                                   \
    {                                                                                              \
        float *p = s + (t + j) * ROWS;                                                             \
        const __m256 e = nb_avx2_exp(_mm256_sub_ps(_mm256_load_ps(p), m1));                        \
        e##j = _mm256_add_ps(e##j, e);                                                             \
        _mm256_store_ps(p, _mm256_mul_ps(e, _mm256_broadcast_ss(w->factor[0] + t + j)));           \
    }
/* 8 rows whose scores lie in columns of s and s2; b's from row r on. */
static void weights(const room *w, rows *b, size_t r, float scale)
{
    const size_t n = b->n - r < 8 ? b->n - r : 8;
    float *s = w->s + r / ROWS * TOK * ROWS + r % ROWS;
    const float *s2 = w->s2 + (s - w->s);
    const __m256 none = _mm256_set1_ps(-INFINITY), sv = _mm256_set1_ps(scale);
    _Alignas(32) float m0[8] = { 0 }, l0[8] = { 0 };
    __m256 top = none;
    EIGHT(W_DECL)
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
    for (size_t t = 0; t < TOK; t += 8) {
        EIGHT(W_EXP)
    }
    const __m256 sum = _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(e0, e1), _mm256_add_ps(e2, e3)),
                                     _mm256_add_ps(_mm256_add_ps(e4, e5), _mm256_add_ps(e6, e7)));
    const __m256 fresh = _mm256_cmp_ps(old, none, _CMP_EQ_OQ);
    const __m256 keep = _mm256_andnot_ps(fresh, nb_avx2_exp(_mm256_sub_ps(old, m1)));
    const __m256 had = _mm256_cmp_ps(keep, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    const __m256 l1 =
        _mm256_add_ps(_mm256_and_ps(had, _mm256_mul_ps(_mm256_load_ps(l0), keep)), sum);
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

#define ROWS1(M) M(0)
#define ROWS2(M) ROWS1(M) M(1)
#define ROWS3(M) ROWS2(M) M(2)
#define V_DECL(r)                                                                                  \
    __m256 a##r##0 = _mm256_setzero_ps(), a##r##1 = a##r##0, a##r##2 = a##r##0, a##r##3 = a##r##0;
#define V_WEIGHT(r) const __m256 p##r = _mm256_broadcast_ss(p + r);
#define V_COL(c, RS)                                                                               \
    {                                                                                              \
        const __m256 x = _mm256_load_ps(v + 8 * c);                                                \
        RS(V_FMA##c)                                                                               \
    }
#define V_FMA0(r) a##r##0 = _mm256_fmadd_ps(p##r, x, a##r##0);
#define V_FMA1(r) a##r##1 = _mm256_fmadd_ps(p##r, x, a##r##1);
#define V_FMA2(r) a##r##2 = _mm256_fmadd_ps(p##r, x, a##r##2);
#define V_FMA3(r) a##r##3 = _mm256_fmadd_ps(p##r, x, a##r##3);
#define V_STEP(RS)                                                                                 \
    {                                                                                              \
        RS(V_WEIGHT) V_COL(0, RS) V_COL(1, RS) V_COL(2, RS) V_COL(3, RS) p += ROWS;                \
        v += KV_CHUNK;                                                                             \
    }
#define V_PUT(r)                                                                                   \
    put_o(o[r] + d, keep[r], a##r##0, a##r##1);                                                    \
    put_o(o[r] + d + 8, keep[r], a##r##2, a##r##3);
/* o = o * keep + sum over t of p[t] v[t]: vectors v[0..3] of a chunk for some rows.  Eight tokens at
 * a time, so that the end of the loop is foreseen. */
#define VALUES(name, RS)                                                                           \
    static inline void name(const float *p, const float *v, float *const *o, size_t d,             \
                            const float *keep)                                                     \
    {                                                                                              \
        RS(V_DECL)                                                                                 \
        for (size_t t = 0; t < TOK; t += 8) {                                                      \
            V_STEP(RS)                                                                             \
            V_STEP(RS) V_STEP(RS) V_STEP(RS) V_STEP(RS) V_STEP(RS) V_STEP(RS) V_STEP(RS)           \
        }                                                                                          \
        RS(V_PUT)                                                                                  \
    }

/* Two vectors of a chunk: 8 channels of its first half, 8 of its second. */
static inline void put_o(float *o, float keep, __m256 a, __m256 b)
{
    __m256 x = _mm256_permute2f128_ps(a, b, 0x20), y = _mm256_permute2f128_ps(a, b, 0x31);
    if (keep != 0) {
        const __m256 kv = _mm256_set1_ps(keep);
        x = _mm256_fmadd_ps(_mm256_loadu_ps(o), kv, x);
        y = _mm256_fmadd_ps(_mm256_loadu_ps(o + KV_CHUNK / 2), kv, y);
    }
    _mm256_storeu_ps(o, x);
    _mm256_storeu_ps(o + KV_CHUNK / 2, y);
}

VALUES(values_3, ROWS3)
VALUES(values_2, ROWS2)
/* One row, the whole chunk. */
#define O_DECL(c) __m256 a##c = _mm256_setzero_ps();
#define O_FMA(c) a##c = _mm256_fmadd_ps(x, _mm256_load_ps(v + 8 * c), a##c);
#define O_STEP                                                                                     \
    {                                                                                              \
        const __m256 x = _mm256_broadcast_ss(p);                                                   \
        EIGHT(O_FMA)                                                                               \
        p += ROWS;                                                                                 \
        v += KV_CHUNK;                                                                             \
    }
static void values_1(const float *p, const float *v, float *o, float keep)
{
    EIGHT(O_DECL)
    for (size_t t = 0; t < TOK; t += 4) {
        O_STEP O_STEP O_STEP O_STEP
    }
    put_o(o, keep, a0, a1);
    put_o(o + 8, keep, a2, a3);
    put_o(o + 16, keep, a4, a5);
    put_o(o + 24, keep, a6, a7);
}

static void add_values(const room *w, const rows *b, size_t c)
{
    const float *v = w->c + c * TOK * KV_CHUNK;
    const size_t d = c * KV_CHUNK;
    for (size_t k = 0; k < b->n; k += ROWS) {
        const size_t n = block_rows(b, k / ROWS);
        const float *p = w->s + k * TOK, *keep = b->keep + k;
        float *const *o = b->o + k;
        size_t r = 0;
        for (; r + 3 <= n; r += 3) {
            values_3(p + r, v, o + r, d, keep + r);
            values_3(p + r, v + 32, o + r, d + 16, keep + r);
        }
        if (n - r == 2) {
            values_2(p + r, v, o + r, d, keep + r);
            values_2(p + r, v + 32, o + r, d + 16, keep + r);
        }
        if (n - r == 1) values_1(p + r, v, o[r] + d, keep[r]);
    }
}

/* The same of all columns, in integers. */
static void add_integers(const room *w, const rows *b)
{
    i16_page(w->scale, w->n_scale, w->sums);
    for (size_t r = 0; r < b->n; r += 8)
        i16_weights(w->s + r / ROWS * TOK * ROWS + r % ROWS, r, w->sums);
    for (size_t g = 0; g < w->n_c * I8_GROUPS; g++) {
        i16_values(w->keys[g / I8_GROUPS].code, g % I8_GROUPS, w->sums);
        w->dots->rows(w->sums, g, b->n, b->o, 16 * g, b->keep);
    }
}

/* ---- pages ---- */

/* Scores of all chunks, the rope key's first; each while the next one is decoded. */
static void score_page(const nb_attn_pages_args *a, const room *w, const rows *b,
                       const uint8_t *page, const uint8_t *next, const bool *fast)
{
    const nb_record_seg *g = a->record->seg;
    job j;
    memset(&j, 0, sizeof j);
    for (size_t c = 0; c < w->n_r + w->n_c; c++) {
        const bool latent = c >= w->n_r;
        const size_t at = latent ? c - w->n_r : c, to = c + 1 - w->n_r;
        if (!latent && fast[1]) {
            kv_set_source(&g[1], page, NULL, at, &j.from);
            kv_chunk_decode(g[1].fmt, &j.from, w->r + at * TOK * KV_CHUNK);
        }
        j.seg = NULL; /* its source is large: set where it is read */
        j.next.n = 0;
        if (next && latent) {
            j.next.n = (a->record->page_bytes / LINE + w->n_c * TOK - 1) / (w->n_c * TOK);
            j.next.at = (const char *)next + at * TOK * j.next.n * LINE;
        }
        if (fast[0] && !w->keys && c + 1 >= w->n_r && to < w->n_c) {
            kv_set_source(&g[0], page, w->table, to, &j.from);
            j.seg = &g[0];
            j.out = w->c + to * TOK * KV_CHUNK;
        }
        if (latent && w->keys && fast[0]) {
            score_unit(w, b, &g[0], page, at, next);
        } else if (latent) {
            score_chunk(w, b, w->c + at * TOK * KV_CHUNK, at * KV_CHUNK, KV_CHUNK, w->s, &j);
        } else {
            const size_t d = at * KV_CHUNK, n = w->d2 - d < KV_CHUNK ? w->d2 - d : KV_CHUNK;
            score_chunk(w, b, w->r + at * TOK * KV_CHUNK, w->d1 + d, n, w->s2, &j);
        }
    }
}

static void one_page(const nb_attn_pages_args *a, const room *w, rows *b, const uint8_t *page,
                     const uint8_t *next)
{
    const size_t n_s = (b->n + ROWS - 1) / ROWS * ROWS * TOK;
    bool fast[2];
    for (size_t s = 0; s < 2; s++) {
        const nb_record_seg *g = &a->record->seg[s];
        fast[s] = kv_chunk_can(g) && kv_chunk_easy(g, page);
        if (fast[s])
            kv_chunk_factors(g, page, w->factor[s]);
        else
            decode_rows(w, a->record, page, s, s ? w->r : w->c);
    }
    memset(w->s, 0, n_s * sizeof *w->s);
    memset(w->s2, 0, n_s * sizeof *w->s2);
    const bool integers = w->keys && fast[0];
    if (integers) i8_scales(&a->record->seg[0], page, w->n_scale, w->scale);
    if (w->keys && !integers) load_queries(w, b, true);
    score_page(a, w, b, page, next, fast);
    for (size_t r = 0; r < b->n; r += 8) weights(w, b, r, a->scale);
    if (integers)
        add_integers(w, b);
    else
        for (size_t c = 0; c < w->n_c; c++) add_values(w, b, c);
}

static void run_rows(const nb_attn_pages_args *a, const room *w, rows *b)
{
    const size_t n_step = ROWS * w->n_c;
    const ahead first = { a->page[0], (a->record->page_bytes / LINE + n_step - 1) / n_step };
    for (size_t r = b->n; r % 8 != 0; r++) b->q[r] = b->q[0]; /* lanes without a row */
    if (w->keys) load_bytes(w, b, &first);
    load_queries(w, b, !w->keys);
    for (size_t p = 0; p < a->n_page; p++)
        one_page(a, w, b, a->page[p], p + 1 < a->n_page ? a->page[p + 1] : a->next);
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

/* bytes: what multiplies integers, or NULL. */
static void run(const nb_attn_pages_args *a, const i8_dots *bytes)
{
    const size_t d1 = a->record->seg[0].dim, d = d1 + a->record->seg[1].dim;
    room w;
    rows b = { .n = 0 };
    if (!chunked(a->record)) {
        plain(a);
        return;
    }
    layout(a->record, a->scratch, &w, bytes);
    if (kv_has_tables(&a->record->seg[0])) kv_make_tables(&a->record->seg[0], w.table);
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

void nb_attn_pages_avx2(const nb_attn_pages_args *a)
{
    run(a, NULL);
}

void nb_attn_pages_avx2int8(const nb_attn_pages_args *a)
{
    run(a, &dots);
}

void nb_attn_pages_dots_avx2(const nb_attn_pages_args *a, const i8_dots *with)
{
    run(a, with);
}
