/* map_responses.c - the input of /v1/responses as an OpenAI chat; see chat_map.h.
 *
 * Items: messages; reasoning, messages of the assistant and function calls that follow one another
 * are one turn; results of functions.  Tools of a namespace are flattened to NAMESPACE__NAME and
 * split again in the answer.  Tools that only OpenAI's servers could run are left out: refusing
 * them would lock clients out that always send them. */
#include "serve/chat_map.h"

#include <stdio.h>
#include <string.h>

#define NAMESPACE_END "__"

typedef struct conv {
    nb_ask *a;
    json_t *messages; /* owned */
    json_t *turn;     /* the assistant's, not yet among the messages; owned or NULL */
    nb_buf thought;   /* of turn */
} conv;

static nb_status put(conv *v, json_t *m)
{
    return m && json_array_append_new(v->messages, m) == 0 ? NB_OK : nb_map_no_memory(v->a);
}

static nb_status end_turn(conv *v)
{
    json_t *m = v->turn;
    v->turn = NULL;
    if (!m) return NB_OK;
    json_t *thought = v->thought.n_bytes ? json_stringn(v->thought.p, v->thought.n_bytes) : NULL;
    const bool ok = !v->thought.n_bytes || json_object_set_new(m, "reasoning_content", thought) == 0;
    v->thought.n_bytes = 0;
    if (ok) return put(v, m);
    json_decref(m);
    return nb_map_no_memory(v->a);
}

/* The open turn; a new one where it already has what may not follow. */
static nb_status open_turn(conv *v, bool no_content)
{
    const bool full = json_object_get(v->turn, "tool_calls") ||
                      (no_content && json_object_get(v->turn, "content"));
    if (full) NB_TRY(end_turn(v));
    if (!v->turn) v->turn = json_pack("{s:s}", "role", "assistant");
    return v->turn ? NB_OK : nb_map_no_memory(v->a);
}

/* ---- texts ---- */

static bool is_text(const json_t *part)
{
    return nb_map_is(part, "input_text") || nb_map_is(part, "output_text") ||
           nb_map_is(part, "text") || nb_map_is(part, "reasoning_text") ||
           nb_map_is(part, "summary_text");
}

static nb_status join(conv *v, const json_t *content, const char *between, size_t i, json_t **out)
{
    nb_buf b = { 0 };
    nb_status st = NB_OK;
    if (json_is_string(content)) {
        *out = json_incref((json_t *)(uintptr_t)content);
        return NB_OK;
    }
    if (content && !json_is_null(content) && !json_is_array(content))
        return nb_ask_bad(v->a, "input", "input.%zu: expected a string or an array of parts", i);
    for (size_t k = 0; st == NB_OK && k < json_array_size(content); k++) {
        const json_t *part = json_array_get(content, k), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (nb_map_is(part, "refusal")) text = json_object_get(part, "refusal");
        if ((!is_text(part) && !nb_map_is(part, "refusal")) || !json_is_string(text)) {
            st = nb_ask_bad(v->a, "input",
                            "input.%zu: parts of type \"%.40s\" are not supported, only text", i,
                            type ? type : "");
            break;
        }
        if (k) st = nb_buf_add_c(&b, between);
        if (st == NB_OK) st = nb_buf_add(&b, json_string_value(text), json_string_length(text));
        if (st != NB_OK) (void)nb_map_no_memory(v->a);
    }
    *out = st == NB_OK ? json_stringn(b.p ? b.p : "", b.n_bytes) : NULL;
    nb_buf_deinit(&b);
    if (st != NB_OK) return st;
    return *out ? NB_OK : nb_map_no_memory(v->a);
}

/* ---- items ---- */

static nb_status add_message(conv *v, const json_t *item, size_t i)
{
    const char *role = json_string_value(json_object_get(item, "role"));
    const bool assistant = role && strcmp(role, "assistant") == 0;
    json_t *text = NULL;
    if (!role || (!assistant && strcmp(role, "user") != 0 && strcmp(role, "system") != 0 &&
                  strcmp(role, "developer") != 0))
        return nb_ask_bad(v->a, "input",
                          "input.%zu.role: expected user, assistant, system or developer", i);
    NB_TRY(join(v, json_object_get(item, "content"), assistant ? "" : "\n", i, &text));
    if (assistant) {
        nb_status st = open_turn(v, true);
        if (st == NB_OK && json_object_set(v->turn, "content", text) != 0)
            st = nb_map_no_memory(v->a);
        json_decref(text);
        return st;
    }
    const char *as = strcmp(role, "user") == 0 ? "user" : "system";
    json_t *m = json_pack("{s:s, s:o}", "role", as, "content", text);
    NB_TRY(end_turn(v));
    return put(v, m);
}

static nb_status add_reasoning(conv *v, const json_t *item, size_t i)
{
    json_t *text = NULL;
    NB_TRY(join(v, json_object_get(item, "content"), "", i, &text));
    nb_status st = NB_OK;
    if (json_string_length(text)) {
        st = open_turn(v, true);
        if (st == NB_OK && nb_buf_add(&v->thought, json_string_value(text),
                                      json_string_length(text)) != NB_OK)
            st = nb_map_no_memory(v->a);
    }
    json_decref(text);
    return st;
}

/* NAMESPACE__NAME, or NAME. */
static json_t *flat_name(const json_t *space, const json_t *name)
{
    if (!json_is_string(space) || !json_string_length(space))
        return json_incref((json_t *)(uintptr_t)name);
    return json_sprintf("%s" NAMESPACE_END "%s", json_string_value(space), json_string_value(name));
}

static nb_status add_call(conv *v, const json_t *item, size_t i)
{
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    json_t *args = json_object_get(item, "arguments");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(args))
        return nb_ask_bad(v->a, "input",
                          "input.%zu: a function_call needs a call_id, a name and arguments", i);
    if (!v->turn) NB_TRY(open_turn(v, false));
    json_t *calls = json_object_get(v->turn, "tool_calls");
    if (!calls) {
        calls = json_array();
        if (json_object_set_new(v->turn, "tool_calls", calls) != 0) return nb_map_no_memory(v->a);
    }
    json_t *call = json_pack("{s:O, s:s, s:{s:o, s:O}}", "id", id, "type", "function", "function",
                             "name", flat_name(json_object_get(item, "namespace"), name),
                             "arguments", args);
    return json_array_append_new(calls, call) == 0 ? NB_OK : nb_map_no_memory(v->a);
}

static nb_status add_result(conv *v, const json_t *item, size_t i)
{
    json_t *id = json_object_get(item, "call_id"), *text = NULL;
    if (!json_is_string(id))
        return nb_ask_bad(v->a, "input", "input.%zu: a function_call_output needs a call_id", i);
    NB_TRY(join(v, json_object_get(item, "output"), "\n", i, &text));
    json_t *m = json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", text);
    const nb_status st = end_turn(v);
    if (st == NB_OK) return put(v, m);
    json_decref(m);
    return st;
}

static nb_status add_item(conv *v, const json_t *item, size_t i)
{
    const json_t *t = json_object_get(item, "type");
    const char *type = json_string_value(t);
    if (!json_is_object(item) || (t && !json_is_null(t) && !type))
        return nb_ask_bad(v->a, "input", "input.%zu: expected an object with a type", i);
    if (!type || strcmp(type, "message") == 0) return add_message(v, item, i);
    if (strcmp(type, "reasoning") == 0) return add_reasoning(v, item, i);
    if (strcmp(type, "function_call") == 0) return add_call(v, item, i);
    if (strcmp(type, "function_call_output") == 0) return add_result(v, item, i);
    return nb_ask_bad(v->a, "input", "input.%zu: items of type \"%.40s\" are not supported%s", i,
                      type,
                      strcmp(type, "item_reference") == 0 ? ": nothing is stored" : "");
}

/* ---- tools ---- */

static nb_status add_function(nb_ask *a, const json_t *space, const json_t *t, size_t i,
                              json_t *list)
{
    json_t *name = json_object_get(t, "name"), *params = json_object_get(t, "parameters");
    const char *s = json_string_value(name);
    if (!s || !*s || strlen(s) != json_string_length(name))
        return nb_ask_bad(a, "tools", "tools.%zu: a function needs a name", i);
    if (params && !json_is_null(params) && !json_is_object(params))
        return nb_ask_bad(a, "tools", "tools.%zu.parameters: expected an object", i);
    json_t *flat = flat_name(space, name);
    json_t *tool = flat ? nb_map_tool(flat, json_object_get(t, "description"), params) : NULL;
    if (tool && json_is_true(json_object_get(t, "strict")) &&
        json_object_set_new(json_object_get(tool, "function"), "strict", json_true()) != 0) {
        json_decref(tool);
        tool = NULL;
    }
    json_decref(flat);
    return json_array_append_new(list, tool) == 0 ? NB_OK : nb_map_no_memory(a);
}

static nb_status add_tools(nb_ask *a, json_t *list)
{
    const json_t *tools = nb_ask_get(a, "tools");
    if (tools && !json_is_array(tools)) return nb_ask_bad(a, "tools", "tools: expected an array");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i), *inner = json_object_get(t, "tools");
        if (!json_is_string(json_object_get(t, "type")))
            return nb_ask_bad(a, "tools", "tools.%zu: expected an object with a type", i);
        if (nb_map_is(t, "function")) {
            NB_TRY(add_function(a, NULL, t, i, list));
        } else if (nb_map_is(t, "namespace") && json_is_array(inner)) {
            for (size_t k = 0; k < json_array_size(inner); k++) {
                const json_t *f = json_array_get(inner, k);
                if (nb_map_is(f, "function"))
                    NB_TRY(add_function(a, json_object_get(t, "name"), f, i, list));
                else
                    a->skipped_tools++;
            }
        } else {
            a->skipped_tools++;
        }
    }
    return NB_OK;
}

size_t nb_map_namespace(const char *name)
{
    const char *at = strstr(name, NAMESPACE_END);
    return at ? (size_t)(at - name) : 0;
}

/* ---- the request ---- */

static nb_status add_input(conv *v)
{
    const json_t *input = nb_ask_get(v->a, "input"), *about = nb_ask_get(v->a, "instructions");
    if (about && !json_is_string(about))
        return nb_ask_bad(v->a, "instructions", "instructions: expected a string");
    if (about && json_string_length(about))
        NB_TRY(put(v, json_pack("{s:s, s:O}", "role", "system", "content", about)));
    if (json_is_string(input))
        return put(v, json_pack("{s:s, s:O}", "role", "user", "content", input));
    if (!json_is_array(input) || !json_array_size(input))
        return nb_ask_bad(v->a, "input", "input: expected a string, or an array of items");
    for (size_t i = 0; i < json_array_size(input); i++)
        NB_TRY(add_item(v, json_array_get(input, i), i));
    return end_turn(v);
}

nb_status nb_map_responses(nb_ask *a, json_t **out)
{
    conv v = { .a = a, .messages = json_array() };
    json_t *tools = json_array(), *chat = NULL;
    nb_status st = v.messages && tools ? add_input(&v) : nb_map_no_memory(a);
    if (st == NB_OK) st = add_tools(a, tools);
    if (st == NB_OK) {
        chat = json_pack("{s:O}", "messages", v.messages);
        if (chat && json_array_size(tools) && json_object_set(chat, "tools", tools) != 0) {
            json_decref(chat);
            chat = NULL;
        }
        st = chat ? nb_map_finish(a, chat, out) : nb_map_no_memory(a);
    }
    json_decref(v.turn);
    nb_buf_deinit(&v.thought);
    json_decref(v.messages);
    json_decref(tools);
    return st;
}
