/* kv_decode_amx.h - pages of the KV cache as BF16 tiles: keys as rows, values in pairs of tokens.
 *
 * A unit is 64 tokens x 64 values.  Codes become BF16 without a multiplication: the magnitudes of a
 * 4-bit block are a row of a table, one row of 16 products for each byte that its scale can be; an
 * E4M3 or INT8 byte is looked up in two tables of 128 bytes, the halves of its BF16 value.  The outer
 * scale of a token is left out: whoever uses the tiles applies it to scores and to weights.
 *
 * The words of a key lie in the order that falls out of the lookups (nb_amx_place tells), and queries
 * are packed in the same order.  Values of two tokens are interleaved by unpacking within quarters,
 * which moves columns once more: nb_amx_natural puts 64 of them in order again.
 *
 * Uops for 32 values of a token (ports 0 and 5; of those only 5 | loads | stores):
 *   4 bits  5 (2 to 3) | 4 or 5 | 2     vpsrlvw, vpternlog, vinserti64x4, vpermw, vpunpck
 *   8 bits  5.5 (4) | 0.5 | 2           2 vpermi2b, vpternlog, 2 vpunpck for 64, 2 x vpunpck
 *   bf16    1 (1) | 1 | 1               vpunpck; keys are used where they are */
#ifndef NB_KERNEL_KV_DECODE_AMX_H
#define NB_KERNEL_KV_DECODE_AMX_H
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
    uint32_t scale_mask; /* bits of four scale bytes that count */
} nb_amx_seg;

enum { NB_AMX_TABLE_BYTES = 256 * 16 * 2 };

/* Which formats this file reads. */
static inline bool nb_amx_reads(const nb_record_seg *g)
{
    const bool fmt = g->fmt == NB_SEG_BF16 || g->fmt == NB_SEG_E4M3 || g->fmt == NB_SEG_INT8 ||
                     g->fmt == NB_SEG_NVFP4 || g->fmt == NB_SEG_IF4 || g->fmt == NB_SEG_MXFP4;
    return fmt && g->n_outlier == 0 && g->n_vec == 1;
}

/* Place of word p of a unit among its 64 values: quarter g, word i of a row of 32 words. */
static inline size_t nb_amx_place(nb_amx_order order, size_t p)
{
    const size_t block = p / 32, g = p % 32 / 8, i = p % 8;
    if (order == NB_AMX_BYTES) return 16 * g + 8 * block + i;
    return order == NB_AMX_NIBBLES ? 32 * block + 4 * i + g : p;
}

/* Four rows of accumulators over a unit's tiles of values, in the order of the values. */
static inline void nb_amx_natural(nb_amx_order order, const float *c, size_t tile, __m512 y[4])
{
    const __m512 c0 = _mm512_loadu_ps(c), c1 = _mm512_loadu_ps(c + tile);
    const __m512 c2 = _mm512_loadu_ps(c + 2 * tile), c3 = _mm512_loadu_ps(c + 3 * tile);
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
    for (size_t b = 0; b < (f == NB_SEG_NVFP4 ? 128 : 256); b++) {
        const float scale =
            f == NB_SEG_MXFP4 ? nb_f32_from_bits((uint32_t)b << 23) : nb_e4m3_value[b & 0x7f];
        __m512 v = _mm512_mul_ps(f == NB_SEG_IF4 && b >= 128 ? step : e2m1, _mm512_set1_ps(scale));
        v = _mm512_min_ps(_mm512_max_ps(v, bottom), top);
        const __m512i w = _mm512_srli_epi32(_mm512_castps_si512(v), 16);
        _mm256_storeu_si256((__m256i *)(void *)(s->table + 16 * b), _mm512_cvtepi32_epi16(w));
    }
    s->scale_mask = f == NB_SEG_NVFP4 ? 0x7f7f7f7fu : 0xffffffffu;
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

/* ---- units ---- */

/* 64 values of a token. */
typedef struct nb_amx_words {
    __m512i a, b;
} nb_amx_words;

/* k is [2 blocks][64 tokens][32]. */
static inline void nb_amx_put_key(uint16_t *k, size_t t, nb_amx_words w)
{
    _mm512_store_si512(k + t * NB_AMX_KEY, w.a);
    _mm512_store_si512(k + (NB_PAGE_TOK + t) * NB_AMX_KEY, w.b);
}

/* Tokens t and t + 1 of a page, as rows of the unit's four tiles of values; v is the first of these
 * tiles, which are NB_AMX_V_BLOCKS tiles apart, for the page's first 32 tokens. */
static inline void nb_amx_put_values(uint16_t *v, size_t t, nb_amx_words x, nb_amx_words y)
{
    const size_t next = NB_AMX_V_BLOCKS * NB_AMX_TILE;
    v += t / NB_AMX_V_TOK * NB_AMX_TILE + t % NB_AMX_V_TOK / 2 * 32;
    _mm512_store_si512(v, _mm512_unpacklo_epi16(x.a, y.a));
    _mm512_store_si512(v + next, _mm512_unpackhi_epi16(x.a, y.a));
    _mm512_store_si512(v + 2 * next, _mm512_unpacklo_epi16(x.b, y.b));
    _mm512_store_si512(v + 3 * next, _mm512_unpackhi_epi16(x.b, y.b));
}

/* 16 bytes of codes; t0, t1: rows of the table for the first and the second 16 values.  Every word
 * of codes is needed four times, once per quarter, each time shifted to another nibble. */
static inline __m512i nb_amx_fp4_words(const uint8_t *codes, const uint16_t *t0, const uint16_t *t1)
{
    const __m512i shift =
        _mm512_setr_epi32(0, 0, 0, 0, 0x40004, 0x40004, 0x40004, 0x40004, 0x80008, 0x80008, 0x80008,
                          0x80008, 0xc000c, 0xc000c, 0xc000c, 0xc000c);
    const __m512i second = _mm512_set4_epi32(0x100010, 0x100010, 0, 0); /* words 4..7: entry + 16 */
    const __m512i c = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)codes));
    const __m512i n = _mm512_srlv_epi16(c, shift);
    const __m512i at = _mm512_ternarylogic_epi32(n, _mm512_set1_epi16(15), second, 0xea);
    const __m512i table =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_load_si256((const void *)t0)),
                           _mm256_load_si256((const void *)t1), 1);
    return _mm512_permutexvar_epi16(at, table);
}

static inline nb_amx_words nb_amx_fp4_token(const nb_amx_seg *s, const uint8_t *code,
                                            const uint8_t *scale, bool mx)
{
    const uint16_t *table = s->table;
    size_t b0 = scale[0], b1 = b0, b2 = scale[1], b3 = b2;
    if (!mx) {
        uint32_t b;
        memcpy(&b, scale, sizeof b);
        b &= s->scale_mask;
        b0 = b & 255;
        b1 = b >> 8 & 255;
        b2 = b >> 16 & 255;
        b3 = b >> 24;
    }
    return (nb_amx_words){ nb_amx_fp4_words(code, table + 16 * b0, table + 16 * b1),
                           nb_amx_fp4_words(code + 16, table + 16 * b2, table + 16 * b3) };
}

/* NB_AMX_CHUNK tokens from t on.  v: NULL, or where the values go. */
static inline void nb_amx_fp4_chunk(const nb_amx_seg *s, const uint8_t *page, size_t unit, size_t t,
                                    uint16_t *k, uint16_t *v, bool mx)
{
    const size_t cs = s->g->code_stride, ss = s->g->scale_stride;
    const uint8_t *code = page + s->g->code_off + t * cs + unit * (NB_AMX_UNIT / 2);
    const uint8_t *scale = page + s->g->scale_off + t * ss + unit * (mx ? 2 : 4);
    for (size_t i = t; i < t + NB_AMX_CHUNK; i += 2, code += 2 * cs, scale += 2 * ss) {
        const nb_amx_words x = nb_amx_fp4_token(s, code, scale, mx);
        const nb_amx_words y = nb_amx_fp4_token(s, code + cs, scale + ss, mx);
        nb_amx_put_key(k, i, x);
        nb_amx_put_key(k, i + 1, y);
        if (v) nb_amx_put_values(v, i, x, y);
    }
}

/* Halves of the BF16 values of magnitudes 0..127. */
typedef struct nb_amx_bytes {
    __m512i lo0, lo1, hi0, hi1;
} nb_amx_bytes;

static inline nb_amx_words nb_amx_byte_token(const nb_amx_bytes *m, const uint8_t *code,
                                             __mmask64 in, bool is_int)
{
    const __m512i x = _mm512_maskz_loadu_epi8(in, code), sign = _mm512_set1_epi8((char)0x80);
    const __m512i at = is_int ? _mm512_abs_epi8(x) : x; /* bit 7 does not select */
    const __m512i lo = _mm512_permutex2var_epi8(m->lo0, at, m->lo1);
    const __m512i mag = _mm512_permutex2var_epi8(m->hi0, at, m->hi1);
    const __m512i hi = _mm512_ternarylogic_epi32(mag, x, sign, 0xf8); /* mag | (x & sign) */
    return (nb_amx_words){ _mm512_unpacklo_epi8(lo, hi), _mm512_unpackhi_epi8(lo, hi) };
}

static inline void nb_amx_byte_chunk(const nb_amx_seg *s, const uint8_t *page, size_t unit,
                                     size_t t, uint16_t *k, uint16_t *v, bool is_int)
{
    const size_t cs = s->g->code_stride, n = s->g->dim - unit * NB_AMX_UNIT;
    const __mmask64 in = n >= NB_AMX_UNIT ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
    const uint8_t *code = page + s->g->code_off + t * cs + unit * NB_AMX_UNIT;
    const uint8_t *table = (const uint8_t *)s->table;
    const nb_amx_bytes m = { _mm512_load_si512(table), _mm512_load_si512(table + 64),
                             _mm512_load_si512(table + 128), _mm512_load_si512(table + 192) };
    for (size_t i = t; i < t + NB_AMX_CHUNK; i += 2, code += 2 * cs) {
        const nb_amx_words x = nb_amx_byte_token(&m, code, in, is_int);
        const nb_amx_words y = nb_amx_byte_token(&m, code + cs, in, is_int);
        nb_amx_put_key(k, i, x);
        nb_amx_put_key(k, i + 1, y);
        if (v) nb_amx_put_values(v, i, x, y);
    }
}

/* Values only; a whole unit. */
static inline void nb_amx_bf16_chunk(const nb_amx_seg *s, const uint8_t *page, size_t unit,
                                     size_t t, uint16_t *v)
{
    const size_t cs = s->g->code_stride;
    const uint8_t *p = page + s->g->code_off + t * cs + unit * (2 * NB_AMX_UNIT);
    for (size_t i = t; i < t + NB_AMX_CHUNK; i += 2, p += 2 * cs) {
        const nb_amx_words x = { _mm512_loadu_si512(p), _mm512_loadu_si512(p + 64) };
        const nb_amx_words y = { _mm512_loadu_si512(p + cs), _mm512_loadu_si512(p + cs + 64) };
        nb_amx_put_values(v, i, x, y);
    }
}

/* Tokens t .. t + 7 of a unit.  k: [2][64][32] words, not written when keys are read in place. */
static inline void nb_amx_decode_chunk(const nb_amx_seg *s, const uint8_t *page, size_t unit,
                                       size_t t, uint16_t *k, uint16_t *v)
{
    switch (s->g->fmt) {
    case NB_SEG_MXFP4: nb_amx_fp4_chunk(s, page, unit, t, k, v, true); break;
    case NB_SEG_E4M3: nb_amx_byte_chunk(s, page, unit, t, k, v, false); break;
    case NB_SEG_INT8: nb_amx_byte_chunk(s, page, unit, t, k, v, true); break;
    case NB_SEG_BF16:
        if (v) nb_amx_bf16_chunk(s, page, unit, t, v);
        break;
    default: nb_amx_fp4_chunk(s, page, unit, t, k, v, false); break;
    }
}

#endif
