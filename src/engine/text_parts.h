/* text_parts.h - what the engine uses of an nb_text: text.c. */
#ifndef NB_ENGINE_TEXT_PARTS_H
#define NB_ENGINE_TEXT_PARTS_H
#include "nibble/nibble.h"
#include "parse/format.h"
#include "text/tokenizer.h"

const nb_tokenizer *nb_text_tokenizer(const nb_text *t);
/* How the model writes thoughts and calls; NULL where that is not known. */
typedef struct nb_text_formats {
    const nb_call_format *calls;
    const nb_thought_format *thought;
} nb_text_formats;
const nb_text_formats *nb_text_formats_of(const nb_text *t);
/* Overrides what was found: names of parse/format.h, NULL and "auto": as found, "none". */
nb_status nb_text_set_formats(nb_text *t, const char *calls, const char *thought, nb_error *err);
nb_token_lookup nb_text_lookup(const nb_text *t);

#endif
