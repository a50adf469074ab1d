/* attn_kda.c - Kimi Delta Attention: a state per head instead of a cache.
 *
 *   q, k, v = silu(conv(W x)) per channel, over the last `conv` tokens; q and k of length 1, q / sqrt(head_dim)
 *   decay   = exp(-exp(a_log) softplus(W_fb W_fa x + dt_bias)), per channel of the key
 *   S       = diag(decay) S, then S += k beta (v - k S), beta = sigmoid(W_b x); the head's output is q S
 *   output  = norm(q S) * o_norm * sigmoid(W_gb W_ga x)
 * The state of a layer is S [n_head][head_dim][head_dim], then the last conv - 1 rows of W x of q, k and v:
 * [3][conv - 1][n_head * head_dim].  Nothing of a token is cached.
 * Source: Kimi Linear (arXiv 2510.26692). */
#include "model/attention.h"

#include <stddef.h>

#define AT(member) offsetof(nb_layer, member)

static size_t channels(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->n_head * a->head_dim;
}
static size_t head(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->head_dim;
}
static size_t heads(const nb_model_config *c, const nb_attn_config *a)
{
    (void)c;
    return a->n_head;
}
static size_t taps(const nb_model_config *c, const nb_attn_config *a)
{
    return channels(c, a) * a->conv;
}

static const nb_tensor_row tensors[] = {
    { "self_attn.q_proj.weight", AT(q), channels, nb_dim_hidden, NULL, 0 },
    { "self_attn.k_proj.weight", AT(k), channels, nb_dim_hidden, NULL, 0 },
    { "self_attn.v_proj.weight", AT(v), channels, nb_dim_hidden, NULL, 0 },
    { "self_attn.q_conv1d.weight", AT(q_conv), taps, NULL, NULL, NB_T_ONES | NB_T_ANY_SHAPE },
    { "self_attn.k_conv1d.weight", AT(k_conv), taps, NULL, NULL, NB_T_ONES | NB_T_ANY_SHAPE },
    { "self_attn.v_conv1d.weight", AT(v_conv), taps, NULL, NULL, NB_T_ONES | NB_T_ANY_SHAPE },
    { "self_attn.f_a_proj.weight", AT(f_a), head, nb_dim_hidden, NULL, 0 },
    { "self_attn.f_b_proj.weight", AT(f_b), channels, head, NULL, 0 },
    { "self_attn.A_log", AT(a_log), heads, NULL, NULL, NB_T_ANY_SHAPE | NB_T_F32 },
    { "self_attn.dt_bias", AT(dt_bias), channels, NULL, NULL, NB_T_ANY_SHAPE | NB_T_F32 },
    { "self_attn.b_proj.weight", AT(beta), heads, nb_dim_hidden, NULL, 0 },
    { "self_attn.g_a_proj.weight", AT(g_a), head, nb_dim_hidden, NULL, 0 },
    { "self_attn.g_b_proj.weight", AT(g_b), channels, head, NULL, 0 },
    { "self_attn.o_norm.weight", AT(o_norm), head, NULL, NULL, NB_T_ONES },
    { "self_attn.o_proj.weight", AT(o), nb_dim_hidden, channels, NULL, 0 },
};

/* [channel][tap] of the file to [tap][channel], so that a token's channels are neighbours. */
static nb_status turn(nb_model *m, const float **taps, size_t n, size_t w, nb_error *err)
{
    float *t = nb_arena_array(&m->arena, n * w, sizeof *t);
    if (!t) return nb_fail(err, NB_ERR_NOMEM, "out of memory for short convolutions");
    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; b < w; b++) t[b * n + i] = (*taps)[i * w + b];
    *taps = t;
    return NB_OK;
}

static nb_status loaded(nb_model *m, size_t layer, nb_error *err)
{
    const nb_attn_config *a = nb_layer_attn(&m->c, layer);
    nb_layer *l = &m->layer[layer];
    const float **const taps[] = { &l->q_conv, &l->k_conv, &l->v_conv };
    for (size_t j = 0; j < NB_COUNT(taps); j++)
        NB_TRY(turn(m, taps[j], a->n_head * a->head_dim, a->conv, err));
    return NB_OK;
}

static nb_attn_dims dims(const nb_attn_config *a)
{
    const size_t d = a->head_dim;
    return (nb_attn_dims){ .n_head = a->n_head,
                           .d_q = 5 * d + 1, /* q, k, v, decay, gate, beta */
                           .d_o = d,
                           .n_state = a->n_head * d * (d + 3 * (a->conv - 1)),
                           .d_low = 2 * d };
}

/* Per token, not per pair: it is counted where the products of the projections are, in n_param_active. */
static nb_attn_cost cost(const nb_attn_config *a)
{
    return (nb_attn_cost){ .k_dim = a->head_dim, .v_dim = a->head_dim, .n_kv_head = a->n_head };
}

const nb_attention nb_attention_kda = {
    .name = "kda",
    .tensor = tensors,
    .n_tensor = NB_COUNT(tensors),
    .dims = dims,
    .loaded = loaded,
    .cost = cost,
};
