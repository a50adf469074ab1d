/* test_eval_svg.c - plots: well-formed XML whatever the labels and numbers, gaps, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "report/svg.h"

/* ---- a checker of well-formedness ------------------------------------------ */

enum { DEPTH = 16 };

static const char *entity_end(const char *p)
{
    static const char *const known[] = { "&amp;", "&lt;", "&gt;", "&quot;", "&#8230;" };
    for (size_t i = 0; i < NB_COUNT(known); i++)
        if (strncmp(p, known[i], strlen(known[i])) == 0) return p + strlen(known[i]);
    fail_msg("a bare & in: %.40s", p);
    return p + 1;
}

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == ':';
}

/* After the name of a tag: attributes, each once and quoted; returns what follows '>'. */
static const char *attributes(const char *p, bool *empty)
{
    char seen[512] = " ";
    for (;;) {
        const char *blank = p;
        while (*p == ' ' || *p == '\n') p++;
        *empty = *p == '/';
        if (*p == '/') p++;
        if (*p == '>') return p + 1;
        assert_true(p > blank && !*empty);
        const char *name = p;
        while (name_char(*p)) p++;
        assert_true(p > name && p[0] == '=' && p[1] == '"');
        char key[64];
        assert_true((size_t)(p - name) < sizeof key - 3);
        (void)snprintf(key, sizeof key, " %.*s ", (int)(p - name), name);
        if (strstr(seen, key)) fail_msg("an attribute twice:%s", key);
        (void)snprintf(seen + strlen(seen) - 1, sizeof seen - strlen(seen) + 1, "%s", key);
        for (p += 2; *p != '"';) {
            assert_true(*p && *p != '<');
            p = *p == '&' ? entity_end(p) : p + 1;
        }
        p++;
    }
}

/* Fails unless b is one element; returns how many elements are called `count`. */
static size_t check(const nb_buf *b, const char *count)
{
    char open[DEPTH][16];
    size_t depth = 0, n = 0, n_root = 0;
    assert_non_null(b->p);
    assert_int_equal(strlen(b->p), b->n_bytes);
    assert_true(nb_utf8_valid(nb_buf_view(b)));
    for (const char *p = b->p; *p;) {
        if (*p == '&') {
            p = entity_end(p);
            continue;
        }
        assert_true((unsigned char)*p >= 0x20 || *p == '\n');
        assert_true(depth > 0 || *p == '<' || *p == '\n');
        if (*p++ != '<') continue;
        const bool close = *p == '/';
        p += close;
        const char *name = p;
        while (name_char(*p)) p++;
        char tag[16];
        assert_true(p > name && (size_t)(p - name) < sizeof tag);
        (void)snprintf(tag, sizeof tag, "%.*s", (int)(p - name), name);
        if (close) {
            assert_true(depth > 0 && *p == '>');
            assert_string_equal(open[--depth], tag);
            p++;
            continue;
        }
        n += strcmp(tag, count) == 0;
        n_root += depth == 0;
        bool empty;
        p = attributes(p, &empty);
        assert_true(empty || depth < DEPTH);
        if (!empty) memcpy(open[depth++], tag, sizeof tag);
    }
    assert_int_equal(depth, 0);
    assert_int_equal(n_root, 1);
    /* no coordinate that is not a number (words of labels in these tests hold neither) */
    assert_null(strstr(b->p, "nan"));
    assert_null(strstr(b->p, "inf"));
    return n;
}

static bool has(const nb_buf *b, const char *what)
{
    return strstr(b->p, what) != NULL;
}

/* ---- lines ----------------------------------------------------------------- */

static const double X[5] = { 0, 1, 2, 3, 4 }, Y[5] = { 1, 3, 2, 5, 4 }, LO[5] = { 0.5, 2, 1, 4, 3 },
                    HI[5] = { 2, 4, 3, 6, 5 };

static void test_lines(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    const nb_svg_axes a = { .title = "A title", .x_label = "position", .y_label = "nats" };
    const nb_svg_series s[2] = { { "one", X, Y, LO, HI, 5 }, { "two", X, HI, NULL, NULL, 5 } };
    assert_int_equal(nb_svg_lines(&b, &a, s, 2), NB_OK);
    assert_int_equal(check(&b, "circle"), 5 + 1); /* the first marker, and in the legend */
    assert_true(has(&b, ">A title<") && has(&b, ">position<") && has(&b, ">nats<"));
    assert_true(has(&b, ">one<") && has(&b, ">two<"));
    assert_true(has(&b, "prefers-color-scheme"));
    assert_int_equal(check(&b, "script"), 0);
    nb_buf again = { 0 };
    assert_int_equal(nb_svg_lines(&again, &a, s, 2), NB_OK);
    assert_string_equal(b.p, again.p);
    nb_buf_deinit(&again);
    nb_buf_deinit(&b);
}

/* The y of points: larger values are higher up, and a logarithmic axis has equal decades. */
static void test_places(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    const double y[3] = { 1, 10, 100 }, x[3] = { 0, 1, 2 };
    const nb_svg_series s = { "s", x, y, NULL, NULL, 3 };
    const nb_svg_axes a = { .log_y = 1 };
    assert_int_equal(nb_svg_lines(&b, &a, &s, 1), NB_OK);
    double cy[3], cx[3];
    const char *p = b.p;
    for (size_t i = 0; i < 3; i++) {
        p = strstr(p, "<circle cx=");
        assert_non_null(p);
        assert_int_equal(sscanf(p, "<circle cx=\"%lf\" cy=\"%lf\"", &cx[i], &cy[i]), 2);
        p++;
    }
    assert_true(cy[0] > cy[1] && cx[0] < cx[1]);
    assert_true(fabs((cy[0] - cy[1]) - (cy[1] - cy[2])) < 0.25);
    assert_true(fabs((cx[1] - cx[0]) - (cx[2] - cx[1])) < 0.25);
    nb_buf_deinit(&b);
}

/* Gaps cut a line; what cannot be on a logarithmic axis is one. */
static void test_gaps(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    const double y[6] = { 1, 2, (double)NAN, 2, -1, (double)INFINITY };
    const double x[6] = { 1, 2, 3, 4, 5, 6 };
    const nb_svg_series s = { "s", x, y, NULL, NULL, 6 };
    nb_svg_axes a = { .title = "t" };
    assert_int_equal(nb_svg_lines(&b, &a, &s, 1), NB_OK);
    assert_int_equal(check(&b, "circle"), 4 + 1);
    b.n_bytes = 0;
    a.log_y = 1;
    assert_int_equal(nb_svg_lines(&b, &a, &s, 1), NB_OK);
    assert_int_equal(check(&b, "circle"), 3 + 1);
    /* an interval that reaches below 0 on a logarithmic axis ends at the edge */
    b.n_bytes = 0;
    const double lo[6] = { -1, 1, 1, 1, 1, 1 }, hi[6] = { 3, 3, 3, 3, 3, 3 };
    const nb_svg_series t = { "t", x, y, lo, hi, 6 };
    assert_int_equal(nb_svg_lines(&b, &a, &t, 1), NB_OK);
    (void)check(&b, "path");
    nb_buf_deinit(&b);
}

static void test_escaping(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    const nb_svg_axes a = { .title = "<script>alert(\"&\")</script>",
                            .x_label = "a\x01\n\xff\xc3",
                            .y_label = "]]>&amp;" };
    const nb_svg_series s = { "</svg><x y='1'>", X, Y, NULL, NULL, 5 };
    assert_int_equal(nb_svg_lines(&b, &a, &s, 1), NB_OK);
    assert_int_equal(check(&b, "script"), 0);
    assert_int_equal(check(&b, "svg"), 1);
    assert_true(has(&b, "&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;"));
    assert_true(has(&b, "]]&gt;&amp;amp;"));
    assert_true(has(&b, ">a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd<"));
    b.n_bytes = 0;
    char wide[3001];
    memset(wide, 'w', 3000);
    wide[3000] = 0;
    const nb_svg_series w = { wide, X, Y, NULL, NULL, 5 };
    assert_int_equal(nb_svg_lines(&b, &a, &w, 1), NB_OK);
    (void)check(&b, "svg");
    assert_true(has(&b, "&#8230;") && b.n_bytes < 8000);
    nb_buf_deinit(&b);
}

/* Hostile numbers: tiny, huge, equal, denormal; the plot stays well-formed. */
static void test_numbers(void **state)
{
    (void)state;
    static const double odd[] = { 0,    -0.0, 1e-320, 1e300, -1e299, 1,     1 + 1e-15, 1e-12,
                                  1e12, 5,    5,      -7,    1e308,  1e-30, 123456789 };
    enum { N = sizeof odd / sizeof *odd };
    for (uint64_t seed = 0; seed < 300; seed++) {
        double x[4], y[4], lo[4], hi[4];
        for (uint64_t i = 0; i < 4; i++) {
            x[i] = odd[nb_rng_u64(seed, 4 * i) % N];
            y[i] = odd[nb_rng_u64(seed, 4 * i + 1) % N];
            lo[i] = odd[nb_rng_u64(seed, 4 * i + 2) % N];
            hi[i] = odd[nb_rng_u64(seed, 4 * i + 3) % N];
        }
        const nb_svg_series s = { "s", x, y, lo, hi, seed % 4 + 1 };
        const nb_svg_axes a = { .log_x = seed % 2 == 1, .log_y = seed % 3 == 1 };
        nb_buf b = { 0 };
        const nb_status st = nb_svg_lines(&b, &a, &s, 1);
        assert_true(st == NB_OK || st == NB_ERR_ARG);
        if (st == NB_OK) (void)check(&b, "path");
        nb_buf_deinit(&b);
        const char *const label[4] = { "a", "b", "c", "d" };
        const nb_status sb = nb_svg_bars(&b, &a, label, y, lo, hi, seed % 4 + 1);
        assert_true(sb == NB_OK || sb == NB_ERR_ARG);
        if (sb == NB_OK) (void)check(&b, "rect");
        nb_buf_deinit(&b);
    }
}

/* ---- bars, heat maps -------------------------------------------------------- */

static void test_bars(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    const nb_svg_axes a = { .title = "t", .y_label = "KL" };
    const char *const label[3] = { "nvfp4:mode=search", "a<b", "none" };
    const double y[3] = { 2, 1, (double)NAN }, lo[3] = { 1.5, 0.5, 0 }, hi[3] = { 2.5, 1.5, 1 };
    assert_int_equal(nb_svg_bars(&b, &a, label, y, lo, hi, 3), NB_OK);
    assert_int_equal(check(&b, "rect"), 2);
    assert_true(has(&b, "a&lt;b") && has(&b, ">no value<") && has(&b, ">KL<"));
    b.n_bytes = 0;
    assert_int_equal(nb_svg_bars(&b, &a, label, y, NULL, NULL, 3), NB_OK);
    assert_int_equal(check(&b, "rect"), 2);
    const double negative[3] = { -2, 1, -0.5 };
    b.n_bytes = 0;
    assert_int_equal(nb_svg_bars(&b, &a, label, negative, NULL, NULL, 3), NB_OK);
    assert_int_equal(check(&b, "rect"), 3);
    nb_buf_deinit(&b);
}

/* Figures as they are read: grouped at a bar, short at a tick, powers of two where asked for. */
static void test_figures(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    const double x[3] = { 4096, 32768, 131072 }, y[3] = { 2e4, 3e5, 4e6 };
    const nb_svg_series s = { "s", x, y, NULL, NULL, 3 };
    const nb_svg_axes axes = { .log_x = 2, .log_y = 1 };
    assert_int_equal(nb_svg_lines(&b, &axes, &s, 1), NB_OK);
    (void)check(&b, "svg");
    assert_true(has(&b, ">4k<") && has(&b, ">64k<") && has(&b, ">128k<") && !has(&b, ">256k<"));
    assert_true(has(&b, ">20k<") && has(&b, ">100k<") && has(&b, ">2M<") && !has(&b, "e+"));
    b.n_bytes = 0;
    const char *const label[3] = { "a", "b", "c" };
    const double v[3] = { 35258, -1234567, 999.9 };
    assert_int_equal(nb_svg_bars(&b, &(nb_svg_axes){ 0 }, label, v, NULL, NULL, 3), NB_OK);
    assert_true(has(&b, ">35,258<") && has(&b, ">-1,234,567<") && has(&b, ">999.9<"));
    /* less than a decade: as many ticks as elsewhere */
    b.n_bytes = 0;
    const double near[3] = { 0.105, 0.12, 0.15 };
    const nb_svg_series t = { "t", x, near, NULL, NULL, 3 };
    assert_int_equal(nb_svg_lines(&b, &axes, &t, 1), NB_OK);
    assert_true(has(&b, ">0.11<") && has(&b, ">0.15<") && !has(&b, ">0.1<"));
    /* the smallest bar of a logarithmic axis has a length: its axis begins below */
    b.n_bytes = 0;
    const double w[2] = { 10, 1000 };
    assert_int_equal(nb_svg_bars(&b, &axes, label, w, NULL, NULL, 2), NB_OK);
    assert_true(has(&b, ">1<") && !has(&b, ">0.1<"));
    assert_null(strstr(b.p, "width=\"0.0\""));
    nb_buf_deinit(&b);
}

static void test_parts(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    const nb_svg_axes a = { .title = "t", .x_label = "memory <1>" };
    const char *const label[3] = { "a<b", "none", "c" };
    const double part[3] = { 60, 0, 20 };
    assert_int_equal(nb_svg_parts(&b, &a, label, part, 100, 3), NB_OK);
    assert_int_equal(check(&b, "rect"), 6);
    assert_int_equal(check(&b, "text"), 1 + 3 + 1);
    assert_true(has(&b, "a&lt;b") && has(&b, "memory &lt;1&gt;"));
    assert_true(has(&b, "width=\"412.8\"") && has(&b, "M704.0")); /* 0.6 of 688; the whole */
    b.n_bytes = 0;
    assert_int_equal(nb_svg_parts(&b, &a, label, part, 40, 3), NB_OK);
    assert_true(has(&b, "width=\"516.0\"") && has(&b, "M360.0")); /* more than there is */
    const double bad[3] = { (double)NAN, -1, 0 };
    assert_int_equal(nb_svg_parts(&b, &a, label, bad, 100, 3), NB_ERR_ARG);
    assert_int_equal(nb_svg_parts(&b, &a, label, part, 0, 3), NB_ERR_ARG);
    assert_int_equal(nb_svg_parts(&b, &a, label, part, 100, SIZE_MAX), NB_ERR_LIMIT);
    nb_buf_deinit(&b);
}

static void test_text(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    assert_int_equal(nb_svg_text(&b, "<a href=\"x\">&\n\n\x01\xff\xc3\xa9\n"), NB_OK);
    assert_string_equal(b.p,
                        "&lt;a href=&quot;x&quot;&gt;&amp;\n\n\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\n");
    nb_buf_deinit(&b);
}

static void test_heat(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    const nb_svg_axes a = { .title = "needles", .x_label = "length", .y_label = "depth" };
    const char *const row[2] = { "0%", "100%" }, *const col[3] = { "1k", "2k", "4k" };
    const double cell[6] = { 0, 0.5, 1, (double)NAN, 0.254, 7 };
    assert_int_equal(nb_svg_heat(&b, &a, row, 2, col, 3, cell), NB_OK);
    assert_int_equal(check(&b, "rect"), 6);
    assert_true(has(&b, ">50<") && has(&b, ">25<") && has(&b, ">100<") && has(&b, ">0<"));
    assert_int_equal(check(&b, "text"), 1 + 2 + 3 + 5 + 2);
    nb_buf_deinit(&b);
}

static void test_refused(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    const nb_svg_axes a = { 0 }, log_axes = { .log_y = 1 };
    const double nothing[2] = { (double)NAN, -1 };
    const nb_svg_series empty = { "s", X, Y, NULL, NULL, 0 };
    const nb_svg_series none = { "s", X, nothing, NULL, NULL, 2 };
    const char *const label[2] = { "a", "b" };
    assert_int_equal(nb_svg_lines(&b, &a, NULL, 0), NB_ERR_ARG);
    assert_int_equal(nb_svg_lines(&b, &a, &empty, 1), NB_ERR_ARG);
    assert_int_equal(nb_svg_lines(&b, &log_axes, &none, 1), NB_ERR_ARG);
    assert_int_equal(nb_svg_bars(&b, &a, label, nothing, NULL, NULL, 0), NB_ERR_ARG);
    assert_int_equal(nb_svg_bars(&b, &log_axes, label, nothing, NULL, NULL, 2), NB_ERR_ARG);
    assert_int_equal(nb_svg_heat(&b, &a, label, 0, label, 2, X), NB_ERR_ARG);
    assert_int_equal(nb_svg_heat(&b, &a, label, 2, label, 0, X), NB_ERR_ARG);
    assert_int_equal(nb_svg_heat(&b, &a, label, SIZE_MAX, label, 2, X), NB_ERR_LIMIT);
    assert_int_equal(nb_svg_lines(&b, &a, &empty, 1000), NB_ERR_LIMIT);
    assert_int_equal(b.n_bytes, 0);
    /* a buffer that is full is an error, not half a plot */
    const nb_svg_series s = { "s", X, Y, LO, HI, 5 };
    for (size_t limit = 1; limit < 4000; limit += 97) {
        nb_buf small = { .limit_bytes = limit };
        const nb_status st = nb_svg_lines(&small, &a, &s, 1);
        assert_true(st == NB_ERR_LIMIT || (st == NB_OK && limit > 2000));
        nb_buf_deinit(&small);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),   cmocka_unit_test(test_places),
        cmocka_unit_test(test_gaps),    cmocka_unit_test(test_escaping),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_bars),
        cmocka_unit_test(test_figures), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_text),    cmocka_unit_test(test_heat),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
