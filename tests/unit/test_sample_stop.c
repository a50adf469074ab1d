/* test_sample_stop.c - stop strings in streamed text: what comes out, what is held back,
 * against a naive search for every way to cut the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "sample/stop.h"

enum { MAX = 256 };

static nb_stop *create(const char *const *strings, size_t n)
{
    nb_str v[8];
    nb_stop *s = NULL;
    nb_error e;
    for (size_t i = 0; i < n; i++) v[i] = nb_str_c(strings[i]);
    if (nb_stop_create(v, n, &s, &e) != NB_OK) fail_msg("%s", e.msg);
    return s;
}

/* Feeds and compares what comes out. */
static void feed(nb_stop *s, const char *piece, const char *want)
{
    nb_str out;
    assert_int_equal(nb_stop_feed(s, nb_str_c(piece), &out), NB_OK);
    if (!nb_str_eqc(out, want))
        fail_msg("after \"%s\": \"%.*s\", expected \"%s\"", piece, (int)out.n_bytes, out.p, want);
}

static void test_hold(void **state)
{
    (void)state;
    const char *const one[] = { "<end>" };
    nb_stop *s = create(one, 1);
    feed(s, "abc", "abc");
    feed(s, "d<e", "d");
    feed(s, "n", "");
    feed(s, "e<", "<ene");
    feed(s, "<", "<");
    feed(s, "end", "");
    assert_int_equal(nb_stop_found(s), -1);
    feed(s, ">more", "");
    assert_int_equal(nb_stop_found(s), 0);
    feed(s, "more", "");
    assert_int_equal(nb_stop_flush(s).n_bytes, 0);
    nb_stop_destroy(s);
    s = create(one, 1);
    feed(s, "x<en", "x");
    assert_true(nb_str_eqc(nb_stop_flush(s), "<en"));
    nb_stop_destroy(s);
    s = create(NULL, 0);
    feed(s, "anything", "anything");
    feed(s, "", "");
    assert_int_equal(nb_stop_flush(s).n_bytes, 0);
    nb_stop_destroy(s);
    nb_stop_destroy(NULL);
}

static void test_which(void **state)
{
    (void)state;
    const char *const v[] = { "abcd", "bc", "xbc", "\n\n" };
    nb_stop *s = create(v, 4);
    feed(s, "zabcd", "za"); /* "bc" ends first */
    assert_int_equal(nb_stop_found(s), 1);
    nb_stop_destroy(s);
    s = create(v, 4);
    feed(s, "zxbc", "z"); /* two end here: the longer */
    assert_int_equal(nb_stop_found(s), 2);
    nb_stop_destroy(s);
    s = create(v, 4);
    feed(s, "x\n", "x");
    feed(s, "b\n", "\nb");
    feed(s, "\n", "");
    assert_int_equal(nb_stop_found(s), 3);
    nb_stop_destroy(s);
    const char *const self[] = { "aab", "aaaab" }; /* overlaps with itself */
    s = create(self, 2);
    feed(s, "aaa", "");
    feed(s, "aa", "a");
    feed(s, "b!", "");
    assert_int_equal(nb_stop_found(s), 1);
    nb_stop_destroy(s);
}

static void test_utf8(void **state)
{
    (void)state;
    const char *const v[] = { "é", "日本" };
    nb_stop *s = create(v, 2);
    feed(s, "è", "è"); /* shares the first byte with é: not held back once whole */
    feed(s, "a日", "a");
    feed(s, "月", "日月");
    feed(s, "日日", "日");
    feed(s, "本", "");
    assert_int_equal(nb_stop_found(s), 1);
    nb_stop_destroy(s);
}

/* ---- against a naive search -------------------------------------------- */

/* The match that ends first, of those the longest: its start, or n. */
static size_t naive(const char *text, size_t n, const char *const *v, size_t n_v, bool *found)
{
    *found = false;
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n_v; i++) {
            const size_t k = strlen(v[i]);
            if (k <= end && k > longest && memcmp(text + end - k, v[i], k) == 0) longest = k;
        }
        if (longest) {
            *found = true;
            return end - longest;
        }
    }
    return n;
}

/* Length of the longest end of text[0..n) that is a proper beginning of a string. */
static size_t naive_hold(const char *text, size_t n, const char *const *v, size_t n_v)
{
    size_t hold = 0;
    for (size_t i = 0; i < n_v; i++)
        for (size_t k = 1; k < strlen(v[i]) && k <= n; k++)
            if (k > hold && memcmp(text + n - k, v[i], k) == 0) hold = k;
    return hold;
}

/* Feeds text cut at the given ends and checks everything after each piece. */
static void check_cut(const char *text, size_t n, const size_t *ends, size_t n_piece,
                      const char *const *v, size_t n_v)
{
    char shown[MAX];
    size_t n_shown = 0, from = 0;
    bool found;
    const size_t want = naive(text, n, v, n_v, &found);
    nb_stop *s = create(v, n_v);
    for (size_t i = 0; i < n_piece; i++) {
        nb_str out;
        assert_int_equal(nb_stop_feed(s, (nb_str){ text + from, ends[i] - from }, &out), NB_OK);
        memcpy(shown + n_shown, out.p, out.n_bytes);
        n_shown += out.n_bytes;
        assert_true(nb_utf8_valid(out));
        from = ends[i];
        bool by_now;
        (void)naive(text, from, v, n_v, &by_now);
        assert_int_equal(nb_stop_found(s) >= 0, by_now);
        assert_int_equal(n_shown, by_now ? want : from - naive_hold(text, from, v, n_v));
    }
    const nb_str rest = nb_stop_flush(s);
    memcpy(shown + n_shown, rest.p, rest.n_bytes);
    n_shown += rest.n_bytes;
    assert_int_equal(n_shown, want);
    assert_memory_equal(shown, text, want);
    assert_int_equal(nb_stop_found(s) >= 0, found);
    nb_stop_destroy(s);
}

/* Random text over few letters; one of them has two bytes, and is never cut. */
static size_t random_text(char *p, size_t n_letter, uint64_t *k)
{
    static const char *const letters[] = { "a", "b", "a", "é", "b", "a" };
    size_t n = 0;
    for (size_t i = 0; i < n_letter; i++) {
        const char *c = letters[nb_rng_u64(77, (*k)++) % 6];
        memcpy(p + n, c, strlen(c));
        n += strlen(c);
    }
    p[n] = 0;
    return n;
}

static bool boundary(const char *text, size_t i)
{
    return ((unsigned char)text[i] & 0xc0) != 0x80;
}

static void test_random(void **state)
{
    (void)state;
    uint64_t k = 0;
    for (size_t trial = 0; trial < 2000; trial++) {
        char text[MAX], strings[3][MAX];
        const char *v[3] = { strings[0], strings[1], strings[2] };
        const size_t n_v = 1 + trial % 3;
        for (size_t i = 0; i < n_v; i++)
            random_text(strings[i], 1 + nb_rng_u64(78, k++) % (trial % 2 ? 5 : 12), &k);
        const size_t n = random_text(text, nb_rng_u64(79, k++) % 40, &k);
        size_t ends[MAX], n_piece = 0;
        for (size_t i = 1; i <= n; i++)
            if (boundary(text, i)) ends[n_piece++] = i;
        check_cut(text, n, ends, n_piece, v, n_v); /* letter by letter */
        for (size_t cut = 0; cut <= n; cut++) {    /* in two, everywhere */
            const size_t two[2] = { cut, n };
            if (boundary(text, cut)) check_cut(text, n, two, 2, v, n_v);
        }
        size_t m = 0;
        for (size_t i = 1; i <= n; i++)
            if (boundary(text, i) && (i == n || nb_rng_u64(80, k++) % 3 == 0)) ends[m++] = i;
        check_cut(text, n, ends, m, v, n_v);
    }
}

static void test_refused(void **state)
{
    (void)state;
    nb_error e;
    nb_stop *s = NULL;
    static char big[NB_STOP_BYTES_MAX + 1];
    memset(big, 'x', sizeof big);
    nb_str v[NB_STOP_STRINGS_MAX + 1];
    for (size_t i = 0; i <= NB_STOP_STRINGS_MAX; i++) v[i] = nb_str_c("x");
    assert_int_equal(nb_stop_create(v, NB_STOP_STRINGS_MAX + 1, &s, &e), NB_ERR_LIMIT);
    assert_non_null(strstr(e.msg, "at most 64"));
    v[1] = nb_str_c("");
    assert_int_equal(nb_stop_create(v, 2, &s, &e), NB_ERR_ARG);
    assert_non_null(strstr(e.msg, "string 1 is empty"));
    v[1] = (nb_str){ big, sizeof big };
    assert_int_equal(nb_stop_create(v, 2, &s, &e), NB_ERR_LIMIT);
    v[1] = nb_str_c("\xa9");
    assert_int_equal(nb_stop_create(v, 2, &s, &e), NB_ERR_ARG);
    assert_null(s);
    v[1] = (nb_str){ big, NB_STOP_BYTES_MAX }; /* the largest one works */
    assert_int_equal(nb_stop_create(v + 1, 1, &s, &e), NB_OK);
    nb_str out;
    assert_int_equal(nb_stop_feed(s, (nb_str){ big, sizeof big - 2 }, &out), NB_OK);
    assert_int_equal(out.n_bytes, 0);
    nb_stop_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hold),   cmocka_unit_test(test_which),   cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_random), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
