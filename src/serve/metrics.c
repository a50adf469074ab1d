/* metrics.c - see metrics.h.
 *
 * One table row per histogram and per plain value; the text is made on demand from these
 * counters, the engine's statistics and /proc.  Series exist from the start with value 0, as
 * in vLLM, so that a rate over the first scrape is right.  What comes from outside and
 * becomes a label (paths, methods) is bounded: beyond MAX_HTTP pairs of handler and method
 * everything is counted under "none". */
#include "serve/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "serve/process.h"

enum { MAX_BUCKET = 40, MAX_HTTP = 128, N_HTTP_BUCKET = 3, N_CLASS = 5, HANDLER_BYTES = 64 };

/* ---- tables --------------------------------------------------------------------- */

static const double ttft_le[] = { .001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                  1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560 };
static const double itl_le[] = { .01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                 .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80 };
static const double e2e_le[] = { .3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680 };
static const double params_n_le[] = { 1, 2, 5, 10, 20 };
static const double step_le[] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384 };
static const double highr_le[] = { .01, .025, .05, .075, .1,  .25, .5,  .75, 1,  1.5, 2,
                                   2.5, 3,    3.5, 4,    4.5, 5,   7.5, 10,  30, 60 };
static const double http_le[N_HTTP_BUCKET] = { .1, .5, 1 };

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
#define LE(table) table, sizeof table / sizeof *table
static const struct hist_def {
    const char *name, *help;
    const double *le;
    size_t n_le;
} hist_def[N_HIST] = {
    [H_TTFT] = { "vllm:time_to_first_token_seconds", "Time to first token.", LE(ttft_le) },
    [H_ITL] = { "vllm:inter_token_latency_seconds", "Time between tokens of a request.",
                LE(itl_le) },
    [H_TPOT] = { "vllm:request_time_per_output_token_seconds",
                 "Mean time per output token of a request, without the first.", LE(itl_le) },
    [H_E2E] = { "vllm:e2e_request_latency_seconds", "From arrival to the last token.", LE(e2e_le) },
    [H_QUEUE] = { "vllm:request_queue_time_seconds", "Time in the queue.", LE(e2e_le) },
    [H_INFERENCE] = { "vllm:request_inference_time_seconds", "Time running (prefill and decode).",
                      LE(e2e_le) },
    [H_PREFILL] = { "vllm:request_prefill_time_seconds", "From admission to the first token.",
                    LE(e2e_le) },
    [H_DECODE] = { "vllm:request_decode_time_seconds", "From the first token to the last.",
                   LE(e2e_le) },
    [H_PROMPT] = { "vllm:request_prompt_tokens", "Prompt tokens of a request.", NULL, 0 },
    [H_GENERATION] = { "vllm:request_generation_tokens", "Generated tokens of a request.", NULL,
                       0 },
    [H_MAX_GENERATION] = { "vllm:request_max_num_generation_tokens",
                           "Generated tokens of a choice.", NULL, 0 },
    [H_MAX_TOKENS] = { "vllm:request_params_max_tokens", "Parameter max_tokens of a request.", NULL,
                       0 },
    [H_PREFILL_COMPUTED] = { "vllm:request_prefill_kv_computed_tokens",
                             "Prompt tokens computed, without those found in the cache.", NULL, 0 },
    [H_N] = { "vllm:request_params_n", "Parameter n of a request.", LE(params_n_le) },
};

static const char *const reasons[] = { "stop", "length", "abort", "error", "repetition" };
enum { N_REASON = sizeof reasons / sizeof *reasons, REASON_ABORT = 2, REASON_ERROR = 3 };

static const char *const methods[] = { "GET", "POST",  "HEAD",   "OPTIONS",
                                       "PUT", "PATCH", "DELETE", "other" };
enum { N_METHOD = sizeof methods / sizeof *methods };

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

/* ---- counting ------------------------------------------------------------------------ */

static void observe(hist *h, double x)
{
    size_t i = 0;
    if (!(x >= 0)) x = 0; /* a clock that was set back, NaN */
    while (i < h->n_le && x > h->le[i]) i++;
    h->count[i]++;
    h->sum += x;
}

static size_t reason_index(const char *reason)
{
    if (!reason) return REASON_ERROR;
    if (strcmp(reason, "cancelled") == 0 || strcmp(reason, "timeout") == 0) return REASON_ABORT;
    for (size_t i = 0; i < N_REASON; i++)
        if (strcmp(reason, reasons[i]) == 0) return i;
    return REASON_ERROR;
}

void nb_metrics_request_done(nb_metrics *m, const nb_metrics_request *r)
{
    hist *h = m->h;
    const double prefill = r->prefill_s > 0 ? r->prefill_s : 0,
                 decode = r->decode_s > 0 ? r->decode_s : 0;
    m->success[reason_index(r->reason)]++;
    if (r->ttft_s >= 0) observe(&h[H_TTFT], r->ttft_s);
    if (r->ttft_s >= 0 && r->n_generated > 1)
        observe(&h[H_TPOT], decode / (double)(r->n_generated - 1));
    observe(&h[H_E2E], r->e2e_s);
    observe(&h[H_QUEUE], r->queue_s);
    observe(&h[H_INFERENCE], prefill + decode);
    observe(&h[H_PREFILL], prefill);
    observe(&h[H_DECODE], decode);
    observe(&h[H_PROMPT], (double)r->n_prompt);
    observe(&h[H_GENERATION], (double)r->n_generated);
    observe(&h[H_MAX_GENERATION], (double)r->n_generated);
    observe(&h[H_MAX_TOKENS], (double)r->max_tokens);
    observe(&h[H_PREFILL_COMPUTED],
            (double)(r->n_prompt > r->n_cached ? r->n_prompt - r->n_cached : 0));
    if (r->first_choice) observe(&h[H_N], (double)r->n);
}

void nb_metrics_token(nb_metrics *m, double since_last_s)
{
    observe(&m->h[H_ITL], since_last_s);
}

/* Appends s as the value of a label: backslash, quote and newline escaped, other control
 * characters replaced. */
static nb_status add_escaped(nb_buf *b, nb_str s)
{
    for (size_t i = 0; i < s.n_bytes; i++) {
        const char c = s.p[i];
        if (c == '\\' || c == '"') NB_TRY(nb_buf_add_ch(b, '\\'));
        if (c == '\n')
            NB_TRY(nb_buf_add_c(b, "\\n"));
        else
            NB_TRY(nb_buf_add_ch(b, (unsigned char)c < 0x20 || c == 0x7f ? '?' : c));
    }
    return NB_OK;
}

static http_row *http_find(nb_metrics *m, const char *handler, size_t method)
{
    for (size_t i = 0; i < m->n_http; i++)
        if (m->http[i].method == method && strcmp(m->http[i].handler, handler) == 0)
            return &m->http[i];
    /* The last N_METHOD rows are kept for "none". */
    const size_t room = strcmp(handler, "none") == 0 ? MAX_HTTP : MAX_HTTP - N_METHOD;
    if (m->n_http >= room) return NULL;
    http_row *r = &m->http[m->n_http++];
    (void)snprintf(r->handler, sizeof r->handler, "%s", handler);
    r->method = method;
    return r;
}

void nb_metrics_http(nb_metrics *m, nb_str handler, nb_str method, int status, double seconds)
{
    char name[HANDLER_BYTES] = "none";
    nb_buf b = { .limit_bytes = sizeof name - 1 };
    size_t k = 0, bucket = 0;
    if (handler.n_bytes && add_escaped(&b, handler) == NB_OK) memcpy(name, b.p, b.n_bytes + 1);
    nb_buf_deinit(&b);
    while (k + 1 < N_METHOD && !nb_str_eqc(method, methods[k])) k++;
    http_row *r = http_find(m, name, k);
    if (!r) r = http_find(m, "none", k);
    if (!r) return;
    if (!(seconds >= 0)) seconds = 0;
    while (bucket < N_HTTP_BUCKET && seconds > http_le[bucket]) bucket++;
    r->by_class[status >= 100 && status < 600 ? status / 100 - 1 : N_CLASS - 1]++;
    r->count[bucket]++;
    r->sum += seconds;
    observe(&m->highr, seconds);
    if (status == 503 && strcmp(name, "/health") != 0) m->n_refused++;
}

/* ---- create ------------------------------------------------------------------------------ */

static void make_len_buckets(nb_metrics *m, size_t max)
{
    static const double mantissa[] = { 1, 2, 5 };
    for (double ten = 1; m->n_len_le + 3 <= MAX_BUCKET; ten *= 10)
        for (size_t i = 0; i < 3; i++) {
            if (mantissa[i] * ten > (double)max) return;
            m->len_le[m->n_len_le++] = mantissa[i] * ten;
        }
}

static nb_status copy_escaped(char *to, size_t n, const char *s)
{
    nb_buf b = { .limit_bytes = n - 1 };
    const nb_status st = add_escaped(&b, nb_str_c(s ? s : ""));
    if (st == NB_OK) memcpy(to, nb_buf_view(&b).p, b.n_bytes + 1);
    nb_buf_deinit(&b);
    return st == NB_ERR_LIMIT ? NB_OK : st; /* too long to show: empty */
}

static nb_status make_labels(nb_metrics *m, const char *model_name, const nb_engine_info *info)
{
    NB_TRY(nb_buf_add_c(&m->labels, "model_name=\""));
    NB_TRY(add_escaped(&m->labels, nb_str_c(model_name)));
    NB_TRY(nb_buf_add_c(&m->labels, "\""));
    m->n_model_label = (int)m->labels.n_bytes;
    NB_TRY(nb_buf_add_c(&m->labels, ",engine=\"0\""));
    NB_TRY(copy_escaped(m->record, sizeof m->record, info->kv_dtype));
    NB_TRY(copy_escaped(m->layout, sizeof m->layout, info->kv_layout));
    return nb_buf_printf(&m->cache_config,
                         "block_size=\"%zu\",num_gpu_blocks=\"%zu\",num_cpu_blocks=\"0\","
                         "cache_dtype=\"%s\",enable_prefix_caching=\"%s\","
                         "prefix_caching_hash_algo=\"sha256\",kv_cache_memory_bytes=\"%" PRIu64
                         "\",sliding_window=\"None\",kv_layout=\"%s\"",
                         info->block_tok, info->n_block, m->record,
                         info->no_prefix_caching ? "False" : "True", info->kv_pool_bytes,
                         m->layout);
}

nb_status nb_metrics_create(const char *model_name, const nb_engine_info *info, nb_metrics **out)
{
    nb_metrics *m = calloc(1, sizeof *m);
    if (!m) return NB_ERR_NOMEM;
    const nb_status st = make_labels(m, model_name, info);
    if (st != NB_OK) {
        nb_metrics_destroy(m);
        return st;
    }
    m->kv_bytes_per_tok = info->kv_bytes_per_tok;
    m->n_rank = info->n_rank;
    m->block_bytes = info->block_bytes;
    m->tail_bytes = info->tail_bytes;
    m->weight_bytes = info->weight_bytes;
    m->workspace_bytes = info->workspace_bytes;
    m->residual_bytes = info->residual_bytes;
    m->thrift = info->kv_thrift && strcmp(info->kv_thrift, "off") != 0;
    make_len_buckets(m, info->max_model_len);
    for (size_t i = 0; i < N_HIST; i++) {
        m->h[i].le = hist_def[i].le ? hist_def[i].le : m->len_le;
        m->h[i].n_le = hist_def[i].le ? hist_def[i].n_le : m->n_len_le;
    }
    m->highr.le = highr_le;
    m->highr.n_le = sizeof highr_le / sizeof *highr_le;
    *out = m;
    return NB_OK;
}

void nb_metrics_destroy(nb_metrics *m)
{
    if (!m) return;
    nb_buf_deinit(&m->labels);
    nb_buf_deinit(&m->cache_config);
    free(m);
}

/* ---- writing: the first failure is kept, what follows does nothing ----------------------- */

typedef struct writer {
    const nb_metrics *m;
    nb_buf *out;
    nb_status st;
} writer;

#define PUT(w, ...)                                                                                \
    do {                                                                                           \
        if ((w)->st == NB_OK) (w)->st = nb_buf_printf((w)->out, __VA_ARGS__);                      \
    } while (0)

static void head(writer *w, const char *name, const char *type, const char *help)
{
    PUT(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A number as Prometheus reads it; whole numbers without an exponent. */
static void put_number(writer *w, double x)
{
    if (isnan(x))
        PUT(w, "NaN");
    else if (isinf(x))
        PUT(w, x > 0 ? "+Inf" : "-Inf");
    else if (x == floor(x) && fabs(x) < 1e15)
        PUT(w, "%.0f", x);
    else
        PUT(w, "%.12g", x);
}

/* A bound as the official clients write it: 0.5, 1.0, 1e+06. */
static void put_le(writer *w, double x)
{
    if (x == floor(x) && x < 1e6)
        PUT(w, "%.1f", x);
    else
        PUT(w, "%g", x);
}

/* name{model_name, engine, more} x */
static void sample(writer *w, const char *name, const char *more, double x)
{
    PUT(w, "%s{%s%s%s} ", name, w->m->labels.p, more ? "," : "", more ? more : "");
    put_number(w, x);
    PUT(w, "\n");
}

static void gauge(writer *w, const char *name, const char *help, double x)
{
    head(w, name, "gauge", help);
    sample(w, name, NULL, x);
}

static void counter(writer *w, const char *name, const char *help, double x)
{
    head(w, name, "counter", help);
    sample(w, name, NULL, x);
}

/* Buckets, sum and count; count[n_le] is above all bounds. */
static void put_buckets(writer *w, const char *name, const char *labels, const double *le,
                        size_t n_le, const uint64_t *count, double sum)
{
    uint64_t total = 0;
    const char *const comma = *labels ? "," : "";
    for (size_t i = 0; i < n_le; i++) {
        total += count[i];
        PUT(w, "%s_bucket{%s%sle=\"", name, labels, comma);
        put_le(w, le[i]);
        PUT(w, "\"} %" PRIu64 "\n", total);
    }
    total += count[n_le];
    PUT(w, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, comma, total);
    PUT(w, *labels ? "%s_sum{%s} " : "%s_sum%s ", name, labels);
    put_number(w, sum);
    PUT(w, *labels ? "\n%s_count{%s} %" PRIu64 "\n" : "\n%s_count%s %" PRIu64 "\n", name, labels,
        total);
}

static void put_hist(writer *w, const char *name, const char *help, const hist *h)
{
    head(w, name, "histogram", help);
    put_buckets(w, name, w->m->labels.p, h->le, h->n_le, h->count, h->sum);
}

/* ---- figures of each data-parallel rank, which vLLM calls an engine ---- */

typedef double rank_fn(const nb_data_rank_stats *r);

static size_t n_data_rank(const nb_engine_stats *st)
{
    return st->n_data_rank ? st->n_data_rank : 1;
}

/* more, f: of each rank; f NULL: 1. */
static void rank_samples(writer *w, const nb_engine_stats *st, const char *name, const char *more, rank_fn *f)
{
    for (size_t k = 0; k < n_data_rank(st); k++) {
        PUT(w, "%s{%.*s,engine=\"%zu\"%s%s} ", name, w->m->n_model_label, w->m->labels.p, k, more ? "," : "",
            more ? more : "");
        put_number(w, f ? f(&st->data_rank[k]) : 1);
        PUT(w, "\n");
    }
}

static void of_ranks(writer *w, const nb_engine_stats *st, const char *name, const char *type, const char *help,
                     rank_fn *f)
{
    head(w, name, type, help);
    rank_samples(w, st, name, NULL, f);
}

static double rank_running(const nb_data_rank_stats *r)
{
    return (double)r->n_running;
}
static double rank_waiting(const nb_data_rank_stats *r)
{
    return (double)r->n_waiting;
}
static double rank_deferred(const nb_data_rank_stats *r)
{
    return (double)(r->n_deferred < r->n_waiting ? r->n_deferred : r->n_waiting);
}
static double rank_capacity(const nb_data_rank_stats *r)
{
    return rank_waiting(r) - rank_deferred(r);
}
static double rank_usage(const nb_data_rank_stats *r)
{
    return r->n_block ? (double)r->n_block_held / (double)r->n_block : 0;
}
static double rank_queries(const nb_data_rank_stats *r)
{
    return (double)r->prefix_queries;
}
static double rank_hits(const nb_data_rank_stats *r)
{
    return (double)r->prefix_hits;
}
static double rank_preempted(const nb_data_rank_stats *r)
{
    return (double)r->n_preempted;
}

/* Where there is one rank, it has what all have. */
static nb_engine_stats with_ranks(const nb_engine_stats *st)
{
    nb_engine_stats s = *st;
    if (s.n_data_rank > 1) return s;
    s.data_rank[0] = (nb_data_rank_stats){ .n_running = st->n_running,
                                           .n_waiting = st->n_waiting,
                                           .n_deferred = st->n_deferred,
                                           .n_block = st->n_block,
                                           .n_block_held = st->n_block_held,
                                           .prefix_queries = st->prefix_queries,
                                           .prefix_hits = st->prefix_hits,
                                           .n_preempted = st->n_preempted };
    return s;
}

static void write_ranks(writer *w, const nb_engine_stats *all)
{
    const nb_engine_stats s = with_ranks(all), *const st = &s;
    static const struct {
        const char *name, *type, *help;
        rank_fn *f;
    } rows[] = {
        { "vllm:num_requests_running", "gauge", "Requests in the running batch.", rank_running },
        { "vllm:num_requests_waiting", "gauge", "Requests waiting to be run.", rank_waiting },
        { "vllm:kv_cache_usage_perc", "gauge", "Share of the KV blocks held by requests, 0 to 1.", rank_usage },
        { "vllm:gpu_cache_usage_perc", "gauge", "Older name of vllm:kv_cache_usage_perc.", rank_usage },
        { "vllm:prefix_cache_queries_total", "counter", "Tokens looked up in the prefix cache.", rank_queries },
        { "vllm:prefix_cache_hits_total", "counter", "Tokens found in the prefix cache.", rank_hits },
        { "vllm:gpu_prefix_cache_queries_total", "counter", "Older name of vllm:prefix_cache_queries_total.",
          rank_queries },
        { "vllm:gpu_prefix_cache_hits_total", "counter", "Older name of vllm:prefix_cache_hits_total.", rank_hits },
        { "vllm:num_preemptions_total", "counter", "Requests set back to the queue.", rank_preempted },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        of_ranks(w, st, rows[i].name, rows[i].type, rows[i].help, rows[i].f);
    head(w, "vllm:num_requests_waiting_by_reason", "gauge",
         "Waiting requests: for capacity, or deferred until another has computed its prompt.");
    rank_samples(w, st, "vllm:num_requests_waiting_by_reason", "reason=\"capacity\"", rank_capacity);
    rank_samples(w, st, "vllm:num_requests_waiting_by_reason", "reason=\"deferred\"", rank_deferred);
    head(w, "vllm:cache_config_info", "gauge", "Configuration of the KV cache.");
    rank_samples(w, st, "vllm:cache_config_info", w->m->cache_config.p, NULL);
}

static void write_engine_counters(writer *w, const nb_engine_stats *st)
{
    const uint64_t cached =
        st->prompt_tok_cached < st->prompt_tok ? st->prompt_tok_cached : st->prompt_tok;
    counter(w, "vllm:prompt_tokens_total", "Prompt tokens, computed or found in the cache.",
            (double)st->prompt_tok);
    counter(w, "vllm:prompt_tokens_cached_total", "Prompt tokens found in the cache.",
            (double)cached);
    head(w, "vllm:prompt_tokens_by_source_total", "counter", "Prompt tokens by their source.");
    sample(w, "vllm:prompt_tokens_by_source_total", "source=\"local_compute\"",
           (double)(st->prompt_tok - cached));
    sample(w, "vllm:prompt_tokens_by_source_total", "source=\"local_cache_hit\"", (double)cached);
    sample(w, "vllm:prompt_tokens_by_source_total", "source=\"external_kv_transfer\"", 0);
    counter(w, "vllm:generation_tokens_total", "Generated tokens.", (double)st->generated_tok);
    counter(w, "vllm:corrupted_requests_total", "Requests ended by a value that is not finite.",
            (double)st->n_nonfinite);
    head(w, "vllm:iteration_tokens_total", "histogram", "Tokens computed in a step.");
    put_buckets(w, "vllm:iteration_tokens_total", w->m->labels.p, LE(step_le), st->step_tok,
                (double)st->step_tok_sum);
}

static void write_requests(writer *w)
{
    const nb_metrics *m = w->m;
    head(w, "vllm:request_success_total", "counter", "Finished requests by their reason.");
    for (size_t i = 0; i < N_REASON; i++) {
        char label[48];
        (void)snprintf(label, sizeof label, "finished_reason=\"%s\"", reasons[i]);
        sample(w, "vllm:request_success_total", label, (double)m->success[i]);
    }
    for (size_t i = 0; i < N_HIST; i++) put_hist(w, hist_def[i].name, hist_def[i].help, &m->h[i]);
    put_hist(w, "vllm:time_per_output_token_seconds",
             "Older name of vllm:inter_token_latency_seconds.", &m->h[H_ITL]);
}

static void write_http(writer *w)
{
    const nb_metrics *m = w->m;
    head(w, "http_requests_total", "counter", "HTTP requests by handler, method and status.");
    for (size_t i = 0; i < m->n_http; i++)
        for (size_t c = 0; c < N_CLASS; c++)
            if (m->http[i].by_class[c])
                PUT(w,
                    "http_requests_total{handler=\"%s\",method=\"%s\",status=\"%zuxx\"} %" PRIu64
                    "\n",
                    m->http[i].handler, methods[m->http[i].method], c + 1, m->http[i].by_class[c]);
    head(w, "http_request_duration_seconds", "histogram", "Time to answer, by handler and method.");
    for (size_t i = 0; i < m->n_http; i++) {
        char label[HANDLER_BYTES + 48];
        (void)snprintf(label, sizeof label, "handler=\"%s\",method=\"%s\"", m->http[i].handler,
                       methods[m->http[i].method]);
        put_buckets(w, "http_request_duration_seconds", label, LE(http_le), m->http[i].count,
                    m->http[i].sum);
    }
    head(w, "http_request_duration_highr_seconds", "histogram", "Time to answer.");
    put_buckets(w, "http_request_duration_highr_seconds", "", m->highr.le, m->highr.n_le,
                m->highr.count, m->highr.sum);
}

/* Of caches with a checkpoint's own scales. */
static void write_saturated(writer *w, const nb_engine_stats *st)
{
    counter(w, "nibble:kv_saturated_values_total",
            "Cached values that the checkpoint's own scale has cut off.", (double)st->n_saturated);
}

/* Fraction refined: refined / scored; bytes read beyond the records': planes / records. */
static void write_thrift(writer *w, const nb_engine_stats *st)
{
    gauge(w, "nibble:thrift_residual_bytes", "Bytes of residual planes and of the pool of rows.",
          (double)w->m->residual_bytes);
    counter(w, "nibble:thrift_scored_tokens_total",
            "Cached tokens scored by decode steps, in all layers.", (double)st->thrift_scored);
    counter(w, "nibble:thrift_refined_tokens_total", "Of these read at 8 bits.",
            (double)st->thrift_refined);
    counter(w, "nibble:thrift_over_tokens_total", "Of these chosen, but beyond the cap.",
            (double)st->thrift_over);
    counter(w, "nibble:thrift_pool_hits_total", "Rows of refined tokens found in the pool.",
            (double)st->thrift_pool_hits);
    head(w, "nibble:thrift_read_bytes_total", "counter",
         "Bytes that these decode steps have read, by what holds them.");
    sample(w, "nibble:thrift_read_bytes_total", "from=\"records\"", (double)st->thrift_base_bytes);
    sample(w, "nibble:thrift_read_bytes_total", "from=\"planes\"",
           (double)st->thrift_residual_bytes);
}

static void write_refills(writer *w, const nb_engine_stats *st)
{
    gauge(w, "nibble:num_refills_waiting", "Answers to be computed as the next turn's prompt.",
          (double)st->n_refill_waiting);
    gauge(w, "nibble:num_refill_tokens_waiting", "Tokens of waiting refills, not computed yet.",
          (double)st->refill_waiting_tok);
    counter(w, "nibble:refill_tokens_total", "Tokens of answers computed again while idle.",
            (double)st->refill_tok);
    counter(w, "nibble:refill_seconds_total", "Time spent on refills, beside that of steps.",
            st->refill_s);
    head(w, "nibble:refills_total", "counter",
         "Refills: cached to the last full block, or dropped.");
    sample(w, "nibble:refills_total", "result=\"cached\"", (double)st->n_refill_done);
    sample(w, "nibble:refills_total", "result=\"dropped\"", (double)st->n_refill_dropped);
}

static void write_ours(writer *w, const nb_engine_stats *st, const nb_metrics_gauges *g)
{
    const nb_metrics *m = w->m;
    char record[64];
    (void)snprintf(record, sizeof record, "record=\"%s\"", m->record);
    const struct {
        const char *use;
        size_t n_block;
    } uses[] = { { "use=\"free\"", st->n_block_free },
                 { "use=\"held\"", st->n_block_held },
                 { "use=\"cached_once\"", st->n_block_once },
                 { "use=\"cached_many\"", st->n_block_many } };
    head(w, "nibble:kv_bytes_per_token", "gauge", "Bytes of KV cache per token, all layers.");
    sample(w, "nibble:kv_bytes_per_token", record, m->kv_bytes_per_tok);
    head(w, "nibble:kv_pool_bytes", "gauge",
         "Bytes of the KV pool by use; tails are the open pages beside it.");
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        sample(w, "nibble:kv_pool_bytes", uses[i].use,
               (double)uses[i].n_block * (double)m->block_bytes);
    sample(w, "nibble:kv_pool_bytes", "use=\"tails\"", (double)m->tail_bytes);
    gauge(w, "nibble:weight_bytes", "Bytes of the weights.", (double)m->weight_bytes);
    gauge(w, "nibble:ranks", "Ranks: they compute every token together, or have requests of their own.",
          (double)m->n_rank);
    gauge(w, "nibble:workspace_bytes", "Bytes of activations and logits.",
          (double)m->workspace_bytes);
    gauge(w, "nibble:num_waiting_tokens", "Prompt tokens not computed yet.",
          (double)st->n_waiting_tok);
    counter(w, "nibble:kv_evictions_total", "Cached blocks evicted for room.",
            (double)st->n_evicted);
    counter(w, "nibble:preempted_tokens_total", "Computed tokens given up by preemptions.",
            (double)st->preempted_tok);
    counter(w, "nibble:readmission_queries_total",
            "Tokens looked up in the prefix cache after preemptions.", (double)st->again_queries);
    counter(w, "nibble:readmission_hits_total",
            "Tokens found in the prefix cache after preemptions.", (double)st->again_hits);
    counter(w, "nibble:nonfinite_values_refused_total",
            "Requests ended because a value to be stored was not finite.", (double)st->n_nonfinite);
    write_refills(w, st);
    write_saturated(w, st);
    if (m->thrift) write_thrift(w, st);
    counter(w, "nibble:steps_total", "Steps of the engine.", (double)st->n_step);
    counter(w, "nibble:step_seconds_total", "Time spent in steps.", st->step_s);
    gauge(w, "nibble:uptime_seconds", "Since the engine was created.", st->uptime_s);
    gauge(w, "nibble:http_connections", "Open connections.", (double)g->n_connections);
    gauge(w, "nibble:http_requests_in_flight", "Requests being answered.", (double)g->n_exchanges);
    counter(w, "nibble:http_connections_unanswered_total",
            "Connections closed without an answer because too many were open.",
            (double)g->n_unanswered);
    counter(w, "nibble:log_lines_dropped_total",
            "Log lines dropped because nobody took them in time, or they could not be written.",
            (double)g->n_log_dropped);
    counter(w, "nibble:requests_refused_total", "Requests answered with 503.",
            (double)m->n_refused);
}

static void plain(writer *w, const char *name, const char *type, const char *help, double x)
{
    head(w, name, type, help);
    PUT(w, "%s ", name);
    put_number(w, x);
    PUT(w, "\n");
}

/* The names that the official clients export. */
static void write_process(writer *w)
{
    nb_process p;
    if (!nb_process_read(&p)) return;
    plain(w, "process_resident_memory_bytes", "gauge", "Resident memory.",
          (double)p.resident_bytes);
    plain(w, "process_virtual_memory_bytes", "gauge", "Virtual memory.", (double)p.virtual_bytes);
    plain(w, "process_cpu_seconds_total", "counter", "Processor time, user and system.", p.cpu_s);
    plain(w, "process_open_fds", "gauge", "Open file descriptors.", (double)p.n_fd);
    plain(w, "process_max_fds", "gauge", "Limit of open file descriptors.", (double)p.max_fd);
}

nb_status nb_metrics_write(const nb_metrics *m, const nb_engine_stats *st,
                           const nb_metrics_gauges *g, nb_buf *out)
{
    writer w = { .m = m, .out = out };
    write_ranks(&w, st);
    write_engine_counters(&w, st);
    write_requests(&w);
    write_ours(&w, st, g);
    write_http(&w);
    write_process(&w);
    return w.st;
}
