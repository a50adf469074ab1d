/* rank_fault.c - nibble with a rank that fails when a test says so; part of nibble-forced.
 *
 * NB_RANK_FAULT names a file.  Once it is there, its two words say what which rank does wrong from the next step on:
 * "reports 1", "lost 1".  A rank that says nothing is then given up after a second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ranks.h"

__typeof__(nb_ranks_run) __real_nb_ranks_run, __wrap_nb_ranks_run;

static void read_fault(nb_ranks *r, const char *path)
{
    char what[16] = "";
    size_t rank = 0;
    FILE *f = fopen(path, "r");
    if (!f) return;
    const int n = fscanf(f, "%15s %zu", what, &rank);
    (void)fclose(f);
    if (n != 2) return; /* not written yet */
    nb_mutex_lock(r->lock);
    r->fault.rank = rank;
    r->fault.what = strcmp(what, "lost") ? NB_FAULT_REPORTS : NB_FAULT_LOST;
    nb_mutex_unlock(r->lock);
    nb_comm_set_limit(r->seat[0].comm, 1); /* between two steps */
}

nb_status __wrap_nb_ranks_run(nb_ranks *r, const nb_rank_job *job, nb_error *err)
{
    const char *path = getenv("NB_RANK_FAULT");
    if (path && r->n > 1 && !r->fault.what) read_fault(r, path);
    return __real_nb_ranks_run(r, job, err);
}
