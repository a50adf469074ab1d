/* family_gqa.c - Llama, Qwen2 and Qwen3: grouped-query attention with half-split
 * rope.  They are here to compare with MLA, and because people have them. */
#include <math.h>
#include <string.h>

#include "model/family.h"

static const char *const known_gqa[] = {
    "attention_bias", "mlp_bias", "head_dim", "num_key_value_heads", NULL,
};

#define GQA_FIELDS(kv_def, eps_def, pos_def, bias_def)                                             \
    NB_F_SIZE("num_key_value_heads", attn[0].n_kv_head, kv_def, 0, 65536),                         \
        NB_F_SIZE("head_dim", attn[0].head_dim, 0, 0, 65536),                                      \
        NB_F_F32("rms_norm_eps", eps, eps_def, 1e-30, 1),                                          \
        NB_F_SIZE("max_position_embeddings", max_pos, pos_def, 1, 1u << 30),                       \
        NB_F_SIZE("intermediate_size", inter, NAN, 1, NB_DIM_MAX),                                 \
        NB_F_BOOL("tie_word_embeddings", tied, 0)

static const nb_field llama_fields[] = {
    GQA_FIELDS(0, 1e-6, 2048, 0),
    NB_F_BOOL("attention_bias", attn[0].q_bias, 0),
    NB_F_BOOL("mlp_bias", mlp_bias, 0),
    { NULL, NB_FIELD_SIZE, 0, 0, 0, 0 },
};
static const nb_field qwen2_fields[] = {
    GQA_FIELDS(32, 1e-6, 32768, 1),
    { NULL, NB_FIELD_SIZE, 0, 0, 0, 0 },
};
static const nb_field qwen3_fields[] = {
    GQA_FIELDS(32, 1e-6, 32768, 0),
    NB_F_BOOL("attention_bias", attn[0].q_bias, 0),
    { NULL, NB_FIELD_SIZE, 0, 0, 0, 0 },
};

static nb_status finish_gqa(nb_doc *doc, nb_model_config *c, size_t head_dim, nb_error *err)
{
    const char *kind[NB_MAX_LAYER];
    size_t n = 0;
    c->attn[0].kind = NB_ATTN_GQA;
    /* null means as many as query heads; only an absent key has the class default */
    if (nb_doc_present(doc, "num_key_value_heads") && !nb_doc_has(doc, "num_key_value_heads"))
        c->attn[0].n_kv_head = 0;
    if (c->attn[0].n_kv_head == 0) c->attn[0].n_kv_head = c->attn[0].n_head;
    if (c->attn[0].head_dim == 0)
        c->attn[0].head_dim = head_dim ? head_dim : c->hidden / c->attn[0].n_head;
    if (c->attn[0].n_head % c->attn[0].n_kv_head)
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: num_attention_heads %zu is not a multiple of num_key_value_heads %zu",
                       nb_doc_name(doc), c->attn[0].n_head, c->attn[0].n_kv_head);
    if (c->attn[0].head_dim == 0 || c->attn[0].head_dim > 65536)
        return nb_fail(err, NB_ERR_FORMAT, "%s: head_dim is %zu", nb_doc_name(doc),
                       c->attn[0].head_dim);
    if (nb_doc_strs(doc, "layer_types", kind, NB_MAX_LAYER, &n))
        for (size_t i = 0; i < n; i++)
            if (strcmp(kind[i], "full_attention") != 0)
                return nb_fail(err, NB_ERR_UNSUPPORTED,
                               "%s: layer_types: \"%s\" is not supported (full_attention)",
                               nb_doc_name(doc), kind[i]);
    for (size_t i = 0; i < c->n_layer; i++) c->dense[i] = true;
    c->attn[0].softmax_scale = (float)(1 / sqrt((double)c->attn[0].head_dim));
    return nb_family_rope(doc, c, c->attn[0].head_dim, false, err);
}

static nb_status llama_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    c->attn[0].kv_bias = c->attn[0].o_bias = c->attn[0].q_bias;
    return finish_gqa(doc, c, 0, err);
}

static nb_status qwen2_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    c->attn[0].q_bias = c->attn[0].kv_bias = true;
    return finish_gqa(doc, c, 0, err);
}

static nb_status qwen3_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    c->attn[0].qk_norm = true;
    c->attn[0].kv_bias = c->attn[0].o_bias = c->attn[0].q_bias;
    return finish_gqa(doc, c, 128, err);
}

static const nb_only gqa_only[] = { { "num_experts", NULL, 0 }, { NULL, NULL, 0 } };
static const char *const llama_types[] = { "llama", NULL };
static const char *const qwen2_types[] = { "qwen2", NULL };
static const char *const qwen3_types[] = { "qwen3", NULL };

const nb_family nb_family_llama = {
    "llama", llama_types, llama_fields, gqa_only, known_gqa, llama_finish,
};
const nb_family nb_family_qwen2 = {
    "qwen2", qwen2_types, qwen2_fields, gqa_only, known_gqa, qwen2_finish,
};
const nb_family nb_family_qwen3 = {
    "qwen3", qwen3_types, qwen3_fields, gqa_only, known_gqa, qwen3_finish,
};
