/* bench_kernel_attn.c - absorbed attention: over pages, over decoded rows, scores alone.
 *
 * A step is one layer of one decode step: the splits of the context are tasks, a wave of them at
 * a time, whose states are then joined in order and divided (src/model/cpu/cpu_attn.c).  An item is
 * the context of a layer. */
#include <math.h>
#include <string.h>

#include "kernel/attn/attn.h"
#include "kernel/attn_pages/attn_pages.h"
#include "kernel/attn_score/attn_score.h"
#include "timing/bench_kernel_internal.h"

enum { LATENT = 512, ROPE = 64, VALUES = LATENT + ROPE, PAGE_FLOATS = NB_PAGE_TOK * VALUES };

typedef struct attn_op {
    const nb_attn_pages_variant *pages;
    const nb_attn_variant *rows;
    const nb_attn_score_variant *score;
    nb_record record;
    size_t n_page, split_pages, n_split, n_head, n_query, wave, split0, n_wave, n_hb, scratch_bytes;
    float *q;                         /* [n_query][n_head][VALUES] */
    float *part_o, *part_m, *part_l;  /* [wave][n_query][n_head] states */
    float *tot_o, *tot_m, *tot_l, *s; /* s: [n_thread][n_head][64] */
    unsigned char *scratch;           /* [n_thread][scratch_bytes] */
    float scale;
} attn_op;

static void reset(float *m, float *l, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        m[i] = -INFINITY;
        l[i] = 0;
    }
}

static void heads(const attn_op *o, size_t i, size_t *b, size_t *e)
{
    *b = o->n_head * i / o->n_hb;
    *e = o->n_head * (i + 1) / o->n_hb;
}

/* ---- over pages ---- */

static void pages_split(const nb_kb_run *r, const attn_op *o, size_t w, size_t h0, size_t h1,
                        size_t worker)
{
    const size_t split = o->split0 + w, p0 = split * o->split_pages, nh = o->n_head;
    const unsigned char *item = nb_kb_item(r, r->item);
    const void *page[KB_SPLIT_MAX + 1] = { 0 }; /* and the first of the next split */
    size_t n_page = 0;
    nb_attn_query query[64];
    nb_attn_pages_args a = { .record = &o->record,
                             .query = query,
                             .head_begin = h0,
                             .head_end = h1,
                             .scale = o->scale,
                             .scratch = o->scratch + worker * o->scratch_bytes };
    for (; n_page < o->split_pages && p0 + n_page < o->n_page; n_page++)
        page[n_page] = item + (p0 + n_page) * o->record.page_bytes;
    if (p0 + n_page < o->n_page) page[n_page] = item + (p0 + n_page) * o->record.page_bytes;
    for (size_t q0 = 0; q0 < o->n_query; q0 += a.n_query) {
        a.n_query = o->n_query - q0 < 64 ? o->n_query - q0 : 64;
        for (size_t i = 0; i < a.n_query; i++) {
            const size_t at = (w * o->n_query + q0 + i) * nh;
            query[i] = (nb_attn_query){ o->q + (q0 + i) * nh * VALUES, o->part_o + at * LATENT,
                                        o->part_m + at, o->part_l + at };
            reset(o->part_m + at + h0, o->part_l + at + h0, h1 - h0);
        }
        for (size_t p = 0; p < n_page; p += a.n_page) {
            a.page = page + p;
            a.n_page = n_page - p < NB_ATTN_PAGES_MAX ? n_page - p : NB_ATTN_PAGES_MAX;
            a.next = page[p + a.n_page];
            o->pages->fn(&a);
        }
    }
}

/* ---- over decoded rows ---- */

static void rows_split(const nb_kb_run *r, const attn_op *o, size_t w, size_t h0, size_t h1)
{
    const size_t split = o->split0 + w, p0 = split * o->split_pages, nh = o->n_head;
    const float *item = (const float *)(const void *)nb_kb_item(r, r->item);
    const size_t at = w * o->n_query * nh;
    nb_attn_args a = { .o = o->part_o + at * LATENT,
                       .m = o->part_m + at,
                       .l = o->part_l + at,
                       .q = o->q,
                       .n_q = o->n_query,
                       .head_begin = h0,
                       .head_end = h1,
                       .group = nh,
                       .n_kv = NB_PAGE_TOK,
                       .vis0 = NB_PAGE_TOK,
                       .d1 = LATENT,
                       .d2 = ROPE,
                       .d_v = LATENT,
                       .q_q_stride = nh * VALUES,
                       .o_q_stride = nh * LATENT,
                       .ml_q_stride = nh,
                       .k1_stride = VALUES,
                       .k2_stride = VALUES,
                       .v_stride = VALUES,
                       .scale = o->scale };
    for (size_t i = 0; i < o->n_query; i++) reset(a.m + i * nh + h0, a.l + i * nh + h0, h1 - h0);
    for (size_t p = p0; p < p0 + o->split_pages && p < o->n_page; p++) {
        a.k1 = a.v = item + p * PAGE_FLOATS;
        a.k2 = a.k1 + LATENT;
        o->rows->fn(&a);
    }
}

/* ---- a step ---- */

static void split_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const attn_op *o = r->op;
    size_t h0, h1;
    heads(o, task % o->n_hb, &h0, &h1);
    if (o->pages)
        pages_split(r, o, task / o->n_hb, h0, h1, worker);
    else
        rows_split(r, o, task / o->n_hb, h0, h1);
}

static void merge_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const attn_op *o = r->op;
    const size_t i = task / o->n_hb, nh = o->n_head;
    size_t h0, h1;
    (void)worker;
    heads(o, task % o->n_hb, &h0, &h1);
    const size_t at = i * nh + h0;
    if (o->split0 == 0) reset(o->tot_m + at, o->tot_l + at, h1 - h0);
    for (size_t w = 0; w < o->n_wave; w++) {
        const size_t from = (w * o->n_query + i) * nh + h0;
        nb_attn_merge(o->tot_o + at * LATENT, o->tot_m + at, o->tot_l + at,
                      o->part_o + from * LATENT, o->part_m + from, o->part_l + from, h1 - h0,
                      LATENT);
    }
    if (o->split0 + o->n_wave == o->n_split)
        nb_attn_finish(o->tot_o + at * LATENT, o->tot_o + at * LATENT, o->tot_l + at, h1 - h0,
                       LATENT);
}

static void attn_step(nb_kb_run *r, size_t item)
{
    attn_op *o = r->op;
    const size_t n_thread = nb_pool_n_thread(r->b->pool);
    r->item = item;
    for (o->split0 = 0; o->split0 < o->n_split; o->split0 += o->n_wave) {
        o->n_wave = o->n_split - o->split0 < o->wave ? o->n_split - o->split0 : o->wave;
        o->n_hb = (n_thread + o->n_wave - 1) / o->n_wave;
        if (o->n_hb > o->n_head) o->n_hb = o->n_head;
        nb_pool_run(r->b->pool, split_task, r, o->n_wave * o->n_hb);
        nb_pool_run(r->b->pool, merge_task, r, o->n_query * o->n_hb);
    }
}

static attn_op *new_op(nb_kb_run *r)
{
    nb_kbench *b = r->b;
    attn_op *o = nb_kb_alloc(b, sizeof *o);
    const size_t nt = nb_pool_n_thread(b->pool);
    if (!o) return NULL;
    o->n_head = r->c->n_head;
    o->n_query = r->c->n_query;
    o->n_page = r->c->context / NB_PAGE_TOK;
    o->split_pages = o->n_page < 128 ? 4 : KB_SPLIT_MAX;
    o->n_split = (o->n_page + o->split_pages - 1) / o->split_pages;
    o->wave = KB_WAVE / o->n_query ? KB_WAVE / o->n_query : 1;
    o->scale = 1 / sqrtf(192);
    const size_t n = o->wave * o->n_query * o->n_head, t = o->n_query * o->n_head;
    o->q = nb_kb_floats(b, t * VALUES, 1);
    o->part_o = nb_kb_alloc(b, n * LATENT * sizeof(float));
    o->part_m = nb_kb_alloc(b, n * sizeof(float));
    o->part_l = nb_kb_alloc(b, n * sizeof(float));
    o->tot_o = nb_kb_alloc(b, t * LATENT * sizeof(float));
    o->tot_m = nb_kb_alloc(b, t * sizeof(float));
    o->tot_l = nb_kb_alloc(b, t * sizeof(float));
    o->s = nb_kb_alloc(b, nt * o->n_head * NB_PAGE_TOK * sizeof(float));
    r->op = o;
    return o->q && o->part_o && o->part_m && o->part_l && o->tot_o && o->tot_m && o->tot_l && o->s
               ? o
               : NULL;
}

static double flops(const nb_kb_run *r, size_t per_value)
{
    return 2.0 * (double)r->c->n_query * (double)r->c->n_head * (double)r->c->context *
           (double)per_value;
}

nb_status nb_kb_attn_pages(nb_kb_run *r, nb_error *err)
{
    attn_op *o = new_op(r);
    const size_t nt = nb_pool_n_thread(r->b->pool);
    if (!o) return nb_kb_nomem(err);
    NB_TRY(nb_kb_record(r, &o->record, err));
    o->pages = nb_attn_pages_for(r->caps, &o->record);
    o->scratch_bytes = (o->pages->scratch(&o->record) + 127) / 128 * 128;
    o->scratch = nb_kb_alloc(r->b, nt * o->scratch_bytes);
    const void *model = nb_kb_pages(r, &o->record, o->n_page);
    if (!o->scratch || !model) return nb_kb_nomem(err);
    NB_TRY(nb_kb_make_set(r, model, 1, o->n_page * o->record.page_bytes, err));
    r->part[r->n_part++] = (nb_kb_part){ .name = "",
                                         .variant = o->pages->name,
                                         .step = attn_step,
                                         .bytes = (double)(o->n_page * o->record.page_bytes),
                                         .ops = flops(r, VALUES + LATENT),
                                         .context = (double)r->c->context,
                                         .peak = KB_PEAK_BF16 };
    return NB_OK;
}

nb_status nb_kb_attn(nb_kb_run *r, nb_error *err)
{
    attn_op *o = new_op(r);
    if (!o) return nb_kb_nomem(err);
    KB_PICK(o->rows, nb_attn_variants, r->caps);
    const float *model = nb_kb_floats(r->b, o->n_page * PAGE_FLOATS, 2);
    if (!model) return nb_kb_nomem(err);
    NB_TRY(nb_kb_make_set(r, model, 1, o->n_page * PAGE_FLOATS * sizeof *model, err));
    r->part[r->n_part++] = (nb_kb_part){ .name = "",
                                         .variant = o->rows->name,
                                         .step = attn_step,
                                         .bytes = (double)(o->n_page * PAGE_FLOATS * sizeof *model),
                                         .ops = flops(r, VALUES + LATENT),
                                         .context = (double)r->c->context,
                                         .peak = KB_PEAK_F32 };
    return NB_OK;
}

static void score_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const attn_op *o = r->op;
    const float *item = (const float *)(const void *)nb_kb_item(r, r->item) + task * PAGE_FLOATS;
    const nb_attn_score_args a = { .s = o->s + worker * o->n_head * NB_PAGE_TOK,
                                   .q = o->q,
                                   .k1 = item,
                                   .k2 = item + LATENT,
                                   .head_end = o->n_head,
                                   .n_kv = NB_PAGE_TOK,
                                   .d1 = LATENT,
                                   .d2 = ROPE,
                                   .s_stride = NB_PAGE_TOK,
                                   .k1_stride = VALUES,
                                   .k2_stride = VALUES,
                                   .scale = o->scale };
    o->score->fn(&a);
}

static void score_step(nb_kb_run *r, size_t item)
{
    r->item = item;
    nb_pool_run(r->b->pool, score_task, r, ((const attn_op *)r->op)->n_page);
}

nb_status nb_kb_attn_score(nb_kb_run *r, nb_error *err)
{
    attn_op *o = new_op(r);
    if (!o) return nb_kb_nomem(err);
    KB_PICK(o->score, nb_attn_score_variants, r->caps);
    const float *model = nb_kb_floats(r->b, o->n_page * PAGE_FLOATS, 2);
    if (!model) return nb_kb_nomem(err);
    NB_TRY(nb_kb_make_set(r, model, 1, o->n_page * PAGE_FLOATS * sizeof *model, err));
    r->part[r->n_part++] = (nb_kb_part){ .name = "",
                                         .variant = o->score->name,
                                         .step = score_step,
                                         .bytes = (double)(o->n_page * PAGE_FLOATS * sizeof *model),
                                         .ops = flops(r, VALUES) / (double)r->c->n_query,
                                         .context = (double)r->c->context,
                                         .peak = KB_PEAK_F32 };
    return NB_OK;
}
