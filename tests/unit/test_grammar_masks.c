/* test_grammar_masks.c - masks: equal to asking for each token alone, never a dead end, and what a random
 * walk along them ends in satisfies the schema. */
#include "grammar_testing.h"

#include "grammar/match.h"
#include "grammar/schema.h"

/* ---- a mask says what stepping says ---- */

static uint32_t after_token(nb_match *m, const nb_vocab *v, uint32_t id)
{
    uint32_t s = m->now;
    if (v->text[id].n_bytes == 0)
        return nb_vocab_is_marker(v, id) ? nb_m_step_marker(m, s, id) : NB_M_DEAD;
    for (size_t i = 0; i < v->text[id].n_bytes && s != NB_M_DEAD; i++)
        s = nb_m_step(m, s, (unsigned char)v->text[id].p[i]);
    return s;
}

static void check_mask(nb_match *m, const nb_vocab *v, const char *what)
{
    const uint64_t *mask;
    assert_int_equal(nb_match_mask(m, &mask), NB_OK);
    uint64_t copy[(N_VOCAB + 63) / 64];
    memcpy(copy, mask, sizeof copy);
    for (uint32_t id = 0; id < N_VOCAB; id++)
        if (mask_has(copy, id) != (after_token(m, v, id) != NB_M_DEAD))
            fail_msg("%s: the mask says %d of token %u", what, mask_has(copy, id), (unsigned)id);
}

/* A token that may come next, or NB_GRAMMAR_NO_TOKEN.  Late in a text those that end something. */
static uint32_t choose(const uint64_t *mask, uint64_t *seed, bool late)
{
    static const char ends[] = "\"}]0123456789eul:,-trnac";
    const size_t turn = (size_t)(nb_rng_u64(7, (*seed)++) % (sizeof ends - 2));
    for (size_t i = 0; late && ends[i]; i++) { /* a quote first, then any */
        const char c = i < 1 ? ends[i] : ends[1 + (i + turn) % (sizeof ends - 2)];
        if (mask_has(mask, (unsigned char)c)) return (unsigned char)c;
    }
    const uint32_t first = (uint32_t)(nb_rng_u64(5, (*seed)++) % N_VOCAB);
    for (uint32_t k = 0; k < N_VOCAB; k++)
        if (mask_has(mask, (first + k) % N_VOCAB)) return (first + k) % N_VOCAB;
    return NB_GRAMMAR_NO_TOKEN;
}

// clang-format off
static const char *const schemas[] = {
    "{}",
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":5},\"type\":{\"enum\":[\"a\",\"ab\",3]},"
    "\"n\":{\"type\":\"integer\",\"minimum\":3,\"maximum\":120}},\"required\":[\"type\"],\"additionalProperties\":false}",
    "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"boolean\"},\"abc\":false},\"additionalProperties\":"
    "{\"type\":\"integer\"},\"minProperties\":1,\"maxProperties\":3}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":70},\"minItems\":2,\"maxItems\":5}",
    "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"number\",\"exclusiveMinimum\":-0.5,\"maximum\":7.25}],"
    "\"items\":false,\"minItems\":1}",
    "{\"type\":\"string\",\"pattern\":\"^(ab|[0-9]{1,3})+$\",\"maxLength\":6}",
    "{\"type\":\"string\",\"pattern\":\"a.*c\"}",
    "{\"type\":\"string\",\"format\":\"date-time\"}",
    "{\"type\":\"string\",\"format\":\"ipv6\"}",
    "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"integer\"},\"c$\":{\"minimum\":2}},\"propertyNames\":"
    "{\"maxLength\":3},\"properties\":{\"abc\":{\"maximum\":9}},\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":1}",
    "{\"anyOf\":[{\"type\":\"integer\",\"multipleOf\":12},{\"type\":\"number\",\"multipleOf\":0.25,\"maximum\":3}],\"minimum\":1}",
    "{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{\"properties\":{\"a\":{\"minimum\":7},"
    "\"b\":{\"$ref\":\"#/$defs/l\"}}}],\"type\":\"object\",\"$defs\":{\"l\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/l\"}}}}",
    "{\"const\":{\"type\":[\"name\",{\"ab\":1.5}],\"x\":null}}",
    "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"type\":{\"const\":\"a\"}},\"required\":[\"type\"]},{\"type\":\"object\","
    "\"properties\":{\"type\":{\"const\":\"ab\"},\"name\":{\"type\":\"string\"}},\"required\":[\"type\",\"name\"]}]}",
};
// clang-format on

static bool satisfies(const char *schema, nb_str text)
{
    json_error_t why;
    json_t *s = json_loads(schema, JSON_DECODE_ANY, &why),
           *v = json_loadb(text.p, text.n_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    nb_grammar g = { .fuel = NB_G_FUEL };
    nb_schema x = { .g = &g, .root = s };
    /* Numbers beyond 64 bits and names with zero bytes are not read by jansson. */
    const bool ok =
        !v ? strstr(why.text, "too big") || strstr(why.text, "overflow") || strstr(why.text, "NUL")
           : nb_s_valid(&x, s, v);
    if (!nb_g_ok(&g)) fail_msg("%s", g.err.msg);
    json_decref(s);
    json_decref(v);
    free(x.schema);
    free(x.by_ptr);
    nb_arena_deinit(&g.arena);
    return ok;
}

static bool walk_once(nb_grammar *g, const nb_vocab *v, const char *schema, uint64_t *seed,
                      bool check)
{
    nb_match *m = start_match(g);
    nb_buf text = { 0 };
    bool ended = false;
    for (size_t n = 0; n < 3000 && !ended; n++) {
        if (check && n < 60) check_mask(m, v, schema);
        const uint64_t *mask;
        assert_int_equal(nb_match_mask(m, &mask), NB_OK);
        const bool late = n > 40;
        const uint32_t id = choose(mask, seed, late);
        ended = nb_match_accepting(m) &&
                (id == NB_GRAMMAR_NO_TOKEN || late || nb_rng_u64(6, (*seed)++) % 4 == 0);
        if (ended) break;
        if (id == NB_GRAMMAR_NO_TOKEN)
            fail_msg("%s: a dead end after %.*s", schema, (int)text.n_bytes, text.p);
        assert_int_equal(nb_buf_add_str(&text, v->text[id]), NB_OK);
        assert_int_equal(nb_match_accept(m, id), NB_OK);
    }
    if (ended && !satisfies(schema, nb_buf_view(&text)))
        fail_msg("%s: does not satisfy: %.*s", schema, (int)text.n_bytes, text.p);
    nb_buf_deinit(&text);
    nb_match_destroy(m);
    return ended;
}

#if defined(__SANITIZE_ADDRESS__)
enum { N_WALK = 8 }; /* ten times slower */
#else
enum { N_WALK = 40 };
#endif

static void test_walks(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    uint64_t seed = 0;
    for (size_t i = 0; i < NB_COUNT(schemas); i++) {
        nb_error e;
        nb_grammar *g = compile_as(v, NB_GRAMMAR_JSON_SCHEMA, nb_str_c(schemas[i]), false, &e);
        if (!g) fail_msg("%s: %s", schemas[i], e.msg);
        size_t n_ended = 0;
        for (size_t k = 0; k < N_WALK; k++) n_ended += walk_once(g, v, schemas[i], &seed, k < 4);
        if (n_ended < N_WALK / 2) fail_msg("%s: only %zu of %d walks came to an end", schemas[i], n_ended, (int)N_WALK);
        nb_grammar_unref(g);
    }
    nb_vocab_destroy(v);
}

/* ---- a token is allowed if and only if some text of the language goes on with it ---- */

enum { LONGEST = 7, N_LETTER = 4 };
static const char letters[] = "abc(";

/* Every text of up to LONGEST letters, in the language or not; begins[prefix] where one is in it. */
typedef struct all_texts {
    nb_grammar *g;
    unsigned char *begins; /* by the number of the text, see number_of */
    char text[LONGEST + 1];
} all_texts;

static size_t number_of(const char *s, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        k = k * (N_LETTER + 1) + (size_t)(strchr(letters, s[i]) - letters) + 1;
    return k;
}

static bool enumerate(all_texts *t, size_t n)
{
    t->text[n] = 0;
    bool some = accepts_text(t->g, (nb_str){ t->text, n });
    for (size_t i = 0; n < LONGEST && i < N_LETTER; i++) {
        t->text[n] = letters[i];
        some |= enumerate(t, n + 1);
    }
    t->begins[number_of(t->text, n)] = some;
    return some;
}

static nb_vocab_token letter_token(const void *ctx, uint32_t id)
{
    static const char *const text[] = { "a",  "b",   "c",   "(",  "ab",  "bc",
                                        "aa", "cab", "abc", "((", "aab(" };
    (void)ctx;
    return (nb_vocab_token){ nb_str_c(text[id]), false };
}

static void compare(all_texts *t, nb_match *m, const char *what, size_t n)
{
    const uint64_t *mask;
    assert_int_equal(nb_match_mask(m, &mask), NB_OK);
    const uint64_t bits = mask[0];
    for (uint32_t id = 0; id < 11; id++) {
        const nb_str s = letter_token(NULL, id).text;
        if (n + s.n_bytes > LONGEST) continue;
        memcpy(t->text + n, s.p, s.n_bytes);
        const bool want = t->begins[number_of(t->text, n + s.n_bytes)];
        if ((bits >> id & 1) != want)
            fail_msg("%s: after \"%.*s\" the token \"%s\" is %s", what, (int)n, t->text, s.p,
                     want ? "refused" : "allowed");
    }
}

static void walk_all(all_texts *t, nb_grammar *g, const char *what, size_t n)
{
    nb_match *m = start_match(g);
    char here[LONGEST + 1];
    memcpy(here, t->text, n);
    if (nb_match_accept_bytes(m, (nb_str){ t->text, n }) == NB_OK) {
        compare(t, m, what, n);
        memcpy(t->text, here, n);
        for (size_t i = 0; n < 5 && i < N_LETTER; i++) {
            t->text[n] = letters[i];
            walk_all(t, g, what, n + 1);
        }
    }
    nb_match_destroy(m);
}

static void test_completions(void **state)
{
    (void)state;
    static const struct {
        nb_grammar_kind kind;
        const char *text;
    } langs[] = {
        { NB_GRAMMAR_REGEX, "(ab|c){2}a?" },
        { NB_GRAMMAR_REGEX, "a{2,4}(b|c)a{0,2}" },
        { NB_GRAMMAR_REGEX, "(a|aa|aab)(bc)?\\({1,2}" },
        { NB_GRAMMAR_REGEX, "([ab]{1,2}c){1,2}[^abc]?" },
        { NB_GRAMMAR_CHOICE, "[\"a\", \"abca\", \"abcb\", \"cab(\", \"((\"]" },
        { NB_GRAMMAR_GBNF,
          "root ::= x y | \"(\" root2\nx ::= \"a\"{2,3}\ny ::= \"b\"? \"c\"\nroot2 ::= x | \"(\"" },
        { NB_GRAMMAR_GBNF,
          "root ::= x x x\nx ::= \"a\" | \"\" | \"b\" never \"c\"\nnever ::= \"a\" never" },
    };
    nb_vocab *v = NULL;
    nb_error e = { 0 };
    assert_int_equal(nb_vocab_create(letter_token, NULL, 11, &v, &e), NB_OK);
    size_t n = 1;
    for (size_t i = 0; i < LONGEST; i++) n *= N_LETTER + 1;
    for (size_t i = 0; i < NB_COUNT(langs); i++) {
        nb_grammar *g = compile_as(v, langs[i].kind, nb_str_c(langs[i].text), false, &e);
        if (!g) fail_msg("%s: %s", langs[i].text, e.msg);
        all_texts t = { .g = g, .begins = calloc(n + 1, 1) };
        assert_non_null(t.begins);
        assert_true(enumerate(&t, 0));
        walk_all(&t, g, langs[i].text, 0);
        free(t.begins);
        nb_grammar_unref(g);
    }
    nb_vocab_destroy(v);
}

/* ---- bounds ---- */

/* Counters are numbers: a state of a long string costs no more than one of a short string, and the mask
 * is the same one far from the end. */
static void test_counters(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    nb_error e;
    nb_grammar *g = compile_as(
        v, NB_GRAMMAR_JSON_SCHEMA,
        nb_str_c("{\"type\":\"string\",\"maxLength\":2147483647,\"minLength\":100000}"), false, &e);
    assert_non_null(g);
    assert_true(nb_grammar_n_node(g) < 100);
    nb_match *m = start_match(g);
    const uint64_t *mask;
    assert_int_equal(nb_match_accept_bytes(m, nb_str_c("\"")), NB_OK);
    for (size_t i = 0; i < 2000; i++) {
        assert_int_equal(nb_match_mask(m, &mask), NB_OK);
        assert_int_equal(nb_match_accept(m, 'x'), NB_OK);
    }
    const nb_match_stats s = nb_match_get_stats(m);
    assert_true(s.n_mask_hit >= 1998);
    nb_match_destroy(m);
    nb_grammar_unref(g);
    nb_vocab_destroy(v);
}

/* Places that differ in a counter only become one. */
static void test_covered(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    nb_error e;
    nb_grammar *g =
        compile_as(v, NB_GRAMMAR_REGEX, nb_str_c("[a-z]{0,9000}[a-z]{2,9000}!"), false, &e);
    assert_non_null(g);
    nb_match *m = start_match(g);
    for (size_t i = 0; i < 4000; i++) {
        assert_int_equal(nb_match_accept(m, 'x'), NB_OK);
        assert_true(m->state[m->now].n_place < 10);
    }
    assert_int_equal(nb_match_accept(m, '!'), NB_OK);
    assert_true(nb_match_complete(m));
    nb_match_destroy(m);
    nb_grammar_unref(g);
    nb_vocab_destroy(v);
}

/* Tables are made anew when they are full: a state's explosion ends in an error, not in memory. */
static void test_flush(void **state)
{
    (void)state;
    nb_vocab *v = test_vocab();
    nb_error e;
    nb_grammar *g = compile_as(v, NB_GRAMMAR_REGEX, nb_str_c("(a|b)*a(a|b){26}"), false, &e);
    assert_non_null(g);
    nb_match *m = start_match(g);
    nb_status st = NB_OK;
    size_t n = 0;
    for (; st == NB_OK && n < 260000; n++) {
        st = nb_match_accept(m, nb_rng_u64(3, n) & 1 ? 'a' : 'b');
        if (n % 10000 == 0) assert_true(nb_match_get_stats(m).bytes < (size_t)200 << 20);
    }
    assert_true(nb_match_get_stats(m).n_flush > 0);
    assert_int_equal(st, NB_OK); /* one state per token: flushes are far apart */
    nb_match_destroy(m);
    nb_grammar_unref(g);
    nb_vocab_destroy(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),    cmocka_unit_test(test_completions),
        cmocka_unit_test(test_counters), cmocka_unit_test(test_covered),
        cmocka_unit_test(test_flush),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
