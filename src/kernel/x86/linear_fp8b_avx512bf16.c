/* linear_fp8b_avx512bf16.c - up to eight tokens times E4M3 weights by tables (VBMI).
 *
 * The values of codes, in 8 significant bits, are the upper halves of floats.  Two look-ups of 64 codes give their upper
 * bytes and their lower ones, and one of both puts 16 of them where a float has them: 7 shuffles for 64 codes, where
 * conversions of FP16 take 16 operations, which are slower.  What the table has is 2^-8 times the value, as in
 * linear_fp8b_avx512.c, with the same order of sums and so the same bits.  A code that is NaN makes the sum NaN; such
 * rows, and all else, are left to that file, which makes a NaN of one form.  Rows are read eight before they are needed:
 * without, a few tokens took seven times as long as one. */
#include "kernel/kernel.h"
#include "kernel/linear/linear.h"
#include "kernel/linear/linear_order.h"
#include "kernel/x86/vec_avx512.h"

enum { ROWS = 8, TOKS = 4, SUMS = 8, FEW = 8, STEP = 64 };
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

typedef struct tables {
    __m512i upper[2], lower[2]; /* bytes of the codes 0..127 */
    __m512i part[4]; /* lower bytes 16 k on, then upper ones, as the upper halves of 16 floats */
} tables;

static tables make_tables(void)
{
    tables t;
    _Alignas(64) uint8_t upper[128], lower[128];
    const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int k = 0; k < 8; k++) {
        const __m512i code = _mm512_add_epi32(count, _mm512_set1_epi32(16 * k));
        const __m256i half = _mm512_cvtepi32_epi16(_mm512_slli_epi32(code, 7));
        const __m512i f = _mm512_castps_si512(_mm512_cvtph_ps(half));
        _mm_store_si128((__m128i *)(void *)(upper + 16 * k),
                        _mm512_cvtepi32_epi8(_mm512_srli_epi32(f, 24)));
        _mm_store_si128((__m128i *)(void *)(lower + 16 * k),
                        _mm512_cvtepi32_epi8(_mm512_srli_epi32(f, 16)));
    }
    upper[127] = 0x7f, lower[127] = 0xc0; /* NaN */
    UNROLL
    for (int k = 0; k < 2; k++) {
        t.upper[k] = _mm512_load_si512(upper + 64 * k);
        t.lower[k] = _mm512_load_si512(lower + 64 * k);
    }
    UNROLL
    for (int k = 0; k < 4; k++) {
        const __m512i at = _mm512_add_epi32(count, _mm512_set1_epi32(16 * k));
        t.part[k] =
            _mm512_or_si512(_mm512_slli_epi32(at, 16),
                            _mm512_slli_epi32(_mm512_or_si512(at, _mm512_set1_epi32(64)), 24));
    }
    return t;
}

/* n_row x n_tok (literal) from row r and token t on, whole chunks of columns, into total [tok][ROWS][16]. */
INLINE void tile(const int n_row, const int n_tok, const nb_linear_args *a, size_t r, size_t t,
                 const tables *b, __m512 (*total)[ROWS])
{
    const size_t ws = a->w.n_col, xs = a->x_stride;
    const uint8_t *w = (const uint8_t *)a->w.data + r * ws;
    const float *x = a->x + t * xs;
    const __mmask64 top = 0xcccccccccccccccc;
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    __m512 sum[SUMS], all[SUMS];
    UNROLL
    for (int i = 0; i < n_row * n_tok; i++) all[i] = _mm512_setzero_ps();
    for (size_t c = 0; c < ws; c += NB_FP8_BLOCK) {
        UNROLL
        for (int i = 0; i < n_row * n_tok; i++) sum[i] = _mm512_setzero_ps();
        for (size_t j = c; j < c + NB_FP8_BLOCK; j += STEP) {
            UNROLL
            for (int i = 0; i < n_row; i++) {
                const __m512i v = _mm512_loadu_si512(w + (size_t)i * ws + j);
                /* rows to come, in the order of their addresses */
                _mm_prefetch((const char *)(w + ROWS * ws + (size_t)n_row * j + i * STEP),
                             _MM_HINT_T0);
                const __m512i lower = _mm512_permutex2var_epi8(b->lower[0], v, b->lower[1]);
                const __m512i most = _mm512_permutex2var_epi8(b->upper[0], v, b->upper[1]);
                const __m512i upper =
                    _mm512_ternarylogic_epi32(most, v, sign, 0xf8); /* most | (v & sign) */
                UNROLL
                for (size_t k = 0; k < 4; k++) {
                    const __m512 f = _mm512_castsi512_ps(
                        _mm512_maskz_permutex2var_epi8(top, lower, b->part[k], upper));
                    UNROLL
                    for (int m = 0; m < n_tok; m++)
                        sum[i * n_tok + m] =
                            _mm512_fmadd_ps(f, _mm512_loadu_ps(x + (size_t)m * xs + j + 16 * k),
                                            sum[i * n_tok + m]);
                }
            }
        }
        UNROLL
        for (int i = 0; i < n_row; i++) {
            const __m512 scale = _mm512_set1_ps(nb_weight_scale(&a->w, r + (size_t)i, c) * 256);
            UNROLL
            for (int m = 0; m < n_tok; m++)
                all[i * n_tok + m] = _mm512_fmadd_ps(sum[i * n_tok + m], scale, all[i * n_tok + m]);
        }
    }
    UNROLL
    for (int i = 0; i < n_row; i++) UNROLL
    for (int m = 0; m < n_tok; m++) total[m][i] = all[i * n_tok + m];
}

/* ROWS rows times n_tok tokens from t on. */
#define ROWS_TIMES(n_row, n_tok)                                                                   \
    static void rows_times_##n_tok(const nb_linear_args *a, size_t r, size_t t, const tables *b,   \
                                   __m512(*total)[ROWS])                                           \
    {                                                                                              \
        for (size_t i = 0; i < ROWS; i += n_row)                                                   \
            tile(n_row, n_tok, a, r + i, t, b, (__m512(*)[ROWS])(void *)(&total[0][i]));           \
    }
ROWS_TIMES(8, 1)
ROWS_TIMES(4, 2)
ROWS_TIMES(2, 3)
ROWS_TIMES(2, 4)
typedef void rows_times_fn(const nb_linear_args *a, size_t r, size_t t, const tables *b,
                           __m512 (*total)[ROWS]);
static rows_times_fn *const rows_times[TOKS + 1] = { NULL, rows_times_1, rows_times_2, rows_times_3,
                                                     rows_times_4 };

/* ROWS rows from r on times all tokens; false: there is a NaN. */
static bool rows_8(const nb_linear_args *a, size_t r, const tables *b)
{
    __m512 total[TOKS][ROWS];
    for (size_t t = 0, n; t < a->n_tok; t += n) {
        n = a->n_tok - t < TOKS ? a->n_tok - t : TOKS;
        rows_times[n](a, r, t, b, total);
        for (size_t m = 0; m < n; m++)
            for (size_t i = 0; i < ROWS; i += 4) {
                const __m512 *s = &total[m][i];
                __m128 y = nb_avx512_join4(s[0], s[1], s[2], s[3]);
                if (_mm_movemask_ps(_mm_cmpunord_ps(y, y))) return false;
                if (a->bias) y = _mm_add_ps(y, _mm_loadu_ps(a->bias + r + i));
                _mm_storeu_ps(a->y + (t + m) * a->y_stride + (r - a->row_begin) + i, y);
            }
    }
    return true;
}

static void rows_float(const nb_linear_args *a, size_t r, size_t end)
{
    nb_linear_args b = *a;
    b.row_begin = r;
    b.row_end = end;
    b.y = a->y + (r - a->row_begin);
    nb_linear_fp8b_avx512(&b);
}

void nb_linear_fp8b_avx512bf16(const nb_linear_args *a)
{
    size_t r = a->row_begin;
    if (a->n_tok <= FEW && a->w.n_col % NB_FP8_BLOCK == 0) {
        const tables t = make_tables();
        for (; r + ROWS <= a->row_end; r += ROWS)
            if (!rows_8(a, r, &t)) rows_float(a, r, r + ROWS);
    }
    if (r < a->row_end) rows_float(a, r, a->row_end);
}
