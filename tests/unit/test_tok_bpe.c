/* test_tok_bpe.c - the BPE engine against a naive one on random vocabularies,
 * and long pieces. */
#include "tok_test.h"

#include "base/rng.h"
#include "text/tok_internal.h"

enum { MAX_TOKENS = 64 };

/* A random vocabulary: letters, then merges of two earlier tokens. */
typedef struct model {
    char token[MAX_TOKENS][80];
    size_t n_tokens, n_letters;
    size_t left[4 * MAX_TOKENS], right[4 * MAX_TOKENS], to[4 * MAX_TOKENS];
    size_t n_merges;
} model;

static size_t token_of(const model *m, const char *s)
{
    for (size_t i = 0; i < m->n_tokens; i++)
        if (strcmp(m->token[i], s) == 0) return i;
    return SIZE_MAX;
}

static void make_model(model *m, uint64_t seed)
{
    *m = (model){ .n_letters = 1 + nb_rng_u64(seed, 0) % 3 };
    for (; m->n_tokens < m->n_letters; m->n_tokens++)
        m->token[m->n_tokens][0] = (char)('a' + m->n_tokens);
    const size_t n = 1 + nb_rng_u64(seed, 1) % 24;
    for (size_t k = 0; k < n; k++) {
        const size_t a = nb_rng_u64(seed, 10 + 2 * k) % m->n_tokens;
        const size_t b = nb_rng_u64(seed, 11 + 2 * k) % m->n_tokens;
        char s[160];
        if (snprintf(s, sizeof s, "%s%s", m->token[a], m->token[b]) >= 40) continue;
        size_t to = token_of(m, s);
        if (to == SIZE_MAX) {
            to = m->n_tokens++;
            memcpy(m->token[to], s, strlen(s) + 1);
        }
        bool again = false; /* the same pair twice would change its rank */
        for (size_t i = 0; i < m->n_merges; i++)
            again = again || (m->left[i] == a && m->right[i] == b);
        if (again) continue;
        m->left[m->n_merges] = a;
        m->right[m->n_merges] = b;
        m->to[m->n_merges++] = to;
    }
}

static nb_tokenizer *make_tokenizer(const model *m)
{
    json_t *vocab = json_object(), *merges = json_array();
    for (size_t i = 0; i < m->n_tokens; i++)
        json_object_set_new(vocab, m->token[i], json_integer((json_int_t)i));
    for (size_t i = 0; i < m->n_merges; i++)
        json_array_append_new(merges,
                              json_pack("[s, s]", m->token[m->left[i]], m->token[m->right[i]]));
    json_t *root = json_pack("{s:{s:o, s:o}}", "model", "vocab", vocab, "merges", merges);
    char *text = json_dumps(root, 0);
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){ .tokenizer_json = nb_str_c(text) });
    free(text);
    json_decref(root);
    return t;
}

/* Merges the lowest rank, leftmost, until nothing merges. */
static size_t naive(const model *m, const char *s, size_t n, uint32_t *id)
{
    for (size_t i = 0; i < n; i++) id[i] = (uint32_t)(s[i] - 'a');
    for (;;) {
        size_t rank = SIZE_MAX, at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (size_t k = 0; k < m->n_merges && k < rank; k++)
                if (m->left[k] == id[i] && m->right[k] == id[i + 1]) {
                    rank = k;
                    at = i;
                }
        if (rank == SIZE_MAX) return n;
        id[at] = (uint32_t)m->to[rank];
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
        n--;
    }
}

static void equals_naive(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        model m;
        make_model(&m, seed);
        nb_tokenizer *t = make_tokenizer(&m);
        for (uint64_t k = 0; k < 12; k++) {
            static const size_t LENGTHS[] = { 1, 2, 3, 5, 8, 13, 30, 47, 48, 49, 70, 200 };
            const size_t n = LENGTHS[k];
            char s[200];
            uint32_t want[200];
            for (size_t i = 0; i < n; i++)
                s[i] = (char)('a' + nb_rng_u64(seed * 100 + k, i) % m.n_letters);
            const size_t n_want = naive(&m, s, n, want);
            tok_expect(t, (nb_str){ s, n }, 0, want, n_want);
        }
        nb_tokenizer_destroy(t);
    }
}

/* A tokenizer for runs: a, aa, aaaa, ... */
static void long_runs(void **state)
{
    (void)state;
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){
        .tokenizer_json =
            nb_str_c("{\"model\":{\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2,\"b\":3,\"ab\":4},"
                     "\"merges\":[\"a a\",\"aa aa\",\"a b\"]}}") });
    const size_t n = 1000001;
    char *s = malloc(n);
    assert_non_null(s);
    memset(s, 'a', n);
    uint32_t *ids;
    size_t n_ids;
    assert_int_equal(nb_tokenizer_encode(t, (nb_str){ s, n }, 0, &ids, &n_ids, NULL), NB_OK);
    assert_int_equal(n_ids, 250001);
    for (size_t i = 0; i + 1 < n_ids; i++) assert_int_equal(ids[i], 2);
    assert_int_equal(ids[n_ids - 1], 0);
    free(ids);
    for (size_t i = 1; i < n; i += 2) s[i] = 'b';
    assert_int_equal(nb_tokenizer_encode(t, (nb_str){ s, n }, 0, &ids, &n_ids, NULL), NB_OK);
    assert_int_equal(n_ids, 500001);
    free(ids);
    free(s);
    nb_tokenizer_destroy(t);
}

static void repeated_merge_takes_the_last_rank(void **state)
{
    (void)state;
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){
        .tokenizer_json =
            nb_str_c("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4},"
                     "\"merges\":[\"a b\",\"b c\",\"a b\"]}}") });
    tok_expect(t, nb_str_c("abc"), 0, (uint32_t[]){ 0, 4 }, 2);
    nb_tokenizer_destroy(t);
}

/* tiktoken's form: a pair merges if its concatenation has a rank. */
static void tiktoken_form(void **state)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    nb_buf file = { 0 };
    (void)state;
    for (unsigned b = 0; b < 256; b++)
        assert_int_equal(
            nb_buf_printf(&file, "%c%c== %u\n", DIGITS[b >> 2], DIGITS[(b & 3) << 4], b), NB_OK);
    /* 256 "el", 257 "ll", 258 "hel", 259 "abc" (no two tokens make it), 260 "hell" */
    assert_int_equal(nb_buf_add_c(&file, "ZWw= 256\nbGw= 257\naGVs 258\nYWJj 259\naGVsbA== 260\n"),
                     NB_OK);
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){
        .tiktoken_model = nb_buf_view(&file),
        .tokenizer_config_json = nb_str_c("{\"tokenizer_class\":\"TikTokenTokenizer\","
                                          "\"bos_token\":\"[BOS]\",\"added_tokens_decoder\":{"
                                          "\"261\":{\"content\":\"[BOS]\",\"special\":true}}}") });
    tok_expect(t, nb_str_c("hell"), 0, (uint32_t[]){ 260 }, 1); /* whole */
    tok_expect(t, nb_str_c("hel"), 0, (uint32_t[]){ 258 }, 1);
    tok_expect(t, nb_str_c("hello"), 0, (uint32_t[]){ 260, 'o' }, 2);
    tok_expect(t, nb_str_c("helllo"), 0, (uint32_t[]){ 258, 257, 'o' }, 3); /* ll before hell */
    tok_expect(t, nb_str_c("abc"), 0, (uint32_t[]){ 259 }, 1);
    tok_expect(t, nb_str_c("abcd"), 0, (uint32_t[]){ 'a', 'b', 'c', 'd' }, 4);
    tok_expect(t, nb_str_c("[BOS]"), NB_TOK_PARSE_SPECIAL, (uint32_t[]){ 261 }, 1);
    tok_expect(t, nb_str_c("h"), NB_TOK_ADD_SPECIAL, (uint32_t[]){ 'h' }, 1);
    assert_int_equal(nb_tokenizer_find(t, nb_str_c("hell")), 260);
    assert_int_equal(nb_tokenizer_find(t, (nb_str){ "\xff", 1 }), 255);
    assert_int_equal(nb_tokenizer_role_id(t, NB_TOK_BOS), 261);
    assert_int_equal(nb_tokenizer_find(t, nb_str_c("<|reserved_token_262|>")), 262);
    assert_int_equal(nb_tokenizer_n_vocab(t), 261 + 256);
    tok_expect_text(t, (uint32_t[]){ 261, 260, 0xc3, 0xa9, 0xc3 }, 5, false,
                    nb_str_c("[BOS]hell\xc3\xa9\xef\xbf\xbd"));
    tok_expect_text(t, (uint32_t[]){ 261, 260 }, 2, true, nb_str_c("hell"));
    nb_tokenizer_destroy(t);
    nb_buf_deinit(&file);
}

/* Kimi's wrapper cuts runs of more than 25,000 characters. */
static void kimi_cut(void **state)
{
    (void)state;
    char path[512];
    if (!tok_data_path("", path, sizeof path)) skip();
    nb_buf file = tok_read("tokenizers/kimi_k2/tiktoken.model.xz");
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){ .tiktoken_model = nb_buf_view(&file) });
    char *s = malloc(60000);
    assert_non_null(s);
    memset(s, 'a', 60000);
    uint32_t *whole, *part, *sum = calloc(60000, sizeof *sum);
    size_t n_whole, n_part, n_sum = 0;
    static const size_t PARTS[] = { 25000, 25000, 10000 };
    assert_int_equal(nb_tokenizer_encode(t, (nb_str){ s, 60000 }, 0, &whole, &n_whole, NULL),
                     NB_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(nb_tokenizer_encode(t, (nb_str){ s, PARTS[i] }, 0, &part, &n_part, NULL),
                         NB_OK);
        memcpy(sum + n_sum, part, n_part * sizeof *part);
        n_sum += n_part;
        free(part);
    }
    assert_int_equal(n_whole, n_sum);
    assert_memory_equal(whole, sum, n_sum * sizeof *sum);
    free(whole);
    free(sum);
    free(s);
    nb_tokenizer_destroy(t);
    nb_buf_deinit(&file);
}

/* The stand-ins of GPT-2: a bijection of bytes and characters. */
static void standins(void **state)
{
    (void)state;
    for (unsigned b = 0; b < 256; b++)
        assert_int_equal(nb_tok_standin_byte(nb_tok_standin((unsigned char)b)), b);
    assert_int_equal(nb_tok_standin(' '), 0x120);
    assert_int_equal(nb_tok_standin('\n'), 0x10a);
    assert_int_equal(nb_tok_standin(0xad), 0x143);
    assert_int_equal(nb_tok_standin_byte(' '), -1);
    assert_int_equal(nb_tok_standin_byte(0x144), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_naive),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(repeated_merge_takes_the_last_rank),
        cmocka_unit_test(tiktoken_form),
        cmocka_unit_test(kimi_cut),
        cmocka_unit_test(standins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
