/* sched.h - which tokens of which requests the next step computes.
 *
 * A pure state machine: time is an argument, a step's bytes and logits are somebody
 * else's.  A request is a list of known tokens (prompt, then what was generated) of which
 * the first n_computed are in the cache; there are no phases, a step lets n_computed
 * catch up.  One round:
 *
 *   n = nb_sched_plan(s, now, item);     // blocks are reserved, nothing is computed yet
 *   ... compute the items ...
 *   nb_sched_computed(s, item.id)        // for each item; full blocks become findable
 *   nb_sched_push(s, item.id, token)     // where item.last: the sampled token
 *   or nb_sched_remove(s, id)            // finished, failed, cancelled
 *
 * Rules of a plan: at most max_step_tok tokens and one item per request; running requests
 * with one token to compute (decodes) first, in order of admission; then the rest of the
 * running, then waiting ones are admitted, in policy order, while tokens, slots and blocks
 * last.  A request gets at most max_chunk_tok tokens of a step while others could use
 * them (a waiting or running request that would get none), else all that is left.  In a plan with decodes,
 * other items together have at most the work that fits into max_step_s (pace.h), but NB_BLOCK_TOK tokens at least,
 * so that every request goes on.  An item
 * never crosses the end of the prompt's form (n_expanded, n_upload) or rope_from, so that one
 * form and one rope table hold for it.
 *
 * Admission: blocks for all known tokens and one more block (capped by max_model_len) must
 * be available and are acquired at once; leading full blocks that the index knows are held
 * instead and not computed, except that the last known token is always computed.  The head
 * of the queue is not overtaken by others of its class for lack of blocks.
 * A request with `after` waits until that request has computed its prompt or has gone.
 *
 * Where the model keeps a state per sequence (snap_tok; kv_cache.h, docs/decisions/052), a hit ends at the last found
 * block that has a snapshot.  Items end at the positions where snapshots are taken: multiples of snap_tok; the last
 * end of a block that lies before the prompt's last token, and the prompt's end where it is one; and where the known
 * blocks of a prompt ended that a hit could not reach.  The item that begins a request after a hit names the snapshot
 * to start from (load), one that ends at such a position the place for a new one (save), unless the block has one or
 * all places are pinned.  The engine loads before it computes and saves afterwards.
 *
 * Preemption: when a running request needs a block and there is none, the victim is, among
 * the running (with the priority policy: among those of the worst priority, never one
 * better than the one in need), the one with the least computed tokens, of equals
 * the youngest; never the oldest running request unless it is alone.  Its blocks are
 * released (what is full stays findable), its known tokens stay, and it returns to the
 * head of the queue of its class.  If the one in need is itself the victim it waits.  When the one
 * in need is the oldest and all others are better, there is no victim: it gets nothing in
 * this step.  `Oldest` is by the last admission.
 *
 * Policies: fcfs, or priority (lower value first, then arrival), where a waiting request
 * gains one level for each age_s seconds it has waited (in all, when it was preempted), so that
 * nobody starves.  Requests of one priority are a class; the classes are compared by the best level
 * of their requests, and when the head of the best class lacks blocks nobody is admitted.
 *
 * Errors are for the caller's mistakes and memory; a plan cannot fail.  Ids of requests
 * are the caller's, unique, never 0.  Owned by the engine thread. */
#ifndef NB_SCHED_SCHED_H
#define NB_SCHED_SCHED_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "kv/kv_cache.h"

typedef struct nb_sched nb_sched;

typedef struct nb_sched_options {
    size_t max_num_seqs;  /* running requests; slots are [0, max_num_seqs)      */
    size_t max_step_tok;  /* tokens of a step, >= max_num_seqs                   */
    size_t max_chunk_tok; /* of one request in a step, while others could use it */
    size_t max_model_len; /* known tokens of a request, at most; needs this many tokens of blocks */
    bool priority;        /* policy: priority instead of fcfs */
    double age_s;         /* priority: seconds of waiting per level; 0: never */
    double max_step_s;    /* of steps with decodes; 0: no limit; negative: derived (pace.h) */
    double
        pair_tok; /* a pair of a prompt's query and a token it sees costs as much as so many tokens */
    size_t
        snap_tok; /* tokens between snapshots, a multiple of NB_BLOCK_TOK; 0: the model has no states */
} nb_sched_options;

/* Borrows the cache. NB_ERR_ARG where max_model_len does not fit the pool. */
nb_status nb_sched_create(const nb_sched_options *o, nb_kv_cache *kv, nb_sched **out,
                          nb_error *err);
void nb_sched_destroy(nb_sched *s); /* releases what its requests hold */

typedef struct nb_sched_request {
    uint64_t id;
    const uint32_t *prompt; /* copied; 1 .. max_model_len of them                 */
    size_t n_prompt;
    size_t n_expanded;   /* positions below are computed in expanded form          */
    size_t n_upload;     /* positions below: nb_chunk.upload; whole blocks         */
    size_t rope_from;    /* positions from here use the long rope table; SIZE_MAX  */
    nb_str salt;         /* of the prefix cache                                    */
    bool no_lookup;      /* compute every token (logits of the prompt are wanted)  */
    size_t max_item_tok; /* 0, or most tokens of an item (rows of logits)          */
    int32_t priority;
    double deadline; /* absolute, in the clock of `now`; INFINITY: none        */
    uint64_t after;  /* 0, or a request to wait for                            */
    /* Copied: keys of the first n_key blocks of the prompt, from a caller who knows them; 0: they
     * are made from the tokens. */
    const nb_block_key *key;
    size_t n_key;
    bool
        background; /* No user's: the statistics do not count it, and it takes the slot that was given
                        up first, whose open page is of least use (refill.h).  One at a time, without
                        `after`. */
    void *user;
} nb_sched_request;

/* Queues it. NB_ERR_ARG (id used, empty prompt, more keys than blocks), NB_ERR_LIMIT (too long),
 * NB_ERR_NOMEM. */
nb_status nb_sched_add(nb_sched *s, const nb_sched_request *r, double now, nb_error *err);

typedef struct nb_sched_item {
    uint64_t id;
    void *user;
    size_t slot;           /* of the open page's buffer; kept while the request runs */
    size_t pos0, n_tok;    /* tokens [pos0, pos0 + n_tok) are to be computed          */
    const uint32_t *tok;   /* [n_tok], until the next call that changes the request   */
    const uint32_t *block; /* [n_block] table of the request, same lifetime         */
    size_t n_block;
    bool expanded, upload, rope_long;
    bool last;       /* all known tokens are computed after it: sample the next */
    bool admitted;   /* this plan admitted it (first time or again)             */
    size_t n_cached; /* tokens found in the prefix cache at (this) admission    */
    uint32_t load, save; /* snapshots; NB_SNAP_NONE                             */
} nb_sched_item;

/* item[max_num_seqs]. Returns the number of items; 0: nothing can be done now. */
size_t nb_sched_plan(nb_sched *s, double now, nb_sched_item *item);
/* The step of the last plan took so many seconds; what max_step_s is held with. */
void nb_sched_timed(nb_sched *s, double seconds);
/* The same of n schedulers whose plans were computed side by side: what a step costs is learnt from the plan with most
 * to do, and known to all. */
void nb_sched_timed_together(nb_sched *const *s, size_t n, double seconds);
/* Running requests with one token to compute. */
size_t nb_sched_n_decode(const nb_sched *s);
/* So many requests generate beside the plans to come, in the same steps: prompts are limited as beside one's own. */
void nb_sched_set_beside(nb_sched *s, size_t n_decode);
/* The planned item of request id has been computed. */
nb_status nb_sched_computed(nb_sched *s, uint64_t id);
/* One more known token. NB_ERR_LIMIT at max_model_len: the caller ends the request first. */
nb_status nb_sched_push(nb_sched *s, uint64_t id, uint32_t tok);
/* Forgets a request in any state; planned but not computed items are void. Unknown ids are
 * ignored. */
void nb_sched_remove(nb_sched *s, uint64_t id);
/* Ids whose deadline has passed (deadline <= now), at most cap of them; the caller removes them. */
size_t nb_sched_expired(nb_sched *s, double now, uint64_t *id, size_t cap);

/* Times a request was set back by a preemption; 0 for an unknown one. */
size_t nb_sched_n_preempted(const nb_sched *s, uint64_t id);

typedef struct nb_sched_stats {
    size_t n_running, n_waiting; /* waiting: incl. deferred */
    size_t n_deferred;           /* waiting for `after`     */
    size_t n_waiting_tok;        /* tokens not yet computed of waiting requests and prompts */
    uint64_t prefix_queries, prefix_hits; /* tokens, at first admissions                 */
    uint64_t again_queries, again_hits;   /* tokens, at admissions after a preemption    */
    uint64_t n_preempted, preempted_tok;  /* requests; computed tokens that were given up */
} nb_sched_stats;
void nb_sched_get_stats(const nb_sched *s, nb_sched_stats *out);

/* Walks every structure, the cache's too; NULL, or what is broken. */
const char *nb_sched_check(const nb_sched *s);

#endif
