/* test_detok.c - the streaming detokenizer: whole characters only, the same text
 * as decoding in one go, whatever the ids. */
#include "tok_test.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "text/tok_unicode.h"

#define SP "\xe2\x96\x81"
#define BAD "\xef\xbf\xbd"

/* Ids 0-255 are the bytes; 256 special "<s>", 257 added " x", 258 "\xe4\xb8". */
static nb_tokenizer *bytes_tokenizer(void)
{
    nb_buf b = { 0 };
    assert_int_equal(
        nb_buf_add_c(&b, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                         "false},\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":["
                         "{\"id\":256,\"content\":\"<s>\",\"special\":true},"
                         "{\"id\":257,\"content\":\" x\"}],\"model\":{\"merges\":[\"\xc3\xa4 "
                         "\xc2\xb8\"],\"vocab\":{\"\xc3\xa4\xc2\xb8\":258"),
        NB_OK);
    for (unsigned k = 0; k < 256; k++) {
        /* the alphabet, spelled with escapes */
        unsigned cp = k;
        if (k < 33)
            cp = 256 + k;
        else if (k > 126 && k < 161)
            cp = 256 + 33 + k - 127;
        else if (k == 173)
            cp = 256 + 67;
        assert_int_equal(nb_buf_printf(&b, ",\"\\u%04x\":%u", cp, k), NB_OK);
    }
    assert_int_equal(nb_buf_add_c(&b, "}}}"), NB_OK);
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){ .tokenizer_json = nb_buf_view(&b) });
    nb_buf_deinit(&b);
    return t;
}

/* Bytes 0-255 as <0xHH>, 256 "a", 257 the blank, 258 "\xe4\xb8\xad", 259 special, 260 "  b". */
static nb_tokenizer *chain_tokenizer(unsigned start, unsigned stop)
{
    nb_buf b = { 0 };
    assert_int_equal(
        nb_buf_printf(&b,
                      "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
                      "\"Replace\",\"pattern\":{\"String\":\"" SP "\"},\"content\":\" \"},"
                      "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","
                      "\"content\":\" \",\"start\":%u,\"stop\":%u}]},\"added_tokens\":["
                      "{\"id\":259,\"content\":\"<s>\",\"special\":true}],\"model\":{"
                      "\"byte_fallback\":true,\"merges\":[],\"vocab\":{\"a\":256,\"" SP
                      "\":257,\"\xe4\xb8\xad\":258,\"" SP SP "b\":260",
                      start, stop),
        NB_OK);
    for (unsigned k = 0; k < 256; k++)
        assert_int_equal(nb_buf_printf(&b, ",\"<0x%02X>\":%u", k, k), NB_OK);
    assert_int_equal(nb_buf_add_c(&b, "}}}"), NB_OK);
    nb_tokenizer *t = tok_make(&(nb_tokenizer_files){ .tokenizer_json = nb_buf_view(&b) });
    nb_buf_deinit(&b);
    return t;
}

static void push_expect(nb_detok *d, uint32_t id, const char *want)
{
    nb_buf out = { 0 };
    assert_int_equal(nb_detok_push(d, id, &out), NB_OK);
    if (!nb_str_eqc(nb_buf_view(&out), want))
        fail_msg("id %u: \"%s\", expected \"%s\"", id, out.p ? out.p : "", want);
    nb_buf_deinit(&out);
}

static void finish_expect(nb_detok *d, const char *want)
{
    nb_buf out = { 0 };
    assert_int_equal(nb_detok_finish(d, &out), NB_OK);
    assert_true(nb_str_eqc(nb_buf_view(&out), want));
    nb_buf_deinit(&out);
}

static void bytes_step_by_step(void **state)
{
    (void)state;
    nb_tokenizer *t = bytes_tokenizer();
    nb_detok d;
    nb_detok_init(&d, t, true);
    push_expect(&d, 'a', "a");
    push_expect(&d, 258, ""); /* e4 b8: wait                    */
    push_expect(&d, 0xad, "\xe4\xb8\xad");
    push_expect(&d, 258, "");
    push_expect(&d, 'b', BAD "b"); /* certain now: one subpart       */
    push_expect(&d, 0xff, BAD);    /* certain at once                */
    push_expect(&d, 0xf0, "");
    push_expect(&d, 0x9f, "");
    push_expect(&d, 0x98, "");
    push_expect(&d, 0x80, "\xf0\x9f\x98\x80");
    push_expect(&d, 0xf0, "");
    push_expect(&d, 256, ""); /* special: skipped, holds still  */
    push_expect(&d, 0x41, BAD "A");
    push_expect(&d, 0xe0, "");
    push_expect(&d, 0x80, BAD BAD); /* e0 80 can be no character      */
    push_expect(&d, 99999, "");
    push_expect(&d, 257, " x");
    push_expect(&d, 258, "");
    push_expect(&d, 258, BAD);
    finish_expect(&d, BAD);
    push_expect(&d, 'z', "z"); /* after finish: a new text       */
    push_expect(&d, 0xc3, "");
    nb_detok_reset(&d);
    push_expect(&d, 0xa9, BAD);
    finish_expect(&d, "");
    nb_detok_deinit(&d);
    nb_detok_init(&d, t, false);
    push_expect(&d, 256, "<s>");
    finish_expect(&d, "");
    nb_detok_deinit(&d);
    nb_tokenizer_destroy(t);
}

static void chain_step_by_step(void **state)
{
    (void)state;
    nb_tokenizer *t = chain_tokenizer(1, 2);
    nb_detok d;
    nb_detok_init(&d, t, true);
    push_expect(&d, 257, ""); /* the leading blank goes      */
    push_expect(&d, 257, ""); /* may be trailing: held       */
    push_expect(&d, 257, "");
    push_expect(&d, 257, " "); /* more than two are not       */
    push_expect(&d, 256, "  a");
    push_expect(&d, 0xe4, ""); /* a run of byte tokens        */
    push_expect(&d, 0xb8, "");
    push_expect(&d, 0xad, ""); /* may still be spoilt         */
    push_expect(&d, 259, "");  /* skipped                     */
    push_expect(&d, 256,
                "\xe4\xb8\xad"
                "a");
    push_expect(&d, 'x', "");
    push_expect(&d, 0xff, BAD BAD); /* certain: one for each byte  */
    push_expect(&d, 'y', BAD);
    push_expect(&d, 258, "\xe4\xb8\xad");
    push_expect(&d, 0xc3, "");
    push_expect(&d, 260, BAD "  b");
    push_expect(&d, 257, "");
    push_expect(&d, 0xc3, "");
    finish_expect(&d, " " BAD);
    push_expect(&d, 257, "");
    push_expect(&d, 257, "");
    finish_expect(&d, "");
    nb_detok_deinit(&d);
    nb_tokenizer_destroy(t);
}

/* Special tokens that are asked for arrive; the others stay skipped. */
static void kept_tokens(void **state)
{
    static const uint32_t MARK[] = { 256, 257 }, CHAIN_MARK[] = { 259 };
    (void)state;
    nb_tokenizer *t = bytes_tokenizer();
    nb_detok d;
    nb_detok_init(&d, t, true);
    push_expect(&d, 256, "");
    nb_detok_keep(&d, MARK, 2);
    push_expect(&d, 256, "<s>");
    push_expect(&d, 257, " x");
    push_expect(&d, 258, "");
    push_expect(&d, 256, BAD "<s>"); /* ends the character before it   */
    push_expect(&d, 'a', "a");
    nb_detok_keep(&d, MARK + 1, 1);
    push_expect(&d, 256, "");
    finish_expect(&d, "");
    nb_detok_keep(&d, NULL, 0);
    push_expect(&d, 256, "");
    assert_int_equal(nb_tokenizer_find_added(t, nb_str_c("<s>")), 256);
    assert_int_equal(nb_tokenizer_find_added(t, nb_str_c("a")), NB_TOK_NONE);
    assert_int_equal(nb_tokenizer_find_added(t, nb_str_c("<t>")), NB_TOK_NONE);
    nb_detok_deinit(&d);
    nb_tokenizer_destroy(t);

    t = chain_tokenizer(1, 2);
    nb_detok_init(&d, t, true);
    nb_detok_keep(&d, CHAIN_MARK, 1);
    push_expect(&d, 259, "<s>");
    push_expect(&d, 257, ""); /* still the leading blank        */
    push_expect(&d, 256, "a");
    push_expect(&d, 257, ""); /* may be trailing                */
    push_expect(&d, 0xe4, "");
    push_expect(&d, 259, " " BAD "<s>");
    push_expect(&d, 257, "");
    push_expect(&d, 259, " <s>");
    finish_expect(&d, "");
    nb_detok_deinit(&d);
    nb_tokenizer_destroy(t);
}

/* What one lossy reading of all bytes gives. */
static void expect_lossy(const nb_tokenizer *t, const uint32_t *ids, size_t n)
{
    nb_buf raw = { 0 }, want = { 0 };
    for (size_t i = 0; i < n; i++)
        assert_int_equal(nb_buf_add_str(&raw, nb_tokenizer_token_bytes(t, ids[i])), NB_OK);
    assert_int_equal(nb_tok_utf8_fix(nb_buf_view(&raw), &want), NB_OK);
    tok_expect_text(t, ids, n, false, nb_buf_view(&want));
    nb_buf_deinit(&raw);
    nb_buf_deinit(&want);
}

static void random_streams(void **state)
{
    /* bytes that start, continue and break sequences, often */
    static const uint8_t PICK[] = { 'a',  0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc3, 0xe0,
                                    0xe4, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff, 0xb8, 0xad };
    (void)state;
    nb_tokenizer *bytes = bytes_tokenizer();
    for (unsigned k = 0; k < 4; k++) {
        nb_tokenizer *chain = chain_tokenizer(k & 1, k & 2);
        for (uint64_t seed = 0; seed < 3000; seed++) {
            uint32_t ids[24];
            const size_t n = nb_rng_u64(seed, 0) % 24;
            for (size_t i = 0; i < n; i++) {
                const uint64_t r = nb_rng_u64(seed, 1 + i);
                ids[i] = r % 5 == 0 ? (uint32_t)(256 + (r >> 8) % 6) : PICK[(r >> 8) % sizeof PICK];
            }
            if (k == 0) expect_lossy(bytes, ids, n);
            nb_buf whole = { 0 }, parts = { 0 };
            nb_detok d;
            assert_int_equal(nb_tokenizer_decode(chain, ids, n, seed & 1, &whole), NB_OK);
            assert_true(nb_utf8_valid(nb_buf_view(&whole)));
            nb_detok_init(&d, chain, seed & 1);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(nb_detok_push(&d, ids[i], &parts), NB_OK);
                assert_true(nb_utf8_valid(nb_buf_view(&parts)));
            }
            assert_int_equal(nb_detok_finish(&d, &parts), NB_OK);
            assert_true(nb_str_eq(nb_buf_view(&whole), nb_buf_view(&parts)));
            nb_detok_deinit(&d);
            nb_buf_deinit(&whole);
            nb_buf_deinit(&parts);
        }
        nb_tokenizer_destroy(chain);
    }
    nb_tokenizer_destroy(bytes);
}

/* Every cut of a text into bytes gives the text back. */
static void round_trip(void **state)
{
    static const char TEXT[] =
        "Na\xc3\xafve \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80\xe2\x80\x8d\n";
    (void)state;
    nb_tokenizer *t = bytes_tokenizer();
    uint32_t *ids;
    size_t n;
    assert_int_equal(nb_tokenizer_encode(t, nb_str_c(TEXT), 0, &ids, &n, NULL), NB_OK);
    tok_expect_text(t, ids, n, false, nb_str_c(TEXT));
    free(ids);
    nb_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_step_by_step),
        cmocka_unit_test(chain_step_by_step),
        cmocka_unit_test(kept_tokens),
        cmocka_unit_test(random_streams),
        cmocka_unit_test(round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
