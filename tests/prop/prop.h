/* prop.h - what the property tests share: runs of random steps, their seeds, and shrinking.
 *
 * A run is a seed and a number of steps; every step draws its numbers from (seed, step), so a
 * run with some steps left out still means something.  When a run fails, the steps it does
 * not need are left out one chunk after the other, and what remains is printed.
 *
 *   prop_NAME [SEED [N_RUN]]     that seed (and the next ones) only
 *   NB_PROP_STEPS=5000000        as many steps as that instead of the short default */
#ifndef NB_TESTS_PROP_H
#define NB_TESTS_PROP_H
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/attr.h"
#include "base/rng.h"

typedef struct prop {
    const char *name;
    uint64_t seed, at;         /* at: numbers drawn in this step              */
    size_t n_step, step;       /* steps are 1 .. n_step; 0 is the set-up      */
    const unsigned char *skip; /* [n_step + 1] steps to leave out, or NULL    */
    bool trace;                /* the run prints what it does                 */
    bool big;                  /* millions of steps: costly checks less often */
    char what[300];            /* what was wrong                              */
} prop;

/* One run: 0, or 1 after prop_fail. */
typedef int prop_fn(prop *p);

static inline uint64_t prop_u64(prop *p)
{
    return nb_rng_u64(nb_mix64(p->seed) + p->step, p->at++);
}
static inline size_t prop_below(prop *p, size_t n)
{
    return (size_t)(prop_u64(p) % n);
}
/* One time in n. */
static inline bool prop_one_in(prop *p, size_t n)
{
    return prop_below(p, n) == 0;
}
static inline size_t prop_between(prop *p, size_t lo, size_t hi)
{
    return lo + prop_below(p, hi - lo + 1);
}
static inline void prop_begin_step(prop *p, size_t step)
{
    p->step = step;
    p->at = 0;
}
static inline bool prop_skipped(const prop *p)
{
    return p->skip && p->skip[p->step];
}

static inline NB_PRINTF(2, 3) int prop_fail(prop *p, const char *fmt, ...)
{
    if (p->what[0]) return 1;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(p->what, sizeof p->what, fmt, ap);
    va_end(ap);
    return 1;
}
static inline NB_PRINTF(2, 3) void prop_trace(const prop *p, const char *fmt, ...)
{
    if (!p->trace) return;
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "  %zu: ", p->step);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

static const prop *prop_now; /* for a run that aborts */
static inline void prop_on_abort(int sig)
{
    (void)fflush(stdout);
    if (prop_now)
        fprintf(stderr, "%s: aborted (seed %llu, step %zu)\n", prop_now->name,
                (unsigned long long)prop_now->seed, prop_now->step);
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

static inline bool prop_still_fails(const prop *p, const unsigned char *skip, prop_fn *run)
{
    prop q = *p;
    q.skip = skip;
    q.what[0] = 0;
    prop_now = &q;
    const bool bad = run(&q) != 0;
    prop_now = p;
    return bad;
}

/* Leaves out what the failure does not need and prints the rest. */
static inline void prop_shrink(prop *p, prop_fn *run)
{
    const size_t n = p->step < p->n_step ? p->step : p->n_step;
    unsigned char *skip = calloc(p->n_step + 1, 1);
    if (!skip) return;
    p->n_step = n;
    size_t n_try = 0;
    for (size_t len = n / 2 ? n / 2 : 1; len; len /= 2)
        for (size_t at = 1; at <= n && n_try < 4000; at += len, n_try++) {
            const size_t end = at + len < n + 1 ? at + len : n + 1;
            unsigned char *was = malloc(end - at);
            if (!was) break;
            memcpy(was, skip + at, end - at);
            memset(skip + at, 1, end - at);
            if (!prop_still_fails(p, skip, run)) memcpy(skip + at, was, end - at);
            free(was);
        }
    size_t left = 0;
    for (size_t i = 1; i <= n; i++) left += !skip[i];
    fprintf(stderr, "%s: %zu of %zu steps are enough:\n", p->name, left, n);
    p->skip = skip;
    p->trace = true;
    p->what[0] = 0;
    (void)run(p);
    fprintf(stderr, "%s: %s (seed %llu, step %zu)\n", p->name, p->what, (unsigned long long)p->seed,
            p->step);
    free(skip);
}

static inline double prop_clock(void)
{
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int prop_main(int argc, char **argv, const char *name, prop_fn *run,
                            size_t default_steps)
{
    const char *env = getenv("NB_PROP_STEPS");
    const uint64_t n_env = env ? strtoull(env, NULL, 10) : 0;
    uint64_t total = n_env ? n_env : default_steps, n_run = UINT64_MAX, done = 0;
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    if (argc > 1) {
        n_run = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
        total = UINT64_MAX;
    }
    (void)signal(SIGABRT, prop_on_abort);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    (void)signal(SIGSEGV, prop_on_abort);
#endif
    const double t0 = prop_clock();
    uint64_t i = 0;
    for (; i < n_run && done < total; i++) {
        prop p = { .name = name, .seed = first + i, .big = n_env >= 1000000 };
        p.n_step = 100 + (size_t)(nb_mix64(p.seed) % 1400);
        if (p.seed % 8 == 0) p.n_step *= 10; /* some are long */
        prop_now = &p;
        if (run(&p)) {
            fprintf(stderr, "%s: %s (seed %llu, step %zu)\n", name, p.what,
                    (unsigned long long)p.seed, p.step);
            prop_shrink(&p, run);
            return 1;
        }
        done += p.n_step;
    }
    prop_now = NULL;
    const double s = prop_clock() - t0;
    printf("%s: %llu runs, %llu steps, %.1f s, %.0f steps/s\n", name, (unsigned long long)i,
           (unsigned long long)done, s, s > 0 ? (double)done / s : 0.0);
    return 0;
}
#endif
