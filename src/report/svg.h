/* svg.h - small clean plots as SVG text: lines with bands, bars with intervals, heat maps.
 *
 * Readable without colour alone (markers, labels), fonts by name only, no script; follows light
 * and dark by `prefers-color-scheme`.  Labels are escaped. */
#ifndef NB_REPORT_SVG_H
#define NB_REPORT_SVG_H
#include "base/str.h"

typedef struct nb_svg_series {
    const char *name;
    const double *x, *y;   /* [n]; NaN in y: a gap */
    const double *lo, *hi; /* [n] or NULL: an interval around y */
    size_t n;
} nb_svg_series;

typedef struct nb_svg_axes {
    const char *title, *x_label, *y_label;
    int log_x,
        log_y; /* 1: logarithmic, 2: ticks at powers of two, 1,024 as 1k; values <= 0 are left
                         out */
} nb_svg_axes;

nb_status nb_svg_lines(nb_buf *out, const nb_svg_axes *a, const nb_svg_series *s, size_t n_series);
/* One bar per label; lo, hi may be NULL. */
nb_status nb_svg_bars(nb_buf *out, const nb_svg_axes *a, const char *const *label, const double *y,
                      const double *lo, const double *hi, size_t n);
/* One bar of n parts, each a row of the legend; part <= 0: of no width.  A line is at `whole`, named by
 * x_label: what there is; parts may be more, or less. */
nb_status nb_svg_parts(nb_buf *out, const nb_svg_axes *a, const char *const *label,
                       const double *part, double whole, size_t n);
/* cell[row * n_col + col] in [0, 1] (NaN: empty), printed as per cent in its square. */
nb_status nb_svg_heat(nb_buf *out, const nb_svg_axes *a, const char *const *row_label, size_t n_row,
                      const char *const *col_label, size_t n_col, const double *cell);
/* s as text of XML or HTML, in labels done already: escaped, lines kept, U+FFFD for what neither may
 * hold. */
nb_status nb_svg_text(nb_buf *out, const char *s);

#endif
