/* kv_chunk_amx.h - where a chunk of a page is read, and where its keys and values go as BF16 tiles; for
 * kv_fp4_amx.h and kv_decode_amx.h. */
#ifndef NB_KERNEL_KV_CHUNK_AMX_H
#define NB_KERNEL_KV_CHUNK_AMX_H
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

#endif
