/* leftover.c - see leftover.h. */
#include "model/leftover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 3 };

/* Parts of models that nibble computes without. */
static const char *const prefixes[] = {
    "vision_tower.",
    "vision_model.",
    "visual.",
    "model.visual.",
    "model.vision_tower.",
    "mm_projector.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "audio_tower.",
    "vision_encoder.",
    "vision_language_adapter.",
    "patch_merger.",
    "pre_mm_projector_norm.",
    "mtp.",
    "model.mtp.",
};

/* Tensors that are computed anew, or that belong to a choice made elsewhere (--kv-scales). */
static const char *const suffixes[] = {
    ".rotary_emb.inv_freq",
    ".rotary_emb.cos_cached",
    ".rotary_emb.sin_cached",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".kv_scale",
    ".prob_scale",
    ".input_scale",
    ".activation_scale",
    "_proj_activation_scale",
    ".input_scale_ub",
    ".input_global_scale",
    ".input_zero_point",
    ".output_scale",
    ".g_idx",
    ".weight_g_idx",
};

/* Layers that predict further tokens come after the model's own. */
static bool is_nextn(const nb_model_config *c, const char *name)
{
    static const char layers[] = "layers.";
    char *end;
    name = strstr(name, "layers.");
    if (!name) return false;
    const unsigned long i = strtoul(name + sizeof layers - 1, &end, 10);
    return *end == '.' && i >= c->n_layer && i - c->n_layer < c->n_nextn;
}

static bool is_known(const nb_model_config *c, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < NB_COUNT(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    for (size_t i = 0; i < NB_COUNT(suffixes); i++) {
        const size_t k = strlen(suffixes[i]);
        if (n > k && strcmp(name + n - k, suffixes[i]) == 0) return true;
    }
    return is_nextn(c, name);
}

size_t nb_model_leftovers(const nb_model_config *c, const nb_source *s, char *names,
                          size_t names_bytes)
{
    const char *name;
    size_t n = 0, at = 0;
    names[0] = 0;
    for (size_t i = 0; (name = nb_source_leftover(s, i)) != NULL; i++) {
        if (is_known(c, name)) continue;
        if (n < SHOWN && at < names_bytes)
            at += (size_t)snprintf(names + at, names_bytes - at, "%s%.100s", n ? ", " : "", name);
        n++;
    }
    if (n > SHOWN && at < names_bytes) (void)snprintf(names + at, names_bytes - at, ", ...");
    return n;
}
