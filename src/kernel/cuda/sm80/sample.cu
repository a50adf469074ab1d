/* sample.cu - samples a token from each row of logits; the steps are those of sample/sample.h.
 *
 * Computes w_i = exp((x_i - max) / temperature), keeps the tokens that top_k, min_p and top_p allow, and draws the
 * token at which the running sum of w exceeds u times the total.
 * Block: one row.
 *
 * Sums have the bits of the host: the same exponential (sample/row.c); blocks of 64 weights are added pairwise by a
 * warp, then one thread adds the blocks in order.  The running sums stay in shared memory, so a draw is a
 * search in them and 64 additions.
 *
 * top_k and top_p amount to finding the last token that stays (sample.c).
 *   1. Candidates are collected in order of ids.  For top_k: tokens that reach the k-th of the threads' largest logits,
 *      which at least k tokens do.  For top_p: tokens that weigh enough to be able to stay.
 *   2. A radix selection over the candidates: 2,048 bins of equal width, then digits of 11, 11 and 10 bits of the
 *   logits
 *      in the bin where the budget ends.  Masses are integers (weights in units of 2^-44), so the order of additions
 *      does not matter.
 *   3. Tokens that stay are compacted in place, in order, and summed as on the host.
 *
 * A greedy row is one pass, bound by what one SM reads from L2 (about 64 bytes per clock).  Several blocks per row
 * would need a second launch, which costs as much. */
#include <float.h>

#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"

namespace
{
constexpr uint32_t THREADS = 1024, WARPS = THREADS / 32, ALL = 0xffffffffu;
constexpr uint32_t BLOCK = 64; /* NB_ROW_BLOCK */
constexpr uint32_t RADIX = 2048, PER = 8, CHUNK = PER * THREADS;
constexpr double WEIGHT_FLOOR = -60.0, GREEDY_BELOW = 1e-5, UNIT = 17592186044416.0; /* 2^44 */

/* Shared memory through which the threads of a block communicate. */
struct board {
    uint64_t wide[WARPS];
    uint32_t part[2][WARPS];
    float w[BLOCK];
    float top, inv_t, least;
    uint32_t bound, digit, key, last, lowest;
    uint64_t better, mass, each;
    double sum;
    size_t at;
};

/* A row, and the tokens kept of it: ids and weights in order of ids. */
struct row {
    const float *x;
    uint32_t n;
    bool vec;
    float top, inv_t, least; /* as nb_row_scale */
    uint32_t *id;
    float *w;
};

__device__ uint32_t sort_key(float x)
{
    const uint32_t u = __float_as_uint(__fadd_rn(x, 0.0f));
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

__device__ float weight_of(float x, const row &r)
{
    const float shifter = 12582912.0f;
    const float d = __fmul_rn(__fadd_rn(x, -r.top), r.inv_t);
    const float t = __fadd_rn(__fmul_rn(d, 1.44269504f), shifter);
    const float n = __fadd_rn(t, -shifter);
    const float f =
        __fadd_rn(__fadd_rn(d, -__fmul_rn(n, 0.693359375f)), __fmul_rn(n, 2.12194440e-4f));
    float p = 1.0f / 5040;
    p = __fadd_rn(__fmul_rn(p, f), 1.0f / 720);
    p = __fadd_rn(__fmul_rn(p, f), 1.0f / 120);
    p = __fadd_rn(__fmul_rn(p, f), 1.0f / 24);
    p = __fadd_rn(__fmul_rn(p, f), 1.0f / 6);
    p = __fadd_rn(__fmul_rn(p, f), 0.5f);
    p = __fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(p, f), f), f), 1.0f);
    const float w = __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23));
    return x >= r.least ? w : 0.0f;
}

/* The maximum over all threads, returned to every thread. */
__device__ uint64_t block_max(uint64_t v, board *s)
{
    for (int d = 16; d > 0; d >>= 1) {
        const uint64_t o = __shfl_xor_sync(ALL, v, d);
        v = o > v ? o : v;
    }
    if (threadIdx.x % 32 == 0) s->wide[threadIdx.x / 32] = v;
    __syncthreads();
    v = s->wide[threadIdx.x % 32];
    for (int d = 16; d > 0; d >>= 1) {
        const uint64_t o = __shfl_xor_sync(ALL, v, d);
        v = o > v ? o : v;
    }
    __syncthreads();
    return v;
}

/* Exclusive prefix sum over the block's threads; *all becomes the total. */
template <typename T> __device__ T sum_before(T v, T *part, T *all)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    T sum = v;
    for (uint32_t d = 1; d < 32; d *= 2) {
        const T o = __shfl_up_sync(ALL, sum, d);
        if (lane >= d) sum += o;
    }
    if (lane == 31) part[warp] = sum;
    __syncthreads();
    T w = part[lane];
    for (uint32_t d = 1; d < 32; d *= 2) {
        const T o = __shfl_up_sync(ALL, w, d);
        if (lane >= d) w += o;
    }
    *all = __shfl_sync(ALL, w, 31);
    const T before = __shfl_sync(ALL, w, (int)(warp ? warp - 1 : 0));
    return sum - v + (warp ? before : 0);
}

/* ---- the largest logit ---- */

struct top {
    float max;
    uint32_t at;
    bool bad; /* NaN or +inf */
};
__device__ void look(top &t, float v, uint32_t i)
{
    t.bad |= !(v <= FLT_MAX);
    if (v > t.max || t.at == UINT32_MAX) {
        t.max = v;
        t.at = i;
    }
}
__device__ top top_of_thread(const row &r)
{
    top t = { -INFINITY, UINT32_MAX, false };
    const uint32_t n4 = r.vec ? r.n / 4 : 0;
    const float4 *x4 = reinterpret_cast<const float4 *>(r.x);
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < n4; i += THREADS) {
        const float4 v = x4[i];
        look(t, v.x, 4 * i);
        look(t, v.y, 4 * i + 1);
        look(t, v.z, 4 * i + 2);
        look(t, v.w, 4 * i + 3);
    }
    for (uint32_t i = 4 * n4 + threadIdx.x; i < r.n; i += THREADS) look(t, r.x[i], i);
    return t;
}

/* Index of the largest logit, the first of equal ones; UINT32_MAX if there is NaN or +inf, or all are -inf. */
__device__ uint32_t find_top(const top &t, board *s)
{
    const uint64_t mine = (uint64_t)(t.at == UINT32_MAX ? 0 : sort_key(t.max)) << 32 | ~t.at;
    const uint64_t best = block_max(t.bad ? UINT64_MAX : mine, s);
    return best == UINT64_MAX || best >> 32 <= sort_key(-INFINITY) ? UINT32_MAX : ~(uint32_t)best;
}

/* ---- sums and the draw ---- */

/* before[b] = sum of the weights of blocks 0..b, over all tokens or (KEPT) the kept ones.  Called by all threads. */
template <bool KEPT> __device__ void sum_weights(const row &r, uint32_t n, double *before, board *s)
{
    const uint32_t lane = threadIdx.x % 32, n_block = (n + BLOCK - 1) / BLOCK;
#pragma unroll 2
    for (uint32_t b = threadIdx.x / 32; b < n_block; b += WARPS) {
        const uint32_t i = b * BLOCK + lane, j = i + BLOCK / 2;
        const float u = i >= n ? 0.0f : KEPT ? r.w[i] : weight_of(r.x[i], r);
        const float v = j >= n ? 0.0f : KEPT ? r.w[j] : weight_of(r.x[j], r);
        const double sum = nb_warp_sum((double)u + (double)v);
        if (lane == 0) before[b] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
#pragma unroll 8
        for (uint32_t b = 0; b < n_block; b++) {
            sum += before[b];
            before[b] = sum;
        }
        s->sum = sum;
    }
    __syncthreads();
}

/* The place of the token at which the running sum exceeds target (nb_row_find).  Called by all threads. */
template <bool KEPT>
__device__ uint32_t find(const row &r, uint32_t n, const double *before, double target, board *s)
{
    const uint32_t lane = threadIdx.x % 32, n_block = (n + BLOCK - 1) / BLOCK;
    if (threadIdx.x < 32) {
        const bool none = !(before[n_block - 1] > target); /* if so, the last token with a weight */
        const double least = before[n_block - 1];
        uint32_t lo = 0, hi = n_block - 1;
        while (lo < hi) {
            const uint32_t mid = (lo + hi) / 2;
            if (none ? before[mid] >= least : before[mid] > target)
                hi = mid;
            else
                lo = mid + 1;
        }
        for (uint32_t k = lane; k < BLOCK; k += 32) {
            const uint32_t i = lo * BLOCK + k;
            s->w[k] = i >= n ? 0.0f : KEPT ? r.w[i] : weight_of(r.x[i], r);
        }
        __syncwarp();
        double sum = lo ? before[lo - 1] : 0;
        uint32_t last = 0;
        for (uint32_t k = 0; k < BLOCK; k++) {
            if (!(s->w[k] > 0)) continue;
            last = k;
            sum += (double)s->w[k];
            if (sum > target) break;
        }
        if (lane == 0) s->last = lo * BLOCK + last;
    }
    __syncthreads();
    return s->last;
}

/* ---- candidates ---- */

/* A key that at least k of the threads' largest logits reach; 0 if there are fewer than k.  Called by a warp. */
__device__ uint32_t key_of_best(const uint32_t *key, uint32_t k)
{
    uint32_t mine[THREADS / 32], bound = 0;
#pragma unroll
    for (uint32_t i = 0; i < THREADS / 32; i++) mine[i] = key[i * 32 + threadIdx.x];
    for (uint32_t bit = 0x80000000u; bit > 0x800; bit >>= 1) {
        uint32_t n = 0;
#pragma unroll
        for (uint32_t i = 0; i < THREADS / 32; i++) n += mine[i] >= (bound | bit);
        if (__reduce_add_sync(ALL, n) >= k) bound |= bit;
    }
    return bound;
}

/* Collects the tokens whose logit is at least lo, whose key is at least `key`, and whose weight is at least `lightest`
 * (0: any).  Returns how many.  Called by all threads. */
__device__ uint32_t collect(const row &r, uint32_t key, float lightest, float lo, board *s)
{
    uint32_t n = 0, round = 0;
    for (uint32_t c = 0; c < r.n; c += CHUNK, round ^= 1) {
        const uint32_t i0 = c + PER * threadIdx.x;
        float x[PER / 4][4];
        uint32_t mask = 0;
#pragma unroll
        for (uint32_t k = 0; k < PER; k += 4)
            if (i0 + k < r.n) nb_load4(x[k / 4], r.x + i0 + k, r.n - i0 - k, r.vec);
#pragma unroll
        for (uint32_t k = 0; k < PER; k++) {
            const float v = x[k / 4][k % 4];
            if (i0 + k < r.n && v >= lo && sort_key(v) >= key &&
                (lightest == 0 || weight_of(v, r) >= lightest))
                mask |= 1u << k;
        }
        uint32_t all, at = n + sum_before((uint32_t)__popc(mask), s->part[round], &all);
#pragma unroll
        for (uint32_t k = 0; k < PER; k++) {
            if (!(mask >> k & 1)) continue;
            r.id[at] = i0 + k;
            r.w[at++] = weight_of(x[k / 4][k % 4], r);
        }
        n += all;
    }
    __syncthreads();
    return n;
}

/* ---- selection ---- */

/* Finds the digit in which the budget ends, from the largest down; s->better becomes the mass above it.  Called by all
 * threads. */
__device__ void boundary(const uint64_t *mass, uint64_t budget, board *s)
{
    const uint32_t hi = RADIX - 1 - 2 * threadIdx.x, lo = hi - 1;
    const uint64_t a = mass[hi], b = mass[lo], better = s->better;
    if (threadIdx.x == 0) s->lowest = RADIX;
    uint64_t all;
    const uint64_t before = better + sum_before(a + b, s->wide, &all);
    __syncthreads();
    const bool ends = better + all >= budget;
    if (!ends && a + b > 0) atomicMin(&s->lowest, b > 0 ? lo : hi);
    __syncthreads();
    const bool in_a = ends ? before < budget && before + a >= budget : s->lowest == hi;
    const bool in_b = ends ? before + a < budget && before + a + b >= budget : s->lowest == lo;
    if (in_a || in_b) {
        s->digit = in_a ? hi : lo;
        s->better = in_a ? before : before + a;
        s->mass = in_a ? a : b;
    }
    __syncthreads();
}

__device__ uint64_t mass_of(float w, bool by_weight)
{
    if (!by_weight) return 1;
    const uint64_t q = (uint64_t)((double)w * UNIT + 0.5);
    return q ? q : 1;
}

__device__ uint32_t bin_of(float x, float lo, float f)
{
    const float above = __fadd_rn(x, -lo);
    const uint32_t bin = (uint32_t)((above > 0 ? above : 0) * f);
    return bin < RADIX ? bin : RADIX - 1;
}

/* The place of the nth (from 1) kept token with this key.  Called by all threads. */
__device__ uint32_t place_of(const row &r, uint32_t n, uint32_t key, uint64_t nth, board *s)
{
    uint32_t before = 0, round = 0;
    for (uint32_t c = 0; c < n; c += THREADS, round ^= 1) {
        const uint32_t i = c + threadIdx.x;
        const bool is = i < n && sort_key(r.x[r.id[i]]) == key;
        uint32_t all;
        const uint32_t at = before + sum_before((uint32_t)is, s->part[round], &all);
        if (is && at + 1 == nth) s->last = i;
        before += all;
    }
    __syncthreads();
    return s->last;
}

/* Compacts the tokens with a larger key, or with this key up to place `last`; returns how many. */
__device__ uint32_t keep(const row &r, uint32_t n, uint32_t key, uint32_t last, board *s)
{
    uint32_t m = 0, round = 0;
    for (uint32_t c = 0; c < n; c += THREADS, round ^= 1) {
        const uint32_t i = c + threadIdx.x, id = i < n ? r.id[i] : 0;
        const uint32_t k = i < n ? sort_key(r.x[id]) : 0;
        const float w = i < n ? r.w[i] : 0.0f;
        const bool stays = i < n && (k > key || (k == key && i <= last));
        uint32_t all;
        const uint32_t at = m + sum_before((uint32_t)stays, s->part[round], &all);
        if (stays) { /* all threads have read this chunk */
            r.id[at] = id;
            r.w[at] = w;
        }
        m += all;
    }
    __syncthreads();
    return m;
}

/* Keeps those of n tokens whose betters have less mass than budget; returns how many.  Called by all threads. */
__device__ uint32_t keep_best(const row &r, uint32_t n, bool by_weight, uint64_t budget, float lo,
                              uint64_t *mass, board *s)
{
    const float range = __fadd_rn(r.top, -lo);
    const float f = range > FLT_MIN * RADIX ? (RADIX - 1) / range : 0;
    const uint32_t shift[4] = { 0, 21, 10, 0 }, bits[4] = { 0, 11, 11, 10 };
    uint32_t bin = 0, key = 0;
    if (threadIdx.x == 0) s->better = 0;
#pragma unroll
    for (uint32_t level = 0; level < 4; level++) {
        for (uint32_t i = threadIdx.x; i < RADIX; i += THREADS) mass[i] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
            const float x = r.x[r.id[i]];
            const uint32_t b = bin_of(x, lo, f), k = sort_key(x), q = k >> shift[level];
            if (level > 0 && b != bin) continue;
            if (level > 1 && q >> bits[level] != key) continue;
            atomicAdd(reinterpret_cast<unsigned long long *>(
                          &mass[level ? q & (RADIX - 1) >> (11 - bits[level]) : b]),
                      (unsigned long long)mass_of(r.w[i], by_weight));
        }
        __syncthreads();
        boundary(mass, budget, s);
        if (level == 0)
            bin = s->digit;
        else
            key = key << bits[level] | s->digit;
    }
    /* The tokens left have equal keys and weights; the first ones stay. */
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        if (sort_key(r.x[r.id[i]]) == key) s->each = mass_of(r.w[i], by_weight);
    __syncthreads();
    const uint64_t left = budget > s->better ? budget - s->better : 1;
    const uint64_t n_stay = (left - 1) / s->each + 1;
    uint32_t last = UINT32_MAX;
    if (n_stay < s->mass / s->each) last = place_of(r, n, key, n_stay, s);
    return keep(r, n, key, last, s);
}

/* ---- a row ---- */

/* The smallest float that is at least y. */
__device__ float round_up(double y)
{
    const float f = (float)y;
    return (double)f < y ? nextafterf(f, INFINITY) : f;
}

__device__ void set_scale(const nb_cuda_sample_row &p, float top, board *s)
{
    const double lowest = p.min_p > 0 ? fmax(WEIGHT_FLOOR, log(p.min_p)) : WEIGHT_FLOOR;
    const double finite = fmax((double)top, 0.0) - (double)FLT_MAX;
    s->inv_t = (float)(1 / p.temperature);
    s->least = round_up(fmax(__dadd_rn((double)top, __dmul_rn(p.temperature, lowest)), finite));
}

__device__ uint32_t draw(row &r, const nb_cuda_sample_row &p, float thread_max, bool any,
                         unsigned char *shared, board *s)
{
    double *before = reinterpret_cast<double *>(shared);
    uint64_t *mass = reinterpret_cast<uint64_t *>(shared);
    const bool all = p.top_k == 0 || p.top_k >= r.n;
    uint32_t n = r.n;
    if (all) {
        sum_weights<false>(r, n, before, s);
        if (!(p.top_p < 1)) return find<false>(r, n, before, p.u * s->sum, s);
    } else {
        uint32_t *key = reinterpret_cast<uint32_t *>(shared);
        key[threadIdx.x] = any ? sort_key(thread_max) : 0;
        __syncthreads();
        if (threadIdx.x < 32) {
            const uint32_t bound = p.top_k <= THREADS ? key_of_best(key, p.top_k) : 0;
            if (threadIdx.x == 0) s->bound = bound;
        }
        __syncthreads();
        n = collect(r, s->bound, 0, r.least, s);
        if (n > p.top_k) n = keep_best(r, n, false, p.top_k, r.least, mass, s);
        sum_weights<true>(r, n, before, s);
    }
    if (p.top_p < 1) {
        const double sum = s->sum;
        float lo = r.least;
        if (all) {
            const float least = (float)(0.999 * (1 - p.top_p) * sum / (double)r.n);
            const float lightest = fmaxf(least, FLT_MIN);
            /* a little lower, so that no token heavy enough is below it */
            const double d = p.temperature * ((double)logf(lightest) - 1e-3);
            lo = (float)fmax((double)lo, (double)r.top + d);
            n = collect(r, 0, lightest, lo, s);
        }
        const double budget = ceil(p.top_p * sum * UNIT);
        n = keep_best(r, n, true, budget > 1 ? (uint64_t)budget : 1, lo, mass, s);
        sum_weights<true>(r, n, before, s);
    }
    return r.id[find<true>(r, n, before, p.u * s->sum, s)];
}

__global__ void __launch_bounds__(THREADS) sample_kernel(nb_cuda_sample_args a, bool vec)
{
    NB_SHARED(unsigned char, shared);
    __shared__ board s;
    const size_t i = blockIdx.x;
    const nb_cuda_sample_row p = a.row[i];
    unsigned char *scratch =
        static_cast<unsigned char *>(a.scratch) + i * NB_CUDA_SAMPLE_SCRATCH(a.n_vocab);
    row r = { a.logits + i * a.stride, (uint32_t)a.n_vocab, vec, 0, 0, 0, nullptr, nullptr };
    r.id = reinterpret_cast<uint32_t *>(scratch);
    r.w = reinterpret_cast<float *>(r.id + (a.n_vocab + 255) / 256 * 256);
    const top t = top_of_thread(r);
    const uint32_t best = find_top(t, &s);
    if (best == UINT32_MAX || p.temperature < GREEDY_BELOW) {
        if (threadIdx.x == 0) a.id[i] = best;
        return;
    }
    r.top = r.x[best];
    if (threadIdx.x == 0) set_scale(p, r.top, &s);
    __syncthreads();
    r.inv_t = s.inv_t;
    r.least = s.least;
    const uint32_t id = draw(r, p, t.max, t.at != UINT32_MAX, shared, &s);
    if (threadIdx.x == 0) a.id[i] = id;
}
} /* namespace */

void nb_cuda_sample(nb_cuda *g, const nb_cuda_sample_args *a)
{
    if (a->n_row == 0) return;
    const size_t sums = (a->n_vocab + BLOCK - 1) / BLOCK * sizeof(double);
    const size_t shared = sums > RADIX * 8 ? sums : RADIX * 8;
    if (shared > 40 * 1024) NB_SHARED_LIMIT(g, sample_kernel, shared);
    NB_LAUNCH(g, sample_kernel, (unsigned)a->n_row, THREADS, shared, *a,
              nb_rows_aligned(a->logits, a->stride));
}
