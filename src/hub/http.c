/* http.c - see http.h.
 *
 * Redirects are followed here, not by libcurl: each hop decides anew whether it gets the token, and
 * an https endpoint is never left for plain http. */
#include "hub/http.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "load/json.h"

enum {
    MAX_HOPS = 10,
    MAX_TRIES = 5,
    FIRST_WAIT_MS = 500,
    LONGEST_WAIT_S = 300,
    STEP_MS = 100,
    REFUSAL_MAX_BYTES = 64 << 10, /* of a body that nobody reads */
    JSON_MAX_BYTES = 64 << 20,
    JSON_MOST_S = 300
};

struct nb_hub_http {
    CURL *curl;
    const nb_hub_net *net;
    char error[CURL_ERROR_SIZE];
};

/* One request of a chain. */
typedef struct hop {
    const nb_hub_http *h;
    const nb_hub_ask *ask;
    nb_hub_answer *a;
    size_t n_skipped;
    bool ended, too_long; /* by the sink; by REFUSAL_MAX_BYTES */
} hop;

bool nb_hub_stopped(const nb_hub_net *net)
{
    return net->stop && atomic_load(net->stop);
}

nb_status nb_hub_http_start(nb_error *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) return NB_OK;
    return nb_fail(err, NB_ERR_INTERNAL, "libcurl cannot be used");
}

nb_status nb_hub_http_create(const nb_hub_net *net, nb_hub_http **out, nb_error *err)
{
    nb_hub_http *h = calloc(1, sizeof *h);
    if (h) h->curl = curl_easy_init();
    if (!h || !h->curl) {
        free(h);
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for a connection");
    }
    h->net = net;
    *out = h;
    return NB_OK;
}

void nb_hub_http_destroy(nb_hub_http *h)
{
    if (!h) return;
    curl_easy_cleanup(h->curl);
    free(h);
}

/* ---- addresses -------------------------------------------------------------- */

typedef struct origin {
    char scheme[16], host[256], port[8];
} origin;

static bool url_part(CURLU *u, CURLUPart part, unsigned flags, char *out, size_t n_bytes)
{
    char *s = NULL;
    const bool ok = curl_url_get(u, part, &s, flags) == CURLUE_OK && strlen(s) < n_bytes;
    if (ok) memcpy(out, s, strlen(s) + 1);
    curl_free(s);
    return ok;
}

/* false for what is no http or https address. */
static bool parse_origin(const char *url, origin *o)
{
    CURLU *u = curl_url();
    const bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
                    url_part(u, CURLUPART_SCHEME, 0, o->scheme, sizeof o->scheme) &&
                    url_part(u, CURLUPART_HOST, 0, o->host, sizeof o->host) &&
                    url_part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, o->port, sizeof o->port) &&
                    (strcmp(o->scheme, "http") == 0 || strcmp(o->scheme, "https") == 0);
    curl_url_cleanup(u);
    return ok;
}

static bool same_origin(const origin *a, const origin *b)
{
    return strcmp(a->scheme, b->scheme) == 0 && strcasecmp(a->host, b->host) == 0 &&
           strcmp(a->port, b->port) == 0;
}

/* ---- what comes back ---------------------------------------------------------- */

static void take_text(char *out, size_t n_bytes, nb_str value)
{
    const size_t n = value.n_bytes < n_bytes ? value.n_bytes : n_bytes - 1;
    memcpy(out, value.p, n);
    out[n] = 0;
}

static void take_range(nb_hub_answer *a, const char *value)
{
    uint64_t from, to, total;
    if (sscanf(value, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &from, &to, &total) == 3) {
        a->from = from;
        a->total = total;
    } else if (sscanf(value, "bytes %" SCNu64 "-", &from) == 1) {
        a->from = from;
    }
}

/* "api";r=0;t=55: nothing is left, and in 55 seconds there will be. */
static void take_rate_limit(nb_hub_answer *a, const char *value)
{
    unsigned left = 1, wait_s = 0;
    const char *r = strstr(value, "r="), *t = strstr(value, "t=");
    if (r && t && sscanf(r, "r=%6u", &left) == 1 && sscanf(t, "t=%6u", &wait_s) == 1 && left == 0)
        a->wait_s = wait_s;
}

static void reset_answer(nb_hub_answer *a)
{
    a->status = 0;
    a->n_bytes = a->from = a->total = UINT64_MAX;
    a->wait_s = 0;
    a->next[0] = a->code[0] = a->message[0] = 0;
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
    nb_hub_answer *a = ((hop *)ctx)->a;
    char line[NB_HUB_URL_BYTES + 64];
    (void)size; /* 1 */
    take_text(line, sizeof line, (nb_str){ p, n });
    line[strcspn(line, "\r\n")] = 0;
    if (strncmp(line, "HTTP/", 5) == 0) { /* of an interim answer, or the next */
        reset_answer(a);
        (void)sscanf(line, "HTTP/%*s %3d", &a->status);
        return n;
    }
    char *value = strchr(line, ':');
    if (!value) return n;
    *value++ = 0;
    value += strspn(value, " \t");
    if (strcasecmp(line, "content-length") == 0) (void)sscanf(value, "%" SCNu64, &a->n_bytes);
    if (strcasecmp(line, "content-range") == 0) take_range(a, value);
    if (strcasecmp(line, "ratelimit") == 0) take_rate_limit(a, value);
    if (strcasecmp(line, "link") == 0) take_text(a->next, sizeof a->next, nb_str_c(value));
    if (strcasecmp(line, "x-error-code") == 0) take_text(a->code, sizeof a->code, nb_str_c(value));
    if (strcasecmp(line, "x-error-message") == 0)
        take_text(a->message, sizeof a->message, nb_str_c(value));
    return n;
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    hop *x = ctx;
    (void)size; /* 1 */
    if (x->a->status == 200 || x->a->status == 206) {
        x->ended = !x->ask->sink(x->ask->ctx, x->a, p, n);
        return x->ended ? 0 : n;
    }
    x->n_skipped += n;
    x->too_long = x->n_skipped > REFUSAL_MAX_BYTES;
    return x->too_long ? 0 : n;
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    return nb_hub_stopped(((const nb_hub_http *)ctx)->net);
}

/* ---- one request --------------------------------------------------------------- */

static bool add_header(struct curl_slist **list, const char *fmt, ...) NB_PRINTF(2, 3);
static bool add_header(struct curl_slist **list, const char *fmt, ...)
{
    char line[4400];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    struct curl_slist *more =
        n > 0 && (size_t)n < sizeof line ? curl_slist_append(*list, line) : NULL;
    if (more) *list = more;
    return more != NULL;
}

static struct curl_slist *request_headers(const nb_hub_http *h, const nb_hub_ask *ask, bool own)
{
    struct curl_slist *list = NULL;
    bool ok = add_header(&list, "Accept-Encoding: identity");
    if (ok && own && h->net->token)
        ok = add_header(&list, "Authorization: Bearer %s", h->net->token);
    if (ok && ask->from) ok = add_header(&list, "Range: bytes=%" PRIu64 "-", ask->from);
    if (ok && ask->from && own && ask->if_range)
        ok = add_header(&list, "If-Range: \"%s\"", ask->if_range);
    if (ok) return list;
    curl_slist_free_all(list);
    return NULL;
}

static void set_options(nb_hub_http *h, const char *url, hop *x, struct curl_slist *headers)
{
    CURL *c = h->curl;
    curl_easy_reset(c); /* keeps its connections */
    (void)curl_easy_setopt(c, CURLOPT_URL, url);
    (void)curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(c, CURLOPT_USERAGENT, h->net->agent);
    (void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(c, CURLOPT_ERRORBUFFER, h->error);
    (void)curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)h->net->timeout_s);
    (void)curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)h->net->timeout_s);
    (void)curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)x->ask->most_s);
    (void)curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    (void)curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(c, CURLOPT_HEADERDATA, x);
    (void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
    (void)curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(c, CURLOPT_XFERINFODATA, h);
    if (h->net->ca_file) (void)curl_easy_setopt(c, CURLOPT_CAINFO, h->net->ca_file);
}

/* What libcurl says of a request that had no whole answer. */
static nb_status transport_error(const nb_hub_http *h, const hop *x, CURLcode code, nb_error *err)
{
    const char *what = h->error[0] ? h->error : curl_easy_strerror(code);
    if (nb_hub_stopped(h->net)) return nb_fail(err, NB_ERR_CANCELLED, "interrupted");
    if (x->ended || (x->too_long && x->a->status)) return NB_OK;
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: its certificate is refused: %s", x->a->host,
                       what);
    return nb_fail(err, NB_ERR_IO, "%s: %s", x->a->host, what);
}

static nb_status one_request(nb_hub_http *h, const char *url, hop *x, nb_error *err)
{
    struct curl_slist *headers = request_headers(h, x->ask, x->a->from_endpoint);
    if (!headers) return nb_fail(err, NB_ERR_NOMEM, "out of memory for a request");
    reset_answer(x->a);
    h->error[0] = 0;
    set_options(h, url, x, headers);
    const CURLcode code = curl_easy_perform(h->curl);
    curl_slist_free_all(headers);
    if (code != CURLE_OK) return transport_error(h, x, code, err);
    if (x->a->status == 429 || x->a->status == 503) { /* seconds, or a date */
        curl_off_t s = 0;
        (void)curl_easy_getinfo(h->curl, CURLINFO_RETRY_AFTER, &s);
        if (s > 0) x->a->wait_s = s < UINT_MAX ? (unsigned)s : UINT_MAX;
    }
    return NB_OK;
}

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Where the answer leads, into url; "" when it leads nowhere. */
static void next_hop(nb_hub_http *h, char url[NB_HUB_URL_BYTES])
{
    char *to = NULL;
    (void)curl_easy_getinfo(h->curl, CURLINFO_REDIRECT_URL, &to);
    if (!to || strlen(to) >= NB_HUB_URL_BYTES) to = NULL;
    memcpy(url, to ? to : "", to ? strlen(to) + 1 : 1);
}

nb_status nb_hub_get(nb_hub_http *h, const char *url, const nb_hub_ask *ask, nb_hub_answer *a,
                     nb_error *err)
{
    char at[NB_HUB_URL_BYTES];
    origin endpoint, o;
    if (strlen(url) >= sizeof at || !parse_origin(h->net->endpoint, &endpoint))
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%.200s: no http or https address", url);
    memcpy(at, url, strlen(url) + 1);
    for (int i = 0; i <= MAX_HOPS; i++) {
        hop x = { .h = h, .ask = ask, .a = a };
        if (!parse_origin(at, &o))
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: redirects to what is no http or https address", endpoint.host);
        if (strcmp(endpoint.scheme, "https") == 0 && strcmp(o.scheme, "https") != 0)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "%s: redirects to %s without encryption (http), which is refused",
                           endpoint.host, o.host);
        a->from_endpoint = same_origin(&o, &endpoint);
        (void)snprintf(a->host, sizeof a->host, "%s", o.host);
        NB_TRY(one_request(h, at, &x, err));
        if (!is_redirect(a->status)) return NB_OK;
        next_hop(h, at);
        if (!at[0])
            return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: HTTP %d without an address to go to",
                           a->host, a->status);
    }
    return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: more than %d redirects", endpoint.host, MAX_HOPS);
}

/* ---- patience ----------------------------------------------------------------- */

static bool is_passing(int status)
{
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
           status == 504;
}

static void wait_ms(const nb_hub_net *net, unsigned ms)
{
    const struct timespec step = { 0, STEP_MS * 1000000L };
    for (unsigned t = 0; t < ms && !nb_hub_stopped(net); t += STEP_MS) (void)nanosleep(&step, NULL);
}

bool nb_hub_again(nb_hub_http *h, nb_hub_patience *p, const char *what, nb_status st,
                  const nb_hub_answer *a, const nb_error *why)
{
    char line[600], said[400];
    if (st != NB_ERR_IO && !(st == NB_OK && is_passing(a->status))) return false;
    if (++p->n_try >= MAX_TRIES || nb_hub_stopped(h->net)) return false;
    const unsigned asked_s = a->wait_s < LONGEST_WAIT_S ? a->wait_s : LONGEST_WAIT_S;
    const unsigned ms =
        st == NB_OK && asked_s ? asked_s * 1000u : (unsigned)FIRST_WAIT_MS << (p->n_try - 1);
    if (st == NB_OK)
        (void)snprintf(said, sizeof said, "%s answers HTTP %d", a->host, a->status);
    else
        (void)snprintf(said, sizeof said, "%.399s", why->msg);
    (void)snprintf(line, sizeof line, "%s: %s; trying again in %g s", nb_show_c(what).s, said,
                   ms / 1000.0);
    if (h->net->note) h->net->note(h->net->note_ctx, line);
    wait_ms(h->net, ms);
    return !nb_hub_stopped(h->net);
}

/* ---- JSON ------------------------------------------------------------------------ */

typedef struct collected {
    nb_buf *out;
    nb_status st; /* NB_ERR_LIMIT, NB_ERR_NOMEM: it was too much */
} collected;

static bool collect(void *ctx, const nb_hub_answer *a, const char *p, size_t n)
{
    collected *c = ctx;
    (void)a;
    c->st = nb_buf_add(c->out, p, n);
    return c->st == NB_OK;
}

nb_status nb_hub_get_json(nb_hub_http *h, const char *what, const char *url, nb_buf *out,
                          nb_hub_answer *a, nb_error *err)
{
    nb_hub_patience patience = { 0 };
    nb_error why;
    nb_status st;
    do {
        collected c = { out, NB_OK };
        const nb_hub_ask ask = { .most_s = JSON_MOST_S, .sink = collect, .ctx = &c };
        nb_buf_deinit(out);
        out->limit_bytes = JSON_MAX_BYTES;
        why = (nb_error){ 0 };
        st = nb_hub_get(h, url, &ask, a, &why);
        if (c.st != NB_OK)
            return nb_fail(err, c.st, "%s: %s sends more than %d MiB", what, a->host,
                           JSON_MAX_BYTES >> 20);
    } while (nb_hub_again(h, &patience, what, st, a, &why));
    if (nb_hub_stopped(h->net)) return nb_fail(err, NB_ERR_CANCELLED, "interrupted");
    return st == NB_OK ? NB_OK : nb_fail(err, st, "%s: %s", what, why.msg);
}

/* ---- refusals ---------------------------------------------------------------------- */

nb_status nb_hub_refusal(const nb_hub_net *net, const char *repo, const char *revision,
                         const nb_hub_answer *a, nb_error *err)
{
    const nb_shown said = nb_show_c(a->message);
    const char *colon = said.s[0] ? ": " : "";
    const bool own = a->from_endpoint;
    if (own && strcmp(a->code, "RevisionNotFound") == 0)
        return nb_fail(err, NB_ERR_NOT_FOUND, "%s has no revision %s at %s", repo, revision,
                       net->endpoint);
    const bool gated = strcmp(a->code, "GatedRepo") == 0;
    if (own && (gated || a->status == 403))
        return nb_fail(err, NB_ERR_NOT_FOUND,
                       "%s %s (HTTP %d%s%s): %saccept its licence at %s/%s, and set HF_TOKEN to a "
                       "token that may read it",
                       repo, gated ? "is gated" : "may not be read", a->status, colon, said.s,
                       gated ? "" : "if it is gated, ", net->endpoint, repo);
    if (own && a->status == 401 && net->token && !a->code[0])
        return nb_fail(err, NB_ERR_NOT_FOUND,
                       "%s: %s refuses the token (HTTP 401%s%s): set HF_TOKEN to one that is valid",
                       repo, net->endpoint, colon, said.s);
    if (own && strcmp(a->code, "EntryNotFound") != 0 && (a->status == 401 || a->status == 404))
        return nb_fail(
            err, NB_ERR_NOT_FOUND,
            "%s is not at %s (HTTP %d%s%s): check the id; if it is private or gated, set "
            "HF_TOKEN to a token that may read it%s",
            repo, net->endpoint, a->status, colon, said.s,
            net->token ? " (the token that was sent may not)" : "");
    return nb_fail(err, NB_ERR_IO, "%s: %s answers HTTP %d%s%s", repo, a->host, a->status, colon,
                   said.s);
}
