/* gpu.h - the CUDA backend: what its files share.
 *
 * A step is at most one pass over the prompt tokens of all chunks (the expanded form) and passes over those of the direct
 * form (absorbed MLA, GQA).  What a token is, not where it stands, decides its kernels (nb_cuda_kind), so its bits depend on
 * its sequence alone.  Passes of single tokens are graphs: one per rounded number of rows, one for a short sequence. */
#ifndef NB_MODEL_GPU_H
#define NB_MODEL_GPU_H
#include "kernel/cuda/api/nb_cuda_items.h"
#include "model/backend.h"
#include "model/gpu/gpu_csa.h"
#include "model/gpu/gpu_dsa.h"
#include "model/gpu/gpu_ranks.h"
#include "model/gpu/gpu_stage.h"
#include "model/gpu/gpu_weights.h"

enum {
    NB_GPU_DIRECT_TOK = 512, /* rows of a direct pass, unless more sequences decode */
    NB_GPU_CSA_TOK = 2048,   /* of a prompt pass with compressed attention: 256 KB of queries and as much of outputs each */
    NB_GPU_SPAN_TOK = 4096,  /* of a prompt's context expanded at once */
    NB_GPU_GRAPHS = 128,
    NB_GPU_LOGIT_ROWS = 256,
    NB_GPU_COUNTS = 4 /* nb_cuda_thrift_args */
};

/* How attention over pages is cut into work items; layers that are cut alike share them. */
typedef struct nb_gpu_set {
    nb_cuda_units units;
    bool mla;
    size_t n_head; /* of its first layer */
} nb_gpu_set;

/* Routed experts in host memory (gpu_experts.c). */
typedef struct nb_gpu_host {
    nb_rank *cpu;                            /* their kernels; NULL: all experts are on the device */
    float *x, *y;                            /* pinned: rows with their choices behind them; routed sums */
    uint32_t *first;                         /* pinned: [n_expert + 1] */
    float *one;                              /* device: [rows] of 1, as place of 0, 1, ... */
    uint32_t *place;
    char *stage[2], *pinned[2]; /* groups of experts on their way, device and host */
    size_t stage_bytes, group;  /* group: experts of a buffer */
    size_t n_staged;            /* groups so far */
    bool ahead, on_way;         /* the next group has been staged; one was sent and not joined */
    bool sparse;                /* only experts with rows are sent */
} nb_gpu_host;

/* One pass over the layers. */
typedef struct nb_gpu_pass {
    nb_pass base; /* n_chunk: of the pass */
    nb_cuda_kind kind;
    bool upload; /* experts in host memory are computed on the device */
    nb_cuda_graph **seg; /* a graph is being captured: its segments, NULL otherwise */
    size_t n_seg;
    size_t *which;        /* [n_chunk]: index in the step of the pass's chunk i */
    size_t *tok0, *n_tok; /* [n_chunk]: the part of it that this pass computes */
    size_t n_pad;         /* rows with those of the graph */
    size_t h_row0;        /* of the first in f->h */
    size_t max_chunk_tok, n_block;
    size_t n_item[NB_GPU_SETS];
    uint32_t *bad;            /* device: [n_chunk] */
    bool fixed;               /* captured: sizes of the graph */
    size_t most_item;         /* of a graph's set */
    nb_cuda_moe_sum_args sum; /* experts' outputs that the next add_norm adds up; e NULL: none */
    nb_gpu_round round;       /* data-parallel ranks */
    bool beside;              /* the shared experts are on the side stream */
} nb_gpu_pass;

/* gate and up of a layer's dense MLP (or shared experts) as one operation of direct tokens; row NULL: as
 * two products and nb_cuda_swiglu. */
typedef struct nb_gpu_glu {
    const nb_cuda_experts_row *row;
    nb_weight gate, up;
    size_t n_whole; /* rows of each in the whole model */
} nb_gpu_glu;

struct nb_gpu_rank {
    nb_rank r;
    const nb_cuda_api *api;
    nb_cuda *g;
    nb_cuda_info info;
    nb_gpu_weights w;
    nb_gpu_host host;
    nb_gpu_ranks ranks;
    size_t max_values, in_width; /* of the widest layer: a cached row, a row of `in` */
    size_t T, D;                 /* rows of a prompt pass; of a direct one */
    size_t max_block, max_part, max_own, span_tok;
    bool prompt, direct; /* passes of these kinds exist */
    /* attention over pages: row and set of each layer */
    const nb_cuda_mla_row **attn; /* [n_layer] */
    unsigned char *set_of;        /* [n_layer] */
    nb_gpu_glu *glu;              /* [n_layer] */
    nb_gpu_set set[NB_GPU_SETS];
    size_t n_set;
    nb_gpu_stage stage[2]; /* by kind */
    /* device memory: one allocation */
    char *work;
    size_t work_bytes, pinned_bytes;
    float *h; /* [h_rows][nb_gpu_h_width]: the step's tokens, pass after pass */
    size_t h_rows;
    nb_act acts[2];     /* by kind: FLOAT (two BF16 parts), BF16 or FP8 */
    nb_gpu_inputs x[2]; /* by kind: the same buffers, with the parts that its products read */
    nb_cuda_codes xq;   /* FP8: of the product that comes next */
    nb_cuda_rows xn;    /* those of x with every part, for norms to write and routers to read */
    float *in, *q, *qx, *branch;
    float *q_scale[NB_MAX_ATTN]; /* as nb_cpu has them */
    float *cos_sin[NB_MAX_ATTN], *inv_freq[NB_MAX_ATTN], *inv_freq_long[NB_MAX_ATTN];
    float *gate_up, *r_logits, *r_weight, *e_y;
    uint32_t *r_id, *r_first, *r_src, *r_place;
    float *part_o, *part_m, *part_l, *own;
    void *attn_scratch;
    nb_gpu_index index;
    nb_gpu_sparse sparse;
    nb_gpu_csa csa;
    float *stream_w, *stream_part; /* of several streams: a token's weights, scratch (nb_cuda_streams_args) */
    /* Thrift mode: what was picked, and scratch for t_rows rows at a time */
    bool thrift;
    nb_cuda_pick pick;
    float *t_score, *t_best, *t_lse;
    uint64_t *t_count, *h_count; /* [NB_GPU_COUNTS]; h_count: pinned, as of the last step */
    size_t t_rows, t_stride;
    float *unabsorbed;      /* [rows][n_head * d_v], where kv_b has two parts */
    nb_cuda_rows rope, rope_own; /* decoded rope keys of a span, and of the own pages */
    uint16_t *kv_ctx, *kv_own; /* rebuilt keys and values */
    float *pm, *pl, *po;
    uint32_t *bad; /* [max_tok + max_seq + 32] */
    uint64_t *saturated;
    float *logits; /* [logit_rows][n_vocab] */
    size_t logit_rows;
    size_t ahead; /* logits of rows [0, ahead) of h were computed with the step; 0: none */
    uint32_t *l_row, *l_id;
    nb_cuda_sample_row *l_sample;
    void *l_scratch;
    /* host */
    size_t *which, *tok0, *n_tok; /* scratch of a pass: [max_seq] */
    size_t *row_of;               /* [max_tok]: place in the batch -> row of h */
    size_t *bad_of;               /* chunk of the step that entry i of bad is for */
    size_t n_bad;
    nb_cuda_group *group;           /* [D] */
    uint32_t *h_bad, *h_row, *h_id; /* pinned: as bad, [logit_rows] x2 */
    nb_cuda_sample_row *h_sample;   /* pinned */
    uint64_t *h_saturated;          /* pinned */
    struct {
        size_t n_row, n_all, most_item; /* n_all: of each data-parallel rank */
        const unsigned char *pool;
        nb_cuda_graph **seg; /* [max_seg] */
    } graph[NB_GPU_GRAPHS];
    size_t n_graph, max_seg; /* segments of a graph: one, and two for each layer that waits for the host */
};

static inline nb_gpu_rank *nb_gpu_of(nb_rank *r)
{
    return (nb_gpu_rank *)(void *)r; /* its first member */
}
static inline nb_gpu_pass *nb_gpu_pass_of(nb_pass *p)
{
    return (nb_gpu_pass *)(void *)p;
}

/* Values of a token in h: of all its streams. */
static inline size_t nb_gpu_h_width(const nb_gpu_rank *f)
{
    return f->r.whole->hidden * (f->r.whole->n_stream ? f->r.whole->n_stream : 1);
}

/* ---- gpu_create.c ---- */

nb_status nb_gpu_create(const nb_rank_options *o, nb_rank **out, nb_error *err);
void nb_gpu_destroy(nb_rank *r);
void nb_gpu_describe(const nb_rank *r, char *buf, size_t n_bytes);
nb_rank_counts nb_gpu_count(const nb_rank *r);
/* Whether Thrift mode refines tokens of the layer. */
bool nb_gpu_thrift_layer(const nb_gpu_rank *f, size_t layer);

/* ---- gpu_experts.c ---- */

static inline bool nb_gpu_is_host(const nb_gpu_rank *f, size_t layer)
{
    return f->w.layer[layer].host;
}
/* Once some layer's experts are the host's, or may be. */
nb_status nb_gpu_host_create(nb_gpu_rank *f, size_t max_row, nb_error *err);
void nb_gpu_host_destroy(nb_gpu_rank *f);
/* e_y [n_pad][hidden] = the routed sum, made on the host; branch = the shared experts'. */
void nb_gpu_host_moe(nb_gpu_rank *f, nb_gpu_pass *p, size_t layer);
/* A pass whose graph has been captured. */
void nb_gpu_host_replay(nb_gpu_rank *f, const nb_gpu_pass *p, nb_cuda_graph *const *seg);
/* A pass of uploads; e_y and branch of one layer, as experts on the device leave them. */
void nb_gpu_host_begin(nb_gpu_rank *f, const nb_gpu_pass *p);
void nb_gpu_host_upload(nb_gpu_rank *f, nb_gpu_pass *p, size_t layer);
size_t nb_gpu_upload_tok(const nb_rank *r);
size_t nb_gpu_host_layers(const nb_rank *r, uint64_t *n_bytes);

/* ---- gpu_tables.c: the tables of a pass ---- */

nb_status nb_gpu_pass_upload(nb_gpu_rank *f, nb_gpu_pass *p, nb_error *err);
/* Rows of a graph for n rows. */
size_t nb_gpu_bucket(size_t n_row);
nb_cuda_cache nb_gpu_cache(const nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer);

/* ---- gpu_step.c ---- */

nb_status nb_gpu_step(nb_rank *r, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                      nb_error *err);
nb_status nb_gpu_logits(nb_rank *r, const size_t *tok, size_t n, float *logits, nb_error *err);
nb_status nb_gpu_sample(nb_rank *r, const size_t *tok, const nb_cuda_sample_row *row, size_t n,
                        uint32_t *id, nb_error *err);

/* ---- gpu_pass.c: operations of a pass ---- */

/* The layers; without rows, what other ranks need of this one. */
void nb_gpu_pass_layers(nb_gpu_rank *f, nb_gpu_pass *p);
/* The same through a graph: for passes of single tokens. */
void nb_gpu_pass_graph(nb_gpu_rank *f, nb_gpu_pass *p);
void nb_gpu_drop_graphs(nb_gpu_rank *f);
/* Chooses experts: id and weight [n_pad][top_k], and the order by expert. */
void nb_gpu_route(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, uint32_t *id, float *weight);
/* e_y = the outputs of this rank's experts for n rows of x, as r_first and r_src have them. */
void nb_gpu_routed(nb_gpu_rank *f, nb_cuda_kind kind, size_t layer, nb_cuda_rows x, size_t n);
/* branch = the shared experts, where the layer has some, or the dense block of a shortcut. */
void nb_gpu_shared(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer);
void nb_gpu_zero_experts(nb_gpu_rank *f, const nb_gpu_pass *p); /* e_y of the choices that have no weights */
/* n rows of dim values as codes, until the next call. */
nb_cuda_codes nb_gpu_quantise(nb_gpu_rank *f, nb_cuda_rows x, size_t n, size_t dim);
/* The product of experts; rows of a->x: n_tok with src, else n_place. */
void nb_gpu_experts_run(nb_gpu_rank *f, const nb_cuda_experts_row *row, nb_cuda_experts_args a);
void nb_gpu_linear(nb_gpu_rank *f, nb_cuda_kind kind, const nb_gpu_mat *m, nb_cuda_rows x,
                   nb_cuda_rows y, size_t n_tok);
/* All products of a group: columns of y [n_pad][width of the group]. */
void nb_gpu_group_run(nb_gpu_rank *f, const nb_gpu_pass *p, const nb_gpu_group *g, nb_cuda_rows x,
                      float *y);
static inline nb_cuda_rows nb_gpu_floats(float *x, size_t stride)
{
    return (nb_cuda_rows){ .f = x, .stride = stride };
}
/* A buffer of the widest layer with rows of this width. */
static inline nb_cuda_rows nb_gpu_rows_of(nb_cuda_rows x, size_t width)
{
    x.stride = (width + 7) / 8 * 8;
    return x;
}
void nb_gpu_append(nb_rank *r, nb_pass *p, size_t layer);

/* ---- gpu_streams.c: add_norm of several streams, w its norm; xn of the rows row[0..n) (NULL: the first), for the head ---- */
void nb_gpu_streams_add_norm(nb_gpu_rank *f, nb_gpu_pass *p, size_t layer, nb_norm_at at, const float *w);
void nb_gpu_streams_last(nb_gpu_rank *f, const uint32_t *row, size_t n);

/* ---- gpu_mla.c, gpu_gqa.c, gpu_dsa.c, gpu_csa.c ---- */

extern const nb_attn_ops nb_gpu_ops_mla, nb_gpu_ops_gqa, nb_gpu_ops_dsa, nb_gpu_ops_csa;

#endif
