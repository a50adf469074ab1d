/* linear_few.cu - y = W x for few tokens (linear_mma.cu says how many): the weights are read once, at memory speed.
 *
 * Tile of a warp: 16 rows of W (32 rows of large matrices; with GLU 16 rows of each of gate and up), one
 * range of columns (linear_mma.cuh), and 8 NT tokens (NT is 1 or 2).
 * Block: the warps share the same rows and take one range each.  3072 x 2048 is 192 blocks of 8 warps.
 *
 * What a warp does:
 *   1. Each lane loads 16 bytes of each of its rows, for up to 256 columns, before it uses the first load.
 *      This puts 8 KB per warp, about 100 KB per SM, in flight.
 *   2. Meanwhile the warp copies the tokens' values of these columns to shared memory (COPY), or else it
 *      reads them through L1.  The table below says which is faster.
 *   3. It multiplies with mma.m16n8k16 and goes on to the next chunk of columns.
 *   4. The sums of all ranges go to shared memory and are added in order.
 * Experts: a block's tokens are the places of its expert, 8 NT at a time.  With up to 4 on average it takes
 * 8 at a time (BF16, 32 tokens: 362 us; 16 at a time: 373).
 *
 * Copy or L1.  Experts always copy, since a missing token then costs nothing.  A single matrix copies for up
 * to 8 tokens with BF16 weights and for one token with FP8 (us):
 *                                  copied   through L1
 *   3072 x 2048, BF16, 16 tokens    12.3        9.0
 *   3072 x 2048, FP8,   1 token      4.0        4.9
 *   3072 x 2048, FP8,   8 tokens     8.0        5.1
 *   experts of a layer,
 *                BF16, 64 tokens   404        494
 *                FP8,   8 tokens   137        152
 *
 * Bound by memory.  H100, CUDA graphs of consecutive products, weights not in L2 (us; floor: bytes / 3.0 TB/s):
 *                 tokens      1      4   floor
 *   BF16   3648 x 2048      6.2    6.8    5.0
 *          2048 x 2048      4.5    4.8    2.8
 *         2 x 2816 x 2048  12.0   12.2    7.7   gate and up
 *        2 x 10944 x 2048  32.8   32.7   29.9
 *        102400 x 2048      135    139    140
 *   16 heads 512 x 128      2.7    3.0    0.7
 *   6 experts per token:
 *     gate and up            28.8   93.5   23, 92
 *     down                   17     50     12, 46
 *     both in a row          43    143
 * An earlier version, with 8 and 16 tokens:
 *   3072 x 2048     7.7    9.0
 *    576 x 2048     4.2    4.1
 *   102400 x 2048   138    179
 *
 * Slower (us):
 *   next chunk's loads issued as soon as registers are free: experts 31 instead of 29, 102400 x 2048 142; only
 *   2 x 2816 x 2048, whose grid is one wave, gained: 10.6
 *   down with 16 rows to a warp: 18.6
 *
 * A small product takes about as long as a kernel's launch and drain.  So the next kernel may start early
 * (programmatic dependent launch), and the first weights are prefetched before the kernel that produces x
 * has ended.  Of the experts only down's are prefetched, since only by then are the experts known. */
#include "kernel/cuda/sm80/linear_few.cuh"

namespace
{
using namespace few_rows;

template <bool FP8_, kind KIND_, int NT_, bool COPY_> struct few {
    static const bool FP8 = FP8_, COPY = COPY_; /* COPY: x in shared memory, else through L1 */
    static const bool ROW_FACTOR = false;
    static const kind KIND = KIND_;
    static const int NT = NT_, MT = KIND == ROWS16 ? 1 : 2, ROWS = KIND == ROWS32 ? 32 : 16;
    static const int COLS = FP8 ? 64 : 32; /* columns of one load */
    static const int CHUNK = FP8 && NT > 1 && MT > 1 ? 2
                             : FP8 || MT > 1         ? 4
                                                     : 8; /* loads per row */
    static const int CHUNK_COLS = CHUNK * COLS, X_PAD = FP8 ? 16 : 64;
};

/* Bytes between tokens in a warp's copy of x, chosen so that its reads have no bank conflicts. */
template <class F> __host__ __device__ inline uint32_t x_pitch(uint32_t range)
{
    return 2 * (range < F::CHUNK_COLS ? range : (uint32_t)F::CHUNK_COLS) + F::X_PAD;
}

/* A warp's tile: rows, columns [k0, k1), tokens [tok, tok + n). */
template <class F> struct work {
    const unsigned char *w[F::MT][2];
    const float *scale[F::MT][2];
    uint32_t batch, k0, k1, tok, n, step; /* step: FP8, from a block's scale to the next */
    size_t x_at[F::NT]; /* offsets of the lane's tokens; unused with COPY */
};

/* One load: columns [k, k + COLS) of the warp's rows. */
template <class F>
__device__ inline void load_weights(uint4 (&raw)[F::MT][2], const work<F> &o, uint32_t k)
{
    const uint32_t c = k + (threadIdx.x & 3) * (F::FP8 ? 16 : 8); /* a lane's first column */
#pragma unroll
    for (int m = 0; m < F::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            raw[m][h] = make_uint4(0, 0, 0, 0);
            if (c < o.k1) raw[m][h] = nb_ldg_stream(o.w[m][h] + (size_t)c * (F::FP8 ? 1 : 2));
        }
}

__device__ inline size_t x_row(const nb_lin &j, uint32_t batch, uint32_t tok)
{
    return (j.src ? j.src[tok] : tok) * j.x.stride + (j.first ? 0 : batch * j.x_batch);
}

/* Copies a chunk of columns of every token to shared memory: [part][8 NT][pitch].  A row is 16 or 32 pieces
 * of 16 bytes. */
template <class F>
__device__ inline void copy_x(unsigned char *x, uint32_t pitch, const nb_lin &j, const work<F> &o,
                              uint32_t k)
{
    const uint32_t shift = pitch - F::X_PAD > 256 ? 5 : 4, two = j.x.lo != nullptr;
    const uint32_t c = (threadIdx.x & 31) & ((1u << shift) - 1), col = k + c * 8;
    const uint32_t bytes = col < o.k1 ? 16 : 0;
    for (uint32_t i = threadIdx.x & 31; i < o.n << two << shift; i += 32) {
        const uint32_t at = i >> shift, n = at >> two, part = at & two;
        const uint16_t *from = (part ? j.x.lo : j.x.hi) + x_row(j, o.batch, o.tok + n);
        nb_cp_async16(x + (part * 8 * F::NT + n) * pitch + c * 16, from + (bytes ? col : 0), bytes);
    }
    nb_cp_async_commit();
}

/* 8 columns of the lane's tokens: of all NT tiles and of both parts (hi, lo). */
template <class F>
__device__ inline void x_values(uint4 (&b)[2][F::NT], const nb_lin &j, const work<F> &o,
                                const unsigned char *x, uint32_t pitch, uint32_t k, int i, int half)
{
    const uint32_t g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    const uint32_t piece = F::FP8 ? 8 * i + 2 * t + half : 4 * i + t, col = k + 8 * piece;
    const uint4 zero = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int part = 0; part < 2; part++)
#pragma unroll
        for (int n = 0; n < F::NT; n++) {
            const uint16_t *from = part ? j.x.lo : j.x.hi;
            if (part && !from) continue;
            if (F::COPY)
                b[part][n] = *reinterpret_cast<const uint4 *>(
                    x + ((part * F::NT + n) * 8 + g) * pitch + piece * 16);
            else
                b[part][n] = n * 8 + g < o.n && col < o.k1
                                 ? *reinterpret_cast<const uint4 *>(from + o.x_at[n] + col)
                                 : zero;
        }
}

/* acc += W x over the columns of the i-th load of chunk k. */
template <class F>
__device__ inline void multiply(float (&acc)[F::MT][F::NT][4], const uint4 (&raw)[F::MT][2],
                                const nb_lin &j, const work<F> &o, const unsigned char *x,
                                uint32_t pitch, uint32_t k, int i)
{
    const bool two = j.x.lo != nullptr;
#pragma unroll
    for (int half = 0; half < (F::FP8 ? 2 : 1); half++) {
        uint4 b[2][F::NT], a[F::MT][2];
        x_values<F>(b, j, o, x, pitch, k, i, half);
#pragma unroll
        for (int m = 0; m < F::MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) a[m][h] = nb_lin_operands<F::FP8>(raw[m][h], half);
#pragma unroll
        for (int q = 0; q < 2; q++)
#pragma unroll
            for (int part = 0; part < 2; part++) {
                if (part && !two) continue;
#pragma unroll
                for (int m = 0; m < F::MT; m++)
#pragma unroll
                    for (int n = 0; n < F::NT; n++)
                        nb_lin_mma(acc[m][n], a[m][0], a[m][1], b[part][n], q);
            }
    }
}

/* sum += acc times the rows' scales, at the end of a block of 128 columns (FP8). */
template <class F>
__device__ inline void fold(float (&sum)[F::MT][F::NT][4], float (&acc)[F::MT][F::NT][4],
                            const work<F> &o, uint32_t block)
{
#pragma unroll
    for (int m = 0; m < F::MT; m++)
#pragma unroll
        for (int n = 0; n < F::NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float scale = __ldg(o.scale[m][e >> 1] + block * o.step);
                sum[m][n][e] = __fmaf_rn(scale, acc[m][n][e], sum[m][n][e]);
                acc[m][n][e] = 0;
            }
}

/* sum = W x over the warp's range of columns.  early: the previous kernel may still be running. */
template <class F>
__device__ inline void range_sum(float (&sum)[F::MT][F::NT][4], const nb_lin &j, const work<F> &o,
                                 unsigned char *x, uint32_t pitch, bool early)
{
    float acc[F::MT][F::NT][4] = {}; /* FP8: the current block of 128 columns */
    uint4 raw[F::CHUNK][F::MT][2];
    for (uint32_t k = o.k0; k < o.k1; k += F::CHUNK_COLS) {
#pragma unroll
        for (int i = 0; i < F::CHUNK; i++) load_weights<F>(raw[i], o, k + i * F::COLS);
        if (early && k == o.k0) nb_grid_wait();
        if (F::COPY) {
            copy_x<F>(x, pitch, j, o, k);
            nb_cp_async_wait<0>();
            __syncwarp();
        }
#pragma unroll
        for (int i = 0; i < F::CHUNK; i++) {
            const uint32_t at = k + i * F::COLS;
            if (at >= o.k1) break;
            multiply<F>(F::FP8 ? acc : sum, raw[i], j, o, x, pitch, k, i);
            if (F::FP8 && (i % 2 || at + F::COLS >= o.k1)) fold<F>(sum, acc, o, at / 128);
        }
        __syncwarp();
    }
}

template <class F> __global__ void __launch_bounds__(512, 1) few_kernel(nb_lin j, uint32_t n_tile)
{
    NB_SHARED(unsigned char, shared); /* first one copy of x per warp, then the sums of all warps */
    const uint32_t warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2;
    const uint32_t range = warp % j.n_range, tile = warp / j.n_range, pitch = x_pitch<F>(j.range);
    const uint32_t row0 = (blockIdx.x * n_tile + tile) * F::ROWS;
    if (j.first && !j.chosen) nb_grid_wait();
    nb_grid_next();
    work<F> o;
    uint32_t begin = 0, end = j.n_tok;
    o.batch = blockIdx.y;
    if (j.first && !nb_lin_active(j, blockIdx.y, &o.batch, &begin, &end)) return;
    o.step = !j.row_scales;
    o.k0 = range * j.range;
    o.k1 = o.k0 + j.range < j.n_col ? o.k0 + j.range : j.n_col;
#pragma unroll
    for (int m = 0; m < F::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t matrix = F::KIND == GLU ? m : 0;
            const uint32_t at = row0 + g + 8 * h + (F::KIND == ROWS32 ? 16 * m : 0);
            const uint32_t r = at < j.n_out ? at : j.n_out - 1;
            o.w[m][h] = j.w[matrix] + (o.batch * j.w_rows + r) * j.n_col * (F::FP8 ? 1 : 2);
            o.scale[m][h] = F::FP8 ? nb_lin_scale(j, matrix, o.batch, r, 0) : nullptr;
        }
    float *parts = reinterpret_cast<float *>(shared);
    for (o.tok = begin; o.tok < end; o.tok += 8 * F::NT) {
        float sum[F::MT][F::NT][4] = {};
        o.n = end - o.tok < 8 * F::NT ? end - o.tok : 8 * F::NT;
#pragma unroll
        for (uint32_t n = 0; n < F::NT; n++)
            o.x_at[n] = !F::COPY && n * 8 + g < o.n ? x_row(j, o.batch, o.tok + n * 8 + g) : 0;
        range_sum<F>(sum, j, o, shared + warp * 2 * 8 * F::NT * pitch, pitch,
                     (!j.first || j.chosen) && o.tok == begin);
        __syncthreads();
        put_part<F>(parts + warp * (F::MT * 8 * F::NT * PITCH), sum);
        __syncthreads();
        join<F>(j, parts, n_tile, o.batch, o.tok, end);
        __syncthreads();
    }
}

template <class F> bool launch(nb_cuda *g, const nb_lin &j, size_t n_batch)
{
    const uint32_t n_tile = j.n_range >= 4 ? 1 : 4 / j.n_range, n_warp = n_tile * j.n_range;
    const dim3 grid(nb_lin_ceil(j.n_out, F::ROWS * n_tile), (unsigned)n_batch);
    size_t bytes = sizeof(float) * n_warp * F::MT * 8 * F::NT * PITCH;
    if (F::COPY) {
        const size_t x = (size_t)n_warp * 2 * 8 * F::NT * x_pitch<F>(j.range);
        if (bytes < x) bytes = x;
    }
    if (bytes > g->shared_bytes) return false;
    if (bytes > 48 << 10) NB_SHARED_LIMIT(g, (few_kernel<F>), bytes);
    NB_LAUNCH_EARLY(g, (few_kernel<F>), grid, dim3(n_warp * 32), bytes, j, n_tile);
    return true;
}

template <bool FP8, kind KIND>
bool launch(nb_cuda *g, const nb_lin &j, size_t n_batch, size_t max_tok)
{
    if (max_tok > 8)
        return j.first ? launch<few<FP8, KIND, 2, true>>(g, j, n_batch)
                       : launch<few<FP8, KIND, 2, false>>(g, j, n_batch);
    if constexpr (FP8)
        if (!j.first && max_tok > 1) return launch<few<FP8, KIND, 1, false>>(g, j, n_batch);
    return launch<few<FP8, KIND, 1, true>>(g, j, n_batch);
}

template <bool FP8>
bool launch(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t max_tok)
{
    if (glu) return launch<FP8, GLU>(g, j, n_batch, max_tok);
    const bool large = j.first ? j.n_out >= 512 : j.n_out * n_batch >= 8192;
    return large ? launch<FP8, ROWS32>(g, j, n_batch, max_tok)
                 : launch<FP8, ROWS16>(g, j, n_batch, max_tok);
}
} // namespace

bool nb_lin_few(nb_cuda *g, const nb_lin &j, bool fp8, bool glu, size_t n_batch, size_t max_tok)
{
    return fp8 ? launch<true>(g, j, glu, n_batch, max_tok)
               : launch<false>(g, j, glu, n_batch, max_tok);
}
