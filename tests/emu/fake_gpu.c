/* fake_gpu.c - a library that is not the one that the loader wants: FAKE says in what. */
#include "kernel/cuda/api/nb_cuda.h"

#define EXPORT __attribute__((visibility("default")))

#if FAKE == 1 /* another version */
static const nb_cuda_api api = { .version = NB_CUDA_VERSION + 7, .api_bytes = sizeof api };
#else /* another build */
static const nb_cuda_api api = { .version = NB_CUDA_VERSION, .api_bytes = 8 };
#endif

#if FAKE == 3 /* something else altogether */
EXPORT const void *nb_fake(void);
EXPORT const void *nb_fake(void)
{
    return &api;
}
#else
EXPORT const nb_cuda_api *nb_cuda_get_api(void);
EXPORT const nb_cuda_api *nb_cuda_get_api(void)
{
    return &api;
}
#endif
