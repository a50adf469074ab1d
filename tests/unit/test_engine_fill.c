/* test_engine_fill.c - nb_engine_fill: a context of copied pages is found as a computed one is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "engine_testing.h"
#include "engine/engine_internal.h"
#include "nibble/measure.h"

enum { PAGE = 64, LONG = 640 };

static nb_result run(nb_engine *e, const uint32_t *id, size_t n, size_t n_new)
{
    nb_result r = { 0 };
    nb_error err = { 0 };
    nb_request rq = { .prompt = id, .n_prompt = n };
    nb_sampling_default(&rq.sampling);
    rq.sampling.temperature = 0;
    rq.sampling.max_tokens = n_new;
    rq.sampling.ignore_eos = true;
    if (nb_generate(e, &rq, &r, &err) != NB_OK) fail_msg("%s", err.msg);
    return r;
}

static nb_engine *engine(const char *mla, bool no_cache)
{
    return make_engine(&(nb_engine_options){ .model = in_source("models/nibble-tiny"),
                                             .kv_cache_dtype = "nvfp4",
                                             .mla = mla,
                                             .no_text = true,
                                             .no_prefix_caching = no_cache,
                                             .max_model_len = LONG + 2 * PAGE,
                                             .n_thread = 1 });
}

static void found(const char *mla)
{
    nb_engine *e = engine(mla, false);
    nb_error err = { 0 };
    uint32_t id[LONG + 1];
    random_ids(id, LONG + 1, 4000, 1);
    assert_int_equal(nb_engine_fill(e, id, LONG, &err), NB_ERR_NOT_FOUND);
    nb_result r = run(e, id, 2 * PAGE, 0);
    nb_result_deinit(&r);
    assert_int_equal(nb_engine_fill(e, id, LONG + 1, &err), NB_OK);
    assert_int_equal(nb_engine_fill(e, id, LONG, &err), NB_OK); /* nothing is left to do */
    r = run(e, id, LONG + 1, 4);
    assert_int_equal(r.n_cached, LONG);
    assert_int_equal(r.n_tokens, 4);
    nb_result_deinit(&r);
    assert_int_equal(nb_engine_check(e, &err), NB_OK);
    nb_engine_destroy(e);
}

/* Data-parallel ranks: texts one after the other are on all of them, and each is filled where it begins, on all ranks of
 * the group. */
static void check_data_ranks(size_t n_tensor)
{
    enum { N = 3 };
    nb_engine *e = make_engine(&(nb_engine_options){ .model = in_source("tests/parity/v3_sharded"),
                                                     .kv_cache_dtype = "nvfp4",
                                                     .no_text = true,
                                                     .data_parallel_size = N,
                                                     .tensor_parallel_size = n_tensor,
                                                     .enable_expert_parallel = true,
                                                     .kv_cache_bytes = 4 << 20,
                                                     .max_model_len = LONG + 2 * PAGE,
                                                     .n_thread = 1 });
    nb_error err = { 0 };
    nb_engine_stats s;
    uint32_t id[N][LONG + 1];
    for (size_t i = 0; i < N; i++) {
        random_ids(id[i], LONG + 1, 96, 5 + i);
        nb_result r = run(e, id[i], PAGE, 0);
        nb_result_deinit(&r);
        if (nb_engine_fill(e, id[i], LONG, &err) != NB_OK) fail_msg("%s", err.msg);
    }
    for (size_t i = 0; i < N; i++) {
        nb_result r = run(e, id[i], LONG + 1, 4);
        assert_int_equal(r.n_cached, LONG);
        assert_int_equal(r.n_tokens, 4);
        nb_result_deinit(&r);
    }
    nb_engine_get_stats(e, &s);
    for (size_t k = 0; k < N; k++) assert_true(s.data_rank[k].prefix_hits >= LONG);
    for (size_t k = 0; k < N * n_tensor; k++) /* copies of one cache */
        assert_memory_equal(e->rank[k].kv, e->rank[k / n_tensor * n_tensor].kv, e->pages.kv_bytes);
    assert_int_equal(nb_engine_check(e, &err), NB_OK);
    nb_engine_destroy(e);
}

static void test_data_ranks(void **state)
{
    (void)state;
    check_data_ranks(1);
    check_data_ranks(2);
}

/* Layers that keep a state per sequence: the last block has a snapshot, more than once with a single place. */
static void test_states(void **state)
{
    static const char *const dirs[] = { "tests/parity/kimi_linear", "tests/parity/v4" };
    (void)state;
    for (size_t i = 0; i < 2 * NB_COUNT(dirs); i++) {
        nb_engine *e = make_engine(&(nb_engine_options){ .model = in_source(dirs[i / 2]),
                                                         .kv_cache_dtype = "nvfp4",
                                                         .no_text = true,
                                                         .n_snapshot = i % 2 ? 1 : 0,
                                                         .max_model_len = LONG + 2 * PAGE,
                                                         .n_thread = 1 });
        nb_error err = { 0 };
        uint32_t id[LONG + 1];
        random_ids(id, LONG + 1, 96, 5);
        nb_result r = run(e, id, PAGE, 0);
        nb_result_deinit(&r);
        const nb_status st = nb_engine_fill(e, id, LONG, &err);
        if (i % 2) { /* its place is that of the copied block */
            assert_int_equal(st, NB_ERR_LIMIT);
        } else {
            if (st != NB_OK) fail_msg("%s", err.msg);
            assert_int_equal(nb_engine_fill(e, id, LONG, &err), NB_OK);
            r = run(e, id, LONG + 1, 4);
            assert_int_equal(r.n_cached, LONG);
            assert_int_equal(r.n_tokens, 4);
            nb_result_deinit(&r);
        }
        assert_int_equal(nb_engine_check(e, &err), NB_OK);
        nb_engine_destroy(e);
    }
}

static void test_found(void **state)
{
    (void)state;
    found("auto");
    found("absorbed");
}

/* What was computed is left as it is: a fill changes no result of the pages that it copies from. */
static void test_originals(void **state)
{
    nb_engine *e = engine("auto", false);
    nb_error err = { 0 };
    uint32_t id[LONG];
    (void)state;
    random_ids(id, LONG, 4000, 2);
    nb_result a = run(e, id, 3 * PAGE + 5, 6);
    assert_int_equal(nb_engine_fill(e, id, LONG, &err), NB_OK);
    nb_result b = run(e, id, 3 * PAGE + 5, 6);
    assert_int_equal(b.n_cached, 3 * PAGE);
    assert_int_equal(a.n_tokens, b.n_tokens);
    assert_memory_equal(a.tokens, b.tokens, a.n_tokens * sizeof *a.tokens);
    nb_result_deinit(&a);
    nb_result_deinit(&b);
    nb_engine_destroy(e);
}

static void test_refused(void **state)
{
    nb_engine *e = engine("auto", true);
    nb_error err = { 0 };
    uint32_t id[LONG];
    (void)state;
    random_ids(id, LONG, 4000, 3);
    assert_int_equal(nb_engine_fill(e, id, LONG, &err), NB_ERR_UNSUPPORTED);
    nb_engine_destroy(e);
    e = engine("auto", false);
    id[1] = 1u << 30;
    assert_true(nb_engine_fill(e, id, LONG, &err) != NB_OK);
    nb_engine_destroy(e);
    /* A pool of one request: a second text of that length does not fit beside a longer one. */
    e = engine("auto", false);
    uint32_t *many = calloc(16 * LONG, sizeof *many);
    assert_non_null(many);
    random_ids(many, 16 * LONG, 4000, 4);
    nb_result r = run(e, many, PAGE, 0);
    nb_result_deinit(&r);
    assert_true(nb_engine_fill(e, many, 16 * LONG, &err) != NB_OK);
    assert_int_equal(nb_engine_check(e, &err), NB_OK);
    free(many);
    nb_engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_data_ranks),
        cmocka_unit_test(test_originals),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
