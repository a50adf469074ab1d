/* opts_hub.h - the options of `nibble pull` and `nibble verify`: opts_table_hub.c. */
#ifndef NB_APPS_OPTS_HUB_H
#define NB_APPS_OPTS_HUB_H
#include "opts_serve.h"

typedef struct hub_opts {
    opt_strs include, exclude;
    const char *cache_dir, *sums, *online; /* NULL: not given */
    size_t n_job;
    bool dry_run;
} hub_opts;

#endif
