/* gpu_stage.h - the small arrays of a pass on a GPU (gpu_tables.c). */
#ifndef NB_MODEL_GPU_STAGE_H
#define NB_MODEL_GPU_STAGE_H
#include "kernel/cuda/api/nb_cuda_items.h"
#include "model/gpu/gpu_dsa.h"

/* Where the small arrays of a pass are: the same layout in pinned and in device memory. */
typedef struct nb_gpu_section {
    uint32_t *n_item; /* [NB_GPU_SETS] */
    uint32_t *tok, *pos, *row_chunk;
    unsigned char *rope_long, *thrift; /* thrift: whether the row is in Thrift mode */
    unsigned char *on;                 /* nb_gpu_share_on */
    uint32_t *salt;                    /* nb_gpu_share_salt */
    uint32_t *part_first[NB_GPU_SETS]; /* [n_row + 1] */
    nb_cuda_chunk *chunk;
    nb_cuda_item *item[NB_GPU_SETS];
    uint32_t *block;
} nb_gpu_section;

/* Sizes and memory of the sections of one kind of pass. */
typedef struct nb_gpu_stage {
    size_t max_row, max_chunk, max_item, max_block, on_bytes;
    size_t fixed_bytes, item_off[NB_GPU_SETS], block_off, n_bytes;
    nb_gpu_section host, dev;
    char *host_mem, *dev_mem;
    bool in_flight; /* the host's bytes are being read */
} nb_gpu_stage;

#endif
