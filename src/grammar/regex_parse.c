/* regex_parse.c - the text of a regular expression to a tree. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/regex.h"

enum { MAX_NEST = 200, MAX_CP = 0x10ffff, MAX_REPEAT = 0x7fffffff };

typedef struct parser {
    nb_grammar *g;
    nb_str s;
    size_t at, nest;
    bool search; /* a pattern: '.' does not match what ECMA calls line terminators */
} parser;

typedef struct list {
    nb_re **x;
    size_t n, cap;
} list;
typedef struct ranges {
    nb_range *r;
    size_t n, cap;
} ranges;

/* ---- making trees ---- */

nb_re *nb_re_new(nb_grammar *g, nb_re_kind kind, nb_re *const *sub, size_t n)
{
    nb_re *x = nb_g_alloc(g, 1, sizeof *x);
    if (!x) return NULL;
    x->kind = kind;
    if (n) {
        x->sub = nb_g_alloc(g, n, sizeof *x->sub);
        if (!x->sub) return NULL;
        memcpy(x->sub, sub, n * sizeof *sub);
    }
    x->n = n;
    return x;
}

nb_re *nb_re_repeat(nb_grammar *g, nb_re *x, uint32_t min, uint32_t max)
{
    nb_re *r = nb_re_new(g, R_REP, &x, 1);
    if (!r) return NULL;
    r->min = min;
    r->max = max;
    return r;
}

static int by_lo(const void *x, const void *y)
{
    const nb_range *a = x, *b = y;
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

/* Adds [lo, hi] without the surrogates. */
static void put(nb_range *out, size_t *n, uint32_t lo, uint32_t hi)
{
    if (lo < 0xd800 && hi >= lo) out[(*n)++] = (nb_range){ lo, hi < 0xd800 ? hi : 0xd7ff };
    if (hi > 0xdfff && hi >= lo) out[(*n)++] = (nb_range){ lo > 0xdfff ? lo : 0xe000, hi };
}

nb_cpset nb_cpset_make(nb_grammar *g, nb_range *r, size_t n, bool negate)
{
    nb_cpset s = { nb_g_alloc(g, 2 * n + 2, sizeof *s.r), 0 };
    if (!s.r) return s;
    if (n > 1) qsort(r, n, sizeof *r, by_lo);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (m && r[i].lo <= r[m - 1].hi + 1) {
            if (r[i].hi > r[m - 1].hi) r[m - 1].hi = r[i].hi;
        } else {
            r[m++] = r[i];
        }
    }
    uint32_t from = 0;
    for (size_t i = 0; i < m; i++) {
        if (!negate)
            put(s.r, &s.n, r[i].lo, r[i].hi);
        else if (r[i].lo > from)
            put(s.r, &s.n, from, r[i].lo - 1);
        from = r[i].hi + 1;
    }
    if (negate && from <= MAX_CP) put(s.r, &s.n, from, MAX_CP);
    return s;
}

static nb_re *class_of(nb_grammar *g, nb_range *r, size_t n, bool negate)
{
    nb_re *x = nb_re_new(g, R_CLASS, NULL, 0);
    if (x) x->set = nb_cpset_make(g, r, n, negate);
    return nb_g_ok(g) ? x : NULL;
}

nb_re *nb_re_range(nb_grammar *g, uint32_t lo, uint32_t hi)
{
    return class_of(g, &(nb_range){ lo, hi }, 1, false);
}

nb_re *nb_re_literal(nb_grammar *g, nb_str s)
{
    nb_re *x = nb_re_new(g, R_CAT, NULL, 0);
    if (!x) return NULL;
    x->sub = nb_g_alloc(g, s.n_bytes, sizeof *x->sub);
    for (size_t i = 0; nb_g_ok(g) && i < s.n_bytes;) {
        uint32_t cp = 0;
        const int k = nb_utf8_decode(s.p + i, s.n_bytes - i, &cp);
        if (k <= 0) {
            (void)nb_g_fail(g, NB_ERR_FORMAT, "a text is not UTF-8");
            return NULL;
        }
        x->sub[x->n++] = nb_re_range(g, cp, cp);
        i += (size_t)k;
    }
    return nb_g_ok(g) ? x : NULL;
}

/* ---- reading ---- */

static nb_re *refuse(parser *p, const char *what)
{
    (void)nb_g_fail(p->g, NB_ERR_UNSUPPORTED,
                    "the regular expression has %s at byte %zu, which is not supported", what,
                    p->at);
    return NULL;
}

static nb_re *wrong(parser *p, const char *what)
{
    (void)nb_g_fail(p->g, NB_ERR_FORMAT, "the regular expression is malformed at byte %zu: %s",
                    p->at, what);
    return NULL;
}

static int peek(const parser *p)
{
    return p->at < p->s.n_bytes ? (unsigned char)p->s.p[p->at] : -1;
}

static bool take(parser *p, const char *word)
{
    const size_t n = strlen(word);
    if (p->s.n_bytes - p->at < n || memcmp(p->s.p + p->at, word, n) != 0) return false;
    p->at += n;
    return true;
}

static bool code_point(parser *p, uint32_t *cp)
{
    const int k = nb_utf8_decode(p->s.p + p->at, p->s.n_bytes - p->at, cp);
    if (k <= 0) {
        (void)wrong(p, "it is not UTF-8");
        return false;
    }
    p->at += (size_t)k;
    return true;
}

static int hex_value(int c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* n digits; n 0: up to a closing brace. */
static bool hex(parser *p, size_t n, uint32_t *cp)
{
    uint32_t v = 0;
    size_t i = 0;
    for (; n == 0 || i < n; i++) {
        if (n == 0 && i && peek(p) == '}') break;
        const int d = hex_value(peek(p));
        if (d < 0 || v > MAX_CP) {
            (void)wrong(p, "a hexadecimal code point was expected");
            return false;
        }
        v = v * 16 + (uint32_t)d;
        p->at++;
    }
    if (n == 0) p->at++;
    if (v > MAX_CP) {
        (void)wrong(p, "a code point above 10FFFF");
        return false;
    }
    *cp = v;
    return true;
}

static bool hex_escape(parser *p, size_t n, uint32_t *cp)
{
    if (take(p, "{")) return hex(p, 0, cp);
    if (!hex(p, n, cp)) return false;
    if (n == 4 && *cp >= 0xd800 && *cp < 0xdc00) {
        uint32_t low;
        if (!take(p, "\\u") || !hex(p, 4, &low) || low < 0xdc00 || low > 0xdfff) {
            (void)wrong(p, "half of a pair of surrogates");
            return false;
        }
        *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
    }
    if (*cp >= 0xd800 && *cp <= 0xdfff) {
        (void)wrong(p, "half of a pair of surrogates");
        return false;
    }
    return true;
}

static bool add(parser *p, ranges *r, uint32_t lo, uint32_t hi)
{
    if (NB_GROW(r->r, r->cap, r->n) != NB_OK) {
        (void)nb_g_fail(p->g, NB_ERR_NOMEM, "no memory for a regular expression");
        return false;
    }
    r->r[r->n++] = (nb_range){ lo, hi };
    return true;
}

static const nb_range digits[] = { { '0', '9' } };
static const nb_range words[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
static const nb_range blanks[] = { { 9, 13 },          { 32, 32 },         { 0xa0, 0xa0 },
                                   { 0x1680, 0x1680 }, { 0x2000, 0x200a }, { 0x2028, 0x2029 },
                                   { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x3000, 0x3000 },
                                   { 0xfeff, 0xfeff } };

/* \d, \w, \s and their complements. */
static bool add_named(parser *p, ranges *r, int c)
{
    const nb_range *t = blanks;
    size_t n = NB_COUNT(blanks);
    const int low = c | 32;
    if (low == 'd') {
        t = digits;
        n = NB_COUNT(digits);
    } else if (low == 'w') {
        t = words;
        n = NB_COUNT(words);
    }
    uint32_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (c == low && !add(p, r, t[i].lo, t[i].hi)) return false;
        if (c != low && t[i].lo > from && !add(p, r, from, t[i].lo - 1)) return false;
        from = t[i].hi + 1;
    }
    return c == low || add(p, r, from, MAX_CP);
}

/* After a backslash: a single code point.  False: refused or malformed. */
static bool escape(parser *p, uint32_t *cp)
{
    const int c = peek(p);
    static const char from[] = "tnrfv0", to[] = "\t\n\r\f\v";
    if (c < 0) {
        (void)wrong(p, "it ends after a backslash");
        return false;
    }
    const char *k = strchr(from, c);
    if (k && c) {
        p->at++;
        *cp = (unsigned char)to[k - from];
        return true;
    }
    if (c == 'x' || c == 'u') {
        p->at++;
        return hex_escape(p, c == 'x' ? 2 : 4, cp);
    }
    if (c == 'c') {
        p->at++;
        const int l = peek(p) | 32;
        if (l < 'a' || l > 'z') {
            (void)wrong(p, "a letter was expected after \\c");
            return false;
        }
        p->at++;
        *cp = (uint32_t)(l - 'a' + 1);
        return true;
    }
    if ((c >= '1' && c <= '9') || c == 'k') {
        (void)refuse(p, "a back reference");
        return false;
    }
    if (c == 'p' || c == 'P') {
        (void)refuse(p, "a Unicode property");
        return false;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        (void)refuse(p, "an escape of a letter without a meaning");
        return false;
    }
    return code_point(p, cp);
}

/* One member of a class: a code point, or a named set (*named, which was added). */
static bool member(parser *p, ranges *r, uint32_t *cp, bool *named)
{
    *named = false;
    if (!take(p, "\\")) return code_point(p, cp);
    const int c = peek(p);
    if (c > 0 && strchr("dDwWsS", c)) {
        p->at++;
        *named = true;
        return add_named(p, r, c);
    }
    if (take(p, "b")) {
        *cp = 8;
        return true;
    }
    return escape(p, cp);
}

static bool read_class(parser *p, ranges *r)
{
    while (!take(p, "]")) {
        if (p->at >= p->s.n_bytes) return wrong(p, "a class without its ]") != NULL;
        if (take(p, "[:")) return refuse(p, "a POSIX class") != NULL;
        uint32_t lo = 0, hi = 0;
        bool named, named_too;
        if (!nb_g_spend(p->g, 1) || !member(p, r, &lo, &named)) return false;
        hi = lo;
        if (peek(p) == '-' && p->at + 1 < p->s.n_bytes && p->s.p[p->at + 1] != ']') {
            p->at++;
            if (!member(p, r, &hi, &named_too)) return false;
            if (named || named_too) return wrong(p, "a range between sets") != NULL;
            if (hi < lo) return wrong(p, "a range whose end is before its start") != NULL;
        }
        if (!named && !add(p, r, lo, hi)) return false;
    }
    return true;
}

static nb_re *parse_class(parser *p)
{
    ranges r = { 0 };
    const bool negate = take(p, "^");
    nb_re *x = read_class(p, &r) ? class_of(p->g, r.r, r.n, negate) : NULL;
    free(r.r);
    return x;
}

static nb_re *parse_alt(parser *p);

static nb_re *parse_group(parser *p)
{
    if (take(p, "?")) {
        if (peek(p) == '=' || peek(p) == '!') return refuse(p, "look-around (\"(?=\" or \"(?!\")");
        if (take(p, "<=") || take(p, "<!")) return refuse(p, "look-around (\"(?<\")");
        if (take(p, "P<") || take(p, "<")) {
            while (peek(p) >= 0 && peek(p) != '>') p->at++;
            if (!take(p, ">")) return wrong(p, "a group's name without its >");
        } else if (!take(p, ":")) {
            return refuse(p, "a group with flags");
        }
    }
    if (++p->nest > MAX_NEST) return wrong(p, "groups are nested too deeply");
    nb_re *x = parse_alt(p);
    p->nest--;
    if (x && !take(p, ")")) return wrong(p, "a group without its )");
    return x;
}

static nb_re *parse_dot(parser *p)
{
    nb_range plain[] = { { '\n', '\n' } };
    nb_range ecma[] = { { '\n', '\n' }, { '\r', '\r' }, { 0x2028, 0x2029 } };
    return p->search ? class_of(p->g, ecma, 3, true) : class_of(p->g, plain, 1, true);
}

static nb_re *parse_atom(parser *p)
{
    const int c = peek(p);
    uint32_t cp;
    if (take(p, "(")) return parse_group(p);
    if (take(p, "[")) return parse_class(p);
    if (take(p, ".")) return parse_dot(p);
    if (take(p, "^") || take(p, "\\A")) return nb_re_new(p->g, R_BEGIN, NULL, 0);
    if (take(p, "$") || take(p, "\\z") || take(p, "\\Z")) return nb_re_new(p->g, R_END, NULL, 0);
    if (c == '*' || c == '+' || c == '?') return wrong(p, "a quantifier without what it repeats");
    if (!take(p, "\\")) return code_point(p, &cp) ? nb_re_range(p->g, cp, cp) : NULL;
    const int e = peek(p);
    if (e == 'b' || e == 'B') return refuse(p, "a word boundary");
    if (e > 0 && strchr("dDwWsS", e)) {
        ranges r = { 0 };
        p->at++;
        nb_re *x = add_named(p, &r, e) ? class_of(p->g, r.r, r.n, false) : NULL;
        free(r.r);
        return x;
    }
    return escape(p, &cp) ? nb_re_range(p->g, cp, cp) : NULL;
}

/* A number of a {m,n}; false when there is none. */
static bool number(const parser *p, size_t *at, uint32_t *out)
{
    uint64_t v = 0;
    const size_t first = *at;
    while (*at < p->s.n_bytes && p->s.p[*at] >= '0' && p->s.p[*at] <= '9') {
        if (v <= MAX_REPEAT) v = v * 10 + (uint64_t)(p->s.p[*at] - '0');
        (*at)++;
    }
    *out = v > MAX_REPEAT ? (uint32_t)MAX_REPEAT + 1 : (uint32_t)v;
    return *at > first;
}

/* {m}, {m,}, {m,n} at p->at; false: a brace that stands for itself. */
static bool braces(parser *p, uint32_t *min, uint32_t *max)
{
    size_t at = p->at + 1;
    if (!number(p, &at, min)) return false;
    *max = *min;
    if (at < p->s.n_bytes && p->s.p[at] == ',') {
        at++;
        if (!number(p, &at, max)) *max = NB_G_INF;
    }
    if (at >= p->s.n_bytes || p->s.p[at] != '}') return false;
    p->at = at + 1;
    return true;
}

static nb_re *parse_repeat(parser *p)
{
    nb_re *x = parse_atom(p);
    while (x) {
        uint32_t min = 0, max = NB_G_INF;
        if (take(p, "*"))
            ;
        else if (take(p, "+"))
            min = 1;
        else if (take(p, "?"))
            max = 1;
        else if (peek(p) != '{' || !braces(p, &min, &max))
            break;
        if (min > MAX_REPEAT || (max > MAX_REPEAT && max != NB_G_INF))
            return wrong(p, "a count above 2147483647");
        if (max < min) return wrong(p, "a count whose end is below its start");
        if (x->kind == R_BEGIN || x->kind == R_END) return refuse(p, "a repeated anchor");
        if (peek(p) == '+') return refuse(p, "a possessive quantifier");
        (void)take(p, "?"); /* lazy: the same texts */
        x = nb_re_repeat(p->g, x, min, max);
    }
    return x;
}

static bool push(parser *p, list *l, nb_re *x)
{
    if (!x) return false;
    if (NB_GROW(l->x, l->cap, l->n) != NB_OK) {
        (void)nb_g_fail(p->g, NB_ERR_NOMEM, "no memory for a regular expression");
        return false;
    }
    l->x[l->n++] = x;
    return true;
}

static nb_re *parse_cat(parser *p)
{
    list l = { 0 };
    bool ok = true;
    while (ok && p->at < p->s.n_bytes && peek(p) != '|' && peek(p) != ')')
        ok = push(p, &l, parse_repeat(p));
    nb_re *x = !ok ? NULL : nb_re_new(p->g, R_CAT, l.x, l.n);
    free(l.x);
    return x;
}

static nb_re *parse_alt(parser *p)
{
    list l = { 0 };
    bool ok = push(p, &l, parse_cat(p));
    while (ok && take(p, "|")) ok = push(p, &l, parse_cat(p));
    nb_re *x = !ok ? NULL : nb_re_new(p->g, R_ALT, l.x, l.n);
    free(l.x);
    return x;
}

/* ---- anchors ---- */

static bool has_anchor(const nb_re *x)
{
    if (x->kind == R_BEGIN || x->kind == R_END) return true;
    for (size_t i = 0; i < x->n; i++)
        if (has_anchor(x->sub[i])) return true;
    return false;
}

/* A tree without anchors: those at the ends of the whole expression's branches say where any text may
 * stand; others are refused. */
static nb_re *settle(parser *p, const nb_re *x)
{
    if (x->kind == R_ALT) {
        nb_re *a = nb_re_new(p->g, R_ALT, x->sub, x->n);
        for (size_t i = 0; a && i < x->n; i++)
            if (!(a->sub[i] = settle(p, x->sub[i]))) return NULL;
        return a;
    }
    NB_ASSERT(x->kind == R_CAT);
    size_t lo = 0, hi = x->n;
    while (lo < hi && x->sub[lo]->kind == R_BEGIN) lo++;
    while (hi > lo && x->sub[hi - 1]->kind == R_END) hi--;
    const bool begins = lo > 0, ends = hi < x->n;
    if (!begins && !ends && hi - lo == 1 && x->sub[0]->kind == R_ALT && has_anchor(x->sub[0]))
        return settle(p, x->sub[0]);
    nb_re *any = nb_re_new(p->g, R_ANY, NULL, 0);
    nb_re **sub = nb_g_alloc(p->g, hi - lo + 2, sizeof *sub);
    if (!any || !sub) return NULL;
    size_t n = 0;
    if (p->search && !begins) sub[n++] = any;
    for (size_t i = lo; i < hi; i++) {
        if (has_anchor(x->sub[i])) return refuse(p, "an anchor (^ or $) inside");
        sub[n++] = x->sub[i];
    }
    if (p->search && !ends) sub[n++] = any;
    return nb_re_new(p->g, R_CAT, sub, n);
}

nb_re *nb_re_parse(nb_grammar *g, nb_str text, bool search)
{
    const size_t most = search ? NB_RE_MAX_PATTERN : NB_RE_MAX_BYTES;
    if (text.n_bytes > most) {
        (void)nb_g_fail(g, NB_ERR_LIMIT, "a regular expression of %zu bytes: expected at most %zu",
                        text.n_bytes, most);
        return NULL;
    }
    if (!nb_g_spend(g, text.n_bytes)) return NULL;
    parser p = { .g = g, .s = text, .search = search };
    nb_re *x = parse_alt(&p);
    if (x && p.at < text.n_bytes) return wrong(&p, "a ) without its (");
    return x ? settle(&p, x) : NULL;
}
