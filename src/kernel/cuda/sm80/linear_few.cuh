/* linear_few.cuh - how the warps of a block add their sums; shared by linear_few.cu and linear_codes.cu.
 *
 * Class F: KIND, MT tiles of 16 rows and NT of 8 tokens per warp, ROWS of the result per warp, ROW_FACTOR: a row's
 * sum is multiplied by nb_lin.scale[row] (tiled weights). */
#ifndef NB_KERNEL_CUDA_SM80_LINEAR_FEW_CUH
#define NB_KERNEL_CUDA_SM80_LINEAR_FEW_CUH
#include "kernel/cuda/sm80/linear_mma.cuh"

namespace few_rows
{
enum { PITCH = 20 };               /* floats between tokens of a partial sum: no bank conflicts */
enum kind { ROWS16, ROWS32, GLU }; /* rows of a warp's tile */

/* Stores a warp's sums to shared memory: [m][token][row]. */
template <class F> __device__ inline void put_part(float *part, const float (&sum)[F::MT][F::NT][4])
{
    const uint32_t g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
    for (int m = 0; m < F::MT; m++)
#pragma unroll
        for (int n = 0; n < F::NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                part[((m * F::NT + n) * 8 + 2 * t + (e & 1)) * PITCH + g + 8 * (e >> 1)] =
                    sum[m][n][e];
}

/* Adds the ranges' sums in order and writes the result. */
template <class F>
__device__ inline void join(const nb_lin &j, const float *parts, uint32_t n_tile, uint32_t batch,
                            uint32_t tok0, uint32_t end)
{
    const uint32_t one = 8 * F::NT * PITCH, all = F::MT * one; /* floats per tile, per warp */
    for (uint32_t i = threadIdx.x; i < n_tile * 8 * F::NT * F::ROWS; i += blockDim.x) {
        const uint32_t r = i % F::ROWS, n = i / F::ROWS % (8 * F::NT),
                       tile = i / (F::ROWS * 8 * F::NT);
        const uint32_t row = (blockIdx.x * n_tile + tile) * F::ROWS + r;
        if (row >= j.n_out || tok0 + n >= end) continue;
        const float *p = parts + tile * j.n_range * all + r / 16 * one + n * PITCH + r % 16;
        float v = p[0], up = F::KIND == GLU ? p[one] : 0;
        for (uint32_t s = 1; s < j.n_range; s++) {
            v = __fadd_rn(v, p[s * all]);
            if (F::KIND == GLU) up = __fadd_rn(up, p[s * all + one]);
        }
        if (F::ROW_FACTOR) {
            v = __fmul_rn(v, j.scale[0][batch * j.w_rows + row]);
            if (F::KIND == GLU) up = __fmul_rn(up, j.scale[1][batch * j.w_rows + row]);
        }
        nb_lin_store(j, batch, tok0 + n, row, F::KIND == GLU ? nb_lin_swiglu(v, up, j.limit) : v);
    }
}

} // namespace few_rows

#endif
