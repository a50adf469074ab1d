/* family_v4.c - DeepSeek V4 (Flash, Pro): compressed attention of three ratios, four residual streams, first layers
 * that choose experts by the token.
 *
 * Keys in the spelling of the published files (compress_ratios, num_hash_layers, rope_scaling) and of transformers
 * (layer_types, compress_rates, mlp_layer_types, rope_parameters with one dictionary for each kind of layer). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"

enum { BASE = 0, WINDOW_MAX = 4096, RATIO_CSA = 4, RATIO_HCA = 128 };

static const char *const v4_types[] = { "deepseek_v4", NULL };
static const char *const v4_known[] = {
    "index_topk",
    "partial_rotary_factor",
    "rope_parameters.partial_rotary_factor",
    "compress_ratios",
    "compress_rates",
    "compress_rope_theta",
    "num_hash_layers",
    "expert_dtype",
    "scoring_func",
    "topk_method",
    "intermediate_size",
    "router_jitter_noise",
    "head_dim",
    "qk_rope_head_dim",
    "dspark_block_size",
    NULL,
};
static const nb_field v4_fields[] = {
    NB_F_SIZE("q_lora_rank", attn[BASE].q_lora, 1024, 1, 65536),
    NB_F_SIZE("head_dim", attn[BASE].head_dim, 512, 4, 8192),
    NB_F_SIZE("o_groups", attn[BASE].o_group, 8, 1, 65536),
    NB_F_SIZE("o_lora_rank", attn[BASE].o_lora, 1024, 1, 65536),
    NB_F_SIZE("sliding_window", attn[BASE].window, 128, 1, WINDOW_MAX),
    NB_F_SIZE("index_n_heads", attn[BASE].index_head, 64, 1, 4096),
    NB_F_SIZE("index_head_dim", attn[BASE].index_dim, 128, 2, 4096),
    NB_F_SIZE("index_topk", attn[BASE].index_topk, 512, 1, 65536),
    NB_F_SIZE("n_routed_experts", n_expert, 256, 1, 4096),
    NB_F_SIZE("n_shared_experts", n_shared, 1, 0, 256),
    NB_F_SIZE("moe_intermediate_size", moe_inter, 2048, 1, NB_DIM_MAX),
    NB_F_SIZE("num_experts_per_tok", top_k, 6, 1, 64),
    NB_F_F32("routed_scaling_factor", routed_factor, 1.5, -1e6, 1e6),
    NB_F_BOOL("norm_topk_prob", normalise, 1),
    NB_F_F32("swiglu_limit", act_limit, 10, 0, 1e30),
    NB_F_SIZE("hc_mult", n_stream, 4, 1, 16),
    NB_F_SIZE("hc_sinkhorn_iters", n_sinkhorn, 20, 1, 1000),
    NB_F_F32("hc_eps", stream_eps, 1e-6, 0, 1),
    NB_F_F32("rms_norm_eps", eps, 1e-6, 1e-30, 1),
    NB_F_SIZE("max_position_embeddings", max_pos, 1048576, 1, 1u << 30),
    NB_F_BOOL("tie_word_embeddings", tied, 0),
    { NULL, NB_FIELD_SIZE, 0, 0, 0, 0 },
};
static const nb_only v4_only[] = {
    { "scoring_func", "sqrtsoftplus", 0 },
    { "topk_method", "noaux_tc", 0 },
    { "expert_dtype", "fp4", 0 },
    { "num_key_value_heads", NULL, 1 },
    { "attention_bias", NULL, 0 },
    { "mlp_bias", NULL, 0 },
    { NULL, NULL, 0 },
};

/* ---- the layers' kinds ---- */

static nb_status bad_ratio(const nb_doc *doc, const char *key, size_t layer, nb_error *err)
{
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   "%s: %s: the entry of layer %zu is not supported (expected: a window alone, or "
                   "rows of %d or %d tokens)",
                   nb_doc_name(doc), key, layer, RATIO_CSA, RATIO_HCA);
}

/* compress_ratios: one for each layer, and for those that predict further tokens. */
static nb_status read_ratios(nb_doc *doc, const nb_model_config *c, uint64_t *ratio, nb_error *err)
{
    size_t n = 0;
    (void)nb_doc_u64s(doc, "compress_ratios", UINT32_MAX, ratio, NB_MAX_LAYER, &n);
    NB_TRY(nb_doc_check(doc, err));
    if (n < c->n_layer || n > c->n_layer + c->n_nextn + 2)
        return nb_fail(err, NB_ERR_FORMAT, "%s: compress_ratios has %zu entries, expected %zu",
                       nb_doc_name(doc), n, c->n_layer);
    return NB_OK;
}

/* layer_types, with compress_rates; without any of it as Pro has them. */
static nb_status read_types(nb_doc *doc, const nb_model_config *c, uint64_t *ratio, nb_error *err)
{
    static const char *const names[] = { "sliding_attention", "compressed_sparse_attention",
                                         "heavily_compressed_attention" };
    static const uint64_t values[] = { 0, RATIO_CSA, RATIO_HCA };
    const char *kind[NB_MAX_LAYER];
    size_t n = 0;
    for (size_t i = 0; i < c->n_layer; i++) ratio[i] = i < 2 || i % 2 ? RATIO_HCA : RATIO_CSA;
    for (size_t k = 1; k < NB_COUNT(names); k++) {
        char key[64];
        size_t v = (size_t)values[k];
        (void)snprintf(key, sizeof key, "compress_rates.%s", names[k]);
        (void)nb_doc_size(doc, key, 1, 65536, &v);
        if (v != values[k]) return bad_ratio(doc, key, 0, err);
    }
    if (!nb_doc_strs(doc, "layer_types", kind, NB_MAX_LAYER, &n)) return nb_doc_check(doc, err);
    if (n != c->n_layer)
        return nb_fail(err, NB_ERR_FORMAT, "%s: layer_types has %zu entries, expected %zu",
                       nb_doc_name(doc), n, c->n_layer);
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < NB_COUNT(names) && strcmp(kind[i], names[k]) != 0) k++;
        if (k == NB_COUNT(names)) return bad_ratio(doc, "layer_types", i, err);
        ratio[i] = values[k];
    }
    return nb_doc_check(doc, err);
}

/* One attention for each ratio that a layer has; base is what they share, rope[1] of layers with compressed rows. */
static nb_status set_kinds(const nb_doc *doc, nb_model_config *c, const uint64_t *ratio,
                           const nb_rope_config rope[2], nb_error *err)
{
    const nb_attn_config base = c->attn[BASE];
    c->n_attn = 0;
    for (size_t i = 0; i < c->n_layer; i++) {
        size_t k = 0;
        if (ratio[i] != 0 && ratio[i] != RATIO_CSA && ratio[i] != RATIO_HCA)
            return bad_ratio(doc, "compress_ratios", i, err);
        while (k < c->n_attn && c->attn[k].ratio != ratio[i]) k++;
        if (k == c->n_attn) {
            nb_attn_config *a = &c->attn[c->n_attn++];
            *a = base;
            a->ratio = (size_t)ratio[i];
            a->rope = rope[ratio[i] != 0];
            a->index_interleaved = a->rope.interleaved;
            if (ratio[i] != RATIO_CSA) a->index_head = a->index_dim = a->index_topk = 0;
        }
        c->attn_of[i] = (unsigned char)k;
    }
    if (c->n_attn == 1 && c->attn[0].ratio == 0)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: all %zu layers have a window alone: models without cached rows are not "
                       "supported",
                       nb_doc_name(doc), c->n_layer);
    return NB_OK;
}

/* ---- rotation: its own base where rows are compressed, without YaRN's factor on cosines ---- */

static nb_status read_ropes(nb_doc *doc, nb_model_config *c, nb_rope_config rope[2], nb_error *err)
{
    static const char nested[] = "rope_parameters.compress";
    const bool split = nb_doc_is_object(doc, nested);
    const size_t dim = c->attn[BASE].d_rope;
    double theta = 10000, compress = 160000;
    (void)nb_doc_f64(doc, "rope_theta", &theta);
    (void)nb_doc_f64(doc, "compress_rope_theta", &compress);
    if (split) (void)nb_doc_f64(doc, "rope_parameters.main.rope_theta", &theta);
    const char *dict = split                                      ? nested
                       : nb_doc_is_object(doc, "rope_scaling")    ? "rope_scaling"
                       : nb_doc_is_object(doc, "rope_parameters") ? "rope_parameters"
                                                                  : NULL;
    NB_TRY(nb_family_rope_from(doc, c, NULL, theta, dim, true, err));
    rope[0] = c->attn[BASE].rope;
    NB_TRY(nb_family_rope_from(doc, c, dict, compress, dim, true, err));
    rope[1] = c->attn[BASE].rope;
    rope[1].factor = 1;
    if (rope[1].switch_tok == 0) return NB_OK;
    return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: longrope is not supported for this family",
                   nb_doc_name(doc));
}

static nb_status read_rope_dim(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    nb_attn_config *a = &c->attn[BASE];
    double part = 0;
    a->d_rope = a->head_dim / 8;
    if (nb_doc_f64(doc, "partial_rotary_factor", &part) && part > 0 && part <= 1)
        a->d_rope = (size_t)((double)a->head_dim * part);
    (void)nb_doc_size(doc, "qk_rope_head_dim", 2, 2 * NB_MAX_ROPE_PAIR, &a->d_rope);
    NB_TRY(nb_doc_check(doc, err));
    const char *what = NULL;
    if (a->d_rope >= a->head_dim || a->d_rope > a->index_dim)
        what = "qk_rope_head_dim must be less than head_dim and at most index_head_dim";
    else if (a->n_head % a->o_group)
        what = "o_groups must divide num_attention_heads";
    else if (a->o_group * a->o_lora % a->n_head)
        what = "num_attention_heads must divide o_groups * o_lora_rank";
    return what ? nb_fail(err, NB_ERR_UNSUPPORTED, "%s: %s", nb_doc_name(doc), what) : NB_OK;
}

/* mlp_layer_types: hash_moe layers come first. */
static nb_status read_hashed(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    const char *kind[NB_MAX_LAYER];
    size_t n = 0;
    c->n_hash = 3;
    (void)nb_doc_size(doc, "num_hash_layers", 0, NB_MAX_LAYER, &c->n_hash);
    if (nb_doc_strs(doc, "mlp_layer_types", kind, NB_MAX_LAYER, &n)) {
        c->n_hash = 0;
        while (c->n_hash < n && !strcmp(kind[c->n_hash], "hash_moe")) c->n_hash++;
        for (size_t i = c->n_hash; i < n; i++)
            if (strcmp(kind[i], "moe") != 0)
                return nb_fail(err, NB_ERR_UNSUPPORTED,
                               "%s: mlp_layer_types: \"%.40s\" of layer %zu is not supported "
                               "(hash_moe in the first layers, then moe)",
                               nb_doc_name(doc), kind[i], i);
    }
    if (c->n_hash > c->n_layer) c->n_hash = c->n_layer;
    return nb_doc_check(doc, err);
}

static nb_status v4_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    uint64_t ratio[NB_MAX_LAYER + 4];
    nb_rope_config rope[2];
    nb_attn_config *a = &c->attn[BASE];
    a->kind = NB_ATTN_CSA;
    a->n_kv_head = 1;
    a->eps_lora = c->eps;
    a->softmax_scale = (float)(1 / sqrt((double)a->head_dim));
    c->sqrt_softplus = c->router_bias = true;
    c->n_group = c->topk_group = 1;
    NB_TRY(read_rope_dim(doc, c, err));
    NB_TRY(nb_family_check_experts(doc, c, err));
    NB_TRY(read_hashed(doc, c, err));
    NB_TRY(read_ropes(doc, c, rope, err));
    if (nb_doc_has(doc, "compress_ratios"))
        NB_TRY(read_ratios(doc, c, ratio, err));
    else
        NB_TRY(read_types(doc, c, ratio, err));
    return set_kinds(doc, c, ratio, rope, err);
}

const nb_family nb_family_deepseek_v4 = {
    "deepseek_v4", v4_types, v4_fields, v4_only, v4_known, v4_finish,
};
