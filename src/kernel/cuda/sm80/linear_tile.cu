/* linear_tile.cu - products with many tokens: tiles of rows x tokens in shared memory.
 *
 * A block has BM rows of weights and BN tokens (both parts); a stage of shared memory holds 64 columns
 * of both, brought by cp.async, 3 or 4 stages deep.  Operands are read 16 bytes a lane, in the order of columns
 * that linear_mma.cuh says, so that the bits are those of linear_few.cu; a row of 128 bytes is
 * swizzled by the parity of its index, which makes the 8 lanes of a phase meet no bank twice.
 *
 *   small:   64 x 32, 4 warps of 16 x 32 (GLU 128 x 32): up to 64 tokens
 *   middle:  64 x 64, 4 warps of 32 x 32
 *   large:  128 x 64, 4 warps of 64 x 32: per 16 columns 32 mma and 4 + 8 reads of 512 bytes
 * Two blocks or more share a multiprocessor, so that one multiplies while the other waits.  Slower: one
 * block of 128 x 128 with 8 warps (794 us instead of 735 for 3072 x 2048, 8192 tokens on an H100), 12
 * stages for the small tile (no faster for one block, and one block per multiprocessor).
 *
 * The sum of ranges (SPLIT) costs registers: accumulators, the sum of a range (FP8) and the total.  With FP8 the
 * large tile of prompts therefore adds scaled blocks of 128 columns in order, without ranges:
 * DIRECT and PROMPT differ there in their bits.
 *
 * Experts: the grid has as many tiles of tokens as there can be; a block finds its expert from first[]. */
#include "kernel/cuda/sm80/linear_mma.cuh"

namespace
{
template <bool FP8_, bool GLU_, bool SPLIT_, int MT_, int NT_, int WR_, int WT_, int STAGES_>
struct shape {
    static const bool FP8 = FP8_, GLU = GLU_, SPLIT = SPLIT_;
    static const int MT = MT_, NT = NT_, WR = WR_, WT = WT_, STAGES = STAGES_;
    static const int THREADS = WR * WT * 32, BM = WR * MT * 16, BN = WT * NT * 8;
    static const int ROWS = GLU ? BM / 2 : BM; /* of the result */
    static const int W_ROW = FP8 ? 64 : 128;   /* bytes of 64 columns */
    static const int W_CHUNKS = W_ROW / 16, W_STEP = THREADS / W_CHUNKS, X_STEP = THREADS / 8;
    static const int W_LOADS = BM / W_STEP, X_LOADS = BN / X_STEP;
    static const int W_BYTES = BM * W_ROW, X_BYTES = BN * 128;
    static const int STAGE_BYTES = W_BYTES + 2 * X_BYTES;
    static const bool RANGE = FP8 && SPLIT;
    static_assert(W_LOADS * W_STEP == BM && X_LOADS * X_STEP == BN, "threads share rows evenly");
};

/* Chunk of 16 bytes c of row r in a row of 128. */
template <bool FP8> __device__ inline uint32_t swizzled(uint32_t r, uint32_t c)
{
    return r * 128 + ((FP8 ? c ^ (r & 1) : c ^ (r & 1) << 2) << 4);
}

/* Which tokens a block has: false: none. */
struct part {
    uint32_t batch, begin, end;
};
template <int BN> __device__ inline bool find_part(const nb_lin &j, part *p)
{
    if (!j.first) {
        *p = { blockIdx.z, blockIdx.y * BN, j.n_tok };
        return true;
    }
    uint32_t batch, begin, end;
    if (!nb_lin_find<BN>(j, blockIdx.y, &batch, &begin, &end)) return false;
    *p = { batch, begin, end };
    return true;
}

/* What a thread brings to shared memory. */
template <class S> struct loader {
    const unsigned char *w[S::W_LOADS];
    uint32_t x[S::X_LOADS]; /* elements from x_base */
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
            wr + i * S::W_STEP; /* of the tile; a warp's first half are gate's rows */
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

/* Columns [64 kc, 64 kc + 64) into a stage. */
template <class S>
__device__ inline void load(const loader<S> &l, unsigned char *stage, uint32_t kc)
{
    const uint32_t w_col = kc * 64 + l.w_col, x_col = kc * 64 + l.x_col;
    const bool w_ok = w_col < l.n_col, x_ok = x_col < l.n_col;
#pragma unroll
    for (int i = 0; i < S::W_LOADS; i++)
        nb_cp_async16(stage + l.w_dst + i * S::W_STEP * S::W_ROW,
                      l.w[i] + (w_ok ? (size_t)kc * S::W_ROW : 0), w_ok ? 16 : 0);
#pragma unroll
    for (int i = 0; i < S::X_LOADS; i++) {
        const uint32_t n = x_ok ? l.x_bytes[i] : 0, at = n ? l.x[i] + kc * 64 : 0;
        nb_cp_async16(stage + l.x_dst + i * S::X_STEP * 128, l.hi + at, n);
        if (l.lo) nb_cp_async16(stage + l.x_dst + S::X_BYTES + i * S::X_STEP * 128, l.lo + at, n);
    }
}

__device__ inline uint4 shared16(const unsigned char *p)
{
    return *reinterpret_cast<const uint4 *>(p);
}

/* acc += a stage's 64 columns. */
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

/* to += acc (SCALED: times the rows' scales), and acc = 0. */
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

/* First row of the result of a lane's tile m (GLU: gate and up alike). */
template <class S> __device__ inline uint32_t row_of(uint32_t row0, int m)
{
    const uint32_t warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2;
    return S::GLU ? row0 + warp % S::WR * S::MT * 8 + m % (S::MT / 2 > 0 ? S::MT / 2 : 1) * 16 + g
                  : row0 + warp % S::WR * S::MT * 16 + m * 16 + g;
}

template <class S>
__device__ inline void store(const nb_lin &j, const part &p, uint32_t row0,
                             const float (&total)[S::MT][S::NT][4])
{
    const uint32_t warp = threadIdx.x >> 5, t = threadIdx.x & 3;
    const int MT = S::GLU ? S::MT / 2 : S::MT;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const uint32_t r = row_of<S>(row0, m) + 8 * (e >> 1);
                const uint32_t tok = p.begin + warp / S::WR * S::NT * 8 + n * 8 + 2 * t + (e & 1);
                if (r >= j.n_out || tok >= p.end) continue;
                const float v = total[m][n][e];
                nb_lin_store(j, p.batch, tok, r,
                             S::GLU ? nb_lin_swiglu(v, total[m + S::MT - MT][n][e]) : v);
            }
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
            scale[m][h] = __ldg(nb_lin_scale(j, S::GLU && m >= S::MT / 2, p.batch, r) + block);
        }
}

template <class S> __global__ void __launch_bounds__(S::THREADS, 2) tile_kernel(nb_lin j)
{
    nb_grid_wait();
    nb_grid_next(); /* not before: down's product may count on it (chosen) */
    NB_SHARED(unsigned char, stage);
    part p;
    if (!find_part<S::BN>(j, &p)) return;
    const uint32_t row0 = blockIdx.x * S::ROWS, n_chunk = (j.n_col + 63) / 64;
    const bool two = j.x.lo != nullptr;
    loader<S> l;
    loader_init<S>(l, j, p, row0);
#pragma unroll
    for (int i = 0; i < S::STAGES - 1; i++) {
        if ((uint32_t)i < n_chunk) load<S>(l, stage + i * S::STAGE_BYTES, i);
        nb_cp_async_commit();
    }
    float acc[S::MT][S::NT][4] = {}, total[S::MT][S::NT][4] = {};
    float sum[S::RANGE ? S::MT : 1][S::RANGE ? S::NT : 1][4] = {};
    float scale[S::MT][2] = {};
    const uint32_t per_range = j.range / 64;
    uint32_t at = 0, left = per_range; /* the stage; chunks to the end of the range */
    for (uint32_t kc = 0; kc < n_chunk; kc++) {
        nb_cp_async_wait<S::STAGES - 2>();
        __syncthreads();
        if (S::FP8 && kc % 2 == 0) scales<S>(j, p, row0, kc / 2, scale);
        const uint32_t next = at ? at - 1 : S::STAGES - 1;
        if (kc + S::STAGES - 1 < n_chunk)
            load<S>(l, stage + next * S::STAGE_BYTES, kc + S::STAGES - 1);
        nb_cp_async_commit();
        multiply<S>(acc, stage + at * S::STAGE_BYTES, two);
        at = at + 1 == S::STAGES ? 0 : at + 1;
        const bool last = kc + 1 == n_chunk, ends = --left == 0 || last;
        if constexpr (S::RANGE) {
            if (kc % 2 || last) fold<S, true>(sum, acc, scale);
            if (ends) fold<S, false>(total, sum, scale);
        } else if constexpr (S::FP8) {
            if (kc % 2 || last) fold<S, true>(total, acc, scale);
        } else {
            if (ends) fold<S, false>(total, acc, scale);
        }
        if (left == 0) left = per_range;
    }
    nb_cp_async_wait<0>();
    store<S>(j, p, row0, total);
}

template <class S> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch)
{
    const size_t bytes = (size_t)S::STAGES * S::STAGE_BYTES;
    const size_t tiles =
        nb_lin_ceil(j.n_tok, S::BN) + (j.first ? (j.n_expert < j.n_tok ? j.n_expert : j.n_tok) : 0);
    const dim3 grid(nb_lin_ceil(j.n_out, S::ROWS), (unsigned)tiles,
                    j.first ? 1 : (unsigned)n_batch);
    NB_SHARED_LIMIT(g, (tile_kernel<S>), bytes);
    NB_LAUNCH_EARLY(g, (tile_kernel<S>), grid, S::THREADS, bytes, j);
}

/* Which tile: the bits are the same, but for FP8 prompts. */
template <bool FP8, bool GLU> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch, bool prompt)
{
    typedef shape<FP8, GLU, true, (GLU ? 2 : 1), 4, 4, 1, 4> small;
    typedef shape<FP8, GLU, true, 2, 4, 2, 2, (FP8 ? 4 : 3)> middle;
    typedef shape<FP8, GLU, !FP8, 4, 4, 2, 2, (FP8 ? 4 : 3)> large;
    const size_t n_group = j.first ? j.n_expert : n_batch,
                 tokens = j.n_tok / (j.first ? n_group : 1);
    const size_t rows = j.n_out * n_group; /* 132 multiprocessors, two blocks each */
    if (FP8 && prompt)
        launch<large>(g, j, n_batch);
    else if (tokens <= 32 || (tokens <= 64 && rows < 8192))
        launch<small>(g, j, n_batch);
    else if (FP8 || tokens / 64 * (rows / 128) < 264)
        launch<middle>(g, j, n_batch);
    else
        launch<large>(g, j, n_batch);
}
} // namespace

void nb_lin_tile(nb_cuda *g, const nb_lin &j, bool fp8, bool glu, size_t n_batch, bool prompt)
{
    if (fp8 && glu)
        launch<true, true>(g, j, n_batch, prompt);
    else if (fp8)
        launch<true, false>(g, j, n_batch, prompt);
    else if (glu)
        launch<false, true>(g, j, n_batch, prompt);
    else
        launch<false, false>(g, j, n_batch, prompt);
}
