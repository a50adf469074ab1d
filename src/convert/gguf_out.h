/* gguf_out.h - a GGUF file that is being written: metadata, descriptions of tensors, then their bytes in order.
 * Format: load/gguf.h. */
#ifndef NB_CONVERT_GGUF_OUT_H
#define NB_CONVERT_GGUF_OUT_H
#include <stdio.h>

#include "base/str.h"
#include "convert/convert_internal.h"
#include "load/gguf.h"

enum { NB_GGUF_ALIGN = 32, NB_GGUF_OUT_NAME = 64 /* llama.cpp's limit, with the 0 */ };

/* Metadata.  Appending fails once and for all: nb_gguf_out_head tells. */
typedef struct nb_gguf_out {
    nb_buf kv;
    uint64_t n_kv;
    bool failed;
} nb_gguf_out;

void nb_gguf_put_u32(nb_gguf_out *g, const char *key, uint32_t v);
void nb_gguf_put_f32(nb_gguf_out *g, const char *key, float v);
void nb_gguf_put_bool(nb_gguf_out *g, const char *key, bool v);
void nb_gguf_put_str(nb_gguf_out *g, const char *key, nb_str v);
/* The head of an array; its n items follow, by these two. */
void nb_gguf_put_array(nb_gguf_out *g, const char *key, nb_gguf_type type, uint64_t n);
void nb_gguf_item_str(nb_gguf_out *g, nb_str v);
void nb_gguf_item_i32(nb_gguf_out *g, int32_t v);
void nb_gguf_item_f32(nb_gguf_out *g, float v);

/* One tensor of the file. */
typedef struct nb_gguf_out_tensor {
    char name[NB_GGUF_OUT_NAME];
    const nb_gguf_dtype *type;
    size_t n_dim, ne[3]; /* columns first */
    uint64_t bytes;
} nb_gguf_out_tensor;

/* Everything in front of the tensors' bytes, padded. */
nb_status nb_gguf_out_head(nb_gguf_out *g, const nb_gguf_out_tensor *t, size_t n, nb_buf *out);

/* ---- metadata of a model ---- */

/* How attention is stored. */
typedef enum nb_gguf_kind {
    NB_GGUF_MLA,       /* kv_b in two: attn_k_b, which is W_UK transposed, and attn_v_b */
    NB_GGUF_MLA_WHOLE, /* kv_b as it is */
    NB_GGUF_GQA,
    NB_GGUF_GQA_PAIRS /* rows of q and k that rotate together beside each other */
} nb_gguf_kind;

enum { NB_GGUF_MAX_TABLE = 512 };
/* Factors that divide the frequencies of the rotation: a tensor of their own. */
typedef struct nb_gguf_table {
    const char *name; /* NULL: none */
    size_t n;
    float v[NB_GGUF_MAX_TABLE];
} nb_gguf_table;

/* What the tensors of a model depend on. */
typedef struct nb_gguf_model {
    const char *arch; /* general.architecture */
    nb_gguf_kind kind;
    size_t n_layer, n_expert, head, kv_head;
    size_t nope, v, lora; /* MLA */
    size_t head_dim;      /* GQA */
    bool tied;            /* the embedding is the head's matrix, too */
    nb_gguf_table table[2];
} nb_gguf_model;

/* gguf_meta.c: the keys of the architecture.  NB_ERR_UNSUPPORTED names the field that the architecture cannot say;
 * NB_ERR_FORMAT one that is broken. */
nb_status nb_gguf_put_model(nb_conv *c, nb_gguf_out *g, nb_gguf_model *model);
/* gguf_vocab.c: tokenizer and chat template. */
nb_status nb_gguf_put_tokenizer(nb_conv *c, nb_gguf_out *g);

/* ---- gguf_mix.c: which matrix has which type ---- */

typedef struct nb_gguf_mix nb_gguf_mix;
/* NULL: no such name. */
const nb_gguf_mix *nb_gguf_mix_of(const char *name);
bool nb_gguf_mix_searches(const char *name);       /* has types with scales */
uint32_t nb_gguf_mix_number(const nb_gguf_mix *m); /* general.file_type */
typedef struct nb_gguf_place {
    const char *name; /* in the file, behind "blk.N." */
    size_t layer, n_layer, n_expert, cols;
    size_t shared_by; /* query heads that share a key head */
    bool head;        /* the matrix of the logits */
    bool large;       /* what llama.cpp calls a model of 70B */
} nb_gguf_place;
/* *fallback: the columns did not fit the type that was meant. */
const nb_gguf_dtype *nb_gguf_mix_type(const nb_gguf_mix *m, const nb_gguf_place *p, bool *fallback);
#endif
