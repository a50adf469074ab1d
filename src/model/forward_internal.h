/* forward_internal.h - workspace and helpers shared by the files of the forward pass. */
#ifndef NB_MODEL_FORWARD_INTERNAL_H
#define NB_MODEL_FORWARD_INTERNAL_H
#include "model/forward.h"

enum {
    /* Attention state is kept per split of this many pages and then merged, so
     * that the splits of a long context can run in parallel: a constant, because
     * the order of summation is part of the result. */
    NB_SPLIT_PAGES = 4,
    NB_SPLIT_TOK = NB_SPLIT_PAGES * NB_PAGE_TOK,
    NB_ROW_BLOCK = 32 /* output rows of a matrix per task */
};

/* A product to be computed; jobs of one call run side by side. */
typedef struct nb_job {
    nb_linear_args a;
    nb_linear_fn *fn;
    size_t n_block, first; /* tasks; index of the first task */
} nb_job;

struct nb_forward {
    nb_forward_options o;
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
    float *part_o, *part_m, *part_l; /* [wave][n_q][n_head] x d_state, 1, 1 */
    size_t part_floats;              /* capacity of part_o */
    float *tot_o, *tot_m, *tot_l;    /* [64][n_head * d_state] ... */
    size_t d_state;                  /* kv_lora or head_dim */
    /* expanded attention */
    float *dec;               /* [NB_SPLIT_TOK] decoded rows of a split */
    float *exp_dec, *exp_raw; /* [NB_SPLIT_TOK][n_head * (d_nope + d_v)] */
    float *eo, *em, *el;      /* [max_tok][n_head] totals, o x d_v */
    /* per worker: decoded page and a local attention state */
    float *w_page;          /* [n_worker][64 * n_values] */
    float *w_o, *w_m, *w_l; /* [n_worker][64 * n_head] x d_v for the expanded form */
    /* feed forward */
    float *gate, *up;                 /* [max_tok * ...] dense or shared: [max_tok][max inter] */
    float *e_x, *e_gate, *e_up, *e_y; /* [max_tok * top_k] rows, sorted by expert */
    float *r_logits, *r_weight;
    uint32_t *r_id;
    size_t *e_count, *e_first, *e_slot; /* [n_expert + 1] x2, [max_tok * top_k] */
    nb_job *job;
};

/* The product rows [0, n_row) of w for n_tok rows of x, as a job. */
nb_job nb_fw_job(const nb_forward *f, const nb_weight *w, const float *bias, const float *x,
                 size_t x_stride, float *y, size_t y_stride, size_t n_tok);
void nb_fw_run_jobs(nb_forward *f, nb_job *job, size_t n_job);
void nb_fw_linear(nb_forward *f, const nb_weight *w, const float *bias, const float *x,
                  size_t x_stride, float *y, size_t y_stride, size_t n_tok);
void nb_fw_norm(nb_forward *f, const float *w, float eps, const float *x, size_t x_stride, float *y,
                size_t y_stride, size_t n_row, size_t dim);
void nb_fw_trace(nb_forward *f, const char *what, size_t layer, const float *x, size_t n_tok,
                 size_t dim, size_t stride);

/* f->q and f->kv hold the chunk's rotated queries and new rows at token t0:
 * stores the rows and writes the heads' outputs to f->attn. */
nb_status nb_fw_attention(nb_forward *f, const nb_chunk *c, size_t layer, size_t t0, nb_error *err);
/* y[n_tok][hidden] = the layer's feed-forward block applied to x. */
void nb_fw_ffn(nb_forward *f, size_t layer, const float *x, float *y, size_t n_tok);

#endif
