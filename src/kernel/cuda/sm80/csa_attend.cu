/* csa_attend.cu - compressed attention: the row "simt" for any shape, and the end that all rows have.
 *
 * simt: a block has one unit of one query and eight heads, a warp each.  Rows pass through shared memory, 16 at a time,
 * as floats; a lane has every 32nd value of the head's sum.  All in float: for f32 caches and odd shapes, bound by
 * arithmetic.
 *
 * combine: a block has one head of a query.  It weighs the units' states in order, adds the sink, divides, and turns the
 * last values back.  Bound by reading the states. */
#include "kernel/cuda/common/block.cuh"
#include "kernel/cuda/common/csa_rows.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"

namespace
{
constexpr uint32_t WARPS = 8, THREADS = 32 * WARPS, TILE = 16, MOST = 32; /* values of a lane */
constexpr float LOG2E = 1.4426950408889634f;

/* Rows [k0, k0 + n) of the unit, as floats: [n][dim]. */
__device__ void load_rows(const nb_cuda_csa_attend_args &a, const nb_csa_query &x, uint32_t i, const nb_csa_unit &u,
                          uint32_t k0, uint32_t n, float *to)
{
    const nb_record &r = a.cache.record;
    const uint32_t dim = (uint32_t)a.dim, n8[2] = { (dim - (uint32_t)a.d_rope + 7) / 8, ((uint32_t)a.d_rope + 7) / 8 };
    for (uint32_t e = threadIdx.x; e < n * (n8[0] + n8[1]); e += THREADS) {
        const uint32_t k = e / (n8[0] + n8[1]), j = e % (n8[0] + n8[1]), seg = j >= n8[0];
        const uint32_t i0 = 8 * (seg ? j - n8[0] : j), first = seg ? dim - (uint32_t)a.d_rope : 0;
        const uint32_t left = (seg ? (uint32_t)a.d_rope : dim - (uint32_t)a.d_rope) - i0;
        const nb_csa_place p = nb_csa_place_of(a, x, i, u, k0 + k);
        float v[8];
        if (p.page) nb_kv_load8_any(r.seg[seg], p.page, p.row, 0, i0, v);
        for (uint32_t d = 0; d < 8 && d < left; d++)
            to[k * dim + first + i0 + d] = p.f ? p.f[first + i0 + d] : v[d];
    }
}

/* Grid: (units, queries, blocks of eight heads).  Shared: [TILE][dim]. */
__global__ void __launch_bounds__(THREADS) simt(NB_PARAM nb_cuda_csa_attend_args a)
{
    NB_SHARED(float, rows);
    nb_grid_next();
    nb_grid_wait();
    const uint32_t i = blockIdx.y, lane = threadIdx.x % 32, head = blockIdx.z * WARPS + threadIdx.x / 32;
    const uint32_t dim = (uint32_t)a.dim;
    const nb_csa_query x = nb_csa_query_of(a, i);
    if (x.pos == UINT32_MAX) return;
    const nb_csa_unit u = nb_csa_unit_of(a, x, blockIdx.x);
    if (u.n == 0) return;
    const bool there = head < a.n_head;
    const float *q = a.q + (size_t)i * a.q_stride + (size_t)(there ? head : 0) * dim;
    float o[MOST], m = -INFINITY, l = 0;
    for (uint32_t j = 0; j < MOST; j++) o[j] = 0;
    for (uint32_t k0 = 0; k0 < u.n; k0 += TILE) {
        const uint32_t n = u.n - k0 < TILE ? u.n - k0 : TILE;
        __syncthreads();
        load_rows(a, x, i, u, k0, n, rows);
        __syncthreads();
        for (uint32_t k = 0; k < n && there; k++) {
            const float *row = rows + k * dim;
            float s = 0;
            for (uint32_t d = lane; d < dim; d += 32) s = __fmaf_rn(q[d], row[d], s);
            s = nb_warp_sum(s) * a.scale * LOG2E;
            const float top = s > m || s != s ? s : m, f = m == -INFINITY ? 0 : exp2f(m - top), e = exp2f(s - top);
            m = top;
            l = __fmaf_rn(l, f, e);
            for (uint32_t j = 0, d = lane; d < dim; j++, d += 32) o[j] = __fmaf_rn(e, row[d], __fmul_rn(o[j], f));
        }
    }
    if (!there) return;
    const size_t part = ((size_t)i * a.n_unit + blockIdx.x) * a.n_head + head;
    for (uint32_t j = 0, d = lane; d < dim; j++, d += 32) a.part_o[part * dim + d] = o[j];
    if (lane != 0) return;
    a.part_m[part] = m;
    a.part_l[part] = l;
}

/* ---- the end ---- */

constexpr uint32_t END_THREADS = 128;
constexpr float NONE = -INFINITY; /* no state has it: a unit has rows, and these are finite */

/* Grid: (heads, queries).  Shared: [dim], then the states' factors [n_unit]. */
__global__ void __launch_bounds__(END_THREADS) combine(NB_PARAM nb_cuda_csa_attend_args a)
{
    NB_SHARED(float, out);
    __shared__ float sum[1];
    nb_grid_next();
    nb_grid_wait();
    const uint32_t i = blockIdx.y, head = blockIdx.x, dim = (uint32_t)a.dim, n = (uint32_t)a.n_unit;
    float *factor = out + dim;
    const nb_csa_query x = nb_csa_query_of(a, i);
    if (x.pos != UINT32_MAX && threadIdx.x < 32) {
        const float sink = a.sink[head] * LOG2E;
        float top = sink, l = 0;
        for (uint32_t u = threadIdx.x; u < n; u += 32) {
            factor[u] = NONE;
            if (nb_csa_unit_of(a, x, u).n == 0) continue;
            factor[u] = a.part_m[((size_t)i * n + u) * a.n_head + head];
            top = fmaxf(top, factor[u]);
        }
        for (int d = 16; d > 0; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
        for (uint32_t u = threadIdx.x; u < n; u += 32) {
            if (factor[u] == NONE) continue;
            factor[u] = exp2f(factor[u] - top);
            l = __fmaf_rn(a.part_l[((size_t)i * n + u) * a.n_head + head], factor[u], l);
        }
        l = nb_warp_sum(l);
        if (threadIdx.x == 0) sum[0] = __fadd_rn(l, exp2f(sink - top));
    }
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < dim; d += END_THREADS) {
        float o = 0;
        if (x.pos != UINT32_MAX) {
#pragma unroll 8
            for (uint32_t u = 0; u < n; u++)
                if (factor[u] != NONE) o = __fmaf_rn(a.part_o[(((size_t)i * n + u) * a.n_head + head) * dim + d], factor[u], o);
            o /= sum[0];
        }
        out[d] = o;
    }
    __syncthreads();
    const uint32_t half = (uint32_t)(a.d_rope / 2);
    const float *c = a.cos_sin + (size_t)i * a.d_rope;
    float *rope = out + dim - a.d_rope;
    for (uint32_t j = threadIdx.x; j < half; j += END_THREADS)
        nb_turn_pair(rope, j, half, a.interleaved, c[j], -c[half + j]);
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < dim; d += END_THREADS)
        nb_put(a.y, (size_t)i * a.y.stride + (size_t)head * dim + d, out[d]);
}
} // namespace

void nb_cuda_csa_combine(nb_cuda *g, const nb_cuda_csa_attend_args *a)
{
    NB_LAUNCH_EARLY(g, combine, dim3((unsigned)a->n_head, (unsigned)a->n_row), END_THREADS,
                    (a->dim + a->n_unit) * sizeof(float), *a);
}

bool nb_cuda_csa_simt_can(const nb_record *r, size_t ratio, size_t dim, size_t n_head)
{
    (void)r, (void)ratio, (void)n_head;
    return dim <= 32 * MOST;
}

void nb_cuda_csa_simt(nb_cuda *g, const nb_cuda_csa_attend_args *a)
{
    if (a->n_row == 0) return;
    const size_t bytes = TILE * a->dim * sizeof(float);
    NB_SHARED_LIMIT(g, simt, bytes);
    NB_LAUNCH_EARLY(g, simt, dim3((unsigned)a->n_unit, (unsigned)a->n_row, (unsigned)((a->n_head + WARPS - 1) / WARPS)),
                    THREADS, bytes, *a);
    nb_cuda_csa_combine(g, a);
}
