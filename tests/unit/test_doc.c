/* test_doc.c - reading configuration: getters, prefixes, limits, error lines. */
#include "load_testing.h"

#include "load/doc.h"

static nb_doc *parse(const char *json)
{
    nb_doc *d = NULL;
    nb_error e;
    if (nb_doc_parse(nb_str_c(json), "config.json", &d, &e) != NB_OK) fail_msg("%s", e.msg);
    return d;
}

static void test_getters(void **state)
{
    (void)state;
    nb_doc *d =
        parse("{\"a\":7,\"f\":1.5,\"b\":true,\"s\":\"x\\u00e9\",\"n\":null,\"neg\":-3,"
              "\"o\":{\"deep\":{\"v\":9}},\"l\":[1,2,3],\"lf\":[1,0.5],\"ls\":[\"p\",\"q\"],"
              "\"max\":9223372036854775807,\"e\":[],\"\":5}");
    uint64_t u = 0, us[4] = { 0 };
    size_t z = 0, n = 99;
    double f = 0, fs[4] = { 0 };
    bool b = false;
    const char *s = NULL, *ss[4] = { 0 };
    assert_string_equal(nb_doc_name(d), "config.json");
    assert_true(nb_doc_u64(d, "a", 0, 10, &u));
    assert_int_equal(u, 7);
    assert_true(nb_doc_u64(d, "max", 0, UINT64_MAX, &u));
    assert_true(u == INT64_MAX);
    assert_true(nb_doc_size(d, "o.deep.v", 9, 9, &z));
    assert_int_equal(z, 9);
    assert_true(nb_doc_f64(d, "f", &f) && f == 1.5);
    assert_true(nb_doc_f64(d, "a", &f) && f == 7);
    assert_true(nb_doc_f64(d, "neg", &f) && f == -3);
    assert_true(nb_doc_bool(d, "b", &b) && b);
    assert_true(nb_doc_is_bool(d, "b"));
    assert_false(nb_doc_is_bool(d, "a"));
    assert_true(nb_doc_str(d, "s", &s));
    assert_string_equal(s, "x\xc3\xa9");
    assert_true(nb_doc_u64s(d, "l", 3, us, 4, &n) && n == 3 && us[2] == 3);
    assert_true(nb_doc_u64s(d, "a", 9, us, 4, &n) && n == 1 && us[0] == 7);
    assert_true(nb_doc_u64s(d, "e", 9, us, 4, &n) && n == 0);
    assert_true(nb_doc_f64s(d, "lf", fs, 4, &n) && n == 2 && fs[1] == 0.5);
    assert_true(nb_doc_strs(d, "ls", ss, 4, &n) && n == 2);
    assert_string_equal(ss[1], "q");
    assert_true(nb_doc_strs(d, "s", ss, 4, &n) && n == 1);
    /* absent and null are the same, and no error */
    assert_false(nb_doc_has(d, "n"));
    assert_false(nb_doc_has(d, "zzz"));
    assert_false(nb_doc_has(d, "o.deep.v.x"));
    assert_true(nb_doc_has(d, "o.deep.v"));
    assert_true(nb_doc_is_object(d, "o.deep"));
    assert_false(nb_doc_is_object(d, "a"));
    assert_false(nb_doc_u64(d, "n", 0, 1, &u));
    assert_false(nb_doc_str(d, "n.m", &s));
    assert_int_equal(nb_doc_check(d, NULL), NB_OK);
    /* keys in file order, counted beyond max */
    assert_int_equal(nb_doc_keys(d, "", ss, 2), 13);
    assert_string_equal(ss[0], "a");
    assert_string_equal(ss[1], "f");
    assert_int_equal(nb_doc_keys(d, "l", ss, 2), 0);
    /* prefix */
    nb_doc_at(d, "o.deep");
    assert_true(nb_doc_u64(d, "v", 0, 10, &u) && u == 9);
    assert_false(nb_doc_has(d, "a"));
    assert_int_equal(nb_doc_keys(d, "", ss, 4), 1);
    assert_string_equal(ss[0], "v");
    nb_doc_at(d, "");
    assert_true(nb_doc_has(d, "a"));
    nb_doc_destroy(d);
    nb_doc_destroy(NULL);
}

typedef enum getter { U64, F64, BOOL, STR, U64S, F64S, STRS } getter;
static const struct wrong {
    const char *json, *prefix, *path;
    getter how;
    const char *line;
} wrongs[] = {
    // clang-format off
    { "{\"a\":\"7\"}", "", "a", U64, "config.json: a: expected an integer from 1 to 10, found the string \"7\"" },
    { "{\"a\":0}", "", "a", U64, "from 1 to 10, found the integer 0" },
    { "{\"a\":11}", "", "a", U64, "found the integer 11" },
    { "{\"a\":-1}", "", "a", U64, "found the integer -1" },
    { "{\"a\":7.0}", "", "a", U64, "found the number 7" },
    { "{\"a\":9223372036854775808}", "", "a", U64, "found the number 9.22337203685477" },
    { "{\"a\":1000000000000000019884624838656}", "", "a", U64, "found the number 1e+30" },
    { "{\"a\":true}", "", "a", U64, "found true" },
    { "{\"a\":{\"b\":[]}}", "", "a.b", U64, "a.b: expected an integer from 1 to 10, found an array of 0" },
    { "{\"t\":{\"a\":false}}", "t", "a", U64, "t.a: expected" },
    { "{\"a\":5}", "", "a.b.c", U64, "config.json: a: expected an object" },
    { "{\"t\":{\"a\":5}}", "t", "a.b", STR, "config.json: t.a: expected an object" },
    { "{\"t\":[1]}", "t", "a", STR, "config.json: t: expected an object" },
    { "[1]", "", "a", STR, "config.json: the document: expected an object" },
    { "[\"x\"]", "", "", U64S, "config.json: the document: expected an integer" },
    { "{\"a\":\"1.5\"}", "", "a", F64, "a: expected a number" },
    { "{\"a\":1}", "", "a", BOOL, "a: expected true or false, found the integer 1" },
    { "{\"a\":{}}", "", "a", STR, "a: expected a string, found an object" },
    { "{\"a\":[1,2,3]}", "", "a", U64S, "a: expected at most 2 values, found an array of 3" },
    { "{\"a\":[1,null]}", "", "a", U64S, "a: expected an integer from 0 to 10, found null" },
    { "{\"a\":[1,\"x\\ny\"]}", "", "a", F64S, "a: expected a number, found the string \"x?y\"" },
    { "{\"a\":[\"x\",1]}", "", "a", STRS, "a: expected a string" },
    // clang-format on
};

static void test_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < NB_COUNT(wrongs); i++) {
        const struct wrong *w = &wrongs[i];
        nb_doc *d = parse(w->json);
        uint64_t us[2] = { 77, 77 };
        double fs[2];
        const char *ss[2];
        bool b, ok = true;
        size_t n = 55;
        nb_error e = { 0 };
        nb_doc_at(d, w->prefix);
        switch (w->how) {
        case U64: ok = nb_doc_u64(d, w->path, 1, 10, us); break;
        case F64: ok = nb_doc_f64(d, w->path, fs); break;
        case BOOL: ok = nb_doc_bool(d, w->path, &b); break;
        case STR: ok = nb_doc_str(d, w->path, ss); break;
        case U64S: ok = nb_doc_u64s(d, w->path, 10, us, 2, &n); break;
        case F64S: ok = nb_doc_f64s(d, w->path, fs, 2, &n); break;
        case STRS: ok = nb_doc_strs(d, w->path, ss, 2, &n); break;
        }
        if (ok) fail_msg("accepted: %s", w->json);
        assert_int_equal(n, 55);
        check_line(&e, nb_doc_check(d, &e), w->line);
        /* the first error stays */
        uint64_t u;
        nb_doc_at(d, "");
        (void)nb_doc_u64(d, "a", 500, 500, &u);
        check_line(&e, nb_doc_check(d, &e), w->line);
        assert_int_equal(nb_doc_check(d, NULL), NB_ERR_FORMAT);
        nb_doc_destroy(d);
    }
}

static const struct broken {
    const char *json, *line;
} broken[] = {
    { "", "not valid JSON: line 1" },
    { "5", "not valid JSON" },
    { "{\"a\":1,}", "not valid JSON" },
    { "{\"a\":1}\n\n]", "not valid JSON: line 3" },
    { "{\"a\":1,\"a\":2}", "duplicate object key" },
    { "{\"a\":{\"b\":1,\"b\":2}}", "duplicate object key" },
    { "{\"a\":\n NaN}", "line 2: NaN is not JSON, expected a finite number" },
    { "{\"a\":[0.0, Infinity]}", "line 1: Infinity is not JSON" },
    { "{\"a\":-Infinity}", "Infinity is not JSON" },
    { "{\"a\":1e999}", "not valid JSON" },
    { "{'a':1}", "not valid JSON" },
    { "{\"a\":01}", "not valid JSON" },
    { "{\"a\":\"\xff\"}", "not valid JSON" },
    { "{\"a\":\"\xed\xa0\x80\"}", "not valid JSON" },
    { "{\"a\":\"\\ud800\"}", "not valid JSON" },
    { "{\"a\":\"x", "not valid JSON" },
    { "{\"a\":\"x\\", "not valid JSON" },
    { "{\"\x1b[31m\":1", "not valid JSON" },
    { "\xef\xbb\xbf{}", "not valid JSON" },
};

static void test_broken(void **state)
{
    (void)state;
    for (size_t i = 0; i < NB_COUNT(broken); i++) {
        nb_doc *d = NULL;
        nb_error e = { 0 };
        const nb_status st = nb_doc_parse(nb_str_c(broken[i].json), "config.json", &d, &e);
        if (st == NB_OK) fail_msg("accepted: %s", broken[i].json);
        assert_null(d);
        check_line(&e, st, "config.json: ");
        check_line(&e, st, broken[i].line);
        assert_int_equal(nb_doc_parse(nb_str_c(broken[i].json), "c", &d, NULL), st);
    }
    /* words in strings are text; big integers in places nobody reads are harmless */
    nb_doc *d =
        parse("{\"NaN\":\"Infinity, -Infinity [[[\\\"{\",\"big\":1000000000000000019884624838656,"
              "\"b2\":-9223372036854775809,\"b3\":[-9223372036854775808,99999999999999999999]}");
    double f = 0;
    assert_true(nb_doc_f64(d, "big", &f));
    assert_true(f > 0.9999999999e30 && f < 1.0000000001e30);
    assert_true(nb_doc_f64(d, "b2", &f) && f < -9.2e18 && f > -9.3e18);
    assert_int_equal(nb_doc_check(d, NULL), NB_OK);
    nb_doc_destroy(d);
}

static void test_limits(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    nb_doc *d = NULL;
    nb_error e;
    for (int depth = 63; depth <= 65; depth++) {
        b.n_bytes = 0;
        for (int i = 0; i < depth; i++) assert_int_equal(nb_buf_add_ch(&b, '['), NB_OK);
        for (int i = 0; i < depth; i++) assert_int_equal(nb_buf_add_ch(&b, ']'), NB_OK);
        const nb_status st = nb_doc_parse(nb_buf_view(&b), "c", &d, &e);
        assert_int_equal(st, depth <= 64 ? NB_OK : NB_ERR_LIMIT);
        if (st == NB_OK) nb_doc_destroy(d);
    }
    check_line(&e, NB_ERR_LIMIT, "c: line 1: nested deeper than the limit of 64");
    b.n_bytes = 0;
    assert_int_equal(nb_buf_add_ch(&b, '['), NB_OK);
    for (int i = 0; i < 1100000; i++) assert_int_equal(nb_buf_add_c(&b, "{},"), NB_OK);
    check_line(&e, nb_doc_parse(nb_buf_view(&b), "c", &d, &e), "more values than the limit");
    b.n_bytes = 0;
    assert_int_equal(nb_buf_reserve(&b, (16 << 20) + 2), NB_OK);
    memset(b.p, ' ', (16 << 20) + 1);
    b.p[0] = '[';
    b.p[16 << 20] = ']';
    check_line(&e, nb_doc_parse((nb_str){ b.p, (16 << 20) + 1 }, "c", &d, &e),
               "the limit is 16777216");
    b.p[(16 << 20) - 1] = ']';
    assert_int_equal(nb_doc_parse((nb_str){ b.p, 16 << 20 }, "c", &d, &e), NB_OK);
    nb_doc_destroy(d);
    nb_buf_deinit(&b);
}

static void test_read(void **state)
{
    (void)state;
    tmp_dir t;
    char path[600];
    nb_doc *d = NULL;
    nb_error e;
    uint64_t u = 0;
    tmp_open(&t);
    tmp_write(&t, "config.json", nb_str_c("{\"a\":1}\n"));
    (void)snprintf(path, sizeof path, "%s/config.json", t.path);
    assert_int_equal(nb_doc_read(path, &d, &e), NB_OK);
    assert_true(nb_doc_u64(d, "a", 0, 1, &u));
    nb_doc_destroy(d);
    tmp_write(&t, "config.json", nb_str_c("{"));
    check_line(&e, nb_doc_read(path, &d, &e), "/config.json: not valid JSON");
    (void)snprintf(path, sizeof path, "%s/none.json", t.path);
    check_line(&e, nb_doc_read(path, &d, &e), "/none.json: cannot open");
    assert_int_equal(e.status, NB_ERR_NOT_FOUND);
    check_line(&e, nb_doc_read(t.path, &d, &e), "is a directory, expected a regular file");
    tmp_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_getters), cmocka_unit_test(test_wrong), cmocka_unit_test(test_broken),
        cmocka_unit_test(test_limits),  cmocka_unit_test(test_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
