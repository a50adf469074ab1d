/* shards.c - data-parallel ranks: where a request goes, and one step of all schedulers.
 *
 * Steps are in lock step, because the ranks of a step exchange the rows of their experts.  One thread plans for all:
 * decision 060. */
#include "engine/engine_internal.h"
#include "sched/sched_look.h"

enum { REQUEST_TOK = NB_BLOCK_TOK }; /* a request, beside its prompt, is as much work as so many tokens of prompts */

/* ---- placement ---- */

typedef struct offer {
    size_t n_lack; /* blocks that it could not get now */
    size_t cost;   /* tokens to compute before and for it */
    size_t n_known; /* blocks that a prefix could find: of equal ranks the emptiest cache, so that all are used */
} offer;

static offer offer_of(const nb_shard *s, const nb_sched_request *rq, size_t n_found)
{
    nb_sched_stats st;
    nb_kv_cache_stats kv;
    nb_sched_get_stats(s->sched, &st);
    nb_kv_cache_get_stats(s->cache, &kv);
    const size_t have = nb_kv_cache_available(s->cache), need = rq->n_prompt / NB_BLOCK_TOK + 2 - n_found;
    return (offer){ .n_lack = need > have ? need - have : 0,
                    .cost = st.n_waiting_tok + REQUEST_TOK * (st.n_running + st.n_waiting) + rq->n_prompt -
                            n_found * NB_BLOCK_TOK,
                    .n_known = kv.n_indexed };
}

static bool is_better(const offer *a, const offer *b)
{
    if (!a->n_lack != !b->n_lack) return !a->n_lack;
    if (a->cost != b->cost) return a->cost < b->cost;
    return a->n_known < b->n_known;
}

size_t nb_engine_place(nb_engine *e, const nb_sched_request *rq)
{
    const nb_kv_cache *kv[NB_ENGINE_MAX_RANK];
    size_t n_found[NB_ENGINE_MAX_RANK], best = 0;
    if (e->n_shard == 1 || rq->n_prompt == 0) return 0;
    nb_mutex_lock(e->queue.lock);
    const nb_run *before = rq->after ? nb_queue_find(&e->queue, rq->after) : NULL;
    const size_t same = before && before->added ? before->shard : SIZE_MAX;
    nb_mutex_unlock(e->queue.lock);
    if (same != SIZE_MAX) return same; /* its blocks will be found there */
    for (size_t k = 0; k < e->n_shard; k++) kv[k] = e->shard[k].cache;
    nb_sched_n_found(kv, e->n_shard, rq, n_found);
    offer least = offer_of(&e->shard[0], rq, n_found[0]);
    for (size_t k = 1; k < e->n_shard; k++) {
        const offer o = offer_of(&e->shard[k], rq, n_found[k]);
        if (!is_better(&o, &least)) continue;
        least = o;
        best = k;
    }
    return best;
}

/* ---- a step ---- */

size_t nb_shards_plan(nb_engine *e, double now)
{
    size_t n_decode[NB_ENGINE_MAX_RANK], all = 0;
    for (size_t k = 0; k < e->n_shard; k++) all += n_decode[k] = nb_sched_n_decode(e->shard[k].sched);
    e->step.first[0] = 0;
    for (size_t k = 0; k < e->n_shard; k++) {
        nb_sched *s = e->shard[k].sched;
        nb_sched_set_beside(s, all - n_decode[k]);
        e->step.first[k + 1] = e->step.first[k] + nb_sched_plan(s, now, e->step.item + e->step.first[k]);
    }
    return e->step.first[e->n_shard];
}

void nb_shards_timed(nb_engine *e, double seconds)
{
    nb_sched *s[NB_ENGINE_MAX_RANK];
    for (size_t k = 0; k < e->n_shard; k++) s[k] = e->shard[k].sched;
    nb_sched_timed_together(s, e->n_shard, seconds);
}

/* ---- figures ---- */

void nb_shards_stats(const nb_engine *e, nb_sched_stats *s, nb_kv_cache_stats *k)
{
    *s = (nb_sched_stats){ 0 };
    *k = (nb_kv_cache_stats){ 0 };
    for (size_t i = 0; i < e->n_shard; i++) {
        nb_sched_stats a;
        nb_kv_cache_stats b;
        nb_sched_get_stats(e->shard[i].sched, &a);
        nb_kv_cache_get_stats(e->shard[i].cache, &b);
        s->n_running += a.n_running;
        s->n_waiting += a.n_waiting;
        s->n_deferred += a.n_deferred;
        s->n_waiting_tok += a.n_waiting_tok;
        s->prefix_queries += a.prefix_queries;
        s->prefix_hits += a.prefix_hits;
        s->again_queries += a.again_queries;
        s->again_hits += a.again_hits;
        s->n_preempted += a.n_preempted;
        s->preempted_tok += a.preempted_tok;
        k->n_block += b.n_block;
        k->n_free += b.n_free;
        k->n_held += b.n_held;
        k->n_once += b.n_once;
        k->n_many += b.n_many;
        k->n_indexed += b.n_indexed;
        k->n_evicted += b.n_evicted;
        k->n_published += b.n_published;
        k->n_duplicate += b.n_duplicate;
        k->n_snap += b.n_snap;
        k->n_snap_used += b.n_snap_used;
        k->n_snap_pin += b.n_snap_pin;
        k->n_snap_taken += b.n_snap_taken;
    }
}

void nb_shards_count(const nb_engine *e, nb_engine_stats *out)
{
    _Static_assert((int)NB_MAX_DATA_RANK == (int)NB_ENGINE_MAX_RANK, "data_rank has room for every rank");
    out->n_data_rank = e->n_shard;
    for (size_t i = 0; i < e->n_shard; i++) {
        nb_sched_stats s;
        nb_kv_cache_stats k;
        nb_sched_get_stats(e->shard[i].sched, &s);
        nb_kv_cache_get_stats(e->shard[i].cache, &k);
        out->data_rank[i] = (nb_data_rank_stats){ .n_running = s.n_running,
                                                  .n_waiting = s.n_waiting,
                                                  .n_deferred = s.n_deferred,
                                                  .n_block = k.n_block,
                                                  .n_block_held = k.n_held,
                                                  .prefix_queries = s.prefix_queries,
                                                  .prefix_hits = s.prefix_hits,
                                                  .n_preempted = s.n_preempted };
    }
}
