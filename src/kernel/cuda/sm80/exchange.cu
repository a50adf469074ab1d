/* exchange.cu - what ranks take from each other, in one kernel with one barrier of flags.
 *
 * Every block first says for the whole rank that it has come (all say the same, so any of them may be first), then waits
 * until the other ranks have, then copies a part of one take.  Takes are copied by different blocks, so that reads from
 * several ranks are under way at once; a load of another device's memory takes about a microsecond.
 * Nobody waits at the end: the next exchange is the proof that this one was over (nb_cuda_ops.h), so buffers that are
 * given must not be written before.
 * Reading beats writing here: the data goes straight to where it is used, not through a buffer of arrivals. */
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/ptx.cuh"

namespace
{
constexpr uint32_t THREADS = 256, EACH = 4; /* 16-byte loads of a thread before a take gets another block */

__device__ void note(nb_cuda_meeting *me, nb_cuda_failure what, uint32_t rank)
{
    atomicCAS(reinterpret_cast<unsigned long long *>(&me->failed), 0ull,
              (unsigned long long)what << 32 | rank);
}

/* Waits for rank k's exchange n. */
__device__ bool await(const nb_cuda_exchange_args &a, nb_cuda_meeting *me, uint32_t k, uint64_t n, uint32_t what)
{
    nb_wait w = {};
    uint64_t v;
    while ((v = nb_signalled(&me->arrived[k])) >> NB_CUDA_WHAT_BITS < n)
        if (!nb_wait_more(&w, a.alarm)) {
            note(me, a.alarm[0] ? NB_CUDA_ALARM : NB_CUDA_LOST, k);
            return false;
        }
    /* a rank that is further has compared what it read of this one */
    if (v >> NB_CUDA_WHAT_BITS != n || (uint32_t)(v & ((1u << NB_CUDA_WHAT_BITS) - 1)) == what) return true;
    note(me, NB_CUDA_OTHER, k);
    return false;
}

template <class T>
__device__ void copy(const nb_cuda_take &x, size_t row0, size_t n_row, uint32_t part, uint32_t n_part)
{
    const size_t per = x.row_bytes / sizeof(T), n = n_row * per, step = (size_t)n_part * THREADS;
    const char *from = static_cast<const char *>(x.from) + row0 * x.from_stride;
    char *to = static_cast<char *>(x.to) + row0 * x.to_stride;
#pragma unroll 4
    for (size_t i = (size_t)part * THREADS + threadIdx.x; i < n; i += step) {
        const size_t r = i / per, c = i % per * sizeof(T);
        *reinterpret_cast<T *>(to + r * x.to_stride + c) =
            nb_load_peer(reinterpret_cast<const T *>(from + r * x.from_stride + c));
    }
}

/* The rows of a list. */
template <class T> __device__ void copy_rows(const nb_cuda_take &x, uint32_t part, uint32_t n_part)
{
    const size_t per = x.row_bytes / sizeof(T), n = x.n_row * per, step = (size_t)n_part * THREADS;
    const uint32_t begin = *x.begin, end = *x.end;
#pragma unroll 4
    for (size_t i = (size_t)part * THREADS + threadIdx.x; i < n; i += step) {
        const size_t r = x.row[i / per], c = i % per * sizeof(T);
        if (r < begin || r >= end) continue;
        *reinterpret_cast<T *>(static_cast<char *>(x.to) + r * x.to_stride + c) = nb_load_peer(
            reinterpret_cast<const T *>(static_cast<const char *>(x.from) + r * x.from_stride + c));
    }
}

__device__ void copy_take(const nb_cuda_take &x, uint32_t part, uint32_t n_part)
{
    const size_t row0 = x.begin ? *x.begin : 0, end = x.begin ? *x.end : x.n_row;
    const size_t all = (size_t)x.from | (size_t)x.to | x.row_bytes | x.from_stride | x.to_stride;
    if (end <= row0) return;
    if (x.row && all % 16 == 0)
        copy_rows<uint4>(x, part, n_part);
    else if (x.row && all % 4 == 0)
        copy_rows<uint32_t>(x, part, n_part);
    else if (x.row)
        copy_rows<unsigned short>(x, part, n_part);
    else if (all % 16 == 0)
        copy<uint4>(x, row0, end - row0, part, n_part);
    else if (all % 4 == 0)
        copy<uint32_t>(x, row0, end - row0, part, n_part);
    else
        copy<unsigned short>(x, row0, end - row0, part, n_part);
}

__global__ void exchange_kernel(NB_PARAM nb_cuda_exchange_args a, uint32_t n_part)
{
    nb_cuda_meeting *me = a.meeting[a.rank];
    const uint32_t t = threadIdx.x;
    const uint64_t n = me->number + 1;
    const uint32_t what = a.salt ? a.what ^ *a.salt : a.what;
    const bool other = t < a.n_rank && t != a.rank;
    if (__syncthreads_or(me->failed != 0)) return;
    if (other) nb_signal(&a.meeting[t]->arrived[a.rank], n << NB_CUDA_WHAT_BITS | what);
    __syncthreads();
    if (!__syncthreads_and(!other || await(a, me, t, n, what))) return;
    if (a.n_take) copy_take(a.take[blockIdx.x / n_part], blockIdx.x % n_part, n_part);
    __syncthreads();
    if (t == 0) {
        __threadfence();
        if (atomicAdd(&me->ticket, 1u) == gridDim.x - 1) { /* every block has read the number */
            me->ticket = 0;
            me->number = n;
        }
    }
}
} /* namespace */

void nb_cuda_exchange(nb_cuda *g, const nb_cuda_exchange_args *a)
{
    size_t most = 0;
    for (size_t i = 0; i < a->n_take; i++) {
        const size_t n = a->take[i].n_row * a->take[i].row_bytes;
        if (n > most) most = n;
    }
    const size_t n_take = a->n_take ? a->n_take : 1, fit = 2 * (size_t)g->n_sm / n_take;
    size_t n_part = (most + 16 * THREADS * EACH - 1) / (16 * THREADS * EACH);
    if (n_part > fit) n_part = fit;
    if (n_part < 1) n_part = 1;
    NB_LAUNCH(g, exchange_kernel, (unsigned)(n_take * n_part), THREADS, 0, *a, (uint32_t)n_part);
}
