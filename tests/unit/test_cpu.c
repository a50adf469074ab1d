/* test_cpu.c - names and masks of the instruction-set levels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "os/cpu.h"

static void parse_names(void **state)
{
    (void)state;
    nb_caps m = 0;
    nb_error err = { 0 };
    assert_int_equal(nb_cpu_caps_parse("c", &m, &err), NB_OK);
    assert_int_equal(m & (NB_CAP_AVX2 | NB_CAP_AVX512 | NB_CAP_AMX | NB_CAP_NEON), 0);
    assert_int_not_equal(m & NB_CAP_SM80, 0);
    assert_int_equal(nb_cpu_caps_parse("avxvnni", &m, &err), NB_OK);
    assert_int_equal(m & (NB_CAP_AVX2 | NB_CAP_AVXVNNI | NB_CAP_AVX512 | NB_CAP_AMX | NB_CAP_NEON), NB_CAP_AVX2 | NB_CAP_AVXVNNI);
    assert_int_equal(nb_cpu_caps_parse("avx512", &m, &err), NB_OK);
    assert_int_equal(m & (NB_CAP_AVX2 | NB_CAP_AVX512 | NB_CAP_AVX512BF16 | NB_CAP_AMX | NB_CAP_NEON),
                     NB_CAP_AVX2 | NB_CAP_AVX512);
    assert_int_equal(nb_cpu_caps_parse("avx512bf16", &m, &err), NB_OK);
    assert_int_equal(m & (NB_CAP_AVX512 | NB_CAP_AVX512BF16 | NB_CAP_AMX),
                     NB_CAP_AVX512 | NB_CAP_AVX512BF16);
    assert_int_equal(nb_cpu_caps_parse("all", &m, &err), NB_OK);
    assert_true(m == NB_CAPS_ALL);
}

static void refuse_others(void **state)
{
    static const char *const bad[] = { "", "AVX2", "avx", "avx2 ", "avx2+avx512", "sse" };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_caps m = 77;
        nb_error err = { 0 };
        assert_int_equal(nb_cpu_caps_parse(bad[i], &m, &err), NB_ERR_ARG);
        assert_int_equal(m, 77);
        assert_non_null(strstr(err.msg, "avx512"));
    }
}

static void print_names(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    assert_int_equal(nb_cpu_caps_name(0, &b), NB_OK);
    assert_string_equal(b.p, "c");
    b.n_bytes = 0;
    assert_int_equal(nb_cpu_caps_name(NB_CAP_AVX2 | NB_CAP_AVX512 | NB_CAP_SM90, &b), NB_OK);
    assert_string_equal(b.p, "avx2+avx512");
    nb_buf_deinit(&b);
}

static void detect(void **state)
{
    (void)state;
    const nb_caps have = nb_cpu_caps();
    assert_true(have == nb_cpu_caps());
    for (const nb_cpu_level *v = nb_cpu_level_table; v->name; v++) {
        nb_caps m;
        assert_int_equal(nb_cpu_caps_parse(v->name, &m, NULL), NB_OK);
        assert_int_equal(v->mask & ~m, 0);
        if (have & v->bit) assert_int_equal(v->mask & ~have, 0); /* the levels below, too */
    }
#if defined(__AVX2__)
    assert_int_not_equal(have & NB_CAP_AVX2, 0);
#endif
    char name[8];
    nb_cpu_model(name, sizeof name);
    assert_true(strlen(name) > 0 && strlen(name) < sizeof name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_names),
        cmocka_unit_test(refuse_others),
        cmocka_unit_test(print_names),
        cmocka_unit_test(detect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
