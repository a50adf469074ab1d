/* attn_paper.c - see attn_paper.h. */
#include "quality/attn_paper.h"

#include <math.h>
#include <string.h>

#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/fp16.h"
#include "quality/attn_thrift.h"

enum { GROUP = 16, BLOCK = 64 };

const char *const nb_paper_name[NB_PAPER_MODES] = { "storage", "qv", "decode", "prefill",
                                                    "prefill-max" };

void nb_paper_group(const float *x, size_t n, size_t stride, float *out)
{
    float amax = 0;
    for (size_t i = 0; i < n; i++) amax = fmaxf(amax, fabsf(x[i * stride]));
    const float s = nb_e4m3_to_f32(nb_e4m3_from_f32(amax / 6));
    const float inv = s > 0 ? 1 / s : 0;
    for (size_t i = 0; i < n; i++)
        out[i * stride] = nb_e2m1_to_f32(nb_e2m1_from_f32(x[i * stride] * inv)) * s;
}

float nb_paper_static_p(float p)
{
    return nb_e2m1_to_f32(nb_e2m1_from_f32(6 * p)) / 6; /* the scale 448 and 1 / 2688 are exact */
}

void nb_paper_two_level_p(const float *p, size_t n, float *out)
{
    float amax = 0;
    for (size_t i = 0; i < n; i++) amax = fmaxf(amax, 2688 * p[i]);
    const float sf = amax / 6, s = nb_e4m3_to_f32(nb_e4m3_from_f32(sf));
    const float inv = sf > 0 ? 1 / sf : 0;
    for (size_t i = 0; i < n; i++)
        out[i] = nb_e2m1_to_f32(nb_e2m1_from_f32(2688 * p[i] * inv)) * s / 2688;
}

static void to_fp16(const float *x, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = nb_fp16_to_f32(nb_fp16_from_f32_sat(x[i]));
}

static void along_width(const float *x, size_t n, size_t d, float *out)
{
    for (size_t t = 0; t < n; t++)
        for (size_t c = 0; c < d; c += GROUP)
            nb_paper_group(x + t * d + c, c + GROUP < d ? GROUP : d - c, 1, out + t * d + c);
}

nb_status nb_paper_head_make(const float *k, const float *v, size_t n, size_t d_k, size_t d_v,
                             float scale, nb_arena *arena, nb_paper_head *out, nb_error *err)
{
    nb_paper_head h = { .n = n, .d_k = d_k, .d_v = d_v, .scale = scale, .k = k, .v = v };
    h.k4 = nb_arena_array(arena, n * d_k, sizeof *h.k4);
    h.k16 = nb_arena_array(arena, n * d_k, sizeof *h.k16);
    h.v4_width = nb_arena_array(arena, n * d_v, sizeof *h.v4_width);
    h.v4_tok = nb_arena_array(arena, n * d_v, sizeof *h.v4_tok);
    h.v16 = nb_arena_array(arena, n * d_v, sizeof *h.v16);
    if (!h.k4 || !h.k16 || !h.v4_width || !h.v4_tok || !h.v16)
        return nb_fail(err, NB_ERR_NOMEM, "paper's arithmetic: out of memory");
    along_width(k, n, d_k, h.k4);
    along_width(v, n, d_v, h.v4_width);
    for (size_t t = 0; t < n; t += GROUP)
        for (size_t c = 0; c < d_v; c++)
            nb_paper_group(v + t * d_v + c, t + GROUP < n ? GROUP : n - t, d_v,
                           h.v4_tok + t * d_v + c);
    to_fp16(k, n * d_k, h.k16);
    to_fp16(v, n * d_v, h.v16);
    *out = h;
    return NB_OK;
}

static double dot(const float *a, const float *b, size_t n)
{
    double acc[8] = { 0 }, sum = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++) acc[j] += (double)a[i + j] * b[i + j];
    for (; i < n; i++) sum += (double)a[i] * b[i];
    for (size_t j = 0; j < 8; j++) sum += acc[j];
    return sum;
}

static void softmax(const double *s, size_t n, double *p)
{
    double top = -INFINITY, sum = 0;
    for (size_t t = 0; t < n; t++) top = fmax(top, s[t]);
    for (size_t t = 0; t < n; t++) sum += exp(s[t] - top);
    for (size_t t = 0; t < n; t++) p[t] = exp(s[t] - top) / sum;
}

/* Softmax state of one row, as a kernel keeps it between tiles. */
typedef struct state {
    double max, sum, *o;
    size_t d;
} state;

static void rescale(state *a, double max)
{
    if (!(max > a->max)) return;
    const double f = a->max > -INFINITY ? exp(a->max - max) : 0;
    a->sum *= f;
    for (size_t c = 0; c < a->d; c++) a->o[c] *= f;
    a->max = max;
}

/* One tile: scores s[n], values v; P as the mode has it. */
static void tile(state *a, const double *s, size_t n, const float *v, nb_paper_mode mode)
{
    float p[BLOCK], p4[BLOCK];
    double top = -INFINITY;
    NB_ASSERT(n <= BLOCK);
    for (size_t t = 0; t < n; t++) top = fmax(top, s[t]);
    rescale(a, top);
    for (size_t t = 0; t < n; t++) {
        const double e = exp(s[t] - a->max);
        p[t] = (float)e;
        a->sum += e;
    }
    for (size_t t = 0; t < n; t += GROUP) {
        const size_t m = t + GROUP < n ? GROUP : n - t;
        for (size_t i = t; i < t + m; i++)
            p4[i] = mode == NB_PAPER_PREFILL ? nb_paper_static_p(p[i]) : p[i];
        if (mode == NB_PAPER_DECODE) nb_paper_two_level_p(p + t, m, p4 + t);
    }
    for (size_t t = 0; t < n; t++)
        for (size_t c = 0; p4[t] > 0 && c < a->d; c++) a->o[c] += (double)p4[t] * v[t * a->d + c];
}

void nb_paper_exact(const nb_paper_head *h, const float *q, double *scratch, double *o, double *p)
{
    state a = { -INFINITY, 0, o, h->d_v };
    memset(o, 0, h->d_v * sizeof *o);
    for (size_t t = 0; t < h->n; t++) scratch[t] = h->scale * dot(q, h->k + t * h->d_k, h->d_k);
    double top = -INFINITY;
    for (size_t t = 0; t < h->n; t++) top = fmax(top, scratch[t]);
    for (size_t t = 0; t < h->n; t++) {
        const double e = exp(scratch[t] - top);
        a.sum += e;
        for (size_t c = 0; c < h->d_v; c++) o[c] += e * h->v[t * h->d_v + c];
    }
    for (size_t c = 0; c < h->d_v; c++) o[c] /= a.sum;
    if (p) softmax(scratch, h->n, p);
}

/* Tiles of blocks that are (not) refined. */
static void tiles(const nb_paper_head *h, const uint8_t *refined, bool which, const double *s,
                  const float *v, nb_paper_mode mode, state *a)
{
    for (size_t b = 0; b * BLOCK < h->n; b++) {
        const size_t t = b * BLOCK, n = t + BLOCK < h->n ? BLOCK : h->n - t;
        if ((refined && refined[b]) == which) tile(a, s + t, n, v + t * h->d_v, mode);
    }
}

void nb_paper_attend(const nb_paper_head *h, const float *q, nb_paper_mode mode,
                     const uint8_t *refined, double *scratch, double *o, double *p)
{
    double *s = scratch;
    float *q4 = (float *)(void *)(scratch + h->n), *q16 = q4 + h->d_k;
    memcpy(q4, q, h->d_k * sizeof *q4);
    if (mode != NB_PAPER_STORAGE) along_width(q, 1, h->d_k, q4);
    to_fp16(q, h->d_k, q16);
    for (size_t t = 0; t < h->n; t++)
        s[t] = h->scale * (refined && refined[t / BLOCK] ? dot(q16, h->k16 + t * h->d_k, h->d_k)
                                                         : dot(q4, h->k4 + t * h->d_k, h->d_k));
    memset(o, 0, h->d_v * sizeof *o);
    state a = { -INFINITY, 0, o, h->d_v };
    for (size_t t = 0; mode == NB_PAPER_PREFILL_MAX && t < h->n; t++) a.max = fmax(a.max, s[t]);
    if (mode == NB_PAPER_PREFILL_MAX) mode = NB_PAPER_PREFILL;
    tiles(h, refined, false, s, mode == NB_PAPER_STORAGE ? h->v4_width : h->v4_tok, mode, &a);
    if (mode == NB_PAPER_PREFILL && refined && a.sum > 0)
        for (size_t c = 0; c < h->d_v; c++)
            o[c] = (double)nb_fp16_to_f32(nb_fp16_from_f32_sat((float)(o[c] / a.sum))) * a.sum;
    if (refined) tiles(h, refined, true, s, h->v16, NB_PAPER_STORAGE, &a);
    for (size_t c = 0; c < h->d_v; c++) o[c] /= a.sum;
    if (p) softmax(s, h->n, p);
}

nb_status nb_paper_select(const nb_paper_head *h, const float *q, size_t n_q, double fraction,
                          bool causal, nb_arena *arena, uint8_t *refined, size_t *n_refined)
{
    const size_t n_block = h->n / BLOCK, k = nb_thrift_top_k(n_block, fraction, causal);
    double *score = nb_arena_array(arena, n_block + 1, sizeof *score);
    float *mean = nb_arena_array(arena, h->d_k, sizeof *mean);
    if (!score || !mean) return NB_ERR_NOMEM;
    memset(refined, 0, (h->n + BLOCK - 1) / BLOCK);
    for (size_t b = 0; b < n_block; b++) {
        for (size_t c = 0; c < h->d_k; c++) {
            float sum = 0;
            for (size_t t = b * BLOCK; t < (b + 1) * BLOCK; t++) sum += h->k16[t * h->d_k + c];
            mean[c] = nb_fp16_to_f32(nb_fp16_from_f32_sat(sum / BLOCK));
        }
        score[b] = -INFINITY;
        for (size_t i = 0; i < n_q; i++)
            score[b] = fmax(score[b], dot(q + i * h->d_k, mean, h->d_k));
    }
    for (size_t i = 0; i < k; i++) {
        size_t best = n_block;
        for (size_t b = 0; b < n_block; b++)
            if (!refined[b] && (best == n_block || score[b] > score[best])) best = b;
        refined[best] = 1;
    }
    *n_refined = k;
    return NB_OK;
}
