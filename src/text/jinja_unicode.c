/* jinja_unicode.c - strings as Python sees them: code points, white space, case.
 *
 * Python 3.11 and utf8proc 2.8 both hold Unicode 14.  Case mapping is utf8proc's
 * simple mapping plus the few unconditional multi-character mappings of
 * SpecialCasing.txt that occur in European text, and the final sigma.
 * Searching is linear in the haystack also for long needles (rolling hash),
 * because template and text both may be hostile. */
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja_internal.h"

uint32_t nb_j_cp(nb_str s, size_t at, size_t *len)
{
    uint32_t cp = 0xFFFD;
    const int n = nb_utf8_decode(s.p + at, s.n_bytes - at, &cp);
    *len = n > 0 ? (size_t)n : 1;
    return cp;
}

size_t nb_j_cp_count(nb_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n_bytes; i++) n += ((unsigned char)s.p[i] & 0xC0) != 0x80;
    return n;
}

size_t nb_j_cp_offset(nb_str s, size_t n_cp)
{
    size_t i = 0;
    while (i < s.n_bytes) {
        if (((unsigned char)s.p[i] & 0xC0) != 0x80 && n_cp-- == 0) break;
        i++;
    }
    return i;
}

bool nb_j_is_space(uint32_t cp)
{
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x20);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool nb_j_is_printable(uint32_t cp)
{
    if (cp < 0x7F) return cp >= 0x20;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CC: case UTF8PROC_CATEGORY_CF: case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: case UTF8PROC_CATEGORY_CN: case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static bool is_alpha(uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool is_numeric(uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

static bool is_alnum(uint32_t cp)
{
    return is_alpha(cp) || is_numeric(cp);
}

bool nb_j_is_word(uint32_t cp)
{
    return cp == '_' || is_alnum(cp);
}

/* May start an identifier. */
bool nb_j_word_start(uint32_t cp)
{
    return cp == '_' || is_alpha(cp) || category(cp) == UTF8PROC_CATEGORY_NL;
}

static uint32_t to_lower(uint32_t cp) { return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp); }
static uint32_t to_upper(uint32_t cp)
{
    return cp == 0xDF ? cp : (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
}

static uint32_t to_title(uint32_t cp)
{
    return cp == 0xDF ? cp : (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
}

static bool is_cased(uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
           to_lower(cp) != cp || to_upper(cp) != cp;
}

/* SpecialCasing.txt, unconditional: code point, upper, title. */
static const struct {
    uint32_t cp;
    const char *upper, *title;
} special_case[] = {
    { 0xDF, "SS", "Ss" },       { 0x149, "\xCA\xBCN", "\xCA\xBCN" },
    { 0x1F0, "J\xCC\x8C", "J\xCC\x8C" },
    { 0xFB00, "FF", "Ff" },     { 0xFB01, "FI", "Fi" },     { 0xFB02, "FL", "Fl" },
    { 0xFB03, "FFI", "Ffi" },   { 0xFB04, "FFL", "Ffl" },   { 0xFB05, "ST", "St" },
    { 0xFB06, "ST", "St" },
};

static nb_status add_cp(nb_jr *r, uint32_t cp)
{
    char u[4];
    const int n = nb_utf8_encode(cp, u);
    return nb_j_add(r, (nb_str){ u, n > 0 ? (size_t)n : 0 });
}

static nb_status add_upper(nb_jr *r, uint32_t cp, bool title)
{
    if (cp < 0x80) return nb_j_add_ch(r, (char)(cp >= 'a' && cp <= 'z' ? cp - 32 : cp));
    for (size_t i = 0; i < NB_COUNT(special_case); i++)
        if (special_case[i].cp == cp)
            return nb_j_add_c(r, title ? special_case[i].title : special_case[i].upper);
    return add_cp(r, title ? to_title(cp) : to_upper(cp));
}

/* Sigma at the end of a word: a cased letter before it and none after it. */
static bool is_final_sigma(nb_str s, size_t at, size_t len)
{
    bool before = false;
    size_t n;
    for (size_t i = at; i > 0 && !before;) {
        do i--; while (i > 0 && ((unsigned char)s.p[i] & 0xC0) == 0x80);
        const uint32_t cp = nb_j_cp(s, i, &n);
        if (is_cased(cp)) before = true;
        else if (is_alpha(cp) || nb_j_is_space(cp) || cp < 0x80) break;
    }
    if (!before) return false;
    for (size_t i = at + len; i < s.n_bytes; i += n) {
        const uint32_t cp = nb_j_cp(s, i, &n);
        if (is_cased(cp)) return false;
        if (is_alpha(cp) || nb_j_is_space(cp) || cp < 0x80) break;
    }
    return true;
}

static nb_status add_lower(nb_jr *r, nb_str s, size_t at, size_t len, uint32_t cp)
{
    if (cp < 0x80) return nb_j_add_ch(r, (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp));
    if (cp == 0x130) return nb_j_add_c(r, "i\xCC\x87");
    if (cp == 0x3A3) return nb_j_add_c(r, is_final_sigma(s, at, len) ? "\xCF\x82" : "\xCF\x83");
    return add_cp(r, to_lower(cp));
}

nb_status nb_j_add_case(nb_jr *r, nb_str s, nb_jcase c)
{
    NB_TRY(nb_j_work(r, s.n_bytes));
    for (size_t i = 0, n; i < s.n_bytes; i += n) {
        const uint32_t cp = nb_j_cp(s, i, &n);
        if (c == NB_JCASE_UPPER || (c == NB_JCASE_CAPITALIZE && i == 0))
            NB_TRY(add_upper(r, cp, c == NB_JCASE_CAPITALIZE));
        else NB_TRY(add_lower(r, s, i, n, cp));
    }
    return NB_OK;
}

nb_str nb_j_sub(nb_str s, size_t from, size_t to)
{
    if (to > s.n_bytes) to = s.n_bytes;
    if (from > to) from = to;
    return (nb_str){ s.n_bytes ? s.p + from : "", to - from };
}

static bool in_chars(uint32_t cp, const nb_str *chars)
{
    if (!chars) return nb_j_is_space(cp);
    for (size_t i = 0, n; i < chars->n_bytes; i += n)
        if (nb_j_cp(*chars, i, &n) == cp) return true;
    return false;
}

nb_str nb_j_lstrip(nb_str s, const nb_str *chars)
{
    size_t i = 0, n;
    while (i < s.n_bytes && in_chars(nb_j_cp(s, i, &n), chars)) i += n;
    return nb_j_sub(s, i, s.n_bytes);
}

nb_str nb_j_rstrip(nb_str s, const nb_str *chars)
{
    size_t end = s.n_bytes, n;
    while (end > 0) {
        size_t i = end;
        do i--; while (i > 0 && ((unsigned char)s.p[i] & 0xC0) == 0x80);
        if (!in_chars(nb_j_cp(s, i, &n), chars)) break;
        end = i;
    }
    return nb_j_sub(s, 0, end);
}

enum { SHORT_NEEDLE_BYTES = 32 };
static const uint64_t ROLL = 0x100000001b3u;

static size_t find_rolling(nb_str s, nb_str what, size_t from)
{
    const size_t m = what.n_bytes;
    uint64_t hw = 0, hs = 0, top = 1;
    for (size_t i = 0; i < m; i++) {
        hw = hw * ROLL + (unsigned char)what.p[i];
        hs = hs * ROLL + (unsigned char)s.p[from + i];
        if (i) top *= ROLL;
    }
    for (size_t i = from;; i++) {
        if (hs == hw && memcmp(s.p + i, what.p, m) == 0) return i;
        if (i + m >= s.n_bytes) return SIZE_MAX;
        hs = (hs - top * (unsigned char)s.p[i]) * ROLL + (unsigned char)s.p[i + m];
    }
}

size_t nb_j_find(nb_str s, nb_str what, size_t from)
{
    if (from > s.n_bytes || what.n_bytes > s.n_bytes - from) return SIZE_MAX;
    if (!what.n_bytes) return from;
    if (what.n_bytes > SHORT_NEEDLE_BYTES) return find_rolling(s, what, from);
    const size_t last = s.n_bytes - what.n_bytes;
    while (from <= last) {
        const char *p = memchr(s.p + from, what.p[0], last - from + 1);
        if (!p) break;
        if (memcmp(p, what.p, what.n_bytes) == 0) return (size_t)(p - s.p);
        from = (size_t)(p - s.p) + 1;
    }
    return SIZE_MAX;
}

size_t nb_j_rfind(nb_str s, nb_str what, size_t end)
{
    if (end > s.n_bytes) end = s.n_bytes;
    if (what.n_bytes > end) return SIZE_MAX;
    if (what.n_bytes <= SHORT_NEEDLE_BYTES) {
        for (size_t i = end - what.n_bytes;; i--) {
            if (what.n_bytes == 0 || memcmp(s.p + i, what.p, what.n_bytes) == 0) return i;
            if (i == 0) return SIZE_MAX;
        }
    }
    size_t found = SIZE_MAX;
    const nb_str head = nb_j_sub(s, 0, end);
    for (size_t i = 0; (i = nb_j_find(head, what, i)) != SIZE_MAX; i++) found = i;
    return found;
}

nb_status nb_j_replace(nb_jr *r, nb_str s, nb_str from, nb_str to, int64_t max_n, nb_jv *out)
{
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_work(r, s.n_bytes));
    size_t at = 0;
    int64_t n = 0;
    if (!from.n_bytes) { /* before every code point and at the end */
        for (size_t len; at < s.n_bytes && (max_n < 0 || n < max_n); at += len, n++) {
            nb_j_cp(s, at, &len);
            NB_TRY(nb_j_add(r, to));
            NB_TRY(nb_j_add(r, nb_j_sub(s, at, at + len)));
        }
        if (at == s.n_bytes && (max_n < 0 || n < max_n)) NB_TRY(nb_j_add(r, to));
    } else {
        for (; max_n < 0 || n < max_n; n++) {
            const size_t hit = nb_j_find(s, from, at);
            if (hit == SIZE_MAX) break;
            NB_TRY(nb_j_add(r, nb_j_sub(s, at, hit)));
            NB_TRY(nb_j_add(r, to));
            at = hit + from.n_bytes;
        }
        if (n == 0) {
            *out = nb_jv_str(s);
            return NB_OK;
        }
    }
    NB_TRY(nb_j_add(r, nb_j_sub(s, at, s.n_bytes)));
    return nb_j_take(r, mark, out);
}

nb_status nb_j_add_escaped(nb_jr *r, nb_str s)
{
    size_t done = 0;
    for (size_t i = 0; i < s.n_bytes; i++) {
        const char *e = NULL;
        switch (s.p[i]) {
        case '&': e = "&amp;"; break;
        case '<': e = "&lt;"; break;
        case '>': e = "&gt;"; break;
        case '"': e = "&#34;"; break;
        case '\'': e = "&#39;"; break;
        default: continue;
        }
        NB_TRY(nb_j_add(r, nb_j_sub(s, done, i)));
        NB_TRY(nb_j_add_c(r, e));
        done = i + 1;
    }
    return nb_j_add(r, nb_j_sub(s, done, s.n_bytes));
}
