/* grammar.h - constrained output: specifications that a request's text has to satisfy.
 *
 * A grammar is compiled on the calling thread, in milliseconds and under limits that are counted, never
 * timed.  It is immutable, counted by references, and may be used by any number of requests of the engine
 * whose text it was compiled for. */
#ifndef NIBBLE_GRAMMAR_H
#define NIBBLE_GRAMMAR_H
#include <stdbool.h>
#include <stddef.h>

#include "nibble/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum nb_grammar_kind {
    NB_GRAMMAR_JSON_SCHEMA, /* text: a schema of draft 2020-12                    */
    NB_GRAMMAR_JSON_OBJECT, /* any JSON object; no text                           */
    NB_GRAMMAR_REGEX,       /* text: an expression; the whole output matches it   */
    NB_GRAMMAR_CHOICE,      /* text: a JSON array of strings                      */
    NB_GRAMMAR_GBNF,        /* text: rules in llama.cpp's notation                */
    NB_GRAMMAR_TOOLS        /* text: a JSON object: format (a name of --tool-call-parser), calls ("auto":
                               free text, and calls that are right; "required": one or more), one (at
                               most one), content (with auto: the schema of an answer without calls),
                               tools: [{name, parameters, strict}] */
} nb_grammar_kind;

/* Zero-initialise and set what differs. */
typedef struct nb_grammar_spec {
    nb_grammar_kind kind;
    const char *text;
    size_t text_bytes;
    bool relaxed; /* keywords that cannot be enforced are left out instead of refused */
    bool compact; /* no white space between JSON's tokens */
    /* Free text comes first, and the grammar begins behind this text (an added token, such as
     * "</think>", or plain text).  NULL: it begins at once. */
    const char *after;
    /* The texts around a thought ("<think>", "</think>"), or NULL.  A request whose prompt opens a
     * thought begins in it, and the grammar behind its end; where the prompt neither opens nor closes
     * one, the text may begin with a thought. */
    const char *thought_open, *thought_close;
} nb_grammar_spec;

typedef struct nb_grammar nb_grammar;

/* Errors are the specification's: NB_ERR_FORMAT, NB_ERR_UNSUPPORTED (a keyword, with its JSON pointer),
 * NB_ERR_LIMIT, NB_ERR_NOT_FOUND (a reference), NB_ERR_RANGE (nothing satisfies it).  Grammars that
 * were compiled lately are found again by their specification.  t outlives the grammar. */
struct nb_text;
NB_API nb_status nb_grammar_compile(const struct nb_text *t, const nb_grammar_spec *spec,
                                    nb_grammar **out, nb_error *err);
NB_API nb_grammar *nb_grammar_ref(nb_grammar *g);
NB_API void nb_grammar_unref(nb_grammar *g); /* g may be NULL */

#ifdef __cplusplus
}
#endif
#endif
