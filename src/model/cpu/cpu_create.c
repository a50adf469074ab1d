/* cpu_create.c - the workspace of the CPU backend: sized once, from the model and the largest step, with one
 * table of buffers. */
#include <stdlib.h>

#include "model/attn_csa.h"
#include "model/cpu/cpu.h"
#include "model/cpu/cpu_state.h"
#include "model/kv_b.h"

enum { GATHER_ALIGN = 128 }; /* of a page */

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
        if (nb_layer_has_experts(c, i)) return true;
    return false;
}

static nb_status alloc_slots(nb_cpu *f, const slot *s, size_t n, nb_error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += slot_bytes(&s[i]);
    f->work_bytes = bytes;
    f->work = nb_dev_alloc(f->r.o.dev, bytes);
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

/* ---- types of weights ---- */

typedef struct type_search {
    nb_wtype type;
    bool found;
} type_search;

static nb_status look_at(void *ctx, const char *name, nb_weight *w)
{
    (void)name;
    type_search *t = ctx;
    t->found |= w->type == t->type;
    return NB_OK;
}

/* Whether a matrix of this type is anywhere in the layers or the head. */
static bool uses_type(const nb_model *m, nb_wtype type)
{
    type_search t = { type, false };
    nb_model view =
        *m; /* the walk hands out matrices that its caller may change; this one does not */
    (void)nb_model_each_matrix(&view, look_at, &t);
    for (size_t i = 0; i < m->c.n_layer; i++) {
        const nb_layer *l = &m->layer[i];
        const nb_weight *const also[] = { &l->router,    &l->absorb_k,     &l->absorb_v,     &l->index_w,
                                          &l->mix[0].fn, &l->mix[1].fn,    &l->comp.kv,      &l->comp.gate,
                                          &l->idx_w,     &l->idx_comp.kv,  &l->idx_comp.gate };
        for (size_t k = 0; k < NB_COUNT(also); k++)
            t.found |= also[k]->data && also[k]->type == type;
    }
    if (type == NB_W_F32) /* their expanded form is float */
        for (size_t i = 0; i < m->c.n_layer; i++) t.found |= nb_kv_b_in_halves(&m->layer[i]);
    return t.found;
}

/* ---- the widest layer ---- */

/* What a token takes, in the layer that takes most. */
typedef struct widths {
    size_t heads, q, o, state,
        values; /* query heads; all heads' queries, outputs, sums; cached row */
    size_t o_whole; /* outputs of all ranks' heads */
    size_t part_heads, part_state, page, q_whole; /* of a split's states; divided context: a page's bytes, all ranks' absorbed queries */
    size_t q_lora;
    bool expanded;            /* some attention has the expanded form; then: */
    size_t absorbed, kv_lora; /* all heads' absorbed queries; the latent, or what W_UK reads */
    size_t ex_q, ex_tile;     /* bytes of all heads' packed queries of a page, and of their tiles */
    size_t comp, icomp, n_group, group; /* CSA: of a token (nb_cpu_csa); groups' products, columns of one */
    size_t ex_o, d_v, keys_vals; /* all heads' outputs; a head's value; a head's key and value */
    size_t kv_b_head;            /* floats for a head's rows of kv_b, where these are in halves */
    size_t index_q, index_w, index_pack, topk; /* an indexer's; index_pack: bytes of a packed query */
} widths;

static void csa_widths(const nb_attn_config *a, widths *w)
{
    w->values = max_size(w->values, nb_csa_values(a)); /* of a window alone, too */
    if (a->ratio) w->comp = max_size(w->comp, 2 * nb_csa_width(a, a->head_dim));
    w->icomp = max_size(w->icomp, 2 * nb_csa_width(a, a->index_dim));
    w->group = max_size(w->group, a->n_head * a->head_dim / a->o_group);
    w->n_group = max_size(w->n_group, a->o_group);
}

static widths widths_of(const nb_cpu *f)
{
    const nb_rank *r = &f->r;
    widths w = { 0 };
    for (size_t i = 0; i < r->whole->n_layer; i++) {
        const nb_attn_dims *d = nb_rank_dims(r, i);
        const nb_attn_config *a = nb_rank_attn(r, i);
        const nb_cpu_expand *ex = &f->ex[r->whole->attn_of[i]];
        w.heads = max_size(w.heads, d->n_head);
        w.q = max_size(w.q, d->n_head * d->d_q);
        w.o = max_size(w.o, d->n_head * d->d_o);
        w.o_whole = max_size(w.o_whole, nb_layer_dims(r->whole, i).n_head * d->d_o);
        w.state = max_size(w.state, d->n_head * d->d_state);
        const bool divides = nb_rank_divides_context(r);
        const size_t n_part = divides ? nb_layer_dims(r->whole, i).n_head : d->n_head;
        w.part_heads = max_size(w.part_heads, n_part);
        w.part_state = max_size(w.part_state, n_part * d->d_state);
        if (divides) {
            w.page = max_size(w.page, (r->o.record[i].page_bytes + GATHER_ALIGN - 1) / GATHER_ALIGN * GATHER_ALIGN);
            w.q_whole = max_size(w.q_whole, n_part * d->n_values);
        }
        w.values = max_size(w.values, d->n_values);
        w.q_lora = max_size(w.q_lora, d->d_low);
        if (a->index_topk) {
            const size_t pack = r->plan.index_score->q_bytes(a->index_head, a->index_dim);
            w.index_q = max_size(w.index_q, a->index_head * a->index_dim);
            w.index_w = max_size(w.index_w, a->index_head);
            w.index_pack = max_size(w.index_pack, pack);
            w.topk = max_size(w.topk, a->index_topk);
        }
        if (a->kind == NB_ATTN_CSA) csa_widths(a, &w);
        if (!nb_attention_of(a->kind)->has_expanded) continue;
        w.expanded = true;
        w.absorbed = max_size(w.absorbed, d->n_head * d->n_values);
        w.kv_lora = max_size(w.kv_lora, max_size(a->kv_lora, a->d_nope));
        w.ex_q = max_size(w.ex_q, d->n_head * ex->q_bytes);
        w.ex_tile = max_size(w.ex_tile, d->n_head * ex->tile_bytes);
        w.ex_o = max_size(w.ex_o, d->n_head * a->d_v);
        w.d_v = max_size(w.d_v, a->d_v);
        w.keys_vals = max_size(w.keys_vals, a->d_nope + a->d_v);
        if (nb_kv_b_in_halves(&r->o.model->layer[i]))
            w.kv_b_head = max_size(w.kv_b_head, (nb_kv_b_head_floats(a) + 15) / 16 * 16);
    }
    return w;
}

/* ---- packed activations ---- */

/* Most bytes that one call of nb_cpu_run_jobs packs for products of this type. */
static size_t pack_bytes(const nb_cpu *f, const nb_linear_variant *v, const widths *w)
{
    const nb_model_config *c = f->r.whole;
    const size_t T = f->max_tok, rows = has_moe(c) ? T * c->top_k : 0;
    /* an expert's rows are rounded up to NB_LINEAR_PACK_TOK */
    const size_t n_exp = rows < c->n_expert ? rows : c->n_expert;
    const size_t padded = rows + n_exp * (NB_LINEAR_PACK_TOK - 1) + NB_LINEAR_PACK_TOK;
    const size_t si = c->n_shared * c->moe_inter,
                 cols[] = { nb_cpu_stream_width(c), w->q_lora, w->o_whole, c->inter, si };
    size_t most = 0;
    for (size_t i = 0; i < NB_COUNT(cols); i++)
        most = max_size(most, cols[i] ? nb_cpu_pack_bytes(v, T, cols[i]) : 0);
    if (w->n_group) most = max_size(most, w->n_group * nb_cpu_pack_bytes(v, T, w->group));
    if (w->expanded) {
        const size_t page = nb_cpu_pack_bytes(v, NB_PAGE_TOK, w->kv_lora);
        most = max_size(most,
                        max_size(w->heads, NB_EX_SLOTS) * page); /* outputs, or a split's pages */
    }
    if (rows) {
        const size_t up =
            nb_cpu_pack_bytes(v, padded, c->hidden) + nb_cpu_pack_bytes(v, T, c->hidden);
        const size_t down =
            nb_cpu_pack_bytes(v, padded, c->moe_inter) + (si ? nb_cpu_pack_bytes(v, T, si) : 0);
        most = max_size(most, max_size(up, down));
    }
    return most;
}

static void size_packs(nb_cpu *f, const widths *w)
{
    const size_t per_job = f->max_tok / NB_TOK_BLOCK + 1;
    for (int t = 0; t < NB_W_TYPE_COUNT; t++) {
        const nb_linear_variant *v = f->r.plan.linear[t];
        if (!uses_type(f->r.o.model, (nb_wtype)t)) continue;
        if (v->pack) f->xp_bytes += pack_bytes(f, v, w);
        if (f->r.plan.linear_float[t] != v && (has_moe(f->r.whole) || w->topk)) /* a router, an indexer's weights */
            f->xp_bytes = max_size(f->xp_bytes, nb_cpu_pack_bytes(f->r.plan.linear_float[t], f->max_tok,
                                                                  f->r.whole->hidden));
    }
    /* every expert has an incomplete block of tokens, and they share the complete ones */
    f->max_pack = f->max_job + 4 * per_job + f->max_tok * f->r.whole->top_k / NB_TOK_BLOCK;
}

/* ---- attention ---- */

/* What sparse attention adds to a worker's memory. */
static void size_sparse(nb_cpu *f, const nb_record *r)
{
    if (nb_record_can_move(r, 2))
        f->sparse.gather_bytes = max_size(f->sparse.gather_bytes, NB_ATTN_PAGES_MAX * r->page_bytes);
}

static nb_status choose_attention(nb_cpu *f, nb_error *err)
{
    const nb_rank *r = &f->r;
    const nb_attn_prefill_variant *v = r->plan.attn_prefill;
    const nb_caps may = r->o.caps & (r->o.levels ? r->o.levels->attn_pages : NB_CAPS_ALL);
    f->over_pages = nb_arena_array(&f->r.arena, r->whole->n_layer, sizeof *f->over_pages);
    if (!f->over_pages) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
    for (size_t i = 0; i < r->whole->n_layer; i++) {
        const nb_attn_config *a = nb_rank_attn(r, i);
        if (a->kind == NB_ATTN_KDA)
            f->w_scratch_bytes = max_size(f->w_scratch_bytes, nb_cpu_kda_scratch(a));
        if (a->index_topk)
            f->w_scratch_bytes =
                max_size(f->w_scratch_bytes, r->plan.index_score->scratch(a->index_head, a->index_dim));
        if (!nb_attn_is_latent(a)) continue;
        nb_cpu_expand *ex = &f->ex[r->whole->attn_of[i]];
        ex->dims = (nb_attn_prefill_dims){ .d1 = a->d_nope, .d2 = a->d_rope, .d_v = a->d_v };
        ex->q_bytes = v->q_bytes(&ex->dims);
        ex->tile_bytes = v->kv_bytes(&ex->dims);
        f->w_scratch_bytes = max_size(f->w_scratch_bytes, v->scratch(&ex->dims));
        f->over_pages[i] = nb_attn_pages_for(may, &r->o.record[i]);
        if (!f->over_pages[i]) continue;
        f->w_scratch_bytes =
            max_size(f->w_scratch_bytes, f->over_pages[i]->scratch(&r->o.record[i]));
        if (a->kind == NB_ATTN_DSA) size_sparse(f, &r->o.record[i]);
    }
    f->w_scratch_bytes = (f->w_scratch_bytes + 63) / 64 * 64;
    return NB_OK;
}

/* ---- buffers ---- */

static nb_status create_floats(nb_cpu *f, const widths *w, nb_error *err)
{
    const nb_model_config *c = f->r.whole;
    const bool moe = has_moe(c);
    const size_t T = f->max_tok, h = c->hidden, nh = w->heads, s_n = c->n_stream;
    const size_t nw = nb_dev_n_worker(f->r.o.dev), Q = NB_PAGE_TOK, ex = w->expanded ? 1 : 0;
    const size_t inter = max_size(f->r.part.inter, moe ? f->r.part.shared_inter : 0);
    const size_t rows = moe ? T * c->top_k : 0;
    const size_t whole =
        max_size(w->o_whole, max_size(c->inter, moe ? c->n_shared * c->moe_inter : 0));
    const size_t long_ctx = f->index.stride ? 1 : 0;
    float *xp = NULL, *chosen = NULL, *gather = NULL, *window = NULL;
    const slot s[] = {
        { &f->h, T * nb_cpu_stream_width(c) },
        { &f->stream_m, T * (2 + s_n) * s_n },
        { &f->stream_w, T * (1 + s_n) * s_n },
        { &f->csa.comp, T * w->comp },
        { &f->csa.icomp, T * w->icomp },
        { &f->csa.ones, f->csa.max_dim },
        { &f->csa.w_row, nw * NB_ATTN_TILE * f->csa.max_dim },
        { &f->csa.w_state, nw * f->csa.max_state },
        { &f->xn, T * h },
        { &f->branch, T * h },
        { &f->qa, T * w->q_lora },
        { &f->q, T * w->q },
        { &f->kv, T * w->values },
        { &f->attn, T * w->o },
        { &f->whole, nb_rank_divided(&f->r) ? T * whole : 0 },
        { &f->d_x, moe && f->r.o.data_parallel ? T * h : 0 },
        { &f->cos_sin[0], T * c->attn[0].rope.dim },
        { &f->cos_sin[1], T * c->attn[1].rope.dim },
        { &f->cos_sin[2], T * c->attn[2].rope.dim },
        { &f->cos_sin[3], T * c->attn[3].rope.dim },
        { &f->q_scale[0], c->attn[0].q_beta != 0 ? T : 0 },
        { &f->q_scale[1], c->attn[1].q_beta != 0 ? T : 0 },
        { &f->q_scale[2], c->attn[2].q_beta != 0 ? T : 0 },
        { &f->q_scale[3], c->attn[3].q_beta != 0 ? T : 0 },
        { &f->raw, f->max_raw * w->values },
        { &f->qx, Q * w->absorbed },
        { &f->part_o, NB_WAVE * w->part_state },
        { &f->part_m, 2 * NB_WAVE * w->part_heads },
        { &f->context.q, NB_DECODE_MAX * w->q_whole },
        { &window, w->page ? (NB_WINDOW_PAGES * w->page + GATHER_ALIGN) / sizeof(float) : 0 },
        { &f->tot_o, Q * w->state },
        { &f->tot_m, Q * nh },
        { &f->tot_l, Q * nh },
        { &f->t_score, nh * f->t_stride },
        { &f->t_lse, f->t_stride ? nh : 0 },
        { &f->t_best, f->t_stride },
        { &f->dec, ex * NB_SPLIT_TOK * w->values },
        { &f->ex_q, f->max_page * w->ex_q / sizeof(float) },
        { &f->ex_tile, NB_EX_SLOTS * w->ex_tile / sizeof(float) },
        { &f->eo, T * w->ex_o },
        { &f->em, ex * T * nh },
        { &f->el, ex * T * nh },
        { &f->w_page, nw * Q * w->values },
        { &f->w_tile, nw * Q * w->keys_vals },
        { &f->w_kv_b, nw * w->kv_b_head },
        { &f->w_o, nw * Q * w->d_v },
        { &f->w_m, ex * nw * Q },
        { &f->w_l, ex * nw * Q },
        { &f->w_scratch, nw * f->w_scratch_bytes / sizeof(float) },
        { &f->index.q, T * w->index_q },
        { &f->index.w, T * w->index_w },
        { &f->index.pack, long_ctx * NB_INDEX_QUERY * w->index_pack / sizeof(float) },
        { &f->index.score, NB_INDEX_QUERY * f->index.stride },
        { &chosen, long_ctx * T * w->topk },
        { &gather, (nw * f->sparse.gather_bytes + GATHER_ALIGN) / sizeof(float) },
        { &f->gate, T * inter },
        { &f->up, T * inter },
        { &f->e_x, rows * h },
        { &f->e_y, rows * h },
        { &f->e_gate, rows * c->moe_inter },
        { &f->e_up, rows * c->moe_inter },
        { &f->r_logits, moe ? T * nb_n_choice(c) : 0 },
        { &f->r_weight, rows },
        { &xp, (f->xp_bytes + sizeof(float) - 1) / sizeof(float) },
    };
    _Static_assert(NB_MAX_ATTN == 4, "cos_sin, q_scale");
    NB_TRY(alloc_slots(f, s, NB_COUNT(s), err));
    f->xp = (char *)xp;
    f->w_kv_b_floats = w->kv_b_head;
    f->index.chosen = (uint32_t *)(void *)chosen;
    f->sparse.gather = (unsigned char *)gather;
    f->sparse.gather += (GATHER_ALIGN - (uintptr_t)f->sparse.gather % GATHER_ALIGN) % GATHER_ALIGN;
    f->part_l = f->part_m + NB_WAVE * w->part_heads;
    f->context.page = (unsigned char *)window + (GATHER_ALIGN - (uintptr_t)window % GATHER_ALIGN) % GATHER_ALIGN;
    f->context.stride = w->page;
    for (size_t i = 0; i < f->csa.max_dim; i++) f->csa.ones[i] = 1;
    return NB_OK;
}

/* What nb_cpu_experts_run reads and writes. */
static nb_status create_experts(nb_cpu *f, nb_error *err)
{
    const nb_model_config *c = f->r.whole;
    const size_t rows = f->max_tok * c->top_k;
    float *xp = NULL;
    const slot s[] = {
        { &f->e_x, rows * c->hidden },
        { &f->e_y, rows * c->hidden },
        { &f->e_gate, rows * c->moe_inter },
        { &f->e_up, rows * c->moe_inter },
        { &f->r_weight, rows },
        { &xp, (f->xp_bytes + sizeof(float) - 1) / sizeof(float) },
    };
    NB_TRY(alloc_slots(f, s, NB_COUNT(s), err));
    f->xp = (char *)xp;
    return NB_OK;
}

static nb_status create_small(nb_cpu *f, nb_error *err)
{
    const nb_model_config *c = f->r.whole;
    nb_arena *a = &f->r.arena;
    const size_t rows = f->max_tok * c->top_k;
    f->job = nb_arena_array(a, f->max_job, sizeof *f->job);
    f->pack = nb_arena_array(a, f->max_pack, sizeof *f->pack);
    f->place = nb_arena_array(a, f->r.o.max_seq, sizeof *f->place);
    f->chunk_bad = nb_arena_array(a, f->r.o.max_seq, 1);
    f->head_bad = nb_arena_array(a, f->r.o.max_seq * f->max_head, 1);
    f->page = nb_arena_array(a, f->max_write, sizeof *f->page);
    f->page_bad = nb_arena_array(a, f->max_write, 1);
    f->r_id = nb_arena_array(a, rows, sizeof *f->r_id);
    f->e_slot = nb_arena_array(a, rows, sizeof *f->e_slot);
    const size_t shared = f->r.o.data_parallel ? rows : 0;
    f->d_id = nb_arena_array(a, shared, sizeof *f->d_id);
    f->d_to = nb_arena_array(a, shared, sizeof *f->d_to);
    if (!f->d_id || !f->d_to) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
    f->e_count = nb_arena_array(a, nb_n_choice(c) + 1, sizeof *f->e_count);
    f->e_first = nb_arena_array(a, nb_n_choice(c) + 1, sizeof *f->e_first);
    f->csa.bad = nb_arena_array(a, f->r.o.max_seq, 1);
    if (!f->csa.bad)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
    f->t_pick = nb_arena_array(a, f->t_stride, sizeof *f->t_pick);
    f->t_row = nb_arena_array(a, f->t_stride, sizeof *f->t_row);
    f->t_first = nb_arena_array(a, f->t_stride / NB_PAGE_TOK + 1, sizeof *f->t_first);
    if (!f->head_bad || !f->t_pick || !f->t_row || !f->t_first || !f->job || !f->pack ||
        !f->place || !f->page || !f->page_bad || !f->chunk_bad || !f->r_id || !f->e_slot ||
        !f->e_count || !f->e_first)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
    return NB_OK;
}

/* Chunks of a step and the pages they touch: a chunk that spans pages has two tokens at least, and up to 63
 * rows before its first. */
static void size_step(nb_cpu *f)
{
    const nb_rank_options *o = &f->r.o;
    const size_t spanning = o->max_seq < o->max_tok / 2 ? o->max_seq : o->max_tok / 2;
    f->max_tok = o->max_tok;
    f->max_page = (o->max_tok + NB_PAGE_TOK - 2) / NB_PAGE_TOK + 1;
    f->max_raw = o->max_tok + spanning * (NB_PAGE_TOK - 1);
    f->max_write = o->max_tok / NB_PAGE_TOK + 2 * o->max_seq;
}

static void size_csa(nb_cpu *f)
{
    nb_cpu_csa *x = &f->csa;
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        const nb_attn_config *a = nb_rank_attn(&f->r, i);
        if (a->kind != NB_ATTN_CSA) continue;
        x->max_dim = max_size(x->max_dim, max_size(a->head_dim, a->index_dim));
        x->max_state = max_size(x->max_state, a->n_head * (a->head_dim + 2));
    }
    x->max_state = (x->max_state + 15) / 16 * 16;
}

static void size_index(nb_cpu *f)
{
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        const nb_attn_config *a = nb_rank_attn(&f->r, i);
        const size_t n_key = a->index_topk ? nb_index_n_key(a, f->r.o.max_pos - 1) : 0;
        if (n_key > a->index_topk)
            f->index.stride = max_size(f->index.stride, (n_key + NB_PAGE_TOK - 1) / NB_PAGE_TOK * NB_PAGE_TOK);
    }
}

static nb_status create(nb_cpu *f, const nb_rank_options *o, bool experts, nb_error *err)
{
    NB_TRY(nb_rank_init(&f->r, &nb_backend_cpu, o, err));
    f->residual = nb_cpu_residual_of(f->r.whole);
    size_csa(f);
    for (size_t i = 0; i < f->r.whole->n_layer; i++)
        if (o->record[i].type == NB_KV_F32) nb_plan_init_exact(&f->r.plan, o->caps, &o->acts);
    size_step(f);
    if (o->levels) nb_plan_limit(&f->r.plan, o->levels);
    if (experts) {
        const widths none = { 0 };
        f->max_job = 2 * f->r.part.n_expert + 2;
        size_packs(f, &none);
        NB_TRY(create_experts(f, err));
        return create_small(f, err);
    }
    if (o->thrift.kind != NB_THRIFT_OFF && nb_attn_any(f->r.whole, NB_ATTN_MLA))
        f->t_stride = (o->thrift.max_pos + NB_PAGE_TOK - 1) / NB_PAGE_TOK * NB_PAGE_TOK;
    NB_TRY(choose_attention(f, err));
    const widths w = widths_of(f);
    size_index(f);
    f->max_values = w.values;
    f->max_head = w.heads;
    f->max_job = max_size(2 * f->r.part.n_expert + 2, max_size(w.heads, 8));
    size_packs(f, &w);
    NB_TRY(create_floats(f, &w, err));
    f->w_kv_b_of = nb_arena_array(&f->r.arena, nb_dev_n_worker(o->dev), sizeof *f->w_kv_b_of);
    if (!f->w_kv_b_of) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
    return create_small(f, err);
}

static nb_status make(const nb_rank_options *o, bool experts, nb_rank **out, nb_error *err)
{
    nb_cpu *f = calloc(1, sizeof *f);
    if (!f) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    const nb_status st = create(f, o, experts, err);
    if (st == NB_OK)
        *out = &f->r;
    else
        nb_cpu_destroy(&f->r);
    return st;
}

nb_status nb_cpu_create(const nb_rank_options *o, nb_rank **out, nb_error *err)
{
    return make(o, false, out, err);
}

nb_status nb_cpu_experts_create(const nb_rank_options *o, size_t max_row, nb_rank **out,
                                nb_error *err)
{
    nb_rank_options part = *o;
    part.max_tok = max_row;
    part.max_seq = 1;
    return make(&part, true, out, err);
}

void nb_cpu_destroy(nb_rank *r)
{
    nb_cpu *f = nb_cpu_of(r);
    nb_dev_free(r->o.dev, f->work, f->work_bytes);
    nb_rank_deinit(r);
    free(f);
}
