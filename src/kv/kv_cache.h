/* kv_cache.h - the blocks of the KV pool: who holds them, what they contain, which
 * go first.
 *
 * A block is 64 tokens of all layers.  This file knows ids, counters and keys, not
 * bytes.  A block is in one of three states:
 *
 *   free     nobody holds it and it contains nothing that can be found
 *   held     n_ref > 0 requests use it; it may also be indexed (found by its key)
 *   cached   n_ref == 0 and indexed: kept until its room is needed (evicted)
 *
 * The key of a block is chained, so it stands for all tokens up to its end:
 *
 *   root          SHA-256("nibble kv 1" 0x00 salt)
 *   key of block  SHA-256(parent key | n_expanded, n_short, a byte each | 64 ids, each a
 *                 little-endian u32)
 *
 * n_expanded and n_short (0..64) say how the tokens were computed: how many leading
 * tokens of the block in the expanded form of latent attention (the rest absorbed), and
 * how many with the short table of longrope.  NB_BLOCK_UPLOADED is added to n_expanded
 * where routed experts that are in host memory were uploaded (decision 039).  The same ids computed otherwise have other
 * bits, so they are another block: a hit never changes the output.  The salt
 * (`cache_salt`) separates tenants.
 *
 * Eviction, scan-resistant: a cached block is `once` (never found since it was written)
 * or `many`.  The oldest `once` block goes first; when there is none, or when the `many`
 * class has more than its share (protected_share of all blocks), the oldest `many` block
 * moves to the young end of `once`.  Releasing a request's blocks puts its last
 * block at the old end, so that a chain is eaten from its tail and what is left of it
 * can still be found.  A block is not evicted while a block that continues it is indexed
 * (when all that is cached is continued by held blocks, those leave the index first).  The
 * share is kept when blocks are released.
 *
 * That is the policy of the engine.  Others are there to be compared with it (nb_kv_evict): they
 * have no classes, and of the cached blocks that no indexed block continues (the leaves) the one of
 * least rank goes first.
 *
 * Parts: where several ranks divide the blocks (decision 070), ids [k n_block / n_part, (k + 1) n_block / n_part) are
 * those of rank k.  NB_KV_UNIT_BLOCKS consecutive blocks of a text, from a multiple of it on, are a unit, and all of
 * a unit are in one part: the part that has most blocks to hand out when the unit begins.  So a block that is not
 * the first of its unit is indexed only where the block before it is, in the same part; a request that computes a
 * unit that is indexed in another part keeps its own blocks, which are not found.
 * A part has lists of its own for what the paragraphs above say of the pool.  When its oldest block is continued,
 * what continues it, which is as old or older, leaves the index first.
 *
 * Snapshots: a model whose layers keep a state per sequence (linear attention, docs/decisions/052) can go on from
 * a block only where the state at its end was kept.  There are n_snap places for such states, far fewer than
 * blocks.  A place is free, or pinned (being written or read), or belongs to an indexed block, at most one to each.
 * When there is no free place, the one that was used least recently and is not pinned is taken from its block.  A
 * block that leaves the index gives up its snapshot.
 *
 * Owned by the engine thread.  Every operation is O(1) but for release (O(n)), reset and
 * check; other policies than the engine's add O(log leaves).  Nothing is allocated after create.  Ids out of range and giving back what is not
 * held are mistakes of ours: they stop the program. */
#ifndef NB_KV_KV_CACHE_H
#define NB_KV_KV_CACHE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { NB_BLOCK_TOK = 64, NB_BLOCK_UPLOADED = 128, NB_KV_UNIT_BLOCKS = 8, NB_KV_MAX_PART = 8 };
#define NB_BLOCK_NONE UINT32_MAX
#define NB_SNAP_NONE UINT32_MAX

typedef struct nb_block_key {
    unsigned char b[32];
} nb_block_key;

/* NB_ERR_NOMEM, NB_ERR_INTERNAL (no SHA-256). */
nb_status nb_block_key_root(nb_str salt, nb_block_key *out);
nb_status nb_block_key_next(const nb_block_key *parent, const uint32_t tok[NB_BLOCK_TOK],
                            unsigned n_expanded, unsigned n_short, nb_block_key *out);

typedef struct nb_kv_cache nb_kv_cache;

/* Which of the leaves goes first; of equals the one that was released first. */
typedef enum nb_kv_evict {
    NB_KV_EVICT_CLASSES, /* the engine's: `once` before `many`, see above                   */
    NB_KV_EVICT_LRU,     /* the one released first                                           */
    NB_KV_EVICT_FIFO,    /* the one published first                                          */
    NB_KV_EVICT_LFU,     /* the one found least often                                        */
    NB_KV_EVICT_AGED,    /* times found, and one, counted from the rank of the last victim at its
                            release (LFU with dynamic aging, Arlitt et al. 2000)            */
    NB_KV_EVICT_LONGEST, /* the one with most blocks before it                               */
    NB_KV_EVICT_RANDOM,  /* any; the same ones for the same calls                            */
    NB_KV_N_EVICT
} nb_kv_evict;
/* "classes", "lru", ...; NULL behind the last. */
const char *nb_kv_evict_name(size_t i);

typedef struct nb_kv_cache_options {
    size_t n_block;         /* 1 .. UINT32_MAX - 1                                     */
    bool index;             /* false: publish does nothing, find finds nothing         */
    double protected_share; /* of all blocks, [0, 1]; 0.25 is a good value             */
    nb_kv_evict evict;      /* 0: the engine's                                         */
    size_t n_snap;          /* places for snapshots, 0 .. UINT32_MAX - 1               */
    size_t n_part;          /* 0 or 1: one; else n_block is a multiple of n_part units */
} nb_kv_cache_options;

nb_status nb_kv_cache_create(const nb_kv_cache_options *o, nb_kv_cache **out, nb_error *err);
void nb_kv_cache_destroy(nb_kv_cache *c);

/* The indexed block with this key, or NB_BLOCK_NONE. Changes nothing. */
uint32_t nb_kv_cache_find(const nb_kv_cache *c, const nb_block_key *key);
/* The same; quicker where the block continues the indexed block `parent`. */
uint32_t nb_kv_cache_find_next(const nb_kv_cache *c, uint32_t parent, const nb_block_key *key);
/* One more holder of an indexed or held block. hit: the block was found for a request
 * (it joins the `many` class). */
void nb_kv_cache_hold(nb_kv_cache *c, uint32_t id, bool hit);
/* A block with one holder and nothing in it: a free one, else an evicted one.
 * NB_ERR_CAPACITY when all are held. */
nb_status nb_kv_cache_acquire(nb_kv_cache *c, uint32_t *id);
/* The same of a block that follows block `before`, which is held (NB_BLOCK_NONE: the first of a text): in the part of its unit. */
nb_status nb_kv_cache_acquire_after(nb_kv_cache *c, uint32_t before, uint32_t *id);
/* 0: the indexed blocks hit[0..n_hit) of a text can be held and n more blocks acquired after them.  Else at least so
 * many blocks must be given up before. */
size_t nb_kv_cache_lacks(const nb_kv_cache *c, const uint32_t *hit, size_t n_hit, size_t n);
/* Whether one of id[0..n), given up, could be the block after `before`: where there are parts, it must be in the right one. */
bool nb_kv_cache_any_follows(const nb_kv_cache *c, uint32_t before, const uint32_t *id, size_t n);
/* The held, not indexed block `id` is full and stands for `key`; `parent` is the block
 * before it (NB_BLOCK_NONE for the first; one that left the index by a reset is not
 * remembered as parent).  Returns the block to use from now on: id, or
 * the block that was already indexed under this key, then held instead of id, which is freed. */
uint32_t nb_kv_cache_publish(nb_kv_cache *c, uint32_t id, const nb_block_key *key, uint32_t parent);
/* Gives up one hold of each of id[0..n), in order of position in the text; last first. */
void nb_kv_cache_release(nb_kv_cache *c, const uint32_t *id, size_t n);
/* Blocks that acquire can hand out now: free + cached. */
size_t nb_kv_cache_available(const nb_kv_cache *c);
/* Forgets all contents: cached blocks become free, held ones are no longer found.
 * Returns the number of blocks that left the index. */
size_t nb_kv_cache_reset(nb_kv_cache *c);

/* ---- snapshots (kv_snap.c) ---- */

/* The snapshot of an indexed block, or NB_SNAP_NONE. */
uint32_t nb_kv_snap_of(const nb_kv_cache *c, uint32_t block);
/* A place to write to, pinned, that belongs to no block; NB_SNAP_NONE when all are pinned. */
uint32_t nb_kv_snap_acquire(nb_kv_cache *c);
/* What was written to a place from acquire is the state at the end of `block`; unpins it.  The place becomes free
 * where the block is not indexed or has a snapshot already. */
void nb_kv_snap_give(nb_kv_cache *c, uint32_t snap, uint32_t block);
/* One more pin of the snapshot of a block, which is then the one used most recently: it is not overwritten before
 * it is released, even if the block leaves the index. */
void nb_kv_snap_pin(nb_kv_cache *c, uint32_t snap);
/* One pin less; also of a place from acquire that was not written. */
void nb_kv_snap_unpin(nb_kv_cache *c, uint32_t snap);

typedef struct nb_kv_cache_stats {
    size_t n_block, n_free, n_held, n_once, n_many; /* once, many: cached blocks by class; all
                                                       are `once` of other policies         */
    size_t n_indexed;
    uint64_t n_evicted;   /* blocks that left the index to make room, since create       */
    uint64_t n_published; /* blocks that entered the index                               */
    uint64_t n_duplicate; /* publish returned another block                              */
    size_t n_snap, n_snap_used, n_snap_pin; /* places; of blocks; pins                   */
    uint64_t n_snap_taken; /* snapshots that were taken from their blocks to make room   */
} nb_kv_cache_stats;
void nb_kv_cache_get_stats(const nb_kv_cache *c, nb_kv_cache_stats *s);

typedef struct nb_kv_block_info {
    uint32_t n_ref;  /* holders                                     */
    uint32_t parent; /* indexed: the block before it, else NONE     */
    uint32_t n_hit;  /* times it was found since it was written     */
    bool indexed, many;
    uint32_t part, at; /* held or indexed: its part; its place in its unit */
    nb_block_key key;  /* when indexed */
} nb_kv_block_info;
void nb_kv_cache_block(const nb_kv_cache *c, uint32_t id, nb_kv_block_info *info);

/* Walks every structure; NULL, or what is broken (tests, soak). */
const char *nb_kv_cache_check(const nb_kv_cache *c);

#endif
