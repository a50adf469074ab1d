/* gpu_dsa.h - sparse attention on a GPU (gpu_dsa.c): its workspace, and what creating a rank asks of it. */
#ifndef NB_MODEL_GPU_DSA_H
#define NB_MODEL_GPU_DSA_H
#include "model/gpu/gpu_index.h"

enum { NB_GPU_SETS = 2 }; /* sizes of units among the layers' kernels */

/* How a kind of pass cuts the chosen pages of a row, and where these are. */
typedef struct nb_gpu_sparse_cut {
    size_t unit_page, n_unit, table_stride;
    uint32_t *table, *part_first; /* device: [rows][table_stride]; [rows + 1] */
} nb_gpu_sparse_cut;

typedef struct nb_gpu_sparse {
    bool any;      /* some layer is sparse */
    size_t rows;   /* of a group, which the buffers are for */
    size_t n_page, page_bytes, n_values; /* of the widest layer */
    nb_gpu_sparse_cut cut[NB_GPU_SETS][2]; /* by kind */
    size_t n_unit;                         /* of a row, at most */
    /* device: as in nb_cuda_sparse.h, for a group.  The indexer has the choices of a pass, until the next layer with one */
    float *rest, *own;
    uint32_t *has, *n_item;
    unsigned char *page;
    nb_cuda_chunk *chunk;
    nb_cuda_item *item;
} nb_gpu_sparse;

enum { NB_GPU_DSA_SLOTS = 24 };

/* The record that attention over pages sees: that of the layer, without the keys of an indexer. */
nb_record nb_gpu_attn_record(const nb_gpu_rank *f, size_t layer);
/* In order of creation: kernels; after nb_gpu_index_size, sizes, and states of a row at most (0: no layer is sparse); rows
 * of a group, once max_part is known; buffers, for passes of at most max_row rows; what is uploaded. */
nb_status nb_gpu_dsa_choose(nb_gpu_rank *f, nb_error *err);
size_t nb_gpu_dsa_states(nb_gpu_rank *f);
void nb_gpu_dsa_size(nb_gpu_rank *f);
size_t nb_gpu_dsa_slots(nb_gpu_rank *f, size_t max_row, nb_gpu_slot *out);
nb_status nb_gpu_dsa_create(nb_gpu_rank *f, nb_error *err);

#endif
