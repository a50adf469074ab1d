/* linear_act8_avx512.h - what rows with activations in 8 bits (linear_act8.h) share on AVX-512: sums of 16
 * rows of weights for one token, a panel of 32 rows for many, and the tiles that multiply panels.
 *
 * A step is 64 columns, two groups.  One token: vpdpbusd on 16 rows as they are stored; their sums of four
 * columns are joined by 30 shuffles and 14 additions, so that lane i has row i: about 25 cycles for 1 KiB.
 *
 * Many: a panel has the bytes of 4 columns of 16 rows in each vector, so that lanes are rows and nothing is
 * joined: a tile of 32 rows x 6 tokens is 96 vpdpbusd for 12 conversions and 12 FMA per group, 89 % of
 * the peak of two products a cycle, with 2 loads and 6 broadcasts for 12 products. */
#ifndef NB_KERNEL_LINEAR_ACT8_AVX512_H
#define NB_KERNEL_LINEAR_ACT8_AVX512_H
#include "kernel/linear/linear_act8.h"
#include "kernel/x86/vec_avx512.h"

enum {
    NB_ACT8_STEP = 64,   /* columns */
    NB_ACT8_ROWS = 16,   /* of one token's sums */
    NB_ACT8_PANEL = 32,  /* rows */
    NB_ACT8_TOK = 6,     /* of a tile */
    NB_ACT8_PANEL_STEP = NB_ACT8_PANEL * NB_ACT8_STEP /* bytes of a panel per step */
};

#define NB_ACT8_INLINE static inline __attribute__((always_inline))
#define NB_ACT8_UNROLL _Pragma("GCC unroll 32")

/* Sums of four columns in the lanes of d[i], row i: the sums of columns 0..31 of 16 rows, and of 32..63. */
NB_ACT8_INLINE void nb_act8_join16(const __m512i *d, __m512i *g0, __m512i *g1)
{
    __m512i e[8], f[4];
    NB_ACT8_UNROLL
    for (int k = 0; k < 8; k++)
        e[k] = _mm512_add_epi32(_mm512_unpacklo_epi32(d[2 * k], d[2 * k + 1]),
                                _mm512_unpackhi_epi32(d[2 * k], d[2 * k + 1]));
    NB_ACT8_UNROLL
    for (int k = 0; k < 4; k++) /* quarter i: rows 4 k .. 4 k + 3, columns 16 i .. 16 i + 15 */
        f[k] = _mm512_add_epi32(_mm512_unpacklo_epi64(e[2 * k], e[2 * k + 1]),
                                _mm512_unpackhi_epi64(e[2 * k], e[2 * k + 1]));
    const __m512i lo = _mm512_add_epi32(_mm512_shuffle_i32x4(f[0], f[1], 0x88),
                                        _mm512_shuffle_i32x4(f[0], f[1], 0xdd));
    const __m512i hi = _mm512_add_epi32(_mm512_shuffle_i32x4(f[2], f[3], 0x88),
                                        _mm512_shuffle_i32x4(f[2], f[3], 0xdd));
    *g0 = _mm512_shuffle_i32x4(lo, hi, 0x88);
    *g1 = _mm512_shuffle_i32x4(lo, hi, 0xdd);
}

/* a[i] lane j becomes a[j] lane i, 32 bits each. */
NB_ACT8_INLINE void nb_act8_transpose16(__m512i *a)
{
    __m512i b[16];
    NB_ACT8_UNROLL
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    NB_ACT8_UNROLL
    for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    NB_ACT8_UNROLL
    for (int j = 0; j < 4; j++) {
        b[j] = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88);
        b[4 + j] = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xdd);
        b[8 + j] = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88);
        b[12 + j] = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xdd);
    }
    NB_ACT8_UNROLL
    for (int j = 0; j < 4; j++) {
        a[j] = _mm512_shuffle_i32x4(b[j], b[8 + j], 0x88);
        a[8 + j] = _mm512_shuffle_i32x4(b[j], b[8 + j], 0xdd);
        a[4 + j] = _mm512_shuffle_i32x4(b[4 + j], b[12 + j], 0x88);
        a[12 + j] = _mm512_shuffle_i32x4(b[4 + j], b[12 + j], 0xdd);
    }
}

/* Puts a step of 16 rows, unsigned bytes, into rows [half * 16, half * 16 + 16) of a panel's step. */
NB_ACT8_INLINE void nb_act8_panel_put(uint8_t *step, int half, __m512i *a)
{
    nb_act8_transpose16(a);
    NB_ACT8_UNROLL
    for (int j = 0; j < 16; j++)
        _mm512_store_si512(step + j * NB_ACT8_PANEL * 4 + half * 64, a[j]);
}

NB_ACT8_INLINE __m512i nb_act8_bcast(const int8_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* One group of a tile: sums i0, i1 [n_tok] of rows 0..15 and 16..31, z included. */
NB_ACT8_INLINE void nb_act8_group(const int n_tok, const uint8_t *panel, const int8_t *q, size_t qs,
                                  const int32_t *z, size_t gs, __m512i *i0, __m512i *i1)
{
    NB_ACT8_UNROLL
    for (int t = 0; t < n_tok; t++) i0[t] = i1[t] = _mm512_set1_epi32(z[(size_t)t * gs]);
    NB_ACT8_UNROLL
    for (int j = 0; j < 8; j++) {
        const __m512i w0 = _mm512_load_si512(panel + j * 128);
        const __m512i w1 = _mm512_load_si512(panel + j * 128 + 64);
        NB_ACT8_UNROLL
        for (int t = 0; t < n_tok; t++) {
            const __m512i b = nb_act8_bcast(q + (size_t)t * qs + j * 4);
            i0[t] = _mm512_dpbusd_epi32(i0[t], w0, b);
            i1[t] = _mm512_dpbusd_epi32(i1[t], w1, b);
        }
    }
}

/* Prefetches lines of the rows that come next: rows are too short for the hardware to see them coming.  Each line is
 * used once, so it need not push others out of level 2 (6 % faster than into all levels). */
NB_ACT8_INLINE void nb_act8_ahead(const void *p, int n_line)
{
    NB_ACT8_UNROLL
    for (int i = 0; i < n_line; i++) _mm_prefetch((const char *)p + i * 64, _MM_HINT_NTA);
}

#endif
