/* linear_w4_avx512.c - linear with codes of 4 bits (INT4, FP4); linear_w4.h has the order.
 *
 * Zen 4 has two units for shuffles and shifts, one of them also for FMA: a table of 16 floats (vpermps) and a
 * shift per vector, three operations there for 16 products, gave 5.4 products a cycle.  value() needs
 * a logical operation and a subtraction, which have other units.  One token: 4 rows at a time
 * straight from the matrix.  More: 4 rows of SEGMENT blocks are made float once, a strip in L1 in the
 * order of the packed x, for tiles of 4 rows x 6 tokens. */
#include "kernel/linear/linear_order.h"
#include "kernel/linear/linear_w4.h"
#include "kernel/linear/packed.h"
#include "kernel/x86/vec_avx512.h"

enum {
    BLOCK = NB_W4_BLOCK,
    LANE = NB_W4_LANE,
    ROW = 4,
    TOK = 6,
    PANEL_TOK = 48,
    SEGMENT = 8,                   /* blocks of a strip */
    WIDE = 16,                     /* blocks that one token's rows take at a time */
    STRIP = SEGMENT * BLOCK + LANE /* not a multiple of L1's stride */
};

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

/* Scales and zero points of up to WIDE blocks of ROW rows: one per group, of which panel.index makes lanes. */
typedef struct lanes {
    _Alignas(64) float scale[ROW][WIDE * LANE + LANE], zero[ROW][WIDE * LANE + LANE];
} lanes;

typedef struct panel {
    const nb_linear_args *a;
    size_t row_bytes, n_word, n_block, xs;
    const float *x;
    __m512i turn; /* exclusive-or of words */
    nb_weight w;  /* FP4: with half the outer scale */
    size_t n_group,
        per;       /* groups of a row; of a block, or LANE where lanes are written one by one */
    __m512i index; /* group of a lane in its block */
    size_t scale_bytes; /* of a scale */
} panel;

static inline __m512 e4m3_floats(__m128i v)
{
    const __m256i w = _mm256_slli_epi16(_mm256_cvtepi8_epi16(v), 7);
    const __m256i h = _mm256_and_si256(w, _mm256_set1_epi16((short)0xbf80));
    const __m128i most = _mm_set1_epi8(0x7f);
    const __mmask16 nan = _mm_cmpeq_epi8_mask(_mm_and_si128(v, most), most);
    const __m512 f = _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(256));
    return _mm512_mask_mov_ps(f, nan, _mm512_set1_ps(__builtin_nanf("")));
}

static inline __m512 e8m0_floats(__m128i b)
{
    const __m512i v = _mm512_cvtepu8_epi32(b); /* 0 is a subnormal */
    const __mmask16 least = _mm512_testn_epi32_mask(v, v);
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(v, _mm512_set1_epi32(255));
    __m512i f = _mm512_slli_epi32(v, 23);
    f = _mm512_mask_mov_epi32(f, least, _mm512_set1_epi32(0x00400000));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(f, nan, _mm512_set1_epi32(0x7fc00000)));
}

static inline __m512 bf16_floats(__m256i v)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

/* n scales times outer; behind them, to the next multiple of 16, zeros. */
#define SCALES(load)                                                                               \
    for (size_t k = 0; k < n; k += LANE) {                                                         \
        const __mmask16 m = nb_avx512_mask16(n - k < LANE ? n - k : LANE);                         \
        _mm512_store_ps(out + k, _mm512_maskz_mul_ps(m, load, outer));                             \
    }                                                                                              \
    break
static void scales_of(const nb_wgroups *g, size_t at, size_t n, float *out)
{
    const uint8_t *b = (const uint8_t *)g->scale + at;
    const uint16_t *h = (const uint16_t *)g->scale + at;
    const float *f = (const float *)g->scale + at;
    const __m512 outer = _mm512_set1_ps(g->outer);
    switch (g->scale_type) {
    case NB_S_F32: SCALES(_mm512_maskz_loadu_ps(m, f + k));
    case NB_S_BF16: SCALES(bf16_floats(_mm256_maskz_loadu_epi16(m, h + k)));
    case NB_S_F16: SCALES(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, h + k)));
    case NB_S_E4M3: SCALES(e4m3_floats(_mm_maskz_loadu_epi8(m, b + k)));
    default: SCALES(e8m0_floats(_mm_maskz_loadu_epi8(m, b + k)));
    }
}
#undef SCALES

/* Those of n_block blocks from block b of row r. */
static void row_lanes(const panel *p, size_t r, size_t b, size_t n_block, float *scale, float *zero)
{
    const nb_wgroups *g = &p->w.group;
    if (p->per == LANE) {
        nb_w4_lanes(&p->w, r, b, n_block, scale, zero);
        return;
    }
    const size_t first = b * p->per, all = n_block * p->per, at = r * p->n_group + first;
    const size_t n = p->n_group - first < all ? p->n_group - first : all;
    const char *next = (const char *)g->scale + (at + ROW * p->n_group) * p->scale_bytes;
    for (size_t k = 0; k < n * p->scale_bytes; k += 64) _mm_prefetch(next + k, _MM_HINT_T0);
    scales_of(g, at, n, scale);
    for (size_t k = 0; g->zero && k < n; k += LANE) {
        const __mmask16 m = nb_avx512_mask16(n - k < LANE ? n - k : LANE);
        const __m128i z = _mm_maskz_loadu_epi8(m, g->zero + at + k);
        _mm512_store_ps(zero + k, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(z)));
    }
}

/* The lanes of block b. */
static inline __m512 lanes_of(const panel *p, const float *groups, size_t b)
{
    return _mm512_permutexvar_ps(p->index, _mm512_loadu_ps(groups + b * p->per));
}

/* 16 words from p on, of which `left` are in the row. */
static inline __m512i words(const uint8_t *p, size_t left)
{
    return left >= 16 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi32(nb_avx512_mask16(left), p);
}

/* Codes become floats without shuffles: bits k..k + 4 of a word, put under the exponent of 2^(23 - k), are
 * 2^(23 - k) + code, and subtracting 2^(23 - k) + middle leaves the value, all exact.  Of FP4
 * a table gives 2 value + 12 in a byte first. */
typedef enum code { INT4, INT4_ZERO, FP4, CODES } code;

/* The parts of 16 words that value() looks at. */
typedef struct parts {
    __m512i v[4];
} parts;

INLINE parts parts_of(const code kind, __m512i v, __m512i turn)
{
    parts p;
    if (kind == FP4) {
        const __m512i table = _mm512_broadcast_i32x4(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        const __m512i low = _mm512_set1_epi8(15);
        const __m512i lo = _mm512_shuffle_epi8(table, _mm512_and_si512(v, low));
        const __m512i hi =
            _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi32(v, 4), low));
        p.v[0] = lo, p.v[1] = hi;
        p.v[2] = _mm512_srli_epi32(lo, 16), p.v[3] = _mm512_srli_epi32(hi, 16);
    } else {
        v = _mm512_xor_si512(v, turn);
        p.v[0] = v, p.v[1] = _mm512_srli_epi32(v, 16);
    }
    return p;
}

/* Column j of each word; FP4: twice its value. */
INLINE __m512 value(const code kind, const parts *p, const int j, __m512 zero)
{
    const int at = kind == FP4 ? 8 * (j / 2 % 2) : 4 * (j % 4), wide = kind == FP4 ? 31 : 15;
    const __m512i part = p->v[kind == FP4 ? j % 2 + 2 * (j / 4) : j / 4];
    const int middle = kind == FP4 ? 12 : kind == INT4 ? 8 : 0;
    const __m512i magic = _mm512_set1_epi32((150 - at) << 23);
    /* (part & mask) | magic */
    const __m512i bits =
        _mm512_ternarylogic_epi32(part, _mm512_set1_epi32(wide << at), magic, 0xea);
    const __m512 f = _mm512_sub_ps(_mm512_castsi512_ps(bits),
                                   _mm512_set1_ps((float)((1 << (23 - at)) + middle)));
    return kind == INT4_ZERO ? _mm512_sub_ps(f, zero) : f;
}

/* One token, n_row (literal) rows from r0, from block b0 on: [row][LANE] of total. */
INLINE void direct(const code kind, const int n_row, const panel *p, size_t r0, size_t b0,
                   size_t n_block, const lanes *l, size_t row0, float *total)
{
    const uint8_t *w = (const uint8_t *)p->a->w.data + r0 * p->row_bytes + b0 * 64;
    const float *x = p->x + b0 * BLOCK;
    __m512 sum[ROW], tot[ROW];
    UNROLL
    for (int r = 0; r < n_row; r++) tot[r] = _mm512_loadu_ps(total + r * LANE);
    for (size_t b = 0; b < n_block; b++, x += BLOCK) {
        parts v[ROW];
        __m512 zero[ROW];
        UNROLL
        for (int r = 0; r < n_row; r++) {
            /* the rows after these: rows are too short for the hardware to see what comes */
            _mm_prefetch((const char *)(w + (size_t)(ROW + r) * p->row_bytes + b * 64),
                         _MM_HINT_T0);
            v[r] = parts_of(
                kind, words(w + (size_t)r * p->row_bytes + b * 64, p->n_word - (b0 + b) * LANE),
                p->turn);
            zero[r] =
                kind == INT4_ZERO ? lanes_of(p, l->zero[row0 + (size_t)r], b) : _mm512_setzero_ps();
        }
        UNROLL
        for (int j = 0; j < 8; j++) {
            const __m512 xv = _mm512_load_ps(x + j * LANE);
            UNROLL
            for (int r = 0; r < n_row; r++) {
                const __m512 f = value(kind, &v[r], j, zero[r]);
                sum[r] = j == 0 ? _mm512_mul_ps(f, xv) : _mm512_fmadd_ps(f, xv, sum[r]);
            }
        }
        UNROLL
        for (int r = 0; r < n_row; r++)
            tot[r] = _mm512_fmadd_ps(sum[r], lanes_of(p, l->scale[row0 + (size_t)r], b), tot[r]);
    }
    UNROLL
    for (int r = 0; r < n_row; r++) _mm512_storeu_ps(total + r * LANE, tot[r]);
}

/* Values of n_block blocks of row r, [block][j][LANE]. */
INLINE void make_strip(const code kind, const panel *p, size_t r, size_t b0, size_t n_block,
                       const float *zero, float *strip)
{
    const uint8_t *w = (const uint8_t *)p->a->w.data + r * p->row_bytes + b0 * 64;
    for (size_t b = 0; b < n_block; b++) {
        const parts v = parts_of(kind, words(w + b * 64, p->n_word - (b0 + b) * LANE), p->turn);
        const __m512 z = kind == INT4_ZERO ? lanes_of(p, zero, b) : _mm512_setzero_ps();
        UNROLL
        for (int j = 0; j < 8; j++)
            _mm512_store_ps(strip + b * BLOCK + (size_t)j * LANE, value(kind, &v, j, z));
    }
}

#define KIND(kind, name)                                                                           \
    static void direct_4_##name(const panel *p, size_t r, size_t b, size_t n, const lanes *l,      \
                                size_t row0, float *total)                                         \
    {                                                                                              \
        direct(kind, ROW, p, r, b, n, l, row0, total);                                             \
    }                                                                                              \
    static void direct_1_##name(const panel *p, size_t r, size_t b, size_t n, const lanes *l,      \
                                size_t row0, float *total)                                         \
    {                                                                                              \
        direct(kind, 1, p, r, b, n, l, row0, total);                                               \
    }                                                                                              \
    static void strip_##name(const panel *p, size_t r, size_t b, size_t n, const float *zero,      \
                             float *strip)                                                         \
    {                                                                                              \
        make_strip(kind, p, r, b, n, zero, strip);                                                 \
    }
KIND(INT4, int4)
KIND(INT4_ZERO, zero)
KIND(FP4, fp4)

typedef void direct_fn(const panel *p, size_t r, size_t b, size_t n, const lanes *l, size_t row0,
                       float *total);
typedef void strip_fn(const panel *p, size_t r, size_t b, size_t n, const float *zero,
                      float *strip);
static direct_fn *const direct_4[CODES] = { direct_4_int4, direct_4_zero, direct_4_fp4 };
static direct_fn *const direct_1[CODES] = { direct_1_int4, direct_1_zero, direct_1_fp4 };
static strip_fn *const strips[CODES] = { strip_int4, strip_zero, strip_fp4 };

#define PART(j)                                                                                    \
    {                                                                                              \
        __m512 xv[TOK];                                                                            \
        UNROLL                                                                                     \
        for (int t = 0; t < n_tok; t++)                                                            \
            xv[t] = _mm512_load_ps(x + (size_t)t * xs + b * BLOCK + (j)*LANE);                     \
        UNROLL                                                                                     \
        for (int r = 0; r < ROW; r++) {                                                            \
            const __m512 f = _mm512_load_ps(strip + r * STRIP + (int)b * BLOCK + (j)*LANE);        \
            UNROLL                                                                                 \
            for (int t = 0; t < n_tok; t++)                                                        \
                sum[r * TOK + t] = (j) == 0 ? _mm512_mul_ps(f, xv[t])                              \
                                            : _mm512_fmadd_ps(f, xv[t], sum[r * TOK + t]);         \
        }                                                                                          \
    }

/* ROW rows of a strip x n_tok (literal) tokens: total [tok][ROW][LANE]. */
INLINE void tile(const int n_tok, const panel *p, const float *strip, const float *x, size_t xs,
                 size_t n_block, const lanes *l, float *total)
{
    for (size_t b = 0; b < n_block; b++) {
        __m512 sum[ROW * TOK];
        __asm__ volatile(
            "" ::
                : "memory"); /* totals stay where they are; gcc would copy them to its stack */
        PART(0)
#pragma GCC unroll 1 /* unrolled, gcc keeps sums in memory */
        for (int j = 1; j < 8; j++) PART(j)
        UNROLL
        for (int r = 0; r < ROW; r++) {
            const __m512 s = lanes_of(p, l->scale[r], b);
            UNROLL
            for (int t = 0; t < n_tok; t++) {
                float *to = total + (t * ROW + r) * LANE;
                _mm512_store_ps(to, _mm512_fmadd_ps(sum[r * TOK + t], s, _mm512_load_ps(to)));
            }
        }
    }
}

typedef void tile_fn(const panel *p, const float *strip, const float *x, size_t n_block,
                     const lanes *l, float *total);
#define TILE(n)                                                                                    \
    static void tile_##n(const panel *p, const float *strip, const float *x, size_t n_block,       \
                         const lanes *l, float *total)                                             \
    {                                                                                              \
        tile(n, p, strip, x, p->xs, n_block, l, total);                                            \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
static tile_fn *const tiles[TOK + 1] = { NULL, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6 };

/* n_row <= ROW outputs of token t from totals of ROW rows. */
static void write_rows(const nb_linear_args *a, size_t r, size_t n_row, size_t t, const float *p)
{
    const __mmask8 mask = (__mmask8)((1u << n_row) - 1);
    __m128 sum = nb_avx512_join4(_mm512_loadu_ps(p), _mm512_loadu_ps(p + LANE),
                                 _mm512_loadu_ps(p + 2 * LANE), _mm512_loadu_ps(p + 3 * LANE));
    if (a->bias) sum = _mm_add_ps(sum, _mm_maskz_loadu_ps(mask, a->bias + r));
    _mm_mask_storeu_ps(a->y + t * a->y_stride + (r - a->row_begin), mask, sum);
}

static void one_token(const panel *p, code kind, size_t r, size_t n_row)
{
    lanes l;
    _Alignas(64) float total[ROW * LANE] = { 0 };
    for (size_t b = 0; b < p->n_block; b += WIDE) {
        const size_t n = p->n_block - b < WIDE ? p->n_block - b : WIDE;
        for (size_t i = 0; i < n_row; i++) row_lanes(p, r + i, b, n, l.scale[i], l.zero[i]);
        if (n_row == ROW)
            direct_4[kind](p, r, b, n, &l, 0, total);
        else
            for (size_t i = 0; i < n_row; i++)
                direct_1[kind](p, r + i, b, n, &l, i, total + i * LANE);
    }
    write_rows(p->a, r, n_row, 0, total);
}

static void many_tokens(const panel *p, code kind, size_t r, size_t n_row, size_t t0, size_t n_tok)
{
    lanes l = { 0 };
    _Alignas(64) float strip[ROW * STRIP], total[PANEL_TOK * ROW * LANE];
    for (size_t i = 0; i < n_tok * ROW * LANE; i += LANE)
        _mm512_store_ps(total + i, _mm512_setzero_ps());
    for (size_t i = n_row * STRIP; i < (size_t)ROW * STRIP; i++) strip[i] = 0;
    for (size_t b = 0; b < p->n_block; b += SEGMENT) {
        const size_t n = p->n_block - b < SEGMENT ? p->n_block - b : SEGMENT;
        for (size_t i = 0; i < n_row; i++) {
            row_lanes(p, r + i, b, n, l.scale[i], l.zero[i]);
            strips[kind](p, r + i, b, n, l.zero[i], strip + i * STRIP);
        }
        for (size_t t = 0, k; t < n_tok; t += k) {
            k = n_tok - t < TOK ? n_tok - t : TOK;
            tiles[k](p, strip, p->x + (t0 + t) * p->xs + b * BLOCK, n, &l, total + t * ROW * LANE);
        }
    }
    for (size_t t = 0; t < n_tok; t++) write_rows(p->a, r, n_row, t0 + t, total + t * ROW * LANE);
}

static code panel_init(panel *p, const nb_linear_args *a)
{
    const size_t n_col = a->w.n_col;
    const bool fp4 = a->w.type == NB_W_FP4;
    const code kind = fp4 ? FP4 : a->w.group.zero ? INT4_ZERO : INT4;
    *p = (panel){ .a = a,
                  .row_bytes = nb_wtype_row_bytes(a->w.type, n_col),
                  .n_word = (n_col + 7) / 8,
                  .n_block = (n_col + BLOCK - 1) / BLOCK,
                  .xs = nb_w4_stride(n_col),
                  .x = a->xp,
                  .turn = _mm512_set1_epi8((char)a->w.group.flip),
                  .w = a->w };
    const size_t size = p->w.group.size;
    const unsigned shift = size == 16 ? 1 : size == 32 ? 2 : size == 64 ? 3 : size == 128 ? 4 : 0;
    p->n_group = nb_weight_n_group(&a->w);
    p->scale_bytes = nb_stype_bytes(p->w.group.scale_type);
    p->per = shift ? BLOCK / size : LANE;
    p->index = _mm512_srli_epi32(
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), shift);
    if (fp4) p->w.group.outer *= 0.5f;
    return kind;
}

void nb_linear_w4_avx512(const nb_linear_args *a)
{
    panel p;
    const code kind = panel_init(&p, a);
    for (size_t t = 0; t < a->n_tok; t += PANEL_TOK)
        for (size_t r = a->row_begin; r < a->row_end; r += ROW) {
            const size_t n_row = a->row_end - r < ROW ? a->row_end - r : ROW;
            const size_t n_tok = a->n_tok - t < PANEL_TOK ? a->n_tok - t : PANEL_TOK;
            if (a->n_tok == 1)
                one_token(&p, kind, r, n_row);
            else
                many_tokens(&p, kind, r, n_row, t, n_tok);
        }
}

/* ---- linear_t: x times the row's scales, in chunks of rows; a lane has 8 columns ---- */

enum { T_TOK = 2 };

/* n rows from r, block b, for n_tok (literal) tokens: added to total [tok][8][LANE]. */
INLINE void rows_t(const code kind, const int n_tok, const panel *p, size_t r, size_t n, size_t b,
                   const float *x, size_t xs, float *total)
{
    _Alignas(64) float scale[WIDE * LANE + LANE] = { 0 }, zero[WIDE * LANE + LANE] = { 0 };
    const uint8_t *w = (const uint8_t *)p->a->w.data + r * p->row_bytes + b * 64;
    __m512 sum[T_TOK * 8];
    UNROLL
    for (int i = 0; i < n_tok * 8; i++) sum[i] = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i++, w += p->row_bytes) {
        row_lanes(p, r + i, b, 1, scale, zero);
        const parts v = parts_of(kind, words(w, p->n_word - b * LANE), p->turn);
        const __m512 s = lanes_of(p, scale, 0), z = lanes_of(p, zero, 0);
        __m512 xv[T_TOK];
        UNROLL
        for (int t = 0; t < n_tok; t++)
            xv[t] = _mm512_mul_ps(_mm512_set1_ps(x[(size_t)t * xs + i]), s);
        UNROLL
        for (int j = 0; j < 8; j++) {
            const __m512 f = value(kind, &v, j, z);
            UNROLL
            for (int t = 0; t < n_tok; t++)
                sum[t * 8 + j] = _mm512_fmadd_ps(f, xv[t], sum[t * 8 + j]);
        }
    }
    UNROLL
    for (int i = 0; i < n_tok * 8; i++) {
        float *to = total + i * LANE;
        _mm512_store_ps(to, _mm512_add_ps(sum[i], _mm512_load_ps(to)));
    }
}

#define KIND_T(kind, name)                                                                         \
    static void rows_t_##name(const panel *p, int n_tok, size_t r, size_t n, size_t b,             \
                              const float *x, size_t xs, float *total)                             \
    {                                                                                              \
        if (n_tok == T_TOK)                                                                        \
            rows_t(kind, T_TOK, p, r, n, b, x, xs, total);                                         \
        else                                                                                       \
            rows_t(kind, 1, p, r, n, b, x, xs, total);                                             \
    }
KIND_T(INT4, int4)
KIND_T(INT4_ZERO, zero)
KIND_T(FP4, fp4)
typedef void rows_t_fn(const panel *p, int n_tok, size_t r, size_t n, size_t b, const float *x,
                       size_t xs, float *total);
static rows_t_fn *const rows_ts[CODES] = { rows_t_int4, rows_t_zero, rows_t_fp4 };

/* Columns of block b for n_tok tokens from t0. */
static void block_t(const panel *p, code kind, size_t b, size_t t0, size_t n_tok)
{
    const nb_linear_args *a = p->a;
    const size_t chunk = nb_linear_t_chunk(a->row_end - a->row_begin);
    _Alignas(64) float total[T_TOK * 8 * LANE] = { 0 };
    for (size_t r = a->row_begin; r < a->row_end; r += chunk)
        rows_ts[kind](p, (int)n_tok, r, a->row_end - r < chunk ? a->row_end - r : chunk, b,
                      a->x + t0 * a->x_stride + (r - a->row_begin), a->x_stride, total);
    for (size_t t = 0; t < n_tok; t++)
        for (size_t k = 0; k < BLOCK; k++) {
            const size_t c = b * BLOCK + k;
            if (c >= a->col_begin && c < a->col_end)
                a->y[(t0 + t) * a->y_stride + (c - a->col_begin)] =
                    total[(t * 8 + k % 8) * LANE + k / 8];
        }
}

void nb_linear_t_w4_avx512(const nb_linear_args *a)
{
    panel p;
    const code kind = panel_init(&p, a);
    if (a->w.group.column) { /* columns are anywhere */
        nb_linear_t_packed_c(a);
        return;
    }
    for (size_t b = a->col_begin / BLOCK; b * BLOCK < a->col_end; b++)
        for (size_t t = 0; t < a->n_tok; t += T_TOK)
            block_t(&p, kind, b, t, a->n_tok - t < T_TOK ? a->n_tok - t : T_TOK);
}
