/* map_messages.c - Anthropic's messages as an OpenAI chat; see chat_map.h.
 *
 * Blocks: text; tool_use and tool_result become calls and messages of role tool; thinking becomes
 * the reasoning of its turn, byte for byte; redacted_thinking is skipped.  Images in results become
 * a note, others are refused.  Lines of a system text that begin with
 * "x-anthropic-billing-header:" differ in every request of some clients and would make every
 * prefix new, so they are left out.  cache_control is ignored: every prefix is cached. */
#include "serve/chat_map.h"

#include <stdio.h>
#include <string.h>

typedef struct conv {
    nb_ask *a;
    json_t *messages; /* owned */
} conv;

static nb_status add_message(conv *v, json_t *m)
{
    return m && json_array_append_new(v->messages, m) == 0 ? NB_OK : nb_map_no_memory(v->a);
}

static nb_status add_text(nb_buf *b, const json_t *text, const char *between)
{
    if (b->n_bytes) NB_TRY(nb_buf_add_c(b, between));
    return nb_buf_add(b, json_string_value(text), json_string_length(text));
}

/* ---- the system's texts ---- */

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

/* s: a string or text blocks; where, param: for refusals. */
static nb_status add_system(conv *v, const json_t *s, const char *param, const char *where)
{
    nb_ask *a = v->a;
    nb_buf b = { 0 };
    nb_status st = NB_OK;
    if (!json_is_string(s) && !json_is_array(s))
        return nb_ask_bad(a, param, "%s: expected a string or an array of text blocks", where);
    if (json_is_string(s) && add_system_text(&b, s) != NB_OK) st = nb_map_no_memory(a);
    for (size_t i = 0; st == NB_OK && i < json_array_size(s); i++) {
        const json_t *block = json_array_get(s, i), *text = json_object_get(block, "text");
        if (!nb_map_is(block, "text") || !json_is_string(text))
            st = nb_ask_bad(a, param, "%s.%zu: expected a block of type text", where, i);
        else if (add_system_text(&b, text) != NB_OK)
            st = nb_map_no_memory(a);
    }
    if (st == NB_OK && b.n_bytes)
        st = add_message(
            v, json_pack("{s:s, s:o}", "role", "system", "content", json_stringn(b.p, b.n_bytes)));
    nb_buf_deinit(&b);
    return st;
}

/* ---- turns ---- */

/* What a turn's blocks become. */
typedef struct turn {
    bool assistant;
    nb_buf text, thinking;
    json_t *calls; /* NULL: none */
} turn;

/* Arguments that were no JSON went to the client as {"_raw": text}; they come back as that text. */
static json_t *arguments_of(json_t *input)
{
    json_t *raw = json_object_size(input) == 1 ? json_object_get(input, "_raw") : NULL;
    if (json_is_string(raw)) return json_incref(raw);
    return json_is_object(input) ? json_incref(input) : json_object();
}

static nb_status add_tool_use(conv *v, turn *t, const json_t *block, size_t i)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
    if (!json_is_string(id) || !json_is_string(name))
        return nb_ask_bad(v->a, "messages", "messages.%zu: a tool_use needs an id and a name", i);
    if (!t->calls) t->calls = json_array();
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function",
                             "name", name, "arguments",
                             arguments_of(json_object_get(block, "input")));
    return t->calls && json_array_append_new(t->calls, call) == 0 ? NB_OK : nb_map_no_memory(v->a);
}

/* One block of a tool_result. */
static nb_status add_result_block(conv *v, nb_buf *b, const json_t *part, size_t i)
{
    static const char no_image[] = "[An image, which the model cannot see.]";
    const json_t *text = json_object_get(part, "text");
    nb_status st;
    if (nb_map_is(part, "tool_reference")) text = json_object_get(part, "tool_name");
    if (nb_map_is(part, "image")) {
        st = b->n_bytes ? nb_buf_add_ch(b, '\n') : NB_OK;
        if (st == NB_OK) st = nb_buf_add_c(b, no_image);
    } else if ((nb_map_is(part, "text") || nb_map_is(part, "tool_reference")) &&
               json_is_string(text)) {
        st = add_text(b, text, "\n");
    } else {
        return nb_ask_bad(v->a, "messages",
                          "messages.%zu: a tool_result may hold text, images and tool references", i);
    }
    return st == NB_OK ? NB_OK : nb_map_no_memory(v->a);
}

/* The content of a tool_result: a string, blocks, or nothing. */
static nb_status result_text(conv *v, const json_t *content, size_t i, nb_buf *b)
{
    if (!content || json_is_null(content)) return NB_OK;
    if (json_is_string(content))
        return add_text(b, content, "\n") == NB_OK ? NB_OK : nb_map_no_memory(v->a);
    if (!json_is_array(content))
        return nb_ask_bad(v->a, "messages",
                          "messages.%zu: content of a tool_result: expected a string or an array",
                          i);
    for (size_t k = 0; k < json_array_size(content); k++)
        NB_TRY(add_result_block(v, b, json_array_get(content, k), i));
    return NB_OK;
}

static nb_status add_tool_result(conv *v, const json_t *block, size_t i)
{
    json_t *id = json_object_get(block, "tool_use_id");
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
    const char *type = json_string_value(json_object_get(block, "type"));
    if (!type) return nb_ask_bad(v->a, "messages", "messages.%zu: a block has no type", i);
    if (strcmp(type, "text") == 0 || strcmp(type, "thinking") == 0) {
        const json_t *text = json_object_get(block, type);
        const bool thought = type[1] == 'h';
        if (!json_is_string(text))
            return nb_ask_bad(v->a, "messages", "messages.%zu: a %s block has no %s", i, type, type);
        /* what the model wrote stays as it was */
        return add_text(thought ? &t->thinking : &t->text, text, t->assistant ? "" : "\n") == NB_OK
                   ? NB_OK
                   : nb_map_no_memory(v->a);
    }
    if (strcmp(type, "tool_use") == 0) return add_tool_use(v, t, block, i);
    if (strcmp(type, "tool_result") == 0) return add_tool_result(v, block, i);
    if (strcmp(type, "redacted_thinking") == 0) return NB_OK;
    return nb_ask_bad(v->a, "messages",
                      "messages.%zu: blocks of type \"%.40s\" are not supported, only text, thinking "
                      "and tools",
                      i, type);
}

static nb_status end_turn(conv *v, const turn *t)
{
    if (!t->text.n_bytes && !t->calls && !t->thinking.n_bytes) return NB_OK; /* only results */
    json_t *m = json_pack("{s:s, s:o}", "role", t->assistant ? "assistant" : "user", "content",
                          json_stringn(t->text.p ? t->text.p : "", t->text.n_bytes));
    bool ok = m && (!t->calls || json_object_set(m, "tool_calls", t->calls) == 0);
    if (ok && t->thinking.n_bytes)
        ok = json_object_set_new(m, "reasoning_content",
                                 json_stringn(t->thinking.p, t->thinking.n_bytes)) == 0;
    if (ok) return add_message(v, m);
    json_decref(m);
    return nb_map_no_memory(v->a);
}

static nb_status add_turn(conv *v, json_t *m, size_t i)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *content = json_object_get(m, "content");
    char where[64];
    if (role && strcmp(role, "system") == 0) {
        (void)snprintf(where, sizeof where, "messages.%zu.content", i);
        return add_system(v, content, "messages", where);
    }
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
        return nb_ask_bad(v->a, "messages",
                          "messages.%zu.role: expected user, assistant or system", i);
    if (json_is_string(content))
        return add_message(v, json_pack("{s:s, s:O}", "role", role, "content", content));
    if (!json_is_array(content))
        return nb_ask_bad(v->a, "messages",
                          "messages.%zu.content: expected a string or an array of blocks", i);
    turn t = { .assistant = role[0] == 'a' };
    nb_status st = NB_OK;
    for (size_t k = 0; st == NB_OK && k < json_array_size(content); k++)
        st = add_block(v, &t, json_array_get(content, k), i);
    if (st == NB_OK) st = end_turn(v, &t);
    nb_buf_deinit(&t.text);
    nb_buf_deinit(&t.thinking);
    json_decref(t.calls);
    return st;
}

/* ---- the request ---- */

/* Tools that the client runs have a schema; others, which Anthropic's servers would run, are left
 * out. */
static nb_status add_tools(nb_ask *a, json_t *list)
{
    const json_t *tools = nb_ask_get(a, "tools");
    if (tools && !json_is_array(tools)) return nb_ask_bad(a, "tools", "tools: expected an array");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *t = json_array_get(tools, i), *schema = json_object_get(t, "input_schema");
        json_t *name = json_object_get(t, "name");
        if (!json_is_object(t) || !json_is_string(name))
            return nb_ask_bad(a, "tools", "tools.%zu: expected an object with a name", i);
        if (!schema || json_is_null(schema)) {
            a->skipped_tools++;
            continue;
        }
        if (!json_is_object(schema))
            return nb_ask_bad(a, "tools", "tools.%zu.input_schema: expected an object", i);
        json_t *f = nb_map_tool(name, json_object_get(t, "description"), schema);
        if (json_array_append_new(list, f) != 0) return nb_map_no_memory(a);
    }
    return NB_OK;
}

/* A last turn of the assistant is continued, as Anthropic's API does ("prefill"). */
static bool ends_with_assistant(const json_t *list)
{
    const json_t *last = json_array_get(list, json_array_size(list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && strcmp(role, "assistant") == 0;
}

nb_status nb_map_messages(nb_ask *a, json_t **out)
{
    const json_t *list = nb_ask_get(a, "messages"), *system = nb_ask_get(a, "system");
    if (!json_is_array(list) || !json_array_size(list))
        return nb_ask_bad(a, "messages", "messages: expected an array, not empty");
    json_t *tools = json_array();
    conv v = { a, json_array() };
    nb_status st = v.messages && tools ? NB_OK : nb_map_no_memory(a);
    if (st == NB_OK && system) st = add_system(&v, system, "system", "system");
    for (size_t i = 0; st == NB_OK && i < json_array_size(list); i++)
        st = add_turn(&v, json_array_get(list, i), i);
    if (st == NB_OK) st = add_tools(a, tools);
    json_t *chat = st == NB_OK ? json_pack("{s:O}", "messages", v.messages) : NULL;
    bool ok = chat != NULL;
    if (ok && json_array_size(tools)) ok = json_object_set(chat, "tools", tools) == 0;
    if (ok && ends_with_assistant(list))
        ok = json_object_set_new(chat, "continue_final_message", json_true()) == 0;
    json_decref(tools);
    json_decref(v.messages);
    if (st != NB_OK) return st;
    if (ok) return nb_map_finish(a, chat, out);
    json_decref(chat);
    return nb_map_no_memory(a);
}
