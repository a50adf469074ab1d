/* gpu_csa.c - compressed attention on a GPU (attn_csa.c has the formulas, nb_cuda_csa.h the operations).
 *
 * As on the CPU, what a row reads and the order of its sums follow from its position.  Rows of a pass attend in groups
 * that the workspace holds: an indexer's queries, scores and choice, then units of rows whose states are combined.
 * Windows and the compressors' sums are in the sequence's slot; operations change them in the order of the passes. */
#include "kernel/linear/packed.h"
#include "model/attn_csa.h"
#include "model/gpu/gpu.h"

enum {
    INDEX_SEG = 2,          /* the indexer's keys, behind a row's two segments */
    GROUP_BYTES = 512 << 20 /* of scores and choices at once, unless one row needs more */
};

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- what is created ---- */

nb_status nb_gpu_csa_can(const nb_attn_config *a, nb_error *err)
{
    if (a->head_dim > 1024 || a->idx_dim > 1024 || a->idx_head > 128)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "rows of %zu values and an indexer of %zu heads of %zu: a GPU has compressed attention for at most "
                       "1024 and 128 heads of 1024 (--device cpu)",
                       a->head_dim, a->idx_head, a->idx_dim);
    return NB_OK;
}

nb_status nb_gpu_csa_choose(nb_gpu_rank *f, size_t layer, nb_error *err)
{
    nb_gpu_csa *s = &f->csa;
    const size_t n_layer = f->r.whole->n_layer;
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    const nb_record *rec = &f->r.o.record[layer];
    if (!s->row) {
        s->row = nb_arena_array(&f->r.arena, n_layer, sizeof *s->row);
        s->score_row = nb_arena_array(&f->r.arena, n_layer, sizeof *s->score_row);
        if (!s->row || !s->score_row) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    }
    const nb_cuda_csa_row *r = f->api->csa_attend;
    const nb_cuda_index_row *x = f->api->index_score;
    while (r->name && !(r->cc <= f->info.cc && r->can(rec, a->ratio, a->head_dim, a->n_head))) r++;
    while (a->idx_top && x->name && !(x->cc <= f->info.cc && x->can(rec, INDEX_SEG, a->idx_head))) x++;
    if (!r->name || !x->name)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "layer %zu: the GPU has no compressed attention over %s rows of %zu values (--device cpu)", layer,
                       nb_kv_type_name(rec->type), a->head_dim);
    s->any = true;
    s->row[layer] = r;
    s->score_row[layer] = a->idx_top ? x : NULL;
    return NB_OK;
}

static size_t window_units(const nb_attn_config *a)
{
    return div_up(a->window, NB_CUDA_CSA_FIRST);
}

/* Units of a layer's rows in the longest sequence. */
static size_t units_of(const nb_gpu_rank *f, const nb_attn_config *a)
{
    size_t n = a->ratio ? f->r.o.max_pos / a->ratio : 0;
    if (a->idx_top && n > a->idx_top) n = a->idx_top;
    return window_units(a) + nb_cuda_csa_n_unit(n);
}

size_t nb_gpu_csa_states(nb_gpu_rank *f)
{
    nb_gpu_csa *s = &f->csa;
    for (size_t i = 0; s->any && i < f->r.whole->n_layer; i++) {
        const nb_attn_config *a = nb_rank_attn(&f->r, i);
        s->n_unit = most(s->n_unit, units_of(f, a));
        s->comp_width = most(s->comp_width, f->w.layer[i].comp.width);
        s->out_width = most(s->out_width, a->n_head * a->head_dim);
        if (!a->idx_top) continue;
        s->top = most(s->top, a->idx_top);
        s->head = most(s->head, a->idx_head);
        s->q_width = most(s->q_width, a->idx_head * a->idx_dim);
        s->q16_width = most(s->q16_width, NB_CUDA_INDEX_HEADS(a->idx_head) * a->idx_dim);
        s->stride = most(s->stride, div_up(f->max_block * NB_PAGE_TOK / a->ratio, NB_PAGE_TOK) * NB_PAGE_TOK);
    }
    return s->n_unit;
}

void nb_gpu_csa_size(nb_gpu_rank *f)
{
    nb_gpu_csa *s = &f->csa;
    if (!s->any) return;
    const size_t row = (s->stride + s->q_width + s->top + NB_CUDA_TOPK_SCRATCH(s->stride)) * sizeof(float);
    const size_t fit = GROUP_BYTES / row, states = f->max_part / s->n_unit;
    s->rows = most(1, fit < states ? fit : states);
    if (s->rows > f->D) s->rows = f->D;
}

size_t nb_gpu_csa_slots(nb_gpu_rank *f, size_t max_row, nb_gpu_slot *out)
{
    nb_gpu_csa *s = &f->csa;
    const size_t g = s->rows;
    const nb_gpu_slot all[] = {
        { &s->comp, max_row * s->comp_width * sizeof(float) },
        { &s->q, g * s->q_width * sizeof(float) },
        { &s->w, g * s->head * sizeof(float) },
        { &s->q16, g * s->q16_width * 2 },
        { &s->w16, g * NB_CUDA_INDEX_HEADS(s->head) * sizeof(float) },
        { &s->chosen, g * s->top * sizeof(uint32_t) },
        { &s->score, g * s->stride * sizeof(float) },
        { &s->scratch, g * NB_CUDA_TOPK_SCRATCH(s->stride) * sizeof(uint32_t) },
    };
    if (!s->any) return 0;
    _Static_assert(NB_COUNT(all) <= NB_GPU_CSA_SLOTS, "slots");
    for (size_t i = 0; i < NB_COUNT(all); i++) out[i] = all[i];
    return NB_COUNT(all);
}

/* ---- states of sequences ---- */

void nb_gpu_states_begin(nb_gpu_rank *f, const nb_chunk *chunk, size_t n_chunk)
{
    const nb_kv_pool *kv = &f->r.pool;
    const size_t n = kv->state_floats * sizeof *kv->tail;
    for (size_t i = 0; n && i < n_chunk; i++) {
        float *state = kv->tail + chunk[i].slot * kv->tail_floats + kv->state0;
        if (chunk[i].load)
            f->api->copy(f->g, state, kv->snap + (chunk[i].load - 1) * kv->state_floats, n);
        else if (chunk[i].pos0 == 0)
            f->api->fill(f->g, state, 0, n);
    }
}

void nb_gpu_states_end(nb_gpu_rank *f, const nb_chunk *chunk, size_t n_chunk)
{
    const nb_kv_pool *kv = &f->r.pool;
    const size_t n = kv->state_floats * sizeof *kv->tail;
    for (size_t i = 0; n && i < n_chunk; i++) /* of a bad chunk nobody finds it */
        if (chunk[i].save)
            f->api->copy(f->g, kv->snap + (chunk[i].save - 1) * kv->state_floats,
                         kv->tail + chunk[i].slot * kv->tail_floats + kv->state0, n);
}

/* ---- project ---- */

static nb_cuda_rows from_row(nb_cuda_rows x, size_t row)
{
    if (x.f) x.f += row * x.stride;
    if (x.hi) x.hi += row * x.stride;
    if (x.lo) x.lo += row * x.stride;
    return x;
}

static const float *cos_sin_of(const nb_gpu_rank *f, size_t layer, size_t row)
{
    const size_t which = f->r.whole->attn_of[layer];
    return f->cos_sin[which] + row * f->r.whole->attn[which].rope.dim;
}

static void project(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_attn_config *a = nb_rank_attn(r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    const size_t q_w = a->n_head * a->head_dim;
    const nb_cuda_rows qa = nb_gpu_rows_of(f->x[p->kind].qa, a->q_lora);
    nb_gpu_group_run(f, p, &l->in, f->x[p->kind].xn, f->in);
    if (a->ratio) nb_gpu_group_run(f, p, &l->comp, f->xn, f->csa.comp); /* two parts: they choose */
    f->api->norm(f->g, &(nb_cuda_norm_args){ .h = f->in,
                                             .w = l->q_a_norm,
                                             .y = qa,
                                             .n_row = p->n_pad,
                                             .dim = a->q_lora,
                                             .h_stride = l->in.width,
                                             .eps = a->eps_lora,
                                             .y_factor = 1 });
    nb_cuda_csa_turn_args turn = { .x = f->in + l->in.at[1],
                                   .w = l->kv_a_norm,
                                   .cos_sin = cos_sin_of(f, layer, 0),
                                   .row_chunk = f->stage[p->kind].dev.row_chunk,
                                   .bad = p->bad,
                                   .n_tok = p->n_pad,
                                   .n_vec = 1,
                                   .dim = a->head_dim,
                                   .d_rope = a->d_rope,
                                   .x_stride = l->in.width,
                                   .eps = a->eps_lora,
                                   .interleaved = a->rope.interleaved,
                                   .round = r->o.record[layer].type != NB_KV_F32 };
    f->api->csa_turn(f->g, &turn);
    nb_gpu_linear(f, p->kind, &l->q_b, qa, nb_gpu_floats(f->q, q_w), p->n_pad);
    turn.x = f->q;
    turn.w = NULL;
    turn.bad = NULL;
    turn.n_vec = a->n_head;
    turn.x_stride = q_w;
    turn.eps = r->whole->eps;
    turn.round = false;
    f->api->csa_turn(f->g, &turn);
}

/* ---- append ---- */

static size_t state_off(const nb_gpu_rank *f, size_t layer)
{
    return f->r.pool.state0 + f->r.pool.state_off[layer];
}

/* The compressor whose kv are the columns of matrix k of the layer's group, and its gates those of the next. */
static nb_cuda_csa_pool pool_of(const nb_gpu_rank *f, size_t layer, bool keys)
{
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    const nb_csa_state at = nb_csa_state_of(a);
    const size_t k = keys ? 2 : 0, dim = keys ? a->idx_dim : a->head_dim;
    return (nb_cuda_csa_pool){ .kv = f->csa.comp + l->comp.at[k],
                               .gate = f->csa.comp + l->comp.at[k + 1],
                               .ape = l->ape[keys],
                               .norm = l->comp_norm[keys],
                               .dim = dim,
                               .width = nb_csa_width(a, dim),
                               .first = keys ? a->head_dim : 0,
                               .state_off = state_off(f, layer) + (keys ? at.idx_comp : at.comp) };
}

static void append(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_attn_config *a = nb_rank_attn(r, layer);
    if (!a->ratio) return;
    nb_cuda_csa_append_args x = { .cache = nb_gpu_cache(f, p, layer),
                                  .pool = { pool_of(f, layer, false) },
                                  .inv_freq = f->inv_freq[r->whole->attn_of[layer]],
                                  .rope_factor = a->rope.factor,
                                  .bad = p->bad,
                                  .n_saturated = f->saturated,
                                  .ratio = a->ratio,
                                  .d_rope = a->d_rope,
                                  .stride = f->w.layer[layer].comp.width,
                                  .max_chunk_tok = p->max_chunk_tok,
                                  .eps = a->eps_lora,
                                  .interleaved = a->rope.interleaved };
    if (a->idx_top) x.pool[1] = pool_of(f, layer, true);
    f->api->csa_append(f->g, &x);
}

/* ---- attend ---- */

/* The rows that rows [row0, row0 + n) attend to. */
static void choose(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t row0, size_t n)
{
    nb_gpu_csa *s = &f->csa;
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    const nb_cuda_index_row *row = s->score_row[layer];
    const nb_cuda_rows qa = nb_gpu_rows_of(f->x[p->kind].qa, a->q_lora);
    const uint32_t *row_chunk = f->stage[p->kind].dev.row_chunk;
    const nb_cuda_cache cache = nb_gpu_cache(f, p, layer);
    nb_gpu_linear(f, p->kind, &l->index_q, from_row(qa, row0), nb_gpu_floats(s->q, a->idx_head * a->idx_dim), n);
    nb_gpu_linear(f, p->kind, &l->index_w, from_row(f->xn, row0), nb_gpu_floats(s->w, a->idx_head), n);
    f->api->index_finish(f->g, &(nb_cuda_index_finish_args){ .q = s->q,
                                                             .w = s->w,
                                                             .q16 = row->packed ? s->q16 : NULL,
                                                             .w16 = s->w16,
                                                             .cos_sin = cos_sin_of(f, layer, row0),
                                                             .n_tok = n,
                                                             .n_head = a->idx_head,
                                                             .dim = a->idx_dim,
                                                             .d_rope = a->d_rope,
                                                             .interleaved = a->rope.interleaved,
                                                             .last = true });
    row->fn(f->g, &(nb_cuda_index_score_args){ .cache = cache,
                                               .q = s->q,
                                               .w = s->w,
                                               .q16 = s->q16,
                                               .w16 = s->w16,
                                               .row_chunk = row_chunk,
                                               .score = s->score,
                                               .row0 = row0,
                                               .n_row = n,
                                               .n_head = a->idx_head,
                                               .dim = a->idx_dim,
                                               .k = a->idx_top,
                                               .seg = INDEX_SEG,
                                               .stride = s->stride,
                                               .share = 1,
                                               .ratio = a->ratio });
    f->api->index_topk(f->g, &(nb_cuda_index_topk_args){ .chunk = cache.chunk,
                                                         .row_chunk = row_chunk,
                                                         .score = s->score,
                                                         .at = s->chosen,
                                                         .scratch = s->scratch,
                                                         .row0 = row0,
                                                         .n_row = n,
                                                         .k = a->idx_top,
                                                         .stride = s->stride,
                                                         .ratio = a->ratio });
}

/* The heads' outputs, in the parts that the kind's products read. */
static nb_cuda_rows outputs_of(const nb_gpu_rank *f, nb_cuda_kind kind, size_t width)
{
    nb_cuda_rows y = nb_gpu_rows_of(f->csa.y, width);
    if (f->acts[kind] != NB_ACT_FLOAT) y.lo = NULL;
    return y;
}

static void attend_rows(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t row0, size_t n)
{
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    const size_t width = a->n_head * a->head_dim;
    f->csa.row[layer]->fn(
        f->g, &(nb_cuda_csa_attend_args){ .cache = nb_gpu_cache(f, p, layer),
                                          .q = f->q + row0 * width,
                                          .kv = f->in + l->in.at[1],
                                          .sink = l->sink,
                                          .at = a->idx_top ? f->csa.chosen : NULL,
                                          .row_chunk = f->stage[p->kind].dev.row_chunk,
                                          .cos_sin = cos_sin_of(f, layer, row0),
                                          .part_o = f->part_o,
                                          .part_m = f->part_m,
                                          .part_l = f->part_l,
                                          .y = from_row(outputs_of(f, p->kind, width), row0),
                                          .row0 = row0,
                                          .n_row = n,
                                          .n_head = a->n_head,
                                          .dim = a->head_dim,
                                          .d_rope = a->d_rope,
                                          .q_stride = width,
                                          .kv_stride = l->in.width,
                                          .k = a->idx_top,
                                          .ratio = a->ratio,
                                          .window = a->window,
                                          .state_off = state_off(f, layer),
                                          .n_win_unit = window_units(a),
                                          .n_unit = units_of(f, a),
                                          .scale = a->softmax_scale,
                                          .interleaved = a->rope.interleaved });
}

static nb_cuda_rows from_column(nb_cuda_rows x, size_t column)
{
    if (x.f) x.f += column;
    if (x.hi) x.hi += column;
    if (x.lo) x.lo += column;
    return x;
}

/* Whether rows of the matrix are a matrix on the device, too: each group's product is one of its own then. */
static bool has_groups(const nb_weight *w, size_t n_row)
{
    return w->type == NB_W_BF16 || (w->type == NB_W_FP8B && !w->row_scales && n_row % NB_FP8_BLOCK == 0);
}

/* The groups' products, from the heads' outputs.  Only products of generated tokens have batches. */
static void group_outputs(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer)
{
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    const nb_gpu_mat *m = &f->w.layer[layer].o_a;
    const size_t width = a->n_head * a->head_dim, part = width / a->o_group;
    const nb_cuda_rows x = outputs_of(f, p->kind, width);
    const nb_cuda_rows y = nb_gpu_rows_of(f->x[p->kind].attn_y, a->o_group * a->o_lora);
    if (p->kind == NB_CUDA_PROMPT && has_groups(&m->w, a->o_lora) && part % 128 == 0 && a->o_lora % 8 == 0) {
        for (size_t g = 0; g < a->o_group; g++) {
            nb_gpu_mat one = *m;
            one.w = nb_weight_rows(&m->w, g * a->o_lora, a->o_lora);
            nb_gpu_linear(f, p->kind, &one, from_column(x, g * part), from_column(y, g * a->o_lora), p->n_pad);
        }
        return;
    }
    m->row[NB_CUDA_DIRECT]->fn(f->g, &(nb_cuda_linear_args){ .w = m->w,
                                                             .x = x,
                                                             .y = y,
                                                             .n_tok = p->n_pad,
                                                             .n_batch = a->o_group,
                                                             .n_out = a->o_lora,
                                                             .x_batch = part,
                                                             .y_batch = a->o_lora,
                                                             .w_batch = a->o_lora });
}

static void attend(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_attn_config *a = nb_rank_attn(r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    for (size_t row0 = 0, n; row0 < p->n_pad; row0 += n) {
        n = p->n_pad - row0 < f->csa.rows ? p->n_pad - row0 : f->csa.rows;
        if (a->idx_top) choose(f, p, layer, row0, n);
        attend_rows(f, p, layer, row0, n);
    }
    f->api->csa_keep(f->g, &(nb_cuda_csa_keep_args){ .chunk = f->stage[p->kind].dev.chunk,
                                                     .kv = f->in + l->in.at[1],
                                                     .n_chunk = p->base.n_chunk,
                                                     .kv_stride = l->in.width,
                                                     .dim = a->head_dim,
                                                     .window = a->window,
                                                     .state_off = state_off(f, layer),
                                                     .max_chunk_tok = p->max_chunk_tok });
    group_outputs(f, p, layer);
}

const nb_attn_ops nb_gpu_ops_csa = { project, append, attend };
