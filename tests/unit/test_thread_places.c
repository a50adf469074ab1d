/* test_thread_places.c - CPU lists, a machine read from a folder like /sys, and where threads go. */
#define _XOPEN_SOURCE 700 /* nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "dev/dev.h"
#include "os/places.h"

static char root[64];

static void put(const char *file, const char *text)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", root, file);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Two packages of 2 cores with 2 threads each: CPUs 0-3 are first threads, 4-7 the second ones;
 * even cores are on node 0, odd ones on node 1. */
static void make_sys(void)
{
    char name[100], text[20];
    for (unsigned c = 0; c < 8; c++) {
        (void)snprintf(name, sizeof name, "devices/system/cpu/cpu%u/topology/core_id", c);
        (void)snprintf(text, sizeof text, "%u\n", c % 4 / 2);
        put(name, text);
        (void)snprintf(name, sizeof name, "devices/system/cpu/cpu%u/topology/physical_package_id",
                       c);
        (void)snprintf(text, sizeof text, "%u\n", c % 2);
        put(name, text);
    }
    put("devices/system/node/online", "0-2\n");
    put("devices/system/node/node0/cpulist", "0,2,4,6\n");
    put("devices/system/node/node1/cpulist", "1,3,5,7\n");
    put("devices/system/node/node2/cpulist", "\n"); /* memory only */
}

static int make_root(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/nb_places_XXXXXX");
    if (!mkdtemp(root)) return -1;
    make_sys();
    return 0;
}

static int drop(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)st;
    (void)kind;
    (void)f;
    return remove(path);
}
static int drop_root(void **state)
{
    (void)state;
    return nftw(root, drop, 16, FTW_DEPTH | FTW_PHYS);
}

static void test_lists(void **state)
{
    (void)state;
    static const char *const bad[] = { "",
                                       ",",
                                       "1,",
                                       "-1",
                                       "3-1",
                                       "1-",
                                       "1--2",
                                       "a",
                                       "1 2",
                                       "0x1",
                                       "1,1",
                                       "0-3,2",
                                       "1024",
                                       "0-1024",
                                       "1,,2",
                                       "99999999999999999999",
                                       "0-99999999999999999999",
                                       " 1",
                                       "1;2",
                                       "auto ",
                                       "+1" };
    uint16_t cpu[NB_MAX_CPU];
    size_t n = 0;
    assert_int_equal(nb_cpu_list_parse("0-3,8,5-6 \n", cpu, &n, NULL), NB_OK);
    static const uint16_t want[] = { 0, 1, 2, 3, 8, 5, 6 };
    assert_int_equal(n, 7);
    assert_memory_equal(cpu, want, sizeof want);
    assert_int_equal(nb_cpu_list_parse("0-1023", cpu, &n, NULL), NB_OK);
    assert_int_equal(n, 1024);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nb_error err = { 0 };
        n = 77;
        if (nb_cpu_list_parse(bad[i], cpu, &n, &err) != NB_ERR_ARG) fail_msg("'%s'", bad[i]);
        assert_int_equal(n, 77);
        assert_non_null(strstr(err.msg, "expected CPUs"));
    }
    for (uint64_t k = 0; k < 20000; k++) { /* anything at all: no fault, no more than there are */
        static const char some[] = "0123456789,,--\n x";
        char text[24] = { 0 };
        for (size_t i = 0; i + 1 < sizeof text; i++)
            text[i] = some[nb_rng_u64(3, k * 32 + i) % (sizeof some - 1)];
        text[nb_rng_u64(4, k) % sizeof text] = 0;
        if (nb_cpu_list_parse(text, cpu, &n, NULL) == NB_OK) assert_in_range(n, 1, NB_MAX_CPU);
    }
}

static nb_machine machine_of(size_t n_allowed)
{
    nb_machine m;
    memset(&m, 0, sizeof m);
    for (size_t i = 0; i < n_allowed; i++) m.allowed[i] = true;
    nb_machine_read(&m, root);
    return m;
}

static void test_machine(void **state)
{
    (void)state;
    nb_machine m = machine_of(8);
    assert_int_equal(m.n_allowed, 8);
    assert_int_equal(m.n_core, 4);
    assert_int_equal(m.n_node, 2);
    assert_int_equal(m.node_mask, 3);
    for (size_t c = 0; c < 8; c++) {
        assert_int_equal(m.core[c], c < 4);
        assert_int_equal(m.node[c], c % 2);
    }
    m = machine_of(1);
    assert_int_equal(m.n_node, 1);
    assert_int_equal(m.n_core, 1);
    /* files that make no sense: one node, CPUs for themselves */
    static const char *const odd[] = { "", "\n", "x", "5-", "0-4096", "0,0" };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        put("devices/system/node/online", odd[i]);
        put("devices/system/cpu/cpu0/topology/core_id", "?");
        m = machine_of(8);
        assert_int_equal(m.n_node, 1);
        assert_int_equal(m.n_core, 5); /* CPU 0 stands alone, CPU 4 is the first of its core */
    }
    char *large = malloc(20001);
    assert_non_null(large);
    memset(large, '1', 20000);
    large[20000] = 0;
    put("devices/system/node/online", large);
    free(large);
    assert_int_equal(machine_of(8).n_node, 1);
    make_sys();
}

static void test_places(void **state)
{
    (void)state;
    const nb_machine m = machine_of(8);
    uint16_t cpu[NB_MAX_CPU];
    size_t n;
    nb_error err = { 0 };
    assert_int_equal(nb_places_choose(&m, NULL, true, 4, cpu, &n, &err), NB_OK);
    static const uint16_t by_node[] = { 0, 2, 1, 3 };
    assert_int_equal(n, 4);
    assert_memory_equal(cpu, by_node, sizeof by_node);
    assert_int_equal(nb_places_choose(&m, "auto", true, 3, cpu, &n, &err), NB_OK);
    assert_int_equal(n, 3);
    static const struct {
        const char *affinity;
        bool free;
        size_t n_thread;
    } unbound[] = {
        { "none", true, 4 }, { "auto", false, 4 }, { "auto", true, 1 }, { "auto", true, 5 }
    };
    for (size_t i = 0; i < sizeof unbound / sizeof *unbound; i++) {
        assert_int_equal(nb_places_choose(&m, unbound[i].affinity, unbound[i].free,
                                          unbound[i].n_thread, cpu, &n, &err),
                         NB_OK);
        assert_int_equal(n, 0);
    }
    assert_int_equal(nb_places_choose(&m, "7,1-2", false, 2, cpu, &n, &err), NB_OK);
    assert_int_equal(n, 2);
    assert_int_equal(cpu[0], 7);
    assert_int_equal(cpu[1], 1);
    assert_int_equal(nb_places_choose(&m, "0-1", true, 3, cpu, &n, &err), NB_ERR_ARG);
    assert_non_null(strstr(err.msg, "2 CPUs for 3 threads"));
    assert_int_equal(nb_places_choose(&m, "6-8", true, 3, cpu, &n, &err), NB_ERR_ARG);
    assert_non_null(strstr(err.msg, "may not run on CPU 8"));
    assert_int_equal(nb_places_choose(&m, "some", true, 3, cpu, &n, &err), NB_ERR_ARG);
    /* one node: only a thread for every core is bound */
    put("devices/system/node/online", "0");
    const nb_machine one = machine_of(8);
    assert_int_equal(nb_places_choose(&one, "auto", true, 3, cpu, &n, &err), NB_OK);
    assert_int_equal(n, 0);
    assert_int_equal(nb_places_choose(&one, "auto", true, 4, cpu, &n, &err), NB_OK);
    assert_int_equal(n, 4);
    make_sys();
}

static void task(void *ctx, size_t i, size_t worker)
{
    (void)worker;
    ((unsigned *)ctx)[i]++;
}

/* The machine at hand: threads are bound where they are told, and work. */
static void test_here(void **state)
{
    (void)state;
    nb_machine m;
    bool is_free;
    nb_machine_here(&m, &is_free);
    assert_in_range(m.n_core, 1, NB_MAX_CPU);
    assert_true(m.n_node >= 1);
    nb_dev *d = NULL;
    nb_error err = { 0 };
    unsigned ran[100] = { 0 };
    assert_int_equal(nb_dev_create_host(2, &d, &err), NB_OK);
    assert_int_equal(nb_dev_bind(d, "0-1023x", &err), NB_ERR_ARG);
    char list[20];
    size_t c = 0;
    while (!m.allowed[c]) c++;
    (void)snprintf(list, sizeof list, "%zu", c);
    assert_int_equal(nb_dev_bind(d, list, &err), NB_ERR_ARG); /* one CPU, two threads */
    assert_int_equal(nb_dev_bind_part(d, list, 1, 2, &err), NB_ERR_ARG); /* for four */
    assert_int_equal(nb_dev_bind_part(d, NULL, 1, 2, &err), NB_OK);
    assert_int_equal(nb_dev_bind(d, NULL, &err), NB_OK);
    nb_dev_run(d, task, ran, 100);
    for (size_t i = 0; i < 100; i++) assert_int_equal(ran[i], 1);
    nb_dev_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test_setup_teardown(test_machine, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_places, make_root, drop_root),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
