/* test_num_formats.c - the scalar formats against tables in double.
 *
 * Each format is described by the increasing list of its non-negative values;
 * the slow reference searches it for the nearest one, ties to the even code.
 * Checked: every code, every midpoint of neighbouring values with the floats just
 * below and above it, both signs, and random bit patterns. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/fp16.h"
#include "num/int4.h"
#include "num/ue8m0.h"

enum { MAX_CODES = 0x7f81, N_RANDOM = 400000 };

typedef struct format {
    const char *name;
    unsigned n, sign;        /* non-negative codes 0..n-1; the sign bit */
    double value[MAX_CODES]; /* the last may stand for infinity         */
    unsigned (*from)(float x);
    double (*to)(unsigned code);
} format;

static unsigned from_bf16(float x)
{
    return nb_bf16_from_f32(x);
}
static unsigned from_fp16(float x)
{
    return nb_fp16_from_f32(x);
}
static unsigned from_e4m3(float x)
{
    return nb_e4m3_from_f32(x);
}
static unsigned from_e2m1(float x)
{
    return nb_e2m1_from_f32(x);
}
static double to_bf16(unsigned c)
{
    return (double)nb_bf16_to_f32((uint16_t)c);
}
static double to_fp16(unsigned c)
{
    return (double)nb_fp16_to_f32((uint16_t)c);
}
static double to_e4m3(unsigned c)
{
    return (double)nb_e4m3_to_f32((uint8_t)c);
}
static double to_e2m1(unsigned c)
{
    return (double)nb_e2m1_to_f32((uint8_t)c);
}

/* (exponent bits, fraction bits, bias) -> value, from the definition. */
static double define(unsigned code, int frac_bits, int bias)
{
    const int ex = (int)(code >> frac_bits);
    const double f = (double)(code & ((1u << frac_bits) - 1)) / (double)(1u << frac_bits);
    return ex ? ldexp(1 + f, ex - bias) : ldexp(f, 1 - bias);
}

static format fmt_list[4] = {
    { .name = "bf16", .n = 0x7f81, .sign = 0x8000, .from = from_bf16, .to = to_bf16 },
    { .name = "fp16", .n = 0x7c01, .sign = 0x8000, .from = from_fp16, .to = to_fp16 },
    { .name = "e4m3", .n = 0x7f, .sign = 0x80, .from = from_e4m3, .to = to_e4m3 },
    { .name = "e2m1", .n = 8, .sign = 8, .from = from_e2m1, .to = to_e2m1 },
};
static const int frac_bits[4] = { 7, 10, 3, 1 }, bias[4] = { 127, 15, 7, 1 };

static int set_up(void **state)
{
    (void)state;
    for (unsigned f = 0; f < 4; f++)
        for (unsigned c = 0; c < fmt_list[f].n; c++)
            fmt_list[f].value[c] = define(c, frac_bits[f], bias[f]);
    return 0;
}

/* Nearest code of |v|; ties to even; over the end of the list: its last code. */
static unsigned nearest(const format *f, double v)
{
    unsigned lo = 0, hi = f->n - 1;
    if (v >= f->value[hi]) return hi;
    while (hi - lo > 1) {
        const unsigned mid = (lo + hi) / 2;
        if (f->value[mid] <= v)
            lo = mid;
        else
            hi = mid;
    }
    const double d = (v - f->value[lo]) - (f->value[hi] - v);
    return d < 0 ? lo : d > 0 ? hi : lo + (lo & 1);
}

static void expect(const format *f, float x)
{
    const unsigned want = nearest(f, fabs((double)x)) | (signbit(x) ? f->sign : 0);
    const unsigned got = f->from(x);
    if (got != want) {
        print_error("%s: %a gives 0x%x, expected 0x%x\n", f->name, (double)x, got, want);
        fail();
    }
}

static void all_codes(void **state)
{
    (void)state;
    for (const format *f = fmt_list; f < fmt_list + 4; f++)
        for (unsigned c = 0; c < f->n; c++) {
            const int last = f->value[c] == 0x1p128 || (f->n == 0x7c01 && c == 0x7c00);
            const double want = last ? (double)INFINITY : f->value[c];
            assert_true(f->to(c) == want && f->to(c | f->sign) == -want);
            assert_true(signbit(f->to(c | f->sign)) && !signbit(f->to(c)));
            assert_int_equal(f->from((float)want), c);
            assert_int_equal(f->from(-(float)want), c | f->sign);
        }
}

static void all_ties(void **state)
{
    (void)state;
    for (const format *f = fmt_list; f < fmt_list + 4; f++)
        for (unsigned c = 0; c + 1 < f->n; c++) {
            const float at = (float)f->value[c], mid = (float)((f->value[c] + f->value[c + 1]) / 2);
            const float x[] = { at,  nextafterf(at, 0),  nextafterf(at, INFINITY),
                                mid, nextafterf(mid, 0), nextafterf(mid, INFINITY) };
            for (unsigned i = 0; i < 6; i++) {
                expect(f, x[i]);
                expect(f, -x[i]);
            }
        }
}

static void random_floats(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_RANDOM; i++) {
        const uint64_t r = nb_rng_u64(1, i);
        float x = nb_f32_from_bits((uint32_t)r);
        if (isnan(x)) continue;
        for (const format *f = fmt_list; f < fmt_list + 4; f++) expect(f, x);
        /* and one in the range where the small formats have their values */
        x = nb_f32_from_bits((uint32_t)((r >> 32 & 0x80ffffffu) + ((110u + (r & 31)) << 23)));
        for (const format *f = fmt_list; f < fmt_list + 4; f++) expect(f, x);
    }
}

static void not_numbers(void **state)
{
    (void)state;
    const uint32_t nans[] = { 0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff };
    for (unsigned i = 0; i < 5; i++) {
        const float x = nb_f32_from_bits(nans[i]);
        const unsigned s = nans[i] >> 31;
        assert_true(isnan(nb_bf16_to_f32(nb_bf16_from_f32(x))));
        assert_int_equal(nb_bf16_from_f32(x) & 0x8040, s << 15 | 0x40);
        assert_true(isnan(nb_fp16_to_f32(nb_fp16_from_f32(x))));
        assert_int_equal(nb_fp16_from_f32(x) & 0x8200, s << 15 | 0x200);
        assert_int_equal(nb_e4m3_from_f32(x), s << 7 | 0x7f);
    }
    assert_true(isnan(nb_e4m3_to_f32(0x7f)) && isnan(nb_e4m3_to_f32(0xff)));
    assert_true(nb_e4m3_is_nan(0x7f) && nb_e4m3_is_nan(0xff) && !nb_e4m3_is_nan(0x7e));
    assert_int_equal(nb_e4m3_from_f32(INFINITY), 0x7e);
    assert_int_equal(nb_e4m3_from_f32(-INFINITY), 0xfe);
    assert_int_equal(nb_e2m1_from_f32(-INFINITY), 15);
    assert_int_equal(nb_fp16_from_f32(INFINITY), 0x7c00);
    assert_int_equal(nb_fp16_from_f32(65519.99f), 0x7bff);
    assert_int_equal(nb_fp16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(nb_fp16_from_f32_sat(-65520.0f), 0xfbff);
    assert_int_equal(nb_fp16_from_f32_sat(INFINITY), 0x7bff);
    assert_int_equal(nb_bf16_from_f32(0x1.fefffep127f), 0x7f7f);
    assert_int_equal(nb_bf16_from_f32(0x1.ffp127f), 0x7f80);
    for (unsigned h = 0x7c01; h < 0x8000; h++) { /* all NaN codes come back as themselves, quiet */
        assert_int_equal(nb_fp16_from_f32(nb_fp16_to_f32((uint16_t)h)), h | 0x200);
        assert_int_equal(nb_fp16_from_f32(nb_fp16_to_f32((uint16_t)(h | 0x8000))), h | 0x8200);
    }
    for (unsigned b = 0; b < 0x10000; b++)
        assert_int_equal(nb_bf16_is_finite((uint16_t)b),
                         isfinite(nb_bf16_to_f32((uint16_t)b)) != 0);
}

/* The values of the specification's section on ties. */
static void named_values(void **state)
{
    (void)state;
    assert_int_equal(nb_e4m3_from_f32(1.0625f), 0x38);
    assert_int_equal(nb_e4m3_from_f32(1.1875f), 0x3a);
    assert_int_equal(nb_e4m3_from_f32(0x1p-10f), 0);
    assert_int_equal(nb_e4m3_from_f32(3 * 0x1p-10f), 2);
    assert_int_equal(nb_e4m3_from_f32(463.99f), 0x7e);
    assert_int_equal(nb_e4m3_from_f32(464.0f), 0x7e);
    const float tie[] = { .25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f };
    const float want[] = { 0, 1, 1, 2, 2, 4, 4 };
    for (unsigned i = 0; i < 7; i++) {
        assert_true(nb_e2m1_to_f32(nb_e2m1_from_f32(tie[i])) == want[i]);
        assert_true(nb_e2m1_bound[i] == tie[i]);
    }
}

static void ue8m0(void **state)
{
    (void)state;
    for (unsigned b = 0; b < 255; b++) {
        const float v = nb_ue8m0_to_f32((uint8_t)b);
        assert_true((double)v == ldexp(1, (int)b - 127));
        assert_int_equal(nb_ue8m0_from_f32_up(v), b);
        assert_int_equal(nb_ue8m0_from_f32_up(nextafterf(v, 0)), b);
        assert_int_equal(nb_ue8m0_from_f32_up(nextafterf(v, INFINITY)), b < 254 ? b + 1 : 254);
    }
    assert_true(isnan(nb_ue8m0_to_f32(255)));
    assert_int_equal(nb_ue8m0_from_f32_up(NAN), 255);
    assert_int_equal(nb_ue8m0_from_f32_up(0), 0);
    assert_int_equal(nb_ue8m0_from_f32_up(-1), 0);
    assert_int_equal(nb_ue8m0_from_f32_up(INFINITY), 254);
    assert_int_equal(nb_ue8m0_from_exp(0, 2, 253), 127);
    assert_int_equal(nb_ue8m0_from_exp(-200, 2, 253), 2);
    assert_int_equal(nb_ue8m0_from_exp(200, 2, 253), 253);
}

/* Exponents from bits, for every positive BF16. */
static void bf16_scaling(void **state)
{
    (void)state;
    for (unsigned b = 1; b < 0x7f80; b++) {
        const double v = (double)nb_bf16_to_f32((uint16_t)b);
        for (unsigned t = 128; t < 256; t += 32) {
            const int e = nb_bf16_ceil_log2((uint16_t)b, t);
            assert_true(ldexp(t / 128.0, e) >= v && ldexp(t / 128.0, e - 1) < v);
            assert_int_equal(nb_bf16_ceil_log2((uint16_t)(b | 0x8000), t), e);
        }
        for (int p = -126; p <= 125; p++) {
            const double want = ldexp(v, p);
            if (want >= 0x1p128) continue;
            const double got = (double)nb_bf16_mag_scaled((uint16_t)(b | (b & 1) << 15), p);
            assert_true(want < 0x1p-126 ? got == 0 || got == want : got == want);
        }
    }
    assert_true(nb_bf16_mag_scaled(0, 5) == 0 && nb_bf16_mag_scaled(0x8000, 125) == 0);
}

/* a / d for every 8-bit significand: the nearest code by cross-multiplication. */
static void e4m3_quotient(void **state)
{
    (void)state;
    const format *f = &fmt_list[2];
    for (int d = 1; d <= 7; d++)
        for (int k = -40; k <= 12; k++)
            for (unsigned m = 128; m < 256; m++) {
                const double a = ldexp(m, k - 7);
                unsigned want = 0;
                for (unsigned c = 1; c < f->n; c++) {
                    const double now = fabs(a - d * f->value[c]),
                                 old = fabs(a - d * f->value[want]);
                    if (now < old || (now == old && c % 2 == 0)) want = c;
                }
                assert_int_equal(nb_e4m3_quotient((float)a, d), want);
            }
    assert_int_equal(nb_e4m3_quotient(0, 6), 0);
    assert_int_equal(nb_e4m3_quotient(6 * 0x1p-10f, 6), 0); /* tie at half the smallest value */
    assert_int_equal(nb_e4m3_quotient(18 * 0x1p-10f, 6), 2);
}

static void int4_rules(void **state)
{
    (void)state;
    const format *f = &fmt_list[1];
    for (unsigned i = 0; i < N_RANDOM; i++) {
        const uint64_t r = nb_rng_u64(2, i);
        /* a random float, or 15 times a midpoint or a value of FP16, or its neighbour */
        float range = nb_f32_from_bits((uint32_t)(r & 0xffffff) + ((uint32_t)(90 + r % 61) << 23));
        if (i % 2) {
            const unsigned c = (unsigned)(r >> 32) % 0x7bff;
            range = (float)(7.5 * (f->value[c] + f->value[c + (r >> 60 & 1)]));
            if (i % 8 == 3) range = nextafterf(range, 0);
            if (i % 8 == 5) range = nextafterf(range, INFINITY);
        }
        if (range <= 0) continue;
        const uint16_t s = nb_int4_scale(range);
        if ((double)range >= 15 * 65504.0) {
            assert_int_equal(s, 0x7bff);
        } else {
            const double up = 7.5 * (f->value[s] + f->value[s + 1]);
            const double lo = s ? 7.5 * (f->value[s] + f->value[s - 1]) : -1;
            assert_true((double)range > lo || ((double)range == lo && s % 2 == 0));
            assert_true((double)range < up || ((double)range == up && s % 2 == 0) || s == 0x7bff);
        }
        const float sf = nb_fp16_to_f32(s), d = range * (float)nb_rng_unit(3, i);
        const double ratio = s ? fmin((double)d / (double)sf, 15) : 0;
        const unsigned q = nb_int4_code(d, sf);
        assert_true(q <= 15);
        assert_true(fabs(ratio - q) <= 0.5 + 1e-12);
    }
    for (unsigned h = 1; h < 0x7c00; h += 7) { /* ties: (j + 1/2) s goes to the even neighbour */
        const float s = nb_fp16_to_f32((uint16_t)h);
        for (unsigned j = 0; j < 15; j++) {
            const float d = s * ((float)j + 0.5f);
            assert_int_equal(nb_int4_code(d, s), j + (j & 1));
            assert_int_equal(nb_int4_code(nextafterf(d, 0), s), j);
            assert_int_equal(nb_int4_code(nextafterf(d, INFINITY), s), j + 1);
        }
        assert_int_equal(nb_int4_code(16 * s, s), 15);
        assert_int_equal(nb_int4_code(-s, s), 0);
    }
    assert_int_equal(nb_int4_scale(0), 0);
    assert_int_equal(nb_int4_scale(-1), 0);
    assert_int_equal(nb_int4_scale(15), 0x3c00);
    assert_int_equal(nb_int4_scale(3e38f), 0x7bff);
    assert_int_equal(nb_int4_scale(1e-30f), 0);
    assert_int_equal(nb_int4_code(5, 0), 0);
    uint8_t b[2] = { 0 };
    nb_nibble_or(b, 0, 5);
    nb_nibble_or(b, 1, 9);
    nb_nibble_or(b, 2, 15);
    assert_int_equal(b[0], 0x95);
    assert_int_equal(b[1], 0x0f);
    assert_int_equal(nb_nibble_get(b, 1), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_codes),     cmocka_unit_test(all_ties),
        cmocka_unit_test(random_floats), cmocka_unit_test(not_numbers),
        cmocka_unit_test(named_values),  cmocka_unit_test(ue8m0),
        cmocka_unit_test(bf16_scaling),  cmocka_unit_test(e4m3_quotient),
        cmocka_unit_test(int4_rules),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
