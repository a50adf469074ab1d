/* kv_refine.cuh - refines values of a page by a row of its residual plane, exactly as nb_residual_decode, eight at a
 * time.
 *
 *   nb_kv_refine8(r, page, row, tok, i0, v)   v[j] = refined value i0 + j of token tok, segment 0 of one
 *                                             vector; row: the token's row in the plane.  Values from
 *                                             dim on are 0. */
#ifndef NB_KERNEL_CUDA_COMMON_KV_REFINE_CUH
#define NB_KERNEL_CUDA_COMMON_KV_REFINE_CUH
#include "kernel/cuda/common/kv_decode.cuh"

/* The end of cell i of a grid, i = -1..6, in units of the block scale; cell 7 ends at `top`. */
__device__ inline float nb_kv_cell_end(bool steps, int i)
{
    const float e2m1 = i < 4 ? 0.5f * (float)i + 0.25f : i == 4 ? 2.5f : i == 5 ? 3.5f : 5.0f;
    return steps ? (float)i + 0.5f : e2m1;
}

/* Bytes i0 / 2.. of a plane's row of n bytes. */
__device__ inline uint32_t nb_kv_plane8(const unsigned char *row, uint32_t i0, uint32_t n)
{
    const unsigned char *p = row + i0 / 2;
    uint32_t w = 0;
    if (((uintptr_t)p & 3) == 0 && i0 / 2 + 4 <= n) return *reinterpret_cast<const uint32_t *>(p);
    for (uint32_t b = 0; b < 4 && i0 / 2 + b < n; b++) w |= (uint32_t)p[b] << (8 * b);
    return w;
}

__device__ inline void nb_kv_refine8(const nb_record &r, const unsigned char *page,
                                     const unsigned char *row, uint32_t tok, uint32_t i0,
                                     float (&v)[8])
{
    const nb_record_seg &s = r.seg[0];
    const uint32_t dim = (uint32_t)s.dim;
    const bool if4 = s.fmt == NB_SEG_IF4;
    const uint32_t part = nb_kv_plane8(row, i0, (dim + 1) / 2);
    const uint32_t sf = page[(uint32_t)s.scale_off + tok * (uint32_t)s.scale_stride + i0 / 16];
    const bool steps = if4 && sf & 0x80;
    const float top = steps ? 8.0f : if4 || r.mode == NB_KV_SEARCH ? 7.0f : 6.5f;
    const float scale = nb_kv_e4m3(sf & 0x7f), o = nb_kv_outer<NB_SEG_NVFP4>(s, page, tok, 0);
    uint32_t c[1];
    nb_kv_codes8<NB_SEG_NVFP4>(s, page, tok, 0, i0, c);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint32_t nib = c[0] >> (4 * j) & 15;
        const int i = (int)(nib & 7);
        const float lo = nb_kv_cell_end(steps, i - 1);
        const float step = ((i == 7 ? top : nb_kv_cell_end(steps, i)) - lo) * 0.0625f;
        float mid =
            __fadd_rn(__fadd_rn(lo, 0.5f * step), __fmul_rn((float)(part >> (4 * j) & 15), step));
        if (i != 0 && nib & 8) mid = -mid;
        v[j] = o == 0 || (sf & 0x7f) == 0 ? 0 : nb_kv_clip(__fmul_rn(__fmul_rn(mid, scale), o));
    }
    if (s.n_outlier) nb_kv_merge8(s, page, tok, 0, i0, v);
#pragma unroll
    for (uint32_t j = 0; j < 8; j++)
        if (i0 + j >= dim) v[j] = 0;
}

#endif
