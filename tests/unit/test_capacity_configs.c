/* test_capacity_configs.c - bundled configurations: their names, what is read of them, what a MODEL
 * may be, and the lines that refuse. */
#include "load_testing.h"

#include "capacity/configs.h"

static nb_model_config conf; /* large: not on the stack */

static const char *found(const char *name)
{
    nb_bundled_config b = { 0 };
    nb_error err = { 0 };
    if (nb_capacity_config(name, &b, &err) != NB_OK) fail_msg("%s: %s", name, err.msg);
    assert_true(b.json.n_bytes > 100);
    return b.name;
}

static void test_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        { "deepseek-v3", "deepseek-v3" },
        { "DeepSeek-V3", "deepseek-v3" },
        { "deepseek_v3", "deepseek-v3" },
        { "deepseek-ai/DeepSeek-V3", "deepseek-v3" },
        { "deepseek-ai/DeepSeek-V3-0324", "deepseek-v3" },
        { "deepseek-ai/DeepSeek-V3-Base", "deepseek-v3" },
        { "deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek-v3" },
        { "deepseek-r1", "deepseek-v3" },
        { "deepseek-ai/DeepSeek-R1-0528", "deepseek-v3" },
        { "deepseek-v2", "deepseek-v2" },
        { "DeepSeek-V2.5", "deepseek-v2" },
        { "DeepSeek-V2-Lite-Chat", "deepseek-v2-lite" },
        { "DeepSeek-Coder-V2-Lite-Instruct", "deepseek-v2-lite" },
        { "moonshotai/Kimi-K2-Instruct", "kimi-k2" },
        { "moonshotai/Kimi-K2-Thinking", "kimi-k2-thinking" },
        { "moonshotai/Kimi-K2-Instruct-0905", "kimi-k2-0905" },
        { "kimi-k2-0905", "kimi-k2-0905" },
        { "moonshotai/KIMI-K2.5", "kimi-k2-thinking" },
        { "Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b-2507" },
        { "qwen3-4b-thinking-2507", "qwen3-4b-2507" },
        { "moonshotai/Moonlight-16B-A3B-Instruct", "moonlight-16b" },
        { "zai-org/GLM-4.7-Flash", "glm-4.7-flash" },
        { "glm_4_7_flash", "glm-4.7-flash" },
        { "openbmb/MiniCPM3-4B", "minicpm3-4b" },
        { "tencent/Youtu-LLM-2B-Base", "youtu-llm-2b" },
        { "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b" },
        { "meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b" },
        { "Qwen/Qwen3-8B", "qwen3-8b" },
        { "Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(found(names[i][0]), names[i][1]);
    nb_bundled_config b;
    size_t n = 0;
    for (; nb_capacity_config_at(n, &b); n++) assert_string_equal(found(b.name), b.name);
    assert_true(n >= 27);
}

/* Every one is read, and has no field that nobody knows. */
static void test_read(void **state)
{
    (void)state;
    nb_bundled_config b;
    nb_error err = { 0 };
    for (size_t i = 0; nb_capacity_config_at(i, &b); i++) {
        const char *note = "unset";
        if (nb_capacity_read_config(b.name, &conf, &note, &err) != NB_OK)
            fail_msg("%s: %s", b.name, err.msg);
        if (conf.notes[0]) fail_msg("%s: %s", b.name, conf.notes);
        if (conf.assumed[0]) fail_msg("%s: %s", b.name, conf.assumed);
        const bool packed = !strcmp(b.name, "kimi-k2-thinking") || strstr(b.name, "deepseek-v4");
        assert_true(!conf.inner && (nb_quant_main(&conf.quant)->bits > 0) == packed);
        assert_ptr_equal(note, b.note);
    }
    const char *note = NULL;
    assert_int_equal(nb_capacity_read_config("kimi-k2-thinking", &conf, &note, &err), NB_OK);
    assert_true(!conf.fp8 && conf.n_layer == 61 && !note);
    assert_string_equal(conf.quant.method, "compressed-tensors");
    assert_int_equal(nb_capacity_read_config("kimi-k2.6", &conf, &note, &err), NB_OK);
    assert_true(nb_quant_main(&conf.quant)->bits == 4 && strstr(note, "vision"));
    assert_int_equal(nb_capacity_read_config("kimi-k2-0905", &conf, &note, &err), NB_OK);
    assert_true(conf.fp8 && conf.max_pos == 262144 && !note);
    assert_int_equal(nb_capacity_read_config("kimi-k2", &conf, &note, &err), NB_OK);
    assert_null(note);
    assert_true(conf.fp8 && conf.attn[0].n_head == 64);
    assert_int_equal(nb_capacity_read_config("deepseek-r1", &conf, NULL, &err), NB_OK);
    assert_true(conf.attn[0].n_head == 128 && conf.max_pos == 163840);
}

static void check_unknown(const char *name, const char *part)
{
    nb_bundled_config b = { .name = "unset" };
    nb_error err = { 0 }, same = { 0 };
    assert_int_equal(nb_capacity_config(name, &b, &err), NB_ERR_NOT_FOUND);
    assert_string_equal(b.name, "unset");
    if (!strstr(err.msg, part)) fail_msg("%s: %s", name, err.msg);
    if (!strstr(err.msg, "bundled: a.x-k1, ")) fail_msg("%s: %s", name, err.msg);
    assert_non_null(strstr(err.msg, "youtu-llm-2b)")); /* the last: the list is whole */
    for (const char *p = err.msg; *p; p++) assert_true(*p >= 0x20 && *p < 0x7f);
    assert_int_equal(nb_capacity_read_config(name, &conf, NULL, &same), NB_ERR_NOT_FOUND);
    assert_string_equal(same.msg, err.msg);
}

static void test_unknown(void **state)
{
    (void)state;
    check_unknown("deepsek-v3", "nearest name is deepseek-v3 ");
    check_unknown("deepseek-v5", "nearest name is deepseek-v");
    check_unknown("deepseek-v4", "nearest name is deepseek-v");
    check_unknown("GLM-5.3-Flash", "linear attention");
    check_unknown("qwen3-30b-a3b", "routed experts");
    check_unknown("Qwen/Qwen3-235B-A22B-Instruct-2507", "routed experts");
    check_unknown("glm-4.7-flash-fp4", "nearest name is glm-4.7-flash");
    check_unknown("GLM-4.6", "routed experts");
    check_unknown("openai/gpt-oss-120b", "sinks");
    check_unknown("Qwen/Qwen3-9B", "nearest name is qwen3-");
    check_unknown("kimi-k3", "linear attention");
    check_unknown("kimi-k1", "nearest name is kimi-k2");
    check_unknown("DeepSeek-R2", "nearest name is deepseek-");
    check_unknown("DeepSeek-V3-FP4", "nearest name is deepseek-v3");
    check_unknown("-instruct", "bundled model");
    check_unknown("x", "bundled model (bundled:");
    check_unknown("/no/such/folder", "/no/such/folder: no directory");
    check_unknown("a/b/deepseek-v3", "a/b/deepseek-v3: no directory");
    check_unknown("deepseek-v3/", "bundled model");
    check_unknown("\x1b[2J\nqwen3-8b\xff", "?[2J?qwen3-8b?");
    char long_name[5000];
    memset(long_name, 'q', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    check_unknown(long_name, "qqqq: no directory");
    nb_error err = { 0 };
    assert_int_equal(nb_capacity_read_config("deepseek-ai/DeepSeek-V3.2-Exp", &conf, NULL, &err), NB_OK);
    assert_int_equal(nb_capacity_read_config("GLM-5.1", &conf, NULL, &err), NB_OK);
    assert_int_equal(nb_capacity_read_config("", &conf, NULL, &err), NB_ERR_ARG);
    assert_int_equal(nb_capacity_read_config(NULL, &conf, NULL, &err), NB_ERR_ARG);
}

#define TINY(layers)                                                                                \
    "{\"model_type\":\"llama\",\"vocab_size\":300,\"hidden_size\":64,\"num_hidden_layers\":" layers \
    ",\"num_attention_heads\":4,\"intermediate_size\":96,\"eos_token_id\":7}"

/* Folders and files before bundled names; the line names file, field and what was expected. */
static void test_paths(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names;
    } bad[] = {
        { TINY("0"), "num_hidden_layers" },
        { TINY("5000"), "num_hidden_layers" },
        { TINY("\"3\""), "num_hidden_layers" },
        { "{\"model_type\":\"gpt2\"}", "gpt2" },
        { "{}", "model_type" },
        { "[1]", "config.json" },
        { "{\"model_type\":", "config.json" },
    };
    tmp_dir dir;
    char path[300];
    nb_error err = { 0 };
    tmp_open(&dir);
    (void)snprintf(path, sizeof path, "%s/config.json", dir.path);
    assert_int_equal(nb_capacity_read_config(path, &conf, NULL, &err), NB_ERR_NOT_FOUND);
    assert_true(nb_capacity_read_config(dir.path, &conf, NULL, &err) < 0);
    assert_non_null(strstr(err.msg, "config.json")); /* a folder without one */
    tmp_write(&dir, "config.json", nb_str_c(TINY("3")));
    tmp_write(&dir, "generation_config.json", nb_str_c("{\"eos_token_id\":[7,9]}"));
    const char *note = "unset";
    assert_int_equal(nb_capacity_read_config(path, &conf, &note, &err), NB_OK);
    assert_true(conf.n_layer == 3 && conf.n_eos == 1 &&
                !note); /* the file has no other beside it */
    assert_int_equal(nb_capacity_read_config(dir.path, &conf, NULL, &err), NB_OK);
    assert_true(conf.n_layer == 3 && conf.n_eos == 2 && conf.eos[1] == 9);
    tmp_write(&dir, "generation_config.json", nb_str_c("{\"eos_token_id\":\"x\"}"));
    assert_true(nb_capacity_read_config(dir.path, &conf, NULL, &err) < 0);
    assert_non_null(strstr(err.msg, "generation_config.json: eos_token_id"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tmp_write(&dir, "config.json", nb_str_c(bad[i].text));
        assert_true(nb_capacity_read_config(path, &conf, NULL, &err) < 0);
        if (!strstr(err.msg, bad[i].names) || !strstr(err.msg, path)) fail_msg("%s", err.msg);
    }
    tmp_close(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
