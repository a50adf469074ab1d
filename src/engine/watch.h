/* watch.h - whether the mapped weights are still those that were loaded. */
#ifndef NB_ENGINE_WATCH_H
#define NB_ENGINE_WATCH_H
#include "load/source.h"
#include "nibble/nibble.h"

typedef struct nb_news { /* who hears of it */
    nb_news_fn *fn;
    void *ctx;
} nb_news;

typedef struct nb_weight_watch {
    nb_source *source;
    uint64_t n_fault; /* of the process, when it was last looked at */
    double t_next;
    bool on, told; /* told: that a file was replaced */
} nb_weight_watch;

/* When the weights are loaded. */
void nb_watch_start(nb_weight_watch *w, nb_source *s);
/* After weights were read: NB_ERR_IO when some could not be.  No system call. */
nb_status nb_watch_reads(nb_weight_watch *w, nb_error *err);
/* Looks at the files once a second.  NB_ERR_IO when one was changed in place; *replaced is the name of a
 * file that was replaced, which does no harm, the first time that one is, else NULL. */
nb_status nb_watch_files(nb_weight_watch *w, double now, const char **replaced, nb_error *err);

#endif
