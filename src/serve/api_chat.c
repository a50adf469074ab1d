/* api_chat.c - POST /v1/chat/completions and its render: OpenAI's chat, with vLLM's additions. */
#include "serve/chat_map.h"
#include "serve/job.h"

/* ---- log-probabilities ---- */

static void write_logprob(nb_writer *w, const nb_job *j, uint32_t id, float logprob)
{
    char num[32];
    const nb_str text = nb_token_text(j, id, num);
    NB_W(w, "{\"token\":");
    nb_w_str(w, text);
    NB_W(w, ",\"logprob\":");
    nb_w_logprob(w, logprob);
    NB_W(w, ",\"bytes\":");
    nb_w_bytes(w, text);
}

static void write_logprobs(nb_writer *w, const nb_job *j, const nb_event *e, bool one)
{
    NB_W(w, "{\"content\":[");
    for (bool comma = false; e; e = one ? NULL : e->next, comma = true) {
        if (comma) NB_W(w, ",");
        write_logprob(w, j, e->id, e->logprob);
        NB_W(w, ",\"top_logprobs\":[");
        for (size_t i = 0; i < e->n_top; i++) {
            if (i) NB_W(w, ",");
            write_logprob(w, j, e->top[i].id, e->top[i].logprob);
            NB_W(w, "}");
        }
        NB_W(w, "]}");
    }
    NB_W(w, "],\"refusal\":null}");
}

/* ---- streams ---- */

/* What every chunk of a job begins with, up to its choices. */
static const nb_buf *chunk_head(nb_job *j)
{
    nb_writer *w = &j->head;
    if (w->b.n_bytes) return &w->b;
    NB_W(w, "data: {\"id\":");
    nb_w_str(w, nb_str_c(j->request_id));
    NB_W(w, ",\"object\":\"chat.completion.chunk\",\"created\":");
    nb_w_uint(w, (uint64_t)j->created);
    NB_W(w, ",\"model\":");
    nb_w_str(w, nb_str_c(j->s->name));
    NB_W(w, ",\"system_fingerprint\":");
    nb_w_str(w, nb_str_c(j->s->fingerprint));
    NB_W(w, ",\"choices\":[");
    if (w->st != NB_OK) j->out.st = w->st;
    return &w->b;
}

static void open_chunk(nb_job *j, const nb_choice *c)
{
    const nb_buf *head = chunk_head(j);
    nb_w_raw(&j->out, head->p, head->n_bytes);
    NB_W(&j->out, "{\"index\":");
    nb_w_uint(&j->out, c->index);
    NB_W(&j->out, ",\"delta\":{");
}

static void close_chunk(nb_job *j, const nb_choice *c)
{
    NB_W(&j->out, "}]");
    if (j->ask.continuous_usage) {
        NB_W(&j->out, ",\"usage\":");
        nb_w_usage(&j->out, j, c);
    } else if (j->ask.include_usage) {
        NB_W(&j->out, ",\"usage\":null");
    }
}

/* The role comes alone, when the first token is there. */
static void write_role(nb_job *j, const nb_choice *c)
{
    nb_writer *w = &j->out;
    open_chunk(j, c);
    NB_W(w, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null");
    close_chunk(j, c);
    if (j->ask.return_token_ids) {
        NB_W(w, ",\"prompt_token_ids\":");
        nb_w_ids(w, c->prompt->ids, c->prompt->n_ids);
    }
    NB_W(w, "}\n\n");
}

static void chat_chunk(nb_job *j, nb_choice *c, const nb_event *ev, bool last)
{
    nb_writer *w = &j->out;
    if (!c->started) write_role(j, c);
    open_chunk(j, c);
    if (ev || c->tail_bytes) {
        NB_W(w, "\"content\":\"");
        if (ev) nb_w_escaped(w, ev->text);
        if (last) nb_w_escaped(w, (nb_str){ c->tail, c->tail_bytes });
        NB_W(w, "\"");
    }
    NB_W(w, "},\"logprobs\":");
    if (ev && j->ask.logprobs)
        write_logprobs(w, j, ev, true);
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
    if (ev && j->ask.return_token_ids) {
        NB_W(w, ",\"token_ids\":");
        nb_w_ids(w, &ev->id, 1);
    }
    close_chunk(j, c);
    NB_W(w, "}\n\n");
}

static void chat_close(nb_job *j)
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

void nb_openai_error(nb_job *j, int status, const char *message)
{
    NB_W(&j->out, "data: ");
    nb_w_error(&j->out, status, NULL, message);
    NB_W(&j->out, "\n\ndata: [DONE]\n\n");
}

/* ---- whole answers ---- */

static void write_choice(nb_writer *w, const nb_job *j, const nb_choice *c)
{
    NB_W(w, "{\"index\":");
    nb_w_uint(w, c->index);
    NB_W(w, ",\"message\":{\"role\":\"assistant\",\"content\":");
    nb_w_str(w, nb_buf_view(&c->text));
    NB_W(w, ",\"refusal\":null},\"logprobs\":");
    if (j->ask.logprobs)
        write_logprobs(w, j, c->kept.head, false);
    else
        NB_W(w, "null");
    NB_W(w, ",\"finish_reason\":");
    nb_w_str(w, nb_str_c(nb_finish_reason(c)));
    NB_W(w, ",\"stop_reason\":");
    nb_w_stop_reason(w, c);
    if (j->ask.return_token_ids) {
        NB_W(w, ",\"token_ids\":");
        nb_w_ids(w, c->ids, c->n_gen);
    }
    NB_W(w, "}");
}

static void chat_answer(nb_job *j)
{
    nb_writer *w = &j->out;
    NB_W(w, "{\"id\":");
    nb_w_str(w, nb_str_c(j->request_id));
    NB_W(w, ",\"object\":\"chat.completion\",\"created\":");
    nb_w_uint(w, (uint64_t)j->created);
    NB_W(w, ",\"model\":");
    nb_w_str(w, nb_str_c(j->s->name));
    NB_W(w, ",\"choices\":[");
    for (size_t i = 0; i < j->n_choice; i++) {
        if (i) NB_W(w, ",");
        write_choice(w, j, &j->choice[i]);
    }
    NB_W(w, "],\"usage\":");
    nb_w_usage(w, j, NULL);
    NB_W(w, ",\"system_fingerprint\":");
    nb_w_str(w, nb_str_c(j->s->fingerprint));
    NB_W(w, ",\"prompt_logprobs\":");
    nb_w_prompt_logprobs(w, j, &j->choice[0]);
    if (j->ask.return_token_ids) {
        NB_W(w, ",\"prompt_token_ids\":");
        nb_w_ids(w, j->prompt[0].ids, j->prompt[0].n_ids);
    }
    NB_W(w, "}");
}

/* ---- handlers ---- */

static nb_status chat_prepare(nb_job *j)
{
    NB_TRY(nb_ask_read(&j->ask, NB_ASK_CHAT, &j->s->lim));
    return nb_job_chat(j, nb_map_chat);
}

void nb_w_rendered(nb_writer *w, const nb_job *j, const nb_prompt *p)
{
    NB_W(w, "{\"request_id\":");
    nb_w_str(w, nb_str_c(j->request_id));
    NB_W(w, ",\"model\":");
    nb_w_str(w, nb_str_c(j->s->name));
    NB_W(w, ",\"token_ids\":");
    nb_w_ids(w, p->ids, p->n_ids);
    NB_W(w, ",\"features\":null,\"cache_salt\":");
    if (j->ask.cache_salt)
        nb_w_str(w, nb_str_c(j->ask.cache_salt));
    else
        NB_W(w, "null");
    NB_W(w, "}");
}

static void render_answer(nb_job *j)
{
    nb_w_rendered(&j->out, j, &j->prompt[0]);
}

void nb_api_chat(nb_http_ex *ex, void *ctx)
{
    static const nb_api api = { .path = "/v1/chat/completions",
                                .id_prefix = "chatcmpl-",
                                .kind = NB_ASK_CHAT,
                                .uses_engine = true,
                                .clamp = true,
                                .max_tokens = SIZE_MAX,
                                .prepare = chat_prepare,
                                .chunk = chat_chunk,
                                .close = chat_close,
                                .error = nb_openai_error,
                                .answer = chat_answer };
    nb_job_start(ctx, ex, &api);
}

void nb_api_chat_render(nb_http_ex *ex, void *ctx)
{
    static const nb_api api = { .path = "/v1/chat/completions/render",
                                .id_prefix = "chatcmpl-",
                                .kind = NB_ASK_CHAT,
                                .prepare = chat_prepare,
                                .answer = render_answer };
    nb_job_start(ctx, ex, &api);
}
