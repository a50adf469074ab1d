/* tok_tiktoken.c - vocabularies in tiktoken's form: lines "base64 rank".
 *
 * A pair of neighbours merges if its concatenation is a token, lowest rank
 * first.  That is the same as BPE with a merge for every way to cut every token
 * into two tokens, so these merges are made here, and the one BPE engine runs.
 * tiktoken takes a piece that is a token as it is: ignore_merges.
 *
 * The file has neither the split pattern nor the special tokens.  Two families
 * are known, by tokenizer_class or by their number of ranks:
 *   Kimi K2    163,584 ranks; special tokens from tokenizer_config.json, the
 *              rest of the 256 places are <|reserved_token_ID|>; no BOS
 *   Llama 3    128,000 ranks; the 256 names of Llama 3.1; BOS
 * Sources: tokenization_kimi.py of moonshotai/Kimi-K2-Instruct, tokenizer.py of
 * meta-llama/llama-models. */
#include <stdio.h>

#include "text/tok_internal.h"

#define FILE_NAME "tiktoken.model"

enum { KIMI_RANKS = 163584, LLAMA3_RANKS = 128000, N_SPECIAL = 256 };

static int base64_digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes n characters of base64 with padding; false if malformed. */
static bool base64_decode(const char *p, size_t n, nb_buf *out)
{
    if (n == 0 || n % 4) return false;
    const size_t pad = p[n - 1] != '=' ? 0 : p[n - 2] != '=' ? 1 : 2;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t w = 0;
        for (size_t k = 0; k < 4; k++) {
            const bool padded = i + k >= n - pad;
            const int d = padded ? 0 : base64_digit((unsigned char)p[i + k]);
            if (d < 0) return false;
            w = w << 6 | (uint32_t)d;
        }
        const char bytes[3] = { (char)(w >> 16), (char)(w >> 8), (char)w };
        if (nb_buf_add(out, bytes, i + 4 == n ? 3 - pad : 3) != NB_OK) return false;
    }
    return true;
}

static nb_status bad_line(size_t line, nb_error *err)
{
    return nb_fail(err, NB_ERR_FORMAT,
                   FILE_NAME ": line %zu: \"base64 rank\" expected (a SentencePiece model is not "
                             "supported: its tokenizer.json is needed)",
                   line);
}

static nb_status add_line(nb_tokenizer *t, nb_str s, size_t line, nb_buf *buf, nb_error *err)
{
    const char *sp = memchr(s.p, ' ', s.n_bytes);
    uint64_t rank = 0;
    buf->n_bytes = 0;
    if (!sp || sp + 1 == s.p + s.n_bytes || s.n_bytes > 2 * NB_TOK_MAX_TOKEN_BYTES)
        return bad_line(line, err);
    for (const char *d = sp + 1; d < s.p + s.n_bytes; d++) {
        if (*d < '0' || *d > '9' || rank > UINT32_MAX) return bad_line(line, err);
        rank = rank * 10 + (uint64_t)(*d - '0');
    }
    char where[64];
    (void)snprintf(where, sizeof where, FILE_NAME ": line %zu", line);
    const nb_str text = { s.p, (size_t)(sp - s.p) };
    const nb_status st = nb_tok_put_rank(t, text, rank, where, buf, err);
    return st == NB_ERR_ARG ? bad_line(line, err) : st;
}

nb_status nb_tok_put_rank(nb_tokenizer *t, nb_str text, uint64_t id, const char *where, nb_buf *buf,
                          nb_error *err)
{
    nb_tok_slot *slot;
    bool added = false;
    buf->n_bytes = 0;
    if (text.n_bytes > 2 * NB_TOK_MAX_TOKEN_BYTES || !base64_decode(text.p, text.n_bytes, buf) ||
        !buf->n_bytes)
        return nb_fail(err, NB_ERR_ARG, "%s: a token in base64 expected", where);
    NB_TRY(nb_tok_reserve_id(t, id, where, err));
    if (t->flags[id])
        return nb_fail(err, NB_ERR_FORMAT, "%s: rank %llu is given twice", where,
                       (unsigned long long)id);
    t->flags[id] = NB_TF_EXISTS | NB_TF_MODEL;
    nb_status st = nb_tok_blob_add(t, nb_buf_view(buf), &t->key[id]);
    if (st == NB_OK)
        st = nb_tok_map_put(&t->keys, t->key, &t->blob, nb_buf_view(buf), (uint32_t)id, &slot, &added);
    if (st != NB_OK) return nb_fail(err, st, "%s: %s", where, nb_status_text(st));
    if (!added) return nb_fail(err, NB_ERR_FORMAT, "%s: a token is given twice", where);
    if (buf->n_bytes > t->max_key_bytes) t->max_key_bytes = buf->n_bytes;
    return NB_OK;
}

static nb_status load_ranks(nb_tokenizer *t, nb_str file, size_t *n_ranks, nb_error *err)
{
    nb_buf buf = { 0 };
    nb_status st = NB_OK;
    size_t line = 0;
    *n_ranks = 0;
    for (size_t i = 0; i < file.n_bytes && st == NB_OK;) {
        const char *nl = memchr(file.p + i, '\n', file.n_bytes - i);
        const size_t end = nl ? (size_t)(nl - file.p) : file.n_bytes;
        size_t n = end - i;
        if (n && file.p[i + n - 1] == '\r') n--;
        line++;
        if (n) {
            st = add_line(t, (nb_str){ file.p + i, n }, line, &buf, err);
            ++*n_ranks;
        }
        i = end + 1;
    }
    nb_buf_deinit(&buf);
    return st;
}

nb_status nb_tok_rank_merges(nb_tokenizer *t, const char *where, nb_error *err)
{
    for (uint32_t id = 0; id < t->n_ids; id++) {
        const nb_str s = nb_tok_bytes(t, t->key[id]);
        for (size_t cut = 1; cut < s.n_bytes; cut++) {
            const nb_tok_slot *a = nb_tok_map_get(&t->keys, t->key, &t->blob, s.p, cut);
            if (!a) continue;
            const nb_tok_slot *b =
                nb_tok_map_get(&t->keys, t->key, &t->blob, s.p + cut, s.n_bytes - cut);
            if (!b) continue;
            const nb_status st = nb_tok_merges_put(&t->merges, a->value, b->value, id, id);
            if (st != NB_OK) return nb_fail(err, st, "%s: %s", where, nb_status_text(st));
        }
    }
    return NB_OK;
}

static nb_status add_special(nb_tokenizer *t, uint32_t id, const char *name, bool special,
                             nb_error *err)
{
    if (t->n_ids > id && t->flags[id]) return NB_OK; /* named by the configuration */
    const nb_added a = { .id = id, .special = special };
    return nb_tok_add_token(t, &a, nb_str_c(name), false, FILE_NAME, err);
}

/* Special tokens of the family that the configuration did not name. */
nb_status nb_tok_tiktoken_special(nb_tokenizer *t, nb_error *err)
{
    static const struct {
        unsigned place;
        const char *name;
    } LLAMA3[] = { { 0, "<|begin_of_text|>" },
                   { 1, "<|end_of_text|>" },
                   { 4, "<|finetune_right_pad_id|>" },
                   { 6, "<|start_header_id|>" },
                   { 7, "<|end_header_id|>" },
                   { 8, "<|eom_id|>" },
                   { 9, "<|eot_id|>" },
                   { 10, "<|python_tag|>" } };
    char name[64];
    const uint32_t first = t->tiktoken_ranks;
    if (t->tiktoken_kimi) {
        for (uint32_t k = 0; k < N_SPECIAL; k++) {
            (void)snprintf(name, sizeof name, "<|reserved_token_%u|>", (unsigned)(first + k));
            NB_TRY(add_special(t, first + k, name, false, err));
        }
        return NB_OK;
    }
    unsigned n_reserved = 0;
    for (unsigned k = 0, known = 0; k < N_SPECIAL; k++) {
        if (known < sizeof LLAMA3 / sizeof *LLAMA3 && LLAMA3[known].place == k) {
            NB_TRY(add_special(t, first + k, LLAMA3[known++].name, true, err));
            continue;
        }
        (void)snprintf(name, sizeof name, "<|reserved_special_token_%u|>", n_reserved++);
        NB_TRY(add_special(t, first + k, name, true, err));
    }
    const uint32_t bos = nb_tokenizer_find(t, nb_str_c("<|begin_of_text|>"));
    if (bos != NB_TOK_NONE && !t->n_prefix) t->prefix[t->n_prefix++] = bos;
    return NB_OK;
}

static nb_status find_family(nb_tokenizer *t, size_t n_ranks, const json_t *config, nb_error *err)
{
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    const bool kimi_class = class && strcmp(class, "TikTokenTokenizer") == 0;
    t->tiktoken_ranks = (uint32_t)t->n_ids;
    t->tiktoken_kimi = kimi_class || n_ranks == KIMI_RANKS;
    if (t->tiktoken_kimi || n_ranks == LLAMA3_RANKS) return NB_OK;
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   FILE_NAME ": unknown family with %zu ranks and tokenizer_class \"%.64s\" (%d "
                             "ranks or TikTokenTokenizer for Kimi, or %d ranks for Llama 3 "
                             "expected)",
                   n_ranks, class ? class : "(none)", (int)KIMI_RANKS, (int)LLAMA3_RANKS);
}

static nb_status make_pipeline(nb_tokenizer *t, nb_error *err)
{
    if (t->tiktoken_kimi) {
        if (NB_GROW(t->pre, t->cap_pre, t->n_pre) != NB_OK)
            return nb_fail(err, NB_ERR_NOMEM, FILE_NAME ": out of memory");
        t->pre[t->n_pre++] = (nb_pre_step){ .kind = NB_PRE_RUNS };
    }
    if (NB_GROW(t->pre, t->cap_pre, t->n_pre) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, FILE_NAME ": out of memory");
    nb_pre_step *s = &t->pre[t->n_pre++];
    *s = (nb_pre_step){ .kind = NB_PRE_REGEX, .behavior = NB_SPLIT_ISOLATED };
    return nb_tok_regex_compile(
        nb_str_c(t->tiktoken_kimi ? NB_TOK_PATTERN_KIMI : NB_TOK_PATTERN_LLAMA3), true, &s->regex,
        err);
}

nb_status nb_tok_load_tiktoken(nb_tokenizer *t, nb_str file, const json_t *config, nb_error *err)
{
    size_t n_ranks;
    t->byte_level = true;
    t->ignore_merges = true;
    t->unk_id = NB_TOK_NONE;
    t->dec.kind = NB_DEC_BYTES;
    t->dec.raw_added = true;
    NB_TRY(load_ranks(t, file, &n_ranks, err));
    nb_tok_byte_tables(t);
    for (unsigned b = 0; b < 256; b++)
        if (t->byte_id[b] == NB_TOK_NONE)
            return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": no token for the byte 0x%02x", b);
    NB_TRY(find_family(t, n_ranks, config, err));
    NB_TRY(make_pipeline(t, err));
    return nb_tok_rank_merges(t, FILE_NAME, err);
}
