/* tok_unicode.c - see tok_unicode.h.
 *
 * Normalization does not use utf8proc_map: its canonical ordering is a
 * bubble sort, quadratic on long runs of combining marks.  Here the characters
 * are decomposed one by one, runs of marks are ordered with a stable counting
 * sort by combining class, and utf8proc composes.  ASCII never changes in any
 * form, so only stretches of other characters, with the one ASCII character
 * before them (it may take a mark), are worked on. */
#include "text/tok_unicode.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/attr.h"
#include "base/utf8.h"

bool nb_tok_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Scripts.txt of Unicode 15.1, Script=Han; unassigned code points left out. */
static const uint32_t HAN[][2] = {
    { 0x2e80, 0x2e99 },   { 0x2e9b, 0x2ef3 },   { 0x2f00, 0x2fd5 },   { 0x3005, 0x3005 },
    { 0x3007, 0x3007 },   { 0x3021, 0x3029 },   { 0x3038, 0x303b },   { 0x3400, 0x4dbf },
    { 0x4e00, 0x9fff },   { 0xf900, 0xfa6d },   { 0xfa70, 0xfad9 },   { 0x16fe2, 0x16fe3 },
    { 0x16ff0, 0x16ff1 }, { 0x20000, 0x2a6df }, { 0x2a700, 0x2b739 }, { 0x2b740, 0x2b81d },
    { 0x2b820, 0x2cea1 }, { 0x2ceb0, 0x2ebe0 }, { 0x2ebf0, 0x2ee5d }, { 0x2f800, 0x2fa1d },
    { 0x30000, 0x3134a }, { 0x31350, 0x323af },
};

bool nb_tok_is_han(uint32_t cp)
{
    for (size_t i = 0; i < NB_COUNT(HAN); i++)
        if (cp <= HAN[i][1]) return cp >= HAN[i][0];
    return false;
}

static uint16_t class_of_category(utf8proc_category_t cat)
{
    switch (cat) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return NB_CC_L | NB_CC_UPPER | NB_CC_WORD;
    case UTF8PROC_CATEGORY_LL: return NB_CC_L | NB_CC_LOWER | NB_CC_WORD;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return NB_CC_L | NB_CC_UPPER | NB_CC_LOWER | NB_CC_WORD;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return NB_CC_M | NB_CC_UPPER | NB_CC_LOWER | NB_CC_WORD;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL: /* Nl is Alphabetic */ return NB_CC_N | NB_CC_WORD;
    case UTF8PROC_CATEGORY_NO: return NB_CC_N;
    case UTF8PROC_CATEGORY_PC: return NB_CC_P | NB_CC_WORD;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return NB_CC_P;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return NB_CC_S;
    default: return 0;
    }
}

uint16_t nb_tok_class_of(uint32_t cp)
{
    unsigned c = class_of_category(utf8proc_category((utf8proc_int32_t)cp));
    if (nb_tok_is_space(cp)) c |= NB_CC_WS;
    if (cp == '\r' || cp == '\n') c |= NB_CC_CRLF;
    if (nb_tok_is_han(cp)) c = (c | NB_CC_HAN) & ~(unsigned)(NB_CC_UPPER | NB_CC_LOWER);
    /* Symbols with Other_Alphabetic: circled, squared and negative letters. */
    if ((cp >= 0x24b6 && cp <= 0x24e9) || (cp >= 0x1f130 && cp <= 0x1f149) ||
        (cp >= 0x1f150 && cp <= 0x1f169) || (cp >= 0x1f170 && cp <= 0x1f189))
        c |= NB_CC_WORD;
    if ((cp >= 0x4e00 && cp <= 0x9fa5) || (cp >= 0x3040 && cp <= 0x30ff)) c |= NB_CC_CJK;
    if ((cp >= 'A' && cp <= 'Z') || (cp >= 'a' && cp <= 'z')) c |= NB_CC_AZ;
    if (cp < 0x80 && (c & (NB_CC_P | NB_CC_S))) c |= NB_CC_APUNCT;
    return (uint16_t)c;
}

void nb_tok_class_table(uint16_t table[NB_CC_TABLE_ITEMS])
{
    for (uint32_t cp = 0; cp < NB_CC_TABLE_ITEMS; cp++) table[cp] = nb_tok_class_of(cp);
}

size_t nb_tok_bad_bytes(const char *s, size_t n_bytes)
{
    uint32_t cp;
    size_t n = 1;
    for (size_t k = 1; k <= 3 && k <= n_bytes; k++)
        if (nb_utf8_decode(s, k, &cp) == 0) n = k;
    return n;
}

nb_status nb_tok_utf8_fix(nb_str s, nb_buf *out)
{
    for (size_t i = 0; i < s.n_bytes;) {
        size_t j = i;
        uint32_t cp;
        int n = 1;
        while (j < s.n_bytes && (n = nb_utf8_decode(s.p + j, s.n_bytes - j, &cp)) > 0)
            j += (size_t)n;
        NB_TRY(nb_buf_add(out, s.p + i, j - i));
        if (j < s.n_bytes) {
            NB_TRY(nb_buf_add_c(out, "\xef\xbf\xbd"));
            j += nb_tok_bad_bytes(s.p + j, s.n_bytes - j);
        }
        i = j;
    }
    return NB_OK;
}

/* ---- normalization ------------------------------------------------------ */

typedef struct points {
    utf8proc_int32_t *cp, *spare; /* spare: as long as cp, for sorting */
    size_t n, cap, spare_cap;
} points;

static unsigned mark_class(utf8proc_int32_t cp)
{
    return (unsigned)utf8proc_get_property(cp)->combining_class & 0xff;
}

/* Stable counting sort of n marks by combining class. */
static nb_status sort_marks(points *ps, utf8proc_int32_t *cp, size_t n)
{
    size_t at[257] = { 0 };
    if (n > 0) NB_TRY(NB_GROW(ps->spare, ps->spare_cap, n));
    for (size_t i = 0; i < n; i++) at[mark_class(cp[i]) + 1]++;
    for (size_t c = 1; c < 257; c++) at[c] += at[c - 1];
    for (size_t i = 0; i < n; i++) ps->spare[at[mark_class(cp[i])]++] = cp[i];
    memcpy(cp, ps->spare, n * sizeof *cp);
    return NB_OK;
}

static nb_status order_marks(points *ps)
{
    for (size_t i = 0; i < ps->n;) {
        bool sorted = true;
        unsigned last = 0;
        size_t j = i;
        for (unsigned c; j < ps->n && (c = mark_class(ps->cp[j])) != 0; j++) {
            if (c < last) sorted = false;
            last = c;
        }
        if (!sorted) NB_TRY(sort_marks(ps, ps->cp + i, j - i));
        i = j > i ? j : i + 1;
    }
    return NB_OK;
}

static int form_options(nb_tok_form form)
{
    static const int OPTIONS[] = {
        [NB_FORM_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [NB_FORM_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [NB_FORM_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [NB_FORM_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    return OPTIONS[form];
}

/* True for stretches that NFC leaves alone: Latin without marks, kana, the
 * common ideographs, general punctuation and full-width forms. */
static bool nfc_stable(nb_str s)
{
    for (size_t i = 0; i < s.n_bytes;) {
        uint32_t c;
        i += nb_tok_char(s.p + i, &c);
        if (!(c < 0x300 || (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x2010 && c <= 0x205e) ||
              (c >= 0x3000 && c <= 0x3098) || (c >= 0x309b && c <= 0x30ff) ||
              (c >= 0xff00 && c <= 0xffef)))
            return false;
    }
    return true;
}

static nb_status normalize_stretch(nb_tok_form form, nb_str s, points *ps, nb_buf *out)
{
    if (form == NB_FORM_NFC && nfc_stable(s)) return nb_buf_add_str(out, s);
    const int options = form_options(form);
    ps->n = 0;
    for (size_t i = 0; i < s.n_bytes;) {
        enum { MOST = 32 }; /* the longest compatibility decomposition has 18 */
        uint32_t cp;
        utf8proc_int32_t tmp[MOST];
        int bound = 0;
        i += nb_tok_char(s.p + i, &cp);
        const utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)cp, tmp, MOST,
                                                           (utf8proc_option_t)options, &bound);
        if (k < 0 || k > MOST) return NB_ERR_INTERNAL;
        NB_TRY(NB_GROW(ps->cp, ps->cap, ps->n + (size_t)k));
        if (k > 0) memcpy(ps->cp + ps->n, tmp, (size_t)k * sizeof *tmp);
        ps->n += (size_t)k;
    }
    NB_TRY(order_marks(ps));
    if (options & UTF8PROC_COMPOSE) {
        const utf8proc_ssize_t k =
            utf8proc_normalize_utf32(ps->cp, (utf8proc_ssize_t)ps->n, (utf8proc_option_t)options);
        if (k < 0) return NB_ERR_INTERNAL;
        ps->n = (size_t)k;
    }
    NB_TRY(nb_buf_reserve(out, 4 * ps->n));
    for (size_t i = 0; i < ps->n; i++) {
        char u[4];
        NB_TRY(nb_buf_add(out, u, (size_t)nb_utf8_encode((uint32_t)ps->cp[i], u)));
    }
    return NB_OK;
}

nb_status nb_tok_normalize(nb_tok_form form, nb_str s, nb_buf *out)
{
    points ps = { 0 };
    nb_status st = NB_OK;
    for (size_t i = 0; i < s.n_bytes && st == NB_OK;) {
        size_t j = i;
        while (j < s.n_bytes && (unsigned char)s.p[j] < 0x80) j++;
        /* keep the last ASCII character back: a mark may follow it */
        const size_t plain = j == s.n_bytes || j == i ? j : j - 1;
        st = nb_buf_add(out, s.p + i, plain - i);
        while (j < s.n_bytes && (unsigned char)s.p[j] >= 0x80) j++;
        if (st == NB_OK && j > plain)
            st = normalize_stretch(form, (nb_str){ s.p + plain, j - plain }, &ps, out);
        i = j;
    }
    free(ps.cp);
    free(ps.spare);
    return st;
}

nb_status nb_tok_lower(nb_str s, nb_buf *out)
{
    NB_TRY(nb_buf_reserve(out, s.n_bytes));
    for (size_t i = 0; i < s.n_bytes;) {
        uint32_t cp;
        char u[4];
        i += nb_tok_char(s.p + i, &cp);
        if (cp == 0x130) { /* the only unconditional expansion: i + dot above */
            NB_TRY(nb_buf_add_c(out, "i\xcc\x87"));
            continue;
        }
        cp = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
        NB_TRY(nb_buf_add(out, u, (size_t)nb_utf8_encode(cp, u)));
    }
    return NB_OK;
}
