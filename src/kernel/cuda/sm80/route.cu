/* route.cu - top-k routing of tokens to experts, and the sort of rows by expert.
 *
 * Computes score_e = sigmoid, softmax or sqrt(ln(1 + exp)) of the logits; the top_k experts by score + bias (within the best groups, if
 * there are groups); weight_e = score_e factor, with `normalise` divided by the sum of the chosen scores.
 * Scores are in double as on the host, so ids differ only where two choices agree to 1e-15.
 *
 * Choice: each score becomes an integer key of the same order (0: switched off) in shared memory.  A warp takes the
 * top_k largest keys of its token; each lane knows the best of its own experts, so a choice costs three warp
 * reductions of a register.  A few lanes rank each group.
 *
 * Order: a counting sort.  A row's place is the first place of its expert, plus the number of the expert's rows before
 * it: those in earlier chunks of rows, and the bits before its own in the expert's mask of this chunk.  Counts are
 * integers, so the order of the additions does not matter.  Experts are counted where they stand in the order of places.
 *
 *   tokens            launches (choices that are given: the sort alone)
 *   1                 one: the places are the ranks of the experts, no counts
 *   up to FUSED_TOK   one block does everything, because a launch costs more than the work
 *   more              two: blocks choose, a token each until every SM has one; then blocks of ORDER_ROWS rows sort.
 *                     Each of these counts the rows of all others itself: 65,536 ids from L2 cost less than a
 *                     third launch
 * Slower: one block for 64 tokens of 256 experts takes 36 us, bound by scores in double on one SM; two launches take
 * about half. */
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"
#include "kernel/route/route.h"

namespace
{
constexpr uint32_t ONE_THREADS = 128, FUSED_TOK = 16, FUSED_FEW = 8, ORDER_ROWS = 2048,
                   KEY_BYTES = 96 * 1024;
constexpr uint32_t BIT_WORDS = 16, BIT_BYTES = 32 * 1024, MAX_WARPS = 32;

struct plan {
    nb_cuda_route_args a;
    uint32_t n_slot; /* tokens whose keys are in shared memory at a time; at most one per warp */
    uint32_t slot_bytes, n_word, n_row;
};

/* A token's part of shared memory. */
struct slot {
    uint64_t *key;          /* [n_expert] */
    double *rank, *score;   /* [n_group], [top_k] */
    uint32_t *chosen, *off; /* [top_k], [n_group] */
};

size_t slot_bytes(const nb_cuda_route_args *a)
{
    return (a->n_expert * 8 + a->n_group * 12 + a->top_k * 12 + 16) & ~(size_t)7;
}

__device__ slot slot_of(const plan &p, unsigned char *shared, uint32_t i)
{
    slot s;
    s.key = reinterpret_cast<uint64_t *>(shared + (size_t)i * p.slot_bytes);
    s.rank = reinterpret_cast<double *>(s.key + p.a.n_expert);
    s.score = s.rank + p.a.n_group;
    s.chosen = reinterpret_cast<uint32_t *>(s.score + p.a.top_k);
    s.off = s.chosen + p.a.top_k;
    return s;
}

/* Where expert e stands in the order of places. */
__device__ uint32_t at(const plan &p, uint32_t e)
{
    const uint32_t n = (uint32_t)p.a.n_rank;
    return n > 1 ? NB_CUDA_EXPERT_AT(e, (uint32_t)p.a.n_expert, n) : e;
}

/* Whether row i is to have a place. */
__device__ bool is_on(const plan &p, uint32_t i)
{
    return !p.a.on || p.a.on[i / (uint32_t)p.a.top_k];
}

/* Larger values have larger keys; no key is 0. */
__device__ uint64_t key_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u >> 63 ? ~u : u | (uint64_t)1 << 63;
}
__device__ double value_of(uint64_t key)
{
    const uint64_t u = key >> 63 ? key & ~((uint64_t)1 << 63) : ~key;
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Softmax of a token: the largest logit, and the sum of exponentials.  Called by a warp. */
struct norm {
    double max, sum;
};
__device__ norm norm_of(const float *logits, uint32_t n)
{
    float max = -INFINITY;
    for (uint32_t e = threadIdx.x % 32; e < n; e += 32)
        if (logits[e] > max) max = logits[e];
    for (int d = 16; d > 0; d >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, max, d);
        max = other > max ? other : max;
    }
    double sum = 0;
    for (uint32_t e = threadIdx.x % 32; e < n; e += 32) sum += exp((double)logits[e] - (double)max);
    return { (double)max, nb_warp_sum(sum) };
}

__device__ double score_of(const plan &p, norm m, float logit)
{
    if (p.a.sqrt_softplus) return sqrt(logit > 40 ? (double)logit : log1p(exp((double)logit)));
    return p.a.sigmoid ? 1.0 / (1.0 + exp(-(double)logit)) : exp((double)logit - m.max) / m.sum;
}

__device__ uint64_t choice_of(const plan &p, norm m, float logit, uint32_t e)
{
    const double x = score_of(p, m, logit) + (p.a.bias ? (double)p.a.bias[e] : 0.0);
    return key_of(isnan(x) ? -INFINITY : x);
}

/* Switches off the groups that were not chosen.  Called by a warp. */
__device__ void mask_groups(const plan &p, const slot &s)
{
    const uint32_t n_group = (uint32_t)p.a.n_group, per = (uint32_t)p.a.n_expert / n_group;
    const uint32_t lane = threadIdx.x % 32;
    uint32_t team = 32; /* lanes per group, a power of two */
    while (team > 1 && team * n_group > 32) team /= 2;
    for (uint32_t g0 = 0; g0 < n_group; g0 += 32 / team) {
        const uint32_t g = g0 + lane / team;
        uint64_t first = 0, second = 0; /* 0: none */
        for (uint32_t i = lane % team; g < n_group && i < per; i += team) {
            const uint64_t k = s.key[g * per + i];
            const uint64_t lesser = k > first ? first : k;
            first = k > first ? k : first;
            second = lesser > second ? lesser : second;
        }
        for (uint32_t d = team / 2; d > 0; d /= 2) {
            const uint64_t f = __shfl_xor_sync(0xffffffffu, first, d);
            const uint64_t o = __shfl_xor_sync(0xffffffffu, second, d);
            const uint64_t lesser = f > first ? first : f, more = o > second ? o : second;
            first = f > first ? f : first;
            second = lesser > more ? lesser : more;
        }
        if (g < n_group && lane % team == 0)
            s.rank[g] = value_of(first) + (p.a.group_top == 2 && per > 1 ? value_of(second) : 0.0);
    }
    __syncwarp();
    for (uint32_t g = lane; g < n_group; g += 32) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < n_group; i++)
            before += s.rank[i] > s.rank[g] || (s.rank[i] == s.rank[g] && i < g);
        s.off[g] = before >= p.a.topk_group;
    }
    __syncwarp();
    for (uint32_t e = lane; e < n_group * per; e += 32)
        if (s.off[e / per]) s.key[e] = 0;
    __syncwarp();
}

/* The largest key of a lane's experts; the first of equal ones. */
struct best {
    uint64_t key;
    uint32_t e;
};
__device__ best best_of(const slot &s, uint32_t n_expert)
{
    best b = { 0, UINT32_MAX };
    for (uint32_t e = threadIdx.x % 32; e < n_expert; e += 32) {
        const uint64_t k = s.key[e];
        if (k > b.key) b = { k, e };
    }
    return b;
}

/* Chooses the ids and weights of token t, whose keys are in shared memory.  Called by a warp. */
__device__ void choose(const plan &p, const slot &s, norm m, size_t t)
{
    const uint32_t lane = threadIdx.x % 32, top_k = (uint32_t)p.a.top_k;
    const uint32_t n_expert = (uint32_t)p.a.n_expert;
    if (p.a.table) {
        const size_t id = p.a.tok[t] < p.a.n_vocab ? p.a.tok[t] : 0;
        for (uint32_t k = lane; k < top_k; k += 32) s.chosen[k] = p.a.table[id * top_k + k];
    }
    if (p.a.n_group > 1 && !p.a.table) mask_groups(p, s);
    best b = best_of(s, n_expert);
    for (uint32_t k = 0; k < top_k && !p.a.table; k++) {
        const uint32_t hi = __reduce_max_sync(0xffffffffu, (uint32_t)(b.key >> 32));
        const bool is_hi = (uint32_t)(b.key >> 32) == hi;
        const uint32_t lo = __reduce_max_sync(0xffffffffu, is_hi ? (uint32_t)b.key : 0);
        const bool is_best = is_hi && (uint32_t)b.key == lo;
        const uint32_t e = ~__reduce_max_sync(0xffffffffu, is_best ? ~b.e : 0);
        /* e < n_expert always: enough experts take part */
        if (lane == k % 32) s.chosen[k] = e < n_expert ? e : 0;
        if (is_best && b.e == e && e < n_expert) {
            s.key[e] = 0;
            b = best_of(s, n_expert);
        }
    }
    __syncwarp();
    for (uint32_t k = lane; k < top_k; k += 32)
        s.score[k] = score_of(p, m, p.a.logits[t * n_expert + s.chosen[k]]);
    __syncwarp();
    double sum = 0;
    for (uint32_t k = 0; p.a.normalise && k < top_k; k++) sum += s.score[k];
    const double f = p.a.normalise ? (double)p.a.factor / (sum + 1e-20) : (double)p.a.factor;
    for (uint32_t k = lane; k < top_k; k += 32) {
        p.a.id[t * top_k + k] = s.chosen[k];
        p.a.weight[t * top_k + k] = (float)(s.score[k] * f);
    }
}

/* Tokens [t0, t0 + n), n <= n_slot: one warp each, but sigmoids are spread over the block. */
__device__ void choose_tokens(const plan &p, unsigned char *shared, size_t t0, uint32_t n)
{
    const uint32_t warp = threadIdx.x / 32, n_expert = (uint32_t)p.a.n_expert;
    const float *logits = p.a.logits + t0 * n_expert;
    norm m = { 0, 1 };
    if (p.a.sigmoid || p.a.sqrt_softplus) {
        for (uint32_t i = threadIdx.x; i < n * n_expert; i += blockDim.x)
            slot_of(p, shared, i / n_expert).key[i % n_expert] =
                choice_of(p, m, logits[i], i % n_expert);
    } else if (warp < n) {
        const slot s = slot_of(p, shared, warp);
        m = norm_of(logits + (size_t)warp * n_expert, n_expert);
        for (uint32_t e = threadIdx.x % 32; e < n_expert; e += 32)
            s.key[e] = choice_of(p, m, logits[(size_t)warp * n_expert + e], e);
    }
    __syncthreads();
    if (warp < n) choose(p, slot_of(p, shared, warp), m, t0 + warp);
    __syncthreads();
}

/* Exclusive prefix sum of x, in place.  Called by all threads. */
__device__ void sums_before(uint32_t *x, uint32_t n)
{
    __shared__ uint32_t part[MAX_WARPS];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t before = 0; /* sum of the previous rounds */
    for (uint32_t i0 = 0; i0 < n; i0 += blockDim.x) {
        const uint32_t i = i0 + threadIdx.x, v = i < n ? x[i] : 0;
        uint32_t sum = v;
        for (uint32_t d = 1; d < 32; d *= 2) {
            const uint32_t other = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += other;
        }
        if (lane == 31) part[warp] = sum;
        __syncthreads();
        uint32_t all = 0;
        for (uint32_t w = 0; w < blockDim.x / 32; w++) {
            if (w == warp) sum += before + all;
            all += part[w];
        }
        if (i < n) x[i] = sum - v;
        before += all;
        __syncthreads();
    }
}

/* Computes the places of rows [i0, i1); next[e]: the place of expert e's next row.  Called by all threads. */
__device__ void order_rows(const plan &p, uint32_t i0, uint32_t i1, uint32_t *next, uint32_t *bits)
{
    const uint32_t n_word = p.n_word, n_expert = (uint32_t)p.a.n_expert;
    for (uint32_t c = i0; c < i1; c += 32 * n_word) {
        const uint32_t end = i1 - c < 32 * n_word ? i1 : c + 32 * n_word;
        for (uint32_t i = threadIdx.x; i < n_expert * n_word; i += blockDim.x) bits[i] = 0;
        __syncthreads();
        for (uint32_t i = c + threadIdx.x; i < end; i += blockDim.x)
            if (is_on(p, i)) atomicOr(&bits[at(p, p.a.id[i]) * n_word + (i - c) / 32], 1u << (i - c) % 32);
        __syncthreads();
        for (uint32_t i = c + threadIdx.x; i < end; i += blockDim.x) {
            if (!is_on(p, i)) {
                p.a.place[i] = 0;
                continue;
            }
            const uint32_t e = at(p, p.a.id[i]), *mask = bits + e * n_word, w = (i - c) / 32;
            uint32_t place = next[e] + __popc(mask[w] & ((1u << (i - c) % 32) - 1));
            for (uint32_t k = 0; k < w; k++) place += __popc(mask[k]);
            p.a.place[i] = place;
            p.a.src[place] = i / (uint32_t)p.a.top_k;
        }
        if (end == i1) break;
        __syncthreads();
        for (uint32_t e = threadIdx.x; e < n_expert; e += blockDim.x)
            for (uint32_t k = 0; k < n_word; k++) next[e] += __popc(bits[e * n_word + k]);
        __syncthreads();
    }
}

/* n_row: rows with a place. */
__device__ void store_first(const plan &p, const uint32_t *first, uint32_t n_row)
{
    for (uint32_t e = threadIdx.x; e < p.a.n_expert; e += blockDim.x) p.a.first[e] = first[e];
    if (threadIdx.x == 0) p.a.first[p.a.n_expert] = n_row;
}

/* The next kernel, experts, fills all SMs.  If it started early, its waiting blocks would keep out the shared experts,
 * which run on the side stream (H100, DeepSeek-V2-Lite's shape: 3 us per layer). */
__device__ void begin_alone()
{
    nb_grid_wait();
    nb_grid_next();
}

/* One token: the order needs no counts, and the kernel reads nothing that it wrote to global memory. */
__global__ void one_kernel(plan p)
{
    begin_alone();
    NB_SHARED(unsigned char, shared);
    choose_tokens(p, shared, 0, 1);
    const uint32_t *chosen = slot_of(p, shared, 0).chosen, top_k = (uint32_t)p.a.top_k;
    for (uint32_t e = threadIdx.x; e <= p.a.n_expert; e += blockDim.x) {
        uint32_t before = 0;
        for (uint32_t k = 0; k < top_k; k++) before += at(p, chosen[k]) < e;
        p.a.first[e] = before;
    }
    for (uint32_t k = threadIdx.x; k < top_k; k += blockDim.x) {
        uint32_t before = 0;
        const uint32_t e = at(p, chosen[k]);
        for (uint32_t i = 0; i < top_k; i++)
            before += at(p, chosen[i]) < e || (chosen[i] == chosen[k] && i < k);
        p.a.place[k] = before;
        p.a.src[before] = 0;
    }
}

/* Up to FUSED_TOK tokens: one block does everything. */
__global__ void fused_kernel(plan p)
{
    begin_alone();
    NB_SHARED(unsigned char, shared);
    uint32_t *next = reinterpret_cast<uint32_t *>(shared), n_expert = (uint32_t)p.a.n_expert;
    unsigned char *rest = shared + ((n_expert * 4 + 15) & ~15u); /* keys, then bits */
    for (uint32_t e = threadIdx.x; e < n_expert; e += blockDim.x) next[e] = 0;
    for (size_t t = 0; t < p.a.n_tok; t += p.n_slot) {
        const size_t left = p.a.n_tok - t;
        choose_tokens(p, rest, t, left < p.n_slot ? (uint32_t)left : p.n_slot);
    }
    for (uint32_t i = threadIdx.x; i < p.n_row; i += blockDim.x) atomicAdd(&next[at(p, p.a.id[i])], 1u);
    __syncthreads();
    sums_before(next, n_expert);
    store_first(p, next, p.n_row);
    order_rows(p, 0, p.n_row, next, reinterpret_cast<uint32_t *>(rest));
}

__global__ void choose_kernel(plan p)
{
    nb_grid_next();
    nb_grid_wait();
    NB_SHARED(unsigned char, shared);
    const size_t t0 = (size_t)blockIdx.x * p.n_slot, left = p.a.n_tok - t0;
    choose_tokens(p, shared, t0, left < p.n_slot ? (uint32_t)left : p.n_slot);
}

__global__ void order_kernel(plan p)
{
    nb_grid_next();
    nb_grid_wait();
    NB_SHARED(uint32_t, next);
    const uint32_t n_expert = (uint32_t)p.a.n_expert, i0 = blockIdx.x * ORDER_ROWS;
    const uint32_t i1 = p.n_row - i0 < ORDER_ROWS ? p.n_row : i0 + ORDER_ROWS;
    /* before: counts of rows [0, i0) */
    uint32_t *before = next + n_expert, *bits = before + n_expert;
    for (uint32_t e = threadIdx.x; e < 2 * n_expert; e += blockDim.x) next[e] = 0;
    __syncthreads();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < p.n_row; i += blockDim.x)
        if (is_on(p, i)) atomicAdd((i < i0 ? before : next) + at(p, p.a.id[i]), 1u);
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < n_expert; e += blockDim.x) next[e] += before[e];
    __syncthreads();
    const uint32_t last = next[n_expert - 1];
    __syncthreads();
    sums_before(next, n_expert);
    if (blockIdx.x == 0) store_first(p, next, next[n_expert - 1] + last);
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < n_expert; e += blockDim.x) next[e] += before[e];
    __syncthreads();
    order_rows(p, i0, i1, next, bits);
}
} /* namespace */

void nb_cuda_route(nb_cuda *g, const nb_cuda_route_args *a)
{
    const size_t n_expert = a->n_expert, bytes = slot_bytes(a);
    if (a->n_tok == 0) return;
    plan p = { *a, 1, (uint32_t)bytes, 1, (uint32_t)(a->n_tok * a->top_k) };
    while (p.n_word < BIT_WORDS && 2 * p.n_word * 4 * n_expert <= BIT_BYTES) p.n_word *= 2;
    const size_t bit_bytes = p.n_word * 4 * n_expert;
    const bool fused = a->logits && a->n_tok <= FUSED_TOK;
    const uint32_t threads = fused && a->n_tok > FUSED_FEW ? 1024 : 256;
    const size_t share = fused ? a->n_tok : (a->n_tok + (size_t)g->n_sm - 1) / (size_t)g->n_sm;
    const size_t most = share < threads / 32 ? share : threads / 32;
    while (p.n_slot < most && (p.n_slot + 1) * bytes <= KEY_BYTES) p.n_slot++;
    const size_t key_bytes = p.n_slot * bytes;
    if (a->logits && a->n_tok == 1 && key_bytes <= 48 * 1024) {
        NB_LAUNCH_EARLY(g, one_kernel, 1, ONE_THREADS, key_bytes, p);
        return;
    }
    if (fused) {
        const size_t shared = n_expert * 4 + 16 + (key_bytes > bit_bytes ? key_bytes : bit_bytes);
        if (shared > 48 * 1024) NB_SHARED_LIMIT(g, fused_kernel, shared);
        NB_LAUNCH_EARLY(g, fused_kernel, 1, threads, shared, p);
        return;
    }
    const size_t shared = 2 * n_expert * 4 + bit_bytes;
    if (key_bytes > 48 * 1024) NB_SHARED_LIMIT(g, choose_kernel, key_bytes);
    if (shared > 48 * 1024) NB_SHARED_LIMIT(g, order_kernel, shared);
    if (a->logits)
        NB_LAUNCH_EARLY(g, choose_kernel, (unsigned)((a->n_tok + p.n_slot - 1) / p.n_slot), threads, key_bytes, p);
    NB_LAUNCH_EARLY(g, order_kernel, (p.n_row + ORDER_ROWS - 1) / ORDER_ROWS, 1024, shared, p);
}
