/* cli.c - errors, files and standard output of the subcommands. */
#include "cli.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { IDS_MAX_BYTES = 256 << 20, LINE_BYTES = 2048 };

/* One line whatever the message holds: names of files and texts come from outside. */
static void print_line(const char *fmt, va_list ap)
{
    char line[LINE_BYTES];
    (void)vsnprintf(line, sizeof line, fmt, ap);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    cli_progress_end();
    (void)fflush(stdout);
    (void)fprintf(stderr, "nibble: %s\n", line);
}

#define PRINT_ARGUMENTS                                                                            \
    do {                                                                                           \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        print_line(fmt, ap);                                                                       \
        va_end(ap);                                                                                \
    } while (0)

int cli_failed(const char *fmt, ...)
{
    PRINT_ARGUMENTS;
    return CLI_FAILED;
}

int cli_usage(const char *fmt, ...)
{
    PRINT_ARGUMENTS;
    return CLI_USAGE;
}

void cli_note(const char *fmt, ...)
{
    PRINT_ARGUMENTS;
}

int cli_status(nb_status s, const nb_error *err)
{
    return cli_failed("%s", err->msg[0] ? err->msg : nb_status_text(s));
}

static int read_stream(FILE *f, const char *name, size_t max_bytes, char **data, size_t *n_bytes)
{
    size_t n = 0, cap = 1 << 16;
    char *p = malloc(cap);
    while (p) {
        const size_t got = fread(p + n, 1, cap - 1 - n, f);
        n += got;
        if (ferror(f)) {
            const int e = errno;
            free(p);
            return cli_failed("%s: cannot be read: %s", name, strerror(e));
        }
        if (n > max_bytes) {
            free(p);
            return cli_failed("%s: more than %zu bytes", name, max_bytes);
        }
        if (n < cap - 1) { /* the end */
            p[n] = 0;
            *data = p;
            *n_bytes = n;
            return CLI_OK;
        }
        cap *= 2;
        char *q = realloc(p, cap);
        if (!q) free(p);
        p = q;
    }
    return cli_failed("%s: out of memory", name);
}

int cli_read_file(const char *path, size_t max_bytes, char **data, size_t *n_bytes)
{
    if (strcmp(path, "-") == 0)
        return read_stream(stdin, "standard input", max_bytes, data, n_bytes);
    FILE *f = fopen(path, "rb");
    if (!f) return cli_failed("%s: cannot be opened: %s", path, strerror(errno));
    const int code = read_stream(f, path, max_bytes, data, n_bytes);
    (void)fclose(f);
    return code;
}

static int ids_of_json(const char *path, const json_t *j, uint32_t *ids)
{
    for (size_t i = 0; i < json_array_size(j); i++) {
        const json_t *v = json_array_get(j, i);
        const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > UINT32_MAX)
            return cli_failed("%s: element %zu is not a token id (expected an integer in 0..%u)",
                              path, i, (unsigned)UINT32_MAX);
        ids[i] = (uint32_t)id;
    }
    return CLI_OK;
}

int cli_read_ids(const char *path, uint32_t **ids, size_t *n_ids)
{
    char *data = NULL;
    size_t n_bytes = 0;
    int code = cli_read_file(path, IDS_MAX_BYTES, &data, &n_bytes);
    if (code != CLI_OK) return code;
    json_error_t e;
    json_t *j = json_loadb(data, n_bytes, 0, &e);
    free(data);
    if (!json_is_array(j)) {
        code = j ? cli_failed("%s: expected a JSON array of token ids", path)
                 : cli_failed("%s: line %d: %s (expected a JSON array of token ids)", path, e.line,
                              e.text);
        json_decref(j);
        return code;
    }
    const size_t n = json_array_size(j);
    uint32_t *v = malloc((n ? n : 1) * sizeof *v);
    code = v ? ids_of_json(path, j, v) : cli_failed("%s: out of memory", path);
    json_decref(j);
    if (code != CLI_OK) {
        free(v);
        return code;
    }
    *ids = v;
    *n_ids = n;
    return CLI_OK;
}

static int out_errno; /* of the first failure to write standard output */

void cli_out_error(int e)
{
    if (!out_errno) out_errno = e;
}

bool cli_out_ok(void)
{
    if (ferror(stdout) && !out_errno) out_errno = EIO;
    return out_errno == 0;
}

bool cli_out_flush(void)
{
    errno = 0;
    if (fflush(stdout) != 0 && !out_errno) out_errno = errno ? errno : EIO;
    return cli_out_ok();
}

int cli_finish(int code)
{
    if (cli_out_flush()) return code;
    (void)fprintf(stderr, "nibble: standard output cannot be written: %s\n", strerror(out_errno));
    return CLI_FAILED;
}

double cli_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- figures ------------------------------------------------------------------ */

void cli_bytes_text(double x, char *out, size_t n)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t i = 0;
    for (; x >= 1024 && i + 1 < sizeof unit / sizeof *unit; i++) x /= 1024;
    (void)snprintf(out, n, i ? "%.1f %s" : "%.0f %s", x, unit[i]);
}

void cli_count_text(double x, char *out, size_t n)
{
    char digits[32];
    const int k = snprintf(digits, sizeof digits, "%.0f", x);
    size_t o = 0;
    for (int i = 0; i < k && o + 2 < n; i++) {
        if (i && (k - i) % 3 == 0 && digits[i - 1] != '-') out[o++] = ',';
        out[o++] = digits[i];
    }
    out[o] = 0;
}

void cli_memory_text(const cli_memory_part *part, size_t n_part, char *out, size_t n)
{
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < n_part && at < n; i++) {
        char bytes[CLI_FIGURE_BYTES];
        if (!part[i].name) continue;
        cli_bytes_text(part[i].bytes, bytes, sizeof bytes);
        at += (size_t)snprintf(out + at, n - at, "%s%s %s", at ? ", " : "", part[i].name, bytes);
    }
}
