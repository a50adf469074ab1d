/* mla_combine.cu - combines the partial states of absorbed attention in order of position, then divides by l.
 *
 * Computes, for each (row, head), (m, l, o) = state 0 + state 1 + ..., then y = o / l; mla_state.cuh defines
 * the addition.  A state comes from a unit: a fixed range of pages whose attention is one partial state.  The units of
 * a super (a fixed group of units combined in order; api/nb_cuda_units.h) are combined first, then the supers.  The
 * last state is that of the query's own page.
 *
 * The order makes this a chain, but m after each state is just the largest so far.  So a warp computes the factors of
 * 32 states at once (prefix maxima within supers, and over supers) and stores them in shared memory.  What remains is
 * one fused step per state and element, whose loads depend on nothing.  No warp waits for another.
 *
 * Three shapes of the same arithmetic:
 *   mla_combine_wide  many (row, head): one warp each, 16 dimensions per lane, so that all fit on the device at
 *                     once; empty states (of folded units) are skipped before anything of theirs is read
 *   mla_combine       fewer: one dimension per thread; the first 32 states' o are in flight before the first factor is
 *                     known; bound by latency
 *   mla_combine_long  one or two queries of 16 heads, or one of 64: 8, or 2, batches of 32 states in parallel, each
 *                     reduced to its supers' states in shared memory, then the chain of supers; up to 32 states as
 *                     mla_combine
 *
 * Bound by reading the states: 4 (lora + 2) bytes for each state of a (row, head).
 * H100, 16 heads, ncu with cold caches (us):
 *   128 queries of 8 states, 7 of them empty    7.3   8.8 with four dimensions per lane, four warps per row
 *   1 query of 132 states                      10.3   18.0 with mla_combine
 *   1 query of 8 states                         5.9
 * Slower: a block for each (row, head) with barriers and without compaction, everywhere; the long form with 4 queries
 * of 132 states, 99 of them empty (two rounds of 4 batches). */
#include <float.h>

#include "kernel/cuda/common/mla_state.cuh"
#include "kernel/cuda/common/ops.cuh"

namespace
{

enum { WARPS = 4, BATCH = 32 };

/* The factors of one state.  a, b: of the super's sums so far and of the state; a < 0: it is the super's first.
 * top_a, top_b: after this state, of the supers so far and of this super; top_a < 0: it is the first super. */
struct step {
    float a, b, l, top_a, top_b;
    float m;     /* m of the super so far */
    uint32_t at; /* index in the batch, + END on the super's last that counts; UINT32_MAX: empty */
};
constexpr uint32_t END = 1u << 16;

__device__ inline float joined(float a, float b, float x0, float x1)
{
    const float x = __fmaf_rn(x1, b, __fmul_rn(x0, a));
    return a < 0 ? x1 : x;
}

/* m and l of a batch's states, one per lane; lanes from n on are empty.  A batch starts with a super, because the
 * number of units in a super divides 32. */
struct ends {
    float m, l;
};

__device__ inline ends load_ends(const nb_cuda_mla_args &a, size_t first, uint32_t n, size_t head)
{
    const uint32_t lane = threadIdx.x % 32;
    const size_t at = (first + lane) * a.n_head + head;
    ends e = { -INFINITY, 0 };
    if (lane < n) e.m = a.part_m[at], e.l = a.part_l[at];
    return e;
}

/* The maximum over the lanes up to this one that are in the same group. */
__device__ inline float prefix_max(float x, uint32_t group)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int b = 1; b < 32; b *= 2) {
        const float other = __shfl_up_sync(~0u, x, b);
        const uint32_t its = __shfl_up_sync(~0u, group, b);
        if (lane >= (uint32_t)b && its == group) x = fmaxf(other, x);
    }
    return x;
}

/* Computes the factors of n <= 32 states that follow the states that gave m.  COMPACT leaves out empty states; without
 * it they have at = UINT32_MAX.  super: of this lane's state.  Returns the number of steps. */
template <bool COMPACT>
__device__ uint32_t plan(const ends &e, uint32_t n, uint32_t super, float &m, step *f)
{
    const uint32_t lane = threadIdx.x % 32;
    const float own = e.m;
    const float top = prefix_max(own != own ? -FLT_MAX : own, super); /* NaN is not empty */
    const float left = __shfl_up_sync(~0u, top, 1);
    const uint32_t left_super = __shfl_up_sync(~0u, super, 1);
    const nb_mla_merge g = nb_mla_merge_of(lane > 0 && left_super == super ? left : -INFINITY, own);
    const unsigned some = __ballot_sync(~0u, !g.first);
    const uint32_t next_super = __shfl_down_sync(~0u, super, 1);
    const unsigned borders = __ballot_sync(~0u, lane == 31 || next_super != super);
    /* end: the last lane of the super */
    const uint32_t end = lane + (uint32_t)__ffs((int)(borders >> lane)) - 1;
    const bool last = !g.first && (some & (0xfffffffeu << lane) & (0xffffffffu >> (31 - end))) == 0;
    const float sum = prefix_max(last ? top : -INFINITY, 0);
    float before = __shfl_up_sync(~0u, sum, 1);
    before = lane == 0 ? m : fmaxf(m, before);
    const nb_mla_merge h = nb_mla_merge_of(before, top);
    const uint32_t place = COMPACT ? (uint32_t)__popc(some & ((1u << lane) - 1)) : lane;
    __syncwarp();
    if (!g.first)
        f[place] = { g.second ? -1.0f : g.a, g.b, e.l, h.second ? -1.0f : h.a, h.b, top,
                     lane | (last ? END : 0) };
    else if (!COMPACT)
        f[place].at = UINT32_MAX;
    __syncwarp();
    m = fmaxf(m, __shfl_sync(~0u, sum, 31));
    return COMPACT ? (uint32_t)__popc(some) : n;
}

/* A thread's dimensions: one, or up to 16 (four of every 128). */
template <int WIDTH> struct vec {
    float v[WIDTH];
};

/* left: number of dimensions from p on. */
template <int WIDTH> __device__ inline vec<WIDTH> load(const float *p, uint32_t left)
{
    vec<WIDTH> x = {};
    if constexpr (WIDTH == 1) {
        x.v[0] = *p;
    } else {
#pragma unroll
        for (uint32_t q = 0; q < WIDTH / 4; q++) {
            if (128 * q >= left) continue;
            const float4 y = *reinterpret_cast<const float4 *>(p + 128 * q);
            x.v[4 * q] = y.x, x.v[4 * q + 1] = y.y, x.v[4 * q + 2] = y.z, x.v[4 * q + 3] = y.w;
        }
    }
    return x;
}

__device__ inline void put4(const nb_cuda_rows &y, size_t at, float *v)
{
    if (y.f) *reinterpret_cast<float4 *>(y.f + at) = make_float4(v[0], v[1], v[2], v[3]);
    if (!y.hi) return;
    const uint2 h = make_uint2(nb_pack_bf16(v[0], v[1]), nb_pack_bf16(v[2], v[3]));
    *reinterpret_cast<uint2 *>(y.hi + at) = h;
    if (!y.lo) return;
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] -= nb_bf16_float((uint16_t)((k < 2 ? h.x : h.y) >> (16 * (k & 1))));
    *reinterpret_cast<uint2 *>(y.lo + at) =
        make_uint2(nb_pack_bf16(v[0], v[1]), nb_pack_bf16(v[2], v[3]));
}

template <int WIDTH>
__device__ inline void put(const nb_cuda_rows &y, size_t at, vec<WIDTH> &o, uint32_t left)
{
    if constexpr (WIDTH == 1) {
        nb_put(y, at, o.v[0]);
    } else {
#pragma unroll
        for (uint32_t q = 0; q < WIDTH / 4; q++)
            if (128 * q < left) put4(y, at + 128 * q, o.v + 4 * q);
    }
}

/* Combines the n states of a (row, head) from `first` on, in order, and writes the result: WIDTH dimensions per thread
 * from c on, with AHEAD states in flight. */
template <int WIDTH, int AHEAD, bool COMPACT>
__device__ inline void join_chain(const nb_cuda_mla_args &a, size_t first, uint32_t n, size_t row,
                                  size_t head, uint32_t c, step *f)
{
    const size_t nh = a.n_head;
    const bool here = c < a.lora;
    float m = -INFINITY, l = 0, super_l = 0;
    vec<WIDTH> o = {}, super_o = {};
    ends e = load_ends(a, first, n, head);
    for (uint32_t i0 = 0; i0 < n; i0 += BATCH) {
        const uint32_t k = n - i0 < BATCH ? n - i0 : (uint32_t)BATCH;
        const float *from = a.part_o + ((first + i0) * nh + head) * a.lora + c;
        const size_t stride = nh * a.lora;
        vec<WIDTH> x[AHEAD];
        uint32_t n_step = k;
        const uint32_t state = i0 + threadIdx.x % 32; /* the last one is the own page's */
        const uint32_t super =
            state + 1 < n ? nb_cuda_super_of(a.units, state) : UINT32_MAX - (state + 1 > n);
        const bool whole = !COMPACT && i0 == 0;
        if (whole) {
#pragma unroll
            for (uint32_t j = 0; j < AHEAD; j++) {
                x[j] = {};
                if (j < k && here) x[j] = load<WIDTH>(from + j * stride, a.lora - c);
            }
            n_step = plan<false>(e, k, super, m, f);
        } else {
            n_step = plan<true>(e, k, super, m, f);
        }
        if (n - i0 > BATCH) e = load_ends(a, first + i0 + BATCH, n - i0 - BATCH, head);
        for (uint32_t i1 = 0; i1 < n_step; i1 += AHEAD) {
            if (!whole) {
#pragma unroll
                for (uint32_t j = 0; j < AHEAD; j++) {
                    x[j] = {};
                    if (i1 + j < n_step && here)
                        x[j] = load<WIDTH>(from + (f[i1 + j].at & (END - 1)) * stride, a.lora - c);
                }
            }
#pragma unroll
            for (uint32_t j = 0; j < AHEAD; j++) {
                if (i1 + j >= n_step) break;
                const step g = f[i1 + j];
                const bool some = g.at != UINT32_MAX, top = some && (g.at & END);
                const float sl = joined(g.a, g.b, super_l, g.l);
                super_l = some ? sl : super_l;
                const float tl = joined(g.top_a, g.top_b, l, super_l);
                l = top ? tl : l;
#pragma unroll
                for (int d = 0; d < WIDTH; d++) {
                    const float so = joined(g.a, g.b, super_o.v[d], x[j].v[d]);
                    super_o.v[d] = some ? so : super_o.v[d];
                    const float to = joined(g.top_a, g.top_b, o.v[d], super_o.v[d]);
                    o.v[d] = top ? to : o.v[d];
                }
            }
        }
    }
    if (!here) return;
    const float inv = n ? 1 / l : 0;
#pragma unroll
    for (int d = 0; d < WIDTH; d++) o.v[d] = n ? o.v[d] * inv : 0;
    put<WIDTH>(a.y, row * a.y.stride + head * a.lora + c, o, a.lora - c);
}

__global__ void __launch_bounds__(64) mla_combine(NB_PARAM nb_cuda_mla_args a)
{
    __shared__ step steps[2][BATCH];
    const size_t nh = a.n_head, row = blockIdx.x / nh, head = blockIdx.x % nh;
    const uint32_t c = blockIdx.y * 64 + threadIdx.x;
    nb_grid_next();
    const size_t first = a.part_first[row]; /* tables are complete before the step's first kernel, or by the join before this one (DSA) */
    const uint32_t end = a.part_first[row + 1], chunk = a.row_chunk[row];
    nb_grid_wait();
    if (blockIdx.y * 64 + threadIdx.x / 32 * 32 >= a.lora) return;
    const uint32_t n = chunk == UINT32_MAX ? 0 : end - (uint32_t)first;
    join_chain<1, BATCH, false>(a, first, n, row, head, c, steps[threadIdx.x / 32]);
}

/* Many (row, head): one warp each. */
__global__ void __launch_bounds__(32 * WARPS) mla_combine_wide(NB_PARAM nb_cuda_mla_args a)
{
    __shared__ step steps[WARPS][BATCH];
    const size_t nh = a.n_head, at = (size_t)blockIdx.x * WARPS + threadIdx.x / 32, row = at / nh;
    nb_grid_next();
    const bool there = row < a.n_row;
    const size_t first = there ? a.part_first[row] : 0;
    const uint32_t end = there ? a.part_first[row + 1] : 0,
                   chunk = there ? a.row_chunk[row] : UINT32_MAX;
    nb_grid_wait();
    if (!there) return;
    const uint32_t n = chunk == UINT32_MAX ? 0 : end - (uint32_t)first;
    join_chain<16, 2, true>(a, first, n, row, at % nh, blockIdx.y * 512 + threadIdx.x % 32 * 4,
                            steps[threadIdx.x / 32]);
}

/* The states of the supers in a round of GROUPS batches, [super of the round]. */
enum { DIMS = 64, SUPERS = 9 /* per batch, with the own page */ };
template <int GROUPS> struct supers {
    float m[GROUPS * SUPERS], l[GROUPS * SUPERS], o[GROUPS * SUPERS][DIMS];
};

/* Reduces states [i0, i0 + 32) of n to their supers' states in `to`.  Slot 0 is super `super0` of the row; the last
 * slot, n_slot - 1, is the own page's if the round includes it.  Called by two warps, one dimension per thread. */
template <int GROUPS>
__device__ void join_batch(const nb_cuda_mla_args &a, size_t first, uint32_t i0, uint32_t n,
                           size_t head, uint32_t c, uint32_t super0, uint32_t n_slot, step *f,
                           supers<GROUPS> &to)
{
    const uint32_t lane = threadIdx.x % 32, d = threadIdx.x % DIMS;
    const uint32_t k = n > i0 ? (n - i0 < BATCH ? n - i0 : (uint32_t)BATCH) : 0;
    if (k == 0) return;
    const ends e = load_ends(a, first + i0, k, head);
    const unsigned some = __ballot_sync(~0u, e.m != -INFINITY);
    const float *from = a.part_o + ((first + i0) * a.n_head + head) * a.lora + c;
    float x[BATCH];
#pragma unroll
    for (uint32_t j = 0; j < BATCH; j++) {
        x[j] = 0;
        if ((some >> j & 1) && c < a.lora) x[j] = from[j * a.n_head * a.lora];
    }
    const uint32_t state = i0 + lane;
    const uint32_t slot = state + 1 < n    ? nb_cuda_super_of(a.units, state) - super0
                          : state + 1 == n ? n_slot - 1
                                           : UINT32_MAX;
    if (lane < k && d < 32) to.m[slot] = -INFINITY; /* in case all states of the super are empty */
    float m = -INFINITY, l = 0, o = 0;
    plan<false>(e, k, slot, m, f);
#pragma unroll
    for (uint32_t j = 0; j < BATCH; j++) {
        const uint32_t at = __shfl_sync(~0u, slot, (int)j);
        if (j >= k || !(some >> j & 1)) continue;
        const step g = f[j];
        l = joined(g.a, g.b, l, g.l);
        o = joined(g.a, g.b, o, x[j]);
        if (!(g.at & END)) continue;
        to.o[at][d] = o;
        if (d == 0) to.m[at] = g.m, to.l[at] = l;
    }
}

/* Few rows with many states: the batches of a round in parallel, then the chain of their supers. */
template <int GROUPS>
__global__ void __launch_bounds__(DIMS *GROUPS, GROUPS == 2 ? 6 : 2)
    mla_combine_long(NB_PARAM nb_cuda_mla_args a)
{
    __shared__ step steps[2 * GROUPS][BATCH];
    __shared__ supers<GROUPS> s;
    const size_t nh = a.n_head, row = blockIdx.x / nh, head = blockIdx.x % nh;
    const uint32_t group = threadIdx.x / DIMS, d = threadIdx.x % DIMS, c = blockIdx.y * DIMS + d,
                   lane = threadIdx.x % 32;
    step *f = steps[threadIdx.x / 32];
    nb_grid_next();
    const size_t first = a.part_first[row];
    const uint32_t end = a.part_first[row + 1], chunk = a.row_chunk[row];
    nb_grid_wait();
    const uint32_t n = chunk == UINT32_MAX ? 0 : end - (uint32_t)first;
    if (n <= BATCH) {
        if (group == 0) join_chain<1, BATCH, false>(a, first, n, row, head, c, f);
        return;
    }
    vec<1> o = {};
    float m = -INFINITY, l = 0;
    for (uint32_t i0 = 0; i0 < n; i0 += GROUPS * BATCH) {
        const bool own = n - i0 <= GROUPS * BATCH; /* the round includes the own page's state */
        const uint32_t past = own ? n - 1 : i0 + GROUPS * BATCH; /* end of the round's units */
        const uint32_t super0 = nb_cuda_super_of(a.units, i0);
        const uint32_t n_slot =
            (past > i0 ? nb_cuda_super_of(a.units, past - 1) - super0 + 1 : 0) + own;
        if (i0 > 0) __syncthreads(); /* the previous supers have been read */
        join_batch(a, first, i0 + group * BATCH, n, head, c, super0, n_slot, f, s);
        __syncthreads();
        if (group > 0) continue;
        for (uint32_t s0 = 0; s0 < n_slot; s0 += BATCH) {
            const uint32_t k = n_slot - s0 < BATCH ? n_slot - s0 : (uint32_t)BATCH;
            ends e = { -INFINITY, 0 };
            if (lane < k) e.m = s.m[s0 + lane], e.l = s.l[s0 + lane];
            plan<false>(e, k, lane, m, f);
            for (uint32_t j = 0; j < k; j++) {
                const step g = f[j];
                if (g.at == UINT32_MAX) continue;
                l = joined(g.top_a, g.top_b, l, g.l);
                o.v[0] = joined(g.top_a, g.top_b, o.v[0], s.o[s0 + j][d]);
            }
        }
    }
    if (group > 0 || c >= a.lora) return;
    o.v[0] *= 1 / l;
    nb_put(a.y, row * a.y.stride + head * a.lora + c, o.v[0]);
}

} // namespace

void nb_cuda_mla_combine(nb_cuda *g, const nb_cuda_mla_args *a)
{
    const size_t n = a->n_row * a->n_head;
    if (n == 0) return;
    const bool supers = a->lora >= 2 * DIMS &&
                        (BATCH * a->units.rest + a->units.super - 1) / a->units.super < SUPERS;
    if (supers && n * a->lora <= 256 * (size_t)g->n_sm) {
        const dim3 grid((unsigned)n, (unsigned)((a->lora + DIMS - 1) / DIMS));
        if (n * a->lora <= 128 * (size_t)g->n_sm)
            NB_LAUNCH_EARLY(g, (mla_combine_long<8>), grid, DIMS * 8, 0, *a);
        else
            NB_LAUNCH_EARLY(g, (mla_combine_long<2>), grid, DIMS * 2, 0, *a);
    } else if (a->lora % 4 == 0 && n * a->lora >= 2048 * (size_t)g->n_sm) {
        const dim3 grid((unsigned)((n + WARPS - 1) / WARPS), (unsigned)((a->lora + 511) / 512));
        NB_LAUNCH_EARLY(g, mla_combine_wide, grid, 32 * WARPS, 0, *a);
    } else {
        const dim3 grid((unsigned)n, (unsigned)((a->lora + 63) / 64));
        NB_LAUNCH_EARLY(g, mla_combine, grid, 64, 0, *a);
    }
}
