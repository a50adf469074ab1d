/* gpu_share.c - data-parallel GPUs: each has tokens of its own, and all compute their experts for the tokens of all
 * (decisions 060 and 065; on the CPU nb_cpu_share_experts).
 *
 * Ranks go through rounds: in each, every rank computes a pass of the same kind, or none.  All know the rows of all.
 * A layer with experts is two exchanges.  In the first a rank takes the rows and choices of all others; every rank then
 * has the same order of places.  In the second it takes the outputs of its own rows from the ranks whose experts made
 * them, to the places where this rank's own experts would have put them, so that the sum is that of one GPU.
 *
 * With more rows than one pass may have, a layer takes turns, each with a part of every rank's rows.
 *
 * A graph has as many rows for each rank as the rank with most.  Those that are no tokens are chosen by nobody: `on`. */
#include "model/gpu/gpu.h"

typedef struct turn {
    size_t at[NB_CUDA_MAX_RANK + 1]; /* rows [at[k], at[k + 1]) of the turn are rank k's from own[k] on */
    size_t own[NB_CUDA_MAX_RANK];
    size_t before; /* rows of earlier turns */
} turn;

static size_t n_turn_of(const nb_gpu_rank *f, nb_cuda_kind kind, const nb_gpu_round *x)
{
    const size_t most = f->ranks.all.max_row[kind];
    size_t n = 0;
    for (size_t k = 0; k < f->ranks.n; k++) n += x->n[k];
    return (n + most - 1) / most;
}

/* At most a row of each rank more than the mean: nb_gpu_share_rows. */
static turn turn_of(const nb_gpu_rank *f, const nb_gpu_round *x, size_t t, size_t n_turn)
{
    turn y = { .before = 0 };
    for (size_t k = 0; k < f->ranks.n; k++) {
        y.own[k] = x->n[k] * t / n_turn;
        y.at[k + 1] = y.at[k] + x->n[k] * (t + 1) / n_turn - y.own[k];
        y.before += y.own[k];
    }
    return y;
}

/* ---- what a round tells the device ---- */

size_t nb_gpu_share_on_bytes(const nb_gpu_rank *f, size_t max_row)
{
    return f->r.o.data_parallel ? f->ranks.n * max_row : 0;
}

void nb_gpu_share_on(const nb_gpu_rank *f, nb_cuda_kind kind, const nb_gpu_round *x, unsigned char *on)
{
    if (!f->ranks.all.id) return; /* no experts */
    const size_t n_turn = n_turn_of(f, kind, x);
    for (size_t t = 0; t < n_turn; t++) {
        const turn y = turn_of(f, x, t, n_turn);
        for (size_t k = 0; k < f->ranks.n; k++)
            for (size_t i = y.at[k]; i < y.at[k + 1]; i++) *on++ = y.own[k] + i - y.at[k] < x->n_row[k];
    }
}

uint32_t nb_gpu_share_salt(nb_cuda_kind kind, const nb_gpu_round *x)
{
    uint64_t h = (uint64_t)kind << 1 | x->graph;
    for (size_t k = 0; k < NB_CUDA_MAX_RANK; k++) h = (h * 0x100000001b3 ^ x->n_row[k]) * 0x100000001b3 ^ x->n[k];
    h *= 0x9e3779b97f4a7c15;
    return (uint32_t)(h >> (64 - NB_CUDA_WHAT_BITS));
}

/* ---- a turn ---- */

static nb_gpu_meet_args begin(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t t, bool back)
{
    const uint32_t what = (uint32_t)(layer % 32) << 19 | (uint32_t)(t & 0x3ffff) << 1 | back;
    nb_gpu_meet_args m = nb_gpu_meet_begin(f, 0, what);
    m.a.salt = f->stage[p->kind].dev.salt;
    return m;
}

/* A form of rows: n of `width` values, [at, at + n) of `to`. */
static void take_form(nb_gpu_meet_args *m, const void *from, size_t own, void *to, size_t at, size_t width, size_t size)
{
    if (from && to)
        nb_gpu_take(m, (const char *)from + own * width * size, width, (char *)to + at * width * size, width, width, size);
}

/* ranks.all = the turn's rows and choices of every rank. */
static void gather(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t t, const turn *y)
{
    const nb_cuda_rows *to = &f->ranks.all.xn[p->kind];
    const size_t h = to->stride, top_k = f->r.whole->top_k;
    nb_gpu_meet_args m = begin(f, p, layer, t, false);
    for (size_t k = 0; k < f->ranks.n; k++) {
        const nb_gpu_gives *from = &f->ranks.of[k];
        const size_t own = y->own[k], at = y->at[k];
        m.n_row = y->at[k + 1] - at;
        take_form(&m, from->x.xn.f, own, to->f, at, h, sizeof *to->f);
        take_form(&m, from->x.xn.hi, own, to->hi, at, h, sizeof *to->hi);
        take_form(&m, from->x.xn.lo, own, to->lo, at, h, sizeof *to->lo);
        take_form(&m, from->id, own, f->ranks.all.id, at, top_k, sizeof *from->id);
    }
    f->api->exchange(f->g, &m.a);
}

/* Every rank's rows by expert: the same places on all ranks. */
static void order(nb_gpu_rank *f, const nb_gpu_pass *p, const turn *y)
{
    const nb_model_config *c = f->r.whole;
    f->api->route(f->g, &(nb_cuda_route_args){ .id = f->ranks.all.id,
                                               .first = f->r_first,
                                               .src = f->r_src,
                                               .place = f->r_place,
                                               .n_tok = y->at[f->ranks.n],
                                               .n_expert = nb_n_choice(c),
                                               .top_k = c->top_k,
                                               .n_rank = f->ranks.n,
                                               .on = p->round.graph ? f->stage[p->kind].dev.on + y->before : NULL });
}

/* The other ranks' outputs for this rank's rows. */
static void give_back(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t t, const turn *y)
{
    const nb_model_config *c = f->r.whole;
    const size_t h = c->hidden, me = f->ranks.me;
    nb_gpu_meet_args m = begin(f, p, layer, t, true);
    m.n_row = (y->at[me + 1] - y->at[me]) * c->top_k;
    for (size_t k = 0; k < f->ranks.n; k++) {
        const uint32_t *first = f->r_first + NB_CUDA_EXPERT_0(c->n_expert, f->ranks.n, k);
        if (k == me || !m.n_row) continue;
        nb_gpu_take(&m, f->ranks.of[k].e_y, h, f->e_y, h, h, sizeof *f->e_y);
        nb_cuda_take *x = &m.a.take[m.a.n_take - 1];
        x->begin = first;
        x->end = first + c->n_expert / f->ranks.n + (k < c->n_expert % f->ranks.n);
        x->row = f->r_place + y->at[me] * c->top_k;
    }
    f->api->exchange(f->g, &m.a);
}

/* Of this rank's rows in the turn: branch is the shared experts' output, if there are some. */
static nb_cuda_moe_sum_args sum_of(const nb_gpu_rank *f, size_t layer, const turn *y)
{
    const nb_model_config *c = f->r.whole;
    const size_t me = f->ranks.me, own = y->own[me];
    float *branch = f->branch + own * c->hidden;
    return (nb_cuda_moe_sum_args){ .y = branch,
                                   .e = f->e_y,
                                   .shared = f->r.o.model->layer[layer].mlp.down.data ? branch : NULL,
                                   .weight = f->r_weight + own * c->top_k,
                                   .place = f->r_place + y->at[me] * c->top_k,
                                   .n_tok = y->at[me + 1] - y->at[me],
                                   .top_k = c->top_k,
                                   .dim = c->hidden,
                                   .y_stride = c->hidden,
                                   .e_stride = c->hidden,
                                   .shared_stride = c->hidden };
}

void nb_gpu_share(nb_gpu_rank *f, nb_pass *pass, size_t layer)
{
    nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const size_t n_turn = n_turn_of(f, p->kind, &p->round);
    for (size_t t = 0; t < n_turn; t++) {
        const turn y = turn_of(f, &p->round, t, n_turn);
        gather(f, p, layer, t, &y);
        order(f, p, &y);
        nb_gpu_routed(f, p->kind, layer, f->ranks.all.xn[p->kind], y.at[f->ranks.n]);
        give_back(f, p, layer, t, &y);
        if (p->beside) f->api->side_join(f->g);
        p->beside = false;
        if (!p->base.n_row || y.at[f->ranks.me] == y.at[f->ranks.me + 1]) continue;
        p->sum = sum_of(f, layer, &y);
        if (n_turn == 1 && !f->r.trace) return; /* the next add_norm does it */
        f->api->moe_sum(f->g, &p->sum);
        p->sum.e = NULL;
    }
}
