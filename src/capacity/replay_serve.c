/* replay_serve.c - a trace through nb_sched on a clock of its own; see replay.h.
 *
 * Tokens of a prompt are the request's number: what it shares is said by the keys, and the rest is
 * nobody else's.  Tokens are computed in the forms of `--mla auto` (the prompt expanded), so an answer's
 * blocks are never found by a prompt that repeats it: the trace names that text anew. */
#include <math.h>
#include <stdlib.h>

#include "capacity/replay.h"
#include "sched/sched.h"

enum { CHECK_STEPS = 64 };

typedef struct served {
    uint64_t id;
    double t_s;         /* arrival */
    size_t who, n_left; /* tokens to generate */
    bool started, first;
    struct served *prev, *next;
} served;

typedef struct serve {
    const nb_replay_serve_options *o;
    const nb_replay_clock *clock;
    nb_mix *mix;
    nb_kv_cache *kv;
    nb_sched *s;
    nb_sched_item *item;
    nb_replay_result *r;
    size_t n_block;
    uint64_t n_id;
    double now_s, busy_s, held_s;
    double *ttft_s; /* [n_first] */
    size_t n_first, cap_first;
    double wait_s;
    size_t n_started;
    served *live;  /* all that were added and not answered */
    uint32_t *tok; /* [cap_tok] */
    size_t cap_tok, max_len;
} serve;

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "replay: out of memory");
}

static void forget(serve *v, served *u)
{
    if (u->next) u->next->prev = u->prev;
    if (u->prev)
        u->prev->next = u->next;
    else
        v->live = u->next;
    free(u);
}

/* ---- arrivals ---- */

static nb_status add(serve *v, const nb_mix_req *q, nb_error *err)
{
    const size_t n_out = q->n_out ? q->n_out : 1;
    if (q->n_in > v->max_len || n_out > v->max_len - q->n_in) {
        v->r->n_skipped++;
        return nb_mix_done(v->mix, q->who, v->now_s, err);
    }
    served *u = calloc(1, sizeof *u);
    if (!u || NB_GROW(v->tok, v->cap_tok, q->n_in) != NB_OK) {
        free(u);
        return no_memory(err);
    }
    *u = (served){ .id = ++v->n_id, .t_s = q->t_s, .who = q->who, .n_left = n_out };
    for (size_t i = 0; i < q->n_in; i++) v->tok[i] = (uint32_t)u->id;
    const nb_sched_request rq = { .id = u->id,
                                  .prompt = v->tok,
                                  .n_prompt = q->n_in,
                                  .n_expanded = q->n_in,
                                  .rope_from = SIZE_MAX,
                                  .max_item_tok = v->o->max_item_tok,
                                  .deadline = (double)INFINITY,
                                  .key = q->key,
                                  .n_key = q->n_key,
                                  .user = u };
    const nb_status st = nb_sched_add(v->s, &rq, q->t_s, err);
    if (st != NB_OK) {
        free(u);
        return st;
    }
    u->next = v->live;
    if (v->live) v->live->prev = u;
    v->live = u;
    v->r->n_request++;
    v->r->n_in_tok += q->n_in;
    return NB_OK;
}

/* All that came until now.  *next_s: when the next one comes. */
static nb_status arrivals(serve *v, double *next_s, nb_error *err)
{
    for (;;) {
        nb_mix_req q;
        bool more;
        NB_TRY(nb_mix_peek(v->mix, next_s, err));
        if (!(*next_s <= v->now_s)) return NB_OK;
        NB_TRY(nb_mix_next(v->mix, &q, &more, err));
        if (more) NB_TRY(add(v, &q, err));
    }
}

/* ---- a step ---- */

static void larger(double *most, double x)
{
    if (x > *most) *most = x;
}

static nb_clock_step work_of(const serve *v, size_t n_item)
{
    nb_clock_step w = { 0 };
    nb_mixed *m = &w.work;
    for (size_t i = 0; i < n_item; i++) {
        const double n = (double)v->item[i].n_tok, before = (double)v->item[i].pos0;
        if (v->item[i].expanded) {
            const nb_prompt_work p = nb_prompt_chunk(n, before);
            m->all.n_tok += p.n_tok;
            m->all.pairs += p.pairs;
            m->all.rebuilt += p.rebuilt;
            larger(&m->largest.n_tok, p.n_tok);
            larger(&m->largest.pairs, p.pairs);
            larger(&m->largest.rebuilt, p.rebuilt);
        } else { /* generated tokens: one, or all of them again after a preemption */
            w.n_generating++;
            w.n_again += v->item[i].n_tok - 1;
            m->n_seq += n;
            m->context += n * before + n * (n + 1) / 2;
        }
    }
    if (m->n_seq > 0) m->context /= m->n_seq;
    return w;
}

static nb_status first_token(serve *v, served *u, nb_error *err)
{
    if (u->first) return NB_OK;
    u->first = true;
    if (NB_GROW(v->ttft_s, v->cap_first, v->n_first) != NB_OK) return no_memory(err);
    v->ttft_s[v->n_first++] = v->now_s - u->t_s;
    return NB_OK;
}

static nb_status after_item(serve *v, const nb_sched_item *it, nb_error *err)
{
    served *u = it->user;
    const nb_status st = nb_sched_computed(v->s, it->id);
    if (st != NB_OK) return nb_fail(err, st, "replay: %s", nb_status_text(st));
    if (!it->last) return NB_OK;
    NB_TRY(first_token(v, u, err));
    v->r->n_out_tok++;
    if (--u->n_left)
        return nb_sched_push(v->s, it->id, (uint32_t)it->id) == NB_OK ? NB_OK : no_memory(err);
    const size_t who = u->who;
    nb_sched_remove(v->s, it->id);
    forget(v, u);
    return nb_mix_done(v->mix, who, v->now_s, err);
}

static nb_status step(serve *v, size_t n_item, nb_error *err)
{
    nb_kv_cache_stats ks;
    const nb_clock_step work = work_of(v, n_item);
    const double dt_s = nb_clock_step_s(v->clock, &work);
    for (size_t i = 0; i < n_item; i++) {
        served *u = v->item[i].user;
        if (u->started) continue;
        u->started = true;
        v->wait_s += v->now_s - u->t_s;
        v->n_started++;
    }
    nb_kv_cache_get_stats(v->kv, &ks);
    v->busy_s += dt_s;
    v->held_s += dt_s * (double)ks.n_held / (double)v->n_block;
    v->now_s += dt_s;
    if (n_item > v->r->n_running_max) v->r->n_running_max = n_item;
    for (size_t i = 0; i < n_item; i++) NB_TRY(after_item(v, &v->item[i], err));
    return NB_OK;
}

static nb_status run(serve *v, nb_error *err)
{
    for (uint64_t n_step = 0;; n_step++) {
        double next_s;
        NB_TRY(arrivals(v, &next_s, err));
        const size_t n_item = nb_sched_plan(v->s, v->now_s, v->item);
        if (v->o->check && n_step % CHECK_STEPS == 0) {
            const char *broken = nb_sched_check(v->s);
            if (broken) return nb_fail(err, NB_ERR_INTERNAL, "replay: %s", broken);
        }
        if (n_item) {
            NB_TRY(step(v, n_item, err));
        } else if (isfinite(next_s)) {
            v->now_s = next_s;
        } else {
            NB_ASSERT(!v->live); /* somebody always goes on */
            return NB_OK;
        }
    }
}

/* ---- results ---- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The least value that the share p of them does not exceed. */
static double percentile(const double *x, size_t n, double p)
{
    if (!n) return 0;
    const size_t i = (size_t)ceil(p * (double)n);
    return x[i ? i - 1 : 0];
}

static void summarize(serve *v)
{
    nb_replay_result *r = v->r;
    nb_sched_stats ss;
    nb_kv_cache_stats ks;
    double sum = 0;
    nb_sched_get_stats(v->s, &ss);
    nb_kv_cache_get_stats(v->kv, &ks);
    for (size_t i = 0; i < v->n_first; i++) sum += v->ttft_s[i];
    if (v->n_first) qsort(v->ttft_s, v->n_first, sizeof *v->ttft_s, by_size);
    r->n_hit_tok = ss.prefix_hits;
    r->again_tok = ss.again_hits;
    r->n_preempted = ss.n_preempted;
    r->preempted_tok = ss.preempted_tok;
    r->n_evicted = ks.n_evicted;
    r->n_skipped += nb_mix_n_skipped(v->mix);
    r->n_session = nb_mix_n_opened(v->mix);
    r->ttft_mean_s = v->n_first ? sum / (double)v->n_first : 0;
    r->ttft_p50_s = percentile(v->ttft_s, v->n_first, 0.5);
    r->ttft_p90_s = percentile(v->ttft_s, v->n_first, 0.9);
    r->ttft_p99_s = percentile(v->ttft_s, v->n_first, 0.99);
    r->wait_mean_s = v->n_started ? v->wait_s / (double)v->n_started : 0;
    r->duration_s = v->now_s;
    r->held_mean = v->busy_s > 0 ? v->held_s / v->busy_s : 0;
}

static nb_status setup(serve *v, const nb_mix_options *mix, const nb_replay_point *point,
                       nb_error *err)
{
    const nb_replay_serve_options *o = v->o;
    NB_TRY(nb_clock_check(v->clock, err));
    const nb_kv_cache_options ko = { .n_block = point->n_block,
                                     .index = true,
                                     .protected_share = point->protected_share,
                                     .evict = point->evict };
    NB_TRY(nb_kv_cache_create(&ko, &v->kv, err));
    v->n_block = point->n_block;
    v->max_len = point->n_block < NB_TRACE_MAX_TOK / 32 ? point->n_block * NB_BLOCK_TOK
                                                        : (size_t)2 * NB_TRACE_MAX_TOK;
    const nb_sched_options so = { .max_num_seqs = o->max_num_seqs,
                                  .max_step_tok = o->max_step_tok,
                                  .max_chunk_tok = o->max_chunk_tok,
                                  .max_model_len = v->max_len };
    NB_TRY(nb_sched_create(&so, v->kv, &v->s, err));
    v->item = calloc(o->max_num_seqs, sizeof *v->item);
    if (!v->item) return no_memory(err);
    nb_mix_options m = *mix;
    m.closed = true;
    return nb_mix_create(&m, &v->mix, err);
}

nb_status nb_replay_serve(const nb_mix_options *mix, const nb_replay_point *point,
                          const nb_replay_serve_options *o, nb_replay_result *result, nb_error *err)
{
    nb_replay_result got = { 0 };
    serve v = { .o = o, .clock = point->clock, .r = &got };
    nb_status st = setup(&v, mix, point, err);
    if (st == NB_OK) st = run(&v, err);
    if (st == NB_OK) {
        summarize(&v);
        *result = got;
    }
    while (v.live) forget(&v, v.live);
    nb_sched_destroy(v.s);
    nb_kv_cache_destroy(v.kv);
    nb_mix_destroy(v.mix);
    free(v.item);
    free(v.ttft_s);
    free(v.tok);
    return st;
}
