/* gpu_index.h - the indexer of sparse and of compressed attention on a GPU (gpu_index.c): its workspace, and the choice. */
#ifndef NB_MODEL_GPU_INDEX_H
#define NB_MODEL_GPU_INDEX_H
#include "kernel/cuda/api/nb_cuda.h"

typedef struct nb_gpu_rank nb_gpu_rank;
typedef struct nb_gpu_pass nb_gpu_pass;

enum {
    NB_GPU_INDEX_SEG = 2,          /* an indexer's keys, behind a row's two segments */
    NB_GPU_GROUP_BYTES = 512 << 20 /* of a group of rows that choose, unless one row needs more */
};

typedef struct nb_gpu_index {
    const nb_cuda_index_row **row; /* [n_layer]; NULL: the layer has no indexer of its own */
    size_t topk, head, q_width, q16_width; /* of the widest layer; topk 0: none has one */
    size_t stride; /* keys of the longest sequence, in whole 64 */
    /* device: of a group, as in nb_cuda_sparse.h; chosen: of as many rows as nb_gpu_index_slots was told */
    float *q, *w, *w16, *score;
    uint16_t *q16;
    uint32_t *chosen, *scratch;
} nb_gpu_index;

/* A buffer: where its pointer goes, its bytes. */
typedef struct nb_gpu_slot {
    void *at; /* of a pointer */
    size_t n_bytes;
} nb_gpu_slot;
enum { NB_GPU_INDEX_SLOTS = 7 };

/* In order of creation: the kernel of a layer that has an indexer; sizes, once max_block is known, and bytes of a row of
 * a group, but for its choice; buffers for groups of `group` rows, and n_choice rows' choices. */
nb_status nb_gpu_index_choose(nb_gpu_rank *f, size_t layer, nb_error *err);
void nb_gpu_index_size(nb_gpu_rank *f);
size_t nb_gpu_index_bytes(const nb_gpu_rank *f);
size_t nb_gpu_index_slots(nb_gpu_rank *f, size_t group, size_t n_choice, nb_gpu_slot *out);

/* What rows [row0, row0 + n) of the pass attend to, ascending, to chosen [n][index_topk].  Of a prompt, rows that choose
 * among tokens are of one chunk. */
void nb_gpu_index_pick(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t row0, size_t n, uint32_t *chosen);

/* Cosines and sines of the layer's attention, from a row of the pass on. */
const float *nb_gpu_cos_sin(const nb_gpu_rank *f, size_t layer, size_t row);
/* The rows from `row` on. */
static inline nb_cuda_rows nb_gpu_rows_from(nb_cuda_rows x, size_t row)
{
    if (x.f) x.f += row * x.stride;
    if (x.hi) x.hi += row * x.stride;
    if (x.lo) x.lo += row * x.stride;
    return x;
}

#endif
