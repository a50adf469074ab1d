/* gpu_streams.c - several residual streams on a GPU (cpu_streams.c has the formulas, nb_cuda_csa.h the operation). */
#include "model/gpu/gpu.h"

/* The place whose norm this is. */
static const nb_gpu_mix *place_of(const nb_gpu_rank *f, size_t layer, nb_norm_at at)
{
    const nb_gpu_layer *l = &f->w.layer[layer];
    if (at == NB_NORM_AT_BEGIN) return &l->mix[0];
    if (at == NB_NORM_AT_ATTENTION) return &l->mix[1];
    return layer + 1 == f->r.whole->n_layer ? NULL : &l[1].mix[0];
}

static nb_cuda_streams_args args_of(const nb_gpu_rank *f, const nb_gpu_mix *mix, const float *w, size_t n)
{
    const nb_model_config *c = f->r.whole;
    nb_cuda_streams_args a = { .x = f->h,
                               .w = w,
                               .weight = f->stream_w,
                               .part = f->stream_part,
                               .y = f->xn,
                               .n_tok = n,
                               .n_stream = c->n_stream,
                               .dim = c->hidden,
                               .x_stride = nb_gpu_h_width(f),
                               .n_sinkhorn = c->n_sinkhorn,
                               .eps = c->eps,
                               .stream_eps = c->stream_eps,
                               .y_factor = 1 };
    if (!mix) return a;
    a.fn = mix->fn;
    a.base = mix->base;
    a.scale = mix->scale;
    return a;
}

void nb_gpu_streams_add_norm(nb_gpu_rank *f, nb_gpu_pass *p, size_t layer, nb_norm_at at, const float *w)
{
    nb_cuda_streams_args a = args_of(f, place_of(f, layer, at), w, p->n_pad);
    if (p->sum.e) f->api->moe_sum(f->g, &p->sum);
    p->sum.e = NULL;
    a.x += p->h_row0 * a.x_stride;
    a.first = at == NB_NORM_AT_BEGIN;
    a.branch = a.first ? NULL : f->branch;
    f->api->streams(f->g, &a);
}

void nb_gpu_streams_last(nb_gpu_rank *f, const uint32_t *row, size_t n)
{
    nb_cuda_streams_args a = args_of(f, &f->w.mix, f->w.final_norm, n);
    a.row = row;
    a.last = true;
    a.y_factor = f->r.whole->logit_factor;
    f->api->streams(f->g, &a);
}
