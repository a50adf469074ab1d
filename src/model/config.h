/* config.h - a model's geometry and arithmetic, read from config.json.
 *
 * A family is one table (family.h): the config keys it reads, what
 * it refuses, and a finishing function.  After nb_model_config_read everything
 * below is validated: later code checks nothing again. Immutable. */
#ifndef NB_MODEL_CONFIG_H
#define NB_MODEL_CONFIG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "load/doc.h"
#include "model/config_quant.h"
#include "num/record.h"

enum {
    NB_MAX_LAYER = 1024,
    NB_MAX_ROPE_PAIR = 512,
    NB_MAX_EOS = 64,
    NB_NOTE_BYTES = 512,
    NB_MAX_ATTN = 4
};

/* Kinds of attention: X(NAME, name) gives NB_ATTN_NAME, and the rows nb_attention_name (attention.h) and
 * nb_cpu_kind_name (cpu/cpu.h).  docs/add-an-attention.md shows how to add one. */
#define NB_ATTENTIONS(X) X(MLA, mla) X(GQA, gqa) X(KDA, kda) X(DSA, dsa) X(CSA, csa)

typedef enum nb_attn_kind {
#define X(NAME, name) NB_ATTN_##NAME,
    NB_ATTENTIONS(X)
#undef X
        NB_ATTN_KINDS
} nb_attn_kind;

typedef struct nb_rope_config {
    size_t dim; /* rotated values per head (0: none), even        */
    bool interleaved;
    float inv_freq[NB_MAX_ROPE_PAIR];      /* [dim / 2]                                      */
    float inv_freq_long[NB_MAX_ROPE_PAIR]; /* longrope: for prompts longer than switch_tok   */
    size_t switch_tok;                     /* 0: no second table                             */
    float factor;                          /* multiplies cosines and sines                   */
} nb_rope_config;

/* One kind of attention with its dimensions.  Which fields count depends on the kind; the others are 0. */
typedef struct nb_attn_config {
    nb_attn_kind kind;
    size_t n_head;
    float softmax_scale;
    /* Queries at position p are multiplied by 1 + q_beta * ln(1 + floor(p / q_orig)); 0: they are not.  MLA only. */
    float q_beta;
    size_t q_orig;
    nb_rope_config rope;
    /* MLA */
    size_t q_lora; /* 0: plain q_proj */
    size_t kv_lora, d_nope, d_rope, d_v;
    float eps_lora; /* of the q_a and kv_a norms */
    bool qa_bias;
    /* DSA: MLA over the tokens that an indexer chooses, all of them where there are at most index_topk */
    size_t index_head, index_dim, index_topk;
    bool index_interleaved; /* pairs of the indexer's rotation, which turns its first d_rope values */
    bool index_shared;      /* no indexer: the choice of the nearest layer before that has one */
    float q_a_factor, kv_a_factor; /* multiply what these norms give; 0: nothing does */
    /* GQA; KDA: head_dim is of keys and of values, conv the tokens that a short convolution sees */
    size_t n_kv_head, head_dim, conv;
    bool qk_norm, q_bias, kv_bias;
    /* both */
    bool o_bias;
    /* CSA, beside q_lora, head_dim and d_rope: a window of the last tokens, and one row for every `ratio` tokens before
     * (0: the window alone; 4: those that the indexer chooses; 128: all).
     * Its indexer has the index_ fields of DSA. */
    size_t window, ratio;
    size_t o_group, o_lora; /* the heads' outputs go through o_group products of o_lora rows each */
} nb_attn_config;

/* What a family's checkpoints call the block with experts, and the matrices of an expert. */
typedef struct nb_moe_names {
    const char *block, *gate, *up, *down;
} nb_moe_names;

typedef struct nb_model_config {
    const char *family; /* name of the family's table, static  */
    size_t n_vocab, hidden, n_layer, max_pos;
    size_t n_nextn; /* layers after these that predict further tokens, and are not computed */
    float eps;      /* of the block norms */
    /* Most models have one kind of attention in all layers: nb_layer_attn. */
    nb_attn_config attn[NB_MAX_ATTN];
    size_t n_attn;
    unsigned char attn_of[NB_MAX_LAYER]; /* layer -> attn[] */
    /* A published layer is two of these: its tensors are "self_attn.0..." and "self_attn.1...". */
    bool paired;
    bool mlp_bias;
    bool branch_norm; /* a norm on the output of MoE blocks, before it is added */
    /* Several residual streams that every sublayer reads mixed and writes to (mHC); 0: there is one, and it adds. */
    size_t n_stream, n_sinkhorn;
    float stream_eps;
    /* feed forward */
    size_t inter, moe_inter, n_expert, n_shared, top_k, n_group, topk_group;
    size_t n_zero; /* further choices of the router, behind the experts: they give back what they read */
    int group_top; /* route.h */
    bool sigmoid, normalise, router_bias;
    bool sqrt_softplus; /* scores are sqrt(ln(1 + e^logit)) */
    size_t n_hash;      /* the first layers choose experts by a table of tokens, without a bias */
    float act_limit;    /* gate is at most this before SiLU, up within +-this; 0: no limit */
    float routed_factor;
    bool dense[NB_MAX_LAYER];
    /* Dense layers with routed experts beside: these read what the dense block reads, and their sum is added to the
     * branch of the next layer's, which is dense, too. */
    bool shortcut[NB_MAX_LAYER];
    const nb_moe_names *moe_names; /* static; NULL: mlp, gate_proj, up_proj, down_proj */
    /* scalars (1 for most families) */
    float embed_factor, branch_factor, logit_factor;
    bool tied;
    /* weights */
    bool fp8;          /* linear weights are FP8 with 128x128 block scales */
    const char *dtype; /* "bfloat16", "float16", "float32": for auto and for dummy weights */
    double init_range;
    uint32_t eos[NB_MAX_EOS];
    size_t n_eos;
    bool inner;                /* what text_config says */
    nb_quant quant;            /* quantised weights other than FP8 in blocks */
    nb_quant_layer quant_of[NB_MAX_LAYER]; /* and the form of each matrix */
    char notes[NB_NOTE_BYTES]; /* fields of config.json that are not known and were ignored */
    char assumed
        [NB_NOTE_BYTES]; /* fields that shape the model and are absent, with what they are then */
} nb_model_config;

/* The attention of a layer. */
static inline const nb_attn_config *nb_layer_attn(const nb_model_config *c, size_t layer)
{
    return &c->attn[c->attn_of[layer]];
}

/* Whether a layer has routed experts; what the router chooses among. */
static inline bool nb_layer_has_experts(const nb_model_config *c, size_t layer)
{
    return !c->dense[layer] || c->shortcut[layer];
}
static inline size_t nb_n_choice(const nb_model_config *c)
{
    return c->n_expert + c->n_zero;
}
/* Whether the sum of the layer before is added to this layer's branch. */
static inline bool nb_layer_ends_shortcut(const nb_model_config *c, size_t layer)
{
    return layer > 0 && c->shortcut[layer - 1];
}
/* Whether a layer's experts are chosen by the token alone. */
static inline bool nb_layer_is_hashed(const nb_model_config *c, size_t layer)
{
    return layer < c->n_hash;
}

/* Reads and validates; of a model with several parts the one in text_config.   An unknown family, an unsupported field or value is
 * NB_ERR_UNSUPPORTED with a line naming it. */
nb_status nb_model_config_read(nb_doc *doc, nb_model_config *c, nb_error *err);
/* The same for counting bytes only: weights may be quantised in ways that nibble does not run. */
nb_status nb_model_config_read_any(nb_doc *doc, nb_model_config *c, nb_error *err);

/* config.json of MODEL, a directory or that file; and end-of-text ids that a generation_config.json
 * beside it adds. */
nb_status nb_model_config_read_path(const char *model, nb_model_config *c, nb_error *err);
nb_status nb_model_config_read_path_any(const char *model, nb_model_config *c, nb_error *err);

/* Values of one token's KV in one layer: segment sizes for a record. */
void nb_model_record_opts(const nb_attn_config *a, nb_kv_type type, nb_kv_mode mode,
                          nb_rope_fmt rope, nb_record_opts *o);

typedef struct nb_model_size {
    uint64_t n_param, n_param_active; /* active: of one token, top_k experts */
} nb_model_size;
void nb_model_config_size(const nb_model_config *c, nb_model_size *s);

#endif
