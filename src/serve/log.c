/* log.c - lines of the log, on the standard error stream: one write each.
 *
 *   text  2026-11-21T06:00:00.123Z INFO request id=cmpl-1 status=200
 *   json  {"time":"2026-11-21T06:00:00.123Z","level":"info","event":"request","id":"cmpl-1",...} */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "serve/api_write.h"
#include "serve/serve_internal.h"

static void write_time(nb_writer *w)
{
    struct timespec now = { 0 };
    struct tm t;
    char text[40];
    if (timespec_get(&now, TIME_UTC) != TIME_UTC || !gmtime_r(&now.tv_sec, &t)) return;
    const size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &t);
    nb_w_raw(w, text, n);
    const int m = snprintf(text, sizeof text, ".%03dZ", (int)(now.tv_nsec / 1000000));
    nb_w_raw(w, text, (size_t)m);
}

/* Needs quotes in a text line: blanks, quotes, '=', nothing at all, what is not ASCII. */
static bool is_word(const char *s)
{
    if (!*s) return false;
    for (; *s; s++)
        if (!isgraph((unsigned char)*s) || *s == '"' || *s == '\\' || *s == '=') return false;
    return true;
}

static void write_pair(nb_writer *w, bool json, const char *key, const char *value)
{
    const bool number = key[0] == '#';
    if (number) key++;
    if (json) {
        NB_W(w, ",");
        nb_w_str(w, nb_str_c(key));
        NB_W(w, ":");
    } else {
        NB_W(w, " ");
        nb_w_c(w, key);
        NB_W(w, "=");
    }
    if (number || (!json && is_word(value)))
        nb_w_c(w, value);
    else
        nb_w_str(w, nb_str_c(value));
}

void nb_log(const nb_serve *s, nb_log_level level, const char *event, ...)
{
    static const char *const names[2][3] = { { "INFO", "WARN", "ERROR" },
                                             { "info", "warn", "error" } };
    const bool json = s->o.log_json;
    nb_writer w = { 0 };
    va_list ap;
    nb_w_c(&w, json ? "{\"time\":\"" : "");
    write_time(&w);
    nb_w_c(&w, json ? "\",\"level\":\"" : " ");
    nb_w_c(&w, names[json][level]);
    nb_w_c(&w, json ? "\",\"event\":\"" : " ");
    nb_w_c(&w, event);
    nb_w_c(&w, json ? "\"" : "");
    va_start(ap, event);
    for (const char *key; (key = va_arg(ap, const char *)) != NULL;) {
        const char *value = va_arg(ap, const char *);
        write_pair(&w, json, key, value ? value : "");
    }
    va_end(ap);
    nb_w_c(&w, json ? "}\n" : "\n");
    if (w.st == NB_OK) (void)fwrite(w.b.p, 1, w.b.n_bytes, stderr);
    nb_buf_deinit(&w.b);
}
