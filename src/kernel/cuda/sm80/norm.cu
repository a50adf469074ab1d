/* norm.cu - ends a branch and starts the next: h += f * branch, y = RMS norm of h times the gains, split to BF16.
 *
 * Block: one row, 256 threads.  Thread i owns the values 4 i .. 4 i + 3 of every 1,024; rows of up to 8,192 values stay
 * in registers, so h is read once.  Squares are summed in one chain per thread, by shuffles within a warp, and over
 * warps in double.
 * Few rows: bound by the latency of one round trip to L2; the gains are loaded and h is prefetched before the kernel
 * that produces the branch has ended.  Many rows: bound by memory. */
#include "kernel/cuda/common/ahead.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"

namespace
{
constexpr uint32_t THREADS = 256, WARPS = THREADS / 32, STEP = 4 * THREADS;

/* 1 / sqrt(mean of squares + eps), the same in all threads. */
__device__ float factor_of(float squares, size_t dim, float eps)
{
    __shared__ float part[WARPS];
    const float s = nb_warp_sum(squares);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    double sum = 0;
    for (uint32_t i = 0; i < WARPS; i++) sum += (double)part[i];
    return (float)(1.0 / sqrt(sum / (double)dim + (double)eps));
}

__device__ void load(float (&v)[4], const nb_cuda_norm_args &a, size_t r, size_t i, bool vec)
{
    nb_load4(v, a.h + r * a.h_stride + i, a.dim - i, vec);
}

/* A thread's values of moe_sum, with its arithmetic.  The loads of several experts are issued before the first is
 * used. */
template <int V>
__device__ void sum_experts(float (&b)[V][4], const nb_cuda_norm_args &a, size_t r, bool vec)
{
    constexpr uint32_t GROUP = 16 / V;
    const nb_cuda_moe_sum_args &m = a.sum;
    const uint32_t top_k = (uint32_t)m.top_k, n = top_k + (m.shared ? 1 : 0);
#pragma unroll
    for (int k = 0; k < V; k++) b[k][0] = b[k][1] = b[k][2] = b[k][3] = 0;
    for (uint32_t c0 = 0; c0 < n; c0 += GROUP) {
        const float *e[GROUP];
        float w[GROUP], x[GROUP][V][4];
#pragma unroll
        for (uint32_t u = 0; u < GROUP; u++) {
            const size_t at = r * top_k + c0 + u;
            w[u] = c0 + u < top_k ? m.weight[at] : 1;
            e[u] = c0 + u < top_k ? m.e + m.place[at] * m.e_stride : m.shared + r * m.shared_stride;
        }
#pragma unroll
        for (uint32_t u = 0; u < GROUP; u++)
#pragma unroll
            for (uint32_t k = 0; k < V; k++) {
                const size_t i = 4 * threadIdx.x + k * STEP;
                if (c0 + u < n && i < a.dim) nb_load4(x[u][k], e[u] + i, a.dim - i, vec);
            }
#pragma unroll
        for (uint32_t u = 0; u < GROUP; u++)
#pragma unroll
            for (uint32_t k = 0; k < V; k++)
#pragma unroll
                for (uint32_t j = 0; j < 4; j++)
                    if (c0 + u < n) b[k][j] = __fadd_rn(b[k][j], __fmul_rn(w[u], x[u][k][j]));
    }
}

/* h += f * b in place, rounded twice as on the host; b: the branch. */
__device__ void add(float (&v)[4], const float (&b)[4], const nb_cuda_norm_args &a, size_t r,
                    size_t i, bool vec)
{
    for (int j = 0; j < 4; j++) v[j] = __fadd_rn(v[j], __fmul_rn(a.branch_factor, b[j]));
    nb_store4(a.h + r * a.h_stride + i, v, a.dim - i, vec);
}

__device__ float add_squares(float s, const float (&v)[4])
{
    for (int j = 0; j < 4; j++) s = __fmaf_rn(v[j], v[j], s);
    return s;
}

__device__ void put(const nb_cuda_norm_args &a, size_t t, size_t i, float (&v)[4],
                    const float (&w)[4], float f)
{
    for (int j = 0; j < 4; j++) v[j] = __fmul_rn(__fmul_rn(__fmul_rn(v[j], f), w[j]), a.y_factor);
    nb_put4(a.y, t * a.y.stride + i, v, a.dim - i);
}

/* Rows of up to V * 1,024 values.  All loads are issued before the first store: loads behind a store would wait for it,
 * and a row of 7,168 values took twice the time. */
template <int V, bool SUM> __global__ void norm_kernel(nb_cuda_norm_args a, bool vec)
{
    float v[V][4], w[V][4], gain[V][4], squares = 0;
    nb_grid_next();
    if (!a.row) nb_ahead(a.h + blockIdx.x * a.h_stride, a.dim * sizeof(float));
#pragma unroll
    for (int k = 0; k < V; k++) {
        const size_t i = 4 * threadIdx.x + (size_t)k * STEP;
        if (a.w && i < a.dim) nb_load4(gain[k], a.w + i, a.dim - i, vec);
    }
    nb_grid_wait();
    const size_t t = blockIdx.x, r = a.row ? a.row[t] : t;
#pragma unroll
    for (int k = 0; k < V; k++) {
        const size_t i = 4 * threadIdx.x + (size_t)k * STEP;
        if (i >= a.dim) continue;
        load(v[k], a, r, i, vec);
        if (!SUM && a.branch) nb_load4(w[k], a.branch + r * a.branch_stride + i, a.dim - i, vec);
    }
    if constexpr (SUM) sum_experts<V>(w, a, r, vec);
#pragma unroll
    for (int k = 0; k < V; k++) {
        const size_t i = 4 * threadIdx.x + (size_t)k * STEP;
        if (i < a.dim && (SUM || a.branch)) add(v[k], w[k], a, r, i, vec);
    }
    if (!a.w) return;
#pragma unroll
    for (int k = 0; k < V; k++) {
        const size_t i = 4 * threadIdx.x + (size_t)k * STEP;
        if (i < a.dim) squares = add_squares(squares, v[k]);
    }
    const float f = factor_of(squares, a.dim, a.eps);
#pragma unroll
    for (int k = 0; k < V; k++) {
        const size_t i = 4 * threadIdx.x + (size_t)k * STEP;
        if (i < a.dim) put(a, t, i, v[k], gain[k], f);
    }
}

/* Rows of any length; h is read twice. */
__global__ void norm_long_kernel(nb_cuda_norm_args a, bool vec)
{
    nb_grid_next();
    nb_grid_wait();
    const size_t t = blockIdx.x, r = a.row ? a.row[t] : t;
    float v[4], w[4], squares = 0;
    for (size_t i = 4 * threadIdx.x; i < a.dim; i += STEP) {
        load(v, a, r, i, vec);
        if (a.branch) {
            nb_load4(w, a.branch + r * a.branch_stride + i, a.dim - i, vec);
            add(v, w, a, r, i, vec);
        }
        squares = add_squares(squares, v);
    }
    if (!a.w) return;
    const float f = factor_of(squares, a.dim, a.eps);
    for (size_t i = 4 * threadIdx.x; i < a.dim; i += STEP) {
        nb_load4(v, a.h + r * a.h_stride + i, a.dim - i, vec);
        nb_load4(w, a.w + i, a.dim - i, vec);
        put(a, t, i, v, w, f);
    }
}

template <bool SUM> void launch(nb_cuda *g, const nb_cuda_norm_args *a, bool vec)
{
    const unsigned n = (unsigned)a->n_row;
    if (a->dim <= 2 * STEP)
        NB_LAUNCH_EARLY(g, (norm_kernel<2, SUM>), n, THREADS, 0, *a, vec);
    else if (a->dim <= 4 * STEP)
        NB_LAUNCH_EARLY(g, (norm_kernel<4, SUM>), n, THREADS, 0, *a, vec);
    else if (a->dim <= 6 * STEP)
        NB_LAUNCH_EARLY(g, (norm_kernel<6, SUM>), n, THREADS, 0, *a, vec);
    else if (a->dim <= 8 * STEP)
        NB_LAUNCH_EARLY(g, (norm_kernel<8, SUM>), n, THREADS, 0, *a, vec);
    else
        NB_LAUNCH_EARLY(g, norm_long_kernel, n, THREADS, 0, *a, vec);
}
} /* namespace */

void nb_cuda_norm(nb_cuda *g, const nb_cuda_norm_args *a)
{
    nb_cuda_norm_args b = *a;
    if (b.sum.e && b.dim > 8 * STEP) { /* too long for registers: two operations */
        b.sum.n_tok = b.n_row;
        b.sum.dim = b.dim;
        nb_cuda_moe_sum(g, &b.sum);
        b.branch = b.sum.y;
        b.branch_stride = b.sum.y_stride;
        b.sum.e = NULL;
    }
    if (b.n_row == 0 || (!b.w && !b.branch && !b.sum.e)) return;
    const bool vec = nb_rows_aligned(b.h, b.h_stride) && nb_rows_aligned(b.w, 0) &&
                     nb_rows_aligned(b.branch, b.branch_stride) &&
                     nb_rows_aligned(b.sum.e, b.sum.e_stride) &&
                     nb_rows_aligned(b.sum.shared, b.sum.shared_stride) &&
                     nb_rows_aligned(b.sum.y, b.sum.y_stride);
    if (b.sum.e)
        launch<true>(g, &b, vec);
    else
        launch<false>(g, &b, vec);
}
