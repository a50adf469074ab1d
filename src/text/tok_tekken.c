/* tok_tekken.c - Mistral's tekken.json: a pattern, tokens as base64 by rank, and control tokens in front of them.
 *
 * The first default_num_special_tokens ids are control tokens, "<SPECIAL_n>" where the file names none; the token of rank
 * r has the id behind them.  Of the vocabulary the first default_vocab_size less those are used.  Merges are those of
 * tiktoken: by the rank of what comes out (tok_tiktoken.c).  BOS is "<s>".
 * Source: tekken.py of mistral-common. */
#include <stdio.h>

#include "text/tok_internal.h"

#define FILE_NAME "tekken.json"

static nb_status bad(nb_error *err, const char *what)
{
    return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": %s", what);
}

/* An integer of config, from lo to hi. */
static nb_status count_of(const json_t *config, const char *key, json_int_t lo, json_int_t hi,
                          size_t *out, nb_error *err)
{
    const json_t *v = json_object_get(config, key);
    if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi)
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": config.%s: an integer from %lld to %lld expected",
                       key, (long long)lo, (long long)hi);
    *out = (size_t)json_integer_value(v);
    return NB_OK;
}

static nb_status load_vocab(nb_tokenizer *t, const json_t *vocab, size_t first, size_t n, nb_error *err)
{
    nb_buf buf = { 0 };
    nb_status st = NB_OK;
    if (!json_is_array(vocab) || json_array_size(vocab) < n)
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": vocab: an array of %zu tokens or more expected", n);
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        const json_t *o = json_array_get(vocab, i), *rank = json_object_get(o, "rank"),
                     *bytes = json_object_get(o, "token_bytes");
        if (!json_is_string(bytes) || (rank && (!json_is_integer(rank) || json_integer_value(rank) != (json_int_t)i)))
            st = nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": vocab[%zu]: rank %zu and token_bytes expected", i, i);
        else
            st = nb_tok_put_rank(t, nb_tok_json_str(bytes), first + i, FILE_NAME, &buf, err);
        if (st == NB_ERR_ARG)
            st = nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": vocab[%zu]: token_bytes: base64 expected", i);
    }
    nb_buf_deinit(&buf);
    return st;
}

/* The first n ids, before there is a vocabulary: a text such as "<s>" may also be an ordinary token. */
static nb_status load_special(nb_tokenizer *t, const json_t *list, size_t n, nb_error *err)
{
    const json_t *o;
    size_t i;
    uint32_t bos = NB_TOK_NONE;
    char name[32];
    if (!json_is_array(list)) return bad(err, "special_tokens: an array expected");
    json_array_foreach(list, i, o)
    {
        const json_t *rank = json_object_get(o, "rank"), *text = json_object_get(o, "token_str");
        const json_int_t r = json_is_integer(rank) ? json_integer_value(rank) : -1;
        if (r < 0 || (size_t)r >= n || !json_is_string(text) || json_string_length(text) == 0)
            return nb_fail(err, NB_ERR_FORMAT,
                           FILE_NAME ": special_tokens[%zu]: a rank below %zu and token_str expected", i, n);
        const nb_added x = { .id = (uint32_t)r, .special = true };
        if (t->n_ids > x.id && t->flags[x.id])
            return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": special_tokens[%zu]: rank %u is given twice", i,
                           (unsigned)x.id);
        NB_TRY(nb_tok_add_token(t, &x, nb_tok_json_str(text), false, FILE_NAME, err));
        if (!strcmp(json_string_value(text), "<s>")) bos = x.id;
    }
    for (uint32_t k = 0; k < n; k++) {
        const nb_added x = { .id = k, .special = true };
        if (t->n_ids > k && t->flags[k]) continue;
        (void)snprintf(name, sizeof name, "<SPECIAL_%u>", (unsigned)k);
        NB_TRY(nb_tok_add_token(t, &x, nb_str_c(name), false, FILE_NAME, err));
    }
    if (bos != NB_TOK_NONE) t->prefix[t->n_prefix++] = bos;
    return NB_OK;
}

nb_status nb_tok_load_tekken(nb_tokenizer *t, const json_t *root, nb_error *err)
{
    const json_t *config = json_object_get(root, "config"), *pattern = json_object_get(config, "pattern");
    size_t n_vocab, n_special;
    if (!json_is_string(pattern)) return bad(err, "config.pattern: a string expected");
    NB_TRY(count_of(config, "default_num_special_tokens", 0, 1 << 16, &n_special, err));
    NB_TRY(count_of(config, "default_vocab_size", (json_int_t)n_special + 256, NB_TOK_MAX_VOCAB, &n_vocab, err));
    t->byte_level = t->ignore_merges = t->dec.raw_added = true;
    t->unk_id = NB_TOK_NONE;
    t->dec.kind = NB_DEC_BYTES;
    NB_TRY(load_special(t, json_object_get(root, "special_tokens"), n_special, err));
    NB_TRY(load_vocab(t, json_object_get(root, "vocab"), n_special, n_vocab - n_special, err));
    nb_tok_byte_tables(t);
    for (unsigned b = 0; b < 256; b++)
        if (t->byte_id[b] == NB_TOK_NONE)
            return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": no token for the byte 0x%02x", b);
    if (NB_GROW(t->pre, t->cap_pre, t->n_pre) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, FILE_NAME ": out of memory");
    nb_pre_step *s = &t->pre[t->n_pre++];
    *s = (nb_pre_step){ .kind = NB_PRE_REGEX, .behavior = NB_SPLIT_ISOLATED };
    NB_TRY(nb_tok_regex_compile(nb_tok_json_str(pattern), true, &s->regex, err));
    t->needs_run_check |= s->regex.native == NB_NATIVE_NONE;
    return nb_tok_rank_merges(t, FILE_NAME, err);
}
