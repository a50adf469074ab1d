/* sched_check.c - walks every structure of nb_sched.  Each walk is bounded, so that a broken
 * list is reported and not followed for ever. */
#include "sched/sched_internal.h"

static const char *check_all(const nb_sched *s)
{
    size_t n = 0, n_chained = 0, n_dependent = 0;
    const nb_req *prev = NULL;
    for (const nb_req *r = s->all_head; r; prev = r, r = r->all_next) {
        if (++n > s->n_req) return "requests: more than their count";
        if (r->all_prev != prev) return "requests: links disagree";
        if (prev && prev->seq >= r->seq) return "requests: not in order of arrival";
        if (nb_sched_find_req(s, r->r.id) != r) return "requests: one is not found by its id";
        if (r->r.deadline < s->first_deadline) return "requests: a deadline before the first";
        n_dependent += r->n_dependent;
    }
    if (s->all_tail != prev || n != s->n_req) return "requests: fewer than their count";
    if (s->background && nb_sched_find_req(s, s->background->r.id) != s->background)
        return "requests: the one in the background has gone";
    for (size_t i = 0; i <= s->bucket_mask; i++)
        for (const nb_req *r = s->bucket[i]; r; r = r->chain)
            if (++n_chained > s->n_req) return "ids: more entries than requests";
    if (n_chained != s->n_req) return "ids: fewer entries than requests";
    return n_dependent == s->deferred.n ? NULL : "deferred: wrong number of dependents";
}

static const char *check_lengths(const nb_sched *s, const nb_req *r)
{
    if (r->n_known < r->r.n_prompt || r->n_known > s->o.max_model_len || r->n_known > r->cap_tok)
        return "request: wrong number of known tokens";
    if (r->n_computed > r->n_known || r->n_plan > r->n_known - r->n_computed)
        return "request: more computed than known";
    if (r->n_block > nb_n_block(r->cap_tok)) return "request: block table too long";
    if (r->n_block < nb_n_block(r->n_computed + r->n_plan)) return "request: block table too short";
    if (r->n_pub > r->n_computed / NB_BLOCK_TOK) return "request: published before computed";
    if (r->n_key > r->n_known / NB_BLOCK_TOK) return "request: keys of unknown tokens";
    if (r->n_cached > r->n_computed || r->n_cached % NB_BLOCK_TOK)
        return "request: wrong number of cached tokens";
    if (!r->prompt_done && r->n_computed >= r->r.n_prompt)
        return "request: its prompt is computed and not called so";
    return NULL;
}

static const char *check_waiting(const nb_req *r, nb_req_state state)
{
    if (r->state != state) return "queue: a request in another state";
    if (r->n_computed || r->n_block || r->n_pub || r->n_cached || r->n_plan)
        return "queue: a waiting request holds something";
    return NULL;
}

static const char *check_queue(const nb_sched *s, const nb_req_class *c, size_t *n_all,
                               size_t *n_tok)
{
    size_t n = 0;
    const nb_req *prev = NULL;
    for (const nb_req *r = c->queue.head; r; prev = r, r = r->queue_next) {
        if (++n > c->queue.n || n > s->n_req) return "queue: longer than its count";
        const char *what = check_waiting(r, NB_REQ_QUEUED);
        if (what) return what;
        if (r->queue_prev != prev) return "queue: links disagree";
        if (r->level != c->level) return "queue: a request of another level";
        if (prev && !prev->n_preempted && (r->n_preempted || prev->seq >= r->seq))
            return "queue: not in order of arrival";
        *n_tok += r->n_known;
    }
    if (c->queue.tail != prev || n != c->queue.n) return "queue: shorter than its count";
    *n_all += n;
    return n ? NULL : "queue: an empty class";
}

static const char *check_queues(const nb_sched *s)
{
    size_t n = 0, n_tok = 0, n_deferred = 0;
    if (s->n_cls > s->cap_cls || s->cap_cls < s->n_req) return "queue: too few classes";
    for (size_t i = 0; i < s->n_cls; i++) {
        for (size_t j = 0; j < i; j++)
            if (s->cls[j].level == s->cls[i].level) return "queue: a level twice";
        const char *what = check_queue(s, &s->cls[i], &n, &n_tok);
        if (what) return what;
    }
    const nb_req *prev = NULL;
    for (const nb_req *r = s->deferred.head; r; prev = r, r = r->queue_next) {
        if (++n_deferred > s->deferred.n) return "deferred: longer than its count";
        const char *what = check_waiting(r, NB_REQ_DEFERRED);
        if (what) return what;
        if (r->queue_prev != prev) return "deferred: links disagree";
        const nb_req *first = nb_sched_find_req(s, r->r.after);
        if (!first || first->prompt_done || !first->n_dependent)
            return "deferred: waits for nothing";
        n_tok += r->n_known;
    }
    if (s->deferred.tail != prev || n_deferred != s->deferred.n)
        return "deferred: shorter than its count";
    if (n != s->n_queued) return "queue: wrong number of waiting requests";
    if (n_tok != s->n_queued_tok) return "queue: wrong number of waiting tokens";
    return n + n_deferred + s->n_run == s->n_req ? NULL : "requests: one is in no list";
}

static const char *check_running(const nb_sched *s)
{
    if (s->n_run > s->o.max_num_seqs || s->n_run + s->n_free_slot != s->o.max_num_seqs)
        return "slots: one is lost";
    for (size_t i = 0; i < s->n_free_slot; i++) {
        if (s->free_slot[i] >= s->o.max_num_seqs) return "slots: out of range";
        for (size_t j = 0; j < i; j++)
            if (s->free_slot[i] == s->free_slot[j]) return "slots: free twice";
    }
    for (size_t i = 0; i < s->n_run; i++) {
        const nb_req *r = s->run[i];
        if (r->state != NB_REQ_RUNNING || nb_sched_find_req(s, r->r.id) != r)
            return "running: a request that does not run";
        if (r->run_pos != i) return "running: a wrong place";
        if (r->slot >= s->o.max_num_seqs) return "slots: out of range";
        for (size_t j = 0; j < i; j++)
            if (s->run[j]->slot == r->slot) return "slots: used twice";
        for (size_t j = 0; j < s->n_free_slot; j++)
            if (s->free_slot[j] == r->slot) return "slots: used and free";
    }
    return NULL;
}

/* Items of the waiting are excluded by check_waiting. */
static const char *check_plan(const nb_sched *s)
{
    size_t n_tok = 0;
    for (size_t i = 0; i < s->n_run; i++) n_tok += s->run[i]->n_plan;
    return n_tok > s->o.max_step_tok ? "plan: too many tokens" : NULL;
}

/* Marks and names of the blocks of one running request; counts its holds. */
static const char *check_table(const nb_sched *s, const nb_req *r)
{
    for (size_t b = 0; b < r->n_block; b++) {
        nb_kv_block_info info;
        if (r->block[b] >= s->n_kv_block) return "blocks: id out of range";
        s->count[r->block[b]]++;
        nb_kv_cache_block(s->kv, r->block[b], &info);
        if (b >= r->n_pub) {
            if (info.n_ref != 1 || info.indexed) return "blocks: an open block is shared";
        } else if (info.indexed && memcmp(&info.key, &r->key[b], sizeof info.key) != 0) {
            return "blocks: a block with another key";
        }
    }
    return r->n_pub <= r->n_key ? NULL : "blocks: published without a key";
}

/* Nobody but its running requests pins snapshots. */
static const char *check_snaps(const nb_sched *s)
{
    size_t n = 0;
    nb_kv_cache_stats ks;
    nb_kv_cache_get_stats(s->kv, &ks);
    for (const nb_req *r = s->all_head; r; r = r->all_next) {
        n += (size_t)(r->load != NB_SNAP_NONE) + (size_t)(r->save != NB_SNAP_NONE);
        if (r->save != NB_SNAP_NONE && (!r->n_plan || (r->n_computed + r->n_plan) % NB_BLOCK_TOK))
            return "snapshots: one to be taken inside a block";
        if (r->load != NB_SNAP_NONE && r->n_computed != r->n_cached)
            return "snapshots: one to be loaded behind the hit";
        if (r->state != NB_REQ_RUNNING && (r->load != NB_SNAP_NONE || r->save != NB_SNAP_NONE))
            return "snapshots: of a waiting request";
    }
    return n == ks.n_snap_pin ? NULL : "snapshots: pins and requests disagree";
}

/* Nobody but the scheduler's requests holds blocks. */
static const char *check_holds(const nb_sched *s)
{
    for (size_t i = 0; i < s->n_kv_block; i++) s->count[i] = 0;
    for (const nb_req *r = s->all_head; r; r = r->all_next) {
        const char *what = check_lengths(s, r);
        if (!what) what = check_table(s, r);
        if (what) return what;
    }
    for (size_t i = 0; i < s->n_kv_block; i++) {
        nb_kv_block_info info;
        nb_kv_cache_block(s->kv, (uint32_t)i, &info);
        if (info.n_ref != s->count[i]) return "blocks: holders and tables disagree";
    }
    return check_snaps(s);
}

const char *nb_sched_check(const nb_sched *s)
{
    const char *what = nb_kv_cache_check(s->kv);
    if (!what) what = check_all(s);
    if (!what) what = check_queues(s);
    if (!what) what = check_running(s);
    if (!what) what = check_plan(s);
    if (!what) what = check_holds(s);
    return what;
}
