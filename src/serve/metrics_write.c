/* metrics_write.c - see metrics.h: the text.  The first failure is kept, what follows does nothing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "serve/metrics_internal.h"
#include "serve/process.h"

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
    put_buckets(w, "vllm:iteration_tokens_total", w->m->labels.p, nb_metrics_step_le, N_STEP_BUCKET, st->step_tok,
                (double)st->step_tok_sum);
}

static void write_requests(writer *w)
{
    const nb_metrics *m = w->m;
    head(w, "vllm:request_success_total", "counter", "Finished requests by their reason.");
    for (size_t i = 0; i < N_REASON; i++) {
        char label[48];
        (void)snprintf(label, sizeof label, "finished_reason=\"%s\"", nb_metrics_reasons[i]);
        sample(w, "vllm:request_success_total", label, (double)m->success[i]);
    }
    for (size_t i = 0; i < N_HIST; i++) put_hist(w, nb_hist_defs[i].name, nb_hist_defs[i].help, &m->h[i]);
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
                    m->http[i].handler, nb_metrics_methods[m->http[i].method], c + 1, m->http[i].by_class[c]);
    head(w, "http_request_duration_seconds", "histogram", "Time to answer, by handler and method.");
    for (size_t i = 0; i < m->n_http; i++) {
        char label[HANDLER_BYTES + 48];
        (void)snprintf(label, sizeof label, "handler=\"%s\",method=\"%s\"", m->http[i].handler,
                       nb_metrics_methods[m->http[i].method]);
        put_buckets(w, "http_request_duration_seconds", label, nb_metrics_http_le, N_HTTP_BUCKET, m->http[i].count,
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
