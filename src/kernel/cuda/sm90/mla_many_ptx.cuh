/* mla_many_ptx.cuh - the sm_90a instructions of mla_many.cu.
 *
 * wgmma operands lie in shared memory in chunks of 64 rows of 128 bytes, aligned to 1024, with the 128-byte swizzle:
 * 16-byte piece p of row r is at p ^ r % 8.
 *   scores  K-major: a row is a query or a token, columns are dims
 *   values  MN-major: a row is a token (the k index), columns are dims */
#ifndef NB_KERNEL_CUDA_SM90_MLA_MANY_PTX_CUH
#define NB_KERNEL_CUDA_SM90_MLA_MANY_PTX_CUH
#include "kernel/cuda/sm90/wgmma.cuh"

namespace
{

__device__ inline uint64_t wg_desc(uint32_t addr)
{
    return (uint64_t)((addr & 0x3ffff) >> 4) | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}
/* The same for several chunks of 64 columns that are 8,192 bytes apart (MN-major). */
__device__ inline uint64_t wg_desc_wide(uint32_t addr)
{
    return wg_desc(addr) | (uint64_t)(8192 >> 4) << 16;
}
/* The same value, hidden from the compiler's loop-invariant analysis.  What is derived from it is then computed where
 * it is used, and does not occupy registers, which are scarce. */
__device__ inline uint32_t here(uint32_t x)
{
    uint32_t y;
    asm volatile("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* d [64 x 64] (+)= A B^T, both K-major in shared memory; add 0: d is overwritten. */
template <bool BF> __device__ inline void wg_scores(float (&d)[32], uint64_t a, uint64_t b, int add)
{
    if (BF)
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NB_WG_32 "}"
                     ", %32, %33, p, 1, 1, 0, 0;}"
                     : NB_WG_ACC_32(d)
                     : "l"(a), "l"(b), "r"(add));
    else
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" NB_WG_32 "}"
                     ", %32, %33, p, 1, 1, 0, 0;}"
                     : NB_WG_ACC_32(d)
                     : "l"(a), "l"(b), "r"(add));
}
/* d [64 x 256] (+)= A B, both in shared memory: A K-major, B MN-major (wg_desc_wide). */
template <bool BF>
__device__ inline void wg_values(float (&d)[128], uint64_t a, uint64_t b, int add)
{
    if (BF)
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NB_WG_128 "}"
                     ", %128, %129, p, 1, 1, 0, 1;}"
                     : NB_WG_ACC_128(d)
                     : "l"(a), "l"(b), "r"(add));
    else
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" NB_WG_128 "}"
                     ", %128, %129, p, 1, 1, 0, 1;}"
                     : NB_WG_ACC_128(d)
                     : "l"(a), "l"(b), "r"(add));
}

/* ---- clusters of two blocks ---- */

/* Offset from an address in shared memory to the same place in the other block. */
__device__ inline uint32_t peer_delta(uint32_t base)
{
    return nb_cluster_at(base, nb_cluster_rank() ^ 1) - base;
}
__device__ inline void mb_arrive_peer(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}
template <int CL> __device__ inline void mb_arrive_cl(uint32_t bar, uint32_t delta)
{
    if (CL == 1) {
        nb_mbar_arrive(bar);
        return;
    }
    mb_arrive_peer(bar + delta);
    nb_mbar_arrive(bar);
}
/* Tensor copy, multicast to the same place in both blocks. */
__device__ inline void tensor_load_both(uint32_t dst, const void *map, uint32_t dim, uint32_t page,
                                        uint32_t bar)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(dst),
                 "l"(map), "r"(dim), "r"(0), "r"(page), "r"(bar), "h"((uint16_t)3)
                 : "memory");
}

__device__ inline void tensor_load(uint32_t dst, const void *map, uint32_t dim, uint32_t page,
                                   uint32_t bar)
{
    nb_box_copy(dst, map, (int)dim, 0, (int)page, bar);
}
__device__ inline void l2_prefetch(const void *p, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}
__device__ inline void st_shared(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}
__device__ inline uint4 ld_shared(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}
__device__ inline void st_float(uint32_t at, float x)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
}
__device__ inline void st_word(uint32_t at, uint32_t x)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}
__device__ inline uint32_t ld_word(uint32_t at)
{
    uint32_t x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}
__device__ inline float ld_float(uint32_t at)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
    return x;
}
/* Adds to four floats in memory and returns at once.  Additions of a thread to one address keep their order. */
__device__ inline void red_add4(float4 *to, const float4 &v)
{
    asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(v.x), "f"(v.y),
                 "f"(v.z), "f"(v.w)
                 : "memory");
}
/* Reads past L1, which does not see such additions. */
__device__ inline float4 ld_l2(const float4 *p)
{
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
/* Loads of a page.  This block reads each byte once, so they bypass L1. */
__device__ inline uint4 ld_page(const unsigned char *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
__device__ inline uint32_t ld_page2(const unsigned char *p)
{
    uint16_t v;
    asm volatile("ld.global.nc.L1::no_allocate.b16 %0, [%1];" : "=h"(v) : "l"(p));
    return v;
}
__device__ inline uint32_t ld_page1(const unsigned char *p)
{
    uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u8 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
__device__ inline uint32_t sub2(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

} // namespace

#endif
