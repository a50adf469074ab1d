/* json_out.h - JSON written straight to a stream.
 *
 * Strings may hold any bytes: what is not UTF-8 becomes U+FFFD, one for each byte, so
 * that the output is always valid JSON.  Errors stay in the stream (ferror). */
#ifndef NB_APPS_JSON_OUT_H
#define NB_APPS_JSON_OUT_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

void jout_str(FILE *f, const char *s, size_t n_bytes); /* with quotes */
void jout_ids(FILE *f, const uint32_t *ids, size_t n_ids);
/* A finite number with 9 digits; -inf, which JSON cannot say, is -9999 as in OpenAI's API. */
void jout_logprob(FILE *f, float x);

#endif
