/* backend.h - what a kind of device does for a pass over the layers: one table per backend.
 *
 * The walk over the layers is written once (layers.c) and calls these tables.  The CPU and CUDA are the two
 * backends; emulated CUDA is the second with another library (dev/gpu.h).  A backend's rank begins with an
 * nb_rank.  To add an attention: one nb_attn_ops per backend (docs/add-an-attention.md). */
#ifndef NB_MODEL_BACKEND_H
#define NB_MODEL_BACKEND_H
#include "model/rank.h"

/* The part of the model that a rank computes.  Kernels and buffers take their counts from here, never from the
 * model's configuration.  What fixes the order of a sum (ranges of a product, splits of attention, variants)
 * depends on the whole model (nb_rank.whole), so that any division into ranks has the same bits. */
typedef struct nb_rank_part {
    size_t layer0, n_layer;           /* layers [layer0, layer0 + n_layer) */
    nb_attn_config attn
        [NB_MAX_ATTN]; /* n_head: query heads of this rank; n_kv_head: of the whole model, since each
                                         rank has the whole cache */
    size_t head0[NB_MAX_ATTN];        /* the first of them */
    size_t head_unit[NB_MAX_ATTN];    /* heads are cut at multiples of it */
    nb_attn_dims *dims;               /* [whole n_layer] */
    size_t expert0, expert_step, n_expert; /* routed experts expert0, expert0 + expert_step, ... */
    size_t inter0, inter;                  /* columns of a dense layer */
    size_t shared0, shared_inter;          /* of the shared experts */
    size_t out0, n_out;                    /* columns of the branch */
    size_t vocab0, n_vocab;                /* rows of the head */
    size_t unit;                           /* columns are cut at multiples of it where there are enough */
} nb_rank_part;

/* Part `rank` of n_rank of n things: *first, and how many; equal but for one unit.  Parts begin at multiples of unit. */
static inline size_t nb_rank_part_of(size_t n, size_t unit, size_t n_rank, size_t rank,
                                     size_t *first)
{
    const size_t end = n / unit * (rank + 1) / n_rank * unit;
    *first = n / unit * rank / n_rank * unit;
    return (rank + 1 == n_rank ? n : end) - *first;
}
enum { NB_RANK_UNIT = 16 };
/* The same of columns, in units of `unit`, or of 16, where there are enough. */
static inline size_t nb_rank_cut(size_t n, size_t unit, size_t n_rank, size_t rank, size_t *first)
{
    if (n < unit * n_rank) unit = n >= NB_RANK_UNIT * n_rank ? NB_RANK_UNIT : 1;
    return nb_rank_part_of(n, unit, n_rank, rank, first);
}

struct nb_rank {
    const nb_backend *backend;
    nb_rank_options o;
    const nb_model_config *whole; /* of o.model */
    nb_rank_part part;
    nb_kv_pool pool;
    nb_plan plan; /* of the host */
    nb_trace_fn *trace;
    void *trace_ctx;
    nb_observe_fn *observe;
    void *observe_ctx;
    nb_arena arena; /* small things */
    struct {
        const nb_chunk *chunk;
        size_t n_chunk, n_row; /* n_row: tokens */
    } share[NB_COMM_MAX_RANK]; /* data-parallel: what each rank, or group, has in the step */
    bool plant_rows, plant_split; /* tests */
};

/* Some tokens of a step on their way through the layers; a backend's own pass begins with one. */
typedef struct nb_pass {
    const nb_chunk *chunk; /* of the step */
    size_t n_chunk;
    size_t n_row; /* tokens of the pass */
} nb_pass;

/* A layer's attention on one backend. */
typedef struct nb_attn_ops {
    /* Queries and new rows of the cache, from the normalised activations. */
    void (*project)(nb_rank *r, nb_pass *p, size_t layer);
    /* New rows go to open pages; pages that are full are encoded. */
    void (*append)(nb_rank *r, nb_pass *p, size_t layer);
    /* The heads' outputs, from pages and open pages. */
    void (*attend)(nb_rank *r, nb_pass *p, size_t layer);
} nb_attn_ops;

typedef enum nb_norm_at {
    NB_NORM_AT_BEGIN,
    NB_NORM_AT_ATTENTION,
    NB_NORM_AT_FEED_FORWARD
} nb_norm_at;

/* Where the parts of several ranks meet.  Every backend uses those that its division needs: the CPU divides the
 * columns of each product and gathers inputs and outputs; where sums are cut into ranges (GPUs), the inputs stay
 * where they are, and the outputs are an ordered sum. */
typedef enum nb_meeting {
    NB_MEET_HEADS,  /* attended: the heads' outputs */
    NB_MEET_OUTPUT, /* after the output projection: the branch */
    NB_MEET_HIDDEN, /* after feed_forward: activations between its products; the experts' outputs */
    NB_MEET_BRANCH  /* after combine: the branch */
} nb_meeting;

struct nb_backend {
    const char *name;
    nb_status (*create)(const nb_rank_options *o, nb_rank **out, nb_error *err);
    void (*destroy)(nb_rank *r);
    /* Cuts the step into passes and calls nb_layers_run for each. */
    nb_status (*step)(nb_rank *r, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                      nb_error *err);
    nb_status (*logits)(nb_rank *r, const size_t *tok, size_t n, float *logits, nb_error *err);
    nb_status (*sample)(nb_rank *r, const size_t *tok, const nb_cuda_sample_row *row, size_t n,
                        uint32_t *id, nb_error *err); /* NULL: logits are drawn from on the host */
    /* ---- operations of a pass ---- */
    void (*begin)(nb_rank *r, nb_pass *p); /* embedding and rotary tables: the residual stream */
    const nb_attn_ops *attn[NB_ATTN_KINDS];
    void (*output)(nb_rank *r, nb_pass *p, size_t layer); /* branch = W_o heads */
    /* Up to where the parts of ranks meet: the experts' outputs, the activations between the other products. */
    void (*feed_forward)(nb_rank *r, nb_pass *p, size_t layer);
    /* branch = the rest: weighted sum of the experts' outputs and the shared ones, or the dense ones.  With
     * one rank a backend may do parts of it before, or leave the sum to add_norm, which follows and reads the
     * outputs anyway. */
    void (*combine)(nb_rank *r, nb_pass *p, size_t layer);
    /* branch = the norm of it, in layers that have one. */
    void (*branch_norm)(nb_rank *r, nb_pass *p, size_t layer);
    /* stream += factor * branch (not at NB_NORM_AT_BEGIN), then the norm that stands there. */
    void (*add_norm)(nb_rank *r, nb_pass *p, size_t layer, nb_norm_at at);
    /* Exchanges what ranks have for each other; false: it failed, for good.  Not called without nb_rank.o.comm;
     * NULL: this backend has one rank only.  Ranks that are not divided: called for NB_MEET_HIDDEN only, in every layer. */
    bool (*meet)(nb_rank *r, nb_pass *p, size_t layer, nb_meeting at);
    /* When all ranks are there: learns where the others' memory is.  NULL: it need not know. */
    nb_status (*connect)(nb_rank *r, nb_rank *const *all, nb_error *err);
    /* One tensor of the pass to nb_rank.trace. */
    void (*trace)(nb_rank *r, nb_pass *p, const char *what, size_t layer);
    /* ---- about a rank ---- */
    size_t (*bytes)(const nb_rank *r);
    uint64_t (*weight_bytes)(const nb_rank *r);
    void *(*workspace)(nb_rank *r, size_t *n_bytes); /* NULL: none of the host's */
    void (*describe)(const nb_rank *r, char *buf, size_t n_bytes);
    nb_rank_counts (*count)(const nb_rank *r);
    size_t (*upload_tok)(const nb_rank *r); /* NULL, as the next: no experts are elsewhere */
    size_t (*host_layers)(const nb_rank *r, uint64_t *n_bytes);
};
extern const nb_backend nb_backend_cpu, nb_backend_cuda;

/* All layers of one pass (layers.c); ends early when another rank has failed. */
void nb_layers_run(nb_rank *r, nb_pass *p);
/* A data-parallel rank without tokens in this step, while others have some: only its experts. */
void nb_layers_idle(nb_rank *r, nb_pass *p);

/* Sets what all backends share: options, part, plan.  The backend's create calls it first. */
nb_status nb_rank_init(nb_rank *r, const nb_backend *b, const nb_rank_options *o, nb_error *err);
void nb_rank_deinit(nb_rank *r);

/* The attention of a layer with this rank's heads, and its widths. */
static inline const nb_attn_config *nb_rank_attn(const nb_rank *r, size_t layer)
{
    return &r->part.attn[r->whole->attn_of[layer]];
}
/* Its first head in the whole model, where the weights' rows are. */
static inline size_t nb_rank_head0(const nb_rank *r, size_t layer)
{
    return r->part.head0[r->whole->attn_of[layer]];
}
/* Whether it computes a part of every product, and meets others for the rest. */
static inline bool nb_rank_divided(const nb_rank *r)
{
    return r->o.tensor != NULL;
}
/* Ranks that compute the same tokens, and this one's number among them. */
static inline size_t nb_rank_n_tensor(const nb_rank *r)
{
    return r->o.tensor ? nb_comm_n_rank(r->o.tensor) : 1;
}
static inline size_t nb_rank_tensor_of(const nb_rank *r)
{
    return r->o.tensor ? nb_comm_rank(r->o.tensor) : 0;
}
/* Data-parallel: how many groups of such ranks have tokens of their own, and which this rank's is. */
static inline size_t nb_rank_n_group(const nb_rank *r)
{
    return nb_comm_n_rank(r->o.comm) / nb_rank_n_tensor(r);
}
static inline size_t nb_rank_group(const nb_rank *r)
{
    return nb_comm_rank(r->o.comm) / nb_rank_n_tensor(r);
}
/* Whether the blocks of the cache are divided among the ranks, too. */
static inline bool nb_rank_divides_context(const nb_rank *r)
{
    return nb_rank_divided(r) && r->o.divide_context;
}
static inline size_t nb_rank_head_unit(const nb_rank *r, size_t layer)
{
    return r->part.head_unit[r->whole->attn_of[layer]];
}
static inline const nb_attn_dims *nb_rank_dims(const nb_rank *r, size_t layer)
{
    return &r->part.dims[layer];
}
/* The norm of add_norm: NULL after the last layer. */
const float *nb_rank_norm(const nb_rank *r, size_t layer, nb_norm_at at);

#endif
