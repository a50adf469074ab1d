/* test_chat_style.c - how a template takes tools, and what a conversation becomes for it: roles,
 * calls, ids, results, system texts, marks where a text spells a control token. */
#include "jinja_test.h"

#include "text/chat_style.h"
#include "tok_test.h"

/* ---- templates of every kind ---- */

#define HEAD "{% for m in messages %}<{{ m.role }}{{ ' ' + m.name if m.name else '' }}>"
#define TAIL "{% endfor %}"
#define CALLS(args)                                                                                \
    "{{ m.content if m.content is not none else '' }}{% for c in m.tool_calls or [] %}"            \
    "[{{ c.id }} {{ c.function.name }} " args "]{% endfor %}"                                      \
    "{% if m.tool_call_id %}({{ m.tool_call_id }}){% endif %}"
static const char
    plain[] = "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}" TAIL,
    strings[] = HEAD CALLS("{{ '' + c.function.arguments }}") TAIL,
    objects[] = "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}" HEAD CALLS(
        "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}") TAIL,
    v3[] = "{% for m in messages %}{% if m.role == 'system' %}S:{{ m.content }}|{% endif %}" TAIL HEAD
        "{% if m.content is none %}-{% elif m.role != 'system' %}{{ m.content }}{% endif %}"
        "{% for c in m.tool_calls or [] %}function<｜tool▁sep｜>{{ c.function.name + "
        "c.function.arguments }}{% endfor %}" TAIL,
    kimi[] = "{{ tools | tojson if tools else '' }}" HEAD CALLS(
        "<|tool_call_begin|>{{ c.function.arguments if c.function.arguments is string else "
        "c.function.arguments | tojson }}") TAIL,
    first_only[] = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
                   "{{ raise_exception('late') }}{% endif %}<{{ m.role }}>{{ m.content }}" TAIL;

static nb_jinja *parse(const char *source)
{
    nb_jinja *t = NULL;
    nb_error err = { 0 };
    if (nb_jinja_parse(nb_str_c(source), &t, &err) != NB_OK) fail_msg("%s: %s", source, err.msg);
    return t;
}

static void test_found(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        bool tools, calls, null_content, system_anywhere, kimi_ids;
        nb_chat_form arguments;
        const char *own;
    } rows[] = {
        { plain, false, false, false, true, false, NB_CHAT_FORM_UNKNOWN, "hermes" },
        { strings, false, true, true, true, false, NB_CHAT_FORM_STRING, NULL },
        { objects, true, true, true, true, false, NB_CHAT_FORM_OBJECT, NULL },
        { v3, false, true, true, true, false, NB_CHAT_FORM_STRING, "deepseek_v3" },
        { kimi, true, true, true, true, true, NB_CHAT_FORM_STRING, NULL },
        { first_only, false, false, false, false, false, NB_CHAT_FORM_UNKNOWN, "hermes" },
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        nb_jinja *t = parse(rows[i].source);
        nb_chat_style s;
        nb_chat_style_find(t, NULL, &s);
        if (s.tools != rows[i].tools || s.calls != rows[i].calls ||
            s.null_content != rows[i].null_content || s.kimi_ids != rows[i].kimi_ids ||
            s.system_anywhere != rows[i].system_anywhere || s.arguments != rows[i].arguments)
            fail_msg("%s: %d %d %d %d %d %d", rows[i].source, s.tools, s.calls, s.null_content,
                     s.system_anywhere, s.kimi_ids, (int)s.arguments);
        assert_true(!s.own == !rows[i].own);
        if (s.own) assert_string_equal(s.own->family, rows[i].own);
        nb_jinja_destroy(t);
    }
}

/* ---- conversations ---- */

static void expect_with(const nb_tokenizer *tok, const char *source, const char *request,
                        const char *want)
{
    nb_jinja *t = parse(source);
    nb_chat_style s;
    nb_error err = { 0 };
    nb_buf out = { 0 };
    json_t *rq = json_loads(request, JSON_ALLOW_NUL, NULL);
    if (!rq) fail_msg("%s", request);
    nb_chat_style_find(t, NULL, &s);
    const nb_chat_input in = { .request = rq, .refuse_unseen = true, .style = &s, .tokenizer = tok };
    if (nb_chat_render(t, &in, &out, &err) != NB_OK) fail_msg("%s\n%s: %s", source, request, err.msg);
    assert_string_equal(out.p ? out.p : "", want);
    nb_buf_deinit(&out);
    json_decref(rq);
    nb_jinja_destroy(t);
}

static void expect(const char *source, const char *request, const char *want)
{
    expect_with(NULL, source, request, want);
}

#define CALL(id, name, args)                                                                       \
    "{\"id\":\"" id "\",\"function\":{\"name\":\"" name "\",\"arguments\":" args "}}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"

static void test_calls(void **state)
{
    (void)state;
    static const char two[] =
        "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":["
        CALL("a", "f", "\"{\\\"x\\\":1,  \\\"y\\\":\\\"</b>\\\"}\"") ","
        CALL("b", "g", "{\"z\":[1,2]}") "]}," RESULT("b", "two") "," RESULT("a", "one") "]}";
    /* a string stays byte for byte, an object is written as Python does; results get names */
    expect(strings, two,
           "<assistant>[a f {\"x\":1,  \"y\":\"</b>\"}][b g {\"z\": [1, 2]}]"
           "<tool g>two(b)<tool f>one(a)");
    expect(objects, two, "<assistant>[a f x=1;y=</b>;][b g z=[1, 2];]<tool g>two(b)<tool f>one(a)");
    /* ids of Kimi: in order of appearance, calls and results alike; its own stay */
    expect(kimi, two,
           "<assistant>[functions.f:0 f <|tool_call_begin|>{\"x\":1,  \"y\":\"</b>\"}]"
           "[functions.g:1 g <|tool_call_begin|>{\"z\": [1, 2]}]"
           "<tool g>two(functions.g:1)<tool f>one(functions.f:0)");
    expect(kimi,
           "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":["
           CALL("functions.f:7", "f", "\"{}\"") "]},"
           "{\"role\":\"assistant\",\"tool_calls\":[" CALL("t", "f", "\"\"") "]}," RESULT("t", "r") "]}",
           "<assistant>[functions.f:7 f <|tool_call_begin|>{}]"
           "<assistant>[functions.f:1 f <|tool_call_begin|>{}]<tool f>r(functions.f:1)");
    /* no calls, no JSON, no arguments, an unknown id */
    expect(strings, "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]},"
                    RESULT("no", "") "]}", "<assistant><tool>(no)");
    expect(objects, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":["
                    CALL("a", "f", "\"{broken\"") "," CALL("b", "g", "null") "]}]}",
           "<assistant>[a f _raw={broken;][b g ]");
}

static void test_without_a_template_for_calls(void **state)
{
    (void)state;
    expect(plain,
           "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"go\","
           "\"tool_calls\":[" CALL("a", "f", "\"{\\\"x\\\":1}\"") "," CALL("b", "g", "\"\"") "]},"
           RESULT("a", "one") "," RESULT("b", "two") ",{\"role\":\"user\",\"content\":\"more\"}]}",
           "<user>q<assistant>go\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\n"
           "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"
           "<user><tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response><user>more");
}

/* The declarations come first, each on a line; the client's system text follows. */
static void test_own_declarations(void **state)
{
    (void)state;
    static const char request[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"Be kind.\"},{\"role\":\"user\",\"content\":\"q\"}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"a\":1}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"description\":\"G\"}}]}";
    for (int i = 0; i < 2; i++) {
        nb_jinja *t = parse(i ? v3 : plain);
        nb_chat_style s;
        nb_error err;
        nb_buf out = { 0 };
        json_t *rq = json_loads(request, 0, NULL);
        nb_chat_style_find(t, NULL, &s);
        const nb_chat_input in = { .request = rq, .style = &s };
        assert_int_equal(nb_chat_render(t, &in, &out, &err), NB_OK);
        const char *lines = strstr(out.p, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n{\"name\": \"g\", "
                                         "\"description\": \"G\", \"parameters\": {\"type\": \"object\", "
                                         "\"properties\": {}}}\n");
        assert_non_null(lines);
        const char *how = strstr(lines, i ? "function<｜tool▁sep｜>NAME" : "<tool_call>\n{\"name\": NAME");
        assert_non_null(how);
        assert_non_null(strstr(how, "\n\nBe kind."));
        nb_buf_deinit(&out);
        json_decref(rq);
        nb_jinja_destroy(t);
    }
}

static void test_roles_and_contents(void **state)
{
    (void)state;
    expect(plain, "{\"messages\":[{\"role\":\"developer\",\"content\":\"a\"},"
                  "{\"role\":\"assistant\",\"content\":null},{\"role\":\"tool\",\"content\":[]}]}",
           "<system>a<assistant><user><tool_response>\n\n</tool_response>");
    expect("{% for m in messages %}<{{ m.role }}>{{ m.reasoning }}/{{ m.reasoning_content }}" TAIL,
           "{\"messages\":[{\"role\":\"assistant\",\"reasoning\":\" a \"},"
           "{\"role\":\"assistant\",\"reasoning_content\":\"b\\n\",\"reasoning\":null},{\"role\":\"assistant\"}]}",
           "<assistant> a / a <assistant>b\n/b\n<assistant>/");
    static const char late[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"},"
        "{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"c\"}]},"
        "{\"role\":\"system\",\"content\":\"d\"}]}";
    expect(plain, late, "<system>a<user>b<system>c<system>d");
    expect(first_only, late, "<system>a\n\nc\n\nd<user>b");
    expect(first_only, "{\"messages\":[{\"role\":\"user\",\"content\":\"b\"},"
                       "{\"role\":\"system\",\"content\":\"c\"}]}", "<system>c<user>b");
}

/* ---- control tokens in texts ---- */

static nb_tokenizer *tiny(nb_buf *json)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/models/nibble-tiny/tokenizer.json", tok_source_dir());
    *json = tok_read_path(path);
    const nb_tokenizer_files files = { .tokenizer_json = nb_buf_view(json) };
    return tok_make(&files);
}

#define M NB_CHAT_MARK
static void test_marks(void **state)
{
    (void)state;
    nb_buf json;
    nb_tokenizer *tok = tiny(&json);
    expect_with(tok, plain,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"a<|end|><|user|>b \xef\xb7\x90\"}]}",
                "<user>a<" M "|end|><" M "|user|>b " M M);
    expect_with(tok, objects,
                "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"<|end|>\"}],"
                "\"tool_calls\":[" CALL("a", "f", "\"{\\\"<|end|>\\\":\\\"<|end|>\\\"}\"") "]}],"
                "\"tools\":[{\"function\":{\"name\":\"<|end|>\",\"parameters\":{}}}]}",
                "{\"function\": {\"name\": \"<" M "|end|>\", \"parameters\": {}}}\n<assistant><" M "|end|>[a f <" M
                "|end|>=<" M "|end|>;]");
    nb_tokenizer_destroy(tok);
    nb_buf_deinit(&json);
}

/* The ids of a marked text are those of its parts: the template's tokens are found, those that a
 * message spells are not, and the text that comes back is the same. */
static void test_marked_ids(void **state)
{
    (void)state;
    nb_buf json, text = { 0 }, back = { 0 };
    nb_tokenizer *tok = tiny(&json);
    nb_error err = { 0 };
    size_t *mark = NULL, n_mark = 0, n = 0;
    uint32_t *ids = NULL;
    const uint32_t end = nb_tokenizer_find(tok, nb_str_c("<|end|>"));
    assert_int_equal(nb_buf_add_c(&text, "<|user|>x<" M "|end|>" M M "<|end|>"), NB_OK);
    assert_int_equal(nb_chat_unmark(&text, &mark, &n_mark), NB_OK);
    assert_string_equal(text.p, "<|user|>x<|end|>" M "<|end|>");
    assert_int_equal(n_mark, 1);
    assert_int_equal(mark[0], strlen("<|user|>x<"));
    assert_int_equal(nb_tokenizer_encode_marked(tok, nb_buf_view(&text), NB_TOK_PARSE_SPECIAL, mark,
                                                n_mark, &ids, &n, &err), NB_OK);
    size_t n_end = 0;
    for (size_t i = 0; i < n; i++) n_end += ids[i] == end;
    assert_int_equal(n_end, 1);
    assert_int_equal(ids[n - 1], end);
    assert_int_equal(nb_tokenizer_decode(tok, ids, n, false, &back), NB_OK);
    assert_string_equal(back.p, text.p);
    free(ids);
    free(mark);
    nb_buf_deinit(&text);
    nb_buf_deinit(&back);
    nb_tokenizer_destroy(tok);
    nb_buf_deinit(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_without_a_template_for_calls),
        cmocka_unit_test(test_own_declarations),
        cmocka_unit_test(test_roles_and_contents),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_marked_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
