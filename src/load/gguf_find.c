/* gguf_find.c - the GGUF of a MODEL: the file itself, the one in a folder, or the one in a folder's only folder that holds
 * some, since repositories have a folder for each quantisation. */
#include <stdio.h>

#include "load/gguf.h"
#include "load/load_internal.h"

bool nb_gguf_is(const char *path)
{
    char magic[4];
    return nb_path_is_file(path) &&
           nb_file_read_into(path, magic, sizeof magic, NULL, NULL, NULL) == NB_OK &&
           memcmp(magic, "GGUF", sizeof magic) == 0;
}

static size_t count(const char *dir, const char *suffix, nb_buf *first)
{
    size_t n = 0;
    return nb_dir_find(dir, suffix, first, &n, NULL) == NB_OK ? n : 0;
}

/* Whether the n files of which `first` has the smallest name are the shards of one model. */
static bool is_split(const char *dir, const char *first, size_t n)
{
    unsigned no = 0, of = 0;
    char suffix[32];
    nb_buf name = { 0 };
    if (!nb_gguf_split_name(first, &no, &of) || no != 1 || of != n) return false;
    (void)snprintf(suffix, sizeof suffix, "-of-%05u.gguf", of);
    const bool all = count(dir, suffix, &name) == n;
    nb_buf_deinit(&name);
    return all;
}

typedef struct folders {
    const char *dir;
    nb_buf *path; /* of one that holds GGUF files */
    size_t n;
} folders;

static nb_status look_into(void *ctx, const char *name, nb_error *err)
{
    folders *f = ctx;
    nb_buf path = { 0 }, file = { 0 };
    nb_status st = nb_path_join(&path, f->dir, name);
    if (st == NB_OK && nb_path_is_dir(path.p) && count(path.p, ".gguf", &file)) {
        f->n++;
        f->path->n_bytes = 0;
        st = nb_buf_add_c(f->path, path.p);
    }
    nb_buf_deinit(&path);
    nb_buf_deinit(&file);
    return st == NB_OK ? st : nb_fail(err, st, "%s: out of memory", nb_show_path(f->dir).s);
}

/* The only folder of dir that holds GGUF files; *n: how many do. */
static nb_status only_folder(const char *dir, nb_buf *path, size_t *n, nb_error *err)
{
    folders f = { .dir = dir, .path = path };
    NB_TRY(nb_dir_each(dir, look_into, &f, err));
    *n = f.n;
    if (f.n <= 1) return NB_OK;
    return nb_fail(err, NB_ERR_ARG,
                   "%s: %zu folders in it hold GGUF files; --gguf-file FOLDER/NAME chooses a file, or its first shard",
                   nb_show_path(dir).s, f.n);
}

static bool has_config(const char *dir)
{
    nb_buf path = { 0 };
    const bool has = nb_path_join(&path, dir, "config.json") == NB_OK && nb_path_is_file(path.p);
    nb_buf_deinit(&path);
    return has;
}

static nb_status in_folder(const char *dir, nb_buf *path, bool *found, nb_error *err)
{
    nb_buf name = { 0 };
    nb_status st = NB_OK;
    *found = false;
    const size_t n = count(dir, ".safetensors", &name) ? 0 : count(dir, ".gguf", &name);
    if (n > 1 && !is_split(dir, name.p, n))
        st = nb_fail(err, NB_ERR_ARG,
                     "%s: holds %zu GGUF files; --gguf-file NAME chooses one, such as %s, or the "
                     "first shard of a split one",
                     nb_show_path(dir).s, n, nb_show(nb_buf_view(&name)).s);
    if (st == NB_OK && n) {
        *found = true;
        st = nb_path_join(path, dir, name.p);
        if (st != NB_OK) st = nb_fail(err, st, "%s: out of memory", nb_show_path(dir).s);
    }
    nb_buf_deinit(&name);
    return st;
}

nb_status nb_gguf_resolve(const char *model, nb_buf *path, bool *found, nb_error *err)
{
    if (nb_path_is_dir(model)) {
        nb_buf folder = { 0 };
        size_t n = 0;
        nb_status st = in_folder(model, path, found, err);
        if (st == NB_OK && !*found && !has_config(model)) st = only_folder(model, &folder, &n, err);
        if (st == NB_OK && n) st = in_folder(folder.p, path, found, err);
        nb_buf_deinit(&folder);
        return st;
    }
    *found = nb_gguf_is(model);
    path->n_bytes = 0;
    if (!*found || nb_buf_add_c(path, model) == NB_OK) return NB_OK;
    return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(model).s);
}

nb_status nb_gguf_read_text(const char *model, const char *name, nb_buf *out, bool *is_gguf,
                            bool *found, nb_error *err)
{
    nb_buf path = { 0 };
    nb_gguf *g = NULL;
    *found = false;
    nb_status st = nb_gguf_resolve(model, &path, is_gguf, err);
    if (st == NB_OK && *is_gguf) {
        st = nb_gguf_open(path.p, &g, err);
        if (st == NB_OK) st = nb_gguf_text(g, name, out, found, err);
        nb_gguf_close(g);
    }
    nb_buf_deinit(&path);
    return st;
}
