/* family_kimi_linear.c - Kimi-Linear: layers with Kimi Delta Attention, and every fourth or so with latent attention whose
 * keys are not rotated.  The rest is V3's: sigmoid routing with a bias, shared experts, a dense first layer.
 *
 * linear_attn_config names the layers of both kinds, counted from 1.  What Kimi K3 adds (other gates, residual
 * attention, experts in a latent) is refused by name.  Source: config.json and modeling code of
 * Kimi-Linear-48B-A3B. */
#include <math.h>
#include <string.h>

#include "model/family_mla.h"

static const char *const kimi_types[] = { "kimi_linear", NULL };
static const char *const kimi_known[] = {
    "linear_attn_config",
    "first_k_dense_replace",
    "q_lora_rank",
    "attention_bias",
    "mla_use_nope",
    "rope_scaling",
    "rope_parameters",
    "rope_theta",
    "use_grouped_topk",
    "model_max_length",
    NULL,
};

enum { MLA, KDA };

static const nb_field kimi_fields[] = {
    NB_F_SIZE("kv_lora_rank", attn[MLA].kv_lora, NAN, 1, 65536),
    NB_F_SIZE("qk_nope_head_dim", attn[MLA].d_nope, NAN, 1, 65536),
    NB_F_SIZE("qk_rope_head_dim", attn[MLA].d_rope, NAN, 2, 2 * NB_MAX_ROPE_PAIR),
    NB_F_SIZE("v_head_dim", attn[MLA].d_v, NAN, 1, 65536),
    NB_F_SIZE("linear_attn_config.num_heads", attn[KDA].n_head, NAN, 1, 65536),
    NB_F_SIZE("linear_attn_config.head_dim", attn[KDA].head_dim, NAN, 1, 1024),
    NB_F_SIZE("linear_attn_config.short_conv_kernel_size", attn[KDA].conv, NAN, 1, 64),
    NB_F_F32("rms_norm_eps", eps, 1e-5, 1e-30, 1),
    NB_F_SIZE("max_position_embeddings", max_pos, 0, 0, 1u << 30),
    NB_F_SIZE("intermediate_size", inter, NAN, 1, NB_DIM_MAX),
    NB_F_SIZE("num_experts", n_expert, 256, 0, 4096),
    NB_F_SIZE("num_shared_experts", n_shared, 1, 0, 256),
    NB_F_SIZE("moe_intermediate_size", moe_inter, 1024, 0, NB_DIM_MAX),
    NB_F_F32("routed_scaling_factor", routed_factor, 2.446, -1e6, 1e6),
    NB_F_SIZE("num_experts_per_token", top_k, 8, 0, 64),
    NB_F_BOOL("moe_renormalize", normalise, 1),
    NB_F_BOOL("tie_word_embeddings", tied, 0),
    FIELDS_END,
};

static const nb_only kimi_only[] = {
    { "moe_router_activation_func", "sigmoid", 0 },
    { "num_expert_group", NULL, 1 },
    { "topk_group", NULL, 1 },
    { "moe_layer_freq", NULL, 1 },
    { "mla_use_output_gate", NULL, 0 },
    { "attn_res_block_size", NULL, 0 },
    { "routed_expert_hidden_size", NULL, NAN },
    { "moe_latent_size", NULL, NAN },
    { "linear_attn_config.gate_lower_bound", NULL, NAN },
    { "linear_attn_config.use_full_rank_gate", NULL, 0 },
    { NULL, NULL, 0 },
};

/* kda_layers and full_attn_layers, counted from 1: each layer once. */
static nb_status read_layers(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    static const char *const key[] = { "linear_attn_config.full_attn_layers",
                                       "linear_attn_config.kda_layers" };
    bool named[NB_MAX_LAYER] = { false };
    size_t all = 0, full = 0;
    for (unsigned k = 0; k < 2; k++) {
        uint64_t at[NB_MAX_LAYER];
        size_t n = 0;
        (void)nb_doc_u64s(doc, key[k], NB_MAX_LAYER, at, NB_MAX_LAYER, &n);
        NB_TRY(nb_doc_check(doc, err));
        for (size_t i = 0; i < n; i++) {
            if (at[i] < 1 || at[i] > c->n_layer || named[at[i] - 1])
                return nb_fail(err, NB_ERR_FORMAT,
                               "%s: %s: layer %llu; expected each of 1 to %zu once",
                               nb_doc_name(doc), key[k], (unsigned long long)at[i], c->n_layer);
            named[at[i] - 1] = true;
            c->attn_of[at[i] - 1] = k == 0 ? MLA : KDA;
        }
        all += n;
        if (k == 0) full = n;
    }
    if (all != c->n_layer)
        return nb_fail(err, NB_ERR_FORMAT, "%s: linear_attn_config names %zu of %zu layers",
                       nb_doc_name(doc), all, c->n_layer);
    if (full == 0)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: linear_attn_config.full_attn_layers is empty: models without cached "
                       "keys are not supported",
                       nb_doc_name(doc));
    return NB_OK;
}

static nb_status read_switches(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    bool nope = false;
    size_t lora = 0;
    (void)nb_doc_bool(doc, "mla_use_nope", &nope);
    (void)nb_doc_size(doc, "q_lora_rank", 0, 65536, &lora);
    if (!c->max_pos) {
        c->max_pos = 1048576;
        (void)nb_doc_size(doc, "model_max_length", 1, 1u << 30, &c->max_pos);
    }
    NB_TRY(nb_doc_check(doc, err));
    if (!nope)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: mla_use_nope: only true is supported (latent attention without "
                       "rotation)",
                       nb_doc_name(doc));
    c->attn[MLA].q_lora = lora;
    return NB_OK;
}

static nb_status kimi_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    static const nb_moe_names names = { "block_sparse_moe", "w1", "w3", "w2" };
    nb_attn_config *mla = &c->attn[MLA], *kda = &c->attn[KDA];
    NB_TRY(read_layers(doc, c, err));
    NB_TRY(read_switches(doc, c, err));
    c->n_attn = 2;
    c->moe_names = &names;
    mla->kind = NB_ATTN_MLA;
    mla->rope.interleaved = true; /* of no consequence: rope.dim is 0 */
    mla->softmax_scale = (float)(1 / sqrt((double)(mla->d_nope + mla->d_rope)));
    kda->kind = NB_ATTN_KDA;
    kda->softmax_scale = (float)(1 / sqrt((double)kda->head_dim));
    nb_mla_dense(doc, c, 1);
    c->sigmoid = c->router_bias = true;
    c->group_top = 2;
    c->n_group = c->topk_group = 1;
    return nb_family_check_experts(doc, c, err);
}

const nb_family nb_family_kimi_linear = {
    "kimi_linear", kimi_types, kimi_fields, kimi_only, kimi_known, kimi_finish,
};
