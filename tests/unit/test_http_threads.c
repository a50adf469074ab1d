/* test_http_threads.c - the server's life: addresses, Unix sockets, stopping and draining, tasks
 * from other threads, many connections, no descriptors. */
#include "http_testing.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

#define END "\r\nHost: localhost\r\nConnection: close\r\n\r\n"
#define KEEP "\r\nHost: localhost\r\n\r\n"

static bool can_connect(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(port);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    const bool ok = connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    assert_int_equal(close(fd), 0);
    return ok;
}

/* ---- addresses ---- */

static void refused(const nb_http_options *o, const char *want)
{
    nb_http *h = NULL;
    nb_error e;
    if (nb_http_create(o, routes, 1, &h, &e) == NB_OK) fail_msg("accepted: %s", want);
    if (!strstr(e.msg, want)) fail_msg("expected `%s`, got: %s", want, e.msg);
}

static void test_ports(void **state)
{
    (void)state;
    server s = { 0 };
    start(&s);
    assert_true(nb_http_port(s.h) > 0);
    nb_http_options o = { .port = nb_http_port(s.h) };
    refused(&o, "another program listens there");
    o = (nb_http_options){ 0 };
    refused(&o, "port 0");
    o = (nb_http_options){ .any_port = true, .host = "no such host" };
    refused(&o, "no such host: cannot be resolved");
    o = (nb_http_options){ .any_port = true, .host = "192.0.2.1" };
    refused(&o, "does not have that address");
    o = (nb_http_options){ .any_port = true, .read_timeout_s = -1 };
    refused(&o, "timeout");
    const uint16_t port = nb_http_port(s.h);
    stop(&s);
    assert_false(can_connect(port));
    /* At once again on the same port, though connections of it may linger in the system. */
    server t = { 0 };
    t.o.port = port;
    nb_http *h = NULL;
    assert_int_equal(nb_http_create(&t.o, routes, 1, &h, NULL), NB_OK);
    nb_http_destroy(h);
}

static void test_hosts(void **state)
{
    static const char *const hosts[] = { "localhost", "", "::", "0.0.0.0", "127.0.0.2" };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(hosts); i++) {
        nb_http *h = NULL;
        nb_error e;
        const nb_http_options o = { .any_port = true, .host = hosts[i] };
        if (nb_http_create(&o, routes, 1, &h, &e) != NB_OK) {
            if (strcmp(hosts[i], "::") == 0) continue; /* a machine without IPv6 */
            fail_msg("%s", e.msg);
        }
        assert_int_equal(can_connect(nb_http_port(h)), strcmp(hosts[i], "127.0.0.2") != 0);
        nb_http_destroy(h);
    }
}

static void test_unix_socket(void **state)
{
    (void)state;
    char dir[256], path[300], file[300], text[200];
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(dir, sizeof dir, "%.60s/nb-uds-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/s", dir);
    (void)snprintf(file, sizeof file, "%s/f", dir);
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, path, strlen(path));
    for (int round = 0; round < 2; round++) {
        if (round == 1) { /* left over from a program that died */
            const int old = socket(AF_UNIX, SOCK_STREAM, 0);
            assert_int_equal(bind(old, (struct sockaddr *)&a, sizeof a), 0);
            assert_int_equal(close(old), 0);
        }
        server s = { .o = { .uds = path } };
        start(&s);
        struct stat st;
        assert_int_equal(lstat(path, &st), 0);
        assert_true(S_ISSOCK(st.st_mode));
        assert_int_equal(st.st_mode & 077, 0);
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
        nb_buf b = { 0 };
        say(fd, view("GET /info HTTP/1.1\r\nHost: any.example\r\n\r\n")); /* Host does not matter */
        assert_true(hear(fd, &b, "q=none\n"));
        expect(b.p, 200, "peer=unix local=0");
        nb_buf_deinit(&b);
        b = (nb_buf){ 0 };
        say(fd, view("GET /info HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        assert_true(hear(fd, &b, NULL));
        expect(b.p, 200, "peer=unix local=1");
        nb_buf_deinit(&b);
        assert_int_equal(close(fd), 0);
        refused(&s.o, "another program listens there");
        stop(&s);
        assert_int_equal(lstat(path, &st), -1);
    }
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    nb_http_options o = { .uds = file };
    refused(&o, "is not a socket; it is left alone");
    assert_int_equal(access(file, F_OK), 0);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    o.uds = text;
    refused(&o, "has 199 bytes");
    o.uds = "/nowhere/at/all";
    refused(&o, "cannot make the socket");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* ---- stopping ---- */

static void finish_held(void *ctx)
{
    server *s = ctx;
    for (int i = 0; i < MAX_HELD; i++) {
        if (!s->held[i]) continue;
        if (nb_str_eqc(nb_http_path(s->held[i]), "/begun"))
            nb_http_end(s->held[i]);
        else
            nb_http_reply(s->held[i], 200, "text/plain", view("late\n"));
        s->held[i] = NULL;
        atomic_fetch_sub(&s->n_held, 1);
    }
}

/* The slot of on_hold is of no more use once the exchange is answered. */
static void on_hold_simply(nb_http_ex *ex, void *ctx)
{
    server *s = ctx;
    int i = 0;
    while (s->held[i]) i++;
    s->held[i] = ex;
    atomic_fetch_add(&s->n_held, 1);
}

static void on_begun(nb_http_ex *ex, void *ctx)
{
    assert_int_equal(nb_http_begin(ex, 200, "text/plain"), NB_OK);
    on_hold_simply(ex, ctx);
}

static const nb_http_route drain_routes[] = {
    { "GET", "/begun", on_begun, false },
    { "GET", "/hold", on_hold_simply, false },
    { "POST", "/hello", on_hello, true },
    { "GET", "/hello", on_hello, true },
};

static void wait_draining(const server *s)
{
    for (int ms = 0; ms < DEADLINE_MS && can_connect(nb_http_port(s->h)); ms++) nap_ms(1);
}

static void test_drain(void **state)
{
    (void)state;
    server s = { .o = { .any_port = true } };
    s.o.ctx = &s;
    nb_error e;
    if (nb_http_create(&s.o, drain_routes, NB_COUNT(drain_routes), &s.h, &e) != NB_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(pthread_create(&s.thread, NULL, serve_thread, &s), 0);
    s.started = true;
    const int idle = dial(&s), kept = dial(&s), half = dial(&s), held = dial(&s);
    const int begun = dial(&s);
    nb_buf b = { 0 };
    say(idle, view("GET /hello HTTP/1.1" KEEP));
    expect_next(idle, 200, "hello\n");
    say(half, view("POST /hello HTTP/1.1\r\nContent-Length: 2" KEEP "a"));
    say(held, view("GET /hold HTTP/1.1" KEEP));
    say(kept, view("GET /hold HTTP/1.1" KEEP "GET /hello HTTP/1.1" KEEP));
    say(begun, view("GET /begun HTTP/1.1" KEEP));
    wait_for(&s.n_held, 3);
    wait_connections(&s, 5);
    nb_http_stop(s.h);
    wait_draining(&s);
    assert_false(can_connect(nb_http_port(s.h)));
    assert_true(hear(idle, &b, NULL)); /* closed at once */
    assert_int_equal(b.n_bytes, 0);
    say(half, view("b")); /* a request that is not complete yet is not begun */
    assert_true(hear(half, &b, NULL));
    expect(b.p, 503, "Connection: close\r\n");
    nb_http_post(s.h, finish_held, &s); /* what runs is finished */
    b.n_bytes = 0;
    assert_true(hear(held, &b, NULL));
    expect(b.p, 200, "late\n");
    assert_non_null(strstr(b.p, "Connection: close\r\n"));
    b.n_bytes = 0;
    assert_true(hear(kept, &b, NULL));
    expect(b.p, 200, "late\n");
    assert_null(strstr(b.p, "hello\n"));
    b.n_bytes = 0;
    assert_true(hear(begun, &b, "\r\n0\r\n\r\n")); /* did not know of it when it began */
    say(begun, view("GET /hello HTTP/1.1" KEEP));
    b.n_bytes = 0;
    assert_true(hear(begun, &b, NULL));
    assert_int_equal(b.n_bytes, 0);
    nb_buf_deinit(&b);
    assert_int_equal(close(idle) | close(half) | close(held) | close(kept) | close(begun), 0);
    join(&s); /* by itself */
    nb_http_destroy(s.h);
}

/* Time to finish is over; or the second call comes: everything ends, on_close comes. */
static void test_hard_stop(void **state)
{
    (void)state;
    for (int second = 0; second < 2; second++) {
        server s = { 0 };
        start(&s);
        const int a = dial(&s), b = dial(&s), c = dial(&s);
        say(a, view("GET /hold HTTP/1.1" KEEP));
        say(b, view("POST /hold HTTP/1.1\r\nContent-Length: 1" KEEP "x"));
        say(c, view("GET /hel"));
        wait_for(&s.n_held, 2);
        wait_connections(&s, 3);
        if (!second) nb_http_set_drain(s.h, 0.05);
        nb_http_stop(s.h);
        if (second) nb_http_stop(s.h);
        join(&s);
        assert_int_equal(atomic_load(&s.n_held), 0);
        assert_int_equal(atomic_load(&s.n_close), 2);
        assert_int_equal(close(a) | close(b) | close(c), 0);
        nb_http_destroy(s.h);
        free(s.big);
    }
}

static nb_http *signalled;

static void on_signal(int sig)
{
    (void)sig;
    nb_http_stop(signalled);
}

static void test_stop_by_signal(void **state)
{
    (void)state;
    server s = { 0 };
    start(&s);
    signalled = s.h;
    struct sigaction act = { .sa_handler = on_signal }, before;
    assert_int_equal(sigaction(SIGUSR1, &act, &before), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    join(&s);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    nb_http_destroy(s.h);
    free(s.big);
}

static void test_stop_before_run(void **state)
{
    (void)state;
    nb_http *h = NULL;
    nb_error e;
    const nb_http_options o = { .any_port = true };
    assert_int_equal(nb_http_create(&o, routes, 1, &h, &e), NB_OK);
    nb_http_stop(h);
    assert_int_equal(nb_http_run(h, &e), NB_OK);
    assert_true(nb_http_draining(h));
    nb_http_destroy(h);
    nb_http_destroy(NULL);
}

/* ---- tasks ---- */

typedef struct counter {
    nb_http *h;
    atomic_int n, gate;
    int order[4];
} counter;

static void count(void *ctx)
{
    counter *c = ctx;
    atomic_fetch_add(&c->n, 1);
}

static void hold_gate(void *ctx)
{
    counter *c = ctx;
    while (atomic_load(&c->gate) == 0) nap_ms(1);
}

static void test_post_is_one(void **state)
{
    enum { OTHERS = 20000 };
    (void)state;
    server s = { 0 };
    start(&s);
    counter gate = { .h = s.h }, c = { .h = s.h };
    counter *others = calloc(OTHERS, sizeof *others);
    assert_non_null(others);
    nb_http_post(s.h, hold_gate, &gate);
    for (int i = 0; i < 1000; i++) nb_http_post(s.h, count, &c);
    for (int k = 0; k < 2; k++) /* more than there is room for at first */
        for (int i = 0; i < OTHERS; i++) nb_http_post(s.h, count, &others[i]);
    atomic_store(&gate.gate, 1);
    (void)counts(&s);
    assert_int_equal(atomic_load(&c.n), 1);
    for (int i = 0; i < OTHERS; i++) assert_int_equal(atomic_load(&others[i].n), 1);
    nb_http_post(s.h, count, &c);
    (void)counts(&s);
    assert_int_equal(atomic_load(&c.n), 2);
    /* Posted and not run: destroy runs it. */
    nb_http_stop(s.h);
    join(&s);
    nb_http_post(s.h, count, &c);
    nb_http_destroy(s.h);
    assert_int_equal(atomic_load(&c.n), 3);
    free(others);
    free(s.big);
}

static void *post_many(void *ctx)
{
    counter *c = ctx;
    for (int i = 0; i < 20000; i++) nb_http_post(c->h, count, c);
    atomic_store(&c->gate, 1);
    return NULL;
}

/* No post is lost: after the last of a thread its task runs once more at least. */
static void test_post_from_threads(void **state)
{
    enum { N = 4 };
    (void)state;
    server s = { 0 };
    start(&s);
    pthread_t t[N];
    counter c[N] = { 0 };
    for (int i = 0; i < N; i++) {
        c[i].h = s.h;
        assert_int_equal(pthread_create(&t[i], NULL, post_many, &c[i]), 0);
    }
    for (int i = 0; i < N; i++) assert_int_equal(pthread_join(t[i], NULL), 0);
    (void)counts(&s);
    for (int i = 0; i < N; i++) {
        const int n = atomic_load(&c[i].n);
        assert_in_range(n, 1, 20000);
        nb_http_post(s.h, count, &c[i]);
        (void)counts(&s);
        assert_int_equal(atomic_load(&c[i].n), n + 1);
    }
    stop(&s);
}

static void test_every(void **state)
{
    (void)state;
    server s = { 0 };
    counter c = { 0 };
    nb_error e;
    s.o.any_port = true;
    assert_int_equal(nb_http_create(&s.o, routes, N_ROUTES, &s.h, &e), NB_OK);
    assert_int_equal(nb_http_every(s.h, 0, count, &c), NB_ERR_ARG);
    assert_int_equal(nb_http_every(s.h, 0.001, count, &c), NB_OK);
    assert_int_equal(pthread_create(&s.thread, NULL, serve_thread, &s), 0);
    s.started = true;
    for (int ms = 0; ms < DEADLINE_MS && atomic_load(&c.n) < 3; ms++) nap_ms(1);
    assert_true(atomic_load(&c.n) >= 3);
    nb_http_stop(s.h);
    join(&s);
    nb_http_destroy(s.h);
}

/* ---- many ---- */

static size_t resident_bytes(void)
{
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*u %zu", &pages), 1);
    assert_int_equal(fclose(f), 0);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* 1,000 that have had an answer and are idle, then 1,000 streams in work. */
static void test_thousand(void **state)
{
    enum { N = 1000, FDS = 2 * N + 100 };
    (void)state;
    struct rlimit limit, more;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    more = limit;
    if (more.rlim_cur < FDS) more.rlim_cur = FDS;
    if (setrlimit(RLIMIT_NOFILE, &more) != 0) {
        print_message("skipped: needs %d descriptors\n", FDS);
        skip();
    }
    server s = { 0 };
    static int fd[N];
    start(&s);
    for (int i = 0; i < 10; i++) (void)ask(&s, "GET /hello HTTP/1.1" END);
    const size_t before = resident_bytes();
    for (int i = 0; i < N; i++) {
        fd[i] = dial(&s);
        say(fd[i], view("GET /hello HTTP/1.1" KEEP));
    }
    for (int i = 0; i < N; i++) expect_next(fd[i], 200, "hello\n");
    wait_connections(&s, N);
    const size_t after = resident_bytes();
    const size_t each = after > before ? (after - before) / N : 0;
    print_message("%zu bytes for each idle connection\n", each);
    const char *san = getenv("NB_SANITIZE");
    if (!san || !san[0]) assert_true(each < 4096);
    for (int i = 0; i < N; i++) say(fd[i], view("GET /stream HTTP/1.1" KEEP));
    for (int i = 0; i < N; i++) expect_next(fd[i], 200, "0\r\n\r\n");
    for (int i = 0; i < N; i++) assert_int_equal(close(fd[i]), 0);
    wait_connections(&s, 0);
    stop(&s);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void test_too_many(void **state)
{
    (void)state;
    server s = { .o = { .max_connections = 3 } };
    int fd[3];
    start(&s);
    for (int i = 0; i < 3; i++) fd[i] = dial(&s);
    wait_connections(&s, 3);
    for (int i = 0; i < 5; i++)
        expect(ask(&s, "GET /hello HTTP/1.1" END), 503, "Connection: close\r\n");
    for (int i = 0; i < 3; i++) {
        say(fd[i], view("GET /hello HTTP/1.1" KEEP)); /* those within are served */
        expect_next(fd[i], 200, "hello\n");
    }
    assert_int_equal(close(fd[0]), 0);
    wait_connections(&s, 2);
    expect(ask(&s, "GET /hello HTTP/1.1" END), 200, "hello\n");
    assert_int_equal(close(fd[1]) | close(fd[2]), 0);
    stop(&s);
}

static size_t unanswered(const server *s)
{
    return counts(s).n_unanswered;
}

/* Far beyond the limit nobody gets an answer: one line says so, and the counter grows. */
static void test_far_too_many(void **state)
{
    enum { N = 450, ANSWERED = 1 + 256 };
    (void)state;
    server s = { .o = { .max_connections = 1 } };
    int fd[N], n = 0;
    start(&s);
    while (n < N && (n < ANSWERED || unanswered(&s) < 3)) fd[n++] = dial(&s);
    assert_true(unanswered(&s) >= 3);
    wait_for(&s.n_warn, 1);
    while (n < N) fd[n++] = dial(&s);
    assert_int_equal(atomic_load(&s.n_warn), 1);
    for (int i = 0; i < n; i++) assert_int_equal(close(fd[i]), 0);
    wait_connections(&s, 0);
    expect(ask(&s, "GET /hello HTTP/1.1" END), 200, "hello\n");
    stop(&s);
}

/* Out of descriptors: one line, and served when there are some again. */
static void test_no_descriptors(void **state)
{
    (void)state;
    server s = { 0 };
    struct rlimit limit, less;
    start(&s);
    expect(ask(&s, "GET /hello HTTP/1.1" END), 200, NULL);
    wait_connections(&s, 0);
    const int fd = dial(&s);
    wait_connections(&s, 1);
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(client >= 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    less = limit;
    less.rlim_cur = (rlim_t)client + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
    struct sockaddr_in a = { .sin_family = AF_INET };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(nb_http_port(s.h));
    assert_int_equal(connect(client, (struct sockaddr *)&a, sizeof a), 0);
    wait_for(&s.n_warn, 1);
    say(fd, view("GET /hello HTTP/1.1" KEEP)); /* who is connected notices nothing */
    expect_next(fd, 200, "hello\n");
    nap_ms(300); /* long enough for more tries */
    assert_int_equal(atomic_load(&s.n_warn), 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    say(client, view("GET /hello HTTP/1.1" KEEP));
    expect_next(client, 200, "hello\n");
    assert_int_equal(close(fd) | close(client), 0);
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_unix_socket),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_hard_stop),
        cmocka_unit_test(test_stop_by_signal),
        cmocka_unit_test(test_stop_before_run),
        cmocka_unit_test(test_post_is_one),
        cmocka_unit_test(test_post_from_threads),
        cmocka_unit_test(test_every),
        cmocka_unit_test(test_thousand),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_far_too_many),
        cmocka_unit_test(test_no_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
