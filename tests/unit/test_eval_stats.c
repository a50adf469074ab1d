/* test_eval_stats.c - statistics of comparisons: closed forms, published tables, and how often
 * the intervals hold the truth on data of which it is known. */
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
#include "base/status.h"
#include "quality/stats.h"

static void near(double got, double want, double tol)
{
    if (!(fabs(got - want) <= tol)) fail_msg("got %.12g, expected %.12g +- %g", got, want, tol);
}

/* Normal deviates, by Box and Muller. */
static double gauss(uint64_t seed, uint64_t i)
{
    const double u = 1 - nb_rng_unit(seed, 2 * i), v = nb_rng_unit(seed, 2 * i + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* ---- summaries ------------------------------------------------------------ */

static void test_summary(void **state)
{
    (void)state;
    nb_summary s;
    double one[] = { -3 };
    nb_summarise(one, 1, &s);
    near(s.mean, -3, 0);
    near(s.median, -3, 0);
    near(s.p99, -3, 0);
    near(s.max, -3, 0);
    double x[] = { 4, 1, 3, 2 };
    nb_summarise(x, 4, &s);
    near(s.mean, 2.5, 0);
    near(s.median, 2.5, 0);
    near(s.p95, 3.85, 1e-12);
    near(s.p99, 3.97, 1e-12);
    near(s.max, 4, 0);
    double many[101];
    for (size_t i = 0; i < 101; i++) many[i] = (double)((i * 37) % 101);
    nb_summarise(many, 101, &s);
    near(s.median, 50, 1e-9);
    near(s.p95, 95, 1e-9);
    near(s.p99, 99, 1e-9);
    /* what a plain sum loses */
    double wide[] = { 1e16, 1, -1e16, 1 };
    nb_summarise(wide, 4, &s);
    near(s.mean, 0.5, 0);
}

/* ---- the bootstrap -------------------------------------------------------- */

enum { N_ITEM = 960, BLOCK = 16 };

/* Items that share most of their deviation within a block: mean mu. */
static void correlated(double *x, uint32_t *block, uint64_t seed, double mu)
{
    for (size_t i = 0; i < N_ITEM; i++) {
        block[i] = (uint32_t)(i / BLOCK);
        x[i] = mu + gauss(seed, i / BLOCK) + 0.5 * gauss(seed + 1000000, i);
    }
}

static void test_mean_closed_form(void **state)
{
    (void)state;
    enum { N = 4000 };
    static double x[N];
    double sum = 0, sum2 = 0;
    for (size_t i = 0; i < N; i++) {
        x[i] = 3 + 2 * gauss(7, i);
        sum += x[i];
        sum2 += x[i] * x[i];
    }
    const double mean = sum / N, sd = sqrt(sum2 / N - mean * mean);
    nb_ci c, again, other;
    assert_int_equal(nb_bootstrap_mean(x, NULL, N, 4000, 5, &c), NB_OK);
    near(c.value, mean, 1e-12);
    near(c.hi - c.lo, 2 * 1.959964 * sd / sqrt(N), 0.05 * sd / sqrt(N) * 4);
    near((c.hi + c.lo) / 2, mean, 0.1 * sd / sqrt(N));
    assert_int_equal(nb_bootstrap_mean(x, NULL, N, 4000, 5, &again), NB_OK);
    assert_memory_equal(&c, &again, sizeof c);
    assert_int_equal(nb_bootstrap_mean(x, NULL, N, 4000, 6, &other), NB_OK);
    assert_true(c.lo != other.lo && c.value == other.value);
    /* 0 rounds are 2000 */
    assert_int_equal(nb_bootstrap_mean(x, NULL, N, 0, 5, &again), NB_OK);
    assert_int_equal(nb_bootstrap_mean(x, NULL, N, 2000, 5, &other), NB_OK);
    assert_memory_equal(&again, &other, sizeof again);
}

/* Blocks of different lengths are weighted by them, and equal numbers further on are new runs. */
static void test_blocks(void **state)
{
    (void)state;
    const double x[] = { 1, 1, 1, 1, 1, 1, 9 };
    const uint32_t block[] = { 4, 4, 4, 4, 4, 4, 7 };
    nb_ci c;
    assert_int_equal(nb_bootstrap_mean(x, block, 7, 1000, 1, &c), NB_OK);
    near(c.value, 15.0 / 7, 1e-12);
    near(c.lo, 1, 0); /* both draws the long block: a quarter of the rounds */
    near(c.hi, 9, 0);
    const uint32_t again[] = { 1, 1, 1, 2, 2, 2, 1 };
    assert_int_equal(nb_bootstrap_mean(x, again, 7, 1000, 1, &c), NB_OK);
    near(c.lo, 1, 0);
    near(c.hi, 9, 0); /* the last one thrice: 1 of 27; as part of the first it would be 3 */
    const uint32_t one[] = { 3, 3, 3, 3, 3, 3, 3 };
    assert_int_equal(nb_bootstrap_mean(x, one, 7, 1000, 1, &c), NB_OK);
    near(c.value, 15.0 / 7, 1e-12);
    assert_true(isnan(c.lo) && isnan(c.hi));
}

/* Share of simulations whose interval holds the truth. */
static void test_coverage(void **state)
{
    (void)state;
    enum { N_SIM = 400 };
    static double x[N_ITEM], y[N_ITEM];
    static uint32_t block[N_ITEM];
    size_t held = 0, held_items = 0, held_diff = 0, held_median = 0;
    for (size_t i = 0; i < N_SIM; i++) {
        nb_ci c;
        correlated(x, block, 100 + i, 2);
        assert_int_equal(nb_bootstrap_mean(x, block, N_ITEM, 400, i, &c), NB_OK);
        held += c.lo <= 2 && 2 <= c.hi;
        assert_int_equal(nb_bootstrap_mean(x, NULL, N_ITEM, 100, i, &c), NB_OK);
        held_items += c.lo <= 2 && 2 <= c.hi;
        /* the second system: the same items, a little worse */
        for (size_t k = 0; k < N_ITEM; k++) y[k] = x[k] - 0.01 + 0.05 * gauss(900000 + i, k);
        assert_int_equal(nb_bootstrap_diff(x, y, block, N_ITEM, 400, i, &c), NB_OK);
        held_diff += c.lo <= 0.01 && 0.01 <= c.hi;
        assert_true(c.hi - c.lo < 0.02); /* paired: what they share does not count */
        if (i < 200) {
            assert_int_equal(nb_bootstrap_quantile(x, block, N_ITEM, 0.5, 200, i, &c), NB_OK);
            held_median += c.lo <= 2 && 2 <= c.hi;
        }
    }
    print_message("held by 95%% intervals: mean %.3f, paired difference %.3f, median %.3f; items "
                  "instead of blocks %.3f\n",
                  (double)held / N_SIM, (double)held_diff / N_SIM, (double)held_median / 200,
                  (double)held_items / N_SIM);
    assert_in_range(held, N_SIM * 91 / 100, N_SIM * 98 / 100);
    assert_in_range(held_diff, N_SIM * 91 / 100, N_SIM * 98 / 100);
    assert_in_range(held_median, 200 * 89 / 100, 200 * 99 / 100);
    assert_true(held_items < N_SIM * 70 / 100); /* why blocks are needed */
}

static void test_quantile(void **state)
{
    (void)state;
    static double x[1001];
    for (size_t i = 0; i < 1001; i++) x[i] = (double)((i * 617) % 1001);
    nb_ci c;
    assert_int_equal(nb_bootstrap_quantile(x, NULL, 1001, 0.99, 2000, 3, &c), NB_OK);
    near(c.value, 990, 1e-9);
    /* order statistics: 990 +- 1.96 sqrt(1001 * .99 * .01) */
    near(c.lo, 990 - 6.17, 2.1);
    near(c.hi, 990 + 6.17, 2.1);
    assert_int_equal(nb_bootstrap_quantile(x, NULL, 1001, 0, 200, 3, &c), NB_OK);
    near(c.value, 0, 0);
    assert_int_equal(nb_bootstrap_quantile(x, NULL, 1001, 1, 200, 3, &c), NB_OK);
    near(c.value, 1000, 0);
    near(c.hi, 1000, 0);
    assert_int_equal(nb_bootstrap_quantile(x, NULL, 1001, 1.5, 200, 3, &c), NB_ERR_ARG);
    assert_int_equal(nb_bootstrap_quantile(x, NULL, 1001, (double)NAN, 200, 3, &c), NB_ERR_ARG);
}

static void test_recovery(void **state)
{
    (void)state;
    enum { N = 512 };
    static double low[N], mid[N], high[N];
    static uint32_t block[N];
    for (size_t i = 0; i < N; i++) {
        const double common = 5 * gauss(1, i), gap = 1 + 0.2 * gauss(2, i);
        high[i] = common;
        low[i] = common + gap;
        mid[i] = common + 0.25 * gap + 0.05 * gauss(3, i);
        block[i] = (uint32_t)(i / 8);
    }
    nb_ci c;
    int valid = -1;
    assert_int_equal(nb_bootstrap_recovery(low, mid, high, block, N, 1000, 1, &c, &valid), NB_OK);
    assert_int_equal(valid, 1);
    near(c.value, 0.75, 0.01);
    assert_true(c.lo < 0.75 && 0.75 < c.hi && c.hi - c.lo < 0.03);
    /* scores: more is better, the same formula */
    for (size_t i = 0; i < N; i++) {
        low[i] = -low[i];
        mid[i] = -mid[i];
        high[i] = -high[i];
    }
    nb_ci s;
    assert_int_equal(nb_bootstrap_recovery(low, mid, high, block, N, 1000, 1, &s, &valid), NB_OK);
    assert_memory_equal(&c, &s, sizeof c);
    /* a gap within its own noise */
    for (size_t i = 0; i < N; i++) low[i] = high[i] + 0.01 * gauss(9, i);
    assert_int_equal(nb_bootstrap_recovery(low, mid, high, block, N, 1000, 1, &c, &valid), NB_OK);
    assert_int_equal(valid, 0);
    assert_true(isnan(c.value) && isnan(c.lo) && isnan(c.hi));
    /* none at all */
    assert_int_equal(nb_bootstrap_recovery(high, mid, high, block, N, 1000, 1, &c, &valid), NB_OK);
    assert_int_equal(valid, 0);
}

static void test_refused(void **state)
{
    (void)state;
    const double x[] = { 1, 2, 3 };
    nb_ci c = { 1, 2, 3 };
    const nb_ci before = c;
    int valid = 7;
    const double bad[] = { (double)NAN, (double)INFINITY, -(double)INFINITY };
    assert_int_equal(nb_bootstrap_mean(x, NULL, 0, 100, 1, &c), NB_ERR_ARG);
    for (size_t i = 0; i < 3; i++) {
        const double y[] = { 1, bad[i], 3 };
        assert_int_equal(nb_bootstrap_mean(y, NULL, 3, 100, 1, &c), NB_ERR_NONFINITE);
        assert_int_equal(nb_bootstrap_diff(x, y, NULL, 3, 100, 1, &c), NB_ERR_NONFINITE);
        assert_int_equal(nb_bootstrap_recovery(x, y, x, NULL, 3, 100, 1, &c, &valid),
                         NB_ERR_NONFINITE);
        assert_int_equal(nb_bootstrap_quantile(y, NULL, 3, 0.5, 100, 1, &c), NB_ERR_NONFINITE);
    }
    assert_int_equal(nb_bootstrap_mean(x, NULL, 3, (size_t)1 << 40, 1, &c), NB_ERR_LIMIT);
    assert_memory_equal(&c, &before, sizeof c);
    assert_int_equal(valid, 7);
}

/* ---- shares --------------------------------------------------------------- */

/* Newcombe 1998 (Statistics in Medicine 17:857-872), table I, method 3. */
static void test_wilson(void **state)
{
    (void)state;
    static const struct {
        size_t k, n;
        double lo, hi;
    } table[] = { { 81, 263, 0.2553, 0.3662 },
                  { 15, 148, 0.0624, 0.1605 },
                  { 0, 20, 0.0000, 0.1611 },
                  { 1, 29, 0.0061, 0.1718 } };
    for (size_t i = 0; i < NB_COUNT(table); i++) {
        const nb_ci c = nb_wilson(table[i].k, table[i].n);
        near(c.value, (double)table[i].k / (double)table[i].n, 1e-15);
        near(c.lo, table[i].lo, 5e-5);
        near(c.hi, table[i].hi, 5e-5);
        const nb_ci d = nb_wilson(table[i].n - table[i].k, table[i].n); /* the other way round */
        near(d.lo, 1 - c.hi, 1e-14);
        near(d.hi, 1 - c.lo, 1e-14);
    }
    const nb_ci none = nb_wilson(0, 0), all = nb_wilson(50, 50), zero = nb_wilson(0, 50);
    assert_true(none.lo == 0 && none.hi == 1);
    assert_true(all.hi == 1 && zero.lo == 0);
}

static void test_mcnemar(void **state)
{
    (void)state;
    near(nb_mcnemar(0, 0), 1, 0);
    near(nb_mcnemar(4, 4), 1, 0);
    near(nb_mcnemar(0, 1), 1, 1e-15);
    near(nb_mcnemar(0, 5), 2.0 / 32, 1e-15);
    near(nb_mcnemar(6, 1), 2.0 * 8 / 128, 1e-15);
    near(nb_mcnemar(2, 10), 2.0 * (1 + 12 + 66) / 4096, 1e-14);
    near(nb_mcnemar(10, 2), nb_mcnemar(2, 10), 0);
    near(nb_mcnemar(9, 10), 1, 1e-12); /* 2 P(X <= 9) of 19 is exactly 1 */
    /* all tails of 60 by Pascal's triangle, exact in 64 bits */
    uint64_t choose[61] = { 1 };
    for (size_t n = 1; n <= 60; n++)
        for (size_t k = n; k > 0; k--) choose[k] += choose[k - 1];
    double tail = 0;
    for (size_t b = 0; b < 30; b++) {
        tail += (double)choose[b];
        const double p = 2 * tail / 0x1p60;
        near(nb_mcnemar(b, 60 - b) / p, 1, 1e-12);
    }
    /* large and far out: the normal approximation's logarithm, and no underflow to nonsense */
    assert_true(nb_mcnemar(0, 1000) > 0 && nb_mcnemar(0, 1000) < 1e-300);
    near(nb_mcnemar(0, 100000), 0, 0);
    near(nb_mcnemar(5000, 5200), erfc(199.0 / sqrt(10200.0) / sqrt(2)), 5e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary),  cmocka_unit_test(test_mean_closed_form),
        cmocka_unit_test(test_blocks),   cmocka_unit_test(test_coverage),
        cmocka_unit_test(test_quantile), cmocka_unit_test(test_recovery),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_wilson),
        cmocka_unit_test(test_mcnemar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
