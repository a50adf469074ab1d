/* gpu_ranks.h - several GPUs that compute one model: what each gives to the others, and where they meet (gpu_meet.c). */
#ifndef NB_MODEL_GPU_RANKS_H
#define NB_MODEL_GPU_RANKS_H
#include "model/backend.h"

typedef struct nb_gpu_rank nb_gpu_rank;

/* Rows that enter products.  Without lo they were rounded to BF16 once. */
typedef struct nb_gpu_inputs {
    nb_cuda_rows xn, qa, q_nope, u, attn_y, act, e_act, lat;
    nb_cuda_rows heads, hidden; /* attn_y and act of all ranks: the same buffers where there is one */
} nb_gpu_inputs;

/* What a rank has for the others, in the memory of its device.  Each buffer is given in one exchange of a layer, and
 * written again only after the next (nb_cuda_ops.h). */
typedef struct nb_gpu_gives {
    nb_gpu_inputs x; /* attn_y, act: this rank's heads and columns */
    float *out, *sum; /* its columns of the branch: of the output projection, of the feed-forward */
    float *e_y;
    nb_cuda_meeting *meeting;
} nb_gpu_gives;

/* Several ranks (gpu_meet.c). */
typedef struct nb_gpu_ranks {
    size_t n, me, stride; /* n 1: all else is unused; stride: of out and sum */
    float *out, *sum;
    nb_cuda_meeting *meeting;
    volatile uint32_t *alarm; /* pinned: [2] */
    uint64_t *failed;         /* pinned: of the meeting, as of the last step */
    nb_gpu_gives of[NB_CUDA_MAX_RANK];
} nb_gpu_ranks;

nb_status nb_gpu_ranks_create(nb_gpu_rank *f, nb_error *err);
void nb_gpu_ranks_destroy(nb_gpu_rank *f);
nb_status nb_gpu_connect(nb_rank *r, nb_rank *const *all, nb_error *err);
bool nb_gpu_meet(nb_rank *r, nb_pass *p, size_t layer, nb_meeting at);
/* Before the first pass of a step; behind the last, in front of the wait; after the wait. */
void nb_gpu_ranks_begin(nb_gpu_rank *f);
void nb_gpu_ranks_end(nb_gpu_rank *f);
nb_status nb_gpu_ranks_check(nb_gpu_rank *f, nb_error *err);

#endif
