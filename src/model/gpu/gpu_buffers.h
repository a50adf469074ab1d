/* gpu_buffers.h - sizes of a GPU's pass, and its memory (gpu_buffers.c). */
#ifndef NB_MODEL_GPU_BUFFERS_H
#define NB_MODEL_GPU_BUFFERS_H
#include "model/gpu/gpu.h"

enum { NB_GPU_PAD_ROWS = 32 }; /* a graph's rows are rounded up */

static inline size_t nb_most(size_t a, size_t b)
{
    return a > b ? a : b;
}
static inline size_t nb_least(size_t a, size_t b)
{
    return a < b ? a : b;
}
static inline size_t nb_div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* Once kernels are chosen and weights uploaded: rows, states and tables of the largest pass; then one allocation for all
 * buffers of the device. */
void nb_gpu_size(nb_gpu_rank *f);
nb_status nb_gpu_allocate(nb_gpu_rank *f, nb_error *err);

#endif
