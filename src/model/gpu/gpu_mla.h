/* gpu_mla.h - what kinds of latent attention on a GPU share (gpu_mla.c). */
#ifndef NB_MODEL_GPU_MLA_H
#define NB_MODEL_GPU_MLA_H
#include "model/gpu/gpu.h"

/* Of the first n rows of x[DIRECT].q_nope: qx gets the absorbed parts of the queries. */
void nb_gpu_absorb(nb_gpu_rank *f, size_t layer, size_t n);
/* y = the heads' values of n rows u of absorbed results, [n_head][kv_lora] each. */
void nb_gpu_unabsorb(nb_gpu_rank *f, size_t layer, nb_cuda_rows u, nb_cuda_rows y, size_t n);

#endif
