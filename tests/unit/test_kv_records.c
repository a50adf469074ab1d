/* test_kv_records.c - a record per layer: skipped layers, sinks, every format in a running engine
 * of either kind of attention, and the lines that refuse. */
#include "engine_testing.h"

#include <math.h>

enum { N_TOK = 150 };
static uint32_t prompt[N_TOK];
static size_t all_rows[N_TOK];

static nb_engine_options base(const char *dir, const char *type)
{
    return (nb_engine_options){ .model = in_source(dir),
                                .kv_cache_dtype = type,
                                .no_text = true,
                                .n_thread = 1,
                                .max_model_len = 256 };
}

/* Logits of every position of a fixed prompt; the layout and the bytes of a block on the way. */
static float *logits_of(const nb_engine_options *o, char layout[256], uint64_t *block_bytes,
                        size_t *n_vocab)
{
    nb_engine *e = make_engine(o);
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    if (layout) (void)snprintf(layout, 256, "%s", info.kv_layout);
    if (block_bytes) *block_bytes = info.block_bytes;
    *n_vocab = info.vocab;
    random_ids(prompt, N_TOK, info.vocab, 5);
    for (size_t i = 0; i < N_TOK; i++) all_rows[i] = i;
    float *x = logits_at(e, prompt, N_TOK, all_rows, N_TOK);
    nb_engine_destroy(e);
    return x;
}

static double distance(const float *a, const float *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(s);
}

/* Positions up to 64 read their own page only; from there on the record shows. */
static void test_skipped_layers(void **state)
{
    (void)state;
    nb_engine_options o = base("tests/parity/v3_geom", "bf16");
    char layout[256];
    uint64_t full, some, none;
    size_t v;
    float *want = logits_of(&o, NULL, &full, &v);
    o.kv_cache_dtype = "nvfp4";
    float *coarse = logits_of(&o, layout, &none, &v);
    assert_null(strstr(layout, "layers"));
    assert_true(distance(want, coarse, N_TOK * v) > 0);
    o.kv_skip_layers = "0-1";
    nb_engine_info info;
    nb_engine *e = make_engine(&o);
    nb_engine_get_info(e, &info);
    const size_t n_layer = info.n_layer;
    nb_engine_destroy(e);
    char all[32];
    (void)snprintf(all, sizeof all, "0-%zu", n_layer - 1);
    o.kv_skip_layers = all;
    float *skipped = logits_of(&o, layout, &some, &v);
    assert_int_equal(some, full);
    assert_true(same_floats(want, skipped, N_TOK * v));
    o.kv_skip_layers = "0";
    float *first = logits_of(&o, layout, &some, &v);
    assert_int_equal(some, none + (full - none) / n_layer);
    assert_non_null(strstr(layout, "layers 0-0: latent"));
    assert_false(same_floats(want, first, N_TOK * v));
    assert_false(same_floats(coarse, first, N_TOK * v));
    free(want);
    free(coarse);
    free(skipped);
    free(first);
}

/* 64 sinks: page 0 is read as in a BF16 cache, so positions up to 128 are those of one. */
static void check_sinks(const char *dir, const char *type)
{
    nb_engine_options o = base(dir, "bf16");
    size_t v;
    float *want = logits_of(&o, NULL, NULL, &v);
    o.kv_cache_dtype = type;
    float *plain = logits_of(&o, NULL, NULL, &v);
    o.kv_sinks = 64;
    float *all = logits_of(&o, NULL, NULL, &v);
    o.kv_sinks = 4;
    float *four = logits_of(&o, NULL, NULL, &v);
    assert_true(same_floats(want, all, 128 * v));
    assert_false(same_floats(want, all, N_TOK * v)); /* page 1 is coded */
    assert_true(same_floats(plain, four, 64 * v));
    assert_false(same_floats(plain, four, N_TOK * v));
    free(want);
    free(plain);
    free(all);
    free(four);
}

static void test_sinks(void **state)
{
    (void)state;
    static const char *const types[] = { "fp8", "nvfp4", "if4", "mxfp4", "int4" };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check_sinks("tests/parity/v3_geom", types[i]);
        check_sinks("tests/parity/llama3", types[i]);
    }
}

/* Every format runs for both kinds of attention, and the finer ones are nearer. */
static void check_formats(const char *dir, const char *const *types)
{
    nb_engine_options o = base(dir, "f32");
    size_t v;
    float *want = logits_of(&o, NULL, NULL, &v);
    double last = 0, d[8] = { 0 };
    for (size_t i = 0; types[i]; i++) {
        o.kv_cache_dtype = types[i];
        float *x = logits_of(&o, NULL, NULL, &v);
        for (size_t k = 0; k < N_TOK * v; k++) assert_true(isfinite(x[k]));
        d[i] = distance(want, x, N_TOK * v);
        if (i < 3 && !(d[i] > last)) fail_msg("%s: %s is nearer than its finer one", dir, types[i]);
        last = d[i];
        free(x);
    }
    free(want);
}

static void test_formats(void **state)
{
    (void)state;
    static const char *const mla[] = { "bf16",  "fp8",  "nvfp4",      "if4",
                                       "mxfp4", "int4", "fp8_ds_mla", NULL };
    static const char *const gqa[] = { "bf16", "fp8", "nvfp4", "if4", "mxfp4", "int4", NULL };
    check_formats("tests/parity/v3_geom", mla);
    check_formats("tests/parity/llama3", gqa);
    check_formats("tests/parity/qwen3", gqa);
}

/* Rope keys: BF16 rounds nothing that the cache did not, INT8 less than FP8. */
static void test_rope(void **state)
{
    (void)state;
    static const char *const ropes[] = { "bf16", "int8", "fp8" };
    nb_engine_options o = base("tests/parity/v3_geom", "bf16");
    size_t v;
    float *want = logits_of(&o, NULL, NULL, &v);
    double last = 0;
    o.kv_cache_dtype = "fp8";
    for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++) {
        o.kv_rope_dtype = ropes[i];
        float *x = logits_of(&o, NULL, NULL, &v);
        const double d = distance(want, x, N_TOK * v);
        if (!(d > last)) fail_msg("%s is nearer than what is finer", ropes[i]);
        last = d;
        free(x);
    }
    free(want);
}

static void refused(const nb_engine_options *o, const char *part)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    if (nb_engine_create(o, &e, &err) == NB_OK) fail_msg("accepted: %s", part);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" does not say \"%s\"", err.msg, part);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *skip, *part;
    } lists[] = {
        { "99", "layer 99 of a model with layers 0.." },
        { "1-0", "expected layers such as" },
        { "-1", "expected layers such as" },
        { "0,", "expected layers such as" },
        { "0,,1", "expected layers such as" },
        { "a", "expected layers such as" },
        { "0-", "expected layers such as" },
        { "99999999999999999999", "expected" },
    };
    nb_engine_options o = base("tests/parity/v3", "nvfp4");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        o.kv_skip_layers = lists[i].skip;
        refused(&o, lists[i].part);
    }
    o = base("tests/parity/v3", "nvfp4");
    o.kv_sinks = 65;
    refused(&o, "--kv-sinks 65: at most 64");
    o = base("tests/parity/v3", "nvfp4");
    o.kv_outliers = 4;
    refused(&o, "--kv-calibration");
    o.kv_outliers = 65;
    refused(&o, "--kv-outliers 65: at most 64");
    o = base("tests/parity/llama3", "nvfp4");
    o.kv_rope_dtype = "int8";
    refused(&o, "a rope key in int8 needs MLA");
    o.kv_rope_dtype = "int4";
    refused(&o, "--kv-rope-dtype int4: expected fp8, bf16 or int8");
    o = base("tests/parity/llama3", "fp8_ds_mla");
    refused(&o, "needs MLA");
}

int main(void)
{
    if (!have_file("tests/parity/v3_geom/config.json")) {
        (void)printf("skipped: no parity checkpoints\n");
        return SKIP_EXIT;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_skipped_layers), cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_formats),        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
