/* eval_page.c - see eval_page.h.  Words from outside (names of variants, of the model) are escaped. */
#include "eval_page.h"

#include "report/html.h"

/* {"value", "lo", "hi"} times scale, less minus; anything else: a dash. */
static nb_status add_ci(nb_buf *to, const json_t *ci, double scale, double minus, int digits)
{
    const json_t *v = json_object_get(ci, "value"), *lo = json_object_get(ci, "lo"),
                 *hi = json_object_get(ci, "hi");
    if (!json_is_number(v)) return nb_buf_add_c(to, "<td>-</td>");
    NB_TRY(nb_buf_printf(to, "<td>%.*f", digits, scale * (json_number_value(v) - minus)));
    if (json_is_number(lo) && json_is_number(hi))
        NB_TRY(nb_buf_printf(to, " <span>[%.*f, %.*f]</span>", digits,
                             scale * (json_number_value(lo) - minus), digits,
                             scale * (json_number_value(hi) - minus)));
    return nb_buf_add_c(to, "</td>");
}

static nb_status add_row(nb_buf *to, const eval_page_row *r)
{
    NB_TRY(nb_html_row(to, r->name, false));
    NB_TRY(nb_buf_printf(to, "<td>%.2f</td><td>%.0f</td>", r->bits, r->bytes));
    NB_TRY(add_ci(to, r->kl, 1, 0, 5));
    NB_TRY(add_ci(to, r->ppl_ratio, 100, 1, 2));
    NB_TRY(add_ci(to, r->top1, 100, 0, 2));
    const json_t *attn = json_object_get(r->attn, "mean");
    if (json_is_number(attn))
        NB_TRY(nb_buf_printf(to, "<td>%.2f</td>", 100 * json_number_value(attn)));
    else
        NB_TRY(nb_buf_add_c(to, "<td>-</td>"));
    NB_TRY(add_ci(to, r->score, 100, 0, 1));
    return nb_html_row_end(to);
}

static nb_status add_summary(nb_buf *to, const eval_page_row *row, size_t n_row)
{
    static const char *const column[] = {
        "format",
        "bits per value",
        "bytes per token",
        "KL, nats",
        "perplexity, % more",
        "same best token, %",
        "attention error, %",
        "retrieval, %",
    };
    NB_TRY(nb_html_table(to, "All formats", column, NB_COUNT(column)));
    for (size_t i = 0; i < n_row; i++) NB_TRY(add_row(to, &row[i]));
    NB_TRY(nb_html_table_end(to));
    return nb_html_para(to, "Brackets: 95% intervals of a block bootstrap, paired. All against the "
                            "reference on the same input.");
}

static nb_status add_section(nb_buf *to, const eval_section *s)
{
    NB_TRY(nb_html_section(to, s->id, s->title));
    NB_TRY(nb_html_para(to, s->about));
    if (s->code != CLI_OK)
        NB_TRY(nb_buf_add_c(to, "<p class=\"none\">Not measured: it failed, see the command's "
                                "error.</p>\n"));
    NB_TRY(nb_buf_add_c(to, "<div class=\"plots\">\n"));
    for (size_t i = 0; i < s->report.n_plot; i++)
        NB_TRY(nb_html_plot(to, s->title, &s->report.plot[i].svg));
    NB_TRY(nb_buf_add_c(to, "</div>\n"));
    if (s->report.text.n_bytes) {
        NB_TRY(nb_buf_add_c(
            to, "<details open=\"open\"><summary>figures</summary>\n<pre tabindex=\"0\">"));
        NB_TRY(nb_html_text(to, s->report.text.p));
        NB_TRY(nb_buf_add_c(to, "</pre></details>\n"));
    }
    return nb_buf_add_c(to, "</section>\n");
}

nb_status eval_page_write(const char *title, const char *about, const eval_page_row *row,
                          size_t n_row, const eval_section *section, size_t n_section, nb_buf *to)
{
    NB_TRY(nb_html_begin(to, title));
    NB_TRY(nb_html_para(to, about));
    NB_TRY(add_summary(to, row, n_row));
    for (size_t i = 0; i < n_section; i++) NB_TRY(add_section(to, &section[i]));
    return nb_html_end(to);
}
