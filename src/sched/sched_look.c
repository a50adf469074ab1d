/* sched_look.c - a view of one request, between two steps. */
#include "sched/sched_look.h"

#include "sched/sched_internal.h"

bool nb_sched_look(const nb_sched *s, uint64_t id, nb_sched_look_at *out)
{
    const nb_req *r = nb_sched_find_req(s, id);
    if (!r) return false;
    *out = (nb_sched_look_at){ .running = r->state == NB_REQ_RUNNING,
                               .tok = r->tok,
                               .n_known = r->n_known };
    if (!out->running) return true;
    out->slot = r->slot;
    out->n_computed = r->n_computed;
    out->n_cached = r->n_cached;
    out->block = r->block;
    out->n_block = r->n_block;
    return true;
}
