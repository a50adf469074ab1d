/* check_linear.c - linear and linear_t for every weight type: all tails of rows,
 * columns and tokens, ranges that cut through scale blocks, and independence of an
 * output from everything but its own row and column. */
#include "check/check.h"
#include "kernel/linear/linear.h"

static const char *const type_name[] = { "f32", "bf16", "f16", "fp8b" };
CHK_ROWS(rows, nb_linear_variant, nb_linear_variants, type_name[v->type])

static const size_t shapes[][3] = {
    /* rows, columns, tokens */
    { 1, 1, 1 },    { 1, 7, 1 },    { 3, 8, 2 },    { 5, 9, 3 },    { 8, 15, 4 },   { 9, 16, 1 },
    { 17, 17, 5 },  { 16, 64, 3 },  { 33, 127, 7 }, { 7, 128, 1 },  { 12, 129, 6 }, { 5, 255, 50 },
    { 20, 256, 4 }, { 130, 97, 2 }, { 6, 1000, 3 }, { 3, 2048, 2 }, { 2, 7168, 1 }, { 260, 264, 1 },
};

static double bound_of(const nb_linear_args *a, bool transposed, double s)
{
    const double n = (double)(transposed ? a->row_end - a->row_begin : a->w.n_col);
    const double k = transposed               ? 4 + 2 * sqrt(n)
                     : a->w.type == NB_W_FP8B ? 24 + n / 128
                                              : 8 + sqrt(n);
    return k * 0x1p-24 * s + (n + 1) * 0x1p-126;
}

static size_t n_out(const nb_linear_args *a, bool transposed)
{
    return transposed ? a->col_end - a->col_begin : a->row_end - a->row_begin;
}

/* Calls fn on outputs [from, to) of the range and tokens [t0, t1): the result in y. */
static void run_part(chk *t, nb_linear_fn *fn, bool transposed, const nb_linear_args *a, float *y,
                     size_t y_stride, size_t from, size_t to, size_t t0, size_t t1)
{
    nb_linear_args p = *a;
    const size_t base = transposed ? a->col_begin : a->row_begin;
    *(transposed ? &p.col_begin : &p.row_begin) = base + from;
    *(transposed ? &p.col_end : &p.row_end) = base + to;
    p.n_tok = t1 - t0;
    p.x = a->x + t0 * a->x_stride;
    p.y = y + t0 * y_stride + from;
    p.y_stride = y_stride;
    chk_call(t, fn(&p));
}

static void check_splits(chk *t, nb_linear_fn *fn, bool transposed, const nb_linear_args *a)
{
    const size_t n = n_out(a, transposed);
    if (n == 0 || a->n_tok == 0) return;
    float *y = chk_out_rows(t, a->n_tok, n, n);
    for (size_t k = 0; k < a->n_tok; k++) run_part(t, fn, transposed, a, y, n, 0, n, k, k + 1);
    chk_same(t, "for a token alone", a->y, a->y_stride, y, n, a->n_tok, n);
    y = chk_out_rows(t, a->n_tok, n, n);
    for (size_t from = 0, to, max = n < 40 ? n : n / 2; from < n; from = to) {
        to = from + chk_between(t, 1, max);
        if (to > n) to = n;
        const size_t cut = chk_between(t, 0, a->n_tok);
        run_part(t, fn, transposed, a, y, n, from, to, 0, cut);
        run_part(t, fn, transposed, a, y, n, from, to, cut, a->n_tok);
    }
    chk_same(t, "for another split", a->y, a->y_stride, y, n, a->n_tok, n);
    y = chk_out_rows(t, a->n_tok, n, n);
    run_part(t, fn, transposed, a, y, n, 0, n, 0, a->n_tok);
    chk_same(t, "when repeated", a->y, a->y_stride, y, n, a->n_tok, n);
}

typedef enum special { PLAIN, NAN_CODE, INF_INPUT } special;

static void spoil(chk *t, const nb_linear_args *a, special what, size_t n_x)
{
    if (what == NAN_CODE) { /* of every type */
        static const uint16_t half_nan[] = { 0, 0x7fc0, 0x7e00 };
        const size_t at = chk_between(t, 0, a->w.n_row * a->w.n_col - 1);
        unsigned char *w = (unsigned char *)(uintptr_t)a->w.data;
        if (a->w.type == NB_W_F32) ((float *)(void *)w)[at] = NAN;
        if (a->w.type == NB_W_BF16 || a->w.type == NB_W_F16)
            ((uint16_t *)(void *)w)[at] = half_nan[a->w.type];
        if (a->w.type == NB_W_FP8B) w[at] = chk_u64(t) % 2 ? 0x7f : 0xff;
    }
    if (what == INF_INPUT && a->n_tok)
        ((float *)(uintptr_t)
             a->x)[chk_between(t, 0, a->n_tok - 1) * a->x_stride + chk_between(t, 0, n_x - 1)] =
            INFINITY;
}

static void one_case(chk *t, nb_linear_fn *fn, bool transposed, nb_wtype type, const size_t *shape,
                     size_t n_tok, chk_pattern p, special what)
{
    nb_linear_args a = { .n_tok = n_tok };
    a.w = chk_weight(t, type, shape[0], shape[1], p);
    a.row_begin = chk_between(t, 0, shape[0] / 2);
    a.row_end = chk_between(t, a.row_begin, shape[0]);
    if (chk_u64(t) % 2 || a.row_begin == a.row_end) a.row_begin = 0, a.row_end = shape[0];
    a.col_begin = transposed ? chk_between(t, 0, shape[1] / 2) : 0;
    a.col_end = transposed ? chk_between(t, a.col_begin, shape[1]) : 0;
    if (transposed && (chk_u64(t) % 2 || a.col_begin == a.col_end))
        a.col_begin = 0, a.col_end = shape[1];
    const size_t n = n_out(&a, transposed), n_x = transposed ? a.row_end - a.row_begin : shape[1];
    a.x_stride = n_x + chk_between(t, 0, 5);
    a.y_stride = n + chk_between(t, 0, 5);
    a.x = chk_in_rows(t, n_tok, n_x, a.x_stride, chk_u64(t) % 4 ? p : CHK_NORMAL);
    if (!transposed && chk_u64(t) % 2) a.bias = chk_in_rows(t, 1, shape[0], shape[0], CHK_NORMAL);
    spoil(t, &a, what, n_x);
    a.y = chk_out_rows(t, n_tok, n, a.y_stride);
    double *want = chk_f64(t, n_tok * n), *bound = chk_f64(t, n_tok * n);
    (transposed ? nb_linear_t_ref : nb_linear_ref)(&a, want, bound);
    for (size_t i = 0; i < n_tok * n; i++) bound[i] = bound_of(&a, transposed, bound[i]);
    chk_call(t, fn(&a));
    chk_close(t, a.y, n_tok, n, a.y_stride, want, bound);
    if (what != NAN_CODE || !transposed) check_splits(t, fn, transposed, &a);
}

/* All codes of the type in one row times x = 1 or so: conversions are exact. */
static void codes_case(chk *t, nb_linear_fn *fn, nb_wtype type)
{
    const size_t n = type == NB_W_FP8B ? 256 : 65536;
    if (type == NB_W_F32 || !chk_case(t, "all codes")) return;
    nb_linear_args a = { .n_tok = 1, .row_end = 1, .col_end = n, .x_stride = 1, .y_stride = n };
    unsigned char *data = chk_in(t, n * nb_wtype_bytes(type));
    float *scale = chk_in(t, (n + 127) / 128 * sizeof *scale);
    for (size_t i = 0; i < n; i++) {
        const uint16_t code = (uint16_t)i;
        if (type == NB_W_FP8B)
            data[i] = (unsigned char)i;
        else
            memcpy(data + 2 * i, &code, 2);
    }
    for (size_t i = 0; i < (n + 127) / 128; i++) scale[i] = 0.75f;
    a.w = (nb_weight){ .data = data, .scale = scale, .n_row = 1, .n_col = n, .type = type };
    float *x = chk_in(t, sizeof *x);
    x[0] = 1.5f;
    a.x = x;
    a.y = chk_out_rows(t, 1, n, n);
    double *want = chk_f64(t, n), *bound = chk_f64(t, n);
    nb_linear_t_ref(&a, want, bound);
    for (size_t i = 0; i < n; i++) {
        if (want[i] > 0x1.fffffep127) want[i] = INFINITY; /* beyond float: 1.5 times large */
        if (want[i] < -0x1.fffffep127) want[i] = -INFINITY;
        bound[i] = 0x1p-24 * fabs(want[i]) + 0x1p-149;
    }
    chk_call(t, fn(&a));
    chk_close(t, a.y, 1, n, n, want, bound);
}

static void test_both(chk *t, nb_linear_fn *fn, bool transposed, nb_wtype type)
{
    for (size_t s = 0; s < NB_COUNT(shapes); s++)
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if (chk_case(t, "%zux%zu tok=%zu %s", shapes[s][0], shapes[s][1], shapes[s][2],
                         chk_pattern_name(p)))
                one_case(t, fn, transposed, type, shapes[s], shapes[s][2], p, PLAIN);
    static const size_t odd[] = { 37, 203 }, wide[] = { 40, 384 };
    for (size_t i = 0; i < 6; i++) {
        const size_t *shape = i % 2 ? odd : wide;
        if (chk_case(t, "NaN weight %zu", i))
            one_case(t, fn, transposed, type, shape, 4, CHK_NORMAL, NAN_CODE);
        if (chk_case(t, "infinite input %zu", i))
            one_case(t, fn, transposed, type, shape, 4, CHK_NORMAL, INF_INPUT);
    }
    if (chk_case(t, "no tokens")) one_case(t, fn, transposed, type, wide, 0, CHK_NORMAL, PLAIN);
    if (transposed) codes_case(t, fn, type);
}

static void test(chk *t, const chk_row *row)
{
    const nb_linear_variant *v = row->row;
    test_both(t, v->fn, false, v->type);
}

static void test_t(chk *t, const chk_row *row)
{
    const nb_linear_variant *v = row->row;
    test_both(t, v->fn_t, true, v->type);
}

typedef struct job {
    nb_linear_fn *fn;
    nb_linear_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->fn(&j->a);
}

static void bench_one(chk *t, nb_linear_fn *fn, bool transposed, nb_wtype type, size_t n_row,
                      size_t n_col, size_t n_tok)
{
    char label[64];
    chk_case(t, "bench");
    job j = { fn, { .n_tok = n_tok, .row_end = n_row, .col_end = n_col } };
    const size_t n_x = transposed ? n_row : n_col, n_y = transposed ? n_col : n_row;
    j.a.w = chk_weight(t, type, n_row, n_col, CHK_NORMAL);
    j.a.x_stride = n_x;
    j.a.y_stride = n_y;
    j.a.x = chk_in_rows(t, n_tok, n_x, n_x, CHK_NORMAL);
    j.a.y = chk_out_rows(t, n_tok, n_y, n_y);
    snprintf(label, sizeof label, "%zu x %zu, %zu tok", n_row, n_col, n_tok);
    chk_time(t, label, (double)(n_row * n_col * nb_wtype_bytes(type)),
             2.0 * (double)(n_row * n_col * n_tok), call, &j);
}

static void bench(chk *t, const chk_row *row)
{
    const nb_linear_variant *v = row->row;
    const bool c = strcmp(v->name, "c") == 0;
    bench_one(t, v->fn, false, v->type, 256, 512, 1); /* within L2 */
    bench_one(t, v->fn, false, v->type, 2048, 2048, 1);
    if (!c) bench_one(t, v->fn, false, v->type, 16384, 4096, 1); /* beyond L3 */
    bench_one(t, v->fn, false, v->type, 512, 2048, 4);
    bench_one(t, v->fn, false, v->type, 512, 2048, 64);
    if (!c) bench_one(t, v->fn, false, v->type, 512, 7168, 256);
}

static void bench_t(chk *t, const chk_row *row)
{
    const nb_linear_variant *v = row->row;
    bench_one(t, v->fn_t, true, v->type, 128, 512, 1);
    bench_one(t, v->fn_t, true, v->type, 128, 512, 16);
}

/* Planted bugs. */
static void no_tail(const nb_linear_args *a)
{
    nb_linear_args b = *a;
    float row[8192];
    for (size_t k = 0; k < a->n_tok; k++) { /* the columns of the tail as if 0 */
        memcpy(row, a->x + k * a->x_stride, a->w.n_col * sizeof *row);
        for (size_t c = a->w.n_col / 8 * 8; c < a->w.n_col; c++) row[c] = 0;
        b.n_tok = 1;
        b.x = row;
        b.y = a->y + k * a->y_stride;
        nb_linear_bf16_c(&b);
    }
}
static void over_read(const nb_linear_args *a)
{
    const uint16_t *end = (const uint16_t *)a->w.data + a->row_end * a->w.n_col;
    for (size_t i = a->w.n_col; i % 8; i++, end++) (void)*(const volatile uint16_t *)end;
    nb_linear_bf16_c(a);
}
static void split_dependent(const nb_linear_args *a)
{
    nb_linear_bf16_c(a);
    for (size_t k = 0; k < a->n_tok; k++) { /* single rows from the left, rounded each time */
        for (size_t r = a->row_begin; a->row_end - a->row_begin == 1 && r < a->row_end; r++) {
            float sum = a->bias ? a->bias[r] : 0;
            nb_linear_args one = *a;
            for (size_t c = 0; c < a->w.n_col; c++) {
                const uint16_t *w = (const uint16_t *)a->w.data + r * a->w.n_col + c;
                const uint32_t u = (uint32_t)*w << 16;
                float f;
                memcpy(&f, &u, 4);
                sum += f * a->x[k * one.x_stride + c];
            }
            a->y[k * a->y_stride + r - a->row_begin] = sum;
        }
    }
}
static void batch_dependent(const nb_linear_args *a)
{
    nb_linear_bf16_c(a);
    for (size_t i = 0; a->n_tok == 1 && i < a->row_end - a->row_begin; i++)
        a->y[i] = nextafterf(a->y[i], 0);
}
static void wrong_block(const nb_linear_args *a)
{
    nb_linear_args b = *a; /* scales counted from the start of the range */
    const size_t shift = a->row_begin;
    b.w.data = (const uint8_t *)a->w.data + shift * a->w.n_col;
    b.w.n_row -= shift;
    b.row_begin = 0;
    b.row_end -= shift;
    b.bias = a->bias ? a->bias + shift : NULL;
    nb_linear_fp8b_c(&b);
}
static void short_sum(const nb_linear_args *a)
{
    nb_linear_args b = *a; /* linear_t without its last input row */
    if (b.row_end - b.row_begin > 1) b.row_end--;
    nb_linear_t_bf16_c(&b);
}

#define BUG(what, expect, type, fn, fn_t)                                                          \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_linear_variant)                             \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, type, fn, fn_t, NULL, NULL                             \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("forgotten tail", "expected", NB_W_BF16, no_tail, NULL),
    BUG("over-read of the last row", "signal", NB_W_BF16, over_read, NULL),
    BUG("sum depends on the split of rows", "other bits", NB_W_BF16, split_dependent, NULL),
    BUG("sum depends on the batch", "token alone", NB_W_BF16, batch_dependent, NULL),
    BUG("scale of the wrong block", "", NB_W_FP8B, wrong_block, NULL),
    { 0 },
};
static const chk_broken broken_t[] = {
    BUG("last input row forgotten", "expected", NB_W_BF16, NULL, short_sum),
    { 0 },
};

const chk_op chk_linear = { "linear", rows, test, bench, broken };
const chk_op chk_linear_t = { "linear_t", rows, test_t, bench_t, broken_t };
