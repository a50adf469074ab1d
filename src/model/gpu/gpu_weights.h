/* gpu_weights.h - a model's weights on a GPU, in the forms that its operations read.
 *
 * Products of the same rows whose weights are of one type become one matrix.  What the direct form
 * wants of kv_b is stored once more: W_UK transposed per head (linear.h's linear_t does without on a host),
 * and W_UV;
 * FP8 with blocks that lie within a head keeps its codes and scales there; where kv_b has other codes and scales the
 * absorbed forms are two BF16 matrices each, hi + lo to 2^-17.  Experts of a layer follow each other.  Weights of 4 and 8 bits are tiled (kernel/linear/tiled.h), but FP8; those in act order, in
 * groups that are no multiples of 32 columns, or with scales that 16 bits do not hold, become floats.  Memory is the
 * device's, freed as a whole.
 *
 * One of several ranks has the rows of its part (nb_rank_part): heads of attention, columns of the other products, its
 * experts one after the other. */
#ifndef NB_MODEL_GPU_WEIGHTS_H
#define NB_MODEL_GPU_WEIGHTS_H
#include "dev/gpu.h"
#include "kernel/cuda/api/nb_cuda.h"
#include "model/gpu/gpu_runs.h"
#include "model/model.h"
#include "model/rank.h"

/* Whether the absorbed forms of kv_b keep its blocks of FP8: each lies within the keys or the values of one head. */
static inline bool nb_gpu_keeps_blocks(const nb_weight *kv_b, const nb_attn_config *a)
{
    return kv_b->type == NB_W_FP8B && !kv_b->row_scales && a->d_nope % NB_FP8_BLOCK == 0 &&
           a->d_v % NB_FP8_BLOCK == 0 && a->kv_lora % NB_FP8_BLOCK == 0;
}

/* Whether the absorbed forms of kv_b are two matrices. */
static inline bool nb_gpu_in_two_parts(const nb_weight *kv_b, const nb_attn_config *a)
{
    return kv_b->type >= NB_W_FP8B && !nb_gpu_keeps_blocks(kv_b, a);
}

/* A matrix and who multiplies with it; row[kind] NULL: never used so. */
typedef struct nb_gpu_mat {
    nb_weight w;
    size_t n_whole; /* rows of the matrix that w is a part of */
    const float *bias;
    const nb_cuda_linear_row *row[2];
} nb_gpu_mat;

enum { NB_GPU_JOIN = 4 };

/* Products of the same rows: outputs of matrix i go to columns [at[i], at[i] + rows) of one buffer. */
typedef struct nb_gpu_group {
    nb_gpu_mat m[NB_GPU_JOIN];
    size_t n, at[NB_GPU_JOIN], width;
    bool joined; /* one product in the whole model */
} nb_gpu_group;

/* Columns of a row of gate, then up, where they are two products. */
static inline size_t nb_gpu_apart_width(const nb_model_config *c)
{
    return (c->moe_inter + 7) / 8 * 16;
}

/* A place where residual streams are mixed: fn in F32; NULL: there is one stream. */
typedef struct nb_gpu_mix {
    const float *fn, *base, *scale;
} nb_gpu_mix;

typedef struct nb_gpu_layer {
    const float *in_norm, *post_norm, *branch_norm, *q_a_norm, *kv_a_norm, *mean, *rope_k, *rope_q,
        *q_norm, *k_norm, *index_norm, *index_norm_b;
    nb_gpu_group in;         /* MLA: q or q_a, then kv_a, then the keys of an indexer; GQA: q, k, v */
    nb_gpu_mat index_q, index_w;
    /* CSA, beside q_a and kv_a in `in`: kv and gate of the compressor, then of the indexer's */
    nb_gpu_group comp;
    const float *ape[2], *comp_norm[2], *sink;
    nb_gpu_mat o_a; /* [o_group * o_lora][columns of a group] */
    nb_gpu_mix mix[2];
    const uint16_t *hash; /* [n_vocab][top_k]; NULL: the router chooses */
    nb_gpu_mat q_b, kv_b, o; /* kv_b: the expanded form */
    nb_gpu_mat uk[2],
        uv[2]; /* absorbing: [n_head * kv_lora][d_nope], [n_head * uv_batch][kv_lora]; */
    size_t n_part,
        uv_batch; /* parts whose products are added: 1 or 2; rows of uv from head to head */
    nb_gpu_group gate_up;
    nb_gpu_mat down, router;
    const float *router_b;
    nb_gpu_experts expert; /* host: forms and kernels only */
    bool host;             /* routed experts stay in host memory */
} nb_gpu_layer;

typedef struct nb_gpu_weights {
    nb_gpu_mat embed, head; /* embed: w only */
    const float *final_norm;
    nb_gpu_mix mix; /* before it */
    nb_gpu_layer *layer; /* [n_layer] */
    bool floats;         /* some product reads float rows */
    bool apart;          /* some experts' gate and up are two products */
    bool host, upload;   /* some layer is the host's; the experts of all these can be sent */
    uint64_t n_bytes, used_bytes; /* of device memory taken, in pieces; of these in use */
    /* private */
    nb_gpu *gpu;
    nb_dev *dev; /* whose threads make tiles */
    const struct nb_rank_part *part; /* of the model that is here; the rank's */
    void **chunk;
    size_t n_chunk;
    char *at;
    size_t left;
    nb_arena arena;
} nb_gpu_weights;

/* part: what this rank has of the model.  direct, expanded: which of the two forms are used; codes: products may round activations to FP8.  The host's weights are only read during the call, but for
 * experts that stay there: those of the first n_host layers that have some, and with place->fit all, until
 * nb_gpu_weights_fit.  On failure the line says what was refused, and *w is empty. */
nb_status nb_gpu_weights_init(nb_gpu_weights *w, const nb_model *m, const struct nb_rank_part *part,
                              nb_gpu *gpu, nb_dev *dev, bool direct, bool expanded, bool codes,
                              const nb_expert_place *place, nb_error *err);
/* Uploads the experts of as many layers as fit when leave_bytes of the device's memory stay free, the last first.
 * all: of every layer, or none where they do not fit together. */
nb_status nb_gpu_weights_fit(nb_gpu_weights *w, const nb_model *m, uint64_t leave_bytes, bool all,
                             nb_error *err);
uint64_t nb_gpu_expert_bytes(const nb_model *m, size_t layer);
void nb_gpu_weights_deinit(nb_gpu_weights *w);

#endif
