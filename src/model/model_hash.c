/* model_hash.c - a name for a model, by which a calibration file knows it.  See fold.h.
 *
 * Hashed whole: the geometry, and the weights that make the cached values of their layer (its
 * norm, kv_a and kv_b, or K and V, with biases and norms).  Every other matrix gives four samples
 * of 1 KiB: a fine-tuned model has another name though a model of hundreds of GiB is
 * not read through.  Bytes as they are stored, so that the name is one of the file.  Frequencies of
 * the rotation are left out: a longer context by another scaling is the same model, and they come
 * from libm, whose last bits differ between machines. */
#include <openssl/evp.h>
#include <string.h>

#include "model/attn_csa.h"
#include "model/fold.h"
#include "model/kv_b.h"

enum { SAMPLES = 4, SAMPLE_BYTES = 1024 };

typedef struct hasher {
    EVP_MD_CTX *ctx;
    bool ok;
} hasher;

static void add(hasher *h, const void *p, size_t n_bytes)
{
    h->ok = h->ok && (n_bytes == 0 || EVP_DigestUpdate(h->ctx, p, n_bytes) == 1);
}

static void add_size(hasher *h, uint64_t n)
{
    unsigned char b[8];
    for (int i = 0; i < 8; i++) b[i] = (unsigned char)(n >> 8 * i & 0xff);
    add(h, b, sizeof b);
}

static void add_bytes(hasher *h, const void *p, size_t n_bytes, bool whole)
{
    const char *at = p;
    if (whole || n_bytes <= SAMPLES * SAMPLE_BYTES) {
        add(h, p, n_bytes);
        return;
    }
    for (size_t i = 0; i < SAMPLES; i++)
        add(h, at + (n_bytes - SAMPLE_BYTES) / (SAMPLES - 1) * i, SAMPLE_BYTES);
}

static void add_matrix(hasher *h, const nb_weight *w, bool whole)
{
    add_size(h, w->data != NULL);
    if (!w->data) return;
    add_size(h, w->type);
    add_size(h, w->n_row);
    add_size(h, w->n_col);
    add_bytes(h, w->data, nb_weight_data_bytes(w), whole);
    if (w->type == NB_W_FP8B) add_bytes(h, w->scale, nb_weight_scale_bytes(w), whole);
    if (w->group.scale)
        add_bytes(h, w->group.scale,
                  w->n_row * nb_weight_n_group(w) * nb_stype_bytes(w->group.scale_type), whole);
}

/* Halves count as the floats that they are together. */
static void add_kv_b(hasher *h, const nb_layer *l, const nb_attn_config *a)
{
    nb_arena joined = { 0 };
    nb_weight kv_b = l->kv_b;
    if (nb_kv_b_in_halves(l)) h->ok = h->ok && nb_kv_b_joined(l, a, &joined, &kv_b, NULL) == NB_OK;
    if (h->ok) add_matrix(h, &kv_b, true);
    nb_arena_deinit(&joined);
}

static void add_vector(hasher *h, const float *v, size_t n)
{
    add_size(h, v != NULL);
    if (v) add(h, v, n * sizeof *v);
}

static void add_mlp(hasher *h, const nb_mlp *m)
{
    add_matrix(h, &m->gate, false);
    add_matrix(h, &m->up, false);
    add_matrix(h, &m->down, false);
}

static void add_attention(hasher *h, const nb_attn_config *a)
{
    const size_t n[] = { a->kind,     a->n_head,  a->q_lora,   a->kv_lora,
                         a->d_nope,   a->d_rope,  a->d_v,      a->n_kv_head,
                         a->head_dim, a->qk_norm, a->rope.dim, a->rope.interleaved };
    for (size_t i = 0; i < NB_COUNT(n); i++) add_size(h, n[i]);
    if (a->conv) add_size(h, a->conv);
    add(h, &a->eps_lora, sizeof a->eps_lora);
}

/* What models with compressed attention and several residual streams have beside the rest. */
static void add_streams(hasher *h, const nb_model_config *c)
{
    const size_t n[] = { c->n_stream, c->n_sinkhorn, c->n_hash, c->sqrt_softplus };
    for (size_t i = 0; i < NB_COUNT(n); i++) add_size(h, n[i]);
    add(h, &c->stream_eps, sizeof c->stream_eps);
    add(h, &c->act_limit, sizeof c->act_limit);
    for (size_t k = 0; k < c->n_attn; k++) {
        const nb_attn_config *a = &c->attn[k];
        const size_t m[] = { a->window,   a->ratio,   a->o_group, a->o_lora,
                             a->index_head, a->index_dim, a->index_topk };
        for (size_t i = 0; i < NB_COUNT(m); i++) add_size(h, m[i]);
    }
}

static void add_compressor(hasher *h, const nb_compressor *x, const nb_attn_config *a, size_t dim)
{
    if (!x->norm) return;
    add_matrix(h, &x->kv, true);
    add_matrix(h, &x->gate, true);
    add_vector(h, x->ape, a->ratio * nb_csa_width(a, dim));
    add_vector(h, x->norm, dim);
}

static void add_mix(hasher *h, const nb_mix *m, size_t n, size_t n_scale)
{
    add_matrix(h, &m->fn, true);
    add_vector(h, m->base, n);
    add_vector(h, m->scale, n_scale);
}

static void add_csa(hasher *h, const nb_layer *l, const nb_model_config *c, const nb_attn_config *a)
{
    const size_t s = c->n_stream;
    add_matrix(h, &l->kv_a, true);
    add_vector(h, l->kv_a_norm, a->head_dim);
    add_vector(h, l->q_a_norm, a->q_lora);
    add_vector(h, l->sink, a->n_head);
    add_matrix(h, &l->o_a, false);
    add_compressor(h, &l->comp, a, a->head_dim);
    add_compressor(h, &l->idx_comp, a, a->index_dim);
    add_matrix(h, &l->idx_q, false);
    add_matrix(h, &l->idx_w, false);
    for (size_t i = 0; i < 2; i++) add_mix(h, &l->mix[i], (2 + s) * s, 3);
    add_size(h, l->hash != NULL);
    if (l->hash) add(h, l->hash, c->n_vocab * c->top_k * sizeof *l->hash);
}

static void add_config(hasher *h, const nb_model_config *c)
{
    static const char version[] = "nibble model 1"; /* hashed with its terminating 0 */
    const nb_attn_config *attn = &c->attn[0];
    const size_t n[] = { attn->kind,    c->n_vocab,   c->hidden,       c->n_layer,
                         attn->n_head,  attn->q_lora, attn->kv_lora,   attn->d_nope,
                         attn->d_rope,  attn->d_v,    attn->n_kv_head, attn->head_dim,
                         attn->qk_norm, c->inter,     c->moe_inter,    c->n_expert,
                         c->n_shared,   c->top_k,     attn->rope.dim,  attn->rope.interleaved };
    const float x[] = { c->eps, attn->eps_lora, c->embed_factor, c->branch_factor };
    add(h, version, sizeof version);
    add(h, c->family, strlen(c->family) + 1);
    for (size_t i = 0; i < NB_COUNT(n); i++) add_size(h, n[i]);
    add(h, x, sizeof x);
    for (size_t k = 0; k < c->n_attn; k++)
        if (c->attn[k].q_beta != 0) {
            add(h, &c->attn[k].q_beta, sizeof c->attn[k].q_beta);
            add_size(h, c->attn[k].q_orig);
        }
    if (c->paired) { /* the factors are in the norms */
        add_size(h, c->n_zero);
        add(h, c->shortcut, c->n_layer);
    }
    if (c->n_stream) add_streams(h, c);
    if (c->n_attn == 1) return;
    for (size_t k = 1; k < c->n_attn; k++) add_attention(h, &c->attn[k]);
    add(h, c->attn_of, c->n_layer);
}

static void add_layer(hasher *h, const nb_model *m, size_t layer)
{
    const nb_model_config *c = &m->c;
    const nb_layer *l = &m->layer[layer];
    const nb_attn_config *attn = nb_layer_attn(c, layer);
    const bool mla = nb_attn_is_latent(attn);
    const size_t kv_w = attn->n_kv_head * attn->head_dim;
    add_vector(h, l->in_norm, c->hidden);
    if (mla) {
        add_matrix(h, &l->kv_a, true);
        add_vector(h, l->kv_a_b, attn->kv_lora + attn->d_rope);
        add_vector(h, l->kv_a_norm, attn->kv_lora);
        add_kv_b(h, l, attn);
        add_vector(h, l->q_a_norm, attn->q_lora);
        if (attn->kind == NB_ATTN_DSA && !attn->index_shared) {
            add_matrix(h, &l->index_k, true);
            add_vector(h, l->index_norm, attn->index_dim);
            add_vector(h, l->index_norm_b, attn->index_dim);
            add_matrix(h, &l->index_q, false);
            add_matrix(h, &l->index_w, false);
        }
    } else if (attn->kind == NB_ATTN_CSA) {
        add_csa(h, l, c, attn);
    } else if (attn->kind == NB_ATTN_KDA) {
        const size_t n = attn->n_head * attn->head_dim;
        const nb_weight *const w[] = { &l->k, &l->v, &l->f_a, &l->f_b, &l->g_a, &l->g_b, &l->beta };
        const float *const conv[] = { l->q_conv, l->k_conv, l->v_conv };
        for (size_t i = 0; i < NB_COUNT(w); i++) add_matrix(h, w[i], true);
        for (size_t i = 0; i < NB_COUNT(conv); i++) add_vector(h, conv[i], n * attn->conv);
        add_vector(h, l->a_log, attn->n_head);
        add_vector(h, l->dt_bias, n);
        add_vector(h, l->o_norm, attn->head_dim);
    } else {
        add_matrix(h, &l->k, true);
        add_matrix(h, &l->v, true);
        add_vector(h, l->k_b, kv_w);
        add_vector(h, l->v_b, kv_w);
        add_vector(h, l->k_norm, attn->head_dim);
        add_vector(h, l->q_norm, attn->head_dim);
    }
    add_matrix(h, &l->q, false);
    add_matrix(h, &l->q_a, false);
    add_matrix(h, &l->q_b, false);
    add_matrix(h, &l->o, false);
    add_vector(h, l->post_norm, c->hidden);
    if (l->branch_norm) add_vector(h, l->branch_norm, c->hidden);
    add_mlp(h, &l->mlp);
    add_matrix(h, &l->router, false);
    for (size_t i = 0; l->expert && i < c->n_expert; i++) add_mlp(h, &l->expert[i]);
}

nb_status nb_model_hash(const nb_model *m, char hex[65], nb_error *err)
{
    static const char digit[] = "0123456789abcdef";
    unsigned char sum[32];
    unsigned n = 0;
    hasher h = { .ctx = EVP_MD_CTX_new() };
    h.ok = h.ctx && EVP_DigestInit_ex(h.ctx, EVP_sha256(), NULL) == 1;
    if (h.ok) add_config(&h, &m->c);
    if (h.ok) add_matrix(&h, &m->embed, false);
    if (h.ok) add_matrix(&h, &m->head, false);
    if (h.ok) add_vector(&h, m->final_norm, m->c.hidden);
    for (size_t i = 0; h.ok && i < m->c.n_layer; i++) add_layer(&h, m, i);
    h.ok = h.ok && EVP_DigestFinal_ex(h.ctx, sum, &n) == 1 && n == sizeof sum;
    EVP_MD_CTX_free(h.ctx);
    if (!h.ok) return nb_fail(err, NB_ERR_INTERNAL, "the model's hash cannot be computed");
    for (size_t i = 0; i < sizeof sum; i++) {
        hex[2 * i] = digit[sum[i] >> 4];
        hex[2 * i + 1] = digit[sum[i] & 15];
    }
    hex[64] = 0;
    return NB_OK;
}
