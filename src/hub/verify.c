/* verify.c - see verify.h. */
#include "hub/verify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hub/crew.h"
#include "hub/digest.h"
#include "load/hub.h"
#include "load/json.h"
#include "load/source.h"
#include "os/file.h"

enum { MAX_DEPTH = 16, MAX_FILES = 100000, LINK_BYTES = 4096 };

void nb_hub_checks_deinit(nb_hub_checks *c)
{
    free(c->p);
    nb_arena_deinit(&c->text);
    *c = (nb_hub_checks){ 0 };
}

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "out of memory");
}

static nb_status add(nb_hub_checks *c, const char *name, const char *hash, nb_error *err)
{
    nb_hub_check x = { .name = nb_arena_strdup(&c->text, nb_str_c(name)),
                       .verdict = NB_HUB_UNHASHED };
    if (c->n >= MAX_FILES)
        return nb_fail(err, NB_ERR_LIMIT, "more than %d files to check", MAX_FILES);
    if (!x.name || NB_GROW(c->p, c->cap, c->n) != NB_OK) return no_memory(err);
    memcpy(x.hash, hash, strlen(hash) + 1);
    c->p[c->n++] = x;
    return NB_OK;
}

/* ---- what is there ---------------------------------------------------------- */

/* The hash that a link of a hub cache names: ../../blobs/HASH. */
static void link_hash(const char *path, char hash[65])
{
    char text[LINK_BYTES];
    const ssize_t n = readlink(path, text, sizeof text - 1);
    hash[0] = 0;
    if (n <= 0) return;
    text[n] = 0;
    const char *name = strrchr(text, '/');
    static const char blobs[] = "blobs";
    if (!name || !nb_hub_is_hash(name + 1)) return;
    const size_t n_before = (size_t)(name - text), k = sizeof blobs - 1;
    if (n_before > k && memcmp(name - k, blobs, k) == 0 && name[-(ptrdiff_t)k - 1] == '/')
        memcpy(hash, name + 1, strlen(name + 1) + 1);
}

static nb_status walk(nb_hub_checks *c, const char *dir, const char *below, int depth,
                      nb_error *err);

/* One entry of a folder; name is relative to the top. */
static nb_status take_entry(nb_hub_checks *c, const char *dir, const char *name, int depth,
                            nb_error *err)
{
    char hash[65];
    struct stat st;
    nb_buf path = { 0 };
    nb_status s = nb_path_join(&path, dir, name) == NB_OK ? NB_OK : no_memory(err);
    if (s == NB_OK && lstat(path.p, &st) == 0 && S_ISDIR(st.st_mode)) {
        s = walk(c, dir, name, depth + 1, err);
    } else if (s == NB_OK) {
        link_hash(path.p, hash);
        s = add(c, name, hash, err);
        if (s == NB_OK && stat(path.p, &st) == 0 && S_ISREG(st.st_mode))
            c->n_bytes += (uint64_t)st.st_size;
    }
    nb_buf_deinit(&path);
    return s;
}

static nb_status walk(nb_hub_checks *c, const char *dir, const char *below, int depth,
                      nb_error *err)
{
    nb_buf path = { 0 }, name = { 0 };
    if (depth > MAX_DEPTH)
        return nb_fail(err, NB_ERR_LIMIT, "%s: folders nested deeper than %d",
                       nb_show_path(below).s, MAX_DEPTH);
    if (nb_path_join(&path, dir, below) != NB_OK) return no_memory(err);
    DIR *d = opendir(*below ? path.p : dir);
    nb_status st =
        d ? NB_OK
          : nb_fail(err, NB_ERR_IO, "%s: cannot list: %s", nb_show_path(path.p).s, strerror(errno));
    for (const struct dirent *e; st == NB_OK && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        st = nb_path_join(&name, below, e->d_name) == NB_OK ? NB_OK : no_memory(err);
        if (st == NB_OK) st = take_entry(c, dir, name.p, depth, err);
    }
    if (d) (void)closedir(d);
    nb_buf_deinit(&path);
    nb_buf_deinit(&name);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const nb_hub_check *)a)->name, ((const nb_hub_check *)b)->name);
}

nb_status nb_hub_checks_walk(nb_hub_checks *c, const char *dir, nb_error *err)
{
    NB_TRY(walk(c, dir, "", 0, err));
    if (c->n) qsort(c->p, c->n, sizeof *c->p, by_name);
    c->n_walked = c->n;
    return NB_OK;
}

static nb_hub_check *find(nb_hub_checks *c, const char *name)
{
    const nb_hub_check key = { .name = name };
    return c->n_walked ? bsearch(&key, c->p, c->n_walked, sizeof key, by_name) : NULL;
}

/* ---- what is expected --------------------------------------------------------- */

/* One line; *hash is terminated in place, lower case. */
static bool split_line(char *line, char **hash, char **name)
{
    const size_t n = strspn(line, "0123456789abcdefABCDEF");
    if (n != 64 || line[n] != ' ' || (line[n + 1] != ' ' && line[n + 1] != '*')) return false;
    line[n] = 0;
    for (char *p = line; *p; p++)
        if (*p >= 'A' && *p <= 'F') *p = (char)(*p - 'A' + 'a');
    *hash = line;
    *name = line + n + 2;
    if (strncmp(*name, "./", 2) == 0) *name += 2;
    return nb_path_is_inside(*name);
}

static nb_status take_line(nb_hub_checks *c, char *line, const char *file, size_t number,
                           nb_error *err)
{
    char *hash, *name;
    if (!split_line(line, &hash, &name))
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s:%zu: expected 64 hexadecimal digits, two blanks and the name of a file "
                       "in the folder",
                       nb_show_path(file).s, number);
    nb_hub_check *x = find(c, name);
    if (x)
        memcpy(x->hash, hash, 65);
    else
        return add(c, name, hash, err); /* it will be missed */
    return NB_OK;
}

nb_status nb_hub_checks_sums(nb_hub_checks *c, nb_str text, const char *name, nb_error *err)
{
    nb_buf line = { 0 };
    nb_status st = NB_OK;
    size_t at = 0, number = 0;
    while (st == NB_OK && at < text.n_bytes) {
        const char *end = memchr(text.p + at, '\n', text.n_bytes - at);
        size_t n = end ? (size_t)(end - text.p) - at : text.n_bytes - at;
        const size_t next = at + n + 1;
        if (n && text.p[at + n - 1] == '\r') n--;
        number++;
        line.n_bytes = 0;
        if (nb_buf_add(&line, text.p + at, n) != NB_OK)
            st = no_memory(err);
        else if (memchr(line.p, 0, n))
            st = nb_fail(err, NB_ERR_FORMAT, "%s:%zu: a NUL character", nb_show_path(name).s,
                         number);
        else if (n && line.p[0] != '#')
            st = take_line(c, line.p, name, number, err);
        at = next;
    }
    nb_buf_deinit(&line);
    return st;
}

nb_status nb_hub_checks_list(nb_hub_checks *c, const nb_hub_list *l, nb_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        nb_hub_check *x = find(c, l->file[i].path);
        if (!x) continue;
        memcpy(x->hash, l->file[i].hash, sizeof x->hash);
        n++;
    }
    if (n) return NB_OK;
    return nb_fail(err, NB_ERR_NOT_FOUND, "none of the files here is in the hub's list of %zu",
                   l->n);
}

/* ---- checking -------------------------------------------------------------------- */

typedef struct verify_run {
    nb_hub_checks *c;
    const char *dir;
    nb_hub_crew crew;
    _Atomic uint64_t n_read;
    void (*watch)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
} verify_run;

/* The text lives in the arena, which the workers share. */
static nb_status is_bad(verify_run *r, nb_hub_check *x, const char *why, nb_error *err)
{
    x->verdict = NB_HUB_BAD;
    nb_mutex_lock(r->crew.lock);
    x->why = nb_arena_strdup(&r->c->text, nb_str_c(why));
    nb_mutex_unlock(r->crew.lock);
    return x->why ? NB_OK : no_memory(err);
}

static bool is_safetensors(const char *name)
{
    static const char end[] = ".safetensors";
    const size_t n = strlen(name), k = sizeof end - 1;
    return n >= k && strcmp(name + n - k, end) == 0;
}

static nb_status check_structure(verify_run *r, nb_hub_check *x, const char *path, nb_error *err)
{
    nb_error why = { 0 };
    nb_source *s = NULL;
    const nb_status st = nb_source_open_file(path, &s, &why);
    nb_source_close(s);
    if (st == NB_ERR_NOMEM) return nb_fail(err, st, "%s", why.msg);
    return st == NB_OK ? NB_OK : is_bad(r, x, why.msg, err);
}

static nb_status check_hash(verify_run *r, nb_hub_check *x, int fd, uint64_t n_bytes, nb_error *err)
{
    char hex[65] = "", text[400];
    nb_error why = { 0 };
    nb_hub_digest d = { 0 };
    nb_status st = nb_hub_digest_begin(&d, x->hash, n_bytes, err);
    if (st == NB_OK) {
        st = nb_hub_digest_fd(&d, fd, x->name, n_bytes, &r->crew.stop, &r->n_read, &why);
        if (st == NB_OK) nb_hub_digest_end(&d, hex);
        if (st == NB_ERR_CANCELLED || st == NB_ERR_NOMEM) (void)nb_fail(err, st, "%s", why.msg);
    }
    nb_hub_digest_deinit(&d);
    if (st == NB_ERR_IO) return is_bad(r, x, why.msg, err);
    if (st != NB_OK) return st;
    x->verdict = NB_HUB_GOOD;
    if (strcmp(hex, x->hash) == 0) return NB_OK;
    (void)snprintf(text, sizeof text, "its %s is %s, expected %s",
                   strlen(x->hash) == 40 ? "SHA-1 as git computes it" : "SHA-256", hex, x->hash);
    return is_bad(r, x, text, err);
}

static nb_status check_file(void *ctx, size_t item, size_t worker, nb_error *err)
{
    verify_run *r = ctx;
    nb_hub_check *x = &r->c->p[item];
    struct stat st;
    nb_buf path = { 0 };
    (void)worker;
    if (nb_path_join(&path, r->dir, x->name) != NB_OK) return no_memory(err);
    const int fd = open(path.p, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    nb_status s = NB_OK;
    if (fd < 0)
        s = is_bad(r, x, errno == ENOENT ? "it is missing" : strerror(errno), err);
    else if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        s = is_bad(r, x, "it is no regular file", err);
    else if (x->hash[0])
        s = check_hash(r, x, fd, (uint64_t)st.st_size, err);
    else if (is_safetensors(x->name))
        s = check_structure(r, x, path.p, err);
    if (fd >= 0) (void)close(fd);
    nb_buf_deinit(&path);
    return s;
}

static void on_watch(void *ctx)
{
    const verify_run *r = ctx;
    r->watch(r->ctx, atomic_load(&r->n_read), r->c->n_bytes);
}

/* What an index promises, all shards together. */
static nb_status check_model(verify_run *r, nb_error *err)
{
    static const char index[] = "model.safetensors.index.json";
    nb_hub_check *x = find(r->c, index);
    nb_error why = { 0 };
    nb_source *s = NULL;
    if (!x || x->verdict == NB_HUB_BAD || find(r->c, "model.safetensors")) return NB_OK;
    for (size_t i = 0; i < r->c->n; i++) /* then that says it */
        if (is_safetensors(r->c->p[i].name) && r->c->p[i].verdict == NB_HUB_BAD) return NB_OK;
    const nb_status st = nb_source_open_dir(r->dir, &s, &why);
    nb_source_close(s);
    return st == NB_OK ? NB_OK : is_bad(r, x, why.msg, err);
}

nb_status nb_hub_checks_run(nb_hub_checks *c, const char *dir, size_t n_job,
                            const atomic_bool *stop,
                            void (*watch)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                            nb_error *err)
{
    verify_run r = { .c = c, .dir = dir, .watch = watch, .ctx = ctx };
    r.crew.n_item = c->n;
    r.crew.n_worker = n_job;
    r.crew.work = check_file;
    r.crew.watch = watch ? on_watch : NULL;
    r.crew.ctx = &r;
    r.crew.interrupt = stop;
    NB_TRY(nb_hub_crew_init(&r.crew, err));
    nb_status st = nb_hub_crew_run(&r.crew, err);
    if (st == NB_OK) st = check_model(&r, err);
    nb_hub_crew_deinit(&r.crew);
    return st;
}
