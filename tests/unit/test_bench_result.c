/* test_bench_result.c - what the results of all `nibble bench` commands have, the runs of a workload, the files of a
 * model: the sources of the command are not in the library, so they are part of this program. */
#define _GNU_SOURCE /* as the sources that it includes */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* test_bench_stats.c has its own definitions of these; nibble-unit links both files. */
#define cli_failed test_bench_result_failed
#define cli_usage test_bench_result_usage
#define bench_print_number test_bench_result_print
#include "../../apps/nibble/bench/bench_files.c"
#include "../../apps/nibble/bench/bench_machine.c"
#include "../../apps/nibble/bench/bench_result.c"
#include "../../apps/nibble/bench/bench_runs.c"

/* cli.c and bench_stats.c, as far as these sources need them. */
static char said[1024];
int cli_failed(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    return CLI_FAILED;
}
int cli_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    return CLI_USAGE;
}
double cli_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
void bench_print_number(FILE *f, const char *label, double x)
{
    (void)fprintf(f, "%s %g\n", label, x);
}

static void test_model_names(void **state)
{
    static const char *const of[][2] = { { "models/nibble-tiny", "nibble-tiny" },
                                         { "/a/b/DeepSeek-V3/", "DeepSeek-V3" },
                                         { "bench/cpu/ds4l.json", "ds4l" },
                                         { "/a/V3/config.json", "V3" },
                                         { "config.json", "config" },
                                         { "m", "m" },
                                         { "/", "" },
                                         { "", "" },
                                         { ".json", ".json" },
                                         { "/config.json", "config" } };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char out[72];
        bench_model_name(of[i][0], out, sizeof out);
        assert_string_equal(out, of[i][1]);
    }
    char name[300], out[72];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    bench_model_name(name, out, sizeof out);
    assert_int_equal(strlen(out), 64);
}

static void test_metadata(void **state)
{
    static const char *const bad[] = { "x", "=1", "results=1", "schema=2", "noise=", "machine=m" };
    const char *good[] = { "commit=abc", "a=", "resultsx=1", "res=1" };
    const opt_strs all = { .p = good, .n = 4 };
    (void)state;
    assert_int_equal(bench_doc_check_metadata(&all), CLI_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *one = bad[i];
        const opt_strs list = { .p = &one, .n = 1 };
        assert_int_equal(bench_doc_check_metadata(&list), CLI_USAGE);
    }
    char line[400];
    memset(line, 'k', sizeof line);
    memcpy(line + sizeof line - 3, "=v", 3);
    const char *one = line;
    const opt_strs list = { .p = &one, .n = 1 };
    assert_int_equal(bench_doc_check_metadata(&list), CLI_USAGE);
}

static double real_at(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    assert_true(json_is_real(v));
    return json_real_value(v);
}

static void test_document(void **state)
{
    bench_doc d;
    const char *meta[] = { "commit=abc" };
    const opt_strs all = { .p = meta, .n = 1 }, none = { 0 };
    const nb_kbench_spread quiet = { 10, 0.5, 9, 12, 7 }, loud = { 4, 1, 3, 6, 5 },
                           once = { 3, 0, 3, 3, 1 };
    (void)state;
    bench_doc_begin(&d);
    assert_true(d.control.median > 0 && d.control.lo <= d.control.median);
    json_t *j = bench_doc_head(&d, "bench load", &none);
    assert_true(json_is_null(json_object_get(j, "commit")));
    json_decref(j);
    j = bench_doc_head(&d, "bench load", &all);
    assert_string_equal(json_string_value(json_object_get(j, "commit")), "abc");
    assert_int_equal(json_integer_value(json_object_get(j, "schema")), 1);
    json_t *rows = json_array();
    assert_true(bench_row_add(rows, NULL, "a", "ms", false, &quiet));
    /* What a caller brings does not replace a figure. */
    assert_true(bench_row_add(rows, json_pack("{s:i, s:f}", "x", 5, "median", 99.0), "b", "MiB/s",
                              true, &loud));
    assert_true(bench_row_add(rows, NULL, "c", "ms", false, &once));
    const json_t *b = json_array_get(rows, 1);
    assert_true(real_at(b, "median") == 4 && real_at(b, "mad") == 1 && real_at(b, "hi") == 6);
    assert_int_equal(json_integer_value(json_object_get(b, "x")), 5);
    assert_string_equal(json_string_value(json_object_get(b, "better")), "higher");
    assert_true(json_is_null(json_object_get(json_array_get(rows, 2), "mad")));
    assert_int_equal(json_object_set_new(j, "results", rows), 0);
    assert_true(bench_doc_end(&d, j));
    const json_t *noise = json_object_get(j, "noise");
    assert_int_equal(json_integer_value(json_object_get(noise, "rows")),
                     2); /* not the single one */
    assert_true(fabs(real_at(noise, "median_rel_mad") - 0.15) < 1e-12);
    assert_true(fabs(real_at(noise, "max_rel_mad") - 0.25) < 1e-12);
    json_decref(j);
}

static void test_runs(void **state)
{
    bench_runs r;
    const double rate[] = { 5, 9, 7, 7, 1 };
    (void)state;
    assert_true(bench_runs_init(&r, 5));
    for (size_t k = 0; k < 5; k++) {
        bench_summary s = { .duration_s = 2, .n = 1, .n_out = (size_t)(2 * rate[k]), .n_in = 2 };
        s.dist[BENCH_TTFT].median = (double)k + 1;
        bench_runs_put(&r, k, &s);
    }
    assert_int_equal(bench_runs_middle(&r), 2); /* 1 5 7 7 9; the first of the two */
    nb_kbench_spread s;
    assert_true(spread(&r, RUN_OUTPUT, &s));
    assert_true(s.median == 7 && s.lo == 1 && s.hi == 9 && s.mad == 2 && s.n == 5);
    assert_true(spread(&r, RUN_TOTAL, &s));
    assert_true(s.median == 8);
    assert_true(spread(&r, RUN_TTFT, &s));
    assert_true(s.median == 3);
    assert_false(spread(&r, RUN_ITL, &s)); /* no gaps: no figure */
    bench_runs_deinit(&r);
    assert_true(bench_runs_init(&r, 2));
    bench_summary one = { .duration_s = 1, .n_out = 8 }, two = { .duration_s = 0, .n_out = 4 };
    bench_runs_put(&r, 0, &one);
    bench_runs_put(&r, 1, &two); /* took no time: no rate */
    assert_int_equal(bench_runs_middle(&r), 1);
    bench_runs_deinit(&r);
}

static void write_file(const char *dir, const char *name, size_t n_bytes)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n_bytes; i++) (void)fputc((int)(i & 255), f);
    assert_int_equal(fclose(f), 0);
}

static void test_files(void **state)
{
    char dir[] = "/tmp/nb_bench_files_XXXXXX", path[512];
    bench_files f;
    double s = -1, left = -2;
    (void)state;
    assert_non_null(mkdtemp(dir));
    write_file(dir, "a.safetensors", 100000);
    write_file(dir, "b.safetensors", 10);
    write_file(dir, "config.json", 5);
    (void)snprintf(path, sizeof path, "%s/folder.safetensors", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(bench_files_list(dir, &f), CLI_OK);
    assert_int_equal(f.n, 3); /* the folder is none */
    assert_int_equal(f.n_weights, 2);
    assert_true(f.weight_bytes == 100010);
    assert_int_equal(bench_files_read(&f, &s), CLI_OK);
    assert_true(s >= 0);
    assert_int_equal(bench_files_drop(&f, &left), CLI_OK);
    assert_true(left == -1 || (left >= 0 && left <= 1));
    assert_int_equal(rmdir(path), 0);
    (void)snprintf(path, sizeof path, "%s/b.safetensors", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(bench_files_read(&f, &s), CLI_FAILED); /* gone in between */
    assert_non_null(strstr(said, "b.safetensors"));
    assert_int_equal(bench_files_drop(&f, &left), CLI_FAILED);
    bench_files_deinit(&f);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(bench_files_list(path, &f), CLI_OK);
    assert_true(f.n == 1 && f.n_weights == 0);
    bench_files_deinit(&f);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/a.safetensors", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(bench_files_list(dir, &f), CLI_FAILED);
    bench_files_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_names), cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_document),    cmocka_unit_test(test_runs),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
