/* check_swiglu.c - swiglu: tails, in place on either input, the whole range of exp. */
#include "check/check.h"
#include "kernel/swiglu/swiglu.h"

CHK_ROWS(rows, nb_swiglu_variant, nb_swiglu_variants, "")

typedef enum gates { AS_PATTERN, WIDE, NON_FINITE } gates;

static void fill_gates(chk *t, float *g, size_t n, gates what)
{
    for (size_t i = 0; i < n && what == WIDE; i++) g[i] = (float)(240 * chk_unit(t) - 120);
    for (size_t i = 0; i < n && what == NON_FINITE; i++)
        g[i] = i % 5 == 0 ? INFINITY : i % 5 == 1 ? NAN : i % 5 == 2 ? -INFINITY : g[i];
}

static void one_case(chk *t, nb_swiglu_fn *fn, size_t n_tok, size_t dim, chk_pattern p, gates what)
{
    nb_swiglu_args a = { .n_tok = n_tok, .dim = dim };
    a.in_stride = dim + chk_between(t, 0, 5);
    a.y_stride = dim + chk_between(t, 0, 5);
    float *gate = chk_in_rows(t, n_tok, dim, a.in_stride, p);
    for (size_t k = 0; k < n_tok; k++) fill_gates(t, gate + k * a.in_stride, dim, what);
    a.gate = gate;
    a.up = chk_in_rows(t, n_tok, dim, a.in_stride, p == CHK_TINY ? CHK_LARGE : CHK_OUTLIER);
    a.y = chk_out_rows(t, n_tok, dim, a.y_stride);
    double *want = chk_f64(t, n_tok * dim), *bound = chk_f64(t, n_tok * dim);
    nb_swiglu_ref(&a, want);
    for (size_t k = 0; k < n_tok; k++) {
        for (size_t i = 0; i < dim; i++) {
            const double u = fabs((double)a.up[k * a.in_stride + i]), y = want[k * dim + i];
            bound[k * dim + i] = 8 * 0x1p-24 * fabs(y) + 0x1p-126 * (1 + 0x1p-16 * u);
        }
    }
    chk_call(t, fn(&a));
    chk_close(t, a.y, n_tok, dim, a.y_stride, want, bound);
    const size_t n_bytes = chk_rows_bytes(n_tok, dim, a.in_stride, sizeof(float));
    for (int k = 0; k < 2; k++) { /* y == gate, y == up */
        nb_swiglu_args v = a;
        v.y = chk_copy(t, k ? a.up : a.gate, n_bytes, false);
        v.y_stride = a.in_stride;
        *(k ? &v.up : &v.gate) = v.y;
        chk_call(t, fn(&v));
        if (what != NON_FINITE)
            chk_same(t, "in place", a.y, a.y_stride, v.y, v.y_stride, n_tok, dim);
    }
    for (size_t i = 0; n_tok && what != NON_FINITE && i < dim && i < 20;
         i++) { /* an element alone */
        nb_swiglu_args v = { .n_tok = 1, .dim = 1, .in_stride = 1, .y_stride = 1 };
        v.gate = chk_copy(t, a.gate + i, sizeof(float), true);
        v.up = chk_copy(t, a.up + i, sizeof(float), true);
        v.y = chk_out_rows(t, 1, 1, 1);
        chk_call(t, fn(&v));
        chk_same(t, "for an element alone", a.y + i, 1, v.y, 1, 1, 1);
    }
}

static void test(chk *t, const chk_row *row)
{
    static const size_t dims[] = { 1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 127, 1408 };
    nb_swiglu_fn *fn = ((const nb_swiglu_variant *)row->row)->fn;
    for (size_t d = 0; d < NB_COUNT(dims); d++) {
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if (chk_case(t, "dim=%zu %s", dims[d], chk_pattern_name(p)))
                one_case(t, fn, chk_between(t, 1, 3), dims[d], p, AS_PATTERN);
        if (chk_case(t, "dim=%zu gates -120..120", dims[d]))
            one_case(t, fn, 3, dims[d], CHK_NORMAL, WIDE);
        if (chk_case(t, "dim=%zu non-finite", dims[d]))
            one_case(t, fn, 2, dims[d], CHK_NORMAL, NON_FINITE);
    }
    if (chk_case(t, "sweep of exp")) one_case(t, fn, 8, 20011, CHK_NORMAL, WIDE);
    if (chk_case(t, "no tokens")) one_case(t, fn, 0, 16, CHK_NORMAL, AS_PATTERN);
}

typedef struct job {
    nb_swiglu_fn *fn;
    nb_swiglu_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->fn(&j->a);
}

static void bench(chk *t, const chk_row *row)
{
    const size_t n_tok = 4, dim = 2048;
    chk_case(t, "bench");
    job j = { ((const nb_swiglu_variant *)row->row)->fn, { .n_tok = n_tok, .dim = dim } };
    j.a.in_stride = j.a.y_stride = dim;
    j.a.gate = chk_in_rows(t, n_tok, dim, dim, CHK_NORMAL);
    j.a.up = chk_in_rows(t, n_tok, dim, dim, CHK_NORMAL);
    j.a.y = chk_out_rows(t, n_tok, dim, dim);
    chk_time(t, "4 x 2048", 12.0 * (double)(n_tok * dim), 16.0 * (double)(n_tok * dim), call, &j);
}

static void overflows(const nb_swiglu_args *a)
{
    for (size_t k = 0; k < a->n_tok; k++) {
        for (size_t i = 0; i < a->dim; i++) {
            const float g = a->gate[k * a->in_stride + i];
            a->y[k * a->y_stride + i] = g * expf(g) / (1 + expf(g)) * a->up[k * a->in_stride + i];
        }
    }
}
static void silu_of_up(const nb_swiglu_args *a)
{
    nb_swiglu_args b = *a;
    b.gate = a->up;
    b.up = a->gate;
    nb_swiglu_c(&b);
}

#define BUG(what, fn)                                                                              \
    {                                                                                              \
        what, "expected",                                                                          \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_swiglu_variant)                             \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn                                                     \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("exp overflows", overflows),
    BUG("gate and up exchanged", silu_of_up),
    { 0 },
};

const chk_op chk_swiglu = { "swiglu", rows, test, bench, broken };
