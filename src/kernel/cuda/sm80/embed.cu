/* embed.cu - token embedding: y[t] = factor * scale * W[id[t]], as float.
 *
 * Block: one token and 1,024 columns; a thread has four.  The product is computed in double and rounded once, as on the
 * host (embed.h), so the bits are the same.  Bound by memory. */
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/rows.cuh"
#include "kernel/cuda/sm80/linear_codes.cuh"

namespace
{
constexpr uint32_t THREADS = 256;

__device__ float e4m3_value(uint8_t c)
{
    if ((c & 0x7f) == 0x7f) return __uint_as_float(0x7fc00000u | (uint32_t)(c & 0x80) << 24);
    /* shifted to an FP16's exponent and fraction; its bias is 8 more */
    const uint16_t bits = (uint16_t)((c & 0x80) << 8 | (c & 0x7f) << 7);
    return __half2float(__ushort_as_half(bits)) * 256.0f;
}

__device__ float code_of(const nb_weight &w, size_t at)
{
    switch (w.type) {
    case NB_W_BF16: return nb_bf16_float(static_cast<const uint16_t *>(w.data)[at]);
    case NB_W_F16: return __half2float(static_cast<const __half *>(w.data)[at]);
    case NB_W_FP8B: return e4m3_value(static_cast<const uint8_t *>(w.data)[at]);
    case NB_W_INT8: return (float)static_cast<const int8_t *>(w.data)[at];
    default: return static_cast<const float *>(w.data)[at];
    }
}

template <nb_wtype T> __device__ float tiled(const nb_weight &w, size_t r, size_t c)
{
    return codes::tiled_value<T>(static_cast<const unsigned char *>(w.data),
                                 static_cast<const unsigned char *>(w.group.scale), w.group.zero,
                                 w.group.scale_type, r, (uint32_t)w.n_col, (uint32_t)c);
}

/* Element c of row r, without scale_of. */
__device__ float value_of(const nb_weight &w, size_t r, size_t c)
{
    switch (w.type) {
    case NB_W_INT4: return tiled<NB_W_INT4>(w, r, c);
    case NB_W_BYTE: return tiled<NB_W_BYTE>(w, r, c);
    case NB_W_FP4: return tiled<NB_W_FP4>(w, r, c);
    default: return code_of(w, r * w.n_col + c);
    }
}

/* The scale of columns c .. c + 3, which share a block of 128 columns. */
__device__ float scale_of(const nb_weight &w, size_t r, size_t c)
{
    if (w.type >= NB_W_INT8 || w.row_scales) return w.scale[r];
    if (w.type != NB_W_FP8B) return 1.0f;
    const size_t n_block = (w.n_col + NB_FP8_BLOCK - 1) / NB_FP8_BLOCK;
    return w.scale[r / NB_FP8_BLOCK * n_block + c / NB_FP8_BLOCK];
}

__global__ void embed_kernel(nb_cuda_embed_args a, bool vec)
{
    const size_t t = blockIdx.x, c = 4 * ((size_t)blockIdx.y * THREADS + threadIdx.x);
    if (c >= a.w.n_col) return;
    const size_t n = a.w.n_col - c, r = a.id[t];
    float v[4] = { 0, 0, 0, 0 };
    if (r < a.w.n_row) {
        const double f = (double)a.factor * (double)scale_of(a.w, r, c);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (j < n) v[j] = (float)(f * (double)value_of(a.w, r, c + j));
    }
    nb_store4(a.y + t * a.y_stride + c, v, n, vec);
}
} /* namespace */

void nb_cuda_embed(nb_cuda *g, const nb_cuda_embed_args *a)
{
    if (a->n_tok == 0) return;
    const unsigned parts = (unsigned)((a->w.n_col + 4 * THREADS - 1) / (4 * THREADS));
    NB_LAUNCH(g, embed_kernel, dim3((unsigned)a->n_tok, parts), THREADS, 0, *a,
              nb_rows_aligned(a->y, a->y_stride));
}
