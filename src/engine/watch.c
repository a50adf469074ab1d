/* watch.c - see watch.h.
 *
 * A page that cannot be read is zeros by the time it is computed with (os/map_guard.h), so every step
 * asks whether there was one before its results count.  A file that is overwritten gives no sign; it is
 * looked at once a second.  Copied and generated weights are in no file any more. */
#include "engine/watch.h"

#include "os/map_guard.h"

static const double EVERY_S = 1;

void nb_watch_start(nb_weight_watch *w, nb_source *s)
{
    *w = (nb_weight_watch){ .source = s,
                            .on = nb_source_watch(s),
                            .n_fault = nb_map_guard_n_fault() };
}

nb_status nb_watch_reads(nb_weight_watch *w, nb_error *err)
{
    const uint64_t n = nb_map_guard_n_fault();
    if (!w->on || n == w->n_fault) return NB_OK;
    w->n_fault = n; /* of all engines of the process: perhaps not ours */
    return nb_source_check_reads(w->source, err);
}

nb_status nb_watch_files(nb_weight_watch *w, double now, const char **replaced, nb_error *err)
{
    *replaced = NULL;
    if (!w->on || now < w->t_next) return NB_OK;
    w->t_next = now + EVERY_S;
    NB_TRY(nb_source_check(w->source, w->told ? NULL : replaced, err));
    w->told = w->told || *replaced;
    return NB_OK;
}
