/* cmd_serve.c - `nibble serve`: an engine behind HTTP until SIGTERM.
 *
 * Standard error is the log; standard output stays empty.  What the start-up lines say is
 * read back from the engine, so it is what was allocated. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include "cli.h"
#include "serve_setup.h"

static nb_serve *volatile serving; /* what signals stop */

/* The first drains, the second ends. */
static void on_stop(int sig)
{
    (void)sig;
    if (serving) nb_serve_stop(serving);
}

static void catch_signals(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    (void)sigemptyset(&a.sa_mask);
    a.sa_handler = on_stop;
    a.sa_flags = SA_RESTART;
    (void)sigaction(SIGTERM, &a, NULL);
    (void)sigaction(SIGINT, &a, NULL);
}

/* ---- what the log says first -------------------------------------------------------- */

static void say(const nb_serve *s, bool warning, const char *fmt, ...) CLI_PRINTF(3, 4);
static void say(const nb_serve *s, bool warning, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    nb_serve_note(s, warning, "start", line);
}

static void say_model(const nb_serve *s, const nb_device_info *d, const nb_engine_info *i)
{
    char weights[SERVE_SIZE_BYTES], n[SERVE_SIZE_BYTES];
    if (d->why_cpu[0])
        say(s, false, "device: %s (no GPU: %s)", i->device, d->why_cpu);
    else
        say(s, false, "device: %s", i->device);
    serve_format_bytes((double)i->weight_bytes, weights);
    serve_format_count(i->n_param, n);
    say(s, false, "model: %s, %s parameters, weights %s (%s), %zu threads", i->family, n, weights,
        i->weights, i->n_thread);
    if (i->kernels && *i->kernels) say(s, false, "kernels: %s", i->kernels);
}

/* vLLM's words, but for the device. */
static void say_cache(const nb_serve *s, const opts *o, const nb_engine_info *i)
{
    char tok[SERVE_SIZE_BYTES], len[SERVE_SIZE_BYTES], pool[SERVE_SIZE_BYTES];
    serve_format_count(i->kv_pool_tok, tok);
    serve_format_count(i->max_model_len, len);
    serve_format_bytes((double)i->kv_pool_bytes, pool);
    say(s, false, "KV cache dtype: %s (--kv-cache-dtype %s), %.10g bytes per token in all layers",
        i->kv_dtype, o->kv_cache_dtype, i->kv_bytes_per_tok);
    if (i->kv_layout && *i->kv_layout) say(s, false, "KV record layout: %s", i->kv_layout);
    say(s, false, "KV cache size: %s tokens", tok);
    say(s, false, "Maximum concurrency for %s tokens per request: %.2fx", len,
        i->max_model_len ? (double)i->kv_pool_tok / (double)i->max_model_len : 0.0);
    say(s, false,
        "KV cache memory: %s (--kv-cache-memory-bytes %" PRIu64 "), %zu blocks of %zu tokens "
        "and %" PRIu64 " bytes, prefix caching %s",
        pool, i->kv_pool_bytes, i->n_block, i->block_tok, i->block_bytes,
        o->serve.prefix_caching ? "on" : "off");
}

/* What is beside the pool, or changes what is in it. */
static void say_extras(const nb_serve *s, const opts *o, const nb_engine_info *i)
{
    char planes[SERVE_SIZE_BYTES], sinks[SERVE_SIZE_BYTES];
    if (i->kv_transform && strcmp(i->kv_transform, "none") != 0)
        say(s, false, "KV cache transform: %s, folded into the weights", i->kv_transform);
    serve_format_bytes((double)i->sink_bytes, sinks);
    if (i->sink_bytes)
        say(s, false, "KV cache sinks: the first %zu tokens of a text in BF16, %s at most",
            o->kv_sinks, sinks);
    if (i->residual_bytes == 0) return;
    serve_format_bytes((double)i->residual_bytes, planes);
    say(s, false, "Thrift mode: %s, residual planes of %s", i->kv_thrift, planes);
}

static void say_memory(const nb_serve *s, const serve_setup *t, const nb_engine_info *i)
{
    char work[SERVE_SIZE_BYTES], tails[SERVE_SIZE_BYTES], all[SERVE_SIZE_BYTES];
    char machine[SERVE_SIZE_BYTES];
    serve_format_bytes((double)i->workspace_bytes, work);
    serve_format_bytes((double)i->tail_bytes, tails);
    serve_format_bytes((double)((t->device.is_gpu ? i->gpu_weight_bytes : i->weight_bytes) +
                                i->workspace_bytes + i->tail_bytes + i->kv_pool_bytes +
                                i->residual_bytes + i->sink_bytes),
                       all);
    serve_format_bytes((double)(t->device.is_gpu ? t->device.memory_bytes : t->plan.memory_bytes),
                       machine);
    say(s, false,
        "memory: workspace %s, open pages of %zu requests %s; with weights and KV cache "
        "%s of %s",
        work, i->max_num_seqs, tails, all, machine);
    say(s, false, "steps: up to %zu requests and %zu tokens", i->max_num_seqs,
        i->max_num_batched_tokens);
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
        say(s, false, "listening on the Unix socket %s", v->uds);
        return;
    }
    const bool all = !*v->host || !strcmp(v->host, "0.0.0.0") || !strcmp(v->host, "::");
    const char *host = all ? "localhost" : v->host, *v6 = strchr(host, ':');
    if (!is_local(v->host) && !t->key.n)
        say(s, true, "everybody who reaches %s can use this server (--api-key)",
            *v->host ? v->host : "this machine");
    char url[320];
    (void)snprintf(url, sizeof url, "http%s://%s%s%s:%u", v->tls_cert ? "s" : "", v6 ? "[" : "",
                   host, v6 ? "]" : "", (unsigned)nb_serve_port(s));
    say(s, false, "listening on %s/ (%sthe API is %s/v1%s)", url, v->page ? "the page; " : "", url,
        all ? "; all other addresses of this machine too" : "");
}

static void say_start(const nb_serve *s, const opts *o, const serve_setup *t, const nb_engine *e)
{
    nb_engine_info i;
    nb_engine_get_info(e, &i);
    for (size_t k = 0; k < o->ignored.n; k++)
        say(s, true, "--%s is accepted and has no effect", o->ignored.p[k]);
    if (t->server.max_connections < o->serve.max_connections)
        say(s, true, "--max-connections %zu: the limit of open files leaves room for %zu",
            o->serve.max_connections, t->server.max_connections);
    if (i.warnings && *i.warnings) say(s, true, "%s", i.warnings);
    say_model(s, &t->device, &i);
    say_cache(s, o, &i);
    say_extras(s, o, &i);
    say_memory(s, t, &i);
    say_address(s, o, t);
}

/* ---- running ------------------------------------------------------------------------- */

static int run(const opts *o, const serve_setup *t, nb_engine *e)
{
    nb_error err = { 0 };
    nb_serve *s = NULL;
    nb_status st = nb_serve_create(&t->server, e, &s, &err);
    if (st != NB_OK) return cli_status(st, &err);
    say_start(s, o, t, e);
    serving = s;
    catch_signals();
    st = nb_serve_run(s, &err);
    nb_serve_note(s, false, "stop", st == NB_OK ? "stopped" : err.msg);
    serving = NULL;
    nb_serve_destroy(s);
    return st == NB_OK ? CLI_OK : cli_status(st, &err);
}

int cmd_serve(const opts *o)
{
    nb_error err = { 0 };
    nb_engine *e = NULL;
    serve_setup t;
    int code = serve_setup_init(o, &t);
    if (code == CLI_OK) {
        t.server.max_connections = serve_raise_file_limit(o->serve.max_connections);
        const nb_status st = nb_engine_create(&t.engine, &e, &err);
        cli_progress_end();
        code = st == NB_OK ? run(o, &t, e) : cli_status(st, &err);
    }
    nb_engine_destroy(e);
    serve_setup_deinit(&t);
    return code;
}
