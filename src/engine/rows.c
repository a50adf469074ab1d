/* rows.c - the logits of a step: which tokens need them, sampling, log-probabilities of
 * prompts, nb_logits, nb_engine_forced.
 *
 * Rows are worked off in passes of as many as the buffer holds.  Within a pass rows are
 * independent of each other: they are sampled in parallel, then delivered in order. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "os/clock.h"

static void add_row(nb_engine *e, size_t *n, nb_run *run, size_t place, size_t pos,
                    nb_row_kind kind)
{
    NB_ASSERT(*n < e->n_shard * e->step.max_step_tok);
    e->step.row[(*n)++] = (nb_row){ .run = run, .place = place, .pos = pos, .kind = kind };
}

/* Rows of the items of one shard, whose batch they are places in. */
static void plan_shard(nb_engine *e, size_t shard, size_t *n_row)
{
    size_t n = *n_row, at = 0;
    for (size_t i = e->step.first[shard]; i < e->step.first[shard + 1]; at += e->step.item[i++].n_tok) {
        const nb_sched_item *it = &e->step.item[i];
        nb_run *r = it->user;
        const size_t end = it->pos0 + it->n_tok;
        if (r->over) continue;
        if (r->forced) {
            if (it->last) add_row(e, &n, r, at + it->n_tok - 1, end - 1, NB_ROW_FORCED);
            continue;
        }
        if (r->sink) {
            for (size_t k = r->n_sent; k < r->n_want && r->want[k] < end; k++)
                if (r->want[k] >= it->pos0) /* else it was computed before a preemption */
                    add_row(e, &n, r, at + r->want[k] - it->pos0, r->want[k], NB_ROW_SINK);
            continue;
        }
        if (r->on_prompt) /* after a preemption only what was not shown before */
            for (size_t p = it->pos0; p < end && p + 1 < r->n_prompt; p++)
                if (p + 1 >= r->n_prompt_seen)
                    add_row(e, &n, r, at + p - it->pos0, p, NB_ROW_PROMPT);
        if (it->last && r->max_tokens)
            add_row(e, &n, r, at + it->n_tok - 1, end - 1, NB_ROW_SAMPLE);
    }
    *n_row = n;
}

size_t nb_rows_plan(nb_engine *e)
{
    size_t n = 0;
    for (size_t k = 0; k < e->n_shard; k++) plan_shard(e, k, &n);
    return n;
}

/* ---- one pass ---- */

typedef struct pass {
    nb_engine *e;
    const nb_row *row;
    size_t n;
} pass;

static bool no_nan(const float *x, size_t n)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++) ok &= x[i] == x[i];
    return ok;
}

static nb_status compute_row(nb_engine *e, const nb_row *row, const float *logits,
                             nb_sample_scratch *scratch, nb_sample_out *out)
{
    const size_t n_vocab = e->model.c.n_vocab;
    nb_run *r = row->run;
    switch (row->kind) {
    case NB_ROW_SINK:
    case NB_ROW_FORCED: return no_nan(logits, n_vocab) ? NB_OK : NB_ERR_NONFINITE;
    case NB_ROW_PROMPT:
        return nb_sample_logprobs(logits, n_vocab, r->prompt[row->pos + 1], (size_t)r->n_prompt_top,
                                  out);
    case NB_ROW_SAMPLE: break;
    }
    if (r->prompt) NB_TRY(nb_sampler_accept_prompt(r->sampler, r->prompt, r->n_prompt));
    nb_sample_mask mask;
    bool need;
    NB_TRY(nb_run_mask(r, &mask, &need));
    if (r->at_script < r->n_script) {
        const size_t n_top = r->n_logprobs > 0 ? (size_t)r->n_logprobs : 0;
        nb_sampler_drew(r->sampler);
        NB_TRY(nb_sample_logprobs(logits, n_vocab, r->script[r->at_script], n_top, out));
        return nb_run_note(r, r->script[r->at_script]);
    }
    NB_TRY(nb_sampler_next(r->sampler, scratch, logits, need ? &mask : NULL, out));
    return nb_run_note(r, out->id);
}

/* Task t takes rows t, t + n_scratch, ...: one scratch is used by one task. */
static void sample_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const pass *p = ctx;
    nb_engine *e = p->e;
    for (size_t i = task; i < p->n; i += e->step.n_scratch)
        if (!p->row[i].run->over)
            e->step.row_st[i] = compute_row(e, &p->row[i], e->step.logits + i * e->model.c.n_vocab,
                                            e->step.scratch[task], &e->step.sampled[i]);
}

/* ---- delivering ---- */

static void deliver_sample(nb_engine *e, nb_run *r, const nb_sample_out *s)
{
    const double now = nb_clock_s();
    if (r->out.n_tokens == 0) {
        r->t_first = now;
        e->stats.count.prompt_tok += r->n_prompt;
        e->stats.count.prompt_tok_cached += r->out.n_cached;
    }
    r->t_last = now;
    free(r->prompt); /* counted by the sampler, shown */
    r->prompt = NULL;
    nb_status st = nb_run_accept(e, r, s);
    if (st == NB_OK && !r->over) st = nb_sched_push(nb_sched_of(e, r), r->id, s->id);
    if (st != NB_OK) nb_run_fail(e, r, st, nb_status_text(st));
}

static void deliver_sink(nb_engine *e, const nb_row *row, const float *logits)
{
    nb_run *r = row->run;
    r->n_sent++;
    if (r->sink(r->sink_ctx, row->pos, logits, e->model.c.n_vocab) != 0)
        nb_run_fail(e, r, NB_ERR_CANCELLED, "stopped by the receiver of the logits");
}

/* The row after the last known token; the next token of the text becomes known. */
static void deliver_forced(nb_engine *e, const nb_row *row, const float *logits)
{
    nb_run *r = row->run;
    const size_t next = row->pos + 1;
    deliver_sink(e, row, logits);
    if (r->over) return;
    if (next == r->n_forced) {
        nb_run_end(e, r, "length");
        return;
    }
    const nb_status st = nb_sched_push(nb_sched_of(e, r), r->id, r->forced[next]);
    if (st != NB_OK) nb_run_fail(e, r, st, nb_status_text(st));
}

static void deliver(nb_engine *e, const nb_row *row, const float *logits, nb_status st,
                    const nb_sample_out *s)
{
    nb_run *r = row->run;
    if (r->over) return; /* ended by one of its rows before */
    if (st != NB_OK) {
        nb_error why = { 0 };
        if (row->kind == NB_ROW_SAMPLE && r->grammar && st == NB_ERR_NOT_FOUND) {
            nb_run_end(e, r, "stop");
            return;
        }
        if (row->kind == NB_ROW_SAMPLE && r->grammar && st == NB_ERR_LIMIT)
            (void)nb_fail(&why, st, "the grammar's states take too much memory or time here");
        if (st == NB_ERR_NONFINITE)
            (void)nb_fail(&why, st, "the model's logits at position %zu are not finite", row->pos);
        nb_run_fail(e, r, st, why.msg[0] ? why.msg : nb_status_text(st));
    } else if (row->kind == NB_ROW_SINK) {
        deliver_sink(e, row, logits);
    } else if (row->kind == NB_ROW_FORCED) {
        deliver_forced(e, row, logits);
    } else if (row->kind == NB_ROW_PROMPT) {
        nb_run_show_prompt(e, r, s->id, s);
    } else {
        deliver_sample(e, r, s);
    }
}

/* Whether all rows of a pass can be drawn where they are, so that no logits need to travel; then
 * e->step.draw has their parameters. */
static bool drawn_there(nb_engine *e, const pass *p)
{
    if (!nb_rank_can_sample(e->rank[0].rank)) return false;
    for (size_t i = 0; i < p->n; i++)
        if (p->row[i].kind != NB_ROW_SAMPLE || p->row[i].run->over ||
            !nb_run_is_free(p->row[i].run) ||
            !nb_sampler_plain(p->row[i].run->sampler, &e->step.draw[i]))
            return false;
    return true;
}

static nb_status draw_there(nb_engine *e, const pass *p, nb_error *err)
{
    const nb_rank_job job = { .tok = e->step.place,
                              .n = p->n,
                              .first = e->n_shard > 1 ? e->step.row_first : NULL,
                              .draw = e->step.draw,
                              .id = e->step.drawn };
    NB_TRY(nb_ranks_run(&e->ranks, &job, err));
    for (size_t i = 0; i < p->n; i++) {
        const nb_run *r = p->row[i].run;
        const uint32_t id = r->at_script < r->n_script ? r->script[r->at_script] : e->step.drawn[i];
        e->step.sampled[i] = (nb_sample_out){ .id = id };
        e->step.row_st[i] = e->step.drawn[i] == UINT32_MAX ? NB_ERR_NONFINITE : NB_OK;
        nb_sampler_drew(p->row[i].run->sampler);
        if (e->step.row_st[i] == NB_OK)
            e->step.row_st[i] = nb_run_note(p->row[i].run, id);
    }
    return NB_OK;
}

static nb_status compute_pass(nb_engine *e, pass *p, nb_error *err)
{
    size_t *first = e->step.row_first;
    memset(first, 0, sizeof e->step.row_first);
    for (size_t i = 0; i < p->n; i++) {
        e->step.place[i] = p->row[i].place;
        first[p->row[i].run->shard + 1]++;
    }
    for (size_t k = 0; k < e->n_shard; k++) first[k + 1] += first[k];
    if (drawn_there(e, p)) return draw_there(e, p, err);
    const nb_rank_job job = { .tok = e->step.place,
                              .n = p->n,
                              .first = e->n_shard > 1 ? first : NULL,
                              .logits = e->step.logits,
                              .n_vocab = e->model.c.n_vocab };
    NB_TRY(nb_ranks_run(&e->ranks, &job, err));
    NB_TRY(nb_watch_reads(&e->step.watch, err));
    nb_dev_run(e->dev, sample_task, p, p->n < e->step.n_scratch ? p->n : e->step.n_scratch);
    return NB_OK;
}

nb_status nb_rows_run(nb_engine *e, size_t n_row, nb_error *err)
{
    const size_t n_vocab = e->model.c.n_vocab;
    for (size_t first = 0; first < n_row; first += e->step.max_row) {
        pass p = { e, e->step.row + first,
                   n_row - first < e->step.max_row ? n_row - first : e->step.max_row };
        NB_TRY(compute_pass(e, &p, err));
        for (size_t i = 0; i < p.n; i++)
            deliver(e, &p.row[i], e->step.logits + i * n_vocab, e->step.row_st[i],
                    &e->step.sampled[i]);
    }
    return NB_OK;
}
