/* test_bench_stats.c - figures, data sets and the wire of `nibble bench`: the sources of the
 * command are not in the library, so they are part of this program. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../apps/nibble/bench/bench_data.c"
#include "../../apps/nibble/bench/bench_stats.c"
#include "../../apps/nibble/bench/bench_wire.c"

/* cli.c, as far as these sources need it. */
static char said[1024];
int cli_failed(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    return CLI_FAILED;
}
int cli_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    return CLI_USAGE;
}
int cli_read_file(const char *path, size_t max_bytes, char **data, size_t *n_bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *data = calloc(1, 1 << 20);
    assert_non_null(*data);
    *n_bytes = fread(*data, 1, (1 << 20) - 1, f);
    assert_true(*n_bytes < max_bytes);
    (void)fclose(f);
    return CLI_OK;
}

/* ---- figures ---------------------------------------------------------------- */

static void near(double a, double b)
{
    if (fabs(a - b) > 1e-9 * (1 + fabs(b))) fail_msg("%.12g, expected %.12g", a, b);
}

/* Values worked out with numpy: percentile is linear, std the population's. */
static void test_distribution(void **state)
{
    double v[] = { 4, 1, 3, 2, 10 };
    const bench_report o = { .percentile = { 50, 90, 99, 0, 100 }, .n_percentile = 5 };
    const bench_dist d = distribution(v, 5, &o);
    (void)state;
    near(d.mean, 4000);
    near(d.median, 3000);
    near(d.std, sqrt(10.0) * 1e3);
    near(d.percentile[0], 3000);
    near(d.percentile[1], 7600);
    near(d.percentile[2], 9760);
    near(d.percentile[3], 1000);
    near(d.percentile[4], 10000);
    near(distribution(v, 0, &o).mean, 0);
    near(distribution(v, 1, &o).percentile[2], 1000);
}

/* Request i starts at i seconds and has tokens at the given times after it. */
static void add(bench_rec *r, double start, const double *at, size_t n)
{
    r->start_s = start;
    for (size_t i = 0; i < n; i++) assert_true(bench_rec_token(r, start + at[i]));
    r->n_out = n;
    r->n_prompt = 7;
    r->outcome = BENCH_OK;
    r->status = 200;
}

static void test_summary(void **state)
{
    const double a[] = { 0.5, 0.75, 1.5 }, b[] = { 0.25 };
    bench_report o = { .percentile = { 99 }, .n_percentile = 1, .request_rate = INFINITY };
    bench_summary s;
    (void)state;
    bench_rec *r = calloc(4, sizeof *r);
    assert_non_null(r);
    add(&r[0], 10, a, 3);
    add(&r[1], 11, b, 1);
    r[2].outcome = BENCH_REFUSED;
    r[2].status = 503;
    r[3].outcome = BENCH_HUNG_UP;
    assert_true(bench_parse_goodput("ttft:300", &o));
    assert_true(bench_parse_goodput("e2el:1000", &o));
    assert_true(bench_summarise(r, 4, 2, &o, &s));
    assert_int_equal(s.count[BENCH_OK], 2);
    assert_int_equal(s.count[BENCH_REFUSED], 1);
    assert_int_equal(n_failed(&s), 1); /* who hangs up himself has not failed */
    assert_int_equal(s.n_in, 14);
    assert_int_equal(s.n_out, 4);
    assert_int_equal(s.n_good, 1);
    near(s.dist[BENCH_TTFT].mean, 375);
    near(s.dist[BENCH_TPOT].mean, 500); /* of the one with more than a token */
    near(s.dist[BENCH_ITL].mean, 500);
    near(s.dist[BENCH_E2EL].mean, 875);
    near(s.max_out_per_s, 2);
    assert_int_equal(s.max_concurrent, 2); /* the second starts in the last second of the first */

    json_t *j = json_object();
    assert_true(bench_parse_metrics("ttft,tpot,itl,e2el", &o));
    assert_true(bench_json(j, r, &s, &o, true));
    static const char *const keys_of_vllm[] = { "duration",
                                                "completed",
                                                "failed",
                                                "total_input_tokens",
                                                "total_output_tokens",
                                                "request_throughput",
                                                "request_goodput",
                                                "output_throughput",
                                                "total_token_throughput",
                                                "max_output_tokens_per_s",
                                                "max_concurrent_requests",
                                                "mean_ttft_ms",
                                                "median_ttft_ms",
                                                "std_ttft_ms",
                                                "p99_ttft_ms",
                                                "mean_tpot_ms",
                                                "p99_itl_ms",
                                                "std_e2el_ms",
                                                "input_lens",
                                                "output_lens",
                                                "ttfts",
                                                "itls",
                                                "start_times",
                                                "generated_texts",
                                                "errors" };
    for (size_t i = 0; i < sizeof keys_of_vllm / sizeof *keys_of_vllm; i++)
        if (!json_object_get(j, keys_of_vllm[i])) fail_msg("no %s", keys_of_vllm[i]);
    near(json_real_value(json_object_get(j, "output_throughput")), 2);
    near(json_real_value(json_object_get(j, "request_goodput")), 0.5);
    assert_int_equal(json_array_size(json_object_get(j, "ttfts")), 4);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(j, "http_statuses"), "503")), 1);
    json_decref(j);
    bench_recs_deinit(r, 4);
}

static void test_report_options(void **state)
{
    bench_report o = { 0 };
    (void)state;
    assert_true(bench_parse_percentiles("50,99.9", &o));
    assert_int_equal(o.n_percentile, 2);
    assert_false(bench_parse_percentiles("101", &o));
    assert_false(bench_parse_percentiles("50,", &o));
    assert_false(bench_parse_percentiles("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", &o));
    assert_false(bench_parse_metrics("ttft,x", &o));
    assert_false(bench_parse_goodput("itl:5", &o));
    assert_false(bench_parse_goodput("ttft", &o));
    assert_false(bench_parse_goodput("ttft:0", &o));
    assert_false(bench_parse_goodput("ttft:5x", &o));
}

/* ---- data sets ---------------------------------------------------------------- */

static bench_opts defaults(void)
{
    return (bench_opts){ .dataset_name = "random",
                         .num_prompts = 200,
                         .random_input_len = 100,
                         .random_output_len = 20,
                         .random_range_ratio = "0.5",
                         .prefix_len = 8,
                         .suffix_len = 4,
                         .num_prefixes = 5,
                         .prefix_output_len = 3,
                         .custom_output_len = -1,
                         .sharegpt_output_len = -1,
                         .trace_chunk = 4,
                         .trace_multiplier = 0.001,
                         .trace_timestamp = "timestamp",
                         .trace_input = "input_length",
                         .trace_output = "output_length",
                         .trace_hashes = "hash_ids" };
}

static void test_random(void **state)
{
    bench_opts o = defaults();
    bench_set a = { .n_pool = 1000 }, b = { .n_pool = 1000 };
    const bench_tok none = { 0 };
    uint32_t x[200], y[200];
    size_t lo = SIZE_MAX, hi = 0;
    (void)state;
    o.random_prefix_len = 10;
    o.num_warmups = 2;
    assert_int_equal(bench_set_load(&o, &none, &a), CLI_OK);
    assert_int_equal(bench_set_load(&o, &none, &b), CLI_OK);
    assert_int_equal(a.n, 200);
    assert_int_equal(a.n_warm, 2);
    for (size_t i = 0; i < a.n; i++) {
        const bench_item *it = &a.items[i];
        assert_in_range(it->n_prompt, 60, 160);
        assert_in_range(it->max_tokens, 10, 30);
        if (it->n_prompt < lo) lo = it->n_prompt;
        if (it->n_prompt > hi) hi = it->n_prompt;
        bench_prompt_ids(&a, it, x);
        bench_prompt_ids(&b, &b.items[i], y);
        assert_memory_equal(x, y, it->n_prompt * sizeof *x);
        bench_prompt_ids(&a, &a.items[(i + 1) % a.n], y);
        assert_memory_equal(x, y, 10 * sizeof *x); /* the prefix, and no more */
        assert_memory_not_equal(x + 10, y + 10, 10 * sizeof *x);
        for (size_t j = 0; j < it->n_prompt; j++) assert_true(x[j] < 1000);
    }
    assert_true(lo < 70 && hi > 150); /* the range is used */
    bench_set_deinit(&a);
    bench_set_deinit(&b);
    o.random_range_ratio = "1";
    assert_int_equal(bench_set_load(&o, &none, &a), CLI_USAGE);
    bench_set_deinit(&a);
}

static void test_prefixes(void **state)
{
    bench_opts o = defaults();
    bench_set s = { .n_pool = 50 };
    const bench_tok none = { 0 };
    uint64_t seen[8];
    size_t n_seen = 0;
    (void)state;
    o.dataset_name = "prefix_repetition";
    o.num_prompts = 23; /* 4 for each of 5 */
    assert_int_equal(bench_set_load(&o, &none, &s), CLI_OK);
    assert_int_equal(s.n, 20);
    for (size_t i = 0; i < s.n; i++) {
        size_t k = 0;
        while (k < n_seen && seen[k] != s.items[i].prefix_key) k++;
        assert_true(k < 5);
        if (k == n_seen) seen[n_seen++] = s.items[i].prefix_key;
        assert_int_equal(s.items[i].n_prompt, 12);
        assert_int_equal(s.items[i].max_tokens, 3);
    }
    assert_int_equal(n_seen, 5);
    bench_set_deinit(&s);
    o.num_prompts = 4;
    assert_int_equal(bench_set_load(&o, &none, &s), CLI_USAGE);
    bench_set_deinit(&s);
}

static const char *file_with(const char *text)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/test_bench_XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    return path;
}

static void test_trace(void **state)
{
    bench_opts o = defaults();
    bench_set s = { .n_pool = 1 << 20 };
    const bench_tok none = { 0 };
    uint32_t x[16], y[16];
    (void)state;
    o.dataset_name = "timed_trace";
    o.self_timed = true;
    o.dataset_path = file_with(
        "{\"timestamp\": 500, \"input_length\": 10, \"output_length\": 5, \"hash_ids\": [1, 2, 3]}\n"
        "\n"
        "{\"timestamp\": 2000, \"input_length\": 100, \"output_length\": 6, \"hash_ids\": [1, 9]}\n");
    assert_int_equal(bench_set_load(&o, &none, &s), CLI_OK);
    assert_int_equal(s.n, 2); /* a trace is not repeated */
    assert_int_equal(s.items[0].n_prompt, 10);
    assert_int_equal(s.items[1].n_prompt, 8); /* as many as its ids stand for */
    bench_prompt_ids(&s, &s.items[0], x);
    bench_prompt_ids(&s, &s.items[1], y);
    assert_memory_equal(x, y, 4 * sizeof *x);
    assert_memory_not_equal(x + 4, y + 4, 4 * sizeof *x);
    assert_memory_not_equal(x, x + 4, 4 * sizeof *x);
    double *at = bench_arrivals(&o, &s, INFINITY, 1);
    near(at[0], 0.5);
    near(at[1], 2);
    free(at);
    bench_set_deinit(&s);
    (void)unlink(o.dataset_path);

    o.dataset_path = file_with("{\"timestamp\": 1, \"input_length\": 10, \"hash_ids\": [1]}\n");
    assert_int_equal(bench_set_load(&o, &none, &s), CLI_FAILED);
    assert_non_null(strstr(said, "line 1"));
    assert_non_null(strstr(said, "output_length"));
    bench_set_deinit(&s);
    (void)unlink(o.dataset_path);
}

static void test_custom(void **state)
{
    bench_opts o = defaults();
    bench_set s = { 0 };
    const bench_tok none = { 0 };
    size_t n_b = 0;
    (void)state;
    o.dataset_name = "custom";
    o.num_prompts = 7;
    o.num_warmups = 1;
    o.dataset_path = file_with("{\"prompt\": \"a\", \"output_tokens\": 3}\n"
                               "{\"prompt\": \"b\\u0000c\", \"output_tokens\": 4}");
    assert_int_equal(bench_set_load(&o, &none, &s), CLI_FAILED); /* jansson refuses U+0000 */
    bench_set_deinit(&s);
    (void)unlink(o.dataset_path);
    o.dataset_path = file_with("{\"prompt\": \"a\", \"output_tokens\": 3}\n"
                               "{\"prompt\": \"bc\", \"output_tokens\": 4}");
    assert_int_equal(bench_set_load(&o, &none, &s), CLI_OK);
    assert_int_equal(s.n, 7);
    assert_int_equal(s.n_warm, 1);
    for (size_t i = 0; i < s.n + s.n_warm; i++) {
        assert_int_equal(s.items[i].max_tokens, s.items[i].text_bytes + 2);
        n_b += s.items[i].text[0] == 'b';
    }
    assert_in_range(n_b, 1, 7);
    bench_set_deinit(&s);
    o.no_oversample = true;
    o.num_warmups = 0;
    o.custom_output_len = 9;
    assert_int_equal(bench_set_load(&o, &none, &s), CLI_OK);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.items[0].max_tokens, 9);
    bench_set_deinit(&s);
    (void)unlink(o.dataset_path);
}

static int one_id_a_byte(const void *ctx, const char *text, size_t n_bytes, uint32_t **ids,
                         size_t *n)
{
    (void)ctx;
    (void)text;
    *ids = calloc(n_bytes + 1, sizeof **ids);
    *n = n_bytes;
    return CLI_OK;
}

static void test_sharegpt(void **state)
{
    bench_opts o = defaults();
    bench_set s = { 0 };
    const bench_tok tok = { one_id_a_byte, NULL };
    (void)state;
    o.dataset_name = "sharegpt";
    o.num_prompts = 10;
    o.no_oversample = true;
    o.dataset_path =
        file_with("[{\"conversations\": [{\"value\": \"hello\"}, {\"value\": \"answer\"}]},"
                  " {\"conversations\": [{\"value\": \"too\"}, {\"value\": \"answer\"}]},"
                  " {\"conversations\": [{\"value\": \"no answer\"}]}, {}]");
    assert_int_equal(bench_set_load(&o, &tok, &s), CLI_OK);
    assert_int_equal(s.n, 1);
    assert_string_equal(s.items[0].text, "hello");
    assert_int_equal(s.items[0].max_tokens, 6);
    bench_set_deinit(&s);
    (void)unlink(o.dataset_path);
}

/* Gaps of a gamma distribution: mean 1/rate, and squared deviation over mean^2 = 1/burstiness. */
static void test_arrivals(void **state)
{
    bench_opts o = defaults();
    bench_set s = { .n_pool = 10 };
    const bench_tok none = { 0 };
    const double shapes[] = { 0.3, 1, 8 };
    (void)state;
    o.num_prompts = 20000;
    assert_int_equal(bench_set_load(&o, &none, &s), CLI_OK);
    for (size_t k = 0; k < 3; k++) {
        double *at = bench_arrivals(&o, &s, 50, shapes[k]), sum = 0;
        near(at[s.n - 1], 400); /* exactly n / rate */
        for (size_t i = 1; i < s.n; i++) {
            const double gap = at[i] - at[i - 1];
            assert_true(gap >= 0);
            sum += (gap * 50 - 1) * (gap * 50 - 1);
        }
        const double v = sum / (double)(s.n - 1) * shapes[k];
        if (v < 0.85 || v > 1.15)
            fail_msg("burstiness %g: variance %g of what it should be", shapes[k], v);
        free(at);
    }
    double *even = bench_arrivals(&o, &s, 50, INFINITY);
    near(even[1] - even[0], 0.02);
    free(even);
    double *at_once = bench_arrivals(&o, &s, INFINITY, 1);
    near(at_once[s.n - 1], 0);
    free(at_once);
    o.ramp_up = "linear";
    o.ramp_start = 10;
    o.ramp_end = 100;
    double *ramp = bench_arrivals(&o, &s, INFINITY, INFINITY);
    near(ramp[0], 0.1);
    near(ramp[s.n - 1] - ramp[s.n - 2], 0.01);
    free(ramp);
    bench_set_deinit(&s);
}

static void test_rates(void **state)
{
    double x;
    (void)state;
    assert_true(bench_parse_rate("inf", &x) && isinf(x));
    assert_true(bench_parse_rate("2.5", &x) && x == 2.5);
    assert_false(bench_parse_rate("0", &x));
    assert_false(bench_parse_rate("-1", &x));
    assert_false(bench_parse_rate("", &x));
    assert_false(bench_parse_rate("nan", &x));
    assert_false(bench_parse_rate("5x", &x));
}

/* ---- the wire ------------------------------------------------------------------ */

typedef struct heard {
    char text[4096];
    size_t n;
} heard;

static void hear(void *ctx, const char *data, size_t n)
{
    heard *h = ctx;
    h->n++;
    (void)strncat(h->text, data, n);
    (void)strcat(h->text, "|");
}

/* Feeds s in pieces of k bytes; the phase it ends in. */
static wire_phase feed(bench_wire *w, const char *s, size_t k, heard *h)
{
    const size_t n = strlen(s);
    for (size_t at = 0; at < n && w->phase < WIRE_DONE; at += k)
        (void)bench_wire_feed(w, s + at, k < n - at ? k : n - at, hear, h);
    return w->phase;
}

static const char stream[] = "HTTP/1.1 100 Continue\r\n\r\n"
                             "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                             "transfer-encoding: Chunked\r\n\r\n"
                             "b\r\ndata: one\n\n\r\n"
                             "8;x=y\r\n: ping\n\n\r\n"
                             "5\r\ndata:\r\n"
                             "e\r\ntwo\r\n\r\nevent: \r\n"
                             "13\r\nx\n\ndata: [DONE]\n\n\r\n\r\n"
                             "0\r\nX-T: 1\r\n\r\n";

static void test_wire_stream(void **state)
{
    bench_wire w = { 0 };
    (void)state;
    for (size_t k = 1; k < 60; k++) {
        heard h = { 0 };
        bench_wire_reset(&w);
        assert_int_equal(feed(&w, stream, k, &h), WIRE_DONE);
        assert_int_equal(w.status, 200);
        assert_string_equal(h.text, "one|two|[DONE]|");
        assert_false(w.close);
    }
    bench_wire_deinit(&w);
}

static void test_wire_bodies(void **state)
{
    bench_wire w = { 0 };
    heard h = { 0 };
    (void)state;
    assert_int_equal(
        feed(&w, "HTTP/1.1 503 No\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabcdef", 7, &h),
        WIRE_DONE);
    assert_int_equal(w.status, 503);
    assert_string_equal(w.body.p, "abc");
    assert_true(w.close);
    bench_wire_reset(&w);
    assert_int_equal(feed(&w, "HTTP/1.1 200 OK\r\n\r\nabc", 100, &h), WIRE_UNTIL_CLOSE);
    bench_wire_eof(&w);
    assert_int_equal(w.phase, WIRE_DONE);
    bench_wire_reset(&w);
    assert_int_equal(feed(&w, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", 100, &h),
                     WIRE_LENGTH);
    bench_wire_eof(&w);
    assert_int_equal(w.phase, WIRE_LENGTH); /* cut */
    static const char *const wrong[] = {
        "HTTP/2 200 OK\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 2x0 OK\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bench_wire_reset(&w);
        if (feed(&w, wrong[i], 100, &h) != WIRE_BAD) fail_msg("accepted: %s", wrong[i]);
        assert_non_null(w.why);
    }
    bench_wire_deinit(&w);
}

static void test_event_kinds(void **state)
{
    static const struct {
        const char *data;
        event_kind kind;
    } c[] = {
        { "[DONE]", EVENT_DONE },
        { "{\"id\":\"x\",\"choices\":[{\"index\":0,\"text\":\"a\"}],\"usage\":null}", EVENT_TOKEN },
        { "{\"choices\": [ {\"delta\":{}}]}", EVENT_TOKEN },
        { "{\"choices\":[],\"usage\":{\"prompt_tokens\":3}}", EVENT_USAGE },
        { "{\"choices\" : [ ] , \"usage\": {}}", EVENT_USAGE },
        { "{\"choices\":[]}", EVENT_OTHER },
        { "{\"error\":{\"message\":\"no\"}}", EVENT_ERROR },
        { "{\"error\":null}", EVENT_OTHER },
        { "{}", EVENT_OTHER },
        { "", EVENT_OTHER },
        { "{\"choices\":[{\"text\":\"\\\"choices\\\":[]\"}]}", EVENT_TOKEN },
        { "{\"choices\":[{\"text\":\"\\\"error\\\": 1\"}]}", EVENT_TOKEN },
    };
    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        if (bench_event_kind(c[i].data, strlen(c[i].data)) != c[i].kind)
            fail_msg("%s: kind %d", c[i].data, (int)bench_event_kind(c[i].data, strlen(c[i].data)));
}

static void test_buffers(void **state)
{
    bench_buf b = { 0 };
    (void)state;
    bench_buf_json(&b, "a\"\\\n\xc3\xa9\xff\xed\xa0\x80", 10);
    bench_buf_u64(&b, 0);
    bench_buf_u64(&b, UINT64_MAX);
    assert_string_equal(b.p, "\"a\\u0022\\u005c\\u000a\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                             "\xef\xbf\xbd\"018446744073709551615");
    bench_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution),   cmocka_unit_test(test_summary),
        cmocka_unit_test(test_report_options), cmocka_unit_test(test_random),
        cmocka_unit_test(test_prefixes),       cmocka_unit_test(test_trace),
        cmocka_unit_test(test_custom),         cmocka_unit_test(test_sharegpt),
        cmocka_unit_test(test_arrivals),       cmocka_unit_test(test_rates),
        cmocka_unit_test(test_wire_stream),    cmocka_unit_test(test_wire_bodies),
        cmocka_unit_test(test_event_kinds),    cmocka_unit_test(test_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
