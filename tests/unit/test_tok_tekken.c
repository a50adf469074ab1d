/* test_tok_tekken.c - Mistral's tekken.json: ids behind the control tokens, the pattern, BOS, what is refused. */
#include "tok_test.h"

#include "text/tok_internal.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
enum { N_SPECIAL = 10, N_VOCAB = N_SPECIAL + 256 + 6 };

/* 256 bytes, then "el", "ll", "hel", "<s>", " w", "or"; one token more than the vocabulary has. */
static json_t *make_file(void)
{
    static const char *const more[] = { "ZWw=", "bGw=", "aGVs", "PHM+", "IHc=", "b3I=", "d29y" };
    json_t *vocab = json_array();
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        (void)snprintf(text, sizeof text, "%c%c==", digits[b >> 2], digits[(b & 3) << 4]);
        json_array_append_new(vocab, json_pack("{s:i, s:s, s:n}", "rank", (int)b, "token_bytes", text, "token_str"));
    }
    for (int i = 0; i < 7; i++)
        json_array_append_new(vocab, json_pack("{s:i, s:s}", "rank", 256 + i, "token_bytes", more[i]));
    json_t *special = json_pack("[{s:i,s:s,s:b},{s:i,s:s,s:b},{s:i,s:s,s:b}]", "rank", 0, "token_str", "<unk>",
                                "is_control", 1, "rank", 1, "token_str", "<s>", "is_control", 1, "rank", 3,
                                "token_str", "[INST]", "is_control", 1);
    json_t *config = json_pack("{s:s, s:i, s:i, s:s}", "pattern", " ?\\p{L}+|\\p{N}|\\s+|[^\\s\\p{L}\\p{N}]+",
                               "default_vocab_size", N_VOCAB, "default_num_special_tokens", N_SPECIAL, "version", "v3");
    json_t *root = json_pack("{s:o, s:o, s:o}", "config", config, "vocab", vocab, "special_tokens", special);
    assert_non_null(root);
    return root;
}

static nb_status create(json_t *root, nb_tokenizer **t, nb_error *err)
{
    char *text = json_dumps(root, 0);
    assert_non_null(text);
    *err = (nb_error){ 0 };
    const nb_status st = nb_tokenizer_create(&(nb_tokenizer_files){ .tekken_json = nb_str_c(text) }, t, err);
    free(text);
    json_decref(root);
    return st;
}

static void ids(void **state)
{
    (void)state;
    enum { B = N_SPECIAL, EL = B + 256, LL, HEL, S, W, OR };
    nb_tokenizer *t = NULL;
    nb_error err;
    if (create(make_file(), &t, &err) != NB_OK) fail_msg("%s", err.msg);
    tok_expect(t, nb_str_c("hel"), 0, (uint32_t[]){ HEL }, 1);
    tok_expect(t, nb_str_c("helllo"), 0, (uint32_t[]){ HEL, LL, B + 'o' }, 3);
    tok_expect(t, nb_str_c("hel wor1"), 0, (uint32_t[]){ HEL, W, OR, B + '1' }, 4);
    tok_expect(t, nb_str_c("hel"), NB_TOK_ADD_SPECIAL, (uint32_t[]){ 1, HEL }, 2);
    /* a text is a token of its own; parsed it is the control token of the same name */
    tok_expect(t, nb_str_c("[INST]"), NB_TOK_PARSE_SPECIAL, (uint32_t[]){ 3 }, 1);
    tok_expect(t, nb_str_c("<s>"), NB_TOK_PARSE_SPECIAL, (uint32_t[]){ 1 }, 1);
    tok_expect(t, nb_str_c("[INST]"), 0,
               (uint32_t[]){ B + '[', B + 'I', B + 'N', B + 'S', B + 'T', B + ']' }, 6);
    assert_int_equal(nb_tokenizer_find(t, nb_str_c("<SPECIAL_9>")), 9);
    assert_int_equal(nb_tokenizer_n_vocab(t), N_VOCAB);
    assert_true(nb_tokenizer_is_control(t, 3) && nb_tokenizer_is_control(t, 9) && !nb_tokenizer_is_control(t, HEL));
    tok_expect_text(t, (uint32_t[]){ 1, HEL, W, OR }, 4, true, nb_str_c("hel wor"));
    tok_expect_text(t, (uint32_t[]){ 3, HEL, S }, 3, false, nb_str_c("[INST]hel<s>"));
    nb_tokenizer_destroy(t);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *where, *key, *value, *error;
    } bad[] = {
        { "config", "pattern", "1", "config.pattern" },
        { "config", "pattern", "\"(\"", "" },
        { "config", "default_vocab_size", "100", "config.default_vocab_size" },
        { "config", "default_vocab_size", "1e9", "config.default_vocab_size" },
        { "config", "default_vocab_size", "5000", "vocab: an array of 4990 tokens" },
        { "config", "default_num_special_tokens", "-1", "config.default_num_special_tokens" },
        { "config", "default_num_special_tokens", "2", "special_tokens[2]: a rank below 2" },
        { "", "vocab", "{}", "vocab: an array" },
        { "", "special_tokens", "null", "special_tokens: an array" },
        { "", "special_tokens", "[{\"rank\": 1, \"token_str\": \"a\"}, {\"rank\": 1, \"token_str\": \"b\"}]",
          "rank 1 is given twice" },
        { "", "special_tokens", "[{\"rank\": 1, \"token_str\": \"\"}]", "special_tokens[0]" },
        { "", "config", "null", "config.pattern" },
        { "7", "rank", "8", "vocab[7]: rank 7" },
        { "7", "token_bytes", "\"****\"", "vocab[7]: token_bytes: base64" },
        { "7", "token_bytes", "\"AA==\"", "given twice" },
    };
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        json_t *root = make_file(), *at = root;
        if (bad[i].where[0] == '7') at = json_array_get(json_object_get(root, "vocab"), 7);
        if (bad[i].where[0] == 'c') at = json_object_get(root, "config");
        json_object_set_new(at, bad[i].key, json_loads(bad[i].value, JSON_DECODE_ANY, NULL));
        nb_tokenizer *t = NULL;
        nb_error err;
        if (create(root, &t, &err) == NB_OK || !strstr(err.msg, bad[i].error))
            fail_msg("%s.%s %s: %s", bad[i].where, bad[i].key, bad[i].value, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ids), cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
