/* cpu.h - the CPU backend: workspace and helpers that its files share. */
#ifndef NB_MODEL_CPU_H
#define NB_MODEL_CPU_H
#include <stdatomic.h>

#include "kernel/attn_pages/attn_pages.h"
#include "kernel/attn_prefill/attn_prefill.h"
#include "model/backend.h"
#include "model/cpu/cpu_dsa.h"
#include "model/cpu/cpu_experts.h"
#include "model/cpu/cpu_index.h"
#include "model/cpu/cpu_job.h"
#include "model/cpu/cpu_parts.h"

enum {
    /* Attention is computed per split of this many pages, and the partial results are combined, so that the
     * splits of a long context run in parallel.  The order of summation is part of the result, so that only
     * the position of a query decides: from page NB_SPLIT_LONG on, where there are enough, they are longer. */
    NB_SPLIT_PAGES = 4,
    NB_SPLIT_MAX = 2 * NB_SPLIT_PAGES,
    NB_SPLIT_LONG = 128,
    NB_SPLIT_TOK = NB_SPLIT_PAGES * NB_PAGE_TOK, /* of the expanded form: always NB_SPLIT_PAGES */
    NB_TOK_BLOCK = 256,                          /* tokens of a product per task */
    NB_DECODE_MAX = 64,                          /* sequences that decode side by side */
    NB_WAVE = 64,                                /* partial results in hand, of one query each */
    NB_CASCADE_MAX = 16,                         /* sequences that attend to a split in one task */
    NB_EX_SLOTS = 2 * NB_SPLIT_PAGES /* pages of a split, decoded for later pages and as they are for their own */
};

/* Sizes of the expanded form, of one kind of attention. */
typedef struct nb_cpu_expand {
    nb_attn_prefill_dims dims;
    size_t q_bytes, tile_bytes; /* one head's packed queries of a page; its packed keys and values */
} nb_cpu_expand;

/* Where a chunk stands in a step. */
typedef struct nb_cpu_place {
    size_t tok0; /* its first token in the step's buffers */
    size_t row0; /* its row in `raw`, of in-page index 0; SIZE_MAX: it stays inside its open page */
} nb_cpu_place;

struct nb_cpu {
    nb_rank r;
    size_t max_tok, max_page, max_job; /* max_page: that one chunk touches */
    size_t max_values, max_head;       /* of a cached token; of heads, in any layer */
    char *work;                        /* one allocation for all float buffers below */
    size_t work_bytes;
    /* [max_tok] rows each, as wide as the widest layer needs */
    float *h, *xn;               /* [streams * hidden]: residual; [hidden]: normalised */
    float *stream_m, *stream_w;  /* several streams: products with fn [(2 + s) s]; post [s] and C [s][s] */
    const nb_cpu_residual *residual;
    nb_cpu_csa csa;
    nb_cpu_context context;
    float *qa;                   /* [q_lora] */
    float *q;                    /* [n_head * d_q] */
    float *kv;                   /* [n_values] */
    float *attn;                 /* [n_head * d_o] */
    float *whole; /* several ranks: what a product reads that all of them made; as wide as the widest needs */
    float *branch;               /* [hidden] */
    float *cos_sin[NB_MAX_ATTN]; /* of each kind of attention: [rope.dim] */
    float *q_scale[NB_MAX_ATTN]; /* of each kind that scales its queries by position: one value */
    /* rows of the chunks that touch more than one page: [max_raw] of the layer's n_values */
    float *raw;
    size_t max_raw;
    /* of the step */
    nb_cpu_place *place; /* [max_seq], as chunk_bad: chunks whose values cannot be stored */
    unsigned char *chunk_bad;
    nb_cpu_page *page; /* [n_page <= max_write] that it writes to, as page_bad */
    unsigned char *page_bad, *head_bad; /* the latter [max_seq][max_head], of a layer with states */
    size_t n_page, max_write, n_bad;
    nb_error *err; /* of the first bad chunk; may be NULL */
    /* direct attention (absorbed MLA, GQA): one query tile of <= 64 tokens */
    float *qx;                       /* [64][n_head * n_values] absorbed queries */
    float *part_o, *part_m, *part_l; /* partial results [NB_WAVE][n_head] x d_state, 1, 1; part_l ends part_m */
    float *tot_o, *tot_m, *tot_l;    /* [64][n_head * d_state] ... */
    /* Thrift mode: of the query in hand */
    float *t_score;              /* [n_head][t_stride] */
    float *t_lse;                /* [n_head] */
    float *t_best;               /* [t_stride] of tokens, or of pages */
    uint32_t *t_pick, *t_first;  /* see nb_cpu_pick: [t_stride], [pages + 1] */
    const unsigned char **t_row; /* [t_stride] */
    size_t t_stride;             /* tokens, whole pages; 0: off */
    nb_thrift_count thrift_count;
    atomic_uint_least64_t n_saturated; /* pages are encoded by many workers */
    nb_cpu_index index;
    nb_cpu_sparse sparse;
    /* attention over whole pages: the variant of each layer, where it has one */
    const nb_attn_pages_variant **over_pages; /* [n_layer] */
    atomic_uint_least64_t n_page_read;
    nb_cpu_expand ex[NB_MAX_ATTN]; /* expanded attention */
    float *dec;          /* [NB_SPLIT_TOK] decoded rows of a split */
    float *ex_q;         /* packed queries [max_page][n_head], each q_bytes */
    float *ex_tile;      /* packed tiles of a split [NB_EX_SLOTS][n_head], each tile_bytes */
    float *eo, *em, *el; /* [max_tok][n_head] totals, o x d_v */
    /* per worker */
    float *w_page;          /* [n_worker][64 * max_values] a decoded page */
    float *w_tile;          /* [n_worker][64 * (d_nope + d_v)] keys and values of one head */
    float *w_kv_b;          /* [n_worker][w_kv_b_floats] of nb_kv_b_head: 1 + head * n_layer + layer is w_kv_b_of */
    float *w_o, *w_m, *w_l; /* [n_worker][64] x d_v, 1, 1: a partial result of the expanded form */
    float *w_scratch;       /* [n_worker][w_scratch_bytes] of variants */
    size_t w_scratch_bytes, w_kv_b_floats, *w_kv_b_of;
    /* feed forward */
    float *gate, *up;                 /* dense or shared: [max_tok][columns of this rank] */
    float *e_x, *e_gate, *e_up, *e_y; /* [max_tok * top_k] rows, sorted by expert */
    float *r_logits, *r_weight;
    uint32_t *r_id;
    size_t *e_count, *e_first, *e_slot; /* [n_choice + 1] x2, [max_tok * top_k] */
    size_t e_rank[NB_COMM_MAX_RANK + 1]; /* the first row of each rank's experts; the end */
    float *d_x;     /* data-parallel: [max_tok][hidden] rows of all ranks; their choices; rows of e_x to give back */
    uint32_t *d_id; /* [max_tok * top_k], as d_to */
    size_t *d_to;
    nb_job *job;
    /* packed activations of the call in hand */
    nb_pack *pack; /* [max_pack] */
    size_t max_pack, xp_bytes;
    char *xp;
};

static inline nb_cpu *nb_cpu_of(nb_rank *r)
{
    return (nb_cpu *)(void *)r; /* its first member */
}

/* ---- cpu_create.c ---- */
nb_status nb_cpu_create(const nb_rank_options *o, nb_rank **out, nb_error *err);
void nb_cpu_destroy(nb_rank *r);

/* ---- cpu_linear.c: products, and work on tokens ---- */

/* The product rows [0, n_row) of w for n_tok rows of x, as a job. */
nb_job nb_cpu_job(const nb_cpu *f, const nb_weight *w, const float *bias, const float *x,
                  size_t x_stride, float *y, size_t y_stride, size_t n_tok);
void nb_cpu_run_jobs(nb_cpu *f, nb_job *job, size_t n_job);
void nb_cpu_linear(nb_cpu *f, const nb_weight *w, const float *bias, const float *x,
                   size_t x_stride, float *y, size_t y_stride, size_t n_tok);
/* Bytes of n_tok packed rows of x as nb_cpu_run_jobs cuts them; 0 where v reads x itself. */
size_t nb_cpu_pack_bytes(const nb_linear_variant *v, size_t n_tok, size_t n_col);
/* fn(ctx, t0, t1) for ranges of [0, n_tok), in parallel. */
typedef void nb_cpu_tok_fn(void *ctx, size_t t0, size_t t1);
void nb_cpu_tokens(nb_cpu *f, nb_cpu_tok_fn *fn, void *ctx, size_t n_tok);
void nb_cpu_norm(const nb_cpu *f, const float *w, float eps, const float *x, size_t x_stride,
                 float *y, size_t y_stride, size_t n_row, size_t dim);
/* Rotates heads of tokens [t0, t1) with the table of the layer's attention; x points to the first token of the
 * step. */
void nb_cpu_rope(const nb_cpu *f, size_t layer, float *x, size_t t0, size_t t1, size_t n_head,
                 size_t tok_stride, size_t head_stride);

/* ---- attention (cpu_attn.c; cpu_decode.c for single tokens of many sequences) ---- */

/* One chunk in one layer. */
typedef struct nb_cpu_attn {
    nb_cpu *f;
    const nb_chunk *c;
    const nb_layer *l;
    const nb_attn_config *attn; /* of the layer, as d and ex */
    const nb_attn_dims *d;
    const nb_cpu_expand *ex;
    size_t layer, t0;       /* t0: the chunk's first token in the step's buffers */
    size_t p0, in0, n_page; /* first page, its tokens before the chunk, pages touched */
    size_t n_end;           /* in0 + n_tok */
    const nb_cpu_context *window; /* not NULL: where complete pages are read */
    float *tail, *own; /* the layer's open page; the chunk's pages, rows from in-page index 0 */
} nb_cpu_attn;

/* Tokens that are read refined, by position: those of page j are [first[j], first[j + 1]). */
typedef struct nb_cpu_pick {
    const uint32_t *first, *tok;
    const unsigned char *const *row; /* their rows of the residual plane */
} nb_cpu_pick;

/* Queries [0, n_q) of one page against one split of the context, heads [hb, he): partial results in
 * o [n_q][n_head][d_state], m, l [n_q][n_head]. */
typedef struct nb_split_args {
    const nb_cpu_attn *s;
    const float *q;
    size_t q_stride, n_q, r0, page; /* r0: in-page index of the first query; absolute page */
    size_t split, head_begin, head_end;
    float *o, *m, *l;
    const nb_cpu_pick *pick; /* NULL: none */
} nb_split_args;

/* Chunk i of the pass. */
nb_cpu_attn nb_cpu_attn_of(nb_cpu *f, const nb_pass *p, size_t i, size_t layer);
/* nb_attn_ops of both kinds. */
void nb_cpu_append(nb_rank *r, nb_pass *p, size_t layer);
void nb_cpu_attend(nb_rank *r, nb_pass *p, size_t layer);
/* n sequences that share the complete pages of the split, with at most 64 queries and the same split and
 * heads; picks only with n = 1.  Each result is what it would be alone. */
void nb_cpu_attn_split(const nb_split_args *a, size_t n, size_t worker);
/* For a query in a page: pages of a split, splits, complete pages of a split before it. */
size_t nb_cpu_split_pages(size_t page), nb_cpu_n_split(size_t page);
size_t nb_cpu_n_closed(size_t page, size_t split);
/* A complete page: its bytes; all its values as float rows [64][n_values]; its first tokens kept in BF16 beside it. */
unsigned char *nb_cpu_page_of(const nb_cpu_attn *s, size_t page);
void nb_cpu_decode_page(const nb_cpu_attn *s, size_t page, float *out);
size_t nb_cpu_n_sink(const nb_cpu_attn *s, size_t page);
uint16_t *nb_cpu_sink_rows(const nb_cpu_attn *s);
const nb_record *nb_cpu_record(const nb_cpu_attn *s);
void nb_cpu_reset(float *m, float *l, size_t n);
/* A kind of attention: its operations, and what it does around direct attention over cached rows. */
typedef struct nb_cpu_kind {
    nb_attn_ops ops;
    /* Queries as the cached rows want them, of n_q <= 64 tokens; *stride: floats per token. */
    const float *(*queries)(nb_cpu *f, size_t layer, const float *q, size_t n_q, size_t *stride);
    /* The heads' outputs y [n_q][n_head * d_o] from f->tot_o. */
    void (*outputs)(nb_cpu *f, size_t layer, size_t n_q, float *y);
    /* Where keys and values of this rank's heads are in rows [n][n_values], and their widths. */
    void (*tile)(const nb_cpu_attn *s, const float *rows, nb_attn_args *a);
} nb_cpu_kind;
#define X(NAME, name) extern const nb_cpu_kind nb_cpu_kind_##name;
NB_ATTENTIONS(X)
#undef X
const nb_cpu_kind *nb_cpu_kind_of(const nb_attn_config *attn);

/* ---- cpu_expand.c, cpu_decode.c ---- */

/* All queries of the chunk, in the expanded form. */
void nb_cpu_expanded(const nb_cpu_attn *s);
/* Chunks [i0, i0 + n) of the pass side by side, one token each, read from the stored values, n <= NB_DECODE_MAX. */
void nb_cpu_decode(nb_cpu *f, const nb_pass *p, size_t i0, size_t n, size_t layer);

/* ---- cpu_thrift.c ---- */

/* The layer's queries of this chunk are in Thrift mode. */
bool nb_cpu_thrift_on(const nb_cpu_attn *s);
unsigned char *nb_cpu_plane(const nb_cpu_attn *s, size_t page);
/* The chunk's full pages are encoded: rows that the pool had of their blocks are old. */
void nb_cpu_thrift_stored(const nb_cpu_attn *s);
/* Refines the chosen tokens of a page in its decoded rows. */
void nb_cpu_refine(const nb_cpu_attn *s, size_t page, const nb_cpu_pick *p, float *rows);
/* Token tok of the chunk, with its absorbed query: its result into row `row` of f->tot_o. */
void nb_cpu_thrift_query(const nb_cpu_attn *s, size_t tok, const float *q, size_t row);

/* ---- cpu_ffn.c ---- */

void nb_cpu_feed_forward(nb_rank *r, nb_pass *p, size_t layer);
void nb_cpu_combine(nb_rank *r, nb_pass *p, size_t layer);
/* Data-parallel ranks meet: f->branch, or its columns, from all experts.  False: a rank has failed. */
bool nb_cpu_share_experts(nb_cpu *f, size_t layer);

/* ---- cpu_meet.c: several ranks ---- */

bool nb_cpu_meet(nb_rank *r, nb_pass *p, size_t layer, nb_meeting at);
/* What a product reads: the part that this rank made, where there are no others, else the whole. */
static inline const float *nb_cpu_whole(const nb_cpu *f, const float *own)
{
    return nb_rank_divided(&f->r) ? f->whole : own;
}

#endif
