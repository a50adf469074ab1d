/* index_topk.cu - the k largest scores of each row, exactly: index_topk.h.
 *
 * A radix search over the scores as ordered integers: 11 bits, 11 bits, 10 bits.  A row is cut into parts of 4,096 scores,
 * one block each, so that one long row uses many SMs.  Five launches, each of which reads the scores (from L2):
 *   level 0, 1, 2   counts of the digits among the scores that agree with the digits found so far
 *   count           how many of a part's scores are above the k-th largest, and how many equal it
 *   write           the positions, which begin where the parts before end; of equal scores the first ones
 * A kernel's blocks derive the digit that the previous level has found, each for itself; a block of the row also writes
 * it for the later kernels.
 *
 * Bound by the latency of the launches for few rows.  One block per row would take 512 KiB of scores through one SM, five
 * times, and their counters with conflicts: some 40 us for 131,072 scores. */
#include "kernel/cuda/common/block.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/ptx.cuh"

namespace
{
constexpr uint32_t THREADS = 256, EACH = 16, PART = NB_CUDA_TOPK_PART, BINS = NB_CUDA_TOPK_BINS;
static_assert(THREADS * EACH == PART);

/* A row's scratch: counters of the three levels, what was found, counts of the parts. */
struct found {
    uint32_t prefix, rank; /* the digits so far; the rank of the k-th largest among the scores that have them */
};
struct work {
    uint32_t *count;          /* [3][BINS] */
    found *level;             /* [3]: after each level */
    uint32_t *above, *equal;  /* [parts] */
    const float *s;
    uint32_t n, pos0, n_part; /* scores of the row, the part's first; n 0: padding */
};

__device__ work work_of(const nb_cuda_index_topk_args &a, uint32_t i, uint32_t part)
{
    work x = {};
    const uint32_t row = (uint32_t)a.row0 + i, chunk = a.row_chunk[row];
    if (chunk == UINT32_MAX) return x;
    const nb_cuda_chunk &c = a.chunk[chunk];
    x.n = c.pos0 + (row - c.row0) + 1;
    if (a.ratio) x.n /= (uint32_t)a.ratio;
    x.count = a.scratch + i * NB_CUDA_TOPK_SCRATCH(a.stride);
    x.level = reinterpret_cast<found *>(x.count + 3 * BINS);
    x.above = x.count + 3 * BINS + 8;
    x.equal = x.above + (a.stride + PART - 1) / PART;
    x.s = a.score + i * a.stride;
    x.pos0 = part * PART;
    x.n_part = (x.n + PART - 1) / PART;
    return x;
}

/* index_topk.h: a score as an unsigned number in the same order. */
__device__ uint32_t key_of(float s)
{
    const uint32_t u = __float_as_uint(s + 0.0f);
    return s != s ? 0 : u >> 31 ? ~u : u | 0x80000000u;
}

/* This thread's scores: EACH consecutive ones; from n on they are not there. */
struct mine {
    uint32_t key[EACH], n;
};

__device__ mine load(const work &x)
{
    mine m;
    const uint32_t first = x.pos0 + threadIdx.x * EACH;
    m.n = first >= x.n ? 0 : x.n - first < EACH ? x.n - first : EACH;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i += 4) {
        float4 v = make_float4(0, 0, 0, 0);
        if (i < m.n) v = *reinterpret_cast<const float4 *>(x.s + first + i); /* rows are whole pages */
        m.key[i] = key_of(v.x), m.key[i + 1] = key_of(v.y);
        m.key[i + 2] = key_of(v.z), m.key[i + 3] = key_of(v.w);
    }
    return m;
}

__host__ __device__ constexpr uint32_t shift_of(int level)
{
    return level == 0 ? 21 : level == 1 ? 10 : 0;
}
__host__ __device__ constexpr uint32_t bits_of(int level)
{
    return level == 2 ? 10 : 11;
}

/* What level LEVEL has found, from its counters and `left` before it.  Called by all threads. */
template <int LEVEL> __device__ found find(const work &x, found left, uint32_t *shared, found *out)
{
    constexpr uint32_t N = 1u << bits_of(LEVEL), OWN = N / THREADS;
    const uint32_t *count = x.count + LEVEL * BINS;
    uint32_t c[OWN], sum = 0, all;
#pragma unroll
    for (uint32_t j = 0; j < OWN; j++) { /* from the largest digit down */
        c[j] = count[N - 1 - (threadIdx.x * OWN + j)];
        sum += c[j];
    }
    uint32_t at = nb_block_before<THREADS>(sum, shared, &all);
#pragma unroll
    for (uint32_t j = 0; j < OWN; j++) {
        if (at < left.rank && at + c[j] >= left.rank)
            *out = { left.prefix << bits_of(LEVEL) | (N - 1 - (threadIdx.x * OWN + j)), left.rank - at };
        at += c[j];
    }
    __syncthreads();
    return *out;
}

/* What the levels before LEVEL have found. */
template <int LEVEL>
__device__ found found_before(const work &x, uint32_t k, uint32_t *shared, found *out)
{
    found f = { 0, k };
    if constexpr (LEVEL > 1) f = x.level[LEVEL - 2];
    if constexpr (LEVEL > 0) f = find<LEVEL - 1>(x, f, shared, out);
    return f;
}

/* Grid: (parts, rows). */
template <int LEVEL> __global__ void __launch_bounds__(THREADS) topk_level(NB_PARAM nb_cuda_index_topk_args a)
{
    __shared__ uint32_t count[BINS], warps[THREADS / 32];
    __shared__ found out[1];
    nb_grid_next();
    nb_grid_wait();
    const work x = work_of(a, blockIdx.y, blockIdx.x);
    if (x.n <= a.k || x.pos0 >= x.n) return;
    const mine m = load(x);
    for (uint32_t b = threadIdx.x; b < BINS; b += THREADS) count[b] = 0;
    const found f = found_before<LEVEL>(x, (uint32_t)a.k, warps, out);
    if (LEVEL > 0 && blockIdx.x == 0 && threadIdx.x == 0) x.level[LEVEL - 1] = f;
    __syncthreads();
    constexpr uint32_t BITS = bits_of(LEVEL), SHIFT = shift_of(LEVEL);
    uint32_t digit = 0, run = 0; /* equal neighbours are one addition */
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        const bool counts = i < m.n && (LEVEL == 0 || m.key[i] >> (SHIFT + BITS < 32 ? SHIFT + BITS : 0) == f.prefix);
        if (!counts) continue;
        const uint32_t d = m.key[i] >> SHIFT & ((1u << BITS) - 1);
        if (run && d != digit) {
            atomicAdd(count + digit, run);
            run = 0;
        }
        digit = d;
        run++;
    }
    if (run) atomicAdd(count + digit, run);
    __syncthreads();
    for (uint32_t b = threadIdx.x; b < 1u << BITS; b += THREADS)
        if (count[b]) atomicAdd(x.count + LEVEL * BINS + b, count[b]);
}

/* Counts above and equal to the k-th largest, in the halves of a word: a part has 4,096 scores. */
__device__ uint32_t counts_of(const mine &m, uint32_t key)
{
    uint32_t n = 0;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        if (i < m.n) n += (m.key[i] > key ? 1u : 0) + (m.key[i] == key ? 0x10000u : 0);
    return n;
}

__global__ void __launch_bounds__(THREADS) topk_count(NB_PARAM nb_cuda_index_topk_args a)
{
    __shared__ uint32_t warps[THREADS / 32];
    __shared__ found out[1];
    nb_grid_next();
    nb_grid_wait();
    const work x = work_of(a, blockIdx.y, blockIdx.x);
    if (x.n <= a.k || x.pos0 >= x.n) return;
    const mine m = load(x);
    const found f = found_before<3>(x, (uint32_t)a.k, warps, out);
    uint32_t all;
    (void)nb_block_before<THREADS>(counts_of(m, f.prefix), warps, &all);
    if (threadIdx.x != 0) return;
    x.above[blockIdx.x] = all & 0xffff;
    x.equal[blockIdx.x] = all >> 16;
    if (blockIdx.x == 0) x.level[2] = f;
}

/* Sums of the parts before this one. */
__device__ void parts_before(const work &x, uint32_t *above, uint32_t *equal, uint32_t *warps)
{
    uint32_t n = 0, e = 0;
    for (uint32_t p = threadIdx.x; p < blockIdx.x; p += THREADS) n += x.above[p], e += x.equal[p];
    (void)nb_block_before<THREADS>(n, warps, above);
    (void)nb_block_before<THREADS>(e, warps, equal);
}

__global__ void __launch_bounds__(THREADS) topk_write(NB_PARAM nb_cuda_index_topk_args a)
{
    __shared__ uint32_t warps[THREADS / 32];
    nb_grid_next();
    nb_grid_wait();
    const work x = work_of(a, blockIdx.y, blockIdx.x);
    const uint32_t k = (uint32_t)a.k;
    uint32_t *at = a.at + blockIdx.y * a.k;
    if (x.pos0 >= x.n) return;
    if (x.n <= k) { /* all of them */
        for (uint32_t t = x.pos0 + threadIdx.x; t < x.n && t < x.pos0 + PART; t += THREADS) at[t] = t;
        return;
    }
    const mine m = load(x);
    const found f = x.level[2];
    uint32_t above, equal, all;
    parts_before(x, &above, &equal, warps);
    const uint32_t left = nb_block_before<THREADS>(counts_of(m, f.prefix), warps, &all);
    above += left & 0xffff, equal += left >> 16;
    for (uint32_t i = 0; i < m.n; i++) {
        const bool same = m.key[i] == f.prefix;
        const uint32_t taken = equal < f.rank ? equal : f.rank;
        if (m.key[i] > f.prefix || (same && equal < f.rank)) at[above + taken] = x.pos0 + threadIdx.x * EACH + i;
        above += m.key[i] > f.prefix;
        equal += same;
    }
    for (uint32_t b = blockIdx.x * THREADS + threadIdx.x; b < 3 * BINS; b += x.n_part * THREADS) x.count[b] = 0;
}
} // namespace

void nb_cuda_index_topk(nb_cuda *g, const nb_cuda_index_topk_args *a)
{
    if (a->n_row == 0) return;
    const dim3 grid((unsigned)((a->stride + PART - 1) / PART), (unsigned)a->n_row);
    NB_LAUNCH_EARLY(g, (topk_level<0>), grid, THREADS, 0, *a);
    NB_LAUNCH_EARLY(g, (topk_level<1>), grid, THREADS, 0, *a);
    NB_LAUNCH_EARLY(g, (topk_level<2>), grid, THREADS, 0, *a);
    NB_LAUNCH_EARLY(g, topk_count, grid, THREADS, 0, *a);
    NB_LAUNCH_EARLY(g, topk_write, grid, THREADS, 0, *a);
}
