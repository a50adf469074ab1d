/* plan_trace_out.c - the report of a replay: JSON, tables, a page.
 *
 * The page is one file without scripts that needs no network. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cmd_eval.h"
#include "page.h"
#include "plan_trace.h"
#include "plan_value.h"

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
static json_t *text(const char *s) /* a path may be any bytes */
{
    json_t *v = json_string(s);
    return v ? v : json_string("(not UTF-8)");
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
    if (t->serve)
        ok = ok && put_num(j, "prefill_tokens_per_s", o->prefill_rate) &&
             put_num(j, "decode_steps_per_s", o->decode_rate) &&
             put_int(j, "max_num_seqs", (double)o->max_num_seqs) &&
             put_int(j, "max_num_batched_tokens", (double)t->o->plan.chunk);
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
           put_num(j, "preemptions", p->n_preempted) && put_num(j, "held_mean", p->held) &&
           put_num(j, "running_max", p->n_running) && put_num(j, "output_tokens", p->n_out);
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
        put_num(j, "requests", p->n_request) && put_num(j, "skipped", p->n_skipped) &&
        put_num(j, "sessions", p->n_session) && put_num(j, "input_tokens", p->n_in) &&
        put_num(j, "uncached_tokens", p->n_uncached) &&
        put_num(j, "evicted_blocks", p->n_evicted) && put_num(j, "duration_s", p->duration) &&
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
    if (t->serve)
        (void)printf("replay       scheduler: %g prompt tokens/s, %g decode steps/s, at most %zu "
                     "requests at once (assumed, not measured)\n",
                     o->prefill_rate, o->decode_rate, o->max_num_seqs);
    else
        (void)printf(
            "replay       one request after the other; ceiling of an endless cache: %.3f\n",
            p->ceiling);
    (void)printf("\n%12s %-12s %-8s %12s %7s %12s %8s %12s", "cache GB", "record", "policy",
                 "tokens held", "hits", "uncached M", "fewer", "evicted");
    if (t->serve)
        (void)printf(" %9s %9s %9s %9s %9s", "TTFT mean", "p50", "p90", "p99", "preempted");
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
            (void)printf(" %8.2fs %8.2fs %8.2fs %8.2fs %9.0f", p->ttft_mean, p->ttft_p50,
                         p->ttft_p90, p->ttft_p99, p->n_preempted);
        (void)printf("\n");
    }
    (void)printf(
        "\nhits: share of prompt tokens found in the cache, in whole blocks of 64.  fewer: "
        "uncached tokens of\nthe first record over this one's.\n");
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
    if (st == NB_OK) st = page_plot(to, title, &svg);
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
        "p90, s",
        "p99, s",
        "preempted",
    };
    char held[32], evicted[32];
    NB_TRY(page_table(to, "All points", column, t->serve ? NB_COUNT(column) : 8));
    for (size_t i = 0; i < t->n_point; i++) {
        const trace_point *p = &t->point[i];
        plan_grouped((double)(p->n_block * NB_BLOCK_TOK), held, sizeof held);
        plan_grouped(p->n_evicted, evicted, sizeof evicted);
        NB_TRY(page_row(to, t->record[p->record].name, false));
        NB_TRY(nb_buf_printf(to,
                             "<td>%s</td><td>%.3f</td><td>%s</td><td>%.3f</td><td>%.2f</td>"
                             "<td>%.2f</td><td>%s</td>",
                             nb_kv_evict_name(p->evict), t->size[p->size] / 1e9, held, p->hit,
                             p->n_uncached / 1e6, gain(t, i), evicted));
        if (t->serve)
            NB_TRY(nb_buf_printf(to,
                                 "<td>%.2f</td><td>%.2f</td><td>%.2f</td><td>%.2f</td>"
                                 "<td>%.0f</td>",
                                 p->ttft_mean, p->ttft_p50, p->ttft_p90, p->ttft_p99,
                                 p->n_preempted));
        NB_TRY(page_row_end(to));
    }
    return page_table_end(to);
}

/* What was played, and how. */
static nb_status add_about(nb_buf *to, const trace_plan *t)
{
    const trace_opts *o = &t->o->trace;
    const trace_point *p = &t->point[0];
    char requests[32];
    plan_grouped(p->n_request, requests, sizeof requests);
    NB_TRY(page_para(
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
        NB_TRY(
            nb_buf_printf(to,
                          "; through the scheduler, on a clock with %g prompt tokens and %g steps "
                          "of generation a second (assumed, not measured), at most %zu requests at "
                          "once",
                          o->prefill_rate, o->decode_rate, o->max_num_seqs));
    else
        NB_TRY(nb_buf_printf(to, "; one after the other. An endless cache would hit %.3f",
                             p->ceiling));
    return nb_buf_add_c(to, ".</p>\n");
}

static nb_status build_page(nb_buf *to, const trace_plan *t)
{
    nb_buf title = { 0 };
    nb_status st = nb_buf_printf(&title, "Replay of %s", t->o->trace.file);
    if (st == NB_OK) st = page_begin(to, title.p);
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
    NB_TRY(nb_buf_add_c(to, "</div>\n"));
    NB_TRY(add_table(to, t));
    return page_end(to);
}

int trace_page(const trace_plan *t, const char *path)
{
    nb_buf page = { 0 };
    const nb_status st = build_page(&page, t);
    const int code = st == NB_OK ? eval_write_file(path, nb_buf_view(&page))
                                 : cli_failed("%s: %s", path, nb_status_text(st));
    nb_buf_deinit(&page);
    return code;
}
