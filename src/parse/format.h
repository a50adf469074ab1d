/* format.h - how each model family writes its thoughts and its tool calls.
 *
 * A format is one constant row: names, markers, and a table of transitions that
 * parse.c runs.  Names are vLLM's (--tool-call-parser, --reasoning-parser). */
#ifndef NB_PARSE_FORMAT_H
#define NB_PARSE_FORMAT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* How a family writes one call. */
typedef enum nb_call_style {
    NB_CALL_JSON,   /* name between markers, then a JSON object                  */
    NB_CALL_OBJECT, /* one JSON object with the keys name and arguments          */
    NB_CALL_TAGGED, /* keys and values between tags (GLM, DSML)                  */
    NB_CALL_PYTHON  /* f(key=value, ...) (MiniCPM3)                              */
} nb_call_style;

typedef struct nb_call_format nb_call_format;       /* tool calls */
typedef struct nb_thought_format nb_thought_format; /* reasoning  */

/* By one of its names; NULL if there is none.  nb_*_format_names: all names with
 * ", " between them, for error lines and the option table. */
const nb_call_format *nb_call_format_find(nb_str name);
const nb_thought_format *nb_thought_format_find(nb_str name);
const char *nb_call_format_names(void);
const char *nb_thought_format_names(void);

/* The id of the ADDED token with exactly this text, or NB_PARSE_NO_ID.  An entry
 * of the ordinary vocabulary with that spelling does not count. */
#define NB_PARSE_NO_ID UINT32_MAX
typedef struct nb_token_lookup {
    uint32_t (*find)(const void *ctx, nb_str text);
    const void *ctx;
} nb_token_lookup;

/* The format that a chat template and the added tokens point to: the template
 * decides where it prints tools or calls, else the tokens.  NULL: none that we
 * know (then calls stay text). */
const nb_call_format *nb_call_format_detect(nb_str chat_template, nb_token_lookup tokens);
const nb_thought_format *nb_thought_format_detect(nb_str chat_template, nb_token_lookup tokens);

const char *nb_call_format_name(const nb_call_format *f);
const char *nb_thought_format_name(const nb_thought_format *f);
nb_call_style nb_call_format_style(const nb_call_format *f);
/* Ids of calls are functions.NAME:IDX, with an index that runs through the
 * conversation (Kimi); calls of the history need such ids in the prompt, too. */
bool nb_call_format_numbers_calls(const nb_call_format *f);
/* The texts that open a section of calls (for tool_choice none, grammars): the
 * i-th, or an empty view past the last.  Llama's bare "{" is not among them. */
nb_str nb_call_format_opener(const nb_call_format *f, size_t i);
/* The texts around a thought, for instance "<think>" and "</think>". */
nb_str nb_thought_format_open(const nb_thought_format *f);
nb_str nb_thought_format_close(const nb_thought_format *f);

#endif
