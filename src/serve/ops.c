/* ops.c - handlers for operators and routers: /health, /ping, /version, /load, /metrics,
 * /reset_prefix_cache.
 *
 * A reset waits for the end of a step, which the loop must not: a short-lived thread waits
 * and posts the answer back. */
#include <pthread.h>

#include "serve/serve_internal.h"

static nb_http_task_fn reset_answer;

/* ---- health ---------------------------------------------------------------------- */

/* 200 with an empty body, as vLLM; 503 with the reason. */
static void reply_health(nb_http_ex *ex, const nb_serve *s)
{
    nb_error err = { 0 };
    if (nb_engine_health(s->engine, &err) != NB_OK) {
        nb_reply_error(ex, 503, NULL, "%s", err.msg);
    } else if (nb_http_draining(s->http)) {
        nb_reply_error(ex, 503, NULL, "the server is shutting down");
    } else {
        nb_http_reply(ex, 200, NULL, (nb_str){ "", 0 });
    }
}

void nb_api_health(nb_http_ex *ex, void *ctx)
{
    reply_health(ex, ctx);
}

void nb_api_ping(nb_http_ex *ex, void *ctx)
{
    reply_health(ex, ctx);
}

void nb_api_root(nb_http_ex *ex, void *ctx)
{
    (void)ctx;
    nb_http_reply(ex, 200, "text/plain; charset=utf-8",
                  nb_str_c("nibble serves its API here, without the page for browsers.\n"));
}

void nb_api_version(nb_http_ex *ex, void *ctx)
{
    (void)ctx;
    nb_reply_json(ex, 200, json_pack("{s:s}", "version", nb_version()));
}

/* ---- load ------------------------------------------------------------------------- */

/* Requests in the engine, running or waiting. */
void nb_api_load(nb_http_ex *ex, void *ctx)
{
    const nb_serve *s = ctx;
    nb_engine_stats st;
    nb_engine_get_stats(s->engine, &st);
    nb_reply_json(ex, 200,
                  json_pack("{s:I}", "server_load", (json_int_t)(st.n_running + st.n_waiting)));
}

/* ---- metrics ----------------------------------------------------------------------- */

void nb_api_metrics(nb_http_ex *ex, void *ctx)
{
    const nb_serve *s = ctx;
    nb_engine_stats st;
    nb_buf out = { 0 };
    nb_engine_get_stats(s->engine, &st);
    const nb_metrics_gauges g = { .n_connections = nb_http_n_connections(s->http),
                                  .n_exchanges = nb_http_n_exchanges(s->http),
                                  .n_unanswered = nb_http_n_unanswered(s->http),
                                  .n_log_dropped = nb_serve_log_dropped(s->o.log) };
    if (nb_metrics_write(s->metrics, &st, &g, &out) == NB_OK)
        nb_http_reply(ex, 200, "text/plain; version=0.0.4; charset=utf-8", nb_buf_view(&out));
    else
        nb_reply_error(ex, 500, NULL, "no memory for the metrics");
    nb_buf_deinit(&out);
}

/* ---- reset of the prefix cache ------------------------------------------------------ */

/* The helper thread: waits for the engine, then hands over to the loop. */
static void *reset_run(void *arg)
{
    nb_serve *s = arg;
    s->reset.st = nb_engine_reset_prefix_cache(s->engine, &s->reset.n_block);
    nb_http_post(s->http, reset_answer, s);
    return NULL;
}

static void reset_join(nb_serve *s)
{
    if (s->reset.running) (void)pthread_join(s->reset.thread, NULL);
    s->reset.running = false;
}

/* On the loop. */
static void reset_answer(void *ctx)
{
    nb_serve *s = ctx;
    nb_http_ex *ex = s->reset.ex;
    reset_join(s);
    s->reset.ex = NULL;
    if (!ex) return; /* the client has gone */
    if (s->reset.st == NB_OK)
        nb_reply_json(ex, 200, json_pack("{s:I}", "blocks", (json_int_t)s->reset.n_block));
    else
        nb_reply_error(ex, nb_http_status_of(s->reset.st), NULL,
                       "the prefix cache was not reset: %s", nb_status_text(s->reset.st));
}

static void reset_client_gone(void *ctx)
{
    nb_serve *s = ctx;
    s->reset.ex = NULL;
}

/* Where keys are set the request has shown one. */
static bool may_reset(const nb_http_ex *ex, const nb_serve *s)
{
    return s->o.dev_endpoints || nb_http_has_keys(s->http) || nb_http_is_local(ex);
}

void nb_api_reset_prefix_cache(nb_http_ex *ex, void *ctx)
{
    nb_serve *s = ctx;
    if (!may_reset(ex, s)) {
        nb_reply_error(ex, 403, NULL,
                       "/reset_prefix_cache is only for clients on this machine: start the server "
                       "with --api-key, or with --dev-endpoints");
        return;
    }
    if (s->reset.running) {
        nb_reply_error(ex, 503, NULL, "a reset is under way");
        return;
    }
    s->reset.ex = ex;
    nb_http_on_close(ex, reset_client_gone, s);
    s->reset.running = pthread_create(&s->reset.thread, NULL, reset_run, s) == 0;
    if (!s->reset.running) {
        s->reset.ex = NULL;
        nb_reply_error(ex, 503, NULL, "no thread for the reset");
    }
}

void nb_ops_stop(nb_serve *s)
{
    reset_join(s);
}
