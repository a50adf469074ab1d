/* mla_tail.cu - the last partial state of every query: the rows of the query's own page, up to the query itself.
 *
 * Computes (m, l, o) as mla_mma.cu does, over 1 to 64 rows of BF16 values stored as floats.
 * Block: one query and 16 of its heads.  All rows are loaded at once (20 loads of 16 bytes per thread) and converted
 * to BF16, which holds them exactly.  Then two teams of 8 warps process 32 tokens each (mla_tile.cuh), and the
 * second team's state is combined into the first's through shared memory.
 *
 * Bound by latency: batch 1 means one block for 16 heads, and up to 64 rows of 2,304 bytes go to one SM.
 * H100, 16 heads, in CUDA graphs (us):
 *   1 query, 31 rows    7.0
 *   1 query, 63 rows    8.5
 *   128 queries         8.2
 * That is the latency of some 1,300 instructions per warp, not of memory.  Slower (10 to 14 us): queries loaded one
 * by one, each in a branch of its own, and the rows in two passes.
 *
 * With `beside` the kernel does not wait for the preceding kernel over complete pages, but ends after it.  So SMs
 * that have run out of pages process tails meanwhile.
 *
 * Order of summation: the two halves of the page, each as a state.  An f32 record (small checkpoints) is processed as
 * in mla_mma.cu, with a second tile of what BF16 leaves. */
#include "kernel/cuda/sm80/mla_tail.cuh"

namespace
{

enum { TEAMS = 2, THREADS = TEAMS * NB_MT_THREADS, AT_ROWS = 4, AT_COLS = 5 };

/* Models with this many heads or more use mla_tail_many.cu, and so does every part of the heads of a row whose heads
 * may be split (a block of it takes MANY_ROWS of them). */
constexpr size_t MANY_HEADS = 33, MANY_ROWS = NB_CUDA_MLA_MANY_UNITS.heads;

/* A thread's share of the rows; a warp has rows t = warp, warp + 16, ... */
struct rows4 {
    float4 x[AT_ROWS][AT_COLS];
};

__device__ void load4(rows4 &v, const float *rows, uint32_t n_vis, const nb_mt_shape &d)
{
    const uint32_t lane = threadIdx.x % 32, n4 = d.k / 4;
#pragma unroll
    for (uint32_t k = 0; k < AT_ROWS; k++) {
        const uint32_t t = threadIdx.x / 32 + k * (THREADS / 32);
        const float4 *from = reinterpret_cast<const float4 *>(rows + (size_t)t * d.k);
#pragma unroll
        for (uint32_t i = 0; i < AT_COLS; i++) {
            v.x[k][i] = make_float4(0, 0, 0, 0);
            if (t < n_vis && lane + 32 * i < n4) v.x[k][i] = from[lane + 32 * i];
        }
    }
}

/* Stores the rows as tiles of 32 tokens; rows from n_vis on are 0. */
__device__ void store4(const rows4 &v, const nb_mt_shape &d, uint16_t *tile)
{
    const uint32_t lane = threadIdx.x % 32, n4 = d.k / 4;
#pragma unroll
    for (uint32_t k = 0; k < AT_ROWS; k++) {
        const uint32_t t = threadIdx.x / 32 + k * (THREADS / 32);
#pragma unroll
        for (uint32_t i = 0; i < AT_COLS; i++) {
            if (lane + 32 * i >= n4) continue;
            const float4 x = v.x[k][i];
            *reinterpret_cast<uint2 *>(tile + t * d.stride + 4 * (lane + 32 * i)) =
                make_uint2(nb_pack_bf16(x.x, x.y), nb_pack_bf16(x.z, x.w));
        }
    }
}

/* Writes the state; called by team 0, with l already summed over the lanes. */
__device__ void put_state(const nb_cuda_mla_args &a, const nb_mt_state<1> &z, const nb_mt_shape &d,
                          uint32_t part, uint32_t head0)
{
    const uint32_t w = nb_mt_warp(), lane = threadIdx.x % 32, nh = (uint32_t)a.n_head;
    const size_t at = (size_t)part * nh;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint32_t head = head0 + 2 * w + j;
        if (lane != 0 || head >= nh) continue;
        a.part_m[at + head] = nb_mla_state_m(z.m[0][j]);
        a.part_l[at + head] = z.l[0][j];
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t head = head0 + lane / 4 + 8 * half;
        if (head < nh)
            nb_mt_put_o<1>(z, 0, d, a.part_o + (at + head) * d.lora, half, false, nb_mla_merge());
    }
}

__global__ void __launch_bounds__(THREADS)
    mla_tail(NB_PARAM nb_cuda_mla_args a, nb_mt_shape d, float scale)
{
    const uint32_t row = blockIdx.x, head0 = blockIdx.y * 16, nh = (uint32_t)a.n_head;
    if (!a.beside) {
        nb_grid_next();
        nb_grid_wait();
    }
    const uint32_t chunk = a.row_chunk[row], part = a.part_first[row + 1] - 1;
    if (chunk == UINT32_MAX) return;
    NB_SHARED(unsigned char, shared);
    uint16_t *tiles = reinterpret_cast<uint16_t *>(shared + TEAMS * nb_mt_fixed_bytes(1));
    const uint32_t team = threadIdx.x / NB_MT_THREADS;
    nb_mt_work<1> *s = reinterpret_cast<nb_mt_work<1> *>(shared) + team;
    const uint16_t *tile = tiles + team * NB_MT_TOK * d.stride;
    const nb_tail_source from = nb_tail_source_of(a, row, chunk, d.lora + d.d_rope);
    const uint32_t g = threadIdx.x % 32 / 4, n_vis = from.n_vis;
    const float *q = a.q + row * a.q_stride;
    const float *q0 = head0 + g < nh ? q + (head0 + g) * a.q_head : nullptr;
    const float *q1 = head0 + g + 8 < nh ? q + (head0 + g + 8) * a.q_head : nullptr;
    nb_mt_state<1> z;
    if (d.lora + d.d_rope == d.k && (reinterpret_cast<uintptr_t>(from.rows) & 15) == 0) {
        rows4 v;
        load4(v, from.rows, n_vis, d);
        nb_mt_load_q<1>(z, 0, d, q0, q1, q);
        store4(v, d, tiles);
    } else {
        nb_tail_fill<false>(from.rows, 0, NB_PAGE_TOK, n_vis, d, tiles);
        nb_mt_load_q<1>(z, 0, d, q0, q1, q);
    }
    nb_mt_reset<1>(z);
    const uint32_t mine = n_vis > team * NB_MT_TOK ? n_vis - team * NB_MT_TOK : 0;
    __syncthreads();
    if (mine) nb_mt_scores<1, false>(s, z, d, tile);
    __syncthreads();
    if (mine) nb_mt_softmax<1>(s, z, mine, scale);
    __syncthreads();
    if (mine) nb_mt_values<1, false>(s, z, d, tile);
    if (n_vis > NB_MT_TOK) {
        nb_mt_second *other = reinterpret_cast<nb_mt_second *>(tiles);
        __syncthreads(); /* the tiles are dead */
        nb_mt_put_second(other, z, team);
        __syncthreads();
        if (team == 0) nb_mt_join_second(other, z);
    } else {
#pragma unroll
        for (int j = 0; j < 2; j++) z.l[0][j] = nb_mt_sum(z.l[0][j]);
    }
    if (team == 0) put_state(a, z, d, part, head0);
    if (a.beside) nb_tail_end_beside();
}

/* For an f32 record: two tiles (LO), one team. */
__global__ void __launch_bounds__(NB_MT_THREADS)
    mla_tail_f32(NB_PARAM nb_cuda_mla_args a, nb_mt_shape d, float scale)
{
    const uint32_t row = blockIdx.x, head0 = blockIdx.y * 16, nh = (uint32_t)a.n_head;
    if (!a.beside) {
        nb_grid_next();
        nb_grid_wait();
    }
    const uint32_t chunk = a.row_chunk[row], part = a.part_first[row + 1] - 1;
    const uint32_t g = threadIdx.x % 32 / 4;
    if (chunk == UINT32_MAX) return;
    NB_SHARED(unsigned char, shared);
    nb_mt_work<1> *s = reinterpret_cast<nb_mt_work<1> *>(shared);
    uint16_t *tile = reinterpret_cast<uint16_t *>(shared + nb_mt_fixed_bytes(1));
    const nb_tail_source from = nb_tail_source_of(a, row, chunk, d.lora + d.d_rope);
    const float *q = a.q + row * a.q_stride;
    nb_mt_state<1> z;
    nb_mt_load_q<1>(z, 0, d, head0 + g < nh ? q + (head0 + g) * a.q_head : nullptr,
                    head0 + g + 8 < nh ? q + (head0 + g + 8) * a.q_head : nullptr, q);
    nb_mt_reset<1>(z);
    for (uint32_t t = 0; t < from.n_vis; t += NB_MT_TOK) {
        nb_tail_fill<true>(from.rows, t, NB_MT_TOK, from.n_vis, d, tile);
        __syncthreads();
        nb_mt_scores<1, true>(s, z, d, tile);
        __syncthreads();
        nb_mt_softmax<1>(s, z, from.n_vis - t, scale);
        __syncthreads();
        nb_mt_values<1, true>(s, z, d, tile);
        __syncthreads();
    }
    z.l[0][0] = nb_mt_sum(z.l[0][0]);
    z.l[0][1] = nb_mt_sum(z.l[0][1]);
    put_state(a, z, d, part, head0);
    if (a.beside) nb_tail_end_beside();
}

} // namespace

void nb_cuda_mla_tail(nb_cuda *g, const nb_cuda_mla_args *a)
{
    if (a->n_row == 0) return;
    const size_t n_whole = a->n_whole ? a->n_whole : a->n_head;
    const bool by_heads = n_whole >= MANY_HEADS || a->units.heads == MANY_ROWS;
    if (a->cache.record.type != NB_KV_F32 &&
        (a->tail == NB_CUDA_TAIL_MANY || (a->tail == NB_CUDA_TAIL_RULE && by_heads))) {
        nb_cuda_mla_tail_many(g, a);
        return;
    }
    const nb_mt_shape d = nb_mt_shape_of(a->lora, a->d_rope);
    const float scale = a->scale * 1.44269504088896341f;
    const dim3 grid((unsigned)a->n_row, (unsigned)((a->n_head + 15) / 16));
    if (a->cache.record.type == NB_KV_F32) {
        const size_t n = nb_mt_fixed_bytes(1) + 2 * nb_mt_tile_bytes(d);
        NB_SHARED_LIMIT(g, mla_tail_f32, n);
        NB_LAUNCH_EARLY(g, mla_tail_f32, grid, NB_MT_THREADS, n, *a, d, scale);
        return;
    }
    const size_t tiles = TEAMS * nb_mt_tile_bytes(d);
    const size_t n = TEAMS * nb_mt_fixed_bytes(1) +
                     (tiles < sizeof(nb_mt_second) ? sizeof(nb_mt_second) : tiles);
    NB_SHARED_LIMIT(g, mla_tail, n);
    NB_LAUNCH_EARLY(g, mla_tail, grid, THREADS, n, *a, d, scale);
}
