/* remote.h - ranks in processes of their own (--nnodes): one rank each, with a whole copy of the cache.
 *
 * Process 0 has the requests and plans; before a step it tells the others what is computed, and they do the same
 * (nb_engine_follow).  A block's place is in its number, so their caches are alike.  Nothing else is done to pages
 * between steps but by nb_engine_fill and captures, which are refused.  What rank 0 says is checked all the same. */
#ifndef NB_ENGINE_REMOTE_H
#define NB_ENGINE_REMOTE_H
#include "engine/ranks.h"

/* What a job must keep to. */
typedef struct nb_job_limits {
    size_t max_chunk, max_tok, max_row; /* of a step; rows of logits */
    size_t max_pos, n_block, n_vocab;
    bool absorbed_only;
} nb_job_limits;

typedef enum nb_job_kind { NB_JOB_END, NB_JOB_STEP, NB_JOB_LOGITS } nb_job_kind;

/* A job as read: pointers into the message, and into arrays of the reader. */
typedef struct nb_job_read {
    nb_job_kind kind;
    size_t n;
    nb_chunk *chunk; /* [max_chunk] */
    size_t *tok;     /* [max_row] */
} nb_job_read;

size_t nb_job_bytes(const nb_job_limits *l); /* of the largest message */
size_t nb_job_write(const nb_rank_job *job, void *p);
size_t nb_job_write_end(void *p);
/* out's arrays are there.  p is aligned as for uint64_t. */
nb_status nb_job_parse(const void *p, size_t n_bytes, const nb_job_limits *l, nb_job_read *out, nb_error *err);

struct nb_engine;
struct nb_engine_options;
/* --nnodes and what goes with it, when the layout is known. */
nb_status nb_remote_check(const struct nb_engine_options *o, size_t n_tensor, size_t n_data, nb_error *err);
/* For sizes only: this process's rank among others that are not there. */
nb_status nb_remote_pretend(struct nb_engine *e, const struct nb_engine_options *o, nb_error *err);
/* Waits for the others and connects. */
nb_status nb_remote_meet(struct nb_engine *e, const struct nb_engine_options *o, nb_error *err);
/* When the rank is there: all must be alike. */
nb_status nb_remote_compare(struct nb_engine *e, nb_error *err);
nb_status nb_remote_allocate(struct nb_engine *e, nb_error *err);
/* Rank 0's: the others do this job. */
nb_status nb_remote_tell(nb_ranks *r, const nb_rank_job *job, nb_error *err);
/* Of this process; the others hear of it: NULL: an orderly end, else why it has failed. */
void nb_remote_end(nb_ranks *r, const char *why);

#endif
