/* check_route.c - route: ids and weights, groups, ties, hostile logits. */
#include <stdlib.h>

#include "check/check.h"
#include "kernel/route/route.h"

CHK_ROWS(rows, nb_route_variant, nb_route_variants, "")

typedef struct shape {
    size_t n_expert, top_k, n_group, topk_group;
    int group_top;
    int score; /* 0: softmax, 1: sigmoid, 2: sqrt(softplus) */
    bool normalise, bias;
} shape;

static const shape shapes[] = {
    { 1, 1, 1, 1, 1, false, false, false },   { 8, 2, 1, 1, 1, false, true, false },
    { 16, 16, 1, 1, 1, true, true, false },   { 60, 4, 1, 1, 1, false, false, false },
    { 64, 6, 1, 1, 1, false, false, false },  { 64, 6, 1, 1, 1, true, true, true },
    { 160, 6, 8, 3, 1, false, false, false }, { 256, 8, 8, 4, 2, true, true, true },
    { 384, 8, 1, 1, 2, true, true, true },    { 12, 3, 4, 2, 2, true, false, true },
    { 9, 2, 9, 3, 2, true, true, false },     { 513, 64, 27, 20, 1, false, true, true },
    { 256, 6, 1, 1, 1, 2, true, true },       { 8, 2, 1, 1, 1, 2, false, false },
};

/* One token's ids against the reference's. */
static bool ids_right(chk *t, const shape *s, const uint32_t *got, const uint32_t *want,
                      const double *choice, size_t tok)
{
    for (size_t k = 0; k < s->top_k; k++) {
        if (got[k] >= s->n_expert) {
            chk_fail(t, "token %zu: id %u of %zu experts", tok, got[k], s->n_expert);
            return false;
        }
        for (size_t j = 0; j < k; j++)
            if (got[j] == got[k]) chk_fail(t, "token %zu: id %u twice", tok, got[k]);
        if (got[k] == want[k]) continue;
        const double d = choice[want[k]] - choice[got[k]];
        if (d == 0 || !(fabs(d) < 4 * 0x1p-24))
            chk_fail(t, "token %zu place %zu: id %u, expected %u (choices differ by %.3g)", tok, k,
                     got[k], want[k], d);
        return false; /* a near tie: other weights */
    }
    return true;
}

static void compare(chk *t, const nb_route_args *a, const shape *s, const uint32_t *id,
                    const double *weight, const double *choice)
{
    double bound[NB_ROUTE_MAX_TOPK];
    for (size_t k = 0; k < a->n_tok; k++) {
        const size_t at = k * s->top_k;
        if (!ids_right(t, s, a->id + at, id + at, choice + k * s->n_expert, k)) continue;
        for (size_t j = 0; j < s->top_k; j++)
            bound[j] = 16 * 0x1p-24 * fabs(weight[at + j]) + 0x1p-149;
        chk_close(t, a->weight + at, 1, s->top_k, s->top_k, weight + at, bound);
    }
}

static nb_route_args make_args(chk *t, const shape *s, size_t n_tok, chk_pattern p)
{
    nb_route_args a = { .n_tok = n_tok, .n_expert = s->n_expert, .top_k = s->top_k };
    a.n_group = s->n_group;
    a.topk_group = s->topk_group;
    a.group_top = s->group_top;
    a.sigmoid = s->score == 1;
    a.sqrt_softplus = s->score == 2;
    a.normalise = s->normalise;
    a.factor = chk_u64(t) % 2 ? 1.0f : 2.5f;
    float *x = chk_in_rows(t, n_tok, s->n_expert, s->n_expert, p);
    a.logits = x;
    for (size_t i = 0; p == CHK_NORMAL && i < n_tok * s->n_expert; i++) x[i] *= 8;
    if (s->bias) a.bias = chk_in_rows(t, 1, s->n_expert, s->n_expert, CHK_TIES);
    a.id = chk_out(t, n_tok * s->top_k * sizeof *a.id);
    a.weight = chk_out_rows(t, n_tok, s->top_k, s->top_k);
    return a;
}

static void one_case(chk *t, nb_route_fn *fn, const shape *s, size_t n_tok, chk_pattern p)
{
    const nb_route_args a = make_args(t, s, n_tok, p);
    uint32_t *id = chk_raw(t, n_tok * s->top_k * sizeof *id);
    double *weight = chk_f64(t, n_tok * s->top_k), *choice = chk_f64(t, n_tok * s->n_expert);
    nb_route_ref(&a, id, weight, choice);
    chk_call(t, fn(&a));
    compare(t, &a, s, id, weight, choice);
    for (size_t k = 0; k < n_tok; k++) {
        nb_route_args one = a;
        one.n_tok = 1;
        one.logits = a.logits + k * s->n_expert;
        one.id = chk_out(t, s->top_k * sizeof *one.id);
        one.weight = chk_out_rows(t, 1, s->top_k, s->top_k);
        chk_call(t, fn(&one));
        chk_same_bytes(t, "ids of a token alone", one.id, a.id + k * s->top_k,
                       s->top_k * sizeof *one.id);
        chk_same(t, "for a token alone", one.weight, s->top_k, a.weight + k * s->top_k, s->top_k, 1,
                 s->top_k);
    }
}

/* Ids that are given: they stay, and their weights are the reference's. */
static void given_case(chk *t, nb_route_fn *fn, const shape *s, size_t n_tok, chk_pattern p)
{
    nb_route_args a = make_args(t, s, n_tok, p);
    uint32_t *id = chk_raw(t, n_tok * s->top_k * sizeof *id);
    double *weight = chk_f64(t, n_tok * s->top_k), *choice = chk_f64(t, n_tok * s->n_expert);
    a.given = true;
    for (size_t k = 0; k < n_tok; k++) {
        const size_t first = chk_u64(t) % s->n_expert;
        for (size_t j = 0; j < s->top_k; j++)
            id[k * s->top_k + j] = a.id[k * s->top_k + j] = (uint32_t)((first + 3 * j) % s->n_expert);
    }
    nb_route_ref(&a, id, weight, choice);
    chk_call(t, fn(&a));
    chk_same_bytes(t, "given ids", a.id, id, n_tok * s->top_k * sizeof *id);
    compare(t, &a, s, id, weight, choice);
}

/* NaN and infinities: whatever the weights, ids are valid and distinct. */
static void hostile_case(chk *t, nb_route_fn *fn, const shape *s)
{
    const nb_route_args a = make_args(t, s, 4, CHK_NORMAL);
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    float *x = (float *)(uintptr_t)a.logits;
    for (size_t i = 0; i < 4 * s->n_expert; i++)
        if (i < s->n_expert || chk_u64(t) % 3 == 0) x[i] = bad[chk_u64(t) % 3];
    for (size_t i = 0; i < s->n_expert; i++) x[s->n_expert + i] = NAN;
    chk_call(t, fn(&a));
    for (size_t i = 0; i < 4 * s->top_k; i++) {
        if (a.id[i] >= s->n_expert) chk_fail(t, "id %u of %zu experts", a.id[i], s->n_expert);
        for (size_t j = i / s->top_k * s->top_k; j < i; j++)
            if (a.id[i] == a.id[j]) chk_fail(t, "id %u twice", a.id[i]);
    }
}

static void test(chk *t, const chk_row *row)
{
    nb_route_fn *fn = ((const nb_route_variant *)row->row)->fn;
    for (size_t i = 0; i < NB_COUNT(shapes); i++) {
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if (chk_case(t, "shape %zu (%zu experts, %zu groups) %s", i, shapes[i].n_expert,
                         shapes[i].n_group, chk_pattern_name(p)))
                one_case(t, fn, &shapes[i], chk_between(t, 1, 5), p);
        if (shapes[i].score == 2 && chk_case(t, "shape %zu given", i))
            given_case(t, fn, &shapes[i], chk_between(t, 1, 5), CHK_NORMAL);
        if (chk_case(t, "shape %zu hostile", i)) hostile_case(t, fn, &shapes[i]);
    }
    if (chk_case(t, "no tokens")) one_case(t, fn, &shapes[4], 0, CHK_NORMAL);
}

typedef struct job {
    nb_route_fn *fn;
    nb_route_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->fn(&j->a);
}

static void bench(chk *t, const chk_row *row)
{
    static const size_t which[] = { 4, 7 };
    for (size_t i = 0; i < NB_COUNT(which); i++) {
        const shape *s = &shapes[which[i]];
        char label[64];
        chk_case(t, "bench");
        job j = { ((const nb_route_variant *)row->row)->fn, make_args(t, s, 1, CHK_NORMAL) };
        snprintf(label, sizeof label, "%zu of %zu experts, 1 tok", s->top_k, s->n_expert);
        chk_time(t, label, 4.0 * (double)s->n_expert, 0, call, &j);
    }
}

/* Planted bugs. */
static void tie_to_higher(const nb_route_args *a)
{
    const size_t n = a->n_expert;
    nb_route_args b = *a;
    float *x = malloc(2 * n * sizeof *x); /* experts in reverse order */
    if (!x) return;
    for (size_t k = 0; k < a->n_tok; k++) {
        for (size_t e = 0; e < n; e++) {
            x[e] = a->logits[k * n + n - 1 - e];
            x[n + e] = a->bias ? a->bias[n - 1 - e] : 0;
        }
        b.n_tok = 1;
        b.logits = x;
        b.bias = x + n;
        b.id = a->id + k * a->top_k;
        b.weight = a->weight + k * a->top_k;
        nb_route_c(&b);
        for (size_t i = 0; i < a->top_k; i++) b.id[i] = (uint32_t)(n - 1 - b.id[i]);
    }
    free(x);
}
static void no_groups(const nb_route_args *a)
{
    nb_route_args b = *a;
    b.n_group = b.topk_group = 1;
    nb_route_c(&b);
}
static void bias_forgotten(const nb_route_args *a)
{
    nb_route_args b = *a;
    b.bias = NULL;
    nb_route_c(&b);
}
static void not_normalised(const nb_route_args *a)
{
    nb_route_args b = *a;
    b.normalise = false;
    nb_route_c(&b);
}

#define BUG(what, fn)                                                                              \
    {                                                                                              \
        what, "expected",                                                                          \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_route_variant)                              \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn                                                     \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("tie to the higher index", tie_to_higher),
    BUG("groups ignored", no_groups),
    BUG("bias ignored", bias_forgotten),
    BUG("weights not normalised", not_normalised),
    { 0 },
};

const chk_op chk_route = { "route", rows, test, bench, broken };
