/* str.h - borrowed string views and growable byte buffers. */
#ifndef NB_BASE_STR_H
#define NB_BASE_STR_H
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"

/* A view: borrowed bytes, not terminated; valid as long as what it points to. */
typedef struct nb_str {
    const char *p;
    size_t n_bytes;
} nb_str;

static inline nb_str nb_str_c(const char *s)
{
    return (nb_str){ s, strlen(s) };
}
static inline bool nb_str_eq(nb_str a, nb_str b)
{
    return a.n_bytes == b.n_bytes && (a.n_bytes == 0 || memcmp(a.p, b.p, a.n_bytes) == 0);
}
static inline bool nb_str_eqc(nb_str a, const char *b)
{
    return nb_str_eq(a, nb_str_c(b));
}

/* A growable byte buffer on the heap; zero-initialise, free with nb_buf_deinit.
 * p is always followed by one 0 byte once anything was appended.  limit_bytes
 * (0 = none) bounds n_bytes: beyond it appending returns NB_ERR_LIMIT. */
typedef struct nb_buf {
    char *p;
    size_t n_bytes, cap_bytes, limit_bytes;
} nb_buf;

void nb_buf_deinit(nb_buf *b);
nb_status nb_buf_reserve(nb_buf *b, size_t more_bytes); /* NB_ERR_NOMEM, NB_ERR_LIMIT */
nb_status nb_buf_add(nb_buf *b, const void *p, size_t n_bytes);
nb_status nb_buf_add_str(nb_buf *b, nb_str s);
nb_status nb_buf_add_c(nb_buf *b, const char *s);
nb_status nb_buf_add_ch(nb_buf *b, char c);
nb_status nb_buf_printf(nb_buf *b, const char *fmt, ...) NB_PRINTF(2, 3);
static inline nb_str nb_buf_view(const nb_buf *b)
{
    return (nb_str){ b->p ? b->p : "", b->n_bytes };
}

/* Growable array of items of one size: *items grows so that index n_items fits.
 * Returns NB_ERR_NOMEM; on failure nothing changed. */
nb_status nb_grow(void **items, size_t *cap_items, size_t n_items, size_t item_bytes);
#define NB_GROW(ptr, cap, n) nb_grow((void **)&(ptr), &(cap), (n), sizeof *(ptr))

#endif
