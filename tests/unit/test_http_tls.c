/* test_http_tls.c - HTTPS: what works without TLS works with it; versions, files, client
 * certificates.  Certificates are made here, for this run. */
#include "http_testing.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#define KEEP "\r\nHost: localhost\r\n\r\n"

static char dir[256];
static char cert[300], key[300], locked_key[300], other_key[300];

static EVP_PKEY *make_key(void)
{
    EVP_PKEY *k = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    assert_non_null(k);
    return k;
}

static void save_key(const char *path, EVP_PKEY *k, const char *password)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_PrivateKey(f, k, password ? EVP_aes_128_cbc() : NULL, NULL, 0, NULL,
                                          (void *)(uintptr_t)password),
                     1);
    assert_int_equal(fclose(f), 0);
}

static void save_cert(const char *path, EVP_PKEY *k)
{
    X509 *x = X509_new();
    assert_non_null(x);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(x), 1), 1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(x), -3600));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(x), 3600));
    assert_int_equal(X509_set_version(x, 2), 1);
    assert_int_equal(X509_set_pubkey(x, k), 1);
    X509_NAME *name = X509_get_subject_name(x);
    assert_int_equal(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                                (const unsigned char *)"localhost", -1, -1, 0),
                     1);
    assert_int_equal(X509_set_issuer_name(x, name), 1);
    assert_true(X509_sign(x, k, EVP_sha256()) > 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_X509(f, x), 1);
    assert_int_equal(fclose(f), 0);
    X509_free(x);
}

static int make_files(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(dir, sizeof dir, "%.200s/nb-tls-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) return -1;
    (void)snprintf(cert, sizeof cert, "%s/cert.pem", dir);
    (void)snprintf(key, sizeof key, "%s/key.pem", dir);
    (void)snprintf(locked_key, sizeof locked_key, "%s/locked.pem", dir);
    (void)snprintf(other_key, sizeof other_key, "%s/other.pem", dir);
    EVP_PKEY *k = make_key(), *other = make_key();
    save_key(key, k, NULL);
    save_key(locked_key, k, "secret");
    save_key(other_key, other, NULL);
    save_cert(cert, k);
    EVP_PKEY_free(k);
    EVP_PKEY_free(other);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    (void)unlink(cert);
    (void)unlink(key);
    (void)unlink(locked_key);
    (void)unlink(other_key);
    return rmdir(dir);
}

/* ---- a client ---- */

typedef struct client {
    int fd;
    SSL_CTX *ctx;
    SSL *ssl;
} client;

/* False: the handshake failed. */
static bool meet(const server *s, client *c, int highest, bool with_cert)
{
    *c = (client){ .fd = dial(s), .ctx = SSL_CTX_new(TLS_client_method()) };
    assert_non_null(c->ctx);
    if (highest == TLS1_1_VERSION) { /* the library itself refuses it at its default level */
        SSL_CTX_set_security_level(c->ctx, 0);
        assert_int_equal(SSL_CTX_set_min_proto_version(c->ctx, TLS1_VERSION), 1);
    }
    assert_int_equal(SSL_CTX_set_max_proto_version(c->ctx, highest), 1);
    if (with_cert) {
        assert_int_equal(SSL_CTX_use_certificate_file(c->ctx, cert, SSL_FILETYPE_PEM), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(c->ctx, key, SSL_FILETYPE_PEM), 1);
    }
    c->ssl = SSL_new(c->ctx);
    assert_non_null(c->ssl);
    assert_int_equal(SSL_set_fd(c->ssl, c->fd), 1);
    static const unsigned char protocols[] = "\x02h2\x08http/1.1";
    assert_int_equal(SSL_set_alpn_protos(c->ssl, protocols, sizeof protocols - 1), 0);
    return SSL_connect(c->ssl) == 1;
}

static void part(client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    if (c->fd >= 0) assert_int_equal(close(c->fd), 0);
    ERR_clear_error();
}

static void tell(client *c, const char *text)
{
    assert_int_equal(SSL_write(c->ssl, text, (int)strlen(text)), (int)strlen(text));
}

static void expect_tls(client *c, int status, const char *end)
{
    nb_buf b = { 0 };
    const size_t n_end = strlen(end);
    while (b.n_bytes < n_end || memcmp(b.p + b.n_bytes - n_end, end, n_end) != 0) {
        char bytes[20000];
        const int n = SSL_read(c->ssl, bytes, sizeof bytes);
        if (n <= 0) fail_msg("no `%s` in:\n%s", end, b.p ? b.p : "");
        assert_int_equal(nb_buf_add(&b, bytes, (size_t)n), NB_OK);
    }
    expect(b.p, status, NULL);
    nb_buf_deinit(&b);
}

static void test_requests(void **state)
{
    (void)state;
    server s = { .o = { .tls_cert = cert, .tls_key = key } };
    start(&s);
    for (int v = TLS1_2_VERSION; v <= TLS1_3_VERSION; v++) {
        client c;
        assert_true(meet(&s, &c, v, false));
        const unsigned char *p = NULL;
        unsigned n = 0;
        SSL_get0_alpn_selected(c.ssl, &p, &n);
        assert_true(n == 8 && memcmp(p, "http/1.1", 8) == 0);
        tell(&c, "GET /hello HTTP/1.1" KEEP);
        expect_tls(&c, 200, "hello\n");
        tell(&c, "GET /stream HTTP/1.1" KEEP);
        expect_tls(&c, 200, "0\r\n\r\n");
        tell(&c, "GET /later HTTP/1.1" KEEP "GET /hello HTTP/1.1" KEEP);
        expect_tls(&c, 200, "hello\n");
        part(&c);
        wait_connections(&s, 0);
    }
    stop(&s);
}

static void test_large(void **state)
{
    (void)state;
    server s = { .o = { .tls_cert = cert, .tls_key = key } };
    client c;
    start(&s);
    assert_true(meet(&s, &c, TLS1_3_VERSION, false));
    tell(&c, "GET /big HTTP/1.1\r\nConnection: close" KEEP);
    size_t total = 0;
    char bytes[65536];
    for (int n = 1; n > 0;) {
        n = SSL_read(c.ssl, bytes, sizeof bytes);
        if (n > 0) total += (size_t)n;
        if (n <= 0) assert_int_equal(SSL_get_error(c.ssl, n), SSL_ERROR_ZERO_RETURN);
    }
    assert_true(total > BIG_BYTES);
    part(&c);
    stop(&s);
}

/* Held: a close_notify, a FIN without one, a reset. */
static void test_leave(void **state)
{
    (void)state;
    server s = { .o = { .tls_cert = cert, .tls_key = key } };
    start(&s);
    for (int how = 0; how < 3; how++) {
        client c;
        assert_true(meet(&s, &c, TLS1_3_VERSION, false));
        tell(&c, "GET /hold HTTP/1.1" KEEP);
        wait_for(&s.n_held, 1);
        if (how == 0) assert_true(SSL_shutdown(c.ssl) >= 0);
        if (how == 1) assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
        if (how == 2) {
            const struct linger l = { 1, 0 };
            assert_int_equal(setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &l, sizeof l), 0);
            assert_int_equal(close(c.fd), 0);
            c.fd = -1;
        }
        wait_for(&s.n_held, 0);
        wait_for(&s.n_close, how + 1);
        part(&c);
        wait_connections(&s, 0);
    }
    client c;
    assert_true(meet(&s, &c, TLS1_3_VERSION, false));
    tell(&c, "GET /flood HTTP/1.1" KEEP);
    wait_for(&s.n_close, 4); /* does not read: too slow */
    part(&c);
    stop(&s);
}

static void test_strangers(void **state)
{
    (void)state;
    server s = { .o = { .tls_cert = cert, .tls_key = key } }, hasty = s;
    client c;
    start(&s);
    assert_false(meet(&s, &c, TLS1_1_VERSION, false));
    part(&c);
    expect(ask(&s, "GET / HTTP/1.1" KEEP), 400, "speaks HTTPS");
    wait_connections(&s, 0);
    stop(&s);
    hasty.o.read_timeout_s = 0.2;
    start(&hasty);
    assert_int_equal(strlen(ask(&hasty, "\x16\x03\x01\x02\x03 nonsense")) > 64,
                     0);                          /* an alert at most */
    assert_int_equal(strlen(ask(&hasty, "")), 0); /* no handshake in time */
    wait_connections(&hasty, 0);
    stop(&hasty);
}

static void test_client_certificates(void **state)
{
    (void)state;
    server s = { .o = { .tls_cert = cert, .tls_key = key, .tls_ca = cert } };
    client c;
    start(&s);
    assert_true(meet(&s, &c, TLS1_3_VERSION, true));
    tell(&c, "GET /hello HTTP/1.1" KEEP);
    expect_tls(&c, 200, "hello\n");
    part(&c);
    assert_false(meet(&s, &c, TLS1_2_VERSION, false));
    part(&c);
    stop(&s);
}

static void refused(const nb_http_options *o, const char *want)
{
    nb_http *h = NULL;
    nb_error e;
    if (nb_http_create(o, routes, 1, &h, &e) == NB_OK) fail_msg("accepted: %s", want);
    if (!strstr(e.msg, want)) fail_msg("expected `%s`, got: %s", want, e.msg);
}

static void test_files(void **state)
{
    (void)state;
    nb_http_options o = { .any_port = true, .tls_cert = cert };
    refused(&o, "TLS needs both a certificate and its key, got only the certificate");
    o = (nb_http_options){ .any_port = true, .tls_key = key };
    refused(&o, "got only the key");
    o = (nb_http_options){ .any_port = true, .tls_cert = "/nowhere/cert.pem", .tls_key = key };
    refused(&o, "/nowhere/cert.pem: cannot use it as TLS certificate (PEM): ");
    refused(&o, "No such file");
    o.tls_cert = key;
    refused(&o, "key.pem: cannot use it as TLS certificate");
    o.tls_cert = cert;
    o.tls_key = cert;
    refused(&o, "cert.pem: cannot use it as TLS key");
    o.tls_key = other_key;
    refused(&o, "other.pem");
    o.tls_key = locked_key;
    refused(&o, "no password was given");
    o.tls_key_password = "wrong";
    refused(&o, "wrong password?");
    o.tls_ca = dir;
    o.tls_key_password = "secret";
    refused(&o, "cannot use it as TLS authorities");
    o.tls_ca = NULL;
    nb_http *h = NULL;
    nb_error e;
    if (nb_http_create(&o, routes, 1, &h, &e) != NB_OK) fail_msg("%s", e.msg);
    nb_http_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_leave),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_client_certificates),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
