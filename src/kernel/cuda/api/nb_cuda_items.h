/* nb_cuda_items.h - queries of a step cut into items (nb_cuda_item): shared by the forward pass, the
 * checker and the benchmark.  How it is cut changes no bit of a result. */
#ifndef NB_KERNEL_CUDA_API_NB_CUDA_ITEMS_H
#define NB_KERNEL_CUDA_API_NB_CUDA_ITEMS_H
#include "kernel/cuda/api/nb_cuda_ops.h"

/* Consecutive queries of one chunk in one page, at most NB_CUDA_QUERY_MAX. */
typedef struct nb_cuda_group {
    uint32_t chunk, row0, n_q;
    uint32_t n_page; /* complete pages before theirs: all that an item reads */
} nb_cuda_group;

enum { NB_CUDA_ITEM_BUCKETS = 64 };

/* Units of the item that begins at unit 0, which are merged where they are computed: as many pages as
 * a multiprocessor has of the whole step on average, to the end of a unit.  No item is then much longer
 * than that, and the fewest states go through memory. */
static inline size_t nb_cuda_fold(nb_cuda_units s, size_t n_page, size_t total_page, size_t n_sm)
{
    const size_t per_sm = (total_page + n_sm - 1) / n_sm;
    return nb_cuda_n_unit(s, n_page < per_sm ? n_page : per_sm);
}

/* The item of a group that begins at unit u. */
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

/* Writes the items of all groups, the longest first (to 1/64 of the longest), and returns how many:
 * at most the sum of nb_cuda_n_unit.  part_first is the step's; fold: see above (GQA: false). */
static inline size_t nb_cuda_items(const nb_cuda_group *g, size_t n_group, nb_cuda_units s,
                                   size_t n_sm, bool fold, const uint32_t *part_first,
                                   nb_cuda_item *out)
{
    size_t total = 0, longest = s.rest, at[NB_CUDA_ITEM_BUCKETS + 1] = { 0 };
    for (size_t i = 0; i < n_group; i++) total += g[i].n_page;
    for (size_t i = 0; fold && i < n_group; i++) {
        const size_t n = nb_cuda_fold(s, g[i].n_page, total, n_sm);
        const size_t pages = nb_cuda_unit_page(s, n);
        if (pages > longest) longest = pages;
    }
    for (int place = 0; place < 2; place++) { /* count, then place: the longest bucket first */
        for (size_t i = 0; i < n_group; i++) {
            const size_t n = nb_cuda_n_unit(s, g[i].n_page);
            for (size_t u = 0, k; u < n; u += k) {
                k = fold && u == 0 ? nb_cuda_fold(s, g[i].n_page, total, n_sm) : 1;
                const nb_cuda_item x = nb_cuda_item_at(&g[i], s, u, k, part_first[g[i].row0]);
                const size_t b =
                    NB_CUDA_ITEM_BUCKETS - 1 - (x.n_page * (NB_CUDA_ITEM_BUCKETS - 1)) / longest;
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
