/* forward_ffn.c - dense SwiGLU and mixture of experts.
 *
 * Tokens are sorted by expert, so that an expert's weights are read once for all
 * of its tokens; every (token, expert) output is kept apart and summed per token
 * in the order of the router's choice, then the shared expert: the sum does not
 * depend on who else is in the batch. */
#include <string.h>

#include "model/forward_internal.h"

static void swiglu(nb_forward *f, float *gate, const float *up, size_t n_tok, size_t dim)
{
    f->plan.swiglu->fn(&(nb_swiglu_args){ .y = gate,
                                          .gate = gate,
                                          .up = up,
                                          .n_tok = n_tok,
                                          .dim = dim,
                                          .in_stride = dim,
                                          .y_stride = dim });
}

typedef struct swiglu_task {
    nb_forward *f;
    float *gate;
    const float *up;
    size_t n_tok, dim;
} swiglu_task;

enum { SWIGLU_BLOCK = 16 }; /* tokens per task */

static void swiglu_run(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const swiglu_task *s = ctx;
    const size_t t = task * SWIGLU_BLOCK, left = s->n_tok - t;
    swiglu(s->f, s->gate + t * s->dim, s->up + t * s->dim,
           left < SWIGLU_BLOCK ? left : SWIGLU_BLOCK, s->dim);
}

static void swiglu_all(nb_forward *f, float *gate, const float *up, size_t n_tok, size_t dim)
{
    swiglu_task s = { f, gate, up, n_tok, dim };
    nb_dev_run(f->o.dev, swiglu_run, &s, (n_tok + SWIGLU_BLOCK - 1) / SWIGLU_BLOCK);
}

static void dense(nb_forward *f, const nb_mlp *m, const float *x, float *y, size_t n_tok)
{
    const size_t h = f->o.model->c.hidden, inter = m->gate.n_row;
    f->job[0] = nb_fw_job(f, &m->gate, m->gate_b, x, h, f->gate, inter, n_tok);
    f->job[1] = nb_fw_job(f, &m->up, m->up_b, x, h, f->up, inter, n_tok);
    nb_fw_run_jobs(f, f->job, 2);
    swiglu_all(f, f->gate, f->up, n_tok, inter);
    nb_fw_linear(f, &m->down, m->down_b, f->gate, inter, y, h, n_tok);
}

/* Chooses experts and gives every (token, choice) a row in expert order. */
static void route(nb_forward *f, const nb_layer *l, const float *x, size_t n_tok)
{
    const nb_model_config *c = &f->o.model->c;
    nb_fw_linear(f, &l->router, NULL, x, c->hidden, f->r_logits, c->n_expert, n_tok);
    f->plan.route->fn(&(nb_route_args){ .id = f->r_id,
                                        .weight = f->r_weight,
                                        .logits = f->r_logits,
                                        .bias = l->router_b,
                                        .n_tok = n_tok,
                                        .n_expert = c->n_expert,
                                        .top_k = c->top_k,
                                        .n_group = c->n_group,
                                        .topk_group = c->topk_group,
                                        .group_top = c->group_top,
                                        .sigmoid = c->sigmoid,
                                        .normalise = c->normalise,
                                        .factor = c->routed_factor });
    memset(f->e_count, 0, (c->n_expert + 1) * sizeof *f->e_count);
    for (size_t i = 0; i < n_tok * c->top_k; i++) f->e_count[f->r_id[i]]++;
    size_t at = 0;
    for (size_t e = 0; e < c->n_expert; e++) {
        f->e_first[e] = at;
        at += f->e_count[e];
    }
    f->e_first[c->n_expert] = at;
    memset(f->e_count, 0, (c->n_expert + 1) * sizeof *f->e_count);
    for (size_t i = 0; i < n_tok * c->top_k; i++) {
        const uint32_t e = f->r_id[i];
        f->e_slot[i] = f->e_first[e] + f->e_count[e]++;
        memcpy(f->e_x + f->e_slot[i] * c->hidden, x + i / c->top_k * c->hidden,
               c->hidden * sizeof *x);
    }
}

static void moe(nb_forward *f, const nb_layer *l, const float *x, float *y, size_t n_tok)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t h = c->hidden, mi = c->moe_inter, n_row = n_tok * c->top_k;
    route(f, l, x, n_tok);
    const bool shared = l->mlp.gate.data != NULL;
    const size_t si = shared ? l->mlp.gate.n_row : 0;
    size_t n_job = 0;
    for (size_t e = 0; e < c->n_expert; e++) {
        const size_t r = f->e_first[e], n = f->e_first[e + 1] - r;
        if (n == 0) continue;
        const nb_mlp *m = &l->expert[e];
        f->job[n_job++] =
            nb_fw_job(f, &m->gate, NULL, f->e_x + r * h, h, f->e_gate + r * mi, mi, n);
        f->job[n_job++] = nb_fw_job(f, &m->up, NULL, f->e_x + r * h, h, f->e_up + r * mi, mi, n);
    }
    if (shared) {
        f->job[n_job++] = nb_fw_job(f, &l->mlp.gate, l->mlp.gate_b, x, h, f->gate, si, n_tok);
        f->job[n_job++] = nb_fw_job(f, &l->mlp.up, l->mlp.up_b, x, h, f->up, si, n_tok);
    }
    nb_fw_run_jobs(f, f->job, n_job);
    swiglu_all(f, f->e_gate, f->e_up, n_row, mi);
    if (shared) swiglu_all(f, f->gate, f->up, n_tok, si);
    n_job = 0;
    for (size_t e = 0; e < c->n_expert; e++) {
        const size_t r = f->e_first[e], n = f->e_first[e + 1] - r;
        if (n == 0) continue;
        f->job[n_job++] =
            nb_fw_job(f, &l->expert[e].down, NULL, f->e_gate + r * mi, mi, f->e_y + r * h, h, n);
    }
    if (shared)
        f->job[n_job++] = nb_fw_job(f, &l->mlp.down, l->mlp.down_b, f->gate, si, y, h, n_tok);
    nb_fw_run_jobs(f, f->job, n_job);
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < h; i++) {
            float s = 0;
            for (size_t k = 0; k < c->top_k; k++)
                s += f->r_weight[t * c->top_k + k] * f->e_y[f->e_slot[t * c->top_k + k] * h + i];
            y[t * h + i] = shared ? s + y[t * h + i] : s;
        }
}

void nb_fw_ffn(nb_forward *f, size_t layer, const float *x, float *y, size_t n_tok)
{
    const nb_layer *l = &f->o.model->layer[layer];
    if (f->o.model->c.dense[layer])
        dense(f, &l->mlp, x, y, n_tok);
    else
        moe(f, l, x, y, n_tok);
}
