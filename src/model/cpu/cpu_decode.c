/* cpu_decode.c - attention of single tokens of many sequences, side by side.
 *
 * What a decode step of a server is: up to 64 sequences with one new token each.  The
 * absorbing matrices are read once for all of them.  Sequences that have the complete pages of a
 * split in common (one prompt, many answers) attend to it in one task, which reads the pages once:
 * a group.  Every group is a task, the longest first, so that ragged lengths do not leave workers
 * idle; heads are divided only where there are fewer groups than workers, since each part reads the
 * pages again.  States and the order of merging are those of cpu_attn.c: a sequence's result
 * does not depend on its neighbours. */
#include <string.h>

#include "model/cpu/cpu.h"

typedef struct decode_seq {
    nb_cpu_attn s;
    size_t n_split;
    bool thrift; /* n_split = 0: such a query goes its own way, afterwards */
} decode_seq;

/* Sequences that attend to a split together: their states are [state0, state0 + n) of the wave. */
typedef struct decode_group {
    size_t split, state0, n, cost;
} decode_group;

enum { MIN_HEADS = 4 }; /* a task of fewer heads would read pages more than it computes */

typedef struct decode_ctx {
    nb_cpu *f;
    const nb_attn_config *attn; /* of the layer, as d */
    const nb_attn_dims *d;
    decode_seq seq[NB_DECODE_MAX];
    size_t n_seq, max_split;
    const float *q; /* [n_seq][q_stride] */
    size_t q_stride;
    /* the wave in hand */
    decode_group group[NB_WAVE];
    size_t n_group, n_state, n_hb, n_mb; /* blocks of heads per group, and when merging */
    uint8_t state_seq[NB_WAVE];          /* by state: the sequence, and its split below */
    size_t state_split[NB_WAVE];
    /* what the next wave begins with */
    size_t split;
    bool taken[NB_DECODE_MAX]; /* sequences whose `split` was in a wave */
} decode_ctx;

_Static_assert(NB_DECODE_MAX <= UINT8_MAX, "state_seq");

/* ---- groups ---- */

/* The same complete pages in this split, at least one. */
static bool same_pages(const decode_ctx *x, size_t i, size_t k, size_t split)
{
    const nb_cpu_attn *a = &x->seq[i].s, *b = &x->seq[k].s;
    const size_t most = nb_cpu_split_pages(a->p0), j0 = split * most;
    const size_t n = nb_cpu_n_closed(a->p0, split);
    if (most != nb_cpu_split_pages(b->p0) || n == 0 || n != nb_cpu_n_closed(b->p0, split))
        return false;
    for (size_t j = j0; j < j0 + n; j++)
        if (a->c->block[j] != b->c->block[j]) return false;
    return true;
}

static void add_state(decode_ctx *x, size_t i)
{
    x->taken[i] = true;
    x->state_seq[x->n_state] = (uint8_t)i;
    x->state_split[x->n_state++] = x->split;
}

/* The group of sequence i, as far as there is room for its states. */
static void add_group(decode_ctx *x, size_t i)
{
    decode_group g = { .split = x->split, .state0 = x->n_state, .n = 1 };
    add_state(x, i);
    for (size_t k = i + 1; k < x->n_seq && g.n < NB_CASCADE_MAX && x->n_state < NB_WAVE; k++) {
        if (x->taken[k] || x->split >= x->seq[k].n_split) continue;
        if (!same_pages(x, i, k, x->split)) continue;
        add_state(x, k);
        g.n++;
    }
    /* reading a page is worth about two queries */
    g.cost = (nb_cpu_n_closed(x->seq[i].s.p0, x->split) + 1) * (g.n + 2);
    size_t at = x->n_group++;
    for (; at > 0 && x->group[at - 1].cost < g.cost; at--) x->group[at] = x->group[at - 1];
    x->group[at] = g;
}

/* Fills a wave, in order of splits; false when there is nothing left. */
static bool next_wave(decode_ctx *x)
{
    x->n_group = x->n_state = 0;
    while (x->split < x->max_split) {
        for (size_t i = 0; i < x->n_seq; i++) {
            if (x->taken[i] || x->split >= x->seq[i].n_split) continue;
            if (x->n_state == NB_WAVE) return true;
            add_group(x, i);
        }
        for (size_t i = 0; i < x->n_seq; i++) x->taken[i] = false;
        x->split++;
    }
    return x->n_group != 0;
}

/* ---- a wave ---- */

static void group_task(void *ctx, size_t task, size_t worker)
{
    const decode_ctx *x = ctx;
    nb_cpu *f = x->f;
    const size_t nh = x->d->n_head, hb = task % x->n_hb;
    const decode_group *g = &x->group[task / x->n_hb];
    nb_split_args a[NB_CASCADE_MAX];
    for (size_t k = 0; k < g->n; k++) {
        const size_t w = g->state0 + k, i = x->state_seq[w];
        const decode_seq *d = &x->seq[i];
        a[k] = (nb_split_args){ .s = &d->s,
                                .q = x->q + i * x->q_stride,
                                .q_stride = x->q_stride,
                                .n_q = 1,
                                .r0 = d->s.in0,
                                .page = d->s.p0,
                                .split = g->split,
                                .head_begin = nh * hb / x->n_hb,
                                .head_end = nh * (hb + 1) / x->n_hb,
                                .o = f->part_o + w * nh * x->d->d_state,
                                .m = f->part_m + w * nh,
                                .l = f->part_l + w * nh };
    }
    nb_cpu_attn_split(a, g->n, worker);
}

/* Some heads of one sequence's states of the wave, in order of position. */
static void merge_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const decode_ctx *x = ctx;
    nb_cpu *f = x->f;
    const size_t nh = x->d->n_head, ds = x->d->d_state, i = task / x->n_mb;
    const size_t b = nh * (task % x->n_mb) / x->n_mb, e = nh * (task % x->n_mb + 1) / x->n_mb;
    const size_t at = i * nh + b;
    float *o = f->tot_o + at * ds, *m = f->tot_m + at, *l = f->tot_l + at;
    for (size_t w = 0; w < x->n_state; w++) {
        if (x->state_seq[w] != i) continue;
        const size_t from = w * nh + b;
        if (x->state_split[w] == 0) nb_cpu_reset(m, l, e - b);
        nb_attn_merge(o, m, l, f->part_o + from * ds, f->part_m + from, f->part_l + from, e - b,
                      ds);
        if (x->state_split[w] + 1 == x->seq[i].n_split) nb_attn_finish(o, o, l, e - b, ds);
    }
}

static size_t blocks(size_t n_worker, size_t n_task, size_t most)
{
    const size_t n = (n_worker + n_task - 1) / n_task;
    return n < most ? n : most;
}

static void run_waves(decode_ctx *x)
{
    nb_cpu *f = x->f;
    const size_t nh = x->d->n_head, n_worker = nb_dev_n_worker(f->r.o.dev);
    while (next_wave(x)) {
        x->n_hb = blocks(n_worker, x->n_group, nh > MIN_HEADS ? nh / MIN_HEADS : 1);
        x->n_mb = blocks(n_worker, x->n_seq, nh);
        nb_dev_run(f->r.o.dev, group_task, x, x->n_group * x->n_hb);
        nb_dev_run(f->r.o.dev, merge_task, x, x->n_seq * x->n_mb);
    }
}

void nb_cpu_decode(nb_cpu *f, const nb_pass *p, size_t i0, size_t n, size_t layer)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    const nb_cpu_kind *kind = nb_cpu_kind_of(attn);
    const size_t t0 = f->place[i0].tok0;
    decode_ctx x;
    memset(&x, 0, sizeof x);
    x.f = f;
    x.attn = attn;
    x.d = nb_rank_dims(&f->r, layer);
    x.n_seq = n;
    NB_ASSERT(n <= NB_DECODE_MAX);
    for (size_t i = 0; i < n; i++) {
        decode_seq *d = &x.seq[i];
        d->s = nb_cpu_attn_of(f, p, i0 + i, layer);
        d->thrift = nb_cpu_thrift_on(&d->s);
        d->n_split = d->thrift ? 0 : nb_cpu_n_split(d->s.p0);
        if (d->n_split > x.max_split) x.max_split = d->n_split;
    }
    x.q = kind->queries(f, layer, f->q + t0 * x.d->n_head * x.d->d_q, n, &x.q_stride);
    run_waves(&x);
    for (size_t i = 0; i < n; i++)
        if (x.seq[i].thrift) nb_cpu_thrift_query(&x.seq[i].s, 0, x.q + i * x.q_stride, i);
    kind->outputs(f, layer, n, f->attn + t0 * x.d->n_head * x.d->d_o);
}
