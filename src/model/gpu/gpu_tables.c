/* gpu_tables.c - the small arrays of a pass: tokens, positions, chunks, blocks and work items, written to pinned
 * memory and uploaded. */
#include <string.h>

#include "model/gpu/gpu.h"

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

size_t nb_gpu_bucket(size_t n_row)
{
    return n_row <= 8 ? n_row : n_row <= 64 ? div_up(n_row, 8) * 8 : div_up(n_row, 32) * 32;
}

/* The rows of one chunk's part, and the groups of its queries. */
static void fill_chunk(nb_gpu_rank *f, nb_gpu_pass *p, size_t i, size_t row0, size_t *n_own,
                       size_t *n_group)
{
    const nb_chunk *c = &p->base.chunk[p->which[i]];
    nb_gpu_section *x = &f->stage[p->kind].host;
    const size_t pos0 = c->pos0 + p->tok0[i], n = p->n_tok[i], end = pos0 + n;
    const bool thrift = f->thrift && c->thrift && f->r.pool.plane;
    const size_t n_page = div_up(end, NB_PAGE_TOK), own = n_page - pos0 / NB_PAGE_TOK;
    NB_ASSERT(n_page <= c->n_block);
    x->chunk[i] =
        (nb_cuda_chunk){ .tail = f->r.pool.tail + c->slot * f->r.pool.tail_floats,
                         .own = own > 1 ? f->own + *n_own * NB_PAGE_TOK * f->max_values : NULL,
                         .row0 = (uint32_t)row0,
                         .n_tok = (uint32_t)n,
                         .pos0 = (uint32_t)pos0,
                         .block0 = (uint32_t)p->n_block };
    if (own > 1) *n_own += own;
    NB_ASSERT(*n_own <= f->max_own);
    memcpy(x->block + p->n_block, c->block, n_page * sizeof *x->block);
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

static void fill_items(nb_gpu_rank *f, nb_gpu_pass *p, size_t n_group)
{
    nb_gpu_section *x = &f->stage[p->kind].host;
    for (size_t s = 0; s < f->n_set && !f->sparse.any; s++) { /* sparse attention makes its own */
        uint32_t at = 0;
        for (size_t i = 0, row = 0; i < n_group; i++) {
            const uint32_t n = (uint32_t)nb_cuda_n_unit(f->set[s].units, f->group[i].n_page) + 1;
            for (size_t k = 0; k < f->group[i].n_q; k++, at += n) x->part_first[s][row++] = at;
        }
        for (size_t r = p->base.n_row; r <= p->n_pad; r++) x->part_first[s][r] = at;
        NB_ASSERT(at <= f->max_part);
        p->n_item[s] = nb_cuda_items(f->group, n_group, f->set[s].units, f->info.n_sm,
                                     f->set[s].n_head, f->set[s].mla, x->part_first[s], x->item[s]);
        x->n_item[s] = (uint32_t)p->n_item[s];
    }
}

nb_status nb_gpu_pass_upload(nb_gpu_rank *f, nb_gpu_pass *p, nb_error *err)
{
    nb_gpu_stage *s = &f->stage[p->kind];
    nb_gpu_section *x = &s->host;
    size_t n_own = 0, n_group = 0;
    if (s->in_flight) NB_TRY(f->api->sync(f->g, err));
    p->n_block = p->max_chunk_tok = 0;
    for (size_t i = 0, row = 0; i < p->base.n_chunk; row += p->n_tok[i++])
        fill_chunk(f, p, i, row, &n_own, &n_group);
    for (size_t r = p->base.n_row; r < p->n_pad; r++) {
        x->tok[r] = x->row_chunk[r] = UINT32_MAX;
        x->pos[r] = 0;
        x->rope_long[r] = x->thrift[r] = 0;
        x->chunk[p->base.n_chunk + r - p->base.n_row] = (nb_cuda_chunk){ 0 };
    }
    if (p->kind == NB_CUDA_DIRECT) fill_items(f, p, n_group);
    if (f->r.o.data_parallel && p->round.graph) nb_gpu_share_on(f, p->kind, &p->round, x->on);
    if (f->r.o.data_parallel) *x->salt = nb_gpu_share_salt(p->kind, &p->round);
    f->api->upload(f->g, s->dev_mem, s->host_mem, s->fixed_bytes);
    for (size_t i = 0; p->kind == NB_CUDA_DIRECT && i < f->n_set; i++)
        f->api->upload(f->g, s->dev.item[i], x->item[i], p->n_item[i] * sizeof *x->item[i]);
    f->api->upload(f->g, s->dev.block, x->block, p->n_block * sizeof *x->block);
    s->in_flight = true;
    return NB_OK;
}

nb_cuda_cache nb_gpu_cache(const nb_gpu_rank *f, const nb_gpu_pass *p, size_t layer)
{
    const nb_kv_pool *kv = &f->r.pool;
    const nb_gpu_section *x = &f->stage[p->kind].dev;
    return (nb_cuda_cache){ .pool = kv->page,
                            .block_bytes = kv->block_bytes,
                            .layer_off = kv->page_off[layer],
                            .tail_off = kv->tail_off[layer],
                            .block = x->block,
                            .chunk = x->chunk,
                            .n_chunk = p->base.n_chunk,
                            .record = f->r.o.record[layer] };
}
