/* index_topk_ref.c - the definition: score i is among the k largest when fewer than k come before it. */
#include "kernel/index_topk/index_topk.h"

static bool before(float a, size_t i, float b, size_t j)
{
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan || b_nan) return a_nan == b_nan ? i < j : b_nan;
    return a == b ? i < j : a > b;
}

void nb_index_topk_ref(const nb_index_topk_args *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        size_t n_before = 0;
        for (size_t j = 0; j < a->n && n_before < a->k; j++)
            n_before += before(a->s[j], j, a->s[i], i);
        if (n_before < a->k) a->at[n++] = (uint32_t)i;
    }
}
