/* html.h - what the pages of nibble have in common: one HTML file without script, its style, tables,
 * plots in a place of their own.
 *
 * A page follows the reader's light or dark scheme, can be read on a telephone, printed and heard,
 * and needs no network: its own policy forbids it to. */
#ifndef NB_REPORT_HTML_H
#define NB_REPORT_HTML_H
#include <stdbool.h>
#include <stddef.h>

#include "report/svg.h"

/* All that comes before the first paragraph, its heading included; nb_html_end closes it. */
nb_status nb_html_begin(nb_buf *to, const char *title);
nb_status nb_html_end(nb_buf *to);
/* Text is escaped; HTML is not, and never from outside. */
nb_status nb_html_text(nb_buf *to, const char *text);
nb_status nb_html_para(nb_buf *to, const char *text);
/* A section with its heading; the caller writes </section>.  id: letters. */
nb_status nb_html_section(nb_buf *to, const char *id, const char *title);
/* A plot, moved sideways where the screen is narrower than it can be read; its title then stands above it. */
nb_status nb_html_plot(nb_buf *to, const char *title, const nb_buf *svg);
/* A table up to its first row; column headers are text.  nb_html_table_end closes it. */
nb_status nb_html_table(nb_buf *to, const char *caption, const char *const *column, size_t n);
nb_status nb_html_table_end(nb_buf *to);
/* A row's first cell, which names it; then its other cells with nb_html_cell, then nb_html_row_end.  mark: it is
 * the one that the reader asked for. */
nb_status nb_html_row(nb_buf *to, const char *name, bool mark);
nb_status nb_html_cell(nb_buf *to, const char *text);
nb_status nb_html_row_end(nb_buf *to);

#endif
