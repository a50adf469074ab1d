/* forward_decode.c - attention of single tokens of many sequences, side by side.
 *
 * What a decode step of a server is: up to 64 sequences with one new token each.  The
 * absorbing matrices are read once for all of them, and every (sequence, split of its
 * context) is a task of its own, so that ragged lengths do not leave workers idle.  The
 * state of each split and the order of merging are those of forward_attn.c: a
 * sequence's result does not depend on its neighbours. */
#include <math.h>

#include "model/forward_internal.h"

typedef struct decode_seq {
    nb_attn_step s;
    size_t first, n_split; /* its tasks [first, first + n_split) of all sequences' splits */
    bool thrift;           /* none of these: such a query goes its own way, afterwards */
} decode_seq;

typedef struct decode_ctx {
    nb_forward *f;
    decode_seq seq[NB_DECODE_MAX];
    size_t n_seq, n_state; /* sequences; splits of all of them */
    const float *q;        /* [n_seq][q_stride] */
    size_t q_stride;
    size_t state0, n_wave, n_hb; /* states [state0, state0 + n_wave) are in hand */
    unsigned char bad[NB_DECODE_MAX];
} decode_ctx;

static void store_task(void *ctx, size_t i, size_t worker)
{
    decode_ctx *x = ctx;
    /* The page of scratch serves as the codec's BF16 input: 2 of its 4 bytes a value. */
    uint16_t *stage = (uint16_t *)(void *)(x->f->w_page + worker * NB_PAGE_TOK * x->f->n_values);
    x->bad[i] = !nb_fw_store_page(&x->seq[i].s, 0, stage);
}

static void heads_of(const decode_ctx *x, size_t i, size_t *b, size_t *e)
{
    const size_t nh = x->f->o.model->c.n_head;
    *b = nh * i / x->n_hb;
    *e = nh * (i + 1) / x->n_hb;
}

/* The sequence that state k belongs to: the last whose first is not beyond it. */
static size_t seq_of(const decode_ctx *x, size_t k)
{
    size_t lo = 0, hi = x->n_seq;
    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        if (x->seq[mid].first <= k)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static void split_task(void *ctx, size_t task, size_t worker)
{
    const decode_ctx *x = ctx;
    nb_forward *f = x->f;
    const size_t w = task / x->n_hb, k = x->state0 + w, i = seq_of(x, k);
    const size_t nh = f->o.model->c.n_head;
    const decode_seq *d = &x->seq[i];
    if (x->bad[i]) return;
    nb_split_args a = { .s = &d->s,
                        .q = x->q + i * x->q_stride,
                        .q_stride = x->q_stride,
                        .n_q = 1,
                        .r0 = d->s.in0,
                        .page = d->s.p0,
                        .split = k - d->first,
                        .o = f->part_o + w * nh * f->d_state,
                        .m = f->part_m + w * nh,
                        .l = f->part_l + w * nh,
                        .scratch = f->w_page + worker * NB_PAGE_TOK * f->n_values };
    heads_of(x, task % x->n_hb, &a.head_begin, &a.head_end);
    nb_fw_attn_split(&a);
}

/* One sequence's states of the wave, in order of position. */
static void merge_task(void *ctx, size_t i, size_t worker)
{
    (void)worker;
    const decode_ctx *x = ctx;
    nb_forward *f = x->f;
    const size_t nh = f->o.model->c.n_head, ds = f->d_state, end = x->state0 + x->n_wave;
    const decode_seq *d = &x->seq[i];
    float *o = f->tot_o + i * nh * ds, *m = f->tot_m + i * nh, *l = f->tot_l + i * nh;
    if (x->bad[i]) return;
    if (d->first >= x->state0)
        for (size_t h = 0; h < nh; h++) {
            m[h] = -INFINITY;
            l[h] = 0;
        }
    const size_t a = d->first > x->state0 ? d->first : x->state0;
    const size_t b = d->first + d->n_split < end ? d->first + d->n_split : end;
    for (size_t k = a; k < b; k++) {
        const size_t w = k - x->state0;
        nb_attn_merge(o, m, l, f->part_o + w * nh * ds, f->part_m + w * nh, f->part_l + w * nh, nh,
                      ds);
    }
    if (a < b && b == d->first + d->n_split) nb_attn_finish(o, o, l, nh, ds);
}

static void run_waves(decode_ctx *x)
{
    nb_forward *f = x->f;
    const nb_model_config *c = &f->o.model->c;
    const size_t wave = f->part_floats / (c->n_head * f->d_state);
    const size_t n_worker = nb_dev_n_worker(f->o.dev);
    for (x->state0 = 0; x->state0 < x->n_state; x->state0 += x->n_wave) {
        const size_t left = x->n_state - x->state0;
        x->n_wave = left < wave ? left : wave;
        x->n_hb = (n_worker + x->n_wave - 1) / x->n_wave;
        if (x->n_hb > c->n_head) x->n_hb = c->n_head;
        nb_dev_run(f->o.dev, split_task, x, x->n_wave * x->n_hb);
        nb_dev_run(f->o.dev, merge_task, x, x->n_seq);
    }
}

void nb_fw_attention_decode(nb_forward *f, const nb_chunk *c, size_t n_chunk, size_t i0,
                            size_t layer, size_t t0, nb_error *err)
{
    const nb_model_config *mc = &f->o.model->c;
    const nb_layer *l = &f->o.model->layer[layer];
    decode_ctx x = { .f = f, .n_seq = n_chunk };
    const size_t nh = mc->n_head;
    NB_ASSERT(n_chunk <= NB_DECODE_MAX);
    for (size_t i = 0; i < n_chunk; i++) {
        decode_seq *d = &x.seq[i];
        d->s = nb_fw_attn_step(f, &c[i], layer, t0 + i);
        d->first = x.n_state;
        d->thrift = nb_fw_thrift_on(&d->s);
        d->n_split = d->thrift ? 0 : d->s.p0 / NB_SPLIT_PAGES + 1;
        x.n_state += d->n_split;
    }
    nb_dev_run(f->o.dev, store_task, &x, n_chunk);
    for (size_t i = 0; i < n_chunk; i++) {
        if (!x.bad[i]) {
            nb_fw_thrift_stored(&x.seq[i].s);
            continue;
        }
        if (f->n_bad++ == 0) (void)nb_fw_store_error(&x.seq[i].s, 0, err);
        f->chunk_bad[i0 + i] = 1;
    }
    x.q = f->q + t0 * nh * f->d_q;
    x.q_stride = nh * f->d_q;
    if (mc->attn == NB_ATTN_MLA) {
        nb_fw_absorb(f, l, x.q, n_chunk);
        x.q = f->qx;
        x.q_stride = nh * (mc->kv_lora + mc->d_rope);
    }
    run_waves(&x);
    for (size_t i = 0; i < n_chunk; i++)
        if (x.seq[i].thrift && !x.bad[i])
            nb_fw_thrift_query(&x.seq[i].s, 0, x.q + i * x.q_stride, i);
    float *y = f->attn + t0 * nh * f->d_o;
    for (size_t i = 0; i < n_chunk; i++) /* nothing was computed for them */
        for (size_t k = 0; x.bad[i] && k < nh * f->d_state; k++)
            f->tot_o[i * nh * f->d_state + k] = 0;
    if (mc->attn == NB_ATTN_MLA)
        nb_fw_unabsorb(f, l, n_chunk, y);
    else
        for (size_t k = 0; k < n_chunk * nh * f->d_state; k++) y[k] = f->tot_o[k];
}
