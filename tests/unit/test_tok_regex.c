/* test_tok_regex.c - the hand-written matchers against PCRE2, the translation of
 * Oniguruma patterns, and character classes against PCRE2's tables. */
#include "tok_test.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "text/tok_internal.h"

static uint16_t classes[NB_CC_TABLE_ITEMS];

static nb_tok_regex compile(const char *pattern, bool native)
{
    nb_tok_regex re;
    nb_error err = { 0 };
    if (nb_tok_regex_compile(nb_str_c(pattern), native, &re, &err) != NB_OK)
        fail_msg("%s: %s", pattern, err.msg);
    return re;
}

/* Characters that the patterns tell apart, all assigned before Unicode 12. */
static const uint32_t ALPHABET[] = {
    'a',     'Z',     's',     't',     'e',     'r',     'L',     'l',    'm',    'd',    '\'',
    ' ',     ' ',     ' ',     '\t',    '\n',    '\r',    '\n',    '0',    '9',    '1',    '.',
    ',',     '$',     '+',     '<',     '|',     '_',     '[',     ']',    '~',    '\\',   0x00,
    0x1f,    0x7f,    0x85,    0xa0,    0xad,    0xb5,    0xb2,    0xbd,   0xc9,   0xe9,   0x130,
    0x17f,   0x1c5,   0x2b0,   0x301,   0x308,   0x378,   0x3a9,   0x410,  0x430,  0x5d0,  0x627,
    0x660,   0x903,   0x915,   0x93f,   0xe01,   0x1100,  0x1161,  0x1680, 0x180e, 0x1e9e, 0x2003,
    0x200b,  0x200d,  0x2014,  0x2028,  0x2029,  0x202f,  0x20ac,  0x20dd, 0x2160, 0x24b6, 0x2603,
    0x2e80,  0x3000,  0x3001,  0x3005,  0x3007,  0x3042,  0x30a2,  0x30fb, 0x4e2d, 0x6587, 0x9fa5,
    0x9fa6,  0xac00,  0xe000,  0xf900,  0xfe0f,  0xff01,  0xff10,  0xff21, 0xff5c, 0xfffd, 0x10400,
    0x10428, 0x1d7ce, 0x1f600, 0x1f130, 0x20000, 0xe0001, 0x10ffff
};

static nb_buf random_text(uint64_t seed, size_t n)
{
    nb_buf b = { 0 };
    /* a small part of the alphabet at a time makes long runs and near misses */
    const size_t k = 1 + nb_rng_u64(seed, 0) % 12;
    for (size_t i = 0; i < n; i++) {
        const size_t pick = nb_rng_u64(seed, 100 + i) % k;
        const uint32_t cp = ALPHABET[nb_rng_u64(seed, 1 + pick) % (sizeof ALPHABET / 4)];
        char u[4];
        const int len = nb_utf8_encode(cp, u);
        assert_int_equal(nb_buf_add(&b, u, (size_t)len), NB_OK);
    }
    assert_int_equal(nb_buf_add(&b, "", 0), NB_OK);
    return b;
}

static void compare_all_matches(const nb_tok_regex *a, const nb_tok_regex *b, nb_str s,
                                nb_tok_regex_run *run)
{
    for (size_t from = 0;;) {
        bool fa, fb;
        size_t sa = 0, ea = 0, sb = 0, eb = 0;
        nb_error err = { 0 };
        assert_int_equal(nb_tok_regex_next(a, run, classes, s, from, &fa, &sa, &ea, &err), NB_OK);
        assert_int_equal(nb_tok_regex_next(b, run, classes, s, from, &fb, &sb, &eb, &err), NB_OK);
        if (fa != fb || sa != sb || ea != eb) {
            nb_buf hex = { 0 };
            for (size_t i = 0; i < s.n_bytes; i++)
                (void)nb_buf_printf(&hex, "%02x", (unsigned char)s.p[i]);
            fail_msg("kind %d in %s from %zu: native %d %zu-%zu, PCRE2 %d %zu-%zu", (int)a->native,
                     hex.p, from, fa, sa, ea, fb, sb, eb);
        }
        if (!fa) return;
        from = ea;
    }
}

static void native_equals_pcre2(void **state)
{
    static const char *const PATTERNS[] = {
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
        "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
        NB_TOK_PATTERN_LLAMA3,
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        NB_TOK_PATTERN_GPT2,
        NB_TOK_PATTERN_KIMI,
        "\\p{N}",
        "\\p{N}{1,3}",
        "\\p{N}+",
        "[\\r\\n]",
        "\\s+$",
    };
    (void)state;
    nb_tok_regex_run run = { 0 };
    for (size_t p = 0; p < sizeof PATTERNS / sizeof *PATTERNS; p++) {
        nb_tok_regex a = compile(PATTERNS[p], true), b = compile(PATTERNS[p], false);
        assert_int_not_equal(a.native, NB_NATIVE_NONE);
        assert_int_equal(b.native, NB_NATIVE_NONE);
        for (uint64_t k = 0; k < 3000; k++) {
            nb_buf s = random_text(1000 * p + k, 1 + k % 40);
            compare_all_matches(&a, &b, nb_buf_view(&s), &run);
            nb_buf_deinit(&s);
        }
        nb_tok_regex_deinit(&a);
        nb_tok_regex_deinit(&b);
    }
    nb_tok_regex_run_deinit(&run);
}

/* Start and end of the first match of an Oniguruma pattern. */
static void expect_match(const char *pattern, const char *text, size_t start, size_t end)
{
    nb_tok_regex re = compile(pattern, false);
    nb_tok_regex_run run = { 0 };
    bool found = false;
    size_t a = 0, b = 0;
    assert_int_equal(nb_tok_regex_next(&re, &run, classes, nb_str_c(text), 0, &found, &a, &b, NULL),
                     NB_OK);
    if (start == SIZE_MAX ? found : !found || a != start || b != end)
        fail_msg("%s in \"%s\": %d %zu-%zu", pattern, text, found, a, b);
    nb_tok_regex_run_deinit(&run);
    nb_tok_regex_deinit(&re);
}

static void translation(void **state)
{
    (void)state;
    expect_match("\\s+", "a\xe1\xa0\x8e ", 4, 5); /* U+180E is no white space */
    expect_match("[^\\s]+", " \xe1\xa0\x8e ", 1, 4);
    expect_match("[\\S]+", " \xe1\xa0\x8ex\xe3\x80\x80", 1, 5);
    expect_match("\\w+", ".e\xcc\x81_9 ", 1, 6); /* marks and digits are \w */
    expect_match("[\\w-]+", " a-b ", 1, 4);
    expect_match("\\W", "\xe2\x92\xb6.", 3, 4); /* U+24B6 is Alphabetic */
    expect_match("\\d+",
                 "x\xd9\xa0"
                 "1\xc2\xbd",
                 1, 4);                    /* Nd, not No */
    expect_match("\\h+", "xyzBEEF", 3, 7); /* a hexadecimal digit in Ruby */
    expect_match("\\bfoo\\b", "afoo foo", 5, 8);
    expect_match("[a[bc]d]+", "xabcdx", 1, 5);
    expect_match("[a-z&&[^aeiou]]+", "aeixyzo", 3, 6);
    expect_match("[a-z&&[^aeiou]&&[^x]]+", "aeixyzo", 4, 6);
    expect_match("[^a-c&&[b-z]]", "bd", 1, 2);
    expect_match("[[^a]]", "ab", 1, 2);
    expect_match("[(?]+", "a(?(", 1, 4);
    expect_match("[]a]+", "x]a", 1, 3);
    expect_match("a{,2}b", "aaab", 1, 4);
    expect_match("(?:a{2}+)b", "aaaab", 0, 5); /* repeats, is not possessive */
    expect_match("x{2,3}+y", "xxxxxy", 0, 6);
    expect_match("(ab){2}+c", "ababababc", 0, 9);
    expect_match("a{b", "a{b", 0, 3);
    expect_match("^b$", "a\nb\nc", 2, 3); /* ^ and $ at line breaks */
    expect_match("a.c", "a\nc", SIZE_MAX, 0);
    expect_match("(?m:a.c)", "a\nc", 0, 3); /* m: the dot takes line breaks */
    expect_match("\\p{Letter}+", "1ab", 1, 3);
    expect_match("\\p{Lowercase_Letter}+", "Aab", 1, 3);
    expect_match("\\p{^L}+", "ab12", 2, 4);
    expect_match("\\P{L}+", "ab12", 2, 4);
    expect_match("\\p{Han}+", "a\xe4\xb8\xad", 1, 4);
    expect_match("\\p{Han}+", "\xe3\x80\x81\xe4\xb8\xad", 3, 6); /* the script, no extensions */
    expect_match("[^\\p{Hiragana}]+", "\xe3\x81\x82\xe3\x83\xbc", 3, 6);
    expect_match("\\u00e9\\x41",
                 "\xc3\xa9"
                 "A",
                 0, 3);
    expect_match("[\\u4e00-\\u9fff]+", "a\xe4\xb8\xad", 1, 4);
    expect_match("\\v", "\n\x0b", 1, 2);
    expect_match("[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++", " ab", 0, 3);
    expect_match(" ?[^(\\s|[.,!?])]+", "ab, c", 0, 2); /* a nested class: union */
    expect_match("(?:\\r?\\n)+(?!\\r?\\n)", "a\n\nb", 1, 3);
    expect_match("'(?i:[sdmt]|ll|ve|re)", "x'LL", 1, 4);
}

static void refused(void **state)
{
    static const char *const BAD[] = {
        "(",         ")",           "[",           "[a",      "a)",        "*a",        "(*UTF)a",
        "(*ACCEPT)", "(?~ab)",      "(?#",         "(?<n>a)", "\\1(a)",    "\\Qa",      "\\",
        "[\\W]",     "[[:alpha:]]", "[a[^b]]",     "[a&&]",   "\\p{",      "\\p{Nope}", "\\pL",
        "\\xe9",     "\\u12",       "a(?i)b|c",    "\\k<a>",  "\\G",       "\\K",       "\\C",
        "\\p{L\n}",  "[b-a]",       "\\x{110000}", "(?i",     "\\x{d800}", "a{2,1}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        nb_tok_regex re = { 0 };
        nb_error err = { 0 };
        const nb_status st = nb_tok_regex_compile(nb_str_c(BAD[i]), false, &re, &err);
        if (st != NB_ERR_UNSUPPORTED && st != NB_ERR_FORMAT) fail_msg("%s: %d", BAD[i], (int)st);
        assert_true(strlen(err.msg) > 10);
    }
    nb_buf deep = { 0 };
    for (int i = 0; i < 5000; i++)
        assert_int_equal(nb_buf_add_c(&deep, i < 2500 ? "(" : ")"), NB_OK);
    nb_tok_regex re;
    assert_int_not_equal(nb_tok_regex_compile(nb_buf_view(&deep), false, &re, NULL), NB_OK);
    deep.n_bytes = 0;
    for (int i = 0; i < 5000; i++) assert_int_equal(nb_buf_add_c(&deep, "["), NB_OK);
    assert_int_not_equal(nb_tok_regex_compile(nb_buf_view(&deep), false, &re, NULL), NB_OK);
    deep.n_bytes = 0;
    for (int i = 0; i < 20000; i++) assert_int_equal(nb_buf_add_c(&deep, "a"), NB_OK);
    assert_int_equal(nb_tok_regex_compile(nb_buf_view(&deep), false, &re, NULL), NB_ERR_LIMIT);
    nb_buf_deinit(&deep);
}

/* Exponential in a backtracking engine: stopped by the step limit. */
static void catastrophic(void **state)
{
    (void)state;
    nb_tok_regex re = compile("(a+)+$", false);
    nb_buf s = { 0 };
    for (int i = 0; i < 64; i++) assert_int_equal(nb_buf_add_c(&s, "a"), NB_OK);
    assert_int_equal(nb_buf_add_c(&s, "!"), NB_OK);
    for (int k = 0; k < 2; k++) {
        nb_tok_regex_run run = { .interpret = k };
        bool found;
        size_t a, b;
        nb_error err = { 0 };
        assert_int_equal(
            nb_tok_regex_next(&re, &run, classes, nb_buf_view(&s), 0, &found, &a, &b, &err),
            NB_ERR_LIMIT);
        assert_non_null(strstr(err.msg, "gives up"));
        nb_tok_regex_run_deinit(&run);
    }
    nb_tok_regex_deinit(&re);
    nb_buf_deinit(&s);
}

/* Runs of a million characters: linear, native and in PCRE2. */
static void long_runs(void **state)
{
    static const char *const PATTERNS[] = { "\\s+$", NB_TOK_PATTERN_KIMI, NB_TOK_PATTERN_LLAMA3,
                                            NB_TOK_PATTERN_GPT2 };
    (void)state;
    for (size_t p = 0; p < 4; p++) {
        nb_tok_regex re = compile(PATTERNS[p], true);
        for (size_t c = 0; c < 4; c++) {
            nb_buf s = { 0 };
            nb_tok_regex_run run = { 0 };
            for (int i = 0; i < 1000000; i++) assert_int_equal(nb_buf_add_ch(&s, " A.9"[c]), NB_OK);
            assert_int_equal(nb_buf_add_ch(&s, 'x'), NB_OK);
            size_t from = 0, n = 0, a, b;
            for (bool found = true; found && from < s.n_bytes; from = b, n++)
                if (nb_tok_regex_next(&re, &run, classes, nb_buf_view(&s), from, &found, &a, &b,
                                      NULL) != NB_OK ||
                    !found)
                    break;
            assert_true(n < 400000);
            nb_buf_deinit(&s);
            nb_tok_regex_run_deinit(&run);
        }
        nb_tok_regex_deinit(&re);
    }
}

/* Counts the code points where a class differs from a pattern of one character. */
static size_t differences(const char *pattern, unsigned mask, uint32_t last)
{
    nb_tok_regex re = compile(pattern, false);
    nb_tok_regex_run run = { 0 };
    size_t n = 0;
    for (uint32_t cp = 0; cp <= last; cp++) {
        char u[4];
        const int len = nb_utf8_encode(cp, u);
        if (!len) continue;
        bool found;
        size_t a, b;
        assert_int_equal(nb_tok_regex_next(&re, &run, classes, (nb_str){ u, (size_t)len }, 0,
                                           &found, &a, &b, NULL),
                         NB_OK);
        n += found != ((nb_tok_class(classes, cp) & mask) != 0);
    }
    nb_tok_regex_run_deinit(&run);
    nb_tok_regex_deinit(&re);
    return n;
}

/* The two libraries may be of different Unicode versions: equal below U+0250,
 * and nearly everywhere else. */
static void classes_agree(void **state)
{
    static const struct {
        const char *pattern;
        unsigned mask;
        size_t most; /* differences in the basic plane */
    } CASES[] = {
        { "\\p{L}", NB_CC_L, 200 },
        { "\\p{M}", NB_CC_M, 100 },
        { "\\p{N}", NB_CC_N, 20 },
        { "\\p{P}", NB_CC_P, 20 },
        { "\\p{S}", NB_CC_S, 50 },
        { "\\s", NB_CC_WS, 0 },
        { "\\p{Han}", NB_CC_HAN, 20 },
        { "\\w", NB_CC_WORD, 300 },
        { "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]", NB_CC_UPPER, 300 },
        { "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]", NB_CC_LOWER, 300 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        assert_int_equal(differences(CASES[i].pattern, CASES[i].mask, 0x24f), 0);
        const size_t n = differences(CASES[i].pattern, CASES[i].mask, 0xffff);
        if (n > CASES[i].most) fail_msg("%s: %zu differences", CASES[i].pattern, n);
    }
}

int main(void)
{
    nb_tok_class_table(classes);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native_equals_pcre2),
        cmocka_unit_test(translation),
        cmocka_unit_test(refused),
        cmocka_unit_test(catastrophic),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(classes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
