/* linear_codes.cuh - operands of the tensor cores from tiled weights (linear/tiled.h), shared by linear_codes.cu and
 * sm90/linear_wgmma_codes.cu.
 *
 * A fragment is 16 columns of a row, as two registers of BF16 pairs: columns 2t, 2t+1 and 2t+8, 2t+9.  All values are
 * exact in BF16:
 *   INT4   code - zero, in -16..15; the scale multiplies the sum of 32 columns
 *   BYTE   code - zero, in -255..255; likewise
 *   FP4    code * scale: 2 significant bits of E2M1 times 4 of E4M3, or times a power of two
 * K forms: as INT4 and BYTE with a constant zero. */
#ifndef NB_KERNEL_CUDA_SM80_LINEAR_CODES_CUH
#define NB_KERNEL_CUDA_SM80_LINEAR_CODES_CUH
#include "kernel/cuda/sm80/linear_mma.cuh"
#include "kernel/linear/tiled.h"

namespace codes
{
__device__ inline __nv_bfloat162 pair_of(uint32_t x)
{
    __nv_bfloat162 v;
    memcpy(&v, &x, sizeof v);
    return v;
}
__device__ inline uint32_t bits_of(__nv_bfloat162 v)
{
    uint32_t x;
    memcpy(&x, &v, sizeof x);
    return x;
}
__device__ inline uint32_t sub2(uint32_t a, uint32_t b)
{
    return bits_of(__hsub2(pair_of(a), pair_of(b)));
}
__device__ inline uint32_t mul2(uint32_t a, uint32_t b)
{
    return bits_of(__hmul2(pair_of(a), pair_of(b)));
}

/* What is subtracted, as a pair: of INT4 from 128 + code, of BYTE from code - 128. */
template <nb_wtype T> __device__ inline uint32_t zero_pair(uint32_t zero)
{
    if (T == NB_W_INT4) return (0x4300u + zero) * 0x10001u;
    return nb_pack_bf16((float)((int)zero - 128), (float)((int)zero - 128));
}

/* Columns 16 s .. of the 32 in a word of INT4: 128 + code has the code as its last bits. */
__device__ inline void int4_fragment(uint32_t (&a)[2], uint32_t word, int s, uint32_t zero)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        a[i] = sub2((word >> (8 * s + 4 * i) & 0x000f000fu) | 0x43004300u, zero);
}

/* 16 columns of BYTE from a word: 7 bits as above, and the 8th, which tells 128 from 256, in what is added. */
__device__ inline void byte_fragment(uint32_t (&a)[2], uint32_t word, bool zeros, uint32_t zero)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t x = __byte_perm(word, 0, i ? 0x4342 : 0x4140);
        const uint32_t low = (x & 0x007f007fu) | 0x43004300u,
                       less = (~x & 0x00800080u) | 0x43004300u;
        a[i] = sub2(low, less);
        if (zeros) a[i] = sub2(a[i], zero);
    }
}

/* Columns 16 s .. of the 32 in a word of FP4.  The bits of E2M1, shifted, are a BF16 2^126 times smaller; scale: a pair. */
__device__ inline void fp4_fragment(uint32_t (&a)[2], uint32_t word, int s, uint32_t scale)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int at = 8 * s + 4 * i; /* of the first column's nibble */
        const uint32_t sign = word << (12 - at) & 0x80008000u;
        const uint32_t rest =
            at <= 6 ? word << (at <= 6 ? 6 - at : 0) : word >> (at > 6 ? at - 6 : 0);
        a[i] = mul2(mul2(sign | (rest & 0x01c001c0u), 0x7e807e80u), scale);
    }
}

/* Scales of FP4, bytes 2 q and 2 q + 1 of eight, as pairs of BF16.  2^-127 becomes 0. */
__device__ inline void fp4_scales(uint32_t (&s)[2], const uint2 &eight, int q, bool e8m0)
{
    const uint32_t two = (q < 2 ? eight.x : eight.y) >> 16 * (q & 1) & 0xffff;
    const uint32_t v = e8m0 ? __byte_perm(two, 0, 0x4140) << 7 : nb_lin_e4m3(two).x;
    s[0] = __byte_perm(v, 0, 0x1010);
    s[1] = __byte_perm(v, 0, 0x3232);
}

/* A scale of FP4, byte k of eight, as a pair of BF16. */
__device__ inline uint32_t fp4_scale(const uint2 &eight, int k, bool e8m0)
{
    const uint32_t c = (k < 4 ? eight.x : eight.y) >> 8 * (k & 3) & 0xff;
    if (e8m0) return (c ? c << 7 : 0x40u) * 0x10001u;
    return nb_lin_e4m3(c * 0x0101u).x;
}

/* A scale of INT4 or BYTE, the k-th of four. */
__device__ inline float group_scale(const uint2 &four, int k, bool f16)
{
    const uint32_t h = (k < 2 ? four.x : four.y) >> 16 * (k & 1) & 0xffff;
    return f16 ? __half2float(__ushort_as_half((unsigned short)h)) : __uint_as_float(h << 16);
}

/* What the kernels tell apart of a matrix's planes. */
enum scheme {
    PLAIN, /* no zeros, and scales in BF16 (FP4: in E4M3) */
    ANY,   /* zeros, scales of any type */
    K32,   /* F16_MIN, K32: a scale and a min per 32 columns */
    K16    /* K16, K16_MIN: per 16 columns */
};

__device__ inline float half_float(uint32_t h)
{
    return __half2float(__ushort_as_half((unsigned short)(h & 0xffff)));
}

/* Scale (x) and min (y) of columns [16 i, 16 i + 16) of a block of a K form; zero: 8 bytes, of which F16_MIN alone has
 * the second half. */
__device__ inline float2 k_scale(const uint2 &scale, const uint2 &zero, int i, nb_stype type)
{
    const uint32_t s = (i < 4 ? scale.x : scale.y) >> 8 * (i & 3) & 0xff;
    const float d = half_float(zero.x), m = half_float(zero.x >> 16);
    if (type == NB_S_K16) return make_float2(d * (float)(int)(signed char)s, 0);
    if (type == NB_S_K16_MIN) return make_float2(d * (float)(s & 15), -(m * (float)(s >> 4)));
    const int q = i / 2;
    if (type == NB_S_F16_MIN)
        return make_float2(half_float((q < 2 ? scale.x : scale.y) >> 16 * (q & 1)),
                           half_float((q < 2 ? zero.x : zero.y) >> 16 * (q & 1)));
    return make_float2(d * (float)(scale.x >> 8 * q & 0xff), -(m * (float)(scale.y >> 8 * q & 0xff)));
}

/* The zero of codes in a K form. */
__host__ __device__ constexpr uint32_t k_zero(nb_wtype type, bool per_16)
{
    return type == NB_W_BYTE ? 128 : per_16 ? 8 : 0;
}

/* Bytes of the codes of 128 columns. */
template <nb_wtype T> __host__ __device__ constexpr uint32_t block_bytes()
{
    return T == NB_W_BYTE ? 128 : 64;
}

/* The value of an element without its row's factor; exact but for the scale's product. */
template <nb_wtype T>
__device__ inline float tiled_value(const unsigned char *code, const unsigned char *group,
                                    const unsigned char *zero, nb_stype stype, size_t row,
                                    uint32_t n_col, uint32_t c)
{
    const uint32_t n_block = (n_col + 127) / 128, in = c % 128, k = in % 32;
    const size_t block = row * n_block + c / 128;
    const uint32_t t = k / 2 % 4, i = k / 8, e = k % 2; /* lane; pair; of the pair */
    const unsigned char *p = code + block * block_bytes<T>();
    uint32_t q;
    if (T == NB_W_BYTE)
        q = p[64 * (in / 64) + 16 * t + 4 * (in % 64 / 16) + 2 * (i % 2) + e];
    else {
        const uint32_t at = 4 * i + 16 * e; /* bit */
        q = p[16 * t + 4 * (in / 32) + at / 8] >> at % 8 & 15;
    }
    uint2 s = make_uint2(0, 0);
    if (group) memcpy(&s, group + 8 * block, sizeof s);
    if (T == NB_W_FP4) {
        const float half[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
        const float v = __uint_as_float(fp4_scale(s, (int)(in / 16), stype == NB_S_E8M0) << 16);
        return (q & 8 ? -half[q & 7] : half[q & 7]) * v;
    }
    if (stype >= NB_S_F16_MIN) {
        uint2 z = make_uint2(0, 0);
        if (stype == NB_S_F16_MIN)
            memcpy(&z, zero + 8 * block, 8);
        else
            memcpy(&z.x, zero + 4 * block, 4);
        const float2 f = k_scale(s, z, (int)(in / 16), stype);
        return __fadd_rn(__fmul_rn(f.x, (float)((int)q - (int)k_zero(T, stype >= NB_S_K16))), f.y);
    }
    const int z = zero ? zero[4 * block + in / 32] : T == NB_W_INT4 ? 8 : 128;
    return (float)((int)q - z) * (group ? group_scale(s, (int)(in / 32), stype == NB_S_F16) : 1.0f);
}
} // namespace codes

#endif
