/* metrics.c - see metrics.h: what is counted.  metrics_write.c makes the text of it.
 *
 * One table row per histogram and per plain value; the text is made on demand from these
 * counters, the engine's statistics and /proc.  Series exist from the start with value 0, as
 * in vLLM, so that a rate over the first scrape is right.  What comes from outside and
 * becomes a label (paths, methods) is bounded: beyond MAX_HTTP pairs of handler and method
 * everything is counted under "none". */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "serve/metrics_internal.h"

/* ---- tables --------------------------------------------------------------------- */

static const double ttft_le[] = { .001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                  1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560 };
static const double itl_le[] = { .01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                 .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80 };
static const double e2e_le[] = { .3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680 };
static const double params_n_le[] = { 1, 2, 5, 10, 20 };
const double nb_metrics_step_le[N_STEP_BUCKET] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384 };
static const double highr_le[] = { .01, .025, .05, .075, .1,  .25, .5,  .75, 1,  1.5, 2,
                                   2.5, 3,    3.5, 4,    4.5, 5,   7.5, 10,  30, 60 };
const double nb_metrics_http_le[N_HTTP_BUCKET] = { .1, .5, 1 };

#define LE(table) table, sizeof table / sizeof *table
const nb_hist_def nb_hist_defs[N_HIST] = {
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

const char *const nb_metrics_reasons[N_REASON] = { "stop", "length", "abort", "error", "repetition" };
enum { REASON_ABORT = 2, REASON_ERROR = 3 };

const char *const nb_metrics_methods[N_METHOD] = { "GET", "POST",  "HEAD",   "OPTIONS",
                                       "PUT", "PATCH", "DELETE", "other" };
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
        if (strcmp(reason, nb_metrics_reasons[i]) == 0) return i;
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
    while (k + 1 < N_METHOD && !nb_str_eqc(method, nb_metrics_methods[k])) k++;
    http_row *r = http_find(m, name, k);
    if (!r) r = http_find(m, "none", k);
    if (!r) return;
    if (!(seconds >= 0)) seconds = 0;
    while (bucket < N_HTTP_BUCKET && seconds > nb_metrics_http_le[bucket]) bucket++;
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
        m->h[i].le = nb_hist_defs[i].le ? nb_hist_defs[i].le : m->len_le;
        m->h[i].n_le = nb_hist_defs[i].le ? nb_hist_defs[i].n_le : m->n_len_le;
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
