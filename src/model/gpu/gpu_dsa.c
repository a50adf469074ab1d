/* gpu_dsa.c - sparse attention on a GPU: latent attention to the tokens that an indexer chooses (attn_mla.c).
 *
 * Every row, generated or of a prompt, attends in the absorbed form to its chosen tokens, or to all of them where there
 * are at most index_topk.  The rows of a pass go through in groups that the workspace holds: queries of the indexer,
 * scores, top k, then the chosen tokens are copied to pages of their own (nb_cuda_gather_args), over which the kernels
 * of dense attention run.  They see the first two segments of the record, so a layer has the row of attention that the
 * same model without an indexer has.
 *
 * A row's pages are cut into units of a few pages (unit_page), so that one row uses many SMs; units of prompts are
 * longer, because there are many rows.  Its states are those of the units, that of the tokens that fill no page, and that
 * of its own page; the last two run beside the first.  All of this depends on the row alone. */
#include <stdlib.h>
#include <string.h>

#include "model/gpu/gpu.h"
#include "model/gpu/gpu_buffers.h"
#include "model/gpu/gpu_mla.h"

enum {
    LATENT_SEGS = 2,
    UNIT_PAGES = 2 /* of generated tokens */
};

/* ---- what is created ---- */

static bool is_dsa(const nb_gpu_rank *f, size_t layer)
{
    return nb_layer_attn(f->r.whole, layer)->kind == NB_ATTN_DSA;
}

nb_record nb_gpu_attn_record(const nb_gpu_rank *f, size_t layer)
{
    nb_record r = f->r.o.record[layer];
    if (is_dsa(f, layer)) nb_record_cut(&f->r.o.record[layer], LATENT_SEGS, &r);
    return r;
}

nb_status nb_gpu_dsa_choose(nb_gpu_rank *f, nb_error *err)
{
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        const nb_attn_config *a = nb_layer_attn(f->r.whole, i);
        if (!is_dsa(f, i)) continue;
        if (a->d_nope % 8 || a->kv_lora % 8 || a->d_rope % 8)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "layer %zu: sparse attention on a GPU needs heads of multiples of 8 values, not %zu + %zu over "
                           "latents of %zu (--device cpu)",
                           i, a->d_nope, a->d_rope, a->kv_lora);
        if (!nb_record_can_move(&f->r.o.record[i], LATENT_SEGS))
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "layer %zu: sparse attention over a cache in %s, whose tokens share scales, is supported on the CPU "
                           "only (--device cpu)",
                           i, nb_kv_type_name(f->r.o.record[i].type));
        NB_TRY(nb_gpu_index_choose(f, i, err));
    }
    return NB_OK;
}

/* ---- sizes ---- */

/* How rows are cut into units, for the layers of a set and a kind of pass. */
static nb_gpu_sparse_cut cut_of(const nb_gpu_rank *f, size_t set, nb_cuda_kind kind)
{
    const nb_cuda_units u = f->set[set].units;
    const size_t first = u.n_first ? u.first : u.rest;
    nb_gpu_sparse_cut c = { .unit_page = kind == NB_CUDA_DIRECT && first > UNIT_PAGES ? UNIT_PAGES : first };
    c.n_unit = nb_div_up(f->index.topk / NB_PAGE_TOK, c.unit_page);
    c.table_stride = nb_cuda_unit_page(u, c.n_unit);
    return c;
}

size_t nb_gpu_dsa_states(nb_gpu_rank *f)
{
    nb_gpu_sparse *s = &f->sparse;
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        if (!is_dsa(f, i)) continue;
        const nb_record r = nb_gpu_attn_record(f, i);
        s->any = true;
        if (r.page_bytes > s->page_bytes) s->page_bytes = r.page_bytes;
        if (r.n_values > s->n_values) s->n_values = r.n_values;
    }
    for (size_t i = 0; s->any && i < f->n_set; i++)
        for (size_t k = 0; k < 2; k++) {
            s->cut[i][k] = cut_of(f, i, (nb_cuda_kind)k);
            if (s->cut[i][k].n_unit > s->n_unit) s->n_unit = s->cut[i][k].n_unit;
        }
    return s->any ? s->n_unit + 2 : 0;
}

/* Rows of a group: what the states allow, and NB_GPU_GROUP_BYTES. */
void nb_gpu_dsa_size(nb_gpu_rank *f)
{
    nb_gpu_sparse *s = &f->sparse;
    if (!s->any) return;
    s->n_page = f->index.topk / NB_PAGE_TOK;
    const size_t row =
        s->n_page * s->page_bytes + 2 * NB_PAGE_TOK * s->n_values * sizeof(float) + nb_gpu_index_bytes(f);
    const size_t fit = NB_GPU_GROUP_BYTES / row, states = f->max_part / (s->n_unit + 2);
    s->rows = fit < states ? fit : states;
    if (s->rows > f->D) s->rows = f->D;
    if (s->rows < 1) s->rows = 1;
}

size_t nb_gpu_dsa_slots(nb_gpu_rank *f, size_t max_row, nb_gpu_slot *out)
{
    nb_gpu_sparse *s = &f->sparse;
    const size_t g = s->rows, rows = NB_PAGE_TOK * s->n_values;
    const nb_gpu_slot all[] = {
        { &s->page, g * s->n_page * s->page_bytes },
        { &s->rest, g * rows * sizeof(float) },
        { &s->own, g * rows * sizeof(float) },
        { &s->chunk, 3 * g * sizeof *s->chunk },
        { &s->has, 3 * g * sizeof *s->has },
        { &s->item, g * s->n_unit * sizeof *s->item },
        { &s->n_item, sizeof *s->n_item },
    };
    if (!s->any) return 0;
    size_t n = nb_gpu_index_slots(f, g, max_row, out);
    memcpy(out + n, all, sizeof all);
    n += NB_COUNT(all);
    for (size_t i = 0; i < f->n_set; i++)
        for (size_t k = 0; k < 2; k++) {
            nb_gpu_sparse_cut *c = &s->cut[i][k];
            out[n++] = (nb_gpu_slot){ &c->part_first, (g + 1) * sizeof(uint32_t) };
            out[n++] = (nb_gpu_slot){ &c->table, (g * c->table_stride + 1) * sizeof(uint32_t) };
        }
    NB_ASSERT(n <= NB_GPU_DSA_SLOTS);
    return n;
}

/* What does not change: the places of pages and states. */
static nb_status upload_cut(nb_gpu_rank *f, size_t set, const nb_gpu_sparse_cut *c, nb_error *err)
{
    const nb_gpu_sparse *s = &f->sparse;
    const nb_cuda_units units = f->set[set].units;
    uint32_t *host = calloc(s->rows * c->table_stride + s->rows + 1, sizeof *host), *first;
    if (!host) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    first = host + s->rows * c->table_stride;
    for (size_t i = 0; i <= s->rows; i++) first[i] = (uint32_t)(i * (c->n_unit + 2));
    for (size_t i = 0; i < s->rows; i++)
        for (size_t p = 0; p < s->n_page; p++)
            host[i * c->table_stride + nb_cuda_unit_page(units, p / c->unit_page) + p % c->unit_page] =
                (uint32_t)(i * s->n_page + p);
    f->api->upload(f->g, c->table, host, s->rows * c->table_stride * sizeof *host);
    f->api->upload(f->g, c->part_first, first, (s->rows + 1) * sizeof *host);
    free(host);
    return NB_OK;
}

nb_status nb_gpu_dsa_create(nb_gpu_rank *f, nb_error *err)
{
    for (size_t i = 0; f->sparse.any && i < f->n_set; i++)
        for (size_t k = 0; k < 2; k++) NB_TRY(upload_cut(f, i, &f->sparse.cut[i][k], err));
    return NB_OK;
}

/* ---- a group of rows ---- */

typedef struct group {
    nb_gpu_rank *f;
    const nb_gpu_pass *p;
    const nb_attn_config *attn;
    size_t layer, row0, n_row;
    const uint32_t *row_chunk;
    nb_cuda_cache cache;
    uint32_t *chosen;
} group;

/* Attention over pages, as over sequences of their own; q: the group's absorbed queries. */
static void attend_group(const group *x, const float *q, nb_cuda_rows y)
{
    nb_gpu_rank *f = x->f;
    const nb_gpu_sparse *s = &f->sparse;
    const nb_attn_config *a = x->attn;
    const nb_gpu_sparse_cut *c = &s->cut[f->set_of[x->layer]][x->p->kind];
    const nb_record to = nb_gpu_attn_record(f, x->layer);
    const size_t q_head = a->kv_lora + a->d_rope, nh = a->n_head, n = x->n_row;
    f->api->gather(f->g, &(nb_cuda_gather_args){ .cache = x->cache,
                                                 .to = to,
                                                 .at = x->chosen,
                                                 .row_chunk = x->row_chunk,
                                                 .page = s->page,
                                                 .rest = s->rest,
                                                 .own = s->own,
                                                 .chunk = s->chunk,
                                                 .has = s->has,
                                                 .item = s->item,
                                                 .n_item = s->n_item,
                                                 .part_m = f->part_m,
                                                 .row0 = x->row0,
                                                 .n_row = n,
                                                 .k = a->index_topk,
                                                 .n_head = nh,
                                                 .n_page = s->n_page,
                                                 .n_unit = c->n_unit,
                                                 .unit_page = c->unit_page,
                                                 .table_stride = c->table_stride });
    nb_cuda_mla_args m = { .cache = { .pool = s->page,
                                      .block_bytes = to.page_bytes,
                                      .block = c->table,
                                      .chunk = s->chunk,
                                      .n_chunk = n,
                                      .record = to },
                           .q = q,
                           .y = y,
                           .part_o = f->part_o,
                           .part_m = f->part_m,
                           .part_l = f->part_l,
                           .part_first = c->part_first,
                           .row_chunk = s->has,
                           .item = s->item,
                           .n_item = s->n_item,
                           .scratch = f->attn_scratch,
                           .n_row = n,
                           .n_head = nh,
                           .n_whole = nb_layer_attn(f->r.whole, x->layer)->n_head,
                           .lora = a->kv_lora,
                           .d_rope = a->d_rope,
                           .q_stride = nh * q_head,
                           .q_head = q_head,
                           .max_item = n * c->n_unit,
                           .units = f->set[f->set_of[x->layer]].units,
                           .scale = a->softmax_scale,
                           .fresh = true }; /* gather */
    nb_cuda_mla_args rest = m, own = m;
    rest.cache.chunk = s->chunk + n;
    rest.row_chunk = s->has + n;
    rest.part_o -= nh * a->kv_lora; /* the last state but one */
    rest.part_m -= nh;
    rest.part_l -= nh;
    own.cache.chunk = s->chunk + 2 * n;
    own.row_chunk = s->has + 2 * n;
    f->api->side_begin(f->g, false);
    f->api->mla_tail(f->g, &rest);
    f->api->mla_tail(f->g, &own);
    f->api->side_end(f->g);
    if (c->n_unit) f->attn[x->layer]->fn(f->g, &m);
    f->api->side_join(f->g);
    f->api->mla_combine(f->g, &m);
}

/* The group's queries of a prompt, whose rope parts have been turned in place. */
static const float *prompt_queries(const group *x)
{
    nb_gpu_rank *f = x->f;
    const nb_attn_config *a = x->attn;
    const size_t d_q = a->d_nope + a->d_rope, q_head = a->kv_lora + a->d_rope, n = x->n_row * a->n_head;
    const float *q = f->q + x->row0 * a->n_head * d_q;
    nb_cuda_rows nope = f->x[NB_CUDA_DIRECT].q_nope;
    nope.stride = a->d_nope; /* heads follow each other */
    f->api->split(f->g, &(nb_cuda_split_args){ q, nope, n, a->d_nope, d_q });
    f->api->split(f->g, &(nb_cuda_split_args){ q + a->d_nope, nb_gpu_floats(f->qx + a->kv_lora, q_head), n,
                                               a->d_rope, d_q });
    nb_gpu_absorb(f, x->layer, x->n_row);
    return f->qx;
}

/* ---- the operations of a layer ---- */

static void project(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_attn_config *a = nb_rank_attn(r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    nb_gpu_ops_mla.project(r, pass, layer);
    if (a->index_shared) return;
    f->api->index_finish(f->g, &(nb_cuda_index_finish_args){ .k = f->in + l->in.at[1] + a->kv_lora + a->d_rope,
                                                             .norm = l->index_norm,
                                                             .bias = l->index_norm_b,
                                                             .cos_sin = nb_gpu_cos_sin(f, layer, 0),
                                                             .n_tok = p->n_pad,
                                                             .n_head = a->index_head,
                                                             .dim = a->index_dim,
                                                             .d_rope = a->rope.dim,
                                                             .k_stride = l->in.width,
                                                             .interleaved = a->index_interleaved });
}

/* Rows of a group from row0 on; of a prompt: of one chunk. */
static size_t group_rows(const nb_gpu_rank *f, const nb_gpu_pass *p, size_t row0)
{
    size_t end = p->n_pad;
    if (p->kind == NB_CUDA_PROMPT)
        for (size_t i = 0, at = 0; i < p->base.n_chunk; i++) {
            at += p->n_tok[i];
            if (at <= row0) continue;
            end = at;
            break;
        }
    return end - row0 < f->sparse.rows ? end - row0 : f->sparse.rows;
}

static void attend(nb_rank *r, nb_pass *pass, size_t layer)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const nb_gpu_pass *p = nb_gpu_pass_of(pass);
    const nb_attn_config *a = nb_rank_attn(r, layer);
    const bool direct = p->kind == NB_CUDA_DIRECT;
    const nb_cuda_rows u = nb_gpu_rows_of(f->x[NB_CUDA_DIRECT].u, a->n_head * a->kv_lora);
    const nb_cuda_rows heads = nb_gpu_rows_of(f->x[p->kind].attn_y, a->n_head * a->d_v);
    const size_t q_stride = a->n_head * (a->kv_lora + a->d_rope);
    group x = { .f = f,
                .p = p,
                .attn = a,
                .layer = layer,
                .row_chunk = f->stage[p->kind].dev.row_chunk,
                .cache = nb_gpu_cache(f, p, layer) };
    if (direct) nb_gpu_absorb(f, layer, p->n_pad);
    for (; x.row0 < p->n_pad; x.row0 += x.n_row) {
        x.n_row = group_rows(f, p, x.row0);
        x.chosen = f->index.chosen + x.row0 * a->index_topk;
        if (!a->index_shared) nb_gpu_index_pick(f, p, layer, x.row0, x.n_row, x.chosen);
        const float *q = direct ? f->qx + x.row0 * q_stride : prompt_queries(&x);
        attend_group(&x, q, direct ? nb_gpu_rows_from(u, x.row0) : u);
        if (!direct) nb_gpu_unabsorb(f, layer, u, nb_gpu_rows_from(heads, x.row0), x.n_row);
    }
    if (direct) nb_gpu_unabsorb(f, layer, u, heads, p->n_pad);
}

const nb_attn_ops nb_gpu_ops_dsa = { project, nb_gpu_append, attend };
