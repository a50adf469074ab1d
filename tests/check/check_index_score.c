/* check_index_score.c - scores of an indexer: tails of heads, dimensions and tokens, negative weights, several queries. */
#include "check/check.h"
#include "kernel/index_score/index_score.h"
#include "num/bf16.h"

CHK_ROWS(rows, nb_index_score_variant, nb_index_score_variants, "")

typedef struct shape {
    size_t n_query, n_head, dim, n_tok;
} shape;

static const shape shapes[] = {
    { 1, 1, 1, 1 },     { 1, 2, 3, 5 },    { 2, 15, 16, 16 },  { 1, 16, 31, 17 },
    { 3, 17, 32, 63 },  { 1, 32, 33, 64 }, { 2, 33, 64, 9 },   { 1, 64, 128, 64 },
    { 4, 32, 128, 1 },  { 1, 12, 32, 33 }, { 1, 31, 128, 40 }, { 2, 8, 65, 2 },
    { 1, 100, 20, 7 },  { 0, 4, 8, 8 },    { 2, 4, 8, 0 },     { 3, 64, 128, 64 },
    { 1, 65, 129, 64 },
};

typedef struct problem {
    nb_index_score_args a;
    float *q, *w;
} problem;

static void to_bf16(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = nb_bf16_to_f32(nb_bf16_from_f32(x[i]));
}

static problem make(chk *t, const nb_index_score_variant *v, const shape *s, chk_pattern p)
{
    problem x = {
        .a = { .n_query = s->n_query, .n_head = s->n_head, .dim = s->dim, .n_tok = s->n_tok }
    };
    const size_t n_q = s->n_query * s->n_head * s->dim, n_w = s->n_query * s->n_head;
    x.a.s_stride = s->n_tok + chk_between(t, 0, 5);
    x.a.k_stride = s->dim + chk_between(t, 0, 9);
    x.q = chk_raw(t, n_q * sizeof(float));
    x.w = chk_raw(t, n_w * sizeof(float));
    chk_fill(t, x.q, n_q, p);
    chk_fill(t, x.w, n_w, CHK_NORMAL);
    float *k = chk_raw(t, chk_rows_bytes(s->n_tok, s->dim, x.a.k_stride, sizeof *k));
    for (size_t i = 0; i < s->n_tok; i++) {
        chk_fill(t, k + i * x.a.k_stride, s->dim, p == CHK_LARGE ? CHK_NORMAL : p);
        if (v->q_eps != 0) to_bf16(k + i * x.a.k_stride, s->dim);
    }
    x.a.k = chk_copy(t, k, chk_rows_bytes(s->n_tok, s->dim, x.a.k_stride, sizeof *k), true);
    const size_t bytes = v->q_bytes(s->n_head, s->dim);
    char *packed = chk_raw(t, s->n_query * bytes + 64);
    packed += (64 - (size_t)(uintptr_t)packed % 64) % 64;
    for (size_t i = 0; i < s->n_query; i++)
        v->pack(s->n_head, s->dim, x.q + i * s->n_head * s->dim, x.w + i * s->n_head,
                packed + i * bytes);
    x.a.q = packed;
    char *scratch = chk_raw(t, v->scratch(s->n_head, s->dim) + 64);
    x.a.scratch = scratch + (64 - (size_t)(uintptr_t)scratch % 64) % 64;
    x.a.s = chk_out_rows(t, s->n_query, s->n_tok, x.a.s_stride);
    return x;
}

/* Single queries, single tokens. */
static void check_cut(chk *t, const nb_index_score_variant *v, const problem *x)
{
    nb_index_score_args one = x->a;
    float *s = chk_out_rows(t, x->a.n_query, x->a.n_tok, x->a.s_stride);
    for (size_t i = 0; i < x->a.n_query; i++)
        for (size_t k = 0; k < x->a.n_tok; k += 1 + k % 3) {
            one.q = (const char *)x->a.q + i * v->q_bytes(x->a.n_head, x->a.dim);
            one.k = x->a.k + k * x->a.k_stride;
            one.s = s + i * x->a.s_stride + k;
            one.n_query = 1;
            one.n_tok = x->a.n_tok - k < 1 + k % 3 ? x->a.n_tok - k : 1 + k % 3;
            chk_call(t, v->fn(&one));
        }
    chk_same(t, "for another cut", x->a.s, x->a.s_stride, s, x->a.s_stride, x->a.n_query,
             x->a.n_tok);
}

static double largest(const float *x, size_t n_row, size_t n, size_t stride)
{
    double m = 0;
    for (size_t r = 0; r < n_row; r++)
        for (size_t i = 0; i < n; i++) m = fmax(m, fabs((double)x[r * stride + i]));
    return m;
}

static void one_case(chk *t, const nb_index_score_variant *v, const shape *s, chk_pattern p)
{
    const problem x = make(t, v, s, p);
    const size_t n = s->n_query * s->n_tok;
    double *want = chk_f64(t, n), *bound = chk_f64(t, n);
    nb_index_score_ref(&x.a, x.q, x.w, want, bound);
    /* what is below the smallest normal number may count as nothing, in a factor or in a product */
    const double floor = (double)(s->n_head * s->dim + 1) * 0x1p-125 *
                         (1 + largest(x.w, s->n_query, s->n_head, s->n_head)) *
                         (1 + largest(x.a.k, s->n_tok, s->dim, x.a.k_stride) +
                          largest(x.q, s->n_query, s->n_head * s->dim, s->n_head * s->dim));
    for (size_t i = 0; i < n; i++)
        bound[i] =
            bound[i] * (0x1p-24 * (double)(s->dim + s->n_head + 8) + (double)v->q_eps) + floor;
    chk_call(t, v->fn(&x.a));
    if (n) chk_close(t, x.a.s, s->n_query, s->n_tok, x.a.s_stride, want, bound);
    check_cut(t, v, &x);
}

static void test(chk *t, const chk_row *row)
{
    for (size_t i = 0; i < NB_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if ((s->n_head * s->dim < 4000 || p % 4 == 0) &&
                chk_case(t, "shape %zu: %zu queries %zu heads of %zu, %zu tokens %s", i, s->n_query,
                         s->n_head, s->dim, s->n_tok, chk_pattern_name(p)))
                one_case(t, row->row, s, p);
    }
}

typedef struct job {
    nb_index_score_fn *fn;
    nb_index_score_args a;
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
    } list[] = { { "64 heads of 128", { 1, 64, 128, 64 } },
                 { "32 heads of 128", { 1, 32, 128, 64 } },
                 { "16 queries", { 16, 64, 128, 64 } } };
    for (size_t i = 0; i < NB_COUNT(list); i++) {
        const shape *s = &list[i].s;
        chk_case(t, "bench %zu", i);
        t->front = true;
        job j = { ((const nb_index_score_variant *)row->row)->fn,
                  make(t, row->row, s, CHK_NORMAL).a };
        chk_time(t, list[i].label, 4.0 * (double)(s->n_tok * s->dim),
                 2.0 * (double)(s->n_query * s->n_tok * s->n_head * s->dim), call, &j);
    }
}

/* Planted bugs. */
static void changed(const nb_index_score_args *a, bool negative, bool weights, bool more)
{
    const size_t bytes = nb_index_bytes_f32(a->n_head, a->dim),
                 n_block = nb_index_n_block(a->n_head);
    nb_index_score_c(a);
    for (size_t i = 0; i < a->n_query; i++) {
        const float *w = (const float *)(const void *)((const char *)a->q + i * bytes);
        const float *q = w + n_block * NB_INDEX_BLOCK;
        for (size_t t = 0; t < a->n_tok && (negative || weights); t++) {
            float sum = 0;
            for (size_t h = 0; h < a->n_head; h++) {
                float dot = 0;
                for (size_t d = 0; d < a->dim; d++)
                    dot +=
                        q[(h / NB_INDEX_BLOCK * a->dim + d) * NB_INDEX_BLOCK + h % NB_INDEX_BLOCK] *
                        a->k[t * a->k_stride + d];
                sum += (weights ? 1 : w[h]) * (dot > 0 || negative ? dot : 0);
            }
            a->s[i * a->s_stride + t] = sum;
        }
        if (more && a->s_stride > a->n_tok) a->s[i * a->s_stride + a->n_tok] = 0;
    }
}
static void no_relu(const nb_index_score_args *a)
{
    changed(a, true, false, false);
}
static void no_weights(const nb_index_score_args *a)
{
    changed(a, false, true, false);
}
static void a_token_more(const nb_index_score_args *a)
{
    changed(a, false, false, true);
}
static void last_head_lost(const nb_index_score_args *a)
{
    nb_index_score_args b = *a;
    if (a->n_head == 0 || a->n_head % NB_INDEX_BLOCK != 1) {
        nb_index_score_c(a);
        return;
    }
    float *w = (float *)(uintptr_t)a->q, keep = 0;
    if (a->n_query == 1) keep = w[a->n_head - 1], w[a->n_head - 1] = 0;
    nb_index_score_c(&b);
    if (a->n_query == 1) w[a->n_head - 1] = keep;
}
static void cut_dependent(const nb_index_score_args *a)
{
    nb_index_score_c(a);
    if (a->n_tok == 1 && a->n_query) a->s[0] = nextafterf(a->s[0], 1e9f);
}

#define BUG(what, expect, fn)                                                                      \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_index_score_variant)                        \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn, nb_index_pack_f32, nb_index_bytes_f32,             \
                    nb_index_scratch_none, 0                                                       \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("negative products kept", "expected", no_relu),
    BUG("weights of heads forgotten", "expected", no_weights),
    BUG("a token too many", "", a_token_more),
    BUG("the last head lost", "expected", last_head_lost),
    BUG("result depends on the cut", "other bits", cut_dependent),
    { 0 },
};

const chk_op chk_index_score = { "index_score", rows, test, bench, broken };
