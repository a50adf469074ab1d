/* bench_client.c - see bench_client.h.
 *
 * Client and server often share a machine with few cores, so a token must cost little here: one
 * read into a buffer that all connections share, no JSON, no event that changes what the kernel
 * watches.  A connection carries one request at a time; an idle one waits in a list. */
#include "bench_client.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <jansson.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../cli.h"

enum { READ_BYTES = 65536, SPARE_FILES = 64, START_AT_ONCE = 64 };
static const double RETRY_S = 0.01; /* a Unix socket whose backlog is full */

typedef struct conn {
    bench_client *c;
    struct conn *next; /* idle list */
    struct conn *prev_open, *next_open;
    struct event *readable, *writable, *timer;
    int fd;
    bool idle, used, got; /* used: has carried a request before; got: bytes of an answer */
    bool connecting;
    bench_buf out;
    size_t at_out;
    bench_wire wire;
    size_t i; /* index of the request */
    bench_rec *rec;
    size_t hang_up_at; /* tokens after which we leave; SIZE_MAX: never */
    double deadline_s, leave_s;
    bool done; /* [DONE] came */
    double now_s;
} conn;

struct bench_client {
    bench_target t;
    struct event_base *base;
    struct sockaddr_storage address;
    socklen_t address_bytes;
    char *buffer;
    conn *idle, *open;
    /* the run */
    const bench_job *job;
    bench_rec *rec;
    struct event *pace;
    size_t n_sent, n_active, n_done;
    double begin_s;
    bench_run stats;
    bool failed;     /* out of memory */
    bench_buf fetch; /* of bench_fetch: the request */
    char *answer;
};

static void start(bench_client *c);

static void no_memory(bench_client *c)
{
    c->failed = true;
    (void)event_base_loopbreak(c->base);
}

/* ---- addresses ------------------------------------------------------------ */

static int resolve_uds(bench_client *c)
{
    struct sockaddr_un *u = (struct sockaddr_un *)&c->address;
    const size_t n = strlen(c->t.uds);
    if (n >= sizeof u->sun_path) return cli_failed("%s: too long for a socket's path", c->t.uds);
    u->sun_family = AF_UNIX;
    memcpy(u->sun_path, c->t.uds, n + 1);
    c->address_bytes = sizeof *u;
    return CLI_OK;
}

static bool accepts(const struct addrinfo *a)
{
    const int fd = socket(a->ai_family, SOCK_STREAM, 0);
    if (fd < 0) return false;
    const bool ok = connect(fd, a->ai_addr, a->ai_addrlen) == 0;
    (void)close(fd);
    return ok;
}

static int resolve(bench_client *c)
{
    struct addrinfo hints, *list = NULL;
    char port[16];
    if (c->t.uds) return resolve_uds(c);
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    (void)snprintf(port, sizeof port, "%u", c->t.port);
    const int rc = getaddrinfo(c->t.host, port, &hints, &list);
    if (rc != 0) return cli_failed("%s: %s", c->t.host, gai_strerror(rc));
    const struct addrinfo *a = list; /* the first that accepts, else the first */
    while (a && !accepts(a)) a = a->ai_next;
    if (!a) a = list;
    memcpy(&c->address, a->ai_addr, a->ai_addrlen);
    c->address_bytes = a->ai_addrlen;
    freeaddrinfo(list);
    return CLI_OK;
}

/* ---- connections ---------------------------------------------------------- */

static void on_readable(evutil_socket_t fd, short what, void *ctx);
static void on_writable(evutil_socket_t fd, short what, void *ctx);
static void on_timer(evutil_socket_t fd, short what, void *ctx);

static void conn_close(conn *k)
{
    bench_client *c = k->c;
    if (k->idle)
        for (conn **p = &c->idle; *p; p = &(*p)->next)
            if (*p == k) {
                *p = k->next;
                break;
            }
    if (k->prev_open)
        k->prev_open->next_open = k->next_open;
    else
        c->open = k->next_open;
    if (k->next_open) k->next_open->prev_open = k->prev_open;
    if (k->readable) event_free(k->readable);
    if (k->writable) event_free(k->writable);
    if (k->timer) event_free(k->timer);
    if (k->fd >= 0) (void)close(k->fd);
    bench_buf_deinit(&k->out);
    bench_wire_deinit(&k->wire);
    free(k);
}

/* A new connection, not connected; NULL and errno. */
static conn *conn_open(bench_client *c)
{
    const int one = 1;
    conn *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    k->c = c;
    k->next_open = c->open;
    if (c->open) c->open->prev_open = k;
    c->open = k;
    k->fd = socket(c->address.ss_family, SOCK_STREAM, 0);
    if (k->fd < 0) goto fail;
    if (fcntl(k->fd, F_SETFL, O_NONBLOCK) != 0 || fcntl(k->fd, F_SETFD, FD_CLOEXEC) != 0) goto fail;
    if (!c->t.uds) (void)setsockopt(k->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    k->readable = event_new(c->base, k->fd, EV_READ | EV_PERSIST, on_readable, k);
    k->writable = event_new(c->base, k->fd, EV_WRITE | EV_PERSIST, on_writable, k);
    k->timer = event_new(c->base, -1, 0, on_timer, k);
    if (!k->readable || !k->writable || !k->timer) {
        errno = ENOMEM;
        goto fail;
    }
    return k;
fail:;
    const int e = errno;
    conn_close(k);
    errno = e;
    return NULL;
}

static struct timeval timeval_of(double s)
{
    struct timeval tv;
    if (s < 0) s = 0;
    tv.tv_sec = (time_t)s;
    tv.tv_usec = (suseconds_t)((s - (double)tv.tv_sec) * 1e6);
    return tv;
}

/* 0: connected or on its way, else errno. */
static int conn_connect(conn *k)
{
    bench_client *c = k->c;
    if (connect(k->fd, (const struct sockaddr *)&c->address, c->address_bytes) == 0) return 0;
    if (errno == EAGAIN && c->t.uds) return EAGAIN;
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    k->connecting = true;
    return 0;
}

/* ---- the end of a request ------------------------------------------------- */

static void finish(conn *k, bench_outcome outcome, const char *why)
{
    bench_client *c = k->c;
    bench_rec *r = k->rec;
    r->outcome = outcome;
    if (why) bench_rec_error(r, why, strlen(why));
    if (k->wire.phase > WIRE_HEADERS || k->wire.status >= 200) r->status = k->wire.status;
    if (outcome == BENCH_OK && r->ttft_s == 0) { /* no token came: the times are the answer's */
        r->ttft_s = r->latency_s = cli_seconds() - r->start_s;
    }
    c->n_done++;
    c->n_active--;
    if (c->job->progress) cli_progress(NULL, "requests", c->n_done, c->job->n);
    const bool whole = k->wire.phase == WIRE_DONE && k->at_out == k->out.n;
    (void)event_del(k->timer);
    (void)event_del(k->writable);
    if (whole && c->t.keep_alive && !k->wire.close) {
        k->idle = true;
        k->next = c->idle;
        c->idle = k;
    } else {
        conn_close(k);
    }
    if (c->n_done == c->job->n)
        (void)event_base_loopbreak(c->base);
    else
        start(c);
}

/* A connection that was idle may have been closed by the server just now: then the request,
 * of which the server has read nothing, is sent again on a new one. */
static bool try_again(conn *k);

static void broken(conn *k, int e)
{
    char why[128];
    const bool begun = k->got;
    if (!begun && k->used && try_again(k)) return;
    (void)snprintf(why, sizeof why, "%s: %s",
                   begun           ? "the answer broke off"
                   : k->connecting ? "cannot connect to the server (--base-url, --port)"
                                   : "no answer",
                   e ? strerror(e) : "the server closed the connection");
    finish(k, begun ? BENCH_CUT : BENCH_CONNECT, why);
}

/* ---- answers -------------------------------------------------------------- */

static size_t count_of(const json_t *j, const char *key)
{
    const json_int_t v = json_integer_value(json_object_get(j, key));
    return v > 0 ? (size_t)v : 0;
}

static void take_usage(bench_rec *r, const char *data, size_t n)
{
    json_t *j = json_loadb(data, n, 0, NULL);
    const json_t *usage = json_object_get(j, "usage");
    r->n_prompt = count_of(usage, "prompt_tokens");
    r->n_out = count_of(usage, "completion_tokens");
    r->n_cached = count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    json_decref(j);
}

/* Adds the text of a chunk to r->text. */
static void take_text(bench_rec *r, const char *data, size_t n)
{
    json_t *j = json_loadb(data, n, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(j, "choices"), 0);
    const json_t *text = json_object_get(choice, "text");
    if (!text) text = json_object_get(json_object_get(choice, "delta"), "content");
    const size_t have = r->text ? strlen(r->text) : 0, more = json_string_length(text);
    if (json_is_string(text) && more) {
        char *p = realloc(r->text, have + more + 1);
        if (p) {
            memcpy(p + have, json_string_value(text), more + 1);
            r->text = p;
        }
    }
    json_decref(j);
}

static void on_event(void *ctx, const char *data, size_t n)
{
    conn *k = ctx;
    if (k->rec->outcome != BENCH_PENDING) return;
    switch (bench_event_kind(data, n)) {
    case EVENT_TOKEN:
        if (!bench_rec_token(k->rec, k->now_s)) no_memory(k->c);
        if (k->c->job->keep_text) take_text(k->rec, data, n);
        break;
    case EVENT_USAGE: take_usage(k->rec, data, n); break;
    case EVENT_DONE: k->done = true; break;
    case EVENT_ERROR:
        k->rec->outcome = BENCH_STREAM; /* `finish` comes with the end of the answer */
        bench_rec_error(k->rec, data, n);
        break;
    case EVENT_OTHER: break;
    }
}

/* The answer is whole. */
static void answered(conn *k)
{
    const bench_wire *w = &k->wire;
    bench_rec *r = k->rec;
    if (!k->c->job->body && w->body.p) { /* bench_fetch */
        k->c->answer = strdup(w->body.p);
        finish(k, BENCH_OK, NULL);
    } else if (!k->c->job->body) {
        finish(k, BENCH_OK, NULL);
    } else if (w->status != 200) {
        if (w->body.n) bench_rec_error(r, w->body.p, w->body.n);
        finish(k, w->status == 503 ? BENCH_REFUSED : BENCH_STATUS, NULL);
    } else if (r->outcome == BENCH_STREAM) {
        finish(k, BENCH_STREAM, NULL);
    } else if (!w->events) {
        finish(k, BENCH_MALFORMED, "expected a stream of events");
    } else if (!k->done) {
        finish(k, BENCH_CUT, "the stream ended without [DONE]");
    } else if (r->ttft_s == 0) {
        finish(k, BENCH_MALFORMED, "a stream without a token");
    } else {
        if (r->n_out == 0) r->n_out = r->n_itl + 1; /* no usage came */
        finish(k, BENCH_OK, NULL);
    }
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    conn *k = ctx;
    bench_client *c = k->c;
    (void)what;
    const ssize_t n = read(fd, c->buffer, READ_BYTES);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (k->idle) { /* the server has closed it, or speaks unasked */
        conn_close(k);
        return;
    }
    if (n <= 0) {
        const int e = n < 0 ? errno : 0;
        if (n == 0) bench_wire_eof(&k->wire);
        if (k->wire.phase == WIRE_DONE)
            answered(k);
        else
            broken(k, e);
        return;
    }
    k->got = true;
    k->now_s = cli_seconds();
    const size_t used = bench_wire_feed(&k->wire, c->buffer, (size_t)n, on_event, k);
    if (k->rec->n_itl + 1 >= k->hang_up_at && k->rec->ttft_s > 0 && k->wire.phase != WIRE_DONE) {
        k->rec->outcome = BENCH_PENDING;
        finish(k, BENCH_HUNG_UP, NULL);
    } else if (k->wire.phase == WIRE_BAD) {
        finish(k, BENCH_MALFORMED, k->wire.why);
    } else if (k->wire.phase == WIRE_DONE) {
        if (used < (size_t)n) k->wire.close = true; /* something behind the answer */
        answered(k);
    }
}

/* ---- requests ------------------------------------------------------------- */

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
    conn *k = ctx;
    (void)what;
    if (k->connecting) {
        int e = 0;
        socklen_t n = sizeof e;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) != 0) e = errno;
        if (e) {
            broken(k, e);
            return;
        }
        k->connecting = false;
    }
    while (k->at_out < k->out.n) {
        const ssize_t n = send(fd, k->out.p + k->at_out, k->out.n - k->at_out, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return; /* stays watched */
        if (n < 0) break;                     /* the answer, if any, is read all the same */
        k->at_out += (size_t)n;
    }
    (void)event_del(k->writable);
}

static void arm_timer(conn *k)
{
    const double at = k->leave_s < k->deadline_s ? k->leave_s : k->deadline_s;
    const struct timeval tv = timeval_of(at - cli_seconds());
    (void)event_add(k->timer, &tv);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
    conn *k = ctx;
    (void)fd;
    (void)what;
    const double now = cli_seconds();
    k->rec->outcome = BENCH_PENDING;
    if (now >= k->deadline_s)
        finish(k, BENCH_TIMEOUT, "timeout");
    else if (now >= k->leave_s)
        finish(k, BENCH_HUNG_UP, NULL);
    else
        arm_timer(k);
}

/* Watches a connection whose request is in k->out. */
static void go(conn *k)
{
    (void)event_add(k->readable, NULL);
    (void)event_add(k->writable, NULL);
    arm_timer(k);
    if (!k->connecting) on_writable(k->fd, EV_WRITE, k); /* mostly it can be written at once */
}

/* The time and the token after which client i leaves. */
static void choose_hang_up(conn *k, const bench_job *job)
{
    uint64_t x = (job->seed + 1) * 0x9e3779b97f4a7c15u ^ (k->i + 1) * 0xda942042e4dd58b5u;
    double u[3];
    k->hang_up_at = SIZE_MAX;
    k->leave_s = k->deadline_s;
    if (job->disconnect_rate <= 0) return;
    for (size_t i = 0; i < 3; i++) {
        x += 0x9e3779b97f4a7c15u;
        uint64_t y = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        y = (y ^ (y >> 27)) * 0x94d049bb133111ebu;
        u[i] = (double)((y ^ (y >> 31)) >> 11) * 0x1p-53;
    }
    if (u[0] >= job->disconnect_rate) return;
    k->hang_up_at = 1 + (size_t)(u[1] * 100);
    k->leave_s = k->rec->start_s + 2 * u[2] * u[2]; /* early ones often: queued, in the prompt */
}

static void fill(conn *k, const bench_job *job)
{
    bench_buf *b = &k->out;
    bench_buf body = { 0 };
    b->n = k->at_out = 0;
    job->body(job->ctx, k->i, &body);
    bench_buf_str(b, "POST ");
    bench_buf_str(b, job->path);
    bench_buf_str(b, " HTTP/1.1\r\nHost: ");
    bench_buf_str(b, k->c->t.uds ? "localhost" : k->c->t.host);
    bench_buf_str(b, "\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n");
    bench_buf_str(b, k->c->t.headers);
    if (job->more_headers) job->more_headers(job->ctx, k->i, b);
    if (!k->c->t.keep_alive) bench_buf_str(b, "Connection: close\r\n");
    bench_buf_str(b, "Content-Length: ");
    bench_buf_u64(b, body.n);
    bench_buf_str(b, "\r\n\r\n");
    bench_buf_add(b, body.p, body.n);
    if (body.failed || b->failed) no_memory(k->c);
    bench_buf_deinit(&body);
}

/* A connection for the next request: an idle one or a new one; NULL and errno. */
static conn *take(bench_client *c)
{
    conn *k = c->idle;
    if (k) {
        c->idle = k->next;
        k->idle = false;
        k->used = true;
        k->got = k->done = false;
        bench_wire_reset(&k->wire);
        return k;
    }
    k = conn_open(c);
    if (!k) return NULL;
    const int e = conn_connect(k);
    if (e == 0) {
        c->stats.n_connect++;
        return k;
    }
    conn_close(k);
    errno = e;
    return NULL;
}

static bool try_again(conn *k)
{
    bench_client *c = k->c;
    conn *fresh = conn_open(c);
    if (!fresh || conn_connect(fresh) != 0) {
        if (fresh) conn_close(fresh);
        return false;
    }
    c->stats.n_connect++;
    c->stats.n_again++;
    fresh->i = k->i;
    fresh->rec = k->rec;
    fresh->hang_up_at = k->hang_up_at;
    fresh->leave_s = k->leave_s;
    fresh->deadline_s = k->deadline_s;
    fresh->out = k->out;
    k->out = (bench_buf){ 0 };
    conn_close(k);
    go(fresh);
    return true;
}

/* Sends request n_sent; false: not now. */
static bool send_next(bench_client *c)
{
    const bench_job *job = c->job;
    bench_rec *r = &c->rec[c->n_sent];
    conn *k = take(c);
    if (!k && errno == EAGAIN) return false;
    const size_t i = c->n_sent++;
    r->start_s = cli_seconds();
    if (!k) {
        const char *why = strerror(errno);
        r->outcome = BENCH_CONNECT;
        bench_rec_error(r, why, strlen(why));
        c->n_done++;
        if (c->n_done == job->n) (void)event_base_loopbreak(c->base);
        return true;
    }
    c->n_active++;
    k->i = i;
    k->rec = r;
    k->deadline_s = r->start_s + job->timeout_s;
    choose_hang_up(k, job);
    if (job->body) {
        fill(k, job);
    } else { /* bench_fetch */
        k->out.n = k->at_out = 0;
        bench_buf_add(&k->out, c->fetch.p, c->fetch.n);
    }
    go(k);
    return true;
}

static void pace_in(bench_client *c, double s)
{
    const struct timeval tv = timeval_of(s);
    (void)event_add(c->pace, &tv);
}

/* Sends what is due, some at a time so that answers are read in between. */
static void start(bench_client *c)
{
    const bench_job *job = c->job;
    if (c->n_sent == job->n) return;
    if (job->max_concurrency && c->n_active >= job->max_concurrency) return; /* finish() calls */
    const double due = c->begin_s + (job->at_s ? job->at_s[c->n_sent] : 0) - cli_seconds();
    pace_in(c, due);
}

static void on_pace(evutil_socket_t fd, short what, void *ctx)
{
    bench_client *c = ctx;
    const bench_job *job = c->job;
    (void)fd;
    (void)what;
    for (size_t k = 0; k < START_AT_ONCE && c->n_sent < job->n; k++) {
        if (job->max_concurrency && c->n_active >= job->max_concurrency) return;
        if (job->at_s && c->begin_s + job->at_s[c->n_sent] > cli_seconds()) break;
        if (!send_next(c)) {
            pace_in(c, RETRY_S);
            return;
        }
    }
    start(c);
}

/* ---- runs ----------------------------------------------------------------- */

/* As many open files as the system lets us have. */
static int allow_files(size_t n)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) return CLI_OK;
    l.rlim_cur = l.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &l);
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < n + SPARE_FILES)
        return cli_failed(
            "%zu requests at once need as many open files, and %llu are allowed: raise "
            "`ulimit -n`, or set --max-concurrency",
            n, (unsigned long long)l.rlim_cur);
    return CLI_OK;
}

static double cpu_seconds(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void run_job(bench_client *c, const bench_job *job, bench_rec *rec)
{
    c->job = job;
    c->rec = rec;
    c->n_sent = c->n_active = c->n_done = 0;
    c->stats = (bench_run){ 0 };
    const double cpu = cpu_seconds();
    c->begin_s = cli_seconds();
    start(c);
    while (c->n_done < job->n && !c->failed)
        if (event_base_loop(c->base, EVLOOP_NO_EXIT_ON_EMPTY) < 0) c->failed = true;
    c->stats.duration_s = cli_seconds() - c->begin_s;
    c->stats.cpu_s = cpu_seconds() - cpu;
    (void)event_del(c->pace);
    c->job = NULL;
}

int bench_client_run(bench_client *c, const bench_job *job, bench_rec *rec, bench_run *run)
{
    const size_t at_once =
        job->max_concurrency && job->max_concurrency < job->n ? job->max_concurrency : job->n;
    const int code = allow_files(at_once < 60000 || job->max_concurrency ? at_once : 60000);
    if (code != CLI_OK || job->n == 0) return code;
    run_job(c, job, rec);
    if (job->progress) cli_progress_end();
    *run = c->stats;
    return c->failed ? cli_failed("no memory for the requests") : CLI_OK;
}

int bench_fetch(bench_client *c, const char *method, const char *path, const char *body,
                double timeout_s, bool quiet, int *status, char **answer)
{
    const bench_job job = { .path = path, .n = 1, .timeout_s = timeout_s };
    bench_rec rec = { 0 };
    c->answer = NULL;
    c->fetch.n = 0;
    bench_buf_str(&c->fetch, method);
    bench_buf_str(&c->fetch, " ");
    bench_buf_str(&c->fetch, path);
    bench_buf_str(&c->fetch, " HTTP/1.1\r\nHost: ");
    bench_buf_str(&c->fetch, c->t.uds ? "localhost" : c->t.host);
    bench_buf_str(&c->fetch, "\r\nAccept: application/json\r\n");
    bench_buf_str(&c->fetch, c->t.headers);
    if (body) {
        bench_buf_str(&c->fetch, "Content-Type: application/json\r\nContent-Length: ");
        bench_buf_u64(&c->fetch, strlen(body));
        bench_buf_str(&c->fetch, "\r\n");
    }
    bench_buf_str(&c->fetch, "\r\n");
    if (body) bench_buf_str(&c->fetch, body);
    run_job(c, &job, &rec);
    *status = rec.status;
    int code = rec.outcome == BENCH_OK && !c->failed ? CLI_OK : CLI_FAILED;
    if (code != CLI_OK && !quiet)
        (void)cli_failed("%s %s: %s", method, path, rec.error ? rec.error : "no answer");
    if (code == CLI_OK && !c->answer) c->answer = calloc(1, 1);
    if (code == CLI_OK && !c->answer) code = cli_failed("out of memory");
    if (code == CLI_OK)
        *answer = c->answer;
    else
        free(c->answer);
    c->answer = NULL;
    free(rec.error);
    return code;
}

int bench_client_create(const bench_target *t, bench_client **out)
{
    bench_client *c = calloc(1, sizeof *c);
    if (!c) return cli_failed("out of memory");
    c->t = *t;
    c->buffer = malloc(READ_BYTES);
    c->base = event_base_new();
    c->pace = c->base ? event_new(c->base, -1, 0, on_pace, c) : NULL;
    int code = c->buffer && c->pace ? resolve(c) : cli_failed("out of memory");
    if (code == CLI_OK)
        *out = c;
    else
        bench_client_destroy(c);
    return code;
}

void bench_client_destroy(bench_client *c)
{
    if (!c) return;
    while (c->open) conn_close(c->open);
    if (c->pace) event_free(c->pace);
    if (c->base) event_base_free(c->base);
    bench_buf_deinit(&c->fetch);
    free(c->buffer);
    free(c);
}
