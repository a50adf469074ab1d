/* rank.h - one device that computes a model, or a part of it, step by step.
 *
 * A rank has a device, weights, buffers, a pool of cache blocks, and the dimensions of its part of the model
 * (nb_rank_part).  The engine owns an array of ranks.  One rank computes everything; several, joined by an
 * nb_comm, compute the same tokens together (tensor parallelism): each its heads, columns and experts, with a
 * whole copy of the cache, or the blocks that are its own (decision 070).  Each is called by a thread of its own, all with the same chunks.  Data-parallel ranks
 * have sequences, and so chunks and a cache, of their own, and all weights but routed experts, which are divided: in
 * each layer that has some, every rank computes its experts for the tokens of all ranks (decision 060).  In place of a
 * data-parallel rank there may be a group of tensor-parallel ones, which have its tokens and copies of its cache
 * (decision 069).
 *
 * A step computes chunks.  A chunk is consecutive tokens of one sequence.  The rule of the cache: inside its own
 * 64-token page a query attends to BF16 rows; every earlier page it attends to in decoded form, except for the
 * first n_sink tokens of the sequence, which stay in BF16.  A page is encoded when its last token has been
 * computed.  A token's results depend on the earlier tokens of its sequence and on the chunk's flags:
 * not on the chunk's size, on other chunks, or on the number of threads or ranks.
 *
 * Owned by the engine's thread; ranks share no mutable state. */
#ifndef NB_MODEL_RANK_H
#define NB_MODEL_RANK_H
#include "comm/comm.h"
#include "dev/device.h"
#include "kv/kv_pool.h"
#include "model/attention.h"
#include "model/plan.h"
#include "model/thrift.h"

typedef struct nb_rank nb_rank;
typedef struct nb_backend nb_backend;

/* Called with each layer's tensors when set (tests): name as in tests/parity/README.md, x is [n_tok][dim] with
 * the given stride. */
typedef void nb_trace_fn(void *ctx, const char *name, const float *x, size_t n_tok, size_t dim,
                         size_t stride);

/* Called on the engine's thread before each product of a step on the CPU when set: w, and its inputs x[n_tok][n_col]
 * with the given stride.  head is SIZE_MAX, or with W_kv_b the head whose W_UK absorbs this query (n_col = d_nope); the
 * latents come once with SIZE_MAX. */
typedef void nb_observe_fn(void *ctx, const nb_weight *w, size_t head, const float *x, size_t n_tok,
                           size_t n_col, size_t stride);

/* Where routed experts are when the rest of the model is on a GPU: those of the first n_host layers that have some
 * stay in host memory.  fit: of as many as do not fit on the device when leave_bytes of its memory stay free. */
typedef struct nb_expert_place {
    size_t n_host;
    bool fit;
    uint64_t leave_bytes;
} nb_expert_place;

typedef struct nb_rank_options {
    const nb_model *model;   /* borrowed, as the next two */
    nb_dev *dev;             /* the host's threads */
    nb_device *device;       /* where it computes; borrowed */
    const nb_record *record; /* [n_layer] */
    size_t n_sink;           /* first tokens of a sequence read in BF16, 0..64 */
    nb_caps caps;
    nb_acts acts;                /* the form of activations in products; GPU: float or BF16 */
    const nb_levels *levels;     /* CPU: borrowed; NULL: all */
    size_t max_tok;              /* most tokens in one step, all chunks together */
    size_t max_seq;              /* most chunks in one step; 0: max_tok */
    size_t max_pos;              /* GPU: tokens of the longest sequence */
    nb_thrift_options thrift;    /* MLA only; max_pos: positions of Thrift chunks are below */
    nb_thrift_pool *thrift_pool; /* borrowed; may be NULL with NB_THRIFT_OFF */
    bool absorbed_only;          /* no chunk is in the expanded form */
    nb_expert_place experts;     /* GPU */
    nb_comm *comm;               /* this rank's end among all, borrowed; NULL: it is the only one */
    nb_comm *tensor; /* its end among those that compute the same tokens; `comm` where these are all; NULL: it alone does */
    bool data_parallel; /* ranks, or such groups, have tokens and a cache of their own and share only experts */
    bool divide_context; /* ranks of `tensor` divide the blocks of the cache (decision 070); latent attention, CPU */
} nb_rank_options;

typedef struct nb_chunk {
    const uint32_t
        *block; /* [n_block] in order of position; covers every page that the step completes */
    size_t n_block;
    size_t slot;         /* its open page */
    const uint32_t *tok; /* [n_tok], each < n_vocab (checked by the caller) */
    size_t n_tok, pos0;  /* position of tok[0]; pos0 tokens are in the cache */
    bool rope_long;      /* longrope: the sequence uses the long table */
    bool absorbed;       /* compute in the absorbed form, else expanded, where attention has both */
    bool thrift;         /* absorbed, in Thrift mode, where the pool has planes */
    uint32_t load,
        save; /* snapshots of the pool, counted from 1, that the states begin with and leave; 0: none */
    bool upload;         /* expanded: experts in host memory are computed on the device (nb_rank_upload_tok) */
} nb_chunk;

/* Allocates the whole workspace: nothing is allocated in a step. */
nb_status nb_rank_create(const nb_rank_options *o, nb_rank **out, nb_error *err);
/* When all ranks of a model have been created, before their first step. */
nb_status nb_rank_connect(nb_rank *const *all, size_t n, nb_error *err);
void nb_rank_destroy(nb_rank *r);
/* The cache that steps read and write from now on; returns the one before.  *pool is copied. */
nb_kv_pool nb_rank_set_pool(nb_rank *r, const nb_kv_pool *pool);

/* Runs the chunks.  NB_ERR_NONFINITE when a value to be stored is not finite: err describes the first, bad[i]
 * (may be NULL) is 1 for each such chunk, whose cache, open page and logits are void; the other chunks are
 * complete.  A step is never run again on the same slots, which already hold its rows.  After an error of the
 * device this and the next two fail with NB_ERR_INTERNAL for good.  Several ranks first compare a hash of the
 * chunks; a rank that fails, is late or has other chunks ends the step on all ranks, with NB_ERR_FAILED for good. */
nb_status nb_rank_step(nb_rank *r, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                       nb_error *err);
/* The same of data-parallel ranks, or groups of them, which all get all chunks: those of group k are
 * [first[k], first[k + 1]), perhaps none.  A rank computes its group's; the first of a group writes bad[i] of these. */
nb_status nb_rank_step_share(nb_rank *r, const nb_chunk *chunk, const size_t *first, unsigned char *bad,
                             nb_error *err);
/* Logits of tokens of the last step, until the next one: tok[n] are places in its batch (the chunks' tokens one
 * after the other), n <= max_tok; logits: [n][n_vocab], memory of the host, one array for all ranks: each writes its
 * columns of the vocabulary, and together they are whole when all have returned.  A data-parallel rank writes rows
 * of its own tokens; n may be 0.  Where ranks have no memory in common, rank 0's array becomes whole. */
nb_status nb_rank_logits(nb_rank *r, const size_t *tok, size_t n, float *logits, nb_error *err);
/* Draws tokens from the logits of these places on the device, where nb_rank_can_sample.  id[n]: UINT32_MAX where
 * the logits are not finite. */
bool nb_rank_can_sample(const nb_rank *r);
nb_status nb_rank_sample(nb_rank *r, const size_t *tok, const nb_cuda_sample_row *row, size_t n,
                         uint32_t *id, nb_error *err);

/* ---- about a rank ---- */

size_t nb_rank_bytes(const nb_rank *r); /* of the workspace, beside the weights */
/* Of weights that the rank holds itself (on a GPU); 0 where it reads the model's. */
uint64_t nb_rank_weight_bytes(const nb_rank *r);
/* The large part of the workspace, for callers that prefault it; NULL where it is not the host's. */
void *nb_rank_workspace(nb_rank *r, size_t *n_bytes);
/* "rmsnorm=avx2 ..." into buf, always terminated. */
void nb_rank_describe(const nb_rank *r, char *buf, size_t n_bytes);
/* Kernels of the host, also where the rank is on a GPU. */
const nb_plan *nb_rank_plan(const nb_rank *r);
/* Tests: from now on steps leave out their last chunk, after the ranks have compared what they are told. */
void nb_rank_plant_rows(nb_rank *r);
/* Tests: from now on it leaves out one of its splits of a context. */
void nb_rank_plant_split(nb_rank *r);
void nb_rank_set_trace(nb_rank *r, nb_trace_fn *trace, void *ctx);       /* NULL: off */
void nb_rank_set_observer(nb_rank *r, nb_observe_fn *observe, void *ctx); /* NULL: off */

typedef struct nb_rank_counts { /* since creation */
    nb_thrift_count thrift;
    uint64_t saturated; /* values that a checkpoint's own scale has cut off */
    uint64_t
        page_reads; /* complete pages read in the absorbed form, once for all heads and sequences that
                            shared the reading; CPU */
} nb_rank_counts;
nb_rank_counts nb_rank_count(const nb_rank *r);

/* Layers whose routed experts are in host memory beside a GPU, and the bytes of these. */
size_t nb_rank_host_layers(const nb_rank *r, uint64_t *n_bytes);
/* A whole number of pages: units of a prompt, from its first token on, that are worth uploading such experts for;
 * the caller gives `upload` to chunks of units that the prompt fills, and names it in the key of their blocks.
 * 0: never. */
size_t nb_rank_upload_tok(const nb_rank *r);

/* NB_ERR_UNSUPPORTED: a model whose heads cannot be divided among n_rank ranks (of columns and experts a rank may have none). */
nb_status nb_rank_can_divide(const nb_model_config *c, size_t n_rank, nb_error *err);

/* NB_ERR_UNSUPPORTED: not all of its attention is latent, which alone can be computed with divided blocks. */
nb_status nb_rank_can_divide_context(const nb_model_config *c, nb_error *err);

/* NB_ERR_UNSUPPORTED: a model that no GPU computes, or not with n_rank of them, of which n_tensor divide the heads; what
 * is known without one.  nibble plan asks it too. */
nb_status nb_rank_can_on_gpus(const nb_model_config *c, bool absorbed_only, size_t n_rank, size_t n_tensor,
                              nb_error *err);

/* The same of this GPU, and NB_ERR_UNSUPPORTED: heads or a latent that none of its kernels takes, whatever the records. */
nb_status nb_rank_can_compute(const nb_gpu *gpu, const nb_model_config *c, bool absorbed_only,
                              nb_error *err);

#endif
