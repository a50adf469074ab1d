/* attn_mla.c - multi-head latent attention: the cache keeps one latent and one rotary key for all heads.
 *
 *   latent c_t = norm(W_kv_a x_t) [kv_lora], rotary key k_t [d_rope] shared by the heads
 *   score(h, t) = scale * (q_h^n . W_UK,h c_t + q_h^r . k_t), output o_h = W_UV,h sum_t p(h, t) c_t
 * W_kv_b holds W_UK,h and W_UV,h per head.  Absorbed form: W_UK goes into the query and W_UV into the output,
 * so that all heads read the latents as they are.  Expanded form: keys and values are rebuilt per head.
 * Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1.
 *
 * With an indexer (DSA) a query attends to the index_topk tokens t of largest
 *   I(t) = sum_h w_h max(0, q~_h . k~_t),  w = W_w x * index_head^-1/2 * index_dim^-1/2
 *   q~_h = H rope(W_q~,h norm(W_q_a x)), k~_t = H rope(layernorm(W_k~ x_t))
 * where rope turns the first d_rope values and H is an orthonormal Hadamard transform, and to all of them where there
 * are no more.  Layers without an indexer of their own read the choice of the nearest one before.
 * Source: DeepSeek-V3.2-Exp; sharing: IndexShare (arXiv 2603.12201). */
#include "model/attention.h"

#include <stddef.h>

#define AT(member) offsetof(nb_layer, member)

static size_t q_lora(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->q_lora;
}
static size_t kv_lora(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->kv_lora;
}
static size_t kv_a_rows(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->kv_lora + a->d_rope;
}
static size_t q_rows(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->n_head * (a->d_nope + a->d_rope);
}
static size_t kv_b_rows(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->n_head * (a->d_nope + a->d_v);
}
static size_t o_cols(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->n_head * a->d_v;
}

static bool plain_q(const nb_attn_config *a)
{
    return a->q_lora == 0;
}
static bool low_rank_q(const nb_attn_config *a)
{
    return a->q_lora != 0;
}
static bool low_rank_q_bias(const nb_attn_config *a)
{
    return a->q_lora != 0 && a->qa_bias;
}
static bool kv_a_bias(const nb_attn_config *a)
{
    return a->qa_bias;
}
static bool o_bias(const nb_attn_config *a)
{
    return a->o_bias;
}

// clang-format off
#define LATENT_ROWS \
    { "self_attn.q_proj.weight", AT(q), q_rows, nb_dim_hidden, plain_q, false }, \
    { "self_attn.q_a_proj.weight", AT(q_a), q_lora, nb_dim_hidden, low_rank_q, false }, \
    { "self_attn.q_a_proj.bias", AT(q_a_b), q_lora, NULL, low_rank_q_bias, false }, \
    { "self_attn.q_a_layernorm.weight", AT(q_a_norm), q_lora, NULL, low_rank_q, true }, \
    { "self_attn.q_b_proj.weight", AT(q_b), q_rows, q_lora, low_rank_q, false }, \
    { "self_attn.kv_a_proj_with_mqa.weight", AT(kv_a), kv_a_rows, nb_dim_hidden, NULL, false }, \
    { "self_attn.kv_a_proj_with_mqa.bias", AT(kv_a_b), kv_a_rows, NULL, kv_a_bias, false }, \
    { "self_attn.kv_a_layernorm.weight", AT(kv_a_norm), kv_lora, NULL, NULL, true }, \
    { "self_attn.kv_b_proj.weight", AT(kv_b), kv_b_rows, kv_lora, NULL, false }, \
    { "self_attn.o_proj.weight", AT(o), nb_dim_hidden, o_cols, NULL, false }, \
    { "self_attn.o_proj.bias", AT(o_b), nb_dim_hidden, NULL, o_bias, false }
// clang-format on

static const nb_tensor_row tensors[] = { LATENT_ROWS };

static nb_attn_dims dims(const nb_attn_config *a)
{
    return (nb_attn_dims){ .n_head = a->n_head,
                           .d_q = a->d_nope + a->d_rope,
                           .d_o = a->d_v,
                           .d_state = a->kv_lora,
                           .n_values = a->kv_lora + a->d_rope,
                           .d_low = a->q_lora };
}

static void record(const nb_attn_config *a, nb_record_opts *o)
{
    o->n_seg = 2;
    o->seg[0] = (nb_seg_opts){ .role = NB_ROLE_LATENT, .dim = a->kv_lora, .n_vec = 1 };
    o->seg[1] = (nb_seg_opts){ .role = NB_ROLE_ROPE, .dim = a->d_rope, .n_vec = 1 };
}

static nb_attn_cost cost(const nb_attn_config *a)
{
    const double heads = (double)a->n_head, lora = (double)a->kv_lora, rope = (double)a->d_rope;
    const double nope = (double)a->d_nope, v = (double)a->d_v;
    return (nb_attn_cost){ .pair_flop_prompt = 2 * heads * (nope + rope + v),
                           .pair_flop_decode = 2 * heads * (2 * lora + rope),
                           .expand_flop = 2 * heads * lora * (nope + v),
                           .k_dim = a->d_nope + a->d_rope,
                           .v_dim = a->d_v,
                           .n_kv_head = 1 };
}

static void scale(const float *norm, size_t n, float factor)
{
    float *w = (float *)(size_t)(const void *)norm; /* of the model's own arena */
    for (size_t i = 0; w && factor != 0 && i < n; i++) w[i] *= factor;
}

/* The factors go into the norms; the cached latent then has its. */
static nb_status loaded(nb_model *m, size_t layer, nb_error *err)
{
    const nb_attn_config *a = nb_layer_attn(&m->c, layer);
    scale(m->layer[layer].q_a_norm, a->q_lora, a->q_a_factor);
    scale(m->layer[layer].kv_a_norm, a->kv_lora, a->kv_a_factor);
    return nb_rope_balance(m, layer, err);
}

const nb_attention nb_attention_mla = {
    .name = "mla",
    .plane = { "latent", "rope" },
    .tensor = tensors,
    .n_tensor = NB_COUNT(tensors),
    .has_expanded = true,
    .divides = true,
    .has_rope_key = true,
    .dims = dims,
    .record = record,
    .loaded = loaded,
    .cost = cost,
};

/* ---- with an indexer ---- */

static size_t index_q_rows(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->index_head * a->index_dim;
}
static size_t index_dim(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->index_dim;
}
static size_t index_head(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->index_head;
}
static bool own_indexer(const nb_attn_config *a)
{
    return !a->index_shared;
}

// clang-format off
static const nb_tensor_row dsa_tensors[] = {
    LATENT_ROWS,
    { "self_attn.indexer.wq_b.weight", AT(index_q), index_q_rows, q_lora, own_indexer, 0 },
    { "self_attn.indexer.wk.weight", AT(index_k), index_dim, nb_dim_hidden, own_indexer, 0 },
    { "self_attn.indexer.k_norm.weight", AT(index_norm), index_dim, NULL, own_indexer, NB_T_ONES | NB_T_F32 },
    { "self_attn.indexer.k_norm.bias", AT(index_norm_b), index_dim, NULL, own_indexer, NB_T_F32 },
    { "self_attn.indexer.weights_proj.weight", AT(index_w), index_head, nb_dim_hidden, own_indexer, NB_T_KEEP },
};
// clang-format on

static nb_attn_dims dsa_dims(const nb_attn_config *a)
{
    nb_attn_dims d = dims(a);
    if (own_indexer(a)) d.n_values += a->index_dim;
    return d;
}

static void dsa_record(const nb_attn_config *a, nb_record_opts *o)
{
    record(a, o);
    if (own_indexer(a))
        o->seg[o->n_seg++] =
            (nb_seg_opts){ .role = NB_ROLE_INDEX, .dim = a->index_dim, .n_vec = 1 };
}

static nb_attn_cost dsa_cost(const nb_attn_config *a)
{
    nb_attn_cost n = cost(a);
    n.most_pairs = a->index_topk;
    if (own_indexer(a)) n.pair_flop_choose = 2 * (double)a->index_head * (double)a->index_dim;
    return n;
}

const nb_attention nb_attention_dsa = {
    .name = "dsa",
    .plane = { "latent", "rope", "index" },
    .tensor = dsa_tensors,
    .n_tensor = NB_COUNT(dsa_tensors),
    .has_expanded = true,
    .divides = true,
    .has_rope_key = true,
    .dims = dsa_dims,
    .record = dsa_record,
    .loaded = nb_rope_balance,
    .cost = dsa_cost,
};
