/* store.c - see store.h.
 *
 * What has its final name is whole: content and links are made under another name and renamed. */
#define _DEFAULT_SOURCE /* flock */
#include "hub/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "load/hub.h"
#include "load/json.h"
#include "os/file.h"

enum { LINK_BYTES = 4096, LOCK_MODE = 0664 };
static const char incomplete[] = ".incomplete";
static const char tag_name[] = "CACHEDIR.TAG";
/* So that backup programs leave the folder out: https://bford.info/cachedir/ */
static const char tag_text[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                               "# A cache of files that can be downloaded again.\n";

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "out of memory");
}

static nb_status failed(const char *path, const char *what, nb_error *err)
{
    return nb_fail(err, NB_ERR_IO, "%s: cannot %s: %s", nb_show_path(path).s, what,
                   strerror(errno));
}

/* out = dir/name + end */
static nb_status join(nb_buf *out, const nb_buf *dir, const char *name, const char *end,
                      nb_error *err)
{
    if (nb_path_join(out, dir->p, name) == NB_OK && nb_buf_add_c(out, end) == NB_OK) return NB_OK;
    return no_memory(err);
}

nb_status nb_hub_store_init(nb_hub_store *s, const char *cache, const char *repo, nb_error *err)
{
    nb_buf all_locks = { 0 };
    nb_status st = nb_buf_add_c(&s->cache, cache) == NB_OK ? NB_OK : no_memory(err);
    if (st == NB_OK) st = nb_hub_folder(cache, repo, &s->folder, err);
    if (st == NB_OK) st = join(&s->blobs, &s->folder, "blobs", "", err);
    if (st == NB_OK) st = join(&all_locks, &s->cache, ".locks", "", err);
    if (st == NB_OK) st = nb_hub_folder(all_locks.p, repo, &s->locks, err);
    nb_buf_deinit(&all_locks);
    return st;
}

void nb_hub_store_deinit(nb_hub_store *s)
{
    nb_buf_deinit(&s->cache);
    nb_buf_deinit(&s->folder);
    nb_buf_deinit(&s->blobs);
    nb_buf_deinit(&s->locks);
}

/* Makes the folders of a path: all of it, or (parents) what comes before the last name. */
static nb_status make_folders(const char *path, bool parents, nb_error *err)
{
    nb_buf b = { 0 };
    if (nb_buf_add_c(&b, path) != NB_OK) return no_memory(err);
    nb_status st = NB_OK;
    for (char *p = b.p + 1; st == NB_OK && (*p || !parents); p++) {
        if (*p && *p != '/') continue;
        const char was = *p;
        *p = 0;
        if (mkdir(b.p, 0777) != 0 && !nb_path_is_dir(b.p)) st = failed(b.p, "make the folder", err);
        *p = was;
        if (!was) break;
    }
    nb_buf_deinit(&b);
    return st;
}

nb_status nb_hub_store_make(const nb_hub_store *s, nb_error *err)
{
    NB_TRY(make_folders(s->blobs.p, false, err));
    NB_TRY(make_folders(s->locks.p, false, err));
    nb_buf tag = { 0 };
    nb_status st = join(&tag, &s->cache, tag_name, "", err);
    if (st == NB_OK && !nb_path_is_file(tag.p)) /* nothing depends on it */
        (void)nb_file_write(tag.p, tag_text, sizeof tag_text - 1, NULL);
    nb_buf_deinit(&tag);
    return st;
}

nb_status nb_hub_store_free(const nb_hub_store *s, uint64_t *n_bytes, nb_error *err)
{
    struct statvfs v;
    nb_buf at = { 0 };
    if (nb_buf_add_str(&at, nb_buf_view(&s->blobs)) != NB_OK) return no_memory(err);
    int rc = statvfs(at.p, &v);
    while (rc != 0 && errno == ENOENT && strchr(at.p, '/')) { /* the nearest folder that is there */
        char *slash = strrchr(at.p, '/');
        slash[slash == at.p] = 0;
        rc = statvfs(at.p, &v);
        if (slash == at.p) break;
    }
    if (rc != 0 && errno == ENOENT) rc = statvfs(".", &v);
    const nb_status st = rc == 0 ? NB_OK : failed(s->blobs.p, "ask for free space of", err);
    if (st == NB_OK) *n_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    nb_buf_deinit(&at);
    return st;
}

/* ---- blobs ---------------------------------------------------------------- */

/* The size of blobs/HASH + end; UINT64_MAX: no such file. */
static uint64_t blob_bytes(const nb_hub_store *s, const char *hash, const char *end)
{
    struct stat st;
    nb_buf path = { 0 };
    uint64_t n = UINT64_MAX;
    if (join(&path, &s->blobs, hash, end, NULL) == NB_OK && stat(path.p, &st) == 0 &&
        S_ISREG(st.st_mode))
        n = (uint64_t)st.st_size;
    nb_buf_deinit(&path);
    return n;
}

bool nb_hub_store_has(const nb_hub_store *s, const char *hash, uint64_t n_bytes)
{
    return blob_bytes(s, hash, "") == n_bytes;
}

uint64_t nb_hub_store_partial(const nb_hub_store *s, const char *hash)
{
    const uint64_t n = blob_bytes(s, hash, incomplete);
    return n == UINT64_MAX ? 0 : n;
}

static int open_file(const char *path, int flags, mode_t mode)
{
    int fd;
    do {
        fd = open(path, flags | O_CREAT | O_CLOEXEC | O_NOCTTY, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

nb_status nb_hub_store_lock(const nb_hub_store *s, const char *hash, int *fd, nb_error *err)
{
    nb_buf path = { 0 };
    struct stat held, named;
    NB_TRY(join(&path, &s->locks, hash, ".lock", err));
    *fd = open_file(path.p, O_RDWR, LOCK_MODE);
    nb_status st = *fd >= 0 ? NB_OK : failed(path.p, "open", err);
    /* A file system without locks: two downloads then take twice the traffic, no more. */
    if (st == NB_OK && flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno != ENOLCK && errno != ENOTSUP &&
        errno != ENOSYS) {
        if (errno != EWOULDBLOCK && errno != EINTR) st = failed(path.p, "lock", err);
        (void)close(*fd);
        *fd = -1;
    } else if (st == NB_OK && (fstat(*fd, &held) != 0 || stat(path.p, &named) != 0 ||
                               held.st_ino != named.st_ino || held.st_dev != named.st_dev)) {
        (void)close(*fd); /* its owner removed it meanwhile: it locks nothing */
        *fd = -1;
    }
    nb_buf_deinit(&path);
    return st;
}

void nb_hub_store_unlock(int fd)
{
    if (fd >= 0) (void)close(fd);
}

nb_status nb_hub_store_open(const nb_hub_store *s, const char *hash, int *fd, nb_error *err)
{
    nb_buf path = { 0 };
    NB_TRY(join(&path, &s->blobs, hash, incomplete, err));
    *fd = open_file(path.p, O_RDWR | O_NOFOLLOW, 0666);
    const nb_status st = *fd >= 0 ? NB_OK : failed(path.p, "create", err);
    nb_buf_deinit(&path);
    return st;
}

void nb_hub_store_drop(const nb_hub_store *s, const char *hash)
{
    nb_buf path = { 0 };
    if (join(&path, &s->blobs, hash, incomplete, NULL) == NB_OK) (void)unlink(path.p);
    nb_buf_deinit(&path);
}

nb_status nb_hub_store_keep(const nb_hub_store *s, const char *hash, int fd, nb_error *err)
{
    nb_buf from = { 0 }, to = { 0 };
    nb_status st = join(&from, &s->blobs, hash, incomplete, err);
    if (st == NB_OK) st = join(&to, &s->blobs, hash, "", err);
    /* Once it has its name nobody looks at its content again: it must be on the disk. */
    if (st == NB_OK && fsync(fd) != 0 && errno != EINVAL) st = failed(from.p, "write", err);
    if (st == NB_OK && rename(from.p, to.p) != 0) st = failed(to.p, "create", err);
    nb_buf_deinit(&from);
    nb_buf_deinit(&to);
    return st;
}

/* ---- snapshots, references --------------------------------------------------- */

nb_status nb_hub_store_snapshot(const nb_hub_store *s, const char *commit, nb_buf *out,
                                nb_error *err)
{
    return join(out, &s->folder, "snapshots/", commit, err);
}

/* The link's text: up from snapshots/COMMIT/PATH, then blobs/HASH. */
static nb_status link_target(const char *path, const char *hash, nb_buf *out, nb_error *err)
{
    nb_status st = nb_buf_add_c(out, "../../");
    for (const char *p = path; st == NB_OK && *p; p++)
        if (*p == '/') st = nb_buf_add_c(out, "../");
    if (st == NB_OK) st = nb_buf_add_c(out, "blobs/");
    if (st == NB_OK) st = nb_buf_add_c(out, hash);
    return st == NB_OK ? NB_OK : no_memory(err);
}

static bool is_link_to(const char *path, const char *target)
{
    char text[LINK_BYTES];
    const ssize_t n = readlink(path, text, sizeof text);
    return n > 0 && (size_t)n == strlen(target) && memcmp(text, target, (size_t)n) == 0;
}

/* Replaces what has the name, at once. */
static nb_status put_link(const char *path, const char *target, nb_error *err)
{
    nb_buf tmp = { 0 };
    if (nb_buf_printf(&tmp, "%s.%ld.tmp", path, (long)getpid()) != NB_OK) return no_memory(err);
    nb_status st = NB_OK;
    (void)unlink(tmp.p);
    if (symlink(target, tmp.p) != 0) {
        st = errno == EPERM || errno == ENOTSUP
                 ? nb_fail(err, NB_ERR_IO,
                           "%s: this file system has no symbolic links, and the hub cache needs "
                           "them: choose another place with --cache-dir or HF_HUB_CACHE",
                           nb_show_path(path).s)
                 : failed(path, "make a link", err);
    } else if (rename(tmp.p, path) != 0) {
        st = failed(path, "make a link", err);
        (void)unlink(tmp.p);
    }
    nb_buf_deinit(&tmp);
    return st;
}

nb_status nb_hub_store_link(const nb_hub_store *s, const char *commit, const char *path,
                            const char *hash, nb_error *err)
{
    nb_buf snapshot = { 0 }, name = { 0 }, target = { 0 };
    nb_status st = nb_hub_store_snapshot(s, commit, &snapshot, err);
    if (st == NB_OK) st = join(&name, &snapshot, path, "", err);
    if (st == NB_OK) st = make_folders(name.p, true, err);
    if (st == NB_OK) st = link_target(path, hash, &target, err);
    if (st == NB_OK && !is_link_to(name.p, target.p)) st = put_link(name.p, target.p, err);
    nb_buf_deinit(&snapshot);
    nb_buf_deinit(&name);
    nb_buf_deinit(&target);
    return st;
}

nb_status nb_hub_store_ref(const nb_hub_store *s, const char *revision, const char *commit,
                           nb_error *err)
{
    nb_buf path = { 0 }, tmp = { 0 }, was = { 0 };
    if (strcmp(revision, commit) == 0) return NB_OK;
    nb_status st = join(&path, &s->folder, "refs/", revision, err);
    /* A cache that is whole may be read-only. */
    if (st == NB_OK && nb_path_is_file(path.p) && nb_file_read(path.p, 80, &was, NULL) == NB_OK &&
        nb_str_eqc(nb_buf_view(&was), commit))
        goto out;
    if (st == NB_OK) st = make_folders(path.p, true, err);
    if (st == NB_OK && nb_buf_printf(&tmp, "%s.%ld.tmp", path.p, (long)getpid()) != NB_OK)
        st = no_memory(err);
    if (st == NB_OK) st = nb_file_write(tmp.p, commit, strlen(commit), err);
    if (st == NB_OK && rename(tmp.p, path.p) != 0) {
        st = failed(path.p, "create", err);
        (void)unlink(tmp.p);
    }
out:
    nb_buf_deinit(&was);
    nb_buf_deinit(&path);
    nb_buf_deinit(&tmp);
    return st;
}
