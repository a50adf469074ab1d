/* api_responses.c - POST /v1/responses: OpenAI's responses without stored state, and the events of
 * their streams; map_responses.c makes a chat of the request. */
#include <stdio.h>
#include <stdlib.h>

#include "serve/chat_map.h"
#include "serve/fields.h"
#include "serve/job.h"

/* ---- fields ---- */

/* A member of the request as JSON, for the answer that repeats it. */
static nb_status keep(nb_ask *a, const char *name, const char *dflt, const char **out)
{
    const json_t *v = nb_ask_get(a, name);
    *out = dflt;
    if (!v) return NB_OK;
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    const size_t n = text ? strlen(text) + 1 : 0;
    char *copy = text ? nb_ask_alloc(a, n, 1) : NULL;
    if (copy) memcpy(copy, text, n);
    free(text);
    *out = copy;
    return copy ? NB_OK : nb_map_no_memory(a);
}

static nb_status refuse_state(nb_ask *a)
{
    static const char *const names[] = { "previous_response_id", "conversation", "prompt" };
    bool background = false;
    for (size_t i = 0; i < NB_COUNT(names); i++)
        if (nb_ask_get(a, names[i]))
            return nb_ask_bad(a, names[i], "%s: nothing is stored; send the whole input", names[i]);
    NB_TRY(nb_ask_bool(a, "background", &background));
    return background ? nb_ask_bad(a, "background", "background: answers are not stored") : NB_OK;
}

static nb_status read_fields(nb_ask *a, const nb_ask_limits *lim)
{
    nb_sampling *s = &a->sampling;
    int64_t v = 0;
    *s = lim->sampling;
    s->n_logprobs = -1;
    a->n = 1;
    NB_TRY(nb_fields_check(a, NB_FIELDS_RESPONSES, lim));
    NB_TRY(refuse_state(a));
    NB_TRY(nb_ask_int(a, "max_output_tokens", 1, INT32_MAX, &v, &a->has_max_tokens));
    s->max_tokens = (size_t)v;
    NB_TRY(nb_ask_bool(a, "stream", &a->stream));
    NB_TRY(nb_ask_real(a, "temperature", 0, 1e6, &s->temperature));
    NB_TRY(nb_ask_real(a, "top_p", 0, 1, &s->top_p));
    if (s->top_p <= 0) return nb_ask_bad(a, "top_p", "top_p is 0: expected a number in (0, 1]");
    NB_TRY(nb_ask_read_responses(a));
    NB_TRY(keep(a, "instructions", "null", &a->same.instructions));
    NB_TRY(keep(a, "tools", "[]", &a->same.tools));
    NB_TRY(keep(a, "tool_choice", "\"auto\"", &a->same.tool_choice));
    NB_TRY(keep(a, "text", "{\"format\":{\"type\":\"text\"}}", &a->same.text));
    NB_TRY(keep(a, "metadata", "{}", &a->same.metadata));
    return nb_ask_identity(a, lim);
}

static nb_status responses_prepare(nb_job *j)
{
    NB_TRY(read_fields(&j->ask, &j->s->lim));
    return nb_job_chat(j, nb_map_responses);
}

/* ---- items ---- */

/* prefix_REQUEST_N */
static void write_item_id(nb_writer *w, const nb_job *j, nb_piece_kind kind, size_t i)
{
    static const char *const prefix[] = {
        [NB_PIECE_CONTENT] = "\"msg_", [NB_PIECE_REASONING] = "\"rs_", [NB_PIECE_CALL] = "\"fc_"
    };
    nb_w_c(w, prefix[kind]);
    nb_w_escaped(w, nb_str_c(j->request_id + strlen(j->api->id_prefix)));
    NB_W(w, "_");
    nb_w_uint(w, i);
    NB_W(w, "\"");
}

static void write_text_part(nb_writer *w, nb_str text)
{
    NB_W(w, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
    nb_w_str(w, text);
    NB_W(w, "}");
}

/* Tools of a namespace were declared as NAMESPACE__NAME. */
static void write_call(nb_writer *w, const nb_job *j, const nb_block *b, nb_str text)
{
    size_t n_space = 0;
    for (size_t i = 0; i < j->ask.n_tools; i++) /* another name with these letters is the model's */
        if (strcmp(j->ask.tools[i].name, b->name) == 0) n_space = nb_map_namespace(b->name);
    if (!strstr(j->ask.same.tools, "\"namespace\"")) n_space = 0;
    NB_W(w, ",\"call_id\":");
    nb_w_str(w, nb_str_c(b->id));
    if (n_space) {
        NB_W(w, ",\"namespace\":");
        nb_w_str(w, (nb_str){ b->name, n_space });
    }
    NB_W(w, ",\"name\":");
    nb_w_str(w, nb_str_c(n_space ? b->name + n_space + 2 : b->name));
    NB_W(w, ",\"arguments\":");
    nb_w_str(w, text);
}

/* begun: as it is added, without its text. */
static void write_item(nb_writer *w, const nb_job *j, const nb_choice *c, size_t i, bool begun)
{
    const nb_block *b = &c->block[i];
    const nb_str text = begun ? (nb_str){ "", 0 } : nb_buf_view(&b->text);
    const bool cut = !begun && c->reason == NB_END_LENGTH && !c->open && i + 1 == c->n_block;
    NB_W(w, "{\"id\":");
    write_item_id(w, j, b->kind, i);
    if (b->kind == NB_PIECE_REASONING) {
        NB_W(w, ",\"type\":\"reasoning\",\"summary\":[],\"content\":[");
        if (!begun) {
            NB_W(w, "{\"type\":\"reasoning_text\",\"text\":");
            nb_w_str(w, text);
            NB_W(w, "}");
        }
        NB_W(w, "],\"encrypted_content\":null");
    } else if (b->kind == NB_PIECE_CALL) {
        NB_W(w, ",\"type\":\"function_call\"");
        write_call(w, j, b, text);
    } else {
        NB_W(w, ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
        if (!begun) write_text_part(w, text);
        NB_W(w, "]");
    }
    NB_W(w, ",\"status\":");
    nb_w_c(w, begun ? "\"in_progress\"}" : cut ? "\"incomplete\"}" : "\"completed\"}");
}

/* ---- the response ---- */

static void write_usage(nb_writer *w, const nb_job *j)
{
    size_t prompt, cached, generated;
    nb_job_counts(j, &prompt, &cached, &generated);
    NB_W(w, "{\"input_tokens\":");
    nb_w_uint(w, prompt);
    NB_W(w, ",\"input_tokens_details\":{\"cached_tokens\":");
    nb_w_uint(w, cached);
    NB_W(w, "},\"output_tokens\":");
    nb_w_uint(w, generated);
    NB_W(w, ",\"output_tokens_details\":{\"reasoning_tokens\":");
    nb_w_uint(w, nb_job_reasoning(j));
    NB_W(w, "},\"total_tokens\":");
    nb_w_uint(w, prompt + generated);
    NB_W(w, "}");
}

static void write_real(nb_writer *w, double v)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.10g", v);
    nb_w_c(w, text);
}

/* error: a JSON object or "null". */
static void write_response(nb_writer *w, const nb_job *j, const char *status, const char *error)
{
    const nb_choice *c = j->n_choice ? &j->choice[0] : NULL;
    const bool over = strcmp(status, "in_progress") != 0;
    NB_W(w, "{\"id\":");
    nb_w_str(w, nb_str_c(j->request_id));
    NB_W(w, ",\"object\":\"response\",\"created_at\":");
    nb_w_uint(w, (uint64_t)j->created);
    NB_W(w, ",\"status\":");
    nb_w_str(w, nb_str_c(status));
    NB_W(w, ",\"background\":false,\"error\":");
    nb_w_c(w, error);
    NB_W(w, ",\"incomplete_details\":");
    nb_w_c(w, strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    NB_W(w, ",\"instructions\":");
    nb_w_c(w, j->ask.same.instructions);
    NB_W(w, ",\"max_output_tokens\":");
    if (j->ask.has_max_tokens)
        nb_w_uint(w, j->ask.sampling.max_tokens);
    else
        NB_W(w, "null");
    NB_W(w, ",\"metadata\":");
    nb_w_c(w, j->ask.same.metadata);
    NB_W(w, ",\"model\":");
    nb_w_str(w, nb_str_c(j->s->name));
    NB_W(w, ",\"output\":[");
    for (size_t i = 0; over && c && i < c->n_block; i++) {
        if (i) NB_W(w, ",");
        write_item(w, j, c, i, false);
    }
    NB_W(w, "],\"parallel_tool_calls\":");
    nb_w_c(w, j->ask.one_call ? "false" : "true");
    NB_W(w, ",\"previous_response_id\":null,\"reasoning\":{\"effort\":");
    if (j->ask.effort)
        nb_w_str(w, nb_str_c(j->ask.effort));
    else
        NB_W(w, "null");
    NB_W(w, ",\"summary\":null},\"store\":false,\"temperature\":");
    write_real(w, j->ask.sampling.temperature);
    NB_W(w, ",\"text\":");
    nb_w_c(w, j->ask.same.text);
    NB_W(w, ",\"tool_choice\":");
    nb_w_c(w, j->ask.same.tool_choice);
    NB_W(w, ",\"tools\":");
    nb_w_c(w, j->ask.same.tools);
    NB_W(w, ",\"top_p\":");
    write_real(w, j->ask.sampling.top_p);
    NB_W(w, ",\"truncation\":\"disabled\",\"usage\":");
    if (over)
        write_usage(w, j);
    else
        NB_W(w, "null");
    NB_W(w, ",\"user\":null}");
}

/* ---- streams ---- */

/* Up to what follows the sequence number. */
static void open_event(nb_writer *w, nb_job *j, const char *type)
{
    NB_W(w, "event: ");
    nb_w_c(w, type);
    NB_W(w, "\ndata: {\"type\":");
    nb_w_str(w, nb_str_c(type));
    NB_W(w, ",\"sequence_number\":");
    nb_w_uint(w, j->n_event++);
}

static void response_event(nb_job *j, const char *type, const char *status, const char *error)
{
    nb_writer *w = &j->out;
    open_event(w, j, type);
    NB_W(w, ",\"response\":");
    write_response(w, j, status, error);
    NB_W(w, "}\n\n");
}

static void item_event(nb_job *j, const nb_choice *c, const char *type, bool begun)
{
    nb_writer *w = &j->out;
    open_event(w, j, type);
    NB_W(w, ",\"output_index\":");
    nb_w_uint(w, c->n_block - 1);
    NB_W(w, ",\"item\":");
    write_item(w, j, c, c->n_block - 1, begun);
    NB_W(w, "}\n\n");
}

/* An event of the open item with one more member, which is a text or a part. */
static void text_event(nb_job *j, const nb_choice *c, const char *type, const char *member,
                       nb_str text, bool part)
{
    nb_writer *w = &j->out;
    const nb_block *b = &c->block[c->n_block - 1];
    open_event(w, j, type);
    NB_W(w, ",\"item_id\":");
    write_item_id(w, j, b->kind, c->n_block - 1);
    NB_W(w, ",\"output_index\":");
    nb_w_uint(w, c->n_block - 1);
    if (b->kind != NB_PIECE_CALL) NB_W(w, ",\"content_index\":0");
    if (b->kind == NB_PIECE_CONTENT && !part) NB_W(w, ",\"logprobs\":[]");
    NB_W(w, ",\"");
    nb_w_c(w, member);
    NB_W(w, "\":");
    if (part)
        write_text_part(w, text);
    else
        nb_w_str(w, text);
    NB_W(w, "}\n\n");
}

static void close_item(nb_job *j, nb_choice *c)
{
    if (!c->is_open) return;
    c->is_open = false;
    const nb_str all = nb_buf_view(&c->block[c->n_block - 1].text);
    if (c->open_kind == NB_PIECE_REASONING) {
        text_event(j, c, "response.reasoning_text.done", "text", all, false);
    } else if (c->open_kind == NB_PIECE_CALL) {
        text_event(j, c, "response.function_call_arguments.done", "arguments", all, false);
    } else {
        text_event(j, c, "response.output_text.done", "text", all, false);
        text_event(j, c, "response.content_part.done", "part", all, true);
    }
    item_event(j, c, "response.output_item.done", false);
}

static void write_piece(nb_job *j, nb_choice *c, const nb_piece *p)
{
    static const char *const delta[] = {
        [NB_PIECE_CONTENT] = "response.output_text.delta",
        [NB_PIECE_REASONING] = "response.reasoning_text.delta",
        [NB_PIECE_ARGUMENTS] = "response.function_call_arguments.delta",
    };
    const nb_piece_kind kind = p->kind == NB_PIECE_ARGUMENTS ? NB_PIECE_CALL : p->kind;
    const bool begins = p->kind == NB_PIECE_CALL || !c->is_open || c->open_kind != kind;
    if (p->kind == NB_PIECE_CALL_END || begins) close_item(j, c);
    if (p->kind == NB_PIECE_CALL_END) return;
    if (nb_blocks_add(c, p) != NB_OK) {
        j->out.st = NB_ERR_NOMEM;
        return;
    }
    if (begins) {
        c->is_open = true;
        c->open_kind = kind;
        item_event(j, c, "response.output_item.added", true);
        if (kind == NB_PIECE_CONTENT)
            text_event(j, c, "response.content_part.added", "part", (nb_str){ "", 0 }, true);
    }
    if (p->text_bytes)
        text_event(j, c, delta[p->kind], "delta", (nb_str){ p->text, p->text_bytes }, false);
}

static void responses_chunk(nb_job *j, nb_choice *c, const nb_event *ev, bool last)
{
    const nb_piece tail = nb_tail_piece(c);
    if (!c->started) {
        response_event(j, "response.created", "in_progress", "null");
        response_event(j, "response.in_progress", "in_progress", "null");
    }
    for (size_t i = 0; ev && i < ev->n_piece; i++)
        if (nb_shows(j, &ev->piece[i])) write_piece(j, c, &ev->piece[i]);
    if (last && c->tail_bytes) write_piece(j, c, &tail);
}

static const char *final_status(const nb_choice *c)
{
    return c->reason == NB_END_LENGTH ? "incomplete" : "completed";
}

static void responses_close(nb_job *j)
{
    nb_choice *c = &j->choice[0];
    const char *status = final_status(c);
    close_item(j, c);
    response_event(j, c->reason == NB_END_LENGTH ? "response.incomplete" : "response.completed",
                   status, "null");
}

static void responses_error(nb_job *j, int status, const char *message)
{
    nb_writer e = { 0 };
    NB_W(&e, "{\"code\":");
    nb_w_c(&e, status == 503 ? "\"rate_limit_exceeded\"" : "\"server_error\"");
    NB_W(&e, ",\"message\":");
    nb_w_str(&e, nb_str_c(message));
    NB_W(&e, "}");
    response_event(j, "response.failed", "failed", e.st == NB_OK ? e.b.p : "null");
    nb_buf_deinit(&e.b);
}

static void responses_answer(nb_job *j)
{
    write_response(&j->out, j, final_status(&j->choice[0]), "null");
}

void nb_api_responses(nb_http_ex *ex, void *ctx)
{
    static const nb_api api = { .path = "/v1/responses",
                                .id_prefix = "resp_",
                                .kind = NB_ASK_CHAT,
                                .uses_engine = true,
                                .clamp = true,
                                .max_tokens = SIZE_MAX,
                                .prepare = responses_prepare,
                                .chunk = responses_chunk,
                                .close = responses_close,
                                .error = responses_error,
                                .answer = responses_answer };
    nb_job_start(ctx, ex, &api);
}
