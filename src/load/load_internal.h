/* load_internal.h - shared by the files of src/load, not for others: one safetensors header, the
 * generator of dummy weights. */
#ifndef NB_LOAD_INTERNAL_H
#define NB_LOAD_INTERNAL_H
#include "base/arena.h"
#include "load/json.h"
#include "load/source.h"

/* Headers and indices: 4 Mi values are some 500,000 tensors with their shapes. */
#define NB_HEADER_LIMITS ((nb_json_limits){ 100000000, 8, 4194304 })

/* One tensor of a file.  tensor.data may be misaligned here. */
typedef struct nb_st_tensor {
    nb_tensor tensor;
    const char *name; /* in the arena given to nb_safetensors_parse */
    size_t n_name_bytes;
    size_t file; /* index of the source's file */
    void *owned; /* aligned copy of the data, made when it is taken */
    bool taken;
    struct nb_gguf_part
        *part;              /* GGUF: how its bytes are made when it is taken; NULL: it is a view */
    const char *type, *why; /* GGUF: a type that is not read, and why; else NULL */
} nb_st_tensor;

/* Checks the whole header; on success *out (heap, the caller frees it; NULL for no
 * tensors) has *n tensors in the header's order, and data points into bytes. */
nb_status nb_safetensors_parse(nb_str bytes, const char *name, size_t file, nb_arena *names,
                               nb_st_tensor **out, size_t *n, nb_error *err);

/* "BF16 [2, 3]", for error lines. */
typedef struct nb_shape_text {
    char s[256];
} nb_shape_text;
nb_shape_text nb_shape_show(const size_t *dim, size_t n_dim);

/* The generator behind nb_source_open_dummy; owns everything it returns. */
typedef struct nb_dummy nb_dummy;
nb_status nb_dummy_create(uint64_t seed, double stddev, nb_dummy **out, nb_error *err);
void nb_dummy_destroy(nb_dummy *d);
nb_status nb_dummy_make(nb_dummy *d, const nb_tensor_want *want, nb_tensor *out, nb_error *err);

#endif
