/* ggml_iq.c - see ggml.h: the types of GGUF whose codes choose rows of a grid (ggml_grids.h).  Every block has 256
 * values in eight parts of 32; d is its scale in FP16, db that of a part or of half of it. */
#include <stdbool.h>

#include "num/fp16.h"
#include "num/ggml.h"
#include "num/ggml_grids.h"

static inline uint32_t u16_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
static inline uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | u16_at(p + 2) << 16;
}
static inline float f16_at(const uint8_t *p)
{
    return nb_fp16_to_f32((uint16_t)u16_at(p));
}

/* Signs of eight values from 7 bits: their number is even. */
static inline unsigned even_signs(unsigned bits)
{
    unsigned p = bits ^ bits >> 4;
    p ^= p >> 2;
    return bits | ((p ^ p >> 1) & 1) << 7;
}

/* Eight values of an IQ2 row; bit j of signs: value j is negative. */
static inline void row8(float db, unsigned row, unsigned signs, float *out)
{
    static const float value[4] = { 8, 25, 43 };
    for (unsigned j = 0; j < 8; j++) {
        const float v = db * value[row >> 2 * j & 3];
        out[j] = signs >> j & 1 ? -v : v;
    }
}

static const float xxs_value[8] = { 4, 12, 20, 28, 36, 44, 52, 62 };
static const float s_value[8] = { 1, 3, 5, 7, 9, 11, 13, 15 };

/* Two IQ3 rows of four values. */
static inline void row4(float db, const float value[8], unsigned a, unsigned b, unsigned signs,
                        float *out)
{
    const unsigned both = a | b << 12;
    for (unsigned j = 0; j < 8; j++) {
        const float v = db * value[both >> 3 * j & 7];
        out[j] = signs >> j & 1 ? -v : v;
    }
}

/* Four rows by a byte each; 7 bits of signs each and 4 bits of scale in a word. */
void nb_ggml_iq2_xxs(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 66)
        for (size_t i = 0; i < 8; i++) {
            const uint8_t *q = b + 2 + 8 * i;
            const uint32_t c = u32_at(q + 4);
            const float db = f16_at(b) * (0.5f + (float)(c >> 28)) * 0.25f;
            for (unsigned l = 0; l < 4; l++, out += 8)
                row8(db, nb_ggml_grid_iq2_xxs[q[l]], even_signs(c >> 7 * l & 127), out);
        }
}

/* Rows by 9 bits, with 7 bits of signs; scales of 16 values. */
void nb_ggml_iq2_xs(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 74)
        for (size_t i = 0; i < 8; i++)
            for (unsigned l = 0; l < 4; l++, out += 8) {
                const unsigned q = u16_at(b + 2 + 8 * i + 2 * l), sc = (unsigned)b[66 + i] >> 4 * (l / 2) & 15;
                const float db = f16_at(b) * (0.5f + (float)sc) * 0.25f;
                row8(db, nb_ggml_grid_iq2_xs[q & 511], even_signs(q >> 9), out);
            }
}

/* Rows by 10 bits, two of them apart; a byte of signs each. */
void nb_ggml_iq2_s(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 82)
        for (size_t i = 0; i < 8; i++)
            for (unsigned l = 0; l < 4; l++, out += 8) {
                const unsigned q = b[2 + 4 * i + l] | ((unsigned)b[66 + i] >> 2 * l & 3) << 8;
                const unsigned sc = (unsigned)b[74 + i] >> 4 * (l / 2) & 15;
                const float db = f16_at(b) * (0.5f + (float)sc) * 0.25f;
                row8(db, nb_ggml_grid_iq2_s[q], b[34 + 4 * i + l], out);
            }
}

void nb_ggml_iq3_xxs(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 98)
        for (size_t i = 0; i < 8; i++) {
            const uint8_t *q = b + 2 + 8 * i;
            const uint32_t c = u32_at(b + 66 + 4 * i);
            const float db = f16_at(b) * (0.5f + (float)(c >> 28)) * 0.5f;
            for (unsigned l = 0; l < 4; l++, out += 8)
                row4(db, xxs_value, nb_ggml_grid_iq3_xxs[q[2 * l]], nb_ggml_grid_iq3_xxs[q[2 * l + 1]],
                     even_signs(c >> 7 * l & 127), out);
        }
}

/* Rows by 9 bits, one of them apart. */
void nb_ggml_iq3_s(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 110)
        for (size_t i = 0; i < 8; i++) {
            const uint8_t *q = b + 2 + 8 * i;
            const unsigned h = b[66 + i], sc = (unsigned)b[106 + i / 2] >> 4 * (i & 1) & 15;
            const float db = f16_at(b) * (float)(1 + 2 * sc);
            for (unsigned l = 0; l < 4; l++, out += 8)
                row4(db, s_value, nb_ggml_grid_iq3_s[q[2 * l] | (h >> 2 * l & 1) << 8],
                     nb_ggml_grid_iq3_s[q[2 * l + 1] | (h >> (2 * l + 1) & 1) << 8], b[74 + 4 * i + l],
                     out);
        }
}

/* Eight values -1, 0 or 1, each an eighth more or less. */
static inline void row1(float db, unsigned row, bool minus, float *out)
{
    const float delta = minus ? -0.125f : 0.125f;
    for (unsigned j = 0; j < 8; j++) out[j] = db * ((float)((int)(row >> 2 * j & 3) - 1) + delta);
}

void nb_ggml_iq1_s(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 50)
        for (size_t i = 0; i < 8; i++) {
            const unsigned h = u16_at(b + 34 + 2 * i);
            const float db = f16_at(b) * (float)(2 * (h >> 12 & 7) + 1);
            for (unsigned l = 0; l < 4; l++, out += 8)
                row1(db, nb_ggml_grid_iq1[b[2 + 4 * i + l] | (h >> 3 * l & 7) << 8], h >> 15, out);
        }
}

/* The scale's four nibbles are the highest ones of the words of scales, of 3 bits for 16 values. */
void nb_ggml_iq1_m(const uint8_t *b, size_t n, float *out)
{
    for (; n > 0; n--, b += 56) {
        const uint8_t *s = b + 48;
        const unsigned bits = (unsigned)s[1] >> 4 | (s[3] & 0xf0u) | (s[5] & 0xf0u) << 4 | (s[7] & 0xf0u) << 8;
        const float d = nb_fp16_to_f32((uint16_t)bits);
        for (size_t i = 0; i < 8; i++)
            for (unsigned l = 0; l < 4; l++, out += 8) {
                const unsigned sc = u16_at(s + 2 * (i / 2)) >> (6 * (i & 1) + 3 * (l / 2)) & 7;
                const unsigned h = (unsigned)b[32 + 2 * i + l / 2] >> 4 * (l & 1) & 15;
                row1(d * (float)(2 * sc + 1), nb_ggml_grid_iq1[b[4 * i + l] | (h & 7) << 8], h >> 3, out);
            }
    }
}
