/* chat_body.h - what the server's options change in a chat request before it is rendered. */
#ifndef NB_SERVE_CHAT_BODY_H
#define NB_SERVE_CHAT_BODY_H
#include <jansson.h>

#include "base/str.h"

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

/* Whether a request may have to be changed at all. */
bool nb_chat_rules_any(const nb_chat_rules *r);
/* The body as the rules want it; free() it.  Bodies that are not as the renderer expects them are
 * left as they are, for it to refuse.  NULL: out of memory. */
char *nb_chat_body(const nb_chat_rules *r, nb_str body);

#endif
