/* bench_kernel_gpu.h - timing the operations of a GPU, beside the roofline of the same run.
 *
 * A case is an operation and a shape.  Times are those of a graph of launches as the forward pass makes
 * them (attention: the row that it would take, the own page and the joining of states), each launch
 * on data of its own until all of it together is set_bytes, so that none finds its data in the L2
 * cache; the median of n_sample graphs of at least sample_s.
 *
 * The roofline: a copy of 1 GiB inside the device's memory (bytes read and written), and the best of the
 * library's BF16 products of 8192 x 8192 x 8192.  The floor of a case is the larger of what its bytes
 * and its operations take at these rates. */
#ifndef NB_TIMING_BENCH_KERNEL_GPU_H
#define NB_TIMING_BENCH_KERNEL_GPU_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nibble/status.h"
#include "timing/bench_kernel.h"

typedef struct nb_gbench nb_gbench; /* a device and its roofline; one caller at a time */

typedef struct nb_gbench_info {
    char name[96], what[160]; /* the device; its library */
    bool emulated;            /* times mean nothing */
    size_t n_sm;
    uint64_t memory_bytes;
    double copy_gbs, gemm_gflops;
    char gemm[32]; /* the product's row */
} nb_gbench_info;

/* device: "cuda" or "cuda:N"; library: NULL or a file (dev/gpu.h).  Measures the roofline. */
nb_status nb_gbench_create(const char *device, const char *library, uint64_t seed, nb_gbench **out,
                           nb_error *err);
void nb_gbench_destroy(nb_gbench *b); /* NULL: nothing */
const nb_gbench_info *nb_gbench_get_info(const nb_gbench *b);

typedef struct nb_gbench_case {
    const char *op;                         /* "attn_pages", "linear", "experts" */
    const char *record, *rope;              /* as nb_kbench_case; MLA, 512 + 64 values */
    const char *weight;                     /* f32, bf16, f16, fp8, int8, int4, fp4 */
    size_t n_head, n_query, batch, context; /* context: complete pages, then the own one */
    size_t n_row, n_col, n_tok;             /* linear; experts: n_row is one expert's */
    size_t n_batch;                         /* linear: products side by side (heads) */
    size_t n_expert, top_k;                 /* experts */
    const char *act;                        /* of products: float (NULL, too), bf16, fp8 */
    bool prompt;                            /* of the kind PROMPT, else DIRECT */
    size_t set_bytes, n_sample;
    double sample_s;
} nb_gbench_case;

typedef struct nb_gbench_row {
    const char *variant; /* name of the table's row */
    double median_ns, best_ns, bytes, ops, set_bytes, floor_ns;
    nb_kbench_spread spread; /* ns, of the graphs */
} nb_gbench_row;

/* NB_ERR_ARG, NB_ERR_RANGE, NB_ERR_UNSUPPORTED, NB_ERR_NOMEM with a line; NB_ERR_INTERNAL: the device
 * failed, as every later call does. */
nb_status nb_gbench_run(nb_gbench *b, const nb_gbench_case *c, nb_gbench_row *row, nb_error *err);

#endif
