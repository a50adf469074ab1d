/* http_conn.c - one connection: the states a request goes through.
 *
 * The descriptor is registered once, edge-triggered, for reading, writing and the peer's close; what
 * the system last said is kept in can_read and can_write, and run() takes steps until a step has
 * to wait.  So a client that leaves is noticed in every state, also while its answer is
 * computed and nothing is written: reading goes on then, for the close comes behind whatever the
 * client has sent ahead (not reading would close the window before it gets here).  evhttp stops
 * reading there, and hears of the close at its next write: docs/decisions/011-http.md.  What is sent
 * ahead may be as much as one request; a client that sends more is dropped.
 *
 * Requests of a connection are served one after the other: the next is looked at when the answer
 * before it has been sent, so a client cannot pile up answers. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/clock.h"
#include "serve/http_internal.h"

enum {
    STEPS_PER_RUN = 64,
    WRITES_PER_STEP = 16,
    DISCARD_BYTES = 64 * 1024, /* a refused request's body up to here is read, and the connection
                                    lives on */
    LINGER_NS = 1000 * 1000 * 1000,
    MAX_BLANK_LINES = 16, /* before a request line (RFC 9112, 2.2) */
};

typedef enum step { WAIT, ON, GONE } step; /* wait for an event; go on; drop the connection */

static size_t n_input(const nb_http_conn *c)
{
    return c->in.n_bytes - c->in_off;
}

static uint64_t ns_of(double s)
{
    return (uint64_t)(s * 1e9);
}

/* Gives memory back, or moves what is left to the front when it is little. */
static void compact(nb_http_conn *c)
{
    if (n_input(c) == 0) {
        nb_buf_deinit(&c->in);
        c->in = (nb_buf){ 0 };
        c->in_off = 0;
        c->h->body_bytes -= c->ahead_bytes;
        c->ahead_bytes = 0;
    } else if (c->in_off > c->in.n_bytes / 2) {
        memmove(c->in.p, c->in.p + c->in_off, n_input(c));
        c->in.n_bytes -= c->in_off;
        c->in_off = 0;
    }
}

/* ---- steps ---- */

/* More of later requests, while one is in work.  False: it is too much. */
static bool count_ahead(nb_http_conn *c, size_t n)
{
    nb_http *h = c->h;
    const size_t have = n_input(c) + n, body = h->o.max_body_bytes;
    if (have > body && have - body > h->o.max_header_bytes) return false;
    if (n > h->o.max_total_body_bytes - h->body_bytes) return false;
    h->body_bytes += n;
    c->ahead_bytes += n;
    return true;
}

static step read_more(nb_http_conn *c)
{
    size_t n = 0;
    if (c->eof) return GONE;
    if (!c->can_read) return WAIT;
    switch (nb_http_io_read(c, c->h->scratch, sizeof c->h->scratch, &n)) {
    case NB_HTTP_IO_OK: break;
    case NB_HTTP_IO_AGAIN: return WAIT;
    default: c->eof = true; return GONE;
    }
    if (c->state == NB_HTTP_C_HEAD && n_input(c) == 0) c->since_ns = nb_clock_ns();
    if (c->state == NB_HTTP_C_BUSY && !count_ahead(c, n)) return GONE;
    return nb_buf_add(&c->in, c->h->scratch, n) == NB_OK ? ON : GONE;
}

/* Sends what there is: ON when all is sent. */
static step flush_out(nb_http_conn *c)
{
    for (int i = 0; evbuffer_get_length(c->out) > 0; i++) {
        size_t n = 0;
        if (!c->can_write) return WAIT;
        if (i == WRITES_PER_STEP) {
            nb_http_ring_append(&c->h->again, &c->again);
            return WAIT;
        }
        const nb_http_io io = nb_http_io_write(c, &n);
        if (n) c->progress_ns = nb_clock_ns();
        if (io == NB_HTTP_IO_AGAIN) return WAIT;
        if (io != NB_HTTP_IO_OK) return GONE;
    }
    return ON;
}

/* Refuses now, with the rest of the request still to come: the last answer of this connection. */
static step refuse_now(nb_http_conn *c, int status, const char *why)
{
    if (!c->ex) c->ex = nb_http_ex_create(c, NULL, 0, NULL);
    if (!c->ex) return GONE;
    c->close_after = c->linger = true;
    nb_http_ex_refuse(c->ex, status, why);
    return ON;
}

static step dispatch(nb_http_conn *c)
{
    nb_http_ex *ex = c->ex;
    c->state = NB_HTTP_C_BUSY;
    if (!ex->refuse_status && c->h->draining)
        return refuse_now(c, 503, "the server is shutting down");
    if (ex->refuse_status) {
        nb_http_ex_refuse(ex, ex->refuse_status, ex->refusal ? ex->refusal : "");
        return ON;
    }
    ex->dispatched = true;
    c->h->n_ex++;
    ex->route->fn(ex, c->h->o.ctx);
    return ON;
}

/* The head is parsed: who asks for what, and does a body come? */
static step begin_request(nb_http_conn *c, const nb_http_head *head)
{
    nb_http_ex *ex = c->ex;
    const bool has_body = head->chunked || head->length > 0;
    if (!ex->refuse_status) ex->refuse_status = nb_http_guard_admit(ex, &ex->refusal);
    if (!has_body) return dispatch(c);
    if (!ex->refuse_status) ex->refuse_status = nb_http_guard_coding(ex, &ex->refusal);
    if (!ex->refuse_status && head->length > c->h->o.max_body_bytes)
        return refuse_now(c, 413, "the request's body is larger than this server accepts");
    if (ex->refuse_status && (head->expect_continue || head->length > DISCARD_BYTES))
        return refuse_now(c, ex->refuse_status, ex->refusal);
    c->state = NB_HTTP_C_BODY;
    if (head->expect_continue && n_input(c) == 0) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        c->progress_ns = nb_clock_ns();
        if (evbuffer_add(c->out, go_on, sizeof go_on - 1) != 0) return GONE;
    }
    return ON;
}

/* WAIT: the head is not complete. */
static step take_head(nb_http_conn *c)
{
    const char *why = "";
    const char *p = c->in.p + c->in_off;
    const size_t n = n_input(c), limit = c->h->o.max_header_bytes;
    size_t n_head = 0;
    if (c->n_blank < MAX_BLANK_LINES && p[0] == '\r' && (n == 1 || p[1] == '\n')) {
        if (n == 1) return WAIT;
        c->in_off += 2;
        c->n_blank++;
        compact(c);
        return ON;
    }
    int status = nb_http_head_end(p, n, &c->scanned, &n_head, &why);
    if (status) return refuse_now(c, status, why);
    if (n_head > limit || (n_head == 0 && n >= limit))
        return refuse_now(c, 431, "the request's head is larger than this server accepts");
    if (n_head == 0) return WAIT;
    nb_http_head head;
    status = nb_http_head_parse(p, n_head, &head, &why);
    if (status) return refuse_now(c, status, why);
    c->ex = nb_http_ex_create(c, p, n_head, &head);
    if (!c->ex) return GONE;
    c->in_off += n_head;
    c->scanned = 0;
    c->n_blank = 0;
    compact(c); /* the views of `head` are dead from here on, its numbers are not */
    return begin_request(c, &head);
}

static step head_step(nb_http_conn *c)
{
    if (n_input(c) > 0) {
        const step s = take_head(c);
        if (s != WAIT) return s;
    }
    return read_more(c);
}

/* One piece of the body. 0, or the status of a refusal. */
static int keep(nb_http_conn *c, nb_str piece, const char **why)
{
    nb_http_ex *ex = c->ex;
    nb_http *h = c->h;
    if (ex->refuse_status) {
        ex->n_dropped += piece.n_bytes;
        *why = ex->refusal;
        return ex->n_dropped > DISCARD_BYTES ? ex->refuse_status : 0;
    }
    const uint64_t sure = (uint64_t)ex->body.n_bytes + piece.n_bytes; /* no overflow: memory */
    if (sure > h->o.max_body_bytes || ex->chunks.left_bytes > h->o.max_body_bytes - sure) {
        *why = "the request's body is larger than this server accepts";
        return 413;
    }
    if (piece.n_bytes > h->o.max_total_body_bytes - h->body_bytes) {
        *why = "the bodies of all requests together are larger than this server holds";
        return 503;
    }
    if (nb_buf_add(&ex->body, piece.p, piece.n_bytes) != NB_OK) {
        *why = "out of memory for the request's body";
        return 503;
    }
    h->body_bytes += piece.n_bytes;
    ex->counted_bytes += piece.n_bytes;
    return 0;
}

/* Takes what is there of the body; *done: all of it. 0, or the status of a refusal. */
static int take_body(nb_http_conn *c, bool *done, const char **why)
{
    nb_http_ex *ex = c->ex;
    int status = 0;
    while (n_input(c) > 0 && status == 0 && !*done) {
        nb_str piece = { c->in.p + c->in_off, n_input(c) };
        size_t used = 0;
        if (ex->chunked) {
            status = nb_http_chunks_next(&ex->chunks, piece.p, piece.n_bytes, &used, &piece, why);
            *done = status == 0 && ex->chunks.done;
        } else {
            if (piece.n_bytes > ex->left_bytes) piece.n_bytes = (size_t)ex->left_bytes;
            used = piece.n_bytes;
            ex->left_bytes -= used;
            *done = ex->left_bytes == 0;
        }
        if (status == 0) status = keep(c, piece, why);
        c->in_off += used;
    }
    return status;
}

static step body_step(nb_http_conn *c)
{
    const char *why = "";
    bool done = false;
    if (flush_out(c) == GONE) return GONE; /* 100 Continue */
    const int status = take_body(c, &done, &why);
    compact(c);
    if (status) return refuse_now(c, status, why);
    return done ? dispatch(c) : read_more(c);
}

static step busy_step(nb_http_conn *c)
{
    if (flush_out(c) == GONE) return GONE;
    return read_more(c);
}

static step flush_step(nb_http_conn *c)
{
    const step s = flush_out(c);
    if (s != ON) return s;
    c->since_ns = nb_clock_ns();
    if (!c->close_after && !c->h->draining) {
        c->state = NB_HTTP_C_HEAD;
        return ON;
    }
    const bool more = c->linger || c->h->draining || n_input(c) > 0;
    nb_http_io_shutdown(c);
    if (!more) return GONE;
    c->in_off = c->in.n_bytes;
    compact(c);
    c->state = NB_HTTP_C_LINGER;
    return ON;
}

static step linger_step(nb_http_conn *c)
{
    size_t n = 0;
    if (!c->can_read) return WAIT;
    const nb_http_io io = nb_http_io_read_raw(c, c->h->scratch, sizeof c->h->scratch, &n);
    return io == NB_HTTP_IO_OK ? ON : io == NB_HTTP_IO_AGAIN ? WAIT : GONE;
}

static step handshake_step(nb_http_conn *c)
{
    char first = 0;
    if (recv(c->fd, &first, 1, MSG_PEEK) == 1 && first >= 'A' && first <= 'Z') {
        SSL_free(c->ssl); /* not a TLS record: a request without TLS */
        c->ssl = NULL;
        return refuse_now(c, 400, "this port speaks HTTPS");
    }
    const nb_http_io io = nb_http_io_handshake(c);
    if (io == NB_HTTP_IO_AGAIN) return WAIT;
    if (io != NB_HTTP_IO_OK) return GONE;
    c->state = NB_HTTP_C_HEAD;
    c->since_ns = nb_clock_ns();
    return ON;
}

static step take_step(nb_http_conn *c)
{
    switch (c->state) {
    case NB_HTTP_C_HANDSHAKE: return handshake_step(c);
    case NB_HTTP_C_HEAD: return head_step(c);
    case NB_HTTP_C_BODY: return body_step(c);
    case NB_HTTP_C_BUSY: return busy_step(c);
    case NB_HTTP_C_FLUSH: return flush_step(c);
    default: return linger_step(c);
    }
}

/* May free the connection. */
static void run(nb_http_conn *c)
{
    step s = ON;
    c->running = true;
    for (int i = 0; i < STEPS_PER_RUN && s == ON; i++) s = c->doomed ? GONE : take_step(c);
    c->running = false;
    if (s == GONE) {
        nb_http_conn_drop(c);
        return;
    }
    if (s == ON) nb_http_ring_append(&c->h->again, &c->again); /* others have their turn */
    if (!nb_http_ring_empty(&c->h->again)) {
        const struct timeval now = { 0 };
        (void)evtimer_add(c->h->again_ev, &now);
    }
}

/* ---- life ---- */

static void on_event(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    nb_http_conn *c = ctx;
    if (what & EV_READ) c->can_read = true;
    if (what & EV_WRITE) c->can_write = true;
    run(c);
}

static bool prepare(nb_http_conn *c, bool over_limit)
{
    nb_http *h = c->h;
    c->out = evbuffer_new();
    c->ev = event_new(h->base, c->fd, EV_READ | EV_WRITE | EV_ET | EV_PERSIST, on_event, c);
    if (!c->out || !c->ev || event_add(c->ev, NULL) != 0) return false;
    if (h->tls) {
        if (over_limit) {
            h->n_unanswered++;
            return false;
        }
        c->ssl = SSL_new(h->tls);
        c->state = NB_HTTP_C_HANDSHAKE;
        return c->ssl && SSL_set_fd(c->ssl, c->fd) == 1;
    }
    c->state = NB_HTTP_C_HEAD;
    return !over_limit || refuse_now(c, 503, "too many connections") == ON;
}

void nb_http_conn_create(nb_http *h, int fd, const char *peer, bool local, bool over_limit)
{
    nb_http_conn *c = calloc(1, sizeof *c);
    if (!c) {
        (void)close(fd);
        return;
    }
    c->h = h;
    c->fd = fd;
    c->local = local;
    c->can_read = c->can_write = true;
    c->since_ns = nb_clock_ns();
    nb_http_ring_init(&c->all, c);
    nb_http_ring_init(&c->dirty, c);
    nb_http_ring_init(&c->again, c);
    nb_http_ring_append(&h->all, &c->all);
    h->n_conn++;
    const size_t n = strlen(peer);
    memcpy(c->peer, peer, n < sizeof c->peer ? n : sizeof c->peer - 1);
    if (!prepare(c, over_limit)) nb_http_conn_drop(c);
}

void nb_http_conn_drop(nb_http_conn *c)
{
    nb_http *h = c->h;
    if (c->ex) nb_http_ex_gone(c->ex);
    nb_http_ring_remove(&c->all);
    nb_http_ring_remove(&c->dirty);
    nb_http_ring_remove(&c->again);
    if (c->ev) event_free(c->ev);
    SSL_free(c->ssl);
    if (c->out) evbuffer_free(c->out);
    nb_buf_deinit(&c->in);
    h->body_bytes -= c->ahead_bytes;
    (void)close(c->fd);
    free(c);
    h->n_conn--;
    nb_http_check_end(h);
}

void nb_http_conn_touch(nb_http_conn *c)
{
    if (c->running) return;
    nb_http_ring_append(&c->h->dirty, &c->dirty);
    event_active(c->h->end_of_round, EV_TIMEOUT, 0);
}

void nb_http_conn_end_round(nb_http *h)
{
    while (!nb_http_ring_empty(&h->dirty)) {
        nb_http_conn *c = h->dirty.next->c;
        nb_http_ring_remove(&c->dirty);
        run(c);
    }
}

void nb_http_conn_run_again(nb_http *h)
{
    size_t n = 0;
    for (const nb_http_link *l = h->again.next; l != &h->again; l = l->next) n++;
    for (; n > 0 && !nb_http_ring_empty(&h->again); n--) {
        nb_http_conn *c = h->again.next->c;
        nb_http_ring_remove(&c->again);
        run(c);
    }
}

/* True: it has used up its time. */
static bool is_late(nb_http_conn *c, uint64_t now, bool *tell)
{
    const nb_http_options *o = &c->h->o;
    const uint64_t age = now > c->since_ns ? now - c->since_ns : 0;
    const uint64_t stuck = now > c->progress_ns ? now - c->progress_ns : 0;
    *tell = false;
    switch (c->state) {
    case NB_HTTP_C_HANDSHAKE: return age > ns_of(o->read_timeout_s);
    case NB_HTTP_C_HEAD:
        if (n_input(c) == 0) return age > ns_of(o->idle_timeout_s);
        *tell = true;
        return age > ns_of(o->read_timeout_s);
    case NB_HTTP_C_BODY: *tell = true; return age > ns_of(o->read_timeout_s);
    case NB_HTTP_C_LINGER: return age > LINGER_NS;
    default: return evbuffer_get_length(c->out) > 0 && stuck > ns_of(o->write_timeout_s);
    }
}

void nb_http_conn_sweep(nb_http *h)
{
    const uint64_t now = nb_clock_ns();
    nb_http_link *next;
    for (nb_http_link *l = h->all.next; l != &h->all; l = next) {
        nb_http_conn *c = l->c;
        bool tell;
        next = l->next;
        if (!is_late(c, now, &tell)) continue;
        if (tell && refuse_now(c, 408, "the request did not arrive in time") == ON) continue;
        if (c->state == NB_HTTP_C_HEAD) nb_http_io_shutdown(c);
        nb_http_conn_drop(c);
    }
}

void nb_http_conn_drain(nb_http *h)
{
    nb_http_link *next;
    for (nb_http_link *l = h->all.next; l != &h->all; l = next) {
        nb_http_conn *c = l->c;
        next = l->next;
        const bool idle = c->state == NB_HTTP_C_HEAD && n_input(c) == 0;
        if (idle) nb_http_io_shutdown(c);
        if (idle || c->state == NB_HTTP_C_HANDSHAKE) nb_http_conn_drop(c);
    }
}

void nb_http_conn_drop_all(nb_http *h)
{
    while (!nb_http_ring_empty(&h->all)) nb_http_conn_drop(h->all.next->c);
}
