/* cmd_serve.c - `nibble serve`: an engine behind HTTP until SIGTERM.
 *
 * Standard error is the log (serve_start.c: its first lines); standard output stays empty. */
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "notify.h"
#include "serve_signals.h"
#include "serve_start.h"

/* Errors go to standard error, and where the log is a file there too. */
static int fail(nb_serve_log *log, const opts *o, nb_status st, const nb_error *err)
{
    if (o->serve.log_file) nb_serve_note(log, NB_LOG_ERROR, "end", err->msg);
    return cli_status(st, err);
}

static int run(const opts *o, const serve_setup *t, nb_engine *e)
{
    nb_error err = { 0 };
    nb_serve *s = NULL;
    nb_status st = nb_serve_create(&t->server, e, &s, &err);
    if (st != NB_OK) return fail(t->server.log, o, st, &err);
    serve_signals_attach(s); /* whoever reads that the server listens may signal at once */
    serve_say_ready(s, o, t, e);
    notify("READY=1");
    st = nb_serve_run(s, &err);
    if (st == NB_OK) st = nb_engine_health(e, &err);
    if (st == NB_OK) nb_serve_note(t->server.log, NB_LOG_INFO, "stop", "stopped");
    serve_signals_attach(NULL);
    nb_serve_destroy(s);
    return st == NB_OK ? CLI_OK : fail(t->server.log, o, st, &err);
}

/* A process beside the first has no server: until that ends. */
static int follow(const opts *o, const serve_setup *t, nb_engine *e)
{
    nb_error err = { 0 };
    serve_say(t, false, "rank %zu of %zu: follows rank 0", t->nodes.rank, t->nodes.n);
    notify("READY=1");
    const nb_status st = nb_engine_follow(e, &err);
    if (st != NB_OK) return fail(t->server.log, o, st, &err);
    nb_serve_note(t->server.log, NB_LOG_INFO, "stop", "stopped: rank 0 has ended");
    return CLI_OK;
}

/* On the engine's thread; what is under way is answered with the reason. */
static void end_on_failure(void *log, bool failed, const char *line)
{
    nb_serve_news(log, failed, line);
    if (failed) serve_signals_stop();
}

/* A rank that hangs would be waited for: then the process ends with it. */
static bool may_hang(const opts *o, nb_engine *e)
{
    nb_error err = { 0 };
    return o->serve.exit_on_failure && e && nb_engine_health(e, &err) != NB_OK;
}

static int start(const opts *o, nb_serve_log *log)
{
    nb_error err = { 0 };
    nb_engine *e = NULL;
    serve_setup t;
    int code = serve_setup_init(o, &t);
    if (code == CLI_OK) {
        t.server.log = log;
        t.engine.on_news = o->serve.exit_on_failure ? end_on_failure : nb_serve_news;
        t.engine.on_news_ctx = log;
        t.server.max_connections = serve_raise_file_limit(o->serve.max_connections);
        t.engine.progress = serve_progress;
        t.engine.progress_ctx = &t;
        nb_status st = t.nodes.rank ? NB_OK : nb_serve_check(&t.server, &err); /* others have no server */
        if (st == NB_OK) {
            serve_say_plan(o, &t);
            st = nb_engine_create(&t.engine, &e, &err);
        }
        cli_progress_end();
        if (st != NB_OK)
            code = fail(log, o, st, &err);
        else
            code = t.nodes.rank ? follow(o, &t, e) : run(o, &t, e);
    }
    if (!may_hang(o, e)) nb_engine_destroy(e);
    serve_setup_deinit(&t);
    return code;
}

int cmd_serve(const opts *o)
{
    nb_error err = { 0 };
    nb_serve_log *log = NULL;
    const nb_serve_log_options lo = { .file = o->serve.log_file,
                                      .json = strcmp(o->serve.log_format, "json") == 0,
                                      .journal_stream = getenv("JOURNAL_STREAM") };
    serve_signals_block();
    nb_status st = nb_serve_log_open(&lo, &log, &err);
    if (st == NB_OK) st = serve_signals_start(log, &err);
    const int code = st == NB_OK ? start(o, log) : cli_status(st, &err);
    serve_signals_attach(NULL);
    nb_serve_log_close(log);
    return code;
}
