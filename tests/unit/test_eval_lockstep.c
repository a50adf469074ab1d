/* test_eval_lockstep.c - KL, losses and agreement of rows against a slow computation in long
 * double that follows the definitions; what many rows come to; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "quality/lockstep.h"

enum { N_VOCAB = 300 };

static void near(double got, double want, double tol)
{
    if (!(fabs(got - want) <= tol)) fail_msg("got %.17g, expected %.17g +- %g", got, want, tol);
}

/* By the definitions: probabilities, then their logarithms. */
static void slow(const float *ref, const float *var, size_t n, uint32_t next, nb_row_ref *r,
                 nb_row_diff *d)
{
    long double sp = 0, sq = 0, kl = 0;
    size_t bp = 0, bq = 0;
    for (size_t i = 0; i < n; i++) {
        sp += expl((long double)ref[i]);
        sq += expl((long double)var[i]);
        if (ref[i] > ref[bp]) bp = i;
        if (var[i] > var[bq]) bq = i;
    }
    for (size_t i = 0; i < n; i++) {
        const long double p = expl((long double)ref[i]) / sp, q = expl((long double)var[i]) / sq;
        kl += p * (logl(p) - logl(q));
    }
    r->nll = (double)-logl(expl((long double)ref[next]) / sp);
    r->best = (uint32_t)bp;
    d->kl = (double)kl;
    d->nll = (double)-logl(expl((long double)var[next]) / sq);
    d->same_best = bp == bq;
}

static void compare(const float *ref, const float *var, size_t n, uint32_t next, nb_row_ref *r,
                    nb_row_diff *d)
{
    assert_int_equal(nb_lockstep_ref(ref, n, next, r), NB_OK);
    assert_int_equal(nb_lockstep_diff(ref, r, var, n, next, d), NB_OK);
}

static void test_definitions(void **state)
{
    (void)state;
    size_t n_same = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        float ref[N_VOCAB], var[N_VOCAB];
        const size_t n = 2 + nb_rng_u64(seed, 9999) % (N_VOCAB - 1);
        const double noise = pow(10, -(double)(seed % 6));
        for (size_t i = 0; i < n; i++) {
            ref[i] = (float)(20 * nb_rng_unit(seed, i) - 10);
            var[i] = (float)((double)ref[i] + noise * (nb_rng_unit(seed + 7777, i) - 0.5));
        }
        const uint32_t next = (uint32_t)(nb_rng_u64(seed, 5555) % n);
        nb_row_ref r, wr = { 0 };
        nb_row_diff d, wd;
        slow(ref, var, n, next, &wr, &wd);
        compare(ref, var, n, next, &r, &d);
        near(r.nll, wr.nll, 1e-13 * (1 + wr.nll));
        near(d.nll, wd.nll, 1e-13 * (1 + wd.nll));
        near(d.kl, wd.kl, 1e-14 + 1e-10 * wd.kl);
        assert_int_equal(r.best, wr.best);
        assert_int_equal(d.same_best, wd.same_best);
        n_same += (size_t)d.same_best;
    }
    assert_true(n_same > 100 && n_same < 200);
}

/* Two tokens, by hand. */
static void test_by_hand(void **state)
{
    (void)state;
    const float ref[2] = { 0, (float)log(3.0) }, var[2] = { 0, 0 };
    nb_row_ref r;
    nb_row_diff d;
    compare(ref, var, 2, 0, &r, &d);
    near(r.nll, log(4), 1e-7);
    near(d.nll, log(2), 1e-15);
    near(d.kl, 0.25 * log(0.5) + 0.75 * log(1.5), 1e-7);
    assert_int_equal(r.best, 1);
    assert_int_equal(d.same_best, 0); /* of equal ones the lowest */
}

/* Equal rows are exactly 0, whatever their size; a shift of all logits is no difference. */
static void test_equal(void **state)
{
    (void)state;
    float x[N_VOCAB], y[N_VOCAB];
    nb_row_ref r;
    nb_row_diff d;
    for (int scale = -20; scale <= 60; scale += 10) {
        for (size_t i = 0; i < N_VOCAB; i++) x[i] = ldexpf((float)nb_rng_unit(3, i) - 0.5f, scale);
        compare(x, x, N_VOCAB, 5, &r, &d);
        assert_true(d.kl == 0 && d.nll == r.nll && d.same_best);
    }
    for (size_t i = 0; i < N_VOCAB; i++) {
        x[i] = (float)(int)(nb_rng_u64(4, i) % 64) / 8;
        y[i] = x[i] + 1024;
    }
    compare(x, y, N_VOCAB, 5, &r, &d);
    near(d.kl, 0, 1e-12);
    near(d.nll, r.nll, 1e-12);
    /* where the reference has nothing, the variant may have what it likes */
    x[7] = -INFINITY;
    compare(x, x, N_VOCAB, 5, &r, &d);
    assert_true(d.kl == 0);
}

static void test_refused(void **state)
{
    (void)state;
    float x[4] = { 1, 2, 3, 4 };
    const float good[4] = { 1, 2, 3, 4 };
    nb_row_ref r, before;
    nb_row_diff d = { 7, 7, 7 };
    assert_int_equal(nb_lockstep_ref(x, 0, 0, &r), NB_ERR_ARG);
    assert_int_equal(nb_lockstep_ref(x, 4, 4, &r), NB_ERR_ARG);
    assert_int_equal(nb_lockstep_ref(x, 4, 0, &before), NB_OK);
    assert_int_equal(nb_lockstep_diff(x, &before, good, 4, 4, &d), NB_ERR_ARG);
    const float bad[2] = { NAN, INFINITY };
    for (size_t i = 0; i < 8; i++) {
        memcpy(x, good, sizeof x);
        x[i / 2] = bad[i % 2];
        assert_int_equal(nb_lockstep_ref(x, 4, 0, &r), NB_ERR_NONFINITE);
        assert_int_equal(nb_lockstep_diff(good, &before, x, 4, 0, &d), NB_ERR_NONFINITE);
    }
    for (size_t i = 0; i < 4; i++) x[i] = -INFINITY;
    assert_int_equal(nb_lockstep_ref(x, 4, 0, &r), NB_ERR_NONFINITE);
    memcpy(x, good, sizeof x);
    x[2] = -INFINITY; /* impossible in the variant, not in the reference: infinite */
    assert_int_equal(nb_lockstep_diff(good, &before, x, 4, 0, &d), NB_ERR_NONFINITE);
    assert_int_equal(nb_lockstep_ref(x, 4, 2, &r), NB_ERR_NONFINITE);
    assert_int_equal(d.same_best, 7);
}

/* ---- many rows -------------------------------------------------------------- */

enum { N_WINDOW = 3, LENGTH = 200, N_ROW = N_WINDOW * LENGTH };
static uint32_t window[N_ROW], pos[N_ROW];
static double kl[N_ROW], nll[N_ROW], nll_ref[N_ROW], same[N_ROW];

static nb_lockstep_rows make_rows(void)
{
    for (size_t i = 0; i < N_ROW; i++) {
        window[i] = (uint32_t)(i / LENGTH);
        pos[i] = (uint32_t)(i % LENGTH);
        kl[i] = nb_rng_unit(1, i) * (1 + pos[i]);
        nll_ref[i] = 3 + nb_rng_unit(2, i);
        nll[i] = nll_ref[i] + 0.1 * nb_rng_unit(3, i);
        same[i] = nb_rng_unit(4, i) < 0.9;
    }
    return (nb_lockstep_rows){ N_ROW, window, pos, nll_ref, nll, kl, same };
}

static void test_summary(void **state)
{
    (void)state;
    const nb_lockstep_rows r = make_rows();
    uint32_t block[N_ROW];
    nb_lockstep_blocks(&r, block);
    for (size_t i = 0; i < N_ROW; i++)
        assert_int_equal(block[i], i / LENGTH * 4 + i % LENGTH / 64); /* 64, 64, 64, 8 */
    const size_t range[3][2] = { { 0, SIZE_MAX }, { 0, 128 }, { 128, 150 } };
    for (size_t k = 0; k < 3; k++) {
        double mean = 0, max = 0, loss = 0, loss_ref = 0, agree = 0;
        size_t n = 0;
        for (size_t i = 0; i < N_ROW; i++) {
            if (pos[i] < range[k][0] || pos[i] >= range[k][1]) continue;
            n++;
            mean += kl[i];
            max = fmax(max, kl[i]);
            loss += nll[i];
            loss_ref += nll_ref[i];
            agree += same[i];
        }
        nb_lockstep_sum s;
        assert_int_equal(nb_lockstep_summarise(&r, range[k][0], range[k][1], 500, 1, &s), NB_OK);
        const double m = (double)n;
        assert_int_equal(s.n, n);
        near(s.kl.value, mean / m, 1e-12);
        near(s.kl_max, max, 0);
        near(s.same.value, agree / m, 1e-12);
        near(s.nll.value, loss / m, 1e-12);
        near(s.dnll.value, (loss - loss_ref) / m, 1e-12);
        near(s.ppl.value, exp(loss / m), 1e-9);
        near(s.ppl_ref.value, exp(loss_ref / m), 1e-9);
        near(s.ppl_ratio.value, exp((loss - loss_ref) / m), 1e-12);
        assert_true(s.kl.lo < s.kl.value && s.kl.value < s.kl.hi);
        assert_true(s.kl_median.value < s.kl_p95 && s.kl_p95 < s.kl_p99.value);
        assert_true(s.kl_p99.value <= s.kl_max);
        assert_true(s.dnll.hi - s.dnll.lo < s.nll.hi - s.nll.lo); /* paired */
    }
    nb_lockstep_sum s = { .n = 42 };
    assert_int_equal(nb_lockstep_summarise(&r, 200, 300, 500, 1, &s), NB_ERR_ARG);
    assert_int_equal(s.n, 42);
}

/* A block ends with its window, also where positions do not say so: short windows. */
static void test_short_windows(void **state)
{
    (void)state;
    const uint32_t w[6] = { 0, 0, 1, 1, 2, 2 }, p[6] = { 3, 4, 5, 6, 63, 64 };
    const nb_lockstep_rows r = { .n = 6, .window = w, .pos = p };
    const uint32_t want[6] = { 0, 0, 1, 1, 2, 3 };
    uint32_t block[6];
    nb_lockstep_blocks(&r, block);
    assert_memory_equal(block, want, sizeof want);
}

static void test_ranges(void **state)
{
    (void)state;
    size_t edge[NB_LOCKSTEP_RANGES + 1];
    assert_int_equal(nb_lockstep_ranges(0, edge), 1);
    assert_int_equal(nb_lockstep_ranges(255, edge), 1);
    assert_int_equal(nb_lockstep_ranges(256, edge), 2);
    assert_int_equal(nb_lockstep_ranges(2047, edge), 4);
    assert_true(edge[0] == 0 && edge[1] == 256 && edge[2] == 512 && edge[3] == 1024);
    assert_int_equal(edge[4], 2048);
    assert_int_equal(nb_lockstep_ranges(2048, edge), 5);
    assert_int_equal(nb_lockstep_ranges((size_t)1 << 20, edge), 14);
    assert_true(nb_lockstep_ranges(SIZE_MAX, edge) == NB_LOCKSTEP_RANGES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definitions), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_equal),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_summary),     cmocka_unit_test(test_short_windows),
        cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
