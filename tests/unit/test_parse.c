/* test_parse.c - the output parser: every committed case under every cutting, and
 * what a case cannot say: formats by name and template, prompts, phases, limits. */
#include "parse_cases.h"

#include "parse/parse_internal.h"

static void committed_cases(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/tests/data/parse/cases.jsonl", tok_source_dir());
    json_t *all = parse_cases_read(path), *c;
    size_t i;
    assert_true(json_array_size(all) > 150);
    json_array_foreach(all, i, c) parse_case_cut(c);
    json_decref(all);
}

/* ---- formats ------------------------------------------------------------- */

/* Every name in the list is one, and is found. */
static void names(void **state)
{
    (void)state;
    const char *const lists[] = { nb_call_format_names(), nb_thought_format_names() };
    size_t n = 0;
    for (size_t k = 0; k < 2; k++)
        for (const char *s = lists[k]; *s; n++) {
            const size_t len = strcspn(s, ",");
            const nb_str name = { s, len };
            assert_true(k ? nb_thought_format_find(name) != NULL
                          : nb_call_format_find(name) != NULL);
            s += len;
            s += strspn(s, ", ");
        }
    assert_int_equal(n, 23);
    assert_null(nb_call_format_find(nb_str_c("qwen3_coder")));
    assert_null(nb_call_format_find(nb_str_c("")));
    assert_null(nb_thought_format_find(nb_str_c("deepseek")));
    const nb_call_format *kimi = nb_call_format_find(nb_str_c("kimi_k2"));
    assert_true(nb_call_format_numbers_calls(kimi));
    assert_int_equal(nb_call_format_style(kimi), NB_CALL_JSON);
    assert_string_equal(nb_call_format_opener(kimi, 0).p, "<|tool_calls_section_begin|>");
    assert_int_equal(nb_call_format_opener(kimi, 9).n_bytes, 0);
    assert_string_equal(nb_call_format_name(nb_call_format_find(nb_str_c("glm45"))), "glm47");
}

static uint32_t find_in_list(const void *ctx, nb_str text)
{
    const char *const *list = ctx;
    for (uint32_t i = 0; list[i]; i++)
        if (nb_str_eqc(text, list[i])) return 100 + i;
    return NB_PARSE_NO_ID;
}

static void expect_detected(const char *tmpl, const char *const *tokens, const char *want)
{
    const nb_token_lookup t = { tokens ? find_in_list : NULL, tokens };
    const nb_call_format *f = nb_call_format_detect(nb_str_c(tmpl), t);
    assert_string_equal(f ? nb_call_format_name(f) : "none", want);
}

static void detection(void **state)
{
    (void)state;
    static const char *const KIMI[] = { "<think>", "</think>", "<|tool_calls_section_begin|>",
                                        NULL },
                             *const QWEN[] = { "<tool_call>", "</tool_call>", NULL };
    expect_detected("{{ messages }}", NULL, "none");
    expect_detected("{{ messages }}", KIMI, "kimi_k2");
    expect_detected("{{ messages }}", QWEN, "hermes");
    expect_detected("x <\uff5ctool\u2581call\u2581begin\uff5c>' + tool['type'] + "
                    "'<\uff5ctool\u2581sep\uff5c>' ```json",
                    KIMI, "deepseek_v3");
    expect_detected("<\uff5ctool\u2581call\u2581begin\uff5c>n<\uff5ctool\u2581sep\uff5c>", QWEN,
                    "deepseek_v31");
    expect_detected("'\uff5cDSML\uff5c' tool_calls", NULL, "deepseek_v4");
    expect_detected("'\uff5cDSML\uff5c' function_calls m['tool_calls']", NULL, "deepseek_v32");
    expect_detected("<tool_call>{{ name }}<arg_key><arg_value>", QWEN, "glm47");
    expect_detected("<tool_call></tool_call>", NULL, "hermes");
    expect_detected("<tool_call><function=x></tool_call>", QWEN, "none");
    expect_detected("<|tool_call_start|><|tool_call_end|>", NULL, "minicpm3");
    expect_detected("<|start_header_id|> {\"name\": n, \"parameters\": p}", NULL, "llama3_json");

    const nb_token_lookup none = { 0 }, kimi = { find_in_list, KIMI };
    assert_null(nb_thought_format_detect(nb_str_c("{{ messages }}"), none));
    assert_non_null(nb_thought_format_detect(nb_str_c("{{ messages }}"), kimi));
    const nb_thought_format *f = nb_thought_format_detect(nb_str_c("x.split('</think>')"), none);
    assert_string_equal(nb_thought_format_close(f).p, "</think>");
    f = nb_thought_format_detect(nb_str_c("<|thought_start|>"), none);
    assert_string_equal(nb_thought_format_name(f), "minicpm3");
    assert_string_equal(nb_thought_format_open(f).p, "<|thought_start|>");
}

/* R1: the last marker of the prompt decides. */
static void prompts(void **state)
{
    (void)state;
    static const char *const MARKS[] = { "<think>", "</think>", NULL };
    const nb_thought_format *f = nb_thought_format_find(nb_str_c("deepseek_r1"));
    const nb_token_lookup ids = { find_in_list, MARKS }, none = { 0 };
    const nb_str no_text = { "", 0 };
    static const uint32_t OPEN[] = { 1, 100, 2 }, CLOSED[] = { 100, 1, 101, 2 },
                          AGAIN[] = { 100, 101, 100 }, NEITHER[] = { 1, 2 };
    assert_true(nb_prompt_in_thought(f, ids, OPEN, 3, no_text));
    assert_false(nb_prompt_in_thought(f, ids, CLOSED, 4, no_text));
    assert_true(nb_prompt_in_thought(f, ids, AGAIN, 3, no_text));
    assert_false(nb_prompt_in_thought(f, ids, NEITHER, 2, nb_str_c("<think>")));
    assert_false(nb_prompt_in_thought(NULL, ids, OPEN, 3, no_text));
    assert_true(nb_prompt_in_thought(f, none, NEITHER, 2, nb_str_c("a</think>b<think>\n")));
    assert_false(nb_prompt_in_thought(f, none, NEITHER, 2, nb_str_c("a<think>b</think>")));
    assert_false(nb_prompt_in_thought(f, none, NEITHER, 2, nb_str_c("<thin")));
    assert_false(nb_prompt_in_thought(f, none, NULL, 0, no_text));
}

/* ---- one answer ---------------------------------------------------------- */

typedef struct seen {
    size_t n_events, n_bytes, fail_at;
    char log[4096];
} seen;

/* Events as text: r:.. c:.. [name id] a:.. ] */
static nb_status log_event(void *ctx, const nb_parse_event *e)
{
    static const char *const SIGN[] = { "r:", "c:", "[", "a:", "]" };
    seen *s = ctx;
    if (++s->n_events == s->fail_at) return NB_ERR_CANCELLED;
    s->n_bytes += e->text.n_bytes;
    const size_t n = strlen(s->log);
    snprintf(s->log + n, sizeof s->log - n, "%s%.*s%s", SIGN[e->kind],
             e->text.n_bytes > 200 ? 0 : (int)e->text.n_bytes, e->text.p ? e->text.p : "",
             e->kind == NB_PARSE_CALL_BEGIN ? e->name : "");
    return NB_OK;
}

static nb_parser *parser_of(const char *calls, const char *const *tokens)
{
    const nb_parse_tool tool = { nb_str_c("f"),
                                 nb_str_c("{\"properties\":{\"n\":{\"type\":\"integer\"}}}") };
    const nb_parser_options o = { .calls = nb_call_format_find(nb_str_c(calls)),
                                  .thought = nb_thought_format_find(nb_str_c("deepseek_r1")),
                                  .tokens = { tokens ? find_in_list : NULL, tokens },
                                  .tools = &tool,
                                  .n_tools = 1 };
    nb_parser *p = NULL;
    assert_int_equal(nb_parser_create(&o, &p, NULL), NB_OK);
    return p;
}

static nb_parse *answer_of(const nb_parser *p, seen *s)
{
    nb_parse *a = NULL;
    assert_int_equal(nb_parse_create(p, 1, log_event, s, &a), NB_OK);
    return a;
}

static void push(nb_parse *a, uint32_t id, const char *text)
{
    assert_int_equal(nb_parse_push(a, id, nb_str_c(text)), NB_OK);
}

/* Phases, the count of reasoning tokens, and events as early as they are certain. */
static void streaming(void **state)
{
    (void)state;
    static const char *const MARKS[] = { "<think>", "</think>", "<tool_call>", "</tool_call>",
                                         NULL };
    nb_parser *p = parser_of("hermes", MARKS);
    seen s = { 0 };
    nb_parse *a = answer_of(p, &s);
    size_t n_ids;
    const uint32_t *ids = nb_parser_marker_ids(p, &n_ids);
    assert_int_equal(n_ids, 4);
    for (size_t i = 0; i < n_ids; i++) assert_int_equal(ids[i], 100 + i);
    assert_int_equal(nb_parse_where(a), NB_PARSE_IN_CONTENT);
    push(a, 100, "<think>");
    assert_int_equal(nb_parse_where(a), NB_PARSE_IN_REASONING);
    push(a, 1, "I ");
    push(a, 2, ""); /* half a character */
    push(a, 3, "\xc3\xbc <tool_call>");
    assert_string_equal(s.log, "r:I r:\xc3\xbc <tool_call>"); /* not the token: nothing waits */
    push(a, 101, "</think>");
    assert_int_equal(nb_parse_where(a), NB_PARSE_IN_CONTENT);
    assert_int_equal(nb_parse_n_reasoning_tokens(a), 3);
    push(a, 4, "\n\n");
    push(a, 5, "Yes.");
    push(a, 102, "<tool_call>");
    assert_int_equal(nb_parse_where(a), NB_PARSE_IN_CALLS);
    push(a, 6, "{\"name\": \"f\"");
    assert_int_equal(nb_parse_n_calls(a), 1);
    push(a, 7, ", \"arguments\": {\"n\"");
    push(a, 8, ": 1}}");
    push(a, 103, "</tool_call>");
    push(a, 9, "\n");
    assert_int_equal(nb_parse_finish(a, NB_PARSE_END_STOP), NB_OK);
    assert_string_equal(s.log, "r:I r:\xc3\xbc <tool_call>c:\n\nYes.[fa:{\"n\"a:: 1}]");
    nb_parse_destroy(a);
    nb_parser_destroy(p);

    p = parser_of("deepseek_v31", NULL);
    s = (seen){ 0 };
    a = answer_of(p, &s);
    push(a, NB_PARSE_NO_ID,
         "A<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>f"
         "<\uff5ctool\u2581sep\uff5c>{}<\uff5ctool\u2581call\u2581end\uff5c>"
         "<\uff5ctool\u2581calls\u2581end\uff5c>");
    assert_int_equal(nb_parse_where(a), NB_PARSE_AFTER_CALLS);
    assert_string_equal(s.log, "c:A[fa:{}]");
    nb_parse_destroy(a);
    nb_parser_destroy(p);
}

/* A token in front of which the detokenizer held something back. */
static void held_characters(void **state)
{
    (void)state;
    static const char *const MARKS[] = { "<think>", "</think>", "<tool_call>", "</tool_call>",
                                         NULL };
    nb_parser *p = parser_of("hermes", MARKS);
    seen s = { 0 };
    nb_parse *a = answer_of(p, &s);
    push(a, 102, "\xef\xbf\xbd<tool_call>");
    push(a, 1, "{\"name\":\"f\"}");
    push(a, 103, ""); /* the text of a marker is known without the detokenizer */
    assert_int_equal(nb_parse_finish(a, NB_PARSE_END_STOP), NB_OK);
    assert_string_equal(s.log, "c:\xef\xbf\xbd[fa:{}]");
    nb_parse_destroy(a);
    nb_parser_destroy(p);
}

/* Without formats everything is content; without one of them, its markers are. */
static void switched_off(void **state)
{
    (void)state;
    nb_parser_options o = { 0 };
    nb_parser *p = NULL;
    assert_int_equal(nb_parser_create(&o, &p, NULL), NB_OK);
    seen s = { 0 };
    nb_parse *a = answer_of(p, &s);
    push(a, NB_PARSE_NO_ID, " <think>a</think><tool_call>{\"name\": \"f\"}</tool_call>");
    assert_int_equal(nb_parse_finish(a, NB_PARSE_END_STOP), NB_OK);
    assert_string_equal(s.log, "c: <think>a</think><tool_call>{\"name\": \"f\"}</tool_call>");
    nb_parse_destroy(a);
    nb_parser_destroy(p);

    o.thought = nb_thought_format_find(nb_str_c("qwen3"));
    assert_int_equal(nb_parser_create(&o, &p, NULL), NB_OK);
    s = (seen){ 0 };
    a = answer_of(p, &s);
    push(a, NB_PARSE_NO_ID, "<think>a<tool_call></think><tool_call>b");
    assert_int_equal(nb_parse_finish(a, NB_PARSE_END_LENGTH), NB_OK);
    assert_string_equal(s.log, "r:a<tool_call>c:<tool_call>b");
    nb_parse_destroy(a);
    nb_parser_destroy(p);
}

/* A callback that fails stops the parser for good. */
static void callback_fails(void **state)
{
    (void)state;
    nb_parser *p = parser_of("glm47", NULL);
    for (size_t k = 1; k <= 5; k++) {
        seen s = { .fail_at = k };
        nb_parse *a = answer_of(p, &s);
        nb_status st = NB_OK;
        for (const char *t =
                 "A<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value></tool_call>B";
             *t && st == NB_OK; t++)
            st = nb_parse_push(a, NB_PARSE_NO_ID, (nb_str){ t, 1 });
        assert_int_equal(st, NB_ERR_CANCELLED);
        assert_int_equal(nb_parse_push(a, 1, nb_str_c("x")), NB_ERR_CANCELLED);
        assert_int_equal(nb_parse_finish(a, NB_PARSE_END_STOP), NB_ERR_CANCELLED);
        assert_int_equal(s.n_events, k);
        nb_parse_destroy(a);
    }
    nb_parser_destroy(p);
}

/* Text without end behind an opener, in a held value, in a name, in blanks. */
static void limits(void **state)
{
    (void)state;
    static const struct {
        const char *family, *start;
        char fill;
        bool kept; /* all of it comes out as text */
    } CASES[] = {
        { "hermes", "<tool_call>{\"arguments\": \"", 'x', true },
        { "deepseek_v3", "<\uff5ctool\u2581calls\u2581begin\uff5c>", 'x', true },
        { "glm47", "<tool_call>", 'x', true },
        { "glm47", "<tool_call>f<arg_key>n</arg_key><arg_value>", '1', true },
        { "glm47", "<tool_call>f<arg_key>input</arg_key><arg_value>", '{', true },
        { "glm47", "<tool_call>f<arg_key>", 'k', false },
        { "minicpm3", "<|tool_call_start|>f(a=\"", 'x', true },
        { "kimi_k2", "", ' ', true },
        { "kimi_k2", "", '\n', true },
    };
    char *chunk = malloc(1 << 20);
    assert_non_null(chunk);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        nb_parser *p = parser_of(CASES[i].family, NULL);
        seen s = { 0 };
        nb_parse *a = answer_of(p, &s);
        push(a, NB_PARSE_NO_ID, CASES[i].start);
        memset(chunk, CASES[i].fill, 1 << 20);
        const size_t n_chunks = 2 + (NB_PARSE_MAX_HELD_BYTES >> 20);
        for (size_t k = 0; k < n_chunks; k++)
            assert_int_equal(nb_parse_push(a, NB_PARSE_NO_ID, (nb_str){ chunk, 1 << 20 }), NB_OK);
        assert_true(a->raw.cap_bytes <= 2 * NB_PARSE_MAX_HELD_BYTES + 4096);
        assert_true(a->hold.cap_bytes <= 2 * NB_PARSE_MAX_HELD_BYTES + 4096);
        assert_true(a->value.cap_bytes <= 2 * NB_PARSE_MAX_HELD_BYTES + 4096);
        assert_true(a->name.cap_bytes <= 4096);
        assert_int_equal(nb_parse_finish(a, NB_PARSE_END_STOP), NB_OK);
        if (CASES[i].kept) assert_true(s.n_bytes >= n_chunks << 20);
        nb_parse_destroy(a);
        nb_parser_destroy(p);
    }
    free(chunk);

    nb_error err;
    nb_parser *p = NULL;
    char name[NB_PARSE_MAX_NAME_BYTES + 2];
    memset(name, 'n', sizeof name);
    const nb_parse_tool tool = { { name, sizeof name - 1 }, { "", 0 } };
    const nb_parser_options o = { .tools = &tool, .n_tools = 1 };
    assert_int_equal(nb_parser_create(&o, &p, &err), NB_ERR_LIMIT);
    assert_string_equal(err.msg, "a tool's name has 257 bytes, at most 256 are accepted");
}

/* ---- parts --------------------------------------------------------------- */

static unsigned types_of(const char *schema)
{
    char text[1024];
    nb_ptools t;
    snprintf(text, sizeof text,
             "{\"properties\":{\"p\":%s},\"$defs\":{\"s\":{\"type\":\"string\"},\"a/b\":{\"type\":"
             "\"null\"},\"loop\":{\"anyOf\":[{\"$ref\":\"#/$defs/loop\"},{\"$ref\":\"#/$defs/"
             "loop\"}]}}}",
             schema);
    const nb_parse_tool in = { nb_str_c("t"), nb_str_c(text) };
    assert_int_equal(nb_ptools_create(&in, 1, &t, NULL), NB_OK);
    const unsigned types = nb_ptool_types(nb_ptools_find(&t, nb_str_c("t")), nb_str_c("p"));
    assert_int_equal(nb_ptool_types(nb_ptools_find(&t, nb_str_c("t")), nb_str_c("q")), 0);
    assert_null(nb_ptools_find(&t, nb_str_c("u")));
    nb_ptools_deinit(&t);
    return types;
}

/* T10: what a schema admits. */
static void schema_types(void **state)
{
    (void)state;
    const unsigned number = NB_PT_INTEGER | NB_PT_FRACTION;
    assert_int_equal(types_of("{\"type\":\"string\"}"), NB_PT_STRING);
    assert_int_equal(types_of("{\"type\":\"number\"}"), number);
    assert_int_equal(types_of("{\"type\":[\"integer\",\"null\"]}"), NB_PT_INTEGER | NB_PT_NULL);
    assert_int_equal(types_of("{}"), NB_PT_ALL);
    assert_int_equal(types_of("true"), NB_PT_ALL);
    assert_int_equal(types_of("{\"type\":\"wrong\"}"), NB_PT_ALL);
    assert_int_equal(types_of("{\"enum\":[\"a\",\"b\"]}"), NB_PT_STRING);
    assert_int_equal(types_of("{\"enum\":[\"a\",1]}"), NB_PT_STRING | NB_PT_INTEGER);
    assert_int_equal(types_of("{\"const\":1.5}"), NB_PT_FRACTION);
    assert_int_equal(types_of("{\"type\":\"string\",\"nullable\":true}"),
                     NB_PT_STRING | NB_PT_NULL);
    assert_int_equal(types_of("{\"$ref\":\"#/$defs/s\"}"), NB_PT_STRING);
    assert_int_equal(types_of("{\"$ref\":\"#/$defs/a~1b\"}"), NB_PT_NULL);
    assert_int_equal(types_of("{\"$ref\":\"#/$defs/none\"}"), NB_PT_ALL);
    assert_int_equal(types_of("{\"$ref\":\"http://x\"}"), NB_PT_ALL);
    assert_int_equal(types_of("{\"anyOf\":[{\"type\":\"boolean\"},{\"$ref\":\"#/$defs/s\"}]}"),
                     NB_PT_BOOLEAN | NB_PT_STRING);
    assert_int_equal(types_of("{\"allOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}"),
                     NB_PT_INTEGER);
    assert_int_equal(types_of("{\"allOf\":[{\"type\":\"array\"},{\"type\":\"object\"}]}"),
                     NB_PT_ALL);
    assert_int_equal(types_of("{\"$ref\":\"#/$defs/loop\"}"), NB_PT_ALL); /* and ends */
    assert_int_equal(types_of("{\"enum\":[]}"), NB_PT_ALL);

    assert_int_equal(nb_json_text_type(nb_str_c(" 2.0\n")), NB_PT_INTEGER);
    assert_int_equal(nb_json_text_type(nb_str_c("123456789012345678901234567890")), NB_PT_INTEGER);
    assert_int_equal(nb_json_text_type(nb_str_c("1 2")), 0);
    assert_int_equal(nb_json_text_type(nb_str_c("")), 0);
    assert_int_equal(nb_json_text_type(nb_str_c("[1,]")), 0);
    assert_int_equal(nb_json_text_type(nb_str_c("\"a\\u0000\"")), NB_PT_STRING);
}

static void expect_python(const char *text, const char *want)
{
    nb_buf b = { 0 };
    nb_str name;
    const nb_status st = nb_python_call(nb_str_c(text), &name, &b);
    assert_int_equal(st, want ? NB_OK : NB_ERR_FORMAT);
    if (want) assert_string_equal(b.p, want);
    nb_buf_deinit(&b);
}

static void python(void **state)
{
    (void)state;
    char deep[400];
    expect_python("f()", "{}");
    expect_python("f(a=1,b='x')", "{\"a\": 1, \"b\": \"x\"}");
    expect_python("f(a=1., b=.5e-3, c=-0, d=+2)",
                  "{\"a\": 1.0, \"b\": 0.5e-3, \"c\": -0, \"d\": 2}");
    expect_python("f(a='\\ud83d\\ude42 \\ud83d', b=\"\\\n\")",
                  "{\"a\": \"\xf0\x9f\x99\x82 \xef\xbf\xbd\", \"b\": \"\"}");
    expect_python("f(a={'k': (1, 2,), \"l\": []})", "{\"a\": {\"k\": [1, 2], \"l\": []}}");
    expect_python("f(a='\\x0')", NULL);
    expect_python("f(a=1e)", NULL);
    expect_python("f(a=.)", NULL);
    expect_python("f(a={1: 2})", NULL);
    expect_python("f(a=[1 2])", NULL);
    expect_python("f(a=1)x", NULL);
    expect_python("f(a=0x10)", NULL);
    expect_python("f", NULL);
    memset(deep, '[', sizeof deep);
    memcpy(deep, "f(a=", 4);
    memset(deep + 200, ']', 199);
    deep[399] = 0;
    expect_python(deep, NULL);
}

/* No marker may hide inside another one of the same state: the lexer takes the
 * first that is complete. */
static void tables(void **state)
{
    (void)state;
    for (const char *s = nb_call_format_names(); *s; s += strspn(s, ", ")) {
        const size_t len = strcspn(s, ",");
        const nb_prow *r = nb_call_format_find((nb_str){ s, len })->rows;
        s += len;
        for (size_t i = 0; i < NB_FORMAT_MAX_ROWS && r[i].text; i++) {
            assert_true(strlen(r[i].text) < NB_PARSE_MAX_MARKER_BYTES);
            for (size_t k = 0; k < NB_FORMAT_MAX_ROWS && r[k].text; k++) {
                if (i == k || !(r[i].in & r[k].in)) continue;
                const char *hit = strstr(r[k].text, r[i].text);
                if (hit && hit[strlen(r[i].text)]) fail_msg("%s in %s", r[i].text, r[k].text);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(committed_cases), cmocka_unit_test(names),
        cmocka_unit_test(detection),       cmocka_unit_test(prompts),
        cmocka_unit_test(streaming),       cmocka_unit_test(held_characters),
        cmocka_unit_test(switched_off),    cmocka_unit_test(callback_fails),
        cmocka_unit_test(limits),          cmocka_unit_test(schema_types),
        cmocka_unit_test(python),          cmocka_unit_test(tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
