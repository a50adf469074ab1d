/* test_serve_sse.c - JSON by hand is the JSON that a parser reads back, for any bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "serve/api_write.h"
#include "serve/job.h"

static json_t *parsed(const nb_writer *w)
{
    assert_int_equal(w->st, NB_OK);
    json_t *j = json_loadb(w->b.p, w->b.n_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!j) fail_msg("not JSON: %s", w->b.p);
    return j;
}

static void test_strings(void **state)
{
    (void)state;
    static const char *const same[] = {
        "",           "plain",        "\"\\/",
        "\b\f\n\r\t", "\x01\x1f\x7f", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
        "a\nb"
    };
    for (size_t i = 0; i < NB_COUNT(same); i++) {
        nb_writer w = { 0 };
        nb_w_str(&w, nb_str_c(same[i]));
        assert_null(memchr(w.b.p, '\n', w.b.n_bytes)); /* a frame of a stream is one line */
        json_t *j = parsed(&w);
        assert_string_equal(json_string_value(j), same[i]);
        json_decref(j);
        nb_buf_deinit(&w.b);
    }
}

static void test_bad_utf8_becomes_a_sign(void **state)
{
    (void)state;
    nb_writer w = { 0 };
    nb_w_str(&w, nb_str_c("a\xff"
                          "b\xe2\x82"));
    assert_string_equal(w.b.p, "\"a\xef\xbf\xbd"
                               "b\xef\xbf\xbd\xef\xbf\xbd\"");
    nb_buf_deinit(&w.b);
}

static void test_random_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        char s[40];
        const size_t n = nb_rng_u64(seed, 0) % sizeof s;
        for (size_t i = 0; i < n; i++) s[i] = (char)nb_rng_u64(seed, i + 1);
        nb_writer w = { 0 };
        nb_w_str(&w, (nb_str){ s, n });
        json_t *j = parsed(&w);
        if (nb_utf8_valid((nb_str){ s, n })) {
            assert_int_equal(json_string_length(j), n);
            assert_memory_equal(json_string_value(j), s, n);
        }
        json_decref(j);
        nb_buf_deinit(&w.b);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    nb_writer w = { 0 };
    const uint32_t ids[] = { 0, 7, UINT32_MAX };
    nb_w_ids(&w, ids, 3);
    nb_w_ids(&w, ids, 0);
    nb_w_bytes(&w, nb_str_c("h\xff"));
    nb_w_uint(&w, UINT64_MAX);
    assert_string_equal(w.b.p, "[0,7,4294967295][][104,255]18446744073709551615");
    nb_buf_deinit(&w.b);
}

static void test_logprobs(void **state)
{
    (void)state;
    static const struct {
        float v;
        const char *text;
    } row[] = { { 0.0F, "0.0" },        { -1.0F, "-1.0" },         { -0.5F, "-0.5" },
                { -1e5F, "-9999.0" },   { -HUGE_VALF, "-9999.0" }, { NAN, "-9999.0" },
                { -9999.0F, "-9999.0" } };
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        nb_writer w = { 0 };
        nb_w_logprob(&w, row[i].v);
        assert_string_equal(w.b.p, row[i].text);
        nb_buf_deinit(&w.b);
    }
    for (uint64_t i = 0; i < 2000; i++) { /* nothing of a float is lost */
        const float v = (float)(-20 * nb_rng_unit(5, i));
        nb_writer w = { 0 };
        nb_w_logprob(&w, v);
        json_t *j = parsed(&w);
        assert_true((float)json_real_value(j) == v);
        json_decref(j);
        nb_buf_deinit(&w.b);
    }
}

static void test_errors(void **state)
{
    (void)state;
    nb_writer w = { 0 };
    nb_w_error(&w, 404, "model", "no \"x\"");
    assert_string_equal(w.b.p,
                        "{\"error\":{\"message\":\"no \\\"x\\\"\",\"type\":\"NotFoundError\","
                        "\"param\":\"model\",\"code\":404}}");
    w.b.n_bytes = 0;
    nb_w_error(&w, 418, NULL, "m");
    assert_string_equal(w.b.p, "{\"error\":{\"message\":\"m\",\"type\":\"BadRequestError\","
                               "\"param\":null,\"code\":418}}");
    w.b.n_bytes = 0;
    nb_w_error_anthropic(&w, 503, "m");
    assert_string_equal(w.b.p, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
                               "\"message\":\"m\"}}");
    nb_buf_deinit(&w.b);
}

static void test_a_full_writer_stays_failed(void **state)
{
    (void)state;
    nb_writer w = { .b = { .limit_bytes = 8 } };
    nb_w_str(&w, nb_str_c("0123456789"));
    NB_W(&w, "x");
    assert_int_equal(w.st, NB_ERR_LIMIT);
    nb_buf_deinit(&w.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_bad_utf8_becomes_a_sign),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_a_full_writer_stays_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
