/* forward_create.c - the workspace of the forward pass: sized once, from the model
 * and the largest step, with one table of buffers. */
#include <stdlib.h>

#include "model/forward_internal.h"
#include "model/gpu_forward.h"

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

/* ---- packed activations ---- */

/* Whether a weight of this type is anywhere in the model. */
static bool uses_type(const nb_model *m, nb_wtype t)
{
    if (m->head.type == t) return true;
    for (size_t i = 0; i < m->c.n_layer; i++) {
        const nb_layer *l = &m->layer[i];
        const nb_weight *w[] = { &l->q_a,    &l->q_b,      &l->q,      &l->kv_a,
                                 &l->kv_b,   &l->k,        &l->v,      &l->o,
                                 &l->router, &l->mlp.gate, &l->mlp.up, &l->mlp.down };
        for (size_t k = 0; k < NB_COUNT(w); k++)
            if (w[k]->data && w[k]->type == t) return true;
        for (size_t e = 0; !m->c.dense[i] && e < m->c.n_expert; e++)
            if (l->expert[e].gate.type == t || l->expert[e].up.type == t ||
                l->expert[e].down.type == t)
                return true;
    }
    return false;
}

/* Most bytes that one call of nb_fw_run_jobs packs for products of this type. */
static size_t pack_bytes(const nb_forward *f, const nb_linear_variant *v)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t T = f->max_tok, nh = c->n_head, rows = has_moe(c) ? T * c->top_k : 0;
    /* an expert's rows are rounded up to NB_LINEAR_PACK_TOK */
    const size_t n_exp = rows < c->n_expert ? rows : c->n_expert;
    const size_t padded = rows + n_exp * (NB_LINEAR_PACK_TOK - 1) + NB_LINEAR_PACK_TOK;
    const size_t cols[] = { c->hidden, c->q_lora, nh * f->d_o, c->inter,
                            c->n_shared * c->moe_inter };
    size_t most = 0;
    for (size_t i = 0; i < NB_COUNT(cols); i++)
        most = max_size(most, cols[i] ? nb_fw_pack_bytes(v, T, cols[i]) : 0);
    if (c->attn == NB_ATTN_MLA) {
        const size_t page = nb_fw_pack_bytes(v, NB_PAGE_TOK, c->kv_lora);
        most = max_size(most, max_size(nh, NB_EX_SLOTS) * page); /* outputs, or a split's pages */
    }
    if (rows) {
        const size_t si = c->n_shared * c->moe_inter;
        const size_t up =
            nb_fw_pack_bytes(v, padded, c->hidden) + nb_fw_pack_bytes(v, T, c->hidden);
        const size_t down =
            nb_fw_pack_bytes(v, padded, c->moe_inter) + (si ? nb_fw_pack_bytes(v, T, si) : 0);
        most = max_size(most, max_size(up, down));
    }
    return most;
}

static void size_packs(nb_forward *f)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t per_job = f->max_tok / NB_TOK_BLOCK + 1;
    for (int t = 0; t < NB_W_TYPE_COUNT; t++) {
        const nb_linear_variant *v = f->plan.linear[t];
        if (v && v->pack && uses_type(f->o.model, (nb_wtype)t)) f->xp_bytes += pack_bytes(f, v);
    }
    /* every expert has an incomplete block of tokens, and they share the complete ones */
    f->max_pack = f->max_job + 4 * per_job + f->max_tok * c->top_k / NB_TOK_BLOCK;
}

/* ---- attention ---- */

static nb_status choose_attention(nb_forward *f, nb_error *err)
{
    const nb_model_config *c = &f->o.model->c;
    f->over_pages = nb_arena_array(&f->arena, c->n_layer, sizeof *f->over_pages);
    if (!f->over_pages) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
    if (c->attn != NB_ATTN_MLA) return NB_OK;
    const nb_attn_prefill_variant *v = f->plan.attn_prefill;
    f->ex_dims = (nb_attn_prefill_dims){ .d1 = c->d_nope, .d2 = c->d_rope, .d_v = c->d_v };
    f->ex_q_bytes = v->q_bytes(&f->ex_dims);
    f->ex_tile_bytes = v->kv_bytes(&f->ex_dims);
    f->w_scratch_bytes = v->scratch(&f->ex_dims);
    for (size_t i = 0; i < c->n_layer; i++) {
        f->over_pages[i] = nb_attn_pages_for(f->o.caps, &f->o.record[i]);
        if (!f->over_pages[i]) continue;
        f->w_scratch_bytes =
            max_size(f->w_scratch_bytes, f->over_pages[i]->scratch(&f->o.record[i]));
    }
    f->w_scratch_bytes = (f->w_scratch_bytes + 63) / 64 * 64;
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
    float *xp = NULL;
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
        { &f->part_o, NB_WAVE * nh * f->d_state },
        { &f->part_m, NB_WAVE * nh },
        { &f->part_l, NB_WAVE * nh },
        { &f->tot_o, Q * nh * f->d_state },
        { &f->tot_m, Q * nh },
        { &f->tot_l, Q * nh },
        { &f->t_score, nh * f->t_stride },
        { &f->t_lse, f->t_stride ? nh : 0 },
        { &f->t_best, f->t_stride },
        { &f->dec, ex * NB_SPLIT_TOK * v },
        { &f->ex_q, ex * f->max_page * nh * f->ex_q_bytes / sizeof(float) },
        { &f->ex_tile, ex * NB_EX_SLOTS * nh * f->ex_tile_bytes / sizeof(float) },
        { &f->eo, ex * T * nh * c->d_v },
        { &f->em, ex * T * nh },
        { &f->el, ex * T * nh },
        { &f->w_page, nw * Q * v },
        { &f->w_tile, ex * nw * Q * nv },
        { &f->w_o, ex * nw * Q * c->d_v },
        { &f->w_m, ex * nw * Q },
        { &f->w_l, ex * nw * Q },
        { &f->w_scratch, nw * f->w_scratch_bytes / sizeof(float) },
        { &f->gate, T * inter },
        { &f->up, T * inter },
        { &f->e_x, rows * h },
        { &f->e_y, rows * h },
        { &f->e_gate, rows * c->moe_inter },
        { &f->e_up, rows * c->moe_inter },
        { &f->r_logits, moe ? T * c->n_expert : 0 },
        { &f->r_weight, rows },
        { &xp, (f->xp_bytes + sizeof(float) - 1) / sizeof(float) },
    };
    NB_TRY(alloc_slots(f, s, NB_COUNT(s), err));
    f->xp = (char *)xp;
    return NB_OK;
}

static nb_status create_small(nb_forward *f, nb_error *err)
{
    const nb_model_config *c = &f->o.model->c;
    const size_t rows = f->max_tok * c->top_k;
    f->job = nb_arena_array(&f->arena, f->max_job, sizeof *f->job);
    f->pack = nb_arena_array(&f->arena, f->max_pack, sizeof *f->pack);
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
    if (!f->t_pick || !f->t_row || !f->t_first || !f->job || !f->pack || !f->page_bad ||
        !f->chunk_bad || !f->stage || !f->r_id || !f->e_slot || !f->e_count || !f->e_first)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
    return NB_OK;
}

static nb_status create_gpu(nb_forward *f, nb_forward **out, nb_error *err)
{
    const nb_status st = nb_gpu_forward_create(&f->o, &f->gpu, err);
    if (st == NB_OK)
        *out = f;
    else
        free(f);
    return st;
}

nb_status nb_forward_create(const nb_forward_options *o, nb_forward **out, nb_error *err)
{
    const nb_model_config *c = &o->model->c;
    nb_forward *f = calloc(1, sizeof *f);
    if (!f) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    f->o = *o;
    nb_plan_init(&f->plan, o->caps);
    if (o->gpu) return create_gpu(f, out, err);
    for (size_t i = 0; i < c->n_layer; i++)
        if (o->record[i].type == NB_KV_F32) nb_plan_init_exact(&f->plan, o->caps);
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
    f->max_job = max_size(2 * c->n_expert + 2, max_size(c->n_head, 4));
    size_packs(f);
    nb_status st = choose_attention(f, err);
    if (st == NB_OK) st = create_floats(f, err);
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
    nb_gpu_forward_destroy(f->gpu);
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
    return f->gpu ? nb_gpu_forward_bytes(f->gpu) : f->work_bytes + f->arena.used_bytes;
}

void nb_forward_set_trace(nb_forward *f, nb_trace_fn *trace, void *ctx)
{
    f->trace = trace;
    f->trace_ctx = ctx;
    if (f->gpu) nb_gpu_forward_set_trace(f->gpu, trace, ctx);
}

nb_thrift_count nb_forward_thrift_count(const nb_forward *f)
{
    return f->gpu ? nb_gpu_forward_thrift_count(f->gpu) : f->thrift_count;
}

const nb_plan *nb_forward_plan(const nb_forward *f)
{
    return &f->plan;
}

uint64_t nb_forward_saturated(const nb_forward *f)
{
    if (f->gpu) return nb_gpu_forward_saturated(f->gpu);
    return atomic_load_explicit(&f->n_saturated, memory_order_relaxed);
}

uint64_t nb_forward_pages_read(const nb_forward *f)
{
    return atomic_load_explicit(&f->n_page_read, memory_order_relaxed);
}

bool nb_forward_can_sample(const nb_forward *f)
{
    return f->gpu != NULL;
}

nb_status nb_forward_sample(nb_forward *f, const size_t *tok, const nb_cuda_sample_row *row,
                            size_t n, uint32_t *id, nb_error *err)
{
    NB_ASSERT(f->gpu);
    return nb_gpu_forward_sample(f->gpu, tok, row, n, id, err);
}

void nb_forward_describe(const nb_forward *f, char *buf, size_t n_bytes)
{
    if (f->gpu)
        nb_gpu_forward_describe(f->gpu, buf, n_bytes);
    else
        nb_plan_describe(&f->plan, buf, n_bytes);
}

uint64_t nb_forward_weight_bytes(const nb_forward *f)
{
    return f->gpu ? nb_gpu_forward_weight_bytes(f->gpu) : 0;
}
