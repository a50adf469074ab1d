/* plan_trace_out.c - the report of a replay: JSON, tables, a page.
 *
 * The page is one file without scripts that needs no network. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "../eval/cmd_eval.h"
#include "plan_trace.h"
#include "plan_value.h"
#include "report/html.h"

/* ---- JSON ---- */

/* Steals v; NaN is null. */
static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}
static bool put_num(json_t *o, const char *key, double x)
{
    return put(o, key, isfinite(x) ? json_real(x) : json_null());
}
static bool put_int(json_t *o, const char *key, double x)
{
    return put(o, key, json_integer((json_int_t)x));
}
/* A count: means over seeds are rounded. */
static bool put_count(json_t *o, const char *key, double x)
{
    return put_int(o, key, floor(x + 0.5));
}
static json_t *text(const char *s) /* a path may be any bytes */
{
    json_t *v = json_string(s);
    return v ? v : json_string("(not UTF-8)");
}

/* A time of the machine, for a prompt. */
static json_t *prompt_json(const trace_plan *t, size_t n_tok, size_t n_cached)
{
    json_t *j = json_object();
    if (put_int(j, "tokens", (double)n_tok) && put_int(j, "cached", (double)n_cached) &&
        put_num(j, "s", trace_ref_prompt_s(t, n_tok, n_cached)))
        return j;
    json_decref(j);
    return NULL;
}

static json_t *prompts_json(const trace_plan *t)
{
    json_t *j = json_array();
    if (t->models_prompts) {
        (void)json_array_append_new(j, prompt_json(t, TRACE_REF_PROMPT, 0));
        (void)json_array_append_new(
            j, prompt_json(t, TRACE_REF_NEW, TRACE_REF_PROMPT - TRACE_REF_NEW));
    }
    return j;
}

static json_t *steps_json(const trace_plan *t)
{
    json_t *j = json_array();
    for (size_t i = 0; t->models_steps && i < t->n_record; i++) {
        json_t *s = json_object();
        const bool ok = put(s, "record", json_string(t->record[i].name)) &&
                        put_int(s, "sequences_per_replica", TRACE_REF_SEQ) &&
                        put_int(s, "context", TRACE_REF_CONTEXT) &&
                        put_num(s, "s", trace_ref_step_s(t, i)) && json_array_append(j, s) == 0;
        json_decref(s);
        if (!ok) break;
    }
    return j;
}

static json_t *machine_json(const trace_plan *t)
{
    const plan *p = &t->plan;
    if (!t->has_machine) return json_null();
    json_t *j = json_object();
    if (put(j, "name", json_string(p->machine.name)) &&
        put_int(j, "gpus", (double)p->layout.n_gpu) &&
        put_int(j, "tensor_parallel", (double)p->layout.tp) &&
        put_int(j, "data_parallel", (double)p->layout.dp) &&
        put_int(j, "expert_parallel", (double)p->layout.ep) &&
        put_int(j, "cache_bytes", t->machine_bytes) &&
        put(j, "efficiency", json_string(p->efficiency.source)) &&
        put(j, "prefill", prompts_json(t)) && put(j, "decode", steps_json(t)))
        return j;
    json_decref(j);
    return NULL;
}

/* A rate; null: the machine's times are used, which are not one. */
static bool put_rate(json_t *j, const char *key, double given, bool modelled, double assumed)
{
    return put_num(j, key, given > 0 ? given : modelled ? (double)NAN : assumed);
}

static bool put_clock(json_t *j, const trace_plan *t)
{
    const trace_opts *o = &t->o->trace;
    json_t *c = json_object();
    return put(c, "prefill", json_string(trace_rate_source(o->prefill_rate, t->models_prompts))) &&
           put(c, "decode", json_string(trace_rate_source(o->decode_rate, t->models_steps))) &&
           put(j, "clock", c) &&
           put_rate(j, "prefill_tokens_per_s", o->prefill_rate, t->models_prompts,
                    TRACE_PREFILL_RATE) &&
           put_int(j, "max_num_batched_tokens", (double)t->o->plan.chunk);
}

static json_t *describe(const trace_plan *t)
{
    const trace_opts *o = &t->o->trace;
    json_t *j = json_object();
    bool ok = put(j, "file", text(o->file)) && put(j, "replay", json_string(o->replay)) &&
              put_num(j, "speed", o->speed) && put_num(j, "protected_share", o->protected_share) &&
              put_int(j, "max_prompt", (double)o->max_prompt) &&
              put_int(j, "seeds", (double)o->seeds);
    if (t->mix.sessions)
        ok = ok && put_int(j, "files", (double)t->n_path) &&
             put_int(j, "sessions_open", (double)o->sessions) &&
             put_num(j, "max_gap_s", o->max_gap_s);
    ok = ok && put(j, "machine", machine_json(t));
    if (t->serve || trace_has_alone(t)) ok = ok && put_clock(j, t);
    if (t->serve)
        ok =
            ok &&
            put_rate(j, "decode_steps_per_s", o->decode_rate, t->models_steps, TRACE_DECODE_RATE) &&
            put_int(j, "max_num_seqs", (double)o->max_num_seqs);
    if (ok) return j;
    json_decref(j);
    return NULL;
}

static bool put_serve(json_t *j, const trace_point *p)
{
    json_t *ttft = json_object();
    return put_num(ttft, "mean", p->ttft_mean) && put_num(ttft, "p50", p->ttft_p50) &&
           put_num(ttft, "p90", p->ttft_p90) && put_num(ttft, "p99", p->ttft_p99) &&
           put(j, "ttft_s", ttft) && put_num(j, "wait_mean_s", p->wait) &&
           put_count(j, "preemptions", p->n_preempted) && put_num(j, "held_mean", p->held) &&
           put_count(j, "running_max", p->n_running) && put_count(j, "output_tokens", p->n_out);
}

static bool put_alone(json_t *j, const trace_point *p)
{
    json_t *alone = json_object();
    return put_num(alone, "mean", p->alone_mean) && put_num(alone, "p50", p->alone_p50) &&
           put(j, "ttft_alone_s", alone);
}

/* Whether the machine has room for a point's blocks. */
static json_t *fits_json(const trace_plan *t, const trace_point *p)
{
    return t->has_machine ? json_boolean((double)p->n_block <= t->record[p->record].machine_blocks)
                          : json_null();
}

static json_t *describe_point(const trace_plan *t, const trace_point *p)
{
    const trace_record *r = &t->record[p->record];
    json_t *j = json_object();
    if (put(j, "record", json_string(r->name)) &&
        put(j, "policy", json_string(nb_kv_evict_name(p->evict))) &&
        put_int(j, "cache_bytes", t->size[p->size]) &&
        put_num(j, "bytes_per_token", r->block_bytes / NB_BLOCK_TOK) &&
        put_int(j, "blocks", (double)p->n_block) &&
        put_int(j, "cache_tokens", (double)p->n_block * NB_BLOCK_TOK) &&
        put_num(j, "hit_rate", p->hit) && put_num(j, "hit_rate_min", p->hit_min) &&
        put_num(j, "hit_rate_max", p->hit_max) &&
        put_num(j, "hit_rate_ceiling", t->serve ? (double)NAN : p->ceiling) &&
        put_count(j, "requests", p->n_request) && put_count(j, "skipped", p->n_skipped) &&
        put_count(j, "sessions", p->n_session) && put_count(j, "input_tokens", p->n_in) &&
        put_count(j, "uncached_tokens", p->n_uncached) &&
        put_count(j, "evicted_blocks", p->n_evicted) && put_num(j, "duration_s", p->duration) &&
        put(j, "fits", fits_json(t, p)) && (!trace_has_alone(t) || put_alone(j, p)) &&
        (!t->serve || put_serve(j, p)))
        return j;
    json_decref(j);
    return NULL;
}

json_t *trace_json(const trace_plan *t)
{
    json_t *j = json_object(), *points = json_array();
    bool ok = put(j, "trace", describe(t));
    for (size_t i = 0; ok && i < t->n_point; i++)
        ok = json_array_append_new(points, describe_point(t, &t->point[i])) == 0;
    ok = put(j, "points", points) && ok;
    if (ok) return j;
    json_decref(j);
    return NULL;
}

/* ---- tables ---- */

/* Uncached tokens of the first record over those of this one. */
static double gain(const trace_plan *t, size_t i)
{
    const trace_point *p = &t->point[i], *first = &t->point[i - p->record];
    return p->n_uncached > 0 ? first->n_uncached / p->n_uncached : (double)NAN;
}

/* Mean time of the first record over that of this one. */
static double sooner(const trace_plan *t, size_t i)
{
    const trace_point *p = &t->point[i], *first = &t->point[i - p->record];
    const double now = t->serve ? p->ttft_mean : p->alone_mean;
    const double was = t->serve ? first->ttft_mean : first->alone_mean;
    return now > 0 ? was / now : (double)NAN;
}

/* "modelled: ...": what the clock counts with, for tables and the page. */
static void prompts_text(const trace_plan *t, char *out, size_t n)
{
    const double given = t->o->trace.prefill_rate;
    if (t->models_prompts)
        (void)snprintf(
            out, n,
            "prompts as modelled for the machine: %d tokens alone in %.3g s, the last %d of them, "
            "others cached, in %.3g s",
            TRACE_REF_PROMPT, trace_ref_prompt_s(t, TRACE_REF_PROMPT, 0), TRACE_REF_NEW,
            trace_ref_prompt_s(t, TRACE_REF_NEW, TRACE_REF_PROMPT - TRACE_REF_NEW));
    else
        (void)snprintf(out, n, "%g prompt tokens/s (%s)", given > 0 ? given : TRACE_PREFILL_RATE,
                       given > 0 ? "given" : "assumed, not measured");
}

static void steps_text(const trace_plan *t, char *out, size_t n)
{
    const double given = t->o->trace.decode_rate;
    if (!t->models_steps) {
        (void)snprintf(out, n, "%g decode steps/s (%s)", given > 0 ? given : TRACE_DECODE_RATE,
                       given > 0 ? "given" : "assumed, not measured");
        return;
    }
    int at = snprintf(out, n, "steps as modelled: %d sequences a replica of %d tokens in",
                      TRACE_REF_SEQ, TRACE_REF_CONTEXT);
    for (size_t i = 0; i < t->n_record && at > 0 && (size_t)at < n; i++)
        at += snprintf(out + at, n - (size_t)at, "%s %.3g ms (%s)", i ? "," : "",
                       1e3 * trace_ref_step_s(t, i), t->record[i].name);
}

static void machine_text(const trace_plan *t, char *out, size_t n)
{
    const nb_layout *l = &t->plan.layout;
    (void)snprintf(out, n,
                   "%zu x %s, tensor parallel %zu, data parallel %zu: %.1f GB are left for the "
                   "cache%s",
                   l->n_gpu, t->plan.machine.title, l->tp, l->dp, t->machine_bytes / 1e9,
                   l->dp > 1 ? ", of all replicas, which are counted as one" : "");
}

static void print_clock(const trace_plan *t)
{
    char prompts[256], steps[1024];
    prompts_text(t, prompts, sizeof prompts);
    steps_text(t, steps, sizeof steps);
    if (t->serve)
        (void)printf("replay       scheduler, at most %zu requests at once%s\n"
                     "clock        %s\n             %s\n",
                     t->o->trace.max_num_seqs,
                     t->has_machine && t->plan.layout.dp > 1 ? " on each replica" : "", prompts,
                     steps);
    else
        (void)printf(
            "TTFT         of each request alone, the time to compute its uncached tokens; no queue\n"
            "             %s\n",
            prompts);
}

static void print_machine(const trace_plan *t)
{
    char machine[256];
    if (!t->has_machine) return;
    machine_text(t, machine, sizeof machine);
    (void)printf("machine      %s\n", machine);
    if (!t->plan.has_rates)
        (void)printf("             no times of it: they need --bandwidth and --flops\n");
}

static void print_head(const trace_plan *t)
{
    const trace_opts *o = &t->o->trace;
    const trace_point *p = &t->point[0];
    (void)printf("trace        %s: %.0f requests, %.1f M prompt tokens", o->file, p->n_request,
                 p->n_in / 1e6);
    if (p->n_skipped > 0) (void)printf(", %.0f left out as too long", p->n_skipped);
    (void)printf("\n");
    if (t->mix.sessions)
        (void)printf(
            "sessions     %zu always open, %.0f opened of %zu files, gaps of at most %g s, "
            "%zu seed%s\n",
            o->sessions, p->n_session, t->n_path, o->max_gap_s, o->seeds,
            o->seeds > 1 ? "s, means" : "");
    print_machine(t);
    if (!t->serve) {
        (void)printf("replay       one request after the other");
        if (isfinite(p->ceiling)) /* else there were too many blocks to know it */
            (void)printf("; ceiling of an endless cache: %.3f", p->ceiling);
        (void)printf("\n");
    }
    if (t->serve || trace_has_alone(t)) print_clock(t);
    (void)printf("\n%12s %-12s %-8s %12s %7s %12s %8s %12s", "cache GB", "record", "policy",
                 "tokens held", "hits", "uncached M", "fewer", "evicted");
    if (t->serve)
        (void)printf(" %9s %9s %9s %9s %9s %7s", "TTFT mean", "p50", "p90", "p99", "preempted",
                     "sooner");
    else if (trace_has_alone(t))
        (void)printf(" %9s %9s %7s", "TTFT mean", "p50", "sooner");
    (void)printf("\n");
}

void trace_print(const trace_plan *t)
{
    print_head(t);
    for (size_t i = 0; i < t->n_point; i++) {
        const trace_point *p = &t->point[i];
        (void)printf("%12.3f %-12s %-8s %12zu %7.3f %12.2f %7.2fx %12.0f", t->size[p->size] / 1e9,
                     t->record[p->record].name, nb_kv_evict_name(p->evict),
                     p->n_block * NB_BLOCK_TOK, p->hit, p->n_uncached / 1e6, gain(t, i),
                     p->n_evicted);
        if (t->serve)
            (void)printf(" %8.2fs %8.2fs %8.2fs %8.2fs %9.0f %6.2fx", p->ttft_mean, p->ttft_p50,
                         p->ttft_p90, p->ttft_p99, p->n_preempted, sooner(t, i));
        else if (trace_has_alone(t))
            (void)printf(" %8.3fs %8.3fs %6.2fx", p->alone_mean, p->alone_p50, sooner(t, i));
        (void)printf("\n");
    }
    (void)printf(
        "\nhits: share of prompt tokens found in the cache, in whole blocks of 64.  fewer: "
        "uncached tokens of\nthe first record over this one's.%s\n",
        t->serve || trace_has_alone(t) ? "  sooner: the same of mean TTFT." : "");
}

/* ---- the page ---- */

typedef double value_of(const trace_point *p);
static double hit_of(const trace_point *p)
{
    return p->hit;
}
static double ttft_of(const trace_point *p)
{
    return p->ttft_mean;
}
static double alone_of(const trace_point *p)
{
    return p->alone_mean;
}
static double uncached_of(const trace_point *p)
{
    return p->n_uncached / 1e6;
}

/* A line for each record and policy over the size of the cache. */
static nb_status add_plot(nb_buf *to, const trace_plan *t, const char *title, const char *label,
                          value_of *value, bool log_y)
{
    const size_t n_series = t->n_record * t->n_policy;
    nb_svg_series *s = calloc(n_series, sizeof *s);
    double *xy = calloc(2 * t->n_point, sizeof *xy);
    char(*name)[48] = calloc(n_series, sizeof *name);
    nb_status st = s && xy && name ? NB_OK : NB_ERR_NOMEM;
    for (size_t k = 0; st == NB_OK && k < n_series; k++) {
        double *x = xy + 2 * k * t->n_size, *y = x + t->n_size;
        const trace_point *first = &t->point[k];
        (void)snprintf(name[k], sizeof name[k], "%s%s%s", t->record[first->record].name,
                       t->n_policy > 1 ? " " : "",
                       t->n_policy > 1 ? nb_kv_evict_name(first->evict) : "");
        for (size_t i = 0; i < t->n_size; i++) {
            x[i] = t->size[i] / 1e9;
            y[i] = value(&t->point[i * n_series + k]);
        }
        s[k] = (nb_svg_series){ .name = name[k], .x = x, .y = y, .n = t->n_size };
    }
    const nb_svg_axes axes = { title, "KV cache, GB", label, 1, log_y };
    nb_buf svg = { 0 };
    if (st == NB_OK) st = nb_svg_lines(&svg, &axes, s, n_series);
    if (st == NB_OK) st = nb_html_plot(to, title, &svg);
    nb_buf_deinit(&svg);
    free(s);
    free(xy);
    free(name);
    return st;
}

static nb_status add_table(nb_buf *to, const trace_plan *t)
{
    static const char *const column[] = {
        "record",
        "policy",
        "cache, GB",
        "tokens held",
        "hit rate",
        "uncached tokens, M",
        "times fewer than the first record",
        "evicted blocks",
        "TTFT mean, s",
        "p50, s",
        "times sooner than the first record",
        "p90, s",
        "p99, s",
        "preempted",
    };
    char held[32], evicted[32];
    const bool alone = trace_has_alone(t);
    NB_TRY(nb_html_table(to, "All points", column, t->serve ? NB_COUNT(column) : alone ? 11 : 8));
    for (size_t i = 0; i < t->n_point; i++) {
        const trace_point *p = &t->point[i];
        cli_count_text((double)(p->n_block * NB_BLOCK_TOK), held, sizeof held);
        cli_count_text(p->n_evicted, evicted, sizeof evicted);
        NB_TRY(nb_html_row(to, t->record[p->record].name, false));
        NB_TRY(nb_buf_printf(to,
                             "<td>%s</td><td>%.3f</td><td>%s</td><td>%.3f</td><td>%.2f</td>"
                             "<td>%.2f</td><td>%s</td>",
                             nb_kv_evict_name(p->evict), t->size[p->size] / 1e9, held, p->hit,
                             p->n_uncached / 1e6, gain(t, i), evicted));
        if (alone)
            NB_TRY(nb_buf_printf(to, "<td>%.3f</td><td>%.3f</td><td>%.2f</td>", p->alone_mean,
                                 p->alone_p50, sooner(t, i)));
        if (t->serve)
            NB_TRY(nb_buf_printf(to,
                                 "<td>%.2f</td><td>%.2f</td><td>%.2f</td><td>%.2f</td><td>%.2f</td>"
                                 "<td>%.0f</td>",
                                 p->ttft_mean, p->ttft_p50, sooner(t, i), p->ttft_p90, p->ttft_p99,
                                 p->n_preempted));
        NB_TRY(nb_html_row_end(to));
    }
    return nb_html_table_end(to);
}

/* What was played, and how. */
static nb_status add_clock(nb_buf *to, const trace_plan *t)
{
    char machine[256], prompts[256], steps[1024];
    machine_text(t, machine, sizeof machine);
    prompts_text(t, prompts, sizeof prompts);
    steps_text(t, steps, sizeof steps);
    if (t->has_machine) {
        NB_TRY(nb_buf_add_c(to, "<p>"));
        NB_TRY(nb_html_text(to, machine));
        NB_TRY(nb_buf_add_c(to, ".</p>\n"));
    }
    if (t->serve) {
        NB_TRY(nb_buf_add_c(to, "<p>A clock of its own: "));
        NB_TRY(nb_html_text(to, prompts));
        NB_TRY(nb_buf_add_c(to, "; "));
        NB_TRY(nb_html_text(to, steps));
        return nb_buf_add_c(to, ".</p>\n");
    }
    if (!trace_has_alone(t)) return NB_OK;
    NB_TRY(nb_buf_add_c(
        to, "<p>TTFT here is of each request alone, the time to compute the tokens that were not "
            "found: nothing of waiting; "));
    NB_TRY(nb_html_text(to, prompts));
    return nb_buf_add_c(to, ".</p>\n");
}

static nb_status add_about(nb_buf *to, const trace_plan *t)
{
    const trace_opts *o = &t->o->trace;
    const trace_point *p = &t->point[0];
    char requests[32];
    cli_count_text(p->n_request, requests, sizeof requests);
    NB_TRY(nb_html_para(
        to, "Recorded requests, played through the cache that the engine has. Where the "
            "beginning of a prompt is still in the cache, it need not be computed again: the "
            "hit rate is the share of prompt tokens that were found, in whole blocks of 64. A "
            "record is the form in which a token is kept; one of fewer bytes holds more "
            "tokens in the same memory, and finds more. TTFT is the time to an answer's first "
            "token."));
    NB_TRY(
        nb_buf_printf(to, "<p>%s requests, %.1f million prompt tokens", requests, p->n_in / 1e6));
    if (p->n_skipped > 0)
        NB_TRY(nb_buf_printf(to, ", %.0f requests left out as too long", p->n_skipped));
    if (t->mix.sessions)
        NB_TRY(nb_buf_printf(to, "; %zu sessions always open, gaps of at most %g s%s", o->sessions,
                             o->max_gap_s, o->seeds > 1 ? ", means of several seeds" : ""));
    if (t->serve)
        NB_TRY(nb_buf_printf(to, "; through the scheduler, at most %zu requests at once%s",
                             o->max_num_seqs,
                             t->has_machine && t->plan.layout.dp > 1 ? " on each replica" : ""));
    else
        NB_TRY(nb_buf_add_c(to, "; one after the other"));
    if (!t->serve && isfinite(p->ceiling))
        NB_TRY(nb_buf_printf(to, ". An endless cache would hit %.3f", p->ceiling));
    NB_TRY(nb_buf_add_c(to, ".</p>\n"));
    return add_clock(to, t);
}

static nb_status build_page(nb_buf *to, const trace_plan *t)
{
    nb_buf title = { 0 };
    nb_status st = nb_buf_printf(&title, "Replay of %s", t->o->trace.file);
    if (st == NB_OK) st = nb_html_begin(to, title.p);
    nb_buf_deinit(&title);
    NB_TRY(st);
    NB_TRY(add_about(to, t));
    NB_TRY(nb_buf_add_c(to, "<div class=\"plots\">\n"));
    NB_TRY(add_plot(to, t, "Hit rate by size of the cache", "hits / prompt tokens", hit_of, false));
    if (t->serve)
        NB_TRY(add_plot(to, t, "Mean time to the first token", "seconds", ttft_of, true));
    else
        NB_TRY(
            add_plot(to, t, "Prompt tokens that must be computed", "millions", uncached_of, false));
    if (trace_has_alone(t))
        NB_TRY(
            add_plot(to, t, "Mean time to the first token, no queue", "seconds", alone_of, false));
    NB_TRY(nb_buf_add_c(to, "</div>\n"));
    NB_TRY(add_table(to, t));
    return nb_html_end(to);
}

int trace_page(const trace_plan *t, const char *path)
{
    nb_buf page = { 0 };
    const nb_status st = build_page(&page, t);
    const int code = st == NB_OK ? out_file_write(path, page.p, page.n_bytes)
                                 : cli_failed("%s: %s", path, nb_status_text(st));
    nb_buf_deinit(&page);
    return code;
}
