/* test_jinja_golden.c - the vendors' templates in the data folder against golden.json
 * (Jinja2 with transformers' settings): the same bytes, and an error where Jinja2
 * had one, both from the interpreter and through nb_chat_render.  The conversations
 * of golden.json are in tests/data/jinja/golden_requests.json.  Skips without the
 * data folder. */
#include "jinja_test.h"

enum { SKIP = 77 };
static char folder[512];

static bool find_folder(void)
{
    const char *dir = getenv("NB_SOURCE_DIR"), *data = getenv("NB_DATA_DIR");
    char beside[400], probe[600];
    snprintf(beside, sizeof beside, "%s/../shared/data", dir ? dir : ".");
    const char *const dirs[] = { data, beside };
    for (size_t i = 0; i < 2; i++) {
        if (!dirs[i]) continue;
        snprintf(folder, sizeof folder, "%s/tokenizers/templates", dirs[i]);
        snprintf(probe, sizeof probe, "%s/golden.json", folder);
        FILE *f = fopen(probe, "rb");
        if (!f) continue;
        (void)fclose(f);
        return true;
    }
    return false;
}

static nb_buf read_template(const char *name)
{
    char path[800];
    nb_buf b = { 0 };
    snprintf(path, sizeof path, "%s/%s.jinja", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    char chunk[4096];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        assert_int_equal(nb_buf_add(&b, chunk, n), NB_OK);
    (void)fclose(f);
    return b;
}

/* The begin and end of sequence that golden.json was rendered with. */
static json_t *special_of(const char *name)
{
    if (strstr(name, "deepseek") || strstr(name, "DeepSeek"))
        return json_pack("{s:s, s:s}", "bos_token",
                         "<\xEF\xBD\x9C" "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                         "eos_token",
                         "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>");
    if (strstr(name, "Llama"))
        return json_pack("{s:s, s:s}", "bos_token", "<|begin_of_text|>", "eos_token", "<|eot_id|>");
    if (strstr(name, "mistral") || strstr(name, "GigaChat"))
        return json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>");
    return json_object();
}

static bool matches(const char *what, const char *name, const char *kase, nb_status st,
                    const nb_buf *out, const nb_error *err, const json_t *want)
{
    const json_t *text = json_object_get(want, "text");
    const bool ok = text ? st == NB_OK && nb_str_eq(nb_buf_view(out), jt_str(text)) : st != NB_OK;
    if (!ok)
        print_error("%s: %s / %s\n  got:  %s\n  want: %s\n", what, name, kase,
                    st == NB_OK ? out->p : err->msg,
                    json_string_value(text ? text : json_object_get(want, "error")));
    return ok;
}

/* Straight through the interpreter: the request's members are the variables. */
static bool check_plain(const nb_jinja *t, const char *name, const char *kase, const json_t *request,
                        const json_t *special, const nb_jinja_limits *lim, const json_t *want)
{
    nb_buf out = { 0 };
    nb_error err = { 0 };
    json_t *vars = json_copy((json_t *)(uintptr_t)request);
    json_object_update(vars, json_object_get(request, "chat_template_kwargs"));
    json_object_update(vars, (json_t *)(uintptr_t)special);
    const nb_status st = nb_jinja_render(t, vars, lim, &out, &err);
    const bool ok = matches("interpreter", name, kase, st, &out, &err, want);
    nb_buf_deinit(&out);
    json_decref(vars);
    return ok;
}

static bool check_chat(const nb_jinja *t, const char *name, const char *kase, nb_chat_input in,
                       const json_t *want)
{
    nb_buf out = { 0 };
    nb_error err = { 0 };
    in.args = NB_CHAT_ARGS_GIVEN;
    nb_status st = nb_chat_render(t, &in, &out, &err);
    bool ok = matches("chat", name, kase, st, &out, &err, want);
    if (json_object_get(want, "text")) { /* retrying changes nothing that worked */
        out.n_bytes = 0;
        in.args = NB_CHAT_ARGS_RETRY;
        st = nb_chat_render(t, &in, &out, &err);
        ok = matches("chat, retry", name, kase, st, &out, &err, want) && ok;
    }
    nb_buf_deinit(&out);
    return ok;
}

static void test_golden(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s/golden.json", folder);
    json_t *doc = jt_load(path), *own = jt_load_own("golden_requests.json"), *cases, *want;
    const nb_jinja_limits lim = { .now_s = json_integer_value(json_object_get(own, "now")) };
    const char *name, *kase;
    size_t n = 0, n_bad = 0;
    json_object_foreach(json_object_get(doc, "golden"), name, cases) {
        nb_buf source = read_template(name);
        nb_jinja *t = NULL;
        nb_error err = { 0 };
        if (nb_jinja_parse(nb_buf_view(&source), &t, &err) != NB_OK)
            fail_msg("%s: %s", name, err.msg);
        json_t *special = special_of(name);
        json_object_foreach(cases, kase, want) {
            const json_t *req = json_object_get(json_object_get(own, "requests"), kase);
            assert_non_null(req);
            const nb_chat_input in = { .request = req, .special_tokens = special, .limits = &lim };
            n_bad += !check_plain(t, name, kase, req, special, &lim, want);
            n_bad += !check_chat(t, name, kase, in, want);
            n++;
        }
        json_decref(special);
        nb_jinja_destroy(t);
        nb_buf_deinit(&source);
    }
    json_decref(doc);
    json_decref(own);
    print_message("%zu renderings compared\n", n);
    assert_true(n >= 200);
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_golden) };
    if (!find_folder()) {
        printf("test_jinja_golden: no data folder (NB_DATA_DIR), skipped\n");
        return SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
