/* chat_style.c - see chat_style.h. */
#include "text/chat_style.h"

#include <stdlib.h>

#include "text/chat.h"
#include "text/jinja_internal.h"

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "chat: out of memory");
}

/* ---- own declarations ---- */

#define JSON_LINES "Each of these lines is the declaration of one function in JSON:\n\n"
#define ARGUMENTS                                                                                  \
    "NAME is the name of a declared function and ARGUMENTS is a JSON object with its parameters. "

// clang-format off
static const nb_chat_tool_text own_text[] = {
    { "deepseek_v3", "## Tools\n\nYou can call functions. " JSON_LINES,
      "\n\nTo call functions, end your answer with\n\n"
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```"
      "<｜tool▁call▁end｜><｜tool▁calls▁end｜>\n\n" ARGUMENTS
      "For more calls repeat what stands from <｜tool▁call▁begin｜> to <｜tool▁call▁end｜>, after a line feed. "
      "The results follow as the tools' output." },
    { "deepseek_v31", "## Tools\n\nYou can call functions. " JSON_LINES,
      "\n\nTo call functions, end your answer with\n\n"
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS"
      "<｜tool▁call▁end｜><｜tool▁calls▁end｜>\n\n" ARGUMENTS
      "For more calls repeat what stands from <｜tool▁call▁begin｜> to <｜tool▁call▁end｜>. "
      "The results follow as the tools' output." },
    { "hermes", "# Tools\n\nYou can call functions. " JSON_LINES "<tools>\n",
      "\n</tools>\n\nTo call a function, write\n\n"
      "<tool_call>\n{\"name\": NAME, \"arguments\": ARGUMENTS}\n</tool_call>\n\n" ARGUMENTS
      "The result follows between <tool_response> and </tool_response>." },
};
// clang-format on
enum { OWN_V3, OWN_V31, OWN_HERMES };

/* ---- probes ---- */

static const char probe_name[] = "nb_probe_tool", probe_id[] = "functions.nb_probe_tool:0",
                  probe_args[] = "{\"nb_key\":\"nb value\"}";

static bool contains(const nb_buf *b, const char *what)
{
    return nb_j_find(nb_buf_view(b), nb_str_c(what), 0) != SIZE_MAX;
}

/* Renders a request (consumed) as it is; false where that fails. */
static bool probe(const nb_jinja *t, const json_t *special, json_t *request, nb_buf *out)
{
    static const nb_jinja_limits small = { .max_steps = 1000000, .max_output_bytes = 1 << 20,
                                           .max_value_bytes = 16 << 20 };
    const nb_chat_input in = { .request = request,
                               .special_tokens = special,
                               .limits = &small,
                               .args = NB_CHAT_ARGS_GIVEN };
    out->n_bytes = 0;
    const bool ok = request && nb_chat_render(t, &in, out, NULL) == NB_OK;
    json_decref(request);
    return ok;
}

static json_t *probe_tools(bool with_system)
{
    const char *first = with_system ? "system" : "user";
    return json_pack("{s:[{s:s,s:s},{s:s,s:s}], s:[{s:s,s:{s:s,s:s,s:{s:s,s:{}}}}]}", "messages",
                     "role", first, "content", "nb-one", "role", "user", "content", "nb-two",
                     "tools", "type", "function", "function", "name", probe_name, "description",
                     "nb-about", "parameters", "type", "object", "properties");
}

static json_t *probe_calls(json_t *content, json_t *args)
{
    return json_pack("{s:[{s:s,s:s},{s:s,s:o,s:[{s:s,s:s,s:{s:s,s:o}}]},{s:s,s:s,s:s,s:s}]}",
                     "messages", "role", "user", "content", "nb-one", "role", "assistant",
                     "content", content, "tool_calls", "id", probe_id, "type", "function",
                     "function", "name", probe_name, "arguments", args, "role", "tool",
                     "tool_call_id", probe_id, "name", probe_name, "content", "nb-result");
}

static void find_calls(const nb_jinja *t, const json_t *special, nb_chat_style *s, nb_buf *b)
{
    for (int text = 0; text < 2 && !s->calls; text++) {
        json_t *const content[2] = { json_null(), json_string("") };
        if (probe(t, special, probe_calls(content[text], json_string(probe_args)), b) &&
            contains(b, probe_name)) {
            s->calls = true;
            if (contains(b, probe_args)) s->arguments = NB_CHAT_FORM_STRING;
        }
        if (s->arguments == NB_CHAT_FORM_UNKNOWN) {
            json_t *const again = text ? json_string("") : json_null();
            json_t *args = json_pack("{s:s}", "nb_key", "nb value");
            if (probe(t, special, probe_calls(again, args), b) && contains(b, probe_name)) {
                s->calls = true;
                s->arguments = NB_CHAT_FORM_OBJECT;
            }
        }
        s->null_content = s->calls && !text;
        if (!text) json_decref(content[1]);
    }
    if (!s->calls) return;
    s->kimi_ids = contains(b, "<|tool_call_begin|>");
    if (contains(b, "function<｜tool▁sep｜>"))
        s->own = &own_text[OWN_V3];
    else if (contains(b, "<｜tool▁sep｜>"))
        s->own = &own_text[OWN_V31];
}

void nb_chat_style_find(const nb_jinja *t, const json_t *special_tokens, nb_chat_style *out)
{
    nb_chat_style s = { 0 };
    nb_buf b = { 0 };
    for (int system = 0; system < 2 && !s.tools; system++)
        s.tools =
            probe(t, special_tokens, probe_tools(system != 0), &b) && contains(&b, probe_name);
    find_calls(t, special_tokens, &s, &b);
    if (!s.calls && !s.tools) s.own = &own_text[OWN_HERMES];
    if (s.tools) s.own = NULL;
    json_t *late = json_pack("{s:[{s:s,s:s},{s:s,s:s},{s:s,s:s}]}", "messages", "role", "system",
                             "content", "nb-one", "role", "user", "content", "nb-two", "role",
                             "system", "content", "nb-three");
    s.system_anywhere = probe(t, special_tokens, late, &b) && contains(&b, "nb-one") &&
                        contains(&b, "nb-three");
    s.developer = nb_jinja_mentions(t, nb_str_c("developer"));
    nb_buf_deinit(&b);
    *out = s;
}

void nb_chat_style_family(nb_chat_style *s, const char *family)
{
    if (s->tools) return;
    for (size_t i = 0; i < NB_COUNT(own_text); i++)
        if (strcmp(own_text[i].family, family) == 0) s->own = &own_text[i];
}

/* ---- arguments ---- */

/* An object's JSON as Python writes it. */
json_t *nb_chat_print(const json_t *value)
{
    nb_jinja *t = NULL;
    nb_buf b = { 0 };
    json_t *vars = json_object(), *s = NULL;
    if (vars && json_object_set_new(vars, "x", json_deep_copy(value)) == 0 &&
        nb_jinja_parse(nb_str_c("{{ x | tojson }}"), &t, NULL) == NB_OK &&
        nb_jinja_render(t, vars, NULL, &b, NULL) == NB_OK)
        s = json_stringn_nocheck(b.p, b.n_bytes);
    nb_jinja_destroy(t);
    nb_buf_deinit(&b);
    json_decref(vars);
    return s;
}

json_t *nb_chat_arguments(nb_chat_form to, const json_t *args)
{
    if (!args || json_is_null(args)) /* a call without any */
        return to == NB_CHAT_FORM_OBJECT ? json_object() : json_string("{}");
    if (to == NB_CHAT_FORM_STRING && !json_is_string(args)) return nb_chat_print(args);
    if (!json_is_string(args)) return NULL;
    const nb_str text = { json_string_value(args), json_string_length(args) };
    const bool empty = !nb_j_lstrip(text, NULL).n_bytes;
    if (to == NB_CHAT_FORM_STRING) return empty ? json_string("{}") : NULL;
    if (empty) return json_object();
    json_t *j = json_loadb(text.p, text.n_bytes, JSON_ALLOW_NUL, NULL);
    if (json_is_object(j)) return j;
    json_decref(j);
    return json_pack("{s:O}", "_raw", args); /* what is no object, the same each time */
}

/* ---- messages ---- */

static bool has_role(const json_t *m, const char *role)
{
    const char *r = json_string_value(json_object_get(m, "role"));
    return r && strcmp(r, role) == 0;
}

static json_t *function_of(json_t *call)
{
    json_t *f = json_object_get(call, "function");
    return json_is_object(f) ? f : call;
}

static const char *text_member(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* Joins text to the content of a message, before it or after it; parts stay parts. */
static nb_status join_content(json_t *m, const char *text, const char *between, bool before,
                              nb_error *err)
{
    json_t *content = json_object_get(m, "content");
    nb_buf b = { 0 };
    if (json_is_array(content) && json_array_size(content)) {
        json_t *part = json_pack("{s:s, s:s}", "type", "text", "text", text);
        const int rc = before ? json_array_insert_new(content, 0, part)
                              : json_array_append_new(content, part);
        return rc == 0 ? NB_OK : no_memory(err);
    }
    const nb_str old = { json_is_string(content) ? json_string_value(content) : "",
                         json_string_length(content) };
    nb_status st = before ? nb_buf_add_c(&b, text) : nb_buf_add_str(&b, old);
    if (st == NB_OK && old.n_bytes) st = nb_buf_add_c(&b, between);
    if (st == NB_OK) st = before ? nb_buf_add_str(&b, old) : nb_buf_add_c(&b, text);
    json_t *now = st == NB_OK ? json_stringn_nocheck(b.p ? b.p : "", b.n_bytes) : NULL;
    nb_buf_deinit(&b);
    return json_object_set_new(m, "content", now) == 0 ? NB_OK : no_memory(err);
}

/* The first message, if it is the system's; else a new one in front. */
static json_t *first_system(json_t *messages)
{
    json_t *m = json_array_get(messages, 0);
    if (m && has_role(m, "system")) return m;
    m = json_pack("{s:s, s:s}", "role", "system", "content", "");
    return json_array_insert_new(messages, 0, m) == 0 ? m : NULL;
}

static nb_status copy_text(json_t *m, const char *from, const char *to, nb_error *err)
{
    json_t *v = json_object_get(m, from);
    if (!json_is_string(v) || json_is_string(json_object_get(m, to))) return NB_OK;
    return json_object_set(m, to, v) == 0 ? NB_OK : no_memory(err);
}

static nb_status fix_call(const nb_chat_style *s, json_t *call, nb_error *err)
{
    json_t *f = function_of(call);
    if (!json_is_string(json_object_get(call, "type")) && f != call &&
        json_object_set_new(call, "type", json_string("function")) != 0)
        return no_memory(err);
    const json_t *args = json_object_get(f, "arguments");
    const nb_chat_form to = s->calls ? s->arguments : NB_CHAT_FORM_OBJECT;
    json_t *now = to == NB_CHAT_FORM_UNKNOWN ? NULL : nb_chat_arguments(to, args);
    if (!now) return args ? NB_OK : no_memory(err);
    return json_object_set_new(f, "arguments", now) == 0 ? NB_OK : no_memory(err);
}

static nb_status fix_message(const nb_chat_style *s, json_t *m, size_t i, nb_error *err)
{
    json_t *calls = json_object_get(m, "tool_calls");
    const json_t *content = json_object_get(m, "content");
    if (!s->developer && has_role(m, "developer") &&
        json_object_set_new(m, "role", json_string("system")) != 0)
        return no_memory(err);
    if (calls && !json_array_size(calls)) {
        (void)json_object_del(m, "tool_calls");
        calls = NULL;
    }
    if (json_is_null(json_object_get(m, "reasoning"))) (void)json_object_del(m, "reasoning");
    if (json_is_null(json_object_get(m, "reasoning_content")))
        (void)json_object_del(m, "reasoning_content");
    NB_TRY(copy_text(m, "reasoning", "reasoning_content", err));
    NB_TRY(copy_text(m, "reasoning_content", "reasoning", err));
    for (size_t k = 0; k < json_array_size(calls); k++) {
        if (!text_member(function_of(json_array_get(calls, k)), "name"))
            return nb_fail(err, NB_ERR_ARG,
                           "messages[%zu].tool_calls[%zu]: expected a function with a name", i, k);
        NB_TRY(fix_call(s, json_array_get(calls, k), err));
    }
    const bool empty = !content || json_is_null(content) ||
                       (json_is_string(content) && !json_string_length(content));
    if (!empty) return NB_OK;
    if (!json_is_string(content) && !has_role(m, "assistant") && !has_role(m, "tool"))
        return nb_fail(err, NB_ERR_ARG, "messages[%zu].content must be a string or an array of parts",
                       i);
    json_t *none = calls && s->null_content ? json_null() : json_string("");
    return json_object_set_new(m, "content", none) == 0 ? NB_OK : no_memory(err);
}

/* ---- calls and their results ---- */

/* "functions.NAME:IDX" with digits. */
static bool is_kimi_id(const char *id)
{
    const char *colon = id && strncmp(id, "functions.", 10) == 0 ? strrchr(id, ':') : NULL;
    return colon && colon > id + 10 && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

/* Walks through calls in order and names them; names: id of the request -> {name, id}. */
static nb_status name_call(const nb_chat_style *s, json_t *call, size_t index, json_t *names,
                           nb_error *err)
{
    const json_t *id = json_object_get(call, "id");
    const char *name = text_member(function_of(call), "name");
    json_t *now = NULL;
    if (s->kimi_ids && name && !is_kimi_id(json_string_value(id)))
        now = json_sprintf("functions.%s:%zu", name, index);
    else if (json_is_string(id))
        now = json_incref((json_t *)(uintptr_t)id);
    nb_status st = NB_OK;
    if (now && name && json_is_string(id) &&
        json_object_set_new_nocheck(names, json_string_value(id),
                                    json_pack("{s:s, s:O}", "name", name, "id", now)) != 0)
        st = no_memory(err);
    if (st == NB_OK && now && json_object_set(call, "id", now) != 0) st = no_memory(err);
    json_decref(now);
    return st;
}

static nb_status name_result(json_t *m, const json_t *names, nb_error *err)
{
    const json_t *id = json_object_get(m, "tool_call_id");
    const json_t *known = json_object_get(names, json_is_string(id) ? json_string_value(id) : "");
    if (!known) return NB_OK;
    json_t *name = json_object_get(known, "name");
    if (!json_is_string(json_object_get(m, "name")) && json_object_set(m, "name", name) != 0)
        return no_memory(err);
    return json_object_set(m, "tool_call_id", json_object_get(known, "id")) == 0 ? NB_OK
                                                                               : no_memory(err);
}

static nb_status name_all(const nb_chat_style *s, json_t *messages, nb_error *err)
{
    json_t *names = json_object();
    size_t n_call = 0;
    nb_status st = names ? NB_OK : no_memory(err);
    for (size_t i = 0; st == NB_OK && i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i), *calls = json_object_get(m, "tool_calls");
        for (size_t k = 0; st == NB_OK && k < json_array_size(calls); k++)
            st = name_call(s, json_array_get(calls, k), n_call++, names, err);
        if (st == NB_OK && has_role(m, "tool")) st = name_result(m, names, err);
    }
    json_decref(names);
    return st;
}

/* ---- a template that knows no tools: calls and results as texts ---- */

static nb_status add_json_text(nb_buf *b, const json_t *s)
{
    return nb_buf_add(b, json_string_value(s), json_string_length(s));
}

/* The texts of a content: a string, or parts. */
static nb_status add_content(nb_buf *b, const json_t *content)
{
    if (json_is_string(content)) return add_json_text(b, content);
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *text = json_object_get(json_array_get(content, k), "text");
        if (k) NB_TRY(nb_buf_add_ch(b, '\n'));
        if (json_is_string(text)) NB_TRY(add_json_text(b, text));
    }
    return NB_OK;
}

static nb_status add_call(nb_buf *b, json_t *call)
{
    const json_t *f = function_of(call);
    json_t *pair = json_pack("{s:O, s:O}", "name", json_object_get(f, "name"), "arguments",
                             json_object_get(f, "arguments"));
    json_t *text = pair ? nb_chat_print(pair) : NULL;
    nb_status st = text ? nb_buf_add_c(b, "<tool_call>\n") : NB_ERR_LIMIT;
    if (st == NB_OK) st = add_json_text(b, text);
    if (st == NB_OK) st = nb_buf_add_c(b, "\n</tool_call>");
    json_decref(pair);
    json_decref(text);
    return st;
}

static nb_status cannot_print(nb_status st, nb_error *err)
{
    if (st != NB_ERR_LIMIT) return no_memory(err);
    return nb_fail(err, st, "tools: a declaration or a call is nested too deeply");
}

static nb_status calls_text(json_t *m, nb_error *err)
{
    json_t *calls = json_object_get(m, "tool_calls");
    nb_buf b = { 0 };
    nb_status st = NB_OK;
    for (size_t k = 0; st == NB_OK && k < json_array_size(calls); k++) {
        if (k) st = nb_buf_add_ch(&b, '\n');
        if (st == NB_OK) st = add_call(&b, json_array_get(calls, k));
    }
    st = st == NB_OK && b.p ? join_content(m, b.p, "\n", false, err) : cannot_print(st, err);
    if (st == NB_OK) (void)json_object_del(m, "tool_calls");
    nb_buf_deinit(&b);
    return st;
}

/* The turn that a run of results becomes. */
static nb_status end_results(nb_buf *b, json_t *out)
{
    if (!b->n_bytes) return NB_OK;
    json_t *text = json_stringn_nocheck(b->p, b->n_bytes);
    b->n_bytes = 0;
    return json_array_append_new(out, json_pack("{s:s, s:o}", "role", "user", "content", text)) == 0
               ? NB_OK
               : NB_ERR_NOMEM;
}

static nb_status add_result(nb_buf *b, const json_t *m)
{
    NB_TRY(nb_buf_add_c(b, b->n_bytes ? "\n<tool_response>\n" : "<tool_response>\n"));
    NB_TRY(add_content(b, json_object_get(m, "content")));
    return nb_buf_add_c(b, "\n</tool_response>");
}

/* messages gets the items of `now` (consumed). */
static nb_status replace_all(json_t *messages, json_t *now, nb_status st, nb_error *err)
{
    if (st == NB_OK && (json_array_clear(messages) != 0 || json_array_extend(messages, now) != 0))
        st = NB_ERR_NOMEM;
    json_decref(now);
    return st == NB_ERR_NOMEM ? no_memory(err) : st;
}

static nb_status calls_as_text(json_t *messages, nb_error *err)
{
    json_t *now = json_array();
    nb_buf results = { 0 };
    nb_status st = now ? NB_OK : NB_ERR_NOMEM;
    for (size_t i = 0; st == NB_OK && i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        if (has_role(m, "tool")) {
            st = add_result(&results, m);
            continue;
        }
        if (json_object_get(m, "tool_calls")) st = calls_text(m, err);
        if (st == NB_OK) st = end_results(&results, now);
        if (st == NB_OK && json_array_append(now, m) != 0) st = NB_ERR_NOMEM;
    }
    if (st == NB_OK) st = end_results(&results, now);
    nb_buf_deinit(&results);
    return replace_all(messages, now, st, err);
}

/* ---- the system's messages ---- */

/* Those behind the first message join it. */
static nb_status gather_system(json_t *messages, nb_error *err)
{
    json_t *now = json_array();
    nb_buf late = { 0 };
    nb_status st = now ? NB_OK : NB_ERR_NOMEM;
    for (size_t i = 0; st == NB_OK && i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        if (i && has_role(m, "system")) {
            if (late.n_bytes) st = nb_buf_add_c(&late, "\n\n");
            if (st == NB_OK) st = add_content(&late, json_object_get(m, "content"));
        } else if (json_array_append(now, m) != 0) {
            st = NB_ERR_NOMEM;
        }
    }
    json_t *first = st == NB_OK && late.n_bytes ? first_system(now) : NULL;
    if (st == NB_OK && late.n_bytes)
        st = first ? join_content(first, late.p, "\n\n", false, err) : NB_ERR_NOMEM;
    nb_buf_deinit(&late);
    return replace_all(messages, now, st, err);
}

static nb_status add_own_text(const nb_chat_tool_text *own, json_t *messages, const json_t *tools,
                              nb_error *err)
{
    nb_buf b = { 0 };
    nb_status st = nb_buf_add_c(&b, own->before);
    for (size_t i = 0; st == NB_OK && i < json_array_size(tools); i++) {
        json_t *line = nb_chat_print(function_of(json_array_get(tools, i)));
        if (i) st = nb_buf_add_ch(&b, '\n');
        if (st == NB_OK) st = line ? nb_buf_add_c(&b, json_string_value(line)) : NB_ERR_LIMIT;
        json_decref(line);
    }
    if (st == NB_OK) st = nb_buf_add_c(&b, own->after);
    json_t *first = st == NB_OK ? first_system(messages) : NULL;
    st = first ? join_content(first, b.p, "\n\n", true, err) : cannot_print(st, err);
    nb_buf_deinit(&b);
    return st;
}

/* Templates count on a tool's parameters. */
static nb_status fix_tools(json_t *tools, nb_error *err)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *f = json_object_get(json_array_get(tools, i), "function");
        const json_t *p = json_object_get(f, "parameters");
        if (!f || (p && !json_is_null(p))) continue;
        json_t *none = json_pack("{s:s, s:{}}", "type", "object", "properties");
        if (json_object_set_new(f, "parameters", none) != 0) return no_memory(err);
    }
    return NB_OK;
}

nb_status nb_chat_style_apply(const nb_chat_style *s, json_t *messages, json_t *tools,
                              nb_error *err)
{
    NB_TRY(fix_tools(tools, err));
    for (size_t i = 0; i < json_array_size(messages); i++)
        NB_TRY(fix_message(s, json_array_get(messages, i), i, err));
    NB_TRY(name_all(s, messages, err));
    if (!s->system_anywhere) NB_TRY(gather_system(messages, err));
    if (!s->calls && s->own) NB_TRY(calls_as_text(messages, err));
    if (s->own && json_array_size(tools)) NB_TRY(add_own_text(s->own, messages, tools, err));
    return NB_OK;
}
