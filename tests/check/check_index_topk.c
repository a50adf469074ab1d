/* check_index_topk.c - the k largest scores: ties, zeros of both signs, NaN, infinities, every k of small n. */
#include "check/check.h"
#include "kernel/index_topk/index_topk.h"

CHK_ROWS(rows, nb_index_topk_variant, nb_index_topk_variants, "")

enum { N_KIND = 6 };

/* Scores of a kind: a pattern of the checker is one number in many, or few different numbers. */
static void fill(chk *t, float *s, size_t n, unsigned kind)
{
    static const float odd[] = { 0, -0.0f, INFINITY,  -INFINITY,  NAN,
                                 1, -1,    0x1p-149f, -0x1p-149f, 3e38f };
    for (size_t i = 0; i < n; i++) {
        switch (kind) {
        case 0: s[i] = (float)(chk_unit(t) * 2 - 1); break;
        case 1: s[i] = (float)chk_between(t, 0, 3) - 1; break; /* ties */
        case 2: s[i] = 0; break;                               /* nothing else */
        case 3: s[i] = odd[chk_between(t, 0, NB_COUNT(odd) - 1)]; break;
        case 4:
            s[i] = 1 + (float)chk_between(t, 0, 40) * 0x1p-23f;
            break; /* the last bits decide */
        default: s[i] = (float)i; break;
        }
    }
}

static void one_case(chk *t, const nb_index_topk_variant *v, size_t n, size_t k, unsigned kind)
{
    float *s = chk_raw(t, n * sizeof *s);
    uint32_t *want = chk_raw(t, k * sizeof *want);
    fill(t, s, n, kind);
    const nb_index_topk_args a = { chk_copy(t, s, n * sizeof *s, true),
                                   chk_out(t, k * sizeof *want), n, k };
    nb_index_topk_args ref = a;
    ref.at = want;
    nb_index_topk_ref(&ref);
    chk_call(t, v->fn(&a));
    if (memcmp(a.at, want, k * sizeof *want) != 0) {
        size_t i = 0;
        while (a.at[i] == want[i]) i++;
        chk_fail(t, "choice %zu is %u, expected %u", i, (unsigned)a.at[i], (unsigned)want[i]);
    }
}

static void test(chk *t, const chk_row *row)
{
    static const size_t sizes[] = { 1, 2, 7, 8, 9, 16, 31, 64, 100, 257, 1500 };
    for (size_t i = 0; i < NB_COUNT(sizes); i++)
        for (unsigned kind = 0; kind < N_KIND; kind++) {
            const size_t n = sizes[i];
            for (size_t k = 0; k <= n; k += n < 20 ? 1 : 1 + n / 7)
                if (chk_case(t, "%zu of %zu, kind %u", k, n, kind))
                    one_case(t, row->row, n, k, kind);
        }
}

typedef struct job {
    nb_index_topk_fn *fn;
    nb_index_topk_args a;
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
        size_t n, k;
    } list[] = { { "2048 of 8192", 8192, 2048 },
                 { "2048 of 32768", 32768, 2048 },
                 { "2048 of 131072", 131072, 2048 } };
    for (size_t i = 0; i < NB_COUNT(list); i++) {
        chk_case(t, "bench %zu", i);
        t->front = true;
        float *s = chk_raw(t, list[i].n * sizeof *s);
        fill(t, s, list[i].n, 0);
        job j = { ((const nb_index_topk_variant *)row->row)->fn,
                  { s, chk_raw(t, list[i].k * sizeof(uint32_t)), list[i].n, list[i].k } };
        chk_time(t, list[i].label, 4.0 * (double)list[i].n, 0, call, &j);
    }
}

/* Planted bugs. */
static void later_of_equals(const nb_index_topk_args *a)
{
    nb_index_topk_ref(a);
    for (size_t i = a->k; i-- > 0;) { /* the last taken gives way to an equal one behind it */
        for (size_t j = a->at[i] + 1; j < a->n && (i + 1 == a->k || j < a->at[i + 1]); j++)
            if (a->s[j] == a->s[a->at[i]]) {
                a->at[i] = (uint32_t)j;
                return;
            }
    }
}
static void by_size(const nb_index_topk_args *a)
{
    nb_index_topk_ref(a);
    for (size_t i = 0; i + 1 < a->k; i++)
        for (size_t j = i + 1; j < a->k; j++)
            if (a->s[a->at[j]] > a->s[a->at[i]]) {
                const uint32_t x = a->at[i];
                a->at[i] = a->at[j];
                a->at[j] = x;
            }
}
static void coarse(const nb_index_topk_args *a)
{
    size_t n =
        0; /* the first whose upper bits are those of the largest, or more: not the last bits */
    nb_index_topk_ref(a);
    if (a->k == 0) return;
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < a->k; i++) {
        const uint32_t key = nb_index_key(a->s[a->at[i]]) >> 10;
        least = key < least ? key : least;
    }
    for (size_t i = 0; i < a->n && n < a->k; i++)
        if (nb_index_key(a->s[i]) >> 10 >= least) a->at[n++] = (uint32_t)i;
}

#define BUG(what, expect, fn)                                                                      \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_index_topk_variant)                         \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, fn                                                     \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("later ones of equal scores", "expected", later_of_equals),
    BUG("in order of size", "expected", by_size),
    BUG("low bits forgotten", "expected", coarse),
    { 0 },
};

const chk_op chk_index_topk = { "index_topk", rows, test, bench, broken };
