/* fields.h - every field of a request that the API knows, and what the server does with it.
 *
 * The fields are OpenAI's (chat and completions), Anthropic's (messages) and vLLM's additions to
 * them.  Fields that are not in the table are ignored, as those APIs do. */
#ifndef NB_SERVE_FIELDS_H
#define NB_SERVE_FIELDS_H
#include "serve/parse_request.h"
#include "serve/serve.h"

enum { NB_FIELDS_CHAT = 1, NB_FIELDS_COMPLETION = 2, NB_FIELDS_MESSAGES = 4, NB_FIELDS_RESPONSES = 8 };

/* Refuses what would change the answer and cannot be had, and notes in a->warned what is ignored but
 * may be missed.  api: one of NB_FIELDS_*. */
nb_status nb_fields_check(nb_ask *a, unsigned api, const nb_ask_limits *lim);
/* The line for the log about a row of a->warned. */
void nb_fields_warning(size_t row, char *line, size_t n);

#endif
