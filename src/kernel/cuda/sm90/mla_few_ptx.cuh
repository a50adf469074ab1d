/* mla_few_ptx.cuh - the sm_90a instructions of mla_few.cuh: wgmma with 16 or 32 columns, copies and barriers between
 * the two blocks of a cluster. */
#ifndef NB_KERNEL_CUDA_SM90_MLA_FEW_PTX_CUH
#define NB_KERNEL_CUDA_SM90_MLA_FEW_PTX_CUH
#include <cuda.h>

#include "kernel/cuda/sm90/wgmma.cuh"

namespace few
{

/* nb_bar_sync; true if x is true in any of the n threads. */
__device__ inline bool bar_any(int id, int n, bool x)
{
    uint32_t y;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.u32 p, %3, 0;\n"
                 "bar.red.or.pred q, %1, %2, p;\nselp.u32 %0, 1, 0, q;\n}"
                 : "=r"(y)
                 : "r"(id), "r"(n), "r"((uint32_t)x)
                 : "memory");
    return y != 0;
}

__device__ inline void pair_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void pair_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline uint32_t pair_other(uint32_t addr)
{
    return nb_cluster_at(addr, nb_cluster_rank() ^ 1);
}
__device__ inline void copy_shared(uint32_t dst, uint32_t src, uint32_t n_bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(dst),
                 "r"(src), "r"(n_bytes), "r"(bar)
                 : "memory");
}

/* wgmma descriptor of an operand in shared memory.  Swizzle 1, 2, 3: rows of 128, 64, 32 bytes. */
struct operand {
    uint32_t lo, hi;
    /* the descriptor, n * 16 bytes further on */
    __device__ inline uint64_t at(uint32_t n) const
    {
        uint64_t d;
        asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(lo + n), "r"(hi));
        return d;
    }
};
/* The asm keeps the compiler from hoisting what follows from it out of a loop, which would cost registers. */
__device__ inline operand smem_operand(uint32_t addr, uint32_t sbo, uint32_t swizzle)
{
    operand x = { (addr & 0x3ffff) >> 4 | 1u << 16, sbo >> 4 | swizzle << 30 };
    asm volatile("" : "+r"(x.lo));
    return x;
}

/* d [64 tokens][N] (+)= A B: A in registers (FP16), B in shared memory, K-major.  ADD 0: d is overwritten. */
template <int ADD>
__device__ inline void wg_rs(float (&d)[8], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                             uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{" NB_WG_8 "}, "
                 "{%8,%9,%10,%11}, %12, %13, 1, 1, 0;"
                 : NB_WG_ACC_8(d, 0)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(ADD));
}
template <int ADD>
__device__ inline void wg_rs(float (&d)[16], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                             uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{" NB_WG_16 "}, "
                 "{%16,%17,%18,%19}, %20, %21, 1, 1, 0;"
                 : NB_WG_ACC_16(d)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(ADD));
}
/* d [64 tokens][N] (+)= A B, BF16, both K-major in shared memory. */
template <int ADD> __device__ inline void wg_kk(float (&d)[8], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
                 "{" NB_WG_8 "}, "
                 "%8, %9, %10, 1, 1, 0, 0;"
                 : NB_WG_ACC_8(d, 0)
                 : "l"(a), "l"(b), "n"(ADD));
}
template <int ADD> __device__ inline void wg_kk(float (&d)[16], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{" NB_WG_16 "}, "
                 "%16, %17, %18, 1, 1, 0, 0;"
                 : NB_WG_ACC_16(d)
                 : "l"(a), "l"(b), "n"(ADD));
}
/* d [64 dims][N] += A B, M-major and N-major in shared memory. */
template <bool BF16> __device__ inline void wg_mn(float (&d)[8], uint64_t a, uint64_t b)
{
    if constexpr (BF16)
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
                     "{" NB_WG_8 "}, "
                     "%8, %9, 1, 1, 1, 1, 1;"
                     : NB_WG_ACC_8(d, 0)
                     : "l"(a), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                     "{" NB_WG_8 "}, "
                     "%8, %9, 1, 1, 1, 1, 1;"
                     : NB_WG_ACC_8(d, 0)
                     : "l"(a), "l"(b));
}
template <bool BF16> __device__ inline void wg_mn(float (&d)[16], uint64_t a, uint64_t b)
{
    if constexpr (BF16)
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                     "{" NB_WG_16 "}, "
                     "%16, %17, 1, 1, 1, 1, 1;"
                     : NB_WG_ACC_16(d)
                     : "l"(a), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                     "{" NB_WG_16 "}, "
                     "%16, %17, 1, 1, 1, 1, 1;"
                     : NB_WG_ACC_16(d)
                     : "l"(a), "l"(b));
}

} // namespace few

#endif
