/* forward_internal.h - workspace and helpers shared by the files of the forward pass. */
#ifndef NB_MODEL_FORWARD_INTERNAL_H
#define NB_MODEL_FORWARD_INTERNAL_H
#include <stdatomic.h>

#include "kernel/attn_pages/attn_pages.h"
#include "kernel/attn_prefill/attn_prefill.h"
#include "model/forward.h"

enum {
    /* Attention state is kept per split of this many pages and then merged, so
     * that the splits of a long context can run in parallel: a constant, because
     * the order of summation is part of the result. */
    NB_SPLIT_PAGES = 4,
    NB_SPLIT_TOK = NB_SPLIT_PAGES * NB_PAGE_TOK,
    NB_TOK_BLOCK = 256, /* tokens of a product per task */
    NB_DECODE_MAX = 64, /* sequences that decode side by side */
    NB_WAVE = 64,       /* states of splits in hand, of one query each */
    NB_CASCADE_MAX = 16 /* sequences that attend to a split in one task */
};

/* A product to be computed; jobs of one call run side by side. */
typedef struct nb_job {
    nb_linear_args a;
    const nb_linear_variant *v;
    size_t rows, n_row_block, first; /* rows of a task; blocks of rows; index of the first task */
    size_t pack;                     /* where v has pack: the first of its blocks of tokens */
} nb_job;

/* Activations of a block of tokens in the form that a variant reads. */
typedef struct nb_pack {
    nb_linear_pack *pack;
    char *xp;
    const float *x;
    size_t x_stride, n_tok, n_col, first; /* first: index of its first task */
} nb_pack;

struct nb_forward {
    nb_forward_options o;
    struct nb_gpu_forward *gpu; /* all of it, where the options name a GPU: nothing below is used */
    nb_plan plan;
    nb_trace_fn *trace;
    void *trace_ctx;
    size_t n_values; /* of a record's token */
    size_t d_q, d_o; /* per head: query width; output width of attention (v) */
    size_t max_tok, max_page, max_job;
    nb_arena arena; /* small things */
    char *work;     /* one allocation for all float buffers below */
    size_t work_bytes;
    /* [max_tok] rows each */
    float *h, *xn;  /* [hidden] */
    float *qa;      /* [q_lora] */
    float *q;       /* [n_head * d_q] */
    float *kv;      /* [n_values]: latent | rope, or K | V */
    float *attn;    /* [n_head * d_o] */
    float *branch;  /* [hidden] */
    float *cos_sin; /* [rope.dim] */
    /* pages of the chunk in hand, [max_page * 64] rows of n_values */
    float *raw;
    uint16_t *stage;
    unsigned char *page_bad; /* [max_page] */
    /* chunks of the step whose values cannot be stored; at most max_tok chunks in a step */
    unsigned char *chunk_bad; /* [max_tok] */
    size_t n_bad;
    /* direct attention (absorbed MLA, GQA): one query tile of <= 64 tokens */
    float *qx;                       /* [64][n_head * (kv_lora + d_rope)] absorbed queries */
    float *part_o, *part_m, *part_l; /* [NB_WAVE][n_head] x d_state, 1, 1 */
    float *tot_o, *tot_m, *tot_l;    /* [64][n_head * d_state] ... */
    size_t d_state;                  /* kv_lora or head_dim */
    /* Thrift mode: of the query in hand */
    float *t_score;              /* [n_head][t_stride] */
    float *t_lse;                /* [n_head] */
    float *t_best;               /* [t_stride] of tokens, or of pages */
    uint32_t *t_pick, *t_first;  /* see nb_fw_pick: [t_stride], [pages + 1] */
    const unsigned char **t_row; /* [t_stride] */
    size_t t_stride;             /* tokens, whole pages; 0: off */
    nb_thrift_count thrift_count;
    atomic_uint_least64_t n_saturated; /* pages are encoded by many workers */
    /* attention over whole pages: the variant of each layer, where it is MLA */
    const nb_attn_pages_variant **over_pages; /* [n_layer] */
    atomic_uint_least64_t n_page_read;        /* see nb_forward_pages_read */
    /* expanded attention */
    nb_attn_prefill_dims ex_dims;
    float *dec;     /* [NB_SPLIT_TOK] decoded rows of a split */
    float *ex_q;    /* packed queries [max_page][n_head], each ex_q_bytes */
    float *ex_tile; /* packed tiles of a split [NB_EX_SLOTS][n_head], each ex_tile_bytes */
    size_t ex_q_bytes, ex_tile_bytes;
    float *eo, *em, *el; /* [max_tok][n_head] totals, o x d_v */
    /* per worker */
    float *w_page;          /* [n_worker][64 * n_values] a decoded page */
    float *w_tile;          /* [n_worker][64 * (d_nope + d_v)] keys and values of one head */
    float *w_o, *w_m, *w_l; /* [n_worker][64] x d_v, 1, 1: a state of the expanded form */
    float *w_scratch;       /* [n_worker][w_scratch_bytes] of variants */
    size_t w_scratch_bytes;
    /* feed forward */
    float *gate, *up;                 /* [max_tok * ...] dense or shared: [max_tok][max inter] */
    float *e_x, *e_gate, *e_up, *e_y; /* [max_tok * top_k] rows, sorted by expert */
    float *r_logits, *r_weight;
    uint32_t *r_id;
    size_t *e_count, *e_first, *e_slot; /* [n_expert + 1] x2, [max_tok * top_k] */
    nb_job *job;
    /* packed activations of the call in hand */
    nb_pack *pack; /* [max_pack] */
    size_t max_pack, xp_bytes;
    char *xp;
};

/* Pages that a split may hold twice: decoded for later pages, and as they are for their own. */
enum { NB_EX_SLOTS = 2 * NB_SPLIT_PAGES };

/* The product rows [0, n_row) of w for n_tok rows of x, as a job. */
nb_job nb_fw_job(const nb_forward *f, const nb_weight *w, const float *bias, const float *x,
                 size_t x_stride, float *y, size_t y_stride, size_t n_tok);
void nb_fw_run_jobs(nb_forward *f, nb_job *job, size_t n_job);
void nb_fw_linear(nb_forward *f, const nb_weight *w, const float *bias, const float *x,
                  size_t x_stride, float *y, size_t y_stride, size_t n_tok);
/* Bytes of n_tok packed rows of x as nb_fw_run_jobs cuts them; 0 where v reads x itself. */
size_t nb_fw_pack_bytes(const nb_linear_variant *v, size_t n_tok, size_t n_col);
/* fn(ctx, t0, t1) for ranges of [0, n_tok), in parallel. */
typedef void nb_fw_tok_fn(void *ctx, size_t t0, size_t t1);
void nb_fw_tokens(nb_forward *f, nb_fw_tok_fn *fn, void *ctx, size_t n_tok);
void nb_fw_norm(const nb_forward *f, const float *w, float eps, const float *x, size_t x_stride,
                float *y, size_t y_stride, size_t n_row, size_t dim);
void nb_fw_trace(nb_forward *f, const char *what, size_t layer, const float *x, size_t n_tok,
                 size_t dim, size_t stride);

/* ---- attention (forward_attn.c; forward_decode.c for single tokens of many sequences) ---- */

/* One chunk in one layer. */
typedef struct nb_attn_step {
    nb_forward *f;
    const nb_chunk *c;
    const nb_layer *l;
    size_t layer, t0;       /* t0: the chunk's first token in the batch's buffers */
    size_t p0, in0, n_page; /* first page, its tokens before the chunk, pages touched */
    size_t n_end;           /* in0 + n_tok */
    float *tail, *own;      /* the layer's tail; the chunk's pages, rows from in-page index 0 */
} nb_attn_step;

/* Tokens that are read refined, by position: those of page j are [first[j], first[j + 1]). */
typedef struct nb_fw_pick {
    const uint32_t *first, *tok;
    const unsigned char *const *row; /* their rows of the residual plane */
} nb_fw_pick;

/* Queries [0, n_q) of one page against one split of the context, heads [hb, he): state in
 * o [n_q][n_head][d_state], m, l [n_q][n_head]. */
typedef struct nb_split_args {
    const nb_attn_step *s;
    const float *q;
    size_t q_stride, n_q, r0, page; /* r0: in-page index of the first query; absolute page */
    size_t split, head_begin, head_end;
    float *o, *m, *l;
    const nb_fw_pick *pick; /* NULL: none */
} nb_split_args;

nb_attn_step nb_fw_attn_step(nb_forward *f, const nb_chunk *c, size_t layer, size_t t0);
/* Rounds page i's new rows, and encodes the page when it is full; stage: [64][n_values] of
 * scratch. False when a value is not finite. */
bool nb_fw_store_page(const nb_attn_step *s, size_t i, uint16_t *stage);
nb_status nb_fw_store_error(const nb_attn_step *s, size_t i, nb_error *err);
/* n sequences that have the complete pages of the split in common, with at most 64 queries and the
 * same split and heads; picks only with n = 1.  Each result is what it would be alone. */
void nb_fw_attn_split(const nb_split_args *a, size_t n, size_t worker);
size_t nb_fw_n_closed(size_t page, size_t split); /* complete pages of a split before `page` */
/* A complete page: its bytes; all its values as float rows [64][n_values]; how many of its first
 * tokens are kept in BF16 beside it. */
unsigned char *nb_fw_page(const nb_attn_step *s, size_t page);
void nb_fw_decode_page(const nb_attn_step *s, size_t page, float *out);
size_t nb_fw_n_sink(const nb_attn_step *s, size_t page);
void nb_fw_reset_state(float *m, float *l, size_t n);
/* forward_expand.c: all queries of the chunk, in the expanded form. */
void nb_fw_expanded(const nb_attn_step *s);
/* f->qx = absorbed queries of n_q <= 64 tokens; o_h = W_UV,h u_h from f->tot_o. */
void nb_fw_absorb(nb_forward *f, const nb_layer *l, const float *q, size_t n_q);
void nb_fw_unabsorb(nb_forward *f, const nb_layer *l, size_t n_q, float *y);

/* ---- forward_thrift.c ---- */

/* The layer's queries of this chunk are in Thrift mode. */
bool nb_fw_thrift_on(const nb_attn_step *s);
unsigned char *nb_fw_plane(const nb_attn_step *s, size_t page);
/* The chunk's full pages are encoded: rows that the pool had of their blocks are old. */
void nb_fw_thrift_stored(const nb_attn_step *s);
/* Refines the chosen tokens of a page in its decoded rows. */
void nb_fw_refine(const nb_attn_step *s, size_t page, const nb_fw_pick *p, float *rows);
/* Token tok of the chunk, with its absorbed query: u_h into row `row` of f->tot_o. */
void nb_fw_thrift_query(const nb_attn_step *s, size_t tok, const float *q, size_t row);

/* f->q and f->kv hold the chunks' rotated queries and new rows from token t0 on: chunks of one
 * token each, read from the stored values, at most 64 of them, side by side.  Sets
 * f->chunk_bad[i0 + i] for a chunk that is not finite (err: the first of the step). */
void nb_fw_attention_decode(nb_forward *f, const nb_chunk *c, size_t n_chunk, size_t i0,
                            size_t layer, size_t t0, nb_error *err);
/* f->q and f->kv hold the chunk's rotated queries and new rows at token t0:
 * stores the rows and writes the heads' outputs to f->attn. */
nb_status nb_fw_attention(nb_forward *f, const nb_chunk *c, size_t layer, size_t t0, nb_error *err);
/* y[n_tok][hidden] = the layer's feed-forward block applied to x. */
void nb_fw_ffn(nb_forward *f, size_t layer, const float *x, float *y, size_t n_tok);

#endif
