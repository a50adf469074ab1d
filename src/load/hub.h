/* hub.h - a MODEL given as a Hugging Face id, looked up in the local hub cache.
 *
 *   CACHE/models--ORG--NAME/refs/REVISION              the commit that a branch or tag means
 *   CACHE/models--ORG--NAME/snapshots/COMMIT/...       links to ../../blobs/HASH
 *
 * Nothing here uses the network; src/hub downloads. */
#ifndef NB_LOAD_HUB_H
#define NB_LOAD_HUB_H
#include <stdbool.h>

#include "base/str.h"

typedef struct nb_hub_id {
    char repo[200];     /* ORG/NAME */
    char revision[200]; /* a branch, a tag or a commit; "main" unless given */
} nb_hub_id;

/* "ORG/NAME" or "ORG/NAME@REVISION", by the hub's own rules for names; false for anything else. */
bool nb_hub_id_parse(const char *text, nb_hub_id *out);
/* 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits: a commit, or the name of a blob. */
bool nb_hub_is_hash(const char *s);

/* These replace *out's content; NB_ERR_NOMEM, or NB_ERR_NOT_FOUND where no variable names a folder.
 * home: HF_HOME, else XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
 * cache: HF_HUB_CACHE (or its old name HUGGINGFACE_HUB_CACHE), else home/hub. */
nb_status nb_hub_home(nb_buf *out, nb_error *err);
nb_status nb_hub_cache(nb_buf *out, nb_error *err);
/* CACHE/models--ORG--NAME */
nb_status nb_hub_folder(const char *cache, const char *repo, nb_buf *out, nb_error *err);

/* The snapshot of an id.  NB_ERR_NOT_FOUND: the line names the command that downloads it.
 * NB_ERR_ARG: a shortened commit that fits several snapshots. */
nb_status nb_hub_find(const char *cache, const nb_hub_id *id, nb_buf *out, nb_error *err);

/* Where MODEL is: an existing path as it is, an id as its snapshot in the cache, the name of a bundled
 * model (nibble-tiny) as its folder, anything else as it is, for the reader of its files to complain
 * about. */
nb_status nb_hub_model_path(const char *model, nb_buf *out, nb_error *err);

/* For a reader that misses a file in `dir`: if st is NB_ERR_NOT_FOUND and dir is a snapshot of a hub
 * cache, the command that downloads the rest is added to err's line.  Returns st. */
nb_status nb_hub_missing(const char *dir, nb_status st, nb_error *err);
#endif
