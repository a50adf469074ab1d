/* test_parse_data.c - the output parser against the data folder: its cases under
 * every cutting, and as real tokens where a family's tokenizer is there; the formats
 * that vendors' templates point to.  Skips without the folder. */
#include "parse_cases.h"

static json_t *all;

static void every_cutting(void **state)
{
    (void)state;
    size_t i;
    json_t *c;
    json_array_foreach(all, i, c) parse_case_cut(c);
}

/* T3: markers inside values, spelled with ordinary tokens. */
static void plain_markers(void **state)
{
    (void)state;
    size_t i, k, n = 0;
    json_t *c, *call, *v;
    const char *key;
    json_array_foreach(all, i, c)
    {
        if (strcmp(json_string_value(json_object_get(c, "rule")), "T3") != 0) continue;
        json_t *plain = json_array();
        const char *out = json_string_value(json_object_get(c, "output"));
        json_array_foreach(json_object_get(json_object_get(c, "expect"), "calls"), k, call)
        {
            json_object_foreach(json_object_get(call, "arguments"), key, v)
            {
                const char *s = json_string_value(v);
                if (s && strchr(s, '<') && strstr(out, s)) json_array_append(plain, v);
            }
        }
        if (json_array_size(plain)) {
            json_object_set(c, "plain", plain);
            parse_case_cut(c);
            json_object_del(c, "plain");
            n++;
        }
        json_decref(plain);
    }
    assert_true(n > 0);
}

static void check_tokens(const nb_tokenizer *t, const char *families)
{
    size_t i, n = 0;
    json_t *c;
    json_array_foreach(all, i, c)
    {
        const char *family = json_string_value(json_object_get(c, "family"));
        const char *hit = strstr(families, family);
        if (!hit || (hit[strlen(family)] && hit[strlen(family)] != ' ')) continue;
        parse_case_tokens(c, t);
        n++;
    }
    assert_true(n > 20);
}

static void real_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *json, *model, *added, *families;
    } ROWS[] = {
        { "tokenizers/deepseek_v3/tokenizer.json.xz", NULL, NULL,
          "deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4" },
        { NULL, "tokenizers/kimi_k2/tiktoken.model.xz", "tokenizers/kimi_k2/added_tokens.json",
          "kimi_k2" },
        { "tokenizers/qwen3/tokenizer.json.xz", NULL, NULL, "hermes youtu" },
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        nb_buf json = { 0 }, model = { 0 }, added = { 0 };
        if (ROWS[i].json) json = tok_read(ROWS[i].json);
        if (ROWS[i].model) model = tok_read(ROWS[i].model);
        if (ROWS[i].added) added = tok_read(ROWS[i].added);
        nb_tokenizer *t =
            tok_make(&(nb_tokenizer_files){ .tokenizer_json = nb_buf_view(&json),
                                            .tiktoken_model = nb_buf_view(&model),
                                            .added_tokens_json = nb_buf_view(&added) });
        check_tokens(t, ROWS[i].families);
        nb_tokenizer_destroy(t);
        nb_buf_deinit(&json);
        nb_buf_deinit(&model);
        nb_buf_deinit(&added);
    }
}

static void vendors_templates(void **state)
{
    (void)state;
    static const char *const ROWS[][3] = {
        { "GLM-4.6", "glm47", "</think>" },
        { "GLM-4.7-Flash", "glm47", "</think>" },
        { "GLM-5.2", "glm47", "</think>" },
        { "Kimi-K2-Instruct", "kimi_k2", "" },
        { "Kimi-K2-Thinking", "kimi_k2", "</think>" },
        { "Qwen-QwQ-32B", "hermes", "</think>" },
        { "Qwen-Qwen2.5-7B-Instruct", "hermes", "" },
        { "Qwen-Qwen3-0.6B", "hermes", "</think>" },
        { "Qwen3-Coder", "", "" },
        { "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3", "</think>" },
        { "deepseek-ai-DeepSeek-V3.1", "deepseek_v31", "</think>" },
        { "deepseek-ai-DeepSeek-V3.2", "deepseek_v32", "</think>" },
        { "deepseek-ai-DeepSeek-V4", "deepseek_v4", "</think>" },
        { "deepseek-r1-tokenizer_config.chat_template", "deepseek_v3", "</think>" },
        { "deepseek-v2-chat", "", "" },
        { "deepseek-v3-tokenizer_config.chat_template", "deepseek_v3", "</think>" },
        { "meta-llama-Llama-3.1-8B-Instruct", "llama3_json", "" },
        { "meta-llama-Llama-3.2-3B-Instruct", "llama3_json", "" },
        { "moonshotai-Kimi-K2", "kimi_k2", "" },
        { "tool_chat_template_deepseekr1", "deepseek_v3", "</think>" },
        { "tool_chat_template_deepseekv3", "deepseek_v3", "" },
        { "tool_chat_template_deepseekv31", "deepseek_v31", "</think>" },
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        char name[200];
        snprintf(name, sizeof name, "tokenizers/templates/%s.jinja", ROWS[i][0]);
        nb_buf b = tok_read(name);
        const nb_token_lookup none = { 0 };
        const nb_call_format *f = nb_call_format_detect(nb_buf_view(&b), none);
        const nb_thought_format *t = nb_thought_format_detect(nb_buf_view(&b), none);
        if (strcmp(f ? nb_call_format_name(f) : "", ROWS[i][1]) != 0 ||
            strcmp(t ? nb_thought_format_close(t).p : "", ROWS[i][2]) != 0)
            fail_msg("%s: %s, %s", ROWS[i][0], f ? nb_call_format_name(f) : "none",
                     t ? nb_thought_format_close(t).p : "none");
        nb_buf_deinit(&b);
    }
}

int main(void)
{
    char path[512];
    if (!tok_data_path("agents/tool_calls.jsonl", path, sizeof path)) {
        printf("skipped: no data folder (set NB_DATA_DIR)\n");
        return TOK_SKIP;
    }
    FILE *f = fopen(path, "rb");
    if (!f) {
        printf("skipped: the data folder has no agents/tool_calls.jsonl\n");
        return TOK_SKIP;
    }
    (void)fclose(f);
    all = parse_cases_read(path);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cutting),
        cmocka_unit_test(plain_markers),
        cmocka_unit_test(real_tokens),
        cmocka_unit_test(vendors_templates),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(all);
    return failed;
}
