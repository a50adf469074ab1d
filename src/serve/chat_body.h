/* chat_body.h - what the server's options change in a chat request before it is rendered. */
#ifndef NB_SERVE_CHAT_BODY_H
#define NB_SERVE_CHAT_BODY_H
#include <jansson.h>

#include "base/str.h"
#include "serve/parse_request.h"

/* How message content reaches the chat template. */
typedef enum nb_content_format {
    NB_CONTENT_AUTO,   /* as it came; parts are joined where the template takes no parts */
    NB_CONTENT_STRING, /* always one string */
    NB_CONTENT_PARTS   /* always a list of parts */
} nb_content_format;

typedef struct nb_chat_rules {
    json_t *kwargs; /* owned: defaults of chat_template_kwargs, or NULL */
    nb_content_format content;
    bool hide_tools; /* tools are not shown with tool_choice "none" */
} nb_chat_rules;

/* Changes a chat (chat_map.h), whose messages may be those of the request's body.  What is not as
 * the renderer expects it is left, for it to refuse.  NB_ERR_NOMEM, or NB_OK. */
nb_status nb_chat_rules_apply(const nb_chat_rules *r, const nb_ask *a, json_t *chat);

#endif
