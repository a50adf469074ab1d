/* kv_append.cu - appends a step's new rows to tails, own rows and pages.
 *
 * A tail holds the rows of a chunk's open page; a page is encoded when it is complete (kv_encode.cuh says how rows
 * become bytes).  A row group is 8 rows of a page, or 32 for INT4_CH, which shares scales over 32 tokens.
 *
 * Few tokens (decode; at most SMALL_TOK of a chunk): one launch, grid (row groups of a page, sets of chunks),
 * sized to fill the device once for any number of chunks.
 *   - Chunks that complete no page are distributed over the blocks.
 *   - For a chunk that completes a page, a block has the rows [r0, r0 + 8) of every page that the chunk touches.
 *     It encodes those of complete pages, then writes the new ones.
 *   - Every block that encodes checks all new rows for values that are not finite, so all blocks reach the same
 *     decision before any of them writes.  It reads new values from the step's rows, not from the tail, and only
 *     the block itself writes the tail rows that it reads.
 *
 * Prompts: two launches over a list of work units (8 rows, or a row group of a page), which each block derives from
 * the chunks.  So the grid follows the number of tokens, not chunks times the longest chunk.
 *   1. append_rows rounds and checks all rows.
 *   2. append_pages encodes pages from them, a row group to a block.  Rows of a page that stays open go back to
 *      the tail, which is no longer read by then.
 *
 * H100, 512 + 64 values:
 *   one row, any record       2.1 to 3.1 us
 *   one page                  bf16 5.2, fp8 7.8, nvfp4 4over6 9.7, nvfp4 search 12.5, if4 search 15.2, int4 25 us
 *   8,192 tokens              bf16 30, nvfp4 44, if4 74 us
 *   256 rows of 256 chunks    3.6 us (6 to 9 with a grid of 8 blocks for each chunk)
 * Slower or no faster:
 *   four rows and 128 threads to a block: 158 instead of 139 us (if4 pages of 256 chunks)
 *   80 registers for the kernel of few rows */
#include "kernel/cuda/common/ahead.cuh"
#include "kernel/cuda/common/kv_encode.cuh"
#include "kernel/cuda/common/ops.cuh"

namespace
{

enum { THREADS = 256, SMALL_TOK = 8, PAGE = NB_PAGE_TOK };

struct append {
    nb_cuda_kv_append_args a;
    nb_kv_gaps gap;
    uint32_t n_row; /* rows of a row group */
};

/* A chunk in one layer.  Its rows are counted from the beginning of its first page. */
struct view {
    float *tail, *own;
    const float *kv;       /* its first new row */
    uint32_t old, end;     /* rows [old, end) are new */
    uint32_t n_page, page; /* pages it touches; index of the first in block[] */

    __device__ view(const nb_cuda_kv_append_args &a, uint32_t i)
    {
        const nb_cuda_chunk &c = a.cache.chunk[i];
        tail = c.tail + a.cache.tail_off;
        own = c.own;
        kv = a.kv + c.row0 * a.kv_stride;
        old = c.pos0 % PAGE;
        end = c.n_tok ? old + c.n_tok : 0;
        n_page = (end + PAGE - 1) / PAGE;
        page = c.block0 + c.pos0 / PAGE;
    }
    __device__ nb_kv_dest dest(const nb_cuda_kv_append_args &a, uint32_t i) const
    {
        const size_t b = a.cache.block[page + i];
        return { a.cache.pool + b * a.cache.block_bytes + a.cache.layer_off,
                 a.plane ? a.plane + b * a.plane_block_bytes + a.plane_layer_off : nullptr,
                 reinterpret_cast<unsigned long long *>(a.n_saturated) };
    }
};

__device__ float rounded(float x, bool exact)
{
    return exact ? x : nb_bf16_float(nb_bf16_bits(x));
}

__device__ bool finite(float x)
{
    return nb_kv_mag_bits(x) < 0x7f800000u;
}

/* Cooperating threads: this one is number i of n. */
struct team {
    uint32_t i, n;
};

/* Rounds n values x to y and z (either may be NULL); returns whether all values of this thread are finite. */
__device__ bool put_row(team t, const float *x, float *y, float *z, uint32_t n, bool exact)
{
    bool ok = true;
    if ((((uintptr_t)x | (uintptr_t)y | (uintptr_t)z | 4 * (uintptr_t)n) & 15) == 0) {
        for (uint32_t i0 = 4 * t.i; i0 < n; i0 += 16 * t.n) {
            float4 v[4]; /* four loads are issued before the first store */
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                const uint32_t i = i0 + 4 * k * t.n;
                v[k] = i < n ? *reinterpret_cast<const float4 *>(x + i) : make_float4(0, 0, 0, 0);
            }
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                const uint32_t i = i0 + 4 * k * t.n;
                if (i >= n) break;
                v[k].x = rounded(v[k].x, exact), v[k].y = rounded(v[k].y, exact);
                v[k].z = rounded(v[k].z, exact), v[k].w = rounded(v[k].w, exact);
                ok &= finite(v[k].x) && finite(v[k].y) && finite(v[k].z) && finite(v[k].w);
                if (y) *reinterpret_cast<float4 *>(y + i) = v[k];
                if (z) *reinterpret_cast<float4 *>(z + i) = v[k];
            }
        }
        return ok;
    }
    for (uint32_t i = t.i; i < n; i += t.n) {
        const float v = rounded(x[i], exact);
        ok &= finite(v);
        if (y) y[i] = v;
        if (z) z[i] = v;
    }
    return ok;
}

/* Moves rows [from, to) of the chunk: new ones, rounded, to own or else to the tail; old ones from the tail to own.
 * With `back`, new rows of an open last page go to own and to the tail. */
__device__ bool move_rows(const append &p, const view &c, team t, uint32_t from, uint32_t to,
                          bool back)
{
    const size_t n = p.a.cache.record.n_values;
    const bool exact = p.a.cache.record.type == NB_KV_F32;
    const uint32_t open = c.end / PAGE * PAGE;
    bool ok = true;
    for (uint32_t r = c.own || from > c.old ? from : c.old; r < to; r++) {
        float *y = (c.own ? c.own : c.tail) + r * n;
        if (r < c.old) {
            (void)put_row(t, c.tail + r * n, y, nullptr, (uint32_t)n, true);
        } else {
            float *z = back && c.own && r >= open ? c.tail + (r - open) * n : nullptr;
            ok &= put_row(t, c.kv + (r - c.old) * p.a.kv_stride, y, z, (uint32_t)n, exact);
        }
    }
    return ok;
}

__device__ uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- few tokens ---- */

/* Whether every new row of the chunk is finite; called by all threads of the block. */
__device__ bool new_finite(const append &p, const view &c, team t)
{
    const bool exact = p.a.cache.record.type == NB_KV_F32;
    bool ok = true;
    for (uint32_t r = c.old; r < c.end; r++)
        ok &= put_row(t, c.kv + (r - c.old) * p.a.kv_stride, nullptr, nullptr,
                      (uint32_t)p.a.cache.record.n_values, exact);
    return __syncthreads_and(ok) != 0;
}

/* Encodes and writes rows [r0, r0 + n_row) of every page of chunk i, which completes a page. */
__device__ void complete(const append &p, uint32_t i, uint32_t r0)
{
    const team all = { threadIdx.x, blockDim.x };
    const view c(p.a, i);
    const size_t nv = p.a.cache.record.n_values;
    const bool ok = new_finite(p, c, all);
    if (!ok && threadIdx.x == 0) p.a.bad[i] = 1;
    const bool encode = ok && p.a.bad[i] == 0;
    for (uint32_t k = 0; k < c.n_page && encode && (k + 1) * PAGE <= c.end; k++) {
        const uint32_t old = k == 0 ? c.old : 0;
        const nb_kv_rows x = { c.tail, c.kv + (k * PAGE + old - c.old) * p.a.kv_stride, nv,
                               p.a.kv_stride, old };
        nb_kv_encode_rows(p.a.cache.record, p.gap, c.dest(p.a, k), x, r0, p.n_row);
    }
    for (uint32_t k = 0; k < c.n_page; k++) {
        const uint32_t from = k * PAGE + r0;
        if (k == 1) __syncthreads(); /* the tail's old rows have been read */
        (void)move_rows(p, c, all, from, least(from + p.n_row, c.end), true);
    }
}

/* Whether chunk k of the block's set completes a page; called with k for the first 32 threads. */
__device__ bool completes(const append &p, uint32_t k, uint32_t mine)
{
    return threadIdx.x < 32 && k < mine && view(p.a, blockIdx.y + k * gridDim.y).end >= PAGE;
}

/* Grid: (row groups, sets of chunks).  Block b first writes the rows of chunks b, b + blocks, ... that complete no
 * page.  Then it does its row group of those chunks of its set, blockIdx.y, + gridDim.y, ..., that complete one. */
__global__ void __launch_bounds__(THREADS, 2) append_few(NB_PARAM append p)
{
    __shared__ uint32_t some_complete[1]; /* bit k: chunk k of the batch completes a page */
    nb_grid_next();
    nb_ahead(p.a.cache.chunk, p.a.cache.n_chunk * sizeof *p.a.cache.chunk);
    nb_grid_wait();
    const uint32_t n_chunk = (uint32_t)p.a.cache.n_chunk, n_block = gridDim.x * gridDim.y;
    const uint32_t mine = (n_chunk - blockIdx.y + gridDim.y - 1) / gridDim.y;
    const team all = { threadIdx.x, blockDim.x };
    bool full = completes(p, threadIdx.x, mine); /* issued before the rows' loads */
    for (uint32_t i = blockIdx.y * gridDim.x + blockIdx.x; i < n_chunk; i += n_block) {
        const view c(p.a, i);
        if (c.end < PAGE && !move_rows(p, c, all, 0, c.end, true)) p.a.bad[i] = 1;
    }
    for (uint32_t k0 = 0; k0 < mine; k0 += 32) {
        if (k0 > 0) full = completes(p, k0 + threadIdx.x, mine);
        if (threadIdx.x == 0) some_complete[0] = 0;
        if (!__syncthreads_or(full)) continue;
        if (full) atomicOr(some_complete, 1u << threadIdx.x);
        __syncthreads();
        const uint32_t todo = some_complete[0];
        for (uint32_t j = 0; j < 32; j++)
            if (todo >> j & 1) complete(p, blockIdx.y + (k0 + j) * gridDim.y, blockIdx.x * p.n_row);
        __syncthreads();
    }
}

/* ---- many tokens ---- */

/* first[i] = work units of the chunks before chunk i, with per_page units to a page; returns the total. */
__device__ uint32_t list_units(const append &p, uint32_t per_page, uint32_t *first)
{
    const uint32_t n_chunk = (uint32_t)p.a.cache.n_chunk, lane = threadIdx.x;
    uint32_t sum = 0;
    if (lane < 32)
        for (uint32_t i0 = 0; i0 <= n_chunk; i0 += 32) {
            const uint32_t i = i0 + lane;
            const uint32_t mine = i < n_chunk ? view(p.a, i).n_page * per_page : 0;
            uint32_t all = mine;
            for (uint32_t d = 1; d < 32; d *= 2) {
                const uint32_t left = __shfl_up_sync(0xffffffffu, all, d);
                if (lane >= d) all += left;
            }
            if (i <= n_chunk) first[i] = sum + all - mine;
            sum += __shfl_sync(0xffffffffu, all, 31);
        }
    __syncthreads();
    return first[n_chunk];
}

/* The chunk that a work unit belongs to. */
__device__ uint32_t chunk_of(const uint32_t *first, uint32_t n_chunk, uint32_t unit)
{
    uint32_t lo = 0, hi = n_chunk - 1; /* the last i with first[i] <= unit */
    while (lo < hi) {
        const uint32_t mid = (lo + hi + 1) / 2;
        if (first[mid] <= unit)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

__global__ void __launch_bounds__(THREADS) append_rows(NB_PARAM append p)
{
    NB_SHARED(uint32_t, first);
    const uint32_t n = list_units(p, PAGE / 8, first);
    const team all = { threadIdx.x, THREADS };
    for (uint32_t u = blockIdx.x; u < n; u += gridDim.x) {
        const uint32_t i = chunk_of(first, (uint32_t)p.a.cache.n_chunk, u);
        const view c(p.a, i);
        const uint32_t from = 8 * (u - first[i]);
        if (!move_rows(p, c, all, from, least(from + 8, c.end), false)) p.a.bad[i] = 1;
    }
}

__global__ void __launch_bounds__(THREADS, 3) append_pages(NB_PARAM append p)
{
    NB_SHARED(uint32_t, first);
    const uint32_t per_page = PAGE / p.n_row, n = list_units(p, per_page, first);
    const size_t nv = p.a.cache.record.n_values;
    const team all = { threadIdx.x, THREADS };
    for (uint32_t u = blockIdx.x; u < n; u += gridDim.x) {
        const uint32_t i = chunk_of(first, (uint32_t)p.a.cache.n_chunk, u), k = u - first[i];
        const view c(p.a, i);
        const uint32_t page = k / per_page, r0 = k % per_page * p.n_row;
        const float *rows = (c.own ? c.own : c.tail) + (size_t)page * PAGE * nv;
        if ((page + 1) * PAGE <= c.end) {
            if (p.a.bad[i] != 0) continue;
            const nb_kv_rows x = { rows, rows, nv, nv, PAGE };
            nb_kv_encode_rows(p.a.cache.record, p.gap, c.dest(p.a, page), x, r0, p.n_row);
        } else if (c.own) {
            for (uint32_t r = r0; r < r0 + p.n_row && page * PAGE + r < c.end; r++)
                (void)put_row(all, rows + r * nv, c.tail + r * nv, nullptr, (uint32_t)nv, true);
        }
    }
}

} // namespace

/* ---- the operation ---- */

bool nb_cuda_can_cache(const nb_record *r)
{
    for (size_t s = 0; s < r->n_seg; s++) switch (r->seg[s].fmt) {
#define X(FMT) case FMT:
            NB_KV_CUDA_FORMATS(X)
#undef X
            break;
        default: return false;
        }
    return true;
}

void nb_cuda_kv_append(nb_cuda *g, const nb_cuda_kv_append_args *a)
{
    const nb_record &r = a->cache.record;
    bool channels = false;
    for (size_t s = 0; s < r.n_seg; s++) channels |= r.seg[s].fmt == NB_SEG_INT4_CH;
    const append p = { *a, nb_kv_gaps_of(r), channels ? 32u : 8u };
    if (a->cache.n_chunk == 0 || a->max_chunk_tok == 0) return;
    if (a->max_chunk_tok <= SMALL_TOK) {
        const size_t n_group = PAGE / p.n_row, fit = 2 * (size_t)g->n_sm;
        const size_t most = fit < n_group ? 1 : fit / n_group;
        const size_t n_set = a->cache.n_chunk < most ? a->cache.n_chunk : most;
        NB_LAUNCH_EARLY(g, append_few, dim3((unsigned)n_group, (unsigned)n_set), dim3(THREADS), 0,
                        p);
        return;
    }
    const size_t unit = (a->max_chunk_tok + 2 * PAGE - 2) / PAGE * 8 * a->cache.n_chunk;
    const size_t most = 8 * (size_t)g->n_sm;
    const unsigned grid = (unsigned)(unit < most ? unit : most);
    const size_t shared = (a->cache.n_chunk + 1) * sizeof(uint32_t);
    NB_LAUNCH(g, append_rows, dim3(grid), dim3(THREADS), shared, p);
    NB_LAUNCH(g, append_pages, dim3(grid), dim3(THREADS), shared, p);
}
