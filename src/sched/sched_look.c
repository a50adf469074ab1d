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

void nb_sched_n_found(const nb_kv_cache *const *kv, size_t n, const nb_sched_request *r, size_t *n_found)
{
    nb_block_key key;
    for (size_t k = 0; k < n; k++) n_found[k] = 0;
    if (r->no_lookup || nb_block_key_root(r->salt, &key) != NB_OK) return;
    for (size_t b = 0; b < (r->n_prompt - 1) / NB_BLOCK_TOK; b++) {
        bool any = false;
        if (nb_block_key_next(&key, r->prompt + b * NB_BLOCK_TOK, nb_sched_form(r->n_expanded, r->n_upload, b),
                              nb_sched_mark(r->rope_from, b), &key) != NB_OK)
            return;
        for (size_t k = 0; k < n; k++) {
            if (n_found[k] != b || nb_kv_cache_find(kv[k], &key) == NB_BLOCK_NONE) continue;
            n_found[k]++;
            any = true;
        }
        if (!any) return;
    }
}
