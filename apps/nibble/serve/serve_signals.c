/* serve_signals.c - see serve_signals.h.
 *
 * The signals are blocked in every thread, and one thread waits for them: so nothing here runs
 * inside a handler, and a lock is enough to keep the server alive while it is told. */
#include "serve_signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "notify.h"

static struct {
    pthread_mutex_t lock;
    nb_serve *serve; /* NULL: none yet, or none any more */
    nb_serve_log *log;
    bool ended;
    bool is_terminal[3]; /* what the standard descriptors were at the start */
} to = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void fill(sigset_t *set)
{
    static const int taken[] = { SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1 };
    (void)sigemptyset(set);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) (void)sigaddset(set, taken[i]);
}

/* A terminal that was closed answers nothing any more. */
static bool terminal_has_gone(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (to.is_terminal[fd] && !isatty(fd)) return true;
    return false;
}

/* Ends the program as if the signal had never been blocked. */
static void die(int sig)
{
    sigset_t one;
    if (sig == SIGQUIT) sig = SIGTERM; /* no core dump */
    (void)signal(sig, SIG_DFL);
    (void)sigemptyset(&one);
    (void)sigaddset(&one, sig);
    (void)raise(sig);
    (void)pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

static void stop(int sig)
{
    if (to.serve) {
        notify("STOPPING=1");
        nb_serve_stop(to.serve, sig == SIGINT ? "press Ctrl-C again to stop now"
                                              : "a second signal stops it now");
    } else if (!to.ended) {
        die(sig);
    }
}

void serve_signals_stop(void)
{
    (void)pthread_mutex_lock(&to.lock);
    if (to.serve) {
        notify("STOPPING=1");
        nb_serve_stop(to.serve, "a signal stops it now");
    }
    (void)pthread_mutex_unlock(&to.lock);
}

static void take(int sig)
{
    if (sig != SIGUSR1 && (sig != SIGHUP || terminal_has_gone()))
        stop(sig);
    else if (sig == SIGHUP && to.serve)
        nb_serve_reload(to.serve);
    else if (to.log)
        nb_serve_log_reopen(to.log);
}

static void *wait_for_signals(void *arg)
{
    sigset_t set;
    int sig;
    (void)arg;
    fill(&set);
    for (;;) {
        if (sigwait(&set, &sig) != 0) continue;
        (void)pthread_mutex_lock(&to.lock);
        take(sig);
        (void)pthread_mutex_unlock(&to.lock);
    }
    return NULL;
}

void serve_signals_block(void)
{
    sigset_t set;
    fill(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

nb_status serve_signals_start(nb_serve_log *log, nb_error *err)
{
    pthread_t thread;
    to.log = log;
    for (int fd = 0; fd < 3; fd++) to.is_terminal[fd] = isatty(fd) == 1;
    (void)signal(SIGUSR2, SIG_IGN);
    const int e = pthread_create(&thread, NULL, wait_for_signals, NULL);
    if (e != 0) {
        err->status = NB_ERR_NOMEM;
        (void)snprintf(err->msg, sizeof err->msg, "cannot start a thread for signals: %s",
                       strerror(e));
        return err->status;
    }
    (void)pthread_detach(thread);
    return NB_OK;
}

void serve_signals_attach(nb_serve *s)
{
    (void)pthread_mutex_lock(&to.lock);
    to.serve = s;
    to.ended = !s;
    if (!s) to.log = NULL;
    (void)pthread_mutex_unlock(&to.lock);
}
