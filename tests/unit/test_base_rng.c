/* test_base_rng.c - random numbers and hashes: fixed values, and statistics with bounds
 * of five to six standard deviations (the seeds are fixed: no test is ever unlucky). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"

/* The first outputs of SplitMix64 from state 1234567, a published test vector. */
static void test_mix_vector(void **state)
{
    (void)state;
    static const uint64_t want[5] = { 6457827717110365317u, 3203168211198807973u,
                                      9817491932198370423u, 4593380528125082431u,
                                      16408922859458223821u };
    uint64_t s = 1234567;
    for (int i = 0; i < 5; i++) {
        assert_true(nb_mix64(s) == want[i]);
        s += 0x9e3779b97f4a7c15u;
    }
}

/* Chi-square of 256 bins for every byte position, for indices and for seeds that count up. */
static void test_uniform(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    for (int by_seed = 0; by_seed < 2; by_seed++)
        for (int byte = 0; byte < 8; byte++) {
            unsigned bin[256] = { 0 };
            for (uint64_t i = 0; i < N; i++)
                bin[(by_seed ? nb_rng_u64(i, 3) : nb_rng_u64(3, i)) >> (8 * byte) & 0xff]++;
            double chi2 = 0;
            for (int b = 0; b < 256; b++) {
                const double d = (double)bin[b] - N / 256.0;
                chi2 += d * d / (N / 256.0);
            }
            /* 255 degrees of freedom: mean 255, deviation 22.6 */
            assert_true(chi2 > 255 - 5 * 22.6 && chi2 < 255 + 6 * 22.6);
        }
}

static void test_unit(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    double m1 = 0, m2 = 0, lag = 0, last = 0.5;
    for (uint64_t i = 0; i < N; i++) {
        const double u = nb_rng_unit(99, i);
        assert_true(u >= 0 && u < 1);
        m1 += u - 0.5;
        m2 += (u - 0.5) * (u - 0.5);
        lag += (u - 0.5) * (last - 0.5);
        last = u;
    }
    m1 /= N;
    m2 /= N;
    lag /= N;
    assert_true(m1 > -5 * 2.9e-4 && m1 < 5 * 2.9e-4);                      /* 1/sqrt(12 N) */
    assert_true(m2 > 1 / 12.0 - 5 * 7.3e-5 && m2 < 1 / 12.0 + 5 * 7.3e-5); /* 1/sqrt(180 N) */
    assert_true(lag > -5 * 8.2e-5 && lag < 5 * 8.2e-5);                    /* 1/(12 sqrt N) */
}

/* One changed bit of the index or the seed changes half of the output's bits. */
static void test_avalanche(void **state)
{
    (void)state;
    for (int bit = 0; bit < 64; bit++) {
        unsigned n_index = 0, n_seed = 0;
        for (uint64_t i = 0; i < 256; i++) {
            const uint64_t a = nb_rng_u64(i, i * 77);
            uint64_t x = a ^ nb_rng_u64(i, i * 77 ^ 1ull << bit),
                     y = a ^ nb_rng_u64(i ^ 1ull << bit, i * 77);
            for (; x; x &= x - 1) n_index++;
            for (; y; y &= y - 1) n_seed++;
        }
        /* mean 8192, deviation 64 */
        assert_true(n_index > 8192 - 6 * 64 && n_index < 8192 + 6 * 64);
        assert_true(n_seed > 8192 - 6 * 64 && n_seed < 8192 + 6 * 64);
    }
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* No collisions among all strings of up to two bytes, zeros of many lengths, and single
 * bits in long strings; the alignment of the bytes does not matter. */
static void test_hash(void **state)
{
    (void)state;
    enum { MOST = 70000 };
    uint64_t *h = malloc(MOST * sizeof *h);
    assert_non_null(h);
    size_t n = 0;
    unsigned char s[128] = { 0 };
    h[n++] = nb_hash_bytes(s, 0, 5);
    for (unsigned a = 0; a < 256; a++) {
        s[0] = (unsigned char)a;
        h[n++] = nb_hash_bytes(s, 1, 5);
        for (unsigned b = 0; b < 256; b++) {
            s[1] = (unsigned char)b;
            h[n++] = nb_hash_bytes(s, 2, 5);
        }
    }
    memset(s, 0, sizeof s);
    for (size_t k = 3; k <= sizeof s; k++) h[n++] = nb_hash_bytes(s, k, 5);
    for (size_t bit = 0; bit < 8 * sizeof s; bit++) {
        s[bit / 8] = (unsigned char)(1u << bit % 8);
        h[n++] = nb_hash_bytes(s, sizeof s, 5);
        s[bit / 8] = 0;
    }
    assert_true(n <= MOST);
    qsort(h, n, sizeof *h, by_value);
    for (size_t i = 1; i < n; i++) assert_true(h[i] != h[i - 1]);
    free(h);
    unsigned char shifted[40];
    for (size_t k = 0; k < 8; k++) {
        for (size_t i = 0; i < 29; i++) shifted[k + i] = (unsigned char)(i * 7);
        for (size_t i = 0; i < 29; i++) s[i] = (unsigned char)(i * 7);
        assert_true(nb_hash_bytes(shifted + k, 29, 1) == nb_hash_bytes(s, 29, 1));
        assert_true(nb_hash_bytes(shifted + k, 29, 1) != nb_hash_bytes(s, 29, 2));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mix_vector), cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_unit),       cmocka_unit_test(test_avalanche),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
