/* utf8.h - decoding and encoding of UTF-8 (RFC 3629: no surrogates, no overlong
 * forms, nothing above U+10FFFF). */
#ifndef NB_BASE_UTF8_H
#define NB_BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Decodes the code point at s (n_bytes available, > 0).  Returns its length
 * 1..4; 0 if s is a proper prefix of a valid sequence (more bytes needed);
 * -1 if the first byte starts no valid sequence.  *cp is set for > 0 only. */
int nb_utf8_decode(const char *s, size_t n_bytes, uint32_t *cp);
/* Writes 1..4 bytes to out; returns the count, 0 for an invalid code point. */
int nb_utf8_encode(uint32_t cp, char out[4]);
bool nb_utf8_valid(nb_str s);
/* Number of trailing bytes of s that form an incomplete but so far valid
 * sequence (0..3): what a streaming writer must hold back. */
size_t nb_utf8_incomplete_tail(nb_str s);

#endif
