/* attn_score.h - scores of one query's heads against one tile of keys that all heads share
 * (absorbed latent attention: k1 = latent, k2 = rope key).
 *
 *   s[h][t] = scale * (q[h][0..d1) . k1[t] + q[h][d1..d1+d2) . k2[t])
 *
 * for heads head_begin <= h < head_end and tokens t < n_kv; nothing else is written.  The order
 * of summation is that of kernel/attn on the same machine, so that a score has the very bits of the
 * score attention works with (a state of attn after one token has m == s); it does not depend
 * on n_kv or on the range of heads.  s may not overlap the inputs. */
#ifndef NB_KERNEL_ATTN_SCORE_H
#define NB_KERNEL_ATTN_SCORE_H
#include "kernel/kernel.h"

typedef struct nb_attn_score_args {
    float *s;             /* head h at h * s_stride                           */
    const float *q;       /* head h at h * (d1 + d2)                          */
    const float *k1, *k2; /* [n_kv][stride]; k2 unused when d2 == 0       */
    size_t head_begin, head_end, n_kv, d1, d2;
    size_t s_stride, k1_stride, k2_stride; /* elements */
    float scale;
} nb_attn_score_args;

/* |s - s64| <= 2^-24 * ((d1 + d2)/8 + 6) * A, A = |scale| * sum of |q_i k_i|: a lane's chain, the
 * joining of 8 lanes, a product without FMA, the scale (attn.h). */
typedef void nb_attn_score_fn(const nb_attn_score_args *a);
nb_attn_score_fn nb_attn_score_c, nb_attn_score_avx2, nb_attn_score_neon;

/* s64 and A in double: [head_end - head_begin][n_kv] each. */
void nb_attn_score_ref(const nb_attn_score_args *a, double *s64, double *abs_sum);

typedef struct nb_attn_score_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_attn_score_fn *fn;
} nb_attn_score_variant;
extern const nb_attn_score_variant nb_attn_score_variants[];
#endif
