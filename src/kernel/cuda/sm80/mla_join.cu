/* mla_join.cu - states of absorbed attention joined in order of position, and divided by l.
 *
 * A block of 128 threads has one (row, head), or a part of its dimensions where that leaves the device
 * idle; a thread has 4 dimensions.  Joining is a chain by definition (mla_state.cuh), but m after each
 * state is the largest so far, so a warp finds the factors of 32 states at once (a prefix maximum) and
 * what is left is one fused step a state, whose loads do not wait for each other.
 *
 * Bound: reading the states, 4 (lora + 2) bytes of each (row, head). */
#include "kernel/cuda/common/mla_state.cuh"
#include "kernel/cuda/common/ops.cuh"

#include <float.h>

namespace
{

enum { THREADS = 128, BATCH = 32, AHEAD = 8 };

/* Factors of states first .. first + n - 1 (n <= 32), after `m`; returns m after them.  By warp 0 of
 * the block. */
__device__ float factors(const nb_cuda_mla_args &a, size_t first, uint32_t n, size_t head, float m,
                         nb_mla_merge *f)
{
    const uint32_t lane = threadIdx.x % 32;
    const float own = lane < n ? a.part_m[(first + lane) * a.n_head + head] : -INFINITY;
    /* Of this state and those before it in the batch; one that is no number is not empty. */
    float top = own != own ? -FLT_MAX : own;
#pragma unroll
    for (int b = 1; b < 32; b *= 2) {
        const float other = __shfl_up_sync(~0u, top, b);
        if (lane >= (uint32_t)b) top = fmaxf(other, top);
    }
    const float before = __shfl_up_sync(~0u, top, 1);
    if (lane < n) f[lane] = nb_mla_merge_of(lane == 0 ? m : fmaxf(m, before), own);
    return fmaxf(m, __shfl_sync(~0u, top, 31));
}

template <int WIDTH> struct vec {
    float v[WIDTH];
};

template <int WIDTH> __device__ inline vec<WIDTH> load(const float *p)
{
    vec<WIDTH> x;
    if constexpr (WIDTH == 4) {
        const float4 y = *reinterpret_cast<const float4 *>(p);
        x.v[0] = y.x, x.v[1] = y.y, x.v[2] = y.z, x.v[3] = y.w;
    } else {
        x.v[0] = *p;
    }
    return x;
}

/* WIDTH dimensions a thread: 4, or 1 where rows are not aligned. */
template <int WIDTH>
__global__ void __launch_bounds__(THREADS) mla_join(NB_PARAM nb_cuda_mla_args a)
{
    __shared__ nb_mla_merge f[BATCH];
    __shared__ float m_next;
    const size_t nh = a.n_head, row = blockIdx.x / nh, head = blockIdx.x % nh;
    const uint32_t c0 = blockIdx.y * blockDim.x * WIDTH + threadIdx.x * WIDTH;
    const bool here = c0 < a.lora;
    const size_t first = a.part_first[row];
    const uint32_t n = a.row_chunk[row] == UINT32_MAX ? 0 : a.part_first[row + 1] - (uint32_t)first;
    float m = -INFINITY, l = 0;
    vec<WIDTH> o = {};
    for (uint32_t i0 = 0; i0 < n; i0 += BATCH) {
        const uint32_t k = n - i0 < BATCH ? n - i0 : BATCH;
        if (i0) __syncthreads();
        if (threadIdx.x < 32) {
            const float next = factors(a, first + i0, k, head, m, f);
            if (threadIdx.x == 0) m_next = next;
        }
        __syncthreads();
        m = m_next;
        for (uint32_t i1 = 0; i1 < k; i1 += AHEAD) {
            vec<WIDTH> x[AHEAD];
            float xl[AHEAD];
#pragma unroll
            for (uint32_t j = 0; j < AHEAD; j++) {
                const size_t at = (first + i0 + i1 + j) * nh + head;
                const bool in = i1 + j < k && !f[i1 + j].first;
                xl[j] = in ? a.part_l[at] : 0;
                if (in && here)
                    x[j] = load<WIDTH>(a.part_o + at * a.lora + c0);
                else
                    x[j] = {};
            }
#pragma unroll
            for (uint32_t j = 0; j < AHEAD; j++) {
                if (i1 + j >= k) break;
                const nb_mla_merge g = f[i1 + j];
                l = nb_mla_merged(g, l, xl[j]);
#pragma unroll
                for (int d = 0; d < WIDTH; d++) o.v[d] = nb_mla_merged(g, o.v[d], x[j].v[d]);
            }
        }
    }
    if (!here) return;
    const float inv = n ? 1 / l : 0;
    const size_t at = row * a.y.stride + head * a.lora + c0;
#pragma unroll
    for (int d = 0; d < WIDTH; d++) nb_put(a.y, at + d, n ? o.v[d] * inv : 0);
}

} // namespace

void nb_cuda_mla_join(nb_cuda *g, const nb_cuda_mla_args *a)
{
    const size_t n = a->n_row * a->n_head;
    if (n == 0) return;
    const size_t width = a->lora % 4 == 0 ? 4 : 1, all = (a->lora + width - 1) / width;
    size_t threads = all < THREADS ? (all + 31) / 32 * 32 : THREADS;
    if (n * ((all + threads - 1) / threads) < 4 * (size_t)g->n_sm) threads = 32;
    const dim3 grid((unsigned)n, (unsigned)((all + threads - 1) / threads));
    if (width == 4)
        NB_LAUNCH(g, (mla_join<4>), grid, (unsigned)threads, 0, *a);
    else
        NB_LAUNCH(g, (mla_join<1>), grid, (unsigned)threads, 0, *a);
}
