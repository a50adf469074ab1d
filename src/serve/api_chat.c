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

/* A call's first delta has everything but its arguments; the next ones have nothing else. */
static void write_call_delta(nb_writer *w, const nb_piece *p)
{
    NB_W(w, "\"tool_calls\":[{\"index\":");
    nb_w_uint(w, p->call);
    if (p->kind == NB_PIECE_CALL) {
        NB_W(w, ",\"id\":");
        nb_w_str(w, nb_str_c(p->id));
        NB_W(w, ",\"type\":\"function\",\"function\":{\"name\":");
        nb_w_str(w, nb_str_c(p->name));
        NB_W(w, ",\"arguments\":\"\"}}]");
        return;
    }
    NB_W(w, ",\"function\":{\"arguments\":");
    nb_w_str(w, (nb_str){ p->text, p->text_bytes });
    NB_W(w, "}}]");
}

static void write_delta(nb_writer *w, const nb_piece *p)
{
    if (p->kind == NB_PIECE_CALL || p->kind == NB_PIECE_ARGUMENTS) {
        write_call_delta(w, p);
        return;
    }
    if (p->kind == NB_PIECE_REASONING)
        NB_W(w, "\"reasoning_content\":");
    else
        NB_W(w, "\"content\":");
    nb_w_str(w, (nb_str){ p->text, p->text_bytes });
}

/* One chunk: a piece, or NULL; ev: the token that it tells of, or NULL. */
static void write_chunk(nb_job *j, nb_choice *c, const nb_piece *p, const nb_event *ev, bool last)
{
    nb_writer *w = &j->out;
    open_chunk(j, c);
    if (p) write_delta(w, p);
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

/* The pieces that are shown of a token and, if it is the last one, of the end. */
static size_t shown_pieces(const nb_job *j, const nb_choice *c, const nb_event *ev, bool last,
                           size_t i, nb_piece *out)
{
    size_t n = 0;
    for (size_t k = 0; ev && k < ev->n_piece; k++) {
        if (!nb_shows(j, &ev->piece[k]) || ev->piece[k].kind == NB_PIECE_CALL_END) continue;
        if (n++ == i) *out = ev->piece[k];
    }
    if (last && c->tail_bytes && n++ == i) *out = nb_tail_piece(c);
    return n;
}

static void chat_chunk(nb_job *j, nb_choice *c, const nb_event *ev, bool last)
{
    const bool hidden = ev && ev->in_thought && j->ask.hide_reasoning;
    const nb_event *told = hidden ? NULL : ev; /* its log-probability and id */
    nb_piece p = { .kind = NB_PIECE_CONTENT, .text = "" };
    if (!c->started) write_role(j, c);
    const size_t n = shown_pieces(j, c, ev, last, SIZE_MAX, &p);
    for (size_t i = 0; i < n; i++) {
        (void)shown_pieces(j, c, ev, last, i, &p);
        write_chunk(j, c, &p, i ? NULL : told, last && i + 1 == n);
    }
    if (n) return;
    if (last)
        write_chunk(j, c, told ? &p : NULL, told, true);
    else if (!hidden && !ev->in_thought) /* a token is a chunk */
        write_chunk(j, c, &p, told, false);
    else if (told && (j->ask.logprobs || j->ask.return_token_ids))
        write_chunk(j, c, NULL, told, false);
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

static void write_calls(nb_writer *w, const nb_choice *c)
{
    bool comma = false;
    NB_W(w, ",\"tool_calls\":[");
    for (size_t i = 0; i < c->n_block; i++) {
        const nb_block *b = &c->block[i];
        if (b->kind != NB_PIECE_CALL) continue;
        if (comma) NB_W(w, ",");
        comma = true;
        NB_W(w, "{\"id\":");
        nb_w_str(w, nb_str_c(b->id));
        NB_W(w, ",\"type\":\"function\",\"function\":{\"name\":");
        nb_w_str(w, nb_str_c(b->name));
        NB_W(w, ",\"arguments\":");
        nb_w_str(w, nb_buf_view(&b->text));
        NB_W(w, "}}");
    }
    NB_W(w, "]");
}

static void write_choice(nb_writer *w, const nb_job *j, nb_choice *c)
{
    NB_W(w, "{\"index\":");
    nb_w_uint(w, c->index);
    NB_W(w, ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (c->n_block && !nb_blocks_have(c, NB_PIECE_CONTENT))
        NB_W(w, "null");
    else
        nb_w_blocks(w, c, NB_PIECE_CONTENT);
    if (nb_blocks_have(c, NB_PIECE_REASONING)) {
        NB_W(w, ",\"reasoning_content\":");
        nb_w_blocks(w, c, NB_PIECE_REASONING);
    }
    if (nb_blocks_have(c, NB_PIECE_CALL)) write_calls(w, c);
    NB_W(w, ",\"refusal\":null},\"logprobs\":");
    if (j->ask.logprobs)
        write_logprobs(w, j, c->kept.head, false);
    else
        NB_W(w, "null");
    NB_W(w, ",\"finish_reason\":");
    nb_w_str(w, nb_str_c(nb_finish_reason(c)));
    NB_W(w, ",\"stop_reason\":");
    nb_w_stop_reason(w, c);
    if (j->ask.return_token_ids && !j->ask.hide_reasoning) {
        NB_W(w, ",\"token_ids\":");
        nb_w_ids(w, c->ids, c->n_gen);
    }
    NB_W(w, "}");
}

static void chat_answer(nb_job *j)
{
    nb_writer *w = &j->out;
    nb_w_answer(w, j, "chat.completion", write_choice);
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
