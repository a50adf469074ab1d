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
    uint32_t *id; /* data-parallel: its choices; x.xn: its rows */
    nb_cuda_meeting *meeting;
} nb_gpu_gives;

/* Data-parallel ranks (gpu_share.c): rows of all ranks that are computed at a time. */
typedef struct nb_gpu_all {
    nb_cuda_rows xn[2]; /* by kind: the same buffers */
    uint32_t *id;       /* their choices */
    size_t max_row[2];  /* by kind; nb_gpu_share_rows more fit */
} nb_gpu_all;

/* The rows of a round in which all ranks compute a pass of one kind, perhaps without rows. */
typedef struct nb_gpu_round {
    size_t n_row[NB_CUDA_MAX_RANK]; /* tokens of each rank */
    size_t n[NB_CUDA_MAX_RANK];     /* the same, and with `graph` the largest of all, rounded up, for each */
    bool graph;
} nb_gpu_round;

/* Several ranks (gpu_meet.c). */
typedef struct nb_gpu_ranks {
    size_t n, me, stride; /* n 1: all else is unused; stride: of out and sum */
    bool divided;         /* they divide every product, not only experts */
    nb_gpu_all all;
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
typedef struct nb_gpu_meet_args {
    nb_gpu_rank *f;
    nb_cuda_exchange_args a;
    size_t n_row; /* of the takes that follow */
} nb_gpu_meet_args;
/* Of this rank with all others; what: the same on all, < 2^NB_CUDA_WHAT_BITS. */
nb_gpu_meet_args nb_gpu_meet_begin(nb_gpu_rank *f, size_t n_row, uint32_t what);
/* n values of `size` bytes of each row; strides in values.  Nothing, where n is 0 or `to` NULL. */
void nb_gpu_take(nb_gpu_meet_args *m, const void *from, size_t from_stride, void *to, size_t to_stride, size_t n,
                 size_t size);

/* ---- gpu_share.c ---- */

/* Rows that a pass computes for others in addition: one for each rank at most. */
static inline size_t nb_gpu_share_rows(const nb_rank *r)
{
    return r->o.data_parallel ? NB_CUDA_MAX_RANK : 0;
}
/* Bytes and contents of a section's `on`: which rows of a round with `graph` are tokens, in the order of turns; a
 * number that ranks with the same round have in common. */
size_t nb_gpu_share_on_bytes(const nb_gpu_rank *f, size_t max_row);
void nb_gpu_share_on(const nb_gpu_rank *f, nb_cuda_kind kind, const nb_gpu_round *x, unsigned char *on);
uint32_t nb_gpu_share_salt(nb_cuda_kind kind, const nb_gpu_round *x);
/* The routed experts of a layer for the rows of all ranks; this rank's outputs end in e_y, for the next add_norm, or in
 * branch.  Behind feed_forward; of a rank without rows by itself. */
void nb_gpu_share(nb_gpu_rank *f, nb_pass *p, size_t layer);

/* ---- a step ---- */

/* Before the first pass of a step; behind the last, in front of the wait; after the wait. */
void nb_gpu_ranks_begin(nb_gpu_rank *f);
void nb_gpu_ranks_end(nb_gpu_rank *f);
nb_status nb_gpu_ranks_check(nb_gpu_rank *f, nb_error *err);

#endif
