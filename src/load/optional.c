/* optional.c - see optional.h. */
#include "load/optional.h"

#include "load/gguf.h"
#include "load/hub.h"
#include "load/load_internal.h"
#include "os/file.h"

nb_status nb_optional_find(const char *dir, const char *name, nb_buf *path, bool *found,
                           nb_error *err)
{
    nb_error why = { 0 };
    *found = false;
    if (nb_path_join(path, dir, name) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(dir).s);
    const nb_status st = nb_path_found(path->p, found, &why);
    if (st == NB_OK) return NB_OK;
    (void)nb_hub_missing(dir, NB_ERR_NOT_FOUND, &why);
    return nb_fail(err, st, "%s", why.msg);
}

nb_status nb_optional_read(const char *dir, const char *name, size_t max_bytes, nb_buf *out,
                           bool *found, nb_error *err)
{
    nb_buf path = { 0 };
    bool is_gguf = false;
    NB_TRY(nb_gguf_read_text(dir, name, out, &is_gguf, found, err));
    if (is_gguf) return NB_OK;
    nb_status st = nb_optional_find(dir, name, &path, found, err);
    if (st == NB_OK && *found) st = nb_file_read(path.p, max_bytes, out, err);
    nb_buf_deinit(&path);
    return st;
}
