/* job_open.c - a job before the engine: admission, its body, its prompts; see job.h. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "os/clock.h"
#include "os/sys.h"
#include "serve/fields.h"
#include "serve/job.h"
#include "serve/structured.h"

enum {
    MAX_PROMPTS = 2048,
    MAX_CHOICES = 4096,
    INLINE_BYTES =
        16 << 10, /* larger bodies are read on the helper thread: about 2 ms of the loop */
    INLINE_SHOWN = 8 << 10,     /* larger answers are written there, n_shown() */
    MAX_PROMPT_SHOWN = 3 << 20, /* of prompts in an answer, n_shown(): about 150 MB */
    MAX_KEPT_BYTES = 512 << 20, /* of events that a whole answer with log-probabilities keeps */
    LARGE_BYTES = 1 << 20,      /* bodies from which on memory is given back afterwards */
    MAX_COPIED_BYTES = 8 << 20  /* of what each choice has its own copy: 50 ms of the loop */
};

/* ---- replies ---- */

static void reply_ask(nb_http_ex *ex, const nb_ask *a)
{
    int status = 400;
    if (a->err.status == NB_ERR_NOMEM) status = 500;
    if (a->err.status == NB_ERR_NOT_FOUND) status = 404;
    nb_reply_error(ex, status, a->param, "%s", a->err.msg);
}

static void reply_busy(nb_http_ex *ex, const char *what)
{
    nb_reply_error(ex, 503, NULL, "the server is full (%s): try again later", what);
}

/* Room for n more requests; replies 503 or 500 where there is none. */
static bool has_room(nb_serve *s, nb_http_ex *ex, size_t n)
{
    nb_error err = { 0 };
    if (nb_engine_health(s->engine, &err) != NB_OK) {
        nb_reply_error(ex, nb_http_status_of(NB_ERR_FAILED), NULL, "%s", err.msg);
        return false;
    }
    const size_t max = s->o.max_num_queued_reqs;
    if (max && s->n_active + n > max) {
        reply_busy(ex, "max-num-queued-reqs");
        return false;
    }
    if (s->o.max_num_queued_tokens && s->n_queued_tok >= s->o.max_num_queued_tokens) {
        reply_busy(ex, "max-num-queued-tokens");
        return false;
    }
    return true;
}

/* "application/json", whatever its case and parameters. */
static bool is_json_type(nb_str v)
{
    static const char want[] = "application/json";
    size_t n = 0;
    while (n < v.n_bytes && v.p[n] != ';' && v.p[n] != ' ' && v.p[n] != '\t') n++;
    if (n != sizeof want - 1) return false;
    for (size_t i = 0; i < n; i++) {
        const char c = v.p[i] >= 'A' && v.p[i] <= 'Z' ? (char)(v.p[i] + 32) : v.p[i];
        if (c != want[i]) return false;
    }
    return true;
}

/* ---- prompts: any thread ---- */

void nb_prompt_cut(nb_prompt *p, size_t keep)
{
    if (!keep || p->n_ids <= keep) return;
    memmove(p->ids, p->ids + (p->n_ids - keep), keep * sizeof *p->ids);
    p->n_ids = keep;
}

nb_status nb_job_prompts(nb_job *j, size_t n)
{
    nb_ask *a = &j->ask;
    if (n == 0 || n > MAX_PROMPTS || n * a->n > MAX_CHOICES)
        return nb_ask_bad(a, "prompt",
                          "prompt: %zu prompts with %zu choices each: expected 1..%d prompts and "
                          "at most %d choices",
                          n, a->n, MAX_PROMPTS, MAX_CHOICES);
    j->prompt = nb_ask_alloc(a, n, sizeof *j->prompt);
    if (!j->prompt) return NB_ERR_NOMEM;
    j->n_prompt = n;
    return NB_OK;
}

/* The field that a refusal of the renderer begins with. */
static const char *field_of(const char *message)
{
    static const char *const names[] = { "add_generation_prompt", "continue_final_message",
                                         "chat_template_kwargs", "documents", "tools" };
    for (size_t i = 0; i < NB_COUNT(names); i++)
        if (strncmp(message, names[i], strlen(names[i])) == 0) return names[i];
    return "messages";
}

nb_status nb_render_chat(const nb_serve *s, nb_ask *a, json_t *chat, nb_prompt *out)
{
    nb_error err = { 0 };
    nb_prompt p = { .owned = true };
    if (!s->text)
        return nb_ask_bad(a, NULL, "the model has no tokenizer: only token ids can be used");
    if (!nb_text_has_template(s->text))
        return nb_ask_bad(a, "messages", "the model has no chat template (--chat-template)");
    char *body = NULL;
    if (nb_chat_rules_apply(&s->chat, a, chat) == NB_OK)
        body = json_dumps(chat, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!body) return nb_fail(&a->err, NB_ERR_NOMEM, "out of memory");
    const nb_status st =
        nb_text_render(s->text, body, strlen(body), NULL, NULL, &p.ids, &p.n_ids, &err);
    free(body);
    if (st != NB_OK) {
        (void)nb_ask_bad(a, field_of(err.msg), "%s", err.msg);
        if (st == NB_ERR_NOMEM) a->err.status = st;
        return st;
    }
    nb_prompt_cut(&p, a->truncate);
    *out = p;
    return NB_OK;
}

nb_status nb_job_chat(nb_job *j, nb_status (*map)(nb_ask *a, json_t **out))
{
    json_t *chat = NULL;
    NB_TRY(nb_job_prompts(j, 1));
    NB_TRY(map(&j->ask, &chat));
    nb_status st = nb_ask_take_tools(&j->ask, chat);
    if (st == NB_OK) st = nb_render_chat(j->s, &j->ask, chat, &j->prompt[0]);
    json_decref(chat);
    return st;
}

/* ---- preparation: any thread ---- */

static nb_status check_model(nb_job *j)
{
    const nb_serve *s = j->s;
    const char *name = NULL;
    NB_TRY(nb_ask_string(&j->ask, "model", &name));
    if (!name) return NB_OK;
    for (size_t i = 0; i < s->o.n_served_name; i++)
        if (strcmp(name, s->o.served_name[i]) == 0) return NB_OK;
    (void)nb_ask_bad(&j->ask, "model", "The model `%.200s` does not exist.", name);
    return j->ask.err.status = NB_ERR_NOT_FOUND;
}

/* The form of the answer.  A text completion has neither thoughts nor calls. */
static nb_status read_structure(nb_job *j)
{
    nb_ask *a = &j->ask;
    nb_structured s = { .text = j->s->text };
    nb_error err = { 0 };
    const char *param = NULL;
    if (j->api->kind == NB_ASK_CHAT)
        nb_engine_formats(j->s->engine, &s.call_format, &s.thought_open, &s.thought_close);
    const nb_status st = nb_structured_read(a->doc, &s, &a->grammar, &param, &err);
    if (st == NB_OK) return st;
    (void)nb_ask_bad(a, param, "%s", err.msg);
    if (st == NB_ERR_NOMEM) a->err.status = st;
    return st;
}

static nb_status prepare(nb_job *j)
{
    NB_TRY(nb_ask_open(&j->ask, j->body));
    NB_TRY(check_model(j));
    nb_status st = j->api->prepare(j);
    if (st == NB_OK && j->api->uses_engine) st = read_structure(j);
    nb_ask_forget(&j->ask);
    free(j->body_copy);
    j->body_copy = NULL;
    j->body = (nb_str){ 0 };
    return st;
}

/* ---- after it: the loop ---- */

/* vLLM's header wins over the field. */
static nb_status priority_header(nb_job *j)
{
    const nb_str h = nb_http_header(j->ex, "X-Vllm-Priority");
    if (!h.p || !h.n_bytes) return NB_OK;
    char num[16] = { 0 }, *end = num;
    if (h.n_bytes < sizeof num) memcpy(num, h.p, h.n_bytes);
    const long v = strtol(num, &end, 10);
    if (end == num || *end || v < INT32_MIN || v > INT32_MAX)
        return nb_ask_bad(&j->ask, "priority", "X-Vllm-Priority: expected an integer");
    if (v && !j->s->o.priority_scheduling)
        return nb_ask_bad(&j->ask, "priority",
                          "X-Vllm-Priority: the server schedules first come, first served "
                          "(--scheduling-policy priority)");
    j->ask.priority = (int32_t)v;
    return NB_OK;
}

/* The id of the answer: that of the client's header, of its field, or the exchange's. */
static nb_status make_id(nb_job *j)
{
    const char *id = nb_http_request_id(j->ex);
    if (!nb_http_header(j->ex, "X-Request-Id").p && j->ask.request_id) id = j->ask.request_id;
    const size_t prefix = strlen(j->api->id_prefix), n = strlen(id);
    j->request_id = malloc(prefix + n + 1);
    if (!j->request_id) return nb_fail(&j->ask.err, NB_ERR_NOMEM, "out of memory");
    memcpy(j->request_id, j->api->id_prefix, prefix);
    memcpy(j->request_id + prefix, id, n + 1);
    return NB_OK;
}

/* vLLM's words for what does not fit. */
static nb_status too_long(nb_job *j, const char *param, size_t n_ids, size_t want)
{
    const char *what = j->api->kind == NB_ASK_CHAT ? "messages" : "prompt";
    return nb_ask_bad(&j->ask, param,
                      "This model's maximum context length is %zu tokens. However, you requested "
                      "%zu tokens (%zu in the %s, %zu in the completion). Please reduce the "
                      "length of the %s or completion.",
                      j->s->info.max_model_len, n_ids + want, n_ids, what, want, what);
}

static nb_status fit_prompt(nb_job *j, nb_prompt *p, size_t dflt)
{
    nb_ask *a = &j->ask;
    const size_t max = j->s->info.max_model_len;
    const char *what = j->api->kind == NB_ASK_CHAT ? "messages" : "prompt";
    nb_prompt_cut(p, a->truncate);
    if (p->n_ids == 0) return nb_ask_bad(a, what, "the prompt has no tokens");
    const bool given = a->has_max_tokens;
    const size_t room = p->n_ids < max ? max - p->n_ids : 0;
    size_t want = given ? a->sampling.max_tokens : dflt;
    if (p->n_ids > max || (room == 0 && want > 0))
        return too_long(j, what, p->n_ids, given ? want : 1);
    if (want > room && given && !j->api->clamp) return too_long(j, "max_tokens", p->n_ids, want);
    p->cut_from = given && want > room ? want : 0;
    if (want > room) want = room;
    if (a->sampling.min_tokens > want)
        return nb_ask_bad(a, "min_tokens", "min_tokens is %zu: expected 0..%zu (max_tokens)",
                          a->sampling.min_tokens, want);
    p->max_tokens = want;
    return NB_OK;
}

static nb_status fit_prompts(nb_job *j, size_t *n_tok)
{
    const size_t own = j->s->default_max_tokens, any = j->api->max_tokens;
    const size_t dflt = own && own < any ? own : any;
    for (size_t i = 0; i < j->n_prompt; i++) {
        NB_TRY(fit_prompt(j, &j->prompt[i], dflt));
        *n_tok += j->prompt[i].n_ids;
    }
    return NB_OK;
}

/* Reserves what one request did not: the other choices, and the tokens. */
static bool admit_all(nb_job *j, size_t n_tok)
{
    nb_serve *s = j->s;
    const size_t more = j->n_prompt * j->ask.n - j->n_admitted;
    const size_t max = s->o.max_num_queued_tokens;
    if (more && !has_room(s, j->ex, more)) return false;
    if (max && s->n_queued_tok && s->n_queued_tok + n_tok > max) {
        reply_busy(j->ex, "max-num-queued-tokens");
        return false;
    }
    s->n_active += more;
    j->n_admitted += more;
    return true;
}

/* The largest number of alternatives that is shown with a token. */
static size_t shown_top(const nb_ask *a)
{
    const int own = a->logprobs ? a->sampling.n_logprobs : 0;
    const int most = own > a->prompt_logprobs ? own : a->prompt_logprobs;
    return most > 0 ? (size_t)most : 0;
}

/* Whole answers keep the events of their tokens where log-probabilities are shown. */
static nb_status check_kept(nb_job *j)
{
    nb_ask *a = &j->ask;
    const size_t event_bytes = sizeof(nb_event) + shown_top(a) * sizeof(nb_token_logprob);
    size_t room = MAX_KEPT_BYTES / event_bytes;
    if (a->stream || !a->logprobs) return NB_OK;
    for (size_t i = 0; i < j->n_prompt; i++) {
        if (j->prompt[i].max_tokens > room / a->n)
            return nb_ask_bad(
                a, "logprobs",
                "an answer with log-probabilities of %zu choices with up to %zu tokens "
                "is too large: expected fewer of them, or a smaller max_tokens",
                j->n_prompt * a->n, j->prompt[i].max_tokens);
        room -= j->prompt[i].max_tokens * a->n;
    }
    return NB_OK;
}

/* A short request must not ask for a huge answer or for much work before its queue. */
static nb_status check_factors(nb_job *j, size_t n_tok)
{
    nb_ask *a = &j->ask;
    const nb_sampling *p = &a->sampling;
    const size_t n_choice = j->n_prompt * a->n, n_top = 1 + shown_top(a);
    /* a stream is written on the loop */
    const size_t most = a->stream ? MAX_PROMPT_SHOWN / 8 : MAX_PROMPT_SHOWN;
    size_t bytes = p->n_stop_id * sizeof *p->stop_id + p->n_logit_bias * sizeof *p->logit_bias;
    for (size_t i = 0; i < p->n_stop; i++) bytes += 3 * strlen(p->stop[i]); /* automata */
    if (n_choice > 1 && bytes > MAX_COPIED_BYTES / n_choice)
        return nb_ask_bad(a, "n",
                          "n: %zu choices with stop strings, stop_token_ids and logit_bias of %zu "
                          "bytes each: expected at most %d bytes in all",
                          n_choice, bytes, MAX_COPIED_BYTES);
    const bool shows_prompt = a->echo || a->return_token_ids || a->prompt_logprobs >= 0;
    if (shows_prompt && n_tok > most / n_top / a->n)
        return nb_ask_bad(a, a->prompt_logprobs >= 0 ? "prompt_logprobs" : "echo",
                          "an answer with the %zu tokens of the prompt and %zu log-probabilities "
                          "for each, %zu times, is too large: expected at most %zu of both",
                          n_tok, n_top - 1, a->n, most);
    return check_kept(j);
}

static nb_status enter_engine(nb_job *j)
{
    size_t n_tok = 0;
    if (j->ask.sampling.n_stop && !j->s->text)
        return nb_ask_bad(&j->ask, "stop", "stop strings need the model's tokenizer");
    NB_TRY(priority_header(j));
    NB_TRY(fit_prompts(j, &n_tok));
    NB_TRY(check_factors(j, n_tok));
    if (!admit_all(j, n_tok)) {
        nb_job_free(j);
        return NB_OK;
    }
    j->choice = calloc(j->n_admitted, sizeof *j->choice);
    if (!j->choice) return nb_fail(&j->ask.err, NB_ERR_NOMEM, "out of memory");
    nb_job_submit(j);
    return NB_OK;
}

/* Fields that were given and have no effect: each is logged once. */
static void warn_of_fields(nb_job *j)
{
    nb_serve *s = j->s;
    for (size_t i = 0; i < 64 * NB_COUNT(s->warned); i++) {
        const uint64_t bit = (uint64_t)1 << i % 64;
        char line[256];
        if (!(j->ask.warned[i / 64] & bit) || s->warned[i / 64] & bit) continue;
        s->warned[i / 64] |= bit;
        nb_fields_warning(i, line, sizeof line);
        nb_log(s, NB_LOG_WARN, "request", "message", line, NULL);
    }
    if (!j->ask.skipped_tools || s->warned_tools) return;
    s->warned_tools = true;
    nb_log(s, NB_LOG_WARN, "request", "message",
           "tools that only their vendor's servers could run were left out (logged once)", NULL);
}

/* st: of its preparation. */
static void go_on(nb_job *j, nb_status st)
{
    if (!j->ex) {
        nb_job_free(j);
        return;
    }
    warn_of_fields(j);
    if (st == NB_OK) st = make_id(j);
    if (st == NB_OK && !j->api->uses_engine) {
        nb_job_answer(j);
        return;
    }
    if (st == NB_OK) st = enter_engine(j);
    if (st == NB_OK) return;
    reply_ask(j->ex, &j->ask);
    nb_job_free(j);
}

/* ---- the helper thread ---- */

static void *work(void *arg)
{
    nb_serve *s = arg;
    (void)pthread_mutex_lock(&s->prep.lock);
    for (;;) {
        while (!s->prep.todo && !s->prep.stop && !s->prep.trim)
            (void)pthread_cond_wait(&s->prep.news, &s->prep.lock);
        nb_job *j = s->prep.todo;
        if (!j && s->prep.trim) {
            s->prep.trim = false;
            (void)pthread_mutex_unlock(&s->prep.lock);
            nb_os_trim_memory();
            (void)pthread_mutex_lock(&s->prep.lock);
            continue;
        }
        if (!j) break;
        s->prep.todo = j->next;
        if (!s->prep.todo) s->prep.todo_tail = NULL;
        (void)pthread_mutex_unlock(&s->prep.lock);
        const bool gone = atomic_load_explicit(&j->gone, memory_order_relaxed);
        if (j->answering && !gone)
            j->api->answer(j);
        else if (!j->answering)
            j->prepared = gone ? NB_ERR_CANCELLED : prepare(j);
        (void)pthread_mutex_lock(&s->prep.lock);
        j->next = s->prep.done;
        s->prep.done = j;
        nb_http_post(s->http, nb_jobs_prepared, s);
    }
    (void)pthread_mutex_unlock(&s->prep.lock);
    return NULL;
}

nb_status nb_jobs_start(nb_serve *s, nb_error *err)
{
    if (pthread_mutex_init(&s->prep.lock, NULL) != 0)
        return nb_fail(err, NB_ERR_NOMEM, "no memory for a lock");
    if (pthread_cond_init(&s->prep.news, NULL) != 0) {
        (void)pthread_mutex_destroy(&s->prep.lock);
        return nb_fail(err, NB_ERR_NOMEM, "no memory for a lock");
    }
    if (pthread_create(&s->prep.thread, NULL, work, s) != 0) {
        (void)pthread_cond_destroy(&s->prep.news);
        (void)pthread_mutex_destroy(&s->prep.lock);
        return nb_fail(err, NB_ERR_NOMEM, "no thread for the reading of requests");
    }
    s->prep.running = true;
    return NB_OK;
}

void nb_jobs_stop(nb_serve *s)
{
    if (!s->prep.running) return;
    (void)pthread_mutex_lock(&s->prep.lock);
    s->prep.stop = true;
    (void)pthread_cond_signal(&s->prep.news);
    (void)pthread_mutex_unlock(&s->prep.lock);
    (void)pthread_join(s->prep.thread, NULL);
    (void)pthread_cond_destroy(&s->prep.news);
    (void)pthread_mutex_destroy(&s->prep.lock);
    s->prep.running = false;
}

void nb_jobs_trim(nb_serve *s)
{
    (void)pthread_mutex_lock(&s->prep.lock);
    s->prep.trim = true;
    (void)pthread_cond_signal(&s->prep.news);
    (void)pthread_mutex_unlock(&s->prep.lock);
}

/* On the loop. */
void nb_jobs_prepared(void *ctx)
{
    nb_serve *s = ctx;
    (void)pthread_mutex_lock(&s->prep.lock);
    nb_job *j = s->prep.done, *list = NULL;
    s->prep.done = NULL;
    (void)pthread_mutex_unlock(&s->prep.lock);
    while (j) { /* last first: turned around */
        nb_job *next = j->next;
        j->next = list;
        list = j;
        j = next;
    }
    for (nb_job *next; list; list = next) {
        next = list->next;
        s->n_preparing--;
        if (list->answering)
            nb_job_answered(list);
        else
            go_on(list, list->prepared);
    }
}

/* The client may leave meanwhile. */
static void work_aside(nb_job *j)
{
    nb_serve *s = j->s;
    nb_http_on_close(j->ex, nb_job_client_gone, j);
    j->next = NULL;
    s->n_preparing++;
    (void)pthread_mutex_lock(&s->prep.lock);
    if (s->prep.todo_tail)
        s->prep.todo_tail->next = j;
    else
        s->prep.todo = j;
    s->prep.todo_tail = j;
    (void)pthread_cond_signal(&s->prep.news);
    (void)pthread_mutex_unlock(&s->prep.lock);
}

/* The body outlives the exchange. */
static bool prepare_aside(nb_job *j)
{
    j->body_copy = malloc(j->body.n_bytes);
    if (!j->body_copy) return false;
    memcpy(j->body_copy, j->body.p, j->body.n_bytes);
    j->body.p = j->body_copy;
    work_aside(j);
    return true;
}

/* ---- whole answers ---- */

/* About as many things as the answer will tell: tokens, log-probabilities, pieces of text. */
static size_t n_shown(const nb_job *j)
{
    enum { TEXT_BYTES = 32 }; /* take about as long as one of the others */
    const size_t top = 1 + shown_top(&j->ask);
    size_t n = 0;
    for (size_t i = 0; i < j->n_prompt; i++)
        n += j->prompt[i].n_ids + j->prompt[i].text.n_bytes / TEXT_BYTES;
    for (size_t i = 0; i < j->n_choice; i++) {
        const nb_choice *c = &j->choice[i];
        const nb_choice *first = c - i % j->ask.n;
        n += (c->kept.n + first->prompt_kept.n) * top;
        n += (c->text.n_bytes + c->shown_bytes) / TEXT_BYTES;
    }
    return n;
}

void nb_job_answer(nb_job *j)
{
    if (n_shown(j) > INLINE_SHOWN) {
        j->answering = true;
        work_aside(j);
        return;
    }
    j->api->answer(j);
    nb_job_answered(j);
}

/* ---- the beginning ---- */

void nb_job_start(nb_serve *s, nb_http_ex *ex, const nb_api *api)
{
    const nb_str type = nb_http_header(ex, "Content-Type");
    if (!type.p || !is_json_type(type)) {
        nb_reply_error(ex, 400, NULL, "Unsupported Media Type: only 'application/json' is allowed");
        return;
    }
    if (api->uses_engine && !has_room(s, ex, 1)) return;
    nb_job *j = calloc(1, sizeof *j);
    if (!j) {
        nb_reply_error(ex, 500, NULL, "out of memory");
        return;
    }
    j->s = s;
    j->ex = ex;
    j->api = api;
    j->t0 = nb_clock_s();
    j->created = (int64_t)time(NULL);
    j->body = nb_http_body(ex);
    j->large = j->body.n_bytes > LARGE_BYTES;
    if (api->uses_engine) s->n_active += j->n_admitted = 1;
    if (j->body.n_bytes <= INLINE_BYTES && !nb_structured_asked(j->body)) {
        go_on(j, prepare(j));
    } else if (!prepare_aside(j)) {
        nb_reply_error(ex, 500, NULL, "out of memory");
        nb_job_free(j);
    }
}
