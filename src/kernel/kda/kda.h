/* kda.h - the recurrence of Kimi Delta Attention: one head, one sequence, tokens in order.
 *
 * The state S holds a value for every direction of a key, [d_k][d_v].  A token t lets it forget, by a factor for each
 * key channel, and then moves what it holds for the key towards the value:
 *   S[i][j] *= a[t][i]
 *   e[j]     = beta[t] * (v[t][j] - sum_i k[t][i] S[i][j])
 *   S[i][j] += k[t][i] e[j]
 *   y[t][j]  = sum_i q[t][i] S[i][j]
 *
 * Source: Kimi Linear (arXiv 2510.26692), section 3; the delta rule with gates of Yang et al. (arXiv 2412.06464). */
#ifndef NB_KERNEL_KDA_H
#define NB_KERNEL_KDA_H
#include "kernel/kernel.h"

typedef struct nb_kda_args {
    float *y;           /* [n_tok][y_stride]; columns [0, d_v) are written */
    float *s;           /* [d_k][s_stride] in and out, columns [0, d_v) */
    const float *q, *k; /* [n_tok][qk_stride] each, [0, d_k) */
    const float *v;     /* [n_tok][v_stride], [0, d_v) */
    const float *a;     /* [n_tok][a_stride], [0, d_k): each in [0, 1] */
    const float *beta;  /* [n_tok][beta_stride]: one number each, in [0, 1] */
    size_t n_tok;
    size_t d_k, d_v;                                                       /* >= 1 */
    size_t y_stride, s_stride, qk_stride, v_stride, a_stride, beta_stride; /* elements */
} nb_kda_args;

/* Nothing overlaps.  |k|_2 <= 1: then the update contracts, and errors of the tokens before do not grow.
 * With e = (d_k + 8) 2^-24, A = max |S[i][j]| before and V = max |v| of the call, M = A + n_tok V:
 *   |s - s64| <= e (n_tok + 1) d_k^.5 M,  |y - y64| <= e (n_tok + 2) d_k M max |q|:
 * a token adds (d_k + 8) roundings to a column of length d_k^.5 M at most.
 * A call for n tokens has the bits of n calls for one.  A column's result does not depend on the other columns, and
 * may depend on where d_v ends. */
typedef void nb_kda_fn(const nb_kda_args *a);
nb_kda_fn nb_kda_c, nb_kda_avx2, nb_kda_avx512;
void nb_kda_ref(const nb_kda_args *a, double *y64,
                double *s64); /* [n_tok][d_v]; [d_k][d_v]; a->s is read only */

typedef struct nb_kda_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_kda_fn *fn;
} nb_kda_variant;
extern const nb_kda_variant nb_kda_variants[];
#endif
