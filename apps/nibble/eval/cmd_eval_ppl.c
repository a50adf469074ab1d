/* cmd_eval_ppl.c - `nibble eval ppl`: perplexity of a text under each cache format, against the
 * reference on the same tokens. */
#include "eval_rows.h"

static nb_ci dnll_of(const nb_lockstep_sum *s)
{
    return s->dnll;
}

static nb_status table(const opts *o, const eval_rows *r, const eval_sums *s, nb_buf *to)
{
    static const char *const heading[] = { "variant", "bits",       "B/token",     "perplexity",
                                           "more, %", "dNLL, nats", "same best, %" };
    eval_table t = { 0 };
    NB_TRY(eval_sums_head(o, r, s, to));
    for (size_t i = 0; i < NB_COUNT(heading); i++) eval_table_cell(&t, "%s", heading[i]);
    eval_table_row(&t);
    for (size_t i = 0; i < r->n_of; i++) {
        const nb_lockstep_sum *a = &s->all[i];
        const nb_ci q = a->ppl_ratio, same = a->same;
        eval_table_cell(&t, "%s", r->of[i].name);
        eval_table_cell(&t, "%.2f",
                        json_number_value(json_object_get(r->of[i].cost, "bits_per_value")));
        eval_table_cell(&t, "%.0f",
                        json_number_value(json_object_get(r->of[i].cost, "bytes_per_token")));
        eval_table_ci(&t, a->ppl);
        eval_table_ci(&t, (nb_ci){ 100 * (q.value - 1), 100 * (q.lo - 1), 100 * (q.hi - 1) });
        eval_table_ci(&t, a->dnll);
        eval_table_ci(&t, (nb_ci){ 100 * same.value, 100 * same.lo, 100 * same.hi });
        eval_table_row(&t);
    }
    NB_TRY(eval_table_print(&t, to));
    NB_TRY(eval_sums_ranges(r, s, "dNLL by position in the window", dnll_of, to));
    return eval_sums_foot(o, r, to);
}

static int plots(const opts *o, const eval_rows *r, const eval_sums *s, eval_report *out)
{
    const nb_svg_axes by_position = { .title = "Loss against the reference, by position",
                                      .x_label = "position in the window",
                                      .y_label = "dNLL, nats" };
    const nb_svg_axes all = { .title = "Loss against the reference", .y_label = "dNLL, nats" };
    const int code = eval_sums_plot(o, r, &by_position, dnll_of, out);
    return code == CLI_OK ? eval_sums_bars(r, s, &all, dnll_of, out) : code;
}

int eval_ppl_run(const opts *o, eval_report *out)
{
    return eval_sums_run(o, "ppl", table, plots, out);
}

int cmd_eval_ppl(const opts *o)
{
    eval_report r = { 0 };
    int code = eval_try_outputs(o);
    if (code == CLI_OK) code = eval_ppl_run(o, &r);
    return eval_finish(o, code, &r);
}
