/* attn_score_c.c - portable scores: one dot product after the other. */
#include "kernel/attn/attn_order.h"
#include "kernel/attn_score/attn_score.h"

void nb_attn_score_c(const nb_attn_score_args *a)
{
    for (size_t h = a->head_begin; h < a->head_end; h++) {
        const float *q = a->q + h * (a->d1 + a->d2);
        for (size_t t = 0; t < a->n_kv; t++) {
            const float *k2 = a->d2 ? a->k2 + t * a->k2_stride : NULL;
            a->s[h * a->s_stride + t] =
                nb_attn_dot(q, a->k1 + t * a->k1_stride, a->d1, k2, a->d2) * a->scale;
        }
    }
}
