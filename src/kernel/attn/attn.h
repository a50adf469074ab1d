/* attn.h - attention of queries over one tile of keys, with running state.
 *
 * One kernel serves every form:
 *   absorbed MLA  k1 = latent (shared by all heads), k2 = rope key, v = latent
 *   expanded MLA  k1 = W_UK c per head,              k2 = rope key, v = W_UV c per head
 *   GQA           k1 = K per KV head,                d2 = 0,        v = V per KV head
 *
 *   s(i,h,t) = scale * (q[i][h][0..d1) . k1[t][g] + q[i][h][d1..d1+d2) . k2[t]),  g = h / group
 *   state (m, l, o) of (i, h):  m' = max(m, max_t s);  c = exp(m - m');
 *   l' = l c + sum_t exp(s_t - m');  o' = o c + sum_t exp(s_t - m') v[t][g]
 *
 * over the tokens t < n_vis(i) of the tile, n_vis(i) = min(n_kv, vis0 + i * vis_step).
 * A state starts as m = -INFINITY, l = 0, o = 0 (o need not be initialised when
 * m is -INFINITY: it is then written, not read).  n_vis(i) = 0 leaves it alone.
 * attn_merge joins the states of two disjoint token ranges; attn_finish divides.
 * Order of summation is fixed per (i, h): results do not depend on n_q, on the
 * range of heads or on threads. Source: Dao et al. 2022 (arXiv 2205.14135). */
#ifndef NB_KERNEL_ATTN_H
#define NB_KERNEL_ATTN_H
#include "kernel/kernel.h"

enum { NB_ATTN_TILE = 64 };

typedef struct nb_attn_args {
    float *o, *m, *l;   /* o: [n_q][o_q_stride], head h at h * d_v; m, l: [n_q][ml_q_stride], head h at h */
    const float *q;     /* [n_q][q_q_stride], head h at h * (d1 + d2)       */
    const float *k1;    /* [n_kv][k1_stride], KV head g at g * k1_head      */
    const float *k2;    /* [n_kv][k2_stride]; unused when d2 == 0           */
    const float *v;     /* [n_kv][v_stride], KV head g at g * v_head        */
    size_t n_q, head_begin, head_end, group; /* heads to compute; query heads per KV head */
    size_t n_kv;                             /* tokens in the tile, <= NB_ATTN_TILE       */
    size_t vis0, vis_step;                   /* see n_vis above                           */
    size_t d1, d2, d_v;
    size_t q_q_stride, o_q_stride, ml_q_stride;
    size_t k1_stride, k1_head, k2_stride, v_stride, v_head; /* elements */
    float scale;
} nb_attn_args;

/* After attn_finish:
 *   |y - y64| <= 2^-24 * (96 + 14 n_tile + ((d1 + d2)/4 + 20) A) * max_t |v_t|
 * with A = max_t scale * sum of |q_i k_i|, n_tile the tiles that were joined and y64
 * the exact softmax-weighted mean.  In units of 2^-24: a score is off by
 * ((d1 + d2)/8 + 6) A (a lane's chain, the joining of 8 lanes, a product without
 * FMA, the scale), its distance to the maximum by 2 A; the exponential makes a
 * relative error of it that enters numerator and denominator, so it counts twice,
 * as do the 4 of exp itself.  The chain over a tile's tokens adds 64, the sum of
 * weights 11, the division 1.  Each tile rescales once: 4 of exp twice, products
 * and sums; the differences m' - m telescope, they add 2 A twice in all. */
typedef void nb_attn_fn(const nb_attn_args *a);
nb_attn_fn nb_attn_c, nb_attn_avx2, nb_attn_avx512, nb_attn_neon;

/* One-tile-or-many reference in double over all n_kv (any number) tokens: writes
 * the normalised output y64 [n_q][n_head][d_v] of heads head_begin..head_end and
 * the bound's A and max |v| per (i, h) ([n_q][n_head] each). */
void nb_attn_ref(const nb_attn_args *a, double *y64, double *score_abs, double *v_max);

/* (m, l, o) of n_head heads joined with another range's state, into the first.
 * Plain scalar code, the same on every instruction set. */
void nb_attn_merge(float *o, float *m, float *l, const float *o2, const float *m2,
                   const float *l2, size_t n_head, size_t d_v);
/* y[h][i] = o[h][i] / l[h]  (y == o allowed); heads with l == 0 give 0. */
void nb_attn_finish(float *y, const float *o, const float *l, size_t n_head, size_t d_v);

typedef struct nb_attn_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_attn_fn *fn;
} nb_attn_variant;
extern const nb_attn_variant nb_attn_variants[];
#endif
