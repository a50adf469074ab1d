/* python.c - calls written as Python (MiniCPM3): f(key=value, ...), one to a line,
 * inside a code fence or not.  A statement is collected up to its closing bracket,
 * then its literals become JSON; anything else is no call. */
#include "base/utf8.h"
#include "parse/parse_internal.h"

enum { MAX_DEPTH = 64 };

/* ---- literals to JSON ---------------------------------------------------- */

typedef struct reader {
    const char *p, *end;
    nb_buf *out;
    int depth;
} reader;

static nb_status value(reader *r);

static void skip_blanks(reader *r)
{
    while (r->p < r->end && nb_parse_is_blank(*r->p)) r->p++;
}

static bool take(reader *r, char c)
{
    skip_blanks(r);
    if (r->p == r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static nb_str word(reader *r)
{
    const char *from = r->p;
    while (r->p < r->end && is_word(*r->p)) r->p++;
    return (nb_str){ from, (size_t)(r->p - from) };
}

static nb_status add_cp(nb_buf *out, uint32_t cp)
{
    char c[4];
    int n = nb_utf8_encode(cp, c);
    if (!n) n = nb_utf8_encode(0xfffd, c);
    return nb_json_quote(out, (nb_str){ c, (size_t)n });
}

/* Up to n digits of a base; *cp is 0 if there are none. */
static size_t digits(reader *r, size_t n, unsigned base, uint32_t *cp)
{
    size_t k = 0;
    *cp = 0;
    for (; k < n && r->p < r->end; k++, r->p++) {
        const char c = *r->p;
        const unsigned d = is_digit(c)            ? (unsigned)(c - '0')
                           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                           : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                  : 99;
        if (d >= base) break;
        *cp = *cp * base + d;
    }
    return k;
}

/* Behind a backslash. */
static nb_status escape(reader *r)
{
    static const char LETTER[] = "abfnrtv\\'\"", VALUE[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = *r->p;
    const char *hit = c ? strchr(LETTER, c) : NULL;
    uint32_t cp, low;
    if (c >= '0' && c <= '7') {
        digits(r, 3, 8, &cp);
        return add_cp(r->out, cp);
    }
    r->p++;
    if (hit) return nb_json_quote(r->out, (nb_str){ &VALUE[hit - LETTER], 1 });
    if (c == '\n') return NB_OK; /* a line that goes on */
    const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (!n) return nb_json_quote(r->out, (nb_str){ r->p - 2, 2 });
    if (digits(r, n, 16, &cp) != n) return NB_ERR_FORMAT;
    if (cp >= 0xd800 && cp < 0xdc00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u') {
        reader next = *r;
        next.p += 2;
        if (digits(&next, 4, 16, &low) == 4 && low >= 0xdc00 && low < 0xe000) {
            r->p = next.p;
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    return add_cp(r->out, cp);
}

static nb_status string(reader *r)
{
    const char q = *r->p;
    const size_t n = r->end - r->p >= 3 && r->p[1] == q && r->p[2] == q ? 3 : 1;
    r->p += n;
    NB_TRY(nb_buf_add_ch(r->out, '"'));
    while (r->p < r->end) {
        if (*r->p == q && (n == 1 || (r->end - r->p >= 3 && r->p[1] == q && r->p[2] == q))) {
            r->p += n;
            return nb_buf_add_ch(r->out, '"');
        }
        if (*r->p == '\\' && r->p + 1 < r->end) {
            r->p++;
            NB_TRY(escape(r));
            continue;
        }
        NB_TRY(nb_json_quote(r->out, (nb_str){ r->p++, 1 }));
    }
    return NB_ERR_FORMAT;
}

/* A decimal number, written as JSON wants it. */
static nb_status number(reader *r)
{
    const char sign = *r->p;
    if (sign == '-' || sign == '+') r->p++;
    if (sign == '-') NB_TRY(nb_buf_add_ch(r->out, '-'));
    const char *from = r->p;
    while (r->p < r->end && is_digit(*r->p)) r->p++;
    const size_t n_int = (size_t)(r->p - from);
    const char *dot = r->p < r->end && *r->p == '.' ? r->p++ : NULL;
    while (dot && r->p < r->end && is_digit(*r->p)) r->p++;
    const size_t n_frac = dot ? (size_t)(r->p - dot - 1) : 0;
    if (!n_int && !n_frac) return NB_ERR_FORMAT;
    if (n_int > 1 && *from == '0') return NB_ERR_FORMAT;
    NB_TRY(n_int ? nb_buf_add(r->out, from, n_int) : nb_buf_add_ch(r->out, '0'));
    if (dot) NB_TRY(nb_buf_add_ch(r->out, '.'));
    if (dot) NB_TRY(n_frac ? nb_buf_add(r->out, dot + 1, n_frac) : nb_buf_add_ch(r->out, '0'));
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        const char *exp = r->p++;
        if (r->p < r->end && (*r->p == '-' || *r->p == '+')) r->p++;
        const char *first = r->p;
        while (r->p < r->end && is_digit(*r->p)) r->p++;
        if (r->p == first) return NB_ERR_FORMAT;
        NB_TRY(nb_buf_add(r->out, exp, (size_t)(r->p - exp)));
    }
    return r->p < r->end && is_word(*r->p) ? NB_ERR_FORMAT : NB_OK;
}

/* [..], (..) and {..}, opened already. */
static nb_status items(reader *r, char close)
{
    const bool dict = close == '}';
    size_t n = 0;
    bool comma = true;
    NB_TRY(nb_buf_add_ch(r->out, dict ? '{' : '['));
    while (!take(r, close)) {
        skip_blanks(r);
        if (!comma || r->p == r->end) return NB_ERR_FORMAT;
        if (n++) NB_TRY(nb_buf_add_c(r->out, ", "));
        if (dict) {
            if (*r->p != '"' && *r->p != '\'') return NB_ERR_FORMAT;
            NB_TRY(string(r));
            if (!take(r, ':')) return NB_ERR_FORMAT;
            NB_TRY(nb_buf_add_c(r->out, ": "));
        }
        NB_TRY(value(r));
        comma = take(r, ',');
    }
    return nb_buf_add_ch(r->out, dict ? '}' : ']');
}

static nb_status value(reader *r)
{
    static const char *const WORDS[][2] = { { "True", "true" },   { "False", "false" },
                                            { "None", "null" },   { "true", "true" },
                                            { "false", "false" }, { "null", "null" } };
    skip_blanks(r);
    if (r->p == r->end || r->depth >= MAX_DEPTH) return NB_ERR_FORMAT;
    const char c = *r->p;
    if (c == '"' || c == '\'') return string(r);
    if (c == '[' || c == '(' || c == '{') {
        r->p++;
        r->depth++;
        const nb_status st = items(r, c == '[' ? ']' : c == '(' ? ')' : '}');
        r->depth--;
        return st;
    }
    if (is_digit(c) || c == '-' || c == '+' || c == '.') return number(r);
    const nb_str w = word(r);
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (nb_str_eqc(w, WORDS[i][0])) return nb_buf_add_c(r->out, WORDS[i][1]);
    return NB_ERR_FORMAT;
}

nb_status nb_python_call(nb_str text, nb_str *name, nb_buf *json)
{
    reader r = { .p = text.p, .end = text.p + text.n_bytes, .out = json };
    while (r.p < r.end && *r.p != '(') r.p++;
    *name = (nb_str){ text.p, (size_t)(r.p - text.p) };
    if (!take(&r, '(')) return NB_ERR_FORMAT;
    NB_TRY(nb_buf_add_ch(json, '{'));
    bool comma = true;
    for (size_t n = 0; !take(&r, ')'); n++) {
        skip_blanks(&r);
        const nb_str key = word(&r);
        if (!comma || !key.n_bytes || !take(&r, '=')) return NB_ERR_FORMAT;
        NB_TRY(nb_buf_add_c(json, n ? ", \"" : "\""));
        NB_TRY(nb_json_quote(json, key));
        NB_TRY(nb_buf_add_c(json, "\": "));
        NB_TRY(value(&r));
        comma = take(&r, ',');
    }
    NB_TRY(nb_buf_add_ch(json, '}'));
    return r.p == r.end ? NB_OK : NB_ERR_FORMAT;
}

/* ---- statements ---------------------------------------------------------- */

/* Quotes: 0 outside, 1 behind the first, 2 behind two (empty, or the third follows),
 * 3 inside, 4 inside triple quotes, 5 and 6 behind one and two of the closing ones. */
static void track_quotes(nb_parse *a, char c)
{
    const bool q = c == a->quote && !a->scan.esc;
    const uint8_t s = a->quote_state;
    if (s == 0 || (s == 2 && !q)) {
        a->quote_state = c == '"' || c == '\'';
        a->quote = c;
        return;
    }
    a->scan.esc = !a->scan.esc && c == '\\' && s != 2;
    if (s == 1)
        a->quote_state = q ? 2 : 3;
    else if (s == 2)
        a->quote_state = 4;
    else if (s == 3)
        a->quote_state = q ? 0 : 3;
    else
        a->quote_state = !q ? 4 : s == 6 ? 0 : (uint8_t)(s + 1);
}

static nb_status finish_statement(nb_parse *a)
{
    nb_buf json = { 0 };
    nb_str name = { "", 0 };
    nb_status st = nb_python_call(nb_buf_view(&a->value), &name, &json);
    a->python = NB_PP_BETWEEN;
    if (st == NB_OK) {
        a->name.n_bytes = 0;
        st = nb_buf_add_str(&a->name, name);
        if (st == NB_OK) st = nb_parse_begin(a);
        if (st == NB_OK && a->in_call)
            st = nb_parse_emit(a, NB_PARSE_ARGUMENTS, nb_buf_view(&json));
        if (st == NB_OK) st = nb_parse_end_call(a);
    } else if (st == NB_ERR_FORMAT) {
        st = nb_parse_fail(a);
    }
    nb_buf_deinit(&json);
    return st;
}

static nb_status statement_text(nb_parse *a, char c)
{
    const nb_status st = nb_buf_add_ch(&a->value, c);
    if (st == NB_ERR_LIMIT) return nb_parse_fail(a);
    NB_TRY(st);
    if (a->python == NB_PP_NAME) {
        if (is_word(c) || c == '.' || c == '-') return NB_OK;
        if (c != '(') {
            NB_TRY(nb_parse_fail(a));
            if (c == '\n') a->python = NB_PP_BETWEEN; /* the line is over */
            return NB_OK;
        }
        a->python = NB_PP_ARGS;
        a->scan = (nb_pscan){ .depth = 1 };
        a->quote_state = 0;
        return NB_OK;
    }
    track_quotes(a, c);
    if (a->quote_state) return NB_OK;
    if (c == '(' || c == '[' || c == '{') a->scan.depth++;
    if (c == ')' || c == ']' || c == '}') a->scan.depth--;
    return a->scan.depth ? NB_OK : finish_statement(a);
}

nb_status nb_parse_python_text(nb_parse *a, char c)
{
    switch (a->python) {
    case NB_PP_FENCE:
    case NB_PP_SKIP:
        if (c == '\n') a->python = NB_PP_BETWEEN;
        return NB_OK;
    case NB_PP_BETWEEN: break;
    case NB_PP_NAME:
    case NB_PP_ARGS: return statement_text(a, c);
    }
    if (nb_parse_is_blank(c) || c == ';' || c == ',') return NB_OK;
    if (c == '`') {
        a->python = NB_PP_FENCE;
        return NB_OK;
    }
    if (!is_word(c) || is_digit(c)) return nb_parse_fail(a);
    a->python = NB_PP_NAME;
    a->value.n_bytes = 0;
    return nb_buf_add_ch(&a->value, c);
}
