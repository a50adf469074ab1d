/* forward.c - the step: embedding, blocks, logits.  See forward.h.
 *
 * Activations are float; weights stay in their stored type.  Everything but
 * attention runs on all tokens of all chunks at once.  What lies between products is
 * done token by token, in parallel and joined, so that a token's values are still
 * in the cache. */
#include "model/forward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/fold.h"
#include "model/forward_internal.h"
#include "model/gpu_forward.h"

void nb_fw_norm(const nb_forward *f, const float *w, float eps, const float *x, size_t x_stride,
                float *y, size_t y_stride, size_t n_row, size_t dim)
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

typedef struct step_ctx {
    nb_forward *f;
    const nb_chunk *chunk;
    size_t n_chunk;
} step_ctx;

/* Embedding and rotary table of some tokens of one chunk, whose first is token `at` of the step. */
static void begin_chunk(nb_forward *f, const nb_chunk *c, size_t at, size_t t0, size_t t1)
{
    const nb_model *m = f->o.model;
    const nb_rope_config *r = &m->c.rope;
    const size_t h = m->c.hidden, half = r->dim / 2;
    f->plan.embed->fn(&(nb_embed_args){ .y = f->h + (at + t0) * h,
                                        .id = c->tok + t0,
                                        .w = m->embed,
                                        .n_tok = t1 - t0,
                                        .y_stride = h,
                                        .factor = m->c.embed_factor });
    float *row = f->cos_sin + (at + t0) * r->dim;
    for (size_t t = t0; t < t1; t++, row += r->dim)
        for (size_t j = 0; j < half; j++) {
            const float freq = c->rope_long ? r->inv_freq_long[j] : r->inv_freq[j];
            /* the angle is rounded to float as in the reference, then exact */
            const double angle = freq * (float)(c->pos0 + t);
            row[j] = (float)cos(angle) * r->factor;
            row[half + j] = (float)sin(angle) * r->factor;
        }
}

static void begin_tokens(void *ctx, size_t t0, size_t t1)
{
    const step_ctx *x = ctx;
    for (size_t i = 0, at = 0; i < x->n_chunk && at < t1; at += x->chunk[i++].n_tok) {
        const size_t end = at + x->chunk[i].n_tok;
        const size_t a = at > t0 ? at : t0, b = end < t1 ? end : t1;
        if (a < b) begin_chunk(x->f, &x->chunk[i], at, a - at, b - at);
    }
}

typedef struct layer_ctx {
    nb_forward *f;
    const nb_layer *l;
} layer_ctx;

/* Rotates heads of tokens [t0, t1); x points to the first token of the step. */
static void rope(const nb_forward *f, float *x, size_t t0, size_t t1, size_t n_head,
                 size_t tok_stride, size_t head_stride)
{
    const nb_rope_config *r = &f->o.model->c.rope;
    f->plan.rope->fn(&(nb_rope_args){ .x = x + t0 * tok_stride,
                                      .cos_sin = f->cos_sin + t0 * r->dim,
                                      .n_tok = t1 - t0,
                                      .n_head = n_head,
                                      .dim = r->dim,
                                      .tok_stride = tok_stride,
                                      .head_stride = head_stride,
                                      .interleaved = r->interleaved });
}

/* Pairs of rope keys of one size (rope_balance.c): powers of two, so that nothing is rounded. */
static void balance_rope(const nb_forward *f, const nb_layer *l, size_t t0, size_t t1)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t d_qk = c->d_nope + c->d_rope;
    if (!l->rope_k) return;
    for (size_t t = t0; t < t1; t++) {
        float *k = f->kv + t * f->n_values + c->kv_lora;
        float *q = f->q + t * c->n_head * d_qk + c->d_nope;
        for (size_t i = 0; i < c->d_rope; i++) k[i] *= l->rope_k[i];
        for (size_t h = 0; h < c->n_head; h++, q += d_qk)
            for (size_t i = 0; i < c->d_rope; i++) q[i] *= l->rope_q[i];
    }
}

static void norm_qa(void *ctx, size_t t0, size_t t1)
{
    const layer_ctx *x = ctx;
    const nb_model_config *c = &x->f->o.model->c;
    float *qa = x->f->qa + t0 * c->q_lora;
    nb_fw_norm(x->f, x->l->q_a_norm, c->eps_lora, qa, c->q_lora, qa, c->q_lora, t1 - t0, c->q_lora);
}

static void finish_mla(void *ctx, size_t t0, size_t t1)
{
    const layer_ctx *x = ctx;
    nb_forward *f = x->f;
    const nb_model_config *c = &f->o.model->c;
    const size_t d_qk = c->d_nope + c->d_rope, n = f->n_values;
    float *kv = f->kv + t0 * n;
    nb_fw_norm(f, x->l->kv_a_norm, c->eps_lora, kv, n, kv, n, t1 - t0, c->kv_lora);
    nb_fold_rows(x->l, c->kv_lora, kv, t1 - t0, n);
    rope(f, f->kv + c->kv_lora, t0, t1, 1, n, 0);
    rope(f, f->q + c->d_nope, t0, t1, c->n_head, c->n_head * d_qk, d_qk);
    balance_rope(f, x->l, t0, t1);
}

static void project_mla(nb_forward *f, const nb_layer *l, size_t n_tok)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t h = c->hidden, q_w = c->n_head * (c->d_nope + c->d_rope);
    layer_ctx x = { f, l };
    nb_job job[2];
    job[0] = nb_fw_job(f, &l->kv_a, l->kv_a_b, f->xn, h, f->kv, f->n_values, n_tok);
    if (c->q_lora)
        job[1] = nb_fw_job(f, &l->q_a, l->q_a_b, f->xn, h, f->qa, c->q_lora, n_tok);
    else
        job[1] = nb_fw_job(f, &l->q, NULL, f->xn, h, f->q, q_w, n_tok);
    nb_fw_run_jobs(f, job, 2);
    if (c->q_lora) {
        nb_fw_tokens(f, norm_qa, &x, n_tok);
        nb_fw_linear(f, &l->q_b, NULL, f->qa, c->q_lora, f->q, q_w, n_tok);
    }
    nb_fw_tokens(f, finish_mla, &x, n_tok);
}

static void finish_gqa(void *ctx, size_t t0, size_t t1)
{
    const layer_ctx *x = ctx;
    nb_forward *f = x->f;
    const nb_model_config *c = &f->o.model->c;
    const size_t hd = c->head_dim, q_w = c->n_head * hd;
    for (size_t t = t0; c->qk_norm && t < t1; t++) {
        float *q = f->q + t * q_w, *k = f->kv + t * f->n_values;
        nb_fw_norm(f, x->l->q_norm, c->eps, q, hd, q, hd, c->n_head, hd);
        nb_fw_norm(f, x->l->k_norm, c->eps, k, hd, k, hd, c->n_kv_head, hd);
    }
    rope(f, f->kv, t0, t1, c->n_kv_head, f->n_values, hd);
    rope(f, f->q, t0, t1, c->n_head, q_w, hd);
}

static void project_gqa(nb_forward *f, const nb_layer *l, size_t n_tok)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t h = c->hidden, q_w = c->n_head * c->head_dim, k_w = c->n_kv_head * c->head_dim;
    nb_job job[3];
    job[0] = nb_fw_job(f, &l->q, l->q_b_bias, f->xn, h, f->q, q_w, n_tok);
    job[1] = nb_fw_job(f, &l->k, l->k_b, f->xn, h, f->kv, f->n_values, n_tok);
    job[2] = nb_fw_job(f, &l->v, l->v_b, f->xn, h, f->kv + k_w, f->n_values, n_tok);
    nb_fw_run_jobs(f, job, 3);
    layer_ctx x = { f, l };
    nb_fw_tokens(f, finish_gqa, &x, n_tok);
}

/* What follows a branch: h += factor * branch, and the norm of the next one (w NULL: none). */
typedef struct join_ctx {
    nb_forward *f;
    const float *w;
    bool add;
} join_ctx;

static void join_tokens(void *ctx, size_t t0, size_t t1)
{
    const join_ctx *x = ctx;
    nb_forward *f = x->f;
    const nb_model_config *c = &f->o.model->c;
    const float s = c->branch_factor;
    const size_t n = c->hidden;
    float *h = f->h + t0 * n;
    const float *branch = f->branch + t0 * n;
    for (size_t i = 0; x->add && i < (t1 - t0) * n; i++) h[i] += s * branch[i];
    if (x->w) nb_fw_norm(f, x->w, c->eps, h, n, f->xn + t0 * n, n, t1 - t0, n);
}

static void join(nb_forward *f, const float *w, bool add, size_t n_tok)
{
    join_ctx x = { f, w, add };
    nb_fw_tokens(f, join_tokens, &x, n_tok);
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
    join(f, l->post_norm, true, n_tok);
    nb_fw_ffn(f, layer, f->xn, f->branch, n_tok);
    nb_fw_trace(f, "mlp_out", layer, f->branch, n_tok, h, h);
    const bool last = layer + 1 == c->n_layer;
    join(f, last ? NULL : f->o.model->layer[layer + 1].in_norm, true, n_tok);
    nb_fw_trace(f, "out", layer, f->h, n_tok, h, h);
}

typedef struct logits_ctx {
    nb_forward *f;
    const size_t *tok;
} logits_ctx;

static void final_tokens(void *ctx, size_t t0, size_t t1)
{
    const logits_ctx *x = ctx;
    nb_forward *f = x->f;
    const nb_model *m = f->o.model;
    const size_t h = m->c.hidden;
    for (size_t i = t0; i < t1; i++) {
        float *xn = f->xn + i * h;
        nb_fw_norm(f, m->final_norm, m->c.eps, f->h + x->tok[i] * h, h, xn, h, 1, h);
        for (size_t k = 0; m->c.logit_factor != 1.0f && k < h; k++) xn[k] *= m->c.logit_factor;
    }
}

nb_status nb_forward_logits(nb_forward *f, const size_t *tok, size_t n, float *logits,
                            nb_error *err)
{
    if (f->gpu) return nb_gpu_forward_logits(f->gpu, tok, n, logits, err);
    const nb_model *m = f->o.model;
    const size_t h = m->c.hidden;
    NB_ASSERT(n <= f->max_tok);
    if (n == 0) return NB_OK;
    logits_ctx x = { f, tok };
    nb_fw_tokens(f, final_tokens, &x, n);
    nb_fw_trace(f, "final_norm", SIZE_MAX, f->xn, n, h, h);
    nb_fw_linear(f, &m->head, NULL, f->xn, h, logits, m->c.n_vocab, n);
    return NB_OK;
}

nb_status nb_forward_step(nb_forward *f, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                          nb_error *err)
{
    if (f->gpu) return nb_gpu_forward_step(f->gpu, chunk, n_chunk, bad, err);
    const nb_model *m = f->o.model;
    const size_t h = m->c.hidden;
    size_t n_tok = 0;
    for (size_t i = 0; i < n_chunk; i++) {
        NB_ASSERT(chunk[i].n_tok > 0 && chunk[i].n_tok <= f->max_tok - n_tok);
        n_tok += chunk[i].n_tok;
        f->chunk_bad[i] = 0;
    }
    f->n_bad = 0;
    if (n_tok == 0) return NB_OK;
    step_ctx x = { f, chunk, n_chunk };
    nb_fw_tokens(f, begin_tokens, &x, n_tok);
    nb_fw_trace(f, "embed", SIZE_MAX, f->h, n_tok, h, h);
    join(f, m->layer[0].in_norm, false, n_tok);
    for (size_t i = 0; i < m->c.n_layer; i++) block(f, i, chunk, n_chunk, n_tok, err);
    if (bad) memcpy(bad, f->chunk_bad, n_chunk);
    return f->n_bad ? NB_ERR_NONFINITE : NB_OK;
}
