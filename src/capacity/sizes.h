/* sizes.h - what a model takes: weights by type, the cache of each record, and the same model with
 * the caches of other kinds of attention.
 *
 * All bytes come from the functions that the engine allocates with (nb_record_init,
 * nb_model_shapes, ...): a test compares them with a running engine, to the byte.  A block is 64
 * tokens of all layers; a page is one layer of it. */
#ifndef NB_CAPACITY_SIZES_H
#define NB_CAPACITY_SIZES_H
#include "base/status.h"
#include "model/config.h"
#include "num/record.h"

enum { NB_SIZES_MAX_RECORD = 24 };

/* What of a record's page a GPU of a tensor-parallel group keeps: MLA's latent is one for all heads, so each
 * GPU has all of it; K and V of GQA are divided until there is one KV head per GPU. */
typedef struct nb_record_size {
    nb_kv_type type;
    nb_rope_fmt rope;       /* MLA */
    const char *name;       /* as --kv-cache-dtype */
    size_t page_bytes;      /* one layer, 64 tokens */
    size_t block_bytes;     /* all layers, 64 tokens: the unit of allocation */
    double bytes_tok_layer; /* page_bytes / 64 */
    double bytes_tok;       /* block_bytes / 64 */
    double attn_bytes_tok;  /* that a decode step reads of a cached token, all layers */
} nb_record_size;

/* The same model with another attention, BF16, without padding: 2 * heads * dims * 2 bytes. */
typedef struct nb_attn_equivalent {
    const char *name; /* "mha", "gqa8", "mqa", and "mla" in BF16: the base line */
    size_t n_kv_head;
    double k_dim, v_dim; /* of a head */
    double bytes_tok_layer, bytes_tok;
} nb_attn_equivalent;

typedef struct nb_sizes {
    uint64_t n_param, n_param_active;
    uint64_t weight_bytes;        /* as the checkpoint has them */
    uint64_t weight_bytes_bf16;   /* all matrices in BF16 */
    uint64_t weight_bytes_fp8;    /* linear matrices in FP8 with 128x128 block scales, the rest as they are */
    uint64_t weight_bytes_int8;   /* --weight-dtype int8 */
    uint64_t active_bytes;        /* read by a decode step of one token, as the checkpoint has them */
    uint64_t expert_bytes;        /* of weight_bytes: routed experts, which expert parallelism divides */
    uint64_t kv_b_bytes;          /* MLA: kv_b_proj, that both forms use */
    uint64_t absorbed_copy_bytes; /* what engines add that keep W_UK and W_UV a second time in BF16; nibble keeps none: 0 added */
    uint64_t replicated_bytes;    /* of weight_bytes: not divided by tensor parallelism (norms, kv_a, q_a, router) */
    nb_record_size record[NB_SIZES_MAX_RECORD];
    size_t n_record;
    nb_attn_equivalent equivalent[4];
    size_t n_equivalent;
    /* engine, beside weights and blocks, for max_num_seqs requests and max_step_tok tokens a step */
    uint64_t tail_bytes_seq; /* open pages of a running request */
} nb_sizes;

/* NB_ERR_NOMEM. Plain data, nothing to free. */
nb_status nb_sizes_of(const nb_model_config *c, nb_sizes *out, nb_error *err);
/* The record of a name ("nvfp4", ...), or NULL. */
const nb_record_size *nb_sizes_find(const nb_sizes *s, const char *name);

#endif
