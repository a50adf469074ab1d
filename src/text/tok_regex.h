/* tok_regex.h - the regular expressions of tokenizer.json.
 *
 * Patterns are written for Oniguruma (Ruby syntax, Unicode), which is what
 * Hugging Face's tokenizers run.  They are translated for PCRE2 where the two
 * differ; known pre-tokenizer patterns run in hand-written matchers instead
 * (tok_native.c), which are tested to agree with PCRE2. */
#ifndef NB_TEXT_TOK_REGEX_H
#define NB_TEXT_TOK_REGEX_H
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef enum nb_tok_native {
    NB_NATIVE_NONE,
    NB_NATIVE_DEEPSEEK3,   /* third split of DeepSeek V3                     */
    NB_NATIVE_CJK,         /* second split of DeepSeek V3                    */
    NB_NATIVE_LLAMA3,      /* Llama 3, GLM: numbers in groups of three       */
    NB_NATIVE_QWEN2,       /* the same with single digits                    */
    NB_NATIVE_GPT2,        /* GPT-2 and ByteLevel with use_regex             */
    NB_NATIVE_KIMI,        /* Kimi K2                                        */
    NB_NATIVE_NUMBER,      /* \p{N}                                          */
    NB_NATIVE_NUMBER3,     /* \p{N}{1,3}                                     */
    NB_NATIVE_NUMBERS,     /* \p{N}+                                         */
    NB_NATIVE_CRLF,        /* [\r\n]                                         */
    NB_NATIVE_SPACE_AT_END /* \s+$, quadratic in a backtracking engine       */
} nb_tok_native;

/* The matcher for exactly this pattern, or NB_NATIVE_NONE. */
nb_tok_native nb_tok_native_find(nb_str pattern);
/* First match in valid UTF-8 s at or after `from`; classes: nb_tok_class_table.
 * Matches of native patterns are never empty. */
bool nb_tok_native_next(nb_tok_native kind, const uint16_t *classes, nb_str s, size_t from,
                        size_t *start, size_t *end);
/* Text of the patterns that some files do not give. */
extern const char NB_TOK_PATTERN_GPT2[], NB_TOK_PATTERN_KIMI[], NB_TOK_PATTERN_LLAMA3[],
    NB_TOK_PATTERN_QWEN2[], NB_TOK_PATTERN_DEEPSEEK3[];

/* Appends the PCRE2 form of an Oniguruma pattern; NB_ERR_UNSUPPORTED names what
 * has no translation. */
nb_status nb_tok_regex_translate(nb_str pattern, nb_buf *out, nb_error *err);

/* Whether PCRE2 knows \p{sc:name}; false in versions without that form, whose
 * \p{name} has the meaning that is wanted.  name: letters and digits only. */
bool nb_tok_regex_is_script(const char *name);

/* Immutable after compile. */
typedef struct nb_tok_regex {
    nb_tok_native native;
    void *code; /* pcre2_code; NULL for native patterns */
} nb_tok_regex;

/* allow_native false forces PCRE2 (tests compare the two).  The pattern is
 * valid UTF-8. */
nb_status nb_tok_regex_compile(nb_str pattern, bool allow_native, nb_tok_regex *out, nb_error *err);
void nb_tok_regex_deinit(nb_tok_regex *re);

/* State of one caller; zero-initialise.  interpret = true makes PCRE2 count
 * every step against its limit (the JIT does not count loops over one class). */
typedef struct nb_tok_regex_run {
    void *match_data, *match_context, *jit_stack;
    bool interpret;
} nb_tok_regex_run;
void nb_tok_regex_run_deinit(nb_tok_regex_run *run);

/* First match in valid UTF-8 s at or after `from`: *found, *start, *end.
 * NB_ERR_LIMIT when the step limit is reached. */
nb_status nb_tok_regex_next(const nb_tok_regex *re, nb_tok_regex_run *run, const uint16_t *classes,
                            nb_str s, size_t from, bool *found, size_t *start, size_t *end,
                            nb_error *err);

#endif
