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
#include "kernel/x86/kv_tables_amx.h"

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

/* 16 bytes of codes; table: rows for the first and the second 16 values.  Every word of codes is
 * needed four times, once per quarter, each time shifted to another nibble. */
static inline __m512i nb_amx_fp4_words(const uint8_t *codes, __m512i table)
{
    const __m512i shift =
        _mm512_setr_epi32(0, 0, 0, 0, 0x40004, 0x40004, 0x40004, 0x40004, 0x80008, 0x80008, 0x80008,
                          0x80008, 0xc000c, 0xc000c, 0xc000c, 0xc000c);
    const __m512i second = _mm512_set4_epi32(0x100010, 0x100010, 0, 0); /* words 4..7: entry + 16 */
    const __m512i c = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)codes));
    const __m512i n = _mm512_srlv_epi16(c, shift);
    const __m512i at = _mm512_ternarylogic_epi32(n, _mm512_set1_epi16(15), second, 0xea);
    return _mm512_permutexvar_epi16(at, table);
}

static inline __m256i nb_amx_table_row(const uint16_t *table, uint8_t scale)
{
    return _mm256_load_si256((const void *)(table + (size_t)scale * 16));
}

/* NVFP4, IF4: four scales for 64 values. */
static inline nb_amx_words nb_amx_nv_token(const uint16_t *table, const uint8_t *code,
                                           const uint8_t *sf)
{
    const uint32_t f = nb_le32_get(sf); /* one load for four */
    const __m512i t0 = _mm512_castsi256_si512(nb_amx_table_row(table, (uint8_t)f));
    const __m512i t1 = _mm512_castsi256_si512(nb_amx_table_row(table, (uint8_t)(f >> 16)));
    const __m256i u0 = nb_amx_table_row(table, (uint8_t)(f >> 8));
    const __m256i u1 = nb_amx_table_row(table, (uint8_t)(f >> 24));
    return (nb_amx_words){ nb_amx_fp4_words(code, _mm512_inserti64x4(t0, u0, 1)),
                           nb_amx_fp4_words(code + 16, _mm512_inserti64x4(t1, u1, 1)) };
}

/* MXFP4: two. */
static inline nb_amx_words nb_amx_mx_token(const uint16_t *table, const uint8_t *code,
                                           const uint8_t *sf)
{
    return (nb_amx_words){
        nb_amx_fp4_words(code, _mm512_broadcast_i64x4(nb_amx_table_row(table, sf[0]))),
        nb_amx_fp4_words(code + 16, _mm512_broadcast_i64x4(nb_amx_table_row(table, sf[1])))
    };
}

/* NB_AMX_CHUNK tokens from t on.  k, v: NULL, or where the keys and the values go. */
#define NB_AMX_FP4_CHUNK(name, token, n_scale)                                                     \
    static inline void name(const nb_amx_seg *s, const uint8_t *page, size_t unit, size_t t,       \
                            uint16_t *k, uint16_t *v)                                              \
    {                                                                                              \
        const size_t cs = s->g->code_stride, ss = s->g->scale_stride;                              \
        const uint8_t *code = page + s->g->code_off + t * cs + unit * (NB_AMX_UNIT / 2);           \
        const uint8_t *sf = page + s->g->scale_off + t * ss + unit * (n_scale);                    \
        for (size_t i = t; i < t + NB_AMX_CHUNK; i += 2, code += 2 * cs, sf += 2 * ss) {           \
            const nb_amx_words x = token(s->table, code, sf);                                      \
            const nb_amx_words y = token(s->table, code + cs, sf + ss);                            \
            if (k) nb_amx_put_key(k, i, x);                                                        \
            if (k) nb_amx_put_key(k, i + 1, y);                                                    \
            if (v) nb_amx_put_values(v, i, x, y);                                                  \
        }                                                                                          \
    }
NB_AMX_FP4_CHUNK(nb_amx_nv_chunk, nb_amx_nv_token, 4)
NB_AMX_FP4_CHUNK(nb_amx_mx_chunk, nb_amx_mx_token, 2)

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
    case NB_SEG_MXFP4: nb_amx_mx_chunk(s, page, unit, t, k, v); break;
    case NB_SEG_E4M3: nb_amx_byte_chunk(s, page, unit, t, k, v, false); break;
    case NB_SEG_INT8: nb_amx_byte_chunk(s, page, unit, t, k, v, true); break;
    case NB_SEG_BF16:
        if (v) nb_amx_bf16_chunk(s, page, unit, t, v);
        break;
    default: nb_amx_nv_chunk(s, page, unit, t, k, v); break;
    }
}

#endif
