/* csa_rows.cu - rows of compressed attention: vectors turned by their position, rows made of several tokens, pages of
 * such rows, and the window's rows that a sequence keeps.
 *
 * turn: a warp per vector.
 * append: launches in order, since each needs all of the one before.
 *   pool    a block has 128 channels of one new row; a thread goes through the row's tokens in order.  Other blocks take
 *           the open page's rows from the tail
 *   finish  a block normalises, turns and rounds a row where it lies
 *   pages   blocks encode row groups of complete pages, and put the open page's rows back
 *   keep    sums of a window that is not full, or the last eight tokens
 * One token of each chunk: one launch, a block to a chunk; a row is made every 4 or 128 tokens only.
 * Bound by memory for prompts, by latency for one token.  Nothing depends on other chunks or on the grid. */
#include "kernel/cuda/common/block.cuh"
#include "kernel/cuda/common/kv_encode.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"

namespace
{
constexpr uint32_t THREADS = 128, WARPS = THREADS / 32, PAGE = NB_PAGE_TOK, OVERLAP = 4, RING = 2 * OVERLAP;

__device__ inline bool finite(float x)
{
    return nb_kv_mag_bits(x) < 0x7f800000u;
}

/* ---- vectors ---- */

__global__ void __launch_bounds__(THREADS) turn(NB_PARAM nb_cuda_csa_turn_args a)
{
    nb_grid_next();
    nb_grid_wait();
    const uint32_t lane = threadIdx.x % 32, vec = blockIdx.y * WARPS + threadIdx.x / 32;
    const uint32_t n = (uint32_t)a.dim, half = (uint32_t)(a.d_rope / 2);
    const size_t t = blockIdx.x;
    if (vec >= a.n_vec) return;
    float *x = a.x + t * a.x_stride + (size_t)vec * n, sum = 0;
    for (uint32_t i = lane; i < n; i += 32) sum = __fmaf_rn(x[i], x[i], sum);
    const float f = (float)(1 / sqrt((double)nb_warp_sum(sum) / (double)n + (double)a.eps));
    for (uint32_t i = lane; i < n; i += 32) x[i] = a.w ? __fmul_rn(__fmul_rn(x[i], f), a.w[i]) : __fmul_rn(x[i], f);
    __syncwarp();
    const float *c = a.cos_sin + t * a.d_rope;
    for (uint32_t j = lane; j < half; j += 32) nb_turn_pair(x + n - a.d_rope, j, half, a.interleaved, c[j], c[half + j]);
    __syncwarp();
    if (!a.round && !a.bad) return;
    bool ok = true;
    for (uint32_t i = lane; i < n; i += 32) {
        const float v = a.round ? nb_bf16_float(nb_bf16_bits(x[i])) : x[i];
        ok &= finite(v);
        x[i] = v;
    }
    if (!ok && a.bad && a.row_chunk[t] != UINT32_MAX) a.bad[a.row_chunk[t]] = 1;
}

/* ---- a chunk's rows ---- */

struct append {
    nb_cuda_csa_append_args a;
    nb_kv_gaps gap;
};

/* A chunk: its tokens are at positions [pos0, end). */
struct view {
    nb_cuda_chunk c;
    float *tail, *own, *state;
    uint32_t end, page0;

    __device__ view(const nb_cuda_csa_append_args &a, uint32_t i)
    {
        c = a.cache.chunk[i];
        tail = c.tail + a.cache.tail_off;
        own = c.own;
        state = c.tail;
        end = c.pos0 + c.n_tok;
        page0 = c.pos0 / PAGE;
    }
    /* Row w, counted from the sequence's first, where it is made. */
    __device__ float *row(const nb_cuda_csa_append_args &a, uint32_t w) const
    {
        const uint32_t last = (w + 1) * (uint32_t)a.ratio - 1, page = last / PAGE - page0;
        const size_t at = (size_t)page * a.cache.record.n_row + last % PAGE / (uint32_t)a.ratio;
        return (own ? own : tail) + at * a.cache.record.n_values;
    }
    /* Rows of the open page that were there before. */
    __device__ uint32_t n_old(const nb_cuda_csa_append_args &a) const
    {
        return c.pos0 % PAGE / (uint32_t)a.ratio;
    }
};

struct token {
    const float *kv, *gate, *ape; /* ape NULL: the gate has it */
};

/* kv and gate of a token, of the chunk or of the ring of those before. */
__device__ token token_of(const nb_cuda_csa_append_args &a, const nb_cuda_csa_pool &p, const view &v, uint32_t pos)
{
    if (pos < v.c.pos0) {
        const float *x = v.state + p.state_off + (size_t)(pos % RING) * 2 * p.width;
        return { x, x + p.width, nullptr };
    }
    const size_t at = (size_t)(v.c.row0 + (pos - v.c.pos0)) * a.stride;
    return { p.kv + at, p.gate + at, p.ape + pos % (uint32_t)a.ratio * p.width };
}

__device__ float gate_of(const token &t, uint32_t i)
{
    return t.ape ? __fadd_rn(t.gate[i], t.ape[i]) : t.gate[i];
}

/* Channel i of the row of the window that ends at pos. */
__device__ float pool_overlap(const nb_cuda_csa_append_args &a, const nb_cuda_csa_pool &p, const view &v, uint32_t pos,
                              uint32_t i)
{
    float g[RING], x[RING], m = -INFINITY, l = 0, o = 0;
#pragma unroll
    for (uint32_t k = 0; k < RING; k++) { /* from the oldest on */
        const uint32_t back = RING - 1 - k, at = i + (back < OVERLAP ? (uint32_t)p.dim : 0);
        g[k] = -INFINITY;
        x[k] = 0;
        if (pos < back) continue;
        const token t = token_of(a, p, v, pos - back);
        g[k] = gate_of(t, at);
        x[k] = t.kv[at];
        m = fmaxf(m, g[k]);
    }
#pragma unroll
    for (uint32_t k = 0; k < RING; k++) {
        if (pos < RING - 1 - k) continue;
        const float e = expf(g[k] - m);
        l = __fadd_rn(l, e);
        o = __fmaf_rn(e, x[k], o);
    }
    return o / l;
}

struct sums {
    float m, l, o;
};

/* Adds tokens [pos, end) to the sums of channel i; the window's first token begins them. */
__device__ sums pool_sums(const nb_cuda_csa_append_args &a, const nb_cuda_csa_pool &p, const view &v, uint32_t pos,
                          uint32_t end, uint32_t i)
{
    sums s = { -INFINITY, 0, 0 };
    if (pos % (uint32_t)a.ratio) {
        const float *x = v.state + p.state_off;
        s = { x[i], x[p.dim + i], x[2 * p.dim + i] };
    }
#pragma unroll 4
    for (; pos < end; pos++) {
        const token t = token_of(a, p, v, pos);
        const float g = gate_of(t, i), x = t.kv[i];
        if (pos % (uint32_t)a.ratio == 0) {
            s = { g, 1, x };
        } else if (g > s.m) {
            const float f = expf(s.m - g);
            s = { g, __fmaf_rn(s.l, f, 1.0f), __fmaf_rn(s.o, f, x) };
        } else {
            const float e = expf(g - s.m);
            s.l = __fadd_rn(s.l, e);
            s.o = __fmaf_rn(e, x, s.o);
        }
    }
    return s;
}

/* Where blocks of channels of the second compressor begin. */
__host__ __device__ inline uint32_t pool_blocks(const nb_cuda_csa_pool &p)
{
    return (uint32_t)(p.dim + THREADS - 1) / THREADS;
}

/* Grid: (blocks of channels, rows of a chunk + 1, chunks). */
__global__ void __launch_bounds__(THREADS) pool(NB_PARAM nb_cuda_csa_append_args a)
{
    nb_grid_next();
    nb_grid_wait();
    const view v(a, blockIdx.z);
    const uint32_t ratio = (uint32_t)a.ratio, nv = (uint32_t)a.cache.record.n_values;
    if (v.c.n_tok == 0) return;
    if (blockIdx.y == 0) {
        const uint32_t n = v.own ? v.n_old(a) * nv : 0;
        for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) v.own[i] = v.tail[i];
        return;
    }
    const uint32_t w = v.c.pos0 / ratio + blockIdx.y - 1, first = pool_blocks(a.pool[0]);
    const bool key = blockIdx.x >= first;
    const nb_cuda_csa_pool &p = a.pool[key];
    const uint32_t i = (blockIdx.x - (key ? first : 0)) * THREADS + threadIdx.x, last = (w + 1) * ratio - 1;
    if (last >= v.end || i >= p.dim) return;
    float x;
    if (ratio == OVERLAP) {
        x = pool_overlap(a, p, v, last, i);
    } else {
        const uint32_t from = w * ratio > v.c.pos0 ? w * ratio : v.c.pos0;
        const sums s = pool_sums(a, p, v, from, last + 1, i);
        x = s.o / s.l;
    }
    v.row(a, w)[p.first + i] = x;
}

/* A team of THREADS threads of a block: this one is number i; bar: its barrier. */
struct team {
    uint32_t i, bar;

    __device__ void sync() const
    {
        nb_bar_sync(bar, THREADS);
    }
};

/* Sum over the team, the same in all threads: lanes, then warps in order. */
__device__ float team_sum(const team &t, float x)
{
    __shared__ float part[2][WARPS];
    const float s = nb_warp_sum(x);
    if (t.i % 32 == 0) part[t.bar - 1][t.i / 32] = s;
    t.sync();
    float sum = 0;
    for (uint32_t i = 0; i < WARPS; i++) sum = __fadd_rn(sum, part[t.bar - 1][i]);
    return sum;
}

/* Row w of a compressor, which is at x: norm, rotation, rounding; false: a value of this thread is not finite. */
__device__ bool finish_row(const nb_cuda_csa_append_args &a, const nb_cuda_csa_pool &p, const team &t, uint32_t w, float *x)
{
    const uint32_t n = (uint32_t)p.dim, half = (uint32_t)(a.d_rope / 2);
    float sum = 0;
    for (uint32_t i = t.i; i < n; i += THREADS) sum = __fmaf_rn(x[i], x[i], sum);
    const float f = (float)(1 / sqrt((double)team_sum(t, sum) / (double)n + (double)a.eps));
    for (uint32_t i = t.i; i < n; i += THREADS) x[i] = __fmul_rn(__fmul_rn(x[i], f), p.norm[i]);
    t.sync();
    for (uint32_t j = t.i; j < half; j += THREADS) {
        const double angle = (double)__fmul_rn(a.inv_freq[j], (float)(w * (uint32_t)a.ratio));
        nb_turn_pair(x + n - a.d_rope, j, half, a.interleaved, (float)((double)a.rope_factor * cos(angle)),
                  (float)((double)a.rope_factor * sin(angle)));
    }
    t.sync();
    bool ok = true;
    for (uint32_t i = t.i; i < n; i += THREADS) {
        if (a.cache.record.type != NB_KV_F32) x[i] = nb_bf16_float(nb_bf16_bits(x[i]));
        ok &= finite(x[i]);
    }
    return ok;
}

/* Grid: (compressors, rows of a chunk, chunks). */
__global__ void __launch_bounds__(THREADS) finish(NB_PARAM nb_cuda_csa_append_args a)
{
    nb_grid_next();
    nb_grid_wait();
    const view v(a, blockIdx.z);
    const nb_cuda_csa_pool &p = a.pool[blockIdx.x];
    const uint32_t ratio = (uint32_t)a.ratio, w = v.c.pos0 / ratio + blockIdx.y;
    if (v.c.n_tok == 0 || (w + 1) * ratio > v.end) return;
    if (!finish_row(a, p, { threadIdx.x, 1 }, w, v.row(a, w) + p.first)) a.bad[blockIdx.z] = 1;
}

/* Grid: (row groups of a page, pages of a chunk, chunks). */
__global__ void __launch_bounds__(THREADS) pages(NB_PARAM append p)
{
    nb_grid_next();
    nb_grid_wait();
    const nb_cuda_csa_append_args &a = p.a;
    const nb_record &r = a.cache.record;
    const view v(a, blockIdx.z);
    const uint32_t page = v.page0 + blockIdx.y, nv = (uint32_t)r.n_values, n_row = (uint32_t)r.n_row;
    if (v.c.n_tok == 0 || page * PAGE >= v.end) return;
    const float *rows = (v.own ? v.own : v.tail) + (size_t)blockIdx.y * n_row * nv;
    if ((page + 1) * PAGE > v.end) { /* stays open */
        const uint32_t n = v.own ? v.end % PAGE / (uint32_t)a.ratio * nv : 0;
        for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) v.tail[i] = rows[i];
        return;
    }
    if (a.bad[blockIdx.z]) return;
    const size_t b = a.cache.block[v.c.block0 + page];
    const nb_kv_dest to = { a.cache.pool + b * a.cache.block_bytes + a.cache.layer_off, nullptr,
                            reinterpret_cast<unsigned long long *>(a.n_saturated) };
    if ((page + 1) * PAGE % (uint32_t)a.ratio) {
        for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < r.page_bytes; i += gridDim.x * THREADS) to.page[i] = 0;
        return;
    }
    const uint32_t r0 = blockIdx.x * 8, n = n_row - r0 < 8 ? n_row - r0 : 8;
    const nb_kv_rows x = { rows, rows, nv, nv, n_row };
    nb_kv_encode_rows(r, p.gap, to, x, r0, n);
}

/* Channel i of what a compressor keeps: of the chunk's token `back` from the end, or of the window that is not full. */
__device__ void keep(const nb_cuda_csa_append_args &a, const nb_cuda_csa_pool &p, const view &v, uint32_t back, uint32_t i)
{
    const uint32_t ratio = (uint32_t)a.ratio;
    float *s = v.state + p.state_off;
    if (ratio == OVERLAP) {
        const uint32_t pos = v.end - 1 - back;
        const token t = token_of(a, p, v, pos);
        float *to = s + (size_t)(pos % RING) * 2 * p.width;
        to[i] = t.kv[i];
        to[p.width + i] = gate_of(t, i);
        return;
    }
    if (v.end % ratio == 0) return;
    const uint32_t begin = v.end / ratio * ratio, from = begin > v.c.pos0 ? begin : v.c.pos0;
    const sums x = pool_sums(a, p, v, from, v.end, i);
    s[i] = x.m;
    s[p.dim + i] = x.l;
    s[2 * p.dim + i] = x.o;
}

/* Grid: (blocks of channels, tokens of the ring or 1, chunks). */
__global__ void __launch_bounds__(THREADS) keep_sums(NB_PARAM nb_cuda_csa_append_args a)
{
    nb_grid_next();
    nb_grid_wait();
    const view v(a, blockIdx.z);
    const uint32_t first = (uint32_t)((a.pool[0].width + THREADS - 1) / THREADS);
    const bool key = blockIdx.x >= first;
    const nb_cuda_csa_pool &p = a.pool[key];
    const uint32_t i = (blockIdx.x - (key ? first : 0)) * THREADS + threadIdx.x;
    if (i < p.width && blockIdx.y < v.c.n_tok) keep(a, p, v, blockIdx.y, i);
}

/* ---- one token of each chunk ---- */

constexpr uint32_t ONE_THREADS = 512;

/* All of the above by one block of each chunk, with the same arithmetic: its rows are in the tail.  Grid: chunks. */
__global__ void __launch_bounds__(ONE_THREADS) append_one(NB_PARAM append q)
{
    nb_grid_next();
    nb_grid_wait();
    const nb_cuda_csa_append_args &a = q.a;
    const nb_record &r = a.cache.record;
    const view v(a, blockIdx.x);
    const uint32_t ratio = (uint32_t)a.ratio, pos = v.c.pos0, w = pos / ratio, n_comp = a.pool[1].dim ? 2 : 1;
    if (v.c.n_tok == 0) return;
    const bool makes = (pos + 1) % ratio == 0;
    for (uint32_t k = 0; makes && k < n_comp; k++)
        for (uint32_t i = threadIdx.x; i < a.pool[k].dim; i += ONE_THREADS) {
            float x;
            if (ratio == OVERLAP) {
                x = pool_overlap(a, a.pool[k], v, pos, i);
            } else {
                const sums s = pool_sums(a, a.pool[k], v, pos, pos + 1, i);
                x = s.o / s.l;
            }
            v.row(a, w)[a.pool[k].first + i] = x;
        }
    __syncthreads(); /* the ring has been read, the rows are there */
    for (uint32_t k = 0; k < n_comp; k++)
        for (uint32_t i = threadIdx.x; i < a.pool[k].width; i += ONE_THREADS) keep(a, a.pool[k], v, 0, i);
    const uint32_t mine = threadIdx.x / THREADS;
    if (makes && mine < n_comp &&
        !finish_row(a, a.pool[mine], { threadIdx.x % THREADS, mine + 1 }, w, v.row(a, w) + a.pool[mine].first))
        a.bad[blockIdx.x] = 1;
    __syncthreads();
    if (v.end % PAGE || a.bad[blockIdx.x]) return;
    const size_t b = a.cache.block[v.c.block0 + v.page0];
    const nb_kv_dest to = { a.cache.pool + b * a.cache.block_bytes + a.cache.layer_off, nullptr,
                            reinterpret_cast<unsigned long long *>(a.n_saturated) };
    if (v.end % ratio) {
        for (uint32_t i = threadIdx.x; i < r.page_bytes; i += ONE_THREADS) to.page[i] = 0;
        return;
    }
    const nb_kv_rows x = { v.tail, v.tail, r.n_values, r.n_values, (uint32_t)r.n_row };
    nb_kv_encode_rows(r, q.gap, to, x, 0, (uint32_t)r.n_row);
}

/* Grid: (tokens of the window, chunks). */
__global__ void __launch_bounds__(THREADS) keep_window(NB_PARAM nb_cuda_csa_keep_args a)
{
    nb_grid_next();
    nb_grid_wait();
    const nb_cuda_chunk &c = a.chunk[blockIdx.y];
    if (blockIdx.x >= c.n_tok) return;
    const uint32_t back = blockIdx.x, pos = c.pos0 + c.n_tok - 1 - back;
    const float *from = a.kv + (size_t)(c.row0 + c.n_tok - 1 - back) * a.kv_stride;
    float *to = c.tail + a.state_off + (size_t)(pos % (uint32_t)a.window) * a.dim;
    for (uint32_t i = threadIdx.x; i < a.dim; i += THREADS) to[i] = from[i];
}
} // namespace

void nb_cuda_csa_turn(nb_cuda *g, const nb_cuda_csa_turn_args *a)
{
    if (a->n_tok == 0) return;
    NB_LAUNCH_EARLY(g, turn, dim3((unsigned)a->n_tok, (unsigned)((a->n_vec + WARPS - 1) / WARPS)), THREADS, 0, *a);
}

void nb_cuda_csa_append(nb_cuda *g, const nb_cuda_csa_append_args *a)
{
    const nb_record &r = a->cache.record;
    const unsigned n_chunk = (unsigned)a->cache.n_chunk, n_comp = a->pool[1].dim ? 2 : 1;
    if (n_chunk == 0 || a->max_chunk_tok == 0) return;
    const append p = { *a, nb_kv_gaps_of(r) };
    if (a->max_chunk_tok == 1) {
        NB_LAUNCH_EARLY(g, append_one, n_chunk, ONE_THREADS, 0, p);
        return;
    }
    const unsigned n_row = (unsigned)(a->max_chunk_tok / a->ratio) + 1;
    const unsigned n_page = (unsigned)((a->max_chunk_tok + 2 * PAGE - 2) / PAGE);
    const unsigned channels = pool_blocks(a->pool[0]) + (n_comp == 2 ? pool_blocks(a->pool[1]) : 0);
    const size_t width = a->pool[0].width, keys = n_comp == 2 ? a->pool[1].width : 0;
    const unsigned wide = (unsigned)((width + THREADS - 1) / THREADS + (keys + THREADS - 1) / THREADS);
    const unsigned ring = a->ratio != OVERLAP ? 1 : a->max_chunk_tok < RING ? (unsigned)a->max_chunk_tok : RING;
    NB_LAUNCH_EARLY(g, pool, dim3(channels, n_row + 1, n_chunk), THREADS, 0, *a);
    NB_LAUNCH_EARLY(g, finish, dim3(n_comp, n_row, n_chunk), THREADS, 0, *a);
    NB_LAUNCH_EARLY(g, pages, dim3((unsigned)(r.n_row + 7) / 8, n_page, n_chunk), THREADS, 0, p);
    NB_LAUNCH_EARLY(g, keep_sums, dim3(wide, ring, n_chunk), THREADS, 0, *a);
}

void nb_cuda_csa_keep(nb_cuda *g, const nb_cuda_csa_keep_args *a)
{
    const size_t n = a->window < a->max_chunk_tok ? a->window : a->max_chunk_tok;
    if (a->n_chunk == 0 || n == 0) return;
    NB_LAUNCH_EARLY(g, keep_window, dim3((unsigned)n, (unsigned)a->n_chunk), THREADS, 0, *a);
}
