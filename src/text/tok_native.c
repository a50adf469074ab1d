/* tok_native.c - hand-written matchers for well-known pre-tokenizer patterns.
 *
 * Each function returns what the pattern's alternatives, tried in order with
 * backtracking, would match; the comments give the alternative.  They are
 * several times faster than a regex engine and linear on any input.  The unit
 * tests compare every matcher with PCRE2 on random text.
 *
 * The white-space tail that the patterns share, `\s*[\r\n]+|\s+(?!\S)|\s+`:
 * inside one run of white space, the first alternative ends at the run's last
 * line break; else the run without its last character if text follows; else
 * the whole run. */
#include "base/attr.h"
#include "text/tok_regex.h"
#include "text/tok_unicode.h"

#define WS_TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

const char NB_TOK_PATTERN_GPT2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char NB_TOK_PATTERN_LLAMA3[] = CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" WS_TAIL;
const char NB_TOK_PATTERN_QWEN2[] =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" WS_TAIL;
const char NB_TOK_PATTERN_DEEPSEEK3[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" WS_TAIL;
#define KIMI_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
const char NB_TOK_PATTERN_KIMI[] =
    "[\\p{Han}]+"
    "|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "*" KIMI_LOWER "+" CONTRACTIONS "?"
    "|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "+" KIMI_LOWER "*" CONTRACTIONS "?"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" WS_TAIL;

static const struct {
    nb_tok_native kind;
    const char *pattern;
} KNOWN[] = {
    { NB_NATIVE_DEEPSEEK3, NB_TOK_PATTERN_DEEPSEEK3 },
    { NB_NATIVE_CJK,
      "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+" },
    { NB_NATIVE_LLAMA3, NB_TOK_PATTERN_LLAMA3 },
    { NB_NATIVE_QWEN2, NB_TOK_PATTERN_QWEN2 },
    { NB_NATIVE_GPT2, NB_TOK_PATTERN_GPT2 },
    { NB_NATIVE_KIMI, NB_TOK_PATTERN_KIMI },
    { NB_NATIVE_NUMBER, "\\p{N}" },
    { NB_NATIVE_NUMBER3, "\\p{N}{1,3}" },
    { NB_NATIVE_NUMBERS, "\\p{N}+" },
    { NB_NATIVE_CRLF, "[\\r\\n]" },
    { NB_NATIVE_SPACE_AT_END, "\\s+$" },
};

nb_tok_native nb_tok_native_find(nb_str pattern)
{
    for (size_t i = 0; i < NB_COUNT(KNOWN); i++)
        if (nb_str_eqc(pattern, KNOWN[i].pattern)) return KNOWN[i].kind;
    return NB_NATIVE_NONE;
}

/* A text with its class table. */
typedef struct text {
    const char *s;
    size_t n;
    const uint16_t *cc;
} text;

/* Class and length of the character at i < n. */
static inline unsigned at(const text *t, size_t i, unsigned *len)
{
    const unsigned char u = (unsigned char)t->s[i];
    uint32_t cp;
    if (u < 0x80) {
        *len = 1;
        return t->cc[u];
    }
    *len = nb_tok_char(t->s + i, &cp);
    return nb_tok_class(t->cc, cp);
}

/* End of the run of characters from i that have a class of `mask`. */
static inline size_t run(const text *t, size_t i, unsigned mask)
{
    unsigned len;
    while (i < t->n && (at(t, i, &len) & mask)) i += len;
    return i;
}
/* ... that have none of it. */
static inline size_t run_without(const text *t, size_t i, unsigned mask)
{
    unsigned len;
    while (i < t->n && !(at(t, i, &len) & mask)) i += len;
    return i;
}
static inline bool is(const text *t, size_t i, unsigned mask)
{
    unsigned len;
    return i < t->n && (at(t, i, &len) & mask);
}

static size_t line_breaks(const text *t, size_t i)
{
    while (i < t->n && (t->s[i] == '\n' || t->s[i] == '\r')) i++;
    return i;
}

/* `\s+(?!\S)|\s+` for the run [i, e), not empty */
static size_t space_rest(const text *t, size_t i, size_t e)
{
    size_t last;
    if (e == t->n) return e;
    (void)nb_tok_char_before(t->s, e, &last);
    return last > i ? last : e;
}

/* `\s*[\r\n]+|\s+(?!\S)|\s+` at i; i itself where no white space is. */
static size_t space_tail(const text *t, size_t i)
{
    const size_t e = run(t, i, NB_CC_WS);
    if (e == i) return i;
    for (size_t k = e; k > i; k--)
        if (t->s[k - 1] == '\n' || t->s[k - 1] == '\r') return k;
    return space_rest(t, i, e);
}

/* `(?i:'s|'t|'re|'ve|'m|'ll|'d)` at i: its end, or i.  U+017F folds to s. */
static size_t contraction(const text *t, size_t i, bool fold)
{
    if (i + 1 >= t->n || t->s[i] != '\'') return i;
    const unsigned char *u = (const unsigned char *)t->s + i + 1;
    const size_t left = t->n - i - 1;
    const unsigned char up = fold ? 0x20 : 0;
    const unsigned char a = u[0] | (u[0] >= 'A' && u[0] <= 'Z' ? up : 0);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    if (fold && left >= 2 && u[0] == 0xc5 && u[1] == 0xbf) return i + 3;
    if (left < 2) return i;
    const unsigned char b = u[1] | (u[1] >= 'A' && u[1] <= 'Z' ? up : 0);
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    return i;
}

/* up to `most` numbers */
static size_t numbers(const text *t, size_t i, unsigned most)
{
    unsigned len;
    for (; most > 0 && i < t->n && (at(t, i, &len) & NB_CC_N); most--) i += len;
    return i;
}

static size_t deepseek3_at(const text *t, size_t i)
{
    unsigned len;
    const unsigned c = at(t, i, &len);
    size_t e;
    /* [!-~ punctuation][A-Za-z]+ */
    if ((c & NB_CC_APUNCT) && (e = run(t, i + 1, NB_CC_AZ)) > i + 1) return e;
    /* [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ : the optional character is a letter
     * or mark itself, or stands before one */
    if (c & (NB_CC_L | NB_CC_M)) return run(t, i + len, NB_CC_L | NB_CC_M);
    if (!(c & (NB_CC_CRLF | NB_CC_P | NB_CC_S))) {
        e = run(t, i + len, NB_CC_L | NB_CC_M);
        if (e > i + len) return e;
    }
    /* ` ?[\p{P}\p{S}]+[\r\n]*` */
    const size_t p = t->s[i] == ' ' ? i + 1 : i;
    e = run(t, p, NB_CC_P | NB_CC_S);
    if (e > p) return line_breaks(t, e);
    return space_tail(t, i);
}

/* Llama 3 and Qwen 2, which differ in the length of numbers. */
static size_t llama3_at(const text *t, size_t i, unsigned most_digits)
{
    unsigned len;
    const unsigned c = at(t, i, &len);
    size_t e = contraction(t, i, true);
    if (e > i) return e;
    /* [^\r\n\p{L}\p{N}]?\p{L}+ */
    if (c & NB_CC_L) return run(t, i + len, NB_CC_L);
    if (!(c & (NB_CC_CRLF | NB_CC_N))) {
        e = run(t, i + len, NB_CC_L);
        if (e > i + len) return e;
    }
    if (c & NB_CC_N) return numbers(t, i, most_digits);
    /* ` ?[^\s\p{L}\p{N}]+[\r\n]*` */
    const size_t p = t->s[i] == ' ' ? i + 1 : i;
    e = run_without(t, p, NB_CC_WS | NB_CC_L | NB_CC_N);
    if (e > p) return line_breaks(t, e);
    return space_tail(t, i);
}

static size_t gpt2_at(const text *t, size_t i)
{
    size_t e = contraction(t, i, false);
    if (e > i) return e;
    const size_t p = t->s[i] == ' ' ? i + 1 : i;
    if (p < t->n) {
        unsigned len;
        const unsigned c = at(t, p, &len);
        if (c & NB_CC_L) return run(t, p, NB_CC_L);
        if (c & NB_CC_N) return run(t, p, NB_CC_N);
        e = run_without(t, p, NB_CC_WS | NB_CC_L | NB_CC_N);
        if (e > p) return e;
    }
    e = run(t, i, NB_CC_WS);
    return e > i ? space_rest(t, i, e) : i;
}

/* `U*W+` from i: U is greedy and gives back until a W follows; i if none. */
static size_t upper_lower(const text *t, size_t i)
{
    const size_t u = run(t, i, NB_CC_UPPER);
    const size_t w = run(t, u, NB_CC_LOWER);
    if (w > u) return w;
    for (size_t k = u; k > i;) { /* the last W inside the U run ends the match */
        size_t start;
        const uint32_t cp = nb_tok_char_before(t->s, k, &start);
        if (nb_tok_class(t->cc, cp) & NB_CC_LOWER) return k;
        k = start;
    }
    return i;
}

/* `U+W*` from i; i if none */
static size_t upper_only(const text *t, size_t i)
{
    const size_t u = run(t, i, NB_CC_UPPER);
    return u > i ? run(t, u, NB_CC_LOWER) : i;
}

static size_t kimi_at(const text *t, size_t i)
{
    unsigned len;
    const unsigned c = at(t, i, &len);
    if (c & NB_CC_HAN) return run(t, i, NB_CC_HAN);
    const bool prefix = !(c & (NB_CC_CRLF | NB_CC_L | NB_CC_N));
    const size_t q = i + len;
    size_t e;
    if (prefix && (e = upper_lower(t, q)) > q) return contraction(t, e, true);
    if ((e = upper_lower(t, i)) > i) return contraction(t, e, true);
    if (prefix && (e = upper_only(t, q)) > q) return contraction(t, e, true);
    if ((e = upper_only(t, i)) > i) return contraction(t, e, true);
    if (c & NB_CC_N) return numbers(t, i, 3);
    const size_t p = t->s[i] == ' ' ? i + 1 : i;
    e = run_without(t, p, NB_CC_WS | NB_CC_L | NB_CC_N);
    if (e > p) return line_breaks(t, e);
    return space_tail(t, i);
}

static size_t space_at_end_at(const text *t, size_t i)
{
    /* $ also matches before each \n: the run, cut back to its last such place */
    const size_t e = run(t, i, NB_CC_WS);
    if (e == i || e == t->n) return e;
    for (size_t k = e; k > i + 1; k--)
        if (t->s[k - 1] == '\n') return k - 1;
    return i;
}

/* End of the match at i, i itself for none. */
static size_t match_at(nb_tok_native kind, const text *t, size_t i)
{
    switch (kind) {
    case NB_NATIVE_DEEPSEEK3: return deepseek3_at(t, i);
    case NB_NATIVE_CJK: return run(t, i, NB_CC_CJK);
    case NB_NATIVE_LLAMA3: return llama3_at(t, i, 3);
    case NB_NATIVE_QWEN2: return llama3_at(t, i, 1);
    case NB_NATIVE_GPT2: return gpt2_at(t, i);
    case NB_NATIVE_KIMI: return kimi_at(t, i);
    case NB_NATIVE_NUMBER: return numbers(t, i, 1);
    case NB_NATIVE_NUMBER3: return numbers(t, i, 3);
    case NB_NATIVE_NUMBERS: return run(t, i, NB_CC_N);
    case NB_NATIVE_CRLF: return is(t, i, NB_CC_CRLF) ? i + 1 : i;
    case NB_NATIVE_SPACE_AT_END: return space_at_end_at(t, i);
    case NB_NATIVE_NONE: break;
    }
    return i;
}

/* The characters a match can start with, where skipping to them pays. */
static unsigned start_mask(nb_tok_native kind)
{
    switch (kind) {
    case NB_NATIVE_CJK: return NB_CC_CJK;
    case NB_NATIVE_NUMBER:
    case NB_NATIVE_NUMBER3:
    case NB_NATIVE_NUMBERS: return NB_CC_N;
    case NB_NATIVE_CRLF: return NB_CC_CRLF;
    default: return 0;
    }
}

bool nb_tok_native_next(nb_tok_native kind, const uint16_t *classes, nb_str s, size_t from,
                        size_t *start, size_t *end)
{
    const text t = { s.p, s.n_bytes, classes };
    const unsigned skip = start_mask(kind);
    for (size_t i = from; i < t.n;) {
        if (skip) {
            i = run_without(&t, i, skip);
            if (i == t.n) break;
        }
        const size_t e = match_at(kind, &t, i);
        if (e > i) {
            *start = i;
            *end = e;
            return true;
        }
        /* A failed run of blanks fails from each of its characters. */
        const size_t past = kind == NB_NATIVE_SPACE_AT_END ? run(&t, i, NB_CC_WS) : i;
        i = past > i ? past : i + nb_tok_char_bytes(t.s + i);
    }
    return false;
}
