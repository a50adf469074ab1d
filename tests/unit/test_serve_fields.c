/* test_serve_fields.c - every field of OpenAI's, Anthropic's and vLLM's requests is in the table, and the
 * table is obeyed: refused, noted for a warning, or let through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/fields.h"

#define OPENAI_BOTH                                                                                \
    "model stream stream_options n stop max_tokens temperature top_p presence_penalty "            \
    "frequency_penalty logit_bias logprobs seed user "
#define VLLM_BOTH                                                                                  \
    "use_beam_search top_k min_p repetition_penalty length_penalty stop_token_ids "                \
    "include_stop_str_in_output ignore_eos min_tokens skip_special_tokens "                        \
    "spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs "        \
    "logprob_token_ids allowed_token_ids bad_words add_special_tokens response_format "            \
    "structured_outputs guided_json guided_regex guided_choice guided_grammar "                    \
    "guided_decoding_backend guided_whitespace_pattern priority request_id session_id "            \
    "return_tokens_as_token_ids return_token_ids routed_experts_prompt_start "                     \
    "return_token_offsets cache_salt kv_transfer_params ec_transfer_params vllm_xargs "            \
    "repetition_detection thinking_token_budget stream_interval logits_processors "

/* Names are facts: OpenAI's API reference (2026), vLLM 017e9f4, Anthropic's API reference (2026). */
static const char chat_names[] = OPENAI_BOTH VLLM_BOTH
    "messages audio function_call functions max_completion_tokens metadata modalities "
    "parallel_tool_calls prediction prompt_cache_key prompt_cache_retention reasoning_effort "
    "safety_identifier service_tier store tool_choice tools top_logprobs verbosity "
    "web_search_options include_reasoning echo add_generation_prompt continue_final_message documents "
    "chat_template chat_template_kwargs media_io_kwargs mm_processor_kwargs return_prompt_text "
    "return_assistant_tokens_mask";
static const char completion_names[] =
    OPENAI_BOTH VLLM_BOTH "prompt best_of echo suffix prompt_embeds";
static const char messages_names[] =
    "model messages max_tokens metadata stop_sequences stream system temperature thinking tool_choice "
    "tools top_k top_p service_tier container context_management mcp_servers output_config "
    "output_format inference_geo cache_control cache_salt kv_transfer_params ec_transfer_params "
    "chat_template_kwargs";

static bool find(unsigned api, const char *name, nb_serve_field *out)
{
    for (size_t i = 0; nb_serve_field_at(i, out); i++) {
        const bool has = api == NB_FIELDS_CHAT         ? out->chat
                         : api == NB_FIELDS_COMPLETION ? out->completions
                                                       : out->messages;
        if (has && strcmp(out->name, name) == 0) return true;
    }
    return false;
}

static void test_complete(void **state)
{
    static const struct {
        unsigned api;
        const char *names;
    } lists[] = { { NB_FIELDS_CHAT, chat_names },
                  { NB_FIELDS_COMPLETION, completion_names },
                  { NB_FIELDS_MESSAGES, messages_names } };
    nb_serve_field f;
    (void)state;
    for (size_t k = 0; k < NB_COUNT(lists); k++)
        for (const char *p = lists[k].names; *p;) {
            char name[64];
            const size_t n = strcspn(p, " ");
            (void)snprintf(name, sizeof name, "%.*s", (int)n, p);
            if (!find(lists[k].api, name, &f))
                fail_msg("api %u: no row for %s", lists[k].api, name);
            p += n + (p[n] == ' ');
        }
}

/* A row of each name and API only, and a reason for what has no effect. */
static void test_sound(void **state)
{
    nb_serve_field f, g;
    (void)state;
    for (size_t i = 0; nb_serve_field_at(i, &f); i++) {
        assert_true(f.chat || f.completions || f.messages || f.responses);
        if (f.kind == NB_FIELD_REFUSED || f.kind == NB_FIELD_WARNED || f.unless_shown)
            assert_true(strlen(f.note) > 8);
        for (size_t k = 0; k < i && nb_serve_field_at(k, &g); k++)
            if (strcmp(f.name, g.name) == 0)
                assert_false((f.chat && g.chat) || (f.completions && g.completions) ||
                             (f.messages && g.messages) || (f.responses && g.responses));
    }
    assert_false(nb_serve_field_at(100000, &f));
}

static bool knows_tools(const void *ctx, const char *word)
{
    (void)ctx;
    return strcmp(word, "tools") == 0 || strcmp(word, "enable_thinking") == 0;
}

static bool knows_nothing(const void *ctx, const char *word)
{
    (void)ctx;
    (void)word;
    return false;
}

enum outcome { TAKEN, WARNED, REFUSED };

static enum outcome check(unsigned api, const char *body,
                          bool (*mentions)(const void *, const char *), char *line, size_t n)
{
    nb_ask a = { 0 };
    const nb_ask_limits lim = { .template_mentions = mentions };
    enum outcome o = TAKEN;
    assert_int_equal(nb_ask_open(&a, nb_str_c(body)), NB_OK);
    line[0] = 0;
    if (nb_fields_check(&a, api, &lim) != NB_OK) {
        o = REFUSED;
        assert_non_null(a.param);
        assert_memory_equal(a.err.msg, a.param, strlen(a.param));
        (void)snprintf(line, n, "%.200s", a.err.msg);
    }
    for (size_t i = 0; o == TAKEN && i < 64 * NB_COUNT(a.warned); i++)
        if (a.warned[i / 64] >> i % 64 & 1) {
            nb_fields_warning(i, line, n);
            o = WARNED;
        }
    nb_ask_deinit(&a);
    return o;
}

typedef struct case_ {
    unsigned api;
    const char *body;
    enum outcome want;
} case_;

#define C NB_FIELDS_CHAT
#define T NB_FIELDS_COMPLETION
#define M NB_FIELDS_MESSAGES
#define TOOL "\"tools\":[{\"type\":\"function\"}]"

// clang-format off
static const case_ cases[] = { /* with a template that takes nothing */
    { C, "{}", TAKEN },
    { C, "{\"unheard_of\":[1]}", TAKEN },
    { C, "{" TOOL "}", TAKEN },
    { C, "{" TOOL ",\"tool_choice\":\"auto\"}", TAKEN },
    { C, "{" TOOL ",\"tool_choice\":\"none\"}", TAKEN },
    { C, "{\"tools\":[]}", TAKEN },
    { C, "{\"tools\":null}", TAKEN },
    { M, "{\"tools\":[{\"name\":\"f\"}]}", TAKEN },
    { M, "{\"tools\":[{\"name\":\"f\"}],\"tool_choice\":{\"type\":\"none\"}}", TAKEN },
    { M, "{\"tools\":[{\"name\":\"f\"}],\"tool_choice\":{\"type\":\"auto\"}}", TAKEN },
    { C, "{\"documents\":[{}]}", REFUSED },
    { C, "{\"reasoning_effort\":\"low\"}", TAKEN },
    { C, "{\"verbosity\":\"low\"}", WARNED },
    { C, "{\"chat_template_kwargs\":{}}", TAKEN },
    { C, "{\"chat_template_kwargs\":{\"enable_thinking\":false}}", WARNED },
    { C, "{\"functions\":[{\"name\":\"f\"}]}", REFUSED },
    { C, "{\"function_call\":{\"name\":\"f\"}}", REFUSED },
    { C, "{\"function_call\":\"auto\"}", TAKEN },
    { C, "{\"store\":true}", WARNED },
    { C, "{\"store\":false}", TAKEN },
    { C, "{\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"service_tier\":\"flex\",\"prompt_cache_key\":\"x\"}", TAKEN },
    { C, "{\"web_search_options\":{\"a\":1}}", REFUSED },
    { C, "{\"skip_special_tokens\":true}", TAKEN },
    { C, "{\"skip_special_tokens\":\"true\"}", TAKEN },
    { C, "{\"skip_special_tokens\":false}", REFUSED },
    { C, "{\"stream_interval\":1}", TAKEN },
    { C, "{\"stream_interval\":4}", WARNED },
    { C, "{\"truncation_side\":\"left\"}", TAKEN },
    { C, "{\"truncation_side\":\"right\"}", REFUSED },
    { C, "{\"use_beam_search\":0}", REFUSED },
    { C, "{\"guided_regex\":\"a+\"}", TAKEN },
    { C, "{\"structural_tag\":\"x\"}", REFUSED },
    { T, "{\"n_predict\":5}", REFUSED },
    { T, "{\"kv_transfer_params\":{\"a\":1}}", REFUSED },
    { T, "{\"tools\":[1],\"reasoning_effort\":\"low\",\"store\":true}", TAKEN }, /* not its fields */
    { M, "{\"thinking\":{\"type\":\"disabled\"}}", TAKEN },
    { M, "{\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}}", TAKEN },
    { M, "{\"mcp_servers\":[{}]}", REFUSED },
    { M, "{\"output_format\":{\"type\":\"json_schema\"}}", TAKEN },
};
// clang-format on

static void test_outcomes(void **state)
{
    char line[256];
    (void)state;
    for (size_t i = 0; i < NB_COUNT(cases); i++) {
        const enum outcome got =
            check(cases[i].api, cases[i].body, knows_nothing, line, sizeof line);
        if (got != cases[i].want)
            fail_msg("%s: %d, expected %d: %s", cases[i].body, (int)got, (int)cases[i].want, line);
    }
    /* A template that takes them. */
    assert_int_equal(check(C, "{" TOOL "}", knows_tools, line, sizeof line), TAKEN);
    assert_int_equal(check(M, "{\"tools\":[{\"name\":\"f\"}]}", knows_tools, line, sizeof line),
                     TAKEN);
    assert_int_equal(check(C, "{\"chat_template_kwargs\":{\"enable_thinking\":true}}", knows_tools,
                           line, sizeof line),
                     TAKEN);
    assert_int_equal(check(C, "{\"chat_template_kwargs\":{\"enable_thinking\":true,\"x\":1}}",
                           knows_tools, line, sizeof line),
                     WARNED);
    assert_non_null(strstr(line, "chat_template_kwargs"));
    assert_int_equal(check(C, "{\"reasoning_effort\":\"low\"}", NULL, line, sizeof line), TAKEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_outcomes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
