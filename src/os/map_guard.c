/* map_guard.c - see map_guard.h.
 *
 * The handler may run on any thread at any time, so it takes no lock and no memory: it walks a list
 * of ranges that only grows.  A range that is removed has its end set to 0 and is used again for the
 * next one.  What the handler calls besides is mmap, as a bare system call: a thread sanitizer that sees
 * the call takes it for a write, and a race with the threads that read the range. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, sigaction's SA_ONSTACK, syscall */
#include "os/map_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct nb_map_guard {
    atomic_uintptr_t begin, end; /* end 0: not in use */
    atomic_size_t fault;         /* 1 + offset of the first, 0: none */
    nb_map_guard *next;          /* set once */
    bool used;                   /* of the lock's owner */
};

static _Atomic(nb_map_guard *) ranges;
static atomic_uint_fast64_t n_fault;
static atomic_uintptr_t page_bytes;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static size_t n_used;
static bool covered;            /* somebody has put a handler over ours, which calls ours */
static struct sigaction before; /* read by the handler, which is only installed when it is set */

static nb_map_guard *find(uintptr_t at, uintptr_t *end)
{
    for (nb_map_guard *g = atomic_load(&ranges); g; g = g->next) {
        const uintptr_t b = atomic_load(&g->begin), e = atomic_load(&g->end);
        if (at < b || at >= e || atomic_load(&g->begin) != b) continue;
        *end = e;
        return g;
    }
    return NULL;
}

/* A SIGBUS that is not ours: as if we were not here. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(sig, info, context);
        return;
    }
    if (before.sa_handler == SIG_IGN && info->si_code <= 0) return; /* sent, and ignored */
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(sig);
        return;
    }
    /* The default: the instruction faults again, or the signal that was sent is pending. */
    (void)signal(sig, SIG_DFL);
    if (info->si_code <= 0) (void)raise(sig);
}

/* Zeros in place of [from, end). */
static bool cover(uintptr_t from, uintptr_t end)
{
    return syscall(SYS_mmap, from, end - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0L) != -1;
}

static void on_bus(int sig, siginfo_t *info, void *context)
{
    const int e = errno;
    const uintptr_t at = (uintptr_t)info->si_addr, page = atomic_load(&page_bytes);
    uintptr_t end = 0;
    nb_map_guard *g = info->si_code > 0 ? find(at, &end) : NULL;
    const uintptr_t from = at / page * page;
    if (!g || !cover(from, end)) {
        pass_on(sig, info, context);
    } else {
        size_t none = 0;
        (void)atomic_compare_exchange_strong(&g->fault, &none, at - atomic_load(&g->begin) + 1);
        (void)atomic_fetch_add(&n_fault, 1);
    }
    errno = e;
}

static nb_status install(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    (void)sigemptyset(&a.sa_mask);
    a.sa_sigaction = on_bus;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    struct sigaction old;
    if (covered) return NB_OK; /* over itself it would pass on to itself */
    if (sigaction(SIGBUS, NULL, &old) != 0) return NB_ERR_IO;
    before = old;
    return sigaction(SIGBUS, &a, NULL) == 0 ? NB_OK : NB_ERR_IO;
}

/* Where somebody has put a handler over ours, ours stays: it is called from there, and passes on. */
static void uninstall(void)
{
    struct sigaction now;
    const bool ours = sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
                      now.sa_sigaction == on_bus;
    if (ours) (void)sigaction(SIGBUS, &before, NULL);
    covered = !ours;
}

/* With the lock held. */
static nb_map_guard *unused(void)
{
    for (nb_map_guard *g = atomic_load(&ranges); g; g = g->next)
        if (!g->used) return g;
    nb_map_guard *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->next = atomic_load(&ranges);
    atomic_store(&ranges, g);
    return g;
}

nb_status nb_map_guard_add(const void *p, size_t n_bytes, nb_map_guard **out)
{
    const long page = sysconf(_SC_PAGESIZE);
    if (page <= 0) return NB_ERR_IO;
    (void)pthread_mutex_lock(&lock);
    atomic_store(&page_bytes, (uintptr_t)page);
    nb_map_guard *g = unused();
    nb_status st = g ? NB_OK : NB_ERR_NOMEM;
    if (st == NB_OK && n_used == 0) st = install();
    if (st == NB_OK) {
        const uintptr_t end = (uintptr_t)p + n_bytes, last = (uintptr_t)page - 1;
        g->used = true;
        n_used++;
        atomic_store(&g->fault, 0);
        atomic_store(&g->begin, (uintptr_t)p);
        atomic_store(&g->end, (end + last) & ~last);
        *out = g;
    }
    (void)pthread_mutex_unlock(&lock);
    return st;
}

void nb_map_guard_remove(nb_map_guard *g)
{
    if (!g) return;
    (void)pthread_mutex_lock(&lock);
    atomic_store(&g->end, 0);
    atomic_store(&g->begin, 0);
    g->used = false;
    if (--n_used == 0) uninstall();
    (void)pthread_mutex_unlock(&lock);
}

uint64_t nb_map_guard_n_fault(void)
{
    return atomic_load_explicit(&n_fault, memory_order_relaxed);
}

bool nb_map_guard_fault(const nb_map_guard *g, size_t *at)
{
    const size_t fault = atomic_load(&g->fault);
    if (fault) *at = fault - 1;
    return fault != 0;
}
