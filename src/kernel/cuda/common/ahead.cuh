/* ahead.cuh - memory asked for into the L2 cache before it is needed.
 *
 * From one layer to the next more weights go through the cache than it holds, so gains of a norm, rows of h
 * and tables of the step are read from memory each time: about half a microsecond more than from the
 * cache, in kernels that do little else.  A kernel that was launched early asks for them before
 * nb_grid_wait().  No value is read: whoever writes there meanwhile does so in the cache, too. */
#ifndef NB_KERNEL_CUDA_COMMON_AHEAD_CUH
#define NB_KERNEL_CUDA_COMMON_AHEAD_CUH
#include "kernel/cuda/common/cu.cuh"

/* [p, p + n_bytes); all threads of a block. */
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

#endif
