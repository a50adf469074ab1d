/* sched_plan.c - nb_sched_plan: decodes, the rest of the running, admissions, what is left.
 *
 * Planning sets n_plan, the tokens to compute, of running requests; items are written at the
 * end from those that still run, so that a victim can be taken out at any time.  Two passes keep the
 * cap on chunks simple: the first gives every request its chunk, and only when nobody else can use
 * tokens the second hands what is left to those that were cut, in the same order.
 *
 * An admission that lacks blocks would look up its whole prefix again in each step.  It remembers how
 * many blocks it lacked, and is not tried again before as many were released or published. */
#include <math.h>

#include "sched/sched_internal.h"

static size_t n_rest(const nb_req *r)
{
    return r->n_known - r->n_computed;
}

/* ---- snapshots ---- */

/* The next position behind `pos` where a snapshot of r is taken; SIZE_MAX: there is none. */
static size_t next_snap(const nb_sched *s, const nb_req *r, size_t pos)
{
    if (!s->o.snap_tok) return SIZE_MAX;
    const size_t prompt = r->r.n_prompt, last = (prompt - 1) / NB_BLOCK_TOK * NB_BLOCK_TOK;
    const size_t at[] = { r->branch, r->r.background ? 0 : last,
                          prompt % NB_BLOCK_TOK ? 0 : prompt };
    size_t next = (pos / s->o.snap_tok + 1) * s->o.snap_tok;
    for (size_t i = 0; i < NB_COUNT(at); i++)
        if (at[i] > pos) next = nb_min(next, at[i]);
    return next;
}

/* A place for the state at the end of r's item, where one is taken and the block is not known to have one. */
static void find_place(nb_sched *s, nb_req *r)
{
    const size_t end = r->n_computed + r->n_plan;
    if (r->n_plan == 0 || next_snap(s, r, r->n_computed) != end) return;
    const size_t n = end / NB_BLOCK_TOK;
    if (nb_req_keys(r, n) != NB_OK) return; /* costs a hit, not the request */
    const uint32_t have = nb_kv_cache_find(s->kv, &r->key[n - 1]);
    if (have == NB_BLOCK_NONE || nb_kv_snap_of(s->kv, have) == NB_SNAP_NONE)
        r->save = nb_kv_snap_acquire(s->kv);
}

/* Tokens r can compute in one item: one form, one rope table, its own cap, no snapshot inside. */
static size_t item_limit(const nb_sched *s, const nb_req *r)
{
    size_t n = nb_min(n_rest(r), next_snap(s, r, r->n_computed) - r->n_computed);
    if (r->n_computed < r->r.n_expanded) n = nb_min(n, r->r.n_expanded - r->n_computed);
    if (r->n_computed < r->r.n_upload) n = nb_min(n, r->r.n_upload - r->n_computed);
    if (r->n_computed < r->r.rope_from) n = nb_min(n, r->r.rope_from - r->n_computed);
    return r->r.max_item_tok ? nb_min(n, r->r.max_item_tok) : n;
}

static bool is_decode(const nb_req *r)
{
    return n_rest(r) == 1;
}

/* How many of n more tokens of r fit into the work that is left.  Whole blocks where something is cut off;
 * the first prompt of a step gets one block in any case. */
static size_t paced(const nb_sched *s, const nb_req *r, size_t n)
{
    if (is_decode(r)) return n;
    const size_t before = r->n_computed + r->n_plan;
    size_t fit = nb_pace_fit(&s->pace, s->work_left, n, before);
    if (fit < n) {
        const size_t end = (before + fit) / NB_BLOCK_TOK * NB_BLOCK_TOK;
        fit = end > before ? end - before : 0;
    }
    return fit || s->work > 0 ? fit : nb_min(n, NB_BLOCK_TOK);
}

static void give(nb_sched *s, nb_req *r, size_t n_tok)
{
    if (!is_decode(r)) {
        const double work = nb_pace_chunk(&s->pace, n_tok, r->n_computed + r->n_plan);
        s->work += work;
        s->work_left = fmax(0, s->work_left - work);
    }
    r->n_plan += n_tok;
    s->budget -= n_tok;
}

/* Whether another prompt could get something. */
static bool has_room(const nb_sched *s)
{
    return s->budget && (s->work_left >= NB_BLOCK_TOK || !(s->work > 0));
}

/* ---- preemption ---- */

static uint32_t last_block(const nb_req *r)
{
    return r->n_block ? r->block[r->n_block - 1] : NB_BLOCK_NONE;
}

/* Never the oldest unless it is alone; NULL: the one in need is the oldest, and all others are better.
 * helps: only requests with a block that may be the next one of in_need. */
static nb_req *worst(const nb_sched *s, const nb_req *in_need, bool helps)
{
    nb_req *v = s->n_run == 1 ? s->run[0] : NULL;
    for (size_t i = 1; i < s->n_run; i++) {
        nb_req *r = s->run[i];
        if (r->level < in_need->level) continue; /* better than the one in need */
        if (helps && !nb_kv_cache_any_follows(s->kv, last_block(in_need), r->block, r->n_block)) continue;
        if (!v || r->level > v->level || (r->level == v->level && r->n_computed <= v->n_computed))
            v = r; /* worse, or not more computed and younger */
    }
    return v;
}

static nb_req *find_victim(const nb_sched *s, const nb_req *in_need)
{
    nb_req *v = worst(s, in_need, true);
    return v ? v : worst(s, in_need, false);
}

static void preempt(nb_sched *s, nb_req *r, double now)
{
    s->stat.n_preempted++;
    s->stat.preempted_tok += r->n_computed;
    nb_sched_stop(s, r);
    r->n_preempted++;
    s->n_queued_tok += r->n_known;
    nb_sched_enqueue(s, r, true, now);
}

static bool add_block(nb_sched *s, nb_req *r)
{
    if (nb_kv_cache_acquire_after(s->kv, last_block(r), &r->block[r->n_block]) != NB_OK) return false;
    r->n_block++;
    return true;
}

/* Blocks for the first n_tok tokens of r. false: it waits. */
static bool get_blocks(nb_sched *s, nb_req *r, size_t n_tok, double now)
{
    const size_t n = nb_n_block(n_tok);
    while (r->n_block < n) {
        if (add_block(s, r)) continue;
        nb_req *v = find_victim(s, r);
        if (!v) return false;
        preempt(s, v, now);
        if (v == r) return false;
    }
    return true;
}

/* ---- the running ---- */

static void plan_running(nb_sched *s, bool decodes, double now)
{
    for (size_t i = 0; i < s->n_run && s->budget;) {
        nb_req *r = s->run[i];
        if (n_rest(r) && is_decode(r) == decodes && r->n_plan == 0) {
            const size_t most = nb_min(nb_min(item_limit(s, r), s->o.max_chunk_tok), s->budget);
            const size_t n = paced(s, r, most);
            if (n && get_blocks(s, r, r->n_computed + n, now)) give(s, r, n);
        }
        /* Victims before it moved it; when it was one itself, run_pos is where the next is now. */
        i = r->state == NB_REQ_RUNNING ? r->run_pos + 1 : r->run_pos;
    }
}

/* ---- admission ---- */

static double aged_level(const nb_sched *s, const nb_req *r, double now)
{
    const double waited_s = r->waited_s + (now > r->since ? now - r->since : 0);
    return (double)r->level - (s->o.age_s > 0 ? floor(waited_s / s->o.age_s) : 0);
}

/* The best that a request of the class has come to.  Behind those that a preemption brought back the
 * others are in order of arrival: the first of these has waited longest. */
static double class_level(const nb_sched *s, const nb_req_class *c, double now)
{
    const nb_req *r = c->queue.head;
    double best = aged_level(s, r, now);
    while (r->n_preempted && r->queue_next) {
        r = r->queue_next;
        best = fmin(best, aged_level(s, r, now));
    }
    return best;
}

/* The waiting request that is next by the policy, or NULL. */
static nb_req *next_waiting(const nb_sched *s, double now)
{
    nb_req *best = NULL;
    double best_level = 0;
    for (size_t i = 0; i < s->n_cls; i++) {
        nb_req *r = s->cls[i].queue.head;
        const double level = class_level(s, &s->cls[i], now);
        if (!best || level < best_level || (!(level > best_level) && r->seq < best->seq)) {
            best = r;
            best_level = level;
        }
    }
    return best;
}

/* Leading blocks that the index has, into r->block, up to one to go on from. */
static size_t look_up(const nb_sched *s, nb_req *r)
{
    const size_t n_max = r->r.no_lookup ? 0 : (r->n_known - 1) / NB_BLOCK_TOK;
    size_t n = 0;
    for (; n < n_max; n++) {
        if (nb_req_keys(r, n + 1) != NB_OK) break; /* costs a hit, not the request */
        const uint32_t id = nb_kv_cache_find(s->kv, &r->key[n]);
        if (id == NB_BLOCK_NONE) break;
        r->block[n] = id;
    }
    const size_t n_found = n;
    while (s->o.snap_tok && n && nb_kv_snap_of(s->kv, r->block[n - 1]) == NB_SNAP_NONE) n--;
    r->branch = n < n_found ? n_found * NB_BLOCK_TOK : 0;
    return n;
}

static void count_lookup(nb_sched *s, const nb_req *r)
{
    if (r->r.no_lookup || r->r.background) return;
    uint64_t *queries = r->n_preempted ? &s->stat.again_queries : &s->stat.prefix_queries;
    uint64_t *hits = r->n_preempted ? &s->stat.again_hits : &s->stat.prefix_hits;
    *queries += r->n_known;
    *hits += r->n_cached;
}

/* false: it lacks blocks. */
static bool admit(nb_sched *s, nb_req *r, double now)
{
    if (s->n_run && s->n_gain < r->retry_at) return false;
    const size_t n_all = nb_n_block(r->n_known), n_most = nb_min(n_all + 1, nb_n_block(s->o.max_model_len));
    size_t n_hit = look_up(s, r), n_lack = nb_kv_cache_lacks(s->kv, r->block, n_hit, n_most - n_hit);
    const size_t n_whole = n_hit - n_hit % NB_KV_UNIT_BLOCKS;
    if (n_lack && n_whole < n_hit && !nb_kv_cache_lacks(s->kv, r->block, n_whole, n_most - n_whole)) {
        n_hit = n_whole; /* only the part of the unit is full: the unit again, elsewhere */
        n_lack = 0;
    }
    if (n_lack) {
        r->retry_at = s->n_gain + n_lack;
        return false;
    }
    for (size_t i = 0; i < n_hit; i++) nb_kv_cache_hold(s->kv, r->block[i], true);
    if (s->o.snap_tok && n_hit) {
        r->load = nb_kv_snap_of(s->kv, r->block[n_hit - 1]);
        nb_kv_snap_pin(s->kv, r->load);
    }
    for (r->n_block = n_hit; r->n_block < n_all;) {
        const bool have = add_block(s, r);
        NB_ASSERT(have); /* that many are available */
    }
    nb_sched_dequeue(s, r);
    s->n_queued_tok -= r->n_known;
    r->state = NB_REQ_RUNNING;
    r->waited_s += now > r->since ? now - r->since : 0;
    r->n_pub = n_hit;
    r->n_computed = r->n_cached = n_hit * NB_BLOCK_TOK;
    size_t *slot = &s->free_slot[r->r.background ? 0 : s->n_free_slot - 1];
    r->slot = *slot;
    *slot = s->free_slot[--s->n_free_slot];
    r->run_pos = s->n_run;
    s->run[s->n_run++] = r;
    count_lookup(s, r);
    return true;
}

static void plan_waiting(nb_sched *s, double now)
{
    while (has_room(s) && s->n_free_slot) {
        nb_req *r = next_waiting(s, now);
        if (!r || !admit(s, r, now)) return;
        const size_t most = nb_min(nb_min(item_limit(s, r), s->o.max_chunk_tok), s->budget);
        const size_t n = paced(s, r, most);
        give(s, r, n ? n : nb_min(most, NB_BLOCK_TOK)); /* who is admitted gets something */
    }
}

/* ---- what is left ---- */

/* Nobody is preempted for it: a request takes what its blocks, and those nobody holds, allow. */
static void plan_left(nb_sched *s)
{
    for (size_t i = 0; i < s->n_run && s->budget; i++) {
        nb_req *r = s->run[i];
        const size_t more = nb_min(item_limit(s, r) - r->n_plan, s->budget);
        size_t end = r->n_computed + r->n_plan + (more ? paced(s, r, more) : 0);
        while (r->n_block < nb_n_block(end) && add_block(s, r)) {}
        end = nb_min(end, r->n_block * NB_BLOCK_TOK);
        if (end > r->n_computed + r->n_plan) give(s, r, end - r->n_computed - r->n_plan);
    }
}

static void write_item(const nb_req *r, bool admitted, nb_sched_item *it)
{
    *it = (nb_sched_item){
        .id = r->r.id,
        .user = r->r.user,
        .slot = r->slot,
        .pos0 = r->n_computed,
        .n_tok = r->n_plan,
        .tok = r->tok + r->n_computed,
        .block = r->block,
        .n_block = r->n_block,
        .expanded = r->n_computed < r->r.n_expanded,
        .upload = r->n_computed < r->r.n_upload,
        .rope_long = r->n_computed >= r->r.rope_from,
        .last = r->n_plan == n_rest(r),
        .admitted = admitted,
        .n_cached = r->n_cached,
        .load = r->load,
        .save = r->save,
    };
}

/* Decodes of the first n_before running requests, then their other items, then the admitted. */
static size_t write_items(const nb_sched *s, size_t n_before, nb_sched_item *item)
{
    size_t n = 0;
    for (size_t i = 0; i < n_before; i++)
        if (s->run[i]->n_plan && n_rest(s->run[i]) == 1) write_item(s->run[i], false, &item[n++]);
    for (size_t i = 0; i < s->n_run; i++)
        if (s->run[i]->n_plan && (i >= n_before || n_rest(s->run[i]) > 1))
            write_item(s->run[i], i >= n_before, &item[n++]);
    return n;
}

/* What the plan holds so far, without victims. */
static void count_plan(nb_sched *s)
{
    s->n_decode = 0;
    s->work = 0;
    for (size_t i = 0; i < s->n_run; i++) {
        const nb_req *r = s->run[i];
        if (r->n_plan && is_decode(r))
            s->n_decode++;
        else
            s->work += nb_pace_chunk(&s->pace, r->n_plan, r->n_computed);
    }
}

/* Work of prompts that run, or could run at once. */
static double backlog(const nb_sched *s)
{
    double work = 0;
    for (size_t i = 0; i < s->n_run; i++)
        if (!is_decode(s->run[i]))
            work += nb_pace_chunk(&s->pace, n_rest(s->run[i]), s->run[i]->n_computed);
    if (s->n_queued)
        work += (double)s->n_queued_tok * (double)nb_min(s->n_free_slot, s->n_queued) /
                (double)s->n_queued;
    return work;
}

size_t nb_sched_plan(nb_sched *s, double now, nb_sched_item *item)
{
    for (size_t i = 0; i < s->n_run; i++) { /* planned and never computed */
        s->run[i]->n_plan = 0;
        nb_sched_unpin(s, &s->run[i]->save);
    }
    s->budget = s->o.max_step_tok;
    s->work = 0;
    s->work_left = (double)INFINITY;
    plan_running(s, true, now);
    count_plan(s);
    if (s->n_decode || s->n_beside)
        s->work_left = nb_pace_work(&s->pace, s->n_decode ? s->n_decode : 1, backlog(s));
    plan_running(s, false, now);
    if (s->n_run && s->run[0]->n_plan == 0 && n_rest(s->run[0])) {
        /* The oldest got no block, since all others were better.  One of these may have been a
         * victim of itself since then, and somebody must go on. */
        plan_running(s, true, now);
        plan_running(s, false, now);
    }
    const size_t n_before = s->n_run;
    plan_waiting(s, now);
    plan_left(s);
    count_plan(s);
    for (size_t i = 0; i < s->n_run; i++) find_place(s, s->run[i]);
    return write_items(s, n_before, item);
}

void nb_sched_timed(nb_sched *s, double seconds)
{
    nb_pace_note(&s->pace, s->n_decode, s->work, seconds);
}

void nb_sched_timed_together(nb_sched *const *s, size_t n, double seconds)
{
    nb_sched *most = s[0];
    for (size_t i = 1; i < n; i++)
        if (s[i]->work > most->work || (!(s[i]->work < most->work) && s[i]->n_decode > most->n_decode))
            most = s[i];
    nb_sched_timed(most, seconds);
    for (size_t i = 0; i < n; i++) s[i]->pace = most->pace;
}

size_t nb_sched_n_decode(const nb_sched *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_run; i++) n += is_decode(s->run[i]);
    return n;
}

void nb_sched_set_beside(nb_sched *s, size_t n_decode)
{
    s->n_beside = n_decode;
}
