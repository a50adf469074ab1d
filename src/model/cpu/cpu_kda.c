/* cpu_kda.c - Kimi Delta Attention on the CPU (attn_kda.c has the formulas).
 *
 * A task is one head of one chunk: its tokens one after the other, in tiles that stay in the cache.  Nothing depends on
 * where tiles or chunks begin: what is done to a token reads its own row, the conv - 1 rows before it and the state.
 * A row of f->q is [q | k | v | decay | gate] of all heads, then beta of each. */
#include <math.h>
#include <string.h>

#include "model/cpu/cpu_state.h"

enum { TILE = 32, PARTS = 5 };
#define L2_EPS 1e-6f /* as in the reference's kernels */

static size_t width(const nb_attn_config *a)
{
    return a->n_head * (PARTS * a->head_dim + 1);
}

size_t nb_cpu_kda_scratch(const nb_attn_config *a)
{
    return (5 * TILE * a->head_dim + TILE) * sizeof(float);
}

static void project(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    const nb_layer *l = &r->o.model->layer[layer];
    const nb_attn_config *a = nb_rank_attn(r, layer);
    const size_t h = r->whole->hidden, d = a->head_dim, n = a->n_head * d, w = width(a);
    nb_job job[6] = {
        nb_cpu_job(f, &l->q, NULL, f->xn, h, f->q, w, p->n_row),
        nb_cpu_job(f, &l->k, NULL, f->xn, h, f->q + n, w, p->n_row),
        nb_cpu_job(f, &l->v, NULL, f->xn, h, f->q + 2 * n, w, p->n_row),
        nb_cpu_job(f, &l->beta, NULL, f->xn, h, f->q + PARTS * n, w, p->n_row),
        nb_cpu_job(f, &l->f_a, NULL, f->xn, h, f->qa, 2 * d, p->n_row),
        nb_cpu_job(f, &l->g_a, NULL, f->xn, h, f->qa + d, 2 * d, p->n_row),
    };
    nb_cpu_run_jobs(f, job, 6);
    job[0] = nb_cpu_job(f, &l->f_b, NULL, f->qa, 2 * d, f->q + 3 * n, w, p->n_row);
    job[1] = nb_cpu_job(f, &l->g_b, NULL, f->qa + d, 2 * d, f->q + 4 * n, w, p->n_row);
    nb_cpu_run_jobs(f, job, 2);
}

static void append(nb_rank *r, nb_pass *p, size_t layer)
{
    (void)r; /* nothing of a token is kept: attend changes the state */
    (void)p;
    (void)layer;
}

/* ---- one head ---- */

typedef struct head {
    nb_cpu *f;
    const nb_layer *l;
    const nb_attn_config *a;
    const nb_chunk *c;
    size_t h, n;      /* the head; channels of all heads */
    const float *row; /* of the chunk's first token in f->q, stride w */
    size_t w;
    float *s, *conv; /* its state; the rows before the chunk [3][conv - 1][n], all heads */
    float *q, *k, *v, *decay, *ones; /* of a tile: [TILE][head_dim] */
    float *beta;                     /* [TILE] */
    float *y;                        /* of the chunk's first token, stride n */
} head;

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Rows y[n][head_dim] = silu(conv) of part j (q, k, v) of tokens [t0, t0 + n); false: one is not finite. */
static bool convolve(const head *x, unsigned j, size_t t0, size_t n, const float *taps, float *y)
{
    const size_t d = x->a->head_dim, w = x->a->conv, at = x->h * d;
    bool finite = true;
    for (size_t t = 0; t < n; t++) {
        float *row = y + t * d;
        for (size_t i = 0; i < d; i++) row[i] = 0;
        for (size_t b = 0; b < w; b++) { /* from the oldest on */
            const bool before = t0 + t + b < w - 1;
            const float *in = before ? x->conv + (j * (w - 1) + t0 + t + b) * x->n + at
                                     : x->row + (t0 + t + b - (w - 1)) * x->w + j * x->n + at;
            const float *tap = taps + b * x->n + at;
            for (size_t i = 0; i < d; i++) row[i] += tap[i] * in[i];
        }
    }
    x->f->r.plan.swiglu->fn(&(nb_swiglu_args){
        .y = y, .gate = y, .up = x->ones, .n_tok = n, .dim = d, .in_stride = d, .y_stride = d });
    for (size_t i = 0; i < n * d; i++) finite &= isfinite(y[i]) != 0;
    return finite;
}

/* Length 1, times factor. */
static void normalise(float *x, size_t n, float factor)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    const float f = factor / sqrtf(sum + L2_EPS);
    for (size_t i = 0; i < n; i++) x[i] *= f;
}

/* Everything that the recurrence reads of tokens [t0, t0 + n). */
static bool prepare(const head *x, size_t t0, size_t n)
{
    const size_t d = x->a->head_dim, at = x->h * d;
    const float rate = expf(x->l->a_log[x->h]);
    bool finite = convolve(x, 0, t0, n, x->l->q_conv, x->q);
    finite &= convolve(x, 1, t0, n, x->l->k_conv, x->k);
    finite &= convolve(x, 2, t0, n, x->l->v_conv, x->v);
    for (size_t t = 0; t < n; t++) {
        const float *row = x->row + (t0 + t) * x->w;
        normalise(x->q + t * d, d, x->a->softmax_scale);
        normalise(x->k + t * d, d, 1);
        for (size_t i = 0; i < d; i++) {
            const float u = row[3 * x->n + at + i] + x->l->dt_bias[at + i];
            const float softplus = u > 20 ? u : log1pf(expf(u));
            x->decay[t * d + i] = expf(-rate * softplus);
        }
        x->beta[t] = sigmoid(row[PARTS * x->n + x->h]);
    }
    return finite;
}

/* The norm of the outputs, and their gate. */
static bool finish(const head *x, size_t t0, size_t n)
{
    const size_t d = x->a->head_dim;
    float *y = x->y + t0 * x->n;
    bool finite = true;
    nb_cpu_norm(x->f, x->l->o_norm, x->f->r.whole->eps, y, x->n, y, x->n, n, d);
    for (size_t t = 0; t < n; t++) {
        const float *gate = x->row + (t0 + t) * x->w + 4 * x->n + x->h * d;
        for (size_t i = 0; i < d; i++) {
            y[t * x->n + i] *= sigmoid(gate[i]);
            finite &= isfinite(y[t * x->n + i]) != 0;
        }
    }
    return finite;
}

/* The conv - 1 rows before the next chunk. */
static void keep_rows(const head *x)
{
    const size_t d = x->a->head_dim, w = x->a->conv - 1, at = x->h * d, n_tok = x->c->n_tok;
    for (unsigned j = 0; j < 3; j++)
        for (size_t b = 0; b < w; b++) { /* upwards: rows move down */
            float *to = x->conv + (j * w + b) * x->n + at;
            const float *from =
                n_tok + b < w ? to + n_tok * x->n : x->row + (n_tok + b - w) * x->w + j * x->n + at;
            memmove(to, from, d * sizeof *to);
        }
}

static bool run_head(const head *x)
{
    const size_t d = x->a->head_dim;
    bool finite = true;
    for (size_t t = 0, n; t < x->c->n_tok; t += n) {
        n = x->c->n_tok - t < TILE ? x->c->n_tok - t : TILE;
        finite &= prepare(x, t, n);
        x->f->r.plan.kda->fn(&(nb_kda_args){ .y = x->y + t * x->n,
                                             .s = x->s,
                                             .q = x->q,
                                             .k = x->k,
                                             .v = x->v,
                                             .a = x->decay,
                                             .beta = x->beta,
                                             .n_tok = n,
                                             .d_k = d,
                                             .d_v = d,
                                             .y_stride = x->n,
                                             .s_stride = d,
                                             .qk_stride = d,
                                             .v_stride = d,
                                             .a_stride = d,
                                             .beta_stride = 1 });
        finite &= finish(x, t, n);
    }
    keep_rows(x);
    return finite;
}

/* ---- a layer ---- */

typedef struct attend_ctx {
    nb_cpu *f;
    const nb_pass *p;
    size_t layer;
} attend_ctx;

static void head_task(void *ctx, size_t task, size_t worker)
{
    const attend_ctx *c = ctx;
    nb_cpu *f = c->f;
    const nb_attn_config *a = nb_rank_attn(&f->r, c->layer);
    const size_t i = task / a->n_head, d = a->head_dim, n = a->n_head * d, t0 = f->place[i].tok0;
    float *state = nb_cpu_state(f, &c->p->chunk[i], c->layer);
    float *scratch = f->w_scratch + worker * (f->w_scratch_bytes / sizeof *f->w_scratch);
    head x = { .f = f, .l = &f->r.o.model->layer[c->layer], .a = a, .c = &c->p->chunk[i] };
    x.h = task % a->n_head;
    x.n = n;
    x.w = width(a);
    x.row = f->q + t0 * x.w;
    x.s = state + x.h * d * d;
    x.conv = state + a->n_head * d * d;
    x.q = scratch;
    x.k = x.q + TILE * d;
    x.v = x.k + TILE * d;
    x.decay = x.v + TILE * d;
    x.ones = x.decay + TILE * d;
    x.beta = x.ones + TILE * d;
    for (size_t k = 0; k < (x.c->n_tok < TILE ? x.c->n_tok : TILE) * d; k++) x.ones[k] = 1;
    x.y = f->attn + t0 * n + x.h * d;
    f->head_bad[task] = !f->chunk_bad[i] && !run_head(&x);
}

static void attend(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    const size_t n_head = nb_rank_attn(r, layer)->n_head;
    attend_ctx x = { f, p, layer };
    nb_dev_run(r->o.dev, head_task, &x, p->n_chunk * n_head);
    for (size_t i = 0; i < p->n_chunk; i++) {
        bool bad = false;
        for (size_t h = 0; h < n_head; h++) bad |= f->head_bad[i * n_head + h];
        if (bad && f->n_bad++ == 0)
            (void)nb_fail(f->err, NB_ERR_NONFINITE,
                          "layer %zu: a value of the state (positions %zu to %zu) is not finite",
                          layer, p->chunk[i].pos0, p->chunk[i].pos0 + p->chunk[i].n_tok - 1);
        if (bad) f->chunk_bad[i] = 1;
        if (f->chunk_bad[i]) nb_cpu_blank_chunk(f, p, i, layer);
    }
}

const nb_cpu_kind nb_cpu_kind_kda = { { project, append, attend }, NULL, NULL, NULL };
