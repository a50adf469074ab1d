/* grammars.h - a text's vocabulary for grammars, and the grammars that were compiled lately. */
#ifndef NB_ENGINE_GRAMMARS_H
#define NB_ENGINE_GRAMMARS_H
#include "nibble/nibble.h"

#include "grammar/grammar.h"
#include "text/tokenizer.h"

typedef struct nb_grammars nb_grammars;
nb_status nb_grammars_create(const nb_tokenizer *tok, nb_grammars **out, nb_error *err);
void nb_grammars_destroy(nb_grammars *c);
nb_grammars *nb_text_grammars(const nb_text *t);
/* The vocabulary, made by the first who asks; any thread. */
nb_status nb_grammars_vocab(nb_grammars *c, const nb_vocab **out, nb_error *err);

#endif
