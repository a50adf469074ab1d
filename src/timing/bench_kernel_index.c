/* bench_kernel_index.c - sparse attention's choice: scores of an indexer over encoded keys, and the largest of them. */
#include "base/rng.h"
#include "kernel/index_score/index_score.h"
#include "kernel/index_topk/index_topk.h"
#include "kernel/kv_codec/kv_codec.h"
#include "num/bf16.h"
#include "timing/bench_kernel_internal.h"

enum { HEADS = 64, DIM = 128, TOPK = 2048, PAGES_PER_TASK = 8 };

typedef struct index_op {
    const nb_index_score_variant *score;
    const nb_index_topk_variant *topk;
    const nb_kv_codec_variant *codec;
    nb_record record; /* of the keys alone */
    size_t n_page, scratch_bytes;
    char *q, *scratch; /* packed; [n_thread] */
    float *rows, *s;   /* [n_thread][64][DIM]; [context] */
    uint32_t *at;
} index_op;

static void score_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const index_op *o = r->op;
    float *rows = o->rows + worker * NB_PAGE_TOK * DIM;
    for (size_t p = task * PAGES_PER_TASK; p < (task + 1) * PAGES_PER_TASK && p < o->n_page; p++) {
        o->codec->decode(&o->record, nb_kb_item(r, r->item) + p * o->record.page_bytes, 0, 0,
                         NB_PAGE_TOK, rows, DIM);
        o->score->fn(&(nb_index_score_args){ .s = o->s + p * NB_PAGE_TOK,
                                             .q = o->q,
                                             .k = rows,
                                             .scratch = o->scratch + worker * o->scratch_bytes,
                                             .n_query = 1,
                                             .n_head = HEADS,
                                             .dim = DIM,
                                             .n_tok = NB_PAGE_TOK,
                                             .s_stride = NB_PAGE_TOK,
                                             .k_stride = DIM });
    }
}

static void score_step(nb_kb_run *r, size_t item)
{
    const index_op *o = r->op;
    r->item = item;
    nb_pool_run(r->b->pool, score_task, r, (o->n_page + PAGES_PER_TASK - 1) / PAGES_PER_TASK);
}

static nb_status make_keys(nb_kb_run *r, index_op *o, void **model, nb_error *err)
{
    const nb_record_opts keys = { .type = NB_KV_FP8,
                                  .n_seg = 1,
                                  .seg[0] = { .role = NB_ROLE_INDEX, .dim = DIM, .n_vec = 1 } };
    uint16_t *x = nb_kb_alloc(r->b, (size_t)NB_PAGE_TOK * DIM * sizeof *x);
    NB_TRY(nb_record_init(&o->record, &keys, err));
    unsigned char *pages = nb_kb_alloc(r->b, o->n_page * o->record.page_bytes);
    if (!x || !pages) return nb_kb_nomem(err);
    for (size_t p = 0; p < o->n_page; p++) {
        for (size_t i = 0; i < (size_t)NB_PAGE_TOK * DIM; i++)
            x[i] = nb_bf16_from_f32((float)(2 * nb_rng_unit(r->b->seed + p, i) - 1));
        (void)nb_record_encode_page(&o->record, pages + p * o->record.page_bytes, x, DIM);
    }
    *model = pages;
    return NB_OK;
}

nb_status nb_kb_index_score(nb_kb_run *r, nb_error *err)
{
    index_op *o = nb_kb_alloc(r->b, sizeof *o);
    const size_t nt = nb_pool_n_thread(r->b->pool);
    void *model = NULL;
    if (!o) return nb_kb_nomem(err);
    r->op = o;
    o->n_page = r->c->context / NB_PAGE_TOK;
    KB_PICK(o->score, nb_index_score_variants, r->caps);
    KB_PICK(o->codec, nb_kv_codec_variants, r->caps);
    NB_TRY(make_keys(r, o, &model, err));
    o->scratch_bytes = o->score->scratch(HEADS, DIM) + 64;
    o->scratch = nb_kb_alloc(r->b, nt * o->scratch_bytes);
    o->rows = nb_kb_alloc(r->b, nt * NB_PAGE_TOK * DIM * sizeof *o->rows);
    o->s = nb_kb_alloc(r->b, r->c->context * sizeof *o->s);
    o->q = nb_kb_alloc(r->b, o->score->q_bytes(HEADS, DIM));
    const float *q = nb_kb_floats(r->b, (size_t)HEADS * DIM, 1), *w = nb_kb_floats(r->b, HEADS, 2);
    if (!o->scratch || !o->rows || !o->s || !o->q || !q || !w) return nb_kb_nomem(err);
    o->score->pack(HEADS, DIM, q, w, o->q);
    NB_TRY(nb_kb_make_set(r, model, 1, o->n_page * o->record.page_bytes, err));
    r->part[r->n_part++] =
        (nb_kb_part){ .name = "",
                      .variant = o->score->name,
                      .step = score_step,
                      .bytes = (double)(o->n_page * o->record.page_bytes),
                      .ops = 2.0 * HEADS * DIM * (double)r->c->context,
                      .context = (double)r->c->context,
                      .peak = o->score->q_eps != 0 ? KB_PEAK_BF16 : KB_PEAK_F32 };
    return NB_OK;
}

static void topk_step(nb_kb_run *r, size_t item)
{
    const index_op *o = r->op;
    const size_t n = r->c->context;
    o->topk->fn(&(nb_index_topk_args){ (const float *)(const void *)nb_kb_item(r, item), o->at, n,
                                       n < TOPK ? n : TOPK });
}

nb_status nb_kb_index_topk(nb_kb_run *r, nb_error *err)
{
    index_op *o = nb_kb_alloc(r->b, sizeof *o);
    if (!o) return nb_kb_nomem(err);
    r->op = o;
    KB_PICK(o->topk, nb_index_topk_variants, r->caps);
    const float *s = nb_kb_floats(r->b, r->c->context, 3);
    o->at = nb_kb_alloc(r->b, TOPK * sizeof *o->at);
    if (!s || !o->at) return nb_kb_nomem(err);
    NB_TRY(nb_kb_make_set(r, s, 1, r->c->context * sizeof *s, err));
    r->part[r->n_part++] = (nb_kb_part){ .name = "",
                                         .variant = o->topk->name,
                                         .step = topk_step,
                                         .bytes = (double)(r->c->context * sizeof *s),
                                         .context = (double)r->c->context };
    return NB_OK;
}
