/* gpu_attn.c - attention of one layer on a GPU: the direct form over pages, the expanded form in spans
 * of the context. */
#include <math.h>

#include "model/gpu_internal.h"

nb_cuda_cache nb_gpu_cache(const nb_gpu_forward *f, const nb_gpu_pass *p, size_t layer)
{
    const nb_kv_view *kv = &p->chunk[p->which[0]].kv;
    const nb_gpu_section *x = &f->stage[p->kind].dev;
    return (nb_cuda_cache){ .pool = kv->pool,
                            .block_bytes = kv->block_bytes,
                            .layer_off = kv->layer_off[layer],
                            .tail_off = layer * NB_PAGE_TOK * f->n_values,
                            .block = x->block,
                            .chunk = x->chunk,
                            .n_chunk = p->n_chunk,
                            .record = f->o.record[layer] };
}

/* ---- direct ---- */

/* y (+)= the batched product of every head. */
static void per_head(nb_gpu_forward *f, const nb_gpu_pass *p, const nb_gpu_mat *m, size_t n_part,
                     nb_cuda_linear_args a)
{
    for (size_t k = 0; k < n_part; k++) {
        a.w = m[k].w;
        a.n_tok = p->n_pad;
        a.n_batch = f->o.model->c.n_head;
        a.add = k > 0;
        m[k].row[p->kind]->fn(f->g, &a);
    }
}

/* The tokens that each row reads refined, as many rows at a time as there is room for scores. */
static nb_cuda_pick pick_tokens(nb_gpu_forward *f, const nb_gpu_pass *p, size_t layer,
                                const nb_cuda_mla_args *m)
{
    const nb_kv_view *kv = &p->chunk[p->which[0]].kv;
    nb_cuda_thrift_args a = { .cache = m->cache,
                              .q = m->q,
                              .row_chunk = m->row_chunk,
                              .on = f->stage[p->kind].dev.thrift,
                              .pick = f->pick,
                              .score = f->t_score,
                              .best = f->t_best,
                              .lse = f->t_lse,
                              .count = f->t_count,
                              .n_head = m->n_head,
                              .lora = m->lora,
                              .d_rope = m->d_rope,
                              .q_stride = m->q_stride,
                              .q_head = m->q_head,
                              .stride = f->t_stride,
                              .log_tau = log(f->o.thrift.tau),
                              .fraction = f->o.thrift.fraction,
                              .scale = m->scale };
    a.pick.plane = kv->plane;
    a.pick.plane_block_bytes = kv->plane_block;
    a.pick.plane_layer_off = kv->plane_off[layer];
    for (; a.row0 < m->n_row; a.row0 += a.n_row) {
        a.n_row = m->n_row - a.row0 < f->t_rows ? m->n_row - a.row0 : f->t_rows;
        f->api->thrift(f->g, &a);
    }
    return a.pick;
}

static void direct_mla(nb_gpu_forward *f, const nb_gpu_pass *p, size_t layer)
{
    const nb_model_config *c = &f->o.model->c;
    const nb_gpu_layer *l = &f->w.layer[layer];
    const nb_gpu_section *x = &f->stage[p->kind].dev;
    const size_t set = f->set_of[layer], q_head = c->kv_lora + c->d_rope;
    per_head(f, p, l->uk, l->n_part,
             (nb_cuda_linear_args){ .x = f->q_nope,
                                    .y = { .f = f->qx, .stride = c->n_head * q_head },
                                    .n_out = c->kv_lora,
                                    .x_batch = c->d_nope,
                                    .y_batch = q_head,
                                    .w_batch = c->kv_lora });
    nb_cuda_mla_args a = { .cache = nb_gpu_cache(f, p, layer),
                           .q = f->qx,
                           .y = f->u,
                           .part_o = f->part_o,
                           .part_m = f->part_m,
                           .part_l = f->part_l,
                           .part_first = x->part_first[set],
                           .row_chunk = x->row_chunk,
                           .item = x->item[set],
                           .n_item = x->n_item + set,
                           .scratch = f->attn_scratch,
                           .n_row = p->n_pad,
                           .n_head = c->n_head,
                           .lora = c->kv_lora,
                           .d_rope = c->d_rope,
                           .q_stride = c->n_head * q_head,
                           .q_head = q_head,
                           .max_item = p->fixed ? p->most_item : p->n_item[set],
                           .units = f->units[set],
                           .scale = c->softmax_scale };
    if (nb_gpu_thrift_layer(f, layer) && p->chunk[p->which[0]].kv.plane)
        a.pick = pick_tokens(f, p, layer, &a);
    a.beside = p->fixed || p->n_item[set] > 0;
    if (a.beside) f->attn[layer]->fn(f->g, &a);
    f->api->mla_tail(f->g, &a);
    f->api->mla_join(f->g, &a);
    /* the products of two parts are added, as floats */
    const nb_cuda_rows y = l->n_part == 1
                               ? f->attn_y
                               : (nb_cuda_rows){ .f = f->unabsorbed, .stride = c->n_head * c->d_v };
    per_head(f, p, l->uv, l->n_part,
             (nb_cuda_linear_args){ .x = f->u,
                                    .y = y,
                                    .n_out = c->d_v,
                                    .x_batch = c->kv_lora,
                                    .y_batch = c->d_v,
                                    .w_batch = l->uv_batch });
    if (l->n_part > 1)
        f->api->split(f->g, &(nb_cuda_split_args){ .x = y.f,
                                                   .y = f->attn_y,
                                                   .n_tok = p->n_pad,
                                                   .dim = c->n_head * c->d_v,
                                                   .x_stride = y.stride });
}

void nb_gpu_attn_direct(nb_gpu_forward *f, const nb_gpu_pass *p, size_t layer)
{
    const nb_model_config *c = &f->o.model->c;
    const nb_gpu_section *x = &f->stage[p->kind].dev;
    if (f->mla) {
        direct_mla(f, p, layer);
        return;
    }
    f->api->gqa(f->g, &(nb_cuda_gqa_args){ .cache = nb_gpu_cache(f, p, layer),
                                           .q = f->in,
                                           .y = f->attn_y,
                                           .part_o = f->part_o,
                                           .part_m = f->part_m,
                                           .part_l = f->part_l,
                                           .part_first = x->part_first[0],
                                           .row_chunk = x->row_chunk,
                                           .n_item = x->n_item,
                                           .item = x->item[0],
                                           .n_row = p->n_pad,
                                           .n_head = c->n_head,
                                           .n_kv_head = c->n_kv_head,
                                           .head_dim = c->head_dim,
                                           .q_stride = f->in_width,
                                           .max_item = p->fixed ? p->most_item : p->n_item[0],
                                           .scale = c->softmax_scale });
}

/* ---- expanded ---- */

/* A latent is exact in BF16, but for records whose values are not. */
static bool exact(const nb_record *r)
{
    return r->type != NB_KV_F32 && r->type != NB_KV_INT4 && r->seg[0].fixed_scale == 0;
}

/* Latents of pages to keys and values of all heads. */
static void expand(nb_gpu_forward *f, const nb_gpu_pass *p, size_t layer, size_t chunk,
                   size_t page0, size_t n_page, bool own)
{
    const nb_model_config *c = &f->o.model->c;
    const bool one = exact(&f->o.record[layer]);
    nb_cuda_rows lat = f->lat;
    if (one) lat.lo = NULL;
    f->api->kv_decode(f->g, &(nb_cuda_kv_decode_args){ .cache = nb_gpu_cache(f, p, layer),
                                                       .chunk = chunk,
                                                       .page0 = page0,
                                                       .n_page = n_page,
                                                       .own = own,
                                                       .y = { lat, own ? f->rope_own : f->rope } });
    const size_t width = c->n_head * (c->d_nope + c->d_v);
    const nb_cuda_rows y = { .hi = own ? f->kv_own : f->kv_ctx, .stride = (width + 7) / 8 * 8 };
    nb_gpu_linear(f, p->kind, &f->w.layer[layer].kv_b, lat, y, n_page * NB_PAGE_TOK);
}

static void prompt_chunk(nb_gpu_forward *f, const nb_gpu_pass *p, size_t layer, size_t chunk,
                         size_t row0)
{
    const nb_model_config *c = &f->o.model->c;
    const nb_gpu_layer *l = &f->w.layer[layer];
    const size_t pos0 = p->chunk[p->which[chunk]].pos0 + p->tok0[chunk], n_tok = p->n_tok[chunk];
    const size_t p0 = pos0 / NB_PAGE_TOK, p_last = (pos0 + n_tok - 1) / NB_PAGE_TOK;
    const size_t span = f->span_tok / NB_PAGE_TOK, width = c->n_head * (c->d_nope + c->d_v);
    nb_cuda_prefill_args a = { .q = c->q_lora ? f->q : f->in,
                               .dec = f->kv_ctx,
                               .rope = f->rope.hi,
                               .own = f->kv_own,
                               .own_rope = f->rope_own.hi,
                               .m = f->pm,
                               .l = f->pl,
                               .o = f->po,
                               .y = f->attn_y,
                               .row0 = row0,
                               .n_tok = n_tok,
                               .pos0 = pos0,
                               .n_head = c->n_head,
                               .d_nope = c->d_nope,
                               .d_rope = c->d_rope,
                               .d_v = c->d_v,
                               .q_stride = c->q_lora ? c->n_head * f->d_q : f->in_width,
                               .dec_stride = (width + 7) / 8 * 8,
                               .rope_stride = f->rope.stride,
                               .scale = c->softmax_scale };
    NB_ASSERT(l->kv_b.row[p->kind]);
    expand(f, p, layer, chunk, 0, p_last - p0 + 1, true);
    do {
        const size_t left = p_last - a.page0;
        a.n_page = left < span ? left : span;
        a.first = a.page0 == 0;
        a.last = a.page0 + a.n_page == p_last;
        if (a.n_page) expand(f, p, layer, chunk, a.page0, a.n_page, false);
        f->api->prefill(f->g, &a);
        a.page0 += a.n_page;
    } while (!a.last);
}

void nb_gpu_attn_prompt(nb_gpu_forward *f, const nb_gpu_pass *p, size_t layer)
{
    for (size_t i = 0, row = 0; i < p->n_chunk; row += p->n_tok[i++])
        prompt_chunk(f, p, layer, i, row);
}
