/* thread.h - a thread, a lock, a condition.
 *
 * Locking and waking cannot fail; creating can.  Threads made here leave all signals but
 * those of their own faults to the other threads of the process, so that a signal interrupts
 * whoever waits for input. */
#ifndef NB_OS_THREAD_H
#define NB_OS_THREAD_H
#include <stdbool.h>

#include "base/status.h"

typedef struct nb_thread nb_thread;
typedef void nb_thread_fn(void *arg);

nb_status nb_thread_create(nb_thread_fn *fn, void *arg, nb_thread **out, nb_error *err);
void nb_thread_join(nb_thread *t); /* waits for its end and frees it; NULL is ignored */
/* Is t the calling thread? Not to be asked before nb_thread_create has returned. */
bool nb_thread_is_current(const nb_thread *t);

typedef struct nb_mutex nb_mutex;          /* not recursive */
nb_status nb_mutex_create(nb_mutex **out); /* NB_ERR_NOMEM */
void nb_mutex_destroy(nb_mutex *m);
void nb_mutex_lock(nb_mutex *m);
void nb_mutex_unlock(nb_mutex *m);

typedef struct nb_cond nb_cond;
nb_status nb_cond_create(nb_cond **out); /* NB_ERR_NOMEM */
void nb_cond_destroy(nb_cond *c);
/* m is locked; it may return without a signal. */
void nb_cond_wait(nb_cond *c, nb_mutex *m);
void nb_cond_wait_for(nb_cond *c, nb_mutex *m, unsigned timeout_ms); /* at most that long */
void nb_cond_signal(nb_cond *c);                                     /* one of those who wait */
void nb_cond_broadcast(nb_cond *c);                                  /* all of them */

/* In a loop that looks again and again: leaves the core's resources to its other thread for some cycles. */
static inline void nb_cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
