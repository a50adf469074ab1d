/* convert.h - a checkpoint with its weights in another form.  Weights that are in codes already, in any form that nibble
 * runs, become the floats that these codes mean, strip by strip, and are quantised again.
 *
 *   name              file                                      matrices of the layers
 *   int4-g32, -g128   safetensors, compressed-tensors           INT4, a BF16 scale per 32 or 128 columns
 *   nvfp4             safetensors, compressed-tensors           E2M1, an E4M3 scale per 16, one float for all
 *   mxfp4             safetensors, compressed-tensors           E2M1, a power of two per 32
 *   fp8               safetensors, compressed-tensors           E4M3, a float per row
 *   fp8-block         safetensors, DeepSeek's own               E4M3, a float per 128 x 128
 *   modelopt-nvfp4    safetensors, ModelOpt                     as nvfp4, the float multiplies
 *   modelopt-fp8      safetensors, ModelOpt                     as fp8
 *   bf16              safetensors                               BF16
 *   gguf:TYPE         one GGUF file                             by llama.cpp's mixture of that name
 *
 * Scales are searched block by block for the least squared error (num/fit.h, num/weight_encode.h).  In
 * safetensors embeddings, the head, routers, norms and what is not a projection of a layer stay as they are,
 * and so does a matrix whose columns are no multiple of the group.
 *
 * Tensors are read from mapped files and written one by one: memory holds one matrix at a time.  The result takes its
 * name when it is complete. */
#ifndef NB_CONVERT_CONVERT_H
#define NB_CONVERT_CONVERT_H
#include "nibble/nibble.h"

#include "base/status.h"
#include "convert/imatrix.h"

typedef struct nb_convert_options {
    const char *model;  /* a Hugging Face folder */
    const char *out;    /* what will be made; must not exist */
    const char *format; /* nb_convert_formats */
    const char *keep; /* words joined by commas: matrices whose name has one stay floats; or NULL */
    const char *
        gguf_pre; /* tokenizer.ggml.pre, "none" for a file without tokenizer; NULL: by the patterns */
    const nb_imatrix
        *imatrix; /* borrowed; how much each column's error counts, or NULL: all alike */
    uint64_t max_shard_bytes; /* safetensors; 0: 5 GB */
    size_t n_thread;          /* 0: one per core */
    nb_progress_fn *progress; /* or NULL */
    void *progress_ctx;
} nb_convert_options;

typedef struct nb_convert_report {
    size_t n_quantised,
        n_kept;        /* matrices of layers; kept: asked for, or columns that do not fit */
    size_t n_fallback; /* GGUF: matrices in another type than the mixture says */
    size_t n_left_out; /* GGUF: tensors of layers for speculation */
    /* with an imatrix, of matrices whose scales are searched: with values of their own; with the mean of the layer's
     * experts, because they got fewer than NB_IMATRIX_FEW_ROWS inputs; with none.  Halves of kv_b count by heads. */
    size_t n_weighted, n_shared, n_unweighted;
    uint64_t in_bytes, out_bytes;
} nb_convert_report;

/* The names, joined by "|". */
extern const char nb_convert_formats[];

/* Whether a format searches for scales, so that an imatrix changes it. */
bool nb_convert_searches(const char *format);

/* NB_ERR_ARG: an unknown format, or OUT exists.  NB_ERR_UNSUPPORTED: a model that the form cannot hold, or one whose
 * codes nibble does not read.  NB_ERR_FORMAT: broken files, values that are not finite.  NB_ERR_IO, NB_ERR_NOMEM.
 * Nothing is left behind after a failure. */
nb_status nb_convert_check(const nb_convert_options *o,
                           nb_error *err); /* what it asks before it reads weights */
nb_status nb_convert(const nb_convert_options *o, nb_convert_report *out, nb_error *err);
#endif
