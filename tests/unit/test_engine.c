/* test_engine.c - the engine through nibble.h: what it refuses, how a request ends, stop
 * conditions, log-probabilities, reuse of a prompt's pages, values that are not finite.
 * What must not change any result (threads, chunks, formats) is in test_invariance.c. */
#include "engine_testing.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

static const char tiny[] = "tests/parity/v3", bundled[] = "models/nibble-tiny";
enum { TINY_VOCAB = 320 };
static gen g1, g2; /* large: not on the stack */

/* ---- creating ---- */

static void refuse_engine(nb_engine_options o, nb_status want, const char *words)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    const size_t n_open = n_open_files();
    const nb_status st = nb_engine_create(&o, &e, &err);
    if (st != want) fail_msg("status %d, expected %d with '%s': %s", st, want, words, err.msg);
    assert_null(e);
    check_line(&err, want, words);
    assert_int_equal(nb_engine_create(&o, &e, NULL), want); /* the line is not asked for */
    assert_int_equal(n_open_files(), n_open);
}

static void test_create_refuses(void **state)
{
    (void)state;
    const char *m = in_source(tiny);
    char config[640];
    (void)snprintf(config, sizeof config, "%s/config.json", m);
    nb_engine *e = NULL;
    nb_error err;
    assert_int_equal(nb_engine_create(NULL, &e, &err), NB_ERR_ARG);
    assert_int_equal(nb_engine_create(&(nb_engine_options){ .model = m }, NULL, &err), NB_ERR_ARG);
    nb_engine_destroy(NULL);
    refuse_engine((nb_engine_options){ 0 }, NB_ERR_ARG, "no model");
    refuse_engine((nb_engine_options){ .model = "" }, NB_ERR_ARG, "no model");
    refuse_engine((nb_engine_options){ .model = "/nowhere/at all" }, NB_ERR_NOT_FOUND,
                  "/nowhere/at all");
    refuse_engine((nb_engine_options){ .model = in_source("tests") }, NB_ERR_NOT_FOUND,
                  "config.json");
    refuse_engine((nb_engine_options){ .model = config }, NB_ERR_ARG, "dummy");
    refuse_engine((nb_engine_options){ .model = m, .load_format = "gguf" }, NB_ERR_ARG, "gguf");
    refuse_engine((nb_engine_options){ .model = m, .kv_cache_dtype = "fp3" }, NB_ERR_ARG, "fp3");
    refuse_engine((nb_engine_options){ .model = m, .kv_cache_mode = "best" }, NB_ERR_ARG, "best");
    refuse_engine((nb_engine_options){ .model = m, .kv_rope_dtype = "int1" }, NB_ERR_ARG, "int1");
    refuse_engine((nb_engine_options){ .model = m, .mla = "both" }, NB_ERR_ARG, "both");
    refuse_engine((nb_engine_options){ .model = m, .cpu_caps = "sse9" }, NB_ERR_ARG, "sse9");
    refuse_engine((nb_engine_options){ .model = m, .n_thread = 100000 }, NB_ERR_RANGE, "100000");
    refuse_engine((nb_engine_options){ .model = m, .max_model_len = 163841 }, NB_ERR_RANGE,
                  "163840");
    refuse_engine((nb_engine_options){ .model = m, .prefill_chunk = 1000000 }, NB_ERR_RANGE,
                  "1000000");
    refuse_engine((nb_engine_options){ .model = m, .kv_cache_dtype = "fp8_ds_mla" },
                  NB_ERR_UNSUPPORTED, "128"); /* its latent has 40 values */
    refuse_engine((nb_engine_options){ .model = in_source("tests/parity/llama3"),
                                       .kv_cache_dtype = "fp8_ds_mla" },
                  NB_ERR_UNSUPPORTED, "MLA");
    refuse_engine(
        (nb_engine_options){ .model = in_source("tests/parity/llama3"), .kv_rope_dtype = "bf16" },
        NB_ERR_UNSUPPORTED, "MLA");
    refuse_engine((nb_engine_options){ .model = m, .chat_template = "/nowhere.jinja" },
                  NB_ERR_NOT_FOUND, "tokenizer");
    if (have_file("models/nibble-tiny/config.json"))
        refuse_engine(
            (nb_engine_options){ .model = in_source(bundled), .chat_template = "/nowhere.jinja" },
            NB_ERR_NOT_FOUND, "/nowhere.jinja");
}

typedef struct progress {
    size_t n_call, n_bad;
    uint64_t done, total;
} progress;
static void on_progress(void *ctx, const char *label, uint64_t done, uint64_t total)
{
    progress *p = ctx;
    if (done == 0) p->done = 0; /* a phase begins */
    p->n_bad += !label || !*label || done > total || done < p->done;
    p->done = done;
    p->total = total;
    p->n_call++;
}

static void test_create_and_info(void **state)
{
    (void)state;
    progress p = { 0 };
    nb_engine_info info;
    nb_engine *e = make_engine(&(nb_engine_options){ .model = in_source(tiny),
                                                     .kv_cache_dtype = "nvfp4",
                                                     .n_thread = 2,
                                                     .max_model_len = 1000,
                                                     .progress = on_progress,
                                                     .progress_ctx = &p });
    assert_true(p.n_call > 0 && p.n_bad == 0 && p.done == p.total);
    nb_engine_get_info(e, &info);
    assert_string_equal(info.family, "deepseek_v3");
    assert_string_equal(info.kv_dtype, "nvfp4");
    assert_string_equal(info.weights, "BF16");
    assert_true(info.vocab == TINY_VOCAB && info.n_layer == 3 && info.hidden == 96 &&
                info.n_head == 3);
    assert_true(info.max_model_len == 1000 && info.n_thread == 2);
    assert_true(info.kv_pool_tok >= 1000 && info.kv_pool_tok < 1064 && info.kv_pool_tok % 64 == 0);
    assert_true((double)info.kv_pool_bytes == info.kv_bytes_per_tok * (double)info.kv_pool_tok);
    assert_non_null(strstr(info.kernels, "linear_bf16="));
    assert_string_equal(info.warnings, "");
    assert_null(nb_engine_text(e)); /* no tokenizer there: ids only */
    nb_engine_destroy(e);

    char *json = NULL;
    nb_error err;
    assert_int_equal(nb_model_describe(in_source(tiny), &json, &err), NB_OK);
    json_t *j = json_loads(json, 0, NULL);
    assert_non_null(j);
    const json_t *list = json_object_get(j, "records");
    bool found = false;
    for (size_t i = 0; i < json_array_size(list); i++) { /* the same figure as the engine's */
        const json_t *r = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(r, "dtype")), "nvfp4") != 0) continue;
        assert_true(json_real_value(json_object_get(r, "bytes_per_token")) ==
                    info.kv_bytes_per_tok);
        found = true;
    }
    assert_true(found);
    json_decref(j);
    nb_free(json);
    json = NULL;
    assert_true(nb_model_describe("/nowhere", &json, &err) < 0);
    assert_null(json);
    assert_true(nb_model_describe(NULL, &json, NULL) < 0);
}

/* ---- requests ---- */

static void refuse_request(nb_engine *e, const uint32_t *id, size_t n, nb_sampling s,
                           nb_status want, const char *words)
{
    nb_error err;
    gen_reset(&g1);
    const nb_status st = try_run(e, id, n, &s, &g1, &err);
    if (st != want) fail_msg("status %d, expected %d with '%s': %s", st, want, words, err.msg);
    check_line(&err, want, words);
    assert_null(g1.r.tokens); /* what was given was not written */
    assert_null(g1.r.text);
    assert_int_equal(g1.n_seen, 0);
}

static void test_requests_refused(void **state)
{
    (void)state;
    static uint32_t id[300];
    random_ids(id, 300, TINY_VOCAB, 1);
    nb_engine *e = make_engine(
        &(nb_engine_options){ .model = in_source(tiny), .max_model_len = 200, .n_thread = 1 });
    const nb_sampling ok = greedy(10);
    run_gen(e, id, 50, &ok, &g2);
    nb_sampling s;
    refuse_request(e, NULL, 5, ok, NB_ERR_ARG, "no tokens");
    refuse_request(e, id, 0, ok, NB_ERR_ARG, "no tokens");
    refuse_request(e, id, 201, ok, NB_ERR_LIMIT, "200");
    refuse_request(e, id, 200, ok, NB_ERR_LIMIT, "fill the context");
    const uint32_t bad_id[] = { 1, 2, TINY_VOCAB, 3 }, huge_id[] = { UINT32_MAX };
    refuse_request(e, bad_id, 4, ok, NB_ERR_RANGE, "token 2 is 320");
    refuse_request(e, huge_id, 1, ok, NB_ERR_RANGE, "4294967295");
    const nb_logit_bias outside = { TINY_VOCAB, 1 }, strong = { 1, 1000 }, nan_bias = { 1, NAN };
    const uint32_t stop_id[] = { TINY_VOCAB };
    const char *const stop[] = { "x" };
#define WITH(member, value, status, words)                                                         \
    do {                                                                                           \
        s = ok;                                                                                    \
        s.member = value;                                                                          \
        refuse_request(e, id, 50, s, status, words);                                               \
    } while (0)
    WITH(temperature, -1, NB_ERR_RANGE, "temperature");
    WITH(temperature, NAN, NB_ERR_RANGE, "temperature");
    WITH(temperature, INFINITY, NB_ERR_RANGE, "temperature");
    WITH(top_p, 0, NB_ERR_RANGE, "top_p");
    WITH(top_p, 1.5, NB_ERR_RANGE, "top_p");
    WITH(min_p, 2, NB_ERR_RANGE, "min_p");
    WITH(repetition_penalty, 0, NB_ERR_RANGE, "repetition_penalty");
    WITH(presence_penalty, 3, NB_ERR_RANGE, "presence_penalty");
    WITH(frequency_penalty, NAN, NB_ERR_RANGE, "frequency_penalty");
    WITH(min_tokens, 11, NB_ERR_RANGE, "min_tokens");
    s = ok;
    s.max_tokens = 0;
    s.min_tokens = 1;
    refuse_request(e, id, 50, s, NB_ERR_RANGE, "min_tokens");
    WITH(n_logprobs, 21, NB_ERR_RANGE, "logprobs");
    WITH(n_logprobs, -2, NB_ERR_RANGE, "logprobs");
    s = ok;
    s.n_logit_bias = 1;
    const nb_logit_bias *const biases[] = { &outside, &strong, &nan_bias };
    for (size_t i = 0; i < 3; i++) {
        s.logit_bias = biases[i];
        refuse_request(e, id, 50, s, NB_ERR_RANGE, "logit_bias");
    }
    s = ok;
    s.stop_id = stop_id;
    s.n_stop_id = 1;
    refuse_request(e, id, 50, s, NB_ERR_RANGE, "320");
    s.n_stop_id = 100000;
    refuse_request(e, id, 50, s, NB_ERR_LIMIT, "100000");
    s = ok;
    s.stop = stop;
    s.n_stop = 1;
    refuse_request(e, id, 50, s, NB_ERR_ARG, "tokenizer");

    nb_error err;
    row_sink sink = { .n_vocab = TINY_VOCAB };
    const size_t rows[] = { 5, 3 }, twice[] = { 5, 5 }, beyond[] = { 50 }, good[] = { 3 };
    assert_int_equal(nb_logits(e, id, 50, rows, 2, take_row, &sink, &err), NB_ERR_RANGE);
    check_line(&err, NB_ERR_RANGE, "ascending");
    assert_int_equal(nb_logits(e, id, 50, twice, 2, take_row, &sink, &err), NB_ERR_RANGE);
    assert_int_equal(nb_logits(e, id, 50, beyond, 1, take_row, &sink, &err), NB_ERR_RANGE);
    check_line(&err, NB_ERR_RANGE, "50");
    assert_int_equal(nb_logits(e, id, 50, good, 0, take_row, &sink, &err), NB_ERR_ARG);
    assert_int_equal(nb_logits(e, id, 50, NULL, 1, take_row, &sink, &err), NB_ERR_ARG);
    assert_int_equal(nb_logits(e, id, 50, good, 1, NULL, &sink, &err), NB_ERR_ARG);
    assert_int_equal(nb_logits(e, id, 0, good, 1, take_row, &sink, &err), NB_ERR_ARG);
    assert_int_equal(nb_logits(e, bad_id, 4, good, 1, take_row, &sink, &err), NB_ERR_RANGE);
    assert_int_equal(sink.n, 0);
    /* a receiver that says no (it has no room) */
    assert_int_equal(nb_logits(e, id, 50, good, 1, take_row, &sink, &err), NB_ERR_CANCELLED);

    gen_reset(&g1);
    run_gen(e, id, 50, &ok, &g1); /* nothing of all that left a trace */
    assert_memory_equal(g1.seen, g2.seen, 10 * sizeof *g1.seen);
    gen_reset(&g1);
    gen_reset(&g2);
    nb_engine_destroy(e);
}

static void test_length(void **state)
{
    (void)state;
    static uint32_t id[200];
    random_ids(id, 200, TINY_VOCAB, 2);
    nb_engine *e = make_engine(&(nb_engine_options){
        .model = in_source(tiny), .max_model_len = 130, .n_thread = 1, .kv_cache_dtype = "nvfp4" });
    nb_sampling s = greedy(7);
    run_gen(e, id, 20, &s, &g1);
    assert_int_equal(g1.r.n_tokens, 7);
    assert_string_equal(g1.r.finish_reason, "length");
    gen_reset(&g1);
    s.max_tokens = SIZE_MAX; /* as much as the context holds, to its last place */
    run_gen(e, id, 20, &s, &g1);
    assert_int_equal(g1.r.n_tokens, 110);
    assert_string_equal(g1.r.finish_reason, "length");
    assert_memory_equal(g1.seen, g1.r.tokens, 110 * sizeof *g1.seen);
    gen_reset(&g1);
    run_gen(e, id, 129, &s, &g1);
    assert_int_equal(g1.r.n_tokens, 1);
    gen_reset(&g1);
    s = greedy(1);
    run_gen(e, id, 1, &s, &g1);
    assert_int_equal(g1.r.n_tokens, 1);
    /* without a callback */
    nb_result r;
    nb_error err;
    const nb_request rq = { .prompt = id, .n_prompt = 20, .sampling = greedy(7) };
    assert_int_equal(nb_generate(e, &rq, &r, &err), NB_OK);
    assert_int_equal(r.n_tokens, 7);
    nb_result_deinit(&r);
    nb_result_deinit(&r);
    gen_reset(&g1);
    nb_engine_destroy(e);
}

static void test_cancel(void **state)
{
    (void)state;
    static uint32_t id[100];
    random_ids(id, 100, TINY_VOCAB, 3);
    nb_engine *e = simple_engine(tiny, "nvfp4");
    const nb_sampling s = greedy(40);
    run_gen(e, id, 100, &s, &g2);
    for (int how = 0; how < 2; how++) {
        for (size_t after = 1; after <= 30; after += 29) {
            gen_reset(&g1);
            g1.cancel_after = after;
            g1.cancel = how ? e : NULL;
            run_gen(e, id, 100, &s, &g1);
            assert_int_equal(g1.r.n_tokens, after);
            assert_string_equal(g1.r.finish_reason, "cancelled");
            assert_memory_equal(g1.seen, g2.seen, after * sizeof *g1.seen);
        }
    }
    gen_reset(&g1);
    g1.cancel_after = 40; /* the last token is the last whatever the callback says */
    run_gen(e, id, 100, &s, &g1);
    assert_string_equal(g1.r.finish_reason, "length");
    gen_reset(&g1);
    nb_engine_cancel(e); /* of what is not running: no effect on the next */
    run_gen(e, id, 100, &s, &g1);
    assert_int_equal(g1.r.n_tokens, 40);
    gen_reset(&g1);
    gen_reset(&g2);
    nb_engine_destroy(e);
}

typedef struct canceller {
    nb_engine *e;
    atomic_bool done;
} canceller;
static void *cancel_from_aside(void *arg)
{
    canceller *c = arg;
    while (!atomic_load(&c->done)) nb_engine_cancel(c->e);
    return NULL;
}
static void test_cancel_from_thread(void **state)
{
    (void)state;
    static uint32_t id[300];
    random_ids(id, 300, TINY_VOCAB, 4);
    nb_engine *e = make_engine(
        &(nb_engine_options){ .model = in_source(tiny), .n_thread = 2, .prefill_chunk = 16 });
    canceller c = { .e = e };
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, cancel_from_aside, &c), 0);
    const nb_sampling s = greedy(4000);
    nb_error err;
    gen_reset(&g1);
    const nb_status st = try_run(e, id, 300, &s, &g1, &err);
    atomic_store(&c.done, true);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_int_equal(st, NB_OK);
    assert_string_equal(g1.r.finish_reason, "cancelled");
    assert_true(g1.r.n_tokens < 4000);
    gen_reset(&g1);
    run_gen(e, id, 300,
            &(nb_sampling){ .top_p = 1,
                            .repetition_penalty = 1,
                            .max_tokens = 3,
                            .ignore_eos = true,
                            .n_logprobs = -1 },
            &g1);
    assert_int_equal(g1.r.n_tokens, 3); /* and it goes on */
    gen_reset(&g1);
    nb_engine_destroy(e);
}

static void test_end_ids(void **state)
{
    (void)state;
    static uint32_t id[40];
    random_ids(id, 40, TINY_VOCAB, 5);
    nb_engine *e = simple_engine(tiny, NULL);
    const nb_logit_bias push[] = { { 1, 100 }, { 9, 50 } }; /* 1 is the model's end-of-text */
    nb_sampling s = greedy(12);
    s.logit_bias = push;
    s.n_logit_bias = 2;
    run_gen(e, id, 40, &s, &g1); /* ignored */
    assert_int_equal(g1.r.n_tokens, 12);
    assert_int_equal(g1.seen[0], 1);
    s.ignore_eos = false;
    gen_reset(&g1);
    run_gen(e, id, 40, &s, &g1);
    assert_int_equal(g1.r.n_tokens, 1); /* the id that ended it is among the tokens */
    assert_int_equal(g1.seen[0], 1);
    assert_string_equal(g1.r.finish_reason, "stop");
    s.min_tokens = 5; /* held off: the second best comes meanwhile */
    gen_reset(&g1);
    run_gen(e, id, 40, &s, &g1);
    assert_int_equal(g1.r.n_tokens, 6);
    for (int i = 0; i < 5; i++) assert_int_equal(g1.seen[i], 9);
    assert_int_equal(g1.seen[5], 1);
    const uint32_t stop[] = { 300, 9 }; /* stop ids are held off by min_tokens too */
    s.stop_id = stop;
    s.n_stop_id = 2;
    gen_reset(&g1);
    run_gen(e, id, 40, &s, &g1);
    assert_int_equal(g1.r.n_tokens, 6);
    for (int i = 0; i < 5; i++) assert_true(g1.seen[i] != 9 && g1.seen[i] != 1);
    s.min_tokens = 0;
    s.ignore_eos = true;
    s.n_logit_bias = 1;
    s.logit_bias = push + 1;
    gen_reset(&g1);
    run_gen(e, id, 40, &s, &g1);
    assert_int_equal(g1.r.n_tokens, 1);
    assert_int_equal(g1.seen[0], 9);
    assert_string_equal(g1.r.finish_reason, "stop");
    gen_reset(&g1);
    nb_engine_destroy(e);
}

static void test_logprobs(void **state)
{
    (void)state;
    static uint32_t id[70];
    random_ids(id, 70, TINY_VOCAB, 6);
    nb_engine *e = simple_engine(tiny, "bf16");
    const size_t last = 69;
    float *logits = logits_at(e, id, 70, &last, 1);
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < TINY_VOCAB; i++) max = fmax(max, (double)logits[i]);
    for (size_t i = 0; i < TINY_VOCAB; i++) sum += exp((double)logits[i] - max);
    for (int k = 0; k <= 20; k += 5) {
        nb_sampling s = greedy(30);
        s.temperature = k == 10 ? 1.3 : 0;
        s.seed = 11;
        s.n_logprobs = k;
        s.repetition_penalty = k == 15 ? 1.5 : 1; /* what is reported is unmodified */
        gen_reset(&g1);
        run_gen(e, id, 70, &s, &g1);
        for (size_t i = 0; i < g1.n_seen; i++) {
            double mass = 0;
            assert_int_equal(g1.n_top[i], k);
            assert_true(g1.logprob[i] <= 0);
            bool seen = false;
            for (size_t t = 0; t < g1.n_top[i]; t++) {
                const nb_token_logprob p = g1.top[i][t];
                assert_true(p.id < TINY_VOCAB && p.logprob <= 0);
                assert_true(t == 0 || p.logprob <= g1.top[i][t - 1].logprob);
                for (size_t u = 0; u < t; u++) assert_true(p.id != g1.top[i][u].id);
                if (p.id == g1.seen[i]) assert_true(p.logprob == g1.logprob[i]);
                seen |= p.id == g1.seen[i];
                mass += exp((double)p.logprob);
            }
            if (!seen && k) assert_true(g1.logprob[i] <= g1.top[i][k - 1].logprob);
            if (!seen) mass += exp((double)g1.logprob[i]);
            if (!(mass <= 1 + 1e-5)) fail_msg("token %zu: probabilities add up to %.8f", i, mass);
            if (k && k != 10 && k != 15) assert_int_equal(g1.top[i][0].id, g1.seen[i]); /* greedy */
        }
        const double want = (double)logits[g1.seen[0]] - max - log(sum);
        assert_true(fabs((double)g1.logprob[0] - want) < 1e-4);
    }
    free(logits);
    gen_reset(&g1);
    nb_engine_destroy(e);
}

/* ---- text ---- */

#if defined(__SANITIZE_THREAD__)
enum { STOP_STEP = 95 }; /* a hundred times slower there */
#else
enum { STOP_STEP = 19 };
#endif

static void test_text_and_stop(void **state)
{
    (void)state;
    if (!have_file("models/nibble-tiny/config.json")) skip();
    nb_engine *e = make_engine(&(nb_engine_options){ .model = in_source(bundled),
                                                     .n_thread = 1,
                                                     .max_model_len = 512,
                                                     .kv_cache_dtype = "nvfp4" });
    const nb_text *t = nb_engine_text(e);
    nb_error err;
    uint32_t *id = NULL;
    size_t n = 0, n_back = 0;
    char *back = NULL;
    assert_non_null(t);
    static const char story[] = "Once upon a time";
    assert_int_equal(
        nb_text_tokenize(t, story, sizeof story - 1, NB_TEXT_ADD_SPECIAL, &id, &n, &err), NB_OK);
    nb_sampling s = greedy(40);
    s.ignore_eos = false;
    run_gen(e, id, n, &s, &g1);
    assert_true(g1.text_bytes > 60);
    assert_int_equal(nb_text_detokenize(t, g1.seen, g1.n_seen, true, &back, &n_back, &err), NB_OK);
    assert_int_equal(n_back, g1.text_bytes);
    assert_memory_equal(back, g1.text, n_back);
    nb_free(back);
    /* Stretches of the text as a stop string: the text ends before its first place, and
     * what was streamed never held a part of it. */
    for (size_t at = 0; at + 12 < g1.text_bytes; at += STOP_STEP) {
        char word[13];
        const size_t len = 1 + at % 12;
        memcpy(word, g1.text + at, len);
        word[len] = 0;
        const char *const stops[] = { "never in a story of this model \x01", word };
        nb_sampling ss = s;
        ss.stop = stops;
        ss.n_stop = 2;
        gen_reset(&g2);
        run_gen(e, id, n, &ss, &g2);
        const size_t first = (size_t)(strstr(g1.text, word) - g1.text);
        if (g2.text_bytes != first || memcmp(g2.text, g1.text, first) != 0)
            fail_msg("stop '%s': %zu bytes, expected %zu: %s", word, g2.text_bytes, first, g2.text);
        assert_string_equal(g2.r.finish_reason, "stop");
        assert_memory_equal(g2.seen, g1.seen, g2.n_seen * sizeof *g2.seen);
        ss.min_tokens = 30; /* not before that many tokens */
        gen_reset(&g2);
        run_gen(e, id, n, &ss, &g2);
        assert_true(g2.n_seen >= 30);
        if (strcmp(g2.r.finish_reason, "stop") != 0) assert_int_equal(g2.n_seen, 40);
    }
    /* A stop string that only begins to show: it comes out at the end. */
    char half[64];
    (void)snprintf(half, sizeof half, "%s\x01", g1.text + g1.text_bytes - 6);
    const char *const later[] = { half };
    nb_sampling sl = s;
    sl.stop = later;
    sl.n_stop = 1;
    gen_reset(&g2);
    run_gen(e, id, n, &sl, &g2);
    assert_int_equal(g2.text_bytes, g1.text_bytes);
    assert_string_equal(g2.r.finish_reason, "length");
    gen_reset(&g1);
    gen_reset(&g2);
    nb_free(id);
    nb_engine_destroy(e);
}

static void test_text_alone(void **state)
{
    (void)state;
    nb_text *t = NULL;
    nb_error err = { 0 };
    assert_int_equal(nb_text_create(NULL, NULL, &t, &err), NB_ERR_ARG);
    assert_true(nb_text_create("/nowhere", NULL, &t, &err) < 0);
    assert_int_equal(nb_text_create(in_source(tiny), NULL, &t, &err), NB_ERR_NOT_FOUND);
    check_line(&err, NB_ERR_NOT_FOUND, "tokenizer.json");
    assert_null(t);
    nb_text_destroy(NULL);
    if (!have_file("models/nibble-tiny/tokenizer.json")) skip();
    assert_int_equal(nb_text_create(in_source(bundled), "/nowhere", &t, &err), NB_ERR_NOT_FOUND);
    assert_null(t);
    assert_int_equal(nb_text_create(in_source(bundled), in_source("test.sh"), &t, &err), NB_OK);
    nb_text_destroy(t); /* a template may be any text */
    t = NULL;
    assert_int_equal(nb_text_create(in_source(bundled), NULL, &t, &err), NB_OK);
    assert_true(nb_text_vocab_size(t) > 1000);
    char *text = NULL;
    uint32_t *id = NULL;
    size_t n = 7, n_text = 7;
    static const char *const bad[] = { "",
                                       "[",
                                       "[]",
                                       "{}",
                                       "{\"messages\":3}",
                                       "{\"messages\":[1]}",
                                       "{\"messages\":[],\"messages\":[]}",
                                       "\xff" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const nb_status st =
            nb_text_render(t, bad[i], strlen(bad[i]), &text, &n_text, &id, &n, &err);
        if (st == NB_OK) { /* an empty list of messages may be rendered */
            nb_free(text);
            nb_free(id);
            text = NULL;
            id = NULL;
            continue;
        }
        check_line(&err, st, NULL);
        assert_null(text);
        assert_null(id);
    }
    const uint32_t far[] = { 1u << 30 };
    const nb_status st = nb_text_detokenize(t, far, 1, false, &text, &n_text, &err);
    if (st == NB_OK)
        nb_free(text); /* nothing to show for it */
    else
        check_line(&err, st, NULL);
    assert_int_equal(nb_text_tokenize(t, NULL, 3, 0, &id, &n, &err), NB_ERR_ARG);
    assert_int_equal(nb_text_tokenize(t, NULL, 0, 0, &id, &n, &err), NB_OK);
    assert_int_equal(n, 0);
    nb_free(id);
    nb_text_destroy(t);
}

/* ---- values that are not finite ---- */

/* A copy of the model with `value` in one element of a BF16 tensor. */
static void poisoned_copy(const tmp_dir *dir, const char *model, const char *tensor, size_t element,
                          uint16_t value)
{
    nb_buf file = { 0 };
    nb_error err;
    char path[700];
    (void)snprintf(path, sizeof path, "%s/config.json", in_source(model));
    assert_int_equal(nb_file_read(path, 1 << 20, &file, &err), NB_OK);
    tmp_write(dir, "config.json", nb_buf_view(&file));
    file.n_bytes = 0;
    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_source(model));
    assert_int_equal(nb_file_read(path, 8 << 20, &file, &err), NB_OK);
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n |= (uint64_t)(unsigned char)file.p[i] << (8 * i);
    json_t *head = json_loadb(file.p + 8, (size_t)n, 0, NULL);
    const json_t *t = json_object_get(head, tensor);
    if (!t) fail_msg("no tensor %s", tensor);
    assert_string_equal(json_string_value(json_object_get(t, "dtype")), "BF16");
    const json_int_t begin =
        json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
    unsigned char *at = (unsigned char *)file.p + 8 + n + (size_t)begin + 2 * element;
    at[0] = (unsigned char)(value & 0xff);
    at[1] = (unsigned char)(value >> 8);
    json_decref(head);
    tmp_write(dir, "model.safetensors", nb_buf_view(&file));
    nb_buf_deinit(&file);
}

static void poisoned(const tmp_dir *dir, const char *tensor, size_t element, uint16_t value)
{
    poisoned_copy(dir, tiny, tensor, element, value);
}

/* A state that is not finite fails its request alone, is never a snapshot, and is gone with it. */
static void test_nonfinite_state(void **state)
{
    (void)state;
    enum { BAD_TOK = 7, HIDDEN = 72, VOCAB = 160 };
    static const char model[] = "tests/parity/kimi_linear";
    static uint32_t id[150], bad[150];
    random_ids(id, 150, VOCAB, 8);
    for (size_t i = 0; i < 150; i++) id[i] += id[i] == BAD_TOK;
    memcpy(bad, id, sizeof bad);
    bad[140] = BAD_TOK; /* behind the snapshot at 128 */
    nb_sampling s = greedy(10);
    const nb_logit_bias never = { BAD_TOK, -100 };
    s.logit_bias = &never;
    s.n_logit_bias = 1;
    nb_engine_options o = { .n_thread = 2, .max_num_seqs = 1, .no_text = true };
    o.model = in_source(model);
    nb_engine *e = make_engine(&o);
    run_gen(e, id, 150, &s, &g2);
    nb_engine_destroy(e);
    tmp_dir dir;
    nb_error err;
    tmp_open(&dir);
    poisoned_copy(&dir, model, "model.embed_tokens.weight", BAD_TOK * HIDDEN + 5, 0xff80);
    o.model = dir.path;
    e = make_engine(&o);
    for (int round = 0; round < 3; round++) { /* in one slot: nothing of it is left there */
        gen_reset(&g1);
        assert_int_equal(try_run(e, bad, 150, &s, &g1, &err), NB_ERR_NONFINITE);
        check_line(&err, NB_ERR_NONFINITE, "layer 0: a value of the state");
        gen_reset(&g1);
        run_gen(e, id, 150, &s, &g1);
        assert_memory_equal(g1.seen, g2.seen, 10 * sizeof *g1.seen);
        assert_int_equal(g1.r.n_cached, 128); /* the good part of the failed prompt */
    }
    nb_engine_destroy(e);
    tmp_close(&dir);
}

static void test_nonfinite(void **state)
{
    (void)state;
    enum { BAD_TOK = 7, HIDDEN = 96 };
    static uint32_t id[100], bad[100];
    static const uint16_t values[] = { 0x7fc0 /* NaN */, 0xff80 /* -inf */ };
    random_ids(id, 100, TINY_VOCAB, 8);
    for (size_t i = 0; i < 100; i++) id[i] += id[i] == BAD_TOK;
    memcpy(bad, id, sizeof bad);
    bad[70] = BAD_TOK;
    nb_sampling s = greedy(20);
    const nb_logit_bias never = { BAD_TOK, -100 };
    s.logit_bias = &never;
    s.n_logit_bias = 1;
    nb_engine *clean = simple_engine(tiny, "nvfp4");
    run_gen(clean, id, 100, &s, &g2);
    for (size_t i = 0; i < 2; i++) {
        tmp_dir dir;
        nb_error err;
        tmp_open(&dir);
        poisoned(&dir, "model.embed_tokens.weight", BAD_TOK * HIDDEN + 5, values[i]);
        nb_engine *e = make_engine(
            &(nb_engine_options){ .model = dir.path, .n_thread = 2, .kv_cache_dtype = "nvfp4" });
        for (int round = 0; round < 3; round++) { /* it fails, the next one works, again */
            gen_reset(&g1);
            assert_int_equal(try_run(e, bad, 100, &s, &g1, &err), NB_ERR_NONFINITE);
            check_line(&err, NB_ERR_NONFINITE, NULL);
            assert_null(g1.r.tokens);
            gen_reset(&g1);
            run_gen(e, id, 100, &s, &g1);
            assert_int_equal(g1.n_seen, 20);
            assert_memory_equal(g1.seen, g2.seen, 20 * sizeof *g1.seen);
        }
        assert_int_equal(g1.r.n_cached, 64); /* of itself; nothing of a failed request is kept */
        nb_engine_stats stats;
        nb_engine_get_stats(e, &stats);
        assert_int_equal(stats.n_nonfinite, 3);
        assert_int_equal(stats.n_block_once + stats.n_block_many, 1);
        const size_t row = 99;
        row_sink sink = {
            .row = &row, .n_row = 1, .n_vocab = TINY_VOCAB, .out = calloc(TINY_VOCAB, sizeof(float))
        };
        assert_int_equal(nb_logits(e, bad, 100, &row, 1, take_row, &sink, &err), NB_ERR_NONFINITE);
        free(sink.out);
        nb_engine_destroy(e);
        /* A row of the output head: only that logit is bad, and only sampling notices. */
        poisoned(&dir, "lm_head.weight", 11 * HIDDEN, values[0]);
        e = make_engine(&(nb_engine_options){ .model = dir.path, .n_thread = 1 });
        gen_reset(&g1);
        assert_int_equal(try_run(e, id, 100, &s, &g1, &err), NB_ERR_NONFINITE);
        check_line(&err, NB_ERR_NONFINITE, "position 99");
        nb_engine_destroy(e);
        tmp_close(&dir);
    }
    gen_reset(&g1);
    gen_reset(&g2);
    nb_engine_destroy(clean);
}

int main(void)
{
    if (!have_file("tests/parity/v3/model.safetensors")) {
        printf("skipped: no parity checkpoints\n");
        return SKIP_EXIT;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_refuses),   cmocka_unit_test(test_create_and_info),
        cmocka_unit_test(test_requests_refused), cmocka_unit_test(test_length),
        cmocka_unit_test(test_cancel),           cmocka_unit_test(test_cancel_from_thread),
        cmocka_unit_test(test_end_ids),          cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_text_and_stop),    cmocka_unit_test(test_text_alone),
        cmocka_unit_test(test_nonfinite), cmocka_unit_test(test_nonfinite_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
