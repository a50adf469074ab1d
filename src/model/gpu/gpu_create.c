/* gpu_create.c - plans the forward pass on a GPU: everything once, from the model and the largest step.  gpu_buffers.c
 * has its sizes and its memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/linear/tiled.h"
#include "model/gpu/gpu.h"
#include "model/gpu/gpu_buffers.h"
#include "model/kv_size.h"
#include "num/residual.h"

enum { ALIGN = 256 }; /* of a table */

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
    for (size_t k = 0; n_tensor > 1 && k < c->n_attn; k++)
        if (!nb_attention_of(c->attn[k].kind)->divides)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: attention of kind %s is not divided among GPUs (--data-parallel-size has whole ones)",
                           c->family, nb_attention_of(c->attn[k].kind)->name);
    if (n_tensor > 1 && n_tensor < n_rank)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--tensor-parallel-size %zu with --data-parallel-size %zu is supported on the CPU only; of GPUs one "
                       "of the two must be 1",
                       n_tensor, n_rank / n_tensor);
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
        up->scale = w->scale + nb_div_up(gate->n_row, NB_FP8_BLOCK) * nb_div_up(w->n_col, NB_FP8_BLOCK);
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
    *d = (nb_gpu_stage){ .max_row = f->D + NB_GPU_PAD_ROWS,
                         .max_chunk = f->r.o.max_seq + NB_GPU_PAD_ROWS,
                         .max_item = f->max_part,
                         .max_block = blocks };
    *p = (nb_gpu_stage){
        .max_row = f->T, .max_chunk = f->r.o.max_seq, .max_item = 1, .max_block = blocks
    };
    d->on_bytes = nb_gpu_share_on_bytes(f, d->max_row);
    if (f->direct) NB_TRY(create_stage(f, d, err));
    return f->prompt ? create_stage(f, p, err) : NB_OK;
}

/* ---- host memory ---- */

static nb_status create_host(nb_gpu_rank *f, nb_error *err)
{
    const size_t n_bad = f->r.o.max_tok + f->r.o.max_seq + NB_GPU_PAD_ROWS, parts = f->r.o.max_seq + 1;
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
    const size_t rows = nb_most(f->prompt ? f->T : 0, f->D + NB_GPU_PAD_ROWS);
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
    nb_gpu_size(f);
    NB_TRY(create_stages(f, err));
    NB_TRY(nb_gpu_allocate(f, err));
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
