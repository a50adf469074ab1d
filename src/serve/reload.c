/* reload.c - what a running server reads again: API keys, TLS files, the log file. */
#include <stdio.h>
#include <stdlib.h>

#include <openssl/crypto.h>

#include "os/file.h"
#include "serve/serve_internal.h"

enum { KEYS_MAX_BYTES = 1 << 20, KEYS_MAX = 10000 };

void nb_keys_deinit(nb_keys *k)
{
    if (k->text.p) OPENSSL_cleanse(k->text.p, k->text.n_bytes);
    nb_buf_deinit(&k->text);
    free(k->p);
    *k = (nb_keys){ 0 };
}

static nb_status add(nb_keys *k, const char *key, nb_error *err)
{
    if (k->n == KEYS_MAX) return nb_fail(err, NB_ERR_LIMIT, "more than %d API keys", KEYS_MAX);
    if (NB_GROW(k->p, k->cap, k->n) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for the API keys");
    k->p[k->n++] = key;
    return NB_OK;
}

/* Cuts the text into lines, without the blanks around them. */
static nb_status add_lines(nb_keys *k, nb_error *err)
{
    char *p = k->text.p, *const end = p + k->text.n_bytes;
    if (memchr(p, 0, k->text.n_bytes)) return nb_fail(err, NB_ERR_FORMAT, "has a zero byte");
    while (p < end) {
        char *stop = memchr(p, '\n', (size_t)(end - p)), *last = stop ? stop : end;
        while (last > p && (last[-1] == ' ' || last[-1] == '\t' || last[-1] == '\r')) last--;
        while (p < last && (*p == ' ' || *p == '\t')) p++;
        *last = 0; /* the text is followed by a 0 already */
        if (*p && *p != '#') NB_TRY(add(k, p, err));
        p = stop ? stop + 1 : end;
    }
    return NB_OK;
}

static nb_status add_file(nb_keys *k, const char *file, nb_error *err)
{
    const size_t before = k->n;
    NB_TRY(nb_file_read(file, KEYS_MAX_BYTES, &k->text, err));
    const nb_status st = k->text.n_bytes ? add_lines(k, err) : NB_OK;
    if (st != NB_OK) return nb_fail_prefix(err, st, "%s", file);
    if (k->n == before)
        return nb_fail(err, NB_ERR_FORMAT, "%s: has no API key: expected one per line", file);
    return NB_OK;
}

nb_status nb_keys_read(const nb_serve_options *o, nb_keys *out, nb_error *err)
{
    nb_keys k = { 0 };
    nb_status st = NB_OK;
    for (size_t i = 0; st == NB_OK && i < o->n_api_key; i++) st = add(&k, o->api_key[i], err);
    if (st == NB_OK && o->api_key_file) st = add_file(&k, o->api_key_file, err);
    if (st == NB_OK)
        *out = k;
    else
        nb_keys_deinit(&k);
    return st;
}

/* ---- reloading ---- */

static void tell(const nb_serve *s, nb_status st, const char *what, const nb_error *err)
{
    char line[NB_ERROR_MSG_BYTES + 64];
    if (st == NB_OK)
        (void)snprintf(line, sizeof line, "read again: %s", what);
    else
        (void)snprintf(line, sizeof line, "%s; the %s from before stay in use", err->msg, what);
    nb_log(s, st == NB_OK ? NB_LOG_INFO : NB_LOG_ERROR, "reload", "message", line, NULL);
}

static void reload_keys(nb_serve *s)
{
    nb_error err = { 0 };
    nb_keys keys = { 0 };
    nb_status st = nb_path_is_file(s->o.api_key_file)
                       ? nb_keys_read(&s->o, &keys, &err)
                       : nb_fail(&err, NB_ERR_IO, "%s: is no regular file", s->o.api_key_file);
    if (st == NB_OK) st = nb_http_set_keys(s->http, keys.p, keys.n, &err);
    nb_keys_deinit(&keys);
    tell(s, st, "API keys", &err);
}

/* OpenSSL would wait for a FIFO. */
static nb_status check_files(const nb_serve_options *o, nb_error *err)
{
    const char *const file[] = { o->tls_cert, o->tls_key, o->tls_ca };
    for (size_t i = 0; i < NB_COUNT(file); i++)
        if (file[i] && !nb_path_is_file(file[i]))
            return nb_fail(err, NB_ERR_IO, "%s: is no regular file", file[i]);
    return NB_OK;
}

void nb_reload(void *ctx)
{
    nb_serve *s = ctx;
    nb_error err = { 0 };
    nb_serve_log_reopen(s->o.log);
    if (s->o.api_key_file) reload_keys(s);
    if (!s->o.tls_cert) return;
    nb_status st = check_files(&s->o, &err);
    if (st == NB_OK) st = nb_http_reload_tls(s->http, &err);
    tell(s, st, "TLS files", &err);
}
