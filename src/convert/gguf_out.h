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

/* gguf_meta.c: the keys of the architecture.  *n_layer, *n_expert: of the model.  NB_ERR_UNSUPPORTED names the field that
 * the architecture cannot say. */
nb_status nb_gguf_put_model(nb_conv *c, nb_gguf_out *g, size_t *n_layer, size_t *n_expert);
/* gguf_vocab.c: tokenizer and chat template. */
nb_status nb_gguf_put_tokenizer(nb_conv *c, nb_gguf_out *g);

/* ---- gguf_mix.c: which matrix has which type ---- */

typedef struct nb_gguf_mix nb_gguf_mix;
/* NULL: no such name. */
const nb_gguf_mix *nb_gguf_mix_of(const char *name);
bool nb_gguf_mix_searches(const char *name); /* has types with scales */
uint32_t nb_gguf_mix_number(const nb_gguf_mix *m); /* general.file_type */
typedef struct nb_gguf_place {
    const char *name; /* in the file, behind "blk.N." */
    size_t layer, n_layer, n_expert, cols;
    bool head; /* the matrix of the logits */
} nb_gguf_place;
/* *fallback: the columns did not fit the type that was meant. */
const nb_gguf_dtype *nb_gguf_mix_type(const nb_gguf_mix *m, const nb_gguf_place *p, bool *fallback);
#endif
