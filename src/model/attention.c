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

size_t nb_attn_state_offsets(const nb_model_config *c, size_t *off)
{
    size_t n = 0;
    for (size_t i = 0; i <= c->n_layer; i++) {
        if (off) off[i] = n;
        if (i < c->n_layer) n += nb_layer_dims(c, i).n_state;
    }
    return n;
}

bool nb_attn_has_state(const nb_model_config *c)
{
    return nb_attn_state_offsets(c, NULL) != 0;
}

size_t nb_attn_first_cached(const nb_model_config *c)
{
    size_t i = 0;
    while (i + 1 < c->n_layer && !nb_layer_dims(c, i).n_values) i++;
    return i;
}

bool nb_attn_any_latent(const nb_model_config *c)
{
    for (size_t i = 0; i < c->n_layer; i++)
        if (nb_attn_is_latent(nb_layer_attn(c, i))) return true;
    return false;
}

bool nb_attn_all_latent(const nb_model_config *c)
{
    for (size_t i = 0; i < c->n_layer; i++)
        if (!nb_attn_is_latent(nb_layer_attn(c, i))) return false;
    return true;
}
bool nb_attn_any_rope_key(const nb_model_config *c)
{
    for (size_t i = 0; i < c->n_layer; i++)
        if (nb_layer_attention(c, i)->has_rope_key) return true;
    return false;
}
