/* grammar_testing.h - what the tests of grammars share: a small vocabulary, compiling, matching. */
#ifndef NB_TESTS_GRAMMAR_TESTING_H
#define NB_TESTS_GRAMMAR_TESTING_H
#include "tok_test.h"

#include "base/rng.h"
#include "grammar/grammar.h"

/* Every byte, some longer tokens as tokenizers have them, two markers; id N_BYTE + i is words[i]. */
enum { N_BYTE = 256 };
static const char *const words[] = {
    "{\"",
    "\":",
    "\": ",
    "\",",
    "\", \"",
    "\"}",
    "\"]",
    "}}",
    "]}",
    "[{",
    "},",
    ", ",
    "true",
    "false",
    "null",
    "ab",
    "abc",
    "the ",
    " of",
    "10",
    "123",
    "00",
    ".5",
    "e+",
    "\\\"",
    "\\u00",
    "\\n",
    "\n ",
    "\n  ",
    "hello",
    "caf\xc3",
    "\xa9",
    "\xf0\x9f\x98",
    "\xc3\xa9",
    "value-",
    "longer text that spans words",
    "type",
    "name",
    "aa",
    "aaa",
    "((",
    "))",
    "<\xef\xbd\x9ctool\xe2\x96\x81"
    "calls\xe2\x96\x81"
    "begin\xef\xbd\x9c>",
    "<\xef\xbd\x9ctool\xe2\x96\x81"
    "calls\xe2\x96\x81"
    "end\xef\xbd\x9c>",
    "\xef\xbd\x9c"
    "DSML"
    "\xef\xbd\x9c",
    "<think>",
    "</think>",
    "<|call|>",
};
enum {
    N_WORD = sizeof words / sizeof *words,
    FIRST_MARKER = N_WORD - 6,
    N_VOCAB = N_BYTE + N_WORD + 2
};

static inline nb_vocab_token test_token(const void *ctx, uint32_t id)
{
    static char bytes[N_BYTE];
    (void)ctx;
    if (id < N_BYTE) {
        bytes[id] = (char)id;
        return (nb_vocab_token){ { &bytes[id], 1 }, false };
    }
    if (id - N_BYTE >= N_WORD) return (nb_vocab_token){ { "", 0 }, false };
    return (nb_vocab_token){ nb_str_c(words[id - N_BYTE]), id - N_BYTE >= FIRST_MARKER };
}

static inline nb_vocab *test_vocab(void)
{
    nb_vocab *v = NULL;
    nb_error e = { 0 };
    if (nb_vocab_create(test_token, NULL, N_VOCAB, &v, &e) != NB_OK) fail_msg("%s", e.msg);
    return v;
}

/* NULL: refused, with *e. */
static inline nb_grammar *compile_as(const nb_vocab *v, nb_grammar_kind kind, nb_str text,
                                     bool relaxed, nb_error *e)
{
    const nb_grammar_spec spec = {
        .kind = kind, .text = text.p, .text_bytes = text.n_bytes, .relaxed = relaxed
    };
    nb_grammar *g = NULL;
    *e = (nb_error){ 0 };
    const nb_status st = nb_grammar_build(v, &spec, &g, e);
    if (st == NB_OK) return g;
    if (!e->msg[0] || e->status != st) fail_msg("refused without a line");
    return NULL;
}

static inline nb_match *start_match(nb_grammar *g)
{
    nb_match *m = NULL;
    nb_error e = { 0 };
    if (nb_match_create(g, NB_MATCH_PLAIN, &m, &e) != NB_OK) fail_msg("%s", e.msg);
    return m;
}

/* Whether a whole text is in the language, byte by byte. */
static inline bool accepts_text(nb_grammar *g, nb_str text)
{
    nb_match *m = start_match(g);
    bool ok = true;
    for (size_t i = 0; i < text.n_bytes && ok; i++)
        ok = nb_match_accept_bytes(m, (nb_str){ text.p + i, 1 }) == NB_OK;
    ok = ok && nb_match_accepting(m);
    nb_match_destroy(m);
    return ok;
}

static inline bool mask_has(const uint64_t *mask, uint32_t id)
{
    return mask[id >> 6] >> (id & 63) & 1;
}

#endif
