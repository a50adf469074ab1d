/* http.h - GET requests to the hub, with its redirects, limits and waits. */
#ifndef NB_HUB_HTTP_H
#define NB_HUB_HTTP_H
#include <stdatomic.h>
#include <stdint.h>

#include "base/str.h"

/* The same for all requests; strings are borrowed.  note is called by any thread. */
typedef struct nb_hub_net {
    const char *endpoint; /* https://huggingface.co, without '/' at the end */
    const char *token;    /* or NULL; goes to the endpoint's own scheme, host and port only */
    const char *ca_file;  /* certificates, or NULL: the system's */
    const char *agent;    /* User-Agent */
    unsigned timeout_s;   /* to connect, and without a byte */
    const atomic_bool *stop; /* set: requests and waits end with NB_ERR_CANCELLED */
    void (*note)(void *ctx, const char *line);
    void *note_ctx;
} nb_hub_net;

enum { NB_HUB_URL_BYTES = 4096 };

/* What the last server of a chain of redirects said. */
typedef struct nb_hub_answer {
    int status;
    bool from_endpoint;   /* it was the endpoint itself */
    uint64_t n_bytes;     /* Content-Length; UINT64_MAX: unknown */
    uint64_t from, total; /* Content-Range of a 206; UINT64_MAX: unknown */
    unsigned wait_s;      /* it asks to wait so long; 0: it does not */
    char host[256];
    char next[NB_HUB_URL_BYTES]; /* Link: rel=next, or "" */
    char code[64], message[256]; /* X-Error-Code, X-Error-Message, or "" */
} nb_hub_answer;

/* Takes bytes of a body of status 200 or 206; false ends the transfer. */
typedef bool nb_hub_sink(void *ctx, const nb_hub_answer *a, const char *p, size_t n);

typedef struct nb_hub_ask {
    uint64_t from;        /* > 0: from this byte on (the server may ignore it) */
    const char *if_range; /* the endpoint's ETag without quotes: only if it is still this file */
    unsigned most_s;      /* 0, or what the whole request may take */
    nb_hub_sink *sink;
    void *ctx;
} nb_hub_ask;

/* One handle per thread.  nb_hub_http_start once before the first, in one thread. */
typedef struct nb_hub_http nb_hub_http;
nb_status nb_hub_http_start(nb_error *err);
nb_status nb_hub_http_create(const nb_hub_net *net, nb_hub_http **out, nb_error *err);
void nb_hub_http_destroy(nb_hub_http *h);

/* NB_OK: a server answered, *a says what, and the sink has seen the body or ended it.
 * NB_ERR_IO: no answer, or it broke off: worth another try.  NB_ERR_UNSUPPORTED: a redirect or a
 * certificate that is refused.  NB_ERR_CANCELLED. */
nb_status nb_hub_get(nb_hub_http *h, const char *url, const nb_hub_ask *ask, nb_hub_answer *a,
                     nb_error *err);

/* How patient a caller has been with one thing; zero-initialise, and again after progress. */
typedef struct nb_hub_patience {
    unsigned n_try;
} nb_hub_patience;
/* After nb_hub_get of `what`: true when it failed in a way that another try may mend, after the wait
 * that the server asked for or a growing one. */
bool nb_hub_again(nb_hub_http *h, nb_hub_patience *p, const char *what, nb_status st,
                  const nb_hub_answer *a, const nb_error *why);
bool nb_hub_stopped(const nb_hub_net *net);

/* A JSON answer into *out, with tries; NB_OK with a->status other than 200 for what the server
 * refuses.  what: the repository, for error lines. */
nb_status nb_hub_get_json(nb_hub_http *h, const char *what, const char *url, nb_buf *out,
                          nb_hub_answer *a, nb_error *err);
/* The line for an answer that is no success; repo and revision as asked for. */
nb_status nb_hub_refusal(const nb_hub_net *net, const char *repo, const char *revision,
                         const nb_hub_answer *a, nb_error *err);
#endif
