/* test_os_file.c - mapping, reading, writing, listing; what is refused and how. */
#include "load_testing.h"

static char *at(const tmp_dir *t, const char *name)
{
    static char full[600];
    (void)snprintf(full, sizeof full, "%s/%s", t->path, name);
    return full;
}

static void test_round_trip(void **state)
{
    (void)state;
    tmp_dir t;
    nb_error e;
    nb_buf b = { 0 };
    nb_file_map m = { 0 };
    enum { N = 300001 };
    unsigned char *data = malloc(N);
    assert_non_null(data);
    for (size_t i = 0; i < N; i++) data[i] = (unsigned char)(i * 7 % 251);
    tmp_open(&t);
    const size_t n_open = n_open_files();
    assert_int_equal(nb_file_write(at(&t, "f"), data, N, &e), NB_OK);
    assert_int_equal(nb_buf_add_c(&b, "before"), NB_OK);
    assert_int_equal(nb_file_read(at(&t, "f"), N, &b, &e), NB_OK);
    assert_int_equal(b.n_bytes, N + 6);
    assert_memory_equal(b.p, "before", 6);
    assert_memory_equal(b.p + 6, data, N);
    assert_int_equal(b.p[b.n_bytes], 0);
    check_line(&e, nb_file_read(at(&t, "f"), N - 1, &b, &e),
               "/f: has 300001 bytes, the limit is 300000");
    assert_int_equal(e.status, NB_ERR_LIMIT);
    assert_int_equal(b.n_bytes, N + 6);
    assert_int_equal(nb_file_mmap(at(&t, "f"), &m, &e), NB_OK);
    assert_int_equal(m.n_bytes, N);
    assert_memory_equal(m.p, data, N);
    nb_pages_touch(m.p + 5, N - 5);
    nb_pages_touch(m.p, 0);
    nb_file_unmap(&m);
    assert_null(m.p);
    nb_file_unmap(&m);
    /* writing again truncates; an empty file maps to nothing */
    assert_int_equal(nb_file_write(at(&t, "f"), "", 0, &e), NB_OK);
    assert_int_equal(nb_file_mmap(at(&t, "f"), &m, &e), NB_OK);
    assert_null(m.p);
    assert_int_equal(m.n_bytes, 0);
    b.n_bytes = 0;
    assert_int_equal(nb_file_read(at(&t, "f"), 0, &b, &e), NB_OK);
    assert_int_equal(b.n_bytes, 0);
    assert_int_equal(n_open_files(), n_open);
    nb_buf_deinit(&b);
    free(data);
    tmp_close(&t);
}

static void test_refused(void **state)
{
    (void)state;
    tmp_dir t;
    nb_error e;
    nb_buf b = { 0 };
    nb_file_map m = { .p = NULL, .n_bytes = 5 };
    tmp_open(&t);
    const size_t n_open = n_open_files();
    check_line(&e, nb_file_mmap(at(&t, "none"), &m, &e), "/none: cannot open: ");
    assert_int_equal(e.status, NB_ERR_NOT_FOUND);
    check_line(&e, nb_file_mmap(t.path, &m, &e), "is a directory, expected a regular file");
    assert_int_equal(e.status, NB_ERR_IO);
    check_line(&e, nb_file_read(t.path, 10, &b, &e), "is a directory");
    assert_int_equal(mkfifo(at(&t, "fifo"), 0600), 0); /* without a writer: must not wait */
    check_line(&e, nb_file_mmap(at(&t, "fifo"), &m, &e), "/fifo: is a fifo, expected a regular");
    check_line(&e, nb_file_read(at(&t, "fifo"), 10, &b, &e), "is a fifo");
    check_line(&e, nb_file_read("/dev/zero", 10, &b, &e), "/dev/zero: is a device");
    check_line(&e, nb_file_write(at(&t, "no/such"), "x", 1, &e), "/no/such: cannot create: ");
    check_line(&e, nb_file_write(t.path, "x", 1, &e), "cannot create: ");
    assert_int_equal(m.n_bytes, 5); /* written on success only */
    char longest[3000];
    memset(longest, 'd', sizeof longest);
    longest[sizeof longest - 1] = 0;
    check_line(&e, nb_file_read(longest, 10, &b, &e), "dd: cannot open: ");
    check_line(&e, nb_file_read("/nope/a\nb\x1b", 10, &b, &e), "/nope/a?b?: cannot open");
    assert_int_equal(n_open_files(), n_open);
    nb_buf_deinit(&b);
    tmp_close(&t);
}

/* A file that says it has no bytes but has some, and streams of the caller's. */
static void test_streams(void **state)
{
    (void)state;
    nb_error e;
    nb_buf b = { 0 };
    if (nb_path_is_file("/proc/self/status")) {
        assert_int_equal(nb_file_read("/proc/self/status", 1 << 20, &b, &e), NB_OK);
        assert_true(b.n_bytes > 100);
        check_line(&e, nb_file_read("/proc/self/status", 100, &b, &e),
                   "larger than the limit of 100");
    }
    int ends[2];
    char name[40];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "piped", 5), 5);
    assert_int_equal(close(ends[1]), 0);
    (void)snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    b.n_bytes = 0;
    assert_int_equal(nb_file_read(name, 5, &b, &e), NB_OK);
    assert_int_equal(b.n_bytes, 5);
    assert_memory_equal(b.p, "piped", 5);
    assert_int_equal(close(ends[0]), 0);

    const int saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "in", 2), 2);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    b.n_bytes = 0;
    check_line(&e, nb_stdin_read(1, &b, &e), "standard input: larger than the limit of 1 bytes");
    assert_int_equal(b.n_bytes, 0);
    assert_int_equal(nb_stdin_read(1, &b, &e), NB_OK);
    (void)close(ends[0]);
    if (saved >= 0) {
        (void)dup2(saved, STDIN_FILENO);
        (void)close(saved);
    }
    nb_buf_deinit(&b);
}

static void test_paths(void **state)
{
    (void)state;
    tmp_dir t;
    nb_error e;
    nb_buf b = { 0 };
    size_t n = 9;
    assert_int_equal(nb_path_join(&b, "a", "b"), NB_OK);
    assert_string_equal(b.p, "a/b");
    assert_int_equal(nb_path_join(&b, "a/", "b"), NB_OK);
    assert_string_equal(b.p, "a/b");
    assert_int_equal(nb_path_join(&b, "/", "b"), NB_OK);
    assert_string_equal(b.p, "/b");
    assert_int_equal(nb_path_join(&b, "", "b"), NB_OK);
    assert_string_equal(b.p, "b");
    tmp_open(&t);
    assert_true(nb_path_is_dir(t.path));
    assert_false(nb_path_is_file(t.path));
    assert_int_equal(nb_dir_find(t.path, ".st", &b, &n, &e), NB_OK);
    assert_int_equal(n, 0);
    assert_int_equal(b.n_bytes, 0);
    tmp_write(&t, "z.st", nb_str_c("1"));
    tmp_write(&t, "b.st", nb_str_c("2"));
    tmp_write(&t, "y.st", nb_str_c("2"));
    tmp_write(&t, "a.stx", nb_str_c("3"));
    assert_int_equal(mkdir(at(&t, "a.st"), 0700), 0);
    assert_true(nb_path_is_file(at(&t, "b.st")));
    assert_false(nb_path_is_dir(at(&t, "b.st")));
    assert_false(nb_path_is_file(at(&t, "c.st")));
    assert_false(nb_path_is_other(at(&t, "b.st")));
    assert_false(nb_path_is_other(at(&t, "c.st")));
    assert_true(nb_path_is_other(t.path));
    assert_int_equal(symlink("b.st", at(&t, "link")), 0);
    assert_true(nb_path_is_other(at(&t, "link")));
    bool found = true;
    assert_int_equal(nb_path_found(at(&t, "c.st"), &found, &e), NB_OK);
    assert_false(found);
    assert_int_equal(nb_path_found(at(&t, "b.st/c"), &found, &e), NB_OK);
    assert_false(found);
    assert_int_equal(nb_path_found(at(&t, "link"), &found, &e), NB_OK);
    assert_true(found);
    assert_int_equal(symlink("nowhere", at(&t, "dangling")), 0);
    check_line(&e, nb_path_found(at(&t, "dangling"), &found, &e), "is a link that leads nowhere");
    assert_false(found);
    assert_int_equal(symlink(t.path, at(&t, "to_dir")), 0);
    check_line(&e, nb_path_found(at(&t, "to_dir"), &found, &e),
               "is a link to a directory, expected");
    check_line(&e, nb_path_found(t.path, &found, &e), "is a directory, expected a regular file");
    const size_t n_open = n_open_files();
    assert_int_equal(nb_dir_find(t.path, ".st", &b, &n, &e), NB_OK);
    assert_int_equal(n, 3);
    assert_string_equal(b.p, "b.st");
    check_line(&e, nb_dir_find(at(&t, "none"), ".st", &b, &n, &e), "/none: cannot list: ");
    assert_int_equal(n_open_files(), n_open);
    nb_buf_deinit(&b);
    tmp_close(&t);
}

static void test_pages(void **state)
{
    (void)state;
    assert_null(nb_pages_alloc(0));
    assert_null(nb_pages_alloc(SIZE_MAX / 2));
    const size_t n = (size_t)64 << 20;
    unsigned char *p = nb_pages_alloc(n);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 4096, 0);
    nb_pages_prefer_huge(p + 100, n / 2);
    nb_pages_prefer_huge(p, 1);
    assert_int_equal(p[0], 0);
    assert_int_equal(p[n - 1], 0);
    p[n / 4] = 1;
    nb_pages_free(p, n);
    nb_pages_free(NULL, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_streams),    cmocka_unit_test(test_paths),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
