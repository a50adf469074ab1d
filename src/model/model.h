/* model.h - a model's weights, named by what they do.
 *
 * Matrices are views into the source's mapped files ([out][in], row-major);
 * vectors (norms, biases) are copied to float.  Immutable after load. */
#ifndef NB_MODEL_MODEL_H
#define NB_MODEL_MODEL_H
#include "base/arena.h"
#include "kernel/linear/packed.h"
#include "load/source.h"
#include "model/config.h"

typedef struct nb_mlp {
    nb_weight gate, up, down;            /* [inter][hidden] x2, [hidden][inter] */
    const float *gate_b, *up_b, *down_b; /* NULL: no bias */
} nb_mlp;

/* Rows from several tokens (attn_csa.c): kv and gate [width][hidden], ape [ratio][width], norm [dim]. */
typedef struct nb_compressor {
    nb_weight kv, gate;
    const float *ape, *norm;
} nb_compressor;

/* Where n_stream = s residual streams are mixed before a sublayer: fn [(2 + s) s][s hidden], base of as many values,
 * scale [3]; before the head fn [s][s hidden] in F32, base [s], scale [1]. */
typedef struct nb_mix {
    nb_weight fn;
    const float *base, *scale;
} nb_mix;

typedef struct nb_layer {
    const float *in_norm, *post_norm; /* [hidden] */
    const float
        *branch_norm; /* [hidden]: of what the feed-forward block adds to the stream; NULL: none */
    /* MLA: q (no q_lora) or q_a, q_b; kv_a [kv_lora + d_rope][hidden]; kv_b
     * [n_head * (d_nope + d_v)][kv_lora], per head W_UK rows then W_UV rows. */
    nb_weight q, q_a, q_b, kv_a, kv_b, o;
    /* The halves of kv_b, where a GGUF file has them in forms that cannot be joined: W_UK of each head transposed
     * [n_head * kv_lora][d_nope], and W_UV [n_head * d_v][kv_lora].  kv_b is absent then (kv_b.h).  data NULL: there are
     * none. */
    nb_weight absorb_k, absorb_v;
    const float *q_a_norm, *kv_a_norm;
    const float *q_b_bias, *q_a_b, *kv_a_b, *o_b; /* q_b_bias: GQA's q bias */
    const float *kv_mean; /* fold.h: subtracted from new latents after the norm; NULL: none */
    size_t kv_hadamard;   /* fold.h: block of their Hadamard transform, after that; 0: none */
    /* [d_rope] powers of two, one per pair, and their inverses: what rotated keys and queries are
     * multiplied with (rope_balance.c); NULL: all are 1. */
    const float *rope_k, *rope_q;
    /* DSA, of layers with an indexer: its queries from the normed q_a, its keys, its heads' weights */
    nb_weight index_q, index_k, index_w;
    const float *index_norm, *index_norm_b; /* layer norm of a key */
    /* GQA */
    nb_weight k, v;
    const float *k_b, *v_b, *q_norm, *k_norm;
    /* KDA: decay f_b f_a x [n_head * head_dim], gate of the output g_b g_a x, beta [n_head]; the convolutions'
     * [conv][n_head * head_dim], turned so by loading; a_log [n_head], dt_bias [n_head * head_dim], o_norm [head_dim]. */
    nb_weight f_a, f_b, g_a, g_b, beta;
    const float *q_conv, *k_conv, *v_conv, *a_log, *dt_bias, *o_norm;
    /* CSA: q_a, q_b, q_a_norm; kv_a and kv_a_norm make rows [head_dim]; o_a [o_group * o_lora][n_head * head_dim /
     * o_group], o [hidden][o_group * o_lora] */
    nb_weight o_a, idx_q, idx_w;
    const float *sink; /* [n_head] */
    nb_compressor comp, idx_comp;
    nb_mix mix[2];         /* before attention, before feed-forward; fn.data NULL: one stream */
    nb_mlp mlp;            /* dense layer, or the shared experts (gate.data NULL: none) */
    nb_weight router;      /* [n_expert][hidden] */
    const float *router_b; /* e_score_correction_bias */
    const uint16_t *hash;  /* [n_vocab][top_k] distinct experts of a token; NULL: the router chooses */
    nb_mlp *expert;        /* [n_expert] */
} nb_layer;

typedef struct nb_model {
    nb_model_config c;
    nb_weight embed, head; /* [n_vocab][hidden] */
    bool head_is_embed;    /* one matrix is both */
    const float *final_norm;
    nb_mix mix;            /* of several residual streams, before final_norm */
    nb_layer *layer;       /* [n_layer] */
    uint64_t weight_bytes; /* of all matrices and vectors */
    nb_wtype wtype;        /* of the first layer's o_proj: what `info` prints */
    nb_arena arena;
    nb_arena folded; /* matrices that fold.c made; empty once they are quantised */
} nb_model;

/* Takes every tensor of the configuration from the source, which must outlive
 * the model.  On failure *m is empty and the line names file and tensor. */
nb_status nb_model_load(nb_model *m, const nb_model_config *c, nb_source *s, nb_error *err);
void nb_model_deinit(nb_model *m);
/* The same with shapes, types and weight_bytes as a dummy source would have them, but no data. */
nb_status nb_model_shapes(nb_model *m, const nb_model_config *c, nb_error *err);

/* Of a number in the checkpoint's own type, in which norms and biases are. */
size_t nb_model_dtype_bytes(const nb_model_config *c);
/* Calls fn for the matrices of all layers and the head, not for embedding, routers and what else is kept
 * (NB_T_KEEP); name is the tensor's.  Ends at the first failure, which it returns. */
typedef nb_status nb_matrix_fn(void *ctx, const char *name, nb_weight *w);
nb_status nb_model_each_matrix(nb_model *m, nb_matrix_fn *fn, void *ctx);

/* Sets rope_k and rope_q of an MLA layer from its weights; nb_model_load does. */
nb_status nb_rope_balance(nb_model *m, size_t layer, nb_error *err);

#endif
