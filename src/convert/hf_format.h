/* hf_format.h - the forms of weights in a Hugging Face folder: one row of a table each. */
#ifndef NB_CONVERT_HF_FORMAT_H
#define NB_CONVERT_HF_FORMAT_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NB_HF_MAX_OUT = 3, NB_HF_MAX_DIM = 2 };

/* One tensor of a module. */
typedef struct nb_hf_tensor {
    const char *suffix; /* ".weight_packed" */
    const char *dtype;  /* as safetensors spells it */
    size_t n_dim, dim[NB_HF_MAX_DIM];
    size_t bytes, align; /* in all; of an element */
} nb_hf_tensor;

typedef struct nb_hf_format {
    const char *name;
    size_t group; /* columns that share a scale and divide a row; 1: any number of columns */
    size_t n_out; /* tensors of a module */
    bool outer;   /* a scale for the whole matrix, and for those that are multiplied together */
    bool search;  /* scales are searched: the columns' weights count */
    const char *routers; /* how its list of what stays names the routers */
    /* The tensors of a matrix. */
    void (*describe)(const struct nb_hf_format *f, size_t rows, size_t cols,
                     nb_hf_tensor out[NB_HF_MAX_OUT]);
    /* Writes rows [r, r + n) of each tensor; r is a multiple of 128.  w: weights of the columns, or NULL.  outer: the
     * matrix's scale.  The last rows also write what there is one of. */
    void (*strip)(const struct nb_hf_format *f, const float *x, const float *w, size_t r, size_t n,
                  size_t rows, size_t cols, float outer, uint8_t *const out[NB_HF_MAX_OUT]);
    /* quantization_config; ignore: names of modules (stolen).  NULL function: none. */
    json_t *(*config)(const struct nb_hf_format *f, json_t *ignore);
    /* hf_quant_config.json, likewise. */
    json_t *(*file)(const struct nb_hf_format *f, json_t *ignore);
} nb_hf_format;

/* NULL: no such name. */
const nb_hf_format *nb_hf_format_of(const char *name);
#endif
