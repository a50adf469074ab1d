/* list.h - what the hub says of a repository: its commit and its files.  No network, no files. */
#ifndef NB_HUB_LIST_H
#define NB_HUB_LIST_H
#include <stdint.h>

#include "base/arena.h"
#include "base/str.h"

typedef struct nb_hub_file {
    const char *path; /* inside the repository: relative, without "..", control characters, '\' */
    char hash[65];    /* of the content, and the blob's name: SHA-256, or git's SHA-1 (40 digits) */
    bool there;       /* in the cache already: nb_hub_pull sets it */
    uint64_t n_bytes;
} nb_hub_file;

/* Zero-initialise, free with nb_hub_list_deinit. */
typedef struct nb_hub_list {
    nb_hub_file *file;
    size_t n, cap;
    uint64_t n_bytes; /* of all files */
    nb_arena names;
} nb_hub_list;
void nb_hub_list_deinit(nb_hub_list *l);

/* The answer to /api/models/ID/revision/REVISION: the commit.  name stands in error lines. */
nb_status nb_hub_parse_commit(nb_str json, const char *name, char commit[65], nb_error *err);
/* Appends a page of /api/models/ID/tree/COMMIT?recursive=true.  Every name, hash and size is checked;
 * one bad entry refuses the page. */
nb_status nb_hub_parse_tree(nb_str json, const char *name, nb_hub_list *l, nb_error *err);
/* Sorts by path; NB_ERR_FORMAT for a path that is listed twice. */
nb_status nb_hub_list_sort(nb_hub_list *l, const char *name, nb_error *err);

/* The target of rel="next" in a Link header, or false. */
bool nb_hub_next_page(const char *link, char *url, size_t n_bytes);

/* Patterns as Python's fnmatch has them: '*' also matches '/'; FOLDER/ is all below it. */
typedef struct nb_hub_globs {
    const char *const *p;
    size_t n;
} nb_hub_globs;
/* Keeps what a pattern of include matches (none given: what nibble can use of a model) and none of
 * exclude does. */
void nb_hub_list_select(nb_hub_list *l, nb_hub_globs include, nb_hub_globs exclude);

#endif
