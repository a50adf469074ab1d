/* structured.h - what a request says about the form of its answer, as a grammar.
 *
 * Fields: response_format (OpenAI; with a schema beside json_object: llama.cpp), text.format (Responses),
 * output_config.format and output_format (Anthropic), structured_outputs and guided_* (vLLM), grammar and
 * json_schema (llama.cpp), regex and ebnf (SGLang); tools with strict, tool_choice and parallel_tool_calls,
 * in OpenAI's and in Anthropic's form.
 *
 * How it is called: nb_structured_read once per request, in its `prepare`, with the whole body; what it
 * returns goes into nb_request.grammar of every choice, and is given back with nb_grammar_unref when the
 * job is freed.  It takes up to 50 ms for a hostile schema, so a body for which nb_structured_asked is
 * true belongs onto the helper thread, however short it is. */
#ifndef NB_SERVE_STRUCTURED_H
#define NB_SERVE_STRUCTURED_H
#include <jansson.h>

#include "base/str.h"
#include "nibble/nibble.h"

typedef struct nb_structured {
    const nb_text *text;                      /* NULL: the model has no tokenizer */
    const char *call_format;                  /* of the model's family, or NULL: not known */
    const char *thought_open, *thought_close; /* texts around a thought, or NULL */
} nb_structured;

/* Whether a body can ask for a form: it has one of the fields' names in it. */
bool nb_structured_asked(nb_str body);

/* *out: NULL where the request asks for nothing.  On failure a 400: *param is the field (static), and the
 * line of err has the JSON pointer within a schema. */
nb_status nb_structured_read(const json_t *doc, const nb_structured *s, nb_grammar **out,
                             const char **param, nb_error *err);

#endif
