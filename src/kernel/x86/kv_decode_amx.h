/* kv_decode_amx.h - pages of the KV cache as BF16 tiles: keys as rows, values in pairs of tokens.
 *
 * A unit is 64 tokens x 64 values.  Codes become BF16 without a multiplication: the magnitudes of a
 * 4-bit block are a row of a table, one row of 16 products for each byte that its scale can be; an
 * INT8 byte is looked up in two tables of 128 bytes, the halves of its BF16 value; the fields of an E4M3 number are
 * moved.  The outer scale of a token is left out: whoever uses the tiles applies it to scores and to weights.
 *
 * The words of a key lie in the order that falls out (nb_amx_place tells), and queries are packed in the same order.
 * Values of two tokens lie in turns, their columns in another order (nb_amx_natural puts 64 of them in order again).
 *
 * Uops for 32 words, on ports 0 and 5 (of those only 5), and loads:
 *   4 bits  keys 4 (2) | 3      vpmultishiftqb, vpternlog, vinserti64x4, vpermb
 *           values 5.3 (2) | 3  vpermb, vpsrlvw, vpternlog, vinserti64x4, vpermb
 *   E4M3    keys 5 (2) | 0.5    vptestnm and a branch for two, vpunpck, vpsraw, vpand, vpaddw; values half more
 *   INT8    5.5 (4) | 0.5       2 vpermi2b, vpternlog, 2 vpunpck for two
 *   BF16    1 (1) | 1           vpunpck; keys are used where they are
 * vpermw would take ports 0 and 5 (measured on Emerald Rapids), vpermb takes 5. */
#ifndef NB_KERNEL_KV_DECODE_AMX_H
#define NB_KERNEL_KV_DECODE_AMX_H
#include "kernel/x86/kv_tables_amx.h"

/* gcc calls these otherwise, with constants that it does not see. */
#define NB_AMX_INLINE static inline __attribute__((always_inline))
#if defined __clang__
#define NB_AMX_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NB_AMX_UNROLL _Pragma("GCC unroll 16")
#endif

/* 64 values of a token. */
typedef struct nb_amx_words {
    __m512i a, b;
} nb_amx_words;

/* What a chunk is decoded to: keys, values, both. */
typedef enum nb_amx_what { NB_AMX_K, NB_AMX_V, NB_AMX_KV } nb_amx_what;

/* Where keys of a chunk go: the row of its token i of the first block of 32 values is at k + i * NB_AMX_KEY, of the
 * second `second` words on. */
typedef struct nb_amx_keys {
    uint16_t *k;
    size_t second;
} nb_amx_keys;

NB_AMX_INLINE void nb_amx_put_key(nb_amx_keys to, size_t i, nb_amx_words w)
{
    _mm512_store_si512(to.k + i * NB_AMX_KEY, w.a);
    _mm512_store_si512(to.k + to.second + i * NB_AMX_KEY, w.b);
}

/* Where values of a chunk go: its tokens i and i + 1 are row i / 2, at v, of the unit's four tiles, which are `next`
 * words apart. */
typedef struct nb_amx_values {
    uint16_t *v;
    size_t next;
} nb_amx_values;

/* Where a chunk is read: tokens t .. t + 7 of a unit of a page.  sf, 4 bits: where the table has the rows of the
 * unit's scales, in bytes (nb_amx_page_rows), sf_stride words from token to token. */
typedef struct nb_amx_from {
    const uint8_t *page;
    size_t unit, t;
    const uint16_t *sf;
    size_t sf_stride;
} nb_amx_from;

NB_AMX_INLINE void nb_amx_put_values(nb_amx_values to, size_t i, nb_amx_words x, nb_amx_words y)
{
    uint16_t *v = to.v + i / 2 * 32;
    _mm512_store_si512(v, _mm512_unpacklo_epi16(x.a, y.a));
    _mm512_store_si512(v + to.next, _mm512_unpackhi_epi16(x.a, y.a));
    _mm512_store_si512(v + 2 * to.next, _mm512_unpacklo_epi16(x.b, y.b));
    _mm512_store_si512(v + 3 * to.next, _mm512_unpackhi_epi16(x.b, y.b));
}

/* ---- 4 bits ---- */

/* A row of the table has the low bytes of 16 products, then their high bytes.  Two rows are looked up at once: an
 * index is a code, 16 for the high byte, 32 for the second row.  codes: where the lower four bits of both bytes of
 * a word are its code; row: 32 in the bytes that want the second row. */
NB_AMX_INLINE __m512i nb_amx_fp4_look_up(__m512i codes, __m512i row, __m512i table)
{
    const __m512i which = _mm512_or_si512(row, _mm512_set1_epi16(0x1000));
    const __m512i at = _mm512_ternarylogic_epi32(codes, _mm512_set1_epi8(15), which, 0xea);
    return _mm512_permutexvar_epi8(at, table);
}

/* 16 bytes of codes as words; table: rows for the first and the second 16 values.  Of two words of 64 bits in each
 * quarter, the first has values 4 g .. 4 g + 3 of the first 16, the second those of the others. */
NB_AMX_INLINE __m512i nb_amx_fp4_words(const uint8_t *codes, __m512i table)
{
    const __m512i shift = _mm512_setr_epi64(
        0x0c0c080804040000, 0x0c0c080804040000, 0x1c1c181814141010, 0x1c1c181814141010,
        0x2c2c282824242020, 0x2c2c282824242020, 0x3c3c383834343030, 0x3c3c383834343030);
    const __m512i second = _mm512_set4_epi32(0x20202020, 0x20202020, 0, 0);
    const __m512i c = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)codes));
    return nb_amx_fp4_look_up(_mm512_multishift_epi64_epi8(shift, c), second, table);
}

/* Rows of the table, which are at bytes `first` and `second` of it. */
NB_AMX_INLINE __m512i nb_amx_table_rows(const uint16_t *table, size_t first, size_t second)
{
    const char *t = (const char *)table;
    const __m256i a = _mm256_load_si256((const void *)(t + first));
    const __m256i b = _mm256_load_si256((const void *)(t + second));
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

/* 16 columns of two tokens in pairs; codes: the first token's bytes of them from byte 8 `group` on, the other's
 * `second` bytes later; row0, row1: where the table has the rows of each. */
NB_AMX_INLINE __m512i nb_amx_fp4_pairs(const uint16_t *table, __m512i codes, int group, int second,
                                       size_t row0, size_t row1)
{
    const __m512i pairs = _mm512_setr_epi32(
        0, 0, 0x01010101, 0x01010101, 0x02020202, 0x02020202, 0x03030303, 0x03030303, 0x04040404,
        0x04040404, 0x05050505, 0x05050505, 0x06060606, 0x06060606, 0x07070707, 0x07070707);
    const __m512i from =
        _mm512_add_epi8(pairs, _mm512_set1_epi32((8 * group) * 0x01010101 + second * 0x01010000));
    const __m512i odd = _mm512_set1_epi64(0x0004000400000000); /* values in upper halves of bytes */
    const __m512i c = _mm512_srlv_epi16(_mm512_permutexvar_epi8(from, codes), odd);
    return nb_amx_fp4_look_up(c, _mm512_set1_epi32(0x20200000),
                              nb_amx_table_rows(table, row0, row1));
}

/* The scales of a page as places of rows: to[64][NB_AMX_SCALES].  Shifting them one at a time would take the ports
 * that decoding needs. */
NB_AMX_INLINE void nb_amx_page_rows(const nb_amx_seg *s, const uint8_t *page, uint16_t *to)
{
    const size_t n = s->g->n_group;
    const uint8_t *sf = page + s->g->scale_off;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, sf += s->g->scale_stride, to += NB_AMX_SCALES)
        for (size_t i = 0; i < n; i += 32) {
            const __mmask32 in = n - i < 32 ? (1u << (n - i)) - 1 : ~0u;
            const __m512i w = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(in, sf + i));
            _mm512_storeu_si512(to + i, _mm512_slli_epi16(w, 5));
        }
}

/* 64 values of a token; MXFP4 has two scales for them, the others four. */
NB_AMX_INLINE nb_amx_words nb_amx_fp4_token(const uint16_t *table, const uint8_t *code,
                                            const uint16_t *sf, bool mx)
{
    return (nb_amx_words){ nb_amx_fp4_words(code, nb_amx_table_rows(table, sf[0], sf[mx ? 0 : 1])),
                           nb_amx_fp4_words(code + 16, nb_amx_table_rows(table, sf[mx ? 1 : 2],
                                                                         sf[mx ? 1 : 3])) };
}

/* Values only, of tokens i and i + 1 of a chunk; f, g: their scales. */
NB_AMX_INLINE void nb_amx_fp4_put_pairs(const uint16_t *table, const uint8_t *code, size_t stride,
                                        const uint16_t *f, const uint16_t *g, bool mx,
                                        nb_amx_values v, size_t i)
{
    const __m256i x = _mm256_loadu_si256((const void *)code);
    const __m256i y = _mm256_loadu_si256((const void *)(code + stride));
    const __m512i codes = _mm512_inserti64x4(_mm512_castsi256_si512(x), y, 1);
    uint16_t *to = v.v + i / 2 * 32;
    NB_AMX_UNROLL
    for (int c = 0; c < 4; c++, to += v.next)
        _mm512_store_si512(
            to, nb_amx_fp4_pairs(table, codes, c, 32, f[mx ? c / 2 : c], g[mx ? c / 2 : c]));
}

NB_AMX_INLINE void nb_amx_fp4_chunk(const nb_amx_seg *s, const nb_amx_from *x, nb_amx_keys k,
                                    nb_amx_values v, nb_amx_what what, bool mx)
{
    const size_t cs = s->g->code_stride, ss = x->sf_stride;
    const uint8_t *code = x->page + s->g->code_off + x->t * cs + x->unit * (NB_AMX_UNIT / 2);
    const uint16_t *sf = x->sf;
    NB_AMX_UNROLL
    for (size_t i = 0; i < NB_AMX_CHUNK; i += 2, code += 2 * cs, sf += 2 * ss) {
        if (what == NB_AMX_V) {
            nb_amx_fp4_put_pairs(s->table, code, cs, sf, sf + ss, mx, v, i);
            continue;
        }
        const nb_amx_words a = nb_amx_fp4_token(s->table, code, sf, mx);
        const nb_amx_words b = nb_amx_fp4_token(s->table, code + cs, sf + ss, mx);
        nb_amx_put_key(k, i, a);
        nb_amx_put_key(k, i + 1, b);
        if (what == NB_AMX_KV) nb_amx_put_values(v, i, a, b);
    }
}

/* ---- 8 bits ---- */

/* Halves of the BF16 values of magnitudes 0..127. */
typedef struct nb_amx_bytes {
    __m512i lo0, lo1, hi0, hi1;
} nb_amx_bytes;

NB_AMX_INLINE nb_amx_bytes nb_amx_byte_halves(const nb_amx_seg *s)
{
    const uint8_t *t = (const uint8_t *)s->table;
    return (nb_amx_bytes){ _mm512_load_si512(t), _mm512_load_si512(t + 64),
                           _mm512_load_si512(t + 128), _mm512_load_si512(t + 192) };
}

/* 64 bytes as words, looked up. */
NB_AMX_INLINE nb_amx_words nb_amx_look_up_bytes(const nb_amx_bytes *m, __m512i x, bool is_int)
{
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    const __m512i at = is_int ? _mm512_abs_epi8(x) : x; /* bit 7 does not select */
    const __m512i lo = _mm512_permutex2var_epi8(m->lo0, at, m->lo1);
    const __m512i mag = _mm512_permutex2var_epi8(m->hi0, at, m->hi1);
    const __m512i hi = _mm512_ternarylogic_epi32(mag, x, sign, 0xf8); /* mag | (x & sign) */
    return (nb_amx_words){ _mm512_unpacklo_epi8(lo, hi), _mm512_unpackhi_epi8(lo, hi) };
}

/* An E4M3 number in the upper byte of words to BF16: the fields move into place, 120 more for the exponent. */
NB_AMX_INLINE __m512i nb_amx_e4m3_words(__m512i x)
{
    const __m512i fields =
        _mm512_and_si512(_mm512_srai_epi16(x, 4), _mm512_set1_epi16((short)0x87f0));
    return _mm512_add_epi16(fields, _mm512_set1_epi16(120 << 7));
}

/* Subnormal numbers and zeros do not follow from their fields. */
NB_AMX_INLINE bool nb_amx_e4m3_normal(__m512i x)
{
    return _mm512_testn_epi8_mask(x, _mm512_set1_epi8(0x78)) == 0;
}

/* The same words either way. */
NB_AMX_INLINE nb_amx_words nb_amx_byte_words(const nb_amx_bytes *m, __m512i x, bool is_int)
{
    const __m512i zero = _mm512_setzero_si512();
    if (is_int || !nb_amx_e4m3_normal(x)) return nb_amx_look_up_bytes(m, x, is_int);
    return (nb_amx_words){ nb_amx_e4m3_words(_mm512_unpacklo_epi8(zero, x)),
                           nb_amx_e4m3_words(_mm512_unpackhi_epi8(zero, x)) };
}

/* Values only, of tokens i and i + 1 of a chunk: bytes in turns first. */
NB_AMX_INLINE void nb_amx_put_bytes(const nb_amx_bytes *m, nb_amx_values v, size_t i, __m512i x,
                                    __m512i y, bool is_int)
{
    const nb_amx_words lo = nb_amx_byte_words(m, _mm512_unpacklo_epi8(x, y), is_int);
    const nb_amx_words hi = nb_amx_byte_words(m, _mm512_unpackhi_epi8(x, y), is_int);
    uint16_t *to = v.v + i / 2 * 32;
    _mm512_store_si512(to, lo.a);
    _mm512_store_si512(to + v.next, lo.b);
    _mm512_store_si512(to + 2 * v.next, hi.a);
    _mm512_store_si512(to + 3 * v.next, hi.b);
}

NB_AMX_INLINE void nb_amx_byte_chunk(const nb_amx_seg *s, const nb_amx_from *from, nb_amx_keys k,
                                     nb_amx_values v, nb_amx_what what, bool is_int)
{
    const size_t cs = s->g->code_stride, n = s->g->dim - from->unit * NB_AMX_UNIT;
    const __mmask64 in = n >= NB_AMX_UNIT ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
    const uint8_t *code = from->page + s->g->code_off + from->t * cs + from->unit * NB_AMX_UNIT;
    const nb_amx_bytes m = nb_amx_byte_halves(s);
    NB_AMX_UNROLL
    for (size_t i = 0; i < NB_AMX_CHUNK; i += 2, code += 2 * cs) {
        const __m512i x = _mm512_maskz_loadu_epi8(in, code);
        const __m512i y = _mm512_maskz_loadu_epi8(in, code + cs);
        if (what != NB_AMX_V) {
            const nb_amx_words a = nb_amx_byte_words(&m, x, is_int);
            const nb_amx_words b = nb_amx_byte_words(&m, y, is_int);
            nb_amx_put_key(k, i, a);
            nb_amx_put_key(k, i + 1, b);
            if (what == NB_AMX_KV) nb_amx_put_values(v, i, a, b);
        } else {
            nb_amx_put_bytes(&m, v, i, x, y, is_int);
        }
    }
}

/* Values only; a whole unit. */
NB_AMX_INLINE void nb_amx_bf16_chunk(const nb_amx_seg *s, const nb_amx_from *from, nb_amx_values v)
{
    const size_t cs = s->g->code_stride;
    const uint8_t *p = from->page + s->g->code_off + from->t * cs + from->unit * (2 * NB_AMX_UNIT);
    NB_AMX_UNROLL
    for (size_t i = 0; i < NB_AMX_CHUNK; i += 2, p += 2 * cs) {
        const nb_amx_words x = { _mm512_loadu_si512(p), _mm512_loadu_si512(p + 64) };
        const nb_amx_words y = { _mm512_loadu_si512(p + cs), _mm512_loadu_si512(p + cs + 64) };
        nb_amx_put_values(v, i, x, y);
    }
}

/* A chunk: its keys (not where they are read in place), its values, or both.  fmt: that of the segment; it and what
 * are constants where speed matters. */
NB_AMX_INLINE void nb_amx_decode_chunk(nb_seg_fmt fmt, const nb_amx_seg *s, const nb_amx_from *x,
                                       nb_amx_keys k, nb_amx_values v, nb_amx_what what)
{
    switch (fmt) {
    case NB_SEG_MXFP4: nb_amx_fp4_chunk(s, x, k, v, what, true); break;
    case NB_SEG_E4M3: nb_amx_byte_chunk(s, x, k, v, what, false); break;
    case NB_SEG_INT8: nb_amx_byte_chunk(s, x, k, v, what, true); break;
    case NB_SEG_BF16:
        if (what != NB_AMX_K) nb_amx_bf16_chunk(s, x, v);
        break;
    default: nb_amx_fp4_chunk(s, x, k, v, what, false); break;
    }
}

#endif
