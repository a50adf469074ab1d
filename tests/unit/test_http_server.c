/* test_http_server.c - requests and answers, limits, hostile bytes, clients that leave. */
#include "http_testing.h"

#define END "\r\nHost: localhost\r\nConnection: close\r\n\r\n"
#define KEEP "\r\nHost: localhost\r\n\r\n"

static void test_answers(void **state)
{
    (void)state;
    server s = { .o = { .request_id_headers = true } };
    start(&s);
    char *a = ask(&s, "GET /hello HTTP/1.1" END);
    expect(a, 200, "\r\n\r\nhello\n");
    assert_non_null(strstr(a, "\r\nDate: "));
    assert_non_null(strstr(a, " GMT\r\n"));
    assert_non_null(strstr(a, "\r\nServer: nibble\r\n"));
    assert_non_null(strstr(a, "\r\nX-Content-Type-Options: nosniff\r\n"));
    assert_non_null(strstr(a, "\r\nContent-Type: text/plain\r\n"));
    assert_non_null(strstr(a, "\r\nContent-Length: 6\r\n"));
    assert_non_null(strstr(a, "\r\nConnection: close\r\n"));
    assert_non_null(strstr(a, "\r\nX-Request-Id: "));
    assert_null(strstr(a, "Access-Control"));
    a = ask(&s, "HEAD /hello HTTP/1.1" END);
    expect(a, 200, "Content-Length: 6\r\n");
    assert_null(strstr(a, "hello\n"));
    a = ask(&s, "HEAD /stream HTTP/1.1" END);
    expect(a, 200, "chunked\r\n");
    assert_null(strstr(a, "data"));
    expect(ask(&s, "GET /later HTTP/1.1" END), 200, "\r\n\r\nlater\n");
    expect(ask(&s, "\r\nGET /a%20b HTTP/1.1" END), 200, "hello");
    expect(ask(&s, "GET http://localhost/hello HTTP/1.1" END), 200, "hello");
    expect(ask(&s, "GET /nothing HTTP/1.1" END), 404, "application/json");
    expect(ask(&s, "GET /hello/ HTTP/1.1" END), 404, NULL);
    expect(ask(&s, "GET /echo HTTP/1.1" END), 405, "\r\nAllow: POST, PUT, OPTIONS\r\n");
    expect(ask(&s, "BREW /hello HTTP/1.1" END), 501, NULL);
    expect(ask(&s, "TRACE /hello HTTP/1.1" END), 501, NULL);
    expect(ask(&s, "OPTIONS /hello HTTP/1.1" END), 204, "\r\nAllow: GET, HEAD, OPTIONS\r\n");
    expect(ask(&s, "OPTIONS * HTTP/1.1" END), 204, "\r\nAllow: OPTIONS\r\n");
    expect(ask(&s, "GET /%zz HTTP/1.1" END), 400, NULL);
    expect(ask(&s, "GET /hello%00 HTTP/1.1" END), 400, NULL);
    expect(ask(&s, "GET /info?q=a%20b+c HTTP/1.1\r\nX-Request-Id: mine" END), 200,
           "id=mine peer=127.");
    expect(ask(&s, "GET /info?q=a%20b+c HTTP/1.1" END), 200, "local=1 route=/info q=a b c\n");
    expect(ask(&s, "GET /info HTTP/1.1" END), 200, "X-More: yes\r\n");
    a = ask(&s, "GET /info HTTP/1.1\r\nX-Request-Id: a b" END);
    expect(a, 200, "q=none\n");
    assert_null(strstr(a, "id=a b"));
    stop(&s);
    assert_int_equal(atomic_load(&s.n_close), 0);
    assert_int_equal(atomic_load(&s.n_done[404]), 2);
    assert_int_equal(atomic_load(&s.n_done[204]), 2);
}

static void test_http10(void **state)
{
    (void)state;
    server s = { 0 };
    start(&s);
    expect(ask(&s, "GET /hello HTTP/1.0\r\n\r\n"), 200, "Connection: close\r\n");
    char *a = ask(&s, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    expect(a, 200, "\r\n\r\ndata: x\n\ndata: x\n\n");
    assert_null(strstr(a, "Transfer-Encoding"));
    assert_null(strstr(a, "Content-Length"));
    const int fd = dial(&s);
    for (int i = 0; i < 3; i++) {
        nb_buf b = { 0 };
        say(fd, view("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        assert_true(hear(fd, &b, "hello\n"));
        expect(b.p, 200, "\r\nConnection: keep-alive\r\n");
        nb_buf_deinit(&b);
    }
    assert_int_equal(close(fd), 0);
    stop(&s);
}

/* Streams, bodies by length and in chunks, 100 Continue: on one connection. */
static void test_keep_alive(void **state)
{
    static const char chunked[] =
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        "2\r\nab\r\n3;x=1\r\ncde\r\n0\r\nT: t\r\n\r\n";
    (void)state;
    server s = { 0 };
    start(&s);
    const int fd = dial(&s);
    for (int i = 0; i < 2; i++) {
        say(fd, view("GET /stream HTTP/1.1" KEEP));
        expect_next(fd, 200, "6\r\ndata: \r\n3\r\nx\n\n\r\n0\r\n\r\n");
        say(fd, view("POST /echo HTTP/1.1\r\nContent-Length: 5" KEEP "12345"));
        expect_next(fd, 200, "\r\n\r\n12345");
        say(fd, view("POST /echo HTTP/1.1\r\nContent-Length: 0" KEEP));
        expect_next(fd, 200, "Content-Length: 0\r\n\r\n");
        for (size_t k = 0; k < sizeof chunked - 1; k++) say(fd, (nb_str){ chunked + k, 1 });
        expect_next(fd, 200, "\r\n\r\nabcde");
        say(fd, view("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3" KEEP));
        expect_next(fd, 100, "HTTP/1.1 100 Continue\r\n\r\n");
        say(fd, view("xyz"));
        expect_next(fd, 200, "\r\n\r\nxyz");
        /* The body of what is refused is read, and the connection lives on. */
        say(fd, view("POST /nothing HTTP/1.1\r\nContent-Length: 4" KEEP "GET "));
        expect_next(fd, 404, "}\n");
    }
    /* No 100 for what is refused: the client keeps its body. */
    say(fd, view("POST /nothing HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3" KEEP));
    nb_buf b = { 0 };
    assert_true(hear(fd, &b, NULL));
    expect(b.p, 404, "Connection: close\r\n");
    nb_buf_deinit(&b);
    assert_int_equal(close(fd), 0);
    stop(&s);
}

/* Empty lines before a request line are ignored, up to a limit (RFC 9112, 2.2). */
static void test_blank_lines(void **state)
{
    (void)state;
    server s = { 0 };
    char text[200] = "";
    start(&s);
    const int fd = dial(&s);
    for (int i = 0; i <= 16; i += 4) {
        text[0] = 0;
        for (int k = 0; k < i; k++) (void)strcat(text, "\r\n");
        (void)strcat(text, "GET /hello HTTP/1.1" KEEP);
        say(fd, view(text));
        expect_next(fd, 200, "hello\n");
    }
    assert_int_equal(close(fd), 0);
    text[0] = 0;
    for (int k = 0; k < 17; k++) (void)strcat(text, "\r\n");
    (void)strcat(text, "GET /hello HTTP/1.1" KEEP);
    expect(ask(&s, text), 400, NULL);
    expect(ask(&s, "\nGET /hello HTTP/1.1" KEEP), 400, NULL);
    stop(&s);
}

/* A compressed body is refused, and the connection lives on. */
static void test_codings(void **state)
{
    static const char *const bad[] = { "gzip", "x-gzip", "deflate", "br", "identity, gzip" };
    static const char *const good[] = { "identity", "Identity", "" };
    (void)state;
    server s = { 0 };
    char text[200];
    start(&s);
    const int fd = dial(&s);
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        (void)snprintf(text, sizeof text,
                       "POST /echo HTTP/1.1\r\nContent-Encoding: %s\r\nContent-Length: 2" KEEP "ab",
                       bad[i]);
        say(fd, view(text));
        nb_buf b = { 0 };
        assert_true(hear(fd, &b, "}\n"));
        expect(b.p, 415, "\r\nAccept-Encoding: identity\r\n");
        nb_buf_deinit(&b);
    }
    for (size_t i = 0; i < NB_COUNT(good); i++) {
        (void)snprintf(text, sizeof text,
                       "POST /echo HTTP/1.1\r\nContent-Encoding: %s\r\nContent-Length: 2" KEEP "ab",
                       good[i]);
        say(fd, view(text));
        expect_next(fd, 200, "\r\n\r\nab");
    }
    /* Without a body there is nothing to decode. */
    say(fd, view("GET /hello HTTP/1.1\r\nContent-Encoding: gzip" KEEP));
    expect_next(fd, 200, "hello\n");
    assert_int_equal(close(fd), 0);
    stop(&s);
}

static void test_large_body(void **state)
{
    enum { N = 3 << 20 };
    (void)state;
    server s = { .o = { .max_body_bytes = N } };
    char *bytes = malloc(N);
    nb_buf b = { 0 };
    assert_non_null(bytes);
    for (size_t i = 0; i < N; i++) bytes[i] = (char)(i * 7 % 253);
    start(&s);
    const int fd = dial(&s);
    assert_int_equal(nb_buf_printf(&b, "POST /echo HTTP/1.1\r\nContent-Length: %d" END, N), NB_OK);
    say(fd, nb_buf_view(&b));
    say(fd, (nb_str){ bytes, N });
    b.n_bytes = 0;
    assert_true(hear(fd, &b, NULL));
    expect(b.p, 200, NULL);
    assert_true(b.n_bytes > N);
    assert_memory_equal(b.p + b.n_bytes - N, bytes, N);
    assert_int_equal(close(fd), 0);
    const int fd2 = dial(&s);
    say(fd2, view("GET /big HTTP/1.1" END));
    b.n_bytes = 0;
    assert_true(hear(fd2, &b, NULL));
    assert_true(b.n_bytes > BIG_BYTES && b.n_bytes < BIG_BYTES + 1000);
    assert_int_equal(close(fd2), 0);
    free(bytes);
    nb_buf_deinit(&b);
    stop(&s);
}

static void test_pipelined(void **state)
{
    enum { N = 2000 };
    (void)state;
    server s = { 0 };
    nb_buf out = { 0 }, in = { 0 };
    start(&s);
    static const char *const requests[] = { "GET /later HTTP/1.1" KEEP,
                                            "POST /echo HTTP/1.1\r\nContent-Length: 8" KEEP
                                            "HTTP/1.1",
                                            "GET /hello HTTP/1.1" KEEP };
    for (int i = 0; i < N; i++) assert_int_equal(nb_buf_add_c(&out, requests[i % 3]), NB_OK);
    assert_int_equal(nb_buf_add_c(&out, "GET /stream HTTP/1.1" END), NB_OK);
    const int fd = dial(&s);
    say(fd, nb_buf_view(&out));
    assert_true(hear(fd, &in, NULL));
    const char *p = in.p;
    for (int i = 0; i < N; i++) {
        p = strstr(p, "HTTP/1.1 200 OK");
        assert_non_null(p);
        const char *body = strstr(p, "\r\n\r\n") + 4;
        if (i % 3 == 0) assert_memory_equal(body, "later\n", 6);
        if (i % 3 == 1) assert_memory_equal(body, "HTTP/1.1", 8);
        if (i % 3 == 2) assert_memory_equal(body, "hello\n", 6);
        p = body;
    }
    assert_non_null(strstr(p, "data: "));
    assert_int_equal(close(fd), 0);
    nb_buf_deinit(&out);
    nb_buf_deinit(&in);
    stop(&s);
    assert_int_equal(atomic_load(&s.n_done[200]), N + 1);
}

/* ---- what is refused ---- */

typedef struct hostile {
    int status;
    const char *bytes;
} hostile;

/* Each is answered once, and the connection ends: what follows is not taken for a request. */
static void test_hostile(void **state)
{
    static const hostile table[] = {
        { 400, "GET / HTTP/1.1\r\n\r\n" },
        { 400, "GET /hello HTTP/1.1\nHost: h\n\n" },
        { 400, "GET /hello HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n" },
        { 400, "GET /hello HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n" },
        { 400, "GET /hello HTTP/1.1\r\nHost: h\r\nX : a\r\n\r\n" },
        { 400, "GET /hello HTTP/1.1\r\nHost: h\r\nX: a\rGET\r\n\r\n" },
        { 400,
          "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 30\r\n\r\nabc" },
        { 400, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
               "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" },
        { 400, "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" },
        { 501,
          "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" },
        { 400, "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n" },
        { 400,
          "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcde\r\n" },
        { 413,
          "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" },
        { 413, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n" },
        { 417, "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n" },
        { 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" },
        { 400, "\x16\x03\x01\x02" },
        { 400, "hello\r\n\r\n" },
    };
    (void)state;
    server s = { 0 };
    nb_buf b = { 0 };
    start(&s);
    for (size_t i = 0; i < NB_COUNT(table); i++) {
        b.n_bytes = 0;
        assert_int_equal(nb_buf_add_c(&b, table[i].bytes), NB_OK);
        assert_int_equal(nb_buf_add_c(&b, "GET /hello HTTP/1.1" KEEP), NB_OK);
        const char *a = ask_bytes(&s, nb_buf_view(&b));
        if (status_of(a) != table[i].status)
            fail_msg("%zu: expected %d for\n%s\ngot\n%s", i, table[i].status, table[i].bytes, a);
        assert_null(strstr(a, "hello\n"));
        assert_null(strstr(a, "\nHTTP/1.1 "));
    }
    expect(ask_bytes(&s, (nb_str){ "GET /\0 HTTP/1.1\r\n", 17 }), 400, NULL);
    nb_buf_deinit(&b);
    stop(&s);
}

static void test_limits(void **state)
{
    (void)state;
    server s = { .o = { .max_header_bytes = 1000, .max_body_bytes = 2000 } };
    nb_buf b = { 0 };
    start(&s);
    for (int n = 900; n < 1100;
         n += 10) { /* around the limit, with the end of the head and without */
        b.n_bytes = 0;
        assert_int_equal(
            nb_buf_add_c(&b, "GET /hello HTTP/1.1\r\nConnection: close\r\nHost: h\r\nX: "), NB_OK);
        while (b.n_bytes < (size_t)n - 4) assert_int_equal(nb_buf_add_ch(&b, 'x'), NB_OK);
        assert_int_equal(nb_buf_add_c(&b, n % 20 == 0 || n <= 1000 ? "\r\n\r\n" : "xxxx"), NB_OK);
        expect(ask_bytes(&s, nb_buf_view(&b)), n <= 1000 ? 200 : 431, NULL);
    }
    for (int n = 1999; n < 2002; n++) {
        b.n_bytes = 0;
        assert_int_equal(
            nb_buf_printf(&b, "POST /echo HTTP/1.1\r\nContent-Length: %d" END "%*s", n, n, "x"),
            NB_OK);
        expect(ask_bytes(&s, nb_buf_view(&b)), n <= 2000 ? 200 : 413, NULL);
        b.n_bytes = 0;
        assert_int_equal(nb_buf_printf(&b,
                                       "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked" END
                                       "3e8\r\n%1000s\r\n%x\r\n%*s\r\n0\r\n\r\n",
                                       "x", (unsigned)n - 1000, n - 1000, "y"),
                         NB_OK);
        expect(ask_bytes(&s, nb_buf_view(&b)), n <= 2000 ? 200 : 413, NULL);
    }
    nb_buf_deinit(&b);
    stop(&s);
}

/* All bodies together: the one that comes too much is refused, later there is room again. */
static void test_total_limit(void **state)
{
    static const char text[] = "POST /echo HTTP/1.1\r\nContent-Length: 6000" END;
    (void)state;
    server s = { .o = { .max_total_body_bytes = 10000 } };
    char body[6000];
    memset(body, 'b', sizeof body);
    start(&s);
    const int a = dial(&s);
    say(a, view(text));
    say(a, (nb_str){ body, 5999 });
    const int warm = dial(&s); /* asked after it: what came before has been read */
    say(warm, view("GET /hello HTTP/1.1" KEEP));
    expect_next(warm, 200, "hello\n");
    nb_buf b = { 0 };
    for (int i = 0; i < 100 && status_of(b.p ? b.p : "") != 503; i++) {
        const int fd = dial(&s);
        b.n_bytes = 0;
        say(fd, view(text));
        say(fd, (nb_str){ body, 6000 });
        assert_true(hear(fd, &b, NULL));
        assert_int_equal(close(fd), 0);
    }
    expect(b.p, 503, "Retry-After: 1\r\n");
    say(a, view("!"));
    b.n_bytes = 0;
    assert_true(hear(a, &b, NULL));
    expect(b.p, 200, "b!");
    assert_int_equal(close(a), 0);
    const int fd = dial(&s);
    say(fd, view(text));
    say(fd, (nb_str){ body, 6000 });
    b.n_bytes = 0;
    assert_true(hear(fd, &b, NULL));
    expect(b.p, 200, NULL);
    assert_int_equal(close(fd), 0);
    assert_int_equal(close(warm), 0);
    nb_buf_deinit(&b);
    stop(&s);
}

static void test_slow_writers(void **state)
{
    (void)state;
    server idle = { .o = { .idle_timeout_s = 0.1 } }, s = { .o = { .read_timeout_s = 0.1 } };
    nb_buf b = { 0 };
    start(&idle);
    int fd = dial(&idle); /* closed without a word */
    assert_true(hear(fd, &b, NULL));
    assert_int_equal(b.n_bytes, 0);
    assert_int_equal(close(fd), 0);
    stop(&idle);
    start(&s); /* with time until the first byte */
    expect(ask(&s, "GET /hel"), 408, NULL);
    expect(ask(&s, "POST /echo HTTP/1.1\r\nContent-Length: 3" KEEP "a"), 408, NULL);
    expect(ask(&s, "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked" KEEP "5\r\na"), 408, NULL);
    /* Bytes that keep coming do not help: the time is for the whole request. */
    fd = dial(&s);
    say(fd, view("GET /hello HTTP/1.1\r\nX: "));
    struct pollfd p = { .fd = fd, .events = POLLIN };
    for (int i = 0; i < DEADLINE_MS / 10 && poll(&p, 1, 10) == 0; i++) say(fd, view("x"));
    assert_true(hear(fd, &b, NULL));
    expect(b.p, 408, NULL);
    assert_int_equal(close(fd), 0);
    nb_buf_deinit(&b);
    stop(&s);
}

/* ---- clients that leave ---- */

enum { LEAVE_CLOSE, LEAVE_RESET, LEAVE_HALF, N_LEAVE };

static void leave(int fd, int how)
{
    if (how == LEAVE_HALF) {
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        return;
    }
    if (how == LEAVE_RESET) {
        const struct linger l = { 1, 0 };
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l), 0);
    }
    assert_int_equal(close(fd), 0);
}

/* While the answer is computed, nothing written: noticed, once, with 499. */
static void test_leave_while_held(void **state)
{
    (void)state;
    server s = { 0 };
    start(&s);
    for (int how = 0; how < N_LEAVE; how++) {
        const int before = atomic_load(&s.n_close);
        const int fd = dial(&s);
        say(fd, view(how % 2 ? "GET /hold HTTP/1.1" KEEP
                             : "POST /hold HTTP/1.1\r\nContent-Length: 2" KEEP "ab"));
        wait_for(&s.n_held, 1);
        assert_int_equal(counts(&s).n_ex, 1);
        leave(fd, how);
        wait_for(&s.n_close, before + 1);
        wait_for(&s.n_held, 0);
        wait_connections(&s, 0);
        assert_int_equal(counts(&s).n_ex, 0);
        assert_int_equal(atomic_load(&s.n_done[499]), before + 1);
        if (how == LEAVE_HALF) assert_int_equal(close(fd), 0);
    }
    stop(&s);
    assert_int_equal(atomic_load(&s.n_close), N_LEAVE);
}

/* The same with MiB of requests sent ahead: the close comes behind them. */
static void test_leave_with_requests_ahead(void **state)
{
    enum { N = 60 << 10 };
    static const char post[] = "POST /echo HTTP/1.1\r\nContent-Length: 61440" KEEP;
    (void)state;
    server s = { 0 };
    char *body = malloc(N);
    assert_non_null(body);
    memset(body, 'b', N);
    start(&s);
    for (int how = 0; how < N_LEAVE; how++) {
        const int fd = dial(&s);
        say(fd, view("GET /hold HTTP/1.1" KEEP));
        wait_for(&s.n_held, 1);
        for (int i = 0; i < 128; i++) {
            say(fd, view(post));
            say(fd, (nb_str){ body, N });
        }
        leave(fd, how);
        wait_for(&s.n_held, 0);
        if (how == LEAVE_HALF) assert_int_equal(close(fd), 0);
        wait_connections(&s, 0);
    }
    free(body);
    stop(&s);
    assert_int_equal(atomic_load(&s.n_close), N_LEAVE);
}

/* More ahead than one largest request, or than all requests may hold. */
static void test_too_much_ahead(void **state)
{
    (void)state;
    for (int total = 0; total < 2; total++) {
        server s = { .o = { .max_header_bytes = 1000, .max_body_bytes = 100000 } };
        if (total) s.o.max_total_body_bytes = 50000;
        start(&s);
        const int fd = dial(&s);
        say(fd, view("GET /hold HTTP/1.1" KEEP));
        wait_for(&s.n_held, 1);
        for (int i = 0; i < 100000 && atomic_load(&s.n_held); i++)
            say(fd, view("GET /hello HTTP/1.1" KEEP));
        wait_for(&s.n_close, 1);
        wait_connections(&s, 0);
        assert_int_equal(close(fd), 0);
        /* What was counted is given back. */
        const int again = dial(&s);
        char text[100];
        say(again,
            view("GET /hello HTTP/1.1" KEEP "POST /echo HTTP/1.1\r\nContent-Length: 49000" END));
        expect_next(again, 200, "hello\n");
        nb_buf b = { 0 };
        memset(text, 'x', sizeof text);
        for (int i = 0; i < 490; i++) say(again, (nb_str){ text, sizeof text });
        assert_true(hear(again, &b, NULL));
        expect(b.p, 200, NULL);
        nb_buf_deinit(&b);
        assert_int_equal(close(again), 0);
        stop(&s);
    }
}

static void test_leave_stream(void **state)
{
    (void)state;
    server s = { 0 };
    start(&s);
    for (int how = 0; how < N_LEAVE; how++) {
        nb_buf b = { 0 };
        const int fd = dial(&s);
        say(fd, view("GET /flood HTTP/1.1" KEEP));
        assert_true(hear(fd, &b, "\r\n"));
        leave(fd, how);
        wait_for(&s.n_close, how + 1);
        wait_connections(&s, 0);
        if (how == LEAVE_HALF) assert_int_equal(close(fd), 0);
        nb_buf_deinit(&b);
    }
    stop(&s);
}

/* In the middle of a request, and between requests: nobody hears of it. */
static void test_leave_before(void **state)
{
    static const char *const said[] = { "", "GET /ho",
                                        "POST /hold HTTP/1.1\r\nContent-Length: 3" KEEP,
                                        "POST /hold HTTP/1.1\r\nContent-Length: 3" KEEP "ab",
                                        "GET /hello HTTP/1.1" KEEP };
    (void)state;
    server s = { 0 };
    start(&s);
    for (size_t i = 0; i < NB_COUNT(said); i++) {
        for (int how = 0; how < N_LEAVE; how++) {
            const int fd = dial(&s);
            say(fd, view(said[i]));
            if (i == 4) expect_next(fd, 200, "hello\n");
            wait_connections(&s, 1);
            leave(fd, how);
            wait_connections(&s, 0);
            if (how == LEAVE_HALF) assert_int_equal(close(fd), 0);
        }
    }
    stop(&s);
    assert_int_equal(atomic_load(&s.n_close), 0);
    assert_int_equal(atomic_load(&s.n_done[499]), 0);
}

/* `nc -N`: an answer that is there at once is still sent. */
static void test_half_closed(void **state)
{
    (void)state;
    server s = { 0 };
    start(&s);
    for (int i = 0; i < 20; i++) {
        nb_buf b = { 0 };
        const int fd = dial(&s);
        say(fd, view("GET /hello HTTP/1.1" KEEP));
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        assert_true(hear(fd, &b, NULL));
        expect(b.p, 200, "hello\n");
        nb_buf_deinit(&b);
        assert_int_equal(close(fd), 0);
    }
    stop(&s);
}

/* Does not read its stream: bounded, then gone, though it stays connected. */
static void test_slow_reader(void **state)
{
    (void)state;
    server s = { .o = { .max_stream_bytes = 256 << 10 } };
    start(&s);
    const int fd = dial(&s);
    say(fd, view("GET /flood HTTP/1.1" KEEP));
    wait_for(&s.n_close, 1);
    assert_int_equal(atomic_load(&s.n_cancelled), 1);
    wait_connections(&s, 0);
    /* What the system and we held, in pieces of 32 KiB: some MiB at most. */
    assert_true(atomic_load(&s.n_flood_rounds) < 1000);
    assert_int_equal(atomic_load(&s.n_done[499]), 1);
    assert_int_equal(close(fd), 0);
    stop(&s);
}

/* One write beyond the limit is not the reader's fault: what it leaves counts. */
static void test_large_write(void **state)
{
    (void)state;
    server s = { .o = { .max_stream_bytes = 64 << 10 } };
    start(&s);
    nb_buf b = { 0 };
    const int fd = dial(&s);
    say(fd, view("GET /burst HTTP/1.1" END));
    assert_true(hear(fd, &b, NULL));
    assert_true(b.n_bytes > BIG_BYTES);
    assert_string_equal(b.p + b.n_bytes - 10, "x\n\n\r\n0\r\n\r\n");
    assert_int_equal(atomic_load(&s.n_done[200]), 1);
    assert_int_equal(close(fd), 0);
    nb_buf_deinit(&b);
    stop(&s);
}

/* Large answers that nobody reads do not pile up. */
static void test_many_stuck_readers(void **state)
{
    (void)state;
    server s = { .o = { .max_total_body_bytes = BIG_BYTES + BIG_BYTES / 4 } };
    start(&s);
    nb_buf b = { 0 };
    const int fd = dial(&s);
    say(fd, view("GET /copy HTTP/1.1" END));
    wait_for(&s.n_done[200], 1);
    expect(ask(&s, "GET /copy HTTP/1.1" END), 503, "Retry-After: 1\r\n");
    assert_true(hear(fd, &b, NULL));
    assert_true(b.n_bytes > BIG_BYTES);
    assert_int_equal(close(fd), 0);
    wait_connections(&s, 0);
    char *again = ask(&s, "GET /copy HTTP/1.1" END);
    expect(again, 200, NULL);
    nb_buf_deinit(&b);
    stop(&s);
}

/* Takes nothing of a whole answer. */
static void test_stuck_reader(void **state)
{
    (void)state;
    server s = { .o = { .write_timeout_s = 0.1 } };
    start(&s);
    const int fd = dial(&s);
    say(fd, view("GET /big HTTP/1.1" KEEP));
    wait_for(&s.n_done[200], 1);
    wait_connections(&s, 0);
    assert_int_equal(close(fd), 0);
    stop(&s);
    assert_int_equal(atomic_load(&s.n_close), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_http10),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_blank_lines),
        cmocka_unit_test(test_codings),
        cmocka_unit_test(test_large_body),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_total_limit),
        cmocka_unit_test(test_slow_writers),
        cmocka_unit_test(test_leave_while_held),
        cmocka_unit_test(test_leave_with_requests_ahead),
        cmocka_unit_test(test_too_much_ahead),
        cmocka_unit_test(test_leave_stream),
        cmocka_unit_test(test_leave_before),
        cmocka_unit_test(test_half_closed),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_large_write),
        cmocka_unit_test(test_many_stuck_readers),
        cmocka_unit_test(test_stuck_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
