/* finish.cu - the steps between the attention projections and attention: norm, Hadamard transform, rotation (RoPE).
 *
 * MLA, one launch for a token's latent, rope key and queries:
 *   block (t, 0)      the token's cache row in shared memory: RMS norm, minus mean, Hadamard transform, rotation of
 *                     the rope key; order of operations as in num/hadamard.h, so equal input gives equal bits
 *   block (t, 1 + i)  eight heads of queries: rotation of the rope parts, BF16 parts of the others
 * GQA: one warp per head of queries or keys.
 *
 * Few tokens: bound by launch and latency, so gains and means are loaded, and rotation tables prefetched, before the
 * projections have ended.  Many tokens: bound by memory.  Rotations are fused multiply-adds in the form of the
 * host's vector variants. */
#include "kernel/cuda/common/ahead.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"

namespace
{
constexpr uint32_t THREADS = 128, WARPS = THREADS / 32, HEADS = 8;

struct pair {
    float a, b;
};

__device__ pair rotate(pair x, float c, float s, bool interleaved)
{
    const float a = __fmaf_rn(x.a, c, -__fmul_rn(x.b, s));
    return interleaved ? pair{ a, __fmaf_rn(x.b, c, __fmul_rn(x.a, s)) }
                       : pair{ a, __fmaf_rn(x.a, s, __fmul_rn(x.b, c)) };
}

/* Pair j of `half` in a head: its first value is at j * step, its second `other` further on. */
struct pairs {
    uint32_t half, step, other;
};
__device__ pairs pairs_of(size_t dim, bool interleaved)
{
    const uint32_t half = (uint32_t)(dim / 2);
    return interleaved ? pairs{ half, 2, 1 } : pairs{ half, 1, half };
}

__device__ float norm_factor(double squares, size_t dim, float eps)
{
    return (float)(1.0 / sqrt(squares / (double)dim + (double)eps));
}

/* Hadamard transform of x[0..n) in blocks, stage by stage.  Called by all threads. */
__device__ void hadamard(float *x, uint32_t n, uint32_t block)
{
    for (uint32_t h = 1; h < block; h *= 2) {
        for (uint32_t i = threadIdx.x; i < n / 2; i += THREADS) {
            const uint32_t j = (i / h) * 2 * h + i % h;
            const float u = x[j], v = x[j + h];
            x[j] = u + v;
            x[j + h] = u - v;
        }
        __syncthreads();
    }
}

/* The latent in shared memory: its values, gains and means. */
struct latent {
    float *x, *gain, *mean;
};
__device__ latent latent_of(const nb_cuda_mla_finish_args &a, float *shared)
{
    return { shared, shared + a.lora, shared + 2 * a.lora };
}

/* Loads what does not depend on previous kernels.  Each thread reads back only what it stored itself. */
__device__ void load_constants(const nb_cuda_mla_finish_args &a, const latent &m)
{
    for (uint32_t i = threadIdx.x; i < a.lora; i += THREADS) {
        m.gain[i] = a.norm[i];
        if (a.mean) m.mean[i] = a.mean[i];
    }
    if (a.rope_k) nb_ahead(a.rope_k, a.d_rope * sizeof(float));
}

__device__ void finish_latent(const nb_cuda_mla_finish_args &a, size_t t, const latent &m)
{
    __shared__ double part[WARPS];
    const uint32_t n = (uint32_t)a.lora;
    float *kv = a.kv + t * a.kv_stride, *x = m.x, s = 0;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        x[i] = kv[i];
        s = __fmaf_rn(x[i], x[i], s);
    }
    s = nb_warp_sum(s);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = (double)s;
    __syncthreads();
    const float f = norm_factor((part[0] + part[1]) + (part[2] + part[3]), n, a.eps);
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        const float y = __fmul_rn(__fmul_rn(x[i], f), m.gain[i]);
        x[i] = a.mean ? __fadd_rn(y, -m.mean[i]) : y;
    }
    __syncthreads();
    float scale = 1;
    if (a.hadamard) {
        hadamard(x, n, (uint32_t)a.hadamard);
        scale = (float)(1 / sqrt((double)a.hadamard));
    }
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) kv[i] = __fmul_rn(x[i], scale);
}

__device__ void finish_rope_key(const nb_cuda_mla_finish_args &a, size_t t)
{
    const pairs p = pairs_of(a.d_rope, a.interleaved);
    const float *c = a.cos_sin + t * a.d_rope;
    float *k = a.kv + t * a.kv_stride + a.lora;
    for (uint32_t j = threadIdx.x; j < p.half; j += THREADS) {
        const uint32_t i = j * p.step, o = i + p.other;
        pair y = rotate({ k[i], k[o] }, c[j], c[p.half + j], a.interleaved);
        if (a.rope_k) y = { y.a * a.rope_k[i], y.b * a.rope_k[o] };
        k[i] = y.a;
        k[o] = y.b;
    }
}

__device__ float query_scale(const nb_cuda_mla_finish_args &a, size_t t)
{
    return a.q_scale ? a.q_scale[t] : 1;
}

/* Rotates the rope parts of heads [h0, h0 + n). */
__device__ void finish_rope_query(const nb_cuda_mla_finish_args &a, size_t t, uint32_t h0,
                                  uint32_t n)
{
    const pairs p = pairs_of(a.d_rope, a.interleaved);
    const float *c = a.cos_sin + t * a.d_rope, scale = query_scale(a, t);
    for (uint32_t at = threadIdx.x; at < n * p.half; at += THREADS) {
        const uint32_t h = h0 + at / p.half, j = at % p.half, i = j * p.step, o = i + p.other;
        float *q = a.q + t * a.q_stride + h * (a.d_nope + a.d_rope) + a.d_nope;
        pair y = rotate({ q[i], q[o] }, c[j], c[p.half + j], a.interleaved);
        if (a.rope_q) y = { y.a * a.rope_q[i], y.b * a.rope_q[o] };
        float *to = a.q_rope ? a.q_rope + t * a.q_rope_stride + h * a.q_rope_head : q;
        to[i] = __fmul_rn(y.a, scale);
        to[o] = __fmul_rn(y.b, scale);
    }
}

/* Scales the other parts, where they stay. */
__device__ void scale_query(const nb_cuda_mla_finish_args &a, size_t t, uint32_t h0, uint32_t n)
{
    const uint32_t d = (uint32_t)a.d_nope;
    const float scale = query_scale(a, t);
    float *q = a.q + t * a.q_stride + h0 * (a.d_nope + a.d_rope);
    for (uint32_t i = threadIdx.x; i < n * d; i += THREADS) {
        float *x = q + i / d * (a.d_nope + a.d_rope) + i % d;
        *x = __fmul_rn(*x, scale);
    }
}

/* Stores the other parts in the forms that the absorbing product reads. */
__device__ void split_query(const nb_cuda_mla_finish_args &a, size_t t, uint32_t h0, uint32_t n,
                            bool vec)
{
    const uint32_t d = (uint32_t)a.d_nope;
    const float *q = a.q + t * a.q_stride + h0 * (a.d_nope + a.d_rope);
    const size_t y = t * a.q_nope.stride + (size_t)h0 * d;
    const float scale = query_scale(a, t);
    if (!vec) {
        for (uint32_t i = threadIdx.x; i < n * d; i += THREADS)
            nb_put(a.q_nope, y + i, __fmul_rn(q[i / d * (a.d_nope + a.d_rope) + i % d], scale));
        return;
    }
    for (uint32_t i = 4 * threadIdx.x; i < n * d; i += 4 * THREADS) {
        float v[4];
        nb_load4(v, q + i / d * (a.d_nope + a.d_rope) + i % d, 4, true);
        for (int k = 0; k < 4; k++) v[k] = __fmul_rn(v[k], scale);
        nb_put4(a.q_nope, y + i, v, 4);
    }
}

__global__ void mla_kernel(nb_cuda_mla_finish_args a, bool vec)
{
    NB_SHARED(float, shared);
    const latent m = latent_of(a, shared);
    const size_t t = blockIdx.x;
    nb_grid_next();
    nb_ahead(a.cos_sin + t * a.d_rope, a.d_rope * sizeof(float));
    if (blockIdx.y == 0)
        load_constants(a, m);
    else if (a.rope_q)
        nb_ahead(a.rope_q, a.d_rope * sizeof(float));
    nb_grid_wait();
    if (blockIdx.y == 0) {
        finish_rope_key(a, t);
        finish_latent(a, t, m);
        return;
    }
    const uint32_t h0 = (blockIdx.y - 1) * HEADS, left = (uint32_t)a.n_head - h0;
    const uint32_t n = left < HEADS ? left : HEADS;
    finish_rope_query(a, t, h0, n);
    if (a.q_rope)
        split_query(a, t, h0, n, vec);
    else if (a.q_scale)
        scale_query(a, t, h0, n);
}

/* One head of one token, by one warp, which has x to itself. */
__device__ void finish_head(const nb_cuda_gqa_finish_args &a, float *head, const float *norm,
                            const float *c, float *x)
{
    const uint32_t lane = threadIdx.x % 32, n = (uint32_t)a.head_dim;
    float s = 0;
    for (uint32_t i = lane; i < n; i += 32) {
        x[i] = head[i];
        s = __fmaf_rn(x[i], x[i], s);
    }
    if (norm) {
        const float f = norm_factor((double)nb_warp_sum(s), n, a.eps);
        for (uint32_t i = lane; i < n; i += 32) x[i] = __fmul_rn(__fmul_rn(x[i], f), norm[i]);
    }
    __syncwarp();
    const pairs p = pairs_of(a.rope_dim, a.interleaved);
    for (uint32_t j = lane; j < p.half; j += 32) {
        const uint32_t i = j * p.step, o = i + p.other;
        const pair y = rotate({ x[i], x[o] }, c[j], c[p.half + j], a.interleaved);
        head[i] = y.a;
        head[o] = y.b;
    }
    for (uint32_t i = 2 * p.half + lane; i < n; i += 32) head[i] = x[i];
}

__global__ void gqa_kernel(nb_cuda_gqa_finish_args a)
{
    nb_grid_next();
    nb_grid_wait();
    NB_SHARED(float, x);
    const uint32_t warp = threadIdx.x / 32, h = blockIdx.y * WARPS + warp;
    const size_t t = blockIdx.x;
    const float *c = a.cos_sin + t * a.rope_dim;
    float *mine = x + warp * a.head_dim;
    if (h < a.n_head)
        finish_head(a, a.q + t * a.q_stride + h * a.head_dim, a.q_norm, c, mine);
    else if (h < a.n_head + a.n_kv_head)
        finish_head(a, a.kv + t * a.kv_stride + (h - a.n_head) * a.head_dim, a.k_norm, c, mine);
}
} /* namespace */

void nb_cuda_mla_finish(nb_cuda *g, const nb_cuda_mla_finish_args *a)
{
    if (a->n_tok == 0) return;
    const unsigned groups = (unsigned)((a->n_head + HEADS - 1) / HEADS);
    const bool vec = nb_rows_aligned(a->q, a->q_stride) && (a->d_nope + a->d_rope) % 4 == 0 &&
                     a->d_nope % 4 == 0;
    const size_t shared = 3 * a->lora * sizeof(float);
    if (shared > 48 << 10) NB_SHARED_LIMIT(g, mla_kernel, shared);
    NB_LAUNCH_EARLY(g, mla_kernel, dim3((unsigned)a->n_tok, 1 + groups), THREADS, shared, *a, vec);
}

void nb_cuda_gqa_finish(nb_cuda *g, const nb_cuda_gqa_finish_args *a)
{
    if (a->n_tok == 0) return;
    const unsigned groups = (unsigned)((a->n_head + a->n_kv_head + WARPS - 1) / WARPS);
    NB_LAUNCH_EARLY(g, gqa_kernel, dim3((unsigned)a->n_tok, groups), THREADS,
                    WARPS * a->head_dim * sizeof(float), *a);
}
