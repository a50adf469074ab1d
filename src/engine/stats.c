/* stats.c - counters, what other threads may ask, and notes for users. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "os/clock.h"

void nb_engine_count_step(nb_engine *e, size_t n_tok, double s)
{
    size_t i = 0; /* bounds 1, 8, 16, 32, ... 16384 */
    for (size_t bound = 1; i < NB_STEP_TOK_BUCKETS && n_tok > bound; i++)
        bound = bound == 1 ? 8 : bound * 2;
    e->stats.count.step_tok[i]++;
    e->stats.count.n_step++;
    e->stats.count.step_tok_sum += n_tok;
    e->stats.count.step_s += s;
}

void nb_engine_publish(nb_engine *e)
{
    nb_sched_stats s;
    nb_kv_cache_stats k;
    nb_engine_stats *c = &e->stats.count;
    nb_shards_stats(e, &s, &k);
    nb_shards_count(e, c);
    c->n_running = s.n_running;
    c->n_waiting = s.n_waiting;
    c->n_deferred = s.n_deferred;
    c->n_waiting_tok = s.n_waiting_tok;
    c->n_block = k.n_block;
    c->n_block_free = k.n_free;
    c->n_block_held = k.n_held;
    c->n_block_once = k.n_once;
    c->n_block_many = k.n_many;
    nb_answers_count(e);
    c->prefix_queries = s.prefix_queries;
    c->prefix_hits = s.prefix_hits;
    c->again_queries = s.again_queries;
    c->again_hits = s.again_hits;
    c->n_evicted = k.n_evicted;
    c->n_preempted = s.n_preempted;
    c->preempted_tok = s.preempted_tok;
    c->n_saturated = 0; /* a shard encodes its own pages; its ranks all encode the same, or each what it has of a context */
    for (size_t i = 0; i < e->n_shard; i++)
        for (size_t r = 0; r < e->pages.n_part; r++)
            c->n_saturated += nb_rank_count(e->rank[nb_shard_rank(e, i) + r].rank).saturated;
    const nb_thrift_count t = nb_rank_count(e->rank[0].rank).thrift;
    c->thrift_scored = t.scored;
    c->thrift_refined = t.refined;
    c->thrift_over = t.over;
    c->thrift_pool_hits = t.pool_hits;
    c->thrift_base_bytes = t.base_bytes;
    c->thrift_residual_bytes = t.residual_bytes;
    nb_mutex_lock(e->queue.lock);
    e->stats.snapshot = *c;
    nb_mutex_unlock(e->queue.lock);
}

void nb_engine_get_stats(const nb_engine *e, nb_engine_stats *s)
{
    nb_mutex_lock(e->queue.lock);
    *s = e->stats.snapshot;
    s->data_rank[0].n_waiting += e->queue.n_queued; /* they have no rank yet */
    s->n_waiting += e->queue.n_queued;              /* submitted during the step that is running */
    s->n_waiting_tok += e->queue.n_queued_tok;
    nb_mutex_unlock(e->queue.lock);
    s->uptime_s = nb_clock_s() - e->stats.t_create;
}

static void reset_cache(nb_engine *e, void *ctx)
{
    nb_answers_clear(e);
    for (size_t k = 0; k < e->n_shard; k++) *(size_t *)ctx += nb_kv_cache_reset(e->shard[k].cache);
    nb_engine_publish(e);
}

nb_status nb_engine_reset_prefix_cache(nb_engine *e, size_t *n_block)
{
    size_t n = 0;
    NB_TRY(nb_engine_call(e, reset_cache, &n));
    if (n_block) *n_block = n;
    return NB_OK;
}

/* The engine's lists against each other and against the scheduler. */
static const char *check_lists(const nb_engine *e)
{
    size_t n_live = 0, n_added = 0, n_table = 0, n_queue = 0;
    nb_sched_stats s;
    nb_kv_cache_stats kv;
    nb_shards_stats(e, &s, &kv);
    for (const nb_run *r = e->live; r; r = r->next) {
        if (r->next && r->next->prev != r) return "engine: the list of requests is broken";
        if (r->over) return "engine: a request that has ended is still listed";
        if (nb_queue_find(&e->queue, r->id) != r)
            return "engine: a request cannot be found by its id";
        n_live++;
        n_added += r->added;
    }
    for (const nb_run *r = e->queue.first; r; r = r->queue_next) n_queue++;
    for (size_t i = 0; i < NB_ENGINE_RUN_TABLE; i++)
        for (const nb_run *r = e->queue.table[i]; r; r = r->chain) n_table++;
    if (n_queue != e->queue.n_queued) return "engine: wrong number of queued requests";
    if (n_table != e->queue.n_live || n_table != n_live + n_queue)
        return "engine: wrong number of requests";
    if (n_added != s.n_running + s.n_waiting)
        return "engine: the scheduler has other requests than the engine";
    return NULL;
}

static void check(nb_engine *e, void *ctx)
{
    const char **what = ctx;
    for (size_t k = 0; k < e->n_shard && !*what; k++) *what = nb_sched_check(e->shard[k].sched);
    if (!*what && e->answers.refill) *what = nb_refill_check(e->answers.refill);
    if (*what) return;
    nb_mutex_lock(e->queue.lock);
    *what = check_lists(e);
    nb_mutex_unlock(e->queue.lock);
}

nb_status nb_engine_check(nb_engine *e, nb_error *err)
{
    const char *what = NULL;
    if (nb_engine_call(e, check, &what) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "nb_engine_check was called from a callback");
    return what ? nb_fail(err, NB_ERR_INTERNAL, "%s", what) : NB_OK;
}

void nb_engine_warn(nb_engine *e, const char *fmt, ...)
{
    const size_t max = sizeof e->stats.warnings;
    size_t at = strlen(e->stats.warnings);
    va_list ap;
    if (at) at += (size_t)snprintf(e->stats.warnings + at, max - at, "; ");
    if (at >= max) return;
    va_start(ap, fmt);
    (void)vsnprintf(e->stats.warnings + at, max - at, fmt, ap);
    va_end(ap);
}
