/* job_write.c - pieces of answers that the endpoints share; see job.h. */
#include <stdio.h>

#include "serve/job.h"

const char *nb_finish_reason(const nb_choice *c)
{
    /* A call that was asked for by name ends with "stop", as with OpenAI. */
    if (nb_ended_by_calls(c) && c->job->ask.tool_choice != NB_TOOLS_NAMED) return "tool_calls";
    return c->reason == NB_END_STOP ? "stop" : "length";
}

bool nb_ended_by_calls(const nb_choice *c)
{
    return c->reason == NB_END_STOP && c->n_calls && c->stop_index < 0;
}

void nb_w_stop_reason(nb_writer *w, const nb_choice *c)
{
    const nb_sampling *p = &c->job->ask.sampling;
    if (c->reason == NB_END_STOP && c->stop_index >= 0 && (size_t)c->stop_index < p->n_stop)
        nb_w_str(w, nb_str_c(p->stop[c->stop_index]));
    else if (c->reason == NB_END_STOP && c->stop_token >= 0)
        nb_w_uint(w, (uint64_t)c->stop_token);
    else
        NB_W(w, "null");
}

void nb_job_counts(const nb_job *j, size_t *prompt, size_t *cached, size_t *generated)
{
    *prompt = *cached = *generated = 0;
    for (size_t i = 0; i < j->n_prompt; i++) *prompt += j->prompt[i].n_ids;
    for (size_t i = 0; i < j->n_choice; i++) {
        *generated += j->choice[i].n_gen;
        if (j->choice[i].first) *cached += j->choice[i].n_cached;
    }
}

size_t nb_job_reasoning(const nb_job *j)
{
    size_t n = 0;
    for (size_t i = 0; i < j->n_choice; i++) n += j->choice[i].n_reasoning_tok;
    return n;
}

void nb_w_usage(nb_writer *w, const nb_job *j, const nb_choice *c)
{
    size_t prompt, cached, generated;
    if (c) {
        prompt = c->prompt->n_ids;
        generated = c->n_gen;
        cached = 0;
    } else {
        nb_job_counts(j, &prompt, &cached, &generated);
    }
    NB_W(w, "{\"prompt_tokens\":");
    nb_w_uint(w, prompt);
    NB_W(w, ",\"total_tokens\":");
    nb_w_uint(w, prompt + generated);
    NB_W(w, ",\"completion_tokens\":");
    nb_w_uint(w, generated);
    if (!c) {
        NB_W(w, ",\"prompt_tokens_details\":{\"cached_tokens\":");
        nb_w_uint(w, cached);
        NB_W(w, "}");
    }
    if (!c && j->api->kind == NB_ASK_CHAT) {
        NB_W(w, ",\"completion_tokens_details\":{\"reasoning_tokens\":");
        nb_w_uint(w, nb_job_reasoning(j));
        NB_W(w, "}");
    }
    NB_W(w, "}");
}

nb_str nb_token_text(const nb_job *j, uint32_t id, char num[32])
{
    size_t n = 0;
    const char *p = NULL;
    if (j->s->text && !j->ask.tokens_as_ids) p = nb_text_token_bytes(j->s->text, id, &n);
    if (p) return (nb_str){ p, n };
    const int len = snprintf(num, 32, "token_id:%u", (unsigned)id);
    return (nb_str){ num, (size_t)len };
}

static void write_entry(nb_writer *w, const nb_job *j, uint32_t id, float logprob, size_t rank)
{
    char num[32];
    NB_W(w, "\"");
    nb_w_uint(w, id);
    NB_W(w, "\":{\"logprob\":");
    nb_w_logprob(w, logprob);
    NB_W(w, ",\"rank\":");
    if (rank)
        nb_w_uint(w, rank);
    else
        NB_W(w, "null");
    NB_W(w, ",\"decoded_token\":");
    nb_w_str(w, nb_token_text(j, id, num));
    NB_W(w, "}");
}

/* The token itself first, then the best, without it again. */
static void write_position(nb_writer *w, const nb_job *j, const nb_event *e, size_t n_top)
{
    size_t rank = 0;
    if (n_top > e->n_top) n_top = e->n_top;
    for (size_t i = 0; i < e->n_top; i++)
        if (e->top[i].id == e->id) rank = i + 1;
    NB_W(w, "{");
    write_entry(w, j, e->id, e->logprob, rank);
    for (size_t i = 0; i < n_top; i++) {
        if (e->top[i].id == e->id) continue;
        NB_W(w, ",");
        write_entry(w, j, e->top[i].id, e->top[i].logprob, i + 1);
    }
    NB_W(w, "}");
}

void nb_w_prompt_logprobs(nb_writer *w, const nb_job *j, const nb_choice *c)
{
    if (j->ask.prompt_logprobs < 0) {
        NB_W(w, "null");
        return;
    }
    /* only the first choice of a prompt was told them */
    const nb_choice *f = &j->choice[c->index - c->index % j->ask.n];
    NB_W(w, "[");
    for (const nb_event *e = f->prompt_kept.head; e; e = e->next) {
        if (e == f->prompt_kept.head) {
            NB_W(w, "null");
            continue;
        }
        NB_W(w, ",");
        write_position(w, j, e, (size_t)j->ask.prompt_logprobs);
    }
    NB_W(w, "]");
}

void nb_w_answer(nb_writer *w, nb_job *j, const char *object, nb_w_choice_fn *choice)
{
    NB_W(w, "{\"id\":");
    nb_w_str(w, nb_str_c(j->request_id));
    NB_W(w, ",\"object\":");
    nb_w_str(w, nb_str_c(object));
    NB_W(w, ",\"created\":");
    nb_w_uint(w, (uint64_t)j->created);
    NB_W(w, ",\"model\":");
    nb_w_str(w, nb_str_c(j->s->name));
    NB_W(w, ",\"choices\":[");
    for (size_t i = 0; i < j->n_choice; i++) {
        if (i) NB_W(w, ",");
        choice(w, j, &j->choice[i]);
    }
    NB_W(w, "],\"usage\":");
    nb_w_usage(w, j, NULL);
    NB_W(w, ",\"system_fingerprint\":");
    nb_w_str(w, nb_str_c(j->s->fingerprint));
}
