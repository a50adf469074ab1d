/* http_tls.c - certificates, and reading and writing of connections with and without TLS.
 *
 * Everything is non-blocking.  For TLS OpenSSL works on the descriptor itself; what it cannot do now
 * it is asked again at the connection's next event, whichever that is, so "wants to read" while
 * writing needs no bookkeeping. */
#define _DEFAULT_SOURCE /* struct iovec with sendmsg, MSG_NOSIGNAL */
#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "serve/http_internal.h"

enum { MAX_IOV = 32, TLS_RECORD_BYTES = 16 * 1024 };

/* ---- the context ---- */

/* The reason of the oldest queued error, and an empty queue. */
static const char *why(char *out, size_t cap)
{
    const unsigned long e = ERR_get_error();
    const char *text = e ? ERR_reason_error_string(e) : NULL;
    if (text) {
        (void)snprintf(out, cap, "%s", text);
    } else if (e && ERR_GET_LIB(e) == ERR_LIB_SYS) {
        (void)snprintf(out, cap, "%s", strerror(ERR_GET_REASON(e)));
    } else {
        (void)snprintf(out, cap, "unknown reason");
    }
    ERR_clear_error();
    return out;
}

/* Without a password: none.  OpenSSL would ask at the terminal. */
static int give_password(char *buf, int cap, int writing, void *ctx)
{
    (void)writing;
    const char *password = ctx;
    const size_t n = password ? strlen(password) : 0;
    if (cap <= 0 || n > (size_t)cap) return 0;
    if (n) memcpy(buf, password, n);
    return (int)n;
}

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n_out,
                           const unsigned char *in, unsigned n_in, void *ctx)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *found = NULL;
    (void)ssl;
    (void)ctx;
    if (SSL_select_next_proto(&found, n_out, ours, sizeof ours - 1, in, n_in) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = found;
    return SSL_TLSEXT_ERR_OK;
}

static nb_status load_files(SSL_CTX *ctx, const nb_http_options *o, nb_error *err)
{
    char text[160];
    SSL_CTX_set_default_passwd_cb(ctx, give_password);
    /* Only read by the callback. */
    SSL_CTX_set_default_passwd_cb_userdata(ctx, (void *)(uintptr_t)o->tls_key_password);
    if (SSL_CTX_use_certificate_chain_file(ctx, o->tls_cert) != 1)
        return nb_fail(err, NB_ERR_IO, "%s: cannot use it as TLS certificate (PEM): %s",
                       o->tls_cert, why(text, sizeof text));
    if (SSL_CTX_use_PrivateKey_file(ctx, o->tls_key, SSL_FILETYPE_PEM) != 1)
        return nb_fail(err, NB_ERR_IO, "%s: cannot use it as TLS key (PEM) for %s: %s%s",
                       o->tls_key, o->tls_cert, why(text, sizeof text),
                       o->tls_key_password ? " (wrong password?)" : " (no password was given)");
    if (SSL_CTX_check_private_key(ctx) != 1)
        return nb_fail(err, NB_ERR_ARG, "%s: is not the key of the certificate %s: %s", o->tls_key,
                       o->tls_cert, why(text, sizeof text));
    if (!o->tls_ca) return NB_OK;
    if (SSL_CTX_load_verify_locations(ctx, o->tls_ca, NULL) != 1)
        return nb_fail(err, NB_ERR_IO, "%s: cannot use it as TLS authorities (PEM): %s", o->tls_ca,
                       why(text, sizeof text));
    SSL_CTX_set_client_CA_list(ctx, SSL_load_client_CA_file(o->tls_ca));
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return NB_OK;
}

nb_status nb_http_tls_create(const nb_http_options *o, SSL_CTX **out, nb_error *err)
{
    if (!o->tls_cert || !o->tls_key)
        return nb_fail(err, NB_ERR_ARG, "TLS needs both a certificate and its key, got only the %s",
                       o->tls_cert  ? "certificate"
                       : o->tls_key ? "key"
                                    : "authorities");
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx) return nb_fail(err, NB_ERR_NOMEM, "out of memory for TLS");
    (void)SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                       SSL_OP_CIPHER_SERVER_PREFERENCE);
    /* Buffers of idle connections are given back: 34 KiB each otherwise. */
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    static const unsigned char session[] = "nibble"; /* needed with client certificates */
    (void)SSL_CTX_set_session_id_context(ctx, session, sizeof session - 1);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    const nb_status st = load_files(ctx, o, err);
    SSL_CTX_set_default_passwd_cb_userdata(ctx, NULL);
    if (st != NB_OK) {
        SSL_CTX_free(ctx);
        return st;
    }
    *out = ctx;
    return NB_OK;
}

/* ---- input and output ---- */

static nb_http_io tls_result(nb_http_conn *c, int r)
{
    switch (SSL_get_error(c->ssl, r)) {
    case SSL_ERROR_WANT_READ: c->can_read = false; return NB_HTTP_IO_AGAIN;
    case SSL_ERROR_WANT_WRITE: c->can_write = false; return NB_HTTP_IO_AGAIN;
    case SSL_ERROR_ZERO_RETURN: return NB_HTTP_IO_EOF;
    default: return NB_HTTP_IO_ERROR;
    }
}

nb_http_io nb_http_io_handshake(nb_http_conn *c)
{
    ERR_clear_error();
    const int r = SSL_accept(c->ssl);
    return r == 1 ? NB_HTTP_IO_OK : tls_result(c, r);
}

nb_http_io nb_http_io_read_raw(nb_http_conn *c, char *p, size_t cap, size_t *n)
{
    ssize_t r;
    do {
        r = recv(c->fd, p, cap, 0);
    } while (r < 0 && errno == EINTR);
    *n = r > 0 ? (size_t)r : 0;
    if (r > 0) return NB_HTTP_IO_OK;
    if (r == 0) return NB_HTTP_IO_EOF;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return NB_HTTP_IO_ERROR;
    c->can_read = false;
    return NB_HTTP_IO_AGAIN;
}

nb_http_io nb_http_io_read(nb_http_conn *c, char *p, size_t cap, size_t *n)
{
    if (!c->ssl) return nb_http_io_read_raw(c, p, cap, n);
    *n = 0;
    ERR_clear_error();
    const int r = SSL_read_ex(c->ssl, p, cap, n);
    return r == 1 ? NB_HTTP_IO_OK : tls_result(c, r);
}

static nb_http_io write_plain(nb_http_conn *c, size_t *n)
{
    struct evbuffer_iovec part[MAX_IOV];
    struct iovec iov[MAX_IOV];
    int n_part = evbuffer_peek(c->out, -1, NULL, part, MAX_IOV);
    if (n_part > MAX_IOV) n_part = MAX_IOV;
    for (int i = 0; i < n_part; i++)
        iov[i] = (struct iovec){ .iov_base = part[i].iov_base, .iov_len = part[i].iov_len };
    const struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)n_part };
    ssize_t r;
    do {
        r = sendmsg(c->fd, &m, MSG_NOSIGNAL);
    } while (r < 0 && errno == EINTR);
    *n = r > 0 ? (size_t)r : 0;
    if (r >= 0) return NB_HTTP_IO_OK;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return NB_HTTP_IO_ERROR;
    c->can_write = false;
    return NB_HTTP_IO_AGAIN;
}

/* One record, gathered in the scratch space.  A write that has to be repeated gets the same bytes
 * and perhaps more, never fewer: the front of `out` does not change. */
static nb_http_io write_tls(nb_http_conn *c, size_t *n)
{
    const ev_ssize_t got = evbuffer_copyout(c->out, c->h->scratch, TLS_RECORD_BYTES);
    if (got <= 0) return NB_HTTP_IO_ERROR;
    ERR_clear_error();
    const int r = SSL_write_ex(c->ssl, c->h->scratch, (size_t)got, n);
    if (r == 1) return NB_HTTP_IO_OK;
    *n = 0;
    const nb_http_io io = tls_result(c, r);
    return io == NB_HTTP_IO_EOF ? NB_HTTP_IO_ERROR : io;
}

nb_http_io nb_http_io_write(nb_http_conn *c, size_t *n)
{
    const nb_http_io io = c->ssl ? write_tls(c, n) : write_plain(c, n);
    if (*n && evbuffer_drain(c->out, *n) != 0) return NB_HTTP_IO_ERROR;
    return io;
}

void nb_http_io_shutdown(nb_http_conn *c)
{
    if (c->ssl) {
        ERR_clear_error();
        (void)SSL_shutdown(c->ssl);
    }
    (void)shutdown(c->fd, SHUT_WR);
}
