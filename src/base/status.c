/* status.c - see status.h. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

const char *nb_status_text(nb_status s)
{
    switch (s) {
#define NB_STATUS_CASE(value, name, text)                                                          \
    case name: return text;
        NB_STATUS_MAP(NB_STATUS_CASE)
#undef NB_STATUS_CASE
    }
    return "unknown status";
}

/* Control characters (C0, DEL, C1), line and paragraph separators, what changes the direction
 * of text, and bytes that are not UTF-8 (also a sequence cut by the buffer's end). */
static void clean_line(char *s)
{
    for (size_t left = strlen(s); left > 0;) {
        uint32_t cp = 0;
        const int n = nb_utf8_decode(s, left, &cp);
        const size_t len = n > 0 ? (size_t)n : 1;
        if (n <= 0 || cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 ||
            (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069) || cp == 0xfeff)
            memset(s, '?', len);
        s += len;
        left -= len;
    }
}

nb_status nb_fail(nb_error *err, nb_status s, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
        clean_line(err->msg);
        err->status = s;
    }
    return s;
}

nb_status nb_fail_prefix(nb_error *err, nb_status s, const char *fmt, ...)
{
    if (err) {
        char line[sizeof err->msg], head[sizeof err->msg];
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(head, sizeof head, fmt, ap);
        va_end(ap);
        const size_t n = strlen(head);
        memcpy(line, head, n);
        if (n + 2 < sizeof line) {
            const size_t room = sizeof line - n - 3, m = strlen(err->msg);
            memcpy(line + n, ": ", 2);
            memcpy(line + n + 2, err->msg, m < room ? m : room);
            line[n + 2 + (m < room ? m : room)] = 0;
        } else {
            line[sizeof line - 1] = 0;
        }
        memcpy(err->msg, line, sizeof line);
        clean_line(err->msg);
        err->status = s;
    }
    return s;
}

void nb_panic(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "nibble: internal error at %s:%d: %s\n", file, line, what);
    abort();
}
