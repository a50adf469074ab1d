/* test_bench_kernel.c - `nibble bench kernel` and `bench throughput --depth`: lists, statistics,
 * every operation once, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../apps/nibble/bench/bench_gaps.c"
#include "../../apps/nibble/bench/bench_list.c"
#include "timing/bench_kernel.h"

static void test_words(void **state)
{
    static const char *const known[] = { "c", "avx2", "avx512", NULL };
    bench_words w, bad;
    (void)state;
    assert_true(bench_words_parse("all", known, &w, &bad));
    assert_int_equal(w.n, 3);
    assert_string_equal(w.word[2], "avx512");
    assert_true(bench_words_parse("avx2,c", known, &w, &bad));
    assert_int_equal(w.n, 2);
    assert_string_equal(w.word[0], "avx2");
    assert_string_equal(w.word[1], "c");
    assert_false(bench_words_parse("c,avx", known, &w, &bad));
    assert_string_equal(bad.word[0], "avx");
    assert_false(bench_words_parse("", known, &w, &bad));
    assert_false(bench_words_parse("c,", known, &w, &bad));
    assert_false(bench_words_parse("c,,c", known, &w, &bad));
    assert_false(bench_words_parse("c,c,c,c,c,c,c,c,c,c,c,c,c,c,c,c,c", known, &w, &bad));
    assert_false(
        bench_words_parse("a-word-that-is-much-longer-than-all-known-ones", known, &w, &bad));
}

static void test_counts(void **state)
{
    bench_counts c;
    (void)state;
    assert_true(bench_counts_parse("512,4k,32K,1M", 64, 1 << 24, &c));
    assert_int_equal(c.n, 4);
    assert_int_equal(c.count[1], 4096);
    assert_int_equal(c.count[2], 32768);
    assert_int_equal(c.count[3], 1 << 20);
    assert_false(bench_counts_parse("63", 64, 1 << 24, &c));
    assert_false(bench_counts_parse("17M", 64, 1 << 24, &c));
    assert_false(bench_counts_parse("99999999999999999999999", 64, 1 << 24, &c));
    assert_false(bench_counts_parse("", 1, 10, &c));
    assert_false(bench_counts_parse("-1", 1, 10, &c));
    assert_false(bench_counts_parse("1,", 1, 10, &c));
    assert_false(bench_counts_parse("1 ", 1, 10, &c));
    assert_false(bench_counts_parse("1kk", 1, 1 << 24, &c));
    assert_false(bench_counts_parse("1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8", 1, 10, &c));
}

static void test_statistics(void **state)
{
    double odd[] = { 5, 1, 4 }, even[] = { 8, 2, 4, 6 }, one[] = { 7 }, m, best;
    const double x[] = { 4096, 512, 32768 }, y[] = { 50, 10, 332.56 };
    (void)state;
    nb_kbench_median(odd, 3, &m, &best);
    assert_true(m == 4 && best == 1);
    nb_kbench_median(even, 4, &m, &best);
    assert_true(m == 5 && best == 2);
    nb_kbench_median(one, 1, &m, &best);
    assert_true(m == 7 && best == 7);
    double many[] = { 10, 14, 11, 9, 50, 12, 8 }, alone[] = { 3 }; /* one disturbed sample */
    nb_kbench_spread s;
    nb_kbench_spread_of(many, 7, &s);
    assert_true(s.median == 11 && s.mad == 2 && s.lo == 8 && s.hi == 50 && s.n == 7);
    nb_kbench_spread_of(alone, 1, &s);
    assert_true(s.median == 3 && s.mad == 0 && s.lo == 3 && s.hi == 3 && s.n == 1);
    assert_true(nb_kbench_slope(x, y, 3, &m)); /* the ends, not the middle */
    assert_true(m > 0.00999 && m < 0.01001);
    assert_false(nb_kbench_slope(x, y, 1, &m));
    assert_false(nb_kbench_slope(x, y, 0, &m));
    const double same[] = { 64, 64 };
    assert_false(nb_kbench_slope(same, y, 2, &m));
}

static void test_gaps(void **state)
{
    /* The second sequence begins at 2 and ends at 6: the first one's gaps before and after, and
     * what crosses an edge, do not count. */
    double a[] = { 0, 1, 2, 3, 5, 7 }, b[] = { 2, 4, 6 }, gap[9];
    const depth_times seq[] = { { a, 6, 6 }, { b, 3, 3 } };
    nb_kbench_spread t;
    (void)state;
    assert_true(bench_depth_gaps(seq, 2, gap, &t));
    assert_int_equal(t.n, 4); /* 1, 2, 2, 2 */
    assert_true(t.median == 2 && t.lo == 1 && t.hi == 2 && t.mad == 0);
    assert_true(bench_depth_gaps(seq, 1, gap, &t));
    assert_int_equal(t.n, 5); /* 1, 1, 1, 2, 2 */
    assert_true(t.median == 1);
    double late[] = { 8, 9 };
    const depth_times apart[] = { { a, 6, 6 }, { late, 2, 2 } }, single[] = { { a, 1, 6 } };
    assert_false(bench_depth_gaps(apart, 2, gap, &t));
    assert_false(bench_depth_gaps(single, 1, gap, &t));
}

static nb_kbench_case tiny(const char *op)
{
    return (nb_kbench_case){ .op = op,
                             .record = "nvfp4",
                             .weight = "bf16",
                             .n_head = 3,
                             .n_query = 2,
                             .context = 320,
                             .n_row = 40,
                             .n_col = 96,
                             .n_tok = 9,
                             .cold = true,
                             .set_bytes = 1 << 20,
                             .n_sample = 2 };
}

static void check_row(const nb_kbench_row *r)
{
    assert_true(r->median_ns > 0 && r->best_ns > 0 && r->best_ns <= r->median_ns);
    assert_true(r->variant && *r->variant);
    assert_true(r->set_bytes >= 1 << 20);
    assert_true(r->read_gbs > 0);
    if (r->bytes > 0) assert_true(r->floor_ns >= r->bytes / r->read_gbs * 0.999);
    if (r->ops > 0) assert_true(r->peak_gops > 0 && r->floor_ns >= r->ops / r->peak_gops * 0.999);
}

static void test_operations(void **state)
{
    nb_error err = { 0 };
    nb_kbench *b = NULL;
    const char *level[NB_KBENCH_MAX_LEVEL];
    (void)state;
    const size_t n_level = nb_kbench_levels(level);
    assert_true(n_level >= 1 && strcmp(level[0], "c") == 0 && !level[n_level]);
    assert_int_equal(nb_kbench_create(2, 1, &b, &err), NB_OK);
    assert_int_equal(nb_kbench_n_thread(b), 2);
    for (const nb_kbench_op *op = nb_kbench_ops; op->name; op++) {
        nb_kbench_row row[NB_KBENCH_MAX_ROW];
        nb_kbench_case c = tiny(op->name);
        size_t n = 0;
        c.level = level[n_level - 1];
        if (nb_kbench_run(b, &c, row, &n, &err) != NB_OK) fail_msg("%s: %s", op->name, err.msg);
        assert_true(n >= 1);
        for (size_t i = 0; i < n; i++) check_row(&row[i]);
        if (op->context) assert_true(row[0].context > 0);
    }
    nb_kbench_destroy(b);
}

static void test_types(void **state)
{
    static const char *const record[] = { "nvfp4", "if4",  "mxfp4",      "int4",
                                          "fp8",   "bf16", "fp8_ds_mla", "f32" };
    static const char *const weight[] = { "f32", "bf16", "f16", "fp8" };
    nb_error err = { 0 };
    nb_kbench *b = NULL;
    nb_kbench_row row[NB_KBENCH_MAX_ROW];
    size_t n;
    (void)state;
    assert_int_equal(nb_kbench_create(1, 1, &b, &err), NB_OK);
    for (size_t i = 0; i < sizeof record / sizeof *record; i++) {
        nb_kbench_case c = tiny("attn_pages");
        c.record = record[i];
        if (nb_kbench_run(b, &c, row, &n, &err) != NB_OK) fail_msg("%s: %s", record[i], err.msg);
        check_row(row);
    }
    for (size_t i = 0; i < sizeof weight / sizeof *weight; i++) {
        nb_kbench_case c = tiny("linear");
        c.weight = weight[i];
        if (nb_kbench_run(b, &c, row, &n, &err) != NB_OK) fail_msg("%s: %s", weight[i], err.msg);
        check_row(row);
    }
    nb_kbench_destroy(b);
}

static nb_status refused(nb_kbench *b, nb_kbench_case c)
{
    nb_kbench_row row[NB_KBENCH_MAX_ROW];
    nb_error err = { 0 };
    size_t n = 0;
    const nb_status st = nb_kbench_run(b, &c, row, &n, &err);
    assert_true(st != NB_OK && err.msg[0] && n == 0);
    return st;
}

static void test_refusals(void **state)
{
    nb_kbench *b = NULL;
    (void)state;
    assert_int_equal(nb_kbench_create(1, 1, &b, NULL), NB_OK);
    nb_kbench_case c = tiny("attn_flash");
    assert_int_equal(refused(b, c), NB_ERR_ARG);
    c = tiny("attn_pages");
    c.record = "nvfp5";
    assert_int_equal(refused(b, c), NB_ERR_ARG);
    c = tiny("linear");
    c.weight = "q4";
    assert_int_equal(refused(b, c), NB_ERR_ARG);
    c = tiny("linear");
    c.level = "sse";
    assert_int_equal(refused(b, c), NB_ERR_ARG);
    c = tiny("attn");
    c.context = 100;
    assert_int_equal(refused(b, c), NB_ERR_RANGE);
    c = tiny("rmsnorm");
    c.n_tok = 0;
    assert_int_equal(refused(b, c), NB_ERR_RANGE);
    c = tiny("kv_residual");
    c.record = "bf16";
    assert_int_equal(refused(b, c), NB_ERR_UNSUPPORTED);
    c = tiny("route");
    c.n_row = 5000;
    assert_int_equal(refused(b, c), NB_ERR_RANGE);
    nb_kbench_destroy(b);
    nb_kbench_destroy(NULL);
}

static void test_peaks(void **state)
{
    nb_kbench *b = NULL;
    nb_kbench_peaks p = { 0 };
    nb_error err = { 0 };
    (void)state;
    assert_int_equal(nb_kbench_create(1, 1, &b, &err), NB_OK);
    assert_int_equal(nb_kbench_peak(b, "c", 1 << 16, &p, &err), NB_OK);
    assert_true(p.read_gbs > 0 && p.f32_gops > 0 && p.bf16_gops == 0);
    nb_kbench_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),      cmocka_unit_test(test_counts),
        cmocka_unit_test(test_statistics), cmocka_unit_test(test_operations),
        cmocka_unit_test(test_types),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_peaks),      cmocka_unit_test(test_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
