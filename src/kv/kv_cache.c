/* kv_cache.c - see kv_cache.h.
 *
 * All structures are arrays of n_block entries linked by ids: of each part the stack of free blocks and one list
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
    nb_kv_share *p = &c->part[nb_kv_part_of(c, id)];
    c->block[id].next = p->free_head;
    p->free_head = id;
    p->n_free++;
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
    nb_kv_share *p = &c->part[nb_kv_part_of(c, id)];
    nb_kv_class *l = b->many ? &p->many : &p->once;
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
    nb_kv_share *p = &c->part[nb_kv_part_of(c, id)];
    if (!c->leaves) {
        class_add(c, b->many ? &p->many : &p->once, id);
        return;
    }
    p->once.n++;
    nb_kv_leaves_released(c->leaves, id, b->n_hit);
    if (b->child == NONE) nb_kv_leaves_add(c->leaves, id);
}

static void uncache_block(nb_kv_cache *c, uint32_t id)
{
    if (!c->leaves) {
        class_remove(c, id);
        return;
    }
    c->part[0].once.n--;
    nb_kv_leaves_remove(c->leaves, id);
}

/* The oldest `many` block goes to the young end of `once`. */
static uint32_t demote(nb_kv_cache *c, nb_kv_share *p)
{
    const uint32_t id = p->many.old;
    class_remove(c, id);
    c->block[id].many = false;
    class_add(c, &p->once, id);
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
    if (!c->leaves->n && c->part[0].once.n) {
        uint32_t id = 0;
        while (c->block[id].n_ref || !c->block[id].indexed) id++;
        prune(c, id);
    }
    return nb_kv_leaves_victim(c->leaves);
}

/* The cached block of the part to give up, or NONE.  With several parts the leaf of an old chain may be in another one:
 * the oldest goes, after what continues it. */
static uint32_t victim(nb_kv_cache *c, nb_kv_share *p)
{
    if (c->leaves) return leaf_victim(c);
    const bool one = c->n_part == 1;
    for (uint32_t id = p->once.old; one && id != NONE; id = c->block[id].next)
        if (c->block[id].child == NONE) return id;
    while (p->many.n && (one || !p->once.n)) {
        const uint32_t id = demote(c, p);
        if (one && c->block[id].child == NONE) return id;
    }
    if (p->once.n) prune(c, p->once.old);
    return p->once.old;
}

/* Blocks that the part can hand out. */
static size_t part_available(const nb_kv_share *p)
{
    return p->n_free + p->once.n + p->many.n;
}

/* Where a unit begins: the part with most of these, the first of equals. */
static size_t fullest(const size_t *n, size_t n_part)
{
    size_t best = 0;
    for (size_t k = 1; k < n_part; k++)
        if (n[k] > n[best]) best = k;
    return best;
}

static nb_status check_parts(const nb_kv_cache_options *o, nb_error *err)
{
    if (o->n_part <= 1) return NB_OK;
    if (o->n_part > NB_KV_MAX_PART || o->n_block % (o->n_part * NB_KV_UNIT_BLOCKS))
        return nb_fail(err, NB_ERR_ARG, "KV cache: %zu blocks in %zu parts; expected 1 to %d parts of a multiple of %d blocks",
                       o->n_block, o->n_part, NB_KV_MAX_PART, NB_KV_UNIT_BLOCKS);
    if (o->evict != NB_KV_EVICT_CLASSES || o->n_snap)
        return nb_fail(err, NB_ERR_ARG, "KV cache: with %zu parts only the engine's policy, and no snapshots", o->n_part);
    return NB_OK;
}

static void empty_parts(nb_kv_cache *c)
{
    for (size_t k = 0; k < c->n_part; k++)
        c->part[k].once = c->part[k].many = (nb_kv_class){ NONE, NONE, 0 };
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
    NB_TRY(check_parts(o, err));
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
    c->n_part = o->n_part > 1 ? o->n_part : 1;
    c->part_blocks = o->n_block / c->n_part;
    c->index = o->index;
    c->many_cap = (size_t)(o->protected_share * (double)c->part_blocks);
    empty_parts(c);
    for (size_t k = 0; k < c->n_part; k++) c->part[k].free_head = NONE;
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

/* The part of the block after `before`, if each part has n[k] to hand out; *at: its place in its unit. */
static size_t next_part(const nb_kv_cache *c, uint32_t before, const size_t *n, uint8_t *at)
{
    NB_ASSERT(before == NONE || before < c->n_block);
    *at = (uint8_t)(before == NONE ? 0 : (c->block[before].at + 1) % NB_KV_UNIT_BLOCKS);
    return *at ? nb_kv_part_of(c, before) : fullest(n, c->n_part);
}

static void count_available(const nb_kv_cache *c, size_t n[NB_KV_MAX_PART])
{
    for (size_t k = 0; k < c->n_part; k++) n[k] = part_available(&c->part[k]);
}

nb_status nb_kv_cache_acquire(nb_kv_cache *c, uint32_t *out)
{
    return nb_kv_cache_acquire_after(c, NONE, out);
}

nb_status nb_kv_cache_acquire_after(nb_kv_cache *c, uint32_t before, uint32_t *out)
{
    uint32_t id;
    uint8_t at;
    size_t n[NB_KV_MAX_PART];
    count_available(c, n);
    nb_kv_share *p = &c->part[next_part(c, before, n, &at)];
    if (!p->n_free) {
        id = victim(c, p);
        if (id == NONE) return NB_ERR_CAPACITY;
        uncache_block(c, id);
        leave_index(c, id);
        c->n_evicted++;
    } else {
        id = p->free_head;
        p->free_head = c->block[id].next;
        p->n_free--;
    }
    c->block[id].n_ref = 1;
    c->block[id].at = at;
    *out = id;
    return NB_OK;
}

size_t nb_kv_cache_lacks(const nb_kv_cache *c, const uint32_t *hit, size_t n_hit, size_t n)
{
    size_t have[NB_KV_MAX_PART], need[NB_KV_MAX_PART] = { 0 };
    count_available(c, have);
    for (size_t i = 0; i < n_hit; i++) need[nb_kv_part_of(c, hit[i])] += c->block[hit[i]].n_ref == 0;
    if (c->n_part == 1) return need[0] + n > have[0] ? need[0] + n - have[0] : 0;
    for (size_t k = 0; k < c->n_part; k++) have[k] -= need[k]; /* cached blocks are among these */
    uint8_t at;
    size_t part = next_part(c, n_hit ? hit[n_hit - 1] : NONE, have, &at);
    for (; n; n--, at = (uint8_t)((at + 1) % NB_KV_UNIT_BLOCKS)) {
        if (at == 0) part = fullest(have, c->n_part);
        if (have[part]-- == 0) return 1;
    }
    return 0;
}

bool nb_kv_cache_any_follows(const nb_kv_cache *c, uint32_t before, const uint32_t *id, size_t n)
{
    const bool begins = before == NONE || (c->block[before].at + 1) % NB_KV_UNIT_BLOCKS == 0;
    if (c->n_part == 1 || begins) return n > 0;
    for (size_t i = 0; i < n; i++)
        if (nb_kv_part_of(c, id[i]) == nb_kv_part_of(c, before)) return true;
    return false;
}

/* Whether the block may be found: all of its unit that is before it is found, in its part. */
static bool continues_unit(const nb_kv_cache *c, uint32_t id, uint32_t parent)
{
    if (c->n_part == 1 || c->block[id].at == 0) return true;
    return parent != NONE && c->block[parent].indexed && nb_kv_part_of(c, parent) == nb_kv_part_of(c, id);
}

uint32_t nb_kv_cache_publish(nb_kv_cache *c, uint32_t id, const nb_block_key *key, uint32_t parent)
{
    NB_ASSERT(id < c->n_block && (parent == NONE || parent < c->n_block) && id != parent);
    nb_kv_block *b = &c->block[id];
    NB_ASSERT(b->n_ref && !b->indexed);
    if (!c->index || !continues_unit(c, id, parent)) return id;
    const uint32_t have = nb_kv_cache_find(c, key);
    if (have == NONE) {
        enter_index(c, id, key, parent);
        c->n_published++;
        return id;
    }
    if (nb_kv_part_of(c, have) != nb_kv_part_of(c, id)) return id;
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
            nb_kv_share *p = &c->part[nb_kv_part_of(c, id[i])];
            if (p->many.n > c->many_cap) (void)demote(c, p);
        } else {
            push_free(c, id[i]);
        }
    }
}

size_t nb_kv_cache_available(const nb_kv_cache *c)
{
    size_t n = 0;
    for (size_t k = 0; k < c->n_part; k++) n += part_available(&c->part[k]);
    return n;
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
    empty_parts(c);
    if (c->leaves) nb_kv_leaves_reset(c->leaves, c->n_block);
    c->n_indexed = 0;
    return n;
}

void nb_kv_cache_get_stats(const nb_kv_cache *c, nb_kv_cache_stats *s)
{
    *s = (nb_kv_cache_stats){ .n_block = c->n_block,
                              .n_held = c->n_block - nb_kv_cache_available(c),
                              .n_indexed = c->n_indexed,
                              .n_evicted = c->n_evicted,
                              .n_published = c->n_published,
                              .n_duplicate = c->n_duplicate,
                              .n_snap = c->n_snap,
                              .n_snap_used = c->n_snap_used,
                              .n_snap_taken = c->n_snap_taken };
    for (size_t k = 0; k < c->n_part; k++) {
        s->n_free += c->part[k].n_free;
        s->n_once += c->part[k].once.n;
        s->n_many += c->part[k].many.n;
    }
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
                                .many = b->many,
                                .part = (uint32_t)nb_kv_part_of(c, id),
                                .at = b->at };
    if (b->indexed) info->key = b->key;
}
