/* gpu_runs.h - the routed experts of a layer as runs of neighbours whose weights have the same forms.
 *
 * Most layers are one run.  Files differ where a list leaves some experts plain, or gives single matrices other bits
 * (docs/decisions/041-k-types-on-a-gpu.md).  A run is one product for gate and up and one for down; where gate
 * and up have different forms, each is a product of its own, and SwiGLU follows. */
#ifndef NB_MODEL_GPU_RUNS_H
#define NB_MODEL_GPU_RUNS_H
#include "kernel/cuda/api/nb_cuda.h"
#include "model/backend.h"
#include "model/gpu/gpu_tiles.h"
#include "model/model.h"

enum { NB_GPU_GATE, NB_GPU_UP, NB_GPU_DOWN, NB_GPU_EXPERT_MATS };

typedef struct nb_gpu_run {
    size_t first, n; /* experts, in the rank's order */
    bool apart;      /* gate and up are two products */
    nb_gpu_form form[NB_GPU_EXPERT_MATS]; /* also where the experts stay in host memory */
    nb_weight w[NB_GPU_EXPERT_MATS];      /* of all its experts, one below the other; data NULL: in host memory */
    const nb_cuda_experts_row *row[NB_GPU_EXPERT_MATS][2]; /* by kind; of up: where it is apart */
} nb_gpu_run;

typedef struct nb_gpu_experts {
    nb_gpu_run *run;
    size_t n_run;
    bool apart;  /* of some run */
    bool floats; /* some product reads float rows */
} nb_gpu_experts;

/* Which rows of the table may be used. */
typedef struct nb_gpu_row_limits {
    const nb_cuda_experts_row *rows;
    int cc;
    bool use[2]; /* by kind */
    bool codes;  /* rows that read activations as codes are taken */
} nb_gpu_row_limits;

/* Matrix i of an expert. */
const nb_weight *nb_gpu_expert_mat(const nb_mlp *expert, size_t i);
/* The rank's expert i. */
static inline size_t nb_gpu_expert_of(const nb_rank_part *p, size_t i)
{
    return p->expert0 + i * p->expert_step;
}

/* Divides the rank's experts of a layer into runs, in *a; without weights yet.  NB_ERR_UNSUPPORTED: the table has no
 * product for some type; the line names the layer. */
nb_status nb_gpu_runs_init(nb_gpu_experts *x, const nb_mlp *expert, size_t layer, const nb_rank_part *part,
                           const nb_gpu_row_limits *limits, nb_arena *a, nb_error *err);
/* Bytes of the runs on the device. */
uint64_t nb_gpu_runs_bytes(const nb_gpu_experts *x, const nb_mlp *expert, const nb_rank_part *part);
/* Whether gpu_experts.c can send the layer's experts: one run whose matrices are tiles or as they are, but for FP8 with a
 * scale per row. */
bool nb_gpu_runs_can_send(const nb_gpu_experts *x);

#endif
