/* doc.h - config.json and its like: strict JSON read by dotted paths.
 *
 * A doc is immutable after parse and owns everything it returns.  The getters
 * return false when the path is absent or null; a value of the wrong type or out
 * of range is remembered as the doc's first error, which nb_doc_check reports
 * with the file's name, the path and what was expected.  So a reader takes all
 * fields first and checks once. */
#ifndef NB_LOAD_DOC_H
#define NB_LOAD_DOC_H
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct nb_doc nb_doc;

/* A component of a path that has dots itself, such as a pattern, stands between two of these:
 * "dynamic." NB_DOC_QUOTE "%s" NB_DOC_QUOTE ".bits".  Longer ones are never found. */
#define NB_DOC_QUOTE "\x1f"
enum { NB_DOC_KEY_BYTES = 256 };

/* name is used in error lines (usually the path).  Limits: 16 MiB, depth 64,
 * no duplicate keys, no trailing bytes. */
nb_status nb_doc_parse(nb_str json, const char *name, nb_doc **out, nb_error *err);
nb_status nb_doc_read(const char *path, nb_doc **out, nb_error *err);
/* A file of MODEL: in its directory; where MODEL is a file, that is its config.json and it has no
 * other.  Of a GGUF it is made of the metadata, without a config.json of params.json (params.h).  *out is NULL when an absent file is allowed (may_lack). */
nb_status nb_doc_read_model(const char *model, const char *name, bool may_lack, nb_doc **out,
                            nb_error *err);
void nb_doc_destroy(nb_doc *d);
const char *nb_doc_name(const nb_doc *d);

/* All getters read below `prefix` set by nb_doc_at ("" at first): a checkpoint
 * whose fields lie under text_config is read with prefix "text_config". */
void nb_doc_at(nb_doc *d, const char *prefix);

bool nb_doc_has(const nb_doc *d, const char *path);    /* present and not null */
bool nb_doc_present(const nb_doc *d, const char *key); /* a member of that name, null or not */
bool nb_doc_u64(nb_doc *d, const char *path, uint64_t lo, uint64_t hi, uint64_t *out);
bool nb_doc_size(nb_doc *d, const char *path, size_t lo, size_t hi, size_t *out);
bool nb_doc_f64(nb_doc *d, const char *path, double *out); /* integers accepted    */
bool nb_doc_bool(nb_doc *d, const char *path, bool *out);
bool nb_doc_str(nb_doc *d, const char *path, const char **out); /* terminated, no NUL inside */
bool nb_doc_is_object(const nb_doc *d, const char *path);
bool nb_doc_is_bool(const nb_doc *d, const char *path);
bool nb_doc_is_str(const nb_doc *d, const char *path);
/* Arrays of numbers or a single number ("eos_token_id"): up to max values, count in *n. */
bool nb_doc_u64s(nb_doc *d, const char *path, uint64_t hi, uint64_t *out, size_t max, size_t *n);
bool nb_doc_f64s(nb_doc *d, const char *path, double *out, size_t max, size_t *n);
bool nb_doc_strs(nb_doc *d, const char *path, const char **out, size_t max, size_t *n);
/* Keys of the object at path, in file order: their number; the first max in out (NULL with 0). */
size_t nb_doc_keys(const nb_doc *d, const char *path, const char **out, size_t max);

nb_status nb_doc_check(const nb_doc *d, nb_error *err); /* the first error, or NB_OK */
#endif
