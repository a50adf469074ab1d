/* sched_rules.c - see sched_rules.h.
 *
 * Which requests were set back (preempted) is not in a plan.  It follows from the holders of the
 * blocks: every block must be held exactly as often as it stands in the tables of the running
 * requests. */
#include "prop/sched_rules.h"

/* All places for requests, alive or not. */
#define EACH(w, it) for (sim_req *it = (w)->req; it < (w)->req + SIM_LIVE; it++)
#define LL(x) ((unsigned long long)(x))

bool sim_deferred(sim *w, const sim_req *r)
{
    const sim_req *a = r->rq.after ? sim_find(w, r->rq.after) : NULL;
    return a && !a->prompt_done && a != r;
}

/* Blocks that must be available to r, beside those it finds. */
static size_t pages_at_admission(const sim *w, const sim_req *r)
{
    const size_t n = sim_pages(r->n_known) + 1, cap = sim_pages(w->o.max_model_len);
    return n < cap ? n : cap;
}

/* The end of the tokens that one item may compute from `at` on. */
static size_t natural_end(const sim *w, const sim_req *r, size_t at)
{
    size_t end = r->n_known;
    if (w->o.snap_tok) {
        const size_t next = (at / w->o.snap_tok + 1) * w->o.snap_tok;
        const size_t last = (r->rq.n_prompt - 1) / NB_BLOCK_TOK * NB_BLOCK_TOK;
        if (next < end) end = next;
        if (at < last && last < end) end = last;
        if (at < r->rq.n_prompt && r->rq.n_prompt % NB_BLOCK_TOK == 0 && r->rq.n_prompt < end)
            end = r->rq.n_prompt;
    }
    if (at < r->rq.n_expanded && r->rq.n_expanded < end) end = r->rq.n_expanded;
    if (at < r->rq.rope_from && r->rq.rope_from < end) end = r->rq.rope_from;
    if (r->rq.max_item_tok && end - at > r->rq.max_item_tok) end = at + r->rq.max_item_tok;
    return end;
}

/* ---- one item ---- */

/* Loaded after a hit only; taken at the ends of blocks, at any rate where the prompt's last one ends. */
static int check_snaps(const sim *w, sim_req *r, const nb_sched_item *it)
{
    prop *p = w->p;
    const size_t end = it->pos0 + it->n_tok,
                 last = (r->rq.n_prompt - 1) / NB_BLOCK_TOK * NB_BLOCK_TOK;
    if ((it->load != NB_SNAP_NONE) != (w->o.snap_tok && it->pos0 && it->pos0 == it->n_cached))
        return prop_fail(p, "request %llu at %zu, %zu found: snapshot %d", LL(it->id), it->pos0,
                         it->n_cached, (int)it->load);
    if (it->save != NB_SNAP_NONE &&
        (!w->o.snap_tok || end % NB_BLOCK_TOK || it->save >= w->ko.n_snap))
        return prop_fail(p, "request %llu: snapshot %d is taken at %zu", LL(it->id), (int)it->save,
                         end);
    if (w->o.snap_tok && w->ko.n_snap > 2 * SIM_SEQS && end == last && it->save == NB_SNAP_NONE &&
        nb_kv_cache_find(w->kv, sim_key(r, end / NB_BLOCK_TOK - 1)) == NB_BLOCK_NONE)
        return prop_fail(p, "request %llu: no snapshot is taken at %zu", LL(it->id), end);
    return 0;
}

static int check_tokens(const sim *w, sim_req *r, const nb_sched_item *it)
{
    prop *p = w->p;
    const size_t end = it->pos0 + it->n_tok;
    if (it->n_tok == 0 || end > r->n_known || end > natural_end(w, r, it->pos0))
        return prop_fail(p, "request %llu: tokens %zu to %zu of %zu, may end at %zu", LL(it->id),
                         it->pos0, end, r->n_known, natural_end(w, r, it->pos0));
    if (memcmp(it->tok, r->tok + it->pos0, it->n_tok * sizeof *it->tok) != 0)
        return prop_fail(p, "request %llu: other tokens than were given", LL(it->id));
    if (it->last != (end == r->n_known))
        return prop_fail(p, "request %llu: `last` is %d at %zu of %zu", LL(it->id), it->last, end,
                         r->n_known);
    if (it->expanded != (it->pos0 < r->rq.n_expanded) ||
        it->rope_long != (it->pos0 >= r->rq.rope_from))
        return prop_fail(p, "request %llu at %zu: expanded %d, long rope %d", LL(it->id), it->pos0,
                         it->expanded, it->rope_long);
    return check_snaps(w, r, it);
}

static int check_place(const sim *w, const sim_req *r, const nb_sched_item *it)
{
    prop *p = w->p;
    const size_t end = it->pos0 + it->n_tok;
    if (it->slot >= w->o.max_num_seqs) return prop_fail(p, "slot %zu is out of range", it->slot);
    if (it->n_block < end / NB_BLOCK_TOK || it->n_block > sim_pages(w->o.max_model_len))
        return prop_fail(p, "request %llu: %zu blocks for %zu tokens", LL(it->id), it->n_block,
                         end);
    for (size_t i = 0; i < it->n_block; i++)
        if (it->block[i] >= w->ko.n_block)
            return prop_fail(p, "request %llu: block %u", LL(it->id), (unsigned)it->block[i]);
    if (it->admitted) {
        if (it->pos0 != it->n_cached || it->n_cached % NB_BLOCK_TOK)
            return prop_fail(p, "request %llu begins at %zu with %zu tokens found", LL(it->id),
                             it->pos0, it->n_cached);
        if (it->n_block < sim_pages(r->n_known) || it->n_block > pages_at_admission(w, r))
            return prop_fail(p, "request %llu was admitted with %zu blocks, expected %zu",
                             LL(it->id), it->n_block, sim_pages(r->n_known));
        return 0;
    }
    if (!r->running) return prop_fail(p, "request %llu was not admitted", LL(it->id));
    if (it->pos0 != r->n_computed)
        return prop_fail(p, "request %llu goes on at %zu, computed were %zu", LL(it->id), it->pos0,
                         r->n_computed);
    if (it->slot != r->slot)
        return prop_fail(p, "request %llu moved from slot %zu to %zu", LL(it->id), r->slot,
                         it->slot);
    if (it->n_block < r->n_table || memcmp(it->block, r->table, r->n_table * sizeof *it->block))
        return prop_fail(p, "request %llu has other blocks than before", LL(it->id));
    return 0;
}

static void set_back(sim *w, sim_plan *pl, sim_req *r)
{
    prop_trace(w->p, "request %llu is set back from %zu", LL(r->rq.id), r->n_computed);
    r->running = r->unsure = false;
    r->victim = r->head = true;
    r->n_computed = r->n_table = 0;
    r->t_queue = w->now;
    pl->n_victim++;
}

static int take_item(sim *w, sim_plan *pl, const nb_sched_item *it)
{
    sim_req *r = sim_find(w, it->id);
    if (!r || it->user != r) return prop_fail(w->p, "an item of request %llu", LL(it->id));
    if (r->item) return prop_fail(w->p, "request %llu has two items", LL(it->id));
    prop_trace(w->p, "request %llu: %zu tokens at %zu of %zu, slot %zu%s%s, %zu cached", LL(it->id),
               it->n_tok, it->pos0, r->n_known, it->slot, it->last ? ", last" : "",
               it->admitted ? ", admitted" : "", it->n_cached);
    r->item = it;
    if (it->admitted && r->running) {
        if (r->unsure)
            r->running = r->unsure = false;
        else
            set_back(w, pl, r); /* in this very plan */
    }
    r->unsure = false;
    if (check_place(w, r, it) || check_tokens(w, r, it)) return 1;
    for (const nb_sched_item *b = pl->item; b < it; b++)
        if (b->slot == it->slot) return prop_fail(w->p, "two items in slot %zu", it->slot);
    sim_clear_new(w, r, it);
    r->slot = it->slot;
    r->n_table = it->n_block;
    memcpy(r->table, it->block, it->n_block * sizeof *it->block);
    if (it->admitted) {
        r->running = true;
        r->order = ++w->n_order;
        r->n_computed = it->n_cached;
    }
    pl->n_tok += it->n_tok;
    return 0;
}

/* ---- who was set back ---- */

static void count_holders(const sim *w, bool unsure_too, size_t count[SIM_BLOCKS])
{
    memset(count, 0, SIM_BLOCKS * sizeof *count);
    for (const sim_req *r = w->req; r < w->req + SIM_LIVE; r++)
        if (r->live && r->running && (unsure_too || !r->unsure))
            for (size_t k = 0; k < r->n_table; k++) count[r->table[k]]++;
}

static bool held_more(const sim_plan *pl, const size_t count[SIM_BLOCKS], const sim_req *r)
{
    for (size_t k = 0; k < r->n_table; k++)
        if (pl->n_ref[r->table[k]] <= count[r->table[k]]) return false;
    return true;
}

static int find_victims(sim *w, sim_plan *pl, bool were_unsure)
{
    size_t count[SIM_BLOCKS], n_maybe = 0;
    const uint64_t want = pl->after.n_preempted - pl->before.n_preempted;
    EACH(w, r) if (r->live && r->running && !r->item) r->unsure = true;
    pl->unsure = were_unsure;
    if (were_unsure) return 0; /* the next items tell */
    count_holders(w, false, count);
    EACH(w, r) if (r->live && r->unsure)
    {
        if (!held_more(pl, count, r)) set_back(w, pl, r);
        n_maybe += r->unsure;
    }
    if (pl->n_victim > want || want - pl->n_victim > n_maybe)
        return prop_fail(w->p, "%llu requests were set back, by their blocks %zu to %zu", LL(want),
                         pl->n_victim, pl->n_victim + n_maybe);
    pl->unsure = pl->n_victim != want && want - pl->n_victim != n_maybe;
    if (pl->unsure) return 0;
    const bool all = pl->n_victim != want;
    EACH(w, r) if (r->live && r->unsure)
    {
        if (all) set_back(w, pl, r);
        r->unsure = false;
    }
    return 0;
}

/* Every block is held by those who have it in their table; what will be written is nobody
 * else's and cannot be found. */
static int check_holders(const sim *w, const sim_plan *pl)
{
    size_t count[SIM_BLOCKS];
    if (pl->unsure) return 0;
    count_holders(w, true, count);
    for (size_t b = 0; b < w->ko.n_block; b++)
        if (pl->n_ref[b] != count[b])
            return prop_fail(w->p, "block %zu has %u holders, expected %zu", b,
                             (unsigned)pl->n_ref[b], count[b]);
    for (const sim_req *r = w->req; r < w->req + SIM_LIVE; r++)
        for (size_t k = r->live && r->running ? r->n_computed / NB_BLOCK_TOK : r->n_table;
             k < r->n_table; k++)
            if (count[r->table[k]] != 1 || pl->indexed[r->table[k]])
                return prop_fail(w->p, "request %llu will write block %u: %zu holders%s",
                                 LL(r->rq.id), (unsigned)r->table[k], count[r->table[k]],
                                 pl->indexed[r->table[k]] ? ", indexed" : "");
    return 0;
}

/* The oldest request of those that ran, by arrival and by admission; NULL if these differ. */
static const sim_req *oldest(const sim *w)
{
    const sim_req *a = NULL, *b = NULL;
    for (const sim_req *r = w->req; r < w->req + SIM_LIVE; r++) {
        if (!r->live || !r->was_running) continue;
        if (!a || r->arrival < a->arrival) a = r;
        if (!b || r->was_order < b->was_order) b = r;
    }
    return a == b ? a : NULL;
}

/* Should u have gone before v? Where the rule leaves no doubt. */
static bool better_victim(const sim *w, const sim_req *u, const sim_req *v)
{
    if (w->o.priority && u->rq.priority != v->rq.priority) return u->rq.priority > v->rq.priority;
    if (u->was_computed != v->was_computed) return u->was_computed < v->was_computed;
    return u->arrival > v->arrival && u->was_order > v->was_order;
}

static bool in_need(const sim_req *r)
{
    return r->live && r->was_running && sim_pages(r->n_known) > r->was_pages;
}

/* With the priority policy: was there one in need that is not worse than v? */
static bool may_be_victim(const sim *w, const sim_req *v)
{
    for (const sim_req *u = w->req; u < w->req + SIM_LIVE; u++)
        if (in_need(u) && (!w->o.priority || u->rq.priority <= v->rq.priority)) return true;
    return false;
}

static int check_victims(const sim *w, const sim_plan *pl)
{
    size_t need = 0;
    if (pl->unsure || pl->n_victim == 0) return 0;
    const sim_req *old = oldest(w);
    for (const sim_req *v = w->req; v < w->req + SIM_LIVE; v++) {
        if (!v->live || !v->was_running) continue;
        if (in_need(v)) need += sim_pages(v->n_known) - v->was_pages;
        if (!v->victim) continue;
        if (!may_be_victim(w, v))
            return prop_fail(w->p, "request %llu was set back for a worse one", LL(v->rq.id));
        if (v == old && pl->n_was_running > 1)
            return prop_fail(w->p, "request %llu, the oldest, was set back", LL(v->rq.id));
        for (const sim_req *u = w->req; u < w->req + SIM_LIVE; u++)
            if (w->ko.n_part <= 1 && old && u->live && u->was_running && !u->victim && u->item && u != old &&
                better_victim(w, u, v))
                return prop_fail(w->p, "request %llu (%zu computed) was set back, not %llu (%zu)",
                                 LL(v->rq.id), v->was_computed, LL(u->rq.id), u->was_computed);
    }
    if (w->ko.n_part <= 1 && need <= pl->available) /* parts: those wanted may be in another one */
        return prop_fail(w->p, "set back without need: %zu blocks wanted, %zu there", need,
                         pl->available);
    return 0;
}

/* ---- order and shares ---- */

static unsigned category(const sim_req *r)
{
    if (r->item->admitted) return 2;
    return r->n_known - r->item->pos0 == 1 ? 0 : 1;
}

static int check_order(sim *w, const sim_plan *pl)
{
    const sim_req *before = NULL;
    for (size_t i = 0; i < pl->n_item; i++) {
        const sim_req *r = sim_find(w, pl->item[i].id);
        if (before && category(r) < category(before))
            return prop_fail(w->p, "request %llu comes after %llu", LL(r->rq.id),
                             LL(before->rq.id));
        if (before && category(r) == 0 && category(before) == 0 && r->order < before->order &&
            pl->n_victim == 0) /* one that got no block may get it in the second go */
            return prop_fail(w->p, "decodes are not in order of admission");
        before = r;
    }
    return 0;
}

/* Prompts may have been cut by max_step_s: there are decodes, and another prompt has got something. */
static bool may_be_cut(sim *w, const sim_plan *pl)
{
    bool decodes = false, prompts = false;
    for (size_t i = 0; i < pl->n_item; i++) {
        const sim_req *r = sim_find(w, pl->item[i].id);
        const bool decode = r->n_known - pl->item[i].pos0 == 1;
        decodes |= decode;
        prompts |= !decode;
    }
    return w->o.max_step_s < 0 || w->o.max_step_s > 0 ? decodes && prompts : false;
}

/* Who runs gets something, unless there is nothing left to get. */
static int check_progress(sim *w, const sim_plan *pl)
{
    const bool cut = may_be_cut(w, pl);
    for (const sim_req *r = w->req; r < w->req + SIM_LIVE; r++) {
        if (!r->live || !r->running || r->unsure || r->item) continue;
        const bool needs_block = r->n_computed / NB_BLOCK_TOK >= r->n_table;
        const bool decode = r->n_known - r->n_computed == 1;
        if (!needs_block && (decode || (!cut && pl->n_tok < w->o.max_step_tok)))
            return prop_fail(w->p, "request %llu runs and got nothing of %zu tokens, %zu used",
                             LL(r->rq.id), w->o.max_step_tok, pl->n_tok);
        if (needs_block && !cut && !pl->n_victim && w->ko.n_part <= 1 && nb_kv_cache_available(w->kv))
            return prop_fail(w->p, "request %llu waits for a block, %zu are there", LL(r->rq.id),
                             nb_kv_cache_available(w->kv));
        if (!pl->unsure && !w->o.priority && r == oldest(w))
            return prop_fail(w->p, "request %llu, the oldest, got nothing", LL(r->rq.id));
    }
    return 0;
}

static bool fits(const sim *w, const sim_plan *pl, sim_req *r)
{
    const size_t n = sim_hits(w, r);
    size_t need = pages_at_admission(w, r) - n;
    for (size_t k = 0; k < n; k++) need += pl->n_ref[nb_kv_cache_find(w->kv, sim_key(r, k))] == 0;
    return w->ko.n_part <= 1 && need <= nb_kv_cache_available(w->kv);
}

static bool waits(sim *w, const sim_req *r)
{
    return r->live && !r->running && !sim_deferred(w, r);
}

/* When the first of those arrived who wait in the class of r. */
static double first_of_class(sim *w, const sim_req *r)
{
    double t = r->t_arrival;
    EACH(w, x)
    if (x->rq.priority == r->rq.priority && x->t_arrival < t && waits(w, x)) t = x->t_arrival;
    return t;
}

/* Is a before b in the queue, without doubt? */
static bool goes_before(sim *w, const sim_req *a, const sim_req *b)
{
    if (w->o.priority && a->rq.priority != b->rq.priority) {
        if (w->o.age_s <= 0) return a->rq.priority < b->rq.priority;
        /* a class is as good as the best of it */
        const double wa = (w->now - a->t_arrival) / w->o.age_s;
        const double wb = (w->now - first_of_class(w, b)) / w->o.age_s;
        const double qa = (w->now - a->t_queue) / w->o.age_s;
        return a->rq.priority - (wa < qa ? wa : qa) + 1 < b->rq.priority - wb;
    }
    if (a->head != b->head) return a->head;
    return !a->head && a->arrival < b->arrival;
}

/* a was admitted, b was not although it comes before a. */
static bool overtaken(sim *w, const sim_plan *pl, sim_req *a, sim_req *b)
{
    return goes_before(w, b, a) &&
           (!w->o.priority || a->rq.priority == b->rq.priority || fits(w, pl, b));
}

static int check_admissions(sim *w, const sim_plan *pl)
{
    for (size_t i = 0; i < pl->n_item; i++) {
        sim_req *a = sim_find(w, pl->item[i].id);
        if (!a->item->admitted) continue;
        if (sim_deferred(w, a))
            return prop_fail(w->p, "request %llu did not wait for %llu", LL(a->rq.id),
                             LL(a->rq.after));
        const size_t hits = sim_hits(w, a), cut = w->ko.n_part > 1 ? hits - hits % NB_KV_UNIT_BLOCKS : hits;
        if (a->item->n_cached != hits * NB_BLOCK_TOK && a->item->n_cached != cut * NB_BLOCK_TOK)
            return prop_fail(w->p, "request %llu: %zu tokens found, the index has %zu",
                             LL(a->rq.id), a->item->n_cached, sim_hits(w, a) * NB_BLOCK_TOK);
        EACH(w, b)
        if (waits(w, b) && !b->victim && overtaken(w, pl, a, b))
            return prop_fail(w->p, "request %llu overtook %llu", LL(a->rq.id), LL(b->rq.id));
        for (size_t j = i + 1; j < pl->n_item; j++) {
            const sim_req *b = sim_find(w, pl->item[j].id);
            if (b->item->admitted && goes_before(w, b, a))
                return prop_fail(w->p, "request %llu was admitted before %llu", LL(a->rq.id),
                                 LL(b->rq.id));
        }
    }
    return 0;
}

static size_t n_running(const sim *w)
{
    size_t n = 0;
    for (size_t i = 0; i < SIM_LIVE; i++) n += w->req[i].live && w->req[i].running;
    return n;
}

/* Could the head of the queue have been admitted?  Several may be the head where the rule leaves
 * it open: then all must fit. */
static sim_req *head_that_fits(sim *w, const sim_plan *pl)
{
    sim_req *found = NULL;
    if (n_running(w) >= w->o.max_num_seqs) return NULL;
    EACH(w, a) if (waits(w, a))
    {
        bool head = true;
        EACH(w, b) head &= !(waits(w, b) && goes_before(w, b, a));
        if (!head) continue;
        if (!fits(w, pl, a)) return NULL;
        found = a;
    }
    return found;
}

static int check_shares(sim *w, const sim_plan *pl)
{
    prop *p = w->p;
    if (pl->n_tok > w->o.max_step_tok)
        return prop_fail(p, "%zu tokens in a step, at most %zu", pl->n_tok, w->o.max_step_tok);
    if (may_be_cut(w, pl)) return 0;
    const size_t left = w->o.max_step_tok - pl->n_tok;
    size_t n_want = 0; /* who could use a larger share */
    bool ignored = false;
    EACH(w, r)
    {
        n_want += r->live && (r->running ? !r->item || category(r) != 0 : waits(w, r));
        ignored |= r->live && r->running && !r->unsure && !r->item &&
                   r->n_computed / NB_BLOCK_TOK < r->n_table;
    }
    const sim_req *head = pl->n_victim || pl->unsure ? NULL : head_that_fits(w, pl);
    if (head && left)
        return prop_fail(p, "request %llu fits and was not admitted, %zu tokens left",
                         LL(head->rq.id), left);
    for (size_t i = 0; i < pl->n_item; i++) {
        const nb_sched_item *it = &pl->item[i];
        const sim_req *r = sim_find(w, it->id);
        if (it->n_tok > w->o.max_chunk_tok && (ignored || head))
            return prop_fail(p, "request %llu got %zu tokens while others got none", LL(it->id),
                             it->n_tok);
        const size_t cap = n_want > 1 ? w->o.max_chunk_tok : SIZE_MAX;
        if (w->o.snap_tok && (it->pos0 + it->n_tok) % NB_BLOCK_TOK == 0)
            continue; /* for a snapshot */
        if (left && it->pos0 + it->n_tok < natural_end(w, r, it->pos0) && it->n_tok < cap)
            return prop_fail(p, "request %llu got %zu tokens, %zu were left", LL(it->id), it->n_tok,
                             left);
    }
    return 0;
}

/* ---- counters ---- */

static int check_counters(sim *w, const sim_plan *pl)
{
    prop *p = w->p;
    const nb_sched_stats *a = &pl->after, *b = &pl->before;
    size_t running = 0, waiting = 0, deferred = 0, tok = 0, open = 0;
    uint64_t q = 0, h = 0, again_q = 0, again_h = 0, given_up = 0;
    EACH(w, r)
    {
        if (!r->live) continue;
        running += r->running;
        waiting += !r->running;
        deferred += !r->running && sim_deferred(w, r);
        if (r->victim) given_up += r->was_computed;
        if (!r->running) tok += r->n_known;
        if (r->running && r->n_computed < r->rq.n_prompt) open += r->rq.n_prompt - r->n_computed;
        if (!r->item || !r->item->admitted) continue;
        if (!r->rq.no_lookup) {
            *(r->n_admitted ? &again_q : &q) += r->n_known;
            *(r->n_admitted ? &again_h : &h) += r->item->n_cached;
        }
        r->n_admitted++;
    }
    if (a->prefix_queries - b->prefix_queries != q || a->prefix_hits - b->prefix_hits != h ||
        a->again_queries - b->again_queries != again_q || a->again_hits - b->again_hits != again_h)
        return prop_fail(p, "queries %llu hits %llu, again %llu %llu; expected %llu %llu %llu %llu",
                         LL(a->prefix_queries - b->prefix_queries),
                         LL(a->prefix_hits - b->prefix_hits),
                         LL(a->again_queries - b->again_queries), LL(a->again_hits - b->again_hits),
                         LL(q), LL(h), LL(again_q), LL(again_h));
    if (pl->unsure) return 0;
    if (a->n_running != running || a->n_waiting != waiting || a->n_deferred != deferred)
        return prop_fail(p, "%zu running %zu waiting %zu deferred, expected %zu %zu %zu",
                         a->n_running, a->n_waiting, a->n_deferred, running, waiting, deferred);
    if (a->n_waiting_tok != tok + open)
        return prop_fail(p, "%zu tokens wait, expected %zu and %zu of prompts", a->n_waiting_tok,
                         tok, open);
    if (a->preempted_tok - b->preempted_tok != given_up)
        return prop_fail(p, "%llu tokens given up, expected %llu",
                         LL(a->preempted_tok - b->preempted_tok), LL(given_up));
    return 0;
}

/* Nothing planned: then nobody runs, and all who wait wait for others. */
static int check_idle(sim *w, const sim_plan *pl)
{
    if (pl->n_item) return 0;
    EACH(w, r)
    if (r->live && (r->running || waits(w, r)))
        return prop_fail(w->p, "nothing is planned, but request %llu %s", LL(r->rq.id),
                         r->running ? "runs" : "waits");
    return 0;
}

int sim_make_plan(sim *w, sim_plan *pl)
{
    prop *p = w->p;
    bool unsure = false;
    *pl = (sim_plan){ .available = nb_kv_cache_available(w->kv) };
    EACH(w, r)
    {
        r->item = NULL;
        r->victim = false;
        r->was_running = r->live && r->running;
        r->was_computed = r->n_computed;
        r->was_pages = r->n_table;
        r->was_order = r->order;
        pl->n_was_running += r->was_running;
        unsure |= r->live && r->unsure;
    }
    nb_sched_get_stats(w->s, &pl->before);
    pl->n_item = nb_sched_plan(w->s, w->now, pl->item);
    nb_sched_get_stats(w->s, &pl->after);
    if (pl->n_item > w->o.max_num_seqs) return prop_fail(p, "%zu items", pl->n_item);
    const char *broken = p->big && p->step % 64 ? NULL : nb_sched_check(w->s);
    if (broken) return prop_fail(p, "check: %s", broken);
    for (uint32_t b = 0; b < w->ko.n_block; b++) {
        nb_kv_block_info info;
        nb_kv_cache_block(w->kv, b, &info);
        pl->n_ref[b] = info.n_ref;
        pl->indexed[b] = info.indexed;
    }
    for (size_t i = 0; i < pl->n_item; i++)
        if (take_item(w, pl, &pl->item[i])) return 1;
    if (find_victims(w, pl, unsure)) return 1;
    if (check_holders(w, pl) || check_victims(w, pl) || check_order(w, pl) ||
        check_progress(w, pl) || check_shares(w, pl) || check_admissions(w, pl) ||
        check_idle(w, pl))
        return 1;
    return check_counters(w, pl);
}
