/* test_serve_parse.c - the fields of a request: what is taken, what is refused and by which name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/json_size.h"
#include "serve/parse_request.h"

static nb_ask_limits limits(void)
{
    nb_ask_limits l = {
        .vocab = 4096, .max_model_len = 1000, .max_logprobs = 20, .max_n = 8, .max_stop = 4
    };
    nb_sampling_default(&l.sampling);
    l.sampling.temperature = 0.6;
    l.sampling.top_k = 40;
    return l;
}

static nb_status read_with(nb_ask *a, nb_ask_kind kind, const char *body, const nb_ask_limits *l)
{
    *a = (nb_ask){ 0 };
    NB_TRY(nb_ask_open(a, nb_str_c(body)));
    return nb_ask_read(a, kind, l);
}

static nb_status read_body(nb_ask *a, nb_ask_kind kind, const char *body)
{
    const nb_ask_limits l = limits();
    return read_with(a, kind, body, &l);
}

/* ---- what is refused ---- */

typedef struct refusal {
    nb_ask_kind kind;
    const char *body, *param; /* NULL: none */
} refusal;

#define C NB_ASK_CHAT
#define T NB_ASK_COMPLETION

// clang-format off
static const refusal refusals[] = {
    { C, "", NULL },
    { C, "{", NULL },
    { C, "[]", NULL },
    { C, "3", NULL },
    { C, "{\"a\":1,\"a\":2}", NULL },
    { C, "{\"a\":1e999}", NULL },
    { C, "{\"a\":123456789012345678901234567890}", NULL },
    { C, "{\"a\":\"\xff\"}", NULL },
    { C, "{\"a\":\"\\ud800\"}", NULL },
    { C, "{} x", NULL },
    { C, "{\"temperature\":\"hot\"}", "temperature" },
    { C, "{\"temperature\":-0.1}", "temperature" },
    { C, "{\"temperature\":true}", "temperature" },
    { C, "{\"top_p\":0}", "top_p" },
    { C, "{\"top_p\":1.01}", "top_p" },
    { C, "{\"min_p\":-1}", "min_p" },
    { C, "{\"top_k\":-2}", "top_k" },
    { C, "{\"top_k\":1.5}", "top_k" },
    { C, "{\"presence_penalty\":2.5}", "presence_penalty" },
    { C, "{\"frequency_penalty\":-2.5}", "frequency_penalty" },
    { C, "{\"repetition_penalty\":0}", "repetition_penalty" },
    { C, "{\"repetition_penalty\":1e-38}", "repetition_penalty" },
    { C, "{\"repetition_penalty\":1e7}", "repetition_penalty" },
    { C, "{\"seed\":\"1\"}", "seed" },
    { C, "{\"seed\":1.25}", "seed" },
    { C, "{\"n\":0}", "n" },
    { C, "{\"n\":9}", "n" },
    { C, "{\"n\":\"2\"}", "n" },
    { C, "{\"stop\":3}", "stop" },
    { C, "{\"stop\":\"\"}", "stop" },
    { C, "{\"stop\":[\"a\",1]}", "stop" },
    { C, "{\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}", "stop" },
    { C, "{\"stop\":\"a\\u0000b\"}", "stop" },
    { C, "{\"stop_token_ids\":7}", "stop_token_ids" },
    { C, "{\"stop_token_ids\":[4096]}", "stop_token_ids" },
    { C, "{\"stop_token_ids\":[-1]}", "stop_token_ids" },
    { C, "{\"logit_bias\":[]}", "logit_bias" },
    { C, "{\"logit_bias\":{\"x\":1}}", "logit_bias" },
    { C, "{\"logit_bias\":{\"-1\":1}}", "logit_bias" },
    { C, "{\"logit_bias\":{\"01\":1}}", "logit_bias" },
    { C, "{\"logit_bias\":{\"4096\":1}}", "logit_bias" },
    { C, "{\"logit_bias\":{\"99999999999999999999999\":1}}", "logit_bias" },
    { C, "{\"logit_bias\":{\"1\":101}}", "logit_bias" },
    { C, "{\"logit_bias\":{\"1\":\"a\"}}", "logit_bias" },
    { C, "{\"max_tokens\":0}", "max_tokens" },
    { C, "{\"max_tokens\":-5}", "max_tokens" },
    { C, "{\"max_completion_tokens\":0}", "max_completion_tokens" },
    { C, "{\"min_tokens\":-1}", "min_tokens" },
    { C, "{\"min_tokens\":5,\"max_tokens\":4}", "min_tokens" },
    { C, "{\"logprobs\":1}", "logprobs" },
    { C, "{\"top_logprobs\":2}", "top_logprobs" },
    { C, "{\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs" },
    { C, "{\"prompt_logprobs\":1,\"stream\":true}", "prompt_logprobs" },
    { C, "{\"prompt_logprobs\":-1}", "prompt_logprobs" },
    { C, "{\"stream\":1}", "stream" },
    { C, "{\"stream_options\":{}}", "stream_options" },
    { C, "{\"stream\":true,\"stream_options\":{\"include_usage\":1}}", "stream_options" },
    { C, "{\"stream\":true,\"stream_options\":[]}", "stream_options" },
    { C, "{\"cache_salt\":\"\"}", "cache_salt" },
    { C, "{\"cache_salt\":1}", "cache_salt" },
    { C, "{\"priority\":1}", "priority" },
    { C, "{\"request_id\":\"a b\"}", "request_id" },
    { C, "{\"truncate_prompt_tokens\":0}", "truncate_prompt_tokens" },
    { C, "{\"echo\":true}", "echo" },
    { C, "{\"chat_template\":\"x\"}", "chat_template" },
    { C, "{\"tool_choice\":\"required\"}", "tool_choice" },
    { C, "{\"tool_choice\":{\"type\":\"function\"}}", "tool_choice" },
    { C, "{\"tool_choice\":7}", "tool_choice" },
    { C, "{\"tools\":{}}", "tools" },
    { C, "{\"tools\":[1]}", "tools" },
    { C, "{\"tools\":[{}]}", "tools" },
    { C, "{\"tools\":[{\"type\":\"function\",\"function\":{}}]}", "tools" },
    { C, "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]}", "tools" },
    { C, "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]}", "tools" },
    { C, "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}}", "tool_choice" },
    { C, "{\"reasoning_effort\":1}", "reasoning_effort" },
    { C, "{\"reasoning_effort\":\"\"}", "reasoning_effort" },
    { C, "{\"response_format\":{\"type\":\"json_schema\"}}", "response_format" },
    { C, "{\"response_format\":\"text\"}", "response_format" },
    { C, "{\"bad_words\":[\"a\"]}", "bad_words" },
    { C, "{\"allowed_token_ids\":[1]}", "allowed_token_ids" },
    { C, "{\"skip_special_tokens\":false}", "skip_special_tokens" },
    { C, "{\"use_beam_search\":true}", "use_beam_search" },
    { C, "{\"modalities\":[\"audio\"]}", "modalities" },
    { T, "{\"suffix\":\"x\"}", "suffix" },
    { T, "{\"best_of\":2}", "best_of" },
    { T, "{\"logprobs\":21}", "logprobs" },
    { T, "{\"logprobs\":-1}", "logprobs" },
    { T, "{\"max_tokens\":0}", "max_tokens" },
    { T, "{\"echo\":\"yes\"}", "echo" },
};
// clang-format on

static void test_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < NB_COUNT(refusals); i++) {
        nb_ask a;
        const nb_status st = read_body(&a, refusals[i].kind, refusals[i].body);
        if (st == NB_OK) fail_msg("accepted: %s", refusals[i].body);
        if (!a.err.msg[0] || strchr(a.err.msg, '\n')) fail_msg("no line: %s", refusals[i].body);
        const char *want = refusals[i].param ? refusals[i].param : "(none)";
        if (strcmp(a.param ? a.param : "(none)", want) != 0)
            fail_msg("%s: param is %s, expected %s", refusals[i].body, a.param ? a.param : "(none)",
                     want);
        nb_ask_deinit(&a);
    }
}

/* ---- what is taken ---- */

static void test_defaults(void **state)
{
    (void)state;
    nb_ask a;
    assert_int_equal(read_body(&a, C, "{\"unknown\":{\"x\":[1]},\"user\":\"u\",\"store\":true}"),
                     NB_OK);
    assert_true(a.sampling.temperature == 0.6 && a.sampling.top_k == 40);
    assert_true(a.sampling.n_logprobs == -1 && a.prompt_logprobs == -1);
    assert_true(a.n == 1 && !a.stream && !a.has_max_tokens && !a.has_seed && !a.add_special);
    nb_ask_deinit(&a);
    assert_int_equal(read_body(&a, T, "{}"), NB_OK);
    assert_true(a.add_special);
    nb_ask_deinit(&a);
}

static void test_null_is_absent(void **state)
{
    (void)state;
    nb_ask a;
    assert_int_equal(
        read_body(
            &a, C,
            "{\"temperature\":null,\"n\":null,\"stop\":null,\"logit_bias\":null,\"seed\":null,"
            "\"stream_options\":null,\"top_logprobs\":null,\"tools\":null,\"tool_choice\":null,"
            "\"response_format\":null,\"cache_salt\":null,\"priority\":null,"
            "\"structured_outputs\":null,\"guided_json\":null,\"max_tokens\":null}"),
        NB_OK);
    assert_true(a.sampling.temperature == 0.6 && a.n == 1 && !a.has_max_tokens && !a.has_seed);
    nb_ask_deinit(&a);
}

static void test_harmless_values(void **state)
{
    (void)state;
    nb_ask a;
    assert_int_equal(
        read_body(
            &a, C,
            "{\"echo\":false,\"bad_words\":[],\"skip_special_tokens\":true,\"guided_json\":\"\","
            "\"response_format\":{\"type\":\"text\"},\"tool_choice\":\"auto\",\"tools\":[],"
            "\"parallel_tool_calls\":false,\"modalities\":[\"text\"],\"priority\":0,"
            "\"function_call\":\"none\",\"top_logprobs\":0,\"top_k\":-1,\"n\":2.0}"),
        NB_OK);
    assert_true(a.sampling.top_k == 0 && a.n == 2);
    nb_ask_deinit(&a);
    assert_int_equal(read_body(&a, T, "{\"suffix\":\"\",\"best_of\":3,\"n\":3,\"logprobs\":false}"),
                     NB_OK);
    assert_true(!a.logprobs && a.n == 3);
    nb_ask_deinit(&a);
}

static void test_sampling(void **state)
{
    (void)state;
    nb_ask a;
    assert_int_equal(
        read_body(
            &a, C,
            "{\"temperature\":1.5,\"top_p\":0.5,\"min_p\":0.1,\"top_k\":7,\"seed\":-9,"
            "\"presence_penalty\":1,\"frequency_penalty\":-1,\"repetition_penalty\":1.1,"
            "\"max_tokens\":5,\"max_completion_tokens\":7,\"min_tokens\":2,\"ignore_eos\":true,"
            "\"stop\":[\"a\",\"bc\"],\"stop_token_ids\":[3,4095],"
            "\"logit_bias\":{\"5\":-100,\"6\":2.5},\"logprobs\":true,\"top_logprobs\":3,"
            "\"truncate_prompt_tokens\":-1,\"include_stop_str_in_output\":true}"),
        NB_OK);
    const nb_sampling *s = &a.sampling;
    assert_true(s->temperature == 1.5 && s->top_p == 0.5 && s->min_p == 0.1 && s->top_k == 7);
    assert_true(a.has_seed && s->seed == (uint64_t)-9);
    assert_true(s->presence_penalty == 1 && s->frequency_penalty == -1);
    assert_true(a.has_max_tokens && s->max_tokens == 7 && s->min_tokens == 2 && s->ignore_eos);
    assert_true(s->n_stop == 2 && s->n_stop_id == 2 && s->stop_id[1] == 4095);
    assert_string_equal(s->stop[1], "bc");
    assert_true(s->n_logit_bias == 2 && a.logprobs && s->n_logprobs == 3);
    assert_true(a.truncate == 1000 && a.include_stop);
    nb_ask_deinit(&a);
}

static void test_completion_logprobs(void **state)
{
    (void)state;
    nb_ask a;
    assert_int_equal(read_body(&a, T, "{\"logprobs\":0,\"echo\":true,\"max_tokens\":0}"), NB_OK);
    assert_true(a.logprobs && a.sampling.n_logprobs == 0 && a.echo);
    assert_true(a.has_max_tokens && a.sampling.max_tokens == 0);
    nb_ask_deinit(&a);
    assert_int_equal(read_body(&a, T, "{\"logprobs\":true}"), NB_OK);
    assert_true(a.logprobs && a.sampling.n_logprobs == 1);
    nb_ask_deinit(&a);
}

static void test_usage_options(void **state)
{
    (void)state;
    nb_ask a;
    nb_ask_limits l = limits();
    assert_int_equal(read_body(&a, C,
                               "{\"stream\":true,\"stream_options\":{\"include_usage\":true,"
                               "\"continuous_usage_stats\":true}}"),
                     NB_OK);
    assert_true(a.include_usage && a.continuous_usage);
    nb_ask_deinit(&a);
    assert_int_equal(
        read_body(&a, C, "{\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true}}"),
        NB_OK);
    assert_true(!a.include_usage && !a.continuous_usage);
    nb_ask_deinit(&a);
    l.force_usage = true;
    l.priority = true;
    assert_int_equal(read_with(&a, C, "{\"stream\":true,\"priority\":-3}", &l), NB_OK);
    assert_true(a.include_usage && a.priority == -3);
    nb_ask_deinit(&a);
}

static void test_deep_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    nb_buf b = { 0 };
    nb_ask a = { 0 };
    assert_int_equal(nb_buf_add_c(&b, "{\"x\":"), NB_OK);
    for (size_t i = 0; i < DEPTH; i++) assert_int_equal(nb_buf_add_ch(&b, '['), NB_OK);
    assert_int_equal(nb_ask_open(&a, nb_buf_view(&b)), NB_ERR_ARG);
    nb_buf_deinit(&b);
    nb_ask_deinit(&a);
}

/* n items of a list, in a field that nobody reads. */
static nb_status many(nb_ask *a, const char *item, size_t n)
{
    nb_buf b = { 0 };
    assert_int_equal(nb_buf_add_c(&b, "{\"x\":[1"), NB_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(nb_buf_add_ch(&b, ','), NB_OK);
        assert_int_equal(nb_buf_add_c(&b, item), NB_OK);
    }
    assert_int_equal(nb_buf_add_c(&b, "]}"), NB_OK);
    *a = (nb_ask){ 0 };
    const nb_status st = nb_ask_open(a, nb_buf_view(&b));
    nb_ask_deinit(a);
    nb_buf_deinit(&b);
    return st;
}

/* What a body would take in memory is bounded before it is parsed. */
static void test_many_values(void **state)
{
    (void)state;
    nb_ask a;
    assert_int_equal(many(&a, "{}", 99998), NB_OK);
    assert_int_equal(many(&a, "{}", 100000), NB_ERR_ARG);
    assert_non_null(strstr(a.err.msg, "100002 objects and arrays"));
    assert_int_equal(many(&a, "\"[{,\\\"[{\"", 200000), NB_OK); /* brackets in strings are text */
    assert_int_equal(many(&a, "\"\"", 1500000), NB_ERR_ARG);
    assert_non_null(strstr(a.err.msg, "MiB of memory: expected at most 192 MiB"));
    assert_int_equal(many(&a, "12345", 2000000), NB_OK); /* a prompt of two million tokens */
    const nb_json_size s =
        nb_json_measure(nb_str_c("{\"a\": [1, {}, \"]\\\"[\"]} \"[")); /* and no end */
    assert_int_equal(s.n_container, 3);
    assert_true(nb_json_measure(nb_str_c("\"\\")).tree_bytes > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_by_name), cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_null_is_absent),  cmocka_unit_test(test_harmless_values),
        cmocka_unit_test(test_sampling),        cmocka_unit_test(test_completion_logprobs),
        cmocka_unit_test(test_usage_options),   cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_many_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
