/* log.c - lines of the log, made here and handed to their writer (log_writer.h).
 *
 *   text     2026-11-21T06:00:00.123Z INFO request id=cmpl-1 status=200
 *   json     {"time":"2026-11-21T06:00:00.123Z","level":"info","event":"request","id":"cmpl-1",...}
 *   journal  <6>request id=cmpl-1 status=200: the journal has the time, and takes the level
 *            from the prefix (sd-daemon(3)); JSON lines get the prefix too */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "serve/api_write.h"
#include "serve/log_writer.h"
#include "serve/serve_internal.h"

enum { NOTE_WAIT_MS = 200 };

struct nb_serve_log {
    bool json, journal;
    bool slow; /* the reader did not keep up: nb_serve_note waits no more */
    nb_log_writer *writer;
};

typedef struct level_row {
    const char *text, *json;
    char priority; /* syslog's */
} level_row;
static const level_row levels[] = {
    [NB_LOG_INFO] = { "INFO", "info", '6' },
    [NB_LOG_WARN] = { "WARN", "warn", '4' },
    [NB_LOG_ERROR] = { "ERROR", "error", '3' },
};

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

/* Everything before the pairs. */
static void write_head(nb_writer *w, const nb_serve_log *l, nb_log_level level, const char *event)
{
    const level_row *v = &levels[level];
    if (l->journal) nb_w_raw(w, (const char[]){ '<', v->priority, '>' }, 3);
    if (l->json) {
        NB_W(w, "{\"time\":\"");
        write_time(w);
        NB_W(w, "\",\"level\":\"");
        nb_w_c(w, v->json);
        NB_W(w, "\",\"event\":");
        nb_w_str(w, nb_str_c(event));
        return;
    }
    if (!l->journal) {
        write_time(w);
        NB_W(w, " ");
        nb_w_c(w, v->text);
        NB_W(w, " ");
    }
    nb_w_c(w, event);
}

static void write_line(nb_writer *w, const nb_serve_log *l, nb_log_level level, const char *event,
                       va_list ap)
{
    write_head(w, l, level, event);
    for (const char *key; (key = va_arg(ap, const char *)) != NULL;) {
        const char *value = va_arg(ap, const char *);
        write_pair(w, l->json, key, value ? value : "");
    }
    nb_w_c(w, l->json ? "}\n" : "\n");
}

void nb_log(const nb_serve *s, nb_log_level level, const char *event, ...)
{
    nb_writer w = { 0 };
    va_list ap;
    va_start(ap, event);
    write_line(&w, s->o.log, level, event, ap);
    va_end(ap);
    if (w.st == NB_OK) nb_log_writer_put(s->o.log->writer, nb_buf_view(&w.b));
    nb_buf_deinit(&w.b);
}

/* A line with a message and nothing else. */
static void write_message(nb_writer *w, const nb_serve_log *l, nb_log_level level,
                          const char *event, const char *message)
{
    write_head(w, l, level, event);
    write_pair(w, l->json, "message", message);
    nb_w_c(w, l->json ? "}\n" : "\n");
}

void nb_serve_note(nb_serve_log *l, nb_log_level level, const char *event, const char *message)
{
    nb_writer w = { 0 };
    write_message(&w, l, level, event, message);
    if (w.st == NB_OK) nb_log_writer_put(l->writer, nb_buf_view(&w.b));
    nb_buf_deinit(&w.b);
    if (!l->slow) l->slow = !nb_log_writer_flush(l->writer, NOTE_WAIT_MS);
}

void nb_serve_news(void *log, bool failed, const char *line)
{
    nb_serve_log *l = log;
    nb_writer w = { 0 };
    char text[NB_ERROR_MSG_BYTES + 32];
    (void)snprintf(text, sizeof text, "%s%s", line, failed ? "; restart the server" : "");
    write_message(&w, l, failed ? NB_LOG_ERROR : NB_LOG_WARN, "engine", text);
    if (w.st == NB_OK) nb_log_writer_put(l->writer, nb_buf_view(&w.b));
    nb_buf_deinit(&w.b);
}

static void note_of_writer(void *ctx, const char *message, nb_buf *line)
{
    nb_writer w = { 0 };
    write_message(&w, ctx, NB_LOG_WARN, "log", message);
    if (w.st == NB_OK) (void)nb_buf_add_str(line, nb_buf_view(&w.b));
    nb_buf_deinit(&w.b);
}

/* JOURNAL_STREAM names the stream that the service manager connected, as device:inode. */
static bool is_journal(const char *stream)
{
    struct stat st;
    char text[64];
    if (!stream || fstat(STDERR_FILENO, &st) != 0) return false;
    (void)snprintf(text, sizeof text, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(stream, text) == 0;
}

nb_status nb_serve_log_open(const nb_serve_log_options *o, nb_serve_log **out, nb_error *err)
{
    nb_serve_log *l = calloc(1, sizeof *l);
    if (!l) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the log");
    l->json = o->json;
    l->journal = !o->file && is_journal(o->journal_stream);
    const nb_status st =
        nb_log_writer_open(o->file, STDERR_FILENO, note_of_writer, l, &l->writer, err);
    if (st == NB_OK)
        *out = l;
    else
        free(l);
    return st;
}

void nb_serve_log_close(nb_serve_log *l)
{
    if (!l) return;
    nb_log_writer_close(l->writer);
    free(l);
}

void nb_serve_log_reopen(nb_serve_log *l)
{
    nb_log_writer_reopen(l->writer);
}

uint64_t nb_serve_log_dropped(nb_serve_log *l)
{
    return nb_log_writer_dropped(l->writer);
}
