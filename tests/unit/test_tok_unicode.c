/* test_tok_unicode.c - normalization against utf8proc, UTF-8 repair, lowercase. */
#include "tok_test.h"

#include <utf8proc.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "text/tok_unicode.h"

static void expect_form(nb_tok_form form, const char *s, const char *want)
{
    nb_buf out = { 0 };
    assert_int_equal(nb_tok_normalize(form, nb_str_c(s), &out), NB_OK);
    if (!nb_str_eqc(nb_buf_view(&out), want))
        fail_msg("form %d of \"%s\": \"%s\", expected \"%s\"", (int)form, s, out.p ? out.p : "",
                 want);
    nb_buf_deinit(&out);
}

static void known_forms(void **state)
{
    (void)state;
    expect_form(NB_FORM_NFC, "", "");
    expect_form(NB_FORM_NFC, "plain", "plain");
    expect_form(NB_FORM_NFC, "e\xcc\x81", "\xc3\xa9");
    expect_form(NB_FORM_NFC, "xe\xcc\x81y", "x\xc3\xa9y");
    expect_form(NB_FORM_NFD, "\xc3\xa9", "e\xcc\x81");
    expect_form(NB_FORM_NFC, "\xe2\x84\xab", "\xc3\x85"); /* Angstrom sign   */
    expect_form(NB_FORM_NFC, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"); /* Hangul */
    expect_form(NB_FORM_NFD, "\xed\x95\x9c", "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab");
    expect_form(NB_FORM_NFC, "a\xcc\x88\xcc\xa3", "\xe1\xba\xa1\xcc\x88"); /* order by class */
    expect_form(NB_FORM_NFKC, "\xef\xac\x81", "fi");
    expect_form(NB_FORM_NFKD, "\xc2\xbd",
                "1\xe2\x81\x84"
                "2");
    expect_form(NB_FORM_NFC, "\xef\xac\x81", "\xef\xac\x81");
    expect_form(NB_FORM_NFC, "\xe3\x81\x8b\xe3\x82\x99", "\xe3\x81\x8c"); /* kana with mark  */
}

static void equals_utf8proc(void **state)
{
    static const uint32_t PICK[] = { 'a',    'e',    'o',     0xe9,    0x300,  0x301,  0x308,
                                     0x323,  0x327,  0x345,   0x3b1,   0x1100, 0x1161, 0x11a8,
                                     0xac00, 0xac01, 0x304b,  0x3099,  0x212b, 0x2126, 0xfb01,
                                     0xbd,   0x4e2d, 0xf900,  0x0f71,  0x0f72, 0x0f74, 0x1e9b,
                                     0xff21, 0xfdfa, 0x1d15e, 0x2f800, 0x200d };
    utf8proc_uint8_t *(*const REFERENCE[])(
        const utf8proc_uint8_t *) = { [NB_FORM_NFC] = utf8proc_NFC,
                                      [NB_FORM_NFD] = utf8proc_NFD,
                                      [NB_FORM_NFKC] = utf8proc_NFKC,
                                      [NB_FORM_NFKD] = utf8proc_NFKD };
    (void)state;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        nb_buf s = { 0 };
        const size_t n = 1 + nb_rng_u64(seed, 0) % 12;
        for (size_t i = 0; i < n; i++) {
            char u[4];
            const uint32_t cp = PICK[nb_rng_u64(seed, 1 + i) % (sizeof PICK / sizeof *PICK)];
            assert_int_equal(nb_buf_add(&s, u, (size_t)nb_utf8_encode(cp, u)), NB_OK);
        }
        const nb_tok_form form = (nb_tok_form)(seed % 4);
        utf8proc_uint8_t *want = REFERENCE[form]((const utf8proc_uint8_t *)s.p);
        assert_non_null(want);
        expect_form(form, s.p, (const char *)want);
        free(want);
        nb_buf_deinit(&s);
    }
}

/* Every single character, so that shortcuts cannot be wrong. */
static void every_character(void **state)
{
    (void)state;
    for (uint32_t cp = 1; cp < 0x110000; cp += cp < 0x3000 ? 1 : 7) {
        char u[5] = { 0 };
        const int len = nb_utf8_encode(cp, u);
        if (!len) continue;
        utf8proc_uint8_t *want = utf8proc_NFC((const utf8proc_uint8_t *)u);
        assert_non_null(want);
        expect_form(NB_FORM_NFC, u, (const char *)want);
        free(want);
    }
}

/* Long runs of marks keep their order within a class. */
static void many_marks(void **state)
{
    (void)state;
    nb_buf s = { 0 }, out = { 0 };
    assert_int_equal(nb_buf_add_ch(&s, 'q'), NB_OK);
    for (int i = 0; i < 200000; i++)
        assert_int_equal(nb_buf_add_c(&s, i % 2   ? "\xcc\xa3"
                                          : i % 4 ? "\xcc\x88"
                                                  : "\xcc\x81"),
                         NB_OK);
    assert_int_equal(nb_tok_normalize(NB_FORM_NFD, nb_buf_view(&s), &out), NB_OK);
    assert_int_equal(out.n_bytes, s.n_bytes);
    for (size_t i = 0; i < 100000; i++) { /* class 220 first, then the 230s as they came */
        assert_memory_equal(out.p + 1 + 2 * i, "\xcc\xa3", 2);
        assert_memory_equal(out.p + 200001 + 2 * i, i % 2 ? "\xcc\x88" : "\xcc\x81", 2);
    }
    nb_buf_deinit(&s);
    nb_buf_deinit(&out);
}

static void repair(void **state)
{
    static const struct {
        const char *in, *want; /* R: U+FFFD */
    } CASES[] = {
        { "abc", "abc" },
        { "\x80", "R" },
        { "a\xc2", "aR" },
        { "\xc2\x41", "RA" },
        { "\xe1\x80\xc0", "RR" },
        { "\xf1\x80\x80\x41", "RA" },
        { "\xe0\x9f\x80", "RRR" },
        { "\xf4\x90\x80\x80", "RRRR" },
        { "\xf0\x90\x80", "R" },
        { "\xed\x9f\xbf\xed\xa0\x80", "\xed\x9f\xbfRRR" },
        /* Unicode 15, table 3-11 */
        { "\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", "RRRRRARRB" },
        { "\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "RRRRA" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        nb_buf out = { 0 }, want = { 0 };
        for (const char *p = CASES[i].want; *p; p++)
            assert_int_equal(
                *p == 'R' ? nb_buf_add_c(&want, "\xef\xbf\xbd") : nb_buf_add_ch(&want, *p), NB_OK);
        assert_int_equal(nb_tok_utf8_fix(nb_str_c(CASES[i].in), &out), NB_OK);
        if (!nb_str_eq(nb_buf_view(&out), nb_buf_view(&want))) fail_msg("case %zu", i);
        assert_true(nb_utf8_valid(nb_buf_view(&out)));
        nb_buf_deinit(&out);
        nb_buf_deinit(&want);
    }
}

static void lowercase(void **state)
{
    (void)state;
    nb_buf out = { 0 };
    assert_int_equal(
        nb_tok_lower(nb_str_c("ABC \xc3\x84 \xce\xa3 \xf0\x90\x90\x80 \xc4\xb0 \xe1\xba\x9e"),
                     &out),
        NB_OK);
    assert_string_equal(out.p, "abc \xc3\xa4 \xcf\x83 \xf0\x90\x90\xa8 i\xcc\x87 \xc3\x9f");
    nb_buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_forms),     cmocka_unit_test(equals_utf8proc),
        cmocka_unit_test(every_character), cmocka_unit_test(many_marks),
        cmocka_unit_test(repair),          cmocka_unit_test(lowercase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
