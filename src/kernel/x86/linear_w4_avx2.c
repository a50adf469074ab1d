/* linear_w4_avx2.c - linear with codes of 4 bits (INT4, FP4), the values of the AVX-512 row but for
 * underflow: linear_w4.h has the order, whose 16 lanes are two halves here.
 *
 * INT4: the nibble goes to the top of its word and comes back with its sign, two shifts and a conversion;
 * FP4: vpermps takes the lowest 3 bits as the index of the magnitudes, and the sign is put in.
 * One token: 4 rows at a time straight from the matrix.  More: a strip of 4 rows is made
 * float once, for tiles of 4 rows x 2 tokens. */
#include "kernel/linear/linear_order.h"
#include "kernel/linear/linear_w4.h"
#include "kernel/x86/vec_avx2.h"

enum {
    BLOCK = NB_W4_BLOCK,
    LANE = NB_W4_LANE,
    HALF = 8,
    ROW = 4,
    TOK = 2,
    PANEL_TOK = 48,
    SEGMENT = 8,
    STRIP = SEGMENT * BLOCK + LANE
};

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

typedef struct lanes {
    _Alignas(32) float scale[ROW][SEGMENT * LANE], zero[ROW][SEGMENT * LANE];
} lanes;

typedef enum code { INT4, INT4_ZERO, FP4, CODES } code;

/* ---- scales and zero points of lanes ---- */

/* n <= SEGMENT * 8 scales from the i-th on, times outer. */
static void scales_of(const nb_wgroups *g, size_t i, size_t n, float *out)
{
    const __m256 outer = _mm256_set1_ps(g->outer);
    const uint16_t *h = (const uint16_t *)g->scale + i;
    size_t k = 0;
    for (; g->scale_type == NB_S_BF16 && k + HALF <= n; k += HALF) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(h + k));
        const __m256i f = _mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16);
        _mm256_storeu_ps(out + k, _mm256_mul_ps(_mm256_castsi256_ps(f), outer));
    }
    for (; g->scale_type == NB_S_F16 && k + HALF <= n; k += HALF) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(h + k));
        _mm256_storeu_ps(out + k, _mm256_mul_ps(_mm256_cvtph_ps(v), outer));
    }
    nb_packed_scales(g, i + k, n - k, out + k);
    for (; k < n; k++) out[k] *= g->outer;
}

/* Each of n values for `wide` lanes (2, 4, 8, 16). */
static void spread(const float *s, size_t n, size_t wide, float *out)
{
    for (size_t k = 0; k < n; k++)
        if (wide == 2)
            out[2 * k] = out[2 * k + 1] = s[k];
        else
            for (size_t i = 0; i < wide; i += 4)
                _mm_storeu_ps(out + k * wide + i, _mm_broadcast_ss(s + k));
}

static void row_lanes(const nb_weight *w, size_t r, size_t b, size_t n_block, float *scale,
                      float *zero)
{
    const nb_wgroups *g = &w->group;
    const size_t size = g->size;
    float s[SEGMENT * 8 + HALF] = { 0 };
    if (size != 16 && size != 32 && size != 64 && size != 128) {
        nb_w4_lanes(w, r, b, n_block, scale, zero);
        for (size_t i = 0; g->zero && i < n_block * LANE; i++) zero[i] -= 8;
        return;
    }
    const size_t n_group = nb_weight_n_group(w), first = b * BLOCK / size;
    const size_t all = n_block * BLOCK / size, at = r * n_group + first;
    const size_t n = n_group - first < all ? n_group - first : all;
    scales_of(g, at, n, s);
    spread(s, all, size / 8, scale);
    if (!g->zero) return;
    for (size_t i = 0; i < n; i++) s[i] = (float)((int)g->zero[at + i] - 8);
    spread(s, all, size / 8, zero);
}

/* ---- codes ---- */

/* Words of a half from p on, of which `left` are in the row. */
static inline __m256i words(const uint8_t *p, size_t left)
{
    if (left >= HALF) return _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm256_maskload_epi32((const int *)(const void *)p, nb_avx2_mask(left));
}

static inline size_t left_of(size_t n, size_t used)
{
    return n > used ? n - used : 0;
}

/* Code j of each word as float; INT4's words have the signs of their nibbles turned before. */
INLINE __m256 value(const code kind, __m256i v, const int j, __m256 zero, __m256 magnitude)
{
    const __m256i top = _mm256_slli_epi32(v, 28 - 4 * j);
    if (kind == FP4) {
        const __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(top), _mm256_set1_ps(-0.0f));
        return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitude, _mm256_srli_epi32(v, 4 * j)),
                             sign);
    }
    const __m256 f = _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 28));
    return kind == INT4_ZERO ? _mm256_sub_ps(f, zero) : f;
}

typedef struct panel {
    const nb_linear_args *a;
    size_t row_bytes, n_word, n_block, xs;
    const float *x;
    __m256i turn; /* exclusive-or of words */
    __m256 magnitude;
} panel;

/* One token, n_row (literal) rows: [row][LANE] of total, from block b on. */
INLINE void direct(const code kind, const int n_row, const panel *p, size_t r0, size_t b0,
                   size_t n_block, const lanes *l, size_t row0, float *total)
{
    const uint8_t *w = (const uint8_t *)p->a->w.data + r0 * p->row_bytes + b0 * 64;
    for (size_t b = 0; b < n_block; b++) UNROLL
    for (size_t h = 0; h < LANE; h += HALF) {
        const float *x = p->x + (b0 + b) * BLOCK + h;
        const size_t left = left_of(p->n_word, (b0 + b) * LANE + h);
        __m256i v[ROW];
        __m256 sum[ROW];
        UNROLL
        for (int r = 0; r < n_row; r++)
            v[r] = _mm256_xor_si256(words(w + (size_t)r * p->row_bytes + b * 64 + h * 4, left),
                                    p->turn);
        UNROLL
        for (int j = 0; j < 8; j++) {
            const __m256 xv = _mm256_loadu_ps(x + j * LANE);
            UNROLL
            for (int r = 0; r < n_row; r++) {
                const __m256 z = kind == INT4_ZERO
                                     ? _mm256_load_ps(l->zero[row0 + (size_t)r] + b * LANE + h)
                                     : _mm256_setzero_ps();
                const __m256 f = value(kind, v[r], j, z, p->magnitude);
                sum[r] = j == 0 ? _mm256_mul_ps(f, xv) : _mm256_fmadd_ps(f, xv, sum[r]);
            }
        }
        UNROLL
        for (int r = 0; r < n_row; r++) {
            float *t = total + (size_t)r * LANE + h;
            const __m256 s = _mm256_load_ps(l->scale[row0 + (size_t)r] + b * LANE + h);
            _mm256_storeu_ps(t, _mm256_fmadd_ps(sum[r], s, _mm256_loadu_ps(t)));
        }
    }
}

/* Values of n_block blocks of row r, [block][j][LANE]. */
INLINE void make_strip(const code kind, const panel *p, size_t r, size_t b0, size_t n_block,
                       const float *zero, float *strip)
{
    const uint8_t *w = (const uint8_t *)p->a->w.data + r * p->row_bytes + b0 * 64;
    for (size_t b = 0; b < n_block; b++) UNROLL
    for (size_t h = 0; h < LANE; h += HALF) {
        const __m256i v = _mm256_xor_si256(
            words(w + b * 64 + h * 4, left_of(p->n_word, (b0 + b) * LANE + h)), p->turn);
        const __m256 z =
            kind == INT4_ZERO ? _mm256_load_ps(zero + b * LANE + h) : _mm256_setzero_ps();
        UNROLL
        for (int j = 0; j < 8; j++)
            _mm256_store_ps(strip + b * BLOCK + (size_t)j * LANE + h,
                            value(kind, v, j, z, p->magnitude));
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

/* ROW rows of a strip x n_tok (literal) tokens: total [tok][ROW][LANE]. */
INLINE void tile(const int n_tok, const float *strip, const float *x, size_t xs, size_t n_block,
                 const lanes *l, float *total)
{
    for (size_t at = 0; at < n_block * LANE; at += HALF) { /* halves of blocks */
        const size_t from = at / LANE * BLOCK + at % LANE;
        __m256 sum[ROW * TOK];
        UNROLL
        for (size_t j = 0; j < 8; j++) {
            __m256 xv[TOK];
            UNROLL
            for (size_t t = 0; t < (size_t)n_tok; t++)
                xv[t] = _mm256_loadu_ps(x + t * xs + from + j * LANE);
            UNROLL
            for (size_t r = 0; r < ROW; r++) {
                const __m256 f = _mm256_load_ps(strip + r * STRIP + from + j * LANE);
                UNROLL
                for (size_t t = 0; t < (size_t)n_tok; t++)
                    sum[r * TOK + t] = j == 0 ? _mm256_mul_ps(f, xv[t])
                                              : _mm256_fmadd_ps(f, xv[t], sum[r * TOK + t]);
            }
        }
        UNROLL
        for (size_t r = 0; r < ROW; r++) {
            const __m256 s = _mm256_load_ps(l->scale[r] + at);
            UNROLL
            for (size_t t = 0; t < (size_t)n_tok; t++) {
                float *p = total + (t * ROW + r) * LANE + at % LANE;
                _mm256_store_ps(p, _mm256_fmadd_ps(sum[r * TOK + t], s, _mm256_load_ps(p)));
            }
        }
    }
}
static void tile_1(const float *strip, const float *x, size_t xs, size_t n, const lanes *l,
                   float *total)
{
    tile(1, strip, x, xs, n, l, total);
}
static void tile_2(const float *strip, const float *x, size_t xs, size_t n, const lanes *l,
                   float *total)
{
    tile(2, strip, x, xs, n, l, total);
}

static void write_rows(const nb_linear_args *a, size_t r, size_t n_row, size_t t, const float *p)
{
    float *y = a->y + t * a->y_stride + (r - a->row_begin);
    for (size_t i = 0; i < n_row; i++, p += LANE) {
        const float sum =
            nb_avx2_join(_mm256_add_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + HALF)));
        y[i] = a->bias ? sum + a->bias[r + i] : sum;
    }
}

static void one_token(const panel *p, code kind, size_t r, size_t n_row)
{
    lanes l;
    _Alignas(32) float total[ROW * LANE] = { 0 };
    for (size_t b = 0; b < p->n_block; b += SEGMENT) {
        const size_t n = p->n_block - b < SEGMENT ? p->n_block - b : SEGMENT;
        for (size_t i = 0; i < n_row; i++) row_lanes(&p->a->w, r + i, b, n, l.scale[i], l.zero[i]);
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
    _Alignas(32) float strip[ROW * STRIP], total[PANEL_TOK * ROW * LANE];
    for (size_t i = 0; i < n_tok * ROW * LANE; i += HALF)
        _mm256_store_ps(total + i, _mm256_setzero_ps());
    for (size_t i = n_row * STRIP; i < (size_t)ROW * STRIP; i++) strip[i] = 0;
    for (size_t b = 0; b < p->n_block; b += SEGMENT) {
        const size_t n = p->n_block - b < SEGMENT ? p->n_block - b : SEGMENT;
        for (size_t i = 0; i < n_row; i++) {
            row_lanes(&p->a->w, r + i, b, n, l.scale[i], l.zero[i]);
            strips[kind](p, r + i, b, n, l.zero[i], strip + i * STRIP);
        }
        for (size_t t = 0; t < n_tok; t += TOK)
            (n_tok - t == 1 ? tile_1 : tile_2)(strip, p->x + (t0 + t) * p->xs + b * BLOCK, p->xs, n,
                                               &l, total + t * ROW * LANE);
    }
    for (size_t t = 0; t < n_tok; t++) write_rows(p->a, r, n_row, t0 + t, total + t * ROW * LANE);
}

void nb_linear_w4_avx2(const nb_linear_args *a)
{
    const size_t n_col = a->w.n_col;
    const bool fp4 = a->w.type == NB_W_FP4;
    const code kind = fp4 ? FP4 : a->w.group.zero ? INT4_ZERO : INT4;
    const unsigned turn = a->w.group.flip ^ (fp4 ? 0 : 0x88u);
    const panel p = { .a = a,
                      .row_bytes = nb_wtype_row_bytes(a->w.type, n_col),
                      .n_word = (n_col + 7) / 8,
                      .n_block = (n_col + BLOCK - 1) / BLOCK,
                      .xs = nb_w4_stride(n_col),
                      .x = a->xp,
                      .turn = _mm256_set1_epi8((char)turn),
                      .magnitude = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6) };
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
