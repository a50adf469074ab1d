/* jinja.h - a bounded interpreter for the Jinja2 templates of chat models.
 *
 * Renders what Hugging Face transformers renders: Jinja2 3.1 with trim_blocks
 * and lstrip_blocks, the loop controls extension, {% generation %} blocks,
 * raise_exception(), strftime_now() and a tojson filter that is Python's
 * json.dumps without HTML escaping.  Values print as Python's str() and repr().
 * Language reference: https://jinja.palletsprojects.com/en/3.1.x/templates/.
 *
 * Deliberate differences: list and dict methods that modify their object are
 * allowed (transformers' sandbox refuses them); integers are 64 bits wide and
 * overflow is an error; template inheritance, include and import are refused,
 * and so is what no public chat template uses (docs/decisions/008);
 * a for loop runs over a snapshot of its list; lazy filters (map, select, ...)
 * are evaluated at once.
 *
 * Thread rule: an nb_jinja is immutable after nb_jinja_parse and may be rendered
 * by several threads at the same time. */
#ifndef NB_TEXT_JINJA_H
#define NB_TEXT_JINJA_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef struct nb_jinja nb_jinja;

/* What one rendering may consume.  A zero field takes its default. */
typedef struct nb_jinja_limits {
    uint64_t max_steps;        /* evaluated nodes plus work on long values; default 50e6 */
    size_t max_output_bytes;   /* rendered text including captured blocks; default 64 MiB */
    size_t max_value_bytes;    /* memory for values made while rendering; default 256 MiB */
    unsigned max_depth;        /* nested evaluations, values and macro calls; default 400 */
    int64_t now_s;             /* what strftime_now sees: seconds since 1970-01-01 of the
                                  wall clock to be shown (add the zone's offset) */
} nb_jinja_limits;

/* What a rendering did; for callers that choose how to present a conversation. */
typedef struct nb_jinja_stats {
    uint64_t n_steps;
    size_t value_bytes;       /* peak: values are freed together at the end */
    bool printed_container;   /* a dict or list was turned into text as Python's repr */
} nb_jinja_stats;

enum { NB_JINJA_MAX_SOURCE_BYTES = 1 << 20 };

/* Parses a template (UTF-8).  *out is written on success only; destroy it with
 * nb_jinja_destroy.  Errors name the line: NB_ERR_FORMAT (syntax), NB_ERR_UNSUPPORTED
 * (a Jinja feature that is refused), NB_ERR_LIMIT (nesting, size), NB_ERR_NOMEM. */
nb_status nb_jinja_parse(nb_str source, nb_jinja **out, nb_error *err);
void nb_jinja_destroy(nb_jinja *t); /* NULL is fine */

/* Renders with the members of the object `vars` (borrowed, not modified; NULL =
 * none) as variables and appends to *out; on failure *out is as before.
 * limits NULL = defaults.  Errors name the line: NB_ERR_FORMAT (the template
 * failed: undefined value, wrong type, raise_exception), NB_ERR_UNSUPPORTED,
 * NB_ERR_LIMIT, NB_ERR_NOMEM. */
nb_status nb_jinja_render(const nb_jinja *t, const json_t *vars, const nb_jinja_limits *limits,
                          nb_buf *out, nb_error *err);
/* The same, with *stats (may be NULL) filled also on failure. */
nb_status nb_jinja_render_stats(const nb_jinja *t, const json_t *vars,
                                const nb_jinja_limits *limits, nb_buf *out,
                                nb_jinja_stats *stats, nb_error *err);

/* True if the template runs a for loop over a message's content, so that it
 * can take content as a list of parts: a loop over X.content, X['content'], a
 * variable called content, or one set from such an expression. */
bool nb_jinja_iterates_content(const nb_jinja *t);
/* Whether `word` is a name or a string constant of the template: a variable, attribute or key
 * that it never mentions cannot reach the text. */
bool nb_jinja_mentions(const nb_jinja *t, nb_str word);

#endif
