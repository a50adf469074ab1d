/* streams.cu - several residual streams that are mixed: nb_cuda_streams_args.
 *
 *   add   a block has 128 columns of all streams of up to four tokens.  It adds the branch, and makes these columns' part
 *         of the products with fn and of the squares: its 24 x 512 weights are read once for the tokens
 *   mix   a block has a token: it adds the parts in order, makes the weights, and the normalised sum of the streams
 * The weights' Sinkhorn iterations are divisions that wait for each other: a lane has a row of C, sums of columns come
 * from shuffles.  C and post are for the place that follows, so nothing here waits for them.
 * A token's sums do not depend on how many tokens a block has.
 * H100, the first form of both kernels: 21 us for a token of four streams of 4,096, 183 us for 512.  Since then a token's
 * parts are added by eight warps, weights come through shared memory, and one warp more makes C meanwhile; not timed. */
#include "kernel/cuda/common/ahead.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"

namespace
{
constexpr uint32_t SLICE = NB_CUDA_MIX_SLICE, THREADS = 256, MIX_THREADS = THREADS + 32, WARPS = THREADS / 32, MOST = NB_CUDA_MAX_STREAM;

__device__ uint32_t outputs(const nb_cuda_streams_args &a)
{
    const uint32_t s = (uint32_t)a.n_stream;
    return a.last ? s : (2 + s) * s;
}

/* New values of the block's columns, of token t, to shared memory [n_stream][SLICE] and to x.  post: the token's weights,
 * post and C, in shared memory. */
__device__ void add_branch(const nb_cuda_streams_args &a, uint32_t t, const float *post, float *to)
{
    const uint32_t s = (uint32_t)a.n_stream, c0 = blockIdx.x * SLICE;
    float *x = a.x + (a.row ? a.row[t] : t) * a.x_stride;
    const float *mix = post + s;
    for (uint32_t e = threadIdx.x; e < SLICE; e += THREADS) {
        const uint32_t col = c0 + e;
        float old[MOST];
        if (col >= a.dim) {
            for (uint32_t j = 0; j < s; j++) to[j * SLICE + e] = 0;
            continue;
        }
#pragma unroll
        for (uint32_t j = 0; j < MOST; j++)
            if (j < s) old[j] = x[(a.first ? 0 : j) * a.dim + col];
        const float y = a.branch ? a.branch[t * a.dim + col] : 0;
        for (uint32_t j = 0; j < s; j++) {
            float v = 0;
            if (a.branch) v = __fmul_rn(post[j], y);
#pragma unroll
            for (uint32_t i = 0; i < MOST; i++)
                if (i < s) v = a.branch ? __fmaf_rn(mix[i * s + j], old[i], v) : i == j ? old[i] : v;
            to[j * SLICE + e] = v;
            if (a.branch || a.first) x[j * a.dim + col] = v;
        }
    }
}

/* Grid: (slices, groups of TOK tokens).  Shared: [TOK][n_stream][SLICE], [TOK][n_stream + n_stream^2]. */
template <uint32_t TOK> __global__ void __launch_bounds__(THREADS) add(NB_PARAM nb_cuda_streams_args a)
{
    NB_SHARED(float, x);
    const uint32_t s = (uint32_t)a.n_stream, dim = (uint32_t)a.dim, c0 = blockIdx.x * SLICE;
    nb_grid_next();
    for (uint32_t e = threadIdx.x; a.fn && e < outputs(a) * s * (SLICE / 32); e += THREADS) {
        const uint32_t col = c0 + e % (SLICE / 32) * 32;
        if (col < dim) nb_ahead_line(a.fn + (size_t)(e / (SLICE / 32)) * dim + col);
    }
    nb_grid_wait();
    const uint32_t t0 = blockIdx.y * TOK, left = (uint32_t)a.n_tok - t0, n = left < TOK ? left : TOK;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_out = a.fn ? outputs(a) : 0;
    const uint32_t width = dim - c0 < SLICE ? dim - c0 : SLICE;
    float *weight = x + TOK * s * SLICE;
    const uint32_t n_w = s + s * s;
    for (uint32_t e = threadIdx.x; a.branch && e < n * n_w; e += THREADS) weight[e] = a.weight[(size_t)t0 * n_w + e];
    __syncthreads();
    for (uint32_t t = 0; t < n; t++) add_branch(a, t0 + t, weight + t * n_w, x + t * s * SLICE);
    __syncthreads();
    if (!a.fn) return;
    for (uint32_t r = warp; r <= n_out; r += WARPS) { /* the last: squares */
        float sum[TOK] = {};
#pragma unroll 4
        for (uint32_t i = 0; i < s; i++) {
            const float *w = a.fn + ((size_t)r * s + i) * dim + c0;
            float f[SLICE / 32];
#pragma unroll
            for (uint32_t k = 0; k < SLICE / 32; k++) {
                const uint32_t c = lane + 32 * k;
                f[k] = r < n_out && c < width ? w[c] : 0;
            }
#pragma unroll
            for (uint32_t k = 0; k < SLICE / 32; k++)
#pragma unroll
                for (uint32_t t = 0; t < TOK; t++) { /* columns behind the last are zeros */
                    const float v = t < n ? x[(t * s + i) * SLICE + lane + 32 * k] : 0;
                    sum[t] = __fmaf_rn(r < n_out ? f[k] : v, v, sum[t]);
                }
        }
#pragma unroll
        for (uint32_t t = 0; t < TOK; t++) {
            if (t >= n) continue;
            const float all = nb_warp_sum(sum[t]);
            if (lane == 0) a.part[((t0 + t) * (size_t)gridDim.x + blockIdx.x) * NB_CUDA_MIX_SUMS(s) + r] = all;
        }
    }
}

__device__ double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* C of a token, a row to each of the lanes; S: streams, or more.  Rows and columns behind the last are zeros. */
template <uint32_t S>
__device__ void sinkhorn(const nb_cuda_streams_args &a, const double *m, double inv, float *to)
{
    const uint32_t s = (uint32_t)a.n_stream, lane = threadIdx.x % 32;
    const bool row = lane < s;
    const float e = a.stream_eps;
    float c[S], top = -INFINITY, sum = 0;
    const double scale = (double)a.scale[2];
#pragma unroll
    for (uint32_t j = 0; j < S; j++) {
        const uint32_t at = 2 * s + lane * s + j;
        c[j] = row && j < s ? (float)(m[at] * inv * scale + (double)a.base[at]) : -INFINITY;
        top = fmaxf(top, c[j]);
    }
#pragma unroll
    for (uint32_t j = 0; j < S; j++) {
        c[j] = row && j < s ? expf(c[j] - top) : 0;
        sum += c[j];
    }
#pragma unroll
    for (uint32_t j = 0; j < S; j++) c[j] = row && j < s ? c[j] / sum + e : 0;
    for (size_t k = 0; k < a.n_sinkhorn; k++) {
        if (k > 0) {
            float all = e;
#pragma unroll
            for (uint32_t j = 0; j < S; j++) all += c[j];
            const float by = 1 / all;
#pragma unroll
            for (uint32_t j = 0; j < S; j++) c[j] = row && j < s ? c[j] * by : 0;
        }
#pragma unroll
        for (uint32_t j = 0; j < S; j++) {
            float all = c[j];
#pragma unroll
            for (uint32_t d = S / 2; d > 0; d /= 2) all += __shfl_xor_sync(~0u, all, d);
            c[j] = row && j < s ? c[j] / (all + e) : 0;
        }
    }
#pragma unroll
    for (uint32_t j = 0; j < S; j++)
        if (row && j < s) to[lane * s + j] = c[j];
}

/* The columns of a thread, four of every 1,024: of all streams, loaded before the weights are known. */
template <int V> struct columns {
    float v[V][4][4]; /* [][stream][] */
};

/* Grid: tokens.  V: 1,024 columns each of four streams in registers; 0: any shape, in shared memory. */
template <int V> __global__ void __launch_bounds__(MIX_THREADS) mix(NB_PARAM nb_cuda_streams_args a, uint32_t n_slice)
{
    __shared__ double m[(2 + MOST) * MOST + 1], part[WARPS], some[WARPS][32];
    __shared__ float pre[MOST];
    nb_grid_next();
    nb_ahead(a.w, a.dim * sizeof(float));
    nb_grid_wait();
    const uint32_t s = (uint32_t)a.n_stream, n_out = outputs(a), dim = (uint32_t)a.dim;
    const size_t t = blockIdx.x, sums = NB_CUDA_MIX_SUMS(s);
    const bool sums_up = threadIdx.x < THREADS; /* the last warp makes the weights meanwhile */
    const float *x = a.x + (a.row ? a.row[t] : t) * a.x_stride;
    columns<V ? V : 1> mine;
    if constexpr (V > 0)
#pragma unroll
        for (uint32_t k = 0; k < V; k++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t c = 4 * (threadIdx.x + k * THREADS);
                if (sums_up && c < dim) nb_load4(mine.v[k][i], x + (size_t)i * dim + c, 4, true);
            }
    for (uint32_t r0 = 0; r0 <= n_out; r0 += 32) { /* a warp has every eighth slice; then these are added in order */
        const uint32_t r = r0 + threadIdx.x % 32;
        double sum = 0;
        if (sums_up && r <= n_out)
#pragma unroll 4
            for (uint32_t k = threadIdx.x / 32; k < n_slice; k += WARPS) sum += (double)a.part[(t * n_slice + k) * sums + r];
        if (sums_up) some[threadIdx.x / 32][threadIdx.x % 32] = sum;
        __syncthreads();
        if (threadIdx.x < 32 && r <= n_out) {
            sum = 0;
            for (uint32_t k = 0; k < WARPS; k++) sum += some[k][threadIdx.x];
            m[r] = sum;
        }
        __syncthreads();
    }
    const double inv = 1 / sqrt(m[n_out] / (double)(s * dim) + (double)a.eps);
    if (threadIdx.x < s) {
        const uint32_t i = threadIdx.x;
        pre[i] = (float)(sigmoid(m[i] * inv * (double)a.scale[0] + (double)a.base[i]) + (double)a.stream_eps);
    }
    float *weight = a.weight + t * (s + s * s);
    if (!a.last && threadIdx.x >= 64 && threadIdx.x - 64 < s) {
        const uint32_t i = threadIdx.x - 64;
        weight[i] = (float)(2 * sigmoid(m[s + i] * inv * (double)a.scale[1] + (double)a.base[s + i]));
    }
    if (!sums_up) {
        if (!a.last && s <= 4)
            sinkhorn<4>(a, m, inv, weight + s);
        else if (!a.last)
            sinkhorn<MOST>(a, m, inv, weight + s);
        return;
    }
    nb_bar_sync(1, THREADS);
    float squares = 0;
    NB_SHARED(float, y);
    if constexpr (V > 0) {
#pragma unroll
        for (uint32_t k = 0; k < V; k++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                if (4 * (threadIdx.x + k * THREADS) >= dim) continue;
                float v = __fmul_rn(pre[0], mine.v[k][0][e]);
#pragma unroll
                for (uint32_t i = 1; i < 4; i++) v = __fmaf_rn(pre[i], mine.v[k][i][e], v);
                mine.v[k][0][e] = v;
                squares = __fmaf_rn(v, v, squares);
            }
    } else {
        for (uint32_t c = threadIdx.x; c < dim; c += THREADS) {
            float v = __fmul_rn(pre[0], x[c]);
            for (uint32_t i = 1; i < s; i++) v = __fmaf_rn(pre[i], x[(size_t)i * dim + c], v);
            y[c] = v;
            squares = __fmaf_rn(v, v, squares);
        }
    }
    const float warp = nb_warp_sum(squares);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = (double)warp;
    nb_bar_sync(1, THREADS);
    double sum = 0;
    for (uint32_t i = 0; i < WARPS; i++) sum += part[i];
    const float f = (float)(1 / sqrt(sum / (double)dim + (double)a.eps));
    if constexpr (V > 0) {
#pragma unroll
        for (uint32_t k = 0; k < V; k++) {
            const uint32_t c = 4 * (threadIdx.x + k * THREADS);
            if (c >= dim) continue;
            float w[4];
            nb_load4(w, a.w + c, 4, true);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                w[e] = __fmul_rn(__fmul_rn(__fmul_rn(mine.v[k][0][e], f), w[e]), a.y_factor);
            nb_put4(a.y, t * a.y.stride + c, w, 4);
        }
    } else {
        for (uint32_t c = threadIdx.x; c < dim; c += THREADS)
            nb_put(a.y, t * a.y.stride + c, __fmul_rn(__fmul_rn(__fmul_rn(y[c], f), a.w[c]), a.y_factor));
    }
}
} // namespace

void nb_cuda_streams(nb_cuda *g, const nb_cuda_streams_args *a)
{
    if (a->n_tok == 0) return;
    const unsigned n_slice = (unsigned)NB_CUDA_MIX_SLICES(a->dim), n = (unsigned)a->n_tok;
    const size_t bytes = a->n_stream * (SLICE + 1 + a->n_stream) * sizeof(float);
    if (n < 4)
        NB_LAUNCH_EARLY(g, add<1>, dim3(n_slice, n), THREADS, bytes, *a);
    else
        NB_LAUNCH_EARLY(g, add<4>, dim3(n_slice, (n + 3) / 4), THREADS, 4 * bytes, *a);
    if (!a->fn) return;
    const bool four = a->n_stream == 4 && a->dim % 4 == 0 && nb_rows_aligned(a->x, a->x_stride) && nb_rows_aligned(a->w, 0);
    if (four && a->dim <= 4 * 4 * THREADS) {
        NB_LAUNCH_EARLY(g, mix<4>, n, MIX_THREADS, 0, *a, n_slice);
    } else if (four && a->dim <= 7 * 4 * THREADS) {
        NB_LAUNCH_EARLY(g, mix<7>, n, MIX_THREADS, 0, *a, n_slice);
    } else {
        NB_SHARED_LIMIT(g, mix<0>, a->dim * sizeof(float));
        NB_LAUNCH_EARLY(g, mix<0>, n, MIX_THREADS, a->dim * sizeof(float), *a, n_slice);
    }
}
