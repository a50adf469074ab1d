/* driver.cuh - error handling that the drivers of built kernels share. */
#ifndef NB_LAB_HOPPER_DRIVER_CUH
#define NB_LAB_HOPPER_DRIVER_CUH
#include "kernel/cuda/common/ops.cuh"

#include <cstdio>
#include <cstdlib>

/* In libnibble-cuda.so, src/dev/cuda defines these two functions. */
void nb_cuda_check(nb_cuda *g, cudaError_t e, const char *what)
{
    if (e != cudaSuccess && g->error == cudaSuccess) {
        g->error = e;
        printf("ERROR %s: %s\n", what, cudaGetErrorString(e));
    }
}

void nb_cuda_soften(nb_cuda *g)
{
    (void)g;
}

#define CK(x)                                                                                      \
    do {                                                                                           \
        cudaError_t e_ = (x);                                                                      \
        if (e_ != cudaSuccess) {                                                                   \
            printf("%d: %s\n", __LINE__, cudaGetErrorString(e_));                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
