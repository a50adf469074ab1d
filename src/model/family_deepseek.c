/* family_deepseek.c - DeepSeek V2 (V2, V2-Lite, V2.5), V3 (V3, R1, V3.1,
 * Moonlight, Kimi K2), A.X-K1, Sarvam, Youtu and GLM-4.7-Flash: one kind of attention, and
 * feed-forward blocks that differ in routing.
 *
 * Defaults of absent keys are those of the families' classes in transformers. */
#include <math.h>
#include <string.h>

#include "model/family_mla.h"

static const char *const known_mla[] = {
    "topk_method",
    "scoring_func",
    "first_k_dense_replace",
    "attention_bias",
    "mlp_bias",
    "rope_interleave",
    "n_group",
    "topk_group",
    "mlp_layer_types",
    "embedding_initializer_range",
    "kv_lora_rank",
    "norm_topk_prob",
    "q_lora_rank",
    NULL,
};

/* ---- deepseek_v2 ---- */

static const char *const v2_types[] = { "deepseek_v2", NULL };
static const nb_field v2_fields[] = {
    MLA_FIELDS(1536, 512, 128, 64, 128, 1e-6, 2048),
    MOE_FIELDS(64, 2, 1407, 1.0),
    NB_F_SIZE("num_experts_per_tok", top_k, 0, 0, 64),
    NB_F_BOOL("tie_word_embeddings", tied, 0),
    NB_F_BOOL("mlp_bias", mlp_bias, 0),
    FIELDS_END,
};
static const nb_only v2_only[] = {
    { "scoring_func", "softmax", 0 },
    { "topk_method", "greedy group_limited_greedy", 0 },
    { "moe_layer_freq", NULL, 1 },
    { NULL, NULL, 0 },
};

static nb_status v2_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    const char *method = "greedy";
    nb_mla_dense(doc, c, 0);
    (void)nb_doc_str(doc, "topk_method", &method);
    NB_TRY(nb_mla_groups(doc, c, 1, 1, err));
    if (!strcmp(method, "greedy")) c->n_group = c->topk_group = 1;
    NB_TRY(nb_family_check_experts(doc, c, err));
    return nb_mla_finish(doc, c, 1536, true, err);
}

const nb_family nb_family_deepseek_v2 = {
    "deepseek_v2", v2_types, v2_fields, v2_only, known_mla, v2_finish,
};

/* ---- deepseek_v3, kimi_k2 ---- */

static const char *const v3_types[] = { "deepseek_v3", "kimi_k2", NULL };
static const nb_field v3_fields[] = {
    MLA_FIELDS(1536, 512, 128, 64, 128, 1e-6, 4096),   MOE_FIELDS(256, 1, 2048, 2.5),
    NB_F_SIZE("num_experts_per_tok", top_k, 8, 0, 64), NB_F_BOOL("tie_word_embeddings", tied, 0),
    NB_F_BOOL("norm_topk_prob", normalise, 1),         FIELDS_END,
};
static const nb_only v3_only[] = {
    { "qk_layernorm", NULL, 0 },      { "scoring_func", "sigmoid", 0 },
    { "topk_method", "noaux_tc", 0 }, { "moe_layer_freq", NULL, 1 },
    { "mlp_bias", NULL, 0 },          { NULL, NULL, 0 },
};

static void sigmoid_routing(nb_model_config *c)
{
    c->sigmoid = c->router_bias = true;
    c->group_top = 2;
}

static nb_status like_v3(nb_doc *doc, nb_model_config *c, size_t n_dense, nb_error *err)
{
    bool interleaved = true;
    nb_mla_dense(doc, c, n_dense);
    (void)nb_doc_bool(doc, "rope_interleave", &interleaved);
    sigmoid_routing(c);
    NB_TRY(nb_mla_groups(doc, c, 8, 4, err));
    NB_TRY(nb_family_check_experts(doc, c, err));
    return nb_mla_finish(doc, c, 1536, interleaved, err);
}

static nb_status v3_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    return like_v3(doc, c, 3, err);
}

const nb_family nb_family_deepseek_v3 = {
    "deepseek_v3", v3_types, v3_fields, v3_only, known_mla, v3_finish,
};

/* ---- axk1 (A.X-K1): V3, and a norm on the output of MoE blocks ---- */

static const char *const axk1_types[] = { "axk1", "AXK1", NULL };
static const nb_field axk1_fields[] = {
    MLA_FIELDS(1536, 512, 128, 64, 128, 1e-6, 32768),  MOE_FIELDS(192, 1, 2048, 2.5),
    NB_F_SIZE("num_experts_per_tok", top_k, 8, 0, 64), NB_F_BOOL("tie_word_embeddings", tied, 0),
    NB_F_BOOL("norm_topk_prob", normalise, 1),         FIELDS_END,
};

static nb_status axk1_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    c->branch_norm = true;
    return like_v3(doc, c, 1, err);
}

const nb_family nb_family_axk1 = {
    "axk1", axk1_types, axk1_fields, v3_only, known_mla, axk1_finish,
};

/* ---- sarvam_mla (Sarvam-105B): V3 with other keys ---- */

/* head_dim is what a cache row holds, q_head_dim repeats the widths.  Where groups are not given, they have eight
 * experts, and two count.  The bias's mean has no influence: masked groups are left out, whatever their bias. */
static const char *const sarvam_types[] = { "sarvam_mla", NULL };
static const char *const sarvam_known[] = {
    "first_k_dense_replace",
    "attention_bias",
    "rope_interleave",
    "n_group",
    "topk_group",
    "q_lora_rank",
    "q_head_dim",
    "moe_shared_expert_intermediate_size",
    "embedding_dropout",
    "output_dropout",
    "router_dtype",
    "scoring_func",
    "topk_method",
    NULL,
};
static const nb_field sarvam_fields[] = {
    MLA_FIELDS(0, 512, 128, 64, 128, 1e-6, 4096),
    NB_F_SIZE("num_experts", n_expert, 128, 0, 4096),
    NB_F_SIZE("num_shared_experts", n_shared, 1, 0, 256),
    NB_F_SIZE("moe_intermediate_size", moe_inter, 2048, 0, NB_DIM_MAX),
    NB_F_F32("routed_scaling_factor", routed_factor, 2.5, -1e6, 1e6),
    NB_F_SIZE("num_experts_per_tok", top_k, 8, 0, 64),
    NB_F_BOOL("tie_word_embeddings", tied, 0),
    NB_F_BOOL("norm_topk_prob", normalise, 1),
    FIELDS_END,
};
static const nb_only sarvam_only[] = {
    { "score_function", "sigmoid", 0 },
    { "scoring_func", "sigmoid", 0 },
    { "topk_method", "noaux_tc", 0 },
    { "moe_router_enable_expert_bias", NULL, 1 },
    { "moe_layer_freq", NULL, 1 },
    { "use_bias", NULL, 0 },
    { "use_qkv_bias", NULL, 0 },
    { "n_routed_experts", NULL, NAN },
    { NULL, NULL, 0 },
};

static nb_status sarvam_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    bool interleaved = true;
    size_t shared = c->n_shared * c->moe_inter;
    nb_mla_dense(doc, c, 1);
    (void)nb_doc_bool(doc, "rope_interleave", &interleaved);
    (void)nb_doc_size(doc, "moe_shared_expert_intermediate_size", 0, NB_DIM_MAX, &shared);
    NB_TRY(nb_doc_check(doc, err));
    if (shared != c->n_shared * c->moe_inter)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: moe_shared_expert_intermediate_size: %zu is not supported (expected: "
                       "num_shared_experts * moe_intermediate_size, %zu)",
                       nb_doc_name(doc), shared, c->n_shared * c->moe_inter);
    sigmoid_routing(c);
    NB_TRY(
        nb_mla_groups(doc, c, c->n_expert > 8 ? c->n_expert / 8 : 1, c->n_expert > 8 ? 2 : 1, err));
    NB_TRY(nb_family_check_experts(doc, c, err));
    return nb_mla_finish(doc, c, 0, interleaved, err);
}

const nb_family nb_family_sarvam_mla = {
    "sarvam_mla", sarvam_types, sarvam_fields, sarvam_only, sarvam_known, sarvam_finish,
};

/* ---- glm4_moe_lite (GLM-4.7-Flash) ---- */

static const char *const glm_types[] = { "glm4_moe_lite", NULL };
static const nb_field glm_fields[] = {
    MLA_FIELDS(768, 512, 192, 64, 256, 1e-5, 202752),  MOE_FIELDS(64, 1, 1536, 1.8),
    NB_F_SIZE("num_experts_per_tok", top_k, 4, 0, 64), NB_F_BOOL("tie_word_embeddings", tied, 0),
    NB_F_BOOL("norm_topk_prob", normalise, 1),         FIELDS_END,
};

static nb_status glm_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    bool interleaved = true;
    (void)nb_doc_bool(doc, "rope_interleave", &interleaved);
    /* The class knows head_dim as another name of qk_rope_head_dim, and it wins. */
    (void)nb_doc_size(doc, "head_dim", 2, 2 * NB_MAX_ROPE_PAIR, &c->attn[0].d_rope);
    nb_mla_null_counts(doc, c);
    nb_mla_dense_first(c, 1);
    NB_TRY(nb_mla_dense_list(doc, c, err));
    sigmoid_routing(c);
    NB_TRY(nb_mla_groups(doc, c, 1, 1, err));
    NB_TRY(nb_family_check_experts(doc, c, err));
    return nb_mla_finish(doc, c, 768, interleaved, err);
}

const nb_family nb_family_glm4_moe_lite = {
    "glm4_moe_lite", glm_types, glm_fields, v3_only, known_mla, glm_finish,
};

/* ---- youtu ---- */

static const char *const youtu_types[] = { "youtu", "youtu_llm", NULL };
static const nb_field youtu_fields[] = {
    MLA_FIELDS(1536, 512, 128, 64, 128, 1e-6, 131072),
    NB_F_BOOL("tie_word_embeddings", tied, 1),
    FIELDS_END,
};
static const nb_only youtu_only[] = {
    { "n_routed_experts", NULL, NAN },
    { "mlp_bias", NULL, 0 },
    { NULL, NULL, 0 },
};

static nb_status youtu_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    bool interleaved = true;
    (void)nb_doc_bool(doc, "rope_interleave", &interleaved);
    nb_mla_dense_first(c, c->n_layer);
    return nb_mla_finish(doc, c, 1536, interleaved, err);
}

const nb_family nb_family_youtu = {
    "youtu", youtu_types, youtu_fields, youtu_only, known_mla, youtu_finish,
};

/* ---- minicpm3 ---- */

static const char *const minicpm_types[] = { "minicpm3", NULL };
static const char *const known_minicpm[] = {
    "scale_emb",   "scale_depth",    "dim_model_base", "v_head_dim",
    "q_lora_rank", "attention_bias", "mup_base_model", NULL,
};
static const nb_field minicpm_fields[] = {
    NB_F_SIZE("kv_lora_rank", attn[0].kv_lora, 256, 1, 65536),
    NB_F_SIZE("qk_nope_head_dim", attn[0].d_nope, 64, 1, 65536),
    NB_F_SIZE("qk_rope_head_dim", attn[0].d_rope, 32, 2, 2 * NB_MAX_ROPE_PAIR),
    NB_F_F32("rms_norm_eps", eps, 1e-5, 1e-30, 1),
    NB_F_SIZE("max_position_embeddings", max_pos, 32768, 1, 1u << 30),
    NB_F_SIZE("intermediate_size", inter, NAN, 1, NB_DIM_MAX),
    NB_F_BOOL("attention_bias", attn[0].qa_bias, 0),
    NB_F_BOOL("mlp_bias", mlp_bias, 0),
    NB_F_F32("scale_emb", embed_factor, 12, -1e6, 1e6),
    NB_F_BOOL("tie_word_embeddings", tied, 1),
    FIELDS_END,
};
static const nb_only no_only[] = { { NULL, NULL, 0 } };

static nb_status minicpm_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    /* A key that is present and null switches its factor off. */
    double depth = nb_doc_present(doc, "scale_depth") ? 0 : 1.4;
    double base = nb_doc_present(doc, "dim_model_base") ? 0 : 256;
    (void)nb_doc_f64(doc, "scale_depth", &depth);
    (void)nb_doc_f64(doc, "dim_model_base", &base);
    c->branch_factor = depth != 0 ? (float)(depth / sqrt((double)c->n_layer)) : 1.0f;
    c->logit_factor = base != 0 ? (float)(base / (double)c->hidden) : 1.0f;
    c->attn[0].d_v = c->hidden / c->attn[0].n_head;
    (void)nb_doc_size(doc, "v_head_dim", 1, 65536, &c->attn[0].d_v);
    NB_TRY(nb_doc_check(doc, err));
    if (c->attn[0].d_v == 0)
        return nb_fail(err, NB_ERR_FORMAT, "%s: v_head_dim is 0", nb_doc_name(doc));
    nb_mla_dense_first(c, c->n_layer);
    return nb_mla_finish(doc, c, 768, false, err);
}

const nb_family nb_family_minicpm3 = {
    "minicpm3", minicpm_types, minicpm_fields, no_only, known_minicpm, minicpm_finish,
};
