/* attn_rows.h - the outer loops of attn, for the variants with vectors: all (query, head) pairs that read the
 * same KV head form one list of rows (the heads of absorbed MLA, the queries of expanded MLA, both for GQA),
 * and a variant computes batches of rows.  Rows that see no token are left out. */
#ifndef NB_KERNEL_ATTN_ROWS_H
#define NB_KERNEL_ATTN_ROWS_H
#include "kernel/attn/attn.h"

enum { NB_ATTN_ROWS = 16 };

typedef struct nb_attn_rows {
    _Alignas(64) float p[NB_ATTN_ROWS][NB_ATTN_TILE]; /* scores, then weights        */
    const float *q[NB_ATTN_ROWS];
    float *o[NB_ATTN_ROWS], *m[NB_ATTN_ROWS], *l[NB_ATTN_ROWS];
    float keep[NB_ATTN_ROWS]; /* factor of the old state; 0: none */
    size_t n_vis[NB_ATTN_ROWS], n_row;
} nb_attn_rows;

/* The states of a batch's rows, which read KV head g. */
typedef void nb_attn_rows_fn(nb_attn_rows *b, const nb_attn_args *a, size_t g);

/* Tokens that one, and that each, of the rows [r, r + n) sees. */
static inline size_t nb_attn_rows_most(const nb_attn_rows *b, size_t r, size_t n)
{
    size_t most = b->n_vis[r];
    for (size_t i = 1; i < n; i++)
        if (b->n_vis[r + i] > most) most = b->n_vis[r + i];
    return most;
}
static inline size_t nb_attn_rows_least(const nb_attn_rows *b, size_t r, size_t n)
{
    size_t least = b->n_vis[r];
    for (size_t i = 1; i < n; i++)
        if (b->n_vis[r + i] < least) least = b->n_vis[r + i];
    return least;
}

static inline void nb_attn_rows_add(nb_attn_rows *b, const nb_attn_args *a, size_t i, size_t h,
                                    size_t n_vis)
{
    const size_t r = b->n_row++;
    b->q[r] = a->q + i * a->q_q_stride + h * (a->d1 + a->d2);
    b->o[r] = a->o + i * a->o_q_stride + h * a->d_v;
    b->m[r] = a->m + i * a->ml_q_stride + h;
    b->l[r] = a->l + i * a->ml_q_stride + h;
    b->n_vis[r] = n_vis;
}

static inline void nb_attn_rows_run(const nb_attn_args *a, nb_attn_rows_fn *run)
{
    nb_attn_rows b;
    for (size_t h0 = a->head_begin, h1; h0 < a->head_end; h0 = h1) {
        const size_t g = h0 / a->group;
        h1 = (g + 1) * a->group < a->head_end ? (g + 1) * a->group : a->head_end;
        b.n_row = 0;
        for (size_t i = 0; i < a->n_q; i++) {
            const size_t vis = a->vis0 + i * a->vis_step, n = vis < a->n_kv ? vis : a->n_kv;
            for (size_t h = h0; n != 0 && h < h1; h++) {
                nb_attn_rows_add(&b, a, i, h, n);
                if (b.n_row < NB_ATTN_ROWS) continue;
                run(&b, a, g);
                b.n_row = 0;
            }
        }
        if (b.n_row) run(&b, a, g);
    }
}

#endif
