/* test_weight_encode.c - encoders of weights: what they write reads back as the nearest values, never worse than the
 * plain scale, exactly where the values are representable. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/fit.h"
#include "num/fp16.h"
#include "num/ggml.h"
#include "num/ggml_encode.h"
#include "num/weight_encode.h"

enum { N = 256, MAX_BYTES = 4 * N };

typedef struct form {
    const char *name;
    nb_ggml_encode_fn *encode;
    nb_ggml_values_fn *values;
    size_t block, bytes;
    double bound; /* of the root of the error over that of the values, for normal ones */
} form;
// clang-format off
static const form forms[] = {
    { "q8_0", nb_ggml_encode_q8_0, nb_ggml_q8_0,  32,  34, 0.007 }, { "q4_0", nb_ggml_encode_q4_0, nb_ggml_q4_0,  32,  18, 0.105 },
    { "q4_1", nb_ggml_encode_q4_1, nb_ggml_q4_1,  32,  20, 0.09 },  { "q5_0", nb_ggml_encode_q5_0, nb_ggml_q5_0,  32,  22, 0.055 },
    { "q5_1", nb_ggml_encode_q5_1, nb_ggml_q5_1,  32,  24, 0.045 }, { "q2_k", nb_ggml_encode_q2_k, nb_ggml_q2_k, 256,  84, 0.32 },
    { "q3_k", nb_ggml_encode_q3_k, nb_ggml_q3_k, 256, 110, 0.2 },   { "q4_k", nb_ggml_encode_q4_k, nb_ggml_q4_k, 256, 144, 0.09 },
    { "q5_k", nb_ggml_encode_q5_k, nb_ggml_q5_k, 256, 176, 0.045 }, { "q6_k", nb_ggml_encode_q6_k, nb_ggml_q6_k, 256, 210, 0.022 },
    { "f16",  nb_ggml_encode_f16,  nb_ggml_f16,    1,   2, 3e-4 },  { "bf16", nb_ggml_encode_bf16, nb_ggml_bf16,   1,   2, 3e-3 },
};
// clang-format on

/* Nearly normal values. */
static void normals(uint64_t seed, float *x, float scale)
{
    for (size_t i = 0; i < N; i++) {
        double s = -6;
        for (uint64_t k = 0; k < 12; k++) s += nb_rng_unit(seed, 12 * i + k);
        x[i] = (float)s * scale;
    }
}

static double error_of(const float *x, const float *y)
{
    double e = 0, s = 0;
    for (size_t i = 0; i < N; i++) {
        e += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        s += (double)x[i] * (double)x[i];
    }
    return s > 0 ? sqrt(e / s) : sqrt(e);
}

static void test_ggml(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (int round = 0; round < 8; round++) {
            float x[N], y[N], z[N];
            uint8_t b[MAX_BYTES], again[MAX_BYTES];
            const size_t n = N / forms[f].block;
            normals((uint64_t)round, x, round < 4 ? 0.02f : 1.5f);
            memset(b, 0xa5, sizeof b);
            forms[f].encode(x, NULL, n, b);
            forms[f].values(b, n, y);
            const double e = error_of(x, y);
            if (!(e <= forms[f].bound)) fail_msg("%s: error %g", forms[f].name, e);
            assert_int_equal(b[n * forms[f].bytes], 0xa5);
            /* values that the form has come back within its own rounding */
            forms[f].encode(y, NULL, n, again);
            forms[f].values(again, n, z);
            if (!(error_of(y, z) <= forms[f].bound / 2))
                fail_msg("%s: again %g", forms[f].name, error_of(y, z));
        }
}

/* Zeros, one value, equal values, one outlier, subnormal FP16 scales, more than FP16 has. */
static void test_ggml_edges(void **state)
{
    (void)state;
    static const float all[] = { 0, 1, -1, 3e-7f, -1e-30f, 7e4f, 1e30f };
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t k = 0; k < 2 * sizeof all / sizeof *all; k++) {
            float x[N], y[N];
            uint8_t b[MAX_BYTES];
            const float v = all[k / 2];
            for (size_t i = 0; i < N; i++) x[i] = k & 1 ? (i == 77 ? v : 0) : v;
            forms[f].encode(x, NULL, N / forms[f].block, b);
            forms[f].values(b, N / forms[f].block, y);
            for (size_t i = 0; i < N; i++) {
                if (!isfinite(y[i]))
                    fail_msg("%s: %g gives %g", forms[f].name, (double)v, (double)y[i]);
                if (v == 0 && y[i] != 0) fail_msg("%s: zeros give %g", forms[f].name, (double)y[i]);
                if (fabsf(v) == 1 && fabsf(y[i] - x[i]) > 0.07f)
                    fail_msg("%s: %g gives %g", forms[f].name, (double)x[i], (double)y[i]);
            }
        }
}

/* With weights the error of the weighted values falls. */
static void test_weights(void **state)
{
    (void)state;
    float x[N], w[N], plain[N], with[N];
    uint8_t b[MAX_BYTES];
    normals(11, x, 1);
    for (size_t i = 0; i < N; i++) w[i] = i % 4 ? 0.01f : 10;
    for (size_t f = 0; f < 10; f++) {
        const size_t n = N / forms[f].block;
        double a = 0, c = 0;
        forms[f].encode(x, NULL, n, b);
        forms[f].values(b, n, plain);
        forms[f].encode(x, w, n, b);
        forms[f].values(b, n, with);
        for (size_t i = 0; i < N; i++) {
            a += (double)(w[i] * (x[i] - plain[i]) * (x[i] - plain[i]));
            c += (double)(w[i] * (x[i] - with[i]) * (x[i] - with[i]));
        }
        if (!(c <= a)) fail_msg("%s: %g with weights, %g without", forms[f].name, c, a);
    }
}

/* Floats of groups that an encoder of safetensors forms makes of x. */
typedef void group_fn(const float *x, const float *w, float *y);

static void int4_groups(const float *x, const float *w, float *y)
{
    uint8_t codes[N / 2];
    uint16_t scale[N / 32];
    nb_encode_int4(x, w, N, 32, codes, scale);
    for (size_t i = 0; i < N; i++)
        y[i] = (float)((codes[i / 2] >> (i & 1 ? 4 : 0) & 15) - 8) * nb_bf16_to_f32(scale[i / 32]);
}

static void nvfp4_groups(const float *x, const float *w, float *y)
{
    uint8_t codes[N / 2], scale[N / 16];
    nb_encode_nvfp4(x, w, N, 0.01f, codes, scale);
    for (size_t i = 0; i < N; i++)
        y[i] = nb_e2m1_to_f32(codes[i / 2] >> (i & 1 ? 4 : 0) & 15) *
               (nb_e4m3_to_f32(scale[i / 16]) * 0.01f);
}

static void mxfp4_groups(const float *x, const float *w, float *y)
{
    uint8_t codes[N / 2], scale[N / 32];
    nb_encode_mxfp4(x, w, N, codes, scale);
    for (size_t i = 0; i < N; i++)
        y[i] =
            nb_e2m1_to_f32(codes[i / 2] >> (i & 1 ? 4 : 0) & 15) * nb_f32_pow2(scale[i / 32] - 127);
}

static double weighted(const float *x, const float *y, const float *w)
{
    double e = 0;
    for (size_t i = 0; i < N; i++) e += (double)(w[i] * (x[i] - y[i]) * (x[i] - y[i]));
    return e;
}

/* Weights of the columns move the scales to where they count, and equal weights change nothing. */
static void test_group_weights(void **state)
{
    (void)state;
    static group_fn *const fns[] = { int4_groups, nvfp4_groups, mxfp4_groups };
    float x[N], w[N], plain[N], with[N], ones[N];
    normals(5, x, 1);
    for (size_t i = 0; i < N; i++) {
        w[i] = i % 4 ? 0.01f : 10;
        ones[i] = 1;
    }
    for (size_t f = 0; f < sizeof fns / sizeof *fns; f++) {
        fns[f](x, NULL, plain);
        fns[f](x, ones, with);
        assert_memory_equal(plain, with, sizeof plain);
        fns[f](x, w, with);
        const double a = weighted(x, plain, w), b = weighted(x, with, w);
        if (!(b < a)) fail_msg("form %zu: %g with weights, %g without", f, b, a);
    }
}

static double plain_fp4(const float *x, float top)
{
    double e = 0;
    for (size_t i = 0; i < 16; i++) {
        const float y =
            top > 0 ? nb_e2m1_to_f32(nb_e2m1_from_f32(x[i] / (top / 6))) * (top / 6) : 0;
        e += ((double)x[i] - (double)y) * ((double)x[i] - (double)y);
    }
    return e;
}

static void test_nvfp4(void **state)
{
    (void)state;
    float x[N], y[N], top = 0;
    uint8_t codes[N / 2], scale[N / 16], again[N / 2], scale2[N / 16];
    normals(11, x, 0.03f);
    memset(x + 32, 0, 16 * sizeof *x);
    for (size_t i = 0; i < N; i++) top = fmaxf(top, fabsf(x[i]));
    const float outer = nb_encode_nvfp4_outer(top);
    nb_encode_nvfp4(x, NULL, N, outer, codes, scale);
    double plain = 0;
    for (size_t i = 0; i < N; i++)
        y[i] = nb_e2m1_to_f32(codes[i / 2] >> (i & 1 ? 4 : 0) & 15) *
               (nb_e4m3_to_f32(scale[i / 16]) * outer);
    for (size_t i = 0; i < N; i += 16) {
        float a = 0;
        for (size_t k = 0; k < 16; k++) a = fmaxf(a, fabsf(x[i + k]));
        plain += plain_fp4(x + i, a);
        assert_true(scale[i / 16] > 0 && scale[i / 16] <= NB_E4M3_MAX);
    }
    double e = 0;
    for (size_t i = 0; i < N; i++)
        e += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    if (!(e < 0.9 * plain)) fail_msg("nvfp4: %g, without a search %g", e, plain);
    for (size_t i = 32; i < 48; i++) assert_true(y[i] == 0);
    nb_encode_nvfp4(y, NULL, N, outer, again, scale2); /* its own values are exact */
    for (size_t i = 0; i < N; i++)
        assert_true(y[i] == nb_e2m1_to_f32(again[i / 2] >> (i & 1 ? 4 : 0) & 15) *
                                (nb_e4m3_to_f32(scale2[i / 16]) * outer));
}

static void test_int4_mxfp4(void **state)
{
    (void)state;
    float x[N], y[N];
    uint8_t codes[N / 2], e8[N / 32];
    uint16_t scale[N / 32];
    normals(11, x, 0.03f);
    memset(x + 64, 0, 32 * sizeof *x);
    nb_encode_int4(x, NULL, N, 32, codes, scale);
    for (size_t i = 0; i < N; i++)
        y[i] = (float)((codes[i / 2] >> (i & 1 ? 4 : 0) & 15) - 8) * nb_bf16_to_f32(scale[i / 32]);
    if (!(error_of(x, y) < 0.1)) fail_msg("int4: %g", error_of(x, y));
    for (size_t i = 64; i < 96; i++) assert_true(y[i] == 0);
    for (size_t i = 0; i < N / 32; i++) assert_true(scale[i] > 0 && scale[i] < NB_BF16_INF);
    nb_encode_mxfp4(x, NULL, N, codes, e8);
    for (size_t i = 0; i < N; i++)
        y[i] = nb_e2m1_to_f32(codes[i / 2] >> (i & 1 ? 4 : 0) & 15) * nb_f32_pow2(e8[i / 32] - 127);
    if (!(error_of(x, y) < 0.13)) fail_msg("mxfp4: %g", error_of(x, y));
    static const float edge[] = { 1e-38f, 1e-45f, 3e38f };
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < 32; i++) x[i] = edge[k];
        nb_encode_int4(x, NULL, 32, 32, codes, scale);
        nb_encode_mxfp4(x, NULL, 32, codes, e8);
        assert_true(e8[0] > 0 && e8[0] < 255 && nb_bf16_is_finite(scale[0]) && scale[0] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ggml),
                                        cmocka_unit_test(test_ggml_edges),
                                        cmocka_unit_test(test_weights),
                                        cmocka_unit_test(test_group_weights),
                                        cmocka_unit_test(test_nvfp4),
                                        cmocka_unit_test(test_int4_mxfp4) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
