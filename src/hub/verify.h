/* verify.h - the files of a folder against hashes that are known, and the structure of the rest. */
#ifndef NB_HUB_VERIFY_H
#define NB_HUB_VERIFY_H
#include <stdatomic.h>

#include "hub/list.h"

typedef enum nb_hub_verdict {
    NB_HUB_GOOD,    /* its hash is the expected one */
    NB_HUB_BAD,     /* why says what is wrong */
    NB_HUB_UNHASHED /* no hash is known; a *.safetensors is whole by its header */
} nb_hub_verdict;

typedef struct nb_hub_check {
    const char *name; /* relative to the folder */
    char hash[65];    /* expected: SHA-256, or git's SHA-1; "": unknown */
    nb_hub_verdict verdict;
    const char *why; /* NB_HUB_BAD */
} nb_hub_check;

/* Zero-initialise, free with nb_hub_checks_deinit. */
typedef struct nb_hub_checks {
    nb_hub_check *p;
    size_t n, cap, n_walked; /* the first n_walked are sorted by name */
    uint64_t n_bytes;        /* of the files that are there */
    nb_arena text;
} nb_hub_checks;
void nb_hub_checks_deinit(nb_hub_checks *c);

/* All files below dir, first of all; a link to blobs/HASH, as in a hub cache, says the hash. */
nb_status nb_hub_checks_walk(nb_hub_checks *c, const char *dir, nb_error *err);
/* The lines of a SHA256SUMS: 64 digits, a blank, a blank or '*', a name.  What they name must be
 * there. */
nb_status nb_hub_checks_sums(nb_hub_checks *c, nb_str text, const char *name, nb_error *err);
/* The hashes of the hub's list, for the files that are there. */
nb_status nb_hub_checks_list(nb_hub_checks *c, const nb_hub_list *l, nb_error *err);

/* Reads every file, n_job at a time, and fills in the verdicts.  watch (or NULL) gets bytes, on the
 * caller's thread.  Errors: NB_ERR_CANCELLED (*stop was set), NB_ERR_NOMEM; a file that cannot be
 * read is bad. */
nb_status nb_hub_checks_run(nb_hub_checks *c, const char *dir, size_t n_job,
                            const atomic_bool *stop,
                            void (*watch)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                            nb_error *err);
#endif
