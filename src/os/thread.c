/* thread.c - see thread.h: POSIX threads, with waiting measured on the monotonic clock. */
#include "os/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct nb_thread {
    pthread_t id;
    nb_thread_fn *fn;
    void *arg;
};
struct nb_mutex {
    pthread_mutex_t m;
};
struct nb_cond {
    pthread_cond_t c;
};

static void *thread_main(void *arg)
{
    const nb_thread *t = arg;
    t->fn(t->arg);
    return NULL;
}

nb_status nb_thread_create(nb_thread_fn *fn, void *arg, nb_thread **out, nb_error *err)
{
    nb_thread *t = calloc(1, sizeof *t);
    if (!t) return nb_fail(err, NB_ERR_NOMEM, "out of memory for a thread");
    t->fn = fn;
    t->arg = arg;
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF };
    sigset_t block, before;
    (void)sigfillset(&block);
    for (size_t i = 0; i < NB_COUNT(own); i++) (void)sigdelset(&block, own[i]);
    (void)pthread_sigmask(SIG_SETMASK, &block, &before); /* the new thread inherits it */
    const int rc = pthread_create(&t->id, NULL, thread_main, t);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        free(t);
        return nb_fail(err, NB_ERR_NOMEM, "cannot start a thread: %s", strerror(rc));
    }
    *out = t;
    return NB_OK;
}

void nb_thread_join(nb_thread *t)
{
    if (!t) return;
    (void)pthread_join(t->id, NULL);
    free(t);
}

bool nb_thread_is_current(const nb_thread *t)
{
    return pthread_equal(t->id, pthread_self()) != 0;
}

nb_status nb_mutex_create(nb_mutex **out)
{
    nb_mutex *m = calloc(1, sizeof *m);
    if (!m || pthread_mutex_init(&m->m, NULL) != 0) {
        free(m);
        return NB_ERR_NOMEM;
    }
    *out = m;
    return NB_OK;
}

void nb_mutex_destroy(nb_mutex *m)
{
    if (!m) return;
    (void)pthread_mutex_destroy(&m->m);
    free(m);
}

void nb_mutex_lock(nb_mutex *m)
{
    (void)pthread_mutex_lock(&m->m);
}

void nb_mutex_unlock(nb_mutex *m)
{
    (void)pthread_mutex_unlock(&m->m);
}

nb_status nb_cond_create(nb_cond **out)
{
    nb_cond *c = calloc(1, sizeof *c);
    pthread_condattr_t a;
    if (!c || pthread_condattr_init(&a) != 0) {
        free(c);
        return NB_ERR_NOMEM;
    }
    (void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    const int rc = pthread_cond_init(&c->c, &a);
    (void)pthread_condattr_destroy(&a);
    if (rc != 0) {
        free(c);
        return NB_ERR_NOMEM;
    }
    *out = c;
    return NB_OK;
}

void nb_cond_destroy(nb_cond *c)
{
    if (!c) return;
    (void)pthread_cond_destroy(&c->c);
    free(c);
}

void nb_cond_wait(nb_cond *c, nb_mutex *m)
{
    (void)pthread_cond_wait(&c->c, &m->m);
}

void nb_cond_wait_for(nb_cond *c, nb_mutex *m, unsigned timeout_ms)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(timeout_ms / 1000);
    t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    (void)pthread_cond_timedwait(&c->c, &m->m, &t);
}

void nb_cond_signal(nb_cond *c)
{
    (void)pthread_cond_signal(&c->c);
}

void nb_cond_broadcast(nb_cond *c)
{
    (void)pthread_cond_broadcast(&c->c);
}
