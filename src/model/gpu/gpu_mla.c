/* gpu_mla.c - latent attention on a GPU: projections, the direct form over pages, the expanded form in spans of
 * the context. */
#include <math.h>

#include "model/gpu/gpu_mla.h"
#include "num/traits.h"

static void project(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_attn_config *attn = nb_rank_attn(r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    const size_t q_w = attn->n_head * nb_rank_dims(r, layer)->d_q;
    const bool direct = p->kind == NB_CUDA_DIRECT;
    float *q = f->in;
    size_t q_stride = l->in.width;
    nb_gpu_group_run(f, p, &l->in, f->x[p->kind].xn, f->in);
    if (attn->q_lora) {
        const nb_cuda_rows qa = nb_gpu_rows_of(f->x[p->kind].qa, attn->q_lora);
        f->api->norm(f->g, &(nb_cuda_norm_args){ .h = f->in,
                                                 .w = l->q_a_norm,
                                                 .y = qa,
                                                 .n_row = p->n_pad,
                                                 .dim = attn->q_lora,
                                                 .h_stride = l->in.width,
                                                 .eps = attn->eps_lora,
                                                 .y_factor = 1 });
        nb_gpu_linear(f, p->kind, &l->q_b, qa, nb_gpu_floats(f->q, q_w), p->n_pad);
        q = f->q;
        q_stride = q_w;
    }
    nb_cuda_mla_finish_args a = { .q = q,
                                  .kv = f->in + l->in.at[1],
                                  .norm = l->kv_a_norm,
                                  .mean = l->mean,
                                  .rope_k = l->rope_k,
                                  .rope_q = l->rope_q,
                                  .cos_sin = f->cos_sin[r->whole->attn_of[layer]],
                                  .q_scale = f->q_scale[r->whole->attn_of[layer]],
                                  .n_tok = p->n_pad,
                                  .n_head = attn->n_head,
                                  .d_nope = attn->d_nope,
                                  .d_rope = attn->d_rope,
                                  .lora = attn->kv_lora,
                                  .q_stride = q_stride,
                                  .kv_stride = l->in.width,
                                  .hadamard = r->o.model->layer[layer].kv_hadamard,
                                  .eps = attn->eps_lora,
                                  .interleaved = attn->rope.interleaved };
    if (direct) {
        a.q_nope = nb_gpu_rows_of(f->x[p->kind].q_nope, attn->n_head * attn->d_nope);
        a.q_rope = f->qx + attn->kv_lora;
        a.q_rope_head = attn->kv_lora + attn->d_rope;
        a.q_rope_stride = attn->n_head * a.q_rope_head;
    }
    f->api->mla_finish(f->g, &a);
}

/* ---- direct ---- */

/* y (+)= the batched product of every head, for n rows. */
static void per_head(nb_gpu_rank *f, const nb_gpu_mat *m, size_t n_part, size_t n_head, size_t n,
                     nb_cuda_linear_args a)
{
    for (size_t k = 0; k < n_part; k++) {
        a.w = m[k].w;
        a.n_tok = n;
        a.n_batch = n_head;
        a.add = k > 0;
        m[k].row[NB_CUDA_DIRECT]->fn(f->g, &a);
    }
}

void nb_gpu_absorb(nb_gpu_rank *f, size_t layer, size_t n)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    const size_t q_head = attn->kv_lora + attn->d_rope;
    per_head(f, l->uk, l->n_part, attn->n_head, n,
             (nb_cuda_linear_args){ .x = nb_gpu_rows_of(f->x[NB_CUDA_DIRECT].q_nope, attn->n_head * attn->d_nope),
                                    .y = { .f = f->qx, .stride = attn->n_head * q_head },
                                    .n_out = attn->kv_lora,
                                    .x_batch = attn->d_nope,
                                    .y_batch = q_head,
                                    .w_batch = attn->kv_lora });
}

void nb_gpu_unabsorb(nb_gpu_rank *f, size_t layer, nb_cuda_rows u, nb_cuda_rows out, size_t n)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    /* the products of two parts are added, as floats */
    const nb_cuda_rows y =
        l->n_part == 1 ? out
                       : (nb_cuda_rows){ .f = f->unabsorbed, .stride = attn->n_head * attn->d_v };
    per_head(f, l->uv, l->n_part, attn->n_head, n,
             (nb_cuda_linear_args){ .x = u,
                                    .y = y,
                                    .n_out = attn->d_v,
                                    .x_batch = attn->kv_lora,
                                    .y_batch = attn->d_v,
                                    .w_batch = l->uv_batch });
    if (l->n_part > 1)
        f->api->split(f->g, &(nb_cuda_split_args){ .x = y.f,
                                                   .y = out,
                                                   .n_tok = n,
                                                   .dim = attn->n_head * attn->d_v,
                                                   .x_stride = y.stride });
}

/* The tokens that each row reads refined, as many rows at a time as there is room for scores. */
static nb_cuda_pick pick_tokens(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer,
                                const nb_cuda_mla_args *m)
{
    const nb_kv_pool *kv = &f->r.pool;
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
                              .log_tau = log(f->r.o.thrift.tau),
                              .fraction = f->r.o.thrift.fraction,
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

static void direct(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    const nb_gpu_section *x = &f->stage[p->kind].dev;
    const nb_cuda_rows u = nb_gpu_rows_of(f->x[p->kind].u, attn->n_head * attn->kv_lora);
    const nb_cuda_rows heads = nb_gpu_rows_of(f->x[p->kind].attn_y, attn->n_head * attn->d_v);
    const size_t set = f->set_of[layer], q_head = attn->kv_lora + attn->d_rope;
    nb_gpu_absorb(f, layer, p->n_pad);
    nb_cuda_mla_args a = { .cache = nb_gpu_cache(f, p, layer),
                           .q = f->qx,
                           .y = u,
                           .part_o = f->part_o,
                           .part_m = f->part_m,
                           .part_l = f->part_l,
                           .part_first = x->part_first[set],
                           .row_chunk = x->row_chunk,
                           .item = x->item[set],
                           .n_item = x->n_item + set,
                           .scratch = f->attn_scratch,
                           .n_row = p->n_pad,
                           .n_head = attn->n_head,
                           .n_whole = nb_layer_attn(f->r.whole, layer)->n_head,
                           .lora = attn->kv_lora,
                           .d_rope = attn->d_rope,
                           .q_stride = attn->n_head * q_head,
                           .q_head = q_head,
                           .max_item = p->fixed ? p->most_item : p->n_item[set],
                           .units = f->set[set].units,
                           .scale = attn->softmax_scale };
    if (nb_gpu_thrift_layer(f, layer) && f->r.pool.plane) a.pick = pick_tokens(f, p, layer, &a);
    a.beside = p->fixed || p->n_item[set] > 0;
    if (a.beside) f->attn[layer]->fn(f->g, &a);
    f->api->mla_tail(f->g, &a);
    f->api->mla_combine(f->g, &a);
    nb_gpu_unabsorb(f, layer, u, heads, p->n_pad);
}

/* ---- expanded ---- */

/* A latent is exact in BF16, but for records whose values are not. */
static bool exact(const nb_record *r)
{
    return nb_kv_main(r->type)->exact_bf16 && r->seg[0].fixed_scale == 0;
}

/* Latents of pages to keys and values of all heads. */
static void expand(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t chunk, size_t page0,
                   size_t n_page, bool own)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    const bool one = exact(&f->r.o.record[layer]);
    nb_cuda_rows lat = f->x[p->kind].lat;
    if (one) lat.lo = NULL;
    f->api->kv_decode(f->g, &(nb_cuda_kv_decode_args){ .cache = nb_gpu_cache(f, p, layer),
                                                       .chunk = chunk,
                                                       .page0 = page0,
                                                       .n_page = n_page,
                                                       .own = own,
                                                       .y = { lat, own ? f->rope_own : f->rope } });
    const size_t width = attn->n_head * (attn->d_nope + attn->d_v);
    const nb_cuda_rows y = { .hi = own ? f->kv_own : f->kv_ctx, .stride = (width + 7) / 8 * 8 };
    nb_gpu_linear(f, p->kind, &f->w.layer[layer].kv_b, lat, y, n_page * NB_PAGE_TOK);
}

static void prompt_chunk(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t chunk,
                         size_t row0)
{
    const nb_attn_config *attn = nb_rank_attn(&f->r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    const size_t pos0 = p->base.chunk[p->which[chunk]].pos0 + p->tok0[chunk],
                 n_tok = p->n_tok[chunk];
    const size_t p0 = pos0 / NB_PAGE_TOK, p_last = (pos0 + n_tok - 1) / NB_PAGE_TOK;
    const size_t span = f->span_tok / NB_PAGE_TOK,
                 width = attn->n_head * (attn->d_nope + attn->d_v);
    nb_cuda_prefill_args a = { .q = attn->q_lora ? f->q : f->in,
                               .dec = f->kv_ctx,
                               .rope = f->rope.hi,
                               .own = f->kv_own,
                               .own_rope = f->rope_own.hi,
                               .m = f->pm,
                               .l = f->pl,
                               .o = f->po,
                               .y = nb_gpu_rows_of(f->x[p->kind].attn_y, attn->n_head * attn->d_v),
                               .row0 = row0,
                               .n_tok = n_tok,
                               .pos0 = pos0,
                               .n_head = attn->n_head,
                               .d_nope = attn->d_nope,
                               .d_rope = attn->d_rope,
                               .d_v = attn->d_v,
                               .q_stride = attn->q_lora
                                               ? attn->n_head * (attn->d_nope + attn->d_rope)
                                               : l->in.width,
                               .dec_stride = (width + 7) / 8 * 8,
                               .rope_stride = f->rope.stride,
                               .scale = attn->softmax_scale };
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

static void expanded(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer)
{
    for (size_t i = 0, row = 0; i < p->base.n_chunk; row += p->n_tok[i++])
        prompt_chunk(f, p, layer, i, row);
}

static void attend(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    if (p->kind == NB_CUDA_DIRECT)
        direct(f, p, layer);
    else
        expanded(f, p, layer);
}

const nb_attn_ops nb_gpu_ops_mla = { project, nb_gpu_append, attend };
