/* kv_check.c - walks every structure of nb_kv_cache.  Each walk is bounded by the number of
 * blocks, so that a broken list is reported and not followed for ever. */
#include "kv/kv_internal.h"

#define NONE NB_BLOCK_NONE

static const char *check_free(const nb_kv_cache *c, size_t part)
{
    const nb_kv_share *p = &c->part[part];
    size_t n = 0;
    for (uint32_t id = p->free_head; id != NONE; id = c->block[id].next) {
        if (id >= c->n_block) return "free list: id out of range";
        if (nb_kv_part_of(c, id) != part) return "free list: a block of another part";
        if (++n > p->n_free) return "free list: longer than its count";
        if (c->block[id].n_ref) return "free list: a held block";
        if (c->block[id].indexed) return "free list: an indexed block";
    }
    return n == p->n_free ? NULL : "free list: shorter than its count";
}

static const char *check_class(const nb_kv_cache *c, size_t part, bool many)
{
    const nb_kv_class *l = many ? &c->part[part].many : &c->part[part].once;
    size_t n = 0;
    uint32_t prev = NONE;
    for (uint32_t id = l->old; id != NONE; prev = id, id = c->block[id].next) {
        if (id >= c->n_block) return "class: id out of range";
        if (nb_kv_part_of(c, id) != part) return "class: a block of another part";
        if (++n > l->n) return "class: longer than its count";
        const nb_kv_block *b = &c->block[id];
        if (b->n_ref) return "class: a held block";
        if (!b->indexed) return "class: a block that is not indexed";
        if (b->many != many) return "class: a block of the other class";
        if (b->prev != prev) return "class: links disagree";
    }
    if (l->young != prev) return "class: wrong young end";
    return n == l->n ? NULL : "class: shorter than its count";
}

static const char *check_buckets(const nb_kv_cache *c)
{
    size_t n = 0;
    for (size_t i = 0; i <= c->bucket_mask; i++) {
        for (uint32_t id = c->bucket[i]; id != NONE; id = c->block[id].chain) {
            if (id >= c->n_block) return "index: id out of range";
            if (++n > c->n_indexed) return "index: more entries than its count";
            if (!c->block[id].indexed) return "index: a block that is not indexed";
            if (nb_kv_bucket(c, &c->block[id].key) != i) return "index: a key in a wrong bucket";
        }
    }
    return n == c->n_indexed ? NULL : "index: fewer entries than its count";
}

/* The children of block id name it as their parent; adds their number to *n_child. */
static const char *check_children(const nb_kv_cache *c, uint32_t id, size_t *n_child)
{
    uint32_t prev = NONE;
    for (uint32_t k = c->block[id].child; k != NONE; prev = k, k = c->block[k].sib_next) {
        if (k >= c->n_block) return "tree: id out of range";
        if (++*n_child > c->n_block) return "tree: more children than blocks";
        if (c->block[k].parent != id) return "tree: a child of another parent";
        if (c->block[k].sib_prev != prev) return "tree: links of children disagree";
        if (!c->block[k].indexed) return "tree: a child that is not indexed";
    }
    return NULL;
}

static const char *check_blocks(const nb_kv_cache *c)
{
    size_t n_free = 0, n_cached = 0, n_indexed = 0, n_child = 0, n_parent = 0;
    nb_kv_cache_stats s;
    nb_kv_cache_get_stats(c, &s);
    for (uint32_t id = 0; id < c->n_block; id++) {
        const nb_kv_block *b = &c->block[id];
        if (b->n_ref == 0) {
            if (b->indexed) {
                n_cached++;
            } else {
                n_free++;
            }
        }
        if (b->indexed) {
            n_indexed++;
            if (nb_kv_cache_find(c, &b->key) != id) return "index: a block is not found by its key";
        } else if (b->many || b->n_hit || b->parent != NONE || b->child != NONE) {
            return "index: marks on a block that is not indexed";
        }
        if (b->parent != NONE) {
            n_parent++;
            if (b->parent >= c->n_block || !c->block[b->parent].indexed)
                return "tree: a parent that is not indexed";
        }
        if (b->indexed && c->n_part > 1 && b->at &&
            (b->parent == NONE || nb_kv_part_of(c, b->parent) != nb_kv_part_of(c, id) ||
             c->block[b->parent].at + 1 != b->at))
            return "parts: a unit in pieces";
        const char *what = check_children(c, id, &n_child);
        if (what) return what;
    }
    if (n_free != s.n_free) return "blocks: a free block is lost";
    if (n_cached != s.n_once + s.n_many) return "blocks: a cached block is lost";
    if (n_indexed != c->n_indexed) return "blocks: wrong number of indexed ones";
    return n_child == n_parent ? NULL : "tree: a child is lost";
}

static const char *check_part(const nb_kv_cache *c, size_t part)
{
    const char *what = check_free(c, part);
    if (!what && !c->leaves) what = check_class(c, part, false);
    if (!what) what = check_class(c, part, true);
    if (!what && c->part[part].many.n > c->many_cap) what = "class: more `many` blocks than their share";
    return what;
}

const char *nb_kv_cache_check(const nb_kv_cache *c)
{
    const char *what = NULL;
    for (size_t k = 0; !what && k < c->n_part; k++) what = check_part(c, k);
    if (!what && c->leaves) what = nb_kv_leaves_check(c);
    if (!what) what = check_buckets(c);
    if (!what) what = check_blocks(c);
    if (!what) what = nb_kv_snaps_check(c);
    if (!what && !c->index && c->n_indexed) what = "index: in use although switched off";
    return what;
}
