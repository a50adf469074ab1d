/* kda_columns.h - kda in blocks of VEC vectors of columns, for AVX2 and AVX-512: see kda_c.c.  The including file
 * defines LANE, VEC, v_float, v_mask, V(op) (an intrinsic), V_LOAD_SOME, V_STORE_SOME (the first columns of a vector),
 * V_MASK(n) and NAME: included once by each of kda_avx2.c and kda_avx512.c.  Behind the last whole vector columns are masked: nothing beyond d_v is read or written. */
#include "kernel/kda/kda.h"

/* In one order, whatever the columns. */
static float dot(const float *x, const float *y, size_t n)
{
    v_float s = V(setzero_ps)();
    float lane[LANE], sum = 0;
    size_t i = 0;
    for (; i + LANE <= n; i += LANE) s = V(fmadd_ps)(V(loadu_ps)(x + i), V(loadu_ps)(y + i), s);
    V(storeu_ps)(lane, s);
    for (size_t j = 0; j < LANE; j++) sum += lane[j];
    for (; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static inline v_float load(const float *p, bool whole, v_mask mask)
{
    return whole ? V(loadu_ps)(p) : V_LOAD_SOME(p, mask);
}

static inline void store(float *p, bool whole, v_mask mask, v_float x)
{
    if (whole)
        V(storeu_ps)(p, x);
    else
        V_STORE_SOME(p, mask, x);
}

/* n_vec vectors of columns from j0 on; the last one is not whole where `whole` is false. */
static inline __attribute__((always_inline)) void columns(const nb_kda_args *a, size_t j0,
                                                          size_t n_vec, bool whole, v_mask mask)
{
    v_float e[VEC];
    const float *k_before = NULL;
    for (size_t c = 0; c < n_vec; c++) e[c] = V(setzero_ps)();
    for (size_t t = 0; t < a->n_tok; t++) {
        const float *q = a->q + t * a->qk_stride, *k = a->k + t * a->qk_stride;
        const float *decay = a->a + t * a->a_stride, *v = a->v + t * a->v_stride + j0;
        v_float held[VEC], y[VEC];
        for (size_t c = 0; c < n_vec; c++) held[c] = y[c] = V(setzero_ps)();
        for (size_t i = 0; i < a->d_k; i++) {
            float *s = a->s + i * a->s_stride + j0;
            const v_float ki = V(set1_ps)(k[i]), qi = V(set1_ps)(q[i]);
            const v_float ai = V(set1_ps)(decay[i]);
            const v_float kb = k_before ? V(set1_ps)(k_before[i]) : V(setzero_ps)();
            for (size_t c = 0; c < n_vec; c++) {
                const bool all = whole || c + 1 < n_vec;
                v_float x = load(s + c * LANE, all, mask);
                if (k_before) x = V(fmadd_ps)(kb, e[c], x);
                x = V(mul_ps)(x, ai);
                store(s + c * LANE, all, mask, x);
                held[c] = V(fmadd_ps)(ki, x, held[c]);
                y[c] = V(fmadd_ps)(qi, x, y[c]);
            }
        }
        const v_float beta = V(set1_ps)(a->beta[t * a->beta_stride]);
        const v_float qk = V(set1_ps)(dot(q, k, a->d_k));
        for (size_t c = 0; c < n_vec; c++) {
            const bool all = whole || c + 1 < n_vec;
            e[c] = V(mul_ps)(beta, V(sub_ps)(load(v + c * LANE, all, mask), held[c]));
            store(a->y + t * a->y_stride + j0 + c * LANE, all, mask, V(fmadd_ps)(qk, e[c], y[c]));
        }
        k_before = k;
    }
    for (size_t i = 0; k_before && i < a->d_k; i++) {
        float *s = a->s + i * a->s_stride + j0;
        const v_float kb = V(set1_ps)(k_before[i]);
        for (size_t c = 0; c < n_vec; c++) {
            const bool all = whole || c + 1 < n_vec;
            store(s + c * LANE, all, mask, V(fmadd_ps)(kb, e[c], load(s + c * LANE, all, mask)));
        }
    }
}

void NAME(const nb_kda_args *a)
{
    const v_mask mask = V_MASK(a->d_v % LANE);
    size_t j = 0;
    for (; j + VEC * LANE <= a->d_v; j += VEC * LANE) columns(a, j, VEC, true, mask);
    for (; j + LANE <= a->d_v; j += LANE) columns(a, j, 1, true, mask);
    if (j < a->d_v) columns(a, j, 1, false, mask);
}
