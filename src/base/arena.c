/* arena.c - see arena.h. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>

enum { ARENA_ALIGN = 64, ARENA_CHUNK_BYTES = 64 * 1024 };

struct nb_arena_chunk {
    nb_arena_chunk *next;
    size_t cap_bytes, used_bytes;
};

static size_t head_bytes(void)
{
    return (sizeof(nb_arena_chunk) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

void nb_arena_deinit(nb_arena *a)
{
    while (a->head) {
        nb_arena_chunk *next = a->head->next;
        free(a->head);
        a->head = next;
    }
    a->used_bytes = 0;
}

void nb_arena_reset(nb_arena *a)
{
    nb_arena_chunk *best = NULL, *c = a->head;
    while (c) {
        nb_arena_chunk *next = c->next;
        if (!best || c->cap_bytes > best->cap_bytes) {
            free(best);
            best = c;
        } else {
            free(c);
        }
        c = next;
    }
    if (best) {
        best->next = NULL;
        best->used_bytes = 0;
    }
    a->head = best;
    a->used_bytes = 0;
}

void *nb_arena_alloc(nb_arena *a, size_t n_bytes)
{
    if (n_bytes > SIZE_MAX / 4) return NULL;
    const size_t need = (n_bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    nb_arena_chunk *c = a->head;
    if (!c || c->cap_bytes - c->used_bytes < need) {
        const size_t cap = need > ARENA_CHUNK_BYTES ? need : ARENA_CHUNK_BYTES;
        c = aligned_alloc(ARENA_ALIGN, head_bytes() + cap);
        if (!c) return NULL;
        *c = (nb_arena_chunk){ .next = a->head, .cap_bytes = cap };
        a->head = c;
    }
    char *p = (char *)c + head_bytes() + c->used_bytes;
    c->used_bytes += need;
    a->used_bytes += need;
    memset(p, 0, need);
    return p;
}

void *nb_arena_array(nb_arena *a, size_t n, size_t item_bytes)
{
    if (item_bytes && n > SIZE_MAX / 4 / item_bytes) return NULL;
    return nb_arena_alloc(a, n * item_bytes);
}

char *nb_arena_strdup(nb_arena *a, nb_str s)
{
    char *p = nb_arena_alloc(a, s.n_bytes + 1);
    if (p && s.n_bytes) memcpy(p, s.p, s.n_bytes);
    return p;
}
