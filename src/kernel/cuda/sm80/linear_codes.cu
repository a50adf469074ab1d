/* linear_codes.cu - y = W x for tiled weights (INT4, BYTE, FP4; linear/tiled.h), any number of tokens.
 *
 * Tiles, ranges and the order of adding them are those of linear_few.cu.  Per 128 columns a lane loads 16 bytes of codes
 * (BYTE: 32) and 8 of scales of each of its rows; its codes are operands as they come (linear_codes.cuh).  x is copied to
 * shared memory per warp and read by ldmatrix.
 *
 * Order of summation: 32 columns are summed by mma (of 16 columns: hi, then lo), multiplied by the row's scale and
 * added to the range's sum (INT4, BYTE; K16 forms: 16 columns).  The sum of x over the same columns, which is one more mma
 * with a matrix of ones, is then multiplied by the row's min and added (K forms).  Values of FP4 are exact in BF16 with their scales: a range is one sum.  At the
 * end a row's sum is multiplied by the row's factor.  One order for any number of tokens, so this is the kernel for all.
 *
 * Tokens: 8 NT at a time; grid.z shares them in pieces of TOKENS where there is one matrix.
 *
 * One token: bound by the latency of a block's chain of loads (places, codes, x) and two barriers; large matrices by
 * memory.  From 8 tokens on by the copies of x, which are larger than the codes.
 * H100, cold (us), experts' gate and up 1408 x 2048, 6 of 16 chosen, 1 / 16 tokens:
 *   BF16 (linear_few.cu)                             41.1    76.3
 *   INT4, 8 ranges, zeros and scales of any type     23.5    59.1
 *     the same, one block of 128 columns in flight   23.7    58.9
 *     and 64 registers                               25.4   108
 *     4 ranges                                       22.4    58.8
 *     4 ranges, PLAIN (built)                        22.5    54.5
 *   FP4, 8 ranges 26.1, 63.3; built 22.7, 58.0
 * Single matrices of a few thousand rows lose with 4 ranges (warm, 2048 x 2048: 4.1 with 8, 6.1 with 4). */
#include "kernel/cuda/sm80/linear_codes.cuh"
#include "kernel/cuda/sm80/linear_few.cuh"

namespace
{
using namespace few_rows;

enum { TOKENS = 64 };

using codes::scheme;

template <nb_wtype T_, scheme SCHEME_, kind KIND_, int NT_> struct few {
    static const nb_wtype T = T_;
    static const scheme SCHEME = SCHEME_;
    static const bool PLAIN = SCHEME == codes::PLAIN, K = SCHEME >= codes::K32;
    static const int SPAN = SCHEME == codes::K16 ? 1 : 2; /* fragments of 16 columns with one scale */
    static const kind KIND = KIND_;
    static const bool ROW_FACTOR = true;
    static const int NT = NT_, MT = KIND == ROWS16 ? 1 : 2, ROWS = KIND == ROWS32 ? 32 : 16;
    static const int LOADS =
        T == NB_W_BYTE ? 2 : 1; /* 16 bytes per lane and block of 128 columns */
    static const int CHUNK = NT > 1 || (T == NB_W_BYTE && MT > 1) ? 1 : 2; /* blocks in flight */
    static const int PITCH_X =
        CHUNK * 256 + 16; /* bytes between tokens: ldmatrix without bank conflicts */
};

/* A warp's tile: rows, columns [k0, k1), tokens [tok, tok + n). */
template <class F> struct work {
    size_t row[F::MT][2];
    uint32_t batch, k0, k1, tok, n, n_block;
    uint32_t x_rows; /* tokens that shared memory has room for */
    uint32_t
        x_at[F::NT]; /* offset of the lane's row for ldmatrix; rows of no token are another's */
};

/* A block of 128 columns of the lane's rows. */
template <class F> struct block {
    uint4 code[F::MT][2][F::LOADS];
    uint2 scale[F::MT][2];
    uint2 zero[F::MT][2]; /* F16_MIN: 8 bytes, else the first 4 */
};

template <class F>
__device__ inline void load(block<F> &b, const nb_lin &j, const work<F> &o, uint32_t at)
{
#pragma unroll
    for (int m = 0; m < F::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int matrix = F::KIND == GLU ? m : 0;
            const size_t i = o.row[m][h] * o.n_block + at;
            const unsigned char *p =
                j.w[matrix] + i * codes::block_bytes<F::T>() + (threadIdx.x & 3) * 16;
#pragma unroll
            for (int l = 0; l < F::LOADS; l++) b.code[m][h][l] = nb_ldg_stream(p + 64 * l);
            if (j.group[matrix])
                b.scale[m][h] = __ldg(reinterpret_cast<const uint2 *>(j.group[matrix]) + i);
            if (F::T == NB_W_FP4 || F::PLAIN || !j.zero[matrix]) continue;
            if (F::SCHEME == codes::K32 && j.stype[matrix] == NB_S_F16_MIN)
                b.zero[m][h] = __ldg(reinterpret_cast<const uint2 *>(j.zero[matrix]) + i);
            else
                b.zero[m][h].x = __ldg(reinterpret_cast<const uint32_t *>(j.zero[matrix]) + i);
        }
}

__device__ inline size_t x_row(const nb_lin &j, uint32_t batch, uint32_t tok)
{
    return (j.src ? j.src[tok] : tok) * j.x.stride + (j.first ? 0 : batch * j.x_batch);
}

/* Copies columns [k, k + 128 CHUNK) of every token to shared memory: [part][x_rows][PITCH_X]. */
template <class F>
__device__ inline void copy_x(unsigned char *x, const nb_lin &j, const work<F> &o, uint32_t k)
{
    const uint32_t pieces = F::CHUNK * 16, two = j.x.lo != nullptr;
    for (uint32_t i = threadIdx.x & 31; i < (o.n << two) * pieces; i += 32) {
        const uint32_t at = i / pieces, c = i % pieces, n = at >> two, part = at & two,
                       col = k + c * 8;
        const uint32_t bytes = col < o.k1 ? 16 : 0;
        const uint16_t *from = (part ? j.x.lo : j.x.hi) + x_row(j, o.batch, o.tok + n);
        nb_cp_async16(x + (part * o.x_rows + n) * F::PITCH_X + c * 16, from + (bytes ? col : 0),
                      bytes);
    }
    nb_cp_async_commit();
}

/* One of the two types of a K scheme. */
template <class F> __device__ inline nb_stype k_type(const nb_lin &j, int matrix)
{
    if (F::SCHEME == codes::K32)
        return j.stype[matrix] == NB_S_F16_MIN ? NB_S_F16_MIN : NB_S_K32;
    return j.stype[matrix] == NB_S_K16_MIN ? NB_S_K16_MIN : NB_S_K16;
}

/* The operands of 32 columns of a row: two fragments. */
template <class F>
__device__ inline void operands(uint32_t (&a)[2][2], const nb_lin &j, const block<F> &b, int m,
                                int h, int quarter)
{
    const int matrix = F::KIND == GLU ? m : 0;
    const uint4 &q = b.code[m][h][F::LOADS == 2 ? quarter / 2 : 0];
    const uint32_t word[4] = { q.x, q.y, q.z, q.w };
    const bool zeros = F::T != NB_W_FP4 && F::SCHEME == codes::ANY && j.zero[matrix] != nullptr;
    const uint32_t z = F::K    ? codes::k_zero(F::T, F::SCHEME == codes::K16)
                       : zeros ? b.zero[m][h].x >> 8 * quarter & 0xff
                               : 8;
    const uint32_t zero =
        F::T == NB_W_INT4 || (F::T == NB_W_BYTE && zeros) ? codes::zero_pair<F::T>(z) : 0;
    uint32_t pair[2] = {};
    if (F::T == NB_W_FP4)
        codes::fp4_scales(pair, b.scale[m][h], quarter, !F::PLAIN && j.stype[matrix] == NB_S_E8M0);
#pragma unroll
    for (int s = 0; s < 2; s++) {
        if (F::T == NB_W_INT4) codes::int4_fragment(a[s], word[quarter], s, zero);
        if (F::T == NB_W_BYTE) codes::byte_fragment(a[s], word[quarter % 2 * 2 + s], zeros, zero);
        if (F::T == NB_W_FP4) codes::fp4_fragment(a[s], word[quarter], s, pair[s]);
    }
}

/* sum += scale * acc, and + min * x_sum in K forms, for the columns that end with the i-th 16 of the block. */
template <class F>
__device__ inline void add_span(float (&sum)[F::MT][F::NT][4], const float (&acc)[F::MT][F::NT][4],
                                const float (&x_sum)[F::NT][4], const nb_lin &j, const block<F> &b,
                                int i)
{
#pragma unroll
    for (int m = 0; m < F::MT; m++) {
        const int matrix = F::KIND == GLU ? m : 0;
        const bool f16 = F::SCHEME == codes::ANY && j.group[matrix] && j.stype[matrix] == NB_S_F16;
        float2 f[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (F::K)
                f[h] = codes::k_scale(b.scale[m][h], b.zero[m][h], i, k_type<F>(j, matrix));
            else
                f[h] = make_float2(codes::group_scale(b.scale[m][h], i / 2, f16), 0);
        }
#pragma unroll
        for (int n = 0; n < F::NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                sum[m][n][e] = __fmaf_rn(f[e >> 1].x, acc[m][n][e], sum[m][n][e]);
                if (F::K) sum[m][n][e] = __fmaf_rn(f[e >> 1].y, x_sum[n][e], sum[m][n][e]);
            }
    }
}

/* sum += W x over 32 columns; x: the first of them. */
template <class F>
__device__ inline void multiply(float (&sum)[F::MT][F::NT][4], const nb_lin &j, const block<F> &b,
                                const work<F> &o, const unsigned char *x, int quarter)
{
    const bool two = j.x.lo != nullptr;
    uint32_t v[2][F::NT][4], a[F::MT][2][2][2];
#pragma unroll
    for (int part = 0; part < 2; part++)
#pragma unroll
        for (int n = 0; n < F::NT; n++)
            if (!part || two)
                nb_ldmatrix4(v[part][n], x + part * o.x_rows * F::PITCH_X + o.x_at[n]);
#pragma unroll
    for (int m = 0; m < F::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) operands<F>(a[m][h], j, b, m, h, quarter);
    float acc[F::MT][F::NT][4], x_sum[F::NT][4];
    const uint32_t ones[4] = { 0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u };
#pragma unroll
    for (int s = 0; s < 2; s++) {
#pragma unroll
        for (int part = 0; part < 2; part++) {
            if (part && !two) continue;
            const bool fresh = part == 0 && s % F::SPAN == 0;
#pragma unroll
            for (int n = 0; n < F::NT; n++) {
                const uint32_t(&x4)[4] = v[part][n];
#pragma unroll
                for (int m = 0; m < F::MT; m++) {
                    const uint32_t w[4] = { a[m][0][s][0], a[m][1][s][0], a[m][0][s][1],
                                            a[m][1][s][1] };
                    if (F::T != NB_W_FP4 && fresh)
                        nb_mma_bf16_new(acc[m][n], w, x4[2 * s], x4[2 * s + 1]);
                    else
                        nb_mma_bf16(F::T == NB_W_FP4 ? sum[m][n] : acc[m][n], w, x4[2 * s],
                                    x4[2 * s + 1]);
                }
                if (!F::K) continue;
                if (fresh)
                    nb_mma_bf16_new(x_sum[n], ones, x4[2 * s], x4[2 * s + 1]);
                else
                    nb_mma_bf16(x_sum[n], ones, x4[2 * s], x4[2 * s + 1]);
            }
        }
        if (F::T != NB_W_FP4 && (s + 1) % F::SPAN == 0)
            add_span<F>(sum, acc, x_sum, j, b, 2 * quarter + s);
    }
}

/* sum = W x over the warp's range of columns.  early: the previous kernel may still be running. */
template <class F>
__device__ inline void range_sum(float (&sum)[F::MT][F::NT][4], const nb_lin &j, const work<F> &o,
                                 unsigned char *x, bool early)
{
    block<F> b[F::CHUNK];
#pragma unroll
    for (int i = 0; i < F::CHUNK; i++)
#pragma unroll
        for (int m = 0; m < F::MT; m++) /* without groups every scale is BF16's 1 */
            b[i].scale[m][0] = b[i].scale[m][1] = make_uint2(0x3f803f80u, 0x3f803f80u);
    for (uint32_t k = o.k0; k < o.k1; k += F::CHUNK * 128) {
#pragma unroll
        for (int i = 0; i < F::CHUNK; i++)
            if (i == 0 || k + i * 128 < o.k1) load<F>(b[i], j, o, k / 128 + i);
        if (early && k == o.k0) nb_grid_wait();
        copy_x<F>(x, j, o, k);
        nb_cp_async_wait<0>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < F::CHUNK; i++) {
            if (k + i * 128 >= o.k1) break;
#pragma unroll
            for (int q = 0; q < 4; q++) multiply<F>(sum, j, b[i], o, x + i * 256 + q * 64, q);
        }
        __syncwarp();
    }
}

template <class F>
__global__ void __launch_bounds__(512, 1) codes_kernel(nb_lin j, uint32_t n_tile, uint32_t x_rows)
{
    NB_SHARED(unsigned char, shared); /* first one copy of x per warp, then the sums of all warps */
    const uint32_t warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2;
    const uint32_t range = warp % j.n_range, tile = warp / j.n_range;
    const uint32_t row0 = (blockIdx.x * n_tile + tile) * F::ROWS;
    if (j.first && !j.chosen) nb_grid_wait();
    nb_grid_next();
    work<F> o;
    uint32_t begin = 0, end = j.n_tok;
    o.batch = blockIdx.y;
    if (j.first && !nb_lin_active(j, blockIdx.y, &o.batch, &begin, &end)) return;
    if (gridDim.z > 1) {
        begin = blockIdx.z * TOKENS;
        end = end - begin < TOKENS ? end : begin + TOKENS;
    }
    o.x_rows = x_rows;
    o.n_block = (j.n_col + 127) / 128;
    o.k0 = range * j.range;
    o.k1 = o.k0 + j.range < j.n_col ? o.k0 + j.range : j.n_col;
#pragma unroll
    for (int m = 0; m < F::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t at = row0 + g + 8 * h + (F::KIND == ROWS32 ? 16 * m : 0);
            o.row[m][h] = o.batch * j.w_rows + (at < j.n_out ? at : j.n_out - 1);
        }
    float *parts = reinterpret_cast<float *>(shared);
    for (o.tok = begin; o.tok < end; o.tok += 8 * F::NT) {
        float sum[F::MT][F::NT][4] = {};
        o.n = end - o.tok < 8 * F::NT ? end - o.tok : 8 * F::NT;
#pragma unroll
        for (uint32_t n = 0; n < F::NT; n++) {
            const uint32_t lane = threadIdx.x & 31, t = n * 8 + lane % 8;
            o.x_at[n] = (t < o.n ? t : 0) * F::PITCH_X + lane / 8 * 16;
        }
        range_sum<F>(sum, j, o, shared + warp * 2 * x_rows * F::PITCH_X,
                     (!j.first || j.chosen) && o.tok == begin);
        __syncthreads();
        put_part<F>(parts + warp * (F::MT * 8 * F::NT * PITCH), sum);
        __syncthreads();
        join<F>(j, parts, n_tile, o.batch, o.tok, end);
        __syncthreads();
    }
}

template <class F> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch, size_t max_tok)
{
    const uint32_t x_rows = max_tok < 8 * F::NT ? (uint32_t)max_tok : 8 * F::NT;
    const uint32_t n_tile = j.n_range >= 4 ? 1 : 4 / j.n_range, n_warp = n_tile * j.n_range;
    const dim3 grid(nb_lin_ceil(j.n_out, F::ROWS * n_tile), (unsigned)n_batch,
                    j.first ? 1 : nb_lin_ceil(j.n_tok, TOKENS));
    size_t bytes = sizeof(float) * n_warp * F::MT * 8 * F::NT * PITCH;
    const size_t x_bytes = (size_t)n_warp * 2 * x_rows * F::PITCH_X;
    if (bytes < x_bytes) bytes = x_bytes;
    if (bytes > 48 << 10) NB_SHARED_LIMIT(g, (codes_kernel<F>), bytes);
    NB_LAUNCH_EARLY(g, (codes_kernel<F>), grid, dim3(n_warp * 32), bytes, j, n_tile, x_rows);
}

template <nb_wtype T, scheme S, kind KIND>
void launch(nb_cuda *g, const nb_lin &j, size_t n_batch, size_t max_tok)
{
    if (max_tok > 8)
        launch<few<T, S, KIND, 2>>(g, j, n_batch, max_tok);
    else
        launch<few<T, S, KIND, 1>>(g, j, n_batch, max_tok);
}

template <nb_wtype T, scheme S>
void launch(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t max_tok)
{
    const bool large = j.first ? j.n_out >= 512 : j.n_out * n_batch >= 8192;
    if (glu)
        launch<T, S, GLU>(g, j, n_batch, max_tok);
    else if (large)
        launch<T, S, ROWS32>(g, j, n_batch, max_tok);
    else
        launch<T, S, ROWS16>(g, j, n_batch, max_tok);
}

/* Whether a matrix needs no zeros and none but the usual scales. */
bool plain(const nb_lin &j, int m, nb_wtype type)
{
    return !j.w[m] || (!j.zero[m] &&
                       (!j.group[m] || j.stype[m] == (type == NB_W_FP4 ? NB_S_E4M3 : NB_S_BF16)));
}

template <nb_wtype T>
void launch(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t max_tok)
{
    if constexpr (T != NB_W_FP4) {
        if (j.group[0] && j.stype[0] >= NB_S_K16)
            return launch<T, codes::K16>(g, j, glu, n_batch, max_tok);
        if (j.group[0] && nb_stype_is_k(j.stype[0]))
            return launch<T, codes::K32>(g, j, glu, n_batch, max_tok);
    }
    if (plain(j, 0, T) && plain(j, 1, T))
        launch<T, codes::PLAIN>(g, j, glu, n_batch, max_tok);
    else
        launch<T, codes::ANY>(g, j, glu, n_batch, max_tok);
}

/* Half as many ranges as other weights have, so that more blocks fit an SM. */
void fewer_ranges(nb_lin *j)
{
    const uint32_t n_block = nb_lin_ceil(j->n_col, 128), most = j->n_whole <= 1024 ? 8 : 4;
    const uint32_t blocks = nb_lin_ceil(n_block, most);
    j->range = blocks * 128;
    j->n_range = nb_lin_ceil(n_block, blocks);
}
} // namespace

void nb_lin_codes(nb_cuda *g, const nb_lin &args, nb_wtype type, bool experts, bool glu,
                  size_t n_batch, size_t max_tok)
{
    nb_lin j = args;
    if (experts || j.n_whole >= 8192) fewer_ranges(&j);
    switch (type) {
    case NB_W_INT4: launch<NB_W_INT4>(g, j, glu, n_batch, max_tok); break;
    case NB_W_BYTE: launch<NB_W_BYTE>(g, j, glu, n_batch, max_tok); break;
    default: launch<NB_W_FP4>(g, j, glu, n_batch, max_tok); break;
    }
}
