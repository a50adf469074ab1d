/* out_file.c - see out_file.h. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "out_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

int out_file_failed(const char *path)
{
    return cli_failed("%s: cannot be written: %s", path, strerror(errno));
}

int out_file_open(out_file *out, const char *path)
{
    struct stat itself, there;
    const bool to_stdout = strcmp(path, "-") == 0;
    const bool exists = !to_stdout && lstat(path, &itself) == 0;
    const bool found = exists && stat(path, &there) == 0;
    if (found && S_ISDIR(there.st_mode)) return cli_failed("%s: is a directory", path);
    if (to_stdout || (exists && !found) || (found && !S_ISREG(there.st_mode))) {
        out->f = tmpfile();
        return out->f ? CLI_OK : out_file_failed("temporary file");
    }
    out->path = found ? realpath(path, NULL) : strdup(path); /* through symbolic links */
    const size_t n = out->path ? strlen(out->path) + 32 : 0;
    out->temp = malloc(n ? n : 1);
    if (!out->path || !out->temp) return cli_failed("%s: out of memory", path);
    (void)snprintf(out->temp, n, "%s.%ld.tmp", out->path, (long)getpid());
    out->f = fopen(out->temp, "wb");
    if (out->f) return CLI_OK;
    const int code = out_file_failed(path);
    free(out->temp);
    out->temp = NULL;
    return code;
}

static int copy_out(FILE *from, const char *path)
{
    char block[1 << 14];
    const bool to_stdout = strcmp(path, "-") == 0;
    FILE *to = to_stdout ? stdout : fopen(path, "wb");
    if (!to) return out_file_failed(path);
    rewind(from);
    size_t n = 0;
    bool ok = true;
    while (ok && (n = fread(block, 1, sizeof block, from)) > 0) ok = fwrite(block, 1, n, to) == n;
    int e = errno;
    if (to_stdout && !ok) cli_out_error(e); /* cli_finish tells */
    ok = ok && !ferror(from);
    if (to_stdout) return ok || !cli_out_ok() ? CLI_OK : out_file_failed(path);
    if (fclose(to) != 0) {
        if (ok) e = errno;
        ok = false;
    }
    errno = e;
    return ok ? CLI_OK : out_file_failed(path);
}

/* Everything that was written is on its way to the disk. */
static bool flushed(FILE *f)
{
    return fflush(f) == 0 && !ferror(f);
}

int out_file_close(out_file *out, const char *path, int code)
{
    if (out->f && code == CLI_OK && !flushed(out->f)) {
        if (!errno) errno = EIO;
        code = out_file_failed(path);
    }
    if (out->f && code == CLI_OK && !out->temp) code = copy_out(out->f, path);
    if (out->f && fclose(out->f) != 0 && code == CLI_OK) code = out_file_failed(path);
    if (out->temp && code == CLI_OK && rename(out->temp, out->path) != 0)
        code = out_file_failed(path);
    if (out->temp && code != CLI_OK) (void)unlink(out->temp);
    free(out->path);
    free(out->temp);
    *out = (out_file){ 0 };
    return code;
}

int out_file_write(const char *path, const void *p, size_t n_bytes)
{
    out_file out = { 0 };
    int code = out_file_open(&out, path);
    if (code == CLI_OK && n_bytes && fwrite(p, 1, n_bytes, out.f) != n_bytes)
        code = out_file_failed(path);
    return out_file_close(&out, path, code);
}

int out_file_append(const char *path, const char *line)
{
    FILE *f = fopen(path, "a");
    if (!f) return out_file_failed(path);
    const long before = ftell(f);
    int code = CLI_OK;
    if (fputs(line, f) < 0 || fputc('\n', f) == EOF || !flushed(f)) {
        code = out_file_failed(path);
        if (before >= 0) (void)ftruncate(fileno(f), before);
    }
    (void)fclose(f);
    return code;
}
