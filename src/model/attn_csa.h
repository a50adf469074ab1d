/* attn_csa.h - what compressed attention keeps per sequence, and its sizes (attn_csa.c has the formulas). */
#ifndef NB_MODEL_ATTN_CSA_H
#define NB_MODEL_ATTN_CSA_H
#include "model/attention.h"

/* Tokens of a window of compression that overlaps the one before: the ratio of CSA. */
enum { NB_CSA_OVERLAP = 4 };

/* Values of a token's kv, and of its gate, for rows of dim values: twice as many where windows overlap. */
size_t nb_csa_width(const nb_attn_config *a, size_t dim);

/* Values of a row: of all heads, and the indexer's key. */
static inline size_t nb_csa_values(const nb_attn_config *a)
{
    return a->head_dim + (a->index_topk ? a->index_dim : 0);
}

/* A sequence's state in a layer (nb_attn_dims.n_state), in floats: places in it.
 *   0         [window][head_dim]: rows of the last tokens, position p at p mod window
 *   comp      ratio 4: kv and gate of the last 8 tokens, [8][2][width], position p at p mod 8;
 *             ratio 128: of the window that is not full, the largest gate, the sum of weights and the weighted sum,
 *             [3][width]
 *   idx_comp  the same as with ratio 4, of the indexer's keys */
typedef struct nb_csa_state {
    size_t comp, idx_comp, n;
} nb_csa_state;
nb_csa_state nb_csa_state_of(const nb_attn_config *a);

#endif
