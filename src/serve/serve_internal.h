/* serve_internal.h - what the files of src/serve share: one nb_serve, owned by the loop's
 * thread. */
#ifndef NB_SERVE_INTERNAL_H
#define NB_SERVE_INTERNAL_H
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "nibble/nibble.h"

#include "base/arena.h"
#include "serve/chat_body.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/parse_request.h"
#include "serve/serve.h"

struct nb_serve {
    nb_serve_options o; /* defaults filled in */
    _Atomic(const char *) again; /* of nb_serve_stop */
    nb_engine *engine;
    const nb_text *text; /* NULL: token ids only */
    nb_engine_info info;
    nb_http *http;
    nb_metrics *metrics;
    const char *name; /* first served name */
    nb_sampling sampling; /* defaults of a request: vLLM's, with generation_config.json's */
    struct nb_page *page; /* page_api.c: helper thread; NULL until first used, nb_page_stop */
    struct {          /* ops.c: a reset of the prefix cache under way */
        pthread_t thread;
        bool running;
        nb_http_ex *ex; /* NULL: its client has gone */
        nb_status st;
        size_t n_block;
    } reset;
    struct { /* ops_check.c: a walk through the engine's structures under way */
        pthread_t thread;
        bool running;
        nb_http_ex *ex; /* NULL: its client has gone */
        nb_status st;
        nb_error err;
    } check;
    int64_t created; /* seconds since 1970 */
    /* admission: requests (choices) admitted and not ended, prompt tokens not computed yet */
    size_t n_active, n_queued_tok;
    _Atomic(struct nb_event *) news; /* job.h: what the engine's thread has pushed, last first */
    struct { /* job_open.c: reads large bodies aside */
        pthread_t thread;
        pthread_mutex_t lock; /* of what follows */
        pthread_cond_t news;
        struct nb_job *todo, *todo_tail, *done;
        bool running, stop, trim; /* trim: large memory was freed */
    } prep;
    size_t n_preparing;      /* jobs that are there */
    atomic_size_t n_pushing; /* engine's threads between their push and the wake-up */
    nb_chat_rules chat;        /* what the options change in chats    */
    nb_ask_limits lim;         /* of requests; lim.sampling: defaults */
    size_t default_max_tokens; /* of generation_config.json; 0: none  */
    size_t max_prompt_bytes;   /* a text of more cannot fit the context */
    uint64_t warned[4];        /* nb_ask.warned of all requests so far */
    bool warned_tools;         /* of nb_ask.skipped_tools */
    uint64_t n_unseeded;       /* requests without a seed so far      */
    char fingerprint[96];      /* system_fingerprint                  */
    char *own_name;            /* where no name was given             */
    const char *default_name[1];
    json_t *tokenizer_info;    /* tokenizer_config.json, or NULL      */
    nb_http_route *route;
    nb_arena mem; /* paths of routes */
};

#define NB_MODEL_PATH "/v1/models/" /* and a name */
enum { NB_MODEL_PATH_BYTES = sizeof NB_MODEL_PATH - 1 };

/* Handlers, one group per file; rows of the table of routes in serve.c. */
nb_http_fn nb_api_chat, nb_api_completions, nb_api_chat_render, nb_api_completions_render; /* openai */
nb_http_fn nb_api_responses;
nb_http_fn nb_api_messages, nb_api_count_tokens;                                /* anthropic  */
nb_http_fn nb_api_models, nb_api_model, nb_api_tokenize, nb_api_detokenize, nb_api_tokenizer_info; /* text   */
nb_http_fn nb_api_root, nb_api_health, nb_api_ping, nb_api_version, nb_api_load, nb_api_metrics,
    nb_api_reset_prefix_cache; /* operation, ops.c */
/* Before nb_http_destroy: waits for the helper thread of a reset. */
void nb_ops_stop(nb_serve *s);
nb_http_fn nb_api_check;         /* ops_check.c: /api/check, with dev_endpoints */
void nb_check_stop(nb_serve *s); /* as nb_ops_stop */
nb_http_fn nb_page_index, nb_page_asset;                                        /* the page   */
nb_http_fn nb_page_cache, nb_page_block, nb_page_config, nb_page_stats;         /* its data   */

/* ---- logs (log.c): one line each; never waits ---- */
/* key, value pairs of strings, ended by NULL: nb_log(s, NB_LOG_INFO, "request", "id", id, NULL).
 * The value of a key that begins with '#' (not printed) is a number. */
void nb_log(const nb_serve *s, nb_log_level level, const char *event, ...);
uint64_t nb_serve_log_dropped(nb_serve_log *l);

/* ---- reload.c ---- */
typedef struct nb_keys {
    const char **p; /* [n]: of the options and of api_key_file */
    size_t n, cap;
    nb_buf text; /* of the file */
} nb_keys;
/* One line names the file, and what is wrong with it. */
nb_status nb_keys_read(const nb_serve_options *o, nb_keys *out, nb_error *err);
void nb_keys_deinit(nb_keys *k);
nb_http_task_fn nb_reload; /* on the loop */

/* ---- errors (error.c) ---- */
/* OpenAI's object {"error":{message,type,param,code}}; type from the status as vLLM names it;
 * for paths under /v1/messages Anthropic's. param may be NULL. 503 adds Retry-After. */
void nb_reply_error(nb_http_ex *ex, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void nb_error_body(void *ctx, const nb_http_ex *ex, int status, const char *message, nb_buf *body);
/* HTTP status of an error of the engine. */
int nb_http_status_of(nb_status st);
void nb_reply_json(nb_http_ex *ex, int status, json_t *doc); /* takes over doc */

#endif
