/* fuzz_grammar.c - any bytes as a schema, an expression, a list of choices or a grammar: it is refused with
 * one line, or its masks lead to no dead end.  The first byte chooses the kind. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void need(int ok)
{
    if (!ok) abort();
}

static nb_vocab_token token(const void *ctx, uint32_t id)
{
    static char byte[256];
    static const char *const more[] = { "ab", "\": ", "\"}", "true", "\xc3\xa9", "12", "</think>" };
    (void)ctx;
    if (id < 256) {
        byte[id] = (char)id;
        return (nb_vocab_token){ { &byte[id], 1 }, false };
    }
    return (nb_vocab_token){ nb_str_c(more[id - 256]), id == 262 };
}
enum { N_TOKEN = 263 };

static void walk(nb_grammar *g, uint64_t seed)
{
    nb_match *m = NULL;
    nb_error e = { 0 };
    const nb_status st = nb_match_create(g, NB_MATCH_PLAIN, &m, &e);
    if (st != NB_OK) {
        need(st == NB_ERR_NOMEM || st == NB_ERR_LIMIT);
        return;
    }
    for (size_t k = 0; k < 24; k++) {
        const uint64_t *mask;
        const nb_status s = nb_match_mask(m, &mask);
        if (s != NB_OK) {
            need(s == NB_ERR_NOMEM || s == NB_ERR_LIMIT);
            break;
        }
        uint32_t id = (uint32_t)(nb_rng_u64(seed, k) % N_TOKEN), tries = 0;
        for (; tries < N_TOKEN && !(mask[id >> 6] >> (id & 63) & 1); tries++)
            id = (id + 1) % N_TOKEN;
        if (tries == N_TOKEN) {
            need(nb_match_accepting(m)); /* else the text cannot be completed */
            break;
        }
        const nb_status a = nb_match_accept(m, id);
        need(a != NB_ERR_ARG);
        if (a != NB_OK) break;
    }
    nb_match_destroy(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const nb_grammar_kind kinds[] = { NB_GRAMMAR_JSON_SCHEMA, NB_GRAMMAR_REGEX,
                                             NB_GRAMMAR_CHOICE, NB_GRAMMAR_GBNF };
    if (n == 0) return 0;
    char *p = malloc(n); /* its own block: reading beyond it is found */
    nb_vocab *v = NULL;
    nb_error e = { 0 };
    if (p && nb_vocab_create(token, NULL, N_TOKEN, &v, &e) == NB_OK) {
        memcpy(p, data + 1, n - 1);
        const nb_grammar_spec spec = { .kind = data[0] & 16 ? NB_GRAMMAR_TOOLS : kinds[data[0] & 3],
                                       .text = p,
                                       .text_bytes = n - 1,
                                       .relaxed = data[0] & 4,
                                       .compact = data[0] & 8 };
        nb_grammar *g = NULL;
        const nb_status st = nb_grammar_build(v, &spec, &g, &e);
        if (st == NB_OK) {
            walk(g, n);
            nb_grammar_unref(g);
        } else {
            const char *end = memchr(e.msg, 0, sizeof e.msg);
            need(end && end > e.msg && e.status == st);
            for (const char *q = e.msg; q < end; q++) need((unsigned char)*q >= 0x20 && *q != 0x7f);
        }
    }
    nb_vocab_destroy(v);
    free(p);
    return 0;
}
