/* mla_many.cu - MLA attention over complete pages on Hopper (sm_90a), for models with many heads, and for any multiple of
 * 8 of them.
 *
 * A row is one (query token, head).  For each row and each unit of pages the kernel computes a partial state, with
 * K_j the key of token j (512 latent values, 64 rope values) and V_j its latent:
 *   s_j = scale log2(e) q . K_j;  m = a reference near max s_j;  l = sum 2^(s_j - m);  o = sum 2^(s_j - m) V_j
 * mla_combine turns the states into the result.  A unit is a fixed range of pages whose attention is one partial
 * state; a super is a fixed group of units combined in order (nb_cuda_units.h).
 *
 * Work: a block takes 64 rows of a work item, which fill wgmma's 64-row side, and walks over the item's pages.  A page
 * of 64 tokens becomes a tile in shared memory; tiles are double-buffered.  Blocks are persistent, one per SM.
 *
 * Roles of the 3 warpgroups:
 *   2 attention  scores S [64 x 64 tokens] = Q K^T and softmax of every second tile, and O [64 x 256] += P V of
 *                every tile for half of the value dims
 *   1 producer   fills the tiles, stage by stage (mla_many_page.cuh)
 * While one attention group computes scores, the other adds values, so the tensor cores always have work.  The first
 * stage of a tile's scores is issued before the previous tile's weights are ready.  Issuing more of them would delay
 * that tile's values, and with them the buffer of the next page.
 *
 * Buffers: the weights P of a tile (FP16; BF16 for BF16 pages) reuse its rope-key buffer, which is dead by then.  A
 * tile is released 16 tokens at a time.  A kernel before this one packs the queries into the scratch memory: FP16 or
 * BF16, each row times a power of two that brings its largest value to 2^9, dims in the order of the tiles.
 *
 * End of a unit: the sums of 64 rows take half of the registers, so a block cannot keep those of the earlier units.  It
 * adds to them in memory and waits for nothing (docs/decisions/046).  The other group waits for the next tile's weights,
 * so they come before the sums.  What the end needs of global memory is looked up when the work begins.
 *
 * Lazy softmax: m of a row follows the row's maximum, rounded up to a whole number, only when that exceeds m by more
 * than 6, a factor of 2^6 in the weights.  So sums are seldom rescaled.  Each row decides alone, so no row changes another's bits.  m passes from
 * tile to tile, from one group to the other.  Each group has its own sum l; the two are added at the end of a unit.
 * The result does not depend on which group has a unit's first tile.
 *
 * Token factors (outer scales 2^c): a score is S 2^c; the weight that multiplies the tile is w 2^c, and m refers to
 * that; l is the sum of w itself.
 *
 * Clusters of two blocks (BF16, heads a multiple of 128): each block loads half of every tile and multicasts it to
 * both.
 *
 * H100 80GB HBM3, mla_combine included.  In ms, with 64 / 128 heads:
 *                    bf16            fp8             nvfp4
 *   32 x 32,768      0.534 / 0.713   0.413 / 0.753   0.385 / 0.749
 *     the goal       0.45  / 0.50    0.30  / 0.50    0.27  / 0.50
 *   1 x 32,768       0.050 / 0.060   0.056 / 0.063   0.057 / 0.059
 *     the goal                                       0.045 / 0.045
 *   1 x 4,096        0.030 / 0.035   0.035 / 0.038   0.036 / 0.035
 *
 * What bounds it: a tile of 64 tokens and 64 rows needs 2,176 cycles of tensor cores and 2,430 of shared memory.  Only
 * two tiles fit, and each is held for decoding, scores, softmax and values in sequence.
 *
 * Tried and slower (figures: lab/hopper):
 *   - two producer warpgroups: spilled registers
 *   - roles by product, one group for scores, two for values, one for pages
 *   - page decoding shared by a cluster of two blocks: remote stores take longer than decoding
 *   - loading a page's codes a whole page ahead: 0.408 / 0.786 ms with 104 registers, 0.525 / 1.009 with 88 */
#include <cuda.h>

#include "kernel/cuda/common/mla_state.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/sm90/mla_many_page.cuh"
#include "kernel/cuda/sm90/mla_many_ptx.cuh"

namespace
{

enum { THREADS = 384, BATCH = 4 };
/* Registers per thread of each role: one producer group and two attention groups add up to 504. */
enum { REG_PAGES_BF16 = 40, REG_PAGES_CODES = 88 };
constexpr float LAZY = 6;

struct tensor_maps {
    CUtensorMap latent, rope;
};

/* Pages of the unit that contains page p, less 1.  Units are powers of two and lie at multiples of their size. */
__device__ inline uint32_t unit_mask(uint32_t p)
{
    constexpr uint32_t SHORT = UNITS.n_first * UNITS.first;
    static_assert((UNITS.first & (UNITS.first - 1)) == 0 && (UNITS.rest & (UNITS.rest - 1)) == 0 &&
                  SHORT % UNITS.rest == 0);
    return (p < SHORT ? UNITS.first : UNITS.rest) - 1;
}

/* A group's position: tile n of the block is page p of the sequence, of the block's work `round`, whose pages end at
 * `end`.  end 0: no more work. */
struct many_seq {
    uint32_t round, p, end;
    __device__ bool first() const
    {
        return (p & unit_mask(p)) == 0;
    }
    __device__ bool last() const
    {
        return (~p & unit_mask(p)) == 0 || p + 1 == end;
    }
};

__device__ inline many_work work_at(uint32_t base, uint32_t round)
{
    const uint4 v = ld_shared(base + AT_WORK + round % 8 * 16);
    return { v.x, v.y, v.z, v.w };
}
__device__ inline uint32_t rows_at(uint32_t base, uint32_t round)
{
    return base + AT_ROW + round % 4 * 256;
}
__device__ inline many_seq seq_start(uint32_t base)
{
    const many_work w = work_at(base, 0);
    return { 0, w.page, w.end };
}
__device__ inline many_seq seq_next(const many_seq &s, uint32_t base)
{
    if (s.p + 1 < s.end) return { s.round, s.p + 1, s.end };
    if (s.end == 0) return s;
    const many_work w = work_at(base, s.round + 1);
    return { s.round + 1, w.page, w.end };
}

struct softmax_state { /* of rows g and g + 8 of a warp; l sums the group's own tiles only */
    float m[2], l[2], q_factor[2];
};
struct many_lane_of { /* a thread's coordinates in its group */
    uint32_t tid, w, lane, g, t;
};
__device__ inline many_lane_of lane_at(uint32_t tid_)
{
    const uint32_t tid = here(tid_);
    return { tid, tid / 32, tid % 32, tid % 32 / 4, tid % 4 };
}

/* ---- scores ---- */

/* Issues stage K of a tile's scores: chunks 0 4, then 1 2 5 6, then 3 7 8. */
template <int KIND, uint32_t K>
__device__ __forceinline__ void scores_stage(float (&s)[32], uint32_t base, uint32_t tile)
{
    constexpr bool BF = KIND == KIND_BF16;
    const uint64_t qd = wg_desc(here(base)), kd = wg_desc(tile);
    nb_wg_fence();
#pragma unroll
    for (uint32_t c = 0; c < 9; c++) {
        if ((c == 8 ? 2 : (c % 4 + 1) / 2) != K) continue;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            wg_scores<BF>(s, qd + c * 512 + i * 2, kd + c * 512 + i * 2, c + i != 0);
    }
    nb_wg_commit();
}

/* Turns scores into exponents, moves m and gives the factor of earlier sums (corr).  True: corr may differ from 1 in
 * some row of the warp. */
template <int KIND>
__device__ __forceinline__ bool softmax_top(float (&s)[32], softmax_state &z, float (&corr)[2],
                                            uint32_t token)
{
    constexpr bool SCALED = KIND != KIND_BF16;
    float top[2] = { -INFINITY, -INFINITY };
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float f[2] = { 1, 1 }, c[2] = { 0, 0 };
        if (SCALED) {
            const uint4 v = ld_shared(token + 64 * j);
            f[0] = __uint_as_float(v.x), c[0] = __uint_as_float(v.y);
            f[1] = __uint_as_float(v.z), c[1] = __uint_as_float(v.w);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float &x = s[4 * j + i];
            x = SCALED ? fmaf(x, f[i & 1] * z.q_factor[i / 2], c[i & 1]) : x * z.q_factor[i / 2];
            top[i / 2] = fmaxf(top[i / 2], x);
        }
    }
    bool up = false;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = fmaxf(top[i], __shfl_xor_sync(~0u, top[i], 1));
        top[i] = fmaxf(top[i], __shfl_xor_sync(~0u, top[i], 2));
        const bool own = top[i] > z.m[i] + LAZY || z.m[i] == -INFINITY;
        const float m = own ? fmaxf(ceilf(top[i]), z.m[i]) : z.m[i];
        corr[i] = own ? nb_exp2(z.m[i] - m) : 1;
        if (m == -INFINITY) corr[i] = 1;
        up |= own;
        z.m[i] = m;
        z.l[i] *= corr[i];
    }
    return __any_sync(~0u, up);
}

/* Computes the weights, adds them to l and stores them in the tile's rope-key buffer. */
template <int KIND>
__device__ __forceinline__ void softmax_weights(float (&s)[32], softmax_state &z, uint32_t token,
                                                uint32_t to)
{
    constexpr bool SCALED = KIND != KIND_BF16;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t out[4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int j = 2 * k + h;
            float inv[2] = { 1, 1 };
            if (SCALED) { /* 2^-c */
                const uint4 v = ld_shared(token + 64 * j);
                inv[0] = __uint_as_float(0x7f000000u - v.x),
                inv[1] = __uint_as_float(0x7f000000u - v.z);
            }
            float p[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                p[i] = nb_exp2(s[4 * j + i] - z.m[i / 2]);
                z.l[i / 2] = SCALED ? fmaf(p[i], inv[i & 1], z.l[i / 2]) : z.l[i / 2] + p[i];
            }
            out[2 * h] = KIND == KIND_BF16 ? nb_pack_bf16(p[0], p[1]) : nb_pack_f16(p[0], p[1]);
            out[2 * h + 1] = KIND == KIND_BF16 ? nb_pack_bf16(p[2], p[3]) : nb_pack_f16(p[2], p[3]);
        }
        nb_stmatrix4(to ^ (k * 32), out[0], out[1], out[2], out[3]);
    }
}

/* Index of (part, head) of the state of a row's first unit; UINT32_MAX: no row.  It is computed when a work begins,
 * because at the end of a unit the way to it through memory would hold up both groups. */
__device__ inline uint32_t row_of(const nb_cuda_mla_args &a, const many_work &w, uint32_t row)
{
    const nb_cuda_item &it = a.item[w.item];
    const uint32_t nh = (uint32_t)a.n_head, flat = w.flat - it.row0 * nh + row;
    if (flat >= it.n_q * nh) return UINT32_MAX;
    return (a.part_first[it.row0 + flat / nh] + it.unit0) * nh + flat % nh;
}

/* The index of page p's unit within its work. */
__device__ inline uint32_t unit_in(const many_work &w, uint32_t p)
{
    return (uint32_t)(nb_cuda_unit_of(UNITS, p) - nb_cuda_unit_of(UNITS, w.page));
}

/* The reference m of a unit's state: the next multiple of 32.  References of tiles are whole numbers, so what a state
 * is multiplied with, here and where states are combined, is 1, another power of two, or 0 (mla_state.cuh). */
__device__ inline float state_top(float m)
{
    return nb_mla_state_m(ceilf(m * 0.03125f) * 32);
}

/* End of unit k of a work: writes its m and l (k == 0), or combines them with the work's so far, which are at `top`.
 * sum: of all weights.  rows: of the work (row_of). */
__device__ inline void unit_state(const nb_cuda_mla_args &a, uint32_t k, const softmax_state &z,
                                  const float (&sum)[2], uint32_t ends, uint32_t top, uint32_t rows,
                                  uint32_t tid)
{
    const many_lane_of v = lane_at(tid);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float l = sum[i];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        const float m = state_top(z.m[i]);
        l *= nb_exp2(z.m[i] - m);
        const uint32_t row = (16 * v.w + v.g + 8 * i) * 4;
        if (v.t != 0) continue;
        const float m0 = k > 0 ? ld_float(top + row) : -INFINITY;
        const nb_mla_merge f = nb_mla_merge_of(m0, m);
        const float l2 = nb_mla_merged(f, k > 0 ? ld_float(top + 256 + row) : 0, l);
        st_float(ends + row, m0), st_float(ends + 256 + row, m), st_float(ends + 512 + row, z.m[i]);
        st_float(top + row, f.m), st_float(top + 256 + row, l2);
        const uint32_t at = ld_word(rows + row);
        if (at == UINT32_MAX) continue;
        a.part_m[at] = f.m, a.part_l[at] = l2;
        if (k == 0) continue;
        const size_t empty = at + (size_t)k * a.n_head;
        a.part_m[empty] = -INFINITY, a.part_l[empty] = 0;
    }
}

__device__ inline void load_queries(const many_plan &x, uint32_t flat, uint32_t base)
{
    const unsigned char *q = x.q + (size_t)flat * 128;
    nb_mbar_expect(base + BAR_Q, TILE);
    for (uint32_t c = 0; c < 9; c++)
        nb_bulk_copy(base + c * CHUNK, q + c * x.q_plane, CHUNK, base + BAR_Q);
}

/* ---- values ---- */

/* A thread's part of a row of sums in memory: 4 dims of every second step of 8 columns of the accumulator. */
template <int KIND> struct many_out {
    static constexpr bool PAIRS = KIND == KIND_NVFP4 || KIND == KIND_IF4; /* 1 3, 5 7, 0 2, 4 6 */
    static constexpr uint32_t STEP = many_dim<KIND>(0, 8) - many_dim<KIND>(0, 0);
    /* Steps j and j + 1 of a lane meet in the lane that differs in this bit; `high` lanes take step j + 1. */
    static constexpr uint32_t OTHER = PAIRS ? 2 : 1;
    bool high;
    float *to;
    __device__ many_out(float *row, uint32_t group, uint32_t t)
        : high(t & OTHER), to(row + group * (many_dim<KIND>(4, 0) - PAIRS) +
                              (PAIRS ? t % 2 : t / 2) * 4 + (high ? STEP : 0))
    {
    }
    __device__ float4 *at(int j) const /* j: even */
    {
        return reinterpret_cast<float4 *>(to + many_dim<KIND>(j / 8, 8 * (j % 8)) - PAIRS);
    }
};

/* Multiplies this thread's part of a row. */
template <int KIND> __device__ __forceinline__ void rescale(const many_out<KIND> &out, float by)
{
#pragma unroll
    for (int j0 = 0; j0 < 32; j0 += 2 * BATCH) {
        float4 v[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) v[j] = ld_l2(out.at(j0 + 2 * j));
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            *out.at(j0 + 2 * j) = make_float4(__fmul_rn(v[j].x, by), __fmul_rn(v[j].y, by),
                                              __fmul_rn(v[j].z, by), __fmul_rn(v[j].w, by));
    }
}

/* What a unit's end needs of the state of this thread's rows: the factor of the unit's sums and that of the sums so
 * far. */
struct many_ends {
    float own[2], before[2];
};
__device__ inline many_ends ends_of(uint32_t ends, uint32_t tid, bool before, float scale)
{
    const many_lane_of z = lane_at(tid);
    many_ends e;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t at = ends + (16 * z.w + z.g + 8 * i) * 4;
        const float m = ld_float(at + 256);
        const nb_mla_merge f = nb_mla_merge_of(before ? ld_float(at) : -INFINITY, m);
        e.own[i] = scale * nb_exp2(ld_float(at + 512) - m) * (f.second ? 1 : f.b);
        e.before[i] = f.second ? 1 : f.a;
    }
    return e;
}

/* Epilogue of a unit: writes its sums (first), or adds them to those of the item so far, in memory.  The factors are
 * powers of two and memory adds as fmaf does, so the result has the bits of nb_mla_merged.  Nothing waits for an
 * addition.  group: which half of each 128 dims. */
template <int KIND>
__device__ __forceinline__ void put_values(const nb_cuda_mla_args &a, uint32_t rows,
                                           const float (&o)[128], uint32_t group, bool first,
                                           const many_ends &e, uint32_t tid_)
{
    using out_of = many_out<KIND>;
    const many_lane_of z = lane_at(tid_);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t at = ld_word(rows + (16 * z.w + z.g + 8 * i) * 4);
        const bool row = at != UINT32_MAX;
        const out_of out(a.part_o + (row ? (size_t)at * LORA : 0), group, z.t);
        if (row && e.before[i] != 1) rescale<KIND>(out, e.before[i]); /* seldom; also NaN */
#pragma unroll
        for (int j = 0; j < 32; j += 2) {
            float2 v[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int x = 4 * (j + h) + 2 * i;
                v[h] = make_float2(o[x] * e.own[i], o[x + 1] * e.own[i]);
                if (out_of::PAIRS) {
                    const float y = __shfl_xor_sync(~0u, z.t < 2 ? v[h].y : v[h].x, 2);
                    v[h] = z.t < 2 ? make_float2(y, v[h].x) : make_float2(v[h].y, y);
                }
            }
            const float x = __shfl_xor_sync(~0u, out.high ? v[0].x : v[1].x, out_of::OTHER),
                        y = __shfl_xor_sync(~0u, out.high ? v[0].y : v[1].y, out_of::OTHER);
            const float4 sum = make_float4(out.high ? x : v[0].x, out.high ? y : v[0].y,
                                           out.high ? v[1].x : x, out.high ? v[1].y : y);
            if (row && first) *out.at(j) = sum;
            if (row && !first) red_add4(out.at(j), sum);
        }
    }
}

/* ---- both ---- */

struct many_tile { /* tile n of the block */
    uint32_t ph, at, full, empty, p_full, state, ends, flag, token;
};
__device__ inline many_tile tile_at(uint32_t base, uint32_t n)
{
    const uint32_t b = n & 1;
    return { n >> 1 & 1,
             base + AT_TILE + b * TILE,
             base + BAR_FULL + 40 * b,
             base + BAR_EMPTY + 32 * b,
             base + BAR_P + 8 * b,
             base + AT_STATE + b * 512,
             base + AT_END + n % 4 * 768,
             base + AT_FLAG + b * 16,
             base + AT_TOKEN + b * 512 };
}

/* Issues O (+)= P V of tile t in four parts and returns while they are in flight.  flag: O must be rescaled first.  In
 * that rare case it waits by hand for the products in flight; otherwise the compiler would serialise all products. */
template <int KIND>
__device__ __forceinline__ void add_values(float (&o)[128], const many_seq &q, const many_tile &t,
                                           uint32_t group, const float (&corr)[2], bool flag)
{
    constexpr bool BF = KIND == KIND_BF16;
    const uint32_t tile = here(t.at);
    const int add = !q.first();
    if (flag && add) {
        nb_wg_wait<0>();
#pragma unroll
        for (int i = 0; i < 128; i++) o[i] *= corr[i >> 1 & 1];
    }
    const uint64_t pd = wg_desc(tile + 8 * CHUNK), vd = wg_desc_wide(tile + group * 4 * CHUNK);
    nb_wg_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        wg_values<BF>(o, pd + 2 * k, vd + k * 128, k ? 1 : add);
        nb_wg_commit();
    }
}

/* A warp releases a tile, all four steps of 16 tokens. */
template <int CL>
__device__ __forceinline__ void give(const many_tile &t, uint32_t delta, bool leads)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (leads) mb_arrive_cl<CL>(t.empty + 8 * k, delta);
}

/* Loads the queries of a new work and their factors.  Nothing reads the old ones any more: the previous tile's weights
 * are complete. */
__device__ __forceinline__ void start_work(const nb_cuda_mla_args &a, const many_plan &x,
                                           const many_seq &cur, uint32_t base, uint32_t tid,
                                           softmax_state &z)
{
    const many_work work = work_at(base, cur.round);
    if (cur.p == work.page && tid == 0) load_queries(x, work.flat, base);
    if (cur.p == work.page && tid < ROWS)
        st_word(rows_at(base, cur.round) + 4 * tid, row_of(a, work, tid));
    const uint32_t row = work.flat + 16 * (tid / 32) + tid % 32 / 4;
    z.q_factor[0] = x.q_factor[row], z.q_factor[1] = x.q_factor[row + 8];
    nb_mbar_wait(base + BAR_Q, cur.round & 1);
}

/* Publishes the results of tile t: its weights, the factor of earlier sums, m and, at the end of a unit, its state. */
template <int KIND>
__device__ __forceinline__ void put_weights(const nb_cuda_mla_args &a, const many_tile &t,
                                            const many_seq &cur, float (&s)[32], softmax_state &z,
                                            const float (&corr)[2], bool flag, uint32_t base,
                                            uint32_t tid)
{
    const uint32_t w = tid / 32, lane = tid % 32, at = 16 * w + lane % 16;
    const uint32_t row = (16 * w + lane / 4) * 4; /* byte offset in an array of floats */
    softmax_weights<KIND>(s, z, t.token + 16 * (lane % 4),
                          t.at + 8 * CHUNK + at * 128 + ((lane / 16) ^ (at % 8)) * 16);
    if (lane % 4 == 0) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            st_float(t.state + row + 32 * i, corr[i]);
            st_float(t.state + 256 + row + 32 * i, z.m[i]);
        }
    }
    if (lane == 0) st_float(t.flag + 4 * w, flag ? 1 : 0);
    const bool end = cur.last();
    if (!end && many_seq{ cur.round, cur.p + 1, cur.end }.last()) {
        st_float(base + AT_SUM + 4 * tid, z.l[0]);
        st_float(base + AT_SUM + 512 + 4 * tid, z.l[1]);
    }
    if (end) {
        float sum[2] = { z.l[0], z.l[1] };
        if (!cur.first()) {
            sum[0] += ld_float(base + AT_SUM + 4 * tid) * corr[0];
            sum[1] += ld_float(base + AT_SUM + 512 + 4 * tid) * corr[1];
        }
        unit_state(a, unit_in(work_at(base, cur.round), cur.p), z, sum, t.ends, base + AT_TOP,
                   rows_at(base, cur.round), tid);
    }
    nb_fence_async();
    __syncwarp();
    if (lane == 0) nb_mbar_arrive(t.p_full);
}

/* Computes the values of the previous tile u, then the scores of tile t except their first stage, which is already in
 * flight.  more: tile t exists.  If it does not, the same products run
 * on stale data and the result is ignored: the compiler would wait for products in flight across a branch. */
template <int KIND, int CL>
__device__ __forceinline__ void values_then_scores(float (&o)[128], float (&s)[32],
                                                   const many_tile &u, const many_seq &pre,
                                                   const many_tile &t, bool more, bool leads,
                                                   uint32_t base, uint32_t group,
                                                   const float (&corr)[2], bool flag,
                                                   uint32_t delta)
{
    add_values<KIND>(o, pre, u, group, corr, flag);
    nb_mbar_wait(t.full + 8, t.ph ^ !more);
    scores_stage<KIND, 1>(s, base, t.at);
    nb_wg_wait<1>();
    give<CL>(u, delta, leads);
    nb_mbar_wait(t.full + 16, t.ph ^ !more);
    scores_stage<KIND, 2>(s, base, t.at);
    nb_wg_wait<0>();
}

/* Computes the values of tile t and releases it 16 tokens at a time. */
template <int KIND, int CL>
__device__ __forceinline__ void values_of(float (&o)[128], const many_tile &t, const many_seq &cur,
                                          uint32_t group, const float (&corr)[2], bool flag,
                                          bool leads, uint32_t delta)
{
    add_values<KIND>(o, cur, t, group, corr, flag);
    nb_wg_wait<3>();
    if (leads) mb_arrive_cl<CL>(t.empty, delta);
    nb_wg_wait<2>();
    if (leads) mb_arrive_cl<CL>(t.empty + 8, delta);
    nb_wg_wait<1>();
    if (leads) mb_arrive_cl<CL>(t.empty + 16, delta);
    nb_wg_wait<0>();
    if (leads) mb_arrive_cl<CL>(t.empty + 24, delta);
}

/* Passes on the sums of the unit whose last page is tile t. */
template <int KIND>
__device__ __forceinline__ void end_unit(const nb_cuda_mla_args &a, const many_plan &x,
                                         const many_seq &q, const many_tile &t,
                                         const float (&o)[128], uint32_t base, uint32_t group,
                                         uint32_t tid)
{
    const bool first = unit_in(work_at(base, q.round), q.p) == 0;
    const many_ends e = ends_of(t.ends, tid, !first, x.v_scale);
    put_values<KIND>(a, rows_at(base, q.round), o, group, first, e, tid);
}

/* An attention group: scores of every second tile, and half of the value dims of every tile. */
template <int KIND, int CL>
__device__ __forceinline__ void attend(const nb_cuda_mla_args &a, const many_plan &x, uint32_t base,
                                       uint32_t tid, uint32_t group_)
{
    const uint32_t delta = CL > 1 ? peer_delta(base) : 0;
    const uint32_t group = here(group_), w = tid / 32, lane = tid % 32;
    const uint32_t row = (16 * w + lane / 4) * 4; /* byte offset in an array of floats */
    float s[32], o[128];
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] = 0;
#pragma unroll
    for (int i = 0; i < 128; i++) o[i] = 0;
    softmax_state z = {};
    many_seq cur = {};
    uint32_t round = ~0u; /* the work whose query factors are loaded */
    for (uint32_t n = group;; n += 2) {
        const many_tile t = tile_at(base, n), u = tile_at(base, n - 1);
        many_seq pre = {};
        if (n > 0) {
            nb_mbar_wait(u.full, u.ph);
            pre = n == 1 ? seq_start(base) : seq_next(cur, base);
            if (pre.end == 0) break;
        }
        if (n == 0 || pre.p + 1 == pre.end) nb_mbar_wait(t.full, t.ph); /* its work is known */
        cur = n == 0 ? seq_start(base) : seq_next(pre, base);
        const bool more = cur.end != 0, end = n > 0 && pre.last();
        if (more && cur.round != round) {
            round = cur.round;
            if (n > 0) nb_mbar_wait(u.p_full, u.ph);
            start_work(a, x, cur, base, tid, z);
        }
        nb_mbar_wait(t.full, t.ph);
        scores_stage<KIND, 0>(s, base, t.at); /* overlaps the other group's softmax */
        if (n > 0) nb_mbar_wait(u.p_full, u.ph);
        float corr[2] = { ld_float(u.state + row), ld_float(u.state + row + 32) };
        bool flag = ld_float(u.flag + 4 * w) != 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            z.m[i] = ld_float(u.state + 256 + row + 32 * i);
            z.l[i] = pre.first() ? 0 : z.l[i] * corr[i];
        }
        values_then_scores<KIND, CL>(o, s, u, pre, t, more, lane == 0 && n > 0, base, group, corr,
                                     flag, delta);
        if (more) {
            if (cur.first()) {
#pragma unroll
                for (int i = 0; i < 2; i++) z.m[i] = -INFINITY, z.l[i] = 0;
            }
            flag = softmax_top<KIND>(s, z, corr, t.token + 16 * (lane % 4));
            /* the whole group has read the rope key */
            nb_bar_sync(1 + group, 128);
            put_weights<KIND>(a, t, cur, s, z, corr, flag, base, tid);
        }
        /* The other group waits for these weights, so they come first. */
        if (end) end_unit<KIND>(a, x, pre, u, o, base, group, tid);
        if (!more) break;
        nb_mbar_wait(t.p_full, t.ph);
        values_of<KIND, CL>(o, t, cur, group, corr, flag, lane == 0, delta);
        if (cur.last()) end_unit<KIND>(a, x, cur, t, o, base, group, tid);
    }
}

template <int KIND, int CL>
__global__ void __cluster_dims__(CL, 1, 1) __launch_bounds__(THREADS, 1)
    mla_many(NB_PARAM nb_cuda_mla_args a, NB_PARAM many_plan x, NB_PARAM tensor_maps maps)
{
    extern __shared__ __align__(1024) unsigned char mla_many_shared[];
    nb_grid_next(); /* lets mla_tail start while this kernel runs */
    const uint32_t base = here(nb_smem(mla_many_shared)), tid = here(threadIdx.x % 128);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < 10; i++)
            nb_mbar_init(base + BAR_FULL + 8 * i, KIND == KIND_BF16 ? 1 : 4);
        for (uint32_t i = 0; i < 8; i++) nb_mbar_init(base + BAR_EMPTY + 8 * i, 8 * CL);
        nb_mbar_init(base + BAR_P, 4), nb_mbar_init(base + BAR_P + 8, 4);
        nb_mbar_init(base + BAR_Q, 1);
        st_float(base + AT_ZERO, 0);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (CL > 1)
        nb_cluster_sync();
    else
        __syncthreads();
    constexpr int REG_PAGES = KIND == KIND_BF16 ? REG_PAGES_BF16 : REG_PAGES_CODES;
    constexpr int REG_ATTEND = (504 - REG_PAGES) / 16 * 8;
    const uint32_t role = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (role == 0) {
        nb_fewer_registers<REG_PAGES>();
        if (KIND == KIND_BF16)
            produce_bf16<CL>(a, x, base, tid, &maps.latent, &maps.rope);
        else
            produce<KIND>(a, x, base, tid);
    } else {
        nb_more_registers<REG_ATTEND>();
        attend<KIND, CL>(a, x, base, tid, role - 1);
    }
    if (CL > 1) nb_cluster_sync(); /* the other block may still arrive at these barriers */
}

/* ---- queries ---- */

/* Packs the queries, a warp per row (query, head).  s_latent, s_rope: factors of the two parts (fixed scales). */
template <int KIND>
__global__ void __launch_bounds__(256)
    many_pack(NB_PARAM nb_cuda_mla_args a, unsigned char *out, size_t plane, float *factor,
              float s_latent, float s_rope)
{
    const size_t flat = (size_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (flat >= a.n_row * a.n_head) return;
    const uint32_t lane = threadIdx.x % 32;
    const bool wide = (a.q_stride | a.q_head) % 4 == 0;
    const float *q = a.q + flat / a.n_head * a.q_stride + flat % a.n_head * a.q_head;
    float v[3][8], top = 0;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const uint32_t piece = lane + 32 * i, c = piece / 8, col = piece % 8;
        if (piece >= 72) break;
        uint32_t d = LORA + 8 * col;
        if (c < 8) d = many_dim<KIND>(c, 8 * col) & ~7u;
        if (wide) {
            const float4 x = *reinterpret_cast<const float4 *>(q + d);
            const float4 y = *reinterpret_cast<const float4 *>(q + d + 4);
            v[i][0] = x.x, v[i][1] = x.y, v[i][2] = x.z, v[i][3] = x.w;
            v[i][4] = y.x, v[i][5] = y.y, v[i][6] = y.z, v[i][7] = y.w;
        } else {
#pragma unroll
            for (int e = 0; e < 8; e++) v[i][e] = q[d + e];
        }
#pragma unroll
        for (int e = 0; e < 8; e++) {
            v[i][e] *= c < 8 ? s_latent : s_rope;
            top = fmaxf(top, fabsf(v[i][e]));
        }
    }
#pragma unroll
    for (int d = 1; d < 32; d *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
    /* times 2^up: the largest value becomes 2^9 .. 2^10 */
    const int e = (int)(__float_as_uint(top) >> 23);
    int up = e == 0 || e == 255 ? 0 : 136 - e;
    up = up > 120 ? 120 : up < -120 ? -120 : up;
    const float mul = __uint_as_float((uint32_t)(127 + up) << 23);
    if (lane == 0)
        factor[flat] = a.scale * 1.44269504088896341f * __uint_as_float((uint32_t)(127 - up) << 23);
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const uint32_t piece = lane + 32 * i, c = piece / 8, col = piece % 8;
        if (piece >= 72) break;
        uint32_t w[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float x = v[i][2 * k], y = v[i][2 * k + 1];
            if (c < 8 && (KIND == KIND_NVFP4 || KIND == KIND_IF4))
                x = v[i][4 * k % 8 + (k < 2)], y = v[i][4 * k % 8 + 2 + (k < 2)];
            x *= mul, y *= mul;
            w[k] = KIND == KIND_BF16 ? nb_pack_bf16(x, y) : nb_pack_f16(x, y);
        }
        *reinterpret_cast<uint4 *>(out + c * plane + flat * 128 + (col ^ flat % 8) * 16) =
            make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* ---- host ---- */

typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Tensor map of the pages, in boxes of 64 tokens x 64 values. */
bool make_map(encode_fn *fn, CUtensorMap *map, const nb_cuda_cache &k, const nb_record_seg &s)
{
    const cuuint64_t dim[3] = { s.dim, 64, (cuuint64_t)1 << 26 };
    const cuuint64_t stride[2] = { s.code_stride, k.block_bytes };
    const cuuint32_t box[3] = { 64, 64, 1 }, one[3] = { 1, 1, 1 };
    return fn(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, k.pool + k.layer_off + s.code_off, dim,
              stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
              CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

void make_maps(nb_cuda *g, const nb_cuda_cache &k, tensor_maps *m)
{
    void *fn = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000,
                                                           cudaEnableDefault, &found);
    if (e != cudaSuccess || !fn || !make_map((encode_fn *)fn, &m->latent, k, k.record.seg[0]) ||
        !make_map((encode_fn *)fn, &m->rope, k, k.record.seg[1]))
        nb_cuda_check(g, e != cudaSuccess ? e : cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
}

size_t flat_rows(size_t n_head, size_t n_row)
{
    return (n_row * n_head + ROWS + 7) / 8 * 8;
}

template <int KIND> void launch(nb_cuda *g, const nb_cuda_mla_args *a)
{
    const nb_record &r = a->cache.record;
    const size_t n = flat_rows(a->n_head, a->n_row), rows = a->n_row * a->n_head;
    unsigned char *q = (unsigned char *)a->scratch;
    float *factor = (float *)(q + 9 * n * 128);
    many_plan x = {};
    x.q = q, x.q_factor = factor, x.q_plane = n * 128;
    x.code_off = (uint32_t)r.seg[0].code_off, x.scale_off = (uint32_t)r.seg[0].scale_off;
    x.rope_off = (uint32_t)r.seg[1].code_off, x.outer_off = (uint32_t)r.seg[0].outer_off;
    x.rope_outer_off = (uint32_t)r.seg[1].outer_off, x.page_bytes = (uint32_t)r.page_bytes;
    x.rope_int8 = r.seg[1].fmt == NB_SEG_INT8;
    float s[2];
    for (int i = 0; i < 2; i++) s[i] = r.seg[i].fixed_scale != 0 ? r.seg[i].fixed_scale : 1;
    if (KIND == KIND_NVFP4) s[0] *= 128; /* tiles have the values times 2^-7 */
    x.v_scale = s[0];
    tensor_maps maps = {};
    if (KIND == KIND_BF16) make_maps(g, a->cache, &maps);
    NB_LAUNCH(g, (many_pack<KIND>), (unsigned)((rows + 7) / 8), 256, 0, *a, q, n * 128, factor,
              s[0], s[1]);
    const size_t most = a->max_item * ((NB_CUDA_QUERY_MAX * a->n_head + ROWS - 1) / ROWS);
    const unsigned blocks = (unsigned)(most < (size_t)g->n_sm ? most : (size_t)g->n_sm);
    if constexpr (KIND == KIND_BF16) {
        if (a->n_head % (2 * ROWS) == 0) {
            NB_SHARED_LIMIT(g, (mla_many<KIND, 2>), SMEM);
            NB_LAUNCH(g, (mla_many<KIND, 2>), blocks / 2 * 2, THREADS, SMEM, *a, x, maps);
            return;
        }
    }
    NB_SHARED_LIMIT(g, (mla_many<KIND, 1>), SMEM);
    NB_LAUNCH(g, (mla_many<KIND, 1>), blocks, THREADS, SMEM, *a, x, maps);
}

} // namespace

bool nb_cuda_mla_many_can(const nb_record *r, size_t n_head)
{
    if (n_head == 0 || n_head % 8 || r->n_seg != 2) return false;
    const nb_record_seg *s = r->seg;
    if (s[0].dim != LORA || s[1].dim != ROPE || s[0].n_vec != 1 || s[1].n_vec != 1) return false;
    if (s[0].n_outlier || s[1].n_outlier || r->page_bytes % 16) return false;
    if (s[0].fmt == NB_SEG_BF16) return s[1].fmt == NB_SEG_BF16;
    if (s[1].fmt != NB_SEG_INT8 && s[1].fmt != NB_SEG_E4M3) return false;
    return s[0].fmt == NB_SEG_E4M3 || s[0].fmt == NB_SEG_NVFP4 || s[0].fmt == NB_SEG_IF4;
}

size_t nb_cuda_mla_many_scratch(const nb_record *r, size_t n_head, size_t n_row)
{
    (void)r;
    return flat_rows(n_head, n_row) * (9 * 128 + sizeof(float));
}

void nb_cuda_mla_many(nb_cuda *g, const nb_cuda_mla_args *a)
{
    if (a->max_item == 0 || a->n_row == 0) return;
    switch (a->cache.record.seg[0].fmt) {
    case NB_SEG_BF16: launch<KIND_BF16>(g, a); break;
    case NB_SEG_E4M3: launch<KIND_FP8>(g, a); break;
    case NB_SEG_NVFP4: launch<KIND_NVFP4>(g, a); break;
    default: launch<KIND_IF4>(g, a); break;
    }
}
