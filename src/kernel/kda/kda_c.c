/* kda_c.c - portable kda, in blocks of columns.
 *
 * The state is read and written once per token.  With S the state after the decay and before the update, the output is
 * sum_i q_i S_ij + (sum_i q_i k_i) e_j, so that both sums are formed in one go over it; the update itself waits for the
 * next go, which does it before its decay.  That the last update of a call is done at its end changes no bit. */
#include "kernel/kda/kda.h"

enum { COLS = 16 };

static float dot(const float *x, const float *y, size_t n)
{
    float s = 0;
    for (size_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

/* n <= COLS columns from j0 on. */
static void columns(const nb_kda_args *a, size_t j0, size_t n)
{
    float e[COLS] = { 0 };
    const float *k_before = NULL;
    for (size_t t = 0; t < a->n_tok; t++) {
        const float *q = a->q + t * a->qk_stride, *k = a->k + t * a->qk_stride;
        const float *decay = a->a + t * a->a_stride, *v = a->v + t * a->v_stride + j0;
        float held[COLS] = { 0 }, y[COLS] = { 0 };
        for (size_t i = 0; i < a->d_k; i++) {
            float *s = a->s + i * a->s_stride + j0;
            for (size_t j = 0; j < n; j++) {
                if (k_before) s[j] += k_before[i] * e[j];
                s[j] *= decay[i];
                held[j] += k[i] * s[j];
                y[j] += q[i] * s[j];
            }
        }
        const float beta = a->beta[t * a->beta_stride], qk = dot(q, k, a->d_k);
        for (size_t j = 0; j < n; j++) {
            e[j] = beta * (v[j] - held[j]);
            a->y[t * a->y_stride + j0 + j] = y[j] + qk * e[j];
        }
        k_before = k;
    }
    for (size_t i = 0; k_before && i < a->d_k; i++)
        for (size_t j = 0; j < n; j++) a->s[i * a->s_stride + j0 + j] += k_before[i] * e[j];
}

void nb_kda_c(const nb_kda_args *a)
{
    for (size_t j = 0; j < a->d_v; j += COLS) columns(a, j, a->d_v - j < COLS ? a->d_v - j : COLS);
}
