/* http.c - the server: options, the loop, stopping.  See http.h; connections are in http_conn.c.
 *
 * Writing to a broken connection through OpenSSL raises SIGPIPE, and the disposition of signals
 * belongs to the program, not to us: it is blocked for the loop's thread while the loop runs. */
#include "serve/http.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "os/clock.h"
#include "serve/http_internal.h"

enum { TASKS_BESIDE_CONNECTIONS = 1024 };

void nb_http_warn(const nb_http *h, const char *line)
{
    if (h->o.on_warn) h->o.on_warn(h->o.ctx, line);
}

/* ---- options ---- */

/* A copy that lives as long as the server; NULL when out of memory. */
static const char *copy(nb_http *h, const char *s)
{
    if (NB_GROW(h->strings, h->cap_string, h->n_string + 1) != NB_OK) return NULL;
    const size_t n = strlen(s) + 1;
    char *p = malloc(n);
    if (!p) return NULL;
    memcpy(p, s, n);
    h->strings[h->n_string++] = p;
    return p;
}

static bool copy_list(nb_http *h, const char *const **list, size_t n)
{
    const char *const *from = *list;
    const char **to = calloc(n + 1, sizeof *to);
    *list = to; /* ours from here on, freed in free_all */
    for (size_t i = 0; i < n && to; i++)
        if (!(to[i] = copy(h, from[i]))) return false;
    return to != NULL;
}

static bool copy_strings(nb_http *h)
{
    nb_http_options *o = &h->o;
    const char **one[] = { &o->host,  &o->uds, &o->tls_cert, &o->tls_key, &o->tls_key_password,
                           &o->tls_ca };
    const bool origins = copy_list(h, &o->cors_origin, o->n_cors_origin);
    if (!o->host) o->host = "127.0.0.1";
    for (size_t i = 0; i < NB_COUNT(one); i++)
        if (*one[i] && !(*one[i] = copy(h, *one[i]))) return false;
    return origins;
}

static nb_status set_times(nb_http_options *o, nb_error *err)
{
    double *const time[] = { &o->read_timeout_s, &o->idle_timeout_s, &o->write_timeout_s };
    static const double standard[] = { 30, 120, 60 };
    for (size_t i = 0; i < NB_COUNT(time); i++) {
        if (*time[i] == 0) *time[i] = standard[i];
        if (!(*time[i] > 0 && *time[i] < 1e9))
            return nb_fail(err, NB_ERR_ARG, "a timeout of the server is %g s, expected more than 0",
                           *time[i]);
    }
    return NB_OK;
}

static nb_status set_options(nb_http *h, const nb_http_options *given, nb_error *err)
{
    nb_http_options *o = &h->o;
    *o = *given;
    o->api_key = NULL; /* only their hashes are kept */
    o->n_api_key = 0;
    if (!copy_strings(h)) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the server");
    if (o->max_header_bytes == 0) o->max_header_bytes = 32 << 10;
    if (o->max_body_bytes == 0) o->max_body_bytes = 16 << 20;
    if (o->max_total_body_bytes == 0) o->max_total_body_bytes = (size_t)1 << 30;
    if (o->max_connections == 0) o->max_connections = 4096;
    if (o->max_stream_bytes == 0) o->max_stream_bytes = 1 << 20;
    return set_times(o, err);
}

/* ---- events ---- */

static void hard_stop(nb_http *h)
{
    nb_http_listen_close(h);
    nb_http_conn_drop_all(h);
    (void)event_base_loopbreak(h->base);
}

void nb_http_check_end(nb_http *h)
{
    if (h->draining && h->n_conn == 0) (void)event_base_loopbreak(h->base);
}

static void look_at_stops(nb_http *h)
{
    const int n = atomic_load_explicit(&h->n_stop, memory_order_relaxed);
    if (n == h->seen_stop) return;
    h->seen_stop = n;
    if (n > 1) {
        h->draining = true;
        hard_stop(h);
        return;
    }
    h->draining = true;
    h->drain_ns = nb_clock_ns() + (uint64_t)(h->drain_s * 1e9);
    if (h->o.on_drain) h->o.on_drain(h->o.ctx);
    nb_http_listen_close(h);
    nb_http_conn_drain(h);
    nb_http_check_end(h);
}

static void wake(const nb_http *h)
{
    const int e = errno; /* it may be a signal handler's caller that looks at it */
    const ssize_t n = write(h->wake_fd[1], "", 1);
    (void)n; /* full: the loop will wake anyway */
    errno = e;
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
    nb_http *h = ctx;
    char sink[256];
    (void)what;
    while (read(fd, sink, sizeof sink) == (ssize_t)sizeof sink) continue;
    look_at_stops(h);
    if (nb_http_tasks_run(h->tasks)) wake(h);
}

/* One line when it begins, then at most one for every UNANSWERED_LINE_S seconds. */
static void tell_unanswered(nb_http *h)
{
    enum { UNANSWERED_LINE_S = 10 };
    const uint64_t now = nb_clock_ns(), n = h->n_unanswered - h->n_unanswered_told;
    char line[200];
    if (n == 0 || (h->n_unanswered_told &&
                   now - h->unanswered_told_ns < (uint64_t)UNANSWERED_LINE_S * 1000000000))
        return;
    (void)snprintf(line, sizeof line,
                   "closed %llu connections without an answer: %zu are open, the limit is %zu "
                   "(--max-connections)",
                   (unsigned long long)n, h->n_conn, h->o.max_connections);
    h->n_unanswered_told = h->n_unanswered;
    h->unanswered_told_ns = now;
    nb_http_warn(h, line);
}

static void on_sweep(evutil_socket_t fd, short what, void *ctx)
{
    nb_http *h = ctx;
    (void)fd;
    (void)what;
    nb_http_conn_sweep(h);
    tell_unanswered(h);
    if (h->draining && nb_clock_ns() > h->drain_ns) hard_stop(h);
}

static void on_end_of_round(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    nb_http_conn_end_round(ctx);
}

static void on_again(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    nb_http_conn_run_again(ctx);
}

static struct timeval timeval_of(double s)
{
    struct timeval t = { .tv_sec = (time_t)s };
    t.tv_usec = (suseconds_t)((s - floor(s)) * 1e6);
    return t;
}

static bool make_pipe(nb_http *h)
{
    if (pipe(h->wake_fd) != 0) {
        h->wake_fd[0] = h->wake_fd[1] = -1;
        return false;
    }
    for (int i = 0; i < 2; i++)
        if (evutil_make_socket_nonblocking(h->wake_fd[i]) != 0 ||
            evutil_make_socket_closeonexec(h->wake_fd[i]) != 0)
            return false;
    return true;
}

static struct event_base *make_base(void)
{
    struct event_config *cfg = event_config_new();
    struct event_base *base = NULL;
    if (cfg && event_config_require_features(cfg, EV_FEATURE_ET) == 0 &&
        event_config_set_flag(cfg, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV) == 0)
        base = event_base_new_with_config(cfg);
    if (cfg) event_config_free(cfg);
    return base;
}

static nb_status make_events(nb_http *h, nb_error *err)
{
    const nb_http_options *o = &h->o;
    h->base = make_base();
    if (!h->base || !make_pipe(h))
        return nb_fail(err, NB_ERR_IO, "cannot make an event loop: %s", strerror(errno));
    h->tasks = nb_http_tasks_create(o->max_connections + TASKS_BESIDE_CONNECTIONS);
    h->wake = event_new(h->base, h->wake_fd[0], EV_READ | EV_PERSIST, on_wake, h);
    h->sweep = event_new(h->base, -1, EV_PERSIST, on_sweep, h);
    h->end_of_round = event_new(h->base, -1, EV_PERSIST, on_end_of_round, h);
    h->again_ev = evtimer_new(h->base, on_again, h);
    /* Times are kept to a quarter of themselves. */
    const double shortest = fmin(fmin(o->read_timeout_s, o->idle_timeout_s), o->write_timeout_s);
    const struct timeval tick = timeval_of(fmax(0.01, fmin(0.25, shortest / 4)));
    if (!h->tasks || !h->wake || !h->sweep || !h->end_of_round || !h->again_ev ||
        event_add(h->wake, NULL) != 0 || event_add(h->sweep, &tick) != 0)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the event loop");
    return NB_OK;
}

/* ---- life ---- */

nb_status nb_http_create(const nb_http_options *o, const nb_http_route *route, size_t n_route,
                         nb_http **out, nb_error *err)
{
    nb_status st;
    nb_http *h = calloc(1, sizeof *h);
    if (!h) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the server");
    h->wake_fd[0] = h->wake_fd[1] = -1;
    h->drain_s = 30;
    h->route = route;
    h->n_route = n_route;
    nb_http_ring_init(&h->all, NULL);
    nb_http_ring_init(&h->dirty, NULL);
    nb_http_ring_init(&h->again, NULL);
    NB_TRY_OUT(set_options(h, o, err));
    NB_TRY_OUT(nb_http_set_keys(h, o->api_key, o->n_api_key, err));
    if (h->o.tls_cert || h->o.tls_key || h->o.tls_ca)
        NB_TRY_OUT(nb_http_tls_create(&h->o, &h->tls, err));
    NB_TRY_OUT(make_events(h, err));
    NB_TRY_OUT(nb_http_listen_open(h, err));
    NB_TRY_OUT(nb_http_listen_start(h, err));
out:
    if (st == NB_OK)
        *out = h;
    else
        nb_http_destroy(h);
    return st;
}

static void free_event(struct event *e)
{
    if (e) event_free(e);
}

static void free_all(nb_http *h)
{
    while (h->timers) {
        nb_http_timer *t = h->timers;
        h->timers = t->next;
        free_event(t->ev);
        free(t);
    }
    free_event(h->wake);
    free_event(h->sweep);
    free_event(h->end_of_round);
    free_event(h->again_ev);
    if (h->base) event_base_free(h->base);
    for (int i = 0; i < 2; i++)
        if (h->wake_fd[i] >= 0) (void)close(h->wake_fd[i]);
    SSL_CTX_free(h->tls);
    nb_http_tasks_destroy(h->tasks);
    for (size_t i = 0; i < h->n_string; i++) {
        OPENSSL_cleanse(h->strings[i], strlen(h->strings[i])); /* a password among them */
        free(h->strings[i]);
    }
    free(h->strings);
    free(h->key_hash);
    free((void *)(uintptr_t)h->o.cors_origin);
    free(h);
}

nb_status nb_http_reload_tls(nb_http *h, nb_error *err)
{
    SSL_CTX *tls = NULL;
    if (!h->tls) return NB_OK;
    NB_TRY(nb_http_tls_create(&h->o, &tls, err));
    SSL_CTX_free(h->tls); /* connections hold it as long as they need it */
    h->tls = tls;
    return NB_OK;
}

void nb_http_destroy(nb_http *h)
{
    if (!h) return;
    if (h->tasks) (void)nb_http_tasks_run(h->tasks);
    nb_http_listen_close(h);
    nb_http_conn_drop_all(h);
    free_all(h);
}

/* Takes a SIGPIPE that came while it was blocked. */
static void swallow_sigpipe(const sigset_t *pipe_only)
{
    const struct timespec no_wait = { 0 };
    while (sigtimedwait(pipe_only, NULL, &no_wait) < 0 && errno == EINTR) continue;
}

nb_status nb_http_run(nb_http *h, nb_error *err)
{
    sigset_t pipe_only, before;
    (void)sigemptyset(&pipe_only);
    (void)sigaddset(&pipe_only, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    h->running = true;
    wake(h); /* tasks and stops from before */
    const int r = event_base_loop(h->base, EVLOOP_NO_EXIT_ON_EMPTY);
    h->running = false;
    nb_http_listen_close(h);
    nb_http_conn_drop_all(h);
    (void)nb_http_tasks_run(h->tasks); /* what the ends of exchanges have set off */
    if (!sigismember(&before, SIGPIPE)) {
        swallow_sigpipe(&pipe_only);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return r < 0 ? nb_fail(err, NB_ERR_INTERNAL, "the event loop failed: %s", strerror(errno))
                 : NB_OK;
}

void nb_http_stop(nb_http *h)
{
    /* Relaxed: the byte in the pipe orders it before the look in look_at_stops. */
    (void)atomic_fetch_add_explicit(&h->n_stop, 1, memory_order_relaxed);
    wake(h);
}

void nb_http_set_drain(nb_http *h, double drain_s)
{
    h->drain_s = drain_s > 0 ? fmin(drain_s, 1e9) : 0;
}

bool nb_http_draining(const nb_http *h)
{
    return h->draining;
}

uint16_t nb_http_port(const nb_http *h)
{
    return h->port;
}

size_t nb_http_n_connections(const nb_http *h)
{
    return h->n_conn;
}

size_t nb_http_n_exchanges(const nb_http *h)
{
    return h->n_ex;
}

uint64_t nb_http_n_unanswered(const nb_http *h)
{
    return h->n_unanswered;
}

void nb_http_post(nb_http *h, nb_http_task_fn *fn, void *ctx)
{
    if (nb_http_tasks_add(h->tasks, fn, ctx)) wake(h);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
    const nb_http_timer *t = ctx;
    (void)fd;
    (void)what;
    t->fn(t->ctx);
}

nb_status nb_http_every(nb_http *h, double s, nb_http_task_fn *fn, void *ctx)
{
    if (!(s >= 0.001 && s < 1e9)) return NB_ERR_ARG;
    const struct timeval tick = timeval_of(s);
    nb_http_timer *t = calloc(1, sizeof *t);
    if (!t) return NB_ERR_NOMEM;
    *t = (nb_http_timer){ .next = h->timers, .fn = fn, .ctx = ctx };
    t->ev = event_new(h->base, -1, EV_PERSIST, on_timer, t);
    if (!t->ev || event_add(t->ev, &tick) != 0) {
        free_event(t->ev);
        free(t);
        return NB_ERR_NOMEM;
    }
    h->timers = t;
    return NB_OK;
}
