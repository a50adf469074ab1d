/* http_guard.c - who may ask for what: routes, API keys, other origins.  http.h says why.
 *
 * Keys are compared by their SHA-256 and all of them always, so that the time tells neither
 * how much of a key was right, nor its length, nor which key it was. */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "serve/http_internal.h"

enum { MAX_ASKED_HEADERS = 1024 };

static nb_status hash_key(const char *text, unsigned char out[32], nb_error *err)
{
    const nb_str key = nb_str_c(text);
    if (key.n_bytes == 0) return nb_fail(err, NB_ERR_ARG, "an API key is empty");
    if (!nb_http_is_value(key) || strpbrk(key.p, " \t"))
        return nb_fail(err, NB_ERR_ARG,
                       "an API key has a character that no header can carry (blanks included)");
    if (EVP_Digest(key.p, key.n_bytes, out, NULL, EVP_sha256(), NULL) != 1)
        return nb_fail(err, NB_ERR_INTERNAL, "SHA-256 failed");
    return NB_OK;
}

nb_status nb_http_set_keys(nb_http *h, const char *const *key, size_t n, nb_error *err)
{
    unsigned char(*hash)[32] = calloc(n + 1, sizeof *hash);
    nb_status st = hash ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "out of memory for the API keys");
    for (size_t i = 0; st == NB_OK && i < n; i++) st = hash_key(key[i], hash[i], err);
    if (st != NB_OK) {
        free(hash);
        return st;
    }
    free(h->key_hash);
    h->key_hash = hash;
    h->n_key = n;
    return NB_OK;
}

bool nb_http_has_keys(const nb_http *h)
{
    return h->n_key > 0;
}

static bool is_key(const nb_http *h, nb_str key)
{
    unsigned char hash[32];
    int hits = 0;
    if (!key.p || EVP_Digest(key.p, key.n_bytes, hash, NULL, EVP_sha256(), NULL) != 1) return false;
    for (size_t i = 0; i < h->n_key; i++)
        hits += CRYPTO_memcmp(hash, h->key_hash[i], sizeof hash) == 0;
    return hits > 0;
}

static bool shows_key(const nb_http_ex *ex)
{
    const nb_http *h = ex->c->h;
    nb_str a = nb_http_header(ex, "authorization");
    const bool bearer = a.n_bytes > 7 && nb_http_same((nb_str){ a.p, 7 }, nb_str_c("bearer "));
    const nb_str token = { bearer ? a.p + 7 : NULL, bearer ? a.n_bytes - 7 : 0 };
    const bool one = is_key(h, token);
    const bool other = is_key(h, nb_http_header(ex, "x-api-key"));
    return one || other;
}

/* ---- origins ---- */

static nb_str origin_host(nb_str origin)
{
    for (size_t i = 0; i + 3 <= origin.n_bytes; i++)
        if (memcmp(origin.p + i, "://", 3) == 0)
            return (nb_str){ origin.p + i + 3, origin.n_bytes - i - 3 };
    return (nb_str){ "", 0 };
}

static bool any_origin(const nb_http *h)
{
    for (size_t i = 0; i < h->o.n_cors_origin; i++)
        if (strcmp(h->o.cors_origin[i], "*") == 0) return true;
    return false;
}

static bool is_allowed_origin(const nb_http *h, nb_str origin)
{
    if (any_origin(h)) return true;
    for (size_t i = 0; i < h->o.n_cors_origin; i++) {
        nb_str o = nb_str_c(h->o.cors_origin[i]);
        if (o.n_bytes && o.p[o.n_bytes - 1] == '/') o.n_bytes--; /* often written so */
        if (nb_http_same(o, origin)) return true;
    }
    return false;
}

static bool ends_with(nb_str s, const char *tail)
{
    const size_t n = strlen(tail);
    return s.n_bytes > n && nb_http_same((nb_str){ s.p + s.n_bytes - n, n }, nb_str_c(tail));
}

static bool is_ip_literal(nb_str host)
{
    if (memchr(host.p, ':', host.n_bytes)) return true;
    for (size_t i = 0; i < host.n_bytes; i++)
        if (host.p[i] != '.' && (host.p[i] < '0' || host.p[i] > '9')) return false;
    return true;
}

/* Can nobody on the Internet make this name point where he likes?  Addresses, names without a dot,
 * and the domains that are reserved for local use. */
static bool is_local_name(nb_str host)
{
    static const char *const reserved[] = { ".localhost", ".local", ".internal", ".home.arpa" };
    if (host.n_bytes == 0 || is_ip_literal(host) || !memchr(host.p, '.', host.n_bytes)) return true;
    for (size_t i = 0; i < NB_COUNT(reserved); i++)
        if (ends_with(host, reserved[i])) return true;
    return false;
}

/* Is the Host of a request what we were told to serve, or not to be had by others? */
static bool is_own_host(const nb_http_ex *ex)
{
    const nb_http *h = ex->c->h;
    nb_str host, other;
    if (ex->host.n_bytes == 0) return true; /* HTTP/1.0: not from a browser */
    if (!nb_http_split_host(ex->host, &host)) return false;
    if (host.n_bytes && host.p[host.n_bytes - 1] == '.') host.n_bytes--; /* absolute name */
    if (is_local_name(host) || nb_http_same(host, nb_str_c(h->o.host)) || any_origin(h))
        return true;
    for (size_t i = 0; i < h->o.n_cors_origin; i++) {
        nb_str o = origin_host(nb_str_c(h->o.cors_origin[i]));
        if (o.n_bytes && o.p[o.n_bytes - 1] == '/') o.n_bytes--;
        if (o.n_bytes && nb_http_split_host(o, &other) && nb_http_same(host, other)) return true;
    }
    return false;
}

bool nb_http_is_local(const nb_http_ex *ex)
{
    static const char *const by_proxies[] = { "forwarded",        "x-forwarded-for",
                                              "x-forwarded-host", "x-forwarded-proto",
                                              "x-real-ip",        "via" };
    nb_str host;
    if (!ex->c->local || !nb_http_split_host(ex->host, &host)) return false;
    for (size_t i = 0; i < NB_COUNT(by_proxies); i++)
        if (nb_http_header(ex, by_proxies[i]).p) return false;
    if (host.n_bytes && host.p[host.n_bytes - 1] == '.') host.n_bytes--;
    const bool v4 = host.n_bytes > 4 && memcmp(host.p, "127.", 4) == 0 && is_ip_literal(host);
    return v4 || nb_http_same(host, nb_str_c("localhost")) || nb_str_eqc(host, "::1") ||
           ends_with(host, ".localhost");
}

/* Is it sent by a browser for a page that is neither ours nor allowed? */
static bool is_foreign(const nb_http_ex *ex)
{
    const nb_str origin = nb_http_header(ex, "origin");
    const nb_str site = nb_http_header(ex, "sec-fetch-site");
    if (origin.p && is_allowed_origin(ex->c->h, origin)) return false;
    if (site.p) return !nb_str_eqc(site, "same-origin") && !nb_str_eqc(site, "none");
    if (!origin.p) return false;
    return !nb_http_same(origin_host(origin), ex->host);
}

/* ---- the answers' headers ---- */

bool nb_http_ex_cors_headers(nb_http_ex *ex, nb_buf *b)
{
    const nb_http *h = ex->c->h;
    if (h->o.n_cors_origin == 0) return true;
    const bool any = any_origin(h);
    const nb_str origin = nb_http_header(ex, "origin");
    if (!any && nb_buf_add_c(b, "Vary: Origin\r\n") != NB_OK) return false;
    if (!origin.p || !is_allowed_origin(h, origin)) return true;
    return nb_buf_add_c(b, "Access-Control-Allow-Origin: ") == NB_OK &&
           nb_buf_add_str(b, any ? nb_str_c("*") : origin) == NB_OK &&
           nb_buf_add_c(b, "\r\nAccess-Control-Expose-Headers: X-Request-Id, Retry-After\r\n") ==
               NB_OK;
}

/* Methods of a path: "GET, HEAD, OPTIONS"; the empty string where there is no such path. */
static bool list_methods(const nb_http *h, nb_str path, nb_buf *b)
{
    bool any = nb_str_eqc(path, "*"), ok = true;
    for (size_t i = 0; i < h->n_route && ok; i++) {
        const nb_http_route *r = &h->route[i];
        if (!nb_str_eqc(path, r->path)) continue;
        any = true;
        ok = nb_buf_printf(b, "%s%s, ", r->method, strcmp(r->method, "GET") == 0 ? ", HEAD" : "") ==
             NB_OK;
    }
    return ok && (!any || nb_buf_add_c(b, "OPTIONS") == NB_OK);
}

static bool is_header_list(nb_str s)
{
    for (size_t i = 0; i < s.n_bytes; i++)
        if (s.p[i] != ',' && s.p[i] != ' ' && !nb_http_is_token((nb_str){ s.p + i, 1 }))
            return false;
    return s.n_bytes > 0 && s.n_bytes <= MAX_ASKED_HEADERS;
}

/* 204 for OPTIONS, with what a preflight wants to know when its origin is allowed. */
static int answer_options(nb_http_ex *ex, const char *methods)
{
    const nb_http *h = ex->c->h;
    const nb_str origin = nb_http_header(ex, "origin");
    const nb_str asked = nb_http_header(ex, "access-control-request-headers");
    nb_status st = nb_buf_printf(&ex->extra, "Allow: %s\r\n", methods);
    if (h->o.n_cors_origin && origin.p && is_allowed_origin(h, origin) &&
        nb_http_header(ex, "access-control-request-method").p) {
        if (st == NB_OK)
            st = nb_buf_printf(&ex->extra,
                               "Access-Control-Allow-Methods: %s\r\nAccess-Control-Max-Age: 600\r\n"
                               "Access-Control-Allow-Headers: ",
                               methods);
        if (st == NB_OK)
            st = nb_buf_add_str(
                &ex->extra,
                is_header_list(asked) ? asked : nb_str_c("Authorization, Content-Type, X-Api-Key"));
        if (st == NB_OK) st = nb_buf_add_c(&ex->extra, "\r\n");
        /* A page on the Internet that asks for an address of a private network. */
        if (st == NB_OK && nb_http_header(ex, "access-control-request-private-network").p)
            st = nb_buf_add_c(&ex->extra, "Access-Control-Allow-Private-Network: true\r\n");
    }
    return st == NB_OK ? 204 : 500;
}

/* ---- routes ---- */

static bool is_method(const nb_http_ex *ex, const char *name)
{
    return nb_str_eqc(ex->method, name);
}

static const nb_http_route *find_route(const nb_http *h, nb_str path, nb_str method)
{
    for (size_t i = 0; i < h->n_route; i++)
        if (nb_str_eqc(path, h->route[i].path) && nb_str_eqc(method, h->route[i].method))
            return &h->route[i];
    return NULL;
}

static int route_it(nb_http_ex *ex, const char **why)
{
    static const char *const known[] = {
        "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"
    };
    const nb_http *h = ex->c->h;
    nb_buf methods = { 0 };
    bool is_known = false;
    for (size_t i = 0; i < NB_COUNT(known); i++) is_known = is_known || is_method(ex, known[i]);
    if (!is_known) {
        *why = "this method is not supported";
        return 501;
    }
    ex->route = find_route(h, ex->path, ex->method);
    if (!ex->route && ex->head_only) ex->route = find_route(h, ex->path, nb_str_c("GET"));
    if (ex->route) return 0;
    int status = 500;
    *why = "out of memory";
    if (!list_methods(h, ex->path, &methods)) {
        status = 500;
    } else if (methods.n_bytes == 0) {
        *why = "there is nothing at this path";
        status = 404;
    } else if (is_method(ex, "OPTIONS")) {
        status = answer_options(ex, methods.p);
    } else if (nb_buf_printf(&ex->extra, "Allow: %s\r\n", methods.p) == NB_OK) {
        *why = "the path is right, the method is not: the header Allow names those it has";
        status = 405;
    }
    nb_buf_deinit(&methods);
    return status;
}

int nb_http_guard_admit(nb_http_ex *ex, const char **why)
{
    const nb_http *h = ex->c->h;
    const bool keys = nb_http_has_keys(h);
    if (h->draining) {
        *why = "the server is shutting down";
        return 503;
    }
    if (!keys && h->loopback_only && !h->tls && !is_own_host(ex)) {
        *why =
            "this Host is not served here: a server on the loopback answers to localhost, to local "
            "names and to the one it is bound to; for others give it an API key, or allow their "
            "origin";
        return 403;
    }
    const int status = route_it(ex, why);
    if (status) return status;
    const bool safe = is_method(ex, "GET") || is_method(ex, "HEAD");
    if (!keys && !safe && is_foreign(ex)) {
        *why = "pages of this origin may not use this server; allow it with --allowed-origins, or "
               "give an API key";
        return 403;
    }
    if (!keys || ex->route->open || shows_key(ex)) return 0;
    *why = "this needs an API key: Authorization: Bearer KEY, or x-api-key: KEY";
    return nb_buf_add_c(&ex->extra, "WWW-Authenticate: Bearer realm=\"nibble\"\r\n") == NB_OK ? 401
                                                                                              : 500;
}

int nb_http_guard_coding(nb_http_ex *ex, const char **why)
{
    for (size_t i = 0; i < ex->n_field; i++) {
        const nb_http_field *f = &ex->field[i];
        if (!nb_http_same(f->name, nb_str_c("content-encoding")) || f->value.n_bytes == 0 ||
            nb_http_same(f->value, nb_str_c("identity")))
            continue;
        *why = "compressed bodies are not supported: send the body without Content-Encoding";
        return nb_buf_add_c(&ex->extra, "Accept-Encoding: identity\r\n") == NB_OK ? 415 : 500;
    }
    return 0;
}
