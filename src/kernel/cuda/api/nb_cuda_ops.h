/* nb_cuda_ops.h - the operations of a step on a GPU: their arguments and contracts.
 *
 * Every pointer in an argument is device memory, unless marked "host".  A result's bits depend only on its own row and
 * sequence: not on the other rows, the number of rows, the grid or the order in which blocks run.  Sums are in float
 * unless noted.  NaN and infinity stay in their row.  Strides are in elements.
 *
 * Rows that enter a product exist in up to three forms (nb_cuda_rows): as float, and as two BF16 parts with x = hi + lo
 * up to 2^-17 |x| (hi = BF16 of x, lo = BF16 of x - hi).  Products of BF16 and FP8 weights read the parts, those of
 * other weights the floats.  An operation that writes rows writes every form whose pointer is not NULL.  If lo is NULL
 * in an input, the rows are exact in BF16.
 *
 * Unless noted, the arithmetic follows the contracts of the host's operations (kernel/<op>/<op>.h); the checker
 * compares with the references there. */
#ifndef NB_KERNEL_CUDA_API_NB_CUDA_OPS_H
#define NB_KERNEL_CUDA_API_NB_CUDA_OPS_H
#include "kernel/cuda/api/nb_cuda_units.h"
#include "kernel/kernel.h"
#include "num/record.h"

typedef struct nb_cuda nb_cuda;
typedef struct nb_cuda_graph nb_cuda_graph;

/* [n][stride] values; hi, lo: BF16.  stride is a multiple of 8, rows are aligned to 16 bytes. */
typedef struct nb_cuda_rows {
    float *f;
    uint16_t *hi, *lo;
    size_t stride;
} nb_cuda_rows;

/* Rows in 8 bits: E4M3 codes with a scale per 128 columns, x[c] = s[c / 128] q[c].  stride: bytes, a multiple of 128; the
 * codes behind a row's last value are 0.  s_stride: floats, at least stride / 128. */
typedef struct nb_cuda_codes {
    unsigned char *q;
    float *s;
    size_t stride, s_stride;
} nb_cuda_codes;

/* ---- tokens ---- */

typedef struct nb_cuda_embed_args { /* embed.h */
    float *y;
    const uint32_t *id; /* ids >= w.n_row (padding) give zeros */
    nb_weight w;
    size_t n_tok, y_stride;
    float factor;
} nb_cuda_embed_args;

/* y[t] = sum over k, in order, of weight[t][k] * e[place[t * top_k + k]], then + shared[t] (may be NULL; may be y). */
typedef struct nb_cuda_moe_sum_args {
    float *y;
    const float *e, *shared, *weight;
    const uint32_t *place;
    size_t n_tok, top_k, dim, y_stride, e_stride, shared_stride;
} nb_cuda_moe_sum_args;

/* h[t] += branch_factor * branch[t] (skipped if branch is NULL), then y[t] = y_factor * rmsnorm(h[r]) * w, with
 * r = row[t] (t if row is NULL; with row there is no branch).  w NULL: y is not written.
 * sum.e not NULL: branch[t] is the result of moe_sum for n_row tokens and dim values; sum.y is scratch.
 * Bound of y: rmsnorm.h. */
typedef struct nb_cuda_norm_args {
    float *h;
    const float *branch, *w;
    const uint32_t *row; /* [n_row] */
    nb_cuda_rows y;
    size_t n_row, dim, h_stride, branch_stride;
    float branch_factor, eps, y_factor;
    nb_cuda_moe_sum_args sum; /* its n_tok and dim are ignored */
} nb_cuda_norm_args;

/* cos_sin[t] = factor * (cos, sin)(inv_freq[j] * (float)pos[t]): the angle is rounded to float; cosine and sine are
 * computed in double and rounded.  Where rope_long[t] != 0 (may be NULL), inv_freq_long is used.
 * q_scale (may be NULL) [t] = 1 + q_beta * ln(1 + pos[t] / q_orig), an integer quotient; in double, rounded. */
typedef struct nb_cuda_rope_table_args {
    float *cos_sin; /* [n_tok][dim]: dim/2 cosines, then sines */
    const uint32_t *pos;
    const unsigned char *rope_long;
    const float *inv_freq, *inv_freq_long; /* [dim / 2] */
    size_t n_tok, dim;
    float factor;
    float *q_scale; /* [n_tok] */
    float q_beta;
    size_t q_orig; /* at least 1 */
} nb_cuda_rope_table_args;

/* Follows the projections of MLA, for each token (forward.c, finish_mla).  In place: the latent kv[0..lora) is
 * normalised, minus mean, and transformed (Hadamard in blocks of `hadamard`, num/hadamard.h; 0: none).  The rope key
 * kv[lora..lora + d_rope) and the heads' rope parts of q are rotated, and multiplied by rope_k and rope_q if given.
 * Then all of q is multiplied by q_scale[t], if given.
 * q's results:
 *   direct form:   q_nope (parts of [n_tok][n_head * d_nope]) for the absorbing product, and the rope
 *                  parts to q_rope[t * q_rope_stride + h * q_rope_head + i]
 *   expanded form: q_nope.hi and q_rope are NULL: the rope parts (with q_scale, all) are written back to q. */
typedef struct nb_cuda_mla_finish_args {
    float *q;                                   /* [n_tok][q_stride]: heads of d_nope + d_rope */
    float *kv;                                  /* [n_tok][kv_stride] */
    const float *norm, *mean, *rope_k, *rope_q; /* [lora]; [lora] or NULL; [d_rope] or NULL x2 */
    const float *cos_sin;                       /* [n_tok][d_rope] */
    const float *q_scale;                       /* [n_tok] or NULL */
    nb_cuda_rows q_nope;                        /* stride >= n_head * d_nope */
    float *q_rope;
    size_t n_tok, n_head, d_nope, d_rope, lora, q_stride, kv_stride, q_rope_stride, q_rope_head;
    size_t hadamard;
    float eps;
    bool interleaved;
} nb_cuda_mla_finish_args;

/* GQA: normalises (if the norms are not NULL) and rotates heads of q and k in place; values follow the keys in kv. */
typedef struct nb_cuda_gqa_finish_args {
    float *q, *kv; /* [n_tok][q_stride], [n_tok][kv_stride]: n_kv_head keys, then as many values */
    const float *q_norm, *k_norm, *cos_sin; /* [head_dim] x2, [n_tok][rope_dim] */
    size_t n_tok, n_head, n_kv_head, head_dim, rope_dim, q_stride, kv_stride;
    float eps;
    bool interleaved;
} nb_cuda_gqa_finish_args;

/* limit: gate is at most this, up within +- this, before; 0: no limit.  NaN stays. */
typedef struct nb_cuda_swiglu_args { /* swiglu.h */
    const float *gate, *up;          /* [n_tok][in_stride] */
    nb_cuda_rows y;
    size_t n_tok, dim, in_stride;
    float limit;
} nb_cuda_swiglu_args;

typedef struct nb_cuda_split_args { /* y = x in the forms of y */
    const float *x;                 /* [n_tok][x_stride] */
    nb_cuda_rows y;
    size_t n_tok, dim, x_stride;
} nb_cuda_split_args;

/* y = x in 8 bits, as DeepSeek trained: of each 128 columns of a row, in float,
 *   a = max |x[c]|;  inv = 448 / a;  q[c] = E4M3 nearest to x[c] * inv, ties to even;  s = a / 448
 * a < 2^-100: all q and s are 0; an x[c] that is not finite: all q are 0 and s is NaN. */
typedef struct nb_cuda_quantise_args {
    nb_cuda_rows x; /* hi only */
    nb_cuda_codes y;
    size_t n_tok, dim;
} nb_cuda_quantise_args;
#define NB_CUDA_CODES_MIN 0x1p-100f

/* ---- products ---- */

/* The kind of a product decides its bits.  A token's products are all of one kind, by what the token is
 * (docs/decisions/022): DIRECT for tokens in the direct form (decode, GQA, --mla absorbed), PROMPT
 * for tokens in the expanded form.  Within a kind nothing changes a bit. */
typedef enum nb_cuda_kind { NB_CUDA_DIRECT, NB_CUDA_PROMPT } nb_cuda_kind;

/* y[t][r] (+)= bias[r] + sum_c x[t][c] W[r][c] for n_batch batches b (heads): x + b * x_batch,
 * rows [b * w_batch, b * w_batch + n_out) of w, y + b * y_batch.  Without batches n_batch is 1 and
 * n_out is w.n_row.  bias [n_out] (n_batch 1 only).  add: y += (y.f only, no parts).
 * FP8B: as linear.h; block scales apply to whole rows of w, so w_batch and n_out need no alignment.
 * Bound, with S and n as in linear.h, and what linear.h adds for underflow; with lo NULL, of x rounded to BF16:
 *   BF16 (170 + n/4) * 2^-24 * S, FP8B and packed types (178 + n/4) * 2^-24 * S: x has two parts, and tensor cores truncate
 *   sums of 16 terms;  F32 and F16 (8 + sqrt(n)) * 2^-24 * S, INT8 as rows of codes and scales (10 + sqrt(n)) * 2^-24 * S
 * Prompts with K forms (nb_stype_is_k) may enter values of W in as many BF16 parts as x has: two, (562 + 3/8 n) * 2^-24 * S;
 * one, the bound is that of BF16 for the values rounded to BF16 (docs/decisions/066).
 * Rows that read codes: x is in xq (n_batch 1).  Each 128 columns are summed by the tensor cores, which keep 13 bits
 * behind the largest of 32 products and the sum so far; s and the weights' scale multiply that sum in float. */
typedef struct nb_cuda_linear_args {
    nb_weight w; /* n_col: length of the sum and of w's rows */
    const float *bias;
    nb_cuda_codes xq;
    nb_cuda_rows x, y;
    size_t n_tok, n_batch, n_out, x_batch, y_batch, w_batch;
    size_t n_whole; /* w is a part of a matrix with so many outputs, whose bits it has; 0: n_out.  `can` holds for both */
    bool add;
} nb_cuda_linear_args;

typedef struct nb_cuda_linear_row {
    const char *name; /* "mma", "simt", "cublaslt" */
    int cc;           /* minimum compute capability */
    nb_cuda_kind kind;
    bool floats; /* reads x as floats, not as parts */
    bool (*can)(nb_wtype type, size_t n_out, size_t n_col, bool two_parts);
    void (*fn)(nb_cuda *g, const nb_cuda_linear_args *a);
    bool codes; /* reads x as codes, which rounds it: only for who asks for that */
} nb_cuda_linear_row;

/* Computes route.h, then the order by expert.  Row i = t * top_k + k is choice k of token t:
 *   first[e]..first[e + 1]  the places of expert e's rows, in ascending i; first [n_expert + 1]
 *   src[place] = t;  place[i]
 * n_rank > 1: experts are sorted by e % n_rank first, so that those of a rank follow each other; first[s] then belongs to
 * the expert at place s of this order (NB_CUDA_EXPERT_AT).
 * logits NULL: the choice has been made; id is an input, weight is not used, and only the order is computed.  Rows of
 * tokens with on[t] == 0 (on NULL: none) then have no place, and place[i] = 0. */
typedef struct nb_cuda_route_args {
    const float *logits, *bias;         /* [n_tok][n_expert], [n_expert] or NULL */
    uint32_t *id, *first, *src, *place; /* [n_tok][top_k], ..., [n_tok * top_k] x2 */
    float *weight;                      /* [n_tok][top_k] */
    size_t n_tok, n_expert, top_k, n_group, topk_group;
    size_t n_rank; /* 0: 1 */
    int group_top;
    bool sigmoid, sqrt_softplus, normalise;
    float factor;
    const unsigned char *on; /* [n_tok] or NULL */
    const uint16_t *table; /* [n_vocab][top_k]: the choices of tok[t]; NULL: the largest are chosen */
    const uint32_t *tok;   /* [n_tok]; with table: ids from n_vocab on (padding) are as id 0 */
    size_t n_vocab;
} nb_cuda_route_args;

/* Experts of ranks before this one. */
#define NB_CUDA_EXPERT_0(n_expert, n_rank, rank)                                                   \
    ((n_expert) / (n_rank) * (rank) + ((rank) < (n_expert) % (n_rank) ? (rank) : (n_expert) % (n_rank)))
/* Where expert e stands when experts are sorted by e % n_rank. */
#define NB_CUDA_EXPERT_AT(e, n_expert, n_rank)                                                     \
    (NB_CUDA_EXPERT_0(n_expert, n_rank, (e) % (n_rank)) + (e) / (n_rank))

/* Products of the experts over the places of route.  With up.data, act[p] = swiglu(gate x[src[p]], up x[src[p]])
 * (parts, and f for SIMT rows); else y[p] = gate x[src[p]], without src gate x[p] (the down product: gate is down).
 * Weights of all experts are contiguous: [n_expert * n_out][n_col], FP8B scales
 * [n_expert][ceil(n_out / 128)][ceil(n_col / 128)].
 * first NULL (rows of kind DIRECT): one expert, which has all n_tok = n_place rows in their order. */
typedef struct nb_cuda_experts_args {
    nb_weight gate, up; /* n_row = n_expert * n_out */
    nb_cuda_codes xq;   /* x of rows that read codes */
    nb_cuda_rows x, y;  /* x: [n_tok] with src, [n_place] without; y: [n_place], floats without up */
    const uint32_t *first, *src;
    size_t n_expert, n_out, n_tok, n_place; /* n_place = n_tok * top_k */
    size_t n_whole; /* as in nb_cuda_linear_args */
    bool chosen; /* the previous operation was an experts product with the same first */
    float limit; /* with up: as in nb_cuda_swiglu_args */
} nb_cuda_experts_args;

typedef struct nb_cuda_experts_row {
    const char *name;
    int cc;
    nb_cuda_kind kind;
    bool floats; /* as above */
    bool (*can)(nb_wtype type, size_t n_out, size_t n_col);
    void (*fn)(nb_cuda *g, const nb_cuda_experts_args *a);
    bool codes;
} nb_cuda_experts_row;

/* Choices that give back what they read (zero experts): y[p] = x[src[p]] for places first[0] <= p < first[n_zero] of
 * n_place.  x: hi and lo (NULL: 0), in float; 2^-17 |x|. */
typedef struct nb_cuda_zero_experts_args {
    nb_cuda_rows x;
    float *y; /* [n_place][y_stride] */
    const uint32_t *first, *src;
    size_t n_zero, n_place, dim, y_stride;
} nb_cuda_zero_experts_args;

/* ---- the cache ---- */

/* Consecutive tokens of one sequence in a step.  n_tok 0: padding of a graph, ignored.
 * own: the BF16 (f32 record: float) rows of the chunk's pages, [n_page][64][n_values] from its first page on; NULL if
 * the chunk lies in one page, whose rows are then in the tail itself. */
typedef struct nb_cuda_chunk {
    float *tail, *own;    /* tail: layer 0's; own: reused by one layer after the other */
    uint32_t row0, n_tok; /* row0: in the step's buffers */
    uint32_t pos0;        /* position of the first token */
    uint32_t block0;      /* the chunk's blocks are block[block0 + position / 64] */
} nb_cuda_chunk;

/* Locations of a layer's values. */
typedef struct nb_cuda_cache {
    unsigned char *pool; /* page of block b: pool + b * block_bytes + layer_off */
    size_t block_bytes, layer_off;
    size_t tail_off; /* offset in elements from a chunk's tail to this layer's */
    const uint32_t *block;
    const nb_cuda_chunk *chunk; /* [n_chunk] */
    size_t n_chunk;
    nb_record record; /* by value: fixed when the step is planned */
} nb_cuda_cache;

/* Quantise and append: rows kv[row0 + i] of every chunk, rounded to BF16 (f32 record: not rounded), go to own or tail
 * as in forward_attn.c (store).  With own, old rows of the first page come from the tail, and rows of the page that
 * stays open go back to it.  Every page that is now complete is encoded into its block, byte for byte as
 * nb_record_encode_page and nb_record_store_f32.
 * If a new value is not finite, bad[chunk] becomes 1 (else it is left).  While it is 1, no page of the chunk is
 * written.  Old rows are assumed finite.
 * plane: residual planes, written with the pages of nvfp4 and if4 as nb_residual_encode does. */
typedef struct nb_cuda_kv_append_args {
    nb_cuda_cache cache;
    const float *kv;                 /* [rows][kv_stride] */
    size_t kv_stride, max_chunk_tok; /* max_chunk_tok: the longest chunk's; decides the grid */
    uint32_t *bad;                   /* [n_chunk] */
    uint64_t *n_saturated; /* the nb_record_count_saturated of records with fixed scales is added */
    unsigned char *plane;  /* block b's: plane + b * plane_block_bytes + plane_layer_off; or NULL */
    size_t plane_block_bytes, plane_layer_off;
} nb_cuda_kv_append_args;

/* Decodes pages [page0, page0 + n_page) of one chunk's sequence; with own, the chunk's own rows instead (page0 then
 * counts from its first page; rows not yet written give zeros).  Result: for each segment, rows [n_page * 64].  Decoded
 * values are exact in f.  From 2^-126 on they are exact in hi for all records except int4, f32 and fixed scales, whose
 * values are hi + lo up to 2^-17. */
typedef struct nb_cuda_kv_decode_args {
    nb_cuda_cache cache;
    size_t chunk, page0, n_page;
    bool own;
    nb_cuda_rows y[NB_MAX_SEG]; /* strides at least the segment's values; pointers may be NULL */
} nb_cuda_kv_decode_args;

/* ---- attention ---- */

/* A step's queries attend to complete pages in units, then to the page that they are in (rows of own or tail, up to
 * themselves).  A unit is a fixed range of pages whose attention is one partial state per (query, head); a super is a
 * fixed group of units combined in order (nb_cuda_units.h).  The state of the own page is the last.  A result is the
 * states combined in order of position, those of a super first, so it does not depend on which block computed them.
 *
 * A work item is n_q consecutive queries of one chunk in one page, and their units [unit0, unit0 + n_unit).  n_unit > 1
 * only from the start of a super and within it.  The computing block then combines the states, by the same arithmetic,
 * into the state of unit0; the others become empty (m = -inf, l = 0, o not read).  Items are sorted, longest first. */
typedef struct nb_cuda_item {
    uint32_t chunk, row0, n_q;      /* row0: in the step */
    uint32_t unit0, n_unit, n_page; /* n_page: in total, from the first page of unit0 on */
    uint32_t part0; /* the state of (row0 + i, unit0 + k) is part_first[row0 + i] + k */
    uint32_t reserved;
} nb_cuda_item;

enum { NB_CUDA_QUERY_MAX = 4 }; /* maximum queries of an item */

/* Tokens of complete pages whose latents a query reads refined (Thrift mode, model/thrift.h).  Row r's are the first
 * n[r] of tok + r * tok_stride, ascending positions; those of its page p are entries
 * first[r * first_stride + p] up to that of p + 1.  plane: as in nb_cuda_kv_append_args, host memory. */
typedef struct nb_cuda_pick {
    uint32_t *n, *first, *tok; /* n NULL: no refinement */
    const unsigned char *plane;
    size_t first_stride, tok_stride, plane_block_bytes, plane_layer_off;
} nb_cuda_pick;

/* The form of mla_tail: one for few heads, one for many.  Their bits differ, so RULE decides by n_head and record, and
 * a model always has the same form.  An f32 record has only one form. */
typedef enum nb_cuda_tail { NB_CUDA_TAIL_RULE, NB_CUDA_TAIL_FEW, NB_CUDA_TAIL_MANY } nb_cuda_tail;

/* Absorbed MLA.  State: m = max of s * log2(e), l = sum of 2^(s log2(e) - m), o = sum of that times the latent (not
 * normalised).  Relative error of a result (norm over the head's values, against the contract of attn_pages.h in
 * double): 2e-3; each row of the table states its own.
 *   row.fn:       states of the complete pages, from items
 *   mla_tail:     the last state of every query.  beside: it comes right after row.fn of the same layer, and both may
 *                 run at once.  (row.fn lets the next kernel start only when the kernels before it have ended.)
 *   mla_combine:  y[row][h] = the states combined in order, o / l; y.f, y.hi, y.lo as wanted
 * A query without complete pages has only its last state. */
typedef struct nb_cuda_mla_args {
    nb_cuda_cache cache;
    const float *q; /* [rows][n_head][q_head]: lora absorbed values, then d_rope rotated ones */
    nb_cuda_rows y; /* [rows][n_head * lora], stride as it says */
    float *part_o, *part_m, *part_l; /* [n_part][n_head][lora], [n_part][n_head] x2 */
    const uint32_t *part_first;      /* [n_row + 1]: first state of each row; n_row rows */
    const uint32_t *row_chunk;       /* [n_row]; padding: UINT32_MAX */
    const nb_cuda_item *item;        /* [*n_item] */
    const uint32_t *n_item;
    void *scratch; /* row.scratch(...) bytes: the queries in the row's own form */
    size_t n_row, n_head, lora, d_rope, q_stride, q_head;
    size_t n_whole;      /* n_head are a part of so many heads, whose bits they have; 0: n_head */
    size_t max_item;     /* maximum of *n_item in this graph; decides the grid */
    nb_cuda_units units; /* the row's */
    float scale;
    bool fresh;        /* the operation before wrote items, chunks or pages: nothing of them is read ahead of its end */
    bool beside;       /* mla_tail only */
    nb_cuda_tail tail; /* mla_tail only */
    nb_cuda_pick pick; /* only rows with `refines`; items of queries with n > 0 have n_q 1 */
} nb_cuda_mla_args;

typedef struct nb_cuda_mla_row {
    const char *name; /* "wgmma_few", "wgmma_many", "mma" */
    int cc;
    nb_cuda_units units;
    float error;  /* relative error, see above */
    bool refines; /* reads args.pick: tokens refined in Thrift mode */
    bool
        slices; /* with n_whole a head has the same bits beside any number of heads: they may be split over devices */
    bool (*can)(const nb_record *r, size_t n_head);
    size_t (*scratch)(const nb_record *r, size_t n_head, size_t n_row);
    void (*fn)(nb_cuda *g, const nb_cuda_mla_args *a);
} nb_cuda_mla_row;

/* Thrift mode's choice of tokens (NB_THRIFT_TOKEN in model/thrift.h), for rows [row0, row0 + n_row) of the step that
 * have on[r] != 0 and a chunk; all other rows get n = 0.  Scores are those of the row "mma".
 *   score[h][t]  scale * q . latent of every token that the query sees, by position
 *   lse[h]       log of the sum of exp(score) over these;   best[t] = max over heads of score - lse, for complete pages
 *   pick         t with best[t] > log_tau, at most ceil(fraction * n) of the n tokens of complete pages:
 *                the largest, ties to the lower position
 * count: 0 tokens scored, 1 refined, 2 above the threshold but not refined, 3 bytes of pages read.
 * Scratch: score [n_row][n_head][stride], best [n_row][stride], lse [n_row][n_head]. */
typedef struct nb_cuda_thrift_args {
    nb_cuda_cache cache;
    const float *q;            /* row 0 of the step */
    const uint32_t *row_chunk; /* as in nb_cuda_mla_args */
    const unsigned char *on;   /* indexed from row 0 on */
    nb_cuda_pick pick;         /* its plane is not read */
    float *score, *best, *lse;
    uint64_t *count; /* [4]; results are added */
    size_t row0, n_row, n_head, lora, d_rope, q_stride, q_head;
    size_t stride; /* positions of the longest sequence, rounded up to 64 */
    double log_tau, fraction;
    float scale;
} nb_cuda_thrift_args;

/* All of GQA in one operation, directly over the pages of any record: complete pages decoded, own rows up to the query
 * itself.  The order of summation follows the position and is a constant of the operation. */
typedef struct nb_cuda_gqa_args {
    nb_cuda_cache cache;
    const float *q;                  /* [rows][q_stride]: heads of head_dim */
    nb_cuda_rows y;                  /* [rows][n_head * head_dim] */
    float *part_o, *part_m, *part_l; /* as in MLA, [n_part][n_head][head_dim] */
    const uint32_t *part_first, *row_chunk, *n_item;
    /* item: those of NB_CUDA_GQA_UNITS, n_unit 1; own pages have no items, they are processed by row */
    const nb_cuda_item *item;
    size_t n_row, n_head, n_kv_head, head_dim, q_stride, max_item;
    size_t n_whole, head0; /* the heads are [head0, head0 + n_head) of n_whole, whole groups or a part of one; n_whole 0: all */
    float scale;
} nb_cuda_gqa_args;
/* 4,096 tokens of one sequence are 16 units, times the KV heads. */
#define NB_CUDA_GQA_UNIT_LIST { 16, 4, 8, 64, 1, UINT32_MAX, 2 }
#define NB_CUDA_GQA_UNITS ((nb_cuda_units)NB_CUDA_GQA_UNIT_LIST)

/* Expanded MLA: the queries of one chunk, all heads, against the heads' keys and values rebuilt from latents (BF16,
 * single).  Pages [page0, page0 + n_page) are given decoded, as dec and rope; a query in page p uses those before p.
 * With `last` it then uses its own page's rows (own, own_rope) up to itself.  Called for ascending page0; the running
 * state of (query, head) is kept in m, l, o between calls (first: page0 == 0), which changes no bit; the last call
 * writes y = o / l.
 * d_v <= 256, d_nope + d_rope <= 320.
 * Scores are computed from BF16 queries and keys, weights are BF16; bound: attn_prefill.h, eps 2^-8. */
typedef struct nb_cuda_prefill_args {
    const float *q;       /* [rows][q_stride]: heads of d_nope + d_rope, of the step */
    const uint16_t *dec;  /* [n_page * 64][n_head][d_nope + d_v]; stride dec_stride */
    const uint16_t *rope; /* [n_page * 64][rope_stride] d_rope values */
    const uint16_t *own;  /* the chunk's own pages from its first on, as dec */
    const uint16_t *own_rope;
    float *m, *l, *o;         /* [n_tok][n_head], x2; [n_tok][n_head * d_v] */
    nb_cuda_rows y;           /* [rows][n_head * d_v] of the step */
    size_t row0, n_tok, pos0; /* the chunk's */
    size_t page0, n_page;
    size_t n_head, d_nope, d_rope, d_v, q_stride, dec_stride, rope_stride;
    bool first, last;
    float scale;
} nb_cuda_prefill_args;

/* ---- between ranks ---- */

enum { NB_CUDA_MAX_RANK = 8, NB_CUDA_MAX_TAKE = 40, NB_CUDA_WHAT_BITS = 24 };

/* A rank's own, in the memory of its device, at first zero. */
typedef struct nb_cuda_meeting {
    uint64_t arrived[NB_CUDA_MAX_RANK]; /* written by rank k: number of its last exchange << WHAT_BITS | what */
    uint64_t number;                    /* of this rank's last exchange */
    uint64_t failed; /* 0, or the first failure: nb_cuda_failure << 32 | rank that it is about; for good */
    uint32_t ticket, reserved; /* blocks that are done */
} nb_cuda_meeting;

typedef enum nb_cuda_failure {
    NB_CUDA_LOST = 1, /* no sign of the rank within the limit */
    NB_CUDA_OTHER,    /* the rank does something else */
    NB_CUDA_ALARM     /* the host said stop */
} nb_cuda_failure;

/* Rows that a rank takes from another one's memory, which its device can read.  Sizes in bytes, even.
 * With row: rows row[0..n_row) of both, but only those in [*begin, *end). */
typedef struct nb_cuda_take {
    const void *from;
    void *to;
    size_t n_row, row_bytes, from_stride, to_stride;
    const uint32_t *begin, *end; /* only rows [*begin, *end); NULL: all n_row */
    const uint32_t *row;         /* [n_row] or NULL */
} nb_cuda_take;

/* Every rank calls this in the same order with the same `what` (< 2^WHAT_BITS; exclusive or with *salt, if given: what a
 * graph cannot know).  It says that it has come, waits until
 * all others have, then copies its takes.  What the work before the call has written on any rank is seen.
 *   A `from` must stay as it is until its rank has been through one more exchange: then everybody has copied.
 * A rank that is late for alarm[1] milliseconds, or that has another `what`, is noted in meeting[rank]->failed; then
 * nothing is copied, and all later exchanges of this rank end at once.  alarm (memory of the host): alarm[0] not 0 ends
 * the waiting.
 * No block waits for another one of its own grid, so any grid fits any device, and blocks may run one after the other. */
typedef struct nb_cuda_exchange_args {
    nb_cuda_meeting *meeting[NB_CUDA_MAX_RANK]; /* of every rank */
    const volatile uint32_t *alarm;
    size_t rank, n_rank, n_take;
    uint32_t what;
    const uint32_t *salt; /* < 2^WHAT_BITS; or NULL */
    nb_cuda_take take[NB_CUDA_MAX_TAKE];
} nb_cuda_exchange_args;

/* ---- sampling ---- */

typedef struct nb_cuda_sample_row {   /* sample.h, steps 6 to 10; without penalties and biases */
    double temperature, top_p, min_p; /* as given: the weights' bits depend on them */
    uint32_t top_k;
    double u; /* nb_rng_unit(seed, number of tokens generated) */
} nb_cuda_sample_row;

/* id[i] of row i; UINT32_MAX if a logit is NaN or +inf, or all are -inf. */
typedef struct nb_cuda_sample_args {
    const float *logits; /* [n_row][stride] */
    const nb_cuda_sample_row *row;
    uint32_t *id;
    void *scratch; /* n_row * NB_CUDA_SAMPLE_SCRATCH(n_vocab) bytes */
    size_t n_row, n_vocab, stride;
} nb_cuda_sample_args;
#define NB_CUDA_SAMPLE_SCRATCH(n_vocab) (((size_t)(n_vocab) + 255) / 256 * 256 * 8 + 4096)

#endif
