/* attn_run.h - all of `nibble eval attn` that concerns one layer: forms, selections of Thrift mode
 * on one of them, and the arithmetic of the paper. */
#ifndef NB_QUALITY_ATTN_RUN_H
#define NB_QUALITY_ATTN_RUN_H
#include "quality/attn_paper.h"
#include "quality/attn_thrift.h"

enum { NB_ATTN_REFINES = 3, NB_ATTN_PAPER_QUERIES = 8 };

typedef struct nb_attn_plan {
    const nb_attn_form_opts *form;  /* [n_form], of this layer */
    size_t n_form, base;            /* base: what selections refine */
    const nb_thrift_method *method; /* [n_method] */
    const nb_attn_refine *refine;   /* [n_method] */
    size_t n_method;
    const double *fraction;
    size_t n_fraction;
    double tau;
    bool paper;            /* at most NB_ATTN_PAPER_QUERIES queries, spread evenly */
    double paper_fraction; /* of blocks */
} nb_attn_plan;

/* Of the paper's arithmetic, without and with the refined blocks. */
typedef struct nb_attn_paper_result {
    size_t n;                                                       /* queries * heads */
    nb_attn_error *error[NB_PAPER_MODES], *refined[NB_PAPER_MODES]; /* [n]; max_dp is 0 */
    uint32_t *query;                                                /* [n] */
    double share; /* of the tokens that were refined */
} nb_attn_paper_result;

/* In the arena of results. */
typedef struct nb_attn_layer_result {
    size_t layer, n_layer, n_q, n_head, n_tok, n_values;
    nb_attn_error *error;  /* [form][query][head] */
    double *bytes_per_tok; /* [form] */
    nb_attn_error *thrift; /* [method][fraction][query][head] */
    nb_thrift_cost *cost;  /* [method][fraction][query] */
    nb_attn_paper_result paper;
} nb_attn_layer_result;

/* work: scratch, may be reset afterwards.  The line of an error names the form. */
nb_status nb_attn_layer_run(const nb_attn_plan *plan, const nb_capture_layer *l, nb_arena *results,
                            nb_arena *work, nb_attn_layer_result *out, nb_error *err);

#endif
