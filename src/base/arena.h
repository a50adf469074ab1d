/* arena.h - bump allocation with one lifetime.
 *
 * An arena owns chunks; everything allocated from it dies with nb_arena_deinit
 * (or nb_arena_reset, which keeps the largest chunk).  Not locked: one owner. */
#ifndef NB_BASE_ARENA_H
#define NB_BASE_ARENA_H
#include <stddef.h>

#include "base/str.h"

typedef struct nb_arena_chunk nb_arena_chunk;
typedef struct nb_arena {
    nb_arena_chunk *head;
    size_t used_bytes; /* handed out since the last reset */
} nb_arena;

void nb_arena_deinit(nb_arena *a);
void nb_arena_reset(nb_arena *a);

/* Zeroed memory aligned to 64 bytes, or NULL when out of memory. */
void *nb_arena_alloc(nb_arena *a, size_t n_bytes);
/* n * item_bytes with an overflow check. */
void *nb_arena_array(nb_arena *a, size_t n, size_t item_bytes);
/* A terminated copy of s, or NULL. */
char *nb_arena_strdup(nb_arena *a, nb_str s);

#endif
