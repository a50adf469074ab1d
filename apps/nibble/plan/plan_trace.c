/* plan_trace.c - `nibble plan --trace`: a trace through caches of several sizes, records and
 * policies. */
#include <math.h>
#include <stdlib.h>

#include "../cli.h"
#include "plan_trace.h"

enum { PASS_BLOCKS = 4 << 20 }; /* of all caches of one pass: half a GiB of names */

static double share(uint64_t part, uint64_t all)
{
    return all ? (double)part / (double)all : 0;
}

/* One of n_seed runs. */
static void add_run(trace_point *p, const nb_replay_result *r, bool first, double n_seed)
{
    const double hit = share(r->n_hit_tok, r->n_in_tok), w = 1 / n_seed;
    p->hit += w * hit;
    p->hit_min = first ? hit : fmin(p->hit_min, hit);
    p->hit_max = first ? hit : fmax(p->hit_max, hit);
    p->ceiling +=
        r->n_ceiling_tok == UINT64_MAX ? (double)NAN : w * share(r->n_ceiling_tok, r->n_in_tok);
    p->n_in += w * (double)r->n_in_tok;
    p->n_uncached += w * (double)(r->n_in_tok - r->n_hit_tok);
    p->n_evicted += w * (double)r->n_evicted;
    p->n_request += w * (double)r->n_request;
    p->n_skipped += w * (double)r->n_skipped;
    p->n_session += w * (double)r->n_session;
    p->n_out += w * (double)r->n_out_tok;
    p->n_preempted += w * (double)r->n_preempted;
    p->alone_mean += w * r->alone_mean_s;
    p->alone_p50 += w * r->alone_p50_s;
    p->ttft_mean += w * r->ttft_mean_s;
    p->ttft_p50 += w * r->ttft_p50_s;
    p->ttft_p90 += w * r->ttft_p90_s;
    p->ttft_p99 += w * r->ttft_p99_s;
    p->wait += w * r->wait_mean_s;
    p->duration += w * r->duration_s;
    p->held += w * r->held_mean;
    p->n_running += w * (double)r->n_running_max;
}

static nb_replay_point replay_point(const trace_plan *t, const trace_point *p)
{
    const bool timed = t->serve || trace_has_alone(t);
    return (nb_replay_point){ .n_block = p->n_block,
                              .evict = p->evict,
                              .protected_share = t->o->trace.protected_share,
                              .clock = timed ? &t->record[p->record].clock : NULL };
}

/* As many points in one pass as their names have room for. */
static nb_status play_cache(trace_plan *t, const nb_mix_options *mix, size_t seed, nb_error *err)
{
    nb_replay_point *point = calloc(t->n_point, sizeof *point);
    nb_replay_result *result = calloc(t->n_point, sizeof *result);
    nb_status st = point && result ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; st == NB_OK && i < t->n_point;) {
        size_t n = 0, n_block = 0;
        while (i + n < t->n_point && (!n || n_block + t->point[i + n].n_block <= PASS_BLOCKS)) {
            n_block += t->point[i + n].n_block;
            point[n] = replay_point(t, &t->point[i + n]);
            n++;
        }
        st = nb_replay_cache(mix, point, n, result, err);
        for (size_t k = 0; st == NB_OK && k < n; k++)
            add_run(&t->point[i + k], &result[k], seed == 0, (double)t->o->trace.seeds);
        i += n;
    }
    free(point);
    free(result);
    return st;
}

static nb_status play_serve(trace_plan *t, const nb_mix_options *mix, size_t seed, nb_error *err)
{
    const trace_opts *o = &t->o->trace;
    const size_t step = t->o->plan.chunk > o->max_num_seqs ? t->o->plan.chunk : o->max_num_seqs;
    /* A machine has these for each replica, and chunks as the engine cuts them; without one prompts
     * go one after the other. */
    const size_t dp = t->has_machine ? t->plan.layout.dp : 1;
    const nb_replay_serve_options so = { .max_num_seqs = o->max_num_seqs * dp,
                                         .max_step_tok = step * dp,
                                         .max_chunk_tok = t->has_machine ? (step + 1) / 2 : step,
                                         .max_item_tok = t->has_machine ? step : 0 };
    for (size_t i = 0; i < t->n_point; i++) {
        nb_replay_result result;
        const nb_replay_point point = replay_point(t, &t->point[i]);
        const nb_status st = nb_replay_serve(mix, &point, &so, &result, err);
        if (st != NB_OK) return st;
        add_run(&t->point[i], &result, seed == 0, (double)o->seeds);
    }
    return NB_OK;
}

static int play(trace_plan *t)
{
    nb_error err = { 0 };
    nb_mix_options mix = t->mix;
    for (size_t seed = 0; seed < t->o->trace.seeds; seed++) {
        mix.seed = seed + 1;
        const nb_status st =
            t->serve ? play_serve(t, &mix, seed, &err) : play_cache(t, &mix, seed, &err);
        if (st != NB_OK) return cli_status(st, &err);
    }
    return CLI_OK;
}

static int report(const trace_plan *t)
{
    if (!t->o->json) {
        trace_print(t);
        return CLI_OK;
    }
    json_t *j = trace_json(t);
    if (!j) return cli_failed("out of memory");
    (void)json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10));
    (void)fputc('\n', stdout);
    json_decref(j);
    return CLI_OK;
}

int cmd_plan_trace(const opts *o)
{
    trace_plan t;
    int code = trace_setup(o, &t);
    if (code == CLI_OK) code = play(&t);
    if (code == CLI_OK) code = trace_check_played(&t);
    if (code == CLI_OK && o->trace.html) code = trace_page(&t, o->trace.html);
    if (code == CLI_OK) code = report(&t);
    trace_deinit(&t);
    return code;
}
