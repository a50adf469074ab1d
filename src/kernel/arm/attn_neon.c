/* attn_neon.c - attention over a tile of up to 64 tokens.
 *
 * A batch of rows (attn_rows.h) goes through three steps, the last two in attn_values_neon.h:
 *   scores  tiles of 4 rows x 2 tokens, dot products in 8 lanes along d (attn_scores_neon.h)
 *   weights maximum, exp, sum; per row
 *   values  tiles of 4 rows x 16 columns, one chain over the tokens; 4 loads of values and 4 of weights
 *           per 16 FMLA; STRIP columns of 64 tokens stay in the first-level cache for the batch
 * Order of a row, whatever the tiles: lanes along k1, then k2, joined pairwise; weights summed in lanes
 * t % 8; values in one chain over t from 0, added to the scaled old state.  Rows of a tile that see
 * fewer tokens stop there: tokens a row may not see never enter its sums, not even with weight 0 (they
 * may be anything).
 *
 * Bound by the FMLA, (d1 + d2 + d_v) / 4 per row and token: 35 instructions per 16 of them in the scores,
 * 26 in the values (gcc 12). */
#include "kernel/arm/attn_scores_neon.h"
#include "kernel/arm/attn_values_neon.h"

enum { NEAR = 12 };

/* Scores of all rows with tokens [t, t + NEAR): few enough that their keys stay in the first-level
 * cache from row to row. */
static void score_near(nb_attn_rows *b, const nb_neon_keys *k, size_t t)
{
    nb_neon_keys at = *k;
    at.k1 += t * k->k1_stride;
    if (k->d2) at.k2 += t * k->k2_stride;
    for (size_t r = 0, rows; r < b->n_row; r += rows) {
        rows = b->n_row - r >= 4 ? 4 : 1;
        size_t n = nb_attn_rows_most(b, r, rows);
        n = n < t ? 0 : n - t < NEAR ? n - t : NEAR;
        (rows == 4 ? nb_neon_scores_4 : nb_neon_scores_1)(&at, b->q + r, n, b->p[r] + t, T_MAX);
    }
}

static void run_batch(nb_attn_rows *b, const nb_attn_args *a, size_t g)
{
    const nb_neon_keys k = {
        a->k1 + g * a->k1_head, a->k2, a->k1_stride, a->k2_stride, a->d1, a->d2
    };
    for (size_t t = 0; t < a->n_kv; t += NEAR) score_near(b, &k, t);
    for (size_t r = 0; r < b->n_row; r++) weights(b, r, a->scale);
    all_values(b, a, a->v + g * a->v_head);
}

void nb_attn_neon(const nb_attn_args *a)
{
    nb_attn_rows_run(a, run_batch);
}
