/* linear_gguf_avx512.h - what the kernels for blocks of GGUF share; included by linear_<type>_avx512.c, which
 * defines before:
 *
 *   BLOCK, BYTES    values and bytes of a block
 *   block(dot, p, x, out, acc)
 *                   hands the block at p, 16 values after the other, to use()
 *   NAME            the function to define
 *
 * Values are those of num/ggml.h bit for bit: products of codes and scales are exact, and what is not is
 * rounded once.  So one token costs no copy: 16 values are made in a register and multiplied.  The order of
 * summation is linear_tile_avx512.h's, the same as of the generic kernel.  Codes of 4 bits are looked up:
 * vpermps takes the lowest 4 bits of a word as the index into 16 floats, which are scale * code - minimum. */
#ifndef NB_LINEAR_GGUF_AVX512_H
#define NB_LINEAR_GGUF_AVX512_H
#include <string.h>

#include "kernel/linear/packed.h"
#include "kernel/x86/vec_avx512.h"
#include "num/ggml.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

/* The i-th 16 values of a block: times x into acc, or stored. */
INLINE void use(const bool dot, int i, __m512 v, const float *x, float *out, __m512 *acc)
{
    if (dot)
        *acc = _mm512_fmadd_ps(v, _mm512_loadu_ps(x + 16 * i), *acc);
    else
        _mm512_storeu_ps(out + 16 * i, v);
}

/* An FP16 in all lanes. */
INLINE __m512 half(const uint8_t *p)
{
    short h;
    memcpy(&h, p, sizeof h);
    return _mm512_cvtph_ps(_mm256_set1_epi16(h));
}

INLINE __m512 iota(float first)
{
    const __m512 n = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_add_ps(n, _mm512_set1_ps(first));
}

/* 16 bytes as words. */
INLINE __m512i bytes16(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* 16 bytes of nibbles: values 0..15 from the low ones, 16..31 from the high ones. */
INLINE void nibbles(const bool dot, const uint8_t *p, __m512 table, const float *x, float *out,
                    __m512 *acc)
{
    const __m512i v = bytes16(p);
    use(dot, 0, _mm512_permutexvar_ps(v, table), x, out, acc);
    use(dot, 1, _mm512_permutexvar_ps(_mm512_srli_epi32(v, 4), table), x, out, acc);
}

INLINE uint64_t pair(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

/* d * sc and m * mn of the eight sub-blocks of Q4_K and Q5_K (nb_ggml_k_scales, four at a time: stores
 * of bytes that are read as words would have to be waited for). */
INLINE void k_scales(const uint8_t *p, float scale[8], float min[8])
{
    uint32_t s[3];
    memcpy(s, p + 4, sizeof s);
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, top = 0x30303030;
    const uint64_t sc = pair(s[0] & six, (s[2] & four) | (s[0] >> 2 & top));
    const uint64_t mn = pair(s[1] & six, (s[2] >> 4 & four) | (s[1] >> 2 & top));
    const __m256 d = _mm512_castps512_ps256(half(p)), m = _mm512_castps512_ps256(half(p + 2));
    const __m256i si = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)sc));
    const __m256i mi = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)mn));
    _mm256_storeu_ps(scale, _mm256_mul_ps(d, _mm256_cvtepi32_ps(si)));
    _mm256_storeu_ps(min, _mm256_mul_ps(m, _mm256_cvtepi32_ps(mi)));
}
#endif

#ifdef NAME
static void gguf_values(const nb_weight *w, size_t r, size_t c, size_t n, float *out)
{
    const uint8_t *p =
        (const uint8_t *)w->data + r * nb_wtype_row_bytes(w->type, w->n_col) + c / BLOCK * BYTES;
    const size_t whole = n / BLOCK * BLOCK;
    for (size_t i = 0; i < whole; i += BLOCK, p += BYTES) block(false, p, NULL, out + i, NULL);
    if (whole < n) nb_packed_values(w, r, c + whole, n - whole, out + whole);
}

/* Adds to total [16] the products of columns [c, c + n) of row r; c is a multiple of the chunk. */
static void gguf_dot(const nb_weight *w, size_t r, size_t c, size_t n, const float *x, float *total)
{
    const uint8_t *p =
        (const uint8_t *)w->data + r * nb_wtype_row_bytes(w->type, w->n_col) + c / BLOCK * BYTES;
    const size_t whole = n / BLOCK * BLOCK;
    __m512 acc = _mm512_setzero_ps();
    for (size_t i = 0; i < whole; i += BLOCK, p += BYTES) block(true, p, x + i, NULL, &acc);
    if (whole < n) { /* no file has this */
        float rest[NB_PACKED_CHUNK];
        nb_packed_values(w, r, c + whole, n - whole, rest);
        for (size_t i = whole; i < n; i += 16) {
            const __mmask16 m = nb_avx512_mask16(n - i < 16 ? n - i : 16);
            acc = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, rest + (i - whole)),
                                  _mm512_maskz_loadu_ps(m, x + i), acc);
        }
    }
    _mm512_storeu_ps(total, _mm512_add_ps(acc, _mm512_loadu_ps(total)));
}

#define W_TYPE float
#define W_PACKED 1
#define W_FP8 0
#define W_F32 1
#define W_LOAD(p) _mm512_loadu_ps(p)
#define W_TAIL(p, n) _mm512_maskz_loadu_ps(nb_avx512_mask16(n), p)
#define W_VALUES gguf_values
#define W_DOT gguf_dot
#include "kernel/x86/linear_tile_avx512.h"
#endif
