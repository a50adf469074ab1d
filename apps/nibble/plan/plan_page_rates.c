/* plan_page_rates.c - the page of `nibble plan`: cells with figures; the sections on rates and cost. */
#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "plan_page.h"
#include "plan_value.h"

enum { MAX_DECODE_PLOTS = 3 };

/* ---- cells ------------------------------------------------------------------- */

nb_status plan_cell_count(nb_buf *to, double x)
{
    char text[48];
    cli_count_text(x, text, sizeof text);
    return nb_html_cell(to, text);
}
nb_status plan_cell_bytes(nb_buf *to, double x)
{
    char text[32];
    cli_bytes_text(x, text, sizeof text);
    return nb_html_cell(to, text);
}
void plan_rate_text(double x, char *out, size_t n)
{
    if (!(x > 0))
        (void)snprintf(out, n, "-");
    else if (x < 100)
        (void)snprintf(out, n, "%.1f", x);
    else
        cli_count_text(x, out, n);
}
nb_status plan_cell_rate(nb_buf *to, double x)
{
    char text[48];
    plan_rate_text(x, text, sizeof text);
    return nb_html_cell(to, text);
}
void plan_money_text(double x, char *out, size_t n)
{
    if (x > 0)
        (void)snprintf(out, n, "$%.*f", x < 0.1 ? 4 : x < 1 ? 3 : 2, x);
    else
        (void)snprintf(out, n, "-");
}
nb_status plan_cell_money(nb_buf *to, double x)
{
    char text[32];
    plan_money_text(x, text, sizeof text);
    return nb_html_cell(to, text);
}
static void time_text(double ms, char *out, size_t n)
{
    if (ms < 1000)
        (void)snprintf(out, n, "%.1f ms", ms);
    else if (ms < 100e3)
        (void)snprintf(out, n, "%.2f s", ms / 1e3);
    else
        (void)snprintf(out, n, "%.0f s", ms / 1e3);
}
nb_status plan_cell_time(nb_buf *to, double ms)
{
    char text[32];
    time_text(ms, text, sizeof text);
    return nb_html_cell(to, text);
}
nb_status plan_cell_tenths(nb_buf *to, double x)
{
    char text[48];
    if (!(x < 1000)) return plan_cell_count(to, x);
    (void)snprintf(text, sizeof text, "%.1f", x);
    return nb_html_cell(to, text);
}
nb_status plan_cell_ratio(nb_buf *to, double x)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.*f", x < 0.1 ? 4 : 2, x);
    return nb_html_cell(to, x > 0 ? text : "-");
}
/* ---- rates ---------------------------------------------------------------------------- */

static nb_status add_decode_row(nb_buf *to, const json_t *j, const json_t *r)
{
    static const char *const key[] = { "most", "model" };
    const json_t *own = plan_record_of(at(j, "capacity"), str(r, "dtype"));
    char text[64];
    NB_TRY(nb_html_row(to, str(r, "dtype"), is(own, "marked")));
    plan_context_text(num(r, "context"), text, sizeof text);
    NB_TRY(nb_html_cell(to, text));
    NB_TRY(plan_cell_count(to, num(r, "concurrency")));
    for (int k = 0; k < 2; k++) {
        const json_t *t = at(r, key[k]);
        NB_TRY(plan_cell_time(to, num(t, "step_ms")));
        NB_TRY(plan_cell_rate(to, num(t, "tokens_per_second")));
        NB_TRY(plan_cell_money(to, num(t, "price_per_million")));
    }
    plan_bound_text(str(r, "bound"), text, sizeof text);
    NB_TRY(nb_html_cell(to, text));
    return nb_html_row_end(to);
}

static nb_status add_decode_table(nb_buf *to, const json_t *j, const char *caption, bool all)
{
    static const char *const column[] = {
        "record",           "context",           "sequences",
        "a step, at least", "tokens/s at most",  "$ a million, at least",
        "a step, modelled", "tokens/s modelled", "$ a million, modelled",
        "bound by",
    };
    const json_t *list = at(j, "decode");
    NB_TRY(nb_html_table(to, caption, column, NB_COUNT(column)));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (all || plan_row_shown(j, json_array_get(list, i)))
            NB_TRY(add_decode_row(to, j, json_array_get(list, i)));
    return nb_html_table_end(to);
}

nb_status plan_add_decode(nb_buf *to, const plan *p, const json_t *j, const json_t *by_users)
{
    const size_t n = p->context.n, n_plot = n < MAX_DECODE_PLOTS ? n : MAX_DECODE_PLOTS;
    if (json_array_size(at(j, "decode")) == 0) return NB_OK;
    NB_TRY(nb_html_section(to, "decode", "How fast answers come"));
    NB_TRY(nb_html_para(
        to,
        "A step gives each running sequence one token. It reads the weights that its tokens need, "
        "once for all sequences, and the cache of every sequence: so more sequences at once make "
        "more tokens per second, until arithmetic or the reading of caches binds. At most: the "
        "data sheet's bandwidth and arithmetic, and nothing else takes time. Modelled: with the "
        "shares of both that were measured, and fixed times (see the assumptions). Where the lines of "
        "records lie on each other, a smaller record does not make a step faster: it lets more "
        "sequences in."));
    NB_TRY(nb_buf_add_c(to, "<div class=\"plots\">\n"));
    for (size_t i = 0; i < n_plot; i++) {
        const size_t k = n_plot < 2 ? 0 : i * (n - 1) / (n_plot - 1);
        NB_TRY(plan_plot_decode(to, by_users, (double)p->context.count[k]));
    }
    NB_TRY(nb_buf_add_c(to, "</div>\n"));
    NB_TRY(add_decode_table(to, j, "Generated tokens", false));
    NB_TRY(nb_buf_add_c(to, "<details><summary>All records</summary>\n"));
    NB_TRY(add_decode_table(to, j, "Generated tokens, all records", true));
    return nb_buf_add_c(to, "</details>\n</section>\n");
}

nb_status plan_add_cost(nb_buf *to, const json_t *j, const json_t *by_context)
{
    const json_t *c = at(j, "cost");
    char text[200], hour[32], money[32], rate[32];
    const double measured = num(c, "measured_tokens_per_second");
    if (!json_is_object(c) || json_array_size(at(j, "decode")) == 0) return NB_OK;
    plan_money_text(num(c, "price_per_hour"), hour, sizeof hour);
    NB_TRY(nb_html_section(to, "cost", "What it costs"));
    (void)snprintf(text, sizeof text,
                   "%s an hour for all devices, divided by the tokens of an hour, or by the users "
                   "that fit. The machine is full all the time.",
                   hour);
    NB_TRY(nb_html_para(to, text));
    if (measured > 0) {
        plan_money_text(num(c, "measured_price_per_million"), money, sizeof money);
        plan_rate_text(measured, rate, sizeof rate);
        (void)snprintf(text, sizeof text,
                       "Measured: %s tokens per second cost %s a million tokens.", rate, money);
        NB_TRY(nb_html_para(to, text));
    }
    NB_TRY(nb_buf_add_c(to, "<div class=\"plots\">\n"));
    NB_TRY(plan_plot_cost(to, by_context));
    return nb_buf_add_c(to, "</div>\n</section>\n");
}

nb_status plan_add_prefill(nb_buf *to, const json_t *j, const json_t *by_context)
{
    static const char *const column[] = {
        "prompt",
        "PFLOP",
        "of it attention",
        "first token after, at least",
        "tokens/s at most",
        "first token after, modelled",
        "tokens/s modelled",
        "bound by",
    };
    const json_t *list = at(j, "prefill");
    char text[48];
    if (json_array_size(list) == 0) return NB_OK;
    NB_TRY(nb_html_section(to, "prefill", "How long a prompt takes"));
    NB_TRY(nb_html_para(
        to,
        "Before its first token an answer waits until the prompt has been computed. One prompt, "
        "alone on a replica, nothing of it cached; attention grows with the square of its "
        "length. A prefix that is found in the cache takes no time."));
    NB_TRY(nb_buf_add_c(to, "<div class=\"plots\">\n"));
    NB_TRY(plan_plot_prefill(to, by_context));
    NB_TRY(nb_buf_add_c(to, "</div>\n"));
    NB_TRY(nb_html_table(to, "Prompts", column, NB_COUNT(column)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i);
        const bool bytes = strcmp(str(r, "bound"), "weights") == 0;
        plan_context_text(num(r, "prompt"), text, sizeof text);
        NB_TRY(nb_html_row(to, text, false));
        (void)snprintf(text, sizeof text, "%.3f", num(r, "flop") / 1e15);
        NB_TRY(nb_html_cell(to, text));
        (void)snprintf(text, sizeof text, "%.0f%%", 100 * num(r, "attention_fraction"));
        NB_TRY(nb_html_cell(to, text));
        NB_TRY(plan_cell_time(to, num(r, "ttft_ms_most")));
        NB_TRY(plan_cell_rate(to, num(r, "tokens_per_second_most")));
        NB_TRY(plan_cell_time(to, num(r, "ttft_ms_model")));
        NB_TRY(plan_cell_rate(to, num(r, "tokens_per_second_model")));
        NB_TRY(nb_html_cell(to, bytes ? "bandwidth: weights" : "arithmetic"));
        NB_TRY(nb_html_row_end(to));
    }
    NB_TRY(nb_html_table_end(to));
    return nb_buf_add_c(to, "</section>\n");
}
