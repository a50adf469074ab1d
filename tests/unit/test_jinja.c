/* test_jinja.c - the template engine against what Jinja2 renders (tests/data/jinja,
 * made by make_expected.py there): some 1,100 snippets, and templates in the style
 * of the model families with conversations.  Then what Jinja2 cannot tell: limits,
 * refusals, line numbers, the clock, concurrency of a parsed template. */
#include "jinja_test.h"

/* Errors of Jinja2 that name an undefined value must be ours word for word. */
static bool same_error(const char *want, const char *got)
{
    if (strncmp(want, "UndefinedError: ", 16) != 0) return true;
    return strstr(got, want) != NULL;
}

static size_t check_case(nb_str source, const json_t *vars, int64_t now_s, const json_t *c)
{
    nb_buf out = { 0 };
    nb_error err;
    const nb_status st = jt_render(source, vars, now_s, &out, &err);
    const json_t *text = json_object_get(c, "text");
    bool bad;
    if (text) {
        bad = st != NB_OK || !nb_str_eq(nb_buf_view(&out), jt_str(text));
    } else {
        bad = st == NB_OK || strncmp(err.msg, "template line ", 14) != 0 || out.n_bytes != 0 ||
              !same_error(json_string_value(json_object_get(c, "error")), err.msg);
    }
    if (bad)
        print_error("%.*s\n  got:  %s\n  want: %s\n", (int)source.n_bytes, source.p,
                    st == NB_OK ? (out.p ? out.p : "") : err.msg,
                    json_string_value(text ? text : json_object_get(c, "error")));
    nb_buf_deinit(&out);
    return bad;
}

static void test_snippets(void **state)
{
    (void)state;
    json_t *doc = jt_load_own("snippets.json"), *c;
    const json_t *vars = json_object_get(doc, "vars");
    const int64_t now_s = json_integer_value(json_object_get(doc, "now"));
    size_t i, n_bad = 0;
    json_array_foreach(json_object_get(doc, "cases"), i, c)
        n_bad += check_case(jt_str(json_object_get(c, "template")), vars, now_s, c);
    assert_true(i > 1200);
    json_decref(doc);
    assert_int_equal(n_bad, 0);
}

/* The lines of a template joined. */
static nb_buf join_lines(const json_t *lines)
{
    nb_buf b = { 0 };
    for (size_t i = 0; i < json_array_size(lines); i++) {
        if (i) assert_int_equal(nb_buf_add_ch(&b, '\n'), NB_OK);
        assert_int_equal(nb_buf_add_str(&b, jt_str(json_array_get(lines, i))), NB_OK);
    }
    return b;
}

static void test_families(void **state)
{
    (void)state;
    json_t *doc = jt_load_own("families.json"), *c;
    const int64_t now_s = json_integer_value(json_object_get(doc, "now"));
    size_t i, n_bad = 0;
    json_array_foreach(json_object_get(doc, "cases"), i, c) {
        const char *t = json_string_value(json_object_get(c, "template"));
        const char *conv = json_string_value(json_object_get(c, "conversation"));
        nb_buf source = join_lines(json_object_get(json_object_get(doc, "templates"), t));
        json_t *vars = json_pack("{s:n, s:n, s:b}", "tools", "documents", "add_generation_prompt", 1);
        json_object_update(vars, json_object_get(doc, "special"));
        json_object_update(vars, json_object_get(json_object_get(doc, "conversations"), conv));
        n_bad += check_case(nb_buf_view(&source), vars, now_s, c);
        json_decref(vars);
        nb_buf_deinit(&source);
    }
    assert_true(i >= 100);
    json_decref(doc);
    assert_int_equal(n_bad, 0);
}

static void test_lines(void **state)
{
    (void)state;
    jt_expect_error("a\nb\n{{ x.y }}", NULL, NB_ERR_FORMAT,
                    "template line 3: UndefinedError: 'x' is undefined");
    jt_expect_error("\n{% if 1 %}\n{% for %}", NULL, NB_ERR_FORMAT, "template line 3: ");
    jt_expect_error("{% macro m() %}\n\n{{ 1/0 }}{% endmacro %}\n\n\n{{ m() }}", NULL,
                    NB_ERR_FORMAT, "template line 3: ZeroDivisionError");
    jt_expect_error("{# \n #}\n{{ raise_exception('no\nway') }}", NULL, NB_ERR_FORMAT,
                    "template line 3: no?way");
    jt_expect_error("\r\n\r\n{{ 1 +* 2 }}", NULL, NB_ERR_FORMAT, "template line 3: ");
    jt_expect_error("x\n{% if 1 %}\ny", NULL, NB_ERR_FORMAT, "expected \"elif\"");
}

static void test_refusals(void **state)
{
    (void)state;
    jt_expect_error("{% include 'a' %}", NULL, NB_ERR_UNSUPPORTED, "\"include\" is not supported");
    jt_expect_error("{% extends 'a' %}", NULL, NB_ERR_UNSUPPORTED, "\"extends\"");
    jt_expect_error("{% block a %}{% endblock %}", NULL, NB_ERR_UNSUPPORTED, "\"block\"");
    jt_expect_error("{% do 1 %}", NULL, NB_ERR_FORMAT, "unknown tag \"do\"");
    jt_expect_error("{{ 'a'|urlize }}", NULL, NB_ERR_UNSUPPORTED, "filter 'urlize'");
    jt_expect_error("{{ 'a'.encode() }}", NULL, NB_ERR_UNSUPPORTED, "method 'encode'");
    jt_expect_error("{{ '%d' % 1 }}", NULL, NB_ERR_UNSUPPORTED, "formatting with %");
    jt_expect_error("{{ '{}'.format(1) }}", NULL, NB_ERR_UNSUPPORTED, "method 'format'");
    jt_expect_error("{{ 2 ** 3 }}", NULL, NB_ERR_UNSUPPORTED, "the operator **");
    jt_expect_error("{{ f(*x) }}", NULL, NB_ERR_UNSUPPORTED, "after * or **");
    jt_expect_error("{% macro m() %}{{ varargs }}{% endmacro %}", NULL, NB_ERR_UNSUPPORTED, "varargs");
    jt_expect_error("{% for x in y recursive %}{% endfor %}", NULL, NB_ERR_UNSUPPORTED, "recursive");
    jt_expect_error("{% with a = 1 %}{% endwith %}", NULL, NB_ERR_UNSUPPORTED, "\"with\"");
    jt_expect_error("{% filter upper %}{% endfilter %}", NULL, NB_ERR_UNSUPPORTED, "\"filter\"");
    jt_expect_error("{{ [1] is callable }}", NULL, NB_ERR_UNSUPPORTED, "test 'callable'");
    jt_expect_error("{{ cycler(1) }}", NULL, NB_ERR_UNSUPPORTED, "function 'cycler'");
    jt_expect_error("{{ 'a'|nosuch }}", NULL, NB_ERR_FORMAT, "no filter named 'nosuch'");
    jt_expect_error("{{ 'a' is nosuch }}", NULL, NB_ERR_FORMAT, "no test named 'nosuch'");
    jt_expect("{% if false %}{{ 'a'|nosuch }}{% endif %}", NULL, "");
    jt_expect_error("\xff{{ 1 }}", NULL, NB_ERR_FORMAT, "UTF-8");
    jt_expect_error("{{ '\\N{BULLET}' }}", NULL, NB_ERR_UNSUPPORTED, "\\N{...}");
    jt_expect_error("{{ 9223372036854775807 + 1 }}", NULL, NB_ERR_RANGE, "64 bits");
    jt_expect_error("{{ 9999999999999999999 }}", NULL, NB_ERR_RANGE, "too large");
}

/* Each of these would take for ever, or all memory, or all of the stack. */
static const struct {
    const char *source;
    const char *part;
} hostile[] = {
    { "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps" },
    { "{% set n = namespace(x='ab') %}{% for a in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
      "bytes" },
    { "{% set n = namespace(l=[1]) %}{% for a in range(99) %}{% set n.l = n.l + n.l %}{% endfor %}",
      "bytes for values" },
    { "{{ 'abcdefgh' * 1000000000000 }}", "more than" },
    { "{{ [0] * 1000000000000 }}", "bytes for values" },
    { "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels deep" },
    { "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "levels deep" },
    { "{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}", "levels deep" },
    { "{{ range(1000000) }}", "range too big" },
    { "{{ ('[' * 100000)|from_json }}", "from_json" },
    { "{% set s = 'a' * 3000000 %}{{ s.strip('b' * 3000000 ~ 'a') }}", "steps" },
    { "{% set s = 'a' * 1000000 %}{% for i in range(9999) %}{{ s.count('ab') }}{% endfor %}",
      "steps" },
    { "{% set d = {} %}{% for i in range(99999) %}{% set _ = d.update({i: i}) %}{% endfor %}"
      "{% for i in range(99999) %}{% set _ = d.pop(i) %}{% endfor %}", "more than" },
};

static void test_hostile(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        nb_jinja *t = NULL;
        nb_error err = { 0 };
        nb_buf out = { 0 };
        const nb_jinja_limits lim = { .max_steps = 3000000, .max_output_bytes = 8 << 20,
                                      .max_value_bytes = 32 << 20 };
        assert_int_equal(nb_jinja_parse(nb_str_c(hostile[i].source), &t, &err), NB_OK);
        const nb_status st = nb_jinja_render(t, NULL, &lim, &out, &err);
        if (st == NB_OK || !strstr(err.msg, hostile[i].part))
            fail_msg("%s: %d \"%s\", wanted \"%s\"", hostile[i].source, (int)st, err.msg,
                     hostile[i].part);
        assert_int_equal(out.n_bytes, 0);
        nb_buf_deinit(&out);
        nb_jinja_destroy(t);
    }
}

/* head, n times mid, tail: must end in one error line, or render. */
static void repeat(const char *head, const char *mid, size_t n, const char *tail, const char *part)
{
    nb_buf b = { 0 }, out = { 0 };
    nb_error err;
    assert_int_equal(nb_buf_add_c(&b, head), NB_OK);
    for (size_t i = 0; i < n; i++) assert_int_equal(nb_buf_add_c(&b, mid), NB_OK);
    assert_int_equal(nb_buf_add_c(&b, tail), NB_OK);
    const nb_status st = jt_render(nb_buf_view(&b), NULL, 0, &out, &err);
    if (part ? st == NB_OK || !strstr(err.msg, part) : st != NB_OK)
        fail_msg("%s%s...: %d %s", head, mid, (int)st, err.msg);
    nb_buf_deinit(&b);
    nb_buf_deinit(&out);
}

static void test_deep_source(void **state)
{
    (void)state;
    static const char *const openers[] = { "(", "[", "-", "not ", "{'a':", "f(", "a[", "1 if 1 else ",
                                           "+", "a|f(", "a is f(" };
    for (size_t i = 0; i < sizeof openers / sizeof *openers; i++)
        repeat("{{ ", openers[i], 50000, " }}", "levels deep");
    repeat("", "{% if 1 %}", 50000, "", "levels deep");
    repeat("", "{% for a in b %}", 50000, "", "levels deep");
    repeat("", "{% macro a() %}", 50000, "", "levels deep");
    repeat("{% set ", "(a,", 50000, "", "levels deep");
    repeat("{{ 1", "+1", 50000, " }}", "levels deep");
    repeat("{{ 1", "|abs", 50000, " }}", "levels deep");
    repeat("{{ a", ".b", 50000, " }}", "levels deep");
    repeat("{{ 1", " == 1", 50000, " }}", "comparisons");
    repeat("{{ 1", " ~ 1", 50000, " }}", NULL);
    repeat("{{ 1", " if 0", 300, " }}", NULL);
    repeat("{% if 0 %}", "{% elif 0 %}", 50000, "{% endif %}", NULL);
    repeat("", "{{ 1 }}", 50000, "", NULL);
    repeat("{#", "x", NB_JINJA_MAX_SOURCE_BYTES, "#}", "bytes");
}

static void test_limits_of_caller(void **state)
{
    (void)state;
    nb_jinja *t = NULL;
    nb_error err = { 0 };
    nb_buf out = { 0 };
    nb_jinja_stats stats;
    assert_int_equal(nb_jinja_parse(nb_str_c("{% for i in range(10) %}{{ i }}{% endfor %}"), &t,
                                    &err), NB_OK);
    assert_int_equal(nb_buf_add_c(&out, "kept"), NB_OK);
    const nb_jinja_limits few = { .max_steps = 20 }, brief = { .max_output_bytes = 9 };
    assert_int_equal(nb_jinja_render(t, NULL, &few, &out, &err), NB_ERR_LIMIT);
    assert_int_equal(nb_jinja_render(t, NULL, &brief, &out, &err), NB_ERR_LIMIT);
    assert_string_equal(out.p, "kept");
    assert_int_equal(nb_jinja_render_stats(t, NULL, NULL, &out, &stats, &err), NB_OK);
    assert_string_equal(out.p, "kept0123456789");
    assert_true(stats.n_steps > 20 && stats.n_steps < 200 && !stats.printed_container);
    out.limit_bytes = 15; /* the caller's own limit */
    assert_int_equal(nb_jinja_render(t, NULL, NULL, &out, &err), NB_ERR_LIMIT);
    assert_string_equal(out.p, "kept0123456789");
    json_t *array = json_array();
    assert_int_equal(nb_jinja_render(t, array, NULL, &out, &err), NB_ERR_ARG);
    json_decref(array);
    nb_buf_deinit(&out);
    nb_jinja_destroy(t);
    nb_jinja_destroy(NULL);
}

static void test_clock(void **state)
{
    (void)state;
    static const struct {
        int64_t now_s;
        const char *want;
    } rows[] = { /* checked with date(1) */
        { 0, "1970-01-01 00:00:00 Thu 001" },
        { 951782399, "2000-02-28 23:59:59 Mon 059" },
        { 951782400, "2000-02-29 00:00:00 Tue 060" },
        { 1230768000, "2009-01-01 00:00:00 Thu 001" },
        { 1262304000, "2010-01-01 00:00:00 Fri 001" },
        { 1230681600, "2008-12-31 00:00:00 Wed 366" },
        { -1, "1969-12-31 23:59:59 Wed 365" },
        { 4102444800, "2100-01-01 00:00:00 Fri 001" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        nb_buf out = { 0 };
        nb_error err;
        const nb_str src = nb_str_c("{{ strftime_now('%Y-%m-%d %H:%M:%S %a %j') }}");
        assert_int_equal(jt_render(src, NULL, rows[i].now_s, &out, &err), NB_OK);
        assert_string_equal(out.p, rows[i].want);
        nb_buf_deinit(&out);
    }
    jt_expect_error("{{ strftime_now('%Q') }}", NULL, NB_ERR_UNSUPPORTED, "%Q");
}

static void test_from_json(void **state)
{
    (void)state;
    jt_expect("{% set d = x|from_json %}{{ d.a }}{{ d.b[1] }}{{ d }}",
              "{\"x\": \"{\\\"a\\\": \\\"\\u00e9\\\", \\\"b\\\": [1, 2.5]}\"}",
              "\xC3\xA9" "2.5{'a': '\xC3\xA9', 'b': [1, 2.5]}");
    jt_expect_error("{{ '{'|from_json }}", NULL, NB_ERR_FORMAT, "from_json");
    jt_expect_error("{{ 5|from_json }}", NULL, NB_ERR_FORMAT, "from_json");
}

static bool iterates(const char *source)
{
    nb_jinja *t = NULL;
    nb_error err;
    assert_int_equal(nb_jinja_parse(nb_str_c(source), &t, &err), NB_OK);
    const bool yes = nb_jinja_iterates_content(t);
    nb_jinja_destroy(t);
    return yes;
}

static void test_iterates_content(void **state)
{
    (void)state;
    assert_true(iterates("{% for p in message.content %}{% endfor %}"));
    assert_true(iterates("{% for p in m['content'] if p.type == 'text' %}{% endfor %}"));
    assert_true(iterates("{% for p in messages[0].content[1:] %}{% endfor %}"));
    assert_true(iterates("{% for p in m.content | selectattr('type') | list %}{% endfor %}"));
    assert_true(iterates("{% set c = m['content'] %}{% for p in c %}{% endfor %}"));
    assert_true(iterates("{% set c = m.content if m.content else [] %}{% for p in c %}{% endfor %}"));
    assert_true(iterates("{% macro t(content) %}{% for p in content %}{% endfor %}{% endmacro %}"));
    assert_false(iterates("{{ message.content }}{% for m in messages %}{% endfor %}"));
    assert_false(iterates("{% for l in m.content.split('\\n') %}{% endfor %}"));
    assert_false(iterates("{% for c in m.tool_calls %}{{ m.content }}{% endfor %}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snippets),    cmocka_unit_test(test_families),
        cmocka_unit_test(test_lines),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_hostile),     cmocka_unit_test(test_deep_source),
        cmocka_unit_test(test_limits_of_caller), cmocka_unit_test(test_clock),
        cmocka_unit_test(test_from_json),   cmocka_unit_test(test_iterates_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
