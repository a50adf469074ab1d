/* check_attn_score.c - scores of one query: tails of every dimension, ranges of heads and tokens,
 * and the bits of the attention kernel of the same level. */
#include "check/check.h"
#include "kernel/attn/attn.h"
#include "kernel/attn_score/attn_score.h"

CHK_ROWS(rows, nb_attn_score_variant, nb_attn_score_variants, "")

typedef struct shape {
    size_t n_head, n_kv, d1, d2;
} shape;

static const shape shapes[] = {
    { 1, 1, 1, 0 },   { 1, 5, 7, 3 },      { 2, 63, 8, 8 },    { 3, 64, 9, 0 },   { 4, 3, 16, 4 },
    { 5, 64, 17, 1 }, { 16, 64, 512, 64 }, { 8, 64, 512, 64 }, { 9, 61, 40, 8 },  { 7, 2, 31, 15 },
    { 0, 4, 8, 8 },   { 6, 0, 8, 8 },      { 12, 64, 128, 0 }, { 33, 10, 23, 9 },
};

static nb_attn_score_args make_args(chk *t, const shape *s, chk_pattern p)
{
    nb_attn_score_args a = { .head_end = s->n_head, .n_kv = s->n_kv, .d1 = s->d1, .d2 = s->d2 };
    a.scale = 1 / sqrtf((float)(s->d1 + s->d2));
    a.s_stride = s->n_kv + chk_between(t, 0, 5);
    a.k1_stride = s->d1 + chk_between(t, 0, 9);
    a.k2_stride = s->d2 + chk_between(t, 0, 9);
    a.q = chk_in_rows(t, 1, s->n_head * (s->d1 + s->d2), s->n_head * (s->d1 + s->d2), p);
    a.k1 = chk_in_rows(t, s->n_kv, s->d1, a.k1_stride, p == CHK_LARGE ? CHK_NORMAL : p);
    if (s->d2) a.k2 = chk_in_rows(t, s->n_kv, s->d2, a.k2_stride, CHK_NORMAL);
    a.s = chk_out_rows(t, s->n_head, s->n_kv, a.s_stride);
    return a;
}

/* Attention's own scores: the maximum of a state that has seen one token alone, or all of them. */
static void check_attn_bits(chk *t, const nb_attn_variant *at, const nb_attn_score_args *a)
{
    const size_t n_h = a->head_end, n_o = n_h + 1;
    float *m = chk_raw(t, n_o * sizeof *m), *l = chk_raw(t, n_o * sizeof *l);
    float *o = chk_raw(t, n_o * sizeof *o), *top = chk_raw(t, n_o * sizeof *top);
    for (size_t h = 0; h < n_h; h++) top[h] = -INFINITY;
    for (size_t k = 0; k <= a->n_kv; k++) {
        const bool all = k == a->n_kv;
        const size_t from = all ? 0 : k;
        for (size_t h = 0; h < n_h; h++) m[h] = -INFINITY, l[h] = 0;
        const nb_attn_args x = { .o = o,
                                 .m = m,
                                 .l = l,
                                 .q = a->q,
                                 .k1 = a->k1 + from * a->k1_stride,
                                 .k2 = a->d2 ? a->k2 + from * a->k2_stride : NULL,
                                 .v = a->k1 + from * a->k1_stride,
                                 .n_q = 1,
                                 .head_end = n_h,
                                 .group = n_h + 1,
                                 .n_kv = all ? a->n_kv : 1,
                                 .vis0 = all ? a->n_kv : 1,
                                 .d1 = a->d1,
                                 .d2 = a->d2,
                                 .d_v = 1,
                                 .o_q_stride = n_h,
                                 .k1_stride = a->k1_stride,
                                 .k2_stride = a->k2_stride,
                                 .v_stride = a->k1_stride,
                                 .scale = a->scale };
        at->fn(&x);
        for (size_t h = 0; !all && h < n_h; h++) top[h] = m[h] > top[h] ? m[h] : top[h];
        if (all)
            chk_same(t, "in attention to all", top, 1, m, 1, n_h, 1);
        else
            chk_same(t, "in attention", a->s + k, a->s_stride, m, 1, n_h, 1);
    }
}

/* The same with every variant of attn that a machine would use beside v. */
static void check_attn(chk *t, const nb_attn_score_variant *v, const nb_attn_score_args *a)
{
    size_t n = 0;
    for (const nb_attn_variant *at = nb_attn_variants; at->name; at++) {
        const nb_caps level = at->need ? at->need | (at->need - 1) : 0; /* with those below */
        const nb_attn_score_variant *use = nb_attn_score_variants;
        if (at->need & ~t->have) continue;
        while (use->name && (use->need & ~level)) use++;
        if (use->need != v->need) continue; /* a planted bug stands for the row of its level */
        check_attn_bits(t, at, a);
        n++;
    }
    if (n == 0) chk_fail(t, "no variant of attn beside it");
}

/* Heads and tokens cut anywhere. */
static void check_cut(chk *t, nb_attn_score_fn *fn, const nb_attn_score_args *a)
{
    nb_attn_score_args cut = *a;
    const size_t h = chk_between(t, 0, a->head_end), k = chk_between(t, 0, a->n_kv);
    cut.s = chk_out_rows(t, a->head_end, a->n_kv, a->s_stride);
    float *const s = cut.s;
    for (int i = 0; i < 4; i++) {
        const size_t from = i & 2 ? k : 0;
        cut.head_begin = i & 1 ? h : 0;
        cut.head_end = i & 1 ? a->head_end : h;
        cut.n_kv = i & 2 ? a->n_kv - k : k;
        cut.s = s + from;
        cut.k1 = a->k1 + from * a->k1_stride;
        cut.k2 = a->d2 ? a->k2 + from * a->k2_stride : NULL;
        chk_call(t, fn(&cut));
    }
    chk_same(t, "for another cut", a->s, a->s_stride, s, a->s_stride, a->head_end, a->n_kv);
}

static void one_case(chk *t, const nb_attn_score_variant *v, const shape *s, chk_pattern p)
{
    const nb_attn_score_args a = make_args(t, s, p);
    const size_t n = s->n_head * s->n_kv;
    double *want = chk_f64(t, n), *bound = chk_f64(t, n);
    nb_attn_score_ref(&a, want, bound);
    for (size_t i = 0; i < n; i++)
        bound[i] = bound[i] * ((double)(s->d1 + s->d2) / 8 + 6) * 0x1p-24 + 0x1p-126;
    chk_call(t, v->fn(&a));
    if (s->n_head && s->n_kv) chk_close(t, a.s, s->n_head, s->n_kv, a.s_stride, want, bound);
    check_cut(t, v->fn, &a);
    check_attn(t, v, &a);
}

static void test(chk *t, const chk_row *row)
{
    for (size_t i = 0; i < NB_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if ((s->d1 < 500 || p % 4 == 0) &&
                chk_case(t, "shape %zu: %zu heads %zu kv %zu+%zu %s", i, s->n_head, s->n_kv, s->d1,
                         s->d2, chk_pattern_name(p)))
                one_case(t, row->row, s, p);
    }
}

typedef struct job {
    nb_attn_score_fn *fn;
    nb_attn_score_args a;
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
        { "8 heads 512+64", { 8, 64, 512, 64 } },
        { "16 heads 512+64", { 16, 64, 512, 64 } },
        { "128 heads 512+64", { 128, 64, 512, 64 } },
    };
    for (size_t i = 0; i < NB_COUNT(list); i++) {
        const shape *s = &list[i].s;
        const double d = (double)(s->d1 + s->d2);
        chk_case(t, "bench %zu", i);
        t->front = true; /* page-aligned, as workspaces are */
        job j = { ((const nb_attn_score_variant *)row->row)->fn, make_args(t, s, CHK_NORMAL) };
        chk_time(t, list[i].label, 4.0 * (double)s->n_kv * d,
                 2.0 * (double)(s->n_kv * s->n_head) * d, call, &j);
    }
}

/* Planted bugs. */
static void no_scale(const nb_attn_score_args *a)
{
    nb_attn_score_args b = *a;
    b.scale = 1;
    nb_attn_score_c(&b);
}
static void no_rope_part(const nb_attn_score_args *a)
{
    float *zero = (float[64 * 64]){ 0 };
    nb_attn_score_args b = *a;
    b.k2 = a->d2 ? zero : NULL;
    b.k2_stride = 64;
    nb_attn_score_c(&b);
}
static void one_token_more(const nb_attn_score_args *a)
{
    nb_attn_score_c(a);
    if (a->head_begin < a->head_end && a->n_kv && a->s_stride > a->n_kv)
        a->s[a->head_begin * a->s_stride + a->n_kv] = 0;
}
static void other_order(const nb_attn_score_args *a)
{
    nb_attn_score_c(a);
    for (size_t h = a->head_begin; h < a->head_end; h++)
        for (size_t t = 0; t < a->n_kv; t++) { /* a plain chain: close, but not attention's bits */
            float sum = 0;
            for (size_t j = 0; j < a->d1 + a->d2; j++)
                sum +=
                    a->q[h * (a->d1 + a->d2) + j] *
                    (j < a->d1 ? a->k1[t * a->k1_stride + j] : a->k2[t * a->k2_stride + j - a->d1]);
            if (a->d1 + a->d2 <= 48) a->s[h * a->s_stride + t] = sum * a->scale;
        }
}
static void cut_dependent(const nb_attn_score_args *a)
{
    nb_attn_score_c(a);
    if (a->head_begin + 1 == a->head_end && a->n_kv)
        a->s[a->head_begin * a->s_stride] = nextafterf(a->s[a->head_begin * a->s_stride], 1e9f);
}

#define BUG(what, expect, fn)                                                                      \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_attn_score_variant)                         \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn                                                     \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("scale forgotten", "expected", no_scale),
    BUG("rope part dropped", "expected", no_rope_part),
    BUG("a token too many", "", one_token_more),
    BUG("another order of summation", "", other_order),
    BUG("result depends on the cut", "other bits", cut_dependent),
    { 0 },
};

const chk_op chk_attn_score = { "attn_score", rows, test, bench, broken };
