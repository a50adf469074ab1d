/* linear_tile.cu - y = W x for many tokens: tiles of rows x tokens in shared memory (linear_tile.cuh).
 *
 * Stages of 64 columns, 3 or 4 deep, are loaded by cp.async while earlier ones are multiplied.
 *
 *   tile     block     warps           used for
 *   small     64 x 32  4 of 16 x 32    up to 64 tokens (GLU: 128 x 32)
 *   middle    64 x 64  4 of 32 x 32
 *   large    128 x 64  4 of 64 x 32    per 16 columns 32 mma and 4 + 8 reads of 512 bytes
 * An SM runs two or more blocks, so one multiplies while another waits.
 *
 * Slower, or no faster (3072 x 2048, 8192 tokens, H100):
 *   one block of 128 x 128 with 8 warps: 794 us instead of 735
 *   12 stages for the small tile: no faster for one block, and only one block fits an SM
 *
 * Summing by ranges (SPLIT) costs registers: the accumulators, the range's sum (FP8) and the total.  So the
 * large FP8 tile of prompts adds the scaled blocks of 128 columns in order, without ranges.  There, and only
 * there, DIRECT and PROMPT differ in their bits.
 *
 * Experts: the grid has as many token tiles as there can be; a block finds its expert from first[]. */
#include "kernel/cuda/sm80/linear_tile.cuh"

namespace
{
using namespace tile;

/* Finds the tokens of this block; false: it has none. */
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
                             S::GLU ? nb_lin_swiglu(v, total[m + S::MT - MT][n][e], j.limit) : v);
            }
}

template <class S>
__device__ inline void load(const loader<S> &l, unsigned char *stage, uint32_t kc)
{
    load_w<S>(l, stage, kc);
    load_x<S>(l, stage, kc);
}

template <class S> __global__ void __launch_bounds__(S::THREADS, 2) tile_kernel(nb_lin j)
{
    nb_grid_wait();
    nb_grid_next(); /* no earlier: down's product may rely on it (chosen) */
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
    uint32_t at = 0, left = per_range; /* the current stage; chunks left in the range */
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

/* Selects the tile.  All give the same bits, except for FP8 prompts. */
template <bool FP8, bool GLU> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch, bool prompt)
{
    typedef shape<FP8, GLU, true, (GLU ? 2 : 1), 4, 4, 1, 4> small;
    typedef shape<FP8, GLU, true, 2, 4, 2, 2, (FP8 ? 4 : 3)> middle;
    typedef shape<FP8, GLU, !FP8, 4, 4, 2, 2, (FP8 ? 4 : 3)> large;
    const size_t n_group = j.first ? j.n_expert : n_batch,
                 tokens = j.n_tok / (j.first ? n_group : 1);
    const size_t rows = j.n_out * n_group; /* 132 SMs, two blocks each */
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
