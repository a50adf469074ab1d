/* bench_kernel_linear.c - products with stored matrices.
 *
 * An item is a matrix; rows of it are tasks, KB_ROW_BLOCK at a time, as in the engine.  Where a
 * variant packs its activations, packing them is in the time of a step. */
#include <string.h>

#include "base/rng.h"
#include "kernel/linear/linear.h"
#include "timing/bench_kernel_internal.h"

enum { COL_BLOCK = 256 };

typedef struct linear_op {
    const nb_linear_variant *v;
    nb_linear_args a;
    unsigned char *xp;
    size_t n_pack, n_block;
} linear_op;

static nb_status weight_type(const char *name, nb_wtype *out, nb_error *err)
{
    for (size_t i = 0; i < NB_W_TYPE_COUNT; i++)
        if (strcmp(name, nb_wtypes[i].word) == 0) {
            *out = (nb_wtype)i;
            return NB_OK;
        }
    return nb_fail(err, NB_ERR_ARG,
                   "%s: no type of weights (expected f32, bf16, f16, fp8, int8, int4, fp4 or a type of GGUF, such as q4_k)", name);
}

/* Codes of finite numbers of ordinary size; none is subnormal. */
static void fill_weight(unsigned char *p, size_t n, nb_wtype t, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t u = nb_rng_u64(seed, i);
        const float f = (float)((double)(u >> 40) * 0x1p-24 - 0.5) + 0x1p-12f;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        if (t == NB_W_F32) {
            memcpy(p + 4 * i, &f, 4);
        } else if (t == NB_W_BF16 || t == NB_W_F16) {
            /* FP16: exponents 8..15 of 31, any fraction and sign */
            const uint16_t h =
                t == NB_W_BF16 ? (uint16_t)(bits >> 16) : (uint16_t)((u & 0x9fff) | 0x2000);
            memcpy(p + 2 * i, &h, 2);
        } else if (t == NB_W_FP8B) {
            p[i] = (unsigned char)(0x20 + u % 0x58 + (u >> 32 & 0x80));
        } else {
            p[i] = (unsigned char)((u % 255) - 127);
        }
    }
}

/* Scales of groups as checkpoints have them: BF16 for 32 columns, E4M3 for 16 of FP4. */
static size_t set_groups(nb_weight *w)
{
    if (w->type > NB_W_FP4 || !nb_wtype_is_packed(w->type)) return 0;
    const bool fp4 = w->type == NB_W_FP4;
    w->group = (nb_wgroups){ .scale = w,
                             .size = fp4 ? 16 : 32,
                             .scale_type = fp4 ? NB_S_E4M3 : NB_S_BF16,
                             .outer = 1 };
    return nb_weight_plane_bytes(w);
}

/* Codes, then the plane of scales. */
static void fill_packed(unsigned char *p, size_t n_code, size_t n_scale, uint64_t seed)
{
    for (size_t i = 0; i < n_code; i++) p[i] = (unsigned char)nb_rng_u64(seed, i);
    memset(p + n_code, 0x3b, n_scale); /* E4M3 0.6875, BF16 0.0028 */
}

void nb_kb_set_weight(nb_weight *w, const unsigned char *item)
{
    w->data = item;
    if (w->group.scale) w->group.scale = item + nb_weight_data_bytes(w);
}

nb_status nb_kb_weight(nb_kb_run *r, nb_weight *w, nb_error *err)
{
    const nb_kbench_case *c = r->c;
    *w = (nb_weight){ .n_row = c->n_row, .n_col = c->n_col };
    NB_TRY(weight_type(c->weight ? c->weight : "bf16", &w->type, err));
    const size_t bytes = nb_weight_data_bytes(w), plane = set_groups(w);
    unsigned char *model = nb_kb_alloc(r->b, bytes + plane);
    const size_t n_scale = nb_weight_scale_bytes(w) / sizeof *w->scale;
    float *scale = nb_kb_alloc(r->b, (n_scale + 1) * sizeof *scale);
    if (!model || !scale) return nb_kb_nomem(err);
    for (size_t i = 0; i < n_scale; i++) scale[i] = 0x1p-6f;
    if (nb_wtype_is_packed(w->type))
        fill_packed(model, bytes, plane, r->b->seed + 3);
    else
        fill_weight(model, c->n_row * c->n_col, w->type, r->b->seed + 3);
    if (n_scale) w->scale = scale;
    return nb_kb_make_set(r, model, 1, bytes + plane, err);
}

static void pack_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const linear_op *o = r->op;
    const size_t t0 = task * NB_LINEAR_PACK_TOK, left = o->a.n_tok - t0;
    (void)worker;
    o->v->pack(o->xp, o->a.x, o->a.x_stride, o->a.n_tok, o->a.w.n_col, NULL, t0,
               t0 + (left < NB_LINEAR_PACK_TOK ? left : NB_LINEAR_PACK_TOK));
}

static void linear_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const linear_op *o = r->op;
    nb_linear_args a = o->a;
    (void)worker;
    nb_kb_set_weight(&a.w, nb_kb_item(r, r->item));
    a.row_begin = task * KB_ROW_BLOCK;
    a.row_end = a.row_begin + KB_ROW_BLOCK < a.w.n_row ? a.row_begin + KB_ROW_BLOCK : a.w.n_row;
    a.y += a.row_begin;
    a.xp = o->xp;
    o->v->fn(&a);
}

static void linear_step(nb_kb_run *r, size_t item)
{
    const linear_op *o = r->op;
    r->item = item;
    if (o->n_pack) nb_pool_run(r->b->pool, pack_task, r, o->n_pack);
    nb_pool_run(r->b->pool, linear_task, r, o->n_block);
}

static void transposed_task(void *ctx, size_t task, size_t worker)
{
    const nb_kb_run *r = ctx;
    const linear_op *o = r->op;
    nb_linear_args a = o->a;
    (void)worker;
    nb_kb_set_weight(&a.w, nb_kb_item(r, r->item));
    a.row_end = a.w.n_row;
    a.col_begin = task * COL_BLOCK;
    a.col_end = a.col_begin + COL_BLOCK < a.w.n_col ? a.col_begin + COL_BLOCK : a.w.n_col;
    a.y += a.col_begin;
    o->v->fn_t(&a);
}

static void transposed_step(nb_kb_run *r, size_t item)
{
    r->item = item;
    nb_pool_run(r->b->pool, transposed_task, r, ((const linear_op *)r->op)->n_block);
}

/* The row of this form of activations, and only of this one. */
static const nb_linear_variant *variant(nb_caps caps, nb_wtype t, const char *act, nb_error *err)
{
    static const char *const names[NB_ACT_COUNT] = { "float", "bf16", "int16", "int8", "fp8" };
    nb_act form = NB_ACT_FLOAT;
    while (act && form < NB_ACT_COUNT && strcmp(act, names[form]) != 0) form++;
    const nb_linear_variant *v = form < NB_ACT_COUNT ? nb_linear_find(t, form, caps) : NULL;
    if (v && v->act == form) return v;
    (void)nb_fail(err, NB_ERR_UNSUPPORTED, "no kernel for weights in %s and activations in %s at this level",
                  nb_wtypes[t].word, act);
    return NULL;
}

static nb_status set_up(nb_kb_run *r, bool transposed, nb_error *err)
{
    const nb_kbench_case *c = r->c;
    linear_op *o = nb_kb_alloc(r->b, sizeof *o);
    if (!o) return nb_kb_nomem(err);
    r->op = o;
    const size_t n_x = transposed ? c->n_row : c->n_col, n_y = transposed ? c->n_col : c->n_row;
    o->a.n_tok = c->n_tok;
    o->a.x_stride = n_x;
    o->a.y_stride = n_y;
    o->a.x = nb_kb_floats(r->b, c->n_tok * n_x, 4);
    o->a.y = nb_kb_alloc(r->b, c->n_tok * n_y * sizeof *o->a.y);
    if (!o->a.x || !o->a.y) return nb_kb_nomem(err);
    NB_TRY(nb_kb_weight(r, &o->a.w, err));
    o->v = variant(r->caps, o->a.w.type, transposed ? NULL : c->act, err);
    if (!o->v) return NB_ERR_UNSUPPORTED;
    if (!transposed && o->v->pack) {
        o->n_pack = (c->n_tok + NB_LINEAR_PACK_TOK - 1) / NB_LINEAR_PACK_TOK;
        o->xp = nb_kb_alloc(r->b, o->v->pack_bytes(c->n_tok, c->n_col));
        if (!o->xp) return nb_kb_nomem(err);
    }
    o->n_block = transposed ? (c->n_col + COL_BLOCK - 1) / COL_BLOCK
                            : (c->n_row + KB_ROW_BLOCK - 1) / KB_ROW_BLOCK;
    const double n = (double)c->n_row * (double)c->n_col;
    const nb_weight *w = &o->a.w;
    const bool whole = w->type == NB_W_INT8 || o->v->act == NB_ACT_INT8;
    const nb_kb_peak peak = whole ? KB_PEAK_INT8 : KB_PEAK_BF16;
    r->part[r->n_part++] = (nb_kb_part){ .name = "",
                                         .variant = o->v->name,
                                         .step = transposed ? transposed_step : linear_step,
                                         .bytes = (double)(nb_weight_data_bytes(w) + nb_weight_plane_bytes(w)),
                                         .ops = 2 * n * (double)c->n_tok,
                                         .peak = transposed ? KB_PEAK_F32 : peak };
    return NB_OK;
}

nb_status nb_kb_linear(nb_kb_run *r, nb_error *err)
{
    return set_up(r, false, err);
}
nb_status nb_kb_linear_t(nb_kb_run *r, nb_error *err)
{
    return set_up(r, true, err);
}
