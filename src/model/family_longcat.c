/* family_longcat.c - LongCat-Flash: a published layer has two attentions and two dense blocks, and routed experts that
 * read what the first block reads and are added behind the second:
 *
 *   x1 = x + attn0(norm(x)),  z = norm(x1),  x2 = x1 + mlp0(z)
 *   x3 = x2 + attn1(norm(x2)),  y = x3 + mlp1(norm(x3)) + experts(z)
 *
 * Here it is two layers, of which the first has a shortcut (config.h).  The router's softmax is over the experts and
 * over zero_expert_num further choices that give back z.  Queries and latents are multiplied by sqrt(hidden / rank).
 * Source: LongCat-Flash Technical Report (arXiv 2509.01322); defaults of absent keys are those of transformers' class. */
#include <math.h>

#include "model/family_mla.h"

static const char *const types[] = { "longcat_flash", NULL };
static const char *const known[] = {
    "attention_bias", "q_lora_rank", "num_hidden_layers", "mla_scale_q_lora", "mla_scale_kv_lora",
    NULL,
};
static const nb_field fields[] = {
    NB_F_SIZE("num_layers", n_layer, NAN, 1, NB_MAX_LAYER / 2),
    NB_F_SIZE("kv_lora_rank", attn[0].kv_lora, 512, 1, 65536),
    NB_F_SIZE("qk_nope_head_dim", attn[0].d_nope, 128, 1, 65536),
    NB_F_SIZE("qk_rope_head_dim", attn[0].d_rope, 64, 2, 2 * NB_MAX_ROPE_PAIR),
    NB_F_SIZE("v_head_dim", attn[0].d_v, 128, 1, 65536),
    NB_F_F32("rms_norm_eps", eps, 1e-5, 1e-30, 1),
    NB_F_SIZE("max_position_embeddings", max_pos, 131072, 1, 1u << 30),
    NB_F_BOOL("attention_bias", attn[0].qa_bias, 0),
    NB_F_SIZE("ffn_hidden_size", inter, NAN, 1, NB_DIM_MAX),
    NB_F_SIZE("expert_ffn_hidden_size", moe_inter, 2048, 1, NB_DIM_MAX),
    NB_F_SIZE("n_routed_experts", n_expert, 512, 1, 4096),
    NB_F_SIZE("zero_expert_num", n_zero, 256, 0, 4096),
    NB_F_SIZE("moe_topk", top_k, 12, 1, 64),
    NB_F_F32("routed_scaling_factor", routed_factor, 6.0, -1e6, 1e6),
    NB_F_BOOL("norm_topk_prob", normalise, 0),
    NB_F_BOOL("tie_word_embeddings", tied, 0),
    FIELDS_END,
};
static const nb_only only[] = {
    { "attention_method", "MLA", 0 },
    { "zero_expert_type", "identity", 0 },
    { "router_bias", NULL, 0 },
    { "n_group", NULL, 1 },
    { "topk_group", NULL, 1 },
    { "rope_interleave", NULL, 1 },
    { NULL, NULL, 0 },
};

/* sqrt(hidden / rank), unless the key says no. */
static float factor(nb_doc *doc, const char *key, size_t hidden, size_t rank)
{
    bool on = true;
    (void)nb_doc_bool(doc, key, &on);
    return on ? (float)sqrt((double)hidden / (double)rank) : 1.0f;
}

static nb_status finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    nb_attn_config *a = &c->attn[0];
    if (nb_doc_present(doc, "zero_expert_num") && !nb_doc_has(doc, "zero_expert_num"))
        c->n_zero = 0;
    if (!nb_doc_has(doc, "rope_theta") && !nb_doc_has(doc, "rope_parameters.rope_theta") &&
        !nb_doc_has(doc, "rope_scaling.rope_theta"))
        return nb_fail(err, NB_ERR_FORMAT, "%s: rope_theta is missing", nb_doc_name(doc));
    c->paired = c->router_bias = true;
    c->n_layer *= 2;
    c->n_group = c->topk_group = 1;
    for (size_t i = 0; i < c->n_layer; i++) {
        c->dense[i] = true;
        c->shortcut[i] = i % 2 == 0;
    }
    NB_TRY(nb_family_check_experts(doc, c, err));
    NB_TRY(nb_mla_finish(doc, c, 1536, true, err));
    if (a->q_lora == 0)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: q_lora_rank: null is not supported",
                       nb_doc_name(doc));
    a->q_a_factor = factor(doc, "mla_scale_q_lora", c->hidden, a->q_lora);
    a->kv_a_factor = factor(doc, "mla_scale_kv_lora", c->hidden, a->kv_lora);
    return nb_doc_check(doc, err);
}

const nb_family nb_family_longcat = { "longcat_flash", types, fields, only, known, finish };
