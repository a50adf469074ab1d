/* bench_kernel_gpu_internal.h - between the files of `nibble bench kernel --device cuda`. */
#ifndef NB_TIMING_BENCH_KERNEL_GPU_INTERNAL_H
#define NB_TIMING_BENCH_KERNEL_GPU_INTERNAL_H
#include "dev/gpu.h"
#include "timing/bench_kernel_gpu.h"

struct nb_gbench {
    nb_gpu *gpu;
    const nb_cuda_api *api;
    nb_cuda *g;
    nb_cuda_info cuda;
    nb_gbench_info info;
    uint64_t seed;
    void **mem; /* device memory of the case in hand */
    size_t n_mem, cap_mem;
    bool nomem; /* an allocation was refused */
};

/* What an operation prepares: step(op, i) queues launch i, on data set i % n_set. */
typedef struct nb_gb_run {
    nb_gbench *b;
    const nb_gbench_case *c;
    const char *variant;
    void (*step)(struct nb_gb_run *r, size_t i);
    void *op; /* host memory, freed after the case */
    size_t n_set;
    double bytes, ops, set_bytes; /* of a step; of all sets */
} nb_gb_run;

/* Device memory until the end of the case, NULL (and b->nomem) when refused. */
void *nb_gb_alloc(nb_gbench *b, size_t n_bytes);
void *nb_gb_upload(nb_gbench *b, const void *host, size_t n_bytes);
/* n_bytes of random bytes' copies: `unit_bytes` from the host, over and over. */
void *nb_gb_repeat(nb_gbench *b, const void *host, size_t unit_bytes, size_t n_bytes);
/* Random floats in [-1, 1), n of them, on the device. */
float *nb_gb_floats(nb_gbench *b, size_t n);
nb_status nb_gb_nomem(nb_error *err);
/* How many sets of n_bytes make set_bytes: at least 1. */
size_t nb_gb_sets(const nb_gb_run *r, size_t n_bytes);
/* BF16 weights or floats of the type, [n_row][n_col], n_set of them after each other. */
nb_status nb_gb_weight(nb_gb_run *r, size_t n_row, size_t n_col, nb_weight *w, size_t *n_set,
                       size_t *set_bytes, nb_error *err);
/* Rows with all three forms. */
nb_cuda_rows nb_gb_rows(nb_gbench *b, size_t n_row, size_t n_col);

typedef nb_status nb_gb_setup(nb_gb_run *r, nb_error *err);
nb_gb_setup nb_gb_attn;                  /* bench_kernel_gpu_attn.c */
nb_gb_setup nb_gb_linear, nb_gb_experts; /* bench_kernel_gpu_linear.c */

#endif
