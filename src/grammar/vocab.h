/* vocab.h - a vocabulary as a tree of bytes, and the tokens that are taken as a whole. */
#ifndef NB_GRAMMAR_VOCAB_H
#define NB_GRAMMAR_VOCAB_H
#include "grammar/grammar.h"

/* In depth-first order: the node after this one is its first child if skip > 1, and this one's
 * sibling is skip nodes on.  Tokens of equal bytes are siblings of equal bytes. */
typedef struct nb_trie_node {
    uint32_t skip_byte; /* size of the subtree << 8 | byte */
    uint32_t id;        /* a token ends here, or NB_GRAMMAR_NO_TOKEN */
} nb_trie_node;
typedef struct nb_trie {
    nb_trie_node *node;
    size_t n_node;
} nb_trie;

/* A plain token consists of whole characters that any JSON string may contain as they are: no quote, no
 * backslash, no control character.  plain[k] has those of at most k code points, the last one all. */
enum { NB_VOCAB_POINTS = 64 };

typedef struct nb_marker {
    nb_str text;
    uint32_t id;
} nb_marker;

struct nb_vocab {
    size_t n_vocab, n_word, max_token; /* max_token: bytes of the longest */
    nb_str *text; /* [n_vocab] of bytes; empty for markers and ids without text */
    char *bytes;
    uint64_t *all;       /* every id that has a text or is a marker */
    uint64_t *plain;     /* [NB_VOCAB_POINTS + 1][n_word] */
    nb_trie whole, rest; /* all tokens; those that are not plain */
    nb_marker *marker;   /* [n_marker], longest first */
    size_t n_marker;
};

#endif
