/* pull_internal.h - shared by pull.c and fetch.c. */
#ifndef NB_HUB_PULL_INTERNAL_H
#define NB_HUB_PULL_INTERNAL_H
#include "hub/crew.h"
#include "hub/pull.h"
#include "hub/store.h"

typedef struct nb_hub_run {
    const nb_hub_pull_options *o;
    nb_hub_plan *plan;
    nb_hub_store store;
    nb_hub_crew crew;
    nb_hub_net net; /* of the workers: stops with the crew */
    nb_hub_http **http; /* [n_worker] */
    _Atomic uint64_t n_done_bytes; /* of plan->list.n_bytes */
    size_t n_done_file; /* crew.lock */
} nb_hub_run;

/* The file is in the cache and linked afterwards. */
nb_status nb_hub_fetch(nb_hub_run *r, nb_hub_http *h, const nb_hub_file *f, nb_error *err);

#endif
