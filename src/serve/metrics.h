/* metrics.h - counters and histograms of the server, and their Prometheus text.
 *
 * Names, types and buckets are vLLM's (specification of the metrics in docs/serving.md), so
 * that dashboards and routers work unchanged; ours begin with nibble:.  Owned by the loop's
 * thread. */
#ifndef NB_SERVE_METRICS_H
#define NB_SERVE_METRICS_H
#include "base/str.h"
#include "nibble/nibble.h"

typedef struct nb_metrics nb_metrics;

nb_status nb_metrics_create(const char *model_name, const nb_engine_info *info, nb_metrics **out);
void nb_metrics_destroy(nb_metrics *m);

/* One choice of a request has ended. reason: stop, length, abort, error; the engine's
 * cancelled and timeout count as abort, any other as error. */
typedef struct nb_metrics_request {
    const char *reason;
    size_t n_prompt, n_cached, n_generated, max_tokens, n; /* n: choices of the request */
    bool first_choice;                                     /* n is counted once          */
    double ttft_s, e2e_s, queue_s, prefill_s, decode_s;    /* ttft < 0: no token came    */
} nb_metrics_request;
void nb_metrics_request_done(nb_metrics *m, const nb_metrics_request *r);
/* Time between two tokens of a request. */
void nb_metrics_token(nb_metrics *m, double since_last_s);
/* handler: the route's path, or "none"; counted by method and status class ("2xx").  Answers
 * 503 of handlers other than /health count as refused requests. */
void nb_metrics_http(nb_metrics *m, nb_str handler, nb_str method, int status, double seconds);

typedef struct nb_metrics_gauges { /* of the server, beside the engine's statistics */
    size_t n_connections, n_exchanges;
    uint64_t n_unanswered, n_log_dropped;
} nb_metrics_gauges;
/* Appends the exposition, text format 0.0.4. */
nb_status nb_metrics_write(const nb_metrics *m, const nb_engine_stats *st,
                           const nb_metrics_gauges *g, nb_buf *out);

#endif
