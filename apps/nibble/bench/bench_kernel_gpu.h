/* bench_kernel_gpu.h - `nibble bench kernel --device cuda`. */
#ifndef NB_APPS_BENCH_KERNEL_GPU_H
#define NB_APPS_BENCH_KERNEL_GPU_H
#include "../options/opts.h"

/* Lists as `nibble bench kernel` has checked them; ops and records are words of its own lists. */
int bench_kernel_gpu(const opts *o);

#endif
