/* loop.c - the engine's thread.
 *
 * A round: take what other threads have left (requests, aborts, calls), end what has to end,
 * let the scheduler plan a step, compute it, give the results out.  A request that ends is
 * marked at once and leaves when the step is through: first all of them give up their blocks,
 * then the statistics are renewed, then their callers are told; so who hears of an end finds
 * the room already free.
 *
 * With no request it computes finished answers again as prompts (answers.h); with nothing to do it
 * sleeps.  When a step fails for a reason that is not one request's, the engine has failed: it ends
 * all requests, refuses new ones, and still answers calls. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_tcp.h"
#include "engine/engine_internal.h"
#include "engine/remote.h"
#include "os/clock.h"

/* The scheduler can always do something when there are requests; should it ever not, the
 * thread looks again after this time. */
enum { IDLE_RETRY_MS = 10, WATCH_MS = 1000 };

/* ---- ends ---- */

/* Fills in what is known at the end. */
static void finish_result(nb_run *r, double now)
{
    nb_result *o = &r->out;
    o->queue_s = (r->admitted ? r->t_admit : now) - r->t_submit;
    if (r->admitted) o->prefill_s = (o->n_tokens ? r->t_first : now) - r->t_admit;
    if (o->n_tokens) o->decode_s = r->t_last - r->t_first;
    o->text = r->text.p; /* moves; reserved at create */
    o->text_bytes = r->text.n_bytes;
    o->text[o->text_bytes] = 0;
    r->text = (nb_buf){ 0 };
}

static void tell(nb_engine *e, nb_run *r)
{
    nb_waiter *w = r->waiter;
    if (!w) {
        if (r->on_done) r->on_done(r->ctx, r->st, &r->out, r->st == NB_OK ? NULL : &r->err);
        return;
    }
    nb_mutex_lock(e->queue.lock);
    w->st = r->st;
    w->res = r->out; /* moves */
    w->err = r->err;
    w->done = true;
    r->out = (nb_result){ 0 };
    nb_cond_broadcast(e->queue.done);
    nb_mutex_unlock(e->queue.lock);
}

/* All that have ended leave. Their callbacks may submit and abort. */
static void leave(nb_engine *e)
{
    nb_run *list = e->over;
    if (!list) return;
    e->over = NULL;
    e->over_end = &e->over;
    for (nb_run *r = list; r; r = r->over_next) {
        if (r->added && !e->ranks.stuck) { /* else a rank may still read what it has there */
            nb_engine_note_page(e, r);
            nb_answers_add(e, r);
            r->out.n_preempted = nb_sched_n_preempted(nb_sched_of(e, r), r->id);
            nb_sched_remove(nb_sched_of(e, r), r->id);
        }
        if (r->prev)
            r->prev->next = r->next;
        else
            e->live = r->next;
        if (r->next) r->next->prev = r->prev;
    }
    nb_mutex_lock(e->queue.lock);
    for (nb_run *r = list; r; r = r->over_next) nb_queue_forget(&e->queue, r);
    nb_mutex_unlock(e->queue.lock);
    nb_engine_publish(e);
    const double now = nb_clock_s();
    for (nb_run *r = list, *next; r; r = next) {
        next = r->over_next;
        finish_result(r, now);
        tell(e, r);
        nb_run_destroy(r);
    }
}

static void end_all(nb_engine *e, const char *reason)
{
    for (nb_run *r = e->live; r; r = r->next) nb_run_end(e, r, reason);
}

/* why_failed is written once, here. */
static void fail_engine(nb_engine *e, nb_status st, const nb_error *why)
{
    nb_mutex_lock(e->queue.lock);
    (void)snprintf(e->queue.why_failed, sizeof e->queue.why_failed, "the engine has failed: %.900s",
                   why->msg[0] ? why->msg : nb_status_text(st));
    e->queue.failed = true;
    nb_mutex_unlock(e->queue.lock);
    if (e->news.fn) e->news.fn(e->news.ctx, true, e->queue.why_failed);
    nb_remote_end(&e->ranks, why->msg[0] ? why->msg : nb_status_text(st)); /* or they would wait for the next step */
    if (!e->ranks.stuck) nb_answers_clear(e);
    for (nb_run *r = e->live; r; r = r->next) nb_run_fail(e, r, NB_ERR_FAILED, e->queue.why_failed);
}

/* ---- what other threads have left ---- */

static void add(nb_engine *e, nb_run *r, double now)
{
    const nb_prompt_form form = nb_engine_prompt_form(e, r->n_prompt);
    const nb_sched_request rq = {
        .id = r->id,
        .prompt = r->prompt,
        .n_prompt = r->n_prompt,
        .n_expanded = form.n_expanded,
        .n_upload = form.n_upload,
        .rope_from = form.rope_from,
        .salt = nb_str_c(r->salt),
        .no_lookup = r->on_prompt ||
                     (r->sink && r->want[0] < (r->n_prompt - 1) / NB_BLOCK_TOK * NB_BLOCK_TOK),
        .max_item_tok = e->step.prefill_chunk,
        .priority = r->priority,
        .deadline = r->deadline,
        .after = r->after,
        .user = r,
    };
    nb_error err = { 0 };
    nb_answers_yield(e, r, now);
    r->shard = nb_engine_place(e, &rq);
    const nb_status st = nb_sched_add(nb_sched_of(e, r), &rq, now, &err);
    if (st != NB_OK) {
        nb_run_fail(e, r, st, err.msg[0] ? err.msg : nb_status_text(st));
        return;
    }
    r->added = true;
    if (r->keep_prompt) return;
    free(r->prompt);
    r->prompt = NULL;
}

typedef struct mail {
    nb_run *queue;
    nb_call *calls;
    bool stopping, failed;
} mail;

/* Waits until there is something to do, then takes it all. `busy`: requests can be computed. */
static mail collect(nb_engine *e, bool busy)
{
    nb_mutex_lock(e->queue.lock);
    while (!busy && !e->queue.first && !e->queue.aborts && !e->queue.calls && !e->queue.stopping) {
        if (e->live) {
            nb_cond_wait_for(e->queue.wake, e->queue.lock, IDLE_RETRY_MS);
            break;
        }
        const unsigned ms = !e->ranks.stuck && nb_answers_pending(e) ? NB_REFILL_QUIET_MS
                            : (e->step.watch.on || e->ranks.apart) && !e->queue.failed ? WATCH_MS
                                                                     : 0;
        if (ms) {
            nb_cond_wait_for(e->queue.wake, e->queue.lock, ms);
            break;
        }
        nb_cond_wait(e->queue.wake, e->queue.lock);
    }
    const mail m = { e->queue.first, e->queue.calls, e->queue.stopping, e->queue.failed };
    e->stats.snapshot.data_rank[0].n_waiting += e->queue.n_queued;
    e->stats.snapshot.n_waiting +=
        e->queue.n_queued; /* until the scheduler's own figures are published */
    e->stats.snapshot.n_waiting_tok += e->queue.n_queued_tok;
    e->queue.first = NULL;
    e->queue.end = &e->queue.first;
    e->queue.calls = NULL;
    e->queue.calls_end = &e->queue.calls;
    e->queue.n_queued = e->queue.n_queued_tok = 0;
    for (nb_run *r = m.queue; r; r = r->queue_next) {
        r->prev = NULL;
        r->next = e->live;
        if (e->live) e->live->prev = r;
        e->live = r;
    }
    /* Only now: what is aborted is in the list of the living, be it from this mail. */
    for (nb_run *r = e->queue.aborts, *next; r; r = next) {
        next = r->abort_next;
        r->abort_prev = r->abort_next = NULL;
        nb_run_end(e, r, "cancelled");
    }
    e->queue.aborts = NULL;
    nb_mutex_unlock(e->queue.lock);
    return m;
}

static void answer_calls(nb_engine *e, nb_call *list)
{
    for (nb_call *c = list, *next; c; c = next) {
        next = c->next;
        c->fn(e, c->ctx);
        nb_mutex_lock(e->queue.lock);
        c->done = true; /* from here on it may be gone */
        nb_cond_broadcast(e->queue.done);
        nb_mutex_unlock(e->queue.lock);
    }
}

static void end_cancelled(nb_engine *e)
{
    const unsigned seq = atomic_load_explicit(&e->cancel_seq, memory_order_relaxed);
    if (seq == e->cancel_seen) return;
    e->cancel_seen = seq;
    for (nb_run *r = e->live; r; r = r->next)
        if (nb_run_cancelled(e, r)) nb_run_end(e, r, "cancelled");
}

static void end_expired(nb_engine *e, nb_sched *s, double now)
{
    uint64_t id[32];
    size_t n;
    do {
        n = nb_sched_expired(s, now, id, NB_COUNT(id));
        for (size_t i = 0; i < n; i++) {
            nb_mutex_lock(e->queue.lock);
            nb_run *r = nb_queue_find(&e->queue, id[i]);
            nb_mutex_unlock(e->queue.lock);
            if (r) nb_run_end(e, r, "timeout");
        }
        leave(e);
    } while (n == NB_COUNT(id));
}

/* ---- a step ---- */

static size_t build_chunks(nb_engine *e, size_t n_item, double now)
{
    size_t n_tok = 0;
    for (size_t i = 0; i < n_item; i++) {
        const nb_sched_item *it = &e->step.item[i];
        nb_run *r = it->user;
        if (r && it->admitted && !r->admitted) { /* NULL: a refill */
            r->admitted = true;
            r->t_admit = now;
            r->out.n_cached = it->n_cached;
        }
        e->step.chunk[i] = (nb_chunk){
            .block = it->block,
            .n_block = it->n_block,
            .slot = it->slot,
            .tok = it->tok,
            .n_tok = it->n_tok,
            .pos0 = it->pos0,
            .rope_long = it->rope_long,
            .absorbed = !it->expanded || e->step.form == NB_FORM_ABSORBED,
            .load = it->load + 1, /* NB_SNAP_NONE + 1 is 0 */
            .save = it->save + 1,
            .upload = it->upload,
            .thrift = !it->expanded && e->pages.thrift.kind != NB_THRIFT_OFF,
        };
        if (it->slot == e->last_page.slot && (!r || r->shard == e->last_page.shard))
            e->last_page.n_tok = 0; /* it is overwritten */
        n_tok += it->n_tok;
    }
    return n_tok;
}

static nb_status compute(nb_engine *e, size_t n_item, nb_error *err)
{
    memset(e->step.bad, 0, n_item);
    if (e->step.fail_step) return nb_fail(err, NB_ERR_INTERNAL, "a failure made by a test");
    const nb_rank_job job = { .chunk = e->step.chunk,
                              .n = n_item,
                              .first = e->n_shard > 1 ? e->step.first : NULL,
                              .bad = e->step.bad };
    const nb_status st = nb_ranks_run(&e->ranks, &job, err);
    const nb_status read =
        nb_watch_reads(&e->step.watch, err); /* explains values that are not finite */
    return read == NB_OK ? st : read;
}

/* The step's tokens are in the cache, but for those of requests that failed. */
static void settle(nb_engine *e, size_t n_item, const char *why_bad)
{
    for (size_t i = 0; i < n_item; i++) {
        nb_run *r = e->step.item[i].user;
        if (e->step.bad[i]) {
            nb_run_fail(e, r, NB_ERR_NONFINITE, why_bad);
            continue;
        }
        const nb_status st = nb_sched_computed(nb_sched_of(e, r), e->step.item[i].id);
        if (st != NB_OK) nb_run_fail(e, r, st, nb_status_text(st));
    }
}

/* One item of a refill, which is alone in its step. */
static void step_refill(nb_engine *e, double now)
{
    nb_error err = { 0 };
    (void)build_chunks(e, 1, now);
    nb_engine_publish(e);
    const nb_status st = compute(e, 1, &err);
    if (st != NB_OK && st != NB_ERR_NONFINITE)
        fail_engine(e, st, &err);
    else if (e->step.bad[0])
        nb_refill_drop(e->answers.refill);
    else
        (void)nb_refill_computed(
            e->answers.refill); /* of an error the text is dropped, and counted */
    e->stats.count.refill_s += nb_clock_s() - now;
}

static size_t plan(nb_engine *e, double now)
{
    const size_t n_item = nb_shards_plan(e, now);
    if (n_item || !nb_answers_pending(e)) return n_item;
    if (nb_refill_start(e->answers.refill, now - e->answers.t_busy))
        return nb_shards_plan(e, now);
    nb_engine_publish(e); /* some may have left without a step */
    return 0;
}

/* Returns false when there was nothing to compute. */
static bool step(nb_engine *e, double now)
{
    const size_t n_item = plan(e, now);
    if (n_item == 0) return false;
    if (!e->step.item[0].user) {
        step_refill(e, now);
        return true;
    }
    nb_error err = { 0 };
    const size_t n_tok = build_chunks(e, n_item, now);
    nb_engine_publish(e); /* a step may take long */
    const nb_status st = compute(e, n_item, &err);
    if (st != NB_OK && st != NB_ERR_NONFINITE) {
        fail_engine(e, st, &err);
        return true;
    }
    settle(e, n_item, err.msg);
    for (size_t i = 0; i < n_item; i++) {
        nb_run *r = e->step.item[i].user;
        if (r->on_prompt && r->n_prompt_seen == 0 && !r->over)
            nb_run_show_prompt(e, r, r->prompt[0], NULL);
    }
    const nb_status drawn = nb_rows_run(e, nb_rows_plan(e), &err);
    if (drawn != NB_OK) {
        fail_engine(e, drawn, &err);
        return true;
    }
    for (size_t i = 0; i < n_item; i++) {
        nb_run *r = e->step.item[i].user;
        if (!e->step.item[i].last || r->max_tokens || r->over) continue;
        e->stats.count.prompt_tok += r->n_prompt;
        e->stats.count.prompt_tok_cached += r->out.n_cached;
        nb_run_end(e, r, "length"); /* only the prompt was asked for */
    }
    e->answers.t_busy = nb_clock_s();
    nb_shards_timed(e, e->answers.t_busy - now);
    nb_engine_count_step(e, n_tok, e->answers.t_busy - now);
    return true;
}

/* New requests go to the scheduler, or end where they are. */
static void receive(nb_engine *e, const mail *m, double now)
{
    for (nb_run *r = m->queue, *next; r; r = next) {
        next = r->queue_next;
        r->queue_next = NULL;
        if (m->failed)
            nb_run_fail(e, r, NB_ERR_FAILED, e->queue.why_failed);
        else if (nb_run_cancelled(e, r))
            nb_run_end(e, r, "cancelled");
        else if (!r->over && !m->stopping)
            add(e, r, now);
    }
    if (m->stopping) end_all(e, "cancelled");
    end_cancelled(e);
    leave(e);
}

/* Of the weights. */
static void look_at_files(nb_engine *e, double now)
{
    nb_error err = { 0 };
    const char *replaced;
    const nb_status st = nb_watch_files(&e->step.watch, now, &replaced, &err);
    if (st != NB_OK) fail_engine(e, st, &err);
    if (!replaced || !e->news.fn) return;
    (void)nb_fail(&err, NB_ERR_IO, "%s: was replaced or removed; its old content stays in use",
                  replaced);
    e->news.fn(e->news.ctx, false, err.msg);
}

/* Of other processes: one may have ended while there was nothing to compute. */
static void look_at_ranks(nb_engine *e)
{
    nb_error err = { 0 };
    const nb_status st = nb_comm_look(e->ranks.seat[0].comm, &err);
    if (st != NB_OK) fail_engine(e, st, &err);
}

void nb_engine_main(void *engine)
{
    nb_engine *e = engine;
    bool busy = false;
    nb_dev_enter(e->dev);
    for (;;) {
        const mail m = collect(e, busy);
        const double now = nb_clock_s();
        receive(e, &m, now);
        for (size_t k = 0; k < e->n_shard && !e->ranks.stuck; k++) end_expired(e, e->shard[k].sched, now);
        answer_calls(e, m.calls);
        if (m.stopping) break;
        if (!e->queue.failed) look_at_files(e, now);
        if (!e->queue.failed && e->ranks.apart) look_at_ranks(e);
        busy = !e->ranks.stuck &&
               step(e, nb_clock_s()); /* stuck: the scheduler still has what has ended */
        if (busy && !e->over) nb_engine_publish(e);
        leave(e);
    }
}
