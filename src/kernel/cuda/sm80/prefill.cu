/* prefill.cu - expanded (not absorbed) causal attention of a prompt, with mma.sync (BF16 operands, float sums).
 *
 * Computes o = softmax(scale q k^T) v per head by the FlashAttention recurrence, over tiles of 64 keys and values.
 *
 * Block: two pages (128) of queries of one head; eight warps of 16 queries.  So a tile in shared memory serves 128
 * queries.  The block walks over the decoded tiles in ascending order, then over the own tiles of its two pages.  A
 * warp takes part in the tiles that its page sees.
 * Warp: scores stay in registers and become the A fragments of p v there.
 * Pipeline: keys and values have one buffer each.  While scores are computed, the tile's values are in flight;
 * while weights are multiplied with values, the next tile's keys are.  Two blocks share an SM.
 *
 * The state of a query is (m, l, o): the running maximum of scores times log2(e), the sum of weights, and the sum of
 * weighted values.  It changes once per tile of 64 tokens, always by the same arithmetic.  So the result does not
 * depend on how many calls the tiles come in, which page shares the block, or how many queries there are.
 *
 * Rows of shared memory are D + 8 values long, an odd number of 16-byte pieces, so ldmatrix has no bank
 * conflicts.  Shapes without a kernel of their own, and those that are no multiples of 8, use the general kernel: steps
 * counted at run time, zero columns.
 *
 * Blocks of late pages have the most tiles and are launched first.  Neighbouring blocks have the same pages and
 * different heads, and walk over the tiles together, so L2 serves all pages of a head. */
#include "kernel/cuda/sm80/prefill.cuh"

namespace
{
constexpr uint32_t PAGES = 2, WARPS = 4 * PAGES, THREADS = 32 * WARPS;

/* ---- loads to shared memory ---- */

template <int KQ> __device__ void load_keys(const plan &p, const source &s, uint16_t *dst)
{
    const uint32_t dn = (uint32_t)p.a.d_nope, dk = dn + (uint32_t)p.a.d_rope;
    const uint32_t w = 16 * (KQ ? KQ : p.n_step), ldk = w + 8;
    const size_t stride = p.a.dec_stride, rope_stride = p.a.rope_stride;
    if (p.pieces) {
#pragma unroll 2
        for (uint32_t i = threadIdx.x; i < TOK * w / 8; i += THREADS) {
            const uint32_t t = i / (w / 8), c = i % (w / 8) * 8;
            const bool there = t < s.n_tok && c < dk;
            const uint16_t *from =
                c < dn ? s.kv + t * stride + c : s.rope + t * rope_stride + c - dn;
            nb_cp_async16(dst + t * ldk + c, there ? from : s.kv, there ? 16 : 0);
        }
        return;
    }
    for (uint32_t i = threadIdx.x; i < TOK * w; i += THREADS) {
        const uint32_t t = i / w, c = i % w;
        uint16_t x = 0;
        if (t < s.n_tok && c < dk)
            x = c < dn ? s.kv[t * stride + c] : s.rope[t * rope_stride + c - dn];
        dst[t * ldk + c] = x;
    }
}

template <int NV> __device__ void load_values(const plan &p, const source &s, uint16_t *dst)
{
    constexpr uint32_t width = 8 * NV, ldv = width + 8;
    const uint32_t dv = (uint32_t)p.a.d_v;
    const uint16_t *v = s.kv + p.a.d_nope;
    const size_t stride = p.a.dec_stride;
    if (p.pieces) {
#pragma unroll 2
        for (uint32_t i = threadIdx.x; i < TOK * width / 8; i += THREADS) {
            const uint32_t t = i / (width / 8), c = i % (width / 8) * 8;
            const bool there = t < s.n_tok && c < dv;
            nb_cp_async16(dst + t * ldv + c, there ? v + t * stride + c : v, there ? 16 : 0);
        }
        return;
    }
    for (uint32_t i = threadIdx.x; i < TOK * width; i += THREADS) {
        const uint32_t t = i / width, c = i % width;
        dst[t * ldv + c] = t < s.n_tok && c < dv ? v[t * stride + c] : (uint16_t)0;
    }
}

template <int KQ> __device__ void load_queries(const plan &p, const walk &w, uint16_t *dst)
{
    const uint32_t dk = (uint32_t)(p.a.d_nope + p.a.d_rope);
    const uint32_t half = 8 * (KQ ? KQ : p.n_step), ldk = 2 * half + 8;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < PAGES * TOK * half; i += THREADS) {
        const uint32_t r = i / half, c = i % half * 2, t = token_of(p, w, r);
        const float *q = p.a.q + (p.a.row0 + t) * p.a.q_stride + (size_t)w.head * dk + c;
        const bool there = t < p.a.n_tok;
        const float x0 = there && c < dk ? q[0] : 0, x1 = there && c + 1 < dk ? q[1] : 0;
        *reinterpret_cast<uint32_t *>(dst + r * ldk + c) = nb_pack_bf16(x0, x1);
    }
}

/* ---- products ---- */

/* s = q k^T for the warp's 16 queries (from q on) and the tile; KQ: number of k-steps, or 0 for p.n_step. */
template <int KQ>
__device__ void scores(const plan &p, const uint16_t *q, const uint16_t *k,
                       float (&s)[TILE_GROUPS][4])
{
    const uint32_t lane = threadIdx.x % 32, n_step = KQ ? KQ : p.n_step, ldk = 16 * n_step + 8;
    q += lane % 16 * ldk + lane / 16 * 8;
    k += (lane / 16 * 8 + lane % 8) * ldk + lane / 8 % 2 * 8;
#pragma unroll
    for (uint32_t n = 0; n < TILE_GROUPS; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (uint32_t j = 0; j < n_step; j++) {
        uint32_t a[4], b[4];
        nb_ldmatrix4(a, q + 16 * j);
#pragma unroll
        for (uint32_t n = 0; n < TILE_GROUPS; n += 2) {
            nb_ldmatrix4(b, k + 8 * n * ldk + 16 * j);
            nb_mma_bf16(s[n], a, b[0], b[1]);
            nb_mma_bf16(s[n + 1], a, b[2], b[3]);
        }
    }
}

/* o += p v. */
template <int NV>
__device__ void add_values(const uint16_t *v, const float (&s)[TILE_GROUPS][4], state<NV> &x)
{
    const uint32_t lane = threadIdx.x % 32, ldv = 8 * NV + 8;
    v += lane % 16 * ldv + lane / 16 * 8;
#pragma unroll
    for (uint32_t j = 0; j < TOK / 16; j++) {
        uint32_t a[4], b[4];
        weight_fragment(s, j, a);
#pragma unroll
        for (uint32_t n = 0; n < NV; n += 2) {
            nb_ldmatrix4_trans(b, v + 16 * j * ldv + 8 * n);
            nb_mma_bf16(x.o[n], a, b[0], b[1]);
            nb_mma_bf16(x.o[n + 1], a, b[2], b[3]);
        }
    }
}

/* Replaces the tile's values that are not finite by zeros; returns whether this thread found one. */
template <int NV> __device__ bool clean(uint16_t *v)
{
    constexpr uint32_t width = 8 * NV, ldv = width + 8;
    bool bad = false;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < TOK * width; i += THREADS) {
        uint16_t *x = v + i / width * ldv + i % width;
        if (!is_bad(*x)) continue;
        bad = true;
        *x = 0;
    }
    return bad;
}

template <int KQ, int NV, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) prefill_kernel(NB_PARAM plan p)
{
    NB_SHARED(uint16_t, q);
    const uint32_t ldk = 16 * (KQ ? KQ : p.n_step) + 8;
    uint16_t *k = q + PAGES * TOK * ldk, *v = k + TOK * ldk;
    const walk w = walk_of(p);
    const uint32_t warp = threadIdx.x / 32, mine = warp / 4, row = warp % 4 * 16;
    if (w.n_tile == 0 && !p.a.first) return;
    load_queries<KQ>(p, w, q);
    if (w.n_tile) load_keys<KQ>(p, source_of(p, w, 0), k);
    nb_cp_async_commit();
    if (w.n_tile) load_values<NV>(p, source_of(p, w, 0), v);
    nb_cp_async_commit();
    const uint32_t end = (uint32_t)(p.a.pos0 + p.a.n_tok - (size_t)w.page * TOK);
    const bool used = mine < w.n_page && mine * TOK + row < end &&
                      (size_t)(w.page + mine) * TOK + row + 16 > p.a.pos0;
    state<NV> x;
    load_state(p, w, mine * TOK + row, x);
    for (uint32_t i = 0; i < w.n_tile; i++) {
        const bool own = i >= w.n_dec;
        const bool takes =
            used && (own ? i - w.n_dec == mine : p.a.page0 + i < (size_t)w.page + mine);
        float s[TILE_GROUPS][4], factor[2];
        nb_cp_async_wait<1>();
        __syncthreads();
        if (takes) scores<KQ>(p, q + (mine * TOK + row) * ldk, k, s);
        __syncthreads();
        const source next = source_of(p, w, i + 1 < w.n_tile ? i + 1 : i);
        if (i + 1 < w.n_tile) load_keys<KQ>(p, next, k);
        nb_cp_async_commit();
        if (takes) {
            if (own) mask(row, s);
            weights(p.scale_log2, s, x, factor);
            rescale(factor, x);
        }
        nb_cp_async_wait<1>();
        __syncthreads();
        const bool bad = own && __syncthreads_or(clean<NV>(v));
        if (takes) add_values(v, s, x);
        if (takes && bad) poison(p, source_of(p, w, i), row, x);
        __syncthreads();
        if (i + 1 < w.n_tile) load_values<NV>(p, next, v);
        nb_cp_async_commit();
    }
    if (used) store_state(p, w, mine * TOK + row, x);
}

template <int KQ, int NV, int BLOCKS> void launch(nb_cuda *g, plan &p)
{
    p.whole = p.a.d_v == 8 * NV;
    const size_t bytes = TOK * sizeof(uint16_t) * ((PAGES + 1) * (16 * p.n_step + 8) + 8 * NV + 8);
    if (bytes > g->shared_bytes) {
        nb_cuda_check(g, cudaErrorInvalidValue, "prefill: heads as wide as these");
        return;
    }
    NB_SHARED_LIMIT(g, (prefill_kernel<KQ, NV, BLOCKS>), bytes);
    NB_LAUNCH(g, (prefill_kernel<KQ, NV, BLOCKS>), dim3((unsigned)p.a.n_head, p.n_block), THREADS,
              bytes, p);
}

} // namespace

void nb_cuda_prefill(nb_cuda *g, const nb_cuda_prefill_args *a)
{
    if (a->n_tok == 0) return;
#if !NB_CUDA_EMULATED
    if (g->cc == 90 && nb_cuda_prefill_wgmma(g, a)) return;
#endif
    plan p = plan_of(a, PAGES);
    const uint32_t n_step = p.n_step;
    if (n_step == 12 && a->d_v == 128) /* DeepSeek */
        launch<12, 16, 2>(g, p);
    else if (n_step == 16 && a->d_v == 256) /* GLM */
        launch<16, 32, 1>(g, p);
    else if (n_step == 8 && a->d_v == 64) /* the bundled model */
        launch<8, 8, 2>(g, p);
    else if (n_step == 6 && a->d_v == 64) /* MiniCPM3 */
        launch<6, 8, 2>(g, p);
    else if (a->d_v <= 64)
        launch<0, 8, 1>(g, p);
    else if (a->d_v <= 128)
        launch<0, 16, 1>(g, p);
    else if (a->d_v <= 256)
        launch<0, 32, 1>(g, p);
    else
        nb_cuda_check(g, cudaErrorInvalidValue, "prefill: values of more than 256");
}
