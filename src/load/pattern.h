/* pattern.h - patterns for names of modules, as quantization_config has them.
 *
 * Regular expressions are Python's, run by PCRE2 within fixed limits: a pattern that needs more steps on a name is
 * an error, not a wait. */
#ifndef NB_LOAD_PATTERN_H
#define NB_LOAD_PATTERN_H
#include <stdbool.h>

#include "base/status.h"

typedef enum nb_pattern_kind {
    NB_PATTERN_NAME,   /* the whole name */
    NB_PATTERN_PART,   /* whole components of it: "layers.1.mlp" matches "model.layers.1.mlp.gate_proj" */
    NB_PATTERN_SUBSTR, /* any part of it */
    NB_PATTERN_WILD,   /* a shell pattern for the whole name: * ? [abc] */
    NB_PATTERN_REGEX,  /* a regular expression that matches at the start (re.match) */
    NB_PATTERN_SEARCH  /* and one that matches anywhere (re.search) */
} nb_pattern_kind;

typedef struct nb_pattern {
    nb_pattern_kind kind;
    const char *text; /* borrowed */
    void *code, *match; /* of regular expressions */
} nb_pattern;

/* NB_ERR_FORMAT: not a regular expression; the line says why.  NB_ERR_LIMIT, NB_ERR_NOMEM. */
nb_status nb_pattern_init(nb_pattern *p, nb_pattern_kind kind, const char *text, nb_error *err);
void nb_pattern_deinit(nb_pattern *p);
/* NB_ERR_LIMIT: too many steps. */
nb_status nb_pattern_match(const nb_pattern *p, const char *name, bool *yes, nb_error *err);

#endif
