/* linear_wgmma_ring.cuh - y = W x for prompts on Hopper with weights that are widened on their way to wgmma: rings in shared
 * memory, tiles, results.  Shared by linear_wgmma_fp8.cu (which says what bounds it) and linear_wgmma_codes.cu.
 *
 * Class P, how weights are stored:
 *   ROW_BYTES   codes of 128 columns of a row; PLANE_ROW: scales and zeros beside them, a multiple of 4
 *   ROW_FACTOR  a row's sum is multiplied by nb_lin.scale[row] at the end
 *   load        the producer: issues the loads of columns [128 b, 128 b + 128) of tile m into a slot
 *   multiply    a consumer warpgroup: total += W x over a slot's 128 columns; waits for x if FIRST, releases the slot, and
 *               x if `last`
 * x_rows<P>, how x is stored: stages per 128 columns, bytes of scales beside one, and its loads. */
#ifndef NB_KERNEL_CUDA_SM90_LINEAR_WGMMA_RING_CUH
#define NB_KERNEL_CUDA_SM90_LINEAR_WGMMA_RING_CUH
#include "kernel/cuda/sm90/linear_wgmma.cuh"

namespace lin
{

enum {
    GROUP = 128,
    THREADS = 3 * GROUP, /* two consumer warpgroups, one producer */
    W_ROWS = 128,        /* of a stage: 64 per consumer warpgroup */
    OUT_TOK = 16, /* tokens in a warp's piece of the result; OUT_PITCH: floats between them */
    OUT_PITCH = 20,
    OUT_BYTES = 8 * OUT_TOK * OUT_PITCH * 4,
};

/* BF16: a stage is 64 columns. */
template <class P> struct x_rows {
    static const int PER_BLOCK = 2, PLANE_ROW = 0; /* PLANE_ROW: bytes of a token */
};

template <class P_, bool GLU_, bool TWO_, int MT_, int BN_, int W_STAGES_, int X_STAGES_>
struct shape {
    typedef P_ P;
    typedef x_rows<P_> X;
    static const bool GLU = GLU_, TWO = TWO_;
    static const int MT = MT_, BN = BN_; /* MT: 64-row tiles per warpgroup; BN: tokens */
    static const int W_STAGES = W_STAGES_, X_STAGES = X_STAGES_, ACC = BN / 2;
    static const int ROWS = GLU ? 128 : MT * 128;
    static const int PART_BYTES = BN * 128, X_BYTES = (TWO ? 2 : 1) * PART_BYTES;
    static const int W_BYTES = W_ROWS * P::ROW_BYTES, PLANE_BYTES = W_ROWS * P::PLANE_ROW;
    static const int X_PLANE_BYTES = BN * X::PLANE_ROW;
    static const size_t BYTES = 1024 + X_STAGES * (X_BYTES + X_PLANE_BYTES) +
                                W_STAGES * (W_BYTES + PLANE_BYTES + 32) + W_STAGES * 16 +
                                X_STAGES * 16 + OUT_BYTES;
    static_assert(BYTES <= 227 << 10, "shared memory of a block");
    static_assert(!GLU || MT == 2, "gate and up");
};

/* Rows and tokens of a tile.  begin == end: the end of the list. */
struct alignas(16) part {
    uint32_t batch, begin, end, row0;
    uint32_t n_m; /* 64-row tiles per warpgroup in this tile */
};
static_assert(sizeof(part) == 32, "barriers behind an array of them are aligned");

/* The grid's list of tiles: [0, n_full) are whole, the others are halves of 128 rows. */
struct list {
    uint32_t n, n_full;
};

/* Addresses in shared memory. */
template <class S> struct plan {
    unsigned char *x, *w, *out;
    unsigned char *planes; /* [W_STAGES][PLANE_BYTES] */
    unsigned char *x_planes; /* [X_STAGES][X_PLANE_BYTES] */
    part *parts;           /* [W_STAGES]: the tile of each stage of weights */
    uint32_t bar;
    __device__ inline uint32_t w_full(uint32_t i) const
    {
        return bar + 8 * i;
    }
    __device__ inline uint32_t w_free(uint32_t i) const
    {
        return bar + 8 * (S::W_STAGES + i);
    }
    __device__ inline uint32_t x_full(uint32_t i) const
    {
        return bar + 8 * (2 * S::W_STAGES + i);
    }
    __device__ inline uint32_t x_free(uint32_t i) const
    {
        return bar + 8 * (2 * S::W_STAGES + S::X_STAGES + i);
    }
};

template <class S> __device__ inline plan<S> plan_of(unsigned char *shared)
{
    plan<S> s;
    s.x = shared + ((1024 - (nb_smem(shared) & 1023)) & 1023);
    s.w = s.x + S::X_STAGES * S::X_BYTES;
    s.out = s.w + S::W_STAGES * S::W_BYTES;
    s.planes = s.out + OUT_BYTES;
    s.x_planes = s.planes + S::W_STAGES * S::PLANE_BYTES;
    s.parts = reinterpret_cast<part *>(s.x_planes + S::X_STAGES * S::X_PLANE_BYTES);
    s.bar = nb_smem(s.parts + S::W_STAGES);
    return s;
}

/* A position in a ring of N stages. */
template <int N> struct place {
    uint32_t i, phase;
    __device__ inline void next()
    {
        if (++i == N) {
            i = 0;
            phase ^= 1;
        }
    }
};

/* ---- the producer warpgroup ---- */

/* Tile n of the list; rows vary fastest.  False past the end. */
template <class S>
__device__ inline bool find_part(const nb_lin &j, uint32_t n, const list &all, part *p)
{
    if (n >= all.n) return false;
    const uint32_t half = n < all.n_full ? 0 : n - all.n_full;
    if (n > all.n_full) n = all.n_full + half / 2;
    const uint32_t n_row = (j.n_out + S::ROWS - 1) / S::ROWS, n_tok = (j.n_tok + S::BN - 1) / S::BN;
    const uint32_t at = n / n_row;
    p->row0 = n % n_row * S::ROWS + half % 2 * 128;
    p->n_m = S::MT;
    if (S::MT == 2 && !S::GLU) {
        const uint32_t left = p->row0 < j.n_out ? j.n_out - p->row0 : 0;
        p->n_m = left == 0 ? 0 : left <= 128 || n >= all.n_full ? 1 : 2;
    }
    if (j.first) return nb_lin_find<S::BN>(j, at, &p->batch, &p->begin, &p->end);
    p->batch = at / n_tok;
    p->begin = at % n_tok * S::BN;
    p->end = j.n_tok;
    return true;
}

/* First of the 64 rows of warpgroup wg's tile m. */
template <class S> __device__ inline uint32_t row_of(uint32_t row0, uint32_t wg, uint32_t m)
{
    return row0 + wg * 64 + (S::GLU ? 0 : m * 128);
}

/* The row of x of this lane's token; NONE: no token.  Lane 4 i + l of a warp holds the
 * token of the warp's l-th row in the i-th 16 rows of a stage. */
const uint32_t NONE = 0xffffffffu;
template <class S> __device__ inline uint32_t token_of(const nb_lin &j, const part &p)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t i = lane / 4 * 16 + warp * 4 + lane % 4, t = p.begin + i;
    if (i >= S::BN || t >= p.end) return NONE;
    return j.src ? j.src[t] : t;
}

/* What load_x needs of the lane's token: its offset in x, in units of 16 bytes. */
template <class S>
__device__ inline uint32_t offset_of(const nb_lin &j, const part &p, uint32_t row)
{
    if (row == NONE) return NONE;
    return (uint32_t)((row * j.x.stride + (j.first ? 0 : p.batch * j.x_batch)) / 8);
}

/* Issues the loads of columns [64 c, 64 c + 64) of the tile's tokens, hi and lo. */
template <class S>
__device__ inline void load_x(const plan<S> &s, const nb_lin &j, uint32_t mine, uint32_t slot,
                              uint32_t c)
{
    const uint32_t row = threadIdx.x / 8, chunk = threadIdx.x % 8, col = c * 64 + chunk * 8;
    const uint32_t to = nb_smem(s.x) + slot * S::X_BYTES + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll 4
    for (int i = 0; i < S::BN / 16; i++) {
        const uint32_t at = __shfl_sync(0xffffffffu, mine, i * 4 + threadIdx.x % 32 / 8);
        const uint32_t n = at != NONE && col < j.n_col ? 16 : 0;
        const size_t from = (size_t)at * 8 + col;
        cp_async16(to + i * 16 * 128, j.x.hi + from, n);
        if (S::TWO) cp_async16(to + S::PART_BYTES + i * 16 * 128, j.x.lo + from, n);
    }
}

/* Issues the loads of 128 columns of codes, and of their scales.  mine: the lane's row of x. */
template <class S>
__device__ inline void load_codes(const plan<S> &s, const nb_lin &j, uint32_t mine, uint32_t slot,
                                  uint32_t b)
{
    const uint32_t row = threadIdx.x / 8, chunk = threadIdx.x % 8, lane = threadIdx.x % 32;
    const uint32_t to = nb_smem(s.x) + slot * S::X_BYTES + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll 4
    for (int i = 0; i < S::BN / 16; i++) {
        const uint32_t at = __shfl_sync(0xffffffffu, mine, i * 4 + lane / 8);
        const size_t from = at == NONE ? 0 : at * j.xq.stride + b * 128 + chunk * 16;
        cp_async16(to + i * 16 * 128, j.xq.q + from, at == NONE ? 0 : 16);
    }
    const uint32_t tok = lane / 4 * 16 + threadIdx.x / 32 * 4 + lane % 4; /* as token_of has them */
    if (mine != NONE)
        cp_async4(nb_smem(s.x_planes) + (slot * S::BN + tok) * 4, j.xq.s + mine * j.xq.s_stride + b);
}

/* Weights in E4M3: how they are stored and loaded. */
struct e4m3_rows {
    static const int ROW_BYTES = 128, PLANE_ROW = 4;
    static const bool ROW_FACTOR = false;

    /* Issues the loads of columns [128 b, 128 b + 128) of tile m's rows, and of their scales.  A thread loads one 16-byte
 * chunk of every 16th row. */
    template <class S>
    static __device__ inline void load(const plan<S> &s, const nb_lin &j, const part &p,
                                       uint32_t slot, uint32_t b, uint32_t m)
    {
        const uint32_t tid = threadIdx.x, row = tid / 8, chunk = tid % 8;
        const uint32_t matrix = S::GLU ? m : 0, col = b * 128 + chunk * 16;
        const uint32_t r0 = row_of<S>(p.row0, 0, m) + row, n = col < j.n_col ? 16 : 0;
        const unsigned char *from = j.w[matrix] + (p.batch * j.w_rows + r0) * j.n_col + col;
        uint32_t to = nb_smem(s.w) + slot * S::W_BYTES + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll 1
        for (uint32_t wg = 0; wg < 2; wg++) {
            const uint32_t r = r0 + wg * 64;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                cp_async16(to + i * 16 * 128, from + i * 16 * j.n_col,
                           r + i * 16 < j.n_out ? n : 0);
            from += (size_t)64 * j.n_col;
            to += 64 * 128;
        }
        const uint32_t r = row_of<S>(p.row0, tid / 64, m) + tid % 64;
        const float *scale = nb_lin_scale(j, matrix, p.batch, r < j.n_out ? r : j.n_out - 1, b);
        cp_async4(nb_smem(s.planes) + (slot * W_ROWS + tid) * 4, scale);
    }
};

template <class S> __device__ inline void bring(const plan<S> &s, const nb_lin &j, const list &all)
{
    const uint32_t n_block = (j.n_col + 127) / 128;
    place<S::W_STAGES> w = { 0, 1 };
    place<S::X_STAGES> x = { 0, 1 };
    for (uint32_t n = blockIdx.x;; n += gridDim.x) {
        part p;
        if (!find_part<S>(j, n, all, &p)) break;
        if (p.n_m == 0) continue;
        const bool codes = S::X::PLANE_ROW > 0;
        const uint32_t row = token_of<S>(j, p), mine = codes ? row : offset_of<S>(j, p, row);
        for (uint32_t b = 0; b < n_block; b++) {
#pragma unroll 1
            for (uint32_t m = 0; m < p.n_m; m++) {
                nb_mbar_wait(s.w_free(w.i), w.phase);
                S::P::template load<S>(s, j, p, w.i, b, m);
                if (threadIdx.x == 0) {
                    s.parts[w.i] = p;
                    nb_mbar_arrive(s.w_full(w.i));
                }
                mbar_arrive_loaded(s.w_full(w.i));
                w.next();
                for (uint32_t c = 0; m == 0 && c < S::X::PER_BLOCK; c++) {
                    nb_mbar_wait(s.x_free(x.i), x.phase);
                    if (codes)
                        load_codes<S>(s, j, mine, x.i, b);
                    else
                        load_x<S>(s, j, mine, x.i, 2 * b + c);
                    mbar_arrive_loaded(s.x_full(x.i));
                    x.next();
                }
            }
        }
    }
    nb_mbar_wait(s.w_free(w.i), w.phase); /* the end of the list */
    if (threadIdx.x == 0) {
        s.parts[w.i].begin = s.parts[w.i].end = 0;
        nb_mbar_arrive(s.w_full(w.i));
    }
    nb_mbar_arrive(s.w_full(w.i));
    nb_cp_async_wait<0>();
}

/* ---- the consumer warpgroups ---- */

/* Writes a warp's 16 rows x 16 tokens to y. */
template <class S>
__device__ inline void store(const nb_lin &j, const part &p, const float *tile, uint32_t row0,
                             uint32_t tok0, bool vec)
{
    const uint32_t lane = threadIdx.x % 32, r = row0 + lane % 4 * 4;
    const uint32_t n = r >= j.n_out ? 0 : j.n_out - r < 4 ? j.n_out - r : 4;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t i = lane / 4 + 8 * h, tok = tok0 + i;
        const float *from = tile + i * OUT_PITCH + lane % 4 * 4;
        if (tok >= p.end) continue;
        if (vec && n == 4) {
            const float4 q = *reinterpret_cast<const float4 *>(from);
            const float v[4] = { q.x, q.y, q.z, q.w };
            nb_put4(j.y, tok * j.y.stride + (j.first ? 0 : p.batch * j.y_batch) + r, v, 4);
            continue;
        }
#pragma unroll 1
        for (uint32_t e = 0; e < n; e++) nb_lin_store(j, p.batch, tok, r + e, from[e]);
    }
}

/* Writes a warpgroup's m-th 64 rows to y; each warp writes 16 rows x 16 tokens at a time. */
template <class S>
__device__ inline void put(const nb_lin &j, const part &p, const plan<S> &s,
                           const float (&v)[S::ACC], uint32_t m, bool vec)
{
    const uint32_t tid = threadIdx.x - GROUP, warp = tid / 32, g = tid % 32 / 4, t = tid % 4;
    float *tile = reinterpret_cast<float *>(s.out) + warp * OUT_TOK * OUT_PITCH;
    const uint32_t row0 = row_of<S>(p.row0, warp / 4, m) + warp % 4 * 16;
#pragma unroll
    for (int n = 0; n < S::ACC / 8; n++) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++)
            tile[(i / 4 * 8 + t * 2 + (i & 1)) * OUT_PITCH + g + (i & 2) * 4] = v[n * 8 + i];
        __syncwarp();
        store<S>(j, p, tile, row0, p.begin + n * OUT_TOK, vec);
    }
}

/* Multiplies the rows of a warpgroup's tile m by their factors. */
template <class S>
__device__ inline void row_factors(float (&total)[S::ACC], const nb_lin &j, const part &p,
                                   uint32_t m)
{
    const uint32_t warp = (threadIdx.x - GROUP) / 32, g = threadIdx.x % 32 / 4;
    const uint32_t r0 = row_of<S>(p.row0, warp / 4, m) + warp % 4 * 16 + g;
    float f[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t r = r0 + 8 * h < j.n_out ? r0 + 8 * h : j.n_out - 1;
        f[h] = __ldg(j.scale[S::GLU ? m : 0] + p.batch * j.w_rows + r);
    }
#pragma unroll
    for (int i = 0; i < S::ACC; i++) total[i] = __fmul_rn(total[i], f[i >> 1 & 1]);
}

template <class S> __device__ inline void consume(const plan<S> &s, const nb_lin &j, bool vec)
{
    const uint32_t n_block = (j.n_col + 127) / 128;
    place<S::W_STAGES> w = { 0, 0 };
    place<S::X_STAGES> x = { 0, 0 };
    for (;;) {
        nb_mbar_wait(s.w_full(w.i), w.phase);
        const part p = s.parts[w.i];
        if (p.begin == p.end) return;
        float total[S::MT][S::ACC], acc[S::ACC];
#pragma unroll
        for (int i = 0; i < S::MT * S::ACC; i++) total[i / S::ACC][i % S::ACC] = 0;
        for (uint32_t b = 0; b < n_block; b++) {
#pragma unroll
            for (int m = 0; m < S::MT; m++) {
                if (m && !S::GLU && m >= (int)p.n_m) continue;
                nb_mbar_wait(s.w_full(w.i), w.phase);
                const bool last = m + 1 == (int)p.n_m;
                if (m == 0)
                    S::P::template multiply<S, true>(total[m], acc, s, j, w.i, x, m, last);
                else
                    S::P::template multiply<S, false>(total[m], acc, s, j, w.i, x, m, last);
                w.next();
            }
            for (int c = 0; c < S::X::PER_BLOCK; c++) x.next();
        }
        if (S::P::ROW_FACTOR)
#pragma unroll
            for (int m = 0; m < S::MT; m++) row_factors<S>(total[m], j, p, m);
        if (S::GLU)
#pragma unroll
            for (int i = 0; i < S::ACC; i++)
                total[0][i] = nb_lin_swiglu(total[0][i], total[S::MT - 1][i], j.limit);
        put<S>(j, p, s, total[0], 0, vec);
        if (S::MT == 2 && !S::GLU && p.n_m == 2) put<S>(j, p, s, total[S::MT - 1], 1, vec);
    }
}

template <class S>
__global__ void __launch_bounds__(THREADS, 1)
    ring_kernel(NB_PARAM nb_lin j, NB_PARAM list all, bool vec)
{
    NB_SHARED(unsigned char, shared);
    const plan<S> s = plan_of<S>(shared);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < S::W_STAGES; i++) {
            nb_mbar_init(s.w_full(i), GROUP + 1);
            nb_mbar_init(s.w_free(i), 8);
        }
        for (uint32_t i = 0; i < S::X_STAGES; i++) {
            nb_mbar_init(s.x_full(i), GROUP);
            nb_mbar_init(s.x_free(i), 8);
        }
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        nb_fewer_registers<40>();
        bring<S>(s, j, all);
    } else {
        nb_more_registers<232>();
        consume<S>(s, j, vec);
    }
}

/* Upper bound on the number of tiles. */
template <class S> uint32_t tiles_of(const nb_lin &j, size_t n_batch)
{
    const size_t experts = j.n_expert < j.n_tok ? j.n_expert : j.n_tok;
    const size_t n_tok = nb_lin_ceil(j.n_tok, S::BN);
    return (uint32_t)(nb_lin_ceil(j.n_out, S::ROWS) *
                      (j.first ? n_tok + experts : n_tok * n_batch));
}

/* If the last wave would occupy at most half of the SMs, its tiles are cut into halves. */
template <class S> list list_of(const nb_cuda *g, const nb_lin &j, size_t n_batch)
{
    const uint32_t n = tiles_of<S>(j, n_batch), n_sm = (uint32_t)g->n_sm, rest = n % n_sm;
    if (S::MT == 1 || S::GLU || j.first || rest == 0 || 2 * rest > n_sm) return { n, n };
    return { n + rest, n - rest };
}

/* Estimated time with these tiles: `whole` per wave of whole tiles, `half` per wave of halves.  n: tokens per batch or
 * expert.  With several experts, the last tile of each counts as half full. */
template <class S>
size_t time_of(const nb_cuda *g, const nb_lin &j, size_t n_batch, size_t n, size_t whole,
               size_t half)
{
    const uint32_t n_sm = (uint32_t)g->n_sm;
    if (j.n_expert > 1) {
        /* Twice the tokens of an expert's tiles, as if they were full. */
        const size_t twice = 2 * n > S::BN ? 2 * n + S::BN : 2 * S::BN;
        const size_t time =
            nb_lin_ceil(j.n_out, S::ROWS) * j.n_expert * twice * whole / (2 * S::BN * n_sm);
        return time > whole ? time : whole;
    }
    const list all = list_of<S>(g, j, n_batch);
    return nb_lin_ceil(all.n_full, n_sm) * whole + (all.n > all.n_full ? half : 0);
}

template <class S> void ring_launch(nb_cuda *g, const nb_lin &j, size_t n_batch)
{
    const list all = list_of<S>(g, j, n_batch);
    const uint32_t n_block = all.n < (uint32_t)g->n_sm ? all.n : (uint32_t)g->n_sm;
    const bool vec = !j.bias && !j.add && j.y.stride % 8 == 0 && j.y_batch % 8 == 0;
    NB_SHARED_LIMIT(g, (ring_kernel<S>), S::BYTES);
    NB_LAUNCH(g, (ring_kernel<S>), dim3(n_block), THREADS, S::BYTES, j, all, vec);
}
} // namespace lin

#endif
