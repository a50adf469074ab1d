/* row.h - passes over a row of logits: the largest, and the weights exp((x - top) / T).
 *
 * Rows are cut in blocks of NB_ROW_BLOCK consecutive entries, the last one shorter.  What is
 * said of a block costs little to keep (1/64 of the row) and lets later steps pass over blocks:
 * its largest logit, the sum of its weights.
 *
 * Weights are floats: of d = (x - top) / T the weight is exp(d * (1 + a)) * (1 + b) with
 * |a| <= 2e-7 and |b| <= 2e-7.  Below least, and for -inf, it is 0.
 *
 * Sums are in double, in one order: in a block, filled up with 0, entries k and k + 32 are added,
 * of the 32 results k and k + 16, and so on to one; then block by block. */
#ifndef NB_SAMPLE_ROW_H
#define NB_SAMPLE_ROW_H
#include <stdbool.h>
#include <stddef.h>

enum { NB_ROW_BLOCK = 64 };

static inline size_t nb_row_n_blocks(size_t n)
{
    return (n + NB_ROW_BLOCK - 1) / NB_ROW_BLOCK;
}

/* *best: index of the largest of x[n], the first of equal ones; block_max[n_blocks]: the largest
 * of each block, or NULL.  False when an entry is NaN or +inf, or all are -inf. */
bool nb_row_max(const float *x, size_t n, float *block_max, size_t *best);

/* The largest of x[n], n <= NB_ROW_BLOCK; no entry is NaN. */
float nb_row_block_max(const float *x, size_t n);

typedef struct nb_row_scale {
    float top;   /* the largest of the row, finite               */
    float inv_t; /* 1 / T, finite                                */
    float least; /* >= top - 80 T and > -inf: below it weigh 0   */
} nb_row_scale;

/* w[n]: the weights, block_sum[n_blocks]: their sums; each may be NULL, and w may be x.  With
 * block_max, blocks that have only entries below least get a sum of 0 and their w is left as it
 * is.  Returns the sum of all. */
double nb_row_weigh(const float *x, size_t n, const nb_row_scale *s, const float *block_max,
                    float *w, double *block_sum);

/* Sums of weights that exist already. */
double nb_row_sum(const float *w, size_t n, double *block_sum);

/* The first index at which the cumulated weight exceeds target, or else (by rounding) the last
 * with a weight above 0; some weight is. */
size_t nb_row_find(const float *w, size_t n, const double *block_sum, double target);

#endif
