/* test_bundled.c - the bundled model against what transformers says of it
 * (tests/parity/nibble-tiny/expected.json): tokenizer, chat template, perplexity, greedy
 * continuations; and what the narrower records cost on the same windows. */
#include "engine_testing.h"

#include <jansson.h>
#include <math.h>

static const char bundled[] = "models/nibble-tiny";
static json_t *expected;
static gen g; /* large: not on the stack */

#if defined(__SANITIZE_ADDRESS__)
enum { N_WINDOW = 1, N_RECORD = 2 }; /* of 4: five times slower there */
#else
enum { N_WINDOW = 4, N_RECORD = 4 };
#endif

static size_t get_ids(const json_t *list, uint32_t *id, size_t max)
{
    const size_t n = json_array_size(list);
    assert_true(n <= max);
    for (size_t i = 0; i < n; i++) id[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return n;
}

static void same_ids(const uint32_t *got, size_t n_got, const json_t *list, const char *what)
{
    static uint32_t want[8192];
    const size_t n = get_ids(list, want, 8192);
    for (size_t i = 0; i < n && i < n_got; i++)
        if (got[i] != want[i]) fail_msg("%s: id %zu is %u, expected %u", what, i, got[i], want[i]);
    if (n != n_got) fail_msg("%s: %zu ids, expected %zu", what, n_got, n);
}

static nb_text *open_text(void)
{
    nb_text *t = NULL;
    nb_error err;
    if (nb_text_create(in_source(bundled), NULL, &t, &err) != NB_OK) fail_msg("%s", err.msg);
    return t;
}

static void test_tokenizer(void **state)
{
    (void)state;
    nb_text *t = open_text();
    const json_t *list = json_object_get(expected, "tokenizer");
    assert_true(json_array_size(list) >= 20);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        const json_t *text = json_object_get(v, "text"), *decoded = json_object_get(v, "decoded");
        uint32_t *id = NULL;
        size_t n = 0, n_back = 0;
        char *back = NULL;
        nb_error err;
        if (nb_text_tokenize(t, json_string_value(text), json_string_length(text),
                             NB_TEXT_ADD_SPECIAL | NB_TEXT_PARSE_SPECIAL, &id, &n, &err) != NB_OK)
            fail_msg("%s", err.msg);
        same_ids(id, n, json_object_get(v, "ids"), json_string_value(text));
        assert_int_equal(nb_text_detokenize(t, id, n, true, &back, &n_back, &err), NB_OK);
        assert_int_equal(n_back, json_string_length(decoded));
        assert_memory_equal(back, json_string_value(decoded), n_back);
        nb_free(id);
        nb_free(back);
    }
    nb_text_destroy(t);
}

static void test_chat(void **state)
{
    (void)state;
    nb_text *t = open_text();
    const json_t *list = json_object_get(expected, "chat");
    assert_true(json_array_size(list) >= 5);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i), *want = json_object_get(v, "text");
        json_t *rq =
            json_pack("{s:O, s:O}", "messages", json_object_get(v, "messages"),
                      "add_generation_prompt", json_object_get(v, "add_generation_prompt"));
        char *body = json_dumps(rq, 0), *text = NULL;
        uint32_t *id = NULL;
        size_t n_text = 0, n = 0;
        nb_error err;
        assert_non_null(body);
        if (nb_text_render(t, body, strlen(body), &text, &n_text, &id, &n, &err) != NB_OK)
            fail_msg("%s", err.msg);
        if (n_text != json_string_length(want) ||
            memcmp(text, json_string_value(want), n_text) != 0)
            fail_msg("chat %zu: %s, expected %s", i, text, json_string_value(want));
        same_ids(id, n, json_object_get(v, "ids"), "chat");
        nb_free(text);
        nb_free(id);
        free(body);
        json_decref(rq);
    }
    nb_text_destroy(t);
}

typedef struct scorer {
    const uint32_t *id;
    double nll;
    size_t n_scored;
    float first[8];
} scorer;

static int score_row(void *ctx, size_t row, const float *x, size_t n_vocab)
{
    scorer *s = ctx;
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n_vocab; i++) max = fmax(max, (double)x[i]);
    for (size_t i = 0; i < n_vocab; i++) sum += exp((double)x[i] - max);
    const double nll = max + log(sum) - (double)x[s->id[row + 1]];
    if (s->n_scored < 8) s->first[s->n_scored] = (float)nll;
    s->nll += nll;
    s->n_scored++;
    return 0;
}

static double window_nll(nb_engine *e, const json_t *w, const char *kv, size_t *n_scored)
{
    static uint32_t id[4096];
    static size_t row[4096];
    const size_t n = get_ids(json_object_get(w, "ids"), id, 4096);
    const double want = json_real_value(json_object_get(w, "nll_f32"));
    scorer s = { .id = id };
    nb_error err;
    for (size_t k = 0; k < n; k++) row[k] = k;
    if (nb_logits(e, id, n, row, n - 1, score_row, &s, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(s.n_scored, json_integer_value(json_object_get(w, "scored")));
    *n_scored += s.n_scored;
    if (strcmp(kv, "bf16") != 0) return s.nll;
    if (fabs(s.nll - want) > 2e-3 * want) fail_msg("%s: %.3f nats, expected %.3f", kv, s.nll, want);
    const json_t *first = json_object_get(w, "nll_first_8");
    for (size_t k = 0; k < 8; k++) {
        const double v = json_real_value(json_array_get(first, k));
        if (fabs((double)s.first[k] - v) > 0.1)
            fail_msg("token %zu: %.4f, expected %.4f", k, (double)s.first[k], v);
    }
    return s.nll;
}

/* How far from BF16 (and BF16 from float32 of transformers) the perplexity of a record may be,
 * on the first windows: measured, with room. */
static void test_perplexity(void **state)
{
    (void)state;
    static const struct {
        const char *kv;
        size_t n_window;
        double least, most;
    } records[] = {
        { "bf16", 4, -5e-4, 5e-4 },
        { "nvfp4", 2, -1e-2, 3e-2 },
        { "fp8", 1, -5e-3, 5e-3 },
        { "if4", 1, -1e-2, 3e-2 },
    };
    const json_t *list = json_object_get(expected, "windows");
    assert_true(json_array_size(list) >= 4);
    double base[4];
    for (size_t i = 0; i < 4; i++)
        base[i] = json_real_value(json_object_get(json_array_get(list, i), "nll_f32"));
    for (size_t r = 0; r < sizeof records / sizeof *records && r < N_RECORD; r++) {
        nb_engine *e = simple_engine(bundled, records[r].kv);
        double nll = 0, than = 0;
        size_t n = 0;
        for (size_t i = 0; i < records[r].n_window && i < N_WINDOW; i++) {
            const double v = window_nll(e, json_array_get(list, i), records[r].kv, &n);
            nll += v;
            than += base[i];
            if (r == 0) base[i] = v; /* the others are compared with it */
        }
        nb_engine_destroy(e);
        const double ppl = exp(nll / (double)n), worse = ppl / exp(than / (double)n) - 1;
        print_message("perplexity, %s: %.5f, %+.3f%% of %s\n", records[r].kv, ppl, 100 * worse,
                      r ? "bf16" : "float32 in transformers");
        if (!(worse >= records[r].least && worse <= records[r].most))
            fail_msg("%s: perplexity %.5f, %+.3f%%", records[r].kv, ppl, 100 * worse);
    }
}

/* Equal up to the first step at which the two best are closer than 0.05. */
static void test_continuations(void **state)
{
    (void)state;
    nb_engine *e = make_engine(&(nb_engine_options){
        .model = in_source(bundled), .n_thread = 1, .kv_cache_dtype = "bf16" });
    const json_t *list = json_object_get(expected, "continuations");
    size_t n_sure = 0;
    assert_true(json_array_size(list) >= 5);
    for (size_t i = 0; i < json_array_size(list); i++) {
        static uint32_t id[4096], out[4096];
        const json_t *c = json_array_get(list, i), *margin = json_object_get(c, "margins");
        const size_t n = get_ids(json_object_get(c, "ids"), id, 4096);
        const size_t n_out = get_ids(json_object_get(c, "out"), out, 4096);
        const nb_sampling s = greedy(n_out);
        gen_reset(&g);
        run_gen(e, id, n, &s, &g);
        bool all = true;
        for (size_t k = 0; k < n_out && all; k++) {
            all = json_number_value(json_array_get(margin, k)) > 0.05;
            if (!all && g.seen[k] != out[k]) break; /* a tie, taken the other way */
            if (g.seen[k] != out[k])
                fail_msg("continuation %zu: token %zu is %u, expected %u", i, k, g.seen[k], out[k]);
            n_sure++;
        }
        if (all) {
            char *text = NULL; /* the reference shows special tokens too */
            nb_error err;
            assert_int_equal(
                nb_text_detokenize(nb_engine_text(e), out, n_out, false, &text, NULL, &err), NB_OK);
            assert_string_equal(text, json_string_value(json_object_get(c, "text")));
            nb_free(text);
        }
    }
    print_message("continuations: %zu tokens compared\n", n_sure);
    assert_true(n_sure > 60);
    gen_reset(&g);
    nb_engine_destroy(e);
}

/* A dependable minimum of what the model is for, on the record it is for. */
static void test_planted_fact(void **state)
{
    (void)state;
    static const char text[] =
        "The secret number of Lily is 48213. The dog ran to the park and played with a red ball "
        "all day. Tom keeps the key in the old barn.\n\n"
        "Question: What is the secret number of Lily?\nAnswer:";
    for (int i = 0; i < 2; i++) {
        nb_engine *e = make_engine(&(nb_engine_options){
            .model = in_source(bundled), .n_thread = 1, .kv_cache_dtype = i ? "bf16" : "nvfp4" });
        uint32_t *id = NULL;
        size_t n = 0;
        nb_error err;
        assert_int_equal(nb_text_tokenize(nb_engine_text(e), text, sizeof text - 1,
                                          NB_TEXT_ADD_SPECIAL, &id, &n, &err),
                         NB_OK);
        const char *const stop[] = { "\n" };
        nb_sampling s = greedy(16);
        s.stop = stop;
        s.n_stop = 1;
        gen_reset(&g);
        run_gen(e, id, n, &s, &g);
        assert_string_equal(g.text, " 48213");
        nb_free(id);
        gen_reset(&g);
        nb_engine_destroy(e);
    }
}

int main(void)
{
    static const char path[] = "tests/parity/nibble-tiny/expected.json";
    if (!have_file("models/nibble-tiny/config.json") || !have_file(path)) {
        printf("skipped: no bundled model\n");
        return SKIP_EXIT;
    }
    json_error_t e;
    expected = json_load_file(in_source(path), 0, &e);
    if (!expected) {
        printf("%s: %s\n", path, e.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer),    cmocka_unit_test(test_chat),
        cmocka_unit_test(test_perplexity),   cmocka_unit_test(test_continuations),
        cmocka_unit_test(test_planted_fact),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(expected);
    return rc;
}
