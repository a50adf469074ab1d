/* fit.c - see fit.h. */
#include "num/fit.h"

#include <math.h>

enum { MAX_BLOCK = 256, SIDE_STEPS = 10, REFINE_STEPS = 4 };

static float clamp(float x, float lo, float hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

float nb_fit_codes(const float *x, const float *w, size_t n, float d, float m, int lo, int hi,
                   int8_t *q)
{
    const float inv = d == 0 ? 0 : 1 / d, flo = (float)lo, fhi = (float)hi;
    float e = 0;
    for (size_t i = 0; i < n; i++) {
        const float c = nb_fit_round(clamp((x[i] - m) * inv, flo, fhi)), r = x[i] - (d * c + m);
        e += (w ? w[i] : 1) * r * r;
        if (q) q[i] = (int8_t)c;
    }
    return e;
}

/* ---- y = d * q ---- */

/* Codes of inverse scale inv: sum w x q and sum w q^2. */
static void products(const float *x, const float *w, size_t n, float inv, float lo, float hi,
                     float *xq, float *qq)
{
    float a = 0, b = 0;
    for (size_t i = 0; i < n; i++) {
        const float c = nb_fit_round(clamp(x[i] * inv, lo, hi)), wc = (w ? w[i] : 1) * c;
        a += wc * x[i];
        b += wc * c;
    }
    *xq = a;
    *qq = b;
}

typedef struct best_scale {
    float gain, d; /* what the error is less than that of zeros; d == 0: none yet */
} best_scale;

static void try_scale(const float *x, const float *w, size_t n, float inv, int lo, int hi,
                      bool positive, best_scale *best)
{
    float xq, qq;
    products(x, w, n, inv, (float)lo, (float)hi, &xq, &qq);
    if (!(qq > 0) || (positive && xq <= 0)) return;
    const float gain = xq / qq * xq;
    if (gain > best->gain) *best = (best_scale){ gain, xq / qq };
}

float nb_fit_scale(const float *x, const float *w, size_t n, int lo, int hi, bool positive)
{
    float top = 0;
    best_scale best = { 0, 0 };
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    if (top == 0) return 0;
    const float steps[2] = { (float)lo / top, (float)hi / top };
    for (int side = 0; side < 2; side++)
        for (int k = -SIDE_STEPS; k <= SIDE_STEPS; k++) {
            /* codes of the largest value from one below to one above the end of the range */
            const int end = side ? hi : lo;
            float inv = steps[side] * (1 + 0.1f * (float)k / (float)(end < 0 ? -end : end));
            if (positive) inv = fabsf(inv);
            try_scale(x, w, n, inv, lo, hi, positive, &best);
        }
    for (int k = 0; k < REFINE_STEPS && best.d != 0; k++) {
        const float before = best.gain;
        try_scale(x, w, n, 1 / best.d, lo, hi, positive, &best);
        if (best.gain == before) break;
    }
    return isfinite(best.d) ? best.d : 0;
}

/* ---- y = d * q + m ---- */

typedef struct sums {
    double w, x, q, qx, qq;
} sums;

static sums affine_sums(const float *x, const float *w, size_t n, float inv, float low, float hi)
{
    float sw = 0, sx = 0, sq = 0, sqx = 0, sqq = 0;
    for (size_t i = 0; i < n; i++) {
        const float c = nb_fit_round(clamp((x[i] - low) * inv, 0, hi)), wi = w ? w[i] : 1;
        sw += wi;
        sx += wi * x[i];
        sq += wi * c;
        sqx += wi * c * x[i];
        sqq += wi * c * c;
    }
    return (sums){ (double)sw, (double)sx, (double)sq, (double)sqx, (double)sqq };
}

typedef struct best_affine {
    float e, d, m;
} best_affine;

static void try_affine(const float *x, const float *w, size_t n, float inv, float low, int hi,
                       bool below, best_affine *best)
{
    const sums s = affine_sums(x, w, n, inv, low, (float)hi);
    const double det = s.w * s.qq - s.q * s.q;
    double d = det > 0 ? (s.w * s.qx - s.x * s.q) / det : 0;
    double m = det > 0 ? (s.qq * s.x - s.q * s.qx) / det : s.w > 0 ? s.x / s.w : 0;
    if (below && m > 0) {
        m = 0;
        d = s.qq > 0 ? s.qx / s.qq : 0;
    }
    if (!(d > 0)) return;
    const float fd = (float)d, fm = (float)m, e = nb_fit_codes(x, w, n, fd, fm, 0, hi, NULL);
    if (e < best->e) *best = (best_affine){ e, fd, fm };
}

void nb_fit_affine(const float *x, const float *w, size_t n, int hi, bool below, float *d, float *m)
{
    float lo = x[0], up = x[0];
    for (size_t i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        up = x[i] > up ? x[i] : up;
    }
    if (below && lo > 0) lo = 0;
    if (!(up > lo)) { /* one value */
        *m = below && lo > 0 ? 0 : lo;
        *d = 0;
        return;
    }
    const float step = (up - lo) / (float)hi;
    best_affine best = { nb_fit_codes(x, w, n, step, lo, 0, hi, NULL), step, lo };
    for (int k = -SIDE_STEPS; k <= SIDE_STEPS; k++) {
        const float inv = ((float)hi + 0.1f * (float)k) / (up - lo);
        try_affine(x, w, n, inv, lo, hi, below, &best);
        if (k) /* at both ends */
            try_affine(x, w, n, inv, lo - 0.5f * ((float)hi / inv - (up - lo)), hi, below, &best);
    }
    for (int k = 0; k < REFINE_STEPS; k++) {
        const float before = best.e;
        try_affine(x, w, n, 1 / best.d, best.m, hi, below, &best);
        if (!(best.e < before)) break;
    }
    *d = best.d;
    *m = best.m;
}
