/* family_mla.h - what families with DeepSeek's latent attention share: rows for their tables, and steps of their
 * finishing functions.  All read the keys of DeepSeek's config.json; defaults of absent keys are arguments. */
#ifndef NB_MODEL_FAMILY_MLA_H
#define NB_MODEL_FAMILY_MLA_H
#include "model/family.h"

#define MLA_FIELDS(q_def, kv_def, nope_def, rope_def, v_def, eps_def, pos_def)                     \
    NB_F_SIZE("kv_lora_rank", attn[0].kv_lora, kv_def, 1, 65536),                                  \
        NB_F_SIZE("qk_nope_head_dim", attn[0].d_nope, nope_def, 1, 65536),                         \
        NB_F_SIZE("qk_rope_head_dim", attn[0].d_rope, rope_def, 2, 2 * NB_MAX_ROPE_PAIR),          \
        NB_F_SIZE("v_head_dim", attn[0].d_v, v_def, 1, 65536),                                     \
        NB_F_F32("rms_norm_eps", eps, eps_def, 1e-30, 1),                                          \
        NB_F_SIZE("max_position_embeddings", max_pos, pos_def, 1, 1u << 30),                       \
        NB_F_SIZE("intermediate_size", inter, NAN, 1, NB_DIM_MAX),                                 \
        NB_F_BOOL("attention_bias", attn[0].qa_bias, 0)

#define MOE_FIELDS(exp_def, shared_def, inter_def, scale_def)                                      \
    NB_F_SIZE("n_routed_experts", n_expert, exp_def, 0, 4096),                                     \
        NB_F_SIZE("n_shared_experts", n_shared, shared_def, 0, 256),                               \
        NB_F_SIZE("moe_intermediate_size", moe_inter, inter_def, 0, NB_DIM_MAX),                   \
        NB_F_F32("routed_scaling_factor", routed_factor, scale_def, -1e6, 1e6)

#define FIELDS_END                                                                                 \
    {                                                                                              \
        NULL, NB_FIELD_SIZE, 0, 0, 0, 0                                                            \
    }

/* Counts that are present and null: none, whatever the class default. */
void nb_mla_null_counts(const nb_doc *doc, nb_model_config *c);
/* The first k layers are dense; all are when there are no experts. */
void nb_mla_dense_first(nb_model_config *c, size_t k);
/* Both of these, with first_k_dense_replace (absent: k). */
void nb_mla_dense(nb_doc *doc, nb_model_config *c, size_t k);
/* mlp_layer_types ("dense" or "sparse" for each layer), where it is there. */
nb_status nb_mla_dense_list(nb_doc *doc, nb_model_config *c, nb_error *err);
/* n_group and topk_group (null: no groups). */
nb_status nb_mla_groups(nb_doc *doc, nb_model_config *c, size_t n_def, size_t k_def, nb_error *err);
/* q_lora_rank (null: a plain q_proj; absent: q_lora), the rotation, the softmax scale. */
nb_status nb_mla_finish(nb_doc *doc, nb_model_config *c, size_t q_lora, bool interleaved,
                        nb_error *err);

#endif
