/* load_testing.h - what the tests of src/load share: small safetensors files built in
 * memory, a temporary directory, and the rules that every error line keeps. */
#ifndef NB_TESTS_LOAD_TESTING_H
#define NB_TESTS_LOAD_TESTING_H
#define _DEFAULT_SOURCE /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "base/utf8.h"
#include "os/file.h"

/* 8 bytes of length, the header, n_data bytes that count up from 0. */
static inline void st_build(nb_buf *out, const char *header, size_t n_data)
{
    const uint64_t n = strlen(header);
    out->n_bytes = 0;
    for (int i = 0; i < 8; i++)
        assert_int_equal(nb_buf_add_ch(out, (char)(n >> (8 * i) & 0xff)), NB_OK);
    assert_int_equal(nb_buf_add_c(out, header), NB_OK);
    for (size_t i = 0; i < n_data; i++)
        assert_int_equal(nb_buf_add_ch(out, (char)(i & 0xff)), NB_OK);
}

/* One line: not empty, terminated, valid UTF-8, no control characters, naming `name`
 * (NULL: any). */
static inline void check_line(const nb_error *e, nb_status s, const char *name)
{
    assert_true(s < 0);
    assert_int_equal(e->status, s);
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    assert_non_null(end);
    assert_true(end > e->msg);
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) fail_msg("control character in: %s", e->msg);
    if (!nb_utf8_valid(nb_str_c(e->msg))) fail_msg("not UTF-8: %s", e->msg);
    if (name && !strstr(e->msg, name)) fail_msg("'%s' not in: %s", name, e->msg);
}

static inline size_t n_open_files(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d) return 0;
    while (readdir(d)) n++;
    (void)closedir(d);
    return n;
}

typedef struct tmp_dir {
    char path[256];
} tmp_dir;

static inline void tmp_open(tmp_dir *t)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(t->path, sizeof t->path, "%s/nibble-test-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(t->path));
}

/* Removes the directory and what lies in it, a few folders deep. */
static inline void tmp_close_at(const char *path, int depth)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    nb_buf full = { 0 };
    for (const struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        assert_int_equal(nb_path_join(&full, path, e->d_name), NB_OK);
        if (unlink(full.p) != 0 && depth > 0) tmp_close_at(full.p, depth - 1);
    }
    nb_buf_deinit(&full);
    (void)closedir(d);
    (void)rmdir(path);
}
static inline void tmp_close(tmp_dir *t)
{
    tmp_close_at(t->path, 5);
}

static inline void tmp_write(const tmp_dir *t, const char *name, nb_str bytes)
{
    char full[600];
    nb_error e;
    (void)snprintf(full, sizeof full, "%s/%s", t->path, name);
    assert_int_equal(nb_file_write(full, bytes.p, bytes.n_bytes, &e), NB_OK);
}

#endif
