/* test_map_guard_thread.c - mapped files that are truncated, changed or replaced; SIGBUS that is not ours. */
#include "load_testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/attr.h"
#include "os/map_guard.h"

enum { PAGE = 4096, N = 16 * PAGE };

static tmp_dir dir;

static const char *at(const char *name)
{
    static char full[4][600];
    static int turn;
    char *p = full[turn++ % 4];
    (void)snprintf(p, sizeof full[0], "%s/%s", dir.path, name);
    return p;
}

static void make(const char *name, char fill)
{
    static char bytes[N];
    memset(bytes, fill, N);
    tmp_write(&dir, name, (nb_str){ bytes, N });
}

static nb_file_map map(const char *name)
{
    nb_error e;
    nb_file_map m = { 0 };
    if (nb_file_mmap(at(name), &m, &e) != NB_OK) fail_msg("%s", e.msg);
    return m;
}

static size_t sum(const nb_file_map *m)
{
    const volatile unsigned char *p = m->p;
    size_t s = 0;
    for (size_t i = 0; i < m->n_bytes; i++) s += p[i];
    return s;
}

static void *sum_thread(void *m)
{
    (void)sum(m);
    return NULL;
}

static void test_truncated(void **state)
{
    enum { THREADS = 4 };
    (void)state;
    nb_error e;
    pthread_t t[THREADS];
    make("a", 1);
    make("b", 1);
    nb_file_map a = map("a"), b = map("b");
    const uint64_t before = nb_map_guard_n_fault();
    assert_int_equal(sum(&a), N);
    assert_int_equal(nb_map_guard_n_fault(), before);
    assert_int_equal(nb_file_map_fault(&a, "a", &e), NB_OK);
    assert_int_equal(truncate(at("a"), 5 * PAGE), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, sum_thread, &a), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(t[i], NULL), 0);
    assert_int_equal(sum(&a), 5 * PAGE); /* the rest is zeros */
    assert_true(nb_map_guard_n_fault() > before);
    check_line(&e, nb_file_map_fault(&a, at("a"), &e), "/a: cannot be read at byte ");
    size_t offset = 0;
    assert_true(nb_map_guard_fault(a.guard, &offset));
    assert_int_equal(offset, 5 * PAGE);
    check_line(&e, nb_file_map_check(&a, at("a"), NULL, &e), "cannot be read at byte 20480: ");
    /* Others have nothing to do with it; a range that is used again has no fault. */
    assert_int_equal(nb_file_map_fault(&b, "b", &e), NB_OK);
    assert_int_equal(sum(&b), N);
    nb_file_unmap(&a);
    a = map("b");
    assert_int_equal(nb_file_map_fault(&a, "b", &e), NB_OK);
    nb_file_unmap(&a);
    nb_file_unmap(&b);
}

static void set_times(const char *name, const struct stat *st)
{
    const struct timespec t[2] = { st->st_atim, st->st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, at(name), t, 0), 0);
}

static void overwrite(const char *name, off_t where)
{
    const int fd = open(at(name), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, where), 1);
    assert_int_equal(close(fd), 0);
}

/* Kernels stamp files with the time of their last tick: a change must be in another one. */
static void next_tick(void)
{
    (void)usleep(20000);
}

static void test_changes(void **state)
{
    (void)state;
    nb_error e;
    bool replaced = true;
    struct stat st;
    make("c", 1);
    next_tick();
    nb_file_map m = map("c");
    nb_file_map_sample(&m);
    assert_int_equal(nb_file_map_check(&m, at("c"), &replaced, &e), NB_OK);
    assert_false(replaced);
    /* Harmless: mode, links. */
    assert_int_equal(chmod(at("c"), 0644), 0);
    assert_int_equal(nb_file_map_check(&m, at("c"), &replaced, &e), NB_OK);
    assert_int_equal(link(at("c"), at("c2")), 0);
    assert_int_equal(nb_file_map_check(&m, at("c"), &replaced, &e), NB_OK);
    assert_int_equal(unlink(at("c2")), 0);
    assert_int_equal(nb_file_map_check(&m, at("c"), &replaced, &e), NB_OK);
    assert_false(replaced);
    /* Written to; written to and dated back; grown. */
    next_tick();
    assert_int_equal(stat(at("c"), &st), 0);
    overwrite("c", 7);
    check_line(&e, nb_file_map_check(&m, at("c"), &replaced, &e), "/c: was changed in place");
    set_times("c", &st);
    check_line(&e, nb_file_map_check(&m, at("c"), &replaced, &e), "/c: was changed in place");
    nb_file_unmap(&m);
    m = map("c"); /* no sample: dated back, it looks the same */
    next_tick();
    overwrite("c", 9);
    check_line(&e, nb_file_map_check(&m, at("c"), &replaced, &e), "/c: was changed in place");
    set_times("c", &st);
    assert_int_equal(nb_file_map_check(&m, at("c"), &replaced, &e), NB_OK);
    overwrite("c", N);
    check_line(&e, nb_file_map_check(&m, at("c"), &replaced, &e),
               "was changed in place: it had 65536 bytes and has 65537");
    nb_file_unmap(&m);
    /* Another file under its name, or none. */
    m = map("c");
    make("d", 2);
    assert_int_equal(rename(at("d"), at("c")), 0);
    assert_int_equal(nb_file_map_check(&m, at("c"), &replaced, &e), NB_OK);
    assert_true(replaced);
    assert_int_equal(m.p[0], 1);
    assert_int_equal(unlink(at("c")), 0);
    assert_int_equal(nb_file_map_check(&m, at("c"), &replaced, &e), NB_OK);
    assert_true(replaced);
    nb_file_unmap(&m);
}

/* ---- SIGBUS of others: in a process of its own each ---- */

/* An unguarded mapping whose file is truncated. */
static const volatile char *foreign(void)
{
    make("f", 1);
    const int fd = open(at("f"), O_RDONLY);
    const char *p = mmap(NULL, N, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    return p == MAP_FAILED || truncate(at("f"), 0) != 0 ? NULL : p;
}

static char *const here = (char *)&dir;

static void on_info(int sig, siginfo_t *info, void *context)
{
    (void)context;
    _exit(sig == SIGBUS && info->si_addr != here ? 42 : 43);
}

static void on_plain(int sig)
{
    _exit(sig == SIGBUS ? 44 : 45);
}

typedef int case_fn(void); /* what the process exits with if it lives */

static int read_foreign(void)
{
    const volatile char *p = foreign();
    return p && p[0] ? 1 : 2;
}

static int with_default(void)
{
    (void)signal(SIGBUS, SIG_DFL); /* not a sanitizer's */
    nb_file_map m = map("b");
    return m.p ? read_foreign() : 3;
}

static int with_ignored(void)
{
    (void)signal(SIGBUS, SIG_IGN);
    nb_file_map m = map("b");
    return m.p ? read_foreign() : 3;
}

static int with_info(void)
{
    struct sigaction a = { .sa_flags = SA_SIGINFO };
    a.sa_sigaction = on_info;
    (void)sigaction(SIGBUS, &a, NULL);
    nb_file_map m = map("b");
    return m.p ? read_foreign() : 3;
}

static int with_plain(void)
{
    (void)signal(SIGBUS, on_plain);
    nb_file_map m = map("b");
    return m.p ? read_foreign() : 3;
}

/* After the last mapping the handler from before is back. */
static int after_last(void)
{
    (void)signal(SIGBUS, on_plain);
    nb_file_map m = map("b"), n = map("b");
    nb_file_unmap(&m);
    nb_file_unmap(&n);
    struct sigaction now;
    (void)sigaction(SIGBUS, NULL, &now);
    if (now.sa_handler != on_plain) return 4;
    m = map("b");
    return m.p ? read_foreign() : 3;
}

/* Sent, not raised by the processor. */
static int sent(void)
{
    (void)signal(SIGBUS, SIG_DFL);
    nb_file_map m = map("b");
    (void)kill(getpid(), SIGBUS);
    return m.p ? 5 : 3;
}

static int sent_ignored(void)
{
    (void)signal(SIGBUS, SIG_IGN);
    nb_file_map m = map("b");
    (void)kill(getpid(), SIGBUS);
    return m.p ? 0 : 3;
}

static struct sigaction chained;

static void on_top(int sig, siginfo_t *info, void *context)
{
    chained.sa_sigaction(sig, info, context);
}

/* Somebody covers our handler and calls it: ranges that come later are guarded all the same. */
static int covered(void)
{
    (void)signal(SIGBUS, on_plain);
    nb_file_map m = map("b");
    struct sigaction a = { .sa_flags = SA_SIGINFO };
    a.sa_sigaction = on_top;
    (void)sigaction(SIGBUS, &a, &chained);
    nb_file_unmap(&m);
    make("g", 1);
    m = map("g");
    if (truncate(at("g"), 0) != 0 || sum(&m) != 0) return 6;
    nb_error e;
    if (nb_file_map_fault(&m, "g", &e) == NB_OK) return 7;
    return read_foreign();
}

static void test_foreign(void **state)
{
    static const struct {
        case_fn *fn;
        int code, sig;
    } cases[] = {
        { with_default, 0, SIGBUS }, { with_ignored, 0, SIGBUS }, { with_info, 42, 0 },
        { with_plain, 44, 0 },       { after_last, 44, 0 },       { sent, 0, SIGBUS },
        { sent_ignored, 0, 0 },      { covered, 44, 0 },
    };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(cases); i++) {
        int status = 0;
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) _exit(cases[i].fn());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
        const int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        if (code != cases[i].code || sig != cases[i].sig)
            fail_msg("case %zu: exit code %d, signal %d", i, code, sig);
    }
}

static int begin(void **state)
{
    (void)state;
    tmp_open(&dir);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tmp_close(&dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_foreign),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
