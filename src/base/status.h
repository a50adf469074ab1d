/* status.h - raising and forwarding errors inside nibble. */
#ifndef NB_BASE_STATUS_H
#define NB_BASE_STATUS_H
#include "base/attr.h"
#include "nibble/status.h"

/* Records `s` and the formatted line in *err (if err is not NULL) and returns
 * s.  Control characters, characters that change the direction of text, and bytes
 * that are not UTF-8 become '?': bytes from a file cannot forge a second line. */
nb_status nb_fail(nb_error *err, nb_status s, const char *fmt, ...) NB_PRINTF(3, 4);

/* Puts "prefix: " in front of the message in *err; returns err's status. */
nb_status nb_fail_prefix(nb_error *err, nb_status s, const char *fmt, ...) NB_PRINTF(3, 4);

#define NB_TRY(expr)                                                                               \
    do {                                                                                           \
        const nb_status nb_try_s = (expr);                                                         \
        if (nb_try_s != NB_OK) return nb_try_s;                                                    \
    } while (0)

/* For functions with one clean-up label: sets `st` and jumps to `out`. */
#define NB_TRY_OUT(expr)                                                                           \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (st != NB_OK) goto out;                                                                 \
    } while (0)

/* A broken invariant of our own (never input): prints and aborts. */
NB_NORETURN void nb_panic(const char *file, int line, const char *what);
#define NB_ASSERT(cond) ((cond) ? (void)0 : nb_panic(__FILE__, __LINE__, #cond))

#endif
