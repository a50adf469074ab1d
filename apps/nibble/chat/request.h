/* request.h - chat request bodies, as nb_text_render takes them. */
#ifndef NB_APPS_REQUEST_H
#define NB_APPS_REQUEST_H
#include <jansson.h>

#include "../cli.h"

/* Appends {"role": role, "content": text}; CLI_FAILED when text is not UTF-8. */
int request_add(json_t *messages, const char *role, const char *text, size_t n_bytes);

typedef struct rendered {
    char *text;
    uint32_t *ids;
    size_t text_bytes, n_ids;
} rendered;
void rendered_deinit(rendered *r);

/* Renders messages (borrowed), with the beginning of an answer. */
nb_status request_render(const nb_text *t, json_t *messages, rendered *out, nb_error *err);

#endif
