/* row.c - passes over a row of logits; see row.h.
 *
 * Tiling: blocks of 64 floats and loops of a constant count, which compilers turn into vectors of
 * whatever the target has (four floats with SSE2), without intrinsics and with one result for
 * all.  What is left of a block is halved until one is left; accumulators in an array of 8 lanes
 * were not vectorised by gcc 12.  The last block is filled up, so that there is one loop body.
 *
 * Speed is bound by arithmetic: about 33 instructions for 4 weights, 5 for 4 comparisons.
 * exp: with n = round(d / ln 2), exp(d) = 2^n * exp(r), |r| <= ln(2) / 2; ln 2 in two pieces, the
 * first with so few bits that n times it is exact; exp(r) by its series up to r^7 / 7! (the rest
 * is below 6e-9); 2^n is added to the exponent.  libm's exp in double is 10 times as slow, for
 * digits that hardly a draw sees. */
#include "sample/row.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = NB_ROW_BLOCK };
_Static_assert(BLOCK == 64, "the halvings below");

/* v, or a copy of its n entries in buf, filled up. */
static const float *whole_block(const float *v, size_t n, float *buf, float filler)
{
    if (n >= BLOCK) return v;
    for (size_t k = 0; k < BLOCK; k++) buf[k] = k < n ? v[k] : filler;
    return buf;
}

/* The largest of v[BLOCK], where NaN counts as nothing or as itself. */
static inline float max_of_block(const float *v)
{
    float m[BLOCK / 2];
    for (size_t k = 0; k < BLOCK / 2; k++) m[k] = v[k] > v[k + 32] ? v[k] : v[k + 32];
    for (size_t k = 0; k < 16; k++) m[k] = m[k] > m[k + 16] ? m[k] : m[k + 16];
    for (size_t k = 0; k < 8; k++) m[k] = m[k] > m[k + 8] ? m[k] : m[k + 8];
    for (size_t k = 0; k < 4; k++) m[k] = m[k] > m[k + 4] ? m[k] : m[k + 4];
    const float a = m[0] > m[1] ? m[0] : m[1], b = m[2] > m[3] ? m[2] : m[3];
    return a > b ? a : b;
}

/* How many of v[BLOCK] are NaN or +inf. */
static inline uint32_t bad_of_block(const float *v)
{
    uint32_t n_good = 0;
    for (size_t k = 0; k < BLOCK; k++) n_good += v[k] <= FLT_MAX;
    return BLOCK - n_good;
}

float nb_row_block_max(const float *x, size_t n)
{
    float buf[BLOCK];
    return max_of_block(whole_block(x, n, buf, -INFINITY));
}

bool nb_row_max(const float *x, size_t n, float *block_max, size_t *best)
{
    float buf[BLOCK], m = -INFINITY;
    size_t block = 0;
    uint32_t bad = 0;
    for (size_t b = 0; b < nb_row_n_blocks(n); b++) {
        const size_t i = b * BLOCK;
        const float *v = whole_block(x + i, n - i, buf, -INFINITY);
        const float bm = max_of_block(v);
        bad |= bad_of_block(v);
        if (block_max) block_max[b] = bm;
        if (bm > m) {
            m = bm;
            block = b;
        }
    }
    if (bad || !(m >= -FLT_MAX)) return false;
    size_t at = block * BLOCK;
    while (x[at] < m) at++;
    *best = at;
    return true;
}

static inline float weight_of(float x, float top, float inv_t, float least)
{
    const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    const float d = (x - top) * inv_t;
    const float t = d * 1.44269504f + shifter;
    const float n = t - shifter;
    const float r = (d - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r + 1;
    uint32_t tb, pb;
    memcpy(&tb, &t, sizeof tb);
    memcpy(&pb, &p, sizeof pb);
    pb += tb << 23;                    /* the low bits of t are n */
    pb &= 0u - (uint32_t)(x >= least); /* as a choice of floats it is a branch */
    memcpy(&p, &pb, sizeof p);
    return p;
}

static inline double sum_of_block(const float *w)
{
    double s[BLOCK / 2];
    for (size_t k = 0; k < BLOCK / 2; k++) s[k] = (double)w[k] + (double)w[k + 32];
    for (size_t k = 0; k < 16; k++) s[k] += s[k + 16];
    for (size_t k = 0; k < 8; k++) s[k] += s[k + 8];
    for (size_t k = 0; k < 4; k++) s[k] += s[k + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

double nb_row_weigh(const float *x, size_t n, const nb_row_scale *scale, const float *block_max,
                    float *w, double *block_sum)
{
    const float top = scale->top, inv_t = scale->inv_t, least = scale->least;
    float buf[BLOCK], y[BLOCK];
    double sum = 0;
    for (size_t b = 0; b < nb_row_n_blocks(n); b++) {
        const size_t i = b * BLOCK;
        double s = 0;
        if (!block_max || block_max[b] >= least) {
            const float *v = whole_block(x + i, n - i, buf, -INFINITY);
            for (size_t k = 0; k < BLOCK; k++) y[k] = weight_of(v[k], top, inv_t, least);
            s = sum_of_block(y);
            if (w) memcpy(w + i, y, (n - i < BLOCK ? n - i : BLOCK) * sizeof *w);
        }
        if (block_sum) block_sum[b] = s;
        sum += s;
    }
    return sum;
}

double nb_row_sum(const float *w, size_t n, double *block_sum)
{
    float buf[BLOCK];
    double sum = 0;
    for (size_t b = 0; b < nb_row_n_blocks(n); b++) {
        const size_t i = b * BLOCK;
        block_sum[b] = sum_of_block(whole_block(w + i, n - i, buf, 0));
        sum += block_sum[b];
    }
    return sum;
}

size_t nb_row_find(const float *w, size_t n, const double *block_sum, double target)
{
    size_t block = 0;
    double before = 0, sum = 0;
    for (size_t b = 0; b < nb_row_n_blocks(n); b++) {
        if (!(block_sum[b] > 0)) continue;
        block = b;
        before = sum;
        sum += block_sum[b];
        if (sum > target) break;
    }
    const size_t i0 = block * BLOCK, i1 = n - i0 < BLOCK ? n : i0 + BLOCK;
    size_t last = i0;
    for (size_t i = i0; i < i1; i++) {
        if (!(w[i] > 0)) continue;
        last = i;
        before += (double)w[i];
        if (before > target) break;
    }
    return last;
}
