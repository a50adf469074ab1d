/* gqa.cu - grouped-query attention over pages of any record, with mma.sync (m16n8k16, BF16 operands).
 *
 * Computes, for each query head, o = sum over tokens of p_t v_t / l with p_t = exp(scale q.k_t - m) and
 * l = sum of p_t.  The context is split into units of NB_CUDA_GQA_UNIT pages (a unit: a fixed range of pages whose
 * attention is one partial state (m, l, o); api/nb_cuda_units.h).  join_kernel combines the states of a query in order.
 *
 * Block: one work item (a unit of pages, up to NB_CUDA_QUERY_MAX queries) and one KV head.  The rows of its
 * products are the item's queries times the query heads of that KV head, 16 at a time (blockIdx.z).
 * Warp: four warps; each takes 16 tokens of every page and keeps a state of its own.  The four states are
 * combined at the end of the unit, always in the same order.
 * Own page: the page that a query is in has a block of its own.  So a row that is not finite reaches the
 * queries that see it, and no others.
 *
 * Keys go from the page straight into mma fragments: a lane reads eight values of one token, which are a
 * quarter of two k-steps of 16 when the dimensions are numbered to suit.  Queries are stored in shared memory in that
 * order.  Values pass through shared memory, one warp's 16 tokens at a time, to be transposed.
 *
 * Precision: queries and weights are split into two BF16 parts.  Keys and values are split too where a record's
 * values have more bits than BF16 (PARTS 2: int4, f32, fixed scales, the own page).  The product of the two low
 * parts is left out, since it is below the rounding of the others.  Error bound: that of attn_prefill.h with
 * eps = 2^-16.
 *
 * Decode is bound by reading the pages.  No warp waits for another on the way, and an SM has 12 to 16 warps with
 * loads in flight.  Nothing may stand between those loads.  A version with a condition around each load (heads
 * narrower than the kernel), and with one block to combine the states of a row, took about
 * as long whatever the bytes (H100, 32 heads on 8 of 128, one token each of 64 sequences of 2,048 tokens):
 *   record    bf16             fp8     nvfp4
 *   ms        0.52 (1.0 TB/s)  0.47    0.42
 * A prompt reads its pages once for every four queries. */
#include "kernel/cuda/common/kv_decode.cuh"
#include "kernel/cuda/common/mla_state.cuh"
#include "kernel/cuda/common/ops.cuh"

namespace
{
constexpr uint32_t TOK = NB_PAGE_TOK, WARPS = 4, THREADS = 32 * WARPS, ROWS = 16, WARP_TOK = 16;
constexpr uint32_t ALL = 0xffffffffu;
/* FMT: ANY is any format, looked up for each eight values; OWN is the own page's rows of floats. */
constexpr int ANY = -1, OWN = -2;

/* NV: head_dim / 8, rounded up to a kernel's; PARTS: BF16 parts of keys and values. */
template <int NV, int PARTS> struct layout {
    static constexpr uint32_t steps = NV / 4;                   /* of 32 dimensions */
    static constexpr uint32_t query_words = steps * 4 * 32 * 4; /* two k-steps of 16, two parts */
    static constexpr uint32_t ldv = 8 * NV + 8;
    static constexpr uint32_t value_bytes = WARPS * PARTS * WARP_TOK * ldv * 2;
    static constexpr uint32_t join_bytes = ROWS * 8 * NV * 4;
    static constexpr uint32_t bytes =
        query_words * 4 + (value_bytes > join_bytes ? value_bytes : join_bytes);
};

/* What a block computes: n_q queries from row0 on; its rows are r = 16 blockIdx.z + .. of n_q * group. */
struct work {
    const nb_cuda_chunk *chunk;
    uint32_t row0, n_q, head, kv, group, n_row; /* head: KV head among those of these heads; kv: in the cache */
    uint32_t page0, n_page; /* pages of the sequence */
    uint32_t limit;         /* own page: number of tokens seen */
    const float *own;       /* own page: its first row of floats */
    uint32_t part_back;     /* own page: its state is the query's last; else the unit */
    uint32_t unit;
};

/* Query heads of a KV head in the whole model; the first KV head of these heads. */
__host__ __device__ inline uint32_t group_of(const nb_cuda_gqa_args &a)
{
    return (uint32_t)((a.n_whole ? a.n_whole : a.n_head) / a.n_kv_head);
}
__device__ inline uint32_t kv0_of(const nb_cuda_gqa_args &a)
{
    return (uint32_t)a.head0 / group_of(a);
}

__device__ inline work work_of_item(const nb_cuda_gqa_args &a, const nb_cuda_item &it)
{
    work w = {};
    w.chunk = a.cache.chunk + it.chunk;
    w.row0 = it.row0;
    w.n_q = it.n_q;
    w.unit = it.unit0;
    w.page0 = it.unit0 * NB_CUDA_GQA_UNIT;
    w.n_page = it.n_page;
    return w;
}

__device__ inline work work_of_row(const nb_cuda_gqa_args &a, uint32_t row, uint32_t chunk)
{
    work w = {};
    w.chunk = a.cache.chunk + chunk;
    w.row0 = row;
    w.n_q = w.n_page = w.part_back = 1;
    const uint32_t pos = w.chunk->pos0 + (row - w.chunk->row0);
    w.limit = pos % TOK + 1;
    const size_t n = a.cache.record.n_values;
    w.own = w.chunk->own ? w.chunk->own + (size_t)(pos / TOK - w.chunk->pos0 / TOK) * TOK * n
                         : w.chunk->tail + a.cache.tail_off;
    return w;
}

/* Row r is head r % group of query r / group. */
__device__ inline uint32_t row_of(const work &w, uint32_t r)
{
    return w.row0 + r / w.group;
}
__device__ inline uint32_t head_of(const work &w, uint32_t r)
{
    return w.head * w.group + r % w.group;
}
__device__ inline size_t part_of(const nb_cuda_gqa_args &a, const work &w, uint32_t r)
{
    const uint32_t row = row_of(w, r);
    const uint32_t part = w.part_back ? a.part_first[row + 1] - 1 : a.part_first[row] + w.unit;
    return (size_t)part * a.n_head + head_of(w, r);
}

/* The dimension at which operand pair e (0: the first two of four, 1: the other two) of lane t = lane % 4 begins,
 * in k-step j of 16, in the order in which a lane holds its eight values. */
__device__ inline uint32_t place_of(uint32_t j, uint32_t e, uint32_t t)
{
    return j / 2 * 32 + 8 * t + j % 2 * 4 + 2 * e;
}

__device__ inline float low_part(float x)
{
    return x - nb_bf16_float(nb_bf16_bits(x));
}

/* Stores queries as A operands: [k-step of 16][part][lane] four registers. */
template <int NV>
__device__ void load_queries(const nb_cuda_gqa_args &a, const work &w, uint32_t first, uint32_t *q)
{
    constexpr uint32_t words = layout<NV, 1>::query_words;
    const uint32_t dim = (uint32_t)a.head_dim;
    for (uint32_t i = threadIdx.x; i < words; i += THREADS) {
        const uint32_t e = i % 4, lane = i / 4 % 32, part = i / 128 % 2, j = i / 256;
        const uint32_t r = first + lane / 4 + e % 2 * 8, d = place_of(j, e / 2, lane % 4);
        float x[2] = { 0, 0 };
        if (r < w.n_row) {
            const float *from = a.q + row_of(w, r) * a.q_stride + (size_t)head_of(w, r) * dim;
            for (uint32_t k = 0; k < 2; k++)
                if (d + k < dim) x[k] = from[d + k];
        }
        q[i] = part ? nb_pack_bf16(low_part(x[0]), low_part(x[1])) : nb_pack_bf16(x[0], x[1]);
    }
}

/* For any format; one copy of the code. */
struct eight {
    float v[8];
};
__device__ __noinline__ eight load8_any(const nb_record_seg &s, const unsigned char *page,
                                        uint32_t tok, uint32_t vec, uint32_t i0)
{
    eight x;
    nb_kv_load8_any(s, page, tok, vec, i0, x.v);
    return x;
}

/* Formats with a kernel of their own assume the usual layout: heads as wide as the kernel, no outliers, no fixed
 * scales, aligned words.  load8 tells the compiler so, or it would keep the other paths at a hundred places. */
__device__ __host__ inline bool usual(const nb_record_seg &s, size_t width)
{
    return s.dim == width && s.n_outlier == 0 && s.fixed_scale == 0 && s.code_off % 16 == 0 &&
           s.code_stride % 16 == 0;
}

/* Eight values of a token of the page: of vector `head` of segment seg, from dimension i0 on. */
template <int FMT, uint32_t width>
__device__ inline void load8(const nb_cuda_gqa_args &a, const work &w, const unsigned char *page,
                             uint32_t seg, uint32_t tok, uint32_t i0, float (&v)[8])
{
    const nb_record_seg &s = a.cache.record.seg[seg];
    if constexpr (FMT == OWN) {
        const uint32_t dim = (uint32_t)a.head_dim;
        const float *row = w.own + tok * a.cache.record.n_values + (seg ? a.n_kv_head * dim : 0) +
                           w.kv * dim + i0;
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) v[k] = tok < w.limit && i0 + k < dim ? row[k] : 0;
    } else if constexpr (FMT == ANY) {
        const eight x = load8_any(s, page, tok, w.kv, i0);
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) v[k] = x.v[k];
    } else {
        if (!usual(s, width)) __builtin_unreachable();
        nb_kv_load8<FMT>(s, page, tok, w.kv, i0, v);
    }
}

__device__ inline void split8(const float (&v)[8], uint32_t (&hi)[4], uint32_t (&lo)[4])
{
    nb_kv_pack8(v, hi);
#pragma unroll
    for (int k = 0; k < 4; k++) lo[k] = nb_pack_bf16(low_part(v[2 * k]), low_part(v[2 * k + 1]));
}

/* Copies the values of the warp's 16 tokens of the page to shared memory. */
template <int FMT, int NV, int PARTS>
__device__ void load_values(const nb_cuda_gqa_args &a, const work &w, const unsigned char *page,
                            uint32_t tok0, uint16_t *v)
{
    constexpr uint32_t ldv = layout<NV, PARTS>::ldv;
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t j = 0; j < NV / 4; j++)
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            const uint32_t t = 8 * n + lane / 4, i0 = 32 * j + lane % 4 * 8;
            if (FMT < 0 && i0 >= a.head_dim) continue;
            float x[8];
            uint32_t hi[4], lo[4];
            load8<FMT, 8 * NV>(a, w, page, 1, tok0 + t, i0, x);
            split8(x, hi, lo);
            *reinterpret_cast<uint4 *>(v + t * ldv + i0) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
            if constexpr (PARTS == 2)
                *reinterpret_cast<uint4 *>(v + (WARP_TOK + t) * ldv + i0) =
                    make_uint4(lo[0], lo[1], lo[2], lo[3]);
        }
}

/* s = q k^T for the warp's 16 tokens. */
template <int FMT, int NV, int PARTS>
__device__ void scores(const nb_cuda_gqa_args &a, const work &w, const unsigned char *page,
                       uint32_t tok0, const uint32_t *q, float (&s)[2][4])
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t n = 0; n < 2; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (uint32_t j = 0; j < NV / 4; j++) {
        const uint32_t i0 = 32 * j + lane % 4 * 8;
        if (FMT < 0 && 32 * j >= a.head_dim) break;
        uint32_t k[2][PARTS][4];
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            float x[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
            uint32_t lo[4];
            if (FMT >= 0 || i0 < a.head_dim)
                load8<FMT, 8 * NV>(a, w, page, 0, tok0 + 8 * n + lane / 4, i0, x);
            split8(x, k[n][0], lo);
#pragma unroll
            for (uint32_t e = 0; PARTS == 2 && e < 4; e++) k[n][PARTS - 1][e] = lo[e];
        }
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint4 *from = reinterpret_cast<const uint4 *>(q) + (2 * j + h) * 64 + lane;
            const uint4 x0 = from[0], x1 = from[32];
            const uint32_t hi[4] = { x0.x, x0.y, x0.z, x0.w }, lo[4] = { x1.x, x1.y, x1.z, x1.w };
#pragma unroll
            for (uint32_t n = 0; n < 2; n++) {
                nb_mma_bf16(s[n], hi, k[n][0][2 * h], k[n][0][2 * h + 1]);
                nb_mma_bf16(s[n], lo, k[n][0][2 * h], k[n][0][2 * h + 1]);
                if constexpr (PARTS == 2) nb_mma_bf16(s[n], hi, k[n][1][2 * h], k[n][1][2 * h + 1]);
            }
        }
    }
}

/* The warp's state of rows g and g + 8; lane = 4 g + t has columns 2t, 2t + 1 of every eight. */
template <int NV> struct state {
    float m[2], l[2], o[NV][4];
};

/* Online softmax: scores become weights, and the state is rescaled to the new maximum. */
template <int NV> __device__ void weights(float scale_log2, float (&s)[2][4], state<NV> &x)
{
    float factor[2];
#pragma unroll
    for (uint32_t k = 0; k < 2; k++) {
        float top = fmaxf(fmaxf(s[0][2 * k], s[0][2 * k + 1]), fmaxf(s[1][2 * k], s[1][2 * k + 1]));
        float sum = 0;
        top = fmaxf(top, __shfl_xor_sync(ALL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL, top, 2));
        const float m = fmaxf(x.m[k], __fmul_rn(top, scale_log2));
        const float base = m == -INFINITY ? 0 : m;
        factor[k] = nb_exp2(x.m[k] - base);
#pragma unroll
        for (uint32_t n = 0; n < 2; n++)
#pragma unroll
            for (uint32_t e = 2 * k; e < 2 * k + 2; e++) {
                s[n][e] = nb_exp2(__fmaf_rn(s[n][e], scale_log2, -base));
                sum += s[n][e];
            }
        sum += __shfl_xor_sync(ALL, sum, 1);
        sum += __shfl_xor_sync(ALL, sum, 2);
        x.l[k] = __fmaf_rn(x.l[k], factor[k], sum);
        x.m[k] = m;
    }
    if (!__any_sync(ALL, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
    for (uint32_t n = 0; n < NV; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) x.o[n][e] = __fmul_rn(x.o[n][e], factor[e / 2]);
}

template <int FMT, int NV, int PARTS>
__device__ void add_values(const nb_cuda_gqa_args &a, const uint16_t *v, const float (&s)[2][4],
                           state<NV> &x)
{
    constexpr uint32_t ldv = layout<NV, PARTS>::ldv;
    const uint32_t lane = threadIdx.x % 32;
    uint32_t hi[4], lo[4], b[4];
#pragma unroll
    for (uint32_t e = 0; e < 4; e++) {
        const float s0 = s[e / 2][e % 2 * 2], s1 = s[e / 2][e % 2 * 2 + 1];
        hi[e] = nb_pack_bf16(s0, s1);
        lo[e] = nb_pack_bf16(low_part(s0), low_part(s1));
    }
    v += lane % 16 * ldv + lane / 16 * 8;
#pragma unroll
    for (uint32_t n = 0; n < NV; n += 2) {
        if (FMT < 0 && 8 * n >= a.head_dim) break;
        nb_ldmatrix4_trans(b, v + 8 * n);
        nb_mma_bf16(x.o[n], hi, b[0], b[1]);
        nb_mma_bf16(x.o[n], lo, b[0], b[1]);
        nb_mma_bf16(x.o[n + 1], hi, b[2], b[3]);
        nb_mma_bf16(x.o[n + 1], lo, b[2], b[3]);
        if constexpr (PARTS == 2) {
            nb_ldmatrix4_trans(b, v + WARP_TOK * ldv + 8 * n);
            nb_mma_bf16(x.o[n], hi, b[0], b[1]);
            nb_mma_bf16(x.o[n + 1], hi, b[2], b[3]);
        }
    }
}

/* Masks the tokens from the limit on. */
__device__ inline void mask(uint32_t tok0, uint32_t limit, float (&s)[2][4])
{
#pragma unroll
    for (uint32_t n = 0; n < 2; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            if (tok0 + 8 * n + threadIdx.x % 4 * 2 + e % 2 >= limit) s[n][e] = -INFINITY;
}

/* Combines the warps' states in order: m and l through ml, o through sum; the last warp writes the result. */
template <int NV>
__device__ void join(const nb_cuda_gqa_args &a, const work &w, uint32_t first, float *sum,
                     float (*ml)[ROWS][2], const state<NV> &x)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = (uint32_t)a.head_dim;
    float factor[2], m[2], l[2];
#pragma unroll
    for (uint32_t k = 0; k < 2; k++)
        if (lane % 4 == 0) {
            ml[warp][lane / 4 + 8 * k][0] = x.m[k];
            ml[warp][lane / 4 + 8 * k][1] = x.l[k];
        }
    __syncthreads();
#pragma unroll
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t r = lane / 4 + 8 * k;
        m[k] = fmaxf(fmaxf(ml[0][r][0], ml[1][r][0]), fmaxf(ml[2][r][0], ml[3][r][0]));
        const float base = m[k] == -INFINITY ? 0 : m[k];
        l[k] = 0;
        for (uint32_t i = 0; i < WARPS; i++)
            l[k] = __fmaf_rn(ml[i][r][1], nb_exp2(ml[i][r][0] - base), l[k]);
        if (l[k] != l[k]) m[k] = l[k]; /* NaN raises no maximum; the state must not look empty */
        factor[k] = nb_exp2(x.m[k] - base);
    }
    for (uint32_t i = 0; i < WARPS; i++) {
        __syncthreads(); /* also ends the reads of values */
        if (i != warp) continue;
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t r = lane / 4 + 8 * k;
            const bool last = warp == WARPS - 1 && first + r < w.n_row;
            const size_t at = last ? part_of(a, w, first + r) : 0;
            if (last && lane % 4 == 0) {
                a.part_m[at] = m[k];
                a.part_l[at] = l[k];
            }
            float *to = sum + r * (8 * NV) + lane % 4 * 2;
            float *out = a.part_o + at * dim + lane % 4 * 2;
#pragma unroll
            for (uint32_t n = 0; n < NV; n++)
#pragma unroll
                for (uint32_t e = 0; e < 2; e++) {
                    const float before = warp ? to[8 * n + e] : 0;
                    const float y = __fmaf_rn(x.o[n][2 * k + e], factor[k], before);
                    if (warp != WARPS - 1)
                        to[8 * n + e] = y;
                    else if (last && 8 * n + lane % 4 * 2 + e < dim)
                        out[8 * n + e] = y;
                }
        }
    }
}

template <int FMT, int NV, int PARTS>
__global__ void __launch_bounds__(THREADS, NV <= 16 ? 4 : 2)
    gqa_kernel(NB_PARAM nb_cuda_gqa_args a, float scale_log2)
{
    typedef layout<NV, PARTS> at;
    NB_SHARED(uint32_t, q);
    __shared__ float ml[WARPS][ROWS][2];
    work w;
    if constexpr (FMT == OWN) {
        const uint32_t chunk = a.row_chunk[blockIdx.x];
        if (chunk == UINT32_MAX) return;
        w = work_of_row(a, blockIdx.x, chunk);
    } else {
        if (blockIdx.x >= *a.n_item) return;
        w = work_of_item(a, a.item[blockIdx.x]);
    }
    w.head = blockIdx.y;
    w.kv = kv0_of(a) + blockIdx.y;
    w.group = (uint32_t)(a.n_head / gridDim.y);
    w.n_row = w.n_q * w.group;
    const uint32_t first = blockIdx.z * ROWS;
    if (first >= w.n_row || w.n_page == 0) return;
    load_queries<NV>(a, w, first, q);
    __syncthreads();
    const uint32_t warp = threadIdx.x / 32, tok0 = warp * WARP_TOK;
    uint16_t *v = reinterpret_cast<uint16_t *>(q + at::query_words);
    uint16_t *mine = v + warp * (PARTS * WARP_TOK * at::ldv);
    state<NV> x;
    x.m[0] = x.m[1] = -INFINITY;
    x.l[0] = x.l[1] = 0;
#pragma unroll
    for (uint32_t n = 0; n < NV; n++) x.o[n][0] = x.o[n][1] = x.o[n][2] = x.o[n][3] = 0;
    for (uint32_t i = 0; i < w.n_page; i++) {
        if (FMT == OWN && tok0 >= w.limit) break;
        const unsigned char *page = nullptr;
        if constexpr (FMT != OWN)
            page = a.cache.pool +
                   (size_t)a.cache.block[w.chunk->block0 + w.page0 + i] * a.cache.block_bytes +
                   a.cache.layer_off;
        float s[2][4];
        load_values<FMT, NV, PARTS>(a, w, page, tok0, mine);
        scores<FMT, NV, PARTS>(a, w, page, tok0, q, s);
        if constexpr (FMT == OWN) mask(tok0, w.limit, s);
        weights(scale_log2, s, x);
        __syncwarp();
        add_values<FMT, NV, PARTS>(a, mine, s, x);
        __syncwarp();
    }
    join(a, w, first, reinterpret_cast<float *>(v), ml, x);
}

/* Combines the states of a row in order: a thread per element, BATCH states loaded at once. */
constexpr uint32_t JOIN = 128, BATCH = 8;
__global__ void join_kernel(NB_PARAM nb_cuda_gqa_args a)
{
    const uint32_t row = blockIdx.x, n_head = (uint32_t)a.n_head, dim = (uint32_t)a.head_dim;
    const uint32_t i = blockIdx.y * JOIN + threadIdx.x, head = i / dim;
    const size_t n = a.n_head * a.head_dim, first = a.part_first[row];
    const uint32_t n_part =
        a.row_chunk[row] == UINT32_MAX ? 0 : a.part_first[row + 1] - (uint32_t)first;
    if (i >= n) return;
    float m = -INFINITY, l = 0, o = 0;
    for (uint32_t k = 0; k < n_part; k += BATCH) {
        float pm[BATCH], pl[BATCH], po[BATCH];
#pragma unroll
        for (uint32_t j = 0; j < BATCH; j++) {
            const bool there = k + j < n_part;
            const size_t at = there ? first + k + j : first;
            pm[j] = there ? a.part_m[at * n_head + head] : -INFINITY;
            pl[j] = a.part_l[at * n_head + head];
            po[j] = a.part_o[at * n + i];
        }
#pragma unroll
        for (uint32_t j = 0; j < BATCH; j++) { /* states past the end count as empty */
            const nb_mla_merge f = nb_mla_merge_of(m, pm[j]);
            l = nb_mla_merged(f, l, pl[j]);
            o = nb_mla_merged(f, o, po[j]);
            m = f.m;
        }
    }
    nb_put(a.y, row * a.y.stride + i, l != 0 ? o / l : 0);
}

template <int FMT, int NV, int PARTS>
void launch(nb_cuda *g, const nb_cuda_gqa_args &a, size_t n_block, size_t n_q)
{
    const uint32_t group = group_of(a), n_kv = (uint32_t)((a.n_head + group - 1) / group);
    const uint32_t n_z = (uint32_t)((n_q * (a.n_head / n_kv) + ROWS - 1) / ROWS);
    const float scale_log2 = a.scale * 1.44269504088896340736f;
    const uint32_t bytes = layout<NV, PARTS>::bytes;
    if (n_block == 0) return;
    NB_SHARED_LIMIT(g, (gqa_kernel<FMT, NV, PARTS>), bytes);
    NB_LAUNCH(g, (gqa_kernel<FMT, NV, PARTS>), dim3((unsigned)n_block, n_kv, n_z),
              THREADS, bytes, a, scale_log2);
}

/* Formats exact in BF16 that have a kernel of their own; all others are looked up (ANY). */
template <int NV> void pages(nb_cuda *g, const nb_cuda_gqa_args &a)
{
    const nb_record_seg *s = a.cache.record.seg;
    const size_t n = a.max_item;
    switch (usual(s[0], 8 * NV) && usual(s[1], 8 * NV) && s[0].fmt == s[1].fmt ? s[0].fmt
                                                                               : NB_SEG_F32) {
    case NB_SEG_BF16: launch<NB_SEG_BF16, NV, 1>(g, a, n, NB_CUDA_QUERY_MAX); break;
    case NB_SEG_E4M3: launch<NB_SEG_E4M3, NV, 1>(g, a, n, NB_CUDA_QUERY_MAX); break;
    case NB_SEG_NVFP4: launch<NB_SEG_NVFP4, NV, 1>(g, a, n, NB_CUDA_QUERY_MAX); break;
    case NB_SEG_IF4: launch<NB_SEG_IF4, NV, 1>(g, a, n, NB_CUDA_QUERY_MAX); break;
    default: launch<ANY, NV, 2>(g, a, n, NB_CUDA_QUERY_MAX); break;
    }
    launch<OWN, NV, 2>(g, a, a.n_row, 1);
}

} // namespace

void nb_cuda_gqa(nb_cuda *g, const nb_cuda_gqa_args *a)
{
    if (a->n_row == 0) return;
    if (a->head_dim <= 64)
        pages<8>(g, *a);
    else if (a->head_dim <= 128)
        pages<16>(g, *a);
    else if (a->head_dim <= 256)
        pages<32>(g, *a);
    else
        nb_cuda_check(g, cudaErrorInvalidValue, "gqa: heads of more than 256");
    const unsigned n_y = (unsigned)((a->n_head * a->head_dim + JOIN - 1) / JOIN);
    NB_LAUNCH(g, join_kernel, dim3((unsigned)a->n_row, n_y), JOIN, 0, *a);
}
