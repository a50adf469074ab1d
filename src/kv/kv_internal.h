/* kv_internal.h - the insides of nb_kv_cache: for src/kv, and for the test that breaks them one by
 * one to see that the check finds it. */
#ifndef NB_KV_INTERNAL_H
#define NB_KV_INTERNAL_H
#include "kv/kv_cache.h"

/* One block.  `next` serves whichever list the block is in; free blocks use no prev. */
typedef struct nb_kv_block {
    nb_block_key key;            /* indexed                                                 */
    uint32_t n_ref, n_hit;       /* see nb_kv_block_info                                    */
    uint32_t parent;             /* indexed: the indexed block before it, or NONE           */
    uint32_t child;              /* first of the indexed blocks that continue it, or NONE   */
    uint32_t sib_prev, sib_next; /* the other children of the parent                        */
    uint32_t chain;              /* next indexed block of the same bucket                   */
    uint32_t prev, next;         /* cached: neighbours in its class, towards old and young  */
    uint32_t snap;               /* indexed: its snapshot, or NONE                          */
    uint8_t at;                  /* held or indexed: place in its unit                      */
    bool indexed, many;
} nb_kv_block;

/* Cached blocks of one class in order of their release. */
typedef struct nb_kv_class {
    uint32_t old, young; /* NONE when empty */
    size_t n;
} nb_kv_class;

/* A place for a snapshot: free, or pinned, or of a block. */
typedef struct nb_kv_snap {
    uint32_t block; /* that it belongs to, or NONE                                     */
    uint32_t n_pin;
    uint32_t prev, next; /* of a block: neighbours in order of use; free: next              */
} nb_kv_snap;

/* What other policies than the engine's keep: a heap of the leaves among the cached blocks, least rank at
 * the top.  Arrays of n_block. */
typedef struct nb_kv_leaves {
    nb_kv_evict policy;
    uint32_t *at;            /* [n] ids of the heap                                */
    uint32_t *pos;           /* [n_block] place in it, or NONE                     */
    uint64_t *major, *minor; /* [n_block] rank, of indexed blocks                  */
    uint32_t *depth;         /* [n_block] indexed blocks before it                 */
    size_t n;
    uint64_t clock, age; /* counts releases and publications; rank of the last victim */
} nb_kv_leaves;

/* Blocks [k part_blocks, (k + 1) part_blocks). */
typedef struct nb_kv_share {
    uint32_t free_head; /* a stack: what was freed last is handed out first */
    size_t n_free;
    nb_kv_class once, many;
} nb_kv_share;

struct nb_kv_cache {
    nb_kv_block *block; /* [n_block]                                          */
    uint32_t *bucket;   /* [bucket_mask + 1] first indexed block, or NONE     */
    size_t bucket_mask;
    size_t n_block, n_indexed;
    size_t n_part, part_blocks;
    size_t many_cap; /* blocks of the class `many` in a part, at most */
    bool index;
    nb_kv_leaves *leaves; /* NULL: the engine's policy; else there is one part, and `once` is a count without a list */
    nb_kv_share part[NB_KV_MAX_PART];
    uint64_t n_evicted, n_published, n_duplicate;
    nb_kv_snap *snap; /* [n_snap]                                          */
    size_t n_snap, n_snap_used;
    uint32_t snap_free, snap_old, snap_young; /* a stack; ends of the list in order of use */
    uint64_t n_snap_taken;
};

/* kv_leaves.c */
nb_status nb_kv_leaves_create(nb_kv_evict policy, size_t n_block, nb_kv_leaves **out);
void nb_kv_leaves_destroy(nb_kv_leaves *l);
/* Block id was published, after `parent` (NONE: none that is indexed). */
void nb_kv_leaves_published(nb_kv_leaves *l, uint32_t id, uint32_t parent);
/* It became cached, having been found n_hit times. */
void nb_kv_leaves_released(nb_kv_leaves *l, uint32_t id, uint32_t n_hit);
void nb_kv_leaves_add(nb_kv_leaves *l, uint32_t id);    /* it is cached and a leaf now */
void nb_kv_leaves_remove(nb_kv_leaves *l, uint32_t id); /* it is not; nothing where it was none */
uint32_t nb_kv_leaves_victim(nb_kv_leaves *l);          /* stays in; NONE when there is none */
void nb_kv_leaves_reset(nb_kv_leaves *l, size_t n_block);
const char *nb_kv_leaves_check(const nb_kv_cache *c);

/* kv_snap.c */
nb_status nb_kv_snaps_create(nb_kv_cache *c, size_t n);
void nb_kv_snap_drop(nb_kv_cache *c, uint32_t block); /* the block leaves the index */
const char *nb_kv_snaps_check(const nb_kv_cache *c);

static inline size_t nb_kv_part_of(const nb_kv_cache *c, uint32_t id)
{
    return id / c->part_blocks;
}
size_t nb_kv_bucket(const nb_kv_cache *c, const nb_block_key *key);

#endif
