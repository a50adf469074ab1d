/* fp8_row.h - a row of weights as E4M3 with one scale: --weight-dtype fp8.
 *
 *   m = max_c |w[c]|;  scale = m / 448;  code[c] = E4M3 nearest to w[c] * (448 / m)
 *
 * in single precision, each operation rounded once; w[c] is about code[c] * scale.  m < 2^-100: all codes
 * and the scale are 0.  Every machine makes the same bytes. */
#ifndef NB_NUM_FP8_ROW_H
#define NB_NUM_FP8_ROW_H
#include <math.h>
#include <stddef.h>

#include "num/e4m3.h"

#define NB_FP8_W_MIN 0x1p-100f

/* False when a value is not finite: then nothing was written. */
static inline bool nb_fp8_row(const float *w, size_t n, uint8_t *code, float *scale)
{
    float m = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(w[i])) return false;
        m = fabsf(w[i]) > m ? fabsf(w[i]) : m;
    }
    const bool some = m >= NB_FP8_W_MIN;
    const float inv = some ? 448.0f / m : 0;
    for (size_t i = 0; i < n; i++) code[i] = nb_e4m3_from_f32(w[i] * inv);
    *scale = some ? m / 448.0f : 0;
    return true;
}

#endif
