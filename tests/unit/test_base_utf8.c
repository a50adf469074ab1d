/* test_base_utf8.c - decoding against an independent reading of RFC 3629: every code
 * point, and every sequence of one to three bytes and every four-byte sequence with a
 * lead byte that can begin one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/utf8.h"

/* The specification by value: a sequence is right when its bits have the form for its
 * length and its code point needs that length and is a scalar value.  Returns the
 * length, -1, or 0 for a proper prefix of some right sequence. */
static int spec(const unsigned char *s, size_t n, uint32_t *cp)
{
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    const int len = s[0] < 0x80       ? 1
                    : s[0] >> 5 == 6  ? 2
                    : s[0] >> 4 == 14 ? 3
                    : s[0] >> 3 == 30 ? 4
                                      : 0;
    if (len == 0) return -1;
    if (len == 1) {
        *cp = s[0];
        return 1;
    }
    uint32_t lo = s[0] & (0xffu >> (len + 1)), hi = lo;
    for (int i = 1; i < len; i++) {
        const int have = (size_t)i < n;
        if (have && (s[i] & 0xc0) != 0x80) return -1;
        lo = lo << 6 | (have ? s[i] & 0x3fu : 0);
        hi = hi << 6 | (have ? s[i] & 0x3fu : 0x3f);
    }
    /* does [lo, hi] hold a scalar value that needs len bytes? */
    const uint32_t a = lo > least[len] ? lo : least[len], b = hi < 0x10ffff ? hi : 0x10ffff;
    if (a > b || (a >= 0xd800 && b <= 0xdfff)) return -1;
    if (n < (size_t)len) return 0;
    *cp = lo;
    return len;
}

static void test_all_code_points(void **state)
{
    (void)state;
    size_t n_valid = 0;
    for (uint32_t cp = 0; cp < 0x120000; cp++) {
        char out[4] = { 0 };
        uint32_t back = 0xffffffff;
        const int n = nb_utf8_encode(cp, out);
        const int want = cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000) ? 0
                         : cp < 0x80                                    ? 1
                         : cp < 0x800                                   ? 2
                         : cp < 0x10000                                 ? 3
                                                                        : 4;
        assert_int_equal(n, want);
        if (n == 0) continue;
        n_valid++;
        assert_int_equal(nb_utf8_decode(out, (size_t)n, &back), n);
        assert_int_equal(back, cp);
        assert_true(nb_utf8_valid((nb_str){ out, (size_t)n }));
        assert_int_equal(nb_utf8_incomplete_tail((nb_str){ out, (size_t)n }), 0);
        for (int k = 1; k < n; k++) {
            assert_int_equal(nb_utf8_decode(out, (size_t)k, &back), 0);
            assert_int_equal(nb_utf8_incomplete_tail((nb_str){ out, (size_t)k }), k);
            assert_false(nb_utf8_valid((nb_str){ out, (size_t)k }));
        }
    }
    assert_int_equal(n_valid, 0x110000 - 0x800);
    assert_int_equal(nb_utf8_encode(UINT32_MAX, (char[4]){ 0 }), 0);
}

static void check_seq(const unsigned char *s, size_t n)
{
    uint32_t got = 1, want = 2;
    const int a = nb_utf8_decode((const char *)s, n, &got), b = spec(s, n, &want);
    if (a != b || (a > 0 && got != want))
        fail_msg("%02x %02x %02x %02x of %zu: %d, expected %d", s[0], s[1], s[2], s[3], n, a, b);
}

static void test_all_sequences(void **state)
{
    (void)state;
    unsigned char s[4] = { 0 };
    for (unsigned a = 0; a < 256; a++) {
        s[0] = (unsigned char)a;
        check_seq(s, 1);
        for (unsigned b = 0; b < 256; b++) {
            s[1] = (unsigned char)b;
            check_seq(s, 2);
            for (unsigned c = 0; c < 256; c++) {
                s[2] = (unsigned char)c;
                check_seq(s, 3);
                if (a < 0xf0 || a > 0xf5) continue;
                for (unsigned d = 0; d < 256; d++) {
                    s[3] = (unsigned char)d;
                    check_seq(s, 4);
                }
            }
        }
    }
}

static void test_strings(void **state)
{
    (void)state;
    assert_true(nb_utf8_valid(nb_str_c("")));
    assert_true(nb_utf8_valid(nb_str_c("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z")));
    assert_false(nb_utf8_valid(nb_str_c("a\xc3")));
    assert_false(nb_utf8_valid(nb_str_c("\x80")));
    assert_false(nb_utf8_valid(nb_str_c("ok\xed\xa0\x80")));
    assert_int_equal(nb_utf8_incomplete_tail(nb_str_c("")), 0);
    assert_int_equal(nb_utf8_incomplete_tail(nb_str_c("abc\xf0\x9f\x98")), 3);
    assert_int_equal(nb_utf8_incomplete_tail(nb_str_c("abc\xe2\x82")), 2);
    assert_int_equal(nb_utf8_incomplete_tail(nb_str_c("\xc3")), 1);
    assert_int_equal(nb_utf8_incomplete_tail(nb_str_c("abc\xff")), 0);
    assert_int_equal(nb_utf8_incomplete_tail(nb_str_c("a\x80\x80\x80\x80")), 0);
    assert_int_equal(nb_utf8_incomplete_tail(nb_str_c("\xe0\x80")), 0); /* overlong: never valid */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_code_points),
        cmocka_unit_test(test_all_sequences),
        cmocka_unit_test(test_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
