/* prop_sched.c - the scheduler with random requests, cancellations, resets and deadlines.
 *
 * Every plan is checked against the rules in sched.h (sched_rules.c), and every item by an engine
 * that reads what it needs from where it must be (sched_sim.c): what is found in the cache is
 * what the request alone would have computed, and nothing is overwritten while somebody needs
 * it.  At the end of a run no more requests come and all must finish within a bounded number
 * of steps.  While there are none, refills run (sched_refill.c); no rule notices them.
 *
 * Seeds, steps and shrinking: prop.h. */
#include <math.h>

#include "base/attr.h"
#include "prop/sched_refill.h"
#include "prop/sched_rules.h"

#define LL(x) ((unsigned long long)(x))

static refill_model refills; /* of the run */

static int on_add(sim *w, const sim_req *r)
{
    return refill_yield(w, &refills, r->tok, r->rq.n_prompt, r->salt);
}

/* ---- what happens between steps ---- */

static size_t n_live(const sim *w)
{
    size_t n = 0;
    for (size_t i = 0; i < SIM_LIVE; i++) n += w->req[i].live;
    return n;
}

static int add_some(sim *w)
{
    prop *p = w->p;
    size_t n = prop_below(p, 100) < w->rate;
    if (prop_one_in(p, 150)) n += prop_below(p, SIM_LIVE); /* a burst */
    for (size_t i = 0; i < SIM_LIVE && n; i++)
        if (!w->req[i].live) {
            if (sim_add(w, &w->req[i])) return 1;
            n--;
        }
    return 0;
}

static void take_away(sim *w, sim_req *r, const char *why)
{
    prop_trace(w->p, "request %llu %s", LL(r->rq.id), why);
    r->live = false;
    nb_sched_remove(w->s, r->rq.id);
}

static void abort_some(sim *w, unsigned rate)
{
    prop *p = w->p;
    if (prop_below(p, 1000) >= rate) return;
    sim_req *r = &w->req[prop_below(p, SIM_LIVE)];
    if (r->live) take_away(w, r, "is cancelled");
    nb_sched_remove(w->s, w->next_id + 1 + prop_below(p, 3)); /* unknown ones are ignored */
}

static int expire_some(sim *w)
{
    uint64_t id[SIM_LIVE];
    size_t want = 0;
    const size_t cap = 1 + prop_below(w->p, SIM_LIVE);
    for (const sim_req *r = w->req; r < w->req + SIM_LIVE; r++)
        want += r->live && r->rq.deadline < w->now;
    if (want > cap) want = cap;
    const size_t n = nb_sched_expired(w->s, w->now, id, cap);
    if (n != want) return prop_fail(w->p, "%zu requests are late, expected %zu", n, want);
    for (size_t i = 0; i < n; i++) {
        sim_req *r = sim_find(w, id[i]);
        if (!r || r->rq.deadline >= w->now)
            return prop_fail(w->p, "request %llu is not late", LL(id[i]));
        take_away(w, r, "is late");
    }
    return 0;
}

/* ---- a step ---- */

/* Pages that the item has filled: found from now on, or another request's same page instead. */
static int check_filled(sim *w, sim_req *r, size_t page)
{
    prop *p = w->p;
    nb_kv_block_info own, parent = { .indexed = true };
    nb_kv_cache_block(w->kv, r->table[page], &own);
    if (page) nb_kv_cache_block(w->kv, r->table[page - 1], &parent);
    const uint32_t found = nb_kv_cache_find(w->kv, sim_key(r, page));
    if (own.n_ref == 0) { /* given up for another */
        if (found == NB_BLOCK_NONE || found == r->table[page])
            return prop_fail(p, "request %llu lost page %zu", LL(r->rq.id), page);
        r->table[page] = found;
        return 0;
    }
    if (!w->ko.index && own.indexed) return prop_fail(p, "indexed without an index");
    const bool begins = page % NB_KV_UNIT_BLOCKS == 0;
    if (!begins && parent.part != own.part) return prop_fail(p, "request %llu: page %zu is not with its unit", LL(r->rq.id), page);
    if (begins && w->ko.n_part > 1 && !own.indexed && found != NB_BLOCK_NONE) { /* the same unit is found in another part */
        nb_kv_block_info other;
        nb_kv_cache_block(w->kv, found, &other);
        if (other.part != own.part) return 0;
    }
    if (w->ko.index && parent.indexed && found != r->table[page])
        return prop_fail(p, "request %llu: page %zu is full and block %u is found, not %u",
                         LL(r->rq.id), page, (unsigned)found, (unsigned)r->table[page]);
    return 0;
}

static int computed(sim *w, sim_req *r)
{
    const size_t before = r->n_computed;
    const nb_status st = nb_sched_computed(w->s, r->rq.id);
    if (st != NB_OK) return prop_fail(w->p, "computed %llu: %d", LL(r->rq.id), (int)st);
    r->n_computed += r->item->n_tok;
    r->prompt_done |= r->n_computed >= r->rq.n_prompt;
    for (size_t k = before / NB_BLOCK_TOK; k < r->n_computed / NB_BLOCK_TOK; k++)
        if (check_filled(w, r, k)) return 1;
    return 0;
}

static int sample(sim *w, sim_req *r)
{
    const uint32_t tok = sim_next_token(r);
    if (r->n_known == w->o.max_model_len && prop_one_in(w->p, 2)) {
        const nb_status st = nb_sched_push(w->s, r->rq.id, tok);
        if (st != NB_ERR_LIMIT)
            return prop_fail(w->p, "push at max_model_len: %d, expected %d", (int)st,
                             (int)NB_ERR_LIMIT);
    }
    if (r->n_known >= r->n_end) {
        sim_keep_text(w, r);
        if (refill_add(w, &refills, r)) return 1;
        take_away(w, r, "is finished");
        return 0;
    }
    const nb_status st = nb_sched_push(w->s, r->rq.id, tok);
    if (st != NB_OK) return prop_fail(w->p, "push %llu: %d", LL(r->rq.id), (int)st);
    sim_known(r, tok);
    return 0;
}

/* All items are reported before the first token, or each with its own. */
static int report(sim *w, const sim_plan *pl)
{
    const bool one_by_one = prop_one_in(w->p, 2);
    bool last[SIM_SEQS];
    for (size_t i = 0; i < pl->n_item; i++) {
        sim_req *r = sim_find(w, pl->item[i].id);
        last[i] = pl->item[i].last;
        if (r && computed(w, r)) return 1;
        if (r && one_by_one && last[i] && sample(w, r)) return 1;
    }
    if (one_by_one) return 0;
    abort_some(w, w->abort_rate / 2);
    for (size_t i = 0; i < pl->n_item; i++) {
        sim_req *r = sim_find(w, pl->item[i].id);
        if (r && last[i] && sample(w, r)) return 1;
    }
    return 0;
}

/* Anything: the rules of a plan hold whatever steps take. */
static double step_seconds(sim *w, const sim_plan *pl)
{
    double s = prop_one_in(w->p, 20) ? 1 : 0;
    for (size_t i = 0; i < pl->n_item; i++) s += 1e-4 * (double)pl->item[i].n_tok;
    return s * (double)prop_below(w->p, 3);
}

static int step_once(sim *w, sim_plan *pl)
{
    if (refills.f && n_live(w) == 0 && prop_one_in(w->p, 2)) return refill_step(w, &refills);
    if (w->refill.live) return 0; /* the engine does something else between two steps */
    if (refills.f && n_live(w) && nb_refill_start(refills.f, INFINITY))
        return prop_fail(w->p, "a refill was started beside %zu requests", n_live(w));
    if (sim_make_plan(w, pl)) return 1;
    abort_some(w, w->abort_rate);
    if (sim_forward(w, pl->item, pl->n_item)) return 1;
    abort_some(w, w->abort_rate);
    nb_sched_timed(w->s, step_seconds(w, pl));
    return report(w, pl);
}

/* ---- a run ---- */

/* Time goes on in sixteenths; deadlines lie between them. */
static void pass_time(sim *w)
{
    w->now += (double)prop_below(w->p, 24) / 16;
}

static size_t steps_left(const sim *w)
{
    size_t n = 100;
    for (const sim_req *r = w->req; r < w->req + SIM_LIVE; r++)
        if (r->live) n += 2 * r->n_end;
    return n;
}

static int steps(sim *w)
{
    static sim_plan pl;
    prop *p = w->p;
    for (size_t step = 1; step <= p->n_step; step++) {
        prop_begin_step(p, step);
        if (prop_skipped(p)) continue;
        pass_time(w);
        if (add_some(w) || expire_some(w)) return 1;
        abort_some(w, w->abort_rate);
        if (prop_one_in(p, 400)) {
            prop_trace(p, "reset of the cache");
            refill_clear(w, &refills);
            (void)nb_kv_cache_reset(w->kv);
        }
        if (step_once(w, &pl)) return 1;
    }
    if (p->seed % 4 == 3) return 0; /* destroyed with requests in it */
    const size_t n_most = steps_left(w);
    for (size_t i = 0; n_live(w); i++) { /* oldest first: each step brings it one token on */
        prop_begin_step(p, p->n_step + 1 + i);
        if (i == n_most) return prop_fail(p, "%zu requests never finish", n_live(w));
        pass_time(w);
        if (step_once(w, &pl)) return 1;
    }
    for (size_t i = 0; refills.n_text; i++) {
        prop_begin_step(p, p->n_step + 1 + n_most + i);
        if (i == REFILL_TEXTS * SIM_TOK) return prop_fail(p, "refills never finish");
        if (refill_step(w, &refills)) return 1;
    }
    const char *broken = nb_sched_check(w->s);
    if (broken) return prop_fail(p, "check at the end: %s", broken);
    return 0;
}

static void some_options(sim *w)
{
    prop *p = w->p;
    nb_sched_options *o = &w->o;
    o->max_model_len = prop_one_in(p, 4) ? 64 * prop_between(p, 1, 8) : prop_between(p, 1, SIM_TOK);
    const size_t least = sim_pages(o->max_model_len);
    w->ko.n_block = least;
    if (prop_one_in(p, 3))
        w->ko.n_block = prop_between(p, least, SIM_BLOCKS);
    else if (prop_one_in(p, 2))
        w->ko.n_block += prop_below(p, least);
    if (w->ko.n_block > SIM_BLOCKS) w->ko.n_block = SIM_BLOCKS;
    if (prop_one_in(p, 3)) { /* whole units in 2 or 4 parts */
        w->ko.n_part = prop_one_in(p, 2) ? 2 : 4;
        const size_t row = w->ko.n_part * NB_KV_UNIT_BLOCKS;
        w->ko.n_block = (w->ko.n_block + row - 1) / row * row;
    }
    w->ko.index = !prop_one_in(p, 10);
    w->ko.protected_share = (double)prop_below(p, 5) / 4;
    o->max_num_seqs = prop_between(p, 1, SIM_SEQS);
    o->max_step_tok = o->max_num_seqs + prop_below(p, prop_one_in(p, 3) ? 20 : 300);
    o->max_chunk_tok = prop_between(p, 1, o->max_step_tok);
    o->priority = prop_one_in(p, 3);
    o->age_s = prop_one_in(p, 2) ? 0 : (double)prop_between(p, 1, 40);
    o->max_step_s = prop_one_in(p, 2)   ? 0
                    : prop_one_in(p, 2) ? -1
                                        : 1e-3 * (double)prop_between(p, 1, 100);
    o->pair_tok = prop_one_in(p, 2) ? 0 : 1e-3;
    o->snap_tok = w->ko.n_part || prop_one_in(p, 2) ? 0 : NB_BLOCK_TOK * prop_between(p, 1, 5);
    w->ko.n_snap = o->snap_tok ? prop_between(p, 0, prop_one_in(p, 2) ? 4 : SIM_BLOCKS) : 0;
    switch (prop_below(p, 5)) {
    case 0: w->form = FORM_ABSORBED; break;
    case 1: w->form = FORM_EXPANDED; break;
    case 2: w->form = FORM_ANY; break;
    default: w->form = FORM_AUTO; break;
    }
    if (prop_one_in(p, 4)) w->rope_switch = prop_between(p, 1, SIM_TOK / 2);
    w->rate = (unsigned)prop_between(p, 1, 40);
    w->abort_rate = prop_one_in(p, 2) ? 0 : (unsigned)prop_between(p, 1, 60);
    static const size_t part[] = { 1, 4, 16 }; /* of the length; answers that outgrow the pool */
    w->mean_prompt = prop_between(p, 1, o->max_model_len / part[prop_below(p, 3)] + 1);
    w->mean_answer = prop_between(p, 1, o->max_model_len / part[prop_below(p, 3)] + 1);
}

/* What the runs have reached, so that a change of the workload cannot hide it. */
static struct reached {
    uint64_t hits, again_hits, preempted, evicted, duplicate, refilled, refill_drops;
    uint64_t snap_hits,
        snap_taken; /* of runs with snapshots: tokens found; snapshots that made room */
} reached;

static void count_reached(const sim *w)
{
    nb_sched_stats s;
    nb_kv_cache_stats k;
    nb_sched_get_stats(w->s, &s);
    nb_kv_cache_get_stats(w->kv, &k);
    reached.hits += s.prefix_hits;
    reached.again_hits += s.again_hits;
    reached.preempted += s.n_preempted;
    reached.evicted += k.n_evicted;
    reached.duplicate += k.n_duplicate;
    if (w->o.snap_tok) reached.snap_hits += s.prefix_hits;
    reached.snap_taken += k.n_snap_taken;
    reached.refilled += refills.n_tok;
    reached.refill_drops += refills.n_dropped;
}

static int run(prop *p)
{
    static sim w;
    prop_begin_step(p, 0);
    w = (sim){ .p = p, .on_add = on_add };
    some_options(&w);
    nb_error err = { 0 };
    if (nb_kv_cache_create(&w.ko, &w.kv, &err) != NB_OK) return prop_fail(p, "%s", err.msg);
    if (nb_sched_create(&w.o, w.kv, &w.s, &err) != NB_OK) {
        nb_kv_cache_destroy(w.kv);
        return prop_fail(p, "%s", err.msg);
    }
    prop_trace(p,
               "%zu blocks, index %d, %zu seqs, step %zu, chunk %zu, length %zu, prio %d, age %g",
               w.ko.n_block, w.ko.index, w.o.max_num_seqs, w.o.max_step_tok, w.o.max_chunk_tok,
               w.o.max_model_len, w.o.priority, w.o.age_s);
    int bad = refill_init(&w, &refills) || steps(&w);
    count_reached(&w);
    nb_refill_destroy(refills.f);
    nb_sched_destroy(w.s);
    const char *broken = bad ? NULL : nb_kv_cache_check(w.kv);
    if (broken) bad = prop_fail(p, "check of the cache at the end: %s", broken);
    if (!bad && nb_kv_cache_available(w.kv) != w.ko.n_block)
        bad = prop_fail(p, "%zu of %zu blocks available at the end", nb_kv_cache_available(w.kv),
                        w.ko.n_block);
    nb_kv_cache_destroy(w.kv);
    return bad;
}

/* ---- cases of their own ---- */

static int complain(const char *what)
{
    fprintf(stderr, "prop_sched: %s\n", what);
    return 1;
}

typedef struct bench {
    nb_kv_cache *kv;
    nb_sched *s;
    nb_sched_item item[SIM_SEQS];
    size_t n_item;
} bench;

static void bench_init(bench *b, const nb_sched_options *o, size_t n_block)
{
    const nb_kv_cache_options ko = { .n_block = n_block, .index = true, .protected_share = 0.75 };
    *b = (bench){ 0 };
    NB_ASSERT(nb_kv_cache_create(&ko, &b->kv, NULL) == NB_OK);
    NB_ASSERT(nb_sched_create(o, b->kv, &b->s, NULL) == NB_OK);
}

static void bench_deinit(bench *b)
{
    nb_sched_destroy(b->s);
    nb_kv_cache_destroy(b->kv);
}

static nb_status bench_add(bench *b, uint64_t id, size_t n, int32_t priority, double now)
{
    static uint32_t tok[SIM_TOK];
    for (size_t i = 0; i < n && i < SIM_TOK; i++) tok[i] = (uint32_t)(id * 1000 + i);
    const nb_sched_request rq = { .id = id,
                                  .prompt = tok,
                                  .n_prompt = n,
                                  .rope_from = SIZE_MAX,
                                  .priority = priority,
                                  .deadline = INFINITY };
    return nb_sched_add(b->s, &rq, now, NULL);
}

/* Plans and computes; what has its prompt computed is removed. True: `id` was among them. */
static bool bench_step(bench *b, double now, uint64_t id)
{
    bool seen = false;
    b->n_item = nb_sched_plan(b->s, now, b->item);
    for (size_t i = 0; i < b->n_item; i++) {
        seen |= b->item[i].id == id;
        const bool last = b->item[i].last;
        NB_ASSERT(nb_sched_computed(b->s, b->item[i].id) == NB_OK);
        if (last) nb_sched_remove(b->s, b->item[i].id);
    }
    return seen;
}

/* A request of low priority among ever more of high priority: with aging it gets its turn
 * after those that came in the first ten seconds (a level each), without aging it does not. */
static int check_starvation(double age_s)
{
    const nb_sched_options o = { .max_num_seqs = 2,
                                 .max_step_tok = 64,
                                 .max_chunk_tok = 64,
                                 .max_model_len = 128,
                                 .priority = true,
                                 .age_s = age_s };
    bench b;
    bench_init(&b, &o, 8);
    bool served = false;
    double now = 0;
    NB_ASSERT(bench_add(&b, 1000000, 60, 10, now) == NB_OK);
    for (uint64_t id = 1; id < 200 && !served; id += 2) {
        for (uint64_t k = 0; k < 2; k++) NB_ASSERT(bench_add(&b, id + k, 60, 0, now) == NB_OK);
        served = bench_step(&b, now, 1000000);
        now += 0.5;
    }
    bench_deinit(&b);
    if (age_s > 0 && !served)
        return complain("a request of low priority starves in spite of aging");
    if (age_s <= 0 && served) return complain("a request of low priority overtook others");
    return 0;
}

/* The last known token is computed even if all of the prompt is in the cache. */
static int check_all_cached(void)
{
    const nb_sched_options o = {
        .max_num_seqs = 2, .max_step_tok = 256, .max_chunk_tok = 256, .max_model_len = 256
    };
    for (size_t n = 127; n <= 129; n++) {
        bench b;
        bench_init(&b, &o, 8);
        static uint32_t tok[129];
        nb_sched_request rq = {
            .id = 1, .prompt = tok, .n_prompt = n, .rope_from = SIZE_MAX, .deadline = INFINITY
        };
        size_t found[2] = { 0 };
        for (rq.id = 1; rq.id <= 2; rq.id++) {
            NB_ASSERT(nb_sched_add(b.s, &rq, 0, NULL) == NB_OK);
            (void)bench_step(&b, 0, rq.id);
            found[rq.id - 1] = b.n_item == 1 ? b.item[0].n_cached : 999;
        }
        bench_deinit(&b);
        if (found[0] != 0 || found[1] != (n - 1) / 64 * 64)
            return complain("a prompt that is all in the cache");
    }
    return 0;
}

static int check_add(void)
{
    const nb_sched_options o = {
        .max_num_seqs = 2, .max_step_tok = 64, .max_chunk_tok = 64, .max_model_len = 100
    };
    bench b;
    bench_init(&b, &o, 2);
    const nb_status ok = bench_add(&b, 7, 100, 0, 0), used = bench_add(&b, 7, 1, 0, 0),
                    none = bench_add(&b, 8, 0, 0, 0), more = bench_add(&b, 8, 101, 0, 0),
                    zero = bench_add(&b, 0, 1, 0, 0);
    nb_sched_remove(b.s, 7);
    const nb_status again = bench_add(&b, 7, 1, 0, 0);
    nb_sched_stats st;
    nb_sched_get_stats(b.s, &st);
    const nb_status unknown = nb_sched_push(b.s, 99, 1), not_planned = nb_sched_computed(b.s, 7);
    bench_deinit(&b);
    if (ok != NB_OK || again != NB_OK) return complain("a good request is refused");
    if (used != NB_ERR_ARG || none != NB_ERR_ARG || zero != NB_ERR_ARG)
        return complain("an id twice, an empty prompt or id 0");
    if (more != NB_ERR_LIMIT) return complain("a prompt that is too long");
    if (st.n_waiting != 1 || st.n_running != 0) return complain("refused requests are counted");
    if (unknown == NB_OK || not_planned == NB_OK)
        return complain("push or computed of what is not there");
    return 0;
}

/* A request that waits for itself or for one that never was does not wait. */
static int check_after(void)
{
    const nb_sched_options o = {
        .max_num_seqs = 2, .max_step_tok = 64, .max_chunk_tok = 64, .max_model_len = 100
    };
    static const uint32_t tok[1] = { 5 };
    for (uint64_t after = 1; after <= 2; after++) {
        bench b;
        bench_init(&b, &o, 2);
        const nb_sched_request rq = { .id = 1,
                                      .prompt = tok,
                                      .n_prompt = 1,
                                      .rope_from = SIZE_MAX,
                                      .deadline = INFINITY,
                                      .after = after };
        const nb_status st = nb_sched_add(b.s, &rq, 0, NULL);
        const bool served = st == NB_OK && bench_step(&b, 0, 1);
        bench_deinit(&b);
        if (!served && !(after == 1 && st == NB_ERR_ARG))
            return complain("a request waits for itself or for nobody");
    }
    return 0;
}

static int check_create(void)
{
    enum { BLOCKS = 10 };
    static const struct {
        size_t seqs, step, chunk, len;
        double age_s, max_step_s, pair_tok;
        bool ok;
    } kind[] = {
        { 4, 8, 8, 640, 0, 0, 0, true },       { 4, 8, 8, 641, 0, 0, 0, false },
        { 4, 3, 3, 64, 0, 0, 0, false },       { 0, 8, 8, 64, 0, 0, 0, false },
        { 4, 8, 8, 0, 0, 0, 0, false },        { 4, 8, 0, 64, 0, 0, 0, false },
        { 4, 8, 8, SIZE_MAX, 0, 0, 0, false }, { 4, 8, 8, 64, -1, 0, 0, false },
        { 4, 8, 8, 64, NAN, 0, 0, false },     { 4, 8, 8, 64, 0, NAN, 0, false },
        { 4, 8, 8, 64, 0, 0, -1, false },
    };
    for (size_t i = 0; i < NB_COUNT(kind); i++) {
        const nb_kv_cache_options ko = { .n_block = BLOCKS, .index = true };
        const nb_sched_options o = { .max_num_seqs = kind[i].seqs,
                                     .max_step_tok = kind[i].step,
                                     .max_chunk_tok = kind[i].chunk,
                                     .max_model_len = kind[i].len,
                                     .priority = true,
                                     .age_s = kind[i].age_s,
                                     .max_step_s = kind[i].max_step_s,
                                     .pair_tok = kind[i].pair_tok };
        nb_kv_cache *kv = NULL;
        nb_sched *s = NULL;
        nb_error err = { 0 };
        NB_ASSERT(nb_kv_cache_create(&ko, &kv, NULL) == NB_OK);
        const nb_status st = nb_sched_create(&o, kv, &s, &err);
        nb_sched_destroy(s);
        nb_kv_cache_destroy(kv);
        if ((st == NB_OK) != kind[i].ok || (st != NB_OK && !err.msg[0])) {
            fprintf(stderr, "prop_sched: options %zu: status %d\n", i, (int)st);
            return 1;
        }
    }
    nb_sched_destroy(NULL);
    return 0;
}

int main(int argc, char **argv)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    enum { STEPS = 150000 };
#else
    enum { STEPS = 300000 };
#endif
    if (check_create() || check_add() || check_after() || check_all_cached() ||
        check_starvation(1) || check_starvation(0))
        return 1;
    if (prop_main(argc, argv, "prop_sched", run, STEPS)) return 1;
    printf(
        "tokens found %llu, again %llu; set back %llu; blocks evicted %llu, merged %llu; refilled "
        "%llu tokens, dropped %llu\n",
        LL(reached.hits), LL(reached.again_hits), LL(reached.preempted), LL(reached.evicted),
        LL(reached.duplicate), LL(reached.refilled), LL(reached.refill_drops));
    if (argc == 1 && !(reached.hits && reached.again_hits && reached.preempted && reached.evicted &&
                       reached.duplicate && reached.refilled && reached.refill_drops &&
                       reached.snap_hits && reached.snap_taken))
        return complain("the runs do not reach what they test");
    return 0;
}
