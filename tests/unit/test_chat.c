/* test_chat.c - chat requests to prompts: which variables a template sees, the
 * forms of content and of tool-call arguments, continue_final_message, refusals. */
#include "jinja_test.h"

static const char plain[] =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

/* Templates of the three kinds: concatenating strings, walking objects, tojson. */
#define CALLS "{% for m in messages %}{% for c in m.tool_calls or [] %}"
#define ENDS "{% endfor %}{% endfor %}"
static const char wants_string[] = CALLS "{{ c.function.name + ' ' + c.function.arguments }};" ENDS;
static const char wants_object[] = CALLS
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}" ENDS;
static const char wants_json[] = CALLS "{{ c.function.arguments | tojson }};" ENDS;
static const char prints_any[] = CALLS "{{ c.function.name ~ ' ' ~ c.function.arguments }};" ENDS;

typedef struct run_opts {
    nb_chat_args args;
    const char *special;
    bool refuse_unseen;
} run_opts;

static nb_status run(const char *source, const char *request, run_opts o, nb_buf *out, nb_error *err)
{
    nb_jinja *t = NULL;
    json_error_t je;
    *err = (nb_error){ 0 };
    if (nb_jinja_parse(nb_str_c(source), &t, err) != NB_OK) fail_msg("%s: %s", source, err->msg);
    json_t *req = json_loads(request, JSON_DECODE_ANY, &je);
    if (!req) fail_msg("%s: %s", request, je.text);
    json_t *before = json_deep_copy(req);
    json_t *special = o.special ? json_loads(o.special, 0, NULL) : NULL;
    const nb_chat_input in = { .request = req, .special_tokens = special, .args = o.args,
                               .refuse_unseen = o.refuse_unseen };
    const nb_status st = nb_chat_render(t, &in, out, err);
    assert_true(json_equal(req, before)); /* borrowed, not modified */
    json_decref(before);
    json_decref(req);
    json_decref(special);
    nb_jinja_destroy(t);
    return st;
}

static void expect(const char *source, const char *request, run_opts o, const char *want)
{
    nb_buf out = { 0 };
    nb_error err;
    if (run(source, request, o, &out, &err) != NB_OK) fail_msg("%s\n%s: %s", source, request, err.msg);
    assert_string_equal(out.p ? out.p : "", want);
    nb_buf_deinit(&out);
}

static void expect_error(const char *source, const char *request, run_opts o, nb_status status,
                         const char *part)
{
    nb_buf out = { 0 };
    nb_error err;
    assert_int_equal(nb_buf_add_c(&out, "kept"), NB_OK);
    const nb_status st = run(source, request, o, &out, &err);
    if (st != status || !strstr(err.msg, part))
        fail_msg("%s: %d \"%s\", wanted %d \"%s\"", request, (int)st, err.msg, (int)status, part);
    assert_string_equal(out.p, "kept");
    nb_buf_deinit(&out);
}

static const run_opts dflt;
#define USER(content) "{\"messages\": [{\"role\": \"user\", \"content\": " content "}]}"

static void test_variables(void **state)
{
    (void)state;
    expect(plain, USER("\"hi\""), dflt, "<user>hi<assistant>");
    expect(plain, "{\"messages\": [{\"role\": \"u\", \"content\": \"x\"}], "
                  "\"add_generation_prompt\": false}", dflt, "<u>x");
    expect("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}"
           "{{ thinking is defined }}", USER("\"\""), dflt, "TrueTrueTrueFalse");
    expect("{{ thinking }}{{ x.y }}{{ tools|length }}{{ documents[0] }}{{ reasoning_effort }}",
           "{\"messages\": [{\"role\": \"user\"}], \"tools\": [{}, {}], \"documents\": [\"d\"], "
           "\"reasoning_effort\": \"low\", "
           "\"chat_template_kwargs\": {\"thinking\": true, \"x\": {\"y\": 1.5}}}",
           dflt, "True1.52dlow");
    /* a whole tokenizer_config.json as the source of the special tokens */
    expect("{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ unk_token is defined }}"
           "{{ model_max_length is defined }}", USER("\"\""),
           (run_opts){ .special = "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\", "
                                  "\"lstrip\": false}, \"pad_token\": null, "
                                  "\"model_max_length\": 4096}" },
           "<s></s>FalseFalseFalse");
    expect("{{ messages[0].name }}{{ messages[0].extra }}",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"\", \"name\": \"bob\", "
           "\"extra\": [1]}]}", dflt, "bob[1]");
}

static void test_content(void **state)
{
    (void)state;
    static const char loops[] = "{% for m in messages %}{% if m.content is string %}S{{ m.content }}"
                                "{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}"
                                "{% endif %}{% endfor %}";
    static const char parts[] = USER("[{\"type\": \"text\", \"text\": \"a\"}, "
                                     "{\"type\": \"text\", \"text\": \"b\"}]");
    expect(plain, parts, dflt, "<user>a\nb<assistant>");
    expect(loops, parts, dflt, "[a][b]");
    expect(loops, USER("\"x\""), dflt, "Sx");
    expect(plain, USER("[]"), dflt, "<user><assistant>");
    expect("{{ messages[0].content is none }}{{ messages[1].content is defined }}",
           "{\"messages\": [{\"role\": \"a\", \"content\": null}, {\"role\": \"b\"}]}", dflt,
           "TrueFalse");
    expect_error(plain, USER("[{\"type\": \"image_url\", \"image_url\": {\"url\": \"x\"}}]"), dflt,
                 NB_ERR_UNSUPPORTED, "messages[0].content[0]: parts of type \"image_url\"");
    expect_error(loops, USER("[{\"type\": \"text\", \"text\": \"\"}, {\"type\": \"input_audio\"}]"),
                 dflt, NB_ERR_UNSUPPORTED, "content[1]: parts of type \"input_audio\"");
    expect_error(plain, USER("[{\"type\": \"text\"}]"), dflt, NB_ERR_ARG, "content[0].text must be");
    expect_error(plain, USER("[\"x\"]"), dflt, NB_ERR_ARG, "content[0] must be an object");
    expect_error(plain, USER("5"), dflt, NB_ERR_ARG, "messages[0].content must be");
    expect_error(plain, USER("{}"), dflt, NB_ERR_ARG, "messages[0].content must be");
}

static void test_wrong_requests(void **state)
{
    (void)state;
    static const struct {
        const char *request, *part;
    } rows[] = {
        { "[]", "must be a JSON object" },
        { "{}", "messages must be an array" },
        { "{\"messages\": {}}", "messages must be an array" },
        { "{\"messages\": []}", "at least one" },
        { "{\"messages\": [5]}", "messages[0] must be an object" },
        { "{\"messages\": [{\"role\": \"u\"}, {\"content\": \"x\"}]}", "messages[1].role" },
        { "{\"messages\": [{\"role\": 5}]}", "messages[0].role" },
        { "{\"messages\": [{\"role\": \"a\", \"tool_calls\": {}}]}", "tool_calls must be an array" },
        { "{\"messages\": [{\"role\": \"a\", \"tool_calls\": [1]}]}", "must hold objects" },
        { "{\"messages\": [{\"role\": \"a\", \"tool_calls\": [{\"function\": {}}]}]}", "name" },
        { "{\"messages\": [{\"role\": \"u\"}], \"tools\": {}}", "tools must be an array" },
        { "{\"messages\": [{\"role\": \"u\"}], \"documents\": 1}", "documents must be" },
        { "{\"messages\": [{\"role\": \"u\"}], \"chat_template_kwargs\": []}", "chat_template_kwargs" },
        { "{\"messages\": [{\"role\": \"u\"}], \"add_generation_prompt\": 1}", "true or false" },
        { "{\"messages\": [{\"role\": \"u\"}], \"add_generation_prompt\": true, "
          "\"continue_final_message\": true}", "exclude each other" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_error(plain, rows[i].request, dflt, NB_ERR_ARG, rows[i].part);
    expect_error("{{ messages[0].x.y }}", USER("\"\""), dflt, NB_ERR_FORMAT, "template line 1");
}

#define CALL(arguments)                                                                            \
    "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", "  \
    "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": " arguments "}}]}]}"
static const char as_string[] = CALL("\"{\\\"a\\\":1,\\\"b\\\":\\\"x\\\"}\"");
static const char as_object[] = CALL("{\"a\": 1, \"b\": \"x\"}");

static void test_arguments(void **state)
{
    (void)state;
    const run_opts given = { .args = NB_CHAT_ARGS_GIVEN }, object = { .args = NB_CHAT_ARGS_OBJECT };
    /* as given where that works, as transformers: also the doubly quoted one */
    expect(wants_string, as_string, dflt, "f {\"a\":1,\"b\":\"x\"};");
    expect(wants_object, as_object, dflt, "a=1;b=x;");
    expect(wants_json, as_string, dflt, "\"{\\\"a\\\":1,\\\"b\\\":\\\"x\\\"}\";");
    expect(prints_any, as_object, dflt, "f {'a': 1, 'b': 'x'};");
    /* the other form where it does not */
    expect(wants_object, as_string, dflt, "a=1;b=x;");
    expect(wants_string, as_object, dflt, "f {\"a\": 1, \"b\": \"x\"};");
    expect(wants_object, CALL("\"\""), dflt, "");
    expect_error(wants_object, as_string, given, NB_ERR_FORMAT, "has no attribute 'items'");
    expect_error(wants_string, as_object, given, NB_ERR_FORMAT, "can only concatenate str");
    expect_error(wants_object, CALL("\"not json\""), dflt, NB_ERR_FORMAT, "has no attribute 'items'");
    /* for serving: objects first, strings where objects fail or print as Python */
    expect(wants_json, as_string, object, "{\"a\": 1, \"b\": \"x\"};");
    expect(wants_object, as_string, object, "a=1;b=x;");
    expect(wants_string, as_string, object, "f {\"a\":1,\"b\":\"x\"};");
    expect(wants_string, as_object, object, "f {\"a\": 1, \"b\": \"x\"};");
    expect(prints_any, as_string, object, "f {\"a\":1,\"b\":\"x\"};");
    expect(prints_any, as_object, object, "f {\"a\": 1, \"b\": \"x\"};");
    expect(wants_json, CALL("\"[1]\""), object, "\"[1]\";");
    expect("{{ raise_exception('no tools') if messages[0].tool_calls else '' }}", USER("\"\""), object,
           "");
    expect_error("{{ raise_exception('no tools') }}", as_string, object, NB_ERR_FORMAT, "no tools");
}

#define FINAL(content)                                                                             \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "                                    \
    "{\"role\": \"assistant\", \"content\": " content "}], \"continue_final_message\": true}"

static void test_continue(void **state)
{
    (void)state;
    static const char closes[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>"
                                 "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    static const char trims[] = "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}<end>"
                                "{% endfor %}";
    static const char loops[] = "{% for m in messages %}{% if m.content is string %}{{ m.content }}"
                                "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
                                "<end>{% endfor %}";
    expect(closes, FINAL("\"half an \""), dflt, "<user>q<end><assistant>half an ");
    expect(trims, FINAL("\"half an \""), dflt, "<user>q<end><assistant>half an");
    expect(trims, FINAL("\"half\""), dflt, "<user>q<end><assistant>half");
    expect(loops, FINAL("[{\"type\": \"text\", \"text\": \"a\"}]"), dflt, "q<end>a");
    expect(closes, FINAL("[{\"type\": \"text\", \"text\": \"a\"}]"), dflt,
           "<user>q<end><assistant>a");
    expect_error(closes, FINAL("null"), dflt, NB_ERR_ARG, "no text to continue");
    expect_error("{{ messages[0].content }}", FINAL("\"x\""), dflt, NB_ERR_FORMAT, "does not show");
}

static void test_template_text(void **state)
{
    (void)state;
    nb_str s;
    nb_error err;
    json_t *one = json_loads("{\"chat_template\": \"a\"}", 0, NULL);
    json_t *two = json_loads("{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}, "
                             "{\"name\": \"tool_use\", \"template\": \"t\"}]}", 0, NULL);
    json_t *none = json_loads("{\"chat_template\": null}", 0, NULL);
    json_t *odd = json_loads("{\"chat_template\": 5}", 0, NULL);
    assert_int_equal(nb_chat_template_text(one, NULL, &s, &err), NB_OK);
    assert_true(nb_str_eqc(s, "a"));
    assert_int_equal(nb_chat_template_text(two, NULL, &s, &err), NB_OK);
    assert_true(nb_str_eqc(s, "d"));
    assert_int_equal(nb_chat_template_text(two, "tool_use", &s, &err), NB_OK);
    assert_true(nb_str_eqc(s, "t"));
    assert_int_equal(nb_chat_template_text(two, "rag", &s, &err), NB_ERR_NOT_FOUND);
    assert_non_null(strstr(err.msg, "rag"));
    assert_int_equal(nb_chat_template_text(none, NULL, &s, &err), NB_ERR_NOT_FOUND);
    assert_int_equal(nb_chat_template_text(odd, NULL, &s, &err), NB_ERR_FORMAT);
    json_decref(one);
    json_decref(two);
    json_decref(none);
    json_decref(odd);
}

/* What a template leaves out in silence: refused where the caller wants it. */
static void test_unseen(void **state)
{
    static const char some[] = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }};{% endif %}"
                               "{% endfor %}";
    static const char all[] = "{% for m in messages %}{{ m.role }}:{{ m.content | trim }};{% endfor %}";
    static const char developer[] =
        "{\"messages\": [{\"role\": \"developer\", \"content\": \" Be kind. \"}, "
        "{\"role\": \"user\", \"content\": \"hi\"}]}";
    static const char parts[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"tool\", "
        "\"content\": [{\"type\": \"text\", \"text\": \"20 degrees\"}]}]}";
    static const char calls[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\", \"tool_calls\": "
        "[{\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}]}";
    static const char empty[] = "{\"messages\": [{\"role\": \"developer\", \"content\": \"\"}, "
                                "{\"role\": \"user\", \"content\": \"hi\", \"tool_calls\": []}]}";
    const run_opts strict = { .refuse_unseen = true };
    (void)state;
    expect(some, developer, dflt, "hi;");
    expect(some, parts, dflt, "hi;");
    expect(some, calls, dflt, "hi;");
    expect_error(some, developer, strict, NB_ERR_ARG, "messages[0].role: the chat template does not show");
    expect_error(some, developer, strict, NB_ERR_ARG, "use \"system\"");
    expect_error(some, parts, strict, NB_ERR_ARG, "messages[1].role: the chat template does not show");
    expect_error(some, calls, strict, NB_ERR_ARG, "messages[0].tool_calls");
    expect(some, empty, strict, "hi;");
    expect(all, developer, strict, "developer:Be kind.;user:hi;");
    expect(all, parts, strict, "user:hi;tool:20 degrees;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables), cmocka_unit_test(test_content),
        cmocka_unit_test(test_wrong_requests), cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_continue), cmocka_unit_test(test_template_text),
        cmocka_unit_test(test_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
