/* gpu_pass.c - the operations of a pass on a GPU, but for attention; its graphs; the table of the backend. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gpu/gpu.h"

/* ---- products, begin ---- */

nb_cuda_codes nb_gpu_quantise(nb_gpu_rank *f, nb_cuda_rows x, size_t n, size_t dim)
{
    nb_cuda_codes y = f->xq;
    y.s_stride = (dim + 127) / 128;
    y.stride = y.s_stride * 128;
    f->api->quantise(f->g, &(nb_cuda_quantise_args){ .x = x, .y = y, .n_tok = n, .dim = dim });
    return y;
}

void nb_gpu_linear(nb_gpu_rank *f, nb_cuda_kind kind, const nb_gpu_mat *m, nb_cuda_rows x,
                   nb_cuda_rows y, size_t n_tok)
{
    nb_cuda_linear_args a = { .w = m->w,
                              .bias = m->bias,
                              .x = x,
                              .y = y,
                              .n_tok = n_tok,
                              .n_batch = 1,
                              .n_out = m->w.n_row,
                              .n_whole = m->n_whole };
    if (!m->w.n_row) return; /* of a rank */
    if (m->row[kind]->codes) a.xq = nb_gpu_quantise(f, x, n_tok, m->w.n_col);
    m->row[kind]->fn(f->g, &a);
}

void nb_gpu_experts_run(nb_gpu_rank *f, const nb_cuda_experts_row *row, nb_cuda_experts_args a)
{
    if (row->codes) a.xq = nb_gpu_quantise(f, a.x, a.src ? a.n_tok : a.n_place, a.gate.n_col);
    row->fn(f->g, &a);
}

void nb_gpu_group_run(nb_gpu_rank *f, const nb_gpu_pass *p, const nb_gpu_group *g, nb_cuda_rows x,
                      float *y)
{
    for (size_t i = 0; i < g->n; i++)
        nb_gpu_linear(f, p->kind, &g->m[i], x, nb_gpu_floats(y + g->at[i], g->width), p->n_pad);
}

static void begin(nb_rank *r, nb_pass *pass)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_model_config *c = r->whole;
    const nb_gpu_section *x = &f->stage[p->kind].dev;
    f->api->embed(f->g, &(nb_cuda_embed_args){ .y = f->h + p->h_row0 * nb_gpu_h_width(f),
                                               .id = x->tok,
                                               .w = f->w.embed.w,
                                               .n_tok = p->n_pad,
                                               .y_stride = nb_gpu_h_width(f),
                                               .factor = c->embed_factor });
    for (size_t k = 0; k < c->n_attn; k++) {
        const nb_rope_config *rope = &c->attn[k].rope;
        if (!rope->dim) continue;
        f->api->rope_table(f->g, &(nb_cuda_rope_table_args){ .cos_sin = f->cos_sin[k],
                                                             .pos = x->pos,
                                                             .rope_long = x->rope_long,
                                                             .inv_freq = f->inv_freq[k],
                                                             .inv_freq_long = f->inv_freq_long[k],
                                                             .n_tok = p->n_pad,
                                                             .dim = rope->dim,
                                                             .factor = rope->factor,
                                                             .q_scale = f->q_scale[k],
                                                             .q_beta = c->attn[k].q_beta,
                                                             .q_orig = c->attn[k].q_orig });
    }
}

/* ---- between attention and feed-forward ---- */

void nb_gpu_append(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_gpu_group *in = &f->w.layer[layer].in;
    const nb_kv_pool *kv = &r->pool;
    const bool planes = kv->plane && nb_gpu_thrift_layer(f, layer);
    f->api->kv_append(
        f->g, &(nb_cuda_kv_append_args){ .cache = nb_gpu_cache(f, p, layer),
                                         .kv = f->in + in->at[1],
                                         .kv_stride = in->width,
                                         .max_chunk_tok = p->max_chunk_tok,
                                         .bad = p->bad,
                                         .n_saturated = f->saturated,
                                         .plane = planes ? kv->plane : NULL,
                                         .plane_block_bytes = kv->plane_block,
                                         .plane_layer_off = planes ? kv->plane_off[layer] : 0 });
}

/* Where a rank's columns of the branch go. */
static nb_cuda_rows branch_of(const nb_gpu_rank *f, float *own)
{
    return f->ranks.divided ? nb_gpu_floats(own, f->ranks.stride)
                            : nb_gpu_floats(f->branch, f->r.whole->hidden);
}

static void output(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const size_t width = nb_layer_dims(r->whole, layer).n_head * nb_rank_dims(r, layer)->d_o;
    nb_gpu_linear(f, p->kind, &f->w.layer[layer].o, nb_gpu_rows_of(f->x[p->kind].heads, width),
                  branch_of(f, f->ranks.out), p->n_pad);
}

/* The norm of add_norm, on the device. */
static const float *norm_at(const nb_gpu_rank *f, size_t layer, nb_norm_at at)
{
    const nb_gpu_layer *l = &f->w.layer[layer];
    if (at == NB_NORM_AT_BEGIN) return l->in_norm;
    if (at == NB_NORM_AT_ATTENTION) return l->post_norm;
    return layer + 1 == f->r.whole->n_layer ? NULL : l[1].in_norm;
}

/* h += factor * branch, or the experts' sum where combine has left it; xn = the norm of that. */
static void add_norm(nb_rank *r, nb_pass *pass, size_t layer, nb_norm_at at)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_model_config *c = r->whole;
    if (c->n_stream) {
        nb_gpu_streams_add_norm(f, p, layer, at, norm_at(f, layer, at));
        return;
    }
    f->api->norm(f->g, &(nb_cuda_norm_args){ .h = f->h + p->h_row0 * c->hidden,
                                             .branch = at == NB_NORM_AT_BEGIN ? NULL : f->branch,
                                             .w = norm_at(f, layer, at),
                                             .y = f->xn,
                                             .n_row = p->n_pad,
                                             .dim = c->hidden,
                                             .h_stride = c->hidden,
                                             .branch_stride = c->hidden,
                                             .branch_factor = c->branch_factor,
                                             .eps = c->eps,
                                             .y_factor = 1,
                                             .sum = p->sum });
    p->sum.e = NULL;
}

/* In place: the kernel reads a row before it writes it. */
static void branch_norm(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const size_t n = r->whole->hidden;
    if (p->sum.e) f->api->moe_sum(f->g, &p->sum);
    p->sum.e = NULL;
    f->api->norm(f->g, &(nb_cuda_norm_args){ .h = f->branch,
                                             .w = f->w.layer[layer].branch_norm,
                                             .y = nb_gpu_floats(f->branch, n),
                                             .n_row = p->n_pad,
                                             .dim = n,
                                             .h_stride = n,
                                             .eps = r->whole->eps,
                                             .y_factor = 1 });
}

/* ---- feed forward ---- */

/* act = silu(gate) * up. */
static void gate_up(nb_gpu_rank *f, const nb_gpu_pass *p, const nb_gpu_layer *l,
                    const nb_gpu_glu *glu)
{
    const size_t inter = l->gate_up.width / 2;
    nb_gpu_inputs x[1] = { f->x[p->kind] };
    if (!inter) return; /* of a rank */
    if (f->ranks.divided) x->act = nb_gpu_rows_of(x->act, inter);
    if (p->kind == NB_CUDA_DIRECT && glu->row) {
        glu->row->fn(f->g, &(nb_cuda_experts_args){ .gate = glu->gate,
                                                    .up = glu->up,
                                                    .x = x->xn,
                                                    .y = x->act,
                                                    .n_expert = 1,
                                                    .n_out = inter,
                                                    .n_whole = glu->n_whole,
                                                    .n_tok = p->n_pad,
                                                    .n_place = p->n_pad,
                                                    .limit = f->r.whole->act_limit });
        return;
    }
    nb_gpu_group_run(f, p, &l->gate_up, x->xn, f->gate_up);
    f->api->swiglu(f->g, &(nb_cuda_swiglu_args){ .gate = f->gate_up,
                                                 .up = f->gate_up + inter,
                                                 .y = x->act,
                                                 .n_tok = p->n_pad,
                                                 .dim = inter,
                                                 .in_stride = 2 * inter,
                                                 .limit = f->r.whole->act_limit });
}

/* The second product: with several ranks after they have met. */
static void down(nb_gpu_rank *f, const nb_gpu_pass *p, const nb_gpu_layer *l)
{
    const nb_cuda_rows x = f->ranks.divided ? nb_gpu_rows_of(f->x[p->kind].hidden, l->down.w.n_col)
                                            : f->x[p->kind].act;
    nb_gpu_linear(f, p->kind, &l->down, x, branch_of(f, f->ranks.sum), p->n_pad);
}

/* branch = down(silu(gate) * up), or the shared experts; of one of several ranks the first product only. */
static void dense(nb_gpu_rank *f, const nb_gpu_pass *p, const nb_gpu_layer *l,
                  const nb_gpu_glu *glu)
{
    gate_up(f, p, l, glu);
    if (!f->ranks.divided) down(f, p, l);
}

/* Shared experts beside the choice of the others, so that their weights come meanwhile.  Few rows: they begin early,
 * behind the router, whose blocks would else find no room. */
enum { FEW_ROWS = 16 };

static void shared_beside(nb_gpu_rank *f, const nb_gpu_pass *p, const nb_gpu_layer *l,
                          const nb_gpu_glu *glu, bool few)
{
    f->api->side_begin(f->g, few);
    dense(f, p, l, glu);
    f->api->side_end(f->g);
}

static bool has_shared(const nb_gpu_rank *f, size_t layer)
{
    return f->r.o.model->layer[layer].mlp.down.data != NULL;
}

void nb_gpu_shared(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer)
{
    const nb_gpu_layer *l = &f->w.layer[layer];
    if (has_shared(f, layer)) dense(f, p, l, &f->glu[layer]);
}

void nb_gpu_route(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, uint32_t *id, float *weight)
{
    const nb_model_config *c = f->r.whole;
    const nb_gpu_layer *l = &f->w.layer[layer];
    f->api->route(f->g, &(nb_cuda_route_args){ .logits = f->r_logits,
                                               .bias = l->router_b,
                                               .id = id,
                                               .first = f->r_first,
                                               .src = f->r_src,
                                               .place = f->r_place,
                                               .weight = weight,
                                               .n_tok = p->n_pad,
                                               .n_expert = nb_n_choice(c),
                                               .top_k = c->top_k,
                                               .n_group = c->n_group,
                                               .topk_group = c->topk_group,
                                               .n_rank = f->ranks.n,
                                               .group_top = c->group_top,
                                               .sigmoid = c->sigmoid,
                                               .sqrt_softplus = c->sqrt_softplus,
                                               .normalise = c->normalise,
                                               .factor = c->routed_factor,
                                               .table = l->hash,
                                               .tok = f->stage[p->kind].dev.tok,
                                               .n_vocab = c->n_vocab });
}

void nb_gpu_zero_experts(nb_gpu_rank *f, const nb_gpu_pass *p)
{
    const nb_model_config *c = f->r.whole;
    if (!c->n_zero) return;
    f->api->zero_experts(f->g, &(nb_cuda_zero_experts_args){ .x = f->xn,
                                                             .y = f->e_y,
                                                             .first = f->r_first + c->n_expert,
                                                             .src = f->r_src,
                                                             .n_zero = c->n_zero,
                                                             .n_place = p->n_pad * c->top_k,
                                                             .dim = c->hidden,
                                                             .y_stride = c->hidden });
}

/* A product of the run's experts, of matrix i, for n rows. */
static nb_cuda_experts_args run_args(const nb_gpu_rank *f, size_t n, const nb_gpu_run *r, size_t i)
{
    const nb_model_config *c = f->r.whole;
    return (nb_cuda_experts_args){
        .gate = r->w[i],
        .first = f->r_first + NB_CUDA_EXPERT_0(c->n_expert, f->ranks.n, f->ranks.me) + r->first,
        .n_expert = r->n,
        .n_tok = n,
        .n_place = n * c->top_k,
        .limit = c->act_limit
    };
}

/* e_act = swiglu of gate and up, each from a product of its own.  Their rows lie in e_y, which down's product writes
 * later.  SwiGLU goes over the places of all experts; those of other runs are written after it. */
static void gate_up_apart(nb_gpu_rank *f, nb_cuda_kind kind, const nb_gpu_experts *x, nb_cuda_rows xn, size_t n)
{
    const size_t inter = f->r.whole->moe_inter, width = nb_gpu_apart_width(f->r.whole);
    for (size_t k = 0; k < x->n_run; k++)
        for (size_t i = NB_GPU_GATE; i <= NB_GPU_UP && x->run[k].apart; i++) {
            nb_cuda_experts_args a = run_args(f, n, &x->run[k], i);
            a.x = xn;
            a.y = nb_gpu_floats(f->e_y + (i == NB_GPU_UP ? width / 2 : 0), width);
            a.src = f->r_src;
            a.n_out = inter;
            nb_gpu_experts_run(f, x->run[k].row[i][kind], a);
        }
    f->api->swiglu(f->g, &(nb_cuda_swiglu_args){ .gate = f->e_y,
                                                 .up = f->e_y + width / 2,
                                                 .y = f->x[kind].e_act,
                                                 .n_tok = n * f->r.whole->top_k,
                                                 .dim = inter,
                                                 .in_stride = width,
                                                 .limit = f->r.whole->act_limit });
}

void nb_gpu_routed(nb_gpu_rank *f, nb_cuda_kind kind, size_t layer, nb_cuda_rows xn, size_t n)
{
    const nb_gpu_experts *x = &f->w.layer[layer].expert;
    if (x->apart) gate_up_apart(f, kind, x, xn, n);
    for (size_t k = 0; k < x->n_run; k++) {
        if (x->run[k].apart) continue;
        nb_cuda_experts_args a = run_args(f, n, &x->run[k], NB_GPU_GATE);
        a.up = x->run[k].w[NB_GPU_UP];
        a.x = xn;
        a.y = f->x[kind].e_act;
        a.src = f->r_src;
        a.n_out = f->r.whole->moe_inter;
        nb_gpu_experts_run(f, x->run[k].row[NB_GPU_GATE][kind], a);
    }
    for (size_t k = 0; k < x->n_run; k++) {
        nb_cuda_experts_args a = run_args(f, n, &x->run[k], NB_GPU_DOWN);
        a.x = f->x[kind].e_act;
        a.y = nb_gpu_floats(f->e_y, f->r.whole->hidden);
        a.n_out = f->r.whole->hidden;
        a.chosen = x->n_run == 1 && !x->apart;
        nb_gpu_experts_run(f, x->run[k].row[NB_GPU_DOWN][kind], a);
    }
}

/* e_y = the chosen experts' outputs, branch = the shared experts', or that of the dense block beside them.  A
 * data-parallel rank makes its choice here, and meets the others for the experts (nb_gpu_share). */
static void moe(nb_gpu_rank *f, nb_gpu_pass *p, size_t layer)
{
    const nb_gpu_layer *l = &f->w.layer[layer];
    const nb_gpu_glu *glu = &f->glu[layer];
    const bool shared = has_shared(f, layer), beside = shared && p->kind == NB_CUDA_DIRECT;
    const bool few = p->n_pad <= FEW_ROWS;
    if (beside && !few) shared_beside(f, p, l, glu, few);
    nb_gpu_linear(f, p->kind, &l->router, f->xn, nb_gpu_floats(f->r_logits, nb_n_choice(f->r.whole)), p->n_pad);
    if (beside && few) shared_beside(f, p, l, glu, few);
    nb_gpu_route(f, p, layer, f->r_id, f->r_weight);
    p->beside = beside && f->r.o.data_parallel;
    if (p->beside) return;
    if (!f->r.o.data_parallel) nb_gpu_routed(f, p->kind, layer, f->x[p->kind].xn, p->n_pad);
    nb_gpu_zero_experts(f, p);
    if (beside)
        f->api->side_join(f->g);
    else if (shared)
        dense(f, p, l, glu);
}

static void feed_forward(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_gpu_layer *l = &f->w.layer[layer];
    if (!nb_layer_has_experts(r->whole, layer)) {
        dense(f, p, l, &f->glu[layer]);
    } else if (!l->host) {
        moe(f, p, layer);
    } else {
        nb_gpu_linear(f, p->kind, &l->router, f->xn, nb_gpu_floats(f->r_logits, nb_n_choice(r->whole)),
                      p->n_pad);
        if (p->upload)
            nb_gpu_host_upload(f, p, layer);
        else
            nb_gpu_host_moe(f, p, layer);
    }
}

/* A rank's columns. */
static void combine_part(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer)
{
    const nb_model_config *c = f->r.whole;
    const bool shared = has_shared(f, layer);
    const nb_cuda_rows y = branch_of(f, f->ranks.sum);
    if (shared) down(f, p, &f->w.layer[layer]);
    if (c->dense[layer] || !f->r.part.n_out) return;
    f->api->moe_sum(f->g, &(nb_cuda_moe_sum_args){ .y = y.f,
                                                   .e = f->e_y + f->r.part.out0,
                                                   .shared = shared ? y.f : NULL,
                                                   .weight = f->r_weight,
                                                   .place = f->r_place,
                                                   .n_tok = p->n_pad,
                                                   .top_k = c->top_k,
                                                   .dim = f->r.part.n_out,
                                                   .y_stride = y.stride,
                                                   .e_stride = c->hidden,
                                                   .shared_stride = y.stride });
}

/* The sum reads every expert's output once, and so may the norm behind it: the two in one kernel save a launch
 * and a pass over the branch.  A trace looks between them.  A shortcut's outputs stay in e_y until the next layer's
 * combine: that layer is dense and has none of its own. */
static void combine(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_model_config *c = r->whole;
    if (f->ranks.divided) {
        combine_part(f, p, layer);
        return;
    }
    if (r->o.data_parallel && nb_layer_has_experts(c, layer)) return; /* where they met */
    const bool end = nb_layer_ends_shortcut(c, layer);
    if (c->dense[layer] && !end) return;
    p->sum = (nb_cuda_moe_sum_args){ .y = f->branch,
                                     .e = f->e_y,
                                     .shared = has_shared(f, layer) ? f->branch : NULL,
                                     .weight = f->r_weight,
                                     .place = f->r_place,
                                     .n_tok = p->n_pad,
                                     .top_k = c->top_k,
                                     .dim = c->hidden,
                                     .y_stride = c->hidden,
                                     .e_stride = c->hidden,
                                     .shared_stride = c->hidden };
    if (nb_gpu_is_host(f, end ? layer - 1 : layer) && !p->upload) { /* e_y is the sum already */
        p->sum.weight = f->host.one;
        p->sum.place = f->host.place;
        p->sum.top_k = 1;
    }
    if (!r->trace) return;
    f->api->moe_sum(f->g, &p->sum);
    p->sum.e = NULL;
}

/* ---- traces ---- */

static void trace(nb_rank *r, nb_pass *pass, const char *what, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const size_t hidden = r->whole->hidden, wide = nb_gpu_h_width(f);
    char name[64];
    const float *x = f->branch;
    size_t dim = hidden, stride = hidden;
    if (layer != SIZE_MAX && (!strcmp(what, "q") || !strcmp(what, "kv"))) {
        if (f->csa.any) return; /* queries in place; rows are made elsewhere */
        const nb_attn_dims *d = nb_rank_dims(r, layer);
        const nb_gpu_group *in = &f->w.layer[layer].in;
        const bool q = what[0] == 'q', low_rank = q && nb_rank_attn(r, layer)->q_lora;
        /* direct MLA has divided its queries already */
        if (q && p->kind == NB_CUDA_DIRECT && nb_rank_attn(r, layer)->kind != NB_ATTN_GQA) return;
        dim = q ? d->n_head * d->d_q : d->n_values;
        x = low_rank ? f->q : q ? f->in : f->in + in->at[1];
        stride = low_rank ? dim : in->width;
    } else if (!strcmp(what, "out") || !strcmp(what, "embed")) {
        x = f->h + p->h_row0 * wide;
        dim = layer == SIZE_MAX ? hidden : wide;
        stride = wide;
    }
    float *copy = malloc(p->base.n_row * stride * sizeof *copy);
    if (!copy) return;
    f->api->download(f->g, copy, x, (p->base.n_row * stride - (stride - dim)) * sizeof *copy);
    if (layer == SIZE_MAX)
        (void)snprintf(name, sizeof name, "%s", what);
    else
        (void)snprintf(name, sizeof name, "layers.%zu.%s", layer, what);
    if (f->api->sync(f->g, NULL) == NB_OK)
        r->trace(r->trace_ctx, name, copy, p->base.n_row, dim, stride);
    free(copy);
}

/* ---- graphs ---- */

void nb_gpu_drop_graphs(nb_gpu_rank *f)
{
    for (size_t i = 0; i < f->n_graph; i++)
        for (size_t k = 0; k < f->max_seg; k++) f->api->graph_destroy(f->g, f->graph[i].seg[k]);
    f->n_graph = 0;
}

/* Items that a graph for this pass is made for.  A sequence alone may be short enough that attention can give
 * two multiprocessors to each (mla_few.cu), which is decided at the launch. */
static size_t graph_items(const nb_gpu_rank *f, const nb_gpu_pass *p)
{
    const size_t few = (size_t)f->info.n_sm / 2;
    bool fits = p->n_pad == 1 && few < f->max_part;
    for (size_t s = 0; s < f->n_set; s++) fits &= p->n_item[s] <= few;
    return fits ? few : f->max_part;
}

void nb_gpu_pass_layers(nb_gpu_rank *f, nb_gpu_pass *p)
{
    if (p->base.n_row)
        nb_layers_run(&f->r, &p->base);
    else
        nb_layers_idle(&f->r, &p->base);
}

/* The pass becomes graph i, and runs while it does: a layer whose experts are the host's cannot be captured before
 * the layers in front of it have run. */
static bool capture(nb_gpu_rank *f, nb_gpu_pass *p, size_t i)
{
    p->fixed = true;
    p->base.n_chunk = p->n_pad;
    p->max_chunk_tok = 1;
    p->seg = f->graph[i].seg;
    p->n_seg = 0;
    f->api->graph_begin(f->g);
    nb_gpu_pass_layers(f, p);
    p->seg[p->n_seg++] = f->api->graph_end(f->g);
    NB_ASSERT(p->n_seg == f->max_seg);
    bool whole = true;
    for (size_t k = 0; k < p->n_seg; k++) whole &= p->seg[k] != NULL;
    for (size_t k = 0; !whole && k < p->n_seg; k++) f->api->graph_destroy(f->g, p->seg[k]);
    if (!whole) return false;
    f->api->graph_launch(f->g, p->seg[p->n_seg - 1]);
    f->graph[i].n_row = p->n_pad;
    f->graph[i].n_all = p->round.n[0];
    f->graph[i].most_item = p->most_item;
    f->graph[i].pool = f->r.pool.page;
    return true;
}

void nb_gpu_pass_graph(nb_gpu_rank *f, nb_gpu_pass *p)
{
    const unsigned char *pool = f->r.pool.page;
    if (f->r.trace) { /* what is downloaded in between cannot be captured */
        nb_gpu_pass_layers(f, p);
        return;
    }
    if (f->n_graph && f->graph[0].pool != pool) nb_gpu_drop_graphs(f);
    size_t i = 0;
    p->most_item = graph_items(f, p);
    while (i < f->n_graph &&
           (f->graph[i].n_row != p->n_pad || f->graph[i].n_all != p->round.n[0] ||
            f->graph[i].most_item != p->most_item))
        i++;
    if (i == f->n_graph) {
        if (i == NB_GPU_GRAPHS) {
            nb_gpu_drop_graphs(f);
            i = 0;
        }
        if (!capture(f, p, i)) return; /* the device has failed: sync tells */
        f->n_graph = i + 1;
        return;
    }
    nb_gpu_host_replay(f, p, f->graph[i].seg);
}

/* ---- the table ---- */

static size_t bytes(const nb_rank *r)
{
    return ((const nb_gpu_rank *)(const void *)r)->work_bytes;
}

static uint64_t weight_bytes(const nb_rank *r)
{
    return ((const nb_gpu_rank *)(const void *)r)->w.n_bytes;
}

const nb_backend nb_backend_cuda = {
    .name = "cuda",
    .create = nb_gpu_create,
    .destroy = nb_gpu_destroy,
    .step = nb_gpu_step,
    .logits = nb_gpu_logits,
    .sample = nb_gpu_sample,
    .begin = begin,
    .attn = { [NB_ATTN_MLA] = &nb_gpu_ops_mla, [NB_ATTN_GQA] = &nb_gpu_ops_gqa, [NB_ATTN_DSA] = &nb_gpu_ops_dsa, [NB_ATTN_CSA] = &nb_gpu_ops_csa },
    .output = output,
    .feed_forward = feed_forward,
    .combine = combine,
    .branch_norm = branch_norm,
    .add_norm = add_norm,
    .meet = nb_gpu_meet,
    .connect = nb_gpu_connect,
    .trace = trace,
    .bytes = bytes,
    .weight_bytes = weight_bytes,
    .describe = nb_gpu_describe,
    .count = nb_gpu_count,
    .upload_tok = nb_gpu_upload_tok,
    .host_layers = nb_gpu_host_layers,
};
