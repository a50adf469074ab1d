/* gguf.h - GGUF files (llama.cpp's container): one file, or the shards of a split one.
 *
 * nibble reads a GGUF as if it were a Hugging Face folder.  nb_gguf_text makes config.json, tokenizer.json and
 * tokenizer_config.json from the metadata, and nb_gguf_tensors names the tensors as such a folder does, so that
 * everything behind it is the same.
 *
 * Format (ggml/src/gguf.cpp of llama.cpp): "GGUF", version (u32, 2 or 3), number of tensors and of metadata (i64);
 * metadata (key, type, value); tensors (name, dimensions, type, offset); the data at the next multiple of
 * general.alignment.  Everything is little-endian.  Tensors lie in the order of their descriptions, each padded to the
 * alignment.  Shards are called NAME-00001-of-00003.gguf; only the first has the model's metadata. */
#ifndef NB_LOAD_GGUF_H
#define NB_LOAD_GGUF_H
#include <jansson.h>

#include "base/arena.h"
#include "load/source.h"
#include "num/ggml.h"
#include "os/file.h"

enum {
    NB_GGUF_MAX_DIM = 4,
    NB_GGUF_MAX_NAME_BYTES = 255, /* llama.cpp's limit is 63 */
    NB_GGUF_MAX_SHARD = 1000
};

/* Types of metadata. */
typedef enum nb_gguf_type {
    NB_GGUF_U8,
    NB_GGUF_I8,
    NB_GGUF_U16,
    NB_GGUF_I16,
    NB_GGUF_U32,
    NB_GGUF_I32,
    NB_GGUF_F32,
    NB_GGUF_BOOL,
    NB_GGUF_STRING,
    NB_GGUF_ARRAY,
    NB_GGUF_U64,
    NB_GGUF_I64,
    NB_GGUF_F64,
    NB_GGUF_TYPES
} nb_gguf_type;

/* One key with its value; the bytes are the file's. */
typedef struct nb_gguf_kv {
    nb_str key;
    nb_gguf_type type; /* of the value, or of the items of an array */
    bool is_array;
    uint64_t n;             /* items; 1 for a single value */
    const unsigned char *p; /* unaligned; a string is its length (u64) and its bytes */
    size_t n_bytes;
} nb_gguf_kv;

/* One tensor as the file describes it. */
typedef struct nb_gguf_tensor {
    nb_str name;
    uint32_t type;               /* ggml's number */
    size_t n_dim;                /* 1 to 4 */
    size_t dim[NB_GGUF_MAX_DIM]; /* as in the file: dim[0] are the columns, which lie together */
    const unsigned char *data;
    size_t n_bytes;
    size_t file; /* index of the shard */
} nb_gguf_tensor;

typedef struct nb_gguf_file {
    nb_file_map map; /* p is NULL where the bytes are borrowed, or the mapping was handed on */
    char *path;
    size_t kv0, n_kv, tensor0, n_tensor; /* its part of the arrays */
} nb_gguf_file;

typedef struct nb_gguf {
    nb_arena names;
    nb_gguf_file *file;
    size_t n_file, cap_file;
    nb_gguf_kv *kv; /* of all shards, the first one's first; sorted by key within a shard */
    size_t n_kv, cap_kv;
    nb_gguf_tensor *tensor; /* sorted by name once it is open */
    size_t n_tensor, cap_tensor;
} nb_gguf;

/* Whether path is a regular file that begins with "GGUF". */
bool nb_gguf_is(const char *path);
/* The GGUF of a MODEL: the file itself; of a folder without safetensors its one *.gguf file, or the first shard of its
 * one split model.  *found is false for other models.  NB_ERR_ARG: a folder with several. */
nb_status nb_gguf_resolve(const char *model, nb_buf *path, bool *found, nb_error *err);
/* Length of NAME in NAME-00001-of-00003.gguf, with the two numbers; 0: another form of name. */
size_t nb_gguf_split_name(const char *path, unsigned *no, unsigned *count);

/* Maps the file, and the other shards of a split model.  Nothing but the headers is read. */
nb_status nb_gguf_open(const char *path, nb_gguf **out, nb_error *err);
/* One file's bytes in memory (borrowed). */
nb_status nb_gguf_open_bytes(nb_str bytes, const char *name, nb_gguf **out, nb_error *err);
void nb_gguf_close(nb_gguf *g);
const char *nb_gguf_name(const nb_gguf *g); /* the first file, for error lines */

/* NULL: absent. */
const nb_gguf_kv *nb_gguf_find(const nb_gguf *g, const char *key);
const nb_gguf_tensor *nb_gguf_find_tensor(const nb_gguf *g, const char *name);

/* Values.  *found (may be NULL: then the key is required) is false for an absent key.  A value of another kind is
 * NB_ERR_FORMAT, and the line names file and key.  A list counts as its value where all its items are equal. */
nb_status nb_gguf_u64(const nb_gguf *g, const char *key, uint64_t *out, bool *found, nb_error *err);
nb_status nb_gguf_f64(const nb_gguf *g, const char *key, double *out, bool *found, nb_error *err);
nb_status nb_gguf_bool(const nb_gguf *g, const char *key, bool *out, bool *found, nb_error *err);
nb_status nb_gguf_str(const nb_gguf *g, const char *key, nb_str *out, bool *found, nb_error *err);
/* A list of numbers or strings; *out is NULL for an absent key. */
nb_status nb_gguf_list(const nb_gguf *g, const char *key, bool strings, const nb_gguf_kv **out,
                       nb_error *err);
/* Item i of a list of numbers. */
double nb_gguf_item(const nb_gguf_kv *kv, uint64_t i);
/* The string at *at (0 at first), which moves to the next. */
nb_str nb_gguf_next_str(const nb_gguf_kv *kv, size_t *at);

/* ---- tensor types (gguf_types.c) ---- */

typedef struct nb_gguf_dtype {
    uint32_t type; /* ggml's number */
    const char *name;
    size_t block, block_bytes; /* values of a block and their bytes */
    nb_dtype dtype;            /* NB_DT_OTHER: known, not read */
    const char *why;           /* why not; NULL where it is read */
    nb_ggml_values_fn *values; /* floats of whole blocks; NULL where it is not read */
} nb_gguf_dtype;
/* NULL: not a type of ggml.  Types of ik_llama.cpp alone are known by name, with block 0. */
const nb_gguf_dtype *nb_gguf_dtype_of(uint32_t type);
/* The row of a type that is read; NULL: none of GGUF's blocks. */
const nb_gguf_dtype *nb_gguf_dtype_for(nb_dtype t);

/* ---- as a Hugging Face folder (gguf_config.c, gguf_tokenizer.c, gguf_names.c) ---- */

/* The types of the tensors as a quantization_config, the caller's; NULL where none has blocks.  Experts count as
 * the first one of their layer. */
nb_status nb_gguf_types(const nb_gguf *g, size_t n_layer, json_t **out, nb_error *err);
/* config.json as a tree, the caller's. */
nb_status nb_gguf_config(const nb_gguf *g, json_t **out, nb_error *err);
/* Appends the text of a file; *found is false for a name that such a folder does not have. */
nb_status nb_gguf_text(const nb_gguf *g, const char *name, nb_buf *out, bool *found, nb_error *err);
/* The same of a MODEL; *is_gguf is false for one that is no GGUF. */
nb_status nb_gguf_read_text(const char *model, const char *name, nb_buf *out, bool *is_gguf,
                            bool *found, nb_error *err);

/* How the bytes of a tensor become those of its Hugging Face form. */
typedef enum nb_gguf_form {
    NB_GGUF_AS_IT_IS,
    NB_GGUF_ROPE_ROWS, /* rows of each head: pairs (2i, 2i + 1) become (i, i + d/2) */
    NB_GGUF_KV_B       /* attn_k_b and attn_v_b of one plain type, joined */
} nb_gguf_form;
typedef struct nb_gguf_part {
    const char *name; /* as in a Hugging Face folder */
    const nb_gguf_tensor *t, *t2;
    nb_gguf_form form;
    size_t n_head; /* ROPE_ROWS, KV_B */
    nb_dtype dtype;
    size_t n_dim, dim[NB_GGUF_MAX_DIM]; /* slowest first */
    const unsigned char *data;
    size_t n_bytes;
} nb_gguf_part;
typedef nb_status nb_gguf_part_fn(void *ctx, const nb_gguf_part *part, nb_error *err);
/* Calls fn for every tensor: experts one by one, names in *names.  A name that is not known is handed on as it is. */
nb_status nb_gguf_tensors(const nb_gguf *g, nb_arena *names, nb_gguf_part_fn *fn, void *ctx,
                          nb_error *err);
/* The name of a layer's tensor in a GGUF file, behind "blk.N.", from that in a folder, behind "model.layers.N.";
 * NULL: none.  Experts and kv_b have other shapes there and are not among them. */
const char *nb_gguf_layer_name(const char *hf);
/* Writes the bytes of a part in its Hugging Face form: n_bytes at `to`. */
nb_status nb_gguf_make(const nb_gguf_part *part, void *to, nb_error *err);
#endif
