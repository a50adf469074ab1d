/* serve.c - the server: options with their defaults, the table of routes, start and end. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "os/file.h"
#include "serve/job.h"
#include "serve/page.h"

enum { CONFIG_MAX_BYTES = 16 << 20 };

/* `open`: needs no key where keys are set.  Only what tells of the machine's health is open: whatever
 * computes, changes state or shows texts is not. */
static const nb_http_route api_route[] = {
    { "POST", "/v1/chat/completions", nb_api_chat, false },
    { "POST", "/v1/completions", nb_api_completions, false },
    { "POST", "/v1/chat/completions/render", nb_api_chat_render, false },
    { "POST", "/v1/completions/render", nb_api_completions_render, false },
    { "POST", "/v1/responses", nb_api_responses, false },
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
    { "POST", "/reset_prefix_cache", nb_api_reset_prefix_cache, false },
    { "GET", "/api/check", nb_api_check, false },
};

/* ---- what HTTP tells ---- */

static bool is_logged(const nb_serve *s, nb_str method, nb_str path, int status)
{
    static const char *const by_job[] = { "/v1/chat/completions", "/v1/completions",
                                          "/v1/messages", "/v1/responses" };
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

static bool is_route(const char *path)
{
    for (size_t i = 0; i < NB_COUNT(api_route); i++)
        if (strcmp(api_route[i].path, path) == 0) return true;
    return false;
}

/* For a path that does not exist: the one that may be meant, or all of the API. */
static nb_status list_paths(const nb_serve *s, nb_str path, nb_buf *out)
{
    const char *before = "";
    char with_v1[64];
    if (path.n_bytes < sizeof with_v1 - 3) {
        (void)snprintf(with_v1, sizeof with_v1, "/v1%.*s", (int)path.n_bytes, path.p ? path.p : "");
        if (is_route(with_v1)) return nb_buf_printf(out, "no such path; did you mean %s?", with_v1);
    }
    NB_TRY(nb_buf_add_c(out, "no such path; the API has"));
    for (size_t i = 0; i < NB_COUNT(api_route); i++) {
        const char *p = api_route[i].path;
        if (strcmp(p, before) == 0 || (strcmp(p, "/api/check") == 0 && !s->o.dev_endpoints))
            continue;
        NB_TRY(nb_buf_printf(out, "%s %s", i ? "," : "", p));
        before = p;
    }
    return NB_OK;
}

/* Error answers of HTTP itself. */
static void error_body(void *ctx, const nb_http_ex *ex, int status, const char *message,
                       nb_buf *body)
{
    nb_buf line = { 0 };
    if (status == 404 && list_paths(ctx, nb_http_path(ex), &line) == NB_OK) message = line.p;
    nb_error_body(ctx, ex, status, message, body);
    nb_buf_deinit(&line);
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

static void on_drain(void *ctx)
{
    nb_serve *s = ctx;
    char line[160];
    const size_t n = nb_http_n_exchanges(s->http);
    const char *again = atomic_load_explicit(&s->again, memory_order_relaxed);
    if (n == 0) return;
    (void)snprintf(line, sizeof line, "finishing %zu request%s; %s", n, n == 1 ? "" : "s",
                   again ? again : "stop again to end them");
    nb_log(s, NB_LOG_INFO, "stop", "message", line, NULL);
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

/* dir/name, a JSON object; *out is NULL where there is no such file. */
static nb_status read_object(const char *dir, const char *name, json_t **out, nb_error *err)
{
    nb_buf path = { 0 }, text = { 0 };
    bool found = false;
    json_error_t je = { 0 };
    *out = NULL;
    nb_status st = nb_path_join(&path, dir, name);
    if (st != NB_OK) (void)nb_fail(err, st, "out of memory");
    if (st == NB_OK) st = nb_path_found(path.p, &found, err);
    if (st == NB_OK && found) st = nb_file_read(path.p, CONFIG_MAX_BYTES, &text, err);
    if (st == NB_OK && found) {
        json_t *doc = json_loadb(text.p ? text.p : "", text.n_bytes, 0, &je);
        if (json_is_object(doc)) {
            *out = doc;
        } else {
            st = nb_fail(err, NB_ERR_FORMAT, "%s: expected a JSON object%s%s", path.p,
                         doc ? "" : ": ", doc ? "" : je.text);
            json_decref(doc);
        }
    }
    nb_buf_deinit(&path);
    nb_buf_deinit(&text);
    return st;
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
    { "repetition_penalty", offsetof(nb_sampling, repetition_penalty), 1e-6, 1e6, true },
};

/* Sampling defaults: the keys that vLLM takes of a generation_config.json.  where: for messages. */
static nb_status take_defaults(nb_serve *s, const json_t *doc, const char *where, nb_error *err)
{
    for (size_t i = 0; i < NB_COUNT(default_rows); i++) {
        const default_row *r = &default_rows[i];
        const json_t *v = json_object_get(doc, r->name);
        if (!v || json_is_null(v)) continue;
        const double x = json_number_value(v);
        const bool ok = json_is_number(v) && x <= r->hi && (r->lo_in ? x >= r->lo : x > r->lo);
        if (!ok)
            return nb_fail(err, NB_ERR_RANGE, "%s: %s: expected a number from %g to %g", where,
                           r->name, r->lo, r->hi);
        *(double *)(void *)((char *)&s->sampling + r->offset) = x;
    }
    const json_t *k = json_object_get(doc, "top_k");
    const json_int_t n = json_integer_value(json_object_get(doc, "max_new_tokens"));
    if (json_is_integer(k))
        s->sampling.top_k = json_integer_value(k) > 0 ? (size_t)json_integer_value(k) : 0;
    if (n > 0) s->default_max_tokens = (size_t)n;
    return NB_OK;
}

static nb_status read_generation_config(nb_serve *s, nb_error *err)
{
    const char *from = s->o.generation_config ? s->o.generation_config : "auto";
    nb_error why = { 0 };
    if (strcmp(from, "vllm") == 0) return NB_OK;
    const bool own = strcmp(from, "auto") == 0;
    json_t *doc;
    NB_TRY(read_object(own ? s->o.model : from, "generation_config.json", &doc, err));
    if (!doc && !own)
        return nb_fail(err, NB_ERR_NOT_FOUND, "%s: no generation_config.json to read there", from);
    nb_status st = doc ? take_defaults(s, doc, "generation_config.json", &why) : NB_OK;
    if (st != NB_OK)
        st = nb_fail(err, st, "%s (--generation-config vllm leaves the file out)", why.msg);
    json_decref(doc);
    return st;
}

/* An object from the options; *out is NULL where there is none. */
static nb_status option_object(const char *name, const char *text, json_t **out, nb_error *err)
{
    json_error_t e;
    *out = NULL;
    if (!text) return NB_OK;
    json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (json_is_object(doc)) {
        *out = doc;
        return NB_OK;
    }
    json_decref(doc);
    return nb_fail(err, NB_ERR_ARG, "%s: expected a JSON object", name);
}

static nb_status read_override(nb_serve *s, nb_error *err)
{
    static const char name[] = "--override-generation-config";
    json_t *doc = NULL, *v;
    const char *key;
    NB_TRY(option_object(name, s->o.override_generation_config, &doc, err));
    nb_status st = NB_OK;
    json_object_foreach(doc, key, v)
    {
        bool known = strcmp(key, "top_k") == 0 || strcmp(key, "max_new_tokens") == 0;
        if (known && !json_is_integer(v))
            st = nb_fail(err, NB_ERR_ARG, "%s: %s: expected an integer", name, key);
        for (size_t i = 0; i < NB_COUNT(default_rows); i++)
            known = known || strcmp(key, default_rows[i].name) == 0;
        if (!known)
            st = nb_fail(err, NB_ERR_ARG,
                         "%s: %.40s is not supported; expected temperature, top_p, top_k, min_p, "
                         "repetition_penalty or max_new_tokens",
                         name, key);
    }
    if (st == NB_OK) st = take_defaults(s, doc, name, err);
    json_decref(doc);
    return st;
}

static nb_status read_chat_rules(nb_serve *s, nb_error *err)
{
    const char *f = s->o.chat_content_format ? s->o.chat_content_format : "auto";
    s->chat.hide_tools = s->o.hide_unused_tools;
    s->chat.content = strcmp(f, "string") == 0   ? NB_CONTENT_STRING
                      : strcmp(f, "openai") == 0 ? NB_CONTENT_PARTS
                                                 : NB_CONTENT_AUTO;
    return option_object("--default-chat-template-kwargs", s->o.chat_template_kwargs,
                         &s->chat.kwargs, err);
}

/* What requests do not say. */
static nb_status read_defaults(nb_serve *s, nb_error *err)
{
    nb_sampling_default(&s->sampling);
    NB_TRY(read_generation_config(s, err));
    NB_TRY(read_override(s, err));
    return read_chat_rules(s, err);
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

static bool template_mentions(const void *text, const char *word)
{
    return text && nb_text_template_mentions(text, word);
}

static nb_status fill_in(nb_serve *s, nb_error *err)
{
    nb_serve_options *o = &s->o;
    o->max_logprobs = or_size(o->max_logprobs, 20);
    o->max_n = or_size(o->max_n, 128);
    o->max_stop = or_size(o->max_stop, 64);
    if (o->max_logprobs > 20 || o->max_stop > 64)
        return nb_fail(err, NB_ERR_RANGE, "%s: at most %d",
                       o->max_stop > 64 ? "max_stop" : "max_logprobs", o->max_stop > 64 ? 64 : 20);
    NB_TRY(name_model(s, err));
    NB_TRY(read_defaults(s, err));
    NB_TRY(read_object(o->model, "tokenizer_config.json", &s->tokenizer_info, err));
    bound_prompts(s);
    s->lim = (nb_ask_limits){ .sampling = s->sampling,
                              .vocab = s->info.vocab,
                              .max_model_len = s->info.max_model_len,
                              .max_logprobs = o->max_logprobs,
                              .max_n = o->max_n,
                              .max_stop = o->max_stop,
                              .priority = o->priority_scheduling,
                              .force_usage = o->force_include_usage,
                              .tokens_as_ids = o->tokens_as_token_ids,
                              .template_mentions = template_mentions,
                              .template_ctx = s->text };
    (void)snprintf(s->fingerprint, sizeof s->fingerprint, "nibble-%s-%s", nb_version(),
                   s->info.kv_dtype ? s->info.kv_dtype : "kv");
    return NB_OK;
}

static nb_status build_routes(nb_serve *s, size_t *n, nb_error *err)
{
    /* some clients ask HEAD / whether there is a server */
    static const nb_http_route root = { "GET", "/", nb_api_root, true };
    const nb_http_route *page = s->o.no_page ? &root : nb_page_route;
    const size_t n_page = s->o.no_page ? 1 : nb_page_n_route, n_api = NB_COUNT(api_route);
    const size_t n_model = s->o.n_served_name;
    s->route = calloc(n_api + n_page + n_model, sizeof *s->route);
    if (!s->route) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    memcpy(s->route, api_route, sizeof api_route);
    memcpy(s->route + n_api, page, n_page * sizeof *s->route);
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

static nb_http_options http_options(const nb_serve_options *o, const nb_keys *keys, nb_serve *s)
{
    return (nb_http_options){ .host = o->host,
                              .port = (uint16_t)or_size(o->port, o->any_port ? 0 : 8000),
                              .any_port = o->any_port,
                              .uds = o->uds,
                              .tls_cert = o->tls_cert,
                              .tls_key = o->tls_key,
                              .tls_key_password = o->tls_key_password,
                              .tls_ca = o->tls_ca,
                              .api_key = keys->p,
                              .n_api_key = keys->n,
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
                              .error_body = error_body,
                              .on_warn = on_warn,
                              .on_drain = on_drain,
                              .ctx = s };
}

static nb_status open_http(nb_serve *s, nb_error *err)
{
    size_t n_route = 0;
    nb_keys keys = { 0 };
    NB_TRY(nb_keys_read(&s->o, &keys, err));
    const nb_http_options h = http_options(&s->o, &keys, s);
    nb_status st = build_routes(s, &n_route, err);
    if (st == NB_OK) st = nb_http_create(&h, s->route, n_route, &s->http, err);
    if (st == NB_OK && s->o.drain_s > 0) nb_http_set_drain(s->http, s->o.drain_s);
    nb_keys_deinit(&keys);
    return st;
}

nb_status nb_serve_check(const nb_serve_options *o, nb_error *err)
{
    nb_serve s = { .o = *o };
    nb_http *http = NULL;
    nb_keys keys = { 0 };
    NB_TRY(nb_keys_read(o, &keys, err));
    const nb_http_options h = http_options(o, &keys, &s);
    nb_status st = read_defaults(&s, err);
    if (st == NB_OK) st = nb_http_create(&h, NULL, 0, &http, err);
    nb_http_destroy(http);
    json_decref(s.chat.kwargs);
    nb_keys_deinit(&keys);
    return st;
}

/* ---- the server ---- */

nb_status nb_serve_create(const nb_serve_options *o, nb_engine *e, nb_serve **out, nb_error *err)
{
    if (!o || !e || !out || !o->log)
        return nb_fail(err, NB_ERR_ARG, "no options, engine or log given");
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

void nb_serve_stop(nb_serve *s, const char *again)
{
    atomic_store_explicit(&s->again, again, memory_order_relaxed);
    nb_http_stop(s->http);
}

void nb_serve_reload(nb_serve *s)
{
    nb_http_post(s->http, nb_reload, s);
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
    json_decref(s->chat.kwargs);
    free(s->own_name);
    free(s->route);
    nb_arena_deinit(&s->mem);
    free(s);
}
