/* check_kda.c - kda: every tail of columns, keys of any length up to 1, decays near 0 and 1, tokens alone and together,
 * in parts of the columns. */
#include "check/check.h"
#include "kernel/kda/kda.h"

CHK_ROWS(rows, nb_kda_variant, nb_kda_variants, "")

/* Rows of length `length` at most. */
static void shorten(float *x, size_t n_row, size_t dim, size_t stride, double length)
{
    for (size_t r = 0; r < n_row; r++) {
        double sum = 0;
        for (size_t i = 0; i < dim; i++)
            sum += (double)x[r * stride + i] * (double)x[r * stride + i];
        for (size_t i = 0; i < dim && sum > 0; i++)
            x[r * stride + i] =
                (float)(length * (1 - 1e-6) * (double)x[r * stride + i] / sqrt(sum));
    }
}

static double largest(const float *x, size_t n_row, size_t dim, size_t stride)
{
    double m = 0;
    for (size_t r = 0; r < n_row; r++)
        for (size_t i = 0; i < dim; i++) m = fmax(m, fabs((double)x[r * stride + i]));
    return m;
}

static const float *rows_of(chk *t, size_t n_row, size_t dim, size_t stride, double length)
{
    float *x = chk_copy(t, chk_in_rows(t, n_row, dim, stride, CHK_NORMAL),
                        chk_rows_bytes(n_row, dim, stride, sizeof *x), false);
    shorten(x, n_row, dim, stride, length);
    return chk_copy(t, x, chk_rows_bytes(n_row, dim, stride, sizeof *x), true);
}

/* Numbers in [0, 1], near 1 and near 0 and between. */
static const float *shares(chk *t, size_t n_row, size_t dim, size_t stride)
{
    const float *in = chk_in_rows(t, n_row, dim, stride, CHK_NORMAL);
    float *x = chk_copy(t, in, chk_rows_bytes(n_row, dim, stride, sizeof *x), false);
    for (size_t r = 0; r < n_row; r++)
        for (size_t i = 0; i < dim; i++)
            x[r * stride + i] = (float)exp(-exp(2 * (double)in[r * stride + i] - 2));
    return chk_copy(t, x, chk_rows_bytes(n_row, dim, stride, sizeof *x), true);
}

static void one_case(chk *t, nb_kda_fn *fn, size_t n_tok, size_t d_k, size_t d_v)
{
    const size_t gap = chk_between(t, 0, 5);
    nb_kda_args a = { .n_tok = n_tok,
                      .d_k = d_k,
                      .d_v = d_v,
                      .y_stride = d_v + gap,
                      .s_stride = d_v + gap,
                      .qk_stride = d_k + gap,
                      .v_stride = d_v + 1,
                      .a_stride = d_k + 2,
                      .beta_stride = 1 + gap };
    const size_t s_bytes = chk_rows_bytes(d_k, d_v, a.s_stride, sizeof(float));
    const float *s0 = chk_in_rows(t, d_k, d_v, a.s_stride, CHK_NORMAL);
    a.q = rows_of(t, n_tok, d_k, a.qk_stride, 0.09);
    a.k = rows_of(t, n_tok, d_k, a.qk_stride, 1);
    a.v = chk_in_rows(t, n_tok, d_v, a.v_stride, CHK_NORMAL);
    a.a = shares(t, n_tok, d_k, a.a_stride);
    a.beta = shares(t, n_tok, 1, a.beta_stride);
    a.s = chk_copy(t, s0, s_bytes, false);
    a.y = chk_out_rows(t, n_tok, d_v, a.y_stride);
    double *y64 = chk_f64(t, n_tok * d_v), *s64 = chk_f64(t, d_k * d_v),
           *bound = chk_f64(t, n_tok * d_v), *s_bound = chk_f64(t, d_k * d_v);
    nb_kda_ref(&a, y64, s64);
    const double e = ((double)d_k + 8) * 0x1p-24;
    const double M =
        largest(s0, d_k, d_v, a.s_stride) + (double)n_tok * largest(a.v, n_tok, d_v, a.v_stride);
    const double q = largest(a.q, n_tok, d_k, a.qk_stride);
    for (size_t i = 0; i < n_tok * d_v; i++)
        bound[i] = e * (double)(n_tok + 2) * (double)d_k * M * q + 0x1p-126;
    for (size_t i = 0; i < d_k * d_v; i++)
        s_bound[i] = e * (double)(n_tok + 1) * sqrt((double)d_k) * M;
    chk_call(t, fn(&a));
    chk_close(t, a.y, n_tok, d_v, a.y_stride, y64, bound);
    chk_close(t, a.s, d_k, d_v, a.s_stride, s64, s_bound);

    nb_kda_args one = a; /* tokens alone */
    one.n_tok = 1;
    one.s = chk_copy(t, s0, s_bytes, false);
    for (size_t i = 0; i < n_tok; i++) {
        one.q = a.q + i * a.qk_stride;
        one.k = a.k + i * a.qk_stride;
        one.v = a.v + i * a.v_stride;
        one.a = a.a + i * a.a_stride;
        one.beta = a.beta + i * a.beta_stride;
        one.y = chk_out_rows(t, 1, d_v, d_v);
        chk_call(t, fn(&one));
        chk_same(t, "for a token alone", a.y + i * a.y_stride, a.y_stride, one.y, d_v, 1, d_v);
    }
    chk_same(t, "state of tokens alone", a.s, a.s_stride, one.s, a.s_stride, d_k, d_v);
}

static void test(chk *t, const chk_row *row)
{
    static const size_t dims[][2] = { { 1, 1 },   { 1, 8 },   { 2, 3 },   { 7, 9 },    { 8, 7 },
                                      { 16, 16 }, { 16, 17 }, { 33, 31 }, { 24, 33 },  { 40, 63 },
                                      { 64, 64 }, { 64, 65 }, { 96, 80 }, { 128, 128 } };
    nb_kda_fn *fn = ((const nb_kda_variant *)row->row)->fn;
    for (size_t d = 0; d < NB_COUNT(dims); d++)
        for (size_t n = 1; n <= 10; n += 3)
            if (chk_case(t, "d_k=%zu d_v=%zu tokens=%zu", dims[d][0], dims[d][1], n))
                one_case(t, fn, n, dims[d][0], dims[d][1]);
    if (chk_case(t, "no tokens")) one_case(t, fn, 0, 16, 16);
}

typedef struct job {
    nb_kda_fn *fn;
    nb_kda_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->fn(&j->a);
}

static void bench(chk *t, const chk_row *row)
{
    static const size_t tokens[] = { 1, 64 };
    for (size_t i = 0; i < NB_COUNT(tokens); i++) {
        char label[64];
        const size_t n = tokens[i], d = 128;
        chk_case(t, "bench");
        job j = { ((const nb_kda_variant *)row->row)->fn,
                  { .n_tok = n,
                    .d_k = d,
                    .d_v = d,
                    .y_stride = d,
                    .s_stride = d,
                    .qk_stride = d,
                    .v_stride = d,
                    .a_stride = d,
                    .beta_stride = 1 } };
        j.a.q = rows_of(t, n, d, d, 0.09);
        j.a.k = rows_of(t, n, d, d, 1);
        j.a.v = chk_in_rows(t, n, d, d, CHK_NORMAL);
        j.a.a = shares(t, n, d, d);
        j.a.beta = shares(t, n, 1, 1);
        j.a.s = chk_copy(t, chk_in_rows(t, d, d, d, CHK_NORMAL), d * d * sizeof(float), false);
        j.a.y = chk_out_rows(t, n, d, d);
        snprintf(label, sizeof label, "%zu tokens of a head of 128", n);
        chk_time(t, label, 8.0 * (double)(d * d), 7.0 * (double)(n * d * d), call, &j);
    }
}

/* Planted bugs: the portable variant, spoiled. */
static void no_decay(const nb_kda_args *a)
{
    nb_kda_args b = *a;
    static float ones[256];
    for (size_t i = 0; i < NB_COUNT(ones); i++) ones[i] = 1;
    b.a = ones;
    b.a_stride = 0;
    nb_kda_c(&b);
}
static void forgets_last(const nb_kda_args *a)
{
    nb_kda_args b = *a;
    if (b.n_tok) b.n_tok--;
    nb_kda_c(&b);
}
static void over_write(const nb_kda_args *a)
{
    nb_kda_c(a);
    for (size_t i = 0; i < a->n_tok; i++)
        for (size_t j = a->d_v; j % 8; j++) a->y[i * a->y_stride + j] = 0;
}
static void wrong_stride(const nb_kda_args *a)
{
    nb_kda_args b = *a;
    b.v_stride = a->y_stride;
    nb_kda_c(&b);
}

#define BUG(what, expect, fn)                                                                      \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_kda_variant)                                \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn                                                     \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("no decay", "expected", no_decay),
    BUG("last token left out", "expected", forgets_last),
    BUG("tail over-write", "", over_write),
    BUG("wrong stride", "", wrong_stride),
    { 0 },
};

const chk_op chk_kda = { "kda", rows, test, bench, broken };
