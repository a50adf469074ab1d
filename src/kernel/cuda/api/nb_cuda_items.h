/* nb_cuda_items.h - splits a step's queries into work items (nb_cuda_item); shared by the forward pass, the checker and
 * the benchmark.  The split changes no bit of a result.  nb_cuda_units.h defines unit and super. */
#ifndef NB_KERNEL_CUDA_API_NB_CUDA_ITEMS_H
#define NB_KERNEL_CUDA_API_NB_CUDA_ITEMS_H
#include "kernel/cuda/api/nb_cuda_ops.h"

/* Consecutive queries of one chunk in one page; at most NB_CUDA_QUERY_MAX. */
typedef struct nb_cuda_group {
    uint32_t chunk, row0, n_q;
    uint32_t n_page; /* complete pages before theirs, all of which their items read */
} nb_cuda_group;

enum { NB_CUDA_ITEM_BUCKETS = 64 };

/* How a step's groups are split.  Without fold, an item is one unit.  With fold, it is a whole super, whose states are
 * combined by the block that computes them. */
typedef struct nb_cuda_cut {
    nb_cuda_units units;
    bool fold;
    size_t longest; /* pages */
} nb_cuda_cut;

/* Estimated load, in pages, of the busiest SM, when n items of n_page pages in total are distributed and each costs
 * `cost` pages extra. */
static inline size_t nb_cuda_rounds(size_t n, size_t n_page, size_t n_sm, size_t cost)
{
    return n ? (n + n_sm - 1) / n_sm * (n_page + cost * n) / n : 0;
}

static inline nb_cuda_cut nb_cuda_cut_of(const nb_cuda_group *g, size_t n_group, nb_cuda_units s,
                                         size_t n_sm, size_t n_head, bool fold)
{
    nb_cuda_cut c = { s, fold, s.rest > s.first ? s.rest : s.first };
    size_t total = 0, n_unit = 0, n_super = 0;
    n_sm = n_sm * s.blocks / ((n_head + s.heads - 1) / s.heads);
    if (n_sm == 0) n_sm = 1;
    for (size_t i = 0; i < n_group; i++) {
        total += g[i].n_page;
        n_unit += nb_cuda_n_unit(s, g[i].n_page);
        n_super += (g[i].n_page + s.super - 1) / s.super;
    }
    if (!fold) return c;
    c.fold =
        nb_cuda_rounds(n_super, total, n_sm, s.cost) <= nb_cuda_rounds(n_unit, total, n_sm, s.cost);
    if (c.fold) c.longest = s.super;
    return c;
}

/* Number of units in the item that begins at unit u, of a group of n_page pages. */
static inline size_t nb_cuda_fold(const nb_cuda_cut *c, size_t n_page, size_t u)
{
    if (!c->fold || n_page == 0) return 1;
    const size_t super = c->units.super,
                 next = (nb_cuda_unit_page(c->units, u) / super + 1) * super,
                 end = nb_cuda_n_unit(c->units, next < n_page ? next : n_page);
    return end > u ? end - u : 1;
}

/* A group's item that begins at unit u. */
static inline nb_cuda_item nb_cuda_item_at(const nb_cuda_group *g, nb_cuda_units s, size_t u,
                                           size_t n_unit, uint32_t part_first)
{
    const size_t from = nb_cuda_unit_page(s, u), to = nb_cuda_unit_page(s, u + n_unit);
    nb_cuda_item x;
    x.chunk = g->chunk;
    x.row0 = g->row0;
    x.n_q = g->n_q;
    x.unit0 = (uint32_t)u;
    x.n_unit = (uint32_t)n_unit;
    x.n_page = (uint32_t)((g->n_page < to ? g->n_page : to) - from);
    x.part0 = part_first + (uint32_t)u;
    x.reserved = 0;
    return x;
}

/* Writes the items of all groups, longest first (to 1/64 of the longest), and returns their number, at most the sum of
 * nb_cuda_n_unit.  part_first is the step's.  fold allows folding (see nb_cuda_cut); false for GQA.  n_sm and n_head:
 * of the device and the layer; they decide how items are balanced, and no bit. */
static inline size_t nb_cuda_items(const nb_cuda_group *g, size_t n_group, nb_cuda_units s,
                                   size_t n_sm, size_t n_head, bool fold,
                                   const uint32_t *part_first, nb_cuda_item *out)
{
    const nb_cuda_cut c = nb_cuda_cut_of(g, n_group, s, n_sm, n_head, fold);
    size_t at[NB_CUDA_ITEM_BUCKETS + 1] = { 0 };
    for (int place = 0; place < 2; place++) { /* count, then place: the longest bucket first */
        for (size_t i = 0; i < n_group; i++) {
            const size_t n = nb_cuda_n_unit(s, g[i].n_page);
            for (size_t u = 0, k; u < n; u += k) {
                k = nb_cuda_fold(&c, g[i].n_page, u);
                const nb_cuda_item x = nb_cuda_item_at(&g[i], s, u, k, part_first[g[i].row0]);
                const size_t b =
                    NB_CUDA_ITEM_BUCKETS - 1 - (x.n_page * (NB_CUDA_ITEM_BUCKETS - 1)) / c.longest;
                if (place)
                    out[at[b]++] = x;
                else
                    at[b + 1]++;
            }
        }
        for (size_t b = 0; !place && b < NB_CUDA_ITEM_BUCKETS; b++) at[b + 1] += at[b];
    }
    return at[NB_CUDA_ITEM_BUCKETS - 1];
}

#endif
