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

#include "model/cpu/cpu_context.h"

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
    size_t layer;
    const nb_attn_dims *d; /* of the layer */
    nb_attn_dims all;      /* with the heads of the states: those of all ranks where these divide the context */
    size_t head0;          /* this rank's first among them */
    decode_seq seq[NB_DECODE_MAX];
    size_t n_seq, max_split, me;
    bool divides;
    const float *q; /* [n_seq][q_stride] */
    size_t q_stride;
    /* the wave in hand */
    decode_group group[NB_WAVE];
    size_t n_group, n_state, n_hb, n_mb; /* blocks of heads per group, and when merging */
    uint8_t owner[NB_WAVE], slot[NB_WAVE]; /* by state: the rank that computes it; its place, in order of ranks */
    size_t first[NB_COMM_MAX_RANK + 1];    /* where the states of each rank begin */
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
    const size_t owner = x->divides ? nb_cpu_split_rank(&x->seq[i].s, x->split) : x->me;
    memset(x->owner + g.state0, (int)owner, g.n);
    if (owner != x->me) return;
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
    return x->n_state != 0;
}

/* Where the states of the wave are: those of rank 0 first.  Those of a group stay neighbours. */
static void place_states(decode_ctx *x)
{
    size_t n = 0;
    for (size_t k = 0; k < NB_COMM_MAX_RANK; k++) {
        x->first[k] = n;
        for (size_t w = 0; n < x->n_state && w < x->n_state; w++)
            if (x->owner[w] == k) x->slot[w] = (uint8_t)n++;
    }
    x->first[NB_COMM_MAX_RANK] = n;
}

/* ---- a wave ---- */

static void group_task(void *ctx, size_t task, size_t worker)
{
    const decode_ctx *x = ctx;
    nb_cpu *f = x->f;
    const size_t nh = x->all.n_head, hb = task % x->n_hb;
    const decode_group *g = &x->group[task / x->n_hb];
    nb_split_args a[NB_CASCADE_MAX];
    for (size_t k = 0; k < g->n; k++) {
        const size_t w = x->slot[g->state0 + k], i = x->state_seq[g->state0 + k];
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
                                .m = f->part_m + 2 * w * nh,
                                .l = f->part_m + (2 * w + 1) * nh };
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
        const size_t slot = x->slot[w], h = x->head0 + b, ml = 2 * slot * x->all.n_head + h;
        if (x->state_split[w] == 0) nb_cpu_reset(m, l, e - b);
        nb_attn_merge(o, m, l, f->part_o + (slot * x->all.n_head + h) * ds, f->part_m + ml,
                      f->part_m + ml + x->all.n_head, e - b, ds);
        if (x->state_split[w] + 1 == x->seq[i].n_split) nb_attn_finish(o, o, l, e - b, ds);
    }
}

static size_t blocks(size_t n_worker, size_t n_task, size_t most)
{
    const size_t n = n_task ? (n_worker + n_task - 1) / n_task : 1;
    return n < most ? n : most;
}

/* Each state has a sum of weights once it is computed; before, its own rank has given it a negative one. */
static void mark_states(const decode_ctx *x)
{
    const size_t nh = x->all.n_head;
    for (size_t w = x->first[x->me]; w < x->first[x->me + 1]; w++)
        for (size_t h = 0; h < nh; h++) x->f->part_m[(2 * w + 1) * nh + h] = -1;
}

static bool share_states(const decode_ctx *x)
{
    const nb_cpu *f = x->f;
    const size_t nh = x->all.n_head;
    if (!nb_cpu_exchange_states(x->f, x->layer, x->first)) return false;
    for (size_t w = 0; w < x->n_state; w++)
        for (size_t h = 0; h < x->d->n_head; h++)
            if (f->part_m[(size_t)(2 * x->slot[w] + 1) * nh + x->head0 + h] < 0) {
                nb_comm_fail(f->r.o.tensor, x->owner[w], "it has left out a split of a context");
                return false;
            }
    return true;
}

static bool run_waves(decode_ctx *x)
{
    nb_cpu *f = x->f;
    const size_t nh = x->all.n_head, n_worker = nb_dev_n_worker(f->r.o.dev);
    while (next_wave(x)) {
        place_states(x);
        if (x->divides) mark_states(x);
        if (f->r.plant_split && x->n_group) x->n_group--;
        x->n_hb = blocks(n_worker, x->n_group, nh > MIN_HEADS ? nh / MIN_HEADS : 1);
        x->n_mb = blocks(n_worker, x->n_seq, x->d->n_head);
        nb_dev_run(f->r.o.dev, group_task, x, x->n_group * x->n_hb);
        if (x->divides && !share_states(x)) return false;
        nb_dev_run(f->r.o.dev, merge_task, x, x->n_seq * x->n_mb);
    }
    return true;
}

/* The states have the heads of all ranks, and so have the queries. */
static bool with_all_heads(decode_ctx *x)
{
    nb_cpu *f = x->f;
    x->divides = true;
    x->me = nb_comm_rank(f->r.o.tensor);
    x->all = nb_layer_dims(f->r.whole, x->layer);
    x->head0 = nb_rank_head0(&f->r, x->layer);
    for (size_t i = 0; i < x->n_seq; i++) {
        x->seq[i].s.d = &x->all;
        x->seq[i].s.attn = nb_layer_attn(f->r.whole, x->layer);
    }
    x->q_stride = x->all.n_head * x->all.n_values;
    x->q = f->context.q;
    return nb_cpu_gather_heads(f, x->layer, x->n_seq, f->qx, x->all.n_values, f->context.q);
}

void nb_cpu_decode(nb_cpu *f, const nb_pass *p, size_t i0, size_t n, size_t layer)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    const nb_cpu_kind *kind = nb_cpu_kind_of(attn);
    const size_t t0 = f->place[i0].tok0;
    decode_ctx x;
    memset(&x, 0, sizeof x);
    x.f = f;
    x.layer = layer;
    x.d = nb_rank_dims(&f->r, layer);
    x.all = *x.d;
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
    f->context.lost = (nb_rank_divides_context(&f->r) && !with_all_heads(&x)) || !run_waves(&x);
    if (f->context.lost) return;
    for (size_t i = 0; i < n; i++)
        if (x.seq[i].thrift) nb_cpu_thrift_query(&x.seq[i].s, 0, x.q + i * x.q_stride, i);
    kind->outputs(f, layer, n, f->attn + t0 * x.d->n_head * x.d->d_o);
}
