/* dir.c - folders: listing, making, removing (file.h). */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/file.h"

static nb_status failed(const char *path, const char *what, nb_error *err)
{
    const size_t n = strlen(path);
    return nb_fail(err, NB_ERR_IO, "%s%s: cannot %s: %s", n > 200 ? "..." : "",
                   path + (n > 200 ? n - 200 : 0), what, strerror(errno));
}

nb_status nb_dir_each(const char *dir, nb_dir_fn *fn, void *ctx, nb_error *err)
{
    DIR *d = opendir(dir);
    if (!d) return failed(dir, "list it", err);
    nb_status st = NB_OK;
    while (st == NB_OK) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) {
            if (errno) st = failed(dir, "list it", err);
            break;
        }
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            st = fn(ctx, e->d_name, err);
    }
    (void)closedir(d);
    return st;
}

nb_status nb_dir_make_new(const char *dir, nb_error *err)
{
    return mkdir(dir, 0777) == 0 ? NB_OK : failed(dir, "make the folder", err);
}

static nb_status remove_one(void *ctx, const char *name, nb_error *err)
{
    (void)err;
    nb_buf path = { 0 };
    if (nb_path_join(&path, ctx, name) == NB_OK) (void)unlink(path.p);
    nb_buf_deinit(&path);
    return NB_OK;
}

void nb_dir_remove(const char *dir)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s", dir);
    (void)nb_dir_each(dir, remove_one, path, NULL);
    (void)rmdir(dir);
}

nb_status nb_path_rename(const char *from, const char *to, nb_error *err)
{
    return rename(from, to) == 0 ? NB_OK : failed(to, "give it its name", err);
}
