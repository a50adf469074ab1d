/* serve_setup.c - see serve_setup.h. */
#include "serve_setup.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "../cli.h"

enum { BLOCK_TOK = 64, SPARE_FILES = 256 };

static int add(opt_strs *list, const char *s)
{
    const char **p = realloc(list->p, (list->n + 1) * sizeof *p);
    if (!p) return cli_failed("out of memory");
    list->p = p;
    list->p[list->n++] = s;
    return CLI_OK;
}

/* ---- keys and origins ---------------------------------------------------------- */

static int collect_keys(const opts *o, serve_setup *s)
{
    static const char *const names[] = { "VLLM_API_KEY", "NIBBLE_API_KEY" };
    int code = CLI_OK;
    for (size_t i = 0; code == CLI_OK && i < o->serve.api_key.n; i++) {
        if (!o->serve.api_key.p[i][0]) return cli_usage("--api-key: an empty key");
        code = add(&s->key, o->serve.api_key.p[i]);
    }
    if (o->serve.api_key.n) return code;
    for (size_t i = 0; code == CLI_OK && i < sizeof names / sizeof *names; i++) {
        const char *key = getenv(names[i]);
        if (key && *key) code = add(&s->key, key);
    }
    return code;
}

/* A word of --allowed-origins that is a JSON array. */
static int add_json_origins(serve_setup *s, const char *text)
{
    size_t i;
    json_t *v;
    json_error_t e;
    json_t *j = json_loads(text, 0, &e);
    if (!json_is_array(j)) {
        json_decref(j);
        return cli_usage("--allowed-origins %s: expected origins, or a JSON array of them", text);
    }
    void **docs = realloc(s->json, (s->n_json + 1) * sizeof *docs);
    if (!docs) {
        json_decref(j);
        return cli_failed("out of memory");
    }
    s->json = docs;
    s->json[s->n_json++] = j;
    json_array_foreach(j, i, v)
    {
        if (!json_is_string(v))
            return cli_usage("--allowed-origins %s: element %zu is no string", text, i);
        const int code = add(&s->origin, json_string_value(v));
        if (code != CLI_OK) return code;
    }
    return CLI_OK;
}

static int collect_origins(const opts *o, serve_setup *s)
{
    const opt_strs *list = &o->serve.cors_origin;
    int code = CLI_OK;
    for (size_t i = 0; code == CLI_OK && i < list->n; i++)
        code = list->p[i][0] == '[' ? add_json_origins(s, list->p[i]) : add(&s->origin, list->p[i]);
    for (size_t i = 0; code == CLI_OK && i < s->origin.n; i++) {
        const char *p = s->origin.p[i];
        if (strcmp(p, "*") != 0 && strcmp(p, "null") != 0 && !strstr(p, "://"))
            return cli_usage("--allowed-origins %s: expected an origin such as "
                             "https://example.org, or *",
                             p);
    }
    return code;
}

/* ---- options that depend on others --------------------------------------------------- */

/* An option of the user's spelling. */
static const char *shown(const opts *o, const char *name)
{
    const char *given = opts_given(o, CMD_SERVE, name);
    return given ? given : name;
}

static int check_options(const opts *o)
{
    const serve_opts *v = &o->serve;
    if (v->block_tok != BLOCK_TOK)
        return cli_usage("%s %zu: expected %d, the length of a page of records",
                         shown(o, "block-size"), v->block_tok, BLOCK_TOK);
    if (v->max_batched_tok && v->max_batched_tok < v->max_num_seqs)
        return cli_usage("%s %zu: expected at least --max-num-seqs (%zu)",
                         shown(o, "max-num-batched-tokens"), v->max_batched_tok, v->max_num_seqs);
    if (!v->tls_cert != !v->tls_key)
        return cli_usage("TLS needs both --ssl-certfile and --ssl-keyfile");
    if (!v->tls_cert && (v->tls_ca || v->tls_key_password))
        return cli_usage("%s goes with --ssl-certfile and --ssl-keyfile",
                         v->tls_ca ? "--ssl-ca-certs" : "--ssl-keyfile-password");
    if (v->uds && !*v->uds) return cli_usage("--uds: an empty path");
    if (v->tokenizer && strcmp(v->tokenizer, o->model) != 0)
        return cli_usage("%s %s: not supported: the tokenizer is the one of %s",
                         shown(o, "tokenizer"), v->tokenizer, o->model);
    for (size_t i = 0; i < v->served_name.n; i++)
        if (!v->served_name.p[i][0]) return cli_usage("--served-model-name: an empty name");
    return CLI_OK;
}

static int check_dtype_name(const char *s)
{
    static const char *const names[] = {
        "auto", "half", "float16", "bfloat16", "float", "float32"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(s, names[i]) == 0) return CLI_OK;
    if (strncmp(s, "fp8", 3) == 0)
        return cli_usage(
            "--dtype %s: FP8 weights are a property of the checkpoint, not of --dtype; "
            "for the KV cache there is --kv-cache-dtype fp8",
            s);
    return cli_usage("--dtype %s: expected auto, half, float16, bfloat16, float or float32", s);
}

/* Weights are used as they are: --dtype may only name what they are. */
static int check_dtype(const opts *o, const nb_memory_plan *p)
{
    const char *s = o->serve.dtype;
    if (strcmp(s, "auto") == 0) return CLI_OK;
    if (strcmp(s, "half") == 0) s = "float16";
    if (strcmp(s, "float") == 0) s = "float32";
    /* What is not quantised in an FP8 checkpoint is BF16. */
    const char *is = strcmp(p->dtype, "fp8") == 0 ? "bfloat16" : p->dtype;
    if (strcmp(s, is) == 0) return CLI_OK;
    return cli_usage(
        "--dtype %s: the checkpoint is %s, and weights are not converted; expected auto "
        "or %s",
        o->serve.dtype, p->dtype, is);
}

/* A share of the GPU's memory where no GPU computes. */
static void check_utilization(const opts *o, serve_setup *s)
{
    const char *given = opts_given(o, CMD_SERVE, "gpu-memory-utilization");
    if (!given || o->serve.gpu_utilization <= 0 || s->device.is_gpu) return;
    (void)snprintf(
        s->warning, sizeof s->warning,
        "%s %g has no effect: the model runs on the CPU, and the KV cache gets its usual "
        "size; --memory-utilization gives it a share of this machine's memory",
        given, o->serve.gpu_utilization);
}

/* ---- filling in -------------------------------------------------------------------- */

static void fill_engine(const opts *o, bool gpu, nb_engine_options *e)
{
    const serve_opts *v = &o->serve;
    const size_t step = opts_step_tok(o, gpu);
    *e = opts_engine(o);
    e->prefill_chunk = step;
    e->max_num_seqs = v->max_num_seqs;
    e->max_num_batched_tokens = step;
    e->max_chunk_tok = v->max_chunk_tok < step ? v->max_chunk_tok : step;
    e->max_step_s = v->max_step_ms > 0 ? v->max_step_ms / 1e3 : -1;
    e->commit_memory = true;
    e->tool_call_parser = v->tool_call_parser;
    e->reasoning_parser = v->reasoning_parser;
    e->no_prefix_caching = !v->prefix_caching;
    e->cache_answers = v->cache_answers;
    e->priority_scheduling = strcmp(v->scheduling_policy, "priority") == 0;
    e->priority_age_s = v->priority_age_s;
}

static void fill_server(const opts *o, serve_setup *s)
{
    const serve_opts *v = &o->serve;
    if (v->override_generation_config)
        s->override_config = json_dumps(v->override_generation_config, JSON_COMPACT);
    if (v->chat_template_kwargs) s->kwargs = json_dumps(v->chat_template_kwargs, JSON_COMPACT);
    const char *dev = getenv("VLLM_SERVER_DEV_MODE");
    const bool name_by_id = o->id && v->served_name.n == 0;
    s->server = (nb_serve_options){
        .host = v->host,
        .uds = v->uds,
        .port = (uint16_t)v->port,
        .any_port = v->port == 0,
        .tls_cert = v->tls_cert,
        .tls_key = v->tls_key,
        .tls_key_password = v->tls_key_password,
        .tls_ca = v->tls_ca,
        .api_key = s->key.p,
        .n_api_key = s->key.n,
        .api_key_file = v->api_key_file,
        .cors_origin = s->origin.p,
        .n_cors_origin = s->origin.n,
        .max_header_bytes = v->max_header_bytes,
        .max_body_bytes = v->max_body_bytes,
        .max_connections = v->max_connections,
        .read_timeout_s = v->read_timeout_s,
        .idle_timeout_s = v->idle_timeout_s,
        .write_timeout_s = v->write_timeout_s,
        .drain_s = v->drain_s > 0 ? v->drain_s : 1e-3, /* 0: at once */
        .request_id_headers = v->request_id_headers,
        .model = o->path,
        .served_name = name_by_id ? &o->id : v->served_name.p,
        .n_served_name = name_by_id ? 1 : v->served_name.n,
        .max_num_queued_reqs = v->max_queued_reqs,
        .max_num_queued_tokens = v->max_queued_tok,
        .max_logprobs = v->max_logprobs,
        .max_n = v->max_n,
        .max_stop = v->max_stop,
        .request_timeout_s = v->request_timeout_s,
        .generation_config = v->generation_config,
        .override_generation_config = s->override_config,
        .chat_template_kwargs = s->kwargs,
        .chat_content_format = v->chat_content_format,
        .tokens_as_token_ids = v->tokens_as_token_ids,
        .hide_unused_tools = v->hide_unused_tools,
        .seed = v->seed,
        .force_include_usage = v->force_include_usage,
        .dev_endpoints = v->dev_endpoints || (dev && strcmp(dev, "1") == 0),
        .no_page = !v->page,
        .priority_scheduling = s->engine.priority_scheduling,
        .no_log_requests = !v->log_requests,
    };
}

int serve_setup_init(const opts *o, serve_setup *s)
{
    nb_error err = { 0 };
    memset(s, 0, sizeof *s);
    int code = check_options(o);
    if (code == CLI_OK) code = check_dtype_name(o->serve.dtype);
    if (code == CLI_OK) code = collect_keys(o, s);
    if (code == CLI_OK) code = collect_origins(o, s);
    if (code != CLI_OK) return code;
    nb_engine_options asked = opts_engine(o);
    code = serve_nodes_init(o, &s->nodes);
    if (code != CLI_OK) return code;
    serve_nodes_apply(o, &s->nodes, &asked);
    nb_status st = nb_engine_find_device(&asked, &s->device, &err);
    if (st != NB_OK) return cli_status(st, &err);
    check_utilization(o, s);
    fill_engine(o, s->device.is_gpu, &s->engine);
    serve_nodes_apply(o, &s->nodes, &s->engine);
    fill_server(o, s);
    if ((o->serve.override_generation_config && !s->override_config) ||
        (o->serve.chat_template_kwargs && !s->kwargs))
        return cli_failed("out of memory");
    st = nb_engine_plan_memory(&s->engine, &s->plan, &err);
    if (st != NB_OK) return cli_status(st, &err);
    code = check_dtype(o, &s->plan);
    if (code != CLI_OK) return code;
    if (s->device.is_gpu)
        serve_budget_gpu(o, &s->plan, &s->engine);
    else
        code = serve_budget(o, &s->plan, &s->engine);
    return code;
}

void serve_setup_deinit(serve_setup *s)
{
    free(s->key.p);
    free(s->origin.p);
    free(s->override_config);
    free(s->kwargs);
    for (size_t i = 0; i < s->n_json; i++) json_decref(s->json[i]);
    free(s->json);
    memset(s, 0, sizeof *s);
}

size_t serve_raise_file_limit(size_t max_connections)
{
    struct rlimit lim;
    const rlim_t want = (rlim_t)max_connections + SPARE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur == RLIM_INFINITY)
        return max_connections;
    if (lim.rlim_cur < want) {
        lim.rlim_cur = lim.rlim_max == RLIM_INFINITY || lim.rlim_max > want ? want : lim.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &lim) != 0 && getrlimit(RLIMIT_NOFILE, &lim) != 0)
            return max_connections;
    }
    if (lim.rlim_cur >= want) return max_connections;
    /* Small limits: half for connections at least. */
    return lim.rlim_cur > 2 * SPARE_FILES ? (size_t)lim.rlim_cur - SPARE_FILES
                                          : (size_t)lim.rlim_cur / 2;
}
