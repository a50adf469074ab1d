/* swiglu.cu - elementwise operations: SwiGLU, y = gate / (1 + exp(-gate)) * up, and splitting rows to BF16 parts or to
 * codes of 8 bits.
 *
 * A thread has four values.  Bound by memory.  Exponentials and quotients are exact to the last bits, as swiglu.h
 * requires; the memory accesses hide their cost. */
#include "kernel/cuda/common/kv_encode.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"

namespace
{
constexpr uint32_t THREADS = 256;

/* Four values of a row: row t, from column i on. */
struct place {
    size_t t, i;
    bool there;
};
__device__ place place_of(size_t n_tok, size_t dim)
{
    const size_t fours = (dim + 3) / 4, at = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t t = (n_tok * fours) >> 32 ? at / fours : (uint32_t)at / (uint32_t)fours;
    return { t, 4 * (at - t * fours), t < n_tok };
}

__device__ float swiglu(float g, float u, float limit)
{
    if (limit > 0) {
        g = g > limit ? limit : g;
        u = u > limit ? limit : u < -limit ? -limit : u;
    }
    const float z = expf(-fabsf(g));
    const float sigmoid = (g < 0 ? z : 1.0f) / (1.0f + z);
    return g * sigmoid * u;
}

__global__ void swiglu_kernel(nb_cuda_swiglu_args a, bool vec)
{
    nb_grid_next();
    nb_grid_wait();
    const place p = place_of(a.n_tok, a.dim);
    if (!p.there) return;
    float g[4], u[4];
    const size_t n = a.dim - p.i;
    nb_load4(g, a.gate + p.t * a.in_stride + p.i, n, vec);
    nb_load4(u, a.up + p.t * a.in_stride + p.i, n, vec);
    for (int j = 0; j < 4; j++) g[j] = swiglu(g[j], u[j], a.limit);
    nb_put4(a.y, p.t * a.y.stride + p.i, g, n);
}

__global__ void split_kernel(nb_cuda_split_args a, bool vec)
{
    nb_grid_next();
    nb_grid_wait();
    const place p = place_of(a.n_tok, a.dim);
    if (!p.there) return;
    float x[4];
    nb_load4(x, a.x + p.t * a.x_stride + p.i, a.dim - p.i, vec);
    nb_put4(a.y, p.t * a.y.stride + p.i, x, a.dim - p.i);
}

/* A warp has 128 columns of a row, a lane four of them. */
__global__ void quantise_kernel(nb_cuda_quantise_args a, uint32_t n_group)
{
    nb_grid_next();
    nb_grid_wait();
    const size_t w = ((size_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    const size_t t = w / n_group, group = w % n_group, c = group * 128 + threadIdx.x % 32 * 4;
    if (t >= a.n_tok) return;
    float x[4], most = 0;
    bool finite = true;
    uint2 two = make_uint2(0, 0); /* rows are padded to 8 values */
    if (c < a.dim) two = *reinterpret_cast<const uint2 *>(a.x.hi + t * a.x.stride + c);
    const uint32_t bits[4] = { two.x << 16, two.x & 0xffff0000u, two.y << 16, two.y & 0xffff0000u };
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        x[i] = c + i < a.dim ? __uint_as_float(bits[i]) : 0.0f;
        finite = finite && fabsf(x[i]) < INFINITY;
        most = fmaxf(most, fabsf(x[i]));
    }
    for (int d = 16; d > 0; d >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    finite = __all_sync(0xffffffffu, finite);
    const float inv = finite && most >= NB_CUDA_CODES_MIN ? __fdiv_rn(448.0f, most) : 0.0f;
    uint32_t q = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const float v = inv > 0 ? __fmul_rn(x[i], inv) : 0.0f;
        q |= nb_kv_to_e4m3(v) << (8 * i);
    }
    *reinterpret_cast<uint32_t *>(a.y.q + t * a.y.stride + c) = q;
    if (threadIdx.x % 32) return;
    a.y.s[t * a.y.s_stride + group] =
        !finite ? __uint_as_float(0x7fc00000u) : inv > 0 ? __fdiv_rn(most, 448.0f) : 0.0f;
}

unsigned blocks(size_t n_tok, size_t dim)
{
    return (unsigned)((n_tok * ((dim + 3) / 4) + THREADS - 1) / THREADS);
}
} /* namespace */

void nb_cuda_swiglu(nb_cuda *g, const nb_cuda_swiglu_args *a)
{
    if (a->n_tok == 0) return;
    const bool vec = nb_rows_aligned(a->gate, a->in_stride) && nb_rows_aligned(a->up, 0);
    NB_LAUNCH_EARLY(g, swiglu_kernel, blocks(a->n_tok, a->dim), THREADS, 0, *a, vec);
}

void nb_cuda_split(nb_cuda *g, const nb_cuda_split_args *a)
{
    if (a->n_tok == 0) return;
    const bool vec = nb_rows_aligned(a->x, a->x_stride);
    NB_LAUNCH_EARLY(g, split_kernel, blocks(a->n_tok, a->dim), THREADS, 0, *a, vec);
}

void nb_cuda_quantise(nb_cuda *g, const nb_cuda_quantise_args *a)
{
    const size_t n_group = (a->dim + 127) / 128, n = a->n_tok * n_group;
    if (n == 0) return;
    NB_LAUNCH_EARLY(g, quantise_kernel, (unsigned)((n + THREADS / 32 - 1) / (THREADS / 32)), THREADS, 0, *a,
                    (uint32_t)n_group);
}
