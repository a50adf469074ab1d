/* family_dsa.c - DeepSeek-V3.2 and GLM-5, 5.1, 5.2: DeepSeek-V3's blocks, whose attention reads the tokens that an
 * indexer chooses.
 *
 * Defaults of absent keys are those of the families' classes in transformers. */
#include <math.h>
#include <string.h>

#include "model/family_mla.h"

enum { MAX_INDEX_HEAD = 1024, MAX_INDEX_DIM = 1024 };

static const char *const known[] = {
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
    "index_topk",
    "indexer_types",
    "indexer_rope_interleave",
    "index_topk_freq",
    "index_skip_topk_offset",
    "index_topk_pattern",
    "index_share_for_mtp_iteration",
    NULL,
};

static const nb_only only[] = {
    { "qk_layernorm", NULL, 0 },      { "scoring_func", "sigmoid", 0 },
    { "topk_method", "noaux_tc", 0 }, { "moe_layer_freq", NULL, 1 },
    { "mlp_bias", NULL, 0 },          { NULL, NULL, 0 },
};

#define INDEX_FIELDS(head_def)                                                                     \
    NB_F_SIZE("index_n_heads", attn[0].index_head, head_def, 1, MAX_INDEX_HEAD),                   \
        NB_F_SIZE("index_head_dim", attn[0].index_dim, 128, 1, MAX_INDEX_DIM),                     \
        NB_F_SIZE("index_topk", attn[0].index_topk, 2048, 1, 1 << 20)

/* ---- which layers have an indexer ---- */

/* By a period: every freq-th from `offset` on, and all before. */
static nb_status shared_by_period(nb_doc *doc, const nb_model_config *c, bool *shared,
                                  nb_error *err)
{
    size_t freq = 1, offset = 2;
    (void)nb_doc_size(doc, "index_topk_freq", 0, NB_MAX_LAYER, &freq);
    (void)nb_doc_size(doc, "index_skip_topk_offset", 0, NB_MAX_LAYER, &offset);
    for (size_t i = 0; i < c->n_layer; i++)
        shared[i] = freq > 1 && i + 1 > offset && (i + 1 - offset) % freq != 0;
    return nb_doc_check(doc, err);
}

static nb_status shared_by_pattern(nb_doc *doc, const nb_model_config *c, const char *pattern,
                                   bool *shared, nb_error *err)
{
    if (strlen(pattern) != c->n_layer || strspn(pattern, "FS") != c->n_layer)
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: index_topk_pattern: expected %zu letters F (own indexer) or S (shared)",
                       nb_doc_name(doc), c->n_layer);
    for (size_t i = 0; i < c->n_layer; i++) shared[i] = pattern[i] == 'S';
    return NB_OK;
}

static nb_status shared_by_list(nb_doc *doc, const nb_model_config *c, const char *const *type,
                                size_t n, bool *shared, nb_error *err)
{
    if (n != c->n_layer)
        return nb_fail(err, NB_ERR_FORMAT, "%s: indexer_types has %zu entries, expected %zu",
                       nb_doc_name(doc), n, c->n_layer);
    for (size_t i = 0; i < n; i++) {
        shared[i] = !strcmp(type[i], "shared");
        if (!shared[i] && strcmp(type[i], "full") != 0)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: indexer_types: \"%.60s\" is not supported (full, shared)",
                           nb_doc_name(doc), type[i]);
    }
    return NB_OK;
}

/* attn[1]: layers without an indexer. */
static nb_status read_shared(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    const char *type[NB_MAX_LAYER], *pattern;
    bool shared[NB_MAX_LAYER] = { false };
    size_t n = 0;
    if (nb_doc_has(doc, "indexer_types")) {
        (void)nb_doc_strs(doc, "indexer_types", type, NB_MAX_LAYER, &n);
        NB_TRY(nb_doc_check(doc, err));
        NB_TRY(shared_by_list(doc, c, type, n, shared, err));
    } else if (nb_doc_str(doc, "index_topk_pattern", &pattern)) {
        NB_TRY(shared_by_pattern(doc, c, pattern, shared, err));
    } else {
        NB_TRY(nb_doc_check(doc, err));
        NB_TRY(shared_by_period(doc, c, shared, err));
    }
    if (shared[0])
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: layer 0 has no indexer, and there is none before it to share",
                       nb_doc_name(doc));
    c->attn[1] = c->attn[0];
    c->attn[1].index_shared = true;
    for (size_t i = 0; i < c->n_layer; i++) {
        c->attn_of[i] = shared[i];
        if (shared[i]) c->n_attn = 2;
    }
    if (c->n_attn == 1) memset(&c->attn[1], 0, sizeof c->attn[1]);
    return NB_OK;
}

/* ---- together ---- */

typedef struct defaults {
    size_t q_lora, n_group, topk_group;
    bool index_interleaved;
} defaults;

static nb_status finish(nb_doc *doc, nb_model_config *c, const defaults *d, nb_error *err)
{
    nb_attn_config *a = &c->attn[0];
    bool interleaved = true;
    nb_mla_dense(doc, c, 3);
    NB_TRY(nb_mla_dense_list(doc, c, err));
    (void)nb_doc_bool(doc, "rope_interleave", &interleaved);
    c->sigmoid = c->router_bias = true;
    c->group_top = 2;
    NB_TRY(nb_mla_groups(doc, c, d->n_group, d->topk_group, err));
    NB_TRY(nb_family_check_experts(doc, c, err));
    NB_TRY(nb_mla_finish(doc, c, d->q_lora, interleaved, err));
    a->kind = NB_ATTN_DSA;
    a->index_interleaved = d->index_interleaved;
    (void)nb_doc_bool(doc, "indexer_rope_interleave", &a->index_interleaved);
    NB_TRY(nb_doc_check(doc, err));
    if (a->q_lora == 0)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: q_lora_rank: an indexer needs a low-rank query projection",
                       nb_doc_name(doc));
    if (a->index_dim < a->d_rope)
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: index_head_dim is %zu, less than qk_rope_head_dim, %zu",
                       nb_doc_name(doc), a->index_dim, a->d_rope);
    return read_shared(doc, c, err);
}

static const char *const v32_types[] = { "deepseek_v32", NULL };
static const nb_field v32_fields[] = {
    MLA_FIELDS(1536, 512, 128, 64, 128, 1e-6, 163840),
    MOE_FIELDS(256, 1, 2048, 2.5),
    INDEX_FIELDS(64),
    NB_F_SIZE("num_experts_per_tok", top_k, 8, 0, 64),
    NB_F_BOOL("tie_word_embeddings", tied, 0),
    NB_F_BOOL("norm_topk_prob", normalise, 1),
    FIELDS_END,
};

/* The indexer rotates halves, although the attention rotates pairs that lie side by side. */
static nb_status v32_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    return finish(doc, c, &(defaults){ 1536, 8, 4, false }, err);
}

const nb_family nb_family_deepseek_v32 = {
    "deepseek_v32", v32_types, v32_fields, only, known, v32_finish,
};

static const char *const glm_types[] = { "glm_moe_dsa", NULL };
static const nb_field glm_fields[] = {
    MLA_FIELDS(2048, 512, 192, 64, 256, 1e-5, 202752),
    MOE_FIELDS(256, 1, 2048, 2.5),
    INDEX_FIELDS(32),
    NB_F_SIZE("num_experts_per_tok", top_k, 8, 0, 64),
    NB_F_BOOL("tie_word_embeddings", tied, 0),
    NB_F_BOOL("norm_topk_prob", normalise, 1),
    FIELDS_END,
};

/* head_dim, which repeats other widths, is not read. */
static nb_status glm_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    return finish(doc, c, &(defaults){ 2048, 1, 1, true }, err);
}

const nb_family nb_family_glm_moe_dsa = {
    "glm_moe_dsa", glm_types, glm_fields, only, known, glm_finish,
};
