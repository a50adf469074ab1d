/* sparse_gather.cu - the chosen tokens of a row become pages of their own, which the kernels of dense attention read.
 *
 * Grid: (pages of a row + 3, rows).  A block copies one page's tokens, plane by plane, in the largest pieces that the
 * planes allow; one decodes the tokens that fill no page; one copies the rows of the own page.  The last block of the
 * first row lists the units of all rows, which no other block needs.
 * A token's bytes are the same wherever it stands (nb_record_can_move), so nothing is decoded or rounded.
 *
 * Bound by memory: 2,048 tokens of 354 bytes (nvfp4) are read in pieces of 32 to 256 bytes, and written once. */
#include "kernel/cuda/common/kv_decode.cuh"
#include "kernel/cuda/common/ops.cuh"

namespace
{
constexpr uint32_t THREADS = 256, PAGE = NB_PAGE_TOK, PLANES = 4;

/* A row's tokens: the first n_old of n are in complete pages. */
struct row {
    nb_cuda_chunk c;
    const uint32_t *at;
    uint32_t pos, n, n_old; /* n 0: padding */
};

/* Called by all threads. */
__device__ row row_of(const nb_cuda_gather_args &a, uint32_t i)
{
    row x = {};
    const uint32_t r = (uint32_t)a.row0 + i, chunk = a.row_chunk[r];
    if (chunk != UINT32_MAX) {
        x.c = a.cache.chunk[chunk];
        x.at = a.at + i * a.k;
        x.pos = x.c.pos0 + (r - x.c.row0);
        x.n = x.pos < a.k ? x.pos + 1 : (uint32_t)a.k;
    }
    /* those of the own page are the last, at most 64 */
    const uint32_t t = threadIdx.x, own = x.pos / PAGE * PAGE;
    x.n_old = x.n - (uint32_t)__syncthreads_count(t < PAGE && t < x.n && x.at[x.n - 1 - t] >= own);
    return x;
}

__device__ const unsigned char *page_of(const nb_cuda_gather_args &a, const nb_cuda_chunk &c, uint32_t pos)
{
    return a.cache.pool + a.cache.layer_off + (size_t)a.cache.block[c.block0 + pos / PAGE] * a.cache.block_bytes;
}

template <class T>
__device__ void copy_plane(const unsigned char *const *from, const uint32_t *tok, unsigned char *to,
                           uint32_t from_off, uint32_t to_off, uint32_t stride)
{
    const uint32_t n = stride / (uint32_t)sizeof(T);
#pragma unroll 4
    for (uint32_t e = threadIdx.x; e < PAGE * n; e += THREADS) {
        const uint32_t t = e / n, i = e % n * (uint32_t)sizeof(T);
        *reinterpret_cast<T *>(to + to_off + t * stride + i) =
            *reinterpret_cast<const T *>(from[t] + from_off + tok[t] * stride + i);
    }
}

struct plane {
    uint32_t from, to, stride;
};

__device__ plane plane_of(const nb_record_seg &f, const nb_record_seg &t, uint32_t k)
{
    if (k == 0) return { (uint32_t)f.code_off, (uint32_t)t.code_off, (uint32_t)f.code_stride };
    if (k == 1) return { (uint32_t)f.scale_off, (uint32_t)t.scale_off, (uint32_t)f.scale_stride };
    if (k == 2) return { (uint32_t)f.outer_off, (uint32_t)t.outer_off, (uint32_t)f.outer_stride };
    return { (uint32_t)f.side_off, (uint32_t)t.side_off, (uint32_t)f.side_stride };
}

/* Page p of the row: pages, and tokens in them, of its 64 tokens are in shared memory. */
__device__ void copy_page(const nb_cuda_gather_args &a, const unsigned char *const *from, const uint32_t *tok,
                          unsigned char *to)
{
    for (uint32_t s = 0; s < a.to.n_seg; s++)
        for (uint32_t k = 0; k < PLANES; k++) {
            const plane p = plane_of(a.cache.record.seg[s], a.to.seg[s], k);
            const uint32_t odd = p.from | p.to | p.stride;
            if (p.stride == 0) continue;
            if (odd % 16 == 0)
                copy_plane<uint4>(from, tok, to, p.from, p.to, p.stride);
            else if (odd % 4 == 0)
                copy_plane<uint32_t>(from, tok, to, p.from, p.to, p.stride);
            else
                copy_plane<unsigned char>(from, tok, to, p.from, p.to, p.stride);
        }
}

/* The tokens [from, to) of complete pages, decoded. */
__device__ void decode_rest(const nb_cuda_gather_args &a, const row &x, uint32_t from, float *to)
{
    const uint32_t nv = (uint32_t)a.to.n_values;
    for (uint32_t s = 0; s < a.to.n_seg; s++) {
        const nb_record_seg &seg = a.cache.record.seg[s];
        const uint32_t dim = (uint32_t)seg.dim, n8 = (dim + 7) / 8, first = (uint32_t)seg.first;
        for (uint32_t e = threadIdx.x; e < (x.n_old - from) * n8; e += THREADS) {
            const uint32_t t = e / n8, d0 = e % n8 * 8, pos = x.at[from + t];
            float v[8];
            nb_kv_load8_any(seg, page_of(a, x.c, pos), pos % PAGE, 0, d0, v);
#pragma unroll
            for (uint32_t d = 0; d < 8; d++)
                if (d0 + d < dim) to[t * nv + first + d0 + d] = v[d];
        }
    }
}

__device__ void copy_own(const nb_cuda_gather_args &a, const row &x, float *to)
{
    const uint32_t nv = (uint32_t)a.to.n_values;
    const size_t stride = a.cache.record.n_values;
    const float *rows = x.c.tail + a.cache.tail_off;
    if (x.c.own) rows = x.c.own + (size_t)(x.pos / PAGE - x.c.pos0 / PAGE) * PAGE * stride;
    for (uint32_t e = threadIdx.x; e < (x.n - x.n_old) * nv; e += THREADS)
        to[e] = rows[x.at[x.n_old + e / nv] % PAGE * stride + e % nv];
}

/* The row's three sequences, and its states, which are empty so far. */
__device__ void describe(const nb_cuda_gather_args &a, uint32_t i, const row &x)
{
    const uint32_t n_rest = x.n_old % PAGE, n_own = x.n - x.n_old, n = (uint32_t)a.n_row;
    const size_t n_state = (a.n_unit + 2) * a.n_head;
    for (size_t e = threadIdx.x; e < n_state; e += THREADS) a.part_m[i * n_state + e] = -INFINITY;
    if (threadIdx.x != 0) return;
    const size_t rows = PAGE * a.to.n_values;
    a.chunk[i] = { nullptr, nullptr, i, 1, 0, i * (uint32_t)a.table_stride };
    a.chunk[n + i] = { a.rest + i * rows, nullptr, i, 1, n_rest ? n_rest - 1 : 0, 0 };
    a.chunk[2 * n + i] = { a.own + i * rows, nullptr, i, 1, n_own ? n_own - 1 : 0, 0 };
    a.has[i] = x.n ? i : UINT32_MAX;
    a.has[n + i] = n_rest ? i : UINT32_MAX;
    a.has[2 * n + i] = n_own ? i : UINT32_MAX;
}

/* Complete pages that the row's tokens make, as row_of finds it; by one thread. */
__device__ uint32_t pages_of(const nb_cuda_gather_args &a, uint32_t i)
{
    const uint32_t r = (uint32_t)a.row0 + i, chunk = a.row_chunk[r];
    if (chunk == UINT32_MAX) return 0;
    const nb_cuda_chunk &c = a.cache.chunk[chunk];
    const uint32_t pos = c.pos0 + (r - c.row0), n = pos < a.k ? pos + 1 : (uint32_t)a.k;
    const uint32_t own = pos / PAGE * PAGE, *at = a.at + i * a.k;
    uint32_t lo = n > PAGE ? n - PAGE : 0, hi = n; /* the first of the own page is in [lo, hi] */
    while (lo < hi) {
        const uint32_t mid = (lo + hi) / 2;
        if (at[mid] >= own)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo / PAGE;
}

/* The units of all rows, in order. */
__device__ void list_units(const nb_cuda_gather_args &a)
{
    __shared__ uint32_t total[1];
    const uint32_t unit_page = (uint32_t)a.unit_page;
    if (threadIdx.x == 0) total[0] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n_row; i += THREADS) {
        const uint32_t n_page = pages_of(a, i), n_unit = (n_page + unit_page - 1) / unit_page;
        const uint32_t at = n_unit ? atomicAdd(total, n_unit) : 0; /* their order changes no bit */
        for (uint32_t u = 0; u < n_unit; u++) {
            const uint32_t left = n_page - u * unit_page;
            a.item[at + u] = { i, i, 1, u, 1, left < unit_page ? left : unit_page,
                               i * (uint32_t)(a.n_unit + 2) + u, 0 };
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) *a.n_item = total[0];
}

__global__ void __launch_bounds__(THREADS) gather(NB_PARAM nb_cuda_gather_args a)
{
    __shared__ const unsigned char *from[PAGE];
    __shared__ uint32_t tok[PAGE];
    nb_grid_next();
    nb_grid_wait();
    const uint32_t i = blockIdx.y, p = blockIdx.x, n_page = (uint32_t)a.n_page;
    if (p == n_page + 2) {
        if (i == 0) list_units(a);
        return;
    }
    const row x = row_of(a, i);
    const size_t rows = PAGE * a.to.n_values;
    if (p == n_page + 1) {
        describe(a, i, x);
        copy_own(a, x, a.own + i * rows);
    } else if (p == n_page) {
        decode_rest(a, x, x.n_old / PAGE * PAGE, a.rest + i * rows);
    } else if ((p + 1) * PAGE <= x.n_old) {
        if (threadIdx.x < PAGE) {
            const uint32_t pos = x.at[p * PAGE + threadIdx.x];
            from[threadIdx.x] = page_of(a, x.c, pos);
            tok[threadIdx.x] = pos % PAGE;
        }
        __syncthreads();
        copy_page(a, from, tok, a.page + (i * a.n_page + p) * a.to.page_bytes);
    }
}
} // namespace

void nb_cuda_gather(nb_cuda *g, const nb_cuda_gather_args *a)
{
    if (a->n_row == 0) return;
    NB_LAUNCH_EARLY(g, gather, dim3((unsigned)a->n_page + 3, (unsigned)a->n_row), THREADS, 0, *a);
}
