/* attn_prefill_tile.h - expanded attention in floats; included once by attn_prefill_avx2.c and
 * once by attn_prefill_avx512.c, which define before:
 *
 *   VEC, LANE               a vector of floats and its lanes
 *   LOAD(p), STORE(p, v), SET1(x), ZERO()    aligned
 *   LOAD_U(p), STORE_U(p, v)   unaligned
 *   FMA(a, b, c), MUL, ADD, SUB, MAX         a * b + c
 *   MASK, FIRST(n), PICK(m, a, b)   lanes 0..n-1; a where m, else b
 *   LOAD_N(p, n), STORE_N(p, n, v)  the first n lanes, unaligned; the others 0, untouched
 *   TIMES_EXP2(y, n)        y * 2^(n - 1.5 * 2^23); the result is a normal number
 *   LOW(v), JOIN(v), TOP(v) lane 0; sum, maximum of the lanes in a fixed order
 *   ROWS, ROW_MAIN, ROW_TAIL  rows of a tile (lists below; the tail has 4), NAME(f)
 *
 * Keys are packed with tokens in the lanes and values with columns in the lanes, so that nothing is
 * ever summed across lanes:
 *
 *   queries  [block of ROWS][d][ROWS]
 *   a tile   keys [panel of 2 vectors of tokens][d][panel], values [panel of columns][64][panel],
 *            then the first token whose value is not finite
 *
 * A call has three passes, each over all its queries: scores p[q][t], weights (one softmax over the
 * up to 256 tokens), values sum[q][d_v], which is joined to the old state at the end.  Registers hold
 * ROWS x 2 vectors; a panel of keys or values stays in L1 while blocks of queries pass.
 *
 * Order of a row, whatever the blocks: a score is summed in chunks of 16 products, and these in
 * turn; weights in lanes t % LANE; values in one chain over a tile's tokens, and tiles in turn.  Rows
 * of a block that see less have weight 0 there, which adds nothing as long as values are finite; a
 * tile that has others is gone through row by row where rows differ.
 *
 * 2^x is a minimax polynomial of degree 5 on [-1/2, 1/2] (within 2^-23.6) times 2^n. */
#include "kernel/attn_prefill/attn_prefill.h"

#include <math.h>
#include <string.h>

enum {
    TILE = NB_PREFILL_TILE,
    PANEL = 2 * LANE,
    TAIL_ROWS = 4, /* of ROW_TAIL */
    CHUNK = 16,    /* products of a partial sum of a score, see the bound in attn_prefill.h */
    N_BLOCK = (TILE + ROWS - 1) / ROWS,
    P_STRIDE = TILE * NB_PREFILL_TILES_MAX + 16, /* no power of two: rows would share sets */
    TRAILER = 64                                 /* bytes of a packed tile after its values */
};

static size_t col_panels(const nb_attn_prefill_dims *d)
{
    return (d->d_v + PANEL - 1) / PANEL;
}

size_t NAME(nb_attn_prefill_q_bytes)(const nb_attn_prefill_dims *d)
{
    return (N_BLOCK * ROWS * (d->d1 + d->d2) * sizeof(float) + 63) / 64 * 64;
}

static size_t key_floats(const nb_attn_prefill_dims *d)
{
    return TILE * (d->d1 + d->d2);
}

size_t NAME(nb_attn_prefill_kv_bytes)(const nb_attn_prefill_dims *d)
{
    return (key_floats(d) + col_panels(d) * TILE * PANEL) * sizeof(float) + TRAILER;
}

size_t NAME(nb_attn_prefill_scratch)(const nb_attn_prefill_dims *d)
{
    return (N_BLOCK * ROWS + TAIL_ROWS) * (P_STRIDE + col_panels(d) * PANEL) * sizeof(float);
}

/* ---- packing ---- */

/* out[i * step + t] = x[t][i], i < n, for `width` rows, up to 8, of which n_row exist (the others: 0).
 * Of a vector's lanes those from `width` on are written, too, and overwritten by the next. */
static void pack_8(float *out, size_t step, size_t width, const float *x, size_t stride, size_t n,
                   size_t n_row)
{
    for (size_t i = 0; i < n; i += 8) {
        const size_t n_d = n - i < 8 ? n - i : 8;
        const __m256i mask = nb_avx2_mask(n_d);
        __m256 r[8], c[8];
        for (size_t t = 0; t < 8; t++)
            r[t] = t < n_row ? _mm256_maskload_ps(x + t * stride + i, mask) : _mm256_setzero_ps();
        for (size_t t = 0; t < 8; t += 2) {
            c[t] = _mm256_unpacklo_ps(r[t], r[t + 1]);
            c[t + 1] = _mm256_unpackhi_ps(r[t], r[t + 1]);
        }
        for (size_t t = 0; t < 8; t += 4) {
            r[t] = _mm256_shuffle_ps(c[t], c[t + 2], 0x44);
            r[t + 1] = _mm256_shuffle_ps(c[t], c[t + 2], 0xee);
            r[t + 2] = _mm256_shuffle_ps(c[t + 1], c[t + 3], 0x44);
            r[t + 3] = _mm256_shuffle_ps(c[t + 1], c[t + 3], 0xee);
        }
        for (size_t t = 0; t < 4; t++) {
            c[t] = _mm256_permute2f128_ps(r[t], r[t + 4], 0x20);
            c[t + 4] = _mm256_permute2f128_ps(r[t], r[t + 4], 0x31);
        }
        for (size_t j = 0; j < n_d; j++) {
            if (i + j + 1 < n)
                _mm256_storeu_ps(out + (i + j) * step, c[j]);
            else
                _mm256_maskstore_ps(out + (i + j) * step, nb_avx2_mask(width), c[j]);
        }
    }
}

void NAME(nb_attn_prefill_pack_q)(const nb_attn_prefill_dims *d, void *dst, const float *q,
                                  size_t q_stride, size_t n_q)
{
    const size_t n = d->d1 + d->d2;
    float *out = dst;
    for (size_t i = 0; i < n_q; i += ROWS, out += n * ROWS)
        pack_8(out, ROWS, ROWS, q + i * q_stride, q_stride, n, n_q - i < ROWS ? n_q - i : ROWS);
}

/* Is any of the n floats an infinity or a NaN? */
static bool any_bad(const float *v, size_t n)
{
    const __m256 top = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
    __m256 bad = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += 8) {
        const __m256 x = _mm256_maskload_ps(v + i, nb_avx2_mask(n - i < 8 ? n - i : 8));
        const __m256 e = _mm256_and_ps(x, top);
        bad = _mm256_or_ps(bad, _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_castps_si256(e),
                                                                       _mm256_castps_si256(top))));
    }
    return _mm256_movemask_ps(bad) != 0;
}

void NAME(nb_attn_prefill_pack_kv)(const nb_attn_prefill_dims *d, void *dst,
                                   const nb_attn_prefill_tile *t)
{
    const size_t n = d->d1 + d->d2, n_col = col_panels(d);
    float *k = dst, *v = k + key_floats(d);
    uint32_t *first_bad = (uint32_t *)(void *)(v + n_col * TILE * PANEL);
    for (size_t t0 = 0; t0 < TILE; t0 += 8) {
        const size_t n_tok = t0 < t->n_tok ? t->n_tok - t0 : 0;
        float *out = k + t0 / PANEL * PANEL * n + t0 % PANEL;
        const size_t at = n_tok ? t0 : 0;
        pack_8(out, PANEL, 8, t->k1 + at * t->k1_stride, t->k1_stride, d->d1, n_tok);
        if (d->d2)
            pack_8(out + d->d1 * PANEL, PANEL, 8, t->k2 + at * t->k2_stride, t->k2_stride, d->d2,
                   n_tok);
    }
    memset(first_bad, 0, TRAILER);
    *first_bad = TILE;
    for (size_t i = 0; i < TILE; i++) {
        const bool in = i < t->n_tok;
        const float *row = t->v + (in ? i : 0) * t->v_stride;
        for (size_t c = 0; c < n_col * PANEL; c += LANE) {
            const size_t left = !in || c >= d->d_v ? 0 : d->d_v - c < LANE ? d->d_v - c : LANE;
            STORE(v + (c / PANEL * TILE + i) * PANEL + c % PANEL,
                  LOAD_N(left ? row + c : row, left));
        }
        if (in && *first_bad == TILE && any_bad(row, d->d_v)) *first_bad = (uint32_t)i;
    }
}

/* ---- a call ---- */

typedef struct work {
    const nb_attn_prefill_args *a;
    float *p, *sum; /* [N_BLOCK * ROWS][P_STRIDE], [N_BLOCK * ROWS][s_stride] */
    size_t s_stride, n_block;
    uint8_t vis[N_BLOCK * ROWS]; /* tokens of the last tile that a row sees */
    float keep[N_BLOCK * ROWS];
} work;

/* Lists of rows for the tiles below; r is a literal digit. */
#define R4(M) M(0) M(1) M(2) M(3)
#define R6(M) R4(M) M(4) M(5)
#define R8(M) R6(M) M(6) M(7)

#define X_FIRST(r)                                                                                 \
    const VEC x##r = SET1(x[r * xs]);                                                              \
    VEC a##r##0 = MUL(x##r, y0), a##r##1 = MUL(x##r, y1);
#define X_NEXT(r)                                                                                  \
    {                                                                                              \
        const VEC xv = SET1(x[r * xs]);                                                            \
        a##r##0 = FMA(xv, z0, a##r##0);                                                            \
        a##r##1 = FMA(xv, z1, a##r##1);                                                            \
    }
/* a<row><vector> = sum over i < count of x[i][row] y[i], in turn; count >= 1. */
#define PRODUCTS(LIST, count, x_step)                                                              \
    const VEC y0 = LOAD(y), y1 = LOAD(y + LANE);                                                   \
    LIST(X_FIRST)                                                                                  \
    x += x_step;                                                                                   \
    y += PANEL;                                                                                    \
    for (size_t i = (count)-1; i > 0; i--) {                                                       \
        const VEC z0 = LOAD(y), z1 = LOAD(y + LANE);                                               \
        LIST(X_NEXT)                                                                               \
        x += x_step;                                                                               \
        y += PANEL;                                                                                \
    }

/* p[row][2 vectors of tokens] = scale * scores: x [d][ROWS], y [d][PANEL]. */
#define S_END(r)                                                                                   \
    {                                                                                              \
        float *out = p + r * P_STRIDE;                                                             \
        STORE(out, MUL(ADD(LOAD(out), a##r##0), f));                                               \
        STORE(out + LANE, MUL(ADD(LOAD(out + LANE), a##r##1), f));                                 \
    }
#define S_START(r)                                                                                 \
    STORE(p + r * P_STRIDE, MUL(a##r##0, f));                                                      \
    STORE(p + r * P_STRIDE + LANE, MUL(a##r##1, f));
#define SCORES(name, LIST)                                                                         \
    static void name(const float *x, const float *y, size_t d, float scale, float *p)              \
    {                                                                                              \
        const size_t xs = 1;                                                                       \
        for (size_t left = d; left > 0;) {                                                         \
            const size_t n = left < CHUNK ? left : CHUNK;                                          \
            PRODUCTS(LIST, n, ROWS)                                                                \
            const VEC f = SET1(left == n ? scale : 1);                                             \
            if (left == d) {                                                                       \
                LIST(S_START)                                                                      \
            } else {                                                                               \
                LIST(S_END)                                                                        \
            }                                                                                      \
            left -= n;                                                                             \
        }                                                                                          \
    }
SCORES(scores_main, ROW_MAIN)
SCORES(scores_tail, ROW_TAIL)

/* sum[row][2 vectors of columns] += sum over t < n of p[row][t] v[t]; first: = instead.  What is
 * added to is never -0, so that trailing zeros of p do not change a bit. */
#define V_END(r)                                                                                   \
    {                                                                                              \
        float *out = sum + r * s_stride;                                                           \
        STORE(out, ADD(first ? ZERO() : LOAD(out), a##r##0));                                      \
        STORE(out + LANE, ADD(first ? ZERO() : LOAD(out + LANE), a##r##1));                        \
    }
#define VALUES(name, LIST)                                                                         \
    static void name(const float *x, const float *y, size_t n, float *sum, size_t s_stride,        \
                     bool first)                                                                   \
    {                                                                                              \
        const size_t xs = P_STRIDE;                                                                \
        PRODUCTS(LIST, n, 1)                                                                       \
        LIST(V_END)                                                                                \
    }
VALUES(values_main, ROW_MAIN)
VALUES(values_tail, ROW_TAIL)

static size_t block_end(const work *w, size_t b)
{
    const size_t end = (b + 1) * ROWS;
    return end < w->a->n_q ? end : w->a->n_q;
}

/* What the last row of a block, which sees most, sees of tile j. */
static size_t block_sees(const work *w, size_t b, size_t j)
{
    return j + 1 < w->a->n_tile ? TILE : w->vis[block_end(w, b) - 1];
}

static void all_scores(const work *w)
{
    const nb_attn_prefill_args *a = w->a;
    const size_t d = a->d.d1 + a->d.d2;
    for (size_t j = 0; j < a->n_tile; j++) {
        for (size_t t = 0; t < TILE; t += PANEL) {
            const float *k = (const float *)a->tile[j] + t * d;
            for (size_t b = 0; b < w->n_block; b++) {
                const float *q = (const float *)a->q + b * ROWS * d;
                float *p = w->p + b * ROWS * P_STRIDE + j * TILE + t;
                if (block_sees(w, b, j) <= t) continue;
                if (block_end(w, b) - b * ROWS <= TAIL_ROWS)
                    scores_tail(q, k, d, a->scale, p);
                else
                    scores_main(q, k, d, a->scale, p);
            }
        }
    }
}

/* exp(s - m), s <= m; NaN stays NaN.  Under 2^-126: 2^-126. */
static inline VEC exp_from(VEC s, VEC m)
{
    const VEC magic = SET1(0x1.8p23f);
    VEC x = MUL(SUB(s, m), SET1(0x1.715476p+0f));
    x = MAX(SET1(-126), x); /* this order keeps a NaN */
    const VEC n = ADD(x, magic), r = SUB(x, SUB(n, magic));
    VEC y = SET1(0x1.5c08e6p-10f);
    y = FMA(y, r, SET1(0x1.3d0c52p-7f));
    y = FMA(y, r, SET1(0x1.c6b6e4p-5f));
    y = FMA(y, r, SET1(0x1.ebf918p-3f));
    y = FMA(y, r, SET1(0x1.62e428p-1f));
    y = FMA(y, r, SET1(0x1.000002p+0f));
    return TIMES_EXP2(y, n);
}

/* Scores of row i become weights, zeros to the end of the last tile; m, l and keep follow. */
static void weights(work *w, size_t i)
{
    const nb_attn_prefill_args *a = w->a;
    const size_t end = a->n_tile * TILE, n = end - TILE + w->vis[i];
    float *p = w->p + i * P_STRIDE, *m = a->m + i * a->ml_stride, *l = a->l + i * a->ml_stride;
    const size_t whole = n / LANE * LANE;
    const MASK in = FIRST(n - whole);
    const VEC none = SET1(-INFINITY);
    VEC top0 = none, top1 = none;
    size_t t = 0;
    for (; t + PANEL <= whole; t += PANEL) { /* a NaN score is passed over */
        top0 = MAX(LOAD(p + t), top0);
        top1 = MAX(LOAD(p + t + LANE), top1);
    }
    for (; t < whole; t += LANE) top0 = MAX(LOAD(p + t), top0);
    if (t < n) top1 = MAX(PICK(in, LOAD(p + t), none), top1);
    const float m0 = *m, top = TOP(MAX(top0, top1)), m1 = top > m0 ? top : m0;
    const VEC mv = SET1(m1);
    VEC sum = ZERO();
    for (t = 0; t < whole; t += LANE) {
        const VEC e = exp_from(LOAD(p + t), mv);
        STORE(p + t, e);
        sum = ADD(sum, e);
    }
    if (t < n) {
        const VEC e = PICK(in, exp_from(LOAD(p + t), mv), ZERO());
        STORE(p + t, e);
        sum = ADD(sum, e);
        t += LANE;
    }
    for (; t < end; t += LANE) STORE(p + t, ZERO());
    if (n == 0) return;
    const float keep = m0 == -INFINITY ? 0 : LOW(exp_from(SET1(m0), mv));
    const float l1 = (keep != 0 ? *l * keep : 0) + JOIN(sum);
    w->keep[i] = keep;
    *l = l1;
    *m = l1 == l1 ? m1 : NAN;
}

/* A block whose rows see different parts of a tile with values that are not finite: each row by
 * itself, from a copy of the sums. */
static void values_apart(const work *w, const float *v, size_t b, size_t j, size_t c)
{
    _Alignas(64) float part[TAIL_ROWS * PANEL]; /* of the other rows nothing is used */
    for (size_t i = b * ROWS; i < block_end(w, b); i++) {
        float *sum = w->sum + i * w->s_stride + c;
        if (w->vis[i] == 0) continue;
        for (size_t r = 0; r < TAIL_ROWS; r++)
            memcpy(part + r * PANEL, sum, sizeof part / TAIL_ROWS);
        values_tail(w->p + i * P_STRIDE + j * TILE, v, w->vis[i], part, PANEL, j == 0);
        memcpy(sum, part, PANEL * sizeof *part);
    }
}

static void all_values(const work *w)
{
    const nb_attn_prefill_args *a = w->a;
    for (size_t j = 0; j < a->n_tile; j++) {
        const float *v = (const float *)a->tile[j] + key_floats(&a->d);
        const size_t first_bad = *(const uint32_t *)(const void *)(v + w->s_stride * TILE);
        for (size_t c = 0; c < w->s_stride; c += PANEL, v += TILE * PANEL) {
            for (size_t b = 0; b < w->n_block; b++) {
                const size_t i = b * ROWS, n = block_sees(w, b, j);
                const float *p = w->p + i * P_STRIDE + j * TILE;
                float *sum = w->sum + i * w->s_stride + c;
                if (n == 0) continue; /* a row that sees nothing at all has no use for its sum */
                if (first_bad < n && j + 1 == a->n_tile)
                    values_apart(w, v, b, j, c);
                else if (block_end(w, b) - i <= TAIL_ROWS)
                    values_tail(p, v, n, sum, w->s_stride, j == 0);
                else
                    values_main(p, v, n, sum, w->s_stride, j == 0);
            }
        }
    }
}

static void join_state(const work *w, size_t i)
{
    const nb_attn_prefill_args *a = w->a;
    const float *sum = w->sum + i * w->s_stride;
    float *o = a->o + i * a->o_stride;
    const VEC keep = SET1(w->keep[i]);
    if (a->n_tile == 1 && w->vis[i] == 0) return;
    size_t c = 0;
    for (; c + LANE <= a->d.d_v; c += LANE) {
        const VEC s = LOAD(sum + c);
        STORE_U(o + c, w->keep[i] != 0 ? FMA(LOAD_U(o + c), keep, s) : s);
    }
    if (c < a->d.d_v) {
        const size_t n = a->d.d_v - c;
        const VEC s = LOAD(sum + c);
        STORE_N(o + c, n, w->keep[i] != 0 ? FMA(LOAD_N(o + c, n), keep, s) : s);
    }
}

void NAME(nb_attn_prefill)(const nb_attn_prefill_args *a)
{
    work w = { .a = a,
               .p = a->scratch,
               .s_stride = col_panels(&a->d) * PANEL,
               .n_block = (a->n_q + ROWS - 1) / ROWS };
    w.sum = w.p + (N_BLOCK * ROWS + TAIL_ROWS) * P_STRIDE;
    for (size_t i = 0; i < a->n_q; i++) {
        const size_t vis = a->vis0 + i * a->vis_step;
        w.vis[i] = (uint8_t)(vis < a->last_tok ? vis : a->last_tok);
    }
    all_scores(&w);
    for (size_t i = 0; i < a->n_q; i++) weights(&w, i);
    all_values(&w);
    for (size_t i = 0; i < a->n_q; i++) join_state(&w, i);
}
