/* digest.c - see digest.h. */
#include "hub/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20 };

nb_status nb_hub_digest_begin(nb_hub_digest *d, const char *like, uint64_t n_bytes, nb_error *err)
{
    const bool is_git = strlen(like) == 40;
    if (!d->ctx) d->ctx = EVP_MD_CTX_new();
    if (!d->ctx) return nb_fail(err, NB_ERR_NOMEM, "out of memory for a hash");
    if (EVP_DigestInit_ex(d->ctx, is_git ? EVP_sha1() : EVP_sha256(), NULL) != 1)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "this system's OpenSSL does not compute %s",
                       is_git ? "SHA-1" : "SHA-256");
    if (!is_git) return NB_OK;
    char head[40];
    const int n = snprintf(head, sizeof head, "blob %" PRIu64, n_bytes);
    nb_hub_digest_add(d, head, (size_t)n + 1); /* with its zero */
    return NB_OK;
}

void nb_hub_digest_add(nb_hub_digest *d, const void *p, size_t n_bytes)
{
    const int ok = EVP_DigestUpdate(d->ctx, p, n_bytes);
    NB_ASSERT(ok == 1); /* cannot fail once it has begun */
}

void nb_hub_digest_end(nb_hub_digest *d, char hex[65])
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    const int ok = EVP_DigestFinal_ex(d->ctx, raw, &n);
    NB_ASSERT(ok == 1 && n <= 32);
    for (unsigned i = 0; i < n; i++) (void)snprintf(hex + 2 * (size_t)i, 3, "%02x", raw[i]);
}

void nb_hub_digest_deinit(nb_hub_digest *d)
{
    EVP_MD_CTX_free(d->ctx);
    d->ctx = NULL;
}

nb_status nb_hub_digest_fd(nb_hub_digest *d, int fd, const char *name, uint64_t n_bytes,
                           const atomic_bool *stop, _Atomic uint64_t *seen, nb_error *err)
{
    char *buffer = malloc(READ_BYTES);
    nb_status st = buffer ? NB_OK : nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", name);
    for (uint64_t at = 0; st == NB_OK && at < n_bytes;) {
        const size_t want = n_bytes - at < READ_BYTES ? (size_t)(n_bytes - at) : READ_BYTES;
        const ssize_t n = pread(fd, buffer, want, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            st = nb_fail(err, NB_ERR_IO, "%s: cannot be read: %s", name, strerror(errno));
        else if (n == 0)
            st = nb_fail(err, NB_ERR_IO, "%s: ended after %" PRIu64 " of %" PRIu64 " bytes", name,
                         at, n_bytes);
        else if (stop && atomic_load(stop))
            st = nb_fail(err, NB_ERR_CANCELLED, "interrupted");
        if (st != NB_OK) break;
        nb_hub_digest_add(d, buffer, (size_t)n);
        at += (uint64_t)n;
        if (seen) atomic_fetch_add(seen, (uint64_t)n);
    }
    free(buffer);
    return st;
}
