/* gpu_create.c - plans and allocates the forward pass on a GPU: everything once, from the model and
 * the largest step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/linear/tiled.h"
#include "model/gpu/gpu.h"
#include "model/kv_size.h"
#include "num/residual.h"

enum {
    ALIGN = 256,
    PAD_ROWS = 32,           /* a graph's rows are rounded up */
    PART_BYTES = 512 << 20,  /* of attention states in one pass, unless one query needs more */
    SCORE_BYTES = 256 << 20, /* of scores at once, in Thrift mode, unless one query needs more */
    WIDE_HEADS = 32          /* from here on half of the context is expanded at once */
};

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static size_t round8(size_t n)
{
    return (n + 7) / 8 * 8;
}

/* ---- what is refused ---- */

static nb_status no_latent(const nb_gpu *gpu, const nb_attn_config *a, nb_error *err)
{
    const nb_cuda_api *api = nb_gpu_api(gpu);
    nb_record r;
    nb_cuda_info info;
    NB_TRY(nb_kv_record(a, NB_KV_BF16, NB_ROPE_BF16, &r, err));
    if (a->kind == NB_ATTN_DSA) nb_record_cut(&r, 2, &r);
    api->get_info(nb_gpu_handle(gpu), &info);
    for (const nb_cuda_mla_row *row = api->mla; row->name; row++)
        if (row->cc <= info.cc && row->can(&r, a->n_head)) return NB_OK;
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   "the GPU has no attention over latents of %zu + %zu values with %zu heads",
                   a->kv_lora, a->d_rope, a->n_head);
}

static nb_status can_attend(const nb_attn_config *a, bool absorbed_only, nb_error *err)
{
    if (a->kind == NB_ATTN_GQA && a->head_dim > 256)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "heads of %zu values: a GPU has attention for at most 256", a->head_dim);
    if (a->kind == NB_ATTN_CSA) return nb_gpu_csa_can(a, err);
    if (a->kind == NB_ATTN_MLA && !absorbed_only && (a->d_v > 256 || a->d_nope + a->d_rope > 320))
        return nb_fail(
            err, NB_ERR_UNSUPPORTED,
            "heads of %zu + %zu and %zu values: a GPU has attention of prompts for at most 320 "
            "and 256 (use --mla absorbed)",
            a->d_nope, a->d_rope, a->d_v);
    return NB_OK;
}

nb_status nb_rank_can_on_gpus(const nb_model_config *c, bool absorbed_only, size_t n_rank, size_t n_tensor,
                              nb_error *err)
{
    for (size_t k = 0; k < c->n_attn; k++)
        if (!nb_backend_cuda.attn[c->attn[k].kind])
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: attention of kind %s is supported on the CPU only (--device cpu)",
                           c->family, nb_attention_of(c->attn[k].kind)->name);
    if (c->n_attn > 1 && !absorbed_only && !nb_attn_all(c, NB_ATTN_DSA) && !nb_attn_all(c, NB_ATTN_CSA))
        return nb_fail(
            err, NB_ERR_UNSUPPORTED,
            "layers of several kinds of attention: a GPU computes them with --mla absorbed only");
    for (size_t k = 0; k < c->n_attn; k++) NB_TRY(can_attend(&c->attn[k], absorbed_only, err));
    if (n_rank > NB_CUDA_MAX_RANK)
        return nb_fail(err, NB_ERR_RANGE, "%zu ranks: GPUs have at most %d", n_rank, NB_CUDA_MAX_RANK);
    if (n_tensor > 1 && n_tensor < n_rank)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--tensor-parallel-size %zu with --data-parallel-size %zu is supported on the CPU only; of GPUs one "
                       "of the two must be 1",
                       n_tensor, n_rank / n_tensor);
    for (size_t k = 0; n_tensor > 1 && k < c->n_attn; k++)
        if (!nb_attention_of(c->attn[k].kind)->divides)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: attention of kind %s is not divided among GPUs (--data-parallel-size has whole ones)",
                           c->family, nb_attention_of(c->attn[k].kind)->name);
    for (size_t i = 0; n_rank > 1 && i < c->n_layer; i++)
        if (c->n_zero || c->shortcut[i])
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: experts that give back what they read, or whose outputs a later layer adds, are computed "
                           "by one GPU only",
                           c->family);
    return NB_OK;
}

nb_status nb_rank_can_compute(const nb_gpu *gpu, const nb_model_config *c, bool absorbed_only,
                              nb_error *err)
{
    NB_TRY(nb_rank_can_on_gpus(c, absorbed_only, 1, 1, err));
    for (size_t k = 0; k < c->n_attn; k++)
        if (nb_attn_is_latent(&c->attn[k])) NB_TRY(no_latent(gpu, &c->attn[k], err));
    return NB_OK;
}

static nb_status refuse(const nb_rank_options *o, nb_error *err)
{
    const size_t n_rank = o->comm ? nb_comm_n_rank(o->comm) : 1, n_tensor = o->tensor ? nb_comm_n_rank(o->tensor) : 1;
    NB_TRY(nb_rank_can_on_gpus(&o->model->c, o->absorbed_only, n_rank, n_tensor, err));
    if (o->comm && (o->experts.n_host || o->experts.fit))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--cpu-experts: experts in host memory are for one rank only");
    if (o->n_sink)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--kv-sinks is supported on the CPU only (--device cpu)");
    if (o->thrift.kind != NB_THRIFT_OFF && o->thrift.kind != NB_THRIFT_TOKEN)
        return nb_fail(
            err, NB_ERR_UNSUPPORTED,
            "--kv-thrift %s is supported on the CPU only (--device cpu; on a GPU: token)",
            nb_thrift_name(o->thrift.kind));
    NB_TRY(nb_rank_can_compute(o->device->gpu, &o->model->c, o->absorbed_only, err));
    for (size_t i = 0; i < o->model->c.n_layer; i++)
        if (!nb_gpu_api(o->device->gpu)->can_cache(&o->record[i]))
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "layer %zu: a cache in %s is supported on the CPU only", i,
                           nb_kv_type_name(o->record[i].type));
    NB_ASSERT(o->max_seq > 0 && o->max_pos > 0 && o->max_tok > 0);
    return NB_OK;
}

/* ---- kernels of attention ---- */

bool nb_gpu_thrift_layer(const nb_gpu_rank *f, size_t layer)
{
    return f->thrift && nb_residual_possible(&f->r.o.record[layer]);
}

/* Whether the row fits the layer. */
static bool fits(const nb_gpu_rank *f, const nb_cuda_mla_row *r, size_t layer)
{
    const nb_record record = nb_gpu_attn_record(f, layer);
    if (r->cc > f->info.cc ||
        !r->can(&record, nb_layer_attn(f->r.whole, layer)->n_head))
        return false;
    return r->refines || !nb_gpu_thrift_layer(f, layer);
}

/* The set of layers that are cut like this; NB_GPU_SETS when there is no room for another. */
static size_t set_for(nb_gpu_rank *f, nb_cuda_units units, bool mla, size_t n_head)
{
    size_t s = 0;
    while (s < f->n_set &&
           (f->set[s].mla != mla || memcmp(&f->set[s].units, &units, sizeof units) != 0))
        s++;
    if (s == f->n_set && s < NB_GPU_SETS) f->set[f->n_set++] = (nb_gpu_set){ units, mla, n_head };
    return s;
}

static nb_status choose_layer(nb_gpu_rank *f, size_t i, nb_error *err)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, i);
    const bool mla = nb_attn_is_latent(attn);
    if (attn->kind == NB_ATTN_CSA) return nb_gpu_csa_choose(f, i, err);
    const nb_record record = nb_gpu_attn_record(f, i);
    const nb_cuda_mla_row *r = f->api->mla;
    while (mla && r->name && !fits(f, r, i)) r++;
    if (mla && !r->name)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "layer %zu: the GPU has no attention over %s pages of %zu + %zu values", i,
                       nb_kv_type_name(f->r.o.record[i].type), attn->kv_lora, attn->d_rope);
    if (mla && nb_rank_divided(&f->r) && !r->slices)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "layer %zu: %s attention computes the heads together, so %zu ranks would have other results", i,
                       r->name, nb_comm_n_rank(f->r.o.comm));
    if (mla && nb_rank_divided(&f->r) && !r->can(&record, attn->n_head))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "layer %zu: %s attention takes all %zu heads, but not the %zu of one of %zu ranks", i, r->name,
                       nb_layer_attn(f->r.whole, i)->n_head, attn->n_head, nb_comm_n_rank(f->r.o.comm));
    const size_t s = set_for(f, mla ? r->units : NB_CUDA_GQA_UNITS, mla, attn->n_head);
    if (s == NB_GPU_SETS)
        return nb_fail(
            err, NB_ERR_UNSUPPORTED,
            "the layers need attention kernels that cut the context in more than %d ways",
            NB_GPU_SETS);
    f->attn[i] = mla ? r : NULL;
    f->set_of[i] = (unsigned char)s;
    return NB_OK;
}

static nb_status choose_attention(nb_gpu_rank *f, nb_error *err)
{
    const size_t n_layer = f->r.whole->n_layer;
    f->attn = nb_arena_array(&f->r.arena, n_layer, sizeof *f->attn);
    f->set_of = nb_arena_array(&f->r.arena, n_layer, 1);
    if (!f->attn || !f->set_of) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n_layer; i++) NB_TRY(choose_layer(f, i, err));
    return nb_gpu_dsa_choose(f, err);
}

/* ---- gate and up in one ---- */

/* The halves of a matrix that is joined in the whole model; false: they are two matrices, or have a bias. */
static bool halves(const nb_gpu_group *g, nb_weight *gate, nb_weight *up)
{
    const nb_weight *w = &g->m[0].w;
    if (!g->joined || !w->data || g->m[0].bias) return false;
    if (g->n == 2) { /* a rank's parts, which do not fit below each other */
        *gate = g->m[0].w;
        *up = g->m[1].w;
        return true;
    }
    *gate = *up = *w;
    const size_t n = gate->n_row = up->n_row = w->n_row / 2;
    if (nb_wtype_is_packed(w->type)) {
        const nb_tiled t = { w->type, w->group.scale_type, true, true };
        up->data = (const char *)w->data + n * nb_tiled_code_bytes(&t, w->n_col);
        up->scale = w->scale + n;
        if (w->group.scale)
            up->group.scale = (const char *)w->group.scale + n * nb_tiled_scale_bytes(&t, w->n_col);
        if (w->group.zero) up->group.zero = w->group.zero + n * nb_tiled_zero_bytes(&t, w->n_col);
        return true;
    }
    up->data = (const char *)w->data + n * w->n_col * nb_wtype_bytes(w->type);
    if (w->type == NB_W_FP8B && w->row_scales)
        up->scale = w->scale + n;
    else if (w->type == NB_W_FP8B)
        up->scale = w->scale + div_up(gate->n_row, NB_FP8_BLOCK) * div_up(w->n_col, NB_FP8_BLOCK);
    return true;
}

static nb_status choose_glu(nb_gpu_rank *f, nb_error *err)
{
    const size_t n_layer = f->r.whole->n_layer;
    f->glu = nb_arena_array(&f->r.arena, n_layer, sizeof *f->glu);
    if (!f->glu) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n_layer; i++) {
        nb_gpu_glu *x = &f->glu[i];
        const nb_model_config *c = f->r.whole;
        if (!halves(&f->w.layer[i].gate_up, &x->gate, &x->up)) continue;
        x->n_whole = c->dense[i] ? c->inter : c->n_shared * c->moe_inter;
        const nb_cuda_experts_row *r = f->api->experts;
        while (r->name && (r->kind != NB_CUDA_DIRECT || r->cc > f->info.cc ||
                           !r->can(x->gate.type, x->n_whole, x->gate.n_col)))
            r++;
        /* the rows' floats are there where the products read them */
        if (r->name && (f->w.floats || !r->floats)) x->row = r;
    }
    return NB_OK;
}

/* ---- sections ---- */

static void *cut(size_t *at, char *base, size_t n_bytes)
{
    char *p = base + *at;
    *at += (n_bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

/* The same walk gives the sizes (base NULL) and both sets of pointers. */
static void lay_out(nb_gpu_stage *s, size_t n_set, char *base, nb_gpu_section *x)
{
    size_t at = 0;
    x->n_item = cut(&at, base, NB_GPU_SETS * sizeof *x->n_item);
    x->tok = cut(&at, base, s->max_row * sizeof *x->tok);
    x->pos = cut(&at, base, s->max_row * sizeof *x->pos);
    x->row_chunk = cut(&at, base, s->max_row * sizeof *x->row_chunk);
    x->rope_long = cut(&at, base, s->max_row);
    x->thrift = cut(&at, base, s->max_row);
    x->on = cut(&at, base, s->on_bytes);
    x->salt = cut(&at, base, sizeof *x->salt);
    for (size_t i = 0; i < n_set; i++)
        x->part_first[i] = cut(&at, base, (s->max_row + 1) * sizeof **x->part_first);
    x->chunk = cut(&at, base, s->max_chunk * sizeof *x->chunk);
    s->fixed_bytes = at;
    for (size_t i = 0; i < n_set; i++) {
        s->item_off[i] = at;
        x->item[i] = cut(&at, base, s->max_item * sizeof **x->item);
    }
    s->block_off = at;
    x->block = cut(&at, base, s->max_block * sizeof *x->block);
    s->n_bytes = at;
}

static nb_status create_stage(nb_gpu_rank *f, nb_gpu_stage *s, nb_error *err)
{
    static char origin; /* pointers of the first walk are not used */
    lay_out(s, f->n_set, &origin, &s->host);
    s->host_mem = f->api->host_alloc(f->g, s->n_bytes);
    s->dev_mem = f->api->alloc(f->g, s->n_bytes);
    if (!s->host_mem || !s->dev_mem)
        return nb_fail(err, NB_ERR_NOMEM, "no memory for the tables of a step (%zu KiB)",
                       s->n_bytes >> 10);
    memset(s->host_mem, 0, s->n_bytes);
    lay_out(s, f->n_set, s->host_mem, &s->host);
    lay_out(s, f->n_set, s->dev_mem, &s->dev);
    f->work_bytes += s->n_bytes;
    f->pinned_bytes += s->n_bytes;
    return NB_OK;
}

static nb_status create_stages(nb_gpu_rank *f, nb_error *err)
{
    const size_t blocks = f->r.o.max_seq * f->max_block;
    nb_gpu_stage *d = &f->stage[NB_CUDA_DIRECT], *p = &f->stage[NB_CUDA_PROMPT];
    *d = (nb_gpu_stage){ .max_row = f->D + PAD_ROWS,
                         .max_chunk = f->r.o.max_seq + PAD_ROWS,
                         .max_item = f->max_part,
                         .max_block = blocks };
    *p = (nb_gpu_stage){
        .max_row = f->T, .max_chunk = f->r.o.max_seq, .max_item = 1, .max_block = blocks
    };
    d->on_bytes = nb_gpu_share_on_bytes(f, d->max_row);
    if (f->direct) NB_TRY(create_stage(f, d, err));
    return f->prompt ? create_stage(f, p, err) : NB_OK;
}

/* ---- the widest layer ---- */

/* What a token takes, in the layer that takes most: all heads together. */
typedef struct widths {
    size_t heads, q, o, state, q_lora;
    size_t all_o; /* o of all ranks */
    size_t absorbed, nope, latent, v; /* MLA: absorbed queries; parts of queries; sums; outputs */
    bool mla, two_parts;
} widths;

static widths widths_of(const nb_gpu_rank *f)
{
    widths w = { 0 };
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        const nb_attn_dims *d = nb_rank_dims(&f->r, i);
        const nb_attn_config *a = nb_rank_attn(&f->r, i);
        w.heads = max_size(w.heads, d->n_head);
        w.q = max_size(w.q, d->n_head * d->d_q);
        w.o = max_size(w.o, d->n_head * d->d_o);
        w.all_o = max_size(w.all_o, nb_layer_dims(f->r.whole, i).n_head * d->d_o);
        w.state = max_size(w.state, d->n_head * d->d_state);
        if (a->kind == NB_ATTN_CSA) w.q_lora = max_size(w.q_lora, a->q_lora);
        if (!nb_attn_is_latent(a)) continue;
        w.mla = true;
        w.q_lora = max_size(w.q_lora, a->q_lora);
        w.absorbed = max_size(w.absorbed, d->n_head * (a->kv_lora + a->d_rope));
        w.nope = max_size(w.nope, d->n_head * a->d_nope);
        w.latent = max_size(w.latent, d->n_head * a->kv_lora);
        w.v = max_size(w.v, d->n_head * a->d_v);
        w.two_parts |= nb_gpu_in_two_parts(&f->r.o.model->layer[i].kv_b, a);
    }
    return w;
}

/* ---- buffers ---- */

enum { MAX_SLOTS = 100 };

typedef struct slots {
    nb_gpu_slot s[MAX_SLOTS];
    size_t n;
} slots;

static void want(slots *l, void *at, size_t n, size_t size)
{
    NB_ASSERT(l->n < MAX_SLOTS);
    l->s[l->n++] = (nb_gpu_slot){ at, (n * size + ALIGN - 1) / ALIGN * ALIGN };
}

/* Whether products of some kind read two parts. */
static bool two_parts(const nb_gpu_rank *f)
{
    return (f->direct && f->acts[NB_CUDA_DIRECT] == NB_ACT_FLOAT) ||
           (f->prompt && f->acts[NB_CUDA_PROMPT] == NB_ACT_FLOAT);
}

/* n rows that enter products: parts, and floats where some product reads these. */
static void want_rows(slots *l, const nb_gpu_rank *f, nb_cuda_rows *r, size_t n, size_t width)
{
    r->stride = round8(width);
    if (f->w.floats) want(l, &r->f, n * r->stride, sizeof(float));
    want(l, &r->hi, n * r->stride, 2);
    if (two_parts(f)) want(l, &r->lo, n * r->stride, 2);
}

static bool has_moe(const nb_model_config *c)
{
    for (size_t i = 0; i < c->n_layer; i++)
        if (nb_layer_has_experts(c, i)) return true;
    return false;
}

/* With experts in host memory the floats are there, and room for their choices behind them.  Routers and indexers read two parts. */
static void want_normalised(slots *l, nb_gpu_rank *f, size_t n)
{
    const size_t choice = f->w.host ? 2 * f->r.whole->top_k : 0;
    f->xn.stride = round8(f->r.whole->hidden);
    if (f->w.floats || f->w.host) want(l, &f->xn.f, n * (f->xn.stride + choice), sizeof(float));
    want(l, &f->xn.hi, n * f->xn.stride, 2);
    if (two_parts(f) || has_moe(f->r.whole) || f->sparse.any) want(l, &f->xn.lo, n * f->xn.stride, 2);
}

static void want_common(slots *l, nb_gpu_rank *f, const widths *w)
{
    const nb_model_config *c = f->r.whole;
    const nb_rank_part *part = &f->r.part;
    const bool moe = has_moe(c);
    nb_gpu_inputs *x = &f->x[0];
    const size_t R = max_size(f->prompt ? f->T : 0, f->direct ? f->D + PAD_ROWS : 0);
    const size_t inter = max_size(part->inter, moe ? part->shared_inter : 0);
    const size_t rows = moe ? (R + nb_gpu_share_rows(&f->r)) * c->top_k : 0;
    want(l, &f->h, f->h_rows * nb_gpu_h_width(f), sizeof(float));
    want(l, &f->branch, R * c->hidden, sizeof(float));
    want(l, &f->in, R * f->in_width, sizeof(float));
    for (size_t k = 0; k < c->n_attn; k++) {
        const size_t dim = c->attn[k].rope.dim;
        want(l, &f->cos_sin[k], R * dim, sizeof(float));
        if (c->attn[k].q_beta != 0) want(l, &f->q_scale[k], R, sizeof(float));
        want(l, &f->inv_freq[k], dim / 2, sizeof(float));
        want(l, &f->inv_freq_long[k], dim / 2, sizeof(float));
    }
    want(l, &f->gate_up, R * 2 * inter, sizeof(float));
    want_normalised(l, f, max_size(R, f->logit_rows));
    want_rows(l, f, &x->attn_y, R, w->o);
    want_rows(l, f, &x->act, R, inter);
    if (f->ranks.n > 1) want(l, &f->ranks.meeting, 1, sizeof *f->ranks.meeting);
    if (f->r.o.data_parallel && moe) {
        f->ranks.all.max_row[NB_CUDA_DIRECT] = R;
        f->ranks.all.max_row[NB_CUDA_PROMPT] = f->T;
        want_rows(l, f, &f->ranks.all.xn[0], R + nb_gpu_share_rows(&f->r), c->hidden);
        want(l, &f->ranks.all.id, rows, sizeof(uint32_t));
    }
    if (f->ranks.divided) {
        f->ranks.stride = round8(part->n_out);
        want_rows(l, f, &x->heads, R, w->all_o);
        want_rows(l, f, &x->hidden, R, max_size(c->inter, moe ? c->n_shared * c->moe_inter : 0));
        want(l, &f->ranks.out, R * f->ranks.stride, sizeof(float));
        want(l, &f->ranks.sum, R * f->ranks.stride, sizeof(float));
    }
    if (w->q_lora) {
        want_rows(l, f, &x->qa, R, w->q_lora);
        want(l, &f->q, R * w->q, sizeof(float));
    }
    if (moe) {
        want_rows(l, f, &x->e_act, rows, c->moe_inter);
        want(l, &f->e_y, rows * (f->w.apart ? max_size(c->hidden, nb_gpu_apart_width(c)) : c->hidden), sizeof(float));
        want(l, &f->r_logits, R * nb_n_choice(c), sizeof(float));
        want(l, &f->r_weight, rows, sizeof(float));
        want(l, &f->r_id, rows, sizeof(uint32_t));
        want(l, &f->r_src, rows, sizeof(uint32_t));
        want(l, &f->r_place, rows, sizeof(uint32_t));
        want(l, &f->r_first, nb_n_choice(c) + 1, sizeof(uint32_t));
    }
    want(l, &f->own, f->max_own * NB_PAGE_TOK * f->max_values, sizeof(float));
    want(l, &f->bad, f->r.o.max_tok + f->r.o.max_seq + PAD_ROWS, sizeof(uint32_t));
    want(l, &f->saturated, 1, sizeof(uint64_t));
    want(l, &f->logits, f->logit_rows * part->n_vocab, sizeof(float));
    want(l, &f->l_row, f->logit_rows, sizeof(uint32_t));
    want(l, &f->l_id, f->logit_rows, sizeof(uint32_t));
    want(l, &f->l_sample, f->logit_rows, sizeof *f->l_sample);
    want(l, &f->l_scratch, f->logit_rows, NB_CUDA_SAMPLE_SCRATCH(part->n_vocab));
}

static void want_thrift(slots *l, nb_gpu_rank *f, const widths *w)
{
    const size_t R = f->D + PAD_ROWS, nh = w->heads;
    if (!f->thrift) return;
    f->t_stride = f->max_block * NB_PAGE_TOK;
    f->t_rows = max_size(1, min_size(R, SCORE_BYTES / (nh * f->t_stride * sizeof(float))));
    f->pick.first_stride = f->max_block + 1;
    f->pick.tok_stride = max_size(1, nb_thrift_token_cap(f->r.o.thrift.fraction, f->t_stride));
    want(l, &f->pick.n, R, sizeof(uint32_t));
    want(l, &f->pick.first, R * f->pick.first_stride, sizeof(uint32_t));
    want(l, &f->pick.tok, R * f->pick.tok_stride, sizeof(uint32_t));
    want(l, &f->t_score, f->t_rows * nh * f->t_stride, sizeof(float));
    want(l, &f->t_best, f->t_rows * f->t_stride, sizeof(float));
    want(l, &f->t_lse, f->t_rows * nh, sizeof(float));
    want(l, &f->t_count, NB_GPU_COUNTS, sizeof(uint64_t));
}

/* Of the layer's attention over pages, for n rows. */
static size_t scratch_of(const nb_gpu_rank *f, size_t layer, size_t n)
{
    const nb_record r = nb_gpu_attn_record(f, layer);
    return f->attn[layer]->scratch(&r, nb_rank_dims(&f->r, layer)->n_head, n);
}

static void want_direct(slots *l, nb_gpu_rank *f, const widths *w)
{
    const size_t R = f->D + PAD_ROWS;
    size_t scratch = 0;
    if (!f->direct) return;
    want(l, &f->part_o, f->max_part * w->state, sizeof(float));
    want(l, &f->part_m, f->max_part * w->heads, sizeof(float));
    want(l, &f->part_l, f->max_part * w->heads, sizeof(float));
    if (!w->mla) return;
    want(l, &f->qx, R * w->absorbed, sizeof(float));
    want_rows(l, f, &f->x[0].q_nope, R, w->nope);
    want_rows(l, f, &f->x[0].u, R, w->latent);
    for (size_t i = 0; i < f->r.whole->n_layer; i++)
        if (f->attn[i])
            scratch = max_size(
                scratch, scratch_of(f, i, R));
    want(l, &f->attn_scratch, scratch, 1);
    if (w->two_parts) want(l, &f->unabsorbed, R * w->v, sizeof(float));
}

static void want_streams(slots *l, nb_gpu_rank *f)
{
    const size_t s = f->r.whole->n_stream, n = max_size(max_size(f->prompt ? f->T : 0, f->D + PAD_ROWS), f->logit_rows);
    if (!s) return;
    want(l, &f->stream_w, n * (s + s * s), sizeof(float));
    want(l, &f->stream_part, n * NB_CUDA_MIX_SLICES(f->r.whole->hidden) * NB_CUDA_MIX_SUMS(s), sizeof(float));
}

static void want_compressed(slots *l, nb_gpu_rank *f)
{
    nb_gpu_slot s[NB_GPU_CSA_SLOTS];
    const size_t rows = max_size(f->prompt ? f->T : 0, f->D + PAD_ROWS);
    const size_t n = nb_gpu_csa_slots(f, rows, s);
    for (size_t i = 0; i < n; i++) want(l, s[i].at, s[i].n_bytes, 1);
    if (n) want_rows(l, f, &f->csa.y, rows, f->csa.out_width);
}

static void want_sparse(slots *l, nb_gpu_rank *f)
{
    nb_gpu_slot s[NB_GPU_DSA_SLOTS];
    const size_t n = nb_gpu_dsa_slots(f, max_size(f->prompt ? f->T : 0, f->D + PAD_ROWS), s);
    for (size_t i = 0; i < n; i++) want(l, s[i].at, s[i].n_bytes, 1);
}

/* One kind of attention in all layers: nb_rank_can_compute.  Sparse attention has no expanded form. */
static void want_prompt(slots *l, nb_gpu_rank *f)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, 0);
    const size_t nh = attn->n_head, own = (f->T / NB_PAGE_TOK + 2) * NB_PAGE_TOK;
    const size_t width = round8(nh * (attn->d_nope + attn->d_v));
    if (!f->prompt || f->sparse.any || f->csa.any) return;
    want_rows(l, f, &f->x[0].lat, max_size(own, f->span_tok), attn->kv_lora);
    f->rope.stride = f->rope_own.stride = round8(attn->d_rope);
    want(l, &f->rope.hi, f->span_tok * f->rope.stride, 2);
    want(l, &f->rope_own.hi, own * f->rope.stride, 2);
    want(l, &f->kv_ctx, f->span_tok * width, 2);
    want(l, &f->kv_own, own * width, 2);
    want(l, &f->pm, f->T * nh, sizeof(float));
    want(l, &f->pl, f->T * nh, sizeof(float));
    want(l, &f->po, f->T * nh * attn->d_v, sizeof(float));
}

/* The buffers as the products of a kind read them. */
static nb_gpu_inputs inputs_of(const nb_gpu_rank *f, nb_cuda_kind kind)
{
    nb_gpu_inputs x = f->x[0];
    nb_cuda_rows *const all[] = { &x.xn,     &x.qa,  &x.q_nope, &x.u,
                                  &x.attn_y, &x.act, &x.e_act,  &x.lat,
                                  &x.heads,  &x.hidden };
    x.xn = f->xn;
    if (!f->ranks.divided) {
        x.heads = x.attn_y;
        x.hidden = x.act;
    }
    for (size_t i = 0; i < NB_COUNT(all) && f->acts[kind] != NB_ACT_FLOAT; i++) all[i]->lo = NULL;
    return x;
}

/* The largest x of a prompt's products, as codes. */
static void want_codes(slots *l, nb_gpu_rank *f, const widths *w)
{
    const nb_model_config *c = f->r.whole;
    const nb_gpu_inputs *x = &f->x[0];
    const size_t places = has_moe(c) ? (f->T + nb_gpu_share_rows(&f->r)) * c->top_k : 0;
    if (!f->prompt || f->acts[NB_CUDA_PROMPT] != NB_ACT_FP8) return;
    size_t width = max_size(max_size(max_size(w->all_o, w->q_lora), f->csa.out_width),
                            max_size(f->xn.stride, max_size(x->act.stride, x->hidden.stride)));
    size_t n = (f->T + nb_gpu_share_rows(&f->r)) * div_up(width, 128); /* groups */
    n = max_size(n, places * div_up(c->moe_inter, 128));
    n = max_size(n, max_size((f->T / NB_PAGE_TOK + 2) * NB_PAGE_TOK, f->span_tok) * div_up(x->lat.stride, 128));
    want(l, &f->xq.q, n, 128);
    want(l, &f->xq.s, n, sizeof(float));
}

static nb_status allocate(nb_gpu_rank *f, const widths *w, nb_error *err)
{
    slots l = { .n = 0 };
    size_t n_bytes = 0;
    want_common(&l, f, w);
    want_direct(&l, f, w);
    want_thrift(&l, f, w);
    want_sparse(&l, f);
    want_streams(&l, f);
    want_compressed(&l, f);
    want_prompt(&l, f);
    want_codes(&l, f, w);
    for (size_t i = 0; i < l.n; i++) n_bytes += l.s[i].n_bytes;
    f->work = f->api->alloc(f->g, n_bytes);
    if (!f->work)
        return nb_fail(err, NB_ERR_NOMEM,
                       "the GPU has no memory for a workspace of %zu MiB (a smaller "
                       "--max-num-batched-tokens needs less)",
                       n_bytes >> 20);
    f->work_bytes += n_bytes;
    char *p = f->work;
    for (size_t i = 0; i < l.n; i++) {
        memcpy(l.s[i].at, &p, sizeof p); /* pointers to other types */
        p += l.s[i].n_bytes;
    }
    f->api->fill(f->g, f->work, 0, n_bytes);
    for (size_t k = 2; k-- > 0;) {
        f->x[k] = inputs_of(f, (nb_cuda_kind)k);
        f->ranks.all.xn[k] = f->ranks.all.xn[0];
        if (f->acts[k] != NB_ACT_FLOAT) f->ranks.all.xn[k].lo = NULL;
    }
    return NB_OK;
}

/* ---- host memory ---- */

static nb_status create_host(nb_gpu_rank *f, nb_error *err)
{
    const size_t n_bad = f->r.o.max_tok + f->r.o.max_seq + PAD_ROWS, parts = f->r.o.max_seq + 1;
    f->which = nb_arena_array(&f->r.arena, parts, sizeof *f->which);
    f->tok0 = nb_arena_array(&f->r.arena, parts, sizeof *f->tok0);
    f->n_tok = nb_arena_array(&f->r.arena, parts, sizeof *f->n_tok);
    f->row_of = nb_arena_array(&f->r.arena, f->r.o.max_tok, sizeof *f->row_of);
    f->bad_of = nb_arena_array(&f->r.arena, n_bad, sizeof *f->bad_of);
    f->group = nb_arena_array(&f->r.arena, f->D, sizeof *f->group);
    f->h_bad = f->api->host_alloc(f->g, n_bad * sizeof *f->h_bad);
    f->h_row = f->api->host_alloc(f->g, f->logit_rows * sizeof *f->h_row);
    f->h_id = f->api->host_alloc(f->g, f->logit_rows * sizeof *f->h_id);
    f->h_sample = f->api->host_alloc(f->g, f->logit_rows * sizeof *f->h_sample);
    f->h_saturated = f->api->host_alloc(f->g, sizeof *f->h_saturated);
    f->h_count = f->api->host_alloc(f->g, NB_GPU_COUNTS * sizeof *f->h_count);
    if (!f->which || !f->tok0 || !f->n_tok || !f->row_of || !f->bad_of || !f->group || !f->h_bad ||
        !f->h_row || !f->h_id || !f->h_sample || !f->h_saturated || !f->h_count)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the workspace");
    *f->h_saturated = 0;
    memset(f->h_count, 0, NB_GPU_COUNTS * sizeof *f->h_count);
    return NB_OK;
}

/* ---- sizes ---- */

static void size(nb_gpu_rank *f, const widths *w)
{
    size_t states = 1;
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        f->max_values = max_size(f->max_values, nb_rank_dims(&f->r, i)->n_values);
        f->in_width = max_size(f->in_width, f->w.layer[i].in.width);
    }
    f->max_block = div_up(f->r.o.max_pos, NB_PAGE_TOK);
    f->T = f->csa.any ? min_size(f->r.o.max_tok, NB_GPU_CSA_TOK) : f->r.o.max_tok;
    f->D = max_size(f->r.o.max_seq, min_size(f->T, NB_GPU_DIRECT_TOK));
    f->h_rows = f->r.o.max_tok + PAD_ROWS + (f->r.o.data_parallel ? f->D : 0); /* a graph has another rank's rows */
    nb_gpu_index_size(f);
    const size_t sparse = nb_gpu_dsa_states(f), compressed = nb_gpu_csa_states(f);
    for (size_t i = 0; i < f->n_set; i++)
        states = max_size(states, nb_cuda_n_unit(f->set[i].units, f->max_block) + 1);
    if (sparse) states = sparse;
    if (compressed) states = compressed;
    const size_t fit = PART_BYTES / (w->state * sizeof(float));
    f->max_part = max_size(states, min_size(fit, (f->D + PAD_ROWS) * states));
    f->max_own = f->T / NB_PAGE_TOK + 2 * min_size(f->r.o.max_seq, f->T / 2 + 1) + 2;
    f->span_tok = w->heads > WIDE_HEADS ? NB_GPU_SPAN_TOK / 2 : NB_GPU_SPAN_TOK;
    f->logit_rows = min_size(f->r.o.max_tok, NB_GPU_LOGIT_ROWS);
    nb_gpu_dsa_size(f);
    nb_gpu_csa_size(f);
}

static void upload_frequencies(nb_gpu_rank *f)
{
    for (size_t k = 0; k < f->r.whole->n_attn; k++) {
        const nb_rope_config *r = &f->r.whole->attn[k].rope;
        const size_t n_bytes = r->dim / 2 * sizeof *r->inv_freq;
        f->api->upload(f->g, f->inv_freq[k], r->inv_freq, n_bytes);
        f->api->upload(f->g, f->inv_freq_long[k], r->inv_freq_long, n_bytes);
    }
}

/* ---- experts in host memory ---- */

static nb_status create_graphs(nb_gpu_rank *f, nb_error *err)
{
    f->max_seg = 1;
    for (size_t i = 0; i < f->r.whole->n_layer; i++) f->max_seg += nb_gpu_is_host(f, i) ? 2 : 0;
    for (size_t i = 0; i < NB_GPU_GRAPHS; i++) {
        f->graph[i].seg = nb_arena_array(&f->r.arena, f->max_seg, sizeof(nb_cuda_graph *));
        if (!f->graph[i].seg) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    }
    return NB_OK;
}

/* With `fit` first all experts are tried, since then no buffers for the host's are needed. */
static nb_status place_experts(nb_gpu_rank *f, nb_error *err)
{
    const nb_expert_place *place = &f->r.o.experts;
    const nb_model *m = f->r.o.model;
    const size_t rows = max_size(f->prompt ? f->T : 0, f->D + PAD_ROWS);
    if (f->w.host && place->fit) NB_TRY(nb_gpu_weights_fit(&f->w, m, place->leave_bytes, true, err));
    if (f->w.host) NB_TRY(nb_gpu_host_create(f, rows, err));
    if (f->w.host && place->fit) NB_TRY(nb_gpu_weights_fit(&f->w, m, place->leave_bytes, false, err));
    return create_graphs(f, err);
}

/* docs/decisions/045.  An f32 cache keeps floats unless others are asked for. */
static void choose_acts(nb_gpu_rank *f)
{
    const nb_acts *a = &f->r.o.acts;
    bool exact = false;
    for (size_t i = 0; i < f->r.whole->n_layer; i++) exact |= f->r.o.record[i].type == NB_KV_F32;
    const nb_act asked = a->asked ? a->of[NB_W_BF16] : NB_ACT_FLOAT;
    const bool fp8 = asked == NB_ACT_FP8, bf16 = fp8 || asked == NB_ACT_BF16;
    f->acts[NB_CUDA_DIRECT] = bf16 ? NB_ACT_BF16 : NB_ACT_FLOAT;
    f->acts[NB_CUDA_PROMPT] = fp8                              ? NB_ACT_FP8
                              : bf16 || (!a->asked && !exact) ? NB_ACT_BF16
                                                              : NB_ACT_FLOAT;
}

static nb_status can_codes(const nb_gpu_rank *f, nb_error *err)
{
    const nb_cuda_linear_row *r = f->api->linear;
    if (f->acts[NB_CUDA_PROMPT] != NB_ACT_FP8) return NB_OK;
    while (r->name && (!r->codes || r->cc > f->info.cc)) r++;
    return r->name ? NB_OK
                   : nb_fail(err, NB_ERR_UNSUPPORTED,
                             "--activation-dtype fp8: %s has no product in FP8 (Hopper GPUs have)",
                             f->info.name);
}

static nb_status create(nb_gpu_rank *f, const nb_rank_options *o, nb_error *err)
{
    const bool mla = nb_attn_any(&o->model->c, NB_ATTN_MLA), dsa = nb_attn_any(&o->model->c, NB_ATTN_DSA),
               csa = nb_attn_any(&o->model->c, NB_ATTN_CSA);
    f->direct = true; /* logits, and what is generated */
    f->prompt = (mla || dsa || csa) && !o->absorbed_only;
    f->thrift = mla && o->thrift.kind == NB_THRIFT_TOKEN;
    NB_TRY(nb_rank_init(&f->r, &nb_backend_cuda, o, err));
    NB_TRY(refuse(&f->r.o, err));
    choose_acts(f);
    NB_TRY(can_codes(f, err));
    NB_TRY(choose_attention(f, err));
    NB_TRY(nb_gpu_ranks_create(f, err));
    NB_TRY(nb_gpu_weights_init(&f->w, o->model, &f->r.part, o->device->gpu, f->r.o.dev, f->direct,
                               f->prompt, f->acts[NB_CUDA_PROMPT] == NB_ACT_FP8, &o->experts, err));
    NB_TRY(choose_glu(f, err));
    const widths w = widths_of(f);
    size(f, &w);
    NB_TRY(create_stages(f, err));
    NB_TRY(allocate(f, &w, err));
    NB_TRY(nb_gpu_dsa_create(f, err));
    NB_TRY(create_host(f, err));
    NB_TRY(place_experts(f, err));
    upload_frequencies(f);
    return f->api->sync(f->g, err);
}

nb_status nb_gpu_create(const nb_rank_options *o, nb_rank **out, nb_error *err)
{
    nb_gpu_rank *f = calloc(1, sizeof *f);
    if (!f) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    f->api = nb_gpu_api(o->device->gpu);
    f->g = nb_gpu_handle(o->device->gpu);
    f->api->get_info(f->g, &f->info);
    const nb_status st = create(f, o, err);
    if (st == NB_OK)
        *out = &f->r;
    else
        nb_gpu_destroy(&f->r);
    return st;
}

void nb_gpu_destroy(nb_rank *r)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    nb_gpu_drop_graphs(f);
    nb_gpu_host_destroy(f);
    for (size_t k = 0; k < 2; k++) {
        f->api->host_free(f->g, f->stage[k].host_mem);
        f->api->free(f->g, f->stage[k].dev_mem);
    }
    nb_gpu_ranks_destroy(f);
    f->api->free(f->g, f->work);
    f->api->host_free(f->g, f->h_bad);
    f->api->host_free(f->g, f->h_row);
    f->api->host_free(f->g, f->h_id);
    f->api->host_free(f->g, f->h_sample);
    f->api->host_free(f->g, f->h_saturated);
    f->api->host_free(f->g, f->h_count);
    if (f->w.gpu) nb_gpu_weights_deinit(&f->w);
    nb_rank_deinit(r);
    free(f);
}

/* ---- what it is ---- */

/* Of the first layer's in host memory. */
static nb_wtype host_type(const nb_gpu_rank *f)
{
    size_t i = 0;
    while (!nb_gpu_is_host(f, i)) i++;
    return f->r.o.model->layer[i].expert[0].gate.type;
}

/* What products of the row make of activations: as in nb_plan_describe. */
static const char *form_of(const nb_gpu_rank *f, const nb_cuda_linear_row *r)
{
    if (r->codes) return "+fp8";
    return r->floats || f->acts[r->kind] == NB_ACT_FLOAT ? "" : "+bf16";
}

void nb_gpu_describe(const nb_rank *r, char *buf, size_t n_bytes)
{
    const nb_gpu_rank *f = (const nb_gpu_rank *)(const void *)r;
    const nb_gpu_layer *l = &f->w.layer[f->r.whole->n_layer - 1];
    const size_t last = f->r.whole->n_layer - 1;
    size_t at = (size_t)snprintf(buf, n_bytes, "%s: linear=%s%s", f->info.name, l->o.row[0]->name,
                                 form_of(f, l->o.row[0]));
    if (f->prompt && at < n_bytes)
        at += (size_t)snprintf(buf + at, n_bytes - at, " linear_prompt=%s%s", l->o.row[1]->name,
                               form_of(f, l->o.row[1]));
    uint64_t host_bytes;
    const size_t n_host = nb_gpu_host_layers(r, &host_bytes);
    if (n_host && at < n_bytes)
        at += (size_t)snprintf(buf + at, n_bytes - at, " cpu_experts=%zu layers, %s", n_host,
                               nb_rank_plan(f->host.cpu)->linear[host_type(f)]->name);
    if (l->expert.n_run && !l->host && at < n_bytes)
        at += (size_t)snprintf(buf + at, n_bytes - at, " experts=%s", l->expert.run->row[NB_GPU_GATE][0]->name);
    if (f->csa.any && at < n_bytes)
        (void)snprintf(buf + at, n_bytes - at, " attn_%s=%s", nb_kv_type_name(f->r.o.record[last].type),
                       f->csa.row[last]->name);
    if (f->attn[last] && at < n_bytes)
        (void)snprintf(buf + at, n_bytes - at, " attn_%s=%s",
                       nb_kv_type_name(f->r.o.record[last].type), f->attn[last]->name);
}

nb_rank_counts nb_gpu_count(const nb_rank *r)
{
    const nb_gpu_rank *f = (const nb_gpu_rank *)(const void *)r;
    const uint64_t *n = f->h_count;
    size_t row = 0; /* the same in all layers that have planes */
    for (size_t i = 0; i < r->whole->n_layer; i++)
        if (nb_gpu_thrift_layer(f, i)) row = nb_residual_row_bytes(&r->o.record[i]);
    return (nb_rank_counts){ .saturated = *f->h_saturated,
                             .thrift = { .scored = n[0],
                                         .refined = n[1],
                                         .over = n[2],
                                         .base_bytes = n[3],
                                         .residual_bytes = n[1] * row } };
}
