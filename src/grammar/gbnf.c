/* gbnf.c - grammars in llama.cpp's notation.
 *
 *   name ::= sequence | sequence ...      root is where it starts; # begins a comment
 *   "text"  [a-z]  [^a-z]  .  name  ( ... )  each with * + ? {m} {m,} {m,n}
 *   <[id]>  <marker>                      a token of the vocabulary
 *
 * A rule's alternatives may go on in the next line where that begins with |. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/regex.h"
#include "load/json.h"

enum { MAX_GBNF = 256 << 10, MAX_RULE = 10000, MAX_NEST = 200, MAX_REPEAT = 0x7fffffff };

typedef struct named {
    nb_str name;
    uint32_t rule;
    const nb_re *body; /* NULL: not yet defined */
    size_t at;         /* where it was first named */
} named;

typedef struct parser {
    nb_grammar *g;
    nb_str s;
    size_t at, nest;
    named *rule;
    size_t n_rule, cap_rule;
} parser;

typedef struct list {
    nb_re **x;
    size_t n, cap;
} list;

static nb_re *wrong(parser *p, const char *what)
{
    size_t line = 1;
    for (size_t i = 0; i < p->at && i < p->s.n_bytes; i++) line += p->s.p[i] == '\n';
    (void)nb_g_fail(p->g, NB_ERR_FORMAT, "line %zu: %s", line, what);
    return NULL;
}

static int peek(const parser *p)
{
    return p->at < p->s.n_bytes ? (unsigned char)p->s.p[p->at] : -1;
}

static bool take(parser *p, char c)
{
    if (peek(p) != (unsigned char)c) return false;
    p->at++;
    return true;
}

static void blanks(parser *p, bool lines)
{
    for (int c = peek(p); c >= 0; c = peek(p)) {
        if (c == '#')
            while (peek(p) >= 0 && peek(p) != '\n') p->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
            p->at++;
        else
            break;
    }
}

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static nb_str name(parser *p)
{
    const size_t first = p->at;
    while (is_name(peek(p))) p->at++;
    return (nb_str){ p->s.p + first, p->at - first };
}

/* The index of a rule, made if it is new; SIZE_MAX: failure. */
static size_t rule_of(parser *p, nb_str s)
{
    if (!nb_g_spend(p->g, 1 + p->n_rule / 16)) return SIZE_MAX;
    for (size_t i = 0; i < p->n_rule; i++)
        if (nb_str_eq(p->rule[i].name, s)) return i;
    if (p->n_rule >= MAX_RULE) {
        (void)nb_g_fail(p->g, NB_ERR_LIMIT, "more than %d rules", MAX_RULE);
        return SIZE_MAX;
    }
    if (NB_GROW(p->rule, p->cap_rule, p->n_rule) != NB_OK) {
        (void)nb_g_fail(p->g, NB_ERR_NOMEM, "no memory for a grammar");
        return SIZE_MAX;
    }
    p->rule[p->n_rule] = (named){ s, nb_g_rule_new(p->g), NULL, p->at };
    return p->n_rule++;
}

/* ---- characters ---- */

static int hex_value(int c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool character(parser *p, uint32_t *cp)
{
    if (!take(p, '\\')) {
        const int k = nb_utf8_decode(p->s.p + p->at, p->s.n_bytes - p->at, cp);
        if (k <= 0) return wrong(p, "it is not UTF-8") != NULL;
        p->at += (size_t)k;
        return true;
    }
    const int c = peek(p);
    if (c < 0) return wrong(p, "it ends after a backslash") != NULL;
    p->at++;
    const int n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    *cp = 0;
    for (int i = 0; i < n; i++) {
        const int d = hex_value(peek(p));
        if (d < 0) return wrong(p, "hexadecimal digits were expected") != NULL;
        *cp = *cp * 16 + (uint32_t)d;
        p->at++;
    }
    if (n && (*cp > 0x10ffff || (*cp >= 0xd800 && *cp <= 0xdfff)))
        return wrong(p, "no such code point") != NULL;
    if (n) return true;
    static const char from[] = "nrt\"\\[]-^/.'", to[] = "\n\r\t\"\\[]-^/.'";
    const char *k = strchr(from, c);
    if (!k) return wrong(p, "an unknown escape") != NULL;
    *cp = (unsigned char)to[k - from];
    return true;
}

static bool push(parser *p, list *l, nb_re *x)
{
    if (!x) return false;
    if (NB_GROW(l->x, l->cap, l->n) != NB_OK)
        return nb_g_fail(p->g, NB_ERR_NOMEM, "no memory for a grammar") == NB_OK;
    l->x[l->n++] = x;
    return true;
}

static nb_re *literal(parser *p)
{
    list l = { 0 };
    bool ok = true;
    while (ok && !take(p, '"')) {
        uint32_t cp;
        if (peek(p) < 0 || peek(p) == '\n')
            ok = wrong(p, "a text without its closing \"") != NULL;
        else
            ok = character(p, &cp) && push(p, &l, nb_re_range(p->g, cp, cp));
    }
    nb_re *x = ok ? nb_re_new(p->g, R_CAT, l.x, l.n) : NULL;
    free(l.x);
    return x;
}

static nb_re *class(parser *p)
{
    nb_range *r = NULL;
    size_t n = 0, cap = 0;
    const bool negate = take(p, '^');
    bool ok = true;
    while (ok && !take(p, ']')) {
        nb_range a;
        if (peek(p) < 0 || peek(p) == '\n') {
            ok = wrong(p, "a class without its ]") != NULL;
            break;
        }
        ok = character(p, &a.lo);
        a.hi = a.lo;
        if (ok && peek(p) == '-' && p->at + 1 < p->s.n_bytes && p->s.p[p->at + 1] != ']') {
            p->at++;
            ok = character(p, &a.hi);
        }
        if (ok && a.hi < a.lo) ok = wrong(p, "a range whose end is before its start") != NULL;
        if (ok && NB_GROW(r, cap, n) != NB_OK)
            ok = nb_g_fail(p->g, NB_ERR_NOMEM, "no memory for a grammar") == NB_OK;
        if (ok) r[n++] = a;
    }
    nb_re *x = ok ? nb_re_new(p->g, R_CLASS, NULL, 0) : NULL;
    if (x) x->set = nb_cpset_make(p->g, r, n, negate);
    free(r);
    return nb_g_ok(p->g) ? x : NULL;
}

/* <[12]> or <think>: a token. */
static nb_re *token(parser *p)
{
    const size_t first = p->at - 1;
    while (peek(p) >= 0 && peek(p) != '>' && peek(p) != '\n') p->at++;
    if (!take(p, '>')) return wrong(p, "a token without its >");
    const nb_str s = { p->s.p + first, p->at - first };
    nb_re *x = nb_re_new(p->g, R_TOKEN, NULL, 0);
    if (!x) return NULL;
    x->min = nb_vocab_marker(p->g->vocab, s);
    if (s.n_bytes > 4 && s.p[1] == '[' && s.p[s.n_bytes - 2] == ']') {
        char *end;
        const unsigned long id = strtoul(s.p + 2, &end, 10);
        if (end == s.p + s.n_bytes - 2 && id < nb_vocab_size(p->g->vocab) &&
            nb_vocab_is_marker(p->g->vocab, (uint32_t)id))
            x->min = (uint32_t)id;
    }
    if (x->min == NB_GRAMMAR_NO_TOKEN) {
        (void)nb_g_fail(p->g, NB_ERR_NOT_FOUND, "\"%s\" is not a special token of the vocabulary",
                        nb_show(s).s);
        return NULL;
    }
    return x;
}

/* ---- structure ---- */

static nb_re *alternatives(parser *p);

static nb_re *atom(parser *p)
{
    nb_range line[] = { { '\n', '\n' } };
    if (take(p, '"')) return literal(p);
    if (take(p, '[')) return class(p);
    if (take(p, '<')) return token(p);
    if (take(p, '.')) {
        nb_re *x = nb_re_new(p->g, R_CLASS, NULL, 0);
        if (x) x->set = nb_cpset_make(p->g, line, 0, true);
        return nb_g_ok(p->g) ? x : NULL;
    }
    if (take(p, '(')) {
        if (++p->nest > MAX_NEST) return wrong(p, "groups are nested too deeply");
        nb_re *x = alternatives(p);
        p->nest--;
        if (x && !take(p, ')')) return wrong(p, "a group without its )");
        return x;
    }
    if (!is_name(peek(p))) return wrong(p, "a text, a class, a name or a group was expected");
    const size_t i = rule_of(p, name(p));
    nb_re *x = i == SIZE_MAX ? NULL : nb_re_new(p->g, R_RULE, NULL, 0);
    if (x) x->min = p->rule[i].rule;
    return x;
}

static bool number(parser *p, uint32_t *out)
{
    uint64_t v = 0;
    const size_t first = p->at;
    blanks(p, false);
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        if (v <= MAX_REPEAT) v = v * 10 + (uint64_t)(peek(p) - '0');
    *out = v > MAX_REPEAT ? (uint32_t)MAX_REPEAT + 1 : (uint32_t)v;
    const bool some = p->at > first;
    blanks(p, false);
    return some;
}

static nb_re *repeated(parser *p)
{
    nb_re *x = atom(p);
    while (x) {
        uint32_t min = 0, max = NB_G_INF;
        if (take(p, '*')) {
        } else if (take(p, '+')) {
            min = 1;
        } else if (take(p, '?')) {
            max = 1;
        } else if (take(p, '{')) {
            const bool low = number(p, &min);
            max = min;
            if (take(p, ',')) {
                if (!number(p, &max)) max = NB_G_INF;
            } else if (!low) {
                return wrong(p, "a count was expected after {");
            }
            if (!take(p, '}')) return wrong(p, "a count without its }");
        } else {
            break;
        }
        if (min > MAX_REPEAT || (max > MAX_REPEAT && max != NB_G_INF) || max < min)
            return wrong(p, "a count is not possible: expected {m,n} with m <= n <= 2147483647");
        x = nb_re_repeat(p->g, x, min, max);
    }
    return x;
}

/* Whether the next line goes on with an alternative. */
static bool more_below(parser *p)
{
    const size_t here = p->at;
    blanks(p, true);
    if (peek(p) == '|') return true;
    p->at = here;
    return false;
}

static nb_re *sequence(parser *p)
{
    list l = { 0 };
    bool ok = true;
    blanks(p, true);
    while (ok) {
        const int c = peek(p);
        if (c < 0 || c == '|' || c == ')' || c == '\n' || c == '\r') break;
        ok = push(p, &l, repeated(p));
        blanks(p, p->nest > 0);
    }
    nb_re *x = ok ? nb_re_new(p->g, R_CAT, l.x, l.n) : NULL;
    free(l.x);
    return x;
}

static nb_re *alternatives(parser *p)
{
    list l = { 0 };
    bool ok = push(p, &l, sequence(p));
    while (ok && (peek(p) == '|' || more_below(p)) && take(p, '|')) ok = push(p, &l, sequence(p));
    nb_re *x = ok ? nb_re_new(p->g, R_ALT, l.x, l.n) : NULL;
    free(l.x);
    return x;
}

static bool rule(parser *p)
{
    const nb_str n = name(p);
    if (n.n_bytes == 0) return wrong(p, "a rule's name was expected") != NULL;
    blanks(p, false);
    if (p->s.n_bytes - p->at < 3 || memcmp(p->s.p + p->at, "::=", 3) != 0)
        return wrong(p, "\"::=\" was expected after a rule's name") != NULL;
    p->at += 3;
    const size_t i = rule_of(p, n);
    if (i == SIZE_MAX) return false;
    if (p->rule[i].body) return wrong(p, "a rule is defined twice") != NULL;
    const nb_re *body = alternatives(p);
    if (!body) return false;
    if (peek(p) >= 0 && peek(p) != '\n' && peek(p) != '\r')
        return wrong(p, "the end of a rule was expected") != NULL;
    p->rule[i].body = body;
    return true;
}

static bool emit_all(parser *p)
{
    nb_grammar *g = p->g;
    bool root = false;
    for (size_t i = 0; i < p->n_rule && nb_g_ok(g); i++) {
        const named *r = &p->rule[i];
        if (!r->body) {
            (void)nb_g_fail(g, NB_ERR_NOT_FOUND, "the rule \"%s\" is not defined",
                            nb_show(r->name).s);
            return false;
        }
        nb_g_rule_set(g, r->rule, nb_re_emit(g, r->body, NB_RE_PLAIN, nb_g_ret(g)));
        if (!nb_str_eqc(r->name, "root")) continue;
        root = true;
        g->root = r->rule;
    }
    if (!root && nb_g_ok(g)) (void)nb_g_fail(g, NB_ERR_NOT_FOUND, "there is no rule \"root\"");
    return nb_g_ok(g);
}

nb_status nb_g_gbnf(nb_grammar *g, nb_str text)
{
    parser p = { .g = g, .s = text };
    if (text.n_bytes > MAX_GBNF)
        return nb_g_fail(g, NB_ERR_LIMIT, "%zu bytes: expected at most %d", text.n_bytes, MAX_GBNF);
    if (!nb_g_spend(g, text.n_bytes)) return g->err.status;
    blanks(&p, true);
    if (text.n_bytes - p.at >= 6 && memcmp(text.p + p.at, "start:", 6) == 0)
        return nb_g_fail(g, NB_ERR_UNSUPPORTED,
                         "Lark's notation is not supported: expected llama.cpp's (root ::= ...)");
    bool ok = true;
    while (ok && peek(&p) >= 0) {
        ok = rule(&p);
        blanks(&p, true);
    }
    if (ok) (void)emit_all(&p);
    free(p.rule);
    return g->err.status;
}
