/* ptx.cuh - wrappers for instructions that C++ lacks; the emulation defines the same names.
 *
 * Fragments are those of the PTX manual (mma.m16n8k16), with lane = 4 g + t:
 *   a[0] rows g, cols 2t,2t+1; a[1] rows g+8; a[2] cols +8; a[3] rows g+8, cols +8
 *   b[0] k = 2t,2t+1, column g; b[1] k + 8
 *   c[0],c[1] row g, columns 2t, 2t+1; c[2],c[3] row g+8 */
#ifndef NB_KERNEL_CUDA_COMMON_PTX_CUH
#define NB_KERNEL_CUDA_COMMON_PTX_CUH
#include "kernel/cuda/common/cu.cuh"

#if !NB_CUDA_EMULATED

__device__ inline uint32_t nb_smem(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* c += a b; each register has two operands. */
__device__ inline void nb_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* c = a b. */
__device__ inline void nb_mma_bf16_new(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%10,%10,%10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
__device__ inline void nb_mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Loads four 8x8 matrices of 16-bit values; lane i gives the address (shared memory, 16 bytes) of row i % 8 of matrix
 * i / 8. */
__device__ inline void nb_ldmatrix4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(nb_smem(row))
                 : "memory");
}
__device__ inline void nb_ldmatrix4_trans(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(nb_smem(row))
                 : "memory");
}
/* Transposes an 8x8 matrix of 16-bit values; each lane has two values of a row. */
__device__ inline uint32_t nb_movmatrix(uint32_t x)
{
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
/* Copies 16 bytes from device to shared memory without registers; n_bytes < 16: the rest becomes zero. */
__device__ inline void nb_cp_async16(void *dst, const void *src, uint32_t n_bytes = 16)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(nb_smem(dst)), "l"(src),
                 "r"(n_bytes)
                 : "memory");
}
__device__ inline void nb_cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most N groups are in flight. */
template <int N> __device__ inline void nb_cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
/* Loads 16 bytes of constant device memory that is read once; the compiler does not move these loads. */
__device__ inline uint4 nb_ldg_stream(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}
/* nb_grid_wait waits until the previous kernel has ended (NB_LAUNCH_EARLY); nb_grid_next lets the next one start. */
__device__ inline void nb_grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void nb_grid_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/* ---- other devices ---- */

/* What nb_wait_more knows; zero at first. */
struct nb_wait {
    uint64_t t0;
    uint32_t n;
};
/* False when waiting has taken alarm[1] milliseconds, or alarm[0] is set: memory of the host, looked at now and then. */
__device__ inline bool nb_wait_more(nb_wait *w, const volatile uint32_t *alarm)
{
    if (++w->n % 1024) return true;
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (!w->t0) w->t0 = now;
    return !alarm[0] && now - w->t0 < (uint64_t)alarm[1] * 1000000;
}
/* All that this thread knows to be written is there for who sees the word, on any device. */
__device__ inline void nb_signal(uint64_t *p, uint64_t v)
{
    __threadfence_system();
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ inline uint64_t nb_signalled(const uint64_t *p)
{
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
/* A load that no cache of this device answers with what was there before. */
template <class T> __device__ inline T nb_load_peer(const T *p)
{
    return __ldcv(p);
}

/* Barrier id (1..15) for n_thread threads, which are whole warps of the block. */
__device__ inline void nb_bar_sync(uint32_t id, uint32_t n_thread)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_thread) : "memory");
}
/* 2^x to 2 ulp; results below the smallest normal number are 0. */
__device__ inline float nb_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif /* !NB_CUDA_EMULATED */

#if NB_CUDA_EMULATED
__device__ inline void nb_mma_bf16_new(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    c[0] = c[1] = c[2] = c[3] = 0;
    nb_mma_bf16(c, a, b0, b1);
}
#endif

/* Two floats as BF16 or FP16, rounded to nearest even; the first in the low half. */
__device__ inline uint32_t nb_pack_bf16(float a, float b)
{
    const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
    uint32_t x;
    memcpy(&x, &h, sizeof x);
    return x;
}
__device__ inline uint32_t nb_pack_f16(float a, float b)
{
    const __half2 h = __floats2half2_rn(a, b);
    uint32_t x;
    memcpy(&x, &h, sizeof x);
    return x;
}
__device__ inline uint16_t nb_bf16_bits(float a)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(a));
}
__device__ inline float nb_bf16_float(uint16_t a)
{
    return __uint_as_float((uint32_t)a << 16);
}
/* Stores a value in each form that y asks for, at element i. */
__device__ inline void nb_put(const nb_cuda_rows &y, size_t i, float v)
{
    if (y.f) y.f[i] = v;
    if (!y.hi) return;
    const uint16_t hi = nb_bf16_bits(v);
    y.hi[i] = hi;
    if (y.lo) y.lo[i] = nb_bf16_bits(v - nb_bf16_float(hi));
}

#endif
