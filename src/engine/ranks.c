/* ranks.c - see ranks.h. */
#include "engine/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/remote.h"
#include "os/clock.h"
#include "os/pool.h"

/* How long a rank waits for another.  A rank that fails says so at once; one that says nothing for so long has
 * hung: on processors with more to do than this program, a layer of a large prompt may take seconds. */
#define LIMIT_S 60.0
enum { GRACE_MS = 1000 }; /* for ranks to return once one of them has failed */

/* ---- a rank's thread ---- */

static nb_status do_job(nb_rank_seat *s, const nb_rank_job *j, unsigned char *bad)
{
    s->err = (nb_error){ 0 };
    if (j->chunk && j->first) return nb_rank_step_share(s->rank, j->chunk, j->first, bad, &s->err);
    if (j->chunk) return nb_rank_step(s->rank, j->chunk, j->n, bad, &s->err);
    const size_t group = s->k / s->all->n_tensor;
    const size_t at = j->first ? j->first[group] : 0, n = j->first ? j->first[group + 1] - at : j->n;
    if (j->draw) return nb_rank_sample(s->rank, j->tok + at, j->draw + at, n, j->id + at, &s->err);
    return nb_rank_logits(s->rank, j->tok + at, n, j->logits + at * j->n_vocab, &s->err);
}

/* What tests have planted; false: the thread ends. */
static bool with_fault(nb_rank_seat *s, const nb_rank_job *j, nb_rank_fault what, unsigned late_ms)
{
    nb_chunk other;
    nb_rank_job wrong = *j;
    size_t first[NB_ENGINE_MAX_RANK + 1];
    switch (what) {
    case NB_FAULT_LOST: return false;
    case NB_FAULT_REPORTS:
        nb_comm_fail(s->comm, s->k, "a failure made by a test");
        s->st = nb_comm_check(s->comm, &s->err);
        return true;
    case NB_FAULT_LATE:
        nb_mutex_lock(s->all->lock);
        for (const double until = nb_clock_s() + late_ms * 1e-3; nb_clock_s() < until;)
            nb_cond_wait_for(s->all->wake, s->all->lock, late_ms);
        nb_mutex_unlock(s->all->lock);
        break;
    case NB_FAULT_DECISION:
        other = j->chunk[0];
        other.slot++;
        wrong.chunk = &other;
        wrong.n = 1;
        for (size_t k = 0; k <= s->all->n; k++) first[k] = k > s->k / s->all->n_tensor;
        if (j->first) wrong.first = first;
        break;
    case NB_FAULT_ROWS: nb_rank_plant_rows(s->rank); break;
    case NB_FAULT_SPLIT: nb_rank_plant_split(s->rank); break;
    case NB_FAULT_NONE: break;
    }
    s->st = do_job(s, &wrong, j->first ? j->bad : NULL);
    return true;
}

static void seat_main(void *arg)
{
    nb_rank_seat *s = arg;
    nb_ranks *r = s->all;
    nb_dev_enter(s->dev);
    nb_mutex_lock(r->lock);
    for (;;) {
        while (r->n_job == s->n_seen && !r->stop) nb_cond_wait(r->wake, r->lock);
        if (r->stop) break;
        s->n_seen = r->n_job;
        const nb_rank_job job = r->job;
        const bool wrong = r->fault.rank == s->k && r->fault.logits == !job.chunk;
        const nb_rank_fault what = wrong ? r->fault.what : NB_FAULT_NONE;
        const unsigned late_ms = r->fault.late_ms;
        nb_mutex_unlock(r->lock);
        const bool goes_on = with_fault(s, &job, what, late_ms);
        nb_mutex_lock(r->lock);
        if (!goes_on) break;
        s->n_done = s->n_seen;
        nb_cond_signal(r->done);
    }
    nb_mutex_unlock(r->lock);
}

/* ---- the engine's thread ---- */

/* A rank that has not returned (lock held), or n. */
static size_t missing(const nb_ranks *r)
{
    size_t k = 1;
    while (k < r->n && r->seat[k].n_done == r->n_job) k++;
    return k;
}

/* Until all have returned.  Rank 0 has: whoever needs longer than the limit after it has hung, also where ranks do
 * not meet on the way.  After a failure the others have GRACE_MS. */
static void await_others(nb_ranks *r)
{
    nb_comm *c = r->seat[0].comm;
    double until = nb_clock_s() + nb_comm_limit(c);
    bool failed = false;
    size_t k;
    nb_mutex_lock(r->lock);
    while ((k = missing(r)) < r->n) {
        const double now = nb_clock_s();
        if (!failed && now >= until) {
            char why[96];
            (void)snprintf(why, sizeof why, "no sign of it for %g seconds, at the end of a step",
                           nb_comm_limit(c));
            nb_comm_fail(c, k, why);
        }
        if (!failed && nb_comm_check(c, NULL) != NB_OK) {
            failed = true;
            until = now + GRACE_MS * 1e-3;
        }
        r->stuck = failed && now >= until;
        if (r->stuck) break;
        nb_cond_wait_for(r->done, r->lock, GRACE_MS / 10);
    }
    nb_mutex_unlock(r->lock);
}

nb_status nb_ranks_run(nb_ranks *r, const nb_rank_job *job, nb_error *err)
{
    nb_rank_seat *s = &r->seat[0];
    if (r->apart) NB_TRY(nb_remote_tell(r, job, err));
    if (r->n == 1) {
        if (job->chunk) return nb_rank_step(s->rank, job->chunk, job->n, job->bad, err);
        if (job->draw) return nb_rank_sample(s->rank, job->tok, job->draw, job->n, job->id, err);
        return nb_rank_logits(s->rank, job->tok, job->n, job->logits, err);
    }
    if (r->stuck) return nb_comm_check(s->comm, err);
    nb_mutex_lock(r->lock);
    r->job = *job;
    r->n_job++;
    nb_cond_broadcast(r->wake);
    nb_mutex_unlock(r->lock);
    s->st = do_job(s, job, job->bad);
    await_others(r);
    if (r->stuck) return nb_comm_check(s->comm, err);
    const nb_rank_seat *worst = NULL; /* a value that is not finite ends one request, anything else the engine */
    for (size_t k = 0; k < r->n; k++)
        if (r->seat[k].st != NB_OK && (!worst || worst->st == NB_ERR_NONFINITE)) worst = &r->seat[k];
    if (!worst) return NB_OK;
    return nb_fail(err, worst->st, "%s", worst->err.msg[0] ? worst->err.msg : nb_status_text(worst->st));
}

/* ---- life ---- */

/* Ends in groups: of all where there is one group, none where each has one rank. */
static nb_status make_groups(nb_ranks *r, size_t n_group, nb_error *err)
{
    for (size_t k = 0; r->n_tensor > 1 && k < r->n; k++) {
        nb_rank_seat *s = &r->seat[k];
        if (n_group == 1)
            s->tensor = s->comm;
        else
            NB_TRY(nb_comm_split(s->comm, n_group, &s->tensor, err));
    }
    return NB_OK;
}

nb_status nb_ranks_create(nb_ranks *r, size_t n_group, size_t n_tensor, size_t n_thread, nb_dev **dev0,
                          nb_error *err)
{
    nb_comm *comm[NB_ENGINE_MAX_RANK] = { 0 };
    const size_t n = n_group * n_tensor;
    r->n = n;
    r->n_tensor = n_tensor;
    NB_TRY(nb_dev_create_host(n_thread, dev0, err));
    r->seat[0].dev = *dev0;
    if (n == 1) return NB_OK;
    if (nb_mutex_create(&r->lock) != NB_OK || nb_cond_create(&r->wake) != NB_OK ||
        nb_cond_create(&r->done) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for a lock");
    const bool spin = n * nb_dev_n_worker(*dev0) <= nb_os_n_core();
    NB_TRY(nb_comm_create(n, LIMIT_S, spin, comm, err));
    for (size_t k = 0; k < n; k++) {
        nb_rank_seat *s = &r->seat[k];
        s->all = r;
        s->k = k;
        s->comm = comm[k];
    }
    NB_TRY(make_groups(r, n_group, err));
    for (size_t k = 1; k < n; k++) NB_TRY(nb_dev_create_host(n_thread, &r->seat[k].dev, err));
    return NB_OK;
}

nb_status nb_ranks_bind(nb_ranks *r, const char *affinity, nb_error *err)
{
    for (size_t k = 0; k < r->n; k++)
        NB_TRY(nb_dev_bind_part(r->seat[k].dev, affinity, k, r->n, err));
    return NB_OK;
}

nb_status nb_ranks_start(nb_ranks *r, nb_error *err)
{
    for (size_t k = 1; k < r->n; k++)
        NB_TRY(nb_thread_create(seat_main, &r->seat[k], &r->seat[k].thread, err));
    return NB_OK;
}

double nb_ranks_limit_s(void)
{
    return LIMIT_S;
}

void nb_ranks_stop(nb_ranks *r)
{
    nb_remote_end(r, NULL);
    if (!r->lock) return;
    nb_mutex_lock(r->lock);
    r->stop = true;
    if (r->wake) nb_cond_broadcast(r->wake);
    nb_mutex_unlock(r->lock);
    for (size_t k = 1; k < r->n; k++) {
        nb_thread_join(r->seat[k].thread);
        r->seat[k].thread = NULL;
    }
}

void nb_ranks_deinit(nb_ranks *r)
{
    for (size_t k = 0; k < r->n; k++) {
        if (r->seat[k].tensor != r->seat[k].comm) nb_comm_destroy(r->seat[k].tensor);
        nb_comm_destroy(r->seat[k].comm);
    }
    for (size_t k = 1; k < r->n; k++) nb_dev_destroy(r->seat[k].dev);
    free(r->message);
    nb_mutex_destroy(r->lock);
    nb_cond_destroy(r->wake);
    nb_cond_destroy(r->done);
    memset(r, 0, sizeof *r);
}
