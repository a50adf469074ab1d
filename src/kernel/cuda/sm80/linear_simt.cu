/* linear_simt.cu - y = W x for any weight type and any shape, in float: the rows "simt".
 *
 * Used for F32, F16 and INT8 weights, and (tiled ones too) for row lengths that the tensor-core kernels do not support (small
 * checkpoints).  A warp computes one row of the weights times up to 4 tokens.
 *
 * Order of summation: lane c % 32 sums column c, up to four terms in a block of 128 columns.  Then the blocks are
 * added in order, then the lanes as a tree.  A term meets at most n / 128 + 4 + 5 additions, which is under the
 * bound of linear.h.
 * Bound by reading the weights element by element, at about a third of the memory bandwidth.
 *
 * BF16 and FP8 weights read x as hi + lo in float; the other types read x.f. */
#include "kernel/cuda/sm80/linear_codes.cuh"

namespace
{
const uint32_t TOKENS = 4, WARPS = 8;

__host__ __device__ constexpr size_t item_bytes(nb_wtype t)
{
    return t == NB_W_F32 ? 4 : t == NB_W_FP8B || t == NB_W_INT8 ? 1 : 2;
}

__device__ inline float e4m3_value(uint32_t c)
{
    const uint2 v = nb_lin_e4m3(c);
    return (c & 0x7f) == 0x7f ? __uint_as_float(0x7fc00000u) : __uint_as_float(v.x << 16);
}

template <nb_wtype T> __device__ inline float weight(const unsigned char *row, uint32_t c)
{
    if (T == NB_W_F32) return reinterpret_cast<const float *>(row)[c];
    if (T == NB_W_BF16) return nb_bf16_float(reinterpret_cast<const uint16_t *>(row)[c]);
    if (T == NB_W_F16) return __half2float(reinterpret_cast<const __half *>(row)[c]);
    if (T == NB_W_INT8) return (float)reinterpret_cast<const signed char *>(row)[c];
    return e4m3_value(row[c]);
}

/* Column c of row r of a matrix, without FP8's scales and factors of rows. */
template <nb_wtype T>
__device__ inline float weight_at(const nb_lin &j, uint32_t m, size_t r, const unsigned char *row, uint32_t c)
{
    if constexpr (T == NB_W_INT4 || T == NB_W_BYTE || T == NB_W_FP4)
        return codes::tiled_value<T>(j.w[m], j.group[m], j.zero[m], j.stype[m], r, j.n_col, c);
    else
        return weight<T>(row, c);
}

template <nb_wtype T> __device__ inline float activation(const nb_lin &j, size_t i)
{
    if (T == NB_W_BF16 || T == NB_W_FP8B) {
        const float hi = nb_bf16_float(j.x.hi[i]);
        return j.x.lo ? hi + nb_bf16_float(j.x.lo[i]) : hi;
    }
    return j.x.f[i];
}

/* Row r of matrix m (in batch b) times the n tokens that start at x_at; all lanes return the same values. */
template <nb_wtype T, int TOK>
__device__ inline void row_sum(float (&y)[TOK], const nb_lin &j, uint32_t m, uint32_t b, uint32_t r,
                               const size_t (&x_at)[TOK], uint32_t n)
{
    const uint32_t lane = threadIdx.x & 31;
    const size_t at = b * j.w_rows + r;
    const unsigned char *row = j.w[m] + at * j.n_col * item_bytes(T);
    float total[TOK] = {};
    for (uint32_t k = 0; k < j.n_col; k += 128) {
        float acc[TOK] = {};
        for (uint32_t c = k + lane; c < j.n_col && c < k + 128; c += 32) {
            const float w = weight_at<T>(j, m, at, row, c);
#pragma unroll
            for (uint32_t i = 0; i < TOK; i++)
                if (i < n) acc[i] = __fmaf_rn(w, activation<T>(j, x_at[i] + c), acc[i]);
        }
#pragma unroll
        for (int i = 0; i < TOK; i++)
            total[i] = T == NB_W_FP8B ? __fmaf_rn(*nb_lin_scale(j, m, b, r, k / 128), acc[i], total[i])
                                      : __fadd_rn(total[i], acc[i]);
    }
#pragma unroll
    for (int i = 0; i < TOK; i++) {
        for (int d = 16; d; d /= 2)
            total[i] = __fadd_rn(total[i], __shfl_xor_sync(0xffffffffu, total[i], d));
        y[i] = T >= NB_W_INT8 ? total[i] * j.scale[m][at] : total[i];
    }
}

template <nb_wtype T> __global__ void __launch_bounds__(WARPS * 32) linear_kernel(nb_lin j)
{
    const uint32_t r = blockIdx.x * WARPS + (threadIdx.x >> 5), b = blockIdx.z;
    const uint32_t tok = blockIdx.y * TOKENS, left = j.n_tok - tok,
                   n = left < TOKENS ? left : TOKENS;
    if (r >= j.n_out) return;
    size_t x_at[TOKENS];
    float y[TOKENS];
#pragma unroll
    for (uint32_t i = 0; i < TOKENS; i++) x_at[i] = (tok + i) * j.x.stride + b * j.x_batch;
    row_sum<T, TOKENS>(y, j, 0, b, r, x_at, n);
    if (j.w[1]) {
        float up[TOKENS];
        row_sum<T, TOKENS>(up, j, 1, b, r, x_at, n);
#pragma unroll
        for (uint32_t i = 0; i < TOKENS; i++) y[i] = nb_lin_swiglu(y[i], up[i], j.limit);
    }
#pragma unroll
    for (uint32_t i = 0; i < TOKENS; i++)
        if (i < n && (threadIdx.x & 31) == i) nb_lin_store(j, b, tok + i, r, y[i]);
}

template <nb_wtype T> __global__ void __launch_bounds__(WARPS * 32) experts_kernel(nb_lin j)
{
    const uint32_t r = blockIdx.y * WARPS + (threadIdx.x >> 5), place = blockIdx.x;
    if (r >= j.n_out || place < j.first[0] || place >= j.first[j.n_expert]) return;
    uint32_t e = 0, last = j.n_expert; /* the last one with first[e] <= place */
    while (last - e > 1) {
        const uint32_t mid = (e + last) / 2;
        if (j.first[mid] <= place)
            e = mid;
        else
            last = mid;
    }
    const size_t x_at[1] = { (j.src ? j.src[place] : place) * j.x.stride };
    float y[1], up[1];
    row_sum<T, 1>(y, j, 0, e, r, x_at, 1);
    if (j.w[1]) {
        row_sum<T, 1>(up, j, 1, e, r, x_at, 1);
        y[0] = nb_lin_swiglu(y[0], up[0], j.limit);
    }
    if ((threadIdx.x & 31) == 0) nb_lin_store(j, e, place, r, y[0]);
}

template <nb_wtype T> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch)
{
    const uint32_t rows = nb_lin_ceil(j.n_out, WARPS);
    if (j.first)
        NB_LAUNCH(g, (experts_kernel<T>), dim3(j.n_tok, rows), WARPS * 32, 0, j);
    else
        NB_LAUNCH(g, (linear_kernel<T>),
                  dim3(rows, nb_lin_ceil(j.n_tok, TOKENS), (unsigned)n_batch), WARPS * 32, 0, j);
}

void launch(nb_cuda *g, const nb_lin &j, nb_wtype type, size_t n_batch)
{
    switch (type) {
    case NB_W_F32: launch<NB_W_F32>(g, j, n_batch); break;
    case NB_W_BF16: launch<NB_W_BF16>(g, j, n_batch); break;
    case NB_W_F16: launch<NB_W_F16>(g, j, n_batch); break;
    case NB_W_FP8B: launch<NB_W_FP8B>(g, j, n_batch); break;
    case NB_W_INT4: launch<NB_W_INT4>(g, j, n_batch); break;
    case NB_W_BYTE: launch<NB_W_BYTE>(g, j, n_batch); break;
    case NB_W_FP4: launch<NB_W_FP4>(g, j, n_batch); break;
    default: launch<NB_W_INT8>(g, j, n_batch); break;
    }
}
} // namespace

bool nb_cuda_linear_simt_can(nb_wtype type, size_t n_out, size_t n_col, bool two_parts)
{
    (void)n_out;
    (void)n_col;
    (void)two_parts;
    return type <= NB_W_FP4;
}

void nb_cuda_linear_simt(nb_cuda *g, const nb_cuda_linear_args *a)
{
    if (a->n_tok && a->n_out && a->n_batch) launch(g, nb_lin_of(a), a->w.type, a->n_batch);
}

bool nb_cuda_experts_simt_can(nb_wtype type, size_t n_out, size_t n_col)
{
    (void)n_out;
    (void)n_col;
    return type <= NB_W_FP4;
}

void nb_cuda_experts_simt(nb_cuda *g, const nb_cuda_experts_args *a)
{
    if (a->n_place && a->n_out && a->n_expert) launch(g, nb_lin_of(a), a->gate.type, 1);
}
