/* mla_few_ptx.cuh - instructions of compute capability 9.0a that mla_few.cuh uses: warpgroup products with 16
 * or 32 columns, tensor copies, barriers in shared memory. */
#ifndef NB_KERNEL_CUDA_SM90_MLA_FEW_PTX_CUH
#define NB_KERNEL_CUDA_SM90_MLA_FEW_PTX_CUH
#include <cuda.h>

#include "kernel/cuda/common/ptx.cuh"

namespace few
{

__device__ inline void mbar_init(uint32_t bar, uint32_t n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(n));
}
__device__ inline void mbar_expect(uint32_t bar, uint32_t n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n_bytes)
                 : "memory");
}
__device__ inline void mbar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ inline void mbar_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nW:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra W;\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
/* Whether that phase is over. */
__device__ inline bool mbar_test(uint32_t bar, uint32_t parity)
{
    uint32_t y;
    asm volatile("{\n.reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(y)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return y != 0;
}
/* A box of a tensor, at (x, y, z), to shared memory. */
__device__ inline void copy_box(uint32_t dst, const CUtensorMap *map, int x, int y, int z,
                                uint32_t bar)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(dst),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar)
                 : "memory");
}
__device__ inline void copy_bytes(uint32_t dst, const void *src, uint32_t n_bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(n_bytes), "r"(bar)
                 : "memory");
}
__device__ inline void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void bar_sync(int id, int n)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}
/* bar_sync; whether any of the n threads gave true. */
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

/* A cluster of two blocks: which this is; barriers of all their threads that have not ended; an address in
 * the other's shared memory, and a copy to there. */
__device__ inline uint32_t pair_rank()
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
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
    uint32_t to;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(addr), "r"(pair_rank() ^ 1));
    return to;
}
__device__ inline void copy_shared(uint32_t dst, uint32_t src, uint32_t n_bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(dst),
                 "r"(src), "r"(n_bytes), "r"(bar)
                 : "memory");
}

__device__ inline void wg_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wg_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> __device__ inline void wg_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* Keeps the compiler from moving reads of accumulators over a wait. */
template <int N> __device__ inline void wg_hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* Operands in shared memory.  Layouts 1, 2, 3: rows of 128, 64, 32 bytes, swizzled. */
struct operand {
    uint32_t lo, hi;
    /* n * 16 bytes on */
    __device__ inline uint64_t at(uint32_t n) const
    {
        uint64_t d;
        asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(lo + n), "r"(hi));
        return d;
    }
};
/* In a loop: nothing that follows from it is computed before the loop, where it would need registers. */
__device__ inline operand smem_operand(uint32_t addr, uint32_t sbo, uint32_t swizzle)
{
    operand x = { (addr & 0x3ffff) >> 4 | 1u << 16, sbo >> 4 | swizzle << 30 };
    asm volatile("" : "+r"(x.lo));
    return x;
}

#define FEW_D8(d)                                                                                  \
    "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), "+f"((d)[5]),            \
        "+f"((d)[6]), "+f"((d)[7])
#define FEW_D16(d)                                                                                 \
    FEW_D8(d), "+f"((d)[8]), "+f"((d)[9]), "+f"((d)[10]), "+f"((d)[11]), "+f"((d)[12]),            \
        "+f"((d)[13]), "+f"((d)[14]), "+f"((d)[15])
#define FEW_L8 "{%0,%1,%2,%3,%4,%5,%6,%7}, "
#define FEW_L16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "

/* d [64 tokens][N] (+)= A (registers, fp16) B (K-major); ADD 0: the old d counts as 0. */
template <int ADD>
__device__ inline void wg_rs(float (&d)[8], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                             uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 " FEW_L8
                 "{%8,%9,%10,%11}, %12, %13, 1, 1, 0;"
                 : FEW_D8(d)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(ADD));
}
template <int ADD>
__device__ inline void wg_rs(float (&d)[16], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                             uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 " FEW_L16
                 "{%16,%17,%18,%19}, %20, %21, 1, 1, 0;"
                 : FEW_D16(d)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(ADD));
}
/* d [64 tokens][N] (+)= A B, BF16, both K-major in shared memory. */
template <int ADD> __device__ inline void wg_kk(float (&d)[8], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 " FEW_L8
                 "%8, %9, %10, 1, 1, 0, 0;"
                 : FEW_D8(d)
                 : "l"(a), "l"(b), "n"(ADD));
}
template <int ADD> __device__ inline void wg_kk(float (&d)[16], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " FEW_L16
                 "%16, %17, %18, 1, 1, 0, 0;"
                 : FEW_D16(d)
                 : "l"(a), "l"(b), "n"(ADD));
}
/* d [64 dims][N] += A B, M-major and N-major in shared memory. */
template <bool BF16> __device__ inline void wg_mn(float (&d)[8], uint64_t a, uint64_t b)
{
    if constexpr (BF16)
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 " FEW_L8
                     "%8, %9, 1, 1, 1, 1, 1;"
                     : FEW_D8(d)
                     : "l"(a), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 " FEW_L8
                     "%8, %9, 1, 1, 1, 1, 1;"
                     : FEW_D8(d)
                     : "l"(a), "l"(b));
}
template <bool BF16> __device__ inline void wg_mn(float (&d)[16], uint64_t a, uint64_t b)
{
    if constexpr (BF16)
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " FEW_L16
                     "%16, %17, 1, 1, 1, 1, 1;"
                     : FEW_D16(d)
                     : "l"(a), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 " FEW_L16
                     "%16, %17, 1, 1, 1, 1, 1;"
                     : FEW_D16(d)
                     : "l"(a), "l"(b));
}

/* The A operand of a product, 16 rows x 16, as rows of 16 bytes; a lane has the address of one: rows 0..15
 * of the first 8 columns, then of the others. */
__device__ inline void store_16x16(uint32_t to, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a0),
                 "r"(a1), "r"(a2), "r"(a3)
                 : "memory");
}
/* Two E4M3 bytes as FP16. */
__device__ inline uint32_t cvt_e4m3(uint32_t two)
{
    uint32_t h;
    const unsigned short v = (unsigned short)two;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(v));
    return h;
}
__device__ inline uint32_t mul_f16x2(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

} // namespace few

#endif
