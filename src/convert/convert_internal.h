/* convert_internal.h - what the files of src/convert share. */
#ifndef NB_CONVERT_INTERNAL_H
#define NB_CONVERT_INTERNAL_H
#include <jansson.h>

#include "base/arena.h"
#include "convert/convert.h"
#include "load/json.h"
#include "load/source.h"
#include "kernel/kernel.h"
#include "os/pool.h"

struct nb_model_config;

enum { NB_CONV_STRIP = 128 }; /* rows of a task */

typedef struct nb_conv {
    const nb_convert_options *o;
    nb_convert_report *report;
    nb_error *err;
    nb_arena arena;
    nb_arena now; /* of the matrix that was taken last */
    nb_source *source;
    struct nb_model_config *model; /* NULL: nibble does not read it, and no_model says why */
    char no_model[NB_ERROR_MSG_BYTES];
    bool v4;                /* DeepSeek V4's published names */
    char **name;            /* [n_name] of nb_conv_list */
    size_t n_name;
    json_t *config, *text; /* config.json; the part that describes the language model */
    nb_pool *pool;
    float **scratch; /* [threads], each [NB_CONV_STRIP][scratch_cols] */
    size_t scratch_cols;
    uint64_t done_bytes;
    float *importance; /* of nb_conv_importance */
    size_t n_importance;
} nb_conv;

/* A matrix of the source. */
typedef struct nb_conv_matrix {
    const char *name;
    nb_tensor t; /* of codes: NB_DT_OTHER, the sizes of the matrix */
    bool coded;
    nb_weight w; /* of codes */
    size_t rows, cols;
} nb_conv_matrix;

/* ---- convert_forms.c ---- */

/* Reads config.json as the engine does, for what the tensors of codes do not say.  A model that it does not read is no
 * failure. */
nb_status nb_conv_read_model(nb_conv *c);
/* Names of the source's tensors into c->name: a matrix in codes is one, "X.weight".  Before a tensor is taken. */
nb_status nb_conv_list(nb_conv *c);
/* Sizes of a tensor, without its data; m->coded. */
nb_status nb_conv_size(nb_conv *c, const char *name, nb_conv_matrix *m);
/* The data of a matrix in codes whose sizes m has; of one in a tensor of all n experts ("gate", "up", "down"). */
nb_status nb_conv_take_coded(nb_conv *c, nb_conv_matrix *m);
nb_status nb_conv_take_coded_stack(nb_conv *c, const char *experts, size_t e, size_t n, const char *part,
                                   nb_conv_matrix *m);
void nb_conv_coded_row(const nb_conv_matrix *m, size_t r, float *out);

/* ---- convert_read.c ---- */

/* Takes tensor `name`; what was taken before it may be gone.  Where all experts of a layer are in one tensor, an expert's
 * matrix is taken by the name that it would have alone. */
nb_status nb_conv_take(nb_conv *c, const char *name, nb_conv_matrix *out);
/* Only what kind it is, and its sizes. */
nb_status nb_conv_take_size(nb_conv *c, const char *name, nb_conv_matrix *out);
/* Matrices that tensor `name` holds if it has all experts of a layer ("...mlp.experts.gate_up_proj", "...down_proj"); 0:
 * it does not.  The name of one: *out. */
size_t nb_conv_n_stacked(const nb_conv *c, const char *name);
/* Whether it has the scales of such a tensor. */
bool nb_conv_is_beside_stack(const char *name);
nb_status nb_conv_stacked_name(nb_conv *c, const char *name, size_t i, char **out);
/* Rows [r, r + n) as floats. */
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
