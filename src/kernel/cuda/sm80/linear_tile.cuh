/* linear_tile.cuh - y = W x by tiles in shared memory, shared by linear_tile.cu and sm90/linear_cluster.cu.
 *
 * Block tile: BM rows of weights (GLU: half of them gate's, half up's) x BN tokens, both parts (hi, lo).
 * Warp tile: 16 MT rows x 8 NT tokens; a block has WR x WT warps.
 * Stage: 64 columns of both operands in shared memory, loaded by cp.async.
 * Operands are read 16 bytes per lane, in the column order of linear_mma.cuh, so the bits are those of
 * linear_few.cu.  A row of 128 bytes is swizzled by the parity of its index, so the 8 lanes of a phase have no
 * bank conflicts. */
#ifndef NB_KERNEL_CUDA_SM80_LINEAR_TILE_CUH
#define NB_KERNEL_CUDA_SM80_LINEAR_TILE_CUH
#include "kernel/cuda/sm80/linear_mma.cuh"

namespace tile
{
/* The tokens of a block. */
struct part {
    uint32_t batch, begin, end;
};

template <bool FP8_, bool GLU_, bool SPLIT_, int MT_, int NT_, int WR_, int WT_, int STAGES_>
struct shape {
    static const bool FP8 = FP8_, GLU = GLU_, SPLIT = SPLIT_;
    static const int MT = MT_, NT = NT_, WR = WR_, WT = WT_, STAGES = STAGES_;
    static const int THREADS = WR * WT * 32, BM = WR * MT * 16, BN = WT * NT * 8;
    static const int ROWS = GLU ? BM / 2 : BM; /* rows of the result */
    static const int W_ROW = FP8 ? 64 : 128;   /* bytes of 64 columns */
    static const int W_CHUNKS = W_ROW / 16, W_STEP = THREADS / W_CHUNKS, X_STEP = THREADS / 8;
    static const int W_LOADS = BM / W_STEP, X_LOADS = BN / X_STEP;
    static const int W_BYTES = BM * W_ROW, X_BYTES = BN * 128;
    static const int STAGE_BYTES = W_BYTES + 2 * X_BYTES;
    static const bool RANGE = FP8 && SPLIT;
    static_assert(W_LOADS * W_STEP == BM && X_LOADS * X_STEP == BN, "threads share rows evenly");
};

/* Offset of the 16-byte chunk c of row r, in a tile with rows of 128 bytes. */
template <bool FP8> __device__ inline uint32_t swizzled(uint32_t r, uint32_t c)
{
    return r * 128 + ((FP8 ? c ^ (r & 1) : c ^ (r & 1) << 2) << 4);
}

/* What a thread loads to shared memory. */
template <class S> struct loader {
    const unsigned char *w[S::W_LOADS];
    uint32_t x[S::X_LOADS]; /* offsets in elements from hi and lo */
    uint32_t x_bytes[S::X_LOADS];
    const uint16_t *hi, *lo;
    uint32_t w_dst, x_dst, w_col, x_col, n_col;
};

template <class S>
__device__ inline void loader_init(loader<S> &l, const nb_lin &j, const part &p, uint32_t row0)
{
    const uint32_t wr = threadIdx.x / S::W_CHUNKS, wc = threadIdx.x % S::W_CHUNKS;
    const uint32_t xr = threadIdx.x / 8, xc = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < S::W_LOADS; i++) {
        const uint32_t at =
            wr + i * S::W_STEP; /* row of the tile; the first half of a warp's rows is gate's */
        const uint32_t m = S::GLU ? at % (S::MT * 16) / (S::MT * 8) : 0;
        uint32_t r = S::GLU ? at / (S::MT * 16) * (S::MT * 8) + at % (S::MT * 8) : at;
        r = row0 + r < j.n_out ? row0 + r : j.n_out - 1;
        l.w[i] = j.w[m] +
                 ((p.batch * j.w_rows + r) * j.n_col + wc * (S::FP8 ? 16 : 8)) * (S::FP8 ? 1 : 2);
    }
    l.w_dst = S::FP8 ? wr * 64 + wc * 16 : swizzled<false>(wr, wc);
    l.w_col = wc * (S::FP8 ? 16 : 8);
    const size_t base = j.first ? 0 : p.batch * j.x_batch;
    l.hi = j.x.hi + base;
    l.lo = j.x.lo ? j.x.lo + base : nullptr;
#pragma unroll
    for (int i = 0; i < S::X_LOADS; i++) {
        const uint32_t tok = p.begin + xr + i * S::X_STEP;
        const bool ok = tok < p.end;
        l.x_bytes[i] = ok ? 16 : 0;
        l.x[i] = ok ? (j.src ? j.src[tok] : tok) * (uint32_t)j.x.stride + xc * 8 : 0;
    }
    l.x_dst = S::W_BYTES + swizzled<S::FP8>(xr, xc);
    l.x_col = xc * 8;
    l.n_col = j.n_col;
}

/* Loads columns [64 kc, 64 kc + 64) of the weights into a stage. */
template <class S>
__device__ inline void load_w(const loader<S> &l, unsigned char *stage, uint32_t kc)
{
    const bool ok = kc * 64 + l.w_col < l.n_col;
#pragma unroll
    for (int i = 0; i < S::W_LOADS; i++)
        nb_cp_async16(stage + l.w_dst + i * S::W_STEP * S::W_ROW,
                      l.w[i] + (ok ? (size_t)kc * S::W_ROW : 0), ok ? 16 : 0);
}

/* Loads the same columns of the tokens. */
template <class S>
__device__ inline void load_x(const loader<S> &l, unsigned char *stage, uint32_t kc)
{
    const bool ok = kc * 64 + l.x_col < l.n_col;
#pragma unroll
    for (int i = 0; i < S::X_LOADS; i++) {
        const uint32_t n = ok ? l.x_bytes[i] : 0, at = n ? l.x[i] + kc * 64 : 0;
        nb_cp_async16(stage + l.x_dst + i * S::X_STEP * 128, l.hi + at, n);
        if (l.lo) nb_cp_async16(stage + l.x_dst + S::X_BYTES + i * S::X_STEP * 128, l.lo + at, n);
    }
}

__device__ inline uint4 shared16(const unsigned char *p)
{
    return *reinterpret_cast<const uint4 *>(p);
}

/* acc += W x over the 64 columns of a stage. */
template <class S>
__device__ inline void multiply(float (&acc)[S::MT][S::NT][4], const unsigned char *stage, bool two)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const unsigned char *w = stage + (warp % S::WR * S::MT * 16 + g) * S::W_ROW;
    const unsigned char *x = stage + S::W_BYTES + (warp / S::WR * S::NT * 8) * 128;
    uint4 raw[S::FP8 ? S::MT : 1][2];
    if (S::FP8)
#pragma unroll
        for (int m = 0; m < S::MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                raw[S::FP8 ? m : 0][h] = shared16(w + (m * 16 + h * 8) * S::W_ROW + t * 16);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t at = swizzled<S::FP8>(g, S::FP8 ? 2 * t + half : 4 * half + t);
        uint4 a[S::MT][2], hi[S::NT], lo[S::NT];
#pragma unroll
        for (int m = 0; m < S::MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                a[m][h] = S::FP8 ? nb_lin_operands<true>(raw[S::FP8 ? m : 0][h], half)
                                 : shared16(w - g * S::W_ROW + (m * 16 + h * 8) * S::W_ROW + at);
#pragma unroll
        for (int n = 0; n < S::NT; n++) hi[n] = shared16(x + n * 8 * 128 + at);
        if (two)
#pragma unroll
            for (int n = 0; n < S::NT; n++) lo[n] = shared16(x + S::X_BYTES + n * 8 * 128 + at);
#pragma unroll
        for (int q = 0; q < 2; q++) {
#pragma unroll
            for (int m = 0; m < S::MT; m++)
#pragma unroll
                for (int n = 0; n < S::NT; n++) nb_lin_mma(acc[m][n], a[m][0], a[m][1], hi[n], q);
            if (!two) continue;
#pragma unroll
            for (int m = 0; m < S::MT; m++)
#pragma unroll
                for (int n = 0; n < S::NT; n++) nb_lin_mma(acc[m][n], a[m][0], a[m][1], lo[n], q);
        }
    }
}

/* to += acc (SCALED: acc times the rows' scales), then acc = 0. */
template <class S, bool SCALED>
__device__ inline void fold(float (&to)[S::MT][S::NT][4], float (&acc)[S::MT][S::NT][4],
                            const float (&scale)[S::MT][2])
{
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                to[m][n][e] = SCALED ? __fmaf_rn(scale[m][e >> 1], acc[m][n][e], to[m][n][e])
                                     : __fadd_rn(to[m][n][e], acc[m][n][e]);
                acc[m][n][e] = 0;
            }
}

/* First row of the result in a lane's tile m (GLU: the same for gate and up). */
template <class S> __device__ inline uint32_t row_of(uint32_t row0, int m)
{
    const uint32_t warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2;
    return S::GLU ? row0 + warp % S::WR * S::MT * 8 + m % (S::MT / 2 > 0 ? S::MT / 2 : 1) * 16 + g
                  : row0 + warp % S::WR * S::MT * 16 + m * 16 + g;
}

template <class S>
__device__ inline void scales(const nb_lin &j, const part &p, uint32_t row0, uint32_t block,
                              float (&scale)[S::MT][2])
{
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t r = row_of<S>(row0, m) + 8 * h;
            r = r < j.n_out ? r : j.n_out - 1;
            scale[m][h] = __ldg(nb_lin_scale(j, S::GLU && m >= S::MT / 2, p.batch, r, block));
        }
}
} // namespace tile

#endif
