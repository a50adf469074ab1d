/* regex.h - regular expressions over code points: a tree, and what becomes of it.
 *
 * Syntax: that of ECMA 262 (which JSON Schema's `pattern` uses), without what is not regular or needs
 * tables: look-around, back references, word boundaries and Unicode properties are refused by name.
 * Lazy quantifiers mean the same language and are accepted. */
#ifndef NB_GRAMMAR_REGEX_H
#define NB_GRAMMAR_REGEX_H
#include "grammar/graph.h"

typedef struct nb_range {
    uint32_t lo, hi; /* code points */
} nb_range;
/* Sorted, disjoint, without surrogates. */
typedef struct nb_cpset {
    nb_range *r;
    size_t n;
} nb_cpset;

typedef enum nb_re_kind {
    R_EMPTY,
    R_CLASS,
    R_CAT,
    R_ALT,
    R_REP,
    R_RULE,  /* a call of rule `min` */
    R_TOKEN, /* the marker `min` */
    R_ANY,   /* any text: what surrounds an expression that is not anchored */
    R_BEGIN,
    R_END
} nb_re_kind;
typedef struct nb_re {
    nb_re_kind kind;
    nb_cpset set;       /* R_CLASS */
    struct nb_re **sub; /* R_CAT, R_ALT: n; R_REP: 1 */
    size_t n;
    uint32_t min, max; /* R_REP; min: R_RULE, R_TOKEN */
} nb_re;

/* How code points become bytes: UTF-8, or UTF-8 inside of a JSON string, with the escapes that JSON
 * demands in their shortest form. */
typedef enum nb_re_mode { NB_RE_PLAIN, NB_RE_JSON } nb_re_mode;

enum { NB_RE_MAX_BYTES = 8192, NB_RE_MAX_PATTERN = 4096 };

/* All of these return NULL or NB_G_NONE after a failure, which g->err says. */

/* search: the expression may match anywhere, unless it is anchored; else the whole text. */
nb_re *nb_re_parse(nb_grammar *g, nb_str text, bool search);
nb_re *nb_re_new(nb_grammar *g, nb_re_kind kind, nb_re *const *sub, size_t n);
nb_re *nb_re_repeat(nb_grammar *g, nb_re *x, uint32_t min, uint32_t max);
nb_re *nb_re_literal(nb_grammar *g, nb_str utf8);
nb_re *nb_re_range(nb_grammar *g, uint32_t lo, uint32_t hi);
/* Sorts and joins ranges r[n]; a complement where `negate`. */
nb_cpset nb_cpset_make(nb_grammar *g, nb_range *r, size_t n, bool negate);

nb_gid nb_re_emit(nb_grammar *g, const nb_re *x, nb_re_mode mode, nb_gid next);
nb_gid nb_g_cpset(nb_grammar *g, const nb_cpset *s, nb_re_mode mode, nb_gid next);
bool nb_re_matches(nb_grammar *g, const nb_re *x, nb_str text);

/* Texts that match every expression x[i], or do not where without[i]. */
typedef struct nb_re_all {
    const nb_re **x;
    const bool *without;
    size_t n;
} nb_re_all;
/* As an automaton over bytes; quote: with a closing '"'.  *empty: no text matches (NB_G_NONE is
 * returned then). */
uint32_t nb_re_dfa(nb_grammar *g, const nb_re_all *all, nb_re_mode mode, bool quote, bool *empty);

/* ---- dfa.c ---- */

/* An automaton over code points: from each state disjoint ranges lead to others. */
typedef struct nb_cpedge {
    uint32_t from, lo, hi, to;
} nb_cpedge;
typedef struct nb_cpdfa {
    nb_cpedge *edge; /* sorted by from */
    size_t n_edge, cap_edge;
    uint8_t *end; /* [n_state] */
    uint32_t n_state;
} nb_cpdfa;
uint32_t nb_g_lower(nb_grammar *g, const nb_cpdfa *d, nb_re_mode mode, bool quote);

#endif
