/* block.cuh - what several kernels compute alike: a pair turned by its angle, a prefix sum over a block. */
#ifndef NB_KERNEL_CUDA_COMMON_BLOCK_CUH
#define NB_KERNEL_CUDA_COMMON_BLOCK_CUH
#include "kernel/cuda/common/ptx.cuh"

/* Pair j of the 2 half values at x turned by cosine c and sine s; interleaved: neighbours, else `half` apart.  finish.cu,
 * whose results are the host's, has its own order of products. */
__device__ inline void nb_turn_pair(float *x, uint32_t j, uint32_t half, bool interleaved, float c, float s)
{
    const uint32_t i = interleaved ? 2 * j : j, o = interleaved ? i + 1 : i + half;
    const float u = x[i], v = x[o];
    x[i] = __fmaf_rn(u, c, -__fmul_rn(v, s));
    x[o] = __fmaf_rn(v, c, __fmul_rn(u, s));
}

/* Exclusive prefix sum over the block's THREADS threads, all of which call it; *all becomes the total.
 * shared: [THREADS / 32]. */
template <uint32_t THREADS> __device__ uint32_t nb_block_before(uint32_t v, uint32_t *shared, uint32_t *all)
{
    const uint32_t lane = threadIdx.x % 32, w = threadIdx.x / 32;
    uint32_t sum = v, base = 0, total = 0;
#pragma unroll
    for (uint32_t b = 1; b < 32; b *= 2) {
        const uint32_t left = __shfl_up_sync(~0u, sum, b);
        if (lane >= b) sum += left;
    }
    __syncthreads(); /* the previous contents have been read */
    if (lane == 31) shared[w] = sum;
    __syncthreads();
    for (uint32_t k = 0; k < THREADS / 32; k++) {
        if (k < w) base += shared[k];
        total += shared[k];
    }
    *all = total;
    return base + sum - v;
}

#endif
