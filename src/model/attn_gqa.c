/* attn_gqa.c - grouped-query attention: the cache keeps keys and values of n_kv_head heads, each shared by
 * n_head / n_kv_head query heads.  MHA is n_kv_head = n_head, MQA is n_kv_head = 1.
 * Source: Ainslie et al. 2023 (arXiv 2305.13245). */
#include "model/attention.h"

#include <stddef.h>

#define AT(member) offsetof(nb_layer, member)

static size_t q_rows(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->n_head * a->head_dim;
}
static size_t kv_rows(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->n_kv_head * a->head_dim;
}
static size_t head(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->head_dim;
}

static bool q_bias(const nb_attn_config *a)
{
    return a->q_bias;
}
static bool kv_bias(const nb_attn_config *a)
{
    return a->kv_bias;
}
static bool qk_norm(const nb_attn_config *a)
{
    return a->qk_norm;
}
static bool o_bias(const nb_attn_config *a)
{
    return a->o_bias;
}

static const nb_tensor_row tensors[] = {
    { "self_attn.q_proj.weight", AT(q), q_rows, nb_dim_hidden, NULL, false },
    { "self_attn.q_proj.bias", AT(q_b_bias), q_rows, NULL, q_bias, false },
    { "self_attn.k_proj.weight", AT(k), kv_rows, nb_dim_hidden, NULL, false },
    { "self_attn.k_proj.bias", AT(k_b), kv_rows, NULL, kv_bias, false },
    { "self_attn.v_proj.weight", AT(v), kv_rows, nb_dim_hidden, NULL, false },
    { "self_attn.v_proj.bias", AT(v_b), kv_rows, NULL, kv_bias, false },
    { "self_attn.q_norm.weight", AT(q_norm), head, NULL, qk_norm, true },
    { "self_attn.k_norm.weight", AT(k_norm), head, NULL, qk_norm, true },
    { "self_attn.o_proj.weight", AT(o), nb_dim_hidden, q_rows, NULL, false },
    { "self_attn.o_proj.bias", AT(o_b), nb_dim_hidden, NULL, o_bias, false },
};

static nb_attn_dims dims(const nb_attn_config *a)
{
    return (nb_attn_dims){ .n_head = a->n_head,
                           .d_q = a->head_dim,
                           .d_o = a->head_dim,
                           .d_state = a->head_dim,
                           .n_values = 2 * a->n_kv_head * a->head_dim };
}

static void record(const nb_attn_config *a, nb_record_opts *o)
{
    o->n_seg = 2;
    o->seg[0] = (nb_seg_opts){ .role = NB_ROLE_K, .dim = a->head_dim, .n_vec = a->n_kv_head };
    o->seg[1] = (nb_seg_opts){ .role = NB_ROLE_V, .dim = a->head_dim, .n_vec = a->n_kv_head };
}

static nb_attn_cost cost(const nb_attn_config *a)
{
    const double pair = 2 * (double)a->n_head * 2 * (double)a->head_dim;
    return (nb_attn_cost){ .pair_flop_prompt = pair,
                           .pair_flop_decode = pair,
                           .k_dim = a->head_dim,
                           .v_dim = a->head_dim,
                           .n_kv_head = a->n_kv_head };
}

const nb_attention nb_attention_gqa = {
    .name = "gqa",
    .plane = { "keys", "values" },
    .tensor = tensors,
    .n_tensor = NB_COUNT(tensors),
    .divides = true,
    .dims = dims,
    .record = record,
    .cost = cost,
};
