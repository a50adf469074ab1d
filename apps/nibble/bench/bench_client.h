/* bench_client.h - an HTTP load generator: thousands of requests at once on one thread. */
#ifndef NB_APPS_BENCH_CLIENT_H
#define NB_APPS_BENCH_CLIENT_H
#include "bench_stats.h"
#include "bench_wire.h"

typedef struct bench_client bench_client;

typedef struct bench_target {
    const char *host, *uds; /* uds: path of a Unix socket, or NULL */
    unsigned port;
    const char *headers; /* more header lines, each with its end; may be "" */
    bool keep_alive;
} bench_target;

/* CLI_OK, or CLI_FAILED after an error line; *t is borrowed. */
int bench_client_create(const bench_target *t, bench_client **out);
void bench_client_destroy(bench_client *c);

/* One request, to its end.  CLI_OK: *status and the body, terminated, for free(); CLI_FAILED
 * without an answer, with an error line unless quiet. */
int bench_fetch(bench_client *c, const char *method, const char *path, const char *body,
                double timeout_s, bool quiet, int *status, char **answer);

typedef struct bench_job {
    const char *path;
    size_t n;
    /* Appends the body of request i; more_headers: and lines of headers. */
    void (*body)(void *ctx, size_t i, bench_buf *out);
    void (*more_headers)(void *ctx, size_t i, bench_buf *out);
    void *ctx;
    const double *at_s;     /* [n] when to send, from the begin; NULL: at once */
    size_t max_concurrency; /* 0: no limit */
    double timeout_s;
    double disconnect_rate; /* this part of the clients hangs up */
    uint64_t seed;          /* which, and when */
    bool keep_text;         /* of answers */
    bool progress;
} bench_job;

typedef struct bench_run {
    double duration_s, cpu_s;  /* of the load generator itself */
    size_t n_connect, n_again; /* connections opened; requests sent again because the server had
                                  closed an idle connection */
} bench_run;

/* Sends all of the job's requests; rec[n] is zeroed, and afterwards none of them is pending.
 * CLI_OK, or CLI_FAILED after an error line. */
int bench_client_run(bench_client *c, const bench_job *job, bench_rec *rec, bench_run *run);

#endif
