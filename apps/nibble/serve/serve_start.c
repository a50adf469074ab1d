/* serve_start.c - what `nibble serve` logs until it listens: the memory that it plans to take, before
 * any of it is allocated; how far loading is; what was allocated, read back from the engine. */
#include "serve_start.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "../cli.h"

static const double PROGRESS_S = 5; /* between two lines of one phase */

void serve_say(const serve_setup *t, bool warning, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    cli_progress_end();
    nb_serve_note(t->server.log, warning ? NB_LOG_WARN : NB_LOG_INFO, "start", line);
}

/* ---- before anything is allocated ------------------------------------------------ */

/* "of 23.5 GiB: weights 29.2 MiB, ..." */
static void say_memory_plan(const serve_setup *t)
{
    const nb_memory_plan *p = &t->plan;
    const uint64_t pool = t->engine.kv_cache_bytes,
                   all = t->device.is_gpu ? t->device.memory_bytes : p->memory_bytes;
    const uint64_t beside = pool / p->block_bytes * p->residual_block_bytes;
    const cli_memory_part parts[] = { { "weights", (double)p->weight_bytes },
                                      { "workspace", (double)p->workspace_bytes },
                                      { "open pages", (double)p->tail_bytes },
                                      { pool ? "KV cache" : NULL, (double)pool },
                                      { beside ? "planes and sinks" : NULL, (double)beside } };
    char text[256], have[CLI_FIGURE_BYTES];
    const size_t n_part = sizeof parts / sizeof *parts;
    cli_bytes_text((double)all, have, sizeof have);
    if (!t->device.is_gpu) {
        cli_memory_text(parts, n_part, text, sizeof text);
        serve_say(t, false, "memory plan: of %s: %s", all ? have : "unknown memory", text);
        return;
    }
    /* Workspace and open pages differ on a GPU: its library sizes them when it is loaded. */
    cli_memory_text(parts, 1, text, sizeof text);
    if (pool) {
        char cache[CLI_FIGURE_BYTES];
        cli_bytes_text((double)pool, cache, sizeof cache);
        serve_say(t, false,
                  "memory plan: of %s: %s, KV cache %s, beside them workspace and open pages", have,
                  text, cache);
    } else {
        char budget[CLI_FIGURE_BYTES];
        cli_bytes_text(t->engine.gpu_memory_utilization * (double)all, budget, sizeof budget);
        serve_say(
            t, false,
            "memory plan: of %s: %s, workspace and open pages; the KV cache gets what they leave "
            "of %s (%g of the GPU's memory)",
            have, text, budget, t->engine.gpu_memory_utilization);
    }
}

static void say_cache_plan(const serve_setup *t)
{
    const nb_memory_plan *p = &t->plan;
    const uint64_t n_tok = t->engine.kv_cache_bytes / p->block_bytes * p->block_tok;
    char tok[CLI_FIGURE_BYTES], len[CLI_FIGURE_BYTES], each[CLI_FIGURE_BYTES];
    cli_count_text((double)n_tok, tok, sizeof tok);
    cli_count_text((double)t->engine.max_model_len, len, sizeof len);
    cli_count_text((double)p->block_bytes / (double)p->block_tok, each, sizeof each);
    if (n_tok == 0)
        serve_say(t, false, "KV cache plan: %s, %s B/token", p->kv_dtype, each);
    else if (t->engine.max_model_len == 0)
        serve_say(t, false, "KV cache plan: %s, %s B/token, %s tokens", p->kv_dtype, each, tok);
    else
        serve_say(t, false, "KV cache plan: %s, %s B/token, %s tokens: %.2f requests of %s tokens",
                  p->kv_dtype, each, tok, (double)n_tok / (double)t->engine.max_model_len, len);
}

void serve_say_plan(const opts *o, const serve_setup *t)
{
    serve_say(t, false, "nibble %s: %s", nb_version(), o->model);
    for (size_t k = 0; k < o->warning.n; k++) serve_say(t, true, "%s", o->warning.p[k]);
    if (t->warning[0]) serve_say(t, true, "%s", t->warning);
    if (t->device.why_cpu[0])
        serve_say(t, false, "device: %s (no GPU: %s)", t->device.name, t->device.why_cpu);
    else
        serve_say(t, false, "device: %s", t->device.name);
    say_memory_plan(t);
    say_cache_plan(t);
}

/* ---- while it loads ---------------------------------------------------------------- */

void serve_progress(void *ctx, const char *label, uint64_t done, uint64_t total)
{
    static double last; /* one engine is loaded at a time */
    const serve_setup *t = ctx;
    char part[CLI_FIGURE_BYTES], all[CLI_FIGURE_BYTES];
    if (isatty(STDERR_FILENO) == 1) {
        cli_progress(NULL, label, done, total);
        return;
    }
    const double now = cli_seconds();
    if (done > 0 && now - last < PROGRESS_S) return;
    last = now;
    cli_bytes_text((double)done, part, sizeof part);
    cli_bytes_text((double)total, all, sizeof all);
    if (total == 0)
        serve_say(t, false, "%s", label);
    else if (done == 0)
        serve_say(t, false, "%s: %s", label, all);
    else
        serve_say(t, false, "%s: %s of %s", label, part, all);
}

/* ---- what was allocated ------------------------------------------------------------ */

static void say_model(const serve_setup *t, const nb_engine_info *i)
{
    char weights[CLI_FIGURE_BYTES], n[CLI_FIGURE_BYTES];
    cli_bytes_text((double)i->weight_bytes, weights, sizeof weights);
    cli_count_text((double)i->n_param, n, sizeof n);
    serve_say(t, false, "model: %s, %s parameters, weights %s (%s), %zu threads", i->family, n,
              weights, i->weights, i->n_thread);
    if (i->n_node > 1)
        serve_say(t, false, "ranks: %zu, each in a process of its own; this is rank %zu", i->n_node, i->node_rank);
    else if (i->n_data_rank > 1 && i->n_data_rank < i->n_rank)
        serve_say(t, false, "ranks: %zu, of %zu threads each, in %zu groups with requests of their own; every rank has a KV cache",
                  i->n_rank, i->n_thread / i->n_rank, i->n_data_rank);
    else if (i->n_rank > 1)
        serve_say(t, false, "ranks: %zu, of %zu threads each; every one has %s of its own", i->n_rank,
                  i->n_thread / i->n_rank, i->n_data_rank > 1 ? "requests and a KV cache" : "a KV cache");
    if (i->kernels && *i->kernels) serve_say(t, false, "kernels: %s", i->kernels);
}

/* vLLM's words, but for the device. */
static void say_cache(const opts *o, const serve_setup *t, const nb_engine_info *i)
{
    char tok[CLI_FIGURE_BYTES], len[CLI_FIGURE_BYTES], pool[CLI_FIGURE_BYTES];
    cli_count_text((double)i->kv_pool_tok, tok, sizeof tok);
    cli_count_text((double)i->max_model_len, len, sizeof len);
    cli_bytes_text((double)i->kv_pool_bytes, pool, sizeof pool);
    serve_say(t, false, "KV cache dtype: %s, %.10g bytes per token in all layers", i->kv_dtype,
              i->kv_bytes_per_tok);
    if (i->kv_layout && *i->kv_layout) serve_say(t, false, "KV record layout: %s", i->kv_layout);
    serve_say(t, false, "KV cache size: %s tokens", tok);
    serve_say(t, false, "Maximum concurrency for %s tokens per request: %.2fx", len,
              i->max_model_len ? (double)i->kv_pool_tok / (double)i->max_model_len : 0.0);
    serve_say(t, false,
              "KV cache memory: %s (%" PRIu64 " bytes), %zu blocks of %zu tokens and %" PRIu64
              " bytes, prefix caching %s",
              pool, i->kv_pool_bytes, i->n_block, i->block_tok, i->block_bytes,
              o->serve.prefix_caching ? "on" : "off");
}

/* What is beside the pool, or changes what is in it. */
static void say_extras(const opts *o, const serve_setup *t, const nb_engine_info *i)
{
    char planes[CLI_FIGURE_BYTES], sinks[CLI_FIGURE_BYTES];
    if (i->kv_transform && strcmp(i->kv_transform, "none") != 0)
        serve_say(t, false, "KV cache transform: %s, folded into the weights", i->kv_transform);
    cli_bytes_text((double)i->sink_bytes, sinks, sizeof sinks);
    if (i->sink_bytes)
        serve_say(t, false, "KV cache sinks: the first %zu tokens of a text in BF16, %s at most",
                  o->kv_sinks, sinks);
    if (i->residual_bytes == 0) return;
    cli_bytes_text((double)i->residual_bytes, planes, sizeof planes);
    serve_say(t, false, "Thrift mode: %s, residual planes of %s", i->kv_thrift, planes);
}

static void say_memory(const serve_setup *t, const nb_engine_info *i)
{
    const bool gpu = t->device.is_gpu;
    const uint64_t weights = gpu ? i->gpu_weight_bytes : i->weight_bytes;
    char work[CLI_FIGURE_BYTES], tails[CLI_FIGURE_BYTES], all[CLI_FIGURE_BYTES];
    char machine[CLI_FIGURE_BYTES];
    cli_bytes_text((double)i->workspace_bytes, work, sizeof work);
    cli_bytes_text((double)i->tail_bytes, tails, sizeof tails);
    cli_bytes_text((double)(weights + i->workspace_bytes + i->tail_bytes +
                            (i->n_node > 1 ? 1 : i->n_rank) * i->kv_pool_bytes + i->residual_bytes + i->sink_bytes),
                   all, sizeof all);
    cli_bytes_text((double)(gpu ? t->device.memory_bytes : t->plan.memory_bytes), machine,
                   sizeof machine);
    serve_say(
        t, false,
        "memory: workspace %s, open pages of %zu requests %s; with weights and KV cache %s of "
        "%s",
        work, i->max_num_seqs, tails, all, machine);
    char state[CLI_FIGURE_BYTES];
    cli_bytes_text((double)i->state_bytes, state, sizeof state);
    if (i->state_bytes)
        serve_say(
            t, false,
            "states: %s of a request, in its open pages' room, and %zu snapshots for prefixes",
            state, i->n_snapshot);
    char experts[CLI_FIGURE_BYTES];
    cli_bytes_text((double)i->cpu_expert_bytes, experts, sizeof experts);
    if (i->n_cpu_expert_layer)
        serve_say(t, false, "experts: those of %zu layers in host memory, %s", i->n_cpu_expert_layer,
                  experts);
    serve_say(t, false, "steps: up to %zu requests and %zu tokens", i->max_num_seqs,
              i->max_num_batched_tokens);
}

/* What is missing for texts and chats. */
static void say_text(const opts *o, const serve_setup *t, const nb_text *text)
{
    if (!text && !o->skip_tokenizer_init)
        serve_say(
            t, true,
            "%s has no tokenizer (tokenizer.json or tiktoken.model): prompts must be token ids, "
            "and texts and chats are refused",
            o->model);
    else if (text && !nb_text_has_template(text))
        serve_say(t, true,
                  "%s has no chat template: /v1/chat/completions and /v1/messages are refused; "
                  "--chat-template FILE gives one",
                  o->model);
}

static bool is_local(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           strncmp(host, "127.", 4) == 0;
}

static void say_address(const nb_serve *s, const opts *o, const serve_setup *t)
{
    const serve_opts *v = &o->serve;
    if (v->uds) {
        serve_say(t, false, "listening on the Unix socket %s", v->uds);
        return;
    }
    const bool all = !*v->host || !strcmp(v->host, "0.0.0.0") || !strcmp(v->host, "::");
    const char *host = all ? "localhost" : v->host, *v6 = strchr(host, ':');
    if (!is_local(v->host) && !t->key.n && !v->api_key_file)
        serve_say(t, true,
                  "everybody who reaches %s can use this server; --api-key KEY restricts it",
                  *v->host ? v->host : "this machine");
    char url[320];
    (void)snprintf(url, sizeof url, "http%s://%s%s%s:%u", v->tls_cert ? "s" : "", v6 ? "[" : "",
                   host, v6 ? "]" : "", (unsigned)nb_serve_port(s));
    serve_say(t, false, "listening on %s/ (%sthe API is %s/v1%s)", url, v->page ? "the page; " : "",
              url, all ? "; all other addresses of this machine too" : "");
}

void serve_say_ready(const nb_serve *s, const opts *o, const serve_setup *t, const nb_engine *e)
{
    nb_engine_info i;
    nb_engine_get_info(e, &i);
    if (t->server.max_connections < o->serve.max_connections)
        serve_say(
            t, true,
            "at most %zu connections at once instead of %zu: the limit of open files leaves room "
            "for no more",
            t->server.max_connections, o->serve.max_connections);
    if (i.warnings && *i.warnings) serve_say(t, true, "%s", i.warnings);
    say_text(o, t, nb_engine_text(e));
    say_model(t, &i);
    say_cache(o, t, &i);
    say_extras(o, t, &i);
    say_memory(t, &i);
    say_address(s, o, t);
}
