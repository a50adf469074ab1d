/* test_record_quality.c - how much each record loses, on seeded Gaussian latents.
 *
 * The figures are relative RMSE in percent.  Expected ones come from
 * docs/number-formats.md (measured there with another generator and more data);
 * the tolerance of 0.1 points is several standard errors of 131,072 values, and
 * far less than the distance between neighbouring formats. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "unit/record_data.h"

enum { DIM = 512, ROPE = 64, N_PAGE = 4 };

static double gauss(uint64_t seed, uint64_t i)
{
    const double u = 1 - nb_rng_unit(seed, 2 * i), v = nb_rng_unit(seed, 2 * i + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Relative RMSE in percent of segment s; token t is scaled by scale[t % 3]. */
static double rmse(nb_kv_type type, nb_kv_mode mode, size_t s, const float scale[3])
{
    enum { N = DIM + ROPE };
    static uint16_t x[64 * N];
    static uint8_t page[1 << 18];
    static float out[64 * DIM];
    const nb_record_opts o = { .type = type, .mode = mode, NB_SEGS_MLA(DIM, ROPE) };
    const size_t dim[2] = { DIM, ROPE };
    nb_record r;
    double err = 0, sum = 0;
    assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
    for (size_t n = 0; n < N_PAGE; n++) {
        for (size_t k = 0; k < 2; k++)
            for (size_t i = 0; i < 64 * dim[k]; i++)
                x[i / dim[k] * N + k * DIM + i % dim[k]] = nb_bf16_from_f32(
                    (float)gauss(11 + k, n * 64 * DIM + i) * scale[i / dim[k] % 3]);
        assert_int_equal(nb_record_encode_page(&r, page, x, N), NB_OK);
        nb_record_decode(&r, page, s, 0, 64, out, dim[s]);
        for (size_t i = 0; i < 64 * dim[s]; i++) {
            const double u = 1 / (double)scale[i / dim[s] % 3];
            const uint16_t was = x[i / dim[s] * N + s * DIM + i % dim[s]];
            const double v = u * (double)nb_bf16_to_f32(was), d = u * (double)out[i] - v;
            err += d * d;
            sum += v * v;
        }
    }
    return 100 * sqrt(err / sum);
}

static const float same[3] = { 1, 1, 1 }, mixed[3] = { 1e-3f, 1, 30 };

static void expect(nb_kv_type type, nb_kv_mode mode, size_t s, const float scale[3], double want)
{
    const double got = rmse(type, mode, s, scale);
    print_message("%-10s mode %d segment %zu: %.3f%%\n", nb_kv_type_name(type), (int)mode, s, got);
    if (fabs(got - want) > 0.1)
        fail_msg("%s mode %d segment %zu: %.3f%%, expected %.2f%%", nb_kv_type_name(type),
                 (int)mode, s, got, want);
}

static void gaussian(void **state)
{
    (void)state;
    const struct {
        nb_kv_type type;
        nb_kv_mode mode;
        double want;
    } c[] = {
        { NB_KV_BF16, NB_KV_BASIC, 0 },      { NB_KV_FP8, NB_KV_BASIC, 2.63 },
        { NB_KV_NVFP4, NB_KV_BASIC, 9.51 },  { NB_KV_NVFP4, NB_KV_4OVER6, 8.70 },
        { NB_KV_NVFP4, NB_KV_SEARCH, 8.12 }, { NB_KV_IF4, NB_KV_SEARCH, 7.43 },
        { NB_KV_MXFP4, NB_KV_BASIC, 11.5 },  { NB_KV_FP8_DS_MLA, NB_KV_BASIC, 2.63 },
    };
    for (size_t i = 0; i < NB_COUNT(c); i++) {
        expect(c[i].type, c[i].mode, 0, same, c[i].want);
        expect(c[i].type, c[i].mode, 0, mixed,
               c[i].want); /* the scale of a token does not matter */
    }
    expect(NB_KV_INT4, NB_KV_BASIC, 0, same, 7.83);
    for (size_t i = 1; i < NB_COUNT(c) - 1; i++) expect(c[i].type, c[i].mode, 1, mixed, 2.63);
}

/* More candidates never lose: each list contains the one before. */
static void more_is_better(void **state)
{
    (void)state;
    const double basic = rmse(NB_KV_IF4, NB_KV_BASIC, 0, same);
    const double four = rmse(NB_KV_IF4, NB_KV_4OVER6, 0, same);
    const double search = rmse(NB_KV_IF4, NB_KV_SEARCH, 0, same);
    assert_true(basic > four && four > search);
    assert_true(basic < rmse(NB_KV_NVFP4, NB_KV_BASIC, 0, same));
    assert_true(four < rmse(NB_KV_NVFP4, NB_KV_4OVER6, 0, same));
}

/* ---- rope keys: E4M3 errs in proportion to a value, INT8 by the same for all values of a token ---- */

/* Relative error of scores q . k in percent, root mean square over tokens: keys and queries of
 * independent normal values, the first n_large pairs of the keys `key` times as large, of the
 * queries `query` times. */
static double score_error(nb_rope_fmt fmt, size_t n_large, double key, double query, size_t n_out)
{
    static uint16_t x[64 * 2 * ROPE]; /* the latents stay 0 */
    static uint8_t page[1 << 18];
    static float out[64 * ROPE];
    static const uint16_t places[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    const nb_record_opts o = { .type = NB_KV_NVFP4,
                               .rope = fmt,
                               NB_SEGS_MLA(ROPE, ROPE),
                               .seg[1].outlier = places,
                               .seg[1].n_outlier = n_out };
    nb_record r;
    double err = 0, sum = 0;
    assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
    for (size_t n = 0; n < N_PAGE; n++) {
        for (size_t i = 0; i < 64 * ROPE; i++) {
            const double f = i % ROPE < 2 * n_large ? key : 1;
            x[i / ROPE * 2 * ROPE + ROPE + i % ROPE] =
                nb_bf16_from_f32((float)(f * gauss(21, n * 64 * ROPE + i)));
        }
        assert_int_equal(nb_record_encode_page(&r, page, x, 2 * ROPE), NB_OK);
        nb_record_decode(&r, page, 1, 0, 64, out, ROPE);
        for (size_t t = 0; t < 64; t++)
            for (size_t h = 0; h < 16; h++) { /* heads */
                double s = 0, d = 0;
                for (size_t i = 0; i < ROPE; i++) {
                    const double f = i < 2 * n_large ? query : 1;
                    const double q = f * gauss(22, ((n * 64 + t) * 16 + h) * ROPE + i);
                    const double k = (double)nb_bf16_to_f32(x[t * 2 * ROPE + ROPE + i]);
                    s += q * k;
                    d += q * ((double)out[t * ROPE + i] - k);
                }
                err += d * d;
                sum += s * s;
            }
    }
    return 100 * sqrt(err / sum);
}

static void near(const char *what, double got, double want)
{
    print_message("%-44s %.3f%%\n", what, got);
    if (fabs(got - want) > 0.06 * want) fail_msg("%s: %.3f%%, expected %.3f%%", what, got, want);
}

/* docs/decisions/017-rope-key-in-int8.md has the rule: E4M3 wins where the values of a key,
 * weighted by the squares of the queries', have a root mean square under 10.9 steps of INT8. */
static void rope_keys(void **state)
{
    (void)state;
    /* Pairs alike: the largest of 64 normal values is mostly in 1.98..3.97, where a step is 2^-5;
     * 2^-5 / sqrt(12) = 0.90%. */
    near("alike: fp8", score_error(NB_ROPE_FP8, 0, 1, 1, 0), 2.65);
    near("alike: int8", score_error(NB_ROPE_INT8, 0, 1, 1, 0), 0.91);
    /* One pair 200 times as large: its own error is all there is, and INT8 still has less of it. */
    near("one pair large: fp8", score_error(NB_ROPE_FP8, 1, 200, 1, 0), 2.65);
    assert_true(score_error(NB_ROPE_INT8, 1, 200, 1, 0) <
                score_error(NB_ROPE_FP8, 1, 200, 1, 0) * 1.2);
    /* The same pair with queries that look at it 200 times less: INT8's step drowns all others. */
    near("one pair large, queries small: fp8", score_error(NB_ROPE_FP8, 1, 200, 1 / 200.0, 0),
         2.65);
    assert_true(score_error(NB_ROPE_INT8, 1, 200, 1 / 200.0, 0) > 40);
    /* Kept in BF16, it does not. */
    near("the same, 4 pairs in bf16: int8", score_error(NB_ROPE_INT8, 1, 200, 1 / 200.0, 8), 0.85);
    assert_true(score_error(NB_ROPE_BF16, 1, 200, 1 / 200.0, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(gaussian),
                                        cmocka_unit_test(more_is_better),
                                        cmocka_unit_test(rope_keys) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
