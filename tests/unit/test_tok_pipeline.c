/* test_tok_pipeline.c - normalizers, pre-tokenizers, added tokens, templates and
 * special-token files on small tokenizers made here.
 *
 * To see the pieces of a pre-tokenizer, the vocabulary holds every substring of
 * a text and ignore_merges is on: each piece becomes the one token spelled so. */
#include "tok_test.h"

#include "base/utf8.h"
#include "text/tok_unicode.h"

#define SP "\xe2\x96\x81" /* U+2581, SentencePiece's blank */

static json_t *parse(const char *text)
{
    return text ? tok_json(nb_str_c(text)) : json_null();
}

/* Every substring of `universe` that starts and ends at characters. */
static json_t *substrings(const char *universe)
{
    json_t *vocab = json_object();
    const size_t n = strlen(universe);
    json_int_t id = 0;
    for (size_t i = 0; i < n; i += nb_tok_char_bytes(universe + i))
        for (size_t j = i + nb_tok_char_bytes(universe + i);;
             j += nb_tok_char_bytes(universe + j)) {
            char *s = strndup(universe + i, j - i);
            assert_non_null(s);
            if (!json_object_get(vocab, s)) json_object_set_new(vocab, s, json_integer(id++));
            free(s);
            if (j == n) break;
        }
    return vocab;
}

static nb_tokenizer *make(json_t *root)
{
    char *text = json_dumps(root, 0);
    assert_non_null(text);
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){ .tokenizer_json = nb_str_c(text) });
    free(text);
    json_decref(root);
    return t;
}

/* Pieces of `text`, each followed by '|'. */
static void expect_pieces(const char *normalizer, const char *pre, const char *text,
                          const char *universe, const char *want)
{
    nb_tokenizer *t =
        make(json_pack("{s:o, s:o, s:{s:s, s:b, s:o, s:[]}}", "normalizer", parse(normalizer),
                       "pre_tokenizer", parse(pre), "model", "type", "BPE", "ignore_merges", 1,
                       "vocab", substrings(universe), "merges"));
    uint32_t *ids = NULL;
    size_t n = 0;
    nb_error err = { 0 };
    nb_buf got = { 0 };
    if (nb_tokenizer_encode(t, nb_str_c(text), 0, &ids, &n, &err) != NB_OK) fail_msg("%s", err.msg);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(nb_buf_add_str(&got, nb_tokenizer_token_bytes(t, ids[i])), NB_OK);
        assert_int_equal(nb_buf_add_ch(&got, '|'), NB_OK);
    }
    if (!nb_str_eqc(nb_buf_view(&got), want))
        fail_msg("%s %s on \"%s\": got %s, expected %s", normalizer ? normalizer : "",
                 pre ? pre : "", text, got.p ? got.p : "", want);
    nb_buf_deinit(&got);
    free(ids);
    nb_tokenizer_destroy(t);
}

#define SPLIT(pattern, behavior, invert)                                                           \
    "{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behavior "\",\"invert\":" invert \
    "}"
#define DASH "{\"String\":\"-\"}"
#define DASHRE "{\"Regex\":\"-\"}"

static void behaviors(void **state)
{
    static const struct {
        const char *pre_literal, *pre_regex, *want;
    } CASES[] = {
        /* the example of the reference's documentation: "the-final--countdown" */
        { SPLIT(DASH, "Removed", "false"), SPLIT(DASHRE, "Removed", "false"),
          "the|final|countdown|" },
        { SPLIT(DASH, "Isolated", "false"), SPLIT(DASHRE, "Isolated", "false"),
          "the|-|final|-|-|countdown|" },
        { SPLIT(DASH, "MergedWithPrevious", "false"), SPLIT(DASHRE, "MergedWithPrevious", "false"),
          "the-|final-|-|countdown|" },
        { SPLIT(DASH, "MergedWithNext", "false"), SPLIT(DASHRE, "MergedWithNext", "false"),
          "the|-final|-|-countdown|" },
        { SPLIT(DASH, "Contiguous", "false"), SPLIT(DASHRE, "Contiguous", "false"),
          "the|-|final|--|countdown|" },
        { SPLIT(DASH, "Removed", "true"), SPLIT(DASHRE, "Removed", "true"), "-|-|-|" },
        { SPLIT(DASH, "Isolated", "true"), SPLIT(DASHRE, "Isolated", "true"),
          "the|-|final|-|-|countdown|" },
        { SPLIT(DASH, "MergedWithPrevious", "true"), SPLIT(DASHRE, "MergedWithPrevious", "true"),
          "the|-final|-|-countdown|" },
        { SPLIT(DASH, "MergedWithNext", "true"), SPLIT(DASHRE, "MergedWithNext", "true"),
          "the-|final-|-|countdown|" },
        { SPLIT(DASH, "Contiguous", "true"), SPLIT(DASHRE, "Contiguous", "true"),
          "the|-|final|--|countdown|" },
    };
    static const char TEXT[] = "the-final--countdown";
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        expect_pieces(NULL, CASES[i].pre_literal, TEXT, TEXT, CASES[i].want);
        expect_pieces(NULL, CASES[i].pre_regex, TEXT, TEXT, CASES[i].want);
    }
    expect_pieces(NULL, SPLIT(DASH, "MergedWithPrevious", "false"), "--a-", "--a-", "-|-|a-|");
    expect_pieces(NULL, SPLIT(DASH, "MergedWithNext", "false"), "-a--", "-a--", "-a|-|-|");
    expect_pieces(NULL, SPLIT("{\"String\":\"\"}", "Isolated", "false"), "abc", "abc", "abc|");
    /* empty matches cut, but not again right after a match */
    expect_pieces(NULL, SPLIT("{\"Regex\":\"x*\"}", "Isolated", "false"), "axxb", "axxb",
                  "a|xx|b|");
    expect_pieces(NULL, SPLIT("{\"Regex\":\"(?=b)\"}", "Isolated", "false"), "abab", "abab",
                  "a|ba|b|");
}

static void sequences(void **state)
{
    (void)state;
    expect_pieces(
        NULL,
        "{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"Digits\",\"individual_digits\":true},"
        "{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT(DASH, "Removed", "false") "]}]}",
        "ab12-c3", "ab12-c3", "ab|1|2|c|3|");
    expect_pieces(NULL, "{\"type\":\"Digits\",\"individual_digits\":false}", "ab12-c3\xc2\xbd",
                  "ab12-c3\xc2\xbd", "ab|12|-c|3\xc2\xbd|");
    /* a later regex sees one piece only: look-behind stops at its start */
    expect_pieces(
        NULL,
        "{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT(DASH, "Isolated", "false") "," SPLIT(
            "{\"Regex\":\"(?<!-)b\"}", "Isolated", "false") "]}",
        "a-ba", "a-ba", "a|-|b|a|");
}

static void metaspace(void **state)
{
    (void)state;
    expect_pieces(NULL,
                  "{\"type\":\"Metaspace\",\"replacement\":\"" SP
                  "\",\"prepend_scheme\":\"always\","
                  "\"split\":true}",
                  "Hey  you", SP "Hey" SP SP "you", SP "Hey|" SP "|" SP "you|");
    expect_pieces(NULL,
                  "{\"type\":\"Metaspace\",\"replacement\":\"" SP "\",\"prepend_scheme\":\"never\","
                  "\"split\":true}",
                  "Hey you", "Hey" SP "you", "Hey|" SP "you|");
    expect_pieces(NULL,
                  "{\"type\":\"Metaspace\",\"replacement\":\"" SP "\",\"prepend_scheme\":\"first\","
                  "\"split\":false}",
                  " Hey you", SP "Hey" SP "you", SP "Hey" SP "you|");
    expect_pieces(NULL,
                  "{\"type\":\"Metaspace\",\"replacement\":\"" SP "\",\"add_prefix_space\":true}",
                  "a b", SP "a" SP "b", SP "a|" SP "b|");
    /* "first" means the start of the text, not of the piece */
    expect_pieces(NULL,
                  "{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT(
                      DASH, "Isolated", "false") ","
                                                 "{\"type\":\"Metaspace\",\"replacement\":\"" SP
                                                 "\",\"prepend_scheme\":\"first\","
                                                 "\"split\":false}]}",
                  "a-b", SP "a-b", SP "a|-|b|");
}

static void normalizers(void **state)
{
    (void)state;
    expect_pieces("{\"type\":\"NFC\"}", NULL, "e\xcc\x81x", "\xc3\xa9x", "\xc3\xa9x|");
    expect_pieces("{\"type\":\"NFD\"}", NULL, "\xc3\xa9x", "e\xcc\x81x", "e\xcc\x81x|");
    expect_pieces("{\"type\":\"NFKC\"}", NULL, "\xef\xac\x81\xe2\x91\xa0", "fi1", "fi1|");
    expect_pieces("{\"type\":\"NFKD\"}", NULL, "\xef\xac\x81\xc3\xa9", "fie\xcc\x81",
                  "fie\xcc\x81|");
    expect_pieces("{\"type\":\"Lowercase\"}", NULL, "\xc3\x84\xce\xa3\xc4\xb0",
                  "\xc3\xa4\xcf\x83i\xcc\x87", "\xc3\xa4\xcf\x83i\xcc\x87|");
    expect_pieces("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}", NULL,
                  "\xe3\x80\x80 a ", "a ", "a |");
    expect_pieces("{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}", NULL, " a\n ",
                  " a", " a|");
    expect_pieces("{\"type\":\"Prepend\",\"prepend\":\"" SP "\"}", NULL, "ab", SP "ab", SP "ab|");
    expect_pieces("{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"x\"}", NULL,
                  "aabab", "axx", "axx|");
    expect_pieces("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\" \"}",
                  NULL, "a \n b", "a b", "a b|");
    expect_pieces(
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\" \"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SP "\"}]}",
        NULL, "a b", SP "a" SP "b", SP "a" SP "b|");
}

/* ---- byte level ---------------------------------------------------------- */

static void byte_level(void **state)
{
    (void)state;
    /* the model sees stand-ins: U+0120 for the blank; the decoder undoes them */
    nb_tokenizer *t = make(json_pack(
        "{s:o, s:o, s:{s:{s:i, s:i, s:i, s:i, s:i, s:i}, s:[s, [s, s]]}}", "pre_tokenizer",
        parse("{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"), "decoder",
        parse("{\"type\":\"ByteLevel\"}"), "model", "vocab", "a", 5, "\xc4\xa0", 6,
        "\xc4\xa0"
        "a",
        7, "\xc3\x83", 8, "\xc2\xa9", 9, "\xc3\x83\xc2\xa9", 10, "merges", "\xc4\xa0 a", "\xc3\x83",
        "\xc2\xa9"));
    /* "é" is the bytes c3 a9, whose stand-ins are U+00C3 and U+00A9 */
    tok_expect(t, nb_str_c("a a"), 0, (uint32_t[]){ 7, 7 }, 2);
    tok_expect(t, nb_str_c("a  a"), 0, (uint32_t[]){ 7, 6, 7 }, 3);
    tok_expect(t, nb_str_c("\xc3\xa9"), 0, (uint32_t[]){ 6, 10 }, 2);
    tok_expect(t, nb_str_c("abb"), 0, (uint32_t[]){ 7 }, 1); /* no token, no unk: dropped */
    tok_expect_text(t, (uint32_t[]){ 7, 10, 8, 5 }, 4, false,
                    nb_str_c(" a\xc3\xa9\xef\xbf\xbd"
                             "a"));
    assert_int_equal(nb_tokenizer_find(t, nb_str_c("\xc4\xa0"
                                                   "a")),
                     7);
    assert_int_equal(nb_tokenizer_find(t, (nb_str){ "\xc4", 1 }),
                     NB_TOK_NONE); /* half a character */
    assert_int_equal(nb_tokenizer_find(t, nb_str_c("")), NB_TOK_NONE);
    assert_true(nb_str_eqc(nb_tokenizer_token_bytes(t, 7), " a"));
    assert_false(nb_tokenizer_has(t, 4));
    assert_true(nb_tokenizer_has(t, 5));
    assert_int_equal(nb_tokenizer_n_vocab(t), 11);
    nb_tokenizer_destroy(t);
}

/* ---- SentencePiece style ------------------------------------------------- */

/* Vocabulary of single letters, bytes and a few merges, as in MiniCPM3's file. */
static nb_tokenizer *sentencepiece(bool fuse, bool fallback, const char *decoder)
{
    json_t *vocab = parse("{\"<unk>\":0,\"<s>\":1,\"</s>\":2}");
    for (int b = 0; b < 256; b++) {
        char name[8];
        (void)snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        if (fallback) json_object_set_new(vocab, name, json_integer(3 + b));
    }
    static const char *const REST[] = { SP,   "h",    "e",     "l",        "o",           "he",
                                        "ll", "hell", "hello", SP "hello", "\xe4\xb8\xad" };
    for (int i = 0; i < 11; i++) json_object_set_new(vocab, REST[i], json_integer(300 + i));
    return make(json_pack(
        "{s:o, s:o, s:o, s:o, s:{s:s, s:s, s:b, s:b, s:o, s:o}}", "added_tokens",
        parse("[{\"id\":0,\"content\":\"<unk>\",\"special\":true,\"normalized\":false},"
              "{\"id\":1,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"
              "{\"id\":2,\"content\":\"</s>\",\"special\":true,\"normalized\":false}]"),
        "normalizer",
        parse("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" SP
              "\"},"
              "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SP "\"}]}"),
        "post_processor",
        parse("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\","
              "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
              "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}}"),
        "decoder", parse(decoder), "model", "type", "BPE", "unk_token", "<unk>", "fuse_unk", fuse,
        "byte_fallback", fallback, "vocab", vocab, "merges",
        parse("[\"h e\",\"l l\",\"he ll\",\"hell o\",\"" SP " hello\"]")));
}

#define SP_DECODER                                                                                 \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" SP     \
    "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"                      \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"

static void byte_fallback(void **state)
{
    (void)state;
    nb_tokenizer *t = sentencepiece(true, true, SP_DECODER);
    tok_expect(t, nb_str_c("hello"), NB_TOK_ADD_SPECIAL, (uint32_t[]){ 1, 309 }, 2);
    tok_expect(t, nb_str_c("hello hello"), 0, (uint32_t[]){ 309, 309 }, 2);
    tok_expect(t, nb_str_c("\xe4\xb8\xad"), 0, (uint32_t[]){ 300, 310 }, 2);
    /* U+00E9 has no token: its bytes c3 a9 */
    tok_expect(t, nb_str_c("\xc3\xa9"), 0, (uint32_t[]){ 300, 3 + 0xc3, 3 + 0xa9 }, 3);
    tok_expect(t, nb_str_c(""), 0, NULL, 0); /* nothing is put before nothing */
    /* text around an added token is normalized on its own */
    tok_expect(t, nb_str_c("hello</s>hello"), NB_TOK_PARSE_SPECIAL, (uint32_t[]){ 309, 2, 309 }, 3);
    tok_expect_text(t, (uint32_t[]){ 1, 309, 309, 2 }, 4, true, nb_str_c("hello hello"));
    tok_expect_text(t, (uint32_t[]){ 1, 309, 2 }, 3, false, nb_str_c("<s> hello</s>"));
    tok_expect_text(t, (uint32_t[]){ 300, 300, 309 }, 3, false, nb_str_c("  hello"));
    tok_expect_text(t, (uint32_t[]){ 302, 3 + 0xc3, 3 + 0xa9, 302 }, 4, false,
                    nb_str_c("e\xc3\xa9"
                             "e"));
    /* one bad byte spoils the whole run, also the good character before it */
    tok_expect_text(t, (uint32_t[]){ 3 + 'A', 3 + 0xc3, 302 }, 3, false,
                    nb_str_c("\xef\xbf\xbd\xef\xbf\xbd"
                             "e"));
    tok_expect_text(t, (uint32_t[]){ 3 + 'A', 3 + 0xff, 3 + 'B' }, 3, false,
                    nb_str_c("\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"));
    tok_expect_text(t, (uint32_t[]){ 3 + 0xe4, 3 + 0xb8 }, 2, false,
                    nb_str_c("\xef\xbf\xbd\xef\xbf\xbd"));
    nb_tokenizer_destroy(t);
}

static void unknown_tokens(void **state)
{
    (void)state;
    nb_tokenizer *t = sentencepiece(true, false, NULL);
    tok_expect(t, nb_str_c("xyzhx"), 0, (uint32_t[]){ 300, 0, 301, 0 }, 4);
    /* no decoder: tokens with blanks */
    tok_expect_text(t, (uint32_t[]){ 301, 302, 2, 9999 }, 4, false, nb_str_c("h e </s>"));
    nb_tokenizer_destroy(t);
    t = sentencepiece(false, false, NULL);
    tok_expect(t, nb_str_c("xyzhx"), 0, (uint32_t[]){ 300, 0, 0, 0, 301, 0 }, 6);
    nb_tokenizer_destroy(t);
}

static void metaspace_decoder(void **state)
{
    (void)state;
    nb_tokenizer *t = sentencepiece(true, true,
                                    "{\"type\":\"Metaspace\",\"replacement\":\"" SP
                                    "\",\"prepend_scheme\":\"always\"}");
    tok_expect_text(t, (uint32_t[]){ 309, 309, 300 }, 3, false, nb_str_c("hello hello "));
    tok_expect_text(t, (uint32_t[]){ 1, 309 }, 2, true, nb_str_c("hello"));
    nb_tokenizer_destroy(t);
    t = sentencepiece(true, true,
                      "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Strip\","
                      "\"content\":\"l\",\"start\":0,\"stop\":1},{\"type\":\"Fuse\"},"
                      "{\"type\":\"Strip\",\"content\":\"h\",\"start\":1,\"stop\":2}]}");
    /* of each token one trailing l; of the whole one leading and two trailing h */
    tok_expect_text(t, (uint32_t[]){ 301, 301, 306, 302, 301, 301, 301 }, 7, false,
                    nb_str_c("hleh"));
    nb_tokenizer_destroy(t);
}

/* ---- added tokens -------------------------------------------------------- */

/* Letters a-z are 0-25, blank 26; added tokens from the JSON list. */
static nb_tokenizer *letters(const char *added, const char *normalizer, const char *config)
{
    json_t *vocab = json_object();
    for (int i = 0; i < 26; i++) {
        const char name[2] = { (char)('a' + i), 0 };
        json_object_set_new(vocab, name, json_integer(i));
    }
    json_object_set_new(vocab, " ", json_integer(26));
    json_object_set_new(vocab, "<", json_integer(27));
    json_object_set_new(vocab, ">", json_integer(28));
    json_t *root = json_pack("{s:o, s:o, s:{s:o, s:[]}}", "added_tokens", parse(added),
                             "normalizer", parse(normalizer), "model", "vocab", vocab, "merges");
    char *text = json_dumps(root, 0);
    nb_tokenizer *t =
        tok_make(&(nb_tokenizer_files){ .tokenizer_json = nb_str_c(text),
                                        .tokenizer_config_json = nb_str_c(config ? config : "") });
    free(text);
    json_decref(root);
    return t;
}

static void added_flags(void **state)
{
    (void)state;
    nb_tokenizer *t = letters(
        "[{\"id\":40,\"content\":\"ab\"},{\"id\":41,\"content\":\"abc\"},"
        "{\"id\":42,\"content\":\"x\",\"lstrip\":true},{\"id\":43,\"content\":\"y\",\"rstrip\":true},"
        "{\"id\":44,\"content\":\"no\",\"single_word\":true},"
        "{\"id\":45,\"content\":\"<q>\",\"special\":true},{\"id\":46,\"content\":\"<r>\"}]",
        NULL, NULL);
    /* x and y are in the model's vocabulary: its ids count, not those of the list */
    tok_expect(t, nb_str_c("abcab"), 0, (uint32_t[]){ 41, 40 }, 2);  /* the longest */
    tok_expect(t, nb_str_c("aabb"), 0, (uint32_t[]){ 0, 40, 1 }, 3); /* the leftmost */
    tok_expect(t, nb_str_c("c  x  d"), 0, (uint32_t[]){ 2, 23, 26, 26, 3 }, 5);
    tok_expect(t, nb_str_c("c  y  d"), 0, (uint32_t[]){ 2, 26, 26, 24, 3 }, 5);
    tok_expect(t, nb_str_c("y  x"), 0, (uint32_t[]){ 24, 23 }, 2); /* blanks go once */
    tok_expect(t, nb_str_c("no"), 0, (uint32_t[]){ 44 }, 1);
    tok_expect(t, nb_str_c("a no d"), 0, (uint32_t[]){ 0, 26, 44, 26, 3 }, 5);
    tok_expect(t, nb_str_c("noo"), 0, (uint32_t[]){ 13, 14, 14 }, 3);
    tok_expect(t, nb_str_c("\xc3\xa9no"), 0, (uint32_t[]){ 13, 14 }, 2);
    /* special or spelled like control tokens: only with the flag */
    tok_expect(t, nb_str_c("<q>"), NB_TOK_PARSE_SPECIAL, (uint32_t[]){ 45 }, 1);
    tok_expect(t, nb_str_c("<q>"), 0, (uint32_t[]){ 27, 16, 28 }, 3);
    tok_expect(t, nb_str_c("<r>"), NB_TOK_PARSE_SPECIAL, (uint32_t[]){ 46 }, 1);
    tok_expect(t, nb_str_c("<r>"), 0, (uint32_t[]){ 27, 17, 28 }, 3);
    assert_true(nb_tokenizer_is_control(t, 46) && !nb_tokenizer_is_special(t, 46));
    assert_true(nb_tokenizer_is_control(t, 45) && nb_tokenizer_is_special(t, 45));
    assert_false(nb_tokenizer_is_control(t, 40));
    nb_tokenizer_destroy(t);
}

static void added_normalized(void **state)
{
    (void)state;
    nb_tokenizer *t = letters("[{\"id\":40,\"content\":\"QU\",\"normalized\":true},"
                              "{\"id\":41,\"content\":\"ZZ\",\"normalized\":false}]",
                              "{\"type\":\"Lowercase\"}", NULL);
    tok_expect(t, nb_str_c("aQUqub"), 0, (uint32_t[]){ 0, 40, 40, 1 }, 4);
    tok_expect(t, nb_str_c("ZZzz"), 0, (uint32_t[]){ 41, 25, 25 }, 3);
    nb_tokenizer_destroy(t);
}

/* Merges and whole words must not make what the text may not spell. */
static void no_injection(void **state)
{
    static const char FILE_TEXT[] =
        "{\"added_tokens\":[{\"id\":5,\"content\":\"<s>\",\"special\":true}],\"model\":{"
        "\"ignore_merges\":%s,\"vocab\":{\"<\":0,\"s\":1,\">\":2,\"<s\":3,\"x\":4,\"<s>\":5},"
        "\"merges\":[\"< s\",\"<s >\"]}}";
    (void)state;
    for (int k = 0; k < 2; k++) {
        char text[512];
        assert_true(snprintf(text, sizeof text, FILE_TEXT, k ? "true" : "false") < 512);
        nb_tokenizer *t = tok_make(&(nb_tokenizer_files){ .tokenizer_json = nb_str_c(text) });
        tok_expect(t, nb_str_c("<s>x"), NB_TOK_PARSE_SPECIAL, (uint32_t[]){ 5, 4 }, 2);
        tok_expect(t, nb_str_c("<s>"), 0, (uint32_t[]){ 3, 2 }, 2);
        tok_expect(t, nb_str_c("<s>x"), 0, (uint32_t[]){ 3, 2, 4 }, 3);
        nb_tokenizer_destroy(t);
    }
}

static void invalid_utf8(void **state)
{
    (void)state;
    nb_tokenizer *t = letters("[{\"id\":40,\"content\":\"\\ufffd\"}]", NULL, NULL);
    tok_expect(t,
               nb_str_c("a\xff"
                        "b"),
               0, (uint32_t[]){ 0, 40, 1 }, 3);
    tok_expect(t, nb_str_c("\xe4\xb8"), 0, (uint32_t[]){ 40 }, 1); /* one subpart   */
    tok_expect(t, nb_str_c("\xe4\xb8z"), 0, (uint32_t[]){ 40, 25 }, 2);
    tok_expect(t, nb_str_c("\xed\xa0\x80"), 0, (uint32_t[]){ 40, 40, 40 }, 3); /* surrogate */
    tok_expect(t, nb_str_c("\xc0\x80"), 0, (uint32_t[]){ 40, 40 }, 2);         /* overlong      */
    tok_expect(t, nb_str_c("\xf0\x9f\x98\xf0\x9f\x98\x80"), 0, (uint32_t[]){ 40 }, 1);
    nb_tokenizer_destroy(t);
}

/* ---- tokenizer_config.json and the others -------------------------------- */

static void config_roles(void **state)
{
    (void)state;
    nb_tokenizer *t = letters(
        "[{\"id\":40,\"content\":\"<s>\"},{\"id\":41,\"content\":\"</s>\"}]", NULL,
        "{\"bos_token\":{\"__type\":\"AddedToken\",\"content\":\"<s>\"},\"eos_token\":\"</s>\","
        "\"pad_token\":\"<none>\",\"unk_token\":null,\"added_tokens_decoder\":{\"42\":{\"content\":"
        "\"<t>\",\"special\":true},\"40\":{\"content\":\"<s>\",\"special\":false,\"rstrip\":true}},"
        "\"additional_special_tokens\":[\"z\"],\"chat_template\":[{\"name\":\"default\",\"template\":"
        "\"D\"},{\"name\":\"tool_use\",\"template\":\"T\"}]}");
    assert_int_equal(nb_tokenizer_role_id(t, NB_TOK_BOS), 40);
    assert_int_equal(nb_tokenizer_role_id(t, NB_TOK_EOS), 41);
    assert_int_equal(nb_tokenizer_role_id(t, NB_TOK_PAD), NB_TOK_NONE);
    assert_true(nb_str_eqc(nb_tokenizer_role_text(t, NB_TOK_PAD), "<none>"));
    assert_int_equal(nb_tokenizer_role_id(t, NB_TOK_UNK), NB_TOK_NONE);
    assert_int_equal(nb_tokenizer_role_text(t, NB_TOK_UNK).n_bytes, 0);
    assert_true(nb_str_eqc(nb_tokenizer_role_text(t, NB_TOK_BOS), "<s>"));
    assert_true(nb_tokenizer_is_special(t, 40) && nb_tokenizer_is_special(t, 41));
    assert_true(nb_tokenizer_is_special(t, 42));
    assert_true(nb_tokenizer_is_special(t, 25)); /* z */
    assert_int_equal(nb_tokenizer_n_vocab(t), 43);
    assert_true(nb_str_eqc(nb_tokenizer_chat_template(t, NULL), "D"));
    assert_true(nb_str_eqc(nb_tokenizer_chat_template(t, "tool_use"), "T"));
    assert_int_equal(nb_tokenizer_chat_template(t, "rag").n_bytes, 0);
    tok_expect(t, nb_str_c("<s> a"), NB_TOK_PARSE_SPECIAL, (uint32_t[]){ 40, 0 }, 2);
    nb_tokenizer_destroy(t);
}

static void llama_bos(void **state)
{
    static const struct {
        const char *config;
        uint32_t want[3];
        size_t n;
    } CASES[] = {
        { "\"tokenizer_class\":\"LlamaTokenizerFast\"", { 40, 0 }, 2 },
        { "\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":false", { 0 }, 1 },
        { "\"tokenizer_class\":\"LlamaTokenizerFast\",\"add_eos_token\":true", { 40, 0, 41 }, 3 },
        { "\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"add_bos_token\":true", { 0 }, 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char config[512];
        assert_true(snprintf(config, sizeof config,
                             "{%s,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}",
                             CASES[i].config) < 512);
        nb_tokenizer *t = letters(
            "[{\"id\":40,\"content\":\"<s>\"},{\"id\":41,\"content\":\"</s>\"}]", NULL, config);
        tok_expect(t, nb_str_c("a"), NB_TOK_ADD_SPECIAL, CASES[i].want, CASES[i].n);
        tok_expect(t, nb_str_c("a"), 0, (uint32_t[]){ 0 }, 1);
        nb_tokenizer_destroy(t);
    }
}

/* Sequence of processors: the later template goes around the earlier. */
static void templates(void **state)
{
    static const char TEMPLATE[] =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"A\"}},"
        "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"B\"}}],\"special_tokens\":{"
        "\"A\":{\"ids\":[%d,%d]},\"B\":{\"ids\":[%d]}}}";
    char one[512], two[512], all[2048];
    (void)state;
    assert_true(snprintf(one, sizeof one, TEMPLATE, 1, 2, 3) < 512);
    assert_true(snprintf(two, sizeof two, TEMPLATE, 0, 0, 2) < 512);
    assert_true(snprintf(all, sizeof all,
                         "{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":"
                         "\"ByteLevel\"},%s,%s]},\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"c\":2,"
                         "\"d\":3},\"merges\":[]}}",
                         one, two) < 2048);
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){ .tokenizer_json = nb_str_c(all) });
    tok_expect(t, nb_str_c("d"), NB_TOK_ADD_SPECIAL, (uint32_t[]){ 0, 0, 1, 2, 3, 3, 2 }, 7);
    tok_expect(t, nb_str_c("d"), 0, (uint32_t[]){ 3 }, 1);
    nb_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behaviors),      cmocka_unit_test(sequences),
        cmocka_unit_test(metaspace),      cmocka_unit_test(normalizers),
        cmocka_unit_test(byte_level),     cmocka_unit_test(byte_fallback),
        cmocka_unit_test(unknown_tokens), cmocka_unit_test(metaspace_decoder),
        cmocka_unit_test(added_flags),    cmocka_unit_test(added_normalized),
        cmocka_unit_test(no_injection),   cmocka_unit_test(invalid_utf8),
        cmocka_unit_test(config_roles),   cmocka_unit_test(llama_bos),
        cmocka_unit_test(templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
