/* gpu_csa.c - compressed attention on a GPU (attn_csa.c has the formulas, nb_cuda_csa.h the operations).
 *
 * As on the CPU, what a row reads and the order of its sums follow from its position.  Rows of a pass attend in groups
 * that the workspace holds: an indexer's queries, scores and choice, then units of rows whose states are combined.
 * Windows and the compressors' sums are in the sequence's slot; operations change them in the order of the passes. */
#include "kernel/linear/packed.h"
#include "model/attn_csa.h"
#include "model/gpu/gpu_buffers.h"

/* ---- what is created ---- */

nb_status nb_gpu_csa_can(const nb_attn_config *a, nb_error *err)
{
    if (a->head_dim > 1024 || a->index_dim > 1024 || a->index_head > 128)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "rows of %zu values and an indexer of %zu heads of %zu: a GPU has compressed attention for at most "
                       "1024 and 128 heads of 1024 (--device cpu)",
                       a->head_dim, a->index_head, a->index_dim);
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
        if (!s->row) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    }
    const nb_cuda_csa_row *r = f->api->csa_attend;
    while (r->name && !(r->cc <= f->info.cc && r->can(rec, a->ratio, a->head_dim, a->n_head))) r++;
    if (!r->name)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "layer %zu: the GPU has no compressed attention over %s rows of %zu values (--device cpu)", layer,
                       nb_kv_type_name(rec->type), a->head_dim);
    s->any = true;
    s->row[layer] = r;
    return nb_gpu_index_choose(f, layer, err);
}

static size_t window_units(const nb_attn_config *a)
{
    return nb_div_up(a->window, NB_CUDA_CSA_FIRST);
}

/* Units of a layer's rows in the longest sequence. */
static size_t units_of(const nb_gpu_rank *f, const nb_attn_config *a)
{
    size_t n = a->ratio ? f->r.o.max_pos / a->ratio : 0;
    if (a->index_topk && n > a->index_topk) n = a->index_topk;
    return window_units(a) + nb_cuda_csa_n_unit(n);
}

size_t nb_gpu_csa_states(nb_gpu_rank *f)
{
    nb_gpu_csa *s = &f->csa;
    for (size_t i = 0; s->any && i < f->r.whole->n_layer; i++) {
        const nb_attn_config *a = nb_rank_attn(&f->r, i);
        s->n_unit = nb_most(s->n_unit, units_of(f, a));
        s->comp_width = nb_most(s->comp_width, f->w.layer[i].comp.width);
        s->out_width = nb_most(s->out_width, a->n_head * a->head_dim);
    }
    return s->n_unit;
}

void nb_gpu_csa_size(nb_gpu_rank *f)
{
    nb_gpu_csa *s = &f->csa;
    if (!s->any) return;
    const size_t row = nb_gpu_index_bytes(f) + f->index.topk * sizeof(uint32_t);
    const size_t fit = NB_GPU_GROUP_BYTES / row, states = f->max_part / s->n_unit;
    s->rows = nb_most(1, fit < states ? fit : states);
    if (s->rows > f->D) s->rows = f->D;
}

size_t nb_gpu_csa_slots(nb_gpu_rank *f, size_t max_row, nb_gpu_slot *out)
{
    nb_gpu_csa *s = &f->csa;
    if (!s->any) return 0;
    const size_t n = nb_gpu_index_slots(f, s->rows, s->rows, out);
    out[n] = (nb_gpu_slot){ &s->comp, max_row * s->comp_width * sizeof(float) };
    return n + 1;
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
                                   .cos_sin = nb_gpu_cos_sin(f, layer, 0),
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
    const size_t k = keys ? 2 : 0, dim = keys ? a->index_dim : a->head_dim;
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
    if (a->index_topk) x.pool[1] = pool_of(f, layer, true);
    f->api->csa_append(f->g, &x);
}

/* ---- attend ---- */

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
                                          .at = a->index_topk ? f->index.chosen : NULL,
                                          .row_chunk = f->stage[p->kind].dev.row_chunk,
                                          .cos_sin = nb_gpu_cos_sin(f, layer, row0),
                                          .part_o = f->part_o,
                                          .part_m = f->part_m,
                                          .part_l = f->part_l,
                                          .y = nb_gpu_rows_from(outputs_of(f, p->kind, width), row0),
                                          .row0 = row0,
                                          .n_row = n,
                                          .n_head = a->n_head,
                                          .dim = a->head_dim,
                                          .d_rope = a->d_rope,
                                          .q_stride = width,
                                          .kv_stride = l->in.width,
                                          .k = a->index_topk,
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
        if (a->index_topk) nb_gpu_index_pick(f, p, layer, row0, n, f->index.chosen);
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
