/* parse.h - one incremental parser: a model's output to reasoning, content, calls.
 *
 *   nb_parser   what does not change during a request: formats, the ids of their
 *               markers, the declared tools.  Immutable; the choices of a request
 *               share it, from any thread.
 *   nb_parse    the state of one answer.  One owner.
 *
 * Input: one piece per token, its id and its text (see nb_parse_push).  Output:
 * events through a callback.  The concatenated events are the same however the
 * output is cut into pieces, by bytes as well as by tokens.
 *
 * Rules, in short (docs/decisions/026-one-table-no-regexes.md says why):
 *  - A marker that is an added token counts only as that token where ids are
 *    known; without ids, its text counts.
 *  - Reasoning is the text before the closing marker if the prompt opened a
 *    thought or the answer starts with the opening marker, else there is none.
 *    An opener of calls ends it, too.  It is verbatim.
 *  - Content is verbatim, except: blanks alone before or between calls, text
 *    behind a section of calls, and line feeds that a format counts as part of a
 *    marker are dropped.
 *  - JSON arguments are passed on as text, valid or not; markers inside strings
 *    are data.  Tagged and Python arguments become JSON that only grows.
 *    Arguments that are empty become {} when the call ends naturally.
 *  - If nothing parsable follows an opener, the text from the opener on becomes
 *    content (inside a thought: reasoning).  At the end of an answer that was cut
 *    by length, a call whose name is not complete is dropped instead.
 *
 * Nothing crashes on any bytes.  Time is linear in the output.  Memory: at most
 * NB_PARSE_MAX_HELD_BYTES of the output are held back in each of two buffers. */
#ifndef NB_PARSE_PARSE_H
#define NB_PARSE_PARSE_H
#include "parse/format.h"

enum {
    NB_PARSE_MAX_HELD_BYTES = 8 << 20, /* text from an opener until its call is known;
                                          one value of a tagged or Python call       */
    NB_PARSE_MAX_NAME_BYTES = 256,     /* a longer name is no call                   */
    NB_PARSE_ID_BYTES = NB_PARSE_MAX_NAME_BYTES + 40 /* longest id, terminated       */
};

/* A declared tool.  parameters_json: its JSON Schema as JSON text, empty if it has
 * none; it decides the types of tagged values.  Schemas that cannot be read admit
 * every type: refusing them is the business of whoever reads the request. */
typedef struct nb_parse_tool {
    nb_str name, parameters_json;
} nb_parse_tool;

typedef struct nb_parser_options {
    const nb_call_format *calls;      /* NULL: calls are not parsed, they are content */
    const nb_thought_format *thought; /* NULL: reasoning is not split off             */
    nb_token_lookup tokens;           /* .find NULL: no marker is an added token      */
    const nb_parse_tool *tools;       /* [n_tools]                                    */
    size_t n_tools;
    size_t n_history_calls; /* calls in the conversation so far, for numbered ids */
    bool starts_in_thought; /* the prompt left a thought open: nb_prompt_in_thought */
} nb_parser_options;

typedef struct nb_parser nb_parser;

/* Keeps nothing of *o but the formats, which are constants.
 * NB_ERR_NOMEM, NB_ERR_LIMIT (a declared name or schema too large). */
nb_status nb_parser_create(const nb_parser_options *o, nb_parser **out, nb_error *err);
void nb_parser_destroy(nb_parser *p);

/* Ids of the markers that are added tokens, ascending.  The detokenizer must hand
 * over their text (nb_detok_keep), special or not. */
const uint32_t *nb_parser_marker_ids(const nb_parser *p, size_t *n);

/* Whether a prompt leaves the model inside a thought: the last of the opening and
 * closing marker wins; false if there is neither (or f is NULL).  By ids where both
 * markers are added tokens, else by the end of the rendered text. */
bool nb_prompt_in_thought(const nb_thought_format *f, nb_token_lookup tokens, const uint32_t *ids,
                          size_t n_ids, nb_str prompt_text);

/* What an answer consists of, in the order in which it is found.  For each call:
 * CALL_BEGIN, ARGUMENTS any number of times, CALL_END; calls do not overlap. */
typedef enum nb_parse_kind {
    NB_PARSE_REASONING,  /* text                                               */
    NB_PARSE_CONTENT,    /* text                                               */
    NB_PARSE_CALL_BEGIN, /* index, name, id: terminated, valid during the call */
    NB_PARSE_ARGUMENTS,  /* index, text: the next piece of the JSON text       */
    NB_PARSE_CALL_END    /* index                                              */
} nb_parse_kind;

typedef struct nb_parse_event {
    nb_parse_kind kind;
    size_t index;     /* of the call in this answer, from 0                   */
    nb_str text;      /* not empty, valid during the callback                 */
    const char *name; /* as the model wrote it, without a format's decoration */
    const char *id;   /* functions.NAME:IDX, or call_ and 24 hex digits       */
} nb_parse_event;

/* Anything but NB_OK stops the parser: push or finish returns it, and every later
 * call returns it again. */
typedef nb_status (*nb_parse_fn)(void *ctx, const nb_parse_event *e);

typedef enum nb_parse_end {
    NB_PARSE_END_STOP,  /* the model's end token, a stop string, our stop after a call */
    NB_PARSE_END_LENGTH /* cut off by a limit                                          */
} nb_parse_end;

typedef struct nb_parse nb_parse;

/* seed: for ids; give every answer its own.  The parser must outlive it. */
nb_status nb_parse_create(const nb_parser *p, uint64_t seed, nb_parse_fn fn, void *ctx,
                          nb_parse **out);
void nb_parse_destroy(nb_parse *a);

/* One token: its id and the text that the detokenizer gave for it, which may be
 * empty, or begin with characters held back from earlier tokens.  The text of a
 * marker's token ends with the marker.  id NB_PARSE_NO_ID: ids are not known.
 * Neighbouring text of one kind arrives as one event per push; if every piece ends
 * with a whole character, so does every event of content and reasoning.
 * NB_OK, NB_ERR_NOMEM, or what the callback returned. */
nb_status nb_parse_push(nb_parse *a, uint32_t id, nb_str text);
/* Once, at the end: hands over everything held back. */
nb_status nb_parse_finish(nb_parse *a, nb_parse_end end);

/* Where the answer is after the pieces pushed so far. */
typedef enum nb_parse_phase {
    NB_PARSE_IN_REASONING,
    NB_PARSE_IN_CONTENT, /* stop strings apply */
    NB_PARSE_IN_CALLS,   /* from an opener on  */
    NB_PARSE_AFTER_CALLS /* text is dropped    */
} nb_parse_phase;
nb_parse_phase nb_parse_where(const nb_parse *a);
/* Calls begun so far.  After finish(STOP), finish_reason is "tool_calls" exactly
 * if there are any; after finish(LENGTH) it is "length". */
size_t nb_parse_n_calls(const nb_parse *a);
/* Tokens of the thought, without its markers where they are added tokens. */
size_t nb_parse_n_reasoning_tokens(const nb_parse *a);

#endif
