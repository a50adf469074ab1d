/* eval_page.c - see eval_page.h.
 *
 * Everything is in the one file: style, plots, figures.  It follows the reader's light or dark
 * scheme, can be printed, and needs no network.  Words from outside (names of variants, of the
 * model) are escaped here; the plots escape their own. */
#include "eval_page.h"

static const char STYLE[] =
    ":root{color-scheme:light dark;--fg:#1a1a1a;--bg:#fff;--line:#d8d8d8;--soft:#f4f5f7}\n"
    "@media (prefers-color-scheme:dark){:root{--fg:#e8e8e8;--bg:#16181c;--line:#3a3d44;"
    "--soft:#1f2228}}\n"
    "body{font:16px/1.5 system-ui,'DejaVu Sans',Arial,sans-serif;color:var(--fg);"
    "background:var(--bg);max-width:62rem;margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem;border-bottom:1px solid "
    "var(--line)}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}\n"
    "th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:right;"
    "white-space:nowrap;font-variant-numeric:tabular-nums;vertical-align:top}\n"
    "th{white-space:normal;vertical-align:bottom}th:first-child,td:first-child{text-align:left}\n"
    "td span{display:block;opacity:.65;font-size:.85em}\n"
    "pre{background:var(--soft);padding:.8rem;overflow-x:auto;font-size:.78rem;line-height:1.35}\n"
    "figure{margin:1rem 0}summary{cursor:pointer}.none{opacity:.7}\n";

static nb_status add_text(nb_buf *to, const char *s)
{
    for (; *s; s++) {
        const char *named = *s == '<'   ? "&lt;"
                            : *s == '>' ? "&gt;"
                            : *s == '&' ? "&amp;"
                            : *s == '"' ? "&quot;"
                                        : NULL;
        if (named)
            NB_TRY(nb_buf_add_c(to, named));
        else if ((unsigned char)*s >= 0x20 || *s == '\n')
            NB_TRY(nb_buf_add_ch(to, *s));
    }
    return NB_OK;
}

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
    NB_TRY(nb_buf_add_c(to, "<tr><td>"));
    NB_TRY(add_text(to, r->name));
    NB_TRY(nb_buf_printf(to, "</td><td>%.2f</td><td>%.0f</td>", r->bits, r->bytes));
    NB_TRY(add_ci(to, r->kl, 1, 0, 5));
    NB_TRY(add_ci(to, r->ppl_ratio, 100, 1, 2));
    NB_TRY(add_ci(to, r->top1, 100, 0, 2));
    const json_t *attn = json_object_get(r->attn, "mean");
    if (json_is_number(attn))
        NB_TRY(nb_buf_printf(to, "<td>%.2f</td>", 100 * json_number_value(attn)));
    else
        NB_TRY(nb_buf_add_c(to, "<td>-</td>"));
    NB_TRY(add_ci(to, r->score, 100, 0, 1));
    return nb_buf_add_c(to, "</tr>\n");
}

static nb_status add_summary(nb_buf *to, const eval_page_row *row, size_t n_row)
{
    NB_TRY(nb_buf_add_c(
        to, "<div class=\"wide\"><table>\n<thead><tr><th>format</th><th>bits per value</th>"
            "<th>bytes per token</th><th>KL, nats</th><th>perplexity, % more</th>"
            "<th>same best token, %</th><th>attention error, %</th><th>retrieval, %</th></tr>"
            "</thead>\n<tbody>\n"));
    for (size_t i = 0; i < n_row; i++) NB_TRY(add_row(to, &row[i]));
    return nb_buf_add_c(to,
                        "</tbody></table></div>\n<p>Brackets: 95% intervals of a block "
                        "bootstrap, paired. All against the reference on the same input.</p>\n");
}

static nb_status add_section(nb_buf *to, const eval_section *s)
{
    NB_TRY(nb_buf_printf(to, "<section id=\"%s\"><h2>", s->id));
    NB_TRY(add_text(to, s->title));
    NB_TRY(nb_buf_add_c(to, "</h2>\n<p>"));
    NB_TRY(add_text(to, s->about));
    NB_TRY(nb_buf_add_c(to, "</p>\n"));
    if (s->code != CLI_OK)
        NB_TRY(nb_buf_add_c(to, "<p class=\"none\">Not measured: it failed, see the command's "
                                "error.</p>\n"));
    for (size_t i = 0; i < s->report.n_plot; i++) {
        NB_TRY(nb_buf_add_c(to, "<figure>"));
        NB_TRY(nb_buf_add_str(to, nb_buf_view(&s->report.plot[i].svg)));
        NB_TRY(nb_buf_add_c(to, "</figure>\n"));
    }
    if (s->report.text.n_bytes) {
        NB_TRY(nb_buf_add_c(to, "<details open=\"open\"><summary>figures</summary>\n<pre>"));
        NB_TRY(add_text(to, s->report.text.p));
        NB_TRY(nb_buf_add_c(to, "</pre></details>\n"));
    }
    return nb_buf_add_c(to, "</section>\n");
}

nb_status eval_page_write(const char *title, const char *about, const eval_page_row *row,
                          size_t n_row, const eval_section *section, size_t n_section, nb_buf *to)
{
    NB_TRY(nb_buf_add_c(to, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                            "<meta name=\"viewport\" content=\"width=device-width\">\n<title>"));
    NB_TRY(add_text(to, title));
    NB_TRY(nb_buf_add_c(to, "</title>\n<style>\n"));
    NB_TRY(nb_buf_add_c(to, STYLE));
    NB_TRY(nb_buf_add_c(to, "</style></head><body>\n<h1>"));
    NB_TRY(add_text(to, title));
    NB_TRY(nb_buf_add_c(to, "</h1>\n<p>"));
    NB_TRY(add_text(to, about));
    NB_TRY(nb_buf_add_c(to, "</p>\n"));
    NB_TRY(add_summary(to, row, n_row));
    for (size_t i = 0; i < n_section; i++) NB_TRY(add_section(to, &section[i]));
    return nb_buf_add_c(to, "</body></html>\n");
}
