/* attn_prefill_c.c - portable variant: packed data are dense copies, the work is attn's, a tile at
 * a time.
 *
 *   queries  [n_q][d1 + d2]
 *   a tile   keys [64][d1 + d2], then values [64][d_v] */
#include "kernel/attn_prefill/attn_prefill.h"

#include <string.h>

#include "kernel/attn/attn.h"

enum { TILE = NB_PREFILL_TILE };

static size_t bytes(size_t n_float)
{
    return (n_float * sizeof(float) + 63) / 64 * 64;
}

size_t nb_attn_prefill_q_bytes_c(const nb_attn_prefill_dims *d)
{
    return bytes(TILE * (d->d1 + d->d2));
}

size_t nb_attn_prefill_kv_bytes_c(const nb_attn_prefill_dims *d)
{
    return bytes(TILE * (d->d1 + d->d2 + d->d_v));
}

size_t nb_attn_prefill_scratch_c(const nb_attn_prefill_dims *d)
{
    (void)d;
    return 0;
}

void nb_attn_prefill_pack_q_c(const nb_attn_prefill_dims *d, void *dst, const float *q,
                              size_t q_stride, size_t n_q)
{
    const size_t n = d->d1 + d->d2;
    float *out = dst;
    for (size_t i = 0; i < n_q; i++) memcpy(out + i * n, q + i * q_stride, n * sizeof *q);
}

void nb_attn_prefill_pack_kv_c(const nb_attn_prefill_dims *d, void *dst,
                               const nb_attn_prefill_tile *t)
{
    const size_t n = d->d1 + d->d2;
    float *k = dst, *v = k + TILE * n;
    memset(dst, 0, nb_attn_prefill_kv_bytes_c(d));
    for (size_t i = 0; i < t->n_tok; i++) {
        memcpy(k + i * n, t->k1 + i * t->k1_stride, d->d1 * sizeof *k);
        if (d->d2) memcpy(k + i * n + d->d1, t->k2 + i * t->k2_stride, d->d2 * sizeof *k);
        memcpy(v + i * d->d_v, t->v + i * t->v_stride, d->d_v * sizeof *v);
    }
}

void nb_attn_prefill_c(const nb_attn_prefill_args *a)
{
    const size_t n = a->d.d1 + a->d.d2;
    nb_attn_args t = {
        .o = a->o,
        .m = a->m,
        .l = a->l,
        .q = a->q,
        .n_q = a->n_q,
        .head_end = 1,
        .group = 1,
        .d1 = n,
        .d_v = a->d.d_v,
        .q_q_stride = n,
        .o_q_stride = a->o_stride,
        .ml_q_stride = a->ml_stride,
        .k1_stride = n,
        .v_stride = a->d.d_v,
        .scale = a->scale,
    };
    for (size_t j = 0; j < a->n_tile; j++) {
        const bool last = j + 1 == a->n_tile;
        t.k1 = a->tile[j];
        t.v = t.k1 + TILE * n;
        t.n_kv = last ? a->last_tok : TILE;
        t.vis0 = last ? a->vis0 : TILE;
        t.vis_step = last ? a->vis_step : 0;
        nb_attn_c(&t);
    }
}
