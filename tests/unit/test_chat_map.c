/* test_chat_map.c - the requests of the APIs in the one form that is rendered; and the requests that
 * agents send, with every chat template of the data folder (skipped without it). */
#include "jinja_test.h"

#include <dirent.h>

#include "serve/chat_body.h"
#include "serve/chat_map.h"
#include "serve/fields.h"
#include "text/chat_style.h"

typedef struct api {
    const char *path;
    unsigned fields;
    nb_status (*read)(nb_ask *a), (*map)(nb_ask *a, json_t **out);
} api;
static const api apis[] = {
    { "/v1/chat/completions", NB_FIELDS_CHAT, nb_ask_read_chat, nb_map_chat },
    { "/v1/messages", NB_FIELDS_MESSAGES, nb_ask_read_messages, nb_map_messages },
    { "/v1/responses", NB_FIELDS_RESPONSES, nb_ask_read_responses, nb_map_responses },
};
enum { CHAT, MESSAGES, RESPONSES };

static nb_status map(const api *x, nb_ask *a, nb_str body, json_t **out)
{
    const nb_ask_limits lim = { .vocab = 100, .max_model_len = 100 };
    *a = (nb_ask){ 0 };
    *out = NULL;
    NB_TRY(nb_ask_open(a, body));
    NB_TRY(nb_fields_check(a, x->fields, &lim));
    NB_TRY(x->read(a));
    return x->map(a, out);
}

static void expect(int which, const char *body, const char *want)
{
    nb_ask a;
    json_t *chat, *j = json_loads(want, JSON_ALLOW_NUL, NULL);
    if (!j) fail_msg("%s", want);
    if (map(&apis[which], &a, nb_str_c(body), &chat) != NB_OK) fail_msg("%s: %s", body, a.err.msg);
    char *text = json_dumps(chat, JSON_COMPACT);
    if (!json_equal(chat, j)) fail_msg("%s\n%s\nwanted %s", body, text, want);
    free(text);
    json_decref(chat);
    json_decref(j);
    nb_ask_deinit(&a);
}

static void refuse(int which, const char *body, const char *param)
{
    nb_ask a;
    json_t *chat;
    const nb_status st = map(&apis[which], &a, nb_str_c(body), &chat);
    if (st != NB_ERR_ARG || !a.param || strcmp(a.param, param) != 0 || !a.err.msg[0])
        fail_msg("%s: %d, %s: %s", body, (int)st, a.param ? a.param : "-", a.err.msg);
    json_decref(chat);
    nb_ask_deinit(&a);
}

#define MSG(m) "{\"messages\":[" m "]}"

static void test_messages(void **state)
{
    (void)state;
    /* system texts without billing lines, also inside messages */
    expect(MESSAGES,
           "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=1;\"},"
           "{\"type\":\"text\",\"text\":\"S\"}],\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
           "{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"late\"}]},"
           "{\"role\":\"system\",\"content\":\"later\"},{\"role\":\"user\",\"content\":\"r\"}]}",
           MSG("{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"q\"},"
               "{\"role\":\"system\",\"content\":\"late\"},{\"role\":\"system\",\"content\":\"later\"},"
               "{\"role\":\"user\",\"content\":\"r\"}"));
    /* a turn with a thought and calls; results before the text of their turn */
    expect(MESSAGES,
           MSG("{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\" hm\\n\","
               "\"signature\":\"s\"},{\"type\":\"redacted_thinking\",\"data\":\"x\"},"
               "{\"type\":\"text\",\"text\":\"a \"},{\"type\":\"text\",\"text\":\"b\"},"
               "{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"x\":1}},"
               "{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"g\",\"input\":{\"_raw\":\"{x\"}}]},"
               "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"u\"},"
               "{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":[{\"type\":\"text\",\"text\":\"r\"},"
               "{\"type\":\"tool_reference\",\"tool_name\":\"n\"},{\"type\":\"image\",\"source\":{}}]},"
               "{\"type\":\"tool_result\",\"tool_use_id\":\"t2\",\"is_error\":true}]}"),
           MSG("{\"role\":\"assistant\",\"content\":\"a b\",\"reasoning_content\":\" hm\\n\",\"tool_calls\":["
               "{\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}},"
               "{\"id\":\"t2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{x\"}}]},"
               "{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":"
               "\"r\\nn\\n[An image, which the model cannot see.]\"},"
               "{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"content\":\"\"},"
               "{\"role\":\"user\",\"content\":\"u\"}"));
    /* tools: those without a schema are their vendor's; a last turn is continued */
    expect(MESSAGES,
           "{\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"},"
           "\"defer_loading\":true,\"cache_control\":{}},{\"type\":\"web_search_20250305\",\"name\":\"w\"}],"
           "\"output_config\":{\"effort\":\"high\"},\"context_management\":{},\"betas\":[],"
           "\"messages\":[{\"role\":\"assistant\",\"content\":\"And\"}]}",
           "{\"messages\":[{\"role\":\"assistant\",\"content\":\"And\"}],\"continue_final_message\":true,"
           "\"reasoning_effort\":\"high\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
           "\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}}]}");
}

static void test_messages_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "{}", "messages" },
        { "{\"messages\":{}}", "messages" },
        { "{\"messages\":[]}", "messages" },
        { MSG("5"), "messages" },
        { MSG("{\"role\":5}"), "messages" },
        { MSG("{\"role\":\"critic\",\"content\":\"\"}"), "messages" },
        { MSG("{\"role\":\"user\"}"), "messages" },
        { MSG("{\"role\":\"user\",\"content\":5}"), "messages" },
        { MSG("{\"role\":\"user\",\"content\":[5]}"), "messages" },
        { MSG("{\"role\":\"system\",\"content\":[{\"type\":\"image\"}]}"), "messages" },
        { MSG("{\"role\":\"system\"}"), "messages" },
        { MSG("{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}"), "messages" },
        { MSG("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":5}]}"), "messages" },
        { MSG("{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\"}]}"), "messages" },
        { MSG("{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\"}]}"), "messages" },
        { MSG("{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\"}]}"), "messages" },
        { MSG("{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":5}]}"), "messages" },
        { MSG("{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{}]}]}"), "messages" },
        { "{\"system\":5,\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", "system" },
        { "{\"tools\":{\"a\":1},\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", "tools" },
        { "{\"tools\":[{\"name\":\"f\",\"input_schema\":[]}],\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", "tools" },
        { "{\"tools\":[{}],\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", "tools" },
        { "{\"thinking\":{}}", "thinking" },
        { "{\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":-1}}", "thinking" },
        { "{\"thinking\":{\"type\":\"some\"}}", "thinking" },
        { "{\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":1}}", "tool_choice" },
        { "{\"tool_choice\":\"auto\"}", "tool_choice" },
        { "{\"output_config\":{\"effort\":5}}", "output_config" },
    };
    for (size_t i = 0; i < NB_COUNT(bad); i++) refuse(MESSAGES, bad[i][0], bad[i][1]);
}

static void test_responses(void **state)
{
    (void)state;
    expect(RESPONSES, "{\"input\":\"q\",\"instructions\":\"S\"}",
           MSG("{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"q\"}"));
    /* neighbours are one turn; results may be parts */
    expect(RESPONSES,
           "{\"input\":[{\"role\":\"developer\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},"
           "{\"type\":\"input_text\",\"text\":\"b\"}]},{\"type\":\"message\",\"role\":\"user\",\"content\":\"q\"},"
           "{\"type\":\"reasoning\",\"id\":\"r\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\" hm\"}],"
           "\"encrypted_content\":null},"
           "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"so\"}]},"
           "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\"},"
           "{\"type\":\"function_call\",\"call_id\":\"c2\",\"namespace\":\"n\",\"name\":\"g\",\"arguments\":\"{x\"},"
           "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"r\"},"
           "{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":\"input_text\",\"text\":\"s\"}]},"
           "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]},"
           "{\"type\":\"function_call\",\"call_id\":\"c3\",\"name\":\"f\",\"arguments\":\"\"}]}",
           MSG("{\"role\":\"system\",\"content\":\"a\\nb\"},{\"role\":\"user\",\"content\":\"q\"},"
               "{\"role\":\"assistant\",\"reasoning_content\":\" hm\",\"content\":\"so\",\"tool_calls\":["
               "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
               "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"n__g\",\"arguments\":\"{x\"}}]},"
               "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"r\"},"
               "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"s\"},"
               "{\"role\":\"assistant\",\"reasoning_content\":\"t\",\"tool_calls\":["
               "{\"id\":\"c3\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}"));
    /* tools: namespaces are flattened, those of OpenAI's servers left out */
    expect(RESPONSES,
           "{\"input\":\"q\",\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"},\"tools\":["
           "{\"type\":\"function\",\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"a\":1},\"strict\":false},"
           "{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\",\"name\":\"g\"},{\"type\":\"custom\"}]},"
           "{\"type\":\"web_search\"},{\"type\":\"custom\",\"name\":\"x\"},{\"type\":\"local_shell\"}]}",
           "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"reasoning_effort\":\"low\",\"tools\":["
           "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"a\":1}}},"
           "{\"type\":\"function\",\"function\":{\"name\":\"n__g\"}}]}");
}

#define ITEM(x) "{\"input\":[" x "]}"
static void test_responses_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "{}", "input" },
        { "{\"input\":5}", "input" },
        { "{\"input\":[]}", "input" },
        { ITEM("5"), "input" },
        { ITEM("{}"), "input" },
        { ITEM("{\"type\":5,\"role\":\"user\"}"), "input" },
        { ITEM("{\"type\":\"item_reference\",\"id\":\"x\"}"), "input" },
        { ITEM("{\"role\":\"critic\",\"content\":\"\"}"), "input" },
        { ITEM("{\"role\":\"user\",\"content\":5}"), "input" },
        { ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}"), "input" },
        { ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":5}]}"), "input" },
        { ITEM("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\"}"), "input" },
        { ITEM("{\"type\":\"function_call_output\",\"output\":\"\"}"), "input" },
        { ITEM("{\"type\":\"reasoning\",\"content\":[5]}"), "input" },
        { "{\"input\":\"q\",\"instructions\":5}", "instructions" },
        { "{\"input\":\"q\",\"tools\":5}", "tools" },
        { "{\"input\":\"q\",\"tools\":[{}]}", "tools" },
        { "{\"input\":\"q\",\"tools\":[{\"type\":\"function\"}]}", "tools" },
        { "{\"input\":\"q\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":[]}]}", "tools" },
        { "{\"input\":\"q\",\"reasoning\":5}", "reasoning" },
        { "{\"input\":\"q\",\"text\":5}", "text" },
        { "{\"input\":\"q\",\"text\":{\"format\":{}}}", "text" },
        { "{\"input\":\"q\",\"tool_choice\":5}", "tool_choice" },
        { "{\"input\":\"q\",\"previous_response_id\":\"x\"}", "previous_response_id" },
        { "{\"input\":\"q\",\"background\":true}", "background" },
    };
    for (size_t i = 0; i < NB_COUNT(bad); i++) refuse(RESPONSES, bad[i][0], bad[i][1]);
}

/* ---- the thinking switch ---- */

static void expect_kwargs(int which, const char *dflt, const char *body, const char *want)
{
    nb_ask a;
    json_t *chat, *j = json_loads(want, 0, NULL);
    nb_chat_rules r = { .kwargs = dflt ? json_loads(dflt, 0, NULL) : NULL };
    if (map(&apis[which], &a, nb_str_c(body), &chat) != NB_OK) fail_msg("%s: %s", body, a.err.msg);
    assert_int_equal(nb_chat_rules_apply(&r, &a, chat), NB_OK);
    json_t *got = json_object_get(chat, "chat_template_kwargs");
    if (got ? !json_equal(got, j) : json_object_size(j) > 0)
        fail_msg("%s: %s", body, got ? json_dumps(got, 0) : "none");
    json_decref(r.kwargs);
    json_decref(chat);
    json_decref(j);
    nb_ask_deinit(&a);
}

#define ASK(more) "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]" more "}"
#define ON "{\"thinking\":true,\"enable_thinking\":true}"
#define OFF "{\"thinking\":false,\"enable_thinking\":false}"

static void test_switch(void **state)
{
    (void)state;
    expect_kwargs(CHAT, NULL, ASK(""), "{}");
    expect_kwargs(CHAT, NULL, ASK(",\"chat_template_kwargs\":{\"thinking\":true}"), ON);
    expect_kwargs(CHAT, NULL, ASK(",\"chat_template_kwargs\":{\"enable_thinking\":false}"), OFF);
    expect_kwargs(CHAT, NULL, ASK(",\"reasoning_effort\":\"none\""), OFF);
    expect_kwargs(CHAT, NULL, ASK(",\"reasoning_effort\":\"low\""), ON);
    /* the request's kwargs, then its fields, then the server's */
    expect_kwargs(CHAT, "{\"thinking\":true}", ASK(""), ON);
    expect_kwargs(CHAT, "{\"thinking\":true,\"x\":1}", ASK(",\"reasoning_effort\":\"none\""),
                  "{\"thinking\":false,\"enable_thinking\":false,\"x\":1}");
    expect_kwargs(CHAT, "{\"thinking\":true}",
                  ASK(",\"reasoning_effort\":\"high\",\"chat_template_kwargs\":{\"enable_thinking\":false}"),
                  OFF);
    expect_kwargs(MESSAGES, NULL, ASK(",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":5}"), ON);
    expect_kwargs(MESSAGES, NULL, ASK(",\"thinking\":{\"type\":\"disabled\"},\"output_config\":{\"effort\":\"high\"}"), OFF);
    expect_kwargs(MESSAGES, NULL, ASK(",\"thinking\":{\"type\":\"adaptive\"}"), "{}");
    expect_kwargs(MESSAGES, NULL, ASK(",\"thinking\":{\"type\":\"adaptive\"},\"output_config\":{\"effort\":\"low\"}"), ON);
}

/* ---- what agents send ---- */

static bool data_path(const char *name, char *out, size_t n)
{
    const char *dir = getenv("NB_SOURCE_DIR"), *data = getenv("NB_DATA_DIR");
    if (data)
        (void)snprintf(out, n, "%s/%s", data, name);
    else
        (void)snprintf(out, n, "%s/../shared/data/%s", dir ? dir : ".", name);
    DIR *d = opendir(out);
    if (d) (void)closedir(d);
    return d != NULL;
}

static const api *api_of(const char *path)
{
    for (size_t i = 0; i < NB_COUNT(apis); i++)
        if (strncmp(path, apis[i].path, strlen(apis[i].path)) == 0) return &apis[i];
    return NULL;
}

static bool has(const nb_buf *b, const char *s)
{
    return strstr(b->p, s) != NULL;
}

/* Every tool's name, the task and the tool's result are in the prompt. */
static void judge(const char *what, const json_t *body, const json_t *chat, const nb_buf *text)
{
    const json_t *tools = json_object_get(chat, "tools");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name || !has(text, name)) fail_msg("%s: no tool %s", what, name ? name : "-");
    }
    if (!has(text, "Run echo hi-from-tool in the shell")) fail_msg("%s: no task", what);
    char *all = json_dumps(body, 0);
    if (strstr(all, "\"tool_call_id\"") || strstr(all, "\"tool_result\"") ||
        strstr(all, "\"function_call_output\"")) {
        const char *at = strstr(text->p, "Run echo hi-from-tool in the shell");
        if (!strstr(at + 40, "hi-from-tool")) fail_msg("%s: no result", what);
    }
    free(all);
}

static void render_request(const char *template_name, const nb_jinja *t, const char *request_name,
                           const json_t *request)
{
    const json_t *body = json_object_get(request, "body");
    const api *x = api_of(json_string_value(json_object_get(request, "path")));
    char what[700], *text = json_dumps(body, JSON_COMPACT);
    (void)snprintf(what, sizeof what, "%s, %s", template_name, request_name);
    if (!x) fail_msg("%s: its path is not known", what);
    nb_ask a;
    json_t *chat;
    nb_chat_style s;
    nb_error err = { 0 };
    nb_buf out = { 0 };
    if (map(x, &a, nb_str_c(text), &chat) != NB_OK) fail_msg("%s: %s", what, a.err.msg);
    json_t *special = json_pack("{s:s, s:s}", "bos_token", "<bos>", "eos_token", "<eos>");
    nb_chat_style_find(t, special, &s);
    const nb_chat_input in = { .request = chat, .special_tokens = special, .style = &s, .refuse_unseen = true };
    if (nb_chat_render(t, &in, &out, &err) != NB_OK) fail_msg("%s: %s", what, err.msg);
    judge(what, body, chat, &out);
    nb_buf_deinit(&out);
    json_decref(special);
    json_decref(chat);
    nb_ask_deinit(&a);
    free(text);
}

static void with_template(const char *folder, const char *name)
{
    char requests[400], path[900];
    nb_buf source = { 0 };
    char chunk[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        assert_int_equal(nb_buf_add(&source, chunk, n), NB_OK);
    (void)fclose(f);
    nb_jinja *t = NULL;
    nb_error err = { 0 };
    if (nb_jinja_parse(nb_buf_view(&source), &t, &err) != NB_OK) fail_msg("%s: %s", name, err.msg);
    assert_true(data_path("agents/requests", requests, sizeof requests));
    DIR *d = opendir(requests);
    for (const struct dirent *e; (e = readdir(d));) {
        if (!strstr(e->d_name, ".json")) continue;
        (void)snprintf(path, sizeof path, "%s/%s", requests, e->d_name);
        json_t *request = jt_load(path);
        render_request(name, t, e->d_name, request);
        json_decref(request);
    }
    (void)closedir(d);
    nb_jinja_destroy(t);
    nb_buf_deinit(&source);
}

static void test_agents(void **state)
{
    (void)state;
    char folder[400], requests[400];
    if (!data_path("tokenizers/templates", folder, sizeof folder) ||
        !data_path("agents/requests", requests, sizeof requests)) {
        print_message("the requests of agents are skipped: no data folder\n");
        return;
    }
    DIR *d = opendir(folder);
    for (const struct dirent *e; (e = readdir(d));)
        /* Mistral's template takes no two messages of the user in a row; this one of llama.cpp is
         * no Jinja2, which cannot write a generator as JSON */
        if (strstr(e->d_name, ".jinja") && !strstr(e->d_name, "mistral") &&
            strcmp(e->d_name, "llama-cpp-deepseek-r1.jinja") != 0)
            with_template(folder, e->d_name);
    (void)closedir(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_messages_refused),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_responses_refused),
        cmocka_unit_test(test_switch),
        cmocka_unit_test(test_agents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
