/* chat_map.c - the mapping of OpenAI's chats, and what the mappings share; see chat_map.h. */
#include "serve/chat_map.h"

#include <string.h>

nb_status nb_map_no_memory(nb_ask *a)
{
    a->param = NULL;
    return nb_fail(&a->err, NB_ERR_NOMEM, "out of memory");
}

bool nb_map_is(const json_t *block, const char *type)
{
    const char *t = json_string_value(json_object_get(block, "type"));
    return t && strcmp(t, type) == 0;
}

json_t *nb_map_tool(json_t *name, json_t *description, json_t *parameters)
{
    json_t *f = json_pack("{s:O}", "name", name);
    json_t *t = json_pack("{s:s, s:O}", "type", "function", "function", f);
    bool ok = t != NULL;
    if (ok && json_is_string(description))
        ok = json_object_set(f, "description", description) == 0;
    if (ok && json_is_object(parameters)) ok = json_object_set(f, "parameters", parameters) == 0;
    json_decref(f);
    if (ok) return t;
    json_decref(t);
    return NULL;
}

static bool copy_member(json_t *to, const nb_ask *a, const char *name)
{
    json_t *v = (json_t *)(uintptr_t)nb_ask_get(a, name);
    return !v || json_object_set(to, name, v) == 0;
}

nb_status nb_map_finish(nb_ask *a, json_t *chat, json_t **out)
{
    bool ok = chat && copy_member(chat, a, "chat_template_kwargs");
    if (ok && a->effort)
        ok = json_object_set_new(chat, "reasoning_effort", json_string(a->effort)) == 0;
    if (!ok) {
        json_decref(chat);
        return nb_map_no_memory(a);
    }
    *out = chat;
    return NB_OK;
}

nb_status nb_map_chat(nb_ask *a, json_t **out)
{
    static const char *const same[] = { "messages",
                                        "tools",
                                        "documents",
                                        "add_generation_prompt",
                                        "continue_final_message",
                                        "add_special_tokens" };
    json_t *chat = json_object();
    bool ok = chat != NULL;
    for (size_t i = 0; ok && i < NB_COUNT(same); i++) ok = copy_member(chat, a, same[i]);
    if (ok) return nb_map_finish(a, chat, out);
    json_decref(chat);
    return nb_map_no_memory(a);
}
