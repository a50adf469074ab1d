/* file.c - see file.h.
 *
 * Files are opened without blocking (a fifo would wait for a writer), checked to be
 * regular through the open descriptor (so the answer is about what is read), and
 * closed at once: a mapping outlives its descriptor, so the number of shards is not
 * bound by the limit on open files.  Sizes reported by the system bound mappings
 * only; reading goes on to the end of file, since files in /proc report 0. */
#define _DEFAULT_SOURCE /* madvise, MAP_ANONYMOUS, MAP_NORESERVE */
#include "os/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "os/map_guard.h"

enum {
    READ_STEP_BYTES = 64 * 1024,
    PIECE_BYTES = 16 << 20,
    LONGEST_PATH = 400,
    HUGE_BYTES = 2 << 20
};

/* The last part of a long path: the file's name matters, and the line is bounded. */
static const char *tail(const char *path)
{
    const size_t n = strlen(path);
    return n > LONGEST_PATH ? path + (n - LONGEST_PATH) : path;
}

static nb_status fail_errno(nb_error *err, const char *path, const char *what, int e)
{
    const nb_status s = e == ENOENT ? NB_ERR_NOT_FOUND : e == ENOMEM ? NB_ERR_NOMEM : NB_ERR_IO;
    return nb_fail(err, s, "%s: cannot %s: %s", tail(path), what, strerror(e));
}

static const char *kind_name(mode_t m)
{
    if (S_ISDIR(m)) return "a directory";
    if (S_ISFIFO(m)) return "a fifo";
    if (S_ISSOCK(m)) return "a socket";
    return "a device";
}

static bool is_own_stream(const char *path)
{
    return strcmp(path, "/dev/stdin") == 0 || strncmp(path, "/dev/fd/", 8) == 0;
}

/* An open descriptor of a regular file (or, with streams, of the caller's own
 * descriptors), or -1 with *err set. */
static int open_read(const char *path, bool streams, struct stat *st, nb_status *s, nb_error *err)
{
    const bool stream = streams && is_own_stream(path);
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (stream ? 0 : O_NONBLOCK));
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        *s = fail_errno(err, path, "open", errno);
        return -1;
    }
    if (fstat(fd, st) != 0) {
        *s = fail_errno(err, path, "open", errno);
    } else if (S_ISREG(st->st_mode) || (stream && !S_ISDIR(st->st_mode))) {
        return fd;
    } else {
        *s = nb_fail(err, NB_ERR_IO, "%s: is %s, expected a regular file", tail(path),
                     kind_name(st->st_mode));
    }
    (void)close(fd);
    return -1;
}

static int64_t ns_of(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static nb_file_state state_of(const struct stat *st)
{
    return (nb_file_state){ .device = (uint64_t)st->st_dev,
                            .inode = (uint64_t)st->st_ino,
                            .n_bytes = (uint64_t)st->st_size,
                            .modified_ns = ns_of(st->st_mtim),
                            .changed_ns = ns_of(st->st_ctim) };
}

static nb_status map(int fd, const char *path, nb_file_map *m, nb_error *err)
{
    void *p = mmap(NULL, m->n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return fail_errno(err, path, "map", errno);
    const nb_status s = nb_map_guard_add(p, m->n_bytes, &m->guard);
    if (s != NB_OK) {
        (void)munmap(p, m->n_bytes);
        return nb_fail(err, s, "%s: cannot guard the mapping: %s", tail(path), nb_status_text(s));
    }
    m->p = p;
    return NB_OK;
}

nb_status nb_file_mmap(const char *path, nb_file_map *m, nb_error *err)
{
    struct stat st;
    nb_status s = NB_OK;
    const int fd = open_read(path, false, &st, &s, err);
    if (fd < 0) return s;
    nb_file_map got = { .state = state_of(&st) };
    if ((uintmax_t)st.st_size > SIZE_MAX / 2) {
        s = nb_fail(err, NB_ERR_LIMIT, "%s: too large to map", tail(path));
    } else if (st.st_size > 0) {
        got.n_bytes = (size_t)st.st_size;
        s = map(fd, path, &got, err);
    }
    (void)close(fd);
    if (s == NB_OK) *m = got;
    return s;
}

void nb_file_unmap(nb_file_map *m)
{
    nb_map_guard_remove(m->guard);
    if (m->p) (void)munmap((void *)(uintptr_t)m->p, m->n_bytes);
    *m = (nb_file_map){ 0 };
}

nb_status nb_file_map_fault(const nb_file_map *m, const char *path, nb_error *err)
{
    size_t at;
    if (!m->guard || !nb_map_guard_fault(m->guard, &at)) return NB_OK;
    return nb_fail(err, NB_ERR_IO,
                   "%s: cannot be read at byte %zu: the file was truncated, or its disk fails",
                   tail(path), at);
}

/* Of pages from the first to the last; never 0. */
static uint64_t sample_of(const nb_file_map *m)
{
    enum { PAGES = 64, PAGE = 4096 };
    uint64_t h = 1;
    const size_t last = m->n_bytes > PAGE ? m->n_bytes - PAGE : 0;
    for (size_t i = 0; i < PAGES && m->n_bytes; i++) {
        const size_t at = last / (PAGES - 1) * i + (i == PAGES - 1 ? last % (PAGES - 1) : 0);
        h = nb_hash_bytes(m->p + at, m->n_bytes < PAGE ? m->n_bytes : PAGE, h);
    }
    return h ? h : 1;
}

void nb_file_map_sample(nb_file_map *m)
{
    m->sample = sample_of(m);
}

nb_status nb_file_map_check(nb_file_map *m, const char *path, bool *replaced, nb_error *err)
{
    struct stat st;
    NB_TRY(nb_file_map_fault(m, path, err));
    const bool found = stat(path, &st) == 0;
    const nb_file_state now = found ? state_of(&st) : (nb_file_state){ 0 }, was = m->state;
    const bool other = !found || now.device != was.device || now.inode != was.inode;
    if (replaced) *replaced = other;
    if (other) return NB_OK;
    if (now.n_bytes != was.n_bytes)
        return nb_fail(err, NB_ERR_IO, "%s: was changed in place: it had %llu bytes and has %llu",
                       tail(path), (unsigned long long)was.n_bytes,
                       (unsigned long long)now.n_bytes);
    const bool touched = now.changed_ns != was.changed_ns && m->sample;
    if (now.modified_ns != was.modified_ns || (touched && sample_of(m) != m->sample))
        return nb_fail(err, NB_ERR_IO, "%s: was changed in place", tail(path));
    m->state = now;
    return NB_OK;
}

nb_status nb_file_read_into(const char *path, void *p, size_t n_bytes, nb_file_report_fn *report,
                            void *ctx, nb_error *err)
{
    struct stat st;
    nb_status s = NB_OK;
    const int fd = open_read(path, false, &st, &s, err);
    if (fd < 0) return s;
    for (size_t at = 0; s == NB_OK && at < n_bytes;) {
        const size_t want = n_bytes - at < PIECE_BYTES ? n_bytes - at : PIECE_BYTES;
        const ssize_t n = read(fd, (char *)p + at, want);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            s = fail_errno(err, path, "read", errno);
        } else if (n == 0) {
            s = nb_fail(err, NB_ERR_IO, "%s: ends at byte %zu, expected %zu bytes", tail(path), at,
                        n_bytes);
        } else {
            at += (size_t)n;
            if (report) report(ctx, (size_t)n);
        }
    }
    (void)close(fd);
    return s;
}

/* Appends fd's bytes; one byte more than max_bytes is asked for, to see the excess. */
static nb_status read_all(int fd, const char *path, size_t max_bytes, nb_buf *out, nb_error *err)
{
    const size_t before = out->n_bytes;
    nb_status s = NB_OK;
    for (;;) {
        s = nb_buf_reserve(out, READ_STEP_BYTES);
        if (s != NB_OK) {
            (void)nb_fail(err, s, "%s: %s while reading", tail(path), nb_status_text(s));
            break;
        }
        const ssize_t n = read(fd, out->p + out->n_bytes, READ_STEP_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            s = fail_errno(err, path, "read", errno);
            break;
        }
        out->n_bytes += (size_t)n;
        if (out->n_bytes - before > max_bytes) {
            s = nb_fail(err, NB_ERR_LIMIT, "%s: larger than the limit of %zu bytes", tail(path),
                        max_bytes);
            break;
        }
        if (n == 0) break;
    }
    if (s != NB_OK) out->n_bytes = before;
    if (out->p) out->p[out->n_bytes] = 0;
    return s;
}

nb_status nb_file_read(const char *path, size_t max_bytes, nb_buf *out, nb_error *err)
{
    struct stat st;
    nb_status s = NB_OK;
    const int fd = open_read(path, true, &st, &s, err);
    if (fd < 0) return s;
    if (S_ISREG(st.st_mode) && (uintmax_t)st.st_size > max_bytes)
        s = nb_fail(err, NB_ERR_LIMIT, "%s: has %llu bytes, the limit is %zu", tail(path),
                    (unsigned long long)st.st_size, max_bytes);
    else
        s = read_all(fd, path, max_bytes, out, err);
    (void)close(fd);
    return s;
}

nb_status nb_stdin_read(size_t max_bytes, nb_buf *out, nb_error *err)
{
    return read_all(STDIN_FILENO, "standard input", max_bytes, out, err);
}

nb_status nb_file_write(const char *path, const void *p, size_t n_bytes, nb_error *err)
{
    int fd;
    do {
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return fail_errno(err, path, "create", errno);
    const char *b = p;
    while (n_bytes > 0) {
        const ssize_t n = write(fd, b, n_bytes < 1u << 30 ? n_bytes : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const int e = errno;
            (void)close(fd);
            return fail_errno(err, path, "write", e);
        }
        b += n;
        n_bytes -= (size_t)n;
    }
    /* A full disk may show only here. */
    if (close(fd) != 0 && errno != EINTR) return fail_errno(err, path, "write", errno);
    return NB_OK;
}

nb_status nb_file_replace(const char *path, const void *p, size_t n_bytes, nb_error *err)
{
    if (nb_path_is_other(path)) return nb_file_write(path, p, n_bytes, err);
    nb_buf tmp = { 0 };
    nb_status st = nb_buf_printf(&tmp, "%s.tmp", path);
    if (st != NB_OK) {
        st = nb_fail(err, st, "%s: out of memory", path);
    } else {
        st = nb_file_write(tmp.p, p, n_bytes, err);
        if (st == NB_OK && rename(tmp.p, path) != 0) st = fail_errno(err, path, "replace", errno);
        if (st != NB_OK) (void)remove(tmp.p);
    }
    nb_buf_deinit(&tmp);
    return st;
}

nb_status nb_dir_make(const char *path, nb_error *err)
{
    nb_buf b = { 0 };
    if (nb_buf_add_c(&b, path) != NB_OK) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    nb_status st = NB_OK;
    for (char *p = b.p; *p && st == NB_OK;) {
        p += strspn(p, "/");
        p += strcspn(p, "/");
        const char was = *p;
        *p = 0;
        if (mkdir(b.p, 0777) != 0 && !nb_path_is_dir(b.p)) st = fail_errno(err, b.p, "make the folder", errno);
        *p = was;
    }
    nb_buf_deinit(&b);
    return st;
}

nb_status nb_path_found(const char *path, bool *found, nb_error *err)
{
    struct stat st;
    *found = false;
    if (lstat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR ? NB_OK
                                                   : fail_errno(err, path, "look at", errno);
    const bool link = S_ISLNK(st.st_mode);
    if (link && stat(path, &st) != 0)
        return nb_fail(err, NB_ERR_IO, "%s: is a link that leads nowhere (%s)", tail(path),
                       strerror(errno));
    if (!S_ISREG(st.st_mode))
        return nb_fail(err, NB_ERR_IO, "%s: is %s%s, expected a regular file", tail(path),
                       link ? "a link to " : "", kind_name(st.st_mode));
    *found = true;
    return NB_OK;
}

bool nb_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool nb_path_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool nb_path_is_other(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

nb_status nb_path_join(nb_buf *out, const char *dir, const char *name)
{
    const size_t n = strlen(dir);
    out->n_bytes = 0;
    NB_TRY(nb_buf_add(out, dir, n));
    if (n > 0 && dir[n - 1] != '/') NB_TRY(nb_buf_add_ch(out, '/'));
    return nb_buf_add_c(out, name);
}

bool nb_path_is_inside(const char *path)
{
    const char *p = path;
    do {
        const size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
        if (*p == '/' && *++p == 0) return false;
    } while (*p);
    return true;
}

/* What to look for in a folder: files by the end of their names, or folders by the beginning. */
typedef struct entry_want {
    const char *part;
    bool folders;
} entry_want;

static bool wanted(const entry_want *w, const char *name)
{
    const size_t n = strlen(name), k = strlen(w->part);
    return n >= k && memcmp(w->folders ? name : name + n - k, w->part, k) == 0 &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static nb_status find_entries(const char *dir, const entry_want *w, nb_buf *name, size_t *n_match,
                              nb_error *err)
{
    DIR *d = opendir(dir);
    if (!d) return fail_errno(err, dir, "list", errno);
    nb_buf path = { 0 };
    nb_status s = NB_OK;
    size_t n = 0;
    name->n_bytes = 0;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) {
            if (errno != 0) s = fail_errno(err, dir, "list", errno);
            break;
        }
        if (!wanted(w, e->d_name)) continue;
        s = nb_path_join(&path, dir, e->d_name);
        if (s == NB_OK && (w->folders ? nb_path_is_dir(path.p) : nb_path_is_file(path.p)) &&
            (n++ == 0 || strcmp(e->d_name, name->p) < 0)) {
            name->n_bytes = 0;
            s = nb_buf_add_c(name, e->d_name);
        }
        if (s != NB_OK) {
            (void)nb_fail(err, s, "%s: %s", tail(dir), nb_status_text(s));
            break;
        }
    }
    (void)closedir(d);
    nb_buf_deinit(&path);
    if (s == NB_OK) *n_match = n;
    return s;
}

nb_status nb_dir_find(const char *dir, const char *suffix, nb_buf *name, size_t *n_match,
                      nb_error *err)
{
    const entry_want w = { suffix, false };
    return find_entries(dir, &w, name, n_match, err);
}

nb_status nb_dir_find_folder(const char *dir, const char *prefix, nb_buf *name, size_t *n_match,
                             nb_error *err)
{
    const entry_want w = { prefix, true };
    return find_entries(dir, &w, name, n_match, err);
}

static size_t page_bytes(void)
{
    const long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

void nb_pages_touch(const void *p, size_t n_bytes)
{
    if (n_bytes == 0) return;
    const size_t page = page_bytes();
    const uintptr_t begin = (uintptr_t)p / page * page, end = (uintptr_t)p + n_bytes;
    /* Not MADV_WILLNEED: it fills the system's cache with small pages, and where the device reads little ahead it
     * reads at a third of its rate. */
#if defined MADV_POPULATE_READ
    /* Maps whole runs of pages and reads none of their bytes. An older system refuses it, and a page
     * that cannot be read fails it: the loop then meets that page as any reader would. */
    if (madvise((void *)begin, end - begin, MADV_POPULATE_READ) == 0) return;
#endif
    volatile unsigned char sink = 0;
    for (uintptr_t a = (uintptr_t)p; a < end; a = a / page * page + page)
        sink = *(const volatile unsigned char *)a;
    (void)sink;
}

void nb_pages_drop(const void *p, size_t n_bytes)
{
    const size_t page = page_bytes();
    const uintptr_t begin = (uintptr_t)p / page * page;
    const uintptr_t end = ((uintptr_t)p + n_bytes + page - 1) / page * page;
    if (n_bytes) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void nb_pages_prefer_huge(void *p, size_t n_bytes)
{
#if defined MADV_HUGEPAGE
    const uintptr_t begin = ((uintptr_t)p + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    const uintptr_t end = ((uintptr_t)p + n_bytes) / HUGE_BYTES * HUGE_BYTES;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)p;
    (void)n_bytes;
#endif
}

void *nb_pages_alloc(size_t n_bytes)
{
    if (n_bytes == 0) return NULL;
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void nb_pages_free(void *p, size_t n_bytes)
{
    if (p) (void)munmap(p, n_bytes);
}
