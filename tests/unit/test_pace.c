/* test_pace.c - what is learnt from steps of a machine whose costs are known, and plans that keep to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <math.h>

#include "base/attr.h"
#include "sched/pace.h"
#include "sched/sched.h"

/* D(n) = 10 ms + n / 8 ms; a prompt costs 6 ms and 25 us per token of work. */
static double decode_s(size_t n)
{
    return 0.010 + (double)n / 8000;
}
static double prompt_s(double work)
{
    return work > 0 ? 0.006 + 25e-6 * work : 0;
}

static bool near(double got, double want, double most)
{
    if (fabs(got - want) <= most) return true;
    print_error("%g, expected %g\n", got, want);
    return false;
}

static void nothing_is_limited_before_it_was_seen(void **state)
{
    (void)state;
    nb_pace p = { .max_step_s = 0.02 };
    assert_true(nb_pace_work(&p, 1, 0) > 1e300);
    nb_pace_note(&p, 0, 512, 0.1);
    assert_true(nb_pace_work(&p, 1, 0) > 1e300); /* no step without prompts yet */
    nb_pace_note(&p, 1, 0, 0.005);
    assert_true(nb_pace_work(&p, 1, 0) < 1e300);
    p.max_step_s = 0;
    assert_true(nb_pace_work(&p, 1, 0) > 1e300);
}

static void learns_both_parts_of_a_prompt(void **state)
{
    (void)state;
    nb_pace p = { .max_step_s = 0.040 };
    nb_pace_note(&p, 8, 0, decode_s(8));
    for (size_t i = 1; i < 20; i++) {
        const double w = (double)(100 * (i % 7 + 1));
        nb_pace_note(&p, 8, w, decode_s(8) + prompt_s(w));
    }
    /* 40 ms = 11 + 6 + 25 us w */
    assert_true(near(nb_pace_work(&p, 8, 0), 23e-3 / 25e-6, 1));
    p.max_step_s = -1; /* three times 11 ms are more than 11 + 2 * 6 */
    assert_true(near(nb_pace_work(&p, 8, 0), (33e-3 - 17e-3) / 25e-6, 1));
    assert_true(near(nb_pace_work(&p, 8, 8000), 2000, 1)); /* a quarter of what waits */
    /* A step that is short beside what a prompt costs in any case: half of its time is left for tokens. */
    for (size_t i = 0; i < 100; i++) nb_pace_note(&p, 8, 0, 0.001);
    for (size_t i = 1; i < 200; i++) {
        const double w = (double)(100 * (i % 7 + 1));
        nb_pace_note(&p, 8, w, 0.001 + prompt_s(w));
    }
    assert_true(near(nb_pace_work(&p, 8, 0), 6e-3 / 25e-6, 1));
}

static void follows_a_machine_that_changes(void **state)
{
    (void)state;
    nb_pace p = { .max_step_s = 0.1 };
    nb_pace_note(&p, 1, 0, 0.01);
    nb_pace_note(&p, 0, 512, 5); /* the first step is slow */
    assert_true(nb_pace_work(&p, 1, 0) < 64);
    for (size_t i = 0; i < 100; i++) nb_pace_note(&p, 1, 64, 0.01 + 64 * 1e-4);
    assert_true(nb_pace_work(&p, 1, 0) > 700);
    /* Times that cannot be right change nothing. */
    const nb_pace before = p;
    nb_pace_note(&p, 1, 64, 0);
    nb_pace_note(&p, 1, 64, -1);
    nb_pace_note(&p, 1, 64, (double)NAN);
    assert_memory_equal(&before, &p, sizeof p);
}

static void chunks_fit(void **state)
{
    (void)state;
    const nb_pace p = { .pair_tok = 1e-4 };
    for (size_t before = 0; before < 200000; before = before * 3 + 17)
        for (double work = 0.5; work < 1e5; work *= 3) {
            const size_t n = nb_pace_fit(&p, work, SIZE_MAX / 2, before);
            assert_true(nb_pace_chunk(&p, n, before) <= work * (1 + 1e-9));
            assert_true(nb_pace_chunk(&p, n + 2, before) > work);
            assert_int_equal(nb_pace_fit(&p, work, n / 2, before), n / 2);
        }
    assert_int_equal(nb_pace_fit(&p, 0, 10, 0), 0);
    assert_int_equal(nb_pace_fit(&p, (double)INFINITY, 10, 0), 10);
}

/* Eight requests generate while prompts of 4,096 tokens come; every step is timed. */
static double longest_step(double max_step_s, size_t *n_steps)
{
    enum { N = 10, TOK = 4096 };
    static uint32_t tok[TOK];
    static nb_sched_item item[N];
    nb_kv_cache *kv;
    nb_sched *s;
    const nb_kv_cache_options ko = { .n_block = 1024, .index = false };
    const nb_sched_options so = { .max_num_seqs = N,
                                  .max_step_tok = TOK,
                                  .max_chunk_tok = TOK,
                                  .max_model_len = 2 * TOK,
                                  .max_step_s = max_step_s };
    assert_int_equal(nb_kv_cache_create(&ko, &kv, NULL), NB_OK);
    assert_int_equal(nb_sched_create(&so, kv, &s, NULL), NB_OK);
    double longest = 0;
    size_t n_prompt = 0;
    *n_steps = 0;
    for (uint64_t id = 1; id <= N; id++) {
        const nb_sched_request rq = { .id = id,
                                      .prompt = tok,
                                      .n_prompt = id <= 8 ? 100 : TOK,
                                      .rope_from = SIZE_MAX,
                                      .deadline = (double)INFINITY };
        if (id == 9) /* what steps cost is known by now */
            for (size_t i = 0; i < 5; i++) {
                const size_t n = nb_sched_plan(s, 0, item);
                assert_int_equal(n, 8);
                nb_sched_timed(s, i == 0 ? prompt_s(800) : decode_s(8));
                for (size_t k = 0; k < n; k++) {
                    assert_int_equal(nb_sched_computed(s, item[k].id), NB_OK);
                    assert_int_equal(nb_sched_push(s, item[k].id, 1), NB_OK);
                }
            }
        assert_int_equal(nb_sched_add(s, &rq, 0, NULL), NB_OK);
    }
    while (n_prompt < 2 * TOK) {
        const size_t n = nb_sched_plan(s, 0, item);
        assert_null(nb_sched_check(s));
        double work = 0;
        size_t n_decode = 0;
        for (size_t k = 0; k < n; k++) {
            if (item[k].id <= 8 || item[k].pos0 >= TOK) {
                n_decode++;
                continue;
            }
            work += (double)item[k].n_tok;
            n_prompt += item[k].n_tok;
            assert_true(item[k].id == 9 || n_prompt > TOK); /* first come, first served */
        }
        assert_true(n_decode >= 8);
        assert_true(work >= NB_BLOCK_TOK || n_prompt >= 2 * TOK);
        const double t = decode_s(8) + prompt_s(work); /* nine cost as much */
        nb_sched_timed(s, t);
        longest = fmax(longest, t);
        (*n_steps)++;
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(nb_sched_computed(s, item[k].id), NB_OK);
            if (item[k].last) assert_int_equal(nb_sched_push(s, item[k].id, 1), NB_OK);
        }
    }
    nb_sched_destroy(s);
    nb_kv_cache_destroy(kv);
    return longest;
}

static void plans_keep_to_the_limit(void **state)
{
    (void)state;
    size_t n;
    assert_true(near(longest_step(0, &n), decode_s(8) + prompt_s(4088), 1e-9));
    assert_int_equal(n, 3);
    /* Learnt from one prompt of 800 tokens: at first all of its time is taken for its tokens'. */
    assert_true(longest_step(0.040, &n) <= 0.040 + 0.006);
    assert_true(n < 16);
    /* Derived: a quarter of what waits, at first; what cannot wait any more is the last step's. */
    assert_true(longest_step(-1, &n) <= decode_s(8) + prompt_s(2 * 4096 / 4.0) + 0.006);
    assert_true(n >= 8 && n < 24);
    /* A limit that cannot be met: a block in each step, nobody stops. */
    assert_true(near(longest_step(0.001, &n), decode_s(8) + prompt_s(64), 1e-9));
    assert_int_equal(n, 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_limited_before_it_was_seen),
        cmocka_unit_test(learns_both_parts_of_a_prompt),
        cmocka_unit_test(follows_a_machine_that_changes),
        cmocka_unit_test(chunks_fit),
        cmocka_unit_test(plans_keep_to_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
