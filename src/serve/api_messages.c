/* api_messages.c - POST /v1/messages and /v1/messages/count_tokens: Anthropic's messages and the events
 * of their answers; map_messages.c makes a chat of them. */
#include "serve/chat_map.h"
#include "serve/fields.h"
#include "serve/job.h"

/* ---- fields ---- */

static nb_status read_fields(nb_ask *a, const nb_ask_limits *lim)
{
    nb_sampling *s = &a->sampling;
    int64_t v = 0;
    bool found;
    *s = lim->sampling;
    s->n_logprobs = -1;
    a->n = 1;
    NB_TRY(nb_fields_check(a, NB_FIELDS_MESSAGES, lim));
    NB_TRY(nb_ask_int(a, "max_tokens", 1, INT32_MAX, &v, &a->has_max_tokens));
    if (!a->has_max_tokens) return nb_ask_bad(a, "max_tokens", "max_tokens: field required");
    s->max_tokens = (size_t)v;
    NB_TRY(nb_ask_bool(a, "stream", &a->stream));
    NB_TRY(nb_ask_real(a, "temperature", 0, 1e6, &s->temperature));
    NB_TRY(nb_ask_real(a, "top_p", 0, 1, &s->top_p));
    if (s->top_p <= 0) return nb_ask_bad(a, "top_p", "top_p is 0: expected a number in (0, 1]");
    NB_TRY(nb_ask_int(a, "top_k", -1, INT32_MAX, &v, &found));
    if (found) s->top_k = v > 0 ? (size_t)v : 0;
    NB_TRY(nb_ask_stop(a, "stop_sequences", lim->max_stop));
    NB_TRY(nb_ask_read_messages(a));
    return nb_ask_identity(a, lim);
}

/* ---- answers ---- */

static const char *stop_reason(const nb_choice *c)
{
    if (c->reason == NB_END_LENGTH) return "max_tokens";
    return c->stop_index >= 0 ? "stop_sequence" : "end_turn";
}

static void write_stop(nb_writer *w, const nb_choice *c)
{
    const nb_sampling *p = &c->job->ask.sampling;
    NB_W(w, "\"stop_reason\":");
    nb_w_str(w, nb_str_c(stop_reason(c)));
    NB_W(w, ",\"stop_sequence\":");
    if (c->reason == NB_END_STOP && c->stop_index >= 0 && (size_t)c->stop_index < p->n_stop)
        nb_w_str(w, nb_str_c(p->stop[c->stop_index]));
    else
        NB_W(w, "null");
}

/* Anthropic counts what came from the cache beside the other input, not within it. */
static void write_usage(nb_writer *w, size_t prompt, size_t cached, size_t generated)
{
    NB_W(w, "\"usage\":{\"input_tokens\":");
    nb_w_uint(w, prompt - cached);
    NB_W(w, ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":");
    nb_w_uint(w, cached);
    NB_W(w, ",\"output_tokens\":");
    nb_w_uint(w, generated);
    NB_W(w, "}");
}

static void write_message(nb_writer *w, const nb_job *j)
{
    NB_W(w, "{\"id\":");
    nb_w_str(w, nb_str_c(j->request_id));
    NB_W(w, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    nb_w_str(w, nb_str_c(j->s->name));
    NB_W(w, ",\"content\":[");
}

static void messages_start(nb_job *j, const nb_choice *c)
{
    nb_writer *w = &j->out;
    NB_W(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    write_message(w, j);
    NB_W(w, "],\"stop_reason\":null,\"stop_sequence\":null,");
    write_usage(w, c->prompt->n_ids, 0, 0);
    NB_W(w, "}}\n\n"
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"
            "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
            "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

static void messages_chunk(nb_job *j, nb_choice *c, const nb_event *ev, bool last)
{
    nb_writer *w = &j->out;
    const nb_str tail = { c->tail, last ? c->tail_bytes : 0 };
    if (!c->started) messages_start(j, c);
    if ((!ev || !ev->text.n_bytes) && !tail.n_bytes) return; /* an empty delta says nothing */
    NB_W(w, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"
            "\"delta\":{\"type\":\"text_delta\",\"text\":\"");
    if (ev) nb_w_escaped(w, ev->text);
    nb_w_escaped(w, tail);
    NB_W(w, "\"}}\n\n");
}

static void messages_close(nb_job *j)
{
    nb_writer *w = &j->out;
    const nb_choice *c = &j->choice[0];
    NB_W(w, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    write_stop(w, c);
    NB_W(w, "},");
    write_usage(w, c->prompt->n_ids, c->n_cached, c->n_gen);
    NB_W(w, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void messages_error(nb_job *j, int status, const char *message)
{
    NB_W(&j->out, "event: error\ndata: ");
    nb_w_error_anthropic(&j->out, status, message);
    NB_W(&j->out, "\n\n");
}

static void messages_answer(nb_job *j)
{
    nb_writer *w = &j->out;
    const nb_choice *c = &j->choice[0];
    write_message(w, j);
    if (c->text.n_bytes) {
        NB_W(w, "{\"type\":\"text\",\"text\":");
        nb_w_str(w, nb_buf_view(&c->text));
        NB_W(w, "}");
    }
    NB_W(w, "],");
    write_stop(w, c);
    NB_W(w, ",");
    write_usage(w, c->prompt->n_ids, c->n_cached, c->n_gen);
    NB_W(w, "}");
}

/* ---- handlers ---- */

static nb_status messages_prepare(nb_job *j)
{
    NB_TRY(read_fields(&j->ask, &j->s->lim));
    return nb_job_chat(j, nb_map_messages);
}

static nb_status count_prepare(nb_job *j)
{
    j->ask.n = 1;
    NB_TRY(nb_fields_check(&j->ask, NB_FIELDS_MESSAGES, &j->s->lim));
    NB_TRY(nb_ask_read_messages(&j->ask));
    return nb_job_chat(j, nb_map_messages);
}

static void count_answer(nb_job *j)
{
    NB_W(&j->out, "{\"input_tokens\":");
    nb_w_uint(&j->out, j->prompt[0].n_ids);
    NB_W(&j->out, "}");
}

void nb_api_messages(nb_http_ex *ex, void *ctx)
{
    static const nb_api api = { .path = "/v1/messages",
                                .id_prefix = "msg_",
                                .kind = NB_ASK_CHAT,
                                .uses_engine = true,
                                .clamp = true,
                                .max_tokens = SIZE_MAX,
                                .prepare = messages_prepare,
                                .chunk = messages_chunk,
                                .close = messages_close,
                                .error = messages_error,
                                .answer = messages_answer };
    nb_job_start(ctx, ex, &api);
}

void nb_api_count_tokens(nb_http_ex *ex, void *ctx)
{
    static const nb_api api = { .path = "/v1/messages/count_tokens",
                                .id_prefix = "msg_",
                                .kind = NB_ASK_CHAT,
                                .prepare = count_prepare,
                                .answer = count_answer };
    nb_job_start(ctx, ex, &api);
}
