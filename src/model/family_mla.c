/* family_mla.c - see family_mla.h. */
#include "model/family_mla.h"

#include <string.h>

/* q_lora_rank: null means a plain q_proj, absent means the class default. */
static nb_status read_q_lora(nb_doc *doc, nb_model_config *c, size_t absent, nb_error *err)
{
    c->attn[0].q_lora = nb_doc_present(doc, "q_lora_rank") ? 0 : absent;
    if (c->attn[0].q_lora) nb_config_assume(c, "q_lora_rank", (double)c->attn[0].q_lora);
    (void)nb_doc_size(doc, "q_lora_rank", 0, 65536, &c->attn[0].q_lora);
    return nb_doc_check(doc, err);
}

nb_status nb_mla_finish(nb_doc *doc, nb_model_config *c, size_t q_lora, bool interleaved,
                        nb_error *err)
{
    c->attn[0].kind = NB_ATTN_MLA;
    c->attn[0].o_bias = c->attn[0].qa_bias;
    NB_TRY(read_q_lora(doc, c, q_lora, err));
    NB_TRY(nb_family_rope(doc, c, c->attn[0].d_rope, interleaved, err));
    return nb_family_mla_scale(doc, c, err);
}

void nb_mla_null_counts(const nb_doc *doc, nb_model_config *c)
{
    if (nb_doc_present(doc, "n_routed_experts") && !nb_doc_has(doc, "n_routed_experts"))
        c->n_expert = 0;
    if (nb_doc_present(doc, "n_shared_experts") && !nb_doc_has(doc, "n_shared_experts"))
        c->n_shared = 0;
}

/* As the classes have it, all layers are dense when k is not below their number. */
void nb_mla_dense_first(nb_model_config *c, size_t k)
{
    for (size_t i = 0; i < c->n_layer; i++) c->dense[i] = i < k || c->n_expert == 0;
}

void nb_mla_dense(nb_doc *doc, nb_model_config *c, size_t k)
{
    const bool absent = !nb_doc_present(doc, "first_k_dense_replace");
    (void)nb_doc_size(doc, "first_k_dense_replace", 0, 1 << 20, &k);
    if (absent && k) nb_config_assume(c, "first_k_dense_replace", (double)k);
    nb_mla_null_counts(doc, c);
    nb_mla_dense_first(c, k);
}

nb_status nb_mla_dense_list(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    const char *kind[NB_MAX_LAYER];
    size_t n = 0;
    if (!nb_doc_strs(doc, "mlp_layer_types", kind, NB_MAX_LAYER, &n)) return nb_doc_check(doc, err);
    if (n != c->n_layer)
        return nb_fail(err, NB_ERR_FORMAT, "%s: mlp_layer_types has %zu entries, expected %zu",
                       nb_doc_name(doc), n, c->n_layer);
    for (size_t i = 0; i < n; i++) {
        c->dense[i] = !strcmp(kind[i], "dense");
        if (!c->dense[i] && strcmp(kind[i], "sparse") != 0)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: mlp_layer_types: \"%s\" is not supported (dense, sparse)",
                           nb_doc_name(doc), kind[i]);
    }
    return NB_OK;
}

nb_status nb_mla_groups(nb_doc *doc, nb_model_config *c, size_t n_def, size_t k_def, nb_error *err)
{
    const bool n_absent = !nb_doc_present(doc, "n_group"),
               k_absent = !nb_doc_present(doc, "topk_group");
    c->n_group = n_absent ? n_def : 1; /* null: no groups */
    c->topk_group = k_absent ? k_def : 1;
    if (n_absent && n_def != 1 && c->n_expert) nb_config_assume(c, "n_group", (double)n_def);
    if (k_absent && k_def != 1 && c->n_expert) nb_config_assume(c, "topk_group", (double)k_def);
    (void)nb_doc_size(doc, "n_group", 1, 4096, &c->n_group);
    (void)nb_doc_size(doc, "topk_group", 1, 4096, &c->topk_group);
    return nb_doc_check(doc, err);
}
