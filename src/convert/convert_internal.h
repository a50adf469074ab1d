/* convert_internal.h - what the files of src/convert share. */
#ifndef NB_CONVERT_INTERNAL_H
#define NB_CONVERT_INTERNAL_H
#include <jansson.h>

#include "base/arena.h"
#include "convert/convert.h"
#include "load/json.h"
#include "load/source.h"
#include "os/pool.h"

enum { NB_CONV_STRIP = 128 }; /* rows of a task */

typedef struct nb_conv {
    const nb_convert_options *o;
    nb_convert_report *report;
    nb_error *err;
    nb_arena arena;
    nb_source *source;
    json_t *config, *text; /* config.json; the part that describes the language model */
    nb_pool *pool;
    float **scratch; /* [threads], each [NB_CONV_STRIP][scratch_cols] */
    size_t scratch_cols;
    uint64_t done_bytes;
    float *importance; /* of nb_conv_importance */
    size_t n_importance;
} nb_conv;

/* A matrix of the source, as floats. */
typedef struct nb_conv_matrix {
    const char *name;
    nb_tensor t;
    const nb_tensor *scale; /* of FP8 blocks: [rows / 128][cols / 128], F32 or BF16; NULL: none */
    size_t rows, cols;
} nb_conv_matrix;

/* ---- convert_read.c ---- */

/* Takes tensor `name`.  A module with other tensors of codes is refused: it is quantised already.  Where all experts of a
 * layer are in one tensor, an expert's matrix is taken by the name that it would have alone. */
nb_status nb_conv_take(nb_conv *c, const char *name, nb_conv_matrix *out);
/* Matrices that tensor `name` holds if it has all experts of a layer ("...mlp.experts.gate_up_proj", "...down_proj"); 0:
 * it does not.  The name of one: *out. */
size_t nb_conv_n_stacked(const nb_conv *c, const char *name);
nb_status nb_conv_stacked_name(nb_conv *c, const char *name, size_t i, char **out);
/* Rows [r, r + n) as floats.  Codes of FP8 are multiplied by their scale. */
void nb_conv_rows(const nb_conv_matrix *m, size_t r, size_t n, float *out);
bool nb_conv_finite(const float *x, size_t n);
/* How a value that is not finite ends it. */
nb_status nb_conv_not_finite(nb_conv *c, const char *name);
/* Room for rows of cols values in every thread's scratch. */
nb_status nb_conv_scratch(nb_conv *c, size_t cols);
/* Calls fn for strips of rows on all threads: x has the floats of rows [r, r + n) of m.  NB_ERR_FORMAT for values
 * that are not finite. */
typedef void nb_conv_strip_fn(void *ctx, const float *x, size_t r, size_t n);
nb_status nb_conv_strips(nb_conv *c, const nb_conv_matrix *m, nb_conv_strip_fn *fn, void *ctx);
/* The largest magnitude of a matrix. */
nb_status nb_conv_largest(nb_conv *c, const nb_conv_matrix *m, float *out);
/* *w: weights of the matrix's columns, [n_head][cols] where part is one of kv_b's halves, else [cols]; NULL: none.  Valid
 * until the next call. */
nb_status nb_conv_importance(nb_conv *c, const char *name, nb_imatrix_part part, size_t n_head,
                             size_t cols, const float **w);
/* A matrix is done. */
void nb_conv_progress(nb_conv *c, const nb_conv_matrix *m);
/* Whether `name` has one of the words of --keep. */
bool nb_conv_keeps(const nb_conv *c, const char *name);
nb_status nb_conv_nomem(nb_conv *c);
/* Reads a text of the model; *found is false where there is none. */
nb_status nb_conv_text(nb_conv *c, const char *name, nb_buf *out, bool *found);
/* The same as a tree, NULL where there is none; the caller's. */
nb_status nb_conv_json(nb_conv *c, const char *name, json_t **out);

/* ---- the two kinds of output ---- */

nb_status nb_conv_hf(nb_conv *c, const char *format); /* convert_hf.c: into the folder o->out */
nb_status nb_conv_gguf(nb_conv *c, const char *type); /* convert_gguf.c: into the file o->out */
#endif
