/* test_activation_dtype.c - --activation-dtype: which row of products a plan takes, what rounding activations
 * costs, that results depend on neither threads nor chunks, and what is refused. */
#include "engine_testing.h"

#include <math.h>
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "model/plan.h"

enum { N_TOK = 70 };
static const char moonlight[] = "tests/parity/v3_moonlight", dense[] = "tests/parity/qwen2";

static nb_engine_options options(const char *model, const char *weights, const char *acts)
{
    return (nb_engine_options){ .model = in_source(model),
                                .weight_dtype = weights,
                                .activation_dtype = acts,
                                .kv_cache_dtype = "bf16",
                                .no_text = true,
                                .max_model_len = 128,
                                .n_thread = 2 };
}

/* ---- the plan ---- */

static void test_rows(void **state)
{
    (void)state;
    const nb_caps all = NB_CAP_AVX2 | NB_CAP_AVX512 | NB_CAP_AMX | NB_CAP_NEON;
    for (int t = 0; t < NB_W_TYPE_COUNT; t++)
        for (int act = 0; act < NB_ACT_COUNT; act++)
            for (nb_caps caps = 0;; caps = all) {
                const nb_linear_variant *v = nb_linear_find((nb_wtype)t, (nb_act)act, caps);
                assert_true(v && v->type == (nb_wtype)t && (v->need & ~caps) == 0);
                assert_true(v->act == (nb_act)act || v->act == NB_ACT_FLOAT ||
                            (act != NB_ACT_FLOAT && v->act == NB_ACT_INT16));
                if (caps) break;
            }
    assert_int_equal(nb_linear_find(NB_W_INT8, NB_ACT_INT8, 0)->act, NB_ACT_INT8);
    assert_int_equal(nb_linear_find(NB_W_F32, NB_ACT_INT8, all)->act, NB_ACT_FLOAT);
#if NB_HAVE_AVXVNNI && NB_HAVE_AVX2
    assert_int_equal(nb_linear_find(NB_W_INT8, NB_ACT_INT8, NB_CAP_AVX2 | NB_CAP_AVXVNNI)->act, NB_ACT_INT8);
    assert_int_equal(nb_linear_find(NB_W_INT8, NB_ACT_INT8, NB_CAP_AVX2)->act, NB_ACT_FLOAT);
#endif
#if NB_HAVE_AVX512
    assert_int_equal(nb_linear_find(NB_W_INT8, NB_ACT_INT8, NB_CAP_AVX2 | NB_CAP_AVX512)->act,
                     NB_ACT_INT8);
#endif
#if NB_HAVE_AVX512BF16
    assert_int_equal(nb_linear_find(NB_W_BF16, NB_ACT_BF16,
                                    NB_CAP_AVX2 | NB_CAP_AVX512 | NB_CAP_AVX512BF16)->act,
                     NB_ACT_BF16);
    assert_int_equal(nb_linear_find(NB_W_BF16, NB_ACT_BF16, all)->act, NB_ACT_FLOAT); /* tiles */
#endif
    assert_int_equal(nb_linear_find(NB_W_Q4_K, NB_ACT_FLOAT, all)->act, NB_ACT_FLOAT);
    assert_int_equal(nb_linear_find(NB_W_Q4_K, NB_ACT_BF16, all)->act, NB_ACT_INT16);
#if NB_HAVE_AVX2
    assert_int_equal(nb_linear_find(NB_W_Q4_K, NB_ACT_INT8, NB_CAP_AVX2)->act, NB_ACT_INT8);
#endif
    nb_acts a;
    assert_true(nb_acts_parse("int8", &a) && a.asked && a.of[NB_W_BF16] == NB_ACT_INT8);
    assert_true(nb_acts_parse("bf16", &a) && a.of[NB_W_INT8] == NB_ACT_BF16);
    assert_true(nb_acts_parse("float", &a) && a.of[NB_W_INT8] == NB_ACT_FLOAT);
    assert_true(nb_acts_parse("fp8", &a) && a.of[NB_W_BF16] == NB_ACT_FP8);
    assert_true(nb_acts_parse("auto", &a) && !a.asked);
    assert_true(nb_acts_parse(NULL, &a) && !a.asked);
    assert_false(nb_acts_parse("", &a) || nb_acts_parse("INT8", &a));
    nb_plan p; /* routers keep floats */
    (void)nb_acts_parse("int8", &a);
    nb_plan_init(&p, 0, &a);
    assert_int_equal(p.linear[NB_W_INT8]->act, NB_ACT_INT8);
    assert_int_equal(p.linear_float[NB_W_INT8]->act, NB_ACT_FLOAT);
    char text[400];
    nb_plan_describe(&p, text, sizeof text);
    assert_non_null(strstr(text, "linear_int8=c+int8 "));
    assert_non_null(strstr(text, "kv_residual="));
}

/* ---- results ---- */

static float *logits(const char *model, const char *acts, size_t n_thread, size_t chunk,
                     const char *caps, size_t *n)
{
    static const size_t row[] = { 0, 40, N_TOK - 1 };
    uint32_t id[N_TOK];
    nb_engine_options o = options(model, "int8", acts);
    o.n_thread = n_thread;
    o.prefill_chunk = chunk;
    o.cpu_caps = caps;
    nb_engine *e = make_engine(&o);
    random_ids(id, N_TOK, vocab_of(e), 3);
    float *y = logits_at(e, id, N_TOK, row, NB_COUNT(row));
    *n = NB_COUNT(row) * vocab_of(e);
    nb_engine_destroy(e);
    return y;
}

/* Eight bits in groups of 32 are steps of 1/254 of the largest of 32 values: about what 8 bits per row do to the
 * weights.  A model without experts: rounding may choose others where a router of random weights is undecided. */
static void test_error(void **state)
{
    (void)state;
    size_t n;
    float *plain = logits(dense, "float", 2, 0, NULL, &n), *y = logits(dense, "int8", 2, 0, NULL, &n);
    double worst = 0, s = 0, s2 = 0;
    for (size_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)y[i] - (double)plain[i]));
        s += (double)plain[i], s2 += (double)plain[i] * (double)plain[i];
    }
    const double sd = sqrt(s2 / (double)n - s / (double)n * (s / (double)n));
    if (!(worst < 0.15 * sd)) fail_msg("%g of %g", worst, sd);
    free(plain);
    free(y);
    plain = logits(dense, "float", 2, 0, "c", &n);
    y = logits(dense, "int8", 2, 0, "c", &n);
    assert_false(same_floats(plain, y, n)); /* the option does something on every level that has a row */
    free(plain);
    free(y);
}

/* The same bits for any number of threads and any chunk: a chunk of 1 takes the form for one token. */
static void test_promises(void **state)
{
    (void)state;
    static const struct {
        size_t n_thread, chunk;
    } way[] = { { 1, 0 }, { 2, 7 }, { 2, 1 } };
    static const char *const level[] = { NULL, "c" };
    for (size_t l = 0; l < NB_COUNT(level); l++) {
        size_t n;
        float *y = logits(moonlight, "int8", 2, 0, level[l], &n);
        for (size_t k = 0; k < NB_COUNT(way); k++) {
            float *z = logits(moonlight, "int8", way[k].n_thread, way[k].chunk, level[l], &n);
            assert_true(same_floats(y, z, n));
            free(z);
        }
        free(y);
    }
}

/* ---- refusals ---- */

static void test_words(void **state)
{
    (void)state;
    static const char *const word[] = { "int4", "INT8", "fp16", "", "int8 " };
    nb_error err = { 0 };
    nb_engine *e = NULL;
    for (size_t i = 0; i < NB_COUNT(word); i++) {
        nb_engine_options o = options(moonlight, "auto", word[i]);
        nb_memory_plan p;
        err = (nb_error){ 0 };
        assert_int_equal(nb_engine_create(&o, &e, &err), NB_ERR_ARG);
        check_line(&err, NB_ERR_ARG, "expected auto, float, bf16, int16, int8 or fp8");
        err = (nb_error){ 0 };
        assert_int_equal(nb_engine_plan_memory(&o, &p, &err), NB_ERR_ARG);
    }
    nb_engine_options o = options(moonlight, "auto", "fp8");
    err = (nb_error){ 0 };
    assert_int_equal(nb_engine_create(&o, &e, &err), NB_ERR_UNSUPPORTED);
    check_line(&err, NB_ERR_UNSUPPORTED, "no CPU multiplies FP8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_words),
    };
    if (!have_file(moonlight)) return SKIP_EXIT;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
