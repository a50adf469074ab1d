/* test_ruler.c - generated retrieval prompts: lengths, places, what is in them how often, seeds,
 * hostile options and files; grading by cases worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quality/ruler.h"

/* A tokenizer of its own: a beginning, then a token for each run of letters with the blank before
 * it, and for every other byte. */
static nb_status words(void *ctx, const char *s, size_t n, uint32_t **ids, size_t *n_ids,
                       nb_error *err)
{
    uint32_t *out = malloc((n + 1) * sizeof *out);
    size_t k = 0;
    (void)err;
    if (ctx) ++*(size_t *)ctx;
    if (!out) return NB_ERR_NOMEM;
    out[k++] = 1;
    for (size_t i = 0; i < n;) {
        uint32_t h = 2166136261u;
        size_t j = i + (s[i] == ' ' && i + 1 < n);
        const size_t begin = j;
        while (j < n && ((s[j] | 32) >= 'a' && (s[j] | 32) <= 'z')) j++;
        if (j == begin) j++;
        for (; i < j; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
        out[k++] = 2 + h % 1000003;
    }
    *ids = out;
    *n_ids = k;
    return NB_OK;
}

static const size_t lengths[] = { 700, 1200, 3000 };

static nb_ruler_options options(const char *dialect, uint64_t seed)
{
    return (nb_ruler_options){ .dialect = dialect,
                               .tasks = nb_ruler_dialect_tasks(dialect),
                               .length = lengths,
                               .n_length = 3,
                               .n_sample = 6,
                               .n_depth = 5,
                               .seed = seed,
                               .encode = words };
}

static nb_ruler_set make(nb_ruler_options o)
{
    nb_ruler_set s;
    nb_error err = { 0 };
    if (nb_ruler_make(&o, &s, &err) != NB_OK) fail_msg("%s", err.msg);
    return s;
}

static size_t count_of(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, word)); p++) n++;
    return n;
}

static const nb_ruler_item *first_of(const nb_ruler_set *s, const char *kind, size_t length)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->item[i].kind, kind) == 0 && s->item[i].length == length) return &s->item[i];
    fail_msg("no %s of %zu tokens", kind, length);
    return NULL;
}

/* ---- sets ------------------------------------------------------------------------ */

static void test_counts_and_lengths(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        const char *dialect = d ? "ruler" : "plain";
        nb_ruler_set s = make(options(dialect, 7));
        const size_t n_task = d ? 7 : 5;
        assert_int_equal(s.n, 3 * n_task * 6);
        size_t per[NB_RULER_N_TASK][3] = { { 0 } }, depth[5] = { 0 };
        for (size_t i = 0; i < s.n; i++) {
            const nb_ruler_item *it = &s.item[i];
            const size_t all = it->n_ids + it->max_tok;
            if (all > it->length || (double)all < 0.9 * (double)it->length)
                fail_msg("%s %s: %zu tokens for %zu", dialect, it->kind, all, it->length);
            assert_true(s.max_tok >= all);
            assert_true(it->n_full > it->n_given && it->n_given <= it->n_ids && it->n_given > 0);
            assert_memory_equal(it->ids, it->full, it->n_given * sizeof *it->ids);
            for (unsigned t = 0; t < NB_RULER_N_TASK; t++)
                for (size_t l = 0; l < 3; l++)
                    per[t][l] += strcmp(it->kind, nb_ruler_task_name((nb_ruler_task)t)) == 0 &&
                                 it->length == lengths[l];
            if (it->depth != NB_RULER_NO_DEPTH) depth[it->depth]++;
        }
        for (unsigned t = 0; t < n_task; t++)
            for (size_t l = 0; l < 3; l++) assert_int_equal(per[t][l], 6);
        for (size_t k = 1; k < 5; k++) assert_int_equal(depth[k], 3 * 5);
        assert_int_equal(depth[0], 3 * 5 * 2); /* the sixth sample begins again */
        nb_ruler_set_deinit(&s);
    }
}

static void test_seeds(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        const char *dialect = d ? "ruler" : "plain";
        nb_ruler_set a = make(options(dialect, 3)), b = make(options(dialect, 3)),
                     c = make(options(dialect, 4));
        assert_int_equal(a.n, b.n);
        assert_int_equal(a.n, c.n);
        for (size_t i = 0; i < a.n; i++) {
            assert_string_equal(a.item[i].prompt, b.item[i].prompt);
            assert_string_equal(a.item[i].answer, b.item[i].answer);
            assert_string_not_equal(a.item[i].prompt, c.item[i].prompt);
            assert_string_not_equal(a.item[i].answer, c.item[i].answer);
            for (size_t k = 0; k < i; k++)
                assert_string_not_equal(a.item[i].prompt, a.item[k].prompt);
        }
        nb_ruler_set_deinit(&a);
        nb_ruler_set_deinit(&b);
        nb_ruler_set_deinit(&c);
    }
}

/* The asked needle is where it was wanted, measured in bytes of the text. */
static void test_depth(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        nb_ruler_set s = make(options(d ? "ruler" : "plain", 11));
        double worst = 0;
        for (size_t i = 0; i < s.n; i++) {
            const nb_ruler_item *it = &s.item[i];
            if (it->depth == NB_RULER_NO_DEPTH) {
                assert_true(it->at < 0);
                continue;
            }
            const double off = fabs(it->at - (double)it->depth / 4);
            if (it->depth == 0 && !d && it->length > 1000) assert_true(it->at < 0.2);
            if (off > worst) worst = off;
        }
        /* others are planted around it, more of them than of the rest in short plain texts */
        if (worst > (d ? 0.12 : 0.2)) fail_msg("dialect %d: %.3f from the wanted place", d, worst);
        nb_ruler_set_deinit(&s);
    }
}

/* Values of needles and variables occur exactly as often as the task says. */
static void test_answers_in_text(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        nb_ruler_set s = make(options(d ? "ruler" : "plain", 5));
        for (size_t i = 0; i < s.n; i++) {
            const nb_ruler_item *it = &s.item[i];
            const bool vt = strcmp(it->kind, "vt") == 0;
            if (strcmp(it->kind, "cwe") == 0 || strcmp(it->kind, "fwe") == 0) continue;
            for (size_t k = 0; k < it->n_ref; k++) {
                /* a variable is set once and, but for the last, used once */
                const size_t want = vt && k + 1 < it->n_ref ? 2 : 1;
                if (count_of(it->prompt, it->refs[k]) != want)
                    fail_msg("%s: %s occurs %zu times", it->kind, it->refs[k],
                             count_of(it->prompt, it->refs[k]));
                if (count_of(it->answer, it->refs[k]) != 1) fail_msg("%s", it->answer);
            }
            /* the keys of all needles of one form are distinct */
            for (const char *p = it->prompt; (p = strstr(p, "The magic number for ")); p++) {
                char line[96];
                const size_t n = strcspn(p, ".") < 60 ? strcspn(p, "0123456789") : 0;
                if (n == 0) continue;
                (void)snprintf(line, sizeof line, "%.*s", (int)n, p);
                assert_int_equal(count_of(it->prompt, line), 1);
            }
        }
        nb_ruler_set_deinit(&s);
    }
}

/* Distractors of the needle haystack: every key once; values in order in multivalue and vt. */
static void test_order_and_distractors(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        nb_ruler_set s = make(options(d ? "ruler" : "plain", 23));
        for (size_t i = 0; i < s.n; i++) {
            const nb_ruler_item *it = &s.item[i];
            const char *last = it->prompt;
            if (strcmp(it->kind, "vt") != 0 && strcmp(it->kind, "niah_multivalue") != 0) continue;
            for (size_t k = 0; k < it->n_ref; k++) {
                const char *p = strstr(it->prompt, it->refs[k]);
                assert_non_null(p);
                assert_true(p > last);
                last = p;
            }
        }
        const nb_ruler_item *mk = first_of(&s, "niah_multikey", 3000);
        const char *form = d ? "One of the special magic numbers for " : "The magic number for ";
        size_t n = 0;
        for (const char *p = mk->prompt; (p = strstr(p, form)); p++, n++) {
            char key[128];
            const char *k = p + strlen(form);
            (void)snprintf(key, sizeof key, "%s%.*s ", form, (int)strcspn(k, " "), k);
            assert_int_equal(count_of(mk->prompt, key), 1);
        }
        assert_true(n >= (d ? 60 : 20));
        nb_ruler_set_deinit(&s);
    }
}

static void test_counting_tasks(void **state)
{
    (void)state;
    nb_ruler_options o = options("ruler", 9);
    o.tasks = 1u << NB_RULER_CWE | 1u << NB_RULER_FWE;
    const size_t len[] = { 3000, 8192 };
    o.length = len;
    o.n_length = 2;
    o.n_sample = 2;
    nb_ruler_set s = make(o);
    for (size_t i = 0; i < s.n; i++) {
        const nb_ruler_item *it = &s.item[i];
        const bool cwe = strcmp(it->kind, "cwe") == 0;
        const char *text = strstr(it->prompt, "\n\n"); /* after the example */
        text = cwe ? text : it->prompt;
        assert_non_null(text);
        size_t before = SIZE_MAX;
        for (size_t k = 0; k < it->n_ref; k++) {
            char word[64];
            (void)snprintf(word, sizeof word, " %s", it->refs[k]);
            const size_t n = count_of(text, word);
            if (cwe)
                assert_true(n >= (it->length < 4096 ? 6u : 30u)); /* words may begin others */
            else
                assert_true(n > 0 && n < before);
            before = n;
        }
        if (cwe) assert_int_equal(it->n_ref, 10);
        if (!cwe) assert_int_equal(it->n_ref, 3);
        if (!cwe) assert_true(count_of(text, " ... ") > 2 * before);
    }
    nb_ruler_set_deinit(&s);
}

/* Texts of the plain dialect are shared by questions of all tasks, word for word. */
static void test_shared_texts(void **state)
{
    (void)state;
    nb_ruler_set s = make(options("plain", 2));
    size_t shared = 0;
    for (size_t i = 1; i < s.n; i++) {
        const nb_ruler_item *a = &s.item[i - 1], *b = &s.item[i];
        if (a->context != b->context) continue;
        const char *end = strstr(a->prompt, "Question: ");
        assert_non_null(end);
        assert_memory_equal(a->prompt, b->prompt, (size_t)(end - a->prompt));
        assert_string_not_equal(a->prompt, b->prompt);
        shared++;
    }
    assert_int_equal(s.n - shared, s.n_context);
    assert_int_equal(s.n_context, 6 + 3 + 2); /* 1, 2 and 4 questions of a task a text */
    nb_ruler_set_deinit(&s);
}

/* A text is tokenised a few times, not once per sentence. */
static void test_few_tokenisations(void **state)
{
    (void)state;
    size_t n_call = 0, len = 60000;
    nb_ruler_options o = options("ruler", 2);
    o.tasks = 1u << NB_RULER_MULTIVALUE;
    o.length = &len;
    o.n_length = 1;
    o.n_sample = 1;
    o.encode_ctx = &n_call;
    nb_ruler_set s = make(o);
    assert_true(s.item[0].n_ids + s.item[0].max_tok > 59500);
    if (n_call > 40) fail_msg("%zu tokenisations of one text", n_call);
    nb_ruler_set_deinit(&s);
}

/* Long enough that keys drawn without care would repeat. */
static void test_no_key_twice(void **state)
{
    (void)state;
    const size_t len = 20000;
    static const char form[] = "One of the special magic numbers for ";
    nb_ruler_options o = options("ruler", 41);
    o.tasks = 1u << NB_RULER_MULTIKEY;
    o.length = &len;
    o.n_length = 1;
    o.n_sample = 1;
    nb_ruler_set s = make(o);
    size_t n = 0;
    for (const char *p = s.item[0].prompt; (p = strstr(p, form)); p++, n++) {
        char key[128];
        const char *k = p + strlen(form);
        (void)snprintf(key, sizeof key, "%s%.*s ", form, (int)strcspn(k, " "), k);
        assert_int_equal(count_of(s.item[0].prompt, key), 1);
    }
    assert_true(n > 700);
    nb_ruler_set_deinit(&s);
}

/* ---- options ----------------------------------------------------------------------- */

static void refuse(nb_ruler_options o, nb_status want, const char *word)
{
    nb_ruler_set s;
    nb_error err = { 0 };
    assert_int_equal(nb_ruler_make(&o, &s, &err), want);
    if (!strstr(err.msg, word)) fail_msg("\"%s\" does not say %s", err.msg, word);
    nb_ruler_set_deinit(&s);
}

static nb_status broken(void *ctx, const char *s, size_t n, uint32_t **ids, size_t *n_ids,
                        nb_error *err)
{
    size_t *left = ctx;
    if ((*left)-- == 0) return nb_fail(err, NB_ERR_FORMAT, "the tokenizer broke");
    return words(NULL, s, n, ids, n_ids, err);
}

static void test_hostile_options(void **state)
{
    (void)state;
    nb_ruler_options o = options("plain", 1);
    const size_t tiny[] = { 40 }, zero[] = { 0 }, huge[] = { SIZE_MAX };
    o.dialect = "klingon";
    refuse(o, NB_ERR_ARG, "klingon");
    o = options("plain", 1);
    o.dialect = NULL;
    refuse(o, NB_ERR_ARG, "dialect");
    o = options("plain", 1);
    o.tasks = 0;
    refuse(o, NB_ERR_ARG, "tasks");
    o.tasks = 1u << NB_RULER_CWE;
    refuse(o, NB_ERR_ARG, "plain");
    o.tasks = ~0u;
    refuse(o, NB_ERR_ARG, "plain");
    o = options("plain", 1);
    o.n_sample = 0;
    refuse(o, NB_ERR_ARG, "samples");
    o.n_sample = SIZE_MAX;
    refuse(o, NB_ERR_ARG, "samples");
    o = options("plain", 1);
    o.n_depth = 0;
    refuse(o, NB_ERR_ARG, "depths");
    o.n_depth = 101;
    refuse(o, NB_ERR_ARG, "depths");
    for (int d = 0; d < 2; d++) {
        o = options(d ? "ruler" : "plain", 1);
        o.n_length = 1;
        o.length = tiny;
        refuse(o, NB_ERR_LIMIT, "at least");
        o.length = zero;
        refuse(o, NB_ERR_ARG, "length 0");
        o.length = huge;
        refuse(o, NB_ERR_ARG, "length");
    }
    o = options("plain", 1);
    o.encode = NULL;
    refuse(o, NB_ERR_ARG, "tokenizer");
    for (size_t n = 0; n < 30; n += 3) { /* nothing leaks wherever the tokenizer fails */
        size_t left = n;
        o = options("plain", 1);
        o.encode = broken;
        o.encode_ctx = &left;
        refuse(o, NB_ERR_FORMAT, "broke");
    }
    o = options("plain", 1); /* extremes that are allowed */
    o.n_depth = 1;
    o.n_sample = 1;
    nb_ruler_set s = make(o);
    assert_int_equal(s.n, 15);
    nb_ruler_set_deinit(&s);
}

static void test_lists(void **state)
{
    (void)state;
    nb_error err = { 0 };
    unsigned bits = 0;
    size_t len[NB_RULER_MAX_LENGTHS], n = 0;
    assert_int_equal(nb_ruler_parse_tasks(NULL, "plain", &bits, &err), NB_OK);
    assert_int_equal(bits, 31);
    assert_int_equal(nb_ruler_parse_tasks("vt,niah_single", "ruler", &bits, &err), NB_OK);
    assert_int_equal(bits, 1u << NB_RULER_VT | 1u << NB_RULER_SINGLE);
    static const char *const bad[] = { "", ",", "vt,", "vt,vt", "niah", "vt niah_single", "cwe" };
    for (size_t i = 0; i < NB_COUNT(bad); i++)
        assert_int_equal(nb_ruler_parse_tasks(bad[i], "plain", &bits, &err), NB_ERR_ARG);
    assert_non_null(strstr(err.msg, "niah_multiquery")); /* says what there is */
    assert_int_equal(nb_ruler_parse_lengths("512,2k,4K", len, &n, &err), NB_OK);
    assert_int_equal(n, 3);
    assert_int_equal(len[0] + len[1] + len[2], 512 + 2048 + 4096);
    static const char *const wrong[] = { "",
                                         ",",
                                         "512,",
                                         "0",
                                         "-1",
                                         "512,512",
                                         "4k,2k",
                                         "1.5k",
                                         "5x",
                                         "99999999999999999999",
                                         "k",
                                         "999999999k",
                                         "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17" };
    for (size_t i = 0; i < NB_COUNT(wrong); i++)
        assert_true(nb_ruler_parse_lengths(wrong[i], len, &n, &err) != NB_OK);
    assert_int_equal(nb_ruler_parse_lengths(NULL, len, &n, &err), NB_ERR_ARG);
    assert_int_equal(n, 3);
}

/* ---- grading -------------------------------------------------------------------------- */

static void grade(const char *answer, bool line, const char *text, double match, bool exact)
{
    const char *refs[] = { "12345", "Paroli" };
    const nb_ruler_item it = { .answer = answer, .refs = refs, .n_ref = 2, .first_line = line };
    const nb_ruler_score s = nb_ruler_grade(&it, nb_str_c(text));
    if (fabs(s.match - match) > 1e-12 || s.exact != exact)
        fail_msg("\"%s\": %g %d, expected %g %d", text, s.match, s.exact, match, exact);
}

static void test_grading(void **state)
{
    (void)state;
    static const char answer[] = " 12345, Paroli\n";
    grade(answer, true, " 12345, Paroli", 1, true);
    grade(answer, true, "12345, Paroli\n", 1, true);
    grade(answer, true, " 12345, paroli", 1, false); /* case counts for exact only */
    grade(answer, true, " 12345, Paroli, 1", 1, false);
    grade(answer, true, " Paroli and 12345", 1, false);
    grade(answer, true, " 12345", 0.5, false);
    grade(answer, true, " 1234", 0, false);
    grade(answer, true, " PAROLI", 0.5, false);
    grade(answer, true, "", 0, false);
    grade(answer, true, " x12345yParolix", 1, false); /* within words, as RULER has it */
    grade(" 12345, Paroli.", false, " 12345, Paroli. And more", 1, true);
    grade(" 12345, Paroli.", false, " 12345, Paroli", 1, false);
    grade(" 12345, Paroli.", false, "\n\n 12345, Paroli.", 1, true);
    const nb_ruler_item none = { .answer = "x", .first_line = true };
    assert_true(nb_ruler_grade(&none, nb_str_c("x")).match == 0);
}

/* ---- files ----------------------------------------------------------------------------- */

static nb_status read_set(const char *json, nb_ruler_set *s, nb_error *err)
{
    return nb_ruler_from_json(nb_str_c(json), words, NULL, s, err);
}

static void test_round_trip(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        nb_ruler_set a = make(options(d ? "ruler" : "plain", 31)), b;
        nb_error err = { 0 };
        json_t *j = nb_ruler_to_json(&a);
        char *text = json_dumps(j, 0);
        assert_non_null(text);
        if (read_set(text, &b, &err) != NB_OK) fail_msg("%s", err.msg);
        assert_int_equal(a.n, b.n);
        assert_int_equal(a.max_tok, b.max_tok);
        for (size_t i = 0; i < a.n; i++) {
            const nb_ruler_item *x = &a.item[i], *y = &b.item[i];
            assert_string_equal(x->prompt, y->prompt);
            assert_string_equal(x->answer, y->answer);
            assert_string_equal(x->kind, y->kind);
            assert_true(x->length == y->length && x->depth == y->depth && x->context == y->context);
            assert_true(x->first_line == y->first_line && x->max_tok == y->max_tok);
            assert_true(x->n_ids == y->n_ids && x->n_full == y->n_full && x->n_ref == y->n_ref);
            assert_memory_equal(x->full, y->full, x->n_full * sizeof *x->full);
        }
        json_decref(j);
        free(text);
        nb_ruler_set_deinit(&a);
        nb_ruler_set_deinit(&b);
    }
}

/* What train/retrieval_eval.py writes. */
static void test_plain_file(void **state)
{
    (void)state;
    nb_ruler_set s;
    nb_error err = { 0 };
    const nb_status st =
        read_set("[{\"prompt\": \"It is 7.\\nQuestion: What?\\nAnswer:\", \"answer\": "
                 "\"7\", \"kind\": \"single\", \"tokens\": 20}]",
                 &s, &err);
    if (st != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(s.n, 1);
    assert_string_equal(s.item[0].answer, " 7\n");
    assert_string_equal(s.item[0].refs[0], "7");
    assert_true(s.item[0].first_line && s.item[0].depth == NB_RULER_NO_DEPTH);
    assert_int_equal(s.item[0].n_full - s.item[0].n_given, 2);
    assert_int_equal(s.item[0].max_tok, 18);
    assert_int_equal(s.max_tok, s.item[0].n_ids + 18);
    nb_ruler_set_deinit(&s);
}

static void test_hostile_files(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "[1]",
        "[{}]",
        "[",
        "[{\"prompt\": \"a\"}]",
        "[{\"answer\": \"a\"}]",
        "[{\"prompt\": 1, \"answer\": \"b\"}]",
        "[{\"prompt\": \"\", \"answer\": \"b\"}]",
        "[{\"prompt\": \"a\", \"answer\": \"\"}]",
        "[{\"prompt\": \"a\\u0000b\", \"answer\": \"b\"}]",
        "[{\"prompt\": \"a\", \"answer\": \"b\", \"refs\": []}]",
        "[{\"prompt\": \"a\", \"answer\": \"b\", \"refs\": [1]}]",
        "[{\"prompt\": \"a\", \"answer\": \"b\", \"refs\": [\"\"]}]",
        "[{\"prompt\": \"a\", \"answer\": \"b\", \"kind\": 3}]",
        "[{\"prompt\": \"a\", \"answer\": \"b\", \"depth\": 100}]",
        "[{\"prompt\": \"a\", \"answer\": \"b\", \"depth\": -1}]",
        "[{\"prompt\": \"a\", \"answer\": \"b\", \"length\": \"x\"}]",
        "[{\"prompt\": \"a\", \"answer\": \"b\", \"max_tokens\": 99999999}]",
        "[{\"prompt\": \"a\", \"answer\": \"b\", \"first_line\": 1}]",
        "[{\"prompt\": \"a\", \"prompt\": \"a\", \"answer\": \"b\"}]",
        "[{\"prompt\": \"a\", \"answer\": \"b\"}, {\"prompt\": \"a\"}]",
    };
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_ruler_set s;
        nb_error err = { 0 };
        const nb_status st = read_set(bad[i], &s, &err);
        if (st != NB_ERR_FORMAT || !err.msg[0]) fail_msg("%s: %d \"%s\"", bad[i], st, err.msg);
        nb_ruler_set_deinit(&s);
    }
    nb_ruler_set s; /* without a place for the error */
    assert_int_equal(nb_ruler_from_json(nb_str_c(bad[12]), words, NULL, &s, NULL), NB_ERR_FORMAT);
    nb_ruler_set_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_and_lengths),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_answers_in_text),
        cmocka_unit_test(test_order_and_distractors),
        cmocka_unit_test(test_counting_tasks),
        cmocka_unit_test(test_shared_texts),
        cmocka_unit_test(test_few_tokenisations),
        cmocka_unit_test(test_no_key_twice),
        cmocka_unit_test(test_hostile_options),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_grading),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_plain_file),
        cmocka_unit_test(test_hostile_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
