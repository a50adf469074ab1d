/* gguf_meta.h - config.json and the keys of a GGUF file: what gguf_meta.c and gguf_rope.c share. */
#ifndef NB_CONVERT_GGUF_META_H
#define NB_CONVERT_GGUF_META_H
#include "convert/gguf_out.h"

enum { NB_GGUF_KEY = 96 };

/* A model type of config.json: the architecture that llama.cpp has for it, and the values of absent fields, which are those
 * of the model's own class (src/model/family_*.c). */
typedef struct nb_gguf_arch {
    const char *type, *name; /* model_type; general.architecture */
    nb_gguf_kind kind;
    bool softmax; /* of the routers; else sigmoid */
    bool tied, normalise;
    uint32_t q_lora, kv_lora, nope, rope, v, context;
    uint32_t experts, shared, inter, used, dense, groups, groups_used;
    uint32_t kv_heads, head; /* GQA; 0: as many as heads; hidden_size / heads */
    double eps, factor;
} nb_gguf_arch;

typedef struct nb_gguf_meta {
    nb_conv *c;
    nb_gguf_out *g;
    nb_gguf_model *model;
    const json_t *o; /* of the language model */
    const nb_gguf_arch *a;
    uint32_t context, rope_dim;
} nb_gguf_meta;

/* NB_ERR_UNSUPPORTED with the field's name. */
nb_status nb_gguf_refuse(const nb_gguf_meta *m, const char *field, const char *what);
/* A number from an object; `absent` where there is none. */
double nb_gguf_real(const json_t *o, const char *field, double absent);
/* A key behind the architecture's name. */
void nb_gguf_meta_u32(const nb_gguf_meta *m, const char *rest, uint32_t v);
void nb_gguf_meta_f32(const nb_gguf_meta *m, const char *rest, double v);
void nb_gguf_meta_str(const nb_gguf_meta *m, const char *rest, const char *v);

/* gguf_rope.c: the keys of the rotation, and model->table. */
nb_status nb_gguf_put_rope(const nb_gguf_meta *m);
#endif
