/* test_os_thread.c - threads, locks and conditions of src/os. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <signal.h>

#include "os/clock.h"
#include "os/thread.h"

typedef struct shared {
    nb_mutex *lock;
    nb_cond *changed;
    nb_thread *self;
    int n, turn; /* guarded by lock */
    atomic_bool is_current, term_blocked, segv_blocked;
} shared;

static void count(void *arg)
{
    shared *s = arg;
    for (int i = 0; i < 10000; i++) {
        nb_mutex_lock(s->lock);
        s->n++;
        nb_mutex_unlock(s->lock);
    }
}

static void open_shared(shared *s)
{
    assert_int_equal(nb_mutex_create(&s->lock), NB_OK);
    assert_int_equal(nb_cond_create(&s->changed), NB_OK);
}

static void close_shared(shared *s)
{
    nb_mutex_destroy(s->lock);
    nb_cond_destroy(s->changed);
}

static void test_mutex(void **state)
{
    (void)state;
    shared s = { 0 };
    nb_thread *t[4];
    open_shared(&s);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(nb_thread_create(count, &s, &t[i], NULL), NB_OK);
    for (size_t i = 0; i < 4; i++) nb_thread_join(t[i]);
    assert_int_equal(s.n, 40000);
    nb_thread_join(NULL);
    nb_mutex_destroy(NULL);
    nb_cond_destroy(NULL);
    close_shared(&s);
}

/* Two threads take turns; each waits for the other. */
static void ping(void *arg)
{
    shared *s = arg;
    nb_mutex_lock(s->lock);
    for (int i = 0; i < 1000; i++) {
        while (s->turn != 1) nb_cond_wait(s->changed, s->lock);
        s->turn = 0;
        s->n++;
        nb_cond_signal(s->changed);
    }
    nb_mutex_unlock(s->lock);
}

static void test_cond(void **state)
{
    (void)state;
    shared s = { 0 };
    nb_thread *t;
    open_shared(&s);
    assert_int_equal(nb_thread_create(ping, &s, &t, NULL), NB_OK);
    nb_mutex_lock(s.lock);
    for (int i = 0; i < 1000; i++) {
        s.turn = 1;
        nb_cond_broadcast(s.changed);
        while (s.turn != 0) nb_cond_wait(s.changed, s.lock);
        assert_int_equal(s.n, i + 1);
    }
    /* Nobody signals: it comes back, and not before its time. */
    const double t0 = nb_clock_s();
    double left_s = 0.02;
    while (left_s > 0) { /* it may come back early, for no reason */
        nb_cond_wait_for(s.changed, s.lock, 1 + (unsigned)(left_s * 1000));
        left_s = t0 + 0.02 - nb_clock_s();
    }
    nb_mutex_unlock(s.lock);
    nb_thread_join(t);
    close_shared(&s);
}

static void look_at_itself(void *arg)
{
    shared *s = arg;
    sigset_t set;
    nb_mutex_lock(s->lock); /* until self is known */
    atomic_store(&s->is_current, nb_thread_is_current(s->self));
    nb_mutex_unlock(s->lock);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &set);
    atomic_store(&s->term_blocked, sigismember(&set, SIGTERM) == 1);
    atomic_store(&s->segv_blocked, sigismember(&set, SIGSEGV) == 1);
}

static void test_identity_and_signals(void **state)
{
    (void)state;
    shared s = { 0 };
    sigset_t before, after;
    open_shared(&s);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &before);
    nb_mutex_lock(s.lock);
    assert_int_equal(nb_thread_create(look_at_itself, &s, &s.self, NULL), NB_OK);
    assert_false(nb_thread_is_current(s.self));
    nb_mutex_unlock(s.lock);
    nb_thread_join(s.self);
    assert_true(atomic_load(&s.is_current));
    assert_true(atomic_load(&s.term_blocked)); /* signals are for the others */
    assert_false(atomic_load(&s.segv_blocked));
    (void)pthread_sigmask(SIG_BLOCK, NULL, &after); /* the creator's own are as they were */
    for (int sig = 1; sig < 32; sig++)
        assert_int_equal(sigismember(&before, sig), sigismember(&after, sig));
    close_shared(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutex),
        cmocka_unit_test(test_cond),
        cmocka_unit_test(test_identity_and_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
