/* job.c - a job in the engine: submission, events, answers; see job.h. */
#include "serve/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/rng.h"
#include "os/clock.h"

/* ---- memory ---- */

static void free_events(nb_event_list *l)
{
    for (nb_event *e = l->head, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    *l = (nb_event_list){ 0 };
}

static void free_choice(nb_choice *c)
{
    free_events(&c->kept);
    free_events(&c->prompt_kept);
    free(c->held);
    free(c->why);
    free(c->tail);
    free(c->ids);
    nb_blocks_free(c);
    nb_buf_deinit(&c->text);
}

static void prompt_deinit(nb_prompt *p)
{
    if (p->owned) nb_free(p->ids);
    if (p->text_owned) nb_free((void *)(uintptr_t)p->text.p);
}

static void log_request(const nb_job *j);

void nb_job_free(nb_job *j)
{
    nb_serve *s = j->s;
    const bool large = j->large;
    j->s->n_active -= j->n_admitted;
    for (size_t i = 0; i < j->n_choice; i++) free_choice(&j->choice[i]);
    for (size_t i = 0; i < j->n_prompt; i++) prompt_deinit(&j->prompt[i]);
    nb_buf_deinit(&j->out.b);
    nb_buf_deinit(&j->head.b);
    nb_ask_deinit(&j->ask);
    free(j->body_copy);
    free(j->request_id);
    free(j->choice);
    free(j);
    if (large) nb_jobs_trim(s);
}

/* ---- the engine's thread ---- */

static void push(nb_event *e)
{
    nb_serve *s = e->choice->job->s; /* the job may be freed as soon as e is seen */
    atomic_fetch_add_explicit(&s->n_pushing, 1, memory_order_relaxed);
    nb_event *old = atomic_load_explicit(&s->news, memory_order_relaxed);
    do {
        e->next = old;
    } while (!atomic_compare_exchange_weak_explicit(&s->news, &old, e, memory_order_release,
                                                    memory_order_relaxed));
    if (!old) nb_http_post(s->http, nb_jobs_drain, s);
    atomic_fetch_sub_explicit(&s->n_pushing, 1, memory_order_release);
}

static int push_token(nb_choice *c, const nb_token_event *ev, bool prompt)
{
    if (atomic_load_explicit(&c->job->gone, memory_order_relaxed)) return 1;
    const size_t top_bytes = ev->n_top * sizeof *ev->top;
    const size_t n_piece = ev->n_piece ? ev->n_piece : 1, pieces_bytes = n_piece * sizeof(nb_piece);
    nb_event *e =
        malloc(sizeof *e + pieces_bytes + top_bytes + ev->text_bytes + nb_pieces_bytes(ev));
    if (!e) {
        c->lost = true;
        return 1;
    }
    nb_piece *piece = (nb_piece *)(void *)(e + 1);
    nb_token_logprob *top = (nb_token_logprob *)(void *)(piece + n_piece);
    char *text = (char *)(piece + n_piece) + top_bytes;
    if (top_bytes) memcpy(top, ev->top, top_bytes);
    if (ev->text_bytes) memcpy(text, ev->text, ev->text_bytes);
    *e = (nb_event){ .choice = c,
                     .kind = prompt ? NB_EVENT_PROMPT : NB_EVENT_TOKEN,
                     .id = ev->id,
                     .logprob = ev->logprob,
                     .t = nb_clock_s(),
                     .top = top,
                     .n_top = ev->n_top,
                     .text = { text, ev->text_bytes },
                     .piece = piece,
                     .n_piece = nb_pieces_copy(ev, piece, text + ev->text_bytes),
                     .in_thought = ev->in_thought };
    if (!prompt) c->seen_bytes += ev->text_bytes;
    push(e);
    return 0;
}

static int on_token(void *ctx, const nb_token_event *ev)
{
    return push_token(ctx, ev, false);
}

static int on_prompt(void *ctx, const nb_token_event *ev)
{
    return push_token(ctx, ev, true);
}

static char *copy_line(const char *s)
{
    const size_t n = strlen(s) + 1;
    char *p = malloc(n);
    if (p) memcpy(p, s, n);
    return p;
}

static nb_end_reason reason_of(const char *s)
{
    if (s && strcmp(s, "stop") == 0) return NB_END_STOP;
    if (s && strcmp(s, "length") == 0) return NB_END_LENGTH;
    if (s && strcmp(s, "timeout") == 0) return NB_END_TIMEOUT;
    return NB_END_CANCELLED;
}

static void on_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    nb_choice *c = ctx;
    c->st = st;
    if (st != NB_OK) c->why = copy_line(err && err->msg[0] ? err->msg : nb_status_text(st));
    c->reason = reason_of(r->finish_reason);
    if (c->lost && c->st == NB_OK) c->st = NB_ERR_NOMEM;
    c->stop_index = r->stop_index;
    c->stop_token = r->stop_token;
    c->n_cached = r->n_cached;
    c->n_preempted = r->n_preempted;
    c->n_calls = r->n_calls;
    c->n_reasoning_tok = r->n_reasoning_tok;
    c->queue_s = r->queue_s;
    c->prefill_s = r->prefill_s;
    c->decode_s = r->decode_s;
    if (r->text && r->text_bytes > c->seen_bytes && !c->lost) {
        const size_t n = r->text_bytes - c->seen_bytes;
        c->tail = malloc(n);
        if (c->tail) memcpy(c->tail, r->text + c->seen_bytes, c->tail_bytes = n);
    }
    c->done = (nb_event){ .choice = c, .kind = NB_EVENT_DONE, .t = nb_clock_s() };
    push(&c->done);
}

/* ---- submission ---- */

static void abort_choices(nb_job *j)
{
    atomic_store_explicit(&j->gone, true, memory_order_relaxed);
    for (size_t i = 0; i < j->n_choice; i++)
        if (j->choice[i].open) nb_engine_abort(j->s->engine, j->choice[i].id);
}

void nb_job_client_gone(void *ctx)
{
    nb_job *j = ctx;
    j->ex = NULL;
    j->status = 499;
    abort_choices(j); /* the last event, or the end of its preparation, frees the job */
}

static void fail(nb_job *j, int status, const char *message)
{
    if (!j->ex) return;
    j->status = status;
    if (j->begun) {
        j->out.st = NB_OK;
        j->api->error(j, status, message);
        (void)nb_http_write(j->ex, nb_buf_view(&j->out.b));
        nb_http_end(j->ex);
    } else {
        nb_reply_error(j->ex, status, NULL, "%s", message);
    }
    j->ex = NULL;
    j->out.b.n_bytes = 0;
    abort_choices(j);
}

static nb_status submit_choice(nb_job *j, nb_choice *c, size_t k, nb_request_id first)
{
    const nb_ask *a = &j->ask;
    nb_error err = { 0 };
    nb_request rq = { .prompt = c->prompt->ids,
                      .n_prompt = c->prompt->n_ids,
                      .sampling = a->sampling,
                      .on_token = on_token,
                      .on_token_ctx = c,
                      .on_done = on_done,
                      .cache_salt = a->cache_salt,
                      .priority = a->priority,
                      .timeout_s = j->s->o.request_timeout_s,
                      .split = j->api->kind == NB_ASK_CHAT,
                      .tools = a->tools,
                      .n_tools = a->n_tools,
                      .n_history_calls = a->n_history_calls,
                      .no_calls = a->tool_choice == NB_TOOLS_NONE,
                      .stop_after_call = a->one_call,
                      .grammar = a->grammar,
                      .limit_thought = a->has_thinking_budget,
                      .max_thought = a->thinking_budget,
                      .after = k ? first : 0 };
    rq.sampling.max_tokens = c->prompt->max_tokens;
    rq.sampling.seed += k;
    const int echoed = a->echo && a->logprobs ? a->sampling.n_logprobs : -1;
    const int n_top = echoed > a->prompt_logprobs ? echoed : a->prompt_logprobs;
    if (k == 0 && n_top >= 0) {
        rq.on_prompt = on_prompt;
        rq.n_prompt_top = n_top;
    }
    c->open = true; /* its end may come before submit returns; the loop sees it later */
    const nb_status st = nb_engine_submit(j->s->engine, &rq, &c->id, &err);
    if (st != NB_OK) {
        c->open = false;
        fail(j, nb_http_status_of(st), err.msg[0] ? err.msg : nb_status_text(st));
        return st;
    }
    j->n_open++;
    if (k == 0) j->s->n_queued_tok += c->n_queued_tok = c->prompt->n_ids;
    return NB_OK;
}

static void forget_ids(nb_prompt *p)
{
    if (p->owned) nb_free(p->ids);
    p->owned = false;
    p->ids = NULL;
}

void nb_job_submit(nb_job *j)
{
    const size_t n = j->ask.n;
    nb_request_id first = 0;
    nb_status st = NB_OK;
    if (!j->ask.has_seed) j->ask.sampling.seed = nb_rng_u64(j->s->o.seed, j->s->n_unseeded++) >> 1;
    nb_http_on_close(j->ex, nb_job_client_gone, j);
    j->n_choice = j->n_admitted;
    for (size_t i = 0; i < j->n_choice; i++)
        j->choice[i] =
            (nb_choice){ .job = j, .index = i, .prompt = &j->prompt[i / n], .first = i % n == 0 };
    for (size_t i = 0; st == NB_OK && i < j->n_choice; i++) {
        st = submit_choice(j, &j->choice[i], i % n, first);
        if (i % n == 0) first = j->choice[i].id;
    }
    if (!j->ask.return_token_ids) /* the engine has its own */
        for (size_t i = 0; i < j->n_prompt; i++) forget_ids(&j->prompt[i]);
    if (j->n_open == 0) nb_job_free(j);
}

/* ---- the loop: events ---- */

static void append(nb_event_list *l, nb_event *e)
{
    e->next = NULL;
    if (l->tail)
        l->tail->next = e;
    else
        l->head = e;
    l->tail = e;
    l->n++;
}

/* Is this token written together with the end of its choice?  The last one by length and one
 * without text of its own (end of text) are, so that a token is a chunk and a chunk is a token. */
static bool waits_for_end(const nb_choice *c, const nb_event *e)
{
    if (c->n_gen >= c->prompt->max_tokens) return true;
    if (e->text.n_bytes) return false;
    const nb_sampling *p = &c->job->ask.sampling;
    for (size_t i = 0; i < p->n_stop_id; i++)
        if (p->stop_id[i] == e->id) return true;
    const nb_text *t = c->job->s->text;
    char *text = NULL;
    size_t n = 1;
    if (!t || nb_text_detokenize(t, &e->id, 1, true, &text, &n, NULL) != NB_OK) return false;
    nb_free(text);
    return n == 0;
}

static bool begin_stream(nb_job *j)
{
    if (j->begun) return true;
    if (nb_http_add_header(j->ex, "Cache-Control", "no-cache") == NB_OK &&
        nb_http_add_header(j->ex, "X-Accel-Buffering", "no") == NB_OK &&
        nb_http_begin(j->ex, 200, "text/event-stream; charset=utf-8") == NB_OK) {
        j->begun = true;
        j->status = 200;
        return true;
    }
    fail(j, 500, "out of memory");
    return false;
}

static void write_chunk(nb_choice *c, const nb_event *ev, bool last)
{
    nb_job *j = c->job;
    if (!begin_stream(j)) return;
    j->api->chunk(j, c, ev, last);
    c->started = true;
}

/* Of whole answers. */
static nb_status keep_text(nb_choice *c, const nb_event *e)
{
    if (c->job->api->kind != NB_ASK_CHAT) return nb_buf_add_str(&c->text, e->text);
    for (size_t i = 0; i < e->n_piece; i++)
        if (nb_shows(c->job, &e->piece[i])) NB_TRY(nb_blocks_add(c, &e->piece[i]));
    return NB_OK;
}

static nb_status keep_tail(nb_choice *c)
{
    const nb_piece tail = nb_tail_piece(c);
    if (!c->tail_bytes) return NB_OK;
    if (c->job->api->kind != NB_ASK_CHAT) return nb_buf_add(&c->text, c->tail, c->tail_bytes);
    return nb_blocks_add(c, &tail);
}

/* Consumes e, unless it is kept. */
static void use_token(nb_choice *c, nb_event *e, bool last)
{
    nb_job *j = c->job;
    if (j->ask.stream) {
        write_chunk(c, e, last);
        free(e);
        return;
    }
    if (NB_GROW(c->ids, c->cap_ids, c->n_gen - 1) != NB_OK || keep_text(c, e) != NB_OK) {
        free(e);
        fail(j, 500, "out of memory");
        return;
    }
    c->ids[c->n_gen - 1] = e->id;
    if (j->ask.logprobs && !(e->in_thought && j->ask.hide_reasoning))
        append(&c->kept, e);
    else
        free(e);
}

static void flush_held(nb_choice *c, bool last)
{
    nb_event *e = c->held;
    c->held = NULL;
    if (!e) return;
    if (c->job->ex)
        use_token(c, e, last);
    else
        free(e);
}

static void leave_queue(nb_choice *c)
{
    c->job->s->n_queued_tok -= c->n_queued_tok;
    c->n_queued_tok = 0;
}

static void take_token(nb_choice *c, nb_event *e)
{
    nb_metrics *m = c->job->s->metrics;
    flush_held(c, false); /* before it is counted: usage in chunks */
    if (c->n_gen++ == 0) {
        c->t_first = e->t;
        leave_queue(c);
    } else {
        nb_metrics_token(m, e->t - c->t_last);
    }
    c->t_last = e->t;
    if (!c->job->ask.stream) {
        if (c->job->ex)
            use_token(c, e, false);
        else
            free(e);
        return;
    }
    c->held = e;
}

static const char *metrics_reason(const nb_choice *c)
{
    if (c->job->status == 499) return "abort";
    if (c->st != NB_OK) return "error";
    switch (c->reason) {
    case NB_END_STOP: return "stop";
    case NB_END_LENGTH: return "length";
    case NB_END_TIMEOUT:
    case NB_END_CANCELLED: break;
    }
    return "abort";
}

static void count_choice(const nb_choice *c)
{
    const nb_job *j = c->job;
    const nb_metrics_request r = { .reason = metrics_reason(c),
                                   .n_prompt = c->prompt->n_ids,
                                   .n_cached = c->n_cached,
                                   .n_generated = c->n_gen,
                                   .max_tokens = c->prompt->max_tokens,
                                   .n = j->ask.n,
                                   .first_choice = c->first,
                                   .ttft_s = c->n_gen ? c->t_first - j->t0 : -1,
                                   .e2e_s = c->done.t - j->t0,
                                   .queue_s = c->queue_s,
                                   .prefill_s = c->prefill_s,
                                   .decode_s = c->decode_s };
    nb_metrics_request_done(j->s->metrics, &r);
}

/* include_stop_str_in_output: what ended the text belongs to it. */
static void add_stop_text(nb_choice *c)
{
    const nb_job *j = c->job;
    nb_str s = { 0 };
    size_t n = 1;
    char *shown = NULL;
    if (c->reason != NB_END_STOP || !j->s->text) return;
    if (c->stop_index >= 0 && (size_t)c->stop_index < j->ask.sampling.n_stop) {
        s = nb_str_c(j->ask.sampling.stop[c->stop_index]);
    } else if (c->stop_token >= 0) { /* special tokens stay out, as everywhere */
        const uint32_t id = (uint32_t)c->stop_token;
        if (nb_text_detokenize(j->s->text, &id, 1, true, &shown, &n, NULL) != NB_OK) return;
        s = (nb_str){ shown, n };
    }
    char *tail = s.n_bytes ? realloc(c->tail, c->tail_bytes + s.n_bytes) : NULL;
    if (tail) {
        memcpy(tail + c->tail_bytes, s.p, s.n_bytes);
        c->tail = tail;
        c->tail_bytes += s.n_bytes;
    }
    nb_free(shown);
}

static void end_badly(nb_choice *c)
{
    char line[160];
    if (c->st != NB_OK) {
        fail(c->job, nb_http_status_of(c->st), c->why ? c->why : "the engine could not go on");
    } else if (c->reason == NB_END_TIMEOUT) {
        (void)snprintf(line, sizeof line, "the request was not done within %g seconds",
                       c->job->s->o.request_timeout_s);
        fail(c->job, 504, line);
    } else {
        fail(c->job, 500, "the request was cancelled");
    }
}

static void take_done(nb_choice *c)
{
    nb_job *j = c->job;
    c->open = false;
    j->n_open--;
    leave_queue(c);
    count_choice(c);
    if (!j->ex) {
        flush_held(c, true);
        return;
    }
    if (c->st != NB_OK || c->reason == NB_END_TIMEOUT || c->reason == NB_END_CANCELLED) {
        flush_held(c, false);
        end_badly(c);
        return;
    }
    if (j->ask.include_stop) add_stop_text(c);
    if (!j->ask.stream) {
        if (keep_tail(c) != NB_OK) fail(j, 500, "out of memory");
    } else if (c->held) {
        flush_held(c, true);
    } else {
        write_chunk(c, NULL, true);
    }
}

static nb_event *take_news(nb_serve *s)
{
    nb_event *e = atomic_exchange_explicit(&s->news, NULL, memory_order_acquire), *list = NULL;
    while (e) { /* last first: turned around */
        nb_event *next = e->next;
        e->next = list;
        list = e;
        e = next;
    }
    return list;
}

static void take_event(nb_event *e)
{
    nb_choice *c = e->choice;
    switch (e->kind) {
    case NB_EVENT_PROMPT: append(&c->prompt_kept, e); break;
    case NB_EVENT_TOKEN: take_token(c, e); break;
    case NB_EVENT_DONE: take_done(c); break;
    }
}

/* ---- the loop: what a batch of events leaves to do for a job ---- */

static void write_held(nb_job *j)
{
    for (size_t i = 0; j->ex && i < j->n_choice; i++) {
        nb_choice *c = &j->choice[i];
        if (c->held && !waits_for_end(c, c->held)) flush_held(c, false);
    }
}

static void send(nb_job *j)
{
    if (!j->ex || !j->begun) return;
    if (j->out.st != NB_OK) {
        j->out.b.n_bytes = 0;
        fail(j, 500, "out of memory");
        return;
    }
    if (j->out.b.n_bytes) (void)nb_http_write(j->ex, nb_buf_view(&j->out.b));
    j->out.b.n_bytes = 0;
}

static void end_stream(nb_job *j)
{
    j->api->close(j);
    send(j);
    if (!j->ex) return;
    nb_http_end(j->ex);
    j->ex = NULL;
}

static void end_job(nb_job *j)
{
    log_request(j);
    nb_job_free(j);
}

void nb_job_answered(nb_job *j)
{
    if (j->ex && j->out.st != NB_OK) {
        fail(j, 500, "out of memory");
    } else if (j->ex) {
        j->status = 200;
        nb_http_reply(j->ex, 200, "application/json", nb_buf_view(&j->out.b));
        j->ex = NULL;
    }
    end_job(j);
}

static void settle(nb_job *j)
{
    j->dirty = false;
    if (j->ask.stream) {
        write_held(j);
        if (j->n_open) send(j);
    }
    if (j->n_open) return;
    if (j->ex && !j->ask.stream) {
        nb_job_answer(j);
        return;
    }
    if (j->ex) end_stream(j);
    end_job(j);
}

void nb_jobs_drain(void *ctx)
{
    nb_serve *s = ctx;
    nb_job *dirty = NULL;
    for (nb_event *e = take_news(s), *next; e; e = next) {
        nb_job *j = e->choice->job;
        next = e->next;
        if (!j->dirty) {
            j->dirty = true;
            j->next_dirty = dirty;
            dirty = j;
        }
        take_event(e);
    }
    for (nb_job *next; dirty; dirty = next) {
        next = dirty->next_dirty;
        settle(dirty);
    }
}

void nb_jobs_wait(nb_serve *s)
{
    const struct timespec ms = { 0, 1000000 };
    for (;;) {
        nb_jobs_prepared(s);
        nb_jobs_drain(s);
        if (!s->n_active && !s->n_preparing &&
            !atomic_load_explicit(&s->n_pushing, memory_order_acquire))
            return;
        (void)nanosleep(&ms, NULL);
    }
}

/* ---- logs ---- */

static const char *number(char out[32], double v)
{
    (void)snprintf(out, 32, "%.6g", v);
    return out;
}

static void log_request(const nb_job *j)
{
    if (j->s->o.no_log_requests || !j->n_choice) return;
    size_t prompt, cached, generated;
    char num[10][32];
    const nb_choice *c = &j->choice[0];
    const bool timed_out = c->st == NB_OK && c->reason == NB_END_TIMEOUT; /* metrics: abort */
    nb_job_counts(j, &prompt, &cached, &generated);
    nb_log(j->s, NB_LOG_INFO, "request", "id", j->request_id, "endpoint", j->api->path, "#status",
           number(num[0], j->status), "#prompt_tokens", number(num[1], (double)prompt),
           "#cached_tokens", number(num[2], (double)cached), "#generated_tokens",
           number(num[3], (double)generated), "#choices", number(num[4], (double)j->n_choice),
           j->prompt[0].cut_from ? "#max_tokens_cut_from" : "#max_tokens",
           number(num[9], (double)(j->prompt[0].cut_from ? j->prompt[0].cut_from
                                                         : j->prompt[0].max_tokens)),
           "finish_reason", timed_out ? "timeout" : metrics_reason(c), "#queue_s",
           number(num[5], c->queue_s), "#ttft_s", number(num[6], c->n_gen ? c->t_first - j->t0 : 0),
           "#total_s", number(num[7], c->done.t - j->t0), "#preempted",
           number(num[8], (double)c->n_preempted), c->why ? "error" : NULL, c->why, NULL);
}
