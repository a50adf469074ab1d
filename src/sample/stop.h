/* stop.h - stop strings in streamed text.
 *
 * Text goes in piece by piece and comes out again, without what might still become a
 * stop string: the longest end of the text that begins some stop string is held
 * back, and nothing more.  The result does not depend on how the text is cut.
 *
 * The match that ends first wins, since generation stops there; of several that end at
 * the same byte the longest, so that no part of a stop string is ever shown.  The text
 * before it comes out, the stop string and what follows do not.
 *
 * Stop strings are whole UTF-8, so where the pieces are, what comes out is too: no
 * sequence is split by holding back.  One thread per matcher. */
#ifndef NB_SAMPLE_STOP_H
#define NB_SAMPLE_STOP_H
#include "base/str.h"

enum { NB_STOP_STRINGS_MAX = 64, NB_STOP_BYTES_MAX = 4096 }; /* strings, bytes of each */

typedef struct nb_stop nb_stop;

/* Copies the strings.  n may be 0: everything passes.  NB_ERR_ARG: a string is empty or not
 * UTF-8; NB_ERR_LIMIT: too many, or too long. */
nb_status nb_stop_create(const nb_str *strings, size_t n, nb_stop **out, nb_error *err);
void nb_stop_destroy(nb_stop *s);
/* *emit: bytes that can be shown now, valid until the next call with s.  Returns
 * NB_ERR_NOMEM or NB_OK. */
nb_status nb_stop_feed(nb_stop *s, nb_str piece, nb_str *emit);
/* At the end of the text: what was held back (nothing after a stop). */
nb_str nb_stop_flush(nb_stop *s);
/* Index of the stop string that was found, or -1; after it, feed emits nothing. */
int nb_stop_found(const nb_stop *s);

#endif
