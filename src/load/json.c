/* json.c - see json.h.
 *
 * jansson is strict about syntax, UTF-8 and duplicates, but it recurses 2,048 levels
 * deep, expands small inputs much ("{}," takes some 200 bytes) and refuses a whole
 * document for one integer beyond 64 bits.  So one pass over the bytes goes first.  It
 * needs no grammar: outside of strings, brackets give the depth, commas and opening
 * brackets the number of values; what is not JSON at all is left to jansson. */
#include "load/json.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

/* Control characters (C0, DEL, C1), line and paragraph separators, and the characters
 * that change the direction of what follows. */
static bool unfit(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 ||
           (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069) || cp == 0xfeff;
}

/* Writes at most cap - 1 bytes of s; returns false when something did not fit. */
static bool clean(char *out, size_t cap, nb_str s)
{
    size_t o = 0, i = 0;
    while (i < s.n_bytes) {
        uint32_t cp = 0;
        const int n = nb_utf8_decode(s.p + i, s.n_bytes - i, &cp);
        const bool bad = n <= 0 || unfit(cp);
        const size_t len = n > 0 ? (size_t)n : 1, put = bad ? 1 : len;
        if (o + put >= cap) break;
        if (bad)
            out[o] = '?';
        else
            memcpy(out + o, s.p + i, len);
        o += put;
        i += len;
    }
    out[o] = 0;
    return i == s.n_bytes;
}

nb_shown nb_show(nb_str text)
{
    nb_shown r;
    if (!clean(r.s, sizeof r.s - 3, text)) memcpy(r.s + strlen(r.s), "...", 4);
    return r;
}

nb_shown nb_show_c(const char *text)
{
    return nb_show(nb_str_c(text));
}

nb_shown_path nb_show_path(const char *path)
{
    nb_shown_path r;
    const size_t n = strlen(path), most = sizeof r.s - 4;
    if (n <= most) {
        (void)clean(r.s, sizeof r.s, nb_str_c(path));
    } else {
        memcpy(r.s, "...", 3);
        (void)clean(r.s + 3, sizeof r.s - 3, nb_str_c(path + (n - most)));
    }
    return r;
}

nb_shown nb_json_describe(const json_t *v)
{
    nb_shown r;
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_OBJECT: (void)snprintf(r.s, sizeof r.s, "an object"); break;
    case JSON_ARRAY: (void)snprintf(r.s, sizeof r.s, "an array of %zu", json_array_size(v)); break;
    case JSON_STRING: {
        const nb_str text = { json_string_value(v), json_string_length(v) };
        char part[64];
        const bool whole = clean(part, sizeof part, text);
        (void)snprintf(r.s, sizeof r.s, "the string \"%s%s\"", part, whole ? "" : "...");
        break;
    }
    case JSON_INTEGER:
        (void)snprintf(r.s, sizeof r.s, "the integer %lld", (long long)json_integer_value(v));
        break;
    case JSON_REAL: (void)snprintf(r.s, sizeof r.s, "the number %.17g", json_real_value(v)); break;
    case JSON_TRUE: (void)snprintf(r.s, sizeof r.s, "true"); break;
    case JSON_FALSE: (void)snprintf(r.s, sizeof r.s, "false"); break;
    case JSON_NULL: (void)snprintf(r.s, sizeof r.s, "null"); break;
    }
    return r;
}

/* ------------------------------------------------------------- the first pass */

typedef struct scan {
    nb_str in;
    const char *name;
    const nb_json_limits *lim;
    size_t depth, n_values, line;
    char *copy; /* of in, with too large integers rewritten; NULL while there are none */
} scan;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether n digits (no leading zero) exceed what an int64 holds with that sign. */
static bool beyond_int64(const char *digits, size_t n, bool negative)
{
    if (n != 19) return n > 19;
    return memcmp(digits, negative ? "9223372036854775808" : "9223372036854775807", 19) > 0;
}

/* Past the number at i.  An integer beyond int64 is made a real of the same length in
 * the copy: its last two digits become "e2", a relative change below 1e-16. */
static nb_status scan_number(scan *s, size_t *i, nb_error *err)
{
    const bool negative = s->in.p[*i] == '-';
    const size_t first = *i + (negative ? 1 : 0);
    size_t k = first;
    while (k < s->in.n_bytes && is_digit(s->in.p[k])) k++;
    const size_t n_digit = k - first;
    *i = k > *i ? k : *i + 1;
    if (k < s->in.n_bytes && (s->in.p[k] == '.' || s->in.p[k] == 'e' || s->in.p[k] == 'E')) {
        while (k < s->in.n_bytes && (is_digit(s->in.p[k]) || strchr(".eE+-", s->in.p[k]))) {
            if (s->in.p[k] == 0) break; /* strchr finds the terminator */
            k++;
        }
        *i = k;
        return NB_OK;
    }
    if (n_digit == 0 || s->in.p[first] == '0') return NB_OK;
    if (!beyond_int64(s->in.p + first, n_digit, negative)) return NB_OK;
    if (!s->copy) {
        s->copy = malloc(s->in.n_bytes);
        if (!s->copy)
            return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(s->name).s);
        memcpy(s->copy, s->in.p, s->in.n_bytes);
    }
    memcpy(s->copy + k - 2, "e2", 2);
    return NB_OK;
}

/* Past the word at i.  Python writes NaN and Infinity, which JSON does not have. */
static nb_status scan_word(scan *s, size_t *i, nb_error *err)
{
    size_t k = *i;
    while (k < s->in.n_bytes && is_letter(s->in.p[k])) k++;
    const nb_str word = { s->in.p + *i, k - *i };
    *i = k;
    if (nb_str_eqc(word, "NaN") || nb_str_eqc(word, "Infinity"))
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: line %zu: %s is not JSON, expected a finite number or null",
                       nb_show_path(s->name).s, s->line, nb_show(word).s);
    return NB_OK;
}

static void scan_string(scan *s, size_t *i)
{
    size_t k = *i + 1;
    while (k < s->in.n_bytes && s->in.p[k] != '"') {
        if (s->in.p[k] == '\n') s->line++;
        k += s->in.p[k] == '\\' ? 2 : 1;
    }
    *i = k + 1;
}

static nb_status scan_all(scan *s, nb_error *err)
{
    for (size_t i = 0; i < s->in.n_bytes;) {
        const char c = s->in.p[i];
        if (c == '"') {
            scan_string(s, &i);
            continue;
        }
        if (c == '-' || is_digit(c)) {
            NB_TRY(scan_number(s, &i, err));
            continue;
        }
        if (is_letter(c)) {
            NB_TRY(scan_word(s, &i, err));
            continue;
        }
        if (c == '\n') s->line++;
        if (c == '{' || c == '[') {
            s->depth++;
            s->n_values++;
        }
        if ((c == '}' || c == ']') && s->depth > 0) s->depth--;
        if (c == ',') s->n_values++;
        if (s->depth > s->lim->max_depth)
            return nb_fail(err, NB_ERR_LIMIT, "%s: line %zu: nested deeper than the limit of %zu",
                           nb_show_path(s->name).s, s->line, s->lim->max_depth);
        if (s->n_values > s->lim->max_values)
            return nb_fail(err, NB_ERR_LIMIT, "%s: more values than the limit of %zu",
                           nb_show_path(s->name).s, s->lim->max_values);
        i++;
    }
    return NB_OK;
}

nb_status nb_json_parse(nb_str json, const char *name, const nb_json_limits *lim, json_t **out,
                        nb_error *err)
{
    if (json.n_bytes > lim->max_bytes)
        return nb_fail(err, NB_ERR_LIMIT, "%s: %zu bytes of JSON, the limit is %zu",
                       nb_show_path(name).s, json.n_bytes, lim->max_bytes);
    scan s = { .in = json, .name = name, .lim = lim, .line = 1 };
    nb_status st = scan_all(&s, err);
    if (st == NB_OK) {
        json_error_t e;
        json_t *root =
            json_loadb(s.copy ? s.copy : json.p, json.n_bytes, JSON_REJECT_DUPLICATES, &e);
        if (root)
            *out = root;
        else if (json_error_code(&e) == json_error_out_of_memory || e.text[0] == 0)
            /* jansson says nothing at all in most of these cases */
            st = nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(name).s);
        else if (json_error_code(&e) == json_error_null_character ||
                 json_error_code(&e) == json_error_null_byte_in_key)
            st = nb_fail(err, NB_ERR_FORMAT,
                         "%s: line %d: a string with the character \\u0000, which is refused",
                         nb_show_path(name).s, e.line);
        else
            st = nb_fail(err, NB_ERR_FORMAT, "%s: not valid JSON: line %d: %s",
                         nb_show_path(name).s, e.line, nb_show_c(e.text).s);
    }
    free(s.copy);
    return st;
}
