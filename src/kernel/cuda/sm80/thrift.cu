/* thrift.cu - Thrift mode: chooses the tokens that a query reads refined, in four launches.
 *
 *   score   score[h][t] = scale * q . latent.  A block has one query, 16 MT of its heads and every n-th of its pages,
 *           in steps of 32 tokens with the tile of mla_tile.cuh: the products of the row "mma", without values.  The
 *           scores of all heads go to device memory.
 *   lse     lse[h] = log of the sum of exp(score).  A block has one head: first the largest, then the sum in double, in
 *           an order fixed by position.
 *   best    best[t] = maximum over heads of score - lse, by position.
 *   choose  A block has one query: it counts the tokens above the threshold; if there are too many, it finds the cap-th
 *           largest by a radix selection, a byte at a time; then it writes the list in order of position.
 *
 * A score does not depend on the grid, and every sum has one order, so a choice depends only on its sequence.
 * Bound by the latency of decoding pages in `score`, and by 4 n_head bytes per token, written once and read twice. */
#include "kernel/cuda/common/block.cuh"
#include "kernel/cuda/common/kv_decode.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/sm80/mla_tile.cuh"

namespace
{

enum { THREADS = 256, PICK_THREADS = 512, PAGE = NB_PAGE_TOK };

/* A row's chunk, its page and its place in the page; n: tokens of complete pages, 0 if nothing is to be chosen. */
struct query {
    nb_cuda_chunk c;
    uint32_t page, r0, n;
};

__device__ query query_of(const nb_cuda_thrift_args &a, uint32_t row)
{
    query x = {};
    const uint32_t chunk = a.row_chunk[row];
    if (chunk == UINT32_MAX || !a.on[row]) return x;
    x.c = a.cache.chunk[chunk];
    const uint32_t pos = x.c.pos0 + (row - x.c.row0);
    x.page = pos / PAGE;
    x.r0 = pos % PAGE;
    x.n = x.page * PAGE;
    return x;
}

__device__ float *score_row(const nb_cuda_thrift_args &a, uint32_t i, uint32_t head)
{
    return a.score + ((size_t)i * a.n_head + head) * a.stride;
}

/* ---- scores ---- */

__device__ void put8(const float (&v)[8], uint16_t *to, uint32_t lo, bool two)
{
    const uint4 p = nb_mt_pack8(v);
    *reinterpret_cast<uint4 *>(to) = p;
    if (two) *reinterpret_cast<uint4 *>(to + lo) = nb_mt_rest8(v, p);
}

/* Decodes half of a page, by the whole block: latents of format FMT, then rope keys. */
template <int FMT, bool LO>
__device__ void decode(const nb_record &r, const unsigned char *page, uint32_t tok0,
                       const nb_mt_shape &d, uint16_t *tile)
{
    const uint32_t n8 = d.kl / 8, k8 = (d.k - d.kl) / 8, lo = NB_MT_TOK * d.stride;
#pragma unroll 4
    for (uint32_t e = threadIdx.x; e < NB_MT_TOK * n8; e += THREADS) {
        const uint32_t t = e / n8, i = e % n8;
        float v[8] = { 0 };
        if (8 * i < d.lora) nb_kv_load8<FMT>(r.seg[0], page, tok0 + t, 0, 8 * i, v);
        put8(v, tile + t * d.stride + 8 * i, lo, LO);
    }
#pragma unroll 1
    for (uint32_t e = threadIdx.x; e < NB_MT_TOK * k8; e += THREADS) {
        const uint32_t t = e / k8, i = e % k8;
        float v[8] = { 0 };
        if (8 * i < d.d_rope) nb_kv_load8_any(r.seg[1], page, tok0 + t, 0, 8 * i, v);
        put8(v, tile + t * d.stride + d.kl + 8 * i, lo, LO);
    }
}

/* Copies rows of the query's own page, which BF16 holds exactly; rows from n_vis on are 0. */
__device__ void own_rows(const float *rows, uint32_t t0, uint32_t n_vis, const nb_mt_shape &d,
                         uint16_t *tile)
{
    const uint32_t n2 = d.k / 2;
    for (uint32_t e = threadIdx.x; e < NB_MT_TOK * n2; e += THREADS) {
        const uint32_t t = e / n2, c = 2 * (e % n2);
        const float *row = t0 + t < n_vis ? rows + (size_t)(t0 + t) * (d.lora + d.d_rope) : nullptr;
        *reinterpret_cast<uint32_t *>(tile + t * d.stride + c) =
            nb_pack_bf16(nb_mt_q(d, row, c), nb_mt_q(d, row, c + 1));
    }
}

/* Adds a step's partial scores and stores the first n_tok tokens' sums. */
template <int MT>
__device__ void put_scores(const nb_cuda_thrift_args &a, const nb_mt_work<MT> *s, uint32_t i,
                           uint32_t head0, uint32_t pos, uint32_t n_tok)
{
    for (uint32_t e = threadIdx.x; e < 16 * MT * NB_MT_TOK; e += THREADS) {
        const uint32_t r = e / NB_MT_TOK, t = e % NB_MT_TOK;
        float x = 0;
#pragma unroll
        for (int v = 0; v < NB_MT_WARPS; v++) x += s->x[v][r][t];
        if (head0 + r < a.n_head && t < n_tok) score_row(a, i, head0 + r)[pos + t] = x * a.scale;
    }
}

/* Grid: (blocks that share the pages, rows, groups of heads). */
template <int MT, bool LO>
__global__ void __launch_bounds__(THREADS) score(NB_PARAM nb_cuda_thrift_args a, nb_mt_shape d)
{
    const uint32_t i = blockIdx.y, row = (uint32_t)a.row0 + i, head0 = blockIdx.z * 16 * MT;
    const query x = query_of(a, row);
    if (blockIdx.x > x.page || x.n == 0) return;
    NB_SHARED(unsigned char, shared);
    nb_mt_work<MT> *s = reinterpret_cast<nb_mt_work<MT> *>(shared);
    uint16_t *tile = reinterpret_cast<uint16_t *>(shared + nb_mt_fixed_bytes(MT));
    const float *q = a.q + row * a.q_stride;
    const uint32_t g = threadIdx.x % 32 / 4, nh = (uint32_t)a.n_head;
    nb_mt_state<MT> z;
#pragma unroll
    for (int k = 0; k < MT; k++) {
        const uint32_t h = head0 + 16 * k + g;
        nb_mt_load_q<MT>(z, k, d, h < nh ? q + h * a.q_head : nullptr,
                         h + 8 < nh ? q + (h + 8) * a.q_head : nullptr, q);
    }
    for (uint32_t p = blockIdx.x; p <= x.page; p += gridDim.x) {
        const bool own = p == x.page;
        const uint32_t n_vis = own ? x.r0 + 1 : (uint32_t)PAGE;
        const float *rows = x.c.tail + a.cache.tail_off;
        if (x.c.own) rows = x.c.own + (size_t)(p - x.c.pos0 / PAGE) * PAGE * (d.lora + d.d_rope);
        const unsigned char *page = nullptr;
        if (!own)
            page = a.cache.pool + a.cache.layer_off +
                   a.cache.block[x.c.block0 + p] * a.cache.block_bytes;
#pragma unroll 1
        for (uint32_t t0 = 0; t0 < n_vis; t0 += NB_MT_TOK) {
            if (own)
                own_rows(rows, t0, n_vis, d, tile);
            else if (a.cache.record.seg[0].fmt == NB_SEG_NVFP4)
                decode<NB_SEG_NVFP4, LO>(a.cache.record, page, t0, d, tile);
            else
                decode<NB_SEG_IF4, LO>(a.cache.record, page, t0, d, tile);
            __syncthreads();
            if (LO && !own)
                nb_mt_scores<MT, true>(s, z, d, tile);
            else
                nb_mt_scores<MT, false>(s, z, d, tile);
            __syncthreads();
            put_scores<MT>(a, s, i, head0, p * PAGE + t0, n_vis - t0);
        }
    }
}

/* ---- probabilities ---- */

/* The maximum over the block; NaN propagates. */
__device__ float block_max(float x, float *shared)
{
    const uint32_t lane = threadIdx.x % 32, w = threadIdx.x / 32;
#pragma unroll
    for (int b = 16; b > 0; b /= 2) {
        const float y = __shfl_xor_sync(~0u, x, b);
        x = y > x || y != y ? y : x;
    }
    if (lane == 0) shared[w] = x;
    __syncthreads();
    x = shared[0];
    for (uint32_t k = 1; k < THREADS / 32; k++)
        x = shared[k] > x || shared[k] != shared[k] ? shared[k] : x;
    return x;
}

/* Grid: (heads, rows).  Same result as nb_thrift_lse. */
__global__ void __launch_bounds__(THREADS) lse(NB_PARAM nb_cuda_thrift_args a)
{
    __shared__ float tops[THREADS / 32];
    __shared__ double sums[THREADS];
    const query x = query_of(a, (uint32_t)a.row0 + blockIdx.y);
    if (x.n == 0) return;
    const float *s = score_row(a, blockIdx.y, blockIdx.x);
    const uint32_t n = x.n + x.r0 + 1;
    float top = -INFINITY;
    for (uint32_t t = threadIdx.x; t < n; t += THREADS) {
        const float y = s[t];
        if (y > top || y != y) top = y;
    }
    top = block_max(top, tops);
    double sum = 0;
    for (uint32_t t = threadIdx.x; t < n; t += THREADS) {
        const float y = s[t] - top;
        if (y > -40.0f) sum += (double)nb_exp2(y * 1.44269504088896341f);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (uint32_t k = THREADS / 2; k > 0; k /= 2) {
        if (threadIdx.x < k) sums[threadIdx.x] += sums[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    const bool plain = top == top && top != INFINITY && top != -INFINITY;
    a.lse[blockIdx.y * a.n_head + blockIdx.x] = plain ? (float)((double)top + log(sums[0])) : top;
}

/* Grid: (blocks that share the positions, rows). */
__global__ void __launch_bounds__(THREADS) best(NB_PARAM nb_cuda_thrift_args a)
{
    const uint32_t i = blockIdx.y, nh = (uint32_t)a.n_head;
    const query x = query_of(a, (uint32_t)a.row0 + i);
    const float *l = a.lse + i * a.n_head;
    for (uint32_t t = blockIdx.x * THREADS + threadIdx.x; t < x.n; t += gridDim.x * THREADS) {
        const float *s = score_row(a, i, 0) + t;
        float top = -INFINITY;
#pragma unroll 8
        for (uint32_t h = 0; h < nh; h++) {
            const float y = s[h * a.stride] - l[h];
            if (y > top) top = y;
        }
        a.best[i * a.stride + t] = top;
    }
}

/* ---- the choice ---- */

/* An integer that orders floats other than NaN; -0 and +0 are equal. */
__device__ uint32_t order_of(float x)
{
    const uint32_t u = __float_as_uint(x + 0.0f);
    return u >> 31 ? ~u : u | 0x80000000u;
}

struct limit {
    uint32_t key, n_equal; /* chosen: all larger keys, and this many equal to key */
};

/* The cap-th largest of the values above the threshold. */
__device__ limit last_taken(const float *x, uint32_t n, double above, uint32_t cap, uint32_t *count)
{
    uint32_t key = 0, known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        if (threadIdx.x < 256) count[threadIdx.x] = 0;
        __syncthreads();
        for (uint32_t t = threadIdx.x; t < n; t += PICK_THREADS) {
            const float y = x[t];
            if (!((double)y > above)) continue;
            const uint32_t k = order_of(y);
            if ((k & known) == key) atomicAdd(count + (k >> shift & 255), 1u);
        }
        __syncthreads();
        uint32_t b = 255;
        while (count[b] < cap) cap -= count[b--];
        key |= b << shift;
        known |= 255u << shift;
    }
    __syncthreads();
    return { key, cap };
}

__device__ uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Grid: rows. */
__global__ void __launch_bounds__(PICK_THREADS) choose(NB_PARAM nb_cuda_thrift_args a)
{
    __shared__ uint32_t count[256], warps[PICK_THREADS / 32];
    const uint32_t i = blockIdx.x, row = (uint32_t)a.row0 + i;
    const query x = query_of(a, row);
    if (x.n == 0) {
        if (threadIdx.x == 0) a.pick.n[row] = 0;
        return;
    }
    const float *y = a.best + i * a.stride;
    uint32_t *tok = a.pick.tok + row * a.pick.tok_stride;
    uint32_t *first = a.pick.first + row * a.pick.first_stride;
    const double want = ceil(a.fraction * (double)x.n);
    const uint32_t cap = want < (double)x.n ? (uint32_t)want : x.n;
    if (threadIdx.x == 0) count[0] = 0;
    __syncthreads();
    uint32_t mine = 0;
    for (uint32_t t = threadIdx.x; t < x.n; t += PICK_THREADS) mine += (double)y[t] > a.log_tau;
    if (mine) atomicAdd(count, mine);
    __syncthreads();
    const uint32_t n_above = count[0];
    limit last = { 0, 0 }; /* 0 is below the key of every number */
    if (n_above > cap) last = { UINT32_MAX, 0 };
    if (n_above > cap && cap > 0) last = last_taken(y, x.n, a.log_tau, cap, count);
    uint32_t n_more = 0, n_equal = 0;
    for (uint32_t t0 = 0; t0 < x.n && n_above > 0; t0 += PICK_THREADS) {
        const uint32_t t = t0 + threadIdx.x;
        const float v = t < x.n ? y[t] : -INFINITY;
        const bool above = t < x.n && (double)v > a.log_tau;
        const uint32_t key = order_of(v);
        const bool more = above && key > last.key, equal = above && key == last.key;
        uint32_t all;
        /* two counts of 16 bits */
        const uint32_t left = nb_block_before<PICK_THREADS>((more ? 1u : 0) | (equal ? 0x10000u : 0), warps, &all);
        const uint32_t eq = n_equal + (left >> 16);
        const uint32_t at = n_more + (left & 0xffff) + least(eq, last.n_equal);
        if (t < x.n && t % PAGE == 0) first[t / PAGE] = at;
        if (more || (equal && eq < last.n_equal)) tok[at] = t;
        n_more += all & 0xffff;
        n_equal += all >> 16;
    }
    if (threadIdx.x != 0) return;
    const uint32_t n = n_more + least(n_equal, last.n_equal);
    first[x.page] = n;
    a.pick.n[row] = n;
    unsigned long long *c = reinterpret_cast<unsigned long long *>(a.count);
    atomicAdd(c, (unsigned long long)x.n);
    atomicAdd(c + 1, (unsigned long long)n);
    atomicAdd(c + 2, (unsigned long long)(n_above - n));
    atomicAdd(c + 3, 2ull * x.page * a.cache.record.page_bytes);
}

/* ---- the operation ---- */

template <int MT, bool LO> void launch_score(nb_cuda *g, const nb_cuda_thrift_args *a)
{
    const nb_mt_shape d = nb_mt_shape_of(a->lora, a->d_rope);
    const size_t n = nb_mt_fixed_bytes(MT) + nb_mt_tile_bytes(d) * (LO ? 2 : 1);
    const size_t n_group = (a->n_head + 16 * MT - 1) / (16 * MT), most = a->stride / PAGE;
    const size_t fill = 4 * (size_t)g->n_sm / (a->n_row * n_group) + 1;
    const dim3 grid((unsigned)(fill < most ? fill : most), (unsigned)a->n_row, (unsigned)n_group);
    NB_SHARED_LIMIT(g, (score<MT, LO>), n);
    NB_LAUNCH(g, (score<MT, LO>), grid, THREADS, n, *a, d);
}

} // namespace

void nb_cuda_thrift(nb_cuda *g, const nb_cuda_thrift_args *a)
{
    if (a->n_row == 0) return;
    const nb_record_seg *s = a->cache.record.seg;
    const bool two = s[0].fixed_scale != 0 || s[1].fixed_scale != 0;
    if (a->n_head > 16 && two)
        launch_score<2, true>(g, a);
    else if (a->n_head > 16)
        launch_score<2, false>(g, a);
    else if (two)
        launch_score<1, true>(g, a);
    else
        launch_score<1, false>(g, a);
    NB_LAUNCH(g, lse, dim3((unsigned)a->n_head, (unsigned)a->n_row), THREADS, 0, *a);
    const size_t most = (a->stride + THREADS - 1) / THREADS;
    const size_t fill = 4 * (size_t)g->n_sm / a->n_row + 1;
    NB_LAUNCH(g, best, dim3((unsigned)(fill < most ? fill : most), (unsigned)a->n_row), THREADS, 0,
              *a);
    NB_LAUNCH(g, choose, (unsigned)a->n_row, PICK_THREADS, 0, *a);
}
