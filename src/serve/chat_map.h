/* chat_map.h - the one form that all chats are rendered from: the body of an OpenAI chat request.
 *
 * Each API has a mapping from its own body, a->doc, to that form.  They know neither HTTP nor engine
 * and take any JSON: what is wrong is refused with the field's name.
 *
 * The form has messages, tools, chat_template_kwargs, reasoning_effort, documents,
 * add_generation_prompt, continue_final_message and add_special_tokens, and nothing else. */
#ifndef NB_SERVE_CHAT_MAP_H
#define NB_SERVE_CHAT_MAP_H
#include <jansson.h>

#include "serve/parse_request.h"

/* *out: a new object. */
nb_status nb_map_chat(nb_ask *a, json_t **out);
nb_status nb_map_messages(nb_ask *a, json_t **out); /* Anthropic's */
nb_status nb_map_responses(nb_ask *a, json_t **out);

/* Bytes of the namespace in a flattened name; 0: it has none. */
size_t nb_map_namespace(const char *name);

/* ---- pieces of them ---- */
nb_status nb_map_no_memory(nb_ask *a);
/* A tool of the form; description and parameters may be NULL. */
json_t *nb_map_tool(json_t *name, json_t *description, json_t *parameters);
/* Whether a block, item or part is of a type. */
bool nb_map_is(const json_t *block, const char *type);
/* Puts chat (consumed) into *out with the members that all APIs share. */
nb_status nb_map_finish(nb_ask *a, json_t *chat, json_t **out);

#endif
