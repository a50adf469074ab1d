/* request.c - see request.h. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

int request_add(json_t *messages, const char *role, const char *text, size_t n_bytes)
{
    json_t *content = json_stringn(text, n_bytes);
    if (!content) return cli_failed("the text of the %s message is not UTF-8", role);
    json_t *m = json_object();
    const bool ok = m && json_object_set_new(m, "role", json_string(role)) == 0;
    if (!ok || json_object_set_new(m, "content", content) != 0) {
        if (!ok) json_decref(content);
        json_decref(m);
        return cli_failed("out of memory");
    }
    if (json_array_append_new(messages, m) != 0) return cli_failed("out of memory");
    return CLI_OK;
}

void rendered_deinit(rendered *r)
{
    nb_free(r->text);
    nb_free(r->ids);
    *r = (rendered){ 0 };
}

nb_status request_render(const nb_text *t, json_t *messages, rendered *out, nb_error *err)
{
    rendered r = { 0 };
    json_t *body = json_object();
    char *json = NULL;
    if (body && json_object_set(body, "messages", messages) == 0)
        json = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (!json) {
        (void)snprintf(err->msg, sizeof err->msg, "no memory for the conversation");
        return NB_ERR_NOMEM;
    }
    const nb_status st =
        nb_text_render(t, json, strlen(json), &r.text, &r.text_bytes, &r.ids, &r.n_ids, err);
    free(json);
    if (st == NB_OK) *out = r;
    return st;
}
