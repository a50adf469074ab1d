/* family.h - how a model family is described: tables, and one finishing function.
 *
 * To add a family: an nb_family in a file family_<name>.c and one line
 * in config.c.  See docs/add-a-model.md. */
#ifndef NB_MODEL_FAMILY_H
#define NB_MODEL_FAMILY_H
#include "model/config.h"

typedef enum nb_field_kind { NB_FIELD_SIZE, NB_FIELD_F32, NB_FIELD_BOOL } nb_field_kind;

/* One key of config.json.  Absent or null: `def` (NAN: required). Sizes must lie
 * in [lo, hi]; floats must be finite and in [lo, hi]. */
typedef struct nb_field {
    const char *key;
    nb_field_kind kind;
    size_t offset; /* in nb_model_config */
    double def, lo, hi;
} nb_field;

#define NB_F_SIZE(key, member, def, lo, hi)                                                        \
    {                                                                                              \
        key, NB_FIELD_SIZE, offsetof(nb_model_config, member), def, lo, hi                         \
    }
#define NB_F_F32(key, member, def, lo, hi)                                                         \
    {                                                                                              \
        key, NB_FIELD_F32, offsetof(nb_model_config, member), def, lo, hi                          \
    }
#define NB_F_BOOL(key, member, def)                                                                \
    {                                                                                              \
        key, NB_FIELD_BOOL, offsetof(nb_model_config, member), def, 0, 1                           \
    }

/* A key that may be absent, null or have one of these values; anything else is
 * refused by name.  Strings compare as text, numbers and booleans as `num`. */
typedef struct nb_only {
    const char *key;
    const char *text; /* space-separated accepted strings, or NULL: number */
    double num;
} nb_only;

typedef struct nb_family {
    const char *name;
    const char *const *model_types; /* config.json's model_type, ended by NULL */
    const nb_field *fields;         /* ended by key == NULL */
    const nb_only *only;            /* ended by key == NULL */
    const char *const
        *known; /* read by finish or harmless, ended by NULL; what is refused for all is not then */
    /* Derives and checks the rest; the doc's first error is checked by the caller. */
    nb_status (*finish)(nb_doc *doc, nb_model_config *c, nb_error *err);
} nb_family;

extern const nb_family nb_family_deepseek_v2, nb_family_deepseek_v3, nb_family_glm4_moe_lite,
    nb_family_minicpm3, nb_family_youtu, nb_family_llama, nb_family_qwen2, nb_family_qwen3,
    nb_family_axk1, nb_family_sarvam_mla, nb_family_mistral4, nb_family_deepseek_v32,
    nb_family_glm_moe_dsa, nb_family_mixed, nb_family_kimi_linear, nb_family_longcat,
    nb_family_deepseek_v4;

/* Adds an absent key and its value to c->assumed (config.c). */
void nb_config_assume(nb_model_config *c, const char *key, double value);

/* Rules that families share (family_common.c). */
enum { NB_DIM_MAX = 1 << 20 };
/* Fills c->attn[0].rope for `dim` rotated values from rope_scaling / rope_parameters. */
nb_status nb_family_rope(nb_doc *doc, nb_model_config *c, size_t dim, bool interleaved,
                         nb_error *err);
/* The same from one dictionary of the file (NULL: none); theta where it has none of its own. */
nb_status nb_family_rope_from(nb_doc *doc, nb_model_config *c, const char *dict, double theta,
                              size_t dim, bool interleaved, nb_error *err);
/* (d_nope + d_rope)^-0.5 with the mscale rule of DeepSeek. */
nb_status nb_family_mla_scale(nb_doc *doc, nb_model_config *c, nb_error *err);
/* n_group, topk_group, top_k against n_expert. */
nb_status nb_family_check_experts(const nb_doc *doc, const nb_model_config *c, nb_error *err);

#endif
