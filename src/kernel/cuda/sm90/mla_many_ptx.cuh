/* mla_many_ptx.cuh - the instructions of sm_90a that mla_many.cu uses.
 *
 * Operands of wgmma in shared memory lie in chunks of 64 rows of 128 bytes with the 128-byte swizzle
 * (16-byte piece p of row r is at p ^ r % 8), chunks aligned to 1024: K-major for scores (row: a query
 * or a token; columns: dims), MN-major for values (row: a token, which is k; columns: dims). */
#ifndef NB_KERNEL_CUDA_SM90_MLA_MANY_PTX_CUH
#define NB_KERNEL_CUDA_SM90_MLA_MANY_PTX_CUH
#include "kernel/cuda/common/ptx.cuh"

namespace
{

__device__ inline uint64_t wg_desc(uint32_t addr)
{
    return (uint64_t)((addr & 0x3ffff) >> 4) | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}
/* The same for several chunks of 64 columns, 8,192 bytes apart (MN-major). */
__device__ inline uint64_t wg_desc_wide(uint32_t addr)
{
    return wg_desc(addr) | (uint64_t)(8192 >> 4) << 16;
}
/* The same value, which the compiler does not take for an invariant of a loop: what is derived from it
 * is computed where it is used, not kept in registers that there are not. */
__device__ inline uint32_t here(uint32_t x)
{
    uint32_t y;
    asm volatile("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
    return y;
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

#define WG_D                                                                                       \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
    "%25,%26,%27,%28,%29,%30,%31}"
#define WG_OUT(d)                                                                                  \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),            \
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),    \
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])

/* d [64 x 64] (+)= A B^T, both K-major in shared memory; add 0: d is overwritten. */
template <bool BF> __device__ inline void wg_scores(float (&d)[32], uint64_t a, uint64_t b, int add)
{
    if (BF)
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WG_D
                     ", %32, %33, p, 1, 1, 0, 0;}"
                     : WG_OUT(d)
                     : "l"(a), "l"(b), "r"(add));
    else
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " WG_D
                     ", %32, %33, p, 1, 1, 0, 0;}"
                     : WG_OUT(d)
                     : "l"(a), "l"(b), "r"(add));
}
#define WG_D256                                                                                    \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"      \
    "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,"         \
    "%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,"         \
    "%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,"         \
    "%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,"      \
    "%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,"        \
    "%124,%125,%126,%127}"
#define WG_OUT8(d, i)                                                                              \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define WG_OUT32(d, i) WG_OUT8(d, i), WG_OUT8(d, i + 8), WG_OUT8(d, i + 16), WG_OUT8(d, i + 24)
/* d [64 x 256] (+)= A B in shared memory, A K-major, B MN-major (wg_desc_wide). */
template <bool BF>
__device__ inline void wg_values(float (&d)[128], uint64_t a, uint64_t b, int add)
{
    if (BF)
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 " WG_D256
                     ", %128, %129, p, 1, 1, 0, 1;}"
                     : WG_OUT32(d, 0), WG_OUT32(d, 32), WG_OUT32(d, 64), WG_OUT32(d, 96)
                     : "l"(a), "l"(b), "r"(add));
    else
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 " WG_D256
                     ", %128, %129, p, 1, 1, 0, 1;}"
                     : WG_OUT32(d, 0), WG_OUT32(d, 32), WG_OUT32(d, 64), WG_OUT32(d, 96)
                     : "l"(a), "l"(b), "r"(add));
}
/* Four 8x8 matrices of 16-bit values to shared memory; lane i gives the address of row i % 8 of i / 8. */
__device__ inline void st_matrix(uint32_t to, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a0),
                 "r"(a1), "r"(a2), "r"(a3)
                 : "memory");
}

__device__ inline void mb_init(uint32_t bar, uint32_t n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(n) : "memory");
}
__device__ inline void mb_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ inline void mb_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
__device__ inline void mb_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nW:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra W;\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
/* ---- clusters of two blocks ---- */

__device__ inline uint32_t cluster_rank()
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
/* What to add to an address of shared memory for the same place in the other block. */
__device__ inline uint32_t peer_delta(uint32_t base)
{
    uint32_t to;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(base), "r"(cluster_rank() ^ 1));
    return to - base;
}
__device__ inline void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ inline void mb_arrive_peer(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}
template <int CL> __device__ inline void mb_arrive_cl(uint32_t bar, uint32_t delta)
{
    if (CL == 1) {
        mb_arrive(bar);
        return;
    }
    mb_arrive_peer(bar + delta);
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
/* To the same place in both blocks. */
__device__ inline void tensor_load_both(uint32_t dst, const void *map, uint32_t dim, uint32_t page,
                                        uint32_t bar)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(dst),
                 "l"(map), "r"(dim), "r"(0), "r"(page), "r"(bar), "h"((uint16_t)3)
                 : "memory");
}

/* Bytes from device memory to shared memory, counted by a barrier. */
__device__ inline void bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar)
                 : "memory");
}
__device__ inline void tensor_load(uint32_t dst, const void *map, uint32_t dim, uint32_t page,
                                   uint32_t bar)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(dst),
                 "l"(map), "r"(dim), "r"(0), "r"(page), "r"(bar)
                 : "memory");
}
__device__ inline void l2_prefetch(const void *p, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}
/* What was written to shared memory is seen by wgmma. */
__device__ inline void proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
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
/* Loads of pages: read once by this block, not kept in L1. */
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
__device__ inline uint32_t mul2(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
__device__ inline uint32_t sub2(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
/* Two E4M3 bytes as FP16. */
__device__ inline uint32_t cvt2(uint32_t b)
{
    uint32_t h;
    const uint16_t v = (uint16_t)b;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(v));
    return h;
}

} // namespace

#endif
