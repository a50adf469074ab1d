/* linear_fp8b_amx.c - linear with E4M3 weights in scaled blocks on the tile unit.
 *
 * An E4M3 is a BF16: three operations for the normal ones; zero, the 7 subnormals and NaN come
 * from a table by a masked permutation, since the unit takes subnormal operands as 0.  8 operations
 * per 32 codes on two ports, three of them shuffles: 4 cycles.  The block's scale cannot go into
 * BF16 without loss; it multiplies the sum of the block, so that accumulators are stored after
 * every 128 columns and added to totals: 64 stores, loads and FMAs of 16 per 32 products.
 *
 * One unit of tokens: the codes of a block are converted while the one before is multiplied, step
 * by step: the 32 rows of a step take about 130 cycles of the vector ports and the two chains of
 * a token 104 of the tile unit, 7 bytes per cycle.  More: panels as in linear_amx.c. */
#include "kernel/linear/linear_order.h"
#include "kernel/x86/linear_amx.h"
#include "kernel/x86/vec_avx512.h"

enum { STEP_COL = 32, BLOCK_STEPS = NB_FP8_BLOCK / STEP_COL, STEP_BYTES = 2 * NB_AMX_TILE };

/* 32 codes as BF16. */
static inline __m512i widen(__m256i codes)
{
    alignas(64) static const uint16_t special[32] = {
        0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, [31] = 0x7fc0
    }; /* m 2^-9; 127 is 31 mod 32 */
    const __m512i w = _mm512_cvtepi8_epi16(codes);
    const __m512i mag = _mm512_and_si512(w, _mm512_set1_epi16(0x7f));
    const __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(mag, 4), _mm512_set1_epi16(0x3c00));
    const __mmask32 other = _mm512_cmpge_epu16_mask(_mm512_sub_epi16(mag, _mm512_set1_epi16(8)),
                                                    _mm512_set1_epi16(127 - 8));
    const __m512i v = _mm512_mask_permutexvar_epi16(normal, other, mag, _mm512_load_si512(special));
    return _mm512_ternarylogic_epi32(v, w, _mm512_set1_epi16((short)0x8000), 0xf8); /* v | w & c */
}

/* Step of the rows of p as two tiles; rows from n_row on are left alone. */
static inline void convert(const nb_amx_part *p, size_t step, uint8_t *out)
{
    const size_t n_col = p->a->w.n_col, c = step * STEP_COL, left = n_col - c;
    const uint8_t *w = (const uint8_t *)p->a->w.data + p->r * n_col + c;
    if (left >= STEP_COL) {
        for (size_t i = 0; i < p->n_row; i++)
            _mm512_store_si512(out + i * 64, widen(_mm256_loadu_si256(
                                                 (const __m256i *)(const void *)(w + i * n_col))));
        return;
    }
    for (size_t i = 0; i < p->n_row; i++)
        _mm512_store_si512(out + i * 64,
                           widen(_mm256_maskz_loadu_epi8(nb_avx512_mask32(left), w + i * n_col)));
}

static void panel(const nb_amx_part *p, uint8_t *out)
{
    for (size_t s = 0; s < p->n_step; s++, out += STEP_BYTES) {
        convert(p, p->step + s, out);
        for (size_t i = p->n_row; i < NB_AMX_ROWS; i++)
            _mm512_store_si512(out + i * 64, _mm512_setzero_si512());
    }
}

static inline void zero_tiles(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* One step: tiles of weights at a (from a panel), of tokens at step. */
static inline void multiply_step(const nb_amx_part *p, const uint8_t *a, size_t step)
{
    const bool rows2 = p->tile_rows > 16, toks2 = p->x[1] != NULL;
    const size_t w0 = 4 * p->n_tok[0], w1 = 4 * p->n_tok[1];
    const uint8_t *x0 = p->x[0] + step * 32 * w0;
    _tile_loadd(4, a, 64);
    if (rows2) _tile_loadd(5, a + NB_AMX_TILE, 64);
    for (size_t part = 0; part < 2; part++) {
        _tile_loadd(6, x0 + part * 16 * w0, w0);
        _tile_dpbf16ps(0, 4, 6);
        if (rows2) _tile_dpbf16ps(2, 5, 6);
        if (!toks2) continue;
        _tile_loadd(7, p->x[1] + step * 32 * w1 + part * 16 * w1, w1);
        _tile_dpbf16ps(1, 4, 7);
        if (rows2) _tile_dpbf16ps(3, 5, 7);
    }
}

/* total += scale * accumulators, of the block of columns with this step. */
static void add_block(const nb_amx_part *p, size_t step, uint8_t *sum)
{
    const bool rows2 = p->tile_rows > 16, toks2 = p->x[1] != NULL;
    const nb_weight *w = &p->a->w;
    const size_t c = step * STEP_COL, change = NB_FP8_BLOCK - p->r % NB_FP8_BLOCK;
    const bool each = w->row_scales;
    _tile_stored(0, sum, 64);
    if (toks2) _tile_stored(1, sum + NB_AMX_TILE, 64);
    if (rows2) _tile_stored(2, sum + 2 * NB_AMX_TILE, 64);
    if (rows2 && toks2) _tile_stored(3, sum + 3 * NB_AMX_TILE, 64);
    for (size_t from = 0, to; from < p->n_row; from = to) { /* at most one change of blocks' scales */
        to = each ? from + 1 : from < change && change < p->n_row ? change : p->n_row;
        const __m512 scale = _mm512_set1_ps(nb_weight_scale(w, p->r + from, c));
        for (size_t i = from; i < to; i++)
            for (size_t j = 0; j < 1 + (size_t)toks2; j++) {
                const size_t at = (i / 16 * 2 + j) * NB_AMX_TILE + i % 16 * 64;
                float *total = (float *)(void *)(p->acc + at);
                const __m512 v = _mm512_load_ps(sum + at);
                _mm512_store_ps(total, _mm512_fmadd_ps(v, scale, _mm512_load_ps(total)));
            }
    }
}

/* Totals that start at 0; what no tile writes of sum stays 0. */
static void begin(const nb_amx_part *p, uint8_t *sum)
{
    for (size_t i = 0; i < 4 * NB_AMX_TILE; i += 64) {
        if (p->zero) _mm512_store_si512(p->acc + i, _mm512_setzero_si512());
        if (p->n_tok[0] < 16 || p->n_tok[1] % 16)
            _mm512_store_si512(sum + i, _mm512_setzero_si512());
    }
}

static void multiply(const nb_amx_part *p)
{
    alignas(64) uint8_t sum[4 * NB_AMX_TILE];
    begin(p, sum);
    for (size_t s = 0; s < p->n_step; s++) { /* p->step begins a block */
        if (s % BLOCK_STEPS == 0) zero_tiles();
        multiply_step(p, p->w + s * STEP_BYTES, p->step + s);
        if (s % BLOCK_STEPS == BLOCK_STEPS - 1 || s == p->n_step - 1)
            add_block(p, p->step + s, sum);
    }
}

static void alone(const nb_amx_part *p)
{
    alignas(64) uint8_t sum[4 * NB_AMX_TILE], tiles[2 * BLOCK_STEPS][STEP_BYTES];
    const size_t n_step = (p->a->w.n_col + STEP_COL - 1) / STEP_COL;
    begin(p, sum);
    for (size_t s = 0; s < BLOCK_STEPS && s < n_step; s++) convert(p, s, tiles[s]);
    for (size_t s = 0; s < n_step; s++) {
        const size_t next = s + BLOCK_STEPS;
        if (s % BLOCK_STEPS == 0) zero_tiles();
        nb_amx_written();
        multiply_step(p, tiles[s % (2 * BLOCK_STEPS)], s);
        if (s % 2 == 0) nb_amx_prefetch(p, next / 2, n_step / 2);
        if (next < n_step) convert(p, next, tiles[next % (2 * BLOCK_STEPS)]);
        if (s % BLOCK_STEPS == BLOCK_STEPS - 1 || s == n_step - 1) add_block(p, s, sum);
    }
}

void nb_linear_fp8b_amx(const nb_linear_args *a)
{
    static const nb_amx_type type = { .step_col = STEP_COL,
                                      .unit_blocks = 2,
                                      .panel = panel,
                                      .multiply = multiply,
                                      .finish = nb_amx_finish_f32,
                                      .alone = alone };
    nb_linear_amx(a, &type);
}
