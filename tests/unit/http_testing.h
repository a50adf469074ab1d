/* http_testing.h - a server of its own thread with a few routes, and raw sockets against it.
 *
 *   GET  /hello          "hello\n"                POST /echo   the body
 *   GET  /open           open without a key       GET /info    request id, peer, query `q`
 *   GET  /hold           kept until the client goes; on_close is counted
 *   GET  /later          answered by a task       GET /stream  5 chunks in 5 rounds
 *   GET  /flood          a stream without end     GET /big     32 MiB at once, not copied
 *   GET  /burst          32 MiB, then /stream     GET /copy    32 MiB at once, copied
 *
 * Waiting for something to happen has a deadline far beyond what it takes; nothing is measured. */
#ifndef NB_TESTS_HTTP_TESTING_H
#define NB_TESTS_HTTP_TESTING_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/attr.h"
#include "serve/http.h"

enum { MAX_HELD = 64, BIG_BYTES = 32 << 20, FLOOD_BYTES = 32 << 10, DEADLINE_MS = 20000 };

typedef struct server {
    nb_http *h;
    pthread_t thread;
    nb_http_options o;
    bool started;
    /* of the loop's thread */
    nb_http_ex *held[MAX_HELD]; /* /hold */
    char *big;
    /* counts */
    atomic_int n_held, n_close, n_done[600], n_cancelled, n_warn, n_flood_rounds;
} server;

/* One exchange with something to come. */
typedef struct pending {
    server *s;
    nb_http_ex *ex;
    int n;
    bool gone;
} pending;

static inline nb_str view(const char *s)
{
    return nb_str_c(s);
}

enum { N_ROUTES = 14 };
extern const nb_http_route routes[N_ROUTES];
void on_hello(nb_http_ex *ex, void *ctx);

/* Options in s->o are completed. */
void start(server *s);
void join(server *s);
/* Ends at once. */
void stop(server *s);
void *serve_thread(void *ctx); /* nb_http_run of a server */

/* ---- what the loop says ---- */
typedef struct counted {
    size_t n_conn, n_ex, n_unanswered;
} counted;

counted counts(const server *s);
void nap_ms(long ms);
void wait_for(atomic_int *v, int want);
void wait_connections(const server *s, size_t want);

/* ---- a client ---- */
int dial(const server *s);
void say(int fd, nb_str s);
/* Reads until the server closes, or *b ends with `until` (NULL: not). False: neither in time. */
bool hear(int fd, nb_buf *b, const char *until);
/* Sends, reads to the end of the connection, and closes. Valid until the next one. */
char *ask_bytes(const server *s, nb_str bytes);
char *ask(const server *s, const char *text);
int status_of(const char *answer);
void expect(const char *answer, int status, const char *part);
/* An answer that ends with `end`, on a connection that stays. */
void expect_next(int fd, int status, const char *end);

#endif
