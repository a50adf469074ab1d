/* check_rmsnorm.c - rmsnorm: every tail, in place, rows alone and together. */
#include "check/check.h"
#include "kernel/rmsnorm/rmsnorm.h"

CHK_ROWS(rows, nb_rmsnorm_variant, nb_rmsnorm_variants, "")

static void one_case(chk *t, nb_rmsnorm_fn *fn, size_t n_row, size_t dim, chk_pattern p)
{
    const size_t gap = chk_between(t, 0, 9), xs = dim + gap, ys = dim + chk_between(t, 0, 9);
    nb_rmsnorm_args a = { .n_row = n_row, .dim = dim, .x_stride = xs, .y_stride = ys };
    a.eps = p == CHK_LARGE ? 1e-5f : 1e-6f;
    a.x = chk_in_rows(t, n_row, dim, xs, p);
    a.w = chk_in_rows(t, 1, dim, dim, chk_u64(t) % 2 ? CHK_NORMAL : CHK_OUTLIER);
    a.y = chk_out_rows(t, n_row, dim, ys);
    double *want = chk_f64(t, n_row * dim), *bound = chk_f64(t, n_row * dim);
    nb_rmsnorm_ref(&a, want);
    for (size_t i = 0; i < n_row * dim; i++)
        bound[i] = (4 + (double)dim / 16) * 0x1p-24 * fabs(want[i]) + 0x1p-126;
    chk_call(t, fn(&a));
    chk_close(t, a.y, n_row, dim, ys, want, bound);

    nb_rmsnorm_args in_place = a; /* y == x */
    const size_t n_bytes = chk_rows_bytes(n_row, dim, xs, sizeof(float));
    in_place.y = chk_copy(t, a.x, n_bytes, false);
    in_place.x = in_place.y;
    in_place.y_stride = xs;
    chk_call(t, fn(&in_place));
    chk_same(t, "in place", a.y, ys, in_place.y, xs, n_row, dim);
    for (size_t r = 0; r < n_row; r++) {
        nb_rmsnorm_args alone = a;
        alone.n_row = 1;
        alone.x = a.x + r * xs;
        alone.y = chk_out_rows(t, 1, dim, dim);
        chk_call(t, fn(&alone));
        chk_same(t, "for a row alone", a.y + r * ys, ys, alone.y, dim, 1, dim);
    }
}

static void test(chk *t, const chk_row *row)
{
    static const size_t dims[] = { 1,  2,  3,  7,   8,   9,   15,  16,   17,   23,  24,
                                   31, 33, 63, 128, 129, 512, 576, 1536, 2048, 4099 };
    nb_rmsnorm_fn *fn = ((const nb_rmsnorm_variant *)row->row)->fn;
    for (size_t d = 0; d < NB_COUNT(dims); d++)
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if (chk_case(t, "dim=%zu %s", dims[d], chk_pattern_name(p)))
                one_case(t, fn, chk_between(t, 1, 4), dims[d], p);
    if (chk_case(t, "no rows")) one_case(t, fn, 0, 16, CHK_NORMAL);
}

typedef struct job {
    nb_rmsnorm_fn *fn;
    nb_rmsnorm_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->fn(&j->a);
}

static void bench(chk *t, const chk_row *row)
{
    static const size_t dims[] = { 512, 2048, 7168 };
    for (size_t d = 0; d < NB_COUNT(dims); d++) {
        char label[64];
        const size_t n = 16, dim = dims[d];
        chk_case(t, "bench");
        job j = { ((const nb_rmsnorm_variant *)row->row)->fn, { .n_row = n, .dim = dim } };
        j.a.eps = 1e-6f;
        j.a.x_stride = j.a.y_stride = dim;
        j.a.x = chk_in_rows(t, n, dim, dim, CHK_NORMAL);
        j.a.w = chk_in_rows(t, 1, dim, dim, CHK_NORMAL);
        j.a.y = chk_out_rows(t, n, dim, dim);
        snprintf(label, sizeof label, "%zu x %zu", n, dim);
        chk_time(t, label, 8.0 * (double)(n * dim), 4.0 * (double)(n * dim), call, &j);
    }
}

/* Planted bugs: the portable variant, spoiled. */
static void over_write(const nb_rmsnorm_args *a)
{
    nb_rmsnorm_c(a);
    for (size_t r = 0; r < a->n_row; r++)
        for (size_t i = a->dim; i % 8; i++) a->y[r * a->y_stride + i] = 0;
}
static void over_read(const nb_rmsnorm_args *a)
{
    for (size_t i = a->dim; i % 8; i++) (void)*(const volatile float *)(a->w + i);
    nb_rmsnorm_c(a);
}
static void no_tail(const nb_rmsnorm_args *a)
{
    float keep[8] = { 0 };
    for (size_t r = 0; r < a->n_row; r++) {
        nb_rmsnorm_args row = *a;
        row.n_row = 1;
        row.x = a->x + r * a->x_stride;
        row.y = a->y + r * a->y_stride;
        const size_t from = a->dim / 8 * 8, n = a->dim - from;
        memcpy(keep, row.y + from, n * sizeof *keep);
        nb_rmsnorm_c(&row);
        memcpy(row.y + from, keep, n * sizeof *keep);
    }
}
static void no_eps(const nb_rmsnorm_args *a)
{
    nb_rmsnorm_args b = *a;
    b.eps = 0x1p-149f;
    nb_rmsnorm_c(&b);
}
static void wrong_stride(const nb_rmsnorm_args *a)
{
    nb_rmsnorm_args b = *a;
    b.y_stride = a->x_stride;
    nb_rmsnorm_c(&b);
}
static void writes_input(const nb_rmsnorm_args *a)
{
    nb_rmsnorm_c(a);
    if (a->n_row) ((float *)(uintptr_t)a->w)[0] += 1;
}
#if defined(__x86_64__)
static void flushes_to_zero(const nb_rmsnorm_args *a)
{
    const uint32_t v = 0x9fc0;
    nb_rmsnorm_c(a);
    __asm__ volatile("ldmxcsr %0" : : "m"(v));
}
static void dirty_upper(const nb_rmsnorm_args *a)
{
    nb_rmsnorm_c(a);
    __asm__ volatile("vpcmpeqd %%ymm7, %%ymm7, %%ymm7" ::: "xmm7");
}
#if NB_EMULATED
static void dirty_tiles(const nb_rmsnorm_args *a)
{
    const uint8_t config[64] = { [0] = 1, [16] = 64, [48] = 16 }; /* tile 0: 16 rows of 64 bytes */
    nb_emu_tile_loadconfig(config);
    nb_rmsnorm_c(a);
}
#endif
#endif

#define BUG(what, expect, fn, need)                                                                \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, need, &(const nb_rmsnorm_variant)                         \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn                                                     \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("tail over-write", "", over_write, 0),
    BUG("tail over-read", "signal", over_read, 0),
    BUG("forgotten tail", "expected", no_tail, 0),
    BUG("dropped eps", "", no_eps, 0),
    BUG("wrong stride", "", wrong_stride, 0),
    BUG("written input", "changed an input", writes_input, 0),
#if defined(__x86_64__)
    BUG("changed rounding control", "MXCSR", flushes_to_zero, 0),
    BUG("missing vzeroupper", "extended state", dirty_upper, NB_CAP_AVX2),
#endif
#if NB_EMULATED
    BUG("missing _tile_release", "left tiles in use", dirty_tiles, NB_CAP_AMX),
#endif
    { 0 },
};

const chk_op chk_rmsnorm = { "rmsnorm", rows, test, bench, broken };
