/* index_topk.h - the k largest of n scores, exactly.
 *
 * Writes the places of the k largest scores in ascending order.  Of equal scores the earlier places come first; -0 and
 * +0 are equal, and a NaN is less than everything, equal to other NaNs.  So the set is determined, and every variant
 * writes the same. */
#ifndef NB_KERNEL_INDEX_TOPK_H
#define NB_KERNEL_INDEX_TOPK_H
#include "kernel/kernel.h"

typedef struct nb_index_topk_args {
    const float *s; /* [n] */
    uint32_t *at;   /* [k]; may not overlap s */
    size_t n, k;    /* k <= n < 2^32 */
} nb_index_topk_args;

typedef void nb_index_topk_fn(const nb_index_topk_args *a);
nb_index_topk_fn nb_index_topk_c, nb_index_topk_avx2, nb_index_topk_ref;

typedef struct nb_index_topk_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_index_topk_fn *fn;
} nb_index_topk_variant;
extern const nb_index_topk_variant nb_index_topk_variants[];

/* A score as an unsigned number in the same order. */
static inline uint32_t nb_index_key(float s)
{
    union {
        float f;
        uint32_t u;
    } x = { .f = s + 0.0f }; /* -0 becomes +0 */
    if (s != s) return 0;
    return x.u & 0x80000000u ? ~x.u : x.u | 0x80000000u;
}

/* What the passes of a radix search have found: keys > the k-th largest are taken, and of those that equal it the
 * first n_equal. */
typedef struct nb_index_cut {
    uint32_t key;
    size_t n_equal;
} nb_index_cut;

enum { NB_INDEX_BINS = 2048 };
/* The bin, from the largest down, in which the n-th falls; n becomes its rank there. */
static inline uint32_t nb_index_bin(const uint32_t *count, uint32_t n_bin, size_t *n)
{
    uint32_t b = n_bin - 1;
    while (*n > count[b]) *n -= count[b--];
    return b;
}
#endif
