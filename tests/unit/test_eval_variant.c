/* test_eval_variant.c - words of --formats: every key, what is refused and how it is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quality/variant.h"

static nb_arena arena;
static nb_error err;

static int teardown(void **state)
{
    (void)state;
    nb_arena_deinit(&arena);
    return 0;
}

static nb_variant good(const char *word, const nb_engine_options *base)
{
    nb_variant v = { 0 };
    if (nb_variant_parse(word, base, &arena, &v, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_string_equal(v.name, word);
    return v;
}

/* The error line has all of the words, separated by |. */
static void bad(const char *word, nb_status st, const char *says)
{
    const nb_engine_options base = { 0 };
    nb_variant v = { .name = "unchanged" };
    err = (nb_error){ 0 };
    const nb_status got = nb_variant_parse(word, &base, &arena, &v, &err);
    if (got != st) fail_msg("\"%s\": status %d, expected %d (%s)", word, got, st, err.msg);
    assert_string_equal(v.name, "unchanged");
    char copy[512];
    (void)snprintf(copy, sizeof copy, "%s", says);
    for (char *w = strtok(copy, "|"); w; w = strtok(NULL, "|"))
        if (!strstr(err.msg, w)) fail_msg("\"%s\": no \"%s\" in: %s", word, w, err.msg);
}

static void test_keys(void **state)
{
    (void)state;
    const nb_engine_options base = { .model = "m", .n_thread = 3, .kv_cache_mode = "basic" };
    const nb_variant v = good("nvfp4:mode=search:rope=bf16:transform=center+equalize:"
                              "calibration=dir/c.json:outliers=8:sinks=4:skip=0+2+5-7:"
                              "scales=dynamic:thrift=token:tau=2e-3:fraction=0.05:pool=.5:"
                              "mla=absorbed",
                              &base);
    const nb_engine_options *o = &v.options;
    assert_string_equal(o->kv_cache_dtype, "nvfp4");
    assert_string_equal(o->kv_cache_mode, "search");
    assert_string_equal(o->kv_rope_dtype, "bf16");
    assert_string_equal(o->kv_transform, "center+equalize");
    assert_string_equal(o->kv_calibration, "dir/c.json");
    assert_int_equal(o->kv_outliers, 8);
    assert_int_equal(o->kv_sinks, 4);
    assert_string_equal(o->kv_skip_layers, "0,2,5-7");
    assert_string_equal(o->kv_scales, "dynamic");
    assert_string_equal(o->kv_thrift, "token");
    assert_true(o->kv_thrift_tau == 2e-3 && o->kv_thrift_fraction == 0.05 &&
                o->kv_thrift_pool == 0.5);
    assert_string_equal(o->mla, "absorbed");
    assert_string_equal(o->model, "m"); /* the rest as given */
    assert_int_equal(o->n_thread, 3);
    assert_string_equal(base.kv_cache_mode, "basic");
}

static void test_base(void **state)
{
    (void)state;
    const nb_engine_options base = { .kv_calibration = "c.json",
                                     .kv_outliers = 4,
                                     .kv_cache_mode = "4over6" };
    nb_variant v = good("if4", &base);
    assert_string_equal(v.options.kv_cache_dtype, "if4");
    assert_string_equal(v.options.kv_cache_mode, "4over6");
    assert_int_equal(v.options.kv_outliers, 4);
    v = good("nvfp4:calibration=none:outliers=0", &base);
    assert_null(v.options.kv_calibration);
    assert_int_equal(v.options.kv_outliers, 0);
    static const char *const names[][2] = {
        { "auto", "auto" },   { "f32", "f32" },       { "float32", "f32" },
        { "bf16", "bf16" },   { "fp8", "fp8" },       { "mxfp4", "mxfp4" },
        { "int4", "int4" },   { "bfloat16", "bf16" }, { "if4", "if4" },
        { "nvfp4", "nvfp4" }, { "fp8_e4m3", "fp8" },  { "fp8_ds_mla", "fp8_ds_mla" },
    };
    for (size_t i = 0; i < NB_COUNT(names); i++)
        assert_string_equal(good(names[i][0], &base).options.kv_cache_dtype, names[i][1]);
    assert_string_equal(good("nvfp4:transform=none", &base).options.kv_transform, "none");
    assert_string_equal(good("nvfp4:transform=hadamard+center", &base).options.kv_transform,
                        "hadamard+center");
    assert_string_equal(good("nvfp4:skip=3", &base).options.kv_skip_layers, "3");
}

static void test_refused(void **state)
{
    (void)state;
    bad("", NB_ERR_ARG, "format is missing|nvfp4|fp8_ds_mla");
    bad("nvfp5", NB_ERR_ARG, "nvfp5|unknown format|nvfp4|if4");
    bad("NVFP4", NB_ERR_ARG, "NVFP4");
    bad(" nvfp4", NB_ERR_ARG, "unknown format");
    bad("mode=search", NB_ERR_ARG, "unknown format");
    bad("nvfp4:", NB_ERR_ARG, "ends with");
    bad("nvfp4::mode=search", NB_ERR_ARG, "unknown key");
    bad("nvfp4:mode=search:", NB_ERR_ARG, "ends with");
    bad("nvfp4:colour=red", NB_ERR_ARG,
        "colour|mode|rope|transform|calibration|outliers|sinks|skip|scales|thrift|tau|fraction|"
        "pool|mla");
    bad("nvfp4:mode", NB_ERR_ARG, "mode has no value");
    bad("nvfp4:mode=", NB_ERR_ARG, "mode|basic");
    bad("nvfp4:mode=fast", NB_ERR_ARG, "mode|fast|basic|4over6|search");
    bad("nvfp4:mode=basic|search", NB_ERR_ARG, "mode");
    bad("nvfp4:mode=basic:mode=basic", NB_ERR_ARG, "mode is given twice");
    bad("nvfp4:rope=nvfp4", NB_ERR_ARG, "rope|bf16");
    bad("nvfp4:transform=", NB_ERR_ARG, "transform|center");
    bad("nvfp4:transform=center+", NB_ERR_ARG, "each once");
    bad("nvfp4:transform=+center", NB_ERR_ARG, "each once");
    bad("nvfp4:transform=center+center", NB_ERR_ARG, "each once");
    bad("nvfp4:transform=none+center", NB_ERR_ARG, "each once");
    bad("nvfp4:calibration=", NB_ERR_ARG, "calibration");
    bad("nvfp4:outliers=65", NB_ERR_RANGE, "outliers|65|0..64");
    bad("nvfp4:outliers=-1", NB_ERR_RANGE, "0..64");
    bad("nvfp4:outliers=99999999999999999999999999", NB_ERR_RANGE, "0..64");
    bad("nvfp4:sinks=", NB_ERR_RANGE, "sinks");
    bad("nvfp4:sinks=4x", NB_ERR_RANGE, "4x");
    bad("nvfp4:skip=", NB_ERR_ARG, "skip|layers");
    bad("nvfp4:skip=1-", NB_ERR_ARG, "skip");
    bad("nvfp4:skip=1-2-3", NB_ERR_ARG, "skip");
    bad("nvfp4:skip=+1", NB_ERR_ARG, "skip");
    bad("nvfp4:skip=1++2", NB_ERR_ARG, "skip");
    bad("nvfp4:skip=a", NB_ERR_ARG, "skip");
    bad("nvfp4:scales=static", NB_ERR_ARG, "scales|checkpoint");
    bad("nvfp4:thrift=on", NB_ERR_ARG, "thrift|block-mean|quest");
    bad("nvfp4:tau=0", NB_ERR_RANGE, "tau|above 0");
    bad("nvfp4:tau=1.01", NB_ERR_RANGE, "tau");
    bad("nvfp4:tau=nan", NB_ERR_RANGE, "tau");
    bad("nvfp4:tau=0x1p-3", NB_ERR_RANGE, "tau");
    bad("nvfp4:tau= .5", NB_ERR_RANGE, "tau");
    bad("nvfp4:tau=1e-999", NB_ERR_RANGE, "tau");
    bad("nvfp4:fraction=2", NB_ERR_RANGE, "fraction");
    bad("nvfp4:pool=-0.1", NB_ERR_RANGE, "pool");
    bad("nvfp4:mla=naive", NB_ERR_ARG, "mla|expanded");
    char wide[6000];
    memset(wide, 'x', sizeof wide - 1);
    memcpy(wide, "nvfp4:calibration=", 18);
    wide[sizeof wide - 1] = 0;
    bad(wide, NB_ERR_LIMIT, "5999 bytes|4096");
    bad("nvfp4:\n\x1b[31m=1", NB_ERR_ARG, "unknown key");
    assert_null(strchr(err.msg, '\n'));
}

static void test_list(void **state)
{
    (void)state;
    const nb_engine_options base = { .kv_sinks = 2 };
    nb_variant *v = NULL;
    size_t n = 0;
    assert_int_equal(nb_variant_list("fp8,nvfp4:mode=search,if4", &base, &arena, &v, &n, &err),
                     NB_OK);
    assert_int_equal(n, 3);
    assert_string_equal(v[0].name, "fp8");
    assert_null(v[0].options.kv_cache_mode); /* a word's keys are its own */
    assert_string_equal(v[1].options.kv_cache_mode, "search");
    assert_null(v[2].options.kv_cache_mode);
    assert_int_equal(v[2].options.kv_sinks, 2);
    assert_int_equal(nb_variant_list("fp8,nvfp4,fp8", &base, &arena, &v, &n, &err), NB_ERR_ARG);
    assert_non_null(strstr(err.msg, "fp8 is in the list of formats twice"));
    assert_int_equal(nb_variant_list("fp8,", &base, &arena, &v, &n, &err), NB_ERR_ARG);
    assert_int_equal(nb_variant_list(",fp8", &base, &arena, &v, &n, &err), NB_ERR_ARG);
    assert_int_equal(nb_variant_list("", &base, &arena, &v, &n, &err), NB_ERR_ARG);
    assert_int_equal(nb_variant_list("fp8,nvfp4:sinks=x", &base, &arena, &v, &n, &err),
                     NB_ERR_RANGE);
    assert_int_equal(n, 3);
    char many[33 * 16] = "";
    for (int i = 0; i < 32; i++)
        (void)snprintf(many + strlen(many), 32, "%snvfp4:sinks=%d", i ? "," : "", i);
    assert_int_equal(nb_variant_list(many, &base, &arena, &v, &n, &err), NB_OK);
    assert_int_equal(n, 32);
    (void)snprintf(many + strlen(many), 8, ",fp8");
    assert_int_equal(nb_variant_list(many, &base, &arena, &v, &n, &err), NB_ERR_LIMIT);
    assert_non_null(strstr(err.msg, "32"));
}

/* The word of options reads back as them, and says nothing of defaults. */
static void test_word(void **state)
{
    (void)state;
    const nb_engine_options none = {
        .kv_thrift = "off", .kv_scales = "auto", .mla = "auto", .kv_thrift_tau = 0.001
    };
    static const char *const words[] = {
        "auto",
        "nvfp4",
        "nvfp4:transform=none:calibration=dir/c.json",
        "if4:mode=search:rope=bf16:transform=center+equalize:calibration=c.json:outliers=8:"
        "sinks=4:skip=0+2+5-7:scales=dynamic:thrift=token:tau=0.002:fraction=0.05:pool=0.3:"
        "mla=absorbed",
        "nvfp4:thrift=quest:fraction=0.1234567890123",
    };
    for (size_t i = 0; i < NB_COUNT(words); i++) {
        nb_buf b = { 0 };
        const nb_variant v = good(words[i], &none);
        assert_int_equal(nb_variant_word(&v.options, &b), NB_OK);
        assert_string_equal(b.p, words[i]);
        nb_buf_deinit(&b);
    }
    nb_buf b = { 0 };
    assert_int_equal(nb_variant_word(&(nb_engine_options){ 0 }, &b), NB_OK);
    assert_string_equal(b.p, "auto");
    nb_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_word, teardown),
        cmocka_unit_test_teardown(test_keys, teardown),
        cmocka_unit_test_teardown(test_base, teardown),
        cmocka_unit_test_teardown(test_refused, teardown),
        cmocka_unit_test_teardown(test_list, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
