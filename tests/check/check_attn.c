/* check_attn.c - attention: all forms, tails of every dimension, one to many tiles,
 * causal limits, states joined, and independence of a (query, head) from the rest. */
#include "check/check.h"
#include "kernel/attn/attn.h"

CHK_ROWS(rows, nb_attn_variant, nb_attn_variants, "")

typedef struct shape {
    size_t n_q, n_head, group, n_kv, d1, d2, d_v;
    size_t vis0, vis_step; /* vis0 at least n_kv: all visible */
} shape;

static const shape shapes[] = {
    { 1, 1, 1, 1, 1, 0, 1, 1, 0 }, /* the smallest                     */
    { 1, 1, 1, 5, 7, 3, 9, 5, 0 },          { 1, 2, 2, 63, 8, 8, 8, 63, 0 },
    { 1, 3, 1, 64, 9, 0, 17, 64, 0 },       { 2, 5, 5, 65, 17, 1, 15, 64, 1 },
    { 1, 16, 16, 64, 512, 64, 512, 64, 0 }, /* absorbed                         */
    { 1, 8, 8, 130, 256, 32, 256, 130, 0 }, { 3, 20, 20, 77, 40, 8, 40, 75, 1 },
    { 64, 2, 1, 64, 32, 16, 32, 1, 1 }, /* expanded, causal                 */
    { 21, 3, 1, 150, 24, 8, 20, 130, 1 },   { 5, 4, 1, 70, 13, 5, 11, 0, 17 },
    { 4, 8, 4, 33, 128, 0, 128, 30, 1 }, /* GQA                              */
    { 7, 6, 2, 129, 16, 0, 100, 3, 20 },    { 2, 2, 1, 4, 64, 64, 64, 0, 1 },
    { 1, 17, 17, 40, 31, 0, 73, 40, 0 },
};

/* Runs fn over all tiles of queries [q0, q1) and heads [h0, h1). */
static void run_tiles(chk *t, nb_attn_fn *fn, const nb_attn_args *a, size_t q0, size_t q1,
                      size_t h0, size_t h1, size_t kv0, size_t kv1)
{
    for (size_t at = kv0; at < kv1; at += NB_ATTN_TILE) {
        nb_attn_args v = *a;
        size_t i = q0; /* the first query that sees this tile */
        while (i < q1 && a->vis0 + i * a->vis_step <= at) i++;
        if (i == q1) continue;
        v.n_q = q1 - i;
        v.head_begin = h0;
        v.head_end = h1;
        v.n_kv = kv1 - at < NB_ATTN_TILE ? kv1 - at : NB_ATTN_TILE;
        v.vis0 = a->vis0 + i * a->vis_step - at;
        v.q = a->q + i * a->q_q_stride;
        v.o = a->o + i * a->o_q_stride;
        v.m = a->m + i * a->ml_q_stride;
        v.l = a->l + i * a->ml_q_stride;
        v.k1 = a->k1 + at * a->k1_stride;
        v.k2 = a->d2 ? a->k2 + at * a->k2_stride : NULL;
        v.v = a->v + at * a->v_stride;
        chk_call(t, fn(&v));
    }
}

static void new_state(chk *t, nb_attn_args *a, size_t n_head)
{
    a->o = chk_out_rows(t, a->n_q, n_head * a->d_v, a->o_q_stride);
    a->m = chk_out_rows(t, a->n_q, n_head, a->ml_q_stride);
    a->l = chk_out_rows(t, a->n_q, n_head, a->ml_q_stride);
    for (size_t i = 0; i < a->n_q; i++) {
        for (size_t h = 0; h < n_head; h++) {
            a->m[i * a->ml_q_stride + h] = -INFINITY;
            a->l[i * a->ml_q_stride + h] = 0;
        }
    }
}

static nb_attn_args make_args(chk *t, const shape *s, chk_pattern pq, chk_pattern pv)
{
    nb_attn_args a = { .n_q = s->n_q, .head_end = s->n_head, .group = s->group, .n_kv = s->n_kv };
    const size_t n_g = (s->n_head + s->group - 1) / s->group, q_row = s->n_head * (s->d1 + s->d2);
    a.d1 = s->d1;
    a.d2 = s->d2;
    a.d_v = s->d_v;
    a.vis0 = s->vis0;
    a.vis_step = s->vis_step;
    a.scale = 1 / sqrtf((float)(s->d1 + s->d2));
    a.q_q_stride = q_row + chk_between(t, 0, 5);
    a.o_q_stride = s->n_head * s->d_v + chk_between(t, 0, 5);
    a.ml_q_stride = s->n_head + chk_between(t, 0, 3);
    a.k1_head = s->d1;
    a.v_head = s->d_v;
    a.k1_stride = n_g * s->d1 + chk_between(t, 0, 9);
    a.v_stride = n_g * s->d_v + chk_between(t, 0, 9);
    a.k2_stride = s->d2 + chk_between(t, 0, 9);
    a.q = chk_in_rows(t, s->n_q, q_row, a.q_q_stride, pq);
    a.k1 = chk_in_rows(t, s->n_kv, n_g * s->d1, a.k1_stride, pq == CHK_LARGE ? CHK_NORMAL : pq);
    if (s->d2) a.k2 = chk_in_rows(t, s->n_kv, s->d2, a.k2_stride, CHK_NORMAL);
    a.v = chk_in_rows(t, s->n_kv, n_g * s->d_v, a.v_stride, pv);
    return a;
}

static void compare(chk *t, const nb_attn_args *a, const double *want, const double *score_abs,
                    const double *v_max, double extra_tiles)
{
    const size_t n_head = a->head_end - a->head_begin;
    double *bound = chk_f64(t, a->d_v);
    float *y = chk_raw(t, n_head * a->d_v * sizeof *y);
    const double n_tile = (double)((a->n_kv + NB_ATTN_TILE - 1) / NB_ATTN_TILE) + extra_tiles;
    for (size_t i = 0; i < a->n_q; i++) {
        const float *o = a->o + i * a->o_q_stride, *l = a->l + i * a->ml_q_stride;
        nb_attn_finish(y, o, l, n_head, a->d_v);
        for (size_t h = 0; h < n_head; h++) {
            const size_t at = i * n_head + h;
            const double k = 96 + 14 * n_tile + ((double)(a->d1 + a->d2) / 4 + 20) * score_abs[at];
            for (size_t j = 0; j < a->d_v; j++) bound[j] = k * 0x1p-24 * v_max[at] + 0x1p-126;
            chk_close(t, y + h * a->d_v, 1, a->d_v, a->d_v, want + at * a->d_v, bound);
        }
    }
}

static void check_alone(chk *t, nb_attn_fn *fn, const nb_attn_args *a)
{
    const size_t n_head = a->head_end, cut_q = chk_between(t, 0, a->n_q);
    const size_t cut_h = chk_between(t, 0, n_head);
    nb_attn_args one = *a; /* every (query, head) alone, up to 200 of them */
    new_state(t, &one, n_head);
    const size_t step = a->n_q * n_head / 200 + 1;
    for (size_t k = 0; k < a->n_q * n_head; k += step) {
        const size_t i = k / n_head, h = k % n_head;
        run_tiles(t, fn, &one, i, i + 1, h, h + 1, 0, a->n_kv);
        if (one.l[i * a->ml_q_stride + h] == 0) continue; /* sees nothing */
        chk_same(t, "for a query and head alone", a->o + i * a->o_q_stride + h * a->d_v, a->d_v,
                 one.o + i * a->o_q_stride + h * a->d_v, a->d_v, 1, a->d_v);
        chk_same(t, "in l", a->l + i * a->ml_q_stride + h, 1, one.l + i * a->ml_q_stride + h, 1, 1,
                 1);
        chk_same(t, "in m", a->m + i * a->ml_q_stride + h, 1, one.m + i * a->ml_q_stride + h, 1, 1,
                 1);
    }
    nb_attn_args cut = *a; /* four rectangles */
    new_state(t, &cut, n_head);
    for (int k = 0; k < 4; k++)
        run_tiles(t, fn, &cut, k & 1 ? cut_q : 0, k & 1 ? a->n_q : cut_q, k & 2 ? cut_h : 0,
                  k & 2 ? n_head : cut_h, 0, a->n_kv);
    chk_same(t, "for another split", a->o, a->o_q_stride, cut.o, a->o_q_stride, a->n_q,
             n_head * a->d_v);
    chk_same(t, "for another split, in l", a->l, a->ml_q_stride, cut.l, a->ml_q_stride, a->n_q,
             n_head);
}

/* Two ranges of tiles apart, joined by nb_attn_merge. */
static void check_merge(chk *t, nb_attn_fn *fn, const nb_attn_args *a, const double *want,
                        const double *score_abs, const double *v_max)
{
    const size_t n_head = a->head_end;
    nb_attn_args lo = *a, hi = *a;
    new_state(t, &lo, n_head);
    new_state(t, &hi, n_head);
    run_tiles(t, fn, &lo, 0, a->n_q, 0, n_head, 0, NB_ATTN_TILE);
    run_tiles(t, fn, &hi, 0, a->n_q, 0, n_head, NB_ATTN_TILE, a->n_kv);
    for (size_t i = 0; i < a->n_q; i++)
        nb_attn_merge(lo.o + i * a->o_q_stride, lo.m + i * a->ml_q_stride,
                      lo.l + i * a->ml_q_stride, hi.o + i * a->o_q_stride,
                      hi.m + i * a->ml_q_stride, hi.l + i * a->ml_q_stride, n_head, a->d_v);
    compare(t, &lo, want, score_abs, v_max, 1);
}

typedef enum special { PLAIN, EQUAL, DOMINANT, NAN_BEYOND } special;

static void one_case(chk *t, nb_attn_fn *fn, const shape *s, chk_pattern pq, chk_pattern pv,
                     special what)
{
    nb_attn_args a = make_args(t, s, what == EQUAL ? CHK_ZERO : pq, pv);
    const size_t n = s->n_q * s->n_head;
    if (what == DOMINANT) a.scale *= 1000;
    if (what == NAN_BEYOND) /* seen by the last queries only, or by none */
        for (size_t j = 0; j < s->d_v; j++)
            ((float *)(uintptr_t)a.v)[(s->n_kv - 1) * a.v_stride + j] = NAN;
    double *want = chk_f64(t, n * s->d_v), *score_abs = chk_f64(t, n), *v_max = chk_f64(t, n);
    nb_attn_ref(&a, want, score_abs, v_max);
    new_state(t, &a, s->n_head);
    run_tiles(t, fn, &a, 0, s->n_q, 0, s->n_head, 0, s->n_kv);
    compare(t, &a, want, score_abs, v_max, 0);
    if (what == NAN_BEYOND) return;
    check_alone(t, fn, &a);
    if (s->n_kv > NB_ATTN_TILE) check_merge(t, fn, &a, want, score_abs, v_max);
}

static void test(chk *t, const chk_row *row)
{
    nb_attn_fn *fn = ((const nb_attn_variant *)row->row)->fn;
    for (size_t i = 0; i < NB_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        const bool big = s->n_q * s->n_head * s->n_kv * (s->d1 + s->d_v) > 500000;
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if ((!big || p % 4 == 0) &&
                chk_case(t, "shape %zu: %zu q %zu heads %zu kv %zu+%zu/%zu %s", i, s->n_q,
                         s->n_head, s->n_kv, s->d1, s->d2, s->d_v, chk_pattern_name(p)))
                one_case(t, fn, s, p, p, PLAIN);
        if (chk_case(t, "shape %zu equal scores", i))
            one_case(t, fn, s, CHK_NORMAL, CHK_OUTLIER, EQUAL);
        if (chk_case(t, "shape %zu one dominant", i))
            one_case(t, fn, s, CHK_NORMAL, CHK_NORMAL, DOMINANT);
        if (s->vis_step && chk_case(t, "shape %zu NaN in a value few may see", i))
            one_case(t, fn, s, CHK_NORMAL, CHK_NORMAL, NAN_BEYOND);
    }
}

typedef struct job {
    nb_attn_fn *fn;
    nb_attn_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->fn(&j->a);
}

static void bench(chk *t, const chk_row *row)
{
    static const struct {
        const char *label;
        shape s;
    } list[] = {
        { "absorbed, 8 heads 512+64", { 1, 8, 8, 64, 512, 64, 512, 64, 0 } },
        { "absorbed, 16 heads 512+64", { 1, 16, 16, 64, 512, 64, 512, 64, 0 } },
        { "absorbed, 128 heads 512+64", { 1, 128, 128, 64, 512, 64, 512, 64, 0 } },
        { "expanded 64 q, 128+64/128", { 64, 4, 1, 64, 128, 64, 128, 64, 0 } },
        { "expanded 64 q causal", { 64, 4, 1, 64, 128, 64, 128, 1, 1 } },
        { "expanded 64 q, 64+64/64", { 64, 4, 1, 64, 64, 64, 64, 64, 0 } },
        { "GQA decode 8x4 heads 128", { 1, 32, 4, 64, 128, 0, 128, 64, 0 } },
        { "MHA decode 16 heads 128", { 1, 16, 1, 64, 128, 0, 128, 64, 0 } },
    };
    for (size_t i = 0; i < NB_COUNT(list); i++) {
        const shape *s = &list[i].s;
        const size_t n_g = s->n_head / s->group;
        double seen = 0;
        chk_case(t, "bench %zu", i);
        t->front = true; /* page-aligned, as caches would be */
        job j = { ((const nb_attn_variant *)row->row)->fn,
                  make_args(t, s, CHK_NORMAL, CHK_NORMAL) };
        j.a.k1_stride = n_g * s->d1; /* as the decoder writes it */
        j.a.v_stride = n_g * s->d_v;
        new_state(t, &j.a, s->n_head);
        for (size_t q = 0; q < s->n_q; q++) {
            const size_t vis = s->vis0 + q * s->vis_step;
            seen += (double)(vis < s->n_kv ? vis : s->n_kv);
        }
        const double flops = 2.0 * seen * (double)(s->n_head * (s->d1 + s->d2 + s->d_v));
        const double bytes = 4.0 * (double)(s->n_kv * (n_g * (s->d1 + s->d_v) + s->d2));
        chk_time(t, list[i].label, bytes, flops, call, &j);
    }
}

/* Planted bugs. */
static void no_mask(const nb_attn_args *a)
{
    nb_attn_args b = *a;
    b.vis0 = b.n_kv;
    nb_attn_c(&b);
}
static void no_rescale(const nb_attn_args *a)
{
    for (size_t i = 0; i < a->n_q; i++) /* old states as if their maximum were the new one */
        for (size_t h = a->head_begin; h < a->head_end; h++)
            if (a->m[i * a->ml_q_stride + h] != -INFINITY) a->m[i * a->ml_q_stride + h] += 1;
    nb_attn_c(a);
}
static void no_rope_part(const nb_attn_args *a)
{
    nb_attn_args b = *a;
    float *zero = (float[64 * 64]){ 0 };
    b.k2 = a->d2 ? zero : NULL;
    b.k2_stride = 64;
    nb_attn_c(&b);
}
static void reads_old_o(const nb_attn_args *a)
{
    nb_attn_c(a);
    if (a->n_q && a->d_v > 8) a->o[a->head_begin * a->d_v] = NAN;
}
static void wrong_kv_head(const nb_attn_args *a)
{
    nb_attn_args b = *a;
    b.group = a->head_end; /* all heads read the first KV head */
    nb_attn_c(&b);
}
static void split_dependent(const nb_attn_args *a)
{
    nb_attn_c(a);
    if (a->n_q == 1 && a->head_end - a->head_begin == 1)
        a->l[a->head_begin] = nextafterf(a->l[a->head_begin], 0);
}
static void weight_zero_not_skipped(const nb_attn_args *a)
{
    nb_attn_c(a); /* adds 0 * v of the tokens that a query may not see */
    for (size_t i = 0; i < a->n_q; i++)
        for (size_t h = a->head_begin; h < a->head_end; h++)
            for (size_t t = 0; t < a->n_kv; t++)
                a->o[i * a->o_q_stride + h * a->d_v] +=
                    0 * a->v[t * a->v_stride + h / a->group * a->v_head];
}

#define BUG(what, expect, fn)                                                                      \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_attn_variant)                               \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn                                                     \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("mask ignored", "", no_mask),
    BUG("old state not rescaled", "expected", no_rescale),
    BUG("rope part dropped", "expected", no_rope_part),
    BUG("uninitialised o read", "expected", reads_old_o),
    BUG("wrong KV head", "expected", wrong_kv_head),
    BUG("result depends on the split", "other bits", split_dependent),
    BUG("unseen tokens enter with weight 0", "nan", weight_zero_not_skipped),
    { 0 },
};

const chk_op chk_attn = { "attn", rows, test, bench, broken };
