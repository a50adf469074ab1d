/* embed.h - rows of the embedding matrix as float: y[t] = factor * W[id[t]]. */
#ifndef NB_KERNEL_EMBED_H
#define NB_KERNEL_EMBED_H
#include "kernel/kernel.h"

typedef struct nb_embed_args {
    float *y;            /* [n_tok][y_stride]                      */
    const uint32_t *id;  /* [n_tok], each < w.n_row (caller checks) */
    nb_weight w;         /* [n_vocab][dim], any nb_wtype           */
    size_t n_tok, y_stride;
    float factor;        /* 1 but for MiniCPM3's scale_emb         */
} nb_embed_args;

/* Correctly rounded product; exact for factor 1 (FP8B: e4m3 * scale rounded once). */
typedef void nb_embed_fn(const nb_embed_args *a);
nb_embed_fn nb_embed_c;
void nb_embed_ref(const nb_embed_args *a, double *y64);

typedef struct nb_embed_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_embed_fn *fn;
} nb_embed_variant;
extern const nb_embed_variant nb_embed_variants[];
#endif
