/* jinja_lex.c - template source to tokens.
 *
 * Follows Jinja2's lexer under trim_blocks and lstrip_blocks: which white space
 * disappears is decided here and nowhere else.
 *  - "-" inside a tag's edge strips all white space on that side;
 *  - after %} and #} one newline is dropped unless "+" stands before;
 *  - white space between the start of a line and {% or {# is dropped unless "+"
 *    or "-" follows; {{ is not touched;
 *  - one newline at the very end of the template is dropped.
 * "The start of a line" is a newline in the text before the tag, or that the
 * previous match (tag end or text) ended with a newline. */
#include "base/utf8.h"
#include "text/jinja_internal.h"

typedef struct lexer {
    nb_arena *arena;
    nb_str s; /* newlines normalised */
    size_t at;
    uint32_t line;
    bool line_starting;
    nb_jtoken *tok;
    size_t n_tok, cap_tok;
    char *braces; /* stack of closing brackets that are awaited */
    size_t n_brace, cap_brace;
    nb_error *err;
} lexer;

static nb_status lex_fail(const lexer *l, const char *what)
{
    return nb_fail(l->err, NB_ERR_FORMAT, "template line %u: %s", l->line, what);
}

static nb_status out_of_memory(const lexer *l)
{
    return nb_fail(l->err, NB_ERR_NOMEM, "template line %u: out of memory", l->line);
}

static nb_status emit(lexer *l, nb_jtok type, nb_str s)
{
    if (l->n_tok == l->cap_tok) {
        const size_t cap = l->cap_tok ? l->cap_tok * 2 : 256;
        nb_jtoken *t = nb_arena_array(l->arena, cap, sizeof *t);
        if (!t) return out_of_memory(l);
        if (l->n_tok) memcpy(t, l->tok, l->n_tok * sizeof *t);
        l->tok = t;
        l->cap_tok = cap;
    }
    l->tok[l->n_tok++] = (nb_jtoken){ .type = (uint8_t)type, .line = l->line, .s = s };
    return NB_OK;
}

/* Moves to offset `to`, counting lines; remembers whether the piece ended a line. */
static void advance(lexer *l, size_t to)
{
    for (size_t i = l->at; i < to; i++) l->line += l->s.p[i] == '\n';
    if (to > l->at) l->line_starting = l->s.p[to - 1] == '\n';
    l->at = to;
}

static bool at_c(const lexer *l, size_t i, const char *what)
{
    const size_t n = strlen(what);
    return i <= l->s.n_bytes && n <= l->s.n_bytes - i && memcmp(l->s.p + i, what, n) == 0;
}

static size_t skip_space(const lexer *l, size_t i)
{
    size_t n;
    while (i < l->s.n_bytes && nb_j_is_space(nb_j_cp(l->s, i, &n))) i += n;
    return i;
}

/* End of a tag at i: "-%}" with the white space after it, "+%}", "%}" with one
 * newline (not for variables, nor for the tag that opens raw).  0 if none. */
static size_t tag_end(const lexer *l, size_t i, const char *end, bool plus, bool newline)
{
    if (i < l->s.n_bytes && l->s.p[i] == '-' && at_c(l, i + 1, end))
        return skip_space(l, i + 1 + strlen(end));
    if (plus && i < l->s.n_bytes && l->s.p[i] == '+' && at_c(l, i + 1, end))
        return i + 1 + strlen(end);
    if (!at_c(l, i, end)) return 0;
    i += strlen(end);
    return newline && i < l->s.n_bytes && l->s.p[i] == '\n' ? i + 1 : i;
}

/* Emits text up to `to`, cut as the sign of the tag that follows it asks. */
static nb_status emit_text(lexer *l, size_t to, char sign, bool variable)
{
    nb_str text = nb_j_sub(l->s, l->at, to);
    if (sign == '-') {
        text = nb_j_rstrip(text, NULL);
    } else if (sign != '+' && !variable) {
        size_t line_at = text.n_bytes;
        while (line_at > 0 && text.p[line_at - 1] != '\n') line_at--;
        if (line_at > 0 || l->line_starting) {
            const nb_str last = nb_j_sub(text, line_at, text.n_bytes);
            if (nb_j_lstrip(last, NULL).n_bytes == 0) text.n_bytes = line_at;
        }
    }
    return text.n_bytes ? emit(l, NB_JT_DATA, text) : NB_OK;
}

static nb_status lex_comment(lexer *l)
{
    for (size_t i = l->at; i < l->s.n_bytes; i++) {
        const size_t end = tag_end(l, i, "#}", true, true);
        if (!end) continue;
        advance(l, end);
        return NB_OK;
    }
    return lex_fail(l, "a comment is not closed (missing \"#}\")");
}

/* {% raw %} at the block start i: the offset after it, or 0. */
static size_t raw_begin(const lexer *l, size_t i)
{
    i += 2;
    if (i < l->s.n_bytes && (l->s.p[i] == '-' || l->s.p[i] == '+')) i++;
    i = skip_space(l, i);
    if (!at_c(l, i, "raw")) return 0;
    return tag_end(l, skip_space(l, i + 3), "%}", false, false);
}

static nb_status lex_raw(lexer *l)
{
    for (size_t i = l->at; i + 1 < l->s.n_bytes; i++) {
        if (!at_c(l, i, "{%")) continue;
        char sign = 0;
        size_t j = i + 2;
        if (j < l->s.n_bytes && (l->s.p[j] == '-' || l->s.p[j] == '+')) sign = l->s.p[j++];
        j = skip_space(l, j);
        if (!at_c(l, j, "endraw")) continue;
        const size_t end = tag_end(l, skip_space(l, j + 6), "%}", true, true);
        if (!end) continue;
        NB_TRY(emit_text(l, i, sign, false));
        advance(l, end);
        return NB_OK;
    }
    return lex_fail(l, "a raw block is not closed (missing \"{% endraw %}\")");
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* One escape of a string literal, s[i] being the character after the backslash.
 * Writes at *o, moves *i behind the escape. */
static nb_status unescape_one(const lexer *l, nb_str s, size_t *i, char *o, size_t *n_out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = s.p[*i];
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) {
        o[(*n_out)++] = to[hit - from];
        (*i)++;
        return NB_OK;
    }
    uint32_t cp = 0;
    if (c == '\n') {
        (*i)++;
        return NB_OK;
    }
    if (c >= '0' && c <= '7') {
        for (int k = 0; k < 3 && *i < s.n_bytes && s.p[*i] >= '0' && s.p[*i] <= '7'; k++)
            cp = cp * 8 + (uint32_t)(s.p[(*i)++] - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t want = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        (*i)++;
        for (size_t k = 0; k < want; k++, (*i)++) {
            const int d = *i < s.n_bytes ? hex_digit(s.p[*i]) : -1;
            if (d < 0) return lex_fail(l, "a \\x, \\u or \\U escape needs 2, 4 or 8 hex digits");
            cp = cp << 4 | (uint32_t)d;
        }
    } else if (c == 'N') {
        return nb_fail(l->err, NB_ERR_UNSUPPORTED,
                       "template line %u: \\N{...} escapes are not supported", l->line);
    } else { /* unknown: the backslash stays */
        o[(*n_out)++] = '\\';
        return NB_OK;
    }
    const int n = nb_utf8_encode(cp, o + *n_out);
    if (n <= 0) return lex_fail(l, "an escape in a string is no Unicode character");
    *n_out += (size_t)n;
    return NB_OK;
}

static nb_status lex_string(lexer *l)
{
    const char quote = l->s.p[l->at];
    size_t i = l->at + 1;
    bool escaped = false;
    while (i < l->s.n_bytes && l->s.p[i] != quote) {
        if (l->s.p[i] == '\\') {
            escaped = true;
            i++;
        }
        i++;
    }
    if (i >= l->s.n_bytes) return lex_fail(l, "a string is not closed");
    nb_str body = nb_j_sub(l->s, l->at + 1, i);
    if (escaped) { /* an escape is never shorter than what it stands for */
        char *o = nb_arena_alloc(l->arena, body.n_bytes + 4);
        if (!o) return out_of_memory(l);
        size_t n = 0;
        for (size_t k = 0; k < body.n_bytes;) {
            if (body.p[k] != '\\' || k + 1 >= body.n_bytes) {
                o[n++] = body.p[k++];
                continue;
            }
            k++;
            NB_TRY(unescape_one(l, body, &k, o, &n));
        }
        body = (nb_str){ o, n };
    }
    NB_TRY(emit(l, NB_JT_STRING, body));
    advance(l, i + 1);
    return NB_OK;
}

static size_t digits(const lexer *l, size_t i, int base)
{
    const size_t from = i;
    for (; i < l->s.n_bytes; i++) {
        const char c = l->s.p[i];
        const int d = hex_digit(c);
        if (d >= 0 && d < base) continue;
        if (c == '_' && i > from && l->s.p[i - 1] != '_' && i + 1 < l->s.n_bytes &&
            hex_digit(l->s.p[i + 1]) >= 0 && hex_digit(l->s.p[i + 1]) < base)
            continue;
        break;
    }
    return i;
}

static nb_status int_value(const lexer *l, nb_str s, int base, int64_t *out)
{
    int64_t v = 0;
    for (size_t i = 0; i < s.n_bytes; i++) {
        if (s.p[i] == '_') continue;
        const int d = hex_digit(s.p[i]);
        if (v > (INT64_MAX - d) / base)
            return nb_fail(l->err, NB_ERR_RANGE, "template line %u: the number %.*s is too large",
                           l->line, (int)(s.n_bytes > 40 ? 40 : s.n_bytes), s.p);
        v = v * base + d;
    }
    *out = v;
    return NB_OK;
}

static nb_status lex_number(lexer *l)
{
    size_t i = l->at;
    const char c1 = i + 1 < l->s.n_bytes ? (char)(l->s.p[i + 1] | 0x20) : 0;
    const int base = l->s.p[i] != '0' ? 10 : c1 == 'x' ? 16 : c1 == 'o' ? 8 : c1 == 'b' ? 2 : 10;
    if (base != 10 && digits(l, i + 2, base) > i + 2) {
        const size_t end = digits(l, i + 2, base);
        NB_TRY(emit(l, NB_JT_INT, nb_j_sub(l->s, i, end)));
        NB_TRY(int_value(l, nb_j_sub(l->s, i + 2, end), base, &l->tok[l->n_tok - 1].num.i));
        advance(l, end);
        return NB_OK;
    }
    size_t end = digits(l, i, 10);
    bool is_float = false;
    /* not after a dot: x.1.2 is two subscripts */
    if (i == 0 || l->s.p[i - 1] != '.') {
        size_t j = end;
        if (j + 1 < l->s.n_bytes && l->s.p[j] == '.' && digits(l, j + 1, 10) > j + 1) {
            j = digits(l, j + 1, 10);
            is_float = true;
            end = j;
        }
        if (j < l->s.n_bytes && (l->s.p[j] | 0x20) == 'e') {
            size_t k = j + 1;
            if (k < l->s.n_bytes && (l->s.p[k] == '+' || l->s.p[k] == '-')) k++;
            if (digits(l, k, 10) > k) {
                end = digits(l, k, 10);
                is_float = true;
            }
        }
    }
    const nb_str text = nb_j_sub(l->s, i, end);
    NB_TRY(emit(l, is_float ? NB_JT_FLOAT : NB_JT_INT, text));
    nb_jtoken *t = &l->tok[l->n_tok - 1];
    if (is_float) {
        if (nb_j_parse_float(text, &t->num.f) != NB_OK) return lex_fail(l, "malformed number");
    } else {
        if (text.n_bytes > 1 && text.p[0] == '0' && nb_j_lstrip(text, &(nb_str){ "0_", 2 }).n_bytes)
            return lex_fail(l, "an integer must not start with 0");
        NB_TRY(int_value(l, text, 10, &t->num.i));
    }
    advance(l, end);
    return NB_OK;
}

static const struct {
    char text[3];
    uint8_t type;
} operators[] = { /* two characters before one */
    { "//", NB_JT_FLOORDIV }, { "**", NB_JT_POW }, { "==", NB_JT_EQ }, { "!=", NB_JT_NE },
    { ">=", NB_JT_GE }, { "<=", NB_JT_LE }, { "+", NB_JT_ADD }, { "-", NB_JT_SUB },
    { "/", NB_JT_DIV }, { "*", NB_JT_MUL }, { "%", NB_JT_MOD }, { "~", NB_JT_TILDE },
    { "[", NB_JT_LBRACKET }, { "]", NB_JT_RBRACKET }, { "(", NB_JT_LPAREN },
    { ")", NB_JT_RPAREN }, { "{", NB_JT_LBRACE }, { "}", NB_JT_RBRACE }, { ">", NB_JT_GT },
    { "<", NB_JT_LT }, { "=", NB_JT_ASSIGN }, { ".", NB_JT_DOT }, { ":", NB_JT_COLON },
    { "|", NB_JT_PIPE }, { ",", NB_JT_COMMA }, { ";", NB_JT_SEMI },
};

static nb_status lex_operator(lexer *l)
{
    for (size_t k = 0; k < NB_COUNT(operators); k++) {
        if (!at_c(l, l->at, operators[k].text)) continue;
        const char c = operators[k].text[0];
        if (c == '(' || c == '[' || c == '{') {
            if (l->n_brace >= NB_J_MAX_PARSE_DEPTH)
                return nb_fail(l->err, NB_ERR_LIMIT, "template line %u: brackets nested more than "
                               "%d levels deep", l->line, NB_J_MAX_PARSE_DEPTH);
            if (l->n_brace == l->cap_brace) {
                const size_t cap = l->cap_brace ? 2 * l->cap_brace : 64;
                char *b = nb_arena_alloc(l->arena, cap);
                if (!b) return out_of_memory(l);
                if (l->n_brace) memcpy(b, l->braces, l->n_brace);
                l->braces = b;
                l->cap_brace = cap;
            }
            l->braces[l->n_brace++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (!l->n_brace || l->braces[l->n_brace - 1] != c)
                return nb_fail(l->err, NB_ERR_FORMAT, "template line %u: unexpected \"%c\"%s",
                               l->line, c, l->n_brace ? ", another bracket is open" : "");
            l->n_brace--;
        }
        NB_TRY(emit(l, (nb_jtok)operators[k].type, nb_j_sub(l->s, l->at, l->at + 1)));
        advance(l, l->at + strlen(operators[k].text));
        return NB_OK;
    }
    return nb_fail(l->err, NB_ERR_FORMAT, "template line %u: unexpected character \"%.*s\"",
                   l->line, (int)(l->s.n_bytes - l->at > 1 ? 1 : l->s.n_bytes - l->at),
                   (unsigned char)l->s.p[l->at] < 0x80 ? l->s.p + l->at : "?");
}

/* Inside a tag, up to and including its end. */
static nb_status lex_tag(lexer *l, bool variable)
{
    const char *end = variable ? "}}" : "%}";
    while (l->at < l->s.n_bytes) {
        const size_t stop = l->n_brace ? 0 : tag_end(l, l->at, end, !variable, !variable);
        if (stop) {
            NB_TRY(emit(l, variable ? NB_JT_VAR_END : NB_JT_BLOCK_END, (nb_str){ "", 0 }));
            advance(l, stop);
            return NB_OK;
        }
        size_t n;
        const uint32_t cp = nb_j_cp(l->s, l->at, &n);
        if (nb_j_is_space(cp)) {
            advance(l, skip_space(l, l->at));
        } else if (cp >= '0' && cp <= '9') {
            NB_TRY(lex_number(l));
        } else if (nb_j_is_word(cp)) {
            size_t i = l->at;
            if (!nb_j_word_start(cp)) return lex_fail(l, "invalid character in a name");
            while (i < l->s.n_bytes && nb_j_is_word(nb_j_cp(l->s, i, &n))) i += n;
            NB_TRY(emit(l, NB_JT_NAME, nb_j_sub(l->s, l->at, i)));
            advance(l, i);
        } else if (cp == '\'' || cp == '"') {
            NB_TRY(lex_string(l));
        } else {
            NB_TRY(lex_operator(l));
        }
    }
    return lex_fail(l, "unexpected end of the template inside a tag");
}

static nb_status lex_root(lexer *l)
{
    while (l->at < l->s.n_bytes) {
        size_t i = l->at;
        for (; i < l->s.n_bytes; i++) {
            const char *p = memchr(l->s.p + i, '{', l->s.n_bytes - i);
            i = p ? (size_t)(p - l->s.p) : l->s.n_bytes;
            if (at_c(l, i, "{{") || at_c(l, i, "{%") || at_c(l, i, "{#")) break;
        }
        if (i >= l->s.n_bytes) {
            NB_TRY(emit(l, NB_JT_DATA, nb_j_sub(l->s, l->at, l->s.n_bytes)));
            advance(l, l->s.n_bytes);
            break;
        }
        const char kind = l->s.p[i + 1];
        size_t after = i + 2;
        char sign = 0;
        if (after < l->s.n_bytes && (l->s.p[after] == '-' || l->s.p[after] == '+'))
            sign = l->s.p[after++];
        NB_TRY(emit_text(l, i, sign, kind == '{'));
        const size_t raw = kind == '%' ? raw_begin(l, i) : 0;
        advance(l, raw ? raw : after);
        if (raw) {
            NB_TRY(lex_raw(l));
        } else if (kind == '#') {
            NB_TRY(lex_comment(l));
        } else {
            NB_TRY(emit(l, kind == '{' ? NB_JT_VAR_BEGIN : NB_JT_BLOCK_BEGIN, (nb_str){ "", 0 }));
            NB_TRY(lex_tag(l, kind == '{'));
        }
    }
    return emit(l, NB_JT_EOF, (nb_str){ "", 0 });
}

/* \r\n and \r become \n; one newline at the end goes. */
static nb_status normalise(nb_arena *arena, nb_str source, nb_str *out)
{
    char *p = nb_arena_alloc(arena, source.n_bytes + 1);
    if (!p) return NB_ERR_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < source.n_bytes; i++) {
        char c = source.p[i];
        if (c == '\r') {
            c = '\n';
            if (i + 1 < source.n_bytes && source.p[i + 1] == '\n') i++;
        }
        p[n++] = c;
    }
    if (n && p[n - 1] == '\n') n--;
    *out = (nb_str){ p, n };
    return NB_OK;
}

nb_status nb_j_lex(nb_arena *arena, nb_str source, nb_jtoken **tokens, size_t *n_tokens,
                   nb_error *err)
{
    lexer l = { .arena = arena, .line = 1, .line_starting = true, .err = err };
    if (normalise(arena, source, &l.s) != NB_OK) return out_of_memory(&l);
    NB_TRY(lex_root(&l));
    *tokens = l.tok;
    *n_tokens = l.n_tok;
    return NB_OK;
}
