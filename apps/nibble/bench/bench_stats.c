/* bench_stats.c - see bench_stats.h. */
#include "bench_stats.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR_BYTES = 300, WIDTH = 50 };

const char *const bench_outcome_names[BENCH_N_OUTCOME] = {
    "lost",        "completed",     "refused_503", "other_status", "connection_errors",
    "cut_streams", "stream_errors", "malformed",   "timeouts",     "disconnected"
};
static const char *const keys[BENCH_N_METRIC] = { "ttft", "tpot", "itl", "e2el" };
static const char *const names[BENCH_N_METRIC] = { "TTFT", "TPOT", "ITL", "E2EL" };
static const char *const titles[BENCH_N_METRIC] = { "Time to First Token",
                                                    "Time per Output Token (excl. 1st token)",
                                                    "Inter-token Latency", "End-to-end Latency" };

/* ---- records -------------------------------------------------------------- */

void bench_recs_deinit(bench_rec *r, size_t n)
{
    for (size_t i = 0; r && i < n; i++) {
        free(r[i].itl_s);
        free(r[i].text);
        free(r[i].error);
    }
    free(r);
}

bool bench_rec_token(bench_rec *r, double t_s)
{
    const double since = t_s - r->start_s;
    if (r->ttft_s == 0) {
        r->ttft_s = r->latency_s = since;
        return true;
    }
    if (r->n_itl == r->cap_itl) {
        const size_t cap = r->cap_itl ? 2 * r->cap_itl : 64;
        float *p = realloc(r->itl_s, cap * sizeof *p);
        if (!p) return false;
        r->itl_s = p;
        r->cap_itl = cap;
    }
    r->itl_s[r->n_itl++] = (float)(since - r->latency_s);
    r->latency_s = since;
    return true;
}

void bench_rec_error(bench_rec *r, const char *message, size_t n_bytes)
{
    if (r->error) return;
    const size_t n = n_bytes < ERROR_BYTES ? n_bytes : ERROR_BYTES;
    r->error = malloc(n + 1);
    if (!r->error) return; /* the outcome says enough */
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)message[i];
        r->error[i] = c < 0x20 || c >= 0x7f ? '?' : (char)c;
    }
    r->error[n] = 0;
}

/* ---- options -------------------------------------------------------------- */

static int metric_of(const char *s, size_t n)
{
    for (int m = 0; m < BENCH_N_METRIC; m++)
        if (strlen(keys[m]) == n && memcmp(keys[m], s, n) == 0) return m;
    return -1;
}

bool bench_parse_metrics(const char *text, bench_report *r)
{
    for (const char *p = text;;) {
        const size_t n = strcspn(p, ",");
        const int m = metric_of(p, n);
        if (m < 0) return false;
        r->metric[m] = true;
        p += n;
        if (!*p++) return true;
    }
}

/* A plain number >= 0, all of the n bytes. */
static bool number(const char *s, size_t n, double *out)
{
    char copy[64], *end;
    if (n == 0 || n >= sizeof copy) return false;
    memcpy(copy, s, n);
    copy[n] = 0;
    if (strspn(copy, "0123456789.eE+-") != n) return false;
    *out = strtod(copy, &end);
    return !*end && isfinite(*out) && *out >= 0;
}

bool bench_parse_percentiles(const char *text, bench_report *r)
{
    r->n_percentile = 0;
    for (const char *p = text;;) {
        const size_t n = strcspn(p, ",");
        double x;
        if (!number(p, n, &x) || x > 100 || r->n_percentile == BENCH_MAX_PERCENTILE) return false;
        r->percentile[r->n_percentile++] = x;
        p += n;
        if (!*p++) return true;
    }
}

bool bench_parse_goodput(const char *text, bench_report *r)
{
    const size_t n = strcspn(text, ":");
    const int m = metric_of(text, n);
    double ms;
    if (text[n] != ':' || m < 0 || m == BENCH_ITL) return false;
    if (!number(text + n + 1, strlen(text + n + 1), &ms) || ms <= 0) return false;
    r->goodput_ms[m] = ms;
    r->goodput = true;
    return true;
}

/* ---- figures -------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of n sorted values, p in 0..100. */
static double percentile(const double *v, size_t n, double p)
{
    if (n == 0) return 0;
    const double at = p / 100 * (double)(n - 1);
    const size_t i = (size_t)at;
    if (i + 1 >= n) return v[n - 1];
    return v[i] + (at - (double)i) * (v[i + 1] - v[i]);
}

/* v in seconds is sorted. */
static bench_dist distribution(double *v, size_t n, const bench_report *o)
{
    bench_dist d = { 0 };
    double sum = 0, squares = 0;
    if (n == 0) return d;
    qsort(v, n, sizeof *v, ascending);
    for (size_t i = 0; i < n; i++) sum += v[i];
    const double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += (v[i] - mean) * (v[i] - mean);
    d.mean = mean * 1e3;
    d.std = sqrt(squares / (double)n) * 1e3;
    d.median = percentile(v, n, 50) * 1e3;
    for (size_t k = 0; k < o->n_percentile; k++)
        d.percentile[k] = percentile(v, n, o->percentile[k]) * 1e3;
    return d;
}

static double tpot_of(const bench_rec *r)
{
    return r->n_out > 1 ? (r->latency_s - r->ttft_s) / (double)(r->n_out - 1) : 0;
}

static bool is_good(const bench_rec *r, const bench_report *o)
{
    const double got[BENCH_N_METRIC] = { r->ttft_s, tpot_of(r), 0, r->latency_s };
    for (int m = 0; m < BENCH_N_METRIC; m++)
        if (o->goodput_ms[m] > 0 && got[m] * 1e3 > o->goodput_ms[m]) return false;
    return true;
}

/* The values of one metric over all completed requests, into v; how many. */
static size_t collect(const bench_rec *r, size_t n, int metric, double *v)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (r[i].outcome != BENCH_OK) continue;
        if (metric == BENCH_TTFT) v[k++] = r[i].ttft_s;
        if (metric == BENCH_TPOT && r[i].n_out > 1) v[k++] = tpot_of(&r[i]);
        if (metric == BENCH_E2EL) v[k++] = r[i].latency_s;
        if (metric == BENCH_ITL)
            for (size_t j = 0; j < r[i].n_itl; j++) v[k++] = (double)r[i].itl_s[j];
    }
    return k;
}

/* Tokens and requests of each second since the first request. */
static bool peaks(const bench_rec *r, size_t n, bench_summary *s)
{
    double first = INFINITY, last = 0;
    for (size_t i = 0; i < n; i++) {
        if (r[i].outcome != BENCH_OK) continue;
        if (r[i].start_s < first) first = r[i].start_s;
        if (r[i].start_s + r[i].latency_s > last) last = r[i].start_s + r[i].latency_s;
    }
    if (s->count[BENCH_OK] == 0) return true;
    const size_t n_second = (size_t)(last - first) + 2;
    double *tokens = calloc(n_second, sizeof *tokens);
    size_t *running = calloc(n_second, sizeof *running);
    for (size_t i = 0; tokens && running && i < n; i++) {
        if (r[i].outcome != BENCH_OK) continue;
        double t = r[i].start_s - first + r[i].ttft_s;
        const size_t begin = (size_t)(r[i].start_s - first);
        const size_t end = (size_t)(r[i].start_s - first + r[i].latency_s);
        for (size_t j = 0;; j++) {
            /* Rounding of the sum may lead a hair past the end. */
            tokens[t < (double)n_second ? (size_t)t : n_second - 1]++;
            if (j == r[i].n_itl) break;
            t += (double)r[i].itl_s[j];
        }
        for (size_t k = begin; k <= end && k < n_second; k++) running[k]++;
    }
    for (size_t k = 0; tokens && running && k < n_second; k++) {
        if (tokens[k] > s->max_out_per_s) s->max_out_per_s = tokens[k];
        if (running[k] > s->max_concurrent) s->max_concurrent = running[k];
    }
    const bool ok = tokens && running;
    free(tokens);
    free(running);
    return ok;
}

bool bench_summarise(const bench_rec *r, size_t n, double duration_s, const bench_report *o,
                     bench_summary *s)
{
    size_t n_value = n;
    *s = (bench_summary){ .duration_s = duration_s, .n = n };
    for (size_t i = 0; i < n; i++) {
        s->count[r[i].outcome]++;
        if (r[i].outcome != BENCH_OK) continue;
        s->n_in += r[i].n_prompt;
        s->n_out += r[i].n_out;
        s->n_cached += r[i].n_cached;
        s->n_good += is_good(&r[i], o);
        n_value += r[i].n_itl;
    }
    double *v = malloc((n_value ? n_value : 1) * sizeof *v);
    if (!v) return false;
    for (int m = 0; m < BENCH_N_METRIC; m++) s->dist[m] = distribution(v, collect(r, n, m, v), o);
    free(v);
    return peaks(r, n, s);
}

/* ---- the table ------------------------------------------------------------ */

static void line_of(FILE *f, const char *title, char fill)
{
    const int n = (int)strlen(title), pad = n < WIDTH ? WIDTH - n : 0;
    for (int i = 0; i < pad / 2; i++) (void)fputc(fill, f);
    (void)fputs(title, f);
    for (int i = 0; i < pad - pad / 2; i++) (void)fputc(fill, f);
    (void)fputc('\n', f);
}

static void print_count(FILE *f, const char *label, size_t n)
{
    (void)fprintf(f, "%-40s %-10zu\n", label, n);
}

void bench_print_number(FILE *f, const char *label, double x)
{
    (void)fprintf(f, "%-40s %-10.2f\n", label, x);
}

/* p50, p99.9 */
static void percentile_name(double p, char out[32])
{
    (void)snprintf(out, 32, "%.10g", p);
}

static double per_s(double x, const bench_summary *s)
{
    return s->duration_s > 0 ? x / s->duration_s : 0;
}

static size_t n_failed(const bench_summary *s)
{
    return s->n - s->count[BENCH_OK] - s->count[BENCH_HUNG_UP];
}

static void print_metric(FILE *f, int m, const bench_dist *d, const bench_report *o)
{
    char label[96], p[32];
    line_of(f, titles[m], '-');
    (void)snprintf(label, sizeof label, "Mean %s (ms):", names[m]);
    bench_print_number(f, label, d->mean);
    (void)snprintf(label, sizeof label, "Median %s (ms):", names[m]);
    bench_print_number(f, label, d->median);
    for (size_t k = 0; k < o->n_percentile; k++) {
        percentile_name(o->percentile[k], p);
        (void)snprintf(label, sizeof label, "P%s %s (ms):", p, names[m]);
        bench_print_number(f, label, d->percentile[k]);
    }
}

void bench_print(FILE *f, const char *title, const bench_summary *s, const bench_report *o)
{
    line_of(f, title, '=');
    print_count(f, "Successful requests:", s->count[BENCH_OK]);
    print_count(f, "Failed requests:", n_failed(s));
    if (o->max_concurrency) print_count(f, "Maximum request concurrency:", o->max_concurrency);
    if (isfinite(o->request_rate))
        bench_print_number(f, "Request rate configured (RPS):", o->request_rate);
    bench_print_number(f, "Benchmark duration (s):", s->duration_s);
    print_count(f, "Total input tokens:", s->n_in);
    print_count(f, "Total generated tokens:", s->n_out);
    bench_print_number(f, "Request throughput (req/s):", per_s((double)s->count[BENCH_OK], s));
    if (o->goodput) bench_print_number(f, "Request goodput (req/s):", per_s((double)s->n_good, s));
    bench_print_number(f, "Output token throughput (tok/s):", per_s((double)s->n_out, s));
    bench_print_number(f, "Peak output token throughput (tok/s):", s->max_out_per_s);
    bench_print_number(f, "Peak concurrent requests:", (double)s->max_concurrent);
    bench_print_number(
        f, "Total token throughput (tok/s):", per_s((double)s->n_in + (double)s->n_out, s));
    for (int m = 0; m < BENCH_N_METRIC; m++)
        if (o->metric[m]) print_metric(f, m, &s->dist[m], o);
    line_of(f, "Outcomes", '-');
    print_count(f, "Prompt tokens from the prefix cache:", s->n_cached);
    for (int k = BENCH_OK; k < BENCH_N_OUTCOME; k++)
        if (k == BENCH_OK || s->count[k]) {
            char label[64];
            (void)snprintf(label, sizeof label, "%s:", bench_outcome_names[k]);
            print_count(f, label, s->count[k]);
        }
    if (s->count[BENCH_PENDING]) print_count(f, "LOST (without an end):", s->count[BENCH_PENDING]);
}

void bench_print_end(FILE *f)
{
    line_of(f, "", '=');
}

/* ---- JSON ----------------------------------------------------------------- */

static bool put(json_t *j, const char *key, json_t *v)
{
    return json_object_set_new(j, key, v) == 0;
}
static bool put_n(json_t *j, const char *key, size_t n)
{
    return put(j, key, json_integer((json_int_t)n));
}
static bool put_x(json_t *j, const char *key, double x)
{
    return put(j, key, json_real(x));
}

static bool json_metrics(json_t *j, const bench_summary *s, const bench_report *o)
{
    bool ok = true;
    char key[64], p[32];
    for (int m = 0; m < BENCH_N_METRIC; m++) {
        if (!o->metric[m]) continue;
        const bench_dist *d = &s->dist[m];
        const char *const what[] = { "mean", "median", "std" };
        const double value[] = { d->mean, d->median, d->std };
        for (size_t i = 0; i < 3; i++) {
            (void)snprintf(key, sizeof key, "%s_%s_ms", what[i], keys[m]);
            ok &= put_x(j, key, value[i]);
        }
        for (size_t k = 0; k < o->n_percentile; k++) {
            percentile_name(o->percentile[k], p);
            (void)snprintf(key, sizeof key, "p%s_%s_ms", p, keys[m]);
            ok &= put_x(j, key, d->percentile[k]);
        }
    }
    return ok;
}

static bool json_outcomes(json_t *j, const bench_rec *r, const bench_summary *s)
{
    json_t *outcomes = json_object(), *statuses = json_object();
    bool ok = outcomes && statuses;
    for (int k = 0; ok && k < BENCH_N_OUTCOME; k++)
        ok = put_n(outcomes, bench_outcome_names[k], s->count[k]);
    for (size_t i = 0; ok && i < s->n; i++) {
        char key[16];
        if (r[i].status == 0) continue;
        (void)snprintf(key, sizeof key, "%d", r[i].status);
        const json_int_t so_far = json_integer_value(json_object_get(statuses, key));
        ok = put(statuses, key, json_integer(so_far + 1));
    }
    return put(j, "outcomes", outcomes) && put(j, "http_statuses", statuses) && ok;
}

static bool json_details(json_t *j, const bench_rec *r, size_t n)
{
    enum { IN, OUT, TTFT, ITL, START, TEXT, ERROR, END, N };
    static const char *const at[N] = { "input_lens",  "output_lens",     "ttfts",  "itls",
                                       "start_times", "generated_texts", "errors", "outcome_of" };
    json_t *a[N];
    bool ok = true;
    for (int k = 0; k < N; k++) ok &= put(j, at[k], a[k] = json_array());
    for (size_t i = 0; ok && i < n; i++) {
        json_t *itl = json_array();
        for (size_t k = 0; itl && k < r[i].n_itl; k++)
            ok &= json_array_append_new(itl, json_real((double)r[i].itl_s[k])) == 0;
        json_t *v[N] = {
            [IN] = json_integer((json_int_t)r[i].n_prompt),
            [OUT] = json_integer(r[i].outcome == BENCH_OK ? (json_int_t)r[i].n_out : 0),
            [TTFT] = json_real(r[i].ttft_s),
            [ITL] = itl,
            [START] = json_real(r[i].start_s),
            [TEXT] = json_string(r[i].text ? r[i].text : ""),
            [ERROR] = json_string(r[i].error ? r[i].error : ""),
            [END] = json_string(bench_outcome_names[r[i].outcome]),
        };
        for (int k = 0; k < N; k++) ok &= json_array_append_new(a[k], v[k]) == 0;
    }
    return ok;
}

bool bench_json(json_t *j, const bench_rec *r, const bench_summary *s, const bench_report *o,
                bool detailed)
{
    bool ok = put_x(j, "duration", s->duration_s);
    ok &= put_n(j, "completed", s->count[BENCH_OK]);
    ok &= put_n(j, "failed", n_failed(s));
    ok &= put_n(j, "total_input_tokens", s->n_in);
    ok &= put_n(j, "total_output_tokens", s->n_out);
    ok &= put_x(j, "request_throughput", per_s((double)s->count[BENCH_OK], s));
    ok &= put(j, "request_goodput",
              o->goodput ? json_real(per_s((double)s->n_good, s)) : json_null());
    ok &= put_x(j, "output_throughput", per_s((double)s->n_out, s));
    ok &= put_x(j, "total_token_throughput", per_s((double)s->n_in + (double)s->n_out, s));
    if (detailed) ok &= json_details(j, r, s->n);
    ok &= put_x(j, "max_output_tokens_per_s", s->max_out_per_s);
    ok &= put_n(j, "max_concurrent_requests", s->max_concurrent);
    ok &= json_metrics(j, s, o);
    ok &= put_n(j, "total_cached_tokens", s->n_cached);
    return json_outcomes(j, r, s) && ok;
}
