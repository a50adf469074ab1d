/* http_parse.h - the bytes of an HTTP/1.1 request: strict, without I/O, nothing allocated.
 *
 * Source: RFC 9112 (messages), RFC 9110 (fields), RFC 3986 (targets).  Where a recipient may
 * be lenient this one is not: a message that two programs in a row could read in two
 * ways is refused.  That is: a line ends with CR LF only; no folded lines; no blanks
 * around the name of a field; one Host, one Content-Length of digits only, never together
 * with Transfer-Encoding, which is `chunked` and nothing else; no control characters.
 *
 * Functions that return int give 0 for "fine" or the HTTP status of the refusal, with *why a
 * static sentence. */
#ifndef NB_SERVE_HTTP_PARSE_H
#define NB_SERVE_HTTP_PARSE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { NB_HTTP_MAX_FIELDS = 100, NB_HTTP_MAX_METHOD = 32 };

typedef struct nb_http_field {
    nb_str name, value; /* the value without blanks around it; may be empty */
} nb_http_field;

/* Views into the parsed bytes. */
typedef struct nb_http_head {
    nb_str method;
    nb_str path, query; /* of the target, still encoded; path "*" for OPTIONS *; query without ? */
    nb_str host;        /* authority of an absolute target, else Host; p NULL: none (HTTP/1.0) */
    int minor;          /* HTTP/1.minor: 0, or 1 for 1.1 and later */
    bool chunked, has_length;
    bool keep_alive;      /* by version and Connection */
    bool expect_continue; /* Expect: 100-continue */
    uint64_t length;      /* of Content-Length; UINT64_MAX for what does not fit */
    size_t n_field;
    nb_http_field field[NB_HTTP_MAX_FIELDS];
} nb_http_head;

/* Looks for the end of a head in p[0..n).  *scanned says how far earlier calls looked (0 at
 * first), so that a head which comes byte by byte costs linear time.  *head_bytes: with the empty
 * line, 0 while it is not there. */
int nb_http_head_end(const char *p, size_t n, size_t *scanned, size_t *head_bytes,
                     const char **why);
/* p[0..n) is one head as nb_http_head_end found it. 400, 417, 431, 501, 505. */
int nb_http_head_parse(const char *p, size_t n, nb_http_head *out, const char **why);

/* ---- chunked bodies; zero-initialise ---- */
typedef struct nb_http_chunks {
    uint64_t left_bytes; /* of the chunk in work */
    uint32_t n_line;     /* bytes of extensions and trailers so far */
    uint8_t state, n_digit;
    bool done;
} nb_http_chunks;

/* Goes on through p[0..n): at most one piece of the body, a view into p, per call; *used bytes were
 * taken.  Call again while *used is not 0 and not done. 400, 431. */
int nb_http_chunks_next(nb_http_chunks *c, const char *p, size_t n, size_t *used, nb_str *piece,
                        const char **why);

/* ---- parts ---- */
/* Percent-decodes into out[in.n_bytes]; plus: '+' is a blank.  False: a broken escape, or a
 * control character came out. */
bool nb_http_decode(nb_str in, bool plus, char *out, size_t *n_out);
/* The first parameter of that name, decoded, into out[query.n_bytes]; false: absent or broken. */
bool nb_http_query_find(nb_str query, const char *name, char *out, size_t *n_out);
/* host[:port], with [] around IPv6 addresses. The host without brackets and port; may be empty. */
bool nb_http_split_host(nb_str authority, nb_str *host);
/* Case-insensitive for ASCII. */
bool nb_http_same(nb_str a, nb_str b);
/* Does a comma-separated list have this token (any case)? */
bool nb_http_list_has(nb_str list, const char *token);
bool nb_http_is_token(nb_str s);
bool nb_http_is_value(nb_str s); /* may be the value of a field: no control characters but tabs */

#endif
