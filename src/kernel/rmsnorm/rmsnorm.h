/* rmsnorm.h - root-mean-square normalisation of rows.
 *
 *   y[t][i] = x[t][i] * w[i] / sqrt(mean_i(x[t][i]^2) + eps)
 *
 * Source: Zhang & Sennrich 2019 (arXiv 1910.07467). */
#ifndef NB_KERNEL_RMSNORM_H
#define NB_KERNEL_RMSNORM_H
#include "kernel/kernel.h"

typedef struct nb_rmsnorm_args {
    float *y;                  /* [n_row][y_stride]; y[t][0..dim) is written      */
    const float *x;            /* [n_row][x_stride]; x == y allowed, no other overlap */
    const float *w;            /* [dim]                                           */
    size_t n_row, dim;         /* dim >= 1                                        */
    size_t x_stride, y_stride; /* elements, >= dim                                */
    float eps;                 /* > 0, added to the mean square                   */
} nb_rmsnorm_args;

/* |y - y64| <= (4 + dim/16) * 2^-24 * |y64|.  The result of a row does not
 * depend on the other rows. */
typedef void nb_rmsnorm_fn(const nb_rmsnorm_args *a);
nb_rmsnorm_fn nb_rmsnorm_c, nb_rmsnorm_avx2, nb_rmsnorm_neon;
void nb_rmsnorm_ref(const nb_rmsnorm_args *a, double *y64); /* y64: [n_row][dim] */

typedef struct nb_rmsnorm_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_rmsnorm_fn *fn;
} nb_rmsnorm_variant;
extern const nb_rmsnorm_variant nb_rmsnorm_variants[];
#endif
