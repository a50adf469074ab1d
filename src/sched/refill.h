/* refill.h - answers that are computed again as prompts, while nobody else needs the engine.
 *
 * Generated tokens and prompt tokens are computed in different forms, so the next turn, which has the
 * answer in its prompt, does not find the answer's blocks (docs/decisions/027).  A refill is the text of
 * a finished request, prompt and answer, computed in the prompt's form before the next turn comes.
 *
 * A pure state machine over a scheduler and its cache; there is no clock, no thread and no device.
 * Texts wait in order of their ends.  The first is in the scheduler, as a background request, only
 * while nothing else is there:
 *
 *   nb_refill_add(f, &text)        a request has ended
 *   nb_refill_start(f, idle_s)     the scheduler had nothing to plan; true: now it has
 *   nb_refill_computed(f)          the planned item has been computed
 *   nb_refill_yield(f, ...)        before a request is added to the scheduler
 *
 * So a refill preempts nobody, holds no block and no slot that a request could use, and delays a
 * request by the item in hand, at most chunk_tok tokens.  What it computed before it yields stays in
 * the cache.
 *
 * It computes nothing but the answer: of a text whose prompt has left the cache, blocks were short, and it
 * is dropped.  So is the oldest when there are too many, one that an arriving request
 * continues (that computes it itself), and all of them by nb_refill_clear.
 *
 * Owned by the engine thread. */
#ifndef NB_SCHED_REFILL_H
#define NB_SCHED_REFILL_H
#include "sched/sched.h"

#define NB_REFILL_ID UINT64_MAX /* in the scheduler; no other request may have it */

typedef struct nb_refill nb_refill;

typedef struct nb_refill_options {
    size_t max_text, max_tok; /* texts that wait, and their tokens, at most          */
    size_t chunk_tok;         /* tokens of an item, at most; a multiple of NB_BLOCK_TOK */
    double quiet_s;           /* starts when the engine has been idle for this long  */
} nb_refill_options;

/* Borrows scheduler and cache, which must outlive it. */
nb_status nb_refill_create(const nb_refill_options *o, nb_sched *s, nb_kv_cache *kv,
                           nb_refill **out, nb_error *err);
/* Takes its request out of the scheduler. */
void nb_refill_destroy(nb_refill *f);

/* The text of a request that has ended, as the next turn's prompt would begin with it. */
typedef struct nb_refill_text {
    const uint32_t *tok; /* [n_tok], copied */
    size_t n_tok, n_prompt;
    size_t n_expanded, n_upload, rope_from; /* of a prompt of n_tok tokens: see nb_sched_request */
    nb_str salt;
} nb_refill_text;

/* Queues it up to its last full block.  One that has no block beyond its prompt's is not queued.
 * NB_ERR_NOMEM, NB_ERR_LIMIT (more than max_tok): then it is counted as dropped. */
nb_status nb_refill_add(nb_refill *f, const nb_refill_text *t);
/* False: nothing to do, or the scheduler has requests, or the engine was not idle for quiet_s.  True: the next
 * plan is one item of NB_REFILL_ID, with user NULL. */
bool nb_refill_start(nb_refill *f, double idle_s);
/* Full blocks can be found from now on. */
nb_status nb_refill_computed(nb_refill *f);
/* The scheduler is as if there were no refills.  tok[n_tok]: the request that arrives. */
void nb_refill_yield(nb_refill *f, const uint32_t *tok, size_t n_tok, nb_str salt);
/* The text in hand is dropped: a value was not finite. */
void nb_refill_drop(nb_refill *f);
/* All are dropped. */
void nb_refill_clear(nb_refill *f);
/* One is in the scheduler. */
bool nb_refill_active(const nb_refill *f);

typedef struct nb_refill_stats {
    size_t n_text, n_waiting_tok; /* texts that wait, the one in hand too; their tokens not computed */
    uint64_t n_done, n_dropped;   /* texts whose blocks are all in the cache; given up   */
    uint64_t n_tok;               /* tokens computed                                     */
} nb_refill_stats;
void nb_refill_get_stats(const nb_refill *f, nb_refill_stats *out);

/* NULL, or what is broken. */
const char *nb_refill_check(const nb_refill *f);

#endif
