/* linear_cluster.cu - y = W x for one matrix and 17 to 64 tokens on Hopper: split-K within a cluster.
 *
 * The columns (K) are split into fixed ranges.  Each block of a cluster sums one range, or two where there are more
 * than 8 ranges, for a tile of rows x tokens, with mma.sync and cp.async as in linear_tile.cuh.  The sums of the ranges
 * lie in the blocks' shared memory.  After a cluster barrier each block adds its share of the tile, in the order of the
 * ranges, and writes the result.  So the bits are those of linear_few.cu and linear_tile.cu.
 *
 * Why: a tile of linear_tile.cu that sums all columns is one of 9 to 57 blocks and lasts as long as 32 chunks in a row.
 * Here, with 2048 columns, a block has four chunks of 64.  Nearly all of them are in flight at once.  Weights are
 * prefetched before the kernel that makes x has ended.
 *
 * H100, BF16, graphs of products in a row, weights not in the L2.  In us; linear_tile.cu in brackets:
 *       tokens         32            64     floor
 *   3072 x 2048    12.0 (17.0)   15.4 (17.0)   4.2
 *   2048 x 2048     7.3 (16.5)   10.7 (16.7)   2.8
 *    576 x 2048     6.3 (16.9)    9.3 (16.9)   0.8
 *   2048 x 2816     8.5 (21.9)   13.8 (22.0)   3.8
 *
 * What bounds it, with 64 tokens: shared memory, of which a block of 64 x 256 needs 3,300 cycles (calculated), and x,
 * which takes twice as many bytes from the L2 as the weights.
 *
 * Tried, 64 tokens, us, for the four shapes above:
 *   4 warps of 32 x 32    16.5    9.7   9.0  12.2
 *   with two stages       11.8   11.8   9.2  14.8
 *
 * Where it is used: linear_mma.cu takes it for the queries and the output of attention.  For the router, for gate and
 * up, or for products that run in parallel with others, this kernel was faster but the whole step slower (64 sequences:
 * up to 10 %).  An SM seems to keep the shared-memory carve-out of these blocks while the experts follow, and
 * linear_few.cu needs L1 for the weights in flight (experts of 64 tokens: 404 us; with the smallest L1 497). */
#include "kernel/cuda/sm80/linear_tile.cuh"
#include "kernel/cuda/sm90/wgmma.cuh"

namespace
{
using namespace tile;

enum { MOST_BLOCKS = 8 }; /* the portable limit of a cluster */

template <bool FP8, int MT, int NT, int WR, int WT, int STAGES>
struct split : shape<FP8, false, true, MT, NT, WR, WT, STAGES> {
    typedef shape<FP8, false, true, MT, NT, WR, WT, STAGES> S;
    static const int PITCH = S::BM + 4; /* floats per token in the sums of a range */
    static const int SUM_BYTES = S::BN * PITCH * 4, ALL_STAGES = STAGES * S::STAGE_BYTES;
    static const int BLOCKS = (220 << 10) / ALL_STAGES < 4 ? (220 << 10) / ALL_STAGES : 4;
    static_assert(SUM_BYTES <= ALL_STAGES, "sums of the only range lie where stages were");
};

/* Offset in shared memory of the sums of a block's n-th range; it has `per` ranges. */
template <class S> __device__ inline uint32_t sums_at(uint32_t per, uint32_t n)
{
    return per == 1 ? 0 : S::ALL_STAGES + n * S::SUM_BYTES;
}

/* Stores the sums of a range to shared memory: [token][row]. */
template <class S> __device__ inline void put(float *sums, const float (&acc)[S::MT][S::NT][4])
{
    const uint32_t warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    float *to =
        sums + (warp / S::WR * S::NT * 8 + 2 * t) * S::PITCH + warp % S::WR * S::MT * 16 + g;
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                to[(n * 8 + (e & 1)) * S::PITCH + m * 16 + (e >> 1) * 8] = acc[m][n][e];
}

__device__ inline float2 load2(uint32_t at)
{
    float2 v;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(at)
                 : "memory");
    return v;
}

/* The sum over all ranges for two rows of a token.  at: address of the first range's sums, the same in every block. */
template <class S> __device__ inline float2 total(uint32_t at, uint32_t n_range, uint32_t per)
{
    float2 part[2 * MOST_BLOCKS]; /* issue all loads before waiting for the first */
#pragma unroll
    for (uint32_t i = 0; i < 2 * MOST_BLOCKS; i++)
        if (i < n_range)
            part[i] = load2(nb_cluster_at(at, per == 1 ? i : i / 2) + sums_at<S>(per, i & 1));
    float2 v = part[0];
#pragma unroll
    for (uint32_t i = 1; i < 2 * MOST_BLOCKS; i++)
        if (i < n_range) v.x = __fadd_rn(v.x, part[i].x), v.y = __fadd_rn(v.y, part[i].y);
    return v;
}

/* Adds the ranges for this block's share of the tile and writes the result. */
template <class S>
__device__ inline void join(const nb_lin &j, const part &p, uint32_t row0, uint32_t sums,
                            uint32_t per, uint32_t rank, uint32_t n_block)
{
    const uint32_t n_tok = p.end - p.begin < S::BN ? p.end - p.begin : S::BN;
    for (uint32_t i = rank * S::THREADS + threadIdx.x; i < n_tok * S::ROWS / 2;
         i += n_block * S::THREADS) {
        const uint32_t tok = i / (S::ROWS / 2), r = i % (S::ROWS / 2) * 2;
        if (row0 + r >= j.n_out) continue;
        const float2 v = total<S>(sums + (tok * S::PITCH + r) * 4, j.n_range, per);
        nb_lin_store(j, p.batch, p.begin + tok, row0 + r, v.x);
        if (row0 + r + 1 < j.n_out) nb_lin_store(j, p.batch, p.begin + tok, row0 + r + 1, v.y);
    }
}

/* per: ranges per block; n_block: blocks per cluster. */
template <class S>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    cluster_kernel(NB_PARAM nb_lin j, uint32_t per, uint32_t n_block)
{
    nb_grid_next();
    NB_SHARED(unsigned char, stage);
    const uint32_t rank = n_block == 1 ? 0 : nb_cluster_rank();
    const uint32_t row0 = blockIdx.x / n_block * S::ROWS, n_chunk = (j.n_col + 63) / 64;
    const part p = { 0, blockIdx.y * S::BN, j.n_tok };
    const uint32_t first = rank * per * (j.range / 64), want = first + per * (j.range / 64),
                   end = want < n_chunk ? want : n_chunk;
    loader<S> l;
    loader_init<S>(l, j, p, row0);
#pragma unroll
    for (uint32_t i = 0; i < S::STAGES; i++)
        if (first + i < end) load_w<S>(l, stage + i * S::STAGE_BYTES, first + i);
    nb_grid_wait();
#pragma unroll
    for (uint32_t i = 0; i < S::STAGES; i++) {
        if (first + i < end) load_x<S>(l, stage + i * S::STAGE_BYTES, first + i);
        nb_cp_async_commit();
    }
    const bool two = j.x.lo != nullptr;
    float acc[S::MT][S::NT][4] = {}, sum[S::FP8 ? S::MT : 1][S::FP8 ? S::NT : 1][4] = {};
    float scale[S::MT][2] = {};
    uint32_t at = 0, left = j.range / 64, n = 0;
    for (uint32_t kc = first; kc < end; kc++) {
        if (S::FP8 && kc % 2 == 0) scales<S>(j, p, row0, kc / 2, scale);
        nb_cp_async_wait<S::STAGES - 1>();
        __syncthreads();
        multiply<S>(acc, stage + at * S::STAGE_BYTES, two);
        const bool last = kc + 1 == end;
        if (last || kc + S::STAGES < end) __syncthreads();
        if (kc + S::STAGES < end) {
            load_w<S>(l, stage + at * S::STAGE_BYTES, kc + S::STAGES);
            load_x<S>(l, stage + at * S::STAGE_BYTES, kc + S::STAGES);
        }
        nb_cp_async_commit();
        at = at + 1 == S::STAGES ? 0 : at + 1;
        if constexpr (S::FP8)
            if (kc % 2 || last) fold<S, true>(sum, acc, scale);
        if (--left && !last) continue;
        float *to = reinterpret_cast<float *>(stage + sums_at<S>(per, n++));
        if constexpr (S::FP8) {
            put<S>(to, sum);
            memset(sum, 0, sizeof sum);
        } else {
            put<S>(to, acc);
            memset(acc, 0, sizeof acc);
        }
        left = j.range / 64;
    }
    if (n_block > 1)
        nb_cluster_sync();
    else
        __syncthreads();
    join<S>(j, p, row0, nb_smem(stage), per, rank, n_block);
    if (n_block > 1) nb_cluster_sync(); /* other blocks may still read this block's sums */
}

template <class S> void launch(nb_cuda *g, const nb_lin &j)
{
    const uint32_t per = nb_lin_ceil(j.n_range, MOST_BLOCKS), n_block = nb_lin_ceil(j.n_range, per);
    const size_t bytes = (size_t)S::ALL_STAGES + (per == 1 ? 0 : per * S::SUM_BYTES);
    const dim3 grid(nb_lin_ceil(j.n_out, S::ROWS) * n_block, nb_lin_ceil(j.n_tok, S::BN));
    NB_SHARED_LIMIT(g, (cluster_kernel<S>), S::ALL_STAGES + 2 * S::SUM_BYTES);
    NB_LAUNCH_CLUSTERS(g, n_block, (cluster_kernel<S>), grid, S::THREADS, bytes, j, per, n_block);
}

template <bool FP8> void launch(nb_cuda *g, const nb_lin &j)
{
    if (j.n_tok <= 32)
        launch<split<FP8, 1, 4, 4, 1, 4>>(g, j);
    else
        launch<split<FP8, 1, 4, 4, 2, 3>>(g, j);
}
} // namespace

void nb_lin_cluster(nb_cuda *g, const nb_lin &j, bool fp8)
{
    if (fp8)
        launch<true>(g, j);
    else
        launch<false>(g, j);
}
