/* metrics_internal.h - what metrics.c counts and metrics_write.c prints. */
#ifndef NB_SERVE_METRICS_INTERNAL_H
#define NB_SERVE_METRICS_INTERNAL_H
#include "serve/metrics.h"

enum { MAX_BUCKET = 40, MAX_HTTP = 128, N_HTTP_BUCKET = 3, N_CLASS = 5, HANDLER_BYTES = 64 };
enum { N_REASON = 5, N_METHOD = 8, N_STEP_BUCKET = 13 };

typedef enum hist_id {
    H_TTFT,
    H_ITL,
    H_TPOT,
    H_E2E,
    H_QUEUE,
    H_INFERENCE,
    H_PREFILL,
    H_DECODE,
    H_PROMPT,
    H_GENERATION,
    H_MAX_GENERATION,
    H_MAX_TOKENS,
    H_PREFILL_COMPUTED,
    H_N,
    N_HIST
} hist_id;

/* le NULL: the 1-2-5 series up to the longest context. */
typedef struct nb_hist_def {
    const char *name, *help;
    const double *le;
    size_t n_le;
} nb_hist_def;
extern const nb_hist_def nb_hist_defs[N_HIST];
extern const char *const nb_metrics_reasons[N_REASON], *const nb_metrics_methods[N_METHOD];
extern const double nb_metrics_http_le[N_HTTP_BUCKET], nb_metrics_step_le[N_STEP_BUCKET];

typedef struct hist {
    const double *le; /* [n_le] */
    size_t n_le;
    uint64_t count[MAX_BUCKET + 1]; /* not cumulated; the last: above all bounds */
    double sum;
} hist;

typedef struct http_row {
    char handler[HANDLER_BYTES]; /* escaped */
    size_t method;
    uint64_t by_class[N_CLASS], count[N_HTTP_BUCKET + 1];
    double sum;
} http_row;

struct nb_metrics {
    nb_buf labels;                /* model_name="...",engine="0" */
    int n_model_label;            /* bytes of its part before engine */
    nb_buf cache_config;          /* the labels of vllm:cache_config_info */
    char record[32], layout[256]; /* of the cache; escaped */
    double kv_bytes_per_tok;
    size_t n_rank;
    uint64_t block_bytes, tail_bytes, weight_bytes, workspace_bytes, residual_bytes;
    bool thrift; /* its counters are shown */
    double len_le[MAX_BUCKET];
    size_t n_len_le;
    hist h[N_HIST], highr;
    uint64_t success[N_REASON], n_refused;
    http_row http[MAX_HTTP];
    size_t n_http;
};

#endif
