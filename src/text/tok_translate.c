/* tok_translate.c - from Oniguruma's Ruby syntax to PCRE2 (see tok_regex.h).
 *
 * What differs, and is rewritten here:
 *   \s \S    Unicode White_Space; PCRE2's UCP \s also has U+180E
 *   \d \w \h \v \N \O \b and their negations, \uHHHH
 *   \p{Long_Name}, \p{^Name}, and \p{Script}, which in PCRE2 means the script's
 *            extensions as well (U+3001 is no Han character elsewhere)
 *   [a[bc]], [a&&[^b]]     nested classes and intersections
 *   {,n}     a quantifier;   X{n,m}+  repeats X{n,m}, it is not possessive
 *   (?m:     makes the dot match line breaks
 * ^ and $ match at line breaks in both, with PCRE2_MULTILINE.  What has no
 * counterpart (absence operators, call-outs, POSIX brackets, \W in a class,
 * bytes \x80-\xff, verbs) is refused by name. */
#include <stdlib.h>

#include "base/attr.h"
#include "text/tok_regex.h"
#include "text/tok_unicode.h"

#define SPACE_SET                                                                                  \
    "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"                     \
    "\\x{202f}\\x{205f}\\x{3000}"
#define NONSPACE_SET                                                                               \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"                   \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"                 \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
/* Alphabetic, M, Nd, Pc; the code points are symbols with Other_Alphabetic. */
#define WORD_SET                                                                                   \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"                    \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define WORD_EDGE "(?:(?<=[" WORD_SET "])(?![" WORD_SET "])|(?<![" WORD_SET "])(?=[" WORD_SET "]))"
#define WORD_INNER "(?:(?<=[" WORD_SET "])(?=[" WORD_SET "])|(?<![" WORD_SET "])(?![" WORD_SET "]))"

enum { MAX_DEPTH = 32, MAX_PATTERN_BYTES = 16384 };

typedef struct tr {
    nb_str in;
    size_t i;
    nb_buf *out;
    nb_error *err;
    size_t atom;             /* where the last atom starts in *out            */
    size_t group[MAX_DEPTH]; /* where the open groups start in *out           */
    unsigned depth;
} tr;

static nb_status refuse(const tr *t, const char *what)
{
    return nb_fail(t->err, NB_ERR_UNSUPPORTED,
                   "regular expression \"%.*s\": %s at byte %zu is not supported",
                   (int)(t->in.n_bytes < 200 ? t->in.n_bytes : 200), t->in.p, what, t->i);
}

static int peek(const tr *t, size_t ahead)
{
    return t->in.n_bytes - t->i > ahead ? (unsigned char)t->in.p[t->i + ahead] : -1;
}
static bool looking_at(const tr *t, const char *s)
{
    const size_t n = strlen(s);
    return t->in.n_bytes - t->i >= n && memcmp(t->in.p + t->i, s, n) == 0;
}

static bool is_hex(int c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static const struct {
    const char *name, *abbreviation;
} CATEGORIES[] = {
    { "letter", "L" },
    { "uppercaseletter", "Lu" },
    { "lowercaseletter", "Ll" },
    { "titlecaseletter", "Lt" },
    { "casedletter", "L&" },
    { "modifierletter", "Lm" },
    { "otherletter", "Lo" },
    { "mark", "M" },
    { "nonspacingmark", "Mn" },
    { "spacingmark", "Mc" },
    { "enclosingmark", "Me" },
    { "number", "N" },
    { "decimalnumber", "Nd" },
    { "letternumber", "Nl" },
    { "othernumber", "No" },
    { "punctuation", "P" },
    { "connectorpunctuation", "Pc" },
    { "dashpunctuation", "Pd" },
    { "openpunctuation", "Ps" },
    { "closepunctuation", "Pe" },
    { "initialpunctuation", "Pi" },
    { "finalpunctuation", "Pf" },
    { "otherpunctuation", "Po" },
    { "symbol", "S" },
    { "mathsymbol", "Sm" },
    { "currencysymbol", "Sc" },
    { "modifiersymbol", "Sk" },
    { "othersymbol", "So" },
    { "separator", "Z" },
    { "spaceseparator", "Zs" },
    { "lineseparator", "Zl" },
    { "paragraphseparator", "Zp" },
    { "other", "C" },
    { "control", "Cc" },
    { "format", "Cf" },
    { "privateuse", "Co" },
    { "unassigned", "Cn" },
    { "digit", "Nd" },
};

/* \p{...} or \P{...}, at the p. */
static nb_status property(tr *t, nb_buf *out)
{
    const size_t start = t->i;
    bool negated = peek(t, 0) == 'P';
    if (peek(t, 1) != '{') return refuse(t, "\\p without {");
    t->i += 2;
    if (peek(t, 0) == '^') {
        negated = !negated;
        t->i++;
    }
    char name[64];
    size_t n = 0;
    for (int c; (c = peek(t, 0)) != '}'; t->i++) {
        if (c < 0x20 || c > 0x7e || n == sizeof name - 1) {
            t->i = start;
            return refuse(t, "this property name");
        }
        if (c == '_' || c == ' ' || c == '-') continue;
        name[n++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    name[n] = 0;
    const char *text = NULL;
    for (size_t k = 0; k < NB_COUNT(CATEGORIES); k++)
        if (strcmp(name, CATEGORIES[k].name) == 0) text = CATEGORIES[k].abbreviation;
    NB_TRY(nb_buf_add_c(out, negated ? "\\P{" : "\\p{"));
    if (text) {
        NB_TRY(nb_buf_add_c(out, text));
    } else {
        if (nb_tok_regex_is_script(name)) NB_TRY(nb_buf_add_c(out, "sc:"));
        const size_t from = start + 2 + (t->in.p[start + 2] == '^');
        NB_TRY(nb_buf_add(out, t->in.p + from, t->i - from));
    }
    t->i++;
    return nb_buf_add_ch(out, '}');
}

/* \xHH, \x{H...}, \uHHHH, at the x or u. */
static nb_status code_point(tr *t, nb_buf *out)
{
    const bool u = peek(t, 0) == 'u';
    uint32_t cp = 0;
    size_t digits = 0;
    const bool brace = !u && peek(t, 1) == '{';
    size_t k = brace ? 2 : 1;
    const size_t most = brace ? 8 : u ? 4 : 2;
    for (int c; digits < most && is_hex(c = peek(t, k)); k++, digits++)
        cp = cp << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    if (digits == 0 || (u && digits != 4) || (brace && peek(t, k) != '}'))
        return refuse(t, "this \\x or \\u escape");
    if (!u && !brace && cp > 0x7f) return refuse(t, "a byte above \\x7f");
    t->i += k + (brace ? 1 : 0);
    return nb_buf_printf(out, "\\x{%x}", (unsigned)cp);
}

/* An escape that means the same in and outside of a class; at the letter. */
static nb_status plain_escape(tr *t, nb_buf *out)
{
    const int c = peek(t, 0);
    if (c < 0) return refuse(t, "a trailing backslash");
    if (c == 'p' || c == 'P') return property(t, out);
    if (c == 'x' || c == 'u') return code_point(t, out);
    if (c == 'v') {
        t->i++;
        return nb_buf_add_c(out, "\\x{b}");
    }
    if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) {
        if (!strchr("tnrfae", c)) return refuse(t, "this escape");
    } else if (c == '0') {
        if (peek(t, 1) >= '0' && peek(t, 1) <= '9') return refuse(t, "an octal escape");
        t->i++;
        return nb_buf_add_c(out, "\\x{0}");
    }
    NB_TRY(nb_buf_add_ch(out, '\\'));
    const unsigned n = nb_tok_char_bytes(t->in.p + t->i);
    NB_TRY(nb_buf_add(out, t->in.p + t->i, n));
    t->i += n;
    return NB_OK;
}

/* ---- character classes --------------------------------------------------- */

/* Operands of &&, each a class in PCRE2 form. */
typedef struct cclass {
    nb_buf set;        /* items of the union being read            */
    nb_buf and;        /* look-aheads for the operands before it   */
    bool negated_item; /* the only item is a negated class */
    size_t n_items;
} cclass;

static nb_status class_escape(tr *t, nb_buf *out)
{
    static const struct {
        char letter;
        const char *set;
    } SETS[] = { { 's', SPACE_SET }, { 'S', NONSPACE_SET }, { 'd', "\\p{Nd}" }, { 'D', "\\P{Nd}" },
                 { 'w', WORD_SET },  { 'h', "0-9a-fA-F" },  { 'b', "\\x{8}" } };
    const int c = peek(t, 0);
    for (size_t k = 0; k < NB_COUNT(SETS); k++) {
        if (c != SETS[k].letter) continue;
        t->i++;
        return nb_buf_add_c(out, SETS[k].set);
    }
    if (c >= '1' && c <= '9') return refuse(t, "an octal escape");
    return plain_escape(t, out);
}

typedef enum class_form {
    FORM_SET,     /* items for [...]                        */
    FORM_NEGATED, /* items for [^...]                       */
    FORM_ATOM     /* a whole atom: the class was an && one  */
} class_form;
static nb_status read_class(tr *t, nb_buf *out, class_form *form, unsigned depth);

/* A class inside a class: a union with it. */
static nb_status nested_class(tr *t, cclass *c, unsigned depth)
{
    nb_buf inner = { 0 };
    class_form form = FORM_SET;
    nb_status st = read_class(t, &inner, &form, depth + 1);
    if (st == NB_OK && form != FORM_SET) {
        /* stands alone or not at all: a union with it has no form in PCRE2 */
        if (c->n_items || form == FORM_ATOM) st = refuse(t, "this nested class");
        c->negated_item = true;
    }
    if (st == NB_OK) st = nb_buf_add_str(&c->set, nb_buf_view(&inner));
    c->n_items++;
    nb_buf_deinit(&inner);
    return st;
}

/* Closes the union before && or ]: appends (?=[...]) to c->and. */
static nb_status close_operand(tr *t, cclass *c)
{
    if (!c->n_items) return refuse(t, "an empty operand of &&");
    NB_TRY(nb_buf_add_c(&c->and, c->negated_item ? "(?=[^" : "(?=["));
    NB_TRY(nb_buf_add_str(&c->and, nb_buf_view(&c->set)));
    NB_TRY(nb_buf_add_c(&c->and, "])"));
    c->set.n_bytes = 0;
    c->n_items = 0;
    c->negated_item = false;
    return NB_OK;
}

static nb_status class_items(tr *t, cclass *c, unsigned depth)
{
    for (bool first = true;; first = false) {
        const int ch = peek(t, 0);
        if (ch < 0) return refuse(t, "a class without ]");
        if (ch == ']' && !first) break;
        if (looking_at(t, "[:")) return refuse(t, "a POSIX bracket");
        if (looking_at(t, "&&")) {
            NB_TRY(close_operand(t, c));
            t->i += 2;
            continue;
        }
        if (ch == '[') {
            if (c->negated_item) return refuse(t, "this nested class");
            NB_TRY(nested_class(t, c, depth));
            continue;
        }
        if (c->negated_item) return refuse(t, "a union with a negated class");
        c->n_items++;
        if (ch == '\\') {
            t->i++;
            NB_TRY(class_escape(t, &c->set));
            continue;
        }
        if (ch == ']') NB_TRY(nb_buf_add_ch(&c->set, '\\'));
        NB_TRY(nb_buf_add_ch(&c->set, (char)ch));
        t->i++;
    }
    t->i++;
    return NB_OK;
}

/* Reads the class at '['. */
static nb_status read_class(tr *t, nb_buf *out, class_form *form, unsigned depth)
{
    if (depth >= MAX_DEPTH) return refuse(t, "such deep nesting of classes");
    cclass c = { 0 };
    bool negated = false;
    t->i++;
    if (peek(t, 0) == '^') {
        negated = true;
        t->i++;
    }
    nb_status st = class_items(t, &c, depth);
    if (st == NB_OK && c.and.n_bytes) {
        st = close_operand(t, &c);
        if (st == NB_OK)
            st = nb_buf_printf(out, negated ? "(?:(?!%s)(?s:.))" : "(?:%s(?s:.))", c.and.p);
        *form = FORM_ATOM;
    } else if (st == NB_OK) {
        st = nb_buf_add_str(out, nb_buf_view(&c.set));
        *form = negated != c.negated_item ? FORM_NEGATED : FORM_SET;
    }
    nb_buf_deinit(&c.set);
    nb_buf_deinit(&c.and);
    return st;
}

static nb_status top_class(tr *t)
{
    static const char *const WRAP[][2] = { { "[", "]" }, { "[^", "]" }, { "", "" } };
    nb_buf set = { 0 };
    class_form form = FORM_SET;
    nb_status st = read_class(t, &set, &form, 0);
    if (st == NB_OK) st = nb_buf_add_c(t->out, WRAP[form][0]);
    if (st == NB_OK) st = nb_buf_add_str(t->out, nb_buf_view(&set));
    if (st == NB_OK) st = nb_buf_add_c(t->out, WRAP[form][1]);
    nb_buf_deinit(&set);
    return st;
}

/* ---- outside of classes -------------------------------------------------- */

static nb_status escape(tr *t)
{
    static const struct {
        char letter;
        const char *text;
    } MAP[] = { { 's', "[" SPACE_SET "]" },
                { 'S', "[^" SPACE_SET "]" },
                { 'd', "\\p{Nd}" },
                { 'D', "\\P{Nd}" },
                { 'w', "[" WORD_SET "]" },
                { 'W', "[^" WORD_SET "]" },
                { 'h', "[0-9a-fA-F]" },
                { 'H', "[^0-9a-fA-F]" },
                { 'N', "[^\\n]" },
                { 'O', "(?s:.)" },
                { 'b', WORD_EDGE },
                { 'B', WORD_INNER },
                { 'A', "\\A" },
                { 'z', "\\z" },
                { 'Z', "\\Z" },
                { 'R', "\\R" } };
    t->i++;
    const int c = peek(t, 0);
    for (size_t k = 0; k < NB_COUNT(MAP); k++) {
        if (c != MAP[k].letter) continue;
        t->i++;
        return nb_buf_add_c(t->out, MAP[k].text);
    }
    if (c >= '1' && c <= '9') return refuse(t, "a back-reference");
    return plain_escape(t, t->out);
}

/* At '(': copies the opening of a group. */
static nb_status open_group(tr *t)
{
    if (t->depth == MAX_DEPTH) return refuse(t, "such deep nesting");
    t->group[t->depth++] = t->out->n_bytes;
    if (peek(t, 1) == '*') return refuse(t, "a verb");
    if (peek(t, 1) != '?') {
        t->i++;
        return nb_buf_add_ch(t->out, '(');
    }
    static const char *const PLAIN[] = { "(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!" };
    for (size_t k = 0; k < NB_COUNT(PLAIN); k++) {
        if (!looking_at(t, PLAIN[k])) continue;
        t->i += strlen(PLAIN[k]);
        return nb_buf_add_c(t->out, PLAIN[k]);
    }
    const bool leading = t->i == 0;
    NB_TRY(nb_buf_add_c(t->out, "(?"));
    for (t->i += 2;; t->i++) {
        const int c = peek(t, 0);
        if (c == ')' || c == ':') {
            /* further on, Ruby lets the flags reach over | and PCRE2 does not */
            if (c == ')' && !leading) return refuse(t, "a flag group inside of the pattern");
            if (c == ')') t->depth--;
            t->i++;
            return nb_buf_add_ch(t->out, (char)c);
        }
        if (c != 'i' && c != 'm' && c != 'x' && c != '-') return refuse(t, "this kind of group");
        NB_TRY(nb_buf_add_ch(t->out, c == 'm' ? 's' : (char)c));
    }
}

/* At '{': a quantifier {n}, {n,}, {,m}, {n,m}, or a literal brace. */
static nb_status interval(tr *t)
{
    size_t k = 1, low = 0, high = 0;
    const size_t start = t->i;
    while (peek(t, k) >= '0' && peek(t, k) <= '9') k++, low++;
    const bool comma = peek(t, k) == ',';
    if (comma) k++;
    while (comma && peek(t, k) >= '0' && peek(t, k) <= '9') k++, high++;
    if (peek(t, k) != '}' || (!low && !high)) {
        t->atom = t->out->n_bytes;
        t->i++;
        return nb_buf_add_c(t->out, "\\{");
    }
    k++;
    t->i += k;
    const bool again = peek(t, 0) == '+';
    if (again) { /* (?:X{n,m})+ */
        NB_TRY(nb_buf_reserve(t->out, 3));
        memmove(t->out->p + t->atom + 3, t->out->p + t->atom, t->out->n_bytes - t->atom);
        memcpy(t->out->p + t->atom, "(?:", 3);
        t->out->n_bytes += 3;
    }
    NB_TRY(nb_buf_add_ch(t->out, '{'));
    if (!low) NB_TRY(nb_buf_add_ch(t->out, '0'));
    NB_TRY(nb_buf_add(t->out, t->in.p + start + 1, k - 1));
    return again ? nb_buf_add_ch(t->out, ')') : NB_OK;
}

nb_status nb_tok_regex_translate(nb_str pattern, nb_buf *out, nb_error *err)
{
    tr t = { .in = pattern, .out = out, .err = err };
    if (pattern.n_bytes > MAX_PATTERN_BYTES)
        return nb_fail(err, NB_ERR_LIMIT, "regular expression of %zu bytes, at most %d expected",
                       pattern.n_bytes, MAX_PATTERN_BYTES);
    if (memchr(pattern.p ? pattern.p : "", 0, pattern.n_bytes)) return refuse(&t, "a NUL byte");
    while (t.i < pattern.n_bytes) {
        const int c = peek(&t, 0);
        if (c == '{') {
            NB_TRY(interval(&t));
            continue;
        }
        if (c == '*' || c == '+' || c == '?') { /* keeps the atom */
            NB_TRY(nb_buf_add_ch(out, (char)c));
            t.i++;
            continue;
        }
        if (c == ')') {
            if (t.depth == 0) return refuse(&t, "a ) without (");
            t.atom = t.group[--t.depth];
            NB_TRY(nb_buf_add_ch(out, ')'));
            t.i++;
            continue;
        }
        t.atom = out->n_bytes;
        if (c == '\\') {
            NB_TRY(escape(&t));
        } else if (c == '[') {
            NB_TRY(top_class(&t));
        } else if (c == '(') {
            NB_TRY(open_group(&t));
        } else {
            const unsigned n = nb_tok_char_bytes(pattern.p + t.i);
            NB_TRY(nb_buf_add(out, pattern.p + t.i, n));
            t.i += n;
        }
    }
    return NB_OK;
}
