/* test_refill.c - answers computed again as prompts: when one starts, what it computes, how it gives way,
 * what is dropped.  Random workloads are in tests/prop/prop_sched.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <math.h>

#include "base/attr.h"
#include "sched/refill.h"

enum { N_SLOT = 4, CHUNK = 128, MAX_LEN = 1024 };

typedef struct rig {
    nb_kv_cache *kv;
    nb_sched *s;
    nb_refill *f;
    nb_sched_item item[N_SLOT];
    size_t n_item;
    uint32_t tok[MAX_LEN];
    size_t n_tok, n_prompt; /* of the conversation */
    nb_str salt;
    uint64_t last_id;
} rig;

static rig make(size_t n_block)
{
    rig t = { 0 };
    const nb_kv_cache_options ko = { .n_block = n_block, .index = true, .protected_share = 0.25 };
    const nb_sched_options so = { .max_num_seqs = N_SLOT,
                                  .max_step_tok = 512,
                                  .max_chunk_tok = 256,
                                  .max_model_len = n_block * 64 < MAX_LEN ? n_block * 64 : MAX_LEN };
    const nb_refill_options fo = {
        .max_text = 3, .max_tok = 2 * MAX_LEN, .chunk_tok = CHUNK, .quiet_s = 1
    };
    assert_int_equal(nb_kv_cache_create(&ko, &t.kv, NULL), NB_OK);
    assert_int_equal(nb_sched_create(&so, t.kv, &t.s, NULL), NB_OK);
    assert_int_equal(nb_refill_create(&fo, t.s, t.kv, &t.f, NULL), NB_OK);
    for (size_t i = 0; i < MAX_LEN; i++) t.tok[i] = (uint32_t)(i * i % 977);
    return t;
}

static void ok(const rig *t)
{
    const char *what = nb_sched_check(t->s);
    if (!what) what = nb_refill_check(t->f);
    if (what) print_error("%s\n", what);
    assert_null(what);
}

static nb_refill_stats stats(const rig *t)
{
    nb_refill_stats s;
    nb_refill_get_stats(t->f, &s);
    return s;
}

static void done(rig *t)
{
    nb_kv_cache_stats k;
    ok(t);
    nb_refill_destroy(t->f); /* also with one in hand */
    nb_kv_cache_get_stats(t->kv, &k);
    assert_int_equal(k.n_held, 0);
    nb_sched_destroy(t->s);
    nb_kv_cache_destroy(t->kv);
}

/* A request arrives: the first n_prompt tokens of the conversation. */
static uint64_t arrive(rig *t, size_t n_prompt)
{
    const nb_sched_request rq = { .id = ++t->last_id,
                                  .prompt = t->tok,
                                  .n_prompt = n_prompt,
                                  .n_expanded = n_prompt,
                                  .rope_from = SIZE_MAX,
                                  .salt = t->salt,
                                  .deadline = (double)INFINITY,
                                  .user = t };
    nb_refill_yield(t->f, t->tok, n_prompt, t->salt);
    assert_int_equal(nb_sched_add(t->s, &rq, 0, NULL), NB_OK);
    t->n_prompt = n_prompt;
    ok(t);
    return rq.id;
}

/* It answers with the next n tokens of the conversation and goes.  Returns the tokens that it found. */
static size_t answer(rig *t, uint64_t id, size_t n)
{
    size_t n_cached = 0;
    for (t->n_tok = t->n_prompt; t->n_tok < t->n_prompt + n;) {
        t->n_item = nb_sched_plan(t->s, 0, t->item);
        assert_int_equal(t->n_item, 1);
        assert_int_equal(t->item[0].id, id);
        if (t->item[0].admitted) n_cached = t->item[0].n_cached;
        const bool last = t->item[0].last;
        assert_int_equal(nb_sched_computed(t->s, id), NB_OK);
        if (last) assert_int_equal(nb_sched_push(t->s, id, t->tok[t->n_tok++]), NB_OK);
    }
    const nb_refill_text text = { .tok = t->tok,
                                  .n_tok = t->n_tok,
                                  .n_prompt = t->n_prompt,
                                  .n_expanded = t->n_tok,
                                  .rope_from = SIZE_MAX,
                                  .salt = t->salt };
    (void)nb_refill_add(t->f, &text);
    nb_sched_remove(t->s, id);
    ok(t);
    return n_cached;
}

/* One item of a refill; its length. */
static size_t refill(rig *t)
{
    t->n_item = nb_sched_plan(t->s, 0, t->item);
    assert_int_equal(t->n_item, 1);
    assert_int_equal(t->item[0].id, NB_REFILL_ID);
    assert_null(t->item[0].user);
    const size_t n = t->item[0].n_tok;
    assert_int_equal(nb_refill_computed(t->f), NB_OK);
    ok(t);
    return n;
}

static void test_the_next_turn_finds_all(void **state)
{
    (void)state;
    rig t = make(32);
    (void)answer(&t, arrive(&t, 100), 300);
    assert_int_equal(stats(&t).n_text, 1);
    assert_true(nb_refill_start(t.f, 1));
    /* From the prompt's last full block to the answer's, in chunks. */
    assert_int_equal(refill(&t), CHUNK);
    assert_int_equal(t.item[0].pos0, 64);
    assert_true(t.item[0].expanded);
    assert_int_equal(stats(&t).n_waiting_tok, 384 - 64 - CHUNK);
    assert_int_equal(refill(&t), CHUNK);
    assert_int_equal(refill(&t), 320 - 2 * CHUNK);
    assert_false(nb_refill_active(t.f));
    assert_int_equal(nb_sched_plan(t.s, 0, t.item), 0);
    assert_int_equal(stats(&t).n_done, 1);
    assert_int_equal(stats(&t).n_tok, 320);
    assert_int_equal(answer(&t, arrive(&t, 420), 1), 384);
    done(&t);
}

static void test_without_it_only_the_prompt(void **state)
{
    (void)state;
    rig t = make(32);
    (void)answer(&t, arrive(&t, 100), 300);
    assert_int_equal(answer(&t, arrive(&t, 420), 1), 64);
    done(&t);
}

static void test_it_waits_for_quiet_and_for_requests(void **state)
{
    (void)state;
    rig t = make(32);
    assert_false(nb_refill_start(t.f, 100)); /* there is none */
    (void)answer(&t, arrive(&t, 10), 100);
    assert_false(nb_refill_start(t.f, 0.5));
    assert_false(nb_refill_start(t.f, NAN));
    memset(t.tok, 1, sizeof t.tok);
    const uint64_t id = arrive(&t, 10); /* of another conversation */
    assert_false(nb_refill_start(t.f, 100));
    (void)nb_sched_plan(t.s, 0, t.item);
    assert_false(nb_refill_start(t.f, 100));
    nb_sched_remove(t.s, id);
    assert_true(nb_refill_start(t.f, 1));
    assert_false(nb_refill_start(t.f, 1)); /* one at a time */
    done(&t);
}

static void test_it_gives_way_at_once(void **state)
{
    (void)state;
    rig t = make(16);
    nb_sched_stats before, after;
    (void)answer(&t, arrive(&t, 10), 500);
    nb_sched_get_stats(t.s, &before);
    assert_true(nb_refill_start(t.f, 1));
    (void)refill(&t);
    nb_sched_get_stats(t.s, &after);
    assert_memory_equal(&before, &after, sizeof before); /* it is nobody's request */
    assert_int_equal(t.item[0].slot, N_SLOT - 1);        /* the last used keeps its open page */
    const uint32_t keep[2] = { t.tok[0], t.tok[1] };
    t.tok[0] = t.tok[1] = 7;
    const uint64_t id = arrive(&t, 900); /* needs nearly every block */
    assert_int_equal(nb_kv_cache_available(t.kv), 16);
    t.n_item = nb_sched_plan(t.s, 0, t.item);
    assert_int_equal(t.n_item, 1);
    assert_int_equal(t.item[0].id, id);
    assert_int_equal(t.item[0].n_tok, 512); /* as if it were alone */
    nb_sched_remove(t.s, id);
    t.tok[0] = keep[0];
    t.tok[1] = keep[1];
    assert_int_equal(stats(&t).n_text, 1);
    done(&t);
}

/* What was computed before it gave way stays, and is not computed again. */
static void test_it_goes_on_where_it_was(void **state)
{
    (void)state;
    rig t = make(64);
    (void)answer(&t, arrive(&t, 10), 310);
    assert_true(nb_refill_start(t.f, 1));
    (void)refill(&t);
    t.salt = (nb_str){ "other", 5 };
    (void)answer(&t, arrive(&t, 5), 1);
    t.salt = (nb_str){ 0 };
    assert_true(nb_refill_start(t.f, 1));
    assert_int_equal(refill(&t), CHUNK);
    assert_int_equal(t.item[0].pos0, CHUNK);
    assert_int_equal(stats(&t).n_tok, 2 * CHUNK);
    done(&t);
}

static void test_the_next_turn_takes_over(void **state)
{
    (void)state;
    rig t = make(64);
    (void)answer(&t, arrive(&t, 10), 310);
    assert_true(nb_refill_start(t.f, 1));
    (void)refill(&t);
    const uint64_t id = arrive(&t, 330);
    assert_int_equal(stats(&t).n_text, 0);
    assert_int_equal(stats(&t).n_dropped, 1);
    assert_int_equal(answer(&t, id, 1), CHUNK); /* and finds what is there */
    assert_false(nb_refill_start(t.f, 1));
    done(&t);
}

/* The same text of another tenant is another text. */
static void test_salts(void **state)
{
    (void)state;
    rig t = make(64);
    t.salt = (nb_str){ "a", 1 };
    (void)answer(&t, arrive(&t, 10), 190);
    t.salt = (nb_str){ "b", 1 };
    const uint64_t id = arrive(&t, 210);
    assert_int_equal(stats(&t).n_text, 1);
    nb_sched_remove(t.s, id);
    assert_true(nb_refill_start(t.f, 1));
    while (nb_refill_active(t.f)) (void)refill(&t);
    assert_int_equal(answer(&t, arrive(&t, 210), 1), 0);
    t.salt = (nb_str){ "a", 1 };
    assert_int_equal(answer(&t, arrive(&t, 210), 1), 192);
    done(&t);
}

static void test_dropped_when_its_prompt_has_gone(void **state)
{
    (void)state;
    rig t = make(16);
    (void)answer(&t, arrive(&t, 200), 200);
    (void)nb_kv_cache_reset(t.kv);
    assert_false(nb_refill_start(t.f, 1));
    assert_int_equal(stats(&t).n_dropped, 1);
    assert_int_equal(stats(&t).n_tok, 0);
    done(&t);
}

static void test_bounds(void **state)
{
    (void)state;
    rig t = make(64);
    static uint32_t tok[3 * MAX_LEN];
    nb_refill_text text = { .tok = tok, .n_prompt = 1, .n_tok = 100, .rope_from = SIZE_MAX };
    for (size_t i = 0; i < 5; i++) {
        tok[0] = (uint32_t)i;
        assert_int_equal(nb_refill_add(t.f, &text), NB_OK);
        ok(&t);
    }
    assert_int_equal(stats(&t).n_text, 3); /* the oldest went */
    assert_int_equal(stats(&t).n_dropped, 2);
    text.n_tok = 2 * MAX_LEN;
    assert_int_equal(nb_refill_add(t.f, &text), NB_OK); /* takes all the room */
    assert_int_equal(stats(&t).n_text, 1);
    text.n_tok = 2 * MAX_LEN + 1;
    assert_int_equal(nb_refill_add(t.f, &text), NB_ERR_LIMIT);
    assert_int_equal(stats(&t).n_dropped, 6);
    text.n_tok = 127;
    text.n_prompt = 64;
    assert_int_equal(nb_refill_add(t.f, &text), NB_OK); /* the prompt's own block is there */
    assert_int_equal(stats(&t).n_text, 1);
    nb_refill_clear(t.f);
    assert_int_equal(stats(&t).n_text, 0);
    nb_refill_drop(t.f); /* none in hand */
    assert_int_equal(nb_refill_computed(t.f), NB_ERR_ARG);
    done(&t);
}

static void test_in_hand_at_the_end(void **state)
{
    (void)state;
    rig t = make(64);
    (void)answer(&t, arrive(&t, 10), 310);
    assert_true(nb_refill_start(t.f, 1));
    (void)nb_sched_plan(t.s, 0, t.item);
    nb_refill_drop(t.f); /* a value was not finite */
    assert_int_equal(stats(&t).n_dropped, 1);
    (void)answer(&t, arrive(&t, 10), 310);
    assert_true(nb_refill_start(t.f, 1));
    (void)nb_sched_plan(t.s, 0, t.item);
    done(&t);
}

static void test_create(void **state)
{
    (void)state;
    rig t = make(16);
    static const nb_refill_options bad[] = {
        { 1, 1, 0, 1 }, { 1, 1, 63, 1 }, { 1, 1, 64, -1 }, { 1, 1, 64, NAN }
    };
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_refill *f = NULL;
        nb_error err = { 0 };
        assert_int_equal(nb_refill_create(&bad[i], t.s, t.kv, &f, &err), NB_ERR_ARG);
        assert_true(err.msg[0]);
    }
    nb_refill_destroy(NULL);
    done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_next_turn_finds_all),
        cmocka_unit_test(test_without_it_only_the_prompt),
        cmocka_unit_test(test_it_waits_for_quiet_and_for_requests),
        cmocka_unit_test(test_it_gives_way_at_once),
        cmocka_unit_test(test_it_goes_on_where_it_was),
        cmocka_unit_test(test_the_next_turn_takes_over),
        cmocka_unit_test(test_salts),
        cmocka_unit_test(test_dropped_when_its_prompt_has_gone),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_in_hand_at_the_end),
        cmocka_unit_test(test_create),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
