/* jinja_test.h - helpers of the template and chat tests: files of tests/data/jinja and
 * of the data folder ($NB_DATA_DIR, else ../shared/data beside the repository),
 * rendering to a fresh string. */
#ifndef NB_TESTS_JINJA_TEST_H
#define NB_TESTS_JINJA_TEST_H
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

#include "text/chat.h"
#include "text/jinja.h"

static inline json_t *jt_load(const char *path)
{
    json_error_t je;
    json_t *j = json_load_file(path, JSON_ALLOW_NUL, &je);
    if (!j) fail_msg("%s:%d: %s", path, je.line, je.text);
    return j;
}

static inline json_t *jt_load_own(const char *name)
{
    char path[512];
    const char *dir = getenv("NB_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/data/jinja/%s", dir ? dir : ".", name);
    return jt_load(path);
}

static inline nb_str jt_str(const json_t *s)
{
    return (nb_str){ json_string_value(s), json_string_length(s) };
}

/* Parses and renders; the text, or the error line in *err, is in *out. */
static inline nb_status jt_render(nb_str source, const json_t *vars, int64_t now_s, nb_buf *out,
                                  nb_error *err)
{
    nb_jinja *t = NULL;
    const nb_jinja_limits lim = { .now_s = now_s };
    *err = (nb_error){ 0 };
    nb_status st = nb_jinja_parse(source, &t, err);
    if (st == NB_OK) st = nb_jinja_render(t, vars, &lim, out, err);
    nb_jinja_destroy(t);
    return st;
}

/* A short template with variables given as JSON text. */
static inline void jt_expect(const char *source, const char *vars, const char *want)
{
    nb_buf out = { 0 };
    nb_error err;
    json_t *v = json_loads(vars ? vars : "{}", 0, NULL);
    assert_non_null(v);
    if (jt_render(nb_str_c(source), v, 0, &out, &err) != NB_OK)
        fail_msg("%s: %s", source, err.msg);
    assert_string_equal(out.p ? out.p : "", want);
    nb_buf_deinit(&out);
    json_decref(v);
}

/* The same for a template that must fail with `status` and a line containing `part`. */
static inline void jt_expect_error(const char *source, const char *vars, nb_status status,
                                   const char *part)
{
    nb_buf out = { 0 };
    nb_error err;
    json_t *v = json_loads(vars ? vars : "{}", 0, NULL);
    assert_non_null(v);
    const nb_status st = jt_render(nb_str_c(source), v, 0, &out, &err);
    if (st != status || !strstr(err.msg, part))
        fail_msg("%s: status %d, \"%s\"; wanted %d, \"%s\"", source, (int)st, err.msg, (int)status,
                 part);
    assert_int_equal(out.n_bytes, 0);
    nb_buf_deinit(&out);
    json_decref(v);
}

#endif
