/* http.h - HTTP/1.1 in and out: listeners, connections, limits, streams.
 *
 * One event loop on one thread (the one that calls nb_http_run); every function here is
 * called on it, but for nb_http_post and nb_http_stop.  An exchange (nb_http_ex) is
 * one request and its answer: a handler gets it when the whole body is there, and either
 * replies at once or keeps it and replies later, whole or as a stream.
 *
 * An exchange ends by nb_http_reply, by nb_http_end, or because the client has gone (left,
 * reads too slowly, or the server stops hard): then the on_close function is called
 * once, and the exchange must not be used after it returns.  After nb_http_reply and
 * nb_http_end on_close does not come.  No function of an exchange calls on_close itself: it
 * comes from the loop.
 *
 * Gone: the client closed, reset, or shut down its sending side while its answer was not
 * complete.  A killed client and one that only says "no more requests" (`nc -N`)
 * look the same, and the pages of the first must be free within a step; so a half-closed client
 * still gets answers that are complete by then, but is not computed for.  A client that sends more
 * than one largest request ahead while another is in work is gone too.
 *
 * Browsers.  Without an API key the server trusts whoever reaches it, so pages of other
 * sites must not reach it through the browser of its user:
 *   - bound to loopback addresses only, without TLS: the Host of a request has to be one that no
 *     stranger can point at 127.0.0.1: an address, a name without a dot, one under
 *     .localhost, .local, .internal or .home.arpa, the name bound to, or the host of an allowed
 *     origin; else 403.  A site that lets its own name point at 127.0.0.1 (DNS rebinding) is
 *     the same origin for the browser; only Host tells.  Listing "*" as origin turns this off.
 *   - whatever is bound: a request that is not GET, HEAD or OPTIONS and that a browser sends for
 *     a page of another origin which is not allowed (Sec-Fetch-Site, or Origin against
 *     Host) gets 403: the page could not read the answer, but it would be computed.
 * The page that the server itself serves passes both; clients that are not browsers send neither
 * Origin nor foreign Hosts.  With an API key neither is checked: other sites do not have it. */
#ifndef NB_SERVE_HTTP_H
#define NB_SERVE_HTTP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

typedef struct nb_http nb_http;
typedef struct nb_http_ex nb_http_ex;
typedef void nb_http_fn(nb_http_ex *ex, void *ctx);
typedef void nb_http_task_fn(void *ctx);

typedef struct nb_http_route {
    const char *method, *path; /* "GET", "/v1/models"; no patterns */
    nb_http_fn *fn;
    bool open; /* needs no API key; all others do where there are keys */
} nb_http_route;

/* Zero: the default in brackets. */
typedef struct nb_http_options {
    const char *host; /* [127.0.0.1] name or address; "" or "0.0.0.0", "::": all */
    uint16_t port;    /* 0 with any_port: the system chooses; nb_http_port tells */
    bool any_port;
    const char *uds; /* path of a Unix socket instead of host and port          */
    const char *tls_cert, *tls_key, *tls_key_password, *tls_ca; /* PEM files and the text of
                                     a password; cert and key: both or none; with tls_ca clients
                                     must show a certificate of these authorities            */
    const char *const *api_key; /* Authorization: Bearer KEY, or x-api-key: any of these opens
                                     routes that are not `open`; compared in constant time   */
    size_t n_api_key;
    const char *const *cors_origin; /* allowed origins, "*" for all; none: CORS is off       */
    size_t n_cors_origin;
    size_t max_header_bytes;     /* [32 KiB] all headers with the request line: 431         */
    size_t max_body_bytes;       /* [16 MiB] 413                                            */
    size_t max_total_body_bytes; /* [1 GiB] of all requests in memory together: 503; as much for
                                    answers beyond max_stream_bytes that wait for their readers */
    size_t max_connections;      /* [4096] beyond: 503 and closed                           */
    size_t max_stream_bytes;     /* [1 MiB] unsent bytes of a stream that a slow reader may leave
                                     in memory, beyond the largest write so far; then the client
                                     counts as gone                                          */
    double read_timeout_s;       /* [30] for a whole request, from its first byte           */
    double idle_timeout_s;       /* [120] between requests of a connection                  */
    double write_timeout_s;      /* [60] without a byte taken by the client                 */
    bool request_id_headers;     /* answer with X-Request-Id                                */
    /* Called for every finished exchange (logs, metrics); path is the route's. status 499: the
     * client went away first. */
    void (*on_done)(void *ctx, const nb_http_ex *ex, int status, double seconds);
    /* Error answers of this file (404, 405, 400, 401, 413, ...): fills body with JSON.  */
    void (*error_body)(void *ctx, const nb_http_ex *ex, int status, const char *message,
                       nb_buf *body);
    /* A line for the log: out of descriptors, ... */
    void (*on_warn)(void *ctx, const char *line);
    /* The first nb_http_stop takes effect; requests in work are finished. */
    void (*on_drain)(void *ctx);
    void *ctx; /* of handlers and of the four above */
} nb_http_options;

/* Binds and listens. Routes are borrowed, options copied.  A route for GET serves HEAD too; OPTIONS
 * is answered here. */
nb_status nb_http_create(const nb_http_options *o, const nb_http_route *route, size_t n_route,
                         nb_http **out, nb_error *err);
/* Tasks posted before it are run; then open exchanges end (on_close). NULL is ok. */
void nb_http_destroy(nb_http *h);
uint16_t nb_http_port(const nb_http *h); /* bound port; 0 with uds */
/* Serves until stopped and drained. */
nb_status nb_http_run(nb_http *h, nb_error *err);
/* Any thread, and a signal handler's: first call: no new connections, answers in work are
 * finished (at most drain_s seconds), new requests get 503; second call: everything ends. */
void nb_http_stop(nb_http *h);
void nb_http_set_drain(nb_http *h, double drain_s); /* default 30 */
bool nb_http_draining(const nb_http *h);
/* Any thread: fn(ctx) runs soon on the loop's thread.  Calls that come before an earlier one
 * with the same fn and ctx has begun are one.  Never blocks on the loop.  Room for
 * max_connections + 1024 of them is set aside; one beyond that needs memory, and is
 * dropped if there is none. */
void nb_http_post(nb_http *h, nb_http_task_fn *fn, void *ctx);
/* fn(ctx) every `s` seconds, until destroy. */
nb_status nb_http_every(nb_http *h, double s, nb_http_task_fn *fn, void *ctx);
size_t nb_http_n_connections(const nb_http *h);
size_t nb_http_n_exchanges(const nb_http *h); /* requests being answered */
/* Connections closed without an answer because too many were open: beyond max_connections a
 * connection gets 503 while there is room for a few more; over TLS it is closed at once. */
uint64_t nb_http_n_unanswered(const nb_http *h);

/* What follows replaces options of a running server, on the loop's thread.  On failure nothing has
 * changed. */
nb_status nb_http_set_keys(nb_http *h, const char *const *key, size_t n, nb_error *err);
bool nb_http_has_keys(const nb_http *h);
/* Reads certificate, key and authorities again, for connections to come. */
nb_status nb_http_reload_tls(nb_http *h, nb_error *err);

/* ---- an exchange; views live as long as it ---- */
nb_http *nb_http_of(const nb_http_ex *ex);
nb_str nb_http_method(const nb_http_ex *ex);
nb_str nb_http_path(const nb_http_ex *ex); /* decoded, without the query */
/* Value of a query parameter or header (any case); p is NULL when absent. */
nb_str nb_http_query(nb_http_ex *ex, const char *name);
nb_str nb_http_header(const nb_http_ex *ex, const char *name);
nb_str nb_http_body(const nb_http_ex *ex);
/* X-Request-Id of the client where it is sane (1..128 visible ASCII), else a new random one. */
const char *nb_http_request_id(const nb_http_ex *ex);
/* What on_done may want to log of this exchange, such as why it was refused: a copy of a line, cut to
 * 255 bytes; the getter gives "" where there is none. */
void nb_http_set_note(nb_http_ex *ex, const char *line);
const char *nb_http_note(const nb_http_ex *ex);
nb_str nb_http_peer(const nb_http_ex *ex); /* address for logs: 127.0.0.1:4711, [::1]:4711, unix */
/* Whether the request was made on this machine: from a loopback address or the Unix socket, for a
 * loopback Host, without a header that proxies add.  A proxy that adds none and rewrites Host is
 * not noticed: a server behind a proxy needs an API key. */
bool nb_http_is_local(const nb_http_ex *ex);
/* The row of the table; NULL where none fits (404, 405, 400, ...). */
const nb_http_route *nb_http_route_of(const nb_http_ex *ex);

/* Before reply or begin. */
nb_status nb_http_add_header(nb_http_ex *ex, const char *name, const char *value);
/* A whole answer; content_type NULL: none. Copies the body. Ends the exchange. */
void nb_http_reply(nb_http_ex *ex, int status, const char *content_type, nb_str body);
/* The same for bytes that live as long as the program (embedded files): not copied. */
void nb_http_reply_static(nb_http_ex *ex, int status, const char *content_type, nb_str body);
/* A stream (chunked for HTTP/1.1, until close for 1.0). */
nb_status nb_http_begin(nb_http_ex *ex, int status, const char *content_type);
nb_status nb_http_write(nb_http_ex *ex, nb_str bytes); /* NB_ERR_CANCELLED: the client is gone or
                                                          will be: on_close comes soon */
void nb_http_end(nb_http_ex *ex);
void nb_http_on_close(nb_http_ex *ex, nb_http_task_fn *fn, void *ctx);

#endif
