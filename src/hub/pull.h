/* pull.h - downloads a repository of the hub into the local hub cache. */
#ifndef NB_HUB_PULL_H
#define NB_HUB_PULL_H
#include "hub/http.h"
#include "hub/list.h"
#include "load/hub.h"

/* Called by one thread at a time, though not always the same; net.note too.  Any may be NULL. */
typedef struct nb_hub_watch {
    void (*file)(void *ctx, const nb_hub_file *f, size_t n_done, size_t n_file); /* it is there now */
    void (*progress)(void *ctx, uint64_t done, uint64_t total); /* bytes; some ten times a second */
    void *ctx;
} nb_hub_watch;

typedef struct nb_hub_pull_options {
    nb_hub_id id;
    const char *cache;
    nb_hub_globs include, exclude; /* nb_hub_list_select */
    size_t n_job;                  /* files at a time */
    nb_hub_net net;                /* its stop interrupts */
    nb_hub_watch watch;
} nb_hub_pull_options;

/* What a pull is about. Zero-initialise, deinit in any case. */
typedef struct nb_hub_plan {
    char commit[65];
    nb_hub_list list;    /* the chosen files; there: in the cache already */
    uint64_t n_todo_bytes; /* to download; what was begun is not counted */
    uint64_t n_free_bytes; /* where the cache is */
    nb_buf snapshot;     /* the folder */
} nb_hub_plan;
void nb_hub_plan_deinit(nb_hub_plan *p);

/* Asks the hub for the commit and its files, whatever is in the cache.  *l is sorted. */
nb_status nb_hub_list_files(const nb_hub_net *net, const nb_hub_id *id, char commit[65],
                            nb_hub_list *l, nb_error *err);
/* The same, chooses files, looks what is there; writes nothing.  NB_ERR_NOT_FOUND: no file is
 * chosen, or no weights among the usual ones. */
nb_status nb_hub_plan_make(const nb_hub_pull_options *o, nb_hub_plan *out, nb_error *err);
/* Downloads what is not there, checks and links it, then points the revision at the commit.  After
 * an error what was downloaded is kept, and the same call goes on with it. */
nb_status nb_hub_pull(const nb_hub_pull_options *o, nb_hub_plan *p, nb_error *err);

#endif
