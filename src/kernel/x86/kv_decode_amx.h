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
#include "kernel/x86/kv_fp4_amx.h"

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
