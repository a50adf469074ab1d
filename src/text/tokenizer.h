/* tokenizer.h - text to token ids and back, with the ids of Hugging Face.
 *
 * A tokenizer is made from the bytes of a checkpoint's tokenizer files:
 *
 *   tokenizer.json   BPE models only: byte-level (GPT-2 alphabet) or over
 *                    characters with byte fallback; the normalizers, pre-
 *                    tokenizers, post-processors and decoders listed in
 *                    tok_pipe.c; anything else is refused by name.
 *   tiktoken.model   lines "base64 rank" (Kimi K2, Llama 3): the split pattern
 *                    is not in the file, so unknown families are refused.
 *   tekken.json      Mistral's own: pattern, ranks and control tokens in one file.
 *   tokenizer_config.json, special_tokens_map.json, added_tokens.json
 *                    names of the special tokens, flags, the chat template.
 *
 * Ids equal those of transformers' `tokenizer(text)`, including:
 *  - BOS/EOS: for the Llama tokenizer classes (LlamaTokenizer[Fast],
 *    CodeLlamaTokenizer[Fast]) tokenizer_config.json's add_bos_token (default
 *    true) and add_eos_token (default false) decide, as those classes rebuild
 *    the post-processor; for all other classes tokenizer.json's post_processor
 *    decides.  tiktoken files: Kimi adds none, Llama 3 adds BOS; so does tekken.json.
 *  - bytes that are not UTF-8 are read as U+FFFD, one per maximal invalid
 *    subsequence (what decoding with errors="replace" gives in Python).
 *
 * Threads: immutable after create; every function below may be called from any
 * number of threads at once.  Views returned live as long as the tokenizer. */
#ifndef NB_TEXT_TOKENIZER_H
#define NB_TEXT_TOKENIZER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

typedef struct nb_tokenizer nb_tokenizer;

#define NB_TOK_NONE UINT32_MAX /* "no such token" where an id is returned */

enum {
    NB_TOK_MAX_VOCAB = 1 << 22,      /* ids are below this                      */
    NB_TOK_MAX_TOKEN_BYTES = 1 << 12 /* longest added token or vocabulary entry */
};

/* Contents of the files (not paths); an absent file is { NULL, 0 }.  One of
 * the first three is needed; the first one that is there wins. */
typedef struct nb_tokenizer_files {
    nb_str tokenizer_json;
    nb_str tiktoken_model; /* tiktoken.model, or tokenizer.model in that form */
    nb_str tekken_json;
    nb_str tokenizer_config_json;
    nb_str special_tokens_map_json;
    nb_str added_tokens_json;
} nb_tokenizer_files;

/* Nothing of `files` is kept.  Errors name the file and the field:
 * NB_ERR_FORMAT, NB_ERR_UNSUPPORTED, NB_ERR_LIMIT, NB_ERR_NOMEM, NB_ERR_ARG. */
nb_status nb_tokenizer_create(const nb_tokenizer_files *files, nb_tokenizer **out, nb_error *err);
void nb_tokenizer_destroy(nb_tokenizer *t);

enum {
    /* Put the BOS/EOS tokens around the ids (add_special_tokens=True). */
    NB_TOK_ADD_SPECIAL = 1u << 0,
    /* Recognise every added token in the text, as transformers does.  Without
     * it, tokens that are special or look like control tokens ("<...>",
     * "[...]", or with a U+FF5C bar in them) are read as plain text, so that
     * text from a user cannot inject them; other added tokens (such as runs of
     * blanks) are still recognised. */
    NB_TOK_PARSE_SPECIAL = 1u << 1
};

/* *ids is allocated with malloc (free it; NULL when *n_ids is 0).  Linear-
 * logarithmic in the length of the text, except that a regular expression of a
 * tokenizer.json may backtrack: beyond its step limit the call fails with
 * NB_ERR_LIMIT.  The caller bounds the length of the text. */
nb_status nb_tokenizer_encode(const nb_tokenizer *t, nb_str text, unsigned flags, uint32_t **ids,
                              size_t *n_ids, nb_error *err);

/* The same for a text with marks: ascending offsets of bytes.  No control token is recognised in a
 * place that has a mark inside, so that parts of a prompt can be kept from spelling one.  The text
 * must then be valid UTF-8.  Tokens that are looked for after a normalizer see no marks. */
nb_status nb_tokenizer_encode_marked(const nb_tokenizer *t, nb_str text, unsigned flags,
                                     const size_t *mark, size_t n_mark, uint32_t **ids,
                                     size_t *n_ids, nb_error *err);
/* Where a control token is spelled at or after `from`, and its length; text.n_bytes: nowhere. */
size_t nb_tokenizer_find_control(const nb_tokenizer *t, nb_str text, size_t from, size_t *n_bytes);

/* Appends the text of the ids to *out, always valid UTF-8: equal to
 * transformers' decode(ids, skip_special_tokens=skip_special,
 * clean_up_tokenization_spaces=False).  Unknown ids give nothing. */
nb_status nb_tokenizer_decode(const nb_tokenizer *t, const uint32_t *ids, size_t n_ids,
                              bool skip_special, nb_buf *out);

/* Highest id + 1; there may be ids without a token below it. */
size_t nb_tokenizer_n_vocab(const nb_tokenizer *t);
bool nb_tokenizer_has(const nb_tokenizer *t, uint32_t id);
/* The bytes that the token stands for in a text (not always UTF-8); for an
 * unknown id an empty view. */
nb_str nb_tokenizer_token_bytes(const nb_tokenizer *t, uint32_t id);
/* Skipped by decode(skip_special_tokens=True). */
bool nb_tokenizer_is_special(const nb_tokenizer *t, uint32_t id);
/* Not reachable from text without NB_TOK_PARSE_SPECIAL (see there). */
bool nb_tokenizer_is_control(const nb_tokenizer *t, uint32_t id);
/* The token with exactly this content: an added token's text, or a vocabulary
 * entry as tokenizer.json spells it (for tiktoken files: its bytes);
 * NB_TOK_NONE if there is none. */
uint32_t nb_tokenizer_find(const nb_tokenizer *t, nb_str content);
/* The same among added tokens only. */
uint32_t nb_tokenizer_find_added(const nb_tokenizer *t, nb_str content);

/* Special tokens by role, from tokenizer_config.json, else from
 * special_tokens_map.json.  The id is NB_TOK_NONE and the text empty where the
 * files name none (a text without id: the vocabulary lacks that token). */
typedef enum nb_tok_role {
    NB_TOK_BOS,
    NB_TOK_EOS,
    NB_TOK_PAD,
    NB_TOK_UNK,
    NB_TOK_N_ROLES
} nb_tok_role;
uint32_t nb_tokenizer_role_id(const nb_tokenizer *t, nb_tok_role role);
nb_str nb_tokenizer_role_text(const nb_tokenizer *t, nb_tok_role role);

/* Source of the chat template in tokenizer_config.json: a single template is
 * called "default", named ones ("default", "tool_use", ...) by their names.
 * Empty if there is none of that name. */
nb_str nb_tokenizer_chat_template(const nb_tokenizer *t, const char *name);

/* llama.cpp's name of a pre-tokenizer, by the patterns of its Splits in order, byte for byte; ignore_merges: the model's
 * field of that name.  False: it has none. */
enum { NB_TOK_PRE_BYTES = 32 };
bool nb_tok_pre_name(const char *const *pattern, size_t n, bool ignore_merges, char out[NB_TOK_PRE_BYTES]);

#endif
