/* hub.c - see hub.h.  Names from outside (ids, and the commit in a file of refs/) are checked before
 * they become part of a path. */
#include "load/hub.h"

#include <ctype.h>
#include <stdlib.h>

#include "load/load_internal.h"
#include "os/file.h"
#include "os/lib.h"
#include "os/sys.h"

enum { NAME_MAX_BYTES = 96, REF_MAX_BYTES = 256, SHORTEST_COMMIT = 5, BUNDLED_BYTES = 4096 };

/* ---- ids ---------------------------------------------------------------- */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* An organisation or a name: letters, digits, '_', and inside also '-' and '.', no two of them. */
static bool is_name(const char *s, size_t n)
{
    if (n == 0 || n > NAME_MAX_BYTES || !is_word(s[0]) || !is_word(s[n - 1])) return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_word(s[i]) && s[i] != '-' && s[i] != '.') return false;
        if (i && s[i] == s[i - 1] && !is_word(s[i])) return false;
    }
    return true;
}

static bool is_revision(const char *s)
{
    const size_t n = strlen(s);
    if (n >= sizeof((nb_hub_id *)0)->revision || !nb_path_is_inside(s)) return false;
    for (size_t i = 0; i < n; i++)
        if (!is_word(s[i]) && !strchr("-+./", s[i])) return false;
    return true;
}

bool nb_hub_id_parse(const char *text, nb_hub_id *out)
{
    const size_t n = strcspn(text, "@");
    const char *slash = memchr(text, '/', n);
    const char *revision = text[n] ? text + n + 1 : "main";
    if (!slash || n >= sizeof out->repo || !is_name(text, (size_t)(slash - text)) ||
        !is_name(slash + 1, n - (size_t)(slash - text) - 1) || !is_revision(revision))
        return false;
    memset(out, 0, sizeof *out);
    memcpy(out->repo, text, n);
    memcpy(out->revision, revision, strlen(revision));
    return true;
}

static bool is_hex(const char *s, size_t n)
{
    return n && strspn(s, "0123456789abcdef") == n && s[n] == 0;
}

bool nb_hub_is_hash(const char *s)
{
    const size_t n = strlen(s);
    return (n == 40 || n == 64) && is_hex(s, n);
}

/* ---- folders ------------------------------------------------------------ */

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "out of memory");
}

static nb_status join(nb_buf *out, const char *dir, const char *name, nb_error *err)
{
    return nb_path_join(out, dir, name) == NB_OK ? NB_OK : no_memory(err);
}

/* A folder that a variable names; a leading ~/ is the home folder, as huggingface_hub has it. */
static nb_status from_variable(const char *value, nb_buf *out, nb_error *err)
{
    const char *home = nb_os_env("HOME");
    if (value[0] == '~' && (value[1] == '/' || !value[1]) && home)
        return join(out, home, value[1] ? value + 2 : "", err);
    out->n_bytes = 0;
    return nb_buf_add_c(out, value) == NB_OK ? NB_OK : no_memory(err);
}

/* out = out/name */
static nb_status below(nb_buf *out, const char *name, nb_error *err)
{
    nb_buf all = { 0 };
    const nb_status st = join(&all, out->p, name, err);
    nb_buf_deinit(out);
    *out = all;
    return st;
}

nb_status nb_hub_home(nb_buf *out, nb_error *err)
{
    const char *home = nb_os_env("HF_HOME"), *cache = nb_os_env("XDG_CACHE_HOME");
    if (home) return from_variable(home, out, err);
    if (cache) {
        NB_TRY(from_variable(cache, out, err));
    } else {
        const char *user = nb_os_env("HOME");
        if (!user)
            return nb_fail(err, NB_ERR_NOT_FOUND,
                           "neither HF_HOME nor HOME is set: where is the hub cache?");
        NB_TRY(join(out, user, ".cache", err));
    }
    return below(out, "huggingface", err);
}

nb_status nb_hub_cache(nb_buf *out, nb_error *err)
{
    const char *cache = nb_os_env("HF_HUB_CACHE");
    if (!cache) cache = nb_os_env("HUGGINGFACE_HUB_CACHE");
    if (cache) return from_variable(cache, out, err);
    NB_TRY(nb_hub_home(out, err));
    return below(out, "hub", err);
}

nb_status nb_hub_folder(const char *cache, const char *repo, nb_buf *out, nb_error *err)
{
    const char *slash = strchr(repo, '/');
    NB_ASSERT(slash != NULL);
    NB_TRY(join(out, cache, "models--", err));
    const nb_str org = { repo, (size_t)(slash - repo) };
    nb_status st = nb_buf_add_str(out, org);
    if (st == NB_OK) st = nb_buf_add_c(out, "--");
    if (st == NB_OK) st = nb_buf_add_c(out, slash + 1);
    return st == NB_OK ? NB_OK : no_memory(err);
}

/* ---- lookup ------------------------------------------------------------- */

/* The commit in folder/refs/revision, or "": no such file, or no commit in it. */
static nb_status read_ref(const char *folder, const char *revision, char commit[65], nb_error *err)
{
    nb_buf path = { 0 }, text = { 0 };
    nb_status st = join(&path, folder, "refs", err);
    if (st == NB_OK) st = below(&path, revision, err);
    commit[0] = 0;
    if (st == NB_OK && nb_path_is_file(path.p) &&
        nb_file_read(path.p, REF_MAX_BYTES, &text, NULL) == NB_OK && text.n_bytes) {
        text.p[strcspn(text.p, " \t\r\n")] = 0;
        if (nb_hub_is_hash(text.p)) memcpy(commit, text.p, strlen(text.p) + 1);
    }
    nb_buf_deinit(&path);
    nb_buf_deinit(&text);
    return st;
}

/* The snapshot whose commit begins with `part`, of which there must be one. */
static nb_status find_commit(const char *folder, const nb_hub_id *id, char commit[65],
                             nb_error *err)
{
    nb_buf dir = { 0 }, name = { 0 };
    size_t n = 0;
    nb_status st = join(&dir, folder, "snapshots", err);
    if (st == NB_OK && nb_path_is_dir(dir.p))
        st = nb_dir_find_folder(dir.p, id->revision, &name, &n, err);
    if (st == NB_OK && n > 1)
        st = nb_fail(err, NB_ERR_ARG,
                     "%s@%s: %zu commits in the hub cache begin so: more digits are needed",
                     id->repo, id->revision, n);
    commit[0] = 0;
    if (st == NB_OK && n == 1 && nb_hub_is_hash(name.p)) memcpy(commit, name.p, name.n_bytes + 1);
    nb_buf_deinit(&dir);
    nb_buf_deinit(&name);
    return st;
}

/* "`nibble pull ORG/NAME`", with the revision where it is not main. */
typedef struct pull_command {
    char s[440];
} pull_command;
static pull_command command_for(const char *repo, const char *revision)
{
    pull_command c;
    const bool is_main = strcmp(revision, "main") == 0;
    (void)snprintf(c.s, sizeof c.s, "`nibble pull %s%s%s`", repo, is_main ? "" : "@",
                   is_main ? "" : revision);
    return c;
}

static nb_status not_there(const char *cache, const char *folder, const nb_hub_id *id,
                           nb_error *err)
{
    const pull_command pull = command_for(id->repo, id->revision);
    if (!nb_path_is_dir(folder))
        return nb_fail(err, NB_ERR_NOT_FOUND,
                       "%s: no such folder, and not in the hub cache %s; %s downloads it", id->repo,
                       nb_show_path(cache).s, pull.s);
    return nb_fail(err, NB_ERR_NOT_FOUND,
                   "%s: revision %s is not in the hub cache %s, or its download has not finished; "
                   "%s downloads it or goes on",
                   id->repo, id->revision, nb_show_path(cache).s, pull.s);
}

nb_status nb_hub_find(const char *cache, const nb_hub_id *id, nb_buf *out, nb_error *err)
{
    nb_buf folder = { 0 }, path = { 0 };
    char commit[65];
    nb_status st;
    NB_TRY_OUT(nb_hub_folder(cache, id->repo, &folder, err));
    NB_TRY_OUT(read_ref(folder.p, id->revision, commit, err));
    const size_t n = strlen(id->revision);
    if (!commit[0] && n >= SHORTEST_COMMIT && is_hex(id->revision, n))
        NB_TRY_OUT(find_commit(folder.p, id, commit, err));
    if (commit[0]) {
        NB_TRY_OUT(join(&path, folder.p, "snapshots", err));
        NB_TRY_OUT(below(&path, commit, err));
    }
    if (commit[0] && nb_path_is_dir(path.p)) {
        nb_buf_deinit(out);
        *out = path;
        path = (nb_buf){ 0 };
    } else {
        st = not_there(cache, folder.p, id, err);
    }
out:
    nb_buf_deinit(&folder);
    nb_buf_deinit(&path);
    return st;
}

/* A model that is installed with nibble. */
static bool find_bundled(const char *name, char path[BUNDLED_BYTES])
{
    char below[NAME_MAX_BYTES + 16];
    if (!is_name(name, strlen(name))) return false;
    (void)snprintf(below, sizeof below, "models/%s", name);
    return nb_installed_path(NB_PLACE_DATA, below, path, BUNDLED_BYTES);
}

nb_status nb_hub_model_path(const char *model, nb_buf *out, nb_error *err)
{
    nb_hub_id id;
    const bool exists = nb_path_is_dir(model) || nb_path_is_file(model) || nb_path_is_other(model);
    if (exists || !nb_hub_id_parse(model, &id)) {
        char bundled[BUNDLED_BYTES];
        const char *path = !exists && find_bundled(model, bundled) ? bundled : model;
        out->n_bytes = 0;
        return nb_buf_add_c(out, path) == NB_OK ? NB_OK : no_memory(err);
    }
    nb_buf cache = { 0 };
    nb_status st = nb_hub_cache(&cache, err);
    if (st == NB_OK) st = nb_hub_find(cache.p, &id, out, err);
    nb_buf_deinit(&cache);
    return st;
}

/* ---- what is missing in a snapshot ---------------------------------------- */

/* dir is FOLDER/models--ORG--NAME/snapshots/COMMIT: fills id and the length of the part before
 * /snapshots. */
static bool is_snapshot(const char *dir, nb_hub_id *id, size_t *n_folder)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    static const char models[] = "models--", snapshots[] = "/snapshots/";
    const char *at = NULL, *p = dir;
    while ((p = strstr(p, snapshots)) != NULL) at = p++;
    if (!at) return false;
    const char *commit = at + sizeof snapshots - 1;
    const size_t n_commit = n - (size_t)(commit - dir);
    const char *name = at;
    while (name > dir && name[-1] != '/') name--;
    if (strncmp(name, models, sizeof models - 1) != 0 || n_commit >= sizeof id->revision)
        return false;
    name += sizeof models - 1;
    const char *dashes = strstr(name, "--");
    char text[sizeof id->repo + sizeof id->revision];
    if (!dashes || dashes > at) return false;
    const int len = snprintf(text, sizeof text, "%.*s/%.*s@%.*s", (int)(dashes - name), name,
                             (int)(at - dashes) - 2, dashes + 2, (int)n_commit, commit);
    *n_folder = (size_t)(at - dir);
    return len > 0 && (size_t)len < sizeof text && nb_hub_id_parse(text, id) &&
           nb_hub_is_hash(id->revision);
}

nb_status nb_hub_missing(const char *dir, nb_status st, nb_error *err)
{
    nb_hub_id id;
    size_t n_folder = 0;
    char commit[65] = "";
    if (st != NB_ERR_NOT_FOUND || !err || !is_snapshot(dir, &id, &n_folder)) return st;
    nb_buf folder = { 0 };
    if (nb_buf_add(&folder, dir, n_folder) == NB_OK) (void)read_ref(folder.p, "main", commit, NULL);
    nb_buf_deinit(&folder);
    const nb_error what = *err;
    const bool is_main = strcmp(commit, id.revision) == 0;
    return nb_fail(err, st, "%.700s; %s downloads what is missing", what.msg,
                   command_for(id.repo, is_main ? "main" : id.revision).s);
}
