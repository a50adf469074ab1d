/* test_pool.c - the thread pool: every task exactly once, for any number of threads,
 * tasks and jobs; what a job wrote is visible to the caller.  ThreadSanitizer runs this. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <sched.h>
#include <time.h>

#include "base/rng.h"
#include "os/pool.h"

enum { MAX_TASK = 4096, MAX_WORKER = 64 };

/* Workers must not assert (cmocka jumps): they count, the caller looks. */
typedef struct job {
    atomic_uint ran[MAX_TASK];
    unsigned plain[MAX_TASK]; /* not atomic: the pool has to order it */
    atomic_uint bad_worker;
    size_t n_worker;
    atomic_uint inside[MAX_WORKER]; /* two tasks at a time with one worker index? */
    unsigned stamp, weight;
} job;

static void task(void *ctx, size_t t, size_t worker)
{
    job *j = ctx;
    if (worker >= j->n_worker) {
        atomic_fetch_add(&j->bad_worker, 1);
        return;
    }
    if (atomic_fetch_add(&j->inside[worker], 1) != 0) atomic_fetch_add(&j->bad_worker, 1);
    volatile unsigned x = 0;
    for (unsigned i = 0; i < j->weight * (unsigned)(t % 7); i++) x = x + i;
    j->plain[t] = j->stamp + (unsigned)t;
    atomic_fetch_add(&j->ran[t], 1);
    atomic_fetch_sub(&j->inside[worker], 1);
}

static void run_and_check(nb_pool *p, job *j, size_t n_task, unsigned stamp)
{
    j->n_worker = nb_pool_n_thread(p);
    j->stamp = stamp;
    for (size_t i = 0; i < MAX_TASK; i++) {
        atomic_store(&j->ran[i], 0);
        j->plain[i] = UINT32_MAX;
    }
    nb_pool_run(p, task, j, n_task);
    assert_int_equal(atomic_load(&j->bad_worker), 0);
    for (size_t i = 0; i < MAX_TASK; i++) {
        const unsigned want = i < n_task, got = atomic_load(&j->ran[i]);
        if (got != want) fail_msg("task %zu of %zu ran %u times", i, n_task, got);
        if (want && j->plain[i] != stamp + (unsigned)i)
            fail_msg("task %zu: what it wrote is lost", i);
    }
}

static void test_exactly_once(void **state)
{
    (void)state;
    static const size_t n_tasks[] = { 0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, MAX_TASK };
    static job j;
    for (size_t n_thread = 1; n_thread <= 8; n_thread++) {
        nb_pool *p = NULL;
        nb_error e;
        assert_int_equal(nb_pool_create(n_thread, &p, &e), NB_OK);
        assert_int_equal(nb_pool_n_thread(p), n_thread);
        for (size_t k = 0; k < sizeof n_tasks / sizeof *n_tasks; k++) {
            j.weight = k % 3 ? 0 : 50;
            run_and_check(p, &j, n_tasks[k], (unsigned)(1000 * k));
        }
        nb_pool_destroy(p);
    }
}

static void count(void *ctx, size_t t, size_t worker)
{
    (void)t;
    (void)worker;
    atomic_fetch_add_explicit((atomic_size_t *)ctx, 1, memory_order_relaxed);
}

/* Many short jobs: a worker that comes late to one must not take part in the next. */
static void test_many_jobs(void **state)
{
    (void)state;
    for (size_t n_thread = 2; n_thread <= 5; n_thread++) {
        nb_pool *p = NULL;
        nb_error e;
        atomic_size_t sum = 0;
        size_t want = 0;
        assert_int_equal(nb_pool_create(n_thread, &p, &e), NB_OK);
        for (uint64_t i = 0; i < 2000; i++) {
            const size_t n = (size_t)(nb_rng_u64(5, i) % 12);
            nb_pool_run(p, count, &sum, n);
            want += n;
            if (atomic_load(&sum) != want) fail_msg("job %zu: not all tasks ran", (size_t)i);
            /* now and then longer than the workers spin, so that they fall asleep */
            if (i % 200 == 0) (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        }
        nb_pool_destroy(p);
    }
}

/* More threads than any test machine has cores for, with tasks that give way. */
static void yield(void *ctx, size_t t, size_t worker)
{
    (void)sched_yield();
    task(ctx, t, worker);
}
static void test_oversubscribed(void **state)
{
    (void)state;
    static job j;
    nb_pool *p = NULL;
    nb_error e;
    assert_int_equal(nb_pool_create(MAX_WORKER, &p, &e), NB_OK);
    assert_int_equal(nb_pool_n_thread(p), MAX_WORKER);
    for (unsigned k = 0; k < 20; k++) run_and_check(p, &j, k % 2 ? 300 : 5, k);
    memset(&j, 0, sizeof j);
    j.n_worker = MAX_WORKER;
    nb_pool_run(p, yield, &j, 500);
    for (size_t i = 0; i < 500; i++) assert_int_equal(atomic_load(&j.ran[i]), 1);
    nb_pool_destroy(p);
}

static void test_life(void **state)
{
    (void)state;
    nb_error e = { 0 };
    nb_pool_destroy(NULL);
    for (size_t i = 0; i < 50; i++) { /* destroyed before, and right after, the workers slept */
        nb_pool *p = NULL;
        assert_int_equal(nb_pool_create(1 + i % 4, &p, &e), NB_OK);
        if (i % 5 == 0) (void)nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        if (i % 3 == 0) {
            atomic_size_t sum = 0;
            nb_pool_run(p, count, &sum, 9);
            assert_int_equal(atomic_load(&sum), 9);
        }
        nb_pool_destroy(p);
    }
    nb_pool *a = NULL, *b = NULL; /* two pools do not know each other */
    atomic_size_t sa = 0, sb = 0;
    assert_int_equal(nb_pool_create(3, &a, &e), NB_OK);
    assert_int_equal(nb_pool_create(2, &b, &e), NB_OK);
    nb_pool_run(a, count, &sa, 11);
    nb_pool_run(b, count, &sb, 13);
    nb_pool_destroy(a);
    nb_pool_run(b, count, &sb, 13);
    nb_pool_destroy(b);
    assert_int_equal(atomic_load(&sa), 11);
    assert_int_equal(atomic_load(&sb), 26);
}

static void test_number_of_threads(void **state)
{
    (void)state;
    nb_pool *p = NULL;
    nb_error e = { 0 };
    assert_true(nb_os_n_core() >= 1);
    assert_int_equal(nb_pool_create(0, &p, &e), NB_OK);
    assert_int_equal(nb_pool_n_thread(p), nb_os_n_core());
    nb_pool_destroy(p);
    p = NULL;
    assert_int_equal(nb_pool_create(1u << 20, &p, &e), NB_ERR_RANGE);
    assert_null(p);
    assert_non_null(strstr(e.msg, "1048576 threads"));
    assert_int_equal(nb_pool_create(1u << 20, &p, NULL), NB_ERR_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exactly_once),      cmocka_unit_test(test_many_jobs),
        cmocka_unit_test(test_oversubscribed),    cmocka_unit_test(test_life),
        cmocka_unit_test(test_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
