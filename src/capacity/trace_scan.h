/* trace_scan.h - a pull parser for the JSON of request traces: the caller says what it expects next.
 *
 * A trace of sessions is hundreds of megabytes of integers; this reads them from the mapped file
 * at the speed of a loop over its bytes and allocates nothing.  Strings are borrowed, and are
 * compared as they stand in the file: keys with escapes match no field.  Everything that is
 * not read is skipped with its syntax checked as far as brackets, strings and words go.  An error line
 * begins with `name:line`. */
#ifndef NB_CAPACITY_TRACE_SCAN_H
#define NB_CAPACITY_TRACE_SCAN_H
#include <stdint.h>

#include "base/str.h"

typedef struct nb_scan {
    const char *p, *end;
    const char *name; /* of the file, for error lines */
    size_t line;      /* of p, from 1 */
    size_t depth;     /* open brackets */
    nb_error *err;
} nb_scan;

nb_scan nb_scan_text(const char *p, size_t n_bytes, const char *name, size_t line, nb_error *err);
/* NB_ERR_FORMAT: "name:line: expected WHAT". */
nb_status nb_scan_fail(const nb_scan *s, const char *expected);
/* `{` or `[`. */
nb_status nb_scan_open(nb_scan *s, char bracket, const char *what);
/* Before each member or element: *more is false, and the bracket closed, after the last. */
nb_status nb_scan_more(nb_scan *s, char closing, bool first, bool *more);
nb_status nb_scan_key(nb_scan *s, nb_str *key); /* with its colon */
nb_status nb_scan_string(nb_scan *s, const char *what, nb_str *out);
/* A whole number in [0, max]; "12.0" is none. */
nb_status nb_scan_count(nb_scan *s, const char *what, uint64_t max, uint64_t *out);
/* A finite number. */
nb_status nb_scan_number(nb_scan *s, const char *what, double *out);
nb_status nb_scan_skip(nb_scan *s); /* any value */
char nb_scan_peek(nb_scan *s);      /* the next byte that is no blank, or 0 at the end */
nb_status nb_scan_end(nb_scan *s);  /* nothing but blanks is left */

#endif
