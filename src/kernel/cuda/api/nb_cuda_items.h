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

/* Units of a group's pages: the states of each of its queries are these and one for the own page. */
static inline size_t nb_cuda_n_unit(size_t n_page, size_t unit_pages)
{
    return (n_page + unit_pages - 1) / unit_pages;
}

enum { NB_CUDA_ITEM_BUCKETS = 64 };

/* First unit's item: so many units from 0 on are merged where they are computed.  As many as a
 * multiprocessor has of the whole step on average: no item is then longer than that, and the fewest
 * states go through memory. */
static inline size_t nb_cuda_fold(size_t n_unit, size_t total_unit, size_t n_sm)
{
    const size_t per_sm = (total_unit + n_sm - 1) / n_sm;
    return n_unit < per_sm ? n_unit : per_sm > 0 ? per_sm : 1;
}

/* Writes the items of all groups, the longest first (to 1/64 of the longest), and returns how many:
 * at most the sum of nb_cuda_n_unit.  part_first is the step's; fold: see above (GQA: false). */
static inline size_t nb_cuda_items(const nb_cuda_group *g, size_t n_group, size_t unit_pages,
                                   size_t n_sm, bool fold, const uint32_t *part_first,
                                   nb_cuda_item *out)
{
    size_t total = 0, longest = 1, at[NB_CUDA_ITEM_BUCKETS + 1] = { 0 };
    for (size_t i = 0; i < n_group; i++) total += nb_cuda_n_unit(g[i].n_page, unit_pages);
    for (size_t i = 0; fold && i < n_group; i++) {
        const size_t n = nb_cuda_n_unit(g[i].n_page, unit_pages);
        const size_t pages = (n ? nb_cuda_fold(n, total, n_sm) : 0) * unit_pages;
        if (pages > longest) longest = pages;
    }
    if (unit_pages > longest) longest = unit_pages;
    for (int place = 0; place < 2; place++) { /* count, then place: the longest bucket first */
        for (size_t i = 0; i < n_group; i++) {
            const size_t n = nb_cuda_n_unit(g[i].n_page, unit_pages);
            for (size_t u = 0, k; u < n; u += k) {
                k = fold && u == 0 ? nb_cuda_fold(n, total, n_sm) : 1;
                const size_t left = g[i].n_page - u * unit_pages;
                const size_t pages = left < k * unit_pages ? left : k * unit_pages;
                const size_t b =
                    NB_CUDA_ITEM_BUCKETS - 1 - (pages * (NB_CUDA_ITEM_BUCKETS - 1)) / longest;
                if (!place) {
                    at[b + 1]++;
                    continue;
                }
                out[at[b]++] = (nb_cuda_item){ .chunk = g[i].chunk,
                                               .row0 = g[i].row0,
                                               .n_q = g[i].n_q,
                                               .unit0 = (uint32_t)u,
                                               .n_unit = (uint32_t)k,
                                               .n_page = (uint32_t)pages,
                                               .part0 = part_first[g[i].row0] + (uint32_t)u };
            }
        }
        for (size_t b = 0; !place && b < NB_CUDA_ITEM_BUCKETS; b++) at[b + 1] += at[b];
    }
    return at[NB_CUDA_ITEM_BUCKETS - 1];
}

#endif
