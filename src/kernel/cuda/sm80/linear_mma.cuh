/* linear_mma.cuh - what the tensor-core products y = W x share: arguments, order of summation, operands.
 *
 * Activations are two BF16 parts, x = hi + lo (lo may be absent).  Weights are BF16, or E4M3 with a scale per
 * block of 128 x 128.
 *
 * Order of summation over n_col columns.  Every kernel of these files follows it, for any number of tokens:
 *   1. The columns are cut into at most 8 ranges (16 where n_out is small), each a multiple of 128 columns.
 *   2. A range is summed by mma.m16n8k16 from its first column on; every 16 columns take two mma, of hi and
 *      then of lo.  FP8: a block of 128 columns is summed this way, multiplied by its scale, and added to the
 *      range's sum.
 *   3. The ranges are added in order.
 *
 * Weights are the 16-row operand of the mma, tokens the 8-column operand.  The assignment of columns to the
 * mma's k indices is free, as long as both operands agree.  So a lane reads 16 bytes of its row at once,
 * which are its operands for two mma (BF16) or four (FP8).  With lane = 4 g + t:
 *   BF16: 32 columns are two mma: columns 8t..8t+3 are t's k of the first, 8t+4..8t+7 of the second
 *   FP8:  64 columns are four mma: columns 16t + 4i .. +3 are t's k of mma i */
#ifndef NB_KERNEL_CUDA_SM80_LINEAR_MMA_CUH
#define NB_KERNEL_CUDA_SM80_LINEAR_MMA_CUH
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/ptx.cuh"
#include "kernel/cuda/common/rows.cuh"

/* A product as the kernels see it.  Blocks of batch b (a head or an expert) use the rows
 * [b * w_rows, b * w_rows + n_out) of w. */
struct nb_lin {
    const unsigned char *w[2]; /* one matrix, or the gate and up projections */
    const float *scale[2];
    const unsigned char *group[2], *zero[2]; /* tiled weights (linear/tiled.h): planes, or NULL */
    const float *bias;
    nb_cuda_rows x, y;
    nb_cuda_codes xq; /* x of kernels that read codes */
    const uint32_t *first, *src; /* experts, else NULL */
    size_t x_batch, y_batch, w_rows;
    uint32_t n_tok, n_out, n_col;
    uint32_t n_whole; /* outputs of the whole matrix, which decide the ranges */
    uint32_t n_range, range;         /* order of summation: number of ranges, columns of each */
    uint32_t scale_cols, scale_rows; /* FP8: scales in a row; rows of scales of an expert */
    uint32_t n_expert;
    nb_stype stype[2];               /* of groups */
    bool row_scales;                 /* FP8: a scale per row */
    bool add;
    float limit; /* of gate and up; infinity: none */
    bool chosen; /* first[] was complete before the previous kernel began */
};

static inline uint32_t nb_lin_ceil(size_t a, size_t b)
{
    return (uint32_t)((a + b - 1) / b);
}

/* The order of summation depends only on the shape of the whole matrix. */
static inline void nb_lin_ranges(nb_lin *j)
{
    const uint32_t most = j->n_whole <= 1024 ? 16 : 8, n_block = nb_lin_ceil(j->n_col, 128);
    const uint32_t blocks = n_block ? nb_lin_ceil(n_block, most) : 1;
    j->range = blocks * 128;
    j->n_range = n_block ? nb_lin_ceil(n_block, blocks) : 1;
}

static inline void nb_lin_matrix(nb_lin *j, int m, const nb_weight *w)
{
    j->w[m] = static_cast<const unsigned char *>(w->data);
    j->scale[m] = w->scale;
    j->group[m] = static_cast<const unsigned char *>(w->group.scale);
    j->zero[m] = w->group.zero;
    j->stype[m] = w->group.scale_type;
}

static inline nb_lin nb_lin_of(const nb_cuda_linear_args *a)
{
    nb_lin j = {};
    nb_lin_matrix(&j, 0, &a->w);
    j.row_scales = a->w.row_scales;
    j.bias = a->bias;
    j.x = a->x;
    j.xq = a->xq;
    j.y = a->y;
    j.x_batch = a->x_batch;
    j.y_batch = a->y_batch;
    j.w_rows = a->w_batch;
    j.n_tok = (uint32_t)a->n_tok;
    j.n_out = (uint32_t)a->n_out;
    j.n_whole = (uint32_t)(a->n_whole ? a->n_whole : a->n_out);
    j.n_col = (uint32_t)a->w.n_col;
    j.scale_cols = nb_lin_ceil(a->w.n_col, 128);
    j.add = a->add;
    nb_lin_ranges(&j);
    return j;
}

static inline nb_lin nb_lin_of(const nb_cuda_experts_args *a)
{
    nb_lin j = {};
    nb_lin_matrix(&j, 0, &a->gate);
    nb_lin_matrix(&j, 1, &a->up);
    j.row_scales = a->gate.row_scales;
    j.x = a->x;
    j.xq = a->xq;
    j.y = a->y;
    j.first = a->first;
    j.src = a->src;
    j.chosen = a->chosen;
    j.limit = a->limit > 0 ? a->limit : INFINITY;
    j.w_rows = a->n_out;
    j.n_tok = (uint32_t)a->n_place;
    j.n_out = (uint32_t)a->n_out;
    j.n_whole = (uint32_t)(a->n_whole ? a->n_whole : a->n_out);
    j.n_col = (uint32_t)a->gate.n_col;
    j.scale_cols = nb_lin_ceil(a->gate.n_col, 128);
    j.scale_rows = nb_lin_ceil(a->n_out, 128);
    j.n_expert = (uint32_t)a->n_expert;
    nb_lin_ranges(&j);
    return j;
}

/* Types that are tiled (linear/tiled.h). */
static inline bool nb_lin_tiled(nb_wtype type)
{
    return type == NB_W_INT4 || type == NB_W_BYTE || type == NB_W_FP4;
}

/* Rows are read in pieces of 16 bytes. */
static inline bool nb_lin_mma_can(nb_wtype type, size_t n_col)
{
    return n_col && ((type == NB_W_BF16 && n_col % 8 == 0) || (type == NB_W_FP8B && n_col % 16 == 0) ||
                     (nb_lin_tiled(type) && n_col % 8 == 0));
}

/* FP8: the scale of columns [128 block, ...) of row r of batch b. */
__device__ inline const float *nb_lin_scale(const nb_lin &j, uint32_t matrix, uint32_t b, uint32_t r,
                                            uint32_t block)
{
    if (j.row_scales) return j.scale[matrix] + b * j.w_rows + r;
    const size_t row = j.first ? (size_t)b * j.scale_rows + r / 128 : (b * j.w_rows + r) / 128;
    return j.scale[matrix] + row * j.scale_cols + block;
}

/* Converts four E4M3 codes to BF16, exactly.  A code's bits, shifted, are those of a BF16 value 2^120 times
 * smaller; this also holds for subnormals.  NaN codes would become 480, but no loader lets them through. */
__device__ inline uint2 nb_lin_e4m3(uint32_t codes)
{
    const uint32_t a = __byte_perm(codes, 0, 0x1404), b = __byte_perm(codes, 0, 0x3424);
    uint32_t u[2] = { (a & 0x80008000u) | (a >> 4 & 0x07f007f0u),
                      (b & 0x80008000u) | (b >> 4 & 0x07f007f0u) };
    const uint32_t f = 0x7b807b80u; /* 2^120 */
    __nv_bfloat162 v[2], k;
    memcpy(v, u, sizeof v);
    memcpy(&k, &f, sizeof k);
    v[0] = __hmul2(v[0], k);
    v[1] = __hmul2(v[1], k);
    memcpy(u, v, sizeof u);
    return make_uint2(u[0], u[1]);
}

/* The operands of two mma, from 16 bytes of a row: BF16 unchanged; of FP8 the first or second half. */
template <bool FP8> __device__ inline uint4 nb_lin_operands(const uint4 &raw, int half)
{
    if (!FP8) return raw;
    const uint2 a = nb_lin_e4m3(half ? raw.z : raw.x), b = nb_lin_e4m3(half ? raw.w : raw.y);
    return make_uint4(a.x, a.y, b.x, b.y);
}

/* c += one mma of rows a0 (g) and a1 (g + 8) and the tokens b (hi or lo): the first mma's columns, or the second's. */
__device__ inline void nb_lin_mma(float (&c)[4], const uint4 &a0, const uint4 &a1, const uint4 &b,
                                  int second)
{
    if (second) {
        const uint32_t a[4] = { a0.z, a1.z, a0.w, a1.w };
        nb_mma_bf16(c, a, b.z, b.w);
    } else {
        const uint32_t a[4] = { a0.x, a1.x, a0.y, a1.y };
        nb_mma_bf16(c, a, b.x, b.y);
    }
}

/* limit: nb_lin.limit. */
__device__ inline float nb_lin_swiglu(float gate, float up, float limit)
{
    gate = gate > limit ? limit : gate; /* NaN stays */
    up = up > limit ? limit : up < -limit ? -limit : up;
    return gate / (1.0f + expf(-gate)) * up;
}

/* Stores v, the finished sum of row r and token (or place) tok, after adding the bias. */
__device__ inline void nb_lin_store(const nb_lin &j, uint32_t b, uint32_t tok, uint32_t r, float v)
{
    if (j.bias) v = __fadd_rn(v, j.bias[r]);
    const size_t i = tok * j.y.stride + (j.first ? 0 : b * j.y_batch) + r;
    if (j.add)
        j.y.f[i] = __fadd_rn(j.y.f[i], v);
    else
        nb_put(j.y, i, v);
}

/* Experts: finds the expert of token tile `tile` (BN places each) and its range of places; false: no such tile.
 * Called by all lanes of a warp. */
template <uint32_t BN>
__device__ inline bool nb_lin_find(const nb_lin &j, uint32_t tile, uint32_t *expert,
                                   uint32_t *begin, uint32_t *end)
{
    const uint32_t all = 0xffffffffu, lane = threadIdx.x & 31;
    uint32_t before = 0; /* tiles */
    for (uint32_t e0 = 0; e0 < j.n_expert; e0 += 32) {
        const uint32_t e = e0 + lane, first = e < j.n_expert ? j.first[e] : 0;
        const uint32_t last = e < j.n_expert ? j.first[e + 1] : 0, n = (last - first + BN - 1) / BN;
        uint32_t upto = n;
        for (uint32_t d = 1; d < 32; d *= 2) {
            const uint32_t up = __shfl_up_sync(all, upto, d);
            if (lane >= d) upto += up;
        }
        upto += before;
        const uint32_t mine = __ballot_sync(all, tile < upto);
        if (mine) {
            const int l = __ffs((int)mine) - 1;
            *expert = e0 + (uint32_t)l;
            *begin = __shfl_sync(all, first + (tile - (upto - n)) * BN, l);
            *end = __shfl_sync(all, last, l);
            return true;
        }
        before = __shfl_sync(all, upto, 31);
    }
    return false;
}

/* Experts: finds the n-th expert that has places, and its range; false: there are fewer.  Called by all lanes of
 * a warp. */
__device__ inline bool nb_lin_active(const nb_lin &j, uint32_t n, uint32_t *expert, uint32_t *begin,
                                     uint32_t *end)
{
    const uint32_t all = 0xffffffffu, lane = threadIdx.x & 31;
    for (uint32_t e0 = 0; e0 < j.n_expert; e0 += 128) {
        uint32_t first[4], last[4]; /* all loads are issued before the first is used */
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t e = e0 + 32 * k + lane;
            first[k] = e < j.n_expert ? j.first[e] : 0;
            last[k] = e < j.n_expert ? j.first[e + 1] : 0;
        }
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t some = __ballot_sync(all, last[k] > first[k]);
            const uint32_t count = (uint32_t)__popc(some);
            if (n >= count) {
                n -= count;
                continue;
            }
            const bool mine = some >> lane & 1 && (uint32_t)__popc(some & ((1u << lane) - 1)) == n;
            const int l = __ffs((int)__ballot_sync(all, mine)) - 1;
            *expert = e0 + 32 * k + (uint32_t)l;
            *begin = __shfl_sync(all, first[k], l);
            *end = __shfl_sync(all, last[k], l);
            return true;
        }
    }
    return false;
}

/* The kernels.  All give the same bits.
 *   nb_lin_few      few tokens: weights go straight to registers; false: too little shared memory, nothing done
 *   nb_lin_codes    tiled weights, any number of tokens
 *   nb_lin_tile     many tokens: tiles in shared memory
 *   nb_lin_cluster  (sm90) the blocks of a cluster share the columns of one matrix
 * experts: the operation, whose order of summation differs from linear's; glu: gate and up, then SwiGLU.  n_batch: batches, or the largest possible number of experts with places.
 * max_tok: the most tokens of a batch or expert; an expert with more takes max_tok at a time. */
bool nb_lin_few(nb_cuda *g, const nb_lin &j, bool fp8, bool glu, size_t n_batch, size_t max_tok);
void nb_lin_codes(nb_cuda *g, const nb_lin &j, nb_wtype type, bool experts, bool glu, size_t n_batch,
                  size_t max_tok);
void nb_lin_tile(nb_cuda *g, const nb_lin &j, bool fp8, bool glu, size_t n_batch, bool prompt);
#if !NB_CUDA_EMULATED
void nb_lin_cluster(nb_cuda *g, const nb_lin &j, bool fp8);
#endif

#endif
