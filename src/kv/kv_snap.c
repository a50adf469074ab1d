/* kv_snap.c - which blocks have a snapshot of the states at their end: places, pins, and the order of their use.
 *
 * A place that belongs to a block is in the list in order of use; a free one is on a stack; one that is pinned and
 * belongs to no block is in neither. */
#include <stdlib.h>

#include "kv/kv_internal.h"

#define NONE NB_SNAP_NONE

nb_status nb_kv_snaps_create(nb_kv_cache *c, size_t n)
{
    c->n_snap = n;
    c->snap_free = c->snap_old = c->snap_young = NONE;
    if (n == 0) return NB_OK;
    c->snap = calloc(n, sizeof *c->snap);
    if (!c->snap) return NB_ERR_NOMEM;
    for (size_t i = n; i-- > 0;) { /* a short run touches the lowest places */
        c->snap[i] = (nb_kv_snap){ NONE, 0, NONE, c->snap_free };
        c->snap_free = (uint32_t)i;
    }
    return NB_OK;
}

static void list_add(nb_kv_cache *c, uint32_t id)
{
    nb_kv_snap *s = &c->snap[id];
    s->prev = c->snap_young;
    s->next = NONE;
    if (s->prev == NONE) {
        c->snap_old = id;
    } else {
        c->snap[s->prev].next = id;
    }
    c->snap_young = id;
    c->n_snap_used++;
}

static void list_remove(nb_kv_cache *c, uint32_t id)
{
    const nb_kv_snap *s = &c->snap[id];
    if (s->prev == NONE) {
        c->snap_old = s->next;
    } else {
        c->snap[s->prev].next = s->next;
    }
    if (s->next == NONE) {
        c->snap_young = s->prev;
    } else {
        c->snap[s->next].prev = s->prev;
    }
    c->n_snap_used--;
}

static void push_free(nb_kv_cache *c, uint32_t id)
{
    c->snap[id].next = c->snap_free;
    c->snap_free = id;
}

/* The place belongs to no block any more; it is in no list afterwards. */
static void detach(nb_kv_cache *c, uint32_t id)
{
    list_remove(c, id);
    c->block[c->snap[id].block].snap = NONE;
    c->snap[id].block = NB_BLOCK_NONE;
}

uint32_t nb_kv_snap_of(const nb_kv_cache *c, uint32_t block)
{
    NB_ASSERT(block < c->n_block);
    return c->block[block].snap;
}

uint32_t nb_kv_snap_acquire(nb_kv_cache *c)
{
    uint32_t id = c->snap_free;
    if (id != NONE) {
        c->snap_free = c->snap[id].next;
    } else {
        for (id = c->snap_old; id != NONE && c->snap[id].n_pin; id = c->snap[id].next) continue;
        if (id == NONE) return NONE;
        detach(c, id);
        c->n_snap_taken++;
    }
    c->snap[id].n_pin = 1;
    return id;
}

void nb_kv_snap_give(nb_kv_cache *c, uint32_t snap, uint32_t block)
{
    NB_ASSERT(snap < c->n_snap && block < c->n_block);
    NB_ASSERT(c->snap[snap].n_pin == 1 && c->snap[snap].block == NB_BLOCK_NONE);
    nb_kv_block *b = &c->block[block];
    if (b->indexed && b->snap == NONE) {
        c->snap[snap].block = block;
        b->snap = snap;
        list_add(c, snap);
    }
    nb_kv_snap_unpin(c, snap);
}

void nb_kv_snap_pin(nb_kv_cache *c, uint32_t snap)
{
    NB_ASSERT(snap < c->n_snap && c->snap[snap].block != NB_BLOCK_NONE);
    NB_ASSERT(c->snap[snap].n_pin < UINT32_MAX);
    c->snap[snap].n_pin++;
    list_remove(c, snap);
    list_add(c, snap);
}

void nb_kv_snap_unpin(nb_kv_cache *c, uint32_t snap)
{
    NB_ASSERT(snap < c->n_snap && c->snap[snap].n_pin);
    if (--c->snap[snap].n_pin == 0 && c->snap[snap].block == NB_BLOCK_NONE) push_free(c, snap);
}

void nb_kv_snap_drop(nb_kv_cache *c, uint32_t block)
{
    const uint32_t id = c->block[block].snap;
    if (id == NONE) return;
    detach(c, id);
    if (c->snap[id].n_pin == 0) push_free(c, id);
}

/* ---- check ---- */

const char *nb_kv_snaps_check(const nb_kv_cache *c)
{
    size_t n_free = 0, n_used = 0, n_pinned = 0, n_block = 0;
    for (uint32_t id = c->snap_free; id != NONE; id = c->snap[id].next) {
        if (id >= c->n_snap || ++n_free > c->n_snap) return "snapshots: a broken stack";
        if (c->snap[id].n_pin || c->snap[id].block != NB_BLOCK_NONE)
            return "snapshots: a free place in use";
    }
    uint32_t prev = NONE;
    for (uint32_t id = c->snap_old; id != NONE; prev = id, id = c->snap[id].next) {
        if (id >= c->n_snap || ++n_used > c->n_snap) return "snapshots: a broken list";
        const nb_kv_snap *s = &c->snap[id];
        if (s->prev != prev) return "snapshots: links disagree";
        if (s->block >= c->n_block || c->block[s->block].snap != id)
            return "snapshots: a block that does not know its snapshot";
    }
    if (c->snap_young != prev || n_used != c->n_snap_used) return "snapshots: wrong young end";
    for (size_t i = 0; i < c->n_snap; i++)
        n_pinned += c->snap[i].n_pin && c->snap[i].block == NB_BLOCK_NONE;
    for (size_t i = 0; i < c->n_block; i++) {
        if (c->block[i].snap == NONE) continue;
        n_block++;
        if (!c->block[i].indexed) return "snapshots: of a block that is not indexed";
    }
    if (n_block != n_used) return "snapshots: blocks and places disagree";
    return n_free + n_used + n_pinned == c->n_snap ? NULL : "snapshots: a place is lost";
}
