/* store.h - one repository's folders in a hub cache, as huggingface_hub lays them out:
 *
 *   CACHE/models--ORG--NAME/blobs/HASH               content; HASH.incomplete while it is downloaded
 *   CACHE/models--ORG--NAME/snapshots/COMMIT/PATH    a relative link to the blob
 *   CACHE/models--ORG--NAME/refs/REVISION            the commit
 *   CACHE/.locks/models--ORG--NAME/HASH.lock         held (flock) while HASH is downloaded */
#ifndef NB_HUB_STORE_H
#define NB_HUB_STORE_H
#include <stdint.h>

#include "base/str.h"

typedef struct nb_hub_store {
    nb_buf cache, folder, blobs, locks;
} nb_hub_store;

/* Only names them.  Deinit in any case. */
nb_status nb_hub_store_init(nb_hub_store *s, const char *cache, const char *repo, nb_error *err);
void nb_hub_store_deinit(nb_hub_store *s);
nb_status nb_hub_store_make(const nb_hub_store *s, nb_error *err); /* makes the folders */

/* Bytes that an unprivileged user may still write where the cache is, or will be. */
nb_status nb_hub_store_free(const nb_hub_store *s, uint64_t *n_bytes, nb_error *err);
/* Whether the blob is there with that size.  Its content was checked when it got its name. */
bool nb_hub_store_has(const nb_hub_store *s, const char *hash, uint64_t n_bytes);
/* Bytes of HASH.incomplete; 0: none. */
uint64_t nb_hub_store_partial(const nb_hub_store *s, const char *hash);

/* Tries to lock a blob: *fd is the lock, for nb_hub_store_unlock; -1: somebody else has it. */
nb_status nb_hub_store_lock(const nb_hub_store *s, const char *hash, int *fd, nb_error *err);
void nb_hub_store_unlock(int fd);
/* HASH.incomplete for reading and writing, made if it is not there. */
nb_status nb_hub_store_open(const nb_hub_store *s, const char *hash, int *fd, nb_error *err);
void nb_hub_store_drop(const nb_hub_store *s, const char *hash); /* removes HASH.incomplete */
/* HASH.incomplete, whose content was checked, becomes the blob. */
nb_status nb_hub_store_keep(const nb_hub_store *s, const char *hash, int fd, nb_error *err);

/* snapshots/commit/path links to the blob. */
nb_status nb_hub_store_link(const nb_hub_store *s, const char *commit, const char *path,
                            const char *hash, nb_error *err);
/* CACHE/models--ORG--NAME/snapshots/commit, replacing *out. */
nb_status nb_hub_store_snapshot(const nb_hub_store *s, const char *commit, nb_buf *out,
                                nb_error *err);
/* refs/revision = commit; nothing where the revision is the commit. */
nb_status nb_hub_store_ref(const nb_hub_store *s, const char *revision, const char *commit,
                           nb_error *err);
#endif
