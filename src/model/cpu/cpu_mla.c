/* cpu_mla.c - latent attention on the CPU: projections, and W_kv_b absorbed into queries and outputs. */
#include <string.h>

#include "model/cpu/cpu.h"
#include "model/fold.h"

typedef struct mla_ctx {
    nb_cpu *f;
    const nb_layer *l;
    const nb_attn_config *attn;
    size_t layer, n_values;
} mla_ctx;

/* Scales pairs of the rope key to one size (rope_balance.c): powers of two, so that nothing is rounded. */
static void balance_rope(const mla_ctx *x, size_t t0, size_t t1)
{
    const nb_layer *l = x->l;
    const nb_attn_config *attn = x->attn;
    const size_t d_qk = attn->d_nope + attn->d_rope;
    if (!l->rope_k) return;
    for (size_t t = t0; t < t1; t++) {
        float *k = x->f->kv + t * x->n_values + attn->kv_lora;
        float *q = x->f->q + t * attn->n_head * d_qk + attn->d_nope;
        for (size_t i = 0; i < attn->d_rope; i++) k[i] *= l->rope_k[i];
        for (size_t h = 0; h < attn->n_head; h++, q += d_qk)
            for (size_t i = 0; i < attn->d_rope; i++) q[i] *= l->rope_q[i];
    }
}

/* Queries of late positions are longer, in models that were trained so. */
static void scale_queries(const mla_ctx *x, size_t t0, size_t t1)
{
    const size_t n = x->attn->n_head * (x->attn->d_nope + x->attn->d_rope);
    if (x->attn->q_beta == 0) return;
    const float *scale = x->f->q_scale[x->f->r.whole->attn_of[x->layer]];
    for (size_t t = t0; t < t1; t++)
        for (size_t i = 0; i < n; i++) x->f->q[t * n + i] *= scale[t];
}

static void norm_qa(void *ctx, size_t t0, size_t t1)
{
    const mla_ctx *x = ctx;
    const size_t n = x->attn->q_lora;
    float *qa = x->f->qa + t0 * n;
    nb_cpu_norm(x->f, x->l->q_a_norm, x->attn->eps_lora, qa, n, qa, n, t1 - t0, n);
}

static void finish(void *ctx, size_t t0, size_t t1)
{
    const mla_ctx *x = ctx;
    nb_cpu *f = x->f;
    const nb_attn_config *attn = x->attn;
    const size_t d_qk = attn->d_nope + attn->d_rope, n = x->n_values;
    float *kv = f->kv + t0 * n;
    nb_cpu_norm(f, x->l->kv_a_norm, attn->eps_lora, kv, n, kv, n, t1 - t0, attn->kv_lora);
    nb_fold_rows(x->l, attn->kv_lora, kv, t1 - t0, n);
    nb_cpu_rope(f, x->layer, f->kv + attn->kv_lora, t0, t1, 1, n, 0);
    nb_cpu_rope(f, x->layer, f->q + attn->d_nope, t0, t1, attn->n_head, attn->n_head * d_qk, d_qk);
    balance_rope(x, t0, t1);
    scale_queries(x, t0, t1);
}

/* The inputs of W_kv_b, whatever form attention has. */
static void observe(const mla_ctx *x, size_t n_tok)
{
    const nb_cpu *f = x->f;
    const nb_attn_config *a = x->attn;
    const size_t d_qk = a->d_nope + a->d_rope;
    f->r.observe(f->r.observe_ctx, &x->l->kv_b, SIZE_MAX, f->kv, n_tok, a->kv_lora, x->n_values);
    for (size_t h = 0; h < a->n_head; h++)
        f->r.observe(f->r.observe_ctx, &x->l->kv_b, h, f->q + h * d_qk, n_tok, a->d_nope,
                     a->n_head * d_qk);
}

static void project(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    const nb_layer *l = &r->o.model->layer[layer];
    const nb_attn_config *attn = nb_rank_attn(r, layer);
    const size_t h = r->whole->hidden, d_qk = attn->d_nope + attn->d_rope;
    const size_t q_w = attn->n_head * d_qk, q0 = nb_rank_head0(r, layer) * d_qk; /* rows of W_q */
    mla_ctx x = { f, l, attn, layer, nb_rank_dims(r, layer)->n_values };
    nb_job job[2];
    job[0] = nb_cpu_job(f, &l->kv_a, l->kv_a_b, f->xn, h, f->kv, x.n_values, p->n_row);
    if (attn->q_lora)
        job[1] = nb_cpu_job(f, &l->q_a, l->q_a_b, f->xn, h, f->qa, attn->q_lora, p->n_row);
    else
        job[1] = nb_cpu_rows(nb_cpu_job(f, &l->q, NULL, f->xn, h, f->q, q_w, p->n_row), q0, q_w);
    nb_cpu_run_jobs(f, job, 2);
    if (attn->q_lora) {
        nb_cpu_tokens(f, norm_qa, &x, p->n_row);
        job[0] = nb_cpu_rows(nb_cpu_job(f, &l->q_b, NULL, f->qa, attn->q_lora, f->q, q_w, p->n_row),
                             q0, q_w);
        nb_cpu_run_jobs(f, job, 1);
    }
    nb_cpu_tokens(f, finish, &x, p->n_row);
    if (r->observe) observe(&x, p->n_row);
}

/* ---- absorbing ---- */

enum { ABSORB_COLS = 256 };

typedef struct absorb_ctx {
    nb_cpu *f;
    const nb_layer *l;
    const nb_attn_config *attn;
    const float *q;
    size_t n_q, n_col_block, head0;
} absorb_ctx;

/* q~_h = W_UK,h^T q^n_h for one head and a range of latent channels. */
static void absorb_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const absorb_ctx *x = ctx;
    const nb_attn_config *attn = x->attn;
    const size_t h = task / x->n_col_block, col = task % x->n_col_block * ABSORB_COLS;
    const size_t d_qk = attn->d_nope + attn->d_rope, d_abs = attn->kv_lora + attn->d_rope;
    const size_t row = (x->head0 + h) * (attn->d_nope + attn->d_v); /* of W_kv_b */
    float *y = x->f->qx + h * d_abs;
    nb_linear_args a = {
        .y = y + col,
        .x = x->q + h * d_qk,
        .w = x->l->kv_b,
        .n_tok = x->n_q,
        .row_begin = row,
        .row_end = row + attn->d_nope,
        .col_begin = col,
        .col_end = col + ABSORB_COLS < attn->kv_lora ? col + ABSORB_COLS : attn->kv_lora,
        .x_stride = attn->n_head * d_qk,
        .y_stride = attn->n_head * d_abs,
    };
    x->f->r.plan.linear[a.w.type]->fn_t(&a);
    if (col == 0)
        for (size_t i = 0; i < x->n_q; i++)
            memcpy(y + i * a.y_stride + attn->kv_lora, a.x + i * a.x_stride + attn->d_nope,
                   attn->d_rope * sizeof *y);
}

/* The same with W_UK transposed and packed: a product for each head. */
static void absorb_packed(nb_cpu *f, const absorb_ctx *x)
{
    const nb_attn_config *attn = x->attn;
    const size_t d_qk = attn->d_nope + attn->d_rope, d_abs = attn->kv_lora + attn->d_rope;
    for (size_t h = 0; h < attn->n_head; h++) {
        const float *q = x->q + h * d_qk;
        float *y = f->qx + h * d_abs;
        f->job[h] = nb_cpu_job(f, &x->l->absorb_k, NULL, q, attn->n_head * d_qk, y,
                               attn->n_head * d_abs, x->n_q);
        f->job[h] = nb_cpu_rows(f->job[h], (x->head0 + h) * attn->kv_lora, attn->kv_lora);
        for (size_t i = 0; i < x->n_q; i++)
            memcpy(y + i * attn->n_head * d_abs + attn->kv_lora,
                   q + i * attn->n_head * d_qk + attn->d_nope, attn->d_rope * sizeof *y);
    }
    nb_cpu_run_jobs(f, f->job, attn->n_head);
}

/* f->qx = absorbed queries of n_q <= 64 tokens. */
static const float *absorb(nb_cpu *f, size_t layer, const float *q, size_t n_q, size_t *stride)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    absorb_ctx x = { .f = f,
                     .l = &f->r.o.model->layer[layer],
                     .attn = attn,
                     .q = q,
                     .n_q = n_q,
                     .head0 = nb_rank_head0(&f->r, layer),
                     .n_col_block = (attn->kv_lora + ABSORB_COLS - 1) / ABSORB_COLS };
    if (x.l->absorb_k.data)
        absorb_packed(f, &x);
    else
        nb_dev_run(f->r.o.dev, absorb_task, &x, attn->n_head * x.n_col_block);
    *stride = attn->n_head * (attn->kv_lora + attn->d_rope);
    return f->qx;
}

/* y_h = W_UV,h u_h of the heads in f->tot_o. */
static void unabsorb(nb_cpu *f, size_t layer, size_t n_q, float *y)
{
    const nb_layer *l = &f->r.o.model->layer[layer];
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    const size_t d_nv = attn->d_nope + attn->d_v, head0 = nb_rank_head0(&f->r, layer);
    const bool packed = l->absorb_v.data != NULL;
    for (size_t h = 0; h < attn->n_head; h++) {
        f->job[h] = nb_cpu_job(f, packed ? &l->absorb_v : &l->kv_b, NULL, f->tot_o + h * attn->kv_lora,
                               attn->n_head * attn->kv_lora, y + h * attn->d_v,
                               attn->n_head * attn->d_v, n_q);
        f->job[h] = nb_cpu_rows(
            f->job[h],
            packed ? (head0 + h) * attn->d_v : (head0 + h) * d_nv + attn->d_nope, attn->d_v);
    }
    nb_cpu_run_jobs(f, f->job, attn->n_head);
}

/* All heads share the latents, which are the values too. */
static void tile(const nb_cpu_attn *s, const float *rows, nb_attn_args *a)
{
    const nb_attn_config *attn = s->attn;
    a->k1 = rows;
    a->k2 = rows + attn->kv_lora;
    a->v = rows;
    a->group = attn->n_head;
    a->d1 = attn->kv_lora;
    a->d2 = attn->d_rope;
}

const nb_cpu_kind nb_cpu_kind_mla = {
    { project, nb_cpu_append, nb_cpu_attend }, absorb, unabsorb, tile
};
