/* api_write.h - JSON written by hand, for what is written once per token.
 *
 * A writer remembers its first error, so that a whole document can be written and checked
 * once.  Bytes that are not UTF-8 become U+FFFD: what leaves is always JSON. */
#ifndef NB_SERVE_API_WRITE_H
#define NB_SERVE_API_WRITE_H
#include <stdint.h>

#include "base/str.h"

typedef struct nb_writer {
    nb_buf b; /* zero-initialise; nb_buf_deinit(&w.b) */
    nb_status st;
} nb_writer;

void nb_w_raw(nb_writer *w, const char *p, size_t n_bytes);
#define NB_W(w, literal) nb_w_raw((w), "" literal, sizeof(literal) - 1)
void nb_w_c(nb_writer *w, const char *s);
void nb_w_uint(nb_writer *w, uint64_t v);
/* As short as a float needs, with a point or an exponent; -9999.0 for what is not finite or
 * below it (the floor of log-probabilities in these APIs). */
void nb_w_logprob(nb_writer *w, float v);
void nb_w_escaped(nb_writer *w, nb_str s);                  /* the inside of a JSON string */
void nb_w_str(nb_writer *w, nb_str s);                      /* with its quotes             */
void nb_w_ids(nb_writer *w, const uint32_t *ids, size_t n); /* [1,2,3]    */
void nb_w_bytes(nb_writer *w, nb_str s);                    /* [104,105]: the bytes of s   */

#endif
