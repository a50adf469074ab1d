/* int8_row.h - a row of weights as signed bytes with one scale.
 *
 *   m     = max_c |w[c]|
 *   inv   = 127 / m;  code[c] = round_to_nearest_even(w[c] * inv);  scale = m / 127
 *
 * in single precision, each operation rounded once; w[c] is about code[c] * scale.  |code| is at
 * most 127, so that a product with another byte never needs 16 bits and the sign.  m < 2^-100: all
 * codes and the scale are 0 (127 / m would leave the range of floats below 2^-121).  Every machine
 * makes the same bytes. */
#ifndef NB_NUM_INT8_ROW_H
#define NB_NUM_INT8_ROW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NB_INT8_W_MIN 0x1p-100f

/* False when a value is not finite: then nothing was written. */
static inline bool nb_int8_row(const float *w, size_t n, int8_t *code, float *scale)
{
    uint32_t max = 0; /* magnitudes compare as their bits do */
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &w[i], sizeof u);
        u &= 0x7fffffffu;
        max = u > max ? u : max;
    }
    if (max >= 0x7f800000u) return false;
    float m;
    memcpy(&m, &max, sizeof m);
    const bool some = m >= NB_INT8_W_MIN;
    const float inv = some ? 127.0f / m : 0;
    for (size_t i = 0; i < n; i++) {
        /* |w inv| <= 127 (1 + 2^-22): in [2^23, 2^24) the addition rounds to whole numbers */
        const float x = w[i] * inv, y = x + 0x1.8p23f;
        uint32_t u;
        memcpy(&u, &y, sizeof u);
        code[i] = (int8_t)(uint8_t)(u & 0xff);
    }
    *scale = some ? m / 127.0f : 0;
    return true;
}

#endif
