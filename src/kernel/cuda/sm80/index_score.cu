/* index_score.cu - scores of a sparse attention's indexer: s[t] = sum_h w_h max(0, q_h . k_t).
 *
 * Row "mma": keys in E4M3, of 64 or 128 values.  A warp has 32 tokens.  Their codes go from memory to registers, 16 bytes
 * to a load, and become FP16 there, exactly: the rows of mma.m16n8k16.  Heads are its columns; the queries are in shared
 * memory, in the order that the lanes have the keys (NB_CUDA_INDEX_PLACE).  A token's sum over the heads is a chain per
 * lane and two steps over four lanes.  The next tile's codes are loaded before a tile is computed.
 *   Keys of the row's own page are BF16 values: each token is divided by a power of two, which leaves them exact in FP16
 * but for values below 2^-24 of its largest.
 *   With `share` rows of one chunk in a block, they read a tile of keys once.
 * 131,072 tokens and 64 heads are 17 MB and 2.1 GFLOP, 5.6 us of memory and 4 of mma.sync on an H100: one query's tokens
 * are spread over all SMs, three blocks each.
 *
 * Row "simt": any keys, in float.  A block takes 16 tokens of a row at a time, decoded to shared memory; a thread has a
 * token and every eighth head.
 *
 * Neither the grid nor other rows change an order of summation. */
#include "kernel/cuda/common/kv_decode.cuh"
#include "kernel/cuda/common/ops.cuh"

namespace
{
constexpr uint32_t PAGE = NB_PAGE_TOK, NONE = UINT32_MAX, MAX_SHARE = 4;

/* A row's chunk and position, NONE: it has no scores; the tokens that it sees. */
struct query {
    nb_cuda_chunk c;
    uint32_t pos, n;
};

__device__ uint32_t page_rows(const nb_cuda_index_score_args &a)
{
    return a.ratio ? PAGE / (uint32_t)a.ratio : PAGE;
}

__device__ query query_of(const nb_cuda_index_score_args &a, uint32_t i)
{
    query x = {};
    x.pos = NONE;
    const uint32_t row = (uint32_t)a.row0 + i;
    const uint32_t chunk = i < a.n_row ? a.row_chunk[row] : NONE;
    if (chunk == NONE) return x;
    x.c = a.cache.chunk[chunk];
    const uint32_t pos = x.c.pos0 + (row - x.c.row0);
    x.n = a.ratio ? (pos + 1) / (uint32_t)a.ratio : pos + 1;
    if (x.n > a.k) x.pos = pos;
    return x;
}

/* The keys in the rows of the page that contains the query. */
__device__ const float *own_keys(const nb_cuda_index_score_args &a, const query &x)
{
    const nb_record &r = a.cache.record;
    const float *rows = x.c.tail + a.cache.tail_off;
    if (x.c.own) rows = x.c.own + (size_t)(x.pos / PAGE - x.c.pos0 / PAGE) * page_rows(a) * r.n_values;
    return rows + r.seg[a.seg].first;
}

__device__ const unsigned char *page_at(const nb_cuda_index_score_args &a, const nb_cuda_chunk &c,
                                        uint32_t page)
{
    return a.cache.pool + a.cache.layer_off + (size_t)a.cache.block[c.block0 + page] * a.cache.block_bytes;
}

/* ---- tensor cores ---- */

constexpr uint32_t WARPS = 4, THREADS = 32 * WARPS, TILE = 32;

/* A warp's 32 keys: rows 16 m + 8 h + lane / 4, for m, h in 0, 1. */
template <int DIM> struct keys {
    static constexpr uint32_t STEPS = DIM / 16;
    uint32_t a[2][STEPS][4];
    float factor[2][2]; /* of the token's scores */
};
template <int DIM> struct codes {
    uint4 v[2][2][DIM / 64];
    uint32_t outer[2][2];
};

template <int DIM>
__device__ __forceinline__ void fetch(const nb_record_seg &s, const unsigned char *page, uint32_t t0,
                                      codes<DIM> &x)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t m = 0; m < 2; m++)
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t tok = t0 + 16 * m + 8 * h + lane / 4;
            const unsigned char *p = page + (uint32_t)s.code_off + tok * DIM + lane % 4 * 16;
#pragma unroll
            for (uint32_t l = 0; l < DIM / 64; l++) x.v[m][h][l] = nb_ldg_stream(p + 64 * l);
            x.outer[m][h] = page[(uint32_t)s.outer_off + tok];
        }
}

/* Two E4M3 codes, the bytes `at` and `at` + 1 of w, as FP16, times 2^-8. */
__device__ __forceinline__ uint32_t half_of(uint32_t w, bool upper)
{
    const uint32_t x = __byte_perm(w, 0, upper ? 0x3424 : 0x1404);
    return (x & 0x80008000u) | (x & 0x7f007f00u) >> 1;
}

template <int DIM> __device__ __forceinline__ void decode(const codes<DIM> &x, keys<DIM> &k)
{
#pragma unroll
    for (uint32_t m = 0; m < 2; m++)
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t outer = x.outer[m][h];
            k.factor[m][h] = outer ? nb_kv_pow2(outer) * 256.0f : 0;
#pragma unroll
            for (uint32_t l = 0; l < DIM / 64; l++) {
                const uint32_t w[4] = { x.v[m][h][l].x, x.v[m][h][l].y, x.v[m][h][l].z, x.v[m][h][l].w };
#pragma unroll
                for (uint32_t c = 0; c < 4; c++) {
                    k.a[m][4 * l + c][h] = half_of(w[c], false);
                    k.a[m][4 * l + c][2 + h] = half_of(w[c], true);
                }
            }
        }
}

/* Keys of rows, of the halves [M0, M1); tokens from n_vis on are 0. */
template <int DIM, uint32_t M0 = 0, uint32_t M1 = 2>
__device__ __forceinline__ void load_own(const float *rows, size_t stride, uint32_t t0, uint32_t n_vis,
                                      keys<DIM> &k)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t m = M0; m < M1; m++)
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t tok = t0 + 16 * m + 8 * h + lane / 4;
            const float *p = rows + tok * stride + lane % 4 * 16;
            uint32_t top = 0;
            for (uint32_t l = 0; l < DIM / 64; l++)
                for (uint32_t i = 0; i < 16 && tok < n_vis; i++) {
                    const uint32_t mag = __float_as_uint(p[64 * l + i]) & 0x7fffffffu;
                    top = mag > top ? mag : top;
                }
            for (int d = 1; d < 4; d *= 2) {
                const uint32_t other = __shfl_xor_sync(~0u, top, d);
                top = other > top ? other : top;
            }
            int e = (int)(top >> 23) - 127;
            e = top == 0 || top >= 0x7f800000u ? 0 : e < -100 ? -100 : e;
            const float by = nb_kv_pow2((uint32_t)(127 - (e > 120 ? 120 : e)));
            k.factor[m][h] = nb_kv_pow2((uint32_t)(127 + (e > 120 ? 120 : e)));
#pragma unroll
            for (uint32_t l = 0; l < DIM / 64; l++)
#pragma unroll
                for (uint32_t c = 0; c < 4; c++) {
                    float v[4];
#pragma unroll
                    for (uint32_t i = 0; i < 4; i++)
                        v[i] = tok < n_vis ? p[64 * l + 4 * c + i] * by : 0.0f;
                    k.a[m][4 * l + c][h] = nb_pack_f16(v[0], v[1]);
                    k.a[m][4 * l + c][2 + h] = nb_pack_f16(v[2], v[3]);
                }
        }
}

/* Scores of the tokens below n_vis of a tile.  q: [n_head][DIM + 8] in shared memory. */
template <int DIM>
__device__ __forceinline__ void put_scores(const keys<DIM> &k, const uint16_t *q, const float *w,
                                           uint32_t n_head, float *to, uint32_t n_vis)
{
    const uint32_t lane = threadIdx.x % 32, t = lane % 4;
    const uint16_t *row = q + (lane / 16 * 8 + lane % 8) * (DIM + 8) + lane / 8 % 2 * 8;
    float sum[2][2] = { { 0, 0 }, { 0, 0 } };
#pragma unroll 1
    for (uint32_t h0 = 0; h0 < n_head; h0 += 16) {
        float acc[2][2][4] = {};
#pragma unroll
        for (uint32_t s = 0; s < keys<DIM>::STEPS; s++) {
            uint32_t b[4];
            nb_ldmatrix4(b, row + h0 * (DIM + 8) + 16 * s);
#pragma unroll
            for (uint32_t m = 0; m < 2; m++) {
                nb_mma_f16(acc[m][0], k.a[m][s], b[0], b[1]);
                nb_mma_f16(acc[m][1], k.a[m][s], b[2], b[3]);
            }
        }
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            const float2 f = *reinterpret_cast<const float2 *>(w + h0 + 8 * n + 2 * t);
#pragma unroll
            for (uint32_t m = 0; m < 2; m++)
#pragma unroll
                for (uint32_t h = 0; h < 2; h++) {
                    sum[m][h] = __fmaf_rn(f.x, fmaxf(acc[m][n][2 * h], 0), sum[m][h]);
                    sum[m][h] = __fmaf_rn(f.y, fmaxf(acc[m][n][2 * h + 1], 0), sum[m][h]);
                }
        }
    }
#pragma unroll
    for (uint32_t m = 0; m < 2; m++)
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float x = sum[m][h];
            x += __shfl_xor_sync(~0u, x, 1);
            x += __shfl_xor_sync(~0u, x, 2);
            const uint32_t tok = 16 * m + 8 * h + lane / 4;
            if (t == 2 * m + h && tok < n_vis) to[tok] = x * k.factor[m][h];
        }
}

/* The queries of a block. */
struct share {
    query x[MAX_SHARE];
    uint32_t most; /* the last position; NONE: no row has scores */
};

__device__ void load_queries(const nb_cuda_index_score_args &a, uint32_t i0, uint32_t n, uint32_t nh,
                             uint32_t dim, uint16_t *q, float *w)
{
    const uint32_t per = dim / 8, n_row = a.n_row - i0 < n ? (uint32_t)a.n_row - i0 : n;
    const uint16_t *from = a.q16 + (size_t)i0 * nh * dim;
    for (uint32_t e = threadIdx.x; e < n_row * nh * per; e += THREADS)
        nb_cp_async16(q + e / per * (dim + 8) + e % per * 8, from + (size_t)e * 8);
    for (uint32_t e = threadIdx.x; e < n_row * nh; e += THREADS) w[e] = a.w16[(size_t)i0 * nh + e];
    nb_cp_async_commit();
}

/* The half M of tile `tile` of compressed rows, 16 to a page: codes of a complete page, or rows of the query's own. */
template <int DIM, uint32_t M>
__device__ __forceinline__ void load_half(const nb_cuda_index_score_args &a, const query &x, uint32_t tile, keys<DIM> &k)
{
    const nb_record_seg &s = a.cache.record.seg[a.seg];
    const uint32_t per = page_rows(a), first = tile * TILE + 16 * M, page = first / per, lane = threadIdx.x % 32;
    if (page >= x.pos / PAGE) {
        const uint32_t t0 = first % per, seen = x.n > page * per ? x.n - page * per : 0;
        const uint32_t n = page > x.pos / PAGE ? 0 : seen; /* behind the own page there is nothing */
        /* load_own adds 16 M to t0 */
        load_own<DIM, M, M + 1>(own_keys(a, x) + (ptrdiff_t)t0 * (ptrdiff_t)a.cache.record.n_values -
                                    (ptrdiff_t)(16 * M * a.cache.record.n_values),
                                a.cache.record.n_values, 0, n > t0 ? n - t0 + 16 * M : 0, k);
        return;
    }
    const unsigned char *from = page_at(a, x.c, page);
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t tok = first % per + 8 * h + lane / 4;
        const unsigned char *p = from + (uint32_t)s.code_off + tok * DIM + lane % 4 * 16;
        const uint32_t outer = from[(uint32_t)s.outer_off + tok];
        k.factor[M][h] = outer ? nb_kv_pow2(outer) * 256.0f : 0;
#pragma unroll
        for (uint32_t l = 0; l < DIM / 64; l++) {
            const uint4 v = nb_ldg_stream(p + 64 * l);
            const uint32_t w[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
            for (uint32_t c = 0; c < 4; c++) {
                k.a[M][4 * l + c][h] = half_of(w[c], false);
                k.a[M][4 * l + c][2 + h] = half_of(w[c], true);
            }
        }
    }
}

/* The same for compressed rows, one query to a block.  Grid: (blocks that share the tiles, rows). */
template <int DIM>
__global__ void __launch_bounds__(THREADS, 3) score_rows(NB_PARAM nb_cuda_index_score_args a, uint32_t nh)
{
    NB_SHARED(unsigned char, shared);
    const uint32_t i = blockIdx.y;
    uint16_t *q = reinterpret_cast<uint16_t *>(shared);
    float *w = reinterpret_cast<float *>(shared + (size_t)nh * (DIM + 8) * 2);
    nb_grid_next();
    nb_grid_wait();
    const query x = query_of(a, i);
    if (x.pos == NONE || blockIdx.x * WARPS * TILE >= x.n) return;
    load_queries(a, i, 1, nh, DIM, q, w);
    nb_cp_async_wait<0>();
    __syncthreads();
    for (uint32_t tile = blockIdx.x * WARPS + threadIdx.x / 32; tile * TILE < x.n; tile += gridDim.x * WARPS) {
        const uint32_t left = x.n - tile * TILE;
        keys<DIM> k;
        load_half<DIM, 0>(a, x, tile, k);
        load_half<DIM, 1>(a, x, tile, k);
        put_scores<DIM>(k, q, w, nh, a.score + (size_t)i * a.stride + tile * TILE, left < TILE ? left : TILE);
    }
}

/* Grid: (blocks that share the tiles, groups of rows). */
template <int DIM>
__global__ void __launch_bounds__(THREADS, 3) score_mma(NB_PARAM nb_cuda_index_score_args a, uint32_t nh)
{
    NB_SHARED(unsigned char, shared);
    __shared__ share z[1];
    const uint32_t n = (uint32_t)a.share, i0 = blockIdx.y * n, warp = threadIdx.x / 32;
    const nb_record_seg &s = a.cache.record.seg[a.seg];
    uint16_t *q = reinterpret_cast<uint16_t *>(shared);
    float *w = reinterpret_cast<float *>(shared + (size_t)n * nh * (DIM + 8) * 2);
    nb_grid_next();
    nb_grid_wait();
    load_queries(a, i0, n, nh, DIM, q, w);
    if (threadIdx.x == 0) {
        z->most = NONE;
        for (uint32_t i = 0; i < n; i++) {
            z->x[i] = query_of(a, i0 + i);
            if (z->x[i].pos != NONE && (z->most == NONE || z->x[i].pos > z->most)) z->most = z->x[i].pos;
        }
    }
    nb_cp_async_wait<0>();
    __syncthreads();
    if (z->most == NONE) return;
    uint32_t any = 0;
    while (z->x[any].pos == NONE) any++;
    const nb_cuda_chunk &c = z->x[any].c;
    const uint32_t last = z->most / PAGE, n_tile = z->most / TILE + 1, step = gridDim.x * WARPS;
    uint32_t tile = blockIdx.x * WARPS + warp;
    codes<DIM> raw;
    if (tile < 2 * last) fetch<DIM>(s, page_at(a, c, tile / 2), tile % 2 * TILE, raw);
    for (; tile < n_tile; tile += step) {
        const uint32_t page = tile / 2, t0 = tile % 2 * TILE, next = tile + step;
        keys<DIM> k;
        if (page < last) {
            decode<DIM>(raw, k);
            if (next < 2 * last) fetch<DIM>(s, page_at(a, c, next / 2), next % 2 * TILE, raw);
            for (uint32_t i = 0; i < n; i++)
                if (z->x[i].pos != NONE && z->x[i].pos / PAGE > page)
                    put_scores<DIM>(k, q + i * nh * (DIM + 8), w + i * nh, nh,
                                    a.score + (size_t)(i0 + i) * a.stride + tile * TILE, TILE);
        }
        uint32_t vis = 0; /* tokens of the page that some row has as its own */
        for (uint32_t i = 0; i < n; i++)
            if (z->x[i].pos != NONE && z->x[i].pos / PAGE == page && z->x[i].pos % PAGE >= vis)
                vis = z->x[i].pos % PAGE + 1, any = i;
        if (vis <= t0) continue;
        load_own<DIM>(own_keys(a, z->x[any]), a.cache.record.n_values, t0, vis, k);
        for (uint32_t i = 0; i < n; i++)
            if (z->x[i].pos != NONE && z->x[i].pos / PAGE == page && z->x[i].pos % PAGE >= t0)
                put_scores<DIM>(k, q + i * nh * (DIM + 8), w + i * nh, nh,
                                a.score + (size_t)(i0 + i) * a.stride + tile * TILE,
                                z->x[i].pos % PAGE - t0 + 1);
    }
}

template <int DIM> void launch(nb_cuda *g, const nb_cuda_index_score_args *a)
{
    const size_t nh = NB_CUDA_INDEX_HEADS(a->n_head), n_group = (a->n_row + a->share - 1) / a->share;
    const size_t bytes = a->share * nh * ((DIM + 8) * 2 + sizeof(float));
    const size_t most = (a->stride / TILE + WARPS - 1) / WARPS;
    const size_t fill = (3 * (size_t)g->n_sm + n_group - 1) / n_group;
    const dim3 grid((unsigned)(fill < most ? fill : most), (unsigned)n_group);
    if (a->ratio) {
        NB_SHARED_LIMIT(g, score_rows<DIM>, bytes);
        NB_LAUNCH_EARLY(g, score_rows<DIM>, grid, THREADS, bytes, *a, (uint32_t)nh);
        return;
    }
    NB_SHARED_LIMIT(g, score_mma<DIM>, bytes);
    NB_LAUNCH_EARLY(g, score_mma<DIM>, grid, THREADS, bytes, *a, (uint32_t)nh);
}

/* ---- any keys ---- */

constexpr uint32_t TOK = 16, LANES = 8;

/* Grid: (blocks that share the tokens, rows).  Shared: [TOK][dim + 1] keys. */
__global__ void __launch_bounds__(TOK *LANES) score_simt(NB_PARAM nb_cuda_index_score_args a)
{
    NB_SHARED(float, key);
    __shared__ float part[LANES][TOK];
    nb_grid_next();
    nb_grid_wait();
    const uint32_t i = blockIdx.y, dim = (uint32_t)a.dim, n8 = (dim + 7) / 8;
    const uint32_t tok = threadIdx.x % TOK, lane = threadIdx.x / TOK;
    const query x = query_of(a, i);
    if (x.pos == NONE) return;
    const float *q = a.q + (size_t)i * a.n_head * dim, *w = a.w + (size_t)i * a.n_head;
    const uint32_t per = page_rows(a);
    for (uint32_t p0 = blockIdx.x * TOK; p0 < x.n; p0 += gridDim.x * TOK) {
        const uint32_t page = p0 / per, t0 = p0 % per;
        const bool own = page == x.pos / PAGE;
        const uint32_t n = own && x.n - p0 < TOK ? x.n - p0 : TOK;
        for (uint32_t e = threadIdx.x; e < TOK * n8; e += TOK * LANES) {
            const uint32_t t = e / n8, d0 = e % n8 * 8;
            float v[8] = { 0 };
            if (own && t < n)
                for (uint32_t d = 0; d < 8 && d0 + d < dim; d++)
                    v[d] = own_keys(a, x)[(t0 + t) * a.cache.record.n_values + d0 + d];
            else if (!own)
                nb_kv_load8_any(a.cache.record.seg[a.seg], page_at(a, x.c, page), t0 + t, 0, d0, v);
            for (uint32_t d = 0; d < 8 && d0 + d < dim; d++) key[t * (dim + 1) + d0 + d] = v[d];
        }
        __syncthreads();
        float sum = 0;
        for (uint32_t h = lane; h < a.n_head; h += LANES) {
            float dot = 0;
            for (uint32_t d = 0; d < dim; d++)
                dot = __fmaf_rn(q[h * dim + d], key[tok * (dim + 1) + d], dot);
            sum = __fmaf_rn(w[h], fmaxf(dot, 0), sum);
        }
        part[lane][tok] = sum;
        __syncthreads();
        if (lane == 0 && tok < n) {
            for (uint32_t l = 1; l < LANES; l++) sum += part[l][tok];
            a.score[(size_t)i * a.stride + p0 + tok] = sum;
        }
        __syncthreads();
    }
}
} // namespace

bool nb_cuda_index_score_mma_can(const nb_record *r, size_t seg, size_t n_head)
{
    const nb_record_seg *s = &r->seg[seg];
    return s->fmt == NB_SEG_E4M3 && (s->dim == 64 || s->dim == 128) && s->n_vec == 1 && n_head >= 1 &&
           n_head <= 128 && s->n_outlier == 0 && s->fixed_scale == 0;
}

void nb_cuda_index_score_mma(nb_cuda *g, const nb_cuda_index_score_args *a)
{
    if (a->n_row == 0) return;
    if (a->dim == 64)
        launch<64>(g, a);
    else
        launch<128>(g, a);
}

bool nb_cuda_index_score_simt_can(const nb_record *r, size_t seg, size_t n_head)
{
    return r->seg[seg].n_vec == 1 && r->seg[seg].dim <= 1024 && n_head >= 1;
}

void nb_cuda_index_score_simt(nb_cuda *g, const nb_cuda_index_score_args *a)
{
    if (a->n_row == 0) return;
    const size_t most = a->stride / TOK, fill = (8 * (size_t)g->n_sm + a->n_row - 1) / a->n_row;
    const size_t bytes = TOK * (a->dim + 1) * sizeof(float);
    NB_SHARED_LIMIT(g, score_simt, bytes);
    NB_LAUNCH_EARLY(g, score_simt, dim3((unsigned)(fill < most ? fill : most), (unsigned)a->n_row),
                    TOK * LANES, bytes, *a);
}
