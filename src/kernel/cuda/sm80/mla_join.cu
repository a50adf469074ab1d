/* mla_join.cu - states of absorbed attention joined in order of position, and divided by l.
 *
 * Joining is a chain by definition (mla_state.cuh), of the units of a super and then of the supers
 * (nb_cuda_units.h), but m after each state is the largest so far: a warp finds the factors of 32 states
 * at once (prefix maxima within supers, and over them) and puts them into shared memory.
 * What is left is one fused step a state and element, whose loads wait for nothing.  No warp waits
 * for another.
 *
 * Two shapes of the same arithmetic.  WIDE, for many (row, head): 4 dimensions a thread, so that all
 * rows are on the device at once; empty states (of folded units) are left out before anything of
 * theirs is read.  Else, one dimension a thread and the sums of the first 32 states under way before the
 * first factor is known: with one request the time is that of the latencies.
 *
 * Bound: reading the states, 4 (lora + 2) bytes of each (row, head).  H100, 16 heads, in graphs, before
 * supers: 128 queries of 5 states, 3 of them empty, 4.8 us; one of 33 states 4.5 us, one of 5 2.5 us; 4 of 129
 * 11.8 us.  A block a (row, head) with barriers and no compaction: 9.5, 6.8, 2.9 and 19.4 us. */
#include <float.h>

#include "kernel/cuda/common/mla_state.cuh"
#include "kernel/cuda/common/ops.cuh"

namespace
{

enum { WARPS = 4, BATCH = 32 };

/* One state.  a, b: factors of the super's sums so far and of its own; a < 0: it is the super's first.
 * top_a, top_b: after it, of the supers so far and of this one; top_a < 0: the first. */
struct step {
    float a, b, l, top_a, top_b;
    uint32_t at; /* of the batch, + END: of the super the last that counts; UINT32_MAX: empty */
};
constexpr uint32_t END = 1u << 16;

__device__ inline float joined(float a, float b, float x0, float x1)
{
    const float x = __fmaf_rn(x1, b, __fmul_rn(x0, a));
    return a < 0 ? x1 : x;
}

/* m and l of a batch's states, one a lane; empty ones from n on.  A batch begins with a super, since 32
 * is a multiple of the units of each. */
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

/* The largest of the lanes up to this one that are in the same group. */
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

/* Steps of those n <= 32 states after the ones that gave m; without the empty ones when COMPACT, else
 * those have at = UINT32_MAX.  super: of this lane's state.  Returns how many. */
template <bool COMPACT>
__device__ uint32_t plan(const ends &e, uint32_t n, uint32_t super, float &m, step *f)
{
    const uint32_t lane = threadIdx.x % 32;
    const float own = e.m;
    const float top = prefix_max(own != own ? -FLT_MAX : own, super); /* no number: not empty */
    const float left = __shfl_up_sync(~0u, top, 1);
    const uint32_t left_super = __shfl_up_sync(~0u, super, 1);
    const nb_mla_merge g = nb_mla_merge_of(lane > 0 && left_super == super ? left : -INFINITY, own);
    const unsigned some = __ballot_sync(~0u, !g.first);
    const uint32_t next_super = __shfl_down_sync(~0u, super, 1);
    const unsigned borders = __ballot_sync(~0u, lane == 31 || next_super != super);
    const uint32_t end = lane + (uint32_t)__ffs((int)(borders >> lane)) - 1; /* of the super */
    const bool last = !g.first && (some & (0xfffffffeu << lane) & (0xffffffffu >> (31 - end))) == 0;
    const float sum = prefix_max(last ? top : -INFINITY, 0);
    float before = __shfl_up_sync(~0u, sum, 1);
    before = lane == 0 ? m : fmaxf(m, before);
    const nb_mla_merge h = nb_mla_merge_of(before, top);
    const uint32_t place = COMPACT ? (uint32_t)__popc(some & ((1u << lane) - 1)) : lane;
    __syncwarp();
    if (!g.first)
        f[place] = { g.second ? -1.0f : g.a, g.b, e.l,
                     h.second ? -1.0f : h.a, h.b, lane | (last ? END : 0) };
    else if (!COMPACT)
        f[place].at = UINT32_MAX;
    __syncwarp();
    m = fmaxf(m, __shfl_sync(~0u, sum, 31));
    return COMPACT ? (uint32_t)__popc(some) : n;
}

template <int WIDTH> struct vec {
    float v[WIDTH];
};

template <int WIDTH> __device__ inline vec<WIDTH> load(const float *p)
{
    vec<WIDTH> x;
    if constexpr (WIDTH == 4) {
        const float4 y = *reinterpret_cast<const float4 *>(p);
        x.v[0] = y.x, x.v[1] = y.y, x.v[2] = y.z, x.v[3] = y.w;
    } else {
        x.v[0] = *p;
    }
    return x;
}

template <int WIDTH> __device__ inline void put(const nb_cuda_rows &y, size_t at, vec<WIDTH> &o)
{
    if constexpr (WIDTH == 1) {
        nb_put(y, at, o.v[0]);
    } else {
        if (y.f)
            *reinterpret_cast<float4 *>(y.f + at) = make_float4(o.v[0], o.v[1], o.v[2], o.v[3]);
        if (!y.hi) return;
        const uint2 h = make_uint2(nb_pack_bf16(o.v[0], o.v[1]), nb_pack_bf16(o.v[2], o.v[3]));
        *reinterpret_cast<uint2 *>(y.hi + at) = h;
        if (!y.lo) return;
#pragma unroll
        for (int k = 0; k < 4; k++)
            o.v[k] -= nb_bf16_float((uint16_t)((k < 2 ? h.x : h.y) >> (16 * (k & 1))));
        *reinterpret_cast<uint2 *>(y.lo + at) =
            make_uint2(nb_pack_bf16(o.v[0], o.v[1]), nb_pack_bf16(o.v[2], o.v[3]));
    }
}

/* WIDTH dimensions a thread, AHEAD states under way. */
template <int WIDTH, int AHEAD, bool COMPACT>
__global__ void __launch_bounds__(32 * WARPS) mla_join(NB_PARAM nb_cuda_mla_args a)
{
    __shared__ step steps[WARPS][BATCH];
    const size_t nh = a.n_head, row = blockIdx.x / nh, head = blockIdx.x % nh;
    const uint32_t c = (blockIdx.y * blockDim.x + threadIdx.x) * WIDTH, warp = threadIdx.x / 32;
    const bool here = c < a.lora;
    nb_grid_next();
    const size_t first = a.part_first[row]; /* tables: there before the first kernel of the step */
    const uint32_t end = a.part_first[row + 1], chunk = a.row_chunk[row];
    nb_grid_wait();
    if ((blockIdx.y * blockDim.x + 32 * warp) * WIDTH >= a.lora) return;
    const uint32_t n = chunk == UINT32_MAX ? 0 : end - (uint32_t)first;
    step *f = steps[warp];
    float m = -INFINITY, l = 0, super_l = 0;
    vec<WIDTH> o = {}, super_o = {};
    ends e = load_ends(a, first, n, head);
    for (uint32_t i0 = 0; i0 < n; i0 += BATCH) {
        const uint32_t k = n - i0 < BATCH ? n - i0 : (uint32_t)BATCH;
        const float *from = a.part_o + ((first + i0) * nh + head) * a.lora + c;
        const size_t stride = nh * a.lora;
        vec<WIDTH> x[AHEAD];
        uint32_t n_step = k;
        const uint32_t state = i0 + threadIdx.x % 32; /* the last is the own page's */
        const uint32_t super =
            state + 1 < n ? nb_cuda_super_of(a.units, state) : UINT32_MAX - (state + 1 > n);
        const bool whole = !COMPACT && i0 == 0;
        if (whole) {
#pragma unroll
            for (uint32_t j = 0; j < AHEAD; j++) {
                x[j] = {};
                if (j < k && here) x[j] = load<WIDTH>(from + j * stride);
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
                        x[j] = load<WIDTH>(from + (f[i1 + j].at & (END - 1)) * stride);
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
    put<WIDTH>(a.y, row * a.y.stride + head * a.lora + c, o);
}

} // namespace

void nb_cuda_mla_join(nb_cuda *g, const nb_cuda_mla_args *a)
{
    const size_t n = a->n_row * a->n_head;
    if (n == 0) return;
    if (a->lora % 4 == 0 && n * a->lora >= 2048 * (size_t)g->n_sm) {
        const size_t warps = (a->lora + 127) / 128,
                     threads = warps < WARPS ? 32 * warps : 32 * WARPS;
        const dim3 grid((unsigned)n, (unsigned)((a->lora + 4 * threads - 1) / (4 * threads)));
        NB_LAUNCH_EARLY(g, (mla_join<4, 4, true>), grid, (unsigned)threads, 0, *a);
    } else {
        const dim3 grid((unsigned)n, (unsigned)((a->lora + 63) / 64));
        NB_LAUNCH_EARLY(g, (mla_join<1, BATCH, false>), grid, 64, 0, *a);
    }
}
