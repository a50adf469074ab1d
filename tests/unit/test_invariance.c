/* test_invariance.c - what must not change a result, bit for bit: the number of threads, the
 * size of the steps in which a prompt is computed, pages that were kept from the request
 * before, and whether a token was part of the prompt or generated (in one form of MLA).
 *
 * For every record type and form of attention.  Log-probabilities are compared as bits:
 * they show the smallest difference. */
#include "engine_testing.h"

#include <math.h>

#include "nb_config.h"

enum { N_PROMPT = 150, N_GEN = 20 };
#if defined(__SANITIZE_ADDRESS__) || NB_EMULATED
enum { QUICK = 1 }; /* all code is reached with fewer combinations, and five times slower */
#else
enum { QUICK = 0 };
#endif
static gen base_gen, this_gen; /* large: not on the stack */
static uint32_t prompt[N_PROMPT + N_GEN + 200];

static const char *const all_types[] = { "f32",   "bf16", "fp8",        "nvfp4", "if4",
                                         "mxfp4", "int4", "fp8_ds_mla", NULL };
static const char *const gqa_types[] = { "bf16", "fp8", "nvfp4", "if4", "int4", NULL };
static const char *const odd_types[] = { "bf16", "nvfp4", "int4", NULL };
static const char *const two_types[] = { "bf16", "nvfp4", NULL };
static const char *const forms[] = { "auto", "absorbed", "expanded", NULL };
static const char *const one_form[] = { "auto", NULL };
static const char *const forced[] = { "absorbed", "expanded", NULL };

static const struct model_case {
    const char *dir;
    const char *const *type, *const *form;
    size_t switch_tok; /* longrope: longer prompts have other angles */
} cases[] = {
    { "tests/parity/v3_geom", all_types, one_form, 0 }, /* the large models' geometry */
    { "tests/parity/v3_geom", two_types, forced, 0 },
    { "tests/parity/v3", odd_types, forms, 0 }, /* sizes that divide by nothing */
    { "tests/parity/longcat_flash", two_types, one_form, 0 },
    { "tests/parity/llama3", gqa_types, one_form, 0 },
    { "tests/parity/minicpm3_long", two_types, one_form, 96 },
};

static nb_sampling drawn(void)
{
    nb_sampling s = greedy(N_GEN);
    s.temperature = 0.8;
    s.top_k = 40;
    s.seed = 99;
    s.n_logprobs = 3;
    return s;
}

static void compare_gen(const gen *a, const gen *b, const char *what)
{
    if (a->n_seen != b->n_seen || memcmp(a->seen, b->seen, a->n_seen * sizeof *a->seen) != 0)
        fail_msg("%s: other tokens", what);
    if (!same_floats(a->logprob, b->logprob, a->n_seen))
        fail_msg("%s: the same tokens, but other log-probabilities", what);
    for (size_t i = 0; i < a->n_seen; i++)
        for (size_t t = 0; t < a->n_top[i]; t++)
            if (a->top[i][t].id != b->top[i][t].id ||
                !same_floats(&a->top[i][t].logprob, &b->top[i][t].logprob, 1))
                fail_msg("%s: other log-probabilities", what);
}

static nb_engine *engine_of(const char *dir, const char *type, const char *form, size_t n_thread,
                            size_t chunk)
{
    return make_engine(&(nb_engine_options){ .model = in_source(dir),
                                             .kv_cache_dtype = type,
                                             .mla = form,
                                             .n_thread = n_thread,
                                             .no_text = true,
                                             .prefill_chunk = chunk,
                                             .max_model_len = 384 });
}

static void check_one(const struct model_case *c, const char *type, const char *form)
{
    static const struct {
        size_t n_thread, chunk;
    } ways[] = { { 1, 512 }, { 1, 1 }, { 3, 7 }, { 2, 64 } };
    const nb_sampling s = drawn();
    size_t row[N_PROMPT];
    for (size_t i = 0; i < N_PROMPT; i++) row[i] = i;
    float *want = NULL;
    size_t n_vocab = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        char what[200];
        /* one token at a time takes long: where bytes are as they come, and in 4 bits */
        if (ways[w].chunk == 1 && strcmp(type, "nvfp4") != 0 &&
            (QUICK || strcmp(type, "bf16") != 0))
            continue;
        if (QUICK && ways[w].n_thread == 2) continue;
        (void)snprintf(what, sizeof what, "%s, %s, mla %s, %zu threads, chunk %zu", c->dir, type,
                       form, ways[w].n_thread, ways[w].chunk);
        nb_engine *e = engine_of(c->dir, type, form, ways[w].n_thread, ways[w].chunk);
        gen *g = w ? &this_gen : &base_gen;
        n_vocab = vocab_of(e);
        random_ids(prompt, N_PROMPT, n_vocab, 21);
        float *got = logits_at(e, prompt, N_PROMPT, row, N_PROMPT);
        gen_reset(g);
        run_gen(e, prompt, N_PROMPT, &s, g); /* begins with pages kept from above */
        nb_engine_destroy(e);
        if (w == 0) {
            want = got;
            for (size_t i = 0; i < N_PROMPT * n_vocab; i++) assert_true(isfinite(got[i]));
            continue;
        }
        compare_gen(&base_gen, &this_gen, what);
        for (size_t i = 0; i < N_PROMPT; i++)
            if (!same_floats(want + i * n_vocab, got + i * n_vocab, n_vocab))
                fail_msg("%s: logits of position %zu differ", what, i);
        free(got);
    }
    free(want);
}

static void test_threads_and_chunks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (const char *const *t = cases[i].type; *t; t++)
            for (const char *const *f = cases[i].form; *f; f++) check_one(&cases[i], *t, *f);
}

/* As engine_of, with room for everything that a test says. */
static nb_engine *large_pool(const char *dir, const char *type, const char *form, size_t chunk)
{
    return make_engine(&(nb_engine_options){ .model = in_source(dir),
                                             .kv_cache_dtype = type,
                                             .mla = form,
                                             .n_thread = 1,
                                             .no_text = true,
                                             .prefill_chunk = chunk,
                                             .max_model_len = 384,
                                             .kv_cache_bytes = 64 << 20 });
}

/* One engine answers prompts that share beginnings; a fresh one each of them. */
static void check_reuse(const struct model_case *c, const char *type, const char *form)
{
    /* tokens in common with the prompt before, length */
    static const struct {
        size_t same, n;
    } turns[] = { { 0, 150 },   { 150, 150 }, { 150, 170 }, { 130, 150 }, { 128, 150 },
                  { 127, 140 }, { 64, 66 },   { 66, 150 },  { 63, 100 },  { 100, 64 },
                  { 64, 65 },   { 65, 150 },  { 149, 150 } };
    enum { N_TURN = sizeof turns / sizeof *turns };
    nb_engine *warm = large_pool(c->dir, type, form, 96);
    const nb_sampling s = drawn();
    static uint32_t past[N_TURN + 1][200]; /* prompts so far; the first has no tokens */
    size_t n_past[N_TURN + 1] = { 0 };
    const size_t n_vocab = vocab_of(warm);
    for (size_t i = 0; i < N_TURN; i++) {
        const size_t n = turns[i].n;
        char what[200];
        (void)snprintf(what, sizeof what, "%s, %s, mla %s, turn %zu", c->dir, type, form, i);
        random_ids(prompt, n, n_vocab, 100 + i);
        memcpy(prompt, past[i], (turns[i].same < n ? turns[i].same : n) * sizeof *prompt);
        /* whole pages of any prompt before, and the last token is always computed */
        size_t kept = 0;
        for (size_t k = 1; k <= i; k++) {
            size_t same = 0;
            while (same < n - 1 && same < n_past[k] && prompt[same] == past[k][same]) same++;
            if (c->switch_tok && (n > c->switch_tok) != (n_past[k] > c->switch_tok)) same = 0;
            if (same / 64 * 64 > kept) kept = same / 64 * 64;
        }
        gen_reset(&this_gen);
        run_gen(warm, prompt, n, &s, &this_gen);
        if (this_gen.r.n_cached != kept)
            fail_msg("%s: %zu tokens reused, expected %zu", what, this_gen.r.n_cached, kept);
        nb_engine *cold = engine_of(c->dir, type, form, 1, 512);
        gen_reset(&base_gen);
        run_gen(cold, prompt, n, &s, &base_gen);
        assert_int_equal(base_gen.r.n_cached, 0);
        compare_gen(&base_gen, &this_gen, what);
        /* logits: rows in the part that is kept, and after it */
        const size_t row[] = { 5, n / 2, n - 1 };
        float *a = logits_at(cold, prompt, n, row, 3), *b = logits_at(warm, prompt, n, row + 1, 2);
        if (!same_floats(a + n_vocab, b, 2 * n_vocab)) fail_msg("%s: other logits", what);
        free(b);
        b = logits_at(warm, prompt, n, row, 3);
        if (!same_floats(a, b, 3 * n_vocab)) fail_msg("%s: other logits", what);
        free(a);
        free(b);
        nb_engine_destroy(cold);
        memcpy(past[i + 1], prompt, n * sizeof *prompt);
        n_past[i + 1] = n;
    }
    nb_engine_destroy(warm);
}

static void test_reuse(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (const char *const *t = cases[i].type; *t; t++)
            for (const char *const *f = cases[i].form; *f; f++)
                if (cases[i].form != forced && !(QUICK && cases[i].form == forms) &&
                    (cases[i].type != all_types || !strcmp(*t, "fp8")))
                    check_reuse(&cases[i], *t, *f);
}

/* What was generated becomes part of the next prompt: a conversation. */
static void test_conversation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nb_engine *warm = engine_of(cases[i].dir, "nvfp4", "auto", 1, 64);
        nb_sampling s = drawn();
        s.max_tokens = 90;
        size_t n = 30;
        random_ids(prompt, n, vocab_of(warm), 7);
        for (int turn = 0; turn < 3; turn++) {
            gen_reset(&this_gen);
            run_gen(warm, prompt, n, &s, &this_gen);
            nb_engine *cold = engine_of(cases[i].dir, "nvfp4", "auto", 1, 512);
            gen_reset(&base_gen);
            run_gen(cold, prompt, n, &s, &base_gen);
            nb_engine_destroy(cold);
            compare_gen(&base_gen, &this_gen, cases[i].dir);
            memcpy(prompt + n, this_gen.seen, 90 * sizeof *prompt);
            n += 90;
        }
        /* The last prompt is 210 tokens, 90 and 30 of them prompts before it.  With two forms of
         * MLA what was generated has other bits than the prompt that it becomes: only the page
         * that was all prompt is reused.  With one form, every whole page. */
        const bool one = cases[i].type == gqa_types;
        assert_int_equal(this_gen.r.n_cached, one ? 192 : 64);
        nb_engine_destroy(warm);
    }
}

/* In one form of MLA a token's result does not depend on how it came into the cache. */
static void test_decode_is_prefill(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (const char *const *f = cases[i].form; *f; f++) {
            if (cases[i].type != gqa_types && !strcmp(*f, "auto")) continue; /* two forms there */
            for (const char *const *t = cases[i].type; *t; t++) {
                nb_engine *e = engine_of(cases[i].dir, *t, *f, 1, 512);
                const size_t n = 55; /* the page fills up while generating */
                random_ids(prompt, n, vocab_of(e), 31);
                nb_sampling s = greedy(N_GEN), one = greedy(1);
                s.n_logprobs = one.n_logprobs = 0;
                gen_reset(&base_gen);
                run_gen(e, prompt, n, &s, &base_gen);
                memcpy(prompt + n, base_gen.seen, N_GEN * sizeof *prompt);
                for (size_t k = 1; k < N_GEN; k++) {
                    gen_reset(&this_gen);
                    run_gen(e, prompt, n + k, &one, &this_gen);
                    if (this_gen.seen[0] != base_gen.seen[k] ||
                        !same_floats(this_gen.logprob, base_gen.logprob + k, 1))
                        fail_msg("%s, %s, mla %s: token %zu differs when the %zu before it are "
                                 "prompt",
                                 cases[i].dir, *t, *f, k, k);
                }
                nb_engine_destroy(e);
            }
        }
}

/* longrope: a prompt on the other side of the switch has other angles at every position. */
static void test_longrope_switch(void **state)
{
    (void)state;
    static const size_t lengths[] = { 80, 150, 80, 96, 97, 96 };
    nb_engine *warm = engine_of("tests/parity/minicpm3_long", "bf16", "auto", 1, 512);
    const nb_sampling s = drawn();
    random_ids(prompt, 150, vocab_of(warm), 3);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        gen_reset(&this_gen);
        run_gen(warm, prompt, lengths[i], &s, &this_gen);
        nb_engine *cold = engine_of("tests/parity/minicpm3_long", "bf16", "auto", 1, 512);
        gen_reset(&base_gen);
        run_gen(cold, prompt, lengths[i], &s, &base_gen);
        nb_engine_destroy(cold);
        compare_gen(&base_gen, &this_gen, "minicpm3_long");
    }
    nb_engine_destroy(warm);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[200];
        (void)snprintf(config, sizeof config, "%s/config.json", cases[i].dir);
        if (have_file(config)) continue;
        printf("skipped: %s is missing\n", config);
        return SKIP_EXIT;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_chunks), cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_conversation),       cmocka_unit_test(test_decode_is_prefill),
        cmocka_unit_test(test_longrope_switch),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    gen_reset(&base_gen);
    gen_reset(&this_gen);
    return rc;
}
