/* swiglu.h - y[t][i] = g / (1 + exp(-g)) * u   with g = gate[t][i], u = up[t][i].
 * Source: Shazeer 2020 (arXiv 2002.05202). */
#ifndef NB_KERNEL_SWIGLU_H
#define NB_KERNEL_SWIGLU_H
#include "kernel/kernel.h"

typedef struct nb_swiglu_args {
    float *y;                /* [n_tok][y_stride]; may equal gate or up, no other overlap */
    const float *gate, *up;  /* [n_tok][in_stride] each                                   */
    size_t n_tok, dim;
    size_t in_stride, y_stride;
} nb_swiglu_args;

/* |y - y64| <= 8 * 2^-24 * |y64| + 2^-126 * (1 + 2^-16 |u|).  The second term: below
 * g = -87 exp(g) is subnormal, |g| exp(g) has an absolute error of at most
 * 104 * 2^-149 < 2^-142, which is multiplied by u. */
typedef void nb_swiglu_fn(const nb_swiglu_args *a);
nb_swiglu_fn nb_swiglu_c, nb_swiglu_avx2, nb_swiglu_neon;
void nb_swiglu_ref(const nb_swiglu_args *a, double *y64); /* [n_tok][dim] */

typedef struct nb_swiglu_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_swiglu_fn *fn;
} nb_swiglu_variant;
extern const nb_swiglu_variant nb_swiglu_variants[];
#endif
