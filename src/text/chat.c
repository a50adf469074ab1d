/* chat.c - see chat.h.  The request is checked, its messages are copied and brought
 * into the form that the template can take, and the template is rendered; for the
 * arguments of tool calls there may be a second rendering (see nb_chat_args).
 *
 * Why the second rendering and not a table of models: templates in use disagree
 * (DeepSeek V3 and R1 concatenate the string; GLM and Qwen3-Coder walk over an
 * object; Kimi and Qwen take both), and what a template does with the other form
 * is an error in all cases seen but two: objects printed as Python's repr, which
 * the interpreter reports, and strings quoted twice by tojson, which only looks at
 * the conversation, so OBJECT tries objects first.
 *
 * continue_final_message follows transformers: the last message gets a mark, and
 * the prompt ends where the mark came out. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>

#include "text/chat_style.h"
#include "text/jinja_internal.h"

static const char continue_mark[] = "CONTINUE_FINAL_MESSAGE_TAG "; /* the blank shows trimming */

typedef enum form { FORM_GIVEN, FORM_OBJECTS, FORM_STRINGS } form;

typedef struct chat {
    const nb_chat_input *in;
    const nb_jinja *tmpl;
    json_t *vars;     /* owned: what the template sees */
    json_t *messages; /* borrowed from vars */
    bool continues;
    nb_error *err;
} chat;

static nb_status bad(const chat *c, size_t i, const char *what)
{
    return nb_fail(c->err, NB_ERR_ARG, "messages[%zu]%s", i, what);
}

static nb_status no_memory(const chat *c)
{
    return nb_fail(c->err, NB_ERR_NOMEM, "chat: out of memory");
}

/* ---- content ---- */

/* Kinds of parts that are text; the others are named in the refusal. */
static bool is_text_part(const char *type)
{
    return strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
           strcmp(type, "output_text") == 0;
}

static nb_status check_part(const chat *c, size_t i, size_t k, const json_t *part)
{
    const json_t *type = json_object_get(part, "type");
    if (!json_is_object(part) || !json_is_string(type))
        return nb_fail(c->err, NB_ERR_ARG,
                       "messages[%zu].content[%zu] must be an object with a \"type\"", i, k);
    const char *name = json_string_value(type);
    const bool thinking = strcmp(name, "thinking") == 0;
    if (!is_text_part(name) && !thinking && strcmp(name, "refusal") != 0)
        return nb_fail(c->err, NB_ERR_UNSUPPORTED,
                       "messages[%zu].content[%zu]: parts of type \"%.40s\" are not supported, "
                       "only text",
                       i, k, name);
    const char *member = is_text_part(name) ? "text" : thinking ? "thinking" : "refusal";
    if (!thinking && !json_is_string(json_object_get(part, member)))
        return nb_fail(c->err, NB_ERR_ARG, "messages[%zu].content[%zu].%s must be a string", i, k,
                       member);
    return NB_OK;
}

/* The texts of the parts, joined by newlines. */
static nb_status join_parts(const chat *c, size_t i, const json_t *parts, json_t **out)
{
    nb_buf b = { 0 };
    nb_status st = NB_OK;
    for (size_t k = 0; k < json_array_size(parts); k++) {
        const json_t *part = json_array_get(parts, k);
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text)) text = json_object_get(part, "refusal");
        if (!json_is_string(text)) {
            st = nb_fail(c->err, NB_ERR_UNSUPPORTED,
                         "messages[%zu].content[%zu]: this template takes content as one text, "
                         "not parts of type \"%.40s\"",
                         i, k, json_string_value(json_object_get(part, "type")));
            break;
        }
        if (k) NB_TRY_OUT(nb_buf_add_ch(&b, '\n'));
        NB_TRY_OUT(nb_buf_add(&b, json_string_value(text), json_string_length(text)));
    }
    if (st == NB_OK) {
        *out = json_stringn_nocheck(b.p ? b.p : "", b.n_bytes);
        if (!*out) st = no_memory(c);
    }
out:
    if (st == NB_ERR_NOMEM) no_memory(c);
    nb_buf_deinit(&b);
    return st;
}

static nb_status check_content(const chat *c, size_t i, const json_t *m)
{
    const json_t *content = json_object_get(m, "content");
    if (!content || json_is_null(content) || json_is_string(content)) return NB_OK;
    if (!json_is_array(content))
        return bad(c, i, ".content must be a string, null or an array of parts");
    for (size_t k = 0; k < json_array_size(content); k++)
        NB_TRY(check_part(c, i, k, json_array_get(content, k)));
    return NB_OK;
}

/* Parts become one text where the template takes no parts. */
static nb_status join_content(const chat *c, size_t i, json_t *m)
{
    json_t *content = json_object_get(m, "content"), *joined = NULL;
    if (!json_is_array(content) || nb_jinja_iterates_content(c->tmpl)) return NB_OK;
    NB_TRY(join_parts(c, i, content, &joined));
    return json_object_set_new(m, "content", joined) == 0 ? NB_OK : no_memory(c);
}

/* ---- tool calls ---- */

static nb_status check_calls(const chat *c, size_t i, const json_t *m)
{
    const json_t *calls = json_object_get(m, "tool_calls");
    if (!calls || json_is_null(calls)) return NB_OK;
    if (!json_is_array(calls)) return bad(c, i, ".tool_calls must be an array");
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const json_t *call = json_array_get(calls, k), *f = json_object_get(call, "function");
        if (!json_is_object(call)) return bad(c, i, ".tool_calls must hold objects");
        if (f && !json_is_null(f) && !json_is_object(f))
            return bad(c, i, ".tool_calls[].function must be an object");
        if (json_is_object(f) && !json_is_string(json_object_get(f, "name")))
            return bad(c, i, ".tool_calls[].function.name must be a string");
    }
    return NB_OK;
}

/* Calls that the template cannot show. */
static nb_status check_calls_shown(const chat *c, size_t i, const json_t *m)
{
    if (!c->in->refuse_unseen || (c->in->style && c->in->style->calls) || !json_array_size(json_object_get(m, "tool_calls")) ||
        nb_jinja_mentions(c->tmpl, nb_str_c("tool_calls")))
        return NB_OK;
    return bad(c, i, ".tool_calls: the chat template does not show tool calls");
}

/* Arguments that are a string of a JSON object become that object; "" is {}. */
static json_t *parse_arguments(const json_t *s)
{
    json_error_t je;
    const nb_str text = { json_string_value(s), json_string_length(s) };
    if (!nb_j_lstrip(text, NULL).n_bytes) return json_object();
    json_t *j = json_loadb(text.p, text.n_bytes, JSON_ALLOW_NUL, &je);
    if (json_is_object(j)) return j;
    json_decref(j);
    return NULL;
}

/* Brings the arguments into one form; *n_changed counts those that were not. */
static nb_status convert_calls(const chat *c, form to, json_t *m, size_t *n_changed)
{
    json_t *calls = json_object_get(m, "tool_calls");
    for (size_t k = 0; k < json_array_size(calls); k++) {
        json_t *f = json_object_get(json_array_get(calls, k), "function"), *now = NULL;
        if (!f || !json_is_object(f)) f = json_array_get(calls, k);
        const json_t *args = json_object_get(f, "arguments");
        if (to == FORM_OBJECTS && json_is_string(args)) now = parse_arguments(args);
        if (to == FORM_STRINGS && json_is_object(args)) now = nb_chat_print(args);
        if (!now) continue;
        ++*n_changed;
        if (json_object_set_new(f, "arguments", now) != 0) return no_memory(c);
    }
    return NB_OK;
}

static nb_status convert_all(const chat *c, form to, size_t *n_changed)
{
    *n_changed = 0;
    for (size_t i = 0; i < json_array_size(c->messages); i++)
        NB_TRY(convert_calls(c, to, json_array_get(c->messages, i), n_changed));
    return NB_OK;
}

/* ---- variables ---- */

static nb_status set(const chat *c, const char *name, json_t *value)
{
    return json_object_set_new(c->vars, name, value) == 0 ? NB_OK : no_memory(c);
}

static nb_status set_copy(const chat *c, const char *name, const json_t *value)
{
    return set(c, name, value ? json_deep_copy(value) : json_null());
}

static const json_t *token_text(const json_t *t)
{
    if (json_is_object(t)) t = json_object_get(t, "content");
    return json_is_string(t) ? t : NULL;
}

static nb_status add_special_tokens(const chat *c)
{
    static const char *const names[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token" };
    const json_t *s = c->in->special_tokens;
    if (!s) return NB_OK;
    if (!json_is_object(s))
        return nb_fail(c->err, NB_ERR_ARG, "chat: the special tokens must be an object");
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        const json_t *t = token_text(json_object_get(s, names[i]));
        if (t) NB_TRY(set_copy(c, names[i], t));
    }
    const json_t *more = json_object_get(s, "additional_special_tokens");
    if (!json_is_array(more)) return NB_OK;
    json_t *list = json_array();
    NB_TRY(set(c, "additional_special_tokens", list));
    for (size_t i = 0; i < json_array_size(more); i++) {
        const json_t *t = token_text(json_array_get(more, i));
        if (t && json_array_append_new(list, json_deep_copy(t)) != 0) return no_memory(c);
    }
    return NB_OK;
}

/* Booleans of the request, or of chat_template_kwargs where callers also put them. */
static nb_status read_flag(const chat *c, const char *name, bool dflt, bool *out)
{
    const json_t *v = json_object_get(c->in->request, name);
    if (!v) v = json_object_get(json_object_get(c->in->request, "chat_template_kwargs"), name);
    *out = dflt;
    if (!v || json_is_null(v)) return NB_OK;
    if (!json_is_boolean(v)) return nb_fail(c->err, NB_ERR_ARG, "%s must be true or false", name);
    *out = json_is_true(v);
    return NB_OK;
}

static nb_status want_type(const chat *c, const char *name, json_type type, const char *what)
{
    const json_t *v = json_object_get(c->in->request, name);
    if (!v || json_is_null(v) || json_typeof(v) == type) return NB_OK;
    return nb_fail(c->err, NB_ERR_ARG, "%s must be %s", name, what);
}

static nb_status add_variables(chat *c)
{
    const json_t *req = c->in->request;
    bool prompt;
    NB_TRY(want_type(c, "tools", JSON_ARRAY, "an array"));
    NB_TRY(want_type(c, "documents", JSON_ARRAY, "an array"));
    NB_TRY(want_type(c, "chat_template_kwargs", JSON_OBJECT, "an object"));
    NB_TRY(read_flag(c, "continue_final_message", false, &c->continues));
    NB_TRY(read_flag(c, "add_generation_prompt", !c->continues, &prompt));
    if (c->continues && prompt)
        return nb_fail(c->err, NB_ERR_ARG,
                       "continue_final_message and add_generation_prompt exclude each other");
    NB_TRY(add_special_tokens(c));
    json_t *kw = json_object_get(req, "chat_template_kwargs");
    const json_t *effort = json_object_get(req, "reasoning_effort");
    if (effort && !json_is_null(effort)) NB_TRY(set_copy(c, "reasoning_effort", effort));
    for (void *it = json_object_iter(kw); it; it = json_object_iter_next(kw, it))
        NB_TRY(set_copy(c, json_object_iter_key(it), json_object_iter_value(it)));
    NB_TRY(set_copy(c, "tools", json_object_get(req, "tools")));
    NB_TRY(set_copy(c, "documents", json_object_get(req, "documents")));
    json_object_del(c->vars, "continue_final_message");
    return set(c, "add_generation_prompt", json_boolean(prompt));
}

/* ---- continue_final_message ---- */

static nb_status append_mark(const chat *c, json_t *holder, const char *member)
{
    const json_t *old = json_object_get(holder, member);
    nb_buf b = { 0 };
    nb_status st = nb_buf_add(&b, json_string_value(old), json_string_length(old));
    if (st == NB_OK) st = nb_buf_add_c(&b, continue_mark);
    json_t *now = st == NB_OK ? json_stringn_nocheck(b.p, b.n_bytes) : NULL;
    nb_buf_deinit(&b);
    return json_object_set_new(holder, member, now) == 0 ? NB_OK : no_memory(c);
}

static nb_status mark_final(const chat *c)
{
    json_t *m = json_array_get(c->messages, json_array_size(c->messages) - 1);
    json_t *content = json_object_get(m, "content");
    if (json_is_string(content)) return append_mark(c, m, "content");
    for (size_t k = json_array_size(content); k > 0; k--) {
        json_t *part = json_array_get(content, k - 1);
        if (json_is_string(json_object_get(part, "text"))) return append_mark(c, part, "text");
    }
    return nb_fail(c->err, NB_ERR_ARG,
                   "continue_final_message: the last message has no text to continue");
}

/* Cuts the prompt at the mark; white space before it goes if the template trims. */
static nb_status cut_at_mark(const chat *c, nb_buf *b)
{
    const nb_str all = nb_buf_view(b), mark = nb_str_c(continue_mark);
    const size_t at = nb_j_rfind(all, (nb_str){ mark.p, mark.n_bytes - 1 }, all.n_bytes);
    if (at == SIZE_MAX)
        return nb_fail(c->err, NB_ERR_FORMAT,
                       "continue_final_message: the template does not show the last message");
    nb_str kept = nb_j_sub(all, 0, at);
    if (!nb_str_eq(nb_j_sub(all, at, at + mark.n_bytes), mark)) kept = nb_j_rstrip(kept, NULL);
    b->n_bytes = kept.n_bytes;
    if (b->p) b->p[b->n_bytes] = 0;
    return NB_OK;
}

/* ---- what a template leaves out ---- */

/* A part of a message that must be in the prompt: its text, or the first text of its parts. */
static nb_str text_of(const json_t *m)
{
    const json_t *content = json_object_get(m, "content");
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *text = json_object_get(json_array_get(content, k), "text");
        if (json_string_length(text))
            return (nb_str){ json_string_value(text), json_string_length(text) };
    }
    return (nb_str){ json_is_string(content) ? json_string_value(content) : "",
                     json_string_length(content) };
}

/* Templates pass over messages of roles that they do not know.  A role that the template mentions is
 * known; of the others the text must have come out. */
static nb_status check_shown(const chat *c, nb_str prompt)
{
    enum { MAX_LOOKS = 8 }; /* each may take as long as the prompt is */
    for (size_t i = 0, n = 0; i < json_array_size(c->messages) && n < MAX_LOOKS; i++) {
        const json_t *m = json_array_get(c->messages, i), *role = json_object_get(m, "role");
        const char *name = json_string_value(role);
        const nb_str text = nb_j_rstrip(nb_j_lstrip(text_of(m), NULL), NULL);
        if (text.n_bytes == 0 || nb_jinja_mentions(c->tmpl, nb_str_c(name))) continue;
        if (c->in->style && json_array_size(json_object_get(m, "tool_calls")))
            continue; /* some templates show the calls alone */
        n++;
        if (nb_j_find(prompt, text, 0) != SIZE_MAX) continue;
        return nb_fail(c->err, NB_ERR_ARG,
                       "messages[%zu].role: the chat template does not show messages of role "
                       "\"%.40s\"%s",
                       i, name, strcmp(name, "developer") == 0 ? "; use \"system\"" : "");
    }
    return NB_OK;
}

/* ---- rendering ---- */

static nb_status render_once(const chat *c, nb_buf *text, bool *printed, nb_error *err)
{
    nb_jinja_stats stats;
    text->n_bytes = 0;
    const nb_status st = nb_jinja_render_stats(c->tmpl, c->vars, c->in->limits, text, &stats, err);
    *printed = stats.printed_container;
    return st;
}

static nb_status render_retry(const chat *c, nb_buf *text)
{
    bool printed;
    size_t n;
    nb_error second;
    nb_status st = render_once(c, text, &printed, c->err);
    if (st != NB_ERR_FORMAT || c->in->args == NB_CHAT_ARGS_GIVEN) return st;
    NB_TRY(convert_all(c, FORM_OBJECTS, &n));
    if (!n) NB_TRY(convert_all(c, FORM_STRINGS, &n));
    if (!n || render_once(c, text, &printed, &second) != NB_OK) return st;
    return NB_OK;
}

/* Objects; as given, or as strings, if that fails or if only then nothing is
 * printed as a repr.  Strings that the client sent come back byte for byte. */
static nb_status render_objects(chat *c, nb_buf *text)
{
    bool printed, printed_again;
    size_t n, n_strings;
    nb_error second;
    nb_buf other = { 0 };
    json_t *given = json_deep_copy(c->messages);
    if (!given) return no_memory(c);
    nb_status st = convert_all(c, FORM_OBJECTS, &n), st2;
    if (st == NB_OK) st = render_once(c, text, &printed, c->err);
    if (st != NB_ERR_FORMAT && !(st == NB_OK && printed)) {
        json_decref(given);
        return st;
    }
    c->messages = given;
    st2 = set(c, "messages", given);
    if (st2 == NB_OK) st2 = convert_all(c, FORM_STRINGS, &n_strings);
    if (st2 == NB_OK && n + n_strings) {
        st2 = render_once(c, &other, &printed_again, &second);
        if (st2 == NB_OK && (st != NB_OK || !printed_again)) {
            nb_buf_deinit(text);
            *text = other;
            return NB_OK;
        }
    }
    nb_buf_deinit(&other);
    return st;
}

static nb_status check_messages(const chat *c)
{
    for (size_t i = 0; i < json_array_size(c->messages); i++) {
        const json_t *m = json_array_get(c->messages, i);
        if (!json_is_object(m)) return bad(c, i, " must be an object");
        if (!json_is_string(json_object_get(m, "role"))) return bad(c, i, ".role must be a string");
        NB_TRY(check_content(c, i, m));
        NB_TRY(check_calls(c, i, m));
    }
    return NB_OK;
}

/* What clients wrote spells no control tokens. */
static nb_status mark_texts(const chat *c)
{
    static const char *const shown[] = { "tools", "documents" };
    nb_status st = nb_chat_mark_messages(c->in->tokenizer, c->messages);
    for (size_t i = 0; st == NB_OK && i < NB_COUNT(shown); i++) {
        json_t *v = json_incref(json_object_get(c->vars, shown[i]));
        st = nb_chat_mark(c->in->tokenizer, &v, false);
        if (st == NB_OK && json_object_set(c->vars, shown[i], v) != 0) st = NB_ERR_NOMEM;
        json_decref(v);
    }
    return st == NB_OK ? NB_OK : no_memory(c);
}

static nb_status prepare(chat *c)
{
    const json_t *msgs = json_object_get(c->in->request, "messages");
    if (!json_is_object(c->in->request))
        return nb_fail(c->err, NB_ERR_ARG, "the chat request must be a JSON object");
    if (!json_is_array(msgs) || !json_array_size(msgs))
        return nb_fail(c->err, NB_ERR_ARG, "messages must be an array with at least one message");
    c->vars = json_object();
    if (!c->vars) return no_memory(c);
    NB_TRY(add_variables(c));
    c->messages = json_deep_copy(msgs);
    NB_TRY(set(c, "messages", c->messages));
    NB_TRY(check_messages(c));
    if (c->in->tokenizer) NB_TRY(mark_texts(c));
    if (c->in->style)
        NB_TRY(nb_chat_style_apply(c->in->style, c->messages, json_object_get(c->vars, "tools"),
                                   c->err));
    for (size_t i = 0; i < json_array_size(c->messages); i++) {
        json_t *m = json_array_get(c->messages, i);
        NB_TRY(join_content(c, i, m));
        NB_TRY(check_calls_shown(c, i, m));
    }
    return c->continues ? mark_final(c) : NB_OK;
}

nb_status nb_chat_render(const nb_jinja *tmpl, const nb_chat_input *in, nb_buf *out, nb_error *err)
{
    chat c = { .in = in, .tmpl = tmpl, .err = err };
    nb_buf text = { 0 };
    nb_status st = prepare(&c);
    if (st == NB_OK) {
        /* a known form is already there */
        const bool open = in->style && in->style->arguments == NB_CHAT_FORM_UNKNOWN;
        st = open || in->args == NB_CHAT_ARGS_OBJECT ? render_objects(&c, &text)
                                                     : render_retry(&c, &text);
    }
    if (st == NB_OK && in->refuse_unseen) st = check_shown(&c, nb_buf_view(&text));
    if (st == NB_OK && c.continues) st = cut_at_mark(&c, &text);
    if (st == NB_OK) {
        st = nb_buf_add_str(out, nb_buf_view(&text));
        if (st != NB_OK) nb_fail(err, st, "chat: the prompt does not fit");
    }
    nb_buf_deinit(&text);
    json_decref(c.vars);
    return st;
}

nb_status nb_chat_template_text(const json_t *config, const char *name, nb_str *out, nb_error *err)
{
    const json_t *t = json_object_get(config, "chat_template");
    if (!name) name = "default";
    if (json_is_array(t)) {
        const json_t *found = NULL;
        for (size_t i = 0; i < json_array_size(t) && !found; i++) {
            const json_t *e = json_array_get(t, i), *n = json_object_get(e, "name");
            if (json_is_string(n) && strcmp(json_string_value(n), name) == 0)
                found = json_object_get(e, "template");
        }
        t = found;
    }
    if (!t || json_is_null(t))
        return nb_fail(
            err, NB_ERR_NOT_FOUND, "no chat_template%s%s in the tokenizer's configuration",
            strcmp(name, "default") ? " named " : "", strcmp(name, "default") ? name : "");
    if (!json_is_string(t))
        return nb_fail(err, NB_ERR_FORMAT, "chat_template must be a string or a list of templates");
    *out = (nb_str){ json_string_value(t), json_string_length(t) };
    return NB_OK;
}
