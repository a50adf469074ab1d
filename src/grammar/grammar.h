/* grammar.h - constrained output: which tokens may come next.
 *
 * An nb_vocab is the table of a tokenizer's tokens, made once.  An nb_grammar is a compiled
 * specification: immutable, counted by references, used by any number of requests at once.  An
 * nb_match is one request's place in its grammar; it has one owner at a time.
 *
 * Nothing is computed ahead: states come into being as text reaches them, and so do masks.  All
 * limits are counted, in steps and bytes, never in seconds: a request has the same outcome on every
 * machine.
 *
 * A token is allowed if and only if some text that the grammar accepts begins with what was
 * accepted so far and that token.  Exceptions: counts of open frames beyond NB_GRAMMAR_MAX_DEPTH. */
#ifndef NB_GRAMMAR_GRAMMAR_H
#define NB_GRAMMAR_GRAMMAR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nibble/grammar.h"

#include "base/str.h"

enum {
    NB_GRAMMAR_MAX_TEXT = 1 << 20,  /* bytes of a specification                        */
    NB_GRAMMAR_MAX_DEPTH = 512,     /* nesting of generated documents                  */
    NB_GRAMMAR_MAX_STATES = 250000, /* of a request, before they are made anew         */
    NB_GRAMMAR_MAX_STATE_BYTES = 64 << 20,
    NB_GRAMMAR_MAX_VISITS = 4 << 20 /* nodes of the vocabulary's tree, for one mask    */
};
#define NB_GRAMMAR_NO_TOKEN UINT32_MAX

/* ---- vocabulary ---- */

typedef struct nb_vocab nb_vocab;
typedef struct nb_vocab_token {
    nb_str text; /* bytes that the token stands for; borrowed during create */
    bool marker; /* an added token that plain text cannot spell: reached by id only */
} nb_vocab_token;
/* The token with this id; an empty text for an id without one. */
typedef nb_vocab_token nb_vocab_fn(const void *ctx, uint32_t id);
nb_status nb_vocab_create(nb_vocab_fn *token, const void *ctx, size_t n_vocab, nb_vocab **out,
                          nb_error *err);
void nb_vocab_destroy(nb_vocab *v);
size_t nb_vocab_size(const nb_vocab *v);
/* 64-bit words of a mask: bit id % 64 of word id / 64. */
size_t nb_vocab_mask_words(const nb_vocab *v);
/* The marker with this text, or NB_GRAMMAR_NO_TOKEN. */
uint32_t nb_vocab_marker(const nb_vocab *v, nb_str text);
bool nb_vocab_is_marker(const nb_vocab *v, uint32_t id);

/* ---- grammars ---- */

/* What nb_grammar_compile (nibble/grammar.h) does, without its cache.  v outlives the grammar. */
nb_status nb_grammar_build(const nb_vocab *v, const nb_grammar_spec *spec, nb_grammar **out,
                           nb_error *err);
const nb_vocab *nb_grammar_vocab(const nb_grammar *g);
size_t nb_grammar_bytes(const nb_grammar *g);
size_t nb_grammar_n_node(const nb_grammar *g);

/* ---- matching ---- */

typedef struct nb_match nb_match;
typedef enum nb_match_start {
    NB_MATCH_PLAIN,      /* no thought comes first */
    NB_MATCH_IN_THOUGHT, /* the prompt opened one */
    NB_MATCH_MAY_THINK,  /* the text may begin with one */
    NB_MATCH_STARTS
} nb_match_start;
/* Where a text behind this prompt starts. */
nb_match_start nb_grammar_start(const nb_grammar *g, const uint32_t *prompt, size_t n_prompt);
/* Holds a reference to g. */
nb_status nb_match_create(nb_grammar *g, nb_match_start start, nb_match **out, nb_error *err);
void nb_match_destroy(nb_match *m);
/* Whether every token is allowed, markers and ends too: no mask is needed. */
bool nb_match_free(const nb_match *m);
/* Whether the text so far may end here. */
bool nb_match_accepting(const nb_match *m);
/* It may end, and nothing can follow. */
bool nb_match_complete(const nb_match *m);
/* *mask: a bit for each token that may come next, valid until m's next call; ends of text are not in
 * it (nb_match_accepting).  NB_ERR_LIMIT: the grammar's state is too large.  NB_ERR_NOMEM. */
nb_status nb_match_mask(nb_match *m, const uint64_t **mask);
/* One more token of the text.  NB_ERR_ARG: it is not allowed here (m is unchanged). */
nb_status nb_match_accept(nb_match *m, uint32_t id);
/* The same for bytes. */
nb_status nb_match_accept_bytes(nb_match *m, nb_str bytes);

/* Figures for tests and benchmarks. */
typedef struct nb_match_stats {
    size_t n_state, n_flush, n_mask, n_mask_hit, bytes;
    uint64_t n_visit;
} nb_match_stats;
nb_match_stats nb_match_get_stats(const nb_match *m);

#endif
