/* serve_setup.h - from the options of `nibble serve` to those of the engine and the server. */
#ifndef NB_APPS_SERVE_SETUP_H
#define NB_APPS_SERVE_SETUP_H
#include "../options/opts.h"
#include "serve/serve.h"

/* Processes that compute a model together (serve_nodes.c); n 1: this one alone. */
typedef struct serve_nodes {
    size_t n, rank, port;
    const char *addr;
    char secret[1026];
} serve_nodes;

typedef struct serve_setup {
    nb_engine_options engine;
    nb_serve_options server;
    nb_memory_plan plan;
    nb_device_info device;
    serve_nodes nodes;
    char warning[256];              /* about options that have no effect on this device, or "" */
    opt_strs key, origin;           /* what server points at */
    char *override_config, *kwargs; /* JSON that server points at, or NULL */
    void **json;                    /* documents that origin points into */
    size_t n_json;
} serve_setup;

/* Everything that can be refused before weights are read, with one error line: CLI_USAGE where
 * the options are wrong, CLI_FAILED where model or machine cannot. Deinit in any case. */
int serve_setup_init(const opts *o, serve_setup *s);
void serve_setup_deinit(serve_setup *s);

/* Room for every connection; returns how many there is room for. */
size_t serve_raise_file_limit(size_t max_connections);

int serve_nodes_init(const opts *o, serve_nodes *n);
void serve_nodes_apply(const opts *o, const serve_nodes *n, nb_engine_options *e);

/* serve_budget.c: sets the engine's max_model_len and kv_cache_bytes. */
int serve_budget(const opts *o, const nb_memory_plan *p, nb_engine_options *e);
/* The engine sizes the pool itself on a GPU, once everything else is there. */
void serve_budget_gpu(const opts *o, const nb_memory_plan *p, nb_engine_options *e);

#endif
