/* test_jinja_mutate.c - thousands of damaged templates: pieces of the family
 * templates and snippets in tests/data/jinja are cut, swapped, repeated and
 * overwritten.  Each must parse and render, or end in one error line, within tight
 * limits; the sanitizers and the leak check judge the rest. */
#include "base/rng.h"
#include "jinja_test.h"

enum { N_MUTANTS = 6000, MAX_BYTES = 20000 };

typedef struct dice {
    uint64_t seed, n;
} dice;

static size_t roll(dice *d, size_t n)
{
    return n ? (size_t)(nb_rng_u64(d->seed, d->n++) % n) : 0;
}

static const char *const splices[] = {
    "{{", "}}", "{%", "%}", "{#", "#}", "{%-", "-%}", "-", "+", "(", ")", "[", "]", "'", "\"", "|",
    ".", ",", ":", "~", "not ", " if ", " else ", " in ", " is ", "none", "true", "loop", "messages",
    "{% endif %}", "{% endfor %}", "{% else %}", "{% break %}", "{% set x = ", "{% raw %}",
    "|tojson", "|list", "|map(", "[::-1]", "[-1]", "0", "99999999999", "1e400", "\\", "\n", "\xC3",
    "\xF0\x9F\x98\x80", "**", "//", "namespace(", "range(", "caller()", "{% macro m(a) %}",
    "{% endmacro %}", ".append(messages)", ".items()", ".split('')", "%s' % ", "{}'.format(",
};

static void mutate(nb_buf *b, nb_str other, dice *d)
{
    nb_buf out = { 0 };
    const size_t at = roll(d, b->n_bytes + 1), len = roll(d, 12), from = roll(d, other.n_bytes + 1);
    const size_t cut = roll(d, 4) ? len : roll(d, b->n_bytes + 1);
    size_t take = roll(d, 60);
    if (take > other.n_bytes - from) take = other.n_bytes - from;
    nb_status st = nb_buf_add(&out, b->p, at);
    switch (roll(d, 4)) {
    case 0: break; /* only cut */
    case 1: {
        const char *s = splices[roll(d, sizeof splices / sizeof *splices)];
        if (st == NB_OK) st = nb_buf_add_c(&out, s);
        break;
    }
    case 2:
        if (st == NB_OK) st = nb_buf_add(&out, other.p + from, take);
        break;
    default:
        if (st == NB_OK) st = nb_buf_add_ch(&out, (char)roll(d, 256));
        break;
    }
    const size_t rest = at + cut < b->n_bytes ? at + cut : b->n_bytes;
    if (st == NB_OK) st = nb_buf_add(&out, b->p + rest, b->n_bytes - rest);
    assert_int_equal(st, NB_OK);
    nb_buf_deinit(b);
    *b = out;
}

static bool one_line(const nb_error *err)
{
    return err->msg[0] && !strchr(err->msg, '\n') && strncmp(err->msg, "template", 8) == 0;
}

/* What became of the mutants, so that the test cannot decay into parse errors only. */
typedef struct tally {
    size_t n_refused, n_failed, n_rendered;
} tally;

static void run(nb_str source, const json_t *vars, tally *n)
{
    const nb_jinja_limits lim = { .max_steps = 200000, .max_output_bytes = 1 << 20,
                                  .max_value_bytes = 4 << 20, .max_depth = 200 };
    nb_jinja *t = NULL;
    nb_buf out = { 0 };
    nb_error err = { 0 };
    if (nb_jinja_parse(source, &t, &err) != NB_OK) {
        assert_true(one_line(&err) && !t);
        n->n_refused++;
    } else if (nb_jinja_render(t, vars, &lim, &out, &err) != NB_OK) {
        assert_true(one_line(&err) && out.n_bytes == 0);
        n->n_failed++;
    } else {
        n->n_rendered++;
    }
    nb_jinja_destroy(t);
    nb_buf_deinit(&out);
}

/* All sources: the family templates, then the snippets. */
static json_t *load_sources(const json_t *families, const json_t *snippets)
{
    json_t *all = json_array(), *lines;
    const char *name;
    size_t i;
    json_object_foreach(json_object_get(families, "templates"), name, lines) {
        nb_buf b = { 0 };
        json_t *line;
        json_array_foreach(lines, i, line) {
            assert_int_equal(nb_buf_add_str(&b, jt_str(line)), NB_OK);
            assert_int_equal(nb_buf_add_ch(&b, '\n'), NB_OK);
        }
        json_array_append_new(all, json_stringn(b.p, b.n_bytes));
        nb_buf_deinit(&b);
    }
    for (i = 0; i < json_array_size(json_object_get(snippets, "cases")); i += 40)
        json_array_append(all, json_object_get(json_array_get(json_object_get(snippets, "cases"), i),
                                               "template"));
    return all;
}

static void test_mutants(void **state)
{
    (void)state;
    json_t *families = jt_load_own("families.json"), *snippets = jt_load_own("snippets.json");
    json_t *sources = load_sources(families, snippets);
    const json_t *convs = json_object_get(families, "conversations");
    const char *const used[] = { "tools_obj", "tools_str", "multi", "think" };
    dice d = { .seed = 2024 };
    tally n = { 0 };
    for (size_t i = 0; i < N_MUTANTS; i++) {
        const json_t *s = json_array_get(sources, roll(&d, json_array_size(sources)));
        const json_t *o = json_array_get(sources, roll(&d, json_array_size(sources)));
        nb_buf b = { 0 };
        assert_int_equal(nb_buf_add_str(&b, jt_str(s)), NB_OK);
        for (size_t k = 1 + roll(&d, 3); k > 0 && b.n_bytes < MAX_BYTES; k--)
            mutate(&b, jt_str(o), &d);
        run(nb_buf_view(&b), json_object_get(convs, used[roll(&d, 4)]), &n);
        nb_buf_deinit(&b);
    }
    print_message("%zu refused, %zu failed, %zu rendered\n", n.n_refused, n.n_failed, n.n_rendered);
    assert_true(n.n_rendered > N_MUTANTS / 20 && n.n_failed > N_MUTANTS / 40);
    json_decref(sources);
    json_decref(families);
    json_decref(snippets);
}

/* Every prefix of every family template. */
static void test_prefixes(void **state)
{
    (void)state;
    json_t *families = jt_load_own("families.json"), *snippets = json_object();
    json_t *sources = load_sources(families, snippets), *s;
    tally n = { 0 };
    size_t i;
    json_array_foreach(sources, i, s)
        for (size_t k = 0; k <= json_string_length(s); k += 3)
            run((nb_str){ json_string_value(s), k },
                json_object_get(json_object_get(families, "conversations"), "user"), &n);
    assert_true(n.n_refused > 100);
    json_decref(sources);
    json_decref(families);
    json_decref(snippets);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_mutants),
                                        cmocka_unit_test(test_prefixes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
