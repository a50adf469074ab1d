/* tok_unicode.h - character classes, normalization forms and UTF-8 repair for
 * the tokenizer.  General categories and decompositions come from utf8proc;
 * White_Space and the script Han are tables of the Unicode Character Database. */
#ifndef NB_TEXT_TOK_UNICODE_H
#define NB_TEXT_TOK_UNICODE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum {
    NB_CC_L = 1 << 0,      /* letter                                           */
    NB_CC_M = 1 << 1,      /* mark                                             */
    NB_CC_N = 1 << 2,      /* number                                           */
    NB_CC_P = 1 << 3,      /* punctuation                                      */
    NB_CC_S = 1 << 4,      /* symbol                                           */
    NB_CC_WS = 1 << 5,     /* White_Space                                      */
    NB_CC_CRLF = 1 << 6,   /* \r or \n                                         */
    NB_CC_UPPER = 1 << 7,  /* Lu Lt Lm Lo M without Han: first part of a word  */
    NB_CC_LOWER = 1 << 8,  /* Ll Lm Lo M without Han: second part of a word    */
    NB_CC_HAN = 1 << 9,    /* script Han                                       */
    NB_CC_WORD = 1 << 10,  /* \w: Alphabetic, M, Nd, Pc                        */
    NB_CC_CJK = 1 << 11,   /* U+4E00-9FA5, U+3040-30FF (a DeepSeek split)      */
    NB_CC_AZ = 1 << 12,    /* A-Z a-z                                          */
    NB_CC_APUNCT = 1 << 13 /* ASCII punctuation and symbols                   */
};
enum { NB_CC_TABLE_ITEMS = 0x10000 };

/* The classes of one code point (slow: a property look-up). */
uint16_t nb_tok_class_of(uint32_t cp);
/* Fills a table of the basic plane. */
void nb_tok_class_table(uint16_t table[NB_CC_TABLE_ITEMS]);

static inline uint16_t nb_tok_class(const uint16_t *table, uint32_t cp)
{
    return cp < NB_CC_TABLE_ITEMS ? table[cp] : nb_tok_class_of(cp);
}

/* Decodes one character of valid UTF-8; returns its length. */
static inline unsigned nb_tok_char(const char *s, uint32_t *cp)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    if (u[0] < 0xe0) {
        *cp = (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
        return 2;
    }
    if (u[0] < 0xf0) {
        *cp = (u[0] & 0xfu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
        return 3;
    }
    *cp = (u[0] & 7u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
    return 4;
}
/* Length of the character that starts at s. */
static inline unsigned nb_tok_char_bytes(const char *s)
{
    const unsigned char u = (unsigned char)*s;
    return u < 0x80 ? 1 : u < 0xe0 ? 2 : u < 0xf0 ? 3 : 4;
}
/* The character that ends before offset `end` (> 0) of valid UTF-8. */
static inline uint32_t nb_tok_char_before(const char *s, size_t end, size_t *start)
{
    size_t i = end - 1;
    uint32_t cp;
    while (i > 0 && ((unsigned char)s[i] & 0xc0) == 0x80) i--;
    (void)nb_tok_char(s + i, &cp);
    *start = i;
    return cp;
}

bool nb_tok_is_space(uint32_t cp);
bool nb_tok_is_han(uint32_t cp);

/* For s that starts with no valid character: the number of bytes, 1..3, that
 * one U+FFFD stands for (the maximal subpart, Unicode 15, table 3-8). */
size_t nb_tok_bad_bytes(const char *s, size_t n_bytes);
/* Appends s with every invalid subsequence replaced by U+FFFD. */
nb_status nb_tok_utf8_fix(nb_str s, nb_buf *out);

typedef enum nb_tok_form { NB_FORM_NFC, NB_FORM_NFD, NB_FORM_NFKC, NB_FORM_NFKD } nb_tok_form;
/* Appends the normalized form of s, valid UTF-8, to *out.  Linear time. */
nb_status nb_tok_normalize(nb_tok_form form, nb_str s, nb_buf *out);
/* Appends s with each character lowercased on its own (no final sigma). */
nb_status nb_tok_lower(nb_str s, nb_buf *out);

#endif
