/* fold.h - transforms of the latent, folded into the weights at load.
 *
 * c' = H P D (c - mean) (load/kv_calib.h) is cached in place of c; with T = H P D the model is
 * the same function when W_UK' = W_UK T^-1, W_UV' = W_UV T^-1, the norm's weights become
 * P D gamma with the rows of W_DKV permuted, and W_O [W_UV,h mean]_h is added after attention
 * (scores shift by the same amount for all tokens, which softmax does not see).  D is a power of two and P a
 * permutation: exact in every weight type but FP8, which becomes BF16.  H makes kv_b float32. What remains for
 * run time is the subtraction of the mean and the fast Hadamard transform of a new token.
 * Source: QuaRot (arXiv 2404.00456) for rotations; the algebra of docs/accuracy.md. */
#ifndef NB_MODEL_FOLD_H
#define NB_MODEL_FOLD_H
#include "model/model.h"
#include "num/hadamard.h"

typedef struct nb_fold {
    const float *mean;        /* [kv_lora] or NULL */
    const int8_t *scale_log2; /* [kv_lora] or NULL */
    const uint16_t *perm;     /* [kv_lora] or NULL */
    size_t hadamard;          /* block, a power of two dividing kv_lora; 0: none */
} nb_fold;

/* Replaces the layer's weights; what is new lives in the model's arenas.  Once per layer. MLA only. */
nb_status nb_fold_layer(nb_model *m, size_t layer, const nb_fold *f, nb_error *err);

/* What new latents get at run time, rows [n_tok][stride], after the norm: see nb_layer.kv_mean,
 * kv_hadamard. */
void nb_fold_rows(const nb_layer *l, size_t kv_lora, float *kv, size_t n_tok, size_t stride);

/* SHA-256 over the geometry and the weights as loaded (call it before folding), hexadecimal:
 * whole for those that make a layer's cached values, samples of the others (model_hash.c). */
nb_status nb_model_hash(const nb_model *m, char hex[65], nb_error *err);

#endif
