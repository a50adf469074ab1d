/* forward.c - the step: embedding, blocks, logits.  See forward.h.
 *
 * Activations are float; weights stay in their stored type.  Everything but
 * attention runs on all tokens of all chunks at once. */
#include "model/forward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/fold.h"
#include "model/forward_internal.h"

/* ---- products ---- */

nb_job nb_fw_job(const nb_forward *f, const nb_weight *w, const float *bias, const float *x,
                 size_t x_stride, float *y, size_t y_stride, size_t n_tok)
{
    return (nb_job){ .a = { .y = y,
                            .x = x,
                            .w = *w,
                            .bias = bias,
                            .n_tok = n_tok,
                            .row_begin = 0,
                            .row_end = w->n_row,
                            .x_stride = x_stride,
                            .y_stride = y_stride },
                     .fn = f->plan.linear[w->type]->fn };
}

typedef struct job_list {
    const nb_job *job;
    size_t n_job;
} job_list;

static void run_block(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const job_list *l = ctx;
    size_t lo = 0, hi = l->n_job - 1; /* the last job whose first task is <= task */
    while (lo < hi) {
        const size_t mid = (lo + hi + 1) / 2;
        if (l->job[mid].first <= task)
            lo = mid;
        else
            hi = mid - 1;
    }
    const nb_job *j = &l->job[lo];
    nb_linear_args a = j->a;
    const size_t r = j->a.row_begin + (task - j->first) * NB_ROW_BLOCK;
    a.row_begin = r;
    a.row_end = r + NB_ROW_BLOCK < j->a.row_end ? r + NB_ROW_BLOCK : j->a.row_end;
    a.y = j->a.y + (r - j->a.row_begin);
    j->fn(&a);
}

void nb_fw_run_jobs(nb_forward *f, nb_job *job, size_t n_job)
{
    size_t n_task = 0;
    for (size_t i = 0; i < n_job; i++) {
        job[i].first = n_task;
        job[i].n_block = (job[i].a.row_end - job[i].a.row_begin + NB_ROW_BLOCK - 1) / NB_ROW_BLOCK;
        n_task += job[i].n_block;
    }
    job_list l = { job, n_job };
    nb_dev_run(f->o.dev, run_block, &l, n_task);
}

void nb_fw_linear(nb_forward *f, const nb_weight *w, const float *bias, const float *x,
                  size_t x_stride, float *y, size_t y_stride, size_t n_tok)
{
    nb_job j = nb_fw_job(f, w, bias, x, x_stride, y, y_stride, n_tok);
    nb_fw_run_jobs(f, &j, 1);
}

void nb_fw_norm(nb_forward *f, const float *w, float eps, const float *x, size_t x_stride, float *y,
                size_t y_stride, size_t n_row, size_t dim)
{
    f->plan.rmsnorm->fn(&(nb_rmsnorm_args){ .y = y,
                                            .x = x,
                                            .w = w,
                                            .n_row = n_row,
                                            .dim = dim,
                                            .x_stride = x_stride,
                                            .y_stride = y_stride,
                                            .eps = eps });
}

void nb_fw_trace(nb_forward *f, const char *what, size_t layer, const float *x, size_t n_tok,
                 size_t dim, size_t stride)
{
    char name[64];
    if (!f->trace) return;
    if (layer == SIZE_MAX)
        (void)snprintf(name, sizeof name, "%s", what);
    else
        (void)snprintf(name, sizeof name, "layers.%zu.%s", layer, what);
    f->trace(f->trace_ctx, name, x, n_tok, dim, stride);
}

/* ---- the blocks ---- */

static void rotary_tables(nb_forward *f, const nb_chunk *chunk, size_t n_chunk)
{
    const nb_rope_config *r = &f->o.model->c.rope;
    const size_t half = r->dim / 2;
    float *row = f->cos_sin;
    for (size_t i = 0; i < n_chunk; i++)
        for (size_t t = 0; t < chunk[i].n_tok; t++, row += r->dim)
            for (size_t j = 0; j < half; j++) {
                const float freq = chunk[i].rope_long ? r->inv_freq_long[j] : r->inv_freq[j];
                /* the angle is rounded to float as in the reference, then exact */
                const double angle = freq * (float)(chunk[i].pos0 + t);
                row[j] = (float)cos(angle) * r->factor;
                row[half + j] = (float)sin(angle) * r->factor;
            }
}

static void rope(nb_forward *f, float *x, size_t n_tok, size_t n_head, size_t tok_stride,
                 size_t head_stride)
{
    const nb_rope_config *r = &f->o.model->c.rope;
    f->plan.rope->fn(&(nb_rope_args){ .x = x,
                                      .cos_sin = f->cos_sin,
                                      .n_tok = n_tok,
                                      .n_head = n_head,
                                      .dim = r->dim,
                                      .tok_stride = tok_stride,
                                      .head_stride = head_stride,
                                      .interleaved = r->interleaved });
}

/* Pairs of rope keys of one size (rope_balance.c): powers of two, so that nothing is rounded. */
static void balance_rope(nb_forward *f, const nb_layer *l, size_t n_tok)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t d_qk = c->d_nope + c->d_rope;
    if (!l->rope_k) return;
    for (size_t t = 0; t < n_tok; t++) {
        float *k = f->kv + t * f->n_values + c->kv_lora;
        float *q = f->q + t * c->n_head * d_qk + c->d_nope;
        for (size_t i = 0; i < c->d_rope; i++) k[i] *= l->rope_k[i];
        for (size_t h = 0; h < c->n_head; h++, q += d_qk)
            for (size_t i = 0; i < c->d_rope; i++) q[i] *= l->rope_q[i];
    }
}

static void project_mla(nb_forward *f, const nb_layer *l, size_t n_tok)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t h = c->hidden, d_qk = c->d_nope + c->d_rope, q_w = c->n_head * d_qk;
    nb_job job[2];
    job[0] = nb_fw_job(f, &l->kv_a, l->kv_a_b, f->xn, h, f->kv, f->n_values, n_tok);
    if (c->q_lora)
        job[1] = nb_fw_job(f, &l->q_a, l->q_a_b, f->xn, h, f->qa, c->q_lora, n_tok);
    else
        job[1] = nb_fw_job(f, &l->q, NULL, f->xn, h, f->q, q_w, n_tok);
    nb_fw_run_jobs(f, job, 2);
    if (c->q_lora) {
        nb_fw_norm(f, l->q_a_norm, c->eps_lora, f->qa, c->q_lora, f->qa, c->q_lora, n_tok,
                   c->q_lora);
        nb_fw_linear(f, &l->q_b, NULL, f->qa, c->q_lora, f->q, q_w, n_tok);
    }
    nb_fw_norm(f, l->kv_a_norm, c->eps_lora, f->kv, f->n_values, f->kv, f->n_values, n_tok,
               c->kv_lora);
    nb_fold_rows(l, c->kv_lora, f->kv, n_tok, f->n_values);
    rope(f, f->kv + c->kv_lora, n_tok, 1, f->n_values, 0);
    rope(f, f->q + c->d_nope, n_tok, c->n_head, q_w, d_qk);
    balance_rope(f, l, n_tok);
}

static void project_gqa(nb_forward *f, const nb_layer *l, size_t n_tok)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t h = c->hidden, hd = c->head_dim, q_w = c->n_head * hd, k_w = c->n_kv_head * hd;
    nb_job job[3];
    job[0] = nb_fw_job(f, &l->q, l->q_b_bias, f->xn, h, f->q, q_w, n_tok);
    job[1] = nb_fw_job(f, &l->k, l->k_b, f->xn, h, f->kv, f->n_values, n_tok);
    job[2] = nb_fw_job(f, &l->v, l->v_b, f->xn, h, f->kv + k_w, f->n_values, n_tok);
    nb_fw_run_jobs(f, job, 3);
    if (c->qk_norm) {
        nb_fw_norm(f, l->q_norm, c->eps, f->q, hd, f->q, hd, n_tok * c->n_head, hd);
        for (size_t t = 0; t < n_tok; t++)
            nb_fw_norm(f, l->k_norm, c->eps, f->kv + t * f->n_values, hd, f->kv + t * f->n_values,
                       hd, c->n_kv_head, hd);
    }
    rope(f, f->kv, n_tok, c->n_kv_head, f->n_values, hd);
    rope(f, f->q, n_tok, c->n_head, q_w, hd);
}

static void add_branch(nb_forward *f, size_t n_tok)
{
    const nb_model_config *c = &f->o.model->c;
    const float s = c->branch_factor;
    for (size_t i = 0; i < n_tok * c->hidden; i++) f->h[i] += s * f->branch[i];
}

/* A chunk with a value that cannot be stored goes on as zeros, so that whatever follows stays
 * finite; rows do not mix, so the other chunks never see it. */
static void blank_chunk(nb_forward *f, const nb_chunk *chunk, size_t t0)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t o_w = c->n_head * f->d_o;
    memset(f->h + t0 * c->hidden, 0, chunk->n_tok * c->hidden * sizeof *f->h);
    memset(f->attn + t0 * o_w, 0, chunk->n_tok * o_w * sizeof *f->attn);
}

/* Single tokens that read the stored values: what a running request computes in a step. */
static bool is_decode(const nb_forward *f, const nb_chunk *c, size_t i)
{
    const bool direct = f->o.model->c.attn != NB_ATTN_MLA || c->absorbed;
    return c->n_tok == 1 && direct && !f->chunk_bad[i];
}

static void attention(nb_forward *f, const nb_chunk *chunk, size_t n_chunk, size_t layer,
                      nb_error *err)
{
    for (size_t i = 0, t0 = 0, n; i < n_chunk; i += n) {
        const size_t at = t0;
        for (n = 0; i + n < n_chunk && n < NB_DECODE_MAX && is_decode(f, &chunk[i + n], i + n);)
            n++;
        if (n) {
            nb_fw_attention_decode(f, chunk + i, n, i, layer, t0, err);
            t0 += n;
        } else {
            nb_error *first = f->n_bad == 0 ? err : NULL;
            n = 1;
            if (!f->chunk_bad[i] && nb_fw_attention(f, &chunk[i], layer, t0, first) != NB_OK) {
                f->n_bad++;
                f->chunk_bad[i] = 1;
            }
            t0 += chunk[i].n_tok;
        }
        for (size_t k = i, t = at; k < i + n; t += chunk[k++].n_tok)
            if (f->chunk_bad[k]) blank_chunk(f, &chunk[k], t);
    }
}

static void block(nb_forward *f, size_t layer, const nb_chunk *chunk, size_t n_chunk, size_t n_tok,
                  nb_error *err)
{
    const nb_model_config *c = &f->o.model->c;
    const nb_layer *l = &f->o.model->layer[layer];
    const size_t h = c->hidden;
    nb_fw_norm(f, l->in_norm, c->eps, f->h, h, f->xn, h, n_tok, h);
    if (c->attn == NB_ATTN_MLA)
        project_mla(f, l, n_tok);
    else
        project_gqa(f, l, n_tok);
    nb_fw_trace(f, "q", layer, f->q, n_tok, c->n_head * f->d_q, c->n_head * f->d_q);
    nb_fw_trace(f, "kv", layer, f->kv, n_tok, f->n_values, f->n_values);
    attention(f, chunk, n_chunk, layer, err);
    const size_t o_w = c->n_head * f->d_o;
    nb_fw_linear(f, &l->o, l->o_b, f->attn, o_w, f->branch, h, n_tok);
    nb_fw_trace(f, "attn_out", layer, f->branch, n_tok, h, h);
    add_branch(f, n_tok);
    nb_fw_norm(f, l->post_norm, c->eps, f->h, h, f->xn, h, n_tok, h);
    nb_fw_ffn(f, layer, f->xn, f->branch, n_tok);
    nb_fw_trace(f, "mlp_out", layer, f->branch, n_tok, h, h);
    add_branch(f, n_tok);
    nb_fw_trace(f, "out", layer, f->h, n_tok, h, h);
}

void nb_forward_logits(nb_forward *f, const size_t *tok, size_t n, float *logits)
{
    const nb_model *m = f->o.model;
    const size_t h = m->c.hidden;
    NB_ASSERT(n <= f->max_tok);
    if (n == 0) return;
    for (size_t i = 0; i < n; i++) memcpy(f->branch + i * h, f->h + tok[i] * h, h * sizeof *f->h);
    nb_fw_norm(f, m->final_norm, m->c.eps, f->branch, h, f->xn, h, n, h);
    if (m->c.logit_factor != 1.0f)
        for (size_t i = 0; i < n * h; i++) f->xn[i] *= m->c.logit_factor;
    nb_fw_trace(f, "final_norm", SIZE_MAX, f->xn, n, h, h);
    nb_fw_linear(f, &m->head, NULL, f->xn, h, logits, m->c.n_vocab, n);
}

nb_status nb_forward_step(nb_forward *f, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                          nb_error *err)
{
    const nb_model *m = f->o.model;
    const size_t h = m->c.hidden;
    size_t n_tok = 0;
    for (size_t i = 0; i < n_chunk; i++) {
        NB_ASSERT(chunk[i].n_tok > 0 && chunk[i].n_tok <= f->max_tok - n_tok);
        f->plan.embed->fn(&(nb_embed_args){ .y = f->h + n_tok * h,
                                            .id = chunk[i].tok,
                                            .w = m->embed,
                                            .n_tok = chunk[i].n_tok,
                                            .y_stride = h,
                                            .factor = m->c.embed_factor });
        n_tok += chunk[i].n_tok;
        f->chunk_bad[i] = 0;
    }
    f->n_bad = 0;
    if (n_tok == 0) return NB_OK;
    nb_fw_trace(f, "embed", SIZE_MAX, f->h, n_tok, h, h);
    rotary_tables(f, chunk, n_chunk);
    for (size_t i = 0; i < m->c.n_layer; i++) block(f, i, chunk, n_chunk, n_tok, err);
    if (bad) memcpy(bad, f->chunk_bad, n_chunk);
    return f->n_bad ? NB_ERR_NONFINITE : NB_OK;
}
