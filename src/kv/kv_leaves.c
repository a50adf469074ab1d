/* kv_leaves.c - the policies that the engine's is compared with: a binary heap of the cached
 * blocks that no indexed block continues, by rank.
 *
 * A rank is (major, minor), set when a block is published or released, and kept while the block is
 * no leaf.  There are as many leaves as there are ends of cached texts, so the heap is small.  With
 * `random` all ranks are equal: the heap is an array in any order, and the victim any of it. */
#include <stdlib.h>

#include "base/rng.h"
#include "kv/kv_internal.h"

#define NONE NB_BLOCK_NONE

const char *nb_kv_evict_name(size_t i)
{
    static const char *const names[] = { "classes", "lru",     "fifo",  "lfu",
                                         "aged",    "longest", "random" };
    return i < sizeof names / sizeof *names ? names[i] : NULL;
}

nb_status nb_kv_leaves_create(nb_kv_evict policy, size_t n_block, nb_kv_leaves **out)
{
    nb_kv_leaves *l = calloc(1, sizeof *l);
    if (!l) return NB_ERR_NOMEM;
    l->policy = policy;
    l->at = calloc(n_block, sizeof *l->at);
    l->pos = calloc(n_block, sizeof *l->pos);
    l->major = calloc(n_block, sizeof *l->major);
    l->minor = calloc(n_block, sizeof *l->minor);
    l->depth = calloc(n_block, sizeof *l->depth);
    if (!l->at || !l->pos || !l->major || !l->minor || !l->depth) {
        nb_kv_leaves_destroy(l);
        return NB_ERR_NOMEM;
    }
    nb_kv_leaves_reset(l, n_block);
    *out = l;
    return NB_OK;
}

void nb_kv_leaves_destroy(nb_kv_leaves *l)
{
    if (!l) return;
    free(l->at);
    free(l->pos);
    free(l->major);
    free(l->minor);
    free(l->depth);
    free(l);
}

void nb_kv_leaves_reset(nb_kv_leaves *l, size_t n_block)
{
    l->n = 0;
    for (size_t i = 0; i < n_block; i++) l->pos[i] = NONE;
}

static bool before(const nb_kv_leaves *l, uint32_t a, uint32_t b)
{
    return l->major[a] != l->major[b] ? l->major[a] < l->major[b] : l->minor[a] < l->minor[b];
}

static void put(nb_kv_leaves *l, size_t i, uint32_t id)
{
    l->at[i] = id;
    l->pos[id] = (uint32_t)i;
}

static void sift_up(nb_kv_leaves *l, size_t i)
{
    const uint32_t id = l->at[i];
    for (; i && before(l, id, l->at[(i - 1) / 2]); i = (i - 1) / 2) put(l, i, l->at[(i - 1) / 2]);
    put(l, i, id);
}

static void sift_down(nb_kv_leaves *l, size_t i)
{
    const uint32_t id = l->at[i];
    for (size_t k; (k = 2 * i + 1) < l->n; i = k) {
        if (k + 1 < l->n && before(l, l->at[k + 1], l->at[k])) k++;
        if (!before(l, l->at[k], id)) break;
        put(l, i, l->at[k]);
    }
    put(l, i, id);
}

void nb_kv_leaves_add(nb_kv_leaves *l, uint32_t id)
{
    NB_ASSERT(l->pos[id] == NONE);
    put(l, l->n++, id);
    sift_up(l, l->n - 1);
}

void nb_kv_leaves_remove(nb_kv_leaves *l, uint32_t id)
{
    const uint32_t i = l->pos[id];
    if (i == NONE) return;
    l->pos[id] = NONE;
    const uint32_t last = l->at[--l->n];
    if (last == id) return;
    put(l, i, last);
    sift_up(l, i);
    sift_down(l, l->pos[last]);
}

void nb_kv_leaves_published(nb_kv_leaves *l, uint32_t id, uint32_t parent)
{
    l->depth[id] = parent == NONE ? 0 : l->depth[parent] + 1;
    l->major[id] = 0;
    l->minor[id] = l->policy == NB_KV_EVICT_RANDOM ? 0 : l->clock++;
}

void nb_kv_leaves_released(nb_kv_leaves *l, uint32_t id, uint32_t n_hit)
{
    switch (l->policy) {
    case NB_KV_EVICT_LFU: l->major[id] = n_hit; break;
    case NB_KV_EVICT_AGED: l->major[id] = l->age + 1 + n_hit; break;
    case NB_KV_EVICT_LONGEST: l->major[id] = UINT32_MAX - l->depth[id]; break;
    case NB_KV_EVICT_FIFO:
    case NB_KV_EVICT_RANDOM: return;
    default: break;
    }
    l->minor[id] = l->clock++;
}

uint32_t nb_kv_leaves_victim(nb_kv_leaves *l)
{
    if (!l->n) return NONE;
    if (l->policy == NB_KV_EVICT_RANDOM) return l->at[nb_rng_u64(1, l->clock++) % l->n];
    l->age = l->major[l->at[0]];
    return l->at[0];
}

const char *nb_kv_leaves_check(const nb_kv_cache *c)
{
    const nb_kv_leaves *l = c->leaves;
    size_t n = 0;
    if (c->part[0].once.old != NONE || c->part[0].once.young != NONE || c->part[0].many.n)
        return "leaves: classes beside them";
    if (l->n > c->n_block) return "leaves: more than blocks";
    for (uint32_t id = 0; id < c->n_block; id++) {
        const nb_kv_block *b = &c->block[id];
        const bool leaf = b->n_ref == 0 && b->indexed && b->child == NONE;
        if (leaf != (l->pos[id] != NONE)) return leaf ? "leaves: one is lost" : "leaves: no leaf";
        if (b->many) return "leaves: a block with a class";
        n += leaf;
        if (!leaf) continue;
        if (l->pos[id] >= l->n || l->at[l->pos[id]] != id) return "leaves: a wrong place";
        if (l->pos[id] && before(l, id, l->at[(l->pos[id] - 1) / 2])) return "leaves: no heap";
    }
    return n == l->n ? NULL : "leaves: wrong number";
}
