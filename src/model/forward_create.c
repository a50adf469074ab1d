/* forward_create.c - the workspace of the forward pass: sized once, from the model
 * and the largest step, with one table of buffers. */
#include <stdlib.h>

#include "model/forward_internal.h"

typedef struct slot {
    float **at;
    size_t n_floats;
} slot;

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Rounded to 64 bytes, so that every buffer starts on a cache line. */
static size_t slot_bytes(const slot *s)
{
    return (s->n_floats * sizeof(float) + 63) / 64 * 64;
}

static bool has_moe(const nb_model_config *c)
{
    for (size_t i = 0; i < c->n_layer; i++)
        if (!c->dense[i]) return true;
    return false;
}

static nb_status alloc_slots(nb_forward *f, const slot *s, size_t n, nb_error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += slot_bytes(&s[i]);
    f->work_bytes = bytes;
    f->work = nb_dev_alloc(f->o.dev, bytes);
    if (!f->work)
        return nb_fail(err, NB_ERR_NOMEM,
                       "no memory for a workspace of %zu MiB (a smaller prefill "
                       "chunk needs less)",
                       bytes >> 20);
    char *p = f->work;
    for (size_t i = 0; i < n; i++) {
        *s[i].at = (float *)(void *)p;
        p += slot_bytes(&s[i]);
    }
    return NB_OK;
}

static nb_status create_floats(nb_forward *f, nb_error *err)
{
    const nb_model_config *c = &f->o.model->c;
    const bool mla = c->attn == NB_ATTN_MLA, moe = has_moe(c);
    const size_t T = f->max_tok, P = f->max_page * NB_PAGE_TOK, nh = c->n_head, v = f->n_values;
    const size_t h = c->hidden, nw = nb_dev_n_worker(f->o.dev), Q = NB_PAGE_TOK;
    const size_t inter = max_size(c->inter, moe ? c->n_shared * c->moe_inter : 0);
    const size_t rows = moe ? T * c->top_k : 0, nv = c->d_nope + c->d_v, ex = mla ? 1 : 0;
    f->part_floats = Q * nh * f->d_state;
    const slot s[] = {
        { &f->h, T * h },
        { &f->xn, T * h },
        { &f->branch, T * h },
        { &f->qa, T * c->q_lora },
        { &f->q, T * nh * f->d_q },
        { &f->kv, T * v },
        { &f->attn, T * nh * f->d_o },
        { &f->cos_sin, T * c->rope.dim },
        { &f->raw, P * v },
        { &f->qx, ex * Q * nh * (c->kv_lora + c->d_rope) },
        { &f->part_o, f->part_floats },
        { &f->part_m, Q * nh },
        { &f->part_l, Q * nh },
        { &f->tot_o, Q * nh * f->d_state },
        { &f->tot_m, Q * nh },
        { &f->tot_l, Q * nh },
        { &f->t_score, nh * f->t_stride },
        { &f->t_lse, f->t_stride ? nh : 0 },
        { &f->t_best, f->t_stride },
        { &f->dec, ex * NB_SPLIT_TOK * v },
        { &f->exp_dec, ex * NB_SPLIT_TOK * nh * nv },
        { &f->exp_raw, ex * NB_SPLIT_TOK * nh * nv },
        { &f->eo, ex * T * nh * c->d_v },
        { &f->em, ex * T * nh },
        { &f->el, ex * T * nh },
        { &f->w_page, nw * Q * v },
        { &f->w_o, ex * nw * Q * nh * c->d_v },
        { &f->w_m, ex * nw * Q * nh },
        { &f->w_l, ex * nw * Q * nh },
        { &f->gate, T * inter },
        { &f->up, T * inter },
        { &f->e_x, rows * h },
        { &f->e_y, rows * h },
        { &f->e_gate, rows * c->moe_inter },
        { &f->e_up, rows * c->moe_inter },
        { &f->r_logits, moe ? T * c->n_expert : 0 },
        { &f->r_weight, rows },
    };
    return alloc_slots(f, s, NB_COUNT(s), err);
}

static nb_status create_small(nb_forward *f, nb_error *err)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t rows = f->max_tok * c->top_k;
    f->max_job = max_size(2 * c->n_expert + 2, max_size(c->n_head, 4));
    f->job = nb_arena_array(&f->arena, f->max_job, sizeof *f->job);
    f->page_bad = nb_arena_array(&f->arena, f->max_page, 1);
    f->chunk_bad = nb_arena_array(&f->arena, f->max_tok, 1);
    f->stage = nb_arena_array(&f->arena, f->max_page * NB_PAGE_TOK * f->n_values, sizeof *f->stage);
    f->r_id = nb_arena_array(&f->arena, rows, sizeof *f->r_id);
    f->e_slot = nb_arena_array(&f->arena, rows, sizeof *f->e_slot);
    f->e_count = nb_arena_array(&f->arena, c->n_expert + 1, sizeof *f->e_count);
    f->e_first = nb_arena_array(&f->arena, c->n_expert + 1, sizeof *f->e_first);
    f->t_pick = nb_arena_array(&f->arena, f->t_stride, sizeof *f->t_pick);
    f->t_row = nb_arena_array(&f->arena, f->t_stride, sizeof *f->t_row);
    f->t_first = nb_arena_array(&f->arena, f->t_stride / NB_PAGE_TOK + 1, sizeof *f->t_first);
    if (!f->t_pick || !f->t_row || !f->t_first || !f->job || !f->page_bad || !f->chunk_bad ||
        !f->stage || !f->r_id || !f->e_slot || !f->e_count || !f->e_first)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
    return NB_OK;
}

nb_status nb_forward_create(const nb_forward_options *o, nb_forward **out, nb_error *err)
{
    const nb_model_config *c = &o->model->c;
    nb_forward *f = calloc(1, sizeof *f);
    if (!f) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    f->o = *o;
    nb_plan_init(&f->plan, o->caps);
    const bool mla = c->attn == NB_ATTN_MLA;
    f->n_values = o->record->n_values;
    f->d_q = mla ? c->d_nope + c->d_rope : c->head_dim;
    f->d_o = mla ? c->d_v : c->head_dim;
    f->d_state = mla ? c->kv_lora : c->head_dim;
    f->max_tok = o->max_tok;
    if (mla && o->thrift.kind != NB_THRIFT_OFF)
        f->t_stride = (o->thrift.max_pos + NB_PAGE_TOK - 1) / NB_PAGE_TOK * NB_PAGE_TOK;
    f->max_page =
        (o->max_tok + NB_PAGE_TOK - 2) / NB_PAGE_TOK + 1; /* a chunk may start late in a page */
    nb_status st = create_floats(f, err);
    if (st == NB_OK) st = create_small(f, err);
    if (st != NB_OK) {
        nb_forward_destroy(f);
        return st;
    }
    *out = f;
    return NB_OK;
}

void nb_forward_destroy(nb_forward *f)
{
    if (!f) return;
    nb_dev_free(f->o.dev, f->work, f->work_bytes);
    nb_arena_deinit(&f->arena);
    free(f);
}

void *nb_forward_workspace(nb_forward *f, size_t *n_bytes)
{
    *n_bytes = f->work_bytes;
    return f->work;
}

size_t nb_forward_bytes(const nb_forward *f)
{
    return f->work_bytes + f->arena.used_bytes;
}

void nb_forward_set_trace(nb_forward *f, nb_trace_fn *trace, void *ctx)
{
    f->trace = trace;
    f->trace_ctx = ctx;
}

nb_thrift_count nb_forward_thrift_count(const nb_forward *f)
{
    return f->thrift_count;
}

const nb_plan *nb_forward_plan(const nb_forward *f)
{
    return &f->plan;
}

uint64_t nb_forward_saturated(const nb_forward *f)
{
    return atomic_load_explicit(&f->n_saturated, memory_order_relaxed);
}
