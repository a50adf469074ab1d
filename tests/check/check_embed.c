/* check_embed.c - embed: every type, correctly rounded. */
#include "check/check.h"
#include "kernel/embed/embed.h"

CHK_ROWS(rows, nb_embed_variant, nb_embed_variants, "")

static void one_case(chk *t, nb_embed_fn *fn, nb_wtype type, size_t dim, size_t n_tok,
                     chk_pattern p)
{
    nb_embed_args a = { .n_tok = n_tok, .factor = chk_u64(t) % 2 ? 1.0f : 12.3f };
    a.w = chk_weight(t, type, chk_between(t, 1, 300), dim, p);
    a.y_stride = dim + chk_between(t, 0, 5);
    uint32_t *id = chk_in(t, n_tok * sizeof *id);
    for (size_t i = 0; i < n_tok; i++) id[i] = (uint32_t)chk_between(t, 0, a.w.n_row - 1);
    if (n_tok) id[0] = (uint32_t)a.w.n_row - 1;
    a.id = id;
    a.y = chk_out_rows(t, n_tok, dim, a.y_stride);
    double *want = chk_f64(t, n_tok * dim), *bound = chk_f64(t, n_tok * dim);
    nb_embed_ref(&a, want);
    for (size_t i = 0; i < n_tok * dim; i++) {
        want[i] = (double)(float)want[i];
        bound[i] = 0;
    }
    chk_call(t, fn(&a));
    chk_close(t, a.y, n_tok, dim, a.y_stride, want, bound);
}

static void test(chk *t, const chk_row *row)
{
    static const size_t dims[] = { 1, 7, 8, 63, 64, 65, 127, 128, 129, 200, 576 };
    nb_embed_fn *fn = ((const nb_embed_variant *)row->row)->fn;
    for (size_t d = 0; d < NB_COUNT(dims); d++)
        for (nb_wtype w = 0; w < NB_W_TYPE_COUNT; w++)
            for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p += 2)
                if (chk_case(t, "dim=%zu type=%d %s", dims[d], (int)w, chk_pattern_name(p)))
                    one_case(t, fn, w, dims[d], chk_between(t, 1, 4), p);
    if (chk_case(t, "no tokens")) one_case(t, fn, NB_W_BF16, 64, 0, CHK_NORMAL);
}

static void wrong_row(const nb_embed_args *a)
{
    uint32_t id[8];
    nb_embed_args b = *a;
    for (size_t i = 0; i < a->n_tok; i++) id[i] = a->id[a->n_tok - 1 - i];
    b.id = id;
    nb_embed_c(&b);
}
static void rounds_twice(const nb_embed_args *a)
{
    nb_embed_args b = *a;
    b.factor = 1;
    nb_embed_c(&b);
    for (size_t k = 0; k < a->n_tok; k++)
        for (size_t i = 0; i < a->w.n_col; i++) a->y[k * a->y_stride + i] *= a->factor;
}

#define BUG(what, fn)                                                                              \
    {                                                                                              \
        what, "expected",                                                                          \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_embed_variant)                              \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn                                                     \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("rows of other tokens", wrong_row),
    BUG("scale and factor rounded apart", rounds_twice),
    { 0 },
};

const chk_op chk_embed = { "embed", rows, test, NULL, broken };
