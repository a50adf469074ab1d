/* gpu_pass.c - one pass over the layers on a GPU: its tables, then the operations in order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gpu_internal.h"

/* ---- tables ---- */

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

size_t nb_gpu_bucket(size_t n_row)
{
    return n_row <= 8 ? n_row : n_row <= 64 ? div_up(n_row, 8) * 8 : div_up(n_row, 32) * 32;
}

/* The rows of one chunk's part, and the groups of its queries. */
static void fill_chunk(nb_gpu_forward *f, nb_gpu_pass *p, size_t i, size_t row0, size_t *n_own,
                       size_t *n_group)
{
    const nb_chunk *c = &p->chunk[p->which[i]];
    nb_gpu_section *x = &f->stage[p->kind].host;
    const size_t pos0 = c->pos0 + p->tok0[i], n = p->n_tok[i], end = pos0 + n;
    const bool thrift = f->thrift && c->thrift && c->kv.plane;
    const size_t n_page = div_up(end, NB_PAGE_TOK), own = n_page - pos0 / NB_PAGE_TOK;
    NB_ASSERT(n_page <= c->kv.n_block);
    x->chunk[i] =
        (nb_cuda_chunk){ .tail = c->kv.tail,
                         .own = own > 1 ? f->own + *n_own * NB_PAGE_TOK * f->n_values : NULL,
                         .row0 = (uint32_t)row0,
                         .n_tok = (uint32_t)n,
                         .pos0 = (uint32_t)pos0,
                         .block0 = (uint32_t)p->n_block };
    if (own > 1) *n_own += own;
    NB_ASSERT(*n_own <= f->max_own);
    memcpy(x->block + p->n_block, c->kv.block, n_page * sizeof *x->block);
    p->n_block += n_page;
    if (n > p->max_chunk_tok) p->max_chunk_tok = n;
    for (size_t t = 0; t < n; t++) {
        x->tok[row0 + t] = c->tok[p->tok0[i] + t];
        x->pos[row0 + t] = (uint32_t)(pos0 + t);
        x->row_chunk[row0 + t] = (uint32_t)i;
        x->rope_long[row0 + t] = c->rope_long;
        x->thrift[row0 + t] = thrift;
    }
    for (size_t t = 0, k; p->kind == NB_CUDA_DIRECT && t < n; t += k) {
        const size_t room = NB_PAGE_TOK - (pos0 + t) % NB_PAGE_TOK;
        k = n - t < room ? n - t : room;
        if (k > NB_CUDA_QUERY_MAX) k = NB_CUDA_QUERY_MAX;
        if (thrift) k = 1; /* each has its own tokens refined */
        f->group[(*n_group)++] = (nb_cuda_group){ .chunk = (uint32_t)i,
                                                  .row0 = (uint32_t)(row0 + t),
                                                  .n_q = (uint32_t)k,
                                                  .n_page = (uint32_t)((pos0 + t) / NB_PAGE_TOK) };
    }
}

static void fill_items(nb_gpu_forward *f, nb_gpu_pass *p, size_t n_group)
{
    nb_gpu_section *x = &f->stage[p->kind].host;
    for (size_t s = 0; s < f->n_set; s++) {
        uint32_t at = 0;
        for (size_t i = 0, row = 0; i < n_group; i++) {
            const uint32_t n = (uint32_t)nb_cuda_n_unit(f->units[s], f->group[i].n_page) + 1;
            for (size_t k = 0; k < f->group[i].n_q; k++, at += n) x->part_first[s][row++] = at;
        }
        for (size_t r = p->n_row; r <= p->n_pad; r++) x->part_first[s][r] = at;
        NB_ASSERT(at <= f->max_part);
        p->n_item[s] = nb_cuda_items(f->group, n_group, f->units[s], f->info.n_sm, f->mla,
                                     x->part_first[s], x->item[s]);
        x->n_item[s] = (uint32_t)p->n_item[s];
    }
}

nb_status nb_gpu_pass_upload(nb_gpu_forward *f, nb_gpu_pass *p, nb_error *err)
{
    nb_gpu_stage *s = &f->stage[p->kind];
    nb_gpu_section *x = &s->host;
    size_t n_own = 0, n_group = 0;
    if (s->in_flight) NB_TRY(f->api->sync(f->g, err));
    p->n_block = p->max_chunk_tok = 0;
    for (size_t i = 0, row = 0; i < p->n_chunk; row += p->n_tok[i++])
        fill_chunk(f, p, i, row, &n_own, &n_group);
    for (size_t r = p->n_row; r < p->n_pad; r++) {
        x->tok[r] = x->row_chunk[r] = UINT32_MAX;
        x->pos[r] = 0;
        x->rope_long[r] = x->thrift[r] = 0;
        x->chunk[p->n_chunk + r - p->n_row] = (nb_cuda_chunk){ 0 };
    }
    if (p->kind == NB_CUDA_DIRECT) fill_items(f, p, n_group);
    f->api->upload(f->g, s->dev_mem, s->host_mem, s->fixed_bytes);
    for (size_t i = 0; p->kind == NB_CUDA_DIRECT && i < f->n_set; i++)
        f->api->upload(f->g, s->dev.item[i], x->item[i], p->n_item[i] * sizeof *x->item[i]);
    f->api->upload(f->g, s->dev.block, x->block, p->n_block * sizeof *x->block);
    s->in_flight = true;
    return NB_OK;
}

/* ---- operations ---- */

void nb_gpu_trace(nb_gpu_forward *f, const nb_gpu_pass *p, const char *what, size_t layer,
                  const float *x, size_t dim, size_t stride)
{
    char name[64];
    if (!f->trace) return;
    float *copy = malloc(p->n_row * stride * sizeof *copy);
    if (!copy) return;
    f->api->download(f->g, copy, x, (p->n_row * stride - (stride - dim)) * sizeof *copy);
    if (layer == SIZE_MAX)
        (void)snprintf(name, sizeof name, "%s", what);
    else
        (void)snprintf(name, sizeof name, "layers.%zu.%s", layer, what);
    if (f->api->sync(f->g, NULL) == NB_OK)
        f->trace(f->trace_ctx, name, copy, p->n_row, dim, stride);
    free(copy);
}

void nb_gpu_linear(nb_gpu_forward *f, nb_cuda_kind kind, const nb_gpu_mat *m, nb_cuda_rows x,
                   nb_cuda_rows y, size_t n_tok)
{
    m->row[kind]->fn(f->g, &(nb_cuda_linear_args){ .w = m->w,
                                                   .bias = m->bias,
                                                   .x = x,
                                                   .y = y,
                                                   .n_tok = n_tok,
                                                   .n_batch = 1,
                                                   .n_out = m->w.n_row });
}

static nb_cuda_rows floats(float *x, size_t stride)
{
    return (nb_cuda_rows){ .f = x, .stride = stride };
}

static void run_group(nb_gpu_forward *f, const nb_gpu_pass *p, const nb_gpu_group *g,
                      nb_cuda_rows x, float *y)
{
    for (size_t i = 0; i < g->n; i++)
        nb_gpu_linear(f, p->kind, &g->m[i], x, floats(y + g->at[i], g->width), p->n_pad);
}

static const nb_cuda_moe_sum_args none = { .e = NULL };

/* h += factor * branch, or sum where it has something to add; xn = the norm with w of that. */
static void join(nb_gpu_forward *f, const nb_gpu_pass *p, const float *w, const float *branch,
                 const nb_cuda_moe_sum_args *sum)
{
    const nb_model_config *c = &f->o.model->c;
    f->api->norm(f->g, &(nb_cuda_norm_args){ .h = f->h + p->h_row0 * c->hidden,
                                             .branch = branch,
                                             .w = w,
                                             .y = f->xn,
                                             .n_row = p->n_pad,
                                             .dim = c->hidden,
                                             .h_stride = c->hidden,
                                             .branch_stride = c->hidden,
                                             .branch_factor = c->branch_factor,
                                             .eps = c->eps,
                                             .y_factor = 1,
                                             .sum = *sum });
}

static void begin(nb_gpu_forward *f, const nb_gpu_pass *p)
{
    const nb_model_config *c = &f->o.model->c;
    const nb_gpu_section *x = &f->stage[p->kind].dev;
    f->api->embed(f->g, &(nb_cuda_embed_args){ .y = f->h + p->h_row0 * c->hidden,
                                               .id = x->tok,
                                               .w = f->w.embed.w,
                                               .n_tok = p->n_pad,
                                               .y_stride = c->hidden,
                                               .factor = c->embed_factor });
    nb_gpu_trace(f, p, "embed", SIZE_MAX, f->h + p->h_row0 * c->hidden, c->hidden, c->hidden);
    if (c->rope.dim)
        f->api->rope_table(f->g, &(nb_cuda_rope_table_args){ .cos_sin = f->cos_sin,
                                                             .pos = x->pos,
                                                             .rope_long = x->rope_long,
                                                             .inv_freq = f->inv_freq,
                                                             .inv_freq_long = f->inv_freq_long,
                                                             .n_tok = p->n_pad,
                                                             .dim = c->rope.dim,
                                                             .factor = c->rope.factor });
    join(f, p, f->w.layer[0].in_norm, NULL, &none);
}

/* ---- projections ---- */

static void project_mla(nb_gpu_forward *f, const nb_gpu_pass *p, size_t layer)
{
    const nb_model_config *c = &f->o.model->c;
    const nb_gpu_layer *l = &f->w.layer[layer];
    const size_t q_w = c->n_head * f->d_q;
    const bool direct = p->kind == NB_CUDA_DIRECT;
    float *q = f->in;
    size_t q_stride = f->in_width;
    run_group(f, p, &l->in, f->xn, f->in);
    if (c->q_lora) {
        f->api->norm(f->g, &(nb_cuda_norm_args){ .h = f->in,
                                                 .w = l->q_a_norm,
                                                 .y = f->qa,
                                                 .n_row = p->n_pad,
                                                 .dim = c->q_lora,
                                                 .h_stride = f->in_width,
                                                 .eps = c->eps_lora,
                                                 .y_factor = 1 });
        nb_gpu_linear(f, p->kind, &l->q_b, f->qa, floats(f->q, q_w), p->n_pad);
        q = f->q;
        q_stride = q_w;
    }
    nb_cuda_mla_finish_args a = { .q = q,
                                  .kv = f->in + l->in.at[1],
                                  .norm = l->kv_a_norm,
                                  .mean = l->mean,
                                  .rope_k = l->rope_k,
                                  .rope_q = l->rope_q,
                                  .cos_sin = f->cos_sin,
                                  .n_tok = p->n_pad,
                                  .n_head = c->n_head,
                                  .d_nope = c->d_nope,
                                  .d_rope = c->d_rope,
                                  .lora = c->kv_lora,
                                  .q_stride = q_stride,
                                  .kv_stride = f->in_width,
                                  .hadamard = f->o.model->layer[layer].kv_hadamard,
                                  .eps = c->eps_lora,
                                  .interleaved = c->rope.interleaved };
    if (direct) {
        a.q_nope = f->q_nope;
        a.q_rope = f->qx + c->kv_lora;
        a.q_rope_head = c->kv_lora + c->d_rope;
        a.q_rope_stride = c->n_head * a.q_rope_head;
    }
    f->api->mla_finish(f->g, &a);
    if (!direct) nb_gpu_trace(f, p, "q", layer, q, q_w, q_stride);
    nb_gpu_trace(f, p, "kv", layer, f->in + l->in.at[1], f->n_values, f->in_width);
}

static void project_gqa(nb_gpu_forward *f, const nb_gpu_pass *p, size_t layer)
{
    const nb_model_config *c = &f->o.model->c;
    const nb_gpu_layer *l = &f->w.layer[layer];
    run_group(f, p, &l->in, f->xn, f->in);
    f->api->gqa_finish(f->g, &(nb_cuda_gqa_finish_args){ .q = f->in,
                                                         .kv = f->in + l->in.at[1],
                                                         .q_norm = l->q_norm,
                                                         .k_norm = l->k_norm,
                                                         .cos_sin = f->cos_sin,
                                                         .n_tok = p->n_pad,
                                                         .n_head = c->n_head,
                                                         .n_kv_head = c->n_kv_head,
                                                         .head_dim = c->head_dim,
                                                         .rope_dim = c->rope.dim,
                                                         .q_stride = f->in_width,
                                                         .kv_stride = f->in_width,
                                                         .eps = c->eps,
                                                         .interleaved = c->rope.interleaved });
    nb_gpu_trace(f, p, "q", layer, f->in, c->n_head * f->d_q, f->in_width);
    nb_gpu_trace(f, p, "kv", layer, f->in + l->in.at[1], f->n_values, f->in_width);
}

/* ---- feed forward ---- */

/* act = silu(gate) * up. */
static void gate_up(nb_gpu_forward *f, const nb_gpu_pass *p, const nb_gpu_layer *l,
                    const nb_gpu_glu *glu)
{
    const size_t inter = l->gate_up.width / 2;
    if (p->kind == NB_CUDA_DIRECT && glu->row) {
        glu->row->fn(f->g, &(nb_cuda_experts_args){ .gate = glu->gate,
                                                    .up = glu->up,
                                                    .x = f->xn,
                                                    .y = f->act,
                                                    .n_expert = 1,
                                                    .n_out = inter,
                                                    .n_tok = p->n_pad,
                                                    .n_place = p->n_pad });
        return;
    }
    run_group(f, p, &l->gate_up, f->xn, f->gate_up);
    f->api->swiglu(f->g, &(nb_cuda_swiglu_args){ .gate = f->gate_up,
                                                 .up = f->gate_up + inter,
                                                 .y = f->act,
                                                 .n_tok = p->n_pad,
                                                 .dim = inter,
                                                 .in_stride = 2 * inter });
}

/* branch = down(silu(gate) * up), or the shared experts. */
static void dense(nb_gpu_forward *f, const nb_gpu_pass *p, const nb_gpu_layer *l,
                  const nb_gpu_glu *glu)
{
    const size_t hidden = f->o.model->c.hidden;
    gate_up(f, p, l, glu);
    nb_gpu_linear(f, p->kind, &l->down, f->act, floats(f->branch, hidden), p->n_pad);
}

/* Shared experts beside the choice of the others, so that their weights come meanwhile.  Few rows: they begin early,
 * behind the router, whose blocks would else find no room. */
enum { FEW_ROWS = 16 };

static void shared_beside(nb_gpu_forward *f, const nb_gpu_pass *p, const nb_gpu_layer *l,
                          const nb_gpu_glu *glu, bool few)
{
    f->api->side_begin(f->g, few);
    dense(f, p, l, glu);
    f->api->side_end(f->g);
}

/* Leaves the sum over the experts to the norm that follows, or the branch where sum->e is NULL. */
static void moe(nb_gpu_forward *f, const nb_gpu_pass *p, const nb_gpu_layer *l,
                const nb_gpu_glu *glu, nb_cuda_moe_sum_args *sum)
{
    const nb_model_config *c = &f->o.model->c;
    const bool shared = l->down.w.data != NULL, beside = shared && p->kind == NB_CUDA_DIRECT;
    const bool few = p->n_pad <= FEW_ROWS;
    if (beside && !few) shared_beside(f, p, l, glu, few);
    nb_gpu_linear(f, p->kind, &l->router, f->xn, floats(f->r_logits, c->n_expert), p->n_pad);
    if (beside && few) shared_beside(f, p, l, glu, few);
    f->api->route(f->g, &(nb_cuda_route_args){ .logits = f->r_logits,
                                               .bias = l->router_b,
                                               .id = f->r_id,
                                               .first = f->r_first,
                                               .src = f->r_src,
                                               .place = f->r_place,
                                               .weight = f->r_weight,
                                               .n_tok = p->n_pad,
                                               .n_expert = c->n_expert,
                                               .top_k = c->top_k,
                                               .n_group = c->n_group,
                                               .topk_group = c->topk_group,
                                               .group_top = c->group_top,
                                               .sigmoid = c->sigmoid,
                                               .normalise = c->normalise,
                                               .factor = c->routed_factor });
    nb_cuda_experts_args a = { .gate = l->expert.gate,
                               .up = l->expert.up,
                               .x = f->xn,
                               .y = f->e_act,
                               .first = f->r_first,
                               .src = f->r_src,
                               .n_expert = c->n_expert,
                               .n_out = c->moe_inter,
                               .n_tok = p->n_pad,
                               .n_place = p->n_pad * c->top_k };
    l->expert.row_up[p->kind]->fn(f->g, &a);
    a.gate = l->expert.down;
    a.up = (nb_weight){ 0 };
    a.x = f->e_act;
    a.y = floats(f->e_y, c->hidden);
    a.src = NULL;
    a.n_out = c->hidden;
    a.chosen = true;
    l->expert.row_down[p->kind]->fn(f->g, &a);
    if (beside)
        f->api->side_join(f->g);
    else if (shared)
        dense(f, p, l, glu);
    *sum = (nb_cuda_moe_sum_args){ .y = f->branch,
                                   .e = f->e_y,
                                   .shared = shared ? f->branch : NULL,
                                   .weight = f->r_weight,
                                   .place = f->r_place,
                                   .n_tok = p->n_pad,
                                   .top_k = c->top_k,
                                   .dim = c->hidden,
                                   .y_stride = c->hidden,
                                   .e_stride = c->hidden,
                                   .shared_stride = c->hidden };
    if (!f->trace) return;
    f->api->moe_sum(f->g, sum); /* the norm does not leave it */
    sum->e = NULL;
}

/* ---- layers ---- */

static void layer(nb_gpu_forward *f, const nb_gpu_pass *p, size_t i)
{
    const nb_model_config *c = &f->o.model->c;
    const nb_gpu_layer *l = &f->w.layer[i];
    const bool last = i + 1 == c->n_layer;
    const nb_kv_view *kv = &p->chunk[p->which[0]].kv;
    const bool planes = kv->plane && nb_gpu_thrift_layer(f, i);
    nb_cuda_moe_sum_args sum = none;
    if (f->mla)
        project_mla(f, p, i);
    else
        project_gqa(f, p, i);
    f->api->kv_append(
        f->g, &(nb_cuda_kv_append_args){ .cache = nb_gpu_cache(f, p, i),
                                         .kv = f->in + l->in.at[1],
                                         .kv_stride = f->in_width,
                                         .max_chunk_tok = p->max_chunk_tok,
                                         .bad = p->bad,
                                         .n_saturated = f->saturated,
                                         .plane = planes ? kv->plane : NULL,
                                         .plane_block_bytes = kv->plane_block,
                                         .plane_layer_off = planes ? kv->plane_off[i] : 0 });
    if (p->kind == NB_CUDA_DIRECT)
        nb_gpu_attn_direct(f, p, i);
    else
        nb_gpu_attn_prompt(f, p, i);
    nb_gpu_linear(f, p->kind, &l->o, f->attn_y, floats(f->branch, c->hidden), p->n_pad);
    nb_gpu_trace(f, p, "attn_out", i, f->branch, c->hidden, c->hidden);
    join(f, p, l->post_norm, f->branch, &none);
    if (c->dense[i])
        dense(f, p, l, &f->glu[i]);
    else
        moe(f, p, l, &f->glu[i], &sum);
    nb_gpu_trace(f, p, "mlp_out", i, f->branch, c->hidden, c->hidden);
    join(f, p, last ? NULL : f->w.layer[i + 1].in_norm, f->branch, &sum);
    nb_gpu_trace(f, p, "out", i, f->h + p->h_row0 * c->hidden, c->hidden, c->hidden);
}

void nb_gpu_pass_layers(nb_gpu_forward *f, const nb_gpu_pass *p)
{
    begin(f, p);
    for (size_t i = 0; i < f->o.model->c.n_layer; i++) layer(f, p, i);
}

/* ---- graphs ---- */

static void drop_graphs(nb_gpu_forward *f)
{
    for (size_t i = 0; i < f->n_graph; i++) f->api->graph_destroy(f->g, f->graph[i].graph);
    f->n_graph = 0;
}

/* Items that a graph for this pass is made for.  A sequence alone may be short enough that attention can give
 * two multiprocessors to each (mla_few.cu), which is decided at the launch. */
static size_t graph_items(const nb_gpu_forward *f, const nb_gpu_pass *p)
{
    const size_t few = (size_t)f->info.n_sm / 2;
    bool fits = p->n_pad == 1 && few < f->max_part;
    for (size_t s = 0; s < f->n_set; s++) fits &= p->n_item[s] <= few;
    return fits ? few : f->max_part;
}

void nb_gpu_pass_graph(nb_gpu_forward *f, nb_gpu_pass *p)
{
    const unsigned char *pool = p->chunk[p->which[0]].kv.pool;
    if (f->trace) { /* what is downloaded in between cannot be captured */
        nb_gpu_pass_layers(f, p);
        return;
    }
    if (f->n_graph && f->graph[0].pool != pool) drop_graphs(f);
    size_t i = 0;
    p->most_item = graph_items(f, p);
    while (i < f->n_graph &&
           (f->graph[i].n_row != p->n_pad || f->graph[i].most_item != p->most_item))
        i++;
    if (i == f->n_graph) {
        if (i == NB_GPU_GRAPHS) {
            drop_graphs(f);
            i = 0;
        }
        p->fixed = true;
        p->n_chunk = p->n_pad;
        p->max_chunk_tok = 1;
        f->api->graph_begin(f->g);
        nb_gpu_pass_layers(f, p);
        nb_cuda_graph *graph = f->api->graph_end(f->g);
        if (!graph) return; /* the device has failed: sync tells */
        f->graph[i].n_row = p->n_pad;
        f->graph[i].most_item = p->most_item;
        f->graph[i].pool = pool;
        f->graph[i].graph = graph;
        f->n_graph = i + 1;
    }
    f->api->graph_launch(f->g, f->graph[i].graph);
}
