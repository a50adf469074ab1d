/* cpu_gqa.c - grouped-query attention on the CPU: projections. */
#include <string.h>

#include "model/cpu/cpu.h"

typedef struct gqa_ctx {
    nb_cpu *f;
    const nb_layer *l;
    const nb_attn_config *attn;
    size_t layer, n_values;
} gqa_ctx;

static void finish(void *ctx, size_t t0, size_t t1)
{
    const gqa_ctx *x = ctx;
    nb_cpu *f = x->f;
    const nb_attn_config *attn = x->attn;
    const float eps = f->r.whole->eps;
    const size_t hd = attn->head_dim, q_w = attn->n_head * hd;
    for (size_t t = t0; attn->qk_norm && t < t1; t++) {
        float *q = f->q + t * q_w, *k = f->kv + t * x->n_values;
        nb_cpu_norm(f, x->l->q_norm, eps, q, hd, q, hd, attn->n_head, hd);
        nb_cpu_norm(f, x->l->k_norm, eps, k, hd, k, hd, attn->n_kv_head, hd);
    }
    nb_cpu_rope(f, x->layer, f->kv, t0, t1, attn->n_kv_head, x->n_values, hd);
    nb_cpu_rope(f, x->layer, f->q, t0, t1, attn->n_head, q_w, hd);
}

static void project(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    const nb_layer *l = &r->o.model->layer[layer];
    const nb_attn_config *attn = nb_rank_attn(r, layer);
    const size_t h = r->whole->hidden, n = nb_rank_dims(r, layer)->n_values;
    const size_t q_w = attn->n_head * attn->head_dim, k_w = attn->n_kv_head * attn->head_dim;
    gqa_ctx x = { f, l, attn, layer, n };
    nb_job job[3];
    job[0] = nb_cpu_rows(nb_cpu_job(f, &l->q, l->q_b_bias, f->xn, h, f->q, q_w, p->n_row),
                         nb_rank_head0(r, layer) * attn->head_dim, q_w);
    job[1] = nb_cpu_job(f, &l->k, l->k_b, f->xn, h, f->kv, n, p->n_row);
    job[2] = nb_cpu_job(f, &l->v, l->v_b, f->xn, h, f->kv + k_w, n, p->n_row);
    nb_cpu_run_jobs(f, job, 3);
    nb_cpu_tokens(f, finish, &x, p->n_row);
}

/* ---- direct attention ---- */

static const float *queries(nb_cpu *f, size_t layer, const float *q, size_t n_q, size_t *stride)
{
    (void)n_q;
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    *stride = attn->n_head * attn->head_dim;
    return q;
}

static void outputs(nb_cpu *f, size_t layer, size_t n_q, float *y)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    memcpy(y, f->tot_o, n_q * attn->n_head * attn->head_dim * sizeof *y);
}

/* The heads of a rank belong to whole groups, or to a part of one. */
static void tile(const nb_cpu_attn *s, const float *rows, nb_attn_args *a)
{
    const nb_attn_config *attn = s->attn;
    const size_t group = nb_layer_attn(s->f->r.whole, s->layer)->n_head / attn->n_kv_head;
    rows += nb_rank_head0(&s->f->r, s->layer) / group * attn->head_dim;
    a->k1 = a->k2 = rows;
    a->v = rows + attn->n_kv_head * attn->head_dim;
    a->group = group < attn->n_head ? group : attn->n_head;
    a->d1 = attn->head_dim;
    a->k1_head = a->v_head = attn->head_dim;
}

const nb_cpu_kind nb_cpu_kind_gqa = {
    { project, nb_cpu_append, nb_cpu_attend }, queries, outputs, tile
};
