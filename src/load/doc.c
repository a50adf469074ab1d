/* doc.c - see doc.h.
 *
 * A path is resolved component by component from the root through the prefix.  Absent
 * and null are the same thing (Hugging Face writes null for "use the default"), but a
 * component that exists and is no object is a mistake in the file and is remembered.
 * Strings and keys that are handed out belong to the jansson tree, which nobody
 * changes after the parse. */
#include "load/doc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load/gguf.h"
#include "load/hub.h"
#include "load/load_internal.h"
#include "load/optional.h"
#include "load/params.h"
#include "os/file.h"

enum { DOC_MAX_BYTES = 16 << 20, DOC_MAX_DEPTH = 64, DOC_MAX_VALUES = 1 << 20 };
enum { DOC_MAX_KEY_BYTES = NB_DOC_KEY_BYTES, DOC_MAX_PATH_BYTES = 2 * NB_DOC_KEY_BYTES };

struct nb_doc {
    json_t *root;
    char *name;
    char prefix[DOC_MAX_PATH_BYTES];
    nb_error first; /* status NB_OK: none */
};

nb_status nb_doc_parse(nb_str json, const char *name, nb_doc **out, nb_error *err)
{
    const nb_json_limits lim = { DOC_MAX_BYTES, DOC_MAX_DEPTH, DOC_MAX_VALUES };
    json_t *root = NULL;
    NB_TRY(nb_json_parse(json, name, &lim, &root, err));
    nb_doc *d = calloc(1, sizeof *d);
    char *own = malloc(strlen(name) + 1);
    if (!d || !own) {
        free(d);
        free(own);
        json_decref(root);
        return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(name).s);
    }
    memcpy(own, name, strlen(name) + 1);
    d->root = root;
    d->name = own;
    *out = d;
    return NB_OK;
}

nb_status nb_doc_read(const char *path, nb_doc **out, nb_error *err)
{
    nb_buf text = { 0 };
    nb_status st = nb_file_read(path, DOC_MAX_BYTES, &text, err);
    if (st == NB_OK) st = nb_doc_parse(nb_buf_view(&text), path, out, err);
    nb_buf_deinit(&text);
    return st;
}

/* A folder in Mistral's own layout: the configuration is made of its params.json. */
static nb_status read_params(const char *dir, nb_doc **out, bool *found, nb_error *err)
{
    nb_buf path = { 0 }, text = { 0 }, config = { 0 };
    nb_status st = nb_optional_find(dir, "params.json", &path, found, err);
    if (st == NB_OK && *found) st = nb_file_read(path.p, DOC_MAX_BYTES, &text, err);
    if (st == NB_OK && *found) st = nb_params_config(nb_buf_view(&text), path.p, &config, err);
    if (st == NB_OK && *found) st = nb_doc_parse(nb_buf_view(&config), path.p, out, err);
    nb_buf_deinit(&path);
    nb_buf_deinit(&text);
    nb_buf_deinit(&config);
    return st;
}

nb_status nb_doc_read_model(const char *model, const char *name, bool may_lack, nb_doc **out,
                            nb_error *err)
{
    nb_buf path = { 0 };
    nb_doc *d = NULL;
    bool found = false, is_gguf = false;
    nb_buf text = { 0 };
    nb_status st = nb_gguf_read_text(model, name, &text, &is_gguf, &found, err);
    if (st == NB_OK && is_gguf) {
        if (found) st = nb_doc_parse(nb_buf_view(&text), model, &d, err);
        nb_buf_deinit(&text);
        if (st == NB_OK) *out = d;
        return st;
    }
    nb_buf_deinit(&text);
    NB_TRY(st);
    if (nb_path_is_dir(model))
        st = nb_optional_find(model, name, &path, &found, err);
    else if (!strcmp(name, "config.json"))
        st = nb_buf_add_c(&path, model) == NB_OK ? NB_OK
                                                 : nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (st == NB_OK && !found && path.n_bytes && !strcmp(name, "config.json") &&
        nb_path_is_dir(model)) {
        bool is_params = false;
        st = read_params(model, &d, &is_params, err);
        if (is_params || st != NB_OK) {
            nb_buf_deinit(&path);
            if (st == NB_OK) *out = d;
            return st;
        }
    }
    if (st == NB_OK && path.n_bytes == 0 && !may_lack)
        st = nb_fail(err, NB_ERR_NOT_FOUND, "%s: no directory, so it has no %s", model, name);
    if (st == NB_OK && path.n_bytes && (found || !may_lack))
        st = nb_hub_missing(model, nb_doc_read(path.p, &d, err), err);
    nb_buf_deinit(&path);
    if (st == NB_OK) *out = d;
    return st;
}

void nb_doc_destroy(nb_doc *d)
{
    if (!d) return;
    json_decref(d->root);
    free(d->name);
    free(d);
}

const char *nb_doc_name(const nb_doc *d)
{
    return d->name;
}

void nb_doc_at(nb_doc *d, const char *prefix)
{
    const size_t n = strlen(prefix);
    NB_ASSERT(n < sizeof d->prefix); /* prefixes are written in the code, not in files */
    memcpy(d->prefix, prefix, n + 1);
}

/* Length of the first component of a path, and where it begins: one in quotes may have dots. */
static size_t component(const char *path, const char **begin, const char **next)
{
    const char *const quoted = *path == NB_DOC_QUOTE[0] ? strchr(path + 1, NB_DOC_QUOTE[0]) : NULL;
    *begin = quoted ? path + 1 : path;
    const size_t n = quoted ? (size_t)(quoted - *begin) : strcspn(path, ".");
    *next = *begin + n + (quoted != NULL);
    *next += **next == '.';
    return n;
}

/* One step of a lookup: the components of path below v.  Returns NULL when absent or
 * null.  *not_object is set to the end of the component that should be an object. */
static json_t *walk(json_t *v, const char *path, const char **not_object)
{
    while (v && *path) {
        const char *begin, *next;
        const size_t n = component(path, &begin, &next);
        char key[DOC_MAX_KEY_BYTES];
        if (!json_is_object(v)) {
            if (!json_is_null(v)) *not_object = path;
            return NULL;
        }
        if (n >= sizeof key) return NULL;
        memcpy(key, begin, n);
        key[n] = 0;
        v = json_object_get(v, key);
        path = next;
    }
    return v && !json_is_null(v) ? v : NULL;
}

static void full_path(const nb_doc *d, const char *path, char out[2 * DOC_MAX_PATH_BYTES])
{
    (void)snprintf(out, 2 * DOC_MAX_PATH_BYTES, "%s%s%s", d->prefix, *d->prefix && *path ? "." : "",
                   path);
}

static const json_t *find(const nb_doc *d, const char *path, const char **not_object)
{
    char full[2 * DOC_MAX_PATH_BYTES];
    full_path(d, path, full);
    const char *bad = NULL;
    const json_t *v = walk(d->root, full, &bad);
    if (bad && not_object) *not_object = bad;
    return v;
}

/* Remembers the first complaint about a path. */
static void complain(nb_doc *d, const char *path, const char *found, const char *fmt, ...)
    NB_PRINTF(4, 5);
static void complain(nb_doc *d, const char *path, const char *found, const char *fmt, ...)
{
    if (d->first.status != NB_OK) return;
    char full[2 * DOC_MAX_PATH_BYTES], expected[200];
    full_path(d, path, full);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(expected, sizeof expected, fmt, ap);
    va_end(ap);
    (void)nb_fail(&d->first, NB_ERR_FORMAT, "%s: %s: expected %s, found %s",
                  nb_show_path(d->name).s, *full ? nb_show_c(full).s : "the document", expected,
                  found);
}

/* The value at path for a getter, or NULL; complains about a broken path. */
static const json_t *get(nb_doc *d, const char *path)
{
    char full[2 * DOC_MAX_PATH_BYTES];
    full_path(d, path, full);
    const char *bad = NULL;
    const json_t *v = walk(d->root, full, &bad);
    if (bad && d->first.status == NB_OK) {
        const size_t n = bad > full ? (size_t)(bad - full) - 1 : 0;
        (void)nb_fail(&d->first, NB_ERR_FORMAT, "%s: %s: expected an object, found another type",
                      nb_show_path(d->name).s, n ? nb_show((nb_str){ full, n }).s : "the document");
    }
    return v;
}

bool nb_doc_has(const nb_doc *d, const char *path)
{
    return find(d, path, NULL) != NULL;
}

bool nb_doc_present(const nb_doc *d, const char *key)
{
    const json_t *at = find(d, "", NULL);
    return json_is_object(at) && json_object_get(at, key) != NULL;
}

bool nb_doc_is_object(const nb_doc *d, const char *path)
{
    return json_is_object(find(d, path, NULL));
}

bool nb_doc_is_bool(const nb_doc *d, const char *path)
{
    return json_is_boolean(find(d, path, NULL));
}

bool nb_doc_is_str(const nb_doc *d, const char *path)
{
    return json_is_string(find(d, path, NULL));
}

static bool to_u64(nb_doc *d, const char *path, const json_t *v, uint64_t lo, uint64_t hi,
                   uint64_t *out)
{
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        const uint64_t u = (uint64_t)json_integer_value(v);
        if (u >= lo && u <= hi) {
            *out = u;
            return true;
        }
    }
    complain(d, path, nb_json_describe(v).s, "an integer from %llu to %llu", (unsigned long long)lo,
             (unsigned long long)hi);
    return false;
}

bool nb_doc_u64(nb_doc *d, const char *path, uint64_t lo, uint64_t hi, uint64_t *out)
{
    const json_t *v = get(d, path);
    return v && to_u64(d, path, v, lo, hi, out);
}

bool nb_doc_size(nb_doc *d, const char *path, size_t lo, size_t hi, size_t *out)
{
    uint64_t u = 0;
    if (!nb_doc_u64(d, path, lo, hi, &u)) return false;
    *out = (size_t)u;
    return true;
}

static bool to_f64(nb_doc *d, const char *path, const json_t *v, double *out)
{
    if (!json_is_number(v)) {
        complain(d, path, nb_json_describe(v).s, "a number");
        return false;
    }
    *out = json_number_value(v);
    return true;
}

bool nb_doc_f64(nb_doc *d, const char *path, double *out)
{
    const json_t *v = get(d, path);
    return v && to_f64(d, path, v, out);
}

bool nb_doc_bool(nb_doc *d, const char *path, bool *out)
{
    const json_t *v = get(d, path);
    if (!v) return false;
    if (!json_is_boolean(v)) {
        complain(d, path, nb_json_describe(v).s, "true or false");
        return false;
    }
    *out = json_is_true(v);
    return true;
}

static bool to_str(nb_doc *d, const char *path, const json_t *v, const char **out)
{
    if (!json_is_string(v)) {
        complain(d, path, nb_json_describe(v).s, "a string");
        return false;
    }
    *out = json_string_value(v);
    return true;
}

bool nb_doc_str(nb_doc *d, const char *path, const char **out)
{
    const json_t *v = get(d, path);
    return v && to_str(d, path, v, out);
}

/* The number of items at path (a lone value counts as one); false when there are none
 * to read: absent, or more than max. */
static bool n_items(nb_doc *d, const char *path, size_t max, const json_t **v, size_t *n)
{
    *v = get(d, path);
    if (!*v) return false;
    *n = json_is_array(*v) ? json_array_size(*v) : 1;
    if (*n <= max) return true;
    complain(d, path, nb_json_describe(*v).s, "at most %zu values", max);
    return false;
}

static const json_t *item(const json_t *v, size_t i)
{
    return json_is_array(v) ? json_array_get(v, i) : v;
}

bool nb_doc_u64s(nb_doc *d, const char *path, uint64_t hi, uint64_t *out, size_t max, size_t *n)
{
    const json_t *v;
    size_t count;
    if (!n_items(d, path, max, &v, &count)) return false;
    for (size_t i = 0; i < count; i++)
        if (!to_u64(d, path, item(v, i), 0, hi, &out[i])) return false;
    *n = count;
    return true;
}

bool nb_doc_f64s(nb_doc *d, const char *path, double *out, size_t max, size_t *n)
{
    const json_t *v;
    size_t count;
    if (!n_items(d, path, max, &v, &count)) return false;
    for (size_t i = 0; i < count; i++)
        if (!to_f64(d, path, item(v, i), &out[i])) return false;
    *n = count;
    return true;
}

bool nb_doc_strs(nb_doc *d, const char *path, const char **out, size_t max, size_t *n)
{
    const json_t *v;
    size_t count;
    if (!n_items(d, path, max, &v, &count)) return false;
    for (size_t i = 0; i < count; i++)
        if (!to_str(d, path, item(v, i), &out[i])) return false;
    *n = count;
    return true;
}

size_t nb_doc_keys(const nb_doc *d, const char *path, const char **out, size_t max)
{
    const json_t *v = find(d, path, NULL);
    if (!json_is_object(v)) return 0;
    size_t n = 0;
    /* jansson's iterators want a mutable object; nothing is changed through them. */
    json_t *o = (json_t *)(uintptr_t)v;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        if (n < max) out[n] = json_object_iter_key(it);
        n++;
    }
    return n;
}

nb_status nb_doc_check(const nb_doc *d, nb_error *err)
{
    if (d->first.status != NB_OK && err) *err = d->first;
    return d->first.status;
}
