/* api_write.c - see api_write.h. */
#include "serve/api_write.h"

#include <math.h>
#include <stdio.h>

#include "base/utf8.h"

void nb_w_raw(nb_writer *w, const char *p, size_t n_bytes)
{
    if (w->st == NB_OK && n_bytes) w->st = nb_buf_add(&w->b, p, n_bytes);
}

void nb_w_c(nb_writer *w, const char *s)
{
    nb_w_raw(w, s, strlen(s));
}

void nb_w_uint(nb_writer *w, uint64_t v)
{
    char d[20];
    size_t at = sizeof d;
    do {
        d[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    nb_w_raw(w, d + at, sizeof d - at);
}

void nb_w_logprob(nb_writer *w, float v)
{
    char d[32];
    if (!isfinite(v) || v < -9999.0F) {
        NB_W(w, "-9999.0");
        return;
    }
    const int n = snprintf(d, sizeof d, "%.9g", (double)v);
    char *comma = strchr(d, ','); /* of a locale that the host program has set */
    if (comma) *comma = '.';
    nb_w_raw(w, d, (size_t)n);
    if (!strpbrk(d, ".e")) NB_W(w, ".0");
}

/* Two characters for what JSON has short escapes of, else 0. */
static char short_escape(unsigned char c)
{
    switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
    }
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void escape_control(nb_writer *w, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    const char e = short_escape(c);
    if (e) {
        const char two[2] = { '\\', e };
        nb_w_raw(w, two, 2);
        return;
    }
    const char six[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
    nb_w_raw(w, six, 6);
}

void nb_w_escaped(nb_writer *w, nb_str s)
{
    size_t i = 0, from = 0;
    while (i < s.n_bytes) {
        const unsigned char c = (unsigned char)s.p[i];
        if (is_plain(c)) {
            i++;
            continue;
        }
        uint32_t cp;
        const int n = c < 0x80 ? 0 : nb_utf8_decode(s.p + i, s.n_bytes - i, &cp);
        if (n > 0) {
            i += (size_t)n;
            continue;
        }
        nb_w_raw(w, s.p + from, i - from);
        if (c < 0x80)
            escape_control(w, c);
        else
            NB_W(w, "\xef\xbf\xbd");
        from = ++i;
    }
    nb_w_raw(w, s.p + from, i - from);
}

void nb_w_str(nb_writer *w, nb_str s)
{
    NB_W(w, "\"");
    nb_w_escaped(w, s);
    NB_W(w, "\"");
}

void nb_w_ids(nb_writer *w, const uint32_t *ids, size_t n)
{
    NB_W(w, "[");
    for (size_t i = 0; i < n; i++) {
        if (i) NB_W(w, ",");
        nb_w_uint(w, ids[i]);
    }
    NB_W(w, "]");
}

void nb_w_bytes(nb_writer *w, nb_str s)
{
    NB_W(w, "[");
    for (size_t i = 0; i < s.n_bytes; i++) {
        if (i) NB_W(w, ",");
        nb_w_uint(w, (unsigned char)s.p[i]);
    }
    NB_W(w, "]");
}
