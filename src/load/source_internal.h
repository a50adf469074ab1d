/* source_internal.h - a source, shared by source*.c. */
#ifndef NB_LOAD_SOURCE_INTERNAL_H
#define NB_LOAD_SOURCE_INTERNAL_H
#include "load/gguf.h"
#include "load/load_internal.h"

typedef struct source_file {
    nb_file_map map; /* p is NULL for borrowed bytes, and once it is copied */
    void *copy;      /* [copy_bytes]: the file in memory, or NULL */
    size_t copy_bytes;
    char *path; /* in the arena */
} source_file;

/* Where the last nb_source_leftover stopped, so that a loop over all is linear. */
typedef struct leftover_cursor {
    size_t i, at;
} leftover_cursor;

struct nb_source {
    nb_dummy *dummy; /* NULL: files */
    char *where;     /* what was opened, for error lines */
    nb_arena names;
    source_file *files;
    size_t n_file, cap_file;
    nb_st_tensor *tensors;
    size_t n_tensor, cap_tensor, n_bytes;
    size_t *table; /* [table_mask + 1]: tensor index + 1, 0 = free */
    size_t table_mask;
    uint64_t hash_seed;
    leftover_cursor *cursor;
    const char *prefix; /* of names that are asked for, or NULL */
    nb_source_names_fn *rename; /* the names in the files, or NULL */
};

/* A GGUF file and its other shards; bytes: instead of the file at path (borrowed), or NULL.  Its maps become the
 * source's. */
nb_status nb_source_add_gguf(nb_source *s, const char *path, const nb_str *bytes, nb_error *err);
/* Makes the bytes of a tensor that is no view. */
nb_status nb_source_make(nb_st_tensor *x, const char *path, nb_error *err);
/* The bytes of a file have moved to p. */
void nb_source_moved(nb_source *s, size_t file, const unsigned char *p);

#endif
