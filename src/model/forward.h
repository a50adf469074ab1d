/* forward.h - one step of a model over a batch of chunks.
 *
 * A chunk is consecutive tokens of one sequence.  The rule of the cache (promise
 * 2): inside its own 64-token page a query attends to BF16 latents, every earlier
 * page it attends to in decoded form, but for the first n_sink tokens of the sequence,
 * which stay in BF16; pages are encoded when their last token has been computed.  Results of a token depend on its sequence's earlier tokens and
 * on the chunk's `absorbed` flag only: not on the chunk's size, on the other
 * chunks or on the number of threads. */
#ifndef NB_MODEL_FORWARD_H
#define NB_MODEL_FORWARD_H
#include "dev/dev.h"
#include "dev/gpu.h"
#include "kv/kv_view.h"
#include "model/model.h"
#include "model/plan.h"
#include "model/thrift.h"

/* Called with each layer's tensors when set (tests): name as in
 * tests/parity/README.md, x is [n_tok][dim] with the given stride. */
typedef void nb_trace_fn(void *ctx, const char *name, const float *x, size_t n_tok, size_t dim,
                         size_t stride);

typedef struct nb_forward_options {
    const nb_model *model; /* borrowed, as the next two */
    nb_dev *dev;
    const nb_record *record; /* [n_layer]: all with the same values per token */
    size_t n_sink;           /* first tokens of a sequence read in BF16, 0..64 */
    nb_caps caps;
    size_t max_tok;              /* most tokens in one step, all chunks together */
    nb_thrift_options thrift;    /* MLA only; max_pos: positions of thrift chunks are below */
    nb_thrift_pool *thrift_pool; /* borrowed; may be NULL with NB_THRIFT_OFF */
    /* On a GPU (NULL: on dev): borrowed.  Then views hold device memory, but for their blocks. */
    nb_gpu *gpu;
    size_t max_seq, max_pos; /* GPU: most chunks of a step; tokens of the longest sequence */
    bool absorbed_only;      /* GPU: no chunk is in the expanded form */
} nb_forward_options;

typedef struct nb_chunk {
    nb_kv_view kv;
    const uint32_t *tok; /* [n_tok], each < n_vocab (checked by the caller) */
    size_t n_tok, pos0;  /* position of tok[0]; pos0 tokens are in the cache */
    bool rope_long;      /* longrope: the sequence uses the long table */
    bool absorbed;       /* MLA: absorbed form, else expanded */
    bool thrift;         /* absorbed, in Thrift mode, where the view has planes */
} nb_chunk;

typedef struct nb_forward nb_forward;

/* Allocates the whole workspace: nothing is allocated in a step. */
nb_status nb_forward_create(const nb_forward_options *o, nb_forward **out, nb_error *err);
void nb_forward_destroy(nb_forward *f);
size_t nb_forward_bytes(const nb_forward *f);
/* The large part of the workspace, for whoever wants its memory touched before the first step. */
void *nb_forward_workspace(nb_forward *f, size_t *n_bytes);
const nb_plan *nb_forward_plan(const nb_forward *f);
void nb_forward_set_trace(nb_forward *f, nb_trace_fn *trace, void *ctx); /* NULL: off */

/* What Thrift mode has done since creation. */
nb_thrift_count nb_forward_thrift_count(const nb_forward *f);
/* Values that a checkpoint's own scale has cut off, since creation. */
uint64_t nb_forward_saturated(const nb_forward *f);

/* Complete pages that attention in the absorbed form has read since creation, once for all heads
 * and sequences that it was read for at once. */
uint64_t nb_forward_pages_read(const nb_forward *f);

/* Runs the chunks.  NB_ERR_NONFINITE when a value to be stored is not finite: err tells of the
 * first, bad[i] (may be NULL) is 1 for each such chunk, whose cache, tail and logits are void;
 * the other chunks are complete.  A step is never run again with the same tails: they already
 * hold its rows. */
nb_status nb_forward_step(nb_forward *f, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                          nb_error *err);
/* On a GPU both fail with NB_ERR_INTERNAL once the device has failed, and for good.
 *
 * Logits of tokens of the last step, until the next one: tok[n] are places in its batch (the
 * chunks' tokens one after the other), n <= max_tok; logits: [n][n_vocab]. */
nb_status nb_forward_logits(nb_forward *f, const size_t *tok, size_t n, float *logits,
                            nb_error *err);
/* Tokens drawn from the logits of these places where they are; only on a GPU (nb_forward_can_sample).
 * id[n]: UINT32_MAX where the logits are not finite. */
bool nb_forward_can_sample(const nb_forward *f);
nb_status nb_forward_sample(nb_forward *f, const size_t *tok, const nb_cuda_sample_row *row, size_t n,
                            uint32_t *id, nb_error *err);
/* "rmsnorm=avx2 ..." or the GPU's, into buf, always terminated. */
void nb_forward_describe(const nb_forward *f, char *buf, size_t n_bytes);
/* Weights that the forward pass holds itself (on a GPU); 0 on a host. */
uint64_t nb_forward_weight_bytes(const nb_forward *f);

#endif
