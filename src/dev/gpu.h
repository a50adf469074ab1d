/* gpu.h - a GPU, through the library that has its kernels.
 *
 * The library (kernel/cuda/api/nb_cuda.h) is loaded when it is asked for, so one program runs with and
 * without it.  Several devices may be open; each is owned by one thread at a time. */
#ifndef NB_DEV_GPU_H
#define NB_DEV_GPU_H
#include "base/status.h"
#include "kernel/cuda/api/nb_cuda.h"

typedef struct nb_gpu nb_gpu;

#define NB_GPU_LIBRARY "libnibble-cuda.so"

/* library NULL: NB_GPU_LIBRARY where nb_installed_path (os/lib.h) finds it.  Errors name the file or
 * the device: NB_ERR_NOT_FOUND (no library, no driver, no GPU), NB_ERR_UNSUPPORTED (the file cannot be
 * loaded, is of another version; the GPU or its driver is too old), NB_ERR_RANGE (index). */
nb_status nb_gpu_open(const char *library, int index, nb_gpu **out, nb_error *err);
/* All that was allocated was freed before.  NULL: nothing. */
void nb_gpu_close(nb_gpu *d);

const nb_cuda_api *nb_gpu_api(const nb_gpu *d);
nb_cuda *nb_gpu_handle(const nb_gpu *d);

#endif
