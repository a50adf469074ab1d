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
    bool indexed, many;
} nb_kv_block;

/* Cached blocks of one class in order of their release. */
typedef struct nb_kv_class {
    uint32_t old, young; /* NONE when empty */
    size_t n;
} nb_kv_class;

struct nb_kv_cache {
    nb_kv_block *block; /* [n_block]                                          */
    uint32_t *bucket;   /* [bucket_mask + 1] first indexed block, or NONE     */
    size_t bucket_mask;
    size_t n_block, n_free, n_indexed;
    size_t many_cap;    /* blocks of the class `many`, at most                */
    uint32_t free_head; /* a stack: what was freed last is handed out first   */
    bool index;
    nb_kv_class once, many;
    uint64_t n_evicted, n_published, n_duplicate;
};

size_t nb_kv_bucket(const nb_kv_cache *c, const nb_block_key *key);

#endif
