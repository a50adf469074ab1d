/* attention.c - see attention.h. */
#include "model/attention.h"

const nb_attention *nb_attention_of(nb_attn_kind kind)
{
    static const nb_attention *const rows[] = {
#define X(NAME, name) [NB_ATTN_##NAME] = &nb_attention_##name,
        NB_ATTENTIONS(X)
#undef X
    };
    return rows[kind];
}

size_t nb_dim_hidden(const nb_model_config *c, const nb_attn_config *a)
{
    (void)a;
    return c->hidden;
}

bool nb_attn_any(const nb_model_config *c, nb_attn_kind kind)
{
    for (size_t i = 0; i < c->n_layer; i++)
        if (nb_layer_attn(c, i)->kind == kind) return true;
    return false;
}

bool nb_attn_all(const nb_model_config *c, nb_attn_kind kind)
{
    for (size_t i = 0; i < c->n_layer; i++)
        if (nb_layer_attn(c, i)->kind != kind) return false;
    return true;
}
