/* tok_test.h - helpers of the tokenizer tests: files of the data folder (which
 * may be compressed with xz), JSON, comparison of ids.
 *
 * The folder is $NB_DATA_DIR, else ../shared/data beside the repository; tests
 * that need it return TOK_SKIP where it is absent. */
#ifndef NB_TESTS_TOK_TEST_H
#define NB_TESTS_TOK_TEST_H
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include "text/detok.h"
#include "text/tokenizer.h"

enum { TOK_SKIP = 77 };

/* Root of the repository. */
static inline const char *tok_source_dir(void)
{
    const char *dir = getenv("NB_SOURCE_DIR");
    return dir ? dir : ".";
}

/* Path below the data folder, or NULL when the folder is absent. */
static inline const char *tok_data_path(const char *name, char *buf, size_t n)
{
    char beside[512];
    if (snprintf(beside, sizeof beside, "%s/../shared/data", tok_source_dir()) >= 512) return NULL;
    const char *dirs[] = { getenv("NB_DATA_DIR"), beside };
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        if (!dirs[i]) continue;
        if (snprintf(buf, n, "%s/tokenizers/README.md", dirs[i]) >= (int)n) continue;
        FILE *f = fopen(buf, "rb");
        if (!f) continue;
        (void)fclose(f);
        return snprintf(buf, n, "%s/%s", dirs[i], name) < (int)n ? buf : NULL;
    }
    return NULL;
}

static inline nb_buf tok_read_stream(FILE *f)
{
    nb_buf b = { 0 };
    char chunk[65536];
    for (size_t k; (k = fread(chunk, 1, sizeof chunk, f)) > 0;)
        assert_int_equal(nb_buf_add(&b, chunk, k), NB_OK);
    return b;
}

static inline nb_buf tok_read_path(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    nb_buf b = tok_read_stream(f);
    (void)fclose(f);
    return b;
}

/* A file of the data folder; names that end in .xz are unpacked. */
static inline nb_buf tok_read(const char *name)
{
    char path[512], cmd[640];
    const size_t n = strlen(name);
    if (!tok_data_path(name, path, sizeof path)) fail_msg("no data folder");
    if (n < 3 || strcmp(name + n - 3, ".xz") != 0) return tok_read_path(path);
    if (snprintf(cmd, sizeof cmd, "xz -dc '%s'", path) >= (int)sizeof cmd) fail();
    FILE *p = popen(cmd, "r");
    if (!p) fail_msg("cannot run %s", cmd);
    nb_buf b = tok_read_stream(p);
    assert_int_equal(pclose(p), 0);
    assert_true(b.n_bytes > 0);
    return b;
}

/* A committed file below tests/data/tok. */
static inline nb_buf tok_read_own(const char *name)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s/tests/data/tok/%s", tok_source_dir(), name) >=
        (int)sizeof path)
        fail();
    return tok_read_path(path);
}

static inline nb_tokenizer *tok_make(const nb_tokenizer_files *files)
{
    nb_tokenizer *t = NULL;
    nb_error err = { 0 };
    if (nb_tokenizer_create(files, &t, &err) != NB_OK) fail_msg("create: %s", err.msg);
    return t;
}

static inline json_t *tok_json(nb_str s)
{
    json_error_t e;
    json_t *j = json_loadb(s.p, s.n_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (!j) fail_msg("JSON: %s", e.text);
    return j;
}

/* Encodes and compares with want[n]; prints the first difference. */
static inline void tok_expect(const nb_tokenizer *t, nb_str text, unsigned flags,
                              const uint32_t *want, size_t n)
{
    uint32_t *ids = NULL;
    size_t n_ids = 0;
    nb_error err = { 0 };
    if (nb_tokenizer_encode(t, text, flags, &ids, &n_ids, &err) != NB_OK)
        fail_msg("encode: %s", err.msg);
    for (size_t i = 0; i < n_ids || i < n; i++) {
        if (i < n_ids && i < n && ids[i] == want[i]) continue;
        fail_msg("\"%.*s\": id %zu of %zu is %ld, expected %ld of %zu",
                 (int)(text.n_bytes < 200 ? text.n_bytes : 200), text.p, i, n_ids,
                 i < n_ids ? (long)ids[i] : -1L, i < n ? (long)want[i] : -1L, n);
    }
    free(ids);
}

static inline void tok_expect_json(const nb_tokenizer *t, nb_str text, unsigned flags,
                                   const json_t *want)
{
    const size_t n = json_array_size(want);
    uint32_t *w = calloc(n + 1, sizeof *w);
    assert_non_null(w);
    for (size_t i = 0; i < n; i++) w[i] = (uint32_t)json_integer_value(json_array_get(want, i));
    tok_expect(t, text, flags, w, n);
    free(w);
}

/* Decodes in one go and id by id; both must give `want`. */
static inline void tok_expect_text(const nb_tokenizer *t, const uint32_t *ids, size_t n, bool skip,
                                   nb_str want)
{
    nb_buf whole = { 0 }, parts = { 0 };
    nb_detok d;
    assert_int_equal(nb_tokenizer_decode(t, ids, n, skip, &whole), NB_OK);
    if (!nb_str_eq(nb_buf_view(&whole), want))
        fail_msg("decoded \"%.*s\", expected \"%.*s\"", (int)whole.n_bytes, whole.p ? whole.p : "",
                 (int)want.n_bytes, want.p);
    nb_detok_init(&d, t, skip);
    for (size_t i = 0; i < n; i++) assert_int_equal(nb_detok_push(&d, ids[i], &parts), NB_OK);
    assert_int_equal(nb_detok_finish(&d, &parts), NB_OK);
    assert_true(nb_str_eq(nb_buf_view(&parts), want));
    nb_detok_deinit(&d);
    nb_buf_deinit(&whole);
    nb_buf_deinit(&parts);
}

#endif
