/* kv_tables_amx.h - what decoding pages to BF16 tiles needs beside the pages: tables of products and
 * of bytes, the order of the words of a unit, the way back from it. */
#ifndef NB_KERNEL_KV_TABLES_AMX_H
#define NB_KERNEL_KV_TABLES_AMX_H
#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "num/e4m3.h"
#include "num/record.h"

enum {
    NB_AMX_TOK = 16,    /* tokens of a tile of keys                         */
    NB_AMX_KEY = 32,    /* values of a row of a tile: a block               */
    NB_AMX_TILE = 512,  /* 16-bit words of a tile                           */
    NB_AMX_UNIT = 64,   /* values decoded together: two blocks              */
    NB_AMX_CHUNK = 8,   /* tokens decoded together                          */
    NB_AMX_V_TOK = 32,  /* tokens of a tile of values                       */
    NB_AMX_V_BLOCKS = 8 /* such tiles side by side: 4 pages                 */
};

/* The order of 64 values in a unit. */
typedef enum nb_amx_order { NB_AMX_WORDS, NB_AMX_BYTES, NB_AMX_NIBBLES } nb_amx_order;

typedef struct nb_amx_seg {
    const nb_record_seg *g;
    nb_amx_order order;
    size_t n_unit, n_block; /* of 64 and of 32 values */
    bool in_place;          /* keys are read from the page itself */
    /* 4 bits: [256][16] products; 8 bits: 128 low and 128 high bytes.  Aligned to 64. */
    uint16_t *table;
} nb_amx_seg;

enum {
    NB_AMX_SCALES = 64, /* of a token at most */
    NB_AMX_TABLE_BYTES = 256 * 16 * 2
};

/* Which formats this file reads. */
static inline bool nb_amx_reads(const nb_record_seg *g)
{
    const bool fmt = g->fmt == NB_SEG_BF16 || g->fmt == NB_SEG_E4M3 || g->fmt == NB_SEG_INT8 ||
                     g->fmt == NB_SEG_NVFP4 || g->fmt == NB_SEG_IF4 || g->fmt == NB_SEG_MXFP4;
    return fmt && g->n_outlier == 0 && g->n_vec == 1 && g->n_group <= NB_AMX_SCALES;
}

/* Place of word p of a unit among its 64 values: quarter g, word i of a row of 32 words. */
static inline size_t nb_amx_place(nb_amx_order order, size_t p)
{
    const size_t block = p / 32, g = p % 32 / 8, i = p % 8;
    if (order == NB_AMX_BYTES) return 16 * g + 8 * block + i;
    return order == NB_AMX_NIBBLES ? 32 * block + 4 * i + g : p;
}

/* Four rows of accumulators over a unit's tiles of values, in the order of the values. */
static inline void nb_amx_natural(nb_amx_order order, const __m512 x[4], __m512 y[4])
{
    const __m512 c0 = x[0], c1 = x[1], c2 = x[2], c3 = x[3];
    if (order == NB_AMX_NIBBLES) {
        const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        y[0] = _mm512_permutexvar_ps(at, c0);
        y[1] = _mm512_permutexvar_ps(at, c1);
        y[2] = _mm512_permutexvar_ps(at, c2);
        y[3] = _mm512_permutexvar_ps(at, c3);
    } else if (order == NB_AMX_BYTES) {
        const __m512 a = _mm512_shuffle_f32x4(c0, c1, 0x44), b = _mm512_shuffle_f32x4(c2, c3, 0x44);
        const __m512 d = _mm512_shuffle_f32x4(c0, c1, 0xee), e = _mm512_shuffle_f32x4(c2, c3, 0xee);
        y[0] = _mm512_shuffle_f32x4(a, b, 0x88);
        y[1] = _mm512_shuffle_f32x4(a, b, 0xdd);
        y[2] = _mm512_shuffle_f32x4(d, e, 0x88);
        y[3] = _mm512_shuffle_f32x4(d, e, 0xdd);
    } else {
        const __m512i lo =
            _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        const __m512i hi =
            _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
        y[0] = _mm512_permutex2var_ps(c0, lo, c1);
        y[1] = _mm512_permutex2var_ps(c0, hi, c1);
        y[2] = _mm512_permutex2var_ps(c2, lo, c3);
        y[3] = _mm512_permutex2var_ps(c2, hi, c3);
    }
}

/* ---- tables ---- */

/* Row b: the 16 codes of a block whose scale byte is b, in BF16.  MXFP4: what would reach 2^128 is
 * the largest BF16. */
static inline void nb_amx_fp4_table(nb_amx_seg *s)
{
    const nb_seg_fmt f = s->g->fmt;
    const __m512 e2m1 =
        _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, -.5f, -1, -1.5f, -2, -3, -4, -6);
    const __m512 step = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 0, -1, -2, -3, -4, -5, -6, -7);
    const __m512 top = _mm512_set1_ps(0x1.fep127f), bottom = _mm512_set1_ps(-0x1.fep127f);
    for (size_t b = 0; b < 256; b++) {
        const float scale =
            f == NB_SEG_MXFP4 ? nb_f32_from_bits((uint32_t)b << 23) : nb_e4m3_value[b & 0x7f];
        __m512 v = _mm512_mul_ps(f == NB_SEG_IF4 && b >= 128 ? step : e2m1, _mm512_set1_ps(scale));
        v = _mm512_min_ps(_mm512_max_ps(v, bottom), top);
        const __m512i w = _mm512_srli_epi32(_mm512_castps_si512(v), 16);
        _mm256_storeu_si256((__m256i *)(void *)(s->table + 16 * b), _mm512_cvtepi32_epi16(w));
    }
}

/* Low, then high bytes of the BF16 values of magnitudes 0..127. */
static inline void nb_amx_byte_table(nb_amx_seg *s)
{
    uint8_t *t = (uint8_t *)s->table;
    for (int b = 0; b < 128; b += 16) {
        const __m512i n = _mm512_add_epi32(
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
            _mm512_set1_epi32(b));
        const __m512 v =
            s->g->fmt == NB_SEG_INT8 ? _mm512_cvtepi32_ps(n) : _mm512_loadu_ps(nb_e4m3_value + b);
        const __m512i w = _mm512_castps_si512(v);
        _mm_storeu_si128((__m128i *)(void *)(t + b),
                         _mm512_cvtepi32_epi8(_mm512_srli_epi32(w, 16)));
        _mm_storeu_si128((__m128i *)(void *)(t + 128 + b),
                         _mm512_cvtepi32_epi8(_mm512_srli_epi32(w, 24)));
    }
}

/* table: NB_AMX_TABLE_BYTES, aligned to 64. */
static inline nb_amx_seg nb_amx_open(const nb_record_seg *g, void *table)
{
    nb_amx_seg s = { .g = g, .table = table };
    s.n_unit = (g->dim + NB_AMX_UNIT - 1) / NB_AMX_UNIT;
    s.n_block = g->dim / NB_AMX_KEY;
    if (g->fmt == NB_SEG_BF16) {
        s.order = NB_AMX_WORDS;
        s.in_place = true;
    } else if (g->fmt == NB_SEG_E4M3 || g->fmt == NB_SEG_INT8) {
        s.order = NB_AMX_BYTES;
        s.n_block = 2 * s.n_unit; /* half a unit has words in both of its blocks */
        nb_amx_byte_table(&s);
    } else {
        s.order = NB_AMX_NIBBLES;
        nb_amx_fp4_table(&s);
    }
    return s;
}

#endif
