/* rows.cuh - loads and stores rows of floats four at a time, and sums over a warp.
 *
 * Rows have any stride and length.  With `vec` (rows are aligned) four values are one access of 16 bytes, else up to
 * four single ones.  The choice never changes a result. */
#ifndef NB_KERNEL_CUDA_COMMON_ROWS_CUH
#define NB_KERNEL_CUDA_COMMON_ROWS_CUH
#include "kernel/cuda/common/ptx.cuh"

/* Whether all rows p + t * stride are aligned to 16 bytes.  Host only. */
inline bool nb_rows_aligned(const float *p, size_t stride)
{
    return (reinterpret_cast<uintptr_t>(p) & 15) == 0 && stride % 4 == 0;
}

/* v = p[0..4), of which n > 0 exist; the others become 0. */
__device__ inline void nb_load4(float (&v)[4], const float *p, size_t n, bool vec)
{
    if (vec && n >= 4) {
        const float4 x = *reinterpret_cast<const float4 *>(p);
        v[0] = x.x;
        v[1] = x.y;
        v[2] = x.z;
        v[3] = x.w;
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) v[i] = i < n ? p[i] : 0.0f;
}
__device__ inline void nb_store4(float *p, const float (&v)[4], size_t n, bool vec)
{
    if (vec && n >= 4) {
        *reinterpret_cast<float4 *>(p) = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (i < n) p[i] = v[i];
}

/* Stores four values in each form that y asks for, at element i, a multiple of 4; n of them exist. */
__device__ inline void nb_put4(const nb_cuda_rows &y, size_t i, const float (&v)[4], size_t n)
{
    if (n < 4) {
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            if (k < n) nb_put(y, i + k, v[k]);
        return;
    }
    if (y.f) *reinterpret_cast<float4 *>(y.f + i) = make_float4(v[0], v[1], v[2], v[3]);
    if (!y.hi) return;
    const uint32_t a = nb_pack_bf16(v[0], v[1]), b = nb_pack_bf16(v[2], v[3]);
    *reinterpret_cast<uint2 *>(y.hi + i) = make_uint2(a, b);
    if (!y.lo) return;
    const uint32_t c =
        nb_pack_bf16(v[0] - __uint_as_float(a << 16), v[1] - __uint_as_float(a & 0xffff0000u));
    const uint32_t d =
        nb_pack_bf16(v[2] - __uint_as_float(b << 16), v[3] - __uint_as_float(b & 0xffff0000u));
    *reinterpret_cast<uint2 *>(y.lo + i) = make_uint2(c, d);
}

/* Sum over the warp, the same in every lane; lanes are added in pairs 16 apart, then 8, ... */
template <typename T> __device__ inline T nb_warp_sum(T x)
{
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

#endif
