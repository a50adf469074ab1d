/* pool.c - see pool.h.
 *
 * A job's tasks are dealt as one range to each thread, neighbouring tasks to the same thread: they
 * stream neighbouring rows of a weight, and with pinned threads the same rows in every step.  A range
 * is one 64-bit word on a cache line of its own; its thread takes tasks from its front by
 * compare-and-swap, and who has none left takes some from the rear of somebody else's.  So threads do not
 * meet at a counter while there is enough to do, and nobody idles while a task waits in a range: a
 * worker that the system does not let run for milliseconds loses its range to the others, and keeps
 * only what it has taken (a barrier of all workers per job cost a factor of ten on a busy machine).
 *
 * `fn` and `ctx` are read only with a task in hand, and replaced only when every task of the job is
 * done.  An old range that reappears is a range of the new job, so a late compare-and-swap takes a
 * task that there is.  Between jobs a worker spins for a short while, since a decode step has
 * dozens of jobs a few microseconds apart, and then sleeps. */
#define _GNU_SOURCE /* pthread_setaffinity_np is a glibc extension */
#include "os/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "os/thread.h"

/* About 100 microseconds at 3 GHz with ~40 cycles a pause: longer than the gaps
 * inside a step, far shorter than a time slice. */
enum { POOL_SPINS = 8000, POOL_MAX_THREAD = 1024, CACHE_LINE = 64 };

/* Tasks [begin, end) that nobody has taken: begin << 32 | end. */
typedef struct range {
    alignas(CACHE_LINE) _Atomic uint64_t tasks;
} range;

struct nb_pool {
    size_t n_thread;
    pthread_t *thread; /* [n_thread - 1] */
    range *range;      /* [n_thread] */
    nb_task_fn *fn;    /* written by the caller before the ranges */
    void *ctx;
    long cpu0; /* of the thread that runs tasks; -1: any */
    bool spin; /* immutable: false when threads outnumber the cores */
    alignas(CACHE_LINE) _Atomic uint64_t job; /* jobs so far */
    _Atomic bool stop;
    _Atomic size_t n_asleep;                 /* workers waiting on `wake` */
    alignas(CACHE_LINE) _Atomic size_t done; /* tasks finished */
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

typedef struct worker_arg {
    nb_pool *p;
    size_t worker;
} worker_arg;

/* ---- ranges ---- */

static uint64_t range_of(uint64_t begin, uint64_t end)
{
    return begin << 32 | end;
}

/* The first task of r, if there is one: *task. */
static size_t take_first(range *r, size_t *task)
{
    /* partner of the acquires: the release stores of nb_pool_run; they make fn and ctx visible */
    uint64_t v = atomic_load_explicit(&r->tasks, memory_order_acquire);
    while (v >> 32 < (uint32_t)v)
        if (atomic_compare_exchange_weak_explicit(&r->tasks, &v, v + range_of(1, 0),
                                                  memory_order_acquire, memory_order_acquire)) {
            *task = (size_t)(v >> 32);
            return 1;
        }
    return 0;
}

/* A quarter of somebody's tasks, from the rear: returns how many, *task is the first.  They are the
 * thief's alone: put into a range again they could meet the next job's. */
static size_t steal(nb_pool *p, size_t worker, size_t *task)
{
    for (size_t i = 1; i < p->n_thread; i++) {
        range *r = &p->range[(worker + i) % p->n_thread];
        uint64_t v = atomic_load_explicit(&r->tasks, memory_order_acquire);
        while (v >> 32 < (uint32_t)v) {
            const uint64_t begin = v >> 32, end = (uint32_t)v, n = (end - begin + 3) / 4;
            if (!atomic_compare_exchange_weak_explicit(&r->tasks, &v, range_of(begin, end - n),
                                                       memory_order_acquire, memory_order_acquire))
                continue;
            *task = (size_t)(end - n);
            return (size_t)n;
        }
    }
    return 0;
}

static void take_tasks(nb_pool *p, size_t worker)
{
    size_t task, n, n_done = 0;
    while ((n = take_first(&p->range[worker], &task)) || (n = steal(p, worker, &task))) {
        for (size_t i = 0; i < n; i++) p->fn(p->ctx, task + i, worker);
        n_done += n;
    }
    /* partner: the acquire in nb_pool_run */
    if (n_done) (void)atomic_fetch_add_explicit(&p->done, n_done, memory_order_release);
}

/* ---- workers ---- */

static bool nothing_new(nb_pool *p, uint64_t seen)
{
    return atomic_load(&p->job) == seen && !atomic_load(&p->stop);
}

static void wait_job(nb_pool *p, uint64_t seen)
{
    for (int i = 0; p->spin && i < POOL_SPINS; i++) {
        if (!nothing_new(p, seen)) return;
        nb_cpu_pause();
    }
    (void)pthread_mutex_lock(&p->lock);
    /* Either announce sees the count, or this sees the job: all four are sequentially consistent. */
    (void)atomic_fetch_add(&p->n_asleep, 1);
    while (nothing_new(p, seen)) (void)pthread_cond_wait(&p->wake, &p->lock);
    (void)atomic_fetch_sub(&p->n_asleep, 1);
    (void)pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    worker_arg *w = arg;
    nb_pool *p = w->p;
    const size_t worker = w->worker;
    free(w);
    for (uint64_t seen = 0;;) {
        wait_job(p, seen);
        if (atomic_load(&p->stop)) return NULL;
        seen = atomic_load(&p->job);
        take_tasks(p, worker);
    }
}

static void announce(nb_pool *p)
{
    (void)atomic_fetch_add(&p->job, 1);
    if (atomic_load(&p->n_asleep) == 0) return;
    (void)pthread_mutex_lock(&p->lock);
    (void)pthread_cond_broadcast(&p->wake);
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
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    const uint64_t n = n_task, w = p->n_thread;
    for (uint64_t i = 0; i < w; i++)
        atomic_store_explicit(&p->range[i].tasks, range_of(n * i / w, n * (i + 1) / w),
                              memory_order_release);
    announce(p);
    take_tasks(p, 0);
    int n_spin = p->spin ? 0 : POOL_SPINS; /* counts no further: the last task may take minutes */
    while (atomic_load_explicit(&p->done, memory_order_acquire) != n_task) {
        if (n_spin < POOL_SPINS) {
            n_spin++;
            nb_cpu_pause();
        } else {
            (void)sched_yield();
        }
    }
}

void nb_pool_destroy(nb_pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    announce(p);
    for (size_t i = 0; i + 1 < p->n_thread; i++) (void)pthread_join(p->thread[i], NULL);
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_cond_destroy(&p->wake);
    free(p->thread);
    free(p->range);
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
    nb_pool *p = aligned_alloc(CACHE_LINE, sizeof *p); /* calloc does not know of alignas */
    range *r = aligned_alloc(CACHE_LINE, n_thread * sizeof *r);
    pthread_t *t = calloc(n_thread, sizeof *t);
    if (!p || !r || !t) {
        free(p);
        free(r);
        free(t);
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for %zu threads", n_thread);
    }
    memset(p, 0, sizeof *p);
    memset(r, 0, n_thread * sizeof *r);
    p->thread = t;
    p->range = r;
    p->n_thread = 1;
    p->cpu0 = -1;
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

static void bind_thread(pthread_t t, size_t cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= CPU_SETSIZE) return;
    CPU_SET(cpu, &set);
    (void)pthread_setaffinity_np(t, sizeof set, &set);
}

void nb_pool_bind(nb_pool *p, const uint16_t *cpu)
{
    p->cpu0 = cpu[0];
    for (size_t i = 1; i < p->n_thread; i++) bind_thread(p->thread[i - 1], cpu[i]);
}

void nb_pool_enter(nb_pool *p)
{
    if (p->cpu0 >= 0) bind_thread(pthread_self(), (size_t)p->cpu0);
}
