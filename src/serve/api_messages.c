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
    if (nb_ended_by_calls(c)) return "tool_use";
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
    NB_W(w, "}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
}

/* Any opaque text: the reasoning comes back as it is. */
#define SIGNATURE "nibble"

static void close_block(nb_writer *w, nb_choice *c)
{
    if (!c->is_open) return;
    c->is_open = false;
    if (c->open_kind == NB_PIECE_REASONING) {
        NB_W(w, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
        nb_w_uint(w, c->n_item - 1);
        NB_W(w, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"" SIGNATURE "\"}}\n\n");
    }
    NB_W(w, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":");
    nb_w_uint(w, c->n_item - 1);
    NB_W(w, "}\n\n");
}

static void write_call_head(nb_writer *w, const char *id, const char *name)
{
    NB_W(w, "{\"type\":\"tool_use\",\"id\":");
    nb_w_str(w, nb_str_c(id));
    NB_W(w, ",\"name\":");
    nb_w_str(w, nb_str_c(name));
    NB_W(w, ",\"input\":");
}

static void open_block(nb_writer *w, nb_choice *c, const nb_piece *p)
{
    close_block(w, c);
    NB_W(w, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":");
    nb_w_uint(w, c->n_item++);
    NB_W(w, ",\"content_block\":");
    if (p->kind == NB_PIECE_CALL) {
        write_call_head(w, p->id, p->name);
        NB_W(w, "{}}");
    } else if (p->kind == NB_PIECE_REASONING) {
        NB_W(w, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else {
        NB_W(w, "{\"type\":\"text\",\"text\":\"\"}");
    }
    NB_W(w, "}\n\n");
    c->is_open = true;
    c->open_kind = p->kind;
}

/* Blocks follow one another: a piece of another kind closes the open one. */
static void write_piece(nb_writer *w, nb_choice *c, const nb_piece *p)
{
    static const char *const delta[] = {
        [NB_PIECE_CONTENT] = "\"text_delta\",\"text\":",
        [NB_PIECE_REASONING] = "\"thinking_delta\",\"thinking\":",
        [NB_PIECE_ARGUMENTS] = "\"input_json_delta\",\"partial_json\":",
    };
    if (p->kind == NB_PIECE_CALL_END) {
        close_block(w, c);
        return;
    }
    const nb_piece_kind kind = p->kind == NB_PIECE_ARGUMENTS ? NB_PIECE_CALL : p->kind;
    if (p->kind == NB_PIECE_CALL || !c->is_open || c->open_kind != kind) open_block(w, c, p);
    if (!p->text_bytes) return; /* an empty delta says nothing */
    NB_W(w, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
    nb_w_uint(w, c->n_item - 1);
    NB_W(w, ",\"delta\":{\"type\":");
    nb_w_c(w, delta[p->kind]);
    nb_w_str(w, (nb_str){ p->text, p->text_bytes });
    NB_W(w, "}}\n\n");
}

static void messages_chunk(nb_job *j, nb_choice *c, const nb_event *ev, bool last)
{
    const nb_piece tail = nb_tail_piece(c);
    if (!c->started) messages_start(j, c);
    for (size_t i = 0; ev && i < ev->n_piece; i++)
        if (nb_shows(j, &ev->piece[i])) write_piece(&j->out, c, &ev->piece[i]);
    if (last && c->tail_bytes) write_piece(&j->out, c, &tail);
}

static void messages_close(nb_job *j)
{
    static const nb_piece nothing = { .kind = NB_PIECE_CONTENT, .text = "" };
    nb_writer *w = &j->out;
    nb_choice *c = &j->choice[0];
    if (!c->n_item) open_block(w, c, &nothing);
    close_block(w, c);
    NB_W(w, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
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

/* Arguments that are no object: {"_raw": text}, which map_messages.c takes back. */
static void write_input(nb_writer *w, nb_str text)
{
    json_t *j = json_loadb(text.p, text.n_bytes, JSON_ALLOW_NUL, NULL);
    if (json_is_object(j)) {
        nb_w_raw(w, text.p, text.n_bytes);
    } else {
        NB_W(w, "{\"_raw\":");
        nb_w_str(w, text);
        NB_W(w, "}");
    }
    json_decref(j);
}

static void write_block(nb_writer *w, const nb_block *b)
{
    const nb_str text = nb_buf_view(&b->text);
    if (b->kind == NB_PIECE_CALL) {
        write_call_head(w, b->id, b->name);
        write_input(w, text);
    } else if (b->kind == NB_PIECE_REASONING) {
        NB_W(w, "{\"type\":\"thinking\",\"thinking\":");
        nb_w_str(w, text);
        NB_W(w, ",\"signature\":\"" SIGNATURE "\"");
    } else {
        NB_W(w, "{\"type\":\"text\",\"text\":");
        nb_w_str(w, text);
    }
    NB_W(w, "}");
}

static void messages_answer(nb_job *j)
{
    nb_writer *w = &j->out;
    const nb_choice *c = &j->choice[0];
    write_message(w, j);
    for (size_t i = 0; i < c->n_block; i++) {
        if (i) NB_W(w, ",");
        write_block(w, &c->block[i]);
    }
    if (!c->n_block) NB_W(w, "{\"type\":\"text\",\"text\":\"\"}");
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
