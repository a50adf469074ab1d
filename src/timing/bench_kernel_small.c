/* bench_kernel_small.c - the operations between the products: norms, rotation, activation, experts,
 * embedding.  An item is the rows of one layer; tasks are ranges of tokens.  What counts are the bytes
 * that go in and out. */
#include <string.h>

#include "base/rng.h"
#include "kernel/embed/embed.h"
#include "kernel/kda/kda.h"
#include "kernel/rmsnorm/rmsnorm.h"
#include "kernel/rope/rope.h"
#include "kernel/route/route.h"
#include "kernel/swiglu/swiglu.h"
#include "timing/bench_kernel_internal.h"

enum { ROPE = 64, TOP_K = 6, TASK_TOK = 8, KDA_DIM = 128 };

typedef struct small_op {
    const nb_rmsnorm_variant *norm;
    const nb_rope_variant *rope;
    const nb_swiglu_variant *swiglu;
    const nb_route_variant *route;
    const nb_embed_variant *embed;
    const nb_kda_variant *kda;
    nb_weight w;
    float *y, *gain;
    uint32_t *id;
    size_t dim;
} small_op;

static void range(const nb_kb_run *r, size_t task, size_t *t0, size_t *n)
{
    const size_t left = r->c->n_tok - task * TASK_TOK;
    *t0 = task * TASK_TOK;
    *n = left < TASK_TOK ? left : TASK_TOK;
}

/* Rows of the item in hand.  It is the set's memory, so rope may turn them in place. */
static float *in_rows(const nb_kb_run *r)
{
    return (float *)(void *)(r->set + r->item % r->n_item * r->item_bytes);
}

static void norm_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const small_op *o = r->op;
    size_t t0, n;
    (void)worker;
    range(r, task, &t0, &n);
    o->norm->fn(&(nb_rmsnorm_args){ .y = o->y + t0 * o->dim,
                                    .x = in_rows(r) + t0 * o->dim,
                                    .w = o->gain,
                                    .n_row = n,
                                    .dim = o->dim,
                                    .x_stride = o->dim,
                                    .y_stride = o->dim,
                                    .eps = 1e-6f });
}

static void rope_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const small_op *o = r->op;
    size_t t0, n;
    (void)worker;
    range(r, task, &t0, &n);
    o->rope->fn(&(nb_rope_args){ .x = in_rows(r) + t0 * o->dim,
                                 .cos_sin = o->gain + t0 * ROPE,
                                 .n_tok = n,
                                 .n_head = r->c->n_head,
                                 .dim = ROPE,
                                 .tok_stride = o->dim,
                                 .head_stride = ROPE,
                                 .interleaved = true });
}

static void swiglu_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const small_op *o = r->op;
    size_t t0, n;
    (void)worker;
    range(r, task, &t0, &n);
    const float *x = in_rows(r) + t0 * 2 * o->dim;
    o->swiglu->fn(&(nb_swiglu_args){ .y = o->y + t0 * o->dim,
                                     .gate = x,
                                     .up = x + o->dim,
                                     .n_tok = n,
                                     .dim = o->dim,
                                     .in_stride = 2 * o->dim,
                                     .y_stride = o->dim });
}

static void route_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const small_op *o = r->op;
    size_t t0, n;
    (void)worker;
    range(r, task, &t0, &n);
    o->route->fn(&(nb_route_args){ .id = o->id + t0 * TOP_K,
                                   .weight = o->y + t0 * TOP_K,
                                   .logits = in_rows(r) + t0 * o->dim,
                                   .n_tok = n,
                                   .n_expert = o->dim,
                                   .top_k = o->dim < TOP_K ? o->dim : TOP_K,
                                   .n_group = 1,
                                   .topk_group = 1,
                                   .group_top = 1,
                                   .factor = 1 });
}

static void embed_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const small_op *o = r->op;
    size_t t0, n;
    nb_weight w = o->w;
    (void)worker;
    range(r, task, &t0, &n);
    nb_kb_set_weight(&w, nb_kb_item(r, r->item));
    o->embed->fn(&(nb_embed_args){ .y = o->y + t0 * o->dim,
                                   .id = o->id + t0,
                                   .w = w,
                                   .n_tok = n,
                                   .y_stride = o->dim,
                                   .factor = 1 });
}

#define STEP(name, task)                                                                           \
    static void name(nb_kb_run *r, size_t item)                                                    \
    {                                                                                              \
        r->item = item;                                                                            \
        nb_pool_run(r->b->pool, task, r, (r->c->n_tok + TASK_TOK - 1) / TASK_TOK);                 \
    }
STEP(norm_step, norm_task)
STEP(rope_step, rope_task)
STEP(swiglu_step, swiglu_task)
STEP(route_step, route_task)
STEP(embed_step, embed_task)

/* Buffers of an operation over rows of `width` floats, of which it writes `out`. */
static nb_status set_up(nb_kb_run *r, size_t dim, size_t width, void (*step)(nb_kb_run *, size_t),
                        nb_error *err)
{
    small_op *o = nb_kb_alloc(r->b, sizeof *o);
    const size_t n = r->c->n_tok;
    if (!o) return nb_kb_nomem(err);
    r->op = o;
    o->dim = dim;
    o->y = nb_kb_alloc(r->b, n * (dim > TOP_K ? dim : TOP_K) * sizeof *o->y);
    o->gain = nb_kb_floats(r->b, dim > n * ROPE ? dim : n * ROPE, 5);
    o->id = nb_kb_alloc(r->b, n * TOP_K * sizeof *o->id);
    const float *model = nb_kb_floats(r->b, n * width, 6);
    if (!o->y || !o->gain || !o->id || !model) return nb_kb_nomem(err);
    NB_TRY(nb_kb_make_set(r, model, 1, n * width * sizeof *model, err));
    r->part[r->n_part++] =
        (nb_kb_part){ .name = "", .step = step, .bytes = (double)(n * width * sizeof *model) };
    return NB_OK;
}

nb_status nb_kb_rmsnorm(nb_kb_run *r, nb_error *err)
{
    NB_TRY(set_up(r, r->c->n_col, r->c->n_col, norm_step, err));
    small_op *o = r->op;
    KB_PICK(o->norm, nb_rmsnorm_variants, r->caps);
    r->part[0].variant = o->norm->name;
    return NB_OK;
}

nb_status nb_kb_rope(nb_kb_run *r, nb_error *err)
{
    NB_TRY(set_up(r, r->c->n_head * ROPE, r->c->n_head * ROPE, rope_step, err));
    small_op *o = r->op;
    KB_PICK(o->rope, nb_rope_variants, r->caps);
    for (size_t t = 0; t < r->c->n_tok; t++) /* cos 0.6, sin 0.8: turned as often as one likes */
        for (size_t i = 0; i < ROPE; i++) o->gain[t * ROPE + i] = i < ROPE / 2 ? 0.6f : 0.8f;
    r->part[0].variant = o->rope->name;
    return NB_OK;
}

nb_status nb_kb_swiglu(nb_kb_run *r, nb_error *err)
{
    NB_TRY(set_up(r, r->c->n_col, 2 * r->c->n_col, swiglu_step, err));
    small_op *o = r->op;
    KB_PICK(o->swiglu, nb_swiglu_variants, r->caps);
    r->part[0].variant = o->swiglu->name;
    return NB_OK;
}

nb_status nb_kb_route(nb_kb_run *r, nb_error *err)
{
    if (r->c->n_row > NB_ROUTE_MAX_EXPERT)
        return nb_fail(err, NB_ERR_RANGE, "%zu experts (--rows): at most %d", r->c->n_row,
                       (int)NB_ROUTE_MAX_EXPERT);
    NB_TRY(set_up(r, r->c->n_row, r->c->n_row, route_step, err));
    small_op *o = r->op;
    KB_PICK(o->route, nb_route_variants, r->caps);
    r->part[0].variant = o->route->name;
    return NB_OK;
}

nb_status nb_kb_embed(nb_kb_run *r, nb_error *err)
{
    small_op *o = nb_kb_alloc(r->b, sizeof *o);
    const size_t n = r->c->n_tok;
    if (!o) return nb_kb_nomem(err);
    r->op = o;
    o->dim = r->c->n_col;
    o->y = nb_kb_alloc(r->b, n * o->dim * sizeof *o->y);
    o->id = nb_kb_alloc(r->b, n * sizeof *o->id);
    if (!o->y || !o->id) return nb_kb_nomem(err);
    for (size_t i = 0; i < n; i++) o->id[i] = (uint32_t)(nb_rng_u64(r->b->seed, i) % r->c->n_row);
    NB_TRY(nb_kb_weight(r, &o->w, err));
    KB_PICK(o->embed, nb_embed_variants, r->caps);
    r->part[r->n_part++] =
        (nb_kb_part){ .name = "",
                      .variant = o->embed->name,
                      .step = embed_step,
                      .bytes = (double)(n * nb_wtype_row_bytes(o->w.type, o->dim)) };
    return NB_OK;
}

/* A task is a head: its state is a part of the item, its inputs are the same for all. */
static void kda_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const small_op *o = r->op;
    const size_t d = KDA_DIM, n = r->c->n_tok;
    (void)worker;
    o->kda->fn(&(nb_kda_args){ .y = o->y + task * n * d,
                               .s = in_rows(r) + task * d * d,
                               .q = o->gain,
                               .k = o->gain,
                               .v = o->gain,
                               .a = o->gain,
                               .beta = o->gain,
                               .n_tok = n,
                               .d_k = d,
                               .d_v = d,
                               .y_stride = d,
                               .s_stride = d,
                               .qk_stride = d,
                               .v_stride = d,
                               .a_stride = d,
                               .beta_stride = 1 });
}

static void kda_step(nb_kb_run *r, size_t item)
{
    r->item = item;
    nb_pool_run(r->b->pool, kda_task, r, r->c->n_head);
}

nb_status nb_kb_kda(nb_kb_run *r, nb_error *err)
{
    small_op *o = nb_kb_alloc(r->b, sizeof *o);
    const size_t n = r->c->n_tok * KDA_DIM, n_state = r->c->n_head * KDA_DIM * KDA_DIM;
    if (!o) return nb_kb_nomem(err);
    r->op = o;
    o->y = nb_kb_alloc(r->b, r->c->n_head * n * sizeof *o->y);
    o->gain = nb_kb_alloc(r->b, n * sizeof *o->gain);
    const float *model = nb_kb_floats(r->b, n_state, 6);
    if (!o->y || !o->gain || !model) return nb_kb_nomem(err);
    for (size_t i = 0; i < n; i++) o->gain[i] = 1.0f / 16; /* keys of length 0.7, decays of 1/16 */
    NB_TRY(nb_kb_make_set(r, model, 1, n_state * sizeof *model, err));
    KB_PICK(o->kda, nb_kda_variants, r->caps);
    r->part[r->n_part++] = (nb_kb_part){ .name = "",
                                         .variant = o->kda->name,
                                         .step = kda_step,
                                         .bytes = 2.0 * (double)(n_state * sizeof *model) };
    return NB_OK;
}
