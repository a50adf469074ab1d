/* block_pool.h - names of KV blocks: which are free, how often each is held.
 *
 * A block is 64 tokens of all layers; the pool knows ids and counters only, not
 * bytes.  Blocks are handed out lowest freed last (a stack), so a short run
 * touches little memory.  Owned by the engine thread. */
#ifndef NB_KV_BLOCK_POOL_H
#define NB_KV_BLOCK_POOL_H
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct nb_block_pool {
    uint32_t *free_id; /* stack of free ids, [n_free] used */
    uint32_t *n_ref;   /* [n_block]; 0: free */
    size_t n_block, n_free;
} nb_block_pool;

nb_status nb_block_pool_init(nb_block_pool *p, size_t n_block); /* NB_ERR_NOMEM, NB_ERR_RANGE */
void nb_block_pool_deinit(nb_block_pool *p);
nb_status nb_block_pool_acquire(nb_block_pool *p, uint32_t *id); /* NB_ERR_CAPACITY; count 1 */
void nb_block_pool_retain(nb_block_pool *p, uint32_t id);
void nb_block_pool_release(nb_block_pool *p, uint32_t id); /* free when the count is 0 */
/* Walks everything; false when an invariant is broken (tests). */
int nb_block_pool_check(const nb_block_pool *p);
#endif
