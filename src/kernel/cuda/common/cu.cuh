/* cu.cuh - what every kernel file includes: CUDA, or its emulation on the processor.
 *
 * Kernels are written so that a C++ compiler with cu_emu.h can run them, thread by thread (tests/emu/cuda): launches
 * through NB_LAUNCH, dynamic shared memory through NB_SHARED, and instructions that C++ does not
 * have through the functions of ptx.cuh.  Files under sm90/ are not emulated. */
#ifndef NB_KERNEL_CUDA_COMMON_CU_CUH
#define NB_KERNEL_CUDA_COMMON_CU_CUH
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !NB_CUDA_EMULATED /* else the compiler has read tests/emu/cuda/cu_emu.h before this file */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

/* NB_LAUNCH(g, kernel, grid, block, shared bytes, arguments...): a sticky error when it fails.  Kernels
 * with template arguments are put in parentheses. */
#define NB_LAUNCH(g, kernel, grid, block, shared, ...)                                             \
    do {                                                                                           \
        if ((g)->error == cudaSuccess) {                                                           \
            (g)->whole = false;                                                                    \
            kernel<<<(grid), (block), (shared), (g)->stream>>>(__VA_ARGS__);                        \
            nb_cuda_check((g), cudaGetLastError(), #kernel);                                       \
        }                                                                                          \
    } while (0)
/* NB_LAUNCH_EARLY: the same for a kernel that may begin before the one before it has ended (cc 90): it
 * reads and writes nothing that others write until nb_grid_wait(), which every thread calls.
 * NB_LAUNCH_CLUSTERS: this in clusters of so many blocks (cc 90). */
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
/* Lets a kernel have so many bytes of dynamic shared memory; once per kernel and device. */
#define NB_SHARED_LIMIT(g, kernel, bytes)                                                          \
    nb_cuda_check((g),                                                                             \
                  cudaFuncSetAttribute((kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,      \
                                       (int)(bytes)),                                              \
                  #kernel)
#endif

extern "C" { /* and what it includes: files of C */
#include "kernel/cuda/api/nb_cuda.h"
}

/* A structure that a kernel gets by value and reads in place, by reference too: NB_PARAM T name. */
#if NB_CUDA_EMULATED
#define NB_PARAM const
#else
#define NB_PARAM const __grid_constant__
#endif

/* The device in hand; src/dev/cuda/runtime.cu owns it. */
struct nb_cuda {
    cudaStream_t stream, side; /* side: for work beside the stream, forked and joined by events */
    cudaEvent_t fork, join, mark[64];
    cudaError_t error; /* the first: sticky */
    char why[320];
    int index, cc, n_sm;
    size_t shared_bytes, l2_bytes;
    bool capturing;
    bool aside, whole; /* stream and side are exchanged; the next kernel waits for several others */
    bool early;        /* and may begin before they have ended */
    void *blas, *blas_work; /* cuBLASLt's handle and workspace, or NULL */
    size_t blas_work_bytes;
    char name[96];
};

#if !NB_CUDA_EMULATED
/* The kernel that is launched next waits for several others (`whole`) in nb_grid_wait(): in a graph it may begin
 * before they have ended, like those that follow one alone. */
void nb_cuda_soften(nb_cuda *g);
#endif

/* Notes the first error. */
void nb_cuda_check(nb_cuda *g, cudaError_t e, const char *what);

#endif
