/* digest.h - the hashes that name blobs: SHA-256 of a file's bytes, or git's SHA-1. */
#ifndef NB_HUB_DIGEST_H
#define NB_HUB_DIGEST_H
#include <stdatomic.h>
#include <stdint.h>

#include "base/str.h"

typedef struct nb_hub_digest {
    void *ctx; /* EVP_MD_CTX */
} nb_hub_digest;

/* Which hash it is follows from the length of `like` (64 or 40 digits); git's begins with the size.
 * May be called again to start anew.  Deinit in any case. */
nb_status nb_hub_digest_begin(nb_hub_digest *d, const char *like, uint64_t n_bytes, nb_error *err);
void nb_hub_digest_add(nb_hub_digest *d, const void *p, size_t n_bytes);
void nb_hub_digest_end(nb_hub_digest *d, char hex[65]);
void nb_hub_digest_deinit(nb_hub_digest *d);

/* Adds the first n_bytes of a file; *seen (may be NULL) counts them up as they are read.
 * NB_ERR_IO: it cannot be read, or is shorter; NB_ERR_CANCELLED: *stop was set. */
nb_status nb_hub_digest_fd(nb_hub_digest *d, int fd, const char *name, uint64_t n_bytes,
                           const atomic_bool *stop, _Atomic uint64_t *seen, nb_error *err);

#endif
