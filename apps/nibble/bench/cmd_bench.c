/* cmd_bench.c - `nibble bench serve`: a workload for an OpenAI-compatible server. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../cli.h"
#include "../options/opts.h"
#include "bench_client.h"
#include "bench_common.h"
#include "bench_data.h"
#include "bench_runs.h"
#include "bench_stats.h"

static const double FETCH_S = 60; /* for /v1/models, /tokenize */

typedef struct serve_bench {
    const bench_opts *o;
    bench_plan plan;
    bool chat;
    char *host, *path; /* of the URL; path: prefix and endpoint */
    char *prefix;
    unsigned port;
    bench_client *client;
    char *model;   /* name in requests */
    nb_text *text; /* of --tokenizer, or NULL */
    bench_set set;
    uint32_t *ids; /* [set.max_prompt] */
    size_t first;  /* index of the run's first item: the warm-ups are the last */
    bench_buf headers, head, tail, id_prefix;
} serve_bench;

/* ---- where -------------------------------------------------------------- */

static char *copy(const char *s, size_t n)
{
    char *p = malloc(n + 1);
    if (!p) return NULL;
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

/* http://HOST[:PORT][/PREFIX] */
static int parse_url(serve_bench *b)
{
    const bench_opts *o = b->o;
    const char *url = o->base_url, *p;
    if (!url) {
        b->host = copy(o->host, strlen(o->host));
        b->prefix = copy("", 0);
        b->port = (unsigned)o->port;
        return b->host && b->prefix ? CLI_OK : cli_failed("out of memory");
    }
    if (strncmp(url, "https://", 8) == 0)
        return cli_usage("--base-url %s: this client speaks no TLS", url);
    if (strncmp(url, "http://", 7) != 0)
        return cli_usage("--base-url %s: expected http://HOST:PORT", url);
    p = url + 7;
    const bool v6 = *p == '[';
    const size_t n = v6 ? strcspn(p, "]") : strcspn(p, ":/");
    b->host = v6 ? copy(p + 1, n ? n - 1 : 0) : copy(p, n);
    p += n + (v6 && p[n] == ']');
    b->port = 80;
    if (*p == ':') {
        char *end;
        const unsigned long port = strtoul(p + 1, &end, 10);
        if (p[1] < '0' || p[1] > '9' || port == 0 || port > 65535)
            return cli_usage("--base-url %s: its port is not in 1..65535", url);
        b->port = (unsigned)port;
        p = end;
    }
    size_t k = strlen(p);
    while (k && p[k - 1] == '/') k--;
    b->prefix = copy(p, k);
    if (!b->host || !b->prefix) return cli_failed("out of memory");
    if (!*b->host || (*p && *p != '/'))
        return cli_usage("--base-url %s: expected http://HOST:PORT", url);
    return CLI_OK;
}

/* A line break in a header would be another header. */
static bool one_line(const char *s)
{
    return !strpbrk(s, "\r\n");
}

static int make_headers(serve_bench *b)
{
    const bench_opts *o = b->o;
    bench_buf_str(&b->headers, "User-Agent: nibble-bench\r\n");
    for (size_t i = 0; i < o->header.n; i++) {
        const char *kv = o->header.p[i], *eq = strchr(kv, '=');
        if (!eq || eq == kv || !one_line(kv))
            return cli_usage("--header %s: expected KEY=VALUE", kv);
        bench_buf_add(&b->headers, kv, (size_t)(eq - kv));
        bench_buf_str(&b->headers, ": ");
        bench_buf_str(&b->headers, eq + 1);
        bench_buf_str(&b->headers, "\r\n");
    }
    for (size_t i = 0; i < o->api_key.n; i++)
        if (!one_line(o->api_key.p[i])) return cli_usage("--api-key: it has a line break");
    if (o->api_key.n == 1) {
        bench_buf_str(&b->headers, "Authorization: Bearer ");
        bench_buf_str(&b->headers, o->api_key.p[0]);
        bench_buf_str(&b->headers, "\r\n");
    }
    if (o->request_id_prefix && !one_line(o->request_id_prefix))
        return cli_usage("--request-id-prefix: it has a line break");
    bench_buf_str(&b->id_prefix, o->request_id_prefix ? o->request_id_prefix : "bench-");
    if (!o->request_id_prefix) {
        bench_buf_u64(&b->id_prefix, (uint64_t)time(NULL));
        bench_buf_str(&b->id_prefix, "-");
    }
    return CLI_OK;
}

static int open_client(serve_bench *b)
{
    const bench_opts *o = b->o;
    const char *endpoint = o->endpoint;
    int code = parse_url(b);
    if (code == CLI_OK) code = make_headers(b);
    if (code != CLI_OK) return code;
    if (!endpoint) endpoint = b->chat ? "/v1/chat/completions" : "/v1/completions";
    if (*endpoint != '/' || !one_line(endpoint) || strchr(endpoint, ' '))
        return cli_usage("--endpoint %s: expected a path", endpoint);
    const size_t n = strlen(b->prefix) + strlen(endpoint) + 1;
    b->path = malloc(n);
    if (!b->path || b->headers.failed || b->id_prefix.failed) return cli_failed("out of memory");
    (void)snprintf(b->path, n, "%s%s", b->prefix, endpoint);
    const bench_target target = { .host = b->host,
                                  .uds = o->uds,
                                  .port = b->port,
                                  .headers = b->headers.p,
                                  .keep_alive = o->keep_alive };
    return bench_client_create(&target, &b->client);
}

/* ---- what the server says ------------------------------------------------ */

/* Parsed JSON of an answer 200, or NULL after an error line. */
static json_t *ask(const serve_bench *b, const char *method, const char *path, const char *body)
{
    bench_buf full = { 0 };
    int status = 0;
    char *answer = NULL;
    json_t *j = NULL;
    bench_buf_str(&full, b->prefix);
    bench_buf_str(&full, path);
    if (full.failed) {
        (void)cli_failed("out of memory");
        return NULL;
    }
    const int code = bench_fetch(b->client, method, full.p, body, FETCH_S, false, &status, &answer);
    if (code == CLI_OK && status == 200) j = json_loads(answer, 0, NULL);
    if (code == CLI_OK && status != 200)
        (void)cli_failed("%s %s: status %d: %.300s", method, full.p, status, answer);
    else if (code == CLI_OK && !j)
        (void)cli_failed("%s %s: the answer is not JSON", method, full.p);
    bench_buf_deinit(&full);
    free(answer);
    return j;
}

static int wait_ready(serve_bench *b)
{
    const double until = cli_seconds() + b->o->ready_timeout_s;
    const struct timespec pause = { .tv_nsec = 100 * 1000 * 1000 };
    bench_buf path = { 0 };
    int code = CLI_OK;
    if (b->o->ready_timeout_s <= 0) return CLI_OK;
    bench_buf_str(&path, b->prefix);
    bench_buf_str(&path, "/health");
    for (bool ready = false; !ready && code == CLI_OK;) {
        int status = 0;
        char *answer = NULL;
        if (!path.failed &&
            bench_fetch(b->client, "GET", path.p, NULL, FETCH_S, true, &status, &answer) == CLI_OK)
            ready = status == 200;
        free(answer);
        if (!ready && cli_seconds() > until)
            code = cli_failed("the server is not ready after %g seconds", b->o->ready_timeout_s);
        else if (!ready)
            (void)nanosleep(&pause, NULL);
    }
    bench_buf_deinit(&path);
    return code;
}

static int choose_model(serve_bench *b, const char *name)
{
    if (name) {
        b->model = copy(name, strlen(name));
        return b->model ? CLI_OK : cli_failed("out of memory");
    }
    json_t *j = ask(b, "GET", "/v1/models", NULL);
    const json_t *id = json_object_get(json_array_get(json_object_get(j, "data"), 0), "id");
    int code = CLI_OK;
    if (!j)
        code = CLI_FAILED;
    else if (!json_is_string(id))
        code = cli_failed("/v1/models names no model: --model does");
    else if (!(b->model = copy(json_string_value(id), json_string_length(id))))
        code = cli_failed("out of memory");
    json_decref(j);
    return code;
}

/* bench_tok.encode through the server's /tokenize. */
static int encode_remote(const void *ctx, const char *text, size_t n_bytes, uint32_t **ids,
                         size_t *n_ids)
{
    const serve_bench *b = ctx;
    bench_buf body = { 0 };
    bench_buf_str(&body, "{\"model\":");
    bench_buf_json(&body, b->model, strlen(b->model));
    bench_buf_str(&body, ",\"add_special_tokens\":false,\"prompt\":");
    bench_buf_json(&body, text, n_bytes);
    bench_buf_str(&body, "}");
    json_t *j = body.failed ? NULL : ask(b, "POST", "/tokenize", body.p);
    bench_buf_deinit(&body);
    const json_t *tokens = json_object_get(j, "tokens");
    const size_t n = json_array_size(tokens);
    uint32_t *v = malloc((n ? n : 1) * sizeof *v);
    for (size_t i = 0; v && i < n; i++)
        v[i] = (uint32_t)json_integer_value(json_array_get(tokens, i));
    const bool ok = json_is_array(tokens) && v;
    json_decref(j);
    if (!ok) {
        free(v);
        return cli_failed(
            "/tokenize: no array of tokens; --tokenizer or --vocab-size do without it");
    }
    *ids = v;
    *n_ids = n;
    return CLI_OK;
}

/* ---- prompts -------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Ids that surely exist: those of some words. */
static int pool_of_words(serve_bench *b)
{
    static const char words[] =
        "the quick brown fox jumps over a lazy dog while seven wizards from Oslo pack my box with "
        "five dozen jugs; in 1984 and 2025 they wrote: \"how far is it to the sea?\" Light rain, "
        "green hills (and a small red house), many people read books about science, music, ships, "
        "bread, numbers like 3.14159 or 42, and old stories of kings, queens, stones and stars.";
    uint32_t *ids = NULL;
    size_t n = 0, k = 0;
    const int code = encode_remote(b, words, sizeof words - 1, &ids, &n);
    if (code != CLI_OK) return code;
    qsort(ids, n, sizeof *ids, ascending);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || ids[i] != ids[k - 1]) ids[k++] = ids[i];
    b->set.pool = ids;
    b->set.n_pool = k;
    return k ? CLI_OK : cli_failed("/tokenize: no tokens for a text");
}

static int open_tokenizer(serve_bench *b)
{
    const bench_opts *o = b->o;
    nb_error err = { 0 };
    if (o->tokenizer) {
        const nb_status st = nb_text_create(o->tokenizer, NULL, &b->text, &err);
        if (st != NB_OK) return cli_status(st, &err);
    }
    const bool ids =
        strcmp(o->dataset_name, "custom") != 0 && strcmp(o->dataset_name, "sharegpt") != 0;
    if (!ids) return CLI_OK;
    if (o->vocab_size) {
        b->set.n_pool = o->vocab_size;
        return CLI_OK;
    }
    return b->text ? bench_pool_of(b->text, &b->set) : pool_of_words(b);
}

/* The text of ids, malloc'd, by the tokenizer here or the server's; NULL after an error line. */
static char *decode(serve_bench *b, const uint32_t *ids, size_t n)
{
    char *text = NULL, *out = NULL;
    size_t n_bytes = 0;
    nb_error err = { 0 };
    if (b->text) {
        const nb_status st = nb_text_detokenize(b->text, ids, n, false, &text, &n_bytes, &err);
        if (st != NB_OK) {
            (void)cli_status(st, &err);
            return NULL;
        }
        out = copy(text, n_bytes);
        nb_free(text);
        return out;
    }
    bench_buf body = { 0 };
    bench_buf_str(&body, "{\"model\":");
    bench_buf_json(&body, b->model, strlen(b->model));
    bench_buf_str(&body, ",\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        if (i) bench_buf_str(&body, ",");
        bench_buf_u64(&body, ids[i]);
    }
    bench_buf_str(&body, "]}");
    json_t *j = body.failed ? NULL : ask(b, "POST", "/detokenize", body.p);
    const json_t *prompt = json_object_get(j, "prompt");
    if (json_is_string(prompt)) out = copy(json_string_value(prompt), json_string_length(prompt));
    if (j && !out) (void)cli_failed("/detokenize: no \"prompt\"");
    json_decref(j);
    bench_buf_deinit(&body);
    return out;
}

/* Chat takes text only. */
static int texts_of_ids(serve_bench *b)
{
    for (size_t i = 0; i < b->set.n + b->set.n_warm; i++) {
        bench_item *it = &b->set.items[i];
        if (it->text) continue;
        bench_prompt_ids(&b->set, it, b->ids);
        it->text = decode(b, b->ids, it->n_prompt);
        if (!it->text) return CLI_FAILED;
        it->text_bytes = strlen(it->text);
    }
    return CLI_OK;
}

static int make_prompts(serve_bench *b)
{
    const bench_tok tok = { b->text ? bench_encode_text : encode_remote,
                            b->text ? (const void *)b->text : (const void *)b };
    int code = open_tokenizer(b);
    if (code == CLI_OK) code = bench_set_load(b->o, &tok, &b->set);
    if (code != CLI_OK) return code;
    b->ids = malloc((b->set.max_prompt + 1) * sizeof *b->ids);
    if (!b->ids) return cli_failed("no memory for prompts of %zu tokens", b->set.max_prompt);
    return b->chat ? texts_of_ids(b) : CLI_OK;
}

/* ---- bodies --------------------------------------------------------------- */

static void add_field(bench_buf *out, const char *name, const char *value)
{
    if (!value) return;
    bench_buf_str(out, ",\"");
    bench_buf_str(out, name);
    bench_buf_str(out, "\":");
    bench_buf_str(out, value);
}

/* Everything that is the same in all bodies: before the prompt, and behind the number of tokens. */
static int make_frame(serve_bench *b)
{
    const bench_opts *o = b->o;
    bench_buf *t = &b->tail;
    bench_buf_str(&b->head, "{\"model\":");
    bench_buf_json(&b->head, b->model, strlen(b->model));
    bench_buf_str(t, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    if (o->ignore_eos) bench_buf_str(t, ",\"ignore_eos\":true");
    add_field(t, "temperature", o->temperature);
    add_field(t, "top_p", o->top_p);
    add_field(t, "top_k", o->top_k);
    add_field(t, "min_p", o->min_p);
    add_field(t, "presence_penalty", o->presence_penalty);
    add_field(t, "frequency_penalty", o->frequency_penalty);
    add_field(t, "repetition_penalty", o->repetition_penalty);
    if (o->logprobs && b->chat) bench_buf_str(t, ",\"logprobs\":true");
    add_field(t, b->chat ? "top_logprobs" : "logprobs", o->logprobs);
    if (o->extra_body) {
        json_t *j = json_loads(o->extra_body, 0, NULL);
        if (!json_is_object(j)) {
            json_decref(j);
            return cli_usage("--extra-body %s: expected a JSON object", o->extra_body);
        }
        const char *key;
        json_t *v;
        json_object_foreach(j, key, v)
        {
            char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
            bench_buf_str(t, ",");
            bench_buf_json(t, key, strlen(key));
            bench_buf_str(t, ":");
            bench_buf_str(t, text ? text : "null");
            free(text);
        }
        json_decref(j);
    }
    bench_buf_str(t, "}");
    return b->head.failed || t->failed ? cli_failed("out of memory") : CLI_OK;
}

static void body_of(void *ctx, size_t i, bench_buf *out)
{
    serve_bench *b = ctx;
    const bench_item *it = &b->set.items[b->first + i];
    bench_buf_add(out, b->head.p, b->head.n);
    if (b->chat) {
        bench_buf_str(out, ",\"messages\":[{\"role\":\"user\",\"content\":");
        bench_buf_json(out, it->text, it->text_bytes);
        bench_buf_str(out, "}],\"max_completion_tokens\":");
    } else if (it->text) {
        bench_buf_str(out, ",\"prompt\":");
        bench_buf_json(out, it->text, it->text_bytes);
        bench_buf_str(out, ",\"max_tokens\":");
    } else {
        bench_buf_str(out, ",\"prompt\":[");
        bench_prompt_ids(&b->set, it, b->ids);
        for (size_t j = 0; j < it->n_prompt; j++) {
            if (j) bench_buf_add(out, ",", 1);
            bench_buf_u64(out, b->ids[j]);
        }
        bench_buf_str(out, "],\"max_tokens\":");
    }
    bench_buf_u64(out, it->max_tokens);
    bench_buf_add(out, b->tail.p, b->tail.n);
}

static void headers_of(void *ctx, size_t i, bench_buf *out)
{
    serve_bench *b = ctx;
    bench_buf_str(out, "X-Request-Id: ");
    bench_buf_add(out, b->id_prefix.p, b->id_prefix.n);
    bench_buf_u64(out, b->first + i);
    bench_buf_str(out, "\r\n");
    if (b->o->api_key.n > 1) {
        bench_buf_str(out, "Authorization: Bearer ");
        bench_buf_str(out, b->o->api_key.p[i % b->o->api_key.n]);
        bench_buf_str(out, "\r\n");
    }
}

/* ---- runs ----------------------------------------------------------------- */

static bench_job job_of(serve_bench *b)
{
    const bench_opts *o = b->o;
    return (bench_job){ .path = b->path,
                        .body = body_of,
                        .more_headers = headers_of,
                        .ctx = b,
                        .max_concurrency = o->max_concurrency,
                        .timeout_s = o->timeout_s,
                        .seed = o->seed };
}

static int warm_up(serve_bench *b)
{
    bench_job job = job_of(b);
    bench_run run;
    size_t n_ok = 0;
    job.n = b->set.n_warm;
    if (job.n == 0) return CLI_OK;
    bench_rec *rec = calloc(job.n, sizeof *rec);
    if (!rec) return cli_failed("out of memory");
    b->first = b->set.n;
    int code = bench_client_run(b->client, &job, rec, &run);
    for (size_t i = 0; i < job.n; i++) n_ok += rec[i].outcome == BENCH_OK;
    if (code == CLI_OK && n_ok < job.n)
        code = cli_failed("%zu of %zu warm-ups failed: %s", job.n - n_ok, job.n,
                          rec[0].error ? rec[0].error : "no answer");
    bench_recs_deinit(rec, job.n);
    b->first = 0;
    return code;
}

/* One run of the workload. */
typedef struct pass {
    bench_rec *rec; /* [set.n] */
    bench_run run;
    bench_summary s;
} pass;

static int report(serve_bench *b, const pass *p, const bench_runs *runs)
{
    const bench_opts *o = b->o;
    const bench_run *run = &p->run;
    FILE *out = o->result_filename && strcmp(o->result_filename, "-") == 0 ? stderr : stdout;
    (void)fputs("client's ", out);
    bench_machine_print(out, &b->plan.doc.machine);
    bench_print(out, " Serving Benchmark Result ", &p->s, &b->plan.report);
    bench_print_number(out, "CPU time of this client (s):", run->cpu_s);
    bench_runs_print(out, runs);
    bench_print_end(out);
    json_t *j =
        bench_result_head(&b->plan, o->backend, b->model, o->tokenizer ? o->tokenizer : b->model);
    if (j &&
        (!bench_json(j, p->rec, &p->s, &b->plan.report, o->save_detailed) ||
         json_object_set_new(j, "client_cpu_s", json_real(run->cpu_s)) != 0 ||
         json_object_set_new(j, "connections", json_integer((json_int_t)run->n_connect)) != 0 ||
         json_object_set_new(j, "sent_again", json_integer((json_int_t)run->n_again)) != 0 ||
         !bench_runs_json(j, runs, &b->plan, "serve", b->model, ""))) {
        json_decref(j);
        j = NULL;
    }
    return bench_result_save(&b->plan, o->backend, b->model, j);
}

/* Run k has a seed of its own, and other ids than those before it where prompts are of ids: a server
 * would find them in its prefix cache. */
static int next_prompts(serve_bench *b, size_t k)
{
    if (k == 0 || !b->chat || strcmp(b->o->dataset_name, "custom") == 0 ||
        strcmp(b->o->dataset_name, "sharegpt") == 0)
        return CLI_OK;
    for (size_t i = 0; i < b->set.n + b->set.n_warm; i++) { /* texts of the ids before */
        free(b->set.items[i].text);
        b->set.items[i].text = NULL;
    }
    return texts_of_ids(b);
}

static int one_pass(serve_bench *b, size_t k, pass *p)
{
    bench_job job = job_of(b);
    b->set.seed = b->o->seed + k; /* before the arrivals are drawn */
    double *at_s = bench_arrivals(b->o, &b->set, b->plan.rate, b->plan.burstiness);
    p->rec = calloc(b->set.n, sizeof *p->rec);
    int code = p->rec && at_s ? CLI_OK : cli_failed("no memory for %zu requests", b->set.n);
    job.n = b->set.n;
    job.at_s = at_s;
    job.disconnect_rate = b->o->disconnect_rate;
    job.keep_text = b->o->save_detailed;
    job.progress = !b->o->quiet;
    if (code == CLI_OK) code = next_prompts(b, k);
    if (code == CLI_OK) code = bench_client_run(b->client, &job, p->rec, &p->run);
    if (code == CLI_OK &&
        !bench_summarise(p->rec, b->set.n, p->run.duration_s, &b->plan.report, &p->s))
        code = cli_failed("no memory for the results");
    free(at_s);
    return code;
}

static int measure(serve_bench *b)
{
    const size_t n = b->o->runs;
    bench_runs runs = { 0 };
    pass *p = calloc(n, sizeof *p);
    int code = p && bench_runs_init(&runs, n) ? CLI_OK : cli_failed("out of memory");
    for (size_t k = 0; k < n && code == CLI_OK; k++) {
        code = one_pass(b, k, &p[k]);
        if (code == CLI_OK) bench_runs_put(&runs, k, &p[k].s);
    }
    if (code == CLI_OK) code = report(b, &p[bench_runs_middle(&runs)], &runs);
    for (size_t k = 0; p && k < n; k++) {
        const int verdict = p[k].s.n ? bench_verdict(p[k].rec, &p[k].s) : CLI_OK;
        if (code == CLI_OK) code = verdict;
        bench_recs_deinit(p[k].rec, b->set.n);
    }
    bench_runs_deinit(&runs);
    free(p);
    return code;
}

static void serve_deinit(serve_bench *b)
{
    bench_client_destroy(b->client);
    nb_text_destroy(b->text);
    bench_set_deinit(&b->set);
    bench_buf_deinit(&b->headers);
    bench_buf_deinit(&b->head);
    bench_buf_deinit(&b->tail);
    bench_buf_deinit(&b->id_prefix);
    free(b->host);
    free(b->path);
    free(b->prefix);
    free(b->model);
    free(b->ids);
}

int cmd_bench_serve(const struct opts *o)
{
    serve_bench b = { .o = &o->bench };
    b.chat = strcmp(b.o->backend, "openai-chat") == 0;
    int code = bench_plan_make(b.o, &b.plan);
    if (code == CLI_OK) bench_doc_begin(&b.plan.doc);
    if (code == CLI_OK) code = open_client(&b);
    if (code == CLI_OK) code = wait_ready(&b);
    if (code == CLI_OK) code = choose_model(&b, o->model);
    if (code == CLI_OK) code = make_prompts(&b);
    if (code == CLI_OK) code = make_frame(&b);
    if (code == CLI_OK) code = warm_up(&b);
    if (code == CLI_OK) code = measure(&b);
    serve_deinit(&b);
    return code;
}
