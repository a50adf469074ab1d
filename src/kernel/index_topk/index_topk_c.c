/* index_topk_c.c - portable choice of the largest scores: a radix search for the k-th largest in three passes of 11, 11
 * and 10 bits, then one pass that collects. */
#include <string.h>

#include "kernel/index_topk/index_topk.h"

static nb_index_cut find(const nb_index_topk_args *a)
{
    uint32_t count[NB_INDEX_BINS];
    size_t n = a->k;
    memset(count, 0, sizeof count);
    for (size_t i = 0; i < a->n; i++) count[nb_index_key(a->s[i]) >> 21]++;
    const uint32_t top = nb_index_bin(count, NB_INDEX_BINS, &n);
    memset(count, 0, sizeof count);
    for (size_t i = 0; i < a->n; i++) {
        const uint32_t key = nb_index_key(a->s[i]);
        if (key >> 21 == top) count[key >> 10 & 2047]++;
    }
    const uint32_t mid = top << 11 | nb_index_bin(count, NB_INDEX_BINS, &n);
    memset(count, 0, sizeof count);
    for (size_t i = 0; i < a->n; i++) {
        const uint32_t key = nb_index_key(a->s[i]);
        if (key >> 10 == mid) count[key & 1023]++;
    }
    const uint32_t low = nb_index_bin(count, 1024, &n);
    return (nb_index_cut){ mid << 10 | low, n };
}

void nb_index_topk_c(const nb_index_topk_args *a)
{
    if (a->k == 0) return;
    nb_index_cut c = find(a);
    size_t n = 0;
    for (size_t i = 0; i < a->n && n < a->k; i++) {
        const uint32_t key = nb_index_key(a->s[i]);
        if (key < c.key || (key == c.key && c.n_equal == 0)) continue;
        c.n_equal -= key == c.key;
        a->at[n++] = (uint32_t)i;
    }
}
