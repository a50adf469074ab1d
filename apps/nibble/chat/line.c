/* line.c - see line.h.
 *
 * At the prompt Ctrl-C is a key, not a signal: libedit is told to clear ISIG while it
 * edits, and the function that reads its keys ends the line at that one.  A signal handler
 * that jumps out of el_gets would leave the terminal in raw mode, and a function bound to
 * the key (EL_ADDFN) leaks in libedit 3.1.  While an answer is generated the terminal is as
 * it was, and Ctrl-C is SIGINT. */
#include "line.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>
#include <wchar.h>

#include "nb_config.h"
#if NB_HAVE_LIBEDIT
#include <histedit.h>
#endif

#include "../cli.h"
#include "../out_file.h"
#include "../session.h"

enum { HISTORY_LINES = 1000, LINE_MAX_BYTES = 1 << 20, CTRL_C = 3 };

struct line_reader {
    bool interactive;
    char *buf;
    size_t n, cap;
    char block[4096]; /* input read and not yet taken: [at, end) */
    size_t at, end;
#if NB_HAVE_LIBEDIT
    EditLine *el;
    History *history;
    const char *history_path;
    bool more;           /* which prompt */
    bool pressed, typed; /* Ctrl-C; whether there was something on the line */
#endif
};

enum { INPUT_INTERRUPT = -2 };

/* Bytes of standard input: their number, 0 at the end, -1 at an error, INPUT_INTERRUPT after
 * SIGINT.  The signal is let through only while waiting, so that none is missed between
 * the look at the flag and the wait. */
static int read_some(char *p, size_t n)
{
    sigset_t with, before;
    fd_set fds;
    (void)sigemptyset(&with);
    (void)sigaddset(&with, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &with, &before);
    int got = -1;
    for (;;) {
        if (session_interrupted()) {
            got = INPUT_INTERRUPT;
            break;
        }
        FD_ZERO(&fds);
        FD_SET(STDIN_FILENO, &fds);
        const int ready = pselect(STDIN_FILENO + 1, &fds, NULL, NULL, NULL, &before);
        if (ready > 0) got = (int)read(STDIN_FILENO, p, n);
        if ((ready > 0 && got >= 0) || errno != EINTR) break;
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return got;
}

#if NB_HAVE_LIBEDIT

static line_reader *reader_of(EditLine *el)
{
    void *p = NULL;
    (void)el_get(el, EL_CLIENTDATA, &p);
    return p;
}

static char *prompt(EditLine *el)
{
    static char first[] = "> ", next[] = ". ";
    return reader_of(el)->more ? next : first;
}

/* One character for libedit; 0 ends the line. */
static int read_key(EditLine *el, wchar_t *out)
{
    line_reader *r = reader_of(el);
    const LineInfo *line = el_line(el);
    mbstate_t state;
    memset(&state, 0, sizeof state);
    for (;;) {
        char c = 0;
        const int n = read_some(&c, 1);
        r->pressed = n == INPUT_INTERRUPT || (n == 1 && c == CTRL_C);
        r->typed = line->lastchar > line->buffer;
        if (r->pressed || n <= 0) return 0;
        const size_t k = mbrtowc(out, &c, 1, &state);
        if (k == (size_t)-2) continue;
        if (k != (size_t)-1) return 1;
        memset(&state, 0, sizeof state); /* not a character: passed over */
    }
}

static bool open_editor(line_reader *r, const char *history_path)
{
    HistEvent ev;
    /* libedit counts columns by the locale; without one it knows ASCII only. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) (void)setlocale(LC_CTYPE, "C.UTF-8");
    r->el = el_init("nibble", stdin, stdout, stderr);
    r->history = history_init();
    if (!r->el || !r->history) return false;
    (void)history(r->history, &ev, H_SETSIZE, HISTORY_LINES);
    (void)history(r->history, &ev, H_SETUNIQUE, 1);
    (void)el_set(r->el, EL_CLIENTDATA, r);
    (void)el_set(r->el, EL_PROMPT, prompt);
    (void)el_set(r->el, EL_EDITOR, "emacs");
    (void)el_set(r->el, EL_HIST, history, r->history);
    (void)el_set(r->el, EL_GETCFN, read_key);
    (void)el_set(r->el, EL_SETTY, "-d", "-isig", NULL);
    (void)el_set(r->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    r->history_path = history_path;
    if (history_path) (void)history(r->history, &ev, H_LOAD, history_path);
    return true;
}

/* A history that cannot be written whole stays as it was. */
static void save_history(line_reader *r)
{
    HistEvent ev;
    out_file out = { 0 };
    int code = out_file_open(&out, r->history_path);
    if (code == CLI_OK && history(r->history, &ev, H_SAVE_FP, out.f) < 0) code = CLI_FAILED;
    (void)out_file_close(&out, r->history_path, code);
}

static void close_editor(line_reader *r)
{
    if (r->history && r->history_path) save_history(r);
    if (r->el) el_end(r->el);
    if (r->history) history_end(r->history);
}

static line_kind read_edited(line_reader *r, bool more, const char **text)
{
    int n = 0;
    r->more = more;
    r->pressed = false;
    /* Raw before the prompt shows: what is typed at once must not meet the cooked terminal. */
    (void)el_set(r->el, EL_PREP_TERM, 1);
    const char *s = el_gets(r->el, &n);
    if (r->pressed) {
        (void)fputs("^C\n", stdout);
        (void)fflush(stdout);
        return r->typed ? LINE_INTERRUPT : LINE_INTERRUPT_EMPTY;
    }
    if (!s || n <= 0) {
        (void)fputc('\n', stdout);
        return LINE_END;
    }
    char *copy = realloc(r->buf, (size_t)n + 1);
    if (!copy) return LINE_END;
    memcpy(copy, s, (size_t)n);
    copy[n - (copy[n - 1] == '\n')] = 0;
    r->buf = copy;
    r->cap = (size_t)n + 1;
    *text = copy;
    return LINE_TEXT;
}

#endif

line_reader *line_create(const char *history_path)
{
    line_reader *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->interactive = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
#if NB_HAVE_LIBEDIT
    if (r->interactive && !open_editor(r, history_path)) {
        line_destroy(r);
        return NULL;
    }
#else
    (void)history_path;
#endif
    return r;
}

void line_destroy(line_reader *r)
{
    if (!r) return;
#if NB_HAVE_LIBEDIT
    close_editor(r);
#endif
    free(r->buf);
    free(r);
}

bool line_interactive(const line_reader *r)
{
    return r->interactive;
}

void line_remember(line_reader *r, const char *text)
{
#if NB_HAVE_LIBEDIT
    HistEvent ev;
    if (r->history && *text) (void)history(r->history, &ev, H_ENTER, text);
#else
    (void)r;
    (void)text;
#endif
}

/* The next byte of the input, EOF, or INPUT_INTERRUPT. */
static int next_byte(line_reader *r)
{
    if (r->at == r->end) {
        const int n = read_some(r->block, sizeof r->block);
        if (n <= 0) return n == INPUT_INTERRUPT ? n : EOF;
        r->at = 0;
        r->end = (size_t)n;
    }
    return (unsigned char)r->block[r->at++];
}

/* A line of any length up to the cap; what is longer is cut. */
static line_kind read_plain(line_reader *r, bool more, const char **text)
{
    if (r->interactive) {
        (void)fputs(more ? ". " : "> ", stdout);
        (void)fflush(stdout);
    }
    r->n = 0;
    for (;;) {
        if (r->n + 1 >= r->cap) {
            char *p = realloc(r->buf, r->cap * 2 + 256);
            if (!p) return LINE_END;
            r->buf = p;
            r->cap = r->cap * 2 + 256;
        }
        const int c = next_byte(r);
        if (c == INPUT_INTERRUPT) {
            if (r->interactive) (void)fputc('\n', stdout);
            return r->n ? LINE_INTERRUPT : LINE_INTERRUPT_EMPTY;
        }
        if (c == EOF && r->n == 0) return LINE_END;
        if (c == EOF || c == '\n') break;
        if (r->n < LINE_MAX_BYTES) r->buf[r->n++] = (char)c;
    }
    r->buf[r->n] = 0;
    *text = r->buf;
    return LINE_TEXT;
}

line_kind line_read(line_reader *r, bool more, const char **text)
{
#if NB_HAVE_LIBEDIT
    if (r->el) return read_edited(r, more, text);
#endif
    return read_plain(r, more, text);
}
