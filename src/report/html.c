/* html.c - see html.h. */
#include "report/html.h"

#include <string.h>

static const char STYLE[] =
    ":root{color-scheme:light dark;--fg:#1a1a1a;--bg:#fff;--dim:#595959;--line:#d8d8d8;"
    "--soft:#f4f5f7;--mark:#0072b2;--shade:#0003}\n"
    "@media (prefers-color-scheme:dark){:root{--fg:#e8e8e8;--bg:#16181c;--dim:#a8abb2;"
    "--line:#3a3d44;--soft:#1f2228;--mark:#56b4e9;--shade:#fff4}}\n"
    "*{box-sizing:border-box}\n"
    "body{font:16px/1.5 system-ui,'DejaVu Sans',Arial,sans-serif;color:var(--fg);"
    "background:var(--bg);max-width:80rem;margin:2rem auto;padding:0 1rem;"
    "overflow-wrap:break-word}\n"
    "p,li,dd{max-width:48rem}h1{font-size:1.6rem;line-height:1.25;margin-bottom:.5rem}\n"
    "h2{font-size:1.25rem;margin:2.5rem 0 .8rem;padding-bottom:.2rem;"
    "border-bottom:1px solid var(--line)}h3{font-size:1rem;margin:1.5rem 0 .3rem}\n"
    ".wide{overflow-x:auto;margin:1rem 0}\n"
    /* a shade at the side where there is more, covered by what moves with the table at its end */
    "@media screen{.wide{background:linear-gradient(90deg,var(--bg) 40%,transparent) 0 0/2.5rem 100% "
    "no-repeat local,linear-gradient(270deg,var(--bg) 40%,transparent) 100% 0/2.5rem 100% no-repeat "
    "local,linear-gradient(90deg,var(--shade),transparent) 0 0/.7rem 100% no-repeat scroll,"
    "linear-gradient(270deg,var(--shade),transparent) 100% 0/.7rem 100% no-repeat scroll}"
    "figure .wide{background:none}}\n"
    ".wide:focus-visible{outline:2px solid var(--mark);outline-offset:2px}\n"
    "table{border-collapse:collapse;font-size:.875rem}\n"
    "caption{text-align:left;font-weight:600;padding:.2rem .7rem .4rem 0}\n"
    "th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:right;"
    "white-space:nowrap;font-variant-numeric:tabular-nums;vertical-align:top}\n"
    "thead th{white-space:normal;vertical-align:bottom;min-width:5.2rem}"
    "th:first-child,td:first-child{text-align:left;padding-left:0}\n"
    "tbody th{font-weight:400}tr.mark th,tr.mark td{background:var(--soft)}"
    "tr.mark th{font-weight:600}\n"
    "td span{display:block;color:var(--dim);font-size:.85em}\n"
    "pre{background:var(--soft);padding:.8rem;overflow-x:auto;font-size:.78rem;"
    "line-height:1.35}\n"
    "figure{margin:0;min-width:0}.plots{display:grid;gap:0 1.5rem;"
    "grid-template-columns:repeat(auto-fit,minmax(min(36rem,100%),1fr))}\n"
    ".nb-plot{min-width:544px}summary{cursor:pointer;margin:.5rem 0}.none,.dim{color:var(--dim)}\n"
    ".cards{display:grid;gap:.8rem;margin:1rem 0;padding:0;"
    "grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr))}\n"
    ".cards div{background:var(--soft);border-radius:.5rem;padding:.7rem .9rem}"
    ".cards dt{font-size:.85rem;color:var(--dim)}.cards dd{margin:0}\n"
    ".cards dd.big{font-size:1.5rem;font-weight:600;line-height:1.3}\n"
    ".cards dd.small{font-size:.85rem}\n"
    ".note{border-left:4px solid #d55e00;background:var(--soft);padding:.6rem .9rem}\n"
    /* plots stay as wide as their words can be read: the title then stands above them, whole */
    "figcaption{display:none}\n"
    "@media screen and (max-width:37rem){figcaption{display:block;font-size:.9rem;font-weight:600;"
    "margin-top:1.5rem}figcaption::after{content:'move the plot sideways \\2192';display:block;"
    "font-weight:400;font-size:.8rem;color:var(--dim)}figure .wide{margin-top:0}"
    ".nb-plot .nb-t{visibility:hidden}thead th{min-width:7.5rem}}\n"
    "@media print{html{font-size:12px}body{max-width:none;margin:0;padding:0;font-size:12px}"
    ".plots{grid-template-columns:1fr}"
    ".wide,pre{overflow:visible}pre{white-space:pre-wrap}.nb-plot{min-width:0;width:544px}figure,tr,.cards div{break-inside:avoid}"
    "h2,h3,caption{break-after:avoid}table{font-size:9px}th,td{padding:.2rem .4rem}"
    "thead th{min-width:0}.cards div{border:1px solid var(--line)}}\n";

nb_status nb_html_text(nb_buf *to, const char *text)
{
    return nb_svg_text(to, text ? text : "");
}

nb_status nb_html_para(nb_buf *to, const char *text)
{
    NB_TRY(nb_buf_add_c(to, "<p>"));
    NB_TRY(nb_html_text(to, text));
    return nb_buf_add_c(to, "</p>\n");
}

nb_status nb_html_begin(nb_buf *to, const char *title)
{
    NB_TRY(nb_buf_add_c(to, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
                            "'none'; style-src 'unsafe-inline'\">\n"
                            "<meta name=\"viewport\" content=\"width=device-width\">\n<title>"));
    NB_TRY(nb_html_text(to, title));
    NB_TRY(nb_buf_add_c(to, "</title>\n<style>\n"));
    NB_TRY(nb_buf_add_c(to, STYLE));
    NB_TRY(nb_buf_add_c(to, "</style></head><body>\n<main>\n<h1>"));
    NB_TRY(nb_html_text(to, title));
    return nb_buf_add_c(to, "</h1>\n");
}

nb_status nb_html_end(nb_buf *to)
{
    return nb_buf_add_c(to, "</main></body></html>\n");
}

nb_status nb_html_section(nb_buf *to, const char *id, const char *title)
{
    NB_TRY(nb_buf_printf(to, "<section id=\"%s\"><h2>", id));
    NB_TRY(nb_html_text(to, title));
    return nb_buf_add_c(to, "</h2>\n");
}

/* What may be wider than the screen can be reached and moved with the keyboard. */
static nb_status begin_wide(nb_buf *to, const char *name)
{
    NB_TRY(nb_buf_add_c(to, "<div class=\"wide\" role=\"group\" tabindex=\"0\" aria-label=\""));
    NB_TRY(nb_html_text(to, name));
    return nb_buf_add_c(to, "\">");
}

nb_status nb_html_plot(nb_buf *to, const char *title, const nb_buf *svg)
{
    const char *own = svg->p ? strstr(svg->p, "<title>") : NULL; /* escaped, as it is drawn */
    const char *end = own ? strstr(own, "</title>") : NULL;
    NB_TRY(nb_buf_add_c(to, "<figure><figcaption>"));
    if (end)
        NB_TRY(nb_buf_add_str(to, (nb_str){ own + 7, (size_t)(end - own) - 7 }));
    else
        NB_TRY(nb_html_text(to, title));
    NB_TRY(nb_buf_add_c(to, "</figcaption>"));
    NB_TRY(begin_wide(to, title));
    NB_TRY(nb_buf_add_str(to, nb_buf_view(svg)));
    return nb_buf_add_c(to, "</div></figure>\n");
}

nb_status nb_html_table(nb_buf *to, const char *caption, const char *const *column, size_t n)
{
    NB_TRY(begin_wide(to, caption));
    NB_TRY(nb_buf_add_c(to, "<table>\n<caption>"));
    NB_TRY(nb_html_text(to, caption));
    NB_TRY(nb_buf_add_c(to, "</caption>\n<thead><tr>"));
    for (size_t i = 0; i < n; i++) {
        NB_TRY(nb_buf_add_c(to, "<th scope=\"col\">"));
        NB_TRY(nb_html_text(to, column[i]));
        NB_TRY(nb_buf_add_c(to, "</th>"));
    }
    return nb_buf_add_c(to, "</tr></thead>\n<tbody>\n");
}

nb_status nb_html_table_end(nb_buf *to)
{
    return nb_buf_add_c(to, "</tbody></table></div>\n");
}

nb_status nb_html_row(nb_buf *to, const char *name, bool mark)
{
    NB_TRY(nb_buf_printf(to, "<tr%s><th scope=\"row\">", mark ? " class=\"mark\"" : ""));
    NB_TRY(nb_html_text(to, name));
    return nb_buf_add_c(to, "</th>");
}

nb_status nb_html_cell(nb_buf *to, const char *text)
{
    NB_TRY(nb_buf_add_c(to, "<td>"));
    NB_TRY(nb_html_text(to, text));
    return nb_buf_add_c(to, "</td>");
}

nb_status nb_html_row_end(nb_buf *to)
{
    return nb_buf_add_c(to, "</tr>\n");
}
