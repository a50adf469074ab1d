/* session.c - see session.h. */
#include "session.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static nb_engine *volatile running; /* what Ctrl-C cancels */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
    if (running) nb_engine_cancel(running);
}

void session_catch_interrupts(bool once)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    (void)sigemptyset(&a.sa_mask);
    a.sa_handler = on_interrupt;
    /* No SA_RESTART: a read of a line from the terminal must notice. */
    a.sa_flags = once ? (int)SA_RESETHAND : 0;
    (void)sigaction(SIGINT, &a, NULL);
}

bool session_interrupted(void)
{
    const bool was = interrupted != 0;
    interrupted = 0;
    return was;
}

int session_open(const opts *o, bool turns, session *s)
{
    nb_error err = { 0 };
    nb_engine_options eo = opts_engine(o);
    eo.cache_answers = turns;
    memset(s, 0, sizeof *s);
    const double begun = cli_seconds();
    const nb_status st = nb_engine_create(&eo, &s->engine, &err);
    cli_progress_end();
    if (st != NB_OK) return cli_status(st, &err);
    s->load_s = cli_seconds() - begun;
    s->text = nb_engine_text(s->engine);
    nb_engine_get_info(s->engine, &s->info);
    if (s->info.warnings && *s->info.warnings) cli_note("warning: %s", s->info.warnings);
    return CLI_OK;
}

void session_close(session *s)
{
    running = NULL;
    nb_engine_destroy(s->engine);
    s->engine = NULL;
}

/* ---- generation ---------------------------------------------------------- */

void session_logprobs_deinit(session_logprobs *l)
{
    free(l->items);
    free(l->n_top);
    memset(l, 0, sizeof *l);
}

static bool room(void **p, size_t *cap, size_t n, size_t item_bytes)
{
    if (n <= *cap) return true;
    const size_t want = n + n / 2 + 64;
    void *q = realloc(*p, want * item_bytes);
    if (!q) return false;
    *p = q;
    *cap = want;
    return true;
}

static bool record(session_logprobs *l, const nb_token_event *ev)
{
    void *items = l->items, *n_top = l->n_top;
    const bool ok = room(&items, &l->cap_items, l->n_items + 1 + ev->n_top, sizeof *l->items);
    l->items = items;
    if (!ok) return false;
    const bool ok_top = room(&n_top, &l->cap_tok, l->n_tok + 1, sizeof *l->n_top);
    l->n_top = n_top;
    if (!ok_top) return false;
    l->items[l->n_items++] = (nb_token_logprob){ ev->id, ev->logprob };
    for (size_t i = 0; i < ev->n_top; i++) l->items[l->n_items++] = ev->top[i];
    l->n_top[l->n_tok++] = ev->n_top;
    return true;
}

typedef struct stream_state {
    const session_request *rq;
    bool no_memory;
} stream_state;

static int on_token(void *ctx, const nb_token_event *ev)
{
    stream_state *t = ctx;
    if (t->rq->logprobs && !record(t->rq->logprobs, ev)) {
        t->no_memory = true;
        return 1;
    }
    if (t->rq->stream && ev->text_bytes) {
        (void)fwrite(ev->text, 1, ev->text_bytes, stdout);
        if (!cli_out_flush()) return 1;
    }
    return 0;
}

nb_status session_generate(session *s, const session_request *rq, nb_result *out, nb_error *err)
{
    stream_state t = { .rq = rq };
    const nb_request request = {
        .prompt = rq->prompt,
        .n_prompt = rq->n_prompt,
        .sampling = rq->sampling,
        .on_token = on_token,
        .on_token_ctx = &t,
    };
    running = s->engine;
    nb_status st = nb_generate(s->engine, &request, out, err);
    running = NULL;
    if (st == NB_OK && t.no_memory) {
        nb_result_deinit(out);
        st = NB_ERR_NOMEM;
        (void)snprintf(err->msg, sizeof err->msg, "no memory for the log-probabilities");
    }
    return st;
}

/* ---- statistics ---------------------------------------------------------- */

static double rate(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

/* All layers of all decode steps so far. */
static void print_thrift(const session *s)
{
    nb_engine_stats t;
    nb_engine_get_stats(s->engine, &t);
    const double n = t.thrift_scored ? (double)t.thrift_scored : 1;
    const double refined = t.thrift_refined ? (double)t.thrift_refined : 1;
    (void)fprintf(stderr,
                  "thrift  %s: %.3f%% of tokens refined (%.3f%% over the cap), %.1f%% of them from "
                  "the pool; read %.2f MiB of records, %.3f MiB of planes\n",
                  s->info.kv_thrift, 100 * (double)t.thrift_refined / n,
                  100 * (double)t.thrift_over / n, 100 * (double)t.thrift_pool_hits / refined,
                  (double)t.thrift_base_bytes / (1 << 20),
                  (double)t.thrift_residual_bytes / (1 << 20));
}

void session_print_stats(const session *s, const nb_result *r, bool with_load)
{
    const size_t n_new = r->n_prompt - r->n_cached;
    const size_t n_step = r->n_tokens ? r->n_tokens - 1 : 0; /* the prompt gives the first */
    (void)fflush(stdout);
    if (with_load)
        (void)fprintf(stderr, "load    %.2f s (%s, %s, %zu threads)\n", s->load_s, s->info.family,
                      s->info.device, s->info.n_thread);
    (void)fprintf(stderr, "prompt  %zu tokens, %zu cached, %.3f s, %.1f tokens/s\n", r->n_prompt,
                  r->n_cached, r->prefill_s, rate(n_new, r->prefill_s));
    (void)fprintf(stderr, "text    %zu tokens, %.3f s, %.1f tokens/s (%s)\n", r->n_tokens,
                  r->decode_s, rate(n_step, r->decode_s), r->finish_reason);
    (void)fprintf(stderr, "cache   %s, %.0f bytes per token\n", s->info.kv_dtype,
                  s->info.kv_bytes_per_tok);
    if (strcmp(s->info.kv_thrift, "off") != 0) print_thrift(s);
}
