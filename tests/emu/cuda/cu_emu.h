/* cu_emu.h - CUDA on the processor: what lets a C++ compiler run the kernels of sm80/.
 *
 * A launch runs its blocks one after the other.  Each thread of a block is a fiber; it runs until it
 * waits (__syncthreads, __syncwarp, a shuffle, ...) or ends.  From launch to launch the order of blocks,
 * warps and lanes changes, so that results that depend on an order differ.  Checked, and reported as
 * the sticky error of the device with kernel and block:
 *   - threads that wait for ones that have ended, or that wait at different places
 *   - a shuffle that reads a lane which does not take part
 *   - bytes written behind dynamic shared memory (which holds NaN at the start of a block)
 *   - addresses that are not aligned in ldmatrix and cp.async; bytes that cp.async brings are seen
 *     after the wait only, as those that no wait has asked for need not be there
 *   - grids, blocks and shared memory that a device refuses
 * A kernel that waits for another device (nb_wait) starts again from its first block until what it waits for is there,
 * and other threads' kernels run meanwhile.
 * Not found: races between threads that the order of fibers hides, static __shared__ that is read before
 * it is written.  Not emulated: several streams at once (all work is in order), time.
 *
 * The functions of the runtime that nibble calls have their CUDA names and do what these do. */
#ifndef NB_TESTS_EMU_CUDA_CU_EMU_H
#define NB_TESTS_EMU_CUDA_CU_EMU_H
#include <tuple>
#include <utility>

#include "emu/cuda/cu_emu_half.h"
#include "emu/cuda/cu_emu_num.h"
#include "emu/cuda/cu_emu_rt.h"

/* ---- the language ---- */
#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))

struct nb_emu_thread {
    void *sp; /* NULL: not started */
    uint3 idx;
    unsigned lane;
};
extern nb_emu_thread *nb_emu_cur;
extern uint3 nb_emu_block_idx;
extern dim3 nb_emu_block_dim, nb_emu_grid_dim;
#define threadIdx (nb_emu_cur->idx)
#define blockIdx nb_emu_block_idx
#define blockDim nb_emu_block_dim
#define gridDim nb_emu_grid_dim
enum { warpSize = 32 };

/* ---- launches ---- */
struct nb_emu_call { /* a kernel with its arguments */
    const char *name;
    void (*run)(const nb_emu_call *c); /* one thread of it */
    void (*destroy)(nb_emu_call *c);
    dim3 grid, block;
    size_t shared_bytes;
};
template <class... P> struct nb_emu_call_of : nb_emu_call {
    void (*kernel)(P...);
    std::tuple<P...> args;
    nb_emu_call_of(void (*k)(P...), P... a) : kernel(k), args(a...)
    {
    }
};
/* Runs or records the call, which it takes over. */
void nb_emu_launch(struct nb_cuda *g, cudaStream_t s, nb_emu_call *c, const void *kernel);
/* Most dynamic shared memory of a kernel from now on. */
void nb_emu_shared_limit(struct nb_cuda *g, const char *name, const void *kernel, size_t n_bytes);
void *nb_emu_shared();

template <class... P, class... A>
void nb_emu_make(struct nb_cuda *g, cudaStream_t s, const char *name, dim3 grid, dim3 block,
                 size_t shared_bytes, void (*kernel)(P...), A &&...a)
{
    typedef nb_emu_call_of<P...> call;
    call *c = new call(kernel, static_cast<P>(std::forward<A>(a))...);
    c->name = name;
    c->run = [](const nb_emu_call *x) {
        std::apply(static_cast<const call *>(x)->kernel, static_cast<const call *>(x)->args);
    };
    c->destroy = [](nb_emu_call *x) { delete static_cast<call *>(x); };
    c->grid = grid;
    c->block = block;
    c->shared_bytes = shared_bytes;
    nb_emu_launch(g, s, c, reinterpret_cast<const void *>(kernel));
}
#define NB_LAUNCH(g, kernel, grid, block, shared, ...)                                             \
    nb_emu_make((g), (g)->stream, #kernel, dim3(grid), dim3(block), (shared), kernel, __VA_ARGS__)
#define NB_LAUNCH_EARLY NB_LAUNCH
#define NB_SHARED(type, name) type *name = static_cast<type *>(nb_emu_shared())
#define NB_SHARED_LIMIT(g, kernel, bytes)                                                          \
    nb_emu_shared_limit((g), #kernel, reinterpret_cast<const void *>(kernel), (size_t)(bytes))

/* ---- threads of a block ---- */
void __syncthreads();
void nb_bar_sync(uint32_t id, uint32_t n_thread);
int __syncthreads_or(int x);
int __syncthreads_and(int x);
int __syncthreads_count(int x);
/* Waits until all lanes of the mask are at the same fn; the last to come runs it once, with the lanes'
 * arguments. */
typedef void nb_emu_warp_fn(void *const *arg, unsigned mask);
void nb_emu_warp(unsigned mask, const char *what, nb_emu_warp_fn *fn, void *arg);
[[noreturn]] void nb_emu_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void nb_emu_nothing(void *const *arg, unsigned mask);
inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    nb_emu_warp(mask, "__syncwarp", nb_emu_nothing, nullptr);
}
inline void __threadfence()
{
}
inline void __threadfence_block()
{
}

enum nb_emu_shuffle_kind { NB_EMU_INDEX, NB_EMU_XOR, NB_EMU_UP, NB_EMU_DOWN };
struct nb_emu_shuffle {
    nb_emu_shuffle_kind kind;
    int by, width;
    uint64_t in, out;
};
void nb_emu_shuffle_fn(void *const *arg, unsigned mask);
template <class T>
inline T nb_emu_shuffled(unsigned mask, T x, int by, int width, nb_emu_shuffle_kind kind)
{
    static_assert(sizeof(T) <= 8, "at most 8 bytes");
    nb_emu_shuffle a = { kind, by, width, 0, 0 };
    memcpy(&a.in, &x, sizeof x);
    nb_emu_warp(mask, "a shuffle", nb_emu_shuffle_fn, &a);
    memcpy(&x, &a.out, sizeof x);
    return x;
}
template <class T> inline T __shfl_sync(unsigned m, T x, int lane, int width = 32)
{
    return nb_emu_shuffled(m, x, lane, width, NB_EMU_INDEX);
}
template <class T> inline T __shfl_xor_sync(unsigned m, T x, int by, int width = 32)
{
    return nb_emu_shuffled(m, x, by, width, NB_EMU_XOR);
}
template <class T> inline T __shfl_up_sync(unsigned m, T x, unsigned by, int width = 32)
{
    return nb_emu_shuffled(m, x, (int)by, width, NB_EMU_UP);
}
template <class T> inline T __shfl_down_sync(unsigned m, T x, unsigned by, int width = 32)
{
    return nb_emu_shuffled(m, x, (int)by, width, NB_EMU_DOWN);
}
unsigned __ballot_sync(unsigned mask, int x);
inline int __any_sync(unsigned mask, int x)
{
    return __ballot_sync(mask, x) != 0;
}
inline int __all_sync(unsigned mask, int x)
{
    return __ballot_sync(mask, x) == mask;
}
unsigned __match_any_sync(unsigned mask, unsigned x);
unsigned __reduce_add_sync(unsigned mask, unsigned x);
unsigned __reduce_max_sync(unsigned mask, unsigned x);
unsigned __reduce_min_sync(unsigned mask, unsigned x);

/* ---- atomics: one fiber runs at a time ---- */
#define NB_EMU_ATOMIC(name, t, expr)                                                               \
    inline t name(t *p, t v)                                                                       \
    {                                                                                              \
        const t old = *p;                                                                          \
        *p = (expr);                                                                               \
        return old;                                                                                \
    }
#define NB_EMU_ATOMICS(t)                                                                          \
    NB_EMU_ATOMIC(atomicAdd, t, old + v)                                                           \
    NB_EMU_ATOMIC(atomicMax, t, old < v ? v : old)                                                 \
    NB_EMU_ATOMIC(atomicMin, t, v < old ? v : old)                                                 \
    NB_EMU_ATOMIC(atomicOr, t, old | v)                                                            \
    NB_EMU_ATOMIC(atomicAnd, t, old &v)                                                            \
    NB_EMU_ATOMIC(atomicXor, t, old ^ v)                                                           \
    NB_EMU_ATOMIC(atomicExch, t, v)                                                                \
    inline t atomicCAS(t *p, t expected, t v)                                                      \
    {                                                                                              \
        const t old = *p;                                                                          \
        if (old == expected) *p = v;                                                               \
        return old;                                                                                \
    }
NB_EMU_ATOMICS(int)
NB_EMU_ATOMICS(unsigned)
NB_EMU_ATOMICS(unsigned long long)
NB_EMU_ATOMIC(atomicAdd, float, old + v)
NB_EMU_ATOMIC(atomicAdd, double, old + v)
NB_EMU_ATOMIC(atomicExch, float, v)
NB_EMU_ATOMIC(atomicSub, unsigned, old - v)
NB_EMU_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)

/* ---- the functions of ptx.cuh ---- */
uint32_t nb_smem(const void *p);
void nb_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void nb_mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void nb_ldmatrix4(uint32_t (&r)[4], const void *row);
void nb_ldmatrix4_trans(uint32_t (&r)[4], const void *row);
uint32_t nb_movmatrix(uint32_t x);
void nb_cp_async16(void *dst, const void *src, uint32_t n_bytes = 16);
void nb_cp_async_commit();
void nb_emu_cp_async_wait(int n);
template <int N> inline void nb_cp_async_wait()
{
    nb_emu_cp_async_wait(N);
}
inline uint4 nb_ldg_stream(const void *p)
{
    if ((uintptr_t)p % 16) nb_emu_fail("a load of 16 bytes from %p: not aligned", p);
    return *static_cast<const uint4 *>(p);
}
/* Ends the kernel; it starts again a moment later. */
[[noreturn]] void nb_emu_again();
/* Since its first start, in seconds. */
double nb_emu_waited_s();
struct nb_wait {};
inline bool nb_wait_more(nb_wait *, const volatile uint32_t *alarm)
{
    if (alarm[0] || nb_emu_waited_s() > alarm[1] * 1e-3) return false;
    nb_emu_again();
}
inline void nb_signal(uint64_t *p, uint64_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
inline uint64_t nb_signalled(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
template <class T> inline T nb_load_peer(const T *p)
{
    return *p;
}
inline void nb_grid_wait() {}
inline void nb_grid_next() {}
inline float nb_exp2(float x)
{
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}

#endif
