/* kv_decode.cuh - decodes values of a KV page to registers, eight at a time, for any record.
 *
 *   nb_kv_load8<FMT>(s, page, tok, vec, i0, v)   v[j] = value i0 + j of vector vec of token tok
 *   nb_kv_load8_any(s, page, tok, vec, i0, v)    the same, with the format looked up (a uniform branch)
 *   nb_kv_inner8<FMT>(...), nb_kv_outer<FMT>(s, page, tok, vec)
 *                        its two factors: codes with their block scales, and the vector's scale
 *   nb_kv_pack8(v, p)    as BF16 pairs, exact for all records except int4, f32 and fixed scales
 *
 * s is a segment of the record (a kernel's parameter, NB_PARAM, or a copy in shared memory), FMT its nb_seg_fmt.  i0
 * is a multiple of 8; values from dim on read as 0, so a vector may be read in whole eights.  page is aligned to 128
 * and smaller than 2^32 bytes.  A warp that reads adjacent eights of a token reads adjacent bytes; aligned data is read
 * in one load.
 *
 * Values are exactly those of nb_record_decode, for pages that nb_record_check_page accepts.  Inner values are exact
 * in FP16 for E4M3, INT8, NVFP4, IF4 and DS_MLA: |inner| <= 2688, no bit below 2^-10.  inner * outer is the value where
 * both are finite and below 2^127.  Inner values ignore outliers, clipping at the largest BF16 and the vector's end;
 * an outer of 0 marks a zero vector.
 *   format             inner                  outer
 *   MXFP4              with its block scale   1
 *   INT4, BF16, F32    the value              1
 *   DS_MLA             the code's value       that of the 128 values around i0
 *
 * How: the bits of a code, moved into an FP16, are its value times a power of two.
 *   E2M1 nibble in exponent and fraction    2^-14
 *   E4M3 byte                               2^-8
 *   number below 8 in the fraction          2^-24
 * Each conversion, and the product with the inverse factor, is exact. */
#ifndef NB_KERNEL_CUDA_COMMON_KV_DECODE_CUH
#define NB_KERNEL_CUDA_COMMON_KV_DECODE_CUH
#include "kernel/cuda/common/ptx.cuh"
#include "num/record.h"

/* The formats that the kernels support (nb_cuda_can_cache): X(FMT). */
#define NB_KV_CUDA_FORMATS(X)                                                                      \
    X(NB_SEG_BF16)                                                                                 \
    X(NB_SEG_E4M3)                                                                                 \
    X(NB_SEG_NVFP4)                                                                                \
    X(NB_SEG_IF4)                                                                                  \
    X(NB_SEG_MXFP4)                                                                                \
    X(NB_SEG_INT4_CH)                                                                              \
    X(NB_SEG_INT4_TOK)                                                                             \
    X(NB_SEG_F32)                                                                                  \
    X(NB_SEG_DS_MLA)                                                                               \
    X(NB_SEG_INT8)

/* Bits per code. */
__host__ __device__ constexpr uint32_t nb_kv_code_bits(int fmt)
{
    return fmt == NB_SEG_F32                                                  ? 32
           : fmt == NB_SEG_BF16                                               ? 16
           : fmt == NB_SEG_E4M3 || fmt == NB_SEG_INT8 || fmt == NB_SEG_DS_MLA ? 8
                                                                              : 4;
}

/* Bytes of codes per vector. */
__host__ __device__ inline uint32_t nb_kv_vec_bytes(int fmt, uint32_t dim)
{
    return (dim * nb_kv_code_bits(fmt) + 7) / 8;
}

__device__ inline uint32_t nb_kv_u16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

/* The codes of values i0.. i0 + 7 in N words.  Bytes past the vector's end are unspecified. */
template <int FMT>
__device__ inline void nb_kv_codes8(const nb_record_seg &s, const unsigned char *page, uint32_t tok,
                                    uint32_t vec, uint32_t i0,
                                    uint32_t (&c)[nb_kv_code_bits(FMT) / 4])
{
    constexpr uint32_t N = nb_kv_code_bits(FMT) / 4, BYTES = 4 * N, ALIGN = BYTES < 16 ? BYTES : 16;
    const uint32_t vec_bytes = nb_kv_vec_bytes(FMT, (uint32_t)s.dim), at = i0 * BYTES / 8;
    const uint32_t off = (uint32_t)s.code_off, stride = (uint32_t)s.code_stride;
    const unsigned char *p = page + (off + tok * stride + vec * vec_bytes + at);
    if (((off | stride | vec_bytes) & (ALIGN - 1)) == 0) {
        if constexpr (N == 1) {
            c[0] = *reinterpret_cast<const uint32_t *>(p);
        } else if constexpr (N == 2) {
            const uint2 w = *reinterpret_cast<const uint2 *>(p);
            c[0] = w.x, c[1] = w.y;
        } else {
#pragma unroll
            for (uint32_t k = 0; k < N; k += 4) {
                const uint4 w = *reinterpret_cast<const uint4 *>(p + 4 * k);
                c[k] = w.x, c[k + 1] = w.y, c[k + 2] = w.z, c[k + 3] = w.w;
            }
        }
        return;
    }
#pragma unroll
    for (uint32_t k = 0; k < N; k++) {
        c[k] = 0;
#pragma unroll
        for (uint32_t b = 0; b < 4; b++)
            if (at + 4 * k + b < vec_bytes) c[k] |= (uint32_t)p[4 * k + b] << (8 * b);
    }
}

__device__ inline float2 nb_kv_half2(uint32_t bits)
{
    __half2 h;
    memcpy(&h, &bits, sizeof h);
    return __half22float2(h);
}

/* The value of an E4M3 byte. */
__device__ inline float nb_kv_e4m3(uint32_t c)
{
    return nb_kv_half2((c & 0x7f) << 7 | (c & 0x80) << 8).x * 256.0f;
}

/* 2^(b - 127) for b in 1..254. */
__device__ inline float nb_kv_pow2(uint32_t b)
{
    return __uint_as_float(b << 23);
}

__device__ inline float nb_kv_clip(float v)
{
    const float top = 3.3895313892515355e38f; /* the largest BF16 */
    return v > top ? top : v < -top ? -top : v;
}

/* Eight nibbles times a factor: E2M1, or with `steps` signed integers -7..7. */
__device__ inline void nb_kv_nibbles(uint32_t w, bool steps, float scale, float (&v)[8])
{
    const uint32_t shift = steps ? 0 : 9;
    const float f = scale * (steps ? 16777216.0f : 16384.0f);
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) { /* values k and k + 4 */
        const uint32_t u = w >> (4 * k);
        const float2 h = nb_kv_half2((u & 0x00070007u) << shift | (u & 0x00080008u) << 12);
        v[k] = __fmul_rn(h.x, f);
        v[k + 4] = __fmul_rn(h.y, f);
    }
}

/* Eight bytes of E4M3; f: 256 times a factor. */
__device__ inline void nb_kv_e4m3_bytes(const uint32_t (&c)[2], float f, float (&v)[8])
{
#pragma unroll
    for (int j = 0; j < 8; j += 2) { /* bytes j and j + 1 become the high bytes of two FP16 */
        const uint32_t w = __byte_perm(c[j / 4], 0, j & 2 ? 0x3424 : 0x1404);
        const float2 h = nb_kv_half2((w & 0x80008000u) | (w & 0x7f007f00u) >> 1);
        v[j] = h.x * f;
        v[j + 1] = h.y * f;
    }
}

template <int FMT>
__device__ inline void nb_kv_inner8(const nb_record_seg &s, const unsigned char *page, uint32_t tok,
                                    uint32_t vec, uint32_t i0, float (&v)[8])
{
    uint32_t c[nb_kv_code_bits(FMT) / 4];
    nb_kv_codes8<FMT>(s, page, tok, vec, i0, c);
    const uint32_t n_group = (uint32_t)s.n_group, stride = (uint32_t)s.scale_stride;
    const unsigned char *sf = page + (uint32_t)s.scale_off + tok * stride + vec * n_group;
    if constexpr (FMT == NB_SEG_F32) {
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __uint_as_float(c[j]);
    } else if constexpr (FMT == NB_SEG_BF16) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = __uint_as_float(j & 1 ? c[j / 2] & 0xffff0000u : c[j / 2] << 16);
    } else if constexpr (FMT == NB_SEG_INT8) {
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = (float)(int8_t)(c[j / 4] >> (8 * (j & 3)) & 0xff);
    } else if constexpr (FMT == NB_SEG_E4M3 || FMT == NB_SEG_DS_MLA) {
        nb_kv_e4m3_bytes(c, 256.0f, v);
    } else if constexpr (FMT == NB_SEG_NVFP4) {
        nb_kv_nibbles(c[0], false, nb_kv_e4m3(sf[i0 / 16] & 0x7f), v);
    } else if constexpr (FMT == NB_SEG_IF4) {
        const uint32_t b = sf[i0 / 16];
        nb_kv_nibbles(c[0], b & 0x80, nb_kv_e4m3(b & 0x7f), v);
    } else if constexpr (FMT == NB_SEG_MXFP4) { /* 2^14 times a scale could overflow */
        const uint32_t b = sf[i0 / 32];
        nb_kv_nibbles(c[0], false, 1, v);
        const float f = b ? nb_kv_pow2(b) : 0;
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = b ? __fmul_rn(v[j], f) : 0;
    } else if constexpr (FMT == NB_SEG_INT4_TOK) {
        const unsigned char *p =
            page + (uint32_t)s.scale_off + tok * stride + 2 * (vec * n_group + i0 / 32);
        const float f = nb_kv_half2(nb_kv_u16(p)).x, m = nb_kv_half2(nb_kv_u16(p + stride / 2)).x;
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = __fadd_rn(__fmul_rn((float)(c[0] >> (4 * j) & 15), f), m);
    } else { /* INT4_CH */
        const unsigned char *p =
            page + (uint32_t)s.scale_off + tok / 32 * stride + 2 * (vec * n_group + i0);
        if ((uint32_t)s.dim % 8 == 0) { /* eight FP16 are 16 aligned bytes */
            const uint4 f4 = *reinterpret_cast<const uint4 *>(p);
            const uint4 m4 = *reinterpret_cast<const uint4 *>(p + stride / 2);
            const uint32_t f[4] = { f4.x, f4.y, f4.z, f4.w }, m[4] = { m4.x, m4.y, m4.z, m4.w };
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
                const float2 fj = nb_kv_half2(f[j / 2]), mj = nb_kv_half2(m[j / 2]);
                v[j] = __fadd_rn(__fmul_rn((float)(c[0] >> (4 * j) & 15), fj.x), mj.x);
                v[j + 1] = __fadd_rn(__fmul_rn((float)(c[0] >> (4 * j + 4) & 15), fj.y), mj.y);
            }
            return;
        }
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            if (i0 + j >= (uint32_t)s.dim) {
                v[j] = 0;
                continue;
            }
            const float f = nb_kv_half2(nb_kv_u16(p + 2 * j)).x;
            const float m = nb_kv_half2(nb_kv_u16(p + stride / 2 + 2 * j)).x;
            v[j] = __fadd_rn(__fmul_rn((float)(c[0] >> (4 * j) & 15), f), m);
        }
    }
}

/* A vector's outer factor; only DS_MLA's depends on i0. */
template <int FMT>
__device__ inline float nb_kv_outer(const nb_record_seg &s, const unsigned char *page, uint32_t tok,
                                    uint32_t vec, uint32_t i0 = 0)
{
    if constexpr (FMT == NB_SEG_E4M3 || FMT == NB_SEG_INT8 || FMT == NB_SEG_NVFP4 ||
                  FMT == NB_SEG_IF4) {
        const uint32_t b = page[(uint32_t)s.outer_off + tok * (uint32_t)s.outer_stride + vec];
        return b == 0 ? 0 : s.fixed_scale != 0 ? s.fixed_scale : nb_kv_pow2(b);
    } else if constexpr (FMT == NB_SEG_DS_MLA) {
        const unsigned char *p = page + (uint32_t)s.scale_off + tok * (uint32_t)s.scale_stride;
        p += 4 * (i0 / 128);
        return __uint_as_float(nb_kv_u16(p) | nb_kv_u16(p + 2) << 16);
    } else {
        return 1;
    }
}

/* Inserts the outlier channels among places vec * dim + i0.. into v. */
__device__ inline void nb_kv_merge8(const nb_record_seg &s, const unsigned char *page, uint32_t tok,
                                    uint32_t vec, uint32_t i0, float (&v)[8])
{
    const uint32_t at = vec * (uint32_t)s.dim + i0, n = (uint32_t)s.n_outlier;
    const unsigned char *side = page + (uint32_t)s.side_off + tok * (uint32_t)s.side_stride;
    uint32_t k = 0;
    while (k < n && s.outlier[k] < at) k++;
    for (; k < n && s.outlier[k] < at + 8; k++) {
        const float x = nb_bf16_float((uint16_t)nb_kv_u16(side + 2 * k));
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            if (s.outlier[k] == at + j) v[j] = x;
    }
}

/* v times a vector's outer factor. */
__device__ inline void nb_kv_scale8(float o, float (&v)[8])
{
    if (o == 0 || o >= 0x1p100f) { /* rare: zero vectors, and values that may need clipping */
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = o == 0 ? 0 : nb_kv_clip(__fmul_rn(v[j], o));
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn(v[j], o);
    }
}

/* nb_kv_load8 in two steps, for vectors without outliers, fixed scales and ends within eight values: the reads, and what
 * is computed from them.  BF16, E4M3, NVFP4, IF4.  outer: byte of the vector's factor (nb_kv_outer_byte), of any value for
 * BF16; from NB_KV_LARGE on values may need clipping, or block scale (448 at most) times factor times the 2^24 of a nibble is
 * no float (LARGE). */
enum { NB_KV_LARGE = 127 + 96 };
template <int FMT> struct nb_kv_raw8 {
    uint32_t c[nb_kv_code_bits(FMT) / 4];
    uint32_t scale; /* of the block; 4 bits only */
};
template <int FMT>
__device__ inline uint32_t nb_kv_outer_byte(const nb_record_seg &s, const unsigned char *page,
                                            uint32_t tok, uint32_t vec)
{
    if constexpr (FMT == NB_SEG_BF16)
        return 0;
    else
        return page[(uint32_t)s.outer_off + tok * (uint32_t)s.outer_stride + vec];
}
template <int FMT>
__device__ inline void nb_kv_fetch8(const nb_record_seg &s, const unsigned char *page, uint32_t tok,
                                    uint32_t vec, uint32_t i0, nb_kv_raw8<FMT> &r)
{
    nb_kv_codes8<FMT>(s, page, tok, vec, i0, r.c);
    if constexpr (FMT == NB_SEG_NVFP4 || FMT == NB_SEG_IF4)
        r.scale = page[(uint32_t)s.scale_off + tok * (uint32_t)s.scale_stride +
                       vec * (uint32_t)s.n_group + i0 / 16];
}
/* As BF16 pairs.  Not LARGE: the factors' product is a float, so that one product is left for each value. */
template <int FMT, bool LARGE>
__device__ inline void nb_kv_pairs8(const nb_kv_raw8<FMT> &r, uint32_t outer, uint32_t (&p)[4])
{
    static_assert(FMT == NB_SEG_BF16 || FMT == NB_SEG_E4M3 || FMT == NB_SEG_NVFP4 ||
                      FMT == NB_SEG_IF4,
                  "a format that is read in two steps");
    if constexpr (FMT == NB_SEG_BF16) {
#pragma unroll
        for (int k = 0; k < 4; k++) p[k] = r.c[k];
    } else {
        const float o = outer ? nb_kv_pow2(outer) : 0, inner = LARGE ? 1 : o;
        float v[8];
        if constexpr (FMT == NB_SEG_E4M3)
            nb_kv_e4m3_bytes(r.c, 256.0f * inner, v);
        else
            nb_kv_nibbles(r.c[0], FMT == NB_SEG_IF4 && r.scale & 0x80,
                          nb_kv_e4m3(r.scale & 0x7f) * inner, v);
        if (LARGE) nb_kv_scale8(o, v);
#pragma unroll
        for (int k = 0; k < 4; k++) p[k] = nb_pack_bf16(v[2 * k], v[2 * k + 1]);
    }
}

template <int FMT>
__device__ inline void nb_kv_load8(const nb_record_seg &s, const unsigned char *page, uint32_t tok,
                                   uint32_t vec, uint32_t i0, float (&v)[8])
{
    nb_kv_inner8<FMT>(s, page, tok, vec, i0, v);
    if constexpr (FMT == NB_SEG_MXFP4) {
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = nb_kv_clip(v[j]);
    } else if constexpr (FMT != NB_SEG_F32 && FMT != NB_SEG_BF16 && FMT != NB_SEG_INT4_CH &&
                         FMT != NB_SEG_INT4_TOK) {
        nb_kv_scale8(nb_kv_outer<FMT>(s, page, tok, vec, i0), v);
    }
    if (s.n_outlier) nb_kv_merge8(s, page, tok, vec, i0, v);
    if (i0 + 8 > (uint32_t)s.dim) {
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            if (i0 + j >= (uint32_t)s.dim) v[j] = 0;
    }
}

__device__ inline void nb_kv_load8_any(const nb_record_seg &s, const unsigned char *page,
                                       uint32_t tok, uint32_t vec, uint32_t i0, float (&v)[8])
{
    switch (s.fmt) {
#define X(FMT)                                                                                     \
    case FMT: nb_kv_load8<FMT>(s, page, tok, vec, i0, v); break;
        NB_KV_CUDA_FORMATS(X)
#undef X
    default: break; /* nb_cuda_can_cache has refused it */
    }
}

/* Eight floats as four BF16 pairs, the first in the low half. */
__device__ inline void nb_kv_pack8(const float (&v)[8], uint32_t (&p)[4])
{
#pragma unroll
    for (int j = 0; j < 4; j++) p[j] = nb_pack_bf16(v[2 * j], v[2 * j + 1]);
}

#endif
