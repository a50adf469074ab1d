/* mla_common.cuh - shared by mla_mma.cu and mla_wgmma.cu: the page, the arguments, PTX wrappers. */
#pragma once
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        cudaError_t e_ = (x);                                                                      \
        if (e_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));            \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#ifndef UNIT
#define UNIT 16 // pages per unit
#endif
constexpr int H = 16, D = 512, R = 64, TOK = 64, PAGE = 22656;
constexpr int OFF_SCALE = 16384, OFF_ROPE = 18432, OFF_OUT = 22528, OFF_ROUT = 22592;

struct Args {
    const unsigned char *pool;  // pages
    const int *table;           // [n_req][max_page]
    const int *len;             // [n_req] tokens, whole pages
    const float *q;             // [n_req][H][D + R]
    const int *unit_req, *unit_page, *unit_out; // [n_unit]
    float *part_o, *part_m, *part_l;            // [n_unit][H][D], [n_unit][H] x2
    int max_page;
    float scale_log2;
};

__device__ inline uint32_t smem_u32(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
__device__ inline void mbar_init(uint32_t bar, int n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(n));
}
__device__ inline void mbar_expect(uint32_t bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes));
}
__device__ inline void mbar_wait(uint32_t bar, int parity)
{
    asm volatile("{\n.reg .pred p;\nW:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra W;\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
__device__ inline void bulk(uint32_t dst, const void *src, int bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar)
                 : "memory");
}
__device__ inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline uint32_t transpose(uint32_t x)
{
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
__device__ inline uint32_t mul2(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
// Eight codes to four pairs of fp16 times 2^-6: first to E4M3 bytes, then two at a time to fp16.
// Pairs (1,3) (5,7) come from the high nibbles, (0,2) (4,6) from the low ones.
__device__ inline uint32_t cvt2(uint32_t b)
{
    uint32_t h;
    const unsigned short v = (unsigned short)b;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(v));
    return h;
}
__device__ inline void eight(uint32_t q, uint32_t f, uint32_t *out)
{
    const uint32_t hi = (q & 0x80808080u) | ((q & 0x70707070u) >> 2);
    const uint32_t r = q << 4, lo = (r & 0x80808080u) | ((r & 0x70707070u) >> 2);
    out[0] = mul2(cvt2(hi), f);
    out[1] = mul2(cvt2(hi >> 16), f);
    out[2] = mul2(cvt2(lo), f);
    out[3] = mul2(cvt2(lo >> 16), f);
}
// Two E4M3 scales as fp16 times 2^6, each in both halves.
__device__ inline void scales(uint32_t two, uint32_t &s0, uint32_t &s1)
{
    uint32_t h;
    const unsigned short b = (unsigned short)two;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(b));
    h = mul2(h, 0x54005400u); // 2^6
    s0 = __byte_perm(h, 0, 0x1010);
    s1 = __byte_perm(h, 0, 0x3232);
}
__device__ inline float pow2(int e) // e in -126..127
{
    return __int_as_float((e + 127) << 23);
}
__device__ inline uint32_t pack(float a, float b)
{
    const __half2 h = __floats2half2_rn(a, b);
    return *(const uint32_t *)&h;
}

