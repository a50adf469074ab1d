/* http_ex.c - exchanges: a request's parts, and its answer.
 *
 * An answer goes into the connection's output and is sent at the end of the loop's round, so several
 * writes of a round are one system call.  What fails for want of memory dooms the
 * connection: half an answer is worse than none. */
#define _GNU_SOURCE /* getrandom */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "os/clock.h"
#include "serve/http_internal.h"

enum { ID_RANDOM_BYTES = 16 };

/* ---- request ---- */

/* The client's id where it can stand in a log and a header, else a random one. */
static void set_id(nb_http_ex *ex)
{
    const nb_str given = nb_http_header(ex, "x-request-id");
    bool sane = given.n_bytes >= 1 && given.n_bytes < NB_HTTP_ID_BYTES;
    for (size_t i = 0; i < given.n_bytes && sane; i++)
        sane = given.p[i] > 0x20 && given.p[i] < 0x7f;
    if (sane) {
        memcpy(ex->id, given.p, given.n_bytes);
        ex->id[given.n_bytes] = 0;
        return;
    }
    unsigned char r[ID_RANDOM_BYTES] = { 0 };
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r) { /* cannot fail for 16 bytes; be unique */
        const uint64_t now = nb_clock_ns();
        memcpy(r, &now, sizeof now);
    }
    for (size_t i = 0; i < sizeof r; i++) (void)snprintf(ex->id + 2 * i, 3, "%02x", r[i]);
}

static nb_str moved(nb_str s, const char *from, char *to)
{
    return (nb_str){ to + (s.p - from), s.n_bytes };
}

/* Copies the head; the views of `head` into bytes[0..n) become views into the copy. */
static bool take_head(nb_http_ex *ex, const char *bytes, size_t n, const nb_http_head *head)
{
    size_t n_path = 0;
    ex->bytes = malloc(n + head->path.n_bytes + 2);
    ex->field = calloc(head->n_field + 1, sizeof *ex->field);
    if (!ex->bytes || !ex->field) return false;
    memcpy(ex->bytes, bytes, n);
    ex->bytes[n] = 0;
    for (size_t i = 0; i < head->n_field; i++)
        ex->field[i] = (nb_http_field){ moved(head->field[i].name, bytes, ex->bytes),
                                        moved(head->field[i].value, bytes, ex->bytes) };
    ex->n_field = head->n_field;
    ex->method = moved(head->method, bytes, ex->bytes);
    if (head->query.p) ex->query = moved(head->query, bytes, ex->bytes);
    if (head->host.p) ex->host = moved(head->host, bytes, ex->bytes);
    char *path = ex->bytes + n + 1;
    if (!nb_http_decode(head->path, false, path, &n_path)) {
        ex->refuse_status = 400;
        ex->refusal = "the request's path has a broken %-escape or a control character";
        n_path = 0;
    }
    path[n_path] = 0;
    ex->path = (nb_str){ path, n_path };
    ex->minor0 = head->minor == 0;
    ex->keep_alive = head->keep_alive;
    ex->chunked = head->chunked;
    ex->left_bytes = head->has_length ? head->length : 0;
    ex->head_only = nb_str_eqc(ex->method, "HEAD");
    return true;
}

nb_http_ex *nb_http_ex_create(nb_http_conn *c, const char *bytes, size_t n,
                              const nb_http_head *head)
{
    nb_http_ex *ex = calloc(1, sizeof *ex);
    if (!ex) return NULL;
    ex->c = c;
    ex->begin_ns = nb_clock_ns();
    ex->method = ex->path = ex->host = (nb_str){ "", 0 };
    if (head && !take_head(ex, bytes, n, head)) {
        nb_http_ex_destroy(ex);
        return NULL;
    }
    set_id(ex);
    return ex;
}

void nb_http_ex_destroy(nb_http_ex *ex)
{
    if (!ex) return;
    ex->c->h->body_bytes -= ex->counted_bytes;
    nb_buf_deinit(&ex->body);
    nb_buf_deinit(&ex->extra);
    for (size_t i = 0; i < ex->n_value; i++) free(ex->value[i]);
    free(ex->value);
    free(ex->note);
    free(ex->field);
    free(ex->bytes);
    free(ex);
}

nb_http *nb_http_of(const nb_http_ex *ex)
{
    return ex->c->h;
}

nb_str nb_http_method(const nb_http_ex *ex)
{
    return ex->method;
}

nb_str nb_http_path(const nb_http_ex *ex)
{
    return ex->path;
}

nb_str nb_http_query(nb_http_ex *ex, const char *name)
{
    size_t n = 0;
    if (ex->query.n_bytes == 0 || NB_GROW(ex->value, ex->cap_value, ex->n_value + 1) != NB_OK)
        return (nb_str){ 0 };
    char *out = malloc(ex->query.n_bytes + 1);
    if (!out) return (nb_str){ 0 };
    if (!nb_http_query_find(ex->query, name, out, &n)) {
        free(out);
        return (nb_str){ 0 };
    }
    out[n] = 0;
    ex->value[ex->n_value++] = out;
    return (nb_str){ out, n };
}

nb_str nb_http_header(const nb_http_ex *ex, const char *name)
{
    for (size_t i = 0; i < ex->n_field; i++)
        if (nb_http_same(ex->field[i].name, nb_str_c(name))) return ex->field[i].value;
    return (nb_str){ 0 };
}

nb_str nb_http_body(const nb_http_ex *ex)
{
    return nb_buf_view(&ex->body);
}

const char *nb_http_request_id(const nb_http_ex *ex)
{
    return ex->id;
}

void nb_http_set_note(nb_http_ex *ex, const char *line)
{
    enum { NOTE_BYTES = 256 };
    free(ex->note);
    ex->note = malloc(NOTE_BYTES);
    if (ex->note) (void)snprintf(ex->note, NOTE_BYTES, "%s", line);
}

const char *nb_http_note(const nb_http_ex *ex)
{
    return ex->note ? ex->note : "";
}

nb_str nb_http_peer(const nb_http_ex *ex)
{
    return nb_str_c(ex->c->peer);
}

const nb_http_route *nb_http_route_of(const nb_http_ex *ex)
{
    return ex->route;
}

/* ---- answer ---- */

typedef struct phrase {
    int status;
    const char *text;
} phrase;

static const char *phrase_of(int status)
{
    static const phrase table[] = {
        { 200, "OK" },
        { 202, "Accepted" },
        { 204, "No Content" },
        { 304, "Not Modified" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 413, "Content Too Large" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 422, "Unprocessable Content" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 503, "Service Unavailable" },
        { 504, "Gateway Timeout" },
        { 505, "HTTP Version Not Supported" },
    };
    for (size_t i = 0; i < NB_COUNT(table); i++)
        if (table[i].status == status) return table[i].text;
    return "Status";
}

/* The Date of this second; not by strftime, whose names depend on the locale. */
static const char *date_of_now(nb_http *h)
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const time_t now = time(NULL);
    struct tm t;
    if (h->date[0] && (int64_t)now == h->date_s) return h->date;
    if (!gmtime_r(&now, &t)) return "Thu, 01 Jan 1970 00:00:00 GMT";
    (void)snprintf(h->date, sizeof h->date, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
                   days + 3 * t.tm_wday, t.tm_mday % 100, months + 3 * t.tm_mon,
                   (t.tm_year + 1900) % 10000, t.tm_hour % 100, t.tm_min % 100, t.tm_sec % 100);
    h->date_s = (int64_t)now;
    return h->date;
}

static bool has_no_body(int status)
{
    return status == 204 || status == 304 || status < 200;
}

typedef struct answer {
    int status;
    const char *content_type;
    size_t n_bytes; /* of the body; not for streams */
    bool stream;
} answer;

/* The head of an answer; decides whether the connection goes on. */
static bool build_head(nb_http_ex *ex, const answer *a, nb_buf *b)
{
    nb_http_conn *c = ex->c;
    nb_http *h = c->h;
    ex->stream_chunked = a->stream && !ex->minor0;
    if (!ex->keep_alive || h->draining || (a->stream && ex->minor0)) c->close_after = true;
    nb_status st = nb_buf_printf(b,
                                 "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: nibble\r\n"
                                 "X-Content-Type-Options: nosniff\r\n",
                                 a->status, phrase_of(a->status), date_of_now(h));
    if (st == NB_OK && a->content_type)
        st = nb_buf_printf(b, "Content-Type: %s\r\n", a->content_type);
    if (st == NB_OK && ex->stream_chunked)
        st = nb_buf_add_c(b, "Transfer-Encoding: chunked\r\n");
    else if (st == NB_OK && !a->stream && !has_no_body(a->status))
        st = nb_buf_printf(b, "Content-Length: %zu\r\n", a->n_bytes);
    if (st == NB_OK && c->close_after)
        st = nb_buf_add_c(b, "Connection: close\r\n");
    else if (st == NB_OK && ex->minor0)
        st = nb_buf_add_c(b, "Connection: keep-alive\r\n");
    if (st == NB_OK && h->o.request_id_headers)
        st = nb_buf_printf(b, "X-Request-Id: %s\r\n", ex->id);
    if (st != NB_OK || !nb_http_ex_cors_headers(ex, b)) return false;
    if (ex->extra.n_bytes && nb_buf_add_str(b, nb_buf_view(&ex->extra)) != NB_OK) return false;
    return nb_buf_add_c(b, "\r\n") == NB_OK;
}

/* Puts bytes into the output. */
static bool push(nb_http_conn *c, nb_str s)
{
    if (evbuffer_get_length(c->out) == 0) c->progress_ns = nb_clock_ns();
    return s.n_bytes == 0 || evbuffer_add(c->out, s.p, s.n_bytes) == 0;
}

static bool push_head(nb_http_ex *ex, const answer *a)
{
    nb_buf b = { 0 };
    const bool ok = build_head(ex, a, &b) && push(ex->c, nb_buf_view(&b));
    nb_buf_deinit(&b);
    return ok;
}

/* The exchange has its answer and is no more; the connection goes on to send it. */
static void finish(nb_http_ex *ex)
{
    nb_http_conn *c = ex->c;
    nb_http *h = c->h;
    const int status = c->doomed ? 499 : ex->status;
    if (h->o.on_done)
        h->o.on_done(h->o.ctx, ex, status, (double)(nb_clock_ns() - ex->begin_ns) * 1e-9);
    if (ex->dispatched) h->n_ex--;
    c->ex = NULL;
    nb_http_ex_destroy(ex);
    c->state = NB_HTTP_C_FLUSH;
    nb_http_conn_touch(c);
}

void nb_http_ex_gone(nb_http_ex *ex)
{
    nb_http_conn *c = ex->c;
    nb_http *h = c->h;
    ex->closing = true;
    if (ex->close_fn) ex->close_fn(ex->close_ctx);
    if (ex->dispatched) {
        h->n_ex--;
        if (h->o.on_done)
            h->o.on_done(h->o.ctx, ex, 499, (double)(nb_clock_ns() - ex->begin_ns) * 1e-9);
    }
    c->ex = NULL;
    nb_http_ex_destroy(ex);
}

static bool is_own_header(const char *name)
{
    static const char *const own[] = { "content-length", "content-type", "transfer-encoding",
                                       "connection",     "date",         "server",
                                       "trailer",        "upgrade" };
    for (size_t i = 0; i < NB_COUNT(own); i++)
        if (nb_http_same(nb_str_c(name), nb_str_c(own[i]))) return true;
    return false;
}

nb_status nb_http_add_header(nb_http_ex *ex, const char *name, const char *value)
{
    if (ex->status || ex->closing || !nb_http_is_token(nb_str_c(name)) ||
        !nb_http_is_value(nb_str_c(value)) || is_own_header(name))
        return NB_ERR_ARG;
    const size_t before = ex->extra.n_bytes;
    if (nb_buf_printf(&ex->extra, "%s: %s\r\n", name, value) == NB_OK) return NB_OK;
    ex->extra.n_bytes = before;
    return NB_ERR_NOMEM;
}

/* A large answer waits in memory for its reader, when its request is gone already: all of them together
 * may take what all requests may. */
static bool is_too_much(const nb_http *h, size_t n_bytes)
{
    if (n_bytes <= h->o.max_stream_bytes) return false;
    size_t left = h->o.max_total_body_bytes;
    for (const nb_http_link *l = h->all.next; l != &h->all; l = l->next) {
        const size_t n = evbuffer_get_length(l->c->out);
        if (n >= left) return true;
        left -= n;
    }
    return n_bytes > left;
}

/* is_static: nb_http_reply_static's bytes, which are only referred to. */
static void reply(nb_http_ex *ex, int status, const char *content_type, nb_str body, bool is_static)
{
    nb_http_conn *c = ex->c;
    if (ex->closing) return;
    if (ex->status) { /* a stream has begun: all that is left is to cut it off */
        c->doomed = true;
        finish(ex);
        return;
    }
    if (!is_static && is_too_much(c->h, body.n_bytes)) {
        nb_http_ex_refuse(ex, 503, "the answers that wait for their readers fill the memory");
        return;
    }
    if (status < 200 || status > 599 || (content_type && !nb_http_is_value(nb_str_c(content_type))))
        status = 500;
    const answer a = { .status = status, .content_type = content_type, .n_bytes = body.n_bytes };
    bool ok = push_head(ex, &a);
    ex->status = status;
    if (ok && !ex->head_only && !has_no_body(status) && body.n_bytes)
        ok = is_static ? evbuffer_add_reference(c->out, body.p, body.n_bytes, NULL, NULL) == 0
                       : push(c, body);
    if (!ok) c->doomed = true;
    finish(ex);
}

void nb_http_reply(nb_http_ex *ex, int status, const char *content_type, nb_str body)
{
    reply(ex, status, content_type, body, false);
}

void nb_http_reply_static(nb_http_ex *ex, int status, const char *content_type, nb_str body)
{
    reply(ex, status, content_type, body, true);
}

void nb_http_ex_refuse(nb_http_ex *ex, int status, const char *message)
{
    const nb_http *h = ex->c->h;
    nb_buf b = { 0 };
    if (status == 503) (void)nb_http_add_header(ex, "Retry-After", "1");
    nb_http_set_note(ex, message);
    if (has_no_body(status)) {
        reply(ex, status, NULL, (nb_str){ "", 0 }, false);
        return;
    }
    if (h->o.error_body)
        h->o.error_body(h->o.ctx, ex, status, message, &b);
    else /* our sentences need no escapes in JSON */
        (void)nb_buf_printf(&b, "{\"error\":{\"message\":\"%s\",\"code\":%d}}\n", message, status);
    reply(ex, status, "application/json", nb_buf_view(&b), false);
    nb_buf_deinit(&b);
}

nb_status nb_http_begin(nb_http_ex *ex, int status, const char *content_type)
{
    if (ex->closing || ex->c->doomed) return NB_ERR_CANCELLED;
    if (ex->status || status < 200 || status > 599 || has_no_body(status) ||
        (content_type && !nb_http_is_value(nb_str_c(content_type))))
        return NB_ERR_ARG;
    const answer a = { .status = status, .content_type = content_type, .stream = true };
    const bool ok = push_head(ex, &a);
    ex->status = status;
    ex->streaming = true;
    if (!ok) ex->c->doomed = true;
    nb_http_conn_touch(ex->c);
    return ok ? NB_OK : NB_ERR_CANCELLED;
}

/* What is limited is what the reader leaves, not what is written at once; and who was written much at once
 * has that much to catch up with. */
static bool keeps_up(nb_http_ex *ex, size_t n_bytes)
{
    const size_t left = evbuffer_get_length(ex->c->out), max = ex->c->h->o.max_stream_bytes;
    const bool ok = left <= max || left - max <= ex->largest_write;
    if (n_bytes > ex->largest_write) ex->largest_write = n_bytes;
    return ok;
}

nb_status nb_http_write(nb_http_ex *ex, nb_str bytes)
{
    nb_http_conn *c = ex->c;
    char size[20];
    if (ex->closing || c->doomed) return NB_ERR_CANCELLED;
    if (!ex->streaming) return NB_ERR_ARG;
    if (ex->head_only || bytes.n_bytes == 0) return NB_OK; /* an empty chunk would end the stream */
    bool ok = keeps_up(ex, bytes.n_bytes);
    if (ok && ex->stream_chunked) {
        const int n = snprintf(size, sizeof size, "%zx\r\n", bytes.n_bytes);
        ok = push(c, (nb_str){ size, (size_t)n }) && push(c, bytes) && push(c, nb_str_c("\r\n"));
    } else if (ok) {
        ok = push(c, bytes);
    }
    if (!ok) c->doomed = true;
    nb_http_conn_touch(c);
    return ok ? NB_OK : NB_ERR_CANCELLED;
}

void nb_http_end(nb_http_ex *ex)
{
    if (ex->closing) return;
    if (!ex->streaming) { /* nothing was begun: there is no sensible answer */
        nb_http_ex_refuse(ex, 500, "the request ended without an answer");
        return;
    }
    if (ex->stream_chunked && !ex->head_only && !push(ex->c, nb_str_c("0\r\n\r\n")))
        ex->c->doomed = true;
    finish(ex);
}

void nb_http_on_close(nb_http_ex *ex, nb_http_task_fn *fn, void *ctx)
{
    ex->close_fn = fn;
    ex->close_ctx = ctx;
}
