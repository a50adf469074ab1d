/* cmd_eval_kl.c - `nibble eval kl`: how far the next-token distributions of a cache format are
 * from the reference's, position by position, on a text. */
#include "eval_rows.h"

static nb_ci kl_of(const nb_lockstep_sum *s)
{
    return s->kl;
}
static nb_ci dnll_of(const nb_lockstep_sum *s)
{
    return s->dnll;
}

static double cost(const eval_rows *r, size_t i, const char *key)
{
    return json_number_value(json_object_get(r->of[i].cost, key));
}

static nb_status table(const opts *o, const eval_rows *r, const eval_sums *s, nb_buf *to)
{
    static const char *const heading[] = { "variant", "bits", "B/token", "KL, nats",
                                           "median",  "p99",  "max",     "same best, %" };
    eval_table t = { 0 };
    NB_TRY(eval_sums_head(o, r, s, to));
    for (size_t i = 0; i < NB_COUNT(heading); i++) eval_table_cell(&t, "%s", heading[i]);
    if (r->n_of > 2) eval_table_cell(&t, "KL less %s's", r->of[1].name);
    eval_table_row(&t);
    for (size_t i = 0; i < r->n_of; i++) {
        const nb_lockstep_sum *a = &s->all[i];
        const nb_ci same = { 100 * a->same.value, 100 * a->same.lo, 100 * a->same.hi };
        eval_table_cell(&t, "%s", r->of[i].name);
        eval_table_cell(&t, "%.2f", cost(r, i, "bits_per_value"));
        eval_table_cell(&t, "%.0f", cost(r, i, "bytes_per_token"));
        eval_table_ci(&t, a->kl);
        eval_table_ci(&t, a->kl_median);
        eval_table_ci(&t, a->kl_p99);
        eval_table_cell(&t, "%.3g", a->kl_max);
        eval_table_ci(&t, same);
        if (i > 1) eval_table_ci(&t, s->vs_first[i]);
        eval_table_row(&t);
    }
    NB_TRY(eval_table_print(&t, to));
    NB_TRY(nb_buf_add_c(to, "\n"));
    eval_table_cell(&t, "variant");
    eval_table_cell(&t, "perplexity");
    eval_table_cell(&t, "of the reference's");
    eval_table_cell(&t, "dNLL, nats");
    eval_table_row(&t);
    for (size_t i = 0; i < r->n_of; i++) {
        eval_table_cell(&t, "%s", r->of[i].name);
        eval_table_ci(&t, s->all[i].ppl);
        eval_table_ci(&t, s->all[i].ppl_ratio);
        eval_table_ci(&t, s->all[i].dnll);
        eval_table_row(&t);
    }
    NB_TRY(eval_table_print(&t, to));
    NB_TRY(eval_sums_ranges(r, s, "KL by position in the window", kl_of, to));
    return eval_sums_foot(o, r, to);
}

static int plots(const opts *o, const eval_rows *r, const eval_sums *s, eval_report *out)
{
    const nb_svg_axes by_position = { .title = "KL from the reference, by position",
                                      .x_label = "position in the window",
                                      .y_label = "KL, nats",
                                      .log_y = 1 };
    const nb_svg_axes kl = { .title = "KL from the reference", .y_label = "mean KL, nats" };
    const nb_svg_axes dnll = { .title = "Loss against the reference", .y_label = "dNLL, nats" };
    int code = eval_sums_plot(o, r, &by_position, kl_of, out);
    if (code == CLI_OK) code = eval_sums_bars(r, s, &kl, kl_of, out);
    return code == CLI_OK ? eval_sums_bars(r, s, &dnll, dnll_of, out) : code;
}

int eval_kl_run(const opts *o, eval_report *out)
{
    return eval_sums_run(o, "kl", table, plots, out);
}

int cmd_eval_kl(const opts *o)
{
    eval_report r = { 0 };
    int code = eval_try_outputs(o);
    if (code == CLI_OK) code = eval_kl_run(o, &r);
    return eval_finish(o, code, &r);
}
