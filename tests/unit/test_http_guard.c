/* test_http_guard.c - API keys, other origins, foreign hosts. */
#include "http_testing.h"

#define END "\r\nHost: localhost\r\nConnection: close\r\n\r\n"
#define CLOSE "\r\nConnection: close\r\n\r\n"

static void test_keys(void **state)
{
    static const char *const keys[] = { "first-key", "second" };
    static const char *const bad[] = {
        "",
        "\r\nAuthorization: Bearer",
        "\r\nAuthorization: Bearer ",
        "\r\nAuthorization: Bearer first",
        "\r\nAuthorization: Bearer first-key2",
        "\r\nAuthorization: Bearer FIRST-KEY",
        "\r\nAuthorization: Bearer first-key second",
        "\r\nAuthorization: first-key",
        "\r\nAuthorization: Basic first-key",
        "\r\nx-api-key: ",
        "\r\nx-api-key: Bearer second",
        "\r\nCookie: first-key",
    };
    static const char *const good[] = {
        "\r\nAuthorization: Bearer first-key",
        "\r\nauthorization: bearer second",
        "\r\nX-Api-Key: first-key",
        "\r\nx-api-key:second",
        "\r\nAuthorization: Bearer x\r\nx-api-key: second",
    };
    (void)state;
    char text[300];
    server s = { .o = { .api_key = keys, .n_api_key = 2 } };
    start(&s);
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        (void)snprintf(text, sizeof text, "GET /hello HTTP/1.1%s" END, bad[i]);
        const char *a = ask(&s, text);
        expect(a, 401, "\r\nWWW-Authenticate: Bearer");
        assert_null(strstr(a, "hello\n"));
    }
    for (size_t i = 0; i < NB_COUNT(good); i++) {
        (void)snprintf(text, sizeof text, "GET /info HTTP/1.1%s" END, good[i]);
        expect(ask(&s, text), 200, "route=/info");
    }
    expect(ask(&s, "GET /open HTTP/1.1" END), 200, "hello");
    expect(ask(&s, "HEAD /open HTTP/1.1" END), 200, NULL);
    expect(ask(&s, "OPTIONS /hello HTTP/1.1" END), 204, NULL);
    expect(ask(&s, "GET /nothing HTTP/1.1" END), 404, NULL);
    /* With keys neither Host nor Origin matters. */
    expect(ask(&s, "POST /echo HTTP/1.1\r\nHost: a.example\r\nOrigin: http://b.example\r\n"
                   "x-api-key: second\r\nContent-Length: 1" CLOSE "x"),
           200, "x");
    /* Without a key the body is not waited for. */
    expect(ask(&s, "POST /echo HTTP/1.1\r\nContent-Length: 10000000" END), 401, NULL);
    stop(&s);
}

/* Where a request comes from, as far as its Host and the headers of proxies tell. */
static void test_local(void **state)
{
    static const char *const here[] = { "localhost", "LOCALHOST:80", "127.0.0.1:8000", "127.1.2.3",
                                        "[::1]:1",   "a.localhost",  "localhost." };
    static const char *const elsewhere[] = { "10.0.0.1", "127.0.0.1.x", "box", "[::2]", "127.a" };
    static const char *const proxies[] = { "Forwarded: for=1.2.3.4", "X-Forwarded-For: 1.2.3.4",
                                           "x-forwarded-proto: https", "X-Real-IP:", "Via: 1.1 x" };
    (void)state;
    char text[200];
    server s = { .o = { .host = "127.0.0.1" } };
    start(&s);
    for (size_t i = 0; i < NB_COUNT(here); i++) {
        (void)snprintf(text, sizeof text, "GET /info HTTP/1.1\r\nHost: %s" CLOSE, here[i]);
        expect(ask(&s, text), 200, "local=1");
    }
    for (size_t i = 0; i < NB_COUNT(elsewhere); i++) {
        (void)snprintf(text, sizeof text, "GET /info HTTP/1.1\r\nHost: %s" CLOSE, elsewhere[i]);
        const char *a = ask(&s, text);
        if (status_of(a) != 403) expect(a, 200, "local=0"); /* a name that no local host has */
    }
    for (size_t i = 0; i < NB_COUNT(proxies); i++) {
        (void)snprintf(text, sizeof text, "GET /info HTTP/1.1\r\n%s" END, proxies[i]);
        expect(ask(&s, text), 200, "local=0");
    }
    expect(ask(&s, "GET /info HTTP/1.0\r\n\r\n"), 200, "local=0"); /* no Host at all */
    stop(&s);
}

static void test_bad_keys(void **state)
{
    static const char *const bad[] = { "", "a b", "a\n", "\t" };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_http *h = NULL;
        nb_error e;
        const nb_http_options o = { .any_port = true, .api_key = &bad[i], .n_api_key = 1 };
        assert_int_equal(nb_http_create(&o, routes, 1, &h, &e), NB_ERR_ARG);
        assert_non_null(strstr(e.msg, "API key"));
    }
}

static void test_cors(void **state)
{
    static const char *const origins[] = { "https://a.example", "http://b.example:3000/" };
    static const char preflight[] =
        "OPTIONS /echo HTTP/1.1\r\nAccess-Control-Request-Method: POST\r\n"
        "Access-Control-Request-Headers: content-type, x-own\r\n"
        "Origin: ";
    (void)state;
    char text[400];
    server s = { .o = { .cors_origin = origins, .n_cors_origin = 2 } };
    start(&s);
    (void)snprintf(text, sizeof text, "%shttps://a.example" END, preflight);
    char *a = ask(&s, text);
    expect(a, 204, "\r\nAccess-Control-Allow-Origin: https://a.example\r\n");
    assert_non_null(strstr(a, "\r\nAccess-Control-Allow-Methods: POST, PUT, OPTIONS\r\n"));
    assert_non_null(strstr(a, "\r\nAccess-Control-Allow-Headers: content-type, x-own\r\n"));
    assert_non_null(strstr(a, "\r\nVary: Origin\r\n"));
    assert_null(strstr(a, "Private-Network"));
    (void)snprintf(text, sizeof text, "%shttps://evil.example" END, preflight);
    a = ask(&s, text);
    expect(a, 204, "\r\nVary: Origin\r\n");
    assert_null(strstr(a, "Access-Control"));
    expect(ask(&s, "GET /hello HTTP/1.1\r\nOrigin: http://b.example:3000" END), 200,
           "\r\nAccess-Control-Allow-Origin: http://b.example:3000\r\n");
    expect(ask(&s, "GET /nothing HTTP/1.1\r\nOrigin: https://a.example" END), 404,
           "\r\nAccess-Control-Allow-Origin: https://a.example\r\n");
    a = ask(&s, "GET /hello HTTP/1.1\r\nOrigin: https://a.example.evil.example" END);
    expect(a, 200, NULL);
    assert_null(strstr(a, "Allow-Origin"));
    expect(ask(&s, "POST /echo HTTP/1.1\r\nOrigin: https://a.example\r\nContent-Length: 1" END "x"),
           200, NULL);
    expect(ask(&s, "POST /echo HTTP/1.1\r\nOrigin: https://c.example\r\nContent-Length: 1" END "x"),
           403, NULL);
    /* The host of an allowed origin is one of ours: a proxy may pass it on. */
    expect(ask(&s, "GET /hello HTTP/1.1\r\nHost: a.example" CLOSE), 200, NULL);
    expect(ask(&s, "GET /hello HTTP/1.1\r\nHost: c.example" CLOSE), 403, NULL);
    stop(&s);
}

static void test_cors_all(void **state)
{
    static const char *const star[] = { "*" };
    (void)state;
    server s = { .o = { .cors_origin = star, .n_cors_origin = 1 } };
    start(&s);
    char *a =
        ask(&s, "POST /echo HTTP/1.1\r\nOrigin: https://x.example\r\nSec-Fetch-Site: cross-site\r\n"
                "Content-Length: 1" END "x");
    expect(a, 200, "\r\nAccess-Control-Allow-Origin: *\r\n");
    assert_null(strstr(a, "Vary"));
    expect(ask(&s, "GET /hello HTTP/1.1\r\nHost: x.example" CLOSE), 200, NULL);
    /* What a page asks for is not handed back unread. */
    a = ask(&s, "OPTIONS /echo HTTP/1.1\r\nAccess-Control-Request-Method: POST\r\nOrigin: null\r\n"
                "Access-Control-Request-Private-Network: true\r\n"
                "Access-Control-Request-Headers: a;b" END);
    expect(a, 204, "\r\nAccess-Control-Allow-Headers: Authorization, Content-Type, X-Api-Key\r\n");
    assert_non_null(strstr(a, "\r\nAccess-Control-Allow-Private-Network: true\r\n"));
    stop(&s);
}

/* A stranger's name that points at the loopback; pages of other sites. */
static void test_browsers(void **state)
{
    static const char *const own[] = {
        "localhost",  "LOCALHOST:8000",       "127.0.0.1:1", "127.9.9.9",
        "[::1]:8000", "a.localhost",          "x",           "box.local",
        "10.0.0.1",   "host.docker.internal", "localhost.",  ""
    };
    static const char *const foreign[] = { "evil.example",           "evil.example:8000",
                                           "localhost.evil.example", "127.0.0.1.evil.example",
                                           "1.2.3.4x.com",           "evil.example." };
    (void)state;
    char text[300];
    server s = { 0 };
    start(&s);
    for (size_t i = 0; i < NB_COUNT(own); i++) {
        (void)snprintf(text, sizeof text, "GET /hello HTTP/1.1\r\nHost: %s" CLOSE, own[i]);
        expect(ask(&s, text), 200, NULL);
    }
    for (size_t i = 0; i < NB_COUNT(foreign); i++) {
        (void)snprintf(text, sizeof text, "GET /hello HTTP/1.1\r\nHost: %s" CLOSE, foreign[i]);
        expect(ask(&s, text), 403, "not served here");
    }
    expect(ask(&s, "GET http://evil.example/hello HTTP/1.1" END), 403, NULL);
    expect(ask(&s, "GET /hello HTTP/1.0\r\n\r\n"), 200, NULL);
#define POST_                                                                                      \
    "POST /echo HTTP/1.1\r\nHost: localhost:8000\r\nConnection: close\r\nContent-Length: 1\r\n"
    expect(ask(&s, POST_ "\r\nx"), 200, NULL);
    expect(ask(&s, POST_ "Origin: http://localhost:8000\r\n\r\nx"), 200, NULL);
    expect(ask(&s, POST_ "Origin: http://localhost:9000\r\n\r\nx"), 403, "origin");
    expect(ask(&s, POST_ "Origin: null\r\n\r\nx"), 403, NULL);
    expect(ask(&s, POST_ "Origin: https://evil.example\r\n\r\nx"), 403, NULL);
    expect(ask(&s, POST_ "Sec-Fetch-Site: same-origin\r\nOrigin: https://proxy.example\r\n\r\nx"),
           200, NULL);
    expect(ask(&s, POST_ "Sec-Fetch-Site: none\r\n\r\nx"), 200, NULL);
    expect(ask(&s, POST_ "Sec-Fetch-Site: cross-site\r\n\r\nx"), 403, NULL);
    expect(ask(&s, POST_ "Sec-Fetch-Site: same-site\r\n\r\nx"), 403, NULL);
    expect(ask(&s, "GET /hello HTTP/1.1\r\nOrigin: https://evil.example" END), 200, "hello");
    stop(&s);
}

/* Bound to all addresses: any Host, it may have any name there. */
static void test_all_addresses(void **state)
{
    (void)state;
    server s = { .o = { .host = "0.0.0.0" } };
    start(&s);
    expect(ask(&s, "GET /hello HTTP/1.1\r\nHost: box.example" CLOSE), 200, NULL);
    expect(ask(&s, "POST /echo HTTP/1.1\r\nHost: box.example\r\nOrigin: http://evil.example\r\n"
                   "Content-Length: 1" CLOSE "x"),
           403, NULL);
    stop(&s);
}

static void put_error(void *ctx, const nb_http_ex *ex, int status, const char *message,
                      nb_buf *body)
{
    const nb_str path = nb_http_path(ex);
    (void)ctx;
    assert_true(message[0] != 0);
    assert_int_equal(nb_buf_printf(body, "own %d <%.*s>", status, (int)path.n_bytes, path.p),
                     NB_OK);
}

static void test_own_error_body(void **state)
{
    (void)state;
    server s = { .o = { .error_body = put_error } };
    start(&s);
    expect(ask(&s, "GET /no%20thing?x HTTP/1.1" END), 404, "own 404 </no thing>");
    expect(ask(&s, "GET\r\n\r\n"), 400, "own 400 <>");
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),          cmocka_unit_test(test_local),
        cmocka_unit_test(test_bad_keys),      cmocka_unit_test(test_cors),
        cmocka_unit_test(test_cors_all),      cmocka_unit_test(test_browsers),
        cmocka_unit_test(test_all_addresses), cmocka_unit_test(test_own_error_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
