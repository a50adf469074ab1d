/* bench_result.c - see bench_result.h. */
#define _GNU_SOURCE /* getloadavg */
#include "bench_result.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../cli.h"

enum { CONTROL_STEPS = 1 << 22, CONTROL_SAMPLES = 15, MAX_NOISE_ROWS = 1 << 20 };

/* ---- the control ------------------------------------------------------------- */

static volatile uint64_t control_sink;

/* Each step waits for the one before: about three ticks of the clock on any processor. */
static nb_kbench_spread control(void)
{
    double v[CONTROL_SAMPLES];
    nb_kbench_spread s;
    for (size_t k = 0; k < CONTROL_SAMPLES; k++) {
        uint64_t x = k + 1;
        const double begin = cli_seconds();
        for (size_t i = 0; i < CONTROL_STEPS; i++) x *= 0x9e3779b97f4a7c15u;
        control_sink = x;
        v[k] = (cli_seconds() - begin) * 1e9 / CONTROL_STEPS;
    }
    nb_kbench_spread_of(v, CONTROL_SAMPLES, &s);
    return s;
}

void bench_doc_begin(bench_doc *d)
{
    bench_machine_read(&d->machine);
    d->control = control();
}

/* ---- head ---------------------------------------------------------------------- */

void bench_date(char out[32])
{
    const time_t now = time(NULL);
    struct tm t;
    if (!localtime_r(&now, &t) || strftime(out, 32, "%Y%m%d-%H%M%S", &t) == 0) memcpy(out, "0", 2);
}

void bench_model_name(const char *model, char *out, size_t n_bytes)
{
    static const char config[] = "/config.json";
    size_t n = strlen(model);
    if (n >= sizeof config && strcmp(model + n - (sizeof config - 1), config) == 0)
        n -= sizeof config - 1; /* its folder tells more */
    while (n > 1 && model[n - 1] == '/') n--;
    size_t at = n;
    while (at && model[at - 1] != '/') at--;
    if (n - at > 5 && memcmp(model + n - 5, ".json", 5) == 0) n -= 5;
    (void)snprintf(out, n_bytes, "%.*s", (int)(n - at < 64 ? n - at : 64), model + at);
}

int bench_doc_check_metadata(const opt_strs *metadata)
{
    static const char *const taken[] = { "schema",  "command", "version", "date",
                                         "machine", "results", "noise" };
    for (size_t i = 0; i < metadata->n; i++) {
        const char *kv = metadata->p[i], *eq = strchr(kv, '=');
        if (!eq || eq == kv || eq - kv > 100)
            return cli_usage("--metadata %.200s: expected KEY=VALUE", kv);
        for (size_t k = 0; k < sizeof taken / sizeof *taken; k++)
            if (strlen(taken[k]) == (size_t)(eq - kv) &&
                strncmp(kv, taken[k], strlen(taken[k])) == 0)
                return cli_usage("--metadata %.200s: the results have a %s of their own", kv,
                                 taken[k]);
    }
    return CLI_OK;
}

json_t *bench_doc_head(const bench_doc *d, const char *name, const opt_strs *metadata)
{
    char date[32];
    bench_date(date);
    json_t *j = json_pack("{s:i, s:s, s:s, s:n, s:s, s:o}", "schema", 1, "command", name, "version",
                          d->machine.version, "commit", "date", date, "machine",
                          bench_machine_json(&d->machine));
    for (size_t i = 0; j && i < metadata->n; i++) {
        const char *kv = metadata->p[i], *v = strchr(kv, '=') + 1;
        char key[128];
        (void)snprintf(key, sizeof key, "%.*s", (int)(v - 1 - kv), kv);
        if (json_object_set_new(j, key, json_string(v)) == 0) continue;
        json_decref(j);
        j = NULL;
    }
    return j;
}

/* ---- rows ------------------------------------------------------------------------ */

bool bench_row_add(json_t *results, json_t *row, const char *name, const char *unit,
                   bool more_is_better, const nb_kbench_spread *s)
{
    json_t *j = json_pack("{s:s, s:s, s:s, s:f, s:o, s:f, s:f, s:I}", "name", name, "unit", unit,
                          "better", more_is_better ? "higher" : "lower", "median", s->median, "mad",
                          s->n > 1 ? json_real(s->mad) : json_null(), "lo", s->lo, "hi", s->hi, "n",
                          (json_int_t)s->n);
    const bool ok = j && (!row || json_object_update_missing(j, row) == 0);
    json_decref(row);
    if (!ok) {
        json_decref(j);
        return false;
    }
    return json_array_append_new(results, j) == 0;
}

/* ---- noise ------------------------------------------------------------------------- */

static json_t *spread_json(const nb_kbench_spread *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:I}", "median", s->median, "mad", s->mad, "lo", s->lo,
                     "hi", s->hi, "n", (json_int_t)s->n);
}

bool bench_doc_end(const bench_doc *d, json_t *j)
{
    const json_t *rows = json_object_get(j, "results");
    const size_t n_row = json_array_size(rows);
    double *v = calloc(n_row ? n_row : 1, sizeof *v), load = -1;
    nb_kbench_spread s = { 0 };
    size_t n = 0;
    if (!v) return false;
    for (size_t i = 0; i < n_row; i++) {
        const json_t *r = json_array_get(rows, i), *mad = json_object_get(r, "mad");
        const double median = json_real_value(json_object_get(r, "median"));
        if (json_is_real(mad) && median > 0) v[n++] = json_real_value(mad) / median;
    }
    if (n) nb_kbench_spread_of(v, n, &s);
    free(v);
    if (getloadavg(&load, 1) != 1) load = -1;
    const nb_kbench_spread after = control();
    json_t *noise = json_pack("{s:I, s:o, s:o, s:{s:o, s:o}, s:{s:f, s:f}}", "rows", (json_int_t)n,
                              "median_rel_mad", n ? json_real(s.median) : json_null(),
                              "max_rel_mad", n ? json_real(s.hi) : json_null(), "control_ns",
                              "begin", spread_json(&d->control), "end", spread_json(&after),
                              "load_average", "begin", d->machine.load, "end", load);
    return json_object_set_new(j, "noise", noise) == 0;
}

int bench_doc_print(const bench_doc *d, json_t *head, json_t *more)
{
    const bool ok = head && more && json_object_update(head, more) == 0 && bench_doc_end(d, head);
    char *text = ok ? json_dumps(head, JSON_REAL_PRECISION(9)) : NULL;
    const int code = text ? CLI_OK : cli_failed("no memory for the results");
    if (text) (void)puts(text);
    free(text);
    json_decref(head);
    json_decref(more);
    return code;
}
