/* wgmma.cuh - the sm_90a instructions that every kernel of this folder uses: mbarriers, bulk and tensor copies,
 * clusters, fences and waits of wgmma, registers per role, conversions.  Addresses of shared memory are numbers
 * (nb_smem). */
#ifndef NB_KERNEL_CUDA_SM90_WGMMA_CUH
#define NB_KERNEL_CUDA_SM90_WGMMA_CUH
#include "kernel/cuda/common/ptx.cuh"

/* ---- barriers in shared memory ---- */

__device__ inline void nb_mbar_init(uint32_t bar, uint32_t n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(n) : "memory");
}
__device__ inline void nb_mbar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
/* Arrives; the phase then ends only after n_bytes more have been copied. */
__device__ inline void nb_mbar_expect(uint32_t bar, uint32_t n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n_bytes)
                 : "memory");
}
/* Waits until the phase of that parity has completed. */
__device__ inline void nb_mbar_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nW:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra W;\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
/* Bulk copy from device memory to shared memory; `bar` counts its bytes. */
__device__ inline void nb_bulk_copy(uint32_t dst, const void *src, uint32_t n_bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(n_bytes), "r"(bar)
                 : "memory");
}
/* Tensor copy (TMA): the same for a box of a tensor at (x, y, z). */
__device__ inline void nb_box_copy(uint32_t dst, const void *map, int x, int y, int z, uint32_t bar)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(dst),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar)
                 : "memory");
}
/* The rank of this block in its cluster. */
__device__ inline uint32_t nb_cluster_rank()
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
/* Address of the same place in the shared memory of block `rank` of the cluster. */
__device__ inline uint32_t nb_cluster_at(uint32_t addr, uint32_t rank)
{
    uint32_t to;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(addr), "r"(rank));
    return to;
}
/* Barrier for all threads of the cluster's blocks; after it, what they wrote to shared memory can be read. */
__device__ inline void nb_cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* ---- wgmma ---- */

/* Makes this thread's completed writes to shared memory visible to wgmma and bulk copies (the async proxy). */
__device__ inline void nb_fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void nb_wg_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void nb_wg_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> __device__ inline void nb_wg_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* Keeps the compiler from moving reads of accumulators across a wait, or their computation across a fence. */
template <int N> __device__ inline void nb_wg_hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
/* Accumulators of 8, 16, 32, 64 and 128 registers: NB_WG_n names them in the instruction, NB_WG_ACC_n lists the
 * operands. */
#define NB_WG_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define NB_WG_16 NB_WG_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define NB_WG_32 NB_WG_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NB_WG_64                                                                                   \
    NB_WG_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                   \
             "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NB_WG_128                                                                                  \
    NB_WG_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                   \
             "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"                    \
             "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"        \
             "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define NB_WG_ACC_8(d, i)                                                                          \
    "+f"((d)[i]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3]), "+f"((d)[(i) + 4]),  \
        "+f"((d)[(i) + 5]), "+f"((d)[(i) + 6]), "+f"((d)[(i) + 7])
#define NB_WG_ACC_16(d) NB_WG_ACC_8(d, 0), NB_WG_ACC_8(d, 8)
#define NB_WG_ACC_32(d) NB_WG_ACC_16(d), NB_WG_ACC_8(d, 16), NB_WG_ACC_8(d, 24)
#define NB_WG_ACC_64(d)                                                                            \
    NB_WG_ACC_32(d), NB_WG_ACC_8(d, 32), NB_WG_ACC_8(d, 40), NB_WG_ACC_8(d, 48), NB_WG_ACC_8(d, 56)
#define NB_WG_ACC_128(d)                                                                           \
    NB_WG_ACC_64(d), NB_WG_ACC_8(d, 64), NB_WG_ACC_8(d, 72), NB_WG_ACC_8(d, 80),                   \
        NB_WG_ACC_8(d, 88), NB_WG_ACC_8(d, 96), NB_WG_ACC_8(d, 104), NB_WG_ACC_8(d, 112),          \
        NB_WG_ACC_8(d, 120)

/* Sets the registers per thread of a warpgroup, by its role. */
template <int N> __device__ inline void nb_more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ inline void nb_fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- FP16 ---- */

/* Stores four 8x8 matrices of 16-bit values to shared memory.  Lane i gives the address of row i % 8 of matrix
 * i / 8. */
__device__ inline void nb_stmatrix4(uint32_t to, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a0),
                 "r"(a1), "r"(a2), "r"(a3)
                 : "memory");
}
/* Converts E4M3 to an FP16 pair: nb_cvt_e4m3 the first two bytes, nb_cvt_e4m3_hi the other two.  The latter names the
 * register's upper half as the operand; a shift by 16 would cost an instruction. */
__device__ inline uint32_t nb_cvt_e4m3(uint32_t four)
{
    uint32_t h;
    const uint16_t v = (uint16_t)four;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(v));
    return h;
}
__device__ inline uint32_t nb_cvt_e4m3_hi(uint32_t four)
{
    uint32_t h;
    asm("{\n.reg .b16 lo, hi;\nmov.b32 {lo, hi}, %1;\ncvt.rn.f16x2.e4m3x2 %0, hi;\n}"
        : "=r"(h)
        : "r"(four));
    return h;
}
__device__ inline uint32_t nb_mul_f16x2(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

#endif
