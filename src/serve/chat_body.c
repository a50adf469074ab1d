/* chat_body.c - see chat_body.h. */
#include "serve/chat_body.h"

#include <string.h>

/* The texts of the parts joined by newlines; NULL where one is no text, or without memory. */
static json_t *join(const json_t *parts)
{
    nb_buf b = { 0 };
    nb_status st = NB_OK;
    for (size_t i = 0; st == NB_OK && i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_string(text) || !type || !strstr(type, "text"))
            st = NB_ERR_ARG;
        else if (i)
            st = nb_buf_add_ch(&b, '\n');
        if (st == NB_OK) st = nb_buf_add(&b, json_string_value(text), json_string_length(text));
    }
    json_t *s = st == NB_OK ? json_stringn(b.p ? b.p : "", b.n_bytes) : NULL;
    nb_buf_deinit(&b);
    return s;
}

static bool set_content(nb_content_format f, json_t *message)
{
    json_t *c = json_object_get(message, "content"), *now = NULL;
    if (f == NB_CONTENT_STRING && json_is_array(c)) {
        now = join(c);
        return !now || json_object_set_new(message, "content", now) == 0;
    }
    if (f != NB_CONTENT_PARTS || !json_is_string(c)) return true;
    now = json_pack("[{s:s, s:O}]", "type", "text", "text", c);
    return json_object_set_new(message, "content", now) == 0;
}

/* thinking (DeepSeek, Kimi) and enable_thinking (GLM, Qwen) are one switch: where only one is given, or
 * the request's own fields say it, both are set. */
static bool set_switches(json_t *kwargs, nb_thinking want)
{
    static const char *const names[2] = { "thinking", "enable_thinking" };
    const json_t *given = json_object_get(kwargs, names[0]);
    if (!json_is_boolean(given)) given = json_object_get(kwargs, names[1]);
    bool on = want == NB_THINKING_ON;
    if (want == NB_THINKING_DEFAULT) {
        if (!json_is_boolean(given)) return true;
        on = json_is_true(given);
    }
    for (size_t i = 0; i < 2; i++)
        if (want != NB_THINKING_DEFAULT || !json_object_get(kwargs, names[i]))
            if (json_object_set_new(kwargs, names[i], json_boolean(on)) != 0) return false;
    return true;
}

static bool has_switch(const json_t *kwargs)
{
    return json_is_boolean(json_object_get(kwargs, "thinking")) ||
           json_is_boolean(json_object_get(kwargs, "enable_thinking"));
}

/* The request's own members count more than its other fields, these more than the server's. */
static bool set_kwargs(json_t *chat, const json_t *dflt, nb_thinking want)
{
    json_t *own = json_object_get(chat, "chat_template_kwargs");
    if (own && !json_is_object(own) && !json_is_null(own)) return true; /* refused later */
    json_t *all = dflt ? json_copy((json_t *)(uintptr_t)dflt) : json_object();
    bool ok = all != NULL;
    const bool mine = has_switch(own);
    if (ok && mine) {
        (void)json_object_del(all, "thinking");
        (void)json_object_del(all, "enable_thinking");
    }
    if (ok && json_is_object(own)) ok = json_object_update(all, own) == 0;
    if (ok) ok = set_switches(all, mine ? NB_THINKING_DEFAULT : want);
    if (ok && json_object_size(all)) ok = json_object_set(chat, "chat_template_kwargs", all) == 0;
    json_decref(all);
    return ok;
}

nb_status nb_chat_rules_apply(const nb_chat_rules *r, const nb_ask *a, json_t *chat)
{
    json_t *list = json_object_get(chat, "messages");
    if (!set_kwargs(chat, r->kwargs, a->thinking)) return NB_ERR_NOMEM;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!set_content(r->content, json_array_get(list, i))) return NB_ERR_NOMEM;
    if (r->hide_tools && a->tool_choice == NB_TOOLS_NONE) (void)json_object_del(chat, "tools");
    return NB_OK;
}
