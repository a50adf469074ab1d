/* cu.cuh - included by every kernel file: CUDA, or its emulation on the CPU.
 *
 * Kernels are written so that a C++ compiler with cu_emu.h can run them, thread by thread (tests/emu/cuda).  So
 * launches go through NB_LAUNCH, dynamic shared memory through NB_SHARED, and instructions that C++ lacks through the
 * functions of ptx.cuh.  Files under sm90/ are not emulated. */
#ifndef NB_KERNEL_CUDA_COMMON_CU_CUH
#define NB_KERNEL_CUDA_COMMON_CU_CUH
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !NB_CUDA_EMULATED /* else the compiler has already read tests/emu/cuda/cu_emu.h */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

/* NB_LAUNCH(g, kernel, grid, block, shared bytes, arguments...) launches a kernel; a failure becomes the sticky error.
 * Put kernels with template arguments in parentheses. */
#define NB_LAUNCH(g, kernel, grid, block, shared, ...)                                             \
    do {                                                                                           \
        if ((g)->error == cudaSuccess) {                                                           \
            (g)->whole = false;                                                                    \
            kernel<<<(grid), (block), (shared), (g)->stream>>>(__VA_ARGS__);                        \
            nb_cuda_check((g), cudaGetLastError(), #kernel);                                       \
        }                                                                                          \
    } while (0)
/* NB_LAUNCH_EARLY: the same for a kernel that may start before the previous one has ended (cc 90, programmatic
 * dependent launch).  Such a kernel reads and writes nothing that others write before nb_grid_wait(), which every
 * thread calls.
 * NB_LAUNCH_CLUSTERS: the same, in clusters of the given number of blocks (cc 90). */
#define NB_LAUNCH_CLUSTERS(g, cluster, kernel, grid, block, shared, ...)                           \
    do {                                                                                           \
        if ((g)->error == cudaSuccess) {                                                           \
            cudaLaunchAttribute nb_attrs[2] = {};                                                  \
            cudaLaunchConfig_t nb_config = {};                                                     \
            nb_config.gridDim = (grid);                                                            \
            nb_config.blockDim = (block);                                                          \
            nb_config.dynamicSmemBytes = (shared);                                                 \
            nb_config.stream = (g)->stream;                                                        \
            nb_config.attrs = nb_attrs;                                                            \
            if ((g)->cc >= 90 && !(g)->whole) {                                                    \
                nb_attrs[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;               \
                nb_attrs[nb_config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;     \
            }                                                                                      \
            if ((cluster) > 1) {                                                                   \
                nb_attrs[nb_config.numAttrs].id = cudaLaunchAttributeClusterDimension;             \
                nb_attrs[nb_config.numAttrs].val.clusterDim.x = (cluster);                         \
                nb_attrs[nb_config.numAttrs].val.clusterDim.y = 1;                                 \
                nb_attrs[nb_config.numAttrs++].val.clusterDim.z = 1;                               \
            }                                                                                      \
            if ((g)->cc >= 90 && (g)->whole && (g)->early) nb_cuda_soften(g);                      \
            (g)->whole = false;                                                                    \
            nb_cuda_check((g), cudaLaunchKernelEx(&nb_config, kernel, __VA_ARGS__), #kernel);      \
        }                                                                                          \
    } while (0)
#define NB_LAUNCH_EARLY(g, kernel, grid, block, shared, ...)                                       \
    NB_LAUNCH_CLUSTERS(g, 1, kernel, grid, block, shared, __VA_ARGS__)
/* NB_SHARED(type, name): the block's dynamic shared memory, aligned to 128. */
#define NB_SHARED(type, name)                                                                      \
    extern __shared__ __align__(128) unsigned char nb_shared_bytes[];                              \
    type *name = reinterpret_cast<type *>(nb_shared_bytes)
/* Allows a kernel this many bytes of dynamic shared memory; once per kernel and device. */
#define NB_SHARED_LIMIT(g, kernel, bytes)                                                          \
    nb_cuda_check((g),                                                                             \
                  cudaFuncSetAttribute((kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,      \
                                       (int)(bytes)),                                              \
                  #kernel)
#endif

extern "C" { /* C headers, and what they include */
#include "kernel/cuda/api/nb_cuda.h"
}

/* NB_PARAM T name: a structure that a kernel receives by value and may read in place, also by reference. */
#if NB_CUDA_EMULATED
#define NB_PARAM const
#else
#define NB_PARAM const __grid_constant__
#endif

/* An open device; src/dev/cuda/runtime.cu owns it. */
struct nb_cuda {
    cudaStream_t stream, side; /* side: the side stream, forked and joined by events */
    cudaEvent_t fork, join, mark[64];
    cudaError_t error; /* the first error; sticky */
    char why[320];
    int index, cc, n_sm;
    size_t shared_bytes, l2_bytes;
    bool capturing;
    bool aside, whole; /* stream and side are swapped; the next kernel waits for several others */
    bool early;        /* that kernel may start before they have ended */
    void *blas, *blas_work; /* cuBLASLt's handle and workspace, or NULL */
    size_t blas_work_bytes;
    char name[96];
};

#if !NB_CUDA_EMULATED
/* Called when the next kernel waits for several others (`whole`) in nb_grid_wait(): in a graph it may then start before
 * they have ended, like a kernel that follows only one. */
void nb_cuda_soften(nb_cuda *g);
#endif

/* Records e as the device's error if it is the first. */
void nb_cuda_check(nb_cuda *g, cudaError_t e, const char *what);

#endif
