/* kv_cache.c - see kv_cache.h.
 *
 * All structures are arrays of n_block entries linked by ids: the stack of free blocks, one list
 * per class of cached blocks in order of release, hash chains, and for each indexed block the
 * list of the blocks that continue it.
 *
 * Who holds a block holds the blocks before it, and releases it before them; so a cached block is
 * never younger in its class than one that it continues, and the old end of `once` is a leaf.  Two things
 * can break this order: holds in another order, and a chain whose beginning left the index by a
 * reset and was computed anew.  Then eviction looks further for a leaf, and when every cached block is
 * continued by a held one, what continues the oldest leaves the index first. */
#include "kv/kv_cache.h"

#include <stdlib.h>

#include "base/hash.h"
#include "kv/kv_internal.h"

#define NONE NB_BLOCK_NONE

size_t nb_kv_bucket(const nb_kv_cache *c, const nb_block_key *key)
{
    return (size_t)nb_hash_bytes(key->b, sizeof key->b, 0) & c->bucket_mask;
}

static void push_free(nb_kv_cache *c, uint32_t id)
{
    c->block[id].next = c->free_head;
    c->free_head = id;
    c->n_free++;
}

static void class_add(nb_kv_cache *c, nb_kv_class *l, uint32_t id)
{
    nb_kv_block *b = &c->block[id];
    b->prev = l->young;
    b->next = NONE;
    if (l->young == NONE) {
        l->old = id;
    } else {
        c->block[l->young].next = id;
    }
    l->young = id;
    l->n++;
}

static void class_remove(nb_kv_cache *c, uint32_t id)
{
    nb_kv_block *b = &c->block[id];
    nb_kv_class *l = b->many ? &c->many : &c->once;
    if (b->prev == NONE) {
        l->old = b->next;
    } else {
        c->block[b->prev].next = b->next;
    }
    if (b->next == NONE) {
        l->young = b->prev;
    } else {
        c->block[b->next].prev = b->prev;
    }
    l->n--;
}

/* The block is cached from now on. */
static void cache_block(nb_kv_cache *c, uint32_t id)
{
    const nb_kv_block *b = &c->block[id];
    if (!c->leaves) {
        class_add(c, b->many ? &c->many : &c->once, id);
        return;
    }
    c->once.n++;
    nb_kv_leaves_released(c->leaves, id, b->n_hit);
    if (b->child == NONE) nb_kv_leaves_add(c->leaves, id);
}

static void uncache_block(nb_kv_cache *c, uint32_t id)
{
    if (!c->leaves) {
        class_remove(c, id);
        return;
    }
    c->once.n--;
    nb_kv_leaves_remove(c->leaves, id);
}

/* The oldest `many` block goes to the young end of `once`. */
static uint32_t demote(nb_kv_cache *c)
{
    const uint32_t id = c->many.old;
    class_remove(c, id);
    c->block[id].many = false;
    class_add(c, &c->once, id);
    return id;
}

static void enter_index(nb_kv_cache *c, uint32_t id, const nb_block_key *key, uint32_t parent)
{
    nb_kv_block *b = &c->block[id];
    uint32_t *head = &c->bucket[nb_kv_bucket(c, key)];
    b->key = *key;
    b->chain = *head;
    *head = id;
    b->parent = parent != NONE && c->block[parent].indexed ? parent : NONE;
    b->child = NONE;
    b->sib_prev = b->sib_next = NONE;
    if (b->parent != NONE) {
        nb_kv_block *p = &c->block[b->parent];
        b->sib_next = p->child;
        if (p->child != NONE) c->block[p->child].sib_prev = id;
        p->child = id;
        if (c->leaves) nb_kv_leaves_remove(c->leaves, b->parent);
    }
    if (c->leaves) nb_kv_leaves_published(c->leaves, id, b->parent);
    b->indexed = true;
    b->many = false;
    b->n_hit = 0;
    c->n_indexed++;
}

/* Of a block that no indexed block continues. */
static void leave_index(nb_kv_cache *c, uint32_t id)
{
    nb_kv_block *b = &c->block[id];
    nb_kv_snap_drop(c, id);
    uint32_t *at = &c->bucket[nb_kv_bucket(c, &b->key)];
    while (*at != id) at = &c->block[*at].chain;
    *at = b->chain;
    if (b->sib_prev != NONE) {
        c->block[b->sib_prev].sib_next = b->sib_next;
    } else if (b->parent != NONE) {
        c->block[b->parent].child = b->sib_next;
    }
    if (b->sib_next != NONE) c->block[b->sib_next].sib_prev = b->sib_prev;
    if (c->leaves && b->parent != NONE) {
        const nb_kv_block *p = &c->block[b->parent];
        if (p->child == NONE && p->n_ref == 0) nb_kv_leaves_add(c->leaves, b->parent);
    }
    b->parent = b->child = b->sib_prev = b->sib_next = NONE;
    b->indexed = b->many = false;
    b->n_hit = 0;
    c->n_indexed--;
}

/* All blocks that continue `root` leave the index, the last ones first. */
static void prune(nb_kv_cache *c, uint32_t root)
{
    uint32_t id = root;
    while (c->block[root].child != NONE) {
        while (c->block[id].child != NONE) id = c->block[id].child;
        const uint32_t parent = c->block[id].parent;
        const bool cached = c->block[id].n_ref == 0;
        if (cached) uncache_block(c, id);
        leave_index(c, id);
        if (cached) push_free(c, id);
        c->n_evicted++;
        id = parent;
    }
}

/* Of the leaves; when there is none although blocks are cached, what continues one of them leaves. */
static uint32_t leaf_victim(nb_kv_cache *c)
{
    if (!c->leaves->n && c->once.n) {
        uint32_t id = 0;
        while (c->block[id].n_ref || !c->block[id].indexed) id++;
        prune(c, id);
    }
    return nb_kv_leaves_victim(c->leaves);
}

/* The cached block to give up, or NONE. */
static uint32_t victim(nb_kv_cache *c)
{
    if (c->leaves) return leaf_victim(c);
    for (uint32_t id = c->once.old; id != NONE; id = c->block[id].next)
        if (c->block[id].child == NONE) return id;
    while (c->many.n) {
        const uint32_t id = demote(c);
        if (c->block[id].child == NONE) return id;
    }
    if (c->once.n) prune(c, c->once.old);
    return c->once.old;
}

nb_status nb_kv_cache_create(const nb_kv_cache_options *o, nb_kv_cache **out, nb_error *err)
{
    if (o->n_block == 0 || o->n_block >= NONE)
        return nb_fail(err, NB_ERR_ARG, "KV cache: %zu blocks; expected 1 to %lu", o->n_block,
                       (unsigned long)NONE - 1);
    if (!(o->protected_share >= 0 && o->protected_share <= 1))
        return nb_fail(err, NB_ERR_ARG, "KV cache: protected share %g; expected 0 to 1",
                       o->protected_share);
    if (o->evict >= NB_KV_N_EVICT)
        return nb_fail(err, NB_ERR_ARG, "KV cache: policy %d; expected 0 to %d", (int)o->evict,
                       NB_KV_N_EVICT - 1);
    if (o->n_snap >= NONE)
        return nb_fail(err, NB_ERR_ARG, "KV cache: %zu snapshots; expected 0 to %lu", o->n_snap,
                       (unsigned long)NONE - 1);
    nb_kv_cache *c = calloc(1, sizeof *c);
    if (!c) return nb_fail(err, NB_ERR_NOMEM, "KV cache: out of memory");
    c->block = calloc(o->n_block, sizeof *c->block);
    size_t n_bucket = 1;
    while (c->block && n_bucket < o->n_block) n_bucket *= 2;
    c->bucket = calloc(n_bucket, sizeof *c->bucket);
    nb_status st = NB_OK;
    if (o->evict != NB_KV_EVICT_CLASSES) st = nb_kv_leaves_create(o->evict, o->n_block, &c->leaves);
    if (st == NB_OK) st = nb_kv_snaps_create(c, o->n_snap);
    if (!c->block || !c->bucket || st != NB_OK) {
        nb_kv_cache_destroy(c);
        return nb_fail(err, NB_ERR_NOMEM, "KV cache: no memory for the names of %zu blocks",
                       o->n_block);
    }
    c->bucket_mask = n_bucket - 1;
    c->n_block = o->n_block;
    c->index = o->index;
    c->many_cap = (size_t)(o->protected_share * (double)o->n_block);
    c->once = c->many = (nb_kv_class){ NONE, NONE, 0 };
    c->free_head = NONE;
    for (size_t i = 0; i < n_bucket; i++) c->bucket[i] = NONE;
    for (size_t i = o->n_block; i-- > 0;) { /* a short run touches the lowest blocks */
        nb_kv_block *b = &c->block[i];
        b->parent = b->child = b->sib_prev = b->sib_next = b->snap = NONE;
        push_free(c, (uint32_t)i);
    }
    *out = c;
    return NB_OK;
}

void nb_kv_cache_destroy(nb_kv_cache *c)
{
    if (!c) return;
    nb_kv_leaves_destroy(c->leaves);
    free(c->snap);
    free(c->block);
    free(c->bucket);
    free(c);
}

uint32_t nb_kv_cache_find(const nb_kv_cache *c, const nb_block_key *key)
{
    uint32_t id = c->bucket[nb_kv_bucket(c, key)];
    while (id != NONE && memcmp(c->block[id].key.b, key->b, sizeof key->b) != 0)
        id = c->block[id].chain;
    return id;
}

/* The youngest child is nearly always the one: no hash, and one block to read instead of two places. */
uint32_t nb_kv_cache_find_next(const nb_kv_cache *c, uint32_t parent, const nb_block_key *key)
{
    NB_ASSERT(parent < c->n_block);
    const uint32_t id = c->block[parent].child;
    if (id != NONE && memcmp(c->block[id].key.b, key->b, sizeof key->b) == 0) return id;
    return nb_kv_cache_find(c, key);
}

void nb_kv_cache_hold(nb_kv_cache *c, uint32_t id, bool hit)
{
    NB_ASSERT(id < c->n_block);
    nb_kv_block *b = &c->block[id];
    NB_ASSERT((b->n_ref || b->indexed) && b->n_ref < UINT32_MAX);
    if (b->n_ref++ == 0) uncache_block(c, id);
    if (hit && b->indexed) {
        b->many = !c->leaves;
        if (b->n_hit < UINT32_MAX) b->n_hit++;
    }
}

nb_status nb_kv_cache_acquire(nb_kv_cache *c, uint32_t *out)
{
    uint32_t id;
    if (!c->n_free) {
        id = victim(c);
        if (id == NONE) return NB_ERR_CAPACITY;
        uncache_block(c, id);
        leave_index(c, id);
        c->n_evicted++;
    } else {
        id = c->free_head;
        c->free_head = c->block[id].next;
        c->n_free--;
    }
    c->block[id].n_ref = 1;
    *out = id;
    return NB_OK;
}

uint32_t nb_kv_cache_publish(nb_kv_cache *c, uint32_t id, const nb_block_key *key, uint32_t parent)
{
    NB_ASSERT(id < c->n_block && (parent == NONE || parent < c->n_block) && id != parent);
    nb_kv_block *b = &c->block[id];
    NB_ASSERT(b->n_ref && !b->indexed);
    if (!c->index) return id;
    const uint32_t have = nb_kv_cache_find(c, key);
    if (have == NONE) {
        enter_index(c, id, key, parent);
        c->n_published++;
        return id;
    }
    nb_kv_cache_hold(c, have, false);
    if (--b->n_ref == 0) push_free(c, id);
    c->n_duplicate++;
    return have;
}

void nb_kv_cache_release(nb_kv_cache *c, const uint32_t *id, size_t n)
{
    for (size_t i = n; i-- > 0;) {
        NB_ASSERT(id[i] < c->n_block);
        nb_kv_block *b = &c->block[id[i]];
        NB_ASSERT(b->n_ref);
        if (--b->n_ref) continue;
        if (b->indexed) {
            cache_block(c, id[i]);
            if (c->many.n > c->many_cap) (void)demote(c);
        } else {
            push_free(c, id[i]);
        }
    }
}

size_t nb_kv_cache_available(const nb_kv_cache *c)
{
    return c->n_free + c->once.n + c->many.n;
}

size_t nb_kv_cache_reset(nb_kv_cache *c)
{
    const size_t n = c->n_indexed;
    for (size_t i = c->n_block; i-- > 0;) {
        nb_kv_block *b = &c->block[i];
        if (!b->indexed) continue;
        nb_kv_snap_drop(c, (uint32_t)i);
        b->parent = b->child = b->sib_prev = b->sib_next = NONE;
        b->indexed = b->many = false;
        b->n_hit = 0;
        if (b->n_ref == 0) push_free(c, (uint32_t)i);
    }
    for (size_t i = 0; i <= c->bucket_mask; i++) c->bucket[i] = NONE;
    c->once = c->many = (nb_kv_class){ NONE, NONE, 0 };
    if (c->leaves) nb_kv_leaves_reset(c->leaves, c->n_block);
    c->n_indexed = 0;
    return n;
}

void nb_kv_cache_get_stats(const nb_kv_cache *c, nb_kv_cache_stats *s)
{
    *s = (nb_kv_cache_stats){ .n_block = c->n_block,
                              .n_free = c->n_free,
                              .n_held = c->n_block - nb_kv_cache_available(c),
                              .n_once = c->once.n,
                              .n_many = c->many.n,
                              .n_indexed = c->n_indexed,
                              .n_evicted = c->n_evicted,
                              .n_published = c->n_published,
                              .n_duplicate = c->n_duplicate,
                              .n_snap = c->n_snap,
                              .n_snap_used = c->n_snap_used,
                              .n_snap_taken = c->n_snap_taken };
    for (size_t i = 0; i < c->n_snap; i++) s->n_snap_pin += c->snap[i].n_pin;
}

void nb_kv_cache_block(const nb_kv_cache *c, uint32_t id, nb_kv_block_info *info)
{
    NB_ASSERT(id < c->n_block);
    const nb_kv_block *b = &c->block[id];
    *info = (nb_kv_block_info){ .n_ref = b->n_ref,
                                .parent = b->parent,
                                .n_hit = b->n_hit,
                                .indexed = b->indexed,
                                .many = b->many };
    if (b->indexed) info->key = b->key;
}
