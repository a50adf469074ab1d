/* sched_look.h - what a request has come to, for people to look at. */
#ifndef NB_SCHED_SCHED_LOOK_H
#define NB_SCHED_SCHED_LOOK_H
#include "sched/sched.h"

/* Pointers live until the next call that changes the request. */
typedef struct nb_sched_look_at {
    bool running; /* else all below but the tokens is 0 */
    size_t slot;
    const uint32_t *tok; /* [n_known] */
    size_t n_known, n_computed, n_cached;
    const uint32_t *block; /* [n_block] held, in order of position */
    size_t n_block;
} nb_sched_look_at;

/* False for an unknown id. */
bool nb_sched_look(const nb_sched *s, uint64_t id, nb_sched_look_at *out);

/* How many leading blocks of a request's prompt each of n caches knows. */
void nb_sched_n_found(const nb_kv_cache *const *kv, size_t n, const nb_sched_request *r, size_t *n_found);

#endif
