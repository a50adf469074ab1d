/* eval_attn_report.c - what `nibble eval attn` measured, as a table, as JSON (fields: eval_attn.h)
 * and as plots. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval_attn.h"

/* ---- collecting -------------------------------------------------------------- */

typedef struct items {
    nb_attn_error *e;
    uint32_t *block; /* of resampling: a query of a layer */
    double *x, *y, *z;
    size_t n, cap;
} items;

static bool items_init(items *s, const eval_attn *a)
{
    for (size_t i = 0; i < a->n_r; i++) s->cap += a->r[i].n_q * a->r[i].n_head;
    s->e = calloc(s->cap, sizeof *s->e);
    s->block = calloc(s->cap, sizeof *s->block);
    s->x = calloc(3 * s->cap, sizeof *s->x);
    if (!s->e || !s->block || !s->x) return false;
    s->y = s->x + s->cap;
    s->z = s->y + s->cap;
    return true;
}
static void items_deinit(items *s)
{
    free(s->e);
    free(s->block);
    free(s->x);
}

enum { ALL = -1 };

/* Errors of form i, or with method >= 0 of a method and a fraction; of one layer or of all. */
static void collect(items *s, const eval_attn *a, size_t form, int method, size_t fraction,
                    long layer)
{
    uint32_t block = 0;
    s->n = 0;
    for (size_t i = 0; i < a->n_r; i++) {
        const nb_attn_layer_result *r = &a->r[i];
        if (layer != ALL && r->layer != (size_t)layer) continue;
        const size_t n = r->n_q * r->n_head;
        const nb_attn_error *from =
            method < 0 ? r->error + form * n
                       : r->thrift + ((size_t)method * a->n_fraction + fraction) * n;
        memcpy(s->e + s->n, from, n * sizeof *from);
        for (size_t k = 0; k < n; k++) s->block[s->n + k] = block + (uint32_t)(k / r->n_head);
        block += (uint32_t)r->n_q;
        s->n += n;
    }
}

static json_t *json_summary(const nb_summary *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", s->mean, "median", s->median, "p95",
                     s->p95, "p99", s->p99, "max", s->max);
}

static void set_summary(json_t *to, const nb_attn_summary *s)
{
    json_object_set_new(to, "rel_l2", json_summary(&s->rel_l2));
    json_object_set_new(to, "one_minus_cos", json_summary(&s->one_cos));
    json_object_set_new(to, "kl", json_summary(&s->kl));
    json_object_set_new(to, "max_dp", json_summary(&s->max_dp));
}

/* The layers that were measured, ascending: those of the first window. */
static size_t n_layers(const eval_attn *a)
{
    size_t n = 0;
    while (n < a->n_r && (n == 0 || a->r[n].layer > a->r[n - 1].layer)) n++;
    return n;
}

/* ---- variants ------------------------------------------------------------------ */

static void detail(json_t *to, const items *s, size_t n_head, double *scratch)
{
    json_t *heads = json_array(), *l2 = json_array(), *kl = json_array();
    for (size_t h = 0; h < n_head; h++) {
        nb_attn_summary sum;
        json_t *j = json_object();
        nb_attn_summarise(s->e, s->n, h, n_head, scratch, &sum);
        set_summary(j, &sum);
        json_array_append_new(heads, j);
    }
    for (size_t i = 0; i < s->n; i += n_head) {
        json_t *a = json_array(), *b = json_array();
        for (size_t h = 0; h < n_head; h++) {
            json_array_append_new(a, json_real(s->e[i + h].rel_l2));
            json_array_append_new(b, json_real(s->e[i + h].kl));
        }
        json_array_append_new(l2, a);
        json_array_append_new(kl, b);
    }
    json_object_set_new(to, "heads", heads);
    json_object_set_new(to, "errors", json_pack("{s:o, s:o}", "rel_l2", l2, "kl", kl));
}

/* Of the layers that were measured. */
static double bytes_per_tok(const eval_attn *a, size_t form)
{
    double sum = 0;
    for (size_t i = 0; i < n_layers(a); i++) sum += a->r[i].bytes_per_tok[form];
    return sum;
}

/* median[form][layer] of rel_l2 for the plot. */
static void report_variants(const eval_attn *a, items *s, json_t *json, nb_buf *text,
                            double *median)
{
    eval_table t = { 0 };
    json_t *all = json_array();
    const char *const head[] = { "format", "bits",      "rel-L2 median", "p95",       "max",
                                 "1-cos",  "KL median", "p95",           "max dp p95" };
    for (size_t i = 0; i < NB_COUNT(head); i++) eval_table_cell(&t, "%s", head[i]);
    eval_table_row(&t);
    const size_t n_l = n_layers(a);
    for (size_t f = 0; f < a->n_form; f++) {
        nb_attn_summary sum;
        json_t *j = json_object(), *layers = json_array();
        const double sum_bytes = bytes_per_tok(a, f), bytes = sum_bytes / (double)n_l,
                     bits = 8 * bytes / (double)a->r[0].n_values;
        collect(s, a, f, ALL, 0, ALL);
        nb_attn_summarise(s->e, s->n, 0, 1, s->x, &sum);
        json_object_set_new(j, "name", json_string(a->v[f].name));
        json_object_set_new(j, "format", json_string(a->word[f]));
        json_object_set_new(j, "bytes_per_token",
                            n_l == a->n_layer ? json_real(sum_bytes) : json_null());
        json_object_set_new(j, "bytes_per_token_layer", json_real(bytes));
        json_object_set_new(j, "bits_per_value", json_real(bits));
        set_summary(j, &sum);
        eval_table_cell(&t, "%s", a->v[f].name);
        eval_table_cell(&t, "%.2f", bits);
        const double pc[] = { sum.rel_l2.median, sum.rel_l2.p95, sum.rel_l2.max };
        for (size_t i = 0; i < 3; i++) eval_table_cell(&t, "%.3g%%", 100 * pc[i]);
        eval_table_cell(&t, "%.2e", sum.one_cos.median);
        eval_table_cell(&t, "%.2e", sum.kl.median);
        eval_table_cell(&t, "%.2e", sum.kl.p95);
        eval_table_cell(&t, "%.2e", sum.max_dp.p95);
        eval_table_row(&t);
        for (size_t i = 0; i < n_l; i++) {
            json_t *jl = json_object();
            collect(s, a, f, ALL, 0, (long)a->r[i].layer);
            nb_attn_summarise(s->e, s->n, 0, 1, s->x, &sum);
            json_object_set_new(jl, "layer", json_integer((json_int_t)a->r[i].layer));
            json_object_set_new(jl, "bytes_per_token_layer", json_real(a->r[i].bytes_per_tok[f]));
            set_summary(jl, &sum);
            if (a->o->eval.detailed) detail(jl, s, a->r[i].n_head, s->x);
            json_array_append_new(layers, jl);
            median[f * n_l + i] = sum.rel_l2.median;
        }
        json_object_set_new(j, "layers", layers);
        json_array_append_new(all, j);
    }
    json_object_set_new(json, "variants", all);
    (void)eval_table_print(&t, text);
    if (n_l < 2) return;
    (void)nb_buf_add_c(text, "\nrel-L2 of the attention output, median over queries and heads\n");
    eval_table_cell(&t, "layer");
    for (size_t f = 0; f < a->n_form; f++) eval_table_cell(&t, "%s", a->v[f].name);
    eval_table_row(&t);
    for (size_t i = 0; i < n_l; i++) {
        eval_table_cell(&t, "%zu", a->r[i].layer);
        for (size_t f = 0; f < a->n_form; f++)
            eval_table_cell(&t, "%.3g%%", 100 * median[f * n_l + i]);
        eval_table_row(&t);
    }
    (void)eval_table_print(&t, text);
}

/* ---- selections ----------------------------------------------------------------- */

typedef struct point {
    double refined, base_bytes, refine_bytes, l2, kl, low_l2, low_kl, high_l2, high_kl;
    nb_ci rec, rec_kl;
    int valid, valid_kl;
} point;

static double value_of(const nb_attn_error *e, bool kl)
{
    return kl ? e->kl : e->rel_l2;
}

static double fill(items *s, double *to, bool kl)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        to[i] = value_of(&s->e[i], kl);
        sum += to[i];
    }
    return sum / (double)s->n;
}

static nb_status one_point(const eval_attn *a, items *s, size_t im, size_t k, point *p)
{
    const size_t n_round = a->o->eval.n_round ? a->o->eval.n_round : 2000;
    double n = 0;
    *p = (point){ 0 };
    for (size_t i = 0; i < a->n_r; i++)
        for (size_t q = 0; q < a->r[i].n_q; q++, n++) {
            const nb_thrift_cost *c = &a->r[i].cost[(im * a->n_fraction + k) * a->r[i].n_q + q];
            p->refined += c->refined;
            p->base_bytes += c->base_bytes;
            p->refine_bytes += c->refine_bytes;
        }
    p->refined /= n;
    p->base_bytes /= n;
    p->refine_bytes /= n;
    for (int kl = 0; kl < 2; kl++) {
        collect(s, a, a->base, ALL, 0, ALL);
        *(kl ? &p->low_kl : &p->low_l2) = fill(s, s->x, kl);
        collect(s, a, 0, (int)im, k, ALL);
        *(kl ? &p->kl : &p->l2) = fill(s, s->y, kl);
        collect(s, a, a->floor, ALL, 0, ALL);
        *(kl ? &p->high_kl : &p->high_l2) = fill(s, s->z, kl);
        NB_TRY(nb_bootstrap_recovery(s->x, s->y, s->z, s->block, s->n, n_round, a->o->eval.seed,
                                     kl ? &p->rec_kl : &p->rec, kl ? &p->valid_kl : &p->valid));
    }
    return NB_OK;
}

static json_t *json_ci(const nb_ci *c, int valid)
{
    if (!valid) return json_null();
    return json_pack("{s:f, s:f, s:f}", "value", c->value, "lo", c->lo, "hi", c->hi);
}

static json_t *json_point(double fraction, const point *p)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:{s:f, s:f}, s:{s:f, s:f}, s:o, s:o}",
                     "fraction", fraction, "refined", p->refined, "base_bytes", p->base_bytes,
                     "refine_bytes", p->refine_bytes, "rel_l2", p->l2, "kl", p->kl, "low", "rel_l2",
                     p->low_l2, "kl", p->low_kl, "high", "rel_l2", p->high_l2, "kl", p->high_kl,
                     "recovered", json_ci(&p->rec, p->valid), "recovered_kl",
                     json_ci(&p->rec_kl, p->valid_kl));
}

static void cell_ci(eval_table *t, const nb_ci *c, int valid)
{
    if (valid)
        eval_table_cell(t, "%.1f [%.1f, %.1f]", 100 * c->value, 100 * c->lo, 100 * c->hi);
    else
        eval_table_cell(t, "gap < 2 SE");
}

static const char *const refine_name[] = { "residual", "fp8", "bf16" };

static nb_status report_methods(const eval_attn *a, items *s, json_t *json, nb_buf *text,
                                point *points)
{
    eval_table t = { 0 };
    json_t *all = json_array();
    const char *const head[] = { "selection", "fraction", "refined",     "read",   "beside",
                                 "rel-L2",    "KL",       "recovered %", "of KL %" };
    json_object_set_new(json, "methods", all);
    if (!a->n_method) return NB_OK;
    for (size_t i = 0; i < NB_COUNT(head); i++) eval_table_cell(&t, "%s", head[i]);
    eval_table_row(&t);
    for (size_t m = 0; m < a->n_method; m++) {
        json_t *list = json_array();
        for (size_t k = 0; k < a->n_fraction; k++) {
            point *p = &points[m * a->n_fraction + k];
            NB_TRY(one_point(a, s, m, k, p));
            json_array_append_new(list, json_point(a->fraction[k], p));
            eval_table_cell(&t, "%s", a->method[m].name);
            eval_table_cell(&t, "%g%%", 100 * a->fraction[k]);
            eval_table_cell(&t, "%.3f%%", 100 * p->refined);
            eval_table_cell(&t, "%.0f KB", p->base_bytes / 1e3);
            eval_table_cell(&t, "%.1f KB", p->refine_bytes / 1e3);
            eval_table_cell(&t, "%.3g%%", 100 * p->l2);
            eval_table_cell(&t, "%.2e", p->kl);
            cell_ci(&t, &p->rec, p->valid);
            cell_ci(&t, &p->rec_kl, p->valid_kl);
            eval_table_row(&t);
        }
        json_array_append_new(all, json_pack("{s:s, s:s, s:o}", "name", a->method[m].name, "refine",
                                             refine_name[a->refine[m]], "fractions", list));
    }
    const point *p = &points[0];
    (void)nb_buf_printf(text,
                        "\nselections on %s (rel-L2 %.3g%%, KL %.2e), against %s (%.3g%%, %.2e); "
                        "means; read: a query in a layer\n",
                        a->v[a->base].name, 100 * p->low_l2, p->low_kl, a->v[a->floor].name,
                        100 * p->high_l2, p->high_kl);
    return eval_table_print(&t, text);
}

/* ---- the paper ------------------------------------------------------------------- */

static void report_paper(const eval_attn *a, json_t *json, nb_buf *text)
{
    eval_table t = { 0 };
    json_t *modes = json_array();
    double n = 0, share = 0;
    if (!a->paper) {
        json_decref(modes);
        json_object_set_new(json, "paper", json_null());
        return;
    }
    for (size_t i = 0; i < a->n_r; i++) share += a->r[i].paper.share / (double)a->n_r;
    const char *const head[] = { "arithmetic", "rel-L2", "KL", "5% refined", "KL", "recovered %" };
    for (size_t i = 0; i < NB_COUNT(head); i++) eval_table_cell(&t, "%s", head[i]);
    eval_table_row(&t);
    for (size_t m = 0; m < NB_PAPER_MODES; m++) {
        double x[4] = { 0 };
        n = 0;
        for (size_t i = 0; i < a->n_r; i++) {
            const nb_attn_paper_result *p = &a->r[i].paper;
            for (size_t k = 0; k < p->n; k++, n++) {
                x[0] += p->error[m][k].rel_l2;
                x[1] += p->error[m][k].kl;
                x[2] += p->refined[m][k].rel_l2;
                x[3] += p->refined[m][k].kl;
            }
        }
        for (size_t k = 0; k < 4; k++) x[k] /= n;
        const double rec = x[0] > 0 ? (x[0] - x[2]) / x[0] : 0;
        json_array_append_new(modes,
                              json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "name", nb_paper_name[m],
                                        "rel_l2", x[0], "kl", x[1], "refined_rel_l2", x[2],
                                        "refined_kl", x[3], "recovered", rec));
        eval_table_cell(&t, "%s", nb_paper_name[m]);
        for (size_t k = 0; k < 4; k++)
            eval_table_cell(&t, k % 2 ? "%.2e" : "%.3g%%", k % 2 ? x[k] : 100 * x[k]);
        eval_table_cell(&t, "%.1f", 100 * rec);
        eval_table_row(&t);
    }
    json_object_set_new(json, "paper",
                        json_pack("{s:f, s:f, s:I, s:o}", "fraction", 0.05, "refined", share, "n",
                                  (json_int_t)n, "modes", modes));
    (void)nb_buf_printf(text,
                        "\nFP4 arithmetic of the ThriftAttention paper (not what nibble does), and "
                        "with its block-mean selection: %.2f%% refined\n",
                        100 * share);
    (void)eval_table_print(&t, text);
}

/* ---- plots ------------------------------------------------------------------------ */

/* The report's next plot; one without a point to draw (NB_ERR_ARG) is left out. */
static nb_status take_plot(const char *title, nb_buf *svg, nb_status st, eval_report *out)
{
    if (st == NB_OK) {
        out->plot[out->n_plot++] = (eval_plot){ title, *svg };
        return NB_OK;
    }
    nb_buf_deinit(svg);
    return st == NB_ERR_ARG ? NB_OK : st;
}

static nb_status plot_layers(const eval_attn *a, const double *median, eval_report *out)
{
    const size_t n_l = n_layers(a);
    double *x = calloc(n_l, sizeof *x);
    nb_svg_series *s = calloc(a->n_form, sizeof *s);
    nb_status st = x && s ? NB_OK : NB_ERR_NOMEM;
    for (size_t i = 0; st == NB_OK && i < n_l; i++) x[i] = (double)a->r[i].layer;
    for (size_t f = 0; st == NB_OK && f < a->n_form; f++)
        s[f] = (nb_svg_series){ .name = a->v[f].name, .x = x, .y = median + f * n_l, .n = n_l };
    const nb_svg_axes axes = { .title =
                                   "Error of the attention output, median over queries and heads",
                               .x_label = "layer",
                               .y_label = "relative L2 error",
                               .log_y = 1 };
    nb_buf svg = { 0 };
    if (st == NB_OK) st = nb_svg_lines(&svg, &axes, s, a->n_form);
    free(x);
    free(s);
    return take_plot("Attention error by layer", &svg, st, out);
}

static nb_status plot_methods(const eval_attn *a, const point *points, eval_report *out)
{
    const size_t n = a->n_fraction;
    double *x = calloc(4 * a->n_method * n, sizeof *x);
    nb_svg_series *s = calloc(a->n_method, sizeof *s);
    nb_status st = x && s ? NB_OK : NB_ERR_NOMEM;
    for (size_t m = 0; st == NB_OK && m < a->n_method; m++) {
        double *at = x + 4 * m * n;
        for (size_t k = 0; k < n; k++) {
            const point *p = &points[m * n + k];
            at[k] = 100 * p->refined;
            at[n + k] = p->valid ? 100 * p->rec.value : (double)NAN;
            at[2 * n + k] = p->valid ? 100 * p->rec.lo : (double)NAN;
            at[3 * n + k] = p->valid ? 100 * p->rec.hi : (double)NAN;
        }
        s[m] = (nb_svg_series){ .name = a->method[m].name,
                                .x = at,
                                .y = at + n,
                                .lo = at + 2 * n,
                                .hi = at + 3 * n,
                                .n = n };
    }
    const nb_svg_axes axes = { .title = "Gap to BF16 that a selection recovers, attention output",
                               .x_label = "tokens refined, %",
                               .y_label = "recovered, %",
                               .log_x = 1 };
    nb_buf svg = { 0 };
    if (st == NB_OK) st = nb_svg_lines(&svg, &axes, s, a->n_method);
    free(x);
    free(s);
    return take_plot("Recovered by Thrift mode", &svg, st, out);
}

/* ---- all --------------------------------------------------------------------------- */

static void report_head(const eval_attn *a, json_t *json, nb_buf *text)
{
    const nb_attn_layer_result *r = &a->r[0];
    json_t *layers = json_array();
    const size_t n_l = n_layers(a);
    const bool stress = a->o->eval.stress;
    for (size_t i = 0; i < n_l; i++)
        json_array_append_new(layers, json_integer((json_int_t)a->r[i].layer));
    json_object_set_new(json, "source", json_string(stress ? "stress" : "text"));
    json_object_set_new(json, "n_window", json_integer((json_int_t)a->n_window));
    json_object_set_new(json, "n_query", json_integer((json_int_t)r->n_q));
    json_object_set_new(json, "n_head", json_integer((json_int_t)r->n_head));
    json_object_set_new(json, "n_token", json_integer((json_int_t)r->n_tok));
    json_object_set_new(json, "layers", layers);
    json_object_set_new(json, "floor", json_string(a->v[a->floor].name));
    json_object_set_new(json, "base",
                        a->base < a->n_form ? json_string(a->v[a->base].name) : json_null());
    json_object_set_new(json, "tau", json_real(a->o->eval.tau > 0 ? a->o->eval.tau : 1e-3));
    (void)nb_buf_printf(text,
                        "attention error against exact attention: %zu layer%s x %zu heads x "
                        "%zu quer%s, %zu tokens, %zu window%s\n",
                        n_l, n_l == 1 ? "" : "s", r->n_head, r->n_q, r->n_q == 1 ? "y" : "ies",
                        r->n_tok, a->n_window, a->n_window == 1 ? "" : "s");
    if (!stress) return;
    json_t *drawn = json_array();
    nb_buf all = { 0 };
    (void)nb_stress_print(&a->stress, &all);
    json_object_set_new(json, "parameters", json_string(nb_buf_view(&all).p));
    for (size_t at = 0; at < a->drawn.n_bytes; at += strlen(a->drawn.p + at) + 1) {
        json_array_append_new(drawn, json_string(a->drawn.p + at));
        (void)nb_buf_printf(text, "  %s\n", a->drawn.p + at);
    }
    json_object_set_new(json, "layers_drawn", drawn);
    nb_buf_deinit(&all);
}

int eval_attn_report(const eval_attn *a, eval_report *out)
{
    items s = { 0 };
    double *median = calloc(a->n_form * n_layers(a), sizeof *median);
    point *points = calloc(a->n_method * a->n_fraction + 1, sizeof *points);
    nb_status st = NB_ERR_NOMEM;
    int code = CLI_OK;
    if (!out->json) out->json = json_object();
    if (median && points && out->json && items_init(&s, a)) {
        code = eval_json_put(out->json, "what", json_string("attn"));
        if (code == CLI_OK) code = eval_json_head(out->json, a->o, a->hash[0] ? a->hash : NULL);
        if (code != CLI_OK) goto out; /* its line is printed */
        report_head(a, out->json, &out->text);
        (void)nb_buf_add_ch(&out->text, '\n');
        report_variants(a, &s, out->json, &out->text, median);
        st = report_methods(a, &s, out->json, &out->text, points);
        report_paper(a, out->json, &out->text);
        if (st == NB_OK) st = plot_layers(a, median, out);
        if (st == NB_OK && a->n_method) st = plot_methods(a, points, out);
    }
out:
    items_deinit(&s);
    free(median);
    free(points);
    if (code != CLI_OK) return code;
    return st == NB_OK ? CLI_OK : cli_failed("eval attn: %s", nb_status_text(st));
}
