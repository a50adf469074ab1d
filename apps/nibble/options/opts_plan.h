/* opts_plan.h - the options of `nibble plan`: opts_table_plan.c. */
#ifndef NB_APPS_OPTS_PLAN_H
#define NB_APPS_OPTS_PLAN_H
#include <stdbool.h>
#include <stddef.h>

typedef struct plan_opts {
    /* the machine; NULL and 0: not given */
    const char *gpu, *gpu_file, *memory, *reserve;
    double bandwidth, flops; /* GB/s, TFLOP/s */
    size_t gpus;
    double utilization, efficiency;
    /* how the model lies on it; 0: not given */
    size_t tp, dp, ep, dcp;
    bool enable_ep;
    const char *weight_dtype;
    const char *cpu_experts;            /* NULL: 0 */
    double ram_bandwidth, pcie_bandwidth; /* GB/s */
    /* the work: lists */
    const char *context, *concurrency, *prompt;
    size_t chunk;
    /* cost; 0: not given */
    double price, tok_s;
} plan_opts;

#endif
