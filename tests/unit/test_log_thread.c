/* test_log_thread.c - the writer of the log: order, readers that stop, full disks, rotation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/attr.h"
#include "serve/log_writer.h"

enum { FLUSH_MS = 60000, LINE_BYTES = 64 };

static char dir[] = "/tmp/nb_log_XXXXXX";

static void note(void *ctx, const char *message, nb_buf *line)
{
    (void)ctx;
    (void)nb_buf_printf(line, "NOTE %s\n", message);
}

/* Line i, of LINE_BYTES. */
static void put(nb_log_writer *w, int i)
{
    char text[LINE_BYTES + 1];
    (void)snprintf(text, sizeof text, "%-*d\n", LINE_BYTES - 1, i);
    nb_log_writer_put(w, nb_str_c(text));
}

static nb_log_writer *open_fd(int fd)
{
    nb_log_writer *w = NULL;
    assert_int_equal(nb_log_writer_open(NULL, fd, note, NULL, &w, NULL), NB_OK);
    return w;
}

static nb_log_writer *open_file(const char *path)
{
    nb_error e = { 0 };
    nb_log_writer *w = NULL;
    if (nb_log_writer_open(path, -1, note, NULL, &w, &e) != NB_OK) fail_msg("%s", e.msg);
    return w;
}

static const char *path_of(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = !turn;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static char *content(const char *name)
{
    static char text[1 << 16];
    FILE *f = fopen(path_of(name), "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    (void)fclose(f);
    return text;
}

static void wait_dropped(nb_log_writer *w, uint64_t n)
{
    const struct timespec ms = { 0, 1000000 };
    for (int i = 0; i < FLUSH_MS && nb_log_writer_dropped(w) < n; i++) (void)nanosleep(&ms, NULL);
    assert_int_equal(nb_log_writer_dropped(w), n);
}

/* What a reader finds: lines of put() in growing order, notes between them; how many of each. */
typedef struct found {
    int n_line, last;
    uint64_t n_dropped;
} found;

static void look(found *f, const char *line)
{
    unsigned long long n;
    if (sscanf(line, "NOTE %llu log lines dropped", &n) == 1) {
        f->n_dropped += n;
        return;
    }
    assert_int_equal(strlen(line), LINE_BYTES - 1);
    const int i = atoi(line);
    assert_true(f->n_line == 0 || i > f->last);
    f->last = i;
    f->n_line++;
}

/* Reads lines until line `end` has come. */
static void read_to(int fd, found *f, int end)
{
    FILE *in = fdopen(dup(fd), "r");
    char line[256];
    while (f->last != end) {
        assert_non_null(fgets(line, sizeof line, in));
        line[strcspn(line, "\n")] = 0;
        look(f, line);
    }
    (void)fclose(in);
}

static void test_order(void **state)
{
    (void)state;
    int fd[2];
    found f = { .last = -1 };
    assert_int_equal(pipe(fd), 0);
    nb_log_writer *w = open_fd(fd[1]);
    for (int i = 0; i < 500; i++) put(w, i);
    assert_true(nb_log_writer_flush(w, FLUSH_MS));
    read_to(fd[0], &f, 499);
    assert_int_equal(f.n_line, 500);
    assert_int_equal(nb_log_writer_dropped(w), 0);
    nb_log_writer_close(w);
    assert_int_equal(close(fd[0]) | close(fd[1]), 0);
}

/* The reader stops: nothing waits, the oldest lines are lost, and the log says how many. */
static void test_stopped_reader(void **state)
{
    enum { N = 60000 };
    (void)state;
    int fd[2];
    found f = { .last = -1 };
    assert_int_equal(pipe(fd), 0);
    nb_log_writer *w = open_fd(fd[1]);
    for (int i = 0; i < N; i++) put(w, i);
    assert_false(nb_log_writer_flush(w, 50));
    put(w, N);
    const uint64_t lost = nb_log_writer_dropped(w);
    assert_true(lost > N / 2 && lost < N);
    read_to(fd[0], &f, N);
    assert_int_equal(f.n_dropped, lost);
    assert_int_equal((uint64_t)f.n_line + f.n_dropped, N + 1);
    put(w, N + 1);
    read_to(fd[0], &f, N + 1); /* no further note */
    assert_int_equal(f.n_dropped, lost);
    nb_log_writer_close(w);
    assert_int_equal(close(fd[0]) | close(fd[1]), 0);
}

static void test_close_while_stopped(void **state)
{
    (void)state;
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    nb_log_writer *w = open_fd(fd[1]);
    for (int i = 0; i < 5000; i++) put(w, i);
    (void)alarm(60); /* ends the test if close never returns */
    nb_log_writer_close(w);
    (void)alarm(0);
    assert_int_equal(close(fd[0]) | close(fd[1]), 0);
}

/* A reader that has gone: lines are lost, the process lives. */
static void test_reader_gone(void **state)
{
    (void)state;
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    nb_log_writer *w = open_fd(fd[1]);
    assert_int_equal(close(fd[0]), 0);
    put(w, 1);
    wait_dropped(w, 1);
    put(w, 2);
    wait_dropped(w, 2);
    nb_log_writer_close(w);
    assert_int_equal(close(fd[1]), 0);
}

/* A full disk, then room again: the line that says what is missing comes first. */
static void test_full_disk(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    assert_int_equal(symlink("/dev/full", path_of("full")), 0);
    nb_log_writer *w = open_file(path_of("full"));
    for (uint64_t i = 1; i <= 3; i++) {
        put(w, (int)i);
        wait_dropped(w, i);
    }
    assert_int_equal(unlink(path_of("full")), 0);
    nb_log_writer_reopen(w);
    for (int i = 0; i < FLUSH_MS && access(path_of("full"), F_OK) != 0; i++)
        (void)nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    put(w, 4);
    assert_true(nb_log_writer_flush(w, FLUSH_MS));
    found f = { 0 };
    char *text = content("full");
    assert_int_equal(strncmp(text, "NOTE 3 log lines dropped\n", 25), 0);
    text[25 + LINE_BYTES - 1] = 0;
    look(&f, text + 25);
    assert_int_equal(f.last, 4);
    nb_log_writer_close(w);
}

static void test_reopen(void **state)
{
    (void)state;
    struct stat st;
    nb_log_writer *w = open_file(path_of("log"));
    nb_log_writer_put(w, nb_str_c("one\n"));
    assert_true(nb_log_writer_flush(w, FLUSH_MS));
    assert_int_equal(stat(path_of("log"), &st), 0);
    assert_int_equal(st.st_mode & 027, 0);
    assert_int_equal(rename(path_of("log"), path_of("log.1")), 0);
    nb_log_writer_put(w, nb_str_c("two\n"));
    assert_true(nb_log_writer_flush(w, FLUSH_MS));
    nb_log_writer_reopen(w);
    for (int i = 0; i < FLUSH_MS && access(path_of("log"), F_OK) != 0; i++)
        (void)nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    nb_log_writer_put(w, nb_str_c("three\n"));
    assert_true(nb_log_writer_flush(w, FLUSH_MS));
    assert_string_equal(content("log.1"), "one\ntwo\n");
    assert_string_equal(content("log"), "three\n");
    /* A folder is in the way: the old file stays in use, and says why. */
    assert_int_equal(rename(path_of("log"), path_of("log.2")), 0);
    assert_int_equal(mkdir(path_of("log"), 0700), 0);
    nb_log_writer_reopen(w);
    for (int i = 0; i < FLUSH_MS && !strstr(content("log.2"), "NOTE "); i++)
        (void)nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    assert_non_null(strstr(content("log.2"), "cannot open the log file: Is a directory\n"));
    nb_log_writer_put(w, nb_str_c("four\n"));
    assert_true(nb_log_writer_flush(w, FLUSH_MS));
    assert_non_null(strstr(content("log.2"), "four\n"));
    assert_int_equal(rmdir(path_of("log")), 0);
    nb_log_writer_close(w);
}

static void test_bad_files(void **state)
{
    (void)state;
    nb_error e = { 0 };
    nb_log_writer *w = NULL;
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    const char *const bad[] = { dir, path_of("fifo"), "/nowhere/at/all" };
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        assert_int_equal(nb_log_writer_open(bad[i], -1, note, NULL, &w, &e), NB_ERR_IO);
        assert_non_null(strstr(e.msg, bad[i]));
    }
}

static void *put_many(void *w)
{
    for (int i = 0; i < 2000; i++) nb_log_writer_put(w, nb_str_c("a line of some thread\n"));
    return NULL;
}

static void test_threads(void **state)
{
    enum { N = 4 };
    (void)state;
    pthread_t t[N];
    nb_log_writer *w = open_file(path_of("threads"));
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&t[i], NULL, put_many, w), 0);
    for (int i = 0; i < N; i++) assert_int_equal(pthread_join(t[i], NULL), 0);
    char *const long_line = malloc(NB_LOG_MAX_LINE_BYTES + 2);
    assert_non_null(long_line);
    memset(long_line, 'x', NB_LOG_MAX_LINE_BYTES);
    (void)memcpy(long_line + NB_LOG_MAX_LINE_BYTES, "\n", 2);
    nb_log_writer_put(w, nb_str_c(long_line));
    free(long_line);
    assert_int_equal(nb_log_writer_dropped(w), 1);
    nb_log_writer_close(w); /* writes what is queued */
    FILE *f = fopen(path_of("threads"), "r");
    char line[64];
    int n = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) n += strcmp(line, "a line of some thread\n") == 0;
    (void)fclose(f);
    assert_int_equal(n, N * 2000);
}

static int begin(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int end(void **state)
{
    static const char *const names[] = { "full", "log", "log.1", "log.2", "fifo", "threads" };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(names); i++) (void)unlink(path_of(names[i]));
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_stopped_reader),
        cmocka_unit_test(test_close_while_stopped),
        cmocka_unit_test(test_reader_gone),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_reopen),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
