/* gpu_upload.h - what uploads a model's weights: parts of gpu_weights.c.  gpu_upload.c brings matrices to the device,
 * gpu_kv_b.c the forms of kv_b. */
#ifndef NB_MODEL_GPU_UPLOAD_H
#define NB_MODEL_GPU_UPLOAD_H
#include "model/gpu/gpu_weights.h"

enum { NB_UP_PIECE = 32 << 20 }; /* the device hands out memory in units of 2 MiB: small tensors share pieces */

typedef struct nb_uploader {
    nb_gpu_weights *w;
    const nb_model *m;
    const nb_rank_part *part;
    nb_dev *dev;
    nb_error *err;
    int cc;
    bool use[2]; /* by kind */
    bool codes;  /* rows that read activations as codes are taken */
} nb_uploader;

/* Rows that a rank has of a matrix. */
typedef struct nb_up_rows {
    size_t first, n;
} nb_up_rows;
static inline nb_up_rows nb_up_all(const nb_weight *w)
{
    return (nb_up_rows){ 0, w->n_row };
}
/* Of this rank's heads, d_head each. */
static inline nb_up_rows nb_up_heads(const nb_attn_config *attn, size_t head0, size_t d_head)
{
    return (nb_up_rows){ head0 * d_head, attn->n_head * d_head };
}

/* Memory of the device, until the weights' end; n_bytes of the host to it, read before the call returns. */
nb_status nb_up_take(nb_uploader *u, size_t n_bytes, void **out);
void nb_up_put(nb_uploader *u, void *dst, const void *src, size_t n_bytes);
/* x NULL or n 0: *out is NULL. */
nb_status nb_up_vector(nb_uploader *u, const float *x, size_t n, const float **out);
/* The kernels of a matrix with n_out rows in the whole model, for the kinds in use. */
nb_status nb_up_choose(nb_uploader *u, const char *what, nb_gpu_mat *m, size_t n_out, bool two_parts);
/* n matrices of one form and n_col, one below the other: [sum of n_row][n_col]. */
nb_status nb_up_stack(nb_uploader *u, const nb_weight *const *src, size_t n, nb_weight *out);
/* A view of some rows; NB_ERR_UNSUPPORTED: they begin inside a block that has one scale. */
nb_status nb_up_view(const nb_uploader *u, const char *what, const nb_weight *w, nb_up_rows r, nb_weight *out);
/* Rows r of a matrix, with their kernels; a rank may have none. */
nb_status nb_up_matrix(nb_uploader *u, const char *what, const nb_weight *src, const float *bias, nb_up_rows r,
                       nb_gpu_mat *out);
/* Rows r[i] of the n matrices, whose products have the same rows. */
nb_status nb_up_group(nb_uploader *u, const char *what, const nb_weight *const *src, const float *const *bias,
                      const nb_up_rows *r, size_t n, nb_gpu_group *g);
/* The values of a matrix as floats, freed by the caller; NULL: out of memory. */
float *nb_up_values(const nb_weight *w);

/* ---- gpu_kv_b.c: the absorbed and the expanded form, for the kinds in use ---- */

nb_status nb_up_kv_b(nb_uploader *u, const nb_attn_config *attn, size_t head0, const nb_layer *l, nb_gpu_layer *g);

#endif
