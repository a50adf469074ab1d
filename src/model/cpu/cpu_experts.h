/* cpu_experts.h - routed experts on the CPU's kernels, for a rank on another device whose weights stay in host
 * memory (docs/decisions/039-experts-in-host-memory.md). */
#ifndef NB_MODEL_CPU_EXPERTS_H
#define NB_MODEL_CPU_EXPERTS_H
#include "model/rank.h"

/* y[t] = sum over k, in the order of the router's choice, of weight[t][k] * expert id[t][k] of x[t]. */
typedef struct nb_cpu_experts_args {
    const float *x;      /* [n_row][hidden] */
    const uint32_t *id;  /* [n_row][top_k], each < n_expert */
    const float *weight; /* [n_row][top_k] */
    float *y;            /* [n_row][hidden]; not x */
    size_t n_row;
} nb_cpu_experts_args;

/* A CPU rank that has only what experts need, for max_row rows at a time.  It is destroyed with
 * nb_rank_destroy; of the rank's functions only nb_rank_bytes and nb_rank_plan apply.  o->device is not used. */
nb_status nb_cpu_experts_create(const nb_rank_options *o, size_t max_row, nb_rank **out,
                                nb_error *err);
/* On the host's threads; the caller takes part.  A row's bits depend on the row alone. */
void nb_cpu_experts_run(nb_rank *r, size_t layer, const nb_cpu_experts_args *a);

#endif
