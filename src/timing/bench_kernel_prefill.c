/* bench_kernel_prefill.c - expanded attention of a chunk of queries against one split of the context.
 *
 * An item is a split: 4 tiles of 64 tokens for every head, packed.  A task is a page of queries of
 * one head, as in the engine.  Packing the tiles, and the queries, are parts of their own. */
#include <math.h>
#include <string.h>

#include "kernel/attn_prefill/attn_prefill.h"
#include "timing/bench_kernel_internal.h"

enum { TILES = NB_PREFILL_TILES_MAX, TILE = NB_PREFILL_TILE, SPLIT_TOK = TILES * TILE };
static const nb_attn_prefill_dims dims = { 128, 64, 128 };

typedef struct prefill_op {
    const nb_attn_prefill_variant *v;
    size_t n_head, n_qpage, kv_bytes, q_bytes, scratch_bytes;
    float *k, *q;         /* one tile's [64][d1 + d2 + d_v]; one page's [64][d1 + d2] */
    unsigned char *qp;    /* [n_qpage][n_head][q_bytes] */
    unsigned char *tiles; /* [n_thread][kv_bytes]: what packing writes */
    unsigned char *scratch;
    float *o, *m, *l; /* [n_qpage * 64][n_head] states */
} prefill_op;

static void attend_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const prefill_op *o = r->op;
    const size_t page = task / o->n_head, h = task % o->n_head;
    const size_t left = r->c->n_query - page * TILE, n_q = left < TILE ? left : TILE;
    const size_t at = page * TILE * o->n_head + h;
    const unsigned char *item = nb_kb_item(r, r->item) + h * TILES * o->kv_bytes;
    const void *tile[TILES];
    for (size_t i = 0; i < TILES; i++) tile[i] = item + i * o->kv_bytes;
    const nb_attn_prefill_args a = { .d = dims,
                                     .o = o->o + at * dims.d_v,
                                     .m = o->m + at,
                                     .l = o->l + at,
                                     .o_stride = o->n_head * dims.d_v,
                                     .ml_stride = o->n_head,
                                     .q = o->qp + task * o->q_bytes,
                                     .tile = tile,
                                     .n_q = n_q,
                                     .n_tile = TILES,
                                     .last_tok = TILE,
                                     .vis0 = TILE,
                                     .scale = 1 / sqrtf(192),
                                     .scratch = o->scratch + worker * o->scratch_bytes };
    o->v->fn(&a);
}

static void attend_step(nb_kb_run *r, size_t item)
{
    const prefill_op *o = r->op;
    r->item = item;
    nb_pool_run(r->b->pool, attend_task, r, o->n_qpage * o->n_head);
}

static void pack_tile(const prefill_op *o, void *to)
{
    const size_t stride = dims.d1 + dims.d2 + dims.d_v;
    const nb_attn_prefill_tile t = { .k1 = o->k,
                                     .k2 = o->k + dims.d1,
                                     .v = o->k + dims.d1 + dims.d2,
                                     .k1_stride = stride,
                                     .k2_stride = stride,
                                     .v_stride = stride,
                                     .n_tok = TILE };
    o->v->pack_kv(&dims, to, &t);
}

static void pack_kv_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const prefill_op *o = r->op;
    (void)task;
    pack_tile(o, o->tiles + worker * o->kv_bytes);
}

static void pack_kv_step(nb_kb_run *r, size_t item)
{
    const prefill_op *o = r->op;
    r->item = item;
    nb_pool_run(r->b->pool, pack_kv_task, r, o->n_head * TILES);
}

static void pack_q_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const prefill_op *o = r->op;
    (void)worker;
    o->v->pack_q(&dims, o->qp + task * o->q_bytes, o->q, dims.d1 + dims.d2, TILE);
}

static void pack_q_step(nb_kb_run *r, size_t item)
{
    const prefill_op *o = r->op;
    r->item = item;
    nb_pool_run(r->b->pool, pack_q_task, r, o->n_qpage * o->n_head);
}

static bool allocate(nb_kb_run *r, prefill_op *o)
{
    nb_kbench *b = r->b;
    const size_t nt = nb_pool_n_thread(b->pool), n = o->n_qpage * TILE * o->n_head;
    o->k = nb_kb_floats(b, TILE * (dims.d1 + dims.d2 + dims.d_v), 7);
    o->q = nb_kb_floats(b, TILE * (dims.d1 + dims.d2), 8);
    o->qp = nb_kb_alloc(b, o->n_qpage * o->n_head * o->q_bytes);
    o->tiles = nb_kb_alloc(b, nt * o->kv_bytes);
    o->scratch = nb_kb_alloc(b, nt * o->scratch_bytes);
    o->o = nb_kb_alloc(b, n * dims.d_v * sizeof *o->o);
    o->m = nb_kb_alloc(b, n * sizeof *o->m);
    o->l = nb_kb_alloc(b, n * sizeof *o->l);
    if (!o->k || !o->q || !o->qp || !o->tiles || !o->scratch || !o->o || !o->m || !o->l)
        return false;
    for (size_t i = 0; i < n; i++) o->m[i] = -INFINITY;
    for (size_t i = 0; i < o->n_qpage * o->n_head; i++)
        o->v->pack_q(&dims, o->qp + i * o->q_bytes, o->q, dims.d1 + dims.d2, TILE);
    return true;
}

nb_status nb_kb_attn_prefill(nb_kb_run *r, nb_error *err)
{
    prefill_op *o = nb_kb_alloc(r->b, sizeof *o);
    if (!o) return nb_kb_nomem(err);
    r->op = o;
    KB_PICK(o->v, nb_attn_prefill_variants, r->caps);
    o->n_head = r->c->n_head;
    o->n_qpage = (r->c->n_query + TILE - 1) / TILE;
    o->kv_bytes = o->v->kv_bytes(&dims);
    o->q_bytes = o->v->q_bytes(&dims);
    o->scratch_bytes = (o->v->scratch(&dims) + 127) / 128 * 128;
    if (!allocate(r, o)) return nb_kb_nomem(err);
    const size_t n_tile = o->n_head * TILES;
    unsigned char *model = nb_kb_alloc(r->b, n_tile * o->kv_bytes);
    if (!model) return nb_kb_nomem(err);
    for (size_t i = 0; i < n_tile; i++) pack_tile(o, model + i * o->kv_bytes);
    NB_TRY(nb_kb_make_set(r, model, 1, n_tile * o->kv_bytes, err));
    const double pairs = (double)r->c->n_query * SPLIT_TOK * (double)o->n_head;
    const nb_kb_part p = { .variant = o->v->name, .context = SPLIT_TOK };
    r->part[0] = r->part[1] = r->part[2] = p;
    r->part[0].name = "attend";
    r->part[0].step = attend_step;
    r->part[0].bytes = (double)(n_tile * o->kv_bytes);
    r->part[0].ops = 2 * pairs * (double)(dims.d1 + dims.d2 + dims.d_v);
    r->part[0].peak = KB_PEAK_BF16;
    r->part[1].name = "pack_kv";
    r->part[1].step = pack_kv_step;
    r->part[2].name = "pack_q";
    r->part[2].step = pack_q_step;
    r->part[2].context = 0;
    r->n_part = 3;
    return NB_OK;
}
