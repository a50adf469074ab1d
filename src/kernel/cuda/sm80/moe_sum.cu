/* moe_sum.cu - y[t] = sum over k of weight[t][k] * e[place[t][k]], in the order of the token's choices;
 * then + shared[t] if there is one.
 *
 * A thread computes four values of a token from as many rows as there are choices.  Product and sum are rounded
 * separately, as on the host (forward_ffn.c).  Bound by memory. */
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"

namespace
{
constexpr uint32_t THREADS = 128;

__global__ void sum_kernel(nb_cuda_moe_sum_args a, bool vec)
{
    nb_grid_next();
    nb_grid_wait();
    const size_t t = blockIdx.x, i = 4 * ((size_t)blockIdx.y * THREADS + threadIdx.x);
    if (i >= a.dim) return;
    const size_t n = a.dim - i;
    float s[4] = { 0, 0, 0, 0 }, v[4];
#pragma unroll 4
    for (size_t k = t * a.top_k; k < (t + 1) * a.top_k; k++) {
        const float w = a.weight[k];
        nb_load4(v, a.e + a.place[k] * a.e_stride + i, n, vec);
        for (int j = 0; j < 4; j++) s[j] = __fadd_rn(s[j], __fmul_rn(w, v[j]));
    }
    if (a.shared) {
        nb_load4(v, a.shared + t * a.shared_stride + i, n, vec);
        for (int j = 0; j < 4; j++) s[j] = __fadd_rn(s[j], v[j]);
    }
    nb_store4(a.y + t * a.y_stride + i, s, n, vec);
}
} /* namespace */

void nb_cuda_moe_sum(nb_cuda *g, const nb_cuda_moe_sum_args *a)
{
    if (a->n_tok == 0) return;
    const bool vec = nb_rows_aligned(a->y, a->y_stride) && nb_rows_aligned(a->e, a->e_stride) &&
                     nb_rows_aligned(a->shared, a->shared_stride);
    const unsigned parts = (unsigned)((a->dim + 4 * THREADS - 1) / (4 * THREADS));
    NB_LAUNCH_EARLY(g, sum_kernel, dim3((unsigned)a->n_tok, parts), THREADS, 0, *a, vec);
}
