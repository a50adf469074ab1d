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
    const char *api_key_file; /* more keys: one per line, empty lines and those with # in front
                                 ignored; nb_serve_reload reads it again */
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
    const char *override_generation_config; /* [none] a JSON object whose members count more */
    const char *chat_template_kwargs; /* [none] a JSON object: defaults of that field */
    const char *chat_content_format;  /* [auto] string, openai: see chat_body.h */
    uint64_t seed;         /* of requests without one */
    bool force_include_usage, tokens_as_token_ids;
    bool hide_unused_tools; /* tools are not shown to the template with tool_choice "none" */
    bool dev_endpoints;    /* [off] /api/check; without keys /reset_prefix_cache for all clients,
                              not only for those on this machine */
    bool no_page;          /* do not serve the page at / */
    bool priority_scheduling; /* the engine's policy: a priority is refused otherwise */
    struct nb_serve_log *log; /* open until after nb_serve_destroy */
    bool no_log_requests;
} nb_serve_options;

/* ---- the log: lines on standard error or in a file, which never hold up whoever writes them ---- */

typedef enum nb_log_level { NB_LOG_INFO, NB_LOG_WARN, NB_LOG_ERROR } nb_log_level;
typedef struct nb_serve_log nb_serve_log;
typedef struct nb_serve_log_options {
    const char *file;           /* NULL: standard error */
    bool json;                  /* else text */
    const char *journal_stream; /* JOURNAL_STREAM of the environment: where that is standard error,
                                   lines get the journal's prefixes and no time */
} nb_serve_log_options;

/* NB_ERR_IO: the file cannot be opened. */
nb_status nb_serve_log_open(const nb_serve_log_options *o, nb_serve_log **out, nb_error *err);
void nb_serve_log_close(nb_serve_log *l); /* writes what is left, for at most a second */
/* What an engine has to say (nb_engine_options.on_news), as a line.  Any thread; never waits. */
void nb_serve_news(void *log, bool failed, const char *line);
/* One line.  From one thread, and not from the one that serves: it waits for a moment until the line
 * is written, so that it keeps its place among other lines on standard error. */
void nb_serve_note(nb_serve_log *l, nb_log_level level, const char *event, const char *message);

/* ---- the server ---- */

/* ---- the fields of requests (fields.c) ---- */

typedef enum nb_field_kind {
    NB_FIELD_OBEYED,
    NB_FIELD_HARMLESS, /* ignored: it cannot change the answer */
    NB_FIELD_WARNED,   /* ignored, and the log says so once */
    NB_FIELD_REFUSED   /* 400, unless its value asks for nothing */
} nb_field_kind;

typedef struct nb_serve_field {
    const char *name, *note; /* note may be "" */
    nb_field_kind kind;
    nb_field_kind unless_shown; /* not OBEYED: what it is where the chat template does not take it */
    bool chat, completions, messages, responses; /* the requests that have it */
} nb_serve_field;

/* Field i of the table; false behind the last. */
bool nb_serve_field_at(size_t i, nb_serve_field *out);

typedef struct nb_serve nb_serve;

/* What nb_serve_create would refuse whatever the engine: the address, TLS files, the model's
 * generation_config.json.  Binds for a moment. */
nb_status nb_serve_check(const nb_serve_options *o, nb_error *err);
/* Binds; the engine is borrowed and must outlive the server. */
nb_status nb_serve_create(const nb_serve_options *o, nb_engine *e, nb_serve **out, nb_error *err);
uint16_t nb_serve_port(const nb_serve *s);
/* Serves on the calling thread until nb_serve_stop. */
nb_status nb_serve_run(nb_serve *s, nb_error *err);
/* Any thread, and signal handlers: drains; a second call ends it.  again: what a user does for that,
 * "press Ctrl-C again", as text that stays; the log shows it while requests are finished. */
void nb_serve_stop(nb_serve *s, const char *again);
/* Any thread: soon the API keys of api_key_file, the TLS files and the log file are read or opened
 * again.  What cannot be used leaves what there was in place, with an error in the log. */
void nb_serve_reload(nb_serve *s);
/* Any thread: the log file is opened again, after a rotation has moved it. */
void nb_serve_log_reopen(nb_serve_log *l);
void nb_serve_destroy(nb_serve *s);

#endif
