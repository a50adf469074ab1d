/* prefill_wgmma.cuh - the wgmma products of prefill_wgmma.cu: BF16 operands, float sums, one warpgroup.
 *
 * c [64][8 N] (+)= a b.  add 0: c's old value is not read.
 *   a  registers (fragments of mma.m16n8k16, a warp per 16 rows), or shared memory, K-major
 *   b  shared memory: K-major for keys, N-major for values
 * Operands in shared memory have rows of 128 bytes with the 128-byte swizzle: 16-byte piece p of row r is at p ^ r % 8.
 * Eight rows are 1,024 bytes, and aligned to that. */
#ifndef NB_KERNEL_CUDA_SM90_PREFILL_WGMMA_CUH
#define NB_KERNEL_CUDA_SM90_PREFILL_WGMMA_CUH
#include "kernel/cuda/sm90/wgmma.cuh"

namespace
{
/* wgmma descriptor.  lbo: bytes between blocks of 64 columns (N-major); eight rows are 1,024 bytes. */
__device__ inline uint64_t wg_desc(uint32_t smem, uint32_t lbo)
{
    return (uint64_t)(smem >> 4 & 0x3fff) | (uint64_t)(lbo >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* Pins registers that a product reads or writes: their computation stays before this line, their use after it.  Needed
 * before nb_wg_fence and after nb_wg_wait, since these name no registers. */
template <int N> __device__ inline void hold(float (&x)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(x[i][0]), "+f"(x[i][1]), "+f"(x[i][2]), "+f"(x[i][3])::"memory");
}
template <int N> __device__ inline void hold(uint32_t (&x)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(x[i][0]), "+r"(x[i][1]), "+r"(x[i][2]), "+r"(x[i][3])::"memory");
}

/* ---- barriers ---- */

/* Synchronises the barrier's warpgroup; true if x is true in any of its threads. */
__device__ inline bool group_any(uint32_t barrier, bool x)
{
    uint32_t y;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %1, 0;\nbar.red.or.pred q, %2, 128, p;\n"
                 "selp.b32 %0, 1, 0, q;\n}"
                 : "=r"(y)
                 : "r"((uint32_t)x), "r"(barrier)
                 : "memory");
    return y;
}

/* ---- products ---- */

// clang-format off
__device__ inline void wg_keys(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{" NB_WG_32 "}, "
                 "{%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
                 : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
                   "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
                   "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
                   "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
                   "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
                   "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
                   "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
                   "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
__device__ inline void wg_keys(float (&c)[8][4], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{" NB_WG_32 "}, "
                 "%32, %33, p, 1, 1, 0, 0;\n}"
                 : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
                   "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
                   "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
                   "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
                   "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
                   "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
                   "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
                   "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
                 : "l"(a), "l"(b), "r"(add));
}
/* Values: 64 or 128 columns, from column 8 FROM on. */
template <int FROM, int NV>
__device__ inline void wg_values64(float (&c)[NV][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{" NB_WG_32 "}, "
                 "{%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}"
                 : "+f"(c[FROM + 0][0]), "+f"(c[FROM + 0][1]), "+f"(c[FROM + 0][2]), "+f"(c[FROM + 0][3]),
                   "+f"(c[FROM + 1][0]), "+f"(c[FROM + 1][1]), "+f"(c[FROM + 1][2]), "+f"(c[FROM + 1][3]),
                   "+f"(c[FROM + 2][0]), "+f"(c[FROM + 2][1]), "+f"(c[FROM + 2][2]), "+f"(c[FROM + 2][3]),
                   "+f"(c[FROM + 3][0]), "+f"(c[FROM + 3][1]), "+f"(c[FROM + 3][2]), "+f"(c[FROM + 3][3]),
                   "+f"(c[FROM + 4][0]), "+f"(c[FROM + 4][1]), "+f"(c[FROM + 4][2]), "+f"(c[FROM + 4][3]),
                   "+f"(c[FROM + 5][0]), "+f"(c[FROM + 5][1]), "+f"(c[FROM + 5][2]), "+f"(c[FROM + 5][3]),
                   "+f"(c[FROM + 6][0]), "+f"(c[FROM + 6][1]), "+f"(c[FROM + 6][2]), "+f"(c[FROM + 6][3]),
                   "+f"(c[FROM + 7][0]), "+f"(c[FROM + 7][1]), "+f"(c[FROM + 7][2]), "+f"(c[FROM + 7][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <int FROM, int NV>
__device__ inline void wg_values128(float (&c)[NV][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{" NB_WG_64 "}, "
                 "{%64,%65,%66,%67}, %68, p, 1, 1, 1;\n}"
                 : "+f"(c[FROM + 0][0]), "+f"(c[FROM + 0][1]), "+f"(c[FROM + 0][2]), "+f"(c[FROM + 0][3]),
                   "+f"(c[FROM + 1][0]), "+f"(c[FROM + 1][1]), "+f"(c[FROM + 1][2]), "+f"(c[FROM + 1][3]),
                   "+f"(c[FROM + 2][0]), "+f"(c[FROM + 2][1]), "+f"(c[FROM + 2][2]), "+f"(c[FROM + 2][3]),
                   "+f"(c[FROM + 3][0]), "+f"(c[FROM + 3][1]), "+f"(c[FROM + 3][2]), "+f"(c[FROM + 3][3]),
                   "+f"(c[FROM + 4][0]), "+f"(c[FROM + 4][1]), "+f"(c[FROM + 4][2]), "+f"(c[FROM + 4][3]),
                   "+f"(c[FROM + 5][0]), "+f"(c[FROM + 5][1]), "+f"(c[FROM + 5][2]), "+f"(c[FROM + 5][3]),
                   "+f"(c[FROM + 6][0]), "+f"(c[FROM + 6][1]), "+f"(c[FROM + 6][2]), "+f"(c[FROM + 6][3]),
                   "+f"(c[FROM + 7][0]), "+f"(c[FROM + 7][1]), "+f"(c[FROM + 7][2]), "+f"(c[FROM + 7][3]),
                   "+f"(c[FROM + 8][0]), "+f"(c[FROM + 8][1]), "+f"(c[FROM + 8][2]), "+f"(c[FROM + 8][3]),
                   "+f"(c[FROM + 9][0]), "+f"(c[FROM + 9][1]), "+f"(c[FROM + 9][2]), "+f"(c[FROM + 9][3]),
                   "+f"(c[FROM + 10][0]), "+f"(c[FROM + 10][1]), "+f"(c[FROM + 10][2]), "+f"(c[FROM + 10][3]),
                   "+f"(c[FROM + 11][0]), "+f"(c[FROM + 11][1]), "+f"(c[FROM + 11][2]), "+f"(c[FROM + 11][3]),
                   "+f"(c[FROM + 12][0]), "+f"(c[FROM + 12][1]), "+f"(c[FROM + 12][2]), "+f"(c[FROM + 12][3]),
                   "+f"(c[FROM + 13][0]), "+f"(c[FROM + 13][1]), "+f"(c[FROM + 13][2]), "+f"(c[FROM + 13][3]),
                   "+f"(c[FROM + 14][0]), "+f"(c[FROM + 14][1]), "+f"(c[FROM + 14][2]), "+f"(c[FROM + 14][3]),
                   "+f"(c[FROM + 15][0]), "+f"(c[FROM + 15][1]), "+f"(c[FROM + 15][2]), "+f"(c[FROM + 15][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
// clang-format on
} // namespace

#endif
