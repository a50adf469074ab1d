/* check_rope.c - rope, both layouts, every tail, heads with gaps between them. */
#include "check/check.h"
#include "kernel/rope/rope.h"

CHK_ROWS(rows, nb_rope_variant, nb_rope_variants, "")

static void fill_cos_sin(chk *t, float *cs, size_t n_tok, size_t half, double factor)
{
    for (size_t k = 0; k < n_tok; k++) {
        for (size_t j = 0; j < half; j++) {
            const double angle = 6.283185307179586 * chk_unit(t);
            cs[k * 2 * half + j] = (float)(factor * cos(angle));
            cs[k * 2 * half + half + j] = (float)(factor * sin(angle));
        }
    }
}

static void compare(chk *t, const nb_rope_args *before, const float *after, const double *want,
                    double factor)
{
    const size_t dim = before->dim, half = dim / 2;
    double *bound = chk_f64(t, dim);
    for (size_t k = 0; k < before->n_tok; k++) {
        for (size_t h = 0; h < before->n_head; h++) {
            const size_t at = k * before->tok_stride + h * before->head_stride;
            const float *x = before->x + at;
            for (size_t j = 0; j < half; j++) {
                const size_t i0 = before->interleaved ? 2 * j : j;
                const size_t i1 = before->interleaved ? 2 * j + 1 : j + half;
                const double s = fabs((double)x[i0]) + fabs((double)x[i1]);
                bound[i0] = bound[i1] = 3 * 0x1p-24 * factor * s + 0x1p-126;
            }
            chk_close(t, after + at, 1, dim, dim, want + (k * before->n_head + h) * dim, bound);
        }
    }
}

static void check_gaps(chk *t, const nb_rope_args *before, const float *after, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t in_tok = i % before->tok_stride, h = in_tok / before->head_stride;
        if (h < before->n_head && in_tok % before->head_stride < before->dim) continue;
        if (memcmp(before->x + i, after + i, sizeof *after) == 0) continue;
        chk_fail(t, "wrote into the gap at element %zu", i);
        return;
    }
}

static void one_case(chk *t, nb_rope_fn *fn, size_t dim, bool interleaved, size_t n_tok,
                     chk_pattern p)
{
    const size_t n_head = chk_between(t, 1, 4);
    const double factor = chk_u64(t) % 2 ? 1 : 1.25;
    nb_rope_args a = { .n_tok = n_tok, .n_head = n_head, .dim = dim, .interleaved = interleaved };
    a.head_stride = dim + chk_between(t, 0, 5);
    a.tok_stride = n_head * a.head_stride + chk_between(t, 0, 5);
    const size_t n = n_tok ? (n_tok - 1) * a.tok_stride + (n_head - 1) * a.head_stride + dim : 0;
    a.x = chk_out(t, n * sizeof(float));
    for (size_t k = 0; k < n_tok; k++)
        for (size_t h = 0; h < n_head; h++)
            chk_fill(t, a.x + k * a.tok_stride + h * a.head_stride, dim, p);
    float *cs = chk_in(t, n_tok * dim * sizeof *cs);
    fill_cos_sin(t, cs, n_tok, dim / 2, factor);
    a.cos_sin = cs;
    nb_rope_args v = a;
    double *want = chk_f64(t, n_tok * n_head * dim);
    nb_rope_ref(&a, want);
    v.x = chk_copy(t, a.x, n * sizeof(float), false);
    chk_call(t, fn(&v));
    compare(t, &a, v.x, want, factor);
    check_gaps(t, &a, v.x, n);
    for (size_t k = 0; k < n_tok; k++) { /* a token alone, one head at a time */
        nb_rope_args one = a;
        one.n_tok = one.n_head = 1;
        one.cos_sin = a.cos_sin + k * dim;
        for (size_t h = 0; h < n_head; h++) {
            const size_t at = k * a.tok_stride + h * a.head_stride;
            one.x = chk_copy(t, a.x + at, dim * sizeof(float), false);
            chk_call(t, fn(&one));
            chk_same(t, "for a token alone", v.x + at, dim, one.x, dim, 1, dim);
        }
    }
}

static void test(chk *t, const chk_row *row)
{
    static const size_t dims[] = { 2, 4, 6, 8, 14, 16, 18, 30, 32, 34, 62, 64, 80, 128 };
    nb_rope_fn *fn = ((const nb_rope_variant *)row->row)->fn;
    for (size_t d = 0; d < NB_COUNT(dims); d++)
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            for (int k = 0; k < 2; k++)
                if (chk_case(t, "dim=%zu %s %s", dims[d], k ? "interleaved" : "halves",
                             chk_pattern_name(p)))
                    one_case(t, fn, dims[d], k != 0, chk_between(t, 1, 4), p);
    if (chk_case(t, "no tokens")) one_case(t, fn, 64, true, 0, CHK_NORMAL);
}

typedef struct job {
    nb_rope_fn *fn;
    nb_rope_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->fn(&j->a);
}

static void bench(chk *t, const chk_row *row)
{
    for (int k = 0; k < 2; k++) {
        const size_t n_tok = 16, n_head = 16, dim = 64, n = n_tok * n_head * dim;
        chk_case(t, "bench");
        job j = { ((const nb_rope_variant *)row->row)->fn, { .n_tok = n_tok, .n_head = n_head } };
        float *cs = chk_in(t, n_tok * dim * sizeof *cs);
        fill_cos_sin(t, cs, n_tok, dim / 2, 1);
        j.a.cos_sin = cs;
        j.a.x = chk_out(t, n * sizeof(float));
        chk_fill(t, j.a.x, n, CHK_NORMAL);
        j.a.dim = j.a.head_stride = dim;
        j.a.tok_stride = n_head * dim;
        j.a.interleaved = k != 0;
        chk_time(t, k ? "16 tok x 16 x 64 interleaved" : "16 tok x 16 x 64 halves", 8.0 * (double)n,
                 3.0 * (double)n, call, &j);
    }
}

static void swapped_pair(const nb_rope_args *a)
{
    nb_rope_args b = *a;
    b.interleaved = !a->interleaved;
    nb_rope_c(&b);
}
static void wrong_sign(const nb_rope_args *a)
{
    float cs[512];
    nb_rope_args b = *a;
    for (size_t k = 0; k < a->n_tok; k++) {
        for (size_t j = 0; j < a->dim; j++)
            cs[j] = j < a->dim / 2 ? a->cos_sin[k * a->dim + j] : -a->cos_sin[k * a->dim + j];
        b.n_tok = 1;
        b.cos_sin = cs;
        b.x = a->x + k * a->tok_stride;
        nb_rope_c(&b);
    }
}
static void first_head_only(const nb_rope_args *a)
{
    nb_rope_args b = *a;
    b.n_head = 1;
    nb_rope_c(&b);
}

#define BUG(what, fn)                                                                              \
    {                                                                                              \
        what, "expected",                                                                          \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_rope_variant)                               \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn                                                     \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("swapped pair layout", swapped_pair),
    BUG("rotated backwards", wrong_sign),
    BUG("first head only", first_head_only),
    { 0 },
};

const chk_op chk_rope = { "rope", rows, test, bench, broken };
