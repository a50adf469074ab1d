/* http_testing.c - see http_testing.h. */
#include "http_testing.h"

void on_hello(nb_http_ex *ex, void *ctx)
{
    (void)ctx;
    nb_http_reply(ex, 200, "text/plain", view("hello\n"));
}

static void on_echo(nb_http_ex *ex, void *ctx)
{
    (void)ctx;
    nb_http_reply(ex, 200, "application/octet-stream", nb_http_body(ex));
}

static void on_info(nb_http_ex *ex, void *ctx)
{
    char text[512];
    const nb_str q = nb_http_query(ex, "q"), peer = nb_http_peer(ex);
    (void)ctx;
    (void)snprintf(text, sizeof text, "id=%s peer=%.*s local=%d route=%s q=%.*s\n",
                   nb_http_request_id(ex), (int)peer.n_bytes, peer.p, nb_http_is_local(ex),
                   nb_http_route_of(ex)->path, q.p ? (int)q.n_bytes : 4, q.p ? q.p : "none");
    assert_int_equal(nb_http_add_header(ex, "X-More", "yes"), NB_OK);
    assert_int_equal(nb_http_add_header(ex, "Content-Length", "1"), NB_ERR_ARG);
    assert_int_equal(nb_http_add_header(ex, "X-Split", "a\r\nb: c"), NB_ERR_ARG);
    nb_http_reply(ex, 200, "text/plain", view(text));
}

typedef struct held_slot {
    server *s;
    int i;
} held_slot;

static void on_held_close(void *ctx)
{
    held_slot *slot = ctx;
    /* Nothing works any more, nothing breaks either. */
    assert_int_equal(nb_http_write(slot->s->held[slot->i], view("x")), NB_ERR_CANCELLED);
    nb_http_end(slot->s->held[slot->i]);
    slot->s->held[slot->i] = NULL;
    atomic_fetch_add(&slot->s->n_close, 1);
    atomic_fetch_sub(&slot->s->n_held, 1);
    free(slot);
}

static void on_hold(nb_http_ex *ex, void *ctx)
{
    server *s = ctx;
    held_slot *slot = malloc(sizeof *slot);
    assert_non_null(slot);
    *slot = (held_slot){ s, 0 };
    while (s->held[slot->i]) slot->i++;
    s->held[slot->i] = ex;
    nb_http_on_close(ex, on_held_close, slot);
    atomic_fetch_add(&s->n_held, 1);
}

static void on_pending_close(void *ctx)
{
    pending *p = ctx;
    p->gone = true;
    atomic_fetch_add(&p->s->n_close, 1);
}

static pending *pend(nb_http_ex *ex, server *s)
{
    pending *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->s = s;
    p->ex = ex;
    nb_http_on_close(ex, on_pending_close, p);
    return p;
}

static void later(void *ctx)
{
    pending *p = ctx;
    if (!p->gone) nb_http_reply(p->ex, 200, "text/plain", view("later\n"));
    free(p);
}

static void on_later(nb_http_ex *ex, void *ctx)
{
    server *s = ctx;
    nb_http_post(s->h, later, pend(ex, s));
}

static void stream_on(void *ctx)
{
    pending *p = ctx;
    if (p->gone) {
        free(p);
        return;
    }
    if (p->n++ == 5) {
        nb_http_end(p->ex);
        free(p);
        return;
    }
    assert_int_equal(nb_http_write(p->ex, view("data: ")), NB_OK);
    assert_int_equal(nb_http_write(p->ex, view("x\n\n")), NB_OK);
    assert_int_equal(nb_http_write(p->ex, view("")), NB_OK);
    nb_http_post(p->s->h, stream_on, p);
}

static void on_stream(nb_http_ex *ex, void *ctx)
{
    server *s = ctx;
    assert_int_equal(nb_http_begin(ex, 200, "text/event-stream"), NB_OK);
    nb_http_post(s->h, stream_on, pend(ex, s));
}

/* Much at once, then as any stream. */
static void on_burst(nb_http_ex *ex, void *ctx)
{
    server *s = ctx;
    assert_int_equal(nb_http_begin(ex, 200, "text/event-stream"), NB_OK);
    assert_int_equal(nb_http_write(ex, (nb_str){ s->big, BIG_BYTES }), NB_OK);
    nb_http_post(s->h, stream_on, pend(ex, s));
}

static void flood(void *ctx)
{
    static char bytes[FLOOD_BYTES];
    pending *p = ctx;
    if (p->gone) {
        free(p);
        return;
    }
    atomic_fetch_add(&p->s->n_flood_rounds, 1);
    if (nb_http_write(p->ex, (nb_str){ bytes, sizeof bytes }) == NB_ERR_CANCELLED)
        atomic_fetch_add(&p->s->n_cancelled, 1);
    nb_http_post(p->s->h, flood, p);
}

static void on_flood(nb_http_ex *ex, void *ctx)
{
    server *s = ctx;
    assert_int_equal(nb_http_begin(ex, 200, NULL), NB_OK);
    nb_http_post(s->h, flood, pend(ex, s));
}

static void on_big(nb_http_ex *ex, void *ctx)
{
    const server *s = ctx;
    nb_http_reply_static(ex, 200, NULL, (nb_str){ s->big, BIG_BYTES });
}

static void on_copy(nb_http_ex *ex, void *ctx)
{
    const server *s = ctx;
    nb_http_reply(ex, 200, NULL, (nb_str){ s->big, BIG_BYTES });
}

const nb_http_route routes[] = {
    { "GET", "/hello", on_hello, false }, { "POST", "/echo", on_echo, false },
    { "PUT", "/echo", on_echo, false },   { "GET", "/info", on_info, false },
    { "GET", "/hold", on_hold, false },   { "POST", "/hold", on_hold, false },
    { "GET", "/later", on_later, false }, { "GET", "/stream", on_stream, false },
    { "GET", "/flood", on_flood, false }, { "GET", "/big", on_big, false },
    { "GET", "/burst", on_burst, false }, { "GET", "/copy", on_copy, false },
    { "GET", "/open", on_hello, true },   { "GET", "/a b", on_hello, false },
};

static void on_done(void *ctx, const nb_http_ex *ex, int status, double seconds)
{
    server *s = ctx;
    assert_true(seconds >= 0 && status >= 200 && status < 600);
    assert_true(nb_http_request_id(ex)[0] != 0);
    atomic_fetch_add(&s->n_done[status], 1);
}

static void on_warn(void *ctx, const char *line)
{
    server *s = ctx;
    assert_true(line[0] != 0);
    atomic_fetch_add(&s->n_warn, 1);
}

void *serve_thread(void *ctx)
{
    server *s = ctx;
    nb_error e;
    if (nb_http_run(s->h, &e) != NB_OK) fail_msg("%s", e.msg);
    return NULL;
}

void start(server *s)
{
    nb_error e;
    if (!s->o.uds) s->o.any_port = true;
    s->o.on_done = on_done;
    s->o.on_warn = on_warn;
    s->o.ctx = s;
    s->big = calloc(1, BIG_BYTES);
    assert_non_null(s->big);
    if (nb_http_create(&s->o, routes, N_ROUTES, &s->h, &e) != NB_OK) fail_msg("%s", e.msg);
    assert_int_equal(pthread_create(&s->thread, NULL, serve_thread, s), 0);
    s->started = true;
}

void join(server *s)
{
    if (s->started) assert_int_equal(pthread_join(s->thread, NULL), 0);
    s->started = false;
}

void stop(server *s)
{
    nb_http_stop(s->h);
    nb_http_stop(s->h);
    join(s);
    nb_http_destroy(s->h);
    free(s->big);
}

/* ---- asking the loop ---- */

typedef struct question {
    const nb_http *h;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
    size_t n_conn, n_ex, n_unanswered;
} question;

static void answer_question(void *ctx)
{
    question *q = ctx;
    (void)pthread_mutex_lock(&q->lock);
    q->n_conn = nb_http_n_connections(q->h);
    q->n_ex = nb_http_n_exchanges(q->h);
    q->n_unanswered = (size_t)nb_http_n_unanswered(q->h);
    q->done = true;
    (void)pthread_cond_signal(&q->cond);
    (void)pthread_mutex_unlock(&q->lock);
}

counted counts(const server *s)
{
    question q = { .h = s->h, .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
    nb_http_post(s->h, answer_question, &q);
    (void)pthread_mutex_lock(&q.lock);
    while (!q.done) (void)pthread_cond_wait(&q.cond, &q.lock);
    (void)pthread_mutex_unlock(&q.lock);
    return (counted){ q.n_conn, q.n_ex, q.n_unanswered };
}

void nap_ms(long ms)
{
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    (void)nanosleep(&t, NULL);
}

void wait_for(atomic_int *v, int want)
{
    for (int ms = 0; ms < DEADLINE_MS && atomic_load(v) != want; ms++) nap_ms(1);
    assert_int_equal(atomic_load(v), want);
}

void wait_connections(const server *s, size_t want)
{
    for (int ms = 0; ms < DEADLINE_MS && counts(s).n_conn != want; ms++) nap_ms(1);
    assert_int_equal(counts(s).n_conn, want);
}

/* ---- a client ---- */

int dial(const server *s)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(nb_http_port(s->h));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) fail_msg("connect: %s", strerror(errno));
    return fd;
}

void say(int fd, nb_str s)
{
    while (s.n_bytes) {
        const ssize_t n = send(fd, s.p, s.n_bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return; /* the server may have closed already: what it said counts */
        s.p += n;
        s.n_bytes -= (size_t)n;
    }
}

/* Reads until the server closes, or *b ends with `until` (NULL: not). False: neither in time. */
bool hear(int fd, nb_buf *b, const char *until)
{
    char bytes[65536];
    const size_t n_until = until ? strlen(until) : 0;
    for (;;) {
        if (until && b->n_bytes >= n_until &&
            memcmp(b->p + b->n_bytes - n_until, until, n_until) == 0)
            return true;
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (poll(&p, 1, DEADLINE_MS) <= 0) return false;
        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return until == NULL || n_until == 0;
        assert_int_equal(nb_buf_add(b, bytes, (size_t)n), NB_OK);
    }
}

/* Sends, reads to the end of the connection, and closes. */
char *ask_bytes(const server *s, nb_str bytes)
{
    static nb_buf b;
    const int fd = dial(s);
    nb_buf_deinit(&b);
    b = (nb_buf){ 0 };
    assert_int_equal(nb_buf_add_c(&b, ""), NB_OK);
    say(fd, bytes);
    if (!hear(fd, &b, NULL)) fail_msg("the server does not close after %s", bytes.p);
    assert_int_equal(close(fd), 0);
    return b.p;
}

char *ask(const server *s, const char *text)
{
    return ask_bytes(s, view(text));
}

int status_of(const char *answer)
{
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
}

void expect(const char *answer, int status, const char *part)
{
    if (status_of(answer) != status || (part && !strstr(answer, part)))
        fail_msg("expected %d and `%s`, got:\n%s", status, part ? part : "", answer);
}

/* An answer that ends with `end`, on a connection that stays. */
void expect_next(int fd, int status, const char *end)
{
    nb_buf b = { 0 };
    if (!hear(fd, &b, end)) fail_msg("no `%s` in:\n%s", end, b.p ? b.p : "");
    expect(b.p, status, NULL);
    nb_buf_deinit(&b);
}
