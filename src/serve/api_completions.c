/* api_completions.c - POST /v1/completions and its render: text, texts, token ids, or lists of
 * token ids; with echo and the older form of log-probabilities. */
#include <stdlib.h>

#include "serve/job.h"

/* ---- prompts ---- */

/* The kinds of "prompt": a string or a list of numbers is one, else each item is one. */
static nb_status count_prompts(nb_ask *a, size_t *n)
{
    const json_t *p = nb_ask_get(a, "prompt");
    *n = 1;
    if (!p) return nb_ask_bad(a, "prompt", "prompt is missing");
    if (json_is_string(p)) return NB_OK;
    if (!json_is_array(p) || !json_array_size(p))
        return nb_ask_bad(a, "prompt",
                          "prompt: expected a string, strings, token ids or lists of token ids, "
                          "not empty");
    if (!json_is_number(json_array_get(p, 0))) *n = json_array_size(p);
    return NB_OK;
}

static nb_status prompt_of_text(const nb_serve *s, nb_ask *a, const json_t *v, nb_prompt *out)
{
    const nb_str text = { json_string_value(v), json_string_length(v) };
    nb_error err = { 0 };
    if (!s->text)
        return nb_ask_bad(a, "prompt", "the model has no tokenizer: prompt must be token ids");
    if (text.n_bytes > s->max_prompt_bytes && !a->truncate)
        return nb_ask_bad(a, "prompt",
                          "This model's maximum context length is %zu tokens. However, your prompt "
                          "of %zu bytes cannot fit. Please reduce the length of the prompt.",
                          s->info.max_model_len, text.n_bytes);
    const unsigned flags = NB_TEXT_PARSE_SPECIAL | (a->add_special ? NB_TEXT_ADD_SPECIAL : 0);
    const nb_status st =
        nb_text_tokenize(s->text, text.p, text.n_bytes, flags, &out->ids, &out->n_ids, &err);
    if (st != NB_OK) return nb_ask_bad(a, "prompt", "prompt: %s", err.msg);
    out->owned = true;
    if (!a->echo) return NB_OK;
    char *copy = nb_ask_alloc(a, text.n_bytes, 1);
    if (!copy) return NB_ERR_NOMEM;
    memcpy(copy, text.p, text.n_bytes);
    out->text = (nb_str){ copy, text.n_bytes };
    return NB_OK;
}

static nb_status prompt_of_ids(const nb_serve *s, nb_ask *a, const json_t *v, nb_prompt *out)
{
    nb_error err = { 0 };
    char *text = NULL;
    size_t n = 0;
    out->n_ids = json_array_size(v);
    out->ids = malloc((out->n_ids + 1) * sizeof *out->ids);
    if (!out->ids) return nb_fail(&a->err, NB_ERR_NOMEM, "out of memory");
    out->owned = true;
    NB_TRY(nb_ask_read_ids(a, "prompt", v, s->info.vocab, out->ids));
    if (!a->echo || !s->text) return NB_OK;
    const nb_status st = nb_text_detokenize(s->text, out->ids, out->n_ids, false, &text, &n, &err);
    if (st != NB_OK) return nb_ask_bad(a, "prompt", "prompt: %s", err.msg);
    out->text = (nb_str){ text, n };
    out->text_owned = true;
    return NB_OK;
}

static nb_status read_prompt(const nb_serve *s, nb_ask *a, const json_t *v, nb_prompt *out)
{
    if (json_is_string(v)) return prompt_of_text(s, a, v, out);
    if (json_is_array(v)) return prompt_of_ids(s, a, v, out);
    return nb_ask_bad(a, "prompt",
                      "prompt: expected a string, strings, token ids or lists of token ids");
}

static nb_status completion_prepare(nb_job *j)
{
    nb_ask *a = &j->ask;
    size_t n;
    NB_TRY(nb_ask_read(a, NB_ASK_COMPLETION, &j->s->lim));
    NB_TRY(count_prompts(a, &n));
    NB_TRY(nb_job_prompts(j, n));
    const json_t *p = nb_ask_get(a, "prompt");
    const bool one = json_is_string(p) || json_is_number(json_array_get(p, 0));
    for (size_t i = 0; i < n; i++)
        NB_TRY(read_prompt(j->s, a, one ? p : json_array_get(p, i), &j->prompt[i]));
    return NB_OK;
}

/* ---- log-probabilities: four lists side by side ---- */

/* Tokens of the prompt (echo), then generated ones: two lists walked as one. */
typedef struct tokens {
    const nb_event *part[2];
    bool one; /* of part[1] only the first */
} tokens;

static const nb_event *first_of(tokens *t)
{
    if (!t->part[0]) {
        t->part[0] = t->part[1];
        t->part[1] = NULL;
    }
    return t->part[0];
}

static const nb_event *next_of(tokens *t, const nb_event *e)
{
    const bool in_prompt = e->kind == NB_EVENT_PROMPT;
    if (!in_prompt && t->one) return NULL;
    if (e->next) return e->next;
    const nb_event *next = in_prompt ? t->part[1] : NULL;
    t->part[1] = NULL;
    return next;
}

/* Code points, as Python counts; a byte that is not UTF-8 counts as the U+FFFD shown for it. */
static size_t n_chars(nb_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n_bytes; i++) n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
    return n ? n : s.n_bytes != 0;
}

static bool same_text(const nb_job *j, uint32_t a, uint32_t b)
{
    char x[32], y[32];
    return a == b || nb_str_eq(nb_token_text(j, a, x), nb_token_text(j, b, y));
}

/* The token and the best ones, each text once. */
static void write_top(nb_writer *w, const nb_job *j, const nb_event *e)
{
    char num[32];
    const size_t wanted = (size_t)j->ask.sampling.n_logprobs;
    const size_t n = e->n_top < wanted ? e->n_top : wanted;
    NB_W(w, "{");
    nb_w_str(w, nb_token_text(j, e->id, num));
    NB_W(w, ":");
    nb_w_logprob(w, e->logprob);
    for (size_t i = 0; i < n; i++) {
        bool seen = same_text(j, e->top[i].id, e->id);
        for (size_t k = 0; k < i && !seen; k++) seen = same_text(j, e->top[i].id, e->top[k].id);
        if (seen) continue;
        NB_W(w, ",");
        nb_w_str(w, nb_token_text(j, e->top[i].id, num));
        NB_W(w, ":");
        nb_w_logprob(w, e->top[i].logprob);
    }
    NB_W(w, "}");
}

typedef enum column { COL_OFFSET, COL_LOGPROB, COL_TOKEN, COL_TOP } column;

/* *offset: characters before the first token; moved on by COL_OFFSET. */
static void write_column(nb_writer *w, const nb_job *j, tokens t, column col, size_t *offset)
{
    char num[32];
    bool comma = false, first_of_prompt = t.part[0] != NULL;
    for (const nb_event *e = first_of(&t); e; e = next_of(&t, e)) {
        if (comma) NB_W(w, ",");
        comma = true;
        const nb_str text = nb_token_text(j, e->id, num);
        if (col == COL_OFFSET) {
            nb_w_uint(w, *offset);
            *offset += n_chars(text);
        } else if (col == COL_TOKEN) {
            nb_w_str(w, text);
        } else if (first_of_prompt) { /* nothing before it to predict it */
            NB_W(w, "null");
        } else if (col == COL_LOGPROB) {
            nb_w_logprob(w, e->logprob);
        } else {
            write_top(w, j, e);
        }
        first_of_prompt = false;
    }
}

static void write_logprobs(nb_writer *w, const nb_job *j, nb_choice *c, const nb_event *prompt,
                           const nb_event *generated, bool one)
{
    static const char *const names[4] = { "{\"text_offset\":[", "],\"token_logprobs\":[",
                                          "],\"tokens\":[", "],\"top_logprobs\":[" };
    if (!j->ask.logprobs) {
        NB_W(w, "null");
        return;
    }
    for (int col = 0; col < 4; col++) {
        nb_w_c(w, names[col]);
        const tokens t = { { prompt, generated }, one };
        write_column(w, j, t, (column)col, &c->text_offset);
    }
    NB_W(w, "]}");
}

/* The prompt's tokens for echo; only the first choice of a prompt was told them. */
static const nb_event *echoed(const nb_job *j, const nb_choice *c)
{
    if (!j->ask.echo) return NULL;
    return j->choice[c->index - c->index % j->ask.n].prompt_kept.head;
}

/* ---- streams ---- */

static const nb_buf *chunk_head(nb_job *j)
{
    nb_writer *w = &j->head;
    if (w->b.n_bytes) return &w->b;
    NB_W(w, "data: {\"id\":");
    nb_w_str(w, nb_str_c(j->request_id));
    NB_W(w, ",\"object\":\"text_completion\",\"created\":");
    nb_w_uint(w, (uint64_t)j->created);
    NB_W(w, ",\"model\":");
    nb_w_str(w, nb_str_c(j->s->name));
    NB_W(w, ",\"system_fingerprint\":");
    nb_w_str(w, nb_str_c(j->s->fingerprint));
    NB_W(w, ",\"choices\":[");
    if (w->st != NB_OK) j->out.st = w->st;
    return &w->b;
}

static void completion_ids(nb_job *j, const nb_choice *c, const nb_event *ev)
{
    if (!j->ask.return_token_ids) return;
    if (!c->started) {
        NB_W(&j->out, ",\"prompt_token_ids\":");
        nb_w_ids(&j->out, c->prompt->ids, c->prompt->n_ids);
    }
    NB_W(&j->out, ",\"token_ids\":");
    nb_w_ids(&j->out, ev ? &ev->id : NULL, ev ? 1 : 0);
}

static void completion_chunk(nb_job *j, nb_choice *c, const nb_event *ev, bool last)
{
    nb_writer *w = &j->out;
    const nb_buf *head = chunk_head(j);
    const bool echo = j->ask.echo && !c->started;
    nb_w_raw(w, head->p, head->n_bytes);
    NB_W(w, "{\"index\":");
    nb_w_uint(w, c->index);
    NB_W(w, ",\"text\":\"");
    if (echo) nb_w_escaped(w, c->prompt->text);
    if (ev) nb_w_escaped(w, ev->text);
    if (last) nb_w_escaped(w, (nb_str){ c->tail, c->tail_bytes });
    NB_W(w, "\",\"logprobs\":");
    if (ev || echo)
        write_logprobs(w, j, c, echo ? echoed(j, c) : NULL, ev, true);
    else
        NB_W(w, "null");
    NB_W(w, ",\"finish_reason\":");
    if (last) {
        nb_w_str(w, nb_str_c(nb_finish_reason(c)));
        NB_W(w, ",\"stop_reason\":");
        nb_w_stop_reason(w, c);
    } else {
        NB_W(w, "null");
    }
    completion_ids(j, c, ev);
    NB_W(w, "}]");
    if (j->ask.continuous_usage) {
        NB_W(w, ",\"usage\":");
        nb_w_usage(w, j, c);
    } else if (j->ask.include_usage) {
        NB_W(w, ",\"usage\":null");
    }
    NB_W(w, "}\n\n");
}

static void completion_close(nb_job *j)
{
    nb_writer *w = &j->out;
    if (j->ask.include_usage) {
        const nb_buf *head = chunk_head(j);
        nb_w_raw(w, head->p, head->n_bytes);
        NB_W(w, "],\"usage\":");
        nb_w_usage(w, j, NULL);
        NB_W(w, "}\n\n");
    }
    NB_W(w, "data: [DONE]\n\n");
}

/* ---- whole answers ---- */

static void write_choice(nb_writer *w, const nb_job *j, nb_choice *c)
{
    NB_W(w, "{\"index\":");
    nb_w_uint(w, c->index);
    NB_W(w, ",\"text\":\"");
    if (j->ask.echo) nb_w_escaped(w, c->prompt->text);
    nb_w_escaped(w, nb_buf_view(&c->text));
    NB_W(w, "\",\"logprobs\":");
    write_logprobs(w, j, c, echoed(j, c), c->kept.head, false);
    NB_W(w, ",\"finish_reason\":");
    nb_w_str(w, nb_str_c(nb_finish_reason(c)));
    NB_W(w, ",\"stop_reason\":");
    nb_w_stop_reason(w, c);
    NB_W(w, ",\"prompt_logprobs\":");
    nb_w_prompt_logprobs(w, j, c);
    if (j->ask.return_token_ids) {
        NB_W(w, ",\"prompt_token_ids\":");
        nb_w_ids(w, c->prompt->ids, c->prompt->n_ids);
        NB_W(w, ",\"token_ids\":");
        nb_w_ids(w, c->ids, c->n_gen);
    }
    NB_W(w, "}");
}

static void completion_answer(nb_job *j)
{
    nb_writer *w = &j->out;
    nb_w_answer(w, j, "text_completion", write_choice);
    NB_W(w, "}");
}

/* ---- handlers ---- */

static void render_answer(nb_job *j)
{
    nb_writer *w = &j->out;
    NB_W(w, "[");
    for (size_t i = 0; i < j->n_prompt; i++) {
        nb_prompt_cut(&j->prompt[i], j->ask.truncate);
        if (i) NB_W(w, ",");
        nb_w_rendered(w, j, &j->prompt[i]);
    }
    NB_W(w, "]");
}

void nb_api_completions(nb_http_ex *ex, void *ctx)
{
    static const nb_api api = { .path = "/v1/completions",
                                .id_prefix = "cmpl-",
                                .kind = NB_ASK_COMPLETION,
                                .uses_engine = true,
                                .max_tokens = 16,
                                .prepare = completion_prepare,
                                .chunk = completion_chunk,
                                .close = completion_close,
                                .error = nb_openai_error,
                                .answer = completion_answer };
    nb_job_start(ctx, ex, &api);
}

void nb_api_completions_render(nb_http_ex *ex, void *ctx)
{
    static const nb_api api = { .path = "/v1/completions/render",
                                .id_prefix = "cmpl-",
                                .kind = NB_ASK_COMPLETION,
                                .prepare = completion_prepare,
                                .answer = render_answer };
    nb_job_start(ctx, ex, &api);
}
