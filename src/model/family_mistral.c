/* family_mistral.c - Mistral Small 4, and Mistral Large 3 in the same spelling: latent attention whose queries grow
 * with the position, a softmax over experts whose chosen weights add up to 1.
 *
 * Defaults of absent keys are those of transformers' class. */
#include <math.h>
#include <string.h>

#include "model/family_mla.h"

static const char *const types[] = { "mistral4", NULL };
static const char *const known[] = {
    "first_k_dense_replace",
    "attention_bias",
    "rope_interleave",
    "n_group",
    "topk_group",
    "norm_topk_prob",
    "q_lora_rank",
    "llama_4_scaling",
    "rope_parameters.partial_rotary_factor",
    "rope_scaling.partial_rotary_factor",
    "partial_rotary_factor",
    NULL,
};
static const nb_field fields[] = {
    MLA_FIELDS(1024, 256, 64, 64, 128, 1e-6, 1048576), MOE_FIELDS(128, 1, 2048, 1.0),
    NB_F_SIZE("num_experts_per_tok", top_k, 4, 0, 64), NB_F_BOOL("tie_word_embeddings", tied, 0),
    NB_F_BOOL("norm_topk_prob", normalise, 1),         FIELDS_END,
};
static const nb_only only[] = {
    { "scoring_func", "softmax", 0 },
    { "topk_method", "greedy", 0 },
    { "moe_layer_freq", NULL, 1 },
    { "mlp_bias", NULL, 0 },
    { NULL, NULL, 0 },
};

/* What of a head is rotated follows from the widths; the key may repeat it. */
static nb_status check_partial(nb_doc *doc, const nb_attn_config *a, nb_error *err)
{
    static const char *const keys[] = { "rope_parameters.partial_rotary_factor",
                                        "rope_scaling.partial_rotary_factor",
                                        "partial_rotary_factor" };
    const double part = (double)a->d_rope / (double)(a->d_nope + a->d_rope);
    for (size_t i = 0; i < NB_COUNT(keys); i++) {
        double v = part;
        (void)nb_doc_f64(doc, keys[i], &v);
        NB_TRY(nb_doc_check(doc, err));
        if (!(fabs(v - part) <= 1e-6))
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: %s: %g is not supported (expected: %g, the rope part of a head)",
                           nb_doc_name(doc), keys[i], v, part);
    }
    return NB_OK;
}

/* Beside the rope: how much longer queries become, and from which length on. */
static nb_status query_scaling(nb_doc *doc, nb_attn_config *a, nb_error *err)
{
    static const char *const betas[] = { "rope_parameters.llama_4_scaling_beta",
                                         "rope_scaling.llama_4_scaling_beta",
                                         "llama_4_scaling.beta" };
    static const char *const lengths[] = { "rope_parameters.original_max_position_embeddings",
                                           "rope_scaling.original_max_position_embeddings",
                                           "llama_4_scaling.original_max_position_embeddings" };
    for (size_t i = 0; i < NB_COUNT(betas); i++) {
        double beta = 0;
        size_t length = 8192;
        if (!nb_doc_f64(doc, betas[i], &beta)) continue;
        (void)nb_doc_size(doc, lengths[i], 1, 1u << 30, &length);
        NB_TRY(nb_doc_check(doc, err));
        if (!(fabs(beta) <= 1e6))
            return nb_fail(err, NB_ERR_RANGE, "%s: %s is %g, expected -1e6 to 1e6",
                           nb_doc_name(doc), betas[i], beta);
        a->q_beta = (float)beta;
        a->q_orig = length;
        return NB_OK;
    }
    return nb_doc_check(doc, err);
}

static nb_status finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    bool interleaved = true;
    nb_mla_dense(doc, c, 0);
    (void)nb_doc_bool(doc, "rope_interleave", &interleaved);
    c->group_top = 2;
    NB_TRY(nb_mla_groups(doc, c, 1, 1, err));
    NB_TRY(nb_family_check_experts(doc, c, err));
    NB_TRY(check_partial(doc, &c->attn[0], err));
    NB_TRY(query_scaling(doc, &c->attn[0], err));
    return nb_mla_finish(doc, c, 1024, interleaved, err);
}

const nb_family nb_family_mistral4 = { "mistral4", types, fields, only, known, finish };
