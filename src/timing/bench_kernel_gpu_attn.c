/* bench_kernel_gpu_attn.c - absorbed attention on a GPU, cut as the forward pass cuts it.
 *
 * A step is one layer of a decode step: the row's operation over complete pages, the own page, and the
 * joining of states.  Sequences have `context` tokens in complete pages, and their queries follow in the
 * page after it.  A set is the pages of one step, scattered. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/cuda/api/nb_cuda_items.h"
#include "num/bf16.h"
#include "timing/bench_kernel_gpu_internal.h"

enum { LATENT = 512, ROPE = 64, VALUES = LATENT + ROPE, DISTINCT = 8 };

typedef struct attn_op {
    const nb_cuda_mla_row *row;
    nb_cuda_mla_args a;
    size_t n_block; /* of a set */
} attn_op;

static void attn_step(nb_gb_run *r, size_t i)
{
    const attn_op *o = r->op;
    nb_cuda_mla_args a = o->a;
    a.cache.block += i % r->n_set * o->n_block;
    if (a.max_item) o->row->fn(r->b->g, &a);
    r->b->api->mla_tail(r->b->g, &a);
    r->b->api->mla_combine(r->b->g, &a);
}

static nb_status make_record(const nb_gbench_case *c, nb_record *out, nb_error *err)
{
    nb_record_opts o = { .rope = nb_rope_fmt_default(true), NB_SEGS_MLA(LATENT, ROPE) };
    if (nb_kv_type_parse(c->record, &o.type) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "%s: no record", c->record);
    if (c->rope && nb_rope_fmt_parse(c->rope, &o.rope) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "%s: no type of a rope key", c->rope);
    o.mode = nb_kv_mode_default(o.type);
    return nb_record_init(out, &o, err);
}

/* n_page pages on the device: a few different ones, over and over. */
static void *make_pages(nb_gbench *b, const nb_record *rec, size_t n_page)
{
    const size_t n = NB_PAGE_TOK * VALUES;
    unsigned char *page = malloc(DISTINCT * rec->page_bytes);
    uint16_t *x = malloc(n * sizeof *x);
    float *f = malloc(n * sizeof *f);
    bool good = page && x && f;
    for (size_t k = 0; good && k < DISTINCT; k++) {
        unsigned char *p = page + k * rec->page_bytes;
        for (size_t i = 0; i < n; i++) {
            x[i] = nb_bf16_from_f32((float)(2 * nb_rng_unit(b->seed + 16 + k, i) - 1));
            f[i] = nb_bf16_to_f32(x[i]);
        }
        if (rec->type == NB_KV_F32)
            nb_record_store_f32(rec, p, f, VALUES);
        else
            good = nb_record_encode_page(rec, p, x, VALUES) == NB_OK;
    }
    void *out =
        good ? nb_gb_repeat(b, page, DISTINCT * rec->page_bytes, n_page * rec->page_bytes) : NULL;
    free(page);
    free(x);
    free(f);
    return out;
}

/* What the host plans: chunks, states, items, blocks of all sets. */
typedef struct host_plan {
    nb_cuda_chunk *chunk;
    nb_cuda_group *group;
    nb_cuda_item *item;
    uint32_t *first, *row_chunk, *block;
    uint32_t n_item;
    size_t n_part;
} host_plan;

static void free_plan(host_plan *h)
{
    free(h->chunk);
    free(h->group);
    free(h->item);
    free(h->first);
    free(h->row_chunk);
    free(h->block);
}

static bool plan(const nb_gb_run *r, const attn_op *o, size_t n_page, char *tail, host_plan *h)
{
    const nb_gbench_case *c = r->c;
    const size_t n_unit = nb_cuda_n_unit(o->row->units, n_page), n_row = c->batch * c->n_query;
    h->n_part = n_row * (n_unit + 1);
    h->chunk = calloc(c->batch, sizeof *h->chunk);
    h->group = calloc(c->batch, sizeof *h->group);
    h->item = calloc(c->batch * n_unit + 1, sizeof *h->item);
    h->first = calloc(n_row + 1, sizeof *h->first);
    h->row_chunk = calloc(n_row, sizeof *h->row_chunk);
    h->block = calloc(r->n_set * o->n_block + 1, sizeof *h->block);
    if (!h->chunk || !h->group || !h->item || !h->first || !h->row_chunk || !h->block) return false;
    for (size_t i = 0; i < c->batch; i++) {
        h->chunk[i] =
            (nb_cuda_chunk){ .tail = (float *)(void *)(tail + i * NB_PAGE_TOK * VALUES * 4),
                             .row0 = (uint32_t)(i * c->n_query),
                             .n_tok = (uint32_t)c->n_query,
                             .pos0 = (uint32_t)c->context,
                             .block0 = (uint32_t)(i * n_page) };
        h->group[i] = (nb_cuda_group){ (uint32_t)i, (uint32_t)(i * c->n_query),
                                       (uint32_t)c->n_query, (uint32_t)n_page };
        for (size_t k = 0; k < c->n_query; k++) h->row_chunk[i * c->n_query + k] = (uint32_t)i;
    }
    for (size_t i = 0; i <= n_row; i++) h->first[i] = (uint32_t)(i * (n_unit + 1));
    /* blocks in an order that no prefetcher follows: i * odd modulo a power of two */
    const size_t n = r->n_set * o->n_block;
    size_t pow2 = 1, at = 0;
    while (pow2 < n) pow2 *= 2;
    for (size_t i = 0; at < n; i++) {
        const size_t k = (i * 2654435761u + 12345) & (pow2 - 1);
        if (k < n) h->block[at++] = (uint32_t)k;
    }
    h->n_item = (uint32_t)nb_cuda_items(h->group, c->batch, o->row->units, r->b->info.n_sm,
                                        c->n_head, true, h->first, h->item);
    return true;
}

nb_status nb_gb_attn(nb_gb_run *r, nb_error *err)
{
    nb_gbench *b = r->b;
    const nb_gbench_case *c = r->c;
    attn_op *o = calloc(1, sizeof *o);
    if (!o) return nb_gb_nomem(err);
    r->op = o;
    nb_record rec;
    NB_TRY(make_record(c, &rec, err));
    for (o->row = b->api->mla; o->row->name; o->row++)
        if (o->row->cc <= b->cuda.cc && o->row->can(&rec, c->n_head)) break;
    if (!o->row->name)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "the GPU has no attention over pages in %s",
                       c->record);
    const size_t n_page = c->context / NB_PAGE_TOK, n_row = c->batch * c->n_query, nh = c->n_head;
    o->n_block = c->batch * n_page;
    r->n_set = nb_gb_sets(r, o->n_block * rec.page_bytes);
    char *tail = (char *)nb_gb_repeat(b, "\0\0\0\0", 4, c->batch * NB_PAGE_TOK * VALUES * 4);
    host_plan h = { 0 };
    if (!tail || !plan(r, o, n_page, tail, &h)) {
        free_plan(&h);
        return nb_gb_nomem(err);
    }
    o->a = (nb_cuda_mla_args){
        .cache = { .pool = make_pages(b, &rec, r->n_set * o->n_block),
                   .block_bytes = rec.page_bytes,
                   .block = nb_gb_upload(b, h.block, (r->n_set * o->n_block + 1) * sizeof *h.block),
                   .chunk = nb_gb_upload(b, h.chunk, c->batch * sizeof *h.chunk),
                   .n_chunk = c->batch,
                   .record = rec },
        .q = nb_gb_floats(b, n_row * nh * VALUES),
        .y = nb_gb_rows(b, n_row, nh * LATENT),
        .part_o = nb_gb_alloc(b, h.n_part * nh * LATENT * sizeof(float)),
        .part_m = nb_gb_alloc(b, h.n_part * nh * sizeof(float)),
        .part_l = nb_gb_alloc(b, h.n_part * nh * sizeof(float)),
        .part_first = nb_gb_upload(b, h.first, (n_row + 1) * sizeof *h.first),
        .row_chunk = nb_gb_upload(b, h.row_chunk, n_row * sizeof *h.row_chunk),
        .item = nb_gb_upload(b, h.item, (h.n_item + 1) * sizeof *h.item),
        .n_item = nb_gb_upload(b, &h.n_item, sizeof h.n_item),
        .scratch = nb_gb_alloc(b, o->row->scratch(&rec, nh, n_row)),
        .n_row = n_row,
        .n_head = nh,
        .lora = LATENT,
        .d_rope = ROPE,
        .q_stride = nh * VALUES,
        .q_head = VALUES,
        .max_item = h.n_item,
        .units = o->row->units,
        .beside = h.n_item > 0,
        .scale = 1 / sqrtf(192)
    };
    free_plan(&h);
    r->variant = o->row->name;
    r->step = attn_step;
    r->bytes = (double)(o->n_block * rec.page_bytes);
    r->set_bytes = (double)r->n_set * r->bytes;
    r->ops = 2.0 * (double)(n_row * nh) * (double)c->context * (VALUES + LATENT);
    return NB_OK;
}
