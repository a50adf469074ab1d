/* gpu_index.c - the indexer of sparse attention, which chooses among tokens (attn_mla.c), and of compressed attention,
 * which chooses among rows of several tokens (attn_csa.c): a group's queries, scores, and the exact top k. */
#include <stdio.h>
#include <stdlib.h>

#include "model/gpu/gpu_buffers.h"

enum { SHARE = 4 /* rows of a prompt that read an indexer's keys together */ };

static bool has_indexer(const nb_attn_config *a)
{
    return a->index_topk && !a->index_shared;
}

/* ---- what is created ---- */

nb_status nb_gpu_index_choose(nb_gpu_rank *f, size_t layer, nb_error *err)
{
    nb_gpu_index *x = &f->index;
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    const nb_record *rec = &f->r.o.record[layer];
    const nb_cuda_index_row *r = f->api->index_score;
    if (!has_indexer(a)) return NB_OK;
    if (!x->row) x->row = nb_arena_array(&f->r.arena, f->r.whole->n_layer, sizeof *x->row);
    if (!x->row) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    while (r->name && !(r->cc <= f->info.cc && r->can(rec, NB_GPU_INDEX_SEG, a->index_head))) r++;
    if (!r->name)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "layer %zu: the GPU has no scores for an indexer of %zu heads of %zu values", layer,
                       a->index_head, a->index_dim);
    x->row[layer] = r;
    return NB_OK;
}

void nb_gpu_index_size(nb_gpu_rank *f)
{
    nb_gpu_index *x = &f->index;
    for (size_t i = 0; i < f->r.whole->n_layer; i++) {
        const nb_attn_config *a = nb_rank_attn(&f->r, i);
        const size_t n_key = f->max_block * NB_PAGE_TOK / (a->ratio ? a->ratio : 1);
        if (!has_indexer(a)) continue;
        x->topk = nb_most(x->topk, a->index_topk);
        x->head = nb_most(x->head, a->index_head);
        x->q_width = nb_most(x->q_width, a->index_head * a->index_dim);
        x->q16_width = nb_most(x->q16_width, NB_CUDA_INDEX_HEADS(a->index_head) * a->index_dim);
        x->stride = nb_most(x->stride, (n_key + NB_PAGE_TOK - 1) / NB_PAGE_TOK * NB_PAGE_TOK);
    }
}

size_t nb_gpu_index_bytes(const nb_gpu_rank *f)
{
    const nb_gpu_index *x = &f->index;
    return (x->stride + x->q_width + NB_CUDA_TOPK_SCRATCH(x->stride)) * sizeof(float) + 2 * x->q16_width;
}

size_t nb_gpu_index_slots(nb_gpu_rank *f, size_t group, size_t n_choice, nb_gpu_slot *out)
{
    nb_gpu_index *x = &f->index;
    const nb_gpu_slot all[] = {
        { &x->q, group * x->q_width * sizeof(float) },
        { &x->w, group * x->head * sizeof(float) },
        { &x->q16, group * x->q16_width * 2 },
        { &x->w16, group * NB_CUDA_INDEX_HEADS(x->head) * sizeof(float) },
        { &x->chosen, n_choice * x->topk * sizeof(uint32_t) },
        { &x->score, group * x->stride * sizeof(float) },
        { &x->scratch, group * NB_CUDA_TOPK_SCRATCH(x->stride) * sizeof(uint32_t) },
    };
    _Static_assert(NB_COUNT(all) <= NB_GPU_INDEX_SLOTS, "slots");
    for (size_t i = 0; x->topk && i < NB_COUNT(all); i++) out[i] = all[i];
    return x->topk ? NB_COUNT(all) : 0;
}

/* ---- choosing ---- */

const float *nb_gpu_cos_sin(const nb_gpu_rank *f, size_t layer, size_t row)
{
    const size_t which = f->r.whole->attn_of[layer];
    return f->cos_sin[which] + row * f->r.whole->attn[which].rope.dim;
}

static void queries(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t row0, size_t n)
{
    const nb_gpu_index *x = &f->index;
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    const nb_gpu_layer *l = &f->w.layer[layer];
    const nb_cuda_rows qa = nb_gpu_rows_of(f->x[p->kind].qa, a->q_lora);
    nb_gpu_linear(f, p->kind, &l->index_q, nb_gpu_rows_from(qa, row0),
                  nb_gpu_floats(x->q, a->index_head * a->index_dim), n);
    nb_gpu_linear(f, p->kind, &l->index_w, nb_gpu_rows_from(f->xn, row0), nb_gpu_floats(x->w, a->index_head), n);
    f->api->index_finish(f->g, &(nb_cuda_index_finish_args){ .q = x->q,
                                                             .w = x->w,
                                                             .q16 = x->row[layer]->packed ? x->q16 : NULL,
                                                             .w16 = x->w16,
                                                             .cos_sin = nb_gpu_cos_sin(f, layer, row0),
                                                             .n_tok = n,
                                                             .n_head = a->index_head,
                                                             .dim = a->index_dim,
                                                             .d_rope = a->rope.dim,
                                                             .interleaved = a->index_interleaved,
                                                             .last = a->ratio != 0 });
}

/* Tests look at scores and choices of rows that choose, as on the CPU. */
static void trace_choices(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t row0, size_t n_row,
                          const uint32_t *chosen)
{
    const nb_gpu_index *x = &f->index;
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    const uint32_t *chunk = f->stage[p->kind].host.row_chunk + row0;
    const size_t k = a->index_topk;
    float *score = malloc((x->stride + k) * sizeof *score);
    uint32_t *at = malloc(k * sizeof *at);
    char name[64];
    for (size_t i = 0; score && at && i < n_row; i++) {
        if (chunk[i] == UINT32_MAX) continue;
        const nb_cuda_chunk *c = &f->stage[p->kind].host.chunk[chunk[i]];
        const size_t n = (c->pos0 + (row0 + i - c->row0) + 1) / (a->ratio ? a->ratio : 1);
        if (n <= k) continue;
        f->api->download(f->g, score, x->score + i * x->stride, n * sizeof *score);
        f->api->download(f->g, at, chosen + i * k, k * sizeof *at);
        if (f->api->sync(f->g, NULL) != NB_OK) break;
        (void)snprintf(name, sizeof name, "layers.%zu.index_score", layer);
        f->r.trace(f->r.trace_ctx, name, score, 1, n, n);
        for (size_t j = 0; j < k; j++) score[j] = (float)at[j];
        (void)snprintf(name, sizeof name, "layers.%zu.index", layer);
        f->r.trace(f->r.trace_ctx, name, score, 1, k, k);
    }
    free(score);
    free(at);
}

void nb_gpu_index_pick(nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer, size_t row0, size_t n, uint32_t *chosen)
{
    const nb_gpu_index *x = &f->index;
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    const nb_cuda_cache cache = nb_gpu_cache(f, p, layer);
    const uint32_t *row_chunk = f->stage[p->kind].dev.row_chunk;
    queries(f, p, layer, row0, n);
    x->row[layer]->fn(f->g, &(nb_cuda_index_score_args){ .cache = cache,
                                                         .q = x->q,
                                                         .w = x->w,
                                                         .q16 = x->q16,
                                                         .w16 = x->w16,
                                                         .row_chunk = row_chunk,
                                                         .score = x->score,
                                                         .row0 = row0,
                                                         .n_row = n,
                                                         .n_head = a->index_head,
                                                         .dim = a->index_dim,
                                                         .k = a->index_topk,
                                                         .seg = NB_GPU_INDEX_SEG,
                                                         .stride = x->stride,
                                                         .share = a->ratio || p->kind == NB_CUDA_DIRECT ? 1 : SHARE,
                                                         .ratio = a->ratio });
    f->api->index_topk(f->g, &(nb_cuda_index_topk_args){ .chunk = cache.chunk,
                                                         .row_chunk = row_chunk,
                                                         .score = x->score,
                                                         .at = chosen,
                                                         .scratch = x->scratch,
                                                         .row0 = row0,
                                                         .n_row = n,
                                                         .k = a->index_topk,
                                                         .stride = x->stride,
                                                         .ratio = a->ratio });
    if (f->r.trace) trace_choices(f, p, layer, row0, n, chosen);
}
