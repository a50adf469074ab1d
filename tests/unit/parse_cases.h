/* parse_cases.h - cases of the output parser, one JSON object to a line: a model's
 * output and what must become of it (tests/data/parse/cases.jsonl says which fields).
 * A case is checked under one cutting of its output at a time. */
#ifndef NB_TESTS_PARSE_CASES_H
#define NB_TESTS_PARSE_CASES_H
#include "tok_test.h"

#include "parse/parse.h"

/* One piece of an output: `id` and how many bytes of it. */
typedef struct parse_piece {
    uint32_t id;
    size_t n_bytes;
} parse_piece;

/* Reads all cases of a file; the caller owns the array. */
json_t *parse_cases_read(const char *path);

/* Runs a case with the given pieces, which cover its output, and tokens; fails the
 * test with `how` in the message where the answer is not the expected one. */
void parse_case_check(const json_t *c, nb_token_lookup tokens, const parse_piece *pieces,
                      size_t n_pieces, const char *how);

/* Every byte, every character, all at once, random pieces: without ids, and with
 * the family's markers as added tokens (made up). */
void parse_case_cut(const json_t *c);
/* The real tokens of a tokenizer. */
void parse_case_tokens(const json_t *c, const nb_tokenizer *t);

/* The lookup of a tokenizer's added tokens. */
nb_token_lookup parse_tokens_of(const nb_tokenizer *t);

#endif
