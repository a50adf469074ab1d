/* test_chat_v4.c - the built-in template of DeepSeek V4 against prompts that the vendor's encoder made of the same
 * messages (tests/data/chat_v4.json), and that a folder without a template gets it by its tokens. */
#include "engine_testing.h"

#include <jansson.h>

#include "text/chat.h"

static nb_jinja *tmpl;
static json_t *special;

static void render(const json_t *request, nb_buf *out)
{
    nb_error err = { 0 };
    const nb_chat_input in = { .request = request, .special_tokens = special };
    if (nb_chat_render(tmpl, &in, out, &err) != NB_OK) fail_msg("%s", err.msg);
}

static void test_prompts(void **state)
{
    (void)state;
    json_error_t e;
    json_t *rows = json_load_file(in_source("tests/data/chat_v4.json"), 0, &e);
    if (!rows) fail_msg("%s", e.text);
    size_t i;
    json_t *row;
    assert_true(json_array_size(rows) > 20);
    json_array_foreach(rows, i, row)
    {
        nb_buf out = { 0 };
        render(json_object_get(row, "request"), &out);
        const char *want = json_string_value(json_object_get(row, "prompt"));
        if (out.n_bytes != strlen(want) || memcmp(out.p, want, out.n_bytes) != 0)
            fail_msg("%s:\n%.*s\nexpected\n%s", json_string_value(json_object_get(row, "name")),
                     (int)out.n_bytes, (const char *)out.p, want);
        nb_buf_deinit(&out);
    }
    json_decref(rows);
}

/* Tools of the request are those of the first system message; without one they come first. */
static void test_request_tools(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"U\"}]",
        "[{\"role\": \"user\", \"content\": \"U\"}]",
    };
    for (size_t i = 0; i < NB_COUNT(messages); i++) {
        nb_buf out = { 0 };
        json_t *request =
            json_pack("{s:o, s:[{s:s, s:{s:s}}]}", "messages", json_loads(messages[i], 0, NULL),
                      "tools", "type", "function", "function", "name", "f");
        render(request, &out);
        const char *text = (const char *)out.p, *tools = strstr(text, "\n\n## Tools"),
                   *user = strstr(text, "User");
        assert_true(tools && user && tools < user && strstr(text, "{\"name\": \"f\"}"));
        json_decref(request);
        nb_buf_deinit(&out);
    }
}

/* The beginning of an answer is added where it is asked for. */
static void test_beginning(void **state)
{
    (void)state;
    for (int add = 0; add < 2; add++) {
        nb_buf out = { 0 };
        json_t *request = json_pack("{s:[{s:s, s:s}], s:b}", "messages", "role", "user", "content",
                                    "U", "add_generation_prompt", add);
        render(request, &out);
        assert_int_equal(strstr((const char *)out.p, "</think>") != NULL, add);
        json_decref(request);
        nb_buf_deinit(&out);
    }
}

int main(void)
{
    nb_error err = { 0 };
    if (nb_jinja_parse(nb_chat_template_v4(), &tmpl, &err) != NB_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    special = json_pack("{s:s}", "bos_token",
                        "<\xef\xbd\x9c"
                        "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_request_tools),
        cmocka_unit_test(test_beginning),
    };
    const int bad = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(special);
    nb_jinja_destroy(tmpl);
    return bad;
}
