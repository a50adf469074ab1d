/* gpu_meet.c - what several GPU ranks exchange in a layer: as on the CPU (cpu_meet.c), columns.
 *
 * A meeting is one operation of the stream (nb_cuda_ops.h, exchange), so it is part of a captured graph, and a step of
 * single tokens costs the host as little as on one GPU.  A rank takes straight from the others' buffers.
 * Each buffer that is read by others (nb_gpu_gives) is written once per layer, four exchanges later than it was given.
 *
 * Failures.  The host learns at the end of a step what a device has noted.  Ranks whose device waits are told by the
 * alarm, which nb_comm raises for any failure of any rank. */
#include <stdio.h>
#include <string.h>

#include "model/gpu/gpu.h"

/* ---- life ---- */

nb_status nb_gpu_ranks_create(nb_gpu_rank *f, nb_error *err)
{
    nb_gpu_ranks *x = &f->ranks;
    nb_comm *c = f->r.o.comm;
    x->n = c ? nb_comm_n_rank(c) : 1;
    x->me = c ? nb_comm_rank(c) : 0;
    x->divided = nb_rank_divided(&f->r);
    if (x->n == 1) return NB_OK;
    uint32_t *alarm = f->api->host_alloc(f->g, 2 * sizeof *alarm);
    x->alarm = alarm;
    x->failed = f->api->host_alloc(f->g, sizeof *x->failed);
    if (!alarm || !x->failed) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the ranks");
    alarm[0] = alarm[1] = 0;
    *x->failed = 0;
    nb_comm_set_alarm(c, x->alarm);
    return NB_OK;
}

void nb_gpu_ranks_destroy(nb_gpu_rank *f)
{
    nb_gpu_ranks *x = &f->ranks;
    if (f->r.o.comm) nb_comm_set_alarm(f->r.o.comm, NULL);
    f->api->host_free(f->g, (void *)(uintptr_t)x->alarm);
    f->api->host_free(f->g, x->failed);
}

nb_status nb_gpu_connect(nb_rank *r, nb_rank *const *all, nb_error *err)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    for (size_t k = 0; k < f->ranks.n; k++) {
        const nb_gpu_rank *o = nb_gpu_of(all[k]);
        if (o != f) NB_TRY(f->api->see(f->g, o->g, err));
        /* both kinds have the same buffers; the first has every part of them */
        f->ranks.of[k] = (nb_gpu_gives){ .x = o->x[0],
                                         .out = o->ranks.out,
                                         .sum = o->ranks.sum,
                                         .e_y = o->e_y,
                                         .id = o->r_id,
                                         .meeting = o->ranks.meeting };
    }
    return f->api->sync(f->g, err);
}

/* ---- a meeting ---- */

typedef nb_gpu_meet_args meeting;

nb_gpu_meet_args nb_gpu_meet_begin(nb_gpu_rank *f, size_t n_row, uint32_t what)
{
    meeting m = { .f = f, .n_row = n_row };
    m.a.alarm = f->ranks.alarm;
    m.a.rank = f->ranks.me;
    m.a.n_rank = f->ranks.n;
    m.a.what = what;
    for (size_t k = 0; k < f->ranks.n; k++) m.a.meeting[k] = f->ranks.of[k].meeting;
    return m;
}

void nb_gpu_take(meeting *m, const void *from, size_t from_stride, void *to, size_t to_stride, size_t n, size_t size)
{
    if (!n || !to || !m->n_row) return;
    NB_ASSERT(m->a.n_take < NB_CUDA_MAX_TAKE);
    m->a.take[m->a.n_take++] = (nb_cuda_take){ .from = from,
                                               .to = to,
                                               .n_row = m->n_row,
                                               .row_bytes = n * size,
                                               .from_stride = from_stride * size,
                                               .to_stride = to_stride * size };
}

static size_t round8(size_t n)
{
    return (n + 7) / 8 * 8;
}

/* Columns [first, first + n) of `all`, which has `width`, from the rank's own rows, in each form of `all`. */
static void take_rows(meeting *m, const nb_cuda_rows *own, const nb_cuda_rows *all, size_t first,
                      size_t n, size_t width)
{
    const size_t from = round8(n), to = round8(width);
    nb_gpu_take(m, own->f, from, all->f ? all->f + first : NULL, to, n, sizeof(float));
    nb_gpu_take(m, own->hi, from, all->hi ? all->hi + first : NULL, to, n, sizeof *all->hi);
    nb_gpu_take(m, own->lo, from, all->lo ? all->lo + first : NULL, to, n, sizeof *all->lo);
}

static void meet_heads(meeting *m, nb_cuda_kind kind, size_t layer)
{
    nb_gpu_rank *f = m->f;
    const size_t d_o = nb_rank_dims(&f->r, layer)->d_o,
                 n_head = nb_layer_dims(f->r.whole, layer).n_head,
                 unit = nb_rank_head_unit(&f->r, layer);
    for (size_t k = 0; k < f->ranks.n; k++) {
        size_t first;
        const size_t n = nb_rank_part_of(n_head, unit, f->ranks.n, k, &first);
        take_rows(m, &f->ranks.of[k].x.attn_y, &f->x[kind].heads, first * d_o, n * d_o, n_head * d_o);
    }
}

/* The experts' outputs on other ranks, of the columns that this one adds up. */
static void meet_experts(meeting *m)
{
    nb_gpu_rank *f = m->f;
    const size_t h = f->r.whole->hidden, n_expert = f->r.whole->n_expert, out0 = f->r.part.out0;
    m->n_row *= f->r.whole->top_k;
    for (size_t k = 0; k < f->ranks.n; k++) {
        const uint32_t *first = f->r_first + NB_CUDA_EXPERT_0(n_expert, f->ranks.n, k);
        const size_t n = n_expert / f->ranks.n + (k < n_expert % f->ranks.n);
        if (k == f->ranks.me || !f->r.part.n_out) continue;
        nb_gpu_take(m, f->ranks.of[k].e_y + out0, h, f->e_y + out0, h, f->r.part.n_out, sizeof(float));
        m->a.take[m->a.n_take - 1].begin = first;
        m->a.take[m->a.n_take - 1].end = first + n;
    }
}

static void meet_hidden(meeting *m, nb_cuda_kind kind, size_t layer)
{
    nb_gpu_rank *f = m->f;
    const nb_model_config *c = f->r.whole;
    const size_t n = c->dense[layer] ? c->inter : c->n_shared * c->moe_inter;
    for (size_t k = 0; n && k < f->ranks.n; k++) {
        size_t first;
        const size_t own = nb_rank_cut(n, f->r.part.unit, f->ranks.n, k, &first);
        take_rows(m, &f->ranks.of[k].x.act, &f->x[kind].hidden, first, own, n);
    }
    if (!c->dense[layer]) meet_experts(m);
}

static void meet_branch(meeting *m, bool sum)
{
    nb_gpu_rank *f = m->f;
    const size_t h = f->r.whole->hidden;
    for (size_t k = 0; k < f->ranks.n; k++) {
        size_t first;
        const size_t n = nb_rank_cut(h, f->r.part.unit, f->ranks.n, k, &first);
        const nb_gpu_gives *from = &f->ranks.of[k];
        nb_gpu_take(m, sum ? from->sum : from->out, round8(n), f->branch + first, h, n, sizeof(float));
    }
}

/* What all ranks do alike: the layer, the place in it, the rows. */
static uint32_t what(const nb_gpu_pass *p, size_t layer, nb_meeting at)
{
    return (uint32_t)(layer % 32) << 19 | (uint32_t)(p->n_pad & 0x1ffff) << 2 | (uint32_t)at;
}

bool nb_gpu_meet(nb_rank *r, nb_pass *pass, size_t layer, nb_meeting at)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    if (r->o.data_parallel && nb_layer_has_experts(r->whole, layer)) nb_gpu_share(f, pass, layer);
    if (r->o.data_parallel) return true;
    meeting m = nb_gpu_meet_begin(f, p->n_pad, what(p, layer, at));
    switch (at) {
    case NB_MEET_HEADS: meet_heads(&m, p->kind, layer); break;
    case NB_MEET_OUTPUT: meet_branch(&m, false); break;
    case NB_MEET_HIDDEN: meet_hidden(&m, p->kind, layer); break;
    case NB_MEET_BRANCH: meet_branch(&m, true); break;
    }
    f->api->exchange(f->g, &m.a);
    return true; /* a graph must be complete; what failed, the end of the step tells */
}

/* ---- a step ---- */

void nb_gpu_ranks_begin(nb_gpu_rank *f)
{
    if (f->ranks.n > 1) f->ranks.alarm[1] = (uint32_t)(1e3 * nb_comm_limit(f->r.o.comm));
}

void nb_gpu_ranks_end(nb_gpu_rank *f)
{
    if (f->ranks.n > 1)
        f->api->download(f->g, f->ranks.failed, &f->ranks.meeting->failed, sizeof *f->ranks.failed);
}

nb_status nb_gpu_ranks_check(nb_gpu_rank *f, nb_error *err)
{
    if (f->ranks.n == 1 || !*f->ranks.failed) return NB_OK;
    const size_t who = (size_t)(*f->ranks.failed & UINT32_MAX);
    char why[160];
    switch ((nb_cuda_failure)(*f->ranks.failed >> 32)) {
    case NB_CUDA_ALARM: break; /* nb_comm has the reason already */
    case NB_CUDA_LOST:
        (void)snprintf(why, sizeof why, "no sign of its GPU for %g seconds",
                       nb_comm_limit(f->r.o.comm));
        nb_comm_fail(f->r.o.comm, who, why);
        break;
    case NB_CUDA_OTHER:
        (void)snprintf(why, sizeof why, "its GPU computes something else than that of rank %zu",
                       f->ranks.me);
        nb_comm_fail(f->r.o.comm, who, why);
        break;
    }
    return nb_comm_check(f->r.o.comm, err);
}
