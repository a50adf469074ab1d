/* serve.c - the server: options with their defaults, the table of routes, start and end. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "os/file.h"
#include "serve/job.h"
#include "serve/page.h"

enum { CONFIG_MAX_BYTES = 16 << 20 };

/* `open`: needs no key. What tells of the machine's health is open, what computes is not. */
static const nb_http_route api_route[] = {
    { "POST", "/v1/chat/completions", nb_api_chat, false },
    { "POST", "/v1/completions", nb_api_completions, false },
    { "POST", "/v1/chat/completions/render", nb_api_chat_render, false },
    { "POST", "/v1/completions/render", nb_api_completions_render, false },
    { "POST", "/v1/messages", nb_api_messages, false },
    { "POST", "/v1/messages/count_tokens", nb_api_count_tokens, false },
    { "GET", "/v1/models", nb_api_models, false },
    { "POST", "/tokenize", nb_api_tokenize, false },
    { "POST", "/detokenize", nb_api_detokenize, false },
    { "GET", "/tokenizer_info", nb_api_tokenizer_info, false },
    { "GET", "/health", nb_api_health, true },
    { "GET", "/ping", nb_api_ping, true },
    { "POST", "/ping", nb_api_ping, true },
    { "GET", "/version", nb_api_version, true },
    { "GET", "/load", nb_api_load, true },
    { "GET", "/metrics", nb_api_metrics, true },
    { "POST", "/reset_prefix_cache", nb_api_reset_prefix_cache, true },
    { "GET", "/api/check", nb_api_check, true },
};

/* ---- what HTTP tells ---- */

static bool is_logged(const nb_serve *s, nb_str method, nb_str path, int status)
{
    static const char *const by_job[] = { "/v1/chat/completions", "/v1/completions",
                                          "/v1/messages" };
    if (status >= 500) return true;
    if (s->o.no_log_requests) return false;
    for (size_t i = 0; i < NB_COUNT(by_job); i++) /* these have a line of their own */
        if (nb_str_eqc(path, by_job[i]) && (status == 200 || status == 499)) return false;
    return status >= 400 || !nb_str_eqc(method, "GET"); /* probes and scrapes are not told */
}

/* A terminated copy of what a client sent, cut. */
static const char *short_text(char *out, size_t n_out, nb_str s)
{
    const size_t n = s.n_bytes < n_out - 1 ? s.n_bytes : n_out - 1;
    if (n) memcpy(out, s.p, n);
    out[n] = 0;
    return out;
}

static void on_done(void *ctx, const nb_http_ex *ex, int status, double seconds)
{
    const nb_serve *s = ctx;
    const nb_http_route *r = nb_http_route_of(ex);
    const nb_str method = nb_http_method(ex), path = nb_http_path(ex);
    nb_metrics_http(s->metrics, nb_str_c(r ? r->path : "none"), method, status, seconds);
    if (!is_logged(s, method, path, status)) return;
    char text[3][256], num[2][32];
    const char *note = nb_http_note(ex); /* why it was refused */
    (void)snprintf(num[0], sizeof num[0], "%d", status);
    (void)snprintf(num[1], sizeof num[1], "%.6g", seconds);
    nb_log(s, status >= 500 ? NB_LOG_WARN : NB_LOG_INFO, "http", "id", nb_http_request_id(ex),
           "method", short_text(text[0], sizeof text[0], method), "path",
           short_text(text[1], sizeof text[1], path), "#status", num[0], "#seconds", num[1], "peer",
           short_text(text[2], sizeof text[2], nb_http_peer(ex)), *note ? "error" : NULL, note,
           NULL);
}

static void on_warn(void *ctx, const char *line)
{
    nb_log(ctx, NB_LOG_WARN, "http", "message", line, NULL);
}

/* ---- names and files of the model ---- */

static nb_status name_model(nb_serve *s, nb_error *err)
{
    const char *path = s->o.model ? s->o.model : "model";
    if (s->o.n_served_name == 0) {
        size_t end = strlen(path), from;
        while (end > 1 && path[end - 1] == '/') end--;
        for (from = end; from && path[from - 1] != '/'; from--) {}
        s->own_name = calloc(1, end - from + 1);
        if (!s->own_name) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
        memcpy(s->own_name, path + from, end - from);
        s->default_name[0] = s->own_name;
        s->o.served_name = s->default_name;
        s->o.n_served_name = 1;
    }
    s->o.model = path;
    s->name = s->o.served_name[0];
    return NB_OK;
}

/* dir/name as JSON; NULL where there is no such file, or it is not an object. */
static json_t *read_object(const char *dir, const char *name)
{
    nb_buf path = { 0 }, text = { 0 };
    json_t *doc = NULL;
    if (nb_path_join(&path, dir, name) == NB_OK && nb_path_is_file(path.p) &&
        nb_file_read(path.p, CONFIG_MAX_BYTES, &text, NULL) == NB_OK && text.n_bytes)
        doc = json_loadb(text.p, text.n_bytes, 0, NULL);
    nb_buf_deinit(&path);
    nb_buf_deinit(&text);
    if (json_is_object(doc)) return doc;
    json_decref(doc);
    return NULL;
}

typedef struct default_row {
    const char *name;
    size_t offset;
    double lo, hi; /* lo < value <= hi, or value == lo where lo_in */
    bool lo_in;
} default_row;

static const default_row default_rows[] = {
    { "temperature", offsetof(nb_sampling, temperature), 0, 1e6, true },
    { "top_p", offsetof(nb_sampling, top_p), 0, 1, false },
    { "min_p", offsetof(nb_sampling, min_p), 0, 1, true },
    { "repetition_penalty", offsetof(nb_sampling, repetition_penalty), 0, 1e6, false },
};

/* Sampling defaults of generation_config.json: the keys that vLLM takes. */
static nb_status take_defaults(nb_serve *s, const json_t *doc, nb_error *err)
{
    for (size_t i = 0; i < NB_COUNT(default_rows); i++) {
        const default_row *r = &default_rows[i];
        const json_t *v = json_object_get(doc, r->name);
        if (!v || json_is_null(v)) continue;
        const double x = json_number_value(v);
        const bool ok = json_is_number(v) && x <= r->hi && (r->lo_in ? x >= r->lo : x > r->lo);
        if (!ok)
            return nb_fail(err, NB_ERR_RANGE,
                           "generation_config.json: %s: expected a number from %g to %g "
                           "(--generation-config vllm leaves the file out)",
                           r->name, r->lo, r->hi);
        *(double *)(void *)((char *)&s->sampling + r->offset) = x;
    }
    const json_int_t k = json_integer_value(json_object_get(doc, "top_k"));
    const json_int_t n = json_integer_value(json_object_get(doc, "max_new_tokens"));
    if (k > 0) s->sampling.top_k = (size_t)k;
    if (n > 0) s->default_max_tokens = (size_t)n;
    return NB_OK;
}

static nb_status read_defaults(nb_serve *s, nb_error *err)
{
    const char *from = s->o.generation_config ? s->o.generation_config : "auto";
    nb_sampling_default(&s->sampling);
    if (strcmp(from, "vllm") == 0) return NB_OK;
    const bool own = strcmp(from, "auto") == 0;
    json_t *doc = read_object(own ? s->o.model : from, "generation_config.json");
    if (!doc && !own)
        return nb_fail(err, NB_ERR_NOT_FOUND, "%s: no generation_config.json to read there", from);
    const nb_status st = doc ? take_defaults(s, doc, err) : NB_OK;
    json_decref(doc);
    return st;
}

/* More text than this is more tokens than the context holds, whatever it says: not worth
 * tokenising.  The factor is for normalizers that make a text shorter. */
static void bound_prompts(nb_serve *s)
{
    enum { SHRINK = 4 };
    size_t longest = 1;
    const size_t n_vocab = s->text ? nb_text_vocab_size(s->text) : 0;
    for (size_t i = 0; i < n_vocab; i++) {
        size_t n = 0;
        if (nb_text_token_bytes(s->text, (uint32_t)i, &n) && n > longest) longest = n;
    }
    const size_t tok = s->info.max_model_len + 1;
    s->max_prompt_bytes = longest < SIZE_MAX / SHRINK / tok ? tok * longest * SHRINK : SIZE_MAX;
}

/* ---- options ---- */

static size_t or_size(size_t v, size_t dflt)
{
    return v ? v : dflt;
}

static nb_status fill_in(nb_serve *s, nb_error *err)
{
    nb_serve_options *o = &s->o;
    o->port = (uint16_t)or_size(o->port, o->any_port ? 0 : 8000);
    o->max_logprobs = or_size(o->max_logprobs, 20);
    o->max_n = or_size(o->max_n, 128);
    o->max_stop = or_size(o->max_stop, 64);
    if (o->max_logprobs > 20 || o->max_stop > 64)
        return nb_fail(err, NB_ERR_RANGE, "%s: at most %d",
                       o->max_stop > 64 ? "max_stop" : "max_logprobs", o->max_stop > 64 ? 64 : 20);
    NB_TRY(name_model(s, err));
    NB_TRY(read_defaults(s, err));
    s->tokenizer_info = read_object(o->model, "tokenizer_config.json");
    bound_prompts(s);
    s->lim = (nb_ask_limits){ .sampling = s->sampling,
                              .vocab = s->info.vocab,
                              .max_model_len = s->info.max_model_len,
                              .max_logprobs = o->max_logprobs,
                              .max_n = o->max_n,
                              .max_stop = o->max_stop,
                              .priority = o->priority_scheduling,
                              .force_usage = o->force_include_usage };
    (void)snprintf(s->fingerprint, sizeof s->fingerprint, "nibble-%s-%s", nb_version(),
                   s->info.kv_dtype ? s->info.kv_dtype : "kv");
    return NB_OK;
}

static nb_status build_routes(nb_serve *s, size_t *n, nb_error *err)
{
    const size_t n_page = s->o.no_page ? 0 : nb_page_n_route, n_api = NB_COUNT(api_route);
    const size_t n_model = s->o.n_served_name;
    s->route = calloc(n_api + n_page + n_model, sizeof *s->route);
    if (!s->route) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    memcpy(s->route, api_route, sizeof api_route);
    if (n_page) memcpy(s->route + n_api, nb_page_route, n_page * sizeof *s->route);
    for (size_t i = 0; i < n_model; i++) {
        const char *name = s->o.served_name[i];
        char *path = nb_arena_alloc(&s->mem, NB_MODEL_PATH_BYTES + strlen(name) + 1);
        if (!path) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
        memcpy(path, NB_MODEL_PATH, NB_MODEL_PATH_BYTES);
        memcpy(path + NB_MODEL_PATH_BYTES, name, strlen(name) + 1);
        s->route[n_api + n_page + i] = (nb_http_route){ "GET", path, nb_api_model, false };
    }
    *n = n_api + n_page + n_model;
    return NB_OK;
}

static nb_status open_http(nb_serve *s, nb_error *err)
{
    const nb_serve_options *o = &s->o;
    const nb_http_options h = { .host = o->host,
                                .port = o->port,
                                .any_port = o->any_port,
                                .uds = o->uds,
                                .tls_cert = o->tls_cert,
                                .tls_key = o->tls_key,
                                .tls_key_password = o->tls_key_password,
                                .tls_ca = o->tls_ca,
                                .api_key = o->api_key,
                                .n_api_key = o->n_api_key,
                                .cors_origin = o->cors_origin,
                                .n_cors_origin = o->n_cors_origin,
                                .max_header_bytes = o->max_header_bytes,
                                .max_body_bytes = o->max_body_bytes,
                                .max_connections = o->max_connections,
                                .read_timeout_s = o->read_timeout_s,
                                .idle_timeout_s = o->idle_timeout_s,
                                .write_timeout_s = o->write_timeout_s,
                                .request_id_headers = o->request_id_headers,
                                .on_done = on_done,
                                .error_body = nb_error_body,
                                .on_warn = on_warn,
                                .ctx = s };
    size_t n_route = 0;
    NB_TRY(build_routes(s, &n_route, err));
    NB_TRY(nb_http_create(&h, s->route, n_route, &s->http, err));
    if (o->drain_s > 0) nb_http_set_drain(s->http, o->drain_s);
    return NB_OK;
}

/* ---- the server ---- */

nb_status nb_serve_create(const nb_serve_options *o, nb_engine *e, nb_serve **out, nb_error *err)
{
    if (!o || !e || !out) return nb_fail(err, NB_ERR_ARG, "no options or engine given");
    nb_serve *s = calloc(1, sizeof *s);
    if (!s) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    s->o = *o;
    s->engine = e;
    s->text = nb_engine_text(e);
    s->created = (int64_t)time(NULL);
    nb_engine_get_info(e, &s->info);
    nb_status st = fill_in(s, err);
    if (st == NB_OK) {
        st = nb_metrics_create(s->name, &s->info, &s->metrics);
        if (st != NB_OK) (void)nb_fail(err, st, "no memory for the metrics");
    }
    if (st == NB_OK) st = open_http(s, err);
    if (st == NB_OK) st = nb_jobs_start(s, err);
    if (st != NB_OK) {
        nb_serve_destroy(s);
        return st;
    }
    *out = s;
    return NB_OK;
}

uint16_t nb_serve_port(const nb_serve *s)
{
    return nb_http_port(s->http);
}

nb_status nb_serve_run(nb_serve *s, nb_error *err)
{
    const nb_status st = nb_http_run(s->http, err);
    nb_jobs_wait(s); /* what the engine still had has been aborted by now */
    return st;
}

void nb_serve_stop(nb_serve *s)
{
    nb_http_stop(s->http);
}

void nb_serve_destroy(nb_serve *s)
{
    if (!s) return;
    if (s->prep.running) nb_jobs_wait(s);
    nb_jobs_stop(s);
    if (s->http) {
        nb_ops_stop(s);
        nb_check_stop(s);
        nb_page_stop(s);
        nb_http_destroy(s->http);
    }
    nb_metrics_destroy(s->metrics);
    json_decref(s->tokenizer_info);
    free(s->own_name);
    free(s->route);
    nb_arena_deinit(&s->mem);
    free(s);
}
