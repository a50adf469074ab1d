/* weight_encode.c - see weight_encode.h. */
#include "num/weight_encode.h"

#include <math.h>

#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/fit.h"

enum { MAX_GROUP = 256 };

static float largest(const float *x, size_t n)
{
    float a = 0;
    for (size_t i = 0; i < n; i++) a = fmaxf(a, fabsf(x[i]));
    return a;
}

/* ---- INT4 ---- */

void nb_encode_int4(const float *x, const float *w, size_t n, size_t group, uint8_t *codes,
                    uint16_t *scale)
{
    int8_t q[MAX_GROUP];
    for (; n >= group; n -= group, x += group, w = w ? w + group : NULL, codes += group / 2) {
        const uint16_t mid = nb_bf16_from_f32(nb_fit_scale(x, w, group, -8, 7, true));
        uint16_t best = 0x3f80; /* 1, for zeros */
        float least = INFINITY;
        for (int k = -1; k <= 1 && mid; k++) {
            const uint16_t s = (uint16_t)(mid + k);
            const float e = s && nb_bf16_is_finite(s)
                                ? nb_fit_codes(x, w, group, nb_bf16_to_f32(s), 0, -8, 7, NULL)
                                : INFINITY;
            if (!(e < least)) continue;
            least = e;
            best = s;
        }
        (void)nb_fit_codes(x, NULL, group, nb_bf16_to_f32(best), 0, -8, 7, q);
        for (size_t i = 0; i < group / 2; i++)
            codes[i] = (uint8_t)((q[2 * i] + 8) | (q[2 * i + 1] + 8) << 4);
        *scale++ = best;
    }
}

/* ---- E2M1 ---- */

/* The value of the nearest E2M1 magnitude for y >= 0, ties to even: steps of 1/2, 1 and 2. */
static inline float e2m1_near(float y)
{
    const float m = y < 6 ? y : 6, a = nb_fit_round(2 * m) * 0.5f, b = nb_fit_round(m),
                c = nb_fit_round(m * 0.5f) * 2;
    return m < 2 ? a : m < 4 ? b : c;
}

static float fp4_error(const float *x, const float *w, size_t n, float s)
{
    float e = 0;
    for (size_t i = 0; i < n; i++) {
        const float y = fabsf(x[i]), r = y - e2m1_near(y / s) * s;
        e += (w ? w[i] : 1) * r * r;
    }
    return e;
}

static void fp4_codes(const float *x, size_t n, float s, uint8_t *codes)
{
    for (size_t i = 0; i < n; i += 2) {
        const uint8_t a = nb_e2m1_from_f32(x[i] / s), b = nb_e2m1_from_f32(x[i + 1] / s);
        codes[i / 2] = (uint8_t)(a | b << 4);
    }
}

void nb_encode_nvfp4(const float *x, const float *w, size_t n, float outer, uint8_t *codes,
                     uint8_t *scale)
{
    enum { GROUP = 16, DOWN = 3, UP = 6 };
    for (; n >= GROUP; n -= GROUP, x += GROUP, w = w ? w + GROUP : NULL, codes += GROUP / 2) {
        const int mid = nb_e4m3_from_f32(largest(x, GROUP) / (6 * outer));
        int best = 0x38; /* 1, for zeros */
        float least = INFINITY;
        for (int c = mid - DOWN; mid && c <= mid + UP; c++) {
            if (c < 1 || c > NB_E4M3_MAX) continue;
            const float e = fp4_error(x, w, GROUP, nb_e4m3_to_f32((uint8_t)c) * outer);
            if (!(e < least)) continue;
            least = e;
            best = c;
        }
        if (!(least < INFINITY) && largest(x, GROUP) > 0) best = 1; /* too small for the scales */
        fp4_codes(x, GROUP, nb_e4m3_to_f32((uint8_t)best) * outer, codes);
        *scale++ = (uint8_t)best;
    }
}

void nb_encode_mxfp4(const float *x, const float *w, size_t n, uint8_t *codes, uint8_t *scale)
{
    enum { GROUP = 32 };
    for (; n >= GROUP; n -= GROUP, x += GROUP, w = w ? w + GROUP : NULL, codes += GROUP / 2) {
        const float top = largest(x, GROUP);
        int best = 127, mid = 0;
        float least = INFINITY;
        if (top > 0) {
            (void)frexpf(top / 6, &mid);
            for (int e = mid - 1; e <= mid + 1; e++) {
                if (e < -126 || e > 127) continue;
                const float f = fp4_error(x, w, GROUP, nb_f32_pow2(e));
                if (!(f < least)) continue;
                least = f;
                best = e + 127;
            }
            if (!(least < INFINITY)) best = 1; /* subnormal values */
        }
        fp4_codes(x, GROUP, nb_f32_pow2(best - 127), codes);
        *scale++ = (uint8_t)best;
    }
}

/* ---- E4M3 ---- */

void nb_encode_fp8(const float *x, size_t n, float scale, uint8_t *codes)
{
    for (size_t i = 0; i < n; i++) codes[i] = nb_e4m3_from_f32(x[i] / scale);
}
