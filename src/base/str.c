/* str.c - see str.h. */
#include "base/str.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void nb_buf_deinit(nb_buf *b)
{
    free(b->p);
    b->p = NULL;
    b->n_bytes = b->cap_bytes = 0;
}

nb_status nb_buf_reserve(nb_buf *b, size_t more_bytes)
{
    if (b->limit_bytes && more_bytes > b->limit_bytes - b->n_bytes) return NB_ERR_LIMIT;
    if (more_bytes > SIZE_MAX / 4 - b->n_bytes) return NB_ERR_NOMEM;
    const size_t need = b->n_bytes + more_bytes + 1;
    if (need <= b->cap_bytes) return NB_OK;
    size_t cap = b->cap_bytes ? b->cap_bytes : 64;
    while (cap < need) cap += cap / 2 + 16;
    char *p = realloc(b->p, cap);
    if (!p) return NB_ERR_NOMEM;
    b->p = p;
    b->cap_bytes = cap;
    return NB_OK;
}

nb_status nb_buf_add(nb_buf *b, const void *p, size_t n_bytes)
{
    NB_TRY(nb_buf_reserve(b, n_bytes));
    if (n_bytes) memcpy(b->p + b->n_bytes, p, n_bytes);
    b->n_bytes += n_bytes;
    b->p[b->n_bytes] = 0;
    return NB_OK;
}

nb_status nb_buf_add_str(nb_buf *b, nb_str s)
{
    return nb_buf_add(b, s.p, s.n_bytes);
}

nb_status nb_buf_add_c(nb_buf *b, const char *s)
{
    return nb_buf_add(b, s, strlen(s));
}

nb_status nb_buf_add_ch(nb_buf *b, char c)
{
    return nb_buf_add(b, &c, 1);
}

nb_status nb_buf_printf(nb_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) return NB_ERR_INTERNAL;
    NB_TRY(nb_buf_reserve(b, (size_t)n));
    va_start(ap, fmt);
    (void)vsnprintf(b->p + b->n_bytes, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n_bytes += (size_t)n;
    return NB_OK;
}

nb_status nb_grow(void **items, size_t *cap_items, size_t n_items, size_t item_bytes)
{
    if (n_items < *cap_items) return NB_OK;
    size_t cap = *cap_items ? *cap_items : 16;
    while (cap <= n_items) {
        if (cap > SIZE_MAX / 4) return NB_ERR_NOMEM;
        cap *= 2;
    }
    if (cap > SIZE_MAX / 2 / item_bytes) return NB_ERR_NOMEM;
    void *p = realloc(*items, cap * item_bytes);
    if (!p) return NB_ERR_NOMEM;
    *items = p;
    *cap_items = cap;
    return NB_OK;
}
