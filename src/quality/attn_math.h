/* attn_math.h - the arithmetic of measured attention: scores, softmax and weighted sums of one
 * query over rows of cached values.
 * Everything is double, in one order.
 */
#ifndef NB_QUALITY_ATTN_MATH_H
#define NB_QUALITY_ATTN_MATH_H
#include "nibble/measure.h"

double nb_attn_dot(const float *a, const float *b, size_t n);

/* Where head h finds its key and its value in a row of n_values. */
typedef struct nb_attn_head {
    size_t key, d_key, value, d_value;
} nb_attn_head;
nb_attn_head nb_attn_head_of(const nb_capture_layer *l, size_t h);
/* Width of what a weighted sum gives before w_uv: MLA dim[0], GQA the head. */
size_t nb_attn_sum_width(const nb_capture_layer *l);
/* Width of a head's output: d_v where there is a w_uv, else the sum's. */
size_t nb_attn_out_width(const nb_capture_layer *l);

/* s[h][ld]: s[h * ld + t] = scale q_h . key of row t, t < n.  q: [n_head][d_q]. */
void nb_attn_scores(const nb_capture_layer *l, const float *q, const float *rows, size_t n,
                    double *s, size_t ld);
/* acc[h][sum_width] += w[h * ld + t] * value of row t. */
void nb_attn_add(const nb_capture_layer *l, const double *w, size_t ld, const float *rows, size_t n,
                 double *acc);
/* acc[d] += w * v[d] */
void nb_attn_axpy(double w, const float *v, size_t d, double *acc);

/* e[t] = exp(s[t] - max) in place; the maximum and the sum. */
void nb_attn_exp(double *s, size_t n, double *max, double *sum);

/* out[out_width] = w_uv_h u, or u where there is none. */
void nb_attn_project(const nb_capture_layer *l, size_t h, const double *u, double *out);

#endif
