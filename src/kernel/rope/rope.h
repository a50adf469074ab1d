/* rope.h - rotary position embedding, in place.
 *
 *   pair j of token t: (a, b) -> (a cos - b sin, a sin + b cos)
 *   interleaved: pair j = (x[2j], x[2j+1]);  else half-split: (x[j], x[j + dim/2])
 *
 * Source: Su et al. 2021 (arXiv 2104.09864); layouts as in DeepSeek (interleaved)
 * and Hugging Face Llama (half-split). */
#ifndef NB_KERNEL_ROPE_H
#define NB_KERNEL_ROPE_H
#include "kernel/kernel.h"

typedef struct nb_rope_args {
    float *x;                        /* [n_tok][tok_stride]; head h's values at h * head_stride */
    const float *cos_sin;            /* [n_tok][dim]: dim/2 cosines, then dim/2 sines           */
    size_t n_tok, n_head, dim;       /* dim even                                                */
    size_t tok_stride, head_stride;  /* elements                                                */
    bool interleaved;
} nb_rope_args;

/* |y - y64| <= 3 * 2^-24 * (|a| + |b|) for cosines and sines of at most 1 in
 * magnitude (times their common factor otherwise). */
typedef void nb_rope_fn(const nb_rope_args *a);
nb_rope_fn nb_rope_c, nb_rope_avx2, nb_rope_neon;
void nb_rope_ref(const nb_rope_args *a, double *y64); /* [n_tok][n_head][dim], a->x untouched */

typedef struct nb_rope_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_rope_fn *fn;
} nb_rope_variant;
extern const nb_rope_variant nb_rope_variants[];
#endif
