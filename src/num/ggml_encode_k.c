/* ggml_encode_k.c - blocks of 256: sub-blocks with integer scales of one FP16 scale.
 *
 * First every sub-block is fitted by itself.  The outer scale takes the largest of these to the end of the
 * integers' range.  Then, in rounds: each sub-block takes the best integers near its own fit, codes included,
 * and least squares over the block moves the outer scale, which is kept while the error falls. */
#include <math.h>
#include <string.h>

#include "num/fit.h"
#include "num/fp16.h"
#include "num/ggml_encode.h"

enum { BLOCK = 256, ROUNDS = 3, NEAR = 2 };

static const float *at(const float *w, size_t i)
{
    return w ? w + i : NULL;
}

/* ---- y = d * sc * q - m * mn ---- */

typedef struct affine {
    int n, hi, top; /* values of a sub-block, largest code, largest scale */
    float d, m;     /* as FP16 has them */
    uint8_t sc[16], mn[16];
    int8_t q[BLOCK];
} affine;

static float sub_error(const affine *a, const float *x, const float *w, int sc, int mn, int8_t *q)
{
    return nb_fit_codes(x, w, (size_t)a->n, a->d * (float)sc, -(a->m * (float)mn), 0, a->hi, q);
}

static int near_int(float x, float step, int top)
{
    const float r = step > 0 ? nb_fit_round(fminf(x / step, (float)top)) : 0;
    return r < 0 ? 0 : (int)r;
}

/* The best integers around those that are nearest to ds[j] and ms[j]; codes and the error. */
static float choose_affine(affine *a, const float *x, const float *w, const float *ds,
                           const float *ms)
{
    float sum = 0;
    for (int j = 0; j < BLOCK / a->n; j++) {
        const size_t o = (size_t)(j * a->n);
        const int s0 = near_int(ds[j], a->d, a->top), m0 = near_int(ms[j], a->m, a->top);
        float least = INFINITY;
        for (int s = s0 - NEAR; s <= s0 + NEAR; s++)
            for (int m = m0 - NEAR; m <= m0 + NEAR; m++) {
                if (s < 0 || m < 0 || s > a->top || m > a->top) continue;
                const float e = sub_error(a, x + o, at(w, o), s, m, NULL);
                if (!(e < least)) continue;
                least = e;
                a->sc[j] = (uint8_t)s;
                a->mn[j] = (uint8_t)m;
            }
        sum += sub_error(a, x + o, at(w, o), a->sc[j], a->mn[j], a->q + o);
    }
    return sum;
}

/* d and m of the least squared error for these integers and codes. */
static void refit_affine(const affine *a, const float *x, const float *w, float *d, float *m)
{
    double uu = 0, uv = 0, vv = 0, xu = 0, xv = 0;
    for (int i = 0; i < BLOCK; i++) {
        const int j = i / a->n;
        const double wi = w ? (double)w[i] : 1, u = a->sc[j] * a->q[i], v = -(double)a->mn[j],
                     xi = (double)x[i];
        uu += wi * u * u;
        uv += wi * u * v;
        vv += wi * v * v;
        xu += wi * xi * u;
        xv += wi * xi * v;
    }
    const double det = uu * vv - uv * uv;
    if (det > 1e-9 * uu * vv && det > 0) {
        *d = (float)((xu * vv - xv * uv) / det);
        *m = (float)((uu * xv - uv * xu) / det);
    } else if (uu > 0) {
        *d = (float)(xu / uu);
    }
}

static float half(float x)
{
    return nb_fp16_to_f32(nb_fp16_from_f32_sat(x > 0 ? x : 0));
}

static void fit_affine(affine *a, const float *x, const float *w)
{
    float ds[16], ms[16], dtop = 0, mtop = 0;
    for (int j = 0; j < BLOCK / a->n; j++) {
        const size_t o = (size_t)(j * a->n);
        nb_fit_affine(x + o, at(w, o), (size_t)a->n, a->hi, true, &ds[j], &ms[j]);
        ms[j] = -ms[j];
        dtop = fmaxf(dtop, ds[j]);
        mtop = fmaxf(mtop, ms[j]);
    }
    a->d = half(dtop / (float)a->top);
    a->m = half(mtop / (float)a->top);
    float e = choose_affine(a, x, w, ds, ms);
    for (int k = 0; k < ROUNDS; k++) {
        affine next = *a;
        refit_affine(a, x, w, &next.d, &next.m);
        next.d = half(next.d);
        next.m = half(next.m);
        if (next.d == a->d && next.m == a->m) break;
        const float f = choose_affine(&next, x, w, ds, ms);
        if (!(f < e)) break;
        *a = next;
        e = f;
    }
}

/* Six bits each, as nb_ggml_k_scales reads them. */
static void put_scales(const affine *a, uint8_t s[12])
{
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(a->sc[j] | a->sc[j + 4] >> 4 << 6);
        s[j + 4] = (uint8_t)(a->mn[j] | a->mn[j + 4] >> 4 << 6);
        s[j + 8] = (uint8_t)((a->sc[j + 4] & 15) | (a->mn[j + 4] & 15) << 4);
    }
}

static void put_head(const affine *a, uint8_t *b)
{
    nb_le16_put(b, nb_fp16_from_f32_sat(a->d));
    nb_le16_put(b + 2, nb_fp16_from_f32_sat(a->m));
}

/* Sub-blocks 2i and 2i + 1 of 32 are the low and high nibbles of bytes 32i to 32i + 31. */
static void put_nibbles(const int8_t *q, uint8_t *b)
{
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 32; l++)
            b[32 * i + l] = (uint8_t)((q[64 * i + l] & 15) | (q[64 * i + 32 + l] & 15) << 4);
}

void nb_ggml_encode_q4_k(const float *x, const float *w, size_t n, uint8_t *b)
{
    affine a = { .n = 32, .hi = 15, .top = 63 };
    for (; n > 0; n--, x += BLOCK, w = at(w, BLOCK), b += 144) {
        fit_affine(&a, x, w);
        put_head(&a, b);
        put_scales(&a, b + 4);
        put_nibbles(a.q, b + 16);
    }
}

void nb_ggml_encode_q5_k(const float *x, const float *w, size_t n, uint8_t *b)
{
    affine a = { .n = 32, .hi = 31, .top = 63 };
    for (; n > 0; n--, x += BLOCK, w = at(w, BLOCK), b += 176) {
        fit_affine(&a, x, w);
        put_head(&a, b);
        put_scales(&a, b + 4);
        memset(b + 16, 0, 32);
        for (int i = 0; i < BLOCK; i++) b[16 + i % 32] |= (uint8_t)((a.q[i] >> 4 & 1) << i / 32);
        put_nibbles(a.q, b + 48);
    }
}

void nb_ggml_encode_q2_k(const float *x, const float *w, size_t n, uint8_t *b)
{
    affine a = { .n = 16, .hi = 3, .top = 15 };
    for (; n > 0; n--, x += BLOCK, w = at(w, BLOCK), b += 84) {
        fit_affine(&a, x, w);
        for (int j = 0; j < 16; j++) b[j] = (uint8_t)(a.sc[j] | a.mn[j] << 4);
        memset(b + 16, 0, 64);
        for (int i = 0; i < BLOCK; i++) /* half p of 128, two bits t, byte i % 32 */
            b[16 + 32 * (i / 128) + i % 32] |= (uint8_t)(a.q[i] << 2 * (i / 32 % 4));
        put_head(&a, b + 80);
    }
}

/* ---- y = d * sc * q ---- */

typedef struct symmetric {
    int lo, hi, low, top; /* codes; scales of sub-blocks of 16 */
    float d;
    int8_t sc[16], q[BLOCK];
} symmetric;

static float choose_symmetric(symmetric *a, const float *x, const float *w, const float *ds)
{
    float sum = 0;
    for (int j = 0; j < 16; j++) {
        const size_t o = (size_t)(16 * j);
        const float want = a->d != 0 ? fminf(fmaxf(ds[j] / a->d, (float)a->low), (float)a->top) : 0;
        const int s0 = (int)nb_fit_round(want);
        float least = INFINITY;
        for (int s = s0 - NEAR; s <= s0 + NEAR; s++) {
            if (s < a->low || s > a->top) continue;
            const float e =
                nb_fit_codes(x + o, at(w, o), 16, a->d * (float)s, 0, a->lo, a->hi, NULL);
            if (!(e < least)) continue;
            least = e;
            a->sc[j] = (int8_t)s;
        }
        sum += nb_fit_codes(x + o, at(w, o), 16, a->d * (float)a->sc[j], 0, a->lo, a->hi, a->q + o);
    }
    return sum;
}

static void fit_symmetric(symmetric *a, const float *x, const float *w)
{
    float ds[16], top = 0;
    for (size_t j = 0; j < 16; j++) {
        ds[j] = nb_fit_scale(x + 16 * j, at(w, 16 * j), 16, a->lo, a->hi, false);
        if (fabsf(ds[j]) > fabsf(top)) top = ds[j];
    }
    a->d = nb_fp16_to_f32(nb_fp16_from_f32_sat(top / (float)a->low));
    float e = choose_symmetric(a, x, w, ds);
    for (int k = 0; k < ROUNDS; k++) {
        symmetric next = *a;
        double uu = 0, xu = 0;
        for (int i = 0; i < BLOCK; i++) {
            const double wi = w ? (double)w[i] : 1, u = a->sc[i / 16] * a->q[i];
            uu += wi * u * u;
            xu += wi * (double)x[i] * u;
        }
        if (!(uu > 0)) break;
        next.d = nb_fp16_to_f32(nb_fp16_from_f32_sat((float)(xu / uu)));
        if (next.d == a->d) break;
        const float f = choose_symmetric(&next, x, w, ds);
        if (!(f < e)) break;
        *a = next;
        e = f;
    }
}

void nb_ggml_encode_q6_k(const float *x, const float *w, size_t n, uint8_t *b)
{
    symmetric a = { .lo = -32, .hi = 31, .low = -128, .top = 127 };
    for (; n > 0; n--, x += BLOCK, w = at(w, BLOCK), b += 210) {
        fit_symmetric(&a, x, w);
        memset(b, 0, 192);
        for (int i = 0; i < BLOCK; i++) {
            const int p = i / 128, t = i / 32 % 4, l = i % 32;
            const unsigned c = (unsigned)(a.q[i] + 32);
            b[64 * p + l + 32 * (t & 1)] |= (uint8_t)((c & 15) << 4 * (t >> 1));
            b[128 + 32 * p + l] |= (uint8_t)(c >> 4 << 2 * t);
        }
        memcpy(b + 192, a.sc, 16);
        nb_le16_put(b + 208, nb_fp16_from_f32_sat(a.d));
    }
}

void nb_ggml_encode_q3_k(const float *x, const float *w, size_t n, uint8_t *b)
{
    symmetric a = { .lo = -4, .hi = 3, .low = -32, .top = 31 };
    for (; n > 0; n--, x += BLOCK, w = at(w, BLOCK), b += 110) {
        fit_symmetric(&a, x, w);
        memset(b, 0, 108);
        for (int i = 0; i < BLOCK; i++) {
            const unsigned c = (unsigned)(a.q[i] + 4);
            b[i % 32] |= (uint8_t)((c >> 2) << i / 32);
            b[32 + 32 * (i / 128) + i % 32] |= (uint8_t)((c & 3) << 2 * (i / 32 % 4));
        }
        for (int j = 0; j < 16; j++) {
            const unsigned s = (unsigned)(a.sc[j] + 32);
            b[96 + j % 8] |= (uint8_t)((s & 15) << (j < 8 ? 0 : 4));
            b[104 + j % 4] |= (uint8_t)(s >> 4 << 2 * (j / 4));
        }
        nb_le16_put(b + 108, nb_fp16_from_f32_sat(a.d));
    }
}
