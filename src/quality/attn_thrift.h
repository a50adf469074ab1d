/* attn_thrift.h - selections of Thrift mode, tried offline on the attention of a layer.
 *
 * A base form (attn_form.h) reads all tokens; a selection has some of them read with more bits
 * (rows of nb_attn_form_refined).  Candidates are the tokens of whole pages: the query's own page
 * is in BF16 anyway.
 *
 *   token       tokens whose probability, from the base's own scores, is over tau for any head;
 *               the likeliest first, at most the fraction
 *   token-top   the same without tau: the likeliest, exactly the fraction
 *   block-mean  blocks of 64 by q . mean of their keys (rounded to FP16; no softmax scale), the
 *               greatest over the heads; the paper's
 *   quest       the same by the largest q . k that the channels' minima and maxima allow
 *   local       the last blocks
 *   block-prob  blocks by the greatest of the heads' probability in them, from the base's scores
 *   oracle      the same from the true scores;  oracle-token: token-top from the true ones
 * A block method takes max(1, min(N, round(fraction N))) of N blocks, halves to even: the paper's
 * decode formula.  "block-mean-causal" takes the count of its causal prefill formula, which the
 * paper's generate() keeps for decoding: k^2 - (2N+1)k + fN(N+1) = 0.
 *
 * MLA: what one head selects is refined for all (the latent is shared), so the selection is the
 * union over heads; GQA: over the heads of a KV head.  With ":head" every head selects for itself.
 * Source: specifications of nibble's accuracy work, 1.2, 1.3, 1.8 (arXiv 2605.23081). */
#ifndef NB_QUALITY_ATTN_THRIFT_H
#define NB_QUALITY_ATTN_THRIFT_H
#include "quality/attn_measure.h"

typedef enum nb_thrift_kind {
    NB_SEL_TOKEN,
    NB_SEL_TOKEN_TOP,
    NB_SEL_BLOCK_MEAN,
    NB_SEL_BLOCK_MEAN_CAUSAL,
    NB_SEL_QUEST,
    NB_SEL_LOCAL,
    NB_SEL_BLOCK_PROB,
    NB_SEL_ORACLE,
    NB_SEL_ORACLE_TOKEN
} nb_thrift_kind;

typedef struct nb_thrift_method {
    nb_thrift_kind kind;
    bool per_head;
    char name[32]; /* as written */
} nb_thrift_method;

enum { NB_THRIFT_MAX_METHODS = 24, NB_THRIFT_MAX_FRACTIONS = 32 };
/* One word; NB_ERR_ARG without a message when it is none. */
nb_status nb_thrift_method_parse(const char *word, nb_thrift_method *out);
/* "0.001,0.05,...": ascending, each once; numbers over 0 up to 1. */
nb_status nb_thrift_fractions(const char *list, double *out, size_t *n, nb_error *err);
/* How many of n blocks; 0 of none. */
size_t nb_thrift_top_k(size_t n, double fraction, bool causal);

/* What a selection came to for one query. */
typedef struct nb_thrift_cost {
    double refined;      /* share of the attended tokens */
    double base_bytes;   /* read from the record, with the open page */
    double refine_bytes; /* read beside it, each row once */
} nb_thrift_cost;

typedef struct nb_thrift_run {
    const nb_attn_form *base;
    const float *rows; /* refined */
    double row_bytes, tau;
    const nb_thrift_method *method;
    size_t n_method;
    const double *fraction;
    size_t n_fraction;
    nb_attn_error *error; /* [method][fraction][query][head]: rel_l2, one_cos, kl; max_dp is 0 */
    nb_thrift_cost *cost; /* [method][fraction][query] */
    struct nb_thrift_scratch *scratch;
} nb_thrift_run;

/* Tables and room for results in the arena; base, rows, row_bytes, tau, method and fraction are
 * set by the caller, and borrowed. */
nb_status nb_thrift_run_init(nb_thrift_run *r, nb_arena *arena, nb_error *err);
/* All methods and fractions for one query of the base's pass: from an nb_attn_pass_fn.  base_error:
 * [n_head], the base's own errors. */
void nb_thrift_run_query(nb_thrift_run *r, size_t query, const nb_attn_pass *truth,
                         const nb_attn_pass *base, const nb_attn_error *base_error);

#endif
