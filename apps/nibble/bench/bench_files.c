/* bench_files.c - see bench_files.h. */
#define _GNU_SOURCE /* preadv2, RWF_NOWAIT */
#include "bench_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../cli.h"

enum { MAX_FILES = 100000, READ_BYTES = 1 << 20, PROBES = 64, PATH_BYTES = 4096, DROPS = 4 };

bool bench_is_weights(const char *path)
{
    static const char *const end[] = { ".safetensors", ".gguf" };
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof end / sizeof end[0]; i++) {
        const size_t k = strlen(end[i]);
        if (n >= k && strcmp(path + n - k, end[i]) == 0) return true;
    }
    return false;
}

static int add(bench_files *f, const char *path, uint64_t n_bytes)
{
    if (f->n == MAX_FILES) return cli_failed("%s: more than %d files", path, (int)MAX_FILES);
    bench_file *p = realloc(f->file, (f->n + 1) * sizeof *p);
    if (!p) return cli_failed("out of memory");
    f->file = p;
    p += f->n;
    *p = (bench_file){ strdup(path), n_bytes, bench_is_weights(path) };
    if (!p->path) return cli_failed("out of memory");
    f->n++;
    f->n_weights += p->weights;
    if (p->weights) f->weight_bytes += n_bytes;
    return CLI_OK;
}

int bench_files_list(const char *model, bench_files *f)
{
    struct stat st;
    int code = CLI_OK;
    memset(f, 0, sizeof *f);
    if (stat(model, &st) != 0) return cli_failed("%s: %s", model, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return add(f, model, (uint64_t)st.st_size);
    DIR *d = opendir(model);
    if (!d) return cli_failed("%s: %s", model, strerror(errno));
    for (const struct dirent *e = readdir(d); e && code == CLI_OK; e = readdir(d)) {
        char path[PATH_BYTES];
        const int n = snprintf(path, sizeof path, "%s/%s", model, e->d_name);
        if (n < 0 || (size_t)n >= sizeof path) continue;
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) code = add(f, path, (uint64_t)st.st_size);
    }
    (void)closedir(d);
    return code;
}

void bench_files_deinit(bench_files *f)
{
    for (size_t i = 0; i < f->n; i++) free(f->file[i].path);
    free(f->file);
    memset(f, 0, sizeof *f);
}

static int open_file(const bench_file *file)
{
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) (void)cli_failed("%s: %s", file->path, strerror(errno));
    return fd;
}

/* Of PROBES places of a file, how many are in the system's cache; -1: unknown. Looking may make the
 * system read ahead. */
static int probe(int fd, uint64_t n_bytes)
{
#ifdef RWF_NOWAIT
    int n = 0;
    for (uint64_t i = 0; i < PROBES; i++) {
        char byte;
        struct iovec one = { &byte, 1 };
        const ssize_t got = preadv2(fd, &one, 1, (off_t)(n_bytes / PROBES * i), RWF_NOWAIT);
        if (got < 0 && errno != EAGAIN) return -1;
        n += got == 1;
    }
    return n;
#else
    (void)fd;
    (void)n_bytes;
    return -1;
#endif
}

/* One round over the files; with there != NULL the places that are left are counted. */
static int drop_once(const bench_files *f, double *there, double *all)
{
    for (size_t i = 0; i < f->n; i++) {
        const bench_file *x = &f->file[i];
        const int fd = open_file(x);
        if (fd < 0) return CLI_FAILED;
        (void)fdatasync(fd); /* what is not on the disk yet is not dropped */
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (there && x->weights && x->n_bytes >= PROBES) {
            const int n = probe(fd, x->n_bytes);
            *there = n < 0 || *there < 0 ? -1 : *there + n;
            *all += PROBES;
        }
        (void)close(fd);
    }
    return CLI_OK;
}

int bench_files_drop(const bench_files *f, double *resident)
{
    int code = CLI_OK;
    *resident = -1;
    /* Pages that were used a moment ago may need a second time. */
    for (int k = 0; k < DROPS && code == CLI_OK && *resident != 0; k++) {
        double there = 0, all = 0;
        code = drop_once(f, &there, &all);
        *resident = all > 0 && there >= 0 ? there / all : -1;
        if (code == CLI_OK) code = drop_once(f, NULL, NULL); /* what the probes have read */
    }
    return code;
}

int bench_files_read(const bench_files *f, double *seconds)
{
    char *buffer = malloc(READ_BYTES);
    int code = buffer ? CLI_OK : cli_failed("out of memory");
    const double begin = cli_seconds();
    for (size_t i = 0; i < f->n && code == CLI_OK; i++) {
        if (!f->file[i].weights) continue;
        const int fd = open_file(&f->file[i]);
        ssize_t n = fd < 0 ? -1 : 1;
        if (fd < 0) code = CLI_FAILED;
        while (n > 0) n = read(fd, buffer, READ_BYTES);
        if (fd >= 0 && n < 0) code = cli_failed("%s: %s", f->file[i].path, strerror(errno));
        if (fd >= 0) (void)close(fd);
    }
    *seconds = cli_seconds() - begin;
    free(buffer);
    return code;
}
