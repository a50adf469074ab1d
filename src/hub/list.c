/* list.c - see list.h. */
#include "hub/list.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "load/hub.h"
#include "load/json.h"
#include "os/file.h"

enum {
    ANSWER_MAX_BYTES = 64 << 20,
    ANSWER_MAX_DEPTH = 32,
    ANSWER_MAX_VALUES = 4 << 20,
    MAX_FILES = 100000,
    NAME_MAX_BYTES = 230, /* of a component: room for the suffix of a temporary name */
    PATH_MAX_BYTES = 1000
};
static const nb_json_limits answer_limits = { ANSWER_MAX_BYTES, ANSWER_MAX_DEPTH,
                                              ANSWER_MAX_VALUES };
static const uint64_t FILE_MAX_BYTES = (uint64_t)1 << 46;

void nb_hub_list_deinit(nb_hub_list *l)
{
    free(l->file);
    nb_arena_deinit(&l->names);
    *l = (nb_hub_list){ 0 };
}

nb_status nb_hub_parse_commit(nb_str json, const char *name, char commit[65], nb_error *err)
{
    json_t *root = NULL;
    NB_TRY(nb_json_parse(json, name, &answer_limits, &root, err));
    const json_t *sha = json_object_get(root, "sha");
    nb_status st = NB_OK;
    if (json_is_string(sha) && nb_hub_is_hash(json_string_value(sha)))
        memcpy(commit, json_string_value(sha), json_string_length(sha) + 1);
    else
        st = nb_fail(err, NB_ERR_FORMAT, "%s: sha is %s, expected a commit: is this a hub?",
                     nb_show_path(name).s, sha ? nb_json_describe(sha).s : "missing");
    json_decref(root);
    return st;
}

/* ---- a page of files ------------------------------------------------------ */

/* Why a path cannot be a file of a snapshot, or NULL. */
static const char *bad_path(const char *path)
{
    size_t n = 0;
    if (!nb_path_is_inside(path)) return "it is not a relative path inside the repository";
    if (strlen(path) > PATH_MAX_BYTES) return "it is too long";
    for (const char *p = path; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '\\')
            return "it has a backslash or a control character";
        n = *p == '/' ? 0 : n + 1;
        if (n > NAME_MAX_BYTES) return "one of its names is too long";
    }
    return NULL;
}

static nb_status bad_entry(const char *name, const char *path, const char *why, nb_error *err)
{
    return nb_fail(err, NB_ERR_FORMAT, "%s: the file '%s' is refused: %s", nb_show_path(name).s,
                   nb_show_c(path).s, why);
}

static nb_status read_size(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        (uint64_t)json_integer_value(v) > FILE_MAX_BYTES)
        return NB_ERR_FORMAT;
    *out = (uint64_t)json_integer_value(v);
    return NB_OK;
}

/* Git names a file by SHA-1; large files are stored beside it (LFS, Xet) and named by SHA-256. */
static nb_status read_entry(const json_t *e, const char *name, nb_hub_list *l, nb_error *err)
{
    const char *path = json_string_value(json_object_get(e, "path"));
    const json_t *lfs = json_object_get(e, "lfs");
    const bool is_lfs = json_is_object(lfs);
    const char *hash = json_string_value(json_object_get(is_lfs ? lfs : e, "oid"));
    nb_hub_file f = { 0 };
    uint64_t n_lfs = 0;
    if (!path) return bad_entry(name, "", "it has no path", err);
    const char *why = bad_path(path);
    if (why) return bad_entry(name, path, why, err);
    if (read_size(json_object_get(e, "size"), &f.n_bytes) != NB_OK)
        return bad_entry(name, path, "its size is no number of bytes that a file has", err);
    if (is_lfs && (read_size(json_object_get(lfs, "size"), &n_lfs) != NB_OK || n_lfs != f.n_bytes))
        return bad_entry(name, path, "its two sizes differ", err);
    if (!hash || !nb_hub_is_hash(hash) || strlen(hash) != (is_lfs ? 64u : 40u))
        return bad_entry(name, path, "it has no SHA-256, and no SHA-1 of git", err);
    if (l->n >= MAX_FILES)
        return nb_fail(err, NB_ERR_LIMIT, "%s: more files than the limit of %d",
                       nb_show_path(name).s, MAX_FILES);
    memcpy(f.hash, hash, strlen(hash) + 1);
    f.path = nb_arena_strdup(&l->names, nb_str_c(path));
    if (!f.path || NB_GROW(l->file, l->cap, l->n) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(name).s);
    l->n_bytes += f.n_bytes; /* 100,000 times 2^46 is below 2^63 */
    l->file[l->n++] = f;
    return NB_OK;
}

nb_status nb_hub_parse_tree(nb_str json, const char *name, nb_hub_list *l, nb_error *err)
{
    json_t *root = NULL;
    NB_TRY(nb_json_parse(json, name, &answer_limits, &root, err));
    nb_status st = NB_OK;
    if (!json_is_array(root))
        st = nb_fail(err, NB_ERR_FORMAT, "%s: the list of files is %s, expected an array",
                     nb_show_path(name).s, nb_json_describe(root).s);
    for (size_t i = 0; st == NB_OK && i < json_array_size(root); i++) {
        const json_t *e = json_array_get(root, i);
        const char *type = json_string_value(json_object_get(e, "type"));
        if (type && strcmp(type, "directory") == 0) continue;
        st = type && strcmp(type, "file") == 0
                 ? read_entry(e, name, l, err)
                 : nb_fail(err, NB_ERR_FORMAT, "%s: entry %zu is no file and no directory",
                           nb_show_path(name).s, i);
    }
    json_decref(root);
    return st;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const nb_hub_file *)a)->path, ((const nb_hub_file *)b)->path);
}

nb_status nb_hub_list_sort(nb_hub_list *l, const char *name, nb_error *err)
{
    if (l->n) qsort(l->file, l->n, sizeof *l->file, by_path);
    for (size_t i = 1; i < l->n; i++)
        if (by_path(&l->file[i - 1], &l->file[i]) == 0)
            return bad_entry(name, l->file[i].path, "it is listed twice", err);
    return NB_OK;
}

/* ---- pages ---------------------------------------------------------------- */

/* <URL>; param; param, <URL>; ... */
bool nb_hub_next_page(const char *link, char *url, size_t n_bytes)
{
    const char *p = link;
    while ((p = strchr(p, '<')) != NULL) {
        const char *end = strchr(p, '>');
        if (!end) return false;
        const char *params = end + 1;
        const size_t n_params = strcspn(params, "<");
        const size_t n = (size_t)(end - p) - 1;
        char word[256];
        (void)snprintf(word, sizeof word, "%.*s", (int)(n_params < 255 ? n_params : 255), params);
        if (strstr(word, "rel=\"next\"") || strstr(word, "rel=next")) {
            if (n == 0 || n >= n_bytes) return false;
            memcpy(url, p + 1, n);
            url[n] = 0;
            return true;
        }
        p = params + n_params;
    }
    return false;
}

/* ---- selection ------------------------------------------------------------ */

/* What src/load, src/text and src/model read, and what a person needs with it.  At the top only. */
// clang-format off
static const char *const usable[] = {
    "config.json", "generation_config.json", "hf_quant_config.json", "params.json",
    "*.safetensors", "*.safetensors.index.json",
    "tokenizer*", "tiktoken.model", "tekken.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "vocab.txt", "*.jinja", "chat_template.json",
    "LICENSE*", "README.md"
};
// clang-format on
/* Of these, copies of the weights in another layout. */
static const char *const unusable[] = { "consolidated*", "*.py" };

static bool matches(const char *pattern, const char *path, int flags)
{
    const size_t n = strlen(pattern);
    if (n && pattern[n - 1] == '/') return strncmp(pattern, path, n) == 0;
    return fnmatch(pattern, path, FNM_NOESCAPE | flags) == 0;
}

static bool any(nb_hub_globs g, const char *path, int flags)
{
    for (size_t i = 0; i < g.n; i++)
        if (matches(g.p[i], path, flags)) return true;
    return false;
}

static bool is_usable(const char *path)
{
    return any((nb_hub_globs){ usable, NB_COUNT(usable) }, path, FNM_PATHNAME) &&
           !any((nb_hub_globs){ unusable, NB_COUNT(unusable) }, path, FNM_PATHNAME);
}

/* Whether the weights are there in Mistral's own layout alone. */
static bool only_consolidated(const nb_hub_list *l)
{
    bool has = false;
    for (size_t i = 0; i < l->n; i++) {
        const char *path = l->file[i].path;
        if (matches("*.safetensors", path, FNM_PATHNAME) && is_usable(path)) return false;
        has |= matches("consolidated*.safetensors", path, FNM_PATHNAME);
    }
    return has;
}

void nb_hub_list_select(nb_hub_list *l, nb_hub_globs include, nb_hub_globs exclude)
{
    size_t n = 0;
    const bool consolidated = only_consolidated(l);
    l->n_bytes = 0;
    for (size_t i = 0; i < l->n; i++) {
        const char *path = l->file[i].path;
        const bool usual = is_usable(path) ||
                           (consolidated && matches("consolidated*.safetensors*", path, FNM_PATHNAME));
        const bool wanted = include.n ? any(include, path, 0) : usual;
        if (!wanted || any(exclude, path, 0)) continue;
        l->n_bytes += l->file[i].n_bytes;
        l->file[n++] = l->file[i];
    }
    l->n = n;
}
