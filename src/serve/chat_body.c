/* chat_body.c - see chat_body.h. */
#include "serve/chat_body.h"

#include <string.h>

bool nb_chat_rules_any(const nb_chat_rules *r)
{
    return r->kwargs || r->content != NB_CONTENT_AUTO || r->hide_tools;
}

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

/* The request's own members count more. */
static bool add_kwargs(json_t *doc, json_t *dflt)
{
    json_t *own = json_object_get(doc, "chat_template_kwargs"), *all;
    if (own && !json_is_object(own) && !json_is_null(own)) return true;
    all = json_copy(dflt);
    if (!all || (json_is_object(own) && json_object_update(all, own) != 0)) {
        json_decref(all);
        return false;
    }
    return json_object_set_new(doc, "chat_template_kwargs", all) == 0;
}

char *nb_chat_body(const nb_chat_rules *r, nb_str body)
{
    json_t *doc = json_loadb(body.p, body.n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const json_t *list = json_object_get(doc, "messages");
    const char *choice = json_string_value(json_object_get(doc, "tool_choice"));
    bool ok = json_is_object(doc);
    if (ok && r->kwargs) ok = add_kwargs(doc, r->kwargs);
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = set_content(r->content, json_array_get(list, i));
    if (ok && r->hide_tools && choice && strcmp(choice, "none") == 0)
        (void)json_object_del(doc, "tools");
    char *text = ok ? json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(doc);
    return text;
}
