/* bench_kernel_gpu_linear.c - products on a GPU: matrices, and the experts of a layer.
 *
 * A set is the weights of a step.  Activations are the same in every step: they come from the L2 cache,
 * as they do in a model. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/linear/tiled.h"
#include "num/bf16.h"
#include "timing/bench_kernel_gpu_internal.h"

nb_cuda_rows nb_gb_rows(nb_gbench *b, size_t n_row, size_t n_col)
{
    const size_t stride = (n_col + 7) / 8 * 8, n = n_row * stride;
    return (nb_cuda_rows){ .f = nb_gb_alloc(b, n * sizeof(float)),
                           .hi = nb_gb_alloc(b, n * sizeof(uint16_t)),
                           .lo = nb_gb_alloc(b, n * sizeof(uint16_t)),
                           .stride = stride };
}

/* Random rows, in all forms. */
static nb_cuda_rows random_rows(nb_gbench *b, size_t n_row, size_t n_col)
{
    nb_cuda_rows x = nb_gb_rows(b, n_row, n_col);
    const float *f = nb_gb_floats(b, n_row * x.stride);
    const nb_cuda_split_args a = {
        .x = f, .y = x, .n_tok = n_row, .dim = x.stride, .x_stride = x.stride
    };
    if (!b->nomem) b->api->split(b->g, &a);
    return x;
}

static bool as_codes(const nb_gbench_case *c)
{
    return c->act && !strcmp(c->act, "fp8");
}

/* The parts of x that products read: c->act. */
static nb_status take_parts(const nb_gbench_case *c, nb_cuda_rows *x, nb_error *err)
{
    const bool one = as_codes(c) || (c->act && !strcmp(c->act, "bf16"));
    if (c->act && !one && strcmp(c->act, "float") != 0)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--activation-dtype %s: a GPU has float, bf16 and fp8", c->act);
    if (one) x->lo = NULL;
    return NB_OK;
}

/* Room for n rows as codes, which each product makes anew. */
static nb_cuda_codes new_codes(nb_gbench *b, size_t n, size_t n_col)
{
    const size_t g = (n_col + 127) / 128;
    return (nb_cuda_codes){ .q = nb_gb_alloc(b, n * g * 128),
                            .s = nb_gb_alloc(b, n * g * sizeof(float)),
                            .stride = g * 128,
                            .s_stride = g };
}

static void quantise(const nb_gbench *b, nb_cuda_rows x, nb_cuda_codes y, size_t n, size_t dim)
{
    b->api->quantise(b->g, &(nb_cuda_quantise_args){ .x = x, .y = y, .n_tok = n, .dim = dim });
}

static nb_status weight_type(const char *name, nb_tiled *out, nb_error *err)
{
    static const struct {
        const char *name;
        nb_tiled form; /* the type, and planes of packed ones */
    } types[] = { { "f32", { NB_W_F32, NB_S_F32, false, false } },
                  { "bf16", { NB_W_BF16, NB_S_F32, false, false } },
                  { "f16", { NB_W_F16, NB_S_F32, false, false } },
                  { "fp8", { NB_W_FP8B, NB_S_F32, false, false } },
                  { "int8", { NB_W_BYTE, NB_S_BF16, false, false } }, /* a scale per row */
                  { "int4", { NB_W_INT4, NB_S_BF16, true, false } },  /* per 32 columns */
                  { "fp4", { NB_W_FP4, NB_S_E4M3, true, false } },    /* per 16 */
                  { "q4_k", { NB_W_INT4, NB_S_K32, true, true } },
                  { "q6_k", { NB_W_BYTE, NB_S_K16, true, true } } };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name)) {
            *out = types[i].form;
            return NB_OK;
        }
    return nb_fail(err, NB_ERR_ARG,
                   "%s: no type of weights on a GPU (expected f32, bf16, f16, fp8, int8, int4, fp4, "
                   "q4_k or q6_k)",
                   name);
}

/* A small finite value in each of n_bytes of a type. */
static void fill_unit(unsigned char *p, size_t n_bytes, nb_wtype t, uint64_t seed)
{
    const size_t n = n_bytes / (nb_wtype_is_packed(t) ? 2 : nb_wtype_bytes(t));
    for (size_t i = 0; i < n; i++) {
        const uint64_t z = nb_rng_u64(seed + 3, i);
        const float f = (float)((double)(z >> 11) * 0x1p-52 - 1);
        const uint16_t any = (uint16_t)(z & (nb_wtype_is_packed(t) ? 0xbfffu : 0xb3ffu));
        const uint16_t h = t == NB_W_BF16 ? nb_bf16_from_f32(f) : any;
        if (t == NB_W_F32)
            memcpy(p + 4 * i, &f, 4);
        else if (t == NB_W_FP8B)
            p[i] = (unsigned char)(z & 0xb7u); /* magnitudes under 2 */
        else
            memcpy(p + 2 * i, &h, 2);
    }
}

nb_status nb_gb_weight(nb_gb_run *r, size_t n_row, size_t n_col, nb_weight *w, size_t *n_set,
                       size_t *set_bytes, nb_error *err)
{
    enum { UNIT = 1 << 20 };
    *w = (nb_weight){ .n_row = n_row, .n_col = n_col };
    nb_tiled form;
    NB_TRY(weight_type(r->c->weight ? r->c->weight : "bf16", &form, err));
    w->type = form.type;
    const bool packed = nb_wtype_is_packed(w->type);
    const size_t codes = packed ? n_row * nb_tiled_code_bytes(&form, n_col)
                                : n_row * n_col * nb_wtype_bytes(w->type);
    const size_t scales = packed ? n_row * nb_tiled_scale_bytes(&form, n_col) : 0;
    const size_t planes = scales + (packed ? n_row * nb_tiled_zero_bytes(&form, n_col) : 0);
    const size_t n = (codes + planes + 255) / 256 * 256;
    *n_set = r->c->set_bytes ? nb_gb_sets(r, n) : 1;
    *set_bytes = n;
    unsigned char *unit = malloc(UNIT);
    if (!unit) return nb_gb_nomem(err);
    fill_unit(unit, UNIT, w->type, r->b->seed);
    w->data = nb_gb_repeat(r->b, unit, UNIT, *n_set * n);
    if (packed) {
        w->scale = nb_gb_floats(r->b, n_row);
        if (form.groups) w->group.scale = (const char *)w->data + codes;
        if (form.zeros) w->group.zero = (const uint8_t *)w->data + codes + scales;
        w->group.scale_type = form.scale_type;
    }
    if (w->type == NB_W_FP8B) { /* more than enough scales for experts' blocks, too */
        const size_t n_scale = (n_row + NB_FP8_BLOCK) * ((n_col + 127) / 128);
        w->scale = nb_gb_floats(r->b, n_scale);
    }
    free(unit);
    return r->b->nomem ? nb_gb_nomem(err) : NB_OK;
}

/* ---- one matrix ---- */

typedef struct linear_op {
    const nb_cuda_linear_row *row;
    nb_cuda_linear_args a;
    size_t set_bytes;
} linear_op;

/* The weights of another set. */
static void advance(nb_weight *w, size_t off)
{
    w->data = (const char *)w->data + off;
    if (w->group.scale) w->group.scale = (const char *)w->group.scale + off;
    if (w->group.zero) w->group.zero += off;
}

static void linear_step(nb_gb_run *r, size_t i)
{
    const linear_op *o = r->op;
    nb_cuda_linear_args a = o->a;
    advance(&a.w, i % r->n_set * o->set_bytes);
    if (a.xq.q) quantise(r->b, a.x, a.xq, a.n_tok, a.w.n_col);
    o->row->fn(r->b->g, &a);
}

static const nb_cuda_linear_row *find_linear(const nb_gbench *b, bool prompt, bool codes, nb_wtype t,
                                             size_t n_out, size_t n_col, bool two)
{
    const nb_cuda_kind kind = prompt ? NB_CUDA_PROMPT : NB_CUDA_DIRECT;
    for (const nb_cuda_linear_row *r = b->api->linear; r->name; r++)
        if (r->kind == kind && r->cc <= b->cuda.cc && r->codes == codes &&
            r->can(t, n_out, n_col, two))
            return r;
    return NULL;
}

nb_status nb_gb_linear(nb_gb_run *r, nb_error *err)
{
    nb_gbench *b = r->b;
    const nb_gbench_case *c = r->c;
    linear_op *o = calloc(1, sizeof *o);
    if (!o) return nb_gb_nomem(err);
    r->op = o;
    if (c->n_row < 1 || c->n_col < 1 || c->n_tok < 1 || c->n_batch < 1 || c->n_row > 1u << 20 ||
        c->n_col > 1u << 20 || c->n_tok > 1u << 16 || c->n_batch > 1024)
        return nb_fail(err, NB_ERR_RANGE, "a product of %zu x %zu, %zu tokens, %zu times", c->n_row,
                       c->n_col, c->n_tok, c->n_batch);
    const size_t n_batch = c->n_batch, set_rows = n_batch * c->n_row;
    if (as_codes(c) && n_batch > 1)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "the GPU has no products of heads with activations in FP8");
    NB_TRY(nb_gb_weight(r, set_rows, c->n_col, &o->a.w, &r->n_set, &o->set_bytes, err));
    o->row = find_linear(b, c->prompt, as_codes(c), o->a.w.type, c->n_row, c->n_col, true);
    if (!o->row)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "the GPU has no product of weights in %s",
                       c->weight);
    o->a.x = random_rows(b, c->n_tok, n_batch * c->n_col);
    NB_TRY(take_parts(c, &o->a.x, err));
    if (as_codes(c)) o->a.xq = new_codes(b, c->n_tok, c->n_col);
    o->a.y = nb_gb_rows(b, c->n_tok, set_rows);
    o->a.y.hi = o->a.y.lo = NULL;
    o->a.n_tok = c->n_tok;
    o->a.n_batch = n_batch;
    o->a.n_out = c->n_row;
    if (n_batch > 1) o->a.x_batch = c->n_col, o->a.y_batch = o->a.w_batch = c->n_row;
    r->variant = o->row->name;
    r->step = linear_step;
    r->bytes = (double)o->set_bytes;
    r->set_bytes = (double)r->n_set * r->bytes;
    r->ops = 2.0 * (double)(set_rows * c->n_col) * (double)c->n_tok * (o->a.x.lo ? 2 : 1);
    return b->nomem ? nb_gb_nomem(err) : NB_OK;
}

/* ---- experts ---- */

typedef struct experts_op {
    const nb_cuda_experts_row *up_row, *down_row;
    nb_cuda_experts_args up, down;
    size_t set_bytes; /* of each of the three matrices */
} experts_op;

static void experts_step(nb_gb_run *r, size_t i)
{
    const experts_op *o = r->op;
    nb_cuda_experts_args u = o->up, d = o->down;
    const size_t off = i % r->n_set * o->set_bytes;
    advance(&u.gate, off);
    advance(&u.up, off);
    advance(&d.gate, off);
    if (u.xq.q) quantise(r->b, u.x, u.xq, u.n_tok, u.gate.n_col);
    o->up_row->fn(r->b->g, &u);
    if (d.xq.q) quantise(r->b, d.x, d.xq, d.n_place, d.gate.n_col);
    o->down_row->fn(r->b->g, &d);
}

static const nb_cuda_experts_row *find_experts(const nb_gbench *b, bool prompt, bool codes, nb_wtype t,
                                               size_t n_out, size_t n_col)
{
    const nb_cuda_kind kind = prompt ? NB_CUDA_PROMPT : NB_CUDA_DIRECT;
    for (const nb_cuda_experts_row *r = b->api->experts; r->name; r++)
        if (r->kind == kind && r->cc <= b->cuda.cc && r->codes == codes && r->can(t, n_out, n_col))
            return r;
    return NULL;
}

/* Tokens choose experts at random; *n_used of them have rows. */
static bool route(const nb_gbench_case *c, uint64_t seed, uint32_t *first, uint32_t *src,
                  size_t *n_used)
{
    uint32_t *id = calloc(c->n_tok * c->top_k, sizeof *id);
    if (!id) return false;
    for (size_t t = 0; t < c->n_tok; t++) {
        const uint64_t z = nb_rng_u64(seed + 5, t);
        for (size_t k = 0; k < c->top_k; k++) { /* different ones: a step that shares no factor */
            const size_t e = (z + k * (2 * (z >> 40) + 1)) % c->n_expert;
            id[t * c->top_k + k] = (uint32_t)e;
            first[e + 1]++;
        }
    }
    *n_used = 0;
    for (size_t e = 0; e < c->n_expert; e++) *n_used += first[e + 1] > 0, first[e + 1] += first[e];
    uint32_t *at = calloc(c->n_expert, sizeof *at);
    for (size_t i = 0; at && i < c->n_tok * c->top_k; i++)
        src[first[id[i]] + at[id[i]]++] = (uint32_t)(i / c->top_k);
    const bool good = at != NULL;
    free(at);
    free(id);
    return good;
}

nb_status nb_gb_experts(nb_gb_run *r, nb_error *err)
{
    nb_gbench *b = r->b;
    const nb_gbench_case *c = r->c;
    experts_op *o = calloc(1, sizeof *o);
    if (!o) return nb_gb_nomem(err);
    r->op = o;
    if (c->n_expert < 1 || c->n_expert > 4096 || c->top_k < 1 || c->top_k > c->n_expert ||
        c->n_tok < 1 || c->n_tok > 1u << 16 || c->n_row < 1 || c->n_col < 1)
        return nb_fail(err, NB_ERR_RANGE, "%zu of %zu experts for %zu tokens", c->top_k,
                       c->n_expert, c->n_tok);
    const size_t n_place = c->n_tok * c->top_k, n_row = c->n_expert * c->n_row;
    nb_weight w[3];
    for (int i = 0; i < 3; i++)
        NB_TRY(nb_gb_weight(r, i < 2 ? n_row : c->n_expert * c->n_col, i < 2 ? c->n_col : c->n_row,
                            &w[i], &r->n_set, &o->set_bytes, err));
    o->up_row = find_experts(b, c->prompt, as_codes(c), w[0].type, c->n_row, c->n_col);
    o->down_row = find_experts(b, c->prompt, as_codes(c), w[0].type, c->n_col, c->n_row);
    if (!o->up_row || !o->down_row)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "the GPU has no experts with weights in %s",
                       c->weight);
    uint32_t *first = calloc(c->n_expert + 1, sizeof *first), *src = calloc(n_place, sizeof *src);
    size_t n_used = 0;
    const bool good = first && src && route(c, b->seed, first, src, &n_used);
    const uint32_t *d_first = nb_gb_upload(b, first, good ? (c->n_expert + 1) * sizeof *first : 0);
    const uint32_t *d_src = nb_gb_upload(b, src, good ? n_place * sizeof *src : 0);
    free(first);
    free(src);
    if (!good) return nb_gb_nomem(err);
    nb_cuda_rows x = random_rows(b, c->n_tok, c->n_col), act = nb_gb_rows(b, n_place, c->n_row);
    NB_TRY(take_parts(c, &x, err));
    if (!x.lo) act.lo = NULL;
    o->up = (nb_cuda_experts_args){ .gate = w[0],
                                    .up = w[1],
                                    .x = x,
                                    .y = act,
                                    .first = d_first,
                                    .src = d_src,
                                    .n_expert = c->n_expert,
                                    .n_out = c->n_row,
                                    .n_tok = c->n_tok,
                                    .n_place = n_place };
    o->down = o->up;
    o->down.gate = w[2];
    o->down.up = (nb_weight){ 0 };
    o->down.x = act;
    o->down.src = NULL;
    o->down.n_out = c->n_col;
    o->down.y = nb_gb_rows(b, n_place, c->n_col);
    o->down.y.hi = o->down.y.lo = NULL;
    if (as_codes(c)) {
        o->up.xq = new_codes(b, c->n_tok, c->n_col);
        o->down.xq = new_codes(b, n_place, c->n_row);
    }
    r->variant = o->up_row->name;
    r->step = experts_step;
    const double share = (double)n_used / (double)c->n_expert;
    r->bytes = 3 * (double)o->set_bytes * share;
    r->set_bytes = 3 * (double)r->n_set * (double)o->set_bytes;
    r->ops = 2.0 * 3 * (double)(c->n_row * c->n_col) * (double)n_place * (x.lo ? 2 : 1);
    return b->nomem ? nb_gb_nomem(err) : NB_OK;
}
