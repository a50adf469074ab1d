/* api_messages.c - POST /v1/messages and /v1/messages/count_tokens: Anthropic's messages,
 * turned into an OpenAI chat request for the template, and the answer into its events.
 *
 * Blocks: text; tool_use and tool_result become tool calls and messages of role tool; thinking
 * is left out (it is the model's own, of another turn); others are refused.  Lines of a
 * system text that begin with "x-anthropic-billing-header:" differ in every request of some
 * clients and would make every prefix new, so they are left out.  cache_control is ignored:
 * every prefix is cached. */
#include <stdlib.h>

#include "serve/fields.h"
#include "serve/job.h"

/* ---- building the chat request; NULL and failed appends are told by `bad` ---- */

typedef struct conv {
    nb_ask *a;
    json_t *messages; /* owned */
} conv;

static nb_status no_memory(nb_ask *a)
{
    return nb_fail(&a->err, NB_ERR_NOMEM, "out of memory");
}

static nb_status add_message(conv *v, json_t *m)
{
    return m && json_array_append_new(v->messages, m) == 0 ? NB_OK : no_memory(v->a);
}

static nb_status add_text(nb_buf *b, const json_t *text)
{
    if (b->n_bytes) NB_TRY(nb_buf_add_ch(b, '\n'));
    return nb_buf_add(b, json_string_value(text), json_string_length(text));
}

static bool is_type(const json_t *block, const char *type)
{
    const char *t = json_string_value(json_object_get(block, "type"));
    return t && strcmp(t, type) == 0;
}

/* The text without its billing lines. */
static nb_status add_system_text(nb_buf *b, const json_t *text)
{
    static const char mark[] = "x-anthropic-billing-header:";
    const char *p = json_string_value(text), *end = p + json_string_length(text);
    bool first = true;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *next = nl ? nl + 1 : end;
        const bool billing =
            (size_t)(next - p) >= sizeof mark - 1 && memcmp(p, mark, sizeof mark - 1) == 0;
        if (!billing) {
            if (first && b->n_bytes) NB_TRY(nb_buf_add_ch(b, '\n'));
            NB_TRY(nb_buf_add(b, p, (size_t)(next - p)));
            first = false;
        }
        p = next;
    }
    return NB_OK;
}

static nb_status add_system(conv *v)
{
    nb_ask *a = v->a;
    const json_t *s = nb_ask_get(a, "system");
    nb_buf b = { 0 };
    nb_status st = NB_OK;
    if (!s) return NB_OK;
    if (!json_is_string(s) && !json_is_array(s))
        return nb_ask_bad(a, "system", "system: expected a string or an array of text blocks");
    if (json_is_string(s) && add_system_text(&b, s) != NB_OK) st = no_memory(a);
    for (size_t i = 0; st == NB_OK && i < json_array_size(s); i++) {
        const json_t *block = json_array_get(s, i), *text = json_object_get(block, "text");
        if (!is_type(block, "text") || !json_is_string(text))
            st = nb_ask_bad(a, "system", "system.%zu: expected a block of type text", i);
        else if (add_system_text(&b, text) != NB_OK)
            st = no_memory(a);
    }
    if (st == NB_OK && b.n_bytes)
        st = add_message(
            v, json_pack("{s:s, s:o}", "role", "system", "content", json_stringn(b.p, b.n_bytes)));
    nb_buf_deinit(&b);
    return st;
}

/* What a turn's blocks become. */
typedef struct turn {
    nb_buf text;
    json_t *calls; /* NULL: none */
} turn;

static nb_status add_tool_use(conv *v, turn *t, const json_t *block, size_t i)
{
    const json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
    const json_t *input = json_object_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name))
        return nb_ask_bad(v->a, "messages", "messages.%zu: a tool_use needs an id and a name", i);
    char *args = json_is_object(input) ? json_dumps(input, JSON_COMPACT) : NULL;
    if (!t->calls) t->calls = json_array();
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:s}}", "id", id, "type", "function", "function",
                             "name", name, "arguments", args ? args : "{}");
    free(args);
    return t->calls && call && json_array_append_new(t->calls, call) == 0 ? NB_OK : no_memory(v->a);
}

/* The content of a tool_result: a string, text blocks, or nothing. */
static nb_status result_text(conv *v, const json_t *content, size_t i, nb_buf *b)
{
    if (!content || json_is_null(content)) return NB_OK;
    if (json_is_string(content)) return add_text(b, content) == NB_OK ? NB_OK : no_memory(v->a);
    if (!json_is_array(content))
        return nb_ask_bad(v->a, "messages",
                          "messages.%zu: content of a tool_result: expected a "
                          "string or an array",
                          i);
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *part = json_array_get(content, k), *text = json_object_get(part, "text");
        if (!is_type(part, "text") || !json_is_string(text))
            return nb_ask_bad(v->a, "messages", "messages.%zu: a tool_result may hold text only",
                              i);
        if (add_text(b, text) != NB_OK) return no_memory(v->a);
    }
    return NB_OK;
}

static nb_status add_tool_result(conv *v, const json_t *block, size_t i)
{
    const json_t *id = json_object_get(block, "tool_use_id");
    nb_buf b = { 0 };
    if (!json_is_string(id))
        return nb_ask_bad(v->a, "messages", "messages.%zu: a tool_result needs a tool_use_id", i);
    nb_status st = result_text(v, json_object_get(block, "content"), i, &b);
    if (st == NB_OK)
        st = add_message(v, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id,
                                      "content", json_stringn(b.p ? b.p : "", b.n_bytes)));
    nb_buf_deinit(&b);
    return st;
}

static nb_status add_block(conv *v, turn *t, const json_t *block, size_t i)
{
    const json_t *text = json_object_get(block, "text");
    const char *type = json_string_value(json_object_get(block, "type"));
    if (!type) return nb_ask_bad(v->a, "messages", "messages.%zu: a block has no type", i);
    if (strcmp(type, "text") == 0) {
        if (!json_is_string(text))
            return nb_ask_bad(v->a, "messages", "messages.%zu: a text block has no text", i);
        return add_text(&t->text, text) == NB_OK ? NB_OK : no_memory(v->a);
    }
    if (strcmp(type, "tool_use") == 0) return add_tool_use(v, t, block, i);
    if (strcmp(type, "tool_result") == 0) return add_tool_result(v, block, i);
    if (strcmp(type, "thinking") == 0 || strcmp(type, "redacted_thinking") == 0) return NB_OK;
    return nb_ask_bad(v->a, "messages",
                      "messages.%zu: blocks of type \"%.40s\" are not supported, only text and "
                      "tools",
                      i, type);
}

static nb_status end_turn(conv *v, const char *role, turn *t)
{
    if (!t->text.n_bytes && !t->calls) return NB_OK; /* tool results only */
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content",
                          json_stringn(t->text.p ? t->text.p : "", t->text.n_bytes));
    if (m && t->calls && json_object_set(m, "tool_calls", t->calls) != 0) {
        json_decref(m);
        m = NULL;
    }
    return add_message(v, m);
}

static nb_status add_turn(conv *v, const json_t *m, size_t i)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *content = json_object_get(m, "content");
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
        return nb_ask_bad(v->a, "messages", "messages.%zu.role: expected user or assistant", i);
    if (json_is_string(content))
        return add_message(v, json_pack("{s:s, s:O}", "role", role, "content", content));
    if (!json_is_array(content))
        return nb_ask_bad(v->a, "messages",
                          "messages.%zu.content: expected a string or an array of blocks", i);
    turn t = { 0 };
    nb_status st = NB_OK;
    for (size_t k = 0; st == NB_OK && k < json_array_size(content); k++)
        st = add_block(v, &t, json_array_get(content, k), i);
    if (st == NB_OK) st = end_turn(v, role, &t);
    nb_buf_deinit(&t.text);
    json_decref(t.calls);
    return st;
}

/* Tools that the client runs: they have a schema. */
static nb_status convert_tools(nb_ask *a, json_t **out)
{
    const json_t *tools = nb_ask_get(a, "tools");
    *out = NULL;
    if (!tools) return NB_OK;
    if (!json_is_array(tools)) return nb_ask_bad(a, "tools", "tools: expected an array");
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(tools); i++) {
        json_t *t = json_array_get(tools, i), *schema = json_object_get(t, "input_schema");
        json_t *name = json_object_get(t, "name"), *about = json_object_get(t, "description");
        if (!json_is_string(name)) {
            json_decref(list);
            return nb_ask_bad(a, "tools", "tools.%zu: expected an object with a name", i);
        }
        if (!json_is_object(schema)) {
            json_decref(list);
            return nb_ask_bad(a, "tools",
                              "tools.%zu: tools that the server would run are not supported: "
                              "expected an input_schema",
                              i);
        }
        json_t *f = json_pack("{s:s, s:{s:O, s:O}}", "type", "function", "function", "name", name,
                              "parameters", schema);
        if (f && json_is_string(about) &&
            json_object_set(json_object_get(f, "function"), "description", about) != 0) {
            json_decref(f);
            f = NULL;
        }
        if (json_array_append_new(list, f) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    *out = list;
    return list ? NB_OK : no_memory(a);
}

/* The OpenAI body that the template is rendered with; free() it. */
static nb_status convert_body(nb_ask *a, char **out)
{
    const json_t *list = nb_ask_get(a, "messages");
    json_t *tools = NULL;
    if (!json_is_array(list) || !json_array_size(list))
        return nb_ask_bad(a, "messages", "messages: expected an array, not empty");
    conv v = { a, json_array() };
    nb_status st = v.messages ? add_system(&v) : no_memory(a);
    for (size_t i = 0; st == NB_OK && i < json_array_size(list); i++)
        st = add_turn(&v, json_array_get(list, i), i);
    if (st == NB_OK) st = convert_tools(a, &tools);
    json_t *doc = st == NB_OK ? json_pack("{s:O}", "messages", v.messages) : NULL;
    json_t *kwargs = json_object_get(a->doc, "chat_template_kwargs");
    if (doc && ((json_array_size(tools) && json_object_set(doc, "tools", tools) != 0) ||
                (kwargs && json_object_set(doc, "chat_template_kwargs", kwargs) != 0))) {
        json_decref(doc);
        doc = NULL;
    }
    *out = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    if (st == NB_OK && !*out) st = no_memory(a);
    json_decref(doc);
    json_decref(tools);
    json_decref(v.messages);
    return st;
}

/* A last turn of the assistant is continued, as Anthropic's API does ("prefill"). */
static nb_status continue_last(nb_ask *a, char **body)
{
    const json_t *list = nb_ask_get(a, "messages");
    const json_t *last = json_array_get(list, json_array_size(list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!role || strcmp(role, "assistant") != 0) return NB_OK;
    json_t *doc = json_loads(*body, 0, NULL);
    char *text = NULL;
    if (doc && json_object_set_new(doc, "continue_final_message", json_true()) == 0)
        text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    if (!text) return no_memory(a);
    free(*body);
    *body = text;
    return NB_OK;
}

static nb_status render(const nb_serve *s, nb_ask *a, nb_prompt *out)
{
    char *body = NULL;
    nb_status st = convert_body(a, &body);
    if (st == NB_OK) st = continue_last(a, &body);
    if (st == NB_OK) st = nb_render_chat(s, a, nb_str_c(body), out);
    free(body);
    return st;
}

/* ---- fields ---- */

static nb_status read_choice_of_tools(nb_ask *a)
{
    const json_t *c = nb_ask_get(a, "tool_choice");
    const char *type = json_string_value(json_object_get(c, "type"));
    if (!c || (type && (strcmp(type, "auto") == 0 || strcmp(type, "none") == 0))) return NB_OK;
    return nb_ask_bad(a, "tool_choice",
                      "tool_choice: forced tool calls are not supported, only auto and none");
}

/* output_config: {"effort": ..., "format": ...}. */
static nb_status read_output(nb_ask *a)
{
    const json_t *c = nb_ask_get(a, "output_config");
    if (c && !json_is_object(c))
        return nb_ask_bad(a, "output_config", "output_config: expected an object");
    const json_t *format = json_object_get(c, "format");
    if (!format || json_is_null(format)) return NB_OK;
    return nb_ask_bad(a, "output_config",
                      "output_config.format: structured outputs are not supported");
}

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
    NB_TRY(read_output(a));
    NB_TRY(read_choice_of_tools(a));
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
    NB_TRY(nb_job_prompts(j, 1));
    return render(j->s, &j->ask, &j->prompt[0]);
}

static nb_status count_prepare(nb_job *j)
{
    j->ask.n = 1;
    NB_TRY(nb_fields_check(&j->ask, NB_FIELDS_MESSAGES, &j->s->lim));
    NB_TRY(nb_job_prompts(j, 1));
    return render(j->s, &j->ask, &j->prompt[0]);
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
