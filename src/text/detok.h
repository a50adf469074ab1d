/* detok.h - streaming detokenizer: ids one by one in, whole characters out.
 *
 * The concatenation of everything that push and finish append equals
 * nb_tokenizer_decode of all ids pushed, which equals transformers'
 * decode(ids, skip_special_tokens=..., clean_up_tokenization_spaces=False).
 * What is appended never ends inside a UTF-8 sequence.  A byte that turns out
 * to belong to no character becomes U+FFFD as soon as that is certain; bytes
 * that may still become a character are held back until the next id or finish.
 * Tokenizers with byte fallback hold back a whole run of byte tokens, because
 * one invalid byte in the run turns all of it into U+FFFD.
 *
 * Threads: one owner. */
#ifndef NB_TEXT_DETOK_H
#define NB_TEXT_DETOK_H
#include "text/tokenizer.h"

/* Caller's storage; the fields are private.  The tokenizer must outlive it. */
typedef struct nb_detok {
    const nb_tokenizer *tok;
    bool skip_special;
    const uint32_t *keep; /* nb_detok_keep's */
    size_t n_keep;
    size_t n_tokens;     /* pushed and not skipped                              */
    size_t n_lead_cut;   /* leading characters that the decoder strips: left    */
    size_t n_trail_held; /* trailing strip characters held back                 */
    size_t n_bad_run;    /* byte-fallback run known to be invalid: its length   */
    nb_buf run;          /* byte-fallback run that is valid so far              */
    char tail[4];        /* byte-level: incomplete sequence                     */
    size_t n_tail_bytes;
} nb_detok;

void nb_detok_init(nb_detok *d, const nb_tokenizer *tok, bool skip_special);
/* Tokens that are handed over although they are special: markers that a parser
 * looks for.  ids: ascending, kept by reference until deinit.  After pushing one,
 * what was appended ends with its text.  The text of all other tokens is what it
 * would be if the kept ones were skipped, except that a kept token hands over what
 * was held back: incomplete characters, runs of byte tokens, trailing blanks. */
void nb_detok_keep(nb_detok *d, const uint32_t *ids, size_t n_ids);
/* Back to the start of a text; keeps the buffers. */
void nb_detok_reset(nb_detok *d);
void nb_detok_deinit(nb_detok *d);

/* Append to *out: NB_OK, NB_ERR_NOMEM, or NB_ERR_LIMIT of *out. */
nb_status nb_detok_push(nb_detok *d, uint32_t id, nb_buf *out);
nb_status nb_detok_finish(nb_detok *d, nb_buf *out);

#endif
