/* attn_measure.h - what ways to keep the cache do to the attention of a layer.
 *
 * Truth: softmax and sums in double over the captured values, unrounded.  Every form
 * (attn_form.h) is computed in the same way from what it reads back.  Per query and head:
 *   rel_l2   |o^ - o| / |o|, o behind w_uv where there is one      (0 / 0 is 0)
 *   one_cos  1 - cos(o^, o)
 *   kl       sum p ln(p / p^), in nats; max_dp  max |p^ - p|
 * The bf16 form is the floor: the rounding that every other form has too. */
#ifndef NB_QUALITY_ATTN_MEASURE_H
#define NB_QUALITY_ATTN_MEASURE_H
#include "quality/attn_form.h"
#include "quality/stats.h"

typedef struct nb_attn_error {
    double rel_l2, one_cos, kl, max_dp;
} nb_attn_error;

/* One query under one way, all heads.  s and e: rows of ld. */
typedef struct nb_attn_pass {
    size_t n, ld;      /* tokens attended: position + 1 */
    double *s;         /* scores */
    double *e;         /* exp(s - max[h]) */
    double *max, *sum; /* [n_head]; the log-sum-exp is max + ln sum */
    double *u;         /* [n_head][sum_width] sum of e * value, in the form's domain */
    double *o;         /* [n_head][out_width] */
    float *q;          /* [n_head][d_q] in the form's domain */
    size_t whole;      /* tokens read from rows, the others from the tail (truth: all) */
} nb_attn_pass;

/* Called for every query and form, form by form; both passes are borrowed. */
typedef void nb_attn_pass_fn(void *ctx, size_t query, size_t form, const nb_attn_pass *truth,
                             const nb_attn_pass *pass);

/* error: [n_form][n_q][n_head].  on_pass may be NULL.  Memory from the arena; 3 rows of n_tok per
 * head and pass.  NB_ERR_NONFINITE when a score is not finite. */
nb_status nb_attn_measure(const nb_capture_layer *l, nb_attn_form *form, size_t n_form,
                          nb_attn_error *error, nb_attn_pass_fn *on_pass, void *ctx,
                          nb_arena *arena, nb_error *err);

/* rel_l2 and one_cos of a weighted sum u / sum (in the form's domain; changed) of head h. */
void nb_attn_compare(const nb_attn_form *f, size_t h, const nb_attn_pass *truth, double *u,
                     double sum, double *out, nb_attn_error *error);

typedef struct nb_attn_summary {
    nb_summary rel_l2, one_cos, kl, max_dp;
} nb_attn_summary;
/* Of error[n], every `step`-th from `first` on; scratch [n]. */
void nb_attn_summarise(const nb_attn_error *error, size_t n, size_t first, size_t step,
                       double *scratch, nb_attn_summary *out);

#endif
