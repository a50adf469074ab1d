/* ggml_encode.c - see ggml_encode.h: plain types and blocks of 32. */
#include "num/ggml_encode.h"

#include <math.h>
#include <string.h>

#include "num/bf16.h"
#include "num/fit.h"
#include "num/fp16.h"

void nb_ggml_encode_f32(const float *x, const float *w, size_t n, uint8_t *b)
{
    (void)w;
    memcpy(b, x, n * sizeof *x);
}
void nb_ggml_encode_f16(const float *x, const float *w, size_t n, uint8_t *b)
{
    (void)w;
    for (size_t i = 0; i < n; i++) nb_le16_put(b + 2 * i, nb_fp16_from_f32_sat(x[i]));
}
void nb_ggml_encode_bf16(const float *x, const float *w, size_t n, uint8_t *b)
{
    (void)w;
    for (size_t i = 0; i < n; i++) nb_le16_put(b + 2 * i, nb_bf16_from_f32(x[i]));
}

/* Code j of 16 bytes of nibbles; bit 4 goes to h. */
static void put_codes(const int8_t *q, int middle, uint8_t *nibbles, uint32_t *h)
{
    memset(nibbles, 0, 16);
    *h = 0;
    for (size_t j = 0; j < 32; j++) {
        const unsigned c = (unsigned)(q[j] + middle);
        nibbles[j & 15] |= (uint8_t)((c & 15) << (j & 16 ? 4 : 0));
        *h |= (uint32_t)(c >> 4 & 1) << j;
    }
}

/* ---- y = d * q ---- */

/* The FP16 scale of a block and its codes: that of the fit, or one of its two neighbours. */
static uint16_t signed_block(const float *x, const float *w, int lo, int hi, int8_t q[32])
{
    const uint16_t mid = nb_fp16_from_f32_sat(nb_fit_scale(x, w, 32, lo, hi, false));
    uint16_t best = mid;
    float least = INFINITY;
    for (int k = -1; k <= 1; k++) {
        const uint16_t h = (uint16_t)(mid + k);
        if (!nb_fp16_is_finite(h) || (h ^ mid) & 0x8000) continue;
        const float e = nb_fit_codes(x, w, 32, nb_fp16_to_f32(h), 0, lo, hi, NULL);
        if (e >= least) continue;
        least = e;
        best = h;
    }
    (void)nb_fit_codes(x, w, 32, nb_fp16_to_f32(best), 0, lo, hi, q);
    return best;
}

void nb_ggml_encode_q8_0(const float *x, const float *w, size_t n, uint8_t *b)
{
    int8_t q[32];
    for (; n > 0; n--, x += 32, w = w ? w + 32 : NULL, b += 34) {
        nb_le16_put(b, signed_block(x, w, -127, 127, q));
        memcpy(b + 2, q, 32);
    }
}

void nb_ggml_encode_q4_0(const float *x, const float *w, size_t n, uint8_t *b)
{
    int8_t q[32];
    uint32_t h;
    for (; n > 0; n--, x += 32, w = w ? w + 32 : NULL, b += 18) {
        nb_le16_put(b, signed_block(x, w, -8, 7, q));
        put_codes(q, 8, b + 2, &h);
    }
}

void nb_ggml_encode_q5_0(const float *x, const float *w, size_t n, uint8_t *b)
{
    int8_t q[32];
    uint32_t h;
    for (; n > 0; n--, x += 32, w = w ? w + 32 : NULL, b += 22) {
        nb_le16_put(b, signed_block(x, w, -16, 15, q));
        put_codes(q, 16, b + 6, &h);
        nb_le32_put(b + 2, h);
    }
}

/* ---- y = d * q + m ---- */

/* Writes d and m as FP16. */
static void affine_block(const float *x, const float *w, int hi, int8_t q[32], uint8_t *dm)
{
    float d, m, least = INFINITY;
    nb_fit_affine(x, w, 32, hi, false, &d, &m);
    const uint16_t hd = nb_fp16_from_f32_sat(d), hm = nb_fp16_from_f32_sat(m);
    uint16_t bd = hd, bm = hm;
    for (int k = 0; k < 9; k++) {
        const uint16_t kd = (uint16_t)(hd + k / 3 - 1), km = (uint16_t)(hm + k % 3 - 1);
        if (!nb_fp16_is_finite(kd) || !nb_fp16_is_finite(km)) continue;
        const float e = nb_fit_codes(x, w, 32, nb_fp16_to_f32(kd), nb_fp16_to_f32(km), 0, hi, NULL);
        if (!(e < least)) continue;
        least = e;
        bd = kd;
        bm = km;
    }
    (void)nb_fit_codes(x, w, 32, nb_fp16_to_f32(bd), nb_fp16_to_f32(bm), 0, hi, q);
    nb_le16_put(dm, bd);
    nb_le16_put(dm + 2, bm);
}

void nb_ggml_encode_q4_1(const float *x, const float *w, size_t n, uint8_t *b)
{
    int8_t q[32];
    uint32_t h;
    for (; n > 0; n--, x += 32, w = w ? w + 32 : NULL, b += 20) {
        affine_block(x, w, 15, q, b);
        put_codes(q, 0, b + 4, &h);
    }
}

void nb_ggml_encode_q5_1(const float *x, const float *w, size_t n, uint8_t *b)
{
    int8_t q[32];
    uint32_t h;
    for (; n > 0; n--, x += 32, w = w ? w + 32 : NULL, b += 24) {
        affine_block(x, w, 31, q, b);
        put_codes(q, 0, b + 8, &h);
        nb_le32_put(b + 4, h);
    }
}
