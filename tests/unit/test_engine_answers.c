/* test_engine_answers.c - --cache-answers in the engine: whose answers are computed again, resets, failures,
 * the end of the engine, statistics.  That outputs are the same bit for bit is test_promises_engine.c's;
 * the rules of scheduling are test_refill.c's. */
#include "engine_testing.h"

#include <time.h>

#include "engine/engine_internal.h"

enum { N_PROMPT = 30, N_GEN = 200, N_TEXT = N_PROMPT + N_GEN };

static gen one;
static uint32_t text[N_TEXT + 10];

static nb_engine_options options(void)
{
    return (nb_engine_options){ .model = in_source("tests/parity/v3"),
                                .kv_cache_dtype = "nvfp4",
                                .n_thread = 1,
                                .no_text = true,
                                .max_model_len = 512,
                                .cache_answers = true };
}

static nb_engine_stats stats(const nb_engine *e)
{
    nb_engine_stats s;
    nb_engine_get_stats(e, &s);
    return s;
}

static void ok(nb_engine *e)
{
    nb_error err = { 0 };
    if (nb_engine_check(e, &err) != NB_OK) fail_msg("%s", err.msg);
}

/* Until none waits. */
static void settle(const nb_engine *e)
{
    for (size_t i = 0; stats(e).n_refill_waiting; i++) {
        if (i == 60000) fail_msg("answers wait for ever");
        (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

/* A first turn: text is its prompt and its answer. */
static void first_turn(nb_engine *e)
{
    const nb_sampling s = greedy(N_GEN);
    random_ids(text, N_PROMPT, vocab_of(e), 3);
    gen_reset(&one);
    run_gen(e, text, N_PROMPT, &s, &one);
    assert_int_equal(one.n_seen, N_GEN);
    memcpy(text + N_PROMPT, one.seen, sizeof(uint32_t) * N_GEN);
    random_ids(text + N_TEXT, 10, vocab_of(e), 4);
}

static size_t cached_by_next_turn(nb_engine *e)
{
    const nb_sampling s = greedy(1);
    gen_reset(&one);
    run_gen(e, text, NB_COUNT(text), &s, &one);
    return one.r.n_cached;
}

static void test_statistics(void **state)
{
    (void)state;
    const nb_engine_options o = options();
    nb_engine *e = make_engine(&o);
    first_turn(e);
    const nb_engine_stats before = stats(e);
    settle(e);
    const nb_engine_stats after = stats(e);
    assert_int_equal(after.n_refill_done, 1);
    assert_int_equal(after.refill_tok, N_TEXT / 64 * 64);
    assert_int_equal(after.refill_waiting_tok, 0);
    assert_true(after.refill_s > 0);
    /* Nobody asked for it. */
    assert_int_equal(after.n_step, before.n_step);
    assert_int_equal(after.step_tok_sum, before.step_tok_sum);
    assert_int_equal(after.prompt_tok, before.prompt_tok);
    assert_int_equal(after.prefix_queries, before.prefix_queries);
    assert_int_equal(after.n_block_held, 0);
    ok(e);
    assert_int_equal(cached_by_next_turn(e), N_TEXT / 64 * 64);
    nb_engine_destroy(e);
}

/* What is held by a refill counts as free for whoever asks. */
static void look(nb_engine *e, void *ctx)
{
    size_t *held = ctx;
    if (!nb_refill_active(e->answers.refill)) return;
    nb_engine_publish(e);
    held[0]++;
    held[1] += e->stats.count.n_block_held + e->stats.count.n_running + e->stats.count.n_waiting;
}

static void test_seen_while_it_runs(void **state)
{
    (void)state;
    size_t held[2] = { 0 };
    nb_engine_options o = options();
    o.max_num_batched_tokens = 64; /* chunks of 64 */
    nb_engine *e = make_engine(&o);
    /* A refill may be over before this thread looks. */
    for (size_t i = 0; i < 100 && !held[0]; i++) {
        assert_int_equal(nb_engine_reset_prefix_cache(e, NULL), NB_OK);
        first_turn(e);
        while (stats(e).n_refill_waiting) {
            assert_int_equal(nb_engine_call(e, look, held), NB_OK);
            ok(e);
        }
    }
    assert_true(held[0] > 0);
    assert_int_equal(held[1], 0);
    nb_engine_destroy(e);
}

static void test_off(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        nb_engine_options o = options();
        if (i) o.no_prefix_caching = true; /* there is nothing to put it into */
        o.cache_answers = i;
        nb_engine *e = make_engine(&o);
        first_turn(e);
        const nb_engine_stats s = stats(e);
        assert_int_equal(s.n_refill_waiting + s.n_refill_done + s.n_refill_dropped, 0);
        assert_int_equal(cached_by_next_turn(e), 0);
        nb_engine_destroy(e);
    }
}

/* Cancelled requests, and requests for log-probabilities or logits only, leave nothing. */
static void test_not_of_these(void **state)
{
    (void)state;
    const nb_engine_options o = options();
    nb_engine *e = make_engine(&o);
    const nb_sampling s = greedy(N_GEN), none = greedy(0);
    nb_error err = { 0 };
    random_ids(text, N_PROMPT, vocab_of(e), 3);
    gen_reset(&one);
    one.cancel_after = 150;
    (void)try_run(e, text, N_PROMPT, &s, &one, &err);
    assert_string_equal(one.r.finish_reason, "cancelled");
    gen_reset(&one);
    run_gen(e, text, N_PROMPT, &none, &one);
    const nb_engine_stats st = stats(e);
    assert_int_equal(st.n_refill_waiting + st.n_refill_done + st.n_refill_dropped, 0);
    nb_engine_destroy(e);
}

static void test_reset(void **state)
{
    (void)state;
    const nb_engine_options o = options();
    nb_engine *e = make_engine(&o);
    for (size_t i = 0; i < 2; i++) {
        first_turn(e);
        if (i) settle(e);
        assert_int_equal(nb_engine_reset_prefix_cache(e, NULL), NB_OK);
        assert_int_equal(stats(e).n_refill_waiting, 0);
        ok(e);
        assert_int_equal(cached_by_next_turn(e), 0); /* nothing comes into an emptied cache */
        assert_int_equal(nb_engine_reset_prefix_cache(e, NULL), NB_OK);
    }
    nb_engine_destroy(e);
}

/* Its step fails as the device would: the engine has failed, as in any other step. */
static void break_step(nb_engine *e, void *ctx)
{
    (void)ctx;
    e->step.fail_step = true;
}

static void test_a_step_that_fails(void **state)
{
    (void)state;
    const nb_engine_options o = options();
    nb_engine *e = make_engine(&o);
    first_turn(e);
    assert_int_equal(nb_engine_call(e, break_step, NULL), NB_OK);
    settle(e);
    assert_int_equal(nb_engine_health(e, NULL), NB_ERR_FAILED);
    assert_int_equal(stats(e).n_refill_dropped, 1);
    ok(e);
    nb_engine_destroy(e);
}

/* The end of the engine does not wait for those that wait. */
static void test_destroyed_meanwhile(void **state)
{
    (void)state;
    nb_engine_options o = options();
    o.max_num_batched_tokens = 64;
    for (size_t i = 0; i < 2; i++) {
        nb_engine *e = make_engine(&o);
        first_turn(e);
        while (i && stats(e).refill_tok == 0 && stats(e).n_refill_waiting) {
        }
        nb_engine_destroy(e);
    }
}

/* The longest text: its last token has no room in the scheduler, and is not needed. */
static void test_a_full_context(void **state)
{
    (void)state;
    nb_engine_options o = options();
    o.max_model_len = N_TEXT;
    nb_engine *e = make_engine(&o);
    first_turn(e);
    settle(e);
    assert_int_equal(stats(e).n_refill_done, 1);
    ok(e);
    nb_engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics),          cmocka_unit_test(test_seen_while_it_runs),
        cmocka_unit_test(test_off),                 cmocka_unit_test(test_not_of_these),
        cmocka_unit_test(test_reset),               cmocka_unit_test(test_a_step_that_fails),
        cmocka_unit_test(test_destroyed_meanwhile), cmocka_unit_test(test_a_full_context),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    gen_reset(&one);
    return rc;
}
