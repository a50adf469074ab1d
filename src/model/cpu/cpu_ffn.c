/* cpu_ffn.c - the feed-forward block on the CPU: dense SwiGLU and mixture of experts.
 *
 * Tokens are sorted by expert, so that an expert's weights are read once for all of its tokens.  Every
 * (token, expert) output is kept apart; combine adds them per token in the order of the router's choice, then
 * the shared expert, so the sum does not depend on what else is in the batch.  Outputs of a shortcut's experts stay
 * where they are until the next layer's combine: that layer is dense and has none of its own. */
#include <string.h>

#include "model/cpu/cpu.h"

typedef struct swiglu_ctx {
    nb_cpu *f;
    float *gate, *up; /* limited in place */
    size_t dim;
} swiglu_ctx;

static void swiglu_tokens(void *ctx, size_t t0, size_t t1)
{
    const swiglu_ctx *s = ctx;
    const float top = s->f->r.whole->act_limit;
    for (size_t i = t0 * s->dim; top > 0 && i < t1 * s->dim; i++) { /* NaN stays, unlike with fminf */
        const float g = s->gate[i], u = s->up[i];
        s->gate[i] = g > top ? top : g;
        s->up[i] = u > top ? top : u < -top ? -top : u;
    }
    s->f->r.plan.swiglu->fn(&(nb_swiglu_args){ .y = s->gate + t0 * s->dim,
                                               .gate = s->gate + t0 * s->dim,
                                               .up = s->up + t0 * s->dim,
                                               .n_tok = t1 - t0,
                                               .dim = s->dim,
                                               .in_stride = s->dim,
                                               .y_stride = s->dim });
}

static void swiglu(nb_cpu *f, float *gate, float *up, size_t n_tok, size_t dim)
{
    swiglu_ctx s = { f, gate, up, dim };
    nb_cpu_tokens(f, swiglu_tokens, &s, n_tok);
}

/* Jobs of gate and up of a dense layer or of the shared experts: columns [col0, col0 + n_col), into f->gate and f->up. */
static void gate_up(nb_cpu *f, const nb_mlp *m, size_t col0, size_t n_col, size_t n_tok,
                    nb_job job[2])
{
    const size_t h = f->r.whole->hidden;
    job[0] = nb_cpu_rows(nb_cpu_job(f, &m->gate, m->gate_b, f->xn, h, f->gate, n_col, n_tok), col0,
                         n_col);
    job[1] =
        nb_cpu_rows(nb_cpu_job(f, &m->up, m->up_b, f->xn, h, f->up, n_col, n_tok), col0, n_col);
}

/* The job of this rank's columns of f->branch, from the activations of all ranks. */
static nb_job down(const nb_cpu *f, const nb_mlp *m, size_t n_tok)
{
    const nb_rank_part *part = &f->r.part;
    const nb_job j = nb_cpu_job(f, &m->down, m->down_b, nb_cpu_whole(f, f->gate), m->down.n_col,
                                f->branch + part->out0, f->r.whole->hidden, n_tok);
    return nb_cpu_rows(j, part->out0, part->n_out);
}

/* f->gate = silu(gate x) * up x, columns [col0, col0 + n_col), for the activations in f->xn. */
static void dense(nb_cpu *f, const nb_mlp *m, size_t col0, size_t n_col, size_t n_tok)
{
    gate_up(f, m, col0, n_col, n_tok, f->job);
    nb_cpu_run_jobs(f, f->job, 2);
    swiglu(f, f->gate, f->up, n_tok, n_col);
}

typedef struct moe_ctx {
    nb_cpu *f;
    const nb_layer *l;
    bool shared; /* the shared experts too: f->branch */
} moe_ctx;

static moe_ctx moe_of(nb_cpu *f, size_t layer)
{
    const nb_layer *l = &f->r.o.model->layer[layer];
    return (moe_ctx){ f, l, !f->r.whole->dense[layer] && l->mlp.gate.data != NULL };
}

static void route_tokens(void *ctx, size_t t0, size_t t1)
{
    const moe_ctx *m = ctx;
    nb_cpu *f = m->f;
    const nb_model_config *c = f->r.whole;
    f->r.plan.route->fn(&(nb_route_args){ .id = f->r_id + t0 * c->top_k,
                                          .weight = f->r_weight + t0 * c->top_k,
                                          .logits = f->r_logits + t0 * nb_n_choice(c),
                                          .bias = m->l->router_b,
                                          .n_tok = t1 - t0,
                                          .n_expert = nb_n_choice(c),
                                          .top_k = c->top_k,
                                          .n_group = c->n_group,
                                          .topk_group = c->topk_group,
                                          .group_top = c->group_top,
                                          .sigmoid = c->sigmoid,
                                          .sqrt_softplus = c->sqrt_softplus,
                                          .given = m->l->hash != NULL,
                                          .normalise = c->normalise,
                                          .factor = c->routed_factor });
}

static void gather_tokens(void *ctx, size_t t0, size_t t1)
{
    const moe_ctx *m = ctx;
    nb_cpu *f = m->f;
    const size_t h = f->r.whole->hidden, k = f->r.whole->top_k, me = f->r.part.expert0;
    for (size_t i = t0 * k; i < t1 * k; i++) {
        float *to = f->r_id[i] < f->r.whole->n_expert ? f->e_x : f->e_y; /* the others give it back */
        if (f->e_slot[i] >= f->e_rank[me] && f->e_slot[i] < f->e_rank[me + 1])
            memcpy(to + f->e_slot[i] * h, f->xn + i / k * h, h * sizeof *f->xn);
    }
}

/* The experts that the tokens themselves name. */
static void look_up(moe_ctx *m, const nb_pass *p)
{
    const nb_model_config *c = m->f->r.whole;
    uint32_t *id = m->f->r_id;
    for (size_t i = 0; i < p->n_chunk; i++)
        for (size_t t = 0; t < p->chunk[i].n_tok; t++)
            for (size_t k = 0; k < c->top_k; k++)
                *id++ = m->l->hash[p->chunk[i].tok[t] * c->top_k + k];
}

/* Chooses experts, of the whole model. */
static void route(moe_ctx *m, const nb_pass *p)
{
    nb_cpu *f = m->f;
    const size_t n_tok = p->n_row;
    if (m->l->hash) look_up(m, p);
    const nb_model_config *c = f->r.whole;
    nb_job router =
        nb_cpu_job(f, &m->l->router, NULL, f->xn, c->hidden, f->r_logits, nb_n_choice(c), n_tok);
    router.v = f->r.plan.linear_float[m->l->router.type];
    nb_cpu_run_jobs(f, &router, 1);
    nb_cpu_tokens(f, route_tokens, m, n_tok);
}

/* Gives every (token, choice) a row, in the order of ranks, then of experts. */
static void order(moe_ctx *m, size_t n_tok)
{
    nb_cpu *f = m->f;
    const nb_model_config *c = f->r.whole;
    const size_t n_choice = nb_n_choice(c);
    memset(f->e_count, 0, (n_choice + 1) * sizeof *f->e_count);
    for (size_t i = 0; i < n_tok * c->top_k; i++) f->e_count[f->r_id[i]]++;
    const size_t step = f->r.part.expert_step;
    size_t at = 0;
    for (size_t k = 0; k < step; k++) {
        f->e_rank[k] = at;
        for (size_t e = k; e < n_choice; e += step) {
            f->e_first[e] = at;
            at += f->e_count[e];
        }
    }
    f->e_rank[step] = at;
    memset(f->e_count, 0, (n_choice + 1) * sizeof *f->e_count);
    for (size_t i = 0; i < n_tok * c->top_k; i++) {
        const uint32_t e = f->r_id[i];
        f->e_slot[i] = f->e_first[e] + f->e_count[e]++;
    }
    /* one token: all rows are x */
    if (n_tok > 1 || c->n_zero) nb_cpu_tokens(f, gather_tokens, m, n_tok);
}

/* Gate and up of this rank's experts and of the shared ones, side by side; then down, where the shared ones need not
 * wait for other ranks. */
static void products(moe_ctx *m, size_t n_tok)
{
    nb_cpu *f = m->f;
    const nb_layer *l = m->l;
    const nb_rank_part *part = &f->r.part;
    const size_t h = f->r.whole->hidden, mi = f->r.whole->moe_inter;
    const size_t e0 = part->expert0, end = f->r.whole->n_expert, step = part->expert_step;
    const size_t si = part->shared_inter;
    size_t n_job = 0, n_row = 0;
    for (size_t e = e0; e < end; e += step) {
        const size_t r = f->e_first[e], n = f->e_count[e];
        if (n == 0) continue;
        n_row += n;
        const nb_mlp *p = &l->expert[e];
        const float *ex = n_tok == 1 ? f->xn : f->e_x + r * h;
        f->job[n_job++] = nb_cpu_job(f, &p->gate, NULL, ex, h, f->e_gate + r * mi, mi, n);
        f->job[n_job++] = nb_cpu_job(f, &p->up, NULL, ex, h, f->e_up + r * mi, mi, n);
    }
    if (m->shared) {
        gate_up(f, &l->mlp, part->shared0, si, n_tok, f->job + n_job);
        n_job += 2;
    }
    nb_cpu_run_jobs(f, f->job, n_job);
    const size_t first = f->e_rank[e0] * mi;
    swiglu(f, f->e_gate + first, f->e_up + first, n_row, mi);
    if (m->shared) swiglu(f, f->gate, f->up, n_tok, si);
    n_job = 0;
    for (size_t e = e0; e < end; e += step) {
        const size_t r = f->e_first[e], n = f->e_count[e];
        if (n == 0) continue;
        f->job[n_job++] =
            nb_cpu_job(f, &l->expert[e].down, NULL, f->e_gate + r * mi, mi, f->e_y + r * h, h, n);
    }
    if (m->shared && !nb_rank_divided(&f->r)) f->job[n_job++] = down(f, &l->mlp, n_tok);
    nb_cpu_run_jobs(f, f->job, n_job);
}

/* This rank's columns of f->branch, from what dense made. */
static void finish(nb_cpu *f, const nb_mlp *m, size_t n_tok)
{
    nb_job j = down(f, m, n_tok);
    nb_cpu_run_jobs(f, &j, 1);
}

void nb_cpu_feed_forward(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    moe_ctx m = moe_of(f, layer);
    const nb_rank_part *part = &r->part;
    const bool share = r->o.data_parallel && m.shared;
    if (nb_layer_has_experts(r->whole, layer)) {
        route(&m, p);
        if (share) dense(f, &m.l->mlp, part->shared0, part->shared_inter, p->n_row);
        if (!r->o.data_parallel) order(&m, p->n_row);
        if (!r->o.data_parallel) products(&m, p->n_row);
    }
    if (r->whole->dense[layer]) dense(f, &m.l->mlp, part->inter0, part->inter, p->n_row);
}

/* This rank's columns of branch = sum over the choices in their order, then the shared expert (or the dense block at
 * the end of a shortcut), which is in branch. */
static void combine_tokens(void *ctx, size_t t0, size_t t1)
{
    const moe_ctx *m = ctx;
    const nb_cpu *f = m->f;
    const size_t h = f->r.whole->hidden, k = f->r.whole->top_k;
    const size_t first = f->r.part.out0, end = first + f->r.part.n_out;
    const bool shared = m->shared;
    enum { PART = 64 };
    for (size_t t = t0; t < t1; t++)
        for (size_t i0 = first; i0 < end; i0 += PART) {
            const size_t n = end - i0 < PART ? end - i0 : PART;
            float s[PART] = { 0 }, *y = f->branch + t * h + i0;
            for (size_t j = t * k; j < (t + 1) * k; j++) {
                const float w = f->r_weight[j], *e = f->e_y + f->e_slot[j] * h + i0;
                for (size_t i = 0; i < n; i++) s[i] += w * e[i];
            }
            for (size_t i = 0; i < n; i++) y[i] = shared ? s[i] + y[i] : s[i];
        }
}

void nb_cpu_combine(nb_rank *r, nb_pass *p, size_t layer)
{
    moe_ctx m = moe_of(nb_cpu_of(r), layer);
    const bool dense = r->whole->dense[layer];
    if (r->o.data_parallel && !dense) return; /* where they met */
    if (dense || (m.shared && nb_rank_divided(r))) finish(m.f, &m.l->mlp, p->n_row);
    m.shared |= dense;
    if (!dense || nb_layer_ends_shortcut(r->whole, layer))
        nb_cpu_tokens(m.f, combine_tokens, &m, p->n_row);
}

/* The choice was made elsewhere.  In blocks of the workspace's rows, which change no bit. */
void nb_cpu_experts_run(nb_rank *r, size_t layer, const nb_cpu_experts_args *a)
{
    nb_cpu *f = nb_cpu_of(r);
    const size_t h = r->whole->hidden, k = r->whole->top_k;
    float *const xn = f->xn, *const branch = f->branch;
    moe_ctx m = moe_of(f, layer);
    m.shared = false;
    for (size_t t = 0, n; t < a->n_row; t += n) {
        n = a->n_row - t < f->max_tok ? a->n_row - t : f->max_tok;
        memcpy(f->r_id, a->id + t * k, n * k * sizeof *f->r_id);
        memcpy(f->r_weight, a->weight + t * k, n * k * sizeof *f->r_weight);
        f->xn = (float *)(size_t)(const void *)(a->x + t * h); /* is only read */
        f->branch = a->y + t * h;
        order(&m, n);
        products(&m, n);
        nb_cpu_tokens(f, combine_tokens, &m, n);
    }
    f->xn = xn;
    f->branch = branch;
}

/* ---- data-parallel ranks: all compute their experts for the tokens of all ---- */

/* Some rows of the step, at most as many as the workspace has: rows [at[k], at[k + 1]) of the round are those of group k
 * from its row own[k] on.  A group is the ranks that have these rows, often one. */
typedef struct turn {
    size_t at[NB_COMM_MAX_RANK + 1], own[NB_COMM_MAX_RANK], n_group, me;
} turn;

static size_t within(size_t x, size_t lo, size_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Rows [t, t + n) of all, those of group 0 first. */
static turn turn_of(const nb_cpu *f, size_t t, size_t n)
{
    turn x = { .n_group = nb_rank_n_group(&f->r), .me = nb_rank_group(&f->r) };
    for (size_t k = 0, row0 = 0; k < x.n_group; row0 += f->r.share[k++].n_row) {
        const size_t end = row0 + f->r.share[k].n_row, a = within(t, row0, end), b = within(t + n, row0, end);
        x.own[k] = a - row0;
        x.at[k + 1] = x.at[k] + b - a;
    }
    return x;
}

/* all = the turn's rows of every group's `own`.  Of a group's ranks, which all have them, each gives to those with its
 * number in other groups. */
static bool gather_rows(nb_cpu *f, const turn *x, void *own, void *all, size_t row_bytes)
{
    nb_comm_block recv[NB_COMM_MAX_RANK] = { 0 };
    const size_t n = nb_rank_n_tensor(&f->r), mine = nb_rank_tensor_of(&f->r);
    const nb_comm_block send = { (char *)own + x->own[x->me] * row_bytes, x->at[x->me + 1] - x->at[x->me],
                                 row_bytes, row_bytes };
    for (size_t k = 0; k < x->n_group; k++)
        recv[k * n + mine] = (nb_comm_block){ (char *)all + x->at[k] * row_bytes, x->at[k + 1] - x->at[k], row_bytes,
                                              row_bytes };
    return nb_comm_gather(f->r.o.comm, &send, recv, NULL) == NB_OK;
}

static void pack_tokens(void *ctx, size_t t0, size_t t1)
{
    const nb_cpu *f = ((const moe_ctx *)ctx)->f;
    const size_t h = f->r.whole->hidden, k = f->r.whole->top_k;
    for (size_t i = t0 * k; i < t1 * k; i++)
        if (f->d_to[i] != SIZE_MAX)
            memcpy(f->e_x + f->d_to[i] * h, f->e_y + f->e_slot[i] * h, h * sizeof *f->e_x);
}

/* The outputs of this rank's experts go to the ranks whose rows they are, into their e_y, each by itself: rank 0's
 * experts' first, in the order of (row, choice).  Of a group's ranks each gets the columns that it adds up.  e_slot then
 * is of this rank's rows in the turn. */
static bool give_back(moe_ctx *m, const turn *x)
{
    nb_cpu *f = m->f;
    nb_comm *c = f->r.o.comm;
    const size_t h = f->r.whole->hidden, k = f->r.whole->top_k, row_bytes = h * sizeof *f->e_y;
    const size_t n_rank = nb_comm_n_rank(c), me = nb_comm_rank(c), n_in = nb_rank_n_tensor(&f->r);
    const uint32_t *mine = f->d_id + x->at[x->me] * k;
    const size_t n_mine = (x->at[x->me + 1] - x->at[x->me]) * k;
    nb_comm_block send[NB_COMM_MAX_RANK], recv[NB_COMM_MAX_RANK];
    size_t next[NB_COMM_MAX_RANK] = { 0 }, col[NB_COMM_MAX_RANK + 1], first = 0, n_send = 0, n_recv = 0;
    nb_cpu_cuts(f, h, col);
    for (size_t i = 0; i < n_mine; i++) next[mine[i] % n_rank]++;
    for (size_t r = 0; r < n_rank; r++) {
        const size_t group = r / n_in, part = r % n_in;
        if (part == 0) {
            first = n_send;
            for (size_t i = x->at[group] * k; i < x->at[group + 1] * k; i++)
                f->d_to[i] = f->d_id[i] % n_rank == me ? n_send++ : SIZE_MAX;
        }
        send[r] = (nb_comm_block){ f->e_x + first * h + col[part], n_send - first,
                                   (col[part + 1] - col[part]) * sizeof *f->e_x, row_bytes };
        recv[r] = (nb_comm_block){ f->e_y + n_recv * h + f->r.part.out0, next[r], f->r.part.n_out * sizeof *f->e_y,
                                   row_bytes };
        n_recv += next[r];
        next[r] = n_recv - next[r];
    }
    nb_cpu_tokens(f, pack_tokens, m, x->at[x->n_group]);
    for (size_t i = 0; i < n_mine; i++) f->e_slot[i] = next[mine[i] % n_rank]++;
    return nb_comm_exchange(c, send, recv, NULL) == NB_OK;
}

static bool take_turn(moe_ctx *m, const turn *x)
{
    nb_cpu *f = m->f;
    const size_t h = f->r.whole->hidden, k = f->r.whole->top_k, n = x->at[x->n_group];
    const size_t own = x->own[x->me], n_own = x->at[x->me + 1] - x->at[x->me];
    float *const xn = f->xn, *const branch = f->branch, *const weight = f->r_weight;
    uint32_t *const id = f->r_id;
    moe_ctx routed = *m;
    if (!gather_rows(f, x, xn, f->d_x, h * sizeof *xn)) return false;
    if (!gather_rows(f, x, id, f->d_id, k * sizeof *id)) return false;
    f->xn = f->d_x;
    f->r_id = f->d_id;
    routed.shared = false;
    order(&routed, n);
    products(&routed, n);
    f->xn = xn;
    f->r_id = id;
    if (!give_back(m, x)) return false;
    f->branch += own * h;
    f->r_weight += own * k;
    nb_cpu_tokens(f, combine_tokens, m, n_own);
    f->branch = branch;
    f->r_weight = weight;
    return true;
}

bool nb_cpu_share_experts(nb_cpu *f, size_t layer)
{
    moe_ctx m = moe_of(f, layer);
    size_t n_row = 0;
    for (size_t k = 0; k < nb_rank_n_group(&f->r); k++) n_row += f->r.share[k].n_row;
    const size_t n_own = f->r.share[nb_rank_group(&f->r)].n_row;
    if (m.shared && n_own) finish(f, &m.l->mlp, n_own);
    for (size_t t = 0, n; t < n_row; t += n) {
        n = n_row - t < f->max_tok ? n_row - t : f->max_tok;
        const turn x = turn_of(f, t, n);
        if (!take_turn(&m, &x)) return false;
    }
    return true;
}
