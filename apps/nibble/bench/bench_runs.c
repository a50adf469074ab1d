/* bench_runs.c - see bench_runs.h. */
#include "bench_runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *unit;
    bool higher;
} figures[N_RUN_FIGURE] = {
    [RUN_REQUESTS] = { "requests", "requests/s", true },
    [RUN_OUTPUT] = { "output", "tokens/s", true },
    [RUN_TOTAL] = { "prompts and output", "tokens/s", true },
    [RUN_TTFT] = { "ttft", "ms", false },
    [RUN_TPOT] = { "tpot", "ms", false },
    [RUN_ITL] = { "itl", "ms", false },
    [RUN_E2EL] = { "e2el", "ms", false },
};

bool bench_runs_init(bench_runs *r, size_t n)
{
    *r = (bench_runs){ .n = n, .v = calloc(n * N_RUN_FIGURE, sizeof *r->v) };
    return r->v != NULL;
}

void bench_runs_deinit(bench_runs *r)
{
    free(r->v);
    *r = (bench_runs){ 0 };
}

void bench_runs_put(bench_runs *r, size_t k, const bench_summary *s)
{
    const double d = s->duration_s > 0 ? s->duration_s : INFINITY;
    const double v[N_RUN_FIGURE] = { [RUN_REQUESTS] = (double)s->count[BENCH_OK] / d,
                                     [RUN_OUTPUT] = (double)s->n_out / d,
                                     [RUN_TOTAL] = ((double)s->n_in + (double)s->n_out) / d,
                                     [RUN_TTFT] = s->dist[BENCH_TTFT].median,
                                     [RUN_TPOT] = s->dist[BENCH_TPOT].median,
                                     [RUN_ITL] = s->dist[BENCH_ITL].median,
                                     [RUN_E2EL] = s->dist[BENCH_E2EL].median };
    for (size_t i = 0; i < N_RUN_FIGURE; i++) r->v[i * r->n + k] = v[i];
}

size_t bench_runs_middle(const bench_runs *r)
{
    const double *v = r->v + RUN_OUTPUT * r->n;
    for (size_t k = 0; k < r->n; k++) {
        size_t below = 0, same_before = 0;
        for (size_t i = 0; i < r->n; i++) {
            below += v[i] < v[k];
            same_before += i < k && v[i] == v[k];
        }
        if (below + same_before == (r->n - 1) / 2) return k;
    }
    return 0;
}

/* *s of figure i; false: there is none, as of gaps when every answer has one token. */
static bool spread(const bench_runs *r, size_t i, nb_kbench_spread *s)
{
    double *v = malloc(r->n * sizeof *v);
    if (!v) return false;
    memcpy(v, r->v + i * r->n, r->n * sizeof *v);
    nb_kbench_spread_of(v, r->n, s);
    free(v);
    return s->median > 0;
}

void bench_runs_print(FILE *f, const bench_runs *r)
{
    if (r->n < 2) return;
    bench_print_number(f, "Runs; the figures above: the middle one:", (double)r->n);
    for (size_t i = 0; i < N_RUN_FIGURE; i++) {
        nb_kbench_spread s;
        char label[96];
        if (!spread(r, i, &s)) continue;
        (void)snprintf(label, sizeof label, "Of the runs, %s (%s):", figures[i].name,
                       figures[i].unit);
        (void)fprintf(f, "%-40s %-10.2f (%.2f to %.2f)\n", label, s.median, s.lo, s.hi);
    }
}

/* All that makes the workload: bench/compare matches by it. */
static void name_of(const bench_plan *p, const char *kind, const char *model, const char *how,
                    size_t i, char out[384])
{
    const bench_opts *o = p->o;
    char short_name[72], lengths[96] = "", at_once[48] = "";
    const char *set = o->dataset_name;
    bench_model_name(model, short_name, sizeof short_name);
    if (strcmp(set, "random") == 0)
        (void)snprintf(lengths, sizeof lengths, " in=%zu+%zu out=%zu", o->random_prefix_len,
                       o->random_input_len, o->random_output_len);
    if (strcmp(set, "prefix_repetition") == 0)
        (void)snprintf(lengths, sizeof lengths, " in=%zu*%zu+%zu out=%zu", o->num_prefixes,
                       o->prefix_len, o->suffix_len, o->prefix_output_len);
    if (o->max_concurrency)
        (void)snprintf(at_once, sizeof at_once, " at_once=%zu", o->max_concurrency);
    (void)snprintf(out, 384, "%s %s%s%.64s %.40s%s prompts=%zu rate=%.40s%s %s", kind, short_name,
                   *how ? " " : "", how, set, lengths, o->num_prompts, o->request_rate, at_once,
                   figures[i].name);
}

bool bench_runs_json(json_t *j, const bench_runs *r, const bench_plan *p, const char *kind,
                     const char *model, const char *how)
{
    char name[384], full[32];
    (void)snprintf(full, sizeof full, "bench %s", kind);
    json_t *rows = json_array(), *head = bench_doc_head(&p->doc, full, &p->o->metadata);
    bool ok = rows && head && json_object_update_missing(j, head) == 0;
    for (size_t i = 0; i < N_RUN_FIGURE && ok; i++) {
        nb_kbench_spread s;
        if (!spread(r, i, &s)) continue;
        name_of(p, kind, model, how, i, name);
        ok = bench_row_add(rows, NULL, name, figures[i].unit, figures[i].higher, &s);
    }
    json_decref(head);
    ok = json_object_set_new(j, "repeats", json_integer((json_int_t)r->n)) == 0 && ok;
    ok = json_object_set_new(j, "results", rows) == 0 && ok;
    return ok && bench_doc_end(&p->doc, j);
}
