/* http_internal.h - what the files of the HTTP server share.  All of it is owned by the loop's thread
 * but for the queue of tasks (http_post.c).
 *
 * No function of an exchange frees a connection or calls back: it appends to the
 * connection's output, changes its state, and puts it on the list of those to be looked after at
 * the end of this round of the loop (nb_http_conn_touch).  Connections end in nb_http_conn_drop
 * only, which is called from the loop's own events. */
#ifndef NB_SERVE_HTTP_INTERNAL_H
#define NB_SERVE_HTTP_INTERNAL_H
#include <event2/buffer.h>
#include <event2/event.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "serve/http.h"
#include "serve/http_parse.h"

enum {
    NB_HTTP_SCRATCH_BYTES = 64 * 1024,
    NB_HTTP_MAX_LISTEN = 16,
    NB_HTTP_ID_BYTES = 129,
    NB_HTTP_PEER_BYTES = 64,
};

typedef struct nb_http_conn nb_http_conn;
typedef struct nb_http_tasks nb_http_tasks;

/* A doubly linked ring; a node that is in none points to itself. */
typedef struct nb_http_link {
    struct nb_http_link *prev, *next;
    nb_http_conn *c;
} nb_http_link;

typedef enum nb_http_state {
    NB_HTTP_C_HANDSHAKE, /* TLS begins */
    NB_HTTP_C_HEAD,      /* between requests, or in the middle of a head */
    NB_HTTP_C_BODY,
    NB_HTTP_C_BUSY,   /* its exchange is with a handler */
    NB_HTTP_C_FLUSH,  /* the answer is complete, not all of it is sent */
    NB_HTTP_C_LINGER, /* all is sent; what the client still sends is thrown away, for else the
                            system resets the connection and the answer is lost on the way */
} nb_http_state;

struct nb_http_conn {
    nb_http_link all, dirty, again;
    nb_http *h;
    struct event *ev;
    SSL *ssl; /* NULL: plain */
    struct evbuffer *out;
    nb_http_ex *ex; /* the request in work, from the end of its head on; NULL: none */
    nb_buf in;
    size_t ahead_bytes;     /* read while a request was in work; part of h->body_bytes */
    size_t in_off, scanned; /* taken from `in`; looked at by nb_http_head_end */
    unsigned n_blank;       /* empty lines seen before the request line */
    uint64_t since_ns;      /* begin of the state; in HEAD: of the request's first byte */
    uint64_t progress_ns;   /* the client took bytes, or had none to take */
    int fd;
    nb_http_state state;
    bool can_read, can_write; /* the system has not said otherwise since the last event */
    bool eof;                 /* the client sends no more */
    bool doomed;              /* out of memory, or a reader too slow: drop when next looked at */
    bool close_after;         /* no further request after this answer */
    bool linger;              /* the client may still be sending */
    bool local;
    bool running; /* inside nb_http_conn_run: it looks after itself */
    char peer[NB_HTTP_PEER_BYTES];
};

struct nb_http_ex {
    nb_http_conn *c;
    const nb_http_route *route;
    char *bytes; /* the head, then the decoded path, each followed by a 0 */
    nb_str method, path, query, host;
    nb_http_field *field;
    size_t n_field;
    char **value; /* results of nb_http_query */
    size_t n_value, cap_value;
    nb_buf body, extra; /* extra: lines of added headers */
    nb_http_chunks chunks;
    uint64_t left_bytes; /* of a body with Content-Length */
    uint64_t begin_ns;
    size_t counted_bytes; /* of the body, in h->body_bytes */
    size_t largest_write; /* of a stream, bytes */
    size_t n_dropped;     /* bytes of the body of a refused request, thrown away */
    nb_http_task_fn *close_fn;
    void *close_ctx;
    const char *refusal; /* of this file's own answers; refuse_status 0: none */
    int refuse_status;
    int status;  /* of the answer, once begun */
    bool minor0; /* HTTP/1.0 */
    bool keep_alive, chunked;
    bool head_only; /* HEAD */
    bool stream_chunked, streaming;
    bool dispatched; /* a handler has it or had it */
    bool closing;    /* on_close runs: nothing can be done with it any more */
    char id[NB_HTTP_ID_BYTES];
    char *note; /* or NULL */
};

typedef struct nb_http_listener {
    int fd;
    struct event *ev;
} nb_http_listener;

typedef struct nb_http_timer {
    struct nb_http_timer *next;
    struct event *ev;
    nb_http_task_fn *fn;
    void *ctx;
} nb_http_timer;

struct nb_http {
    nb_http_options o; /* defaults filled in; strings are copies in `strings` */
    char **strings;
    size_t n_string, cap_string;
    const nb_http_route *route;
    size_t n_route;
    unsigned char (*key_hash)[32]; /* [n_key] */
    size_t n_key;
    struct event_base *base;
    SSL_CTX *tls;
    nb_http_listener listen[NB_HTTP_MAX_LISTEN];
    size_t n_listen;
    struct event *accept_again, *sweep, *end_of_round, *again_ev, *wake;
    bool accept_paused, accept_warned;
    bool loopback_only;
    uint16_t port;
    uint64_t uds_dev, uds_ino; /* of the socket file we made; 0: none */
    nb_http_link all, dirty, again;
    size_t n_conn, n_ex, body_bytes;
    uint64_t n_unanswered, n_unanswered_told, unanswered_told_ns;
    nb_http_tasks *tasks;
    nb_http_timer *timers;
    int wake_fd[2]; /* a pipe: [1] is written by nb_http_post and nb_http_stop */
    atomic_int n_stop;
    int seen_stop;
    double drain_s;
    uint64_t drain_ns;
    bool draining, running;
    int64_t date_s;
    char date[40];
    char scratch[NB_HTTP_SCRATCH_BYTES];
};

/* ---- http_listen.c ---- */
nb_status nb_http_listen_open(nb_http *h, nb_error *err);
nb_status nb_http_listen_start(nb_http *h, nb_error *err); /* events */
void nb_http_listen_close(nb_http *h);

/* ---- http_tls.c ---- */
nb_status nb_http_tls_create(const nb_http_options *o, SSL_CTX **out, nb_error *err);
typedef enum nb_http_io {
    NB_HTTP_IO_OK,
    NB_HTTP_IO_AGAIN,
    NB_HTTP_IO_EOF,
    NB_HTTP_IO_ERROR
} nb_http_io;
/* AGAIN also clears can_read or can_write. */
nb_http_io nb_http_io_handshake(nb_http_conn *c);
nb_http_io nb_http_io_read(nb_http_conn *c, char *p, size_t cap, size_t *n);
nb_http_io nb_http_io_read_raw(nb_http_conn *c, char *p, size_t cap, size_t *n); /* below TLS */
nb_http_io nb_http_io_write(nb_http_conn *c, size_t *n); /* from c->out, which is not empty */
void nb_http_io_shutdown(nb_http_conn *c);               /* no more from us: close_notify, FIN */

/* ---- http_conn.c ---- */
/* Takes over the descriptor. */
void nb_http_conn_create(nb_http *h, int fd, const char *peer, bool local, bool over_limit);
void nb_http_conn_touch(nb_http_conn *c);
void nb_http_conn_drop(nb_http_conn *c);
void nb_http_conn_sweep(nb_http *h);     /* what took too long */
void nb_http_conn_end_round(nb_http *h); /* the list of touched ones */
void nb_http_conn_run_again(nb_http *h);
void nb_http_conn_drain(nb_http *h); /* closes what is idle */
void nb_http_conn_drop_all(nb_http *h);

/* ---- http_ex.c ---- */
/* From a parsed head (a view into bytes[0..n)) or, with head NULL, for an answer to what is not a
 * request.  NULL: out of memory. */
nb_http_ex *nb_http_ex_create(nb_http_conn *c, const char *bytes, size_t n,
                              const nb_http_head *head);
void nb_http_ex_destroy(nb_http_ex *ex);
void nb_http_ex_gone(nb_http_ex *ex); /* on_close, on_done, destroy */
/* An answer of ours: the body from error_body. */
void nb_http_ex_refuse(nb_http_ex *ex, int status, const char *message);
bool nb_http_ex_cors_headers(nb_http_ex *ex, nb_buf *b); /* http_guard.c; false: no memory */

/* ---- http_guard.c: who may ask for what ---- */
/* Finds the route and decides: 0 or the status of the refusal (204: a preflight, answered without a
 * handler), with the sentence. Adds the headers that belong to it. */
int nb_http_guard_admit(nb_http_ex *ex, const char **why);
/* 0, or 415: the body is compressed. */
int nb_http_guard_coding(nb_http_ex *ex, const char **why);

/* ---- http_post.c ---- */
nb_http_tasks *nb_http_tasks_create(size_t room);
void nb_http_tasks_destroy(nb_http_tasks *t);
bool nb_http_tasks_add(nb_http_tasks *t, nb_http_task_fn *fn, void *ctx); /* true: was empty */
bool nb_http_tasks_run(nb_http_tasks *t); /* those that are there now; true: there are new ones */

void nb_http_warn(const nb_http *h, const char *line);
void nb_http_check_end(nb_http *h); /* ends the loop when drained */

static inline void nb_http_ring_init(nb_http_link *l, nb_http_conn *c)
{
    l->prev = l->next = l;
    l->c = c;
}
static inline bool nb_http_ring_empty(const nb_http_link *l)
{
    return l->next == l;
}
static inline void nb_http_ring_remove(nb_http_link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    l->prev = l->next = l;
}
static inline void nb_http_ring_append(nb_http_link *ring, nb_http_link *l)
{
    nb_http_ring_remove(l);
    l->prev = ring->prev;
    l->next = ring;
    ring->prev->next = l;
    ring->prev = l;
}

#endif
