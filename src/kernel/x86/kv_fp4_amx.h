/* kv_fp4_amx.h - 4-bit codes to BF16: NVFP4, IF4, MXFP4; for kv_decode_amx.h, which says what it costs. */
#ifndef NB_KERNEL_KV_FP4_AMX_H
#define NB_KERNEL_KV_FP4_AMX_H
#include "kernel/x86/kv_chunk_amx.h"

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

#endif
