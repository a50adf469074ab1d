/* test_base_str.c - views, growing buffers, growing arrays, arenas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/str.h"

static void test_views(void **state)
{
    (void)state;
    assert_true(nb_str_eqc(nb_str_c("abc"), "abc"));
    assert_false(nb_str_eqc(nb_str_c("abc"), "abd"));
    assert_false(nb_str_eqc(nb_str_c("abc"), "ab"));
    assert_true(nb_str_eq((nb_str){ NULL, 0 }, nb_str_c("")));
    assert_true(nb_str_eq((nb_str){ "a\0b", 3 }, (nb_str){ "a\0b", 3 }));
    assert_false(nb_str_eq((nb_str){ "a\0b", 3 }, (nb_str){ "a\0c", 3 }));
}

static void test_buf(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    assert_int_equal(nb_buf_view(&b).n_bytes, 0);
    assert_non_null(nb_buf_view(&b).p);
    assert_int_equal(nb_buf_add(&b, NULL, 0), NB_OK);
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(nb_buf_add_ch(&b, (char)('a' + i % 26)), NB_OK);
        assert_int_equal(b.p[b.n_bytes], 0);
    }
    assert_int_equal(b.n_bytes, 10000);
    for (int i = 0; i < 10000; i++) assert_int_equal(b.p[i], 'a' + i % 26);
    b.n_bytes = 0;
    assert_int_equal(nb_buf_printf(&b, "%d-%s", 42, "x"), NB_OK);
    assert_int_equal(nb_buf_add_c(&b, "|"), NB_OK);
    assert_int_equal(nb_buf_add_str(&b, nb_str_c("yz")), NB_OK);
    assert_int_equal(nb_buf_printf(&b, "%*s", 5000, ""), NB_OK);
    assert_int_equal(b.n_bytes, 5007);
    assert_memory_equal(b.p, "42-x|yz  ", 9);
    assert_int_equal(nb_buf_reserve(&b, SIZE_MAX), NB_ERR_NOMEM);
    assert_int_equal(nb_buf_reserve(&b, SIZE_MAX / 4), NB_ERR_NOMEM);
    assert_int_equal(b.n_bytes, 5007);
    nb_buf_deinit(&b);
    assert_null(b.p);
    nb_buf_deinit(&b);
}

static void test_buf_limit(void **state)
{
    (void)state;
    nb_buf b = { .limit_bytes = 5 };
    assert_int_equal(nb_buf_add_c(&b, "abc"), NB_OK);
    assert_int_equal(nb_buf_add_c(&b, "def"), NB_ERR_LIMIT);
    assert_string_equal(b.p, "abc");
    assert_int_equal(nb_buf_printf(&b, "%s", "def"), NB_ERR_LIMIT);
    assert_string_equal(b.p, "abc");
    assert_int_equal(nb_buf_add_c(&b, "de"), NB_OK);
    assert_int_equal(nb_buf_add_ch(&b, 'f'), NB_ERR_LIMIT);
    assert_int_equal(nb_buf_reserve(&b, SIZE_MAX), NB_ERR_LIMIT);
    assert_string_equal(b.p, "abcde");
    nb_buf_deinit(&b);
}

static void test_grow(void **state)
{
    (void)state;
    uint32_t *v = NULL;
    size_t cap = 0;
    for (size_t i = 0; i < 5000; i++) {
        assert_int_equal(NB_GROW(v, cap, i), NB_OK);
        assert_true(cap > i);
        v[i] = (uint32_t)i;
    }
    for (size_t i = 0; i < 5000; i++) assert_int_equal(v[i], i);
    const size_t before = cap;
    assert_int_equal(NB_GROW(v, cap, SIZE_MAX / 8), NB_ERR_NOMEM);
    assert_int_equal(NB_GROW(v, cap, SIZE_MAX - 1), NB_ERR_NOMEM);
    assert_int_equal(cap, before);
    assert_int_equal(v[4999], 4999);
    free(v);
}

static void test_arena(void **state)
{
    (void)state;
    nb_arena a = { 0 };
    unsigned char *p[300];
    size_t n[300];
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < 300; i++) {
            n[i] = i == 77 ? 300000 : i * 13 % 1000;
            p[i] = nb_arena_alloc(&a, n[i]);
            assert_non_null(p[i]);
            assert_int_equal((uintptr_t)p[i] % 64, 0);
            for (size_t k = 0; k < n[i]; k++)
                assert_int_equal(p[i][k], 0); /* zeroed, also when reused */
            memset(p[i], (int)(i % 255 + 1), n[i]);
        }
        for (size_t i = 0; i < 300; i++) /* nobody wrote over anybody */
            for (size_t k = 0; k < n[i]; k++) assert_int_equal(p[i][k], i % 255 + 1);
        assert_true(a.used_bytes >= 300000);
        nb_arena_reset(&a);
        assert_int_equal(a.used_bytes, 0);
    }
    assert_string_equal(nb_arena_strdup(&a, (nb_str){ "abcdef", 3 }), "abc");
    assert_string_equal(nb_arena_strdup(&a, (nb_str){ NULL, 0 }), "");
    assert_null(nb_arena_alloc(&a, SIZE_MAX));
    assert_null(nb_arena_alloc(&a, SIZE_MAX / 2));
    assert_null(nb_arena_array(&a, SIZE_MAX / 8, 16));
    assert_null(nb_arena_array(&a, (size_t)1 << 33, (size_t)1 << 33));
    assert_non_null(nb_arena_array(&a, 10, 0));
    assert_non_null(nb_arena_array(&a, 0, 10));
    nb_arena_deinit(&a);
    nb_arena_deinit(&a);
    nb_arena_reset(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views),     cmocka_unit_test(test_buf),
        cmocka_unit_test(test_buf_limit), cmocka_unit_test(test_grow),
        cmocka_unit_test(test_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
