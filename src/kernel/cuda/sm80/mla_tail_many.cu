/* mla_tail_many.cu - the last partial state of every query, as mla_tail.cu, for models with many heads.
 *
 * Why another form: mla_tail.cu gives a block 16 heads and splits their sums over 16 warps, to reduce latency.  With
 * 128 heads each row's tokens then go to eight blocks, partial scores pass through shared memory, and at 118 KiB an SM
 * holds one block at a time.  128 rows of 128 heads are 1,024 blocks: eight waves of 7 to 8 us.
 *
 * Block: one query and 16 WM of its heads; the query's tokens are loaded once, as BF16, to shared memory.
 * What a warp does: WN warps share 16 heads.
 *   scores   each warp takes its groups of 16 tokens, over all dimensions (m16n8k16); queries come straight from
 *            global memory as two BF16 parts, AHEAD steps before they are needed
 *   values   each warp takes every WN-th piece of 64 dimensions of the latent
 * Only the maxima and sums of the groups are exchanged, and only the warps of the same heads wait for each other.  If
 * 32 tokens or fewer are visible, half of all work is skipped.
 *
 * Order of summation: dimensions by 16; l by lane, then group, then groups in order; values by groups of 16 tokens, the
 * high part of the weights first.  WM and WN change no bit, so the launcher picks what fills the device.
 *
 * Counts for 128 rows of 128 heads and 64 tokens:
 *                                        mla_tail.cu     here
 *   blocks                                     1,024      256
 *   blocks per SM                                  1        2
 *   bytes of tokens and queries read, MB         188       75
 *   instructions for 16 heads, about          20,800    4,900
 *   m16n8k16 for 16 heads                      1,088    1,088   about 8 us in all
 * Bound by memory: 38 MB of queries, 38 of tokens and 34 of states are 20 us at 5.5 TB/s.
 * H100 (us):                             mla_tail.cu     here
 *   128 heads                                   92.1     42.5
 *    64 heads                                   50.0     29.7
 *   one query                                    8.5     12.2   hidden behind the pages */
#include "kernel/cuda/sm80/mla_tail.cuh"

namespace
{

enum {
    TOK = NB_PAGE_TOK,
    GROUPS = TOK / 16,
    AHEAD = 3,              /* k-steps of 16 that queries are loaded ahead */
    LOADS = 12,             /* loads of 16 bytes in flight per thread */
    AT_ONCE = 4,            /* pieces of 16 latent dimensions at a time */
    P_STRIDE = TOK / 2 + 4, /* words: an odd number of 16-byte pieces, no bank conflicts */
    USUAL_N = 512 + 64      /* values of a token in nearly every model */
};

/* Shared by the warps of 16 heads. */
struct heads16 {
    uint32_t p[2][16][P_STRIDE]; /* weights as two BF16 parts, two tokens per word */
    float m[GROUPS][16], l[GROUPS][16];
};

template <bool USUAL> __device__ inline nb_mt_shape shape_of(const nb_mt_shape &d)
{
    return USUAL ? nb_mt_shape{ 512, 64, 512, USUAL_N, USUAL_N + 8 } : d;
}

/* Barrier for all warps of 16 heads. */
template <uint32_t WN> __device__ inline void meet(uint32_t wm)
{
    if constexpr (WN == 1)
        __syncwarp();
    else
        nb_bar_sync(1 + wm, 32 * WN);
}

/* Copies n_tok rows of 576 floats, 16-byte aligned, to the tile; rows from n_vis on are 0. */
template <uint32_t THREADS>
__device__ void fill_usual(const float *rows, uint32_t n_vis, uint32_t n_tok, uint16_t *tile)
{
    constexpr uint32_t N4 = USUAL_N / 4, STRIDE = USUAL_N + 8;
    const float4 *from = reinterpret_cast<const float4 *>(rows);
#pragma unroll 1
    for (uint32_t e0 = threadIdx.x; e0 < n_tok * N4; e0 += THREADS * LOADS) {
        float4 x[LOADS];
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            const uint32_t e = e0 + i * THREADS;
            x[i] = make_float4(0, 0, 0, 0);
            if (e < n_vis * N4) x[i] = from[e];
        }
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            const uint32_t e = e0 + i * THREADS;
            if (e < n_tok * N4)
                *reinterpret_cast<uint2 *>(tile + e / N4 * STRIDE + 4 * (e % N4)) =
                    make_uint2(nb_pack_bf16(x[i].x, x[i].y), nb_pack_bf16(x[i].z, x[i].w));
        }
    }
}

/* Loads the queries of this lane's two heads for step c / 16, in nb_mma_bf16's order but not yet rounded. */
template <bool USUAL>
__device__ inline void load_q(float2 (&x)[4], const nb_mt_shape &d, const float *q0,
                              const float *q1, uint32_t c)
{
    c += 2 * (threadIdx.x % 4);
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        const float *q = k % 2 ? q1 : q0;
        const uint32_t at = c + (k >= 2 ? 8 : 0);
        if constexpr (USUAL)
            x[k] = *reinterpret_cast<const float2 *>(q + at);
        else
            x[k] = make_float2(nb_mt_q(d, q, at), nb_mt_q(d, q, at + 1));
    }
}

/* Scores of 16 heads with the N groups wn, wn + WN, ...  x: queries of the first AHEAD steps, already loaded. */
template <uint32_t WN, uint32_t N, bool USUAL>
__device__ inline void scores(float (&acc)[N][2][4], float2 (&x)[AHEAD][4], const nb_mt_shape &d,
                              const float *q0, const float *q1, const uint16_t *tile, uint32_t wn)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint16_t *at =
        tile + (16 * wn + (lane & 7) + (lane >> 4) * 8) * d.stride + (lane >> 3 & 1) * 8;
#pragma unroll
    for (uint32_t i = 0; i < N; i++)
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) acc[i][0][k] = acc[i][1][k] = 0;
#pragma unroll 1
    for (uint32_t c0 = 0; c0 < d.k; c0 += 16 * AHEAD) {
#pragma unroll
        for (uint32_t j = 0; j < AHEAD; j++) {
            const uint32_t c = c0 + 16 * j;
            if (!USUAL && c >= d.k) break;
            uint32_t hi[4], lo[4], b[N][4];
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) nb_mt_split(x[j][k].x, x[j][k].y, hi[k], lo[k]);
            if (c + 16 * AHEAD < d.k) load_q<USUAL>(x[j], d, q0, q1, c + 16 * AHEAD);
#pragma unroll
            for (uint32_t i = 0; i < N; i++) nb_ldmatrix4(b[i], at + 16 * WN * i * d.stride + c);
#pragma unroll
            for (uint32_t i = 0; i < N; i++) {
                nb_mma_bf16(acc[i][0], hi, b[i][0], b[i][1]);
                nb_mma_bf16(acc[i][1], hi, b[i][2], b[i][3]);
            }
#pragma unroll
            for (uint32_t i = 0; i < N; i++) {
                nb_mma_bf16(acc[i][0], lo, b[i][0], b[i][1]);
                nb_mma_bf16(acc[i][1], lo, b[i][2], b[i][3]);
            }
        }
    }
}

/* Over the four lanes that share a head. */
__device__ inline float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* Scales the scores of the warp's groups by scale (which includes log2(e)), sets invisible ones to -inf, and stores the
 * groups' maxima in s->m. */
template <uint32_t WN, uint32_t N>
__device__ inline void maxima(float (&acc)[N][2][4], heads16 *s, uint32_t n_vis, float scale,
                              uint32_t wn)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        float top[2] = { -INFINITY, -INFINITY };
#pragma unroll
        for (uint32_t e = 0; e < 8; e++) {
            const uint32_t tok = 16 * (wn + WN * i) + 8 * (e / 4) + 2 * t + e % 2;
            float &x = acc[i][e / 4][e % 4];
            x = tok < n_vis ? x * scale : -INFINITY;
            top[e / 2 % 2] = fmaxf(top[e / 2 % 2], x);
        }
        top[0] = quad_max(top[0]);
        top[1] = quad_max(top[1]);
        if (t == 0) s->m[wn + WN * i][g] = top[0], s->m[wn + WN * i][g + 8] = top[1];
    }
}

/* Maximum of a head over the first n groups. */
__device__ inline float max_of(const heads16 *s, uint32_t n, uint32_t head)
{
    float m = s->m[0][head];
    for (uint32_t k = 1; k < n; k++) m = fmaxf(m, s->m[k][head]);
    return m;
}

/* Computes the weights of the warp's groups, and their sums. */
template <uint32_t WN, uint32_t N>
__device__ inline void weights(const float (&acc)[N][2][4], heads16 *s, uint32_t n_group,
                               uint32_t wn)
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float m[2] = { max_of(s, n_group, g), max_of(s, n_group, g + 8) };
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t group = wn + WN * i;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float l = 0;
#pragma unroll
            for (uint32_t n = 0; n < 2; n++) {
                const uint32_t tok = 16 * group + 8 * n + 2 * t;
                const float *x = &acc[i][n][2 * half];
                const float a = nb_exp2(x[0] - m[half]), b = nb_exp2(x[1] - m[half]);
                uint32_t hi, lo;
                nb_mt_split(a, b, hi, lo);
                s->p[0][g + 8 * half][tok / 2] = hi;
                s->p[1][g + 8 * half][tok / 2] = lo;
                l += a + b;
            }
            l = quad_sum(l);
            if (t == 0) s->l[group][g + 8 * half] = l;
        }
    }
}

/* Writes o of this lane's two heads (NULL: no such head), dimensions c .. c + 15. */
template <bool USUAL>
__device__ inline void put_o(const float (&o)[2][4], const nb_mt_shape &d, float *const (&to)[2],
                             uint32_t c)
{
    c += 2 * (threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (!to[half]) continue;
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            const uint32_t at = c + 8 * n;
            const float x = o[n][2 * half], y = o[n][2 * half + 1];
            if constexpr (USUAL) {
                *reinterpret_cast<float2 *>(to[half] + at) = make_float2(x, y);
            } else {
                if (at < d.lora) to[half][at] = x;
                if (at + 1 < d.lora) to[half][at + 1] = y;
            }
        }
    }
}

/* o = p v over N_GROUP groups (2 or 4), for every WN-th piece of 64 dimensions from 64 wn on. */
template <uint32_t WN, uint32_t N_GROUP, bool USUAL>
__device__ inline void values(const heads16 *s, const nb_mt_shape &d, const uint16_t *tile,
                              float *const (&to)[2], uint32_t wn)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint16_t *at = tile + (lane & 15) * d.stride + (lane >> 4) * 8;
    uint32_t p[N_GROUP][2][4];
#pragma unroll
    for (uint32_t h = 0; h < N_GROUP; h++)
#pragma unroll
        for (uint32_t k = 0; k < 2; k++)
            nb_ldmatrix4(p[h][k], &s->p[k][lane & 15][8 * h + (lane >> 4) * 4]);
#pragma unroll 1
    for (uint32_t c0 = 16 * AT_ONCE * wn; c0 < d.kl; c0 += 16 * AT_ONCE * WN) {
        float o[AT_ONCE][2][4];
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) o[j][0][k] = o[j][1][k] = 0;
#pragma unroll
        for (uint32_t h = 0; h < N_GROUP; h++) {
            uint32_t b[AT_ONCE][4];
#pragma unroll
            for (uint32_t j = 0; j < AT_ONCE; j++)
                if (USUAL || c0 + 16 * j < d.kl)
                    nb_ldmatrix4_trans(b[j], at + 16 * h * d.stride + c0 + 16 * j);
                else
                    b[j][0] = b[j][1] = b[j][2] = b[j][3] = 0;
#pragma unroll
            for (uint32_t k = 0; k < 2; k++)
#pragma unroll
                for (uint32_t j = 0; j < AT_ONCE; j++) {
                    nb_mma_bf16(o[j][0], p[h][k], b[j][0], b[j][1]);
                    nb_mma_bf16(o[j][1], p[h][k], b[j][2], b[j][3]);
                }
        }
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++) put_o<USUAL>(o[j], d, to, c0 + 16 * j);
    }
}

/* A warp's heads and its share of their work. */
struct place {
    uint32_t head0, wm, wn;
    size_t at; /* index of head0's state */
};

/* The state of 16 heads over the first 16 N_GROUP tokens of the tile. */
template <uint32_t WN, uint32_t N_GROUP, bool USUAL>
__device__ inline void one_state(const nb_cuda_mla_args &a, const nb_mt_shape &d, const place &w,
                                 uint32_t n_vis, float scale, float2 (&x)[AHEAD][4],
                                 const float *q0, const float *q1, const uint16_t *tile, heads16 *s)
{
    constexpr uint32_t N = N_GROUP > WN ? N_GROUP / WN : 1;
    const uint32_t lane = threadIdx.x % 32, nh = (uint32_t)a.n_head;
    float acc[N][2][4];
    const bool mine = w.wn < N_GROUP;
    if (mine) {
        scores<WN, N, USUAL>(acc, x, d, q0, q1, tile, w.wn);
        maxima<WN, N>(acc, s, n_vis, scale, w.wn);
    }
    meet<WN>(w.wm);
    if (mine) weights<WN, N>(acc, s, N_GROUP, w.wn);
    meet<WN>(w.wm);
    if (w.wn == 0 && lane < 16 && w.head0 + lane < nh) {
        float l = s->l[0][lane];
#pragma unroll
        for (uint32_t k = 1; k < N_GROUP; k++) l += s->l[k][lane];
        a.part_m[w.at + lane] = nb_mla_state_m(max_of(s, N_GROUP, lane));
        a.part_l[w.at + lane] = l;
    }
    float *to[2];
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t k = lane / 4 + 8 * half;
        to[half] = w.head0 + k < nh ? a.part_o + (w.at + k) * d.lora : nullptr;
    }
    values<WN, N_GROUP, USUAL>(s, d, tile, to, w.wn);
}

template <uint32_t WM, uint32_t WN, bool USUAL>
__global__ void __launch_bounds__(32 * WM * WN, WM *WN <= 8 ? 2 : 1)
    mla_tail_many(NB_PARAM nb_cuda_mla_args a, NB_PARAM nb_mt_shape any, float scale)
{
    const uint32_t row = blockIdx.x, warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    const uint32_t nh = (uint32_t)a.n_head;
    if (!a.beside) {
        nb_grid_next();
        nb_grid_wait();
    }
    const uint32_t chunk = a.row_chunk[row], part = a.part_first[row + 1] - 1;
    if (chunk == UINT32_MAX) return;
    const nb_mt_shape d = shape_of<USUAL>(any);
    NB_SHARED(unsigned char, shared);
    place w = { 0, warp / WN, warp % WN, 0 };
    w.head0 = 16 * (blockIdx.y * WM + w.wm);
    w.at = (size_t)part * nh + w.head0;
    heads16 *s = reinterpret_cast<heads16 *>(shared) + w.wm;
    uint16_t *tile = reinterpret_cast<uint16_t *>(shared + WM * sizeof(heads16));
    const nb_tail_source from = nb_tail_source_of(a, row, chunk, d.lora + d.d_rope);
    /* a head past the end reads the last head's query; its result is not written */
    const float *q = a.q + row * a.q_stride;
    const float *q0 = q + (w.head0 + g < nh ? w.head0 + g : nh - 1) * a.q_head;
    const float *q1 = q + (w.head0 + g + 8 < nh ? w.head0 + g + 8 : nh - 1) * a.q_head;
    float2 x[AHEAD][4];
#pragma unroll
    for (uint32_t j = 0; j < AHEAD; j++)
        if (USUAL || 16 * j < d.k) load_q<USUAL>(x[j], d, q0, q1, 16 * j);
    const uint32_t n_tok = from.n_vis > TOK / 2 ? TOK : TOK / 2;
    if (USUAL && (reinterpret_cast<uintptr_t>(from.rows) & 15) == 0)
        fill_usual<32 * WM * WN>(from.rows, from.n_vis, n_tok, tile);
    else
        nb_tail_fill<false>(from.rows, 0, n_tok, from.n_vis, d, tile);
    __syncthreads();
    if (w.head0 < nh) {
        if (n_tok == TOK)
            one_state<WN, GROUPS, USUAL>(a, d, w, from.n_vis, scale, x, q0, q1, tile, s);
        else
            one_state<WN, GROUPS / 2, USUAL>(a, d, w, from.n_vis, scale, x, q0, q1, tile, s);
    }
    if (a.beside) nb_tail_end_beside();
}

template <uint32_t WM, uint32_t WN, bool USUAL>
void launch(nb_cuda *g, const nb_cuda_mla_args *a, const nb_mt_shape &d)
{
    const size_t n = WM * sizeof(heads16) + 2 * nb_mt_tile_bytes(d);
    const dim3 grid((unsigned)a->n_row, (unsigned)((a->n_head + 16 * WM - 1) / (16 * WM)));
    NB_SHARED_LIMIT(g, (mla_tail_many<WM, WN, USUAL>), n);
    NB_LAUNCH_EARLY(g, (mla_tail_many<WM, WN, USUAL>), grid, 32 * WM * WN, n, *a, d,
                    a->scale * 1.44269504088896341f);
}

template <uint32_t WM, uint32_t WN> void launch_shape(nb_cuda *g, const nb_cuda_mla_args *a)
{
    const nb_mt_shape d = nb_mt_shape_of(a->lora, a->d_rope);
    const bool usual = d.lora == 512 && d.d_rope == 64 && a->q_head % 2 == 0 &&
                       a->q_stride % 2 == 0 && (reinterpret_cast<uintptr_t>(a->q) & 7) == 0;
    if (usual)
        launch<WM, WN, true>(g, a, d);
    else
        launch<WM, WN, false>(g, a, d);
}

} // namespace

void nb_cuda_mla_tail_many(nb_cuda *g, const nb_cuda_mla_args *a)
{
    if (a->n_row == 0) return;
    /* 64 heads to a block, or 32 if that would leave SMs without a block */
    if (a->n_head > 32 && a->n_row * ((a->n_head + 63) / 64) >= (size_t)g->n_sm)
        launch_shape<4, 2>(g, a);
    else
        launch_shape<2, 4>(g, a);
}
