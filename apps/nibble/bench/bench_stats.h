/* bench_stats.h - what became of each request of a benchmark, and the figures made of it.
 *
 * Metrics, their definitions and the keys of the JSON are those of vLLM's bench:
 *   ttft  start of the request to the first token          itl  between tokens, of all requests
 *   tpot  (e2el - ttft) / (tokens - 1), with > 1 token     e2el start to the last token
 * Percentiles interpolate linearly, the standard deviation is the population's. */
#ifndef NB_APPS_BENCH_STATS_H
#define NB_APPS_BENCH_STATS_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Every request ends as exactly one of these. */
typedef enum bench_outcome {
    BENCH_PENDING,   /* has not ended: after a run, a request that was lost         */
    BENCH_OK,        /* 200 and a whole answer                                      */
    BENCH_REFUSED,   /* 503                                                         */
    BENCH_STATUS,    /* another status                                              */
    BENCH_CONNECT,   /* no connection, or it broke before an answer began           */
    BENCH_CUT,       /* the answer broke off                                        */
    BENCH_STREAM,    /* an error inside the stream                                  */
    BENCH_MALFORMED, /* not HTTP, or not a stream of events                         */
    BENCH_TIMEOUT,
    BENCH_HUNG_UP, /* by us, with --disconnect-rate                               */
    BENCH_N_OUTCOME
} bench_outcome;
extern const char *const bench_outcome_names[BENCH_N_OUTCOME]; /* keys of the JSON */

typedef struct bench_rec {
    bench_outcome outcome;
    int status;                        /* of HTTP; 0: none came */
    double start_s, ttft_s, latency_s; /* a monotonic clock; from start_s on */
    float *itl_s;                      /* [n_itl] on the heap */
    size_t n_itl, cap_itl;
    size_t n_prompt, n_out, n_cached; /* tokens, as the server counts them */
    char *text, *error;               /* on the heap, or NULL */
} bench_rec;

void bench_recs_deinit(bench_rec *r, size_t n);
/* A token came at t_s: sets ttft_s, or adds to itl_s, and latency_s. False: out of memory. */
bool bench_rec_token(bench_rec *r, double t_s);
/* Keeps a message, without control characters; the first one stays. */
void bench_rec_error(bench_rec *r, const char *message, size_t n_bytes);

enum { BENCH_TTFT, BENCH_TPOT, BENCH_ITL, BENCH_E2EL, BENCH_N_METRIC, BENCH_MAX_PERCENTILE = 16 };

typedef struct bench_report {
    bool metric[BENCH_N_METRIC];       /* to be reported */
    double goodput_ms[BENCH_N_METRIC]; /* 0: no limit */
    bool goodput;
    double percentile[BENCH_MAX_PERCENTILE];
    size_t n_percentile;
    size_t max_concurrency; /* 0: no limit */
    double request_rate;    /* INFINITY */
} bench_report;

/* Fill a part of *r; false: `text` is wrong. */
bool bench_parse_metrics(const char *text, bench_report *r);     /* ttft,tpot */
bool bench_parse_percentiles(const char *text, bench_report *r); /* 50,90,99.9 */
bool bench_parse_goodput(const char *text, bench_report *r);     /* ttft:500 */

typedef struct bench_dist {
    double mean, median, std, percentile[BENCH_MAX_PERCENTILE]; /* ms */
} bench_dist;

typedef struct bench_summary {
    double duration_s;
    size_t n, count[BENCH_N_OUTCOME];
    size_t n_in, n_out, n_cached, n_good;
    double max_out_per_s; /* best second */
    size_t max_concurrent;
    bench_dist dist[BENCH_N_METRIC];
} bench_summary;

/* False: out of memory. */
bool bench_summarise(const bench_rec *r, size_t n, double duration_s, const bench_report *o,
                     bench_summary *s);
/* vLLM's table, and the outcomes below it; the last line is left to bench_print_end. */
void bench_print(FILE *f, const char *title, const bench_summary *s, const bench_report *o);
void bench_print_number(FILE *f, const char *label, double x); /* one more line of it */
void bench_print_end(FILE *f);
/* Adds the figures to an object; detailed: also every request's. False: out of memory. */
bool bench_json(json_t *j, const bench_rec *r, const bench_summary *s, const bench_report *o,
                bool detailed);

#endif
