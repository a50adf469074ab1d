/* index_finish.cu - what follows the projections of a sparse attention's indexer: LayerNorm of the keys, rotation and
 * Hadamard transform of keys and queries, and the queries in the form that the scores' tensor cores read.
 *
 * A warp has one vector, a key or a head's query, in shared memory.  Bound by launch and latency for few tokens, by
 * memory for many. */
#include "kernel/cuda/common/ahead.cuh"
#include "kernel/cuda/common/block.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"

namespace
{
constexpr uint32_t THREADS = 128, WARPS = THREADS / 32;

struct finish {
    nb_cuda_index_finish_args a;
    uint32_t n_key, n_query; /* vectors of a token */
    float w_scale;
};

/* LayerNorm in place; mean and variance in double. */
__device__ void layer_norm(const nb_cuda_index_finish_args &a, float *x, uint32_t lane)
{
    const uint32_t n = (uint32_t)a.dim;
    double mean = 0, var = 0;
    for (uint32_t i = lane; i < n; i += 32) mean += (double)x[i];
    mean = nb_warp_sum(mean) / (double)n;
    for (uint32_t i = lane; i < n; i += 32) {
        const double d = (double)x[i] - mean;
        var += d * d;
    }
    const double inv = 1 / sqrt(nb_warp_sum(var) / (double)n + 1e-6);
    for (uint32_t i = lane; i < n; i += 32)
        x[i] = __fadd_rn(__fmul_rn((float)(((double)x[i] - mean) * inv), a.norm[i]), a.bias[i]);
    __syncwarp();
}

__device__ void rotate(const nb_cuda_index_finish_args &a, size_t t, float *x, uint32_t lane)
{
    const uint32_t half = (uint32_t)(a.d_rope / 2);
    if (a.last) x += a.dim - a.d_rope;
    const float *c = a.cos_sin + t * a.d_rope;
    for (uint32_t j = lane; j < half; j += 32) nb_turn_pair(x, j, half, a.interleaved, c[j], c[half + j]);
    __syncwarp();
}

/* As num/hadamard.h, in the same order. */
__device__ void hadamard(float *x, uint32_t n, uint32_t lane)
{
    if (n & (n - 1)) return;
    for (uint32_t h = 1; h < n; h *= 2) {
        for (uint32_t i = lane; i < n / 2; i += 32) {
            const uint32_t j = i / h * 2 * h + i % h;
            const float u = x[j], v = x[j + h];
            x[j] = u + v;
            x[j + h] = u - v;
        }
        __syncwarp();
    }
    const float scale = (float)(1 / sqrt((double)n));
    for (uint32_t i = lane; i < n; i += 32) x[i] = __fmul_rn(x[i], scale);
    __syncwarp();
}

/* The exponent by which a head is divided, so that its largest value is in [2^13, 2^14). */
__device__ int exponent_of(const float *x, uint32_t n, uint32_t lane)
{
    uint32_t top = 0;
    for (uint32_t i = lane; i < n; i += 32) {
        const uint32_t mag = __float_as_uint(x[i]) & 0x7fffffffu;
        top = mag > top ? mag : top;
    }
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        const uint32_t other = __shfl_xor_sync(~0u, top, d);
        top = other > top ? other : top;
    }
    if (top == 0 || top >= 0x7f800000u) return 0;
    const int e = (int)(top >> 23) - 127;
    return (e < -100 ? -100 : e) - 13;
}

__device__ void pack(const finish &p, size_t t, uint32_t head, const float *x, float w, uint32_t lane)
{
    const nb_cuda_index_finish_args &a = p.a;
    const uint32_t n = (uint32_t)a.dim;
    uint16_t *to = a.q16 + (t * p.n_query + head) * n;
    const int e = x ? exponent_of(x, n, lane) : 0;
    const float by = __uint_as_float((uint32_t)(127 - e) << 23);
    for (uint32_t i = 2 * lane; i < n; i += 64) {
        const uint32_t h = x ? nb_pack_f16(x[i] * by, x[i + 1] * by) : 0;
        *reinterpret_cast<uint32_t *>(to + i / 64 * 64 + NB_CUDA_INDEX_PLACE(i % 64)) = h;
    }
    if (lane == 0) a.w16[t * p.n_query + head] = x ? w * __uint_as_float((uint32_t)(127 + e) << 23) : 0;
}

__global__ void __launch_bounds__(THREADS) index_finish(NB_PARAM finish p)
{
    NB_SHARED(float, shared);
    const nb_cuda_index_finish_args &a = p.a;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = (uint32_t)a.dim;
    const uint32_t which = blockIdx.y * WARPS + warp;
    const size_t t = blockIdx.x;
    float *x = shared + warp * dim;
    nb_grid_next();
    nb_ahead(a.cos_sin + t * a.d_rope, a.d_rope * sizeof(float));
    nb_grid_wait();
    if (which >= p.n_key + p.n_query) return;
    const bool key = which < p.n_key;
    const uint32_t head = which - p.n_key;
    if (!key && head >= a.n_head) {
        pack(p, t, head, nullptr, 0, lane);
        return;
    }
    float *at = key ? a.k + t * a.k_stride : a.q + (t * a.n_head + head) * dim;
    for (uint32_t i = lane; i < dim; i += 32) x[i] = at[i];
    __syncwarp();
    if (key) layer_norm(a, x, lane);
    rotate(a, t, x, lane);
    if (!a.last) hadamard(x, dim, lane);
    for (uint32_t i = lane; i < dim; i += 32) at[i] = x[i];
    if (key) return;
    float *weight = a.w + t * a.n_head + head;
    const float w = __fmul_rn(*weight, p.w_scale);
    __syncwarp();
    if (lane == 0) *weight = w;
    if (a.q16) pack(p, t, head, x, w, lane);
}
} // namespace

void nb_cuda_index_finish(nb_cuda *g, const nb_cuda_index_finish_args *a)
{
    finish p = { *a, a->k ? 1u : 0u, 0, (float)(1 / sqrt((double)a->n_head * (double)a->dim)) };
    if (a->q) p.n_query = (uint32_t)(a->q16 ? NB_CUDA_INDEX_HEADS(a->n_head) : a->n_head);
    if (a->n_tok == 0 || p.n_key + p.n_query == 0) return;
    const unsigned groups = (p.n_key + p.n_query + WARPS - 1) / WARPS;
    NB_LAUNCH_EARLY(g, index_finish, dim3((unsigned)a->n_tok, groups), THREADS,
                    WARPS * a->dim * sizeof(float), p);
}
