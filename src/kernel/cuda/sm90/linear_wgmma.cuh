/* linear_wgmma.cuh - instructions of sm_90a that the products of prompts use, and what linear_wgmma.cu calls
 * for FP8 blocks. */
#ifndef NB_KERNEL_CUDA_SM90_LINEAR_WGMMA_CUH
#define NB_KERNEL_CUDA_SM90_LINEAR_WGMMA_CUH
#include "kernel/cuda/sm80/linear_mma.cuh"

/* Products with FP8 blocks.  n: tokens of a batch or expert. */
void nb_lin_wgmma_fp8(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t n);

namespace lin
{

__device__ inline void mbar_init(uint32_t bar, uint32_t n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(n) : "memory");
}
__device__ inline void mbar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
/* Arrives when what this thread has asked for by cp.async so far is there. */
__device__ inline void mbar_arrive_loaded(uint32_t bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
__device__ inline void mbar_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nW:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra W;\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
/* n 0: zeros, and src is not read. */
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
template <int N> __device__ inline void more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ inline void fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
/* What was written to shared memory and is known to be there can be read by wgmma. */
__device__ inline void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> __device__ inline void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* Keeps the compiler from moving reads of accumulators over a wait. */
template <int N> __device__ inline void hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
/* Rows of 128 bytes in groups of 8, swizzled: a descriptor's low half, to which 16-byte units may be added,
 * and the whole. */
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

/* Accumulators of 32, 64 and 128 columns: names in the instruction, operands. */
#define LIN_NAMES_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define LIN_NAMES_64 LIN_NAMES_32 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define LIN_NAMES_128                                                                              \
    LIN_NAMES_64 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"               \
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define LIN_ACC_8(d, i)                                                                            \
    "+f"((d)[i]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3]), "+f"((d)[(i) + 4]),  \
        "+f"((d)[(i) + 5]), "+f"((d)[(i) + 6]), "+f"((d)[(i) + 7])
#define LIN_ACC_32(d) LIN_ACC_8(d, 0), LIN_ACC_8(d, 8)
#define LIN_ACC_64(d) LIN_ACC_32(d), LIN_ACC_8(d, 16), LIN_ACC_8(d, 24)
#define LIN_ACC_128(d)                                                                             \
    LIN_ACC_64(d), LIN_ACC_8(d, 32), LIN_ACC_8(d, 40), LIN_ACC_8(d, 48), LIN_ACC_8(d, 56)

/* d (+)= 64 rows of a, in registers, times N tokens of b, 16 columns. */
template <int N>
__device__ void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int add);
template <>
__device__ inline void wgmma<128>(float (&d)[64], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" LIN_NAMES_128 "}, "
                 "{%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}"
                 : LIN_ACC_128(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <>
__device__ inline void wgmma<64>(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LIN_NAMES_64 "}, "
                 "{%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
                 : LIN_ACC_64(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <>
__device__ inline void wgmma<32>(float (&d)[16], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" LIN_NAMES_32 "}, "
                 "{%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}"
                 : LIN_ACC_32(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

} // namespace lin

#endif
