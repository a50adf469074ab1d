/* test_base_status.c - error lines: one line, terminated, bounded, prefixed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/str.h"
#include "base/utf8.h"

static void test_texts(void **state)
{
    (void)state;
    for (int s = 0; s >= -12; s--) {
        assert_non_null(nb_status_text((nb_status)s));
        for (int t = 0; t > s; t--)
            assert_string_not_equal(nb_status_text((nb_status)s), nb_status_text((nb_status)t));
    }
    assert_string_equal(nb_status_text((nb_status)-1000), "unknown status");
    assert_string_equal(nb_status_text((nb_status)7), "unknown status");
}

static void test_clean(void **state)
{
    (void)state;
    nb_error e;
    for (int c = 1; c < 256; c++) {
        const char s[2] = { (char)c, 0 };
        assert_int_equal(nb_fail(&e, NB_ERR_FORMAT, "a%sb", s), NB_ERR_FORMAT);
        assert_int_equal(e.status, NB_ERR_FORMAT);
        const int want = c < 0x20 || c >= 0x7f ? '?' : c;
        assert_int_equal((unsigned char)e.msg[1], want);
        assert_int_equal(e.msg[0], 'a');
    }
    assert_int_equal(nb_fail(NULL, NB_ERR_IO, "%s", "x"), NB_ERR_IO);
    static const char *const lines[][2] = {
        { "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
          "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80" },
        { "a\xe2\x82", "a??" },                       /* cut */
        { "\xc0\xaf\xed\xa0\x80\xff", "??????" },     /* overlong, surrogate, never valid */
        { "\xc2\x9b[2J", "??[2J" },                   /* C1: a terminal's escape */
        { "a\xe2\x80\xae txt", "a??? txt" },          /* right-to-left override */
        { "a\xe2\x80\xa8.\xef\xbb\xbf", "a???.???" }, /* line separator, mark of byte order */
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        (void)nb_fail(&e, NB_ERR_FORMAT, "%s", lines[i][0]);
        assert_string_equal(e.msg, lines[i][1]);
        (void)nb_fail_prefix(&e, NB_ERR_FORMAT, "%s", lines[i][0]);
        assert_int_equal(strncmp(e.msg, lines[i][1], strlen(lines[i][1])), 0);
    }
    char wide[NB_ERROR_MSG_BYTES + 3]; /* cut by the buffer's end in a sequence */
    for (size_t i = 0; i + 3 < sizeof wide; i += 3) memcpy(wide + i, "\xe2\x82\xac", 4);
    (void)nb_fail(&e, NB_ERR_FORMAT, ".%s", wide);
    assert_string_equal(e.msg + NB_ERROR_MSG_BYTES - 6, "\xe2\x82\xac??");
    (void)nb_fail(&e, NB_ERR_FORMAT, "..%s", wide);
    assert_string_equal(e.msg + NB_ERROR_MSG_BYTES - 5, "\xe2\x82\xac?");
}

static void test_bounds(void **state)
{
    (void)state;
    char big[3000];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = 0;
    nb_error e;
    (void)nb_fail(&e, NB_ERR_IO, "%s", big);
    assert_int_equal(strlen(e.msg), NB_ERROR_MSG_BYTES - 1);
    /* a long message keeps the prefix; a long prefix keeps its own start */
    (void)nb_fail_prefix(&e, NB_ERR_LIMIT, "file %d", 7);
    assert_int_equal(e.status, NB_ERR_LIMIT);
    assert_memory_equal(e.msg, "file 7: xxx", 11);
    assert_true(strlen(e.msg) < NB_ERROR_MSG_BYTES);
    for (size_t n = NB_ERROR_MSG_BYTES - 6; n <= NB_ERROR_MSG_BYTES + 2; n++) {
        (void)nb_fail(&e, NB_ERR_IO, "message");
        (void)nb_fail_prefix(&e, NB_ERR_IO, "%.*s", (int)n, big);
        assert_true(strlen(e.msg) < NB_ERROR_MSG_BYTES);
        assert_int_equal(e.msg[0], 'x');
    }
    (void)nb_fail(&e, NB_ERR_IO, "inner");
    assert_int_equal(nb_fail_prefix(&e, NB_ERR_FORMAT, "a\nb"), NB_ERR_FORMAT);
    assert_string_equal(e.msg, "a?b: inner");
    assert_int_equal(nb_fail_prefix(NULL, NB_ERR_FORMAT, "x"), NB_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
