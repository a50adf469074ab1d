/* ranks.h - the ranks that compute a step together: rank 0 on the engine's thread, the others on threads of their own.
 *
 * All get the same chunks; a data-parallel rank, or group of ranks, computes its own of them.  A step is over when every
 * rank has returned.  When one of them does not come back (comm.h has the limit), the others end the step, and the engine
 * fails: `stuck` is then true, and what a step reads stays as it is until the engine is destroyed, which waits for that
 * rank. */
#ifndef NB_ENGINE_RANKS_H
#define NB_ENGINE_RANKS_H
#include "comm/comm.h"
#include "dev/device.h"
#include "model/rank.h"
#include "os/thread.h"

enum { NB_ENGINE_MAX_RANK = 8 };

/* What all ranks are to do: a step, or logits of the last one. */
typedef struct nb_rank_job {
    const nb_chunk *chunk; /* NULL: logits */
    size_t n;              /* chunks, or rows */
    const size_t *first;   /* data-parallel: group k has chunks, or rows, [first[k], first[k + 1]); else NULL */
    unsigned char *bad;    /* of chunks, by rank 0 or by the first rank of their group */
    const size_t *tok;
    float *logits; /* [n][n_vocab] */
    size_t n_vocab;
    const nb_cuda_sample_row *draw; /* [n], not NULL: the devices draw id[n] (nb_rank_sample), and there are no logits */
    uint32_t *id;
} nb_rank_job;

/* Tests: what a rank does wrong in its next job; not an option. */
typedef enum nb_rank_fault {
    NB_FAULT_NONE,
    NB_FAULT_REPORTS, /* it fails */
    NB_FAULT_LOST,    /* its thread ends without a word */
    NB_FAULT_LATE,    /* it sleeps for late_ms, then goes on */
    NB_FAULT_DECISION, /* it is told something else than the others */
    NB_FAULT_ROWS,     /* it leaves out a chunk, and does not say so */
    NB_FAULT_SPLIT     /* it leaves out a split of a context, and does not say so */
} nb_rank_fault;

typedef struct nb_ranks nb_ranks;
typedef struct nb_rank_seat { /* one rank */
    nb_ranks *all;
    size_t k;
    nb_rank *rank; /* borrowed */
    nb_dev *dev;   /* its threads; owned, but rank 0's */
    nb_comm *comm;     /* its end among all ranks, and among those of its group: nb_rank_options */
    nb_comm *tensor;
    nb_thread *thread; /* NULL: rank 0's is the engine's */
    nb_status st;      /* of its last job */
    nb_error err;
    uint64_t n_seen, n_done; /* jobs; guarded by the lock */
} nb_rank_seat;

struct nb_ranks {
    size_t n, n_tensor; /* n_tensor neighbours are a group, with the same tokens */
    nb_rank_seat seat[NB_ENGINE_MAX_RANK];
    nb_mutex *lock; /* guards what follows; NULL with one rank */
    nb_cond *wake, *done;
    nb_rank_job job;
    uint64_t n_job;
    bool stop;
    bool stuck; /* the engine's thread's */
    bool apart; /* remote.h: n_all processes with one rank each, this one's is `first`; n is 1 */
    size_t n_all, first;
    unsigned char *message; /* apart: of a job */
    struct {
        nb_rank_fault what;
        size_t rank;
        bool logits; /* in logits; else in a step */
        unsigned late_ms;
    } fault;
};

/* Threads of n_group groups of n_tensor ranks, n_thread each; *dev0: rank 0's.  One rank: only *dev0. */
nb_status nb_ranks_create(nb_ranks *r, size_t n_group, size_t n_tensor, size_t n_thread, nb_dev **dev0, nb_error *err);
/* As --cpu-affinity says for all their threads together. */
nb_status nb_ranks_bind(nb_ranks *r, const char *affinity, nb_error *err);
/* When every seat has its rank. */
nb_status nb_ranks_start(nb_ranks *r, nb_error *err);
/* Ends the threads; the ranks may be destroyed then, and after them the rest with nb_ranks_deinit. */
void nb_ranks_stop(nb_ranks *r);
void nb_ranks_deinit(nb_ranks *r);
double nb_ranks_limit_s(void); /* how long a rank waits for another */
/* On the engine's thread.  The status is rank 0's, or of the first rank that failed. */
nb_status nb_ranks_run(nb_ranks *r, const nb_rank_job *job, nb_error *err);

#endif
