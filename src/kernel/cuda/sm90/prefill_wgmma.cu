/* prefill_wgmma.cu - attention of a prompt in expanded form (keys and values per head) on Hopper: causal flash
 * attention with wgmma.
 *
 * Computes O = softmax(scale Q K^T) V for one head, in pages of 64 queries and tiles of 64 tokens.  Each query has a
 * state (m, l, o): running maximum, sum of weights, weighted sum of values.
 *
 * Tiles: as in sm80/prefill.cu a block owns some pages of queries of one head and walks over tiles of 64 tokens.  A
 * page of queries fills the 64 rows of wgmma.
 *   PAGES consumers  two or three warpgroups; each computes one page: S [64 x 64] = Q K^T, softmax,
 *                    O [64 x d_v] += P V
 *   1 producer       a warpgroup that copies the keys and values of the next tiles into a ring of stages
 * While one consumer turns scores into weights, the others have the tensor cores.
 *
 * Operands: queries stay in registers as A operand where they fit (QREG); the weights P always do.  Values are the
 * N-major B operand and need no transposition.  The producer uses cp.async, since a row has pieces from two places
 * (keys of the head, shared rope keys), and writes the 128-byte swizzle itself.  It announces a tile when its pieces
 * have landed and are fenced for wgmma.  Weights, masks and states: sm80/prefill.cuh.
 *
 * H100, one layer, prefill alone.  TFLOP/s of the (query, token) pairs that count; heads x d_k,d_v:
 *                                        16 x 192,128  the same,     8 x 128,64  20 x 256,256
 *                                        8192 tokens   1024 at 7168  8192        4096
 *   mma.sync (sm80/prefill.cu)           245           159           203         171
 *   this, two consumers                  439           407           352         299
 *   this, three (queries in memory, if   459           312           394         -
 *     they have more than 128 values)
 *   softmax beside the product of        387           359           302-360     256
 *     values: scores of the next tile issued first, then values
 * In these measurements the kernel stored the state, and another kernel divided (0.07 ms; 20 x 256,256: 0.085).
 *
 * Tried and slower, TFLOP/s:
 *   results written here, a division per value   416, 396, 382, 231 (the four columns); hence one division per row
 *   queries in memory and two consumers          377
 *   values of one tile and scores of the next    360
 *     issued together, one wait for both
 *
 * Pitfalls of the compiler: a product names its accumulators, but the fence before it and the wait after it name no
 * registers.  Without hold() around them, multiplications with the factor moved behind the fence, and 8 x 128,64 was
 * wrong.  ptxas serialises products that are in flight from one iteration of a loop to the next (C7514). */
#include "kernel/cuda/sm80/prefill.cuh"
#include "kernel/cuda/sm90/prefill_wgmma.cuh"

namespace
{
constexpr uint32_t GROUP = 128, BLOCK_BYTES = TOK * 128; /* 64 rows of 64 values */

template <int KQ, int NV, int STAGES, int PAGES, bool QREG> struct layout {
    static constexpr uint32_t threads = (1 + PAGES) * GROUP;
    static constexpr uint32_t key_blocks = (KQ + 3) / 4, value_blocks = NV / 8;
    static constexpr uint32_t query_bytes = QREG ? 0 : key_blocks * BLOCK_BYTES; /* per page */
    static constexpr uint32_t stage_bytes = (key_blocks + value_blocks) * BLOCK_BYTES;
    static constexpr uint32_t at_stage = PAGES * query_bytes,
                              at_bar = at_stage + STAGES * stage_bytes;
    static constexpr uint32_t bytes = at_bar + 16 * STAGES + 1024; /* 1024: to align the start */
};

/* Byte offset of piece c (8 values) of row t in a block of 64 values; 128-byte swizzle. */
__device__ inline uint32_t place(uint32_t t, uint32_t c)
{
    return t * 128 + (c ^ t % 8) * 16;
}

/* ---- the producer ---- */

template <int KQ, int NV>
__device__ void copy_tile(const plan &p, const source &s, unsigned char *stage)
{
    const uint32_t c = threadIdx.x % 8, t0 = threadIdx.x % GROUP / 8;
    const uint32_t dn = (uint32_t)p.a.d_nope, dk = dn + (uint32_t)p.a.d_rope;
#pragma unroll 1 /* saves registers */
    for (uint32_t b = 0; b < (KQ + 3) / 4; b++) {
        const uint32_t col = 64 * b + 8 * c;
        const bool rope = col >= dn;
        const uint16_t *from = rope ? s.rope + (col - dn) : s.kv + col;
        const size_t stride = rope ? p.a.rope_stride : p.a.dec_stride;
#pragma unroll
        for (uint32_t t = t0; t < TOK; t += GROUP / 8) {
            const bool there = t < s.n_tok && col < dk;
            nb_cp_async16(stage + b * BLOCK_BYTES + place(t, c), there ? from + t * stride : s.kv,
                          there ? 16 : 0);
        }
    }
    stage += (KQ + 3) / 4 * BLOCK_BYTES;
    const uint16_t *v = s.kv + dn + 8 * c;
#pragma unroll 1
    for (uint32_t b = 0; b < NV / 8; b++)
#pragma unroll
        for (uint32_t t = t0; t < TOK; t += GROUP / 8) {
            const bool there = t < s.n_tok;
            nb_cp_async16(stage + b * BLOCK_BYTES + place(t, c),
                          there ? v + t * p.a.dec_stride + 64 * b : s.kv, there ? 16 : 0);
        }
}

template <int KQ, int NV, int STAGES, int PAGES, bool QREG>
__device__ void copy_tiles(const plan &p, const walk &w, unsigned char *smem, uint32_t full)
{
    typedef layout<KQ, NV, STAGES, PAGES, QREG> at;
    constexpr uint32_t LAG = STAGES - 2; /* tiles in flight when one is announced */
    const uint32_t empty = full + 8 * STAGES;
    for (uint32_t i = 0; i < w.n_tile + LAG; i++) {
        if (i < w.n_tile) {
            if (i >= STAGES) nb_mbar_wait(empty + 8 * (i % STAGES), (i / STAGES - 1) & 1);
            copy_tile<KQ, NV>(p, source_of(p, w, i),
                              smem + at::at_stage + i % STAGES * at::stage_bytes);
        }
        nb_cp_async_commit();
        if (i + 1 < LAG + 1) continue;
        nb_cp_async_wait<LAG>();
        nb_fence_async();
        nb_mbar_arrive(full + 8 * ((i - LAG) % STAGES));
    }
}

/* ---- a consumer ---- */

__device__ inline float query_value(const plan &p, const walk &w, uint32_t t, uint32_t c)
{
    const uint32_t dk = (uint32_t)(p.a.d_nope + p.a.d_rope);
    if (t >= p.a.n_tok || c >= dk) return 0;
    return p.a.q[(p.a.row0 + t) * p.a.q_stride + (size_t)w.head * dk + c];
}

/* Loads the queries of rows row + g and row + g + 8 of the block as A operands in registers. */
template <int KQ>
__device__ void query_fragments(const plan &p, const walk &w, uint32_t row, uint32_t (&a)[KQ][4])
{
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t t0 = token_of(p, w, row + lane / 4), t1 = token_of(p, w, row + lane / 4 + 8);
#pragma unroll
    for (uint32_t j = 0; j < KQ; j++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            const uint32_t t = e % 2 ? t1 : t0, c = 16 * j + e / 2 * 8 + lane % 4 * 2;
            a[j][e] = nb_pack_bf16(query_value(p, w, t, c), query_value(p, w, t, c + 1));
        }
}

/* Loads the queries of the group's page as A operands in shared memory. */
template <int KQ>
__device__ void query_rows(const plan &p, const walk &w, uint32_t page, unsigned char *dst)
{
    constexpr uint32_t half = 8 * KQ;
    for (uint32_t i = threadIdx.x % GROUP; i < TOK * half; i += GROUP) {
        const uint32_t r = i / half, c = i % half * 2, t = token_of(p, w, page * TOK + r);
        unsigned char *to = dst + c / 64 * BLOCK_BYTES + place(r, c % 64 / 8) + c % 8 * 2;
        *reinterpret_cast<uint32_t *>(to) =
            nb_pack_bf16(query_value(p, w, t, c), query_value(p, w, t, c + 1));
    }
    nb_fence_async();
}

/* Replaces non-finite values in the group's own tile by zeros; true if this thread found one. */
template <int NV> __device__ bool clean(unsigned char *v)
{
    bool bad = false;
#pragma unroll 1
    for (uint32_t i = threadIdx.x % GROUP; i < NV / 8 * BLOCK_BYTES / 2; i += GROUP) {
        uint16_t *x = reinterpret_cast<uint16_t *>(v) + i;
        if (!is_bad(*x)) continue;
        bad = true;
        *x = 0;
    }
    if (bad) nb_fence_async();
    return bad;
}

/* The queries as A operands: fragments in registers (QREG), or a descriptor of shared memory. */
template <int KQ, bool QREG> struct queries {
    uint32_t f[QREG ? KQ : 1][4];
    uint64_t d;
};

template <int KQ, bool QREG>
__device__ void issue_scores(const queries<KQ, QREG> &q, uint32_t k, float (&s)[TILE_GROUPS][4])
{
    const uint64_t d = wg_desc(k, 16);
#pragma unroll
    for (uint32_t j = 0; j < KQ; j++) {
        const uint32_t to = j / 4 * (BLOCK_BYTES / 16) + j % 4 * 2;
        if constexpr (QREG)
            wg_keys(s, q.f[j], d + to, j > 0);
        else
            wg_keys(s, q.d + to, d + to, j > 0);
    }
    nb_wg_commit();
}

template <int NV>
__device__ void issue_values(const uint32_t (&a)[TOK / 16][4], uint32_t v, state<NV> &x)
{
    const uint64_t vd = wg_desc(v, BLOCK_BYTES);
#pragma unroll
    for (uint32_t j = 0; j < TOK / 16; j++) {
        const uint64_t d = vd + j * 128; /* 16 tokens further on */
        if constexpr (NV == 8) wg_values64<0>(x.o, a[j], d, 1);
        if constexpr (NV >= 16) wg_values128<0>(x.o, a[j], d, 1);
        if constexpr (NV == 32) wg_values128<16>(x.o, a[j], d + BLOCK_BYTES / 8, 1);
    }
    nb_wg_commit();
}

__device__ inline void weight_fragments(const float (&s)[TILE_GROUPS][4],
                                        uint32_t (&a)[TOK / 16][4])
{
#pragma unroll
    for (uint32_t j = 0; j < TOK / 16; j++) weight_fragment(s, j, a[j]);
}

/* One tile: S = Q K^T, softmax, O += P V; k and v: its keys and values in shared memory.  Applies the causal mask from
 * `row` on, unless row is TOK. */
template <int KQ, int NV, bool QREG>
__device__ void whole_tile(const plan &p, const queries<KQ, QREG> &q, uint32_t k, uint32_t v,
                           uint32_t row, state<NV> &x)
{
    float s[TILE_GROUPS][4], factor[2];
    uint32_t a[TOK / 16][4];
    nb_wg_fence();
    issue_scores<KQ, QREG>(q, k, s);
    nb_wg_wait<0>();
    hold(s);
    if (row != TOK) mask(row, s);
    weights(p.scale_log2, s, x, factor);
    rescale(factor, x);
    weight_fragments(s, a);
    hold(a);
    hold(x.o);
    nb_wg_fence();
    issue_values(a, v, x);
    nb_wg_wait<0>();
    hold(x.o);
}

__device__ inline void release(uint32_t bar)
{
    if (threadIdx.x % 32 == 0) nb_mbar_arrive(bar);
}

template <int KQ, int NV, int STAGES, int PAGES, bool QREG>
__device__ void compute_tiles(const plan &p, const walk &w, unsigned char *smem, uint32_t full)
{
    typedef layout<KQ, NV, STAGES, PAGES, QREG> at;
    const uint32_t mine = threadIdx.x / GROUP - 1, row = threadIdx.x % GROUP / 32 * 16;
    const uint32_t empty = full + 8 * STAGES, stage0 = nb_smem(smem) + at::at_stage;
    queries<KQ, QREG> q;
    if constexpr (QREG) {
        query_fragments<KQ>(p, w, mine * TOK + row, q.f);
    } else {
        query_rows<KQ>(p, w, mine, smem + mine * at::query_bytes);
        q.d = wg_desc(nb_smem(smem + mine * at::query_bytes), 16);
        group_any(1 + mine, false);
    }
    state<NV> x;
    load_state(p, w, mine * TOK + row, x);
    /* The decoded tiles before this group's page.  The tiles after them are for the other groups: this group only waits
     * until each is filled, so that all groups count a stage's phases alike. */
    const size_t page = (size_t)w.page + mine;
    const uint32_t n_mine = mine >= w.n_page || page <= p.a.page0 ? 0
                            : page - p.a.page0 < w.n_dec          ? (uint32_t)(page - p.a.page0)
                                                                  : w.n_dec;
    for (uint32_t i = 0; i < n_mine; i++) {
        const uint32_t st = i % STAGES, k = stage0 + st * at::stage_bytes;
        nb_mbar_wait(full + 8 * st, i / STAGES & 1);
        whole_tile<KQ, NV, QREG>(p, q, k, k + at::key_blocks * BLOCK_BYTES, TOK, x);
        release(empty + 8 * st);
    }
    bool bad = false;
    for (uint32_t i = n_mine; i < w.n_tile; i++) {
        const uint32_t st = i % STAGES;
        nb_mbar_wait(full + 8 * st, i / STAGES & 1);
        if (i == w.n_dec + mine) { /* the group's own tile, its last */
            unsigned char *tile = smem + at::at_stage + st * at::stage_bytes;
            const uint32_t k = nb_smem(tile), v = k + at::key_blocks * BLOCK_BYTES;
            bad = group_any(1 + mine, clean<NV>(tile + at::key_blocks * BLOCK_BYTES));
            whole_tile<KQ, NV, QREG>(p, q, k, v, row, x);
        }
        release(empty + 8 * st);
    }
    if (bad) poison(p, source_of(p, w, w.n_dec + mine), row, x);
    store_state(p, w, mine * TOK + row, x);
}

template <int KQ, int NV, int STAGES, int PAGES, bool QREG>
__global__ void __launch_bounds__((1 + PAGES) * GROUP, 1) prefill_kernel(NB_PARAM plan p)
{
    typedef layout<KQ, NV, STAGES, PAGES, QREG> at;
    NB_SHARED(unsigned char, raw);
    unsigned char *smem = raw + (1024 - nb_smem(raw) % 1024) % 1024;
    const uint32_t full = nb_smem(smem + at::at_bar);
    const walk w = walk_of(p);
    if (w.n_tile == 0 && !p.a.first) return;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < STAGES; i++) {
            nb_mbar_init(full + 8 * i, GROUP);
            nb_mbar_init(full + 8 * (STAGES + i), PAGES * GROUP / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        nb_fewer_registers<PAGES == 2 ? 40 : 32>();
        copy_tiles<KQ, NV, STAGES, PAGES, QREG>(p, w, smem, full);
    } else {
        nb_more_registers<PAGES == 2 ? 232 : 160>();
        compute_tiles<KQ, NV, STAGES, PAGES, QREG>(p, w, smem, full);
    }
}

template <int KQ, int NV, int STAGES, int PAGES, bool QREG>
void launch(nb_cuda *g, const nb_cuda_prefill_args *a)
{
    typedef layout<KQ, NV, STAGES, PAGES, QREG> at;
    plan p = plan_of(a, PAGES);
    p.whole = true;
    NB_SHARED_LIMIT(g, (prefill_kernel<KQ, NV, STAGES, PAGES, QREG>), at::bytes);
    NB_LAUNCH(g, (prefill_kernel<KQ, NV, STAGES, PAGES, QREG>),
              dim3((unsigned)a->n_head, p.n_block), at::threads, at::bytes, p);
}

} // namespace

bool nb_cuda_prefill_wgmma(nb_cuda *g, const nb_cuda_prefill_args *a)
{
    const size_t dk = a->d_nope + a->d_rope;
    if (!plan_of(a, 1).pieces) return false;
    if (dk == 192 && a->d_v == 128) /* DeepSeek */
        launch<12, 16, 4, 2, true>(g, a);
    else if (dk == 256 && a->d_v == 256) /* GLM */
        launch<16, 32, 2, 2, false>(g, a);
    else if (dk == 128 && a->d_v == 64) /* the bundled model */
        launch<8, 8, 4, 3, true>(g, a);
    else if (dk == 96 && a->d_v == 64) /* MiniCPM3 */
        launch<6, 8, 4, 3, true>(g, a);
    else
        return false;
    return true;
}
