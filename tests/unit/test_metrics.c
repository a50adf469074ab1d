/* test_metrics.c - the exposition of the server's metrics: names, types, buckets, labels, and
 * that every line is well-formed; with Python's prometheus_client, where it is installed, its
 * parser reads it too. */
#include "load_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/str.h"
#include "serve/metrics.h"

static const nb_engine_info info = {
    .family = "deepseek_v3",
    .kv_dtype = "nvfp4",
    .kv_layout = "codes 64x32 + scales 64x4",
    .max_model_len = 2048,
    .kv_bytes_per_tok = 324.5,
    .n_block = 100,
    .block_tok = 64,
    .block_bytes = 20768,
    .tail_bytes = 4096,
    .kv_pool_bytes = 2076800,
};

static nb_metrics *make(const char *name)
{
    nb_metrics *m = NULL;
    assert_int_equal(nb_metrics_create(name, &info, &m), NB_OK);
    return m;
}

static char *text_of(const nb_metrics *m, const nb_engine_stats *st)
{
    nb_buf b = { 0 };
    const nb_metrics_gauges g = { .n_connections = 7, .n_exchanges = 3, .n_unanswered = 5 };
    assert_int_equal(nb_metrics_write(m, st, &g, &b), NB_OK);
    assert_int_equal(strlen(b.p), b.n_bytes);
    return b.p;
}

/* The line `name{labels} value` must be there, value and all. */
static void has(const char *text, const char *line)
{
    const size_t n = strlen(line);
    for (const char *p = text; (p = strstr(p, line)) != NULL; p += n)
        if ((p == text || p[-1] == '\n') && p[n] == '\n') return;
    fail_msg("no line: %s", line);
}

/* Value of the first sample that begins so. */
static double value(const char *text, const char *begins)
{
    for (const char *p = text; (p = strstr(p, begins)) != NULL; p++)
        if (p == text || p[-1] == '\n') {
            const char *end = strchr(p, '\n');
            while (end[-1] != ' ') end--;
            return strtod(end, NULL);
        }
    fail_msg("no sample: %s", begins);
    return 0;
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
}

/* One line of the format; *p moves behind it. Names of families are collected by the caller. */
static void check_sample(const char **p)
{
    const char *s = *p;
    assert_true(name_char(*s) && !(*s >= '0' && *s <= '9'));
    while (name_char(*s)) s++;
    if (*s == '{') {
        for (s++; *s != '}';) {
            assert_true(name_char(*s));
            while (name_char(*s)) s++;
            assert_true(s[0] == '=' && s[1] == '"');
            for (s += 2; *s != '"'; s++) {
                assert_true((unsigned char)*s >= 0x20);
                if (*s == '\\') assert_non_null(memchr("\\\"n", *++s, 3));
            }
            s++;
            if (*s == ',') s++;
        }
        s++;
    }
    assert_int_equal(*s, ' ');
    char *end;
    (void)strtod(s + 1, &end);
    assert_true(end > s + 1 && *end == '\n');
    *p = end + 1;
}

static void check_format(const char *text)
{
    char family[128] = "", seen[16384] = "\n";
    for (const char *p = text; *p;) {
        if (*p != '#') {
            assert_memory_equal(p, family, strlen(family)); /* samples follow their family */
            check_sample(&p);
            continue;
        }
        char name[128], type[32], again[130];
        assert_int_equal(sscanf(p, "# HELP %127s", name), 1);
        p = strchr(p, '\n') + 1;
        assert_int_equal(sscanf(p, "# TYPE %127s %31s", family, type), 2);
        assert_string_equal(name, family);
        assert_true(!strcmp(type, "gauge") || !strcmp(type, "counter") ||
                    !strcmp(type, "histogram"));
        if (!strcmp(type, "counter")) assert_string_equal(family + strlen(family) - 6, "_total");
        (void)snprintf(again, sizeof again, "\n%s\n", family);
        assert_null(strstr(seen, again)); /* a family once */
        assert_true(strlen(seen) + strlen(family) + 2 < sizeof seen);
        strcat(seen, family);
        strcat(seen, "\n");
        p = strchr(p, '\n') + 1;
    }
}

#define L "{model_name=\"m\",engine=\"0\"}"
#define L_(more) "{model_name=\"m\",engine=\"0\"," more "}"

static void test_names(void **state)
{
    (void)state;
    static const char *const families[] = { "vllm:num_requests_running gauge",
                                            "vllm:num_requests_waiting gauge",
                                            "vllm:kv_cache_usage_perc gauge",
                                            "vllm:num_requests_waiting_by_reason gauge",
                                            "vllm:cache_config_info gauge",
                                            "vllm:prefix_cache_queries_total counter",
                                            "vllm:prefix_cache_hits_total counter",
                                            "vllm:num_preemptions_total counter",
                                            "vllm:prompt_tokens_total counter",
                                            "vllm:generation_tokens_total counter",
                                            "vllm:prompt_tokens_cached_total counter",
                                            "vllm:prompt_tokens_by_source_total counter",
                                            "vllm:request_success_total counter",
                                            "vllm:time_to_first_token_seconds histogram",
                                            "vllm:inter_token_latency_seconds histogram",
                                            "vllm:request_time_per_output_token_seconds histogram",
                                            "vllm:e2e_request_latency_seconds histogram",
                                            "vllm:request_queue_time_seconds histogram",
                                            "vllm:request_inference_time_seconds histogram",
                                            "vllm:request_prefill_time_seconds histogram",
                                            "vllm:request_decode_time_seconds histogram",
                                            "vllm:request_prompt_tokens histogram",
                                            "vllm:request_generation_tokens histogram",
                                            "vllm:request_max_num_generation_tokens histogram",
                                            "vllm:request_params_max_tokens histogram",
                                            "vllm:request_prefill_kv_computed_tokens histogram",
                                            "vllm:request_params_n histogram",
                                            "vllm:iteration_tokens_total histogram",
                                            "vllm:gpu_cache_usage_perc gauge",
                                            "vllm:gpu_prefix_cache_hits_total counter",
                                            "vllm:gpu_prefix_cache_queries_total counter",
                                            "vllm:time_per_output_token_seconds histogram",
                                            "http_requests_total counter",
                                            "http_request_duration_seconds histogram",
                                            "nibble:kv_bytes_per_token gauge",
                                            "nibble:kv_pool_bytes gauge",
                                            "nibble:kv_evictions_total counter",
                                            "nibble:preempted_tokens_total counter",
                                            "nibble:readmission_hits_total counter",
                                            "nibble:nonfinite_values_refused_total counter",
                                            "nibble:http_connections gauge",
                                            "nibble:requests_refused_total counter" };
    nb_metrics *m = make("m");
    char *t = text_of(m, &(nb_engine_stats){ 0 });
    check_format(t);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char line[160];
        (void)snprintf(line, sizeof line, "# TYPE %s", families[i]);
        has(t, line);
    }
    /* Everything is there from the start, as zero. */
    has(t, "vllm:request_success_total" L_("finished_reason=\"abort\"") " 0");
    has(t, "vllm:e2e_request_latency_seconds_count" L " 0");
    has(t, "vllm:num_requests_running" L " 0");
    has(t, "nibble:http_connections" L " 7");
    has(t, "nibble:http_connections_unanswered_total" L " 5");
    if (access("/proc/self/statm", R_OK) == 0) {
        assert_true(value(t, "process_resident_memory_bytes ") > 100000);
        assert_true(value(t, "process_open_fds ") >= 3);
    }
    free(t);
    nb_metrics_destroy(m);
}

static void test_engine_values(void **state)
{
    (void)state;
    nb_metrics *m = make("m");
    nb_engine_stats st = { .n_running = 5,
                           .n_waiting = 4,
                           .n_deferred = 3,
                           .n_block = 100,
                           .n_block_held = 25,
                           .n_block_free = 40,
                           .n_block_once = 20,
                           .n_block_many = 15,
                           .prefix_queries = 1000,
                           .prefix_hits = 640,
                           .again_queries = 90,
                           .again_hits = 64,
                           .n_evicted = 6,
                           .n_preempted = 2,
                           .preempted_tok = 77,
                           .prompt_tok = 1200,
                           .prompt_tok_cached = 640,
                           .generated_tok = 12345678901,
                           .n_nonfinite = 1,
                           .n_step = 9,
                           .step_tok_sum = 300 };
    st.step_tok[0] = 4; /* up to 1 token */
    st.step_tok[2] = 3; /* 9..16 */
    st.step_tok[NB_STEP_TOK_BUCKETS] = 2;
    char *t = text_of(m, &st);
    check_format(t);
    has(t, "vllm:num_requests_running" L " 5");
    has(t, "vllm:num_requests_waiting" L " 4");
    has(t, "vllm:num_requests_waiting_by_reason" L_("reason=\"capacity\"") " 1");
    has(t, "vllm:num_requests_waiting_by_reason" L_("reason=\"deferred\"") " 3");
    has(t, "vllm:kv_cache_usage_perc" L " 0.25");
    has(t, "vllm:gpu_cache_usage_perc" L " 0.25");
    has(t, "vllm:prefix_cache_hits_total" L " 640");
    has(t, "vllm:gpu_prefix_cache_queries_total" L " 1000");
    has(t, "vllm:num_preemptions_total" L " 2");
    has(t, "vllm:prompt_tokens_total" L " 1200");
    has(t, "vllm:prompt_tokens_by_source_total" L_("source=\"local_compute\"") " 560");
    has(t, "vllm:prompt_tokens_by_source_total" L_("source=\"local_cache_hit\"") " 640");
    has(t, "vllm:prompt_tokens_by_source_total" L_("source=\"external_kv_transfer\"") " 0");
    has(t, "vllm:generation_tokens_total" L " 12345678901");
    has(t, "vllm:iteration_tokens_total_bucket" L_("le=\"1.0\"") " 4");
    has(t, "vllm:iteration_tokens_total_bucket" L_("le=\"8.0\"") " 4");
    has(t, "vllm:iteration_tokens_total_bucket" L_("le=\"16.0\"") " 7");
    has(t, "vllm:iteration_tokens_total_bucket" L_("le=\"16384.0\"") " 7");
    has(t, "vllm:iteration_tokens_total_bucket" L_("le=\"+Inf\"") " 9");
    has(t, "vllm:iteration_tokens_total_sum" L " 300");
    has(t, "nibble:kv_bytes_per_token" L_("record=\"nvfp4\"") " 324.5");
    has(t, "nibble:kv_pool_bytes" L_("use=\"held\"") " 519200");
    has(t, "nibble:kv_pool_bytes" L_("use=\"cached_many\"") " 311520");
    has(t, "nibble:kv_pool_bytes" L_("use=\"tails\"") " 4096");
    has(t, "nibble:preempted_tokens_total" L " 77");
    has(t, "nibble:readmission_hits_total" L " 64");
    has(t, "nibble:kv_evictions_total" L " 6");
    has(t, "nibble:nonfinite_values_refused_total" L " 1");
    assert_non_null(strstr(t, "block_size=\"64\",num_gpu_blocks=\"100\""));
    assert_non_null(strstr(t, "cache_dtype=\"nvfp4\",enable_prefix_caching=\"True\""));
    free(t);
    nb_metrics_destroy(m);
}

static void test_requests(void **state)
{
    (void)state;
    nb_metrics *m = make("m");
    nb_metrics_request r = { .reason = "stop",
                             .n_prompt = 130,
                             .n_cached = 128,
                             .n_generated = 11,
                             .max_tokens = 16,
                             .n = 2,
                             .first_choice = true,
                             .ttft_s = 0.04,
                             .e2e_s = 1.05,
                             .queue_s = 0.01,
                             .prefill_s = 0.03,
                             .decode_s = 1.0 };
    nb_metrics_request_done(m, &r);
    r.first_choice = false;
    r.reason = "timeout";
    r.ttft_s = -1;
    r.n_generated = 0;
    nb_metrics_request_done(m, &r);
    r.reason = "never heard of";
    r.e2e_s = 1e9;
    nb_metrics_request_done(m, &r);
    r.reason = NULL;
    r.e2e_s = -1;
    nb_metrics_request_done(m, &r);
    nb_metrics_token(m, 0.01);
    nb_metrics_token(m, 0.011);
    nb_metrics_token(m, 1000);
    char *t = text_of(m, &(nb_engine_stats){ 0 });
    check_format(t);
    has(t, "vllm:request_success_total" L_("finished_reason=\"stop\"") " 1");
    has(t, "vllm:request_success_total" L_("finished_reason=\"abort\"") " 1");
    has(t, "vllm:request_success_total" L_("finished_reason=\"error\"") " 2");
    /* A value that equals a bound is below it. */
    has(t, "vllm:time_to_first_token_seconds_bucket" L_("le=\"0.02\"") " 0");
    has(t, "vllm:time_to_first_token_seconds_bucket" L_("le=\"0.04\"") " 1");
    has(t, "vllm:time_to_first_token_seconds_count" L " 1");
    has(t, "vllm:time_to_first_token_seconds_bucket" L_("le=\"2560.0\"") " 1");
    has(t, "vllm:e2e_request_latency_seconds_bucket" L_("le=\"7680.0\"") " 3");
    has(t, "vllm:e2e_request_latency_seconds_bucket" L_("le=\"+Inf\"") " 4");
    has(t, "vllm:request_time_per_output_token_seconds_sum" L " 0.1");
    has(t, "vllm:request_time_per_output_token_seconds_count" L " 1");
    has(t, "vllm:request_prompt_tokens_sum" L " 520");
    has(t, "vllm:request_prompt_tokens_bucket" L_("le=\"100.0\"") " 0");
    has(t, "vllm:request_prompt_tokens_bucket" L_("le=\"2000.0\"") " 4");
    assert_null(strstr(t, "vllm:request_prompt_tokens_bucket" L_("le=\"5000.0\"")));
    has(t, "vllm:request_prefill_kv_computed_tokens_sum" L " 8");
    has(t, "vllm:request_params_n_count" L " 1");
    has(t, "vllm:request_params_n_bucket" L_("le=\"2.0\"") " 1");
    has(t, "vllm:inter_token_latency_seconds_bucket" L_("le=\"0.01\"") " 1");
    has(t, "vllm:inter_token_latency_seconds_bucket" L_("le=\"0.025\"") " 2");
    has(t, "vllm:inter_token_latency_seconds_count" L " 3");
    has(t, "vllm:time_per_output_token_seconds_count" L " 3");
    free(t);
    nb_metrics_destroy(m);
}

static void http(nb_metrics *m, const char *handler, const char *method, int status, double s)
{
    nb_metrics_http(m, nb_str_c(handler), nb_str_c(method), status, s);
}

static void test_http(void **state)
{
    (void)state;
    nb_metrics *m = make("m");
    http(m, "/v1/models", "GET", 200, 0.1);
    http(m, "/v1/models", "GET", 204, 0.4);
    http(m, "/v1/models", "GET", 499, 2);
    http(m, "/v1/chat/completions", "POST", 503, 0);
    http(m, "/health", "GET", 503, 0);
    http(m, "none", "BREW\"\n", 404, -1);
    http(m, "", "GET", 7, 0);
    char *t = text_of(m, &(nb_engine_stats){ 0 });
    check_format(t);
    has(t, "http_requests_total{handler=\"/v1/models\",method=\"GET\",status=\"2xx\"} 2");
    has(t, "http_requests_total{handler=\"/v1/models\",method=\"GET\",status=\"4xx\"} 1");
    has(t, "http_requests_total{handler=\"none\",method=\"other\",status=\"4xx\"} 1");
    has(t, "http_requests_total{handler=\"none\",method=\"GET\",status=\"5xx\"} 1");
    has(t, "http_request_duration_seconds_bucket{handler=\"/v1/models\",method=\"GET\",le=\"0.1\"}"
           " 1");
    has(t, "http_request_duration_seconds_count{handler=\"/v1/models\",method=\"GET\"} 3");
    has(t, "http_request_duration_seconds_sum{handler=\"/v1/models\",method=\"GET\"} 2.5");
    has(t, "http_request_duration_highr_seconds_count 7");
    has(t, "nibble:requests_refused_total" L " 1");
    free(t);
    nb_metrics_destroy(m);
}

/* Handlers without end, too long, with quotes: the text stays bounded and valid. */
static void test_http_hostile(void **state)
{
    (void)state;
    nb_metrics *m = make("m");
    char path[400];
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(path, sizeof path, "/%d\"\\\n%*s", i, i % 300, "x");
        http(m, path, i & 1 ? "GET" : "\xff", 200, 0.1);
    }
    char *t = text_of(m, &(nb_engine_stats){ 0 });
    check_format(t);
    assert_true(strlen(t) < 200000);
    assert_true(value(t, "http_requests_total{handler=\"none\",method=\"GET\"") > 1000);
    has(t, "http_request_duration_highr_seconds_count 5000");
    free(t);
    nb_metrics_destroy(m);
}

static void test_label_escapes(void **state)
{
    (void)state;
    nb_metrics *m = make("a\"b\\c\nd\x01");
    char *t = text_of(m, &(nb_engine_stats){ 0 });
    check_format(t);
    has(t, "vllm:num_requests_running{model_name=\"a\\\"b\\\\c\\nd?\",engine=\"0\"} 0");
    free(t);
    nb_metrics_destroy(m);
}

static void test_long_context_buckets(void **state)
{
    (void)state;
    nb_engine_info big = info;
    nb_metrics *m = NULL;
    big.max_model_len = SIZE_MAX;
    assert_int_equal(nb_metrics_create("m", &big, &m), NB_OK);
    char *t = text_of(m, &(nb_engine_stats){ 0 });
    check_format(t);
    has(t, "vllm:request_prompt_tokens_bucket" L_("le=\"1e+06\"") " 0");
    has(t, "vllm:request_prompt_tokens_bucket" L_("le=\"500000.0\"") " 0");
    free(t);
    nb_metrics_destroy(m);
}

/* A second reader of the format; the program says 3 where the package is absent. */
static void test_official_parser(void **state)
{
    (void)state;
    static const char *const program =
        "import sys\n"
        "try:\n"
        "    from prometheus_client.parser import text_string_to_metric_families as f\n"
        "except ImportError:\n"
        "    sys.exit(3)\n"
        "n = {s.name: s for m in f(sys.stdin.read()) for s in m.samples}\n"
        "assert len(n) > 60, len(n)\n"
        "assert n['vllm:num_requests_running'].labels == {'model_name': 'a\"b', 'engine': '0'}\n"
        "assert n['vllm:generation_tokens_total'].value == 12.0\n";
    char script[] = "/tmp/nb_metrics_XXXXXX", command[128];
    const int fd = mkstemp(script);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, program, strlen(program)), strlen(program));
    (void)close(fd);
    nb_metrics *m = make("a\"b");
    char *t = text_of(m, &(nb_engine_stats){ .generated_tok = 12 });
    const char *python = access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
    (void)snprintf(command, sizeof command, "%s %s", python, script);
    FILE *f = popen(command, "w");
    assert_non_null(f);
    (void)fputs(t, f);
    const int rc = pclose(f);
    (void)unlink(script);
    free(t);
    nb_metrics_destroy(m);
    if (rc == 3 << 8 || rc == 127 << 8) skip(); /* no such package, no python */
    assert_int_equal(rc, 0);
}

/* Thrift mode's lines are there when it is on. */
static void test_thrift(void **state)
{
    (void)state;
    const nb_engine_stats st = { .thrift_scored = 9000,
                                 .thrift_refined = 45,
                                 .thrift_over = 3,
                                 .thrift_pool_hits = 20,
                                 .thrift_base_bytes = 3200000,
                                 .thrift_residual_bytes = 6400 };
    nb_engine_info on = info;
    nb_metrics *m = make("m");
    char *text = text_of(m, &st);
    assert_null(strstr(text, "thrift"));
    free(text);
    nb_metrics_destroy(m);
    on.kv_thrift = "off";
    assert_int_equal(nb_metrics_create("m", &on, &m), NB_OK);
    text = text_of(m, &st);
    assert_null(strstr(text, "thrift"));
    free(text);
    nb_metrics_destroy(m);
    on.kv_thrift = "token";
    on.residual_bytes = 123456;
    assert_int_equal(nb_metrics_create("m", &on, &m), NB_OK);
    text = text_of(m, &st);
    has(text, "nibble:thrift_residual_bytes" L " 123456");
    has(text, "nibble:thrift_scored_tokens_total" L " 9000");
    has(text, "nibble:thrift_refined_tokens_total" L " 45");
    has(text, "nibble:thrift_over_tokens_total" L " 3");
    has(text, "nibble:thrift_pool_hits_total" L " 20");
    assert_non_null(strstr(text, "from=\"records\"} 3200000\n"));
    assert_non_null(strstr(text, "from=\"planes\"} 6400\n"));
    free(text);
    nb_metrics_destroy(m);
}

/* Failing memory: no crash, the status says so. */
static void test_limited_buffer(void **state)
{
    (void)state;
    nb_metrics *m = make("m");
    nb_buf b = { .limit_bytes = 5000 };
    assert_int_equal(nb_metrics_write(m, &(nb_engine_stats){ 0 }, &(nb_metrics_gauges){ 0 }, &b),
                     NB_ERR_LIMIT);
    nb_buf_deinit(&b);
    nb_metrics_destroy(m);
    nb_metrics_destroy(NULL);
}

/* Data-parallel ranks are engines; the rest stays with engine 0. */
static void test_data_ranks(void **state)
{
    (void)state;
    nb_metrics *m = make("m");
    const nb_engine_stats st = {
        .n_running = 5,
        .generated_tok = 9,
        .n_data_rank = 2,
        .data_rank = { { .n_running = 2, .n_waiting = 3, .n_deferred = 1, .n_block = 10, .n_block_held = 5, .prefix_hits = 7 },
                       { .n_running = 3, .n_block = 10, .n_preempted = 4 } },
    };
    char *t = text_of(m, &st);
    has(t, "vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 2");
    has(t, "vllm:num_requests_running{model_name=\"m\",engine=\"1\"} 3");
    has(t, "vllm:num_requests_waiting_by_reason{model_name=\"m\",engine=\"0\",reason=\"capacity\"} 2");
    has(t, "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.5");
    has(t, "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"1\"} 0");
    has(t, "vllm:prefix_cache_hits_total{model_name=\"m\",engine=\"0\"} 7");
    has(t, "vllm:num_preemptions_total{model_name=\"m\",engine=\"1\"} 4");
    has(t, "vllm:generation_tokens_total{model_name=\"m\",engine=\"0\"} 9");
    free(t);
    nb_metrics_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_ranks),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_engine_values),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_http),
        cmocka_unit_test(test_http_hostile),
        cmocka_unit_test(test_label_escapes),
        cmocka_unit_test(test_long_context_buckets),
        cmocka_unit_test(test_official_parser),
        cmocka_unit_test(test_thrift),
        cmocka_unit_test(test_limited_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
