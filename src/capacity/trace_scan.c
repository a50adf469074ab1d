/* trace_scan.c - see trace_scan.h. */
#include "capacity/trace_scan.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_DEPTH = 32 };

nb_scan nb_scan_text(const char *p, size_t n_bytes, const char *name, size_t line, nb_error *err)
{
    return (nb_scan){ .p = p, .end = p + n_bytes, .name = name, .line = line, .err = err };
}

nb_status nb_scan_fail(const nb_scan *s, const char *expected)
{
    return nb_fail(s->err, NB_ERR_FORMAT, "%s:%zu: expected %s", s->name, s->line, expected);
}

char nb_scan_peek(nb_scan *s)
{
    for (; s->p < s->end; s->p++) {
        if (*s->p == '\n')
            s->line++;
        else if (*s->p != ' ' && *s->p != '\t' && *s->p != '\r')
            return *s->p;
    }
    return 0;
}

nb_status nb_scan_end(nb_scan *s)
{
    return nb_scan_peek(s) || s->p < s->end ? nb_scan_fail(s, "nothing more") : NB_OK;
}

nb_status nb_scan_open(nb_scan *s, char bracket, const char *what)
{
    if (nb_scan_peek(s) != bracket) return nb_scan_fail(s, what);
    if (s->depth == MAX_DEPTH) return nb_scan_fail(s, "brackets at most 32 deep");
    s->p++;
    s->depth++;
    return NB_OK;
}

nb_status nb_scan_more(nb_scan *s, char closing, bool first, bool *more)
{
    const char c = nb_scan_peek(s);
    if (c == closing) {
        s->p++;
        s->depth--;
        *more = false;
        return NB_OK;
    }
    if (!first) {
        if (c != ',') return nb_scan_fail(s, closing == '}' ? "a comma or }" : "a comma or ]");
        s->p++;
        if (nb_scan_peek(s) == closing) return nb_scan_fail(s, "something after the comma");
    }
    *more = true;
    return NB_OK;
}

nb_status nb_scan_string(nb_scan *s, const char *what, nb_str *out)
{
    if (nb_scan_peek(s) != '"') return nb_scan_fail(s, what);
    const char *from = ++s->p;
    for (; s->p < s->end && *s->p != '"'; s->p++) {
        if ((unsigned char)*s->p < 0x20) return nb_scan_fail(s, "a string without raw controls");
        if (*s->p == '\\' && ++s->p == s->end) break;
    }
    if (s->p >= s->end) return nb_scan_fail(s, "the end of a string");
    *out = (nb_str){ from, (size_t)(s->p - from) };
    s->p++;
    return NB_OK;
}

nb_status nb_scan_key(nb_scan *s, nb_str *key)
{
    NB_TRY(nb_scan_string(s, "a key", key));
    if (nb_scan_peek(s) != ':') return nb_scan_fail(s, "a colon");
    s->p++;
    return NB_OK;
}

/* What can stand in a number after a whole one. */
static bool goes_on(const nb_scan *s)
{
    if (s->p >= s->end) return false;
    const char c = *s->p;
    return (c >= '0' && c <= '9') || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-';
}

nb_status nb_scan_count(nb_scan *s, const char *what, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    const char first = nb_scan_peek(s);
    if (first < '0' || first > '9') return nb_scan_fail(s, what);
    for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++) {
        const unsigned d = (unsigned)(*s->p - '0');
        if (v > max / 10 || d > max - v * 10) return nb_scan_fail(s, what);
        v = v * 10 + d;
    }
    if (goes_on(s)) return nb_scan_fail(s, what);
    *out = v;
    return NB_OK;
}

nb_status nb_scan_number(nb_scan *s, const char *what, double *out)
{
    char text[48];
    size_t n = 0;
    char *end;
    const char first = nb_scan_peek(s);
    if (first != '-' && (first < '0' || first > '9')) return nb_scan_fail(s, what);
    for (; goes_on(s); s->p++) {
        if (n + 1 == sizeof text) return nb_scan_fail(s, what);
        text[n++] = *s->p;
    }
    text[n] = 0;
    const double v = strtod(text, &end);
    if (*end || !isfinite(v)) return nb_scan_fail(s, what);
    *out = v;
    return NB_OK;
}

static nb_status skip_word(nb_scan *s)
{
    static const char *const words[] = { "true", "false", "null" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->p) >= n && memcmp(s->p, words[i], n) == 0) {
            s->p += n;
            return NB_OK;
        }
    }
    return nb_scan_fail(s, "a value");
}

/* Brackets are followed by a stack of bits, one for each that is open. */
nb_status nb_scan_skip(nb_scan *s)
{
    uint64_t is_object = 0;
    const size_t depth0 = s->depth;
    bool first = true, more = true;
    for (;;) {
        if (s->depth > depth0) {
            const bool object = is_object & 1;
            NB_TRY(nb_scan_more(s, object ? '}' : ']', first, &more));
            first = false;
            if (!more) {
                is_object >>= 1;
                if (s->depth == depth0) return NB_OK;
                continue;
            }
            nb_str key;
            if (object) NB_TRY(nb_scan_key(s, &key));
        }
        const char c = nb_scan_peek(s);
        nb_str text;
        double number;
        if (c == '{' || c == '[') {
            NB_TRY(nb_scan_open(s, c, "a value"));
            is_object = is_object << 1 | (c == '{');
            first = true;
            continue;
        }
        if (c == '"') {
            NB_TRY(nb_scan_string(s, "a string", &text));
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            NB_TRY(nb_scan_number(s, "a number", &number));
        } else {
            NB_TRY(skip_word(s));
        }
        if (s->depth == depth0) return NB_OK;
    }
}
