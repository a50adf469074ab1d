/* test_http_parser.c - what the parser takes and refuses, and that it does not matter in which pieces
 * the bytes come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/http_parse.h"

static nb_http_head head;

/* A literal that may hold zero bytes. */
#define LIT(s) ((nb_str){ (s), sizeof(s) - 1 })

/* Status of a whole head; 0: fine; 1: not complete. */
static int parse(nb_str s)
{
    const char *why = NULL;
    size_t scanned = 0, n = 0;
    int status = nb_http_head_end(s.p, s.n_bytes, &scanned, &n, &why);
    if (status == 0 && n == 0) return 1;
    if (status == 0) status = nb_http_head_parse(s.p, n, &head, &why);
    assert_true(status == 0 || (why && why[0]));
    return status;
}

static void is(nb_str got, const char *want)
{
    if (nb_str_eqc(got, want)) return;
    fail_msg("got `%.*s`, expected `%s`", (int)got.n_bytes, got.p ? got.p : "", want);
}

static void test_plain(void **state)
{
    (void)state;
    assert_int_equal(parse(LIT("GET /a%20b?x=1&y HTTP/1.1\r\nHost: h:80\r\nX-Empty:\r\n"
                               "X-Blank: \t a b \t\r\n\r\n")),
                     0);
    is(head.method, "GET");
    is(head.path, "/a%20b");
    is(head.query, "x=1&y");
    is(head.host, "h:80");
    assert_int_equal(head.minor, 1);
    assert_int_equal(head.n_field, 3);
    is(head.field[1].name, "X-Empty");
    is(head.field[1].value, "");
    is(head.field[2].value, "a b");
    assert_true(head.keep_alive && !head.chunked && !head.has_length && !head.expect_continue);

    assert_int_equal(parse(LIT("POST http://Example.org:1?q HTTP/1.1\r\nHost: other\r\n"
                               "content-LENGTH: 007\r\nexpect: 100-Continue\r\n"
                               "Connection: x, Close\r\n\r\n")),
                     0);
    is(head.path, "/");
    is(head.query, "q");
    is(head.host, "Example.org:1");
    assert_true(head.has_length && head.length == 7 && head.expect_continue && !head.keep_alive);

    assert_int_equal(parse(LIT("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n")), 0);
    is(head.path, "*");
    assert_int_equal(parse(LIT("GET / HTTP/1.0\r\n\r\n")), 0);
    assert_true(head.minor == 0 && !head.keep_alive && !head.host.p);
    assert_int_equal(parse(LIT("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")), 0);
    assert_true(head.keep_alive);
    assert_int_equal(parse(LIT("GET / HTTP/1.9\r\nHost: [::1]:8000\r\n\r\n")), 0);
    assert_int_equal(head.minor, 1);
    assert_int_equal(parse(LIT("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: CHUNKED\r\n\r\n")),
                     0);
    assert_true(head.chunked);
    assert_int_equal(parse(LIT("POST / HTTP/1.1\r\nHost: h\r\n"
                               "Content-Length: 99999999999999999999999\r\n\r\n")),
                     0);
    assert_true(head.length == UINT64_MAX);
}

typedef struct refusal {
    int status;
    nb_str bytes;
} refusal;

#define H "Host: h\r\n"
#define G "GET / HTTP/1.1\r\n" H
#define P "POST / HTTP/1.1\r\n" H

static void test_refused(void **state)
{
    static const refusal table[] = {
        { 400, LIT("\r\n\r\n") },
        { 400, LIT("GET\r\n\r\n") },
        { 400, LIT("GET /\r\n\r\n") },
        { 400, LIT("GET  / HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GET /  HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GET / HTTP/1.1 \r\n" H "\r\n") },
        { 400, LIT("GET\t/\tHTTP/1.1\r\n" H "\r\n") },
        { 400, LIT(" GET / HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GE(T / HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GET x HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GET * HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GET /#a HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GET /\xc3\xa4 HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GET http:///x HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GET http://u@h/ HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GET / http/1.1\r\n" H "\r\n") },
        { 400, LIT("GET / HTTP/1.\r\n" H "\r\n") },
        { 400, LIT("GET / HTTP/11\r\n" H "\r\n") },
        { 400, LIT("GET / HTTP/1.10\r\n" H "\r\n") },
        { 505, LIT("GET / HTTP/2.0\r\n" H "\r\n") },
        { 505, LIT("PRI * HTTP/2.0\r\n\r\n") },
        { 501, LIT("CONNECT h:1 HTTP/1.1\r\n" H "\r\n") },
        { 501, LIT("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJ / HTTP/1.1\r\n" H "\r\n") },
        { 400, LIT("GET / HTTP/1.1\r\n\r\n") },
        { 400, LIT(G H "\r\n") },
        { 400, LIT("GET / HTTP/1.1\r\nHost: a b\r\n\r\n") },
        { 400, LIT("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n") },
        { 400, LIT("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n") },
        { 400, LIT("GET / HTTP/1.1\r\nHost: a:x\r\n\r\n") },
        { 400, LIT("GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n") },
        { 400, LIT("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n") },
        { 400, LIT("GET / HTTP/1.1\r\nHost: [x]\r\n\r\n") },
        { 400, LIT(G " folded: 1\r\n\r\n") },
        { 400, LIT(G "X: a\r\n b\r\n\r\n") },
        { 400, LIT(G "X : a\r\n\r\n") },
        { 400, LIT(G ": a\r\n\r\n") },
        { 400, LIT(G "X\r\n\r\n") },
        { 400, LIT(G "X y: a\r\n\r\n") },
        { 400, LIT(G "X: a\0b\r\n\r\n") },
        { 400, LIT(G "X: a\x7f\r\n\r\n") },
        { 400, LIT(G "X: a\rb\r\n\r\n") },
        { 400, LIT(G "X: a\nY: b\r\n\r\n") },
        { 400, LIT("GET / HTTP/1.1\nHost: h\n\n") },
        { 400, LIT("\x16\x03\x01\x02") },
        { 400, LIT(P "Content-Length: 1\r\nContent-Length: 1\r\n\r\n") },
        { 400, LIT(P "Content-Length: 1, 1\r\n\r\n") },
        { 400, LIT(P "Content-Length: +1\r\n\r\n") },
        { 400, LIT(P "Content-Length: -1\r\n\r\n") },
        { 400, LIT(P "Content-Length: 0x1\r\n\r\n") },
        { 400, LIT(P "Content-Length: 1 1\r\n\r\n") },
        { 400, LIT(P "Content-Length:\r\n\r\n") },
        { 400, LIT(P "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n") },
        { 400, LIT(P "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n") },
        { 400, LIT(P "Transfer-Encoding: chunked, chunked\r\n\r\n") },
        { 400, LIT(P "Transfer-Encoding: chunked, gzip\r\n\r\n") },
        { 400, LIT(P "Transfer-Encoding: identity\r\n\r\n") },
        { 400, LIT(P "Transfer-Encoding: xchunked\r\n\r\n") },
        { 400, LIT(P "Transfer-Encoding: chunked;q=1\r\n\r\n") },
        { 400, LIT(P "Transfer-Encoding:\r\n\r\n") },
        { 400, LIT(P "Transfer-Encoding: \x0b"
                     "chunked\r\n\r\n") },
        { 501, LIT(P "Transfer-Encoding: gzip, chunked\r\n\r\n") },
        { 400, LIT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n") },
        { 417, LIT(P "Expect: 200-ok\r\n\r\n") },
    };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(table); i++) {
        const int got = parse(table[i].bytes);
        if (got != table[i].status)
            fail_msg("%zu: got %d, expected %d for %s", i, got, table[i].status, table[i].bytes.p);
    }
}

static void test_many_fields(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    for (int more = 0; more < 2; more++) {
        b.n_bytes = 0;
        assert_int_equal(nb_buf_add_c(&b, G), NB_OK);
        for (int i = 0; i < NB_HTTP_MAX_FIELDS - 1 + more; i++)
            assert_int_equal(nb_buf_printf(&b, "X%d: y\r\n", i), NB_OK);
        assert_int_equal(nb_buf_add_c(&b, "\r\n"), NB_OK);
        assert_int_equal(parse(nb_buf_view(&b)), more ? 431 : 0);
    }
    nb_buf_deinit(&b);
}

/* The end is found at the same place however the bytes come. */
static void test_pieces(void **state)
{
    static const char text[] = G "Some: thing\r\n\r\nrest";
    const size_t want = sizeof text - 1 - 4;
    const char *why = NULL;
    (void)state;
    for (size_t step = 1; step < sizeof text; step++) {
        size_t scanned = 0, n = 0, have = 0;
        while (n == 0 && have < sizeof text - 1) {
            have = have + step < sizeof text - 1 ? have + step : sizeof text - 1;
            assert_int_equal(nb_http_head_end(text, have, &scanned, &n, &why), 0);
            assert_true(n == 0 || have >= want);
        }
        assert_int_equal(n, want);
    }
}

/* ---- chunks ---- */

/* Decodes s, given in pieces of `step` bytes each in memory of its own (so that reading too far is
 * seen). Status, or 0 when done, or 1 when more is wanted; *taken: bytes used. */
static int decode(nb_str s, size_t step, nb_buf *out, size_t *taken)
{
    nb_http_chunks c = { 0 };
    const char *why = NULL;
    int status = 0;
    *taken = 0;
    out->n_bytes = 0;
    for (size_t at = 0; at < s.n_bytes && status == 0 && !c.done; at += step) {
        const size_t n = s.n_bytes - at < step ? s.n_bytes - at : step;
        char *copy = malloc(n);
        assert_non_null(copy);
        memcpy(copy, s.p + at, n);
        for (size_t i = 0, used = 1; i < n && used && !c.done && status == 0; i += used) {
            nb_str piece;
            status = nb_http_chunks_next(&c, copy + i, n - i, &used, &piece, &why);
            if (status) break;
            assert_int_equal(nb_buf_add_str(out, piece), NB_OK);
            *taken += used;
        }
        free(copy);
    }
    assert_true(status == 0 || (why && why[0]));
    return status ? status : c.done ? 0 : 1;
}

static void test_chunks(void **state)
{
    static const refusal table[] = {
        { 1, LIT("") },
        { 1, LIT("5\r\nabc") },
        { 1, LIT("0\r\n") },
        { 1, LIT("0\r\nA: b\r\n") },
        { 1, LIT("fffffffffffffff0\r\nabc") },
        { 400, LIT("\r\n") },
        { 400, LIT("-1\r\n") },
        { 400, LIT("+1\r\n") },
        { 400, LIT("0x1\r\n") },
        { 400, LIT(" 1\r\n") },
        { 400, LIT("1 \r\n") },
        { 400, LIT("g\r\n") },
        { 400, LIT("1\na") },
        { 400, LIT("1\ra") },
        { 400, LIT("00000000000000001\r\n") },
        { 400, LIT("1\r\nab\r\n") },
        { 400, LIT("1\r\na\n") },
        { 400, LIT("1\r\na\rb") },
        { 400, LIT("1;a\nb\r\n") },
        { 400, LIT("1;a\0b\r\n") },
        { 400, LIT("0\r\n A: b\r\n\r\n") },
        { 400, LIT("0\r\n: b\r\n\r\n") },
        { 400, LIT("0\r\nA\r\n\r\n") },
        { 400, LIT("0\r\nA : b\r\n\r\n") },
        { 400, LIT("0\r\nA: b\n\r\n") },
        { 400, LIT("0\r\n\n") },
    };
    static const char good[] = "3\r\nabc\r\n0a;x=\"y\"\r\n0123456789\r\n1;\r\n!\r\n000\r\n"
                               "T: v\r\nU:\r\n\r\nnext";
    nb_buf out = { 0 };
    size_t taken = 0;
    (void)state;
    for (size_t step = 1; step < sizeof good; step++) {
        assert_int_equal(decode(LIT(good), step, &out, &taken), 0);
        assert_int_equal(taken, sizeof good - 1 - 4);
        is(nb_buf_view(&out), "abc0123456789!");
        for (size_t i = 0; i < NB_COUNT(table); i++) {
            const int got = decode(table[i].bytes, step, &out, &taken);
            if (got != table[i].status)
                fail_msg("%zu: got %d, expected %d for %s", i, got, table[i].status,
                         table[i].bytes.p);
        }
    }
    nb_buf_deinit(&out);
}

static void test_endless_lines(void **state)
{
    static const char *const begin[] = { "1;", "0\r\nA:", "0\r\nA" };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(begin); i++) {
        nb_buf b = { 0 }, out = { 0 };
        size_t taken = 0;
        assert_int_equal(nb_buf_add_c(&b, begin[i]), NB_OK);
        for (int k = 0; k < 9000; k++) assert_int_equal(nb_buf_add_ch(&b, 'x'), NB_OK);
        assert_int_equal(decode(nb_buf_view(&b), 100, &out, &taken), 431);
        nb_buf_deinit(&b);
        nb_buf_deinit(&out);
    }
}

/* ---- parts ---- */

static void test_decode(void **state)
{
    char out[64];
    size_t n = 0;
    (void)state;
    assert_true(nb_http_decode(LIT("/a%2fb+%C3%a4"), false, out, &n));
    is((nb_str){ out, n }, "/a/b+\xc3\xa4");
    assert_false(nb_http_decode(LIT("%"), false, out, &n));
    assert_false(nb_http_decode(LIT("%a"), false, out, &n));
    assert_false(nb_http_decode(LIT("%ag"), false, out, &n));
    assert_false(nb_http_decode(LIT("%00"), false, out, &n));
    assert_false(nb_http_decode(LIT("%0a"), false, out, &n));
    assert_false(nb_http_decode(LIT("%7f"), false, out, &n));
}

static void test_query(void **state)
{
    const nb_str q = LIT("a=1&b=x+y%26&&c&a=2&%64=4&e=%zz&=5");
    char out[64];
    size_t n = 0;
    (void)state;
    assert_true(nb_http_query_find(q, "a", out, &n));
    is((nb_str){ out, n }, "1");
    assert_true(nb_http_query_find(q, "b", out, &n));
    is((nb_str){ out, n }, "x y&");
    assert_true(nb_http_query_find(q, "c", out, &n));
    assert_int_equal(n, 0);
    assert_true(nb_http_query_find(q, "d", out, &n));
    is((nb_str){ out, n }, "4");
    assert_false(nb_http_query_find(q, "e", out, &n));
    assert_false(nb_http_query_find(q, "f", out, &n));
    assert_false(nb_http_query_find((nb_str){ 0 }, "a", out, &n));
}

static void test_lists(void **state)
{
    (void)state;
    assert_true(nb_http_list_has(LIT(" a ,\tCLOSE\t, b"), "close"));
    assert_false(nb_http_list_has(LIT("closed, clos"), "close"));
    assert_false(nb_http_list_has((nb_str){ 0 }, "close"));
    assert_true(nb_http_is_token(LIT("a-Z!~")));
    assert_false(nb_http_is_token(LIT("")));
    assert_false(nb_http_is_token(LIT("a\0")));
    assert_false(nb_http_is_value(LIT("a\r\nb")));
    nb_str host;
    assert_true(nb_http_split_host(LIT("[fe80::1]:80"), &host));
    is(host, "fe80::1");
    assert_true(nb_http_split_host(LIT(":80"), &host));
    assert_int_equal(host.n_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many_fields), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_chunks),      cmocka_unit_test(test_endless_lines),
        cmocka_unit_test(test_decode),      cmocka_unit_test(test_query),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
