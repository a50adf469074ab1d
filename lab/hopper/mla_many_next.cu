/* mla_many.cu - absorbed attention over pages for many rows (query, head): wgmma with the heads on its
 * 64-row side.
 *
 * A block has 64 rows of an item and walks over its pages; 4 warpgroups, one block a multiprocessor:
 *   scores   S [64 x 64 tokens] = Q K^T, softmax, weights as FP16 (BF16 for BF16 pages) to shared memory.
 *            Accumulators of weights are fragments of the operand A, so threads hand registers over.
 *   values   two groups, O [64 x 256] += P V each, P from registers, V the same tile as K; they give
 *            each chunk of 64 dims back as soon as they have read it
 *   pages    mla_many_page.cuh: fills two tiles of 64 tokens, chunk by chunk
 * While values are added the scores of the next page are computed; weights alone leave the tensor cores
 * idle.  Queries lie packed in the row's scratch memory (a kernel before does that: FP16 or BF16, each
 * row times a power of two that brings its largest value to 2^9, dims in the order of tiles).
 *
 * The softmax is lazy: the reference m of a row follows its maximum only when that is 2^6 over it, so
 * sums are seldom rescaled.  It is a row's own affair, so no row changes another's bits.
 * Token factors (the outer scales): a score is S 2^c; the weight that multiplies the tile is w 2^c, and m
 * refers to that; l is the sum of w itself.
 *
 * Budget a token and SM, in cycles: tensor cores 34 (64 rows); shared memory 18 (Q and K) + 8 (V) + 3 (P) +
 * 9 (tiles written); decoding by one warp a scheduler about 15. */
#include <cuda.h>

#include "kernel/cuda/common/mla_state.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "mla_many_next_page.cuh"

namespace
{

enum { THREADS = 512, BATCH = 4 };
/* Registers of a thread by role: pages, scores, and twice values are 512 together. */
enum { REG_VALUES = 176, REG_PAGES_BF16 = 40, REG_PAGES_CODES = 96 };
constexpr float LAZY = 6;

struct tensor_maps {
    CUtensorMap latent, rope;
};

/* ---- scores ---- */

/* Of tile n, stage after stage, the rope key first. */
template <int KIND, int CL>
__device__ __forceinline__ void scores_stages(float (&s)[32], uint32_t base, uint32_t n)
{
    constexpr bool BF = KIND == KIND_BF16;
    const uint32_t b = n & 1, full = base + BAR_FULL + 40 * b;
    const uint64_t qd = wg_desc(here(base)), kd = wg_desc(base + AT_TILE + b * TILE);
#pragma unroll
    for (uint32_t k = 0; k < STAGES; k++) {
        mb_wait_cl<CL>(full + 8 * (k == 0 ? 4 : k - 1), n >> 1 & 1);
        if (CL > 1 && KIND != KIND_BF16) proxy_fence<CL>(); /* what the other block wrote */
        wg_fence();
#pragma unroll
        for (uint32_t half = 0; half < (k == 0 ? 1 : 2); half++) {
            const uint32_t c = k == 0 ? 8 : k - 1 + 4 * half;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                wg_scores<BF>(s, qd + c * 512 + i * 2, kd + c * 512 + i * 2, k + i != 0);
        }
    }
    wg_commit();
}

struct softmax_state { /* of rows g and g + 8 of a warp */
    float m[2], l[2], q_factor[2];
};

/* The maximum, the weights and their sums; hands them to the values' groups.  msg: messages so far. */
template <int KIND>
__device__ __forceinline__ void softmax(float (&s)[32], softmax_state &z, uint32_t base,
                                        uint32_t tid_, uint32_t n, uint32_t &msg)
{
    constexpr bool SCALED = KIND != KIND_BF16;
    const uint32_t tid = here(tid_), w = tid / 32, lane = tid % 32;
    const uint32_t g = lane / 4, t = lane % 4;
    const uint32_t token = base + AT_TOKEN + n % 3 * 512 + 16 * t;
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
    float corr[2];
    bool up = false;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = fmaxf(top[i], __shfl_xor_sync(~0u, top[i], 1));
        top[i] = fmaxf(top[i], __shfl_xor_sync(~0u, top[i], 2));
        const bool own = top[i] > z.m[i] + LAZY || z.m[i] == -INFINITY;
        const float m = own ? fmaxf(top[i], z.m[i]) : z.m[i];
        corr[i] = own ? nb_exp2(z.m[i] - m) : 1;
        if (m == -INFINITY) corr[i] = 1;
        up |= own;
        z.m[i] = m;
        z.l[i] *= corr[i];
    }
    const bool any = __any_sync(~0u, up);
    mb_wait(base + BAR_P_EMPTY + 8 * w, (msg & 1) ^ 1);
    if (t == 0) {
        st_float(base + AT_STATE + (16 * w + g) * 4, corr[0]);
        st_float(base + AT_STATE + (16 * w + g + 8) * 4, corr[1]);
    }
    if (lane == 0) st_float(base + AT_FLAG + 4 * w, any ? 1 : 0);
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
        st_shared(base + AT_P + k * 2048 + tid * 16, out[0], out[1], out[2], out[3]);
    }
    __syncwarp();
    if (lane == 0) mb_arrive(base + BAR_P_FULL + 8 * w);
    msg++;
}

struct row_at { /* where the state of unit 0 of a row is: index of (part, head); SIZE_MAX: no row */
    size_t at[2];
};
__device__ inline row_at rows_of(const nb_cuda_mla_args &a, const many_work &w, uint32_t tid_)
{
    const nb_cuda_item &it = a.item[w.item];
    const uint32_t nh = (uint32_t)a.n_head, n = it.n_q * nh, tid = here(tid_);
    row_at r;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t flat = ROWS * w.blk + tid / 32 * 16 + tid % 32 / 4 + 8 * i;
        r.at[i] = SIZE_MAX;
        if (flat < n)
            r.at[i] = (size_t)(a.part_first[it.row0 + flat / nh] + it.unit0) * nh + flat % nh;
    }
    return r;
}

/* End of unit k: its state is written, or joined to what the item has so far (m0, l0). */
__device__ inline void scores_unit(const nb_cuda_mla_args &a, const many_work &work, uint32_t k,
                                   softmax_state &z, uint32_t base, uint32_t tid_, uint32_t &msg)
{
    const row_at r = rows_of(a, work, tid_);
    const uint32_t tid = here(tid_), w = tid / 32, lane = tid % 32;
    const uint32_t g = lane / 4, t = lane % 4;
    if (k > 0) mb_wait(base + BAR_P_EMPTY + 8 * w, (msg & 1) ^ 1);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float l = z.l[i];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        const float m = nb_mla_state_m(z.m[i]);
        const uint32_t at = base + AT_STATE + (16 * w + g + 8 * i) * 4;
        const bool here = t == 0 && r.at[i] != SIZE_MAX;
        float m0 = -INFINITY, l0 = 0;
        if (k > 0) m0 = ld_float(at + 768);
        if (k > 0 && here) l0 = a.part_l[r.at[i]];
        __syncwarp();
        const nb_mla_merge f = nb_mla_merge_of(m0, m);
        const float m2 = k > 0 ? f.m : m, l2 = nb_mla_merged(f, l0, l);
        if (t == 0) {
            st_float(at + 256, m0), st_float(at + 512, m);
            st_float(at + 768, m2);
        }
        if (here) {
            a.part_m[r.at[i]] = m2;
            a.part_l[r.at[i]] = l2;
            if (k > 0) {
                a.part_m[r.at[i] + k * a.n_head] = -INFINITY;
                a.part_l[r.at[i] + k * a.n_head] = 0;
            }
        }
        z.m[i] = -INFINITY, z.l[i] = 0;
    }
    if (k > 0) {
        __syncwarp();
        if (lane == 0) mb_arrive(base + BAR_P_FULL + 8 * w);
        msg++;
    }
}

__device__ inline many_work work_at(uint32_t base, uint32_t round)
{
    const uint4 v = ld_shared(base + AT_WORK + round % 8 * 16);
    return { v.x, v.y, v.z, v.w };
}

__device__ inline void load_queries(const many_plan &x, uint32_t flat, uint32_t base)
{
    const unsigned char *q = x.q + (size_t)flat * 128;
    mb_expect(base + BAR_Q, TILE);
    for (uint32_t c = 0; c < 9; c++)
        bulk_load(base + c * CHUNK, q + c * x.q_plane, CHUNK, base + BAR_Q);
}

template <int CL>
__device__ inline void give_rope(uint32_t base, uint32_t tid, uint32_t n, uint32_t delta)
{
    if (tid % 32 == 0) mb_arrive_cl<CL>(base + BAR_EMPTY + 40 * (n & 1) + 32, delta);
}

template <int KIND, int CL>
__device__ __forceinline__ void scores_role(const nb_cuda_mla_args &a, const many_plan &x,
                                            uint32_t base, uint32_t tid)
{
    const uint32_t delta = CL > 1 ? peer_delta(base) : 0;
    uint32_t n = 0, msg = 0;
    float s[32];
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] = 0;
    for (uint32_t round = 0;; round++) {
        mb_wait_cl<CL>(base + BAR_FULL + 40 * (n & 1) + 32, n >> 1 & 1);
        const many_work work = work_at(base, round);
        const uint32_t n_page = work.n_page;
        if (n_page == 0) break;
        asm volatile("bar.sync 1, 128;" ::: "memory"); /* all are done with the queries before */
        if (tid == 0) load_queries(x, work.flat, base);
        softmax_state z;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            z.m[i] = -INFINITY, z.l[i] = 0;
            z.q_factor[i] = x.q_factor[work.flat + tid / 32 * 16 + tid % 32 / 4 + 8 * i];
        }
        mb_wait(base + BAR_Q, round & 1);
        scores_stages<KIND, CL>(s, base, n);
        wg_wait<0>();
        give_rope<CL>(base, tid, n, delta);
        uint32_t p = 0;
        for (;; n++) {
            softmax<KIND>(s, z, base, tid, n, msg);
            if (p % UNIT == UNIT - 1 || p + 1 == n_page)
                scores_unit(a, work_at(base, round), p / UNIT, z, base, tid, msg);
            if (++p == n_page) break;
            scores_stages<KIND, CL>(s, base, n + 1);
            wg_wait<0>();
            give_rope<CL>(base, tid, n + 1, delta);
        }
        n++;
    }
    const uint32_t w = tid / 32; /* the end: a message with nothing in it */
    mb_wait(base + BAR_P_EMPTY + 8 * w, (msg & 1) ^ 1);
    if (tid % 32 == 0) mb_arrive(base + BAR_P_FULL + 8 * w);
}

/* ---- values ---- */

/* A unit's sums go out: written (k == 0), or joined.  group: which half of each 128 dims. */
template <int KIND>
__device__ __forceinline__ void put_values(const nb_cuda_mla_args &a, const many_work &w,
                                           const float (&o)[4][32], uint32_t group, uint32_t k,
                                           uint32_t base, uint32_t tid_, float scale)
{
    const uint32_t tid = here(tid_), warp = tid / 32, lane = tid % 32;
    const uint32_t g = lane / 4, t = lane % 4;
    const row_at r = rows_of(a, w, tid_);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        nb_mla_merge f;
        if (k > 0) {
            const uint32_t at = base + AT_STATE + 256 + (16 * warp + g + 8 * i) * 4;
            f = nb_mla_merge_of(ld_float(at), ld_float(at + 256));
        }
        float *to = a.part_o + (r.at[i] == SIZE_MAX ? 0 : r.at[i]) * LORA;
#pragma unroll
        for (int cj = 0; cj < 32; cj += BATCH) {
            const uint32_t c = cj / 8;
            constexpr bool PAIRS = KIND == KIND_NVFP4 || KIND == KIND_IF4; /* 1 3, 5 7, 0 2, 4 6 */
            const uint32_t own = PAIRS ? (t & 1) * 4 + (t & 2) - 1 : 2 * t;
            float2 old[BATCH]; /* loaded together: the stores in between would keep them apart */
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                const uint32_t d = many_dim<KIND>(c + 4 * group, 8 * ((cj + j) % 8)) + own;
                if (k > 0 && r.at[i] != SIZE_MAX) old[j] = *reinterpret_cast<float2 *>(to + d);
            }
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                const int e = 4 * ((cj + j) % 8) + 2 * i;
                const uint32_t d = many_dim<KIND>(c + 4 * group, 8 * ((cj + j) % 8)) + own;
                float2 v = make_float2(o[c][e] * scale, o[c][e + 1] * scale);
                if (PAIRS) {
                    const float x = __shfl_xor_sync(~0u, t < 2 ? v.y : v.x, 2);
                    v = t < 2 ? make_float2(x, v.x) : make_float2(v.y, x);
                }
                if (r.at[i] == SIZE_MAX) continue;
                if (k > 0) {
                    v.x = nb_mla_merged(f, old[j].x, v.x);
                    v.y = nb_mla_merged(f, old[j].y, v.y);
                }
                *reinterpret_cast<float2 *>(to + d) = v;
            }
        }
    }
}

template <int KIND, int CL>
__device__ __forceinline__ void values_role(const nb_cuda_mla_args &a, const many_plan &x,
                                            uint32_t base, uint32_t tid, uint32_t group)
{
    constexpr bool BF = KIND == KIND_BF16;
    const uint32_t w = tid / 32, lane = tid % 32, v_at = base + AT_TILE + group * 4 * CHUNK;
    const uint32_t p_full = base + BAR_P_FULL + 8 * w, p_empty = base + BAR_P_EMPTY + 8 * w;
    const uint32_t delta = CL > 1 ? peer_delta(base) : 0;
    uint32_t msg = 0, round = 0, p = 0, n_page = 0;
    float o[4][32];
#pragma unroll
    for (int c = 0; c < 4; c++)
#pragma unroll
        for (int i = 0; i < 32; i++) o[c][i] = 0;
    for (uint32_t n = 0;; n++) {
        mb_wait(p_full, msg & 1);
        if (p == n_page) {
            n_page = work_at(base, round).n_page, p = 0;
            if (n_page == 0) return;
        }
        const uint32_t b = n & 1, full = base + BAR_FULL + 40 * b,
                       empty = base + BAR_EMPTY + 40 * b;
        const uint64_t vd = wg_desc(v_at + b * TILE);
        const int add = p % UNIT != 0;
        uint4 v[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) v[k] = ld_shared(base + AT_P + k * 2048 + tid * 16);
        const float c0 = ld_float(base + AT_STATE + (16 * w + lane / 4) * 4);
        const float c1 = ld_float(base + AT_STATE + (16 * w + lane / 4 + 8) * 4);
        const bool up = ld_float(base + AT_FLAG + 4 * w) != 0;
        __syncwarp();
        if (lane == 0) mb_arrive(p_empty);
        msg++;
        if (up && add) {
#pragma unroll
            for (int c = 0; c < 4; c++)
#pragma unroll
                for (int i = 0; i < 32; i++) o[c][i] *= i & 2 ? c1 : c0;
        }
#pragma unroll
        for (int c = 0; c < 4; c++) mb_wait_cl<CL>(full + 8 * c, n >> 1 & 1);
        if (CL > 1 && KIND != KIND_BF16) proxy_fence<CL>();
        wg_fence();
#pragma unroll
        for (int c = 0; c < 4; c++) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                wg_values<BF>(o[c], v[k].x, v[k].y, v[k].z, v[k].w, vd + c * 512 + k * 128,
                              k ? 1 : add);
            wg_commit();
        }
        wg_wait<3>();
        if (lane == 0) mb_arrive_cl<CL>(empty, delta);
        wg_wait<2>();
        if (lane == 0) mb_arrive_cl<CL>(empty + 8, delta);
        wg_wait<1>();
        if (lane == 0) mb_arrive_cl<CL>(empty + 16, delta);
        wg_wait<0>();
        if (lane == 0) mb_arrive_cl<CL>(empty + 24, delta);
        if (p % UNIT == UNIT - 1 || p + 1 == n_page) {
            const uint32_t k = p / UNIT;
            if (k > 0) mb_wait(p_full, msg & 1);
            put_values<KIND>(a, work_at(base, round), o, (v_at - base - AT_TILE) / (4 * CHUNK), k,
                             base, tid, x.v_scale);
            if (k > 0) {
                __syncwarp();
                if (lane == 0) mb_arrive(p_empty);
                msg++;
            }
        }
        if (++p == n_page) round++;
    }
}

template <int KIND, int CL>
__global__ void __cluster_dims__(CL, 1, 1) __launch_bounds__(THREADS, 1)
    mla_many(NB_PARAM nb_cuda_mla_args a, NB_PARAM many_plan x, NB_PARAM tensor_maps maps)
{
    extern __shared__ __align__(1024) unsigned char mla_many_shared[];
    const uint32_t base = here(nb_smem(mla_many_shared)), tid = here(threadIdx.x % 128);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < 10; i++) {
            mb_init(base + BAR_FULL + 8 * i, KIND == KIND_BF16 ? 1 : 4 * CL);
            mb_init(base + BAR_EMPTY + 8 * i, (i % 5 == 4 ? 4 : 8) * CL);
        }
        for (uint32_t i = 0; i < 4; i++) {
            mb_init(base + BAR_P_FULL + 8 * i, 1);
            mb_init(base + BAR_P_EMPTY + 8 * i, 2);
        }
        mb_init(base + BAR_Q, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (CL > 1)
        cluster_sync();
    else
        __syncthreads();
    constexpr int REG_PAGES = KIND == KIND_BF16 ? REG_PAGES_BF16 : REG_PAGES_CODES;
    constexpr int REG_SCORES = 512 - 2 * REG_VALUES - REG_PAGES;
    const uint32_t role = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (role == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REG_PAGES));
        if (KIND == KIND_BF16)
            produce_bf16<CL>(a, x, base, tid, &maps.latent, &maps.rope);
        else
            produce<KIND, CL>(a, x, base, tid);
    } else if (role == 1) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REG_SCORES));
        scores_role<KIND, CL>(a, x, base, tid);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)REG_VALUES));
        values_role<KIND, CL>(a, x, base, tid, role - 2);
    }
    if (CL > 1) cluster_sync(); /* the other block may still arrive here */
}

/* ---- queries ---- */

/* A warp packs a row (query, head).  s: what latent and rope part are multiplied by (fixed scales). */
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
    /* times 2^up: the largest becomes 2^9 .. 2^10 */
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

/* Pages as boxes of 64 tokens times 64 values. */
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
    if (n_head <= 32 || n_head % 8 || r->n_seg != 2) return false;
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
