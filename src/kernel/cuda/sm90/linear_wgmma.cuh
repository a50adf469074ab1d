/* linear_wgmma.cuh - the sm_90a instructions of products with widened weights, and their entry points for linear_wgmma.cu. */
#ifndef NB_KERNEL_CUDA_SM90_LINEAR_WGMMA_CUH
#define NB_KERNEL_CUDA_SM90_LINEAR_WGMMA_CUH
#include "kernel/cuda/sm80/linear_mma.cuh"
#include "kernel/cuda/sm90/wgmma.cuh"

/* Products with FP8 and with tiled weights.  n: tokens per batch or expert. */
typedef void nb_lin_wgmma_fn(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t n);
nb_lin_wgmma_fn nb_lin_wgmma_fp8, nb_lin_wgmma_int4, nb_lin_wgmma_byte, nb_lin_wgmma_fp4,
    nb_lin_wgmma_int4_k32, nb_lin_wgmma_int4_k16, nb_lin_wgmma_byte_k32, nb_lin_wgmma_byte_k16;

namespace lin
{

/* Arrives at the barrier when all cp.async that this thread has issued so far have landed. */
__device__ inline void mbar_arrive_loaded(uint32_t bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
/* n 0: writes zeros and does not read src. */
__device__ inline void cp_async16(uint32_t dst, const void *src, uint32_t n)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(n)
                 : "memory");
}
__device__ inline void cp_async4(uint32_t dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst), "l"(src) : "memory");
}
__device__ inline uint32_t load_u16(uint32_t at)
{
    uint16_t x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at) : "memory");
    return x;
}
__device__ inline uint32_t mul_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
/* wgmma descriptor: rows of 128 bytes in groups of 8, 128-byte swizzle.  descriptor_low gives its low half, to which an
 * offset in units of 16 bytes may be added; descriptor makes the whole. */
__device__ inline uint32_t descriptor_low(uint32_t at)
{
    return (at & 0x3ffff) >> 4 | 1u << 16;
}
__device__ inline uint64_t descriptor(uint32_t low)
{
    uint64_t d;
    asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(low), "r"(1024u >> 4 | 1u << 30));
    return d;
}

/* d (+)= 64 rows of a, in registers, times N tokens of b, in shared memory, over 16 columns. */
template <int N>
__device__ void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int add);
template <>
__device__ inline void wgmma<128>(float (&d)[64], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NB_WG_64 "}, "
                 "{%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}"
                 : NB_WG_ACC_64(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <>
__device__ inline void wgmma<64>(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NB_WG_32 "}, "
                 "{%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
                 : NB_WG_ACC_32(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <>
__device__ inline void wgmma<32>(float (&d)[16], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" NB_WG_16 "}, "
                 "{%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}"
                 : NB_WG_ACC_16(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

} // namespace lin

#endif
