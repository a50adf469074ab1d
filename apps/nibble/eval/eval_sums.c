/* eval_sums.c - from rows to figures: summaries by ranges of positions, their JSON, the parts of
 * the tables that `eval kl` and `eval ppl` have in common, their plots. */
#include <math.h>
#include <stdlib.h>

#include "eval_rows.h"

enum { PLOT_BINS = 24 };

static int no_memory(void)
{
    return cli_failed("out of memory");
}

static size_t rounds(const opts *o)
{
    return o->eval.n_round ? o->eval.n_round : 2000;
}

/* ---- figures -------------------------------------------------------------------- */

void eval_sums_deinit(eval_sums *s)
{
    free(s->all);
    free(s->range);
    free(s->vs_first);
    *s = (eval_sums){ 0 };
}

static nb_status sum_system(const opts *o, const eval_rows *r, size_t i, eval_sums *s)
{
    const nb_lockstep_rows v = eval_rows_view(r, i);
    NB_TRY(nb_lockstep_summarise(&v, 0, SIZE_MAX, rounds(o), o->eval.seed, &s->all[i]));
    for (size_t k = 0; k < s->n_range; k++) {
        const nb_status st = nb_lockstep_summarise(&v, s->edge[k], s->edge[k + 1], rounds(o),
                                                   o->eval.seed, &s->range[i * s->n_range + k]);
        if (st != NB_OK && st != NB_ERR_ARG) return st; /* ARG: no rows there */
    }
    return NB_OK;
}

static nb_status compare_with_first(const opts *o, const eval_rows *r, eval_sums *s)
{
    uint32_t *block = calloc(r->n, sizeof *block);
    nb_status st = block ? NB_OK : NB_ERR_NOMEM;
    const nb_lockstep_rows v = eval_rows_view(r, 0);
    if (block) nb_lockstep_blocks(&v, block);
    for (size_t i = 2; st == NB_OK && i < r->n_of; i++)
        st = nb_bootstrap_diff(r->of[i].kl, r->of[1].kl, block, r->n, rounds(o), o->eval.seed,
                               &s->vs_first[i]);
    free(block);
    return st;
}

int eval_sums_make(const opts *o, const eval_rows *r, eval_sums *out)
{
    *out = (eval_sums){ 0 };
    out->n_range = nb_lockstep_ranges(r->max_pos, out->edge);
    out->all = calloc(r->n_of, sizeof *out->all);
    out->range = calloc(r->n_of * out->n_range, sizeof *out->range);
    out->vs_first = calloc(r->n_of, sizeof *out->vs_first);
    nb_status st = out->all && out->range && out->vs_first ? NB_OK : NB_ERR_NOMEM;
    for (size_t i = 0; st == NB_OK && i < r->n_of; i++) st = sum_system(o, r, i, out);
    if (st == NB_OK) st = compare_with_first(o, r, out);
    return st == NB_OK ? CLI_OK : cli_failed("intervals: %s", nb_status_text(st));
}

/* ---- JSON ----------------------------------------------------------------------- */

static json_t *doubles(const double *x, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        if (json_array_append_new(list, json_real(x[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *integers(const uint32_t *x, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        if (json_array_append_new(list, json_integer(x[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *json_of_sum(const nb_lockstep_sum *s)
{
    return json_pack("{s:I, s:{s:o, s:o, s:f, s:o, s:f}, s:o, s:o, s:o, s:o, s:o}", "n",
                     (json_int_t)s->n, "kl", "mean", eval_json_ci(s->kl), "median",
                     eval_json_ci(s->kl_median), "p95", s->kl_p95, "p99", eval_json_ci(s->kl_p99),
                     "max", s->kl_max, "top1", eval_json_ci(s->same), "nll", eval_json_ci(s->nll),
                     "dnll", eval_json_ci(s->dnll), "perplexity", eval_json_ci(s->ppl),
                     "perplexity_ratio", eval_json_ci(s->ppl_ratio));
}

static json_t *json_of_ranges(const eval_sums *s, size_t i)
{
    json_t *list = json_array();
    for (size_t k = 0; list && k < s->n_range; k++) {
        const nb_lockstep_sum *p = &s->range[i * s->n_range + k];
        if (p->n == 0) continue;
        json_t *j = json_of_sum(p);
        json_t *range =
            json_pack("{s:I, s:I}", "from", (json_int_t)p->from, "to", (json_int_t)p->to);
        const int bad = !j || !range || json_object_update(range, j) != 0;
        json_decref(j);
        if (!bad && json_array_append_new(list, range) == 0) continue;
        if (bad) json_decref(range);
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* Sums of a system for each window, so that texts can be told apart. */
static json_t *json_of_windows(const eval_rows *r, size_t i)
{
    json_t *list = json_array();
    for (size_t k = 0, end; list && k < r->n; k = end) {
        double nll = 0, kl = 0, ref = 0;
        for (end = k; end < r->n && r->window[end] == r->window[k]; end++) {
            nll += r->of[i].nll[end];
            kl += r->of[i].kl[end];
            ref += r->nll_ref[end];
        }
        const double n = (double)(end - k);
        json_t *j = json_pack("{s:I, s:f, s:f, s:f}", "n", (json_int_t)(end - k), "kl", kl / n,
                              "perplexity", exp(nll / n), "perplexity_reference", exp(ref / n));
        if (json_array_append_new(list, j) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static int put_system(const opts *o, const eval_rows *r, const eval_sums *s, size_t i, json_t *j)
{
    const eval_rows_of *of = &r->of[i];
    json_t *sum = json_of_sum(&s->all[i]);
    int code = eval_json_put(j, "name", json_string(of->name));
    if (code == CLI_OK && json_object_update(j, of->cost) != 0) code = no_memory();
    if (code == CLI_OK && (!sum || json_object_update(j, sum) != 0)) code = no_memory();
    json_decref(sum);
    if (code == CLI_OK && i > 1)
        code = eval_json_put(j, "kl_vs_first", eval_json_ci(s->vs_first[i]));
    if (code == CLI_OK) code = eval_json_put(j, "positions", json_of_ranges(s, i));
    if (code == CLI_OK) code = eval_json_put(j, "windows", json_of_windows(r, i));
    if (code != CLI_OK || !o->eval.detailed) return code;
    return eval_json_put(j, "detail",
                         json_pack("{s:o, s:o, s:o}", "kl", doubles(of->kl, r->n), "nll",
                                   doubles(of->nll, r->n), "top1", doubles(of->same, r->n)));
}

static json_t *json_of_text(const opts *o, const eval_rows *r)
{
    json_t *list = json_array();
    const eval_windows *t = &r->text;
    for (size_t i = 0; list && i < t->n; i++) {
        const size_t n = t->begin[i + 1] - t->begin[i];
        json_t *j = json_pack("{s:I, s:I}", "n_tok", (json_int_t)n, "skip", (json_int_t)t->skip[i]);
        if (j && o->eval.detailed)
            (void)json_object_set_new(j, "ids", integers(t->ids + t->begin[i], n));
        if (json_array_append_new(list, j) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static int put_reference(const opts *o, const eval_rows *r, const eval_sums *s, json_t *to)
{
    const nb_lockstep_sum *all = &s->all[0];
    json_t *j = json_object();
    int code = j ? eval_json_put(j, "name", json_string(r->ref_name)) : no_memory();
    if (code == CLI_OK && json_object_update(j, r->ref_cost) != 0) code = no_memory();
    if (code == CLI_OK) code = eval_json_put(j, "perplexity", eval_json_ci(all->ppl_ref));
    if (code == CLI_OK && o->eval.detailed)
        code = eval_json_put(j, "detail",
                             json_pack("{s:o, s:o, s:o, s:o}", "window", integers(r->window, r->n),
                                       "position", integers(r->pos, r->n), "next",
                                       integers(r->next, r->n), "nll", doubles(r->nll_ref, r->n)));
    if (code == CLI_OK) return eval_json_put(to, "reference", j);
    json_decref(j);
    return code;
}

static int put_systems(const opts *o, const eval_rows *r, const eval_sums *s, json_t *to)
{
    json_t *list = json_array(), *floor_j = json_object();
    int code = list && floor_j ? put_system(o, r, s, 0, floor_j) : no_memory();
    for (size_t i = 1; code == CLI_OK && i < r->n_of; i++) {
        json_t *j = json_object();
        code = j ? put_system(o, r, s, i, j) : no_memory();
        if (code == CLI_OK && json_array_append(list, j) != 0) code = no_memory();
        json_decref(j);
    }
    if (code == CLI_OK && json_object_set(to, "floor", floor_j) != 0) code = no_memory();
    if (code == CLI_OK && json_object_set(to, "variants", list) != 0) code = no_memory();
    json_decref(floor_j);
    json_decref(list);
    return code;
}

json_t *eval_sums_json(const opts *o, const char *what, const eval_rows *r, const eval_sums *s)
{
    json_t *j = json_object();
    int code = j ? eval_json_put(j, "what", json_string(what)) : no_memory();
    if (code == CLI_OK) code = eval_json_head(j, o, r->hash);
    if (code == CLI_OK)
        code = eval_json_put(j, "computed", json_string(o->eval.decode ? "decode" : "prompt"));
    if (code == CLI_OK)
        code = eval_json_put(j, "bos", r->text.bos < 0 ? json_null() : json_integer(r->text.bos));
    if (code == CLI_OK) code = eval_json_put(j, "n_scored", json_integer((json_int_t)r->n));
    if (code == CLI_OK) code = eval_json_put(j, "block_positions", json_integer(NB_LOCKSTEP_BLOCK));
    if (code == CLI_OK) code = eval_json_put(j, "windows", json_of_text(o, r));
    if (code == CLI_OK) code = put_reference(o, r, s, j);
    if (code == CLI_OK) code = put_systems(o, r, s, j);
    if (code == CLI_OK) return j;
    json_decref(j);
    return NULL;
}

/* ---- tables ----------------------------------------------------------------------- */

nb_status eval_sums_head(const opts *o, const eval_rows *r, const eval_sums *s, nb_buf *to)
{
    const nb_ci p = s->all[0].ppl_ref;
    NB_TRY(nb_buf_printf(to, "%s, %zu %s of %s%zu tokens, %zu tokens scored, %s\n",
                         eval_model_name(o), r->text.n, r->text.n == 1 ? "window" : "windows",
                         r->text.n == 1 ? "" : "up to ", r->text.context, r->n,
                         o->eval.decode ? "computed one by one, as generated tokens are"
                                        : "computed as prompts"));
    NB_TRY(nb_buf_printf(
        to,
        "reference %s: %.1f bits per value, %.0f bytes per token, perplexity "
        "%.3f",
        r->ref_name, json_number_value(json_object_get(r->ref_cost, "bits_per_value")),
        json_number_value(json_object_get(r->ref_cost, "bytes_per_token")), p.value));
    if (isfinite(p.lo)) NB_TRY(nb_buf_printf(to, " [%.3f, %.3f]", p.lo, p.hi));
    return nb_buf_add_c(to, "\n\n");
}

nb_status eval_sums_foot(const opts *o, const eval_rows *r, nb_buf *to)
{
    return nb_buf_printf(
        to,
        "\n[..]: 95%% interval, %zu resamplings of blocks of %d positions, paired; "
        "seed %llu.\nfloor: the reference once more, its prompt in steps of %zu "
        "instead of %zu tokens.\n",
        rounds(o), (int)NB_LOCKSTEP_BLOCK, (unsigned long long)o->eval.seed, r->chunk_floor,
        r->chunk_ref);
}

nb_status eval_sums_ranges(const eval_rows *r, const eval_sums *s, const char *title,
                           eval_figure *figure, nb_buf *to)
{
    if (s->n_range < 2) return NB_OK;
    eval_table t = { 0 };
    NB_TRY(nb_buf_printf(to, "\n%s\n", title));
    eval_table_cell(&t, "position");
    for (size_t k = 0; k < s->n_range; k++)
        eval_table_cell(&t, "%zu-%zu", s->edge[k], s->edge[k + 1] - 1);
    eval_table_row(&t);
    for (size_t i = 1; i < r->n_of; i++) {
        eval_table_cell(&t, "%s", r->of[i].name);
        for (size_t k = 0; k < s->n_range; k++) {
            const nb_lockstep_sum *p = &s->range[i * s->n_range + k];
            if (p->n)
                eval_table_ci(&t, figure(p));
            else
                eval_table_cell(&t, "-");
        }
        eval_table_row(&t);
    }
    return eval_table_print(&t, to);
}

/* ---- plots ------------------------------------------------------------------------ */

static int take_plot(eval_report *out, const nb_svg_axes *axes, nb_buf *svg, nb_status st)
{
    if (st == NB_OK && out->n_plot < EVAL_PLOTS_MAX) {
        out->plot[out->n_plot++] = (eval_plot){ axes->title, *svg };
        return CLI_OK;
    }
    nb_buf_deinit(svg);
    if (st == NB_ERR_ARG) return CLI_OK; /* nothing to draw: all is 0 on a logarithmic axis */
    return cli_failed("%s: %s", axes->title, nb_status_text(st));
}

/* Series k of variant k + 1: columns x, y, lo, hi of n_bin values each, from at. */
static nb_status fill_series(const opts *o, const eval_rows *r, size_t k, size_t n_bin,
                             size_t width, eval_figure *figure, double *at, nb_svg_series *s)
{
    const nb_lockstep_rows v = eval_rows_view(r, k + 1);
    double *x = at, *y = at + n_bin, *lo = at + 2 * n_bin, *hi = at + 3 * n_bin;
    *s = (nb_svg_series){ r->of[k + 1].name, x, y, lo, hi, n_bin };
    for (size_t b = 0; b < n_bin; b++) {
        nb_lockstep_sum sum;
        const nb_status st =
            nb_lockstep_summarise(&v, b * width, (b + 1) * width, rounds(o), o->eval.seed, &sum);
        x[b] = ((double)b + 0.5) * (double)width;
        y[b] = lo[b] = hi[b] = (double)NAN;
        if (st == NB_ERR_ARG) continue;
        NB_TRY(st);
        const nb_ci c = figure(&sum);
        y[b] = c.value;
        lo[b] = c.lo;
        hi[b] = c.hi;
    }
    return NB_OK;
}

int eval_sums_plot(const opts *o, const eval_rows *r, const nb_svg_axes *axes, eval_figure *figure,
                   eval_report *out)
{
    const size_t n_series = r->n_of - 1, blocks = r->max_pos / NB_LOCKSTEP_BLOCK + 1;
    const size_t width = (blocks + PLOT_BINS - 1) / PLOT_BINS * NB_LOCKSTEP_BLOCK;
    const size_t n_bin = r->max_pos / width + 1;
    nb_svg_series *s = calloc(n_series, sizeof *s);
    double *columns = calloc(n_series * n_bin, 4 * sizeof *columns);
    nb_buf svg = { 0 };
    nb_status st = s && columns ? NB_OK : NB_ERR_NOMEM;
    for (size_t k = 0; st == NB_OK && k < n_series; k++)
        st = fill_series(o, r, k, n_bin, width, figure, columns + 4 * k * n_bin, &s[k]);
    if (st == NB_OK) st = nb_svg_lines(&svg, axes, s, n_series);
    free(s);
    free(columns);
    return take_plot(out, axes, &svg, st);
}

int eval_sums_bars(const eval_rows *r, const eval_sums *s, const nb_svg_axes *axes,
                   eval_figure *figure, eval_report *out)
{
    const size_t n = r->n_of - 1;
    const char **name = calloc(n, sizeof *name);
    double *v = calloc(n, 3 * sizeof *v);
    nb_buf svg = { 0 };
    nb_status st = name && v ? NB_OK : NB_ERR_NOMEM;
    for (size_t i = 0; st == NB_OK && i < n; i++) {
        const nb_ci c = figure(&s->all[i + 1]);
        name[i] = r->of[i + 1].name;
        v[i] = c.value;
        v[n + i] = c.lo;
        v[2 * n + i] = c.hi;
    }
    if (st == NB_OK) st = nb_svg_bars(&svg, axes, name, v, v + n, v + 2 * n, n);
    free(name);
    free(v);
    return take_plot(out, axes, &svg, st);
}

int eval_sums_run(const opts *o, const char *name, eval_table_fn *table, eval_plots_fn *plots,
                  eval_report *out)
{
    eval_variants v = { 0 };
    eval_rows r = { 0 };
    eval_sums s = { 0 };
    *out = (eval_report){ 0 };
    int code = eval_read_variants(o, 0, false, &v);
    if (code == CLI_OK) code = eval_rows_measure(o, &v, &r);
    if (code == CLI_OK) code = eval_sums_make(o, &r, &s);
    if (code == CLI_OK) out->json = eval_sums_json(o, name, &r, &s);
    if (code == CLI_OK && !out->json) code = CLI_FAILED;
    if (code == CLI_OK && table(o, &r, &s, &out->text) != NB_OK) code = cli_failed("out of memory");
    if (code == CLI_OK) code = plots(o, &r, &s, out);
    eval_sums_deinit(&s);
    eval_rows_deinit(&r);
    eval_variants_deinit(&v);
    return code;
}
