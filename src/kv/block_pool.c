/* block_pool.c - see block_pool.h. */
#include "kv/block_pool.h"

#include <stdlib.h>

nb_status nb_block_pool_init(nb_block_pool *p, size_t n_block)
{
    *p = (nb_block_pool){ 0 };
    if (n_block >= UINT32_MAX) return NB_ERR_RANGE;
    p->free_id = calloc(n_block ? n_block : 1, sizeof *p->free_id);
    p->n_ref = calloc(n_block ? n_block : 1, sizeof *p->n_ref);
    if (!p->free_id || !p->n_ref) {
        nb_block_pool_deinit(p);
        return NB_ERR_NOMEM;
    }
    p->n_block = p->n_free = n_block;
    for (size_t i = 0; i < n_block; i++) p->free_id[i] = (uint32_t)(n_block - 1 - i);
    return NB_OK;
}

void nb_block_pool_deinit(nb_block_pool *p)
{
    free(p->free_id);
    free(p->n_ref);
    *p = (nb_block_pool){ 0 };
}

nb_status nb_block_pool_acquire(nb_block_pool *p, uint32_t *id)
{
    if (p->n_free == 0) return NB_ERR_CAPACITY;
    *id = p->free_id[--p->n_free];
    p->n_ref[*id] = 1;
    return NB_OK;
}

void nb_block_pool_retain(nb_block_pool *p, uint32_t id)
{
    NB_ASSERT(id < p->n_block && p->n_ref[id] > 0);
    p->n_ref[id]++;
}

void nb_block_pool_release(nb_block_pool *p, uint32_t id)
{
    NB_ASSERT(id < p->n_block && p->n_ref[id] > 0);
    if (--p->n_ref[id] == 0) p->free_id[p->n_free++] = id;
}

int nb_block_pool_check(const nb_block_pool *p)
{
    size_t held = 0;
    if (p->n_free > p->n_block) return 0;
    for (size_t i = 0; i < p->n_block; i++) held += p->n_ref[i] > 0;
    if (held + p->n_free != p->n_block) return 0;
    for (size_t i = 0; i < p->n_free; i++) {
        if (p->free_id[i] >= p->n_block || p->n_ref[p->free_id[i]] != 0) return 0;
        for (size_t j = 0; j < i; j++)
            if (p->free_id[j] == p->free_id[i]) return 0;
    }
    return 1;
}
