/* pool.c - see pool.h.
 *
 * A job is one 64-bit word: its generation and how many tasks nobody has taken.
 * A thread takes a task by lowering the count with a compare-and-swap; it reads
 * `fn` and `ctx` only with a task in hand, and the caller replaces them only when
 * every task of the job is done.  So nobody waits for a worker that has no task:
 * on a busy machine, where a worker may not be scheduled for milliseconds, the
 * caller simply does the work itself (a barrier of all workers per job cost a
 * factor of ten there).  Between jobs a worker spins for a short while, since a
 * decode step has dozens of jobs a few microseconds apart, and then sleeps. */
#include "os/pool.h"

#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"

/* About 100 microseconds at 3 GHz with ~40 cycles a pause: longer than the gaps
 * inside a step, far shorter than a time slice. */
enum { POOL_SPINS = 8000, POOL_MAX_THREAD = 1024 };

struct nb_pool {
    size_t n_thread;
    pthread_t *thread; /* [n_thread - 1] */
    nb_task_fn *fn;    /* written by the caller before `job` is advanced */
    void *ctx;
    size_t n_task;
    bool spin;            /* immutable: false when threads outnumber the cores */
    _Atomic uint64_t job; /* generation << 32 | tasks that nobody has taken */
    _Atomic size_t done;  /* tasks finished: release in take_tasks, acquire in nb_pool_run */
    _Atomic bool stop;
    _Atomic size_t n_asleep; /* workers waiting on `wake`; under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

typedef struct worker_arg {
    nb_pool *p;
    size_t worker;
} worker_arg;

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_tasks(nb_pool *p, size_t worker)
{
    uint64_t j = atomic_load_explicit(&p->job, memory_order_acquire);
    while ((uint32_t)j != 0) {
        /* partner: the release store in publish; it makes fn, ctx and n_task visible */
        if (!atomic_compare_exchange_weak_explicit(&p->job, &j, j - 1, memory_order_acquire,
                                                   memory_order_acquire))
            continue;
        p->fn(p->ctx, p->n_task - (uint32_t)j, worker);
        (void)atomic_fetch_add_explicit(&p->done, 1, memory_order_release);
        j = atomic_load_explicit(&p->job, memory_order_acquire);
    }
}

static bool idle(nb_pool *p)
{
    return (uint32_t)atomic_load_explicit(&p->job, memory_order_acquire) == 0 &&
           !atomic_load_explicit(&p->stop, memory_order_acquire);
}

static void wait_job(nb_pool *p)
{
    for (int i = 0; p->spin && i < POOL_SPINS; i++) {
        if (!idle(p)) return;
        pause_cpu();
    }
    (void)pthread_mutex_lock(&p->lock);
    while (idle(p)) {
        p->n_asleep++;
        (void)pthread_cond_wait(&p->wake, &p->lock);
        p->n_asleep--;
    }
    (void)pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    worker_arg *w = arg;
    nb_pool *p = w->p;
    const size_t worker = w->worker;
    free(w);
    while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
        wait_job(p);
        take_tasks(p, worker);
    }
    return NULL;
}

/* The lock orders the new value against a worker that is about to sleep. */
static void publish(nb_pool *p, uint64_t job)
{
    (void)pthread_mutex_lock(&p->lock);
    atomic_store_explicit(&p->job, job, memory_order_release);
    if (p->n_asleep) (void)pthread_cond_broadcast(&p->wake);
    (void)pthread_mutex_unlock(&p->lock);
}

void nb_pool_run(nb_pool *p, nb_task_fn *fn, void *ctx, size_t n_task)
{
    if (n_task == 0) return;
    if (p->n_thread == 1 || n_task == 1 || n_task > UINT32_MAX) {
        for (size_t t = 0; t < n_task; t++) fn(ctx, t, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->n_task = n_task;
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    const uint64_t gen = (atomic_load_explicit(&p->job, memory_order_relaxed) >> 32) + 1;
    publish(p, gen << 32 | n_task);
    take_tasks(p, 0);
    for (int i = 0; atomic_load_explicit(&p->done, memory_order_acquire) != n_task; i++) {
        if (p->spin && i < POOL_SPINS)
            pause_cpu();
        else
            (void)sched_yield();
    }
}

void nb_pool_destroy(nb_pool *p)
{
    if (!p) return;
    atomic_store_explicit(&p->stop, true, memory_order_release);
    publish(p, 0);
    for (size_t i = 0; i + 1 < p->n_thread; i++) (void)pthread_join(p->thread[i], NULL);
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_cond_destroy(&p->wake);
    free(p->thread);
    free(p);
}

static nb_status start_worker(nb_pool *p, size_t i, nb_error *err)
{
    worker_arg *w = malloc(sizeof *w);
    if (w) *w = (worker_arg){ p, i };
    if (!w || pthread_create(&p->thread[i - 1], NULL, worker_main, w) != 0) {
        free(w);
        return nb_fail(err, NB_ERR_NOMEM, "cannot start thread %zu", i);
    }
    p->n_thread++;
    return NB_OK;
}

nb_status nb_pool_create(size_t n_thread, nb_pool **out, nb_error *err)
{
    const size_t n_core = nb_os_n_core();
    if (n_thread == 0) n_thread = n_core;
    if (n_thread > POOL_MAX_THREAD)
        return nb_fail(err, NB_ERR_RANGE, "%zu threads asked for, at most %d are supported",
                       n_thread, POOL_MAX_THREAD);
    nb_pool *p = calloc(1, sizeof *p);
    pthread_t *t = calloc(n_thread, sizeof *t);
    if (!p || !t) {
        free(p);
        free(t);
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for %zu threads", n_thread);
    }
    p->thread = t;
    p->n_thread = 1;
    p->spin = n_thread <= n_core;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->wake, NULL);
    sigset_t stop, before; /* signals that end things are for the program's own threads */
    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, SIGINT);
    (void)sigaddset(&stop, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &stop, &before); /* new threads inherit it */
    nb_status st = NB_OK;
    for (size_t i = 1; st == NB_OK && i < n_thread; i++) st = start_worker(p, i, err);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (st != NB_OK) {
        nb_pool_destroy(p);
        return st;
    }
    *out = p;
    return NB_OK;
}

size_t nb_pool_n_thread(const nb_pool *p)
{
    return p->n_thread;
}
