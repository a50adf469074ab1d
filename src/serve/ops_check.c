/* ops_check.c - GET /api/check, with --dev-endpoints: walks the structures of the scheduler and
 * the cache.  200 {"ok":true}, or 500 with what is broken.
 *
 * The walk waits for the end of a step, which the loop must not: as with a reset of the cache a
 * short-lived thread waits and posts the answer back. */
#include <pthread.h>

#include "serve/serve_internal.h"

static void check_join(nb_serve *s)
{
    if (s->check.running) (void)pthread_join(s->check.thread, NULL);
    s->check.running = false;
}

/* On the loop. */
static void check_answer(void *ctx)
{
    nb_serve *s = ctx;
    nb_http_ex *ex = s->check.ex;
    check_join(s);
    s->check.ex = NULL;
    if (!ex) return; /* the client has gone */
    if (s->check.st == NB_OK)
        nb_reply_json(ex, 200, json_pack("{s:b}", "ok", 1));
    else
        nb_reply_error(ex, 500, NULL, "the structures are broken: %s", s->check.err.msg);
}

/* The helper thread. */
static void *check_run(void *arg)
{
    nb_serve *s = arg;
    s->check.st = nb_engine_check(s->engine, &s->check.err);
    nb_http_post(s->http, check_answer, s);
    return NULL;
}

static void check_client_gone(void *ctx)
{
    nb_serve *s = ctx;
    s->check.ex = NULL;
}

void nb_api_check(nb_http_ex *ex, void *ctx)
{
    nb_serve *s = ctx;
    if (!s->o.dev_endpoints) {
        nb_reply_error(ex, 404, NULL, "/api/check is there with --dev-endpoints only");
        return;
    }
    if (s->check.running) {
        nb_reply_error(ex, 503, NULL, "a check is under way");
        return;
    }
    s->check.ex = ex;
    nb_http_on_close(ex, check_client_gone, s);
    s->check.running = pthread_create(&s->check.thread, NULL, check_run, s) == 0;
    if (!s->check.running) {
        s->check.ex = NULL;
        nb_reply_error(ex, 503, NULL, "no thread for the check");
    }
}

void nb_check_stop(nb_serve *s)
{
    check_join(s);
}
