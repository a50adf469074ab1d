/* tok_pre.c - pre-tokenizers by the names that llama.cpp gives them (tokenizer.ggml.pre of a GGUF
 * file).
 *
 * The patterns are those of the models' own tokenizer.json, which llama.cpp rewrites for its regex
 * engine.  Where its form means something else the model's counts: Qwen2 normalizes to NFC, DeepSeek-V2
 * takes digits one by one.  Sources: src/llama-vocab.cpp of llama.cpp; the models' tokenizer.json. */
#include <stdlib.h>

#include "text/tok_internal.h"

enum { MAX_PATTERN = 6 };

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* Words by case, single digits; suffix: what may follow a word. */
#define CASED_WORDS(suffix)                                                                        \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER  \
    "*" suffix "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CJK                                                                                        \
    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf"                 \
    "]+"
#define CJK_OLD                                                                                    \
    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb8\x80\xea\xb0\x80-\xed\x9f\xbf"                 \
    "]+"
#define HANGUL "[\xea\xb0\x80-\xed\x9e\xa3\xe3\x84\xb1-\xe3\x86\x8e]+"
#define BOPOMOFO "[\xe3\x84\x85-\xe3\x84\xaf]+"
#define CJK_MARKS                                                                                  \
    "[\xef\xbc\x81\xe2\x80\xa6\xe2\x80\x9c\xe2\x80\x9d\xe2\x80\x98\xe2\x80\x99"                    \
    "\xe2\x80\x94\xef\xbc\x9a\xef\xbc\x9b\xef\xbc\x8c\xe3\x80\x81-\xe3\x80\xbf"                    \
    "\xef\xb8\xb0-\xef\xb9\x8f]+"
#define WIDE_MARKS                                                                                 \
    "[!-/:-~\xef\xbc\x81-\xef\xbc\x8f\xef\xbc\x9a-\xef\xbd\x9e\xe2\x80\x98-\xe2"                   \
    "\x80\x9f\xe3\x80\x80-\xe3\x80\x82]+"

/* Stands for the letters below. */
static const char CASED_LETTERS[] = "cased letters";

typedef struct pre_row {
    const char *names; /* each ended by a blank */
    bool nfc, runs;    /* NFC in front; Kimi's cut of huge inputs */
    const char *pattern[MAX_PATTERN + 1];
} pre_row;

// clang-format off
static const pre_row rows[] = {
    { "llama-bpe llama3 llama-v3 glm4 chatglm-bpe ", false, false, { NB_TOK_PATTERN_LLAMA3 } },
    { "qwen2 deepseek-r1-qwen ", true, false, { NB_TOK_PATTERN_QWEN2 } },
    { "gpt-2 a.x-4.0 gigachat ", false, false, { NB_TOK_PATTERN_GPT2 } },
    { "kimi-k2 ", false, true, { NB_TOK_PATTERN_KIMI } },
    { "deepseek-v3 ", false, false, { "\\p{N}{1,3}", CJK, NB_TOK_PATTERN_DEEPSEEK3 } },
    { "deepseek-coder ", false, false, { "[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK_OLD, "\\p{N}" } },
    { "deepseek-llm ", false, false,
      { "[\r\n]", CASED_LETTERS, "\\s?" WIDE_MARKS, "\\s+$", CJK_OLD, "\\p{N}" } },
    { "tekken ", false, false, { CASED_WORDS("") } },
    { "youtu ", false, false, { HANGUL "|" CJK_MARKS "|" BOPOMOFO "|" CJK, CASED_WORDS(CONTRACTIONS "?") } },
};
// clang-format on

/* The cased letters that the second split of DeepSeek-V2's tokenizer lists. */
static const uint32_t CASED[][2] = {
    { 0x41, 0x5a },       { 0x61, 0x7a },       { 0xb5, 0xb5 },       { 0xc0, 0xd6 },
    { 0xd8, 0xf6 },       { 0xf8, 0x1ba },      { 0x1bc, 0x1bf },     { 0x1c4, 0x293 },
    { 0x295, 0x2af },     { 0x370, 0x373 },     { 0x376, 0x376 },     { 0x377, 0x377 },
    { 0x37b, 0x37d },     { 0x37f, 0x37f },     { 0x386, 0x386 },     { 0x388, 0x38a },
    { 0x38c, 0x38c },     { 0x38e, 0x3a1 },     { 0x3a3, 0x3f5 },     { 0x3f7, 0x481 },
    { 0x48a, 0x52f },     { 0x531, 0x556 },     { 0x10a0, 0x10c5 },   { 0x13a0, 0x13f5 },
    { 0x13f8, 0x13fd },   { 0x1c90, 0x1cba },   { 0x1cbd, 0x1cbf },   { 0x1d00, 0x1d2b },
    { 0x1d6b, 0x1d77 },   { 0x1d79, 0x1d9a },   { 0x1e00, 0x1f15 },   { 0x1f18, 0x1f1d },
    { 0x1f20, 0x1f45 },   { 0x1f48, 0x1f4d },   { 0x1f50, 0x1f57 },   { 0x1f59, 0x1f59 },
    { 0x1f5b, 0x1f5b },   { 0x1f5d, 0x1f5d },   { 0x1f5f, 0x1f7d },   { 0x1f80, 0x1fb4 },
    { 0x1fb6, 0x1fbc },   { 0x1fbe, 0x1fbe },   { 0x1fc2, 0x1fc4 },   { 0x1fc6, 0x1fcc },
    { 0x1fd0, 0x1fd3 },   { 0x1fd6, 0x1fdb },   { 0x1fe0, 0x1fec },   { 0x1ff2, 0x1ff4 },
    { 0x1ff6, 0x1ffc },   { 0x2102, 0x2102 },   { 0x2107, 0x2107 },   { 0x210a, 0x2113 },
    { 0x2115, 0x2115 },   { 0x2119, 0x211d },   { 0x2124, 0x2124 },   { 0x2126, 0x2126 },
    { 0x2128, 0x2128 },   { 0x212a, 0x212d },   { 0x212f, 0x2134 },   { 0x2139, 0x2139 },
    { 0x213c, 0x213f },   { 0x2145, 0x2149 },   { 0x214e, 0x214e },   { 0x2183, 0x2183 },
    { 0x2184, 0x2184 },   { 0x2c00, 0x2c7b },   { 0x2c7e, 0x2ce4 },   { 0x2ceb, 0x2cee },
    { 0x2cf2, 0x2cf2 },   { 0x2cf3, 0x2cf3 },   { 0xa640, 0xa66d },   { 0xa680, 0xa69b },
    { 0xa722, 0xa76f },   { 0xa771, 0xa787 },   { 0xa78b, 0xa78e },   { 0xab70, 0xabbf },
    { 0xfb00, 0xfb06 },   { 0xfb13, 0xfb17 },   { 0xff21, 0xff3a },   { 0xff41, 0xff5a },
    { 0x10400, 0x1044f }, { 0x104b0, 0x104d3 }, { 0x104d8, 0x104fb }, { 0x10c80, 0x10cb2 },
    { 0x10cc0, 0x10cf2 }, { 0x118a0, 0x118df }, { 0x1e900, 0x1e943 },
};

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "tokenizer.ggml.pre: out of memory");
}

/* `\s?[...]+` */
static nb_status cased_pattern(nb_buf *out, nb_error *err)
{
    nb_status st = nb_buf_add_c(out, "\\s?[");
    for (size_t i = 0; st == NB_OK && i < sizeof CASED / sizeof *CASED; i++)
        st = nb_buf_printf(out, "\\x{%x}-\\x{%x}", (unsigned)CASED[i][0], (unsigned)CASED[i][1]);
    if (st == NB_OK) st = nb_buf_add_c(out, "]+");
    return st == NB_OK ? st : no_memory(err);
}

static nb_status add_step(nb_tokenizer *t, nb_pre_kind kind, nb_pre_step **out, nb_error *err)
{
    if (NB_GROW(t->pre, t->cap_pre, t->n_pre) != NB_OK) return no_memory(err);
    *out = &t->pre[t->n_pre++];
    **out = (nb_pre_step){ .kind = kind, .behavior = NB_SPLIT_ISOLATED };
    return NB_OK;
}

static nb_status add_pattern(nb_tokenizer *t, const char *pattern, nb_error *err)
{
    nb_pre_step *s;
    nb_buf cased = { 0 };
    NB_TRY(add_step(t, NB_PRE_REGEX, &s, err));
    if (pattern == CASED_LETTERS) NB_TRY(cased_pattern(&cased, err));
    const nb_str text = cased.n_bytes ? nb_buf_view(&cased) : nb_str_c(pattern);
    const nb_status st = nb_tok_regex_compile(text, true, &s->regex, err);
    nb_buf_deinit(&cased);
    if (st == NB_OK && s->regex.native == NB_NATIVE_NONE) t->needs_run_check = true;
    return st;
}

static bool has_name(const char *names, nb_str name)
{
    for (const char *p = names, *end; (end = strchr(p, ' ')); p = end + 1)
        if (nb_str_eq(name, (nb_str){ p, (size_t)(end - p) })) return true;
    return false;
}

static nb_status unknown(nb_str name, nb_error *err)
{
    char list[300] = "";
    for (size_t i = 0; i < NB_COUNT(rows); i++)
        (void)strncat(list, rows[i].names, sizeof list - strlen(list) - 1);
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   "tokenizer.ggml.pre \"%.*s\" is not supported: how it splits text is not known "
                   "(supported: %.*s)",
                   (int)(name.n_bytes < 64 ? name.n_bytes : 64), name.p, (int)strlen(list) - 1,
                   list);
}

nb_status nb_tok_load_named_pre(nb_tokenizer *t, nb_str name, nb_error *err)
{
    const pre_row *r = NULL;
    nb_pre_step *s;
    for (size_t i = 0; i < NB_COUNT(rows); i++)
        if (has_name(rows[i].names, name)) r = &rows[i];
    if (!r) return unknown(name, err);
    if (r->nfc) {
        if (NB_GROW(t->norm, t->cap_norm, t->n_norm) != NB_OK) return no_memory(err);
        t->norm[t->n_norm++] = (nb_norm_step){ .kind = NB_NORM_FORM, .form = NB_FORM_NFC };
    }
    if (r->runs) NB_TRY(add_step(t, NB_PRE_RUNS, &s, err));
    for (const char *const *p = r->pattern; *p; p++) NB_TRY(add_pattern(t, *p, err));
    t->byte_level = true;
    return add_step(t, NB_PRE_BYTELEVEL, &s, err);
}

bool nb_tok_pre_name(const char *const *pattern, size_t n, bool ignore_merges,
                     char out[NB_TOK_PRE_BYTES])
{
    /* Two models have one pattern; only one of them takes a word that is a token before it merges. */
    static const char llama[] = "llama-bpe", glm[] = "glm4", gpt2[] = "gpt-2";
    const char *name = n == 0 ? gpt2 : NULL; /* ByteLevel splits itself */
    for (size_t i = 0; i < NB_COUNT(rows) && !name; i++) {
        size_t k = 0;
        while (k < n && rows[i].pattern[k] && strcmp(rows[i].pattern[k], pattern[k]) == 0) k++;
        if (k == n && !rows[i].pattern[k]) name = rows[i].names;
    }
    if (!name) return false;
    if (strncmp(name, llama, sizeof llama - 1) == 0 && !ignore_merges) name = glm;
    const size_t m = strcspn(name, " ");
    memcpy(out, name, m); /* all of them are shorter */
    out[m] = 0;
    return true;
}
