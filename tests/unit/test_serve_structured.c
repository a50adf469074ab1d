/* test_serve_structured.c - the fields of a request that say what form its answer has. */
#include "engine_testing.h"

#include "grammar/grammar.h"
#include "serve/structured.h"

static nb_text *text;

/* Whether a whole text is in the language, byte by byte. */
static bool accepts(nb_grammar *g, const char *s)
{
    nb_match *m = NULL;
    nb_error e = { 0 };
    if (nb_match_create(g, NB_MATCH_PLAIN, &m, &e) != NB_OK) fail_msg("%s", e.msg);
    bool ok = true;
    for (; *s && ok; s++) ok = nb_match_accept_bytes(m, (nb_str){ s, 1 }) == NB_OK;
    ok = ok && nb_match_accepting(m);
    nb_match_destroy(m);
    return ok;
}

#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"     \
    "\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":false}}},"  \
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"
#define STRICT                                                                                     \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,"              \
    "\"parameters\":{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":"    \
    "\"integer\"}},\"additionalProperties\":false}}}]"
#define CALL(N, A) "<tool_call>\n{\"name\": \"" N "\", \"arguments\": " A "}\n</tool_call>"

/* yes, no: whole answers.  Without them: the request asks for nothing, or is refused with a line about
 * `param`. */
static const struct {
    const char *body, *yes, *no, *param, *line;
} cases[] = {
    { "{\"messages\":[]}", NULL, NULL, NULL, NULL },
    { "{\"response_format\":null}", NULL, NULL, NULL, NULL },
    { "{\"response_format\":{\"type\":\"text\"}}", NULL, NULL, NULL, NULL },
    { "{\"response_format\":{\"type\":\"json_object\"}}", "{\"a\":[1]}", "[1]", NULL, NULL },
    { "{\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"null\"}}}", "null",
      "{}", NULL, NULL },
    { "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":"
      "{\"type\":\"integer\"}}}}",
      "12", "\"a\"", NULL, NULL },
    { "{\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"x\",\"schema\":{\"const\":1}}}}",
      "1", "2", NULL, NULL },
    { "{\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"const\":1}}}}", "1",
      "2", NULL, NULL },
    { "{\"output_config\":{\"effort\":\"low\"}}", NULL, NULL, NULL, NULL },
    { "{\"structured_outputs\":{\"json\":\"{\\\"const\\\": 3}\"}}", "3", "4", NULL, NULL },
    { "{\"structured_outputs\":{\"json\":{\"type\":\"array\"},\"disable_any_whitespace\":true}}",
      "[1,2]", "[1, 2]", NULL, NULL },
    { "{\"structured_outputs\":{\"regex\":\"a+b\"}}", "aab", "ab ", NULL, NULL },
    { "{\"structured_outputs\":{\"choice\":[\"x\",\"y\"]}}", "y", "xy", NULL, NULL },
    { "{\"structured_outputs\":{\"grammar\":\"root ::= \\\"a\\\"\"}}", "a", "b", NULL, NULL },
    { "{\"structured_outputs\":{\"json_object\":true}}", "{}", "1", NULL, NULL },
    { "{\"guided_json\":{\"type\":\"boolean\"}}", "true", "1", NULL, NULL },
    { "{\"guided_regex\":\"[ab]\"}", "b", "c", NULL, NULL },
    { "{\"guided_choice\":[\"p\"]}", "p", "q", NULL, NULL },
    { "{\"guided_grammar\":\"root ::= [x-z]\"}", "z", "w", NULL, NULL },
    { "{\"grammar\":\"root ::= [x-z]\"}", "z", "w", NULL, NULL },
    { "{\"json_schema\":{\"type\":\"null\"}}", "null", "1", NULL, NULL },
    { "{" TOOLS "}", NULL, NULL, NULL, NULL },
    { "{" TOOLS ",\"tool_choice\":\"auto\"}", NULL, NULL, NULL, NULL },
    { "{" TOOLS ",\"tool_choice\":\"none\"}", NULL, NULL, NULL, NULL },
    { "{" TOOLS ",\"tool_choice\":\"required\"}",
      CALL("f", "{\"a\": 1}") "\n" CALL("g", "{\"b\":2}"), CALL("f", "{\"b\": 1}"), NULL, NULL },
    { "{" TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false}", CALL("g", "{}"),
      CALL("g", "{}") "\n" CALL("g", "{}"), NULL, NULL },
    { "{" TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}",
      CALL("g", "{}"), CALL("f", "{}"), NULL, NULL },
    { "{\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\",\"maxProperties\":0}}],"
      "\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}}",
      CALL("f", "{}"), CALL("f", "{\"a\":1}"), NULL, NULL },
    { "{" STRICT "}", "I call " CALL("f", "{\"a\":1}") " and " CALL("f", "{\"a\": 2}"),
      CALL("f", "{}"), NULL, NULL },
    { "{" TOOLS ",\"response_format\":{\"type\":\"json_object\"}}", "{\"x\":1}", "hello", NULL,
      NULL },
    { "{" TOOLS ",\"response_format\":{\"type\":\"json_object\"}}", CALL("g", "{}"), "[1]", NULL,
      NULL },
    /* refused */
    { "{\"response_format\":{\"type\":\"xml\"}}", NULL, NULL, "response_format", "json_schema" },
    { "{\"response_format\":{\"type\":\"json_schema\"}}", NULL, NULL, "response_format", "schema" },
    { "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"properties\":"
      "{\"a\":{\"not\":{}}}}}}}",
      NULL, NULL, "response_format", "#/properties/a/not" },
    { "{\"structured_outputs\":{}}", NULL, NULL, "structured_outputs", "expected one of" },
    { "{\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}}", NULL, NULL,
      "structured_outputs", "one of them" },
    { "{\"structured_outputs\":{\"structural_tag\":\"x\"}}", NULL, NULL, "structured_outputs",
      "structural_tag" },
    { "{\"guided_regex\":\"(\"}", NULL, NULL, "guided_regex", "malformed" },
    { "{\"guided_regex\":\"a\",\"grammar\":\"root ::= \\\"a\\\"\"}", NULL, NULL, "grammar",
      "guided_regex" },
    { "{\"tool_choice\":\"required\"}", NULL, NULL, "tool_choice", "no tools" },
    { "{" TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"h\"}}}", NULL,
      NULL, "tool_choice", "\"h\"" },
    { "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,"
      "\"parameters\":{\"properties\":{\"a\":{\"not\":{}}}}}}]}",
      NULL, NULL, "tools", "tool \"f\": #/properties/a/not" },
};

static void test_fields(void **state)
{
    (void)state;
    const nb_structured s = { .text = text,
                              .call_format = "hermes",
                              .thought_open = "<think>",
                              .thought_close = "</think>" };
    for (size_t i = 0; i < NB_COUNT(cases); i++) {
        const char *body = cases[i].body;
        json_t *doc = json_loads(body, 0, NULL);
        nb_grammar *g = NULL;
        nb_error e = { 0 };
        const char *param = NULL;
        if (!doc) fail_msg("no JSON: %s", body);
        const nb_status st = nb_structured_read(doc, &s, &g, &param, &e);
        const bool asks = cases[i].yes || cases[i].param;
        if ((st != NB_OK) != (cases[i].param != NULL)) fail_msg("%s: %s", body, e.msg);
        if (st == NB_OK && (g != NULL) != asks) fail_msg("%s: %s", body, g ? "a grammar" : "none");
        if (asks && !nb_structured_asked(nb_str_c(body))) fail_msg("%s: not seen", body);
        if (st != NB_OK &&
            (!param || strcmp(param, cases[i].param) != 0 || !strstr(e.msg, cases[i].line)))
            fail_msg("%s: %s: %s", body, param ? param : "NULL", e.msg);
        if (g && !accepts(g, cases[i].yes)) fail_msg("%s refuses %s", body, cases[i].yes);
        if (g && accepts(g, cases[i].no)) fail_msg("%s accepts %s", body, cases[i].no);
        nb_grammar_unref(g);
        json_decref(doc);
    }
}

/* Without a known format, forced calls are refused and strict ones stay as they are; without a tokenizer
 * nothing can be asked for. */
static void test_unknown(void **state)
{
    (void)state;
    nb_structured s = { .text = text };
    json_t *doc = json_loads("{" STRICT "}", 0, NULL);
    nb_grammar *g = NULL;
    nb_error e = { 0 };
    const char *param = NULL;
    assert_int_equal(nb_structured_read(doc, &s, &g, &param, &e), NB_OK);
    assert_null(g);
    assert_int_equal(json_object_set_new(doc, "tool_choice", json_string("required")), 0);
    assert_int_equal(nb_structured_read(doc, &s, &g, &param, &e), NB_ERR_ARG);
    assert_string_equal(param, "tool_choice");
    json_decref(doc);
    doc = json_loads("{\"guided_regex\":\"a\"}", 0, NULL);
    s.text = NULL;
    assert_int_equal(nb_structured_read(doc, &s, &g, &param, &e), NB_ERR_ARG);
    assert_non_null(strstr(e.msg, "tokenizer"));
    json_decref(doc);
    assert_false(
        nb_structured_asked(nb_str_c("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}")));
}

int main(void)
{
    nb_error e = { 0 };
    if (!have_file("models/nibble-tiny/config.json")) {
        (void)fprintf(stderr, "skipped: no bundled model\n");
        return SKIP_EXIT;
    }
    if (nb_text_create(in_source("models/nibble-tiny"), NULL, &text, &e) != NB_OK) {
        (void)fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_unknown),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nb_text_destroy(text);
    return failed;
}
