/* moe_sum.cu - y[t] = sum over k of weight[t][k] * e[place[t][k]], in the order of the token's choices;
 * then + shared[t] if there is one.  And the rows of zero experts, which are copies of what they read.
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

/* Every place has a block, since a graph's grid is fixed; most have nothing to do. */
__global__ void zero_kernel(nb_cuda_zero_experts_args a, bool vec)
{
    nb_grid_next();
    nb_grid_wait();
    const size_t p = blockIdx.x, i = 4 * ((size_t)blockIdx.y * THREADS + threadIdx.x);
    if (i >= a.dim || p < a.first[0] || p >= a.first[a.n_zero]) return;
    const size_t n = a.dim - i, at = a.src[p] * a.x.stride + i; /* rows are padded to 8 values */
    const uint2 hi = *reinterpret_cast<const uint2 *>(a.x.hi + at);
    uint2 lo = make_uint2(0, 0);
    if (a.x.lo) lo = *reinterpret_cast<const uint2 *>(a.x.lo + at);
    const uint32_t h[4] = { hi.x << 16, hi.x & 0xffff0000u, hi.y << 16, hi.y & 0xffff0000u };
    const uint32_t l[4] = { lo.x << 16, lo.x & 0xffff0000u, lo.y << 16, lo.y & 0xffff0000u };
    float v[4];
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) v[j] = __fadd_rn(__uint_as_float(h[j]), __uint_as_float(l[j]));
    nb_store4(a.y + p * a.y_stride + i, v, n, vec);
}

unsigned parts_of(size_t dim)
{
    return (unsigned)((dim + 4 * THREADS - 1) / (4 * THREADS));
}
} /* namespace */

void nb_cuda_zero_experts(nb_cuda *g, const nb_cuda_zero_experts_args *a)
{
    if (a->n_place == 0 || a->n_zero == 0) return;
    const bool vec = nb_rows_aligned(a->y, a->y_stride);
    NB_LAUNCH_EARLY(g, zero_kernel, dim3((unsigned)a->n_place, parts_of(a->dim)), THREADS, 0, *a,
                    vec);
}

void nb_cuda_moe_sum(nb_cuda *g, const nb_cuda_moe_sum_args *a)
{
    if (a->n_tok == 0) return;
    const bool vec = nb_rows_aligned(a->y, a->y_stride) && nb_rows_aligned(a->e, a->e_stride) &&
                     nb_rows_aligned(a->shared, a->shared_stride);
    NB_LAUNCH_EARLY(g, sum_kernel, dim3((unsigned)a->n_tok, parts_of(a->dim)), THREADS, 0, *a, vec);
}
