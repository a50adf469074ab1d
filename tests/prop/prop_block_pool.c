/* prop_block_pool.c - random operations on a block pool against a naive model: one counter
 * per block and nothing else.
 *
 *   prop_block_pool [SEED [N_RUN]]     a failure prints the seed and the step
 *
 * The order in which blocks are handed out is part of the model: the block freed last comes
 * first, and never-used blocks in ascending order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kv/block_pool.h"

enum { MAX_BLOCK = 40, N_STEP = 400 };

typedef struct model {
    size_t n_block, n_free;
    unsigned held[MAX_BLOCK];
    uint32_t order[MAX_BLOCK]; /* free blocks, the next one last */
} model;

static uint64_t seed, at;
static size_t below(size_t n)
{
    return (size_t)(nb_rng_u64(seed, at++) % n);
}

static int wrong(const char *what, size_t step)
{
    fprintf(stderr, "prop_block_pool: %s (seed %llu, step %zu)\n", what, (unsigned long long)seed,
            step);
    return 1;
}

/* The k-th block that is held, or MAX_BLOCK. */
static uint32_t some_held(const model *m, size_t k)
{
    for (uint32_t i = 0; i < m->n_block; i++)
        if (m->held[i] && k-- == 0) return i;
    return MAX_BLOCK;
}

static int acquire(nb_block_pool *p, model *m, size_t step)
{
    uint32_t id = 12345;
    const nb_status st = nb_block_pool_acquire(p, &id);
    if (m->n_free == 0) {
        if (st != NB_ERR_CAPACITY || id != 12345)
            return wrong("a block out of an empty pool", step);
        return 0;
    }
    if (st != NB_OK) return wrong("no block although some are free", step);
    if (id != m->order[m->n_free - 1]) return wrong("not the block freed last", step);
    m->n_free--;
    m->held[id] = 1;
    return 0;
}

static void release(nb_block_pool *p, model *m, uint32_t id)
{
    nb_block_pool_release(p, id);
    if (--m->held[id] == 0) m->order[m->n_free++] = id;
}

static int compare(const nb_block_pool *p, const model *m, size_t step)
{
    if (!nb_block_pool_check(p)) return wrong("an invariant is broken", step);
    if (p->n_free != m->n_free || p->n_block != m->n_block) return wrong("wrong number free", step);
    for (size_t i = 0; i < m->n_block; i++)
        if (p->n_ref[i] != m->held[i]) return wrong("wrong count of a block", step);
    return 0;
}

static int run(void)
{
    nb_block_pool p;
    model m = { .n_block = below(MAX_BLOCK + 1) };
    m.n_free = m.n_block;
    for (size_t i = 0; i < m.n_block; i++) m.order[i] = (uint32_t)(m.n_block - 1 - i);
    if (nb_block_pool_init(&p, m.n_block) != NB_OK) return wrong("cannot be made", 0);
    const size_t bias = below(3); /* filling up, even, draining */
    int bad = 0;
    for (size_t step = 0; step < N_STEP && !bad; step++) {
        const size_t n_held = m.n_block - m.n_free, kind = below(6);
        const uint32_t id = n_held ? some_held(&m, below(n_held)) : MAX_BLOCK;
        if (kind < 2 + bias || id == MAX_BLOCK) {
            bad = acquire(&p, &m, step);
        } else if (kind == 5 && m.held[id] < 100) {
            nb_block_pool_retain(&p, id);
            m.held[id]++;
        } else {
            release(&p, &m, id);
        }
        if (!bad) bad = compare(&p, &m, step);
    }
    for (uint32_t i = 0; i < m.n_block && !bad; i++)
        while (m.held[i]) release(&p, &m, i);
    if (!bad && p.n_free != p.n_block) bad = wrong("a block is lost at the end", N_STEP);
    nb_block_pool_deinit(&p);
    return bad;
}

int main(int argc, char **argv)
{
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t n_run = argc > 2 ? strtoull(argv[2], NULL, 10) : 300;
    for (uint64_t i = 0; i < n_run; i++) {
        seed = first + i;
        at = 0;
        if (run()) return 1;
    }
    return 0;
}
