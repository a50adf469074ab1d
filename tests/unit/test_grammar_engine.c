/* test_grammar_engine.c - constrained requests in the engine, with the bundled model: the text satisfies
 * the grammar, alone as in a crowd, with every setting that touches sampling. */
#include "engine_testing.h"

#include <jansson.h>
#include <math.h>

#include "os/thread.h"

static nb_engine *engine;
static uint32_t *prompt;
static size_t n_prompt;

static nb_grammar *compile(nb_grammar_kind kind, const char *text, const char *after)
{
    const nb_grammar_spec spec = {
        .kind = kind, .text = text, .text_bytes = strlen(text), .after = after
    };
    nb_grammar *g = NULL;
    nb_error err = { 0 };
    if (nb_grammar_compile(nb_engine_text(engine), &spec, &g, &err) != NB_OK)
        fail_msg("%s", err.msg);
    return g;
}

static nb_sampling sampled(uint64_t seed, size_t n)
{
    nb_sampling s;
    nb_sampling_default(&s);
    s.seed = seed;
    s.max_tokens = n;
    return s;
}

static void run_with(nb_grammar *g, const nb_sampling *s, gen *out)
{
    nb_request rq = { .prompt = prompt,
                      .n_prompt = n_prompt,
                      .sampling = *s,
                      .grammar = g,
                      .on_token = on_token,
                      .on_token_ctx = out };
    nb_error err = { 0 };
    gen_reset(out);
    if (nb_generate(engine, &rq, &out->r, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(out->text_bytes, out->r.text_bytes);
    assert_memory_equal(out->text, out->r.text, out->text_bytes);
}

static gen *one; /* large */

static const char person[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"age\":{\"type\":"
    "\"integer\",\"minimum\":0,\"maximum\":120},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]},"
    "\"maxItems\":3}},\"required\":[\"name\",\"age\",\"tags\"],\"additionalProperties\":false}";

static void check_person(const char *text)
{
    json_t *v = json_loads(text, JSON_ALLOW_NUL, NULL);
    if (!v) fail_msg("no JSON: %s", text);
    const json_t *age = json_object_get(v, "age"), *tags = json_object_get(v, "tags");
    assert_int_equal(json_object_size(v), 3);
    assert_true(json_is_string(json_object_get(v, "name")));
    assert_true(json_is_integer(age) && json_integer_value(age) >= 0 &&
                json_integer_value(age) <= 120);
    assert_true(json_is_array(tags) && json_array_size(tags) <= 3);
    json_decref(v);
}

static void test_schema(void **state)
{
    (void)state;
    nb_grammar *g = compile(NB_GRAMMAR_JSON_SCHEMA, person, NULL);
    nb_grammar *same = compile(NB_GRAMMAR_JSON_SCHEMA, person, NULL);
    assert_ptr_equal(g, same); /* found again */
    nb_grammar_unref(same);
    for (uint64_t seed = 0; seed < 6; seed++) {
        nb_sampling s = sampled(seed, 300);
        if (seed == 0) s.temperature = 0;
        if (seed == 1) s.top_k = 3;
        if (seed == 2) s.top_p = 0.7;
        if (seed == 3) s.repetition_penalty = 1.3;
        if (seed == 4) s.ignore_eos = true;
        if (seed == 5) s.min_tokens = 250; /* longer than the object can be */
        run_with(g, &s, one);
        assert_string_equal(one->r.finish_reason, "stop");
        check_person(one->r.text);
    }
    nb_grammar_unref(g);
}

/* Ends: at once where nothing can follow, by an end of text where more could; never before. */
static void test_ends(void **state)
{
    (void)state;
    nb_grammar *g = compile(NB_GRAMMAR_CHOICE, "[\"the cat\"]", NULL);
    for (size_t i = 0; i < 3; i++) {
        nb_sampling s = sampled(i, 100);
        s.ignore_eos = i == 1;
        s.min_tokens = i == 2 ? 50 : 0;
        run_with(g, &s, one);
        assert_string_equal(one->r.text, "the cat");
        assert_string_equal(one->r.finish_reason, "stop");
    }
    nb_sampling s = sampled(1, 1);
    run_with(g, &s, one);
    assert_string_equal(one->r.finish_reason, one->r.text_bytes == 7 ? "stop" : "length");
    const char *stops[] = { "cat" };
    s = sampled(1, 100);
    s.stop = stops;
    s.n_stop = 1;
    run_with(g, &s, one);
    assert_string_equal(one->r.text, "the ");
    assert_int_equal(one->r.stop_index, 0);
    nb_grammar_unref(g);
    g = compile(NB_GRAMMAR_REGEX, "[0-9]{2,5}", NULL);
    for (uint64_t seed = 0; seed < 3; seed++) {
        s = sampled(seed, 100);
        run_with(g, &s, one);
        assert_string_equal(one->r.finish_reason, "stop");
        assert_true(one->r.text_bytes >= 2 && one->r.text_bytes <= 5);
        assert_int_equal(strspn(one->r.text, "0123456789"), one->r.text_bytes);
    }
    nb_grammar_unref(g);
}

/* Log-probabilities are those of the model, not of what the mask leaves. */
static float first_logprob;
static int take_logits(void *ctx, size_t row, const float *logits, size_t n)
{
    const uint32_t id = *(const uint32_t *)ctx;
    double top = -INFINITY, sum = 0;
    (void)row;
    for (size_t i = 0; i < n; i++) top = fmax(top, (double)logits[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - top);
    first_logprob = (float)((double)logits[id] - top - log(sum));
    return 0;
}

static void test_logprobs(void **state)
{
    (void)state;
    nb_grammar *g = compile(NB_GRAMMAR_REGEX, "[QXZ]{3}", NULL);
    nb_sampling s = sampled(7, 100);
    s.n_logprobs = 5;
    run_with(g, &s, one);
    assert_int_equal(one->r.text_bytes, 3);
    const size_t last = n_prompt - 1;
    nb_error err = { 0 };
    assert_int_equal(
        nb_logits(engine, prompt, n_prompt, &last, 1, take_logits, &one->seen[0], &err), NB_OK);
    assert_true(fabsf(first_logprob - one->logprob[0]) < 1e-4f);
    assert_true(one->top[0][0].logprob >
                one->logprob[0]); /* the best is not among what is allowed */
    nb_grammar_unref(g);
}

/* Free text first: the grammar begins behind the trigger, and not before. */
static void test_after(void **state)
{
    (void)state;
    nb_grammar *g = compile(NB_GRAMMAR_REGEX, "#[0-9]{3}", "e");
    for (uint64_t seed = 0; seed < 2; seed++) {
        const nb_sampling s = sampled(seed, 400);
        run_with(g, &s, one);
        assert_string_equal(one->r.finish_reason, "stop");
        const char *e = strchr(one->r.text, 'e');
        if (!e || strlen(e) != 5 || e[1] != '#') fail_msg("%s", one->r.text);
    }
    nb_grammar_unref(g);
}

/* ---- alone = in a crowd ---- */

enum { N_CROWD = 8 };
typedef struct crowd {
    nb_mutex *lock;
    nb_cond *done;
    size_t n_done, n_preempted;
    uint32_t *tokens[N_CROWD];
    size_t n_tokens[N_CROWD];
} crowd;
typedef struct member {
    crowd *c;
    size_t i;
} member;

static void on_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    member *me = ctx;
    crowd *c = me->c;
    if (st != NB_OK) print_message("%s\n", err->msg);
    c->tokens[me->i] = calloc(r->n_tokens + 1, sizeof **c->tokens);
    if (c->tokens[me->i]) memcpy(c->tokens[me->i], r->tokens, r->n_tokens * sizeof **c->tokens);
    nb_mutex_lock(c->lock);
    c->n_tokens[me->i] = r->n_tokens;
    c->n_preempted += r->n_preempted;
    c->n_done++;
    nb_cond_signal(c->done);
    nb_mutex_unlock(c->lock);
}

static nb_grammar *crowd_grammar(size_t i)
{
    switch (i % 5) {
    case 0: return compile(NB_GRAMMAR_JSON_SCHEMA, person, NULL);
    case 1: return compile(NB_GRAMMAR_REGEX, "([a-z]{1,9} ){5,90}\\.", NULL);
    case 2: return NULL;
    case 3: return compile(NB_GRAMMAR_JSON_OBJECT, "", NULL);
    default: return compile(NB_GRAMMAR_REGEX, "[A-Z][a-z ]{20,200}!", "e");
    }
}

static void test_crowd(void **state)
{
    (void)state;
    crowd c = { 0 };
    member me[N_CROWD];
    nb_grammar *g[N_CROWD];
    assert_int_equal(nb_mutex_create(&c.lock), NB_OK);
    assert_int_equal(nb_cond_create(&c.done), NB_OK);
    for (size_t i = 0; i < N_CROWD; i++) {
        nb_error err = { 0 };
        nb_request_id id;
        me[i] = (member){ &c, i };
        g[i] = crowd_grammar(i);
        const nb_request rq = { .prompt = prompt,
                                .n_prompt = n_prompt - i % 3,
                                .sampling = sampled(i, 90),
                                .grammar = g[i],
                                .on_done = on_done,
                                .on_token_ctx = &me[i] };
        if (nb_engine_submit(engine, &rq, &id, &err) != NB_OK) fail_msg("%s", err.msg);
    }
    nb_mutex_lock(c.lock);
    while (c.n_done < N_CROWD) nb_cond_wait(c.done, c.lock);
    nb_mutex_unlock(c.lock);
    for (size_t i = 0; i < N_CROWD; i++) {
        const size_t n = n_prompt;
        const nb_sampling s = sampled(i, 90);
        n_prompt -= i % 3;
        run_with(g[i], &s, one);
        n_prompt = n;
        assert_int_equal(one->r.n_tokens, c.n_tokens[i]);
        assert_memory_equal(one->r.tokens, c.tokens[i], one->r.n_tokens * sizeof *one->r.tokens);
        free(c.tokens[i]);
        nb_grammar_unref(g[i]);
    }
    assert_true(c.n_preempted > 0); /* the pool is too small for all: a match goes on behind it */
    nb_mutex_destroy(c.lock);
    nb_cond_destroy(c.done);
}

static void test_refused(void **state)
{
    (void)state;
    nb_text *other = NULL;
    nb_error err = { 0 };
    nb_grammar *g = NULL;
    assert_int_equal(nb_text_create(in_source("models/nibble-tiny"), NULL, &other, &err), NB_OK);
    const nb_grammar_spec spec = { .kind = NB_GRAMMAR_JSON_OBJECT };
    assert_int_equal(nb_grammar_compile(other, &spec, &g, &err), NB_OK);
    const nb_request rq = {
        .prompt = prompt, .n_prompt = n_prompt, .sampling = sampled(1, 5), .grammar = g
    };
    nb_result r;
    assert_int_equal(nb_generate(engine, &rq, &r, &err), NB_ERR_ARG);
    assert_non_null(strstr(err.msg, "another tokenizer"));
    nb_grammar_unref(g);
    nb_text_destroy(other);
}

int main(void)
{
    if (!have_file("models/nibble-tiny/config.json")) {
        (void)fprintf(stderr, "skipped: no bundled model\n");
        return SKIP_EXIT;
    }
    engine = make_engine(&(nb_engine_options){ .model = in_source("models/nibble-tiny"),
                                               .kv_cache_dtype = "nvfp4",
                                               .n_thread = 2,
                                               .max_model_len = 512,
                                               .max_num_seqs = N_CROWD,
                                               .kv_cache_bytes = (uint64_t)10 * 158592 });
    one = calloc(1, sizeof *one);
    nb_error err = { 0 };
    static const char text[] = "Once upon a time there was a little girl who";
    if (!one || nb_text_tokenize(nb_engine_text(engine), text, sizeof text - 1, NB_TEXT_ADD_SPECIAL,
                                 &prompt, &n_prompt, &err) != NB_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schema),   cmocka_unit_test(test_ends),
        cmocka_unit_test(test_logprobs), cmocka_unit_test(test_after),
        cmocka_unit_test(test_crowd),    cmocka_unit_test(test_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gen_reset(one);
    free(one);
    nb_free(prompt);
    nb_engine_destroy(engine);
    return failed;
}
