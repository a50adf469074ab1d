/* ask_chat.c - fields of chats about tools and thinking; see parse_request.h. */
#include <string.h>

#include "serve/parse_request.h"

enum { NAME_BYTES_MAX = 256, WORD_BYTES_MAX = 32 };

/* A member that is a string without zero bytes, as memory of a; *out stays as it is where there is
 * none.  name: of the field, for refusals. */
static nb_status member_string(nb_ask *a, const char *name, const json_t *o, const char *member,
                               size_t max_bytes, const char **out)
{
    const json_t *v = json_object_get(o, member);
    if (!v || json_is_null(v)) return NB_OK;
    const size_t n = json_string_length(v);
    if (!json_is_string(v) || n == 0 || n > max_bytes || strlen(json_string_value(v)) != n)
        return nb_ask_bad(a, name, "%s: %s: expected a string of 1..%zu bytes", name, member,
                          max_bytes);
    char *p = nb_ask_alloc(a, n + 1, 1);
    if (!p) return NB_ERR_NOMEM;
    memcpy(p, json_string_value(v), n);
    *out = p;
    return NB_OK;
}

static nb_status forced_calls(nb_ask *a)
{
    a->tool_choice = a->tool_name ? NB_TOOLS_NAMED : NB_TOOLS_REQUIRED;
    return NB_OK; /* structured.c makes a grammar of them */
}

/* ---- OpenAI ---- */

static nb_status check_tool(nb_ask *a, const json_t *t, size_t i)
{
    const json_t *f = json_object_get(t, "function"), *name = json_object_get(f, "name");
    const json_t *p = json_object_get(f, "parameters");
    const size_t n = json_string_length(name);
    if (!json_is_object(t)) return nb_ask_bad(a, "tools", "tools: item %zu is not an object", i);
    if (!json_is_object(f))
        return nb_ask_bad(a, "tools", "tools: item %zu: expected type \"function\" and a function",
                          i);
    if (!json_is_string(name) || n == 0 || n > NAME_BYTES_MAX ||
        strlen(json_string_value(name)) != n)
        return nb_ask_bad(a, "tools", "tools: item %zu: function.name: expected 1..%d bytes", i,
                          NAME_BYTES_MAX);
    if (p && !json_is_null(p) && !json_is_object(p))
        return nb_ask_bad(a, "tools", "tools: item %zu: function.parameters: expected an object",
                          i);
    return NB_OK;
}

static bool has_tool(const nb_ask *a, const char *name)
{
    const json_t *tools = nb_ask_get(a, "tools");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        if (strcmp(json_string_value(json_object_get(f, "name")), name) == 0) return true;
    }
    return false;
}

static nb_status read_choice(nb_ask *a)
{
    const json_t *choice = nb_ask_get(a, "tool_choice");
    const char *s = json_string_value(choice);
    if (!choice || (s && strcmp(s, "auto") == 0)) return NB_OK;
    if (s && strcmp(s, "none") == 0) {
        a->tool_choice = NB_TOOLS_NONE;
        return NB_OK;
    }
    if (s && strcmp(s, "required") == 0) {
        if (!json_array_size(nb_ask_get(a, "tools")))
            return nb_ask_bad(a, "tool_choice", "tool_choice: required, but there are no tools");
        return forced_calls(a);
    }
    if (!json_is_object(choice))
        return nb_ask_bad(a, "tool_choice",
                          "tool_choice: expected auto, none, required or a function");
    const json_t *f = json_object_get(choice, "function");
    NB_TRY(member_string(a, "tool_choice", f, "name", NAME_BYTES_MAX, &a->tool_name));
    if (!a->tool_name)
        return nb_ask_bad(a, "tool_choice", "tool_choice: expected a function with a name");
    if (!has_tool(a, a->tool_name))
        return nb_ask_bad(a, "tool_choice", "tool_choice: no tool has the name \"%.100s\"",
                          a->tool_name);
    return forced_calls(a);
}

static nb_status read_effort(nb_ask *a, const char *name, const json_t *o, const char *member)
{
    NB_TRY(member_string(a, name, o, member, WORD_BYTES_MAX, &a->effort));
    if (a->effort) a->thinking = strcmp(a->effort, "none") == 0 ? NB_THINKING_OFF : NB_THINKING_ON;
    return NB_OK;
}

nb_status nb_ask_read_chat(nb_ask *a)
{
    const json_t *tools = nb_ask_get(a, "tools");
    bool parallel = true, shown = true;
    int64_t budget = 0;
    if (tools && !json_is_array(tools)) return nb_ask_bad(a, "tools", "tools: expected an array");
    for (size_t i = 0; i < json_array_size(tools); i++)
        NB_TRY(check_tool(a, json_array_get(tools, i), i));
    NB_TRY(read_choice(a));
    NB_TRY(nb_ask_bool(a, "parallel_tool_calls", &parallel));
    NB_TRY(nb_ask_bool(a, "include_reasoning", &shown));
    a->one_call = !parallel;
    a->hide_reasoning = !shown;
    NB_TRY(read_effort(a, "reasoning_effort", a->doc, "reasoning_effort"));
    NB_TRY(nb_ask_int(a, "thinking_token_budget", 0, INT32_MAX, &budget, &a->has_thinking_budget));
    a->thinking_budget = (size_t)budget;
    return NB_OK;
}

/* ---- responses ---- */

/* text: {"format": {"type": ...}}. */
static nb_status read_text(nb_ask *a)
{
    const json_t *t = nb_ask_get(a, "text"), *f = json_object_get(t, "format");
    const char *type = json_string_value(json_object_get(f, "type"));
    if (t && !json_is_object(t)) return nb_ask_bad(a, "text", "text: expected an object");
    if (!f || json_is_null(f) || (type && strcmp(type, "text") == 0)) return NB_OK;
    if (!type) return nb_ask_bad(a, "text", "text.format: expected an object with a type");
    return NB_OK; /* structured.c reads it */
}

static nb_status read_choice_responses(nb_ask *a)
{
    const json_t *c = nb_ask_get(a, "tool_choice");
    const char *s = json_string_value(c);
    if (!c || (s && strcmp(s, "auto") == 0)) return NB_OK;
    if (s && strcmp(s, "none") == 0) {
        a->tool_choice = NB_TOOLS_NONE;
        return NB_OK;
    }
    if (s && strcmp(s, "required") == 0) return forced_calls(a);
    if (json_is_object(c)) return forced_calls(a);
    return nb_ask_bad(a, "tool_choice", "tool_choice: expected auto, none, required or a function");
}

nb_status nb_ask_read_responses(nb_ask *a)
{
    const json_t *r = nb_ask_get(a, "reasoning");
    bool parallel = true;
    if (r && !json_is_object(r)) return nb_ask_bad(a, "reasoning", "reasoning: expected an object");
    NB_TRY(read_effort(a, "reasoning", r, "effort"));
    NB_TRY(nb_ask_bool(a, "parallel_tool_calls", &parallel));
    a->one_call = !parallel;
    NB_TRY(read_text(a));
    return read_choice_responses(a);
}

/* ---- Anthropic ---- */

static nb_status read_choice_messages(nb_ask *a)
{
    const json_t *c = nb_ask_get(a, "tool_choice");
    const json_t *alone = json_object_get(c, "disable_parallel_tool_use");
    const char *type = json_string_value(json_object_get(c, "type"));
    if (!c) return NB_OK;
    if (!type) return nb_ask_bad(a, "tool_choice", "tool_choice: expected an object with a type");
    if (alone && !json_is_null(alone) && !json_is_boolean(alone))
        return nb_ask_bad(a, "tool_choice",
                          "tool_choice.disable_parallel_tool_use: expected true or false");
    a->one_call = json_is_true(alone);
    if (strcmp(type, "auto") == 0) return NB_OK;
    if (strcmp(type, "none") == 0) {
        a->tool_choice = NB_TOOLS_NONE;
        return NB_OK;
    }
    if (strcmp(type, "any") == 0 || strcmp(type, "tool") == 0) return forced_calls(a);
    return nb_ask_bad(a, "tool_choice", "tool_choice: expected type auto, any, tool or none");
}

/* thinking: {"type": enabled | disabled | adaptive, "budget_tokens": n}. */
static nb_status read_thinking(nb_ask *a)
{
    const json_t *t = nb_ask_get(a, "thinking"), *n = json_object_get(t, "budget_tokens");
    const char *type = json_string_value(json_object_get(t, "type"));
    if (!t) return NB_OK;
    if (!type) return nb_ask_bad(a, "thinking", "thinking: expected an object with a type");
    if (strcmp(type, "enabled") == 0)
        a->thinking = NB_THINKING_ON;
    else if (strcmp(type, "disabled") == 0)
        a->thinking = NB_THINKING_OFF;
    else if (strcmp(type, "adaptive") != 0)
        return nb_ask_bad(a, "thinking", "thinking: expected type enabled, disabled or adaptive");
    if (!n || json_is_null(n)) return NB_OK;
    if (!json_is_integer(n) || json_integer_value(n) < 0 || json_integer_value(n) > INT32_MAX)
        return nb_ask_bad(a, "thinking", "thinking.budget_tokens: expected 0..%d", INT32_MAX);
    a->has_thinking_budget = true;
    a->thinking_budget = (size_t)json_integer_value(n);
    return NB_OK;
}

/* output_config: {"effort": ..., "format": ...}. */
static nb_status read_output(nb_ask *a)
{
    const json_t *c = nb_ask_get(a, "output_config");
    if (c && !json_is_object(c))
        return nb_ask_bad(a, "output_config", "output_config: expected an object");
    return read_effort(a, "output_config", c, "effort");
}

nb_status nb_ask_read_messages(nb_ask *a)
{
    NB_TRY(read_output(a));
    NB_TRY(read_thinking(a)); /* counts more than the effort */
    return read_choice_messages(a);
}
