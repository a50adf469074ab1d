/* attn_score_avx2.c - scores in the tiles of attention: 4 heads x 3 tokens at a time, so that a
 * key is loaded once for 4 heads and a query once for 3 tokens.
 *
 * Bound by the FMA units: (d1 + d2) / 8 FMA per head and token. */
#include "kernel/attn_score/attn_score.h"
#include "kernel/x86/attn_scores_avx2.h"

static void scale_row(float *s, size_t n, float scale)
{
    for (size_t t = 0; t < n; t++) s[t] *= scale;
}

void nb_attn_score_avx2(const nb_attn_score_args *a)
{
    const nb_avx2_keys k = { a->k1, a->k2, a->k1_stride, a->k2_stride, a->d1, a->d2 };
    const size_t d = a->d1 + a->d2;
    for (size_t h = a->head_begin; h < a->head_end;) {
        const bool four = a->head_end - h >= 4;
        const float *const q = a->q + h * d, *const row[4] = { q, q + (four ? d : 0),
                                                               q + (four ? 2 * d : 0),
                                                               q + (four ? 3 * d : 0) };
        float *s = a->s + h * a->s_stride;
        (four ? nb_avx2_scores_4 : nb_avx2_scores_1)(&k, row, a->n_kv, s, a->s_stride);
        for (size_t i = 0; i < (four ? 4u : 1u); i++)
            scale_row(s + i * a->s_stride, a->n_kv, a->scale);
        h += four ? 4 : 1;
    }
}
