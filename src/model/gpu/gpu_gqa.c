/* gpu_gqa.c - grouped-query attention on a GPU.  It has the direct form only. */
#include "model/gpu/gpu.h"

static void project(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_attn_config *attn = nb_rank_attn(r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    nb_gpu_group_run(f, p, &l->in, f->x[p->kind].xn, f->in);
    f->api->gqa_finish(f->g,
                       &(nb_cuda_gqa_finish_args){ .q = f->in,
                                                   .kv = f->in + l->in.at[1],
                                                   .q_norm = l->q_norm,
                                                   .k_norm = l->k_norm,
                                                   .cos_sin = f->cos_sin[r->whole->attn_of[layer]],
                                                   .n_tok = p->n_pad,
                                                   .n_head = attn->n_head,
                                                   .n_kv_head = attn->n_kv_head,
                                                   .head_dim = attn->head_dim,
                                                   .rope_dim = attn->rope.dim,
                                                   .q_stride = l->in.width,
                                                   .kv_stride = l->in.width,
                                                   .eps = r->whole->eps,
                                                   .interleaved = attn->rope.interleaved });
}

static void attend(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_attn_config *attn = nb_rank_attn(r, layer);
    const nb_gpu_section *x = &f->stage[p->kind].dev;
    const size_t set = f->set_of[layer], width = attn->n_head * attn->head_dim;
    f->api->gqa(f->g, &(nb_cuda_gqa_args){ .cache = nb_gpu_cache(f, p, layer),
                                           .q = f->in,
                                           .y = nb_gpu_rows_of(f->x[p->kind].attn_y, width),
                                           .part_o = f->part_o,
                                           .part_m = f->part_m,
                                           .part_l = f->part_l,
                                           .part_first = x->part_first[set],
                                           .row_chunk = x->row_chunk,
                                           .n_item = x->n_item + set,
                                           .item = x->item[set],
                                           .n_row = p->n_pad,
                                           .n_head = attn->n_head,
                                           .n_whole = nb_layer_attn(r->whole, layer)->n_head,
                                           .head0 = nb_rank_head0(r, layer),
                                           .n_kv_head = attn->n_kv_head,
                                           .head_dim = attn->head_dim,
                                           .q_stride = f->w.layer[layer].in.width,
                                           .max_item = p->fixed ? p->most_item : p->n_item[set],
                                           .scale = attn->softmax_scale });
}

const nb_attn_ops nb_gpu_ops_gqa = { project, nb_gpu_append, attend };
