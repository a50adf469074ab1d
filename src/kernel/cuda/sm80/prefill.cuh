/* prefill.cuh - shared by the kernels of expanded attention: the scheduling, and a state's arithmetic between the two
 * products.
 *
 * Queries lie in fragments of 16 rows per warp, four warps per page, as mma.sync and wgmma have them: lane = 4 g + t
 * owns rows g and g + 8, and of every eight columns 2t and 2t + 1. */
#ifndef NB_KERNEL_CUDA_SM80_PREFILL_CUH
#define NB_KERNEL_CUDA_SM80_PREFILL_CUH
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/ptx.cuh"
#include "num/record.h"

namespace
{
constexpr uint32_t TOK = NB_PAGE_TOK, ALL = 0xffffffffu;
constexpr uint32_t TILE_GROUPS = TOK / 8; /* columns of scores, in eights */

struct plan {
    nb_cuda_prefill_args a;
    uint32_t page_first, page_last; /* pages of the chunk's queries */
    uint32_t pages, n_block;        /* pages of queries per block; blocks per head */
    uint32_t n_step;                /* k-steps of 16 over the padded queries and keys */
    float scale_log2;
    bool pieces, whole; /* all rows are aligned pieces of 8 values; d_v is the kernel's */
};

inline bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* pages: of queries, per block */
inline plan plan_of(const nb_cuda_prefill_args *a, uint32_t pages)
{
    plan p = {};
    p.a = *a;
    p.page_first = (uint32_t)(a->pos0 / TOK);
    p.page_last = (uint32_t)((a->pos0 + a->n_tok - 1) / TOK);
    p.pages = pages;
    p.n_block = (p.page_last - p.page_first + pages) / pages;
    p.n_step = (uint32_t)((a->d_nope + a->d_rope + 15) / 16);
    p.scale_log2 = a->scale * 1.44269504088896340736f;
    p.pieces = (a->d_nope | a->d_rope | a->d_v | a->dec_stride | a->rope_stride) % 8 == 0 &&
               aligned(a->dec) && aligned(a->rope) && aligned(a->own) && aligned(a->own_rope);
    return p;
}

/* A tile's rows in memory: the head's keys and values, and the shared rope keys; rows from n_tok on are 0. */
struct source {
    const uint16_t *kv, *rope;
    uint32_t n_tok;
};

/* A block's pages and tiles: n_dec decoded tiles, then the own tiles of its pages. */
struct walk {
    uint32_t head, page, n_page, n_dec, n_tile;
};

__device__ inline walk walk_of(const plan &p)
{
    walk w;
    w.head = blockIdx.x;
    w.page = p.page_first + p.pages * (p.n_block - 1 - blockIdx.y);
    w.n_page = p.page_last + 1 - w.page < p.pages ? p.page_last + 1 - w.page : p.pages;
    const uint32_t page0 = (uint32_t)p.a.page0, n = (uint32_t)p.a.n_page;
    const uint32_t last = w.page + w.n_page - 1; /* the last page sees all pages before it */
    w.n_dec = last <= page0 ? 0 : last - page0 < n ? last - page0 : n;
    w.n_tile = w.n_dec + (p.a.last ? w.n_page : 0);
    return w;
}

__device__ inline source source_of(const plan &p, const walk &w, uint32_t tile)
{
    const size_t at = w.head * (p.a.d_nope + p.a.d_v);
    source s;
    if (tile < w.n_dec) {
        const size_t row = (size_t)tile * TOK;
        s.kv = p.a.dec + row * p.a.dec_stride + at;
        s.rope = p.a.rope + row * p.a.rope_stride;
        s.n_tok = TOK;
        return s;
    }
    const uint32_t page = w.page + (tile - w.n_dec);
    const size_t row = (size_t)(page - p.page_first) * TOK;
    const size_t end = p.a.pos0 + p.a.n_tok - (size_t)page * TOK;
    s.kv = p.a.own + row * p.a.dec_stride + at;
    s.rope = p.a.own_rope + row * p.a.rope_stride;
    s.n_tok = end < TOK ? (uint32_t)end : TOK;
    return s;
}

/* The token of the chunk at row r of the block's 128, which is place r % 64 of its page r / 64; n_tok: none. */
__device__ inline uint32_t token_of(const plan &p, const walk &w, uint32_t r)
{
    const size_t pos = (size_t)w.page * TOK + r, at = pos - p.a.pos0;
    return pos >= p.a.pos0 && at < p.a.n_tok ? (uint32_t)at : (uint32_t)p.a.n_tok;
}

/* ---- a warp's 16 queries ---- */

/* Rows g and g + 8 of the warp's fragments; lane = 4 g + t. */
template <int NV> struct state {
    float m[2], l[2], o[NV][4];
};

/* Loads the state of the lane's two rows (an empty one with `first`). */
template <int NV>
__device__ void load_state(const plan &p, const walk &w, uint32_t row, state<NV> &s)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, dv = (uint32_t)p.a.d_v;
#pragma unroll
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t t = token_of(p, w, row + g + 8 * k);
        const bool there = t < p.a.n_tok && !p.a.first;
        const size_t at = (size_t)t * p.a.n_head + w.head;
        s.m[k] = there ? p.a.m[at] : -INFINITY;
        s.l[k] = there ? p.a.l[at] : 0;
        const float *o = p.a.o + at * dv;
#pragma unroll
        for (uint32_t n = 0; n < NV; n++)
#pragma unroll
            for (uint32_t e = 0; e < 2; e++) {
                const uint32_t c = 8 * n + lane % 4 * 2 + e;
                s.o[n][2 * k + e] = there && c < dv ? o[c] : 0;
            }
    }
}

/* Stores two adjacent values of a row of y, in each form that y has. */
__device__ inline void put2(const nb_cuda_rows &y, size_t i, float v0, float v1)
{
    if (y.f) *reinterpret_cast<float2 *>(y.f + i) = make_float2(v0, v1);
    if (!y.hi) return;
    const uint32_t hi = nb_pack_bf16(v0, v1);
    *reinterpret_cast<uint32_t *>(y.hi + i) = hi;
    if (!y.lo) return;
    const float r0 = v0 - nb_bf16_float((uint16_t)hi),
                r1 = v1 - nb_bf16_float((uint16_t)(hi >> 16));
    *reinterpret_cast<uint32_t *>(y.lo + i) = nb_pack_bf16(r0, r1);
}

/* Stores a query's state, or with `last` its result. */
template <int NV>
__device__ void store_state(const plan &p, const walk &w, uint32_t row, const state<NV> &s)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, dv = (uint32_t)p.a.d_v, t2 = lane % 4 * 2;
#pragma unroll
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t t = token_of(p, w, row + g + 8 * k);
        if (t >= p.a.n_tok) continue;
        const size_t at = (size_t)t * p.a.n_head + w.head;
        const size_t y = (p.a.row0 + t) * p.a.y.stride + (size_t)w.head * dv + t2;
        const float l = s.l[k], inverse = l != 0 ? 1 / l : 0;
        if (lane % 4 == 0 && !p.a.last) {
            p.a.m[at] = s.m[k];
            p.a.l[at] = l;
        }
        float *o = p.a.o + at * dv + t2;
#pragma unroll
        for (uint32_t n = 0; n < NV; n++) {
            float v[2] = { s.o[n][2 * k], s.o[n][2 * k + 1] };
            if (p.a.last) v[0] = __fmul_rn(v[0], inverse), v[1] = __fmul_rn(v[1], inverse);
            if (p.whole && p.a.last) {
                put2(p.a.y, y + 8 * n, v[0], v[1]);
            } else if (p.whole) {
                *reinterpret_cast<float2 *>(o + 8 * n) = make_float2(v[0], v[1]);
            } else {
#pragma unroll
                for (uint32_t e = 0; e < 2; e++) {
                    if (8 * n + t2 + e >= dv) continue;
                    if (p.a.last)
                        nb_put(p.a.y, y + 8 * n + e, v[e]);
                    else
                        o[8 * n + e] = v[e];
                }
            }
        }
    }
}

/* Causal mask: place row + g (+ 8) of the page sees the tokens up to itself. */
__device__ inline void mask(uint32_t row, float (&s)[TILE_GROUPS][4])
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t n = 0; n < TILE_GROUPS; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            if (8 * n + lane % 4 * 2 + e % 2 > row + lane / 4 + e / 2 * 8) s[n][e] = -INFINITY;
}

/* Online softmax: scores become weights, m and l are updated; the caller multiplies o by the factors. */
template <int NV>
__device__ void weights(float scale_log2, float (&s)[TILE_GROUPS][4], state<NV> &x,
                        float (&factor)[2])
{
#pragma unroll
    for (uint32_t k = 0; k < 2; k++) {
        float top = -INFINITY, sum = 0;
#pragma unroll
        for (uint32_t n = 0; n < TILE_GROUPS; n++)
            top = fmaxf(top, fmaxf(s[n][2 * k], s[n][2 * k + 1]));
        top = fmaxf(top, __shfl_xor_sync(ALL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL, top, 2));
        const float m = fmaxf(x.m[k], __fmul_rn(top, scale_log2));
        const float base = m == -INFINITY ? 0 : m;
        factor[k] = nb_exp2(x.m[k] - base);
#pragma unroll
        for (uint32_t n = 0; n < TILE_GROUPS; n++)
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
}

template <int NV> __device__ void rescale(const float (&factor)[2], state<NV> &x)
{
    if (!__any_sync(ALL, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
    for (uint32_t n = 0; n < NV; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) x.o[n][e] = __fmul_rn(x.o[n][e], factor[e / 2]);
}

/* Weights of the j-th 16 tokens as A operand. */
__device__ inline void weight_fragment(const float (&s)[TILE_GROUPS][4], uint32_t j,
                                       uint32_t (&a)[4])
{
    a[0] = nb_pack_bf16(s[2 * j][0], s[2 * j][1]);
    a[1] = nb_pack_bf16(s[2 * j][2], s[2 * j][3]);
    a[2] = nb_pack_bf16(s[2 * j + 1][0], s[2 * j + 1][1]);
    a[3] = nb_pack_bf16(s[2 * j + 1][2], s[2 * j + 1][3]);
}

/* NaN or infinite values of a token that a query does not see must not reach it, but 0 times them is NaN.  So such
 * values of an own tile are replaced by zeros before the product; afterwards the rows that see them become NaN. */
__device__ inline bool is_bad(uint32_t bf16)
{
    return (bf16 & 0x7f80u) == 0x7f80u;
}

template <int NV>
__device__ void poison(const plan &p, const source &own, uint32_t row, state<NV> &x)
{
    const uint32_t lane = threadIdx.x % 32, dv = (uint32_t)p.a.d_v;
    const uint16_t *v = own.kv + p.a.d_nope + lane % 4 * 2;
    for (uint32_t t = 0; t < own.n_tok; t++, v += p.a.dec_stride)
#pragma unroll
        for (uint32_t n = 0; n < NV; n++)
#pragma unroll
            for (uint32_t e = 0; e < 2; e++) {
                const bool bad = 8 * n + lane % 4 * 2 + e < dv && is_bad(v[8 * n + e]);
                if (bad && t <= row + lane / 4) x.o[n][e] = NAN;
                if (bad && t <= row + lane / 4 + 8) x.o[n][2 + e] = NAN;
            }
}

} // namespace

#if !NB_CUDA_EMULATED
/* Compute capability 9.0: returns false, having done nothing, if it has no kernel for the shape. */
bool nb_cuda_prefill_wgmma(nb_cuda *g, const nb_cuda_prefill_args *a);
#endif

#endif
