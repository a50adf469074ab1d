/* sched_internal.h - the insides of nb_sched: for src/sched, and for the test that breaks them one
 * by one to see that the check finds it. */
#ifndef NB_SCHED_INTERNAL_H
#define NB_SCHED_INTERNAL_H
#include "sched/pace.h"
#include "sched/sched.h"

typedef enum nb_req_state {
    NB_REQ_DEFERRED, /* waits for another request: in nb_sched.deferred       */
    NB_REQ_QUEUED,   /* waits for blocks, a slot or tokens: in its class       */
    NB_REQ_RUNNING   /* holds blocks and a slot: in nb_sched.run               */
} nb_req_state;

typedef struct nb_req nb_req;

/* Requests in some order, linked by queue_prev and queue_next. */
typedef struct nb_req_list {
    nb_req *head, *tail;
    size_t n;
} nb_req_list;

struct nb_req {
    nb_sched_request r; /* prompt, salt and keys are not kept: r.prompt is NULL  */
    nb_req_state state;
    uint64_t seq;                /* order of arrival                              */
    nb_req *all_prev, *all_next; /* every request, in order of arrival           */
    nb_req *queue_prev, *queue_next;
    nb_req *chain;          /* next of the same bucket of ids                         */
    size_t n_dependent;     /* requests that wait for this one                       */
    int32_t level;          /* of its class: priority, or 0 with fcfs                 */
    double since, waited_s; /* queued since; seconds it was queued before        */
    size_t n_preempted;     /* > 0: admitted before, a preemption brought it back     */
    bool prompt_done;       /* the prompt was computed at some time                   */
    uint64_t retry_at;      /* nb_sched.n_gain below which admission cannot succeed   */

    uint32_t *tok;     /* [cap_tok]                                              */
    nb_block_key *key; /* [cap_tok / 64]; the first n_key are known              */
    uint32_t *block;   /* [cap_tok / 64 rounded up]                              */
    nb_block_key root;
    size_t cap_tok, n_known, n_key;

    /* While it runs, else 0. */
    size_t n_computed;
    size_t n_block;  /* held                                                   */
    size_t n_pub;    /* leading blocks that were found or published            */
    size_t n_cached; /* tokens found at the last admission                     */
    size_t n_plan;   /* tokens of its item in the current plan, 0: none        */
    size_t run_pos, slot;
    uint32_t load,
        save;      /* pinned snapshots of the item to come, of the planned one; or NB_SNAP_NONE */
    size_t branch; /* where found blocks ended that have no snapshot; 0: none */
};

/* Waiting requests of one level. */
typedef struct nb_req_class {
    int32_t level;
    nb_req_list queue;
} nb_req_class;

struct nb_sched {
    nb_sched_options o;
    nb_kv_cache *kv;
    size_t n_kv_block;

    nb_req **bucket; /* [bucket_mask + 1] by id */
    size_t bucket_mask;
    nb_req *all_head, *all_tail;
    size_t n_req;
    nb_req *background; /* the one that the statistics leave out, or NULL */
    uint64_t n_seq;
    double first_deadline; /* none of all requests is before it */

    nb_req **run;      /* [max_num_seqs] in order of admission                   */
    size_t *free_slot; /* a stack                                                */
    size_t n_run, n_free_slot;
    size_t budget; /* tokens the plan being made can still give */
    nb_pace pace;
    size_t n_decode;        /* of the plan being made, or the last one; as the next two */
    size_t n_beside;        /* nb_sched_set_beside */
    double work, work_left; /* of prompts: given, can still be given (INFINITY: no limit) */

    nb_req_class *cls; /* levels somebody waits in; cap_cls >= n_req             */
    size_t n_cls, cap_cls;
    nb_req_list deferred;
    size_t n_queued, n_queued_tok; /* in classes; with deferred ones for tokens  */

    /* Counts what can make an admission that lacked blocks succeed: released and published
     * blocks.  Once the cache was reset under a running request, there are indexed blocks that are not
     * found before somebody publishes what comes before them: then one block can count for many. */
    uint64_t n_gain;
    bool orphans;
    nb_sched_stats stat; /* counters only */
    uint32_t *count;     /* [n_kv_block] for nb_sched_check */
};

static inline size_t nb_n_block(size_t n_tok)
{
    return n_tok / NB_BLOCK_TOK + (n_tok % NB_BLOCK_TOK != 0);
}
static inline size_t nb_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many tokens of block b lie before `end`: a mark of its key. */
static inline unsigned nb_sched_mark(size_t end, size_t b)
{
    const size_t pos0 = b * NB_BLOCK_TOK;
    return end <= pos0 ? 0 : (unsigned)nb_min(end - pos0, NB_BLOCK_TOK);
}

/* The form of block b, in its key. */
static inline unsigned nb_sched_form(size_t n_expanded, size_t n_upload, size_t b)
{
    return nb_sched_mark(n_expanded, b) | (b < n_upload / NB_BLOCK_TOK ? NB_BLOCK_UPLOADED : 0U);
}

/* sched.c */
nb_req *nb_sched_find_req(const nb_sched *s, uint64_t id);
/* The keys of the first n full blocks of known tokens. */
nb_status nb_req_keys(nb_req *r, size_t n);
void nb_req_list_append(nb_req_list *l, nb_req *r);
void nb_req_list_insert(nb_req_list *l, nb_req *r, nb_req *before); /* NULL: at the end */
void nb_req_list_remove(nb_req_list *l, nb_req *r);
/* Into the queue of its class: at its head, or by arrival. */
void nb_sched_enqueue(nb_sched *s, nb_req *r, bool head, double now);
void nb_sched_dequeue(nb_sched *s, nb_req *r);
/* The snapshot in *snap is not needed any more; NB_SNAP_NONE: nothing. */
void nb_sched_unpin(nb_sched *s, uint32_t *snap);
/* A running request gives up its slot and its blocks, and its item in the current plan. */
void nb_sched_stop(nb_sched *s, nb_req *r);

#endif
