/* linear_split_amx.c - activations as two BF16 parts, packed for the tile unit (linear_amx.h).
 *
 * hi is x rounded to BF16, lo what is left rounded to BF16; a value that would round to infinity
 * keeps the largest BF16 as hi.  So does an infinity, whose lo is then infinite: the sum of both
 * products is what it should be.  A block of 16 tokens x 32 columns is rounded row by row and
 * transposed in registers, 128 shuffles for both parts, about 20 cycles per token and step. */
#include "kernel/x86/linear_amx.h"
#include "kernel/x86/vec_avx512.h"

enum { STEP_COL = 32 };

size_t nb_linear_split_pack_bytes_amx(size_t n_tok, size_t n_col)
{
    return (nb_amx_packed_bytes(n_tok, n_col, STEP_COL) + 63) / 64 * 64;
}

/* The parts of 32 values of which n are there. */
static inline void split(const float *x, size_t n, __m512i *hi, __m512i *lo)
{
    const __m512 max = _mm512_set1_ps(0x1.fep127f), min = _mm512_set1_ps(-0x1.fep127f);
    const __m512 a = _mm512_maskz_loadu_ps(nb_avx512_mask16(n < 16 ? n : 16), x);
    const __m512 b =
        n > 16 ? _mm512_maskz_loadu_ps(nb_avx512_mask16(n - 16), x + 16) : _mm512_setzero_ps();
    /* This order of operands keeps a NaN. */
    const __m512 ca = _mm512_max_ps(min, _mm512_min_ps(max, a));
    const __m512 cb = _mm512_max_ps(min, _mm512_min_ps(max, b));
    const __m512i h = (__m512i)_mm512_cvtne2ps_pbh(cb, ca);
    const __m512i ha = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(h)), 16);
    const __m512i hb =
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti32x8_epi32(h, 1)), 16);
    *hi = h;
    *lo = (__m512i)_mm512_cvtne2ps_pbh(_mm512_sub_ps(b, _mm512_castsi512_ps(hb)),
                                       _mm512_sub_ps(a, _mm512_castsi512_ps(ha)));
}

void nb_linear_split_pack_amx(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                              const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)column;
    alignas(64) __m512i hi[16], lo[16];
    (void)n_tok;
    for (size_t t = tok0, nt; t < tok1; t += nt) {
        nt = tok1 - t < NB_AMX_TOK ? tok1 - t : NB_AMX_TOK;
        uint8_t *out = (uint8_t *)xp + nb_amx_packed_bytes(t, n_col, STEP_COL);
        const __mmask16 mask = nb_avx512_mask16(nt);
        for (size_t i = nt; i < 16; i++) hi[i] = lo[i] = _mm512_setzero_si512();
        for (size_t c = 0; c < n_col; c += STEP_COL, out += 128 * nt) {
            const size_t n = n_col - c < STEP_COL ? n_col - c : STEP_COL;
            for (size_t i = 0; i < nt; i++) split(x + (t + i) * x_stride + c, n, &hi[i], &lo[i]);
            nb_avx512_transpose16(out, 4 * nt, mask, hi, sizeof hi[0]);
            nb_avx512_transpose16(out + 64 * nt, 4 * nt, mask, lo, sizeof lo[0]);
        }
    }
}
