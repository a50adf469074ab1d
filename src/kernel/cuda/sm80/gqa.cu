/* gqa.cu - grouped-query attention over pages of any record, with mma.sync (m16n8k16, BF16 operands).
 *
 * Computes, for each query head, o = sum over tokens of p_t v_t / l with p_t = exp(scale q.k_t - m) and
 * l = sum of p_t.  The context is split into units of pages (api/nb_cuda_units.h, NB_CUDA_GQA_UNITS; a unit: a fixed range of
 * pages whose attention is one partial state (m, l, o)).  join_kernel combines the states of a query in order.
 *
 * Block: one work item (a unit of pages, up to NB_CUDA_QUERY_MAX queries) and one KV head.  The rows of its
 * products are the item's queries times the query heads of that KV head, 16 at a time (blockIdx.z).
 * Warp: four warps; each takes 16 tokens of every page and keeps a state of its own.  The four states are
 * combined at the end of the unit, always in the same order.
 * Own page: the page that a query is in has a block of its own, of the grid's first.  So a row that is not finite reaches
 * the queries that see it, and no others.
 *
 * Precision: queries and weights are split into two BF16 parts.  Keys and values are split too where a record's
 * values have more bits than BF16 (PARTS 2: int4, f32, fixed scales, the own page).  The product of the two low
 * parts is left out, since it is below the rounding of the others.  Error bound: that of attn_prefill.h with
 * eps = 2^-16.
 *
 * Decode is bound by latency, by decoding (4 bits) and by reading the pages.  A warp keeps a page's values and keys in flight while it computes
 * on the page before: raw bytes in registers (FMT >= 0), whose loads no store stands between.  A store to shared memory
 * may be to the same place as a load from the pool, as far as the compiler knows, so "load, convert, store" for each eight
 * values waited eight times for memory.  Scores are four chains of mma, not two.
 * H100, 32 heads on 8 of 128 values, one token each, us:
 *                              bf16         fp8     nvfp4
 *   1 of 32,768 tokens         93           78      113
 *     "load, convert, store"   163          133     121
 *   64 of 2,048                264          222     337
 *     "load, convert, store"   475          405     376
 *     two blocks per SM, queries loaded one by one, states joined by one warp after the other (all formats)
 *                              417          474     479
 * A prompt reads its pages once for every four queries. */
#include "kernel/cuda/sm80/gqa.cuh"

namespace
{
using namespace gqa;

/* Combines the warps' states in order: m and l through ml, o through v, where each warp has ROWS of ldv floats. */
template <int NV>
__device__ void join(const nb_cuda_gqa_args &a, const work &w, uint32_t first, float *v,
                     float (*ml)[ROWS][2], const state<NV> &x)
{
    constexpr uint32_t ldv = layout<NV>::ldv;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = (uint32_t)a.head_dim;
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
        float m = fmaxf(fmaxf(ml[0][r][0], ml[1][r][0]), fmaxf(ml[2][r][0], ml[3][r][0])), l = 0;
        const float base = m == -INFINITY ? 0 : m;
        for (uint32_t i = 0; i < WARPS; i++)
            l = __fmaf_rn(ml[i][r][1], nb_exp2(ml[i][r][0] - base), l);
        if (l != l) m = l; /* NaN raises no maximum; the state must not look empty */
        const float factor = nb_exp2(x.m[k] - base);
        float *to = v + (warp * ROWS + r) * ldv + lane % 4 * 2;
#pragma unroll
        for (uint32_t n = 0; n < NV; n++)
            *reinterpret_cast<float2 *>(to + 8 * n) =
                make_float2(__fmul_rn(x.o[n][2 * k], factor), __fmul_rn(x.o[n][2 * k + 1], factor));
        if (warp == 0 && lane % 4 == 0 && first + r < w.n_row) {
            const size_t at = part_of(a, w, first + r);
            a.part_m[at] = m;
            a.part_l[at] = l;
        }
    }
    __syncthreads();
    const uint32_t left = w.n_row - first, n_row = left < ROWS ? left : ROWS;
    for (uint32_t i = threadIdx.x; i < n_row * dim; i += THREADS) {
        const uint32_t r = i / dim, c = i % dim;
        float y = v[r * ldv + c];
#pragma unroll
        for (uint32_t k = 1; k < WARPS; k++) y = __fadd_rn(y, v[(k * ROWS + r) * ldv + c]);
        a.part_o[part_of(a, w, first + r) * dim + c] = y;
    }
}

template <int NV> __device__ inline void clear(state<NV> &x)
{
    x.m[0] = x.m[1] = -INFINITY;
    x.l[0] = x.l[1] = 0;
#pragma unroll
    for (uint32_t n = 0; n < NV; n++) x.o[n][0] = x.o[n][1] = x.o[n][2] = x.o[n][3] = 0;
}

/* Where the unit's pages are: page i's block is lane i's.  At most 32 pages. */
__device__ inline uint32_t blocks_of(const nb_cuda_gqa_args &a, const work &w)
{
    const uint32_t lane = threadIdx.x % 32;
    return lane < w.n_page ? a.cache.block[w.chunk->block0 + w.page0 + lane] : 0;
}
__device__ inline const unsigned char *page_of(const nb_cuda_gqa_args &a, uint32_t blocks, uint32_t i)
{
    return a.cache.pool + (size_t)__shfl_sync(ALL, blocks, (int)i) * a.cache.block_bytes +
           a.cache.layer_off;
}

/* The warp's state over the unit's pages. */
template <int FMT, int NV>
__device__ void fetched_pages(const nb_cuda_gqa_args &a, const work &w, uint32_t first,
                              float scale_log2, uint32_t *q, uint16_t *mine, state<NV> &x)
{
    const uint32_t tok0 = threadIdx.x / 32 * WARP_TOK, blocks = blocks_of(a, w);
    const unsigned char *page = page_of(a, blocks, 0);
    fetched<FMT, NV> key, value;
    fetch<FMT, NV>(a, w, page, 1, tok0, value);
    fetch<FMT, NV>(a, w, page, 0, tok0, key);
    load_queries<NV>(a, w, first, q);
    __syncthreads();
    for (uint32_t i = 0; i < w.n_page; i++) {
        const bool more = i + 1 < w.n_page;
        page = page_of(a, blocks, more ? i + 1 : i);
        if (large<FMT, NV>(value))
            put_values<FMT, NV, true>(value, mine);
        else
            put_values<FMT, NV, false>(value, mine);
        if (more) fetch<FMT, NV>(a, w, page, 1, tok0, value);
        __syncwarp();
        float s[2][4];
        if (large<FMT, NV>(key))
            scores<FMT, NV, true>(key, q, s);
        else
            scores<FMT, NV, false>(key, q, s);
        if (more) fetch<FMT, NV>(a, w, page, 0, tok0, key);
        weights(scale_log2, s, x);
        add_values<FMT, NV, 1>(a, mine, s, x);
        __syncwarp();
    }
}

/* The same for pages of any format, and for the own page. */
template <int FMT, int NV>
__device__ void other_pages(const nb_cuda_gqa_args &a, const work &w, uint32_t first,
                            float scale_log2, uint32_t *q, uint16_t *mine, state<NV> &x)
{
    const uint32_t tok0 = threadIdx.x / 32 * WARP_TOK, blocks = FMT == OWN ? 0 : blocks_of(a, w);
    load_queries<NV>(a, w, first, q);
    __syncthreads();
    for (uint32_t i = 0; i < w.n_page; i++) {
        if (FMT == OWN && tok0 >= w.limit) break;
        const unsigned char *page = FMT == OWN ? nullptr : page_of(a, blocks, i);
        float s[2][4];
        load_values<FMT, NV>(a, w, page, tok0, mine);
        scores<FMT, NV>(a, w, page, tok0, q, s);
        if constexpr (FMT == OWN) mask(tok0, w.limit, s);
        weights(scale_log2, s, x);
        __syncwarp();
        add_values<FMT, NV, 2>(a, mine, s, x);
        __syncwarp();
    }
}

/* The first n_row blocks are those of own pages; the others share the items. */
template <int FMT, int NV>
__global__ void __launch_bounds__(THREADS, NV <= 16 && FMT != NB_SEG_BF16 ? 3 : 2)
    gqa_kernel(NB_PARAM nb_cuda_gqa_args a, float scale_log2)
{
    NB_SHARED(uint32_t, q);
    __shared__ float ml[WARPS][ROWS][2];
    nb_grid_wait();
    nb_grid_next();
    uint16_t *v = reinterpret_cast<uint16_t *>(q + layout<NV>::query_words);
    uint16_t *mine = v + threadIdx.x / 32 * (2 * WARP_TOK * layout<NV>::ldv);
    float *sum = reinterpret_cast<float *>(v);
    const uint32_t first = blockIdx.z * ROWS, n_row = (uint32_t)a.n_row;
    if (blockIdx.x < n_row) {
        const uint32_t chunk = a.row_chunk[blockIdx.x];
        if (chunk == UINT32_MAX) return;
        const work w = of_head(a, work_of_row(a, blockIdx.x, chunk));
        if (first >= w.n_row) return;
        state<NV> x;
        clear(x);
        other_pages<OWN, NV>(a, w, first, scale_log2, q, mine, x);
        join(a, w, first, sum, ml, x);
        return;
    }
    for (uint32_t i = blockIdx.x - n_row; i < *a.n_item; i += gridDim.x - n_row) {
        const work w = of_head(a, work_of_item(a, a.item[i]));
        if (first >= w.n_row || w.n_page == 0) continue;
        state<NV> x;
        clear(x);
        if constexpr (FMT == ANY)
            other_pages<ANY, NV>(a, w, first, scale_log2, q, mine, x);
        else
            fetched_pages<FMT, NV>(a, w, first, scale_log2, q, mine, x);
        join(a, w, first, sum, ml, x);
    }
}

/* Combines the states of a row in order: a thread per element, BATCH states loaded at once. */
constexpr uint32_t JOIN = 128, BATCH = 8;
__global__ void join_kernel(NB_PARAM nb_cuda_gqa_args a)
{
    const uint32_t row = blockIdx.x, n_head = (uint32_t)a.n_head, dim = (uint32_t)a.head_dim;
    nb_grid_next();
    nb_grid_wait();
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

template <int FMT, int NV> void launch(nb_cuda *g, const nb_cuda_gqa_args &a)
{
    const uint32_t group = group_of(a), n_kv = (uint32_t)((a.n_head + group - 1) / group);
    const uint32_t n_z = (uint32_t)((NB_CUDA_QUERY_MAX * (a.n_head / n_kv) + ROWS - 1) / ROWS);
    const float scale_log2 = a.scale * 1.44269504088896340736f;
    /* Some rounds of what an SM holds: max_item is a graph's bound, and blocks without an item take time, too. */
    const size_t most = 8 * (size_t)g->n_sm / n_kv + 1, n_item = a.max_item < most ? a.max_item : most;
    const uint32_t bytes = layout<NV>::bytes;
    NB_SHARED_LIMIT(g, (gqa_kernel<FMT, NV>), bytes);
    NB_LAUNCH_EARLY(g, (gqa_kernel<FMT, NV>), dim3((unsigned)(a.n_row + n_item), n_kv, n_z),
                    dim3(THREADS), bytes, a, scale_log2);
}

/* Formats exact in BF16 that have a kernel of their own; all others are looked up (ANY). */
template <int NV> void pages(nb_cuda *g, const nb_cuda_gqa_args &a)
{
    const nb_record_seg *s = a.cache.record.seg;
    switch (usual(s[0], 8 * NV) && usual(s[1], 8 * NV) && s[0].fmt == s[1].fmt ? s[0].fmt
                                                                               : NB_SEG_F32) {
    case NB_SEG_BF16: launch<NB_SEG_BF16, NV>(g, a); break;
    case NB_SEG_E4M3: launch<NB_SEG_E4M3, NV>(g, a); break;
    case NB_SEG_NVFP4: launch<NB_SEG_NVFP4, NV>(g, a); break;
    case NB_SEG_IF4: launch<NB_SEG_IF4, NV>(g, a); break;
    default: launch<ANY, NV>(g, a); break;
    }
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
    NB_LAUNCH_EARLY(g, join_kernel, dim3((unsigned)a->n_row, n_y), dim3(JOIN), 0, *a);
}
