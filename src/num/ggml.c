/* ggml.c - see ggml.h.  q is a code, sc and mn are the scale and minimum of a sub-block. */
#include "num/ggml.h"

#include <string.h>

#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/fp16.h"

static inline uint16_t u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | (uint32_t)u16_at(p + 2) << 16;
}
static inline float f16_at(const uint8_t *p)
{
    return nb_fp16_to_f32(u16_at(p));
}

void nb_ggml_f32(const uint8_t *b, size_t n, float *out)
{
    memcpy(out, b, n * sizeof *out);
}
void nb_ggml_f16(const uint8_t *b, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = f16_at(b + 2 * i);
}
void nb_ggml_bf16(const uint8_t *b, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = nb_bf16_to_f32(u16_at(b + 2 * i));
}

/* ---- blocks of 32: the low nibble of byte j is value j, the high one value j + 16 ---- */

void nb_ggml_q8_0(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 34, out += 32) {
        const float d = f16_at(b);
        for (size_t j = 0; j < 32; j++) out[j] = d * (float)(int8_t)b[2 + j];
    }
}

/* Code j of 16 bytes of nibbles, bit 4 from h. */
static inline int code(uint32_t h, const uint8_t *q, size_t j)
{
    return (q[j & 15] >> (j & 16 ? 4 : 0) & 15) | (int)(h >> j & 1) << 4;
}

/* d * (q - middle) */
static inline void signed_codes(float d, int middle, uint32_t h, const uint8_t *q, float *out)
{
    for (size_t j = 0; j < 32; j++) out[j] = d * (float)(code(h, q, j) - middle);
}

/* d * q + m */
static inline void codes_from(float d, float m, uint32_t h, const uint8_t *q, float *out)
{
    for (size_t j = 0; j < 32; j++) out[j] = d * (float)code(h, q, j) + m;
}

void nb_ggml_q4_0(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 18, out += 32) signed_codes(f16_at(b), 8, 0, b + 2, out);
}
void nb_ggml_q4_1(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 20, out += 32) codes_from(f16_at(b), f16_at(b + 2), 0, b + 4, out);
}
void nb_ggml_q5_0(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 22, out += 32) signed_codes(f16_at(b), 16, u32_at(b + 2), b + 6, out);
}
void nb_ggml_q5_1(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 24, out += 32)
        codes_from(f16_at(b), f16_at(b + 2), u32_at(b + 4), b + 8, out);
}

static const int8_t iq4_value[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113 };
/* Twice the values of E2M1. */
static const int8_t fp4_value[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

/* n_byte bytes: value j, and j + n_byte */
static inline void looked_up(float d, const int8_t value[16], const uint8_t *q, size_t n_byte,
                             float *out)
{
    for (size_t j = 0; j < n_byte; j++) {
        out[j] = d * (float)value[q[j] & 15];
        out[j + n_byte] = d * (float)value[q[j] >> 4];
    }
}

void nb_ggml_iq4_nl(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 18, out += 32) looked_up(f16_at(b), iq4_value, b + 2, 16, out);
}

void nb_ggml_mxfp4(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 17, out += 32) { /* 2^(e - 128), for twice the values */
        const float d =
            nb_f32_from_bits(b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23);
        looked_up(d, fp4_value, b + 1, 16, out);
    }
}

/* Four scales without a sign, then 8 bytes for each 16 values. */
void nb_ggml_nvfp4(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 36, out += 64)
        for (size_t s = 0; s < 4; s++) {
            const float d = b[s] == NB_E4M3_NAN            ? 0
                            : (b[s] & 0x7f) == NB_E4M3_NAN ? 480
                                                           : nb_e4m3_to_f32(b[s] & 0x7f);
            looked_up(d * 0.5f, fp4_value, b + 4 + 8 * s, 8, out + 16 * s);
        }
}

/* ---- blocks of 256 ---- */

/* Q2_K and Q3_K: 64 bytes of two-bit codes; group i = 8p + 2t + h has 16 values. */
static inline unsigned two_bits(const uint8_t *q, size_t i, size_t l)
{
    return q[32 * (i / 8) + 16 * (i & 1) + l] >> 2 * (i / 2 & 3) & 3;
}

void nb_ggml_q2_k(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 84) {
        const float d = f16_at(b + 80), m = f16_at(b + 82);
        for (size_t i = 0; i < 16; i++) {
            const float ds = d * (float)(b[i] & 15), ms = m * (float)(b[i] >> 4);
            for (size_t l = 0; l < 16; l++) *out++ = ds * (float)two_bits(b + 16, i, l) - ms;
        }
    }
}

void nb_ggml_q3_k(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 110) {
        const uint8_t *s = b + 96;
        const float d = f16_at(b + 108);
        for (size_t i = 0; i < 16; i++) {
            const int lo = i < 8 ? s[i] & 15 : s[i - 8] >> 4, hi = s[8 + i % 4] >> 2 * (i / 4) & 3;
            const float ds = d * (float)(lo + 16 * hi - 32);
            const unsigned bit = (unsigned)(4 * (i / 8) + (i / 2 & 3));
            for (size_t l = 0; l < 16; l++) {
                const int high = b[16 * (i & 1) + l] >> bit & 1;
                *out++ = ds * (float)((int)two_bits(b + 32, i, l) - (high ? 0 : 4));
            }
        }
    }
}

/* Sub-blocks j and j + 1 are the low and high nibbles of the same 32 bytes; h: bit j is bit 4, or NULL. */
static inline void k_block(const uint8_t *b, const uint8_t *h, const uint8_t *q, float *out)
{
    const float d = f16_at(b), m = f16_at(b + 2);
    uint8_t sc[8], mn[8];
    nb_ggml_k_scales(b + 4, sc, mn);
    for (size_t j = 0; j < 8; j++) {
        const float ds = d * (float)sc[j], ms = m * (float)mn[j];
        for (size_t l = 0; l < 32; l++) {
            const unsigned lo = q[32 * (j / 2) + l] >> 4 * (j & 1) & 15,
                           hi = h ? h[l] >> j & 1u : 0;
            out[32 * j + l] = ds * (float)(lo + 16 * hi) - ms;
        }
    }
}

void nb_ggml_q4_k(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 144, out += 256) k_block(b, NULL, b + 16, out);
}
void nb_ggml_q5_k(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 176, out += 256) k_block(b, b + 16, b + 48, out);
}

void nb_ggml_q6_k(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 210, out += 256) {
        const float d = f16_at(b + 208);
        for (size_t i = 0; i < 256; i++) {
            const size_t p = i / 128, t = i / 32 & 3, l = i & 31;
            const int lo = b[64 * p + l + 32 * (t & 1)] >> 4 * (t >> 1) & 15;
            const int hi = b[128 + 32 * p + l] >> 2 * t & 3;
            out[i] =
                d * (float)(int8_t)b[192 + 8 * p + 2 * t + l / 16] * (float)(lo + 16 * hi - 32);
        }
    }
}

void nb_ggml_iq4_xs(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 136, out += 256) {
        const float d = f16_at(b);
        for (size_t i = 0; i < 8; i++) {
            const int lo = b[4 + i / 2] >> 4 * (i & 1) & 15, hi = u16_at(b + 2) >> 2 * i & 3;
            looked_up(d * (float)(lo + 16 * hi - 32), iq4_value, b + 8 + 16 * i, 16, out + 32 * i);
        }
    }
}
