/* svg.c - plots as SVG text, without a library.
 *
 * A plot is 720 wide; its height follows from what it shows.  Text is set in the reader's
 * sans-serif, its width guessed (0.56 em a character), so nothing depends on a font.  Series
 * differ by colour (Okabe and Ito's, which the colour-blind can tell apart), by marker and by
 * dashes.  Class names begin with nb- since a page may hold many plots inline.
 *
 * All coordinates are finite by construction: what is not finite, or not positive on a
 * logarithmic axis, is left out before anything is scaled. */
#include "report/svg.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "base/utf8.h"

enum {
    WIDTH = 720,
    PLOT_LEFT = 84,
    MAX_SERIES = 64,
    MAX_POINTS = 1 << 20,
    MAX_BARS = 512,
    MAX_CELLS = 1 << 16,
    MAX_LABEL = 160, /* characters that are drawn */
    N_COLOR = 8,
    N_MARKER = 6
};
static const double CHAR_W = 6.8, TITLE_Y = 24;

static const char *const color[N_COLOR] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                            "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f" };
static const char *const dash[] = { "", " stroke-dasharray=\"7 3\"", " stroke-dasharray=\"2 3\"",
                                    " stroke-dasharray=\"9 3 2 3\"" };

/* ---- text ---------------------------------------------------------------- */

/* The label as XML text, at most max_char characters; what XML cannot hold becomes U+FFFD. */
static nb_status add_escaped(nb_buf *out, const char *s, size_t n, size_t max_char)
{
    size_t n_char = 0;
    while (n) {
        uint32_t cp = 0;
        const int len = nb_utf8_decode(s, n, &cp);
        const size_t step = len > 0 ? (size_t)len : 1;
        if (n_char++ == max_char) return nb_buf_add_c(out, "&#8230;");
        if (len <= 0 || cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0xfffe || cp == 0xffff)
            NB_TRY(nb_buf_add_c(out, "\xef\xbf\xbd"));
        else if (cp == '<')
            NB_TRY(nb_buf_add_c(out, "&lt;"));
        else if (cp == '>')
            NB_TRY(nb_buf_add_c(out, "&gt;"));
        else if (cp == '&')
            NB_TRY(nb_buf_add_c(out, "&amp;"));
        else if (cp == '"')
            NB_TRY(nb_buf_add_c(out, "&quot;"));
        else
            NB_TRY(nb_buf_add(out, s, step));
        s += step;
        n -= step;
    }
    return NB_OK;
}

static nb_status add_label(nb_buf *out, const char *s, size_t max_char)
{
    return add_escaped(out, s, s ? strlen(s) : 0, max_char);
}

nb_status nb_svg_text(nb_buf *out, const char *s)
{
    for (;;) {
        const size_t n = strcspn(s, "\n");
        NB_TRY(add_escaped(out, s, n, SIZE_MAX));
        if (!s[n]) return NB_OK;
        NB_TRY(nb_buf_add_ch(out, '\n'));
        s += n + 1;
    }
}

/* At a tick, k being 1,000 or 1,024: 512, 1.5k, 5M. */
static void tick_text(double v, double k, char *out, size_t n)
{
    static const char unit[] = "\0kMGT";
    size_t i = 0;
    for (; fabs(v) >= k && i < 4; i++) v /= k;
    (void)snprintf(out, n, i ? "%.6g%c" : "%.6g", v, unit[i]);
}

/* At a bar: 0.25, 35,258. */
static void bar_text(double v, char *out, size_t n)
{
    char digits[40];
    const bool whole = fabs(v) >= 1e3 && fabs(v) < 1e15;
    const int k = snprintf(digits, sizeof digits, whole ? "%.0f" : "%.4g", v);
    size_t o = 0;
    for (int d = 0; d < k && o + 2 < n; d++) {
        if (whole && d && (k - d) % 3 == 0 && digits[d - 1] != '-') out[o++] = ',';
        out[o++] = digits[d];
    }
    out[o] = 0;
}

static double text_width(const char *s, size_t max_char)
{
    size_t n = 0;
    for (const char *p = s ? s : ""; *p && n < max_char; p++)
        n += ((unsigned char)*p & 0xc0) != 0x80;
    return (double)n * CHAR_W;
}

/* anchor: start, middle, end; extra: attributes or "". */
static nb_status add_text(nb_buf *out, double x, double y, const char *anchor, const char *extra,
                          const char *s, size_t max_char)
{
    NB_TRY(nb_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor,
                         extra));
    NB_TRY(add_label(out, s, max_char));
    return nb_buf_add_c(out, "</text>\n");
}

static nb_status begin(nb_buf *out, const nb_svg_axes *a, double height)
{
    NB_TRY(nb_buf_printf(out,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"nb-plot\" role=\"img\" "
                         "viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\">\n<title>",
                         (int)WIDTH, height, (int)WIDTH, height));
    NB_TRY(add_label(out, a->title ? a->title : "plot", MAX_LABEL));
    NB_TRY(nb_buf_add_c(
        out,
        "</title>\n<style>\n"
        ".nb-plot{font:12px system-ui,'DejaVu Sans',Arial,sans-serif;background:#fff;"
        "max-width:100%;height:auto}\n"
        ".nb-plot text{fill:#1a1a1a}.nb-plot .nb-t{font-size:14px;font-weight:600}\n"
        ".nb-plot .nb-g{stroke:#1a1a1a;stroke-opacity:.12}.nb-plot .nb-a{stroke:#1a1a1a;"
        "stroke-opacity:.6;fill:none}\n"
        ".nb-plot .nb-w{stroke:#1a1a1a;stroke-width:1.3;fill:none}.nb-plot text.nb-i{fill:#fff}"
        "\n@media (prefers-color-scheme:dark){.nb-plot{background:#16181c}"
        ".nb-plot text{fill:#e8e8e8}.nb-plot .nb-g,.nb-plot .nb-a,.nb-plot .nb-w{"
        "stroke:#e8e8e8}}\n</style>\n"));
    return a->title ? add_text(out, WIDTH / 2.0, TITLE_Y, "middle", " class=\"nb-t\"", a->title, 90)
                    : NB_OK;
}

/* ---- axes ---------------------------------------------------------------- */

typedef struct scale {
    double lo, hi;   /* of values; of their logarithms when log */
    double from, to; /* coordinates of lo and hi */
    int log;
} scale;

static bool usable(double v, int log)
{
    return isfinite(v) && fabs(v) < 1e300 && (!log || v > 0);
}

static double at(const scale *s, double v)
{
    double t = s->log ? (v > 0 ? log10(v) : s->lo) : v;
    if (t < s->lo) t = s->lo;
    if (t > s->hi) t = s->hi;
    return s->from + (t - s->lo) / (s->hi - s->lo) * (s->to - s->from);
}

static void include(scale *s, double v)
{
    if (!usable(v, s->log)) return;
    const double t = s->log ? log10(v) : v;
    if (t < s->lo) s->lo = t;
    if (t > s->hi) s->hi = t;
}

/* The step of 1, 2 or 5 times a power of ten that gives about n parts. */
static double nice_step(double span, double n)
{
    const double raw = span / n, p = pow(10, floor(log10(raw))), m = raw / p;
    return (m <= 1.0 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10) * p;
}

/* Rounds the range outwards; a range of one value gets a width. */
static void settle(scale *s)
{
    const double least = fmax(fabs(s->lo), fabs(s->hi)) * 1e-9;
    if (s->hi - s->lo <= least || s->hi == s->lo) {
        const double w = s->log ? 0.5 : fmax(fabs(s->hi) * 0.1, 1e-12);
        s->lo -= w;
        s->hi += w;
    }
    if (s->log) {
        const double pad = 0.02 * (s->hi - s->lo);
        s->lo -= pad;
        s->hi += pad;
        return;
    }
    const double step = nice_step(s->hi - s->lo, 6);
    s->lo = floor(s->lo / step + 1e-9) * step;
    s->hi = ceil(s->hi / step - 1e-9) * step;
}

static nb_status add_tick(nb_buf *out, const scale *s, int vertical, const scale *other, double v)
{
    char label[32];
    const double p = at(s, v);
    tick_text(v, s->log == 2 ? 1024 : 1000, label, sizeof label);
    if (vertical) {
        NB_TRY(nb_buf_printf(out,
                             "<line class=\"nb-g\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
                             "y2=\"%.1f\"/>\n",
                             other->from, other->to, p, p));
        return add_text(out, other->from - 6, p + 4, "end", "", label, 16);
    }
    NB_TRY(nb_buf_printf(out,
                         "<line class=\"nb-g\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                         p, p, other->from, other->to));
    return add_text(out, p, other->from + 16, "middle", "", label, 16);
}

/* At all multiples of a step: of a linear axis, and of a logarithmic one of less than a decade. */
static nb_status add_even_ticks(nb_buf *out, const scale *s, int vertical, const scale *other)
{
    const double lo = s->log ? pow(10, s->lo) : s->lo, hi = s->log ? pow(10, s->hi) : s->hi;
    const double step = nice_step(hi - lo, 6);
    for (int i = 0; i <= 14; i++) {
        double v = (ceil(lo / step - 1e-9) + i) * step;
        if (v > hi + 1e-9 * step) break;
        if (fabs(v) < 1e-9 * step) v = 0;
        NB_TRY(add_tick(out, s, vertical, other, v));
    }
    return NB_OK;
}

static nb_status add_log_ticks(nb_buf *out, const scale *s, int vertical, const scale *other)
{
    static const double in_decade[3] = { 1, 2, 5 };
    const int first = (int)floor(s->lo), last = (int)ceil(s->hi);
    const int every = (last - first) / 10 + 1, n = last - first <= 3 ? 3 : 1;
    for (int d = first; d <= last; d += every) {
        for (int k = 0; k < n; k++) {
            const double v = in_decade[k] * pow(10, d), t = log10(v);
            if (t >= s->lo - 1e-9 && t <= s->hi + 1e-9)
                NB_TRY(add_tick(out, s, vertical, other, v));
        }
    }
    return NB_OK;
}

static nb_status add_power_ticks(nb_buf *out, const scale *s, int vertical, const scale *other)
{
    const int first = (int)ceil(s->lo / log10(2) - 1e-9),
              last = (int)floor(s->hi / log10(2) + 1e-9);
    for (int d = first; d <= last; d += (last - first) / 12 + 1)
        NB_TRY(add_tick(out, s, vertical, other, exp2(d)));
    return NB_OK;
}

static nb_status add_ticks(nb_buf *out, const scale *s, int vertical, const scale *other)
{
    if (s->log == 2) return add_power_ticks(out, s, vertical, other);
    if (s->log && s->hi - s->lo > 0.9) return add_log_ticks(out, s, vertical, other);
    return add_even_ticks(out, s, vertical, other);
}

/* Grid, ticks, frame and the labels of both axes; x goes right, y goes up. */
static nb_status add_axes(nb_buf *out, const nb_svg_axes *a, const scale *x, const scale *y)
{
    NB_TRY(add_ticks(out, x, 0, y));
    NB_TRY(add_ticks(out, y, 1, x));
    NB_TRY(nb_buf_printf(out, "<path class=\"nb-a\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", x->from, y->to,
                         y->from, x->to));
    if (a->x_label)
        NB_TRY(add_text(out, (x->from + x->to) / 2, y->from + 36, "middle", "", a->x_label, 90));
    if (!a->y_label) return NB_OK;
    char turn[64];
    const double mid = (y->from + y->to) / 2;
    (void)snprintf(turn, sizeof turn, " transform=\"rotate(-90 16 %.1f)\"", mid);
    return add_text(out, 16, mid, "middle", turn, a->y_label, 60);
}

/* ---- lines --------------------------------------------------------------- */

static nb_status add_marker(nb_buf *out, size_t series, double x, double y)
{
    const char *c = color[series % N_COLOR];
    switch (series % N_MARKER) {
    case 0:
        return nb_buf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\" fill=\"%s\"/>", x, y,
                             c);
    case 1:
        return nb_buf_printf(out, "<path d=\"M%.1f %.1fh6v6h-6z\" fill=\"%s\"/>", x - 3, y - 3, c);
    case 2: return nb_buf_printf(out, "<path d=\"M%.1f %.1fl4 7h-8z\" fill=\"%s\"/>", x, y - 4, c);
    case 3:
        return nb_buf_printf(out, "<path d=\"M%.1f %.1fl4 4l-4 4l-4 -4z\" fill=\"%s\"/>", x, y - 4,
                             c);
    case 4:
        return nb_buf_printf(out,
                             "<path d=\"M%.1f %.1fl6 6m0 -6l-6 6\" stroke=\"%s\" "
                             "stroke-width=\"1.8\"/>",
                             x - 3, y - 3, c);
    default:
        return nb_buf_printf(out,
                             "<path d=\"M%.1f %.1fv8m-4 -4h8\" stroke=\"%s\" "
                             "stroke-width=\"1.8\"/>",
                             x, y - 4, c);
    }
}

typedef struct frame {
    scale x, y;
} frame;

static bool has_point(const frame *f, const nb_svg_series *s, size_t i)
{
    return usable(s->x[i], f->x.log) && usable(s->y[i], f->y.log);
}

/* On a logarithmic axis a lower end of 0 or less goes to the edge of the plot. */
static bool has_interval(const nb_svg_series *s, size_t i)
{
    return s->lo && s->hi && isfinite(s->lo[i]) && isfinite(s->hi[i]);
}

/* The end of the run of points from i on that have (band: an interval) no gap. */
static size_t run_end(const frame *f, const nb_svg_series *s, size_t i, bool band)
{
    while (i < s->n && has_point(f, s, i) && (!band || has_interval(s, i))) i++;
    return i;
}

static nb_status add_band(nb_buf *out, const frame *f, const nb_svg_series *s, size_t series)
{
    for (size_t i = 0; i < s->n; i++) {
        const size_t end = run_end(f, s, i, true);
        if (end == i) continue;
        if (end == i + 1) { /* alone: a bar */
            NB_TRY(nb_buf_printf(
                out, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\" stroke-width=\"1.5\"/>\n",
                at(&f->x, s->x[i]), at(&f->y, s->lo[i]), at(&f->y, s->hi[i]),
                color[series % N_COLOR]));
            continue;
        }
        NB_TRY(nb_buf_add_c(out, "<path d=\""));
        for (size_t k = i; k < end; k++)
            NB_TRY(nb_buf_printf(out, "%c%.1f %.1f", k == i ? 'M' : 'L', at(&f->x, s->x[k]),
                                 at(&f->y, s->hi[k])));
        for (size_t k = end; k-- > i;)
            NB_TRY(nb_buf_printf(out, "L%.1f %.1f", at(&f->x, s->x[k]), at(&f->y, s->lo[k])));
        NB_TRY(nb_buf_printf(out, "z\" fill=\"%s\" fill-opacity=\".16\"/>\n",
                             color[series % N_COLOR]));
        i = end - 1;
    }
    return NB_OK;
}

static nb_status add_line(nb_buf *out, const frame *f, const nb_svg_series *s, size_t series)
{
    for (size_t i = 0; i < s->n; i++) {
        const size_t end = run_end(f, s, i, false);
        if (end <= i + 1) continue;
        NB_TRY(nb_buf_add_c(out, "<path fill=\"none\" d=\""));
        for (size_t k = i; k < end; k++)
            NB_TRY(nb_buf_printf(out, "%c%.1f %.1f", k == i ? 'M' : 'L', at(&f->x, s->x[k]),
                                 at(&f->y, s->y[k])));
        NB_TRY(nb_buf_printf(out, "\" stroke=\"%s\" stroke-width=\"1.8\"%s/>\n",
                             color[series % N_COLOR], dash[series / N_COLOR % NB_COUNT(dash)]));
        i = end - 1;
    }
    /* Many points: the line says enough, with a marker here and there. */
    const size_t every = s->n / 24 + 1;
    for (size_t i = every / 2; i < s->n; i += every)
        if (has_point(f, s, i)) {
            NB_TRY(add_marker(out, series, at(&f->x, s->x[i]), at(&f->y, s->y[i])));
            NB_TRY(nb_buf_add_ch(out, '\n'));
        }
    return NB_OK;
}

/* Entries from left to right below the plot, wrapped; with out NULL only their height. */
static nb_status add_legend(nb_buf *out, const nb_svg_series *s, size_t n, double top,
                            double *height)
{
    const double left = PLOT_LEFT, line = 20;
    double x = left, y = top + 14;
    for (size_t i = 0; i < n; i++) {
        const double w = 34 + text_width(s[i].name, MAX_LABEL) + 18;
        if (x > left && x + w > WIDTH - 10) {
            x = left;
            y += line;
        }
        if (out) {
            NB_TRY(nb_buf_printf(out,
                                 "<path d=\"M%.1f %.1fh26\" stroke=\"%s\" stroke-width=\"1.8\"%s/>",
                                 x, y - 4, color[i % N_COLOR], dash[i / N_COLOR % NB_COUNT(dash)]));
            NB_TRY(add_marker(out, i, x + 13, y - 4));
            NB_TRY(add_text(out, x + 32, y, "start", "", s[i].name, MAX_LABEL));
        }
        x += w;
    }
    *height = y - top + 12;
    return NB_OK;
}

static nb_status fit(frame *f, const nb_svg_series *s, size_t n_series)
{
    f->x.lo = f->y.lo = DBL_MAX;
    f->x.hi = f->y.hi = -DBL_MAX;
    size_t n_point = 0;
    for (size_t k = 0; k < n_series; k++) {
        if (s[k].n > MAX_POINTS) return NB_ERR_LIMIT;
        for (size_t i = 0; i < s[k].n; i++) {
            if (!has_point(f, &s[k], i)) continue;
            n_point++;
            include(&f->x, s[k].x[i]);
            include(&f->y, s[k].y[i]);
            if (!has_interval(&s[k], i)) continue;
            include(&f->y, s[k].lo[i]);
            include(&f->y, s[k].hi[i]);
        }
    }
    if (n_point == 0) return NB_ERR_ARG;
    const double lo = f->x.lo, hi = f->x.hi;
    settle(&f->x);
    settle(&f->y);
    if (!f->x.log && hi > lo) { /* no empty parts at the sides */
        f->x.lo = lo;
        f->x.hi = hi;
    }
    return NB_OK;
}

nb_status nb_svg_lines(nb_buf *out, const nb_svg_axes *a, const nb_svg_series *s, size_t n_series)
{
    if (n_series == 0) return NB_ERR_ARG;
    if (n_series > MAX_SERIES) return NB_ERR_LIMIT;
    frame f = { .x = { .from = PLOT_LEFT, .to = WIDTH - 16, .log = a->log_x },
                .y = { .from = 340, .to = 40, .log = a->log_y } };
    NB_TRY(fit(&f, s, n_series));
    double legend;
    const double top = f.y.from + 44;
    NB_TRY(add_legend(NULL, s, n_series, top, &legend));
    NB_TRY(begin(out, a, top + legend));
    NB_TRY(add_axes(out, a, &f.x, &f.y));
    for (size_t k = 0; k < n_series; k++) NB_TRY(add_band(out, &f, &s[k], k));
    for (size_t k = 0; k < n_series; k++) NB_TRY(add_line(out, &f, &s[k], k));
    NB_TRY(add_legend(out, s, n_series, top, &legend));
    return nb_buf_add_c(out, "</svg>\n");
}

/* ---- bars ---------------------------------------------------------------- */

static const double BAR_STEP = 26, BAR_TOP = 44, PART_TOP = 62;

static nb_status add_bar(nb_buf *out, const scale *v, double y, double value, double lo, double hi)
{
    const double zero = v->log ? v->from : at(v, 0), end = at(v, value);
    char label[32];
    bar_text(value, label, sizeof label);
    NB_TRY(nb_buf_printf(out,
                         "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"16\" fill=\"%s\" "
                         "fill-opacity=\".75\"/>",
                         fmin(zero, end), y - 8, fabs(end - zero), color[0]));
    double right = fmax(zero, end);
    if (isfinite(lo) && isfinite(hi)) {
        const double l = at(v, lo), h = at(v, hi);
        NB_TRY(nb_buf_printf(out,
                             "<path class=\"nb-w\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8\"/>",
                             l, y, h, l, y - 4, h, y - 4));
        right = fmax(right, h);
    }
    return add_text(out, right + 6, y + 4, "start", "", label, 16);
}

nb_status nb_svg_bars(nb_buf *out, const nb_svg_axes *a, const char *const *label, const double *y,
                      const double *lo, const double *hi, size_t n)
{
    if (n > MAX_BARS) return NB_ERR_LIMIT;
    scale v = { .lo = DBL_MAX, .hi = -DBL_MAX, .to = WIDTH - 76, .log = a->log_y };
    size_t n_good = 0;
    double widest = 0;
    for (size_t i = 0; i < n; i++) {
        widest = fmax(widest, text_width(label[i], 44));
        if (!usable(y[i], v.log)) continue;
        n_good++;
        include(&v, y[i]);
        if (lo && hi && isfinite(lo[i]) && isfinite(hi[i])) {
            include(&v, lo[i]);
            include(&v, hi[i]);
        }
    }
    if (n_good == 0) return NB_ERR_ARG;
    if (!v.log) include(&v, 0);
    settle(&v);
    if (v.log) v.lo = floor(v.lo - 0.15); /* the smallest bar can be seen, too */
    v.from = 16 + widest + 8;
    const double bottom = BAR_TOP + BAR_STEP * (double)n;
    const scale place = { .from = bottom, .to = BAR_TOP - 6 };
    NB_TRY(begin(out, a, bottom + 44));
    NB_TRY(add_ticks(out, &v, 0, &place));
    for (size_t i = 0; i < n; i++) {
        const double mid = BAR_TOP + BAR_STEP * ((double)i + 0.5);
        NB_TRY(add_text(out, v.from - 6, mid + 4, "end", "", label[i], 44));
        if (usable(y[i], v.log))
            NB_TRY(add_bar(out, &v, mid, y[i], lo && hi ? lo[i] : (double)NAN,
                           lo && hi ? hi[i] : (double)NAN));
        else
            NB_TRY(add_text(out, v.from + 6, mid + 4, "start", "", "no value", 16));
        NB_TRY(nb_buf_add_ch(out, '\n'));
    }
    if (a->y_label)
        NB_TRY(add_text(out, (v.from + v.to) / 2, bottom + 36, "middle", "", a->y_label, 90));
    return nb_buf_add_c(out, "</svg>\n");
}

/* ---- parts of a whole ------------------------------------------------------ */

static nb_status add_part(nb_buf *out, size_t i, double x, double y, double w, double h)
{
    return nb_buf_printf(out,
                         "<rect class=\"nb-g\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                         "height=\"%.0f\" fill=\"%s\" fill-opacity=\".75\"/>\n",
                         x, y, w, h, color[i % N_COLOR]);
}

nb_status nb_svg_parts(nb_buf *out, const nb_svg_axes *a, const char *const *label,
                       const double *part, double whole, size_t n)
{
    if (n > MAX_BARS) return NB_ERR_LIMIT;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        if (usable(part[i], 1)) sum += part[i];
    if (!(sum > 0) || !usable(whole, 1)) return NB_ERR_ARG;
    const double left = 16, unit = (WIDTH - 2 * left) / fmax(sum, whole), row = 22;
    const double top = PART_TOP + 44 + 30, end = left + whole * unit;
    NB_TRY(begin(out, a, top + row * (double)n));
    double x = left;
    for (size_t i = 0; i < n; i++) {
        const double w = usable(part[i], 1) ? part[i] * unit : 0, y = top + row * (double)i;
        NB_TRY(add_part(out, i, x, PART_TOP, w, 44));
        NB_TRY(add_part(out, i, left, y - 11, 14, 14));
        NB_TRY(add_text(out, left + 22, y, "start", "", label[i], 90));
        x += w;
    }
    NB_TRY(nb_buf_printf(out, "<path class=\"nb-w\" d=\"M%.1f %.1fv56\"/>\n", end, PART_TOP - 6));
    if (a->x_label)
        NB_TRY(add_text(out, end, PART_TOP - 10, end > WIDTH / 2.0 ? "end" : "start", "",
                        a->x_label, 60));
    return nb_buf_add_c(out, "</svg>\n");
}

/* ---- heat maps ----------------------------------------------------------- */

static nb_status add_cell(nb_buf *out, double x, double y, double w, double h, double v)
{
    if (isnan(v))
        return nb_buf_printf(out,
                             "<rect class=\"nb-g\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                             "height=\"%.1f\" fill=\"none\"/>\n",
                             x + 1, y + 1, w - 2, h - 2);
    v = v < 0 ? 0 : v > 1 ? 1 : v;
    NB_TRY(nb_buf_printf(out,
                         "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" "
                         "fill-opacity=\"%.3f\"/>",
                         x + 1, y + 1, w - 2, h - 2, color[0], 0.06 + 0.94 * v));
    char label[16];
    (void)snprintf(label, sizeof label, "%.0f", 100 * v);
    return add_text(out, x + w / 2, y + h / 2 + 4, "middle", v > 0.5 ? " class=\"nb-i\"" : "",
                    label, 8);
}

nb_status nb_svg_heat(nb_buf *out, const nb_svg_axes *a, const char *const *row_label, size_t n_row,
                      const char *const *col_label, size_t n_col, const double *cell)
{
    if (n_row == 0 || n_col == 0) return NB_ERR_ARG;
    if (n_row > MAX_CELLS || n_col > MAX_CELLS / n_row) return NB_ERR_LIMIT;
    double widest = 0;
    for (size_t r = 0; r < n_row; r++) widest = fmax(widest, text_width(row_label[r], 44));
    const double left = (a->y_label ? 34 : 14) + widest, top = 40, h = 30;
    const double w = fmin((WIDTH - 14 - left) / (double)n_col, 84);
    const double bottom = top + h * (double)n_row;
    NB_TRY(begin(out, a, bottom + (a->x_label ? 48 : 26)));
    for (size_t r = 0; r < n_row; r++) {
        const double y = top + h * (double)r;
        NB_TRY(add_text(out, left - 6, y + h / 2 + 4, "end", "", row_label[r], 44));
        for (size_t c = 0; c < n_col; c++)
            NB_TRY(add_cell(out, left + w * (double)c, y, w, h, cell[r * n_col + c]));
    }
    for (size_t c = 0; c < n_col; c++)
        NB_TRY(add_text(out, left + w * ((double)c + 0.5), bottom + 16, "middle", "", col_label[c],
                        24));
    if (a->x_label)
        NB_TRY(
            add_text(out, left + w * (double)n_col / 2, bottom + 38, "middle", "", a->x_label, 90));
    if (a->y_label) {
        char turn[64];
        (void)snprintf(turn, sizeof turn, " transform=\"rotate(-90 16 %.1f)\"", (top + bottom) / 2);
        NB_TRY(add_text(out, 16, (top + bottom) / 2, "middle", turn, a->y_label, 60));
    }
    return nb_buf_add_c(out, "</svg>\n");
}
