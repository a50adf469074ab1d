/* sizes.h - what a model takes: weights by type, the cache of each record, and the same model with
 * the caches of other kinds of attention.
 *
 * All bytes come from the functions that the engine allocates with (nb_record_init, model/kv_size.h,
 * nb_model_shapes): a test compares them with a running engine, to the byte.  A block is 64 tokens of
 * all layers; a page is one layer of it.  "Active" is what a decode step of one token reads. */
#ifndef NB_CAPACITY_SIZES_H
#define NB_CAPACITY_SIZES_H
#include "base/status.h"
#include "model/config.h"
#include "num/record.h"

enum { NB_SIZES_MAX_RECORD = 3 * NB_KV_TYPE_COUNT }; /* each with three formats of rope keys */

/* One record, on one GPU of a tensor-parallel group: MLA's latent is one for all heads, so each GPU has all of
 * it; K and V of GQA are divided until there is one KV head per GPU. */
typedef struct nb_record_size {
    nb_kv_type type;
    nb_rope_fmt rope;       /* MLA, where rope_varies; else as the record has it anyway */
    bool rope_varies;       /* --kv-rope-dtype means something */
    const char *name;       /* as --kv-cache-dtype */
    size_t page_bytes;      /* one layer, 64 tokens */
    size_t block_bytes;     /* all layers, 64 tokens: the unit of allocation */
    size_t plane_bytes;     /* beside a block in Thrift mode: residual planes; 0: it has none */
    double bytes_tok_layer; /* bytes_tok / layers that cache something */
    double bytes_tok;       /* block_bytes / 64 */
    double attn_bytes_tok;  /* that a decode step reads of a cached token, all layers: bytes_tok
                               without padding, once for all heads */
} nb_record_size;

/* The same model with another attention, BF16, without padding: 2 bytes * heads * (k_dim + v_dim). */
typedef struct nb_attn_equivalent {
    const char *name; /* "mha", "gqa8", "mqa", and the model's own, "mla" or "gqa": the base line */
    size_t n_kv_head;
    double k_dim, v_dim; /* of a head; v_dim 0: values are part of the keys (mla) */
    double bytes_tok_layer, bytes_tok;
} nb_attn_equivalent;

/* Weights of one element type; those of a quantised checkpoint (nb_quant) are as
 * its quantization_config says, or, where that does not say it, counted in BF16 and
 * checkpoint_unknown is set.  Norms and biases are in the checkpoint's own type, the routers' biases
 * in F32, as they are published: together the bytes of the files' tensors. */
typedef enum nb_sizes_wtype {
    NB_SIZES_CHECKPOINT,
    NB_SIZES_BF16, /* all matrices in BF16 */
    NB_SIZES_FP8, /* linear matrices in FP8 with 128x128 block scales; router, embedding, head not */
    NB_SIZES_INT8, /* --weight-dtype int8 of the checkpoint */
    NB_SIZES_INT4, /* nb_quant_int4, the rest in BF16; of checkpoints in FP8 too */
    NB_SIZES_N_WTYPE
} nb_sizes_wtype;
typedef struct nb_weight_size {
    uint64_t bytes;
    uint64_t active;     /* top_k experts of each layer, of their mean size, the head; of the embedding nothing.  At most, where the router
                            has choices without weights */
    uint64_t expert;     /* all routed experts, which expert parallelism divides */
    uint64_t one_expert; /* the mean: expert / (n_moe_layer * n_expert), rounded down */
    uint64_t kv_b;       /* MLA: kv_b_proj, that both forms use */
    bool halves;         /* a GGUF has that as attn_k_b and attn_v_b */
    uint64_t replicated; /* not divided by tensor parallelism: q_a, kv_a, k, v, router, vectors */
    uint64_t embed_copy; /* the embedding, whatever the head is: several GPUs have one each */
    uint64_t embed;      /* the embedding, where the head is another matrix; never read whole */
} nb_weight_size;

typedef struct nb_sizes {
    uint64_t n_param, n_param_active; /* of the config's layers; MTP layers are not loaded */
    size_t n_layer, n_moe_layer, n_expert, top_k;
    size_t n_cached_layer; /* layers whose tokens are cached */
    bool is_mla;           /* all of these have latent attention */
    const char *attention; /* of the first of them: "mla", "gqa", "csa" */
    bool has_rope_key;     /* --kv-rope-dtype means something for some record */
    nb_kv_type own; /* what --kv-cache-dtype auto is */
    nb_weight_size weight[NB_SIZES_N_WTYPE];
    bool checkpoint_unknown; /* weight[NB_SIZES_CHECKPOINT] and what is of it say nothing */
    /* Of weight[]: the same figures under the names that reports use. */
    uint64_t weight_bytes, weight_bytes_bf16, weight_bytes_fp8, weight_bytes_int8,
        weight_bytes_int4;
    uint64_t active_bytes, expert_bytes, kv_b_bytes,
        replicated_bytes; /* as the checkpoint has them */
    /* MLA, absorbed form: W_UK and W_UV once more in BF16, which other engines add to kv_b.
     * nibble adds nothing on a CPU, where both forms read kv_b.  On a GPU the absorbed matrices
     * are copies in the checkpoint's type, FP8 too where its blocks lie within a head; of other
     * codes two BF16 parts: gpu_absorbed_bytes.  The last: of weights in FP8. */
    uint64_t absorbed_copy_bytes, gpu_absorbed_bytes, gpu_absorbed_fp8_bytes;
    nb_record_size record[NB_SIZES_MAX_RECORD]; /* of a type the default rope key first */
    size_t n_record;
    nb_attn_equivalent equivalent[4];
    size_t n_equivalent;
    uint64_t
        tail_bytes_seq; /* engine, beside the blocks: open pages and states of a running request */
    uint64_t state_bytes; /* of these, the states, which a snapshot takes too; 0: there are none */
    uint64_t sink_bytes_block; /* beside each block, per token of --kv-sinks */
    /* Operations (a multiply-add is 2) of attention, all layers and heads, per (query, cached token):
     * decode: MLA absorbed, 2 (2 kv_lora + d_rope) per head; prefill: MLA expanded, 2 (d_nope + d_rope +
     * d_v).  Absorbing a query, or expanding its key, is kv_b's product and in n_param_active. */
    double attn_flop_decode, attn_flop_prefill;
    /* Sparse attention: of choosing, per pair; pairs of a query that are computed at most (0: all), as attn_flop_decode
     * says; and what is read of every cached token for the choice, the rest only of those that are chosen. */
    double attn_flop_choose, attn_most_pairs, choose_bytes_tok;
    double expand_flop_tok; /* MLA: expanding one token of a cached prefix again, all layers */
} nb_sizes;

/* NB_ERR_NOMEM, NB_ERR_LIMIT. Plain data, nothing to free. */
nb_status nb_sizes_of(const nb_model_config *c, nb_sizes *out, nb_error *err);
/* The record of a name ("nvfp4", ...), the default rope key; or of a name and rope key. NULL. */
const nb_record_size *nb_sizes_find(const nb_sizes *s, const char *name);
const nb_record_size *nb_sizes_find_rope(const nb_sizes *s, const char *name, nb_rope_fmt rope);
/* Bits of a record's codes: 4, 8, 16 or 32. */
unsigned nb_sizes_code_bits(nb_kv_type t);

#endif
