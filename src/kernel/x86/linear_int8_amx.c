/* linear_int8_amx.c - linear with INT8 weights on the tile unit: exact, the bits of the portable row
 * (linear_int8.h).
 *
 * The weights as they lie, 64 columns a step; the 15-bit integers of a token as the digits 128 hi +
 * lo, an accumulator for each: 2 row tiles x 2 digits for 16 tokens.  |hi W| <= 127 * 127, so that
 * 32 bits hold the sums of 2^17 columns; a wider matrix is summed by plain loops.
 *
 * For a few tokens the columns of a tile stand empty and its load costs as much as ever: up to FEW
 * packing and sums are those of AVX-512, which stream the rows at 1.4 times the rate (4096 x 2048,
 * one token, two threads of a 2 GHz server: 0.45 ms against 0.63).  The bits are the same. */
#include "kernel/x86/linear_amx.h"
#include "kernel/x86/linear_int8_avx512.h"

enum { STEP_COL = 64, COL_MAX = 1 << 17, FEW = 4 };

/* Packed tokens, then float sx [n_tok]. */
static size_t scales_at(size_t n_tok, size_t n_col)
{
    return nb_amx_packed_bytes(n_tok, n_col, STEP_COL);
}

size_t nb_linear_int8_pack_bytes_amx(size_t n_tok, size_t n_col)
{
    if (n_tok <= FEW) return nb_linear_int8_pack_bytes(n_tok, n_col);
    return (scales_at(n_tok, n_col) + n_tok * sizeof(float) + 63) / 64 * 64;
}

/* Four vectors of small integers as bytes, in order. */
static inline __m512i as_bytes(const __m512i v[4])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i b =
        _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
    return _mm512_permutexvar_epi32(order, b); /* packs go by quarters */
}

static void digits(const float *x, size_t c, size_t n_col, nb_int8_scale s, __m512i *hi,
                   __m512i *lo)
{
    __m512i h[4], l[4];
    for (size_t i = 0; i < 4; i++) {
        const __m512i q = nb_int8_q_of(x, c + 16 * i, n_col, s);
        h[i] = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(64)), 7);
        l[i] = _mm512_sub_epi32(q, _mm512_slli_epi32(h[i], 7));
    }
    *hi = as_bytes(h);
    *lo = as_bytes(l);
}

void nb_linear_int8_pack_amx(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                             const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)column;
    if (n_tok <= FEW) {
        nb_linear_int8_pack_avx512(xp, x, x_stride, n_tok, n_col, NULL, tok0, tok1);
        return;
    }
    alignas(64) __m512i hi[16], lo[16];
    nb_int8_scale scale[NB_AMX_TOK];
    float *sx = (float *)(void *)((uint8_t *)xp + scales_at(n_tok, n_col));
    for (size_t t = tok0, nt; t < tok1; t += nt) {
        nt = tok1 - t < NB_AMX_TOK ? tok1 - t : NB_AMX_TOK;
        uint8_t *out = (uint8_t *)xp + nb_amx_packed_bytes(t, n_col, STEP_COL);
        const __mmask16 mask = nb_avx512_mask16(nt);
        for (size_t i = 0; i < nt; i++) {
            scale[i] = nb_int8_scale_of(x + (t + i) * x_stride, n_col);
            sx[t + i] = scale[i].sx;
        }
        for (size_t i = nt; i < 16; i++) hi[i] = lo[i] = _mm512_setzero_si512();
        for (size_t c = 0; c < n_col; c += STEP_COL, out += 128 * nt) {
            for (size_t i = 0; i < nt; i++)
                digits(x + (t + i) * x_stride, c, n_col, scale[i], &hi[i], &lo[i]);
            nb_avx512_transpose16(out, 4 * nt, mask, hi, sizeof hi[0]);
            nb_avx512_transpose16(out + 64 * nt, 4 * nt, mask, lo, sizeof lo[0]);
        }
    }
}

static void multiply(const nb_amx_part *p)
{
    const bool rows2 = p->tile_rows > 16;
    const size_t wb = 4 * p->n_tok[0]; /* bytes of a row of B */
    const uint8_t *a = p->w, *x = p->x[0] + p->step * 32 * wb;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!p->zero) {
        _tile_loadd(0, p->acc, 64);
        _tile_loadd(1, p->acc + NB_AMX_TILE, 64);
        if (rows2) _tile_loadd(2, p->acc + 2 * NB_AMX_TILE, 64);
        if (rows2) _tile_loadd(3, p->acc + 3 * NB_AMX_TILE, 64);
    }
    for (size_t s = 0; s < p->n_step; s++, a += p->w_step, x += 32 * wb) {
        _tile_loadd(4, a, p->w_row);
        if (rows2) _tile_loadd(5, a + p->w_tile, p->w_row);
        if (p->ahead) nb_amx_prefetch(p, s, p->n_step);
        _tile_loadd(6, x, wb);
        _tile_dpbssd(0, 4, 6);
        if (rows2) _tile_dpbssd(2, 5, 6);
        _tile_loadd(7, x + 16 * wb, wb);
        _tile_dpbssd(1, 4, 7);
        if (rows2) _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, p->acc, 64);
    _tile_stored(1, p->acc + NB_AMX_TILE, 64);
    if (rows2) _tile_stored(2, p->acc + 2 * NB_AMX_TILE, 64);
    if (rows2) _tile_stored(3, p->acc + 3 * NB_AMX_TILE, 64);
}

/* 8 sums 128 hi + lo as float, rounded once. */
static inline __m256 sum8(const int32_t *hi, const int32_t *lo)
{
    const __m512i h = _mm512_cvtepi32_epi64(_mm256_load_si256((const __m256i *)(const void *)hi));
    const __m512i l = _mm512_cvtepi32_epi64(_mm256_load_si256((const __m256i *)(const void *)lo));
    return _mm512_cvtepi64_ps(_mm512_add_epi64(_mm512_slli_epi64(h, 7), l));
}

/* 16 of them.  As 128 h + l with l in 0..127: where h fits in 24 bits, as it nearly always does, one FMA rounds the sum. */
static inline __m512 sum16(const int32_t *hi, const int32_t *lo)
{
    const __m512i low = _mm512_load_si512(lo), most = _mm512_set1_epi32(1 << 24);
    const __m512i h = _mm512_add_epi32(_mm512_load_si512(hi), _mm512_srai_epi32(low, 7));
    const __m512i l = _mm512_and_si512(low, _mm512_set1_epi32(127));
    if (_mm512_cmpge_epu32_mask(_mm512_add_epi32(h, most), _mm512_add_epi32(most, most)))
        return _mm512_insertf32x8(_mm512_castps256_ps512(sum8(hi, lo)), sum8(hi + 8, lo + 8), 1);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(h), _mm512_set1_ps(128), _mm512_cvtepi32_ps(l));
}

static void finish(const nb_amx_part *p)
{
    const nb_linear_args *a = p->a;
    alignas(64) float row[16][16], y[16][16];
    const float *scales =
        (const float *)(const void *)((const uint8_t *)a->xp + scales_at(a->n_tok, a->w.n_col));
    const __m512 sx = _mm512_maskz_loadu_ps(nb_avx512_mask16(p->n_tok[0]), scales + p->tok);
    for (size_t i = 0; i < p->n_row; i += 16) {
        const size_t n = p->n_row - i < 16 ? p->n_row - i : 16, r = p->r + i;
        const int32_t *hi = (const int32_t *)(const void *)(p->acc + i / 16 * 2 * NB_AMX_TILE);
        const int32_t *lo = hi + 256;
        for (size_t k = 0; k < 16; k++) {
            const __m512 sum = sum16(hi + 16 * k, lo + 16 * k);
            const __m512 scale = _mm512_set1_ps(k < n ? a->w.scale[r + k] : 0);
            _mm512_store_ps(row[k], _mm512_mul_ps(sum, _mm512_mul_ps(scale, sx)));
        }
        nb_avx512_transpose16(y, sizeof y[0], 0xffff, row, sizeof row[0]);
        const __mmask16 mask = nb_avx512_mask16(n);
        float *out = a->y + p->tok * a->y_stride + (r - a->row_begin);
        for (size_t t = 0; t < p->n_tok[0]; t++) {
            __m512 v = _mm512_load_ps(y[t]);
            if (a->bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, a->bias + r));
            _mm512_mask_storeu_ps(out + t * a->y_stride, mask, v);
        }
    }
}

/* Any number of columns, one product at a time. */
static void plain(const nb_linear_args *a)
{
    const size_t n_col = a->w.n_col;
    const float *sx =
        (const float *)(const void *)((const uint8_t *)a->xp + scales_at(a->n_tok, n_col));
    for (size_t t = 0; t < a->n_tok; t++) {
        const size_t at = t % NB_AMX_TOK, t0 = t - at;
        const size_t nt = a->n_tok - t0 < NB_AMX_TOK ? a->n_tok - t0 : NB_AMX_TOK;
        const int8_t *x = (const int8_t *)a->xp + nb_amx_packed_bytes(t0, n_col, STEP_COL);
        for (size_t r = a->row_begin; r < a->row_end; r++) {
            const int8_t *w = (const int8_t *)a->w.data + r * n_col;
            int64_t sum = 0;
            for (size_t c = 0; c < n_col; c++) {
                const int8_t *hi =
                    x + c / STEP_COL * 128 * nt + c % STEP_COL / 4 * 4 * nt + at * 4 + c % 4;
                sum += (128 * hi[0] + hi[64 * nt]) * w[c];
            }
            const float y = nb_int8_finish(sum, a->w.scale[r], sx[t]);
            a->y[t * a->y_stride + (r - a->row_begin)] = a->bias ? y + a->bias[r] : y;
        }
    }
}

void nb_linear_int8_amx(const nb_linear_args *a)
{
    if (a->n_tok <= FEW) {
        nb_linear_int8_avx512(a);
        return;
    }
    static const nb_amx_type type = { .step_col = STEP_COL,
                                      .unit_blocks = 1,
                                      .panel = nb_amx_copy_panel,
                                      .multiply = multiply,
                                      .finish = finish };
    if (a->w.n_col > COL_MAX)
        plain(a);
    else
        nb_linear_amx(a, &type);
}
