/* family_mixed.c - a family of this project alone: layers with latent and with grouped attention in any order.
 *
 * No published model has this form yet.  It shows that attention belongs to a layer (attention.h), and is what
 * models that mix kinds start from: attn[] has one entry per kind, attn_of[] names the layer's. */
#include <math.h>
#include <string.h>

#include "model/family.h"

static const char *const mixed_types[] = { "nibble_mixed", NULL };
static const char *const mixed_known[] = { "attention_layers", NULL };
static const nb_only mixed_only[] = { { NULL, NULL, 0 } };

enum { MLA, GQA };

static const nb_field mixed_fields[] = {
    NB_F_SIZE("kv_lora_rank", attn[MLA].kv_lora, NAN, 1, 65536),
    NB_F_SIZE("q_lora_rank", attn[MLA].q_lora, 0, 0, 65536),
    NB_F_SIZE("qk_nope_head_dim", attn[MLA].d_nope, NAN, 1, 65536),
    NB_F_SIZE("qk_rope_head_dim", attn[MLA].d_rope, NAN, 2, 2 * NB_MAX_ROPE_PAIR),
    NB_F_SIZE("v_head_dim", attn[MLA].d_v, NAN, 1, 65536),
    NB_F_SIZE("num_key_value_heads", attn[GQA].n_kv_head, NAN, 1, 65536),
    NB_F_SIZE("head_dim", attn[GQA].head_dim, NAN, 2, 65536),
    NB_F_F32("rms_norm_eps", eps, 1e-6, 1e-30, 1),
    NB_F_SIZE("max_position_embeddings", max_pos, 2048, 1, 1u << 30),
    NB_F_SIZE("intermediate_size", inter, NAN, 1, NB_DIM_MAX),
    NB_F_BOOL("tie_word_embeddings", tied, 0),
    { NULL, NB_FIELD_SIZE, 0, 0, 0, 0 },
};

/* attention_layers: ["mla", "gqa", ...], one per layer. */
static nb_status read_layers(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    const char *kind[NB_MAX_LAYER];
    size_t n = 0;
    (void)nb_doc_strs(doc, "attention_layers", kind, NB_MAX_LAYER, &n);
    NB_TRY(nb_doc_check(doc, err));
    if (n != c->n_layer)
        return nb_fail(err, NB_ERR_FORMAT, "%s: attention_layers has %zu entries, expected %zu",
                       nb_doc_name(doc), n, c->n_layer);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(kind[i], "mla") != 0 && strcmp(kind[i], "gqa") != 0)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: attention_layers: \"%.40s\" is not supported (mla or gqa)",
                           nb_doc_name(doc), kind[i]);
        c->attn_of[i] = kind[i][0] == 'm' ? MLA : GQA;
        c->dense[i] = true;
    }
    return NB_OK;
}

static nb_status mixed_finish(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    nb_attn_config *mla = &c->attn[MLA], *gqa = &c->attn[GQA];
    NB_TRY(read_layers(doc, c, err));
    c->n_attn = 2;
    mla->kind = NB_ATTN_MLA;
    gqa->kind = NB_ATTN_GQA;
    gqa->n_head = mla->n_head;
    if (gqa->n_head % gqa->n_kv_head)
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: num_attention_heads %zu is not a multiple of num_key_value_heads %zu",
                       nb_doc_name(doc), gqa->n_head, gqa->n_kv_head);
    gqa->softmax_scale = (float)(1 / sqrt((double)gqa->head_dim));
    NB_TRY(nb_family_rope(doc, c, gqa->head_dim, false, err)); /* fills attn[0].rope */
    gqa->rope = mla->rope;
    NB_TRY(nb_family_rope(doc, c, mla->d_rope, true, err));
    return nb_family_mla_scale(doc, c, err);
}

const nb_family nb_family_mixed = {
    "nibble_mixed", mixed_types, mixed_fields, mixed_only, mixed_known, mixed_finish,
};
