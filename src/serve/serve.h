/* serve.h - the server: an engine behind HTTP. */
#ifndef NB_SERVE_SERVE_H
#define NB_SERVE_SERVE_H
#include "nibble/nibble.h"

/* Zero-initialise; zero means the default in brackets. Everything is borrowed until
 * nb_serve_destroy. */
typedef struct nb_serve_options {
    /* network: as in http.h */
    const char *host, *uds;
    uint16_t port; /* [8000] */
    bool any_port; /* the system chooses */
    const char *tls_cert, *tls_key, *tls_key_password, *tls_ca;
    const char *const *api_key;
    size_t n_api_key;
    const char *const *cors_origin;
    size_t n_cors_origin;
    size_t max_header_bytes, max_body_bytes, max_connections;
    double read_timeout_s, idle_timeout_s, write_timeout_s, drain_s;
    bool request_id_headers;
    /* models */
    const char *model;               /* path, for the model card's root   */
    const char *const *served_name;  /* [the last part of model] names that requests may give;
                                        the first is used in answers and as metrics label */
    size_t n_served_name;
    /* requests */
    size_t max_num_queued_reqs, max_num_queued_tokens; /* [0: no limit but the engine's] */
    size_t max_logprobs;   /* [20]     */
    size_t max_n;          /* [128]    choices of a request            */
    size_t max_stop;       /* [64]     stop strings                    */
    double request_timeout_s; /* [0: none] deadline of every request   */
    const char *generation_config; /* [auto] auto: the model's generation_config.json gives
                                      defaults of sampling; vllm: it does not; or a folder */
    uint64_t seed;         /* of requests without one */
    bool force_include_usage;
    bool dev_endpoints;    /* [off] /reset_prefix_cache is open to all: it is in any case to
                              clients on the loopback or with a key */
    bool no_page;          /* do not serve the page at / */
    bool priority_scheduling; /* the engine's policy: a priority is refused otherwise */
    /* logs */
    bool log_json;         /* else text */
    bool no_log_requests;
} nb_serve_options;

typedef struct nb_serve nb_serve;

/* Binds; the engine is borrowed and must outlive the server. */
nb_status nb_serve_create(const nb_serve_options *o, nb_engine *e, nb_serve **out, nb_error *err);
uint16_t nb_serve_port(const nb_serve *s);
/* Serves on the calling thread until nb_serve_stop. */
nb_status nb_serve_run(nb_serve *s, nb_error *err);
void nb_serve_stop(nb_serve *s); /* any thread, signal handlers: drains; a second call ends it */
void nb_serve_destroy(nb_serve *s);
/* A line for the log, in its format; before nb_serve_run. */
void nb_serve_note(const nb_serve *s, bool warning, const char *event, const char *message);

#endif
