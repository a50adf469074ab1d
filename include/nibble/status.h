/* status.h - error codes and the error record of the public API.
 *
 * Every function of nibble that can fail returns an nb_status: 0 or negative.
 * Functions that meet the outside world (files, configuration, requests) also
 * take a last argument `nb_error *err`.  It may be NULL; on failure it receives
 * one line that says what was wrong, where, and what was expected. */
#ifndef NIBBLE_STATUS_H
#define NIBBLE_STATUS_H

/* Functions that libnibble.so exports; all others are hidden. */
#if defined(__GNUC__)
#define NB_API __attribute__((visibility("default")))
#else
#define NB_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Value, name, text.  Values are part of the ABI and never reused. */
#define NB_STATUS_MAP(X)                                                                           \
    X(0, NB_OK, "ok")                                                                              \
    X(-1, NB_ERR_NOMEM, "out of memory")                                                           \
    X(-2, NB_ERR_IO, "input/output error")                                                         \
    X(-3, NB_ERR_FORMAT, "malformed input")                                                        \
    X(-4, NB_ERR_UNSUPPORTED, "not supported")                                                     \
    X(-5, NB_ERR_ARG, "invalid argument")                                                          \
    X(-6, NB_ERR_RANGE, "value out of range")                                                      \
    X(-7, NB_ERR_LIMIT, "limit exceeded")                                                          \
    X(-8, NB_ERR_NONFINITE, "non-finite value")                                                    \
    X(-9, NB_ERR_CANCELLED, "cancelled")                                                           \
    X(-10, NB_ERR_CAPACITY, "no free KV blocks")                                                   \
    X(-11, NB_ERR_NOT_FOUND, "not found")                                                          \
    X(-12, NB_ERR_INTERNAL, "internal error")                                                      \
    X(-13, NB_ERR_FAILED, "the engine has failed")

typedef enum nb_status {
#define NB_STATUS_ENUM(value, name, text) name = (value),
    NB_STATUS_MAP(NB_STATUS_ENUM)
#undef NB_STATUS_ENUM
} nb_status;

enum { NB_ERROR_MSG_BYTES = 1024 };

typedef struct nb_error {
    nb_status status;
    char msg[NB_ERROR_MSG_BYTES]; /* one line, no newline, always terminated */
} nb_error;

/* Static text of a status; never NULL. */
NB_API const char *nb_status_text(nb_status s);

#ifdef __cplusplus
}
#endif

#endif
