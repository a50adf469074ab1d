/* test_tok_vectors.c - ids of real tokenizers against recorded vectors; needs
 * the data folder (see tok_test.h), else skipped. */
#include "tok_test.h"

/* One vocabulary at a time is enough; each test makes its own. */
static nb_tokenizer *load_json(const char *name, const char *config_name)
{
    nb_buf file = tok_read(name), config = { 0 };
    if (config_name) config = tok_read(config_name);
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){
        .tokenizer_json = nb_buf_view(&file), .tokenizer_config_json = nb_buf_view(&config) });
    nb_buf_deinit(&file);
    nb_buf_deinit(&config);
    return t;
}

static nb_tokenizer *load_tiktoken(const char *name, const char *added_name)
{
    nb_buf file = tok_read(name), added = { 0 };
    if (added_name) added = tok_read(added_name);
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){ .tiktoken_model = nb_buf_view(&file),
                                                      .added_tokens_json = nb_buf_view(&added) });
    nb_buf_deinit(&file);
    nb_buf_deinit(&added);
    return t;
}

/* [{"text", "tokens", "decoded"}]: both directions. */
static void check_vectors(const nb_tokenizer *t, const char *name)
{
    nb_buf file = tok_read(name);
    json_t *all = tok_json(nb_buf_view(&file));
    assert_true(json_array_size(all) > 30);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *v = json_array_get(all, i), *ids = json_object_get(v, "tokens");
        const nb_str text = { json_string_value(json_object_get(v, "text")),
                              json_string_length(json_object_get(v, "text")) };
        tok_expect_json(t, text, 0, ids);
        const size_t n = json_array_size(ids);
        uint32_t *w = calloc(n + 1, sizeof *w);
        assert_non_null(w);
        for (size_t k = 0; k < n; k++) w[k] = (uint32_t)json_integer_value(json_array_get(ids, k));
        tok_expect_text(t, w, n, false,
                        (nb_str){ json_string_value(json_object_get(v, "decoded")),
                                  json_string_length(json_object_get(v, "decoded")) });
        free(w);
    }
    json_decref(all);
    nb_buf_deinit(&file);
}

/* Every template rendering with ids whose name starts with `prefix`. */
static size_t check_golden(const nb_tokenizer *t, const char *prefix)
{
    nb_buf file = tok_read("tokenizers/templates/golden.json");
    json_t *root = tok_json(nb_buf_view(&file));
    json_t *golden = json_object_get(root, "golden");
    size_t n = 0;
    for (void *it = json_object_iter(golden); it; it = json_object_iter_next(golden, it)) {
        json_t *cases = json_object_iter_value(it);
        if (strncmp(json_object_iter_key(it), prefix, strlen(prefix)) != 0) continue;
        for (void *c = json_object_iter(cases); c; c = json_object_iter_next(cases, c)) {
            const json_t *text = json_object_get(json_object_iter_value(c), "text");
            const json_t *ids = json_object_get(json_object_iter_value(c), "ids");
            if (!text || !ids) continue;
            tok_expect_json(t, (nb_str){ json_string_value(text), json_string_length(text) },
                            NB_TOK_PARSE_SPECIAL, ids);
            n++;
        }
    }
    json_decref(root);
    nb_buf_deinit(&file);
    return n;
}

/* Next line of *s without its line break; false at the end. */
static bool next_line(nb_str *s, nb_str *line)
{
    if (!s->n_bytes) return false;
    const char *nl = memchr(s->p, '\n', s->n_bytes);
    const size_t n = nl ? (size_t)(nl - s->p) : s->n_bytes;
    *line = (nb_str){ s->p, n };
    s->p += n + (nl ? 1 : 0);
    s->n_bytes -= n + (nl ? 1 : 0);
    return true;
}

/* Numbers between commas or blanks. */
static size_t read_ids(nb_str s, uint32_t **ids)
{
    size_t n = 0;
    *ids = calloc(s.n_bytes + 1, sizeof **ids);
    assert_non_null(*ids);
    for (size_t i = 0; i < s.n_bytes;) {
        if (s.p[i] < '0' || s.p[i] > '9') {
            i++;
            continue;
        }
        uint32_t v = 0;
        for (; i < s.n_bytes && s.p[i] >= '0' && s.p[i] <= '9'; i++)
            v = v * 10 + (uint32_t)(s.p[i] - '0');
        (*ids)[n++] = v;
    }
    return n;
}

/* Both directions for one text with its line of ids. */
static void check_ids(const nb_tokenizer *t, nb_str text, nb_str line, unsigned flags)
{
    uint32_t *ids;
    const size_t n = read_ids(line, &ids);
    tok_expect(t, text, flags, ids, n);
    tok_expect_text(t, ids, n, false, text);
    free(ids);
}

/* One text per line, with \n and \s for line break and blank. */
static void check_small(const nb_tokenizer *t, const char *input, const char *output,
                        unsigned flags)
{
    nb_buf in = tok_read(input), out = tok_read(output);
    nb_str a = nb_buf_view(&in), b = nb_buf_view(&out), text, ids;
    size_t n = 0;
    while (next_line(&b, &ids)) {
        nb_buf plain = { 0 };
        assert_true(next_line(&a, &text));
        for (size_t i = 0; i < text.n_bytes; i++) {
            const bool esc = text.p[i] == '\\' && i + 1 < text.n_bytes &&
                             (text.p[i + 1] == 'n' || text.p[i + 1] == 's');
            if (esc) i++;
            assert_int_equal(nb_buf_add_ch(&plain, !esc               ? text.p[i]
                                                   : text.p[i] == 'n' ? '\n'
                                                                      : ' '),
                             NB_OK);
        }
        check_ids(t, nb_buf_view(&plain), ids, flags);
        nb_buf_deinit(&plain);
        n++;
    }
    assert_int_equal(n, 20);
    nb_buf_deinit(&in);
    nb_buf_deinit(&out);
}

static void deepseek_v3(void **state)
{
    (void)state;
    nb_tokenizer *t = load_json("tokenizers/deepseek_v3/tokenizer.json.xz",
                                "tokenizers/deepseek_v3/tokenizer_config.json");
    check_vectors(t, "tokenizers/vectors/deepseek_v3.json");
    assert_true(check_golden(t, "deepseek-v3") > 5);
    assert_true(check_golden(t, "tool_chat_template_deepseek") > 20);
    assert_int_equal(nb_tokenizer_role_id(t, NB_TOK_BOS), 0);
    assert_int_equal(nb_tokenizer_role_id(t, NB_TOK_EOS), 1);
    assert_int_equal(nb_tokenizer_n_vocab(t), 128815);
    assert_true(nb_tokenizer_chat_template(t, NULL).n_bytes > 1000);
    /* the chat tokens are not special, but nobody can write them */
    const uint32_t user = nb_tokenizer_find(t, nb_str_c("<\xef\xbd\x9cUser\xef\xbd\x9c>"));
    assert_int_equal(user, 128803);
    assert_false(nb_tokenizer_is_special(t, user));
    assert_true(nb_tokenizer_is_control(t, user));
    uint32_t *ids;
    size_t n;
    assert_int_equal(
        nb_tokenizer_encode(t, nb_str_c("<\xef\xbd\x9cUser\xef\xbd\x9c>hi"), 0, &ids, &n, NULL),
        NB_OK);
    for (size_t i = 0; i < n; i++) assert_true(ids[i] != user && n > 2);
    free(ids);
    nb_tokenizer_destroy(t);
}

/* The configuration of R1 names two place holders <think> and </think>. */
static void deepseek_r1(void **state)
{
    (void)state;
    nb_tokenizer *t = load_json("tokenizers/deepseek_v3/tokenizer.json.xz",
                                "tokenizers/deepseek_v3/tokenizer_config_r1_transformers.json");
    check_vectors(t, "tokenizers/vectors/deepseek_v3.json");
    assert_true(check_golden(t, "deepseek-r1") > 5);
    assert_true(check_golden(t, "deepseek-ai-DeepSeek-V3.") > 15);
    assert_true(check_golden(t, "llama-cpp-deepseek-r1") > 3);
    assert_int_equal(nb_tokenizer_find(t, nb_str_c("<think>")), 128798);
    assert_int_equal(
        nb_tokenizer_find(t, nb_str_c("<\xef\xbd\x9cplace\xe2\x96\x81holder\xe2\x96\x81"
                                      "no\xe2\x96\x81"
                                      "798\xef\xbd\x9c>")),
        NB_TOK_NONE);
    tok_expect(t, nb_str_c("hello"), NB_TOK_ADD_SPECIAL, (uint32_t[]){ 0, 33310 }, 2);
    tok_expect(t, nb_str_c(""), NB_TOK_ADD_SPECIAL, (uint32_t[]){ 0 }, 1);
    tok_expect(t, nb_str_c(""), 0, NULL, 0);
    nb_tokenizer_destroy(t);
}

static void qwen3(void **state)
{
    (void)state;
    nb_tokenizer *t = load_json("tokenizers/qwen3/tokenizer.json.xz", NULL);
    check_vectors(t, "tokenizers/vectors/qwen2.json");
    assert_true(check_golden(t, "Qwen-Qwen3") > 5);
    nb_tokenizer_destroy(t);
}

static void kimi(void **state)
{
    (void)state;
    nb_tokenizer *t = load_tiktoken("tokenizers/kimi_k2/tiktoken.model.xz",
                                    "tokenizers/kimi_k2/added_tokens.json");
    check_small(t, "tokenizers/kimi_k2/small_input.txt", "tokenizers/kimi_k2/small_tokens.txt", 0);
    assert_true(check_golden(t, "Kimi") > 10);
    assert_true(check_golden(t, "moonshotai") > 5);
    assert_int_equal(nb_tokenizer_n_vocab(t), 163840);
    assert_int_equal(nb_tokenizer_find(t, nb_str_c("<|reserved_token_163700|>")), 163700);
    nb_tokenizer_destroy(t);
}

static void llama3(void **state)
{
    (void)state;
    nb_tokenizer *t = load_tiktoken("tokenizers/llama3/tokenizer.model.xz", NULL);
    check_small(t, "tokenizers/llama3/small_input.txt",
                "tokenizers/llama3/small_tokens_llama33.txt", 0);
    assert_int_equal(nb_tokenizer_n_vocab(t), 128256);
    assert_int_equal(nb_tokenizer_find(t, nb_str_c("<|eot_id|>")), 128009);
    assert_int_equal(nb_tokenizer_find(t, nb_str_c("<|reserved_special_token_247|>")), 128255);
    tok_expect(t, nb_str_c("Hello"), NB_TOK_ADD_SPECIAL, (uint32_t[]){ 128000, 9906 }, 2);
    nb_tokenizer_destroy(t);
}

static void gpt2(void **state)
{
    (void)state;
    nb_tokenizer *t = load_json("tokenizers/gpt2/tokenizer.json.xz", NULL);
    check_small(t, "tokenizers/gpt2/small_input.txt", "tokenizers/gpt2/small_tokens_gpt2.txt",
                NB_TOK_PARSE_SPECIAL);
    nb_buf in = tok_read("tokenizers/gpt2/utf8_input.txt");
    nb_buf out = tok_read("tokenizers/gpt2/utf8_tokens_gpt2.txt");
    check_ids(t, nb_buf_view(&in), nb_buf_view(&out), NB_TOK_PARSE_SPECIAL);
    nb_buf_deinit(&in);
    nb_buf_deinit(&out);
    nb_tokenizer_destroy(t);
}

/* ---- DeepSeek V2: tokenizer.json put together from its parts -------------- */

/* The cased letters that the second split of the V2 tokenizer lists. */
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

static json_t *isolated(const char *regex)
{
    json_t *o = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", regex,
                          "behavior", "Isolated", "invert", 0);
    assert_non_null(o);
    return o;
}

static json_t *v2_pre_tokenizer(void)
{
    nb_buf cased = { 0 };
    assert_int_equal(nb_buf_add_c(&cased, "\\s?["), NB_OK);
    for (size_t i = 0; i < sizeof CASED / sizeof *CASED; i++)
        assert_int_equal(
            nb_buf_printf(&cased, "\\x{%x}-\\x{%x}", (unsigned)CASED[i][0], (unsigned)CASED[i][1]),
            NB_OK);
    assert_int_equal(nb_buf_add_c(&cased, "]+"), NB_OK);
    json_t *list = json_array();
    json_array_append_new(list, isolated("[\r\n]"));
    json_array_append_new(list, isolated(cased.p));
    json_array_append_new(list, isolated("\\s?[!-/:-~\xef\xbc\x81-\xef\xbc\x8f\xef\xbc\x9a-"
                                         "\xef\xbd\x9e\xe2\x80\x98-\xe2\x80\x9f\xe3\x80\x80-"
                                         "\xe3\x80\x82]+"));
    json_array_append_new(list, isolated("\\s+$"));
    json_array_append_new(list, isolated("[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb8\x80"
                                         "\xea\xb0\x80-\xed\x9f\xbf]+"));
    json_array_append_new(list, json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
    json_array_append_new(list,
                          json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space",
                                    0, "trim_offsets", 1, "use_regex", 0));
    nb_buf_deinit(&cased);
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list);
}

static json_t *v2_merges(void)
{
    nb_buf file = tok_read("tokenizers/deepseek_v2/merges.txt.xz");
    json_t *list = json_array();
    nb_str all = nb_buf_view(&file), line;
    while (next_line(&all, &line))
        if (line.n_bytes && line.p[0] != '#')
            json_array_append_new(list, json_stringn(line.p, line.n_bytes));
    nb_buf_deinit(&file);
    return list;
}

static nb_tokenizer *load_v2(void)
{
    nb_buf vocab = tok_read("tokenizers/deepseek_v2/vocab.json.xz");
    nb_buf added = tok_read("tokenizers/deepseek_v2/added_tokens.json");
    nb_buf config = tok_read("tokenizers/deepseek_v2/tokenizer_config.json");
    json_t *root = json_pack("{s:{s:s, s:o, s:o}, s:o, s:{s:s, s:b, s:b, s:b}}", "model", "type",
                             "BPE", "vocab", tok_json(nb_buf_view(&vocab)), "merges", v2_merges(),
                             "pre_tokenizer", v2_pre_tokenizer(), "decoder", "type", "ByteLevel",
                             "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1);
    assert_non_null(root);
    char *text = json_dumps(root, 0);
    assert_non_null(text);
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){
        .tokenizer_json = nb_str_c(text),
        .tokenizer_config_json = nb_buf_view(&config),
        .added_tokens_json = nb_buf_view(&added),
    });
    free(text);
    json_decref(root);
    nb_buf_deinit(&vocab);
    nb_buf_deinit(&added);
    nb_buf_deinit(&config);
    return t;
}

static void deepseek_v2(void **state)
{
    static const char SEPARATOR[] = "\n__ggml_vocab_test__\n";
    (void)state;
    nb_tokenizer *t = load_v2();
    nb_buf in = tok_read("tokenizers/vectors/ggml-vocab-deepseek-llm.gguf.inp");
    nb_buf out = tok_read("tokenizers/vectors/ggml-vocab-deepseek-llm.gguf.out");
    nb_str ids = nb_buf_view(&out), line;
    size_t n = 0;
    for (char *p = in.p, *end; *p; n++) {
        end = strstr(p, SEPARATOR);
        const size_t len = end ? (size_t)(end - p) : strlen(p);
        assert_true(next_line(&ids, &line));
        uint32_t *want;
        const size_t n_want = read_ids(line, &want);
        tok_expect(t, (nb_str){ p, len }, 0, want, n_want);
        free(want);
        p = end ? end + strlen(SEPARATOR) : p + len;
    }
    assert_true(n >= 46);
    tok_expect(t, nb_str_c(""), NB_TOK_ADD_SPECIAL, (uint32_t[]){ 100000 }, 1);
    nb_buf_deinit(&in);
    nb_buf_deinit(&out);
    nb_tokenizer_destroy(t);
}

int main(void)
{
    char path[512];
    if (!tok_data_path("", path, sizeof path)) {
        printf("skipped: no data folder (set NB_DATA_DIR)\n");
        return TOK_SKIP;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deepseek_v3), cmocka_unit_test(deepseek_r1), cmocka_unit_test(qwen3),
        cmocka_unit_test(kimi),        cmocka_unit_test(llama3),      cmocka_unit_test(gpt2),
        cmocka_unit_test(deepseek_v2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
