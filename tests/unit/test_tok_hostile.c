/* test_tok_hostile.c - files that must be refused with a line that names the
 * trouble, mutated files that must do no harm, and texts that try to be slow. */
#include "tok_test.h"

#include "base/rng.h"
#include "base/utf8.h"

#define M0 "\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}"

static void expect_refused(const nb_tokenizer_files *files, nb_status want, const char *words)
{
    nb_tokenizer *t = NULL;
    nb_error err;
    const nb_status st = nb_tokenizer_create(files, &t, &err);
    const nb_str json = files->tokenizer_json;
    if (st != want || err.status != st || !strstr(err.msg, words))
        fail_msg("%.*s: status %d \"%s\", expected %d with \"%s\"",
                 (int)(json.n_bytes < 150 ? json.n_bytes : 150), json.p ? json.p : "", (int)st,
                 st == NB_OK ? "" : err.msg, (int)want, words);
    assert_null(t);
}

static void refused_json(void **state)
{
    static const struct {
        const char *json;
        nb_status status;
        const char *words;
    } CASES[] = {
        { "{", NB_ERR_FORMAT, "tokenizer.json: line 1" },
        { "[]", NB_ERR_FORMAT, "an object expected" },
        { "{}", NB_ERR_FORMAT, "model: an object expected" },
        { "{\"model\":[]}", NB_ERR_FORMAT, "model: an object" },
        { "{\"model\":{\"type\":\"Unigram\"}}", NB_ERR_UNSUPPORTED, "\"Unigram\"" },
        { "{\"model\":{\"type\":\"WordPiece\"}}", NB_ERR_UNSUPPORTED, "BPE expected" },
        { "{\"model\":{\"vocab\":[]}}", NB_ERR_FORMAT, "model.vocab: an object" },
        { "{\"model\":{\"vocab\":{\"a\":0}}}", NB_ERR_FORMAT, "model.merges: an array" },
        { "{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", NB_ERR_FORMAT, "model.vocab" },
        { "{\"model\":{\"vocab\":{\"a\":\"x\"},\"merges\":[]}}", NB_ERR_FORMAT, "model.vocab" },
        { "{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}", NB_ERR_FORMAT, "model.vocab" },
        { "{\"model\":{\"vocab\":{\"a\":4194304},\"merges\":[]}}", NB_ERR_LIMIT, "4194304" },
        { "{\"model\":{\"vocab\":{\"a\":9223372036854775807},\"merges\":[]}}", NB_ERR_LIMIT,
          "ids below" },
        { "{\"model\":{\"vocab\":{\"a\":99999999999999999999},\"merges\":[]}}", NB_ERR_FORMAT,
          "line 1" },
        { "{\"model\":{\"vocab\":{\"a\":7,\"b\":7},\"merges\":[]}}", NB_ERR_FORMAT,
          "7 is given twice" },
        { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", NB_ERR_FORMAT, "merges[0]" },
        { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", NB_ERR_FORMAT, "merges[0]" },
        { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a \"]}}", NB_ERR_FORMAT, "an empty part" },
        { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", NB_ERR_FORMAT, "merges[0]" },
        { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}}", NB_ERR_FORMAT, "merges[0]" },
        { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}}", NB_ERR_FORMAT, "merges[0]" },
        { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", NB_ERR_FORMAT,
          "\"b\" is not in" },
        { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", NB_ERR_FORMAT,
          "\"aa\" is not in" },
        { "{\"model\":{\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}", NB_ERR_UNSUPPORTED,
          "dropout" },
        { "{\"model\":{\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0},\"merges\":[]}}",
          NB_ERR_UNSUPPORTED, "end_of_word_suffix" },
        { "{\"model\":{\"continuing_subword_prefix\":\"##\",\"vocab\":{\"a\":0},\"merges\":[]}}",
          NB_ERR_UNSUPPORTED, "continuing_subword_prefix" },
        { "{\"model\":{\"byte_fallback\":1,\"vocab\":{\"a\":0},\"merges\":[]}}", NB_ERR_FORMAT,
          "byte_fallback" },
        { "{\"model\":{\"unk_token\":3,\"vocab\":{\"a\":0},\"merges\":[]}}", NB_ERR_FORMAT,
          "unk_token" },
        { "{\"normalizer\":{\"type\":\"BertNormalizer\"}," M0 "}", NB_ERR_UNSUPPORTED,
          "BertNormalizer" },
        { "{\"normalizer\":{\"type\":\"Precompiled\"}," M0 "}", NB_ERR_UNSUPPORTED, "Precompiled" },
        { "{\"normalizer\":3," M0 "}", NB_ERR_FORMAT, "normalizer" },
        { "{\"normalizer\":{\"type\":\"Sequence\"}," M0 "}", NB_ERR_FORMAT,
          "Sequence.normalizers" },
        { "{\"normalizer\":{\"type\":\"Prepend\"}," M0 "}", NB_ERR_FORMAT, "Prepend.prepend" },
        { "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}," M0
          "}",
          NB_ERR_UNSUPPORTED, "empty pattern" },
        { "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}," M0
          "}",
          NB_ERR_FORMAT, "regular expression \"(\"" },
        { "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a)\"},\"content\":\"$1\"}," M0
          "}",
          NB_ERR_UNSUPPORTED, "groups" },
        { "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}," M0 "}", NB_ERR_UNSUPPORTED,
          "BertPreTokenizer" },
        { "{\"pre_tokenizer\":{}," M0 "}", NB_ERR_UNSUPPORTED, "(none)" },
        { "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a\"},\"behavior\":"
          "\"Isolated\"}," M0 "}",
          NB_ERR_UNSUPPORTED, "a class without ]" },
        { "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":\"a\",\"behavior\":\"Isolated\"}," M0
          "}",
          NB_ERR_FORMAT, "Split.pattern" },
        { "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Odd\"}," M0
          "}",
          NB_ERR_FORMAT, "\"Odd\"" },
        { "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"}}," M0 "}",
          NB_ERR_FORMAT, "Split.behavior" },
        { "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}," M0 "}",
          NB_ERR_FORMAT, "one character" },
        { "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"x\"}," M0
          "}",
          NB_ERR_FORMAT, "prepend_scheme" },
        { "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":"
          "\"Digits\"}]}," M0 "}",
          NB_ERR_UNSUPPORTED, "after ByteLevel" },
        { "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":\"yes\"}," M0 "}",
          NB_ERR_FORMAT, "ByteLevel.use_regex" },
        { "{\"decoder\":{\"type\":\"WordPiece\"}," M0 "}", NB_ERR_UNSUPPORTED, "WordPiece" },
        { "{\"decoder\":[]," M0 "}", NB_ERR_FORMAT, "decoder" },
        { "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}," M0
          "}",
          NB_ERR_UNSUPPORTED, "in this order" },
        { "{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}," M0 "}",
          NB_ERR_FORMAT, "Strip.start" },
        { "{\"post_processor\":{\"type\":\"BertProcessing\"}," M0 "}", NB_ERR_UNSUPPORTED,
          "BertProcessing" },
        { "{\"post_processor\":{\"type\":\"TemplateProcessing\"}," M0 "}", NB_ERR_FORMAT,
          "single" },
        { "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},"
          "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{}}," M0 "}",
          NB_ERR_FORMAT, "\"x\"" },
        { "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},"
          "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[77]}}}," M0 "}",
          NB_ERR_FORMAT, "id without a token" },
        { "{\"added_tokens\":{}," M0 "}", NB_ERR_FORMAT, "added_tokens: an array" },
        { "{\"added_tokens\":[{}]," M0 "}", NB_ERR_FORMAT, "added_tokens[0]" },
        { "{\"added_tokens\":[{\"id\":-1,\"content\":\"x\"}]," M0 "}", NB_ERR_FORMAT,
          "added_tokens[0]" },
        { "{\"added_tokens\":[{\"id\":4294967296,\"content\":\"x\"}]," M0 "}", NB_ERR_LIMIT,
          "4294967296" },
        { "{\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]," M0 "}", NB_ERR_FORMAT,
          "another token" },
        { "{\"added_tokens\":[{\"id\":5,\"content\":\"x\"},{\"id\":5,\"content\":\"y\"}]," M0 "}",
          NB_ERR_FORMAT, "another token" },
        { "{\"a\":\"\\ud800\"," M0 "}", NB_ERR_FORMAT, "line 1" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        expect_refused(&(nb_tokenizer_files){ .tokenizer_json = nb_str_c(CASES[i].json) },
                       CASES[i].status, CASES[i].words);
    expect_refused(&(nb_tokenizer_files){ 0 }, NB_ERR_ARG, "expected");
}

static void refused_others(void **state)
{
    static const nb_str OK = { "{" M0 "}", sizeof "{" M0 "}" - 1 };
    static const struct {
        const char *config, *words;
    } CONFIGS[] = {
        { "x", "tokenizer_config.json: line 1" },
        { "{\"added_tokens_decoder\":[]}", "added_tokens_decoder" },
        { "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}", "\"x\"" },
        { "{\"added_tokens_decoder\":{\"-1\":{\"content\":\"y\"}}}", "\"-1\"" },
        { "{\"added_tokens_decoder\":{\"9\":{}}}", "\"9\"" },
        { "{\"added_tokens_decoder\":{\"0\":{\"content\":\"y\"}}}", "another token" },
        { "{\"chat_template\":3}", "chat_template" },
        { "{\"chat_template\":[3]}", "chat_template[0]" },
        { "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true}",
          "bos_token has no id" },
        { "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":\"yes\"}", "add_bos_token" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof CONFIGS / sizeof *CONFIGS; i++)
        expect_refused(
            &(nb_tokenizer_files){ .tokenizer_json = OK,
                                   .tokenizer_config_json = nb_str_c(CONFIGS[i].config) },
            NB_ERR_FORMAT, CONFIGS[i].words);
    expect_refused(
        &(nb_tokenizer_files){ .tokenizer_json = OK, .special_tokens_map_json = nb_str_c("[") },
        NB_ERR_FORMAT, "special_tokens_map.json");
    expect_refused(&(nb_tokenizer_files){ .tokenizer_json = OK,
                                          .added_tokens_json = nb_str_c("{\"x\":\"y\"}") },
                   NB_ERR_FORMAT, "added_tokens.json");
    static const struct {
        const char *ranks;
        nb_status status;
        const char *words;
    } RANKS[] = {
        { "IQ==\n", NB_ERR_FORMAT, "line 1" },
        { "IQ== x\n", NB_ERR_FORMAT, "line 1" },
        { "IQ== 0\nI 1\n", NB_ERR_FORMAT, "line 2" },
        { "==== 0\n", NB_ERR_FORMAT, "line 1" },
        { "I*== 0\n", NB_ERR_FORMAT, "line 1" },
        { "IQ== 0\nIg== 0\n", NB_ERR_FORMAT, "rank 0" },
        { "IQ== 0\nIQ== 1\n", NB_ERR_FORMAT, "twice" },
        { "IQ== 99999999\n", NB_ERR_LIMIT, "99999999" },
        { "IQ== 0\n", NB_ERR_FORMAT, "no token for the byte 0x00" },
        { "\n\x0b<unk>", NB_ERR_FORMAT, "SentencePiece" },
    };
    for (size_t i = 0; i < sizeof RANKS / sizeof *RANKS; i++)
        expect_refused(&(nb_tokenizer_files){ .tiktoken_model = nb_str_c(RANKS[i].ranks) },
                       RANKS[i].status, RANKS[i].words);
    nb_buf tiny = tok_read_own("tiny.tiktoken");
    expect_refused(&(nb_tokenizer_files){ .tiktoken_model = nb_buf_view(&tiny) },
                   NB_ERR_UNSUPPORTED, "unknown family with 262 ranks");
    nb_buf_deinit(&tiny);
}

static void deep_json(void **state)
{
    static const char *const OPEN[] = { "[",
                                        "{\"a\":", "{\"type\":\"Sequence\",\"normalizers\":[" };
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        nb_buf b = { 0 };
        assert_int_equal(nb_buf_add_c(&b, "{\"normalizer\":"), NB_OK);
        for (int i = 0; i < 100000; i++) assert_int_equal(nb_buf_add_c(&b, OPEN[k]), NB_OK);
        expect_refused(&(nb_tokenizer_files){ .tokenizer_json = nb_buf_view(&b) }, NB_ERR_FORMAT,
                       "tokenizer.json");
        nb_buf_deinit(&b);
    }
    nb_buf b = { 0 }; /* less deep than the parser allows, deeper than a pipeline is */
    assert_int_equal(nb_buf_add_c(&b, "{\"normalizer\":"), NB_OK);
    for (int i = 0; i < 500; i++) assert_int_equal(nb_buf_add_c(&b, OPEN[2]), NB_OK);
    for (int i = 0; i < 500; i++) assert_int_equal(nb_buf_add_c(&b, "]}"), NB_OK);
    assert_int_equal(nb_buf_add_c(&b, "," M0 "}"), NB_OK);
    expect_refused(&(nb_tokenizer_files){ .tokenizer_json = nb_buf_view(&b) }, NB_ERR_LIMIT,
                   "too many steps");
    nb_buf_deinit(&b);
}

static void long_tokens(void **state)
{
    (void)state;
    nb_buf b = { 0 };
    assert_int_equal(nb_buf_add_c(&b, "{\"model\":{\"vocab\":{\""), NB_OK);
    for (int i = 0; i < 5000; i++) assert_int_equal(nb_buf_add_ch(&b, 'a'), NB_OK);
    assert_int_equal(nb_buf_add_c(&b, "\":0},\"merges\":[]}}"), NB_OK);
    expect_refused(&(nb_tokenizer_files){ .tokenizer_json = nb_buf_view(&b) }, NB_ERR_LIMIT,
                   "5000");
    b.n_bytes = 0;
    assert_int_equal(nb_buf_add_c(&b, "{" M0 ",\"added_tokens\":[{\"id\":9,\"content\":\""), NB_OK);
    for (int i = 0; i < 600; i++) assert_int_equal(nb_buf_add_ch(&b, 'a'), NB_OK);
    assert_int_equal(nb_buf_add_c(&b, "\"}]}"), NB_OK);
    expect_refused(&(nb_tokenizer_files){ .tokenizer_json = nb_buf_view(&b) }, NB_ERR_LIMIT, "600");
    nb_buf_deinit(&b);
}

/* Exponential pattern: an error for that text, not a hang; other texts work. */
static void catastrophic_pattern(void **state)
{
    (void)state;
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){
        .tokenizer_json = nb_str_c("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                                   "\"(a+)+$\"},\"behavior\":\"Isolated\"}," M0 "}") });
    nb_buf text = { 0 };
    for (int i = 0; i < 100; i++) assert_int_equal(nb_buf_add_ch(&text, i < 99 ? 'a' : 'b'), NB_OK);
    uint32_t *ids = NULL;
    size_t n = 0;
    nb_error err;
    assert_int_equal(nb_tokenizer_encode(t, nb_buf_view(&text), 0, &ids, &n, &err), NB_ERR_LIMIT);
    assert_non_null(strstr(err.msg, "gives up"));
    assert_null(ids);
    tok_expect(t, nb_str_c("aab"), 0, (uint32_t[]){ 0, 0, 1 }, 3);
    nb_buf_deinit(&text);
    nb_tokenizer_destroy(t);
}

/* A million marks in the wrong order: sorting them is linear. */
static void many_marks(void **state)
{
    (void)state;
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){
        .tokenizer_json = nb_str_c("{\"normalizer\":{\"type\":\"NFC\"}," M0 "}") });
    nb_buf text = { 0 };
    for (int i = 0; i < 500000; i++)
        assert_int_equal(nb_buf_add_c(&text, i % 2 ? "\xcc\xa3" : "\xcc\x88"), NB_OK);
    uint32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(nb_tokenizer_encode(t, nb_buf_view(&text), 0, &ids, &n, NULL), NB_OK);
    assert_int_equal(n, 0);
    nb_buf_deinit(&text);
    nb_tokenizer_destroy(t);
}

/* ---- mutations ----------------------------------------------------------- */

static void use(const nb_tokenizer *t, uint64_t seed)
{
    static const char *const TEXTS[] = { "hello world  12\xe4\xb8\xad <s>in</s>",
                                         "\xff\xc3\xa9 -- tool <x>  ab\r\n", "", " " };
    for (size_t i = 0; i < 4; i++) {
        uint32_t *ids = NULL;
        size_t n = 0;
        nb_buf text = { 0 };
        if (nb_tokenizer_encode(t, nb_str_c(TEXTS[i]), (unsigned)(seed & 3), &ids, &n, NULL) !=
            NB_OK)
            continue;
        for (size_t k = 0; k < n; k++) assert_true(nb_tokenizer_has(t, ids[k]));
        assert_int_equal(nb_tokenizer_decode(t, ids, n, seed & 4, &text), NB_OK);
        assert_true(nb_utf8_valid(nb_buf_view(&text)));
        nb_buf_deinit(&text);
        free(ids);
    }
}

/* A few random edits: bytes, pieces cut out, pieces copied elsewhere. */
static void mutate(nb_buf *b, uint64_t seed)
{
    static const char *const TOKENS[] = { "null",         "-1",      "{}",        "[]",
                                          "\"\"",         "4194303", "1e99",      "true",
                                          "\"Sequence\"", "\\u0000", "\"Regex\"", "\"String\"" };
    const size_t edits = 1 + nb_rng_u64(seed, 0) % 4;
    for (size_t k = 0; k < edits && b->n_bytes > 8; k++) {
        const uint64_t r = nb_rng_u64(seed, 1 + 3 * k);
        const size_t at = nb_rng_u64(seed, 2 + 3 * k) % b->n_bytes;
        const size_t len = nb_rng_u64(seed, 3 + 3 * k) % 24;
        const size_t fit = len < b->n_bytes - at ? len : b->n_bytes - at;
        if (r % 4 == 0) {
            b->p[at] = (char)(r >> 8);
        } else if (r % 4 == 1) {
            memmove(b->p + at, b->p + at + fit, b->n_bytes - at - fit);
            b->n_bytes -= fit;
        } else if (r % 4 == 2) {
            const size_t to = (r >> 8) % (b->n_bytes - fit + 1);
            memmove(b->p + to, b->p + at, fit);
        } else { /* a number or a word in place of what stands there */
            const char *s = TOKENS[(r >> 8) % (sizeof TOKENS / sizeof *TOKENS)];
            const size_t n = strlen(s);
            if (n <= b->n_bytes - at) memcpy(b->p + at, s, n);
        }
    }
}

static void mutated_files(void **state)
{
    static const char *const NAMES[] = { "bytelevel.json", "sentencepiece.json", "mixed.json",
                                         "tiny.tiktoken" };
    (void)state;
    nb_buf config = tok_read_own("config.json");
    size_t n_made = 0;
    for (size_t f = 0; f < 4; f++) {
        nb_buf base = tok_read_own(NAMES[f]);
        for (uint64_t k = 0; k < 1000; k++) {
            nb_buf b = { 0 }, c = { 0 };
            assert_int_equal(nb_buf_add_str(&b, nb_buf_view(&base)), NB_OK);
            assert_int_equal(nb_buf_add_str(&c, nb_buf_view(&config)), NB_OK);
            /* the first as it is; later the file, the configuration, or both */
            if (k && k % 3 != 1) mutate(&b, 10000 * f + k);
            if (k % 3 == 1) mutate(&c, 10000 * f + k);
            const bool json = f < 3;
            const nb_tokenizer_files files = {
                .tokenizer_json = json ? nb_buf_view(&b) : (nb_str){ NULL, 0 },
                .tiktoken_model = json ? (nb_str){ NULL, 0 } : nb_buf_view(&b),
                .tokenizer_config_json = f == 1 && k % 2 ? nb_buf_view(&c)
                                         : json          ? (nb_str){ NULL, 0 }
                                                         : nb_str_c("{\"tokenizer_class\":"
                                                                             "\"TikTokenTokenizer\"}"),
            };
            nb_tokenizer *t = NULL;
            nb_error err;
            const nb_status st = nb_tokenizer_create(&files, &t, &err);
            if (st == NB_OK) {
                use(t, k);
                n_made++;
            } else {
                assert_null(t);
                assert_int_equal(err.status, st);
                assert_true(strlen(err.msg) > 5);
            }
            assert_true(k > 0 || st == NB_OK);
            nb_tokenizer_destroy(t);
            nb_buf_deinit(&b);
            nb_buf_deinit(&c);
        }
        nb_buf_deinit(&base);
    }
    nb_buf_deinit(&config);
    assert_true(n_made > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_json),
        cmocka_unit_test(refused_others),
        cmocka_unit_test(deep_json),
        cmocka_unit_test(long_tokens),
        cmocka_unit_test(catastrophic_pattern),
        cmocka_unit_test(many_marks),
        cmocka_unit_test(mutated_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
