/* cpu_streams.c - the residual on the CPU: one stream to which branches are added, or several that are mixed (mHC).
 *
 * With s streams X [s][hidden] of a token, a place with (fn, base, scale) gives
 *   u = X / sqrt(mean(X^2) + eps) over all of X, m = fn u
 *   pre_i = sigmoid(m_i scale_0 + base_i) + e,  post_i = 2 sigmoid(m_{s+i} scale_1 + base_{s+i})
 *   C = softmax over rows of m_{2s..} scale_2 + base, + e; then columns and rows divided in turn by their sums + e,
 *       n_sinkhorn times the columns, once less the rows: nearly doubly stochastic
 *   the sublayer reads norm(sum_i pre_i X_i), and X_j becomes post_j y + sum_i C[i][j] X_i
 * All streams begin as the embedding; before the head pre alone makes one of them.
 * Source: DeepSeek-V4's inference code (hc_pre, hc_split_sinkhorn, hc_post, hc_head). */
#include <math.h>
#include <string.h>

#include "model/cpu/cpu.h"

enum { MAX_STREAM = 16 };

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* ---- one stream ---- */

typedef struct residual_ctx {
    nb_cpu *f;
    const float *w;    /* of the norm; NULL: none */
    const nb_mix *mix; /* of the place that follows; NULL: none */
    bool first, add;
} residual_ctx;

static void plain_tokens(void *ctx, size_t t0, size_t t1)
{
    const residual_ctx *x = ctx;
    nb_cpu *f = x->f;
    const nb_model_config *c = f->r.whole;
    const float s = c->branch_factor;
    const size_t n = c->hidden;
    float *h = f->h + t0 * n;
    const float *branch = f->branch + t0 * n;
    for (size_t i = 0; x->add && i < (t1 - t0) * n; i++) h[i] += s * branch[i];
    if (x->w) nb_cpu_norm(f, x->w, c->eps, h, n, f->xn + t0 * n, n, t1 - t0, n);
}

static void plain_add_norm(nb_rank *r, nb_pass *p, size_t layer, nb_norm_at at)
{
    residual_ctx x = { .f = nb_cpu_of(r),
                       .w = nb_rank_norm(r, layer, at),
                       .add = at != NB_NORM_AT_BEGIN };
    nb_cpu_tokens(x.f, plain_tokens, &x, p->n_row);
}

static void plain_last(nb_cpu *f, size_t tok, float *y)
{
    const nb_model_config *c = f->r.whole;
    nb_cpu_norm(f, f->r.o.model->final_norm, c->eps, f->h + tok * c->hidden, c->hidden, y,
                c->hidden, 1, c->hidden);
}

/* ---- several ---- */

/* 1 / sqrt(mean(x^2) + eps). */
static double inverse_rms(const float *x, size_t n, float eps)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return 1 / sqrt(sum / (double)n + (double)eps);
}

static void divide_columns(double *c, size_t s, double e)
{
    for (size_t j = 0; j < s; j++) {
        double sum = e;
        for (size_t i = 0; i < s; i++) sum += c[i * s + j];
        for (size_t i = 0; i < s; i++) c[i * s + j] /= sum;
    }
}

static void divide_rows(double *c, size_t s, double e)
{
    for (size_t i = 0; i < s; i++) {
        double sum = e;
        for (size_t j = 0; j < s; j++) sum += c[i * s + j];
        for (size_t j = 0; j < s; j++) c[i * s + j] /= sum;
    }
}

/* C from m [s][s], which has the scale and the base. */
static void sinkhorn(const nb_model_config *c, double *m)
{
    const size_t s = c->n_stream;
    const double e = (double)c->stream_eps;
    for (size_t i = 0; i < s; i++) {
        double top = -INFINITY, sum = 0, *row = m + i * s;
        for (size_t j = 0; j < s; j++) top = fmax(top, row[j]);
        for (size_t j = 0; j < s; j++) sum += row[j] = exp(row[j] - top);
        for (size_t j = 0; j < s; j++) row[j] = row[j] / sum + e;
    }
    divide_columns(m, s, e);
    for (size_t k = 1; k < c->n_sinkhorn; k++) {
        divide_rows(m, s, e);
        divide_columns(m, s, e);
    }
}

/* y = sum_i pre_i X_i, from the products m of the streams with fn. */
static void collapse(const nb_model_config *c, const nb_mix *mix, const float *m, double inv,
                     const float *x, float *y)
{
    const size_t s = c->n_stream, h = c->hidden;
    for (size_t i = 0; i < s; i++) {
        const double v = (double)m[i] * inv * (double)mix->scale[0] + (double)mix->base[i];
        const float pre = (float)(sigmoid(v) + (double)c->stream_eps);
        for (size_t k = 0; k < h; k++) y[k] = i ? y[k] + pre * x[i * h + k] : pre * x[k];
    }
}

/* X_j = post_j y + sum_i C[i][j] X_i of one token, with the weights that are in w. */
static void expand(const nb_model_config *c, const float *w, const float *y, float *x)
{
    enum { PART = 64 };
    const size_t s = c->n_stream, h = c->hidden;
    const float *post = w, *mix = w + s;
    for (size_t k0 = 0; k0 < h; k0 += PART) {
        const size_t n = h - k0 < PART ? h - k0 : PART;
        float new[MAX_STREAM][PART];
        for (size_t j = 0; j < s; j++) {
            for (size_t k = 0; k < n; k++) new[j][k] = post[j] * y[k0 + k];
            for (size_t i = 0; i < s; i++)
                for (size_t k = 0; k < n; k++) new[j][k] += mix[i * s + j] * x[i * h + k0 + k];
        }
        for (size_t j = 0; j < s; j++) memcpy(x + j * h + k0, new[j], n * sizeof **new);
    }
}

/* Before the products with fn: the branch goes to the streams. */
static void expand_tokens(void *ctx, size_t t0, size_t t1)
{
    const residual_ctx *x = ctx;
    nb_cpu *f = x->f;
    const nb_model_config *c = f->r.whole;
    const size_t s = c->n_stream, h = c->hidden, w = s + s * s;
    for (size_t t = t0; t < t1; t++) {
        float *at = f->h + t * s * h;
        for (size_t j = 1; x->first && j < s; j++) memcpy(at + j * h, at, h * sizeof *at);
        if (x->add) expand(c, f->stream_w + t * w, f->branch + t * h, at);
    }
}

/* After them: the weights of the place, and what its sublayer reads. */
static void collapse_tokens(void *ctx, size_t t0, size_t t1)
{
    const residual_ctx *x = ctx;
    nb_cpu *f = x->f;
    const nb_model_config *c = f->r.whole;
    const nb_mix *mix = x->mix;
    const size_t s = c->n_stream, h = c->hidden, n = (2 + s) * s;
    for (size_t t = t0; t < t1; t++) {
        const float *m = f->stream_m + t * n, *at = f->h + t * s * h;
        float *w = f->stream_w + t * (s + s * s), *y = f->xn + t * h;
        const double inv = inverse_rms(at, s * h, c->eps);
        double mixed[MAX_STREAM * MAX_STREAM];
        for (size_t i = 0; i < s * s; i++)
            mixed[i] =
                (double)m[2 * s + i] * inv * (double)mix->scale[2] + (double)mix->base[2 * s + i];
        sinkhorn(c, mixed);
        for (size_t i = 0; i < s; i++)
            w[i] = (float)(2 * sigmoid((double)m[s + i] * inv * (double)mix->scale[1] +
                                       (double)mix->base[s + i]));
        for (size_t i = 0; i < s * s; i++) w[s + i] = (float)mixed[i];
        collapse(c, mix, m, inv, at, y);
        nb_cpu_norm(f, x->w, c->eps, y, h, y, h, 1, h);
    }
}

/* The place whose norm this is. */
static const nb_mix *place_of(const nb_rank *r, size_t layer, nb_norm_at at)
{
    const nb_layer *l = &r->o.model->layer[layer];
    if (at == NB_NORM_AT_BEGIN) return &l->mix[0];
    if (at == NB_NORM_AT_ATTENTION) return &l->mix[1];
    return layer + 1 == r->whole->n_layer ? NULL : &l[1].mix[0];
}

static void streams_add_norm(nb_rank *r, nb_pass *p, size_t layer, nb_norm_at at)
{
    nb_cpu *f = nb_cpu_of(r);
    const nb_model_config *c = r->whole;
    const size_t s = c->n_stream, w = s * c->hidden;
    residual_ctx x = { .f = f,
                       .w = nb_rank_norm(r, layer, at),
                       .mix = place_of(r, layer, at),
                       .first = at == NB_NORM_AT_BEGIN,
                       .add = at != NB_NORM_AT_BEGIN };
    nb_cpu_tokens(f, expand_tokens, &x, p->n_row);
    if (!x.mix) return;
    nb_job j = nb_cpu_job(f, &x.mix->fn, NULL, f->h, w, f->stream_m, (2 + s) * s, p->n_row);
    j.v = f->r.plan.linear_float[x.mix->fn.type];
    nb_cpu_run_jobs(f, &j, 1);
    nb_cpu_tokens(f, collapse_tokens, &x, p->n_row);
}

/* A few rows of logits: the products with fn are made here, in double. */
static void streams_last(nb_cpu *f, size_t tok, float *y)
{
    const nb_model_config *c = f->r.whole;
    const nb_model *m = f->r.o.model;
    const size_t s = c->n_stream, h = c->hidden;
    const float *x = f->h + tok * s * h;
    const float *fn = m->mix.fn.data;
    float product[MAX_STREAM];
    for (size_t i = 0; i < s; i++) {
        double sum = 0;
        for (size_t k = 0; k < s * h; k++) sum += (double)fn[i * s * h + k] * (double)x[k];
        product[i] = (float)sum;
    }
    collapse(c, &m->mix, product, inverse_rms(x, s * h, c->eps), x, y);
    nb_cpu_norm(f, m->final_norm, c->eps, y, h, y, h, 1, h);
}

const nb_cpu_residual *nb_cpu_residual_of(const nb_model_config *c)
{
    static const nb_cpu_residual plain = { plain_add_norm, plain_last },
                                 streams = { streams_add_norm, streams_last };
    return c->n_stream ? &streams : &plain;
}
