/* attn_score_neon.c - scores in the tiles of attention: 4 heads x 2 tokens at a time, so that a key
 * is loaded once for 4 heads and a query once for 2 tokens.
 *
 * Bound by the FMLA: (d1 + d2) / 4 per head and token. */
#include "kernel/arm/attn_scores_neon.h"
#include "kernel/attn_score/attn_score.h"

static void scale_row(float *s, size_t n, float scale)
{
    for (size_t t = 0; t < n; t++) s[t] *= scale;
}

void nb_attn_score_neon(const nb_attn_score_args *a)
{
    const nb_neon_keys k = { a->k1, a->k2, a->k1_stride, a->k2_stride, a->d1, a->d2 };
    const size_t d = a->d1 + a->d2;
    for (size_t h = a->head_begin, n; h < a->head_end; h += n) {
        n = a->head_end - h >= 4 ? 4 : 1;
        const float *row[4] = { 0 };
        for (size_t i = 0; i < n; i++) row[i] = a->q + (h + i) * d;
        float *s = a->s + h * a->s_stride;
        (n == 4 ? nb_neon_scores_4 : nb_neon_scores_1)(&k, row, a->n_kv, s, a->s_stride);
        for (size_t i = 0; i < n; i++) scale_row(s + i * a->s_stride, a->n_kv, a->scale);
    }
}
