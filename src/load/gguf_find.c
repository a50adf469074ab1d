/* gguf_find.c - the GGUF of a MODEL: the file itself, or the one in a folder. */
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
    if (nb_path_is_dir(model)) return in_folder(model, path, found, err);
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
