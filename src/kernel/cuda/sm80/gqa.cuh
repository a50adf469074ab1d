/* gqa.cuh - a warp's part of grouped-query attention over a page (gqa.cu): queries as operands, keys and values from the
 * page, scores, online softmax, weighted values.
 *
 * Keys go from the page straight into mma fragments: a lane reads eight values of one token, which are a
 * quarter of two k-steps of 16 when the dimensions are numbered to suit.  Queries are stored in shared memory in that
 * order.  Values pass through shared memory, one warp's 16 tokens at a time, to be transposed. */
#ifndef NB_KERNEL_CUDA_SM80_GQA_CUH
#define NB_KERNEL_CUDA_SM80_GQA_CUH
#include "kernel/cuda/common/kv_decode.cuh"
#include "kernel/cuda/common/mla_state.cuh"
#include "kernel/cuda/common/ops.cuh"

namespace gqa
{
constexpr uint32_t TOK = NB_PAGE_TOK, WARPS = 4, THREADS = 32 * WARPS, ROWS = 16, WARP_TOK = 16;
constexpr uint32_t ALL = 0xffffffffu;
/* FMT: ANY is any format, looked up for each eight values; OWN is the own page's rows of floats. */
constexpr int ANY = -1, OWN = -2;

/* NV: head_dim / 8, rounded up to a kernel's.  Values have one BF16 part or two. */
template <int NV> struct layout {
    static constexpr uint32_t steps = NV / 4;                   /* of 32 dimensions */
    static constexpr uint32_t query_words = steps * 4 * 32 * 4; /* two k-steps of 16, two parts */
    static constexpr uint32_t ldv = 8 * NV + 8;
    /* Per warp the values of 16 tokens in two parts, or 16 rows of floats of the result. */
    static constexpr uint32_t bytes = query_words * 4 + WARPS * 2 * WARP_TOK * ldv * 2;
};

/* What a block computes: n_q queries from row0 on; its rows are r = 16 blockIdx.z + .. of n_q * group. */
struct work {
    const nb_cuda_chunk *chunk;
    uint32_t row0, n_q, head, kv, group, n_row; /* head: KV head among those of these heads; kv: in the cache */
    uint32_t page0, n_page; /* pages of the sequence */
    uint32_t limit;         /* own page: number of tokens seen */
    const float *own;       /* own page: its first row of floats */
    bool aligned;           /* its rows, for loads of 16 bytes */
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
    const nb_cuda_units units = NB_CUDA_GQA_UNIT_LIST;
    w.page0 = (uint32_t)nb_cuda_unit_page(units, it.unit0);
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
    w.aligned = a.head_dim % 8 == 0 && n % 4 == 0 && (uintptr_t)w.own % 16 == 0;
    return w;
}

/* The work of this block's KV head. */
__device__ inline work of_head(const nb_cuda_gqa_args &a, work w)
{
    w.head = blockIdx.y;
    w.kv = kv0_of(a) + blockIdx.y;
    w.group = (uint32_t)(a.n_head / gridDim.y);
    w.n_row = w.n_q * w.group;
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
    const uint32_t dim = (uint32_t)a.head_dim, e = threadIdx.x % 4, lane = threadIdx.x / 4;
    const uint32_t r = first + lane / 4 + e % 2 * 8;
    const float *from = a.q;
    if (r < w.n_row) from += row_of(w, r) * a.q_stride + (size_t)head_of(w, r) * dim;
    float x[NV / 2][2];
#pragma unroll
    for (uint32_t i = 0; i < NV; i++) {
        const uint32_t d = place_of(i / 2, e / 2, lane % 4) + i % 2;
        x[i / 2][i % 2] = r < w.n_row && d < dim ? from[d] : 0;
    }
#pragma unroll
    for (uint32_t j = 0; j < NV / 2; j++) {
        q[2 * j * THREADS + threadIdx.x] = nb_pack_bf16(x[j][0], x[j][1]);
        q[(2 * j + 1) * THREADS + threadIdx.x] =
            nb_pack_bf16(low_part(x[j][0]), low_part(x[j][1]));
    }
}
static_assert(THREADS == 128, "a k-step and part of the queries has a word for each thread");

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

/* Eight values of a token of the page (FMT < 0): of vector `head` of segment seg, from dimension i0 on. */
template <int FMT>
__device__ inline void load8(const nb_cuda_gqa_args &a, const work &w, const unsigned char *page,
                             uint32_t seg, uint32_t tok, uint32_t i0, float (&v)[8])
{
    const nb_record_seg &s = a.cache.record.seg[seg];
    static_assert(FMT < 0, "other formats are fetched");
    if constexpr (FMT == OWN) {
        const uint32_t dim = (uint32_t)a.head_dim;
        const float *row = w.own + tok * a.cache.record.n_values + (seg ? a.n_kv_head * dim : 0) +
                           w.kv * dim + i0;
        const bool seen = tok < w.limit;
        if (w.aligned) {
            const float4 zero = make_float4(0, 0, 0, 0);
            const float4 x = seen ? reinterpret_cast<const float4 *>(row)[0] : zero;
            const float4 y = seen ? reinterpret_cast<const float4 *>(row)[1] : zero;
            v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
            v[4] = y.x, v[5] = y.y, v[6] = y.z, v[7] = y.w;
            return;
        }
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) v[k] = seen && i0 + k < dim ? row[k] : 0;
    } else {
        const eight x = load8_any(s, page, tok, w.kv, i0);
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) v[k] = x.v[k];
    }
}

/* What a lane reads of a segment of the warp's 16 tokens of a page: of tokens lane / 4 and 8 + lane / 4 values
 * 8 (lane % 4) .. of every 32. */
template <int FMT, int NV> struct fetched {
    nb_kv_raw8<FMT> x[NV / 4][2];
    uint32_t outer[2];
};

template <int FMT, int NV>
__device__ inline void fetch(const nb_cuda_gqa_args &a, const work &w, const unsigned char *page,
                             uint32_t seg, uint32_t tok0, fetched<FMT, NV> &f)
{
    const nb_record_seg &s = a.cache.record.seg[seg];
    const uint32_t lane = threadIdx.x % 32;
    if (!usual(s, 8 * NV)) __builtin_unreachable();
#pragma unroll
    for (uint32_t n = 0; n < 2; n++) {
        const uint32_t tok = tok0 + 8 * n + lane / 4;
        f.outer[n] = nb_kv_outer_byte<FMT>(s, page, tok, w.kv);
#pragma unroll
        for (uint32_t j = 0; j < NV / 4; j++)
            nb_kv_fetch8<FMT>(s, page, tok, w.kv, 32 * j + lane % 4 * 8, f.x[j][n]);
    }
}

__device__ inline void split8(const float (&v)[8], uint32_t (&hi)[4], uint32_t (&lo)[4])
{
    nb_kv_pack8(v, hi);
#pragma unroll
    for (int k = 0; k < 4; k++) lo[k] = nb_pack_bf16(low_part(v[2 * k]), low_part(v[2 * k + 1]));
}

template <int FMT, int NV> __device__ inline bool large(const fetched<FMT, NV> &f)
{
    return FMT != NB_SEG_BF16 &&
           __any_sync(ALL, f.outer[0] >= NB_KV_LARGE || f.outer[1] >= NB_KV_LARGE);
}

/* Writes the values of the warp's 16 tokens of the page to shared memory. */
template <int FMT, int NV, bool LARGE>
__device__ void put_values(const fetched<FMT, NV> &f, uint16_t *v)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t j = 0; j < NV / 4; j++)
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            uint32_t hi[4];
            nb_kv_pairs8<FMT, LARGE>(f.x[j][n], f.outer[n], hi);
            *reinterpret_cast<uint4 *>(v + (8 * n + lane / 4) * layout<NV>::ldv + 32 * j +
                                       lane % 4 * 8) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
        }
}

/* The same from pages that are not fetched.  Two parts; 32 values of every lane are read before the first is stored. */
template <int FMT, int NV>
__device__ void load_values(const nb_cuda_gqa_args &a, const work &w, const unsigned char *page,
                            uint32_t tok0, uint16_t *v)
{
    constexpr uint32_t ldv = layout<NV>::ldv, STEP = FMT == OWN ? 2 : 1;
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t j0 = 0; j0 < NV / 4; j0 += STEP) {
        float x[STEP][2][8];
#pragma unroll
        for (uint32_t i = 0; i < 2 * STEP; i++) {
            const uint32_t i0 = 32 * (j0 + i / 2) + lane % 4 * 8;
            if (i0 < a.head_dim)
                load8<FMT>(a, w, page, 1, tok0 + 8 * (i % 2) + lane / 4, i0, x[i / 2][i % 2]);
        }
#pragma unroll
        for (uint32_t i = 0; i < 2 * STEP; i++) {
            const uint32_t t = 8 * (i % 2) + lane / 4, i0 = 32 * (j0 + i / 2) + lane % 4 * 8;
            if (i0 >= a.head_dim) continue;
            uint32_t hi[4], lo[4];
            split8(x[i / 2][i % 2], hi, lo);
            *reinterpret_cast<uint4 *>(v + t * ldv + i0) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
            *reinterpret_cast<uint4 *>(v + (WARP_TOK + t) * ldv + i0) =
                make_uint4(lo[0], lo[1], lo[2], lo[3]);
        }
    }
}

/* s += q k^T over 32 dimensions; apart: products with a low part. */
template <int PARTS>
__device__ inline void multiply(const uint32_t (&k)[2][PARTS][4], const uint32_t *q, uint32_t j,
                                float (&s)[2][4], float (&apart)[2][4])
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint4 *from = reinterpret_cast<const uint4 *>(q) + (2 * j + h) * 64 + lane;
        const uint4 x0 = from[0], x1 = from[32];
        const uint32_t hi[4] = { x0.x, x0.y, x0.z, x0.w }, lo[4] = { x1.x, x1.y, x1.z, x1.w };
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            nb_mma_bf16(s[n], hi, k[n][0][2 * h], k[n][0][2 * h + 1]);
            nb_mma_bf16(apart[n], lo, k[n][0][2 * h], k[n][0][2 * h + 1]);
            if constexpr (PARTS == 2) nb_mma_bf16(apart[n], hi, k[n][1][2 * h], k[n][1][2 * h + 1]);
        }
    }
}

__device__ inline void sum_parts(float (&s)[2][4], const float (&apart)[2][4])
{
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) s[i / 4][i % 4] = __fadd_rn(s[i / 4][i % 4], apart[i / 4][i % 4]);
}

/* s = q k^T for the warp's 16 tokens. */
template <int FMT, int NV, bool LARGE>
__device__ void scores(const fetched<FMT, NV> &f, const uint32_t *q, float (&s)[2][4])
{
    float apart[2][4] = {};
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) s[i / 4][i % 4] = 0;
#pragma unroll
    for (uint32_t j = 0; j < NV / 4; j++) {
        uint32_t k[2][1][4];
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) nb_kv_pairs8<FMT, LARGE>(f.x[j][n], f.outer[n], k[n][0]);
        multiply<1>(k, q, j, s, apart);
    }
    sum_parts(s, apart);
}

/* The same from pages that are not fetched. */
template <int FMT, int NV>
__device__ void scores(const nb_cuda_gqa_args &a, const work &w, const unsigned char *page,
                       uint32_t tok0, const uint32_t *q, float (&s)[2][4])
{
    const uint32_t lane = threadIdx.x % 32;
    float apart[2][4] = {};
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) s[i / 4][i % 4] = 0;
#pragma unroll
    for (uint32_t j = 0; j < NV / 4; j++) {
        const uint32_t i0 = 32 * j + lane % 4 * 8;
        if (32 * j >= a.head_dim) break;
        uint32_t k[2][2][4];
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            float x[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
            if (i0 < a.head_dim) load8<FMT>(a, w, page, 0, tok0 + 8 * n + lane / 4, i0, x);
            split8(x, k[n][0], k[n][1]);
        }
        multiply<2>(k, q, j, s, apart);
    }
    sum_parts(s, apart);
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
    constexpr uint32_t ldv = layout<NV>::ldv;
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
} // namespace gqa

#endif
