/* ahead.cuh - prefetches memory into L2.
 *
 * From one layer to the next more weights pass through L2 than it holds.  So gains of a norm, rows of h and tables of
 * the step come from device memory each time, which costs about half a microsecond more than L2 in kernels that do
 * little else.  A kernel launched early prefetches them before nb_grid_wait().  This is safe because no value is read:
 * whoever still writes there writes to L2 too. */
#ifndef NB_KERNEL_CUDA_COMMON_AHEAD_CUH
#define NB_KERNEL_CUDA_COMMON_AHEAD_CUH
#include "kernel/cuda/common/cu.cuh"

/* Prefetches [p, p + n_bytes).  Called by all threads of a block. */
__device__ inline void nb_ahead(const void *p, size_t n_bytes)
{
#if NB_CUDA_EMULATED
    (void)p, (void)n_bytes;
#else
    const char *from = static_cast<const char *>(p);
    for (size_t i = (size_t)128 * threadIdx.x; i < n_bytes; i += (size_t)128 * blockDim.x)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i) : "memory");
#endif
}

/* Prefetches the line of p. */
__device__ inline void nb_ahead_line(const void *p)
{
#if NB_CUDA_EMULATED
    (void)p;
#else
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p) : "memory");
#endif
}

#endif
