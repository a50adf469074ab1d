/* mla_few_unit.cuh - the end of a unit in mla_few.cuh.
 *
 * The sums of the two warpgroups become one partial state (m, l, o), which is combined with the earlier units of the
 * work item by the arithmetic of mla_state.cuh:
 *   m = max(m0, m1);  x = x0 2^(m0 - m) + x1 2^(m1 - m)  for l and each element of o
 * A unit is a fixed range of pages whose attention is one partial state; a work item has several only within a super,
 * a fixed group of units combined in order. */
#ifndef NB_KERNEL_CUDA_SM90_MLA_FEW_UNIT_CUH
#define NB_KERNEL_CUDA_SM90_MLA_FEW_UNIT_CUH
#include "kernel/cuda/sm90/mla_few_page.cuh"

namespace few
{

/* Sums lie in shared memory as [heads][PITCH].  This is the place of half 0 of a register.  The layout has no bank
 * conflicts, neither for writes in the order of wgmma's rows nor for reads in the order of dims. */
template <int FMT> __device__ inline uint32_t sum_at(uint32_t grp, uint32_t t, uint32_t reg)
{
    if (FMT == BF16) return 64 * grp + 8 * reg + 2 * t;
    return 80 * grp + reg / 4 * 36 + reg % 4 * 8 + 2 * t;
}

/* Dims d to d + 3 of a row of sums; d is a multiple of 4. */
template <int FMT> __device__ inline float4 sums_at(const float *row, uint32_t d)
{
    if (FMT == BF16 || FMT == FP8) {
        const uint32_t grp = d / 64, t = FMT == BF16 ? d % 8 / 2 : d / 16 % 4,
                       reg = FMT == BF16 ? d / 8 % 8 : d % 16 / 2;
        const float2 x = *(const float2 *)(row + sum_at<FMT>(grp, t, reg));
        const float2 y = *(const float2 *)(row + (FMT == BF16 ? sum_at<FMT>(grp, t + 1, reg)
                                                              : sum_at<FMT>(grp, t, reg + 1)));
        return make_float4(x.x, x.y, y.x, y.y);
    }
    const uint32_t grp = d / 128 * 2 + d / 16 % 2, t = d / 32 % 4,
                   reg = d / 8 % 2 * 4 + d / 4 % 2; /* nibbles 1, 3; 0, 2 at reg + 2 */
    const float2 x = *(const float2 *)(row + sum_at<FMT>(grp, t, reg));
    const float2 y = *(const float2 *)(row + sum_at<FMT>(grp, t, reg + 2));
    return make_float4(y.x, x.x, y.y, x.y);
}

/* What a thread keeps of a work item from unit to unit: l of row tid and, with KEEP, the sums of its group's half of
 * the dims, in the order of wgmma's accumulators. */
template <int FMT, int N, int GROUPS> struct kept {
    enum {
        KEEP = layout<FMT, N, GROUPS>::KEEP,
        HEADS = FMT == BF16 ? 8 : 16,    /* heads that fit at a time */
        TASKS = HEADS * 4 / (4 * GROUPS) /* tasks of a warp; each is 128 dims of a head */
    };
    float l, o[KEEP ? 4 : 1][KEEP ? N / 2 : 1];
};

/* Factors for combining a row's sums: fa, fb for the two groups' sums of this unit; then ha for the earlier units and
 * hb for this one. */
struct joint {
    float fa, fb, ha, hb;
};

/* The factors of a unit that has no earlier unit. */
__device__ inline joint unit_joint(const params &a, const nb_mla_merge &f)
{
    joint x;
    x.fa = f.second ? 0 : (f.first ? 1 : f.a) * a.o_scale;
    x.fb = f.first ? 0 : (f.second ? 1 : f.b) * a.o_scale;
    x.ha = 0, x.hb = 1;
    return x;
}

template <int N, int GROUPS>
__device__ inline joint joint_of(const params &a, const float *mo, const float *total, int head,
                                 bool before)
{
    const nb_mla_merge f = nb_mla_merge_of(mo[head], GROUPS == 2 ? mo[N + head] : -INFINITY);
    const nb_mla_merge h = nb_mla_merge_of(before ? total[head] : -INFINITY, nb_mla_state_m(f.m));
    joint x = unit_joint(a, f);
    x.ha = h.second ? 0 : h.a, x.hb = h.second ? 1 : h.b; /* never h.first */
    return x;
}

/* nb_mla_merged applied twice: to the two groups, then to the earlier units and this one. */
__device__ inline float joined(const joint &f, float before, float first, float second)
{
    return __fmaf_rn(fmaf(second, f.fb, first * f.fa), f.hb, __fmul_rn(before, f.ha));
}

/* Where the groups store m and l of a unit, and m of the item so far. */
template <class L, int N> struct rows_at {
    const float *sum, *mo, *total;
    float *after;
    __device__ rows_at(unsigned char *smem, uint32_t k)
        : sum((float *)(smem + L::AT_SUM)), mo((float *)(smem + L::AT_M)),
          total((float *)(smem + L::AT_TOTAL) + (1 - k % 2) * N),
          after((float *)(smem + L::AT_TOTAL) + k % 2 * N)
    {
    }
};

/* m and l of row tid in unit k, combined with those of the earlier units (l_item), to global memory. */
template <class L, int N, int GROUPS>
__device__ inline void put_row(unsigned char *smem, const params &a, uint32_t k, float &l_item)
{
    const int tid = fresh_tid();
    const rows_at<L, N> x(smem, k);
    const uint32_t to = ((const uint32_t *)(smem + L::AT_STATE))[tid];
    float m_new = 0;
    if (to != UINT32_MAX) {
        float l[2] = { 0, 0 };
#pragma unroll
        for (int w = 0; w < L::WARPS * GROUPS; w++) l[w / L::WARPS] += x.sum[w * N + tid];
        const nb_mla_merge f = nb_mla_merge_of(x.mo[tid], GROUPS == 2 ? x.mo[N + tid] : -INFINITY);
        const float m = nb_mla_state_m(f.m), l1 = nb_mla_merged(f, l[0], l[1]);
        const nb_mla_merge h = nb_mla_merge_of(k > 0 ? x.total[tid] : -INFINITY, m);
        m_new = k > 0 ? h.m : m;
        l_item = nb_mla_merged(h, l_item, l1);
        a.part_l[to] = l_item;
        a.part_m[to] = m_new;
        if (k > 0) {
            a.part_m[to + (size_t)k * a.n_head] = -INFINITY;
            a.part_l[to + (size_t)k * a.n_head] = 0;
        }
    }
    x.after[tid] = m_new;
}

/* Stores eight heads of one tile of 64 dims where sums_at reads them. */
template <int FMT>
__device__ inline void lay(float *rows, int pitch, const place &z, int tile, const float *o)
{
#pragma unroll
    for (int n = 0; n < 4; n++)
        rows[(2 * z.t + n % 2) * pitch + sum_at<FMT>(tile, z.g / 2, 2 * z.w + n / 2) + z.g % 2] =
            o[n];
}

enum { PITCH_BF16 = 516, PITCH_CODES = 644 };

/* KEEP: combines the sums of unit k with the earlier ones, for group HALF.  The groups exchange halves of the dims in
 * register order, without bank conflicts.  The sums are put in the order of dims once, at the end of the item. */
template <int FMT, int N, int HALF>
__device__ inline void join_half(unsigned char *smem, const params &a, const place &z, uint32_t k,
                                 bool last, const sums<N> &s, kept<FMT, N, 2> &y)
{
    using L = layout<FMT, N, 2>;
    using K = kept<FMT, N, 2>;
    enum { PITCH = FMT == BF16 ? PITCH_BF16 : PITCH_CODES, FROM = 4 * HALF, TO = 4 - FROM };
    const int at = z.w * 256 + z.lane;
    float4 *give = (float4 *)(smem + L::AT_V + HALF * L::VALUES) + at;
    const float4 *take = (const float4 *)(smem + L::AT_V + (1 - HALF) * L::VALUES) + at;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float *o = s.o[TO + i / 2] + 4 * (i % 2);
        give[32 * i] = make_float4(o[0], o[1], o[2], o[3]);
    }
    nb_bar_sync(7, L::CONSUMERS);
    if (HALF == 0 && z.w == 0 && z.lane < N) put_row<L, N, 2>(smem, a, k, y.l);
    const rows_at<L, N> x(smem, k);
    joint f[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        f[j] = joint_of<N, 2>(a, x.mo, x.total, j / 2 * 8 + 2 * z.t + j % 2, k > 0);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 v = take[32 * i];
        const float other[4] = { v.x, v.y, v.z, v.w }, *own = s.o[FROM + i / 2] + 4 * (i % 2);
        float *to = y.o[i / 2] + 4 * (i % 2);
#pragma unroll
        for (int n = 0; n < 4; n++)
            to[n] = joined(f[i % 2 * 2 + n % 2], to[n], HALF ? other[n] : own[n],
                           HALF ? own[n] : other[n]);
    }
    nb_bar_sync(7, L::CONSUMERS);
    if (!last) return;
    const uint32_t *state = (const uint32_t *)(smem + L::AT_STATE);
    float *rows = (float *)(smem + L::AT_V);
#pragma unroll
    for (int r = 0; r < N / K::HEADS; r++) {
#pragma unroll
        for (int c = 0; c < K::HEADS / 8; c++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                lay<FMT>(rows + 8 * c * PITCH, PITCH, z, FROM + i,
                         y.o[i] + 4 * (r * K::HEADS / 8 + c));
        nb_bar_sync(7, L::CONSUMERS);
#pragma unroll
        for (int i = 0; i < K::TASKS; i++) {
            const int task = (4 * HALF + z.w) * K::TASKS + i, head = task / 4;
            const uint32_t to = state[r * K::HEADS + head], d = task % 4 * 128 + 4 * z.lane;
            if (to != UINT32_MAX)
                *(float4 *)(a.part_o + (size_t)to * LORA + d) =
                    sums_at<FMT>(rows + head * PITCH, d);
        }
        nb_bar_sync(7, L::CONSUMERS);
    }
}

/* The same with the sums in global memory between units; also used for an item of one unit. */
template <int FMT, int N, int GROUPS>
__device__ inline void join_memory(unsigned char *smem, const params &a, const place &z, uint32_t k,
                                   const sums<N> &s, float &l_item)
{
    using L = layout<FMT, N, GROUPS>;
    using K = kept<FMT, N, GROUPS>;
    enum { PITCH = FMT == BF16 ? PITCH_BF16 : PITCH_CODES, PER = K::TASKS < 4 ? K::TASKS : 4 };
    const uint32_t *state = (const uint32_t *)(smem + L::AT_STATE);
    float *mine = (float *)(smem + L::AT_V + z.group * L::VALUES);
    const float *both[2] = { (float *)(smem + L::AT_V), (float *)(smem + L::AT_V + L::VALUES) };
    const int warp = 4 * z.group + z.w;
#pragma unroll
    for (int r = 0; r < N / K::HEADS; r++) {
        float4 old[K::TASKS]; /* sums of the earlier units; loaded early to hide latency */
        uint32_t at[K::TASKS];
#pragma unroll
        for (int i = 0; i < K::TASKS; i++) {
            const int task = warp * K::TASKS + i;
            at[i] = state[r * K::HEADS + task / 4];
            old[i] = make_float4(0, 0, 0, 0);
            if (k > 0 && at[i] != UINT32_MAX)
                old[i] = *(const float4 *)(a.part_o + (size_t)at[i] * LORA + task % 4 * 128 +
                                           4 * z.lane);
        }
#pragma unroll
        for (int c = 0; c < K::HEADS / 8; c++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                lay<FMT>(mine + 8 * c * PITCH, PITCH, z, i, s.o[i] + 4 * (r * K::HEADS / 8 + c));
        nb_bar_sync(7, L::CONSUMERS);
        if (r == 0 && z.group == 0 && z.w == 0 && z.lane < N)
            put_row<L, N, GROUPS>(smem, a, k, l_item);
        const rows_at<L, N> t(smem, k);
#pragma unroll
        for (int j = 0; j < K::TASKS / PER; j++) {
            if (at[j * PER] == UINT32_MAX) continue;
            const int head = (warp * K::TASKS + j * PER) / 4;
            const joint f = joint_of<N, GROUPS>(a, t.mo, t.total, r * K::HEADS + head, k > 0);
#pragma unroll
            for (int i = 0; i < PER; i++) {
                const uint32_t d = (warp * K::TASKS + j * PER + i) % 4 * 128 + 4 * z.lane;
                const float4 o = old[j * PER + i], x = sums_at<FMT>(both[0] + head * PITCH, d);
                float4 w = make_float4(0, 0, 0, 0);
                if (GROUPS == 2) w = sums_at<FMT>(both[1] + head * PITCH, d);
                *(float4 *)(a.part_o + (size_t)at[j * PER] * LORA + d) =
                    make_float4(joined(f, o.x, x.x, w.x), joined(f, o.y, x.y, w.y),
                                joined(f, o.z, x.z, w.z), joined(f, o.w, x.w, w.w));
            }
        }
        nb_bar_sync(7, L::CONSUMERS);
    }
}

/* sum_rows: each warp's part of l of the group's rows.  put_rows: stores it and m where rows_at reads them. */
template <int N> __device__ inline void sum_rows(sums<N> &s)
{
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        s.l[j] += __shfl_xor_sync(~0u, s.l[j], 4);
        s.l[j] += __shfl_xor_sync(~0u, s.l[j], 8);
        s.l[j] += __shfl_xor_sync(~0u, s.l[j], 16);
    }
}
template <int N>
__device__ inline void put_rows(float *sum, float *mo, const place &z, const sums<N> &s)
{
    if (z.g != 0) return;
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        const int c = j / 2 * 8 + 2 * z.t + j % 2;
        sum[z.w * N + c] = s.l[j];
        if (z.w == 0) mo[c] = s.m[j];
    }
}

/* Shared memory at the end of a unit that two blocks share.  A block's sums of its own 8 heads reuse the values'
 * buffer; those of the other 8 heads are staged for the other block. */
template <int FMT> struct pair_layout {
    using L = layout<FMT, 16, 2>;
    enum {
        PITCH = FMT == BF16 ? PITCH_BF16 : PITCH_CODES,
        HALF = 8 * PITCH * 4,                                /* bytes of 8 heads */
        AT_GIVE = FMT == BF16 ? L::AT_SLOT : L::AT_V + HALF, /* pages and values are dead by now */
        AT_TAKE = L::AT_V + L::VALUES,                       /* the second group has no pages */
        SUMS = 4 * L::WARPS * 16,                            /* bytes of a group's l, per warp */
        ENDS = 4 * 16,                                       /* bytes of its m */
        BAR = L::AT_BAR + 8 /* reuses `full` of the second group's first slot */
    };
};

/* Ends a unit that a cluster shares: the first block did its even pages, the second the odd ones, each in its first
 * group.  Each block takes the other's sums of 8 heads and writes the states of these heads.  Called by all consumer
 * threads. */
template <int FMT>
__device__ inline void put_pair(unsigned char *smem, const params &a, uint32_t rank, sums<16> &s)
{
    using L = layout<FMT, 16, 2>;
    using P = pair_layout<FMT>;
    const place z = place_of(fresh_tid(), smem);
    const uint32_t base = z.base, bar = base + P::BAR;
    const bool first = z.group == 0 && z.w == 0 && z.lane == 0;
    float *sum = (float *)(smem + L::AT_SUM), *mo = (float *)(smem + L::AT_M);
    nb_wg_wait<0>();
#pragma unroll
    for (int i = 0; i < 8; i++) nb_wg_hold(s.o[i]);
    if (z.group == 0) {
        sum_rows<16>(s);
        nb_bar_sync(1, 128); /* V may be written */
        if (first) nb_mbar_expect(bar, P::HALF + P::SUMS + P::ENDS);
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float *rows = (float *)(smem + (rank == c ? (int)L::AT_V : (int)P::AT_GIVE));
#pragma unroll
            for (int i = 0; i < 8; i++) lay<FMT>(rows, P::PITCH, z, i, s.o[i] + 4 * c);
        }
        put_rows<16>(sum, mo, z, s);
        nb_fence_async();
        nb_bar_sync(1, 128);
    }
    pair_wait(); /* the other block has started: its barriers are initialised */
    if (first) {
        const uint32_t to = pair_other(base), full = pair_other(bar);
        copy_shared(to + L::AT_SUM + P::SUMS, base + L::AT_SUM, P::SUMS, full);
        copy_shared(to + L::AT_M + P::ENDS, base + L::AT_M, P::ENDS, full);
        copy_shared(to + P::AT_TAKE, base + P::AT_GIVE, P::HALF, full);
    }
    nb_mbar_wait(bar, 0);
    pair_arrive();
    const uint32_t n = 8 * rank + 4 * z.group + z.w,
                   to = ((const uint32_t *)(smem + L::AT_STATE))[n];
    if (to != UINT32_MAX) {
        const uint32_t even = rank * 16, odd = 16 - even; /* the block's own rows come first */
        const nb_mla_merge f = nb_mla_merge_of(mo[even + n], mo[odd + n]);
        if (z.lane == 0) {
            float l[2] = { 0, 0 };
#pragma unroll
            for (int w = 0; w < L::WARPS; w++) {
                l[0] += sum[L::WARPS * even + w * 16 + n];
                l[1] += sum[L::WARPS * odd + w * 16 + n];
            }
            a.part_l[to] = nb_mla_merged(f, l[0], l[1]);
            a.part_m[to] = nb_mla_state_m(f.m);
        }
        const joint x = unit_joint(a, f);
        const float *own = (float *)(smem + L::AT_V) + (n - 8 * rank) * P::PITCH,
                    *its = (float *)(smem + P::AT_TAKE) + (n - 8 * rank) * P::PITCH;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t d = 128 * i + 4 * z.lane;
            const float4 u = sums_at<FMT>(rank ? its : own, d),
                         v = sums_at<FMT>(rank ? own : its, d);
            *(float4 *)(a.part_o + (size_t)to * LORA + d) =
                make_float4(joined(x, 0, u.x, v.x), joined(x, 0, u.y, v.y), joined(x, 0, u.z, v.z),
                            joined(x, 0, u.w, v.w));
        }
    }
    pair_wait(); /* the other block has read what it takes from here */
}

/* Ends unit k of an item: adds the groups' sums and combines them with the earlier units. */
template <int FMT, int N, int GROUPS>
__device__ inline void put_unit(unsigned char *smem, const params &a, uint32_t k, bool last,
                                sums<N> &s, kept<FMT, N, GROUPS> &y)
{
    using L = layout<FMT, N, GROUPS>;
    const int tid = fresh_tid();
    const place z = place_of(tid, smem);
    float *sum = (float *)(smem + L::AT_SUM), *mo = (float *)(smem + L::AT_M);
    nb_wg_wait<0>();
#pragma unroll
    for (int i = 0; i < 8; i++) nb_wg_hold(s.o[i]);
    sum_rows<N>(s);
    put_rows<N>(sum + L::WARPS * z.group * N, mo + z.group * N, z, s);
    nb_bar_sync(1 + z.group, 128); /* V may be written */
    if constexpr (L::KEEP) {
        if (k == 0 && last) /* the item has one unit: nothing to keep */
            join_memory<FMT, N, GROUPS>(smem, a, z, k, s, y.l);
        else if (z.group == 0)
            join_half<FMT, N, 0>(smem, a, z, k, last, s, y);
        else
            join_half<FMT, N, 1>(smem, a, z, k, last, s, y);
    } else
        join_memory<FMT, N, GROUPS>(smem, a, z, k, s, y.l);
}

} // namespace few

#endif
