/* linear_wgmma.cu - y = W x for prompts on Hopper, BF16 weights: kernel variant "wgmma" of linear and experts.
 *
 * x is one BF16 part, or two (x = hi + lo); the products W hi and W lo go into the same accumulators.  Optional:
 * SwiGLU of two matrices (gate and up), and experts, whose rows of x are gathered by cp.async.
 *
 * Tile of a block: 256 rows of weights (or 128 of gate and 128 of up) x 128 tokens, both parts of x.
 *   threads  two warpgroups.  Each owns two tiles of 64 rows: per 16 columns four m64n128k16.  The accumulators stay in
 *            registers for the whole sum.
 *   ring     a stage holds 32 columns (32 KB), six stages, loaded by cp.async with the 64-byte swizzle of wgmma
 * Compared with two separate products, weights are read once and the result is written once.
 *
 * Pipeline: wgmma runs asynchronously.  While chunk k multiplies, the block issues the loads of chunk k + 4 and waits
 * for those of k + 1.  The loads refill the stage of chunk k - 2: it is free, since all warps have passed a barrier.
 * The result goes through shared memory, so that rows of y are written 16 bytes per lane.
 *
 * What bounds it: per 64 columns the tensor cores need 2,048 cycles.  Shared memory delivers 192 KB to them (1,536
 * cycles) and takes in 64 KB.  The gap to the floor is the time between two chunks, about 500 cycles; with one part
 * it weighs twice as much.
 *
 * H100, two parts, 8192 tokens; TFLOP/s count both parts (floor: 798):
 *                                              us   TFLOP/s   mma_prompt's TFLOP/s
 *   3072 x 2048                               339     607
 *   4096 x 512                                151     455
 *   64 experts 2048 x 1408, top 6, gate, up  2148     528       285
 *   the same, down                           1070     530       260
 * Slower: three stages of 64 columns, 2.2 us per 64 columns, 450 TFLOP/s; one stage in flight does not have enough
 * bytes.
 *
 * Few tokens: 64 rows per warpgroup and 64 or 32 tokens.  The order of each sum and the bits are the same.
 * Experts: as in linear_tile.cu. */
#include "kernel/cuda/sm90/linear_wgmma.cuh"
#include "kernel/linear/tiled.h"

namespace
{
using namespace lin;

enum { THREADS = 256, STAGE_COLS = 32, ROW = 64 /* bytes */ };

template <bool GLU_, bool TWO_, int MT_, int BN_, int STAGES_> struct shape {
    static const bool GLU = GLU_, TWO = TWO_;
    static const int MT = MT_, BN = BN_, STAGES = STAGES_; /* MT: 64-row tiles per warpgroup */
    static const int BM = 2 * MT * 64, ROWS = GLU ? BM / 2 : BM;
    static const int W_BYTES = BM * ROW, X_BYTES = BN * ROW,
                     STAGE_BYTES = W_BYTES + (TWO ? 2 : 1) * X_BYTES;
    static const int X_ROWS = (TWO ? 2 : 1) * BN; /* hi, then lo */
    static const int W_LOADS = BM / 64, X_LOADS = (X_ROWS + 63) / 64, ACC = BN / 2;
    static const int PITCH = ROWS + 4; /* floats per token in the result tile */
    static const size_t BYTES = (size_t)STAGES * STAGE_BYTES + 1024;
    static_assert(BYTES <= 227 << 10, "shared memory of a block");
    static_assert((size_t)BN * PITCH * 4 <= (size_t)STAGES * STAGE_BYTES, "room for the result");
};

/* wgmma descriptor: rows of 64 bytes in groups of 8, 64-byte swizzle. */
__device__ inline uint64_t descriptor64(uint32_t at)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(8 * ROW >> 4) << 32 |
           (uint64_t)2 << 62;
}

/* d (+)= 64 rows of a times N tokens of b, over 16 columns. */
template <int N> __device__ void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int add);
template <> __device__ inline void wgmma<128>(float (&d)[64], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NB_WG_64 "}, "
                 "%64, %65, p, 1, 1, 0, 0;\n}"
                 : NB_WG_ACC_64(d)
                 : "l"(a), "l"(b), "r"(add));
}
template <> __device__ inline void wgmma<64>(float (&d)[32], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NB_WG_32 "}, "
                 "%32, %33, p, 1, 1, 0, 0;\n}"
                 : NB_WG_ACC_32(d)
                 : "l"(a), "l"(b), "r"(add));
}
template <> __device__ inline void wgmma<32>(float (&d)[16], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" NB_WG_16 "}, "
                 "%16, %17, p, 1, 1, 0, 0;\n}"
                 : NB_WG_ACC_16(d)
                 : "l"(a), "l"(b), "r"(add));
}

/* The tokens of this block; false if it has none. */
struct part {
    uint32_t batch, begin, end;
};
template <int BN> __device__ inline bool find_part(const nb_lin &j, part *p)
{
    if (!j.first) {
        *p = { blockIdx.z, blockIdx.y * BN, j.n_tok };
        return true;
    }
    uint32_t batch, begin, end;
    if (!nb_lin_find<BN>(j, blockIdx.y, &batch, &begin, &end)) return false;
    *p = { batch, begin, end };
    return true;
}

/* A thread loads chunk threadIdx.x % 4 of every 64th row. */
template <class S> struct loader {
    const unsigned char *w[2];
    const uint16_t *x[S::X_LOADS];
    uint32_t w_at[S::W_LOADS], x_bytes; /* w_at: elements; x_bytes, bit i: load i has a token */
    uint32_t dst, col, n_col;
};

template <class S>
__device__ inline void loader_init(loader<S> &l, const nb_lin &j, const part &p, uint32_t row0)
{
    const uint32_t row = threadIdx.x / 4, chunk = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < 2; m++) l.w[m] = j.w[m] + p.batch * j.w_rows * j.n_col * 2;
#pragma unroll
    for (int i = 0; i < S::W_LOADS; i++) {
        const uint32_t at = row + i * 64; /* GLU: a warpgroup has 64 rows of gate and 64 of up */
        uint32_t r = S::GLU ? at / 128 * 64 + row : at;
        r = row0 + r < j.n_out ? row0 + r : j.n_out - 1;
        l.w_at[i] = r * j.n_col + chunk * 8;
    }
    const size_t base = (j.first ? 0 : p.batch * j.x_batch) + chunk * 8;
    l.x_bytes = 0;
#pragma unroll
    for (int i = 0; i < S::X_LOADS; i++) {
        const uint32_t at = row + i * 64, tok = p.begin + at % S::BN;
        const bool ok = tok < p.end && at < S::X_ROWS;
        l.x[i] = at < S::BN ? j.x.hi : j.x.lo;
        if (ok) l.x[i] += (j.src ? j.src[tok] : tok) * j.x.stride + base;
        l.x_bytes |= (uint32_t)ok << i;
    }
    l.dst = row * ROW + ((chunk ^ (row >> 1 & 3)) << 4);
    l.col = chunk * 8;
    l.n_col = j.n_col;
}

/* Issues the loads of columns [32 kc, 32 kc + 32) into a stage: weights, x hi, x lo. */
template <class S>
__device__ inline void load(const loader<S> &l, unsigned char *stage, uint32_t kc)
{
    const uint32_t k = kc * STAGE_COLS;
    const uint32_t n = k + l.col < l.n_col ? 16 : 0;
    unsigned char *to = stage + l.dst;
#pragma unroll
    for (int i = 0; i < S::W_LOADS; i++)
        nb_cp_async16(to + i * 64 * ROW,
                      l.w[S::GLU ? i % 2 : 0] + (n ? 2 * (size_t)(l.w_at[i] + k) : 0), n);
    to += S::W_BYTES;
#pragma unroll
    for (int i = 0; i < S::X_LOADS; i++) {
        const uint32_t x_n = l.x_bytes >> i & 1 ? n : 0;
        if (S::X_ROWS % 64 && threadIdx.x / 4 + i * 64 >= S::X_ROWS) continue;
        nb_cp_async16(to + i * 64 * ROW, l.x[i] + (x_n ? k : 0), x_n);
    }
}

/* Issues acc += the products of a stage.  more 0: acc is overwritten. */
template <class S>
__device__ inline void multiply(float (&acc)[S::MT][S::ACC], uint32_t stage, int more)
{
    const uint32_t w = stage + (threadIdx.x / 128) * S::MT * 64 * ROW, x = stage + S::W_BYTES;
    nb_wg_fence();
#pragma unroll
    for (int k = 0; k < STAGE_COLS / 16; k++) {
        const uint64_t hi = descriptor64(x + k * 32), lo = descriptor64(x + S::X_BYTES + k * 32);
#pragma unroll
        for (int m = 0; m < S::MT; m++)
            wgmma<S::BN>(acc[m], descriptor64(w + m * 64 * ROW + k * 32), hi, k ? 1 : more);
#pragma unroll
        for (int m = 0; m < (S::TWO ? S::MT : 0); m++)
            wgmma<S::BN>(acc[m], descriptor64(w + m * 64 * ROW + k * 32), lo, 1);
    }
    nb_wg_commit();
}

/* Stores the result to shared memory, [token][row], after SwiGLU if there is one. */
template <class S> __device__ inline void put(float *tile, const float (&acc)[S::MT][S::ACC], float limit)
{
    const uint32_t wg = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const int MT = S::GLU ? S::MT / 2 : S::MT;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int i = 0; i < S::ACC; i++) {
            const uint32_t tok = i / 4 * 8 + lane % 4 * 2 + (i & 1);
            const uint32_t r = (wg * MT + m) * 64 + warp * 16 + lane / 4 + (i & 2) * 4;
            tile[tok * S::PITCH + r] =
                S::GLU ? nb_lin_swiglu(acc[m][i], acc[m + S::MT - MT][i], limit) : acc[m][i];
        }
}

template <class S>
__device__ inline void store(const nb_lin &j, const part &p, uint32_t row0, const float *tile,
                             bool vec)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t i = warp; i < S::BN; i += THREADS / 32) {
        const uint32_t tok = p.begin + i;
        if (tok >= p.end) return;
        for (uint32_t r = lane * 4; r < S::ROWS && row0 + r < j.n_out; r += 128) {
            const float4 q = *reinterpret_cast<const float4 *>(tile + i * S::PITCH + r);
            const float v[4] = { q.x, q.y, q.z, q.w };
            const uint32_t n = j.n_out - row0 - r < 4 ? j.n_out - row0 - r : 4;
            if (!vec || n < 4) {
                for (uint32_t e = 0; e < n; e++) nb_lin_store(j, p.batch, tok, row0 + r + e, v[e]);
                continue;
            }
            nb_put4(j.y, tok * j.y.stride + (j.first ? 0 : p.batch * j.y_batch) + row0 + r, v, 4);
        }
    }
}

template <class S> __global__ void __launch_bounds__(THREADS, 1) wgmma_kernel(nb_lin j, bool vec)
{
    NB_SHARED(unsigned char, shared);
    part p;
    if (!find_part<S::BN>(j, &p)) return;
    unsigned char *stage = shared + ((1024 - (nb_smem(shared) & 1023)) & 1023);
    const uint32_t row0 = blockIdx.x * S::ROWS, n_chunk = (j.n_col + STAGE_COLS - 1) / STAGE_COLS;
    loader<S> l;
    loader_init<S>(l, j, p, row0);
#pragma unroll
    for (int i = 0; i < S::STAGES - 2; i++) {
        if ((uint32_t)i < n_chunk) load<S>(l, stage + i * S::STAGE_BYTES, i);
        nb_cp_async_commit();
    }
    float acc[S::MT][S::ACC];
    uint32_t at = 0, next = S::STAGES - 2; /* stages of chunk kc and of chunk kc + STAGES - 2 */
    for (uint32_t kc = 0; kc < n_chunk; kc++) {
        nb_cp_async_wait<S::STAGES - 3>();
        nb_fence_async();
        __syncthreads();
        multiply<S>(acc, nb_smem(stage) + at * S::STAGE_BYTES, kc != 0);
        /* Refill the stage of chunk kc - 2: every warp has waited for its products before the barrier. */
        if (kc + S::STAGES - 2 < n_chunk)
            load<S>(l, stage + next * S::STAGE_BYTES, kc + S::STAGES - 2);
        nb_cp_async_commit();
        nb_wg_wait<1>();
        at = at + 1 == S::STAGES ? 0 : at + 1;
        next = next + 1 == S::STAGES ? 0 : next + 1;
    }
    nb_wg_wait<0>();
    nb_cp_async_wait<0>();
    __syncthreads();
    float *tile = reinterpret_cast<float *>(stage);
    put<S>(tile, acc, j.limit);
    __syncthreads();
    store<S>(j, p, row0, tile, vec);
}

template <class S> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch)
{
    const size_t experts = j.n_expert < j.n_tok ? j.n_expert : j.n_tok;
    const dim3 grid(nb_lin_ceil(j.n_out, S::ROWS),
                    nb_lin_ceil(j.n_tok, S::BN) + (j.first ? (unsigned)experts : 0),
                    j.first ? 1 : (unsigned)n_batch);
    const bool vec = !j.bias && !j.add && j.y.stride % 8 == 0 && j.y_batch % 8 == 0;
    NB_SHARED_LIMIT(g, (wgmma_kernel<S>), S::BYTES);
    NB_LAUNCH(g, (wgmma_kernel<S>), grid, THREADS, S::BYTES, j, vec);
}

/* n: tokens per batch or expert.  Chooses the tile that suits few tokens, or that fills the device. */
template <bool GLU, bool TWO> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch, size_t n)
{
    const size_t n_group = j.first ? j.n_expert : n_batch;
    const size_t n_large = nb_lin_ceil(j.n_out, GLU ? 128 : 256) * n_group * nb_lin_ceil(n, 128);
    if (n <= 48)
        launch<shape<GLU, TWO, (GLU ? 2 : 1), 32, (GLU ? 10 : 12)>>(g, j, n_batch);
    else if (2 * n_large < (size_t)g->n_sm)
        launch<shape<GLU, TWO, (GLU ? 2 : 1), 64, (GLU ? 8 : 12)>>(g, j, n_batch);
    else
        launch<shape<GLU, TWO, 2, 128, (TWO ? 6 : 8)>>(g, j, n_batch);
}

template <bool GLU> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch, size_t n)
{
    if (j.x.lo)
        launch<GLU, true>(g, j, n_batch, n);
    else
        launch<GLU, false>(g, j, n_batch, n);
}
} // namespace

bool nb_cuda_linear_wgmma_can(nb_wtype type, size_t n_out, size_t n_col, bool two_parts)
{
    (void)two_parts;
    return n_out && nb_lin_mma_can(type, n_col);
}

/* The function of a form but BF16; NULL. */
static nb_lin_wgmma_fn *widening(const nb_weight *w)
{
    const bool k = nb_stype_is_k(w->group.scale_type), k16 = w->group.scale_type >= NB_S_K16;
    switch (w->type) {
    case NB_W_FP8B: return nb_lin_wgmma_fp8;
    case NB_W_INT4: return k16 ? nb_lin_wgmma_int4_k16 : k ? nb_lin_wgmma_int4_k32 : nb_lin_wgmma_int4;
    case NB_W_BYTE: return k16 ? nb_lin_wgmma_byte_k16 : k ? nb_lin_wgmma_byte_k32 : nb_lin_wgmma_byte;
    case NB_W_FP4: return nb_lin_wgmma_fp4;
    default: return nullptr;
    }
}

void nb_cuda_linear_wgmma(nb_cuda *g, const nb_cuda_linear_args *a)
{
    if (!a->n_tok || !a->n_out || !a->n_batch) return;
    if (nb_lin_wgmma_fn *fn = widening(&a->w))
        fn(g, nb_lin_of(a), false, a->n_batch, a->n_tok);
    else
        launch<false>(g, nb_lin_of(a), a->n_batch, a->n_tok);
}

bool nb_cuda_experts_wgmma_can(nb_wtype type, size_t n_out, size_t n_col)
{
    return nb_cuda_linear_wgmma_can(type, n_out, n_col, true);
}

void nb_cuda_experts_wgmma(nb_cuda *g, const nb_cuda_experts_args *a)
{
    if (!a->n_place || !a->n_out || !a->n_expert) return;
    const size_t n = a->n_place / a->n_expert;
    if (nb_lin_wgmma_fn *fn = widening(&a->gate))
        fn(g, nb_lin_of(a), a->up.data != NULL, 1, n);
    else if (a->up.data)
        launch<true>(g, nb_lin_of(a), 1, n);
    else
        launch<false>(g, nb_lin_of(a), 1, n);
}
